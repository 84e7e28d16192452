from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curtilage.wire.chunked import seal_chunked_request
from curtilage.wire.errors import (
    LimitExceededError,
    MalformedError,
    TruncatedError,
    UnsupportedError,
    WireError,
)
from curtilage.wire.hpke.suite import KEM_X25519, KEM_XWING, generate_private_key
from curtilage.wire.keyconfig import (
    MAX_ENTRIES,
    KeyConfig,
    SymmetricAlgorithms,
    choose_suite,
    encode_key_configs,
    parse_key_config,
    parse_key_configs,
)
from curtilage.wire.ohttp import seal_request

AES = SymmetricAlgorithms(kdf_id=1, aead_id=1)
CHACHA = SymmetricAlgorithms(kdf_id=1, aead_id=3)
SHA384 = SymmetricAlgorithms(kdf_id=2, aead_id=2)
PUBLIC_KEY = bytes(range(32))


def config(key_id: int = 1, *algorithms: SymmetricAlgorithms) -> KeyConfig:
    return KeyConfig(
        key_id=key_id,
        kem_id=KEM_X25519,
        public_key=PUBLIC_KEY,
        algorithms=algorithms or (AES, CHACHA),
    )


def framed(entry: bytes) -> bytes:
    return len(entry).to_bytes(2, "big") + entry


def unknown_kem(key_id: int = 9, npk: int = 1184) -> bytes:
    # As in the wild: a draft KEM ahead of the one that everybody uses.
    return bytes([key_id]) + b"\x00\x30" + bytes(npk) + b"\x00\x04\x00\x01\x00\x01"


identifiers = st.integers(min_value=0, max_value=0xFFFF)
algorithms = st.builds(SymmetricAlgorithms, kdf_id=identifiers, aead_id=identifiers)


def configs_of(kem_id: int, npk: int) -> st.SearchStrategy[KeyConfig]:
    # Long keys by their beginning, so that examples stay small.
    keys = st.binary(min_size=32, max_size=32).map(lambda start: start.ljust(npk))
    return st.builds(
        KeyConfig,
        key_id=st.integers(min_value=0, max_value=255),
        kem_id=st.just(kem_id),
        public_key=keys,
        algorithms=st.lists(algorithms, max_size=5).map(lambda more: (AES, *more)),
    )


configs = configs_of(KEM_X25519, 32) | configs_of(KEM_XWING, 1216)


@given(configs)
def test_key_config_round_trip_and_prefixes(value: KeyConfig) -> None:
    encoded = value.encode()
    assert parse_key_config(encoded) == value
    # All the way for a short key; around the fields of a long one.
    for cut in (*range(min(60, len(encoded))), *range(1200, len(encoded))):
        with pytest.raises(TruncatedError):
            parse_key_config(encoded[:cut])


@given(st.lists(configs, min_size=1, max_size=5, unique_by=lambda c: c.key_id))
def test_key_list_round_trip_and_prefixes(values: list[KeyConfig]) -> None:
    encoded = encode_key_configs(values)
    assert parse_key_configs(encoded) == tuple(values)
    boundaries = {
        len(encode_key_configs(values[:count])): count for count in range(len(values))
    }
    step = 1 if len(encoded) < 500 else 11
    for cut in {*range(1, len(encoded), step), *boundaries} - {0}:
        if cut in boundaries:
            # A list that ends between two entries is a shorter list.
            found = parse_key_configs(encoded[:cut])
            assert found == tuple(values[: boundaries[cut]])
        else:
            with pytest.raises(TruncatedError):
                parse_key_configs(encoded[:cut])


@given(st.binary(max_size=200))
def test_any_bytes_give_a_list_or_a_wire_error(data: bytes) -> None:
    with suppress(WireError):
        parse_key_configs(data)


def test_choose_suite_follows_the_order_of_the_gateway() -> None:
    assert choose_suite(config(1, SHA384, CHACHA, AES)).aead_id == 3
    assert choose_suite(config(1, AES, CHACHA)).aead_id == 1


def test_choose_suite_refuses_what_we_do_not_speak() -> None:
    with pytest.raises(UnsupportedError):
        choose_suite(config(1, SHA384))


def test_unknown_kem_is_skipped() -> None:
    ours = config()
    data = framed(unknown_kem()) + framed(ours.encode())
    assert parse_key_configs(data) == (ours,)


def test_entry_without_usable_algorithms_is_skipped() -> None:
    ours = config(2)
    data = encode_key_configs([config(1, SHA384), ours])
    assert parse_key_configs(data) == (ours,)


@pytest.mark.parametrize(
    "data",
    [b"", framed(unknown_kem()), framed(config(1, SHA384).encode())],
    ids=["empty", "unknown-kem-only", "no-supported-algorithm"],
)
def test_key_list_refuses_when_nothing_is_usable(data: bytes) -> None:
    with pytest.raises(UnsupportedError):
        parse_key_configs(data)


ENTRY = config().encode()


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"\x00", TruncatedError),
        (b"\xff\xff" + ENTRY, TruncatedError),
        (framed(ENTRY) + b"\x00", TruncatedError),
        (framed(ENTRY) + b"\x00\x00", MalformedError),
        (framed(b""), MalformedError),
        (framed(ENTRY[:9]), MalformedError),
        (framed(ENTRY + b"\x00"), MalformedError),
        (framed(ENTRY[:-1]), MalformedError),
        (framed(ENTRY[:35] + b"\x00\x00"), MalformedError),
        (framed(ENTRY[:35] + b"\x00\x02\x00\x01"), MalformedError),
        (framed(ENTRY[:35] + b"\x00\x05\x00\x01\x00\x01\x00"), MalformedError),
        (framed(ENTRY[:35] + b"\x00\x06\x00\x01\x00\x01\x00\x01"), MalformedError),
        (framed(ENTRY[:35] + b"\x00\x08\x00\x01\x00\x01"), MalformedError),
        (framed(ENTRY) + framed(ENTRY), MalformedError),
        (framed(ENTRY) + framed(unknown_kem(1)), MalformedError),
        (ENTRY, WireError),
    ],
    ids=[
        "one-byte",
        "prefix-past-end",
        "trailing-byte",
        "empty-entry-behind",
        "entry-length-0",
        "entry-too-short",
        "entry-with-trailing-byte",
        "entry-cut",
        "algorithms-0",
        "algorithms-2",
        "algorithms-odd",
        "algorithms-6",
        "algorithms-past-end",
        "duplicate-key-id",
        "duplicate-key-id-of-an-unknown-kem",
        "bare-config",
    ],
)
def test_key_list_refuses(data: bytes, error: type[WireError]) -> None:
    with pytest.raises(error):
        parse_key_configs(data)


def test_one_error_discards_the_whole_list() -> None:
    with pytest.raises(MalformedError):
        parse_key_configs(framed(ENTRY) + framed(config(2).encode()[:-1]))


def test_key_list_is_bounded() -> None:
    eight = [config(key_id) for key_id in range(MAX_ENTRIES)]
    assert len(parse_key_configs(encode_key_configs(eight))) == MAX_ENTRIES
    nine = encode_key_configs(eight) + framed(config(MAX_ENTRIES).encode())
    with pytest.raises(LimitExceededError):
        parse_key_configs(nine)
    with pytest.raises(LimitExceededError):
        encode_key_configs([*eight, config(MAX_ENTRIES)])
    with pytest.raises(LimitExceededError):
        parse_key_configs(framed(ENTRY) + framed(unknown_kem(9, 16 * 1024)))
    with pytest.raises(LimitExceededError):
        encode_key_configs([config(1, *[AES] * 5000)])


def test_encode_key_configs_refuses_a_shared_key_id() -> None:
    with pytest.raises(MalformedError):
        encode_key_configs([config(1), config(1, CHACHA)])


def test_parse_key_config_refuses_unknown_kem_and_trailing_octets() -> None:
    with pytest.raises(UnsupportedError):
        parse_key_config(unknown_kem())
    with pytest.raises(MalformedError):
        parse_key_config(ENTRY + b"\x00")


def test_key_config_refuses_values_that_do_not_fit() -> None:
    with pytest.raises(UnsupportedError):
        KeyConfig(key_id=1, kem_id=0x10, public_key=PUBLIC_KEY, algorithms=(AES,))
    for key_id in (-1, 256):
        with pytest.raises(MalformedError):
            config(key_id)
    with pytest.raises(MalformedError):
        KeyConfig(key_id=1, kem_id=KEM_X25519, public_key=bytes(31), algorithms=(AES,))
    for pairs in ((), (AES,) * 16384):
        with pytest.raises(MalformedError):
            KeyConfig(
                key_id=1, kem_id=KEM_X25519, public_key=PUBLIC_KEY, algorithms=pairs
            )
    for kdf_id, aead_id in ((0x10000, 1), (1, 0x10000), (-1, 1), (1, -1)):
        with pytest.raises(MalformedError):
            config(1, SymmetricAlgorithms(kdf_id=kdf_id, aead_id=aead_id))


# The key-configuration lines of the bad-input list, as far as they are about
# bytes, with X-Wing and X25519 in one list as we publish them.

XWING_KEY = generate_private_key(KEM_XWING).public_key
HYBRID = KeyConfig(
    key_id=2, kem_id=KEM_XWING, public_key=XWING_KEY, algorithms=(AES, CHACHA)
)
PUBLISHED = encode_key_configs([HYBRID, config(1, AES)])


def test_our_list_has_the_hybrid_first_and_1274_octets() -> None:
    assert len(PUBLISHED) == 1274
    assert parse_key_configs(PUBLISHED) == (HYBRID, config(1, AES))
    assert choose_suite(parse_key_configs(PUBLISHED)[0]).kem_id == KEM_XWING


def p256(key_id: int, point: bytes) -> bytes:
    return bytes([key_id]) + b"\x00\x10" + point + b"\x00\x04\x00\x01\x00\x01"


def many(entry: Callable[[int], bytes]) -> bytes:
    return b"".join(framed(entry(key_id)) for key_id in range(256))


def hybrid_with(public_key: bytes) -> bytes:
    entry = HYBRID.encode()
    return framed(entry[:3] + public_key + entry[3 + 1216 :])


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (PUBLISHED[:-1], TruncatedError),
        (PUBLISHED + b"\x00", TruncatedError),
        (PUBLISHED + framed(config(2, CHACHA).encode()), MalformedError),
        (PUBLISHED + framed(p256(1, b"\x04" + bytes(64))), MalformedError),
        (hybrid_with(XWING_KEY[:-1]), MalformedError),
        (hybrid_with(XWING_KEY + b"\x00"), MalformedError),
        (hybrid_with(XWING_KEY[:32]), MalformedError),
        (framed(p256(3, b"\x04" + b"\xff" * 64)), UnsupportedError),
        (framed(p256(3, b"\x02" + b"\x01" * 32)), UnsupportedError),
        (
            many(lambda one: config(one).encode()),
            LimitExceededError,
        ),
        (
            many(lambda one: unknown_kem(one, 1)),
            LimitExceededError,
        ),
        (bytes(16 * 1024 + 1), LimitExceededError),
    ],
    ids=[
        "cut",
        "trailing byte",
        "the hybrid's key identifier with another key",
        "a key identifier again, of an unknown KEM",
        "X-Wing key short",
        "X-Wing key long",
        "X-Wing key of 32 bytes",
        "P-256 off the curve, alone",
        "P-256 compressed, alone",
        "256 entries",
        "256 entries of an unknown KEM",
        "huge",
    ],
)
def test_published_list_with_a_flaw(data: bytes, error: type[WireError]) -> None:
    with pytest.raises(error):
        parse_key_configs(data)


@pytest.mark.parametrize(
    "point", [b"\x04" + b"\xff" * 64, b"\x02" + b"\x01" * 32], ids=["off", "compressed"]
)
def test_p256_is_an_unknown_kem_whatever_its_point(point: bytes) -> None:
    assert parse_key_configs(framed(p256(3, point)) + PUBLISHED) == (
        HYBRID,
        config(1, AES),
    )


@pytest.mark.parametrize(
    ("kem_id", "public_key"),
    [
        (KEM_X25519, bytes(32)),
        (
            KEM_X25519,
            bytes.fromhex(
                "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157"
            ),
        ),
        (KEM_XWING, b"\xff" * 1184 + XWING_KEY[1184:]),
        (KEM_XWING, XWING_KEY[:1184] + bytes(32)),
        (KEM_XWING, b"\xff" * 1216),
    ],
    ids=["zero", "order 8", "ML-KEM all ff", "X-Wing with a zero point", "all ff"],
)
def test_a_key_that_is_no_key_is_refused_when_it_is_used(
    kem_id: int, public_key: bytes
) -> None:
    """The list has its form; nothing is ever sealed to such a key."""
    bad = KeyConfig(key_id=1, kem_id=kem_id, public_key=public_key, algorithms=(AES,))
    (parsed,) = parse_key_configs(encode_key_configs([bad]))
    with pytest.raises(MalformedError):
        seal_request(parsed, b"bhttp")
    with pytest.raises(MalformedError):
        seal_chunked_request(parsed, b"bhttp")


def test_suites_are_those_we_support_in_the_order_of_the_gateway() -> None:
    mixed = config(1, SHA384, CHACHA, AES)
    assert [suite.aead_id for suite in mixed.suites()] == [3, 1]
    assert mixed == config(1, SHA384, CHACHA, AES)
    assert "suites" not in repr(mixed)
