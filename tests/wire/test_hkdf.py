import hashlib
import hmac

import pytest
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from hypothesis import given
from hypothesis import strategies as st

from curtilage.wire.errors import LimitExceededError
from curtilage.wire.hkdf import NO_SALT, PRK, expand, extract, one_block

# On both sides of SHA-256's block of 64 octets, where HMAC hashes its key first, and
# of the 32 octets of a hash, which has a way of its own.
KEYS = st.one_of(
    st.binary(max_size=200),
    st.binary(min_size=31, max_size=33),
    st.binary(min_size=62, max_size=66),
    st.sampled_from([b"", bytes(32), bytes(64)]),
)


@given(KEYS, st.binary(max_size=300))
def test_mac_is_hmac(key: bytes, message: bytes) -> None:
    expected = hmac.digest(key, message, hashlib.sha256)
    assert PRK(key).mac(message) == expected
    assert extract(key, message) == expected


@given(st.lists(st.binary(max_size=100), min_size=1, max_size=4))
def test_a_key_serves_many_messages(messages: list[bytes]) -> None:
    key = PRK(b"key")
    for message in messages:
        assert key.mac(message) == hmac.digest(b"key", message, "sha256")
        assert NO_SALT.mac(message) == hmac.digest(b"", message, "sha256")


@given(KEYS, st.binary(), st.binary(), st.integers(min_value=1, max_value=8160))
def test_extract_and_expand_are_hkdf(
    salt: bytes, ikm: bytes, info: bytes, length: int
) -> None:
    whole = HKDF(algorithm=SHA256(), length=length, salt=salt or None, info=info)
    assert expand(extract(salt, ikm), info, length) == whole.derive(ikm)


@given(st.binary(min_size=32, max_size=32), st.integers(min_value=1, max_value=32))
def test_one_block_is_the_same_either_way(prk: bytes, length: int) -> None:
    block = PRK(prk).mac(one_block(b"nonce"))
    assert block[:length] == expand(prk, b"nonce", length)


@pytest.mark.parametrize("length", [-1, 0, 255 * 32 + 1])
def test_expand_refuses_other_lengths(length: int) -> None:
    with pytest.raises(LimitExceededError):
        expand(bytes(32), b"", length)
