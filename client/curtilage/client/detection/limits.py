"""Limits on how much of a query is examined, and for how long.

Texts beyond the limits, or late ones, are findings (``inspection``). So a wrong figure
here costs time, or keeps a query local, and never lets one out.
"""

import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from curtilage.client.chat.query import Leaf
from curtilage.client.detection.worker import TimeLimit

if TYPE_CHECKING:  # a policy's file, packs and trust are not needed here
    from curtilage.policy.document.model import Limits

MAX_LEAVES = 2000  # texts in one query; a longer conversation is oversize
# The fixed cost of a query, in characters of prose that take the same time.
_LEAST_COST = 100
# A token is a word of any length, or a single sign: the detectors handle these one by
# one. They take as long for "1/" as for two words, so two tokens count as at least
# three characters. Prose has about five per token, a page of code or a table two or
# more: no normal text weighs more than its length.
CHARS_PER_TOKEN = 1.5
# Up to which length the limit of wall-clock time holds; a longer text has more.
WALL_CHARS = 60_000
_TOKEN = re.compile(r"[^\W_]+|\S")


def weight_of(texts: Sequence[str]) -> int:
    """Return how much there is to examine in texts, in characters.

    Their length; more if they consist almost only of single signs, which would take the
    detectors longer than their deadline.
    """
    tokens = sum(1 for text in texts for _ in _TOKEN.finditer(text))
    return max(sum(map(len, texts)), math.ceil(CHARS_PER_TOKEN * tokens))


def time_limit(limits: "Limits", weight: int) -> TimeLimit:
    """Return the time limit for a query, which grows with its weight."""
    thousands = math.ceil(weight / 1000)
    per_thousand = limits.deadline_ms_per_1000_chars
    return TimeLimit(
        processor_s=(limits.deadline_ms + thousands * per_thousand) / 1000,
        wall_s=limits.deadline_wall_ms / 1000 * max(1.0, weight / WALL_CHARS),
    )


def cost_of(leaves: Sequence[Leaf], limits: "Limits") -> int:
    """Return the cost of a query's texts relative to others."""
    if is_oversize(leaves, limits):
        return 1  # no detector examines it
    return _LEAST_COST + weight_of([leaf.text for leaf in leaves])


def is_oversize(leaves: Sequence[Leaf], limits: "Limits") -> bool:
    """Return whether a query has more text than the policy allows to examine."""
    size = sum(len(leaf.text) + 1 for leaf in leaves) - 1
    if size > limits.max_chars or len(leaves) > MAX_LEAVES:
        return True
    return weight_of([leaf.text for leaf in leaves]) > limits.max_chars
