"""Dummies: their lengths, and how many there may be at a time."""

import pytest

from curtilage.enclave_server.answer import run
from curtilage.enclave_server.config import Limits
from curtilage.enclave_server.errors import ChatError
from curtilage.enclave_server.ohttp.chat import ChatLimits
from curtilage.enclave_server.ohttp.gateway import Form, Terms, open_exchange
from curtilage.enclave_server.ohttp.inner_requests import (
    LONGEST_S,
    SHARE,
    CoverRequest,
    CoverRoom,
    parse_cover_request,
)
from curtilage.wire.shaping import PADDED, TransportParameters
from support.enclave_parts import (
    NOW,
    Parts,
    connect,
    exchange,
    inner_request,
    make_parts,
    post,
    seal,
    serving,
    until,
)
from support.padded_parts import HEAD, KEY, Playing
from support.virtual_time import VirtualTime

SLOW = TransportParameters(period_ms=1000, first_bucket=16, buckets=4)


def cover(bucket: int) -> CoverRequest:
    return CoverRequest(bucket=bucket)


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"{}", b'{"bucket":-1}', b'{"bucket":7}', b'{"bucket":true}'],
)
def test_what_names_no_bucket_is_refused(content: bytes) -> None:
    assert parse_cover_request(b'{"bucket":6}', 7) == cover(6)
    with pytest.raises(ChatError):
        parse_cover_request(content, 7)


def test_no_dummy_is_longer_than_answers_usually_are() -> None:
    room = CoverRoom(1000)
    given = [room.take(cover(bucket), PADDED) for bucket in range(PADDED.buckets)]
    assert given == [0, 1, 2, 3, 4, 4, 4]
    assert PADDED.frames_of(4) * PADDED.period_ms / 1000 <= LONGEST_S
    assert room.take(cover(3), SLOW) == 1


def test_a_release_of_long_answers_has_dummies_of_the_shortest() -> None:
    slow = TransportParameters(period_ms=1000, first_bucket=100, buckets=3)
    assert CoverRoom(9).take(cover(2), slow) == 0


def test_long_dummies_hold_a_part_of_the_connections_and_no_more() -> None:
    most = Limits().max_connections
    room = CoverRoom(most)
    given = [room.take(cover(4), PADDED) for _ in range(most)]
    assert given == [4] * (most // SHARE) + [0] * (most - most // SHARE)
    assert room.take(cover(0), PADDED) == 0
    for bucket in given:
        room.give_back(bucket)
    assert [room.take(cover(4), PADDED) for _ in range(most)] == given


def dummy(parts: Parts, bucket: int) -> bytes:
    inner = inner_request(b'{"bucket":%d}' % bucket, path=b"/v1/cover")
    return post(seal(parts.key, inner).message)


async def test_dummies_without_room_get_the_shortest_answer() -> None:
    shape = TransportParameters(period_ms=100, first_bucket=2, buckets=8)
    parts = await make_parts(transport=shape, limits=Limits(max_connections=SHARE))
    async with serving(parts) as address:
        reader, writer = await connect(address)
        writer.write(dummy(parts, 7))
        await reader.readuntil(b"\r\n\r\n")
        assert len((await exchange(address, dummy(parts, 2))).pieces) == 2
        # A client that disconnects returns the room.
        writer.transport.abort()
        await until(lambda: "answer_cancelled" in parts.counted())
        assert len((await exchange(address, dummy(parts, 2))).pieces) == 8


async def test_a_dummy_whose_answer_fails_gives_its_room_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_given: object) -> None:
        raise RuntimeError

    monkeypatch.setattr(run, "write_cover", fail)
    room, time = CoverRoom(SHARE), VirtualTime()
    sealed = seal(KEY, inner_request(b'{"bucket":4}', path=b"/v1/cover"))
    terms = Terms(chat=ChatLimits(), transport=PADDED, now=NOW)
    keys = dict.fromkeys(KEY.key_ids, KEY)
    underway = run.AnswerRun(
        exchange=open_exchange(keys, Form(sealed.content_type), sealed.message, terms),
        model=Playing((), time),
        head=HEAD,
        accepted=time.now,
        limit_s=600,
        timer=time.timer,
        covers=room,
    )
    with pytest.raises(RuntimeError):
        await anext(underway.pieces())
    assert room.take(cover(4), PADDED) == 4
