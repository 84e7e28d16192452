"""What models of the catalogue answered right, and how a learned gain ranks it."""

import json
from pathlib import Path

import pytest
from lab.training.router.outcomes import (
    FILE,
    Asked,
    last_number,
    read_outcomes,
    right,
    sorting,
)
from lab.training.router.sources import Outcome

from curtilage.client.chat.answer import Delta
from curtilage.client.local.registry.catalogue import catalogue
from curtilage.lab.commands.answered_file import AnsweredBy, AnsweredRow, line_of
from curtilage.lab.commands.grading import Expected

MESSAGES = [
    (f"I ask about number {number} of the {topic}, please.", topic)
    for number in range(6)
    for topic in ("kettle", "ladder", "carpet", "lamp", "table")
]
BY = AnsweredBy(model_sha256="11" * 32, template_sha256="22" * 32, quantisation="Q4_0")


def test_the_same_messages_are_sorted_each_time() -> None:
    some = list(sorting(iter(MESSAGES), "invented", 12))
    assert some == list(sorting(iter(reversed(MESSAGES)), "invented", 12))
    assert len({each.name for each in some}) == 12
    topics = {topic for _, topic in MESSAGES}
    for each in some:
        (about,) = each.expect.values()
        (message,) = [text for text, _ in MESSAGES if text in each.text]
        asked = each.text.replace(message, "")
        assert about in asked
        assert len([topic for topic in topics if topic in asked]) == 4


@pytest.mark.parametrize(
    ("result", "answer", "met"),
    [
        ("1200", "So it is 3 * 400 = 1200.", True),
        ("1200", "**1,200** dollars", True),
        ("1200", "1200.00", True),
        ("1200", "It is 1200, of which 3 are left", False),
        ("1200", "11200", False),
        ("1200", "1.1200", False),
        ("1200", "12001", False),
        ("2.5", "The result is 2.50 $", True),
        ("2.5", "25", False),
        ("2.5", "12.5", False),
    ],
)
def test_a_sum_is_right_by_its_last_number(
    result: str, answer: str, *, met: bool
) -> None:
    assert Expected(kind="regex", value=last_number(result)).met_by(answer) is met


def test_answers_are_graded_and_kept_without_a_word_of_them(tmp_path: Path) -> None:
    from lab.training.router.measure import answered_right  # noqa: PLC0415 - see needs

    questions = list(sorting(iter(MESSAGES), "invented", 3))
    said = [questions[0].expect["equals"].title() + ".", "none"]
    rows = [
        AnsweredRow(
            text=each.text, deltas=(Delta(text=text),), finish="stop", grade=0, model=BY
        )
        for each, text in zip(questions, said, strict=False)
    ]
    answers = tmp_path / "answers.jsonl"
    answers.write_bytes(b"".join(map(line_of, rows)))
    found = right(answers, questions)
    assert found == {"invented": {questions[0].name: 1, questions[1].name: 0}}
    kept = tmp_path / "outcomes.json"
    kept.write_text(json.dumps({"small": found}))
    read = read_outcomes(questions, kept)["small"]
    assert [(row.text, row.weak, row.strong) for row in read] == [
        (questions[0].text, 1, 1.0),
        (questions[1].text, 0, 1.0),
    ]
    assert answered_right(read) == {"invented": "1 of 2"}


def test_the_outcomes_are_of_models_of_the_catalogue() -> None:
    of = json.loads(FILE.read_text("utf-8"))
    assert of.keys() <= {each.name for each in catalogue()}
    assert of, "no outcome is there"
    for sets in of.values():
        assert sum(map(len, sets.values())) >= 300


def test_a_head_is_measured_by_what_it_did_not_learn() -> None:
    from lab.training.router.measure import carried_over  # noqa: PLC0415 - see needs

    """Each set has words of its own: where one was not learned, none is known."""
    rows = [
        Outcome(f"please {word} item {number}", float(easy), 1.0, origin)
        for origin, words in (
            ("one", ("integral", "hello")),
            ("two", ("fact", "hi")),
        )
        for number in range(40)
        for word, easy in zip(words, (False, True), strict=True)
    ]
    found = carried_over(rows, [], {"rules": len, "length": len, "shipped": len})
    within, apart = (
        found["apgr, head, in distribution"],
        found["apgr, head, set not learned"],
    )
    assert isinstance(within, float)
    assert isinstance(apart, float)
    assert within == pytest.approx(0.75), "half of the rows gain: no order is better"
    assert apart < 0.65


def test_a_question_is_named_by_its_digest() -> None:
    question = Asked("a", "set", {"equals": "b"}, 1.0)
    assert question.name == "ca978112ca1b"
