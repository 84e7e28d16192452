"""What ``route advise`` says, also where it is 'do not'."""

import json
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from curtilage.cli import main as cli
from curtilage.client.local.model import ModelChoice
from curtilage.client.routing.estimate import Intent
from curtilage.client.routing.estimators import shipped_thresholds
from curtilage.client.routing.router import UNFIT
from curtilage.client.routing.thresholds import Shipped, Unfit, packed
from curtilage.client.routing.trace import TraceLine, TraceOutcome
from curtilage.lab.commands import advise as advising
from curtilage.lab.commands.advise import DOES_NOT_HOLD, draft_words
from curtilage.policy.document.load import load_policy, load_profile
from curtilage.policy.document.routing import Routing
from curtilage.policy.document.routing_settings import Speculation
from support.drafts import THRESHOLDS
from support.route_traces import LINE, written

EASY = replace(LINE, intent="transform", would_choose="local")
STAYS = replace(LINE, permitted=("local",), tier="local", why="only_permitted")
USUAL = [*[EASY] * 120, *[LINE] * 50, *[STAYS] * 30]
CANARY = "canary-90d1"


def graded(tmp_path: Path, many: int = 600) -> Path:
    path = tmp_path / "graded.jsonl"
    rows = [
        {"text": f"{CANARY} {at}", "weak": float(at < 480), "strong": 1, "score": -at}
        for at in range(many)
    ]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), "utf-8")
    return path


def advice(
    capsys: pytest.CaptureFixture[str], path: Path, *arguments: str
) -> tuple[str, dict[str, object]]:
    given = ["route", "advise", "--trace", str(path), *arguments]
    assert cli.main(given) == 0
    words = capsys.readouterr().out
    assert cli.main([*given, "--json"]) == 0
    return words, json.loads(capsys.readouterr().out)


def test_it_says_when_routing_pays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words, result = advice(
        capsys,
        written(tmp_path, USUAL),
        "--devices", "1000", "--graded", str(graded(tmp_path)),
    )  # fmt: skip
    assert "advice    route" in words
    assert result["hybrid"] is True
    assert "75.0% (" in words
    assert "often promised: 70 to 85 %" in words
    assert "often promised: 60 to 80 %" in words
    assert "80% of the strong" in words
    assert "72 dummies" not in words
    assert "75 dummies" in words
    assert CANARY not in words


def test_it_says_when_not_to_and_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words, result = advice(capsys, written(tmp_path, USUAL))
    assert "advice    do not" in words
    assert result["hybrid"] is False
    assert result["against"] == ["small", "untested"]
    assert "100,000 questions or 200,000 tokens" in words


def test_it_says_where_a_promise_does_not_hold(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words, _ = advice(capsys, written(tmp_path, [EASY] * 20 + [LINE] * 80))
    assert f"; here: {DOES_NOT_HOLD}\n" in words
    assert "not for qa: 0.0%" in words


def test_prices_and_energy_are_those_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words, result = advice(
        capsys,
        written(tmp_path, USUAL),
        "--prices", "enclave=3,local=0", "--energy", "enclave=2,local=1",
    )  # fmt: skip
    assert "local at $0," in words
    assert " enclave at $3 " in words
    assert result["energy"] is not None
    assert "kWh a day" in words


@pytest.mark.parametrize("prices", ["enclave", "enclave=much", "enclave=-1", "=,"])
def test_what_is_no_price_is_refused(
    prices: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(written(tmp_path, USUAL))
    assert cli.main(["route", "advise", "--trace", path, "--prices", prices]) == 2
    assert "--prices needs" in capsys.readouterr().err


def test_a_price_of_another_tier_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(written(tmp_path, USUAL))
    assert cli.main(["route", "advise", "--trace", path, "--prices", "ward=1"]) == 2
    said = capsys.readouterr().err
    assert "no tier ward;" in said
    assert "local, enclave" in said


def test_no_devices_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(written(tmp_path, USUAL))
    assert cli.main(["route", "advise", "--trace", path, "--devices", "0"]) == 2
    assert "--devices" in capsys.readouterr().err


def words_about(good: int, bad: int) -> list[TraceLine]:
    word = replace(STAYS, outcome=TraceOutcome.GRADED, feedback=True)
    return [*[word] * good, *[replace(word, feedback=False)] * bad]


def test_feedback_that_speaks_against_the_promise_rings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [*USUAL, *words_about(100, 100)]
    words, result = advice(capsys, written(tmp_path, lines), "--promised", "0.9")
    assert "ALARM" in words
    assert isinstance(result["drift"], dict)
    assert result["drift"]["alarm"] is True


def test_the_promise_is_what_the_grades_bound(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [*USUAL, *words_about(195, 5)]
    words, result = advice(
        capsys, written(tmp_path, lines), "--graded", str(graded(tmp_path))
    )
    assert "ALARM" not in words
    # The router keeps 70 of 100 at home, and of the easiest 70 all were good.
    assert isinstance(result["drift"], dict)
    assert result["drift"]["alarm"] is False
    assert 0.99 < result["drift"]["promised"] < 1


@pytest.mark.parametrize(
    ("many", "said"), [(9, "9 graded questions"), (1, "1 graded question")]
)
def test_few_grades_are_reported_as_inconclusive(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], many: int, said: str
) -> None:
    trace = written(tmp_path, USUAL)
    rows = graded(tmp_path, many)
    given = ["route", "advise", "--trace", str(trace), "--graded", str(rows)]
    assert cli.main(given) == 0
    assert f"{said}, and it takes 500" in capsys.readouterr().err


def test_without_feedback_nothing_is_said_of_quality(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, result = advice(capsys, written(tmp_path, USUAL), "--promised", "0.9")
    assert result["drift"] is None


def test_it_says_what_is_promised_of_drafts_or_why_there_are_none() -> None:
    data = packed(THRESHOLDS)
    text = (
        "version: 1\n"
        "rules: [{id: any-uncertain, when: 'uncertain.*', then: local}]\n"
        "routing:\n"
        "  tiers: [{id: home, kind: in_process}, {id: away, kind: attested}]\n"
        "  speculation: {mode: verify, thresholds: t.json, "
        f"sha256: {sha256(data).hexdigest()}}}\n"
    )
    policy = load_policy(text, files=lambda _: data)
    (said,) = draft_words(policy, THRESHOLDS.model_sha256)
    assert "50% of them" in said
    assert "95% confidence at most 10%" in said
    (said,) = draft_words(policy, "11" * 32)
    assert said == f"none are written: {UNFIT[Unfit.MODEL]}"
    (said,) = draft_words(policy, None)
    assert said == f"none are written: {UNFIT[Unfit.NO_MODEL]}"


def test_thresholds_of_a_model_hold_for_no_adapter_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (shipped,) = shipped_thresholds()
    path = written(tmp_path, USUAL)
    for adapter, says in (
        ("", "classification: "),
        ("11" * 32, "none are written: "),
    ):
        choice = ModelChoice(
            model_id="m",
            path=path,
            sha256=shipped.thresholds.model_sha256,
            adapter_sha256=adapter,
        )

        def resolve(*_: object, chosen: ModelChoice = choice, **__: object) -> object:
            return chosen

        monkeypatch.setattr(advising, "resolve", resolve)
        words, _ = advice(capsys, path, "--policy", "default")
        assert f"drafts    {says}" in words


def test_it_says_what_is_promised_by_thresholds_that_come_with_curtilage(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    policy = load_profile("default")
    (said,) = draft_words(policy, "11" * 32)
    assert "`curtilage route certify`" in said
    shipped = Shipped(
        intent=Intent.CLASSIFICATION,
        made_of="invented",
        date="2026-11-28",
        thresholds=THRESHOLDS,
    )

    def shipped_of(plan: Routing) -> tuple[Shipped, ...]:
        assert plan.speculation.thresholds is None
        return (shipped,)

    monkeypatch.setattr(advising, "shipped_of", shipped_of)
    (said,) = draft_words(policy, THRESHOLDS.model_sha256)
    assert said.startswith("classification: 50% of them")
    assert said.endswith(", of invented")
    section = policy.routing
    assert section is not None
    off = section.model_copy(update={"speculation": Speculation()})
    document = policy.document.model_copy(update={"routing": off})
    assert list(draft_words(replace(policy, document=document), None)) == []
