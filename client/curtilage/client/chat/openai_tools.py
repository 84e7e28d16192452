"""Reads tools, their calls and formats of OpenAI's chat API; pure and bounded.

Every text that is accepted here is part of the query, so it is inspected. Errors never
repeat what a sender wrote.
"""

import json
import re
from collections.abc import Mapping
from typing import Final, cast

from curtilage.client.chat.document import Document
from curtilage.client.chat.openai_fields import DOCUMENT
from curtilage.client.chat.options import flag
from curtilage.client.chat.turns import CHOICES, ToolCall
from curtilage.client.errors import UnsupportedFieldError, UsageError

MAX_TOOLS: Final = 128
MAX_CALLS: Final = 128
"""Of one turn."""
MAX_DEPTH: Final = 32
MAX_JSON_BYTES: Final = 64 * 1024
"""Of one definition, one schema or the arguments of one call."""
MAX_ID_CHARS: Final = 256
JSON_OBJECT: Final = "json_object"
JSON_SCHEMA: Final = "json_schema"

_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_TOOL_FIELDS: Final = frozenset({"name", "description", "parameters", "strict"})
_FORMAT_FIELDS: Final = frozenset({"name", "description", "schema", "strict"})
JsonObject = dict[str, object]


class Calls:
    """The calls of one conversation, by their position; their ids are dropped."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._count = 0

    def of_turn(self, value: object, param: str) -> tuple[ToolCall, ...]:
        """Return the calls of one turn.

        Raises:
            UsageError: one of them is invalid.
        """
        given = cast("list[object]", value) if isinstance(value, list) else []
        if not 0 < len(given) <= MAX_CALLS:
            raise UsageError(f"{param} must be a list of 1 to {MAX_CALLS}", param=param)
        before = self._count
        return tuple(
            self._call(each, f"{param}[{number}]", before)
            for number, each in enumerate(given)
        )

    def result(self, value: object, param: str) -> int:
        """Return the position of the call whose result a turn is.

        Raises:
            UsageError: there is no such call in an earlier turn.
        """
        number = self._numbers.get(value) if isinstance(value, str) else None
        if number is None:
            raise UsageError(f"{param} is the id of no earlier call", param=param)
        return number

    def _call(self, value: object, param: str, before: int) -> ToolCall:
        call = _object(value, param, frozenset({"id", "type", "function"}))
        if call.get("type", "function") != "function":
            raise UnsupportedFieldError(
                f"{param} is not a call of a function ({DOCUMENT})", param=param
            )
        called = call.get("id")
        if not isinstance(called, str) or not 0 < len(called) <= MAX_ID_CHARS:
            raise UsageError(f"{param}.id must be a string", param=f"{param}.id")
        # In another turn it may return: many servers count anew in each answer.
        if self._numbers.get(called, 0) > before:
            raise UsageError(
                f"{param}.id is not the only one of its turn", param=f"{param}.id"
            )
        of = f"{param}.function"
        function = _object(call.get("function"), of, frozenset({"name", "arguments"}))
        self._count += 1
        self._numbers[called] = self._count
        return ToolCall(
            number=self._count,
            name=_name(function, of),
            arguments=_arguments(function.get("arguments"), f"{of}.arguments"),
        )


def tools_of(value: object) -> tuple[Document, ...]:
    """Return the definitions of a request's ``tools``.

    Raises:
        UsageError: one of them is invalid or not supported.
    """
    if value is None:
        return ()
    if not isinstance(value, list) or len(cast("list[object]", value)) > MAX_TOOLS:
        raise UsageError(f"tools must be a list of up to {MAX_TOOLS}", param="tools")
    found: dict[str, Document] = {}
    for number, each in enumerate(cast("list[object]", value)):
        param = f"tools[{number}]"
        tool = _object(each, param, frozenset({"type", "function"}))
        if tool.get("type") != "function":
            raise UnsupportedFieldError(
                f"{param} is not a function ({DOCUMENT})", param=param
            )
        of = f"{param}.function"
        function = _definition(tool.get("function"), of, _TOOL_FIELDS, "parameters")
        name = _name(function, of)
        if name in found:
            raise UsageError(f"{of}.name is not the only one", param=f"{of}.name")
        found[name] = _document(function, of)
    return tuple(found.values())


def choice_of(value: object, tools: tuple[Document, ...]) -> str:
    """Return the choice among tools; see ``turns.Request``.

    Raises:
        UsageError: it is invalid, not supported, or needs a tool that there is not.
    """
    if value is None:
        return "auto"
    if isinstance(value, str):
        if value not in CHOICES:
            raise UsageError(
                "tool_choice must be none, auto, required or a function",
                param="tool_choice",
            )
        if value == "required" and not tools:
            raise UsageError("tool_choice needs tools", param="tool_choice")
        # Without tools there is nothing to choose.
        return value if tools else "auto"
    if _type_of(value) != "function":
        raise UnsupportedFieldError(
            f"tool_choice is of a type that is not supported ({DOCUMENT})",
            param="tool_choice",
        )
    chosen = _object(value, "tool_choice", frozenset({"type", "function"}))
    of = "tool_choice.function"
    name = _name(_object(chosen.get("function"), of, frozenset({"name"})), of)
    # These words choose otherwise.
    if name in CHOICES or name not in {
        cast("JsonObject", each.value())["name"] for each in tools
    }:
        raise UsageError(f"{of}.name is none of the tools", param=f"{of}.name")
    return name


def _type_of(value: object) -> object:
    """Return the type of an object; anything else is refused as none."""
    is_object = isinstance(value, dict)
    return cast("JsonObject", value).get("type") if is_object else "function"


def format_of(value: object) -> Document | None:
    """Return a request's ``response_format``; None: text.

    Raises:
        UsageError: it is invalid or not supported.
    """
    param = "response_format"
    if value is None:
        return None
    wanted = _object(value, param, frozenset({"type", JSON_SCHEMA}))
    kind, schema = wanted.get("type"), wanted.get(JSON_SCHEMA)
    if kind == "text" and schema is None:
        return None
    if kind == JSON_OBJECT and schema is None:
        return Document.of({"type": JSON_OBJECT}, schema=True)
    if kind != JSON_SCHEMA:
        raise UnsupportedFieldError(
            f"{param} is of a type that is not supported ({DOCUMENT})", param=param
        )
    of = f"{param}.{JSON_SCHEMA}"
    described = _definition(schema, of, _FORMAT_FIELDS, "schema")
    _name(described, of)
    return _document({"type": JSON_SCHEMA, JSON_SCHEMA: described}, of)


def _definition(
    value: object, param: str, known: frozenset[str], schema: str
) -> JsonObject:
    """Return a definition with the fields that are given, each of its type."""
    given = _object(value, param, known)
    found = {name: each for name, each in given.items() if each is not None}
    if not isinstance(found.get("description", ""), str):
        at = f"{param}.description"
        raise UsageError(f"{at} must be a string", param=at)
    if not isinstance(found.get(schema, {}), dict):
        at = f"{param}.{schema}"
        raise UsageError(f"{at} must be an object", param=at)
    flag(f"{param}.strict", found.get("strict"))
    return found


def _object(value: object, param: str, known: frozenset[str]) -> JsonObject:
    if not isinstance(value, dict):
        raise UsageError(f"{param} must be an object", param=param)
    given = cast("JsonObject", value)
    # The name of an unknown field may be a part of a question.
    if not given.keys() <= known:
        raise UnsupportedFieldError(
            f"{param} may hold {', '.join(sorted(known))} ({DOCUMENT})", param=param
        )
    return given


def _name(given: Mapping[str, object], param: str) -> str:
    name = given.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise UsageError(
            f"{param}.name must be 1 to 64 letters, digits, _ and -",
            param=f"{param}.name",
        )
    return name


def _arguments(value: object, param: str) -> Document:
    # Parsed and encoded again: otherwise a doubled name or an escape could hide a text
    # from the detectors that the model reads.
    try:
        arguments: object = (
            json.loads(value, object_pairs_hook=unique)
            if isinstance(value, str)
            else None
        )
    except (ValueError, RecursionError):
        arguments = None
    if not isinstance(arguments, dict):
        raise UsageError(f"{param} must be a JSON object in a string", param=param)
    return _document(cast("JsonObject", arguments), param, schema=False)


def unique(pairs: list[tuple[str, object]]) -> JsonObject:
    """Return an object of JSON; refuse two members with one name.

    RFC 8259, section 4: parsers differ in which of two they use. The inspected text
    must be the one that any later parser would use.

    Raises:
        ValueError: there are two.
    """
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("duplicate key")
    return found


def _document(value: object, param: str, *, schema: bool = True) -> Document:
    try:
        if _depth(value) > MAX_DEPTH:
            raise UsageError(
                f"{param} is nested more than {MAX_DEPTH} deep", param=param
            )
        document = Document.of(value, schema=schema)
    except (TypeError, ValueError, RecursionError):
        raise UsageError(f"{param} holds what is not JSON", param=param) from None
    if len(document.encoded) > MAX_JSON_BYTES:
        raise UsageError(f"{param} is larger than {MAX_JSON_BYTES}", param=param)
    return document


def _depth(value: object) -> int:
    inner: list[object] = []
    if isinstance(value, dict):
        inner = list(cast("JsonObject", value).values())
    elif isinstance(value, list):
        inner = cast("list[object]", value)
    return 1 + max(map(_depth, inner), default=0)
