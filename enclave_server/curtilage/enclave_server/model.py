"""The enclave's only access to inference: chat requests in, answers out.

Translates requests, answers and errors between the two interfaces; no text of either
side is stored, logged or put into an exception.
"""

import asyncio
import math
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final, Protocol

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
    Called,
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
"""Niceness of the engine's threads. Frames are sent on their ticks in any case; if the
model delayed them, the delays would disclose when it works."""
LOWEST_LOGPROB: Final = -9999.0
"""OpenAI's value for a token with almost no probability; JSON has no infinity."""


class ServedModel(Protocol):
    """A model that answers chat requests, loaded here or by another server."""

    @property
    def name(self) -> str:
        """The model's display name."""
        ...

    @property
    def sha256(self) -> str:
        """The digest of the model file, hex; empty where none is claimed."""
        ...

    def keep_to(self, transport: TransportParameters) -> None:
        """Refuse requests that would wait too long for answers of this shape."""
        ...

    def answer(self, chat: ChatCompletionRequest) -> AsyncGenerator[Answer]:
        """Answer one request; closing the iterator cancels generation."""
        ...

    async def close(self) -> None:
        """Stop."""
        ...


class Model:
    """A started engine, with the interface that the gateway uses."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._patience_s = math.inf

    @property
    def name(self) -> str:
        """The model's display name."""
        return self._engine.info.model_id

    @property
    def sha256(self) -> str:
        """The digest of the model file, hex; what the release must list."""
        return self._engine.info.model_sha256

    def keep_to(self, transport: TransportParameters) -> None:
        """Refuse requests that would wait for half of the longest answer's time.

        The other half is for writing. Such a request is refused as busy at once, in the
        shortest bucket, and holds no place for minutes.
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
            raise BusyError("too many requests are waiting")
        try:
            # Closed with us: a client that disconnects stops the engine at once, not at
            # the next garbage collection, and the requests after it wait no longer.
            async with aclosing(self._engine.generate(_request(chat))) as events:
                async for event in events:
                    yield _translate(event)
        except InferenceError as error:
            # The engine's errors hold only counts; ours are the ones that may be sent.
            raise _ours(error) from None

    async def close(self) -> None:
        """Stop the engine and free the model."""
        await self._engine.close()


async def open_model(config: EnclaveConfig) -> ServedModel:
    """Verify the model file's digest, load it and start the engine.

    With ``engine = "openai"`` wait for the server that has loaded a model instead.

    Raises:
        ConfigError: the file is not the one whose digest is configured.
        ModelError: it cannot be loaded, the extra is not installed, or no server
            with this model answers.
    """
    if config.model.peer is not None:
        # Imported late: without it, nothing here opens a connection.
        from curtilage.enclave_server.peer import PeerModel  # noqa: PLC0415

        peer = PeerModel(config.model.peer, max_queued=config.limits.max_queue)
        try:
            await peer.start()
        except BaseException:
            await peer.close()
            raise
        return peer
    try:
        # Imported late, so that everything else works without the library.
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
            # One CPU is left to the sender of frames; see NICENESS.
            threads=min(choice.threads, max(1, available_cpus() - 1)),
            max_queued=config.limits.max_queue,
            sequences=choice.sequences,
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
    # The embedded model needs no digest in the configuration, as its own is part of the
    # code; a digest that is configured must be equal.
    if choice.sha256 not in {"", DEFAULT_SHA256}:
        raise ConfigError("model.sha256: not the embedded default's")
    return open_default_model()


def _request(chat: ChatCompletionRequest) -> GenerateRequest:
    """Translate; a speaker's name is dropped, as no template reads it."""
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
            # We cancel by closing the iterator, so another caller did.
            raise ModelError("the engine stopped during the answer")
        case Called() | Done(finish="tool_calls"):
            raise ModelError("the engine called a tool that it was not offered")
        case Done(usage=usage, finish=finish):
            return Ending(
                finish_reason=finish,
                prompt_tokens=usage.prompt_tokens,
                completion_tokens=usage.completion_tokens,
            )


def _ours(error: InferenceError) -> ModelError | ChatError:
    match error:
        case EngineBusyError():
            return BusyError("too many requests are waiting")
        case ContextTooLongError():
            return PromptTooLongError("the context is too small")
        case RequestError() | TemplateError():
            return ChatError(400, "invalid_value", param="messages")
        case _:
            return ModelError(f"the engine failed: {type(error).__name__}")
