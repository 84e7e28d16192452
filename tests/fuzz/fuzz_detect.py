"""Invariant: any text gives spans within it, never an error, never its words.

Run ``python tests/fuzz/fuzz_detect.py --seconds 60``. Inputs are texts glued
from fragments of identifiers, encodings and noise, and a worker's frames, drawn
from a seed that a failure prints; ``--seed`` runs the same inputs again.
"""

import io
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fuzz.common import Source, run

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


def make(source: Source) -> bytes:
    """Draw a text; lone surrogates are among what it may hold."""
    return make_text(source).encode("utf-8", "surrogatepass")


def check(data: bytes, source: Source) -> None:
    """Try the text, then a worker's frame."""
    check_text(data.decode("utf-8", "surrogatepass"))
    check_bytes(make_frame(source))


if __name__ == "__main__":
    sys.exit(run("fuzz_detect", check, make))
