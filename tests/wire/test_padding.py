import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curtilage.wire.bhttp import Request, decode_request, encode_request
from curtilage.wire.chunked import open_chunked_request
from curtilage.wire.errors import LimitExceededError, UnsupportedError
from curtilage.wire.hpke.suite import (
    AEAD_CHACHA20_POLY1305,
    SUITES,
    Suite,
)
from curtilage.wire.keyconfig import KeyConfig, SymmetricAlgorithms
from curtilage.wire.padding import (
    SIZE_CLASSES,
    capacity,
    seal_padded_request,
    size_class,
)
from support.wire_keys import KEYS, LIVE

every_suite = pytest.mark.parametrize("suite", SUITES, ids=str)

# Around everything that happens to a request's length: the classes' ends, the
# chunks' ends, and the lengths where a shorter length prefix would do.
EDGES = sorted(
    {
        octets
        for suite in SUITES
        for size in SIZE_CLASSES[:3]
        for end in (capacity(suite, size), size)
        for octets in range(end - 2, end + 3)
    }
    | {n for k in (1, 2, 3, 4) for n in range(16384 * k - 40, 16384 * k + 40, 5)}
)


def sealed(suite: Suite, octets: int, at_least: int = 0) -> bytes:
    config = KEYS[suite.kem_id].config
    bhttp = bytes(octets)
    return seal_padded_request(config, bhttp, suite=suite, at_least=at_least).message


@every_suite
@pytest.mark.parametrize("size", SIZE_CLASSES)
def test_capacity_seals_to_the_class_and_one_more_to_the_next(
    suite: Suite, size: int
) -> None:
    room = capacity(suite, size)
    assert size_class(suite, room) == size
    assert len(sealed(suite, room)) == size
    if size == SIZE_CLASSES[-1]:
        with pytest.raises(LimitExceededError):
            size_class(suite, room + 1)
    else:
        assert len(sealed(suite, room + 1)) == size * 4


@every_suite
def test_every_length_near_an_edge_seals_to_its_class(suite: Suite) -> None:
    for octets in EDGES:
        assert len(sealed(suite, octets)) == size_class(suite, octets), octets


@every_suite
@given(octets=st.integers(0, 70000))
@settings(max_examples=60)
def test_any_length_seals_to_its_class(suite: Suite, octets: int) -> None:
    assert len(sealed(suite, octets)) == size_class(suite, octets)


@every_suite
def test_every_length_of_a_class_has_its_class(suite: Suite) -> None:
    borders = [0, *(capacity(suite, size) + 1 for size in SIZE_CLASSES)]
    for size, low, high in zip(SIZE_CLASSES, borders, borders[1:], strict=False):
        assert {size_class(suite, low), size_class(suite, high - 1)} == {size}
        assert all(size_class(suite, n) == size for n in range(low, high, 97))


@every_suite
@pytest.mark.parametrize("content", [0, 1, 3500, 16384, 40000])
def test_gateway_reads_the_request_without_its_padding(
    suite: Suite, content: int
) -> None:
    request = Request(
        method=b"POST",
        scheme=b"https",
        authority=b"curtilage.invalid",
        path=b"/v1/chat/completions",
        fields=((b"content-type", b"application/json"),),
        content=b"c" * content,
    )
    config = KEYS[suite.kem_id].config
    message = seal_padded_request(config, encode_request(request), suite=suite).message
    plaintext, _ = open_chunked_request(LIVE, message)
    assert decode_request(plaintext) == request
    assert len(plaintext) == capacity(suite, len(message))


@every_suite
@pytest.mark.parametrize(
    ("at_least", "expected"),
    [(0, 4096), (4096, 4096), (4097, 16384), (65536, 65536), (1048576, 1048576)],
)
def test_at_least_raises_the_class(suite: Suite, at_least: int, expected: int) -> None:
    assert len(sealed(suite, 100, at_least)) == expected


def test_at_least_beyond_the_last_class_is_refused() -> None:
    with pytest.raises(LimitExceededError, match="no class"):
        sealed(SUITES[0], 100, SIZE_CLASSES[-1] + 1)


@every_suite
def test_request_beyond_the_last_class_is_refused(suite: Suite) -> None:
    with pytest.raises(LimitExceededError, match="1048576"):
        sealed(suite, capacity(suite, SIZE_CLASSES[-1]) + 1)


@every_suite
def test_without_a_suite_the_configs_first_is_taken(suite: Suite) -> None:
    key = KEYS[suite.kem_id]
    first = key.config.suites()[0]
    message = seal_padded_request(key.config, b"x").message
    assert message[1:7] == b"".join(
        number.to_bytes(2, "big")
        for number in (first.kem_id, first.kdf_id, first.aead_id)
    )


def test_suite_that_is_not_offered_is_refused() -> None:
    kem_id = SUITES[0].kem_id
    config = KEYS[kem_id].config
    only = KeyConfig(
        key_id=1,
        kem_id=kem_id,
        public_key=config.public_key,
        algorithms=(SymmetricAlgorithms(kdf_id=1, aead_id=1),),
    )
    other = Suite(kem_id=kem_id, kdf_id=1, aead_id=AEAD_CHACHA20_POLY1305)
    with pytest.raises(UnsupportedError):
        seal_padded_request(only, b"x", suite=other)
