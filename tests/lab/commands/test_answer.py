"""``route answer``: answers with how sure the model was, graded as far as can be."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from curtilage.cli import main as cli
from curtilage.cli import terminal
from curtilage.client.audit.export import ALREADY_THERE
from curtilage.client.chat.query import Settings
from curtilage.client.errors import UsageError
from curtilage.client.local.model import LocalModel
from curtilage.client.system.files import locked
from curtilage.lab.commands import answer as answering
from curtilage.lab.commands import table
from curtilage.lab.commands.answered_file import (
    AnsweredBy,
    AnsweredRow,
    line_of,
    read_answered,
)
from curtilage.lab.commands.begun_file import (
    IN_USE,
    KEPT,
    OTHER_SETTINGS,
    USED_AGAIN,
)
from curtilage.lab.commands.grading import Asked
from curtilage_dev.scripted_engine import SCRIPTED_INFO, Script, ScriptedEngine
from support.drafts import written

BY = AnsweredBy(
    model_sha256=SCRIPTED_INFO.model_sha256,
    template_sha256=SCRIPTED_INFO.template_sha256,
    quantisation="",
)
CLOSED = "Say that we are closed"


@pytest.fixture
def questions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Two questions, and a model that answers them."""
    (tmp_path / "model.gguf").write_bytes(b"not read")

    def opened(*_: object, **__: object) -> LocalModel:
        engine = ScriptedEngine(
            Script(pieces=("The answer", " is 56."), probability=0.9),
            Script(pieces=("We are closed.",)),
        )
        return LocalModel(lambda: engine, model_id="scripted")

    monkeypatch.setattr(LocalModel, "of", opened)
    path = tmp_path / "questions.jsonl"
    path.write_text(
        '{"text": "7 * 8 = ?", "task": "sums", "expect": {"contains": "56"}}\n'
        f'{{"text": "{CLOSED}"}}\n',
        "utf-8",
    )
    monkeypatch.chdir(tmp_path)
    return str(path)


def ask(questions: str, *more: str) -> int:
    model = ["--model", "./model.gguf", "--model-sha256", "00" * 32]
    return cli.main(
        ["route", "answer", "--data", questions, "--out", "answered.jsonl", *model,
         *more]
    )  # fmt: skip


def test_how_far_it_is_ends_its_line(
    questions: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(terminal, "SHOWN_AFTER_S", -1.0)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    assert ask(questions) == 0
    assert capsys.readouterr().err.endswith("2 of 2 questions\n")


def test_what_is_expected_grades_and_the_rest_waits(
    questions: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ask(questions) == 0
    out = Path("answered.jsonl")
    first, second = map(json.loads, out.read_text("utf-8").splitlines())
    assert (first["grade"], second["grade"]) == (1.0, None)
    assert first["tokens"][1] == [" is 56.", pytest.approx(-0.105, abs=1e-3),
                                  pytest.approx(2.197, abs=1e-3)]  # fmt: skip
    assert first["model"]["model_sha256"] == SCRIPTED_INFO.model_sha256
    assert out.stat().st_mode & 0o077 == 0
    shown = capsys.readouterr().out
    assert "2 of 2 answered, 1 graded" in shown
    assert "answered.jsonl, then certify" in shown
    with pytest.raises(UsageError, match="line 2: not graded"):
        read_answered(out)


def test_a_model_with_an_adapter_is_not_the_model(
    questions: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = replace(SCRIPTED_INFO, adapter_sha256="ad" * 32)

    def opened(*_: object, **__: object) -> LocalModel:
        return LocalModel(lambda: ScriptedEngine(info=info), model_id="tuned")

    monkeypatch.setattr(LocalModel, "of", opened)
    assert ask(questions) == 0
    first, *_ = Path("answered.jsonl").read_text("utf-8").splitlines()
    named = json.loads(first)["model"]["model_sha256"]
    assert named == f"{SCRIPTED_INFO.model_sha256}+{'ad' * 32}"


def test_no_file_is_overwritten(
    questions: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("answered.jsonl").write_text("mine", "utf-8")
    assert ask(questions) == 2
    assert ALREADY_THERE in capsys.readouterr().err
    assert Path("answered.jsonl").read_text("utf-8") == "mine"


@pytest.mark.parametrize(
    "line",
    [
        '{"expect": {"equals": "a"}}',
        '{"text": "a", "expect": {"is": "a"}}',
        '{"text": "a", "grade": 1}',
        "[]",
        "",
    ],
)
def test_what_is_no_question_is_refused(
    questions: str, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(questions).write_text(f"{line}\n", "utf-8")
    assert ask(questions) == 2
    assert "questions.jsonl" in capsys.readouterr().err
    assert not Path("answered.jsonl").exists()


def test_what_is_written_is_read(tmp_path: Path) -> None:
    row = AnsweredRow(
        text="Why?", deltas=tuple(written("So", " it")), finish="stop", grade=0.5,
        model=BY,
    )  # fmt: skip
    path = tmp_path / "answered.jsonl"
    path.write_bytes(line_of(row) * 2)
    assert read_answered(path) == (row, row)
    assert "Why" not in repr(row)


def test_it_asks_the_model_of_this_machine_alone() -> None:
    assert table.answer.offline
    assert not hasattr(answering, "session_from")


PARTIAL = Path("answered.jsonl.partial")


class Interrupted:
    """Answers questions as usual, and is interrupted at the one it is given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[str] = []
        self.at: int | None = None
        usual = answering._row  # pyright: ignore[reportPrivateUsage]

        async def row(
            model: LocalModel, by: AnsweredBy, question: Asked, settings: Settings
        ) -> AnsweredRow:
            if len(self.asked) == self.at:
                raise KeyboardInterrupt
            self.asked.append(question.text)
            return await usual(model, by, question, settings)

        monkeypatch.setattr(answering, "_row", row)


@pytest.fixture
def interrupted(monkeypatch: pytest.MonkeyPatch) -> Interrupted:
    return Interrupted(monkeypatch)


def stop_after_one(questions: str, interrupted: Interrupted) -> None:
    interrupted.at = 1
    assert ask(questions) == cli.INTERRUPTED
    interrupted.at = None
    interrupted.asked.clear()


def test_an_interrupted_run_keeps_its_answers_in_sight(
    questions: str, interrupted: Interrupted, capsys: pytest.CaptureFixture[str]
) -> None:
    stop_after_one(questions, interrupted)
    said = capsys.readouterr().err
    assert f"answered.jsonl.partial {KEPT}" in said
    assert "7 * 8" not in said
    assert not Path("answered.jsonl").exists()
    assert PARTIAL.stat().st_mode & 0o077 == 0
    assert len(PARTIAL.read_text("utf-8").splitlines()) == 2


def test_the_same_command_goes_on(
    questions: str, interrupted: Interrupted, capsys: pytest.CaptureFixture[str]
) -> None:
    stop_after_one(questions, interrupted)
    assert ask(questions) == 0
    assert interrupted.asked == [CLOSED]
    shown = capsys.readouterr()
    assert f"1 answer {USED_AGAIN}" in shown.err
    assert "2 of 2 answered, 1 graded" in shown.out
    rows = [*map(json.loads, Path("answered.jsonl").read_text("utf-8").splitlines())]
    assert [row["text"] for row in rows] == ["7 * 8 = ?", CLOSED]
    assert rows[0]["grade"] == 1.0
    assert not PARTIAL.exists()


def test_an_answer_that_was_cut_off_is_asked_again(
    questions: str, interrupted: Interrupted
) -> None:
    stop_after_one(questions, interrupted)
    PARTIAL.write_bytes(PARTIAL.read_bytes()[:-9])
    assert ask(questions) == 0
    assert interrupted.asked == ["7 * 8 = ?", CLOSED]


def test_what_was_cut_off_is_gone_when_it_is_interrupted_twice(
    questions: str, interrupted: Interrupted
) -> None:
    stop_after_one(questions, interrupted)
    PARTIAL.write_bytes(PARTIAL.read_bytes()[:-9])
    stop_after_one(questions, interrupted)
    assert ask(questions) == 0
    assert interrupted.asked == [CLOSED]


def test_a_file_that_was_cut_in_its_head_is_begun_anew(
    questions: str, interrupted: Interrupted
) -> None:
    stop_after_one(questions, interrupted)
    PARTIAL.write_bytes(PARTIAL.read_bytes()[:20])
    assert ask(questions) == 0
    assert len(interrupted.asked) == 2


def test_answers_made_in_another_way_are_not_used(
    questions: str, interrupted: Interrupted, capsys: pytest.CaptureFixture[str]
) -> None:
    stop_after_one(questions, interrupted)
    kept = PARTIAL.read_bytes()
    assert ask(questions, "--temperature", "0.1") == 2
    assert OTHER_SETTINGS in capsys.readouterr().err
    assert PARTIAL.read_bytes() == kept
    assert interrupted.asked == []


def test_what_is_expected_now_grades_an_earlier_answer(
    questions: str, interrupted: Interrupted
) -> None:
    stop_after_one(questions, interrupted)
    lines = Path(questions).read_text("utf-8").replace('"56"', '"57"')
    Path(questions).write_text(lines, "utf-8")
    assert ask(questions) == 0
    first, _ = map(json.loads, Path("answered.jsonl").read_text("utf-8").splitlines())
    assert first["grade"] == 0.0


def test_a_question_asked_twice_has_two_answers(
    questions: str, interrupted: Interrupted
) -> None:
    Path(questions).write_text('{"text": "again"}\n' * 2, "utf-8")
    stop_after_one(questions, interrupted)
    assert ask(questions) == 0
    assert interrupted.asked == ["again"]
    assert len(Path("answered.jsonl").read_text("utf-8").splitlines()) == 2


def test_two_runs_do_not_write_one_file(
    questions: str, interrupted: Interrupted, capsys: pytest.CaptureFixture[str]
) -> None:
    with locked(PARTIAL, 0):
        assert ask(questions) == 2
    assert IN_USE in capsys.readouterr().err
    assert interrupted.asked == []


def test_a_partial_file_of_something_else_is_kept(
    questions: str, capsys: pytest.CaptureFixture[str]
) -> None:
    PARTIAL.write_text("mine\n", "utf-8")
    assert ask(questions) == 2
    assert "remove it" in capsys.readouterr().err
    assert PARTIAL.read_text("utf-8") == "mine\n"


def test_progress_is_reported_without_a_terminal(
    questions: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(terminal, "LOGGED_EVERY_S", 0.0)
    assert ask(questions) == 0
    said = capsys.readouterr().err
    assert re.findall(r"^(\d) of 2 ", said, re.MULTILINE) == ["1", "2"]
    assert "\x1b" not in said
