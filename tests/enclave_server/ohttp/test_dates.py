from datetime import UTC, datetime, timedelta

import pytest

from curtilage.enclave_server.ohttp.gateway import is_in_window
from curtilage.wire.dates import WINDOW, format_date

NOW = datetime(2026, 11, 21, 12, 0, 0, 999_999, tzinfo=UTC)


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"now",
        b"Sunday, 22-Nov-26 12:00:00 GMT",
        b"Sun, 21 Nov 2026 12:00:00 GMT",
        b"Sat, 21 Nov 2026 12:00:00 UTC",
    ],
)
def test_what_is_no_date_is_outside(value: bytes) -> None:
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
    assert WINDOW.total_seconds() == 60
