"""Exchanges run to their end on the wire, with or without a watcher."""

import asyncio
import os
import signal
from collections.abc import AsyncGenerator
from dataclasses import replace

import pytest
from typing_extensions import override

from curtilage.cli import main as cli
from curtilage.cli import start as shared
from curtilage.client.chat.answer import Answerer
from curtilage.client.chat.query import Message, Query
from curtilage.client.errors import (
    EnclaveError,
    FailureReason,
    IncompleteAnswerError,
)
from curtilage.client.parts import ClientParts, UnavailableLocal
from curtilage.client.remote.answer_opener import most_bytes
from curtilage.client.remote.draining import TIMER, Timer
from curtilage.client.remote.reasons import EnclaveFailure
from curtilage.client.remote.sealed import SealedExchange
from curtilage.client.session import Session
from curtilage.policy.document.load import load_profile
from curtilage.wire.shaping import UNPADDED, TransportParameters
from support.client_parts import MemoryTrail, ScriptedInspector, ScriptedLocal
from support.memory_enclave import (
    QUICK,
    Clock,
    MemoryEnclave,
    Reply,
    chunk,
    completion,
    key_store,
    sse,
)
from support.virtual_time import VirtualTime

QUERY = Query(messages=(Message(role="user", content="hello"),), stream=True)
LONG = Reply(
    content=sse(chunk("From "), chunk("afar."), chunk(finish="stop")),
    frames=QUICK.frames_of(2),
)
SEALED_FRAME = 2 + QUICK.frame_bytes + 16
FIRST_FRAMES = 16 + 2 * SEALED_FRAME
JSON = b"application/json"


def session(
    enclave: MemoryEnclave,
    *,
    local: ScriptedLocal | None = None,
    most_running: int = 64,
    timer: Timer = TIMER,
) -> Session:
    return Session(
        ClientParts(
            policy=load_profile("default"),
            inspector=ScriptedInspector(),
            local=local or UnavailableLocal("there is no local model"),
            transport=enclave,
            keys=key_store(enclave.parameters),
            audit=MemoryTrail(),
            most_running=most_running,
            clock=Clock(),
            timer=timer,
        )
    )


async def test_an_answer_is_finished_while_the_rest_is_still_to_come() -> None:
    enclave = MemoryEnclave(LONG)
    enclave.held = 16 + 5 * SEALED_FRAME
    running = session(enclave)
    answer = await running.ask(QUERY)
    assert answer.text == "From afar."
    assert (running.unsettled, enclave.ended.is_set()) == (1, False)
    enclave.go.set()
    await running.close()
    assert (running.unsettled, enclave.ended.is_set()) == (0, True)


async def test_a_cancel_does_not_show_on_the_wire() -> None:
    enclave = MemoryEnclave(LONG)
    enclave.held = FIRST_FRAMES
    running = session(enclave)
    stream = running.stream(QUERY)
    async for piece in stream:
        assert piece.text == "From "
        break
    await stream.aclose()
    assert not enclave.left.is_set()
    enclave.go.set()
    await running.settle()
    assert (enclave.ended.is_set(), enclave.left.is_set()) == (True, False)


async def test_a_task_that_is_cancelled_while_it_waits_does_not_show_either() -> None:
    enclave = MemoryEnclave(LONG)
    enclave.held = 0
    running = session(enclave)
    asking = asyncio.create_task(running.ask(QUERY))
    await enclave.begun.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert not enclave.left.is_set()
    enclave.go.set()
    await running.close()
    assert enclave.ended.is_set()


async def test_an_answer_that_cannot_be_read_is_let_in_to_its_end() -> None:
    enclave = MemoryEnclave(LONG)
    enclave.flip, enclave.held = 60, FIRST_FRAMES
    running = session(enclave, local=ScriptedLocal())
    answer = await running.ask(QUERY)
    assert answer.route is Answerer.LOCAL
    assert answer.provenance.fallback is EnclaveFailure.ANSWER_BROKEN
    assert not enclave.left.is_set()
    enclave.go.set()
    await running.close()
    assert enclave.ended.is_set()


async def test_an_error_while_draining_reaches_no_caller() -> None:
    enclave = CutLater(LONG)
    enclave.held = 16 + 5 * SEALED_FRAME
    running = session(enclave)
    answer = await running.ask(QUERY)
    assert answer.text == "From afar."
    enclave.go.set()
    await running.close()


class CutLater(MemoryEnclave):
    """Loses the connection after the pause."""

    @override
    async def body(self, data: bytes) -> AsyncGenerator[bytes]:
        async for piece in super().body(data[: self.held]):
            yield piece
        raise EnclaveError(EnclaveFailure.ANSWER_INCOMPLETE)


async def test_a_connection_lost_before_the_end_mark_is_incomplete() -> None:
    enclave = CutLater(LONG)
    enclave.held = FIRST_FRAMES
    enclave.go.set()
    running = session(enclave)
    with pytest.raises(IncompleteAnswerError):
        await running.ask(QUERY)


async def test_unpadded_a_cancel_closes_at_once() -> None:
    enclave = MemoryEnclave(LONG, parameters=UNPADDED)
    enclave.held = 250
    running = session(enclave)
    stream = running.stream(QUERY)
    async for piece in stream:
        assert piece.text == "From "
        break
    await stream.aclose()
    assert enclave.left.is_set()
    assert running.unsettled == 0


async def test_too_many_that_run_keep_the_next_one_local() -> None:
    enclave = MemoryEnclave(LONG)
    enclave.held = 16 + 5 * SEALED_FRAME
    running = session(enclave, local=ScriptedLocal(), most_running=1)
    assert (await running.ask(QUERY)).route is Answerer.ENCLAVE
    answer = await running.ask(QUERY)
    assert answer.provenance.fallback is EnclaveFailure.TOO_MANY_RUNNING
    assert len(enclave.sealed) == 1
    enclave.go.set()
    await running.settle()
    enclave.held = None
    assert (await running.ask(QUERY)).route is Answerer.ENCLAVE


async def test_an_endless_body_is_cut_off() -> None:
    enclave = Endless()
    running = session(enclave, local=ScriptedLocal())
    answer = await running.ask(QUERY)
    assert answer.provenance.fallback is EnclaveFailure.ANSWER_BROKEN
    await running.close()
    assert enclave.left.is_set()
    assert enclave.passed_bytes <= most_bytes(QUICK) + 1000


class Endless(MemoryEnclave):
    """Says nothing that opens, for ever."""

    passed_bytes = 0

    @override
    async def body(self, data: bytes) -> AsyncGenerator[bytes]:
        while True:
            self.passed_bytes += 1000
            yield bytes(1000)
            await asyncio.sleep(0)


class Passing(VirtualTime):
    """Virtual time for a client."""

    @property
    def clients(self) -> Timer:
        return Timer(clock=lambda: self.now, sleep=self.sleep)


class Dripping(MemoryEnclave):
    """Behind a relay that passes one byte every 4.9 s, from some point on."""

    after = 0

    def __init__(
        self,
        reply: Reply,
        passing: Passing,
        parameters: TransportParameters = QUICK,
    ) -> None:
        super().__init__(reply, parameters=parameters)
        self.passing = passing
        self.began = passing.now

    @override
    async def body(self, data: bytes) -> AsyncGenerator[bytes]:
        yield data[: self.after]
        for at in range(self.after, len(data)):
            await self.passing.sleep(4.9)
            yield data[at : at + 1]


@pytest.mark.parametrize(
    ("frames", "reason"),
    [(0, EnclaveFailure.TIMEOUT), (2, EnclaveFailure.ANSWER_LATE)],
    ids=["before the first frame", "behind it"],
)
async def test_an_answer_that_drips_is_given_up(
    frames: int, reason: FailureReason
) -> None:
    """Bytes arrive all the time, but no complete frame."""
    passing = Passing()
    enclave = Dripping(Reply(content=completion("x" * 2000), media_type=JSON), passing)
    enclave.after = 16 + frames * SEALED_FRAME
    running = session(enclave, local=ScriptedLocal(), timer=passing.clients)
    answer = await running.ask(QUERY)
    assert answer.route is Answerer.LOCAL
    assert answer.provenance.fallback is reason
    assert 15 <= passing.now - enclave.began <= 15 + 4
    await running.close()
    assert enclave.left.is_set()
    assert passing.now - enclave.began <= 15 + 4


async def test_closing_waits_for_the_promised_end_and_a_little_longer() -> None:
    """Cancelled, complete or unreadable: what drips has the pace of its frames."""
    passing = Passing()
    enclave = Dripping(LONG, passing)
    enclave.after = 16 + 5 * SEALED_FRAME
    running = session(enclave, timer=passing.clients)
    assert (await running.ask(QUERY)).text == "From afar."
    await running.close()
    assert enclave.left.is_set()
    assert passing.now - enclave.began <= 15 + 4


async def test_an_unreadable_dripping_answer_is_cut_off_too() -> None:
    """Its bytes count as the frames that they would make."""
    passing = Passing()
    enclave = Dripping(LONG, passing, replace(QUICK, period_ms=1000))
    enclave.flip, enclave.after = 60, 16 + 2 * SEALED_FRAME
    running = session(enclave, local=ScriptedLocal(), timer=passing.clients)
    answer = await running.ask(QUERY)
    assert answer.provenance.fallback is EnclaveFailure.ANSWER_BROKEN
    await running.close()
    assert enclave.left.is_set()
    assert passing.now - enclave.began <= 15 + 2 + 4


class Halting(MemoryEnclave):
    """On a line that stalls for a while before and during an answer."""

    def __init__(self, reply: Reply, passing: Passing, halt_s: float) -> None:
        super().__init__(reply)
        self.passing = passing
        self.halt_s = halt_s

    @override
    async def body(self, data: bytes) -> AsyncGenerator[bytes]:
        await self.passing.sleep(self.halt_s)
        yield data[:FIRST_FRAMES]
        await self.passing.sleep(self.halt_s)
        yield data[FIRST_FRAMES:]


async def test_an_answer_that_is_merely_late_is_waited_for() -> None:
    passing = Passing()
    running = session(Halting(LONG, passing, 14), timer=passing.clients)
    assert (await running.ask(QUERY)).text == "From afar."
    await running.close()


async def test_a_machine_that_stood_still_reads_before_it_judges() -> None:
    """The clock jumps by far more than any limit while the answer is on its way."""
    passing = Passing(lag_s=[0.0, 600.0])
    enclave = Halting(LONG, passing, 2.5)
    running = session(enclave, timer=passing.clients)
    assert (await running.ask(QUERY)).text == "From afar."
    assert passing.now > 1600
    await running.close()


async def test_our_own_fault_reaches_the_caller() -> None:
    running = session(Faulty())
    with pytest.raises(ZeroDivisionError):
        await running.ask(QUERY)
    await running.close()


class Faulty(MemoryEnclave):
    """Fails in an unexpected way."""

    @override
    async def send(self, exchange: SealedExchange) -> AsyncGenerator[bytes]:
        exchange.take_body()
        yield b"%d" % (1 // 0)


async def test_closing_twice_cancelled_cuts_off_what_runs() -> None:
    enclave = MemoryEnclave(LONG)
    enclave.held = 16 + 5 * SEALED_FRAME
    running = session(enclave)
    await running.ask(QUERY)
    closing = asyncio.create_task(running.close())
    await asyncio.sleep(0.01)
    assert not closing.done()
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert enclave.left.is_set()
    assert enclave.closed


async def test_the_user_is_shown_what_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reported = asyncio.Event()

    def note(text: str) -> None:
        assert text == shared.WAITING
        reported.set()

    monkeypatch.setattr(shared, "err", note)
    enclave = MemoryEnclave(LONG)
    enclave.held = 16 + 5 * SEALED_FRAME
    running = session(enclave)
    await running.ask(QUERY)
    closing = asyncio.create_task(shared.close_reporting(running, after_s=0.01))
    await reported.wait()
    enclave.go.set()
    await closing
    assert enclave.ended.is_set()


def test_a_second_signal_stops_a_server_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waited = list[bool]()

    async def until(stop: asyncio.Event, *_: object) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        await stop.wait()
        os.kill(os.getpid(), signal.SIGTERM)
        try:
            await asyncio.Event().wait()
        finally:
            waited.append(True)

    monkeypatch.setattr("curtilage.cli.serve._serve_until", until)
    assert cli.main(["serve", "--port", "0"]) == 0
    assert waited == [True]


async def test_without_a_wait_nothing_is_shown(
    capsys: pytest.CaptureFixture[str],
) -> None:
    running = session(MemoryEnclave())
    await running.ask(QUERY)
    await shared.close_reporting(running)
    assert capsys.readouterr().err == ""
