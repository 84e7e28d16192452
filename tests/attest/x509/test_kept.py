"""What was verified once is not verified again, and nothing else passes for it."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes

from curtilage.attest.errors import RefusedError
from curtilage.attest.x509 import kept
from curtilage.attest.x509.certificates import (
    Certificate,
    read_certificate,
    verify_p384,
)
from curtilage.attest.x509.kept import certified, forget
from curtilage.attest.x509.p384_chain import check_chain, parse_chain
from curtilage_dev.emulated.p384_pki import (
    P384Fields,
    new_key,
    sign_certificate,
    sign_chain,
)

NOW = datetime(2027, 6, 1, 12, tzinfo=UTC)


def _fields(name: str, *, leaf: bool = False) -> P384Fields:
    return P384Fields(
        common_name=name,
        organization="test",
        key=new_key(),
        not_before=NOW - timedelta(days=1),
        not_after=NOW + timedelta(days=1),
        authority=not leaf,
        signs_certificates=not leaf,
        signs_data=leaf,
    )


ROOT = _fields("root")
OTHER = replace(ROOT, key=new_key())
LEAF = _fields("leaf", leaf=True)
ISSUER, CHILD = (
    read_certificate(each)
    for each in (sign_certificate(ROOT, ROOT), sign_certificate(LEAF, ROOT))
)


class Counting:
    """A verification that counts how often it runs."""

    def __init__(self) -> None:
        self.ran = 0

    def __call__(
        self, key: CertificatePublicKeyTypes, signed_part: bytes, signature: bytes
    ) -> bool:
        self.ran += 1
        return verify_p384(key, signed_part, signature)


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    forget()
    yield
    forget()


def _holds(verify: Counting, issuer: Certificate, child: Certificate) -> bool:
    return certified(verify, issuer, child.signed_part, child.signature)


def test_the_same_signature_is_verified_once() -> None:
    verify = Counting()
    again = read_certificate(sign_certificate(ROOT, ROOT))
    assert again.encoded != ISSUER.encoded
    # By another certificate of the same key, too.
    assert [_holds(verify, each, CHILD) for each in (ISSUER, ISSUER, again)] == [
        True
    ] * 3
    assert verify.ran == 1
    forget()
    assert _holds(verify, ISSUER, CHILD)
    assert verify.ran == 2


def test_another_key_of_the_same_name_verifies_for_itself() -> None:
    verify = Counting()
    other = read_certificate(sign_certificate(OTHER, OTHER))
    assert other.subject == ISSUER.subject
    assert _holds(verify, ISSUER, CHILD)
    assert not _holds(verify, other, CHILD)
    # Nor is a refusal taken for the other's.
    assert _holds(verify, ISSUER, CHILD)
    assert verify.ran == 2


@pytest.mark.parametrize("part", ["signed_part", "signature"])
def test_another_bit_is_another_signature(part: str) -> None:
    verify = Counting()
    assert _holds(verify, ISSUER, CHILD)
    value = bytearray(getattr(CHILD, part))
    value[-1] ^= 1
    other: dict[str, Any] = {part: bytes(value)}
    changed = replace(CHILD, **other)
    assert not _holds(verify, ISSUER, changed)
    assert verify.ran == 2


def test_two_vendors_rules_are_two_verifications() -> None:
    first, second = Counting(), Counting()
    assert _holds(first, ISSUER, CHILD)
    assert _holds(second, ISSUER, CHILD)
    assert (first.ran, second.ran) == (1, 1)


def test_a_chain_that_was_accepted_clears_no_other() -> None:
    ders = (ISSUER.encoded, *sign_chain(ROOT, [LEAF]))
    check_chain(parse_chain(ders))
    posing = (sign_certificate(OTHER, OTHER), ders[1])
    with pytest.raises(RefusedError):
        check_chain(parse_chain(posing))
    flipped = bytearray(ders[1])
    flipped[-1] ^= 1
    with pytest.raises(RefusedError):
        check_chain(parse_chain((ders[0], bytes(flipped))))
    check_chain(parse_chain(ders))


def test_what_is_kept_is_bounded() -> None:
    verify = Counting()
    for number in range(kept.MAX_KEPT + 10):
        signature = number.to_bytes(2, "big")
        assert not certified(verify, ISSUER, CHILD.signed_part, signature)
    first = (0).to_bytes(2, "big")
    assert not certified(verify, ISSUER, CHILD.signed_part, first)
    assert verify.ran == kept.MAX_KEPT + 11


def test_a_certificate_is_read_once_and_cannot_be_changed() -> None:
    encoded = sign_certificate(ROOT, ROOT)
    first = read_certificate(encoded)
    assert read_certificate(bytes(bytearray(encoded))) is first
    with pytest.raises(TypeError):
        first.unrecognised["1.2.3"] = b""  # type: ignore[index] # pyright: ignore[reportIndexIssue]


def test_what_is_no_certificate_is_refused_each_time() -> None:
    for _ in range(2):
        with pytest.raises(ValueError, match="not a certificate"):
            read_certificate(b"x")
