"""Rows 5 to 9: the way to the enclave fails, or the enclave does."""

import asyncio
import json
import socket
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from degradation.conftest import (
    Kind,
    OpenSession,
    ask,
    required,
    until_running,
)

from curtilage.client.chat.answer import Answerer, Delta, Replaced, Retract
from curtilage.client.errors import FailureReason, IncompleteAnswerError
from curtilage.client.failure_texts import FAILURE_TEXTS
from curtilage.client.remote.reasons import EnclaveFailure
from curtilage.client.session import Session
from curtilage_dev.scripted_enclave import WORD
from curtilage_dev.stack import Stack
from support.evil_relay import evil_relay


@contextmanager
def closed_port() -> Generator[str]:
    """A port without a listener."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    yield f"http://127.0.0.1:{port}/demo"


@contextmanager
def full_backlog() -> Generator[str]:
    """A connection attempt gets no answer, as behind a firewall that drops."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server:
        address = server.getsockname()
        waiting = [socket.socket() for _ in range(3)]
        for each in waiting:
            each.setblocking(False)
            each.connect_ex(address)
        try:
            yield f"http://127.0.0.1:{address[1]}/demo"
        finally:
            for each in waiting:
                each.close()


@contextmanager
def black_hole() -> Generator[str]:
    """Connections are accepted, and nothing is ever sent back."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}/demo"


@contextmanager
def no_such_name() -> Generator[str]:
    """The host has no address (RFC 6761, section 6.4)."""
    yield "https://relay.invalid/demo"


@contextmanager
def no_tls() -> Generator[str]:
    """A port whose handshakes are not answered."""
    with black_hole() as url:
        yield url.replace("http:", "https:")


WAYS: dict[Callable[[], AbstractContextManager[str]], FailureReason] = {
    closed_port: EnclaveFailure.RELAY_UNREACHABLE,
    full_backlog: EnclaveFailure.TIMEOUT,
    black_hole: EnclaveFailure.TIMEOUT,
    no_such_name: EnclaveFailure.RELAY_UNREACHABLE,
    no_tls: EnclaveFailure.TIMEOUT,
}


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
async def test_5_a_dead_way_out_costs_one_question_its_connect_time(
    open_session: OpenSession, way: Callable[[], AbstractContextManager[str]]
) -> None:
    with way() as url:
        async with open_session(relay=url) as session:
            for kind in (Kind.A, Kind.B, Kind.A):
                seen = await ask(session, kind.abroad)
                assert (seen.route, seen.fallback) == (Answerer.LOCAL, WAYS[way])
            held = await ask(session, Kind.C.abroad)
    assert (held.route, held.fallback) == (Answerer.LOCAL, None)


# 6: evidence.


def edited(change: Callable[[dict[str, Any]], None]) -> Callable[[bytes], bytes]:
    """Change a bundle as a JSON object."""

    def edit(data: bytes) -> bytes:
        bundle = json.loads(data)
        change(bundle)
        return json.dumps(bundle, separators=(",", ":")).encode()

    return edit


def expire(bundle: dict[str, Any]) -> None:
    bundle["not_before"] -= 10 * 86400
    bundle["not_after"] -= 10 * 86400


def tamper(bundle: dict[str, Any]) -> None:
    bundle["not_after"] += 3600


def ahead() -> datetime:
    return datetime.now(UTC) + timedelta(days=30)


def behind() -> datetime:
    return datetime.now(UTC) - timedelta(days=30)


async def all_stay(session: Session, why: FailureReason) -> None:
    """A and B are answered locally with the reason; C is answered locally anyway."""
    for kind in (Kind.A, Kind.B):
        seen = await ask(session, kind.abroad)
        assert (seen.route, seen.fallback) == (Answerer.LOCAL, why)
    held = await ask(session, Kind.C.abroad)
    assert (held.route, held.fallback) == (Answerer.LOCAL, None)


@pytest.mark.parametrize("change", [expire, tamper], ids=lambda change: change.__name__)
async def test_6_evidence_that_is_refused_is_reported_and_nothing_is_sealed(
    stack: Stack, open_session: OpenSession, change: Callable[[dict[str, Any]], None]
) -> None:
    async with evil_relay(stack.relay_url) as relay:
        relay.bundle = edited(change)
        async with open_session(relay=relay.url) as session:
            await all_stay(session, EnclaveFailure.EVIDENCE_REFUSED)
    assert relay.posts == 0


@pytest.mark.parametrize("clock", [ahead, behind], ids=lambda clock: clock.__name__)
async def test_6_a_clock_that_is_off_by_a_month_believes_no_evidence(
    stack: Stack, open_session: OpenSession, clock: Callable[[], datetime]
) -> None:
    async with (
        evil_relay(stack.relay_url) as relay,
        open_session(relay=relay.url, clock=clock) as session,
    ):
        await all_stay(session, EnclaveFailure.CLOCK_SUSPECTED)
    assert relay.posts == 0


async def test_6_what_is_required_of_an_unverified_enclave_is_refused(
    stack: Stack, open_session: OpenSession
) -> None:
    async with evil_relay(stack.relay_url) as relay:
        relay.bundle = edited(expire)
        async with open_session(relay=relay.url) as session:
            for kind in (Kind.A, Kind.B):
                seen = await ask(session, required(kind))
                assert FAILURE_TEXTS["evidence_refused"] in seen.refusal
                assert "ask without --require" in seen.refusal
    assert relay.posts == 0


# 7: the enclave is there, and has no room.


async def test_7_an_enclave_without_room_is_reported_as_busy(
    stack: Stack, open_session: OpenSession
) -> None:
    """It reports that inside the seal, while two answers occupy it."""
    gate = stack.folder / "gate"
    gate.write_bytes(b"")
    async with open_session() as session:
        keeping = [asyncio.create_task(ask(session, Kind.A.abroad)) for _ in range(2)]
        await until_running(stack, 2)
        await all_stay(session, EnclaveFailure.BUSY)
        gate.write_bytes(b"." * 99)
        kept = await asyncio.gather(*keeping)
    assert [each.route for each in kept] == [Answerer.ENCLAVE] * 2


@pytest.mark.parametrize("status", [429, 503])
async def test_7_a_relay_that_says_so_itself_is_believed_as_far(
    stack: Stack, open_session: OpenSession, status: int
) -> None:
    async with evil_relay(stack.relay_url) as relay:
        relay.status = status
        async with open_session(relay=relay.url) as session:
            await all_stay(session, EnclaveFailure.BUSY)
    assert relay.posts == 1, "who says 'later' is asked later"


# 8: the enclave dies.


@pytest.mark.parametrize("kind", [Kind.A, Kind.B])
async def test_8_an_enclave_that_dies_in_the_middle_leaves_no_half_answer_as_whole(
    stack: Stack, open_session: OpenSession, kind: Kind
) -> None:
    gate = stack.folder / "gate"
    gate.write_bytes(b"..")
    async with open_session() as session:
        stream = session.stream(kind.abroad)
        pieces = aiter(stream)
        said = ""
        while said != WORD * 2:
            said += (await anext(pieces)).text
        stack.running["enclave"].kill()
        with pytest.raises(IncompleteAnswerError):
            await anext(pieces)
    with pytest.raises(RuntimeError, match="not complete"):
        _ = stream.answer


@pytest.mark.parametrize("kind", [Kind.A, Kind.B])
async def test_8_who_can_take_text_back_gets_a_whole_answer_of_another(
    stack: Stack, open_session: OpenSession, kind: Kind
) -> None:
    gate = stack.folder / "gate"
    gate.write_bytes(b"..")
    seen: list[object] = []
    async with open_session() as session:
        stream = session.stream(kind.abroad)
        async for event in stream.events():
            seen.append(event)
            if said(seen) == WORD * 2 and stack.running["enclave"].running:
                stack.running["enclave"].kill()
    taken_back = next(each for each in seen if isinstance(each, Retract))
    assert taken_back.from_char == 0
    assert any(isinstance(each, Replaced) for each in seen)
    answer = stream.answer
    assert answer.route is Answerer.LOCAL
    assert WORD not in answer.text
    assert answer.text == said(seen[seen.index(taken_back) :])


def said(events: Sequence[object]) -> str:
    return "".join(each.text for each in events if isinstance(each, Delta))


async def test_8_what_must_stay_is_never_where_an_enclave_could_die(
    stack: Stack, open_session: OpenSession
) -> None:
    async with (
        evil_relay(stack.relay_url) as relay,
        open_session(relay=relay.url) as session,
    ):
        seen = await ask(session, Kind.C.abroad)
    assert (seen.route, relay.posts) == (Answerer.LOCAL, 0)


async def test_8_an_enclave_that_died_before_is_reported_and_found_again(
    stack: Stack, open_session: OpenSession
) -> None:
    async with open_session() as session:
        assert (await ask(session, Kind.A.abroad)).route is Answerer.ENCLAVE
        stack.running["enclave"].kill()
        await all_stay(session, EnclaveFailure.ENCLAVE_UNREACHABLE)
