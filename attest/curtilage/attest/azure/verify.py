"""An Azure confidential VM: hardware, paravisor, vTPM, in this order.

The hardware's report (SEV-SNP, or TDX through its quote) carries the SHA-256 of
the paravisor's runtime data; these name the key of the vTPM (HCLAkPub); that
key signs a quote over the registers, with our binding as qualifying data. Each
arrow is checked; without any one of them, the report of one machine could be
combined with the quote of another.
"""

import hashlib
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from curtilage.attest.azure.hcl import (
    HardwareKind,
    HclBlob,
    parse_hcl,
    parse_runtime_data,
    parse_td_report,
)
from curtilage.attest.claims import HOST_DATA, CpuClaims, Link
from curtilage.attest.encoding.strict_json import malformed
from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.evidence import (
    AzureEvidence,
    SnpEvidence,
    TdxEvidence,
    hardware_of,
)
from curtilage.attest.sev_snp.verify import (
    SnpRules,
    for_host_data,
    verify_snp_platform,
)
from curtilage.attest.steps import StepLog
from curtilage.attest.tdx.verify import TdxRules, verify_td
from curtilage.attest.tpm.quote import (
    check_registers,
    require_quote_key,
    verify_quote,
)
from curtilage.attest.tpm.verify import quote_link


class AzureCheck(StrEnum):
    """The steps that only Azure's evidence has, as a person reads them."""

    HCL_BLOB = "HCL blob"
    TD_REPORT = "TD report"
    RUNTIME_BINDING = "runtime data binding"
    RUNTIME_DATA = "runtime data"


@dataclass(frozen=True, slots=True, kw_only=True)
class AzureRules:
    """The expectations of one VM's evidence.

    Attributes:
        snp: rules for the hardware where it is SEV-SNP; its measurements are the
            accepted sets of registers: the hardware's and the quote's together.
        tdx: the same for the hardware where it is TDX.
    """

    snp: SnpRules
    tdx: TdxRules


def verify_azure(
    evidence: AzureEvidence, rules: AzureRules, *, now: datetime, log: StepLog
) -> CpuClaims:
    """Verify hardware, runtime data and quote, except the qualifying data.

    In the direction of trust: the processor vouches for the runtime data, these name
    the vTPM's key, that signs the quote, and the quote carries our binding. Nothing
    further down is read before the step above it is verified.

    Args:
        evidence: unverified bytes.
        rules: what to hold them against.
        now: aware UTC.
        log: where each step is noted as it passes.

    Raises:
        RefusedError: the first step that does not hold.
    """
    # The blob is whole, and it holds the report that is verified next.
    blob = _check_blob(evidence, log)
    # The steps of the hardware's own verifier, without its measurement.
    if isinstance(evidence.hardware, TdxEvidence):
        hardware = verify_td(evidence.hardware, rules.tdx, now=now, log=log)
        accepted = rules.tdx.measurements
    else:
        hardware = verify_snp_platform(evidence.hardware, rules.snp, now=now, log=log)
        accepted = for_host_data(rules.snp, hardware.registers[HOST_DATA])
    # A TDREPORT carries no signature: what it says must be what the quote says.
    if blob.kind is HardwareKind.TDX:
        _check_td_report(blob, hardware, log)
    # The hash comes first: data that is not vouched for is not parsed.
    log.begin(AzureCheck.RUNTIME_BINDING)
    # SHA-256 and 32 zeros, as the paravisor writes it. Compared whole: the other half
    # is signed as well.
    digest = hashlib.sha256(blob.runtime_data).digest()
    if hardware.bound != digest.ljust(len(hardware.bound), b"\0"):
        raise RefusedError(
            RefusalCode.BINDING_MISMATCH, "the report vouches for other runtime data"
        )
    log.passed(f"sha256 {digest.hex()[:16]}")
    log.begin(AzureCheck.RUNTIME_DATA)
    runtime = parse_runtime_data(blob.runtime_data)
    # Vouched for or not: a key of 512 bits could be recovered, and quotes be signed
    # with it elsewhere.
    require_quote_key(runtime.attestation_key)
    log.passed(f"HCLAkPub, RSA-{runtime.attestation_key.key_size}")
    quote = verify_quote(evidence.quote, runtime.attestation_key, log=log)
    # The names do not overlap (``launch``, ``mrtd`` and so on; ``pcr0`` to ``pcr23``),
    # so neither half can stand in the other's place.
    registers = {**hardware.registers, **quote.registers()}
    check_registers(registers, accepted, evidence.tee, log=log)
    vouched = Link(
        subject="attestation key",
        issuer=hardware.links[-1].subject,
        role="the vTPM's key, named by runtime data that the report vouches for",
        fingerprint=digest.hex(),
        not_after=None,
    )
    return CpuClaims(
        tee=evidence.tee,
        registers=registers,
        # The hardware's own report data are taken by the runtime data's hash, so the
        # binding is in the quote.
        bound=quote.extra_data,
        expires_at=hardware.expires_at,
        details={
            **hardware.details,
            **quote.details(),
            "hardware": hardware.tee.value,
            "hcl_version": blob.version,
            "vm_settings": runtime.flags,
        },
        links=(*hardware.links, vouched, quote_link(evidence.quote.message, quote)),
        platform=hardware.platform,
    )


def _check_blob(evidence: AzureEvidence, log: StepLog) -> HclBlob:
    log.begin(AzureCheck.HCL_BLOB)
    blob = parse_hcl(evidence.hcl)
    hardware = evidence.hardware
    # An emulator's report inside genuine evidence would be judged by the emulator's
    # root.
    if hardware.tee is not hardware_of(evidence.tee):
        raise malformed("another kind of hardware evidence than the VM's")
    snp = isinstance(hardware, SnpEvidence)
    if blob.kind is not (HardwareKind.SNP if snp else HardwareKind.TDX):
        raise RefusedError(
            RefusalCode.BINDING_MISMATCH, "the blob holds another kind of report"
        )
    # The report occurs twice: in the blob, and separately with its certificates. If
    # they differed, the verified one would vouch for the other one's runtime data.
    if isinstance(hardware, SnpEvidence) and blob.report != hardware.report:
        raise RefusedError(
            RefusalCode.BINDING_MISMATCH, "the blob holds another report"
        )
    log.passed(f"version {blob.version}, {blob.kind.name}")
    return blob


def _check_td_report(blob: HclBlob, hardware: CpuClaims, log: StepLog) -> None:
    log.begin(AzureCheck.TD_REPORT)
    # Its MAC can be checked on the machine that made it alone, so here it proves
    # nothing: it must only not contradict the quote.
    report = parse_td_report(blob.report)
    if report.report_data != hardware.bound:
        raise RefusedError(
            RefusalCode.BINDING_MISMATCH, "TD report and quote: report data differ"
        )
    for name, value in report.registers.items():
        if hardware.registers.get(name) != value:
            raise RefusedError(
                RefusalCode.BINDING_MISMATCH, f"TD report and quote: {name} differs"
            )
    log.passed(f"{len(report.registers)} registers as in the quote")
