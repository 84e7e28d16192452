"""The one form of a date that is written, and no other that is read."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curtilage.wire.dates import format_date, parse_date

# RFC 9110, section 5.6.7.
EXAMPLE = b"Sun, 06 Nov 1994 08:49:37 GMT"


def test_the_example_of_the_rfc() -> None:
    moment = datetime(1994, 11, 6, 8, 49, 37, tzinfo=UTC)
    assert format_date(moment) == EXAMPLE
    assert parse_date(EXAMPLE) == moment


@given(st.datetimes(timezones=st.just(UTC), allow_imaginary=False))
def test_every_second_comes_back(moment: datetime) -> None:
    assert parse_date(format_date(moment)) == moment.replace(microsecond=0)


def test_another_zone_is_written_as_utc() -> None:
    zone = timezone(timedelta(hours=2))
    assert format_date(datetime(1994, 11, 6, 10, 49, 37, tzinfo=zone)) == EXAMPLE


def test_a_time_without_a_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="zone"):
        format_date(datetime(1994, 11, 6))  # noqa: DTZ001 - that is the point


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"now",
        b"Sunday, 06-Nov-94 08:49:37 GMT",
        b"Sun Nov  6 08:49:37 1994",
        b"Mon, 06 Nov 1994 08:49:37 GMT",
        b"Sun, 6 Nov 1994 08:49:37 GMT",
        b"sun, 06 Nov 1994 08:49:37 GMT",
        b"Sun, 06 nov 1994 08:49:37 GMT",
        b"Sun, 06 Abc 1994 08:49:37 GMT",
        b"Sun, 31 Nov 1994 08:49:37 GMT",
        b"Sun, 06 Nov 1994 24:49:37 GMT",
        b"Sun, 06 Nov 1994 08:49:60 GMT",
        b"Sun, 06 Nov 0000 08:49:37 GMT",
        b"Sun, 06 Nov 1994 08:49:37 UTC",
        b"Sun, 06 Nov 1994 08:49:37 +0000",
        b"Sun, 06 Nov 1994 08:49:37 GMT ",
        b"Sun, 06 Nov 1994 08:49:37 GMT\n",
        b" Sun, 06 Nov 1994 08:49:37 GMT",
        b"Sun, 06 Nov 1994 08:49:37 GMT, x",
        b"Sun,  06 Nov 1994 08:49:37 GMT",
        b"1994-11-06T08:49:37Z",
        b"784111777",
        "Sun, \uff106 Nov 1994 08:49:37 GMT".encode(),
        b"\xff" * 29,
        b"9" * 10_000,
    ],
)
def test_nothing_else_is_a_date(value: bytes) -> None:
    assert parse_date(value) is None
