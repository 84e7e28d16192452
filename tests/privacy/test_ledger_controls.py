"""The negative controls of the ledger: each unlisted item is found."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import pytest

from support.hop_check import check_far, check_mirror, check_near
from support.hops import Capture, Hops
from support.http_stream import HttpMessage, StreamError, read_responses

Place = tuple[str, int, str]
"""A hop of a capture, which of its pairs, which of the pair's messages."""
Change = Callable[[HttpMessage], HttpMessage]


def altered(message: HttpMessage, old: str, new: str) -> HttpMessage:
    """Return a message with something else in its head."""
    head = "\r\n".join(
        [message.start, *(f"{name}: {value}" for name, value in message.fields)]
    )
    assert old in head, "nothing would be altered"
    start, *lines = head.replace(old, new, 1).split("\r\n")
    fields = tuple((line.partition(": ")[0], line.partition(": ")[2]) for line in lines)
    return replace(message, start=start, fields=fields)


def added(message: HttpMessage, name: str, value: str, at: int) -> HttpMessage:
    fields = [*message.fields]
    fields.insert(at, (name, value))
    return replace(message, fields=tuple(fields))


def with_pieces(message: HttpMessage, pieces: Sequence[bytes]) -> HttpMessage:
    body = b"".join(pieces)
    fields = tuple(
        (name, str(len(body)) if name == "Content-Length" else value)
        for name, value in message.fields
    )
    return replace(message, body=body, pieces=tuple(pieces), fields=fields)


def found_in(hops: Hops, capture: Capture) -> list[str]:
    return [
        *check_near(hops, capture),
        *check_far(hops, capture),
        *check_mirror(hops, capture),
    ]


def respelt(hops: Hops, kind: str, place: Place, change: Change) -> list[str]:
    """Change one message of a capture; return the ledger's findings."""
    hop, which, side = place
    capture = hops.of_kind(kind)
    assert found_in(hops, capture) == []
    parts = {"near": capture.near, "far": capture.far, "mirror": capture.mirror}
    pairs = list(parts[hop])
    message = getattr(pairs[which], side)
    pairs[which] = replace(pairs[which], **{side: change(message)})
    parts[hop] = tuple(pairs)
    other = Capture(
        kind=kind,
        ours=capture.ours,
        near=parts["near"],
        far=parts["far"],
        mirror=parts["mirror"],
    )
    return found_in(hops, other)


UNLISTED = (
    ("User-Agent", "quokka/7"),
    ("Cookie", "id=7"),
    ("Set-Cookie", "id=7"),
    ("Traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
    ("X-Forwarded-For", "127.0.0.1"),
    ("Via", "1.1 relay"),
    ("ETag", '"7"'),
    ("Age", "7"),
    ("Accept", "*/*"),
    ("Date", "Sat, 21 Nov 2026 12:00:00 GMT"),
)
PLACES = (
    ("near", -1, "request"),
    ("near", -1, "response"),
    ("far", -1, "request"),
    ("far", -1, "response"),
)


@pytest.mark.parametrize("place", PLACES, ids=lambda place: f"{place[0]} {place[2]}")
def test_an_unlisted_field_is_found(hops: Hops, place: Place) -> None:
    for name, value in UNLISTED:
        for at in (0, 2, 99):
            wrong = respelt(
                hops, "streamed", place, partial(added, name=name, value=value, at=at)
            )
            assert wrong, f"{name} at {at}"


@pytest.mark.parametrize("place", PLACES, ids=lambda place: f"{place[0]} {place[2]}")
def test_another_order_or_spelling_is_found(hops: Hops, place: Place) -> None:
    def turned(message: HttpMessage) -> HttpMessage:
        return replace(message, fields=message.fields[::-1])

    def lowered(message: HttpMessage) -> HttpMessage:
        (name, value), *rest = message.fields
        return replace(message, fields=((name.lower(), value), *rest))

    def doubled(message: HttpMessage) -> HttpMessage:
        return replace(message, fields=(*message.fields, message.fields[-1]))

    def dropped(message: HttpMessage) -> HttpMessage:
        return replace(message, fields=message.fields[1:])

    for change in (turned, lowered, doubled, dropped):
        assert respelt(hops, "streamed", place, change), change.__name__


@pytest.mark.parametrize(
    ("kind", "place", "old", "new"),
    [
        ("streamed", ("near", 0, "request"), "/bundle", "/bundle?client=7"),
        ("streamed", ("near", -1, "request"), "POST /demo", "POST /demo/7"),
        ("streamed", ("near", -1, "request"), "?1", "?1;a=7"),
        ("streamed", ("near", -1, "request"), "Host: 127", "Host: 7.127"),
        ("streamed", ("near", 0, "response"), "max-age=1", "max-age=34117"),
        ("streamed", ("near", -1, "response"), "200 OK", "200 Fine"),
        ("streamed", ("near", -1, "response"), "curtilage-relay", "curtilage-relay/7"),
        ("streamed", ("near", -1, "response"), "Date: ", "Date:  "),
        ("streamed", ("near", -1, "response"), " GMT", " UTC"),
        ("streamed", ("far", -1, "request"), "ohttp-gateway", "ohttp-gateway?7"),
        (
            "streamed",
            ("far", -1, "response"),
            "private, no-store",
            "private, max-age=7",
        ),
        ("keys replaced", ("near", 0, "response"), "no-store", "no-store, max-age=7"),
        ("enclave gone", ("near", 0, "response"), "502", "418"),
        ("streamed", ("mirror", 0, "request"), "/ohttp-keys", "/ohttp-keys/7"),
        ("pool", ("near", 0, "request"), "/bundle", "/a/bundle"),
        ("pool", ("near", -1, "request"), "/many/a", "/many/a7"),
    ],
)
def test_another_value_is_found(
    hops: Hops, kind: str, place: Place, old: str, new: str
) -> None:
    assert respelt(hops, kind, place, lambda message: altered(message, old, new))


@pytest.mark.parametrize(
    "written",
    [
        "Saturday, 21-Nov-26 12:00:00 GMT",
        "Sat Nov 21 12:00:00 2026",
        "Sat, 21 Nov 2026 12:00:00 +0000",
        "Sat, 21 Nov 2026 12:00:00.123 GMT",
        "Thu, 01 Jan 1970 00:00:07 GMT",
        "Sun, 31 Feb 2026 12:00:00 GMT",
    ],
)
def test_a_date_in_another_form_is_found(hops: Hops, written: str) -> None:
    def dated(message: HttpMessage) -> HttpMessage:
        fields = [
            (name, written if name == "Date" else value)
            for name, value in message.fields
        ]
        return replace(message, fields=tuple(fields))

    for hop in ("near", "far"):
        assert respelt(hops, "streamed", (hop, -1, "response"), dated)


def test_a_request_of_no_class_is_found(hops: Hops) -> None:
    def longer(message: HttpMessage) -> HttpMessage:
        return with_pieces(message, [message.body + b"x"])

    def shorter(message: HttpMessage) -> HttpMessage:
        return with_pieces(message, [message.body[:-1]])

    def other_suite(message: HttpMessage) -> HttpMessage:
        # ChaCha20-Poly1305 is offered too, and would mark a client of its own.
        return with_pieces(message, [message.body[:6] + b"\3" + message.body[7:]])

    def other_key(message: HttpMessage) -> HttpMessage:
        return with_pieces(message, [bytes([message.body[0] ^ 1]) + message.body[1:]])

    for hop in ("near", "far"):
        for change in (longer, shorter, other_suite, other_key):
            wrong = respelt(hops, "streamed", (hop, -1, "request"), change)
            assert wrong, f"{hop} {change.__name__}"


def test_an_answer_of_another_shape_is_found(hops: Hops) -> None:
    def one_frame_less(message: HttpMessage) -> HttpMessage:
        return with_pieces(message, [*message.pieces[:1], *message.pieces[2:]])

    def one_frame_shorter(message: HttpMessage) -> HttpMessage:
        first, second, *rest = message.pieces
        cut = (0x4000 | (len(second) - 3)).to_bytes(2, "big") + second[2:-1]
        return with_pieces(message, [first, cut, *rest])

    def one_byte_more(message: HttpMessage) -> HttpMessage:
        return with_pieces(message, [*message.pieces, b"x"])

    def wide_length(message: HttpMessage) -> HttpMessage:
        first, second, *rest = message.pieces
        wide = (0x8000_0000 | (len(second) - 2)).to_bytes(4, "big") + second[2:]
        return with_pieces(message, [first, wide, *rest])

    changes = (one_frame_less, one_frame_shorter, one_byte_more, wide_length)
    for hop in ("near", "far"):
        for change in changes:
            wrong = respelt(hops, "streamed", (hop, -1, "response"), change)
            assert wrong, f"{hop} {change.__name__}"


def test_frames_that_were_merged_are_found(hops: Hops) -> None:
    def merged(message: HttpMessage) -> HttpMessage:
        first, second, third, *rest = message.pieces
        return with_pieces(message, [first, second + third, *rest])

    assert respelt(hops, "streamed", ("far", -1, "response"), merged)


@pytest.mark.parametrize(
    ("kind", "place"),
    [
        ("bundle", ("near", 0, "response")),
        ("key list", ("near", 0, "response")),
        ("pool", ("near", 0, "response")),
        ("pool's key lists", ("near", 0, "response")),
        ("plain", ("near", 0, "response")),
        ("does not open", ("near", 0, "response")),
        ("does not open", ("far", 0, "response")),
        ("wrong type", ("near", 0, "response")),
    ],
)
def test_another_content_is_found(hops: Hops, kind: str, place: Place) -> None:
    def other(message: HttpMessage) -> HttpMessage:
        return with_pieces(message, [message.body + b" "])

    assert respelt(hops, kind, place, other)


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 200 OK\r\nA: b\r\n",
        b"HTTP/1.1 200 OK\r\nA:b\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nx",
        b"HTTP/1.1 200 OK\r\n\r\nmore",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;a=7\r\nx\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA: b\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nContent-Length: 0\r\n\r\n",
    ],
)
def test_bytes_without_a_meaning_are_found(data: bytes) -> None:
    with pytest.raises(StreamError):
        read_responses(data)
