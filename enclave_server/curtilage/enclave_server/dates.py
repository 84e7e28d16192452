"""Whether the date inside a request is today's; pure."""

from datetime import datetime, timedelta
from typing import Final

from curtilage.wire.dates import parse_date

SKEW: Final = timedelta(seconds=60)
"""How far a client's clock may be off, either way; as for attestation."""


def is_in_window(value: bytes, now: datetime) -> bool:
    """Tell whether ``value`` is a date at most ``SKEW`` away from ``now``.

    Whole seconds are compared, since the field has no others: what was written
    in time must not fall out because of our clock's fraction.
    """
    moment = parse_date(value)
    return moment is not None and abs(moment - now.replace(microsecond=0)) <= SKEW
