import errno
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from hypothesis import given, settings
from hypothesis import strategies as st

from curtilage.attest.azure.hcl import HardwareKind, parse_hcl
from curtilage.attest.binding import qualifying_data_v2
from curtilage.attest.evidence import AzureEvidence, SnpEvidence, TdxEvidence, Tee
from curtilage.attest.evidence_json import encode_cpu_evidence, parse_cpu_evidence
from curtilage.attest.steps import StepLog
from curtilage.attest.tpm.quote import verify_quote
from curtilage.enclave_server.acquire.azure_vtpm import (
    ATTESTATION_KEY,
    HCL_INDEX,
    AzureTpmProvider,
)
from curtilage.enclave_server.acquire.endorsements import Endorsements
from curtilage.enclave_server.acquire.tpm_commands import Tpm, TpmDevice
from curtilage.enclave_server.errors import AcquisitionError
from curtilage.enclave_server.stapler.identity import TdReportIdentity, identity_of
from curtilage_dev.emulated.azure import (
    BlobFields,
    EmulatedAzure,
    encode_blob,
    make_azure,
)
from curtilage_dev.emulated.snp_pki import make_platform
from support.enclave_deployment import root_keys
from support.enclave_devices import FakeTpm, os_error
from support.enclave_parts import NOW

DATA = bytes(range(64))
STAPLED = Endorsements(vek=b"vek", ask=b"ask", ark=b"ark", crl=b"crl")
ALL = tuple(range(24))
SIZE = struct.Struct(">I")


@cache
def machine() -> EmulatedAzure:
    return make_azure(make_platform(root_keys(), now=NOW))


@cache
def blob(kind: HardwareKind = HardwareKind.SNP) -> bytes:
    runtime = machine().runtime_data()
    evidence = machine().evidence(bytes(32), now=NOW)
    report = parse_hcl(evidence.hcl).report
    return encode_blob(
        BlobFields(
            report=report if kind is HardwareKind.SNP else bytes(1024),
            runtime_data=runtime,
            kind=kind,
        )
    )


Respond = Callable[[int, bytes], bytes]


def unchanged(_code: int, response: bytes) -> bytes:
    return response


def altering(code: int, change: Callable[[bytes], bytes]) -> Respond:
    """Change the responses to one command."""

    def respond(seen: int, response: bytes) -> bytes:
        return change(response) if seen == code else response

    return respond


def vtpm(
    *,
    indices: dict[int, bytes] | None = None,
    key: int = ATTESTATION_KEY,
    most_digests: int = 8,
    busy: list[int] | None = None,
    change: Respond = unchanged,
) -> FakeTpm:
    return FakeTpm(
        tpm=machine().tpm,
        pcrs=dict(machine().pcrs),
        indices={HCL_INDEX: blob()} if indices is None else indices,
        key=key,
        most_digests=most_digests,
        busy=busy or [],
        change=change,
    )


def extended(times: int) -> FakeTpm:
    tpm = vtpm()
    tpm.after_quote = Extender(times)
    return tpm


def acquired(tpm: FakeTpm) -> AzureEvidence:
    evidence = AzureTpmProvider(tpm).acquire(DATA, STAPLED)
    assert isinstance(evidence, AzureEvidence)
    return evidence


def test_quote_binds_our_bytes_under_the_paravisor_s_key() -> None:
    evidence = acquired(vtpm())
    key = machine().tpm.key.public_key()
    assert isinstance(key, rsa.RSAPublicKey)
    quote = verify_quote(evidence.quote, key, log=StepLog())
    assert quote.extra_data == qualifying_data_v2(DATA)
    assert dict(quote.pcrs) == dict(machine().pcrs)
    assert evidence.tee is Tee.AZURE_SNP
    assert parse_cpu_evidence(encode_cpu_evidence(evidence)) == evidence


def test_hardware_s_report_is_the_one_in_the_index() -> None:
    evidence = acquired(vtpm())
    assert evidence.hcl == blob()
    assert evidence.hardware == SnpEvidence(
        tee=Tee.SEV_SNP,
        report=parse_hcl(blob()).report,
        vek=b"vek",
        ask=b"ask",
        crl=b"crl",
        ark=b"ark",
    )


@pytest.mark.parametrize("size", [0, 1, 511, 512, 513, 1024, 2600])
def test_index_is_read_in_pieces(size: int) -> None:
    content = bytes(index % 251 for index in range(size))
    tpm = Tpm(vtpm(indices={7: content}))
    assert tpm.nv_read(7, 2600) == content


def test_index_beyond_the_limit_is_not_read() -> None:
    fake = vtpm(indices={7: bytes(101)})
    with pytest.raises(AcquisitionError, match="longer than 100"):
        Tpm(fake).nv_read(7, 100)
    assert 0x14E not in fake.codes


@pytest.mark.parametrize("most", [1, 8, 24])
def test_registers_are_read_however_few_come_at_a_time(most: int) -> None:
    tpm = Tpm(vtpm(most_digests=most))
    assert dict(tpm.pcr_read(ALL)) == dict(machine().pcrs)
    assert [index for index, _ in tpm.pcr_read((11, 2, 11))] == [2, 11]


class Extender:
    """Extends a register after a quote, several times."""

    def __init__(self, times: int) -> None:
        self.left = times

    def __call__(self, tpm: FakeTpm) -> None:
        if self.left:
            self.left -= 1
            tpm.pcrs[11] = bytes([self.left]) * 32


def test_registers_that_change_meanwhile_are_quoted_again() -> None:
    evidence = acquired(extended(2))
    key = machine().tpm.key.public_key()
    assert isinstance(key, rsa.RSAPublicKey)
    quote = verify_quote(evidence.quote, key, log=StepLog())
    assert quote.pcrs[11] == bytes(32)


def test_registers_that_keep_changing_are_given_up() -> None:
    with pytest.raises(AcquisitionError, match="registers changed, 3 times"):
        acquired(extended(9))


@pytest.mark.parametrize("codes", [[0x922], [0x908, 0x90A, 0x922]])
def test_busy_tpm_is_asked_again(codes: list[int]) -> None:
    slept: list[float] = []
    tpm = Tpm(vtpm(busy=list(codes)), sleep=slept.append)
    assert len(tpm.pcr_read((0,))) == 1
    assert len(slept) == len(codes)


def test_tpm_that_stays_busy_is_given_up() -> None:
    tpm = Tpm(vtpm(busy=[0x922] * 9), sleep=lambda _seconds: None)
    with pytest.raises(AcquisitionError, match="refused: 0x922"):
        tpm.pcr_read((0,))


def test_machine_with_another_tpm_is_refused() -> None:
    with pytest.raises(AcquisitionError, match="refused: 0x18b"):
        acquired(vtpm(indices={}))
    with pytest.raises(AcquisitionError, match="refused: 0x18b"):
        acquired(vtpm(key=ATTESTATION_KEY + 1))


def test_a_tdx_machines_quote_is_stapled() -> None:
    tdx = blob(HardwareKind.TDX)
    stapled = Endorsements(quote=b"quote", collateral=b"{}")
    provider = AzureTpmProvider(vtpm(indices={HCL_INDEX: tdx}))
    evidence = provider.acquire(DATA, stapled)
    assert isinstance(evidence, AzureEvidence)
    assert (evidence.tee, evidence.hcl) == (Tee.AZURE_TDX, tdx)
    assert evidence.hardware == TdxEvidence(
        tee=Tee.TDX, quote=b"quote", collateral=b"{}"
    )
    key = machine().tpm.key.public_key()
    assert isinstance(key, rsa.RSAPublicKey)
    quote = verify_quote(evidence.quote, key, log=StepLog())
    assert quote.extra_data == qualifying_data_v2(DATA)


def test_a_tdx_machine_without_a_quote_identifies_itself() -> None:
    provider = AzureTpmProvider(vtpm(indices={HCL_INDEX: blob(HardwareKind.TDX)}))
    evidence = provider.acquire(DATA, Endorsements())
    assert parse_cpu_evidence(encode_cpu_evidence(evidence)) == evidence
    identity = identity_of(encode_cpu_evidence(evidence))
    assert identity == TdReportIdentity(report=bytes(1024))


@pytest.mark.parametrize("content", [b"", bytes(2600), b"HCLA" + bytes(2596)])
def test_index_that_holds_no_report_is_refused(content: bytes) -> None:
    with pytest.raises(AcquisitionError, match=r"report: (malformed|unsupported)"):
        acquired(vtpm(indices={HCL_INDEX: content}))


def test_index_that_is_too_long_is_refused() -> None:
    with pytest.raises(AcquisitionError, match="longer than 8192"):
        acquired(vtpm(indices={HCL_INDEX: bytes(8193)}))


NV_PUBLIC, NV_READ, PCR_READ, QUOTE = 0x169, 0x14E, 0x17E, 0x158
Change = Callable[[bytes], bytes]
# Register 23 alone, whatever was asked for.
THE_SAME = b"\0\0\x80" + SIZE.pack(1) + b"\0\x20" + bytes(32)
# Register 0 alone, and its value of 31 bytes.
ONE_SHORT = b"\1\0\0" + SIZE.pack(1) + b"\0\x1f" + bytes(31)


def sized_again(response: bytes) -> bytes:
    return response[:2] + SIZE.pack(len(response)) + response[6:]


OUT_OF_SHAPE: list[tuple[int, Change, str]] = [
    (PCR_READ, lambda _r: b"", "too short"),
    (PCR_READ, lambda r: r + b"x", "another length"),
    (PCR_READ, lambda r: b"\x80\x02" + r[2:], "another tag"),
    (PCR_READ, lambda r: sized_again(r[:-1]), "ends too soon"),
    (PCR_READ, lambda r: r[:14] + SIZE.pack(2) + r[18:], "another bank"),
    (PCR_READ, lambda r: r[:18] + b"\0\x04" + r[20:], "another bank"),
    (PCR_READ, lambda r: r[:21] + bytes(3) + r[24:], "other registers"),
    (PCR_READ, lambda r: sized_again(r[:21] + THE_SAME), "other registers"),
    (PCR_READ, lambda r: sized_again(r[:21] + bytes(7)), "other registers"),
    (PCR_READ, lambda r: r[:24] + SIZE.pack(25) + r[28:], "too many registers"),
    (PCR_READ, lambda r: sized_again(r[:21] + ONE_SHORT), "another length"),
    (NV_PUBLIC, lambda r: sized_again(r[:14]), "ends too soon"),
    (NV_READ, lambda r: r[:10] + SIZE.pack(9999) + r[14:], "ends too soon"),
    (NV_READ, lambda r: r[:14] + b"\0\1" + r[16:], "another length"),
    (QUOTE, lambda r: r[:14] + b"\xff\xff" + r[16:], "ends too soon"),
]


@pytest.mark.parametrize(("code", "change", "message"), OUT_OF_SHAPE)
def test_response_out_of_shape_is_refused(
    code: int, change: Change, message: str
) -> None:
    fake = vtpm(change=altering(code, change))
    with pytest.raises(AcquisitionError, match=message):
        acquired(fake)


@settings(max_examples=60)
@given(
    code=st.sampled_from([NV_PUBLIC, NV_READ, PCR_READ, QUOTE]),
    response=st.binary(max_size=120),
    size_true=st.booleans(),
)
def test_any_response_is_taken_or_refused(
    code: int, response: bytes, size_true: bool
) -> None:
    if size_true and len(response) >= 10:
        response = sized_again(response[:6] + bytes(4) + response[10:])
    fake = vtpm(change=altering(code, lambda _response: response))
    try:
        acquired(fake)
    except AcquisitionError:
        return


def test_quote_that_is_too_long_is_refused() -> None:
    def longer(response: bytes) -> bytes:
        content = response[14 : 14 + SIZE.unpack_from(response, 10)[0]]
        content += bytes(2000)
        body = SIZE.pack(len(content)) + content + b"\0\0\1\0\0"
        return sized_again(response[:10] + body)

    fake = vtpm(change=altering(QUOTE, longer))
    with pytest.raises(AcquisitionError, match=r"\bquote\b.* long$"):
        acquired(fake)


@pytest.mark.parametrize("index", [-1, 24])
def test_register_that_does_not_exist_is_not_asked_for(index: int) -> None:
    with pytest.raises(AcquisitionError, match="no such register"):
        Tpm(vtpm()).pcr_read((index,))


def test_machine_without_a_tpm_is_an_error(tmp_path: Path) -> None:
    provider = AzureTpmProvider(TpmDevice(tmp_path / "tpmrm0"))
    with pytest.raises(AcquisitionError, match="no quote: ENOENT"):
        provider.acquire(DATA, STAPLED)


@dataclass
class Broken:
    """A channel that fails."""

    error: OSError = field(default_factory=lambda: os_error(errno.EIO))

    def transmit(self, command: bytes) -> bytes:
        assert command
        raise self.error


def test_channel_that_fails_is_an_error() -> None:
    with pytest.raises(AcquisitionError, match="no quote: EIO") as caught:
        AzureTpmProvider(Broken()).acquire(DATA, STAPLED)
    assert caught.value.__cause__ is None


def test_device_is_written_to_and_read_from(tmp_path: Path) -> None:
    path = tmp_path / "tpm"
    path.write_bytes(b"0123456789")
    # A plain file goes on reading where the write has ended.
    assert TpmDevice(path).transmit(b"abc") == b"3456789"
