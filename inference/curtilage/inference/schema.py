"""Turns a JSON schema into grammar rules, or refuses it. Pure.

Everything that the rules permit is valid by the schema. They permit less where JSON
Schema permits more than a grammar can say well: an object has the named properties, in
the schema's order, and others only if it names none.

A keyword that is not enforced is refused if the schema is strict. Else it is left out:
the rest is enforced, and the answer may break that keyword.
"""

import math
import re
from collections.abc import Sequence
from typing import Final, NoReturn, cast

from curtilage.inference.errors import SchemaError, SchemaFault
from curtilage.inference.formats import FORMATS
from curtilage.inference.grammar import (
    EMPTY,
    MAX_REPEATS,
    NOTHING,
    Chain,
    Choice,
    Grammar,
    Node,
    Rule,
    Text,
    chain,
    choice,
)
from curtilage.inference.json_grammar import (
    COLON,
    JsonRules,
    integer_between,
    number_between,
)
from curtilage.inference.json_text import write_json

MAX_PROPERTIES: Final = 1000
MAX_ENUM_VALUES: Final = 1000
MAX_SCHEMAS: Final = 5000
MAX_NESTED: Final = 64
"""Depth of schemas within schemas, references followed: the conversion recurses."""
MAX_ALL_REPEATS: Final = 20_000
"""Of all schemas of a request: the library writes each repetition out, and takes 6 ms
and 0.2 MB for 1,000."""
MAX_BOUNDS: Final = 1000
"""Of the numbers of all schemas of a request: a range takes a millisecond to convert,
and 3,500 characters of the grammar."""
MAX_INTEGER: Final = 10**15
"""Of a bound: with larger ones the digits would be too many."""

_ANNOTATIONS: Final = frozenset(
    {
        "$anchor", "$comment", "$defs", "$id", "$schema", "contentEncoding",
        "contentMediaType", "default", "definitions", "deprecated", "description",
        "examples", "readOnly", "title", "writeOnly",
    }
)  # fmt: skip
"""None restricts what is valid."""

_STRUCTURE: Final = frozenset({"$ref", "allOf", "anyOf", "const", "enum", "oneOf"})
"""Each says all by itself: next to another, both would have to hold."""

_BY_TYPE: Final[dict[str, frozenset[str]]] = {
    "object": frozenset({"additionalProperties", "properties", "required"}),
    "array": frozenset({"items", "maxItems", "minItems"}),
    "string": frozenset({"maxLength", "minLength"}),
    "integer": frozenset(
        {"exclusiveMaximum", "exclusiveMinimum", "maximum", "minimum"}
    ),
    "number": frozenset({"maximum", "minimum"}),
    "boolean": frozenset(),
    "null": frozenset(),
}
"""What is enforced, by the type that it belongs to."""

_UNENFORCED: Final = frozenset(
    {
        "additionalItems", "contains", "contentSchema", "dependencies",
        "dependentRequired", "dependentSchemas", "else", "exclusiveMaximum",
        "exclusiveMinimum", "format", "if", "maxContains", "maxProperties",
        "minContains", "minProperties", "multipleOf", "not", "pattern",
        "patternProperties", "prefixItems", "propertyNames", "then",
        "unevaluatedItems", "unevaluatedProperties", "uniqueItems",
    }
)  # fmt: skip

KEYWORDS: Final = (
    *sorted(
        _ANNOTATIONS
        | _STRUCTURE
        | _UNENFORCED
        | {"type"}
        | frozenset[str]().union(*_BY_TYPE.values())
    ),
)
"""Those whose names may be repeated in an error."""

Schema = dict[str, object]
Place = tuple[str, ...]


def add_schema(grammar: Grammar, schema: Schema, *, strict: bool) -> Rule:
    """Add the rules of a schema; return the one that a whole answer fulfils.

    Args:
        grammar: takes them.
        schema: as JSON gives it.
        strict: refuse keywords that are not enforced.

    Raises:
        SchemaError: it has such a keyword, is malformed or too large, refers to nothing
            or to itself at once, or permits nothing.
    """
    rule = _Converter(grammar, schema, strict=strict).convert()
    if grammar.recurses_at_once():
        raise SchemaError(SchemaFault.CIRCLE, keyword="$ref")
    grammar.prune()
    if grammar.permits_nothing(rule):
        raise SchemaError(SchemaFault.NOTHING)
    return rule


def add_object_schema(grammar: Grammar, schema: Schema, *, strict: bool) -> Rule:
    """Add the rules of a schema, of which only objects are permitted.

    Raises:
        SchemaError: as ``add_schema``, or it permits no object.
    """
    rule = add_schema(grammar, schema, strict=strict)
    only = grammar.add(_objects_of(grammar, grammar.rules[rule.name], set()))
    grammar.prune()
    if grammar.permits_nothing(only):
        raise SchemaError(SchemaFault.NO_OBJECT, keyword="type")
    return only


def _objects_of(grammar: Grammar, node: Node, seen: set[str]) -> Node:
    """Return the options that begin with a brace."""
    if isinstance(node, Rule) and node.name not in seen:
        return _objects_of(grammar, grammar.rules[node.name], seen | {node.name})
    if isinstance(node, Choice):
        options = (_objects_of(grammar, option, seen) for option in node.options)
        return choice(*options)
    first = node.parts[0] if isinstance(node, Chain) and node.parts else node
    begins = isinstance(first, Text) and first.text.startswith("{")
    return node if begins else NOTHING


class _Converter:
    """One conversion: the schema, the rules made so far, and the counts."""

    def __init__(self, grammar: Grammar, root: Schema, *, strict: bool) -> None:
        self._grammar = grammar
        self._json = JsonRules(grammar)
        self._root = root
        self._strict = strict
        self._referred: dict[str, Rule] = {}
        self._properties = 0
        self._values = 0
        self._schemas = 0
        self._depth = 0

    def convert(self) -> Rule:
        return self._schema(self._root, ())

    def _schema(self, schema: object, at: Place) -> Rule:
        self._schemas += 1
        if self._schemas > MAX_SCHEMAS:
            raise SchemaError(SchemaFault.PARTS, most=MAX_SCHEMAS)
        if schema is True:
            return self._json.any_value()
        if schema is False:
            return self._grammar.add(NOTHING)
        if not isinstance(schema, dict):
            raise SchemaError(SchemaFault.PART, where=_where(at))
        # References make it deeper than the text is nested.
        if self._depth >= MAX_NESTED:
            raise SchemaError(SchemaFault.DEPTH, most=MAX_NESTED)
        self._depth += 1
        rule = self._grammar.add(self._node(cast("Schema", schema), at))
        self._depth -= 1
        return rule

    def _node(self, schema: Schema, at: Place) -> Node:
        if schema.keys() <= _ANNOTATIONS:
            return self._json.any_value()
        types = self._types(schema, at)
        self._refuse_unenforced(schema, types, at)
        structure = [word for word in _STRUCTURE if word in schema]
        if not structure:
            return choice(*(self._of_type(kind, schema, at) for kind in types))
        structure.sort(key=_ORDER.index)
        word = structure[0]
        for other in sorted(set(schema) - _ANNOTATIONS - {word}):
            # The type says which of the listed values count.
            if not (word in {"enum", "const"} and other == "type"):
                self._unenforced(other, at, SchemaFault.NEIGHBOUR)
        if word == "$ref":
            return self._reference(schema["$ref"], at)
        if word in {"enum", "const"}:
            return self._listed(word, schema[word], types, at)
        return self._options(word, schema[word], at)

    def _refuse_unenforced(
        self, schema: Schema, types: Sequence[str], at: Place
    ) -> None:
        enforced = _ANNOTATIONS | _STRUCTURE | {"type"}
        for kind in types:
            enforced |= _BY_TYPE[kind]
        for word, value in schema.items():
            if word in {"exclusiveMaximum", "exclusiveMinimum"} and "number" in types:
                self._unenforced(word, at)
            elif word not in enforced and not _is_enforced_as(word, value, types):
                # Of another type, so it restricts none of these.
                if word in _TYPED and word not in _UNENFORCED:
                    continue
                self._unenforced(word, at)

    def _unenforced(
        self, word: str, at: Place, reason: SchemaFault = SchemaFault.KEYWORD
    ) -> None:
        if not self._strict:
            return
        if word not in KEYWORDS:
            # The word is the caller's own.
            raise SchemaError(SchemaFault.UNKNOWN, where=_where(at))
        raise SchemaError(reason, keyword=word, where=_where(at))

    def _types(self, schema: Schema, at: Place) -> list[str]:
        kinds = schema.get("type", _implied_types(schema))
        named = cast("list[object]", kinds) if isinstance(kinds, list) else [kinds]
        types = [kind for kind in named if isinstance(kind, str) and kind in _BY_TYPE]
        if len(types) < len(named) or not types:
            raise SchemaError(SchemaFault.VALUE, keyword="type", where=_where(at))
        return types

    def _of_type(self, kind: str, schema: Schema, at: Place) -> Node:
        if kind in _CONSTANTS:
            return _CONSTANTS[kind]
        made = {
            "object": self._object,
            "array": self._array,
            "string": self._string,
            "integer": self._integer,
            "number": self._number,
        }
        return made[kind](schema, at)

    # Objects.

    def _object(self, schema: Schema, at: Place) -> Node:
        named = self._mapping(schema, "properties", at)
        required = self._words(schema, "required", at)
        others = schema.get("additionalProperties", True)
        others_at = (*at, "additionalProperties")
        if type(others) not in (bool, dict):
            _malformed("additionalProperties", at)
        missing = [word for word in required if word not in named]
        self._properties += len(named) + len(missing)
        if self._properties > MAX_PROPERTIES:
            raise SchemaError(SchemaFault.PROPERTIES, most=MAX_PROPERTIES)
        if not named and not missing:
            # Without any named one it is a dictionary, unless it may have no others.
            if others is False or (
                "properties" in schema and "additionalProperties" not in schema
            ):
                return self._json.braced(EMPTY)
            if others is True:
                return self._json.any_object()
            return self._json.object_of(self._schema(others, others_at))
        members = [
            (name, self._schema(value, (*at, f"properties[{place}]")), name in required)
            for place, (name, value) in enumerate(named.items())
        ]
        members += [(name, self._schema(others, others_at), True) for name in missing]
        return self._json.braced(self._members(members))

    def _members(self, members: Sequence[tuple[str, Rule, bool]]) -> Node:
        """Return the members in order, with a comma before each but the first one.

        From the last one on: what follows a member depends only on whether there was
        one before it.
        """
        first: Node = EMPTY
        more: Node = EMPTY
        for name, value, required in reversed(members):
            member = chain(Text(write_json(name)), COLON, value, more)
            another = chain(Text(","), self._json.gap, member)
            # Pruned before: an optional one without any value is always missing.
            if required:
                first, more = self._grammar.add(member), self._grammar.add(another)
            else:
                first = self._grammar.add(choice(member, first))
                more = self._grammar.add(choice(another, more))
        return first

    # The others.

    def _array(self, schema: Schema, at: Place) -> Node:
        least = self._count(schema, "minItems", at) or 0
        most = self._count(schema, "maxItems", at)
        if most is not None and most < least:
            return NOTHING
        items = self._schema(schema.get("items", True), (*at, "items"))
        return self._json.array_of(items, least, most)

    def _string(self, schema: Schema, at: Place) -> Node:
        least = self._count(schema, "minLength", at) or 0
        most = self._count(schema, "maxLength", at)
        if most is not None and most < least:
            return NOTHING
        named = schema.get("format")
        if not isinstance(named, str) or named not in FORMATS:
            return self._json.text_of(least, most)
        for word in sorted({"minLength", "maxLength"} & schema.keys()):
            self._unenforced(word, at, SchemaFault.LENGTH)
        return chain(Text('"'), FORMATS[named], Text('"'))

    def _integer(self, schema: Schema, at: Place) -> Node:
        if not schema.keys() & _BY_TYPE["integer"]:
            return self._json.integer
        above = self._bound(schema, "exclusiveMinimum", at)
        below = self._bound(schema, "exclusiveMaximum", at)
        lows = [
            self._bound(schema, "minimum", at),
            None if above is None else math.floor(above) + 1,
        ]
        highs = [
            self._bound(schema, "maximum", at),
            None if below is None else math.ceil(below) - 1,
        ]
        return integer_between(
            max((math.ceil(each) for each in lows if each is not None), default=None),
            min((math.floor(each) for each in highs if each is not None), default=None),
        )

    def _number(self, schema: Schema, at: Place) -> Node:
        low = self._bound(schema, "minimum", at)
        high = self._bound(schema, "maximum", at)
        for word, bound in (("minimum", low), ("maximum", high)):
            if bound is not None and bound != int(bound):
                self._unenforced(word, at, SchemaFault.FRACTION)
                low = high = None
        if low is high is None:
            return self._json.number
        return number_between(
            None if low is None else int(low), None if high is None else int(high)
        )

    def _bound(self, schema: Schema, word: str, at: Place) -> float | None:
        bound = schema.get(word)
        if bound is None:
            return None
        if isinstance(bound, bool) or not isinstance(bound, int | float):
            _malformed(word, at)
        if not abs(bound) <= MAX_INTEGER:
            self._unenforced(word, at, SchemaFault.BOUND)
            return None
        self._grammar.bounds += 1
        if self._grammar.bounds > MAX_BOUNDS:
            raise SchemaError(SchemaFault.BOUNDS, most=MAX_BOUNDS)
        return bound

    def _listed(
        self, word: str, values: object, types: Sequence[str], at: Place
    ) -> Node:
        if word == "const":
            values = [values]
        if not isinstance(values, list) or not values:
            _malformed(word, at)
        listed = cast("list[object]", values)
        self._values += len(listed)
        if self._values > MAX_ENUM_VALUES:
            raise SchemaError(SchemaFault.VALUES, most=MAX_ENUM_VALUES)
        return choice(
            *(Text(write_json(value)) for value in listed if _is_of(value, types))
        )

    def _options(self, word: str, options: object, at: Place) -> Node:
        if not isinstance(options, list) or not options:
            _malformed(word, at)
        parts = cast("list[object]", options)
        # "Exactly one" and "all" are what a grammar cannot say, unless there is one.
        if word != "anyOf" and len(parts) > 1:
            self._unenforced(word, at)
            if word == "allOf":
                return self._json.any_value()
        return choice(
            *(
                self._schema(part, (*at, f"{word}[{place}]"))
                for place, part in enumerate(parts)
            )
        )

    def _reference(self, pointer: object, at: Place) -> Node:
        if not isinstance(pointer, str):
            _malformed("$ref", at)
        if pointer in self._referred:
            return self._referred[pointer]
        found = _resolved(self._root, pointer)
        if found is None:
            raise SchemaError(SchemaFault.REFERENCE, keyword="$ref", where=_where(at))
        target, place = found
        rule = self._referred[pointer] = self._grammar.reserve()
        return self._grammar.define(rule, self._schema(target, place))

    # Values of keywords.

    def _mapping(self, schema: Schema, word: str, at: Place) -> dict[str, object]:
        value = schema.get(word, {})
        if not isinstance(value, dict):
            _malformed(word, at)
        return cast("dict[str, object]", value)

    def _words(self, schema: Schema, word: str, at: Place) -> list[str]:
        value = schema.get(word, [])
        if not isinstance(value, list):
            _malformed(word, at)
        words = [each for each in cast("list[object]", value) if isinstance(each, str)]
        if len(set(words)) < len(cast("list[object]", value)):
            _malformed(word, at)
        return words

    def _count(self, schema: Schema, word: str, at: Place) -> int | None:
        value = schema.get(word)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            _malformed(word, at)
        if value > MAX_REPEATS:
            self._unenforced(word, at, SchemaFault.COUNT)
            return None
        self._grammar.repeats += value
        if self._grammar.repeats > MAX_ALL_REPEATS:
            raise SchemaError(SchemaFault.REPEATS, most=MAX_ALL_REPEATS)
        return value


_KINDS: Final[dict[type, tuple[str, ...]]] = {
    bool: ("boolean",),
    dict: ("object",),
    float: ("integer", "number"),
    int: ("integer", "number"),
    list: ("array",),
    str: ("string",),
    type(None): ("null",),
}
"""The types of a value, by how Python reads it; a fraction is no integer."""

_CONSTANTS: Final[dict[str, Node]] = {
    "boolean": choice(Text("true"), Text("false")),
    "null": Text("null"),
}
_TYPED: Final = frozenset[str]().union(*_BY_TYPE.values())
_ORDER: Final = ("$ref", "enum", "const", "anyOf", "oneOf", "allOf")


def _malformed(word: str, at: Place) -> NoReturn:
    raise SchemaError(SchemaFault.VALUE, keyword=word, where=_where(at))


def _where(at: Place) -> str:
    return ".".join(at)


def _is_enforced_as(word: str, value: object, types: Sequence[str]) -> bool:
    """Whether a keyword is enforced with this value alone."""
    if word == "format":
        return "string" in types and value in [*FORMATS]
    # The default: it restricts nothing.
    return word == "uniqueItems" and value is False


def _implied_types(schema: Schema) -> list[str]:
    """Return the types of a schema that names none.

    Those whose keywords it has: of another type every value would be valid. Else all.
    """
    implied = [kind for kind, words in _BY_TYPE.items() if words & schema.keys()]
    return implied or list(_BY_TYPE)


def _is_of(value: object, types: Sequence[str]) -> bool:
    if isinstance(value, float) and not value.is_integer():
        return "number" in types
    return any(kind in types for kind in _KINDS[type(value)])


def _resolved(root: Schema, pointer: str) -> tuple[object, Place] | None:
    """Return what a reference within the schema refers to, and its place."""
    if not re.fullmatch(r"#(?:/.*)?", pointer, re.DOTALL):
        return None
    value: object = root
    place: list[str] = []
    for step in pointer.split("/")[1:]:
        found = _part(value, step.replace("~1", "/").replace("~0", "~"))
        if found is None:
            return None
        value, at = found
        place.append(at)
    return value, tuple(place)


def _part(value: object, name: str) -> tuple[object, str] | None:
    """Return a part of a value, and its keyword or position."""
    if isinstance(value, dict):
        parts = cast("Schema", value)
        if name not in parts:
            return None
        return parts[name], name if name in KEYWORDS else f"[{[*parts].index(name)}]"
    if not isinstance(value, list) or not re.fullmatch("[0-9]{1,4}", name):
        return None
    items = cast("list[object]", value)
    return (items[int(name)], f"[{int(name)}]") if int(name) < len(items) else None
