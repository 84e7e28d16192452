"""Sealed exchanges that run to their end, and the frame rate that they are promised.

A padded answer has the length and the pace of its bucket. Hanging up early would show
on the wire what the padding hides: that the answer was short, that the user cancelled,
that we could not read it. So each exchange is a task of its own from the moment it is
sent; a caller watches its events and may leave at any time, and the task reads on to
the end of the body. A caller that reads slowly does not show either.

Frames come one every period, from the beginning to the end of the bucket. A relay that
holds them up, lets an octet through now and then, or stays silent behind a head, breaks
that promise and is not waited for: the query is answered here instead. Whole frames
count, since octets are cheap. The limits are wide: a slow line, a busy machine or a
lost packet is not a breach, and a verdict needs two looks with a pause between them, in
which a process that stood still reads what has come meanwhile.

So numbers and time are bounded: an exchange is not begun when too many run, and none
runs much longer than its bucket, whatever a relay does.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from curtilage.client.answer import AnswerEvent, Finished
from curtilage.client.errors import EnclaveError, FailureReason
from curtilage.client.remote.answer_opener import AnswerReader, most_bytes
from curtilage.client.remote.requests import Attempt
from curtilage.client.remote.sealed import SealedExchange
from curtilage.wire.shaping import TransportParameters

FIRST_FRAME_S: Final = 15.0
"""An enclave begins to answer at once, before any model runs; this is for a
connection, a handshake and a bad line."""

SLACK_S: Final = 15.0
"""How far behind its promise a frame may be: more than a line that is lost and
found again takes, and far less than any bucket worth waiting for."""

SLOWEST_UPLOAD: Final = 64 * 1024
"""Octets a second; a large request on a slower line is answered here."""

LOOK_S: Final = 1.0
LOOKS: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Timer:
    """A clock, in seconds from anywhere, and a way to wait; tests have others."""

    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep


TIMER: Final = Timer()


class FrameRateMonitor:
    """Compares the frames that came with those that were promised.

    Args:
        parameters: padded, of the enclave's evidence.
        began: when the request began to be sent.
        request_bytes: its length.
    """

    __slots__ = ("_first_at", "_first_due", "_period_s")

    def __init__(
        self, parameters: TransportParameters, began: float, *, request_bytes: int
    ) -> None:
        self._period_s = parameters.period_ms / 1000
        self._first_due = began + FIRST_FRAME_S + request_bytes / SLOWEST_UPLOAD
        self._first_at: float | None = None

    # Frames and not octets: one octet now and then is cheap for a relay that wants to
    # hold a query up, a whole sealed frame it can only pass on.

    def breach(self, frames: int, now: float) -> FailureReason | None:
        """Tell how the promise is broken, or None where it is not.

        Args:
            frames: how many came in whole so far.
            now: by the clock of ``began``.
        """
        if frames and self._first_at is None:
            self._first_at = now
        # From the first frame on, the enclave's own clock sets the pace; before it lie
        # a connection and the upload, which have a time of their own.
        if self._first_at is None:
            return FailureReason.TIMEOUT if now > self._first_due else None
        # The frame that comes next is the one with this number, from 0.
        due = self._first_at + frames * self._period_s
        return FailureReason.ANSWER_LATE if now > due + SLACK_S else None


MAX_RUNNING: Final = 24
"""Each has a connection of its own; a relay lets 32 of one address in, and four of
these hold a place at the gateway while the others wait there."""

Send = Callable[[SealedExchange], AsyncGenerator[bytes]]


class ExchangeSupervisor:
    """Keeps the exchanges that run: begins them, counts them, sees them end.

    Args:
        most: how many may run at a time.
        timer: what the pace of answers is measured by.
    """

    def __init__(self, *, most: int = MAX_RUNNING, timer: Timer = TIMER) -> None:
        self._most = most
        self._timer = timer
        self._running: set[asyncio.Task[None]] = set()

    @property
    def running(self) -> int:
        """How many exchanges have not ended."""
        return len(self._running)

    def require_room(self, *, share: int = 1) -> None:
        """Refuse to begin what could not be seen to its end.

        Args:
            share: a part of the room, as its divisor; cover requests leave the rest to
                those who wait for an answer.

        Raises:
            EnclaveError: too many run.
        """
        # Counted are those that run, also those that are not watched any more: they
        # hold their connections until their buckets are full.
        if self.running * share >= self._most:
            raise EnclaveError(FailureReason.TOO_MANY_RUNNING)

    def start(
        self,
        exchange: SealedExchange,
        reader: AnswerReader,
        send: Send,
        attempt: Attempt,
    ) -> "RunningExchange":
        """Send an exchange; return what its answer can be watched by.

        Args:
            exchange: to be sent.
            reader: of its answer.
            send: the way out.
            attempt: what it is an answer to; keeps the receipt before the end is
                reported, and notes the answer's length.

        Raises:
            EnclaveError: too many run.
        """
        self.require_room()
        # A task of its own: a caller that is cancelled must not cancel the exchange,
        # which would show on the wire that it was, and when.
        running = RunningExchange(exchange, reader, attempt, self._timer)
        task = asyncio.create_task(running.run(send))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        task.add_done_callback(running.over)
        return running

    async def settle(self) -> None:
        """Wait until nothing runs; errors there have no reader any more."""
        # ``wait`` and not ``gather``: to be cancelled here must cancel none of them.
        while self._running:
            await asyncio.wait(tuple(self._running))

    async def close(self) -> None:
        """Cut off whatever runs; on the wire, this shows."""
        running = tuple(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


class RunningExchange:
    """One exchange that runs, and its events as long as somebody watches."""

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
        self._breach = FailureReason.TIMEOUT
        self._pace = FrameRateMonitor(
            exchange.parameters,
            timer.clock(),
            request_bytes=exchange.request_bytes,
        )
        # Unbounded here, and bounded by the length of the answer: a queue that is full
        # would slow the reading down, and a slow caller show on the wire.
        self._events: asyncio.Queue[AnswerEvent | BaseException] = asyncio.Queue()
        self._left = False
        self._failed = False
        self._room_bytes = self._most_bytes = most_bytes(exchange.parameters)

    async def events(self) -> AsyncGenerator[AnswerEvent]:
        """Yield the answer up to its end; leaving leaves the exchange running.

        Raises:
            EnclaveError: as the reader and the way out tell it.
        """
        try:
            while True:
                event = await self._events.get()
                if isinstance(event, BaseException):
                    try:
                        raise event
                    finally:
                        # It holds this frame, so this frame must not hold it.
                        del event
                yield event
                if isinstance(event, Finished):
                    return
        finally:
            self._left = True
            # The task goes on for as long as a minute and must not hold an answer that
            # its reader has thrown away.
            self._events = asyncio.Queue()  # what will not be read any more

    async def run(self, send: Send) -> None:
        """Read the body to its end, or to the limits of its shape and its pace."""
        # No limit to begin with: the guard sets one, to now, when the pace is broken.
        try:
            async with asyncio.timeout(None) as limit:
                await self._read(send, limit)
        except TimeoutError:
            self._tell(EnclaveError(self._breach))
        except EnclaveError as error:
            self._tell(error.alone())
        else:
            await self._finish()

    async def settled(self) -> None:
        """Wait until nothing of the exchange is on the wire any more."""
        await self._over.wait()

    def over(self, task: asyncio.Task[None]) -> None:
        """Wake a reader that still watches, however the task has ended."""
        self._over.set()
        failure = None if task.cancelled() else task.exception()
        self._tell(failure or EnclaveError(FailureReason.ANSWER_INCOMPLETE))

    async def _read(self, send: Send, limit: asyncio.Timeout) -> None:
        guard = asyncio.create_task(self._guard(limit))
        try:
            async with aclosing(send(self._exchange)) as body:
                async for data in body:
                    self._take(data)
        finally:
            guard.cancel()

    async def _guard(self, limit: asyncio.Timeout) -> None:
        """Look at the pace now and then; end what broke its promise."""
        # Two looks that agree: a process that stood still (a laptop that slept) first
        # reads what came meanwhile, and is not mistaken for a relay that held it up.
        seen = 0
        while seen < LOOKS:
            await self._timer.sleep(LOOK_S)
            breach = self._pace.breach(self._frames(), self._timer.clock())
            seen = 0 if breach is None else seen + 1
            self._breach = breach or self._breach
        limit.reschedule(asyncio.get_running_loop().time())

    def _frames(self) -> int:
        """Return how many frames came in whole."""
        if not self._failed:
            return self._reader.frames
        # Nothing opens any more: as many as these octets would make.
        received = self._most_bytes - self._room_bytes
        return received // self._exchange.parameters.frame_bytes

    def _take(self, data: bytes) -> None:
        # A bound of its own, also where the reader has failed and counts no more.
        self._room_bytes -= len(data)
        if self._room_bytes < 0:
            raise EnclaveError(FailureReason.ANSWER_BROKEN)
        if self._failed:
            # It cannot be read; what comes is still let in. Hanging up at the frame
            # that somebody spoilt would tell them which frame we could not open.
            return
        try:
            self._tell(*self._reader.push(data))
        except EnclaveError as error:
            # ``alone``: raised again elsewhere, it must not carry this frame along.
            self._failed = True
            self._tell(error.alone())

    async def _finish(self) -> None:
        if self._failed:
            return
        reader = self._reader
        try:
            events = reader.finish()
        except EnclaveError as error:
            self._tell(error.alone())
            return
        # Before the end is told: who sees a complete answer can rely on its receipt.
        if reader.receipt is not None:
            await self._attempt.keep(reader.receipt)
        self._tell(*events)
        self._attempt.ended(reader.frames)

    def _tell(self, *events: AnswerEvent | BaseException) -> None:
        if not self._left:
            for event in events:
                self._events.put_nowait(event)
