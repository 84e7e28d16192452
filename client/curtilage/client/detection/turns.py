"""Additional texts for data that is split over the texts of a conversation.

A number can be given in pieces: over several turns, with answers in between, or over a
name and a content. The ends of neighbouring texts are read as one text, and so are
those of the user's own texts, and the numbers of a few short turns. Long texts are not
repeated: only the seams between them are new.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from curtilage.client.chat.query import Leaf

# Between texts that are read as one: ASCII's record separator. It is white space to
# every rule, but not a line break, at which a number run would end.
JOINT: Final = "\x1e"
REACH: Final = 240  # characters on each side of a joint; no rule reaches further
MAX_SEAM_CHARS: Final = 2400  # a longer row of short texts is cut, with overlap
TURNS: Final = 8  # of the user; their numbers are read as one
_SHORT_TURN_CHARS: Final = 60
_DIGITS: Final = re.compile(r"\d+")


def seams(leaves: Sequence[Leaf]) -> tuple[str, ...]:
    """Return what must be read in addition to the texts, without duplicates."""
    if len(leaves) <= 1:
        return ()
    texts = [leaf.text.strip() for leaf in leaves]
    own = [text for leaf, text in zip(leaves, texts, strict=True) if _is_users(leaf)]
    found = [*_seams_of(texts), *(_seams_of(own) if len(own) < len(texts) else ())]
    return tuple(dict.fromkeys(found))


def told_numbers(leaves: Sequence[Leaf]) -> str:
    """Return the numbers of the user's last short turns, joined.

    "It begins with 4111", "then 1111": only numbers that a check proves count there.
    Empty if there is nothing to join.
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
    """Yield the joined texts without everything that is far from every joint.

    They are cut from the beginning on, so that all but the last are unchanged when the
    conversation continues.
    """
    whole = JOINT.join(texts)
    # The stretches near a joint; overlapping ones are merged.
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
