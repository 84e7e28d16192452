import copy
from collections.abc import Callable, Collection, Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curtilage.wire.chunked import (
    MAX_CHUNK_BYTES,
    MAX_SMALL_CHUNKS,
    ChunkedRequestOpener,
    ChunkedResponseOpener,
    ChunkedResponseSealer,
    SealedChunkedRequest,
    open_chunked_request,
    seal_chunked_request,
    seal_request_chunks,
)
from curtilage.wire.encapsulation import (
    CHUNKED_LABELS,
    GatewayKey,
    begin_request,
)
from curtilage.wire.errors import (
    ConsumedError,
    LimitExceededError,
    MalformedError,
    OpenError,
    TruncatedError,
    UnknownKeyError,
    WireError,
)
from curtilage.wire.hpke.suite import (
    KEM_X25519,
    SUITES,
    SenderContext,
    Suite,
    generate_private_key,
)
from curtilage.wire.keyconfig import KeyConfig, SymmetricAlgorithms
from curtilage.wire.varint import encode_varint, encode_vector
from support.samples import Sample


def gateway_key() -> GatewayKey:
    private_key = generate_private_key(KEM_X25519)
    config = KeyConfig(
        key_id=1,
        kem_id=KEM_X25519,
        public_key=private_key.public_key,
        algorithms=(
            SymmetricAlgorithms(kdf_id=1, aead_id=1),
            SymmetricAlgorithms(kdf_id=1, aead_id=3),
        ),
    )
    return GatewayKey(config=config, private_key=private_key)


KEY = gateway_key()
KEYS = {1: KEY}
EPHEMERAL = generate_private_key(KEM_X25519)
BHTTP = b"a request of 27 bytes here"
LIMIT_BYTES = 2**20
X25519_SUITES = tuple(suite for suite in SUITES if suite.kem_id == KEM_X25519)
by_suite = pytest.mark.parametrize(
    "suite", X25519_SUITES, ids=lambda suite: f"aead{suite.aead_id}"
)


def seal(suite: Suite = X25519_SUITES[0]) -> SealedChunkedRequest:
    """Seal the same request each time, so that openers can be had again."""
    return seal_chunked_request(KEY.config, BHTTP, suite=suite, ephemeral=EPHEMERAL)


def exchange(
    suite: Suite = X25519_SUITES[0],
) -> tuple[SealedChunkedRequest, ChunkedResponseSealer]:
    sealed = seal(suite)
    bhttp, sealer = open_chunked_request(KEYS, sealed.message)
    assert bhttp == BHTTP
    return sealed, sealer


def respond(sealer: ChunkedResponseSealer, *chunks: bytes, last: bytes = b"") -> bytes:
    parts = [sealer.begin(), *map(sealer.seal, chunks), sealer.finish(last)]
    return b"".join(parts)


def open_all(opener: ChunkedResponseOpener, pieces: Iterable[bytes]) -> list[bytes]:
    plaintexts = [plaintext for piece in pieces for plaintext in opener.push(piece)]
    return [*plaintexts, opener.finish()]


def receive(pieces: Iterable[bytes]) -> bytes:
    opener = ChunkedRequestOpener(KEYS, limit_bytes=LIMIT_BYTES)
    plaintexts = [plaintext for piece in pieces for plaintext in opener.push(piece)]
    return b"".join([*plaintexts, opener.finish()])


def octets(data: bytes) -> Iterable[bytes]:
    return (bytes([octet]) for octet in data)


def flips(
    message: bytes, sample: Sample, edges: Collection[int] = ()
) -> Iterable[bytes]:
    for place in sample(range(len(message)), edges=(*range(8), *edges)):
        for bit in range(8):
            flipped = bytes([message[place] ^ 1 << bit])
            yield message[:place] + flipped + message[place + 1 :]


def handmade(build: Callable[[SenderContext], bytes]) -> bytes:
    """Make a request with a real context and chunks as a test wants them."""
    prefix, context, _ = begin_request(
        KEY.config, CHUNKED_LABELS, suite=X25519_SUITES[0], ephemeral=None
    )
    return prefix + build(context)


def chunk(context: SenderContext, plaintext: bytes, aad: bytes = b"") -> bytes:
    return encode_vector(context.seal(plaintext, aad))


def final(
    context: SenderContext, plaintext: bytes = b"", aad: bytes = b"final"
) -> bytes:
    return b"\x00" + context.seal(plaintext, aad)


# Round trips.


@by_suite
def test_round_trip(suite: Suite) -> None:
    sealed, sealer = exchange(suite)
    response = respond(sealer, b"one", b"two", last=b"three")
    assert open_all(sealed.opener, [response]) == [b"one", b"two", b"three"]
    assert len(response) == suite.nk + 2 * (1 + 3 + 16) + 1 + 5 + 16


@given(
    st.binary(max_size=400),
    st.integers(min_value=1, max_value=500),
    st.lists(st.binary(min_size=1, max_size=50), max_size=6),
    st.binary(max_size=50),
)
def test_round_trip_whole_and_byte_by_byte(
    bhttp: bytes, chunk_bytes: int, chunks: list[bytes], last: bytes
) -> None:
    sealed, twin = (
        seal_chunked_request(
            KEY.config, bhttp, chunk_bytes=chunk_bytes, ephemeral=EPHEMERAL
        )
        for _ in range(2)
    )
    assert open_chunked_request(KEYS, sealed.message)[0] == bhttp
    opener = ChunkedRequestOpener(KEYS, limit_bytes=LIMIT_BYTES)
    plaintexts = [p for octet in octets(sealed.message) for p in opener.push(octet)]
    assert b"".join([*plaintexts, opener.finish()]) == bhttp
    response = respond(opener.sealer(), *chunks, last=last)
    assert open_all(twin.opener, [response]) == [*chunks, last]
    assert open_all(sealed.opener, octets(response)) == [*chunks, last]


def test_chunks_come_out_as_soon_as_they_are_complete() -> None:
    sealed, sealer = exchange()
    opener = sealed.opener
    assert opener.push(sealer.begin()) == []
    first = sealer.seal(b"one")
    assert opener.push(first[:-1]) == []
    assert opener.push(first[-1:]) == [b"one"]
    assert opener.push(sealer.finish(b"end")) == []
    assert opener.finish() == b"end"


@pytest.mark.parametrize(
    ("length", "sizes"),
    [(0, [0]), (1, [1]), (10, [10]), (11, [10, 1]), (20, [10, 10])],
)
def test_request_is_cut_into_chunks(length: int, sizes: list[int]) -> None:
    sealed = seal_chunked_request(KEY.config, bytes(length), chunk_bytes=10)
    opener = ChunkedRequestOpener(KEYS, limit_bytes=LIMIT_BYTES)
    plaintexts = [*opener.push(sealed.message), opener.finish()]
    assert [len(plaintext) for plaintext in plaintexts] == sizes


@by_suite
def test_largest_chunks_pass(suite: Suite) -> None:
    sealed, sealer = exchange(suite)
    largest = bytes(MAX_CHUNK_BYTES)
    nonce, one, end = sealer.begin(), sealer.seal(largest), sealer.finish(largest)
    assert one[:4].hex() == "80004010"
    assert len(one) == 4 + 16_400
    assert open_all(sealed.opener, [nonce, one, end]) == [largest, largest]
    big = seal_chunked_request(KEY.config, bytes(100_000), suite=suite)
    assert open_chunked_request(KEYS, big.message)[0] == bytes(100_000)


def test_many_tiny_chunks_of_a_response_in_one_piece() -> None:
    count = 20_000
    sealed, sealer = exchange()
    opening = sealer.begin()
    tiny = b"".join(sealer.seal(b"x") for _ in range(count))
    pieces = sealed.opener.push(opening + tiny + sealer.finish())
    assert pieces == [b"x"] * count
    assert sealed.opener.finish() == b""


def chunks_of(count: int, octets: int) -> bytes:
    """A request of so many chunks, the final one included."""
    return handmade(
        lambda c: b"".join(chunk(c, bytes(octets)) for _ in range(count - 1)) + final(c)
    )


@pytest.mark.parametrize("octets", [1, 15])
def test_request_has_a_bounded_number_of_small_chunks(octets: int) -> None:
    message = chunks_of(MAX_SMALL_CHUNKS, octets)
    assert len(open_chunked_request(KEYS, message)[0]) >= octets * 63
    with pytest.raises(LimitExceededError, match="small chunks"):
        open_chunked_request(KEYS, chunks_of(MAX_SMALL_CHUNKS + 5, octets))


def test_request_may_have_as_many_chunks_as_it_is_long() -> None:
    message = chunks_of(1000, 1024)
    assert open_chunked_request(KEYS, message)[0][: 999 * 1024] == bytes(999 * 1024)


# Truncation and tampering.


@by_suite
def test_every_prefix_of_a_request_is_incomplete(suite: Suite, sample: Sample) -> None:
    message = seal_chunked_request(
        KEY.config, BHTTP, suite=suite, chunk_bytes=10
    ).message
    tag_is_here = len(message) - len(BHTTP) % 10
    edges = (7, 39, 66, 93, tag_is_here)
    for cut in sample(range(len(message)), edges=edges):
        # Once a whole tag can be there, truncation looks like a forgery.
        error = TruncatedError if cut < tag_is_here else OpenError
        with pytest.raises(error):
            open_chunked_request(KEYS, message[:cut])


@by_suite
def test_every_prefix_of_a_response_is_incomplete(suite: Suite, sample: Sample) -> None:
    _, sealer = exchange(suite)
    response = respond(sealer, b"one", b"two", last=b"end")
    for cut in sample(range(len(response)), edges=(suite.nk, len(response) - 3)):
        error = TruncatedError if cut < len(response) - 3 else OpenError
        with pytest.raises(error):
            open_all(seal(suite).opener, [response[:cut]])


def test_response_cut_at_a_chunk_boundary_is_incomplete() -> None:
    sealed, sealer = exchange()
    opener = sealed.opener
    assert opener.push(sealer.begin() + sealer.seal(b"one")) == [b"one"]
    with pytest.raises(TruncatedError):
        opener.finish()


@by_suite
def test_every_flipped_bit_of_a_request_is_refused(
    suite: Suite, sample: Sample
) -> None:
    message = seal_chunked_request(
        KEY.config, BHTTP, suite=suite, chunk_bytes=10
    ).message
    lengths = {39, 66}
    assert [message[place] for place in sorted(lengths)] == [26, 26]
    for flipped in flips(message, sample, (*lengths, 93, len(message) - 16)):
        place = next(
            i for i, (a, b) in enumerate(zip(flipped, message, strict=True)) if a != b
        )
        # A longer length prefix can only ask for bytes that never come.
        allowed: tuple[type[WireError], ...] = (OpenError,)
        if place == 0:
            allowed = (UnknownKeyError,)
        elif place in lengths or place == 93:
            allowed = (OpenError, TruncatedError, LimitExceededError)
        with pytest.raises(allowed):
            open_chunked_request(KEYS, flipped)


@by_suite
def test_every_flipped_bit_of_a_response_is_refused(
    suite: Suite, sample: Sample
) -> None:
    _, sealer = exchange(suite)
    response = respond(sealer, b"one", b"two", last=b"end")
    for flipped in flips(response, sample, (suite.nk, len(response) - 16)):
        with pytest.raises((OpenError, TruncatedError, LimitExceededError)):
            open_all(seal(suite).opener, [flipped])


def test_chunks_keep_their_order() -> None:
    _, sealer = exchange()
    nonce, one, two = sealer.begin(), sealer.seal(b"one"), sealer.seal(b"two")
    end = sealer.finish()
    assert open_all(seal().opener, [nonce, one, two, end]) == [b"one", b"two", b""]
    for order in (
        [nonce, two, one, end],
        [nonce, one, one, two, end],
        [nonce, two, end],
        [nonce, one, end],
        [nonce, end],
        [nonce, one, two, end, b"\x00"],
        [nonce, one, two, end, end],
    ):
        with pytest.raises(OpenError):
            open_all(seal().opener, order)


def test_response_to_another_request_is_refused() -> None:
    other = seal_chunked_request(KEY.config, BHTTP)
    _, sealer = exchange()
    with pytest.raises(OpenError):
        open_all(other.opener, [respond(sealer, b"one")])


Build = Callable[[SenderContext], bytes]
REFUSED: list[tuple[Build, type[WireError]]] = [
    (lambda _: b"", TruncatedError),
    (lambda c: chunk(c, b"x"), TruncatedError),
    (lambda _: b"\x00", TruncatedError),
    (lambda _: b"\x00" + bytes(15), TruncatedError),
    (lambda c: final(c, aad=b""), OpenError),
    (lambda c: chunk(c, b"x", b"final") + final(c), OpenError),
    (lambda c: chunk(c, b"") + final(c), OpenError),
    (lambda c: final(c) + chunk(c, b"x"), OpenError),
    (lambda _: b"\x01" + bytes(40), OpenError),
    (lambda _: b"\x0f" + bytes(40), OpenError),
    (lambda _: encode_varint(16_401), LimitExceededError),
    (lambda _: encode_varint(2**62 - 1), LimitExceededError),
    (lambda _: b"\x00" + bytes(16_401), LimitExceededError),
    (lambda c: chunk(c, bytes(MAX_CHUNK_BYTES + 1)) + final(c), LimitExceededError),
]


@pytest.mark.parametrize(
    ("build", "error"),
    REFUSED,
    ids=[
        "no-chunk",
        "no-final-chunk",
        "final-mark-alone",
        "final-without-tag",
        "final-not-marked",
        "chunk-marked-final",
        "empty-chunk-not-final",
        "data-after-final",
        "length-1",
        "length-15",
        "length-16401",
        "length-2^62-1",
        "final-16401",
        "plaintext-16385",
    ],
)
def test_request_refuses(build: Build, error: type[WireError]) -> None:
    message = handmade(build)
    with pytest.raises(error):
        open_chunked_request(KEYS, message)
    with pytest.raises(error):
        receive(octets(message))


def test_final_chunk_may_come_first() -> None:
    message = handmade(lambda c: final(c, b"all"))
    assert open_chunked_request(KEYS, message)[0] == b"all"


@pytest.mark.parametrize("width", [2, 4, 8])
def test_lengths_need_not_be_minimal(width: int) -> None:
    prefix = {2: 0x4000, 4: 0x80000000, 8: 0xC000000000000000}[width]

    def build(context: SenderContext) -> bytes:
        sealed = context.seal(b"abc", b"")
        long_form = (prefix | len(sealed)).to_bytes(width, "big")
        return long_form + sealed + prefix.to_bytes(width, "big") + final(context)[1:]

    assert open_chunked_request(KEYS, handmade(build))[0] == b"abc"


# Limits and order of calls.


def test_request_is_bounded_in_total() -> None:
    message = seal_chunked_request(KEY.config, bytes(1000)).message
    exact = ChunkedRequestOpener(KEYS, limit_bytes=len(message))
    exact.push(message)
    assert exact.finish() == bytes(1000)
    tight = ChunkedRequestOpener(KEYS, limit_bytes=len(message) - 1)
    tight.push(message[:-1])
    with pytest.raises(LimitExceededError):
        tight.push(message[-1:])
    with pytest.raises(ConsumedError):
        tight.finish()


def test_response_is_bounded_in_total() -> None:
    prefix, context, secret = begin_request(
        KEY.config, CHUNKED_LABELS, suite=None, ephemeral=None
    )
    _, sealer = open_chunked_request(KEYS, prefix + final(context))
    opener = ChunkedResponseOpener(secret, limit_bytes=40)
    with pytest.raises(LimitExceededError):
        opener.push(respond(sealer, b"one", b"two"))


def test_unknown_key_is_reported_separately() -> None:
    message = seal_chunked_request(KEY.config, BHTTP).message
    with pytest.raises(UnknownKeyError):
        open_chunked_request({}, message)
    with pytest.raises(OpenError):
        open_chunked_request({1: gateway_key()}, message)
    with pytest.raises(OpenError):
        open_chunked_request(KEYS, b"\x01\x00\x10" + message[3:])
    with pytest.raises(OpenError):
        open_chunked_request(KEYS, message[:7] + bytes(32) + message[39:])


def test_opener_failure_is_final() -> None:
    sealed, sealer = exchange()
    nonce, one, end = sealer.begin(), sealer.seal(b"one"), sealer.finish()
    opener = sealed.opener
    opener.push(nonce)
    with pytest.raises(OpenError):
        opener.push(one[:-1] + bytes([one[-1] ^ 1]))
    for piece in (one, end, b""):
        with pytest.raises(ConsumedError):
            opener.push(piece)
    with pytest.raises(ConsumedError):
        opener.finish()


def test_openers_work_once() -> None:
    sealed, sealer = exchange()
    open_all(sealed.opener, [respond(sealer)])
    with pytest.raises(ConsumedError):
        sealed.opener.push(b"")
    with pytest.raises(ConsumedError):
        sealed.opener.finish()


def test_sealer_exists_once_and_only_for_a_complete_request() -> None:
    message = seal_chunked_request(KEY.config, BHTTP).message
    opener = ChunkedRequestOpener(KEYS, limit_bytes=LIMIT_BYTES)
    opener.push(message)
    with pytest.raises(ConsumedError):
        opener.sealer()
    opener.finish()
    opener.sealer()
    with pytest.raises(ConsumedError):
        opener.sealer()


def test_no_sealer_for_a_request_that_failed() -> None:
    opener = ChunkedRequestOpener(KEYS, limit_bytes=LIMIT_BYTES)
    opener.push(seal_chunked_request(KEY.config, BHTTP).message[:-1])
    with pytest.raises(OpenError):
        opener.finish()
    with pytest.raises(ConsumedError):
        opener.sealer()


def test_response_sealer_keeps_its_order() -> None:
    _, sealer = exchange()
    with pytest.raises(ConsumedError):
        sealer.seal(b"x")
    with pytest.raises(ConsumedError):
        sealer.finish()
    sealer.begin()
    with pytest.raises(ConsumedError):
        sealer.begin()
    sealer.finish()
    with pytest.raises(ConsumedError):
        sealer.begin()
    with pytest.raises(ConsumedError):
        sealer.seal(b"x")
    with pytest.raises(ConsumedError):
        sealer.finish()


def test_response_sealer_bounds_its_chunks() -> None:
    _, sealer = exchange()
    sealer.begin()
    with pytest.raises(MalformedError):
        sealer.seal(b"")
    with pytest.raises(LimitExceededError):
        sealer.seal(bytes(MAX_CHUNK_BYTES + 1))
    with pytest.raises(LimitExceededError):
        sealer.finish(bytes(MAX_CHUNK_BYTES + 1))


def test_response_sealer_refuses_a_nonce_of_another_length() -> None:
    _, sealer = exchange()
    with pytest.raises(MalformedError):
        sealer.begin(random=lambda count: bytes(count + 1))


def test_messages_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    _, sealer = exchange()
    sealer.begin()
    monkeypatch.setattr("curtilage.wire.chunked.MAX_MESSAGE_BYTES", 10)
    sealer.seal(bytes(10))
    with pytest.raises(LimitExceededError):
        sealer.seal(b"x")
    with pytest.raises(LimitExceededError):
        seal_chunked_request(KEY.config, bytes(11))


@pytest.mark.parametrize("chunk_bytes", [-1, 0, MAX_CHUNK_BYTES + 1])
def test_seal_chunked_request_refuses_chunk_sizes(chunk_bytes: int) -> None:
    with pytest.raises(MalformedError):
        seal_chunked_request(KEY.config, BHTTP, chunk_bytes=chunk_bytes)


def test_seal_request_chunks_refuses_what_receivers_would() -> None:
    for chunks in ([], [b"", b"x"], [b"x", b"", b""]):
        with pytest.raises(MalformedError):
            seal_request_chunks(KEY.config, chunks)
    with pytest.raises(LimitExceededError):
        seal_request_chunks(KEY.config, [bytes(MAX_CHUNK_BYTES + 1)])


def test_nothing_is_copied_or_shown() -> None:
    sealed, sealer = exchange()
    opener = ChunkedRequestOpener(KEYS, limit_bytes=LIMIT_BYTES)
    for thing in (sealed.opener, sealer, opener):
        with pytest.raises(TypeError):
            copy.copy(thing)
    assert sealed.message.hex() not in repr(sealed)


@settings(max_examples=300)
@given(st.binary(max_size=200))
def test_any_bytes_give_plaintext_or_a_wire_error(data: bytes) -> None:
    prefix = seal_chunked_request(KEY.config, BHTTP).message[:39]
    for message in (data, prefix + data):
        with pytest.raises(WireError):
            open_chunked_request(KEYS, message)
    with pytest.raises(WireError):
        open_all(exchange()[0].opener, [data])
