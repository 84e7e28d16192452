"""What llama.cpp holds while it reads a text by a grammar, counted without it.

It has a stack of places for each way in which the text can have come about, down to the
next character that each expects; equal stacks are one. A repetition is written out, as
one rule for each time that it may be missing.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from curtilage.inference.grammar import (
    Chain,
    Chars,
    Choice,
    Grammar,
    Node,
    Repeat,
    Rule,
    Text,
)

Ranges: TypeAlias = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Call:
    """A rule at a place of another one."""

    rule: str


Element: TypeAlias = Ranges | Call
Sequence: TypeAlias = tuple[Element, ...]
Stack: TypeAlias = tuple[tuple[Sequence, int], ...]
"""The last one is next: a sequence, and the place of the next element in it."""


class Stacks:
    """Reads texts.

    Args:
        grammar: pruned.
        root: what a whole text fulfils.
    """

    def __init__(self, grammar: Grammar, root: Rule) -> None:
        self._grammar = grammar
        self._rules: dict[str, list[Sequence]] = {}
        self._root = root

    def counts(self, text: str) -> Iterator[int]:
        """Yield the number of stacks before each character, and at the end."""
        return map(len, self._read(text))

    def permits(self, text: str) -> bool:
        """Whether the text fulfils the grammar."""
        *_, last = self._read(text)
        return () in last

    def _read(self, text: str) -> Iterator[dict[Stack, None]]:
        stacks = self._advanced((((Call(self._root.name),), 0),))
        yield stacks
        for character in text:
            found: dict[Stack, None] = {}
            for stack in stacks:
                if stack and _permits(stack[-1], ord(character)):
                    found |= self._advanced(_passed(stack))
            stacks = found
            yield stacks

    def _advanced(self, stack: Stack) -> dict[Stack, None]:
        """Return the stacks that this one becomes, each before a character."""
        found: dict[Stack, None] = {}
        seen = {stack}
        waiting = [stack]
        while waiting:
            stack = waiting.pop()
            if not stack or not isinstance(_next(stack[-1]), Call):
                found[stack] = None
                continue
            called = _next(stack[-1])
            assert isinstance(called, Call)
            rest = _passed(stack)
            for sequence in self._sequences(called.rule):
                following = (*rest, (sequence, 0)) if sequence else rest
                if following not in seen:
                    seen.add(following)
                    waiting.append(following)
        return found

    def _sequences(self, name: str) -> list[Sequence]:
        if name not in self._rules:
            self._rules[name] = self._options(self._grammar.rules[name])
        return self._rules[name]

    def _options(self, node: Node) -> list[Sequence]:
        if isinstance(node, Choice):
            return [tuple(self._elements(option)) for option in node.options]
        return [tuple(self._elements(node))]

    def _elements(self, node: Node) -> Iterator[Element]:
        match node:
            case Text():
                for character in node.text:
                    yield ((ord(character), ord(character)),)
            case Chars():
                yield node.ranges
            case Rule():
                yield Call(node.name)
            case Chain():
                for part in node.parts:
                    yield from self._elements(part)
            case Repeat():
                yield from self._repeated(node)
            case _:
                assert isinstance(node, Choice)
                yield self._group(self._options(node))

    def _repeated(self, node: Repeat) -> Iterator[Element]:
        body = tuple(self._elements(node.body))
        if not isinstance(node.body, Text | Chars | Rule):
            body = (self._group(self._options(node.body)),)
        for _ in range(node.least):
            yield from body
        if node.most is None:
            rest = self._group([])
            self._rules[rest.rule] = [(*body, rest), ()]
            yield rest
            return
        last: tuple[Element, ...] = ()
        for _ in range(node.most - node.least):
            last = (self._group([(*body, *last), ()]),)
        yield from last

    def _group(self, options: list[Sequence]) -> Call:
        name = f"group {len(self._rules)}"
        self._rules[name] = options
        return Call(name)


def _next(top: tuple[Sequence, int]) -> Element:
    return top[0][top[1]]


def _permits(top: tuple[Sequence, int], code: int) -> bool:
    element = _next(top)
    assert not isinstance(element, Call)
    return any(first <= code <= last for first, last in element)


def _passed(stack: Stack) -> Stack:
    """Return the stack behind its next element."""
    sequence, place = stack[-1]
    rest = stack[:-1]
    return (*rest, (sequence, place + 1)) if place + 1 < len(sequence) else rest
