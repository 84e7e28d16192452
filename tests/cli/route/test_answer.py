"""``route answer``: answers with how sure the model was, graded as far as can be."""

import json
from pathlib import Path

import pytest

from curtilage.cli import main as cli
from curtilage.cli import terminal
from curtilage.cli.route import answer as answering
from curtilage.cli.route.answered_file import (
    AnsweredBy,
    AnsweredRow,
    line_of,
    read_answered,
)
from curtilage.client.errors import UsageError
from curtilage.client.local.model import LocalModel
from curtilage.inference.scripted import SCRIPTED_INFO, Script, ScriptedEngine
from support.drafts import written

BY = AnsweredBy(
    model_sha256=SCRIPTED_INFO.model_sha256,
    template_sha256=SCRIPTED_INFO.template_sha256,
    quantisation="",
)


@pytest.fixture
def questions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Two questions, and a model that answers them."""
    engine = ScriptedEngine(
        Script(pieces=("The answer", " is 56."), probability=0.9),
        Script(pieces=("We are closed.",)),
    )
    model = LocalModel(lambda: engine, model_id="scripted")
    (tmp_path / "model.gguf").write_bytes(b"not read")

    def opened(*_: object, **__: object) -> LocalModel:
        return model

    monkeypatch.setattr(LocalModel, "of", opened)
    path = tmp_path / "questions.jsonl"
    path.write_text(
        '{"text": "7 * 8 = ?", "task": "sums", "expect": {"contains": "56"}}\n'
        '{"text": "Say that we are closed"}\n',
        "utf-8",
    )
    monkeypatch.chdir(tmp_path)
    return str(path)


def ask(questions: str) -> int:
    model = ["--model", "./model.gguf", "--model-sha256", "00" * 32]
    return cli.main(
        ["route", "answer", "--data", questions, "--out", "answered.jsonl", *model]
    )


def test_how_far_it_is_ends_its_line(
    questions: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(terminal, "TOLD_AFTER_S", -1.0)
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
    assert "give the others a grade" in shown
    with pytest.raises(UsageError, match="line 2: nobody graded it"):
        read_answered(out)


def test_no_file_is_overwritten(
    questions: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("answered.jsonl").write_text("mine", "utf-8")
    assert ask(questions) == 2
    assert "such a file already" in capsys.readouterr().err
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
    assert "route answer" in cli.OFFLINE
    assert not hasattr(answering, "session_from")
