"""Counts a text in the memory of another process, in the forms that it may have.

From outside, as the machine's operator could: ``/proc/PID/mem``. Returns numbers
only, so that no failing test repeats a text.
"""

import json
import os
from array import array
from base64 import b64encode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

_STEP: Final = 16 << 20
_LONGEST: Final = 4096
"""No form of a text that is looked for is longer; as much is looked at twice."""

WIPING_OFF: Final = Path(__file__).with_name("wiping_off")
"""In PYTHONPATH it switches forgetting off."""

Forms = dict[str, bytes]


def forms_of(text: str, token_of: Callable[[int], int]) -> Forms:
    """Return a text as Python, JSON, an encoding and a model may hold it.

    Args:
        text: ASCII, 20 characters or so: as much as is not there by chance. If JSON
            escapes one of them, that form is looked for too.
        token_of: the token of each character.
    """
    octets = text.encode("ascii")
    tokens = [token_of(code) for code in octets]
    forms = {
        "UTF-8": octets,
        "UTF-16": text.encode("utf-16-le"),
        "UTF-32": text.encode("utf-32-le"),
        "tokens of 32 bits": array("i", tokens).tobytes(),
        "tokens of 64 bits": array("q", tokens).tobytes(),
    }
    escaped = json.dumps(text)[1:-1].encode()
    if escaped != octets:
        forms["JSON"] = escaped
        forms["JSON in JSON"] = json.dumps(json.dumps(text))[3:-3].encode()
    return forms | {f"base64, {at}": _base64(octets, at) for at in range(3)}


def _base64(octets: bytes, before: int) -> bytes:
    """Return the characters that octets have behind so many others, whatever those are.

    Without the first and the last, which belong to the neighbours as well.
    """
    whole = b64encode(bytes(before) + octets)
    return whole[-(-8 * before // 6) : 8 * (before + len(octets)) // 6]


def is_readable(pid: int) -> bool:
    """Whether this system lets us look."""
    try:
        return next(_memory(pid, everything=False), None) is not None
    except OSError:
        return False


def hits(pid: int, forms: Forms, *, everything: bool = False) -> dict[str, int]:
    """Return how often each form is there; those that are not are left out.

    Args:
        pid: of the process.
        forms: what is looked for.
        everything: look at all that can be read, such as libraries; else at what the
            process can write to.
    """
    found = dict.fromkeys(forms, 0)
    for data, fresh in _memory(pid, everything=everything):
        for name, octets in forms.items():
            at = data.find(octets)
            while at >= 0:
                found[name] += at + len(octets) > fresh
                at = data.find(octets, at + 1)
    return {name: count for name, count in found.items() if count}


def _memory(pid: int, *, everything: bool) -> Iterator[tuple[bytes, int]]:
    """Yield memory, piece by piece, and where in a piece the new begins."""
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as file:
        for start, end in _regions(pid, "r" if everything else "rw"):
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


def _regions(pid: int, allowed: str) -> Iterator[tuple[int, int]]:
    for line in Path(f"/proc/{pid}/maps").read_text("utf-8").splitlines():
        span, rights, *rest = line.split()
        if rights.startswith(allowed) and not rest[-1].startswith("[v"):
            start, _, end = span.partition("-")
            yield int(start, 16), int(end, 16)
