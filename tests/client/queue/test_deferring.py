"""A session under a policy that lets questions wait, of in-memory parts."""

import asyncio
import multiprocessing
import os
import random
import re
import signal
import sqlite3
import threading
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
from typing_extensions import override

from curtilage.client import telemetry
from curtilage.client.audit.record import AuditEntry, Outcome
from curtilage.client.chat.answer import Answerer, AnswerEvent
from curtilage.client.chat.options import Mode, Require
from curtilage.client.chat.query import Query
from curtilage.client.errors import (
    NOTHING_SENT,
    AnswererError,
    EnclaveError,
    FailureReason,
    QueuedError,
    TicketError,
    UsageError,
)
from curtilage.client.failure_texts import FAILURE_TEXTS, NO_QUEUE
from curtilage.client.health import Reason
from curtilage.client.local.reasons import LocalFailure, LocalModelError
from curtilage.client.parts import ClientParts
from curtilage.client.queue.deferred import Deferred, State
from curtilage.client.queue.deferred_store import (
    KEY_BYTES,
    DeferredStore,
    QueueFullError,
    QueueStoreError,
)
from curtilage.client.queue.deferring import (
    BROKE,
    FIRST_PAUSE_S,
    LONGEST_PAUSE_S,
    MOST_PAUSE_S,
    UNREADABLE,
    Drained,
)
from curtilage.client.remote.reasons import EnclaveFailure
from curtilage.client.routing.estimate import RulesEstimator
from curtilage.client.routing.router import Router
from curtilage.client.routing.trace import TraceLine, TraceOutcome
from curtilage.client.session import Session
from curtilage.client.system.fair_queue import APPLICATION, CALLER, caller_of
from curtilage.policy.decision.decide import Decision
from curtilage.policy.decision.tiers import RoutingClass
from curtilage.policy.document.load import load_policy
from support import client_parts
from support.client_parts import (
    PLAIN,
    MemoryTrail,
    ScriptedInspector,
    ScriptedLocal,
    finding,
)
from support.counts import Counts
from support.memory_enclave import NOW, MemoryEnclave, Reply, key_store

TEXT = "What does a nurse have to know about vaccines?"
SECTION = """
routing:
  tiers:
  - {id: device, kind: in_process}
  - {id: enclave, kind: attested}
  classes: {internal: {queue: {ttl_s: 0}}, public: {queue: {ttl_s: 3600}}}
  queue: {store: memory}
"""
BLOCKING = PLAIN.replace(
    "\nrules:\n",
    "\nrules:\n- {id: no-keys, when: secret.private_key, then: block}\n",
)
DOWN = EnclaveError(EnclaveFailure.RELAY_UNREACHABLE)


def query(text: str = TEXT, **options: object) -> Query:
    return client_parts.query(text, **{"defer": True, **options})


class BusyLocal(ScriptedLocal):
    """Too many wait for it, until a test sets it otherwise."""

    busy = True

    @override
    async def generate(
        self, query: Query, *, signals: bool = False
    ) -> AsyncGenerator[AnswerEvent]:
        if self.busy:
            error = LocalModelError("too many wait")
            error.reason = LocalFailure.BUSY
            raise error
        async for event in super().generate(query, signals=signals):
            yield event


class Bench:
    """One client, whose relay is down."""

    def __init__(
        self,
        *found: str,
        local: ScriptedLocal | None = None,
        store: DeferredStore | None = None,
        max_items: int = 9,
        trail: MemoryTrail | None = None,
        way_out: bool = True,
        below: Callable[[int], int] = lambda most: most // 2,
    ) -> None:
        self.said: list[str] = []
        policy = load_policy(f"{BLOCKING}\n{SECTION}")
        assert policy.routing is not None
        self.now = NOW
        self.router = Router(
            policy.routing, RulesEstimator(), clock=lambda: self.clock().timestamp()
        )
        self.inspector = ScriptedInspector(*found)
        self.local = local or ScriptedLocal(broken=True)
        self.enclave = MemoryEnclave()
        self.enclave.fetch_fails = DOWN
        self.store = store or DeferredStore(
            None, bytes(KEY_BYTES), max_items=max_items, max_bytes=100_000
        )
        self.trail = trail or MemoryTrail()
        self.slept: list[float] = []
        self.traced: list[TraceLine] = []
        self.awake = asyncio.Event()
        self.session = Session(
            ClientParts(
                policy=policy,
                inspector=self.inspector,
                local=self.local,
                transport=self.enclave if way_out else None,
                keys=key_store(policy=policy),
                audit=self.trail,
                clock=self.clock,
                router=self.router,
                queue=self.store,
                trace=self.traced.append,
                sleep=self.sleep,
                below=below,
                notify=self.said.append,
            )
        )

    def clock(self) -> datetime:
        return self.now

    async def sleep(self, seconds: float) -> None:
        if seconds > LONGEST_PAUSE_S:  # until a key is renewed
            await asyncio.Event().wait()
        self.slept.append(seconds)
        await self.awake.wait()
        self.awake.clear()

    def later(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)

    async def queued(self, asked: Query | None = None) -> QueuedError:
        with pytest.raises(QueuedError) as caught:
            await self.session.ask(asked or query())
        return caught.value

    async def back(self) -> None:
        """The network is there again, and was found to be."""
        self.enclave.fetch_fails = None
        self.later(31)
        await self.session.queue.drain()  # finds out, in the background
        await self.session.settle()


async def test_an_unanswerable_query_is_deferred_on_request() -> None:
    bench = Bench()
    deferred = await bench.queued()
    assert (deferred.code, deferred.http_status) == ("queued", 503)
    (item,) = await bench.session.queue.items()
    assert (item.ticket, item.cause) == (deferred.ticket, "relay_unreachable")
    with pytest.raises(QueuedError, match=r"^queued: "):
        await bench.session.queue.collect(deferred.ticket)


async def test_without_a_word_it_is_refused_as_ever() -> None:
    bench = Bench()
    with pytest.raises(AnswererError):
        await bench.session.ask(query(defer=False))
    assert await bench.session.queue.items() == ()


async def test_it_is_asked_again_and_answered_once() -> None:
    bench = Bench()
    deferred = await bench.queued()
    assert (await bench.session.queue.drain()).waiting == 1
    await bench.back()
    drained = await bench.session.queue.drain()
    assert (drained.answered, drained.waiting) == (1, 0)
    # That it waits is in the trail, once however often it is asked again.
    outcomes = [each.outcome for each in bench.trail.entries]
    assert outcomes.count(Outcome.QUEUED) == outcomes.count(Outcome.ENCLAVE) == 1
    for _ in range(2):  # it stays until it is dropped
        answer = await bench.session.queue.collect(deferred.ticket)
        assert answer.text == "From afar."
        assert answer.route is Answerer.ENCLAVE
    assert len(bench.enclave.sealed) == 1
    assert await bench.session.queue.drop(deferred.ticket)
    with pytest.raises(TicketError) as gone:
        await bench.session.queue.collect(deferred.ticket)
    assert (gone.value.code, gone.value.http_status) == ("queue_unknown", 404)


async def test_what_waits_is_counted_once_and_its_answer_may_be_graded() -> None:
    counts = Counts()
    telemetry.use(counts.telemetry)
    bench = Bench()
    deferred = await bench.queued()
    assert counts.of("queue.depth") == {"": 1}
    await bench.session.queue.drain()
    await bench.back()
    await bench.session.queue.drain()
    assert counts.of("refuse") == {"queued": 1}
    assert counts.of("queue.depth") == {"": 0}
    answer = await bench.session.queue.collect(deferred.ticket)
    bench.session.feedback(answer.id, good=True)
    telemetry.use(None)
    assert counts.of("feedback") == {"enclave good": 1}


async def test_deferred_queries_are_retried_in_the_background() -> None:
    bench = Bench()
    deferred = await bench.queued()
    await _until(lambda: bench.slept == [5.0])
    bench.awake.set()
    await _until(lambda: bench.slept == [5.0, 10.0])
    bench.enclave.fetch_fails = None
    bench.later(31)
    bench.awake.set()
    await _until(lambda: len(bench.slept) == 3)
    await bench.session.settle()
    bench.awake.set()
    await _until(lambda: bench.store.items(0)[0].state is State.ANSWERED)
    assert (await bench.session.queue.collect(deferred.ticket)).text == "From afar."
    assert len(bench.slept) == 3
    await bench.session.close()


async def test_one_unreadable_row_holds_up_no_other(tmp_path: Path) -> None:
    file = tmp_path / "queue.db"
    store = DeferredStore(file, bytes(KEY_BYTES), max_items=9, max_bytes=100_000)
    bench = Bench(store=store)
    lost, kept = await bench.queued(), await bench.queued(query("What is a vaccine?"))
    with sqlite3.connect(file) as table:
        table.execute("UPDATE items SET class = 'xx' WHERE ticket = ?", (lost.ticket,))
    await bench.back()
    assert (await bench.session.queue.drain()).answered == 1
    assert (await bench.session.queue.collect(kept.ticket)).text == "From afar."
    with pytest.raises(TicketError) as deferred:
        await bench.session.queue.collect(lost.ticket)
    assert deferred.value.code == "queue_damaged"
    assert [each for each in bench.said if "queue" in each] == [
        f"the queue: 1 {UNREADABLE}"
    ]
    await bench.session.close()


async def test_a_question_that_breaks_the_loop_holds_up_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench()
    first, second = await bench.queued(), await bench.queued()
    await bench.back()
    asks, broken = bench.session.decide, set[int]()

    async def breaks(asked: Query) -> Decision:
        if not broken:
            broken.add(1)
            raise RuntimeError(TEXT)
        return await asks(asked)

    monkeypatch.setattr(bench.session, "decide", breaks)
    drained = await bench.session.queue.drain()
    assert (drained.answered, drained.waiting) == (1, 1)
    assert bench.said[-1] == BROKE
    monkeypatch.undo()
    assert (await bench.session.queue.drain()).answered == 1
    for each in (first, second):
        assert (await bench.session.queue.collect(each.ticket)).text == "From afar."


async def test_that_the_queue_fails_and_works_again_is_in_the_report_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench()
    await bench.queued()
    await _until(lambda: len(bench.slept) == 1)

    def fails(now_ms: int) -> tuple[Deferred, ...]:
        raise QueueStoreError(f"the queue: disk I/O error at {now_ms > 0}")

    def wrong() -> set[Reason | None]:
        return {each.reason for each in bench.session.health().reasons}

    monkeypatch.setattr(bench.store, "items", fails)
    bench.awake.set()
    await _until(lambda: len(bench.slept) == 2)
    assert Reason.QUEUE_FAILED in wrong()
    monkeypatch.undo()
    bench.awake.set()
    await _until(lambda: len(bench.slept) == 3)
    assert Reason.QUEUE_FAILED not in wrong()
    assert not bench.said
    await bench.session.close()


async def _until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110 - it waits for threads too
        await asyncio.sleep(0.001)


async def test_nothing_of_it_has_left_is_said_where_that_is_so() -> None:
    bench = Bench()
    deferred = await bench.queued()
    assert not deferred.left
    assert (deferred.reason, deferred.eta_s) == (EnclaveFailure.RELAY_UNREACHABLE, 35)
    said = str(deferred)
    assert said.startswith(f"queued: {FAILURE_TEXTS[deferred.reason]}; ")
    assert " 35 s " in said
    assert said.endswith(f"(ticket {deferred.ticket}); {NOTHING_SENT}")


async def test_nothing_is_promised_of_what_was_sealed() -> None:
    bench = Bench()
    bench.enclave.fetch_fails = None
    bench.enclave.reply = Reply(content=b"{}", status=503, media_type=b"x/y")
    deferred = await bench.queued()
    assert len(bench.enclave.sealed) == 1
    assert deferred.left
    assert "device" not in str(deferred)


async def test_a_busy_enclaves_retry_time_is_reported() -> None:
    bench = Bench()
    bench.enclave.fetch_fails = None
    bench.enclave.reply = Reply(
        content=b"{}",
        status=503,
        media_type=b"x/y",
        fields=((b"retry-after", b"9"),),
    )
    bench.awake.set()  # it is waited for once, while there is time
    # So long it is left alone, and at most one short pause longer.
    assert (await bench.queued(query(total_ms=1000))).eta_s == 9 + FIRST_PAUSE_S


async def test_the_pause_is_reported_for_an_immediate_retry() -> None:
    bench = Bench()
    bench.enclave.fetch_fails = None
    bench.enclave.fails = EnclaveError(EnclaveFailure.ANSWER_BROKEN)
    deferred = await bench.queued(query(require=Require.ENCLAVE))
    assert deferred.eta_s == FIRST_PAUSE_S
    assert str(deferred).startswith("queued: ")
    assert ", next within 5 s (ticket " in str(deferred)
    await bench.session.close()


class TimedBench(Bench):
    """The same, with a clock that the test moves and whose sleepers wake by it."""

    def __init__(self, *, drawn: float) -> None:
        super().__init__(below=lambda most: int(drawn * (most - 1)))
        self.sleepers: list[tuple[datetime, asyncio.Event]] = []

    @override
    async def sleep(self, seconds: float) -> None:
        over = asyncio.Event()
        if seconds > MOST_PAUSE_S:  # until a key is renewed
            await over.wait()
        sleeper = (self.now + timedelta(seconds=seconds), over)
        self.sleepers.append(sleeper)
        try:
            await over.wait()
        finally:
            self.sleepers.remove(sleeper)

    async def passes(self, seconds: int) -> None:
        """Let so many seconds pass, and all that happens in them happen."""
        for _ in range(seconds):
            self.later(1)
            for at, over in self.sleepers:
                if at <= self.now:
                    over.set()
            await _until(self._idle)
            await self.session.settle()
            await asyncio.sleep(0.001)  # other tasks that were woken go on
            await _until(self._idle)

    def _idle(self) -> bool:
        """Return whether all sleep again; the work in threads has ended then."""
        asleep = any(not over.is_set() for _, over in self.sleepers)
        return asleep or self.answered()

    def answered(self) -> bool:
        return self.store.items(0)[0].state is State.ANSWERED


@pytest.mark.parametrize("drawn", [0.0, 0.5, 1.0])
async def test_what_is_announced_is_kept(drawn: float) -> None:
    bench = TimedBench(drawn=drawn)
    deferred = await bench.queued()
    assert deferred.eta_s == 35
    fetched = bench.enclave.fetched
    bench.enclave.fetch_fails = None
    await bench.passes(29)
    assert bench.enclave.fetched == fetched  # a breaker keeps it from a dead way
    await bench.passes(deferred.eta_s - 29)
    assert bench.enclave.fetched > fetched
    # It was a try whether the enclave is there, and it is: the question goes next.
    await bench.passes(int(FIRST_PAUSE_S) + 1)
    assert bench.answered()
    await bench.session.close()


async def test_an_enclave_found_while_nothing_waits_changes_no_pause() -> None:
    bench = TimedBench(drawn=0.5)
    bench.session.queue.reachable()
    bench.later(100)
    deferred = await bench.queued()
    assert deferred.eta_s == 35
    await asyncio.sleep(0.001)
    first, _ = bench.sleepers[0]
    assert (first - bench.now).total_seconds() == pytest.approx(FIRST_PAUSE_S, abs=0.1)
    await bench.session.close()


async def test_a_later_time_is_not_forgotten_for_an_earlier_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = TimedBench(drawn=1.0)
    await bench.queued()
    await bench.passes(40)  # it was tried after 35 s, and is again after 95
    drain, at = bench.session.queue.drain, list[float]()

    async def drains() -> Drained:
        at.append((bench.now - NOW).total_seconds())
        return await drain()

    monkeypatch.setattr(bench.session.queue, "drain", drains)
    alone = iter((5, 20))

    def left_alone_s(tier: str) -> int | None:
        return next(alone, None) if tier == "enclave" else None

    monkeypatch.setattr(bench.router, "left_alone_s", left_alone_s)
    deferred = [
        await bench.queued(query(text, require=Require.ENCLAVE))
        for text in ("What is a vaccine?", "What is a virus?")
    ]
    assert [each.eta_s for each in deferred] == [10, 25]
    await bench.passes(30)
    assert at == [50, 65]
    await bench.session.close()


async def test_many_questions_at_once_are_one_try(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = TimedBench(drawn=0.0)
    drawn = random.Random(4)  # noqa: S311 - repeatable, no secret
    monkeypatch.setattr(bench.session.queue, "_below", drawn.randrange)
    drain, at = bench.session.queue.drain, list[float]()

    async def drains() -> Drained:
        at.append((bench.now - NOW).total_seconds())
        return await drain()

    monkeypatch.setattr(bench.session.queue, "drain", drains)
    deferred = [await bench.queued(query(f"{TEXT} {number}")) for number in range(9)]
    fetched = bench.enclave.fetched
    assert {each.eta_s for each in deferred} == {35}
    await bench.passes(35)
    assert bench.enclave.fetched > fetched
    assert len([each for each in at if each >= 30]) == 1
    await bench.session.close()


async def test_one_that_comes_later_does_not_wait_for_a_long_pause() -> None:
    bench = TimedBench(drawn=1.0)
    await bench.queued()
    await bench.passes(190)  # the pauses are 90 s long by now
    deferred = await bench.queued(query("What is a vaccine?"))
    await bench.session.settle()
    fetched = bench.enclave.fetched
    assert deferred.eta_s is not None
    await bench.passes(deferred.eta_s)
    assert bench.enclave.fetched > fetched
    await bench.session.close()


async def test_an_enclave_that_was_found_to_be_there_is_asked_soon() -> None:
    bench = TimedBench(drawn=1.0)
    await bench.queued()
    await bench.passes(230)  # the breaker lets one try, and the pause has 45 s to go
    bench.enclave.fetch_fails = None
    await bench.passes(1)
    assert not bench.answered()
    await bench.session.look()  # as ``serve`` does, in the background
    await bench.passes(int(FIRST_PAUSE_S) + 1)
    assert bench.answered()
    await bench.session.close()


@pytest.mark.parametrize(
    "reason", [EnclaveFailure.EVIDENCE_REFUSED, EnclaveFailure.RELAY_DENIED]
)
async def test_what_waiting_does_not_help_is_refused_at_once(
    reason: FailureReason,
) -> None:
    bench = Bench()
    bench.enclave.fetch_fails = EnclaveError(reason)
    with pytest.raises(AnswererError):
        await bench.session.ask(query())
    assert await bench.session.queue.items() == ()


async def test_a_class_may_not_wait() -> None:
    bench = Bench()
    internal = query(floor=RoutingClass.INTERNAL)
    with pytest.raises(AnswererError):
        await bench.session.ask(internal)
    assert await bench.session.queue.items() == ()


async def test_what_is_required_waits_for_it() -> None:
    """Though another could answer: a caller that requires one prefers to wait."""
    bench = Bench(local=ScriptedLocal())
    required = query(require=Require.ENCLAVE)
    deferred = [await bench.queued(required) for _ in range(2)]  # failed; left alone
    await bench.back()
    assert (await bench.session.queue.drain()).answered == 2
    for each in deferred:
        answer = await bench.session.queue.collect(each.ticket)
        assert answer.route is Answerer.ENCLAVE


async def test_a_waiting_item_does_not_block_others() -> None:
    local = BusyLocal()
    bench = Bench(local=local)
    required = await bench.queued(query(require=Require.ENCLAVE))
    other = await bench.queued(query("And what of tetanus?", mode=Mode.HOME))
    assert other.reason is LocalFailure.BUSY
    bench.later(31)
    local.busy = False
    drained = await bench.session.queue.drain()
    assert (drained.answered, drained.waiting) == (1, 1)
    assert (await bench.session.queue.collect(other.ticket)).text == "At home."
    with pytest.raises(QueuedError):
        await bench.session.queue.collect(required.ticket)


async def test_what_waits_for_the_same_is_tried_once() -> None:
    bench = Bench()
    for _ in range(3):
        await bench.queued()
    seen = len(bench.inspector.seen)
    assert (await bench.session.queue.drain()).waiting == 3
    assert len(bench.inspector.seen) == seen + 2  # decided, and asked


async def test_so_many_may_wait() -> None:
    bench = Bench(max_items=1)
    await bench.queued()
    with pytest.raises(QueueFullError) as full:
        await bench.session.ask(query())
    assert full.value.code == "queue_full"
    # A full queue is one that can be read and written.
    assert bench.session.queue is not None
    assert not bench.session.queue.failing


async def test_a_deferred_query_is_asked_on_no_callers_behalf(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What waits is not asked in the name of the program that started the loop."""
    bench = Bench()
    callers: list[bytes | None] = []

    async def drains() -> Drained:
        callers.append(CALLER.get())
        return Drained(waiting=1)

    assert bench.session.queue is not None
    monkeypatch.setattr(bench.session.queue, "drain", drains)
    CALLER.set(b"the first")
    await bench.queued()
    await _until(lambda: len(bench.slept) == 1)
    bench.awake.set()
    await _until(lambda: len(callers) == 1)
    assert callers == [b""]
    await bench.session.close()


async def test_what_an_application_queued_is_its_own() -> None:
    bench = Bench()
    assert bench.session.queue is not None
    asked: list[tuple[str, bytes | None]] = []
    decide = bench.session.decide

    async def deciding(query: Query) -> Decision:
        asked.append((APPLICATION.get(), CALLER.get()))
        return await decide(query)

    bench.session.decide = deciding  # type: ignore[method-assign]
    APPLICATION.set("letters")
    ticket = (await bench.queued()).ticket
    for other in ("triage", ""):
        APPLICATION.set(other)
        with pytest.raises(TicketError) as unknown:
            await bench.session.queue.collect(ticket)
        assert unknown.value.code == "queue_unknown"
        assert not await bench.session.queue.drop(ticket)
    await bench.back()
    assert (await bench.session.queue.drain()).answered == 1
    # Asked again in its name, and in that of none other afterwards.
    assert set(asked) == {("letters", caller_of("letters"))}
    assert (APPLICATION.get(), CALLER.get()) == ("", b"")
    assert {each.application for each in bench.trail.entries} == {"letters"}
    with pytest.raises(TicketError):
        await bench.session.queue.collect(ticket)
    APPLICATION.set("letters")
    assert (await bench.session.queue.collect(ticket)).text == "From afar."
    assert await bench.session.queue.drop(ticket)


async def test_a_query_deferred_too_long_is_reported_expired() -> None:
    bench = Bench()
    deferred = await bench.queued()
    bench.later(3600)
    with pytest.raises(TicketError) as over:
        await bench.session.queue.collect(deferred.ticket)
    assert (over.value.code, over.value.http_status) == ("queue_expired", 410)
    await bench.back()
    assert (await bench.session.queue.drain()).answered == 0
    assert bench.enclave.sealed == []


async def test_what_must_stay_now_stays() -> None:
    """A list was extended, or a policy changed, while it waited."""
    bench = Bench(local=BusyLocal())
    deferred = await bench.queued()
    bench.inspector.findings = (finding("financial.pan"),)
    assert isinstance(bench.local, BusyLocal)
    bench.local.busy = False
    await bench.back()
    answer = await bench.session.queue.collect(deferred.ticket)
    assert answer.route is Answerer.LOCAL
    assert bench.enclave.sealed == []


async def test_what_had_to_stay_stays_though_nothing_is_found_now() -> None:
    bench = Bench("financial.pan", local=BusyLocal())
    bench.enclave.fetch_fails = None
    deferred = await bench.queued()
    bench.inspector.findings = ()
    assert (await bench.session.queue.drain()).waiting == 1
    assert isinstance(bench.local, BusyLocal)
    bench.local.busy = False
    bench.later(31)
    assert (await bench.session.queue.drain()).answered == 1
    answer = await bench.session.queue.collect(deferred.ticket)
    assert answer.route is Answerer.LOCAL
    assert bench.enclave.sealed == []


async def test_what_is_blocked_now_is_refused() -> None:
    bench = Bench()
    deferred = await bench.queued()
    bench.inspector.findings = (finding("secret.private_key", score=100),)
    assert (await bench.session.queue.drain()).refused == 1
    assert bench.enclave.sealed == []
    with pytest.raises(TicketError) as blocked:
        await bench.session.queue.collect(deferred.ticket)
    assert blocked.value.code == "blocked_by_policy"


async def test_what_became_impossible_is_refused_with_its_reason() -> None:
    bench = Bench()
    deferred = await bench.queued()
    bench.enclave.fetch_fails = EnclaveError(EnclaveFailure.EVIDENCE_REFUSED)
    bench.later(31)
    await bench.session.queue.drain()
    await bench.session.settle()
    assert (await bench.session.queue.drain()).refused == 1
    with pytest.raises(TicketError) as refused:
        await bench.session.queue.collect(deferred.ticket)
    assert (refused.value.code, refused.value.http_status) == ("refused", 503)


async def test_an_item_changed_on_disk_is_not_sent(
    tmp_path: Path,
) -> None:
    class Swapped(DeferredStore):
        """Each row holds the other's content."""

        @override
        def content(self, item: object) -> bytes:
            first, second = self.items(0)
            other = second if item == first else first
            return super().content(replace(other, ticket=first.ticket))

    store = Swapped(tmp_path / "q", bytes(KEY_BYTES), max_items=9, max_bytes=9_999)
    bench = Bench(store=store)
    await bench.queued()
    await bench.queued()
    await bench.back()
    assert bench.enclave.sealed == []


async def test_without_a_queue_no_query_waits() -> None:
    bench = Bench()
    bare = Session(
        ClientParts(
            policy=load_policy(BLOCKING),
            inspector=bench.inspector,
            local=bench.local,
            transport=bench.enclave,
            keys=key_store(),
            audit=MemoryTrail(),
        )
    )
    with pytest.raises(UsageError, match=re.escape(NO_QUEUE)):
        await bare.ask(query())
    with pytest.raises(UsageError):
        await bare.queue.collect("00")
    assert bench.inspector.seen == []


def stored(path: Path) -> DeferredStore:
    return DeferredStore(path, bytes(KEY_BYTES), max_items=9, max_bytes=100_000)


class _DiesAfter(DeferredStore):
    """Is killed before, or after, it notes what came of a question."""

    noted = False

    @override
    def settle(self, *arguments: object, **named: object) -> bool:
        if self.noted:
            super().settle(*arguments, **named)  # type: ignore[arg-type]
        os.kill(os.getpid(), signal.SIGKILL)
        return False


def _drain_and_die(path: Path, *, noted: bool) -> None:
    store = _DiesAfter(path, bytes(KEY_BYTES), max_items=9, max_bytes=100_000)
    store.noted = noted

    async def drain() -> None:
        bench = Bench(store=store)
        bench.enclave.fetch_fails = None
        await bench.session.queue.drain()

    asyncio.run(drain())


def _killed(what: Callable[[], None]) -> None:
    process = multiprocessing.get_context("fork").Process(target=what)
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL


@pytest.mark.parametrize("noted", [False, True])
def test_killed_while_it_drains_no_question_is_lost_and_none_has_two_answers(
    tmp_path: Path, *, noted: bool
) -> None:
    path = tmp_path / "queue.db"

    async def put() -> str:
        bench = Bench(store=stored(path))
        deferred = await bench.queued()
        await bench.session.close()
        return deferred.ticket

    async def after(ticket: str) -> None:
        bench = Bench(store=stored(path))
        bench.enclave.fetch_fails = None
        drained = await bench.session.queue.drain()
        # Noted: it has its answer, and is not asked again.
        assert drained.answered == (0 if noted else 1)
        assert len(bench.enclave.sealed) == (0 if noted else 1)
        (item,) = await bench.session.queue.items()
        assert (item.ticket, item.state) == (ticket, State.ANSWERED)
        assert (await bench.session.queue.collect(ticket)).text == "From afar."
        await bench.session.close()

    ticket = asyncio.run(put())
    _killed(partial(_drain_and_die, path, noted=noted))
    asyncio.run(after(ticket))


async def test_a_disk_that_fails_queues_nothing() -> None:
    class Full(DeferredStore):
        @override
        def put(self, item: Deferred, content: bytes, why: str) -> None:
            raise QueueStoreError("the queue: database or disk is full")

    store = Full(None, bytes(KEY_BYTES), max_items=9, max_bytes=9_999)
    with pytest.raises(AnswererError):
        await Bench(store=store).session.ask(query())


class Unreadable(DeferredStore):
    """Takes a question, and then cannot be read for a while."""

    readable = False

    @override
    def items(self, now_ms: int) -> tuple[Deferred, ...]:
        if not self.readable:
            raise QueueStoreError("the queue: database is locked")
        return super().items(now_ms)


async def test_what_was_put_by_has_a_ticket_though_it_cannot_be_counted() -> None:
    """Else it would be sent later, after its sender got the error."""
    store = Unreadable(None, bytes(KEY_BYTES), max_items=9, max_bytes=9_999)
    bench = Bench(store=store)
    deferred = await bench.queued()
    store.readable = True
    assert [each.ticket for each in store.items(0)] == [deferred.ticket]


class Counting(DeferredStore):
    """Says when it is counted, and waits for a signal to go on."""

    def __init__(self, *arguments: object, **named: object) -> None:
        super().__init__(*arguments, **named)  # type: ignore[arg-type]
        self.counts, self.go = threading.Event(), threading.Event()

    @override
    def items(self, now_ms: int) -> tuple[Deferred, ...]:
        if not self.go.is_set():
            self.counts.set()
            self.go.wait()
        return super().items(now_ms)


async def test_who_gives_up_while_it_is_counted_has_nothing_that_waits() -> None:
    store = Counting(None, bytes(KEY_BYTES), max_items=9, max_bytes=9_999)
    bench = Bench(store=store)
    asked = asyncio.ensure_future(bench.session.ask(query()))
    await _until(store.counts.is_set)
    asked.cancel()
    store.go.set()
    with pytest.raises(asyncio.CancelledError):
        await asked
    assert store.items(0) == ()


class Meanwhile(BusyLocal):
    """While it answers, something else happens."""

    def __init__(self) -> None:
        super().__init__()
        self.happens: Callable[[], object] = lambda: None

    @override
    async def generate(
        self, query: Query, *, signals: bool = False
    ) -> AsyncGenerator[AnswerEvent]:
        if not self.busy:
            self.happens()
        async for event in super().generate(query, signals=signals):
            yield event


async def test_what_waited_too_long_while_others_were_asked_is_not_asked() -> None:
    bench = Bench(local=(local := Meanwhile()))
    for _ in range(2):
        await bench.queued()
    local.busy, local.happens = False, lambda: bench.later(3600)
    bench.later(31)
    assert (await bench.session.queue.drain()).answered == 1
    assert len(local.asked) == 1


async def test_one_that_is_dropped_while_others_are_asked_stops_no_others() -> None:
    bench = Bench(local=(local := Meanwhile()))
    deferred = [await bench.queued() for _ in range(3)]
    local.busy, local.happens = False, lambda: bench.store.drop(deferred[1].ticket)
    bench.later(31)
    drained = await bench.session.queue.drain()
    assert (drained.answered, drained.refused, drained.waiting) == (2, 0, 0)


async def test_a_queue_that_came_to_grief_keeps_nothing_else_open() -> None:
    class Grief(DeferredStore):
        @override
        def items(self, now_ms: int) -> tuple[Deferred, ...]:
            if bench.slept:
                raise ZeroDivisionError
            return super().items(now_ms)

    bench = Bench(store=Grief(None, bytes(KEY_BYTES), max_items=9, max_bytes=9_999))
    await bench.queued()
    await _until(lambda: bench.slept == [5.0])
    bench.awake.set()
    for _ in range(100):
        await asyncio.sleep(0)
    await bench.session.close()
    assert bench.enclave.closed


async def test_no_query_is_retried_once_it_is_closed() -> None:
    bench = Bench()
    await bench.session.queue.close()
    bench.session.queue.keep_on()
    for _ in range(9):
        await asyncio.sleep(0)
    assert bench.slept == []


class NeverRecords(MemoryTrail):
    """Reports the notice that something waits, and does not return."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = asyncio.Event()

    @override
    async def append(self, entry: AuditEntry) -> None:
        if entry.outcome is Outcome.QUEUED:
            self.asked.set()
            await asyncio.Event().wait()
        await super().append(entry)


async def test_who_gives_up_while_it_is_recorded_has_nothing_that_waits() -> None:
    bench = Bench(trail=(trail := NeverRecords()))
    asked = asyncio.ensure_future(bench.session.ask(query()))
    await trail.asked.wait()
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    assert bench.store.items(0) == ()


async def test_without_a_way_out_no_waiting_item_is_refused(
    tmp_path: Path,
) -> None:
    """An endpoint that was started without its relay finds the file of one that was."""
    path = tmp_path / "queue.db"
    bench = Bench(store=stored(path))
    deferred = await bench.queued(query(require=Require.ENCLAVE))
    await bench.session.close()
    bench = Bench(store=stored(path), way_out=False)
    assert await bench.session.queue.drain() == Drained(waiting=1)
    with pytest.raises(QueuedError):
        await bench.session.queue.collect(deferred.ticket)
    await bench.session.close()


async def test_what_waits_on_is_one_line_of_the_trace_and_its_answer_another() -> None:
    bench = Bench()
    await bench.queued()
    for _ in range(3):
        bench.later(60)
        await bench.session.queue.drain()
    await bench.back()
    await bench.session.queue.drain()
    await bench.session.close()
    outcomes = [line.outcome for line in bench.traced]
    assert outcomes == [TraceOutcome.REFUSED, TraceOutcome.ANSWERED]
