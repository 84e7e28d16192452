"""Answers that can be called good or bad."""

from dataclasses import replace

import pytest

from curtilage.client.chat.answer import Delta, Replaced, Retract, RetractReason
from curtilage.client.errors import UsageError
from curtilage.client.routing.trace import TraceLine
from curtilage.client.routing.tracing import MOST_ANSWERS, Gradable, Tracing
from support.route_traces import LINE


def test_an_answer_is_graded_once() -> None:
    gradable = Gradable()
    gradable.note("one", "ward", LINE)
    assert gradable.take("one") == ("ward", LINE)
    with pytest.raises(UsageError, match="no such answer"):
        gradable.take("one")


def test_of_answers_without_number_the_last_are_remembered() -> None:
    gradable = Gradable()
    for number in range(MOST_ANSWERS + 1):
        gradable.note(str(number), "ward", None)
    assert gradable.take("1") == ("ward", None)
    with pytest.raises(UsageError) as refused:
        gradable.take("0")
    assert refused.value.param == "id"


def test_an_unknown_id_is_not_repeated() -> None:
    with pytest.raises(UsageError) as refused:
        Gradable().take("my name is Maria")
    assert "Maria" not in str(refused.value)


def test_a_grade_keeps_the_tier_and_little_else() -> None:
    line = replace(LINE, classes=("health.condition",), fallback="busy", length=4096)
    word = line.graded(good=True, at="2026-11-23T14:00Z")
    assert TraceLine.parse(word.encoded()) == word
    assert not word.answered
    other = replace(
        line, length=64, prompt_tokens=16, ttft_ms=50, permitted=("enclave",)
    )
    assert other.graded(good=True, at=word.at) == word


def test_the_first_text_is_the_first_of_the_final_answer() -> None:
    tracing = Tracing(began_s=0)
    tracing.saw(Delta(text="I guess", tentative=True), 1.0)
    tracing.saw(Retract(from_char=0, reason=RetractReason.NOT_GOOD_ENOUGH), 2.0)
    tracing.saw(Replaced(tier="enclave"), 2.0)
    assert tracing.first_s is None
    tracing.saw(Delta(text="It is"), 3.0)
    tracing.saw(Delta(text=" so."), 4.0)
    assert tracing.first_s == 3.0
