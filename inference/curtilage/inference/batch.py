"""The planner of continuous batching: which tokens each step decodes. Pure.

State only: no clock, no I/O, no token. A query waits, is admitted to a sequence of the
context, has its prompt read in chunks, then writes one token in each step; it can be
retired in any state. A sequence is given to the next query only once it was erased.

Waiting queries are ordered by work: each is due when the engine has done as much work
since its arrival as the query itself costs. So a short query passes long ones, and
a long one is not passed by those that arrive after its own cost was worked off.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from itertools import accumulate
from typing import Final

from curtilage.inference.errors import EngineBusyError

PREFILL_CHUNK: Final = 128
"""Tokens per call: 5 % slower than 512, with a fifth of the pause for the others."""
LEAST_CHUNK: Final = 16
"""Fewer tokens of a prompt at a time would take longer each, with some models."""
GAIN: Final = 0.9
"""A step is split only if that saves a tenth: measured times vary by some percent."""
READS_PER_WRITE: Final = 8
"""Reading one token of a prompt costs about an eighth of writing one."""


def work_of(read: int, written: int) -> int:
    """Return the work of reading and writing so many tokens, in tokens read."""
    return read + READS_PER_WRITE * written


def split(costs: Sequence[float], count: int) -> tuple[int, ...]:
    """Return the sizes of the decodes that together take the least time, or about.

    A decode of two or three sequences can take longer than one after the other.

    Args:
        costs: the time of a decode of 1, 2, 3 … sequences; empty: unknown.
        count: sequences to be decoded, at least 1.
    """
    if not costs:
        return (count,)
    # The cheapest way for each smaller count: its time, and the size of its last part.
    best = [(0.0, 0)]
    for size in range(1, count + 1):
        parts = range(1, min(size, len(costs)) + 1)
        best.append(
            min((costs[part - 1] + best[size - part][0], part) for part in parts)
        )
    if count <= len(costs) and costs[count - 1] * GAIN <= best[count][0]:
        return (count,)
    sizes: list[int] = []
    while count:
        sizes.append(best[count][1])
        count -= sizes[-1]
    return tuple(sizes)


class Phase(Enum):
    """The state of a query."""

    WAITING = auto()
    ADMITTED = auto()
    READING = auto()
    WRITING = auto()


@dataclass(slots=True, kw_only=True)
class _Entry:
    """One query.

    Attributes:
        ticket: its number.
        arrival: its place in the order of arrival.
        due: see the module.
        alone: no other query may be decoded until it ends.
        phase: see there.
        sequence: of the context; -1: none.
        position: how many of its tokens the sequence holds.
        end: how many are to be read before it writes.
    """

    ticket: int
    arrival: int
    due: int
    alone: bool
    phase: Phase = Phase.WAITING
    sequence: int = -1
    position: int = 0
    end: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """A query that got a sequence; ``begin`` follows, or ``retire``."""

    ticket: int
    sequence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Consecutive tokens of one query, to be decoded.

    Attributes:
        ticket: of the query.
        sequence: of the context.
        start: position of the first token.
        count: how many.
        sampled: a token is to be drawn after the last one.
    """

    ticket: int
    sequence: int
    start: int
    count: int
    sampled: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The decodes of one step, each a call of its own.

    Attributes:
        decodes: pieces with ascending sequences, at most ``PREFILL_CHUNK`` tokens
            together. One token of each query that writes, and then prompts.
    """

    decodes: tuple[tuple[Piece, ...], ...]


class Planner:
    """The queries of one context.

    Args:
        sequences: of the context; 1 to ``PREFILL_CHUNK``.
        max_waiting: how many queries may wait.
        costs: see ``split``.

    Attributes:
        chunk: how many tokens of prompts are read in a step while as many queries or
            more write; ``LEAST_CHUNK`` to ``PREFILL_CHUNK``.

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
        self._max_waiting = max_waiting
        self._splits = [split(costs, count) for count in range(1, sequences + 1)]
        # Ascending numbers without gaps: else the library decodes a batch in parts.
        self._free = list(range(sequences))
        self._erasing: set[int] = set()
        self._waiting: dict[int, _Entry] = {}
        self._running: dict[int, _Entry] = {}
        self._arrivals = 0
        self._work = 0

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
        entry = self._running.get(ticket) or self._waiting.get(ticket)
        return None if entry is None else entry.phase

    def submit(self, cost: int, *, alone: bool = False) -> int:
        """Let a query wait; return its ticket.

        Args:
            cost: its work, as far as it is done in one turn.
            alone: it is decoded without neighbours.

        Raises:
            EngineBusyError: too many wait.
        """
        if len(self._waiting) >= self._max_waiting:
            raise EngineBusyError("too many requests are waiting")
        ticket = self._arrive()
        self._waiting[ticket] = _Entry(
            ticket=ticket, arrival=ticket, due=self._work + cost, alone=alone
        )
        return ticket

    def admit(self) -> Admission | None:
        """Give a sequence to the next query; None: none waits, or it must wait."""
        if not self._waiting or not self._free:
            return None
        first = min(self._waiting.values(), key=_order)
        # The first one that must be alone is waited for: else it never would be.
        if self._running and (first.alone or self._is_exclusive()):
            return None
        del self._waiting[first.ticket]
        first.phase = Phase.ADMITTED
        first.sequence = heapq.heappop(self._free)
        self._running[first.ticket] = first
        return Admission(ticket=first.ticket, sequence=first.sequence)

    def begin(self, ticket: int, *, tokens: int, held: int = 0) -> None:
        """Begin to read an admitted query.

        Args:
            ticket: see ``admit``.
            tokens: of its prompt, or of all that was read and written before.
            held: how many of them its sequence already holds.

        Raises:
            ValueError: there is nothing to read, or it is not admitted.
        """
        entry = self._running[ticket]
        if entry.phase is not Phase.ADMITTED or not 0 <= held < tokens:
            raise ValueError("the query cannot begin")
        entry.phase, entry.position, entry.end = Phase.READING, held, tokens

    def plan(self) -> Step:
        """Return the next step; without a decode if nothing runs."""
        decodes: list[tuple[Piece, ...]] = []
        writing = self._in(Phase.WRITING)
        writing.sort(key=_sequence)
        for run in _runs(writing):
            sizes = self._splits[len(run) - 1]
            for end, size in zip(accumulate(sizes), sizes, strict=True):
                decodes.append(tuple(_piece(each, 1) for each in run[end - size : end]))
        reading = self._in(Phase.READING)
        # One that continues has little to read: it does not wait for a long prompt.
        reading.sort(key=lambda each: (_left(each) > LEAST_CHUNK, _order(each)))
        prompts: list[tuple[_Entry, int]] = []
        # More at once where it delays few: the sooner they all write, the more tokens
        # share a decode. One alone is always read in the same pieces.
        room = self.chunk if len(writing) >= len(reading) else PREFILL_CHUNK
        for entry in reading:
            if count := min(room, _left(entry)):
                prompts.append((entry, count))
                room -= count
        if prompts:
            prompts.sort(key=lambda each: each[0].sequence)
            decodes.append(tuple(_piece(entry, count) for entry, count in prompts))
        return Step(decodes=tuple(decodes))

    def note(self, piece: Piece) -> None:
        """Note that a piece was decoded.

        Raises:
            ValueError: it is not the query's next one.
        """
        entry = self._running[piece.ticket]
        if (piece.sequence, piece.start) != (entry.sequence, entry.position):
            raise ValueError("the piece is not the query's next one")
        entry.position += piece.count
        if entry.phase is Phase.READING:
            self._work += work_of(piece.count, 0)
            if entry.position == entry.end:
                entry.phase = Phase.WRITING
        else:
            self._work += work_of(0, piece.count)

    def must_give_way(self, cost: int) -> bool:
        """Whether a running query would now come after one that waits.

        Args:
            cost: as in ``give_way``.
        """
        waiting = self._waiting.values()
        alone = self._is_exclusive() or any(each.alone for each in waiting)
        if (self._free or self._erasing) and not alone:
            return False
        return any(each.due <= self._work + cost for each in waiting)

    def give_way(self, ticket: int, cost: int) -> int:
        """Let a running query wait again; return its sequence, to be erased.

        Args:
            ticket: of the query.
            cost: the work of its next turn.
        """
        entry = self._running.pop(ticket)
        sequence = self._release(entry)
        entry.phase, entry.due = Phase.WAITING, self._work + cost
        entry.arrival = self._arrive()
        entry.position = entry.end = 0
        # However many wait: it makes room for one of them.
        self._waiting[ticket] = entry
        return sequence

    def retire(self, ticket: int) -> int | None:
        """End a query; return its sequence, to be erased; None: it has none."""
        if self._waiting.pop(ticket, None) is not None:
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

    def _release(self, entry: _Entry) -> int:
        sequence, entry.sequence = entry.sequence, -1
        self._erasing.add(sequence)
        return sequence

    def _is_exclusive(self) -> bool:
        return any(each.alone for each in self._running.values())

    def _in(self, phase: Phase) -> list[_Entry]:
        return [each for each in self._running.values() if each.phase is phase]


def _order(entry: _Entry) -> tuple[int, int]:
    return entry.due, entry.arrival


def _left(entry: _Entry) -> int:
    return entry.end - entry.position


def _sequence(entry: _Entry) -> int:
    return entry.sequence


def _runs(entries: Sequence[_Entry]) -> list[list[_Entry]]:
    """Return the runs of consecutive numbers; the library decodes no others at once."""
    runs: list[list[_Entry]] = []
    for entry in entries:
        if runs and runs[-1][-1].sequence + 1 == entry.sequence:
            runs[-1].append(entry)
        else:
            runs.append([entry])
    return runs


def _piece(entry: _Entry, count: int) -> Piece:
    return Piece(
        ticket=entry.ticket,
        sequence=entry.sequence,
        start=entry.position,
        count=count,
        sampled=entry.phase is Phase.WRITING or entry.position + count == entry.end,
    )
