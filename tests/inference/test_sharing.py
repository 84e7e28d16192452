"""What many long prompts and answers leave to a short question.

First the planner alone, with any requests at any time; then the engine, with a context
that takes as long as a small model's on two cores.
"""

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curtilage.inference import engine as engine_module
from curtilage.inference.batch import Phase, work_of
from curtilage.inference.planner import Planner
from support.stepped_engine import Asked, stepped

ROOM = 32_768


@dataclass(slots=True)
class Query:
    """One query of ``Played``.

    Attributes:
        tokens: of all that was read and written.
        left: how many it may still write.
        position: how many tokens its sequence holds.
        saved: how many are saved.
        began: the step since which it reads, or writes.
        first: the step of its first token.
        ended: of its last one.
    """

    tokens: int
    left: int
    position: int = 0
    saved: int = 0
    began: int = -1
    first: int = 0
    ended: int = 0


@dataclass(slots=True)
class Played:
    """The planner, driven as the engine drives it; a turn is a number of steps."""

    plan: Planner
    turn: int
    steps: int = 0
    work: int = 0
    queries: dict[int, Query] = field(default_factory=dict[int, Query])

    def ask(
        self, tokens: int, left: int, *, about: float = 1.0, alone: bool = False
    ) -> Query:
        ticket = self.plan.submit(int(tokens * about), left, alone=alone)
        self.queries[ticket] = query = Query(tokens, left)
        return query

    def step(self) -> None:
        self.steps += 1
        self._give_way()
        while (admission := self.plan.admit()) is not None:
            query = self.queries[admission.ticket]
            if self.plan.begin(admission.ticket, tokens=query.tokens, held=query.saved):
                query.position, query.saved = query.saved, 0
                query.began = self.steps
        for piece in [each for one in self.plan.plan().decodes for each in one]:
            reads = self.plan.phase(piece.ticket) is Phase.READING
            self.work += work_of(piece.count, 0) if reads else work_of(0, 1)
            self.plan.note(piece)
            self.queries[piece.ticket].position += piece.count
            if piece.sampled:
                self._wrote(piece.ticket, reads=reads)

    def _wrote(self, ticket: int, *, reads: bool) -> None:
        query = self.queries[ticket]
        query.tokens += 1
        query.left -= 1
        query.first = query.first or self.steps
        if reads:
            query.began = self.steps
        if not query.left:
            sequence = self.plan.retire(ticket)
            assert sequence is not None
            self.plan.erased(sequence)
            query.ended = self.steps

    def _give_way(self) -> None:
        over = {
            ticket
            for ticket, query in self.queries.items()
            if self.plan.phase(ticket) in {Phase.READING, Phase.WRITING}
            and self.steps - query.began >= self.turn
        }
        while (pause := self.plan.pause(over)) is not None:
            over.remove(pause.ticket)
            query = self.queries[pause.ticket]
            query.saved = query.position if pause.saved else 0
            self.plan.erased(self.plan.give_way(pause.ticket, saved=pause.saved))
            assert sum(each.saved for each in self.queries.values()) <= self.plan.room


def played(sequences: int, turn: int, *, waiting: int = 64) -> Played:
    plan = Planner(sequences=sequences, max_waiting=waiting)
    plan.room = ROOM
    return Played(plan, turn)


# The planner.


@settings(deadline=None, max_examples=60)
@given(
    sequences=st.integers(1, 4),
    turn=st.integers(1, 8),
    longs=st.lists(
        st.tuples(
            st.integers(2_100, 32_000),
            st.integers(1, 300),
            st.sampled_from([0.25, 1.0, 2.0]),
            st.sampled_from([False, False, True]),
            st.integers(0, 60),
        ),
        max_size=12,
    ),
    before=st.integers(0, 400),
    tokens=st.integers(1, 20),
)
def test_a_short_question_begins_soon_however_many_long_ones_there_are(
    sequences: int,
    turn: int,
    longs: list[tuple[int, int, float, bool, int]],
    before: int,
    tokens: int,
) -> None:
    run = played(sequences, turn)
    for read, write, about, alone, pause in longs:
        run.ask(read, write, about=about, alone=alone)
        for _ in range(pause):
            run.step()
    for _ in range(before):
        run.step()
    short, asked = run.ask(tokens, 1), run.steps
    # Not by the length of a prompt: one of 32,000 tokens takes 250 steps.
    most = 2 * turn * (len(longs) + 2) + 20
    while not short.first:
        run.step()
        assert run.steps - asked <= most


@pytest.mark.parametrize("sequences", [1, 2, 4])
def test_long_ones_are_answered_however_many_short_ones_come(sequences: int) -> None:
    run = played(sequences, turn=4)
    longs = [run.ask(12_000, 100) for _ in range(4)]
    shorts: list[Query] = []
    while not all(each.ended for each in longs):
        while sum(not each.ended for each in shorts) < 2 * sequences:
            shorts.append(run.ask(50, 30))
        run.step()
        assert run.steps < 6_000
    # Nothing is read again and again.
    done = sum(work_of(50, 30) for each in shorts if each.ended)
    needed = sum(work_of(12_000, 100) for _ in longs) + done
    assert run.work < 1.5 * needed + 2 * sequences * work_of(50, 30)


@pytest.mark.parametrize("sequences", [1, 2, 4])
def test_long_answers_that_cannot_all_be_saved_end(sequences: int) -> None:
    run = played(sequences, turn=2)
    longs = [run.ask(16_000, 2_000) for _ in range(2 * sequences + 1)]
    while not all(each.ended for each in longs):
        run.step()
        assert run.steps < 40_000
    needed = len(longs) * work_of(16_000, 2_000)
    assert run.work < 3 * needed


# The engine.


@pytest.mark.parametrize("since_s", [1, 30, 70, 130, 250, 310])
def test_long_prompts_of_one_person_leave_others_their_answers(since_s: int) -> None:
    with stepped(sequences=4, size=ROOM) as steps:
        # 60 s to read for each; and then the longest answers.
        longs = [steps.ask(30_000, 2_500) for _ in range(4)]
        steps.until(lambda: steps.now_s >= since_s, within_s=since_s + 1)
        assert steps.answer(steps.ask(40, 20), within_s=20) < 5
        assert not any(each.ends for each in longs)


def test_each_of_many_questions_is_answered_beside_long_prompts() -> None:
    waits_s: list[float] = []
    with stepped(sequences=4, size=ROOM) as steps:
        longs = [steps.ask(30_000, 50) for _ in range(4)]
        while not all(each.ends for each in longs):
            # As soon as one is answered the next long one comes.
            waits_s.append(steps.answer(steps.ask(40, 20), within_s=60))
            assert steps.now_s < 3_000
        assert [each.finish for each in longs] == ["length"] * 4
    assert max(waits_s) < 10
    # And nothing is left of what was saved meanwhile.
    assert steps.cells.kept() == 0


def test_a_prompt_that_gave_way_is_read_once() -> None:
    with stepped(sequences=1, size=ROOM) as steps:
        long = steps.ask(20_000, 5)
        while not long.ends:
            steps.answer(steps.ask(40, 20), within_s=60)
            assert steps.now_s < 600
        assert long.finish == "length"
        assert steps.cells.read(above=100) == 20_000 - 100 + 4


# Deterministic requests.


@pytest.mark.parametrize("kept", [engine_module.KEPT_CONTEXTS, 0], ids=["kept", "lost"])
@pytest.mark.parametrize("sequences", [1, 2, 4])
def test_each_token_of_a_deterministic_answer_is_decoded_as_if_it_were_alone(
    monkeypatch: pytest.MonkeyPatch, kept: float, sequences: int
) -> None:
    monkeypatch.setattr(engine_module, "KEPT_CONTEXTS", kept)
    with stepped(sequences=sequences, size=ROOM, turn_s=1.0) as steps:
        exact = steps.ask(300, 400, deterministic=True)
        gave_way = 0
        while not exact.ends:
            steps.answer(steps.ask(20, 10), within_s=60)
            steps.until(lambda: steps.phase(exact) is not Phase.WAITING, within_s=60)
            gave_way += 1
        assert exact.finish == "length"
        assert gave_way > 3
        # No other request is as long; 301 to 699 are read, the last one is not.
        shapes = steps.cells.shapes(above=100)
    counts = [128] * 156 + [44] * 44 + [1] * 399
    assert shapes == {100 + place: {(count, 1)} for place, count in enumerate(counts)}


def test_a_deterministic_request_stops_no_one_while_long_prompts_are_read() -> None:
    with stepped(sequences=4, size=ROOM) as steps:
        longs = [steps.ask(30_000, 300) for _ in range(3)]
        steps.until(lambda: steps.now_s >= 20, within_s=30)
        exact = steps.ask(5, 1, deterministic=True)
        waits_s: list[float] = []
        while not exact.ends:
            waits_s.append(steps.answer(steps.ask(40, 20), within_s=60))
            assert steps.now_s < 3_000
        assert exact.finish == "length"
        assert max(waits_s) < 10
        steps.until(lambda: all(each.ends for each in longs), within_s=900)


def test_tiny_deterministic_requests_leave_the_others_most_of_the_time() -> None:
    def took_s(*, exact: bool) -> float:
        with stepped(sequences=4, size=ROOM) as steps:
            stories = [steps.ask(50, 1_500) for _ in range(4)]
            asked: list[Asked] = []
            answered = 0
            while not all(each.ends for each in stories):
                # One person may ask four questions at a time.
                while exact and len(asked) < 4:
                    asked.append(steps.ask(5, 1, deterministic=True))
                steps.step()
                answered += sum(bool(each.ends) for each in asked)
                asked = [each for each in asked if not each.ends]
                assert steps.now_s < 200
            assert not exact or answered > 8
            return steps.now_s

    assert took_s(exact=True) < 1.6 * took_s(exact=False)
