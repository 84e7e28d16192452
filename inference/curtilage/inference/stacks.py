"""How many places of a grammar llama.cpp follows at once, at most. Pure.

The library reads a grammar with a stack for each way in which the text so far can have
come about, and for each way in which it can go on. It compares every token of the
vocabulary with each of them, and every new one with all others. Where alternatives
begin alike, both are followed, and within both what they contain: their numbers add up,
and nested in each other they multiply. So they are bounded before the library sees the
grammar: a bound of stacks, since one call must not take long, and one of ways that
begin alike, since within a token the library follows each sequence of them by itself.
"""

import heapq
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from curtilage.inference.errors import SchemaError, SchemaFault

MAX_ALIKE: Final = 64
"""Ways that begin alike. Three values within one token are 262,144 paths then, which
take some tens of milliseconds; no usual token has more."""
MAX_STACKS: Final = 1500
"""A list of 1,000 values that all begin differently fits: a vocabulary of 49,152 tokens
was compared with it in 0.45 s. An answer for which that happens often is ended
(``engine``)."""


class Held(NamedTuple):
    """What the library holds at once.

    Attributes:
        alike: ways that begin alike and are not told apart yet.
        stacks: all stacks, with those that wait for the next character.
    """

    alike: int
    stacks: int


Term: TypeAlias = Hashable
"""A ``Held``, or the name of a part of the grammar."""
Group: TypeAlias = Sequence[Term]
"""What is held together."""


@dataclass
class Openings:
    """What is held after each first character of some alternatives."""

    terms: dict[str, list[Term]] = field(default_factory=dict[str, "list[Term]"])

    def add(self, character: str, term: Term) -> None:
        """Add what one of them holds then."""
        self.terms.setdefault(character, []).append(term)

    def take(self, other: "Openings") -> None:
        """Add all that others hold."""
        for character, terms in other.terms.items():
            self.terms.setdefault(character, []).extend(terms)

    @property
    def groups(self) -> list[Group]:
        """What is held together."""
        return [tuple(terms) for terms in self.terms.values()]


class Stacks:
    """The parts of a grammar, and which of them are followed together.

    Args:
        spend: counts the work; raises if it is too much.
    """

    def __init__(self, spend: Callable[[int], None]) -> None:
        self._spend = spend
        self._groups: dict[Term, list[tuple[Term, ...]]] = {}

    def say(self, part: Term, *groups: Group) -> None:
        """Say that of a part one of these groups is held at a time."""
        self._spend(sum(map(len, groups)))
        self._groups[part] = list(dict.fromkeys(map(tuple, groups)))

    def most(self, root: Term) -> Held:
        """Return what is held at most.

        Raises:
            SchemaError: it exceeds a bound, or has none: parts that begin alike are
                within each other.
        """
        parts = self._ordered(root)
        places = {part: place for place, part in enumerate(parts)}
        found = dict.fromkeys(parts, Held(0, 0))
        users: dict[Term, list[int]] = {part: [] for part in parts}
        for place, part in enumerate(parts):
            for term in self._parts_of(part):
                users[term].append(place)
        # What grows makes those grow that it is in: without end, so up to a bound, if
        # it is in itself.
        waiting = list(places.values())
        queued = set(waiting)
        while waiting:
            place = heapq.heappop(waiting)
            queued.remove(place)
            part = parts[place]
            groups = self._groups[part]
            self._spend(1 + sum(map(len, groups)))
            held = _most([_sum(group, found) for group in groups])
            if held == found[part]:
                continue
            if held.alike > MAX_ALIKE or held.stacks > MAX_STACKS:
                most = MAX_ALIKE if held.alike > MAX_ALIKE else MAX_STACKS
                raise SchemaError(SchemaFault.ALIKE, most=most)
            found[part] = held
            for user in users[part]:
                if user not in queued:
                    queued.add(user)
                    heapq.heappush(waiting, user)
        return found[root]

    def _ordered(self, root: Term) -> list[Term]:
        """Return the parts that a part needs, each after those that it needs."""
        ordered: list[Term] = []
        seen = {root}
        waiting = [(root, iter(self._parts_of(root)))]
        while waiting:
            part, needed = waiting[-1]
            for term in needed:
                if term not in seen:
                    seen.add(term)
                    waiting.append((term, iter(self._parts_of(term))))
                    break
            else:
                ordered.append(part)
                waiting.pop()
        return ordered

    def _parts_of(self, part: Term) -> dict[Term, None]:
        groups = self._groups[part]
        return dict.fromkeys(
            term for group in groups for term in group if not isinstance(term, Held)
        )


def _sum(group: Group, found: dict[Term, Held]) -> Held:
    terms = [term if isinstance(term, Held) else found[term] for term in group]
    return Held(sum(each.alike for each in terms), sum(each.stacks for each in terms))


def _most(held: Sequence[Held]) -> Held:
    return Held(
        max((each.alike for each in held), default=0),
        max((each.stacks for each in held), default=0),
    )
