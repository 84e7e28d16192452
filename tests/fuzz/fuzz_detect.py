"""Invariant: any text gives spans within it, never an error, never its words.

Run ``python tests/fuzz/fuzz_detect.py --seconds 60``. Inputs are texts glued
from fragments of identifiers, encodings and noise, and a worker's frames, drawn
from a seed that a failure prints; ``--seed`` runs the same inputs again.
"""

import argparse
import hashlib
import io
import secrets
import sys
import time
import traceback

from curtilage.client.detector_process import read_frame
from curtilage.client.findings import GarbageError, parse_findings
from curtilage.client.scan import own_equipment, scan
from curtilage.policy.findings import Where

EQUIPMENT = own_equipment()
PLACE = Where(message=0, role="user", json_path="content")
FRAME = b'[[0,"financial.pan","x",0,1,5,false,"raw"]]'
FRAGMENTS = (
    "my ", "ssn ", "536-22-1234", "4111 1111 1111 1111", "bob@corp.com", "password is ",
    "\u200b", "\u202e", "\ud800", "\x00", "&#98;", "%62", "\\u0062", "<b>", "**", "`",
    "Dr ", "John", "Krisztina", "o'Neil-", "five ", " at ", " dot ", "IBAN GB82", "://",
    "\uff11", "\u0661", "\u043e", "привет", "aGVsbG8gd29ybGQgaGVsbG8=", "\n", ". ",
    "4111\n1111", "\t\t\t", '", "', "\x1e", "\ufe0f", "😀", "\ufdfa", "SSN",
)  # fmt: skip


class Source:
    """Reproducible bytes and numbers: SHAKE-256 over the seed and a counter."""

    def __init__(self, seed: bytes, counter: int) -> None:
        self._stream = hashlib.shake_256(seed + counter.to_bytes(8, "big")).digest(4096)
        self._position = 0

    def octets(self, count: int) -> bytes:
        """Return the next bytes."""
        start = self._position % (len(self._stream) - count)
        self._position += count
        return self._stream[start : start + count]

    def below(self, bound: int) -> int:
        """Return a number from 0 up to a bound, which is not reached."""
        return int.from_bytes(self.octets(4), "big") % bound


def make_text(source: Source) -> str:
    """Return fragments and noise in any order, some of it long."""
    parts: list[str] = []
    for _ in range(source.below(40)):
        if source.below(4):
            parts.append(FRAGMENTS[source.below(len(FRAGMENTS))])
        else:
            parts.append(chr(source.below(0x11000)) * (1 + source.below(30)))
    return "".join(parts)


def make_frame(source: Source) -> bytes:
    """Return noise, or a true frame with some of its bytes replaced."""
    if source.below(2):
        return source.octets(source.below(60))
    frame = bytearray(FRAME)
    for _ in range(source.below(3)):
        frame[source.below(len(frame))] = source.below(256)
    return bytes(frame)


def check_text(text: str) -> None:
    """Fail when a detector of ours fails, or leaves the text's bounds."""
    (found,) = scan([text], EQUIPMENT)
    if any(span.data_class == "uncertain.error" for span in found):
        raise AssertionError(f"a detector failed on {text!r}")


def check_bytes(data: bytes) -> None:
    """Fail when bytes from a worker raise anything but a refusal."""
    try:
        frame = read_frame(io.BytesIO(len(data).to_bytes(4, "big") + data))
        parse_findings(frame, [PLACE])
    except (ValueError, GarbageError, RecursionError):
        return


def run(seconds: float, seed: bytes) -> int:
    """Try inputs until the time is over; return 1 at the first finding."""
    end, count = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        source = Source(seed, count)
        text, data = make_text(source), make_frame(source)
        try:
            check_text(text)
            check_bytes(data)
        except Exception:  # noqa: BLE001 - whatever escapes is the finding
            traceback.print_exc()
            sys.stderr.write(f"seed {seed.hex()} input {count}: {text!r} {data!r}\n")
            return 1
        count += 1
    sys.stdout.write(f"{count} inputs, seed {seed.hex()}: no finding\n")
    return 0


def main() -> int:
    """Return 1 only when something was found."""
    parser = argparse.ArgumentParser(description="Fuzz this project's own detectors.")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=bytes.fromhex, default=secrets.token_bytes(8))
    options = parser.parse_args()
    return run(options.seconds, options.seed)


if __name__ == "__main__":
    sys.exit(main())
