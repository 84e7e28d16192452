"""Strict parser of the chat request inside the encapsulation. Pure.

Takes the bytes of an OpenAI-style ``chat/completions`` body and returns a validated
``ChatCompletionRequest``, or raises a ``ChatError`` that names a field and a code and
contains nothing of the sender's text. Knows nothing of models or of the network.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NoReturn, TypeVar

from curtilage.enclave_server.errors import ChatError
from curtilage.enclave_server.ohttp.tools import (
    ChatCall,
    ChatFormat,
    ChatTool,
    call_id_of,
    calls_of,
    choice_of,
    encodable,
    format_of,
    is_json_object,
    is_list,
    is_object,
    tools_of,
)

_Default = TypeVar("_Default", int, None)

ROLES: Final = frozenset({"system", "developer", "user", "assistant", "tool"})
"""The roles; the template maps ``developer`` and ``tool`` as it can."""

SUPPORTED: Final = frozenset(
    {
        "messages",
        "max_tokens",
        "temperature",
        "top_p",
        "seed",
        "stop",
        "stream",
        "logprobs",
        "model",
        "top_logprobs",
        "n",
        "presence_penalty",
        "frequency_penalty",
        "tools",
        "tool_choice",
        "parallel_tool_calls",
        "response_format",
        "deterministic",
    }
)

MODEL_ID: Final = "curtilage"
"""The model name that OpenAI's clients must send; the manifest identifies the model."""

KNOWN_UNSUPPORTED: Final = frozenset(
    {
        "audio",
        "function_call",
        "functions",
        "logit_bias",
        "max_completion_tokens",
        "metadata",
        "modalities",
        "prediction",
        "prompt_cache_key",
        "reasoning_effort",
        "safety_identifier",
        "service_tier",
        "store",
        "stream_options",
        "user",
        "verbosity",
        "web_search_options",
    }
)
"""OpenAI's other keys, which are refused by name. Any other key is refused without its
name, since a key that the sender invented may itself be content."""

KNOWN_UNSUPPORTED_IN_MESSAGE: Final = frozenset(
    {"annotations", "audio", "function_call", "refusal"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatLimits:
    """Bounds of one request, each with its reason.

    Attributes:
        max_messages: turns; the templates loop over them.
        max_tokens: the longest answer; at most the context. A request for a longer one
            gets one of this length, which ends with ``length``.
        max_name_chars: a speaker's name is a word, not a text.
        max_stop_chars: the text tail held back while streaming is as long.
    """

    max_messages: int = 1024
    max_tokens: int = 4096
    max_name_chars: int = 64
    max_stop_chars: int = 1024


MAX_STOP_STRINGS: Final = 4
MAX_SEED: Final = 2**63 - 1
"""The seed is a signed integer of 64 bits, as with OpenAI."""
MAX_TEMPERATURE: Final = 2
MAX_PENALTY: Final = 2
MAX_ANSWERS: Final = 4
"""To one question; they take as long as as many questions."""
MAX_TOPS: Final = 20
MAX_QUOTES: Final = 16384
"""Of the strings of one content: more than 1024 messages with names have."""
MAX_STRUCTURE_BYTES: Final = 16384
"""Bytes that are neither string nor white space: 1024 messages have 8 each."""
MOST_TOKENS_ASKED: Final = 2**31 - 1
DEFAULT_MAX_TOKENS: Final = 512
DEFAULT_TEMPERATURE: Final = 0.7
DEFAULT_TOP_P: Final = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatMessage:
    """One turn.

    Attributes:
        role: one of ``ROLES``.
        content: the text.
        name: the speaker's name, or None.
        calls: of tools, by an assistant.
        result_of: the id of the call whose result a tool's turn is, or empty.
    """

    role: str
    content: str = field(repr=False)
    name: str | None = field(default=None, repr=False)
    calls: tuple[ChatCall, ...] = ()
    result_of: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatCompletionRequest:
    """A request that may be sent to the model.

    Attributes:
        messages: at least one turn, oldest first.
        max_tokens: 1 to the limit.
        temperature: 0 (greedy) to 2.
        top_p: above 0, at most 1.
        seed: any integer of 64 bits, or None to draw one.
        stop: up to four non-empty strings.
        stream: answer token by token.
        logprobs: report the log-probability of each token.
        top_logprobs: and of this many alternatives.
        n: number of answers.
        presence_penalty: -2 to 2.
        frequency_penalty: -2 to 2.
        tools: that the model may call.
        tool_choice: ``none``, ``auto``, ``required``, or the name of one.
        parallel_tool_calls: whether an answer may have several calls.
        response_format: of the answer; None: text.
        deterministic: decoded alone, so that a seed gives the same answer each time.
    """

    messages: tuple[ChatMessage, ...]
    max_tokens: int = DEFAULT_MAX_TOKENS
    temperature: float = DEFAULT_TEMPERATURE
    top_p: float = DEFAULT_TOP_P
    seed: int | None = None
    stop: tuple[str, ...] = field(default=(), repr=False)
    stream: bool = False
    logprobs: bool = False
    top_logprobs: int = 0
    n: int = 1
    presence_penalty: float = 0
    frequency_penalty: float = 0
    tools: tuple[ChatTool, ...] = ()
    tool_choice: str = field(default="auto", repr=False)
    parallel_tool_calls: bool = True
    response_format: ChatFormat | None = None
    deterministic: bool = False


def parse_chat_completion_request(
    content: bytes, limits: ChatLimits
) -> ChatCompletionRequest:
    """Parse and validate one request body.

    Optional keys may be null, which means absent, as with OpenAI.

    Args:
        content: the inner content; its size was bounded before.
        limits: see there.

    Raises:
        ChatError: status 400, or 404 for another model, with a code and, for a known
            key, its name.
    """
    # Unknown keys before anything else: a request for what is not supported is refused
    # whole, whatever the rest of it says.
    body = json_object(content)
    _refuse_unknown(body, SUPPORTED, KNOWN_UNSUPPORTED)
    # One model is loaded; a request for another must not be answered by this one.
    model = body.get("model")
    if model is not None and model != MODEL_ID:
        raise ChatError(404, "model_not_found", param="model")
    # Counted before any of them is read: the templates loop over them all.
    turns = body.get("messages")
    if not is_list(turns) or not turns:
        raise ChatError(400, "invalid_value", param="messages")
    if len(turns) > limits.max_messages:
        raise ChatError(400, "too_many_messages", param="messages")
    messages = tuple(_message(turn, limits) for turn in turns)
    _require_arguments(messages)
    usual = min(DEFAULT_MAX_TOKENS, limits.max_tokens)
    max_tokens = _integer(body, "max_tokens", 1, MOST_TOKENS_ASKED, usual)
    temperature = _number(body, "temperature", MAX_TEMPERATURE, DEFAULT_TEMPERATURE)
    top_p = _number(body, "top_p", 1, DEFAULT_TOP_P)
    # A nucleus of probability zero contains no token that could be drawn.
    if top_p == 0:
        raise ChatError(400, "out_of_range", param="top_p")
    logprobs = _boolean(body, "logprobs")
    top_logprobs = _integer(body, "top_logprobs", 0, MAX_TOPS, 0)
    if top_logprobs and not logprobs:
        raise ChatError(400, "invalid_value", param="top_logprobs")
    tools = tools_of(body.get("tools"))
    parallel = body.get("parallel_tool_calls")
    return ChatCompletionRequest(
        messages=messages,
        # Not refused: those who ask for "as much as possible" do not know the limit.
        max_tokens=min(max_tokens, limits.max_tokens),
        temperature=temperature,
        top_p=top_p,
        seed=_integer(body, "seed", -MAX_SEED - 1, MAX_SEED, None),
        stop=_stop(body, limits.max_stop_chars),
        stream=_boolean(body, "stream"),
        logprobs=logprobs,
        top_logprobs=top_logprobs,
        n=_integer(body, "n", 1, MAX_ANSWERS, 1),
        presence_penalty=_penalty(body, "presence_penalty"),
        frequency_penalty=_penalty(body, "frequency_penalty"),
        tools=tools,
        tool_choice=choice_of(body.get("tool_choice"), tools),
        parallel_tool_calls=parallel is None or _boolean(body, "parallel_tool_calls"),
        response_format=format_of(body.get("response_format")),
        deterministic=_boolean(body, "deterministic"),
    )


def json_object(content: bytes) -> dict[str, object]:
    """Parse one JSON object in UTF-8, without duplicate keys or NaN.

    Content that would take long to parse is refused first: parsing blocks the frames
    of all other answers.

    Raises:
        ChatError: 400, ``invalid_json`` or ``too_complex``.
    """
    if not _is_quick_to_parse(content):
        raise ChatError(400, "too_complex")
    try:
        value: object = json.loads(
            content.decode("utf-8"),
            object_pairs_hook=_without_duplicates,
            parse_constant=_refuse_constant,
        )
    except (ValueError, RecursionError):
        # The decoder's own message quotes the text around the error.
        raise ChatError(400, "invalid_json") from None
    if not is_object(value):
        raise ChatError(400, "invalid_json")
    return value


def _require_arguments(messages: Iterable[ChatMessage]) -> None:
    """Refuse arguments of calls that are no JSON object, or take long to parse."""
    # They are JSON inside strings, whose parts do not count in ``json_object``.
    texts = [call.arguments for turn in messages for call in turn.calls]
    if not _is_quick_to_parse(*(each.encode() for each in texts)):
        raise ChatError(400, "too_complex", param="tool_calls")
    if not all(map(is_json_object, texts)):
        raise ChatError(400, "invalid_value", param="tool_calls")


def _is_quick_to_parse(*contents: bytes) -> bool:
    """Return whether JSON texts have few parts together, however long their strings.

    Correct as far as each is JSON, and a parser stops after that.
    """
    quotes = structure = 0
    for each in contents:
        content = each
        # Escapes are removed first, both bytes at a time: after that each quote begins
        # or ends a string, and the text between every other pair is structure.
        if b"\\" in content:
            content = content.replace(b"\\\\", b"").replace(b'\\"', b"")
        parts = content.split(b'"', MAX_QUOTES + 1)
        quotes += len(parts) - 1
        structure += len(b"".join(parts[::2]).translate(None, b" \t\r\n"))
        if quotes > MAX_QUOTES or structure > MAX_STRUCTURE_BYTES:
            return False
    return True


def _without_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    # RFC 8259, section 4: for two members with one name, parsers use one or the other.
    # A filter in front, or the client's own check, may have read the other one.
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError
    return members


def _refuse_constant(_name: str) -> NoReturn:
    # NaN and Infinity are Python's, not JSON; and no bound holds for NaN.
    raise ValueError


def _refuse_unknown(
    members: Mapping[str, object], allowed: frozenset[str], named: frozenset[str]
) -> None:
    # An unknown key is refused, not ignored: the sender relies on it.
    for key in members:
        if key not in allowed:
            raise ChatError(
                400, "unsupported_parameter", param=key if key in named else None
            )


def _message(value: object, limits: ChatLimits) -> ChatMessage:
    if not is_object(value):
        raise ChatError(400, "invalid_value", param="messages")
    _refuse_unknown(
        value,
        frozenset({"role", "content", "name", "tool_calls", "tool_call_id"}),
        KNOWN_UNSUPPORTED_IN_MESSAGE,
    )
    role = value.get("role")
    if not isinstance(role, str) or role not in ROLES:
        raise ChatError(400, "invalid_value", param="role")
    content = _text(value.get("content"), "content")
    name = None if value.get("name") is None else _text(value["name"], "name")
    if name is not None and not 1 <= len(name) <= limits.max_name_chars:
        raise ChatError(400, "invalid_value", param="name")
    calls, result_of = calls_of(value.get("tool_calls")), value.get("tool_call_id")
    if calls and role != "assistant":
        raise ChatError(400, "invalid_value", param="tool_calls")
    if result_of is not None and role != "tool":
        raise ChatError(400, "invalid_value", param="tool_call_id")
    return ChatMessage(
        role=role,
        content=content,
        name=name,
        calls=calls,
        result_of=call_id_of(result_of),
    )


def _text(value: object, param: str) -> str:
    """Return a string that has a UTF-8 form (no lone surrogates)."""
    if not isinstance(value, str):
        raise ChatError(400, "invalid_value", param=param)
    return encodable(value, param)


def _integer(
    body: Mapping[str, object], key: str, lowest: int, highest: int, default: _Default
) -> int | _Default:
    value = body.get(key)
    if value is None:
        return default
    # bool is an int to Python, not to JSON.
    if not isinstance(value, int) or isinstance(value, bool):
        raise ChatError(400, "invalid_value", param=key)
    if not lowest <= value <= highest:
        raise ChatError(400, "out_of_range", param=key)
    return value


def _penalty(body: Mapping[str, object], key: str) -> float:
    return _number(body, key, MAX_PENALTY, 0, lowest=-MAX_PENALTY)


def _number(
    body: Mapping[str, object],
    key: str,
    highest: int,
    default: float,
    *,
    lowest: int = 0,
) -> float:
    value = body.get(key)
    if value is None:
        return default
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise ChatError(400, "invalid_value", param=key)
    # Before float(), where an integer of 400 digits overflows; 1e999 is infinite.
    if not lowest <= value <= highest:
        raise ChatError(400, "out_of_range", param=key)
    return float(value)


def _boolean(body: Mapping[str, object], key: str) -> bool:
    # Not by truth: the text "false" is true to Python, and its sender meant false.
    value = body.get(key)
    if value is None:
        return False
    if not isinstance(value, bool):
        raise ChatError(400, "invalid_value", param=key)
    return value


def _stop(body: Mapping[str, object], max_chars: int) -> tuple[str, ...]:
    value = body.get("stop")
    if value is None:
        return ()
    # One string or a list of them, as with OpenAI.
    items = value if is_list(value) else [value]
    if len(items) > MAX_STOP_STRINGS:
        raise ChatError(400, "out_of_range", param="stop")
    strings = tuple(_text(item, "stop") for item in items)
    # An empty one would stop every answer before its first token.
    if not all(1 <= len(text) <= max_chars for text in strings):
        raise ChatError(400, "out_of_range", param="stop")
    return strings
