"""Invariant: any text gives spans within it, never an error, never its words.

Runs for a number of seconds (first argument, default 60) over our detectors,
the folding of texts, the worker's frames and bulk lines, with texts glued from
fragments of identifiers, encodings and noise:

    python tests/fuzz/fuzz_detect.py 60
"""

import io
import secrets
import sys
import time

from curtilage.client.detector_process import read_frame
from curtilage.client.findings import GarbageError, parse_findings
from curtilage.client.scan import own_equipment, scan
from curtilage.policy.findings import Where

EQUIPMENT = own_equipment()
PLACE = Where(message=0, role="user", json_path="content")
FRAGMENTS = (
    "my ", "ssn ", "536-22-1234", "4111 1111 1111 1111", "bob@corp.com", "password is ",
    "\u200b", "\u202e", "\ud800", "\x00", "&#98;", "%62", "\\u0062", "<b>", "**", "`",
    "Dr ", "John", "Krisztina", "o'Neil-", "five ", " at ", " dot ", "IBAN GB82", "://",
    "\uff11", "\u0661", "\u043e", "привет", "aGVsbG8gd29ybGQgaGVsbG8=", "\n", ". ",
)  # fmt: skip


def make_text() -> str:
    """Return fragments and noise in any order, some of it long."""
    parts: list[str] = []
    for _ in range(secrets.randbelow(40)):
        if secrets.randbelow(4):
            parts.append(secrets.choice(FRAGMENTS))
        else:
            parts.append(chr(secrets.randbelow(0x11000)) * (1 + secrets.randbelow(30)))
    return "".join(parts)


def check_text(text: str) -> None:
    """Fail when a detector of ours fails, or leaves the text's bounds."""
    (found,) = scan([text], EQUIPMENT)
    wrong = [span for span in found if span.data_class == "uncertain.error"]
    if wrong:
        raise AssertionError(f"a detector failed on {text!r}")


def check_bytes(data: bytes) -> None:
    """Fail when bytes from a worker raise anything but a refusal."""
    try:
        frame = read_frame(io.BytesIO(len(data).to_bytes(4, "big") + data))
        parse_findings(frame, [PLACE])
    except (ValueError, GarbageError, RecursionError):
        return


def main(seconds: float) -> int:
    """Run until the time is over; return how many inputs were tried."""
    ends, count = time.monotonic() + seconds, 0
    while time.monotonic() < ends:
        check_text(make_text())
        check_bytes(b'[[0,"financial.pan","x",0,1,5,false,"raw"]]')
        check_bytes(secrets.token_bytes(secrets.randbelow(60)))
        count += 1
    return count


if __name__ == "__main__":
    print(main(float(sys.argv[1]) if len(sys.argv) > 1 else 60), "texts")  # noqa: T201 - a script
