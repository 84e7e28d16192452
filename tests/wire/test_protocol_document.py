"""The numbers of docs/protocol.md are those of the code."""

import re
from pathlib import Path

import pytest

from curtilage.attest import verify
from curtilage.wire.bhttp import DEFAULT_LIMITS
from curtilage.wire.frames import answer_bytes
from curtilage.wire.hpke.suite import (
    AEAD_AES_128_GCM,
    KEM_X25519,
    KEM_XWING,
    SUITES,
    Suite,
)
from curtilage.wire.padding import SIZE_CLASSES, capacity
from curtilage.wire.shaping import PADDED

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "protocol.md"
TEXT = DOCUMENT.read_text("utf-8")
NUMBERS = re.compile(r"[0-9][0-9,]*(?:\.[0-9]+)?")


def rows(columns: int) -> list[list[float]]:
    """Return every table row of nothing but so many numbers."""
    found: list[list[float]] = []
    for line in TEXT.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == columns and all(map(NUMBERS.fullmatch, cells)):
            found.append([float(cell.replace(",", "")) for cell in cells])
    return found


def suite(kem_id: int) -> Suite:
    return Suite(kem_id=kem_id, kdf_id=1, aead_id=AEAD_AES_128_GCM)


def test_size_classes() -> None:
    wide, narrow = suite(KEM_XWING), suite(KEM_X25519)
    expected: list[list[float]] = []
    for size in SIZE_CLASSES:
        room, small = capacity(wide, size), capacity(narrow, size)
        full = room // 16384
        rest = (room - full * 16384, small - full * 16384)
        expected.append([size, full, room, rest[0], small, rest[1]])
    assert rows(6) == expected


def test_buckets() -> None:
    seconds = PADDED.period_ms / 1000
    expected = [
        [
            bucket,
            PADDED.frames_of(bucket),
            pytest.approx(PADDED.frames_of(bucket) * seconds),
            answer_bytes(PADDED, suite(KEM_XWING), bucket),
        ]
        for bucket in range(PADDED.buckets)
    ]
    assert rows(4) == expected
    assert f"`{PADDED.encode().hex()}`" in TEXT


@pytest.mark.parametrize("one", SUITES, ids=str)
def test_suites(one: Suite) -> None:
    length = max(one.nn, one.nk)
    sizes = [one.npk, one.nenc, one.nk, one.nn, length]
    row = re.search(
        rf"^\| 0x{one.kem_id:04x} [^|]*\| 0x{one.kdf_id:04x} [^|]*"
        rf"\| 0x{one.aead_id:04x} [^|]*\| {' . '.join(map(str, sizes))} \|$",
        TEXT,
        re.MULTILINE,
    )
    assert row is not None


def test_limits() -> None:
    limits = DEFAULT_LIMITS
    for name, value in (
        (
            "method, scheme, authority, path, each",
            f"{limits.max_control_bytes >> 10} KiB",
        ),
        ("lines in a field section", f"{limits.max_fields}"),
        ("octets in a field section", f"{limits.max_section_bytes >> 10} KiB"),
        ("interim responses", f"{limits.max_informational}"),
        ("content", f"{limits.max_content_bytes >> 20} MiB"),
        ("content chunks", f"{limits.max_content_chunks:,}"),
        ("padding", f"{limits.max_padding_bytes >> 20} MiB"),
        ("message", f"{limits.max_message_bytes >> 20} MiB"),
    ):
        assert f"| {name} | {value} |\n" in TEXT


def test_the_steps_of_verification_are_those_of_the_verifier() -> None:
    """The same number, order and names; the words behind them may differ."""
    assert verify.__doc__ is not None
    steps = re.findall(r"^    ([0-9]+)\. ([^:\n]+):", verify.__doc__, re.MULTILINE)
    part = TEXT.partition("### The evidence bundle")[2].partition("\n### ")[0]
    documented = re.findall(
        r"^([0-9]+)\. ([A-Z][^:(\n]+?)(?: \([^)]*\))?:", part, re.MULTILINE
    )
    assert len(steps) == 18
    assert [(number, name.lower()) for number, name in documented] == [
        (number, name.lower()) for number, name in steps
    ]
