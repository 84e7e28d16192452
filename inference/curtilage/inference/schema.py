"""Turns a JSON schema into grammar rules, or refuses it. Pure.

Each part of the schema becomes a set of alternatives (``alternatives``), and the sets
become rules (``value_rules``). Everything that the rules permit is valid by the schema.
They permit less where JSON Schema permits more than a grammar can say well: an object
has the named properties, in the schema's order, and others only if it names none.

A keyword that is not enforced is refused if the schema is strict. Else it is left out:
the rest is enforced, and the answer may break that keyword.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Final, NoReturn, cast

from curtilage.inference.alternatives import (
    ANY_OBJECT,
    ANYTHING,
    NONE,
    Alternative,
    Alternatives,
    Array,
    Dictionary,
    Formatted,
    Integers,
    Literal,
    Member,
    Numbers,
    Object,
    Texts,
    Values,
)
from curtilage.inference.errors import SchemaError, SchemaFault
from curtilage.inference.formats import FORMATS
from curtilage.inference.grammar import MAX_ALL_REPEATS, MAX_REPEATS, Grammar, Rule
from curtilage.inference.json_text import part_of, write_json
from curtilage.inference.value_rules import ValueRules

MAX_PROPERTIES: Final = 1000
MAX_ENUM_VALUES: Final = 1000
MAX_SCHEMAS: Final = 5000
MAX_NESTED: Final = 64
"""Depth of schemas within schemas, references followed: the conversion recurses."""
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
    values, found = _converted(grammar, schema, strict=strict)
    rule = ValueRules(grammar, values).add(found)
    grammar.prune()
    if grammar.permits_nothing(rule):
        raise SchemaError(SchemaFault.NOTHING)
    return rule


def add_object_schema(grammar: Grammar, schema: Schema, *, strict: bool) -> Rule:
    """Add the rules of a schema, of which only objects are permitted.

    Raises:
        SchemaError: as ``add_schema``, or it permits no object.
    """
    values, found = _converted(grammar, schema, strict=strict)
    objects = {each for each in found if _is_object(each)}
    if found >= ANYTHING:
        objects.add(ANY_OBJECT)
    rule = ValueRules(grammar, values).add(frozenset(objects))
    grammar.prune()
    if grammar.permits_nothing(rule):
        raise SchemaError(SchemaFault.NO_OBJECT, keyword="type")
    return rule


def _is_object(alternative: Alternative) -> bool:
    if isinstance(alternative, Literal):
        return alternative.text.startswith("{")
    return isinstance(alternative, Object | Dictionary)


def _converted(
    grammar: Grammar, schema: Schema, *, strict: bool
) -> tuple[Values, Alternatives]:
    values = Values(grammar.spend)
    found = _Converter(grammar, values, schema, strict=strict).convert()
    values.resolve()
    return values, values.of(found)


class _Converter:
    """One conversion: the schema, the sets found so far, and the counts."""

    def __init__(
        self, grammar: Grammar, values: Values, root: Schema, *, strict: bool
    ) -> None:
        self._grammar = grammar
        self._values = values
        self._root = root
        self._strict = strict
        self._referred: dict[str, int] = {}
        self._properties = 0
        self._listed_values = 0
        self._schemas = 0
        self._depth = 0

    def convert(self) -> int:
        return self._schema(self._root, ())

    def _schema(self, schema: object, at: Place) -> int:
        """Return the set of a schema, by its number."""
        self._schemas += 1
        self._grammar.spend()
        if self._schemas > MAX_SCHEMAS:
            raise SchemaError(SchemaFault.PARTS, most=MAX_SCHEMAS)
        if schema is True:
            return self._values.add(ANYTHING)
        if schema is False:
            return self._values.add(NONE)
        if not isinstance(schema, dict):
            raise SchemaError(SchemaFault.PART, where=_where(at))
        # References make it deeper than the text is nested.
        if self._depth >= MAX_NESTED:
            raise SchemaError(SchemaFault.DEPTH, most=MAX_NESTED)
        self._depth += 1
        value = self._values.add(self._alternatives(cast("Schema", schema), at))
        self._depth -= 1
        return value

    def _alternatives(self, schema: Schema, at: Place) -> Alternatives:
        if schema.keys() <= _ANNOTATIONS:
            return ANYTHING
        types = self._types(schema, at)
        self._refuse_unenforced(schema, types, at)
        structure = [word for word in _STRUCTURE if word in schema]
        if not structure:
            return NONE.union(*(self._of_type(kind, schema, at) for kind in types))
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

    def _of_type(self, kind: str, schema: Schema, at: Place) -> Alternatives:
        if kind in _CONSTANTS:
            return _CONSTANTS[kind]
        made = {
            "object": self._object,
            "array": self._array,
            "string": self._string,
            "integer": self._integer,
            "number": self._number,
        }
        return frozenset(made[kind](schema, at))

    # Objects.

    def _object(self, schema: Schema, at: Place) -> Iterable[Alternative]:
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
                return [self._values.object_of(())]
            if others is True:
                return [ANY_OBJECT]
            return [Dictionary(self._schema(others, others_at))]
        needed = set(required)
        members = [
            Member(
                _key(name),
                self._schema(value, (*at, f"properties[{place}]")),
                name in needed,
            )
            for place, (name, value) in enumerate(named.items())
        ]
        members += [
            Member(_key(name), self._schema(others, others_at), required=True)
            for name in missing
        ]
        return [self._values.object_of(members)]

    # The others.

    def _array(self, schema: Schema, at: Place) -> Iterable[Alternative]:
        least = self._count(schema, "minItems", at) or 0
        most = self._count(schema, "maxItems", at)
        if most is not None and most < least:
            return NONE
        items = self._schema(schema.get("items", True), (*at, "items"))
        return [Array(items, least, most)]

    def _string(self, schema: Schema, at: Place) -> Iterable[Alternative]:
        least = self._count(schema, "minLength", at) or 0
        most = self._count(schema, "maxLength", at)
        if most is not None and most < least:
            return NONE
        named = schema.get("format")
        if not isinstance(named, str) or named not in FORMATS:
            return [Texts(least, most)]
        for word in sorted({"minLength", "maxLength"} & schema.keys()):
            self._unenforced(word, at, SchemaFault.LENGTH)
        return [Formatted(named)]

    def _integer(self, schema: Schema, at: Place) -> Iterable[Alternative]:
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
        low = max((math.ceil(each) for each in lows if each is not None), default=None)
        high = min(
            (math.floor(each) for each in highs if each is not None), default=None
        )
        empty = low is not None and high is not None and low > high
        return NONE if empty else [Integers(low, high)]

    def _number(self, schema: Schema, at: Place) -> Iterable[Alternative]:
        low = self._bound(schema, "minimum", at)
        high = self._bound(schema, "maximum", at)
        for word, bound in (("minimum", low), ("maximum", high)):
            if bound is not None and bound != int(bound):
                self._unenforced(word, at, SchemaFault.FRACTION)
                low = high = None
        if low is not None and high is not None and low > high:
            return NONE
        return [
            Numbers(
                None if low is None else int(low), None if high is None else int(high)
            )
        ]

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
    ) -> Alternatives:
        if word == "const":
            values = [values]
        if not isinstance(values, list) or not values:
            _malformed(word, at)
        listed = cast("list[object]", values)
        self._listed_values += len(listed)
        if self._listed_values > MAX_ENUM_VALUES:
            raise SchemaError(SchemaFault.VALUES, most=MAX_ENUM_VALUES)
        return frozenset(
            Literal(write_json(value)) for value in listed if _is_of(value, types)
        )

    def _options(self, word: str, options: object, at: Place) -> Alternatives:
        if not isinstance(options, list) or not options:
            _malformed(word, at)
        parts = cast("list[object]", options)
        # "Exactly one" and "all" are what a grammar cannot say, unless there is one.
        if word != "anyOf" and len(parts) > 1:
            self._unenforced(word, at)
            if word == "allOf":
                return ANYTHING
        found: set[Alternative] = set()
        for place, part in enumerate(parts):
            of = self._values.of(self._schema(part, (*at, f"{word}[{place}]")))
            self._grammar.spend(len(of))
            found |= of
        return frozenset(found)

    def _reference(self, pointer: object, at: Place) -> Alternatives:
        if not isinstance(pointer, str):
            _malformed("$ref", at)
        if pointer in self._referred:
            return self._values.of(self._referred[pointer])
        found = part_of(self._root, pointer, known=KEYWORDS)
        if found is None:
            raise SchemaError(SchemaFault.REFERENCE, keyword="$ref", where=_where(at))
        target, place = found
        reserved = self._referred[pointer] = self._values.reserve()
        value = self._schema(target, place)
        # What refers to it from within has the reserved number; others the set itself.
        self._values.define(reserved, value)
        self._referred[pointer] = value
        return self._values.of(value)

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

_CONSTANTS: Final[dict[str, Alternatives]] = {
    "boolean": frozenset({Literal("true"), Literal("false")}),
    "null": frozenset({Literal("null")}),
}
_TYPED: Final = frozenset[str]().union(*_BY_TYPE.values())
_ORDER: Final = ("$ref", "enum", "const", "anyOf", "oneOf", "allOf")


def _malformed(word: str, at: Place) -> NoReturn:
    raise SchemaError(SchemaFault.VALUE, keyword=word, where=_where(at))


def _key(name: str) -> str:
    return f"{write_json(name)}:"


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
