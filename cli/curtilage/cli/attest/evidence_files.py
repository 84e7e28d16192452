"""Assembles one piece of evidence from the files that attestation tools write.

Pure: bytes in, unverified evidence out. Knows the formats of the tools, and verifies
nothing. A missing part is empty, and the verifier reports it. ``encodings`` has the
accepted encodings of a file.
"""

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, cast

from curtilage.attest.encoding.strict_json import malformed
from curtilage.attest.evidence import (
    AzureEvidence,
    CpuEvidence,
    DeviceKind,
    GpuEvidence,
    NitroEvidence,
    SnpEvidence,
    TdxEvidence,
    Tee,
    TpmEvidence,
    TpmQuote,
)
from curtilage.attest.evidence_json import parse_cpu_evidence, parse_device_evidence
from curtilage.attest.nvidia.verify import refuse_token
from curtilage.attest.sev_snp.certificates import parse_certificate
from curtilage.attest.tpm.quote import parse_attest
from curtilage.attest.x509.certificates import Certificate
from curtilage.cli.attest.encodings import (
    decode_blob,
    decode_certificates,
    decode_der,
    decode_json,
    json_bytes,
    json_file,
)
from curtilage.cli.attest.snp_certificate_table import HostTable, read_table
from curtilage.cli.attest.tdx_collateral import read_collateral
from curtilage.cli.attest.tpm_registers import read_values, values_of

_LEAVES: Final = ("SEV-VCEK", "SEV-VLEK")
# The hardware report inside an "HCLA" blob, after a header of 32 bytes.
_HCL_REPORT: Final = slice(32, 32 + 1184)
_SNP_REPORT_BYTES: Final = 1184
# What Linux answers to SNP_GET_REPORT (sev-guest.h, struct snp_report_resp: 4,000
# bytes): status 0, the report's size, 24 reserved bytes, the report, and zeros.
_KERNEL_ANSWER: Final = struct.pack("<II24x", 0, _SNP_REPORT_BYTES)
# Guests pass a report on in a page of memory.
_PAGE_BYTES: Final = 4096
_SNP_REPORT_KEYS: Final = ("report", "attestation_report")
# Keys in the response of Azure's host metadata service for a machine's VCEK.
_SERVICE_KEYS: Final = ("vcekCert", "certificateChain")
# Kinds of entries in an agent's chain, as serialised by the virtee crate.
_LISTED_KINDS: Final = ("VCEK", "VLEK", "ASK", "ARK", "CRL")
_NITRO_KEYS: Final = (
    "attestation_document",
    "document",
    "attestation_doc",
    "AttestationDocument",
    "attestationDocument",
    "attestation",
    "doc",
)
# The Nitro Security Module's response around the document: a CBOR map in a map, and
# the length of the document in two bytes (RFC 8949, section 3.1).
_MODULE_ANSWER: Final = b"\xa1\x6bAttestation\xa1\x68document\x59"
_TPM_GENERATED: Final = b"\xff\x54\x43\x47"
_SIZE_BYTES: Final = 2
# NVIDIA's tools: report, and base64 of the chain's PEM.
_GPU_REPORT_KEYS: Final = ("evidence", "attestationReportHexStr")
_GPU_CHAIN_KEYS: Final = ("certificate", "certChainBase64Encoded")
# Keys of evidence lists for several GPUs; exactly one GPU is verified here.
_GPU_LIST_KEYS: Final = (
    "evidences",
    "evidence_list",
    "device_evidence_list",
    "gpu_evidence",
)

Found = Mapping[str, object]
"""An agent's JSON object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceFiles:
    """The raw files of one piece of evidence; empty if not given.

    Attributes:
        evidence: the report, quote or document, or an agent's JSON.
        vek: SEV-SNP: the VCEK or VLEK certificate.
        chain: SEV-SNP: ASK or ASVK, and ARK, in any order.
        crl: SEV-SNP: the ARK's revocation list.
        certs: NVIDIA: the GPU's certificates; SEV-SNP: the host's certificate
            table.
        collateral: TDX: the JSON of ``QuoteCollateralV3``.
        hcl: Azure: the vTPM's "HCLA" blob.
        td_quote: Azure with TDX: the quote.
        quote_message: the TPM quote's TPMS_ATTEST.
        quote_signature: its signature.
        pcrs: the register values.
        ak: TPM: the attestation key.
    """

    evidence: bytes = field(default=b"", repr=False)
    vek: bytes = field(default=b"", repr=False)
    chain: bytes = field(default=b"", repr=False)
    crl: bytes = field(default=b"", repr=False)
    certs: bytes = field(default=b"", repr=False)
    collateral: bytes = field(default=b"", repr=False)
    hcl: bytes = field(default=b"", repr=False)
    td_quote: bytes = field(default=b"", repr=False)
    quote_message: bytes = field(default=b"", repr=False)
    quote_signature: bytes = field(default=b"", repr=False)
    pcrs: bytes = field(default=b"", repr=False)
    ak: bytes = field(default=b"", repr=False)


def cpu_evidence(tee: Tee, files: EvidenceFiles) -> CpuEvidence:
    """Return the unverified evidence of a CPU.

    Raises:
        RefusedError: ``malformed``, ``too_large`` or ``chain_invalid``: a file
            is invalid.
    """
    found = decode_json(files.evidence, "evidence")
    if found is None or "tee" not in found:
        return _BUILDERS[tee.value.removeprefix("emulated-")](tee, files, found)
    # Output of ``encode_cpu_evidence``, as in a bundle.
    own = parse_cpu_evidence(files.evidence)
    _refuse_other(files, same_kind=own.tee is tee)
    return own


def device_evidence(kind: DeviceKind, files: EvidenceFiles) -> GpuEvidence:
    """Return the unverified evidence of a GPU: report and certificates.

    Raises:
        RefusedError: as ``cpu_evidence``; ``unsigned`` or
            ``unsupported_algorithm`` for a token instead of a report.
    """
    found = decode_json(files.evidence, "evidence", listed=True)
    if found is not None and "kind" in found:
        own = parse_device_evidence(files.evidence)
        _refuse_other(files, same_kind=own.kind is kind)
        return own
    entry = None if found is None else _only_gpu(found)
    certs = files.certs
    if entry is None:
        # A verification service's token is another party's verdict. Parsed as a report
        # it would be refused too, but with an unhelpful message.
        refuse_token(files.evidence)
        report = decode_blob(files.evidence, "report")
    else:
        report = json_bytes(_member(entry, _GPU_REPORT_KEYS, "evidence"), "report")
        # A file that was named is used alone: with the agent's certificates in
        # addition, it would be unclear which ones were verified.
        if not certs:
            member = _member(entry, _GPU_CHAIN_KEYS, "certificates")
            certs = json_file(member, "certificates")
    wrapped = entry is not None and not files.certs
    chain = decode_certificates(certs, "certificates", wrapped=wrapped)
    # Some tools put the root first.
    if len(chain) > 1 and _is_root(parse_certificate(chain[0], "certificates")):
        chain = chain[::-1]
    return GpuEvidence(kind=kind, report=report, chain=chain)


def _refuse_other(files: EvidenceFiles, *, same_kind: bool) -> None:
    if not same_kind:
        raise malformed("evidence: of another kind")
    # Ignoring the other files would look as if they had been verified.
    if files != EvidenceFiles(evidence=files.evidence):
        raise malformed("evidence: it is self-contained; do not pass other files")


def _snp(tee: Tee, files: EvidenceFiles, found: Found | None) -> SnpEvidence:
    report = _blob(files.evidence, found, _SNP_REPORT_KEYS, "report")
    endorsements = HostTable() if found is None else _listed_endorsements(found)
    # Unwrap the kernel's response, or a zero-padded page. A report never begins like
    # the response, since its version is never 0. Non-zero bytes after the report's
    # 1,184 bytes are kept, for the verifier to refuse.
    inner = report.removeprefix(_KERNEL_ANSWER)
    if len(report) <= _PAGE_BYTES and not any(inner[_SNP_REPORT_BYTES:]):
        report = inner[:_SNP_REPORT_BYTES]
    table = read_table(report[_SNP_REPORT_BYTES:])
    if table is not None:
        # The response to an extended request: the report, then the host's table.
        report, endorsements = report[:_SNP_REPORT_BYTES], table
    return _endorsed_report(tee, report, files, endorsements=endorsements)


def _listed_endorsements(found: Found) -> HostTable:
    """Return the certificates in an agent's JSON."""
    listed = found.get("cert_chain")
    if listed is None:
        return HostTable()
    if not isinstance(listed, list):
        return HostTable(
            certificates=_ders(json_file(listed, "cert_chain"), "cert_chain")
        )
    kept: dict[str, bytes] = {}
    for each in cast("list[object]", listed):
        entry: Found = cast("Found", each) if isinstance(each, dict) else {}
        kind = entry.get("cert_type")
        # The same kind twice is ambiguous.
        if not isinstance(kind, str) or kind not in _LISTED_KINDS or kind in kept:
            raise malformed("cert_chain: an entry of no known kind, or a repeated one")
        kept[kind] = decode_der(json_file(entry.get("data"), kind), kind)
    crl = kept.pop("CRL", b"")
    return HostTable(certificates=tuple(kept.values()), crl=crl)


def _ders(file: bytes, where: str) -> tuple[bytes, ...]:
    """Return a file's certificates; it may be a metadata service's response."""
    found = decode_json(file, where)
    if found is None:
        return decode_certificates(file, where)
    parts = [found[key] for key in _SERVICE_KEYS if found.get(key) is not None]
    # Not an empty chain: that would be refused later, as if the certificates were
    # missing.
    if not parts:
        raise malformed(f"{where}: the JSON object has none of {_SERVICE_KEYS}")
    return tuple(
        der
        for part in parts
        for der in decode_certificates(json_file(part, where), where)
    )


def _endorsed_report(
    tee: Tee,
    report: bytes,
    files: EvidenceFiles,
    *,
    endorsements: HostTable,
    vek: tuple[bytes, ...] = (),
) -> SnpEvidence:
    """Add certificates and revocation list; a certificate's names identify its kind."""
    # --certs is the host's table, or certificates.
    table, certs = None, files.certs
    if decode_json(certs, "certs") is None and b"-----BEGIN" not in certs:
        table = read_table(decode_blob(certs, "certs"))
    named = table or HostTable(certificates=_ders(certs, "certs"))
    given = _ders(files.vek, "VEK") or vek
    chips = given
    # A single certificate is taken as the chip's; the verifier refuses any other.
    if len(given) > 1:
        chips = tuple(
            der for der in given if parse_certificate(der, "VEK").common_name in _LEAVES
        )
        # With two, a choice here would decide which chip is verified.
        if len(chips) != 1:
            raise malformed(f"VEK: {len(chips)} certificates instead of one")
    leaf = b"".join(chips)
    # Names only assign the certificates to their places: the verifier refuses an issuer
    # that is not this report's.
    pool = [*_ders(files.chain, "chain"), *(given if len(given) > 1 else ())]
    pool += [*named.certificates, *endorsements.certificates]
    read = [(der, parse_certificate(der, "chain")) for der in pool]
    leaves = [der for der, each in read if each.common_name in _LEAVES]
    leaf = leaf or next(iter(leaves), b"")
    issuers = [pair for pair in read if pair[0] not in (*leaves, leaf)]
    ask = _issuer_of(leaf, [pair for pair in issuers if not _is_root(pair[1])])
    ark = _issuer_of(ask, [pair for pair in issuers if _is_root(pair[1])])
    return SnpEvidence(
        tee=tee,
        report=report,
        vek=leaf,
        ask=ask,
        # The named file first. The order decides nothing about trust: the ARK must have
        # signed the list in any case.
        crl=decode_der(files.crl, "CRL") or named.crl or endorsements.crl,
        ark=ark,
    )


def _is_root(certificate: Certificate) -> bool:
    return certificate.subject == certificate.issuer


def _issuer_of(der: bytes, candidates: Sequence[tuple[bytes, Certificate]]) -> bytes:
    """Return the candidate that ``der`` names as its issuer, else the first."""
    first = next((each for each, _ in candidates), b"")
    if not first or not der:
        return first
    wanted = parse_certificate(der, "chain").issuer
    fitting = (each for each, read in candidates if read.subject == wanted)
    return next(fitting, first)


def _tdx(tee: Tee, files: EvidenceFiles, found: Found | None) -> TdxEvidence:
    quote = _blob(files.evidence, found, ("quote",), "quote")
    collateral = read_collateral(files.collateral)
    return TdxEvidence(tee=tee, quote=quote, collateral=collateral)


def _nitro(tee: Tee, files: EvidenceFiles, found: Found | None) -> NitroEvidence:
    document = _blob(files.evidence, found, _NITRO_KEYS, "document")
    # Unwrap the security module's response, if this is one and nothing follows it.
    inner = document.removeprefix(_MODULE_ANSWER)
    size = int.from_bytes(inner[:_SIZE_BYTES], "big")
    if inner is not document and len(inner) == _SIZE_BYTES + size:
        document = inner[_SIZE_BYTES:]
    return NitroEvidence(tee=tee, document=document)


def _azure(tee: Tee, files: EvidenceFiles, found: Found | None) -> AzureEvidence:
    file, keys = files.hcl or files.evidence, ("hcl_report", "report")
    hcl = _blob(file, found, keys, "HCL report")
    quote = _quote(files, found, files.quote_message)
    hardware: SnpEvidence | TdxEvidence
    if tee is Tee.AZURE_TDX:
        td_quote = _blob(files.td_quote, found, ("td_quote",), "TD quote")
        collateral = read_collateral(files.collateral)
        hardware = TdxEvidence(tee=Tee.TDX, quote=td_quote, collateral=collateral)
    else:
        vek: tuple[bytes, ...] = ()
        if found is not None and found.get("vcek") is not None:
            vek = _ders(json_file(found["vcek"], "VCEK"), "VCEK")
        kind = Tee.EMULATED_SEV_SNP if tee.emulated else Tee.SEV_SNP
        # From a truncated blob this is a partial report, which the verifier refuses for
        # its length.
        report = hcl[_HCL_REPORT]
        hardware = _endorsed_report(
            kind, report, files, endorsements=HostTable(), vek=vek
        )
    return AzureEvidence(tee=tee, hcl=hcl, hardware=hardware, quote=quote)


def _tpm(tee: Tee, files: EvidenceFiles, found: Found | None) -> TpmEvidence:
    quote = _quote(files, found, files.quote_message or files.evidence)
    ak = files.ak
    if found is not None:
        ak = ak or json_file(_member(found, ("ak_public",), "AK"), "AK")
    return TpmEvidence(tee=tee, quote=quote, ak=decode_der(ak, "AK"))


def _quote(files: EvidenceFiles, found: Found | None, message: bytes) -> TpmQuote:
    """Return a TPM quote from three files, or from an agent's JSON."""
    if found is not None:
        inner = _member(found, ("tpm_quote", "quote"), "TPM quote")
        if not isinstance(inner, dict):
            raise malformed("TPM quote: not an object")
        fields = cast("Found", inner)
        return TpmQuote(
            message=_attested(json_bytes(fields.get("message"), "quote message")),
            signature=json_bytes(fields.get("signature"), "quote signature"),
            pcrs=values_of(fields.get("pcrs")),
        )
    attested = _attested(decode_blob(message, "quote message"))

    def selected() -> tuple[int, ...]:
        """Parse the quote only if the values come without register numbers."""
        banks = parse_attest(attested).banks
        return banks[0][1] if len(banks) == 1 else ()

    return TpmQuote(
        message=attested,
        signature=decode_blob(files.quote_signature, "quote signature"),
        pcrs=read_values(files.pcrs, selected=selected),
    )


def _attested(data: bytes) -> bytes:
    """Return the TPMS_ATTEST inside a TPM2B_ATTEST (Part 2, section 10.12.13)."""
    size = int.from_bytes(data[:_SIZE_BYTES], "big")
    inner = data[_SIZE_BYTES:]
    # Both the length and the magic number: a TPMS_ATTEST itself may begin with bytes
    # that look like a length.
    framed = len(inner) == size and inner.startswith(_TPM_GENERATED)
    return inner if framed else data


def _only_gpu(found: Found) -> Found | None:
    """Return the single GPU's evidence of a list, or None if there is no list."""
    if found.keys().isdisjoint(_GPU_LIST_KEYS):
        return None if found.keys().isdisjoint(_GPU_REPORT_KEYS) else found
    entries = _member(found, _GPU_LIST_KEYS, "evidence")
    listed = cast("list[object]", entries) if isinstance(entries, list) else []
    # With a choice here, the verdict would be on one GPU and look like one on all.
    if len(listed) != 1 or not isinstance(listed[0], dict):
        raise malformed(f"evidence: of {len(listed)} GPUs instead of exactly one")
    return cast("Found", listed[0])


def _blob(file: bytes, found: Found | None, keys: Iterable[str], where: str) -> bytes:
    """Return the bytes of a file, or of a member of an agent's JSON."""
    if found is None:
        return decode_blob(file, where)
    return json_bytes(_member(found, keys, where), where)


def _member(found: Found, keys: Iterable[str], where: str) -> object:
    """Return the only member that has one of these names."""
    present = [found[key] for key in keys if found.get(key) is not None]
    # Two names for one part may hold different bytes, and only one of them would be
    # verified.
    if len(present) != 1:
        names = ", ".join(keys)
        raise malformed(f"{where}: the JSON object needs exactly one of: {names}")
    return present[0]


_Builder = Callable[[Tee, EvidenceFiles, Found | None], CpuEvidence]
_BUILDERS: Final[Mapping[str, _Builder]] = {
    "sev-snp": _snp,
    "tdx": _tdx,
    "nitro": _nitro,
    "azure-snp": _azure,
    "azure-tdx": _azure,
    "tpm": _tpm,
}
