"""Random texts of a grammar, without the library."""

import math
from random import Random

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

_STEPS = 400


class Walk:
    """Writes texts that a grammar permits.

    Args:
        grammar: pruned.
    """

    def __init__(self, grammar: Grammar) -> None:
        self._grammar = grammar
        self._least: dict[str, float] = dict.fromkeys(grammar.rules, math.inf)
        before: dict[str, float] = {}
        while before != self._least:
            before = dict(self._least)
            for name, node in grammar.rules.items():
                self._least[name] = self._size(node)

    def text(self, node: Node, seed: int) -> str:
        """Return one text; soon the shortest way is taken everywhere."""
        self._random = Random(seed)  # noqa: S311 - of tests
        self._left = _STEPS
        return self._text(node)

    def _text(self, node: Node) -> str:
        self._left -= 1
        match node:
            case Text():
                return node.text
            case Chars():
                return chr(self._random.randint(*self._random.choice(node.ranges)))
            case Rule():
                return self._text(self._grammar.rules[node.name])
            case _:
                return "".join(self._text(part) for part in self._chosen(node))

    def _chosen(self, node: Node) -> list[Node]:
        if isinstance(node, Chain):
            return list(node.parts)
        if isinstance(node, Choice):
            options = [each for each in node.options if self._size(each) < math.inf]
            short = self._left < 0
            return [
                min(options, key=self._size) if short else self._random.choice(options)
            ]
        assert isinstance(node, Repeat)
        most = node.least + 3 if node.most is None else min(node.most, node.least + 3)
        if self._left < 0 or self._size(node.body) == math.inf:
            most = node.least
        return [node.body] * self._random.randint(node.least, most)

    def _size(self, node: Node) -> float:
        match node:
            case Text():
                return len(node.text)
            case Rule():
                return self._least[node.name] + 1
            case Chain():
                return sum(map(self._size, node.parts))
            case Choice():
                return min(map(self._size, node.options), default=math.inf)
            case Repeat():
                return node.least * self._size(node.body) if node.least else 0
            case _:
                return 1
