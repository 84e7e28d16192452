"""Queues queries that no tier can answer at the moment, retries them, returns answers.

A retry passes through the whole session, as if it were sent now: it is inspected,
decided and permitted anew, by the policy in force. After a crash between an answer and
its storage, a query may be asked twice; it has one answer.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from contextvars import Context, ContextVar
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from math import ceil
from typing import Final, Protocol

from curtilage.client import telemetry
from curtilage.client.chat.answer import Answer
from curtilage.client.chat.query import Query
from curtilage.client.errors import (
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
from curtilage.client.failure_texts import FAILURE_TEXTS
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
from curtilage.client.system.fair_queue import APPLICATION, CALLER, caller_of
from curtilage.policy.decision.decide import Decision
from curtilage.policy.decision.tiers import RoutingClass

FIRST_PAUSE_S: Final = 5.0
LONGEST_PAUSE_S: Final = 60.0
MOST_SPREAD: Final = 0.5
"""Share of a pause by which it may be shorter or longer."""
MOST_PAUSE_S: Final = (1 + MOST_SPREAD) * LONGEST_PAUSE_S
GONE: Final = 410
UNKNOWN: Final = (
    "nothing is queued under this ticket: it was deleted, or its time is over"
)
_SPREAD: Final = 1000
UNREADABLE: Final = "rows could not be read and were settled as refused"
BROKE: Final = "the queue: one query could not be retried; it stays queued"


class Asks(Protocol):
    """The session, as retries use it."""

    async def decide(self, query: Query) -> Decision:
        """Inspect and decide only."""
        ...

    async def ask(self, query: Query) -> Answer:
        """Return a whole answer.

        Raises:
            ClientError: there is none.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Drained:
    """Result of one round of retries.

    Attributes:
        answered: number of queries answered.
        refused: number of queries refused permanently.
        waiting: number of queries still queued.
        elsewhere: another process is retrying, so nothing was done.
    """

    answered: int = 0
    refused: int = 0
    waiting: int = 0
    elsewhere: bool = False


class Deferring:
    """The queue of one session.

    Attributes:
        failing: whether the last access to its store failed.

    Args:
        store: where queries are stored.
        ttl_s: for how long one of a routing class may be queued.
        asks: the session.
        now_ms: Unix time.
        sleep: waits for this many seconds.
        below: randomness, a number below another.
        way_out: whether this process can ask an enclave; another one may.
        notify: receives a sentence for the user if the queue fails.
    """

    def __init__(
        self,
        store: DeferredStore,
        ttl_s: Mapping[RoutingClass, int],
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
        self._ttl_s = ttl_s
        self._asks = asks
        self._now_ms = now_ms
        self._sleep = sleep
        self._below = below
        self._loop: asyncio.Task[None] | None = None
        # When the next round of retries is due; None: one is running, or nothing is
        # queued.
        self._next_ms: float | None = None
        # Earlier rounds, due before the pause is over; a heap.
        self._due_ms: list[float] = []
        self._nearer = asyncio.Event()
        self._closed = False
        self.failing = False
        # The ticket of the query that this task retries.
        self._ticket: ContextVar[str] = ContextVar("ticket", default="")

    @property
    def in_memory(self) -> bool:
        """Whether the queue is lost when this process ends."""
        return self._store.in_memory

    @property
    def asks_again(self) -> bool:
        """Whether this task retries a queued query, which would stay queued."""
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
        """Queue a query that no tier could answer, and start the retries.

        Returns the error for its sender; None if waiting would not help, or the query
        may not be queued: then the sender gets the reasons of the failures.

        Args:
            query: the original query.
            decision: about it.
            failures: why each tier failed.
            alone_s: for how long the failed tiers are still left alone; None: they may
                be asked at once.
            left: some of it may have been sent.

        Raises:
            QueueFullError: the queue is as large as the policy permits.
        """
        routing_class = decision.permitted.routing_class
        cause = worth_waiting(failures, routing_class)
        ttl_s = self._ttl_s[routing_class]
        if not query.options.defer or cause is None or not ttl_s:
            return None
        # A retried query already has its place in the queue.
        if ticket := self._ticket.get():
            return QueuedError(ticket, cause, left=left)
        request = request_of(query)
        with suppress(UsageError, QueueStoreError):
            query_of(request)  # what could not be parsed later is not queued
            now_ms = self._now_ms()
            item = Deferred(
                ticket=secrets.token_hex(TICKET_BYTES),
                routing_class=routing_class,
                policy=decision.policy_digest,
                cause=cause,
                put_ms=now_ms,
                until_ms=now_ms + 1000 * ttl_s,
                application=APPLICATION.get(),
            )
            # Stored before the sender learns of it. A sender that is cancelled in the
            # meantime has no ticket, so its query is not retried either.
            await _whole(
                self._put(item, request, FAILURE_TEXTS[cause]),
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
            raise  # the store works
        except Exception:
            self.failing = True
            raise
        self.failing = False
        # It is queued, even if counting fails: with an error instead of the ticket, the
        # sender would not know that the query may still be sent later.
        with suppress(QueueStoreError):
            await self._count()

    async def items(self) -> tuple[Deferred, ...]:
        """Return every query of the queue, waiting or settled.

        Raises:
            QueueStoreError: the queue cannot be read.
        """
        return await asyncio.to_thread(self._store.items, self._now_ms())

    async def collect(self, ticket: str) -> Answer:
        """Return the answer of a ticket; it is kept until it is dropped.

        Raises:
            QueuedError: it is still queued.
            TicketError: it has no answer, and will not get one; or another application
                asked.
            QueueStoreError: the queue cannot be read.
        """
        item = await asyncio.to_thread(self._own, ticket)
        if item is None:
            raise TicketError.unknown(UNKNOWN)
        return await asyncio.to_thread(answer_in, self._store, item)

    async def drop(self, ticket: str) -> bool:
        """Delete a query and its answer; return whether there was one of this caller.

        Raises:
            QueueStoreError: the queue cannot be written.
        """
        if await asyncio.to_thread(self._own, ticket) is None:
            return False
        return await asyncio.to_thread(self._store.drop, ticket)

    def _own(self, ticket: str) -> Deferred | None:
        """Return what waits under a ticket, if the application that asks has put it."""
        item = self._store.item(ticket, self._now_ms())
        return None if item is None or item.application != APPLICATION.get() else item

    async def drain(self) -> Drained:
        """Retry all queued queries, one after the other, the oldest first.

        If no tier can answer one, others of its class with the same cause are skipped:
        they would fail as well, and a network that is just recovering would be flooded.

        Raises:
            QueueStoreError: the queue cannot be read or written.
        """
        with self._store.draining() as alone:
            if not alone:
                return Drained(elsewhere=True)
            drained = Drained()
            stuck = set[tuple[RoutingClass, str]]()
            for item in await self.items():
                if item.state is not State.WAITING:
                    continue
                # Those before it may have taken minutes: it may have been dropped or
                # have expired in the meantime, and then it must not be sent.
                if self._may_be_asked(item, stuck) and not await self._waits(item):
                    continue
                state = await self._turn(item, stuck)
                if state is None:
                    drained = replace(drained, waiting=drained.waiting + 1)
                elif state is State.ANSWERED:
                    drained = replace(drained, answered=drained.answered + 1)
                else:
                    drained = replace(drained, refused=drained.refused + 1)
            await self._count()
            if damaged := self._store.damaged():
                self._say(f"the queue: {damaged} {UNREADABLE}")
            return drained

    def _may_be_asked(
        self, item: Deferred, stuck: set[tuple[RoutingClass, str]]
    ) -> bool:
        # Without a way out, a query that waits for an enclave would be refused
        # permanently.
        here = self._way_out or item.reason not in OUT_THERE
        return here and (item.routing_class, item.cause) not in stuck

    async def _turn(
        self, item: Deferred, stuck: set[tuple[RoutingClass, str]]
    ) -> State | None:
        """Retry one query if its turn has come; None: it stays queued.

        Args:
            item: the query.
            stuck: what no tier could answer so far; a failure of this one is added.
        """
        if not self._may_be_asked(item, stuck):
            return None
        try:
            state = await self._once(item)
        except ClientError:
            raise
        except Exception:  # noqa: BLE001 - the others must be retried as well
            # It stays queued until it expires. The exception may contain its text, so
            # nothing of it is reported.
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
        """Report how many queries are queued, and the age of the oldest."""
        waiting = [each for each in await self.items() if each.state is State.WAITING]
        oldest_ms = min((each.put_ms for each in waiting), default=0)
        telemetry.queued(len(waiting), (self._now_ms() - oldest_ms) / 1000)

    async def _once(self, item: Deferred) -> State | None:
        """Retry one query and store the outcome; None: it stays queued."""
        token = self._ticket.set(item.ticket)
        application, caller = APPLICATION.get(), CALLER.get()
        if item.application:
            # What it leaves in memory and in the trail is that application's.
            APPLICATION.set(item.application)
            CALLER.set(caller_of(item.application))
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
            passes = isinstance(error, QueuedError | BusyError)
            if isinstance(error, IncompleteAnswerError):
                passes = error.reason in TRANSIENT
            if passes:  # the failure may end by waiting
                return None
            code = "blocked_by_policy" if isinstance(error, BlockedError) else "refused"
            code = error.code if isinstance(error, NotRoutedError) else code
            state, outcome = State.REFUSED, refusal_of(code, str(error))
        else:
            state, outcome = State.ANSWERED, outcome_of(answer)
        finally:
            self._ticket.reset(token)
            APPLICATION.set(application)
            CALLER.set(caller)
        # False: it was dropped or has expired in the meantime; there is no one to
        # notify.
        await asyncio.to_thread(
            self._store.settle, item, state, outcome, now_ms=self._now_ms()
        )
        return state

    def keep_on(self) -> None:
        """Retry in the background for as long as queries may be queued."""
        if not self._closed and (self._loop is None or self._loop.done()):
            # An enclave that became reachable while nothing was queued does not count.
            self._next_ms, self._due_ms = self._drawn_ms(FIRST_PAUSE_S), []
            # In an empty context: it acts for all senders, not for the program whose
            # query happened to start it.
            self._loop = asyncio.get_running_loop().create_task(
                self._again_and_again(), context=Context()
            )

    def reachable(self) -> None:
        """Note that an enclave was found reachable, and retry soon."""
        self._go_sooner(0)

    def _go_sooner(self, seconds: float) -> None:
        """Retry after this many seconds instead of at the end of the pause."""
        first_ms = self._now_ms() + 1000 * seconds
        last_ms = first_ms + 1000 * FIRST_PAUSE_S
        # One round retries all queries: many at once need no additional rounds.
        if any(first_ms <= each <= last_ms for each in self._due_ms):
            return
        # Spread at random: many clients may have lost the same network.
        drawn_s = FIRST_PAUSE_S * self._below(_SPREAD) / _SPREAD
        heappush(self._due_ms, first_ms + 1000 * drawn_s)
        self._nearer.set()

    def _within_s(self, alone_s: int | None) -> int | None:
        """Return within how many seconds the next round starts; None: unknown.

        For an enclave that failed, that round may only test whether it is reachable.

        Args:
            alone_s: as for ``put``.
        """
        # While a round runs, it is unknown how long its answers take.
        next_ms = self._next_ms
        if next_ms is None or self._closed:
            return None
        if alone_s is not None:
            # Tiers that are left alone are not asked earlier, even if the pause ends.
            next_ms = self._now_ms() + 1000 * (alone_s + FIRST_PAUSE_S)
        return max(1, ceil((next_ms - self._now_ms()) / 1000))

    def _drawn_ms(self, pause_s: float) -> float:
        """Return when a pause that begins now ends."""
        spread = 1 - MOST_SPREAD + 2 * MOST_SPREAD * self._below(_SPREAD) / _SPREAD
        return self._now_ms() + 1000 * pause_s * spread

    async def _again_and_again(self) -> None:
        pause_s = FIRST_PAUSE_S
        while True:
            await self._paused()
            # A disk that is full now may have room later.
            drained = Drained(waiting=1)
            try:
                drained = await self.drain()
            except QueueStoreError:
                self.failing = True
            else:
                self.failing = False
            none = not drained.waiting and not drained.elsewhere
            if none and self._store.in_memory:
                return  # in a file, another process may queue one
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
            if drained.answered:
                pause_s = FIRST_PAUSE_S
            self._next_ms = self._drawn_ms(pause_s)

    async def _paused(self) -> None:
        """Wait for the next round, which may be moved forward in the meantime."""
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
        """Stop the retries and close the store; a queue in a file is kept."""
        self._closed = True
        if self._loop is not None:
            self._loop.cancel()
            # Whatever it raised: the session closes its other parts as well.
            await asyncio.gather(self._loop, return_exceptions=True)
        await asyncio.to_thread(self._store.close)


def collected(store: DeferredStore, ticket: str, now_ms: int) -> Answer:
    """Return the answer of a ticket, whoever asked; see ``Deferring.collect``."""
    item = store.item(ticket, now_ms)
    if item is None:
        raise TicketError.unknown(UNKNOWN)
    return answer_in(store, item)


def answer_in(store: DeferredStore, item: Deferred) -> Answer:
    """Return the answer to a queued query; see ``Deferring.collect``."""
    if item.state is State.WAITING:
        raise QueuedError(item.ticket, item.reason)
    if item.state is State.EXPIRED:
        raise TicketError(
            "queue_expired",
            "it was queued for as long as the policy permits for its class, and no "
            "tier could answer: ask again",
            http_status=GONE,
        )
    content = store.content(item)
    if item.state is State.REFUSED:
        raise TicketError(*refused_as(content))
    try:
        return answer_of(content)
    except ValueError:
        raise QueueStoreError(
            "another version of this program wrote the answer"
        ) from None


async def _whole(work: Coroutine[None, None, None], undo: Callable[[], object]) -> None:
    """Await work that runs in a thread; on cancellation, complete and undo it."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        with suppress(ClientError):
            await task
            await asyncio.to_thread(undo)
        raise
