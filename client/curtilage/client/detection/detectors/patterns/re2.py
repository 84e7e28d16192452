"""Patterns in linear time for any text: the only module that imports google-re2.

It runs the patterns that a policy brings, and finds many words in one pass. It knows no
class and no policy. It is imported lazily: the extra is ``pii``.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol, cast

_SURROGATE = re.compile("[\ud800-\udfff]")
MAX_MEMORY_BYTES = 64 * 1024 * 1024  # of the automaton that searches for words
# Letters that match an ASCII letter in one engine and not in the other.
ODD_CASE = re.compile("[\u0130\u0131\u017f\u212a]")

# White space in ``regex`` and not in RE2.
ODD_SPACE = re.compile("[\x0b\x1c-\x1f]")
# Syntax that both accept with different meanings: ungreedy or Unicode, a repetition
# without a minimum, a fuzzy one, properties, quotes.
_READ_OTHERWISE = re.compile(r"\(\?[a-zA-Z-]*U|\{(?!\d+(?:,\d*)?\})|\\[pPCQEXz]")


class LinearError(ValueError):
    """A pattern is not valid in RE2, or too large; the message says no more."""


class _Match(Protocol):
    def span(self) -> tuple[int, int]: ...


class _Compiled(Protocol):
    def finditer(self, text: str) -> Iterator[_Match]: ...


class _Set(Protocol):
    def Add(self, pattern: str) -> int: ...  # noqa: N802 - the library's name

    def Compile(self) -> None: ...  # noqa: N802 - the library's name

    def Match(self, text: str) -> Sequence[int]: ...  # noqa: N802 - see above


class _Options(Protocol):
    case_sensitive: bool
    log_errors: bool
    max_mem: int
    never_capture: bool


class _SetMaker(Protocol):
    def SearchSet(self, options: _Options) -> _Set: ...  # noqa: N802 - see above


class _RE2(Protocol):
    error: type[Exception]
    Set: _SetMaker

    def Options(self) -> _Options: ...  # noqa: N802 - the library's name

    def compile(self, pattern: str, options: _Options) -> _Compiled: ...

    def escape(self, text: str) -> str: ...


def _library() -> _RE2:
    import re2  # noqa: PLC0415 # pyright: ignore[reportMissingTypeStubs]

    return cast("_RE2", re2)


def _options(library: _RE2) -> _Options:
    """Return options that never print a pattern: it may be the organisation's."""
    options = library.Options()
    options.log_errors = False
    options.never_capture = True
    return options


class LinearPattern:
    """One pattern in RE2's syntax."""

    def __init__(self, pattern: str) -> None:
        """Compile the pattern.

        Raises:
            LinearError: it is invalid, or matches the empty text.
        """
        library = _library()
        try:
            self._compiled = library.compile(pattern, _options(library))
        except (library.error, UnicodeEncodeError):
            raise LinearError(
                "a pattern is not in RE2's syntax, or too large"
            ) from None
        if any(True for _ in self._compiled.finditer("")):
            raise LinearError("a pattern matches the empty text") from None

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield the positions of its matches, except empty ones."""
        for match in self._compiled.finditer(encodable(text)):
            start, end = match.span()
            if start < end:
                yield start, end


def linear(pattern: str) -> LinearPattern | None:
    """Return a pattern of ``regex`` for RE2; None if RE2 has no equivalent.

    With the flags that Presidio uses. It is equivalent for ASCII texts without
    ``ODD_SPACE``: for other characters, the engines disagree on letters, digits and
    word ends.
    """
    if _READ_OTHERWISE.search(pattern):
        return None
    try:
        return LinearPattern(f"(?ims){pattern}")
    except LinearError:
        return None


class WordSet:
    """Many short texts that are searched in one pass, in either case."""

    def __init__(self, words: Iterable[str]) -> None:
        library = _library()
        options = _options(library)
        options.case_sensitive = False
        options.max_mem = MAX_MEMORY_BYTES
        self._set = library.Set.SearchSet(options)
        self._count = 0
        for word in words:
            self._set.Add(library.escape(word))
            self._count += 1
        # It matches every text: a result without it is a failed search.
        self._always = self._set.Add("")
        self._set.Compile()

    def found(self, text: str) -> list[int] | None:
        """Return the indices of the words in a text; None: the search failed."""
        found = [*self._set.Match(encodable(text))]
        if self._always not in found:
            return None
        found.remove(self._always)
        return found


def encodable(text: str) -> str:
    """Return a text of the same length without lone surrogates."""
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)
