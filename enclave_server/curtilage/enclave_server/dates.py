"""The Date field inside a request, in its one form; pure.

IMF-fixdate only (RFC 9110, section 5.6.7): who seals to us writes dates today,
so the two obsolete forms are refused like any other text.
"""

import re
from datetime import UTC, datetime, timedelta
from typing import Final

SKEW: Final = timedelta(seconds=60)
"""How far a client's clock may be off, either way; as for attestation."""

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
    """Format an aware UTC time as IMF-fixdate; fractions are dropped."""
    return b"%s, %02d %s %04d %02d:%02d:%02d GMT" % (
        _DAYS[moment.weekday()],
        moment.day,
        _MONTHS[moment.month - 1],
        moment.year,
        moment.hour,
        moment.minute,
        moment.second,
    )


def parse_date(value: bytes) -> datetime | None:
    """Parse an IMF-fixdate; None for any other text, a wrong weekday included."""
    match = _FORM.fullmatch(value)
    if match is None or match[2] not in _MONTHS:
        return None
    year, hour, minute, second = (int(match[number]) for number in (3, 4, 5, 6))
    month = _MONTHS.index(match[2]) + 1
    try:
        moment = datetime(year, month, int(match[1]), hour, minute, second, tzinfo=UTC)
    except ValueError:
        return None
    return moment if format_date(moment) == value else None


def is_in_window(value: bytes, now: datetime) -> bool:
    """Tell whether ``value`` is a date at most ``SKEW`` away from ``now``.

    Whole seconds are compared, since the field has no others: what was written
    in time must not fall out because of our clock's fraction.
    """
    moment = parse_date(value)
    return moment is not None and abs(moment - now.replace(microsecond=0)) <= SKEW
