"""The parsers of ``curtilage.wire``: bytes that anybody may send.

What seals is given ready keys, so that a found input stays one.
"""

from collections.abc import Callable, Generator, Iterator
from functools import partial
from typing import Final

from fuzz.common import Harness

from curtilage.wire.bhttp import (
    ContentChunk,
    Request,
    RequestDecoder,
    RequestEvent,
    Response,
    ResponseDecoder,
    ResponseEvent,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
    encode_response_head,
)
from curtilage.wire.chunked import (
    MAX_CHUNK_BYTES,
    ChunkedRequestOpener,
    ChunkedResponseOpener,
)
from curtilage.wire.cursor import Cursor, PushParser, ReceiveBuffer
from curtilage.wire.encapsulation import (
    CHUNKED_LABELS,
    GatewayKey,
    begin_request,
)
from curtilage.wire.errors import (
    ConsumedError,
    LimitExceededError,
    OpenError,
    TruncatedError,
    WireError,
)
from curtilage.wire.frames import AnswerFramer, Frame, FrameCheck, fill_json
from curtilage.wire.hpke.suite import (
    KEM_X25519,
    KEM_XWING,
    private_key_from_bytes,
)
from curtilage.wire.keyconfig import (
    KeyConfig,
    SymmetricAlgorithms,
    encode_key_configs,
    parse_key_configs,
)
from curtilage.wire.ohttp import open_request, seal_request
from curtilage.wire.shaping import TransportParameters, parse_transport_parameters
from curtilage.wire.varint import (
    encode_varint,
    encode_vector,
    pull_varint,
    read_varint,
)

LIMIT_BYTES: Final = 2**17
FINAL: Final = b"final"


def gateway_key(key_id: int, kem_id: int) -> GatewayKey:
    """Return a key that is the same in every run."""
    private_key = private_key_from_bytes(kem_id, bytes([key_id]) * 32)
    pairs = tuple(SymmetricAlgorithms(kdf_id=1, aead_id=aead) for aead in (1, 3))
    config = KeyConfig(
        key_id=key_id,
        kem_id=kem_id,
        public_key=private_key.public_key,
        algorithms=pairs,
    )
    return GatewayKey(config=config, private_key=private_key)


KEYS: Final = {1: gateway_key(1, KEM_X25519), 2: gateway_key(2, KEM_XWING)}
CONFIG: Final = KEYS[1].config
SMALL: Final = TransportParameters(
    frame_bytes=64, period_ms=1, first_bucket=2, buckets=6
)


def pieces(data: bytes) -> Iterator[bytes]:
    """Cut an input at places that depend on its length alone."""
    step = len(data) % 11 + 1
    return (data[start : start + step] for start in range(0, len(data), step))


def outcome(call: Callable[[], object]) -> object:
    """Return what a call returns, or the kind of its refusal."""
    try:
        return call()
    except WireError as error:
        return type(error)


def check_varint(data: bytes) -> None:
    """Whole and in pieces alike; what is encoded is read back, and no longer."""

    def pulled() -> object:
        buffer = ReceiveBuffer(limit_bytes=len(data))

        def steps() -> Generator[int | None, None, None]:
            yield (yield from pull_varint(buffer))

        parser = PushParser(buffer, steps())
        for piece in pieces(data):
            if found := parser.push(piece):
                return found[0]
        return parser.finish()[0]

    cursor = Cursor(data)
    whole = outcome(lambda: read_varint(cursor))
    assert whole == outcome(pulled)
    if isinstance(whole, int):
        shortest = encode_varint(whole)
        assert len(shortest) <= len(data) - cursor.remaining
        assert read_varint(Cursor(shortest)) == whole


def check_bhttp_request(data: bytes) -> None:
    """A message or a WireError; whole as in pieces; encoded again, the same."""

    def streamed(parts: Iterator[bytes]) -> object:
        decoder = RequestDecoder(explicit_end=False)
        events: list[RequestEvent] = []
        for piece in parts:
            events += decoder.push(piece)
        events += decoder.finish()
        return joined(events)

    whole = outcome(lambda: streamed(iter([data])))
    assert whole == outcome(lambda: streamed(pieces(data)))
    request = outcome(lambda: decode_request(data))
    assert isinstance(request, Request) == (not isinstance(whole, type))
    if isinstance(request, Request):
        again = decode_request(encode_request(request))
        assert decode_request(encode_request(again)) == again
        assert (again.method, again.path) == (request.method, request.path)
        assert again.content == request.content


def check_bhttp_response(data: bytes) -> None:
    """A message or a WireError; whole as in pieces; encoded again, the same."""

    def streamed(parts: Iterator[bytes]) -> object:
        decoder = ResponseDecoder(explicit_end=False)
        events: list[ResponseEvent] = []
        for piece in parts:
            events += decoder.push(piece)
        events += decoder.finish()
        return joined(events)

    whole = outcome(lambda: streamed(iter([data])))
    assert whole == outcome(lambda: streamed(pieces(data)))
    response = outcome(lambda: decode_response(data))
    assert isinstance(response, Response) == (not isinstance(whole, type))
    if isinstance(response, Response):
        again = decode_response(encode_response(response))
        assert decode_response(encode_response(again)) == again
        assert again.status == response.status
        assert again.content == response.content


def joined(events: list[RequestEvent] | list[ResponseEvent]) -> object:
    content = b"".join(e.data for e in events if isinstance(e, ContentChunk))
    return [e for e in events if not isinstance(e, ContentChunk)], content


def check_key_configs(data: bytes) -> None:
    """A list or a WireError; encoded again, the same list."""
    configs = outcome(lambda: parse_key_configs(data))
    if not isinstance(configs, type):
        known = parse_key_configs(data)
        assert parse_key_configs(encode_key_configs(known)) == known


def check_plain_request(data: bytes) -> None:
    """Nothing that was not sealed to the key opens."""
    assert isinstance(outcome(lambda: open_request(KEYS, data)), type)


def check_plain_response(data: bytes) -> None:
    """Nothing that was not sealed to this request opens."""
    opener = seal_request(CONFIG, b"").opener
    assert outcome(lambda: opener.open(data)) in {OpenError, TruncatedError}
    assert outcome(lambda: opener.open(data)) is ConsumedError


def check_chunked_request(data: bytes) -> None:
    """Nothing that was not sealed to the key opens; whole as in pieces."""

    def opened(parts: Iterator[bytes]) -> object:
        opener = ChunkedRequestOpener(KEYS, limit_bytes=LIMIT_BYTES)
        for piece in parts:
            opener.push(piece)
        return opener.finish()

    whole = outcome(lambda: opened(iter([data])))
    assert whole == outcome(lambda: opened(pieces(data)))
    assert isinstance(whole, type)


# A body behind a valid head, as a program: each step one byte for what, one for how
# much, so that the fuzzer gets past the AEAD.


class Body:
    """Builds one chunked body, and knows the correct result.

    Attributes:
        honest: nothing but chunks in order and one end.
        raw: octets stand in it that were not sealed; some of them are honest
            as well, such as a longer form of a length.
    """

    def __init__(self, seal: Callable[[bytes, bytes], bytes]) -> None:
        self.seal = seal
        self.message = b""
        self.plaintext = b""
        self.honest = True
        self.raw = False
        self.over = False
        self._gap = False

    def step(self, what: int, count: int, follows: bytes) -> None:
        """Append one part, and determine the result."""
        if what < 4:
            good = what == 1 or (what == 0 and count > 0)
            self.honest = self.honest and good and not self.over and not self._gap
            self._seal(what, bytes(count))
        elif what == 4 and follows[:count]:
            self.raw = True
            self.message += follows[:count]
        elif what == 5:
            self._gap = True
            self.seal(b"dropped", b"")
        elif what == 6:
            self.raw = True
            self.message += encode_varint(count << 8) + bytes(count)

    def _seal(self, what: int, plaintext: bytes) -> None:
        sealed = self.seal(plaintext, FINAL if what in {1, 2} else b"")
        if what < 2:
            self.plaintext += plaintext
        if what in {0, 2}:
            self.message += encode_vector(sealed)
        else:
            self.message += b"\0" + sealed
            self.over = True

    def run(self, program: bytes) -> None:
        """Run a program of at most 20 steps."""
        for start in range(0, min(len(program) - 1, 40), 2):
            self.step(program[start] % 7, program[start + 1], program[start + 2 :])


def check_body(
    body: Body, head: bytes, make: Callable[[], Callable[[Iterator[bytes]], object]]
) -> None:
    message = head + body.message
    whole = outcome(lambda: make()(iter([message])))
    assert whole == outcome(lambda: make()(pieces(message)))
    if isinstance(whole, bytes):
        assert body.over
        assert body.honest
        assert whole == body.plaintext
    else:
        assert body.raw or not (body.honest and body.over)


def opened_by(
    opener: ChunkedRequestOpener | ChunkedResponseOpener,
) -> Callable[[Iterator[bytes]], object]:
    def opened(parts: Iterator[bytes]) -> object:
        plaintexts = [p for piece in parts for p in opener.push(piece)]
        plaintexts.append(opener.finish())
        assert all(len(plaintext) <= MAX_CHUNK_BYTES for plaintext in plaintexts)
        return b"".join(plaintexts)

    return opened


def check_chunked_request_body(data: bytes) -> None:
    """What was sealed in order comes out; anything else is a WireError."""
    head, context, _ = begin_request(CONFIG, CHUNKED_LABELS, suite=None, ephemeral=None)
    body = Body(context.seal)
    body.run(data)
    check_body(
        body,
        head,
        lambda: opened_by(ChunkedRequestOpener(KEYS, limit_bytes=LIMIT_BYTES)),
    )


def check_chunked_response_body(data: bytes) -> None:
    """What was sealed in order comes out; anything else is a WireError."""
    _, _, secret = begin_request(CONFIG, CHUNKED_LABELS, suite=None, ephemeral=None)
    nonce = bytes(secret.nonce_bytes)
    keys = secret.keys(nonce)
    counter = iter(range(256))
    body = Body(lambda plaintext, aad: keys.seal(next(counter), plaintext, aad))
    body.run(data)
    check_body(body, nonce, lambda: opened_by(ChunkedResponseOpener(secret)))


def check_transport_parameters(data: bytes) -> None:
    """Parameters or a WireError; there is one encoding of each."""
    found = outcome(lambda: parse_transport_parameters(data))
    if isinstance(found, TransportParameters):
        assert found.encode() == data
        assert found.max_frames * found.frame_bytes <= 2**30


def check_frames(data: bytes) -> None:
    """What was written comes out in order, in equal frames that fill a bucket."""
    head = encode_response_head(200, ((b"a", b"v" * (data[0] % 58 if data else 0)),))
    framer = AnswerFramer(SMALL, head, filler=fill_json)
    frames: list[Frame] = []
    written = b""
    for octet in data[1:]:
        unit = b"x" * octet
        if octet < 128 and framer.sent < SMALL.max_frames - 1:
            frames.append(framer.next())
        elif outcome(partial(framer.write, unit)) is not LimitExceededError:
            written += unit
    framer.end()
    while not framer.over:
        frames.append(framer.next())
    check = FrameCheck(SMALL)
    for frame in frames[:-1]:
        check.chunk(len(frame.plaintext))
    check.finish(len(frames[-1].plaintext))
    content = decode_response(b"".join(f.plaintext for f in frames)).content
    assert content.replace(b" ", b"") == written


def check_frame_check(data: bytes) -> None:
    """Only equal frames that fill a bucket pass."""
    lengths = [64 if octet & 15 else octet for octet in data]

    def passed() -> bool:
        check = FrameCheck(SMALL)
        for length in lengths:
            check.chunk(length)
        check.finish(64)
        return True

    good = set(lengths) <= {64} and len(lengths) + 1 in {2 << k for k in range(6)}
    assert (outcome(passed) is True) == good


HARNESSES: Final = (
    Harness(name="varint", check=check_varint, max_bytes=64),
    Harness(name="bhttp_request", check=check_bhttp_request),
    Harness(name="bhttp_response", check=check_bhttp_response),
    Harness(name="key_configs", check=check_key_configs),
    Harness(name="plain_request", check=check_plain_request),
    Harness(name="plain_response", check=check_plain_response),
    Harness(name="chunked_request", check=check_chunked_request),
    Harness(name="chunked_request_body", check=check_chunked_request_body),
    Harness(name="chunked_response_body", check=check_chunked_response_body),
    Harness(
        name="transport_parameters", check=check_transport_parameters, max_bytes=64
    ),
    Harness(name="frames", check=check_frames, max_bytes=512),
    Harness(name="frame_check", check=check_frame_check, max_bytes=256),
)
