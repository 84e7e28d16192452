"""Any text gives a policy that keeps the unknown home, or its problems.

Run ``python tests/fuzz/fuzz_policy.py --seconds 60``. Inputs are random bytes
and damaged policies, drawn from a seed that a failure prints; ``--seed`` runs
the same inputs again.
"""

import argparse
import hashlib
import itertools
import secrets
import sys
import time
import traceback
from collections.abc import Iterator
from typing import Final

from curtilage.policy.errors import PolicyError
from curtilage.policy.load import load_policy, profile_text

MAX_INPUT_BYTES: Final = 400
PIECE_BYTES: Final = 12
ALPHABET: Final = b"[]{}:,-&*!|>%@?#'\"\n \t01ax.~\\U\xff\xed"
CORPUS: Final = (
    profile_text("default").encode(),
    b'version: 1\nrules: [{id: any-uncertain, when: "uncertain.*", then: local}]\n',
    b"? [a]\n: &b *b\n--- !!x\n%TAG ! !\n<<: {a: |\n  1:30}\n",
)


class Source:
    """Reproducible bytes and numbers: SHAKE-256 over the seed and a counter."""

    def __init__(self, seed: bytes, counter: int) -> None:
        self._stream = hashlib.shake_256(seed + counter.to_bytes(8, "big")).digest(2048)
        self._next = 0

    def octets(self, count: int) -> bytes:
        self._next += count
        return self._stream[self._next - count : self._next]

    def below(self, bound: int) -> int:
        return int.from_bytes(self.octets(4), "big") % bound


def mutated(source: Source, text: bytes) -> bytes:
    data = bytearray(text)
    for _ in range(1 + source.below(6)):
        place = source.below(len(data) + 1)
        piece = source.octets(source.below(PIECE_BYTES))
        data[place : place + source.below(PIECE_BYTES)] = bytes(
            ALPHABET[each % len(ALPHABET)] for each in piece
        )
    return bytes(data)


def inputs(seed: bytes) -> Iterator[bytes]:
    for counter in itertools.count():
        source = Source(seed, counter)
        if source.below(4) == 0:
            yield source.octets(source.below(MAX_INPUT_BYTES))
        else:
            yield mutated(source, CORPUS[source.below(len(CORPUS))])


def check(data: bytes) -> None:
    """Load one text; raise where the loader does anything but its two answers."""
    # Undecodable bytes become lone surrogates, which a text can hold as well.
    text = data.decode("utf-8", errors="surrogateescape")
    try:
        policy = load_policy(text)
    except PolicyError as error:
        if not error.problems:
            raise AssertionError("a refusal without a problem") from None
    else:
        if "any-uncertain" not in {rule.id for rule in policy.rules}:
            raise AssertionError("a policy that lets the unknown leave")


def run(seconds: float, seed: bytes) -> int:
    end = time.monotonic() + seconds
    count = 0
    for data in inputs(seed):
        if time.monotonic() > end:
            break
        try:
            check(data)
        except Exception:  # noqa: BLE001 - whatever escapes is the finding
            traceback.print_exc()
            sys.stderr.write(f"seed {seed.hex()} input {count}: {data.hex()}\n")
            return 1
        count += 1
    sys.stdout.write(f"{count} inputs, seed {seed.hex()}: no finding\n")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description="Fuzz the policy loader.")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=bytes.fromhex, default=secrets.token_bytes(8))
    options = parser.parse_args()
    return run(options.seconds, options.seed)


if __name__ == "__main__":
    sys.exit(main())
