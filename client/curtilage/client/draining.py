"""Sealed exchanges that run to their end, whoever still watches.

A padded answer has the length and the pace of its bucket. Whoever hung up early
would show on the wire what the padding hides: that the answer was short, that
the user cancelled, that we could not read it. So each exchange is a task of its
own from the moment it is sent; a caller watches its events and may leave at any
time, and the task reads on to the end of the body. A caller that reads slowly
does not show either.

Numbers and time are bounded: an exchange is not begun when too many run, and
none runs much longer than its longest bucket.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Final

from curtilage.client.answers import AnswerEvent, Finished
from curtilage.client.errors import EnclaveError, FailureReason
from curtilage.client.exchange import SealedExchange, most_bytes
from curtilage.wire.shaping import TransportParameters

MAX_RUNNING: Final = 24
"""Each has a connection of its own; a relay lets 32 of one address in."""

SLACK_S: Final = 30.0

Send = Callable[[SealedExchange], AsyncGenerator[bytes]]
Ended = Callable[[int], None]
"""Is told how many frames a complete answer had."""


class Drains:
    """Keeps the exchanges that run.

    Args:
        most: how many may run at a time.
    """

    def __init__(self, *, most: int = MAX_RUNNING) -> None:
        self._most = most
        self._running: set[asyncio.Task[None]] = set()

    @property
    def running(self) -> int:
        """How many exchanges have not ended."""
        return len(self._running)

    def require_room(self, *, share: int = 1) -> None:
        """Refuse to begin what could not be seen to its end.

        Args:
            share: a part of the room, as its divisor; dummies leave the rest to
                those who wait for an answer.

        Raises:
            EnclaveError: too many run.
        """
        if self.running * share >= self._most:
            raise EnclaveError(FailureReason.TOO_MANY_RUNNING)

    def start(
        self, exchange: SealedExchange, send: Send, *, ended: Ended | None = None
    ) -> "Watch":
        """Send an exchange; return what its answer can be watched by.

        Raises:
            EnclaveError: too many run.
        """
        self.require_room()
        watch = Watch(exchange, ended)
        limit_s = longest_s(exchange.parameters)
        task = asyncio.create_task(watch.run(send, limit_s))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        task.add_done_callback(watch.over)
        return watch

    async def settle(self) -> None:
        """Wait until nothing runs; errors there concern nobody any more."""
        while self._running:
            await asyncio.wait(tuple(self._running))

    async def close(self) -> None:
        """Cut off whatever runs; on the wire, this shows."""
        running = tuple(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


class Watch:
    """One exchange that runs, and its events as long as somebody watches."""

    def __init__(self, exchange: SealedExchange, ended: Ended | None) -> None:
        self._exchange = exchange
        self._ended = ended
        self._events: asyncio.Queue[AnswerEvent | BaseException] = asyncio.Queue()
        self._left = False
        self._failed = False
        self._room_bytes = most_bytes(exchange.parameters)

    async def events(self) -> AsyncGenerator[AnswerEvent]:
        """Yield the answer up to its end; leaving leaves the exchange running.

        Raises:
            EnclaveError: as the reader and the way out tell it.
        """
        try:
            while True:
                event = await self._events.get()
                if isinstance(event, BaseException):
                    raise event
                yield event
                if isinstance(event, Finished):
                    return
        finally:
            self._left = True

    async def run(self, send: Send, limit_s: float) -> None:
        """Read the body to its end, or to the limits of its shape."""
        try:
            async with asyncio.timeout(limit_s), aclosing(send(self._exchange)) as body:
                async for data in body:
                    self._take(data)
        except TimeoutError:
            self._tell(EnclaveError(FailureReason.TIMEOUT))
        except EnclaveError as error:
            self._tell(error)
        else:
            self._finish()

    def over(self, task: asyncio.Task[None]) -> None:
        """Wake whoever still watches when the task has ended in any way."""
        failure = None if task.cancelled() else task.exception()
        self._tell(failure or EnclaveError(FailureReason.ANSWER_INCOMPLETE))

    def _take(self, data: bytes) -> None:
        self._room_bytes -= len(data)
        if self._room_bytes < 0:
            raise EnclaveError(FailureReason.ANSWER_BROKEN)
        if self._failed:
            return  # it cannot be read; what comes is still let in
        try:
            self._tell(*self._exchange.reader.push(data))
        except EnclaveError as error:
            self._failed = True
            self._tell(error)

    def _finish(self) -> None:
        if self._failed:
            return
        try:
            self._tell(*self._exchange.reader.finish())
        except EnclaveError as error:
            self._tell(error)
            return
        if self._ended is not None:
            self._ended(self._exchange.reader.frames)

    def _tell(self, *events: AnswerEvent | BaseException) -> None:
        if not self._left:
            for event in events:
                self._events.put_nowait(event)


def longest_s(parameters: TransportParameters) -> float:
    """Return how long an answer of this shape may take, on a bad day."""
    return 2 * parameters.max_frames * parameters.period_ms / 1000 + SLACK_S
