"""How much of a query is looked at, and for how long.

What is beyond the limits, or late, is a finding (``inspection``). So a wrong figure
here costs time, or keeps a query local, and lets none out.
"""

import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from curtilage.client.detection.worker import TimeLimit
from curtilage.client.query import Leaf

if TYPE_CHECKING:  # a policy's file, its packs and its trust are nothing to us
    from curtilage.policy.document.model import Limits

MAX_LEAVES = 2000  # texts of one query; a longer conversation is oversize
# What any query takes, however short, in characters of prose that take as long.
_LEAST_COST = 100
# A word, however long, or a sign by itself: what the detectors take one by one.
# They take as long for "1/" as for two words, so two of them count as three
# characters at least. Prose has about five to a token, a page of code or a table
# from two on: nothing that people send weighs more than it is long.
CHARS_PER_TOKEN = 1.5
_TOKEN = re.compile(r"[^\W_]+|\S")


def weight_of(texts: Sequence[str]) -> int:
    """Return how much there is to look at in texts, in characters.

    As many as they have; more where they are hardly anything but single signs,
    which would take the detectors longer than their deadline.
    """
    tokens = sum(1 for text in texts for _ in _TOKEN.finditer(text))
    return max(sum(map(len, texts)), math.ceil(CHARS_PER_TOKEN * tokens))


def time_limit(limits: "Limits", weight: int) -> TimeLimit:
    """Return how long a query may be looked at; grows with what there is."""
    thousands = math.ceil(weight / 1000)
    per_thousand = limits.deadline_ms_per_1000_chars
    return TimeLimit(
        processor_s=(limits.deadline_ms + thousands * per_thousand) / 1000,
        wall_s=limits.deadline_wall_ms / 1000,
    )


def cost_of(leaves: Sequence[Leaf], limits: "Limits") -> int:
    """Return how long the texts of a query take compared with others."""
    if is_oversize(leaves, limits):
        return 1  # no detector sees it
    return _LEAST_COST + weight_of([leaf.text for leaf in leaves])


def is_oversize(leaves: Sequence[Leaf], limits: "Limits") -> bool:
    """Return whether a query has more text than the policy has looked at."""
    size = sum(len(leaf.text) + 1 for leaf in leaves) - 1
    if size > limits.max_chars or len(leaves) > MAX_LEAVES:
        return True
    return weight_of([leaf.text for leaf in leaves]) > limits.max_chars
