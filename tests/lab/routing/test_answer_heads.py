import random

import pytest

from curtilage.client.chat.answer import Delta
from curtilage.client.routing.answer_features import NAMES, Seen
from curtilage.client.routing.verifier import LOOKS
from curtilage.lab.routing.answer_heads import LEAST, Looks, fit_heads
from curtilage.lab.routing.certify import Graded, auroc
from curtilage.lab.routing.scores import looks_at, score_by
from support.drafts import written


def answers(count: int, *, tokens: int = 40) -> tuple[list[Looks], list[bool]]:
    """Answers of which the sure ones are mostly good."""
    drawn = random.Random(2)  # noqa: S311 - repeatable, no secret
    looks, good = list[Looks](), list[bool]()
    for _ in range(count):
        sure = drawn.uniform(0.1, 0.95)
        looks.append(
            looks_at("Why?", written(*["so "] * tokens, probability=sure), "stop")
        )
        good.append(drawn.random() < sure)
    return looks, good


def test_heads_separate_good_answers() -> None:
    looks, good = answers(400)
    heads = fit_heads(looks[:200], good[:200])
    graded = [
        Graded(score=score_by(heads, each), bad=not mark)
        for each, mark in zip(looks[200:], good[200:], strict=True)
    ]
    assert auroc(graded) > 0.75


def test_their_probabilities_are_some() -> None:
    looks, good = answers(400)
    end = fit_heads(looks, good)[-1]
    mean = sum(end.probability(each[-1][1]) for each in looks) / len(looks)
    assert mean == pytest.approx(sum(good) / len(good), abs=0.01)


def test_a_look_to_which_few_came_has_the_head_of_the_end() -> None:
    short, good = answers(LEAST, tokens=20)
    long, more = answers(LEAST - 1, tokens=70)
    heads = fit_heads([*short, *long], [*good, *more])
    assert len(heads) == len(LOOKS) + 1
    assert heads[0] != heads[-1]
    assert heads[1] == heads[2] == heads[-1]


def test_what_is_not_sound_teaches_nothing() -> None:
    looks, good = answers(100)
    unsound = looks_at("Why?", [Delta(text="from elsewhere")], "stop")
    heads = fit_heads([*looks, *[unsound] * 50], [*good, *[False] * 50])
    assert heads == fit_heads(looks, good)


@pytest.mark.parametrize("mark", [True, False])
def test_of_one_kind_nothing_is_learned(mark: bool) -> None:
    looks, _ = answers(100)
    with pytest.raises(ValueError, match="no good answers"):
        fit_heads(looks, [mark] * 100)


def test_numbers_that_never_change_make_no_trouble() -> None:
    looks, good = answers(100)
    (names,) = {len(seen.values) for each in looks for _, seen in each}
    assert names == len(NAMES)
    same: list[Looks] = [
        ((len(LOOKS), Seen(values=(1.0,) * len(NAMES), sound=True)),) for _ in looks
    ]
    end = fit_heads(same, good)[-1]
    share = sum(good) / len(good)
    assert end.probability(same[0][0][1]) == pytest.approx(share, abs=0.01)
