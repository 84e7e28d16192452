# ruff: noqa: ANN401 - fields of every type are changed by name

import contextlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.types import PublicKeyTypes
from hypothesis import given
from hypothesis import strategies as st

from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.evidence import TpmQuote
from curtilage.attest.steps import StepLog
from curtilage.attest.tpm.quote import (
    AlgorithmId,
    QuoteCheck,
    VerifiedQuote,
    parse_attest,
    require_quote_key,
    verify_quote,
)
from curtilage_dev.emulated.tpm import (
    EmulatedTpm,
    QuoteFields,
    bare_signature,
    encode_attest,
    make_tpm,
    ordinary_pcrs,
    sign_quote,
)
from support.samples import Sample

EXTRA = b"qualifying data"
FIELDS = QuoteFields(extra_data=EXTRA)


@pytest.fixture(scope="module")
def tpm() -> EmulatedTpm:
    return make_tpm()


@pytest.fixture(scope="module")
def elliptic() -> EmulatedTpm:
    return make_tpm(elliptic=True)


def _verify(quote: TpmQuote, tpm: EmulatedTpm) -> VerifiedQuote:
    key = require_quote_key(tpm.key.public_key())
    return verify_quote(quote, key, log=StepLog())


def _refusal(quote: TpmQuote, tpm: EmulatedTpm) -> RefusedError:
    log = StepLog()
    with pytest.raises(RefusedError) as caught:
        verify_quote(quote, require_quote_key(tpm.key.public_key()), log=log)
    return log.refusal(caught.value.code, caught.value.detail)


@pytest.mark.parametrize("kind", ["RSA", "P-256"])
def test_quote_is_verified(tpm: EmulatedTpm, elliptic: EmulatedTpm, kind: str) -> None:
    signer = tpm if kind == "RSA" else elliptic
    verified = _verify(signer.quote(FIELDS), signer)
    assert verified.extra_data == EXTRA
    assert dict(verified.pcrs) == ordinary_pcrs()
    assert verified.registers()["pcr11"] == ordinary_pcrs()[11].hex()
    assert verified.details()["tpm_reset_count"] == 2


def test_bare_rsa_signature_is_verified(tpm: EmulatedTpm) -> None:
    quote = tpm.quote(FIELDS)
    bare = replace(quote, signature=bare_signature(quote.signature))
    assert len(bare.signature) == 256
    assert _verify(bare, tpm).extra_data == EXTRA


def test_bare_ecdsa_signature_is_verified(elliptic: EmulatedTpm) -> None:
    assert isinstance(elliptic.key, ec.EllipticCurvePrivateKey)
    message = encode_attest(FIELDS)
    der = elliptic.key.sign(message, ec.ECDSA(hashes.SHA256()))
    quote = replace(elliptic.quote(FIELDS), signature=der)
    assert _verify(quote, elliptic).extra_data == EXTRA


@pytest.mark.parametrize("salt", [32, padding.PSS.MAX_LENGTH], ids=["FIPS", "longest"])
def test_pss_signature_is_verified(tpm: EmulatedTpm, salt: Any) -> None:
    assert isinstance(tpm.key, rsa.RSAPrivateKey)
    message = encode_attest(FIELDS)
    pad = padding.PSS(padding.MGF1(hashes.SHA256()), salt)
    signature = tpm.key.sign(message, pad, hashes.SHA256())
    tpmt = b"\x00\x16\x00\x0b\x01\x00" + signature
    assert _verify(replace(tpm.quote(FIELDS), signature=tpmt), tpm).extra_data == EXTRA


def test_some_registers_are_enough(tpm: EmulatedTpm) -> None:
    some = {index: ordinary_pcrs()[index] for index in (0, 7, 11)}
    verified = _verify(tpm.quote(replace(FIELDS, pcrs=some)), tpm)
    assert set(verified.registers()) == {"pcr0", "pcr7", "pcr11"}


def test_order_of_the_values_does_not_matter(tpm: EmulatedTpm) -> None:
    quote = tpm.quote(FIELDS)
    backwards = replace(quote, pcrs=quote.pcrs[::-1])
    assert _verify(backwards, tpm) == _verify(quote, tpm)


SIGNED_CASES: dict[str, tuple[dict[str, Any], RefusalCode, QuoteCheck]] = {
    "magic": (
        {"magic": 0xFF544348},
        RefusalCode.MALFORMED,
        QuoteCheck.QUOTE_LAYOUT,
    ),
    "type": ({"kind": 0x8014}, RefusalCode.MALFORMED, QuoteCheck.QUOTE_LAYOUT),
    "trailing": ({"tail": b"\0"}, RefusalCode.MALFORMED, QuoteCheck.QUOTE_LAYOUT),
    "safe": ({"safe": 2}, RefusalCode.MALFORMED, QuoteCheck.QUOTE_LAYOUT),
    "long name": (
        {"signer": bytes(67)},
        RefusalCode.MALFORMED,
        QuoteCheck.QUOTE_LAYOUT,
    ),
    "long extra data": (
        {"extra_data": bytes(67)},
        RefusalCode.MALFORMED,
        QuoteCheck.QUOTE_LAYOUT,
    ),
    "long digest": (
        {"pcr_digest": bytes(65)},
        RefusalCode.MALFORMED,
        QuoteCheck.QUOTE_LAYOUT,
    ),
    "long selection": (
        {"select_bytes": 5},
        RefusalCode.MALFORMED,
        QuoteCheck.QUOTE_LAYOUT,
    ),
    "many banks": (
        {"banks": (0x000B,) * 17},
        RefusalCode.MALFORMED,
        QuoteCheck.QUOTE_LAYOUT,
    ),
    "SHA-1 bank": (
        {"banks": (AlgorithmId.SHA1,)},
        RefusalCode.UNSUPPORTED_ALGORITHM,
        QuoteCheck.PCR_SELECTION,
    ),
    "SHA-384 bank": (
        {"banks": (0x000C,)},
        RefusalCode.UNSUPPORTED_ALGORITHM,
        QuoteCheck.PCR_SELECTION,
    ),
    "two banks": (
        {"banks": (AlgorithmId.SHA256, AlgorithmId.SHA1)},
        RefusalCode.MALFORMED,
        QuoteCheck.PCR_SELECTION,
    ),
    "no bank": ({"banks": ()}, RefusalCode.MALFORMED, QuoteCheck.PCR_SELECTION),
    "more given than quoted": (
        {"selected": tuple(range(23))},
        RefusalCode.MALFORMED,
        QuoteCheck.PCR_SELECTION,
    ),
    "other digest": (
        {"pcr_digest": bytes(32)},
        RefusalCode.BAD_SIGNATURE,
        QuoteCheck.PCR_VALUES,
    ),
    "short digest": (
        {"pcr_digest": b""},
        RefusalCode.BAD_SIGNATURE,
        QuoteCheck.PCR_VALUES,
    ),
}


@pytest.mark.parametrize("name", SIGNED_CASES)
def test_validly_signed_quote_is_refused(tpm: EmulatedTpm, name: str) -> None:
    changes, code, step = SIGNED_CASES[name]
    error = _refusal(tpm.quote(replace(FIELDS, **changes)), tpm)
    assert (error.code, error.step) == (code, step)


def _values(quote: TpmQuote, changes: Mapping[int, bytes]) -> TpmQuote:
    values = {**dict(quote.pcrs), **changes}
    return replace(quote, pcrs=tuple(values.items()))


def test_relabelled_register_is_refused(tpm: EmulatedTpm) -> None:
    quote = tpm.quote(replace(FIELDS, pcrs={4: b"\4" * 32, 11: b"\5" * 32}))
    relabelled = replace(quote, pcrs=((4, b"\4" * 32), (12, b"\5" * 32)))
    error = _refusal(relabelled, tpm)
    assert (error.code, error.step) == (
        RefusalCode.MALFORMED,
        QuoteCheck.PCR_SELECTION,
    )


def test_swapped_values_are_refused(tpm: EmulatedTpm) -> None:
    quote = tpm.quote(FIELDS)
    values = dict(quote.pcrs)
    swapped = _values(quote, {4: values[11], 11: values[4]})
    assert _refusal(swapped, tpm).code is RefusalCode.BAD_SIGNATURE


def test_forged_value_is_refused(tpm: EmulatedTpm) -> None:
    forged = _values(tpm.quote(FIELDS), {11: bytes(32)})
    error = _refusal(forged, tpm)
    assert (error.code, error.step) == (
        RefusalCode.BAD_SIGNATURE,
        QuoteCheck.PCR_VALUES,
    )


def test_bytes_moved_between_values_are_refused(tpm: EmulatedTpm) -> None:
    """The digest is the same, for it is over all values one after the other."""
    quote = tpm.quote(FIELDS)
    values = dict(quote.pcrs)
    moved = _values(quote, {4: values[4][:-1], 5: values[4][-1:] + values[5]})
    error = _refusal(moved, tpm)
    assert (error.code, error.step) == (RefusalCode.MALFORMED, QuoteCheck.PCR_VALUES)


@pytest.mark.parametrize("change", ["missing", "added", "twice"])
def test_values_of_other_registers_are_refused(tpm: EmulatedTpm, change: str) -> None:
    quote = tpm.quote(replace(FIELDS, pcrs={4: b"\4" * 32, 11: b"\5" * 32}))
    pcrs = {
        "missing": quote.pcrs[:1],
        "added": (*quote.pcrs, (12, bytes(32))),
        "twice": (*quote.pcrs, quote.pcrs[1]),
    }[change]
    assert _refusal(replace(quote, pcrs=pcrs), tpm).code is RefusalCode.MALFORMED


# --- signatures ---------------------------------------------------------------


@pytest.mark.parametrize("kind", ["RSA", "P-256"])
def test_signature_of_another_key_is_refused(
    tpm: EmulatedTpm, elliptic: EmulatedTpm, kind: str
) -> None:
    signer = tpm if kind == "RSA" else elliptic
    other = make_tpm(elliptic=kind != "RSA")
    error = _refusal(signer.quote(FIELDS), other)
    assert (error.code, error.step) == (
        RefusalCode.BAD_SIGNATURE,
        QuoteCheck.QUOTE_SIGNATURE,
    )


def test_bare_signature_of_another_key_is_refused(tpm: EmulatedTpm) -> None:
    quote = tpm.quote(FIELDS)
    bare = replace(quote, signature=bare_signature(quote.signature))
    assert _refusal(bare, make_tpm()).code is RefusalCode.BAD_SIGNATURE


@pytest.mark.parametrize("kind", ["RSA", "P-256"])
def test_sha1_signature_is_refused(
    tpm: EmulatedTpm, elliptic: EmulatedTpm, kind: str
) -> None:
    signer = tpm if kind == "RSA" else elliptic
    quote = signer.quote(FIELDS)
    signature = sign_quote(quote.message, signer.key, digest=AlgorithmId.SHA1)
    error = _refusal(replace(quote, signature=signature), signer)
    assert error.code is RefusalCode.UNSUPPORTED_ALGORITHM


def test_bare_sha1_signature_is_refused(tpm: EmulatedTpm) -> None:
    quote = tpm.quote(FIELDS)
    signature = sign_quote(quote.message, tpm.key, digest=AlgorithmId.SHA1)
    bare = replace(quote, signature=bare_signature(signature))
    assert _refusal(bare, tpm).code is RefusalCode.BAD_SIGNATURE


@pytest.mark.parametrize("scheme", [0x0005, 0x0010, 0x001A, 0x001B])
def test_other_scheme_is_refused(
    tpm: EmulatedTpm, elliptic: EmulatedTpm, scheme: int
) -> None:
    for signer in (tpm, elliptic):
        quote = signer.quote(FIELDS)
        signature = scheme.to_bytes(2, "big") + quote.signature[2:]
        error = _refusal(replace(quote, signature=signature), signer)
        assert error.code is RefusalCode.UNSUPPORTED_ALGORITHM


def test_scheme_of_the_other_kind_of_key_is_refused(
    tpm: EmulatedTpm, elliptic: EmulatedTpm
) -> None:
    mixed = replace(tpm.quote(FIELDS), signature=elliptic.quote(FIELDS).signature)
    assert _refusal(mixed, tpm).code is RefusalCode.UNSUPPORTED_ALGORITHM
    mixed = replace(elliptic.quote(FIELDS), signature=tpm.quote(FIELDS).signature)
    assert _refusal(mixed, elliptic).code is RefusalCode.UNSUPPORTED_ALGORITHM


@pytest.mark.parametrize("kind", ["RSA", "P-256"])
@pytest.mark.parametrize("damage", ["empty", "cut", "trailing", "long"])
def test_malformed_signature_is_refused(
    tpm: EmulatedTpm, elliptic: EmulatedTpm, kind: str, damage: str
) -> None:
    signer = tpm if kind == "RSA" else elliptic
    quote = signer.quote(FIELDS)
    signature = quote.signature
    damaged = {
        "empty": b"",
        "cut": signature[:-1],
        "trailing": signature + b"\0",
        "long": signature[:4] + b"\x02\x01" + bytes(0x201),
    }[damage]
    error = _refusal(replace(quote, signature=damaged), signer)
    assert error.code is RefusalCode.MALFORMED


def test_der_that_is_none_is_refused(elliptic: EmulatedTpm) -> None:
    quote = replace(elliptic.quote(FIELDS), signature=b"\x30\x03\x02\x01\x00")
    assert _refusal(quote, elliptic).code is RefusalCode.BAD_SIGNATURE


@pytest.mark.parametrize(
    "key",
    [
        rsa.RSAPublicNumbers(65537, 2**1023 + 1).public_key(),
        rsa.RSAPublicNumbers(3, 2**2047 + 1).public_key(),
        ec.generate_private_key(ec.SECP521R1()).public_key(),
        ed25519.Ed25519PrivateKey.generate().public_key(),
    ],
    ids=["RSA-1024", "exponent 3", "P-521", "Ed25519"],
)
def test_other_keys_may_not_sign_quotes(key: PublicKeyTypes) -> None:
    with pytest.raises(RefusedError) as caught:
        require_quote_key(key)
    assert caught.value.code is RefusalCode.UNSUPPORTED_ALGORITHM


# --- any bytes ----------------------------------------------------------------


@given(st.binary(max_size=256))
def test_any_message_is_read_or_refused(data: bytes) -> None:
    with contextlib.suppress(RefusedError):
        parse_attest(data)


def test_every_cut_message_is_refused() -> None:
    message = encode_attest(FIELDS)
    for size in range(len(message)):
        with pytest.raises(RefusedError, match="malformed"):
            parse_attest(message[:size])


def test_every_flipped_bit_is_refused(elliptic: EmulatedTpm, sample: Sample) -> None:
    quote = elliptic.quote(FIELDS)
    bits = range(8 * len(quote.message))
    for bit in sample(bits, edges=bits[::64]):
        message = bytearray(quote.message)
        message[bit // 8] ^= 1 << bit % 8
        with pytest.raises(RefusedError) as caught:
            _verify(replace(quote, message=bytes(message)), elliptic)
        assert caught.value.code in {RefusalCode.MALFORMED, RefusalCode.BAD_SIGNATURE}


@given(st.data())
def test_any_change_is_refused_or_changes_nothing(
    elliptic: EmulatedTpm, data: st.DataObject
) -> None:
    quote = elliptic.quote(FIELDS)
    signature = bytearray(quote.signature)
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(signature) - 1))
        signature[place] = data.draw(st.integers(0, 255))
    changed = replace(quote, signature=bytes(signature))
    try:
        verified = _verify(changed, elliptic)
    except RefusedError:
        return
    assert verified == _verify(quote, elliptic)
