"""Whose turn it is, where many ask one thing: one at a time, by what each asked.

The detectors and the local model serve one query after the other. In order of
arrival, one program with many long texts would shut all others out. Here every
asker (a connection of the endpoint) has an account: who asked for less so far,
or asks for less now, is served first, and none waits for ever, since the time
by which new accounts begin goes on with all that is served. Knows no query.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import count
from typing import Final
from weakref import WeakKeyDictionary

MAX_WAITING: Final = 512
"""As many as the endpoint has connections, each with one question: who connects is
not refused by the number of those who ask for less, but waits for its share."""


class Asker:
    """One that asks, and is served in turn with others.

    Attributes:
        caller: the account or token that it asks with, as the endpoint checked it
            (``endpoint/accounts.py``). Several connections may share one; empty: this
            process itself.
    """

    __slots__ = ("__weakref__", "caller")

    def __init__(self, caller: str = "") -> None:
        self.caller = caller


ASKER: Final[ContextVar[Asker | None]] = ContextVar("asker", default=None)
"""Who asks, in this task; without one, every query is somebody else's."""


CALLER: Final[ContextVar[bytes | None]] = ContextVar("caller", default=b"")
"""Which program asks, in this task: empty, this one; None, one that gave no name."""


class TurnRefusedError(Exception):
    """Too many wait already, and all of them come first."""


@dataclass(slots=True, order=True)
class _Ticket:
    """One that waits; the least is served next."""

    due: float
    number: int
    cost: int = field(compare=False)
    asker: Asker = field(compare=False)
    called: "asyncio.Future[None]" = field(compare=False)


class FairQueue:
    """The queue before one thing; for one event loop.

    Args:
        most: how many may wait; of more, who would be served last is refused,
            so that waiting in great numbers keeps nobody else out.
    """

    def __init__(self, *, most: int = MAX_WAITING) -> None:
        self._most = most
        self._waiting: list[_Ticket] = []
        self._accounts: WeakKeyDictionary[Asker, float] = WeakKeyDictionary()
        self._now = 0.0
        self._numbers = count()
        self._taken = False

    @asynccontextmanager
    async def turn(self, cost: int) -> AsyncGenerator[None]:
        """Wait for a turn, and end it with the block.

        Raises:
            TurnRefusedError: see ``take``.
        """
        await self.take(cost)
        try:
            yield
        finally:
            self.end()

    async def take(self, cost: int) -> None:
        """Wait for a turn; the one that has it calls ``end``.

        Args:
            cost: how long it will be, in any unit that all use.

        Raises:
            TurnRefusedError: at once, or while it waits.
        """
        asker = ASKER.get() or Asker()
        ticket = _Ticket(
            due=max(self._now, self._accounts.get(asker, 0.0)) + cost,
            number=next(self._numbers),
            cost=cost,
            asker=asker,
            called=asyncio.get_running_loop().create_future(),
        )
        self._forget_those_who_left()
        self._waiting.append(ticket)
        if len(self._waiting) > self._most:
            last = max(self._waiting)
            self._waiting.remove(last)
            last.called.set_exception(TurnRefusedError())
        self._call()
        try:
            await ticket.called
        except asyncio.CancelledError:
            if not ticket.called.cancelled() and ticket.called.exception() is None:
                # It was called in the moment in which it went away.
                self.end()
            raise

    def end(self) -> None:
        """Give the turn to the next."""
        self._taken = False
        self._call()

    def _forget_those_who_left(self) -> None:
        self._waiting = [each for each in self._waiting if not each.called.cancelled()]

    def _call(self) -> None:
        if self._taken:
            return
        self._forget_those_who_left()
        if not self._waiting:
            # No account matters any more.
            self._accounts.clear()
            self._now = 0.0
            return
        ticket = min(self._waiting)
        # All who wait share what passes; a new account is to begin no earlier.
        self._now += ticket.cost / len(self._waiting)
        self._waiting.remove(ticket)
        self._accounts[ticket.asker] = ticket.due
        self._taken = True
        ticket.called.set_result(None)
