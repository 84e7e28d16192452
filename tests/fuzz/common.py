"""Shared by the harnesses: their type, and a driver without atheris.

A harness is a function of bytes whose first line states what must hold. With
atheris, ``engine.py`` lets libFuzzer choose the bytes by the branches that they
reach; without it, they are damaged copies of its corpus, drawn from a seed that a
failure prints.
"""

import hashlib
import itertools
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

STREAM_BYTES: Final = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class Harness:
    """One parser under test.

    Attributes:
        name: of its inputs in ``corpus.py``.
        check: tries one input; raises where the invariant does not hold.
        max_bytes: longest input worth trying.
    """

    name: str
    check: Callable[[bytes], None]
    max_bytes: int = 4096


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


def try_damaged(
    name: str,
    harnesses: Sequence[tuple[Harness, Sequence[bytes]]],
    *,
    seed: bytes,
    more: Callable[[int], bool],
) -> bool:
    """Try damaged inputs of each harness, in turns; report the results.

    Args:
        name: what to call the harnesses together.
        harnesses: each with the inputs to damage, of which there is one at least.
        seed: what is drawn follows from it.
        more: called with the number of inputs tried; False ends the run.

    Returns:
        Whether nothing was found.
    """
    for count, source in enumerate(sources(seed)):
        if not more(count):
            sys.stdout.write(f"{name}: {count} inputs, no finding\n")
            break
        harness, inputs = harnesses[source.below(len(harnesses))]
        data = mutated(source, inputs[source.below(len(inputs))])
        try:
            harness.check(data)
        except Exception:  # noqa: BLE001 - whatever escapes is the finding
            traceback.print_exc()
            where = f"{harness.name}: seed {seed.hex()} input {count}"
            sys.stderr.write(f"{where}: {data.hex()}\n")
            return False
    return True
