"""``route certify``: thresholds that hold, or a reason why there is no file."""

import json
import random
import re
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from curtilage.cli import main as cli
from curtilage.client.audit.export import ALREADY_THERE
from curtilage.client.routing.thresholds import read_thresholds
from curtilage.client.routing.verifier import Verdict, Verifier
from support.drafts import STOPPED, written

CANARY = "canary-91ab"
MODEL = {
    "model_sha256": "AB" * 32,
    "template_sha256": "cd" * 32,
    "quantisation": "Q4_K_M",
}


def row(sure: float, *, good: bool, tokens: int = 20, at: int = 0) -> dict[str, Any]:
    """An answer of one sureness."""
    return {
        "text": f"{CANARY} {at}?",
        "tokens": [[f"{CANARY} ", -(1 - sure), 4 * sure]] * tokens,
        "finish": "stop",
        "grade": float(good),
        "model": MODEL,
    }


def rows_of(count: int, *, separated: float = 1.0) -> list[dict[str, Any]]:
    """Answers of which the sure ones are good: always, or as often as chance has it."""
    drawn = random.Random(5)  # noqa: S311 - repeatable, no secret
    rows: list[dict[str, Any]] = []
    for at in range(count):
        sure = drawn.random()
        result = drawn.random() < separated
        good = sure > 0.4 if result else drawn.random() < 0.6
        rows.append(row(sure, good=good, at=at))
    return rows


def file_of(folder: Path, rows: list[dict[str, Any]]) -> str:
    path = folder / "answered.jsonl"
    path.write_text("".join(f"{json.dumps(each)}\n" for each in rows), "utf-8")
    return str(path)


def test_a_valid_result_is_reported_and_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "ward.json"
    data = file_of(tmp_path, rows_of(1000))
    assert cli.main(["route", "certify", "--data", data, "--out", str(out)]) == 0
    shown = capsys.readouterr()
    thresholds = read_thresholds(out.read_bytes())
    assert thresholds.model_sha256 == "ab" * 32
    assert (thresholds.graded, thresholds.alpha) == (500, 0.1)
    assert 0.4 < thresholds.accepts < 0.7
    assert shown.out.index("any rule sends") < shown.out.index("AUROC")
    digest = sha256(out.read_bytes()).hexdigest()
    assert f'"ward.json", sha256: "{digest}"' in shown.out
    assert CANARY not in shown.out + shown.err + out.read_text("utf-8")


def test_what_was_certified_judges_drafts(tmp_path: Path) -> None:
    out = tmp_path / "ward.json"
    data = file_of(tmp_path, rows_of(1000))
    cli.main(["route", "certify", "--data", data, "--out", str(out)])
    thresholds = read_thresholds(out.read_bytes())
    for probability, verdict in ((0.9, Verdict.ACCEPT), (0.35, Verdict.REJECT)):
        judge = Verifier(thresholds.heads, thresholds.threshold, question=f"{CANARY}?")
        for piece in written(*[f"{CANARY} "] * 20, probability=probability):
            judge.feed(piece)
        assert judge.end(STOPPED) is verdict


def test_json_output_says_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = file_of(tmp_path, rows_of(1000))
    given = ["route", "certify", "--data", data, "--alpha", "0.05", "--json"]
    assert cli.main(given) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["certified"], result["alpha"], result["sha256"]) == (
        True,
        0.05,
        None,
    )
    assert result["upper"] <= 0.05
    assert result["auroc"] > 0.95


def refused(capsys: pytest.CaptureFixture[str], data: str, out: Path) -> str:
    assert cli.main(["route", "certify", "--data", data, "--out", str(out)]) == 1
    assert not out.exists()
    return capsys.readouterr().err


def test_no_file_is_overwritten_and_nothing_learned_for_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "ward.json"
    out.write_text("mine", "utf-8")
    data = file_of(tmp_path, rows_of(1))  # too few, which is found out later
    assert cli.main(["route", "certify", "--data", data, "--out", str(out)]) == 2
    shown = capsys.readouterr()
    assert ALREADY_THERE in shown.err
    assert shown.out == ""
    assert out.read_text("utf-8") == "mine"


def test_too_few_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = refused(capsys, file_of(tmp_path, rows_of(699)), tmp_path / "out")
    assert re.search("699 .* 200 ", said)
    assert "Nothing is written" in said


def test_a_score_that_separates_nothing_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = file_of(tmp_path, rows_of(1000, separated=0))
    assert "10% cannot be promised" in refused(capsys, data, tmp_path / "out")
    assert cli.main(["route", "certify", "--data", data, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["certified"] is False


def test_answers_that_are_all_good_teach_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = file_of(tmp_path, [row(0.9, good=True, at=at) for at in range(700)])
    assert "can be learned" in refused(capsys, data, tmp_path / "out")


def test_an_answer_that_is_not_sound_is_never_accepted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Even where all others may be: of the largest share there is no first one left."""
    good = [row(at / 1000, good=at % 100 > 0, at=at) for at in range(950)]
    empty = [row(0.9, good=False, tokens=0, at=at) for at in range(950, 1000)]
    data = file_of(tmp_path, [*good, *empty])
    assert cli.main(["route", "certify", "--data", data, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["threshold"] == 0
    assert result["accepted"] < 500


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"grade": None}, "line 2: not graded yet"),
        ({"grade": 2}, "line 2: expected a line"),
        ({"grade": True}, "line 2: expected a line"),
        ({"finish": "cancelled"}, "line 2: expected a line"),
        ({"tokens": [["a", -1.0]]}, "line 2: expected a line"),
        ({"tokens": [["a", "-1", 2]]}, "line 2: expected a line"),
        ({"tokens": [[1]]}, "line 2: expected a line"),
        ({"tokens": {"a": 1}}, "line 2: expected a line"),
        ({"more": 1}, "line 2: expected a line"),
        ({"model": {**MODEL, "more": ""}}, "line 2: expected a line"),
        ({"model": {**MODEL, "quantisation": None}}, "line 2: expected a line"),
        ({"model": {**MODEL, "quantisation": "Q8_0"}}, "line 2: another model"),
    ],
)
def test_a_wrong_line_is_named_and_not_shown(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    changes: dict[str, Any],
    said: str,
) -> None:
    good = row(0.9, good=True)
    data = file_of(tmp_path, [good, good | changes])
    assert cli.main(["route", "certify", "--data", data]) == 2
    shown = capsys.readouterr()
    assert said in shown.err
    assert CANARY not in shown.err


@pytest.mark.parametrize("alpha", ["0", "1", "-0.1", "nan"])
def test_no_share_is_no_error_rate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], alpha: str
) -> None:
    data = file_of(tmp_path, [row(0.9, good=True)])
    assert cli.main(["route", "certify", "--data", data, f"--alpha={alpha}"]) == 2
    shown = capsys.readouterr()
    assert "--alpha" in shown.err
    assert not shown.out


def test_of_several_answers_to_one_question_the_first_counts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = rows_of(300)
    data = file_of(tmp_path, rows * 3)
    said = refused(capsys, data, tmp_path / "out")
    assert re.search(r"\b900 .* 300 different ", said)
    assert " 300 graded " in said
