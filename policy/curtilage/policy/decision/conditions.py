"""The expression language of ``when``: which findings together make a rule fire.

::

    any   = all ("|" all)*          one of them
    all   = item ("&" item)*        each of them
    item  = "(" any ")" | term
    term  = pattern [">=" number]   a finding of such a class, that sure

``&`` binds closer than ``|``. There is no negation, so an additional finding
never makes a condition false: a detector can only keep a query local.
An attacker who injects text into a query can therefore keep it local, but
can never cause it to be sent.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from curtilage.policy.decision.classes import expand

EXPRESSION_CHARS: Final = 4096  # a page of classes; more is unreadable in one rule
DEPTH: Final = 16  # far below Python's own limit, which would end in RecursionError
MAX_SCORE: Final = 100

Scores = Mapping[str, int]
"""The highest score of each class that is there."""

# A number has three digits at most and ends where it ends: ``>=1000`` is no ``>=100``
# with a 0 left over, and ``80th`` is no 80.
_TOKEN = re.compile(
    r"\s*(?:(?P<mark>>=|[&|()])|(?P<number>[0-9]{1,3}(?![0-9A-Za-z_]))"
    r"|(?P<pattern>[A-Za-z_][\w.*]*(?:\{[\w.*,\s]*\})?))"
)
# Operators of programming languages. Each gets its own message: "unexpected token"
# would make an author look for the right spelling of "not".
_NEGATIONS = frozenset({"not", "and", "or", "!", "-", "~"})


class Condition(Protocol):
    """A parsed expression."""

    @property
    def classes(self) -> frozenset[str]:
        """Every class that some part of the expression names."""
        ...

    def holds(self, scores: Scores) -> bool:
        """Return whether these classes, at these scores, fulfil it."""
        ...

    def matched(self, scores: Scores) -> frozenset[str]:
        """Return the classes that are there, named, and sure enough."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """One pattern: fulfilled by one class that is sure enough.

    Attributes:
        text: the term as it was written.
        minimums: the least score of each class that the pattern names.
        classes: the same classes, as a set.
    """

    text: str
    minimums: Mapping[str, int]
    classes: frozenset[str] = field(repr=False)

    def holds(self, scores: Scores) -> bool:
        """Return whether one of the classes was found with a sufficient score."""
        # Iterate over the few findings, not over the pattern's classes, of which there
        # may be fifty: this runs for every rule of every query.
        minimums = self.minimums
        for name, score in scores.items():
            if name in minimums and score >= minimums[name]:
                return True
        return False

    def matched(self, scores: Scores) -> frozenset[str]:
        """Return those of the classes that are there, sure enough."""
        here = self.classes.intersection(scores)
        return frozenset(name for name in here if scores[name] >= self.minimums[name])


@dataclass(frozen=True, slots=True, kw_only=True)
class AllOf:
    """Parts joined by ``&``."""

    parts: tuple[Condition, ...]
    classes: frozenset[str] = field(repr=False)

    def holds(self, scores: Scores) -> bool:
        """Return whether every part holds."""
        return all(part.holds(scores) for part in self.parts)

    def matched(self, scores: Scores) -> frozenset[str]:
        """Return what the parts match, together."""
        return _union(part.matched(scores) for part in self.parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnyOf:
    """Parts joined by ``|``."""

    parts: tuple[Condition, ...]
    classes: frozenset[str] = field(repr=False)

    def holds(self, scores: Scores) -> bool:
        """Return whether some part holds."""
        return any(part.holds(scores) for part in self.parts)

    def matched(self, scores: Scores) -> frozenset[str]:
        """Return what the parts match, together."""
        return _union(part.matched(scores) for part in self.parts)


def parse_condition(
    text: str,
    *,
    minimum_of: Callable[[str], int] = lambda _name: 0,
    own: frozenset[str] = frozenset(),
) -> Condition:
    """Parse one expression.

    Args:
        text: the expression, at most ``EXPRESSION_CHARS`` long.
        minimum_of: the least score of a class where the term says none.
        own: the classes of the policy's own detectors.

    Raises:
        ValueError: not an expression; the message says what, and at which
            character, counted from 1.
    """
    if len(text) > EXPRESSION_CHARS:
        raise ValueError(f"an expression has at most {EXPRESSION_CHARS} characters")
    parser = _Parser(tuple(_tokens(text)), minimum_of, own)
    condition = parser.any_of(depth=0)
    # Otherwise ``a b`` would be read as ``a``, and the second class be ignored.
    parser.expect_end()
    return condition


def joins(condition: Condition) -> bool:
    """Return whether some part needs two findings at once."""
    if isinstance(condition, AllOf):
        return True
    return isinstance(condition, AnyOf) and any(map(joins, condition.parts))


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    column: int


def _tokens(text: str) -> Iterator[_Token]:
    position = 0
    # Trailing spaces are valid, but no token matches them.
    end = len(text.rstrip())
    while position < end:
        match = _TOKEN.match(text, position)
        if match is None:
            rest = text[position:].lstrip()
            column = len(text) - len(rest) + 1
            if rest[0] in _NEGATIONS:
                raise ValueError(f"there is no negation, at character {column}")
            raise ValueError(f"cannot read {rest[0]!r}, at character {column}")
        kind = str(match.lastgroup)
        # People count columns from 1, and from the token, not from the space before.
        yield _Token(kind, match[kind], match.start(kind) + 1)
        position = match.end()
    # A token that nothing accepts, so that the parser never runs off the tuple.
    yield _Token("end", "", end + 1)


class _Parser:
    """Recursive descent over the tokens; depth is bounded."""

    def __init__(
        self,
        tokens: tuple[_Token, ...],
        minimum_of: Callable[[str], int],
        own: frozenset[str],
    ) -> None:
        self._tokens = tokens
        self._next = 0
        self._minimum_of = minimum_of
        self._own = own

    def any_of(self, depth: int) -> Condition:
        parts = [self._all_of(depth)]
        while self._accept("|"):
            parts.append(self._all_of(depth))
        # One part needs no wrapper; ``joins`` and words for people look at the type.
        if len(parts) == 1:
            return parts[0]
        return AnyOf(parts=tuple(parts), classes=_union(p.classes for p in parts))

    def expect_end(self) -> None:
        token = self._tokens[self._next]
        if token.kind != "end":
            raise _unexpected(token, "'&', '|' or the end")

    def _all_of(self, depth: int) -> Condition:
        parts = [self._item(depth)]
        while self._accept("&"):
            parts.append(self._item(depth))
        if len(parts) == 1:
            return parts[0]
        return AllOf(parts=tuple(parts), classes=_union(p.classes for p in parts))

    def _item(self, depth: int) -> Condition:
        if not self._accept("("):
            return self._term()
        # Before the descent: the depth of what is read bounds the stack.
        if depth == DEPTH:
            raise ValueError(f"parentheses nest at most {DEPTH} deep")
        inner = self.any_of(depth + 1)
        if not self._accept(")"):
            raise _unexpected(self._tokens[self._next], "')'")
        return inner

    def _term(self) -> Term:
        token = self._take("pattern", "a class")
        # ``not`` has the form of a class; said here, it gets the better sentence.
        if token.text in _NEGATIONS:
            raise _unexpected(token, "a class")
        try:
            classes = expand(token.text, own=self._own)
        except ValueError as error:
            raise ValueError(f"{error}, at character {token.column}") from None
        # Without a number each class has its own threshold: a pattern may name classes
        # of several kinds, and a topic needs another score than a card number.
        if not self._accept(">="):
            minimums = {name: self._minimum_of(name) for name in classes}
            return Term(text=token.text, minimums=minimums, classes=classes)
        number = self._take("number", f"a score from 1 to {MAX_SCORE}")
        least = int(number.text)
        # ``>=0`` would silently remove a class's threshold. An author who wants that
        # sets the threshold, where a reader of the policy looks for it.
        if not 1 <= least <= MAX_SCORE:
            raise _unexpected(number, f"a score from 1 to {MAX_SCORE}")
        return Term(
            text=f"{token.text}>={least}",
            minimums=dict.fromkeys(classes, least),
            classes=classes,
        )

    def _take(self, kind: str, expected: str) -> _Token:
        token = self._tokens[self._next]
        if token.kind != kind:
            raise _unexpected(token, expected)
        self._next += 1
        return token

    def _accept(self, mark: str) -> bool:
        token = self._tokens[self._next]
        if token.kind != "mark" or token.text != mark:
            return False
        self._next += 1
        return True


def _unexpected(token: _Token, expected: str) -> ValueError:
    if token.text in _NEGATIONS:
        return ValueError(
            f"words do not join classes: use '&' and '|'; there is no negation "
            f"(at character {token.column})"
        )
    found = repr(token.text) if token.text else "the end"
    return ValueError(
        f"expected {expected} but found {found}, at character {token.column}"
    )


def _union(sets: Iterator[frozenset[str]]) -> frozenset[str]:
    return frozenset[str]().union(*sets)
