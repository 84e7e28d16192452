"""What is split over the texts of one conversation, as texts of its own.

A number can be told in pieces: over turns, with answers between them, over a
name and a content. The ends of neighbouring texts are read as one, and so are
those of the user's own texts alone, and the numbers of a few short turns. Long
texts are not repeated: only the seams between them are new.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from curtilage.client.query import Leaf

# Between texts that are read as one: ASCII's record separator. It is white
# space to every rule, but no line break, at which a number run would end.
JOINT: Final = "\x1e"
REACH: Final = 240  # characters on each side of a joint; no rule reaches further
MAX_SEAM_CHARS: Final = 2400  # a longer row of short texts is cut, with overlap
TURNS: Final = 8  # of the user, whose numbers are read as one
_SHORT_TURN_CHARS: Final = 60
_DIGITS: Final = re.compile(r"\d+")


def seams(leaves: Sequence[Leaf]) -> tuple[str, ...]:
    """Return what must be read besides the texts themselves, without repeats."""
    if len(leaves) <= 1:
        return ()
    texts = [leaf.text.strip() for leaf in leaves]
    own = [text for leaf, text in zip(leaves, texts, strict=True) if _is_users(leaf)]
    found = [*_seams_of(texts), *(_seams_of(own) if len(own) < len(texts) else ())]
    return tuple(dict.fromkeys(found))


def told_numbers(leaves: Sequence[Leaf]) -> str:
    """Return the numbers of the user's last short turns, side by side.

    "It begins with 4111", "then 1111": only what a check proves counts there.
    Empty if there is nothing to be joined.
    """
    turns = [leaf.text for leaf in leaves if _is_users(leaf)][-TURNS:]
    numbers = [
        found[0]
        for text in turns
        if len(text) <= _SHORT_TURN_CHARS and len(found := _DIGITS.findall(text)) == 1
    ]
    return " ".join(numbers) if len(numbers) > 1 else ""


def _is_users(leaf: Leaf) -> bool:
    return leaf.where.role == "user"


def _seams_of(texts: Sequence[str]) -> Iterator[str]:
    """Yield the joined texts without what is far from every joint.

    Cut from the beginning on, so that all but the last stay as they are when
    the conversation goes on.
    """
    whole = JOINT.join(texts)
    # Where a joint is near; stretches that overlap are one.
    near: list[tuple[int, int]] = []
    at = -1
    for text in texts[:-1]:
        at += len(text) + 1
        start, end = max(at - REACH, 0), min(at + REACH, len(whole))
        if near and start <= near[-1][1]:
            start = near.pop()[0]
        near.append((start, end))
    for start, end in near:
        for begin in range(start, max(end - REACH, start + 1), MAX_SEAM_CHARS - REACH):
            yield whole[begin : min(begin + MAX_SEAM_CHARS, end)]
