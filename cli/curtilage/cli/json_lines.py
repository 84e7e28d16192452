"""Lines of JSON, read strictly, and the ids by which they are known."""

import json
from typing import Final, TypeGuard, cast

MAX_ID_CHARS: Final = 256

LineId = str | int


def object_of(line: bytes) -> dict[str, object] | None:
    """Return the object of a line; None where it is none, or has a key twice."""
    try:
        value: object = json.loads(line.decode("utf-8-sig"), object_pairs_hook=_unique)
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, object]", value) if isinstance(value, dict) else None


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Refuse a key given twice: who reads the line next may take the other."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key is given twice")
    return found


def is_id(value: object) -> TypeGuard[LineId]:
    """Tell whether something is the id of a line: an integer, or a short text."""
    # Exactly an integer: true is one in Python, and would come back as another's 1.
    return type(value) is int or (isinstance(value, str) and len(value) <= MAX_ID_CHARS)
