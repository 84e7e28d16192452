import ctypes
import errno
import fcntl
import struct
from pathlib import Path

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curtilage.attest.evidence import NitroEvidence, Tee
from curtilage.attest.evidence_json import encode_cpu_evidence, parse_cpu_evidence
from curtilage.attest.nitro.document import certificates_of
from curtilage.enclave_server.acquire.endorsements import (
    Endorsements,
    answer_file,
    list_file,
)
from curtilage.enclave_server.acquire.nitro_nsm import (
    MAX_RESPONSE_BYTES,
    NSM_IOCTL,
    NsmDevice,
    NsmProvider,
    encode_attestation_request,
    parse_attestation_response,
)
from curtilage.enclave_server.errors import AcquisitionError
from curtilage_dev.deployment import MEASUREMENT
from curtilage_dev.emulated.nitro import EmulatedNitro
from support.enclave_devices import FakeNsm, os_error
from support.enclave_parts import NOW

DATA = bytes(range(64))
CANARY = "canary-90c1"


def response(document: object) -> bytes:
    return cbor2.dumps({"Attestation": {"document": document}})


def test_request_is_the_device_s_own() -> None:
    request = cbor2.loads(encode_attestation_request(DATA))
    assert request == {
        "Attestation": {"user_data": DATA, "nonce": None, "public_key": None}
    }
    assert len(encode_attestation_request(DATA)) < 0x1000


@pytest.mark.parametrize("length", [0, 63, 65])
def test_report_data_of_another_length_is_not_asked_for(length: int) -> None:
    nsm = FakeNsm(answer=lambda _message: b"")
    with pytest.raises(AcquisitionError, match="not 64 bytes"):
        NsmProvider(nsm).acquire(bytes(length), Endorsements())
    assert nsm.asked == []


def test_its_authorities_lists_are_stapled_and_no_others() -> None:
    nitro = EmulatedNitro.make(now=NOW)
    document = nitro.evidence(DATA, now=NOW, measurement=MEASUREMENT).document
    root, region, *_, leaf = certificates_of(document)
    files = {
        list_file(root): b"root's",
        list_file(region): b"region's",
        list_file(leaf): b"nobody's",
        list_file(b"another"): b"another's",
        answer_file(root): b"answer",
    }
    nsm = FakeNsm(answer=lambda _message: response(document))
    evidence = NsmProvider(nsm).acquire(DATA, Endorsements(named=files))
    assert evidence == NitroEvidence(
        tee=Tee.NITRO, document=document, crls=(b"root's", b"region's")
    )


def test_a_document_that_cannot_be_read_is_its_verifiers_business() -> None:
    nsm = FakeNsm(answer=lambda _message: response(b"rubbish"))
    evidence = NsmProvider(nsm).acquire(DATA, Endorsements())
    assert evidence == NitroEvidence(tee=Tee.NITRO, document=b"rubbish")


def test_document_carries_our_bytes() -> None:
    nitro = EmulatedNitro.make(now=NOW)

    def answer(message: bytes) -> bytes:
        asked = cbor2.loads(message)["Attestation"]["user_data"]
        evidence = nitro.evidence(asked, now=NOW, measurement=MEASUREMENT)
        return response(evidence.document)

    evidence = NsmProvider(FakeNsm(answer=answer)).acquire(DATA, Endorsements())
    assert isinstance(evidence, NitroEvidence)
    assert evidence.tee is Tee.NITRO
    assert parse_cpu_evidence(encode_cpu_evidence(evidence)) == evidence
    assert DATA in evidence.document


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (b"", "malformed"),
        (b"\xff", "malformed"),
        (bytes(MAX_RESPONSE_BYTES + 1), "too_large"),
        (cbor2.dumps([1]), "holds no document"),
        (cbor2.dumps({"Attestation": 1}), "holds no document"),
        (cbor2.dumps({"Attestation": {}}), "holds no document"),
        (response(b""), "holds no document"),
        (response("text"), "holds no document"),
        (cbor2.dumps({"Error": "InvalidArgument"}), "refused: InvalidArgument"),
        (cbor2.dumps({"Error": f"{CANARY} said"}), "refused: unknown error"),
        (cbor2.dumps({"Error": 7}), "refused: unknown error"),
    ],
)
def test_response_out_of_shape_is_refused(answer: bytes, expected: str) -> None:
    nsm = FakeNsm(answer=lambda _message: answer)
    with pytest.raises(AcquisitionError, match=expected) as caught:
        NsmProvider(nsm).acquire(DATA, Endorsements())
    assert CANARY not in str(caught.value)
    assert caught.value.__cause__ is None


@given(answer=st.binary(max_size=200))
def test_any_response_gives_a_document_or_is_refused(answer: bytes) -> None:
    try:
        document = parse_attestation_response(answer)
    except AcquisitionError:
        return
    assert document in answer


def test_device_that_fails_is_an_error() -> None:
    def answer(_message: bytes) -> bytes:
        raise os_error(errno.EACCES)

    with pytest.raises(AcquisitionError, match="no document: EACCES"):
        NsmProvider(FakeNsm(answer=answer)).acquire(DATA, Endorsements())


def test_machine_without_the_device_is_an_error(tmp_path: Path) -> None:
    door = NsmDevice(tmp_path / "nsm")
    with pytest.raises(AcquisitionError, match="no document: ENOENT"):
        NsmProvider(door).acquire(DATA, Endorsements())


def test_file_that_is_no_such_device_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "nsm"
    path.write_bytes(b"")
    with pytest.raises(AcquisitionError, match="no document: ENOTTY"):
        NsmProvider(NsmDevice(path)).acquire(DATA, Endorsements())


def test_request_number_is_the_kernel_header_s() -> None:
    # _IOWR('\n', 0, struct nsm_raw): both ways, 32 bytes.
    read_and_write, size, kind, number = 3, 32, 0x0A, 0
    assert read_and_write << 30 | size << 16 | kind << 8 | number == NSM_IOCTL


def test_device_takes_pointers_and_gives_a_length(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ioctl is simulated: it reads and writes through the addresses."""
    path, seen = tmp_path / "nsm", list[bytes]()
    path.write_bytes(b"")

    def ioctl(_descriptor: int, number: int, vectors: bytearray) -> int:
        assert number == NSM_IOCTL
        sent, length, received, room = struct.unpack("=QQQQ", vectors)
        seen.append(ctypes.string_at(sent, length))
        assert room == MAX_RESPONSE_BYTES
        answer = response(b"document")
        ctypes.memmove(received, answer, len(answer))
        vectors[:] = struct.pack("=QQQQ", sent, length, received, len(answer))
        return 0

    monkeypatch.setattr(fcntl, "ioctl", ioctl)
    evidence = NsmProvider(NsmDevice(path)).acquire(DATA, Endorsements())
    assert evidence == NitroEvidence(tee=Tee.NITRO, document=b"document")
    assert seen == [encode_attestation_request(DATA)]
