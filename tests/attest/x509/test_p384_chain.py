import re
import warnings
from datetime import UTC, datetime, timedelta
from typing import Literal

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.x509.certificates import Certificate, on_curve, verify_p384
from curtilage.attest.x509.p384_chain import (
    check_chain,
    check_dates,
    parse_chain,
)
from curtilage_dev.emulated.p384_pki import (
    P384Fields,
    new_key,
    sign_certificate,
    sign_chain,
)

NOW = datetime(2027, 6, 1, 12, tzinfo=UTC)


def _fields(name: str, *, leaf: bool = False, path: int | None = None) -> P384Fields:
    return P384Fields(
        common_name=name,
        organization="test",
        key=new_key(),
        not_before=NOW - timedelta(days=1),
        not_after=NOW + timedelta(days=1),
        authority=None if leaf else True,
        path_length=path,
        signs_certificates=not leaf,
        signs_data=leaf,
    )


ROOT = _fields("root")
CHAIN = (sign_certificate(ROOT, ROOT), *sign_chain(ROOT, [_fields("leaf", leaf=True)]))


def _refused(*ders: bytes) -> RefusedError:
    with pytest.raises(RefusedError) as caught:
        check_chain(parse_chain(ders))
    assert caught.value.code is RefusalCode.CHAIN_INVALID
    return caught.value


def _certificate(key: ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey) -> bytes:
    """A certificate of any key, with the serial number 1."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "leaf")])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key)
        .serial_number(1)
        .not_valid_before(NOW)
        .not_valid_after(NOW + timedelta(days=1))
        .sign(ROOT.key, hashes.SHA384())
    )
    return made.public_bytes(Encoding.DER)


def _parsed(count: int, path: int | None) -> tuple[Certificate, ...]:
    """A root that allows a path, some authorities, and a leaf."""
    root = _fields("root", path=path)
    authorities = [_fields(f"authority {number}") for number in range(count)]
    chain = sign_chain(root, [*authorities, _fields("leaf", leaf=True)])
    return parse_chain((sign_certificate(root, root), *chain))


def test_a_root_and_a_leaf_are_a_chain() -> None:
    chain = parse_chain(CHAIN)
    check_chain(chain)
    assert [each.common_name for each in chain] == ["root", "leaf"]
    assert chain[0].is_ca
    assert not chain[1].is_ca
    assert on_curve(chain[1].public_key, ec.SECP384R1) is not None


NO_P384_KEY = re.compile(r"leaf: .* P-384 key$")


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_a_path_is_as_long_as_allowed(count: int) -> None:
    check_chain(_parsed(count, None))
    check_chain(_parsed(count, count))
    check_chain(_parsed(count, count + 1))
    if count:
        with pytest.raises(RefusedError, match="root: path "):
            check_chain(_parsed(count, count - 1))


def _with_byte(der: bytes, pattern: str, replacement: str) -> bytes:
    found = bytes.fromhex(pattern)
    assert found in der[:64]
    return der.replace(found, bytes.fromhex(replacement), 1)


@pytest.mark.parametrize("sort", ["ignore", "error"])
@pytest.mark.parametrize("serial", ["00", "80", "ff"])
def test_a_serial_number_is_positive(
    sort: Literal["ignore", "error"], serial: str
) -> None:
    made = _certificate(new_key().public_key())
    assert parse_chain((CHAIN[0], made))[1].serial == 1
    der = _with_byte(made, "a003020102020101", f"a0030201020201{serial}")
    with warnings.catch_warnings():
        warnings.simplefilter(sort)
        error = _refused(CHAIN[0], der)
    assert error.detail == "leaf: serial number" or NO_P384_KEY.match(error.detail)


@pytest.mark.parametrize("version", ["00", "01", "03", "ff"])
def test_a_certificate_is_of_version_3(version: str) -> None:
    _refused(CHAIN[0], _with_byte(CHAIN[1], "a003020102", f"a0030201{version}"))


def test_a_key_is_on_p384() -> None:
    for key in (
        ed25519.Ed25519PrivateKey.generate().public_key(),
        ec.generate_private_key(ec.SECP256R1()).public_key(),
        ec.generate_private_key(ec.SECP521R1()).public_key(),
    ):
        error = _refused(CHAIN[0], _certificate(key))
        assert NO_P384_KEY.match(error.detail)


@pytest.mark.parametrize("algorithm", [hashes.SHA256(), hashes.SHA512()])
def test_a_signature_is_over_sha384(
    algorithm: hashes.SHA256 | hashes.SHA512,
) -> None:
    leaf = P384Fields(
        common_name="leaf",
        organization="test",
        key=new_key(),
        not_before=NOW,
        not_after=NOW + timedelta(days=1),
        algorithm=algorithm,
    )
    error = _refused(CHAIN[0], *sign_chain(ROOT, [leaf]))
    assert re.match(r"leaf: not signed .*\bSHA-384$", error.detail)


def test_dates_are_those_of_every_certificate() -> None:
    chain = parse_chain(CHAIN)
    assert check_dates(chain, now=NOW, clock_skew_s=0) == chain[0].not_after
    last = chain[0].not_after
    assert check_dates(chain, now=last, clock_skew_s=0) == last
    begin = chain[0].not_before
    check_dates(chain, now=begin - timedelta(seconds=60), clock_skew_s=60)
    with pytest.raises(RefusedError) as caught:
        check_dates(chain, now=begin - timedelta(seconds=61), clock_skew_s=60)
    assert caught.value.code is RefusalCode.NOT_YET_VALID
    end = chain[0].not_after + timedelta(seconds=1)
    with pytest.raises(RefusedError) as caught:
        check_dates(chain, now=end, clock_skew_s=3600)
    assert caught.value.code is RefusalCode.EXPIRED_ENDORSEMENT


@pytest.mark.parametrize("signature", [b"", b"\x30\x00", b"\x00", bytes(96)])
def test_rubbish_is_no_signature(signature: bytes) -> None:
    assert not verify_p384(parse_chain(CHAIN)[0].public_key, b"signed", signature)
