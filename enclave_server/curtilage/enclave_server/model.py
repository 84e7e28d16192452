"""The enclave's only access to inference: chat requests in, answers out.

Translates requests, answers and errors between the two interfaces; no text of either
side is stored, logged or put into an exception.
"""

import asyncio
import math
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol

from curtilage.enclave_server.config import EnclaveConfig
from curtilage.enclave_server.errors import (
    BusyError,
    ChatError,
    ConfigError,
    EngineCrashedError,
    EngineHungError,
    ModelError,
    ModelUnavailableError,
    PromptTooLongError,
    SchemaPlace,
    TooLong,
)
from curtilage.enclave_server.ohttp.chat import MAX_SEED, ChatCompletionRequest
from curtilage.enclave_server.ohttp.chat import ChatMessage as Turn
from curtilage.enclave_server.ohttp.openai_answers import (
    LOWEST_LOGPROB,
    MAX_WHERE_CHARS,
    Answer,
    Begun,
    Call,
    Ending,
    Piece,
    token_of,
)
from curtilage.enclave_server.ohttp.tools import ChatFormat, ChatTool
from curtilage.enclave_server.telemetry import Reason
from curtilage.inference.default_model import (
    DEFAULT_MODEL_ID,
    DEFAULT_SHA256,
    find_default_model,
)
from curtilage.inference.errors import (
    NOT_ENFORCED,
    TOO_LARGE,
    ContextSizeError,
    ContextTooLongError,
    EngineBusyError,
    EngineMemoryError,
    EngineMissingError,
    InferenceError,
    ModelDigestError,
    ModelFileError,
    RequestError,
    SchemaError,
    TemplateError,
    each_in_field,
    in_field,
)
from curtilage.inference.errors import EngineCrashedError as EngineCrashed
from curtilage.inference.errors import EngineHungError as EngineHung
from curtilage.inference.memory import available_memory
from curtilage.inference.merged import merged
from curtilage.inference.modelfile import read_head
from curtilage.inference.process.codec import Plan
from curtilage.inference.process.parent import EngineProcess, Watch
from curtilage.inference.protocol import (
    Called,
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
from curtilage.inference.settings import DEFAULTS, EngineSettings, available_cpus
from curtilage.inference.shape import MAX_HEAD_BYTES, parse_shape
from curtilage.inference.sizing import plan_contexts
from curtilage.wire.shaping import Shape, TransportParameters

if TYPE_CHECKING:
    from curtilage.inference.process.starter import StarterStarts
    from curtilage.sandbox.trial import Trial

NICENESS: Final = 19
"""Niceness of the engine's threads. Frames are sent on their ticks in any case; if the
model delayed them, the delays would disclose when it works."""
WATCH: Final = Watch(patience_s=0.0)
"""While the engine's process is started again, requests are refused as busy at once:
the client may ask another enclave."""


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

    @property
    def info(self) -> EngineInfo | None:
        """Our engine, with what becomes of requests in it; None: another program's."""
        ...

    @property
    def gaps(self) -> str:
        """What the kernel does not keep our engine from doing, and why; or empty."""
        ...

    @property
    def trial(self) -> "Trial | None":
        """What our engine's process found when it tried its wall; None: it did not."""
        ...

    @property
    def failing(self) -> Reason | None:
        """Why no engine answers at the moment, or None."""
        ...

    @property
    def context_tokens(self) -> int:
        """Tokens of prompt and answer together."""
        ...

    def keep_to(self, transport: TransportParameters) -> None:
        """Refuse requests that would wait too long for answers of this shape."""
        ...

    def report_to(
        self, loaded: Callable[[], object], failed: Callable[[Reason, str], object]
    ) -> None:
        """Call back when the engine is lost, and when another one has taken over."""
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
        self._failing: Reason | None = None

    @property
    def name(self) -> str:
        """The model's display name."""
        return self._engine.info.model_id

    @property
    def sha256(self) -> str:
        """The digest of the model file, hex; what the release must list."""
        return self._engine.info.model_sha256

    @property
    def info(self) -> EngineInfo:
        """The engine, as its process describes it."""
        return self._engine.info

    @property
    def gaps(self) -> str:
        """What no layer of the wall prevents the engine from, and why; may be empty."""
        wall = self._engine.wall if isinstance(self._engine, EngineProcess) else None
        if wall is None or not wall.gaps:
            return ""
        return f"{', '.join(wall.gaps)} ({'; '.join(wall.missing)})"

    @property
    def trial(self) -> "Trial | None":
        """What the engine's process found when it tried its wall; None: it did not."""
        engine = self._engine
        return engine.trial if isinstance(engine, EngineProcess) else None

    @property
    def failing(self) -> Reason | None:
        """Why no engine answers at the moment, or None."""
        return self._failing

    def report_to(
        self, loaded: Callable[[], object], failed: Callable[[Reason, str], object]
    ) -> None:
        """Call back when the engine is lost, and when another one has taken over.

        Args:
            loaded: called when another one answers.
            failed: called with the reason, and with details without content.
        """

        def changed(problem: InferenceError | None) -> None:
            self._failing = None if problem is None else _reason(problem)
            if self._failing is None:
                loaded()
            else:
                failed(self._failing, str(problem))

        if isinstance(self._engine, EngineProcess):
            self._engine.changed = changed

    @property
    def context_tokens(self) -> int:
        """Tokens of prompt and answer together."""
        return self._engine.info.context_tokens

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

        Several answers to one question have one place in the engine, and further ones
        while sequences are free, up to half of them.

        Raises:
            BusyError: too many requests wait, or for too long.
            PromptTooLongError: the context is too small for it.
            ChatError: the model's template cannot take these turns.
            ModelError: the engine failed or is closed.
        """
        if self._engine.load().wait_s > self._patience_s:
            raise BusyError("too many requests are waiting")
        begun = False
        ended: dict[int, Ending] = {}
        try:
            places = _Places(self._engine)
            if chat.tools or chat.response_format is not None:
                # Their schemas are parsed, and frames are due meanwhile.
                requests = await asyncio.to_thread(_requests, chat)
            else:
                requests = _requests(chat)
            answers = [self._events(each, places) for each in requests]
            # Closed with us: a client that disconnects stops the engine at once, not at
            # the next garbage collection, and the requests after it wait no longer.
            async with aclosing(merged(answers)) as events:
                async for choice, event in events:
                    answer = _translate(event, chat, choice)
                    if isinstance(answer, Ending):
                        ended[choice] = answer
                    # Several answers to one question begin once.
                    elif not (begun and isinstance(answer, Begun)):
                        begun = True
                        yield answer
            # Without an end an answer is not complete, and nor are several.
            if len(ended) == chat.n:
                yield _joined([ended[choice] for choice in sorted(ended)])
        except InferenceError as error:
            # The engine's errors hold only counts; ours are the ones that may be sent.
            raise _ours(error) from None

    async def _events(
        self, request: GenerateRequest, places: "_Places"
    ) -> AsyncGenerator[Event]:
        await places.take()
        try:
            async with aclosing(self._engine.generate(request)) as events:
                async for event in events:
                    places.look()
                    yield event
        finally:
            places.give_back()

    async def close(self) -> None:
        """Stop the engine and free the model."""
        await self._engine.close()


class _Places:
    """The places in an engine that the answers to one question have.

    Args:
        engine: that writes them.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._most = max(1, engine.info.sequences // 2)
        self._held = 0
        self._changed = asyncio.Event()

    async def take(self) -> None:
        """Wait for a place: the question's only one, or one that no other waits for."""
        while self._held and not self._is_spare():
            await self._changed.wait()
        self._held += 1

    def give_back(self) -> None:
        """Return a place."""
        self._held -= 1
        self.look()

    def look(self) -> None:
        """Have those that wait look again."""
        # Each that waits now goes on, and may wait anew.
        self._changed.set()
        self._changed.clear()

    def _is_spare(self) -> bool:
        load = self._engine.load()
        free = load.running + load.queued < self._engine.info.sequences
        return free and self._held < self._most


def _unheard(_line: str) -> None:
    """Drop a line for people."""


def start_starter() -> "StarterStarts":
    """Start the process that starts engines for a server that has locked itself.

    Raises:
        ModelError: it cannot be started.
    """
    # Imported late: a server that stays open starts its engines itself.
    from curtilage.inference.process.starter import StarterStarts  # noqa: PLC0415

    try:
        return StarterStarts()
    except OSError as error:
        raise ModelError(f"no process can be started: {error.strerror}") from None


async def open_model(
    config: EnclaveConfig,
    *,
    sized: Callable[[str], object] = _unheard,
    starter: "StarterStarts | None" = None,
) -> ServedModel:
    """Verify the model file's digest, load it and start the engine.

    With ``engine = "openai"`` wait for the server that has loaded a model instead.

    Args:
        config: of the enclave.
        sized: takes one line with the context and its memory, before the model is
            loaded.
        starter: starts the engine's process, which then tries its wall; None: it is
            started here.

    Raises:
        ConfigError: the file is not the one whose digest is configured, or the
            configured context is more than the model or the memory allows.
        ModelError: it cannot be loaded, the extra is not installed, or no server
            with this model answers.
    """
    if config.model.peer is not None:
        # Imported late: without it, nothing here opens a connection.
        from curtilage.enclave_server.peer import PeerModel  # noqa: PLC0415

        peer = PeerModel(
            config.model.peer,
            max_queued=config.limits.max_queue,
            context_tokens=config.model.context_tokens or DEFAULTS.context_tokens,
        )
        try:
            await peer.start()
        except BaseException:
            await peer.close()
            raise
        return peer
    plan = replace(_plan(config, sized), tried=starter is not None)
    engine = EngineProcess(plan, watch=WATCH, starts=starter)
    try:
        await engine.start()
    except ModelDigestError as error:
        raise ConfigError(f"model.sha256: {error}") from None
    except EngineMissingError:
        raise ModelError("the extra 'llm' is not installed") from None
    except InferenceError as error:
        raise ModelError(f"the model cannot be loaded: {error}") from None
    finally:
        # If its caller gives up while it loads, no process remains.
        if not engine.is_running:
            await engine.close()
    return Model(engine)


def _plan(config: EnclaveConfig, sized: Callable[[str], object]) -> Plan:
    choice = config.model
    path, sha256 = choice.path, choice.sha256
    if path is None:
        # The embedded model needs no digest in the configuration, as its own is part of
        # the code; a digest that is configured must be equal.
        if sha256 not in {"", DEFAULT_SHA256}:
            raise ConfigError("model.sha256: not the embedded default's")
        try:
            path, sha256 = find_default_model(), DEFAULT_SHA256
        except ModelFileError as error:
            raise ModelError(f"the model cannot be loaded: {error}") from None
    model_id = DEFAULT_MODEL_ID if choice.path is None else path.stem
    # Of the file that the engine's process is yet to verify.
    head, size_bytes = read_head(path, MAX_HEAD_BYTES)
    try:
        contexts = plan_contexts(
            parse_shape(head),
            size_bytes,
            available_memory(),
            tokens=choice.context_tokens,
            sequences=choice.sequences,
            settings=EngineSettings(
                # One CPU is left to the sender of frames; see NICENESS.
                threads=min(choice.threads, max(1, available_cpus() - 1)),
                max_queued=config.limits.max_queue,
                niceness=NICENESS,
                kv_type=choice.kv_type,
                flash_attention=choice.flash_attention,
                gpu_layers=choice.gpu_layers,
            ),
        )
    except ContextSizeError as error:
        raise ConfigError(f"model.context_tokens: {error}") from None
    except InferenceError as error:
        raise ModelError(f"the model cannot be loaded: {error}") from None
    sized(contexts.line(model_id))
    return Plan(
        model=str(path.absolute()),
        sha256=sha256,
        model_id=model_id,
        settings=contexts.settings,
        isolation=choice.isolation,
    )


def _reason(problem: InferenceError) -> Reason:
    match problem:
        case EngineCrashed():
            return Reason.ENGINE_CRASHED
        case EngineHung():
            return Reason.ENGINE_HUNG
        case _:
            return Reason.MODEL_UNAVAILABLE


def _requests(chat: ChatCompletionRequest) -> list[GenerateRequest]:
    """Return one request for each answer."""
    request, seed = _request(chat), chat.seed
    requests: list[GenerateRequest] = []
    for choice in range(chat.n):
        if seed is not None and choice:
            # Several answers from one seed would be one. Signed, of 64 bits.
            seed = (seed + MAX_SEED + 2) % (2 * MAX_SEED + 2) - MAX_SEED - 1
        settings = replace(request.settings, seed=seed)
        requests.append(replace(request, settings=settings))
    return requests


def _request(chat: ChatCompletionRequest) -> GenerateRequest:
    return GenerateRequest(
        messages=each_in_field("messages", _message, chat.messages),
        settings=SamplingSettings(
            max_tokens=chat.max_tokens,
            temperature=chat.temperature,
            top_p=chat.top_p,
            stop=chat.stop,
            logprobs=chat.logprobs,
            top_logprobs=chat.top_logprobs,
            presence_penalty=chat.presence_penalty,
            frequency_penalty=chat.frequency_penalty,
        ),
        tools=each_in_field("tools", _tool, chat.tools),
        tool_choice=_choice(chat.tool_choice),
        parallel_tool_calls=chat.parallel_tool_calls,
        response_format=_format(chat.response_format),
        deterministic=chat.deterministic,
    )


def _message(message: Turn) -> ChatMessage:
    return ChatMessage(
        role=message.role,
        content=message.content,
        name=message.name or "",
        tool_calls=tuple(
            ToolCall(id=each.id, name=each.name, arguments=each.arguments)
            for each in message.calls
        ),
        tool_call_id=message.result_of,
    )


def _tool(tool: ChatTool) -> Tool:
    given = {} if tool.parameters is None else {"parameters": tool.parameters}
    return Tool(
        name=tool.name, description=tool.description, strict=tool.strict, **given
    )


def _choice(choice: str) -> ToolChoice:
    match choice:
        case "none" | "auto" | "required":
            return choice
        case _:
            return NamedTool(name=choice)


def _format(wanted: ChatFormat | None) -> ResponseFormat | None:
    if wanted is None:
        return None
    if not wanted.name:
        return JsonObject()
    with in_field("response_format"):
        return JsonSchema(
            name=wanted.name,
            description=wanted.description,
            schema=wanted.schema,
            strict=wanted.strict,
        )


def _translate(event: Event, chat: ChatCompletionRequest, choice: int) -> Answer:
    match event:
        case Started(prompt_tokens=prompt_tokens):
            return Begun(prompt_tokens=prompt_tokens)
        case Token():
            return _piece(event, choice)
        case Done(finish="cancelled"):
            # We cancel by closing the iterator, so another caller did.
            raise ModelError("the engine stopped during the answer")
        case Called(index=index, call=call):
            offered = () if chat.tool_choice == "none" else chat.tools
            if call.name not in {each.name for each in offered}:
                raise ModelError("the engine called a tool that it was not offered")
            called = Call(index=index, name=call.name, arguments=call.arguments)
            return Piece(text="", choice=choice, call=called)
        case Done(usage=usage, finish=finish):
            return Ending(
                finish_reason=finish,
                prompt_tokens=usage.prompt_tokens,
                completion_tokens=usage.completion_tokens,
            )


def _piece(token: Token, choice: int) -> Piece:
    if token.logprob is None:
        return Piece(text=token.text, choice=choice)
    said = token_of(token.data)
    return Piece(
        text=token.text,
        token=None if said == token.text else said,
        logprob=_finite(token.logprob),
        top=tuple((token_of(each.data), _finite(each.logprob)) for each in token.top),
        choice=choice,
    )


def _finite(logprob: float) -> float:
    return logprob if math.isfinite(logprob) else LOWEST_LOGPROB


def _joined(ended: list[Ending]) -> Ending:
    """Return the end of several answers to one question, which is counted once."""
    first, *others = ended
    return replace(
        first,
        completion_tokens=sum(each.completion_tokens for each in ended),
        others=tuple(each.finish_reason for each in others),
    )


def _ours(  # noqa: C901, PLR0911 - one error each
    error: InferenceError,
) -> ModelError | ChatError:
    match error:
        case EngineCrashed():
            return EngineCrashedError(str(error))
        case EngineHung():
            return EngineHungError(str(error))
        case ModelFileError() | EngineMemoryError():
            return ModelUnavailableError(str(error))
        case EngineBusyError():
            return BusyError("too many requests are waiting")
        case ContextTooLongError():
            return PromptTooLongError(
                "the context is too small",
                TooLong(
                    prompt_tokens=error.prompt_tokens,
                    max_tokens=error.max_tokens,
                    context_tokens=error.context_tokens,
                ),
            )
        case SchemaError():
            return _of_schema(error)
        case RequestError(field=field):
            return ChatError(400, "invalid_value", param=field or "messages")
        case TemplateError():
            return ChatError(400, "invalid_value", param="messages")
        case _:
            return ModelError(f"the engine failed: {type(error).__name__}")


def _of_schema(error: SchemaError) -> ChatError:
    # Room for the longest error is kept in every answer.
    where = error.where if len(error.where) <= MAX_WHERE_CHARS else ""
    place = SchemaPlace(keyword=error.keyword, where=where)
    param = error.field or None
    if error.reason in NOT_ENFORCED:
        return ChatError(400, "schema_not_enforced", param=param, place=place)
    if error.reason in TOO_LARGE:
        return ChatError(400, "schema_too_large", param=param, place=place)
    return ChatError(400, "schema_invalid", param=param, place=place)
