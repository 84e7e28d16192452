"""Prefilters: the words and the digits that a text needs for a pattern to match.

They are derived from the pattern, so there is no second list to maintain. A pattern
that cannot be analysed always runs. Findings are the same with and without prefilters:
only patterns that cannot match are skipped.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, cast

from curtilage.client.detection.detectors.patterns.re2 import ODD_CASE, WordSet

_MAX_WORDS: Final = 64
_MAX_RANGE: Final = 4
_MAX_REPEAT: Final = 2
_TELLING_CHARS: Final = 4  # longer words are not much rarer
_MIN_WORD_CHARS: Final = 2
_MAX_DIGITS: Final = 20
_ASCII: Final = 128
_MAX_GAP: Final = 8
_DIGIT = re.compile(r"\d")
_DIGIT_RUN = re.compile(rf"\d(?:\D{{0,{_MAX_GAP}}}\d)*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefilter:
    """What a text must contain.

    Attributes:
        digits: at least this many, of any script.
        run: this many with at most eight other characters between two of them.
        words: one of these, in either case; empty: no word is needed.
    """

    digits: int = 0
    run: int = 0
    words: frozenset[str] = frozenset()


OPEN: Final = Prefilter()
Node = tuple[object, object]
Nodes = Sequence[Node]


class _Parsed(Protocol):
    def getwidth(self) -> tuple[int, int]: ...


class _Parser(Protocol):
    def parse(self, pattern: str, flags: int) -> Nodes: ...


def prefilter_of(regex: str, *, flags: int = 0) -> Prefilter:
    """Return what a text needs for a pattern to match.

    Args:
        regex: in the syntax of ``re``.
        flags: of ``re``; case is always ignored here.
    """
    try:
        # Python's own parser; it is private, has no types, and may disappear one day.
        from re import _parser  # type: ignore[attr-defined] # noqa: PLC0415

        parser = cast("_Parser", _parser)
        nodes = parser.parse(regex, flags)
        words = _needed(nodes) or frozenset[str]()
        digits, run = _digits(nodes), _run(nodes)
    except (ImportError, re.error, ValueError, TypeError, RecursionError):
        return OPEN
    return Prefilter(digits=min(digits, _MAX_DIGITS), run=run, words=_shortest(words))


def prefilter_named_by(owner: object) -> Prefilter:
    """Return a detector's own prefilter; a detector without one always runs."""
    prefilter = getattr(owner, "prefilter", OPEN)
    return prefilter if isinstance(prefilter, Prefilter) else OPEN


def any_of(prefilters: Iterable[Prefilter]) -> Prefilter:
    """Return what a text needs for one of several patterns to match."""
    given = tuple(prefilters)
    if not given:
        return OPEN
    words = frozenset[str]()
    if all(each.words for each in given):
        words = _shortest(words.union(*(each.words for each in given)))
    return Prefilter(
        digits=min(each.digits for each in given),
        run=min(each.run for each in given),
        words=words,
    )


def _shortest(words: frozenset[str]) -> frozenset[str]:
    """Drop every word that contains another one, which is then found too."""
    return frozenset(
        word
        for word in words
        if not any(other != word and other in word for other in words)
    )


# --- reading a pattern ---------------------------------------------------------
# A node is an operation's name and its arguments, as in the parser of ``re``.
# ``_exact`` lists everything that a node can match, if that list is short.


def _needed(nodes: Nodes) -> frozenset[str] | None:
    """Return words of which every match contains one; None: none is known."""
    best: frozenset[str] | None = None
    run = frozenset({""})
    for node in nodes:
        exact = _exact(node)
        if exact is not None and len(run) * len(exact) <= _MAX_WORDS:
            run = frozenset(a + b for a in run for b in exact)
        else:
            best = _better(best, run)
            run = frozenset({""}) if exact is None else exact
        if exact is None or str(node[0]) == "ASSERT":
            best = _better(best, _needed_by(node))
    return _better(best, run)


def _needed_by(node: Node) -> frozenset[str] | None:
    kind, given = str(node[0]), node[1]
    if kind == "BRANCH":
        found = [_needed(each) for each in _branches(given)]
        known = [each for each in found if each is not None]
        whole = frozenset[str]().union(*known)
        return whole if len(known) == len(found) else None
    if kind in _REPEATS:
        least, _, inner = cast("tuple[int, object, Nodes]", given)
        return _needed(inner) if least > 0 else None
    inside = _inside(node)
    return None if inside is None else _needed(inside)


def _better(
    one: frozenset[str] | None, other: frozenset[str] | None
) -> frozenset[str] | None:
    if not other or min(map(len, other)) < 1:
        return one
    return other if one is None or _worth(other) > _worth(one) else one


def _worth(words: frozenset[str]) -> tuple[int, int]:
    return min(*map(len, words), _TELLING_CHARS), -len(words)


def _exact(node: Node) -> frozenset[str] | None:
    kind, given = str(node[0]), node[1]
    reader = _EXACT.get(kind)
    return None if reader is None else reader(given)


def _exact_nodes(nodes: Nodes) -> frozenset[str] | None:
    run = frozenset({""})
    for node in nodes:
        exact = _exact(node)
        if exact is None or len(run) * len(exact) > _MAX_WORDS:
            return None
        run = frozenset(a + b for a in run for b in exact)
    return run


def _exact_literal(given: object) -> frozenset[str] | None:
    code = cast("int", given)
    return frozenset({chr(code).lower()}) if code < _ASCII else None


def _exact_set(given: object) -> frozenset[str] | None:
    found: set[str] = set()
    for kind, value in cast("Nodes", given):
        if str(kind) == "LITERAL":
            first = last = cast("int", value)
        elif str(kind) == "RANGE":
            first, last = cast("tuple[int, int]", value)
        else:
            return None
        if last >= _ASCII or last - first > _MAX_RANGE:
            return None
        found |= {chr(code).lower() for code in range(first, last + 1)}
    return frozenset(found) if len(found) <= _MAX_RANGE else None


def _exact_branch(given: object) -> frozenset[str] | None:
    found: set[str] = set()
    for branch in _branches(given):
        exact = _exact_nodes(branch)
        if exact is None or len(found) + len(exact) > _MAX_WORDS:
            return None
        found |= exact
    return frozenset(found)


def _exact_repeat(given: object) -> frozenset[str] | None:
    least, most, inner = cast("tuple[int, int, Nodes]", given)
    exact = _exact_nodes(inner) if int(most) <= _MAX_REPEAT else None
    if exact is None or len(exact) ** int(most) > _MAX_WORDS:
        return None
    run, found = frozenset({""}), set[str]()
    for count in range(int(most) + 1):
        if count >= least:
            found |= run
        run = frozenset(a + b for a in run for b in exact)
    return frozenset(found)


def _nothing(given: object) -> frozenset[str]:
    """Return the single empty match of a node that takes no character."""
    del given
    return frozenset({""})


def _exact_group(given: object) -> frozenset[str] | None:
    return _exact_nodes(cast("tuple[object, object, object, Nodes]", given)[3])


_REPEATS: Final = frozenset({"MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"})
_EXACT: Final[dict[str, Callable[[object], frozenset[str] | None]]] = {
    "LITERAL": _exact_literal,
    "IN": _exact_set,
    "BRANCH": _exact_branch,
    "SUBPATTERN": _exact_group,
    "MAX_REPEAT": _exact_repeat,
    "MIN_REPEAT": _exact_repeat,
    "AT": _nothing,
    "ASSERT": _nothing,
    "ASSERT_NOT": _nothing,
}


def _branches(given: object) -> Sequence[Nodes]:
    return cast("tuple[object, Sequence[Nodes]]", given)[1]


def _inside(node: Node) -> Nodes | None:
    """Return the content of a group or a positive look-around."""
    kind, given = str(node[0]), node[1]
    if kind == "SUBPATTERN":
        return cast("tuple[object, object, object, Nodes]", given)[3]
    if kind == "ASSERT":
        return cast("tuple[object, Nodes]", given)[1]
    return None


def _digits(nodes: Nodes) -> int:
    """Return the least number of digits in any match, or ahead of it."""
    ahead = [_digits_of(node) for node in nodes if str(node[0]) == "ASSERT"]
    return max(_taken(nodes, _digits_of), *ahead, 0)


def _taken(nodes: Nodes, digits_of: Callable[[Node], int]) -> int:
    return sum(digits_of(node) for node in nodes if str(node[0]) != "ASSERT")


def _run(nodes: Nodes) -> int:
    """Return how many digits are close together in any match.

    All of them, if a match has room for only a few other characters.
    """
    taken = _taken(nodes, _inner_digits_of)
    _, widest = cast("_Parsed", nodes).getwidth()
    return min(taken, _MAX_DIGITS) if widest - taken <= _MAX_GAP else 0


def _digits_of(node: Node) -> int:
    return _counted(node, _digits)


def _inner_digits_of(node: Node) -> int:
    """Return the digits of a node that are part of the match itself."""
    return _counted(node, lambda nodes: _taken(nodes, _inner_digits_of))


def _counted(node: Node, count: Callable[[Nodes], int]) -> int:
    kind, given = str(node[0]), node[1]
    if kind == "LITERAL":
        return int(_is_digit_code(cast("int", given)))
    if kind == "IN":
        return int(all(_is_digit_item(each) for each in cast("Nodes", given)))
    if kind == "BRANCH":
        return min(count(each) for each in _branches(given))
    if kind in _REPEATS:
        least, _, inner = cast("tuple[int, object, Nodes]", given)
        return min(least, _MAX_DIGITS) * count(inner)
    inside = _inside(node)
    return 0 if inside is None else count(inside)


def _is_digit_item(node: Node) -> bool:
    kind, given = str(node[0]), node[1]
    if kind == "CATEGORY":
        return str(given) == "CATEGORY_DIGIT"
    if kind == "RANGE":
        return all(map(_is_digit_code, cast("tuple[int, int]", given)))
    return kind == "LITERAL" and _is_digit_code(cast("int", given))


def _is_digit_code(code: int) -> bool:
    return ord("0") <= code <= ord("9")


# --- many prefilters, one pass over the text -----------------------------------------


class Prefilters:
    """Checks which of many prefilters a text passes, in the given order."""

    def __init__(self, prefilters: Sequence[Prefilter]) -> None:
        bits = [1 << at for at in range(len(prefilters))]
        self._open = sum(
            bit
            for bit, prefilter in zip(bits, prefilters, strict=True)
            if not _words(prefilter)
        )
        masks: dict[str, int] = {}
        for bit, prefilter in zip(bits, prefilters, strict=True):
            for word in _words(prefilter):
                masks[word] = masks.get(word, 0) | bit
        words = sorted(masks)
        self._masks = [masks[word] for word in words]
        self._by_digits = [
            sum(
                bit
                for bit, prefilter in zip(bits, prefilters, strict=True)
                if prefilter.digits <= n
            )
            for n in range(_MAX_DIGITS + 1)
        ]
        self._by_run = [
            sum(
                bit
                for bit, prefilter in zip(bits, prefilters, strict=True)
                if prefilter.run <= n
            )
            for n in range(_MAX_DIGITS + 1)
        ]
        self._words = _word_set(words) if words else None

    def passed(self, text: str) -> int:
        """Return the prefilters that a text passes: bit *n* for the one at *n*."""
        count = min(len(_DIGIT.findall(text)), _MAX_DIGITS)
        enough = self._by_digits[count]
        enough &= self._by_run[min(longest_run(text), _MAX_DIGITS) if count else 0]
        mask = self._open
        found = self._found(text)
        if found is None:
            return enough
        for index in found:
            mask |= self._masks[index]
        return mask & enough

    def _found(self, text: str) -> list[int] | None:
        if self._words is None or (not text.isascii() and ODD_CASE.search(text)):
            return None
        return self._words.found(text)


def longest_run(text: str) -> int:
    """Return the number of digits in the longest run; 0 if there is none."""
    runs = _DIGIT_RUN.findall(text)
    return max(len(_DIGIT.findall(run)) for run in runs) if runs else 0


def _words(prefilter: Prefilter) -> frozenset[str]:
    """Return a prefilter's words, unless one is so short that every text has it."""
    common = any(
        len(word) < _MIN_WORD_CHARS and _is_common(word) for word in prefilter.words
    )
    return frozenset() if common else prefilter.words


def _is_common(char: str) -> bool:
    return char.isalnum() or char.isspace()


def _word_set(words: Sequence[str]) -> WordSet | None:
    """Return the words, prepared for the search; None: the library is missing."""
    try:
        return WordSet(words)
    except ImportError:
        return None


def positions(mask: int) -> Iterator[int]:
    """Yield the indices of the set bits, lowest first."""
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest
