"""Reads what was captured on two links, and says what should not have been there.

Pure: frames in, sentences out. A sentence begins with the link's name and the kind of
the finding, so that a test of a mutant can tell whether the right one was found.
"""

import base64
import ipaddress
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

ETHERNET_BYTES = 14
IPV4, IPV6, ARP = 0x0800, 0x86DD, 0x0806
TCP, ICMPV6 = 6, 58
HOP_BY_HOP = 0
SYN, ACK = 0x02, 0x10
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class Link(StrEnum):
    """A link; each has the relay at one end."""

    CLIENT = "client link"
    ENCLAVE = "enclave link"


@dataclass(frozen=True, slots=True, kw_only=True)
class Packet:
    """One packet of IP.

    Attributes:
        link: where it was seen.
        source, target: its addresses.
        protocol: the number of what it carries.
        ports: of TCP: source and target.
        flags: of TCP.
        sequence: of TCP: the number of its first byte.
        payload: of TCP; of anything else all that follows the head of IP.
    """

    link: Link
    source: Address
    target: Address
    protocol: int
    payload: bytes = field(repr=False)
    ports: tuple[int, int] = (0, 0)
    flags: int = 0
    sequence: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What may be on a link.

    Attributes:
        addresses: at its two ends.
        opened: who may open connections, to which address and port.
        secrets: what must not be there in any form, by name.
    """

    addresses: frozenset[Address]
    opened: tuple[Address, Address, int]
    secrets: Mapping[str, Sequence[bytes]]


def parse(link: Link, frame: bytes) -> Packet | None:
    """Parse a frame of Ethernet; None: it carries no IP.

    Raises:
        ValueError: it carries something that is neither IP nor ARP.
    """
    (kind,) = struct.unpack_from(">H", frame, 12)
    rest = frame[ETHERNET_BYTES:]
    if kind == ARP:
        return None
    if kind == IPV4:
        head, total = (rest[0] & 0xF) * 4, struct.unpack_from(">H", rest, 2)[0]
        # A frame that was offloaded is longer than its head can say.
        body = rest[head : total or len(rest)]
        source: Address = ipaddress.IPv4Address(rest[12:16])
        target: Address = ipaddress.IPv4Address(rest[16:20])
        return _carried(link, source, target, rest[9], body)
    if kind == IPV6:
        length = struct.unpack_from(">H", rest, 4)[0]
        body = rest[40 : 40 + length] if length else rest[40:]
        source = ipaddress.IPv6Address(rest[8:24])
        target = ipaddress.IPv6Address(rest[24:40])
        protocol = rest[6]
        if protocol == HOP_BY_HOP:
            protocol, body = body[0], body[(body[1] + 1) * 8 :]
        return _carried(link, source, target, protocol, body)
    raise ValueError(f"a frame of kind {kind:#06x}")


def _carried(
    link: Link, source: Address, target: Address, protocol: int, body: bytes
) -> Packet:
    if protocol != TCP:
        return Packet(
            link=link, source=source, target=target, protocol=protocol, payload=body
        )
    *ports, sequence = struct.unpack_from(">HHI", body)
    return Packet(
        link=link,
        source=source,
        target=target,
        protocol=protocol,
        payload=body[(body[12] >> 4) * 4 :],
        ports=(ports[0], ports[1]),
        flags=body[13],
        sequence=sequence,
    )


def forms_of(text: str) -> dict[str, list[bytes]]:
    """Return the forms in which a text could be sent, each by its name."""
    data = text.encode()
    return {
        "text": [data],
        "utf-16": [text.encode("utf-16-le"), text.encode("utf-16-be")],
        "json": ["".join(f"\\u{ord(each):04x}" for each in text).encode()],
        "percent": ["".join(f"%{byte:02X}" for byte in data).encode()],
        "hex": [data.hex().encode(), data.hex().upper().encode()],
        "base64": [*_base64(data)],
        "base64 of utf-16": [*_base64(text.encode("utf-16-le"))],
    }


def address_forms(address: Address) -> dict[str, list[bytes]]:
    """Return the forms in which an address could be sent, each by its name."""
    forms = forms_of(str(address))
    forms["packed"] = [address.packed]
    forms["packed, hex"] = [address.packed.hex().encode()]
    return forms


def every(forms: Mapping[str, Sequence[bytes]]) -> list[bytes]:
    """Return all forms in one list."""
    return [each for several in forms.values() for each in several]


def _base64(data: bytes) -> Iterator[bytes]:
    """Yield what is common to all of base64 with these bytes at some place inside."""
    for before in range(3):
        coded = base64.b64encode(bytes(before) + data)
        # The first characters depend on what precedes, the last ones on what follows.
        start, end = -(-before * 4 // 3), len(bytes(before) + data) // 3 * 4
        inner = coded[start:end]
        yield inner
        yield inner.translate(bytes.maketrans(b"+/", b"-_"))


def streams(packets: Iterable[Packet]) -> dict[tuple[object, ...], bytes]:
    """Return what TCP carried, for each direction of each connection."""
    pieces: dict[tuple[object, ...], dict[int, bytes]] = {}
    for packet in packets:
        if packet.protocol == TCP and packet.payload:
            of = (packet.link, packet.source, packet.target, packet.ports)
            held = pieces.setdefault(of, {})
            # Sent again, it may be longer.
            if len(held.get(packet.sequence, b"")) < len(packet.payload):
                held[packet.sequence] = packet.payload
    return {
        of: b"".join(part for _, part in sorted(held.items()))
        for of, held in pieces.items()
    }


def leaks(packets: Sequence[Packet], rules: Mapping[Link, Rules]) -> list[str]:
    """Return everything that a link may not carry, a sentence each."""
    found: set[str] = set()
    for packet in packets:
        found.update(_of_packet(packet, rules[packet.link]))
    for (link, *_), data in streams(packets).items():
        assert isinstance(link, Link)
        found.update(_named(link, data, rules[link].secrets))
    return sorted(found)


def _of_packet(packet: Packet, rules: Rules) -> Iterator[str]:
    link = packet.link
    neighbours = packet.protocol == ICMPV6 and all(
        each.is_link_local
        or each.is_multicast
        or each.is_unspecified
        or each in rules.addresses
        for each in (packet.source, packet.target)
    )
    if neighbours:
        return
    if packet.protocol != TCP:
        yield f"{link}: protocol {packet.protocol}"
    for each in (packet.source, packet.target):
        if each not in rules.addresses:
            yield f"{link}: address {each}"
    opening = packet.flags & (SYN | ACK) == SYN
    if packet.protocol == TCP and opening:
        opened = (packet.source, packet.target, packet.ports[1])
        if opened != rules.opened:
            yield f"{link}: connection {opened[0]} to {opened[1]} port {opened[2]}"
    yield from _named(link, packet.payload, rules.secrets)


def _named(
    link: Link, data: bytes, secrets: Mapping[str, Sequence[bytes]]
) -> Iterator[str]:
    for name, forms in secrets.items():
        if any(form in data for form in forms):
            yield f"{link}: {name}"
