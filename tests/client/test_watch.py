"""The lines of a client: one for each change of state, and never a word of a query."""

import asyncio
import json
from collections.abc import Callable
from datetime import UTC, datetime
from enum import Enum

import pytest

from curtilage.client.chat.options import Require
from curtilage.client.errors import ClientError, EnclaveError, FailureReason
from curtilage.client.health import (
    HOLD_S,
    WORDS,
    Changes,
    Detectors,
    Note,
    Part,
    Reason,
    Status,
)
from curtilage.client.parts import ClientParts
from curtilage.client.queue.reasons import REASONS
from curtilage.client.session import Session
from curtilage.client.telemetry import LogForm, StateLog
from curtilage.client.watch import report, watching
from curtilage.policy.document.load import load_policy
from support.client_parts import (
    PLAIN,
    MemoryTrail,
    ScriptedInspector,
    ScriptedLocal,
    query,
)
from support.memory_enclave import Clock, MemoryEnclave, key_store

CANARY = "canary-72f1"
AT = datetime(2026, 11, 28, 10, 26, 17, tzinfo=UTC)


class Bench:
    """A session, and the lines that are written about it."""

    def __init__(self, form: LogForm = LogForm.TEXT) -> None:
        self.enclave = MemoryEnclave()
        self.audit = MemoryTrail()
        self.detectors = Detectors()
        self.lines: list[str] = []
        self.log = StateLog(form, self.lines.append, words=WORDS, clock=lambda: AT)
        self.changes = Changes()
        self.now_s = 0.0
        policy = load_policy(PLAIN)
        self.session = Session(
            ClientParts(
                policy=policy,
                inspector=ScriptedInspector(),
                local=ScriptedLocal(),
                transport=self.enclave,
                keys=key_store(policy=policy),
                audit=self.audit,
                clock=Clock(),
                detectors=lambda: self.detectors,
            )
        )

    def report(self) -> list[str]:
        """Look, a while later; return the new lines."""
        self.now_s += HOLD_S
        seen = len(self.lines)
        report(self.session, self.log, self.changes, now_s=self.now_s)
        return self.lines[seen:]


async def test_each_change_has_its_line() -> None:
    bench = Bench()
    async with bench.session as session:
        (line,) = bench.report()
        assert line == f"2026-11-28T10:26:17Z model: loaded: {WORDS[Note.LOADED]}"
        await session.look()
        (line,) = bench.report()
        assert f" evidence: refreshed: {WORDS[Note.REFRESHED]}; until 2" in line
        bench.audit.broken = True
        (line,) = bench.report()
        assert f" audit: degraded (audit_failed): {WORDS[Reason.AUDIT_FAILED]}" in line
        bench.audit.broken = False
        assert [line.partition(" ")[2] for line in bench.report()] == ["audit: ok"]
        bench.detectors = Detectors(restarts=1)
        (line,) = bench.report()
        assert "detectors: restarted" in line
        assert bench.report() == []


async def test_a_line_may_be_json() -> None:
    bench = Bench(LogForm.JSON)
    async with bench.session:
        bench.report()
        bench.audit.broken = True
        (line,) = bench.report()
    assert json.loads(line) == {
        "time": "2026-11-28T10:26:17Z",
        "part": "audit",
        "state": "degraded",
        "reason": "audit_failed",
    }


@pytest.mark.parametrize("form", LogForm)
async def test_no_question_leaves_a_line(form: LogForm) -> None:
    bench = Bench(form)
    async with bench.session as session:
        await session.look()
        bench.report()
        for number in range(20):
            await session.ask(query(f"{CANARY} {number}", require=Require.ENCLAVE))
            assert bench.report() == []


@pytest.mark.parametrize("form", LogForm)
@pytest.mark.parametrize("failure", REASONS.values())
async def test_no_failure_writes_a_word_of_a_question(
    failure: FailureReason, form: LogForm
) -> None:
    bench = Bench(form)
    async with bench.session as session:
        await session.look()
        bench.report()
        bench.enclave.fails = EnclaveError(failure, code=CANARY)
        for _ in range(5):
            with pytest.raises(ClientError):
                await session.ask(query(CANARY, require=Require.ENCLAVE))
        lines = bench.report()
    assert len(lines) <= 1
    assert CANARY not in "".join(bench.lines)


class Colour(Enum):
    SPOKEN = CANARY + " says hello"


@pytest.mark.parametrize("wrong", [Colour.SPOKEN, CANARY, 7])
def test_a_line_takes_words_of_closed_lists_only(wrong: Enum) -> None:
    lines: list[str] = []
    log = StateLog(LogForm.TEXT, lines.append, words=WORDS, clock=lambda: AT)
    with pytest.raises(TypeError, match="closed lists"):
        log.changed(wrong, Status.OK)
    with pytest.raises(TypeError, match="closed lists"):
        log.changed(Part.AUDIT, wrong)
    with pytest.raises(TypeError, match="closed lists"):
        log.changed(Part.AUDIT, Status.OK, reason=wrong)
    with pytest.raises(TypeError, match="closed lists"):
        log.changed(Part.AUDIT, Status.OK, tier=wrong)
    assert lines == []


@pytest.mark.parametrize("error", [OSError, BrokenPipeError, ValueError])
def test_a_line_that_cannot_be_written_stops_nothing(error: type[Exception]) -> None:
    def fails(line: str) -> None:
        raise error(line)

    log = StateLog(LogForm.TEXT, fails, words=WORDS, clock=lambda: AT)
    log.changed(Part.AUDIT, Status.OK)


async def test_watching_reports_until_it_ends() -> None:
    bench = Bench()
    bench.audit.broken = True
    async with bench.session as session:
        written: list[str] = []
        event = _Waits(written)
        log = StateLog(LogForm.TEXT, event.write, words=WORDS, clock=lambda: AT)
        async with watching(session, log, tick_s=0.0):
            await event.until(lambda: any("audit" in each for each in written))
            await event.until(lambda: any("evidence" in each for each in written))
        count = len(written)
        bench.audit.broken = False
    assert len(written) == count


class _Waits:
    """Keeps lines, and wakes the test that waits for one."""

    def __init__(self, written: list[str]) -> None:
        self._written = written
        self._event = asyncio.Event()

    def write(self, line: str) -> None:
        self._written.append(line)
        self._event.set()

    async def until(self, met: Callable[[], bool]) -> None:
        while not met():
            self._event.clear()
            await self._event.wait()
