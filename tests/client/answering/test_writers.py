"""Who is read of two who write at one answer."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing

import pytest

from curtilage.client.answering.attempt import Status
from curtilage.client.answering.pump import Pump, Writer
from curtilage.client.answering.steps.drafts import judged
from curtilage.client.answering.steps.hedging import sooner
from curtilage.client.chat.answer import (
    Answerer,
    AnswerEvent,
    Delta,
    Phase,
    Provenance,
    Replaced,
    Retract,
    RetractReason,
    SessionEvent,
    Verified,
)
from curtilage.client.errors import AnswererError, EnclaveError, LocalUnavailableError
from curtilage.client.local.reasons import (
    DraftRejectedError,
    LocalFailure,
    LocalModelError,
)
from curtilage.client.remote.reasons import EnclaveFailure
from curtilage.client.routing.verifier import Verifier
from support.drafts import STOPPED, SURE, written

BROKEN = EnclaveError(EnclaveFailure.RELAY_UNREACHABLE)
STRONG = (Delta(text="strong"), STOPPED)


def provenance(tier: str) -> Provenance:
    """Return who answers."""
    return Provenance(
        route=Answerer.LOCAL,
        model="m",
        classes=(),
        rule="r",
        reason="",
        policy_digest="sha256:0",
        tier=tier,
    )


class Desk:
    """Two who write, and who reads them."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self.stack = stack
        self.reader = Status(Phase.CLASSIFYING)
        self.failures: list[AnswererError] = []
        self.stopped: list[str] = []

    async def writer(
        self, tier: str, *script: AnswerEvent | asyncio.Event | Exception
    ) -> Writer:
        """Return one who writes these, waits for events, and raises errors."""

        async def answer() -> AsyncGenerator[AnswerEvent]:
            try:
                for each in script:
                    if isinstance(each, asyncio.Event):
                        await each.wait()
                    elif isinstance(each, Exception):
                        raise each
                    else:
                        yield each
            finally:
                self.stopped.append(tier)

        pump = Pump(answer())
        await self.stack.enter_async_context(aclosing(pump))
        return Writer(tier, pump, Status(Phase.ASKING_HERE, provenance(tier)))

    async def judge(
        self, home: Writer, rival: Writer | None = None
    ) -> list[SessionEvent]:
        """Return what is read of a draft."""
        verifier = Verifier(SURE, 0.6, question="What is it?")
        return [
            event
            async for event in judged(home, rival, verifier, self.reader, self.failures)
        ]

    @property
    def read(self) -> str:
        """Who is read."""
        assert self.reader.source is not None
        return self.reader.source.tier


def texts(events: list[SessionEvent]) -> list[str]:
    """Return the pieces of text, taken back or not."""
    return [each.text for each in events if isinstance(each, Delta)]


async def test_a_draft_that_will_do_is_shown_as_a_draft_until_that_is_known() -> None:
    async with AsyncExitStack() as stack:
        desk = Desk(stack)
        draft = tuple(written("It ", "is ", "a cat."))
        events = await desk.judge(await desk.writer("device", *draft, STOPPED))
        assert events[-2:] == [Verified(), STOPPED]
        assert texts(events) == ["It ", "is ", "a cat."]
        assert all(each.tentative for each in events if isinstance(each, Delta))
        assert desk.read == "device"


async def test_what_was_judged_is_passed_on_without_the_signals() -> None:
    async with AsyncExitStack() as stack:
        desk = Desk(stack)
        draft = tuple(written("It ", "is."))
        events = await desk.judge(await desk.writer("device", *draft, STOPPED))
        assert not any(each.signals for each in events if isinstance(each, Delta))


async def test_a_draft_that_will_not_do_is_an_error_where_nobody_writes_beside() -> (
    None
):
    async with AsyncExitStack() as stack:
        desk = Desk(stack)
        draft = tuple(written("Hm ", "no.", probability=0.01))
        with pytest.raises(DraftRejectedError):
            await desk.judge(await desk.writer("device", *draft, STOPPED))


async def test_in_a_race_a_draft_that_will_not_do_is_replaced() -> None:
    async with AsyncExitStack() as stack:
        desk = Desk(stack)
        draft = tuple(written("Hm ", "no.", probability=0.01))
        home = await desk.writer("device", *draft, STOPPED)
        rival = await desk.writer("enclave", *STRONG)
        events = await desk.judge(home, rival)
        taken = Retract(from_char=0, reason=RetractReason.NOT_GOOD_ENOUGH)
        assert events[-4:] == [taken, Replaced(tier="enclave"), *STRONG]
        assert desk.read == "enclave"


async def test_in_a_race_an_answer_that_is_whole_first_is_taken() -> None:
    async with AsyncExitStack() as stack:
        desk = Desk(stack)
        never = asyncio.Event()
        home = await desk.writer("device", *written("It "), never)
        rival = await desk.writer("enclave", *STRONG)
        events = await desk.judge(home, rival)
        assert Retract(from_char=0, reason=RetractReason.OVERTAKEN) in events
        assert events[-2:] == list(STRONG)
        assert "device" in desk.stopped, "nothing is computed for nobody"


async def test_in_a_race_a_draft_that_breaks_off_is_replaced() -> None:
    async with AsyncExitStack() as stack:
        desk = Desk(stack)
        held = asyncio.Event()
        home = await desk.writer("device", *written("It "), LocalModelError("gone"))
        rival = await desk.writer("enclave", held, *STRONG)
        asyncio.get_running_loop().call_later(0.01, held.set)
        events = await desk.judge(home, rival)
        assert Retract(from_char=0, reason=RetractReason.BROKE_OFF) in events
        assert events[-2:] == list(STRONG)
        assert [each.reason for each in desk.failures] == [LocalFailure.UNAVAILABLE]


async def test_in_a_race_a_dead_enclave_leaves_the_draft_to_be_judged() -> None:
    async with AsyncExitStack() as stack:
        desk = Desk(stack)
        home = await desk.writer("device", *written("It ", "is."), STOPPED)
        rival = await desk.writer("enclave", BROKEN)
        events = await desk.judge(home, rival)
        assert events[-2:] == [Verified(), STOPPED]


async def test_in_a_race_that_both_lose_the_draft_is_rejected() -> None:
    async with AsyncExitStack() as stack:
        desk = Desk(stack)
        wait = asyncio.Event()
        draft = tuple(written("Hm ", "no.", probability=0.01))
        home = await desk.writer("device", wait, *draft, STOPPED)
        rival = await desk.writer("enclave", BROKEN)
        asyncio.get_running_loop().call_later(0.01, wait.set)
        with pytest.raises(DraftRejectedError):
            await desk.judge(home, rival)


async def read_sooner(
    desk: Desk, first: Writer, second: Writer | None
) -> list[AnswerEvent]:
    """Return what is read where the first is late at once."""

    async def another() -> Writer | None:
        return second

    return [
        event async for event in sooner(first, 0.0, another, desk.reader, desk.failures)
    ]


async def test_a_late_one_is_replaced_by_another_who_begins() -> None:
    async with AsyncExitStack() as stack:
        desk = Desk(stack)
        first = await desk.writer("device", asyncio.Event())
        second = await desk.writer("enclave", *STRONG)
        assert await read_sooner(desk, first, second) == list(STRONG)
        assert desk.read == "enclave"
        assert "device" in desk.stopped


async def test_nobody_else_is_asked_where_nobody_may_be() -> None:
    async with AsyncExitStack() as stack:
        desk = Desk(stack)
        late = asyncio.Event()
        first = await desk.writer("device", late, *STRONG)
        asyncio.get_running_loop().call_later(0.01, late.set)
        assert await read_sooner(desk, first, None) == list(STRONG)
        assert desk.read == "device"


async def test_a_second_that_fails_costs_the_first_nothing() -> None:
    async with AsyncExitStack() as stack:
        desk = Desk(stack)
        late = asyncio.Event()
        first = await desk.writer("device", late, *STRONG)
        second = await desk.writer("enclave", BROKEN)
        asyncio.get_running_loop().call_later(0.05, late.set)
        assert await read_sooner(desk, first, second) == list(STRONG)
        assert [each.reason for each in desk.failures] == [BROKEN.reason]


async def test_where_both_fail_the_last_failure_is_told() -> None:
    async with AsyncExitStack() as stack:
        desk = Desk(stack)
        late = asyncio.Event()
        first = await desk.writer("device", late, LocalModelError("gone"))
        second = await desk.writer("enclave", BROKEN)
        asyncio.get_running_loop().call_later(0.05, late.set)
        with pytest.raises(LocalUnavailableError):
            await read_sooner(desk, first, second)


async def test_one_who_is_not_late_is_alone() -> None:
    async with AsyncExitStack() as stack:
        desk = Desk(stack)
        first = await desk.writer("device", *STRONG)

        async def another() -> Writer | None:
            raise AssertionError("nobody else is asked")

        found = sooner(first, 30.0, another, desk.reader, desk.failures)
        assert [event async for event in found] == list(STRONG)
