"""The enclave's only door to inference: chat requests in, answers out.

Translates both ways and maps the engine's errors to ours; neither side's text
is kept, logged or put into an exception.
"""

import asyncio
import math
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

from curtilage.enclave_server.config import EnclaveConfig, ModelChoice
from curtilage.enclave_server.errors import (
    BusyError,
    ChatError,
    ConfigError,
    ModelError,
    PromptTooLongError,
)
from curtilage.enclave_server.ohttp.chat import ChatCompletionRequest
from curtilage.enclave_server.ohttp.openai_answers import Answer, Begun, Ending, Piece
from curtilage.inference.default_model import (
    DEFAULT_MODEL_ID,
    DEFAULT_SHA256,
    open_default_model,
)
from curtilage.inference.errors import (
    ContextTooLongError,
    EngineBusyError,
    InferenceError,
    ModelDigestError,
    RequestError,
    TemplateError,
)
from curtilage.inference.modelfile import VerifiedModel, verify_model_file
from curtilage.inference.protocol import (
    ChatMessage,
    Done,
    Engine,
    Event,
    GenerateRequest,
    Started,
    Token,
)
from curtilage.inference.sampling import SamplingSettings
from curtilage.wire.shaping import Shape, TransportParameters

NICENESS: Final = 19
"""Of the threads that compute. Frames go out on their ticks in any case; were the
model to keep them waiting, their delays would tell when it works."""
LOWEST_LOGPROB: Final = -9999.0
"""What OpenAI reports for a token that was all but impossible; JSON has no
infinity."""


class Model:
    """A started engine, as the gateway sees it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._patience_s = math.inf

    @property
    def name(self) -> str:
        """The model's name for people."""
        return self._engine.info.model_id

    @property
    def sha256(self) -> str:
        """The digest of the model file, hex; what the release must list."""
        return self._engine.info.model_sha256

    def keep_to(self, transport: TransportParameters) -> None:
        """Begin nothing that would have to wait for half of the longest answer.

        The other half is for writing. Whoever would wait for longer hears at once
        that we are busy, in the shortest bucket, and holds no place for minutes.
        """
        if transport.shape is Shape.PADDED:
            longest_s = transport.max_frames * transport.period_ms / 1000
            self._patience_s = longest_s / 2

    async def answer(self, chat: ChatCompletionRequest) -> AsyncGenerator[Answer]:
        """Answer one request; closing the iterator cancels generation.

        Raises:
            BusyError: too many requests wait, or for too long.
            PromptTooLongError: the context is too small for it.
            ChatError: the model's template cannot take these turns.
            ModelError: the engine failed or is closed.
        """
        if self._engine.load().wait_s > self._patience_s:
            raise BusyError("too many requests wait")
        try:
            # Closed with us: who hangs up stops the engine now, not when the collector
            # comes by, and everybody behind him waits no longer.
            async with aclosing(self._engine.generate(_request(chat))) as events:
                async for event in events:
                    yield _translate(event)
        except InferenceError as error:
            # The engine's errors hold counts only; ours are what may be told.
            raise _ours(error) from None

    async def close(self) -> None:
        """Stop the engine and free the model."""
        await self._engine.close()


async def open_model(config: EnclaveConfig) -> Model:
    """Verify the model file's digest, load it and start the engine.

    Raises:
        ConfigError: the file is not the one whose digest is configured.
        ModelError: it cannot be loaded, or the extra is not installed.
    """
    try:
        # Loaded late, so that everything else here works without the library.
        from curtilage.inference.engine import (  # noqa: PLC0415
            LlamaCppEngine,
            available_cpus,
        )
    except ImportError:
        raise ModelError("the extra 'llm' is not installed") from None
    choice = config.model
    try:
        engine = LlamaCppEngine(
            await asyncio.to_thread(_open_file, choice),
            model_id=DEFAULT_MODEL_ID if choice.path is None else choice.path.stem,
            context_tokens=choice.context_tokens,
            # One is left to whoever sends frames; see NICENESS.
            threads=min(choice.threads, max(1, available_cpus() - 1)),
            max_queued=config.limits.max_queue,
            niceness=NICENESS,
        )
        await engine.start()
    except InferenceError as error:
        raise ModelError(f"the model cannot be loaded: {error}") from None
    return Model(engine)


def _open_file(choice: ModelChoice) -> VerifiedModel:
    try:
        if choice.path is not None:
            return verify_model_file(choice.path, choice.sha256)
    except ModelDigestError as error:
        raise ConfigError(f"model.sha256: {error}") from None
    # The embedded one needs no digest in the configuration, as its own stands in the
    # code; one that is named must be that.
    if choice.sha256 not in {"", DEFAULT_SHA256}:
        raise ConfigError("model.sha256: not the embedded default's")
    return open_default_model()


def _request(chat: ChatCompletionRequest) -> GenerateRequest:
    """Translate; a speaker's name is dropped, as no template here reads it."""
    return GenerateRequest(
        messages=tuple(
            ChatMessage(role=message.role, content=message.content)
            for message in chat.messages
        ),
        settings=SamplingSettings(
            max_tokens=chat.max_tokens,
            temperature=chat.temperature,
            top_p=chat.top_p,
            seed=chat.seed,
            stop=chat.stop,
            logprobs=chat.logprobs,
        ),
    )


def _translate(event: Event) -> Answer:
    match event:
        case Started(prompt_tokens=prompt_tokens):
            return Begun(prompt_tokens=prompt_tokens)
        case Token(text=text, logprob=logprob):
            impossible = logprob is not None and not math.isfinite(logprob)
            return Piece(text=text, logprob=LOWEST_LOGPROB if impossible else logprob)
        case Done(finish="cancelled"):
            # We cancel by closing the iterator, so somebody else did.
            raise ModelError("the engine stopped in the middle")
        case Done(usage=usage, finish=finish):
            return Ending(
                finish_reason=finish,
                prompt_tokens=usage.prompt_tokens,
                completion_tokens=usage.completion_tokens,
            )


def _ours(error: InferenceError) -> ModelError | ChatError:
    match error:
        case EngineBusyError():
            return BusyError("too many requests wait")
        case ContextTooLongError():
            return PromptTooLongError("the context is too small")
        case RequestError() | TemplateError():
            return ChatError(400, "invalid_value", param="messages")
        case _:
            return ModelError(f"the engine failed: {type(error).__name__}")
