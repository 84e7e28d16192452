"""Grammars of the formats of texts that JSON Schema names. Pure.

Each permits only what is of the format: no 30 February, and a 29 only in leap years.
"""

from typing import Final

from curtilage.inference.grammar import (
    DIGIT,
    Node,
    Repeat,
    Text,
    chain,
    choice,
    optional,
)
from curtilage.inference.json_grammar import HEX, digits_between, natural_between

_DASH: Final = Text("-")


def _one_of(*numbers: int) -> Node:
    """Return one of the numbers, of two digits."""
    return choice(*(Text(f"{number:02}") for number in numbers))


def _days(last: int) -> Node:
    return chain(_DASH, digits_between("01", str(last)))


_YEAR: Final = digits_between("1000", "9999")
_LEAP_YEAR: Final = choice(
    chain(digits_between("10", "99"), _one_of(*range(4, 100, 4))),
    chain(_one_of(*range(12, 100, 4)), Text("00")),
)
_DATE: Final = choice(
    chain(
        _YEAR,
        _DASH,
        choice(
            chain(_one_of(1, 3, 5, 7, 8, 10, 12), _days(31)),
            chain(_one_of(4, 6, 9, 11), _days(30)),
            chain(_one_of(2), _days(28)),
        ),
    ),
    chain(_LEAP_YEAR, Text("-02-29")),
)
_CLOCK: Final = chain(digits_between("00", "23"), Text(":"), digits_between("00", "59"))
_TIME: Final = chain(
    _CLOCK,
    Text(":"),
    digits_between("00", "59"),
    optional(chain(Text("."), Repeat(DIGIT, 1, 6))),
    choice(Text("Z"), chain(choice(Text("+"), _DASH), _CLOCK)),
)
_BYTE: Final = natural_between(0, 255)

FORMATS: Final[dict[str, Node]] = {
    "date": _DATE,
    "time": _TIME,
    "date-time": chain(_DATE, Text("T"), _TIME),
    "ipv4": chain(_BYTE, Repeat(chain(Text("."), _BYTE), 3, 3)),
    "uuid": chain(
        Repeat(HEX, 8, 8),
        Repeat(chain(_DASH, Repeat(HEX, 4, 4)), 3, 3),
        _DASH,
        Repeat(HEX, 12, 12),
    ),
}
"""By their names in JSON Schema."""
