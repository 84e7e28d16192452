"""What a step of continuous batching decodes: queries, pieces of them, sizes. Pure.

A step decodes one token of each query that writes, and then a piece of the prompts.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from itertools import accumulate
from typing import Final

PREFILL_CHUNK: Final = 128
"""Tokens per call: 5 % slower than 512, with a fifth of the pause for the others."""
LEAST_CHUNK: Final = 16
"""Fewer tokens of a prompt at a time would take longer each, with some models."""
READ_TOGETHER: Final = 8
"""Pieces of prompts are multiples of it: with Q4_K, the library takes 8 % less time
for each of 24 tokens than for each of 25 to 31."""
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
class Query:
    """One query of the planner.

    Attributes:
        ticket: its number.
        arrival: its place in the order of arrival.
        due: when the engine has done as much work as this.
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
    def reserved(self) -> int:
        """How much room it needs while it waits: none if nothing of it is saved."""
        return self.most if self.saved else 0

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


def step_of(
    queries: Iterable[Query], *, chunk: int, splits: Sequence[Sequence[int]]
) -> Step:
    """Return the next step of the queries that run; without a decode if none does.

    Args:
        queries: those that run.
        chunk: how many tokens of prompts are read while as many queries or more write.
        splits: of a decode of 1, 2, 3 … sequences; see ``split``.
    """
    decodes: list[tuple[Piece, ...]] = []
    running = list(queries)
    writing = [each for each in running if each.phase is Phase.WRITING]
    writing.sort(key=_sequence)
    for run in _runs(writing):
        sizes = splits[len(run) - 1]
        for end, size in zip(accumulate(sizes), sizes, strict=True):
            decodes.append(tuple(_piece(each, 1) for each in run[end - size : end]))
    reading = [each for each in running if each.phase is Phase.READING]
    # More at once where it delays few: the sooner they all write, the more tokens
    # share a decode. One alone is always read in the same pieces.
    few = len(writing) >= len(reading)
    prompts = _shared(reading, chunk if few else PREFILL_CHUNK)
    if prompts:
        prompts.sort(key=lambda each: each[0].sequence)
        decodes.append(tuple(_piece(query, count) for query, count in prompts))
    return Step(decodes=tuple(decodes))


def in_order(query: Query) -> tuple[int, int]:
    """Return the place of a query in the order by work."""
    return query.due, query.arrival


def _shared(reading: Iterable[Query], room: int) -> list[tuple[Query, int]]:
    """Return how many tokens of each prompt are read in a step."""
    # One that continues has little to read: it does not wait for a long prompt.
    first = sorted(
        reading, key=lambda each: (_left(each) > LEAST_CHUNK, in_order(each))
    )
    if not first:
        return []
    # The shortest has half of the room, or more: it waits for no long ones, and these
    # do not wait for all that are shorter.
    shortest = min(first, key=lambda each: (_left(each), in_order(each)))
    half = min(_left(shortest), room - room // 2)
    room -= half
    shared: list[tuple[Query, int]] = []
    for query in first:
        had = half if query is shortest else 0
        more = min(room, _left(query) - had)
        room -= more
        if had + more:
            shared.append((query, had + more))
    return shared


def _left(query: Query) -> int:
    """Return how many tokens of a query may be read at once."""
    if not query.alone:
        return query.end - query.position
    # See ``Query.reading``.
    return max(1, min(query.prompt, query.end) - query.position)


def _sequence(query: Query) -> int:
    return query.sequence


def _runs(queries: Sequence[Query]) -> list[list[Query]]:
    """Return the runs of consecutive numbers; the library decodes no others at once."""
    runs: list[list[Query]] = []
    for query in queries:
        if runs and runs[-1][-1].sequence + 1 == query.sequence:
            runs[-1].append(query)
        else:
            runs.append([query])
    return runs


def _piece(query: Query, count: int) -> Piece:
    return Piece(
        ticket=query.ticket,
        sequence=query.sequence,
        start=query.position,
        count=count,
        sampled=query.position + count == query.end,
    )
