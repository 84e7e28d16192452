"""The trace: no word of a text, bounded, and read as strictly as it is written."""

import json
import stat
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from curtilage.client.errors import ConfigError, UsageError
from curtilage.client.routing.trace import (
    LENGTHS,
    TIMES_MS,
    TOKENS,
    TraceFile,
    TraceLine,
    TraceOutcome,
    below,
    length_class,
    minute_of,
    model_tag,
    read_grades,
    read_trace_file,
    time_class,
    token_class,
)
from curtilage.client.system.files import locked
from curtilage.policy.decision.tiers import RoutingClass

LINE = TraceLine(
    at="2026-11-23T13:45Z",
    intent="qa",
    length=length_class(300),
    classes=("identifier.quasi.city", "org.dictionary.project-x"),
    routing_class=RoutingClass.PUBLIC,
    permitted=("device", "enclave"),
    tier="enclave",
    why="hard",
    ttft_ms=time_class(0.21),
    total_ms=time_class(3.2),
    prompt_tokens=token_class(80),
    answer_tokens=token_class(200),
    outcome=TraceOutcome.ANSWERED,
    would_choose="device",
    model="m-0123456789abcdef",
)


def made(field: str, value: object) -> TraceLine:
    said: dict[str, Any] = {**asdict(LINE), field: value}
    return TraceLine(**said)


def test_a_line_comes_back_as_it_was() -> None:
    assert TraceLine.parse(LINE.encoded()) == LINE
    bare = replace(
        LINE,
        tier=None,
        classes=(),
        permitted=(),
        ttft_ms=None,
        answer_tokens=None,
        would_choose=None,
        model=None,
        outcome=TraceOutcome.REFUSED,
    )
    assert TraceLine.parse(bare.encoded()) == bare


def test_a_line_is_one_line_of_known_words() -> None:
    assert LINE.encoded().count(b"\n") == 1
    assert json.loads(LINE.encoded()) == {
        "v": 1,
        "at": "2026-11-23T13:45Z",
        "intent": "qa",
        "length": 1024,
        "classes": ["identifier.quasi.city", "org.dictionary.project-x"],
        "routing_class": "public",
        "permitted": ["device", "enclave"],
        "tier": "enclave",
        "why": "hard",
        "ttft_ms": 300,
        "total_ms": 5000,
        "prompt_tokens": 128,
        "answer_tokens": 256,
        "outcome": "answered",
        "would_choose": "device",
        "model": "m-0123456789abcdef",
    }


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("intent", "What is HIV?"),
        ("why", "because Mr Smith asked"),
        ("classes", ("health.condition", "Diabetes")),
        ("permitted", ("local\nenclave",)),
        ("tier", "-"),
        ("fallback", "no such host: ward-7"),
        ("would_choose", "UPPER"),
        ("model", "a name of somebody's"),
        ("classes", ("a",) * 129),
    ],
)
def test_words_of_a_text_make_no_line(field: str, value: object) -> None:
    with pytest.raises(UsageError, match=f"'{field}'") as refused:
        made(field, value)
    assert str(value) not in str(refused.value).partition("'" + field)[2]


@pytest.mark.parametrize(
    ("field", "value"),
    [("length", 300), ("ttft_ms", 211), ("total_ms", 1), ("prompt_tokens", 80)],
)
def test_an_exact_size_or_time_makes_no_line(field: str, value: int) -> None:
    with pytest.raises(UsageError, match=f"'{field}'"):
        made(field, value)


@pytest.mark.parametrize(
    "at", ["2026-11-23T13:45:07Z", "2026-11-23", "13:45", "2026-1-3T1:5Z"]
)
def test_an_exact_time_of_day_makes_no_line(at: str) -> None:
    with pytest.raises(UsageError, match="not a minute"):
        replace(LINE, at=at)


def test_a_time_becomes_its_minute() -> None:
    moment = datetime(2026, 11, 23, 13, 45, 59, 999, tzinfo=UTC)
    assert minute_of(moment) == LINE.at
    assert LINE.minute == datetime(2026, 11, 23, 13, 45, tzinfo=UTC)


def test_sizes_become_classes() -> None:
    assert length_class(0) == LENGTHS[0] == 64
    assert length_class(65) == 256
    assert token_class(16) == 16
    assert token_class(17) == 32
    assert time_class(0.0) == 10
    assert time_class(0.101) == 200
    assert token_class(10**9) == TOKENS[-1]
    assert time_class(10**9) == TIMES_MS[-1]
    assert below(32, TOKENS) == 16
    assert below(16, TOKENS) == 0


@pytest.mark.parametrize(
    "change",
    [
        {"v": 2},
        {"extra": "a"},
        {"length": "1024"},
        {"length": True},
        {"feedback": 1},
        {"classes": [1]},
        {"classes": "qa"},
        {"routing_class": "secret"},
        {"outcome": "shrug"},
        {"total_ms": None},
        {"tier": None},
    ],
    ids=str,
)
def test_what_is_no_line_is_not_read(change: dict[str, object]) -> None:
    said = json.loads(LINE.encoded()) | change
    with pytest.raises(UsageError):
        TraceLine.parse(json.dumps(said).encode())


@pytest.mark.parametrize(
    "line",
    [b"", b"[]", b"nothing", b'{"v":1,"v":1}', b"{" * 5000, b'{"v":1}', b" " * 9000],
)
def test_bytes_are_refused_and_not_followed(line: bytes) -> None:
    with pytest.raises(UsageError):
        TraceLine.parse(line)


def test_a_lacking_field_is_missed() -> None:
    said = json.loads(LINE.encoded())
    del said["why"]
    with pytest.raises(UsageError, match="lacks"):
        TraceLine.parse(json.dumps(said).encode())


def test_a_trace_is_there_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "state" / "curtilage" / "routing.jsonl"
    trace = TraceFile(path)
    assert trace.append(LINE)
    assert trace.append(replace(LINE, tier="device"))
    assert [each.tier for each in read_trace_file(path)] == ["enclave", "device"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    for folder in (path.parent, path.parent.parent):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_trace_keeps_to_its_bound_and_loses_the_oldest(tmp_path: Path) -> None:
    path = tmp_path / "routing.jsonl"
    trace = TraceFile(path, max_bytes=3 * len(LINE.encoded()))
    for number in range(8):
        assert trace.append(replace(LINE, tier=f"t{number}"))
    assert path.stat().st_size <= 3 * len(LINE.encoded())
    kept = [each.tier for each in read_trace_file(path)]
    assert kept == ["t3", "t4", "t5", "t6", "t7"]
    assert len(list(tmp_path.iterdir())) == 3  # the two parts and the lock


def test_a_disk_that_fails_costs_a_line_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    assert not TraceFile(tmp_path / "file" / "routing.jsonl").append(LINE)
    (tmp_path / "folder").mkdir()
    assert not TraceFile(tmp_path / "folder").append(LINE)


def test_a_stopped_writer_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "routing.jsonl"
    with locked(tmp_path / "routing.jsonl.lock", 0):
        assert not TraceFile(path).append(LINE)
    assert TraceFile(path).append(LINE)


def test_a_trace_is_not_written_through_a_link(tmp_path: Path) -> None:
    path = tmp_path / "routing.jsonl"
    path.symlink_to(tmp_path / "elsewhere")
    assert not TraceFile(path).append(LINE)
    assert not (tmp_path / "elsewhere").exists()


def test_a_broken_line_is_named_and_not_shown(tmp_path: Path) -> None:
    path = tmp_path / "routing.jsonl"
    path.write_bytes(LINE.encoded() + b'{"v":1,"intent":"canary"}\n')
    with pytest.raises(UsageError, match=r"\bline 2\b") as refused:
        read_trace_file(path)
    assert "canary" not in str(refused.value)


def test_no_trace_is_said_to_be_none(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        read_trace_file(tmp_path / "routing.jsonl")


def test_a_model_is_recorded_by_its_digests_and_never_by_name() -> None:
    assert model_tag("0" * 64) == "m-" + "0" * 16
    assert model_tag("0" * 64, "f" * 64) == "m-" + "0" * 16 + "-" + "f" * 16
    line = replace(LINE, model=model_tag("0" * 64, "f" * 64))
    assert TraceLine.parse(line.encoded()) == line


def graded(good: bool, model: str) -> TraceLine:
    return replace(LINE, outcome=TraceOutcome.GRADED, feedback=good, model=model)


def test_grades_are_those_of_one_model_the_oldest_first(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    assert read_grades(path, "m-a") == ()
    lines = [graded(True, "m-a"), LINE, graded(False, "m-b"), graded(False, "m-a")]
    trace = TraceFile(path, max_bytes=len(lines[0].encoded()) * 2)
    for line in lines:
        assert trace.append(line)
    assert path.with_name("trace.jsonl.1").exists()
    assert read_grades(path, "m-a")[-1:] == (False,)
    path.write_bytes(b"".join(line.encoded() for line in lines))
    path.with_name("trace.jsonl.1").write_bytes(graded(True, "m-b").encoded())
    assert read_grades(path, "m-a") == (True, False)
    assert read_grades(path, "m-b") == (True, False)


def test_unreadable_grades_are_reported(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_bytes(b'{"outcome":"graded"}\n')
    with pytest.raises(UsageError, match=r"trace\.jsonl: .* version "):
        read_grades(path, "m-a")
    path.unlink()
    path.mkdir()
    with pytest.raises(ConfigError):
        read_grades(path, "m-a")


def test_a_word_on_an_answer_is_one_on_the_model_that_gave_it() -> None:
    line = LINE.graded(good=False, at=LINE.at)
    assert (line.model, line.feedback) == (LINE.model, False)
