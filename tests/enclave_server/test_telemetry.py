import ast
import io
import json
import logging
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

import pytest

from curtilage.enclave_server import telemetry
from curtilage.enclave_server.telemetry import (
    HOLD_S,
    Counters,
    Event,
    LogForm,
    Reason,
    StateLog,
)

CANARY = "canary-4111111111111111"


@contextmanager
def root_at_debug() -> Generator[io.StringIO]:
    sink = io.StringIO()
    handler = logging.StreamHandler(sink)
    root = logging.getLogger()
    before = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        yield sink
    finally:
        root.removeHandler(handler)
        root.setLevel(before)


def test_count_adds_up() -> None:
    counters = Counters()
    counters.count(Event.OPENED)
    counters.count(Event.OPENED)
    counters.count(Event.REPLAYED)
    assert counters.snapshot()["opened"] == 2
    assert counters.snapshot()["replayed"] == 1


def test_snapshot_names_every_event_also_before_any_happened() -> None:
    assert list(Counters().snapshot()) == [event.value for event in Event]
    assert set(Counters().snapshot().values()) == {0}


def test_snapshot_is_an_immutable_copy() -> None:
    counters = Counters()
    before = counters.snapshot()
    counters.count(Event.OPENED)
    assert before["opened"] == 0
    with pytest.raises(TypeError):
        cast("dict[str, int]", before)["opened"] = 7


@pytest.mark.parametrize("value", [CANARY, "opened", 7, None])
def test_count_refuses_anything_but_events(value: object) -> None:
    with pytest.raises(TypeError) as caught:
        Counters().count(cast("Event", value))
    assert CANARY not in str(caught.value)


def test_silent_logger_drops_everything_even_at_debug() -> None:
    with root_at_debug() as sink:
        logger = telemetry.silent_logger()
        logger.critical(CANARY)
        logger.debug(CANARY)
    assert sink.getvalue() == ""


@pytest.mark.parametrize("name", telemetry.LIBRARY_LOGGERS)
def test_silence_libraries_silences(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    logger = logging.getLogger(name)
    monkeypatch.setattr(logger, "disabled", False)
    monkeypatch.setattr(logger, "propagate", True)
    # Another test may have silenced its parent too.
    parent = logging.getLogger(name.partition(".")[0])
    monkeypatch.setattr(parent, "propagate", True)
    parent.setLevel(logging.NOTSET)
    logger.setLevel(logging.NOTSET)  # also forgets what the logger remembered
    with root_at_debug() as sink:
        logger.error("heard: %s", "before")
        telemetry.silence_libraries()
        logger.critical(CANARY)
    assert "heard: before" in sink.getvalue()
    assert CANARY not in sink.getvalue()


def test_telemetry_has_no_way_out() -> None:
    source = Path(cast("str", sys.modules[telemetry.__name__].__file__))
    imported = {
        name.name if isinstance(node, ast.Import) else (node.module or "")
        for node in ast.walk(ast.parse(source.read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in node.names
    }
    assert imported == {
        "logging",
        "collections",
        "collections.abc",
        "dataclasses",
        "datetime",
        "enum",
        "json",
        "types",
        "typing",
    }


# --- lines about changes of state ----------------------------------------------------

AT = datetime(2026, 11, 28, 10, 26, 17, tzinfo=UTC)
UNTIL = AT + timedelta(hours=2)


WHY = "the evidence process did not answer"


class Log(StateLog):
    """A log with a clock that the test controls."""

    def __init__(self, form: LogForm = LogForm.TEXT) -> None:
        self.lines: list[str] = []
        self.now_s = 0.0
        self.due: list[tuple[float, Callable[[], object]]] = []
        super().__init__(
            form,
            self.lines.append,
            lambda: AT,
            monotonic=lambda: self.now_s,
            later=lambda wait_s, call: self.due.append((self.now_s + wait_s, call)),
        )

    def passes(self, seconds: float) -> None:
        self.now_s += seconds
        due, self.due = self.due, []
        for at_s, call in due:
            if at_s > self.now_s:
                self.due.append((at_s, call))
            else:
                call()

    @property
    def states(self) -> list[str]:
        said = [line.removeprefix("2026-11-28T10:26:17Z ") for line in self.lines]
        return [line.partition(": ")[2].partition(":")[0] for line in said]


def test_each_change_has_one_line() -> None:
    log = Log()
    log.loaded()
    log.refreshed(UNTIL)
    for reason in (Reason.NOT_RENEWED, Reason.EXPIRED):
        log.passes(HOLD_S)
        for _ in range(3):
            log.failed(reason, WHY)
            log.passes(1)
    log.passes(HOLD_S)
    log.refreshed(UNTIL)
    log.passes(HOLD_S)
    log.failed(Reason.NOT_RENEWED, WHY)
    assert log.states == [
        "loaded",
        "refreshed",
        "degraded (evidence_not_renewed)",
        "failing (evidence_expired)",
        "refreshed",
        "degraded (evidence_not_renewed)",
    ]
    assert log.lines[1].endswith("; until 2026-11-28T12:26:17Z")
    assert log.lines[2].endswith(f": {WHY}")


def test_evidence_that_flaps_has_a_line_now_and_then() -> None:
    log = Log()
    for second in range(300):
        log.failed(Reason.NOT_RENEWED, WHY)
        log.refreshed(UNTIL + timedelta(seconds=second))
        log.passes(1)
    assert len(log.lines) <= 300 / HOLD_S + 1
    log.failed(Reason.EXPIRED, WHY)
    log.passes(HOLD_S)
    assert log.states[-1] == "failing (evidence_expired)"
    log.passes(HOLD_S)
    assert log.due == []


def test_what_is_again_as_it_was_written_has_no_line() -> None:
    log = Log()
    log.failed(Reason.NOT_RENEWED, WHY)
    log.failed(Reason.EXPIRED, WHY)
    log.failed(Reason.NOT_RENEWED, "for another reason")
    log.passes(HOLD_S)
    assert log.states == ["degraded (evidence_not_renewed)"]


def test_a_line_may_be_json() -> None:
    log = Log(LogForm.JSON)
    log.refreshed(UNTIL)
    log.failed(Reason.NOT_RENEWED, WHY)
    log.passes(HOLD_S)
    assert [json.loads(line) for line in log.lines] == [
        {
            "time": "2026-11-28T10:26:17Z",
            "part": "evidence",
            "state": "refreshed",
            "until": "2026-11-28T12:26:17Z",
        },
        {
            "time": "2026-11-28T10:26:17Z",
            "part": "evidence",
            "state": "degraded",
            "reason": "evidence_not_renewed",
            "detail": WHY,
        },
    ]
