"""The judge of the networks, on packets that are made here."""

import base64
import struct
from ipaddress import ip_address
from urllib.parse import quote

import pytest
from netsep.judge import (
    SYN,
    TCP,
    Link,
    Packet,
    Rules,
    address_forms,
    every,
    forms_of,
    leaks,
    parse,
)

CANARY = "quixotic marmalade zeppelins"
NEAR, FAR, OTHER = map(ip_address, ("10.77.1.1", "10.77.1.2", "10.77.9.9"))
RULES = {
    Link.CLIENT: Rules(
        addresses=frozenset({NEAR, FAR}),
        opened=(NEAR, FAR, 80),
        secrets={"canary": every(forms_of(CANARY))},
    ),
    Link.ENCLAVE: Rules(
        addresses=frozenset({NEAR, FAR}),
        opened=(NEAR, FAR, 80),
        secrets={"address": every(address_forms(OTHER))},
    ),
}


def packet(payload: bytes, *, link: Link = Link.CLIENT, sequence: int = 0) -> Packet:
    return Packet(
        link=link,
        source=NEAR,
        target=FAR,
        protocol=TCP,
        ports=(9, 80),
        payload=payload,
        sequence=sequence,
    )


WRITTEN = {
    "text": CANARY.encode(),
    "utf-16": CANARY.encode("utf-16"),
    "utf-16, big-endian": CANARY.encode("utf-16-be"),
    "json": b"".join(b"\\u%04x" % ord(each) for each in CANARY),
    "percent": "".join(f"%{byte:02X}" for byte in CANARY.encode()).encode(),
    "hex": CANARY.encode().hex().encode(),
    **{
        f"base64, {before}": base64.b64encode(b"a" * before + f"{CANARY}?!".encode())
        for before in range(5)
    },
    "base64 of utf-16": base64.b64encode(f"a {CANARY} b".encode("utf-16-le")),
}


@pytest.mark.parametrize("form", WRITTEN)
def test_a_canary_is_seen_in_every_form(form: str) -> None:
    data = b"\x00\x01" + WRITTEN[form] + b"\xff"
    assert leaks([packet(data)], RULES) == ["client link: canary"]
    # In two packets, in another order, one of them twice.
    half = len(data) // 2
    split = [
        packet(data[half:], sequence=100 + half),
        packet(data[:half], sequence=100),
        packet(data[half:], sequence=100 + half),
    ]
    assert leaks(split, RULES) == ["client link: canary"]


@pytest.mark.parametrize("before", range(3))
def test_both_alphabets_of_base64_are_known(before: int) -> None:
    text = "why?>> so?~~ yes?>>"
    coded = base64.urlsafe_b64encode(b"a" * before + f"{text}!".encode())
    assert set(b"-_") & set(coded)
    assert any(form in coded for form in forms_of(text)["base64"])


def test_what_is_sealed_is_not_seen() -> None:
    assert leaks([packet(quote(CANARY)[::-1].encode())], RULES) == []
    assert leaks([packet(CANARY.encode(), link=Link.ENCLAVE)], RULES) == []


@pytest.mark.parametrize(
    "data",
    [
        b"X-Forwarded-For: 10.77.9.9\r\n",
        OTHER.packed,
        OTHER.packed.hex().encode(),
        base64.b64encode(b"for=10.77.9.9;"),
        "10.77.9.9".encode("utf-16-le"),
    ],
)
def test_an_address_is_seen_in_every_form(data: bytes) -> None:
    found = leaks([packet(b"\r\n" + data, link=Link.ENCLAVE)], RULES)
    assert found == ["enclave link: address"]


def frame(kind: int, body: bytes) -> bytes:
    return bytes(12) + struct.pack(">H", kind) + body


def tcp(flags: int, payload: bytes = b"") -> bytes:
    head = struct.pack(">HHIIBBHHH", 9, 80, 5, 0, 5 << 4, flags, 0, 0, 0)
    return head + payload


def ipv4(protocol: int, body: bytes, source: str = "10.77.1.1") -> bytes:
    addresses = ip_address(source).packed + FAR.packed
    head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(body), 0, 0, 64, protocol, 0)
    # Ethernet pads short frames.
    return frame(0x0800, head + addresses + body + bytes(6))


def test_a_frame_of_ipv4_is_read() -> None:
    found = parse(Link.CLIENT, ipv4(TCP, tcp(SYN, b"abc")))
    assert found is not None
    assert (found.source, found.target, found.ports) == (NEAR, FAR, (9, 80))
    assert (found.flags, found.sequence, found.payload) == (SYN, 5, b"abc")


def test_a_frame_of_ipv6_is_read() -> None:
    ends = [ip_address(each) for each in ("fd77:1::1", "fd77:1::2")]
    body = tcp(0, b"abc")
    head = struct.pack(">IHBB", 6 << 28, len(body), TCP, 64)
    data = frame(0x86DD, head + ends[0].packed + ends[1].packed + body)
    found = parse(Link.ENCLAVE, data)
    assert found is not None
    assert [found.source, found.target] == ends
    assert found.payload == b"abc"


@pytest.mark.parametrize(
    ("data", "finding"),
    [
        (ipv4(17, b"\x00" * 8), "client link: protocol 17"),
        (ipv4(TCP, tcp(0), source="10.77.9.9"), "client link: address 10.77.9.9"),
        (
            ipv4(TCP, tcp(SYN), source="10.77.9.9"),
            "client link: connection 10.77.9.9 to 10.77.1.2 port 80",
        ),
    ],
)
def test_what_has_no_place_on_a_link_is_seen(data: bytes, finding: str) -> None:
    found = parse(Link.CLIENT, data)
    assert found is not None
    assert finding in leaks([found], RULES)
    allowed = parse(Link.CLIENT, ipv4(TCP, tcp(SYN)))
    assert allowed is not None
    assert leaks([allowed], RULES) == []


def test_a_frame_of_another_kind_is_refused() -> None:
    assert parse(Link.CLIENT, frame(0x0806, bytes(28))) is None
    with pytest.raises(ValueError, match="0x88cc"):
        parse(Link.CLIENT, frame(0x88CC, bytes(20)))
