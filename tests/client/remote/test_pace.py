"""When a promise of one frame a period is broken, and when it is not yet."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curtilage.client.errors import FailureReason
from curtilage.client.remote.draining import (
    FIRST_FRAME_S,
    SLACK_S,
    SLOWEST_UPLOAD,
    FrameRateMonitor,
)
from curtilage.client.remote.reasons import EnclaveFailure
from curtilage.wire.shaping import PADDED

BEGAN = 1000.0
PERIOD_S = PADDED.period_ms / 1000


def pace(request_bytes: int = 0) -> FrameRateMonitor:
    return FrameRateMonitor(PADDED, BEGAN, request_bytes=request_bytes)


def test_the_limits_are_no_tighter_than_a_busy_machine_needs() -> None:
    assert FIRST_FRAME_S >= 10
    assert SLACK_S >= 10


@pytest.mark.parametrize(
    ("after_s", "expected"),
    [(0, None), (15, None), (15.001, EnclaveFailure.TIMEOUT)],
)
def test_the_first_frame_has_a_time(
    after_s: float, expected: FailureReason | None
) -> None:
    assert pace().breach(0, BEGAN + after_s) is expected


def test_a_large_request_has_longer() -> None:
    large = pace(request_bytes=1024 * 1024)
    assert large.breach(0, BEGAN + 31) is None
    assert large.breach(0, BEGAN + 31.1) is EnclaveFailure.TIMEOUT
    assert SLOWEST_UPLOAD == 65536


@pytest.mark.parametrize("frames", [1, 2, 64, 4000])
def test_the_next_frame_has_its_time_and_the_slack(frames: int) -> None:
    watched = pace()
    first_at = BEGAN + 3
    assert watched.breach(1, first_at) is None
    due = first_at + frames * PERIOD_S + SLACK_S
    assert watched.breach(frames, due - 0.001) is None
    assert watched.breach(frames, due + 0.001) is EnclaveFailure.ANSWER_LATE


@given(st.lists(st.floats(0, SLACK_S - 0.1), min_size=1, max_size=200))
def test_frames_that_are_late_by_less_than_the_slack_are_no_breach(
    late_s: list[float],
) -> None:
    watched = pace()
    times = [BEGAN + number * PERIOD_S + late for number, late in enumerate(late_s)]
    times[0] = BEGAN
    for frames, now in enumerate(sorted(times), start=1):
        assert watched.breach(frames, now) is None


def test_an_early_frame_is_not_a_breach() -> None:
    watched = pace()
    assert watched.breach(64, BEGAN + 0.01) is None
    assert watched.breach(64, BEGAN + 64 * PERIOD_S) is None
