"""Parser of server-sent events, incremental, pure and bounded."""

import re
from collections.abc import Callable, Iterator

from curtilage.client.errors import ClientError


class EventParser:
    """Parses server-sent events' data as the HTML standard defines.

    Lines end with LF, CR LF or CR; a line that begins with a colon is a
    comment; fields other than ``data`` are ignored, and so is an event
    without data.

    Args:
        broken: creates the error for oversize events.
        most_bytes: largest event.
    """

    def __init__(self, broken: Callable[[], ClientError], *, most_bytes: int) -> None:
        self._broken = broken
        self._most_bytes = most_bytes
        self._begun = False
        self._line = bytearray()
        self._after_cr = False
        self._data: list[bytes] = []
        self._held_bytes = 0

    def push(self, data: bytes) -> Iterator[bytes]:
        """Yield the data of each event that ``data`` completes.

        Raises:
            ClientError: ``broken``: an event is too long.
        """
        # A chunk may end between CR and LF; the LF is then not a line of its own.
        if self._after_cr and data:
            data, self._after_cr = data.removeprefix(b"\n"), False
        # This line's final CR may be the first half of CR LF.
        self._after_cr = data.endswith(b"\r")
        *whole, rest = re.split(rb"\r\n|\r|\n", data)
        for end in whole:
            line = bytes(self._line) + end
            self._line.clear()
            yield from self._whole_line(line)
        self._line += rest
        # Also for an unfinished line: it would be buffered without limit.
        self._hold(len(self._line))

    def _whole_line(self, line: bytes) -> Iterator[bytes]:
        # A byte order mark may precede the first line, and only that.
        if not self._begun:
            self._begun, line = True, line.removeprefix(b"\xef\xbb\xbf")
        if not line:
            if self._data:
                yield b"\n".join(self._data)
            self._data, self._held_bytes = [], 0
            return
        name, _, value = line.partition(b":")
        # "event", "id" and "retry" are ignored: they name events or ask the reader to
        # reconnect, and neither is used here.
        if name == b"data":
            self._data.append(value.removeprefix(b" "))
            self._held_bytes += len(value) + 1
            self._hold(0)

    def _hold(self, more_bytes: int) -> None:
        if self._held_bytes + more_bytes > self._most_bytes:
            raise self._broken()
