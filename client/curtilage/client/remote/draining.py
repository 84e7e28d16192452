"""Sealed exchanges, each read to its end, and the check of their frame rate.

A padded answer has the length and the pace of its bucket. To close it early would
reveal on the wire what the padding hides: that the answer was short, that the user
cancelled, or that it could not be read. So each exchange is a task of its own from the
moment it is sent; a caller may stop watching at any time, and the task reads on to the
end of the body. A slow caller is not visible either.

One frame is due every period, from the beginning to the end of the bucket. A relay that
delays frames, drips single bytes or goes silent after the head breaks that promise;
then the query is answered locally instead. Complete frames are counted, since bytes are
cheap. The limits are wide: a slow line, a busy machine or a lost packet is not a
breach, and a verdict needs two checks with a pause between them, in which a process
that was suspended can read the data that arrived meanwhile.

Number and time are bounded: no exchange is begun when too many run, and none runs much
longer than its bucket, whatever a relay does.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from curtilage.client.chat.answer import AnswerEvent, Finished
from curtilage.client.errors import EnclaveError
from curtilage.client.remote.answer_opener import AnswerReader, most_bytes
from curtilage.client.remote.reasons import EnclaveFailure
from curtilage.client.remote.requests import Attempt
from curtilage.client.remote.sealed import SealedExchange
from curtilage.wire.shaping import TransportParameters

FIRST_FRAME_S: Final = 15.0
"""An enclave answers at once, before any model runs; this covers the connection, the
handshake and a bad line."""

SLACK_S: Final = 15.0
"""Lateness limit of a frame: more than a lost line needs to return, and far less than
any bucket worth waiting for."""

SLOWEST_UPLOAD: Final = 64 * 1024
"""Bytes per second; a large request on a slower line is answered locally."""

LOOK_S: Final = 1.0
LOOKS: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Timer:
    """A clock, in seconds from any origin, and a way to wait; replaced in tests."""

    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep


TIMER: Final = Timer()


class FrameRateMonitor:
    """Compares the number of frames received with the number promised.

    Args:
        parameters: padded, from the enclave's evidence.
        began: when sending the request began.
        request_bytes: its length.
    """

    __slots__ = ("_first_at", "_first_due", "_period_s")

    def __init__(
        self, parameters: TransportParameters, began: float, *, request_bytes: int
    ) -> None:
        self._period_s = parameters.period_ms / 1000
        self._first_due = began + FIRST_FRAME_S + request_bytes / SLOWEST_UPLOAD
        self._first_at: float | None = None

    # Frames and not bytes: a relay that wants to delay a query can send a byte now and
    # then, but it cannot make a sealed frame.

    def breach(self, frames: int, now: float) -> EnclaveFailure | None:
        """Return how the promise is broken, or None.

        Args:
            frames: number of complete frames so far.
            now: on the clock of ``began``.
        """
        if frames and self._first_at is None:
            self._first_at = now
        # After the first frame, the enclave's own clock sets the pace; connection and
        # upload come before it and have a limit of their own.
        if self._first_at is None:
            return EnclaveFailure.TIMEOUT if now > self._first_due else None
        # Frames are numbered from 0, so this is the next one's number.
        due = self._first_at + frames * self._period_s
        return EnclaveFailure.ANSWER_LATE if now > due + SLACK_S else None


MAX_RUNNING: Final = 24
"""Each has a connection of its own; a relay accepts 32 from one address, and four of
these are served by the gateway while the others wait there."""

Send = Callable[[SealedExchange], AsyncGenerator[bytes]]


class ExchangeSupervisor:
    """Owns the running exchanges: starts them, counts them, waits for their end.

    Args:
        most: how many may run at a time.
        timer: measures the pace of answers.
    """

    def __init__(self, *, most: int = MAX_RUNNING, timer: Timer = TIMER) -> None:
        self._most = most
        self._timer = timer
        self._running: set[asyncio.Task[None]] = set()

    @property
    def running(self) -> int:
        """Number of exchanges that have not ended."""
        return len(self._running)

    def require_room(self, *, share: int = 1) -> None:
        """Refuse to start an exchange when too many run.

        Args:
            share: divisor of the limit; cover requests leave the rest to callers that
                wait for an answer.

        Raises:
            EnclaveError: too many run.
        """
        # Exchanges without a watcher count too: they hold their connections until their
        # buckets are full.
        if self.running * share >= self._most:
            raise EnclaveError(EnclaveFailure.TOO_MANY_RUNNING)

    def start(
        self,
        exchange: SealedExchange,
        reader: AnswerReader,
        send: Send,
        attempt: Attempt,
    ) -> "RunningExchange":
        """Send an exchange; return the object to watch its answer with.

        Args:
            exchange: to be sent.
            reader: of its answer.
            send: the transport.
            attempt: the request; keeps the receipt before the end is reported, and
                records the answer's length.

        Raises:
            EnclaveError: too many run.
        """
        self.require_room()
        # A task of its own: cancelling a caller must not cancel the exchange, which
        # would be visible on the wire.
        running = RunningExchange(exchange, reader, attempt, self._timer)
        task = asyncio.create_task(running.run(send))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        task.add_done_callback(running.over)
        return running

    async def settle(self) -> None:
        """Wait until nothing runs; errors have no reader any more."""
        # ``wait`` and not ``gather``: cancelling this must not cancel the exchanges.
        while self._running:
            await asyncio.wait(tuple(self._running))

    async def close(self) -> None:
        """Cancel all running exchanges; this is visible on the wire."""
        running = tuple(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


class RunningExchange:
    """One running exchange, and its events as long as a caller watches."""

    def __init__(
        self,
        exchange: SealedExchange,
        reader: AnswerReader,
        attempt: Attempt,
        timer: Timer,
    ) -> None:
        self._exchange = exchange
        self._reader = reader
        self._attempt = attempt
        self._timer = timer
        self._over = asyncio.Event()
        self._breach = EnclaveFailure.TIMEOUT
        self._pace = FrameRateMonitor(
            exchange.parameters,
            timer.clock(),
            request_bytes=exchange.request_bytes,
        )
        # Unbounded, but limited by the length of the answer: a full queue would slow
        # the reading down, and a slow caller would be visible on the wire.
        self._events: asyncio.Queue[AnswerEvent | BaseException] = asyncio.Queue()
        self._unwatched = False
        self._failed = False
        self._kept = False
        self._room_bytes = self._most_bytes = most_bytes(exchange.parameters)

    async def events(self) -> AsyncGenerator[AnswerEvent]:
        """Yield the answer up to its end; closing this leaves the exchange running.

        Raises:
            EnclaveError: from the reader or the transport.
        """
        try:
            while True:
                event = await self._events.get()
                if isinstance(event, BaseException):
                    try:
                        raise event
                    finally:
                        # Its traceback holds this frame, so avoid a cycle.
                        del event
                yield event
                if isinstance(event, Finished):
                    return
        finally:
            self._unwatched = True
            # The task may run for another minute and must not hold an answer that its
            # reader has discarded.
            self._events = asyncio.Queue()

    async def run(self, send: Send) -> None:
        """Read the body to its end, or to the limits of its shape and its pace."""
        # Starts without a limit: ``_guard`` sets it to now when the pace is broken.
        try:
            async with asyncio.timeout(None) as limit:
                guard = asyncio.create_task(self._guard(limit))
                try:
                    async with aclosing(send(self._exchange)) as body:
                        async for data in body:
                            await self._take(data)
                finally:
                    guard.cancel()
        except TimeoutError:
            self._report(EnclaveError(self._breach))
        except EnclaveError as error:
            self._report(error.alone())
        else:
            await self._finish()

    async def settled(self) -> None:
        """Wait until nothing of the exchange is on the wire."""
        await self._over.wait()

    def over(self, task: asyncio.Task[None]) -> None:
        """Wake a reader that still watches, however the task ended."""
        self._over.set()
        failure = None if task.cancelled() else task.exception()
        self._report(failure or EnclaveError(EnclaveFailure.ANSWER_INCOMPLETE))

    async def _guard(self, limit: asyncio.Timeout) -> None:
        """Check the pace periodically; end an exchange that broke its promise."""
        # Two checks must agree: a process that was suspended (a laptop asleep) first
        # reads the data that arrived, and does not blame the relay for the delay.
        seen = 0
        while seen < LOOKS:
            await self._timer.sleep(LOOK_S)
            frames = self._reader.frames
            if self._failed:
                # No more frames are opened: estimate from the bytes received.
                received = self._most_bytes - self._room_bytes
                frames = received // self._exchange.parameters.frame_bytes
            breach = self._pace.breach(frames, self._timer.clock())
            seen = 0 if breach is None else seen + 1
            self._breach = breach or self._breach
        limit.reschedule(asyncio.get_running_loop().time())

    async def _take(self, data: bytes) -> None:
        # A separate limit, which also holds when the reader has failed.
        self._room_bytes -= len(data)
        if self._room_bytes < 0:
            raise EnclaveError(EnclaveFailure.ANSWER_BROKEN)
        if self._failed:
            # Unreadable; the rest is received all the same. Closing the connection at
            # a tampered frame would reveal which frame failed to open.
            return
        events: list[AnswerEvent | BaseException] = []
        try:
            events += self._reader.push(data)
        except EnclaveError as error:
            # ``alone``: raised elsewhere, it must not hold a reference to this frame.
            self._failed = True
            self._report(error.alone())
            return
        self._report(*await self._kept_first(events))

    async def _finish(self) -> None:
        if self._failed:
            return
        events: list[AnswerEvent | BaseException] = []
        try:
            events += self._reader.finish()
        except EnclaveError as error:
            self._report(error.alone())
            return
        # An answer that fills its bucket has its receipt in the final frame.
        self._report(*await self._kept_first(events))
        self._attempt.ended(self._reader.frames)

    async def _kept_first(
        self, events: list[AnswerEvent | BaseException]
    ) -> list[AnswerEvent | BaseException]:
        """Keep the receipt once it was read; return what is to be reported."""
        # Before the end is reported: a caller with a complete answer has its receipt.
        receipt = self._reader.receipt
        if receipt is None or self._kept:
            return events
        self._kept = True
        try:
            await self._attempt.keep(receipt)
        except Exception as error:  # noqa: BLE001 - any; the line must go on
            self._failed = True
            return [error]
        return events

    def _report(self, *events: AnswerEvent | BaseException) -> None:
        if not self._unwatched:
            for event in events:
                self._events.put_nowait(event)
