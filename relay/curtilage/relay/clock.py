"""The date as HTTP writes it: made once a second, not once an answer."""

import time
from email.utils import formatdate


class HTTPClock:
    """Tells the present second."""

    def __init__(self) -> None:
        self._second = 0
        self._text = ""

    def date(self) -> str:
        """Return an IMF-fixdate (RFC 9110, section 5.6.7)."""
        now = int(time.time())
        if now != self._second:
            self._second, self._text = now, formatdate(now, usegmt=True)
        return self._text
