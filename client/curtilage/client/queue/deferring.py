"""Puts questions by that nobody can answer just now, asks them again, gives answers.

A question that goes on goes through the whole session again, as if its sender asked
it now: it is inspected, decided and permitted anew, by the policy in force. It may be
asked twice, where a crash came between its answer and the disk; it has one answer.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from contextvars import Context, ContextVar
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from math import ceil
from typing import Final, Protocol

from curtilage.client import telemetry
from curtilage.client.answer import Answer
from curtilage.client.errors import (
    EXPLAINED,
    BlockedError,
    BusyError,
    ClientError,
    FailureReason,
    IncompleteAnswerError,
    NotRoutedError,
    QueuedError,
    TicketError,
    UsageError,
)
from curtilage.client.query import Query
from curtilage.client.queue.deferred import (
    OUT_THERE,
    TICKET_BYTES,
    TRANSIENT,
    Deferred,
    State,
    answer_of,
    goes_on,
    outcome_of,
    query_of,
    refusal_of,
    refused_as,
    request_of,
    worth_waiting,
)
from curtilage.client.queue.deferred_store import (
    DeferredStore,
    QueueDamagedError,
    QueueFullError,
    QueueStoreError,
)
from curtilage.policy.decision.decide import Decision
from curtilage.policy.decision.tiers import RoutingClass
from curtilage.policy.document.routing_plan import QueuePlan

FIRST_PAUSE_S: Final = 5.0
LONGEST_PAUSE_S: Final = 60.0
MOST_SPREAD: Final = 0.5
"""Share of a pause by which it may be shorter or longer."""
MOST_PAUSE_S: Final = (1 + MOST_SPREAD) * LONGEST_PAUSE_S
GONE: Final = 410
UNKNOWN: Final = (
    "nothing waits under this ticket: it was dropped, or nobody came for its answer"
)
_SPREAD: Final = 1000
UNREADABLE: Final = "rows could not be read and were settled as refused"
BROKE: Final = "the queue: one question could not be asked again; it waits on"


class Asks(Protocol):
    """What asking again needs of the session."""

    async def decide(self, query: Query) -> Decision:
        """Inspect and decide, and nothing else."""
        ...

    async def ask(self, query: Query) -> Answer:
        """Answer, whole.

        Raises:
            ClientError: it cannot.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Drained:
    """What came of asking all that waits again.

    Attributes:
        answered: so many have an answer now.
        refused: so many were refused for good.
        waiting: so many wait on.
        elsewhere: another process is at it, so nothing was done.
    """

    answered: int = 0
    refused: int = 0
    waiting: int = 0
    elsewhere: bool = False


class Deferring:
    """One session's queue.

    Attributes:
        failing: whether its store could not be read or written the last time.

    Args:
        store: where the questions wait.
        plan: for how long.
        asks: the session.
        now_ms: Unix time.
        sleep: waits for so many seconds.
        below: randomness, a number below another.
        way_out: an enclave can be asked here. In another process, perhaps.
        notify: takes a sentence for a person, where the queue fails.
    """

    def __init__(
        self,
        store: DeferredStore,
        plan: QueuePlan,
        asks: Asks,
        *,
        now_ms: Callable[[], int],
        sleep: Callable[[float], Awaitable[None]],
        below: Callable[[int], int] = secrets.randbelow,
        way_out: bool = True,
        notify: Callable[[str], None] | None = None,
    ) -> None:
        self._way_out = way_out
        self._notify = notify
        self._store = store
        self._plan = plan
        self._asks = asks
        self._now_ms = now_ms
        self._sleep = sleep
        self._below = below
        self._loop: asyncio.Task[None] | None = None
        # When all that waits is asked again; None: it is being asked, or nothing waits.
        self._next_ms: float | None = None
        # When it is to be asked even if the pause is not over; a heap.
        self._due_ms: list[float] = []
        self._nearer = asyncio.Event()
        self._closed = False
        self.failing = False
        # What is being asked again has its place already.
        self._ticket: ContextVar[str] = ContextVar("ticket", default="")

    @property
    def in_memory(self) -> bool:
        """Whether what waits here is gone when this process ends."""
        return self._store.in_memory

    @property
    def asks_again(self) -> bool:
        """Whether what is asked just now has waited, and would wait on."""
        return bool(self._ticket.get())

    async def put(
        self,
        query: Query,
        decision: Decision,
        failures: Sequence[FailureReason],
        *,
        alone_s: int | None = None,
        left: bool,
    ) -> QueuedError | None:
        """Put a query by that nobody could answer, and begin to ask again.

        Returns what to tell its sender; None where waiting would not help, or such a
        query may not wait: then he is told why nobody answered.

        Args:
            query: as it was asked.
            decision: about it.
            failures: why nobody answered.
            alone_s: for how long those who failed are left alone yet; None: they may
                be asked at once.
            left: something of it may have left this device.

        Raises:
            QueueFullError: as much waits already as may.
        """
        routing_class = decision.permitted.routing_class
        cause = worth_waiting(failures, routing_class)
        ttl_s = self._plan.ttl_s[routing_class]
        if not query.options.defer or cause is None or not ttl_s:
            return None
        # One that is asked again has its place, and goes on to have it.
        if ticket := self._ticket.get():
            return QueuedError(ticket, cause, left=left)
        request = request_of(query)
        with suppress(UsageError, QueueStoreError):
            query_of(request)  # what could not be read again is not put by
            now_ms = self._now_ms()
            item = Deferred(
                ticket=secrets.token_hex(TICKET_BYTES),
                routing_class=routing_class,
                policy=decision.policy_digest,
                cause=cause,
                put_ms=now_ms,
                until_ms=now_ms + 1000 * ttl_s,
            )
            # Before anybody is told that it waits. Whoever stops waiting for an answer
            # meanwhile has no ticket, and nobody asks it again.
            await _whole(
                self._put(item, request, EXPLAINED[cause]),
                lambda: self._store.drop(item.ticket),
            )
            self.keep_on()
            if alone_s is not None:
                self._go_sooner(alone_s)
            eta_s = self._within_s(alone_s)
            return QueuedError(item.ticket, cause, eta_s=eta_s, left=left)
        return None

    async def _put(self, item: Deferred, request: bytes, why: str) -> None:
        try:
            await asyncio.to_thread(self._store.put, item, request, why)
        except QueueFullError:
            raise  # it can be read and written
        except Exception:
            self.failing = True
            raise
        self.failing = False
        # It waits now, whether or not it can be counted: told that it failed, its
        # sender would have no ticket for what leaves later all the same.
        with suppress(QueueStoreError):
            await self._count()

    async def items(self) -> tuple[Deferred, ...]:
        """Return what waits, and what became of the rest.

        Raises:
            QueueStoreError: the queue cannot be read.
        """
        return await asyncio.to_thread(self._store.items, self._now_ms())

    async def collect(self, ticket: str) -> Answer:
        """Return the answer that a ticket is for; it stays until it is dropped.

        Raises:
            QueuedError: it waits on.
            TicketError: there is none, and there will be none.
            QueueStoreError: the queue cannot be read.
        """
        return await asyncio.to_thread(collected, self._store, ticket, self._now_ms())

    async def drop(self, ticket: str) -> bool:
        """Forget a question and its answer; tell whether there was one.

        Raises:
            QueueStoreError: the queue cannot be written.
        """
        return await asyncio.to_thread(self._store.drop, ticket)

    async def drain(self) -> Drained:
        """Ask all that waits again, one after the other, the oldest first.

        Where one finds nobody, others of its class that wait for the same are not
        tried: they would find nobody either, and a network that is just coming back
        would be asked by all.

        Raises:
            QueueStoreError: the queue cannot be read or written.
        """
        with self._store.draining() as alone:
            if not alone:
                return Drained(elsewhere=True)
            told = Drained()
            stuck = set[tuple[RoutingClass, str]]()
            for item in await self.items():
                if item.state is not State.WAITING:
                    continue
                # Those before it may have taken minutes: it was dropped meanwhile, or
                # its time is over, and it must not leave any more.
                if self._may_be_asked(item, stuck) and not await self._waits(item):
                    continue
                state = await self._turn(item, stuck)
                if state is None:
                    told = replace(told, waiting=told.waiting + 1)
                elif state is State.ANSWERED:
                    told = replace(told, answered=told.answered + 1)
                else:
                    told = replace(told, refused=told.refused + 1)
            await self._count()
            if damaged := self._store.damaged():
                self._say(f"the queue: {damaged} {UNREADABLE}")
            return told

    def _may_be_asked(
        self, item: Deferred, stuck: set[tuple[RoutingClass, str]]
    ) -> bool:
        # Without a way out, what waits for one would be refused for good.
        here = self._way_out or item.cause not in OUT_THERE
        return here and (item.routing_class, item.cause) not in stuck

    async def _turn(
        self, item: Deferred, stuck: set[tuple[RoutingClass, str]]
    ) -> State | None:
        """Ask one again, if its turn is now; None: it waits on.

        Args:
            item: the question.
            stuck: what no tier could answer for others; this one may be added.
        """
        if not self._may_be_asked(item, stuck):
            return None
        try:
            state = await self._once(item)
        except ClientError:
            raise
        except Exception:  # noqa: BLE001 - the others must be asked as well
            # It waits on until its time is over. Its words may be in the exception, so
            # nothing of that is passed on.
            self._say(BROKE)
            return None
        if state is None:
            stuck.add((item.routing_class, item.cause))
        return state

    def _say(self, sentence: str) -> None:
        if self._notify is not None:
            self._notify(sentence)

    async def _waits(self, item: Deferred) -> bool:
        now = await asyncio.to_thread(self._store.item, item.ticket, self._now_ms())
        return now is not None and now.state is State.WAITING

    async def _count(self) -> None:
        """Tell how many wait, and how long the oldest has."""
        waiting = [each for each in await self.items() if each.state is State.WAITING]
        oldest_ms = min((each.put_ms for each in waiting), default=0)
        telemetry.queued(len(waiting), (self._now_ms() - oldest_ms) / 1000)

    async def _once(self, item: Deferred) -> State | None:
        """Ask one again, and note what came of it; None: it waits on."""
        token = self._ticket.set(item.ticket)
        try:
            query = query_of(await asyncio.to_thread(self._store.content, item))
            decision = await self._asks.decide(query)
            is_now = decision.permitted.routing_class
            again = goes_on(query, put_as=item.routing_class, is_now=is_now)
            answer = await self._asks.ask(again)
        except QueueStoreError as error:
            if not isinstance(error, QueueDamagedError):
                raise
            state, outcome = State.REFUSED, refusal_of("queue_damaged", str(error))
        except ClientError as error:
            if _passes(error):
                return None
            state, outcome = State.REFUSED, refusal_of(_code(error), str(error))
        else:
            state, outcome = State.ANSWERED, outcome_of(answer)
        finally:
            self._ticket.reset(token)
        # False: it was dropped meanwhile, or waited too long. Nobody is told then.
        await asyncio.to_thread(
            self._store.settle, item, state, outcome, now_ms=self._now_ms()
        )
        return state

    def keep_on(self) -> None:
        """Ask again and again, beside the questions, while something may wait."""
        if not self._closed and (self._loop is None or self._loop.done()):
            # An enclave that was found while nothing waited is of no moment now.
            self._next_ms, self._due_ms = self._drawn_ms(FIRST_PAUSE_S), []
            # In a context of its own: it asks for everybody, and not for the program
            # whose question happened to start it.
            self._loop = asyncio.get_running_loop().create_task(
                self._again_and_again(), context=Context()
            )

    def reachable(self) -> None:
        """Note that an enclave was found to be there, and ask again soon."""
        self._go_sooner(0)

    def _go_sooner(self, seconds: float) -> None:
        """Ask again when so many seconds are over, and not when the pause is."""
        first_ms = self._now_ms() + 1000 * seconds
        last_ms = first_ms + 1000 * FIRST_PAUSE_S
        # One try is for all that waits: many questions at once need no more of them.
        if any(first_ms <= each <= last_ms for each in self._due_ms):
            return
        # Not all at the same moment: many clients lost the same network.
        drawn_s = FIRST_PAUSE_S * self._below(_SPREAD) / _SPREAD
        heappush(self._due_ms, first_ms + 1000 * drawn_s)
        self._nearer.set()

    def _within_s(self, alone_s: int | None) -> int | None:
        """Return within how many seconds the next try is; None: it is not known.

        Of an enclave that failed, the try may be one whether it is there at all.

        Args:
            alone_s: as for ``put``.
        """
        # While others are asked again, their answers take as long as they take.
        next_ms = self._next_ms
        if next_ms is None or self._closed:
            return None
        if alone_s is not None:
            # Those who are left alone are not asked before, though the pause be over.
            next_ms = self._now_ms() + 1000 * (alone_s + FIRST_PAUSE_S)
        return max(1, ceil((next_ms - self._now_ms()) / 1000))

    def _drawn_ms(self, pause_s: float) -> float:
        """Return when a pause is over that begins now."""
        spread = 1 - MOST_SPREAD + 2 * MOST_SPREAD * self._below(_SPREAD) / _SPREAD
        return self._now_ms() + 1000 * pause_s * spread

    async def _again_and_again(self) -> None:
        pause_s = FIRST_PAUSE_S
        while True:
            await self._paused()
            # A disk that is full just now may not be so later.
            drained = Drained(waiting=1)
            try:
                drained = await self.drain()
            except QueueStoreError:
                self.failing = True
            else:
                self.failing = False
            none = not drained.waiting and not drained.elsewhere
            if none and self._store.in_memory:
                return  # into a file, another process may put one by
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
            if drained.answered:
                pause_s = FIRST_PAUSE_S
            self._next_ms = self._drawn_ms(pause_s)

    async def _paused(self) -> None:
        """Wait until it is time to ask again, which may come nearer meanwhile."""
        pause_ms = next_ms = self._next_ms or 0.0
        over = False
        while not over:
            self._nearer.clear()
            self._next_ms = next_ms = min([pause_ms, *self._due_ms[:1]])
            left_s = max(0.0, next_ms - self._now_ms()) / 1000
            sleeps = asyncio.ensure_future(self._sleep(left_s))
            nearer = asyncio.ensure_future(self._nearer.wait())
            try:
                await asyncio.wait(
                    {sleeps, nearer}, return_when=asyncio.FIRST_COMPLETED
                )
                over = sleeps.done()
            finally:
                sleeps.cancel()
                nearer.cancel()
        while self._due_ms and self._due_ms[0] <= next_ms:
            heappop(self._due_ms)
        self._next_ms = None

    async def close(self) -> None:
        """Stop asking again, and close the store; what waits in a file waits on."""
        self._closed = True
        if self._loop is not None:
            self._loop.cancel()
            # Whatever it came to: what else the session has open is closed as well.
            await asyncio.gather(self._loop, return_exceptions=True)
        await asyncio.to_thread(self._store.close)


def collected(store: DeferredStore, ticket: str, now_ms: int) -> Answer:
    """Return the answer that a ticket is for; see ``Deferring.collect``."""
    item = store.item(ticket, now_ms)
    if item is None:
        raise TicketError.unknown(UNKNOWN)
    if item.state is State.WAITING:
        raise QueuedError(ticket, FailureReason(item.cause))
    if item.state is State.EXPIRED:
        raise TicketError(
            "queue_expired",
            "it waited as long as the policy lets one of its class, and nobody "
            "could answer: ask anew",
            http_status=GONE,
        )
    outcome = store.content(item)
    if item.state is State.REFUSED:
        raise TicketError(*refused_as(outcome))
    try:
        return answer_of(outcome)
    except ValueError:
        raise QueueStoreError(
            "another version of this program wrote the answer"
        ) from None


async def _whole(work: Coroutine[None, None, None], undo: Callable[[], object]) -> None:
    """Wait for work that runs in a thread; whoever is cancelled has it undone."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        with suppress(ClientError):
            await task
            await asyncio.to_thread(undo)
        raise


def _passes(error: ClientError) -> bool:
    """Tell whether waiting on may help against a failure."""
    if isinstance(error, IncompleteAnswerError):
        return error.reason in TRANSIENT
    return isinstance(error, QueuedError | BusyError)


def _code(error: ClientError) -> str:
    if isinstance(error, NotRoutedError):
        return error.code
    if isinstance(error, BlockedError):
        return "blocked_by_policy"
    return "refused"
