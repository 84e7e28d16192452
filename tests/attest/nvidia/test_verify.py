# ruff: noqa: ANN401 - fields of every type are changed by name

import base64
import json
import tracemalloc
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509 import ocsp
from hypothesis import given
from hypothesis import strategies as st

from curtilage.attest.claims import DeviceClaims
from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.evidence import DeviceKind, GpuEvidence
from curtilage.attest.expectations import GpuExpectations, Revocation
from curtilage.attest.nvidia.dice import (
    BLACKWELL_TCB_INFO,
    DICE_TCB_INFO,
    firmware_id,
)
from curtilage.attest.nvidia.verify import (
    OPAQUE_DRIVER,
    OPAQUE_FWID,
    OPAQUE_VBIOS,
    GpuCheck,
    GpuRules,
    verify_gpu,
)
from curtilage.attest.steps import StepLog
from curtilage_dev.emulated.changes import unchanged
from curtilage_dev.emulated.der import element as der
from curtilage_dev.emulated.gpu import (
    FWID,
    ChangeGpu,
    EmulatedGpu,
    GpuFields,
    composite_device_id,
    dice_tcb_info,
    encode_fwid,
    encode_record,
    ordinary_blocks,
    ordinary_expectations,
)
from curtilage_dev.emulated.p384_pki import new_key
from curtilage_dev.emulated.p384_revocation import (
    ANSWER_LIFE,
    BACKDATE,
    AnswerFields,
    ChangeAnswer,
)

NOW = datetime(2027, 6, 1, 12, tzinfo=UTC)
NONCE = b"\x41" * 32
GPU = EmulatedGpu.make(now=NOW)
RULES = GpuRules(
    anchors=(GPU.anchor(),), expectations=ordinary_expectations(), clock_skew_s=60
)
GENUINE = GPU.evidence(NONCE)
SHA256_OID = bytes.fromhex("0609608648016503040201")


def _verify(
    evidence: GpuEvidence, rules: GpuRules = RULES, *, now: datetime = NOW
) -> tuple[DeviceClaims, StepLog]:
    log = StepLog()
    return verify_gpu(evidence, rules, index=2, now=now, log=log), log


def _refused(
    evidence: GpuEvidence | bytes, rules: GpuRules = RULES, *, now: datetime = NOW
) -> RefusedError:
    if isinstance(evidence, bytes):
        evidence = replace(GENUINE, report=evidence)
    log = StepLog()
    with pytest.raises(RefusedError) as caught:
        verify_gpu(evidence, rules, index=0, now=now, log=log)
    return log.refusal(caught.value.code, caught.value.detail)


def test_answers_about_revocation_are_demanded_by_the_policy_alone() -> None:
    asked = replace(RULES.expectations, revocation=Revocation.REQUIRED)
    error = _refused(GENUINE, replace(RULES, expectations=asked))
    assert (error.code, error.step) == (RefusalCode.CRL_MISSING, GpuCheck.REVOCATION)
    _verify(GENUINE)


def _stapled(change: ChangeAnswer = unchanged) -> GpuEvidence:
    return replace(GENUINE, ocsp=GPU.answers(GENUINE.chain, NOW, change=change))


@pytest.mark.parametrize("rule", Revocation)
def test_answers_that_hold_are_accepted_and_end(rule: Revocation) -> None:
    asked = replace(RULES.expectations, revocation=rule)
    claims, log = _verify(_stapled(), replace(RULES, expectations=asked))
    assert claims.expires_at == NOW - BACKDATE + ANSWER_LIFE
    said = {step.name: step.detail for step in log.steps}[GpuCheck.REVOCATION]
    assert said.startswith("3 not revoked")


@pytest.mark.parametrize("rule", Revocation)
@pytest.mark.parametrize("place", [1, 2, 3])
def test_what_is_stapled_is_never_ignored(rule: Revocation, place: int) -> None:
    asked = replace(RULES.expectations, revocation=rule)
    rules = replace(RULES, expectations=asked)
    revoked = GENUINE.chain[::-1][place]

    def revoke(fields: AnswerFields) -> AnswerFields:
        if fields.certificate != revoked:
            return fields
        return replace(fields, status=ocsp.OCSPCertStatus.REVOKED)

    error = _refused(_stapled(revoke), rules)
    assert (error.code, error.step) == (RefusalCode.REVOKED, GpuCheck.REVOCATION)
    error = _refused(replace(GENUINE, ocsp=(b"answer",)), rules)
    assert (error.code, error.step) == (RefusalCode.CRL_INVALID, GpuCheck.REVOCATION)


def test_each_answer_is_demanded() -> None:
    asked = replace(RULES.expectations, revocation=Revocation.REQUIRED)
    rules = replace(RULES, expectations=asked)
    for place in range(3):
        answers = list(_stapled().ocsp)
        del answers[place]
        error = _refused(replace(GENUINE, ocsp=tuple(answers)), rules)
        assert error.code is RefusalCode.CRL_MISSING


def _evidence(change: ChangeGpu = unchanged) -> GpuEvidence:
    return GPU.evidence(NONCE, change=change)


def _set(**changes: Any) -> ChangeGpu:
    return lambda fields: replace(fields, **changes)


def _opaque(kind: int, value: bytes) -> ChangeGpu:
    return lambda fields: replace(fields, opaque=fields.with_opaque(kind, value))


def _certificate(place: int, **changes: Any) -> ChangeGpu:
    """Change one certificate below the root; 3 is the leaf."""

    def change(fields: GpuFields) -> GpuFields:
        chain = list(fields.chain)
        chain[place] = replace(chain[place], **changes)
        return replace(fields, chain=tuple(chain))

    return change


# --- accepted -----------------------------------------------------------------


def test_a_report_is_accepted() -> None:
    claims, log = _verify(GENUINE)
    assert [step.name for step in log.steps] == [check.value for check in GpuCheck]
    assert (claims.kind, claims.index) == (DeviceKind.EMULATED_NVIDIA_GPU, 2)
    assert claims.nonce == NONCE
    assert claims.signed_part == GENUINE.report[:-96]
    assert claims.details["driver"] == "550.90.07"
    assert claims.details["vbios"] == "96.00.9f.00.01"
    assert claims.details["fwid"] == FWID.hex()
    assert claims.details["golden"] in RULES.expectations.golden
    assert len(claims.links) == 5
    assert claims.links[0].fingerprint == GPU.anchor().fingerprint
    assert claims.expires_at > NOW + timedelta(days=9000)


def test_a_pinned_fingerprint_is_enough() -> None:
    anchor = replace(GPU.anchor(), certificate_der=b"")
    claims, _ = _verify(GENUINE, replace(RULES, anchors=(anchor,)))
    assert claims.nonce == NONCE


def test_versions_may_be_written_in_capitals() -> None:
    expectations = replace(RULES.expectations, vbioses=frozenset({"96.00.9F.00.01"}))
    claims, _ = _verify(GENUINE, replace(RULES, expectations=expectations))
    assert claims.details["vbios"] == "96.00.9f.00.01"


def test_the_newer_form_of_the_firmware_identity_is_read() -> None:
    extensions = ((DICE_TCB_INFO, False, dice_tcb_info(FWID)),)
    claims, _ = _verify(_evidence(_certificate(3, extensions=extensions)))
    assert claims.details["fwid"] == FWID.hex()


def test_blackwells_firmware_identity_is_read() -> None:
    gpu = EmulatedGpu.make(now=NOW, blackwell=True)
    rules = replace(RULES, anchors=(gpu.anchor(),))
    claims, log = _verify(gpu.evidence(NONCE), rules)
    assert claims.details["fwid"] == FWID.hex()
    said = {step.name: step.detail for step in log.steps}[GpuCheck.FIRMWARE]
    assert said == f"report's and key's: {FWID.hex()[:16]}…"


# --- 1: layout, and verdicts that are no reports ------------------------------


@pytest.mark.parametrize(
    "report",
    [b"", GENUINE.report[:-1], GENUINE.report + b"\0", b"\x11" * 200],
    ids=["empty", "truncated", "padded", "rubbish"],
)
def test_another_layout_is_refused(report: bytes) -> None:
    error = _refused(report)
    assert (error.code, error.step) == (RefusalCode.MALFORMED, GpuCheck.LAYOUT)


def test_the_size_is_looked_at_first() -> None:
    error = _refused(GENUINE.report.ljust(32769, b"\0"))
    assert (error.code, error.step) == (RefusalCode.TOO_LARGE, GpuCheck.LAYOUT)


def _token(header: object, signature: bytes = b"") -> bytes:
    parts = (json.dumps(header).encode(), b'{"iss":"NRAS"}', signature)
    encoded = (base64.urlsafe_b64encode(part).rstrip(b"=") for part in parts)
    return b".".join(encoded)


UNSIGNED = _token({"alg": "none"})
SIGNED = _token({"alg": "ES384", "kid": "nv-eat-kid"}, bytes(96))
TOKENS = {
    "alg none": (UNSIGNED, RefusalCode.UNSIGNED),
    "alg None": (_token({"alg": "None"}), RefusalCode.UNSIGNED),
    "alg NONE with a signature": (
        _token({"alg": "NONE"}, bytes(64)),
        RefusalCode.UNSIGNED,
    ),
    "HS256": (
        _token({"alg": "HS256", "typ": "JWT"}, bytes(32)),
        RefusalCode.UNSUPPORTED_ALGORITHM,
    ),
    "ES384 by NRAS": (SIGNED, RefusalCode.UNSUPPORTED_ALGORITHM),
    "no alg": (_token({}), RefusalCode.UNSUPPORTED_ALGORITHM),
    "detached EAT": (
        json.dumps([["JWT", SIGNED.decode()], {"GPU-0": SIGNED.decode()}]).encode(),
        RefusalCode.UNSUPPORTED_ALGORITHM,
    ),
    "detached EAT, one unsigned": (
        json.dumps([["JWT", SIGNED.decode()], {"GPU-0": UNSIGNED.decode()}]).encode(),
        RefusalCode.UNSIGNED,
    ),
    "with spaces": (b" \n" + UNSIGNED + b"\n", RefusalCode.UNSIGNED),
    "claims without a token": (
        b'{"measres": "success"}',
        RefusalCode.UNSUPPORTED_ALGORITHM,
    ),
    "header that is no base64": (
        b"eyJhbGciO.e30.",
        RefusalCode.UNSUPPORTED_ALGORITHM,
    ),
    "header that is no object": (
        b"eyJhbGci.e30.",
        RefusalCode.UNSUPPORTED_ALGORITHM,
    ),
}


@pytest.mark.parametrize("name", TOKENS)
def test_a_token_is_no_evidence(name: str) -> None:
    report, code = TOKENS[name]
    error = _refused(report)
    assert (error.code, error.step) == (code, GpuCheck.LAYOUT)


def test_what_begins_as_a_report_is_no_token() -> None:
    error = _refused(b"\x11\xe0 " + UNSIGNED)
    assert (error.code, error.step) == (RefusalCode.MALFORMED, GpuCheck.LAYOUT)


def test_nvidias_local_verdict_is_refused(shared_dir: Path) -> None:
    sample = shared_dir / "evidence/nvidia-gpu/nvat_local_ALG-NONE_h100.json"
    error = _refused(sample.read_bytes())
    assert (error.code, error.step) == (RefusalCode.UNSIGNED, GpuCheck.LAYOUT)


# --- 2, 3 and 4: chain --------------------------------------------------------


def test_another_root_is_not_trusted() -> None:
    other = EmulatedGpu.make(now=NOW)
    error = _refused(GENUINE, replace(RULES, anchors=(other.anchor(),)))
    assert (error.code, error.step) == (RefusalCode.UNTRUSTED_ROOT, GpuCheck.ROOT)


def test_an_attackers_chain_below_the_true_root_is_refused() -> None:
    attacker = EmulatedGpu.make(now=NOW).evidence(NONCE)
    chain = (*attacker.chain[:-1], GPU.root)
    error = _refused(replace(attacker, chain=chain))
    assert (error.code, error.step) == (RefusalCode.CHAIN_INVALID, GpuCheck.CHAIN)


@pytest.mark.parametrize(
    "chain",
    [
        (),
        GENUINE.chain[:1],
        GENUINE.chain[1:],
        (*GENUINE.chain, GENUINE.chain[-1]),
        GENUINE.chain[:2] + GENUINE.chain[3:],
    ],
    ids=["none", "leaf", "no leaf", "six", "four"],
)
def test_a_chain_of_another_length_is_refused(chain: tuple[bytes, ...]) -> None:
    error = _refused(replace(GENUINE, chain=chain))
    assert (error.code, error.step) == (RefusalCode.CHAIN_INVALID, GpuCheck.ROOT)


def test_a_chain_in_another_order_is_refused() -> None:
    first, second, third, *rest = GENUINE.chain
    swapped = replace(GENUINE, chain=(first, third, second, *rest))
    assert _refused(swapped).code is RefusalCode.CHAIN_INVALID
    reversed_chain = replace(GENUINE, chain=GENUINE.chain[::-1])
    assert _refused(reversed_chain).code is RefusalCode.UNTRUSTED_ROOT


def test_a_certificate_out_of_size_is_refused() -> None:
    chain = (bytes(4097), *GENUINE.chain[1:])
    error = _refused(replace(GENUINE, chain=chain))
    assert (error.code, error.step) == (RefusalCode.TOO_LARGE, GpuCheck.CHAIN)


CHAINS: dict[str, ChangeGpu] = {
    "no authority": _certificate(0, authority=False),
    "no constraints": _certificate(1, authority=None),
    "may not sign certificates": _certificate(2, signs_certificates=False),
    "path too short": _certificate(0, path_length=1),
    "leaf an authority": _certificate(3, authority=True),
    "leaf may not sign data": _certificate(3, signs_data=False),
    "issuer's name": _certificate(1, issuer_name="somebody"),
    "P-256": _certificate(3, key=ec.generate_private_key(ec.SECP256R1())),
    "SHA-256": _certificate(2, algorithm=hashes.SHA256()),
    "critical extension": _certificate(
        2, extensions=(("1.3.6.1.4.1.99999.1", True, b"\x05\x00"),)
    ),
}


@pytest.mark.parametrize("name", CHAINS)
def test_a_wrong_chain_is_refused(name: str) -> None:
    error = _refused(_evidence(CHAINS[name]))
    assert (error.code, error.step) == (RefusalCode.CHAIN_INVALID, GpuCheck.CHAIN)


def test_a_path_of_the_right_length_is_accepted() -> None:
    assert _verify(_evidence(_certificate(0, path_length=2)))[0].nonce == NONCE


def test_dates_are_checked() -> None:
    end = NOW - timedelta(seconds=1)
    expired = _refused(_evidence(_certificate(3, not_after=end)))
    assert (expired.code, expired.step) == (
        RefusalCode.EXPIRED_ENDORSEMENT,
        GpuCheck.DATES,
    )
    start = NOW + timedelta(seconds=61)
    early = _refused(_evidence(_certificate(1, not_before=start)))
    assert (early.code, early.step) == (RefusalCode.NOT_YET_VALID, GpuCheck.DATES)


# --- 5: signature -------------------------------------------------------------


@given(st.integers(0, 8 * len(GENUINE.report) - 1))
def test_any_flipped_bit_is_refused(bit: int) -> None:
    report = bytearray(GENUINE.report)
    report[bit // 8] ^= 1 << bit % 8
    error = _refused(bytes(report))
    assert error.code in {
        RefusalCode.BAD_SIGNATURE,
        RefusalCode.MALFORMED,
        RefusalCode.UNSUPPORTED_VERSION,
    }


# One place inside each thing that is signed and has no step of its own before.
SIGNED_AT = {
    "nonce": 4,
    "nonce's end": 35,
    "reserved parameter": 37 + 2,
    "first measurement": 37 + 8 + 7,
    "last measurement": 37 + 8 + 64 * 55 - 1,
    "responder's nonce": 37 + 8 + 64 * 55,
    "VBIOS": 37 + 8 + 64 * 55 + 32 + 2 + 4,
    "last opaque byte": len(GENUINE.report) - 97,
    "r": len(GENUINE.report) - 96,
    "s": len(GENUINE.report) - 1,
}


@pytest.mark.parametrize("name", SIGNED_AT)
def test_a_flipped_field_is_refused(name: str) -> None:
    report = bytearray(GENUINE.report)
    report[SIGNED_AT[name]] ^= 1
    error = _refused(bytes(report))
    assert (error.code, error.step) == (RefusalCode.BAD_SIGNATURE, GpuCheck.SIGNATURE)


def test_another_gpus_chain_is_refused() -> None:
    sibling = GPU.sibling(now=NOW).evidence(NONCE)
    error = _refused(replace(GENUINE, chain=sibling.chain))
    assert (error.code, error.step) == (RefusalCode.BAD_SIGNATURE, GpuCheck.SIGNATURE)


# --- 6: firmware --------------------------------------------------------------


def _extension(content: bytes) -> ChangeGpu:
    return _certificate(3, extensions=((DICE_TCB_INFO, False, content),))


def _both(first: ChangeGpu, second: ChangeGpu) -> ChangeGpu:
    return lambda fields: second(first(fields))


def _issuer_info() -> bytes:
    return _issuer().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _issuer() -> ec.EllipticCurvePublicKey:
    return GPU.fields(NONCE).chain[2].key.public_key()


OTHER = b"\1" * 48
ZEROS = bytes(48)
FIRMWARE: dict[str, tuple[ChangeGpu, RefusalCode]] = {
    "reported another": (
        _opaque(OPAQUE_FWID, OTHER),
        RefusalCode.ENDORSEMENT_MISMATCH,
    ),
    "reported as nothing": (
        _opaque(OPAQUE_FWID, b""),
        RefusalCode.ENDORSEMENT_MISMATCH,
    ),
    "no extension": (
        _certificate(3, extensions=()),
        RefusalCode.ENDORSEMENT_MISMATCH,
    ),
    "an empty list": (
        _extension(dice_tcb_info()),
        RefusalCode.ENDORSEMENT_MISMATCH,
    ),
    "elsewhere": (
        _certificate(3, extensions=(("2.23.133.5.4.9", False, dice_tcb_info(FWID)),)),
        RefusalCode.ENDORSEMENT_MISMATCH,
    ),
    "another": (
        _extension(composite_device_id(_issuer(), OTHER)),
        RefusalCode.ENDORSEMENT_MISMATCH,
    ),
    "another device": (
        _extension(composite_device_id(new_key().public_key(), FWID)),
        RefusalCode.ENDORSEMENT_MISMATCH,
    ),
    "two": (
        _extension(dice_tcb_info(FWID, OTHER)),
        RefusalCode.ENDORSEMENT_MISMATCH,
    ),
    "two and zeros": (
        _extension(dice_tcb_info(FWID, ZEROS, OTHER)),
        RefusalCode.ENDORSEMENT_MISMATCH,
    ),
    "another and zeros": (
        _extension(dice_tcb_info(OTHER, ZEROS)),
        RefusalCode.ENDORSEMENT_MISMATCH,
    ),
    "zeros alone": (
        _both(_opaque(OPAQUE_FWID, ZEROS), _extension(dice_tcb_info(ZEROS))),
        RefusalCode.ENDORSEMENT_MISMATCH,
    ),
    "zeros, in the older form": (
        _both(
            _opaque(OPAQUE_FWID, ZEROS),
            _extension(composite_device_id(_issuer(), ZEROS)),
        ),
        RefusalCode.ENDORSEMENT_MISMATCH,
    ),
    "zeros reported": (
        _both(_opaque(OPAQUE_FWID, ZEROS), _extension(dice_tcb_info(FWID, ZEROS))),
        RefusalCode.ENDORSEMENT_MISMATCH,
    ),
    "both identifiers": (
        _certificate(
            3,
            extensions=(
                (DICE_TCB_INFO, False, dice_tcb_info(FWID)),
                (BLACKWELL_TCB_INFO, False, dice_tcb_info(FWID)),
            ),
        ),
        RefusalCode.MALFORMED,
    ),
    "none listed": (_extension(dice_tcb_info()), RefusalCode.ENDORSEMENT_MISMATCH),
    "no list": (
        _extension(der(0x30, der(0x80, FWID))),
        RefusalCode.ENDORSEMENT_MISMATCH,
    ),
    # The digest's bytes are there, but they are the vendor's name.
    "only found by searching": (
        _extension(der(0x30, der(0x80, FWID) + der(0xA6, encode_fwid(OTHER)))),
        RefusalCode.ENDORSEMENT_MISMATCH,
    ),
    "SHA-256": (
        _extension(der(0x30, der(0xA6, encode_fwid(bytes(32), SHA256_OID)))),
        RefusalCode.UNSUPPORTED_ALGORITHM,
    ),
    "short": (_extension(dice_tcb_info(FWID[:-1])), RefusalCode.MALFORMED),
    "not DER": (_extension(b"\x30\x05\x00"), RefusalCode.MALFORMED),
    "not a sequence": (_extension(der(0x04, FWID)), RefusalCode.MALFORMED),
    "a set": (
        _extension(b"\x31" + dice_tcb_info(FWID)[1:]),
        RefusalCode.MALFORMED,
    ),
    "trailing bytes": (
        _extension(dice_tcb_info(FWID) + b"\0"),
        RefusalCode.MALFORMED,
    ),
    "out of order": (
        _extension(der(0x30, der(0xA6, encode_fwid(FWID)) + der(0x80, b"x"))),
        RefusalCode.MALFORMED,
    ),
    "list twice": (
        _extension(
            der(
                0x30,
                der(0xA6, encode_fwid(OTHER)) + der(0xA6, encode_fwid(FWID)),
            )
        ),
        RefusalCode.MALFORMED,
    ),
    "alien members": (
        _extension(der(0x30, der(0x0C, b"x") + der(0xA6, encode_fwid(FWID)))),
        RefusalCode.MALFORMED,
    ),
    "list of others": (
        _extension(der(0x30, der(0xA6, der(0x31, FWID)))),
        RefusalCode.MALFORMED,
    ),
    "composite of two": (
        _extension(der(0x30, der(0x02, b"\1") + encode_fwid(FWID))),
        RefusalCode.MALFORMED,
    ),
    "composite of another type": (
        _extension(
            composite_device_id(_issuer(), FWID).replace(
                encode_fwid(FWID), b"\x31" + encode_fwid(FWID)[1:]
            )
        ),
        RefusalCode.MALFORMED,
    ),
    "digest of another type": (
        _extension(
            der(
                0x30,
                der(0xA6, der(0x30, encode_fwid(b"")[2:-2] + der(0x03, FWID))),
            )
        ),
        RefusalCode.MALFORMED,
    ),
    "digest and more": (
        _extension(
            der(
                0x30,
                der(
                    0xA6,
                    der(
                        0x30,
                        encode_fwid(b"")[2:-2] + der(0x04, FWID) + der(0x05, b""),
                    ),
                ),
            )
        ),
        RefusalCode.MALFORMED,
    ),
}


def test_an_older_report_names_no_firmware_and_its_key_still_must() -> None:
    def unnamed(fields: GpuFields) -> GpuFields:
        kept = tuple(each for each in fields.opaque if each[0] != OPAQUE_FWID)
        assert len(kept) < len(fields.opaque)
        return replace(fields, opaque=kept)

    claims, log = _verify(_evidence(unnamed))
    assert claims.details["fwid"] == ""
    said = {step.name: step.detail for step in log.steps}[GpuCheck.FIRMWARE]
    assert said == f"the key's alone: {FWID.hex()[:16]}…"
    for nothing in (_certificate(3, extensions=()), _extension(dice_tcb_info())):
        error = _refused(_evidence(_both(unnamed, nothing)))
        assert error.code is RefusalCode.ENDORSEMENT_MISMATCH


@pytest.mark.parametrize("name", FIRMWARE)
def test_a_wrong_firmware_identity_is_refused(name: str) -> None:
    change, code = FIRMWARE[name]
    error = _refused(_evidence(change))
    assert (error.code, error.step) == (code, GpuCheck.FIRMWARE)


@pytest.mark.parametrize(
    "content",
    [
        "3080",  # indefinite length
        "308103020100",  # a short length in the long form
        "30820003020100",  # leading zero
        "3083000003020100",  # three bytes of length
        "30",  # no length
        "3081",  # no long length
        "3f8103020100",  # a tag number that continues
        "300431023030",  # nested length beyond the end
    ],
)
def test_lengths_have_one_form(content: str) -> None:
    with pytest.raises(RefusedError) as caught:
        firmware_id({DICE_TCB_INFO: bytes.fromhex(content)}, _issuer_info())
    assert caught.value.code is RefusalCode.MALFORMED


SHORT = dice_tcb_info(FWID)[2:]
LONG = composite_device_id(_issuer(), FWID)[3:]


@pytest.mark.parametrize(
    "extension",
    [
        b"\x30\x81" + bytes([len(SHORT)]) + SHORT,
        b"\x30\x82\x00" + bytes([len(LONG)]) + LONG,
        b"\x30\x83\x00\x00" + bytes([len(LONG)]) + LONG,
        b"\x30\x80" + SHORT,
        b"\x30\x7f" + SHORT,
        b"\x30\x81\xff" + LONG,
        der(0x30, SHORT + b"\x9f\x01\x00"),
    ],
    ids=[
        "long form of a short length",
        "leading zero",
        "two leading zeros",
        "indefinite",
        "beyond the end",
        "far beyond the end",
        "a tag that continues",
    ],
)
def test_what_would_say_the_same_is_refused(extension: bytes) -> None:
    same = (dice_tcb_info(FWID), composite_device_id(_issuer(), FWID))
    for true in same:
        assert firmware_id({DICE_TCB_INFO: true}, _issuer_info()) == FWID
    with pytest.raises(RefusedError) as caught:
        firmware_id({DICE_TCB_INFO: extension}, _issuer_info())
    assert caught.value.code is RefusalCode.MALFORMED


@given(st.binary(max_size=300))
def test_any_extension_gives_a_value_or_a_refusal(content: bytes) -> None:
    with suppress(RefusedError):
        assert len(firmware_id({DICE_TCB_INFO: content}, _issuer_info())) == 48


# --- 7 and 8: versions and measurements ---------------------------------------

VERSIONS: dict[str, tuple[ChangeGpu, RefusalCode]] = {
    "another driver": (
        _opaque(OPAQUE_DRIVER, b"550.90.08\0"),
        RefusalCode.MEASUREMENT_NOT_ALLOWED,
    ),
    "another VBIOS": (
        _opaque(OPAQUE_VBIOS, bytes.fromhex("009f009602000000")),
        RefusalCode.MEASUREMENT_NOT_ALLOWED,
    ),
    "a longer VBIOS": (
        _opaque(OPAQUE_VBIOS, bytes.fromhex("009f009601000001")),
        RefusalCode.MEASUREMENT_NOT_ALLOWED,
    ),
    "driver not terminated": (
        _opaque(OPAQUE_DRIVER, b"550.90.07"),
        RefusalCode.MALFORMED,
    ),
    "driver with more": (
        _opaque(OPAQUE_DRIVER, b"550.90.07\0x\0"),
        RefusalCode.MALFORMED,
    ),
    "driver not ASCII": (_opaque(OPAQUE_DRIVER, b"\xff\0"), RefusalCode.MALFORMED),
    "driver empty": (_opaque(OPAQUE_DRIVER, b"\0"), RefusalCode.MALFORMED),
    "driver long": (_opaque(OPAQUE_DRIVER, b"5" * 64 + b"\0"), RefusalCode.MALFORMED),
    "VBIOS short": (_opaque(OPAQUE_VBIOS, bytes(7)), RefusalCode.MALFORMED),
    "VBIOS long": (_opaque(OPAQUE_VBIOS, bytes(9)), RefusalCode.MALFORMED),
    "no driver": (
        lambda f: replace(
            f, opaque=tuple((k, v) for k, v in f.opaque if k != OPAQUE_DRIVER)
        ),
        RefusalCode.MALFORMED,
    ),
    "no VBIOS": (
        lambda f: replace(
            f, opaque=tuple((k, v) for k, v in f.opaque if k != OPAQUE_VBIOS)
        ),
        RefusalCode.MALFORMED,
    ),
}


@pytest.mark.parametrize("name", VERSIONS)
def test_another_version_is_refused(name: str) -> None:
    change, code = VERSIONS[name]
    error = _refused(_evidence(change))
    assert (error.code, error.step) == (code, GpuCheck.VERSIONS)


def _blocks(index: int, value: bytes) -> ChangeGpu:
    blocks = tuple((n, value if n == index else v) for n, v in ordinary_blocks())
    return _set(blocks=blocks)


MEASUREMENTS: dict[str, ChangeGpu] = {
    "first block": _blocks(1, b"\1" * 48),
    "last block": _blocks(64, b"\1" * 48),
    "a block that may vary": _blocks(36, bytes(48)),
    "shorter block": _blocks(64, bytes(32)),
    "block missing": _set(blocks=ordinary_blocks()[:-1]),
    "another order": _set(blocks=ordinary_blocks()[::-1]),
}


@pytest.mark.parametrize("name", MEASUREMENTS)
def test_another_measurement_is_refused(name: str) -> None:
    error = _refused(_evidence(MEASUREMENTS[name]))
    assert (error.code, error.step) == (
        RefusalCode.MEASUREMENT_NOT_ALLOWED,
        GpuCheck.MEASUREMENTS,
    )


@pytest.mark.parametrize("name", ["drivers", "vbioses", "golden"])
def test_an_empty_list_refuses(name: str) -> None:
    none: dict[str, Any] = {name: frozenset()}
    expectations = replace(RULES.expectations, **none)
    error = _refused(GENUINE, replace(RULES, expectations=expectations))
    assert error.code is RefusalCode.MEASUREMENT_NOT_ALLOWED
    assert error.detail.endswith("; accepted: none")


@pytest.mark.parametrize("name", ["drivers", "vbioses", "golden"])
def test_what_is_refused_is_shown_next_to_what_is_accepted(name: str) -> None:
    (value,) = getattr(RULES.expectations, name)
    others: dict[str, Any] = {name: frozenset({"b", "a"})}
    expectations = replace(RULES.expectations, **others)
    error = _refused(GENUINE, replace(RULES, expectations=expectations))
    what = {"drivers": "driver", "vbioses": "VBIOS", "golden": "golden"}[name]
    assert error.detail.startswith(f"{what} {value.lower()} ")
    assert error.detail.endswith("; accepted: a, b")


def test_nothing_listed_refuses() -> None:
    error = _refused(GENUINE, replace(RULES, expectations=GpuExpectations()))
    assert error.code is RefusalCode.MEASUREMENT_NOT_ALLOWED


def test_the_golden_digest_is_that_of_the_record_alone() -> None:
    # Another nonce and another start of the same GPU: the same digest.
    other = GPU.evidence(bytes(32), change=_set(responder_nonce=b"\7" * 32))
    assert _verify(other)[0].details["golden"] == _verify(GENUINE)[0].details["golden"]
    digest = hashes.Hash(hashes.SHA256())
    digest.update(encode_record(ordinary_blocks()))
    assert _verify(GENUINE)[0].details["golden"] == digest.finalize().hex()


HOSTILE = {
    "half tokens": b"ey" * 16000,
    "short tokens": b"eya." * 8000,
    "a token without an end": b"eyaaaa." + b"a" * 32000,
    "opened objects": b"{" * 32768,
    "opened arrays": b"[" * 32768,
    "many blocks": GENUINE.report[:41] + b"\xff\xff\xff\xff" + bytes(32000),
    "nothing but a version": b"\x11" * 32768,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_input_costs_little_memory(name: str) -> None:
    tracemalloc.start()
    error = _refused(HOSTILE[name])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert error.step == GpuCheck.LAYOUT
    assert peak < 2**21


# --- any bytes ----------------------------------------------------------------


@given(st.integers(0, len(GENUINE.report)), st.integers(0, 64), st.binary(max_size=64))
def test_any_edit_gives_a_value_or_a_refusal(at: int, drop: int, insert: bytes) -> None:
    report = GENUINE.report[:at] + insert + GENUINE.report[at + drop :]
    with suppress(RefusedError):
        claims, _ = _verify(replace(GENUINE, report=report))
        assert claims.signed_part == GENUINE.report[:-96]


@given(st.binary(max_size=600), st.integers(0, 3))
def test_any_certificate_gives_a_refusal(der_bytes: bytes, place: int) -> None:
    chain = list(GENUINE.chain)
    chain[place] = der_bytes
    error = _refused(replace(GENUINE, chain=tuple(chain)))
    assert error.code is RefusalCode.CHAIN_INVALID


@given(st.integers(0, 4), st.data())
def test_any_flipped_bit_of_a_certificate_is_refused(
    place: int, data: st.DataObject
) -> None:
    chain = list(GENUINE.chain)
    flipped = bytearray(chain[place])
    bit = data.draw(st.integers(0, 8 * len(flipped) - 1))
    flipped[bit // 8] ^= 1 << bit % 8
    chain[place] = bytes(flipped)
    assert _refused(replace(GENUINE, chain=tuple(chain))).code in {
        RefusalCode.CHAIN_INVALID,
        RefusalCode.UNTRUSTED_ROOT,
    }
