"""The planner of continuous batching: which tokens each step decodes. Pure.

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
from collections.abc import Collection, Iterable, Sequence
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
TURN_TOKENS: Final = 256
"""How many tokens a query is taken to write in one turn, at most."""
TURN_WORK: Final = READS_PER_WRITE * TURN_TOKENS
"""Of one turn of writing. A query with no more tokens than this is light: to read it
again costs no more than a turn."""


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
        alone: no other query may be decoded until it ends, or gives way.
        takes: how many sequences it takes from the others.
        end: how many tokens it has; an estimate until it was ``known``.
        prompt: how many of them it has not written.
        left: how many it may still write.
        known: its prompt was tokenised.
        saved: how many of its tokens are saved, while it waits.
        phase: see there.
        sequence: of the context; -1: none.
        position: how many of its tokens the sequence holds.
        turn: its place in the order of admission; 0: it has had no turn.
        wrote: how many tokens it has written in this turn.
        worked: the work of this turn.
        was_lost: what it held was lost once, to be read again.
    """

    ticket: int
    arrival: int
    alone: bool
    takes: int
    end: int
    prompt: int
    left: int
    due: int = 0
    known: bool = False
    saved: int = 0
    phase: Phase = Phase.WAITING
    sequence: int = -1
    position: int = 0
    turn: int = 0
    wrote: int = 0
    worked: int = 0
    was_lost: bool = False

    @property
    def to_write(self) -> int:
        """How many tokens its next turn writes, at most."""
        return max(0, min(self.left, TURN_TOKENS))

    @property
    def most(self) -> int:
        """How many tokens it holds at the end of its next turn, at most."""
        return self.end + self.to_write

    @property
    def is_light(self) -> bool:
        """Whether it can give way soon even if nothing of it can be saved."""
        return self.reading(self.most) <= TURN_WORK

    @property
    def is_heavy(self) -> bool:
        """Whether it is to begin, and may then be unable to give way for long."""
        return not self.turn and not self.is_light

    def reading(self, tokens: int) -> int:
        """Return the work of reading its first tokens, so many.

        What was written alone is read as it was written, token by token: the last bits
        of the sums depend on how many are decoded together.
        """
        chunks = min(tokens, self.prompt) if self.alone else tokens
        return work_of(chunks, tokens - chunks)

    def cost(self, held: int) -> int:
        """Return the work of its next turn, of all sequences that it takes.

        Args:
            held: how many of its tokens need not be read.
        """
        work = self.reading(self.end) - self.reading(held) + work_of(0, self.to_write)
        # However short, it interrupts all others.
        return work if self.takes == 1 else self.takes * (work + TURN_WORK)


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
        self._waiting: dict[int, _Entry] = {}
        self._running: dict[int, _Entry] = {}
        self._arrivals = 0
        self._turns = 0
        self._work = 0
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
        entry = self._running.get(ticket) or self._waiting.get(ticket)
        return None if entry is None else entry.phase

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
        entry = _Entry(
            ticket=ticket,
            arrival=ticket,
            alone=alone,
            takes=self.sequences if alone else 1,
            end=read,
            prompt=read,
            left=write,
        )
        entry.due = self._work + entry.cost(0)
        self._waiting[ticket] = entry
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
            for entry in self._ordered(shortest=shortest):
                if self._may_begin(entry):
                    return None
                drains = entry.takes > 1
                if drains and (passes or not self._may_drain(entry, shortest=shortest)):
                    continue
                pause = self._pause_for(entry, over, shortest=shortest)
                # For one that must be alone none is admitted until all have given way.
                if pause is not None or drains:
                    self._next = entry.ticket
                    return pause
                # It begins as soon as any turn is over: the others wait so long.
                passes |= entry.is_light
        return None

    def give_way(self, ticket: int, *, saved: bool) -> int:
        """Let a running query wait again; return its sequence, to be erased.

        Args:
            ticket: of the query.
            saved: see ``Pause``.
        """
        entry = self._running.pop(ticket)
        sequence = self._release(entry)
        entry.saved = entry.position if saved else 0
        entry.was_lost |= entry.saved < entry.position
        if entry.takes > 1:
            # The others had no turn meanwhile.
            entry.due = self._work + entry.takes * max(entry.worked, TURN_WORK)
            entry.arrival = self._arrive()
        elif entry.phase is Phase.WRITING:
            entry.due = self._work + entry.cost(entry.saved)
            entry.arrival = self._arrive()
        # Else, what it was to read in this turn, it has still to read: it keeps its
        # place.
        entry.phase = Phase.WAITING
        entry.position = entry.wrote = entry.worked = 0
        # However many wait: it makes room for one of them.
        self._waiting[ticket] = entry
        return sequence

    def admit(self) -> Admission | None:
        """Give a sequence to the next query; None: none waits, or it must wait."""
        if not self._waiting or not self._free:
            return None
        entry = self._waiting.get(self._next or 0) or self._choice()
        if entry is None or (entry.alone and self._running):
            return None
        self._next = None
        self._shortest = not self._shortest
        self._turns += 1
        del self._waiting[entry.ticket]
        entry.phase, entry.turn = Phase.ADMITTED, self._turns
        entry.sequence = heapq.heappop(self._free)
        self._running[entry.ticket] = entry
        return Admission(ticket=entry.ticket, sequence=entry.sequence)

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
        entry = self._running[ticket]
        if entry.phase is not Phase.ADMITTED or not 0 <= held < tokens:
            raise ValueError("the query cannot begin")
        estimated, entry.known = not entry.known, True
        if estimated:
            # An estimate that was too low is no advantage.
            entry.due += entry.takes * max(0, tokens - entry.end)
            entry.prompt = tokens
        entry.end = tokens
        others = self._without(entry)
        if estimated and (others or self._waiting) and not self._fits(entry, others):
            self._shortest = not self._shortest
            del self._running[ticket]
            heapq.heappush(self._free, entry.sequence)
            entry.phase, entry.sequence, entry.turn = Phase.WAITING, -1, 0
            self._waiting[ticket] = entry
            return False
        entry.phase, entry.position, entry.saved = Phase.READING, held, 0
        return True

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
        # More at once where it delays few: the sooner they all write, the more tokens
        # share a decode. One alone is always read in the same pieces.
        few = len(writing) >= len(reading)
        prompts = _shared(reading, self.chunk if few else PREFILL_CHUNK)
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
        if entry.phase is Phase.READING:
            read = entry.reading(entry.position)
            work = entry.reading(entry.position + piece.count) - read
        else:
            work = work_of(0, piece.count)
        entry.position += piece.count
        entry.worked += work
        self._work += work
        if piece.sampled:
            entry.phase = Phase.WRITING
            entry.end += 1
            entry.left -= 1
            entry.wrote += 1

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

    @property
    def _vacant(self) -> int:
        return len(self._free) + len(self._erasing)

    def _in(self, phase: Phase) -> list[_Entry]:
        return [each for each in self._running.values() if each.phase is phase]

    def _without(self, entry: _Entry) -> list[_Entry]:
        return [each for each in self._running.values() if each is not entry]

    def _ordered(self, *, shortest: bool) -> list[_Entry]:
        waiting = list(self._waiting.values())
        late = [
            each
            for each in waiting
            if each.due <= self._work and (each.takes > 1 or each.is_heavy)
        ]
        if late:
            # Other long ones that began now could keep it waiting without end.
            first = min(late, key=_order)
            waiting = [each for each in waiting if each is first or not each.is_heavy]
        return sorted(waiting, key=_length if shortest else _order)

    def _chosen(self) -> _Entry | None:
        """Return the query for which others have given way, if it may still begin."""
        chosen = self._waiting.get(self._next or 0)
        if chosen is None or self._may_begin(chosen):
            return chosen
        drains = chosen.takes > 1 and any(
            self._may_drain(chosen, shortest=each) for each in (False, True)
        )
        return chosen if drains else None

    def _choice(self) -> _Entry | None:
        """Return the next query that gets a free sequence."""
        for shortest in (self._shortest, not self._shortest):
            ordered = self._ordered(shortest=shortest)
            for entry in ordered:
                if self._may_begin(entry):
                    return entry
            if not self._running:
                # Else nothing would ever change.
                return ordered[0]
        return None

    def _may_begin(self, entry: _Entry) -> bool:
        running = list(self._running.values())
        if running and (entry.alone or running[0].alone):
            return False
        return self._vacant > 0 and self._fits(entry, running)

    def _may_drain(self, entry: _Entry, *, shortest: bool) -> bool:
        """Whether all that run give way to one that must be alone after their turns."""
        running = self._running.values()
        if not all(self._passes(entry, each, 0, shortest=shortest) for each in running):
            return False
        room = self._room_beside(entry)
        if all(each.is_light for each in running):
            return room >= 0
        return sum(each.most for each in running) <= room

    def _room_beside(self, entry: _Entry) -> int:
        """Return how much room is left if it can be saved at the end of its turn."""
        return self.room - self._reserved(entry) - (0 if entry.is_light else entry.most)

    def _fits(self, entry: _Entry, others: Collection[_Entry], more: int = 0) -> bool:
        """Whether a query may run: a sequence is left, or one that runs yields soon.

        Args:
            entry: the query.
            others: those that run then.
            more: how many tokens of others are saved before.
        """
        if len(others) + entry.takes < self.sequences:
            return True
        room = self.room - self._reserved(entry) - more
        return any(each.is_light or each.most <= room for each in (entry, *others))

    def _reserved(self, but: _Entry | None = None) -> int:
        """Return how many tokens those that are saved hold after their next turn.

        So each can continue, and then be saved again.
        """
        return sum(
            each.most
            for each in self._waiting.values()
            if each.saved and each is not but
        )

    def _pause_for(
        self, entry: _Entry, over: Collection[int], *, shortest: bool
    ) -> Pause | None:
        """Return the one that gives way to a query, if it may begin then."""
        drains = entry.takes > 1
        room = self._room_beside(entry) if drains else self.room - self._reserved()
        found: list[tuple[int, bool, int, Pause]] = []
        for each in self._running.values():
            if each.ticket not in over or each.phase is Phase.ADMITTED:
                continue
            others = self._without(each)
            for saved in (True, False):
                if (lost := _lost(each, room if saved else None)) is None:
                    continue
                passes = self._passes(entry, each, lost, shortest=shortest)
                fits = self._fits(entry, others, each.most if saved else 0)
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
        self, entry: _Entry, running: _Entry, lost: int, *, shortest: bool
    ) -> bool:
        """Whether a query that waits comes before one that runs, and gives way."""
        again = running.cost(running.position) + lost
        if shortest:
            return entry.cost(entry.saved) < again
        if running.phase is Phase.READING:
            return _order(entry) < _order(running)
        return entry.due <= self._work + again


def _lost(entry: _Entry, room: int | None) -> int | None:
    """Return the work to be repeated if a query gives way; None: it must not.

    Args:
        entry: the query.
        room: for what is saved of it; None: nothing is.
    """
    if room is not None:
        return 0 if entry.position and entry.most <= room else None
    lost = entry.reading(entry.position)
    if entry.is_light and not entry.was_lost:
        return lost
    # A third of the work, or more, is done once.
    return lost if 2 * work_of(0, entry.wrote) >= lost else None


def _order(entry: _Entry) -> tuple[int, int]:
    return entry.due, entry.arrival


def _length(entry: _Entry) -> tuple[int, int]:
    return entry.cost(entry.saved), entry.arrival


def _shared(reading: Iterable[_Entry], room: int) -> list[tuple[_Entry, int]]:
    """Return how many tokens of each prompt are read in a step."""
    # One that continues has little to read: it does not wait for a long prompt.
    first = sorted(reading, key=lambda each: (_left(each) > LEAST_CHUNK, _order(each)))
    if not first:
        return []
    # The shortest has half of the room, or more: it waits for no long ones, and these
    # do not wait for all that are shorter.
    shortest = min(first, key=lambda each: (_left(each), _order(each)))
    half = min(_left(shortest), room - room // 2)
    room -= half
    shared: list[tuple[_Entry, int]] = []
    for entry in first:
        had = half if entry is shortest else 0
        more = min(room, _left(entry) - had)
        room -= more
        if had + more:
            shared.append((entry, had + more))
    return shared


def _left(entry: _Entry) -> int:
    """Return how many tokens of a query may be read at once."""
    if not entry.alone:
        return entry.end - entry.position
    # See ``_Entry.reading``.
    return max(1, min(entry.prompt, entry.end) - entry.position)


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
        sampled=entry.position + count == entry.end,
    )
