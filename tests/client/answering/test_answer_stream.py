"""An answer that may be taken back, for readers who can and who cannot be told so."""

import asyncio
import gc
import weakref
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest

from curtilage.client.answering.answer_stream import AnswerStream
from curtilage.client.answering.pump import ENDED, Pump
from curtilage.client.chat.answer import (
    Answerer,
    Delta,
    Finished,
    Phase,
    Progress,
    Provenance,
    Replaced,
    Retract,
    RetractReason,
    SessionEvent,
    Verified,
)

DRAFT = Delta(text="draft", tentative=True)
TAKEN_BACK = Retract(from_char=0, reason=RetractReason.NOT_GOOD_ENOUGH)
FINISHED = Finished(finish_reason="stop", prompt_tokens=1, completion_tokens=1)
PROVENANCE = Provenance(
    route=Answerer.LOCAL,
    model="m",
    classes=(),
    rule="r",
    reason="",
    policy_digest="sha256:0",
)


def stream_of(*events: SessionEvent | asyncio.Event) -> AnswerStream:
    """Return a stream of these; at an ``asyncio.Event`` it waits for it."""

    async def answer(stream: AnswerStream) -> AsyncGenerator[SessionEvent]:
        stream.status.source = PROVENANCE
        for event in events:
            if isinstance(event, asyncio.Event):
                await event.wait()
            else:
                yield event

    return AnswerStream(answer)


async def texts(stream: AnswerStream) -> list[str]:
    """Return the pieces that one who iterates gets."""
    return [piece.text async for piece in stream]


async def test_a_draft_that_is_taken_back_is_never_shown_to_who_iterates() -> None:
    stream = stream_of(
        DRAFT, TAKEN_BACK, Replaced(tier="enclave"), Delta(text="answer"), FINISHED
    )
    assert await texts(stream) == ["answer"]
    assert stream.answer.text == "answer"


async def test_a_draft_is_shown_once_it_is_verified() -> None:
    held = asyncio.Event()
    stream = stream_of(DRAFT, held, Verified(), Delta(text=" more"), FINISHED)
    begun = asyncio.ensure_future(stream.begin())
    await asyncio.sleep(0)
    assert not begun.done()
    held.set()
    await begun
    assert await texts(stream) == ["draft", " more"]
    assert stream.answer.text == "draft more"


async def test_a_draft_that_ended_whole_is_the_answer() -> None:
    stream = stream_of(DRAFT, FINISHED)
    assert await texts(stream) == ["draft"]


async def test_who_can_be_told_sees_the_draft_and_that_it_is_none() -> None:
    events = (DRAFT, TAKEN_BACK, Replaced(tier="enclave"), Delta(text="a"), FINISHED)
    stream = stream_of(*events)
    assert [event async for event in stream.events()] == list(events)
    assert stream.answer.text == "a"


async def test_what_stands_before_the_place_of_a_retraction_remains() -> None:
    cut = Retract(from_char=2, reason=RetractReason.BROKE_OFF)
    stream = stream_of(
        Delta(text="ab"), Delta(text="cd"), cut, Delta(text="ef"), FINISHED
    )
    _ = [event async for event in stream.events()]
    assert stream.answer.text == "abef"


async def test_silence_is_broken_by_a_sign_of_life() -> None:
    held = asyncio.Event()
    stream = stream_of(held, Delta(text="late"), FINISHED)
    stream.first_signal_s = 0.01
    stream.status.phase = Phase.ASKING_ENCLAVE
    events = stream.events(retract=False)
    assert await anext(events) == Progress(phase=Phase.ASKING_ENCLAVE)
    held.set()
    rest = [event async for event in events if not isinstance(event, Progress)]
    assert rest == [Delta(text="late"), FINISHED]


async def test_who_cannot_retract_is_given_settled_text_only() -> None:
    stream = stream_of(DRAFT, Verified(), FINISHED)
    found = [event async for event in stream.events(retract=False)]
    assert found == [Delta(text="draft"), FINISHED]
    assert not stream.retracts


async def test_whoever_leaves_stops_the_answer() -> None:
    ended = asyncio.Event()

    async def answer(stream: AnswerStream) -> AsyncGenerator[SessionEvent]:
        stream.status.source = PROVENANCE
        try:
            yield Delta(text="a")
            await asyncio.Event().wait()
        finally:
            ended.set()

    events = AnswerStream(answer).events()
    assert await anext(events) == Delta(text="a")
    await events.aclose()
    assert ended.is_set()


async def test_a_pump_tells_what_its_generator_raised() -> None:
    async def broken() -> AsyncGenerator[int]:
        yield 1
        raise ValueError("of the generator")

    async with aclosing(Pump(broken())) as pump:
        assert await pump.next() == 1
        with pytest.raises(ValueError, match="of the generator"):
            await pump.next()


async def test_a_pump_that_was_waited_for_in_vain_loses_nothing() -> None:
    held = asyncio.Event()

    async def slow() -> AsyncGenerator[int]:
        await held.wait()
        yield 1

    async with aclosing(Pump(slow())) as pump:
        assert await pump.next(0.01) is None
        held.set()
        assert await pump.next() == 1
        assert await pump.next() is ENDED


async def test_what_was_taken_ahead_is_told_to_who_then_asks_for_events() -> None:
    for retract in (False, True):
        stream = stream_of(
            DRAFT, Delta(text="more", tentative=True), Verified(), FINISHED
        )
        await stream.begin()
        found = [event async for event in stream.events(retract=retract)]
        assert [each.text for each in found if isinstance(each, Delta)] == [
            "draft",
            "more",
        ]
        assert stream.answer.text == "draftmore"


async def test_who_waited_for_a_settled_beginning_is_promised_no_drafts() -> None:
    stream = stream_of(Delta(text="a"), DRAFT, TAKEN_BACK, Delta(text="b"), FINISHED)
    await stream.begin()
    found = [event async for event in stream.events()]
    assert found == [Delta(text="a"), Delta(text="b"), FINISHED]
    assert not stream.retracts


class Secret:
    """What a generator holds while it waits."""


@pytest.mark.parametrize("interrupted", [False, True])
async def test_a_pump_that_was_closed_holds_nothing_of_its_generator(
    *, interrupted: bool
) -> None:
    """Until cycles are looked for, which may take hours."""
    held = list[weakref.ref[Secret]]()

    async def waiting() -> AsyncGenerator[int]:
        secret = Secret()
        held.append(weakref.ref(secret))
        yield 1
        await asyncio.Event().wait()

    gc.collect()
    gc.disable()
    try:
        pump = Pump(waiting())
        assert await pump.next() == 1
        assert await pump.next(0) is None
        closing = asyncio.ensure_future(pump.aclose())
        await asyncio.sleep(0)
        if interrupted:
            # A reader that goes away is noticed twice: its socket is closed, and then
            # the task that answers it is cancelled.
            closing.cancel()
        await asyncio.wait({closing})
        del pump, closing
        await asyncio.sleep(0)
        assert held[0]() is None
    finally:
        gc.enable()
