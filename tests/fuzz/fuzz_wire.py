"""Any bytes give a value or a WireError, whole and in pieces alike.

Run ``python tests/fuzz/fuzz_wire.py --seconds 60``. Inputs are random bytes and
damaged valid messages, drawn from a seed that a failure prints; ``--seed`` runs
the same inputs again. Random bytes behind a true encapsulation reach what lies
beyond the AEAD.
"""

import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fuzz.common import Source, run

from curtilage.wire.bhttp import (
    ContentChunk,
    InformationalResponse,
    Request,
    RequestDecoder,
    Response,
    ResponseDecoder,
    decode_request,
    decode_response,
    encode_content_chunk,
    encode_content_end,
    encode_request,
    encode_response,
    encode_response_head,
)
from curtilage.wire.chunked import (
    ChunkedRequestOpener,
    open_chunked_request,
    seal_chunked_request,
)
from curtilage.wire.encapsulation import CHUNKED_LABELS, begin_request
from curtilage.wire.errors import WireError
from curtilage.wire.keyconfig import (
    KeyConfig,
    SymmetricAlgorithms,
    encode_key_configs,
    parse_key_config,
    parse_key_configs,
)
from curtilage.wire.ohttp import GatewayKey, open_request, seal_request
from curtilage.wire.suite import KEM_X25519, generate_private_key
from curtilage.wire.varint import encode_vector

MAX_INPUT_BYTES: Final = 400


def gateway_key() -> GatewayKey:
    private_key = generate_private_key(KEM_X25519)
    pairs = tuple(SymmetricAlgorithms(kdf_id=1, aead_id=aead) for aead in (1, 3))
    config = KeyConfig(
        key_id=1,
        kem_id=KEM_X25519,
        public_key=private_key.public_key,
        algorithms=pairs,
    )
    return GatewayKey(config=config, private_key=private_key)


KEY = gateway_key()
KEYS = {1: KEY}
FIELDS = ((b"content-type", b"text/plain"), (b"cookie", b"a=1"))


def valid_messages() -> list[bytes]:
    request = Request(
        method=b"POST",
        scheme=b"https",
        authority=b"a.invalid",
        path=b"/x",
        fields=FIELDS,
        content=b"content",
        trailers=((b"end", b"1"),),
    )
    interim = (InformationalResponse(status=103, fields=FIELDS),)
    response = Response(status=200, fields=FIELDS, informational=interim)
    known = encode_request(request)
    return [
        known,
        b"\x02" + known[1:],
        encode_response(response),
        encode_response_head(200, FIELDS)
        + encode_content_chunk(b"content")
        + encode_content_end(FIELDS),
        KEY.config.encode(),
        encode_key_configs([KEY.config]),
        seal_request(KEY.config, known).message,
        seal_chunked_request(KEY.config, known, chunk_bytes=20).message,
    ]


CORPUS: Final = valid_messages()


def replacement(source: Source, data: bytes) -> bytes:
    kind = source.below(4)
    if kind == 0 and data:
        return bytes([data[source.below(len(data))] ^ 1 << source.below(8)])
    if kind == 1:
        return bytes(source.below(8))
    if kind == 2:
        return source.octets(1) * 3
    return source.octets(source.below(8))


def mutated(source: Source, message: bytes) -> bytes:
    data = bytearray(message)
    for _ in range(1 + source.below(4)):
        place = source.below(len(data) + 1)
        cut = source.below(8)
        data[place : place + cut] = replacement(
            source, bytes(data[place : place + cut])
        )
    return bytes(data)


def make_input(source: Source) -> bytes:
    if source.below(4) == 0:
        return source.octets(source.below(MAX_INPUT_BYTES))
    return mutated(source, CORPUS[source.below(len(CORPUS))])


def in_pieces(source: Source, data: bytes) -> Iterator[bytes]:
    start = 0
    while start < len(data):
        step = 1 + source.below(9)
        yield data[start : start + step]
        start += step


def outcome(call: Callable[[], object]) -> object:
    try:
        return call()
    except WireError as error:
        return type(error)


def streamed(
    make: type[RequestDecoder | ResponseDecoder], pieces: Iterator[bytes]
) -> object:
    decoder = make()
    events: list[object] = []
    for piece in pieces:
        events += decoder.push(piece)
    events += decoder.finish()
    content = b"".join(e.data for e in events if isinstance(e, ContentChunk))
    return [e for e in events if not isinstance(e, ContentChunk)], content


def opened_in_pieces(pieces: Iterator[bytes]) -> bytes:
    opener = ChunkedRequestOpener(KEYS, limit_bytes=2**20)
    plaintexts = [plaintext for piece in pieces for plaintext in opener.push(piece)]
    return b"".join([*plaintexts, opener.finish()])


def check_agreement(source: Source, data: bytes) -> None:
    """Raise AssertionError if whole and pieces come to different ends."""
    for make in (RequestDecoder, ResponseDecoder):
        whole = outcome(partial(streamed, make, iter([data])))
        pieces = outcome(partial(streamed, make, in_pieces(source, data)))
        assert whole == pieces, make.__name__
    whole = outcome(lambda: open_chunked_request(KEYS, data)[0])
    pieces = outcome(lambda: opened_in_pieces(in_pieces(source, data)))
    assert whole == pieces, "chunked request"


def check(data: bytes, source: Source) -> None:
    """Try one input everywhere; anything but a WireError escapes."""
    for parse in (parse_key_config, parse_key_configs, decode_request, decode_response):
        outcome(partial(parse, data))
    outcome(lambda: open_request(KEYS, data))
    outcome(lambda: seal_request(KEY.config, b"").opener.open(data))
    check_agreement(source, data)
    prefix, context, _ = begin_request(
        KEY.config, CHUNKED_LABELS, suite=None, ephemeral=None
    )
    check_agreement(source, prefix + data)
    behind = prefix + encode_vector(context.seal(b"x", b"")) + data
    check_agreement(source, behind)


if __name__ == "__main__":
    sys.exit(run("fuzz_wire", check, make_input))
