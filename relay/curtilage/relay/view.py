"""What a curious operator of the relay could see, for demonstrations only.

Writes one JSON line per exchange: addresses, names of fields, times, sizes and
the sealed octets themselves. The configuration refuses it outside development,
and without it nothing in the relay keeps any of this.
"""

import base64
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from typing_extensions import override

BANNER: Final = (
    "UNSAFE: this relay records what its operator can see of every request.\n"
    "For demonstrations only (environment = development). Records go to: "
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """The head of a request as it was received.

    Attributes:
        peer: the client's address.
        method: as sent.
        target: the request target as sent.
        field_names: names of the request's fields, in order.
    """

    peer: str
    method: str
    target: str
    field_names: tuple[str, ...]


class Sight:
    """What is seen of one exchange; this one looks away."""

    def request(self, piece: bytes) -> None:
        """See a piece of the request."""

    def answer(self, piece: bytes) -> None:
        """See a piece of the answer."""

    def end(self, status: int) -> None:
        """See the end; status 0 when no answer was finished."""


class UnsafeRecordView:
    """Appends what could be seen of each exchange to a file.

    Args:
        path: the file; made readable by its owner only.
        clock: unix seconds.
    """

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.time) -> None:
        path.touch(mode=0o600)
        self._file = path.open("a", encoding="utf-8")
        self._clock = clock

    def begin(self, outline: Outline) -> Sight:
        """Begin to look at one exchange."""
        return _Recorded(
            outline=outline, clock=self._clock, write=self._write, start=self._clock()
        )

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _write(self, line: str) -> None:
        self._file.write(line + "\n")
        self._file.flush()


@dataclass(slots=True, kw_only=True, repr=False)
class _Recorded(Sight):
    outline: Outline
    clock: Callable[[], float]
    write: Callable[[str], None]
    start: float
    first_byte: float | None = None
    request_body: bytearray = field(default_factory=bytearray)
    response_body: bytearray = field(default_factory=bytearray)
    pieces: list[int] = field(default_factory=list[int])

    @override
    def request(self, piece: bytes) -> None:
        self.request_body += piece

    @override
    def answer(self, piece: bytes) -> None:
        if self.first_byte is None:
            self.first_byte = self.clock()
        self.pieces.append(len(piece))
        self.response_body += piece

    @override
    def end(self, status: int) -> None:
        record = {
            "peer": self.outline.peer,
            "method": self.outline.method,
            "path": self.outline.target,
            "header_names": self.outline.field_names,
            "request_bytes": len(self.request_body),
            "request_body": base64.b64encode(self.request_body).decode(),
            "status": status,
            "response_bytes": len(self.response_body),
            "response_body": base64.b64encode(self.response_body).decode(),
            "response_pieces": self.pieces,
            "start": self.start,
            "first_byte": self.first_byte,
            "end": self.clock(),
        }
        self.write(json.dumps(record, separators=(",", ":")))
