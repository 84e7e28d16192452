"""``route calibrate``: a ranking that is better, or no file; a guarantee, or none."""

import hashlib
import json
import random
import re
from dataclasses import replace
from pathlib import Path

import pytest

from curtilage.cli import main as cli
from curtilage.cli import terminal
from curtilage.client.audit.export import ALREADY_THERE
from curtilage.client.routing.ngram import load_weights
from curtilage.lab.commands.calibrate import (
    NO_GAIN,
    NO_SHARE,
    ONLY_RANKS,
    SHIPPED,
    Calibrated,
    Certificate,
    Present,
    object_of,
    words_of,
)
from curtilage.lab.commands.graded_file import read_graded
from curtilage.lab.routing.refit import Difference, Judgement, Ranking

CANARY = "canary-77f0"


def data(
    folder: Path, count: int, *, weak: float = 0.9, scored: bool = False
) -> str:  # fmt: skip
    """Questions whose verb says how often the local model fails, not as one expects."""
    drawn = random.Random(4)  # noqa: S311 - repeatable, no secret
    rows: list[dict[str, object]] = []
    for at in range(count):
        hard = drawn.random() < 0.4
        good = drawn.random() < (0.1 if hard else weak)
        row: dict[str, object] = {
            "text": f"{CANARY}: {'rename' if hard else 'reconcile'} ledger {at}",
            "weak": int(good),
            "strong": 1,
        }
        rows.append(row | ({"score": drawn.random() - hard} if scored else {}))
    path = folder / "graded.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), "utf-8")
    return str(path)


SUBJECTS = ("ledger", "roster", "ward", "drug", "garden", "engine", "river", "castle")
VERBS = ("compare", "describe", "sort", "explain", "list", "draft", "translate")
ENDS = ("for the night shift", "before the audit", "as a table", "in plain words")


def mixed(folder: Path, count: int, *, predicted_by: str, seed: int = 5) -> str:
    """Questions whose gain a word predicts, or their length, or nothing."""
    drawn = random.Random(seed)  # noqa: S311 - repeatable, no secret
    rows: list[dict[str, object]] = []
    for at in range(count):
        subject, longer = drawn.choice(SUBJECTS), drawn.randrange(4)
        hard = {
            "word": 0.6 if subject in SUBJECTS[:3] else 0.08,
            "length": 0.05 + 0.18 * longer,
            "nothing": 0.3,
        }[predicted_by]
        text = (
            f"Please {drawn.choice(VERBS)} the {subject} {drawn.choice(ENDS)}"
            f"{' and then say what follows from it' * longer}, {CANARY} {at}."
        )
        rows.append(
            {"text": text, "weak": int(drawn.random() >= hard),
             "strong": int(drawn.random() >= 0.05)}
        )  # fmt: skip
    path = folder / "graded.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), "utf-8")
    return str(path)


def calibrate(path: str, *more: str) -> int:
    return cli.main(["route", "calibrate", "--data", path, *more])


def test_a_valid_result_is_reported_and_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "router.npz"
    assert calibrate(data(tmp_path, 800, weak=0.99), "--out", str(out)) == 0
    shown = capsys.readouterr()
    digest = hashlib.sha256(out.read_bytes()).hexdigest()
    assert load_weights(out.read_bytes(), digest).beats[1, 0] > 0.5
    assert f'"router.npz", sha256: "{digest}"' in shown.out
    assert re.search("^ranking, .* 800 .* half ", shown.out, re.MULTILINE)
    assert re.search("^error rates, .* 400 ", shown.out, re.MULTILINE)
    assert "any rule sends" in shown.out
    assert "kept local" in shown.out
    assert CANARY not in shown.out + shown.err


def test_no_file_is_overwritten(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "router.npz"
    out.write_bytes(b"mine")
    assert calibrate(data(tmp_path, 600, weak=0.99), "--out", str(out)) == 2
    assert ALREADY_THERE in capsys.readouterr().err
    assert out.read_bytes() == b"mine"


def refused(capsys: pytest.CaptureFixture[str], path: str, out: Path) -> str:
    assert calibrate(path, "--out", str(out)) == 1
    assert not out.exists()
    return capsys.readouterr().err


def test_too_few_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = refused(capsys, data(tmp_path, 149), tmp_path / "out")
    assert re.search("149 .* 150 ", said)


def test_few_are_enough_for_a_ranking_and_for_no_error_rate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "router.npz"
    assert calibrate(data(tmp_path, 150, weak=0.99), "--out", str(out)) == 0
    shown = capsys.readouterr().out
    assert "4 of 5 parts" in shown
    assert re.search("^no error rate .* 500 ", shown, re.MULTILINE)
    assert out.exists()


def test_a_strong_tier_that_is_no_better_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "graded.jsonl"
    lines = [f'{{"text": "{at}", "weak": 1, "strong": 0.5}}' for at in range(500)]
    path.write_text("\n".join(lines), "utf-8")
    said = refused(capsys, str(path), tmp_path / "out")
    assert NO_GAIN in said


@pytest.mark.parametrize("predicted_by", ["word", "length"])
def test_what_ranks_better_is_written_though_nothing_is_certified(
    predicted_by: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "router.npz"
    # Not even the best tenth of the answers is always right: nothing can be promised.
    path = mixed(tmp_path, 809, predicted_by=predicted_by)
    assert calibrate(path, "--out", str(out), "--good", "1", "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert result["ranks_better"] is True
    assert result["apgr"]["apgr_low"] > 0.5
    assert all(each["by"] > 0 for each in result["against"].values())
    assert set(result["against"]) == {"the rules", "the shipped estimator"}
    assert result["sha256"] == hashlib.sha256(out.read_bytes()).hexdigest()
    assert result["reason"] is None


def test_where_no_error_rate_holds_it_is_said_and_the_ranking_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "router.npz"
    assert calibrate(data(tmp_path, 600, weak=0.5), "--out", str(out)) == 0
    shown = capsys.readouterr().out
    assert shown.count(NO_SHARE) == 5
    assert ONLY_RANKS in shown
    assert out.exists()


def test_nothing_is_written_if_nothing_predicts_the_gain(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = refused(
        capsys, mixed(tmp_path, 809, predicted_by="nothing"), tmp_path / "out"
    )
    assert "chance has 0.50" in said
    assert said.endswith(f" {SHIPPED}\n")
    assert CANARY not in said


ROUTING = """\
version: 1
default: {decision: enclave}
rules:
- {id: any-uncertain, when: "uncertain.*", then: local}
routing:
  tiers: [{id: device, kind: in_process}, {id: enclave, kind: attested}]
"""


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        (f"{ROUTING}  estimator: {{kind: rules}}\n", "the rules"),
        (ROUTING, "the shipped estimator"),
        (ROUTING.partition("routing:")[0], "none, for want of a routing section"),
    ],
    ids=["rules", "shipped", "no routing"],
)
def test_what_the_policy_has_is_named(
    policy: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(policy, "utf-8")
    few = data(tmp_path, 20)
    assert calibrate(few, "--policy", str(path)) == 1
    shown = capsys.readouterr().err
    assert re.search(rf"Nothing is written; .* {re.escape(said)}\n", shown)


def test_a_file_of_ones_own_is_named_and_not_compared_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It may have been fitted to the same questions, and would always be better."""
    out, path = tmp_path / "router.npz", data(tmp_path, 150, weak=0.99)
    assert calibrate(path, "--out", str(out)) == 0
    digest = hashlib.sha256(out.read_bytes()).hexdigest()
    named = f'{{kind: ngram, file: "{out.name}", sha256: "{digest}"}}'
    policy = tmp_path / "policy.yaml"
    policy.write_text(f"{ROUTING}  estimator: {named}\n", "utf-8")
    capsys.readouterr()
    assert calibrate(path, "--json", "--policy", str(policy)) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["estimator"] == f"its own file ({digest[:12]})"
    assert set(result["against"]) == {"the rules", "the shipped estimator"}


def test_a_ranking_no_better_than_another_is_not_used() -> None:
    judgement = Judgement(apgr=0.7, apgr_low=0.6)
    other = Difference(apgr=0.72, by=-0.02, low=-0.08, high=0.04)
    found = Calibrated(
        graded=200,
        folds=5,
        ranking=Ranking(judgement=judgement, against={"the rules": other}),
        judged=0,
        bad=0.2,
        certificates=(),
        weights=None,
    )
    assert str(found.reason).endswith(" the rules")
    assert any(line.endswith("; not better") for line in words_of(found))
    better = replace(other, by=0.02, low=-0.04, high=0.08)
    again = Ranking(judgement=judgement, against={"the rules": better})
    found = replace(found, ranking=again)
    assert found.reason is None
    assert any("may be chance" in line for line in words_of(found))


def test_an_estimator_that_is_not_used_promises_nothing() -> None:
    judgement = Judgement(apgr=0.7, apgr_low=0.6)
    other = Difference(apgr=0.72, by=-0.02, low=-0.08, high=0.04)
    rate = Certificate(
        alpha=0.1, share=0.6, threshold=0.2, errors=3, upper=0.09, saving=0.5
    )
    found = Calibrated(
        graded=520,
        folds=2,
        ranking=Ranking(judgement=judgement, against={"the rules": other}),
        judged=260,
        bad=0.2,
        certificates=(rate,),
        weights=None,
    )
    present = Present(name="the rules", compared="the rules", gains=())
    assert not any("error rate" in line for line in words_of(found))
    result = object_of(found, present, None)
    assert (result["certified"], result["certificates"]) == (False, [])
    better = replace(other, by=0.02, low=-0.04, high=0.08)
    again = Ranking(judgement=judgement, against={"the rules": better})
    found = replace(found, ranking=again)
    assert any(" 60% may be" in line for line in words_of(found))
    assert any("error rates" in line for line in words_of(found))
    assert object_of(found, present, None)["certified"]


def test_progress_is_reported_without_a_terminal(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(terminal, "LOGGED_EVERY_S", 0.0)
    assert calibrate(data(tmp_path, 150, weak=0.99)) == 0
    assert "4 of 4 rounds" in capsys.readouterr().err


def test_json_output_holds_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert calibrate(data(tmp_path, 100), "--json") == 1
    result = json.loads(capsys.readouterr().out)
    assert (result["certified"], result["ranks_better"]) == (False, False)
    assert "100" in result["reason"]


def test_scores_of_ones_own_are_judged_by_all_questions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = data(tmp_path, 900, weak=0.97, scored=True)
    assert cli.main(["route", "calibrate", "--json", "--data", path]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["graded"] == 900
    assert result["apgr"] is None
    first = result["certificates"][0]
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
    row = {"weak": 0.6, "strong": 1}
    rows = [json.dumps(row | {"text": f"{at}", "score": at}) for at in range(600)]
    path.write_text("\n".join(rows), "utf-8")
    given = ["route", "calibrate", "--data", str(path), "--json"]
    assert cli.main(given) == 0
    assert json.loads(capsys.readouterr().out)["bad"] == 0
    assert cli.main([*given, "--good", "0.7"]) == 1


def test_a_question_that_is_repeated_counts_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Else the half that judges would have been learned by heart from the other."""
    drawn = random.Random(8)  # noqa: S311 - repeatable, no secret
    rows = [
        {"text": f"{CANARY}: {subject} {verb}", "weak": int(drawn.random() < 0.5),
         "strong": 1}
        for subject in SUBJECTS for verb in VERBS
    ]  # fmt: skip
    path = tmp_path / "graded.jsonl"
    lines = [json.dumps(row) for row in rows * 20]
    lines[-1] = lines[-1].replace("castle", " CASTLE ")
    path.write_text("\n".join(lines), "utf-8")
    said = refused(capsys, str(path), tmp_path / "out")
    assert re.search(r"\b1120 .* 56 different ", said)
    assert re.search(r"\b56 graded .* 150 ", said)


def test_grades_of_a_repeated_question_are_averaged(tmp_path: Path) -> None:
    path = tmp_path / "graded.jsonl"
    path.write_text(
        '{"text": "a b", "weak": 1, "strong": 1, "score": 2}\n'
        '{"text": "A  b ", "weak": 0, "strong": 0.5, "score": 4}\n'
        '{"text": "c", "weak": 0, "strong": 1, "score": 1}\n',
        "utf-8",
    )
    said: list[str] = []
    first, second = read_graded(path, said.append)
    assert (first.text, first.weak, first.strong, first.score) == ("a b", 0.5, 0.75, 3)
    assert second.text == "c"
    assert len(said) == 1


def test_a_missing_folder_is_named_before_the_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = data(tmp_path, 10)
    out = str(tmp_path / "nowhere" / "out")
    assert cli.main(["route", "calibrate", "--data", path, "--out", out]) == 2
    assert "nowhere" in capsys.readouterr().err


@pytest.mark.parametrize("grade", ["0", "-3", "2", "nan", "good"])
def test_a_grade_is_a_share(grade: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["route", "calibrate", "--data", "x", "--good", grade])
    assert ended.value.code == 2
    assert "--good" in capsys.readouterr().err
