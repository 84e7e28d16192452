"""The planner of continuous batching: who waits, runs and gives way. Pure.

State only: no clock, no I/O, no token. A query waits, is admitted to a sequence of the
context, has its prompt read in chunks, then writes one token in each step; it can be
retired in any state. A sequence is given to the next query only once it was erased.

Those that wait have two orders, which take turns. By work, each is due when the engine
has done as much work since its arrival as the query itself costs: a long one is not
passed by those that arrive later. By length, the shortest is first: it does not wait
for many long ones. Prompts that are read have the same two orders.

If no sequence is free, a query whose turn is over gives way, in the middle of its
prompt too. What it holds is saved, as far as there is room; what is lost is read again,
and so much must have been written before. No query gets the last sequence if then none
could give way soon.

One that must be alone counts as a query in each sequence. It stops others from being
admitted only once all that run can give way after their turns.
"""

import heapq
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from curtilage.inference.batch import (
    PREFILL_CHUNK,
    TURN_WORK,
    Phase,
    Piece,
    Query,
    Step,
    in_order,
    split,
    step_of,
    work_of,
)
from curtilage.inference.errors import EngineBusyError

_LOOKED_AT: Final = 16
"""How many of those that wait are looked at in each order: a queue may be long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """A query that got a sequence; ``begin`` follows, or ``retire``."""

    ticket: int
    sequence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """A running query that gives way; ``give_way`` follows.

    Attributes:
        ticket: of the query.
        sequence: of the context.
        saved: what the sequence holds is to be saved, not read again.
    """

    ticket: int
    sequence: int
    saved: bool


class Planner:
    """The queries of one context.

    Args:
        sequences: of the context; 1 to ``PREFILL_CHUNK``.
        max_waiting: how many queries may wait.
        costs: see ``split``.

    Attributes:
        chunk: how many tokens of prompts are read in a step while as many queries or
            more write; ``LEAST_CHUNK`` to ``PREFILL_CHUNK``.
        room: how many tokens of queries that wait may be saved.

    Raises:
        ValueError: too many sequences, or none.
    """

    def __init__(
        self, *, sequences: int, max_waiting: int, costs: Sequence[float] = ()
    ) -> None:
        if not 1 <= sequences <= PREFILL_CHUNK:
            raise ValueError("sequences is not 1 to PREFILL_CHUNK")
        self.sequences = sequences
        self.chunk = PREFILL_CHUNK
        self.room = 0
        self._max_waiting = max_waiting
        self._splits = [split(costs, count) for count in range(1, sequences + 1)]
        # Ascending numbers without gaps: else the library decodes a batch in parts.
        self._free = list(range(sequences))
        self._erasing: set[int] = set()
        self._waiting: dict[int, Query] = {}
        self._running: dict[int, Query] = {}
        self._arrivals = 0
        self._turns = 0
        self._work = 0
        self._reserved = 0  # for those that are saved, at the end of their next turns
        self._shortest = False  # is next, not the first one due
        self._next: int | None = None  # for whom another one gave way

    @property
    def waiting(self) -> int:
        """How many queries wait."""
        return len(self._waiting)

    @property
    def running(self) -> int:
        """How many queries have a sequence."""
        return len(self._running)

    @property
    def tickets(self) -> tuple[int, ...]:
        """Return every query that has not ended."""
        return *self._running, *self._waiting

    def phase(self, ticket: int) -> Phase | None:
        """Return a query's state; None: it has ended."""
        query = self._running.get(ticket) or self._waiting.get(ticket)
        return None if query is None else query.phase

    def submit(self, read: int, write: int = 0, *, alone: bool = False) -> int:
        """Let a query wait; return its ticket.

        Args:
            read: about how many tokens it has.
            write: how many it may write.
            alone: it is decoded without neighbours.

        Raises:
            EngineBusyError: too many wait.
        """
        if len(self._waiting) >= self._max_waiting:
            raise EngineBusyError("too many requests are waiting")
        ticket = self._arrive()
        query = Query(
            ticket=ticket,
            arrival=ticket,
            alone=alone,
            takes=self.sequences if alone else 1,
            end=read,
            prompt=read,
            left=write,
        )
        query.due = self._work + query.cost(0)
        self._waiting[ticket] = query
        return ticket

    def pause(self, over: Collection[int]) -> Pause | None:
        """Return the next query to give way to one that waits; None: none does now.

        Args:
            over: running queries whose turn is over.
        """
        if (chosen := self._chosen()) is not None:
            begins = self._may_begin(chosen)
            return None if begins else self._pause_for(chosen, over, shortest=False)
        self._next, passes = None, False
        for shortest in (self._shortest, not self._shortest):
            for query in self._ordered(shortest=shortest):
                if self._may_begin(query):
                    return None
                drains = query.takes > 1
                if drains and (passes or not self._may_drain(query, shortest=shortest)):
                    continue
                pause = self._pause_for(query, over, shortest=shortest)
                # For one that must be alone none is admitted until all have given way.
                if pause is not None or drains:
                    self._next = query.ticket
                    return pause
                # It begins as soon as any turn is over: the others wait so long.
                passes |= query.is_light
        return None

    def give_way(self, ticket: int, *, saved: bool) -> int:
        """Let a running query wait again; return its sequence, to be erased.

        Args:
            ticket: of the query.
            saved: see ``Pause``.
        """
        query = self._running.pop(ticket)
        sequence = self._release(query)
        query.saved = query.position if saved else 0
        query.was_lost |= query.saved < query.position
        if query.takes > 1:
            # The others had no turn meanwhile.
            query.due = self._work + query.takes * max(query.worked, TURN_WORK)
            query.arrival = self._arrive()
        elif query.phase is Phase.WRITING:
            query.due = self._work + query.cost(query.saved)
            query.arrival = self._arrive()
        # Else, what it was to read in this turn, it has still to read: it keeps its
        # place.
        query.phase = Phase.WAITING
        query.position = query.wrote = query.worked = 0
        # However many wait: it makes room for one of them.
        self._waiting[ticket] = query
        # So it can continue, and be saved again.
        self._reserved += query.reserved
        return sequence

    def admit(self) -> Admission | None:
        """Give a sequence to the next query; None: none waits, or it must wait."""
        if not self._waiting or not self._free:
            return None
        query = self._waiting.get(self._next or 0) or self._choice()
        if query is None or (query.alone and self._running):
            return None
        self._next = None
        self._shortest = not self._shortest
        self._turns += 1
        del self._waiting[query.ticket]
        self._reserved -= query.reserved
        query.phase, query.turn = Phase.ADMITTED, self._turns
        query.sequence = heapq.heappop(self._free)
        self._running[query.ticket] = query
        return Admission(ticket=query.ticket, sequence=query.sequence)

    def begin(self, ticket: int, *, tokens: int, held: int = 0) -> bool:
        """Begin to read an admitted query; False: it must wait once more.

        It was admitted by an estimate of its length, and is longer. Its sequence has
        nothing to erase.

        Args:
            ticket: see ``admit``.
            tokens: of its prompt, or of all that was read and written before.
            held: how many of them its sequence will hold, from what was saved.

        Raises:
            ValueError: there is nothing to read, or it is not admitted.
        """
        query = self._running[ticket]
        if query.phase is not Phase.ADMITTED or not 0 <= held < tokens:
            raise ValueError("the query cannot begin")
        estimated, query.known = not query.known, True
        if estimated:
            # An estimate that was too low is no advantage.
            query.due += query.takes * max(0, tokens - query.end)
            query.prompt = tokens
        query.end = tokens
        others = self._without(query)
        if estimated and (others or self._waiting) and not self._fits(query, others):
            self._shortest = not self._shortest
            del self._running[ticket]
            heapq.heappush(self._free, query.sequence)
            query.phase, query.sequence, query.turn = Phase.WAITING, -1, 0
            self._waiting[ticket] = query
            return False
        query.phase, query.position, query.saved = Phase.READING, held, 0
        return True

    def plan(self) -> Step:
        """Return the next step; without a decode if nothing runs."""
        return step_of(self._running.values(), chunk=self.chunk, splits=self._splits)

    def note(self, piece: Piece) -> None:
        """Note that a piece was decoded.

        Raises:
            ValueError: it is not the query's next one.
        """
        query = self._running[piece.ticket]
        if (piece.sequence, piece.start) != (query.sequence, query.position):
            raise ValueError("the piece is not the query's next one")
        if query.phase is Phase.READING:
            read = query.reading(query.position)
            work = query.reading(query.position + piece.count) - read
        else:
            work = work_of(0, piece.count)
        query.position += piece.count
        query.worked += work
        self._work += work
        if piece.sampled:
            query.phase = Phase.WRITING
            query.end += 1
            query.left -= 1
            query.wrote += 1

    def retire(self, ticket: int) -> int | None:
        """End a query; return its sequence, to be erased; None: it has none."""
        if (query := self._waiting.pop(ticket, None)) is not None:
            self._reserved -= query.reserved
            return None
        return self._release(self._running.pop(ticket))

    def erased(self, sequence: int) -> None:
        """Note that nothing of its last query is left in a sequence.

        Raises:
            KeyError: it was not to be erased.
        """
        self._erasing.remove(sequence)
        heapq.heappush(self._free, sequence)

    def _arrive(self) -> int:
        self._arrivals += 1
        return self._arrivals

    def _release(self, query: Query) -> int:
        sequence, query.sequence = query.sequence, -1
        self._erasing.add(sequence)
        return sequence

    @property
    def _vacant(self) -> int:
        return len(self._free) + len(self._erasing)

    def _without(self, query: Query) -> list[Query]:
        return [each for each in self._running.values() if each is not query]

    def _ordered(self, *, shortest: bool) -> list[Query]:
        waiting = list(self._waiting.values())
        late = [
            each
            for each in waiting
            if each.due <= self._work and (each.takes > 1 or each.is_heavy)
        ]
        if late:
            # Other long ones that began now could keep it waiting without end.
            first = min(late, key=in_order)
            waiting = [each for each in waiting if each is first or not each.is_heavy]
        key = _length if shortest else in_order
        return heapq.nsmallest(_LOOKED_AT, waiting, key=key)

    def _chosen(self) -> Query | None:
        """Return the query for which others have given way, if it may still begin."""
        chosen = self._waiting.get(self._next or 0)
        if chosen is None or self._may_begin(chosen):
            return chosen
        drains = chosen.takes > 1 and any(
            self._may_drain(chosen, shortest=each) for each in (False, True)
        )
        return chosen if drains else None

    def _choice(self) -> Query | None:
        """Return the next query that gets a free sequence."""
        for shortest in (self._shortest, not self._shortest):
            ordered = self._ordered(shortest=shortest)
            for query in ordered:
                if self._may_begin(query):
                    return query
            if not self._running:
                # Else nothing would ever change.
                return ordered[0]
        return None

    def _may_begin(self, query: Query) -> bool:
        running = list(self._running.values())
        if running and (query.alone or running[0].alone):
            return False
        return self._vacant > 0 and self._fits(query, running)

    def _may_drain(self, query: Query, *, shortest: bool) -> bool:
        """Whether all that run give way to one that must be alone after their turns."""
        running = self._running.values()
        if not all(self._passes(query, each, 0, shortest=shortest) for each in running):
            return False
        room = self._room_beside(query)
        if all(each.is_light for each in running):
            return room >= 0
        return sum(each.most for each in running) <= room

    def _room_beside(self, query: Query) -> int:
        """Return how much room is left if it can be saved at the end of its turn."""
        return self._room_without(query) - (0 if query.is_light else query.most)

    def _room_without(self, query: Query) -> int:
        """Return how much room is left for all others."""
        return self.room - self._reserved + query.reserved

    def _fits(self, query: Query, others: Collection[Query], more: int = 0) -> bool:
        """Whether a query may run: a sequence is left, or one that runs yields soon.

        Args:
            query: the query.
            others: those that run then.
            more: how many tokens of others are saved before.
        """
        if len(others) + query.takes < self.sequences:
            return True
        room = self._room_without(query) - more
        return any(each.is_light or each.most <= room for each in (query, *others))

    def _pause_for(
        self, query: Query, over: Collection[int], *, shortest: bool
    ) -> Pause | None:
        """Return the one that gives way to a query, if it may begin then."""
        drains = query.takes > 1
        room = self._room_beside(query) if drains else self.room - self._reserved
        found: list[tuple[int, bool, int, Pause]] = []
        for each in self._running.values():
            if each.ticket not in over or each.phase is Phase.ADMITTED:
                continue
            others = self._without(each)
            for saved in (True, False):
                if (lost := _lost(each, room if saved else None)) is None:
                    continue
                passes = self._passes(query, each, lost, shortest=shortest)
                fits = self._fits(query, others, each.most if saved else 0)
                if drains or (passes and fits):
                    pause = Pause(
                        ticket=each.ticket, sequence=each.sequence, saved=saved
                    )
                    # If it holds nothing, it waits for another prompt to be read.
                    found.append((lost, each.position > 0, each.turn, pause))
                if drains or fits or not passes:
                    # It does not lose what can be saved so that it comes later.
                    break
        return min(found, key=lambda each: each[:3])[3] if found else None

    def _passes(
        self, query: Query, running: Query, lost: int, *, shortest: bool
    ) -> bool:
        """Whether a query that waits comes before one that runs, and gives way."""
        again = running.cost(running.position) + lost
        if shortest:
            return query.cost(query.saved) < again
        if running.phase is Phase.READING:
            return in_order(query) < in_order(running)
        return query.due <= self._work + again


def _lost(query: Query, room: int | None) -> int | None:
    """Return the work to be repeated if a query gives way; None: it must not.

    Args:
        query: the query.
        room: for what is saved of it; None: nothing is.
    """
    if room is not None:
        return 0 if query.position and query.most <= room else None
    lost = query.reading(query.position)
    if query.is_light and not query.was_lost:
        return lost
    # A third of the work, or more, is done once.
    return lost if 2 * work_of(0, query.wrote) >= lost else None


def _length(query: Query) -> tuple[int, int]:
    return query.cost(query.saved), query.arrival
