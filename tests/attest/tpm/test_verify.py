# ruff: noqa: ANN401 - fields of every type are changed by name

import hashlib
from dataclasses import replace
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from curtilage.attest.claims import CpuClaims
from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.evidence import TpmEvidence
from curtilage.attest.expectations import AnchorKind, TrustAnchor
from curtilage.attest.steps import StepLog
from curtilage.attest.tpm.quote import QuoteCheck
from curtilage.attest.tpm.verify import NO_END, TpmRules, verify_tpm
from curtilage_dev.emulated.tpm import EmulatedTpm, QuoteFields, make_tpm, ordinary_pcrs

FIELDS = QuoteFields(extra_data=b"qualifying data")
MEASUREMENT = {"pcr11": ordinary_pcrs()[11].hex()}


@pytest.fixture(scope="module")
def tpm() -> EmulatedTpm:
    return make_tpm(elliptic=True)


def _rules(tpm: EmulatedTpm, **changes: Any) -> TpmRules:
    rules = TpmRules(
        anchors=(tpm.anchor(),),
        measurements=(MEASUREMENT,),
    )
    return replace(rules, **changes)


def _verify(evidence: TpmEvidence, rules: TpmRules) -> CpuClaims:
    return verify_tpm(evidence, rules, log=StepLog())


def _refusal(evidence: TpmEvidence, rules: TpmRules) -> tuple[RefusalCode, str]:
    log = StepLog()
    with pytest.raises(RefusedError) as caught:
        verify_tpm(evidence, rules, log=log)
    return caught.value.code, log.refusal(caught.value.code, "").step


def test_quote_is_verified_and_says_that_it_isolates_nothing(tpm: EmulatedTpm) -> None:
    claims = _verify(tpm.evidence(FIELDS), _rules(tpm))
    assert claims.bound == FIELDS.extra_data
    assert claims.registers["pcr11"] == MEASUREMENT["pcr11"]
    assert claims.details["isolates"] is False
    assert "not isolation" in str(claims.details["meaning"])
    assert not claims.tee.isolates
    assert (claims.expires_at, claims.platform) == (NO_END, "")
    assert [link.subject for link in claims.links] == ["attestation key", "TPM quote"]
    assert claims.links[0].fingerprint == hashlib.sha256(tpm.ak).hexdigest()


def test_fingerprint_alone_pins_a_key(tpm: EmulatedTpm) -> None:
    anchor = replace(tpm.anchor(), certificate_der=b"")
    claims = _verify(tpm.evidence(FIELDS), _rules(tpm, anchors=(anchor,)))
    assert claims.bound == FIELDS.extra_data


def test_key_that_is_not_pinned_is_refused(tpm: EmulatedTpm) -> None:
    evidence = tpm.evidence(FIELDS)
    for anchors in ((), (make_tpm(elliptic=True).anchor(),)):
        assert _refusal(evidence, _rules(tpm, anchors=anchors)) == (
            RefusalCode.UNTRUSTED_ROOT,
            QuoteCheck.ATTESTATION_KEY,
        )


def test_pinned_key_that_signed_another_quote_is_refused(tpm: EmulatedTpm) -> None:
    other = replace(make_tpm(elliptic=True).evidence(FIELDS), ak=tpm.ak)
    assert _refusal(other, _rules(tpm)) == (
        RefusalCode.BAD_SIGNATURE,
        QuoteCheck.QUOTE_SIGNATURE,
    )


def test_pinned_bytes_that_are_no_key_are_refused(tpm: EmulatedTpm) -> None:
    anchor = TrustAnchor.of_certificate(AnchorKind.TPM, "", b"no key")
    evidence = replace(tpm.evidence(FIELDS), ak=b"no key")
    code, _ = _refusal(evidence, _rules(tpm, anchors=(anchor,)))
    assert code is RefusalCode.CHAIN_INVALID


def test_pinned_key_that_is_weak_is_refused() -> None:
    weak = EmulatedTpm(key=rsa.generate_private_key(65537, 1024))  # noqa: S505 - must be refused
    assert _refusal(weak.evidence(FIELDS), _rules(weak)) == (
        RefusalCode.UNSUPPORTED_ALGORITHM,
        QuoteCheck.ATTESTATION_KEY,
    )


@pytest.mark.parametrize(
    "measurements",
    [
        (),
        ({},),
        ({"launch": "00"},),
        ({"pcr11": "00" * 32},),
        ({**MEASUREMENT, "pcr12": "00" * 32},),
    ],
    ids=["none", "names nothing", "no register", "other value", "one of two"],
)
def test_measurement_is_enforced(
    tpm: EmulatedTpm, measurements: tuple[dict[str, str], ...]
) -> None:
    rules = _rules(tpm, measurements=measurements)
    assert _refusal(tpm.evidence(FIELDS), rules) == (
        RefusalCode.MEASUREMENT_NOT_ALLOWED,
        QuoteCheck.MEASUREMENT,
    )


def test_required_register_must_be_quoted(tpm: EmulatedTpm) -> None:
    some = {index: ordinary_pcrs()[index] for index in (0, 7)}
    evidence = tpm.evidence(replace(FIELDS, pcrs=some))
    code, _ = _refusal(evidence, _rules(tpm))
    assert code is RefusalCode.MEASUREMENT_NOT_ALLOWED
