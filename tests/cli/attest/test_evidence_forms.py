"""Emulated evidence in the formats of particular tools and services."""

import json
import struct
import uuid
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from urllib.parse import quote

import pytest

from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.evidence import (
    AzureEvidence,
    DeviceKind,
    GpuEvidence,
    NitroEvidence,
    SnpEvidence,
    TdxEvidence,
    Tee,
    TpmEvidence,
)
from curtilage.attest.sev_snp.report import parse_report
from curtilage.cli.attest.evidence_files import (
    EvidenceFiles,
    cpu_evidence,
    device_evidence,
)
from curtilage.cli.attest.snp_certificate_table import HostTable, read_table
from curtilage.cli.attest.tdx_collateral import read_collateral
from curtilage_dev.deployment import MEASUREMENT
from curtilage_dev.emulated.machines import make_gpus, make_machine
from support.evidence_texts import (
    ARK,
    ASK,
    CRL,
    VCEK,
    as_json,
    b64,
    certificate_table,
    pem,
    pem_text,
    refused,
)
from support.memory_enclave import NOW


def evidence_of(tee: Tee) -> object:
    return make_machine(tee, MEASUREMENT, now=NOW).evidence(bytes(64), now=NOW)


@pytest.fixture(name="snp", scope="module")
def _snp() -> SnpEvidence:
    machine = make_machine(Tee.EMULATED_SEV_SNP, MEASUREMENT, now=NOW)
    found = machine.evidence(bytes(64), now=NOW)
    assert isinstance(found, SnpEvidence)
    return replace(found, ark=machine.anchor().certificate_der)


@pytest.fixture(name="tdx", scope="module")
def _tdx() -> TdxEvidence:
    found = evidence_of(Tee.EMULATED_TDX)
    assert isinstance(found, TdxEvidence)
    return found


@pytest.fixture(name="azure", scope="module")
def _azure() -> AzureEvidence:
    found = evidence_of(Tee.EMULATED_AZURE_SNP)
    assert isinstance(found, AzureEvidence)
    return found


# --- SEV-SNP -----------------------------------------------------------------


def snp_from(**files: bytes) -> SnpEvidence:
    found = cpu_evidence(Tee.EMULATED_SEV_SNP, EvidenceFiles(**files))
    assert isinstance(found, SnpEvidence)
    return found


ONE, TWO = b"\x30\x82\x01\x00" + bytes(256), b"\x30\x03abc"


@pytest.mark.parametrize("swapped", [False, True])
def test_the_hosts_table_is_read_in_either_byte_order(swapped: bool) -> None:
    file = certificate_table((VCEK, ONE), (ASK, TWO), swapped=swapped)
    assert read_table(file) == HostTable(certificates=(ONE, TWO))


def test_other_files_are_no_table() -> None:
    assert read_table(ONE) is None
    assert read_table(pem(ONE)) is None


def test_a_table_that_points_outside_is_refused() -> None:
    file = certificate_table((VCEK, ONE))
    row = certificate_table((VCEK, TWO))[:24]
    for wrong in (file[:-1], row, row * 17):
        assert refused(partial(read_table, wrong)) is RefusalCode.MALFORMED


def whole_table(snp: SnpEvidence) -> bytes:
    return certificate_table(
        (CRL, snp.crl), (ARK, snp.ark), (ASK, snp.ask), (VCEK, snp.vek)
    )


def test_a_table_may_begin_with_any_row(snp: SnpEvidence) -> None:
    other = str(uuid.UUID(int=1))
    for first in ((CRL, snp.crl), (other, b"something of the host's")):
        rows = (first, (ASK, snp.ask), (ARK, snp.ark), (VCEK, snp.vek))
        found = snp_from(
            evidence=snp.report, certs=certificate_table(*rows), crl=snp.crl
        )
        assert found == snp


def test_a_tables_revocation_list_is_used_without_another(snp: SnpEvidence) -> None:
    assert snp_from(evidence=snp.report, certs=whole_table(snp)) == snp
    other = b"\x30\x03abc"
    found = snp_from(evidence=snp.report, certs=whole_table(snp), crl=other)
    assert found.crl == other
    twice = certificate_table((CRL, snp.crl), (CRL, snp.crl))
    assert refused(lambda: read_table(twice)) is RefusalCode.MALFORMED


def test_a_report_followed_by_its_table_is_split(snp: SnpEvidence) -> None:
    extended = snp.report + whole_table(snp)
    assert snp_from(evidence=extended) == snp
    assert snp_from(evidence=extended + bytes(999)) == snp
    assert snp_from(evidence=extended.hex().encode()) == snp
    # Anything but a table is kept, for the verifier to refuse.
    for tail in (b"\1", bytes(4000), b"abc" * 99, bytes(99) + b"\1"):
        assert snp_from(evidence=snp.report + tail).report == snp.report + tail
    cut = snp.report + whole_table(snp)[:-1]
    assert refused(lambda: snp_from(evidence=cut)) is RefusalCode.MALFORMED


KERNEL = struct.pack("<II24x", 0, 1184)


def test_the_kernels_response_is_read(snp: SnpEvidence) -> None:
    report = snp.report
    answer = KERNEL + report
    for file in (answer, answer.ljust(4000, b"\0"), report.ljust(4096, b"\0")):
        assert snp_from(evidence=file).report == report
        assert snp_from(evidence=b64(file).encode()).report == report
        assert snp_from(evidence=as_json({"report": b64(file)})).report == report


NO_REPORT: dict[str, Callable[[bytes], bytes]] = {
    "page": lambda report: report.ljust(4097, b"\0"),
    "long answer": lambda report: (KERNEL + report).ljust(4097, b"\0"),
    "tail": lambda report: report + bytes(9) + b"\1",
    "answer's tail": lambda report: KERNEL + report + b"\1",
    "cut": lambda report: KERNEL + report[:-1],
    "status": lambda report: struct.pack("<II24x", 1, 1184) + report,
    "size": lambda report: struct.pack("<II24x", 0, 1185) + report,
    "gap": lambda report: struct.pack("<II23xB", 0, 1184, 1) + report,
    "twice": lambda report: KERNEL + KERNEL + report,
}


@pytest.mark.parametrize("wrong", NO_REPORT)
def test_a_report_in_something_else_is_not_found(wrong: str, snp: SnpEvidence) -> None:
    """The result is not a report, and the verifier refuses it."""
    handed = snp_from(evidence=NO_REPORT[wrong](snp.report)).report
    with pytest.raises(RefusedError):
        parse_report(handed)


@pytest.mark.parametrize("place", ["certs", "chain", "vek"])
def test_the_metadata_services_answer_is_read(place: str, snp: SnpEvidence) -> None:
    answer = as_json(
        {
            "vcekCert": pem_text(snp.vek),
            "tcbm": "DB18000000000004",
            "certificateChain": pem_text(snp.ask, snp.ark),
            "cacheControl": "86400",
        }
    )
    files = {"evidence": snp.report, "crl": snp.crl, place: answer}
    assert snp_from(**files) == snp
    files[place] = as_json({"vcek": pem_text(snp.vek)})
    assert refused(lambda: snp_from(**files)) is RefusalCode.MALFORMED


def test_the_chips_certificate_may_bring_its_chain(snp: SnpEvidence) -> None:
    for order in ((snp.vek, snp.ask, snp.ark), (snp.ark, snp.ask, snp.vek)):
        files = {
            "evidence": snp.report,
            "crl": snp.crl,
            "vek": pem(*order),
        }
        assert snp_from(**files) == snp
    for wrong in ((snp.vek, snp.vek), (snp.ask, snp.ark)):
        files = {"evidence": snp.report, "vek": pem(*wrong)}
        assert refused(partial(snp_from, **files)) is RefusalCode.MALFORMED


@pytest.mark.parametrize("key", ["report", "attestation_report"])
@pytest.mark.parametrize("write", [b64, bytes.hex, list], ids=["base64", "hex", "list"])
def test_a_report_in_json_is_read(
    key: str, write: Callable[[bytes], object], snp: SnpEvidence
) -> None:
    chain = [
        {"cert_type": kind, "data": write(data)}
        for kind, data in (("ARK", snp.ark), ("VCEK", snp.vek), ("ASK", snp.ask))
    ]
    listed = as_json({key: write(snp.report), "cert_chain": chain})
    assert snp_from(evidence=listed, crl=snp.crl) == snp
    chain.append({"cert_type": "CRL", "data": write(snp.crl)})
    listed = as_json({key: write(snp.report), "cert_chain": chain})
    assert snp_from(evidence=listed) == snp
    text = as_json({key: write(snp.report), "cert_chain": pem_text(snp.ask, snp.ark)})
    assert snp_from(evidence=text, vek=snp.vek, crl=snp.crl) == snp
    alone = as_json({key: write(snp.report)})
    given = {"vek": snp.vek, "chain": snp.ask + snp.ark, "crl": snp.crl}
    assert snp_from(evidence=alone, **given) == snp


@pytest.mark.parametrize(
    "chain",
    [
        [{"cert_type": "VCEK", "data": "MAA="}] * 2,
        [{"cert_type": "OTHER", "data": "MAA="}],
        [{"cert_type": ["VCEK"], "data": "MAA="}],
        [{"data": "MAA="}],
        [{"cert_type": "VCEK"}],
        ["MAA="],
        5,
    ],
    ids=["twice", "other", "list", "no kind", "no data", "text", "number"],
)
def test_a_listed_chain_that_is_not_clear_is_refused(
    chain: object, snp: SnpEvidence
) -> None:
    file = as_json({"report": b64(snp.report), "cert_chain": chain})
    assert refused(lambda: snp_from(evidence=file)) is RefusalCode.MALFORMED


# --- Nitro -------------------------------------------------------------------


def document_from(file: bytes) -> bytes:
    found = cpu_evidence(Tee.EMULATED_NITRO, EvidenceFiles(evidence=file))
    assert isinstance(found, NitroEvidence)
    return found.document


def test_a_wrapped_document_is_found() -> None:
    document = b"\x84" + bytes(range(256)) * 9
    size = len(document).to_bytes(2, "big")
    module = b"\xa1\x6bAttestation\xa1\x68document\x59" + size + document
    for file in (
        as_json({"AttestationDocument": b64(document)}),
        as_json({"attestationDocument": b64(document)}),
        as_json({"attestation": b64(document)}),
        as_json({"doc": b64(document)}),
        as_json({"attestation_document": document.hex()}),
        module,
        b64(module).encode(),
        as_json({"attestation": b64(module)}),
    ):
        assert document_from(file) == document
    for changed in (module + b"\0", module[:-1], b"\xa2" + module[1:]):
        assert document_from(changed) == changed


def test_two_members_that_could_be_the_document_are_refused() -> None:
    file = as_json({"document": b64(b"\x84one"), "doc": b64(b"\x84two")})
    assert refused(lambda: document_from(file)) is RefusalCode.MALFORMED


# --- TPM ---------------------------------------------------------------------


def azure_from(evidence: AzureEvidence, **files: bytes) -> object:
    hardware = evidence.hardware
    assert isinstance(hardware, SnpEvidence)
    pcrs = as_json({str(index): value.hex() for index, value in evidence.quote.pcrs})
    given = {
        "evidence": evidence.hcl,
        "vek": hardware.vek,
        "chain": hardware.ask + hardware.ark,
        "crl": hardware.crl,
        "quote_message": evidence.quote.message,
        "quote_signature": evidence.quote.signature,
        "pcrs": pcrs,
    }
    return cpu_evidence(evidence.tee, EvidenceFiles(**(given | files)))


def test_a_quotes_message_may_bring_its_size(azure: AzureEvidence) -> None:
    assert azure_from(azure) == azure
    message = azure.quote.message
    framed = len(message).to_bytes(2, "big") + message
    assert azure_from(azure, quote_message=framed) == azure
    for wrong in (framed + b"\0", b"\0\0" + message):
        quoted = replace(azure.quote, message=wrong)
        assert azure_from(azure, quote_message=wrong) == replace(azure, quote=quoted)


def test_an_agents_register_values_may_be_an_object(azure: AzureEvidence) -> None:
    quote_ = azure.quote
    fields: dict[str, object] = {
        "message": b64(quote_.message),
        "signature": b64(quote_.signature),
        "pcrs": {str(index): value.hex() for index, value in quote_.pcrs},
    }
    file = as_json({"tpm_quote": fields, "ak_public": b64(b"\x30\x03abc")})
    found = cpu_evidence(Tee.TPM, EvidenceFiles(evidence=file))
    assert isinstance(found, TpmEvidence)
    assert found.quote == quote_
    fields["pcrs"] = "00"
    file = as_json({"tpm_quote": fields, "ak_public": b64(b"\x30\x03abc")})
    with pytest.raises(RefusedError):
        cpu_evidence(Tee.TPM, EvidenceFiles(evidence=file))


# --- NVIDIA ------------------------------------------------------------------


def test_an_older_tools_names_are_known() -> None:
    (evidence,) = make_gpus(1, now=NOW).evidence(bytes(64))
    entry = {
        "attestationReportHexStr": evidence.report.hex(),
        "certChainBase64Encoded": b64(pem(*evidence.chain)),
    }
    found = device_evidence(evidence.kind, EvidenceFiles(evidence=as_json([entry])))
    assert found == evidence


def gpus_from(value: object) -> GpuEvidence:
    return device_evidence(
        DeviceKind.NVIDIA_GPU, EvidenceFiles(evidence=as_json(value))
    )


def test_a_list_of_one_device_is_that_device() -> None:
    (evidence,) = make_gpus(1, now=NOW).evidence(bytes(64))
    entry = {
        "arch": "HOPPER",
        "uuid": "GPU-0",
        "evidence": b64(evidence.report),
        "certificate": b64(pem(*evidence.chain)),
    }
    for key in ("device_evidence_list", "gpu_evidence"):
        found = gpus_from({key: [entry]})
        assert (found.report, found.chain) == (evidence.report, evidence.chain)
    without = {"arch": "HOPPER", "uuid": "GPU-0"}
    for wrong in ([entry, entry], [], [without], [without, entry], ["entry"], entry, 5):
        with pytest.raises(RefusedError) as caught:
            gpus_from({"device_evidence_list": wrong})
        assert caught.value.code is RefusalCode.MALFORMED
    names = "evidence, attestationReportHexStr"
    assert "3 GPUs" in gpus_refusal([entry] * 3)
    assert names in gpus_refusal([without])
    assert names in gpus_refusal([{**entry, "attestationReportHexStr": "00"}])


def gpus_refusal(entries: list[dict[str, str]]) -> str:
    with pytest.raises(RefusedError) as caught:
        gpus_from({"device_evidence_list": entries})
    return caught.value.detail


# --- TDX ---------------------------------------------------------------------


def test_collateral_in_its_own_form_is_unchanged(tdx: TdxEvidence) -> None:
    assert read_collateral(tdx.collateral) == tdx.collateral
    assert read_collateral(b"\xef\xbb\xbf" + tdx.collateral) == tdx.collateral
    assert read_collateral(b"\n") == b""
    # The verifier refuses these.
    for other in (b"{}", b'{"pck_crl": ""}', b'{"tcb_info": 5}'):
        assert read_collateral(other) == other


@pytest.mark.parametrize(
    "file",
    [
        b"{",
        b"[{}]",
        b"abc",
        b"\xff",
        b'{"pck_crl": 5}',
        b'{"pck_crl": "zz!"}',
        b'{"tcb_info_signature": [256]}',
        b'{"tcb_info": "", "tcb_info": ""}',
        b'{"collateral": "abc"}',
        b'{"collateral": {}, "tcb_info": ""}',
        b'{"tcb_info": {}}',
    ],
    ids=repr,
)
def test_other_json_than_collateral_is_refused(file: bytes) -> None:
    assert refused(lambda: read_collateral(file)) is RefusalCode.MALFORMED


def test_collateral_as_the_service_answers_is_read(tdx: TdxEvidence) -> None:
    fields = json.loads(tdx.collateral)
    crl = bytes.fromhex(fields["pck_crl"])
    root = bytes.fromhex(fields["root_ca_crl"])
    chain = fields["tcb_info_issuer_chain"]
    signed = '{"tcbInfo":%s,"signature":"%s"}'
    identity = '{"enclaveIdentity":%s,"signature":"%s"}'
    for other in (
        {"pck_crl": pem_text(crl, label="X509 CRL"), "root_ca_crl": b64(root)},
        {"pck_crl": list(crl)},
        {
            name: list(bytes.fromhex(fields[name]))
            for name in ("tcb_info_signature", "qe_identity_signature")
        },
        {"tcb_info_issuer_chain": quote(chain, safe="")},
        {"tcb_info": signed % (fields["tcb_info"], fields["tcb_info_signature"])},
        {
            "qe_identity": identity
            % (fields["qe_identity"], fields["qe_identity_signature"]),
            "qe_identity_signature": None,
        },
    ):
        assert json.loads(read_collateral(as_json({**fields, **other}))) == fields
    both = {"tcb_info": signed % (fields["tcb_info"], "ab" * 64)}
    file = as_json({**fields, **both})
    assert refused(lambda: read_collateral(file)) is RefusalCode.MALFORMED


def test_collateral_in_another_form_is_refused(tdx: TdxEvidence) -> None:
    fields = json.loads(tdx.collateral)
    answer = {
        "tcbInfo": json.loads(fields["tcb_info"]),
        "signature": fields["tcb_info_signature"],
    }
    for other in (
        {"success": True, "collateral": fields},
        {"collateral": {"collateral": fields}},
        {**fields, "tcb_info": json.loads(fields["tcb_info"])},
        {**fields, "qe_identity": json.loads(fields["qe_identity"])},
        {**fields, "tcb_info": answer, "tcb_info_signature": None},
    ):
        with pytest.raises(RefusedError) as caught:
            read_collateral(as_json(other))
        assert caught.value.code is RefusalCode.MALFORMED
        assert "QuoteCollateralV3" in caught.value.detail


@pytest.mark.parametrize("deep", [100, 900, 960, 980, 990, 5000])
def test_a_deep_statement_is_refused(deep: int) -> None:
    file = b'{"tcb_info": {"a": ' + b"[" * deep + b"]" * deep + b"}}"
    assert refused(lambda: read_collateral(file)) is RefusalCode.MALFORMED
