"""Genuine quotes of software TPMs, and keys of Google's vTPMs."""

import base64
import json
import struct
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_public_key,
)

from curtilage.attest.claims import CpuClaims
from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.evidence import Tee, TpmEvidence, TpmQuote
from curtilage.attest.expectations import AnchorKind, TrustAnchor
from curtilage.attest.steps import StepLog
from curtilage.attest.tpm.quote import require_quote_key
from curtilage.attest.tpm.verify import TpmRules, verify_tpm

OWN_PCRS = (0, 1, 2, 3, 4, 7, 11, 12)
# tpm2-tools write TPML_PCR_SELECTION as the C compiler lays it out (132 bytes),
# then a count of TPML_DIGESTs, each of eight digests of up to 64 bytes.
DIGESTS_AT = 136
DIGEST_STRIDE = 66


@pytest.fixture(scope="module")
def folder(shared_dir: Path) -> Path:
    found = shared_dir / "evidence"
    if not (found / "tpm").is_dir():
        pytest.skip("SKIPPED LOUDLY: no genuine TPM quotes in evidence/tpm")
    return found


def _spki(pem: bytes) -> bytes:
    key = load_pem_public_key(pem)
    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _own(folder: Path) -> TpmEvidence:
    own = folder / "tpm" / "own-swtpm"
    data = (own / "quote.pcrs").read_bytes()
    values: list[bytes] = []
    (lists,) = struct.unpack_from("<I", data, DIGESTS_AT - 4)
    for number in range(lists):
        at = DIGESTS_AT + number * (4 + 8 * DIGEST_STRIDE)
        (count,) = struct.unpack_from("<I", data, at)
        for place in range(count):
            start = at + 4 + place * DIGEST_STRIDE
            (size,) = struct.unpack_from("<H", data, start)
            values.append(data[start + 2 : start + 2 + size])
    quote = TpmQuote(
        message=(own / "quote.msg").read_bytes(),
        signature=(own / "quote.sig").read_bytes(),
        pcrs=tuple(zip(OWN_PCRS, values, strict=True)),
    )
    ak = _spki((own / "ak.pem").read_bytes())
    return TpmEvidence(tee=Tee.TPM, quote=quote, ak=ak)


def _third(folder: Path) -> TpmEvidence:
    values = json.loads((folder / "tpm" / "trustee_swtpm_evidence.json").read_text())
    quote = values["tpm_quote"]
    pcrs = [bytes.fromhex(each) for each in quote["pcrs"]]
    return TpmEvidence(
        tee=Tee.TPM,
        quote=TpmQuote(
            message=base64.b64decode(quote["message"]),
            signature=base64.b64decode(quote["signature"]),
            pcrs=tuple(enumerate(pcrs)),
        ),
        ak=base64.b64decode(values["ak_public"]),
    )


def _evidence(folder: Path, name: str) -> TpmEvidence:
    return _own(folder) if name == "own" else _third(folder)


def _rules(evidence: TpmEvidence) -> TpmRules:
    registers = {f"pcr{index}": value.hex() for index, value in evidence.quote.pcrs}
    return TpmRules(
        anchors=(TrustAnchor.of_certificate(AnchorKind.TPM, "", evidence.ak),),
        measurements=(registers,),
    )


def _verify(evidence: TpmEvidence, rules: TpmRules) -> CpuClaims:
    return verify_tpm(evidence, rules, log=StepLog())


def _refusal(evidence: TpmEvidence, rules: TpmRules) -> RefusalCode:
    with pytest.raises(RefusedError) as caught:
        _verify(evidence, rules)
    return caught.value.code


@pytest.mark.parametrize(("name", "count"), [("own", 8), ("third", 24)])
def test_genuine_quote_is_verified(folder: Path, name: str, count: int) -> None:
    evidence = _evidence(folder, name)
    claims = _verify(evidence, _rules(evidence))
    assert len(claims.registers) == count
    assert claims.details["isolates"] is False


def test_own_quote_carries_its_binding(folder: Path) -> None:
    evidence = _own(folder)
    claims = _verify(evidence, _rules(evidence))
    assert claims.bound.hex().startswith("4f2a7ae4b0041fae")


def test_genuine_quote_under_another_key_is_refused(folder: Path) -> None:
    own, third = _own(folder), _third(folder)
    assert _refusal(own, _rules(third)) is RefusalCode.UNTRUSTED_ROOT
    swapped = replace(own, ak=third.ak)
    assert _refusal(swapped, _rules(third)) in {
        RefusalCode.MALFORMED,
        RefusalCode.UNSUPPORTED_ALGORITHM,
    }


@pytest.mark.parametrize("name", ["own", "third"])
def test_altered_genuine_quote_is_refused(folder: Path, name: str) -> None:
    evidence = _evidence(folder, name)
    rules = _rules(evidence)
    message = bytearray(evidence.quote.message)
    message[-1] ^= 1
    quote = replace(evidence.quote, message=bytes(message))
    altered = replace(evidence, quote=quote)
    assert _refusal(altered, rules) is RefusalCode.BAD_SIGNATURE
    pcrs = ((0, b"\1" * 32), *evidence.quote.pcrs[1:])
    forged = replace(evidence, quote=replace(evidence.quote, pcrs=pcrs))
    assert _refusal(forged, rules) is RefusalCode.BAD_SIGNATURE


@pytest.mark.parametrize("name", ["test_gce_ak_cert.pem", "test_eventlog_akpub.pem"])
def test_googles_attestation_keys_may_sign_quotes(folder: Path, name: str) -> None:
    pem = (folder / "gcp" / name).read_bytes()
    if b"BEGIN CERTIFICATE" in pem:
        certified = x509.load_pem_x509_certificate(pem).public_key()
        assert require_quote_key(certified) is certified
    else:
        key = load_pem_public_key(pem)
        assert require_quote_key(key) is key
