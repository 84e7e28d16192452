"""What ``route stats`` shows of a trace."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from curtilage.cli import main as cli
from curtilage.cli.route.stats import amounts_of, stats_of, trace_path
from curtilage.client.errors import UsageError
from curtilage.client.failure_texts import FAILURE_TEXTS
from curtilage.client.routing.trace import TraceFile, TraceOutcome
from support.route_traces import LINE, written


def test_each_tier_has_its_share() -> None:
    lines = [LINE, replace(LINE, tier="local"), LINE, LINE]
    busy, other = stats_of(lines, {})
    assert (busy.tier, busy.queries, busy.share) == ("enclave", 3, 0.75)
    assert (other.tier, other.queries) == ("local", 1)


def test_times_are_those_of_the_median_and_of_95_in_100() -> None:
    lines = [replace(LINE, ttft_ms=ms) for ms in [100] * 60 + [300] * 30 + [5000] * 10]
    (tier,) = stats_of(lines, {})
    assert tier.ttft_ms == (100, 5000)


def test_speed_is_measured_after_the_first_text() -> None:
    (tier,) = stats_of(
        [replace(LINE, ttft_ms=300, total_ms=3000, answer_tokens=256)], {}
    )
    assert tier.tokens_per_s == pytest.approx(192 / 2.25, rel=0.01)


def test_cost_is_that_of_the_middles_of_classes() -> None:
    line = replace(LINE, prompt_tokens=64, answer_tokens=256)
    (tier,) = stats_of([line] * 10, {"enclave": 1_500_000})
    assert tier.cost_usd == pytest.approx(10 * (48 + 192) * 1.5 / 1e6)
    (tier,) = stats_of([line], {"local": 1})
    assert tier.cost_usd is None


def test_a_price_may_be_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, [LINE] * 1000)
    stats = ["route", "stats", "--trace", str(path)]
    assert cli.main([*stats, "--prices", "enclave=10"]) == 0
    assert "cost          about $2.40, $2.40 per 1,000" in capsys.readouterr().out
    assert cli.main([*stats, "--prices", "nobody=10"]) == 2


def test_a_too_short_answer_has_no_speed() -> None:
    (tier,) = stats_of([replace(LINE, ttft_ms=300, total_ms=300)], {})
    assert tier.tokens_per_s is None
    (tier,) = stats_of([replace(LINE, ttft_ms=None, answer_tokens=None)], {})
    assert (tier.ttft_ms, tier.tokens_per_s) == (None, None)


def test_failures_and_words_are_counted() -> None:
    word = replace(LINE, outcome=TraceOutcome.GRADED, feedback=True)
    lines = [
        replace(LINE, fallback="busy"),
        replace(LINE, outcome=TraceOutcome.INCOMPLETE),
        word,
        word,
        replace(word, feedback=False),
    ]
    (tier,) = stats_of(lines, {})
    assert tier.queries == 2
    assert tier.incomplete == 1
    assert tier.instead == {"busy": 1}
    assert (tier.good, tier.bad) == (2, 1)


def test_it_is_shown_in_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(
        tmp_path,
        [
            replace(LINE, outcome=TraceOutcome.INCOMPLETE),
            replace(LINE, tier="local", fallback="relay_unreachable"),
            replace(LINE, tier=None, why="no_tier", outcome=TraceOutcome.REFUSED),
        ],
    )
    assert cli.main(["route", "stats", "--trace", str(path)]) == 0
    shown = capsys.readouterr().out
    assert "enclave: 1 answer, 50.0%" in shown
    assert f": {FAILURE_TEXTS['relay_unreachable']}\n" in shown
    assert ": once (no_tier)" in shown
    assert "cut           1 answer\n" in shown


def test_it_is_shown_as_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, [LINE])
    assert cli.main(["route", "stats", "--trace", str(path), "--json"]) == 0
    (tier,) = json.loads(capsys.readouterr().out)["tiers"]
    assert tier["tier"] == "enclave"


def test_an_empty_trace_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["route", "stats", "--trace", str(written(tmp_path, []))]) == 2
    assert "no answer yet" in capsys.readouterr().err


def test_without_a_name_it_is_ones_own(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["route", "stats"]) == 2
    assert "routing.jsonl" in capsys.readouterr().err
    path = trace_path(None)
    assert path.name == "routing.jsonl"
    TraceFile(path).append(LINE)
    assert cli.main(["route", "stats"]) == 0
    assert "enclave" in capsys.readouterr().out


def test_a_tier_has_one_price() -> None:
    with pytest.raises(UsageError, match="--prices needs"):
        amounts_of("--prices", "enclave=1.5,enclave=2")
