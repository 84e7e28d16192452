from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curtilage.client.detection.detectors.model.excerpts import (
    MAX_CHARS,
    MAX_EXCERPTS,
    excerpts,
)
from curtilage.client.detection.detectors.readings import Reading
from curtilage.client.detection.turns import JOINT
from curtilage.policy.decision.findings import Normalization
from support.growth import grows_at_most, seconds_of


def excerpts_of(text: str) -> tuple[str, ...]:
    return excerpts(Reading(normalization=Normalization.RAW, text=text))


HARMLESS = (
    "The library opened in 1932. Its hall has forty desks and large windows! "
    "Visitors may borrow ten books at a time, and there are tours on weekends. "
)


@pytest.mark.parametrize("between", [" ", "\n", "\n\n"])
def test_what_is_said_of_somebody_is_cut_out(between: str) -> None:
    text = f"{HARMLESS}{between}My knee hurts.{between}{HARMLESS}"
    assert excerpts_of(text) == ("My knee hurts.",)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " \n ",
        "My knee hurts",
        " My knee hurts. ",
        HARMLESS,
        f"{HARMLESS} How do I get there?",
        f"{HARMLESS} Can you tell me more?",
    ],
)
def test_nothing_is_cut_out_of_one_piece_or_of_nobodys(text: str) -> None:
    assert excerpts_of(text) == ()


def test_neighbours_are_judged_apart() -> None:
    text = f"{HARMLESS}\nMy knee hurts. I fell in May.\n\nHe laughed."
    assert excerpts_of(text) == ("My knee hurts.", "I fell in May.", "He laughed.")


def test_an_excerpt_is_of_one_turn() -> None:
    text = f"who is he{JOINT}My knee hurts.{JOINT}then forget him{JOINT}and the hall"
    assert excerpts_of(text) == ("who is he", "My knee hurts.", "then forget him")


def test_passages_of_a_text_of_some_length_are_half_of_it_at_most() -> None:
    long = "My wife lives in the old house by the river and our son lives there too. "
    found = excerpts_of(long * 4)
    assert len(found) == 2
    assert sum(map(len, found)) <= 160


def test_a_long_sentence_is_cut() -> None:
    text = "the hall has desks and " * 20 + "my knee hurts " + "and windows " * 30
    (found,) = excerpts_of(text)
    assert "my knee hurts" in found
    assert len(found) <= 100


def test_where_most_is_said_of_somebody_counts() -> None:
    many = "\n\n".join(["I saw a door."] * 30 + ["My wife and I lost our son."])
    found = excerpts_of(many)
    assert "My wife and I lost our son." in found
    assert len(found) == 3 + len(many) // 400


@given(st.text(alphabet="my I he.,!\n\u00e4\ud800", max_size=3000))
def test_passages_are_few_and_short_and_of_the_text(text: str) -> None:
    found = excerpts_of(text)
    assert len(found) <= min(MAX_EXCERPTS, 3 + len(text) // 400)
    assert all(0 < len(each) <= MAX_CHARS and each in text for each in found)


def test_cutting_takes_linear_time() -> None:
    def cost(unit: str, times: int) -> float:
        text = unit * times
        return seconds_of(lambda: excerpts_of(text))

    for unit in ("I am here. ", "a ", "x", ".", "my \n"):
        assert grows_at_most(partial(cost, unit), lengths=(1000, 4000), factor=8)
