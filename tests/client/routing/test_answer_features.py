import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curtilage.client.chat.answer import Delta, TokenSignal
from curtilage.client.routing.answer_features import (
    MAX_CHARS,
    MAX_SIGNALS,
    NAMES,
    TAIL_CHARS,
    Draft,
)
from support.drafts import written


def seen_of(
    *pieces: str,
    question: str = "Why?",
    finish_reason: str | None = "stop",
    probability: float = 0.5,
) -> dict[str, float]:
    draft = Draft(question)
    for piece in written(*pieces, probability=probability):
        draft.add(piece)
    values = draft.seen(finish_reason=finish_reason).values
    return dict(zip(NAMES, values, strict=True))


def is_sound(*pieces: str, question: str = "Why?", finish: str | None = "stop") -> bool:
    draft = Draft(question)
    for piece in written(*pieces):
        draft.add(piece)
    return draft.seen(finish_reason=finish).sound


def test_sureness_is_that_of_the_tokens() -> None:
    seen = seen_of(*"abcdefgh", probability=0.8)
    for name in ("logprob mean", "logprob tenth", "logprob window", "logprob end"):
        assert seen[name] == pytest.approx(math.log(0.8))
    assert seen["margin mean"] == pytest.approx(math.log(4))
    assert seen["unsure tokens"] == 0


def test_one_bad_stretch_shows_in_its_window_and_hardly_in_the_mean() -> None:
    draft = Draft("")
    for piece in [*written(*"a" * 200), *written(*"b" * 8, probability=0.01),
                  *written(*"c" * 200)]:  # fmt: skip
        draft.add(piece)
    seen = dict(zip(NAMES, draft.seen().values, strict=True))
    assert seen["logprob window"] == pytest.approx(math.log(0.01))
    assert seen["logprob mean"] > -0.2


@given(st.floats(allow_nan=False), st.floats(min_value=0, allow_nan=False), st.text())
def test_every_number_is_finite(logprob: float, margin: float, text: str) -> None:
    draft = Draft(text)
    signal = TokenSignal(logprob=logprob, margin=margin)
    draft.add(Delta(text=text, signals=(signal,)))
    for finish in (None, "stop", "length"):
        assert all(map(math.isfinite, draft.seen(finish_reason=finish).values))


def test_of_nothing_there_are_numbers_too() -> None:
    assert all(map(math.isfinite, Draft("").seen(finish_reason="stop").values))


@pytest.mark.parametrize(
    ("text", "right", "wrong"),
    [
        ("16 - 3 = 13 and 13 - 4 = 9", 2, 0),
        ("16 - 3 - 4 = 9", 1, 0),
        ("2 + 3 * 4 = 14", 1, 0),
        ("9 * $2 = $<<9*2=18>>18", 1, 0),
        ("$1,200 / 4 = 300", 1, 0),
        ("10 / 3 = 3.33", 1, 0),
        ("7 * 8 = 54", 0, 1),
        ("7 / 0 = 0", 0, 0),
        ("x + 3 = 5, 20% of 50 = 10, 2 = 1 + 1", 0, 0),
        ("5 = 5", 0, 0),
    ],
)
def test_sums_are_reckoned_again(text: str, right: int, wrong: int) -> None:
    seen = seen_of(text)
    assert seen["sums right"] == pytest.approx(math.log1p(right))
    assert seen["sums wrong"] == pytest.approx(math.log1p(wrong))


def test_what_repeats_itself_is_seen() -> None:
    once = seen_of("The quick brown fox jumps over the lazy dog, and then sleeps well.")
    again = seen_of("It is good to know it. " * 40)
    assert once["repeated"] == 0
    assert again["repeated"] > 0.9
    assert again["compressed"] < 0.1 < once["compressed"]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("I'm sorry, but as an AI I cannot say.", "refuses"),
        ("Es tut mir leid, das weiß ich nicht.", "refuses"),
        ("Perhaps it is seven.", "hedges"),
        ("It is seven, because", "open end"),
    ],
)
def test_what_is_said_and_how_it_ends_is_seen(text: str, name: str) -> None:
    assert seen_of(text)[name] > 0
    assert seen_of("It is seven.")[name] == 0


def test_an_answer_that_was_cut_is_seen() -> None:
    assert seen_of("a", finish_reason="length")["cut"] == 1
    assert seen_of("a", finish_reason="stop")["cut"] == 0


def test_words_of_the_question_are_seen() -> None:
    asked = "Who painted the ceiling of the Sistine Chapel?"
    near = seen_of("Michelangelo painted the Sistine ceiling.", question=asked)
    assert near["of the question"] == pytest.approx(3 / 4)
    assert seen_of("Bananas ripen.", question=asked)["of the question"] == 0


def test_without_text_an_end_is_not_sound() -> None:
    assert not is_sound("", " ", "\n")
    assert is_sound("", " ", "a")


def test_a_token_of_which_nothing_is_known_makes_it_unsound() -> None:
    draft = Draft("")
    draft.add(Delta(text="from somewhere else"))
    for piece in written("and", "more"):
        draft.add(piece)
    assert not draft.seen(finish_reason="stop").sound


def test_text_released_at_the_end_follows_its_tokens() -> None:
    draft = Draft("")
    for piece in written("so", " it is"):
        draft.add(piece)
    draft.add(Delta(text=" done."))
    assert draft.seen(finish_reason="stop").sound


@pytest.mark.parametrize(
    "answer",
    ['{"name": "A"', '{"name": A}', '```json\n{"a": 1\n```', "[" * 5000, '{"a": 1} ok'],
)
def test_json_that_was_asked_for_has_to_be_whole(answer: str) -> None:
    assert not is_sound(answer, question="Give it as JSON.")
    assert is_sound(answer, question="Give it.")


@pytest.mark.parametrize(
    "answer", ['{"name": "A"}', '```json\n{"a": 1}\n```', "JSON is a format.", "[1, 2]"]
)
def test_whole_json_and_words_about_it_are_sound(answer: str) -> None:
    assert is_sound(answer, question="Give it as JSON.")


def test_json_whose_middle_was_not_kept_is_not_taken_for_whole() -> None:
    long = '{"a": "' + "b" * MAX_CHARS + '"}'
    assert not is_sound(long, question="as json")


# A cubic pattern of another program stood ten minutes over such a row. This one would
# not end either, if a pattern here repeated what repeats.
@pytest.mark.parametrize("piece", ["7", "1+", "1 + ", "1=", "9.", "{", "```\n", "a b "])
def test_a_row_of_anything_is_walked_through(piece: str) -> None:
    seen = seen_of(piece * MAX_CHARS, question=piece * MAX_CHARS + " json")
    assert all(map(math.isfinite, seen.values()))


def test_of_a_long_answer_two_ends_are_looked_at() -> None:
    head, tail = "a" * (MAX_CHARS - TAIL_CHARS), "c" * TAIL_CHARS
    one = seen_of(head, "b" * 9000, tail)
    assert seen_of(head, "7" * 9000, tail) == one
    assert seen_of(head, "7" * 9000, tail[1:] + "7") != one


def test_of_a_long_question_its_beginning_is_looked_at() -> None:
    asked = "q" * MAX_CHARS
    assert seen_of("a", question=asked + "8 json") == seen_of("a", question=asked)


def test_of_endless_tokens_the_first_are_looked_at() -> None:
    def seen(probability: float) -> tuple[float, ...]:
        draft = Draft("")
        for piece in written(*["a"] * MAX_SIGNALS):
            draft.add(piece)
        for piece in written(*"aaa", probability=probability):
            draft.add(piece)
        assert draft.tokens == MAX_SIGNALS + 3
        return draft.seen().values

    assert seen(0.01) == seen(0.99)


def test_an_observation_prints_no_content() -> None:
    draft = Draft("a canary")
    for piece in written("another canary"):
        draft.add(piece)
    assert "0." not in repr(draft.seen())
    assert "canary" not in repr(draft)


@pytest.mark.parametrize(
    "signal",
    [
        TokenSignal(logprob=math.nan, margin=4.0),
        TokenSignal(logprob=-0.1, margin=math.nan),
    ],
)
def test_what_is_no_number_is_not_sure(signal: TokenSignal) -> None:
    draft = Draft("Why?")
    draft.add(Delta(text="Because.", signals=(signal,)))
    assert not draft.seen(finish_reason="stop").sound
