"""The score of a whole answer: the threshold below which a verifier accepts it."""

import math
from collections.abc import Iterable, Sequence

from curtilage.client.chat.answer import Delta
from curtilage.client.routing.answer_features import Draft, Seen
from curtilage.client.routing.verifier import LOOKS, REJECTED_BELOW, Head, looks_reached


def looks_at(
    question: str, deltas: Iterable[Delta], finish_reason: str
) -> tuple[tuple[int, Seen], ...]:
    """Return a verifier's looks at a whole answer, with the index of each head.

    Args:
        question: as for ``Verifier``.
        deltas: the answer, in the pieces in which it arrived.
        finish_reason: how it ended.
    """
    draft, looked, looks = Draft(question), 0, list[tuple[int, Seen]]()
    for delta in deltas:
        draft.add(delta)
        if (reached := looks_reached(draft)) > looked:
            looked = reached
            looks.append((reached - 1, draft.seen()))
    return (*looks, (len(LOOKS), draft.seen(finish_reason=finish_reason)))


def score_by(heads: Sequence[Head], looks: Iterable[tuple[int, Seen]]) -> float:
    """Return the score of an answer from its looks, as ``looks_at`` returns them."""
    return score_of([heads[at].probability(seen) for at, seen in looks])


def score_of(probabilities: Sequence[float]) -> float:
    """Return the threshold below which a verifier accepts the draft.

    Args:
        probabilities: of its looks in order, the end last.
    """
    # Accepted at a look above the threshold, if no look before rejected it: smaller
    # thresholds only make both easier.
    score, kept = 0.0, math.inf
    for each in probabilities:
        score = max(score, min(each, kept))
        kept = min(kept, each / REJECTED_BELOW)
    return score
