import hmac

import pytest
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from hypothesis import given
from hypothesis import strategies as st

from curtilage.wire.errors import LimitExceededError
from curtilage.wire.hpke.hkdf import PRK, expand, extract, labeled_ikm, labeled_info

# On both sides of SHA-256's block of 64 bytes, where HMAC hashes its key first.
SALTS = st.one_of(
    st.binary(max_size=200),
    st.binary(min_size=62, max_size=66),
    st.sampled_from([b"", bytes(32), bytes(64)]),
)


@given(SALTS, st.binary(max_size=300))
def test_extract_is_hmac(salt: bytes, ikm: bytes) -> None:
    assert extract(salt, ikm) == hmac.digest(salt, ikm, "sha256")


@given(SALTS, st.binary(), st.binary(), st.integers(min_value=1, max_value=8160))
def test_extract_and_expand_are_hkdf(
    salt: bytes, ikm: bytes, info: bytes, length: int
) -> None:
    whole = HKDF(algorithm=SHA256(), length=length, salt=salt or None, info=info)
    assert expand(extract(salt, ikm), info, length) == whole.derive(ikm)


@given(
    st.binary(min_size=32, max_size=32),
    st.lists(st.binary(max_size=100), min_size=1, max_size=4),
    st.integers(min_value=1, max_value=32),
)
def test_a_key_serves_many_expansions(
    prk: bytes, infos: list[bytes], length: int
) -> None:
    key = PRK(prk)
    for info in infos:
        assert key.expand(info, length) == expand(prk, info, length)


@pytest.mark.parametrize("length", [-1, 0, 255 * 32 + 1])
def test_expand_refuses_other_lengths(length: int) -> None:
    with pytest.raises(LimitExceededError):
        expand(bytes(32), b"", length)


def test_labels_are_written_as_rfc_9180_section_4_writes_them() -> None:
    assert labeled_ikm(b"suite", b"label", b"ikm") == b"HPKE-v1suitelabelikm"
    assert labeled_info(b"suite", b"label", 258, b"info") == (
        b"\x01\x02HPKE-v1suitelabelinfo"
    )
