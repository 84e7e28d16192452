"""Events as their specification says, cut anywhere."""

from functools import partial

import pytest
from hypothesis import given

from curtilage.client.chat.event_stream import EventParser
from curtilage.client.errors import EnclaveError
from curtilage.client.remote.reasons import EnclaveFailure
from support.cuts import PLACES, cut

BROKEN = partial(EnclaveError, EnclaveFailure.ANSWER_BROKEN)


def parsed(pieces: list[bytes]) -> list[bytes]:
    parser = EventParser(BROKEN, most_bytes=100)
    return [event for piece in pieces for event in parser.push(piece)]


@pytest.mark.parametrize(
    ("text", "events"),
    [
        # After the examples of the HTML standard, section 9.2.6.
        (b"data: YHOO\ndata: +2\ndata: 10\n\n", [b"YHOO\n+2\n10"]),
        (
            b": test\n\ndata: first\nid: 1\n\ndata:second\nid\n\ndata:  third\n\n",
            [b"first", b"second", b" third"],
        ),
        (b"data\n\ndata\ndata\n\ndata:", [b"", b"\n"]),
        (b"data:test\n\ndata: test\n\n", [b"test", b"test"]),
        # Endings, comments, a byte order mark, an event cut short.
        (b"data: a\r\n\r\ndata: b\r\rdata: c\n\n", [b"a", b"b", b"c"]),
        (b"\xef\xbb\xbfdata: a\n\n", [b"a"]),
        (b":\n\n:    \n\n\n\n\n:x\ndata: a\n\n:\n", [b"a"]),
        (b"data: a\n", []),
        (b"event: x\nid: 7\nretry: 10\nodd: y\n\n", []),
    ],
)
@given(places=PLACES)
def test_events_are_parsed_as_the_standard_says(
    text: bytes, events: list[bytes], places: list[int]
) -> None:
    assert parsed([text]) == events
    assert parsed(cut(text, places)) == events


@pytest.mark.parametrize(
    "pieces",
    [
        [b"data: " + b"x" * 100],
        [b"data: ", *[b"x"] * 100],
        [b"data: 1234567890\n"] * 20,
        [b"data: 1234567890\n" * 20],
        [b":" + b"x" * 100],
    ],
)
def test_an_event_without_end_is_refused(pieces: list[bytes]) -> None:
    with pytest.raises(EnclaveError) as refused:
        parsed(pieces)
    assert refused.value.reason is EnclaveFailure.ANSWER_BROKEN


def test_filler_is_not_held() -> None:
    assert parsed([b":" + b"x" * 50 + b"\n\n"] * 20) == []
