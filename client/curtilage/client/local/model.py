"""The local model: the client's only access to inference.

Resolves a name or a path to one file with one SHA-256, has it loaded in a process of
its own, and answers queries with it. There is no fallback: if the model is missing or
has another digest, no query is answered, and no other model replaces it.
"""

import asyncio
import json
import os
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Self, cast

from curtilage.client.chat.answer import (
    AnswerEvent,
    Delta,
    Finished,
    TokenSignal,
    token_of,
)
from curtilage.client.chat.answer import Called as AnswerCall
from curtilage.client.chat.document import Document
from curtilage.client.chat.query import Message, Query
from curtilage.client.chat.turns import id_of
from curtilage.client.errors import ConfigError, LocalUnavailableError, UsageError
from curtilage.client.local.computing import AS_USUAL, Computing
from curtilage.client.local.reasons import LocalFailure, LocalModelError
from curtilage.client.local.registry.catalogue import DEFAULT_NAME
from curtilage.client.local.registry.shape import read_shape
from curtilage.client.local.registry.store import ModelEntry, Registry
from curtilage.client.system.fair_queue import FairQueue, TurnRefusedError
from curtilage.inference.default_model import (
    DEFAULT_MODEL_ID,
    DEFAULT_SHA256,
    find_default_model,
)
from curtilage.inference.errors import (
    ContextSizeError,
    ContextTooLongError,
    EngineBusyError,
    EngineCrashedError,
    EngineHungError,
    EngineMemoryError,
    EngineMissingError,
    EngineRestartingError,
    InferenceError,
    ModelDigestError,
    ModelFileError,
    RequestError,
    each_in_field,
    in_field,
)
from curtilage.inference.memory import available_memory
from curtilage.inference.merged import merged
from curtilage.inference.modelfile import read_head, verify_model_file
from curtilage.inference.process.codec import Plan
from curtilage.inference.process.parent import EngineProcess
from curtilage.inference.protocol import (
    Called,
    CancelToken,
    ChatMessage,
    Done,
    Engine,
    EngineInfo,
    Event,
    GenerateRequest,
    JsonObject,
    JsonSchema,
    NamedTool,
    ResponseFormat,
    Started,
    Token,
    Tool,
    ToolCall,
    ToolChoice,
)
from curtilage.inference.sampling import SamplingSettings
from curtilage.inference.settings import EngineSettings
from curtilage.inference.shape import MAX_HEAD_BYTES, parse_shape
from curtilage.inference.sizing import (
    MOST_UNASKED,
    USUAL,
    ContextPlan,
    plan_contexts,
)

AGAIN_S: Final = 30.0
"""How long to wait after a model failed for lack of memory."""

NONE_CONFIGURED: Final = "no local model configured"
NOT_OFFERED: Final = "the local model called a tool that it was not offered"
BYTES_PER_TOKEN: Final = 4  # English; good enough to decide who waits longer


class LocalModelMissingError(LocalModelError):
    """The model is missing, or the file is not a model."""

    code = "local_model_missing"


class LocalModelDigestError(LocalModelError):
    """The file does not have the configured SHA-256."""

    code = "local_model_changed"


class LocalModelBusyError(LocalModelError):
    """Too many queries wait for the local model; it may answer later."""

    http_status = 429
    code = "rate_limit_exceeded"
    reason = LocalFailure.BUSY


class LocalModelFailedError(LocalModelError):
    """The engine failed, or was closed while it answered."""


class LocalModelCrashedError(LocalModelFailedError):
    """The engine's process ended while it answered; another one is started."""

    code = "local_crashed"
    reason = LocalFailure.CRASHED


class LocalModelHungError(LocalModelFailedError):
    """The engine's process made no progress; another one is started."""

    code = "local_hung"
    reason = LocalFailure.HUNG


class LocalModelRestartingError(LocalModelError):
    """The engine's process is being started again; it may answer later."""

    code = "local_restarting"
    reason = LocalFailure.RESTARTING


class LocalModelMemoryError(LocalModelError):
    """There is currently too little memory for it; it may answer later."""

    code = "local_out_of_memory"
    reason = LocalFailure.OUT_OF_MEMORY

    def __init__(self, need_bytes: int | None = None, has_bytes: int = 0) -> None:
        need = ""
        if need_bytes is not None:
            need = f" (it takes {need_bytes >> 20} MiB, {has_bytes >> 20} are free)"
        super().__init__(
            f"there is too little memory for the local model{need}: free some, or "
            "choose a smaller model (`curtilage models recommend`)"
        )


class LocalModelSlowError(LocalModelError):
    """It did not begin within the time limit that applies if others may answer."""

    code = "local_slow"
    reason = LocalFailure.SLOW

    def __init__(self) -> None:
        super().__init__("the local model did not begin in time")


class LocalModelLateError(LocalModelError):
    """It did not answer within its time limit, and was stopped."""

    http_status = 504
    code = "local_late"
    reason = LocalFailure.LATE

    def __init__(self, answer_s: float) -> None:
        super().__init__(
            f"the local model did not answer within {answer_s:g} s: ask for a shorter "
            "answer, or raise the limit (--answer-seconds)"
        )


class LocalContextTooLongError(LocalModelError):
    """The query and its answer do not fit into the model's context.

    Attributes:
        prompt_tokens: length of the query.
        max_tokens: tokens asked for.
        context_tokens: size of the context.
    """

    http_status = 400
    code = "context_length_exceeded"
    reason = LocalFailure.TOO_LONG

    def __init__(
        self, *, prompt_tokens: int, max_tokens: int, context_tokens: int
    ) -> None:
        super().__init__(
            f"the query has at least {prompt_tokens} tokens; with an answer of "
            f"{max_tokens} it exceeds the local model's {context_tokens}"
        )
        self.prompt_tokens = prompt_tokens
        self.max_tokens = max_tokens
        self.context_tokens = context_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelChoice:
    """One model file and its expected digest.

    Attributes:
        model_id: its name, for display.
        path: of the file.
        sha256: its digest, hex.
        adapter: path of a LoRA adapter for it, or None.
        adapter_sha256: the adapter's digest, hex; empty likewise.
    """

    model_id: str
    path: Path
    sha256: str
    adapter: Path | None = None
    adapter_sha256: str = ""


def running_digest(model_sha256: str, adapter_sha256: str) -> str:
    """Return the digests of a model's file and of its adapter, as certificates name it.

    A certificate of the model alone does not hold for it with an adapter.
    """
    return "+".join(filter(None, (model_sha256, adapter_sha256)))


def resolve(
    model: str | None, *, sha256: str | None = None, registry: Registry
) -> ModelChoice:
    """Return the file that a setting refers to; does not open it.

    Args:
        model: None or ``default`` for the embedded model, a registered name,
            or a path (with a separator, or ending in ``.gguf``).
        sha256: required with a path; with a name it must match.
        registry: the user's registered models.

    Raises:
        LocalModelMissingError: the embedded model is not installed.
        LocalModelDigestError: the name is registered with another digest.
        ConfigError: a path without digest, an unregistered name, or an unreadable
            registry.
    """
    if model is None or model == DEFAULT_NAME:
        choice = _embedded()
    elif os.sep in model or model.endswith(".gguf"):
        if sha256 is None:
            raise ConfigError("a model file needs its SHA-256: add --model-sha256")
        path = Path(model)
        return ModelChoice(model_id=path.stem, path=path, sha256=sha256.lower())
    else:
        choice = _registered(registry.get(model), registry)
    if sha256 is not None and sha256.lower() != choice.sha256:
        raise LocalModelDigestError(
            f"{choice.model_id} has SHA-256 {choice.sha256}, not the configured one"
        )
    return choice


def resolve_digest(
    sha256: str, *, adapter: str = "", registry: Registry
) -> ModelChoice | None:
    """Return the files with these digests; None: some are missing.

    Args:
        sha256: of the model's file, hex.
        adapter: of a LoRA adapter that was registered for it; empty: none.
        registry: see ``resolve``.

    Raises:
        ConfigError: the registry cannot be read.
    """
    base = sha256 if adapter else ""
    if (entry := registry.find(adapter or sha256, base=base)) is not None:
        with suppress(ConfigError, LocalModelMissingError):
            return _registered(entry, registry)
    if sha256 == DEFAULT_SHA256 and not adapter:
        with suppress(LocalModelMissingError):
            return _embedded()
    return None


def _registered(entry: ModelEntry, registry: Registry) -> ModelChoice:
    """Return a registered model; for an adapter, with the model that it is made for."""
    path = Path(entry.path)
    if not entry.base:
        return ModelChoice(model_id=entry.name, path=path, sha256=entry.sha256)
    base = resolve_digest(entry.base, registry=registry)
    if base is None:
        raise ConfigError(
            f"{entry.name!r} is an adapter for a model that is not registered, "
            f"sha256:{entry.base}"
        )
    return replace(base, model_id=entry.name, adapter=path, adapter_sha256=entry.sha256)


def verify_choice(choice: ModelChoice) -> None:
    """Hash the chosen file and compare.

    Raises:
        LocalModelDigestError: the digest differs.
        LocalModelMissingError: there is no such file.
    """
    try:
        verify_model_file(choice.path, choice.sha256).close()
        if choice.adapter is not None:
            verify_model_file(choice.adapter, choice.adapter_sha256).close()
    except InferenceError as problem:
        raise _translated(problem) from None


def _unheard(_line: str) -> None:
    """Drop a line for people."""


def require_room(path: Path, tokens: int | None, memory_bytes: int | None) -> None:
    """Refuse a model for which there is too little memory, by its unverified file.

    Args:
        path: of the model.
        tokens: of its context; None: the usual size, or what it was trained for.
        memory_bytes: what is available; None: unknown, and refuses nothing.

    Raises:
        ConfigError: the file cannot be read, or the context is not possible.
    """
    if shape := read_shape(path):
        try:
            plan_contexts(
                shape,
                path.stat().st_size,
                memory_bytes,
                tokens=tokens or min(USUAL, shape.trained_context),
                sequences=1,
                settings=EngineSettings(),
            )
        except InferenceError as problem:
            raise _translated(problem) from None


class LocalModel:
    """Answers queries on this machine.

    Args:
        make_engine: creates the engine on start; may take as long as reading the
            whole model file, and runs in a thread.
        model_id: the model's name, for display.
        sha256: of its file; empty: only the engine knows it.
        context_tokens: approximate size of its context; None: only the engine knows it.
        answer_s: see ``Computing``.
    """

    def __init__(
        self,
        make_engine: Callable[[], Engine],
        *,
        model_id: str,
        sha256: str = "",
        context_tokens: int | None = None,
        answer_s: float = AS_USUAL.answer_s,
    ) -> None:
        self._make_engine = make_engine
        self._answer_s = answer_s
        self._sha256 = sha256
        self._expected_tokens = context_tokens
        self._engine: Engine | None = None
        self._loading: asyncio.Task[None] | None = None
        self._again_s: float | None = None
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
        sequences: int | None = None,
        computing: Computing = AS_USUAL,
        sized: Callable[[str], object] = _unheard,
    ) -> Self:
        """Choose a model; ``start`` verifies and loads it.

        Args:
            model: see ``resolve``.
            sha256: see ``resolve``.
            registry: see ``resolve``.
            context_tokens: question and answer together; None: the model's training
                context, or what memory allows, if that is less (``plan_contexts``).
            sequences: how many queries are answered at a time, each with a context of
                its own; None: two, or one if memory is short.
            computing: how the engine computes.
            sized: takes one line with the context and its memory, before the model
                is loaded; called from another thread.

        Raises:
            LocalModelError: see ``resolve``.
            ConfigError: see ``resolve``; ``start`` raises it if the requested context
                exceeds the model's or the memory.
        """
        choice = resolve(model, sha256=sha256, registry=registry)
        return cls.of(
            choice,
            context_tokens=context_tokens,
            sequences=sequences,
            computing=computing,
            sized=sized,
        )

    @classmethod
    def of(
        cls,
        choice: ModelChoice,
        *,
        context_tokens: int | None = None,
        sequences: int | None = None,
        computing: Computing = AS_USUAL,
        sized: Callable[[str], object] = _unheard,
    ) -> Self:
        """Create it for a resolved choice; as ``open``."""

        def make_engine() -> Engine:
            plan = _plan(choice.path, context_tokens, sequences, computing)
            sized(plan.line(choice.model_id))
            return EngineProcess(
                Plan(
                    model=str(choice.path.absolute()),
                    sha256=choice.sha256,
                    model_id=choice.model_id,
                    adapter=str(choice.adapter.absolute()) if choice.adapter else "",
                    adapter_sha256=choice.adapter_sha256,
                    settings=plan.settings,
                )
            )

        return cls(
            make_engine,
            model_id=choice.model_id,
            sha256=choice.sha256,
            context_tokens=_expected_tokens(choice.path, context_tokens),
            answer_s=computing.answer_s,
        )

    @property
    def info(self) -> EngineInfo:
        """The engine's description with its digests; only after ``start``.

        Raises:
            LocalModelFailedError: it was not started.
        """
        return self._running().info

    @property
    def sha256(self) -> str:
        """Digest of its file, hex; empty if unknown before ``start``."""
        return self._sha256 or ("" if self._engine is None else self.info.model_sha256)

    @property
    def digests(self) -> tuple[str, str | None] | None:
        """SHA-256 of the model's file and, once it is loaded, of its chat template.

        With an adapter the first contains two, as ``running_digest`` joins them.
        """
        if self._engine is None:
            return (self._sha256, None) if self._sha256 else None
        info = self._engine.info
        model = running_digest(info.model_sha256, info.adapter_sha256)
        return model, info.template_sha256

    @property
    def context_tokens(self) -> int | None:
        """Tokens of question and answer together; approximate before ``start``."""
        if self._engine is None:
            return self._expected_tokens
        return self.info.context_tokens

    async def start(self) -> None:
        """Verify the file, load it, check the machine.

        Raises:
            ConfigError: see ``open``.
            LocalModelDigestError: the file has another digest.
            LocalModelMissingError: file or engine are missing.
            LocalModelFailedError: the engine does not run on this machine.
            LocalModelMemoryError: there is too little memory; ``generate`` tries
                again, later.
        """
        if self._engine is not None:
            return
        self._again_s = None
        try:
            engine = await asyncio.to_thread(self._make_engine)
            try:
                await engine.start()
            except BaseException:
                # It holds the model's memory, and no other code would free it.
                await engine.close()
                raise
        except ModelDigestError as problem:
            raise LocalModelDigestError(
                f"the local model {self.model_id!r} is another file: {problem}"
            ) from None
        except ModelFileError as problem:
            raise LocalModelMissingError(
                f"the local model {self.model_id!r} cannot be used: {problem}; "
                "`curtilage models list` shows the available ones"
            ) from None
        except InferenceError as problem:
            if isinstance(problem, EngineMemoryError):
                self._again_s = self._now_s() + AGAIN_S
            raise _translated(problem) from None
        self._engine = engine
        self._turns.places = engine.info.sequences

    def warm(self, failed: Callable[[str], object] = _unheard) -> None:
        """Begin to ``start`` in the background.

        ``generate`` waits for it, and reports its result to every caller.

        Args:
            failed: takes one line if it could not be started.
        """

        def ended(task: "asyncio.Task[None]") -> None:
            problem = None if task.cancelled() else task.exception()
            if isinstance(problem, ConfigError | LocalUnavailableError):
                failed(f"the local model is not loaded: {problem}")

        self._again_s = None
        self._loading = asyncio.ensure_future(self.start())
        self._loading.add_done_callback(ended)

    async def generate(
        self, query: Query, *, signals: bool = False
    ) -> AsyncGenerator[AnswerEvent]:
        """Answer a query; closing the iterator stops the engine.

        As many at a time as the engine has sequences, in turn over the callers
        (``fair_queue``). Each of several answers waits for a turn of its own: so they
        are written at the same time only where no other query waits for the place.

        Args:
            query: the question.
            signals: report for each token how certain the model was, for judging the
                answer; log-probabilities are still only returned on request.

        Raises:
            LocalContextTooLongError: it does not fit.
            LocalModelBusyError: too many wait already.
            LocalModelFailedError: the engine failed, or was not started.
            LocalModelLateError: it took too long.
            LocalModelMemoryError: there is too little memory; half a minute later
                it is tried again.
            UsageError: a setting is outside its range.
        """
        engine = await self._ready()
        ended: dict[int, Finished] = {}
        waiting = asyncio.Lock()
        try:
            answers = [
                self._answer(engine, query, request, choice, waiting)
                for choice, request in enumerate(_requests(query, signals))
            ]
            async with aclosing(merged(answers)) as events:
                async for choice, each in events:
                    if isinstance(each, Finished):
                        ended[choice] = each
                    else:
                        yield each
            # Without an end an answer is not complete, and nor are several.
            if len(ended) == query.settings.n:
                yield _joined([ended[choice] for choice in sorted(ended)])
        except TurnRefusedError:
            raise LocalModelBusyError(
                "too many queries wait for the local model"
            ) from None
        except InferenceError as problem:
            if isinstance(problem, EngineMemoryError) and self._engine is engine:
                # It has ended; memory may be available again later.
                self._engine, self._again_s = None, self._now_s() + AGAIN_S
                await engine.close()
            raise _translated(problem) from None

    async def _answer(
        self,
        engine: Engine,
        query: Query,
        request: GenerateRequest,
        choice: int,
        waiting: asyncio.Lock,
    ) -> AsyncGenerator[AnswerEvent]:
        # Of one query one waits at a time: the next is due after the turn before it.
        async with waiting:
            await self._turns.take(_cost(query))
        # The turn is taken first and released last: this answer is stopped before the
        # next question reaches the engine.
        cancel = CancelToken()
        limit = asyncio.get_running_loop().call_later(self._answer_s, cancel.cancel)
        try:
            async with aclosing(engine.generate(request, cancel=cancel)) as events:
                async for each in _answer(events, query, choice):
                    yield each
        except LocalModelFailedError:
            if cancel.cancelled:
                raise LocalModelLateError(self._answer_s) from None
            raise
        finally:
            limit.cancel()
            self._turns.end()

    async def close(self) -> None:
        """Stop the current answer and free the model."""
        loading, self._loading = self._loading, None
        if loading is not None:
            # Not waited for: the file may be large.
            loading.cancel()
            await asyncio.gather(loading, return_exceptions=True)
        engine, self._engine, self._again_s = self._engine, None, None
        if engine is not None:
            await engine.close()

    async def _ready(self) -> Engine:
        if self._again_s is not None:
            if self._now_s() < self._again_s:
                raise LocalModelMemoryError
            self.warm()
        loading = self._loading
        if self._engine is None and loading is not None:
            try:
                # Shielded: cancelling a waiting caller must not stop the loading.
                await asyncio.shield(loading)
            except LocalUnavailableError as error:
                raise error.alone() from None
            except asyncio.CancelledError:
                # Closed meanwhile, or this caller gave up.
                if not loading.cancelled():
                    raise
        return self._running()

    @staticmethod
    def _now_s() -> float:
        return asyncio.get_running_loop().time()

    def _running(self) -> Engine:
        if self._engine is None:
            raise LocalModelFailedError("the local model is not running")
        return self._engine


def _embedded() -> ModelChoice:
    try:
        path = find_default_model()
    except ModelFileError as problem:
        raise LocalModelMissingError(
            f"{NONE_CONFIGURED}: {problem}; in a source checkout `make setup` "
            "installs it, or pass another with --model"
        ) from None
    return ModelChoice(model_id=DEFAULT_MODEL_ID, path=path, sha256=DEFAULT_SHA256)


def _expected_tokens(path: Path, asked: int | None) -> int:
    """Return the approximate context size, according to the unverified file."""
    with suppress(ConfigError):
        if shape := read_shape(path):
            return min(asked or MOST_UNASKED, shape.trained_context)
    return asked or USUAL


def _plan(
    path: Path,
    tokens: int | None,
    sequences: int | None,
    computing: Computing,
) -> ContextPlan:
    # Of the file that the engine's process is yet to verify. A plan for another one
    # would only be too large or too small.
    head, size_bytes = read_head(path, MAX_HEAD_BYTES)
    return plan_contexts(
        parse_shape(head),
        size_bytes,
        available_memory(),
        tokens=tokens,
        sequences=sequences,
        settings=EngineSettings(
            threads=computing.threads,
            kv_type=computing.kv_type,
            flash_attention=computing.flash_attention,
            gpu_layers=computing.gpu_layers,
        ),
    )


def _cost(query: Query) -> int:
    """Return approximately how many tokens the model will read and write."""
    return query.settings.max_tokens + query.text_bytes // BYTES_PER_TOKEN


def _requests(query: Query, signals: bool) -> Iterator[GenerateRequest]:
    """Yield one request for each answer."""
    request = _request(query, signals)
    seed = query.settings.seed
    for choice in range(query.settings.n):
        # Several answers from one seed would be one.
        own = seed if seed is None else seed + choice
        yield replace(request, settings=replace(request.settings, seed=own))


def _request(query: Query, signals: bool) -> GenerateRequest:
    settings = query.settings
    return GenerateRequest(
        messages=each_in_field("messages", _message, query.messages),
        settings=SamplingSettings(
            max_tokens=settings.max_tokens,
            temperature=settings.temperature,
            top_p=settings.top_p,
            stop=settings.stop,
            logprobs=settings.logprobs,
            top_logprobs=settings.top_logprobs,
            presence_penalty=settings.presence_penalty,
            frequency_penalty=settings.frequency_penalty,
            margins=signals,
        ),
        tools=each_in_field("tools", _tool, query.tools),
        tool_choice=_tool_choice(query.tool_choice),
        parallel_tool_calls=query.parallel_tool_calls,
        response_format=_response_format(query.response_format),
        deterministic=settings.deterministic,
    )


def _message(message: Message) -> ChatMessage:
    return ChatMessage(
        role=message.role,
        content=message.content,
        name=message.name or "",
        tool_calls=tuple(
            ToolCall(
                id=id_of(each.number),
                name=each.name,
                arguments=each.arguments.encoded,
            )
            for each in message.calls
        ),
        tool_call_id="" if message.result_of is None else id_of(message.result_of),
    )


def _tool(definition: Document) -> Tool:
    given = cast("dict[str, Any]", definition.value())
    schema = given.get("parameters")
    return Tool(
        name=given["name"],
        description=given.get("description", ""),
        strict=given.get("strict", False),
        **(
            {}
            if schema is None
            else {"parameters": json.dumps(schema, ensure_ascii=False)}
        ),
    )


def _tool_choice(choice: str) -> ToolChoice:
    match choice:
        case "none" | "auto" | "required":
            return choice
        case _:
            return NamedTool(name=choice)


def _response_format(wanted: Document | None) -> ResponseFormat | None:
    if wanted is None:
        return None
    given = cast("dict[str, Any]", wanted.value())
    described = given.get("json_schema")
    if described is None:
        return JsonObject()
    with in_field("response_format"):
        return JsonSchema(
            name=described["name"],
            description=described.get("description", ""),
            schema=json.dumps(described.get("schema", {}), ensure_ascii=False),
            strict=described.get("strict", False),
        )


async def _answer(
    events: AsyncGenerator[Event], query: Query, choice: int
) -> AsyncGenerator[AnswerEvent]:
    """Translate one answer of the engine.

    Raises:
        LocalModelFailedError: it was stopped, or called a tool that was not offered.
    """
    prompt_tokens = 0
    async for event in events:
        match event:
            case Started():
                prompt_tokens = event.prompt_tokens
            case Done():
                yield _finished(event)
            case Called(call=call):
                called = AnswerCall(
                    index=event.index, name=call.name, arguments=call.arguments
                )
                calling = Delta(text="", choice=choice, calls=(called,))
                if not query.expects(calling):
                    raise LocalModelFailedError(NOT_OFFERED)
                yield calling
            case Token():
                if delta := _delta(event, query.settings.logprobs):
                    yield replace(delta, choice=choice, prompt_tokens=prompt_tokens)
                    prompt_tokens = 0  # only with the first piece


def _delta(token: Token, logprobs: bool) -> Delta | None:
    if token.logprob is None:
        return Delta(text=token.text) if token.text else None
    sure = token.logprob
    top = tuple((token_of(each.data), each.logprob) for each in token.top)
    return Delta(
        text=token.text,
        # Not the text, which may be released later, and with other tokens'.
        logprobs=((token_of(token.data), sure),) if logprobs else (),
        tops=(top,) if logprobs and top else (),
        signals=()
        if token.margin is None
        else (TokenSignal(logprob=sure, margin=token.margin),),
    )


def _finished(done: Done) -> Finished:
    if done.finish == "cancelled":
        raise LocalModelFailedError("the local model was stopped")
    return Finished(
        finish_reason=done.finish,
        prompt_tokens=done.usage.prompt_tokens,
        completion_tokens=done.usage.completion_tokens,
    )


def _joined(ended: list[Finished]) -> Finished:
    """Return the end of several answers to one question, which is counted once."""
    first, *others = ended
    return replace(
        first,
        completion_tokens=sum(each.completion_tokens for each in ended),
        others=tuple(each.finish_reason for each in others),
    )


def _translated(  # noqa: C901, PLR0911 - one error each
    problem: InferenceError,
) -> LocalModelError | UsageError | ConfigError:
    """Return the client's error for an engine's error; without content."""
    match problem:
        case ContextTooLongError():
            return LocalContextTooLongError(
                prompt_tokens=problem.prompt_tokens,
                max_tokens=problem.max_tokens,
                context_tokens=problem.context_tokens,
            )
        case RequestError(field=place):
            said = f"{place}: {problem}" if place else str(problem)
            return UsageError(said, param=place or None)
        case ContextSizeError():
            return ConfigError(str(problem))
        case ModelDigestError():
            return LocalModelDigestError(str(problem))
        case ModelFileError():
            return LocalModelMissingError(f"no local model: {problem}")
        case EngineMissingError():
            return LocalModelMissingError(
                f"the local model needs the extra 'llm' ({problem.name})"
            )
        case EngineBusyError():
            if isinstance(problem, EngineRestartingError):
                return LocalModelRestartingError(str(problem))
            return LocalModelBusyError("too many queries wait for the local model")
        case EngineMemoryError():
            return LocalModelMemoryError(problem.need_bytes, problem.memory_bytes or 0)
        case EngineCrashedError() | EngineHungError():
            # A new process is started, and a request that is repeated finds it.
            return _ENDED[type(problem)](
                f"the local model failed: {problem}; ask again"
            )
        case _:
            return LocalModelFailedError(f"the local model failed: {problem}")


_ENDED: Final[Mapping[type[InferenceError], type[LocalModelFailedError]]] = {
    EngineCrashedError: LocalModelCrashedError,
    EngineHungError: LocalModelHungError,
}
