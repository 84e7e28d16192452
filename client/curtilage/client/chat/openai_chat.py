"""Reads requests in the OpenAI chat schema as ``Query``; pure.

Strict about unsupported features: a parameter that would change the answer and is not
supported is an error that names it, never ignored. The same holds for a part of a
message that is not text: a model that is not shown a picture invents its content. A
what-if decision gets the place of such a part instead, and the policy keeps it local.
``openai_fields`` lists the fields that are accepted and dropped, and
``endpoint.openai_answers`` writes the answers. Errors never repeat
what a sender wrote, except the name of a field that could be an identifier.
"""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, cast

from curtilage.client.chat.answer import (
    without_notes,
)
from curtilage.client.chat.model_names import ModelNames
from curtilage.client.chat.openai_fields import (
    DOCUMENT,
    DROPPED,
    DROPPED_IN_MESSAGES,
    DROPPED_IN_PARTS,
    MESSAGE_FIELDS,
    NEUTRAL,
    PARTS,
    USED,
    sayable,
)
from curtilage.client.chat.openai_tools import (
    Calls,
    choice_of,
    format_of,
    tools_of,
    unique,
)
from curtilage.client.chat.options import (
    ROUTING_FIELDS,
    RoutingOptions,
    flag,
    integer,
    options_from,
)
from curtilage.client.chat.query import ROLES, Message, Query, Settings, ToolCall
from curtilage.client.errors import (
    TooLargeError,
    UnknownFieldError,
    UnsupportedContentError,
    UnsupportedFieldError,
    UsageError,
)
from curtilage.policy.decision.findings import Where

MAX_MESSAGES: Final = 1024
MAX_NAME_CHARS: Final = 64
OTHER: Final = "other"
JsonObject = dict[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Other:
    """A part of a message that is not text.

    Attributes:
        where: its place.
        kind: its description for the sender.
        name: the name of an unknown field, if it may be repeated; it is not part of
            any place that is recorded.
    """

    where: Where
    kind: str
    name: str = ""

    @property
    def param(self) -> str:
        """Its place, in the notation of OpenAI's errors."""
        message, path = self.where.message, self.where.json_path
        named = self.name if path == OTHER else path
        return f"messages[{message}]" + (f".{named}" if named else "")


def require_text(others: Sequence[Other]) -> None:
    """Refuse content that no answer can take into account.

    Raises:
        UnsupportedContentError: names the first such part, and what to do.
    """
    for other in others:
        raise UnsupportedContentError(
            f"{other.param} contains {other.kind}: only text is supported, locally "
            f"and by the enclave; remove it, or send it as text ({DOCUMENT})",
            param=other.param,
        )


def turns_of(value: object) -> tuple[tuple[Message, ...], tuple[Other, ...]]:
    """Return the turns of a request's ``messages``, and their parts that are not text.

    Raises:
        UsageError: a turn is invalid; says which, and never repeats its content.
    """
    given = cast("list[object]", value) if isinstance(value, list) else []
    if not 0 < len(given) <= MAX_MESSAGES:
        raise UsageError(
            f"messages must be a list of 1 to {MAX_MESSAGES}", param="messages"
        )
    messages: list[Message] = []
    others: list[Other] = []
    calls = Calls()
    for index, each in enumerate(given):
        message, found = _message(index, each, calls)
        messages.append(message)
        others += found
    return tuple(messages), tuple(others)


def _message(index: int, value: object, calls: Calls) -> tuple[Message, list[Other]]:
    param = f"messages[{index}]"
    if not isinstance(value, dict):
        raise UsageError(f"{param} must be an object", param=param)
    message = cast("JsonObject", value)
    role, name = message.get("role"), message.get("name")
    if not isinstance(role, str) or role not in ROLES:
        raise UsageError(f"{param}.role is not a known role", param=f"{param}.role")
    if name is not None and not (
        isinstance(name, str) and 1 <= len(name) <= MAX_NAME_CHARS
    ):
        raise UsageError(
            f"{param}.name must be a string of 1 to {MAX_NAME_CHARS} characters",
            param=f"{param}.name",
        )
    refusal = message.get("refusal") if role == ASSISTANT else None
    spoken = {"refusal"} if isinstance(refusal, str) else set[str]()
    called, result_of = _calls(message, role, calls, param)
    spoken |= {"tool_calls"} if called else set()
    spoken |= {"tool_call_id"} if result_of else set()
    others = _others(message, index, role, spoken)
    content = message.get("content")
    text, parts = "", list[Other]()
    # OpenAI's answers with tool calls or a refusal have no content, and are sent back
    # as turns like that.
    if content is not None or not (others or role == ASSISTANT):
        text, parts = _content(index, role, content)
    if isinstance(refusal, str) and refusal:
        text = f"{text}\n{refusal}" if text else refusal
    if role == ASSISTANT:
        text = without_notes(text)
    turn = Message(
        role=role, content=text, name=name, calls=called, result_of=result_of
    )
    return turn, [*others, *parts]


def _calls(
    message: JsonObject, role: str, calls: Calls, param: str
) -> tuple[tuple[ToolCall, ...], int | None]:
    """Return the calls of an assistant's turn, or the call that a tool's answers."""
    called: tuple[ToolCall, ...] = ()
    result_of = None
    if role == ASSISTANT and (asked := message.get("tool_calls")):
        called = calls.of_turn(asked, f"{param}.tool_calls")
    if role == TOOL and (answered := message.get("tool_call_id")) is not None:
        result_of = calls.result(answered, f"{param}.tool_call_id")
    return called, result_of


def _others(
    message: JsonObject, index: int, role: str, spoken: set[str]
) -> list[Other]:
    """Return the fields of a message that are neither read nor dropped.

    They contain text that is not inspected. Answers that are sent back as turns have
    such fields, but empty.
    """
    return [
        Other(
            where=Where(
                message=index,
                role=role,
                json_path=key if key in MESSAGE_FIELDS else OTHER,
            ),
            kind=MESSAGE_FIELDS.get(key, "an unknown field"),
            name="".join(sayable([key])),
        )
        for key, held in message.items()
        if key not in {"role", "name", "content"} | spoken | DROPPED_IN_MESSAGES
        and held not in (None, "", [], {})
    ]


def _content(index: int, role: str, value: object) -> tuple[str, list[Other]]:
    if isinstance(value, str):
        return value, []
    if not isinstance(value, list) or not value:
        raise UsageError(
            f"messages[{index}].content must be a string or a list of parts",
            param=f"messages[{index}].content",
        )
    texts: list[str] = []
    others: list[Other] = []
    for number, each in enumerate(cast("list[object]", value)):
        part = cast("JsonObject", each) if isinstance(each, dict) else {}
        named = part.get("type")
        # An assistant's refusal is its text in another field.
        text = part.get("refusal" if named == "refusal" else "text")
        said = {key: held for key, held in part.items() if key not in DROPPED_IN_PARTS}
        spoken = [{"type": "text", "text": text}]
        spoken += [{"type": "refusal", "refusal": text}] if role == ASSISTANT else []
        # Exactly these two fields: if there were a third, the text would be answered
        # without its content.
        if said in spoken and isinstance(text, str):
            texts.append(text)
            continue
        kind = PARTS.get(named) if isinstance(named, str) else None
        more = sayable(said.keys() - {"type", "text"}) if named == "text" else ()
        if kind is not None and more:
            kind = f"{kind} ({', '.join(sorted(more))})"
        others.append(
            Other(
                where=Where(message=index, role=role, json_path=f"content[{number}]"),
                kind=kind or "a part of an unknown type",
            )
        )
    return "\n".join(texts), others


ASSISTANT: Final = "assistant"
TOOL: Final = "tool"
MAX_REQUEST_BYTES: Final = 1024 * 1024
MAX_TOKENS: Final = 32768
MAX_STOPS: Final = 4
MAX_STOP_CHARS: Final = 1024
"""Of one stop string: as many are held back while an answer is streamed."""
MAX_ANSWERS: Final = 4
MAX_TOPS: Final = 20

OPTIONS: Final = frozenset(
    {"max_tokens", "temperature", "top_p", "seed", "stop", "logprobs", "top_logprobs"}
    | {"deterministic", "n", "presence_penalty", "frequency_penalty"}
    | {"tools", "tool_choice", "parallel_tool_calls", "response_format"}
)
NAMES: Final = ModelNames()
"""Without a file of models."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatCompletionRequest:
    """A parsed request.

    Attributes:
        query: the query to be inspected and answered.
        include_usage: send the token counts at the end of a stream.
        dropped: names of the dropped fields; words of ``openai_fields``.
    """

    query: Query
    include_usage: bool
    dropped: tuple[str, ...] = ()


def parse_completion_request(
    body: bytes, names: ModelNames = NAMES
) -> ChatCompletionRequest:
    """Parse the body of ``POST /v1/chat/completions``.

    Args:
        body: the request.
        names: that its ``model`` may be.

    Raises:
        UsageError: a field is invalid; names it, and never repeats its value.
    """
    request = _parse_object(body)
    # In any field, null has the same meaning as leaving it out.
    given = {name: value for name, value in request.items() if value is not None}
    _refuse_unknown(given.keys() - USED.keys() - NEUTRAL.keys() - DROPPED)
    for name, neutral in NEUTRAL.items():
        if name in given and given[name] not in neutral:
            raise UnsupportedFieldError(
                f"{name} is not supported ({DOCUMENT})", param=name
            )
    target = names.target(given.get("model"))
    messages, others = turns_of(request.get("messages"))
    require_text(others)
    stream = flag("stream", request.get("stream"))
    dropped = _dropped(given)
    routing = request.get("curtilage")
    if routing is not None and not isinstance(routing, dict):
        raise UsageError("curtilage must be an object", param="curtilage")
    query = _query(
        request,
        messages,
        stream=stream,
        options=target.narrowed(options_from(cast("JsonObject", routing or {}))),
    )
    return ChatCompletionRequest(
        query=query,
        include_usage=_include_usage(request.get("stream_options")),
        dropped=dropped,
    )


def _include_usage(value: object) -> bool:
    if value is None:
        return False
    if not isinstance(value, dict):
        raise UsageError("stream_options must be an object", param="stream_options")
    options = cast("JsonObject", value)
    _refuse_unknown(
        [name for name, held in options.items() if held is not None],
        known=frozenset({"include_usage", "include_obfuscation"}),
        of="stream_options",
    )
    # Bytes that hide the length of a token: there are none on this machine.
    name = "stream_options.include_obfuscation"
    if flag(name, options.get("include_obfuscation")):
        raise UnsupportedFieldError(f"{name} is not supported ({DOCUMENT})", param=name)
    return flag("stream_options.include_usage", options.get("include_usage"))


def _refuse_unknown(
    names: Collection[str], *, known: Collection[str] = (), of: str = ""
) -> None:
    unknown = sorted({*names} - {*known})
    if not unknown:
        return
    said = sayable(unknown)
    shown = ", ".join(said) or "one whose name is not an identifier"
    param = ".".join(filter(None, (of, *said[:1])))
    raise UnknownFieldError(
        f"{of or 'the request'} has unknown fields: {shown} ({DOCUMENT})",
        param=param or None,
    )


def _dropped(request: JsonObject) -> tuple[str, ...]:
    """Return the names of all dropped fields, from the fixed lists only."""
    found = request.keys() & DROPPED
    for message in _objects(request.get("messages")):
        found |= message.keys() & DROPPED_IN_MESSAGES
        for part in _objects(message.get("content")):
            found |= part.keys() & DROPPED_IN_PARTS
    return tuple(sorted(found))


def _objects(value: object) -> Iterator[JsonObject]:
    if isinstance(value, list):
        for each in cast("list[object]", value):
            if isinstance(each, dict):
                yield cast("JsonObject", each)


def parse_feedback(body: bytes) -> tuple[str, bool]:
    """Parse the body of ``POST /v1/curtilage/feedback``: an answer's id, and a flag.

    Raises:
        UsageError: a field is invalid; names it, and never repeats its value.
    """
    said = _parse_object(body)
    _refuse_unknown(said.keys() - {"id", "good"})
    answer_id, good = said.get("id"), said.get("good")
    if not isinstance(answer_id, str):
        raise UsageError("id must be the id of an answer", param="id")
    if not isinstance(good, bool):
        raise UsageError("good must be true or false", param="good")
    return answer_id, good


def query_from(
    messages: str | Sequence[Mapping[str, object]],
    options: Mapping[str, object],
    *,
    stream: bool,
    answered: bool = True,
    names: ModelNames = NAMES,
) -> Query:
    """Create a query from the arguments of a library call.

    Args:
        messages: one question, or a conversation's turns.
        options: settings by name.
        stream: whether pieces are wanted.
        answered: whether it is to be answered, and not only decided; if not, a part
            that is not text becomes a place.
        names: that the option ``model`` may be.

    Raises:
        UsageError: an argument is invalid; names it.
    """
    turns = [{"role": "user", "content": messages}]
    given = turns if isinstance(messages, str) else [dict(each) for each in messages]
    unknown = options.keys() - OPTIONS - ROUTING_FIELDS - {"model"}
    if unknown:
        raise UsageError("an option is not supported", param=min(unknown))
    parsed, others = turns_of(given)
    if answered:
        require_text(others)
    # ``stop`` may be a tuple, which JSON does not have.
    request: JsonObject = {
        name: list(cast("tuple[object, ...]", value))
        if isinstance(value, tuple)
        else value
        for name, value in options.items()
        if name in OPTIONS
    }
    return _query(
        request,
        parsed,
        stream=stream,
        opaque=tuple(other.where for other in others),
        options=names.target(options.get("model")).narrowed(
            options_from(
                {name: options[name] for name in options.keys() & ROUTING_FIELDS}
            )
        ),
    )


def _parse_object(body: bytes) -> JsonObject:
    if len(body) > MAX_REQUEST_BYTES:
        raise TooLargeError(f"the request is larger than {MAX_REQUEST_BYTES} bytes")
    try:
        value: object = json.loads(body, object_pairs_hook=unique)
    except (ValueError, RecursionError):
        value = None  # reported below: the parser's error contains the whole body
    if not isinstance(value, dict):
        raise UsageError("the request is not a JSON object in UTF-8")
    return cast("JsonObject", value)


def _query(
    request: JsonObject,
    messages: tuple[Message, ...],
    *,
    stream: bool,
    options: RoutingOptions,
    opaque: tuple[Where, ...] = (),
) -> Query:
    tools = tools_of(request.get("tools"))
    parallel = request.get("parallel_tool_calls")
    return Query(
        messages=messages,
        settings=_settings(request),
        stream=stream,
        tools=tools,
        tool_choice=choice_of(request.get("tool_choice"), tools),
        parallel_tool_calls=parallel is None or flag("parallel_tool_calls", parallel),
        response_format=format_of(request.get("response_format")),
        opaque=opaque,
        options=options,
    )


def _settings(request: JsonObject) -> Settings:
    given = Settings()
    # Both are checked, and the first counts.
    limits = [
        integer(name, request.get(name), 1, MAX_TOKENS)
        for name in ("max_completion_tokens", "max_tokens")
    ]
    logprobs = flag("logprobs", request.get("logprobs"))
    tops = integer("top_logprobs", request.get("top_logprobs"), 0, MAX_TOPS) or 0
    if tops and not logprobs:
        raise UsageError("top_logprobs needs logprobs", param="top_logprobs")
    return Settings(
        max_tokens=next(filter(None, limits), given.max_tokens),
        temperature=_number(request, "temperature", given.temperature, (0, 2)),
        top_p=_number(request, "top_p", given.top_p, (0.001, 1)),
        seed=integer("seed", request.get("seed"), 0, 2**32 - 1),
        stop=_stop(request.get("stop")),
        logprobs=logprobs,
        top_logprobs=tops,
        n=integer("n", request.get("n"), 1, MAX_ANSWERS) or given.n,
        presence_penalty=_number(request, "presence_penalty", 0, (-2, 2)),
        frequency_penalty=_number(request, "frequency_penalty", 0, (-2, 2)),
        deterministic=flag("deterministic", request.get("deterministic")),
    )


def _number(
    request: JsonObject, name: str, default: float, bounds: tuple[float, float]
) -> float:
    value = request.get(name)
    if value is None:
        return default
    low, high = bounds
    # NaN, which Python accepts in JSON, is not in any range.
    if (
        not isinstance(value, int | float)
        or isinstance(value, bool)
        or not low <= value <= high
    ):
        raise UsageError(f"{name} must be a number, {low} to {high}", param=name)
    return float(value)


def _stop(value: object) -> tuple[str, ...]:
    if value is None:
        return ()
    stops = [value] if isinstance(value, str) else value
    if not isinstance(stops, list) or len(cast("list[object]", stops)) > MAX_STOPS:
        raise UsageError(f"stop must be a string or up to {MAX_STOPS}", param="stop")
    found = cast("list[object]", stops)
    if not all(
        isinstance(each, str) and 0 < len(each) <= MAX_STOP_CHARS for each in found
    ):
        raise UsageError(
            f"stop must hold strings of 1 to {MAX_STOP_CHARS} characters", param="stop"
        )
    return tuple(cast("list[str]", found))
