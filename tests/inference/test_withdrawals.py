# pyright: reportPrivateUsage=false
# A caller withdraws between two lines of the owner thread: both are private.
"""Requests are cancelled at any moment, in any order, while others are answered."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
)
from typing_extensions import override

from curtilage.inference.errors import (
    EngineBusyError,
    EngineClosedError,
    InferenceError,
)
from curtilage.inference.protocol import Done
from support.stepped_engine import Asked, SteppedEngine, stepped


class Withdrawals(RuleBasedStateMachine):
    """``cancel`` first says so, and then withdraws: anything may be in between."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[Asked] = []
        self.late: list[Asked] = []
        """Those that are cancelled, and not withdrawn yet."""
        self.meanwhile: set[int] = set()
        """Which of those are withdrawn before the next end, by their place."""

    @initialize(sequences=st.integers(1, 3), turn_s=st.sampled_from([0.0, 0.2, 2.0]))
    def make(self, sequences: int, turn_s: float) -> None:
        self._running = stepped(
            sequences=sequences, size=600, turn_s=turn_s, max_queued=6
        )
        self.stepped = self._running.__enter__()
        engine = self.stepped.engine
        end = engine._end

        def ends(*of_a_job: object) -> bool:
            """Let callers go on between the look at the jobs and the end of one."""
            for place in sorted(self.meanwhile, reverse=True):
                self._withdraw(place)
            self.meanwhile.clear()
            return end(*of_a_job)  # type: ignore[arg-type]

        pytest.MonkeyPatch().setattr(engine, "_end", ends)

    @rule(
        prompt=st.sampled_from([1, 20, 130, 400]),
        answer=st.integers(1, 60),
        deterministic=st.sampled_from([False, False, True]),
    )
    def ask(self, prompt: int, answer: int, deterministic: bool) -> None:
        try:
            asked = self.stepped.ask(prompt, answer, deterministic=deterministic)
        except EngineBusyError:
            return
        self.asked.append(asked)

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        """The first half of ``CancelToken.cancel``."""
        if left := [each for each in self.asked if each not in self.late]:
            asked = data.draw(st.sampled_from(left))
            asked.token._event.set()
            self.late.append(asked)

    @rule(place=st.integers(0, 9))
    def withdraw(self, place: int) -> None:
        """The second half."""
        self._withdraw(place)

    @rule(places=st.sets(st.integers(0, 9)))
    def withdraw_meanwhile(self, places: set[int]) -> None:
        self.meanwhile |= places

    @rule(count=st.integers(1, 12))
    def step(self, count: int) -> None:
        for _ in range(count):
            self.stepped.step()

    @invariant()
    def each_ends_once_and_none_fails(self) -> None:
        for asked in self.asked:
            assert len(asked.ends) <= 1
            assert not any(isinstance(each, InferenceError) for each in asked.items)
        engine = self.stepped.engine if self.asked else None
        if engine is not None:
            assert set(engine._jobs) == set(engine._planner.tickets)

    @override
    def teardown(self) -> None:
        """Whatever was cancelled, all end, and nothing is left in the context."""
        if not hasattr(self, "stepped"):
            return
        try:
            for _ in range(20_000):
                if not self.stepped.engine._jobs:
                    break
                self.stepped.step()
            self.stepped.step()
            for asked in self.asked:
                (end,) = asked.ends
                assert isinstance(end, Done)
                asked.leave()
                if end.finish == "cancelled":
                    assert asked.token.cancelled
            assert self.stepped.cells.held == [[] for _ in self.stepped.cells.held]
            assert self.stepped.cells.kept() == 0
        finally:
            self._running.__exit__(None, None, None)

    def _withdraw(self, place: int) -> None:
        if place < len(self.late):
            # It may be withdrawn more than once: by its token, and when it leaves.
            self.late[place].token.cancel()
            self.late[place].leave()


TestWithdrawals = Withdrawals.TestCase
TestWithdrawals.settings = settings(
    deadline=None, max_examples=60, stateful_step_count=40
)


def withdraw_at_its_end(steps: SteppedEngine, asked: Asked) -> None:
    """Let a request's caller withdraw it when the engine is about to end it."""
    end = steps.engine._end

    def ends(*of_a_job: object) -> bool:
        asked.token.cancel()
        return end(*of_a_job)  # type: ignore[arg-type]

    pytest.MonkeyPatch().setattr(steps.engine, "_end", ends)


@pytest.mark.parametrize("running", [1, 3])
def test_one_that_is_withdrawn_while_it_is_ended_ends_once(running: int) -> None:
    """The interleaving that once ended all answers."""
    with stepped(sequences=running, size=600) as steps:
        others = [steps.ask(20, 200) for _ in range(running)]
        steps.until(
            lambda: all(each.first_s is not None for each in others), within_s=9
        )
        waiting = steps.ask(20, 200)
        withdraw_at_its_end(steps, waiting)
        waiting.token._event.set()
        steps.step()
        assert [type(each) for each in waiting.items] == [Done]
        steps.until(lambda: not steps.engine._jobs, within_s=60)
        assert [each.finish for each in others] == ["length"] * running


def test_one_that_is_withdrawn_while_all_are_dropped_ends_once() -> None:
    with stepped(sequences=1, size=600) as steps:
        waiting, other = steps.ask(20, 20), steps.ask(20, 20)
        withdraw_at_its_end(steps, waiting)
        steps.engine._drop(EngineClosedError("closed"))
        assert [type(each) for each in waiting.items] == [Done]
        assert [type(each) for each in other.items] == [EngineClosedError]


def test_whatever_fails_while_all_are_dropped_each_hears_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(_job: object) -> None:
        raise KeyError(1)

    with stepped(sequences=2, size=600) as steps:
        asked = [steps.ask(20, 20) for _ in range(3)]
        steps.step()
        monkeypatch.setattr(steps.engine, "_end_turn", broken)
        steps.engine._drop(EngineClosedError("closed"))
        assert [type(each.ends[0]) for each in asked] == [EngineClosedError] * 3
        assert not steps.engine._jobs
