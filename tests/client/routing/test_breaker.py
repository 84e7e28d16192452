from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from curtilage.client.routing.breaker import Breaker, BreakerState
from curtilage.policy.document.routing_settings import Breaker as BreakerSettings

WINDOW_MS = OPEN_MS = 30_000.0


def opened_at(now_ms: float) -> Breaker:
    breaker = Breaker(BreakerSettings())
    breaker.failed(now_ms, probe=False, dead=True)
    return breaker


def test_three_failures_in_the_window_open_it() -> None:
    breaker = Breaker(BreakerSettings())
    for now in (0.0, 10_000.0):
        breaker.failed(now, probe=False, dead=False)
        assert breaker.state(now) is BreakerState.CLOSED
    breaker.failed(20_000.0, probe=False, dead=False)
    assert breaker.state(20_000.0) is BreakerState.OPEN


def test_three_failures_over_more_than_the_window_do_not() -> None:
    breaker = Breaker(BreakerSettings())
    for now in (0.0, 20_000.0, WINDOW_MS):
        breaker.failed(now, probe=False, dead=False)
    assert breaker.state(WINDOW_MS) is BreakerState.CLOSED


def test_a_success_makes_up_for_one_failure() -> None:
    breaker = Breaker(BreakerSettings())
    breaker.failed(0.0, probe=False, dead=False)
    breaker.failed(1.0, probe=False, dead=False)
    breaker.succeeded(probe=False)
    breaker.failed(2.0, probe=False, dead=False)
    assert breaker.state(2.0) is BreakerState.CLOSED
    breaker.failed(3.0, probe=False, dead=False)
    assert breaker.state(3.0) is BreakerState.OPEN


def test_a_dead_one_opens_it_at_once() -> None:
    assert opened_at(0.0).state(0.0) is BreakerState.OPEN


def test_after_a_while_one_may_try_and_only_one() -> None:
    breaker = opened_at(0.0)
    assert breaker.admit(OPEN_MS - 1) is BreakerState.OPEN
    assert breaker.admit(OPEN_MS) is BreakerState.HALF_OPEN
    assert breaker.admit(OPEN_MS) is BreakerState.OPEN


def test_the_probe_s_success_closes_it() -> None:
    breaker = opened_at(0.0)
    breaker.admit(OPEN_MS)
    breaker.succeeded(probe=True)
    assert breaker.state(OPEN_MS) is BreakerState.CLOSED


def test_the_probe_s_failure_opens_it_anew() -> None:
    breaker = opened_at(0.0)
    breaker.admit(OPEN_MS)
    breaker.failed(OPEN_MS + 5000, probe=True, dead=False)
    assert breaker.state(2 * OPEN_MS) is BreakerState.OPEN
    assert breaker.state(2 * OPEN_MS + 5000) is BreakerState.HALF_OPEN


def test_a_probe_that_never_reports_makes_way_for_another() -> None:
    breaker = opened_at(0.0)
    breaker.admit(OPEN_MS)
    assert breaker.admit(2 * OPEN_MS) is BreakerState.HALF_OPEN


def test_an_abandoned_probe_makes_way_at_once() -> None:
    breaker = opened_at(0.0)
    breaker.admit(OPEN_MS)
    breaker.abandoned(OPEN_MS + 1)
    assert breaker.admit(OPEN_MS + 1) is BreakerState.HALF_OPEN


def test_what_began_before_it_opened_neither_closes_it_nor_keeps_the_probe_away() -> (
    None
):
    breaker = opened_at(0.0)
    breaker.succeeded(probe=False)
    breaker.failed(OPEN_MS - 1, probe=False, dead=True)
    assert breaker.state(OPEN_MS - 1) is BreakerState.OPEN
    assert breaker.state(OPEN_MS) is BreakerState.HALF_OPEN


def test_after_it_closed_old_failures_are_forgotten() -> None:
    breaker = Breaker(BreakerSettings(open_s=1))
    for _ in range(3):
        breaker.failed(0.0, probe=False, dead=False)
    breaker.admit(1000.0)
    breaker.succeeded(probe=True)
    breaker.failed(1001.0, probe=False, dead=False)
    assert breaker.state(1001.0) is BreakerState.CLOSED


EVENTS = st.lists(
    st.tuples(
        st.floats(0, 20_000), st.sampled_from(["ask", "good", "bad", "dead", "lost"])
    ),
    max_size=60,
)


@given(EVENTS)
def test_no_more_than_one_probe_passes_in_the_time_that_it_stays_open(
    events: list[tuple[float, str]],
) -> None:
    breaker = Breaker(BreakerSettings())
    now, probing, probes = 0.0, False, list[float]()
    for pause, event in events:
        now += pause
        if event == "ask":
            if breaker.admit(now) is BreakerState.HALF_OPEN:
                probing = True
                probes.append(now)
        elif event == "lost":
            continue  # it reports never
        elif event == "good":
            breaker.succeeded(probe=probing)
            probing, probes = False, []
        else:
            breaker.failed(now, probe=probing, dead=event == "dead")
            probing = False
    assert all(later - earlier >= OPEN_MS for earlier, later in pairwise(probes))
