"""What the harnesses share: what one is, and how to do without atheris.

A harness is a function of bytes whose first line states what must hold. With
atheris, ``engine.py`` lets libFuzzer choose the bytes by the branches that they
reach; without it, or when a harness is run as a script, they are damaged copies
of its corpus, drawn from a seed that a failure prints.
"""

import argparse
import hashlib
import itertools
import secrets
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

CORPUS: Final = Path(__file__).resolve().parent / "corpus"
STREAM_BYTES: Final = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class Harness:
    """One parser under test.

    Attributes:
        name: of its folder under ``corpus``.
        check: tries one input; raises where the invariant does not hold.
        max_bytes: longest input worth trying.
    """

    name: str
    check: Callable[[bytes], None]
    max_bytes: int = 4096

    @property
    def corpus(self) -> Path:
        return CORPUS / self.name

    def seeds(self) -> list[bytes]:
        """Return the corpus in a fixed order, and the empty input."""
        return [b"", *(path.read_bytes() for path in sorted(self.corpus.glob("*")))]


def hold(truth: object) -> None:
    """Raise if an invariant does not hold; for what an error itself says."""
    if not truth:
        raise AssertionError


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


def mutated(source: Source, seed: bytes) -> bytes:
    """Return random bytes, or the seed with a few places changed."""
    if source.below(8) == 0:
        return source.octets(source.below(256))
    data = bytearray(seed)
    for _ in range(1 + source.below(4)):
        place = source.below(len(data) + 1)
        choice = source.below(5)
        if choice == 0:
            del data[place : place + 1 + source.below(8)]
        elif choice == 1:
            data[place:place] = source.octets(1 + source.below(4))
        elif choice == 2:
            data = data[:place]
        elif choice == 3:
            data[place : place + source.below(8)] = bytes(source.below(8))
        elif place < len(data):
            data[place] ^= 1 << source.below(8)
    return bytes(data)


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


def run_harnesses(name: str, harnesses: Sequence[Harness]) -> int:
    """Run one file's harnesses without atheris, in turns.

    An input is one octet that chooses the harness, and what that gets.

    Returns:
        1 on a finding, else 0.
    """
    seeds = [harness.seeds() for harness in harnesses]

    def make(source: Source) -> bytes:
        number = source.below(len(harnesses))
        seed = seeds[number][source.below(len(seeds[number]))]
        return bytes([number]) + mutated(source, seed)

    def check(data: bytes, _: Source) -> None:
        harnesses[data[0]].check(data[1:])

    return run(name, check, make)
