"""Context-free grammars, and their text in llama.cpp's notation. Pure.

A grammar is built of a few kinds of nodes, so that what it permits can be examined
before the library sees it: llama.cpp refuses some grammars without a reason, and ends
the program over others.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from typing_extensions import override

from curtilage.inference.errors import SchemaError, SchemaFault

MAX_REPEATS: Final = 2000
"""llama.cpp refuses more."""
MAX_ALL_REPEATS: Final = 20_000
"""Of all schemas of a request: the library writes each repetition out, and takes 6 ms
and 0.2 MB for 1,000."""
MAX_RULES: Final = 20_000
"""Of one grammar. More would not fit into the text that the library is given."""
MAX_STEPS: Final = 2_000_000
"""Of the conversion of all schemas of a request, in steps of about a microsecond."""
_STEPS_A_LOOK: Final = 5000

LAST_CHARACTER: Final = 0x10FFFF
_ESCAPES: Final = {2: "x", 4: "u", 8: "U"}
"""Of characters, by the digits that follow."""


class Node(Protocol):
    """A part of a grammar; permits some texts."""

    __slots__ = ()

    def is_finite(self, finite: set[str]) -> bool:
        """Whether it permits a text that ends, given the rules that do."""
        ...

    def rules(self) -> Iterator[str]:
        """Yield the names of all rules in it."""
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
    def rules(self) -> Iterator[str]:
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
    def rules(self) -> Iterator[str]:
        """None."""
        yield from ()

    @override
    def pruned(self, finite: set[str]) -> Node:
        """Itself."""
        return self

    @override
    def gbnf(self) -> str:
        """Write it as a class."""
        return f"[{''.join(map(_range_text, self.ranges))}]"


@dataclass(frozen=True, slots=True)
class Rule(Node):
    """What a rule of the grammar says."""

    name: str

    @override
    def is_finite(self, finite: set[str]) -> bool:
        """If the rule is."""
        return self.name in finite

    @override
    def rules(self) -> Iterator[str]:
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
    def rules(self) -> Iterator[str]:
        """Those of all parts."""
        for part in self.parts:
            yield from part.rules()

    @override
    def pruned(self, finite: set[str]) -> Node:
        """Prune each part."""
        if not self.is_finite(finite):
            return NOTHING
        return Chain(tuple(part.pruned(finite) for part in self.parts))

    @override
    def gbnf(self) -> str:
        """Write the parts one after the other."""
        return " ".join(_grouped(part, Choice) for part in self.parts)


@dataclass(frozen=True, slots=True)
class Choice(Node):
    """One of these; without any it permits nothing."""

    options: tuple[Node, ...]

    @override
    def is_finite(self, finite: set[str]) -> bool:
        """If one option is."""
        return any(option.is_finite(finite) for option in self.options)

    @override
    def rules(self) -> Iterator[str]:
        """Those of all options."""
        for option in self.options:
            yield from option.rules()

    @override
    def pruned(self, finite: set[str]) -> Node:
        """Prune each option, and leave out those of which nothing is left."""
        pruned = (option.pruned(finite) for option in self.options)
        return Choice(tuple(option for option in pruned if option != NOTHING))

    @override
    def gbnf(self) -> str:
        """Write the options side by side."""
        return "|".join(option.gbnf() for option in self.options)


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
    def rules(self) -> Iterator[str]:
        """Those of the body."""
        yield from self.body.rules()

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
        body = _grouped(self.body, Choice, Chain, Repeat)
        return f"{body}{{{self.least},{most}}}"


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


def never() -> bool:
    """Return False."""
    return False


class Grammar:
    """Rules that refer to each other by name.

    Args:
        expired: whether the time for the conversion is over; asked now and then.

    Attributes:
        rules: by their names.
        repeats: the sum of all numbers of repetitions; what adds them bounds it.
        written: the sum of those that are in rules.
        bounds: the number of bounds of numbers; as ``repeats``.
        steps: the work so far; see ``spend``.
        stacks: how many places of the grammar the library follows at once, at most.
    """

    def __init__(self, *, expired: Callable[[], bool] = never) -> None:
        self.rules: dict[str, Node] = {}
        self.repeats = self.written = 0
        self.bounds = 0
        self.stacks = 0
        self._expired = expired
        self.steps = self._look = 0
        self._made: dict[Node, Rule] = {}
        self._common: dict[str, Rule] = {}
        self._new: list[str] = []
        self._finite = set[str]()

    def spend(self, steps: int = 1) -> None:
        """Count the work of a conversion.

        Raises:
            SchemaError: it is too much, or the time is over.
        """
        self.steps += steps
        if self.steps > MAX_STEPS:
            raise SchemaError(SchemaFault.LONG)
        if self.steps >= self._look:
            self._look = self.steps + _STEPS_A_LOOK
            if self._expired():
                raise SchemaError(SchemaFault.LONG)

    def reserve(self) -> Rule:
        """Return a new rule, to be defined later: it may refer to itself.

        Raises:
            SchemaError: there are too many.
        """
        self.spend()
        if len(self.rules) >= MAX_RULES:
            raise SchemaError(SchemaFault.GRAMMAR, most=MAX_RULES)
        rule = Rule(f"r{len(self.rules)}")
        self.rules[rule.name] = NOTHING
        self._new.append(rule.name)
        return rule

    def define(self, rule: Rule, node: Node) -> Rule:
        """Say what a reserved rule permits; return the rule."""
        self.rules[rule.name] = node
        return rule

    def add(self, node: Node) -> Rule:
        """Return a rule that permits what the node does: one for equal nodes.

        Where two options begin alike the library follows both.

        Raises:
            SchemaError: there are too many.
        """
        if isinstance(node, Rule):
            return node
        self.spend()
        if node not in self._made:
            self._made[node] = self.define(self.reserve(), node)
        return self._made[node]

    def common(self, name: str, make: Callable[[], Node]) -> Rule:
        """Return a rule that others have in common; it is made once."""
        if name not in self._common:
            self._common[name] = self.add(make())
        return self._common[name]

    def repeat(self, body: Node, least: int, most: int | None) -> Repeat:
        """Return a repetition of numbers that a schema gives.

        Raises:
            SchemaError: there are too many.
        """
        self.written += least if most is None else most
        if self.written > MAX_ALL_REPEATS:
            raise SchemaError(SchemaFault.REPEATS, most=MAX_ALL_REPEATS)
        return Repeat(body, least, most)

    def prune(self) -> None:
        """Remove each choice that no text fulfils, from the rules since the last time.

        Such a one would lead the model to a place where nothing is permitted any more.
        """
        users: dict[str, list[str]] = {}
        sizes: dict[str, int] = {}
        for name in self._new:
            used = set(self.rules[name].rules())
            sizes[name] = 1 + len(used)
            for each in used:
                users.setdefault(each, []).append(name)
        waiting = list(self._new)
        while waiting:
            name = waiting.pop()
            if name in self._finite:
                continue
            self.spend(sizes[name])
            if self.rules[name].is_finite(self._finite):
                self._finite.add(name)
                waiting += users.get(name, ())
        for name in self._new:
            self.rules[name] = self.rules[name].pruned(self._finite)
        self._new = []

    def permits_nothing(self, rule: Rule) -> bool:
        """Whether no text at all fulfils a rule; after ``prune``."""
        return self.rules[rule.name] == NOTHING

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


class _Place:
    """A place in a tree of texts: what may follow there."""

    __slots__ = ("end", "following", "node", "path")

    def __init__(self) -> None:
        self.end: Node | None = None
        self.following: dict[str, _Place] = {}
        # Its only way on, backwards, and what is at the end of that.
        self.path: list[str] = []
        self.node: Node = NOTHING


def prefix_tree(grammar: Grammar, ends: Mapping[str, Node]) -> tuple[Node, int]:
    """Return one of the texts, each with what follows it, and the tree's width.

    Texts that begin alike have their beginning in common: else the library would
    follow each of them. The width is how many ways on a place has, at most.

    Raises:
        SchemaError: it is too large.
    """
    root = _Place()
    places = [root]
    for text, end in ends.items():
        grammar.spend(1 + len(text))
        place = root
        for character in text:
            if character not in place.following:
                place.following[character] = _Place()
                places.append(place.following[character])
            place = place.following[character]
        place.end = end
    width = 1
    # Each after all that follow it.
    for place in reversed(places):
        options = [] if place.end is None else [place.end]
        for character, following in place.following.items():
            following.path.append(character)
            if len(place.following) == 1 and not options:
                # A list that no other place has: in all, one step for each character.
                place.path, place.node = following.path, following.node
                break
            options.append(_after(following))
        else:
            width = max(width, len(options))
            place.node = (
                options[0] if len(options) == 1 else grammar.add(choice(*options))
            )
    return _after(root), width


def _after(place: _Place) -> Node:
    text = Text("".join(reversed(place.path)))
    if place.node == EMPTY:
        return text
    return chain(text, place.node) if text.text else place.node


def _grouped(node: Node, *kinds: type[Node]) -> str:
    if isinstance(node, Choice) and len(node.options) == 1:
        # The library makes a rule of each group.
        return _grouped(node.options[0], *kinds)
    return f"({node.gbnf()})" if isinstance(node, kinds) else node.gbnf()


def _range_text(ends: tuple[int, int]) -> str:
    first, last = (_escaped(chr(code)) for code in ends)
    return first if first == last else f"{first}-{last}"


def _escaped(character: str) -> str:
    # Letters and digits as they are, all else by its number: no text of a caller's can
    # end the quotation.
    if character.isascii() and character.isalnum():
        return character
    code = ord(character)
    size = next(size for size in (2, 4, 8) if code < 16**size)
    return f"\\{_ESCAPES[size]}{code:0{size}X}"
