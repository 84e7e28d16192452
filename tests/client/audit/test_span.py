"""Lines that may have been written in a period, by clock and by position."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curtilage.client.audit.record import SegmentStart, record_of
from curtilage.client.audit.span import Span
from support.audit_logs import ENTRY, NOW

hours = st.integers(0, 9)


def forward(span: tuple[int | None, int | None]) -> bool:
    """Return whether a period ends where it begins, or later."""
    since, until = span
    return since is None or until is None or since <= until


ends = st.one_of(st.none(), hours)
# Nothing is promised of a span that ends before it begins: of a clock that went back
# and forth in between, it may hold a line that no time can place.
spans = st.tuples(ends, ends).filter(forward)


def time(hour: int) -> datetime:
    return NOW + timedelta(hours=hour)


def start(hour: int, segment: int) -> SegmentStart:
    fields = {"log": "curtilage.audit/0000000000000000", "prev": "00" * 32}
    return SegmentStart(seq=0, time=time(hour), segment=segment, tree=(), **fields)


def within(times: Sequence[int], since: int | None, until: int | None) -> list[int]:
    """Return the numbers of the lines that lie in the span."""
    span = Span(
        since=None if since is None else time(since),
        until=None if until is None else time(until),
    )
    begun: list[int] = []
    sure = 0
    for seq, hour in enumerate(times):
        span.see(record_of(ENTRY, seq=seq, prev="", now=time(hour), key=bytes(32)))
        sure = len(begun) if span.reached_before else sure
        begun = [*begun, seq] if span.begun else []
        sure = len(begun) if span.reached else sure
    return begun[:sure]


def may_be_after(times: Sequence[int], number: int, since: int) -> bool:
    """Return whether no line proves that this one was written before."""
    peak = max(times[: number + 1])
    behind = [hour for hour in times[number + 1 :] if hour >= peak]
    dated_back = times[number] < peak
    return times[number] >= since or (dated_back and (behind or [since])[0] >= since)


def may_be_before(times: Sequence[int], number: int, until: int) -> bool:
    """The same from the end: as if time ran backwards."""
    turned = [-hour for hour in reversed(times)]
    return may_be_after(turned, len(times) - 1 - number, 1 - until)


@given(st.lists(hours), spans)
def test_it_reaches_from_the_first_line_that_fits_to_the_last(
    times: list[int], span: tuple[int | None, int | None]
) -> None:
    since, until = span
    expected = [
        number
        for number in range(len(times))
        if (since is None or may_be_after(times, number, since))
        and (until is None or may_be_before(times, number, until))
    ]
    assert within(times, since, until) == expected


@given(st.lists(hours).map(sorted), spans)
def test_with_a_clock_that_never_went_back_the_times_decide(
    times: list[int], span: tuple[int | None, int | None]
) -> None:
    since, until = span
    expected = [
        number
        for number, hour in enumerate(times)
        if (since is None or hour >= since) and (until is None or hour < until)
    ]
    assert within(times, since, until) == expected


@given(st.lists(hours, min_size=1), st.data())
def test_setting_the_clock_hides_no_line_from_a_span(
    truly: list[int], data: st.DataObject
) -> None:
    """Whatever some lines say: with a true one before and behind, they count."""
    truly.sort()
    lied = data.draw(st.lists(hours, min_size=len(truly), max_size=len(truly)))
    said = [truly[0], *lied, truly[-1]]
    since, until = data.draw(st.integers(0, truly[0])), truly[-1] + 1
    assert within(said, since, until) == list(range(len(said)))


def test_a_clock_that_was_wrong_across_an_end_of_the_span_hides_nothing() -> None:
    assert within([4, 0, 0, 9], 5, None) == [1, 2, 3]
    assert within([4, 0, 0], 5, None) == [1, 2]
    assert within([1, 0, 2, 9], 5, None) == [3]
    assert within([1, 9, 9, 6], None, 5) == [0, 1, 2]
    assert within([1, 6, 9, 8], None, 5) == [0]


def test_steps_back_are_counted() -> None:
    span = Span()
    for hour in (3, 1, 2, 2, 0):
        span.see(record_of(ENTRY, seq=0, prev="", now=time(hour), key=bytes(32)))
    assert span.steps_back == 2


@pytest.mark.parametrize(("segment", "steps_back"), [(1, 1), (2, 0)])
def test_only_the_first_files_first_line_is_a_reading_of_the_clock(
    segment: int, steps_back: int
) -> None:
    """Earlier writers dated the others a moment after the record behind them."""
    span = Span(since=time(2))
    span.see(start(3, segment))
    assert span.begun == (segment == 1)
    span.see(record_of(ENTRY, seq=1, prev="", now=time(1), key=bytes(32)))
    assert span.steps_back == steps_back


def test_a_span_without_ends_holds_everything() -> None:
    assert not Span().ends
    assert Span().begun
    assert Span().reached
    assert Span(until=time(0)).ends
    assert Span().holds(datetime.min.replace(tzinfo=UTC))
