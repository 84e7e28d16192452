"""Context-free grammars, and their text in llama.cpp's notation. Pure.

A grammar is built of a few kinds of nodes, so that what it permits can be examined
before the library sees it: llama.cpp refuses some grammars without a reason, and ends
the program over others.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from typing import Final, Protocol

from typing_extensions import override

MAX_REPEATS: Final = 2000
"""llama.cpp refuses more."""

LAST_CHARACTER: Final = 0x10FFFF


class Node(Protocol):
    """A part of a grammar; permits some texts."""

    __slots__ = ()

    def is_finite(self, finite: set[str]) -> bool:
        """Whether it permits a text that ends, given the rules that do."""
        ...

    def is_nullable(self, nullable: set[str]) -> bool:
        """Whether it permits the empty text, given the rules that do."""
        ...

    def rules(self) -> Iterator[str]:
        """Yield the names of all rules in it."""
        ...

    def first_rules(self, nullable: set[str]) -> Iterator[str]:
        """Yield the names of the rules that can come before any character."""
        ...

    def pruned(self, finite: set[str]) -> "Node":
        """Return it without the choices that permit no text that ends."""
        ...

    def gbnf(self) -> str:
        """Return it in llama.cpp's notation."""
        ...


@dataclass(frozen=True, slots=True)
class Text(Node):
    """This text."""

    text: str = field(repr=False)

    @override
    def is_finite(self, finite: set[str]) -> bool:
        """Always."""
        return True

    @override
    def is_nullable(self, nullable: set[str]) -> bool:
        """If it is empty."""
        return not self.text

    @override
    def rules(self) -> Iterator[str]:
        """None."""
        yield from ()

    @override
    def first_rules(self, nullable: set[str]) -> Iterator[str]:
        """None."""
        yield from ()

    @override
    def pruned(self, finite: set[str]) -> Node:
        """Itself."""
        return self

    @override
    def gbnf(self) -> str:
        """Quote it."""
        return '"' + "".join(map(_escaped, self.text)) + '"'


@dataclass(frozen=True, slots=True)
class Chars(Node):
    """One character.

    Attributes:
        ranges: first and last code points of the permitted ones.
    """

    ranges: tuple[tuple[int, int], ...]

    @override
    def is_finite(self, finite: set[str]) -> bool:
        """Always."""
        return True

    @override
    def is_nullable(self, nullable: set[str]) -> bool:
        """Never."""
        return False

    @override
    def rules(self) -> Iterator[str]:
        """None."""
        yield from ()

    @override
    def first_rules(self, nullable: set[str]) -> Iterator[str]:
        """None."""
        yield from ()

    @override
    def pruned(self, finite: set[str]) -> Node:
        """Itself."""
        return self

    @override
    def gbnf(self) -> str:
        """Write it as a class."""
        return "[" + "".join(map(_range_text, self.ranges)) + "]"


@dataclass(frozen=True, slots=True)
class Rule(Node):
    """What a rule of the grammar says."""

    name: str

    @override
    def is_finite(self, finite: set[str]) -> bool:
        """If the rule is."""
        return self.name in finite

    @override
    def is_nullable(self, nullable: set[str]) -> bool:
        """If the rule is."""
        return self.name in nullable

    @override
    def rules(self) -> Iterator[str]:
        """Its own name."""
        yield self.name

    @override
    def first_rules(self, nullable: set[str]) -> Iterator[str]:
        """Its own name."""
        yield self.name

    @override
    def pruned(self, finite: set[str]) -> Node:
        """Itself, or nothing."""
        return self if self.name in finite else NOTHING

    @override
    def gbnf(self) -> str:
        """Name it."""
        return self.name


@dataclass(frozen=True, slots=True)
class Chain(Node):
    """All of these, in order."""

    parts: tuple[Node, ...]

    @override
    def is_finite(self, finite: set[str]) -> bool:
        """If each part is."""
        return all(part.is_finite(finite) for part in self.parts)

    @override
    def is_nullable(self, nullable: set[str]) -> bool:
        """If each part is."""
        return all(part.is_nullable(nullable) for part in self.parts)

    @override
    def rules(self) -> Iterator[str]:
        """Those of all parts."""
        for part in self.parts:
            yield from part.rules()

    @override
    def first_rules(self, nullable: set[str]) -> Iterator[str]:
        """Those of the parts up to the first that needs a character."""
        for part in self.parts:
            yield from part.first_rules(nullable)
            if not part.is_nullable(nullable):
                return

    @override
    def pruned(self, finite: set[str]) -> Node:
        """Prune each part."""
        if not self.is_finite(finite):
            return NOTHING
        return Chain(tuple(part.pruned(finite) for part in self.parts))

    @override
    def gbnf(self) -> str:
        """Write the parts one after the other."""
        return "(" + " ".join(part.gbnf() for part in self.parts) + ")"


@dataclass(frozen=True, slots=True)
class Choice(Node):
    """One of these; without any it permits nothing."""

    options: tuple[Node, ...]

    @override
    def is_finite(self, finite: set[str]) -> bool:
        """If one option is."""
        return any(option.is_finite(finite) for option in self.options)

    @override
    def is_nullable(self, nullable: set[str]) -> bool:
        """If one option is."""
        return any(option.is_nullable(nullable) for option in self.options)

    @override
    def rules(self) -> Iterator[str]:
        """Those of all options."""
        for option in self.options:
            yield from option.rules()

    @override
    def first_rules(self, nullable: set[str]) -> Iterator[str]:
        """Those of each option."""
        for option in self.options:
            yield from option.first_rules(nullable)

    @override
    def pruned(self, finite: set[str]) -> Node:
        """Prune each option, and leave out those of which nothing is left."""
        pruned = (option.pruned(finite) for option in self.options)
        return Choice(tuple(option for option in pruned if option != NOTHING))

    @override
    def gbnf(self) -> str:
        """Write the options side by side."""
        return "(" + " | ".join(option.gbnf() for option in self.options) + ")"


@dataclass(frozen=True, slots=True)
class Repeat(Node):
    """The same thing several times.

    Attributes:
        body: the thing.
        least: how often at least.
        most: how often at most; None: without end.
    """

    body: Node
    least: int = 0
    most: int | None = None

    @override
    def is_finite(self, finite: set[str]) -> bool:
        """If the body is, or may be missing."""
        return self.least == 0 or self.body.is_finite(finite)

    @override
    def is_nullable(self, nullable: set[str]) -> bool:
        """If the body is, or may be missing."""
        return self.least == 0 or self.body.is_nullable(nullable)

    @override
    def rules(self) -> Iterator[str]:
        """Those of the body."""
        yield from self.body.rules()

    @override
    def first_rules(self, nullable: set[str]) -> Iterator[str]:
        """Those of the body."""
        yield from self.body.first_rules(nullable)

    @override
    def pruned(self, finite: set[str]) -> Node:
        """Prune the body; if nothing of it is left, it is missing."""
        if self.body.is_finite(finite):
            return Repeat(self.body.pruned(finite), self.least, self.most)
        return EMPTY if self.least == 0 else NOTHING

    @override
    def gbnf(self) -> str:
        """Write the body and its numbers."""
        most = "" if self.most is None else str(self.most)
        return f"{self.body.gbnf()}{{{self.least},{most}}}"


EMPTY: Final = Text("")
NOTHING: Final = Choice(())
DIGIT: Final = Chars(((0x30, 0x39),))


def chain(*parts: Node) -> Chain:
    """Return all of the parts in order."""
    return Chain(parts)


def choice(*options: Node) -> Choice:
    """Return one of the options."""
    return Choice(options)


def optional(body: Node) -> Repeat:
    """Return the body or nothing."""
    return Repeat(body, 0, 1)


def any_except(*characters: str) -> Chars:
    """Return any one character but these."""
    ranges: list[tuple[int, int]] = []
    start = 1  # The library's texts end at a NUL.
    for code in sorted(map(ord, characters)):
        if start < code:
            ranges.append((start, code - 1))
        start = code + 1
    return Chars((*ranges, (start, LAST_CHARACTER)))


class Grammar:
    """Rules that refer to each other by name.

    Attributes:
        rules: by their names.
        repeats: the sum of all numbers of repetitions; what adds them bounds it.
        bounds: the number of bounds of numbers; likewise.
    """

    def __init__(self) -> None:
        self.rules: dict[str, Node] = {}
        self.repeats = 0
        self.bounds = 0
        self._common: dict[str, Rule] = {}
        self._new: list[str] = []
        self._finite = set[str]()
        self._nullable = set[str]()

    def reserve(self) -> Rule:
        """Return a new rule, to be defined later: it may refer to itself."""
        rule = Rule(f"r{len(self.rules)}")
        self.rules[rule.name] = NOTHING
        self._new.append(rule.name)
        return rule

    def define(self, rule: Rule, node: Node) -> Rule:
        """Say what a reserved rule permits; return the rule."""
        self.rules[rule.name] = node
        return rule

    def add(self, node: Node) -> Rule:
        """Return a new rule that permits what the node does."""
        return self.define(self.reserve(), node)

    def common(self, name: str, make: Callable[[], Node]) -> Rule:
        """Return a rule that others have in common; it is made once."""
        if name not in self._common:
            self._common[name] = self.add(make())
        return self._common[name]

    def prune(self) -> None:
        """Remove each choice that no text fulfils, from the rules since the last time.

        Such a one would lead the model to a place where nothing is permitted any more.
        """
        self._find_nullable()
        self._where(lambda node, found: node.is_finite(found), self._finite)
        for name in self._new:
            self.rules[name] = self.rules[name].pruned(self._finite)
        self._new = []

    def permits_nothing(self, rule: Rule) -> bool:
        """Whether no text at all fulfils a rule; after ``prune``."""
        return self.rules[rule.name] == NOTHING

    def recurses_at_once(self) -> bool:
        """Whether a rule since the last ``prune`` needs itself before any character.

        llama.cpp refuses that.
        """
        self._find_nullable()
        firsts = {
            name: set(self.rules[name].first_rules(self._nullable))
            for name in self._new
        }
        try:
            # In proportion to the rules: some schemas make one long chain of them.
            TopologicalSorter(firsts).prepare()
        except CycleError:
            return True
        return False

    def gbnf(self, root: Rule) -> str:
        """Return the rules that ``root`` needs, in llama.cpp's notation."""
        needed: dict[str, None] = {root.name: None}
        waiting = [root.name]
        while waiting:
            for name in self.rules[waiting.pop()].rules():
                if name not in needed:
                    needed[name] = None
                    waiting.append(name)
        lines = [f"root ::= {root.name}"]
        lines += [f"{name} ::= {self.rules[name].gbnf()}" for name in needed]
        return "\n".join(lines) + "\n"

    def _find_nullable(self) -> None:
        self._where(lambda node, found: node.is_nullable(found), self._nullable)

    def _where(self, holds: Callable[[Node, set[str]], bool], found: set[str]) -> None:
        """Add the new rules for which it holds, given those for which it does."""
        before = -1
        # Both ways in turn: rules mostly refer to later ones, some to earlier ones.
        while len(found) > before:
            before = len(found)
            for name in (*self._new, *reversed(self._new)):
                if name not in found and holds(self.rules[name], found):
                    found.add(name)


def _range_text(ends: tuple[int, int]) -> str:
    first, last = (f"\\U{code:08X}" for code in ends)
    return first if first == last else f"{first}-{last}"


def _escaped(character: str) -> str:
    # Letters and digits as they are, all else by its number: no text of a caller's can
    # end the quotation.
    if character.isascii() and character.isalnum():
        return character
    return f"\\U{ord(character):08X}"
