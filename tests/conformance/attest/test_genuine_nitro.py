"""Genuine Nitro documents through the verifier, under AWS's own root."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from curtilage.attest.claims import CpuClaims, Measurement
from curtilage.attest.encoding.cose import parse_cose_sign1
from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.evidence import NitroEvidence, Tee
from curtilage.attest.expectations import AnchorKind, TrustAnchor
from curtilage.attest.nitro.document import NitroDocument, parse_nitro_document
from curtilage.attest.nitro.verify import (
    MAX_DOCUMENT_AGE_S,
    NitroCheck,
    NitroRules,
    verify_nitro,
)
from curtilage.attest.steps import StepLog

# Each at the time that it was made.
ACCEPTED = {
    "dstack_nsmqvl_2025": datetime(2025, 12, 25, 13, 15, 37, tzinfo=UTC),
    "evervault_2023": datetime(2023, 1, 18, 13, 7, 19, tzinfo=UTC),
}
DEBUG = {"evervault_DEBUG_2023": datetime(2023, 1, 18, 15, 10, 32, tzinfo=UTC)}
ALL = ACCEPTED | DEBUG
AWS = TrustAnchor.of_vendor(AnchorKind.AWS)


def _read(shared_dir: Path, name: str) -> bytes:
    return (shared_dir / "evidence/nitro" / f"{name}.cbor").read_bytes()


def _fields(data: bytes) -> NitroDocument:
    message = parse_cose_sign1(data, where="document", limit_bytes=32768)
    return parse_nitro_document(message.payload)


def _measurement(data: bytes) -> Measurement:
    pcrs = _fields(data).pcrs
    return {f"pcr{index}": pcrs[index].hex() for index in (0, 1, 2)}


def _verify(
    data: bytes,
    now: datetime,
    *,
    anchor: TrustAnchor = AWS,
    accepted: Measurement | None = None,
) -> CpuClaims:
    rules = NitroRules(
        anchors=(anchor,),
        clock_skew_s=60,
        max_age_s=MAX_DOCUMENT_AGE_S,
        measurements=(accepted or _measurement(data),),
    )
    evidence = NitroEvidence(tee=Tee.NITRO, document=data)
    return verify_nitro(evidence, rules, now=now, log=StepLog())


def _refused(data: bytes, now: datetime, *, anchor: TrustAnchor = AWS) -> RefusalCode:
    with pytest.raises(RefusedError) as caught:
        _verify(data, now, anchor=anchor)
    return caught.value.code


@pytest.mark.parametrize("name", ACCEPTED)
def test_a_genuine_document_is_believed_at_its_time(
    shared_dir: Path, name: str
) -> None:
    data = _read(shared_dir, name)
    claims = _verify(data, ACCEPTED[name])
    fields = _fields(data)
    assert claims.bound == (fields.user_data or b"")
    assert claims.platform == fields.module_id
    assert len(claims.registers) == 16
    assert claims.expires_at - ACCEPTED[name] <= timedelta(hours=3)
    assert claims.links[0].subject == "aws.nitro-enclaves"
    assert len(claims.links) == 5


def test_the_user_data_of_a_genuine_document_is_bound(shared_dir: Path) -> None:
    claims = _verify(
        _read(shared_dir, "dstack_nsmqvl_2025"), ACCEPTED["dstack_nsmqvl_2025"]
    )
    assert len(claims.bound) == 64


@pytest.mark.parametrize("name", DEBUG)
def test_a_genuine_debug_document_is_refused(shared_dir: Path, name: str) -> None:
    assert _refused(_read(shared_dir, name), DEBUG[name]) is RefusalCode.DEBUG_ENABLED


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("hours", [4, 24, 24 * 365, 24 * 365 * 20])
def test_a_genuine_document_ends(shared_dir: Path, name: str, hours: int) -> None:
    later = ALL[name] + timedelta(hours=hours)
    code = _refused(_read(shared_dir, name), later)
    assert code is RefusalCode.EXPIRED_ENDORSEMENT


@pytest.mark.parametrize("name", ALL)
def test_a_genuine_document_begins(shared_dir: Path, name: str) -> None:
    earlier = ALL[name] - timedelta(hours=1)
    assert _refused(_read(shared_dir, name), earlier) is RefusalCode.NOT_YET_VALID


@pytest.mark.parametrize("name", ALL)
def test_a_genuine_document_under_another_root_is_refused(
    shared_dir: Path, name: str
) -> None:
    other = TrustAnchor.of_vendor(AnchorKind.NVIDIA)
    code = _refused(_read(shared_dir, name), ALL[name], anchor=other)
    assert code is RefusalCode.UNTRUSTED_ROOT


def test_aws_root_is_the_one_in_the_samples(shared_dir: Path) -> None:
    for name in ALL:
        root = _fields(_read(shared_dir, name)).cabundle[0]
        made = TrustAnchor.of_certificate(AnchorKind.AWS, "", root)
        assert made.fingerprint == AWS.fingerprint


def test_another_release_is_refused(shared_dir: Path) -> None:
    accepted = _measurement(_read(shared_dir, "evervault_2023"))
    data = _read(shared_dir, "dstack_nsmqvl_2025")
    with pytest.raises(RefusedError) as caught:
        _verify(data, ACCEPTED["dstack_nsmqvl_2025"], accepted=accepted)
    assert caught.value.code is RefusalCode.MEASUREMENT_NOT_ALLOWED


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_flipped_bit_is_refused(shared_dir: Path, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(ACCEPTED)))
    document = bytearray(_read(shared_dir, name))
    accepted = _measurement(bytes(document))
    bit = data.draw(st.integers(0, 8 * len(document) - 1))
    document[bit // 8] ^= 1 << bit % 8
    with pytest.raises(RefusedError):
        _verify(bytes(document), ACCEPTED[name], accepted=accepted)


def test_tag_and_unprotected_header_are_refused(shared_dir: Path) -> None:
    data = _read(shared_dir, "evervault_2023")
    now = ACCEPTED["evervault_2023"]
    accepted = _measurement(data)
    # The unprotected header is the byte after "84 44 a1 01 38 22".
    assert data[6] == 0xA0
    for changed in (b"\xd2" + data, data[:6] + b"\xa1\x04\x41\x00" + data[7:]):
        with pytest.raises(RefusedError) as caught:
            _verify(changed, now, accepted=accepted)
        assert (caught.value.code, NitroCheck.LAYOUT) == (
            RefusalCode.MALFORMED,
            "document layout",
        )
