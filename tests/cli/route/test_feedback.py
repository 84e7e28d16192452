"""What ``route feedback`` adds to a trace."""

from dataclasses import replace
from pathlib import Path

import pytest

from curtilage.cli import main as cli
from curtilage.client.routing.trace import TraceLine, TraceOutcome, read_trace_file
from support.route_traces import LINE, written


@pytest.mark.parametrize("opinion", ["good", "bad"])
def test_a_word_is_about_the_last_answer(
    opinion: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, [LINE, replace(LINE, tier="local", intent="code")])
    assert cli.main(["route", "feedback", opinion, "--trace", str(path)]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"{opinion}: ")
    assert "local (code, " in said
    *_, word = read_trace_file(path)
    assert (word.outcome, word.tier, word.intent) == (
        TraceOutcome.GRADED,
        "local",
        "code",
    )
    assert word.feedback is (opinion == "good")
    assert cli.main(["route", "stats", "--trace", str(path)]) == 0
    assert f"1 {opinion}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([], "ask something first"),
        ([replace(LINE, tier=None, outcome=TraceOutcome.REFUSED)], "something first"),
        ([LINE, LINE.graded(good=True, at=LINE.at)], "is already rated"),
    ],
)
def test_without_an_answer_there_is_nothing_to_rate(
    lines: list[TraceLine],
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = written(tmp_path, lines)
    assert cli.main(["route", "feedback", "good", "--trace", str(path)]) == 2
    assert said in capsys.readouterr().err
    assert len(read_trace_file(path)) == len(lines)
