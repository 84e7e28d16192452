"""Strict parser of tools, their calls and formats inside a chat request. Pure.

Raises a ``ChatError`` that names a field and a code and contains nothing of the
sender's text. Like ``chat``, it knows nothing of models.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeGuard

from curtilage.enclave_server.errors import ChatError

MAX_TOOLS: Final = 128
MAX_CALLS: Final = 128
"""Of one turn."""
MAX_JSON_CHARS: Final = 64 * 1024
"""Of one schema, or of the arguments of one call."""
MAX_DEPTH: Final = 40
"""More than the client's, whose definitions contain their schemas."""
MAX_ID_CHARS: Final = 64
CHOICES: Final = frozenset({"none", "auto", "required"})
_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatTool:
    """A function that the model may call.

    Attributes:
        name: of the function.
        description: for the model; may be empty.
        parameters: JSON schema of its arguments, as text; None: it has none.
        strict: whether the arguments must fit the schema.
    """

    name: str = field(repr=False)
    description: str = field(default="", repr=False)
    parameters: str | None = field(default=None, repr=False)
    strict: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatCall:
    """A call in an earlier turn.

    Attributes:
        id: names it in its result.
        name: of the function.
        arguments: a JSON object, as text; not parsed yet (see ``is_json_object``).
    """

    id: str = field(repr=False)
    name: str = field(repr=False)
    arguments: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatFormat:
    """The demand for JSON.

    Attributes:
        name: of the schema; empty: there is none, and any object will do.
        description: for the model; may be empty.
        schema: JSON schema of the answer, as text; empty likewise.
        strict: whether the answer must fit the schema.
    """

    name: str = field(default="", repr=False)
    description: str = field(default="", repr=False)
    schema: str = field(default="", repr=False)
    strict: bool = False


def tools_of(value: object) -> tuple[ChatTool, ...]:
    """Return the tools of a request.

    Raises:
        ChatError: 400; one is invalid.
    """
    if value is None:
        return ()
    if not is_list(value) or len(value) > MAX_TOOLS:
        raise ChatError(400, "invalid_value", param="tools")
    tools = tuple(map(_tool, value))
    if len({each.name for each in tools}) < len(tools):
        raise ChatError(400, "invalid_value", param="tools")
    return tools


def choice_of(value: object, tools: tuple[ChatTool, ...]) -> str:
    """Return one of ``CHOICES``, or the name of a tool.

    Raises:
        ChatError: 400; it is invalid, or chooses what is not offered.
    """
    if value is None:
        return "auto"
    if isinstance(value, str):
        if value not in CHOICES or (value == "required" and not tools):
            raise ChatError(400, "invalid_value", param="tool_choice")
        return value
    function = _function(value, frozenset({"name"}), "tool_choice")
    name = _name(function, "tool_choice")
    if name in CHOICES or name not in {each.name for each in tools}:
        raise ChatError(400, "invalid_value", param="tool_choice")
    return name


def format_of(value: object) -> ChatFormat | None:
    """Return the demanded format; None: text.

    Raises:
        ChatError: 400; it is invalid.
    """
    param = "response_format"
    if value is None:
        return None
    wanted = _members(value, frozenset({"type", "json_schema"}), param)
    described = wanted.get("json_schema")
    match wanted.get("type"):
        case "text" if described is None:
            return None
        case "json_object" if described is None:
            return ChatFormat()
        case "json_schema":
            known = frozenset({"name", "description", "schema", "strict"})
            given = _members(described, known, param)
            return ChatFormat(
                name=_name(given, param),
                description=_description(given, param),
                schema=_schema(given.get("schema"), param) or "{}",
                strict=_strict(given, param),
            )
        case _:
            raise ChatError(400, "invalid_value", param=param)


def calls_of(value: object) -> tuple[ChatCall, ...]:
    """Return the calls of one turn.

    Raises:
        ChatError: 400; one is invalid.
    """
    if value is None:
        return ()
    if not is_list(value) or not 0 < len(value) <= MAX_CALLS:
        raise ChatError(400, "invalid_value", param="tool_calls")
    return tuple(map(_call, value))


def call_id_of(value: object) -> str:
    """Return the id of the call whose result a turn is; empty: it names none.

    Raises:
        ChatError: 400; it is invalid.
    """
    if value is None:
        return ""
    if not isinstance(value, str) or not 0 < len(value) <= MAX_ID_CHARS:
        raise ChatError(400, "invalid_value", param="tool_call_id")
    return encodable(value, "tool_call_id")


def encodable(text: str, param: str) -> str:
    """Return a text that has a UTF-8 form (no lone surrogates).

    Raises:
        ChatError: 400; it has none.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        # The exception contains the whole text.
        raise ChatError(400, "invalid_value", param=param) from None
    return text


def _tool(value: object) -> ChatTool:
    known = frozenset({"name", "description", "parameters", "strict"})
    given = _function(value, known, "tools")
    return ChatTool(
        name=_name(given, "tools"),
        description=_description(given, "tools"),
        parameters=_schema(given.get("parameters"), "tools"),
        strict=_strict(given, "tools"),
    )


def _call(value: object) -> ChatCall:
    known = frozenset({"name", "arguments"})
    given = _function(value, known, "tool_calls", more=frozenset({"id"}))
    called = call_id_of(value.get("id") if is_object(value) else None)
    arguments = given.get("arguments")
    if not called or not isinstance(arguments, str):
        raise ChatError(400, "invalid_value", param="tool_calls")
    return ChatCall(
        id=called,
        name=_name(given, "tool_calls"),
        arguments=encodable(arguments, "tool_calls"),
    )


def _function(
    value: object,
    known: frozenset[str],
    param: str,
    more: frozenset[str] = frozenset(),
) -> Mapping[str, object]:
    members = _members(value, frozenset({"type", "function"}) | more, param)
    if members.get("type") != "function":
        raise ChatError(400, "invalid_value", param=param)
    return _members(members.get("function"), known, param)


def _members(value: object, known: frozenset[str], param: str) -> Mapping[str, object]:
    if not is_object(value):
        raise ChatError(400, "invalid_value", param=param)
    # Refused, not ignored: the sender relies on what it says.
    if not value.keys() <= known:
        raise ChatError(400, "unsupported_parameter", param=param)
    return value


def _name(given: Mapping[str, object], param: str) -> str:
    name = given.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ChatError(400, "invalid_value", param=param)
    return name


def _description(given: Mapping[str, object], param: str) -> str:
    text = given.get("description")
    if text is None:
        return ""
    if not isinstance(text, str):
        raise ChatError(400, "invalid_value", param=param)
    return encodable(text, param)


def _strict(given: Mapping[str, object], param: str) -> bool:
    strict = given.get("strict")
    if strict is None:
        return False
    if not isinstance(strict, bool):
        raise ChatError(400, "invalid_value", param=param)
    return strict


def _schema(value: object, param: str) -> str | None:
    if value is None:
        return None
    if not is_object(value) or _depth(value) > MAX_DEPTH:
        raise ChatError(400, "invalid_value", param=param)
    try:
        schema = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except ValueError:  # 1e999 is infinite
        schema = ""
    if not 0 < len(schema) <= MAX_JSON_CHARS:
        raise ChatError(400, "out_of_range", param=param)
    return encodable(schema, param)


def is_json_object(text: str) -> bool:
    """Return whether a text is a JSON object within ``MAX_JSON_CHARS`` and depth."""
    if len(text) > MAX_JSON_CHARS:
        return False
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return is_object(value) and _depth(value) <= MAX_DEPTH


def _depth(value: object) -> int:
    """Return how deeply a value is nested; its parser bounds that."""
    inner: list[object] = []
    if is_object(value):
        inner = list(value.values())
    elif is_list(value):
        inner = value
    return 1 + max(map(_depth, inner), default=0)


def is_object(value: object) -> TypeGuard[dict[str, object]]:
    """Return whether a JSON value is an object."""
    return isinstance(value, dict)


def is_list(value: object) -> TypeGuard[list[object]]:
    """Return whether a JSON value is an array."""
    return isinstance(value, list)
