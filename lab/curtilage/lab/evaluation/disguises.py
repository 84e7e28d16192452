"""Disguised identifiers: thirty ways to write each of six.

A person or a program can still read the value after each mutation. The cases are pure
functions without a clock or chance, so there are always the same 180. This module
knows nothing about detectors; the measurement decides where each case may go.
"""

import base64
import html
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Seed:
    """One identifier, and a sentence that gives no hint of it.

    Attributes:
        name: of the identifier.
        value: as its owner would write it; invented, or from a standard's text.
        carrier: a harmless sentence with a place for the value.
    """

    name: str
    value: str = field(repr=False)
    carrier: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One identifier, written in one way.

    Attributes:
        identifier: the seed's name.
        mutation: the way of writing.
        text: the query.
    """

    identifier: str
    mutation: str
    text: str = field(repr=False)


# No word in a carrier hints at the value: the detector must find the value itself.
SEEDS: Final = (
    Seed(name="ssn", value="536-22-1234", carrier="Please check {} once more."),
    Seed(name="card", value="4111 1111 1111 1111", carrier="Is {} written correctly?"),
    Seed(name="email", value="mia.keller@example.org", carrier="Put {} at the top."),
    Seed(name="phone", value="+1 415 555 0132", carrier="Write {} on the second line."),
    Seed(name="iban", value="GB82 WEST 1234 5698 7654 32", carrier="Sort {} first."),
    Seed(name="ip", value="203.0.113.57", carrier="What does {} stand for here?"),
)

_LOOK_ALIKES: Final = str.maketrans(
    "aceopxyABCEHKMOPTX",
    "\u0430\u0441\u0435\u043e\u0440\u0445\u0443"
    "\u0410\u0412\u0421\u0415\u041d\u041a\u041c\u041e\u0420\u0422\u0425",
)
_SPELLED: Final = (
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
)
_ASCII_DIGITS: Final = "0123456789"
# Every printable ASCII character has a fullwidth form at a fixed distance (Unicode,
# "Halfwidth and Fullwidth Forms").
_FULLWIDTH: Final = {code: code + 0xFEE0 for code in range(ord("!"), ord("~") + 1)}


def _digits_from(first: int) -> Callable[[str], str]:
    """Return a mutation to the ten digits that begin at a code point."""
    table = {ord(digit): first + at for at, digit in enumerate(_ASCII_DIGITS)}
    return lambda value: value.translate(table)


def _between(mark: str) -> Callable[[str], str]:
    """Return a mutation that puts a mark between all characters."""
    return mark.join


def _joined_by(mark: str) -> Callable[[str], str]:
    """Return a mutation that replaces spaces and dashes by one mark."""
    return lambda value: mark.join(value.replace(" ", "-").split("-"))


def _spelled(value: str) -> str:
    words = (_SPELLED[int(char)] if char.isdigit() else char for char in value)
    return " ".join(word for word in words if word != " ")


def _in_tags(value: str) -> str:
    half = len(value) // 2
    return f"<b>{html.escape(value[:half])}</b><i>{html.escape(value[half:])}</i>"


def _in_markdown(value: str) -> str:
    half = len(value) // 2
    return f"**{value[:half]}**`{value[half:]}`"


MUTATIONS: Final[Mapping[str, Callable[[str], str]]] = MappingProxyType(
    {
        "plain": str,
        "fullwidth": lambda value: value.translate(_FULLWIDTH),
        "arabic-indic": _digits_from(0x0660),
        "bold": _digits_from(0x1D7CE),
        "cyrillic": lambda value: value.translate(_LOOK_ALIKES),
        "zero-width-space": _between("\u200b"),
        "zero-width-joiner": lambda value: "\u200d".join(
            value[at : at + 2] for at in range(0, len(value), 2)
        ),
        "soft-hyphen": _between("\u00ad"),
        "spaced": _between(" "),
        "dots": _joined_by("."),
        "slashes": _joined_by("/"),
        "underscores": _joined_by("_"),
        "newline": lambda value: (
            value[: len(value) // 2] + "\n" + value[len(value) // 2 :]
        ),
        "no-break": lambda value: value.replace(" ", "\u00a0").replace("-", "\u2011"),
        "en-dash": _joined_by("\u2013"),
        "spelled": _spelled,
        "base64": lambda value: base64.b64encode(value.encode()).decode(),
        "hex": lambda value: value.encode().hex(),
        "percent": lambda value: "".join(f"%{byte:02X}" for byte in value.encode()),
        "entities": lambda value: "".join(f"&#{ord(char)};" for char in value),
        "escapes": lambda value: "".join(f"\\u{ord(char):04x}" for char in value),
        "told": lambda value: value.replace("@", " at ").replace(".", " dot "),
        "mistyped": lambda value: value.translate(str.maketrans("10", "lO")),
        "reversed": lambda value: value[::-1],
        "json": lambda value: f'{{"a": {{"b": ["{value}"]}}}}',
        "code": lambda value: f"x = '{value}'  # see y()",
        "glued": lambda value: f"abc{value}xyz",
        "tags": _in_tags,
        "right-to-left": lambda value: f"\u202e{value[::-1]}\u202c",
        "markdown": _in_markdown,
    }
)


def mutated() -> Iterator[Case]:
    """Yield every seed in every mutation, 180 cases."""
    for seed in SEEDS:
        for name, mutate in MUTATIONS.items():
            text = seed.carrier.format(mutate(seed.value))
            yield Case(identifier=seed.name, mutation=name, text=text)
