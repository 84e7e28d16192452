"""A small check of values against JSON schemas; shares no code with the grammar."""

import math
from typing import Any, cast

Schema = Any


def is_valid(value: object, schema: Schema, root: Schema | None = None) -> bool:
    """Whether a value is valid by a schema of the keywords that the engine enforces."""
    root = schema if root is None else root
    if isinstance(schema, bool):
        return schema
    return all(check(value, schema, root) for check in _CHECKS)


def _type(value: object, schema: Schema, _root: Schema) -> bool:
    kinds = schema.get("type")
    if kinds is None:
        return True
    return any(
        _is(value, kind) for kind in ([kinds] if isinstance(kinds, str) else kinds)
    )


def _is(value: object, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    if isinstance(value, int | float):
        whole = math.isfinite(value) and value == int(value)
        return kind == "number" or (kind == "integer" and whole)
    names: dict[str, type] = {
        "string": str,
        "array": list,
        "object": dict,
        "null": type(None),
    }
    return kind in names and isinstance(value, names[kind])


def _same(one: object, other: object) -> bool:
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    return bool(one == other)


def _listed(value: object, schema: Schema, _root: Schema) -> bool:
    if "const" in schema and not _same(value, schema["const"]):
        return False
    return "enum" not in schema or any(_same(value, one) for one in schema["enum"])


def _combined(value: object, schema: Schema, root: Schema) -> bool:
    for word in schema.keys() & {"anyOf", "oneOf", "allOf"}:
        fulfilled = sum(is_valid(value, part, root) for part in schema[word])
        most = len(schema[word])
        if fulfilled < (most if word == "allOf" else 1):
            return False
        if word == "oneOf" and fulfilled > 1:
            return False
    return True


def _reference(value: object, schema: Schema, root: Schema) -> bool:
    if "$ref" not in schema:
        return True
    target: Any = root
    for step in schema["$ref"].split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        target = target[int(name) if isinstance(target, list) else name]
    return is_valid(value, target, root)


def _number(value: object, schema: Schema, _root: Schema) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return True
    low, high = schema.get("minimum", -math.inf), schema.get("maximum", math.inf)
    above = schema.get("exclusiveMinimum")
    below = schema.get("exclusiveMaximum")
    return (
        low <= value <= high
        and (above is None or above < value)
        and (below is None or value < below)
    )


def _length(value: object, schema: Schema, _root: Schema) -> bool:
    if not isinstance(value, str):
        return True
    return bool(
        schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", math.inf)
    )


def _array(value: object, schema: Schema, root: Schema) -> bool:
    if not isinstance(value, list):
        return True
    items = cast("list[object]", value)
    most = schema.get("maxItems", math.inf)
    return schema.get("minItems", 0) <= len(items) <= most and all(
        is_valid(item, schema.get("items", True), root) for item in items
    )


def _object(value: object, schema: Schema, root: Schema) -> bool:
    if not isinstance(value, dict):
        return True
    members = cast("dict[str, object]", value)
    named = schema.get("properties", {})
    others = schema.get("additionalProperties", True)
    return all(name in members for name in schema.get("required", [])) and all(
        is_valid(item, named.get(name, others), root) for name, item in members.items()
    )


_CHECKS = (_type, _listed, _combined, _reference, _number, _length, _array, _object)
