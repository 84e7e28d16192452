"""``route calibrate``: a guarantee, or a reason why there is none and no file."""

import hashlib
import json
import random
from pathlib import Path

import pytest

from curtilage.cli import main as cli
from curtilage.client.routing.ngram import load_weights

CANARY = "canary-77f0"


def data(
    folder: Path, count: int, *, weak: float = 0.9, scored: bool = False
) -> str:  # fmt: skip
    """Questions whose verb says how often the home model fails."""
    drawn = random.Random(4)  # noqa: S311 - repeatable, no secret
    rows: list[dict[str, object]] = []
    for _ in range(count):
        hard = drawn.random() < 0.4
        good = drawn.random() < (0.1 if hard else weak)
        row: dict[str, object] = {
            "text": f"{CANARY}: {'reconcile' if hard else 'rename'} the ledger",
            "weak": int(good),
            "strong": 1,
        }
        rows.append(row | ({"score": drawn.random() - hard} if scored else {}))
    path = folder / "graded.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), "utf-8")
    return str(path)


def test_what_holds_is_told_and_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "router.npz"
    given = ["route", "calibrate", "--data", data(tmp_path, 800, weak=0.99)]
    assert cli.main([*given, "--out", str(out)]) == 0
    shown = capsys.readouterr()
    digest = hashlib.sha256(out.read_bytes()).hexdigest()
    assert load_weights(out.read_bytes(), digest).beats[1, 0] > 0.5
    assert f'file: "router.npz", sha256: "{digest}"' in shown.out
    assert "judged on 400 questions" in shown.out
    assert "any rule sends" in shown.out
    assert "may stay home" in shown.out
    assert CANARY not in shown.out + shown.err


def test_no_file_is_overwritten(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "router.npz"
    out.write_bytes(b"mine")
    given = ["route", "calibrate", "--data", data(tmp_path, 600, weak=0.99)]
    assert cli.main([*given, "--out", str(out)]) == 2
    assert "such a file already" in capsys.readouterr().err
    assert out.read_bytes() == b"mine"


def refused(capsys: pytest.CaptureFixture[str], path: str, out: Path) -> str:
    assert cli.main(["route", "calibrate", "--data", path, "--out", str(out)]) == 1
    assert not out.exists()
    return capsys.readouterr().err


def test_too_few_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = refused(capsys, data(tmp_path, 499), tmp_path / "out")
    assert "cannot certify: 499 graded questions; it takes 500" in said


def test_a_strong_tier_that_is_no_better_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "graded.jsonl"
    path.write_text('{"text": "a", "weak": 1, "strong": 0.5}\n' * 500, "utf-8")
    assert "keep everything home" in refused(capsys, str(path), tmp_path / "out")


def test_an_estimator_that_does_not_beat_chance_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    drawn = random.Random(8)  # noqa: S311 - repeatable, no secret
    path = tmp_path / "graded.jsonl"
    rows = [
        {"text": "the same question", "weak": int(drawn.random() < 0.9), "strong": 1}
        for _ in range(600)
    ]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), "utf-8")
    assert "chance has 0.50" in refused(capsys, str(path), tmp_path / "out")


def test_what_no_rate_holds_for_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = refused(capsys, data(tmp_path, 600, weak=0.5), tmp_path / "out")
    assert "not even 30% can be promised" in said


def test_a_reason_is_told_to_programs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["route", "calibrate", "--json", "--data", data(tmp_path, 400)]
    assert cli.main(given) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["certified"] is False
    assert "400" in told["reason"]


def test_scores_of_ones_own_are_judged_by_all_questions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = data(tmp_path, 900, weak=0.97, scored=True)
    assert cli.main(["route", "calibrate", "--json", "--data", path]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["graded"] == 900
    assert told["apgr"] is None
    first = told["certificates"][0]
    assert first["upper"] <= first["alpha"]


def test_scores_of_ones_own_make_no_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = data(tmp_path, 500, scored=True)
    out = tmp_path / "out"
    assert cli.main(["route", "calibrate", "--data", path, "--out", str(out)]) == 2
    assert "nothing to write" in capsys.readouterr().err
    assert not out.exists()


def test_the_grade_that_is_good_enough_can_be_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "graded.jsonl"
    row = {"text": "a", "weak": 0.6, "strong": 1, "score": 0}
    rows = [json.dumps(row | {"score": at}) for at in range(600)]
    path.write_text("\n".join(rows), "utf-8")
    given = ["route", "calibrate", "--data", str(path), "--json"]
    assert cli.main(given) == 0
    assert json.loads(capsys.readouterr().out)["bad"] == 0
    assert cli.main([*given, "--good", "0.7"]) == 1
