from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)
from typing_extensions import override

from curtilage.inference.batch import (
    GAIN,
    PREFILL_CHUNK,
    Admission,
    Phase,
    Piece,
    Planner,
    Step,
    split,
    work_of,
)
from curtilage.inference.errors import EngineBusyError

# Measured with one thread: two or three are faster one after the other.
MEASURED = (8.2, 26.0, 31.0, 32.0, 38.0, 43.0, 44.0, 45.0)


def planner(
    sequences: int = 4, waiting: int = 64, costs: tuple[float, ...] = ()
) -> Planner:
    return Planner(sequences=sequences, max_waiting=waiting, costs=costs)


def admitted(plan: Planner, tokens: int = 10, held: int = 0) -> Admission:
    admission = plan.admit()
    assert admission is not None
    plan.begin(admission.ticket, tokens=tokens, held=held)
    return admission


def run(plan: Planner) -> Step:
    step = plan.plan()
    for pieces in step.decodes:
        for piece in pieces:
            plan.note(piece)
    return step


def writing(plan: Planner, count: int) -> list[int]:
    """Bring so many new queries to where they write."""
    tickets = [plan.submit(1) for _ in range(count)]
    for _ in range(count):
        admitted(plan, tokens=1)
    run(plan)
    assert {plan.phase(each) for each in tickets} == {Phase.WRITING}
    return tickets


# The split of a step.


@pytest.mark.parametrize(
    ("count", "sizes"), [(1, (1,)), (2, (1, 1)), (3, (1, 1, 1)), (4, (4,)), (8, (8,))]
)
def test_a_step_is_split_where_that_is_faster(
    count: int, sizes: tuple[int, ...]
) -> None:
    assert split(MEASURED, count) == sizes


def test_unmeasured_costs_split_nothing() -> None:
    assert split((), 5) == (5,)


@settings(deadline=None)
@given(st.lists(st.floats(0.1, 100), min_size=1, max_size=9), st.integers(1, 9))
def test_no_other_split_is_faster(costs: list[float], count: int) -> None:
    def fastest(left: int) -> float:
        if left == 0:
            return 0.0
        parts = range(1, min(left, len(costs)) + 1)
        return min(costs[part - 1] + fastest(left - part) for part in parts)

    sizes = split(costs, count)
    assert sum(sizes) == count
    took = sum(costs[size - 1] for size in sizes)
    assert took <= fastest(count) / GAIN * (1 + 1e-9)
    assert len(sizes) == 1 or took == pytest.approx(fastest(count))


def test_writers_are_decoded_in_the_fastest_parts() -> None:
    plan = planner(costs=MEASURED[:4])
    writing(plan, 3)
    assert [len(pieces) for pieces in plan.plan().decodes] == [1, 1, 1]
    writing(plan, 1)
    assert [len(pieces) for pieces in plan.plan().decodes] == [4]


def test_sequences_with_a_gap_between_them_are_decoded_apart() -> None:
    plan = planner()
    tickets = writing(plan, 4)
    sequence = plan.retire(tickets[1])
    assert sequence == 1
    assert [[piece.sequence for piece in pieces] for pieces in plan.plan().decodes] == [
        [0],
        [2, 3],
    ]
    plan.erased(sequence)
    writing(plan, 1)
    assert [piece.sequence for piece in plan.plan().decodes[0]] == [0, 1, 2, 3]


# Prompts.


def test_a_prompt_is_read_in_chunks_next_to_one_token_of_each_writer() -> None:
    plan = planner()
    writers = writing(plan, 2)
    newcomer = plan.submit(900)
    admitted(plan, tokens=300)
    starts: list[int] = []
    while plan.phase(newcomer) is Phase.READING:
        written, prompt = run(plan).decodes
        assert [(each.ticket, each.count) for each in written] == [
            (ticket, 1) for ticket in writers
        ]
        starts.append(prompt[0].start)
        assert prompt[0].sampled is (starts[-1] + prompt[0].count == 300)
    assert starts == [0, 128, 256]


def test_less_is_read_at_a_time_while_as_many_write() -> None:
    plan = planner()
    plan.chunk = 50
    plan.submit(1)
    admitted(plan, tokens=200)
    assert run(plan).decodes[0][0].count == PREFILL_CHUNK
    run(plan)
    for _ in range(2):
        plan.submit(1)
        admitted(plan, tokens=200)
    assert sum(each.count for each in plan.plan().decodes[1]) == PREFILL_CHUNK
    plan.retire(plan.tickets[-1])
    assert [each.count for each in plan.plan().decodes[1]] == [50]


def test_several_short_prompts_share_a_chunk() -> None:
    plan = planner()
    for tokens in (30, 40, 100):
        plan.submit(tokens)
        admitted(plan, tokens=tokens)
    (pieces,) = run(plan).decodes
    assert [each.count for each in pieces] == [30, 40, 58]
    (pieces, prompt) = run(plan).decodes
    assert [each.sequence for each in pieces] == [0, 1]
    assert [(each.start, each.count) for each in prompt] == [(58, 42)]


def test_a_short_prompt_passes_a_long_one_that_is_being_read() -> None:
    plan = planner()
    plan.submit(work_of(4000, 1))
    admitted(plan, tokens=4000)
    run(plan)
    short = plan.submit(work_of(20, 1))
    admitted(plan, tokens=20)
    run(plan)
    assert plan.phase(short) is Phase.WRITING


# The order of waiting.


def test_a_short_query_is_not_behind_long_ones() -> None:
    plan = planner(sequences=1)
    for _ in range(3):
        plan.submit(5000)
    short = plan.submit(100)
    assert admitted(plan).ticket == short


def test_equal_queries_are_admitted_in_order_of_arrival() -> None:
    plan = planner()
    tickets = [plan.submit(100) for _ in range(4)]
    assert [admitted(plan).ticket for _ in range(4)] == tickets


def test_a_long_query_is_not_starved_by_short_ones() -> None:
    plan = planner(sequences=1)
    running = plan.submit(1)
    admitted(plan, tokens=1)
    run(plan)
    long = plan.submit(1000)
    passed = 0
    while True:
        plan.submit(work_of(0, 10))
        for _ in range(10):
            run(plan)
        sequence = plan.retire(running)
        assert sequence is not None
        plan.erased(sequence)
        running = admitted(plan, tokens=1).ticket
        if running == long:
            break
        run(plan)
        passed += 1
    # Each of them is worth 80; what was written since its arrival counts.
    assert passed <= 1000 // 80 + 1


def test_the_queue_is_bounded() -> None:
    plan = planner(sequences=1, waiting=2)
    plan.submit(1)
    plan.submit(1)
    with pytest.raises(EngineBusyError):
        plan.submit(1)


@pytest.mark.parametrize("sequences", [0, PREFILL_CHUNK + 1])
def test_an_impossible_number_of_sequences_is_refused(sequences: int) -> None:
    with pytest.raises(ValueError, match="sequences"):
        planner(sequences=sequences)


# Giving way.


def test_a_running_query_gives_way_only_to_one_that_would_come_first() -> None:
    plan = planner(sequences=1)
    long = plan.submit(1)
    admitted(plan, tokens=1)
    run(plan)
    assert not plan.must_give_way(100)
    waiting = plan.submit(500)
    assert not plan.must_give_way(100)
    for _ in range(60):
        run(plan)
    assert plan.must_give_way(100)
    plan.erased(plan.give_way(long, 100))
    assert admitted(plan).ticket == waiting


def test_none_gives_way_while_a_sequence_is_free() -> None:
    plan = planner(sequences=2)
    first = plan.submit(100)
    admitted(plan)
    plan.submit(0)
    assert not plan.must_give_way(100)
    assert plan.admit() is not None
    plan.submit(0)
    assert plan.must_give_way(100)
    plan.give_way(first, 100)
    # The sequence that is being erased is for the one that waits.
    assert not plan.must_give_way(100)


def test_one_that_must_be_alone_is_given_way_to_by_all() -> None:
    plan = planner()
    plan.submit(100)
    admitted(plan)
    plan.submit(0, alone=True)
    assert plan.must_give_way(100)


def test_one_that_is_alone_gives_way_though_sequences_are_free() -> None:
    plan = planner()
    plan.submit(0, alone=True)
    admitted(plan)
    plan.submit(0)
    assert plan.must_give_way(100)


def test_one_that_continues_does_not_wait_for_a_long_prompt() -> None:
    plan = planner()
    plan.submit(0)
    admitted(plan, tokens=4000)
    again = plan.submit(5000)
    admitted(plan, tokens=300, held=299)
    run(plan)
    assert plan.phase(again) is Phase.WRITING


def test_of_equal_ones_that_gave_way_comes_last() -> None:
    plan = planner(sequences=1)
    first = plan.submit(100)
    admitted(plan)
    second = plan.submit(100)
    assert plan.must_give_way(100)
    plan.erased(plan.give_way(first, 100))
    assert admitted(plan).ticket == second


def test_the_one_that_gives_way_may_exceed_the_queue() -> None:
    plan = planner(sequences=1, waiting=1)
    first = plan.submit(100)
    admitted(plan)
    plan.submit(100)
    plan.give_way(first, 100)
    assert plan.waiting == 2


# Alone.


def test_one_that_must_be_alone_waits_for_the_others_and_lets_none_pass() -> None:
    plan = planner()
    (other,) = writing(plan, 1)
    alone = plan.submit(1, alone=True)
    later = plan.submit(1)
    assert plan.admit() is None
    sequence = plan.retire(other)
    assert sequence is not None
    plan.erased(sequence)
    assert admitted(plan).ticket == alone
    assert plan.admit() is None
    sequence = plan.retire(alone)
    assert sequence is not None
    plan.erased(sequence)
    assert admitted(plan).ticket == later


# What must not happen.


def test_a_sequence_is_not_used_before_it_was_erased() -> None:
    plan = planner(sequences=1)
    plan.submit(1)
    sequence = plan.retire(admitted(plan).ticket)
    plan.submit(1)
    assert plan.admit() is None
    assert sequence == 0
    plan.erased(sequence)
    assert admitted(plan).sequence == 0
    with pytest.raises(KeyError):
        plan.erased(sequence)


@pytest.mark.parametrize(("tokens", "held"), [(0, 0), (5, 5), (5, -1)])
def test_a_query_without_anything_to_read_does_not_begin(
    tokens: int, held: int
) -> None:
    plan = planner()
    plan.submit(1)
    admission = plan.admit()
    assert admission is not None
    with pytest.raises(ValueError, match="begin"):
        plan.begin(admission.ticket, tokens=tokens, held=held)


def test_a_query_begins_once() -> None:
    plan = planner()
    plan.submit(1)
    ticket = admitted(plan).ticket
    with pytest.raises(ValueError, match="begin"):
        plan.begin(ticket, tokens=10)


def test_a_piece_is_noted_once() -> None:
    plan = planner()
    plan.submit(1)
    admitted(plan)
    ((piece,),) = run(plan).decodes
    with pytest.raises(ValueError, match="next"):
        plan.note(piece)


class Interleavings(RuleBasedStateMachine):
    """Every operation in any order, next to a model of the context."""

    def __init__(self) -> None:
        super().__init__()
        self.cells: dict[int, tuple[int, int]] = {}
        """What each sequence holds: a ticket, and how many of its tokens."""
        self.dirty: set[int] = set()
        self.alone: set[int] = set()
        self.ended: Counter[int] = Counter()
        self.submitted: set[int] = set()
        self.work = 0
        self.arrived: dict[int, tuple[int, int]] = {}
        """When each waiting one came, in work done, and its cost."""

    @initialize(
        sequences=st.integers(1, 6),
        waiting=st.integers(1, 8),
        costs=st.lists(st.floats(0.1, 9), max_size=6),
    )
    def make(self, sequences: int, waiting: int, costs: list[float]) -> None:
        self.sequences, self.room = sequences, waiting
        self.plan = planner(sequences, waiting, tuple(costs))

    @rule(cost=st.integers(0, 3000), alone=st.sampled_from([False, False, False, True]))
    def submit(self, cost: int, alone: bool) -> None:
        if self.plan.waiting >= self.room:
            with pytest.raises(EngineBusyError):
                self.plan.submit(cost, alone=alone)
            return
        ticket = self.plan.submit(cost, alone=alone)
        assert ticket not in self.submitted
        self.submitted.add(ticket)
        self.arrived[ticket] = self.work, cost
        if alone:
            self.alone.add(ticket)

    @rule(tokens=st.integers(1, 400), held=st.integers(0, 400))
    def admit(self, tokens: int, held: int) -> None:
        running = self.plan.running
        admission = self.plan.admit()
        if admission is None:
            # Only for a reason: else a query could wait for ever.
            assert (
                not self.plan.waiting
                or running + len(self.dirty) == self.sequences
                or (running and self.alone)
            )
            return
        ticket, sequence = admission.ticket, admission.sequence
        assert 0 <= sequence < self.sequences
        assert sequence not in self.cells
        assert sequence not in self.dirty
        came, _ = self.arrived.pop(ticket)
        for other, (earlier, cost) in self.arrived.items():
            if earlier < came:
                # It was passed, so the newcomer came before its cost was worked off.
                assert came < earlier + cost, (ticket, other)
        held = min(held, tokens - 1)
        self.plan.begin(ticket, tokens=tokens, held=held)
        self.cells[sequence] = ticket, held

    @precondition(lambda self: self.cells)
    @rule(ends=st.sets(st.integers(1, 30)))
    def step(self, ends: set[int]) -> None:
        step = self.plan.plan()
        self._check(step)
        for piece in [each for pieces in step.decodes for each in pieces]:
            self._decode(piece)
        for ticket, _ in list(self.cells.values()):
            if ticket in ends and self.plan.phase(ticket) is Phase.WRITING:
                self._retire(ticket)

    def _check(self, step: Step) -> None:
        for pieces in step.decodes:
            assert 1 <= sum(piece.count for piece in pieces) <= PREFILL_CHUNK
            numbers = [piece.sequence for piece in pieces]
            assert all(a < b for a, b in pairwise(numbers))
        seen = [piece for pieces in step.decodes for piece in pieces]
        assert seen
        assert len({piece.sequence for piece in seen}) == len(seen)
        # Each that writes goes on in every step; prompts wait for room.
        writers = {
            ticket
            for ticket, _ in self.cells.values()
            if self.plan.phase(ticket) is Phase.WRITING
        }
        assert writers <= {piece.ticket for piece in seen}
        if self.alone & {piece.ticket for piece in seen}:
            assert len(seen) == 1

    def _decode(self, piece: Piece) -> None:
        ticket, position = self.cells[piece.sequence]
        assert (piece.ticket, piece.start) == (ticket, position)
        reading = self.plan.phase(ticket) is Phase.READING
        assert reading or piece.count == 1
        self.work += work_of(piece.count, 0) if reading else work_of(0, 1)
        self.plan.note(piece)
        self.cells[piece.sequence] = ticket, position + piece.count
        assert piece.sampled is (self.plan.phase(ticket) is Phase.WRITING)

    @precondition(lambda self: self.submitted)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        if tickets := self.plan.tickets:
            self._retire(data.draw(st.sampled_from(tickets)))

    @precondition(lambda self: self.cells)
    @rule(data=st.data(), cost=st.integers(0, 3000))
    def give_way(self, data: st.DataObject, cost: int) -> None:
        sequence = data.draw(st.sampled_from(sorted(self.cells)))
        ticket, _ = self.cells.pop(sequence)
        assert self.plan.give_way(ticket, cost) == sequence
        self.dirty.add(sequence)
        self.arrived[ticket] = self.work, cost

    @precondition(lambda self: self.dirty)
    @rule(data=st.data())
    def erase(self, data: st.DataObject) -> None:
        sequence = data.draw(st.sampled_from(sorted(self.dirty)))
        self.dirty.remove(sequence)
        self.plan.erased(sequence)

    @invariant()
    def every_query_is_somewhere_once(self) -> None:
        if not self.submitted:
            return
        alive = self.plan.tickets
        assert len(set(alive)) == len(alive)
        assert set(alive) | set(self.ended) == self.submitted
        assert not set(alive) & set(self.ended)
        assert all(count == 1 for count in self.ended.values())
        assert {ticket for ticket, _ in self.cells.values()} <= set(alive)
        assert self.plan.running == len(self.cells)
        if self.alone & {ticket for ticket, _ in self.cells.values()}:
            assert len(self.cells) == 1

    @override
    def teardown(self) -> None:
        """Let everything end: nothing is stuck, and no sequence is lost."""
        if not self.submitted:
            return
        for _ in range(10_000):
            self._finish_one_step()
            if not self.plan.tickets:
                break
        assert set(self.ended) == self.submitted
        assert (self.plan.running, self.plan.waiting) == (0, 0)
        for sequence in self.dirty:
            self.plan.erased(sequence)
        for _ in range(min(self.sequences, self.room)):
            self.plan.submit(1)
        used = {admitted(self.plan).sequence for _ in range(self.plan.waiting)}
        assert used == set(range(min(self.sequences, self.room)))

    def _finish_one_step(self) -> None:
        for sequence in self.dirty:
            self.plan.erased(sequence)
        self.dirty.clear()
        while (admission := self.plan.admit()) is not None:
            self.plan.begin(admission.ticket, tokens=3)
            self.cells[admission.sequence] = admission.ticket, 0
            self.arrived.pop(admission.ticket)
        for pieces in self.plan.plan().decodes:
            for piece in pieces:
                self.plan.note(piece)
                if piece.sampled:
                    self._retire(piece.ticket)

    def _retire(self, ticket: int) -> None:
        waited = self.plan.phase(ticket) is Phase.WAITING
        sequence = self.plan.retire(ticket)
        self.ended[ticket] += 1
        self.alone.discard(ticket)
        assert self.plan.phase(ticket) is None
        assert (sequence is None) == waited
        if sequence is None:
            del self.arrived[ticket]
        else:
            assert self.cells.pop(sequence)[0] == ticket
            self.dirty.add(sequence)


TestInterleavings = Interleavings.TestCase
TestInterleavings.settings = settings(
    deadline=None, max_examples=60, stateful_step_count=60
)
