"""The demonstration's display of an answer."""

import io
import json
from types import SimpleNamespace
from typing import Any

import pytest

from curtilage_dev import demo
from curtilage_dev.demo import AIM, CANNOT, DAY, MARK, MAX_TOKENS, Outcome, Question
from curtilage_dev.office import TASKS, Answered, Pair

SAID = {"class": "", "route": "local", "rule": "default"}


@pytest.mark.parametrize("model", ["embedded", "/models/useful.gguf"])
@pytest.mark.parametrize("cut", [True, False])
def test_an_answer_says_if_it_was_cut_or_is_a_demonstration_model_s(
    *,
    cut: bool,
    model: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    ends = "length" if cut else "stop"
    events: list[object] = [
        {"choices": [{"delta": {"content": ""}, "finish_reason": None}]},
        {"choices": [{"delta": {"content": "So much"}, "finish_reason": None}]},
        {"choices": [{"delta": {}, "finish_reason": ends}]},
    ]
    first: dict[str, object] = {"curtilage": SAID, "choices": ()}
    lines = [f"data: {json.dumps(each)}\n" for each in (first, *events)]
    body = io.BytesIO(("".join(lines) + "data: [DONE]\n").encode())
    stack: Any = SimpleNamespace(client_url="http://127.0.0.1:1/v1", model=model)

    def answers(*_asked: object, **_more: object) -> io.BytesIO:
        return body

    monkeypatch.setattr(demo, "open_answer", answers)
    outcome = demo.ask(stack, Question(text="Why?"))
    assert (outcome.text, outcome.cut) == ("So much", cut)
    shown = capsys.readouterr().out
    assert (f" cut at {MAX_TOKENS} tokens" in shown) is cut
    assert (MARK in shown) is (model == "embedded")


def test_only_what_no_other_tier_was_asked_is_said_not_to_have_been_sent() -> None:
    assert demo.where({"route": "local"}).endswith("; nothing was sent")
    tried = {"route": "local", "fallback": "enclave_unreachable"}
    assert "nothing was sent" not in demo.where(tried)


@pytest.mark.parametrize(
    ("expected", "route", "fine"),
    [
        ("local", "local", True),
        ("local", "on_premises", True),
        ("enclave", "enclave", True),
        ("local", "enclave", False),
        ("enclave", "on_premises", False),
        (None, "enclave", True),
        # What the aim decides has to be foreseen before it is asked.
        (AIM, "enclave", False),
    ],
)
def test_a_route_that_is_not_the_expected_one_is_seen(
    *, expected: str | None, route: str, fine: bool
) -> None:
    outcome = Outcome(
        question=Question(text="Why?", expected=expected), said={"route": route}
    )
    assert outcome.as_expected is fine


@pytest.mark.parametrize(
    ("expected", "fallback", "fine"),
    [
        ("local", "draft_rejected", True),
        ("local", "local_timeout", False),
        ("enclave", "draft_rejected", True),
    ],
)
def test_a_draft_that_was_rejected_was_written_locally(
    *, expected: str, fallback: str, fine: bool
) -> None:
    outcome = Outcome(
        question=Question(text="Why?", expected=expected),
        said={"route": "enclave", "fallback": fallback},
    )
    assert outcome.as_expected is fine


@pytest.mark.parametrize(
    ("day", "twenty", "code"),
    [
        ("local", "local", 0),
        ("enclave", "local", 1),
        ("local", "enclave", 1),
    ],
)
def test_a_wrong_route_of_a_day_or_of_the_twenty_fails_the_demo(
    day: str, twenty: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    def side(*, local: bool) -> Answered:
        tier = "local" if local else "enclave"
        return Answered(
            task=TASKS[0], tier=tier, local=local, first_s=1.0, tokens=9, right=True
        )

    outcome = Outcome(
        question=Question(text="Why?", expected=day), said={"route": "local"}
    )
    pair = Pair(routed=side(local=True), other=side(local=False), expected=twenty)
    assert demo.verdict([outcome, pair]) == code
    said = "1 of 2 routes are not the expected ones" in capsys.readouterr().out
    assert said is (code == 1)


def test_what_the_policy_keeps_local_does_not_depend_on_the_aim() -> None:
    assert [question.expected for question in DAY].count("local") == 3
    assert [question.expected for question in DAY].count(AIM) == 3


def test_what_the_embedded_model_cannot_do_is_said_in_two_lines() -> None:
    assert len(CANNOT.splitlines()) == 2


def test_questions_sent_meanwhile_are_not_among_those_shown() -> None:
    seen: list[dict[str, object]] = [{"start": start} for start in (1.0, 5.0, 9.0)]
    assert demo.outside((4.0, 6.0), seen) == [seen[0], seen[2]]
    assert demo.outside((0.0, 0.0), seen) == seen
