from hypothesis import given
from hypothesis import strategies as st

from curtilage.client.system.budget import HEDGE_PERMILLE, RETRY_PERMILLE, Budget


@given(st.lists(st.booleans(), max_size=400), st.integers(0, 3))
def test_a_budget_gives_its_share_and_what_was_there(
    events: list[bool], reserve: int
) -> None:
    budget = Budget(RETRY_PERMILLE, reserve=reserve)
    earned = taken = 0
    for earns in events:
        if earns:
            budget.earn()
            earned += 1
        else:
            taken += budget.take()
        assert taken <= reserve + earned / 10


def test_a_retry_is_there_for_who_asks_seldom_and_a_hedge_is_not() -> None:
    assert Budget(RETRY_PERMILLE, reserve=1).take()
    hedges = Budget(HEDGE_PERMILLE)
    for _ in range(19):
        hedges.earn()
    assert not hedges.take()
    hedges.earn()
    assert hedges.take()


def test_what_was_saved_up_in_good_times_is_no_storm() -> None:
    budget = Budget(RETRY_PERMILLE, most=10)
    for _ in range(10_000):
        budget.earn()
    assert sum(budget.take() for _ in range(100)) == 10
