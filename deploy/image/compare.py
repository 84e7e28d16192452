"""Builds once more, compares two builds bit for bit and reports the differences."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from deploy.image.build import ALL
from deploy.image.options import ROOT

CHUNK_BYTES: Final = 1024 * 1024
# Differences between two builds' environments that must not matter.
_OTHER_MACHINE: Final = {
    "PYTHONHASHSEED": "7",
    "TZ": "Asia/Kathmandu",
    "LC_ALL": "C.UTF-8",
    "LANGUAGE": "de",
    "USER": "somebody",
}


def build_again(
    module: str, given: Sequence[str], compared: Callable[[Path], int]
) -> int:
    """Build once more in another process, in another environment; compare.

    Args:
        module: whose command it is.
        given: the arguments of the first build.
        compared: compares that build with the one in a folder; returns an exit code.
    """
    with tempfile.TemporaryDirectory(prefix="curtilage-again-") as again:
        command = [sys.executable, "-m", module]
        command += [each for each in given if each != "--twice"]
        command += ["--out", again]
        done = subprocess.run(  # noqa: S603 - our own command
            command,
            cwd=ROOT,
            env=dict(os.environ) | _OTHER_MACHINE,
            umask=0o077,
            check=False,
        )
        return done.returncode or compared(Path(again))


def compare(one: Path, other: Path, names: Sequence[str] = ALL) -> list[str]:
    """Return a line for each difference; none means that the builds are the same."""
    found: list[str] = []
    for name in names:
        paths = (one / name, other / name)
        if not all(path.is_file() for path in paths):
            found.append(f"{name}: not in both")
        elif (at := first_difference(*paths)) is not None:
            found.append(f"{name}: different from byte {at} on")
    return found


def first_difference(one: Path, other: Path) -> int | None:
    """Return the offset of the first byte that differs, or None."""
    at = 0
    with one.open("rb") as left, other.open("rb") as right:
        while True:
            first, second = left.read(CHUNK_BYTES), right.read(CHUNK_BYTES)
            if first != second:
                pairs = zip(first, second, strict=False)
                same = next((i for i, (a, b) in enumerate(pairs) if a != b), None)
                return at + (min(len(first), len(second)) if same is None else same)
            if not first:
                return None
            at += len(first)


def differing_inputs(one: Path, other: Path) -> list[str]:
    """Return the inputs in which two ``image.json`` differ: the usual reason."""
    records = [json.loads(path.read_text("utf-8")) for path in (one, other)]
    keys = ("build_id", "source_date_epoch", "tee", "command_line", "inputs")
    return [key for key in keys if records[0].get(key) != records[1].get(key)]
