from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curtilage.enclave_server.dates import (
    SKEW,
    format_date,
    is_in_window,
    parse_date,
)

NOW = datetime(2026, 11, 21, 12, 0, 0, 999_999, tzinfo=UTC)
TODAY = b"Sat, 21 Nov 2026 12:00:00 GMT"


def test_date_is_imf_fixdate() -> None:
    assert format_date(NOW) == TODAY
    assert parse_date(TODAY) == NOW.replace(microsecond=0)


@given(st.datetimes(timezones=st.just(UTC), allow_imaginary=False))
def test_every_date_comes_back(moment: datetime) -> None:
    assert parse_date(format_date(moment)) == moment.replace(microsecond=0)


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"now",
        b"Sunday, 06-Nov-94 08:49:37 GMT",
        b"Sun Nov  6 08:49:37 1994",
        b"Sun, 21 Nov 2026 12:00:00 GMT",
        b"sat, 21 Nov 2026 12:00:00 GMT",
        b"Sat, 21 nov 2026 12:00:00 GMT",
        b"Sat, 21 Foo 2026 12:00:00 GMT",
        b"Sat, 31 Nov 2026 12:00:00 GMT",
        b"Sat, 21 Nov 2026 24:00:00 GMT",
        b"Sat, 21 Nov 2026 12:00:60 GMT",
        b"Sat, 21 Nov 0000 12:00:00 GMT",
        b"Sat, 21 Nov 2026 12:00:00 UTC",
        b"Sat, 21 Nov 2026 12:00:00 +0000",
        b"Sat, 21 Nov 2026 12:00:00 GMT ",
        b"Sat, 21 Nov 2026 12:00:00 GMT\n",
        b" Sat, 21 Nov 2026 12:00:00 GMT",
        b"Sat, 21 Nov 2026 12:00:00 GMT, x",
        b"Sat,  21 Nov 2026 12:00:00 GMT",
        b"2026-11-21T12:00:00Z",
        b"1795262400",
        "Sat, \uff121 Nov 2026 12:00:00 GMT".encode(),
        b"\xff" * 29,
        b"9" * 10_000,
    ],
)
def test_any_other_text_is_no_date(value: bytes) -> None:
    assert parse_date(value) is None
    assert not is_in_window(value, NOW)


@pytest.mark.parametrize(
    ("offset_s", "within"),
    [(-61, False), (-60, True), (-59, True), (0, True), (60, True), (61, False)],
)
def test_window_is_a_minute_either_way(offset_s: int, within: bool) -> None:
    value = format_date(NOW + timedelta(seconds=offset_s))
    assert is_in_window(value, NOW) is within


@pytest.mark.parametrize("year", [1, 1970, 9999])
def test_year_far_away_is_outside(year: int) -> None:
    assert not is_in_window(format_date(NOW.replace(year=year)), NOW)


def test_skew_is_the_one_of_attestation() -> None:
    assert SKEW.total_seconds() == 60
