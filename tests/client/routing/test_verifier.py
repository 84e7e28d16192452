from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curtilage.client.chat.answer import Delta
from curtilage.client.routing.answer_features import NAMES, Seen
from curtilage.client.routing.verifier import (
    LOOKS,
    Verdict,
    Verifier,
)
from support.drafts import STOPPED, SURE, head_of, written

WORDS = ("yes ",) * 100


def judged(
    deltas: list[Delta], *, threshold: float = 0.6, question: str = "Why?"
) -> list[Verdict]:
    """Return the verdict after each piece, and after the end."""
    verifier = Verifier(SURE, threshold, question=question)
    return [*map(verifier.feed, deltas), verifier.end(STOPPED)]


def test_a_sure_draft_is_accepted_at_the_first_look() -> None:
    verdicts = judged([*written(*WORDS)])
    first = LOOKS[0]
    assert verdicts[: first - 1] == [Verdict.WAIT] * (first - 1)
    assert set(verdicts[first - 1 :]) == {Verdict.ACCEPT}


def test_an_unsure_one_is_rejected_at_the_first_look() -> None:
    verdicts = judged([*written(*WORDS, probability=0.01)])
    assert verdicts[LOOKS[0] - 1] is Verdict.REJECT


def test_a_verdict_is_final() -> None:
    pieces = [*written(*WORDS[:20], probability=0.01), *written(*WORDS)]
    assert judged(pieces)[-1] is Verdict.REJECT


def test_one_between_waits_for_its_end_and_is_rejected_there() -> None:
    verdicts = judged([*written(*WORDS, probability=0.5)], threshold=0.85)
    assert set(verdicts[:-1]) == {Verdict.WAIT}
    assert verdicts[-1] is Verdict.REJECT


def test_a_short_draft_is_judged_at_its_end() -> None:
    assert judged([*written("Yes.")]) == [Verdict.WAIT, Verdict.ACCEPT]


def test_a_draft_of_no_tokens_is_rejected() -> None:
    assert judged([]) == [Verdict.REJECT]
    assert judged([Delta(text="from nowhere")])[-1] is Verdict.REJECT


def test_json_is_judged_when_it_is_whole() -> None:
    pieces = ['{"a": "', *WORDS[:40]]
    whole = judged([*written(*pieces, '"}')], question="As JSON, please.")
    cut = judged([*written(*pieces)], question="As JSON, please.")
    assert set(whole[:-1]) == set(cut[:-1]) == {Verdict.WAIT}
    assert (whole[-1], cut[-1]) == (Verdict.ACCEPT, Verdict.REJECT)


def test_pieces_of_several_tokens_are_looked_at_where_they_have_come_to() -> None:
    pieces = [*written(*WORDS[:40])]
    together = Delta(text="", signals=tuple(each.signals[0] for each in pieces))
    assert judged([together])[0] is Verdict.ACCEPT


def test_each_look_has_a_head_of_its_own() -> None:
    heads = (*(head_of(bias=-30.0 if at else 0.0) for at in range(3)), SURE[-1])
    verifier = Verifier(heads, 0.6, question="")
    verdicts = [*map(verifier.feed, written(*WORDS))]
    assert verdicts[LOOKS[0] - 1 : LOOKS[1]] == [Verdict.WAIT] * 16 + [Verdict.REJECT]


@given(st.lists(st.floats(0.01, 0.99), min_size=1, max_size=90))
def test_a_larger_threshold_accepts_no_draft_more(sureness: list[float]) -> None:
    pieces = [next(written("so ", probability=each)) for each in sureness]
    accepted = [
        judged(pieces, threshold=each / 20)[-1] is Verdict.ACCEPT for each in range(20)
    ]
    assert all(wide or not narrow for wide, narrow in pairwise(accepted))


def test_what_is_not_sound_has_no_probability() -> None:
    values = (0.0,) * len(NAMES)
    head = head_of(bias=30.0)
    assert head.probability(Seen(values=values, sound=False)) == 0
    assert head.probability(Seen(values=values, sound=True)) > 0.99


@pytest.mark.parametrize(
    "row",
    [
        {"mean": (0.0,)},
        {"weights": (float("nan"),) * len(NAMES)},
        {"spread": (0.0,) * len(NAMES)},
        {"spread": (float("inf"),) * len(NAMES)},
        {"bias": float("inf")},
    ],
)
def test_heads_of_no_meaning_are_refused(row: dict[str, Any]) -> None:
    good = head_of(bias=0.0)
    with pytest.raises(ValueError, match="head"):
        replace(good, **row)
