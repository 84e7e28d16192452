# ruff: noqa: ANN401 - fields of every type are changed by name

import tracemalloc
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import cbor2
import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given
from hypothesis import strategies as st

from curtilage.attest.claims import Measurement
from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.evidence import NitroEvidence, Tee
from curtilage.attest.expectations import Revocation
from curtilage.attest.nitro.document import certificates_of
from curtilage.attest.nitro.verify import (
    MAX_DOCUMENT_AGE_S,
    NitroCheck,
    NitroRules,
    verify_nitro,
)
from curtilage.attest.steps import StepLog
from curtilage.attest.x509.p384_chain import parse_chain
from curtilage_dev.emulated.changes import unchanged
from curtilage_dev.emulated.nitro import (
    ChangeNitro,
    EmulatedNitro,
    NitroFields,
    registers_of,
)
from curtilage_dev.emulated.p384_pki import P384Fields, new_key
from curtilage_dev.emulated.p384_revocation import LIST_LIFE, ListFields

NOW = datetime(2027, 6, 1, 12, tzinfo=UTC)
IMAGE = b"\x17" * 48
BOUND = b"\x29" * 64
PLATFORM = EmulatedNitro.make(now=NOW)
RULES = NitroRules(
    anchors=(PLATFORM.anchor(),),
    clock_skew_s=60,
    max_age_s=MAX_DOCUMENT_AGE_S,
    measurements=(registers_of(IMAGE),),
)
# The order of the group of P-384.
ORDER = int(
    "ffffffffffffffffffffffffffffffffffffffffffffffff"
    "c7634d81f4372ddf581a0db248b0a77aecec196accc52973",
    16,
)


def _evidence(change: ChangeNitro = unchanged) -> NitroEvidence:
    return PLATFORM.evidence(BOUND, now=NOW, measurement=IMAGE, change=change)


GENUINE = _evidence().document


def _verify(
    document: bytes, rules: NitroRules = RULES, *, now: datetime = NOW
) -> tuple[Any, StepLog]:
    log = StepLog()
    evidence = NitroEvidence(tee=Tee.EMULATED_NITRO, document=document)
    return verify_nitro(evidence, rules, now=now, log=log), log


def _refused(
    document: bytes, rules: NitroRules = RULES, *, now: datetime = NOW
) -> RefusedError:
    log = StepLog()
    evidence = NitroEvidence(tee=Tee.EMULATED_NITRO, document=document)
    with pytest.raises(RefusedError) as caught:
        verify_nitro(evidence, rules, now=now, log=log)
    return log.refusal(caught.value.code, caught.value.detail)


def test_revocation_lists_are_demanded_by_the_policy_alone() -> None:
    required = replace(RULES, revocation=Revocation.REQUIRED)
    error = _refused(GENUINE, required)
    assert (error.code, error.step) == (
        RefusalCode.CRL_MISSING,
        NitroCheck.REVOCATION,
    )
    _verify(GENUINE)


def _listed(crls: tuple[bytes, ...], rule: Revocation) -> tuple[Any, StepLog]:
    log = StepLog()
    evidence = NitroEvidence(tee=Tee.EMULATED_NITRO, document=GENUINE, crls=crls)
    rules = replace(RULES, revocation=rule)
    return verify_nitro(evidence, rules, now=NOW, log=log), log


def _unlisted(crls: tuple[bytes, ...], rule: Revocation) -> RefusalCode:
    with pytest.raises(RefusedError) as caught:
        _listed(crls, rule)
    return caught.value.code


@pytest.mark.parametrize("rule", Revocation)
def test_lists_that_hold_are_accepted_and_end(rule: Revocation) -> None:
    claims, log = _listed(PLATFORM.lists(NOW), rule)
    assert claims.expires_at < NOW + LIST_LIFE
    said = {step.name: step.detail for step in log.steps}[NitroCheck.REVOCATION]
    assert said.startswith("2 not revoked")

    def soon(fields: ListFields) -> ListFields:
        return replace(fields, next_update=NOW + timedelta(minutes=1))

    claims, _ = _listed(PLATFORM.lists(NOW, change=soon), rule)
    assert claims.expires_at == NOW + timedelta(minutes=1)


@pytest.mark.parametrize("rule", Revocation)
def test_what_is_stapled_is_never_ignored(rule: Revocation) -> None:
    chain = parse_chain(certificates_of(GENUINE))
    for place, each in enumerate(PLATFORM.lists(NOW)):
        serial = chain[place + 1].serial

        def revoke(fields: ListFields, serial: int = serial) -> ListFields:
            return replace(fields, revoked=(serial,))

        lists = list(PLATFORM.lists(NOW))
        lists[place] = PLATFORM.lists(NOW, change=revoke)[place]
        assert lists[place] != each
        assert _unlisted(tuple(lists), rule) is RefusalCode.REVOKED
    assert _unlisted((b"list",), rule) is RefusalCode.CRL_INVALID


@pytest.mark.parametrize("place", [0, 1])
def test_each_list_is_demanded(place: int) -> None:
    lists = list(PLATFORM.lists(NOW))
    del lists[place]
    missing = _unlisted(tuple(lists), Revocation.REQUIRED)
    assert missing is RefusalCode.CRL_MISSING


def _set(**changes: Any) -> ChangeNitro:
    return lambda fields: replace(fields, **changes)


def _more(**fields: Any) -> ChangeNitro:
    return _set(more=fields)


def _certificate(place: int, **changes: Any) -> ChangeNitro:
    """Change one certificate below the root; 0 is the region's, 3 the leaf."""

    def change(fields: NitroFields) -> NitroFields:
        chain = list(fields.chain)
        chain[place] = replace(chain[place], **changes)
        return replace(fields, chain=tuple(chain))

    return change


# --- accepted -----------------------------------------------------------------


def test_no_step_repeats_text_before_the_signature_holds() -> None:
    """An attacker's words would stand where a person reads what passed."""
    canary = "ACCEPTED-until-2099"
    document = _evidence(_set(module_id=canary)).document
    flipped = document[:-1] + bytes([document[-1] ^ 1])
    error = _refused(flipped)
    assert error.code is RefusalCode.BAD_SIGNATURE
    assert not any(canary in step.detail for step in error.steps)
    assert _verify(document)[0].platform == canary


def test_a_document_is_accepted() -> None:
    claims, log = _verify(GENUINE)
    assert [step.name for step in log.steps] == [check.value for check in NitroCheck]
    assert claims.tee is Tee.EMULATED_NITRO
    assert claims.bound == BOUND
    assert claims.platform == PLATFORM.module_id
    assert claims.registers["pcr0"] == IMAGE.hex()
    assert claims.registers["pcr3"] == "00" * 48
    assert len(claims.registers) == 16
    assert claims.expires_at == NOW - timedelta(seconds=3) + timedelta(hours=3)
    root, *others, own = [link.role for link in claims.links]
    assert root.startswith("root ")
    assert others == ["intermediate"] * 3
    assert own.startswith("this enclave's ")
    assert claims.links[0].fingerprint == PLATFORM.anchor().fingerprint
    assert claims.links[1].issuer == claims.links[0].subject


def test_a_pinned_fingerprint_is_enough() -> None:
    anchor = replace(PLATFORM.anchor(), certificate_der=b"")
    claims, _ = _verify(GENUINE, replace(RULES, anchors=(anchor,)))
    assert claims.bound == BOUND


@pytest.mark.parametrize("user_data", [None, b"", b"x", bytes(512)])
def test_bound_is_what_is_there(user_data: bytes | None) -> None:
    claims, _ = _verify(_evidence(_set(user_data=user_data)).document)
    assert claims.bound == (user_data or b"")


def test_optional_fields_may_be_missing_or_full() -> None:
    missing = _set(without=frozenset({"nonce", "public_key", "user_data"}))
    assert _verify(_evidence(missing).document)[0].bound == b""
    full = _set(nonce=bytes(512), public_key=bytes(1024))
    details = _verify(_evidence(full).document)[0].details
    assert (len(details["nonce"]), len(details["public_key"])) == (1024, 2048)


@pytest.mark.parametrize("size", [32, 48, 64])
def test_registers_have_the_size_of_a_digest(size: int) -> None:
    change = _set(pcrs={**_measured(), 31: bytes(size)})
    claims, _ = _verify(_evidence(change).document)
    assert claims.registers["pcr31"] == "00" * size


def test_the_other_spelling_of_a_signature_names_nothing_new() -> None:
    parts = cbor2.loads(GENUINE)
    s = int.from_bytes(parts[3][48:], "big")
    parts[3] = parts[3][:48] + (ORDER - s).to_bytes(48, "big")
    twin = cbor2.dumps(parts)
    assert twin != GENUINE
    assert _verify(twin)[0] == _verify(GENUINE)[0]


# --- 1: layout ----------------------------------------------------------------


def _parts(**changes: Any) -> bytes:
    names = ("protected", "unprotected", "payload", "signature")
    parts = dict(zip(names, cbor2.loads(GENUINE), strict=True))
    return cbor2.dumps(list((parts | changes).values()))


LAYOUTS = {
    "empty": (b"", RefusalCode.MALFORMED),
    "trailing byte": (GENUINE + b"\0", RefusalCode.MALFORMED),
    "truncated": (GENUINE[:-1], RefusalCode.MALFORMED),
    "tag 18": (b"\xd2" + GENUINE, RefusalCode.MALFORMED),
    "self-described": (b"\xd9\xd9\xf7" + GENUINE, RefusalCode.MALFORMED),
    "unprotected header": (_parts(unprotected={4: b"x"}), RefusalCode.MALFORMED),
    "ES256": (
        _parts(protected=cbor2.dumps({1: -7})),
        RefusalCode.UNSUPPORTED_ALGORITHM,
    ),
    "detached payload": (_parts(payload=None), RefusalCode.MALFORMED),
    "too large": (GENUINE.ljust(32769, b"\0"), RefusalCode.TOO_LARGE),
    "bomb of arrays": (b"\x81" * 32768, RefusalCode.MALFORMED),
    "bomb of lengths": (b"\x9b" + b"\xff" * 8, RefusalCode.MALFORMED),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_another_layout_is_refused(name: str) -> None:
    document, code = LAYOUTS[name]
    error = _refused(document)
    assert (error.code, error.step) == (code, NitroCheck.LAYOUT)


# --- 2: fields ----------------------------------------------------------------


def _measured() -> dict[int, bytes]:
    return {
        int(name[3:]): bytes.fromhex(value)
        for name, value in registers_of(IMAGE).items()
    }


FIELDS: dict[str, tuple[ChangeNitro, RefusalCode]] = {
    "digest": (_set(digest="SHA256"), RefusalCode.MALFORMED),
    "digest lower case": (_set(digest="sha384"), RefusalCode.MALFORMED),
    "module id empty": (_set(module_id=""), RefusalCode.MALFORMED),
    "module id number": (_more(module_id=1), RefusalCode.MALFORMED),
    "module id long": (_set(module_id="x" * 257), RefusalCode.MALFORMED),
    "module id unprintable": (_set(module_id="i-\n"), RefusalCode.MALFORMED),
    "timestamp zero": (_set(timestamp_ms=0), RefusalCode.MALFORMED),
    "timestamp negative": (_set(timestamp_ms=-1), RefusalCode.MALFORMED),
    "timestamp huge": (_set(timestamp_ms=2**63), RefusalCode.MALFORMED),
    "timestamp text": (_more(timestamp="1"), RefusalCode.MALFORMED),
    "timestamp true": (_more(timestamp=True), RefusalCode.MALFORMED),
    "no registers": (_set(pcrs={}), RefusalCode.MALFORMED),
    "register 32": (_set(pcrs={**_measured(), 32: bytes(48)}), RefusalCode.MALFORMED),
    "register -1": (_set(pcrs={**_measured(), -1: bytes(48)}), RefusalCode.MALFORMED),
    "register named": (_more(pcrs={"0": bytes(48)}), RefusalCode.MALFORMED),
    "register short": (_set(pcrs={0: bytes(20)}), RefusalCode.MALFORMED),
    "register 47 bytes": (_set(pcrs={0: bytes(47)}), RefusalCode.MALFORMED),
    "register text": (_more(pcrs={0: "0" * 48}), RefusalCode.MALFORMED),
    "registers array": (_more(pcrs=[bytes(48)]), RefusalCode.MALFORMED),
    "no certificate": (_more(certificate=b""), RefusalCode.MALFORMED),
    "certificate text": (_more(certificate="x"), RefusalCode.MALFORMED),
    "certificate large": (_more(certificate=bytes(1025)), RefusalCode.TOO_LARGE),
    "bundle empty": (_more(cabundle=[]), RefusalCode.MALFORMED),
    "bundle bytes": (_more(cabundle=b"x"), RefusalCode.MALFORMED),
    "bundle number": (_more(cabundle=7), RefusalCode.MALFORMED),
    "bundle map": (_more(cabundle={0: PLATFORM.root}), RefusalCode.MALFORMED),
    "bundle of empty": (_more(cabundle=[b""]), RefusalCode.MALFORMED),
    "bundle of 8": (_more(cabundle=[b"x"] * 8), RefusalCode.TOO_LARGE),
    "bundle of 400": (_more(cabundle=[b"x"] * 400), RefusalCode.TOO_LARGE),
    "bundle of 9000": (_more(cabundle=[b"x"] * 9000), RefusalCode.TOO_LARGE),
    "bundle entry large": (_more(cabundle=[bytes(1025)]), RefusalCode.TOO_LARGE),
    "user data long": (_set(user_data=bytes(513)), RefusalCode.TOO_LARGE),
    "user data text": (_more(user_data="x"), RefusalCode.MALFORMED),
    "nonce long": (_set(nonce=bytes(513)), RefusalCode.TOO_LARGE),
    "nonce number": (_more(nonce=7), RefusalCode.MALFORMED),
    "public key long": (_set(public_key=bytes(1025)), RefusalCode.TOO_LARGE),
    "public key empty": (_set(public_key=b""), RefusalCode.MALFORMED),
    "unknown field": (_more(debug=True), RefusalCode.MALFORMED),
    "unknown number": (_set(more={1: -35}), RefusalCode.MALFORMED),
    **{
        f"no {name}": (_set(without=frozenset({name})), RefusalCode.MALFORMED)
        for name in (
            "module_id",
            "digest",
            "timestamp",
            "pcrs",
            "certificate",
            "cabundle",
        )
    },
}


@pytest.mark.parametrize("name", FIELDS)
def test_validly_signed_nonsense_is_refused(name: str) -> None:
    change, code = FIELDS[name]
    error = _refused(_evidence(change).document)
    assert (error.code, error.step) == (code, NitroCheck.FIELDS)


@pytest.mark.parametrize("value", [[1], 1, None, "text", b"bytes", True], ids=str)
def test_a_payload_that_is_no_map_is_refused(value: object) -> None:
    error = _refused(_parts(payload=cbor2.dumps(value)))
    assert error.detail == "payload: not a map"
    assert (error.code, error.step) == (RefusalCode.MALFORMED, NitroCheck.FIELDS)


def test_a_duplicate_field_is_refused() -> None:
    payload = cbor2.loads(GENUINE)[2]
    twice = payload[:-1] + cbor2.dumps("digest") + cbor2.dumps("SHA384") + b"\xff"
    assert cbor2.loads(twice) == cbor2.loads(payload)
    error = _refused(_parts(payload=twice))
    assert (error.code, error.step) == (RefusalCode.MALFORMED, NitroCheck.FIELDS)


def test_a_duplicate_register_is_refused() -> None:
    payload = cbor2.loads(GENUINE)[2]
    measured = cbor2.dumps(0) + cbor2.dumps(IMAGE)
    assert payload.count(b"\xb0" + measured) == 1
    twice = payload.replace(b"\xb0" + measured, b"\xb1" + measured * 2)
    error = _refused(_parts(payload=twice))
    assert (error.code, error.step) == (RefusalCode.MALFORMED, NitroCheck.FIELDS)


# --- 3, 4 and 5: chain --------------------------------------------------------


def test_another_root_is_not_trusted() -> None:
    other = EmulatedNitro.make(now=NOW)
    error = _refused(GENUINE, replace(RULES, anchors=(other.anchor(),)))
    assert (error.code, error.step) == (RefusalCode.UNTRUSTED_ROOT, NitroCheck.ROOT)


def test_no_root_trusts_nothing() -> None:
    error = _refused(GENUINE, replace(RULES, anchors=()))
    assert error.code is RefusalCode.UNTRUSTED_ROOT


def test_an_attackers_chain_below_the_true_root_is_refused() -> None:
    attacker = EmulatedNitro.make(now=NOW)
    evidence = attacker.evidence(BOUND, now=NOW, measurement=IMAGE)
    payload = cbor2.loads(cbor2.loads(evidence.document)[2])
    bundle = [PLATFORM.root, *payload["cabundle"][1:]]
    document = attacker.evidence(
        BOUND, now=NOW, measurement=IMAGE, change=_more(cabundle=bundle)
    ).document
    error = _refused(document)
    assert (error.code, error.step) == (RefusalCode.CHAIN_INVALID, NitroCheck.CHAIN)


def _p256() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


CHAINS: dict[str, ChangeNitro] = {
    "region no authority": _certificate(0, authority=False, path_length=None),
    "region without constraints": _certificate(0, authority=None),
    "zone may not sign": _certificate(1, signs_certificates=False),
    "instance's path too short": _certificate(0, path_length=1),
    "zone's path too short": _certificate(1, path_length=0),
    "leaf an authority": _certificate(3, authority=True),
    "leaf may not sign data": _certificate(3, signs_data=False),
    "issuer's name": _certificate(2, issuer_name="somebody"),
    "leaf's issuer's name": _certificate(3, issuer_name="somebody"),
    "leaf on P-256": _certificate(3, key=_p256()),
    "zone on P-256": _certificate(1, key=_p256()),
    "SHA-256": _certificate(1, algorithm=hashes.SHA256()),
    "SHA-512 leaf": _certificate(3, algorithm=hashes.SHA512()),
    "critical extension": _certificate(
        2, extensions=(("1.3.6.1.4.1.99999.1", True, b"\x05\x00"),)
    ),
    "leaf's critical extension": _certificate(
        3, extensions=(("1.3.6.1.4.1.99999.1", True, b"\x05\x00"),)
    ),
}


@pytest.mark.parametrize("name", CHAINS)
def test_a_wrong_chain_is_refused(name: str) -> None:
    error = _refused(_evidence(CHAINS[name]).document)
    assert (error.code, error.step) == (RefusalCode.CHAIN_INVALID, NitroCheck.CHAIN)


def test_an_extension_that_is_not_critical_is_ignored() -> None:
    change = _certificate(3, extensions=(("1.3.6.1.4.1.99999.1", False, b"\x05\0"),))
    assert _verify(_evidence(change).document)[0].bound == BOUND


def test_a_leaf_signed_by_another_key_is_refused() -> None:
    # The zone's certificate comes with a key that signs nothing below it.
    true = cbor2.loads(cbor2.loads(GENUINE)[2])["cabundle"]
    other = _evidence(_certificate(2, key=new_key())).document
    bundle = cbor2.loads(cbor2.loads(other)[2])["cabundle"]
    change = _more(cabundle=[*true[:3], bundle[3]])
    error = _refused(_evidence(change).document)
    assert (error.code, error.step) == (RefusalCode.CHAIN_INVALID, NitroCheck.CHAIN)
    assert error.detail == "leaf: signature"


@pytest.mark.parametrize("drop", [1, 2, 3])
def test_a_certificate_missing_from_the_chain_is_refused(drop: int) -> None:
    bundle = cbor2.loads(cbor2.loads(GENUINE)[2])["cabundle"]
    change = _more(cabundle=bundle[:drop] + bundle[drop + 1 :])
    error = _refused(_evidence(change).document)
    assert error.code is RefusalCode.CHAIN_INVALID


def test_rubbish_in_the_chain_is_refused() -> None:
    bundle = [PLATFORM.root, b"\x30\x00"]
    error = _refused(_evidence(_more(cabundle=bundle)).document)
    assert (error.code, error.step) == (RefusalCode.CHAIN_INVALID, NitroCheck.CHAIN)


def test_a_leaf_has_an_end() -> None:
    end = NOW - timedelta(seconds=3) + timedelta(hours=3)
    assert _verify(GENUINE, now=end)[0].expires_at == end
    error = _refused(GENUINE, now=end + timedelta(seconds=1))
    assert (error.code, error.step) == (
        RefusalCode.EXPIRED_ENDORSEMENT,
        NitroCheck.DATES,
    )


@pytest.mark.parametrize("place", [0, 1, 2, 3])
def test_an_expired_certificate_is_refused(place: int) -> None:
    change = _certificate(place, not_after=NOW - timedelta(seconds=1))
    error = _refused(_evidence(change).document)
    assert (error.code, error.step) == (
        RefusalCode.EXPIRED_ENDORSEMENT,
        NitroCheck.DATES,
    )


@pytest.mark.parametrize("place", [0, 1, 2, 3])
def test_a_certificate_of_the_future_is_refused(place: int) -> None:
    change = _certificate(place, not_before=NOW + timedelta(seconds=61))
    error = _refused(_evidence(change).document)
    assert (error.code, error.step) == (RefusalCode.NOT_YET_VALID, NitroCheck.DATES)


def test_a_clock_that_runs_a_little_late_still_accepts() -> None:
    assert _verify(GENUINE, now=NOW - timedelta(seconds=60))[0].bound == BOUND
    early = _refused(GENUINE, now=NOW - timedelta(seconds=64))
    assert (early.code, early.step) == (RefusalCode.NOT_YET_VALID, NitroCheck.DATES)


# --- 6: signature -------------------------------------------------------------


@pytest.mark.parametrize("offset", [0, 47, 48, 95])
def test_a_flipped_signature_is_refused(offset: int) -> None:
    signature = bytearray(cbor2.loads(GENUINE)[3])
    signature[offset] ^= 1
    error = _refused(_parts(signature=bytes(signature)))
    assert (error.code, error.step) == (
        RefusalCode.BAD_SIGNATURE,
        NitroCheck.SIGNATURE,
    )


@pytest.mark.parametrize(
    "signature", [bytes(96), b"\xff" * 96, bytes(48) + b"\1" * 48], ids=str
)
def test_a_signature_out_of_range_is_refused(signature: bytes) -> None:
    assert _refused(_parts(signature=signature)).code is RefusalCode.BAD_SIGNATURE


SIGNED_TEXTS = {
    "module id": PLATFORM.module_id.encode(),
    "register 0": IMAGE,
    "register 1": bytes.fromhex(registers_of(IMAGE)["pcr1"]),
    "user data": BOUND,
}


@pytest.mark.parametrize("name", SIGNED_TEXTS)
def test_a_flipped_field_is_refused(name: str) -> None:
    where = GENUINE.index(SIGNED_TEXTS[name])
    document = bytearray(GENUINE)
    document[where + 5] ^= 1
    error = _refused(bytes(document))
    assert (error.code, error.step) == (
        RefusalCode.BAD_SIGNATURE,
        NitroCheck.SIGNATURE,
    )


def test_another_enclaves_signature_is_refused() -> None:
    other = _evidence(_certificate(3, key=new_key())).document
    error = _refused(_parts(signature=cbor2.loads(other)[3]))
    assert error.code is RefusalCode.BAD_SIGNATURE


def test_a_payload_encoded_again_is_refused() -> None:
    # The same values in a map of known length are other bytes.
    payload = cbor2.dumps(cbor2.loads(cbor2.loads(GENUINE)[2]))
    error = _refused(_parts(payload=payload))
    assert error.code is RefusalCode.BAD_SIGNATURE


# --- 7, 8 and 9: time, debugging, measurement ---------------------------------


def _made(seconds: float) -> ChangeNitro:
    made = int((NOW + timedelta(seconds=seconds)).timestamp() * 1000)
    return _set(timestamp_ms=made)


@pytest.mark.parametrize(
    ("seconds", "code"),
    [
        (61, RefusalCode.NOT_YET_VALID),
        (-MAX_DOCUMENT_AGE_S - 1, RefusalCode.STALE),
        (-10 * 86400, RefusalCode.STALE),
    ],
)
def test_a_document_of_another_time_is_refused(
    seconds: float, code: RefusalCode
) -> None:
    error = _refused(_evidence(_made(seconds)).document)
    assert (error.code, error.step) == (code, NitroCheck.TIME)


def test_a_policy_may_want_younger_documents_than_a_leaf_lives() -> None:
    rules = replace(RULES, max_age_s=600)
    claims, _ = _verify(_evidence(_made(-600)).document, rules=rules)
    assert claims.expires_at == NOW
    error = _refused(_evidence(_made(-601)).document, rules=rules)
    assert (error.code, error.step) == (RefusalCode.STALE, NitroCheck.TIME)


def test_no_policy_lets_a_document_be_older_than_a_leaf_lives() -> None:
    rules = replace(RULES, max_age_s=2 * MAX_DOCUMENT_AGE_S)
    old = _evidence(_made(-MAX_DOCUMENT_AGE_S - 1)).document
    assert _refused(old, rules=rules).code is RefusalCode.STALE


@pytest.mark.parametrize("seconds", [60, 0.537, -MAX_DOCUMENT_AGE_S])
def test_a_document_of_this_time_is_accepted(seconds: float) -> None:
    assert _verify(_evidence(_made(seconds)).document)[0].bound == BOUND


@pytest.mark.parametrize(
    "pcrs",
    [
        dict.fromkeys(range(16), bytes(48)),
        {**dict.fromkeys(range(3), bytes(48)), 3: b"\1" * 48, 4: b"\2" * 48},
        {3: b"\1" * 48, 4: b"\2" * 48},
        {0: bytes(48), 8: b"\1" * 48},
    ],
    ids=["all zero", "first three zero", "absent", "zero and absent"],
)
def test_debug_mode_is_refused(pcrs: dict[int, bytes]) -> None:
    error = _refused(_evidence(_set(pcrs=pcrs)).document)
    assert (error.code, error.step) == (RefusalCode.DEBUG_ENABLED, NitroCheck.DEBUG)


def test_debug_mode_is_refused_even_if_zeros_are_accepted() -> None:
    zeros: Measurement = dict.fromkeys(("pcr0", "pcr1", "pcr2"), "00" * 48)
    pcrs = dict.fromkeys(range(16), bytes(48))
    rules = replace(RULES, measurements=(zeros,))
    error = _refused(_evidence(_set(pcrs=pcrs)).document, rules)
    assert error.code is RefusalCode.DEBUG_ENABLED


@pytest.mark.parametrize("index", [0, 1, 2])
def test_another_measurement_is_refused(index: int) -> None:
    pcrs = {**_measured(), index: b"\x33" * 48}
    error = _refused(_evidence(_set(pcrs=pcrs)).document)
    assert (error.code, error.step) == (
        RefusalCode.MEASUREMENT_NOT_ALLOWED,
        NitroCheck.MEASUREMENT,
    )


@pytest.mark.parametrize("missing", [1, 2])
def test_a_missing_register_is_refused(missing: int) -> None:
    pcrs = {n: value for n, value in _measured().items() if n != missing}
    error = _refused(_evidence(_set(pcrs=pcrs)).document)
    assert error.code is RefusalCode.MEASUREMENT_NOT_ALLOWED


@pytest.mark.parametrize(
    "accepted",
    [
        (),
        ({"pcr0": IMAGE.hex()},),
        ({},),
        ({**registers_of(IMAGE), "pcr8": "11" * 48},),
        ({**registers_of(IMAGE), "pcr31": "00" * 48},),
    ],
    ids=["none", "too few", "empty", "another register", "a register not there"],
)
def test_lists_that_do_not_match_refuse(accepted: tuple[Measurement, ...]) -> None:
    error = _refused(GENUINE, replace(RULES, measurements=accepted))
    assert (error.code, error.step) == (
        RefusalCode.MEASUREMENT_NOT_ALLOWED,
        NitroCheck.MEASUREMENT,
    )


def test_a_further_register_may_be_required() -> None:
    pcrs = {**_measured(), 8: b"\x88" * 48}
    accepted = {**registers_of(IMAGE), "pcr8": "88" * 48}
    rules = replace(RULES, measurements=(accepted,))
    document = _evidence(_set(pcrs=pcrs)).document
    assert _verify(document, rules)[0].registers["pcr8"] == "88" * 48


HOSTILE = {
    "opened arrays": b"\x81" * 30000,
    "opened arrays without an end": b"\x9f" * 30000,
    "opened maps": b"\xa1\x00" * 15000,
    "many items": b"\x9f" + bytes(30000) + b"\xff",
    "many members": b"\xbf" + b"\x00\x00" * 15000 + b"\xff",
    "all the items there are": b"\x9b" + b"\xff" * 8,
    "all the bytes there are": b"\x5b" + b"\xff" * 8,
    "a number of all bytes": b"\xc2\x5b" + b"\xff" * 8,
    "large fraction": bytes.fromhex("c4821a7fffffff01"),
}


@pytest.mark.parametrize("inside", [False, True], ids=["document", "payload"])
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_input_costs_little_memory(name: str, inside: bool) -> None:
    document = _parts(payload=HOSTILE[name]) if inside else HOSTILE[name]
    tracemalloc.start()
    error = _refused(document)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert error.step == (NitroCheck.FIELDS if inside else NitroCheck.LAYOUT)
    assert peak < 2**21


# --- any bytes ----------------------------------------------------------------


@given(st.integers(0, 8 * len(GENUINE) - 1))
def test_any_flipped_bit_is_refused(bit: int) -> None:
    document = bytearray(GENUINE)
    document[bit // 8] ^= 1 << bit % 8
    _refused(bytes(document))


@given(st.integers(0, len(GENUINE) - 1))
def test_any_prefix_is_refused(size: int) -> None:
    assert _refused(GENUINE[:size]).code is RefusalCode.MALFORMED


@given(st.integers(0, len(GENUINE)), st.integers(0, 64), st.binary(max_size=64))
def test_any_edit_gives_a_value_or_a_refusal(at: int, drop: int, insert: bytes) -> None:
    document = GENUINE[:at] + insert + GENUINE[at + drop :]
    with suppress(RefusedError):
        claims, _ = _verify(document)
        assert claims.bound == BOUND


@given(st.binary(max_size=1024), st.integers(0, 3))
def test_any_certificate_gives_a_value_or_a_refusal(der: bytes, place: int) -> None:
    bundle = cbor2.loads(cbor2.loads(GENUINE)[2])["cabundle"]
    bundle[place] = der or b"\0"
    payload = cbor2.loads(cbor2.loads(GENUINE)[2]) | {"cabundle": bundle}
    error = _refused(_parts(payload=cbor2.dumps(payload)))
    assert error.code in {RefusalCode.UNTRUSTED_ROOT, RefusalCode.CHAIN_INVALID}


def test_repr_of_a_document_holds_no_evidence() -> None:
    fields = PLATFORM.fields(BOUND, now=NOW, measurement=IMAGE)
    assert isinstance(fields.chain[0], P384Fields)
    assert "PrivateKey" not in repr(fields)
    assert "PrivateKey" not in repr(PLATFORM)
