"""Any text gives a policy that keeps the unknown home, or its problems.

Run ``python tests/fuzz/fuzz_policy.py --seconds 60``. Inputs are random bytes
and damaged policies, drawn from a seed that a failure prints; ``--seed`` runs
the same inputs again.
"""

import sys
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fuzz.common import Source, run

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


def mutated(source: Source, text: bytes) -> bytes:
    data = bytearray(text)
    for _ in range(1 + source.below(6)):
        place = source.below(len(data) + 1)
        piece = source.octets(source.below(PIECE_BYTES))
        data[place : place + source.below(PIECE_BYTES)] = bytes(
            ALPHABET[each % len(ALPHABET)] for each in piece
        )
    return bytes(data)


def make_input(source: Source) -> bytes:
    if source.below(4) == 0:
        return source.octets(source.below(MAX_INPUT_BYTES))
    return mutated(source, CORPUS[source.below(len(CORPUS))])


def check(data: bytes, _: Source) -> None:
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


if __name__ == "__main__":
    sys.exit(run("fuzz_policy", check, make_input))
