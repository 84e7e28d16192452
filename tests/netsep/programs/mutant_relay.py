"""A mutant: the relay, with the client's address in a field of what it sends on."""

import sys

from curtilage.relay import __main__ as program
from curtilage.relay import forward
from curtilage.relay.admission import AdmissionControl, ConnectionSlot
from curtilage.relay.forward import Passage

_admit = AdmissionControl.admit
_request_head = forward.request_head
_seen = [""]


def admit(self: AdmissionControl, address: str) -> ConnectionSlot:
    """Remember who connected last."""
    _seen[:] = [address]
    return _admit(self, address)


def request_head(passage: Passage, *, host: str, length: int | None) -> bytes:
    """Add the field."""
    head = _request_head(passage, host=host, length=length)
    return head.removesuffix(b"\r\n") + f"X-Forwarded-For: {_seen[0]}\r\n\r\n".encode()


AdmissionControl.admit = admit  # type: ignore[method-assign]
forward.request_head = request_head
if __name__ == "__main__":
    sys.exit(program.main())
