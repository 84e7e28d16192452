"""Which lines of an audit log may have been written in a span of time.

A line's time is what the machine's clock said, and whoever sets the clock back
writes lines that no span of the present holds. What a clock cannot move is a line's
place: whatever stands behind a line was written after it. So a span reaches by
position from the first line that is not older than its beginning to the last line
that is older than its end. Where the clock never went back, these are exactly the
lines whose times lie in it; where it did, also those that no time can place: at the
beginning, lines older than one before them, up to a line that shows that all was
before; at the end, lines younger than one behind them.
"""

from datetime import datetime

from curtilage.client.audit.record import Line, SegmentStart


class Span:
    """Follows a log, and tells of each line what is known of it so far.

    Args:
        since: the earliest time, aware, or None.
        until: the time before which, aware, or None.

    Attributes:
        begun: the line last shown may have been written at ``since`` or later. Where
            this ends again, all lines up to here were written before ``since``.
        reached_before: what was shown before the last line may have been written
            before ``until``: the last line is older than what seemed to be too late.
        reached: it was written before ``until``, and so was all before it. What has
            ``begun`` and stands behind the last such line lies outside.
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
        """Whether the span leaves out any time at all."""
        return self._since is not None or self._until is not None

    def see(self, line: Line) -> None:
        """Take the next line."""
        # A writer of before read the clock once more for the first line of a file,
        # and then wrote the record that the file was begun for with an older time.
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
        # The end, seen from the other side: what seemed too late was not, where a line
        # behind it is older.
        self.reached = self._is_before(line.time)
        if self.reached:
            self._ended = None
        elif self._ended is None:
            self._ended = line.time
        elif line.time < self._ended:
            self.reached_before, self._ended = True, line.time

    def holds(self, time: datetime) -> bool:
        """Tell whether a time lies in the span."""
        return self._is_after(time) and self._is_before(time)

    def _is_after(self, time: datetime) -> bool:
        return self._since is None or time >= self._since

    def _is_before(self, time: datetime) -> bool:
        return self._until is None or time < self._until
