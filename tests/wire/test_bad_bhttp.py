"""Every line of the bad-input list on binary HTTP gets the answer due to it."""

from collections.abc import Callable

import pytest

from curtilage.wire.bhttp import (
    RequestDecoder,
    ResponseDecoder,
    decode_request,
    decode_response,
)
from curtilage.wire.errors import WireError
from support.bad_bhttp import Line, requests, responses
from support.examples import examples

PIECE_BYTES = 4096


def answer(parse: Callable[[], object]) -> type[WireError] | None:
    try:
        parse()
    except WireError as error:
        return type(error)
    return None


def in_pieces(decoder: RequestDecoder | ResponseDecoder, data: bytes) -> None:
    # Byte by byte where that is short, for a mark may stand anywhere.
    step = 1 if len(data) <= PIECE_BYTES else PIECE_BYTES
    for start in range(0, len(data), step):
        decoder.push(data[start : start + step])
    decoder.finish()


@examples("line", requests())
def test_request(line: Line) -> None:
    decoder = RequestDecoder(explicit_end=False)
    assert answer(lambda: decode_request(line.data)) is line.error
    assert answer(lambda: in_pieces(decoder, line.data)) is line.error


@examples("line", responses())
def test_response(line: Line) -> None:
    decoder = ResponseDecoder(explicit_end=False)
    assert answer(lambda: decode_response(line.data)) is line.error
    assert answer(lambda: in_pieces(decoder, line.data)) is line.error


def test_names_of_the_lines_are_their_own() -> None:
    for table in (requests(), responses()):
        names = [line.name for line in table]
        assert len(set(names)) == len(names)


def test_message_is_bounded_before_it_is_looked_at() -> None:
    decoder = RequestDecoder()
    with pytest.raises(WireError, match="16777216"):
        decoder.push(bytes(16 * 1024 * 1024 + 1))
