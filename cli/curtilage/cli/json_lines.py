"""Strict reader of JSON lines and their ids."""

import json
from typing import Final, TypeGuard, cast

MAX_ID_CHARS: Final = 256

LineId = str | int


def object_of(line: bytes) -> dict[str, object] | None:
    """Return the object of a line; None if it is not one, or repeats a key."""
    try:
        # Windows tools write a byte order mark, which is not JSON.
        value: object = json.loads(
            line.decode("utf-8-sig"), object_pairs_hook=unique_keys
        )
    # Deeply nested brackets exceed Python's recursion limit.
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, object]", value) if isinstance(value, dict) else None


def unique_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Refuse a repeated key: another parser may use the other value."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key is repeated")
    return found


def is_id(value: object) -> TypeGuard[LineId]:
    """Return whether a value is valid as an id: an integer or a short string."""
    # Exactly int: True is an int in Python, and would collide with the id 1.
    return type(value) is int or (isinstance(value, str) and len(value) <= MAX_ID_CHARS)
