"""Reads JSON texts strictly: one value, no doubled keys, no NaN; finds parts. Pure."""

import json
import re
from collections.abc import Collection
from itertools import accumulate
from typing import Final, NoReturn, cast

from curtilage.inference.errors import RequestError

MAX_DEPTH: Final = 64
"""Objects and arrays within each other."""

_STRINGS: Final = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_BRACKETS: Final = re.compile(r"[\[\]{}]")


def read_json(text: str, what: str) -> object:
    """Return the value of a JSON text.

    Args:
        text: the text.
        what: names it in an error.

    Raises:
        RequestError: it is not JSON, has a key twice or is nested too deeply; without
            a word of it.
    """
    # Before it is read: the parser recurses.
    if _depth_bound(text) > MAX_DEPTH:
        raise RequestError(f"{what} is nested more than {MAX_DEPTH} deep")
    read, value = _read(text)
    if not read:
        raise RequestError(f"{what} is not JSON")
    return value


def write_json(value: object) -> str:
    """Return a value's JSON text, as models see it in their training."""
    return json.dumps(value, ensure_ascii=False)


def part_of(
    root: object, pointer: str, *, known: Collection[str]
) -> tuple[object, tuple[str, ...]] | None:
    """Return the part that a pointer within a document names; None: there is none.

    Args:
        root: the document.
        pointer: ``#``, or ``#/`` and the steps.
        known: keys that may be repeated.

    Returns:
        The part and its place: known keys, and positions instead of others.
    """
    if not re.fullmatch(r"#(?:/.*)?", pointer, re.DOTALL):
        return None
    value: object = root
    place: list[str] = []
    for step in pointer.split("/")[1:]:
        found = _step(value, step.replace("~1", "/").replace("~0", "~"), known)
        if found is None:
            return None
        value, at = found
        place.append(at)
    return value, tuple(place)


def _step(
    value: object, name: str, known: Collection[str]
) -> tuple[object, str] | None:
    if isinstance(value, dict):
        parts = cast("dict[str, object]", value)
        if name not in parts:
            return None
        return parts[name], name if name in known else f"[{[*parts].index(name)}]"
    if not isinstance(value, list) or not re.fullmatch("[0-9]{1,4}", name):
        return None
    items = cast("list[object]", value)
    return (items[int(name)], f"[{int(name)}]") if int(name) < len(items) else None


def _read(text: str) -> tuple[bool, object]:
    # Separate, so that no error of ours has the parser's as its context: that one
    # contains the whole text.
    try:
        value: object = json.loads(
            text, object_pairs_hook=_object, parse_constant=_refuse
        )
        # A half of a pair of code points has a JSON form, but no UTF-8 one.
        write_json(value).encode()
    except (ValueError, RecursionError):
        return False, None
    return True, value


def _depth_bound(text: str) -> int:
    """Return how deep the text is nested, brackets inside strings not counted."""
    depths = accumulate(
        1 if bracket in "[{" else -1
        for bracket in _BRACKETS.findall(_STRINGS.sub("", text))
    )
    return max(depths, default=0)


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    values = dict(pairs)
    # Parsers differ in which of the two they take: what was inspected might not be
    # what the model reads.
    if len(values) < len(pairs):
        raise ValueError
    return values


def _refuse(_constant: str) -> NoReturn:
    raise ValueError
