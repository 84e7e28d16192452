import asyncio

import pytest

from curtilage.relay.body import RequestBody
from curtilage.relay.config import Limits
from curtilage.relay.refusals import Refusal, RefusedError


class BrokenError(Exception):
    """What the framing below raises."""


def body(
    *pieces: bytes | type[BrokenError], limits: Limits | None = None
) -> RequestBody:
    left = [*pieces, b""]

    async def read() -> bytes:
        piece = left.pop(0)
        if not isinstance(piece, bytes):
            raise piece
        await asyncio.sleep(0)
        return piece

    return RequestBody(read, broken=BrokenError, limits=limits or Limits())


async def test_whole_joins_the_pieces() -> None:
    assert await body(b"ab", b"c").whole() == b"abc"


async def test_broken_framing_is_malformed() -> None:
    broken = body(b"ab", BrokenError)
    with pytest.raises(RefusedError) as caught:
        await broken.whole()
    assert caught.value.refusal is Refusal.MALFORMED


async def test_limit_is_inclusive() -> None:
    limits = Limits(max_request_bytes=4)
    assert await body(b"ab", b"cd", limits=limits).whole() == b"abcd"
    over = body(b"ab", b"cde", limits=limits)
    with pytest.raises(RefusedError) as caught:
        await over.whole()
    assert caught.value.refusal is Refusal.BODY_TOO_LARGE


async def test_time_is_earned_by_bytes() -> None:
    limits = Limits(body_timeout_s=0.05, min_body_bytes_per_s=10)

    async def read() -> bytes:
        await asyncio.sleep(0.1)
        return b""

    slow = RequestBody(read, broken=BrokenError, limits=limits)
    with pytest.raises(RefusedError) as caught:
        await slow.whole()
    assert caught.value.refusal is Refusal.BODY_TOO_SLOW
