"""``route compare``: pairs of answers, speed, and the word at the end."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from curtilage.cli import main as cli
from curtilage.client.audit.export import ALREADY_THERE
from curtilage.client.chat.query import Query
from curtilage.client.errors import UsageError
from curtilage.client.local.model import LocalModel, ModelChoice
from curtilage.client.routing.router import WHY_NOT
from curtilage.lab.commands import compare as comparing
from curtilage.lab.commands.begun_file import KEPT, OTHER_SETTINGS, USED_AGAIN
from curtilage.lab.commands.compare import (
    Pairs,
    Reply,
    results_of,
    speed_of,
    words_of,
    written_pairs,
)
from curtilage.lab.commands.graded_file import GradedRow, read_graded
from curtilage.lab.commands.grading import Asked, Expected, Question
from curtilage.policy.decision.tiers import Denial
from curtilage_dev.scripted_engine import ScriptedEngine

CANARY = "canary-3c55"


def question(task: str, right: str = "yes") -> Question:
    return Question(
        text=CANARY, task=task, expected=Expected(kind="equals", value=right)
    )


def reply(text: str, *, first_s: float = 0.2, tokens: int = 11) -> Reply:
    return Reply(text=text, first_s=first_s, total_s=first_s + 0.5, tokens=tokens)


def test_tasks_are_reported_one_by_one_and_together() -> None:
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
    assert lines[1].startswith("sums ")
    assert not re.search(r"\d", lines[1])
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
    lines = [line | {"text": f"{CANARY} {at}"} for at in range(2)]
    path.write_text("".join(f"{json.dumps(each)}\n" for each in lines), "utf-8")
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
    result = json.loads(shown.out)
    assert result["accepted"] is False
    assert result["tasks"][-1]["count"] == 0
    assert result["speed"]["A"]["tokens_per_s"] > 0
    assert result["speed"]["B"] is None
    assert f" 2 of 2 unanswered: {WHY_NOT[Denial.ROUTE]}" in shown.err
    assert CANARY not in shown.out + shown.err


def test_the_embedded_model_is_as_good_as_itself(
    data: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["route", "compare", "--data", data, "--max-tokens", "4"]
    assert cli.main([*given, "--margin", "100", "default", "tier:local"]) == 0
    shown = capsys.readouterr().out
    assert "2 questions: A 100.0%, B 100.0%; difference +0.0 points" in shown
    assert "B is accepted" in shown


def test_graded_pairs_are_written_for_calibrate(
    data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "graded.jsonl"
    lines = [
        {"text": CANARY, "expect": {"regex": "."}},
        {"text": f"{CANARY} 2", "expect": {"equals": "no such answer"}},
    ]
    Path(data).write_text("".join(f"{json.dumps(each)}\n" for each in lines), "utf-8")
    given = ["route", "compare", "--data", data, "--max-tokens", "4", "--margin", "100"]
    assert cli.main([*given, "--out", str(out), "default", "default"]) == 0
    shown = capsys.readouterr()
    assert "2 graded pairs" in shown.out
    assert str(out) in shown.out
    assert CANARY not in shown.out + shown.err
    assert out.stat().st_mode & 0o077 == 0
    assert read_graded(out) == (
        GradedRow(text=CANARY, weak=1.0, strong=1.0),
        GradedRow(text=f"{CANARY} 2", weak=0.0, strong=0.0),
    )


def test_a_is_the_weak_side(tmp_path: Path) -> None:
    path = tmp_path / "graded.jsonl"
    replies: dict[str, list[Reply | None]] = {
        "A": [reply("no"), reply("yes"), None],
        "B": [reply("yes")] * 3,
    }
    asked = [replace(question("mail"), text=f"{CANARY} {at}") for at in range(3)]
    assert written_pairs(path, asked, replies) == Pairs(graded=2, open=0)
    pairs = [(row.weak, row.strong) for row in read_graded(path)]
    assert pairs == [(0.0, 1.0), (1.0, 1.0)]


def test_what_a_person_grades_has_both_answers(tmp_path: Path) -> None:
    path = tmp_path / "graded.jsonl"
    asked: list[Asked | Question]
    letter = f"{CANARY}, a letter"
    asked = [question("mail"), Asked(text=letter, task="letters", expected=None)]
    replies = {
        "A": [reply("yes"), reply("Dear A")],
        "B": [reply("yes"), reply("Hello")],
    }
    assert written_pairs(path, asked, replies) == Pairs(graded=1, open=1)
    _, line = map(json.loads, path.read_text("utf-8").splitlines())
    assert (line["weak"], line["strong"]) == (None, None)
    assert (line["weak_answer"], line["strong_answer"]) == ("Dear A", "Hello")
    with pytest.raises(UsageError, match="line 2: not graded"):
        read_graded(path)
    first, _ = path.read_text("utf-8").splitlines()
    graded = json.dumps(line | {"weak": 0.5, "strong": 1})
    path.write_text(f"{first}\n{graded}\n", "utf-8")
    assert read_graded(path)[1] == GradedRow(text=letter, weak=0.5, strong=1.0)


def test_what_a_person_grades_counts_for_neither_side() -> None:
    asked: list[Asked | Question]
    asked = [question("mail"), Asked(text=CANARY, task="letters", expected=None)]
    (whole,) = results_of(asked, [reply("yes")] * 2, [reply("yes")] * 2)
    assert whole.count == 1


def test_pairs_that_a_person_grades_are_enough(
    data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "graded.jsonl"
    Path(data).write_text(f"{json.dumps({'text': CANARY})}\n", "utf-8")
    given = ["route", "compare", "--data", data, "--max-tokens", "4"]
    assert cli.main([*given, "default", "default"]) == 2
    assert "expected text, expect" in capsys.readouterr().err
    assert cli.main([*given, "--out", str(out), "default", "default"]) == 0
    shown = capsys.readouterr().out
    assert "1 more have" in shown
    assert "accepted" not in shown


def test_no_file_is_overwritten_and_nothing_asked_for_it(
    data: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(LocalModel, "of", None)  # as it would be to ask anything
    out = tmp_path / "graded.jsonl"
    out.write_text("mine", "utf-8")
    given = ["route", "compare", "--data", data, "--out", str(out)]
    assert cli.main([*given, "default", "default"]) == 2
    assert ALREADY_THERE in capsys.readouterr().err
    assert out.read_text("utf-8") == "mine"


def test_an_interrupted_run_goes_on(
    data: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out, asked = tmp_path / "graded.jsonl", list[str]()
    stop_at: list[int] = [3]

    async def ask(_: object, query: Query) -> Reply:
        if len(asked) in stop_at:
            raise KeyboardInterrupt
        asked.append(query.messages[0].content)
        return reply("yes")

    monkeypatch.setattr(comparing, "_ask", ask)
    given = ["route", "compare", "--data", data, "--out", str(out), "--margin", "100"]
    assert cli.main([*given, "default", "default"]) == cli.INTERRUPTED
    partial = tmp_path / "graded.jsonl.partial"
    assert not out.exists()
    assert partial.stat().st_mode & 0o077 == 0
    said = capsys.readouterr().err
    assert f"{partial} {KEPT}" in said
    stop_at.clear()
    assert cli.main([*given, "--max-tokens", "9", "default", "default"]) == 2
    assert "other settings" in capsys.readouterr().err
    assert len(asked) == 3
    assert cli.main([*given, "default", "default"]) == 0
    shown = capsys.readouterr()
    assert f"3 answers {USED_AGAIN}" in shown.err
    assert len(asked) == 4
    assert len(read_graded(out)) == 2
    assert not partial.exists()
    assert CANARY not in said + shown.err + shown.out


@pytest.mark.parametrize(
    "other", [{"sha256": "bb" * 32}, {"adapter_sha256": "cc" * 32}]
)
def test_answers_of_another_file_under_the_name_are_not_used(
    other: dict[str, str],
    data: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    files = [ModelChoice(model_id="ward", path=tmp_path, sha256="aa" * 32)]
    asked = list[str]()

    def resolved(*_: object, **__: object) -> ModelChoice:
        return files[0]

    def opened(*_: object) -> LocalModel:
        return LocalModel(ScriptedEngine, model_id="scripted")

    async def ask(_: object, query: Query) -> Reply:
        if len(asked) == 3:
            raise KeyboardInterrupt
        asked.append(query.messages[0].content)
        return reply("yes")

    monkeypatch.setattr(comparing, "resolve", resolved)
    monkeypatch.setattr(LocalModel, "of", opened)
    monkeypatch.setattr(comparing, "_ask", ask)
    given = ["route", "compare", "--data", data, "ward", "ward"]
    given += ["--out", str(tmp_path / "graded.jsonl")]
    assert cli.main(given) == cli.INTERRUPTED
    capsys.readouterr()
    files[0] = replace(files[0], **other)  # type: ignore[arg-type]
    assert cli.main(given) == 2
    assert OTHER_SETTINGS in capsys.readouterr().err
    assert len(asked) == 3


def test_a_command_that_is_wrong_keeps_no_file(
    data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["route", "compare", "--data", data, "--out", str(tmp_path / "graded")]
    assert cli.main([*given, "default", "no-such-model"]) == 2
    assert ".partial" not in capsys.readouterr().err
    assert not list(tmp_path.glob("graded*"))


def test_a_side_that_has_answered_all_is_not_started_again(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[str]()

    async def ask(_: object, query: Query) -> Reply:
        if len(asked) == 2:
            raise KeyboardInterrupt
        asked.append(query.messages[0].content)
        return reply("yes")

    monkeypatch.setattr(comparing, "_ask", ask)
    given = ["route", "compare", "--data", data, "--margin", "100"]
    given += ["--out", str(tmp_path / "graded.jsonl"), "default", "default"]
    assert cli.main(given) == cli.INTERRUPTED
    started = list[object]()
    usual = LocalModel.of

    def opened(*names: object, **more: object) -> LocalModel:
        started.append(names)
        return usual(*names, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(LocalModel, "of", opened)

    async def once(_: object, query: Query) -> Reply:
        return reply(query.messages[0].role)

    monkeypatch.setattr(comparing, "_ask", once)
    assert cli.main(given) == 0
    assert len(started) == 1
