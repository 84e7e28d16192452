"""Counts a text in the memory of another process, in the forms that it may have.

From outside, as the machine's operator could: ``/proc/PID/mem``. Returns numbers
only, so that no failing test repeats a text.
"""

import os
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

_STEP: Final = 16 << 20
_LONGEST: Final = 4096
"""No form of a text that is looked for is longer; as much is looked at twice."""

Forms = dict[str, bytes]


def forms_of(text: str, token_of: Callable[[int], int]) -> Forms:
    """Return a text as Python, JSON and a model may hold it.

    Args:
        text: ASCII, 20 characters or so: as much as is not there by chance.
        token_of: the token of each character.
    """
    tokens = [token_of(code) for code in text.encode("ascii")]
    return {
        "UTF-8": text.encode(),
        "UTF-16": text.encode("utf-16-le"),
        "UTF-32": text.encode("utf-32-le"),
        "tokens of 32 bits": array("i", tokens).tobytes(),
        "tokens of 64 bits": array("q", tokens).tobytes(),
    }


def is_readable(pid: int) -> bool:
    """Whether this system lets us look."""
    try:
        return next(_memory(pid), None) is not None
    except OSError:
        return False


def hits(pid: int, forms: Forms) -> dict[str, int]:
    """Return how often each form is there; those that are not are left out."""
    found = dict.fromkeys(forms, 0)
    for data, fresh in _memory(pid):
        for name, octets in forms.items():
            at = data.find(octets)
            while at >= 0:
                found[name] += at + len(octets) > fresh
                at = data.find(octets, at + 1)
    return {name: count for name, count in found.items() if count}


def _memory(pid: int) -> Iterator[tuple[bytes, int]]:
    """Yield what is writable, piece by piece, and where in a piece the new begins."""
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as file:
        for start, end in _regions(pid):
            kept, at = b"", start
            while at < end:
                try:
                    data = os.pread(file.fileno(), min(_STEP, end - at), at)
                except OSError:
                    break  # a page that the kernel keeps to itself
                if not data:
                    break
                yield kept + data, len(kept)
                kept = data[-_LONGEST:]
                at += len(data)


def _regions(pid: int) -> Iterator[tuple[int, int]]:
    for line in Path(f"/proc/{pid}/maps").read_text("utf-8").splitlines():
        span, rights, *rest = line.split()
        if rights.startswith("rw") and not rest[-1].startswith("[v"):
            start, _, end = span.partition("-")
            yield int(start, 16), int(end, 16)
