"""The one date format of HTTP that is written: IMF-fixdate (RFC 9110, 5.6.7).

Knows nothing of clocks. Names of days and months are fixed words, whatever the
machine's language is.
"""

import re
from datetime import UTC, datetime
from typing import Final

_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS: Final = (
    *("Jan", "Feb", "Mar", "Apr", "May", "Jun"),
    *("Jul", "Aug", "Sep", "Oct", "Nov", "Dec"),
)
_SHAPE: Final = re.compile(
    rb"(?P<name>[A-Z][a-z]{2}), (?P<day>[0-9]{2}) (?P<month>[A-Z][a-z]{2}) "
    rb"(?P<year>[0-9]{4}) (?P<hour>[0-9]{2}):(?P<minute>[0-9]{2}):(?P<second>[0-9]{2}) "
    rb"GMT"
)


def encode_date(moment: datetime) -> bytes:
    """Write an aware time, cut to the second.

    Raises:
        ValueError: it says nothing of its time zone.
    """
    if moment.tzinfo is None:
        raise ValueError("a date needs a time zone")
    utc = moment.astimezone(UTC)
    day, month = _DAYS[utc.weekday()], _MONTHS[utc.month - 1]
    return f"{day}, {utc:%d} {month} {utc.year:04} {utc:%H:%M:%S} GMT".encode()


def parse_date(value: bytes) -> datetime | None:
    """Read a date; None for anything but one that ``encode_date`` writes."""
    match = _SHAPE.fullmatch(value)
    if match is None:
        return None
    numbers = [int(match[name]) for name in ("day", "hour", "minute", "second")]
    day, hour, minute, second = numbers
    try:
        month = _MONTHS.index(match["month"].decode()) + 1
        moment = datetime(
            int(match["year"]), month, day, hour, minute, second, tzinfo=UTC
        )
    except ValueError:
        return None
    return moment if encode_date(moment) == value else None
