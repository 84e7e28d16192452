# pyright: reportPrivateUsage=false
# Which ones are light is looked at here: only those always have a place.
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
    TURN_TOKENS,
    TURN_WORK,
    Phase,
    Piece,
    Step,
    split,
    work_of,
)
from curtilage.inference.errors import EngineBusyError
from curtilage.inference.planner import Admission, Pause, Planner

# Measured with one thread: two or three are faster one after the other.
MEASURED = (8.2, 26.0, 31.0, 32.0, 38.0, 43.0, 44.0, 45.0)


LONG = 20_000


def planner(
    sequences: int = 4,
    waiting: int = 64,
    costs: tuple[float, ...] = (),
    room: int = 0,
) -> Planner:
    plan = Planner(sequences=sequences, max_waiting=waiting, costs=costs)
    plan.room = room
    return plan


def admitted(plan: Planner, tokens: int = 10, held: int = 0) -> Admission:
    admission = plan.admit()
    assert admission is not None
    assert plan.begin(admission.ticket, tokens=tokens, held=held)
    return admission


def reading(plan: Planner, tokens: int = LONG, write: int = 500) -> int:
    """Bring a new query to where it reads its prompt."""
    ticket = plan.submit(tokens, write)
    assert admitted(plan, tokens=tokens).ticket == ticket
    return ticket


def pause(plan: Planner, *over: int) -> Pause:
    """Let the next one give way, and erase its sequence."""
    found = plan.pause(over)
    assert found is not None
    assert plan.give_way(found.ticket, saved=found.saved) == found.sequence
    plan.erased(found.sequence)
    return found


def run(plan: Planner) -> Step:
    step = plan.plan()
    for pieces in step.decodes:
        for piece in pieces:
            plan.note(piece)
    return step


def writing(plan: Planner, count: int, left: int = 0) -> list[int]:
    """Bring so many new queries to where they write."""
    tickets = [plan.submit(1, left) for _ in range(count)]
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
        plan.submit(1500)
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
    # Each of them is worth 80; what was written since its arrival counts. Of two that
    # are admitted one may be shorter.
    assert passed <= 1000 // 80 + 2


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


def test_the_shortest_has_every_second_admission() -> None:
    plan = planner(sequences=1)
    running = plan.submit(0)
    admitted(plan, tokens=9000)
    for _ in range(8):
        plan.submit(1000)
    for _ in range(9000 // PREFILL_CHUNK + 1):
        run(plan)
    # All of them are due by now, and no short one is.
    shorts: set[int] = set()
    order: list[bool] = []
    for _ in range(8):
        shorts.add(plan.submit(100))
        plan.erased(plan.retire(running) or 0)
        running = admitted(plan).ticket
        order.append(running in shorts)
    assert order == [order[0], not order[0]] * 4


def test_half_of_what_is_read_is_of_the_shortest_prompt() -> None:
    plan = planner(sequences=3)
    long = reading(plan)
    for _ in range(LONG // PREFILL_CHUNK - 20):
        run(plan)
    plan.submit(10_000)
    short = admitted(plan, tokens=200).ticket
    (pieces,) = run(plan).decodes
    # The long one is due, and so it has the rest.
    assert {piece.ticket: piece.count for piece in pieces} == {
        long: PREFILL_CHUNK // 2,
        short: PREFILL_CHUNK // 2,
    }


# Giving way.


def test_a_running_query_gives_way_only_to_one_that_would_come_first() -> None:
    plan = planner(sequences=1)
    long = plan.submit(1, 5000)
    admitted(plan, tokens=1)
    run(plan)
    assert plan.pause({long}) is None
    waiting = plan.submit(500, 5000)
    assert plan.pause({long}) is None
    for _ in range(60):
        run(plan)
    assert plan.pause(()) is None
    assert pause(plan, long).ticket == long
    assert admitted(plan).ticket == waiting


def test_a_shorter_one_is_given_way_to_at_once() -> None:
    plan = planner(sequences=1)
    (long,) = writing(plan, 1, left=5000)
    short = plan.submit(10, 20)
    assert pause(plan, long).ticket == long
    assert admitted(plan).ticket == short


def test_none_gives_way_while_a_sequence_is_free() -> None:
    plan = planner(sequences=2)
    first = plan.submit(100)
    admitted(plan)
    plan.submit(0)
    assert plan.pause({first}) is None
    assert plan.admit() is not None
    plan.submit(0)
    found = plan.pause({first})
    assert found is not None
    plan.give_way(first, saved=False)
    # The sequence that is being erased is for the one that waits.
    assert plan.pause({first}) is None


def test_of_equal_ones_that_gave_way_comes_last() -> None:
    plan = planner(sequences=1)
    first = plan.submit(10, 500)
    admitted(plan)
    second = plan.submit(10, 500)
    run(plan)
    assert pause(plan, first).ticket == first
    assert admitted(plan).ticket == second


def test_the_one_that_gives_way_may_exceed_the_queue() -> None:
    plan = planner(sequences=1, waiting=1)
    plan.submit(100)
    first = admitted(plan).ticket
    plan.submit(1)
    pause(plan, first)
    assert plan.waiting == 2


def test_a_prompt_gives_way_while_it_is_read_and_goes_on_where_it_was() -> None:
    plan = planner(sequences=1, room=32_768)
    long = reading(plan)
    run(plan)
    run(plan)
    short = plan.submit(10, 20)
    found = pause(plan, long)
    assert found == Pause(ticket=long, sequence=0, saved=True)
    assert admitted(plan).ticket == short
    plan.erased(plan.retire(short) or 0)
    held = 2 * PREFILL_CHUNK
    assert admitted(plan, tokens=LONG, held=held).ticket == long
    ((piece,),) = plan.plan().decodes
    assert (piece.start, piece.count) == (held, PREFILL_CHUNK)


def test_a_prompt_that_gave_way_keeps_its_place() -> None:
    plan = planner(sequences=2, room=32_768)
    writing(plan, 1, left=9000)
    plan.chunk = 16
    long = reading(plan)
    for _ in range(600):
        run(plan)
    # Shorter than what is left, and later. It must not pass because others had turns.
    later = plan.submit(9000, 500)
    plan.submit(10, 20)
    pause(plan, long)
    plan.submit(1, 1)
    for _ in range(2):
        plan.erased(plan.retire(admitted(plan).ticket) or 0)
    assert plan.phase(later) is Phase.WAITING
    assert admitted(plan, tokens=LONG, held=600 * 16).ticket == long


def test_what_can_be_saved_is_not_lost_to_let_another_pass() -> None:
    plan = planner(sequences=1, room=32_768)
    running = reading(plan, 200, write=5000)
    run(plan)
    run(plan)
    # Longer than what is left of the running one, but not than all of it.
    plan.submit(100, 500)
    assert plan.phase(running) is Phase.WRITING
    assert plan.pause({running}) is None


def test_what_cannot_be_saved_is_not_lost_before_enough_was_written() -> None:
    plan = planner(sequences=1)
    long = reading(plan, write=5000)
    plan.submit(10, 20)
    while plan.phase(long) is Phase.READING:
        # Without anything in its sequence it may.
        assert (plan.pause({long}) is None) is (run(plan).decodes[0][0].start > 0)
    wrote = 1
    while plan.pause({long}) is None:
        run(plan)
        wrote += 1
    # Half of the work that its return takes.
    assert wrote == -(-(LONG + wrote - 1) // 16)
    assert pause(plan, long) == Pause(ticket=long, sequence=0, saved=False)


def test_a_light_prompt_is_lost_once_at_most() -> None:
    plan = planner(sequences=1)
    light = reading(plan, TURN_WORK - 500, write=500)
    for again in (False, True):
        run(plan)
        short = plan.submit(10, 20)
        if again:
            assert plan.pause({light}) is None
            break
        assert pause(plan, light) == Pause(ticket=light, sequence=0, saved=False)
        plan.erased(plan.retire(admitted(plan).ticket) or 0)
        assert plan.phase(short) is None
        assert admitted(plan, tokens=TURN_WORK - 500).ticket == light


def test_no_more_is_saved_than_there_is_room_for() -> None:
    plan = planner(sequences=2, room=LONG + TURN_TOKENS)
    both = [reading(plan), reading(plan)]
    run(plan)
    plan.submit(10, 20)
    plan.submit(10, 20)
    # The other one had nothing read.
    assert pause(plan, *both) == Pause(ticket=both[1], sequence=1, saved=False)
    admitted(plan)
    assert pause(plan, *both) == Pause(ticket=both[0], sequence=0, saved=True)
    plan = planner(sequences=2, room=LONG + TURN_TOKENS - 1)
    first = reading(plan)
    run(plan)
    admitted_short = plan.submit(10, 20)
    admitted(plan)
    plan.submit(10, 20)
    assert plan.pause({first}) is None
    assert plan.phase(admitted_short) is Phase.READING


def test_a_prompt_that_waits_to_be_read_gives_way_first() -> None:
    plan = planner(sequences=3, room=LONG + TURN_TOKENS)
    tickets = [reading(plan) for _ in range(3)]
    run(plan)
    plan.submit(10, 20)
    assert pause(plan, *tickets).ticket == tickets[1]


def test_of_those_that_hold_something_the_first_admitted_gives_way() -> None:
    plan = planner(sequences=2, room=32_768)
    tickets = writing(plan, 2, left=5000)
    plan.submit(1, 1)
    assert pause(plan, *reversed(tickets)).ticket == tickets[0]


# The last sequence.


def test_the_last_sequence_is_for_one_that_leaves_another_a_chance() -> None:
    plan = planner(sequences=2)
    reading(plan)
    long = plan.submit(LONG, 500)
    assert plan.admit() is None
    short = plan.submit(10, 20)
    assert admitted(plan).ticket == short
    assert plan.phase(long) is Phase.WAITING


def test_a_long_one_has_the_last_sequence_if_one_of_them_could_be_saved() -> None:
    plan = planner(sequences=2, room=LONG + TURN_TOKENS)
    reading(plan)
    long = plan.submit(LONG, 500)
    assert admitted(plan, tokens=LONG).ticket == long


def test_what_was_saved_can_always_go_on() -> None:
    plan = planner(sequences=1, room=LONG + TURN_TOKENS)
    first = reading(plan)
    run(plan)
    plan.submit(10, 20)
    pause(plan, first)
    short = admitted(plan).ticket
    # It would fill the room, and none of both could continue then.
    plan.submit(5000, 500)
    plan.erased(plan.retire(short) or 0)
    assert admitted(plan, tokens=LONG, held=PREFILL_CHUNK).ticket == first


def test_one_that_is_longer_than_estimated_waits_once_more() -> None:
    plan = planner(sequences=2)
    reading(plan)
    dense = plan.submit(TURN_WORK // 8, 1)
    admission = plan.admit()
    assert admission == Admission(ticket=dense, sequence=1)
    assert not plan.begin(dense, tokens=LONG)
    assert plan.phase(dense) is Phase.WAITING
    assert plan.admit() is None
    assert plan._waiting[dense].due == LONG + work_of(0, 1)
    short = plan.submit(10, 20)
    assert admitted(plan).ticket == short


def test_one_that_nobody_waits_for_begins_whatever_its_length() -> None:
    plan = planner(sequences=1)
    plan.submit(1)
    assert admitted(plan, tokens=LONG).sequence == 0


# Alone.


def due_alone(plan: Planner, read: int = 0, write: int = 1) -> int:
    """Let one wait that must be alone until it is due."""
    alone = plan.submit(read, write, alone=True)
    while plan._work < plan._waiting[alone].due:
        run(plan)
    return alone


def test_one_that_must_be_alone_is_given_way_to_by_all() -> None:
    plan = planner(room=32_768)
    tickets = writing(plan, 3, left=9000)
    alone = due_alone(plan)
    assert {pause(plan, *tickets).ticket for _ in tickets} == set(tickets)
    assert admitted(plan).ticket == alone
    assert plan.admit() is None


def test_one_that_must_be_alone_counts_as_one_in_each_sequence() -> None:
    plan = planner(room=32_768)
    (other,) = writing(plan, 1, left=9000)
    before = plan._work
    alone = due_alone(plan, 10, 20)
    # However short: it interrupts all others for a turn.
    assert plan._work - before >= plan.sequences * (work_of(10, 20) + TURN_WORK)
    pause(plan, other)
    assert admitted(plan).ticket == alone
    run(plan)
    plan.submit(10, 20)
    pause(plan, alone)
    assert plan._waiting[alone].due == plan._work + plan.sequences * TURN_WORK


def test_others_are_admitted_until_all_can_give_way() -> None:
    plan = planner(room=LONG + 2000)
    both = [reading(plan, write=9000), reading(plan, write=9000)]
    while Phase.READING in {plan.phase(each) for each in both}:
        run(plan)
    alone = due_alone(plan)
    # They cannot both be saved, and have not written enough to be read again.
    assert plan.pause(both) is None
    short = plan.submit(10, 20)
    assert admitted(plan).ticket == short
    # Another long one would keep it waiting.
    long = plan.submit(LONG, 500)
    assert plan.admit() is None
    for ticket in (short, both[0]):
        plan.erased(plan.retire(ticket) or 0)
    assert pause(plan, *both).ticket == both[1]
    assert admitted(plan).ticket == alone
    assert plan.phase(long) is Phase.WAITING


def test_none_is_admitted_once_all_can_give_way() -> None:
    plan = planner(room=32_768)
    tickets = writing(plan, 2, left=9000)
    alone = due_alone(plan)
    plan.submit(10, 20)
    assert pause(plan, tickets[0]).ticket == tickets[0]
    # The other one's turn is not over.
    assert plan.pause(()) is None
    assert plan.admit() is None
    assert pause(plan, tickets[1]).ticket == tickets[1]
    assert admitted(plan).ticket == alone


def test_one_that_must_be_alone_does_not_stop_a_shorter_one_before_it() -> None:
    plan = planner(sequences=2, room=32_768)
    tickets = writing(plan, 2, left=9000)
    alone = due_alone(plan)
    plan._shortest = True
    short = plan.submit(10, 20)
    assert plan.pause(()) is None
    assert pause(plan, *tickets).saved
    assert admitted(plan).ticket == short
    # And then it is its turn.
    assert plan.pause(()) is None
    plan.erased(plan.retire(short) or 0)
    assert plan.admit() is None
    assert plan._next == alone


def test_what_was_written_alone_is_read_as_it_was_written() -> None:
    plan = planner(sequences=2)
    alone = plan.submit(300, 2000, alone=True)
    admitted(plan, tokens=300)
    first = [run(plan).decodes for _ in range(40)]
    assert [pieces[0].count for (pieces,) in first] == [128, 128, 44] + 37 * [1]
    short = plan.submit(10, 20)
    assert pause(plan, alone) == Pause(ticket=alone, sequence=0, saved=False)
    plan.erased(plan.retire(admitted(plan).ticket) or 0)
    assert plan.phase(short) is None
    # What was drawn last was not read yet.
    assert admitted(plan, tokens=338).ticket == alone
    again = [run(plan).decodes for _ in range(41)]
    assert [
        [(each.start, each.count) for each in pieces] for (pieces,) in again[:40]
    ] == [[(each.start, each.count) for each in pieces] for (pieces,) in first]
    assert [pieces[0].sampled for (pieces,) in again] == 40 * [False] + [True]


def test_one_that_is_alone_is_lost_only_if_it_has_written_as_much_again() -> None:
    plan = planner(sequences=2)
    alone = plan.submit(10, 5000, alone=True)
    size, wrote = 10, [0]
    admitted(plan, tokens=size)
    for _ in range(4):
        short = plan.submit(1, 1)
        while (found := plan.pause({alone})) is None:
            run(plan)
        wrote.append(plan._running[alone].wrote)
        size = plan._running[alone].end
        plan.erased(plan.give_way(alone, saved=found.saved))
        plan.erased(plan.retire(admitted(plan).ticket) or 0)
        assert plan.phase(short) is None
        assert admitted(plan, tokens=size).ticket == alone
        run(plan)
    assert all(after >= before for before, after in pairwise(wrote[2:]))
    assert wrote[-1] >= sum(wrote[:-1]) - 1


def test_one_that_is_alone_gives_way_though_sequences_are_free() -> None:
    plan = planner()
    alone = plan.submit(100, alone=True)
    admitted(plan)
    plan.submit(0)
    assert pause(plan, alone).ticket == alone


def test_one_that_continues_does_not_wait_for_a_long_prompt() -> None:
    plan = planner()
    plan.submit(0)
    admitted(plan, tokens=4000)
    again = plan.submit(5000)
    admitted(plan, tokens=300, held=299)
    run(plan)
    assert plan.phase(again) is Phase.WRITING


def test_one_that_must_be_alone_waits_for_the_others_and_they_for_it() -> None:
    plan = planner()
    (other,) = writing(plan, 1)
    alone = plan.submit(1, alone=True)
    assert plan.admit() is None
    plan.erased(plan.retire(other) or 0)
    assert admitted(plan).ticket == alone
    later = plan.submit(1)
    assert plan.admit() is None
    plan.erased(plan.retire(alone) or 0)
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
        self.gave: set[int] = set()
        """Those that gave way."""
        self.may_pass = True
        """Whether the next one admitted may pass one that is due."""
        self.saved: dict[int, int] = {}
        """Of how many tokens each waiting one has a copy."""

    @initialize(
        sequences=st.integers(1, 6),
        waiting=st.integers(1, 8),
        costs=st.lists(st.floats(0.1, 9), max_size=6),
        kept=st.integers(0, 9000),
    )
    def make(self, sequences: int, waiting: int, costs: list[float], kept: int) -> None:
        self.sequences, self.room = sequences, waiting
        self.plan = planner(sequences, waiting, tuple(costs), kept)

    @rule(
        read=st.integers(0, 3000),
        write=st.integers(0, 300),
        alone=st.sampled_from([False, False, False, True]),
    )
    def submit(self, read: int, write: int, alone: bool) -> None:
        if self.plan.waiting >= self.room:
            with pytest.raises(EngineBusyError):
                self.plan.submit(read, write, alone=alone)
            return
        ticket = self.plan.submit(read, write, alone=alone)
        assert ticket not in self.submitted
        self.submitted.add(ticket)
        self.arrived[ticket] = self.work, work_of(read, min(write, TURN_TOKENS))
        if alone:
            self.alone.add(ticket)

    @rule(tokens=st.integers(1, 400))
    def admit(self, tokens: int) -> None:
        running = self.plan.running
        admission = self.plan.admit()
        if admission is None:
            # Only for a reason: else a query could wait for ever.
            vacant = self.sequences - running - len(self.dirty)
            assert (
                not self.plan.waiting
                or not vacant
                or (running and self.alone)
                or (
                    # The last one is for those that can give way soon.
                    vacant + len(self.dirty) == 1
                    and not any(each.is_light for each in self.plan._waiting.values())
                )
            )
            return
        self._admitted(admission, tokens)

    def _admitted(self, admission: Admission, tokens: int) -> None:
        ticket, sequence = admission.ticket, admission.sequence
        assert 0 <= sequence < self.sequences
        assert sequence not in self.cells
        assert sequence not in self.dirty
        held = self.saved.get(ticket, 0)
        if not self.plan.begin(ticket, tokens=held + tokens, held=held):
            assert self.plan.phase(ticket) is Phase.WAITING
            return
        self.saved.pop(ticket, None)
        came, _ = self.arrived.pop(ticket)
        self.cells[sequence] = ticket, held
        passed = ticket not in self.gave and any(
            earlier + cost <= came and self.plan._waiting[other].is_light
            for other, (earlier, cost) in self.arrived.items()
            if other not in self.gave | self.alone
        )
        # Every second one comes because it is short, the others when they are due.
        assert self.may_pass or not passed
        self.may_pass = not passed

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
    @rule(data=st.data())
    def give_way(self, data: st.DataObject) -> None:
        over = data.draw(
            st.sets(st.sampled_from([each for each, _ in self.cells.values()]))
        )
        waited = self.plan.waiting
        while (found := self.plan.pause(over)) is not None:
            assert waited
            assert found.ticket in over
            ticket, position = self.cells.pop(found.sequence)
            assert found.ticket == ticket
            assert self.plan.give_way(ticket, saved=found.saved) == found.sequence
            self.dirty.add(found.sequence)
            self.arrived[ticket] = self.work, 0
            self.gave.add(ticket)
            self.may_pass = True
            if found.saved:
                self.saved[ticket] = position
            over.remove(ticket)

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
        assert sum(self.saved.values()) <= self.plan._reserved <= self.plan.room

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
            self._admitted(admission, 3)
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
            self.saved.pop(ticket, None)
        else:
            assert self.cells.pop(sequence)[0] == ticket
            self.dirty.add(sequence)


TestInterleavings = Interleavings.TestCase
TestInterleavings.settings = settings(
    deadline=None, max_examples=60, stateful_step_count=60
)
