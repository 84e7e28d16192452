"""Whether the date inside a request is today's; pure."""

from datetime import datetime

from curtilage.wire.dates import WINDOW, parse_date


def is_in_window(value: bytes, now: datetime) -> bool:
    """Tell whether ``value`` is a date at most ``WINDOW`` away from ``now``.

    Whole seconds are compared, since the field has no others: what was written
    in time must not fall out because of our clock's fraction.
    """
    moment = parse_date(value)
    return moment is not None and abs(moment - now.replace(microsecond=0)) <= WINDOW
