"""Strict parser of the chat request inside the encapsulation. Pure.

Takes the bytes of an OpenAI-style ``chat/completions`` body and returns a validated
``ChatCompletionRequest``, or raises a ``ChatError`` that names a field and a code and
contains nothing of the sender's text. Knows nothing of models or of the network.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NoReturn, TypeGuard, TypeVar

from curtilage.enclave_server.errors import ChatError

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
    }
)

MODEL_ID: Final = "curtilage"
"""The model name that OpenAI's clients must send; the manifest identifies the model."""

KNOWN_UNSUPPORTED: Final = frozenset(
    {
        "audio",
        "frequency_penalty",
        "function_call",
        "functions",
        "logit_bias",
        "max_completion_tokens",
        "metadata",
        "modalities",
        "n",
        "parallel_tool_calls",
        "prediction",
        "presence_penalty",
        "prompt_cache_key",
        "reasoning_effort",
        "response_format",
        "safety_identifier",
        "service_tier",
        "store",
        "stream_options",
        "tool_choice",
        "tools",
        "top_logprobs",
        "user",
        "verbosity",
        "web_search_options",
    }
)
"""OpenAI's other keys, which are refused by name. Any other key is refused without its
name, since a key that the sender invented may itself be content."""

KNOWN_UNSUPPORTED_IN_MESSAGE: Final = frozenset(
    {"annotations", "audio", "function_call", "refusal", "tool_call_id", "tool_calls"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatLimits:
    """Bounds of one request, each with its reason.

    Attributes:
        max_messages: turns; the templates loop over them.
        max_tokens: the longest answer that may be requested; at most the context.
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
MAX_QUOTES: Final = 16384
"""Of the strings of one content: more than 1024 messages with names have."""
MAX_STRUCTURE_BYTES: Final = 16384
"""Bytes that are neither string nor white space: 1024 messages have 8 each."""
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
    """

    role: str
    content: str = field(repr=False)
    name: str | None = field(default=None, repr=False)


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
    """

    messages: tuple[ChatMessage, ...]
    max_tokens: int = DEFAULT_MAX_TOKENS
    temperature: float = DEFAULT_TEMPERATURE
    top_p: float = DEFAULT_TOP_P
    seed: int | None = None
    stop: tuple[str, ...] = field(default=(), repr=False)
    stream: bool = False
    logprobs: bool = False


def parse_chat_completion_request(
    content: bytes, limits: ChatLimits
) -> ChatCompletionRequest:
    """Parse and validate one request body.

    Optional keys may be null, which means absent, as with OpenAI.

    Args:
        content: the inner content; its size was bounded before.
        limits: see there.

    Raises:
        ChatError: status 400 with a code and, for a known key, its name.
    """
    # Unknown keys before anything else: a request for tools is refused whole, whatever
    # the rest of it says.
    body = json_object(content)
    _refuse_unknown(body, SUPPORTED, KNOWN_UNSUPPORTED)
    # One model is loaded; a request for another must not be answered by this one.
    model = body.get("model")
    if model is not None and model != MODEL_ID:
        raise ChatError(400, "model_not_found", param="model")
    # Counted before any of them is read: the templates loop over them all.
    turns = body.get("messages")
    if not _is_list(turns) or not turns:
        raise ChatError(400, "invalid_value", param="messages")
    if len(turns) > limits.max_messages:
        raise ChatError(400, "too_many_messages", param="messages")
    messages = tuple(_message(turn, limits) for turn in turns)
    usual = min(DEFAULT_MAX_TOKENS, limits.max_tokens)
    max_tokens = _integer(body, "max_tokens", 1, limits.max_tokens, usual)
    temperature = _number(body, "temperature", MAX_TEMPERATURE, DEFAULT_TEMPERATURE)
    top_p = _number(body, "top_p", 1, DEFAULT_TOP_P)
    # A nucleus of probability zero contains no token that could be drawn.
    if top_p == 0:
        raise ChatError(400, "out_of_range", param="top_p")
    return ChatCompletionRequest(
        messages=messages,
        max_tokens=max_tokens,
        temperature=temperature,
        top_p=top_p,
        seed=_integer(body, "seed", -MAX_SEED - 1, MAX_SEED, None),
        stop=_stop(body, limits.max_stop_chars),
        stream=_boolean(body, "stream"),
        logprobs=_boolean(body, "logprobs"),
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
    if not _is_object(value):
        raise ChatError(400, "invalid_json")
    return value


def _is_quick_to_parse(content: bytes) -> bool:
    """Return whether the JSON has few parts, however long its strings are.

    Correct as far as ``content`` is JSON, and a parser stops after that.
    """
    # Escapes are removed first, both bytes at a time: after that each quote begins or
    # ends a string, and the text between every other pair is structure.
    if b"\\" in content:
        content = content.replace(b"\\\\", b"").replace(b'\\"', b"")
    parts = content.split(b'"', MAX_QUOTES + 1)
    if len(parts) > MAX_QUOTES + 1:
        return False
    structure = b"".join(parts[::2]).translate(None, b" \t\r\n")
    return len(structure) <= MAX_STRUCTURE_BYTES


def _is_object(value: object) -> TypeGuard[dict[str, object]]:
    return isinstance(value, dict)


def _is_list(value: object) -> TypeGuard[list[object]]:
    return isinstance(value, list)


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
    # An unknown key is refused, not ignored: a sender of "tools" relies on them.
    for key in members:
        if key not in allowed:
            raise ChatError(
                400, "unsupported_parameter", param=key if key in named else None
            )


def _message(value: object, limits: ChatLimits) -> ChatMessage:
    if not _is_object(value):
        raise ChatError(400, "invalid_value", param="messages")
    _refuse_unknown(
        value, frozenset({"role", "content", "name"}), KNOWN_UNSUPPORTED_IN_MESSAGE
    )
    role = value.get("role")
    if not isinstance(role, str) or role not in ROLES:
        raise ChatError(400, "invalid_value", param="role")
    content = _text(value.get("content"), "content")
    name = None if value.get("name") is None else _text(value["name"], "name")
    if name is not None and not 1 <= len(name) <= limits.max_name_chars:
        raise ChatError(400, "invalid_value", param="name")
    return ChatMessage(role=role, content=content, name=name)


def _text(value: object, param: str) -> str:
    """Return a string that has a UTF-8 form (no lone surrogates)."""
    if not isinstance(value, str):
        raise ChatError(400, "invalid_value", param=param)
    try:
        value.encode()
    except UnicodeEncodeError:
        # The exception contains the whole text.
        raise ChatError(400, "invalid_value", param=param) from None
    return value


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


def _number(
    body: Mapping[str, object], key: str, highest: int, default: float
) -> float:
    value = body.get(key)
    if value is None:
        return default
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise ChatError(400, "invalid_value", param=key)
    # Before float(), where an integer of 400 digits overflows; 1e999 is infinite.
    if not 0 <= value <= highest:
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
    items = value if _is_list(value) else [value]
    if len(items) > MAX_STOP_STRINGS:
        raise ChatError(400, "out_of_range", param="stop")
    strings = tuple(_text(item, "stop") for item in items)
    # An empty one would stop every answer before its first token.
    if not all(1 <= len(text) <= max_chars for text in strings):
        raise ChatError(400, "out_of_range", param="stop")
    return strings
