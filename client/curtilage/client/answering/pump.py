"""Answers that are generated in tasks of their own, to be read or not.

Waiting for a generator's next item with a time limit would break the generator at the
limit. And two that are to run at the same time need a task each.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, aclosing, suppress
from dataclasses import dataclass, field, replace
from typing import Final, Generic, TypeVar, final

from curtilage.client.answering.attempt import Attempt, Status
from curtilage.client.chat.answer import AnswerEvent
from curtilage.client.errors import FailureReason
from curtilage.client.routing.utility import Reason

_Item = TypeVar("_Item")


@final
class Ended:
    """The end of what a generator yields."""


ENDED: Final = Ended()


class Pump(Generic[_Item]):
    """One running generator, read one item ahead, until it is closed."""

    def __init__(self, events: AsyncGenerator[_Item]) -> None:
        self._events = events
        # One item ahead and no more: if the reader is slow or reads another tier, the
        # model has to wait, instead of filling memory.
        self._ready: asyncio.Queue[_Item | Ended | Exception] = asyncio.Queue(maxsize=1)
        # One task from the first item to the last: a time limit that a generator set in
        # one task would stop something else in the next.
        self._task = asyncio.ensure_future(self._run())
        self._task.add_done_callback(_take_error)
        self._waiting: asyncio.Task[_Item | Ended | Exception] | None = None

    async def next(self, timeout_s: float | None = None) -> _Item | Ended | None:
        """Return the next item, ``ENDED``, or None if the time is over.

        Raises:
            Exception: what the generator raised.
        """
        if not await self.begins(timeout_s):
            return None
        task, self._waiting = self.waiting(), None
        found = task.result()
        try:
            if isinstance(found, Exception):
                raise found
            return found
        finally:
            # An error holds the frames that it went through. If one of them held the
            # error, the question would be kept until the next collection of cycles.
            del found, task

    async def begins(self, timeout_s: float | None) -> bool:
        """Return whether ``next`` has something at once, within this time."""
        task = self.waiting()
        await asyncio.wait({task}, timeout=timeout_s)
        return task.done()

    def waiting(self) -> "asyncio.Task[_Item | Ended | Exception]":
        """Return what ends when ``next`` has something at once; to wait for several."""
        if self._waiting is None:
            self._waiting = asyncio.ensure_future(self._ready.get())
        return self._waiting

    async def aclose(self) -> None:
        """Cancel the generator, and wait until it has ended."""
        ending = {each for each in (self._task, self._waiting) if each is not None}
        # All of them first: the caller may be cancelled while it waits.
        for each in ending:
            each.cancel()
        await asyncio.wait(ending)

    async def _run(self) -> None:
        try:
            async with aclosing(self._events) as events:
                async for event in events:
                    await self._ready.put(event)
        except Exception as error:  # noqa: BLE001 - any error reaches the reader
            await self._ready.put(error)
        else:
            await self._ready.put(ENDED)


def _take_error(ended: asyncio.Task[None]) -> None:
    """Take the error that ended a task, which would keep it and so the question.

    Not in ``aclose``, whose caller may be cancelled while it waits.
    """
    with suppress(asyncio.CancelledError):
        ended.exception()


async def ready(*pumps: Pump[_Item]) -> Pump[_Item]:
    """Return a pump whose ``next`` has something at once; of several the first."""
    await asyncio.wait(
        {each.waiting() for each in pumps}, return_when=asyncio.FIRST_COMPLETED
    )
    return next(each for each in pumps if each.waiting().done())


@dataclass(slots=True, eq=False)
class Writer:
    """One tier that generates an answer.

    Attributes:
        tier: its id.
        pump: its answer.
        status: its own status.
        why: why it is read and not another; None: as its status says.
        failed: why the other failed, if it is read for that reason.
        in_parallel: another tier was asked at the same time.
    """

    tier: str
    pump: Pump[AnswerEvent] = field(repr=False)
    status: Status
    why: Reason | None = None
    failed: FailureReason | None = None
    in_parallel: bool = False

    def read(self, status: Status) -> None:
        """Make its status that of the whole answer: it is the one that is read."""
        status.phase = self.status.phase
        if (own := self.status.source) is not None:
            # Its own status is from before it was known what the other does.
            why = self.why or (Reason.UNAVAILABLE if self.failed else own.why)
            status.source = replace(
                own,
                why=why,
                fallback=own.fallback or self.failed,
                in_parallel=self.in_parallel,
            )

    async def rest(
        self, status: Status, held: Sequence[AnswerEvent] = ()
    ) -> AsyncGenerator[AnswerEvent]:
        """Yield the events that were held back, and all that follow.

        Raises:
            AnswererError: the answer broke off.
        """
        for event in held:
            self.read(status)
            yield event
        while not isinstance(more := await self.pump.next(), Ended):
            self.read(status)
            if more is not None:
                yield more


Writes = Callable[[Attempt, AsyncExitStack], Awaitable[Writer]]
"""Begins an attempt that is read only if its text turns out to be the answer."""
