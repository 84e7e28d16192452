"""Selection of the lines of an audit log that may have been written in a period.

A line's time comes from the machine's clock, and setting the clock back produces lines
that no period of the present contains. A clock cannot change a line's position: a later
line was written later. So a period extends by position from the first line that is not
older than its beginning to the last line that is older than its end. If the clock never
went back, these are exactly the lines with times in the period. Otherwise lines are
included whose time is uncertain: at the beginning, lines older than a preceding one, up
to a line which proves that all before it were written earlier; at the end, lines
younger than a following one.
"""

from datetime import datetime

from curtilage.client.audit.record import Line, SegmentStart


class Span:
    """Follows a log; classifies each line by what is known so far.

    Args:
        since: the earliest time, aware, or None.
        until: the time before which, aware, or None.

    Attributes:
        begun: the last line may have been written at ``since`` or later. When this
            becomes false again, all lines so far were written before ``since``.
        reached_before: the lines before the last one may have been written before
            ``until``: the last line is older than those that seemed too late.
        reached: it was written before ``until``, and so were all before it. Lines after
            the last such line are outside.
        steps_back: how often a line was older than the one before it.
    """

    def __init__(
        self, *, since: datetime | None = None, until: datetime | None = None
    ) -> None:
        self._since = since
        self._until = until
        self._last: datetime | None = None
        self._peak: datetime | None = None
        self._for_sure = since is None
        self._ended: datetime | None = None  # of the first line that seems too late
        self.begun = since is None
        self.reached_before = False
        self.reached = until is None
        self.steps_back = 0

    @property
    def ends(self) -> bool:
        """Whether the period has a limit at all."""
        return self._since is not None or self._until is not None

    def see(self, line: Line) -> None:
        """Take the next line."""
        # An earlier version read the clock again for the first line of a file, and then
        # wrote the record that caused the new file with an older time.
        self.reached_before = False
        if isinstance(line, SegmentStart) and line.segment > 1:
            return
        self.steps_back += self._last is not None and line.time < self._last
        self._last = line.time
        self._for_sure = self._for_sure or self._is_after(line.time)
        # Older than a line before it: it may be of any time since then.
        dated_back = self._peak is not None and line.time < self._peak
        self.begun = self._for_sure or dated_back
        self._peak = self._peak if dated_back else line.time
        # The same for the end: lines that seemed too late were not, if a line after
        # them is older.
        self.reached = self._is_before(line.time)
        if self.reached:
            self._ended = None
        elif self._ended is None:
            self._ended = line.time
        elif line.time < self._ended:
            self.reached_before, self._ended = True, line.time

    def holds(self, time: datetime) -> bool:
        """Return whether a time is in the period."""
        return self._is_after(time) and self._is_before(time)

    def _is_after(self, time: datetime) -> bool:
        return self._since is None or time >= self._since

    def _is_before(self, time: datetime) -> bool:
        return self._until is None or time < self._until
