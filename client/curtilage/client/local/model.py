"""The local model: the client's only door to inference.

Resolves a name or a path to one file with one SHA-256, loads it in this
process, and answers queries with it. There is no second choice: a model that
is missing or has another digest answers nothing, and no other model is taken
in its place.
"""

import asyncio
import os
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from curtilage.client.answer import AnswerEvent, Delta, Finished
from curtilage.client.errors import (
    ConfigError,
    FailureReason,
    LocalUnavailableError,
    UsageError,
)
from curtilage.client.fair_queue import FairQueue, TurnRefusedError
from curtilage.client.local.machine import available_memory
from curtilage.client.local.registry import Registry
from curtilage.client.local.shape import read_shape
from curtilage.client.query import Query
from curtilage.inference.default_model import (
    DEFAULT_MODEL_ID,
    DEFAULT_SHA256,
    find_default_model,
)
from curtilage.inference.errors import (
    ContextTooLongError,
    EngineBusyError,
    InferenceError,
    ModelDigestError,
    ModelFileError,
    RequestError,
)
from curtilage.inference.modelfile import VerifiedModel, verify_model_file
from curtilage.inference.protocol import (
    ChatMessage,
    Done,
    Engine,
    EngineInfo,
    GenerateRequest,
    Token,
)
from curtilage.inference.sampling import SamplingSettings

DEFAULT_NAME: Final = "default"
DEFAULT_CONTEXT_TOKENS: Final = 4096
"""More must be asked for: two busy processors took 90 s to read 3,519 tokens, and a
context is overwritten and made anew after each answer (docs/costs.md)."""

CHARS_PER_TOKEN: Final = 4  # of English; good enough to say who waits longer


class LocalModelError(LocalUnavailableError):
    """The local model cannot answer this query, or any."""


class LocalModelMissingError(LocalModelError):
    """There is no such model here, or it is not a model."""


class LocalModelDigestError(LocalModelError):
    """The file is not the one whose SHA-256 was named."""


class LocalModelBusyError(LocalModelError):
    """Too many queries wait for the local model; later it may answer."""

    http_status = 429
    code = "rate_limit_exceeded"
    reason = FailureReason.LOCAL_BUSY


class LocalModelFailedError(LocalModelError):
    """The engine failed, or was closed while it answered."""


class LocalContextTooLongError(LocalModelError):
    """The query and its answer do not fit into the model's context.

    Attributes:
        prompt_tokens: length of the query.
        max_tokens: tokens asked for.
        context_tokens: size of the context.
    """

    http_status = 400
    code = "context_length_exceeded"
    reason = FailureReason.LOCAL_TOO_LONG

    def __init__(
        self, *, prompt_tokens: int, max_tokens: int, context_tokens: int
    ) -> None:
        super().__init__(
            f"the query has {prompt_tokens} tokens; with an answer of {max_tokens}"
            f" it exceeds the local model's {context_tokens}"
        )
        self.prompt_tokens = prompt_tokens
        self.max_tokens = max_tokens
        self.context_tokens = context_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelChoice:
    """One file, and which file it must be.

    Attributes:
        model_id: its name for people.
        path: where it lies.
        sha256: its digest, hex.
    """

    model_id: str
    path: Path
    sha256: str


def resolve(
    model: str | None, *, sha256: str | None = None, registry: Registry
) -> ModelChoice:
    """Say which file a setting means; does not open it.

    Args:
        model: None or ``default`` for the embedded model, a registered name,
            or a path (it holds a separator or ends in ``.gguf``).
        sha256: needed with a path; with a name it must agree.
        registry: the user's registered models.

    Raises:
        LocalModelMissingError: the embedded model is not installed.
        LocalModelDigestError: the name stands for another digest.
        ConfigError: a path without digest, a name that the registry does not
            have, or a registry that cannot be read.
    """
    if model is None or model == DEFAULT_NAME:
        choice = _embedded()
    elif os.sep in model or model.endswith(".gguf"):
        if sha256 is None:
            raise ConfigError(
                "a model file is used only with its SHA-256: add --model-sha256"
            )
        path = Path(model)
        return ModelChoice(model_id=path.stem, path=path, sha256=sha256.lower())
    else:
        entry = registry.get(model)
        choice = ModelChoice(
            model_id=entry.name, path=Path(entry.path), sha256=entry.sha256
        )
    if sha256 is not None and sha256.lower() != choice.sha256:
        raise LocalModelDigestError(
            f"{choice.model_id} has SHA-256 {choice.sha256}, not the one named"
        )
    return choice


def verify_choice(choice: ModelChoice) -> None:
    """Hash the chosen file and compare.

    Raises:
        LocalModelDigestError: it is another file.
        LocalModelMissingError: there is no such file.
    """
    try:
        verify_model_file(choice.path, choice.sha256).close()
    except InferenceError as problem:
        raise _translated(problem) from None


class LocalModel:
    """Answers queries on this machine.

    Args:
        make_engine: makes the engine when it is started; may take as long as
            reading the whole model file does, and runs in a thread.
        model_id: the model's name for people.
    """

    def __init__(self, make_engine: Callable[[], Engine], *, model_id: str) -> None:
        self._make_engine = make_engine
        self._engine: Engine | None = None
        self._turns = FairQueue()
        self.model_id = model_id

    @classmethod
    def open(
        cls,
        model: str | None = None,
        *,
        sha256: str | None = None,
        registry: Registry,
        context_tokens: int | None = None,
        threads: int | None = None,
    ) -> Self:
        """Choose a model; ``start`` verifies and loads it.

        Args:
            model: see ``resolve``.
            sha256: see ``resolve``.
            registry: see ``resolve``.
            context_tokens: question and answer together; None: the default, or what
                the model was trained for, where that is less.
            threads: of one decode; None: the processors this process may use.

        Raises:
            LocalModelError: see ``resolve``.
            ConfigError: see ``resolve``; ``start`` raises it where the context that
                is asked for is more than the model or the memory has.
        """
        choice = resolve(model, sha256=sha256, registry=registry)

        def make_engine() -> Engine:
            verified = verify_model_file(choice.path, choice.sha256)
            tokens = context_tokens or DEFAULT_CONTEXT_TOKENS
            try:
                if context_tokens and (shape := read_shape(verified.load_path)):
                    shape.require_context(
                        tokens, verified.size_bytes, available_memory()
                    )
            except ConfigError:
                verified.close()
                raise
            return _engine(verified, choice.model_id, tokens, threads)

        return cls(make_engine, model_id=choice.model_id)

    @property
    def info(self) -> EngineInfo:
        """What answers, with its digests; only after ``start``.

        Raises:
            LocalModelFailedError: it was not started.
        """
        return self._running().info

    @property
    def context_tokens(self) -> int:
        """How much it reads and writes at once; only after ``start``, as ``info``."""
        return self.info.context_tokens

    async def start(self) -> None:
        """Verify the file, load it, check the machine.

        Raises:
            ConfigError: see ``open``.
            LocalModelDigestError: it is another file.
            LocalModelMissingError: there is no such file, or no engine for it.
            LocalModelFailedError: the engine will not do on this machine.
        """
        if self._engine is not None:
            return
        try:
            engine = await asyncio.to_thread(self._make_engine)
            try:
                await engine.start()
            except InferenceError:
                # It holds the model's memory, and nobody else would give it back.
                await engine.close()
                raise
        except ModelDigestError as problem:
            raise LocalModelDigestError(
                f"the local model {self.model_id!r} is another file: {problem}"
            ) from None
        except ModelFileError as problem:
            raise LocalModelMissingError(
                f"the local model {self.model_id!r} cannot be used: {problem}; "
                "`curtilage models list` shows what is here"
            ) from None
        except InferenceError as problem:
            raise _translated(problem) from None
        self._engine = engine

    async def generate(self, query: Query) -> AsyncGenerator[AnswerEvent]:
        """Answer a query; closing the iterator stops the engine.

        Queries are answered one by one, in turn over those who ask (``fair_queue``).

        Raises:
            LocalContextTooLongError: it does not fit.
            LocalModelBusyError: too many wait already.
            LocalModelFailedError: the engine failed, or was not started.
            UsageError: a setting is outside its range.
        """
        engine = self._running()
        # The turn first, and given back last: this one's answer is stopped before the
        # next one's question reaches the engine.
        try:
            async with (
                self._turns.turn(_cost(query)),
                aclosing(engine.generate(_request(query))) as events,
            ):
                async for event in events:
                    if isinstance(event, Done):
                        yield _finished(event)
                    elif isinstance(event, Token) and (delta := _delta(event)):
                        yield delta
        except TurnRefusedError:
            raise LocalModelBusyError(
                "too many queries wait for the local model"
            ) from None
        except InferenceError as problem:
            raise _translated(problem) from None

    async def close(self) -> None:
        """Stop whatever is being answered and free the model."""
        engine, self._engine = self._engine, None
        if engine is not None:
            await engine.close()

    def _running(self) -> Engine:
        if self._engine is None:
            raise LocalModelFailedError("the local model is not running")
        return self._engine


def _embedded() -> ModelChoice:
    try:
        path = find_default_model()
    except ModelFileError as problem:
        raise LocalModelMissingError(
            f"no local model configured: {problem}; in a source checkout `make setup` "
            "installs it, or name another with --model"
        ) from None
    return ModelChoice(model_id=DEFAULT_MODEL_ID, path=path, sha256=DEFAULT_SHA256)


def _engine(
    verified: VerifiedModel, model_id: str, context_tokens: int, threads: int | None
) -> Engine:
    try:
        # Here, not above: this part imports without the engine's library.
        from curtilage.inference.engine import LlamaCppEngine  # noqa: PLC0415
    except ImportError as problem:
        verified.close()
        raise LocalModelMissingError(
            f"the local model needs the extra 'llm' ({problem.name or problem})"
        ) from None
    return LlamaCppEngine(
        verified, model_id=model_id, context_tokens=context_tokens, threads=threads
    )


def _cost(query: Query) -> int:
    """Return about how many tokens the model will read and write."""
    read = sum(len(message.content) for message in query.messages)
    return query.settings.max_tokens + read // CHARS_PER_TOKEN


def _request(query: Query) -> GenerateRequest:
    settings = query.settings
    return GenerateRequest(
        messages=tuple(
            ChatMessage(role=message.role, content=message.content)
            for message in query.messages
        ),
        settings=SamplingSettings(
            max_tokens=settings.max_tokens,
            temperature=settings.temperature,
            top_p=settings.top_p,
            seed=settings.seed,
            stop=settings.stop,
            logprobs=settings.logprobs,
        ),
    )


def _delta(token: Token) -> Delta | None:
    if token.logprob is not None:
        return Delta(text=token.text, logprobs=((token.text, token.logprob),))
    return Delta(text=token.text) if token.text else None


def _finished(done: Done) -> Finished:
    if done.finish == "cancelled":
        # Nothing here cancels but by closing the iterator.
        raise LocalModelFailedError("the local model was stopped")
    return Finished(
        finish_reason=done.finish,
        prompt_tokens=done.usage.prompt_tokens,
        completion_tokens=done.usage.completion_tokens,
    )


def _translated(problem: InferenceError) -> LocalModelError | UsageError:
    """Say an engine's error in the client's terms; it holds no content."""
    match problem:
        case ContextTooLongError():
            return LocalContextTooLongError(
                prompt_tokens=problem.prompt_tokens,
                max_tokens=problem.max_tokens,
                context_tokens=problem.context_tokens,
            )
        case RequestError():
            return UsageError(str(problem))
        case ModelDigestError():
            return LocalModelDigestError(str(problem))
        case ModelFileError():
            return LocalModelMissingError(f"no local model: {problem}")
        case EngineBusyError():
            return LocalModelBusyError("too many queries wait for the local model")
        case _:
            return LocalModelFailedError(f"the local model failed: {problem}")
