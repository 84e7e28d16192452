from collections.abc import Generator

import pytest

from curtilage.wire.cursor import Cursor, PushParser, ReceiveBuffer
from curtilage.wire.errors import ConsumedError, LimitExceededError, TruncatedError


def pairs(buffer: ReceiveBuffer) -> Generator[bytes | None, None, None]:
    while len(buffer) or not buffer.ended:
        if not len(buffer):
            yield from buffer.wait()
            continue
        yield (yield from buffer.pull(2))


def parser_of_pairs(limit_bytes: int = 100) -> PushParser[bytes]:
    buffer = ReceiveBuffer(limit_bytes=limit_bytes)
    return PushParser(buffer, pairs(buffer))


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


def test_parser_gives_events_as_they_complete() -> None:
    parser = parser_of_pairs()
    assert parser.push(b"a") == []
    assert parser.push(b"bcde") == [b"ab", b"cd"]
    assert parser.push(b"") == []
    assert parser.push(b"f") == [b"ef"]
    assert parser.finish() == []


def test_parser_refuses_to_end_inside_an_event() -> None:
    parser = parser_of_pairs()
    parser.push(b"abc")
    with pytest.raises(TruncatedError):
        parser.finish()


def test_parser_failure_is_final() -> None:
    parser = parser_of_pairs(limit_bytes=3)
    parser.push(b"ab")
    with pytest.raises(LimitExceededError):
        parser.push(b"cd")
    with pytest.raises(ConsumedError):
        parser.push(b"")
    with pytest.raises(ConsumedError):
        parser.finish()


def test_parser_takes_nothing_after_finish() -> None:
    parser = parser_of_pairs()
    parser.finish()
    with pytest.raises(ConsumedError):
        parser.push(b"ab")
    with pytest.raises(ConsumedError):
        parser.finish()
