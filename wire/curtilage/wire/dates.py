"""The one date format of HTTP that is written: IMF-fixdate (RFC 9110, 5.6.7).

Knows nothing of clocks. Who seals to us writes dates today, so the two obsolete
forms are no dates. Names of days and months are fixed words, whatever the
machine's language is.
"""

import re
from datetime import UTC, datetime, timedelta
from typing import Final

WINDOW: Final = timedelta(seconds=60)
"""Greatest difference of a request's date from the enclave's clock, either way."""

# Not ``strftime`` and ``strptime``: they speak the language of the machine's locale.
_DAYS: Final = (b"Mon", b"Tue", b"Wed", b"Thu", b"Fri", b"Sat", b"Sun")
_MONTHS: Final = (
    *(b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun"),
    *(b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"),
)
_FORM: Final = re.compile(
    rb"[A-Z][a-z]{2}, ([0-9]{2}) ([A-Z][a-z]{2}) ([0-9]{4})"
    rb" ([0-9]{2}):([0-9]{2}):([0-9]{2}) GMT"
)


def format_date(moment: datetime) -> bytes:
    """Write an aware time, in UTC and cut to the second.

    Raises:
        ValueError: it says nothing of its time zone.
    """
    if moment.tzinfo is None:
        raise ValueError("a date needs a time zone")
    utc = moment.astimezone(UTC)
    # Whole seconds, truncated: a finer clock would distinguish clients (RFC 9458,
    # section 6.8).
    return b"%s, %02d %s %04d %02d:%02d:%02d GMT" % (
        _DAYS[utc.weekday()],
        utc.day,
        _MONTHS[utc.month - 1],
        utc.year,
        utc.hour,
        utc.minute,
        utc.second,
    )


def parse_date(value: bytes) -> datetime | None:
    """Read a date; None for anything but one that ``format_date`` writes."""
    # From a stranger, so every way in which it is no date is one answer. The two
    # obsolete forms of RFC 9110, section 5.6.7, lack the century or the time zone.
    match = _FORM.fullmatch(value)
    if match is None or match[2] not in _MONTHS:
        return None
    year, hour, minute, second = (int(match[number]) for number in (3, 4, 5, 6))
    month = _MONTHS.index(match[2]) + 1
    try:
        moment = datetime(year, month, int(match[1]), hour, minute, second, tzinfo=UTC)
    except ValueError:
        # The 30th of February; a leap second, too, which ``datetime`` does not know.
        return None
    # Written again, which finds a day of the week that is not the date's.
    return moment if format_date(moment) == value else None
