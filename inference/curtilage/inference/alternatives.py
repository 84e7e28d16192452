"""What a value may be: sets of alternatives. Pure.

Each part of a schema becomes one set. A choice is the union of its options' sets, and a
reference the set of what it refers to, so however often parts are combined or referred
to, nothing is listed twice. ``value_rules`` makes grammar rules of them.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from typing import Final, NamedTuple, TypeAlias

from curtilage.inference.errors import SchemaError, SchemaFault

KEEPING: Final = 8
"""Steps of memory: what is kept counts for more than what is looked at."""


@dataclass(frozen=True, slots=True)
class Literal:
    """One value, by its JSON text."""

    text: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Texts:
    """A text of so many characters; None: of any number."""

    least: int
    most: int | None


@dataclass(frozen=True, slots=True)
class Formatted:
    """A text of one of ``formats.FORMATS``."""

    name: str


@dataclass(frozen=True, slots=True)
class Integers:
    """An integer within bounds, both included; None: without."""

    low: int | None
    high: int | None


@dataclass(frozen=True, slots=True)
class Numbers:
    """A number within bounds, both included; None: without."""

    low: int | None
    high: int | None


@dataclass(frozen=True, slots=True)
class Array:
    """An array.

    Attributes:
        items: a set, by its number.
        least: how many there are at least.
        most: how many at most; None: any number.
    """

    items: int
    least: int
    most: int | None


@dataclass(frozen=True, slots=True)
class Object:
    """An object with named members: a number in ``Values.objects``."""

    number: int


@dataclass(frozen=True, slots=True)
class Dictionary:
    """An object of any names, each with a value of a set; None: with any value."""

    value: int | None


@dataclass(frozen=True, slots=True)
class Anything:
    """Any value."""


@dataclass(frozen=True, slots=True)
class Same:
    """Whatever is in another set, which is not known yet."""

    value: int


Alternative: TypeAlias = (
    Literal
    | Texts
    | Formatted
    | Integers
    | Numbers
    | Array
    | Object
    | Dictionary
    | Anything
    | Same
)
Alternatives: TypeAlias = frozenset[Alternative]

NONE: Final[Alternatives] = frozenset()
ANYTHING: Final[Alternatives] = frozenset({Anything()})
ANY_OBJECT: Final = Dictionary(None)


class Member(NamedTuple):
    """A named member of an object.

    Attributes:
        key: its name as JSON, with the colon.
        value: a set, by its number.
        required: it must be there.
    """

    key: str
    value: int
    required: bool


class Values:
    """The sets of a schema, by number; equal ones have one number.

    Args:
        spend: counts the work; raises if it is too much.

    Attributes:
        objects: the members of each object.
    """

    def __init__(self, spend: Callable[[int], None]) -> None:
        self._spend = spend
        self._sets: list[Alternatives] = []
        self._numbers: dict[Alternatives, int] = {}
        self._objects: dict[tuple[Member, ...], int] = {}
        self.objects: list[tuple[Member, ...]] = []

    def add(self, alternatives: Iterable[Alternative]) -> int:
        """Return the number of a set."""
        found = frozenset(alternatives)
        self._spend(1 + len(found))
        if found not in self._numbers:
            self._spend(KEEPING * len(found))
            self._numbers[found] = len(self._sets)
            self._sets.append(found)
        return self._numbers[found]

    def reserve(self) -> int:
        """Return the number of a set that is not known yet."""
        number = len(self._sets)
        self._sets.append(frozenset({Same(number)}))
        return number

    def define(self, reserved: int, value: int) -> None:
        """Say which set a reserved number has."""
        self._sets[reserved] = frozenset({Same(value)})

    def of(self, value: int) -> Alternatives:
        """Return a set; before ``resolve`` it may have a ``Same``."""
        return self._sets[value]

    def object_of(self, members: Iterable[Member]) -> Object:
        """Return an object with these members, in order."""
        found = tuple(members)
        self._spend(1 + len(found))
        if found not in self._objects:
            self._spend(KEEPING * len(found))
            self._objects[found] = len(self.objects)
            self.objects.append(found)
        return Object(self._objects[found])

    def resolve(self) -> None:
        """Replace each ``Same``, once all sets are known.

        Raises:
            SchemaError: a set is a part of itself.
        """
        same = {
            number: [each.value for each in found if isinstance(each, Same)]
            for number, found in enumerate(self._sets)
        }
        for number in _ordered(same):
            if not same[number]:
                continue
            found = set(self._sets[number])
            for other in same[number]:
                found.remove(Same(other))
            for other in same[number]:
                self._spend(KEEPING * len(self._sets[other]))
                found |= self._sets[other]
            self._sets[number] = frozenset(found)


def _ordered(same: dict[int, list[int]]) -> list[int]:
    """Return the numbers, each after those that it needs."""
    try:
        return list(TopologicalSorter(same).static_order())
    except CycleError:
        # llama.cpp refuses it too.
        raise SchemaError(SchemaFault.CIRCLE, keyword="$ref") from None


def merged(alternatives: Alternatives) -> Alternatives:
    """Return the same values as fewer alternatives, where some overlap.

    Less is permitted only where any value is one of them: those are nested less deep.
    """
    if alternatives >= ANYTHING:
        return ANYTHING
    if ANY_OBJECT in alternatives:
        alternatives = frozenset(
            each for each in alternatives if not isinstance(each, Object | Dictionary)
        ) | {ANY_OBJECT}
    numbers = [
        Numbers(low, high)
        for low, high in _joined(
            ((each.low, each.high) for each in alternatives if type(each) is Numbers),
            apart=0,
        )
    ]
    integers = [
        Integers(low, high)
        for low, high in _joined(
            (each.low, each.high) for each in alternatives if type(each) is Integers
        )
        if not any(_is_within(low, high, each) for each in numbers)
    ]
    texts = [
        Texts(low or 0, high)
        for low, high in _joined(
            (each.least, each.most) for each in alternatives if type(each) is Texts
        )
    ]
    others = (
        each
        for each in alternatives
        if not isinstance(each, Numbers | Integers | Texts | Array)
    )
    return frozenset((*numbers, *integers, *texts, *_arrays(alternatives), *others))


def _arrays(alternatives: Alternatives) -> Iterator[Array]:
    by_items: dict[int, list[tuple[int | None, int | None]]] = {}
    for each in alternatives:
        if type(each) is Array:
            by_items.setdefault(each.items, []).append((each.least, each.most))
    for items, lengths in by_items.items():
        for low, high in _joined(lengths):
            yield Array(items, low or 0, high)


def _joined(
    spans: Iterable[tuple[int | None, int | None]], *, apart: int = 1
) -> Iterator[tuple[int | None, int | None]]:
    """Yield spans that cover the same numbers, and neither overlap nor touch.

    Args:
        spans: first and last numbers; None: without an end.
        apart: how far the numbers lie apart.
    """
    low: float | None = None
    high: float = 0
    for begin, end in sorted(
        (
            -math.inf if begin is None else begin,
            math.inf if end is None else end,
        )
        for begin, end in spans
    ):
        if low is not None and begin <= high + apart:
            high = max(high, end)
            continue
        if low is not None:
            yield _ends(low, high)
        low, high = begin, end
    if low is not None:
        yield _ends(low, high)


def _ends(low: float, high: float) -> tuple[int | None, int | None]:
    return (
        None if low == -math.inf else int(low),
        None if high == math.inf else int(high),
    )


def _is_within(low: int | None, high: int | None, numbers: Numbers) -> bool:
    return (numbers.low is None or (low is not None and low >= numbers.low)) and (
        numbers.high is None or (high is not None and high <= numbers.high)
    )


def order(alternative: Alternative) -> tuple[str, ...]:
    """Return a key to sort alternatives by: sets have no order of their own."""
    fields = (str(getattr(alternative, name)) for name in alternative.__slots__)
    return type(alternative).__name__, *fields
