"""The demonstration's twenty questions: their checks, their routes, what they cost."""

import io
import json
import re
from collections.abc import Mapping
from threading import Event, Timer

import pytest
from typing_extensions import override

from curtilage.client.chat.query import single_query
from curtilage.client.local.registry.catalogue import known
from curtilage.client.routing.estimators import open_estimator
from curtilage.client.routing.router import Router
from curtilage.policy.decision.tiers import Permitted, RoutingClass
from curtilage.policy.document.load import load_policy, profile_text
from curtilage_dev import office
from curtilage_dev.demo_model import LONG, SHORT
from curtilage_dev.forecast import expected_of
from curtilage_dev.office import (
    TASKS,
    Answered,
    Asking,
    Lengths,
    Pair,
    Task,
    is_right,
    other_side,
    row,
    summed,
    table,
    ways,
)
from curtilage_dev.processes import ProcessError

PLAN = load_policy(profile_text("default")).routing
assert PLAN is not None
MASK = Permitted(
    routing_class=RoutingClass.PUBLIC,
    tiers=load_policy(profile_text("default")).rulebook.tiering.tiers,
)
PRICES = {"local": 50_000, "enclave": 500_000}
MEDIAN = """
def median(values):
    ordered = sorted(values)
    half = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[half]
    return (ordered[half - 1] + ordered[half]) / 2
"""
SUMS = "SELECT customer, SUM(amount) AS total FROM orders\nGROUP BY customer"
# Of each question a right answer and a wrong one, in the order of ``TASKS``.
ANSWERS = (
    ("Complaint.", "A complaint or a question."),
    ("Negativ", "Sie ist positiv, nicht negativ."),
    ("C'est une phrase négative.", "Positive"),
    ("The order number is PX-4471.", "The order number is PX-4417."),
    ("Raum 214", "Im Keller"),
    ("She doesn't have the keys.", "She don't have the keys."),
    ("The office is closed.", "The office is open."),
    ("¡Buenos días!", "Buenas noches"),
    ("Lisbon is the capital.", "Madrid"),
    ("È Parigi.", "È Roma."),
    ("There are 1,440 minutes.", "There are 14400 minutes."),
    ("contact us with any question.", "hesitate"),
    ("Mit freundlichen Grüßen", "Mit freundlichen Menschen"),
    ("It prints 84.", "It prints 140."),
    (MEDIAN, f"import statistics\n{MEDIAN}"),
    (
        f"{SUMS}\nORDER BY total DESC;",
        f"{SUMS};",
    ),
    ("The rate is 4/12. Answer: 3 hours", "Answer: 3.5 hours"),
    ("**Antwort:** Der Preis ist 270 Euro", "Antwort: 275"),
    ("Respuesta: 6", "Respuesta: 13.5 de 6"),
    ("Answer: D, B, A, C", "Answer: A, D, B, C"),
)


def router(quality: int) -> Router:
    assert PLAN is not None
    return Router(
        PLAN, open_estimator(), clock=lambda: 0.0, home_quality=lambda: quality
    )


def quality_of(name: str) -> int:
    model = known(name)
    assert model is not None
    return model.quality_permille


def answered(
    number: int,
    *,
    local: bool,
    right: bool = True,
    first_s: float = 1.0,
    rejected: bool = False,
) -> Answered:
    return Answered(
        task=TASKS[number],
        tier="local" if local else "enclave",
        local=local,
        first_s=first_s,
        tokens=100,
        right=right,
        rejected=rejected,
    )


def test_thirteen_are_routine_and_seven_hard_in_several_languages() -> None:
    assert len(TASKS) == 20
    assert sum(task.hard for task in TASKS) == 7
    assert len({task.language for task in TASKS}) >= 5
    assert {"classify", "extract", "rewrite", "fact", "complete"} == {
        task.kind for task in TASKS if not task.hard
    }


@pytest.mark.parametrize(
    ("task", "answers"), list(zip(TASKS, ANSWERS, strict=True)), ids=map(str, range(20))
)
def test_a_check_knows_a_right_answer_from_a_wrong_one(
    task: Task, answers: tuple[str, str]
) -> None:
    right, wrong = answers
    assert is_right(task, right)
    assert is_right(task, f"\n{right.upper()}\n")
    assert not is_right(task, wrong)
    assert not is_right(task, "")
    # A model that only says the question again has not answered it.
    assert not is_right(task, task.text) or task.kind == "extract"


def test_a_useful_model_answers_the_routine_and_the_hard_are_sent() -> None:
    asked = router(quality_of("qwen2.5-coder-1.5b"))
    # Twice: what was asked is counted among ordinary traffic, and moves no question.
    for _ in range(2):
        for task in TASKS:
            routed = asked.route(MASK, single_query(task.text), conversation=b"")
            assert expected_of(routed.standing) == (
                "enclave" if task.hard else "local"
            ), task.text
            assert routed.choice.order[0].id == expected_of(routed.standing)
            asked.asked(routed)


def test_with_the_embedded_model_all_are_sent() -> None:
    asked = router(quality_of("default"))
    for task in TASKS:
        routed = asked.route(MASK, single_query(task.text), conversation=b"")
        assert expected_of(routed.standing) == "enclave", task.text


def test_what_must_be_kept_local_is_expected_there() -> None:
    assert expected_of(None) == "local"


def test_tokens_cost_what_their_tier_costs() -> None:
    answers = [answered(0, local=True), answered(1, local=False, right=False)]
    way = summed("as routed", answers, PRICES)
    assert (way.asked, way.local, way.right) == (2, 1, 1)
    # 100 tokens of each: 5 and 50 millionths of a dollar for two questions.
    assert way.thousand_usd == pytest.approx(0.0275)


def test_the_first_text_is_the_median_s() -> None:
    times = (0.5, 9.0, 1.5)
    answers = [
        answered(number, local=True, first_s=first_s)
        for number, first_s in enumerate(times)
    ]
    assert summed("all-local", answers, PRICES).first_s == 1.5


def pairs() -> list[Pair]:
    return [
        Pair(
            routed=answered(0, local=True),
            other=answered(0, local=False),
            expected="local",
        ),
        Pair(
            routed=answered(19, local=False),
            other=answered(19, local=True, right=False),
            expected="enclave",
        ),
    ]


def test_each_way_has_the_answers_of_its_side() -> None:
    routed, enclave, local = ways(pairs(), PRICES)
    assert [way.local for way in (routed, enclave, local)] == [1, 0, 2]
    assert [way.right for way in (routed, enclave, local)] == [2, 2, 1]
    assert enclave.thousand_usd > routed.thousand_usd > local.thousand_usd


def test_the_table_says_share_saving_and_right_answers() -> None:
    head, *rows, last = table(ways(pairs(), PRICES))
    assert "$ per 1,000" in head
    assert [line.split()[0] for line in rows] == ["as", "all-enclave", "all-local"]
    assert re.findall(r"[+\d]+(?: %)?", last) == ["50 %", "45 %", "+0"]


@pytest.mark.parametrize(
    ("expected", "routed", "other", "fine"),
    [
        ("local", True, False, True),
        ("enclave", False, True, True),
        ("local", False, True, False),
        ("enclave", True, False, False),
        # The other side did not answer, although the request asked for it.
        ("local", True, True, False),
        ("enclave", False, False, False),
    ],
)
def test_a_side_that_should_not_have_answered_is_seen(
    *, expected: str, routed: bool, other: bool, fine: bool
) -> None:
    pair = Pair(
        routed=answered(3, local=routed),
        other=answered(3, local=other),
        expected=expected,
    )
    assert pair.as_expected is fine
    assert row(4, pair).startswith("ok " if fine else "NOT")


@pytest.mark.parametrize("expected", ["local", "enclave"])
def test_the_enclave_may_answer_for_a_draft_that_was_rejected(expected: str) -> None:
    pair = Pair(
        routed=answered(0, local=False, rejected=True),
        other=answered(0, local=True),
        expected=expected,
    )
    assert pair.as_expected
    assert ", draft rejected |" in row(1, pair)
    wrong = Pair(routed=pair.other, other=pair.routed, expected="enclave")
    assert not wrong.as_expected


def test_a_row_has_both_sides_on_a_line() -> None:
    line = row(14, pairs()[1])
    assert "\n" not in line
    assert re.search(r"enclave +1.00 s right +\| local +1.00 s wrong", line)


def test_the_other_side_is_asked_for() -> None:
    assert other_side(answered(0, local=True)) == {"require": "enclave"}
    assert other_side(answered(0, local=False)) == {"mode": "home"}


def test_hard_answers_may_be_longer_with_a_useful_model() -> None:
    routine, hard = TASKS[0], TASKS[19]
    assert (LONG.of(routine), LONG.of(hard)) == (LONG.routine, LONG.hard)
    assert LONG.hard > LONG.routine > SHORT.hard


def stream(route: str, *pieces: str) -> io.BytesIO:
    said: list[dict[str, object]] = [
        {"choices": [{"delta": {"content": piece}}]} for piece in pieces
    ]
    events: list[dict[str, object]] = [
        {"curtilage": {"route": route, "tier": route}, "choices": []},
        *said,
        {"choices": [], "usage": {"prompt_tokens": 30, "completion_tokens": 4}},
    ]
    lines = "".join(f": at work\ndata: {json.dumps(each)}\n\n" for each in events)
    return io.BytesIO(f"{lines}data: [DONE]\n".encode())


class Held(io.BytesIO):
    """A stream whose last event comes once a gate is open."""

    def __init__(self, body: bytes, gate: Event) -> None:
        super().__init__(body)
        self._gate = gate

    @override
    def __next__(self) -> bytes:
        line = super().__next__()
        if b"[DONE]" in line:
            self._gate.wait()
        return line


@pytest.mark.parametrize("overlap", [True, False])
def test_what_was_answered_is_read_from_the_stream(
    *, overlap: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[object] = []

    def opened(
        _url: str, _text: str, *, max_tokens: int, more: Mapping[str, object]
    ) -> io.BytesIO:
        given.append((max_tokens, more["curtilage"], more["stream_options"]))
        return stream("enclave", "", "The order number ", "is PX-4471.")

    monkeypatch.setattr(office, "open_answer", opened)
    asking = Asking(
        url="http://127.0.0.1:1/v1", lengths=Lengths(routine=9, hard=7), overlap=overlap
    )
    dots: list[None] = []
    one, other = asking.ask_all(
        [(TASKS[3], {}), (TASKS[19], {"mode": "home"})], lambda: dots.append(None)
    )
    assert (one.tier, one.local, one.tokens, one.right) == ("enclave", False, 34, True)
    assert not other.right
    assert len(dots) == 2
    counted = {"include_usage": True}
    assert sorted(given, key=str) == [
        (7, {"mode": "home"}, counted),
        (9, {}, counted),
    ]


def test_an_interruption_waits_for_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Event()

    def opened(*_asked: object, **_more: object) -> io.BytesIO:
        return Held(stream("enclave", "Com", "plaint.").getvalue(), gate)

    def interrupt() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(office, "open_answer", opened)
    asking = Asking(url="http://127.0.0.1:1/v1", lengths=SHORT, overlap=True)
    opens = Timer(20, gate.set)
    opens.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            asking.ask_all([(TASKS[0], {})], interrupt)
        assert not gate.is_set()
    finally:
        opens.cancel()
        gate.set()


def test_a_question_without_an_answer_ends_the_comparison(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def opened(*_asked: object, **_more: object) -> io.BytesIO:
        raise ProcessError("the local model is busy")

    monkeypatch.setattr(office, "open_answer", opened)
    asking = Asking(url="http://127.0.0.1:1/v1", lengths=SHORT)
    with pytest.raises(ProcessError, match="the local model is busy"):
        asking.ask_all([(TASKS[0], {})], lambda: None)
