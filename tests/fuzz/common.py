"""What the harnesses share: their arguments, their randomness, their loop."""

import argparse
import hashlib
import itertools
import secrets
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Final

STREAM_BYTES: Final = 8192


class Source:
    """Reproducible bytes and numbers: SHAKE-256 over the seed and a counter."""

    def __init__(self, seed: bytes, counter: int) -> None:
        text = seed + counter.to_bytes(8, "big")
        self._stream = hashlib.shake_256(text).digest(STREAM_BYTES)
        self._position = 0

    def octets(self, count: int) -> bytes:
        start = self._position % (len(self._stream) - count)
        self._position += count
        return self._stream[start : start + count]

    def below(self, bound: int) -> int:
        return int.from_bytes(self.octets(4), "big") % bound


def sources(seed: bytes) -> Iterator[Source]:
    """Yield one source for each input, without an end."""
    return (Source(seed, counter) for counter in itertools.count())


def run(
    name: str, check: Callable[[bytes, Source], None], make: Callable[[Source], bytes]
) -> int:
    """Read the arguments, try inputs until the time is over, say what came out.

    Args:
        name: the harness's.
        check: tries one input; raises where it finds something.
        make: draws one input.

    Returns:
        1 on a finding, else 0.
    """
    parser = argparse.ArgumentParser(prog=f"{name}.py")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument(
        "--seed", type=bytes.fromhex, default=secrets.token_bytes(8), help="hex digits"
    )
    read = parser.parse_args()
    end, count = time.monotonic() + read.seconds, 0
    for source in sources(read.seed):
        if time.monotonic() > end:
            break
        data = make(source)
        try:
            check(data, source)
        except Exception:  # noqa: BLE001 - whatever escapes is the finding
            traceback.print_exc()
            sys.stderr.write(f"seed {read.seed.hex()} input {count}: {data.hex()}\n")
            return 1
        count += 1
    sys.stdout.write(f"{name}: {count} inputs, no finding\n")
    return 0
