"""What is on the wire runs to its end, whoever still watches."""

import asyncio
import os
import signal
from collections.abc import AsyncGenerator

import pytest
from typing_extensions import override

from curtilage.client import cli
from curtilage.client import draining as draining_module
from curtilage.client.answers import Answerer
from curtilage.client.commands import shared
from curtilage.client.draining import longest_s
from curtilage.client.errors import (
    EnclaveError,
    FailureReason,
    IncompleteAnswerError,
)
from curtilage.client.exchange import SealedExchange, most_bytes
from curtilage.client.query import Message, Query
from curtilage.client.session import ClientParts, Session, UnavailableLocal
from curtilage.policy.load import load_profile
from curtilage.wire.shaping import PADDED, UNPADDED, TransportParameters
from support.client_parts import MemoryTrail, ScriptedInspector, ScriptedLocal
from support.memory_enclave import (
    QUICK,
    Clock,
    MemoryEnclave,
    Reply,
    book,
    chunk,
    sse,
)

QUERY = Query(messages=(Message(role="user", content="hello"),), stream=True)
LONG = Reply(
    content=sse(chunk("From "), chunk("afar."), chunk(finish="stop")),
    frames=QUICK.frames_of(2),
)
FIRST_FRAMES = 16 + 2 * (2 + QUICK.frame_bytes + 16)


def session(
    enclave: MemoryEnclave,
    *,
    local: ScriptedLocal | None = None,
    most_running: int = 64,
) -> Session:
    return Session(
        ClientParts(
            policy=load_profile("default"),
            inspector=ScriptedInspector(),
            local=local or UnavailableLocal("there is no local model"),
            transport=enclave,
            book=book(enclave.parameters),
            audit=MemoryTrail(),
            most_running=most_running,
            clock=Clock(),
        )
    )


async def test_an_answer_is_finished_while_the_rest_is_still_to_come() -> None:
    enclave = MemoryEnclave(LONG)
    enclave.held = 16 + 5 * (2 + QUICK.frame_bytes + 16)
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
    assert answer.provenance.fallback is FailureReason.ANSWER_BROKEN
    assert not enclave.left.is_set()
    enclave.go.set()
    await running.close()
    assert enclave.ended.is_set()


async def test_an_error_while_draining_is_nobodys() -> None:
    enclave = CutLater(LONG)
    enclave.held = 16 + 5 * (2 + QUICK.frame_bytes + 16)
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
        raise EnclaveError(FailureReason.ANSWER_INCOMPLETE)


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


async def test_too_many_that_run_keep_the_next_one_home() -> None:
    enclave = MemoryEnclave(LONG)
    enclave.held = 16 + 5 * (2 + QUICK.frame_bytes + 16)
    running = session(enclave, local=ScriptedLocal(), most_running=1)
    assert (await running.ask(QUERY)).route is Answerer.ENCLAVE
    answer = await running.ask(QUERY)
    assert answer.provenance.fallback is FailureReason.TOO_MANY_RUNNING
    assert len(enclave.sealed) == 1
    enclave.go.set()
    await running.settle()
    enclave.held = None
    assert (await running.ask(QUERY)).route is Answerer.ENCLAVE


async def test_an_endless_body_is_cut_off() -> None:
    enclave = Endless()
    running = session(enclave, local=ScriptedLocal())
    answer = await running.ask(QUERY)
    assert answer.provenance.fallback is FailureReason.ANSWER_BROKEN
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


async def test_a_body_that_lasts_too_long_is_cut_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def shortest_s(parameters: TransportParameters) -> float:
        del parameters
        return 0.01

    monkeypatch.setattr(draining_module, "longest_s", shortest_s)
    enclave = MemoryEnclave(LONG)
    enclave.held = 0
    running = session(enclave, local=ScriptedLocal())
    answer = await running.ask(QUERY)
    assert answer.provenance.fallback is FailureReason.TIMEOUT
    await running.close()
    assert enclave.left.is_set()


def test_the_limit_is_that_of_the_longest_bucket() -> None:
    assert PADDED.max_frames * 0.05 < longest_s(PADDED) < 3 * PADDED.max_frames * 0.05
    fast = TransportParameters(frame_bytes=64, period_ms=1, first_bucket=2, buckets=1)
    assert longest_s(fast) >= 30


async def test_a_fault_of_ours_reaches_who_asked() -> None:
    running = session(Faulty())
    with pytest.raises(ZeroDivisionError):
        await running.ask(QUERY)
    await running.close()


class Faulty(MemoryEnclave):
    """Fails in a way that nobody foresaw."""

    @override
    async def send(self, exchange: SealedExchange) -> AsyncGenerator[bytes]:
        exchange.take_body()
        yield b"%d" % (1 // 0)


async def test_closing_twice_cancelled_cuts_off_what_runs() -> None:
    enclave = MemoryEnclave(LONG)
    enclave.held = 16 + 5 * (2 + QUICK.frame_bytes + 16)
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


async def test_a_person_is_told_what_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = asyncio.Event()

    def tell(text: str) -> None:
        assert "waiting for connections" in text
        told.set()

    monkeypatch.setattr(shared, "err", tell)
    enclave = MemoryEnclave(LONG)
    enclave.held = 16 + 5 * (2 + QUICK.frame_bytes + 16)
    running = session(enclave)
    await running.ask(QUERY)
    closing = asyncio.create_task(shared.close_told(running, after_s=0.01))
    await told.wait()
    enclave.go.set()
    await closing
    assert enclave.ended.is_set()


def test_a_server_that_is_told_twice_to_stop_does_not_wait(
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

    monkeypatch.setattr("curtilage.client.commands.serve._serve_until", until)
    assert cli.main(["serve", "--port", "0"]) == 0
    assert waited == [True]


async def test_who_does_not_wait_is_told_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    running = session(MemoryEnclave())
    await running.ask(QUERY)
    await shared.close_told(running)
    assert capsys.readouterr().err == ""
