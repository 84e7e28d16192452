"""The score of an answer: what its verifier does, for any threshold."""

from hypothesis import given
from hypothesis import strategies as st

from curtilage.client.chat.answer import Delta
from curtilage.client.routing.verifier import (
    LOOKS,
    REJECTED_BELOW,
    Verdict,
    Verifier,
)
from curtilage.lab.routing.scores import looks_at, score_by, score_of
from support.drafts import STOPPED, SURE, written


def test_pieces_of_several_tokens_are_looked_at_where_they_have_come_to() -> None:
    pieces = [*written(*("yes ",) * 40)]
    together = Delta(text="", signals=tuple(each.signals[0] for each in pieces))
    ((index, _), _) = looks_at("", [together], "stop")
    assert LOOKS[index] == 32


@given(
    st.lists(st.floats(0, 1), min_size=1, max_size=4),
    st.floats(0, 1, exclude_max=True),
)
def test_a_score_is_the_threshold_that_its_draft_just_does_not_pass(
    probabilities: list[float], threshold: float
) -> None:
    # As ``Verifier`` goes on: look by look.
    accepted = False
    for each in probabilities:
        if each > threshold:
            accepted = True
            break
        if each <= REJECTED_BELOW * threshold:
            break
    assert (score_of(probabilities) > threshold) == accepted


@given(st.lists(st.floats(0.01, 0.99), min_size=1, max_size=90), st.floats(0, 0.95))
def test_the_score_of_an_answer_is_what_its_verifier_does(
    sureness: list[float], threshold: float
) -> None:
    pieces = [next(written("so ", probability=each)) for each in sureness]
    looks = looks_at("Why?", pieces, "stop")
    score = score_by(SURE, looks)
    verifier = Verifier(SURE, threshold, question="Why?")
    for each in pieces:
        verifier.feed(each)
    accepted = verifier.end(STOPPED) is Verdict.ACCEPT
    assert (score > threshold) == accepted
