"""Counts the questions of each application in a verified log.

Several records may be about one question; they share its id, and their attempts are
numbered from 1, so the first one counts.
"""

from collections import Counter, defaultdict
from typing import Final

from curtilage.client.audit.record import AuditRecord, Line, Outcome
from curtilage.client.audit.span import Span

FIRST_ATTEMPT: Final = 1
_OF_NO_QUESTION: Final = frozenset({Outcome.COVER, Outcome.CHALLENGE})
_QUESTIONS: Final = ""  # no outcome's name


class Usage:
    """Counts by application; pass it each verified line.

    Cover requests and challenges belong to no question, and are left out.

    Args:
        span: selects the records; no line was passed to it yet.
    """

    def __init__(self, span: Span) -> None:
        self._span = span
        # Counts of which it is only known with a later line whether they are in time.
        self._open: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._sure: defaultdict[str, Counter[str]] = defaultdict(Counter)

    def see(self, line: Line, data: bytes) -> None:
        """Count a line if it may be a record of the period."""
        del data
        self._span.see(line)
        if self._span.reached_before:
            self._take()
        if not self._span.begun:  # no line so far was in the period
            self._open.clear()
            self._sure.clear()
        elif isinstance(line, AuditRecord) and line.outcome not in _OF_NO_QUESTION:
            counts = self._open[line.application]
            counts[line.outcome.name.lower()] += 1
            counts[_QUESTIONS] += line.attempt == FIRST_ATTEMPT
        if self._span.reached:
            self._take()

    def _take(self) -> None:
        for name, counts in self._open.items():
            self._sure[name] += counts
        self._open.clear()

    def counted(self) -> dict[str, tuple[int, dict[str, int]]]:
        """Return for each application its questions, and its records by outcome.

        Sorted by name; the empty one is for questions that no gateway served.
        """
        return {
            name: (each.pop(_QUESTIONS, 0), dict(sorted(each.items())))
            for name, each in sorted((name, +one) for name, one in self._sure.items())
        }
