"""What the operator of this hop could write down, written down.

For demonstrations: it shows that this hop sees what is asked, not who asks.
It holds sizes, times, the peer's address as seen and the outer field names;
of what was inside, two counts. Never content. Exists in development only; the
configuration refuses it elsewhere.
"""

import json
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Self


@dataclass(slots=True, kw_only=True)
class RecordView:
    """One exchange as this hop saw it; filled while it happens.

    Attributes:
        peer: the address of the next hop; ``unix`` for a UNIX socket.
        header_names: of the outer request, lower-case, in order.
        started: when its head had arrived.
        request_bytes: length of the outer body.
        response_bytes: length of the outer answer's body.
        status: of the outer answer; 0 when none was sent.
        inner_messages: how many turns were inside.
        inner_characters: how many characters they held in all.
    """

    peer: str
    header_names: tuple[str, ...]
    started: datetime
    request_bytes: int = 0
    response_bytes: int = 0
    status: int = 0
    inner_messages: int = field(default=0, repr=False)
    inner_characters: int = field(default=0, repr=False)

    def encode(self, ended: datetime) -> bytes:
        """Encode as one line of JSON."""
        duration = (ended - self.started).total_seconds()
        view = {
            "hop": "enclave",
            "started": self.started.isoformat(timespec="milliseconds"),
            "duration_ms": round(duration * 1000),
            "peer": self.peer,
            "header_names": list(self.header_names),
            "request_bytes": self.request_bytes,
            "response_bytes": self.response_bytes,
            "status": self.status,
            "inner_messages": self.inner_messages,
            "inner_characters": self.inner_characters,
        }
        return json.dumps(view, separators=(",", ":")).encode() + b"\n"


class Recorder:
    """Appends views to a file, each in one write."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.touch(mode=0o600)

    @classmethod
    def of(cls, path: Path | None) -> Self | None:
        """Return a recorder for ``path``, or None."""
        return None if path is None else cls(path)

    def append(self, view: RecordView, ended: datetime) -> None:
        """Write one line."""
        with self._path.open("ab", buffering=0) as file:
            file.write(view.encode(ended))
