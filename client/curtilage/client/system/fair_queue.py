"""A fair queue for a shared resource: a few users at a time, ordered by past use.

The detectors serve one query after the other, the local model a few at a time. In
order of arrival, one program with many long texts would block all others. Here every
asker (a connection of the endpoint) has an account: those that used less so far, or
need less now, are served first. None waits for ever, since the starting value of new
accounts advances with all service. Where connections belong to applications, these
share what there is, whatever the number of their connections. It knows nothing of
queries.
"""

import asyncio
import hashlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import count
from typing import Final
from weakref import WeakKeyDictionary

MAX_WAITING: Final = 512
"""As many as the endpoint has connections, each with one question: a new connection is
not refused because many others need less, but waits for its share."""


class Asker:
    """One party that is served in turn with others.

    Attributes:
        caller: its account or token, as checked by the endpoint
            (``endpoint/accounts.py``). Several connections may share one; empty: this
            process itself.
        group: the application that it belongs to, whose share it uses; None: it has
            one of its own.
    """

    __slots__ = ("__weakref__", "caller", "group")

    def __init__(self, caller: str = "", group: "Asker | None" = None) -> None:
        self.caller = caller
        self.group = group


ASKER: Final[ContextVar[Asker | None]] = ContextVar("asker", default=None)
"""The asker of this task; without one, every query counts as another asker's."""


CALLER: Final[ContextVar[bytes | None]] = ContextVar("caller", default=b"")
"""The program that asks, in this task: empty, this one; None, one without a name."""

APPLICATION: Final[ContextVar[str]] = ContextVar("application", default="")
"""The application that asks, in this task, by its name in the gateway's file; empty: no
gateway serves it. Nothing that is sent may depend on it."""


def caller_of(application: str) -> bytes:
    """Return the name of an application for ``CALLER``, whatever its key."""
    return hashlib.sha256(b"application\0" + application.encode()).digest()


def memory_of(application: str) -> bytes:
    """Return what the digests of an application's conversations begin with."""
    return caller_of(application) if application else b""


class TurnRefusedError(Exception):
    """Too many wait already, and all of them come first."""


@dataclass(slots=True, order=True)
class _Ticket:
    """One that waits; the smallest is served next."""

    due: float
    number: int
    began: float = field(compare=False)
    cost: int = field(compare=False)
    asker: Asker = field(compare=False)
    called: "asyncio.Future[None]" = field(compare=False)

    @property
    def payer(self) -> Asker:
        """Whose share it uses."""
        return self.asker.group or self.asker


class FairQueue:
    """The queue for one resource; for one event loop.

    Args:
        most: how many may wait; beyond that, the one that would be served last is
            refused, so that a large number of waiting queries excludes no other asker.

    Attributes:
        places: how many turns there are at the same time.
    """

    def __init__(self, *, most: int = MAX_WAITING) -> None:
        self.places = 1
        self._most = most
        self._waiting: list[_Ticket] = []
        self._accounts: WeakKeyDictionary[Asker, float] = WeakKeyDictionary()
        self._now = 0.0
        self._numbers = count()
        self._taken = 0

    @asynccontextmanager
    async def turn(self, cost: int) -> AsyncGenerator[None]:
        """Wait for a turn; it ends with the block.

        Raises:
            TurnRefusedError: see ``take``.
        """
        await self.take(cost)
        try:
            yield
        finally:
            self.end()

    async def take(self, cost: int) -> None:
        """Wait for a turn; the one that got it calls ``end``.

        Args:
            cost: its duration, in any unit that all users share.

        Raises:
            TurnRefusedError: at once, or while it waits.
        """
        asker = ASKER.get() or Asker()
        ticket = _Ticket(
            due=max(self._now, self._accounts.get(asker, 0.0)) + cost,
            number=next(self._numbers),
            began=self._now,
            cost=cost,
            asker=asker,
            called=asyncio.get_running_loop().create_future(),
        )
        self._forget_those_who_left()
        self._waiting.append(ticket)
        if len(self._waiting) > self._most:
            last = self._last()
            self._waiting.remove(last)
            last.called.set_exception(TurnRefusedError())
        self._call()
        try:
            await ticket.called
        except asyncio.CancelledError:
            if not ticket.called.cancelled() and ticket.called.exception() is None:
                # Its turn came at the moment of its cancellation.
                self.end()
            raise

    def end(self) -> None:
        """Pass the turn to the next."""
        self._taken -= 1
        self._call()

    def _forget_those_who_left(self) -> None:
        self._waiting = [each for each in self._waiting if not each.called.cancelled()]

    def _call(self) -> None:
        while self._taken < self.places:
            self._forget_those_who_left()
            if not self._waiting:
                # Without waiting askers, no account matters.
                self._accounts.clear()
                self._now = 0.0
                return
            # Of each payer, only the first competes with those of others.
            firsts: dict[Asker, _Ticket] = {}
            for each in sorted(self._waiting):
                firsts.setdefault(each.payer, each)
            ticket = min(firsts.values(), key=self._turn_of)
            # The cost is shared by all that wait; a new account must not begin earlier.
            self._now += ticket.cost / len(firsts)
            self._waiting.remove(ticket)
            if ticket.asker.group is not None:
                self._accounts[ticket.asker.group], _ = self._turn_of(ticket)
            self._accounts[ticket.asker] = ticket.due
            self._taken += 1
            ticket.called.set_result(None)

    def _turn_of(self, ticket: _Ticket) -> tuple[float, int]:
        """Return when a ticket's turn is, among the first ones of all payers."""
        if ticket.asker.group is None:
            return ticket.due, ticket.number
        # Not ``due``: of an application that waits with many, each was the first then.
        paid = self._accounts.get(ticket.asker.group, 0.0)
        return max(ticket.began, paid) + ticket.cost, ticket.number

    def _last(self) -> _Ticket:
        """Return the one that would be served last."""
        waiting: dict[Asker, list[_Ticket]] = {}
        for each in sorted(self._waiting):
            waiting.setdefault(each.payer, []).append(each)

        def served_at(tickets: list[_Ticket]) -> tuple[float, int]:
            at, _ = self._turn_of(tickets[0])
            return at + sum(each.cost for each in tickets[1:]), tickets[-1].number

        return max(waiting.values(), key=served_at)[-1]
