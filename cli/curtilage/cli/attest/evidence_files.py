"""One piece of evidence, put together from the files that tools deliver.

Pure: bytes in, unverified evidence out. Knows who writes which file and what
stands where in it; believes none of it. A part that was not given is empty, and
the verifier says what that means. See ``encodings`` for how a file may write its
bytes.
"""

import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, cast

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
    malformed,
)
from curtilage.cli.attest.snp_certificate_table import HostTable, read_table
from curtilage.cli.attest.tdx_collateral import read_collateral
from curtilage.cli.attest.tpm_registers import read_values, values_of

_LEAVES: Final = ("SEV-VCEK", "SEV-VLEK")
# The hardware report inside an "HCLA" blob: after a header of 32 octets.
_HCL_REPORT: Final = slice(32, 32 + 1184)
_SNP_REPORT_BYTES: Final = 1184
# What Linux answers to SNP_GET_REPORT (sev-guest.h, struct snp_report_resp: 4,000
# octets): status 0, the report's size, 24 octets reserved, the report, and zeros.
_KERNEL_ANSWER: Final = struct.pack("<II24x", 0, _SNP_REPORT_BYTES)
# Guests hand a report on in a page of memory.
_PAGE_BYTES: Final = 4096
_SNP_REPORT_KEYS: Final = ("report", "attestation_report")
# What the host's metadata service on Azure answers for a machine's VCEK.
_SERVICE_KEYS: Final = ("vcekCert", "certificateChain")
# An entry of a chain that says its kind, as the virtee crate's types are written.
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
# The security module's answer around the document: a CBOR map in a map, and the
# length of the document in two octets (RFC 8949, section 3.1).
_MODULE_ANSWER: Final = b"\xa1\x6bAttestation\xa1\x68document\x59"
_TPM_GENERATED: Final = b"\xff\x54\x43\x47"
_SIZE_BYTES: Final = 2
_QUOTE_KEYS: Final = ("quote", "td_quote", "tdx_quote")
_REPORT_KEYS: Final = (
    "evidence",
    "report",
    "attestation_report",
    "attestationReportHexStr",
)
# Lists of the evidence of several GPUs, of which one is verified here.
_LIST_KEYS: Final = (
    "evidences",
    "evidence_list",
    "device_evidence_list",
    "gpu_evidence",
)
_CHAIN_KEYS: Final = (
    "certificate",
    "certificates",
    "chain",
    "cert_chain",
    "certChainBase64Encoded",
)

Found = Mapping[str, object]
"""An agent's JSON object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceFiles:
    """The files of one piece of evidence as they are; empty where not given.

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
    """Put together what a CPU's evidence consists of.

    Raises:
        RefusedError: ``malformed``, ``too_large`` or ``chain_invalid``: a file
            is not what it should be.
    """
    found = decode_json(files.evidence, "evidence")
    if found is None or "tee" not in found:
        return _BUILDERS[tee.value.removeprefix("emulated-")](tee, files, found)
    # What ``encode_cpu_evidence`` wrote, as a bundle carries it.
    own = parse_cpu_evidence(files.evidence)
    if own.tee is not tee:
        raise malformed("evidence: of another kind")
    _refuse_more(files)
    return own


def device_evidence(kind: DeviceKind, files: EvidenceFiles) -> GpuEvidence:
    """Put together what a GPU's evidence consists of: report and certificates.

    Raises:
        RefusedError: as ``cpu_evidence``; ``unsigned`` or
            ``unsupported_algorithm`` for a token in a report's place.
    """
    found = decode_json(files.evidence, "evidence")
    if found is not None and "kind" in found:
        own = parse_device_evidence(files.evidence)
        if own.kind is not kind:
            raise malformed("evidence: of another kind")
        _refuse_more(files)
        return own
    report, certs = files.evidence, files.certs
    entry = None if found is None else _only_entry(found)
    listed = entry is not found
    if entry is not None and (listed or not entry.keys().isdisjoint(_REPORT_KEYS)):
        report = _text(_first(entry, _REPORT_KEYS, "evidence"))
        certs = certs or _text(_first(entry, _CHAIN_KEYS, "certificates"))
    else:
        # A verification service's token is the verdict of others. As bytes it would be
        # refused, too, but in words that explain nothing.
        refuse_token(report)
    chain = decode_certificates(certs, "certificates")
    decoded = decode_blob(report, "report")
    # Some tools write base64 of the report's hexadecimal.
    digits = decoded.strip()
    if digits and not digits.strip(b"0123456789abcdefABCDEF"):
        decoded = decode_blob(digits, "report")
    # And some begin a chain with its root.
    if len(chain) > 1 and _is_root(parse_certificate(chain[0], "certificates")):
        chain = chain[::-1]
    return GpuEvidence(kind=kind, report=decoded, chain=chain)


def _refuse_more(files: EvidenceFiles) -> None:
    # A file that nobody reads would look as if it had been compared.
    if files != EvidenceFiles(evidence=files.evidence):
        raise malformed("evidence: it brings all its parts; leave the other files away")


def _snp(tee: Tee, files: EvidenceFiles, found: Found | None) -> SnpEvidence:
    if found is not None:
        value = _first(found, _SNP_REPORT_KEYS, "report")
        report, beside = json_bytes(value, "report"), _listed_endorsements(found)
    else:
        report, beside = decode_blob(files.evidence, "report"), HostTable()
    # Out of the kernel's answer, or of a page of zeros. No report begins as the answer
    # does, since its version is never 0; and what stands behind the report's 1,184
    # octets and is not zeros stays, for the verifier to refuse.
    inner = report.removeprefix(_KERNEL_ANSWER)
    if len(report) <= _PAGE_BYTES and not any(inner[_SNP_REPORT_BYTES:]):
        report = inner[:_SNP_REPORT_BYTES]
    table = None
    if len(report) > _SNP_REPORT_BYTES:
        table = read_table(report[_SNP_REPORT_BYTES:], encoded=False)
    if table is not None:
        # The answer to an extended request: the report, then the host's table.
        report, beside = report[:_SNP_REPORT_BYTES], table
    return _endorsed_report(tee, report, files, beside=beside)


def _listed_endorsements(found: Found) -> HostTable:
    """Return the certificates that an agent lists beside a report."""
    listed = found.get("cert_chain")
    if listed is None:
        return HostTable()
    if not isinstance(listed, list):
        return HostTable(certificates=_ders(_text(listed), "cert_chain"))
    kept: dict[str, bytes] = {}
    for each in cast("list[object]", listed):
        entry = cast("dict[str, object]", each) if isinstance(each, dict) else {}
        kind = entry.get("cert_type")
        # Twice the same kind: to take either would be to choose for whoever sent them.
        if not isinstance(kind, str) or kind not in _LISTED_KINDS or kind in kept:
            raise malformed("cert_chain: an entry of no kind that is known here")
        kept[kind] = decode_der(_text(entry.get("data")), kind)
    crl = kept.pop("CRL", b"")
    return HostTable(certificates=tuple(kept.values()), crl=crl)


def _ders(file: bytes, where: str) -> tuple[bytes, ...]:
    """Return a file's certificates, also those of a metadata service's answer."""
    found = decode_json(file, where)
    if found is None:
        return decode_certificates(file, where)
    parts = [found[key] for key in _SERVICE_KEYS if found.get(key) is not None]
    if not parts:
        raise malformed(f"{where}: a JSON form that is not known here")
    return tuple(
        der for part in parts for der in decode_certificates(_text(part), where)
    )


def _endorsed_report(
    tee: Tee,
    report: bytes,
    files: EvidenceFiles,
    *,
    beside: HostTable | None = None,
    vek: tuple[bytes, ...] = (),
) -> SnpEvidence:
    """Add certificates and list; what each certificate is, it says itself."""
    # --certs: the host's table, or certificates as in --chain.
    table = None
    if decode_json(files.certs, "certs") is None and b"-----BEGIN" not in files.certs:
        table = read_table(files.certs)
    if table is None:
        table = HostTable(certificates=_ders(files.certs, "certs"))
    tables = [table, beside or HostTable()]
    given = _ders(files.vek, "VEK") or vek
    leaf = _only_leaf(given)
    # Names decide here which certificate goes where, and decide nothing else: an issuer
    # that is none of this report's is for the verifier to refuse.
    pool = [*_ders(files.chain, "chain"), *(given if len(given) > 1 else ())]
    pool += [der for table in tables for der in table.certificates]
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
        crl=decode_der(files.crl, "CRL") or tables[0].crl or tables[1].crl,
        ark=ark,
    )


def _only_leaf(ders: tuple[bytes, ...]) -> bytes:
    """Return the chip's certificate of a file that is about it.

    A single one is it, whatever it says: the verifier tells what it is not.
    """
    if len(ders) <= 1:
        return b"".join(ders)
    leaves = [
        der for der in ders if parse_certificate(der, "VEK").common_name in _LEAVES
    ]
    if len(leaves) != 1:
        raise malformed(f"VEK: {len(leaves)} certificates where one belongs")
    return leaves[0]


def _is_root(certificate: Certificate) -> bool:
    return certificate.subject == certificate.issuer


def _issuer_of(der: bytes, candidates: Iterable[tuple[bytes, Certificate]]) -> bytes:
    """Return the candidate whose name ``der`` gives as its issuer, or the first."""
    pairs = list(candidates)
    if not pairs or not der:
        return pairs[0][0] if pairs else b""
    wanted = parse_certificate(der, "chain").issuer
    fitting = (each for each, read in pairs if read.subject == wanted)
    return next(fitting, pairs[0][0])


def _tdx(tee: Tee, files: EvidenceFiles, found: Found | None) -> TdxEvidence:
    if found is None:
        quote = decode_blob(files.evidence, "quote")
    else:
        quote = json_bytes(_first(found, _QUOTE_KEYS, "quote"), "quote")
    return TdxEvidence(
        tee=tee, quote=quote, collateral=read_collateral(files.collateral)
    )


def _nitro(tee: Tee, files: EvidenceFiles, found: Found | None) -> NitroEvidence:
    if found is None:
        document = decode_blob(files.evidence, "document")
    else:
        document = json_bytes(_first(found, _NITRO_KEYS, "document"), "document")
    # Out of the security module's answer, if this is one and nothing follows it.
    inner = document.removeprefix(_MODULE_ANSWER)
    size = int.from_bytes(inner[:_SIZE_BYTES], "big")
    if inner is not document and len(inner) == _SIZE_BYTES + size:
        document = inner[_SIZE_BYTES:]
    return NitroEvidence(tee=tee, document=document)


def _azure_snp(tee: Tee, files: EvidenceFiles, found: Found | None) -> AzureEvidence:
    hcl, quote = _hcl_and_quote(files, found)
    vek: tuple[bytes, ...] = ()
    if found is not None and found.get("vcek") is not None:
        vek = _ders(_text(found["vcek"]), "VCEK")
    # Of a blob that is cut short this is a part, which the verifier refuses as it would
    # any other that has not a report's length.
    hardware = _endorsed_report(_hardware(tee), hcl[_HCL_REPORT], files, vek=vek)
    return AzureEvidence(tee=tee, hcl=hcl, hardware=hardware, quote=quote)


def _azure_tdx(tee: Tee, files: EvidenceFiles, found: Found | None) -> AzureEvidence:
    hcl, quote = _hcl_and_quote(files, found)
    if found is None:
        td_quote = decode_blob(files.td_quote, "TD quote")
    else:
        td_quote = json_bytes(_first(found, ("td_quote",), "TD quote"), "TD quote")
    hardware = TdxEvidence(
        tee=_hardware(tee), quote=td_quote, collateral=read_collateral(files.collateral)
    )
    return AzureEvidence(tee=tee, hcl=hcl, hardware=hardware, quote=quote)


def _hardware(tee: Tee) -> Tee:
    """Return the kind of the hardware's own report."""
    if tee is Tee.AZURE_TDX:
        return Tee.TDX
    return Tee.EMULATED_SEV_SNP if tee.emulated else Tee.SEV_SNP


def _hcl_and_quote(files: EvidenceFiles, found: Found | None) -> tuple[bytes, TpmQuote]:
    if found is None:
        hcl = decode_blob(files.hcl or files.evidence, "HCL report")
        return hcl, _quote_of_files(files, files.quote_message)
    keys = ("hcl_report", "report", "hcl")
    hcl = json_bytes(_first(found, keys, "HCL report"), "HCL report")
    return hcl, _quote_of_json(found)


def _tpm(tee: Tee, files: EvidenceFiles, found: Found | None) -> TpmEvidence:
    if found is None:
        quote = _quote_of_files(files, files.quote_message or files.evidence)
        ak = decode_der(files.ak, "AK")
    else:
        quote = _quote_of_json(found)
        given = _text(_first(found, ("ak_public", "ak"), "AK"))
        ak = decode_der(files.ak or given, "AK")
    return TpmEvidence(tee=tee, quote=quote, ak=ak)


def _quote_of_files(files: EvidenceFiles, message: bytes) -> TpmQuote:
    attested = _attested(decode_blob(message, "quote message"))

    def selected() -> tuple[int, ...]:
        """Read the quote only where values come without their registers' numbers."""
        banks = parse_attest(attested).banks
        return banks[0][1] if len(banks) == 1 else ()

    return TpmQuote(
        message=attested,
        signature=decode_blob(files.quote_signature, "quote signature"),
        pcrs=read_values(files.pcrs, selected=selected),
    )


def _quote_of_json(found: Found) -> TpmQuote:
    inner = _first(found, ("tpm_quote", "quote"), "TPM quote")
    if not isinstance(inner, dict):
        raise malformed("TPM quote: not an object")
    fields = cast("dict[str, object]", inner)
    return TpmQuote(
        message=_attested(json_bytes(fields.get("message"), "quote message")),
        signature=json_bytes(fields.get("signature"), "quote signature"),
        pcrs=values_of(fields.get("pcrs")),
    )


def _attested(data: bytes) -> bytes:
    """Return a TPMS_ATTEST out of its TPM2B_ATTEST (Part 2, section 10.12.13)."""
    size = int.from_bytes(data[:_SIZE_BYTES], "big")
    inner = data[_SIZE_BYTES:]
    framed = len(inner) == size and inner.startswith(_TPM_GENERATED)
    return inner if framed else data


def _only_entry(found: Found) -> Found:
    """Return the one entry of a list of several GPUs' evidence."""
    entries = next((found[key] for key in _LIST_KEYS if key in found), None)
    if entries is None:
        return found
    listed = cast("list[object]", entries) if isinstance(entries, list) else []
    if len(listed) != 1 or not isinstance(listed[0], dict):
        raise malformed(f"evidence: of {len(listed)} GPUs where exactly one belongs")
    return cast("dict[str, object]", listed[0])


def _first(found: Found, keys: Iterable[str], where: str) -> object:
    for key in keys:
        if found.get(key) is not None:
            return found[key]
    raise malformed(f"{where}: not in the JSON object")


def _text(value: object) -> bytes:
    """Return a JSON member as a file would hold it."""
    if isinstance(value, str) and value.isascii():
        return value.encode()
    return json_bytes(value, "JSON member")


_Builder = Callable[[Tee, EvidenceFiles, Found | None], CpuEvidence]
_BUILDERS: Final[Mapping[str, _Builder]] = {
    "sev-snp": _snp,
    "tdx": _tdx,
    "nitro": _nitro,
    "azure-snp": _azure_snp,
    "azure-tdx": _azure_tdx,
    "tpm": _tpm,
}
