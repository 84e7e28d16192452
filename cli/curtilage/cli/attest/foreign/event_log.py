"""The event log of a dstack machine, and what RTMR3 makes of it.

Pure. A TDX machine extends a register with one digest after the other; who knows all
digests computes the same value. Only RTMR3 is replayed here: it has what dstack starts,
while firmware and kernel in the others are compared as registers (dstack's
documentation, "Attestation" and "Event log").
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from curtilage.attest.encoding.strict_json import malformed
from curtilage.cli.attest.foreign.published import mismatch
from curtilage.cli.attest.foreign.reader import (
    Members,
    listed,
    members_of,
    read_value,
)

MAX_EVENTS: Final = 1024
COMPOSE_HASH: Final = "compose-hash"
SYSTEM_READY: Final = "system-ready"

_RTMR: Final = 3
_DIGEST_BYTES: Final = 48
# dstack's own kind of event: the name and the payload are in its digest.
_RUNTIME: Final = 0x08000001
_CONFIG_ZEROS: Final = 15
_COMPOSE_CONFIG: Final = b"\x01"


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """The part of an event log that leads to RTMR3.

    Attributes:
        rtmr3: what the register holds after all events, lower-case hex.
        payloads: of dstack's own events until it was ready, by name.
    """

    rtmr3: str
    payloads: Mapping[str, bytes] = field(repr=False)


def read_log(value: object) -> Log:
    """Replay the events of RTMR3; ``value`` is an array, or a JSON text with one.

    Raises:
        RefusedError: ``malformed``, ``too_large``, or ``binding_mismatch``: an event
            has another digest than its name and payload.
    """
    if isinstance(value, str):
        value = read_value(value.encode("utf-8", "replace"), "event_log")
    register = bytes(_DIGEST_BYTES)
    payloads: dict[str, bytes] = {}
    ready = False
    for each in listed(value, "event_log", limit=MAX_EVENTS):
        event = members_of(each, "event_log")
        if event.value("imr") != _RTMR:
            continue
        digest = event.hexadecimal("digest", length=_DIGEST_BYTES)
        register = hashlib.sha384(register + digest).digest()
        # Once dstack is ready, the application may add events with any name.
        if ready or event.value("event_type") != _RUNTIME:
            continue
        name, payload = event.text("event"), event.hexadecimal("event_payload")
        if digest not in _digests(name, payload):
            raise mismatch("event_log: an event's digest is not that of its content")
        # With two, this program and another could each take one.
        if name in payloads:
            raise malformed("event_log: an event is repeated")
        payloads[name] = payload
        ready = name == SYSTEM_READY
    return Log(rtmr3=register.hex(), payloads=payloads)


def _digests(name: str, payload: bytes) -> Iterable[bytes]:
    """Return the digest of an event in the older form and in the newer."""
    older = _RUNTIME.to_bytes(4, "little") + b":" + name.encode() + b":" + payload
    newer = {"name": name, "payload": payload.hex(), "type": _RUNTIME}
    texts = (older, json.dumps(newer, sort_keys=True, separators=(",", ":")).encode())
    return tuple(hashlib.sha384(text).digest() for text in texts)


def compose_of(holder: Members) -> bytes:
    """Return the application's definition (``app_compose``), or b"".

    It is a member of the object itself, or of ``info`` or ``info.tcb_info``.

    Raises:
        RefusedError: ``malformed`` or ``too_large``.
    """
    places = [holder]
    if holder.has("info"):
        places.append(info := holder.child("info"))
        if info.has("tcb_info"):
            inner = info.value("tcb_info")
            if isinstance(inner, str):
                inner = read_value(inner.encode("utf-8", "replace"), "tcb_info")
            places.append(members_of(inner, "tcb_info"))
    found = {place.text("app_compose") for place in places if place.has("app_compose")}
    # The application is started from one text; of two, only one was hashed.
    if len(found) > 1:
        raise malformed("app_compose: two different texts")
    return "".join(found).encode()


def require_log(log: Log, registers: Mapping[str, str]) -> None:
    """Refuse a log that does not lead to the machine's RTMR3.

    Raises:
        RefusedError: ``binding_mismatch``.
    """
    if registers["rtmr3"] != log.rtmr3:
        raise mismatch("event_log: it does not lead to the quote's RTMR3")


def require_compose(compose: bytes, log: Log | None, config: str) -> bool:
    """Refuse an application's definition that is not the measured one.

    Args:
        compose: the text, or b"".
        log: the event log, or None.
        config: the quote's MRCONFIGID, hex.

    Returns:
        Whether something measured names the text.

    Raises:
        RefusedError: ``binding_mismatch``.
    """
    if not compose:
        return False
    digest = hashlib.sha256(compose).digest()
    named: list[bool] = []
    if log is not None and COMPOSE_HASH in log.payloads:
        named.append(log.payloads[COMPOSE_HASH] == digest)
    measured = bytes.fromhex(config)
    if measured.startswith(_COMPOSE_CONFIG):
        named.append(measured == _COMPOSE_CONFIG + digest + bytes(_CONFIG_ZEROS))
    # Every place that names it, so that no document gains by a second one.
    if not all(named):
        raise mismatch("app_compose: its digest is not the measured one")
    return bool(named)
