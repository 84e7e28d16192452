"""``route compare``: pairs of answers, speed, and the word at the end."""

import json
from pathlib import Path

import pytest

from curtilage.cli import main as cli
from curtilage.cli.route.compare import Reply, results_of, speed_of, words_of
from curtilage.cli.route.grading import Expected, Question

CANARY = "canary-3c55"


def question(task: str, right: str = "yes") -> Question:
    return Question(
        text=CANARY, task=task, expected=Expected(kind="equals", value=right)
    )


def reply(text: str, *, first_s: float = 0.2, tokens: int = 11) -> Reply:
    return Reply(text=text, first_s=first_s, total_s=first_s + 0.5, tokens=tokens)


def test_tasks_are_told_apart_and_together() -> None:
    questions = [question("mail"), question("mail"), question("sums")]
    yes, no = reply("yes"), reply("no")
    mail, sums, whole = results_of(questions, [yes, yes, no], [yes, no, yes])
    assert (mail.task, mail.count, mail.a, mail.b) == ("mail", 2, 2, 1)
    assert (sums.task, sums.count, sums.a, sums.b) == ("sums", 1, 0, 1)
    assert (whole.count, whole.a, whole.b) == (3, 2, 2)


def test_one_task_is_all_of_it() -> None:
    (whole,) = results_of([question("all")], [reply("yes")], [reply("yes")])
    assert whole.task == "all of it"


def test_what_one_side_left_unanswered_counts_for_neither() -> None:
    questions = [question("mail"), question("sums")]
    mail, sums, whole = results_of(
        questions, [reply("yes"), None], [reply("yes"), reply("yes")]
    )
    assert (mail.count, sums.count, whole.count) == (1, 0, 1)
    lines = list(words_of([mail, sums, whole], {}, {}))
    assert lines[1].endswith("no question that both answered")
    assert " 1 question: A 100.0%" in lines[0]


def test_speed_is_the_median_behind_the_first_text() -> None:
    speed = speed_of([reply("a"), reply("b", first_s=0.4), reply("c"), None])
    assert speed is not None
    assert speed["first_s"] == pytest.approx(0.2)
    assert speed["tokens_per_s"] == pytest.approx(20)
    assert speed_of([None]) is None


def test_one_token_has_no_speed() -> None:
    speed = speed_of([reply("a", tokens=1)])
    assert speed is not None
    assert speed["tokens_per_s"] == 0


def test_no_question_and_no_answer_is_shown() -> None:
    assert CANARY not in repr(question("mail"))
    assert "canary" not in repr(reply("canary"))


@pytest.fixture
def data(tmp_path: Path) -> str:
    path = tmp_path / "tasks.jsonl"
    line = {"text": CANARY, "expect": {"regex": "."}}
    path.write_text(f"{json.dumps(line)}\n" * 2, "utf-8")
    return str(path)


@pytest.mark.parametrize(
    ("sides", "said"),
    [
        (
            ["default", "tier:ward"],
            "the policy has no tier ward; it has local, enclave",
        ),
        (["./model.gguf", "default"], "add --sha256 HEX"),
        (["default", "default", "--sha256", "00"], "--sha256 is for a side"),
    ],
)
def test_what_is_no_side_is_refused(
    sides: list[str], said: str, data: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["route", "compare", "--data", data, *sides]) == 2
    assert said in capsys.readouterr().err


def test_a_tier_that_is_not_reached_answers_nothing(
    data: str, capsys: pytest.CaptureFixture[str]
) -> None:
    # Without a relay the enclave is asked nothing, and what is answered here instead
    # is no answer of the enclave's.
    given = ["route", "compare", "--data", data, "--max-tokens", "4", "--json"]
    assert cli.main([*given, "default", "tier:enclave"]) == 1
    shown = capsys.readouterr()
    told = json.loads(shown.out)
    assert told["accepted"] is False
    assert told["tasks"][-1]["count"] == 0
    assert told["speed"]["A"]["tokens_per_s"] > 0
    assert told["speed"]["B"] is None
    assert "left 2 of 2 unanswered: the text may not leave as it" in shown.err
    assert CANARY not in shown.out + shown.err


def test_the_embedded_model_is_as_good_as_itself(
    data: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["route", "compare", "--data", data, "--max-tokens", "4"]
    assert cli.main([*given, "--margin", "100", "default", "tier:local"]) == 0
    shown = capsys.readouterr().out
    assert "2 questions: A 100.0%, B 100.0%; difference +0.0 points" in shown
    assert "B is accepted" in shown
