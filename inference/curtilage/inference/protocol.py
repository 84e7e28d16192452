"""The engine's interface: requests, events, and one Protocol.

Needs no library: the tests of all other parts run on a script.
"""

import contextlib
import re
import threading
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol, cast

from curtilage.inference.errors import RequestError, SchemaError, in_field
from curtilage.inference.grammar import Grammar, Rule
from curtilage.inference.json_grammar import JsonRules
from curtilage.inference.json_text import read_json
from curtilage.inference.sampling import SamplingSettings
from curtilage.inference.schema import add_object_schema, add_schema
from curtilage.inference.settings import Isolation

ROLES: Final = frozenset({"system", "developer", "user", "assistant", "tool"})

Finish = Literal["stop", "length", "cancelled", "tool_calls"]

MAX_TOOLS: Final = 128
MAX_CALLS: Final = 128
"""Of one turn."""
MAX_ID_CHARS: Final = 128
MAX_SCHEMA_CHARS: Final = 64 * 1024
MAX_SPEAKER_CHARS: Final = 64
NO_ARGUMENTS: Final = '{"type": "object", "properties": {}}'

_NAME: Final = re.compile("[a-zA-Z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A function of the caller's that the model may ask to have called.

    Attributes:
        name: 1 to 64 letters, digits, ``_`` and ``-``.
        description: for the model; may be empty.
        parameters: the JSON schema of its arguments, an object, as JSON text.
        strict: refuse a schema of which a part cannot be enforced. Else that part is
            not enforced: arguments may break it.

    Raises:
        RequestError: the name is invalid, or a text has no UTF-8 form.
        SchemaError: the schema is no JSON object or too large. ``Engine.generate`` says
            what else is wrong with it: that takes a second where it is large.
    """

    name: str = field(repr=False)
    description: str = field(default="", repr=False)
    parameters: str = field(default=NO_ARGUMENTS, repr=False)
    strict: bool = False

    def __post_init__(self) -> None:
        """Check the name and the texts."""
        _refuse_name(self.name, "a tool")
        refuse_unencodable(self.description, "a tool's description")
        self._schema()

    def arguments_rule(self, grammar: Grammar) -> Rule:
        """Add the rules of the arguments to a grammar; return the first one.

        Raises:
            SchemaError: the schema is malformed or has too many parts, permits no
                object, or is strict and cannot be enforced.
        """
        return add_object_schema(grammar, self._schema(), strict=self.strict)

    def _schema(self) -> dict[str, object]:
        return _read_schema(self.parameters, "a tool's parameters")


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedTool:
    """The choice of one tool, which the answer must call.

    Attributes:
        name: of a tool of the request.
    """

    name: str = field(repr=False)


ToolChoice = Literal["none", "auto", "required"] | NamedTool
"""``none``: no call; ``auto``: the model decides; ``required``: at least one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A call that a model asked for.

    Attributes:
        id: names it in the result's turn; 1 to ``MAX_ID_CHARS`` characters.
        name: of the tool.
        arguments: JSON text; of an earlier turn it may be any text, since a model may
            have written it without a grammar.

    Raises:
        RequestError: id or name is invalid, or a text has no UTF-8 form.
    """

    id: str = field(repr=False)
    name: str = field(repr=False)
    arguments: str = field(repr=False)

    def __post_init__(self) -> None:
        """Check each text."""
        if not 1 <= len(self.id) <= MAX_ID_CHARS:
            raise RequestError(f"a call's id is not 1 to {MAX_ID_CHARS} characters")
        refuse_unencodable(self.id, "a call's id")
        _refuse_name(self.name, "a call")
        refuse_unencodable(self.arguments, "a call's arguments")


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonObject:
    """The demand that the answer is a JSON object, whichever."""

    def answer_rule(self, grammar: Grammar) -> Rule:
        """Add the rules of the answer to a grammar; return the first one."""
        return JsonRules(grammar).any_object()


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonSchema:
    """The demand that the answer is JSON of a schema.

    Attributes:
        schema: the schema, as JSON text.
        name: the caller's name for it; the model may read it.
        description: for the model; may be empty.
        strict: as of a ``Tool``.

    Raises:
        RequestError: the name is invalid, or a text has no UTF-8 form.
        SchemaError: as of a ``Tool``.
    """

    schema: str = field(repr=False)
    name: str = field(default="answer", repr=False)
    description: str = field(default="", repr=False)
    strict: bool = True

    def __post_init__(self) -> None:
        """Check the name and the texts."""
        _refuse_name(self.name, "a response format")
        refuse_unencodable(self.description, "a response format's description")
        self._schema()

    def answer_rule(self, grammar: Grammar) -> Rule:
        """Add the rules of the answer to a grammar; return the first one.

        Raises:
            SchemaError: as ``Tool.arguments_rule``, or the schema permits nothing.
        """
        return add_schema(grammar, self._schema(), strict=self.strict)

    def _schema(self) -> dict[str, object]:
        return _read_schema(self.schema, "a response format's schema")


ResponseFormat = JsonObject | JsonSchema


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatMessage:
    """One turn.

    Attributes:
        role: one of ``ROLES``.
        content: the text; never becomes a control token. Empty if the turn is tool
            calls alone.
        name: of the participant, if there are several with one role: a text of up to
            ``MAX_SPEAKER_CHARS`` characters, or empty. The model reads it.
        tool_calls: what the assistant asked to have called.
        tool_call_id: the call whose result a tool's turn is; or empty.

    Raises:
        RequestError: the role is unknown, a field belongs to another role, a name is
            too long, or a text has no UTF-8 form.
    """

    role: str
    content: str = field(repr=False)
    name: str = field(default="", repr=False)
    tool_calls: tuple[ToolCall, ...] = field(default=(), repr=False)
    tool_call_id: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        """Check role, name and texts."""
        if self.role not in ROLES:
            raise RequestError("a message has an unknown role")
        refuse_unencodable(self.content, "a message")
        if len(self.name) > MAX_SPEAKER_CHARS:
            raise RequestError(
                f"a message's name has more than {MAX_SPEAKER_CHARS} characters"
            )
        refuse_unencodable(self.name, "a message's name")
        if self.tool_calls and self.role != "assistant":
            raise RequestError("a message that is not the assistant's has tool calls")
        if len(self.tool_calls) > MAX_CALLS:
            raise RequestError(f"a message has more than {MAX_CALLS} tool calls")
        if self.tool_call_id and self.role != "tool":
            raise RequestError("a message that is not a tool's answers a call")


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateRequest:
    """A conversation to be continued by one answer.

    A request without a system or developer message gets a neutral one
    (``templates.DEFAULT_SYSTEM_MESSAGE``), since models' templates would otherwise
    insert their own.

    Attributes:
        messages: at least one turn, oldest first.
        settings: sampling and limits.
        tools: what the answer may ask to have called.
        tool_choice: whether it must, may or must not.
        parallel_tool_calls: permit several calls in one answer.
        response_format: JSON that the answer's text must be; None: any text.
        deterministic: decoded without others, so that a seed gives the same answer
            bit for bit. It counts as a request in each sequence: where others ask, it
            waits for that much of their work, and gives way to them after its turn.

    Raises:
        RequestError: there is no message, a stop string has no UTF-8 form, two tools
            have one name, the choice names none of the tools, or a tool's turn answers
            no call.
    """

    messages: tuple[ChatMessage, ...]
    settings: SamplingSettings = field(default_factory=SamplingSettings)
    tools: tuple[Tool, ...] = field(default=(), repr=False)
    tool_choice: ToolChoice = "auto"
    parallel_tool_calls: bool = True
    response_format: ResponseFormat | None = field(default=None, repr=False)
    deterministic: bool = False

    def __post_init__(self) -> None:
        """Check that there is a message, and each relation between the fields."""
        if not self.messages:
            raise RequestError("there is no message")
        for text in self.settings.stop:
            with in_field("stop"):
                refuse_unencodable(text, "a stop string")
        self._check_tools()
        self._check_results()

    @property
    def chars(self) -> int:
        """Number of characters that the model reads, without those of its template."""
        texts = [f"{each.name}{each.content}" for each in self.messages]
        for call in (call for each in self.messages for call in each.tool_calls):
            texts += (call.name, call.arguments)
        for tool in () if self.tool_choice == "none" else self.tools:
            texts += (tool.name, tool.description, tool.parameters)
        wanted = self.response_format
        if isinstance(wanted, JsonSchema):
            texts += (wanted.name, wanted.description, wanted.schema)
        return sum(map(len, texts))

    def _check_tools(self) -> None:
        names = {tool.name for tool in self.tools}
        if len(self.tools) > MAX_TOOLS:
            raise RequestError(f"there are more than {MAX_TOOLS} tools")
        if len(names) < len(self.tools):
            raise RequestError("two tools have the same name")
        if isinstance(self.tool_choice, NamedTool):
            if self.tool_choice.name not in names:
                raise RequestError("tool_choice names none of the tools")
        elif self.tool_choice == "required" and not names:
            raise RequestError("tool_choice requires a call, and there is no tool")

    def _check_results(self) -> None:
        asked: set[str] = set()
        for message in self.messages:
            ids = {call.id for call in message.tool_calls}
            if len(ids) < len(message.tool_calls):
                raise RequestError("two calls of a message have the same id")
            asked |= ids
            if message.tool_call_id and message.tool_call_id not in asked:
                raise RequestError("a tool's message answers no earlier call")


def _refuse_name(name: str, what: str) -> None:
    if not _NAME.fullmatch(name):
        raise RequestError(f"{what} has an invalid name")


def _read_schema(text: str, what: str) -> dict[str, object]:
    if len(text) > MAX_SCHEMA_CHARS:
        raise SchemaError(f"has more than {MAX_SCHEMA_CHARS} characters")
    refuse_unencodable(text, what)
    schema = read_json(text, what)
    if not isinstance(schema, dict):
        raise SchemaError("is not an object")
    return cast("dict[str, object]", schema)


def refuse_unencodable(text: str, what: str) -> None:
    """Refuse text with lone surrogates, naming ``what`` but no character.

    Raises:
        RequestError: the text has no UTF-8 form.
    """
    if not _is_encodable(text):
        raise RequestError(f"{what} has no UTF-8 form")


def _is_encodable(text: str) -> bool:
    # Separate, so that no error of ours has the library's as its context: that one
    # contains the whole text.
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """How many tokens were read and generated.

    Attributes:
        prompt_tokens: tokens of the prompt, template included.
        completion_tokens: tokens sampled, the end marker not counted.
    """

    prompt_tokens: int
    completion_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """The request's first turn has begun; it fits, and the prompt is being read.

    Attributes:
        prompt_tokens: tokens of the prompt.
    """

    prompt_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopLogprob:
    """One of the likeliest tokens at a place of the answer.

    Attributes:
        data: its bytes; none for a control token. May be part of a character.
        logprob: as of a ``Token``.
    """

    data: bytes = field(repr=False)
    logprob: float = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """One more token of the answer.

    Attributes:
        text: the text that became certain with it; empty while a character
            or a possible stop string is incomplete.
        logprob: natural logarithm of its probability before temperature, if
            requested; None also for text that only the end released.
        margin: between the likeliest token's and the second one's, if margins were
            requested; None likewise.
        data: the token's own bytes, if log-probabilities were requested; may be part of
            a character. None for a control token, or text that only the end released.
        top: the likeliest tokens at its place, likeliest first, if requested. The one
            that was drawn may be missing.
    """

    text: str = field(repr=False)
    logprob: float | None = field(default=None, repr=False)
    margin: float | None = field(default=None, repr=False)
    data: bytes = field(default=b"", repr=False)
    top: tuple[TopLogprob, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Called:
    """One complete tool call of the answer.

    Attributes:
        index: counts the answer's calls from 0.
        call: its name is one of the request's tools; its arguments are a JSON object
            that fits the tool's schema, as far as that is enforced.
    """

    index: int
    call: ToolCall = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """The answer ended and its traces in the engine were overwritten.

    While others are answered, the library's threads may still hold numbers that were
    computed from it; they are freed with the context (``Context.renew``).

    Attributes:
        usage: counts.
        finish: ``stop`` (end marker or stop string), ``length`` (a JSON answer that
            ends so is not complete), ``tool_calls`` (it ends with calls) or
            ``cancelled``.
    """

    usage: Usage
    finish: Finish


Event = Started | Token | Called | Done
"""``Started``, then tokens and complete calls, then exactly one ``Done``; or an
exception. A token of a call has no text: the call has it. A request cancelled before
its turn is ``Done`` without ``Started``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineInfo:
    """The model and its settings; displayed, and named in evidence.

    Attributes:
        model_id: a display name; only the digest identifies.
        model_sha256: digest of the model file, hex.
        template_sha256: digest of its chat template, hex.
        architecture: as the file names it.
        context_tokens: prompt and answer together.
        threads: threads of one decode.
        sequences: requests that are answered at the same time.
        isolation: what separates requests.
        ephemerality: what becomes of a request's memory in the engine's process:
            ``overwritten`` if freed memory is, too; ``process``: it ends with the one
            that answered; ``none``: nothing is promised.
        paging: why that memory is not swapped; or that it may be.
        adapter_sha256: digest of its LoRA adapter, hex; empty: there is none.
            Measurements of a model are valid only with the same adapter.
    """

    model_id: str
    model_sha256: str
    template_sha256: str
    architecture: str
    context_tokens: int
    threads: int
    sequences: int = 1
    isolation: Isolation = "shared"
    ephemerality: Literal["none", "overwritten", "process"] = "none"
    paging: Literal["possible", "locked", "no_swap"] = "possible"
    adapter_sha256: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """How busy an engine is.

    Attributes:
        running: requests being answered, at most ``EngineInfo.sequences``.
        queued: requests that wait.
        max_queued: how many may wait.
        wait_s: the estimated wait of a new request, from recent turns.
    """

    running: int
    queued: int
    max_queued: int
    wait_s: float = field(default=0.0, compare=False)


class CancelToken:
    """Says once, from any thread, that an answer is no longer wanted."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[], None]] = []

    @property
    def cancelled(self) -> bool:
        """Whether ``cancel`` was called."""
        return self._event.is_set()

    def cancel(self) -> None:
        """Cancel; calling it again changes nothing."""
        with self._lock:
            self._event.set()
            callbacks, self._callbacks = self._callbacks, []
        # Outside the lock: a callback may unsubscribe, which takes it.
        for callback in callbacks:
            callback()

    def subscribe(self, callback: Callable[[], None]) -> None:
        """Call back on ``cancel``, at once if it was called already."""
        # Checked under the lock: cancelled between the check and the insertion, it
        # would never be called.
        with self._lock:
            if not self._event.is_set():
                self._callbacks.append(callback)
                return
        callback()

    def unsubscribe(self, callback: Callable[[], None]) -> None:
        """Remove a callback, and with it everything that it references."""
        with self._lock, contextlib.suppress(ValueError):
            self._callbacks.remove(callback)


class Engine(Protocol):
    """One model that answers a few requests at a time.

    Those that wait come in order of their work (``planner``). One that is
    not complete when its turn of reading or writing is over continues after those that
    wait.
    """

    @property
    def info(self) -> EngineInfo:
        """The loaded model.

        Raises:
            EngineClosedError: the engine was not started.
        """
        ...

    async def start(self) -> None:
        """Load the model and check the machine.

        Raises:
            ModelFileError: the file cannot be loaded, or changed meanwhile.
            TemplateError: the model has no usable chat template.
            EngineFailedError: the library failed, or this machine is unsuitable.
        """
        ...

    def generate(
        self, request: GenerateRequest, *, cancel: CancelToken | None = None
    ) -> AsyncGenerator[Event]:
        """Answer; closing the iterator cancels.

        Raises:
            SchemaError: a schema of the request is malformed, permits nothing, has too
                many parts, or is strict and cannot be enforced.
            ContextTooLongError: prompt and answer do not fit.
            TemplateError: the model cannot take these turns.
            EngineBusyError: too many requests are waiting.
            EngineClosedError: the engine is not running.
            EngineFailedError: the library failed.
        """
        ...

    def load(self) -> Load:
        """Return how busy the engine is now."""
        ...

    async def close(self) -> None:
        """Stop, end every stream with EngineClosedError, free the model."""
        ...
