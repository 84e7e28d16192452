from collections.abc import Generator

import pytest

from curtilage.wire.cursor import Cursor, Feed, Pump
from curtilage.wire.errors import ConsumedError, LimitExceededError, TruncatedError


def pairs(feed: Feed) -> Generator[bytes | None, None, None]:
    while len(feed) or not feed.ended:
        if not len(feed):
            yield from feed.wait()
            continue
        yield (yield from feed.pull(2))


def pump_of_pairs(limit_bytes: int = 100) -> Pump[bytes]:
    feed = Feed(limit_bytes=limit_bytes)
    return Pump(feed, pairs(feed))


def test_cursor_takes_in_order() -> None:
    cursor = Cursor(b"\x01\x02\x03")
    assert cursor.take_uint(2) == 0x0102
    assert cursor.remaining == 1
    assert cursor.take(1) == b"\x03"
    assert cursor.take(0) == b""


def test_cursor_refuses_to_pass_the_end() -> None:
    cursor = Cursor(b"ab")
    with pytest.raises(TruncatedError):
        cursor.take(3)
    assert cursor.remaining == 2


def test_pump_gives_events_as_they_complete() -> None:
    pump = pump_of_pairs()
    assert pump.push(b"a") == []
    assert pump.push(b"bcde") == [b"ab", b"cd"]
    assert pump.push(b"") == []
    assert pump.push(b"f") == [b"ef"]
    assert pump.finish() == []


def test_pump_refuses_to_end_inside_an_event() -> None:
    pump = pump_of_pairs()
    pump.push(b"abc")
    with pytest.raises(TruncatedError):
        pump.finish()


def test_pump_failure_is_final() -> None:
    pump = pump_of_pairs(limit_bytes=3)
    pump.push(b"ab")
    with pytest.raises(LimitExceededError):
        pump.push(b"cd")
    with pytest.raises(ConsumedError):
        pump.push(b"")
    with pytest.raises(ConsumedError):
        pump.finish()


def test_pump_takes_nothing_after_finish() -> None:
    pump = pump_of_pairs()
    pump.finish()
    with pytest.raises(ConsumedError):
        pump.push(b"ab")
    with pytest.raises(ConsumedError):
        pump.finish()
