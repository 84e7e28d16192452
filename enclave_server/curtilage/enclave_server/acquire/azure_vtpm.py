"""Evidence from an Azure confidential VM, through its paravisor's vTPM.

The guest can reach the hardware's report only through the vTPM: index 0x01400001
holds a report that the paravisor requested at start, over the vTPM's own key; that key
(handle 0x81000003) quotes the registers, and our binding is the quote's qualifying
data. SEV-SNP only. On TDX machines the quote over the same data comes from the instance
metadata service (http://169.254.169.254/acc/tdquote), a connection that nothing inside
an enclave may open; there is no provider for them here.
"""

import errno
from typing import Final

from curtilage.attest.azure.hcl import HardwareKind, parse_hcl
from curtilage.attest.binding import qualifying_data_v2
from curtilage.attest.errors import RefusedError
from curtilage.attest.evidence import (
    MAX_HCL_BYTES,
    MAX_TPM_MESSAGE_BYTES,
    MAX_TPM_SIGNATURE_BYTES,
    AzureEvidence,
    CpuEvidence,
    SnpEvidence,
    Tee,
    TpmQuote,
)
from curtilage.enclave_server.acquire.endorsements import Endorsements
from curtilage.enclave_server.acquire.tpm_commands import (
    PCR_COUNT,
    Tpm,
    TpmChannel,
    TpmDevice,
)
from curtilage.enclave_server.errors import AcquisitionError

HCL_INDEX: Final = 0x01400001
ATTESTATION_KEY: Final = 0x81000003
ATTEMPTS: Final = 3
_ALL: Final = tuple(range(PCR_COUNT))


class AzureTpmProvider:
    """Makes Azure SEV-SNP evidence.

    Args:
        channel: to the vTPM.
    """

    def __init__(self, channel: TpmChannel | None = None) -> None:
        self._tpm = Tpm(TpmDevice() if channel is None else channel)

    def acquire(self, report_data: bytes, endorsements: Endorsements) -> CpuEvidence:
        """Have the qualifying data of 64 bytes quoted.

        Raises:
            AcquisitionError: the vTPM returned none, or this is not an SEV-SNP machine.
        """
        try:
            hcl = self._tpm.nv_read(HCL_INDEX, MAX_HCL_BYTES)
            # Before anything is signed: on another kind of machine a quote is useless.
            report = _snp_report(hcl)
            quote = self._quote(qualifying_data_v2(report_data))
        except OSError as error:
            name = errno.errorcode.get(error.errno or 0, type(error).__name__)
            raise AcquisitionError(f"no quote: {name}") from None
        return AzureEvidence(
            tee=Tee.AZURE_SNP,
            hcl=hcl,
            hardware=SnpEvidence(
                tee=Tee.SEV_SNP,
                report=report,
                vek=endorsements.vek,
                ask=endorsements.ask,
                crl=endorsements.crl,
                ark=endorsements.ark,
            ),
            quote=quote,
        )

    def _quote(self, qualifying: bytes) -> TpmQuote:
        """Quote, with the values that the registers had meanwhile."""
        for _ in range(ATTEMPTS):
            # A quote holds a digest of the registers, not their values: values read
            # before and after it that are equal are the quoted ones.
            before = self._tpm.pcr_read(_ALL)
            message, signature = self._tpm.quote(ATTESTATION_KEY, qualifying, _ALL)
            if self._tpm.pcr_read(_ALL) != before:
                continue
            long = len(message) > MAX_TPM_MESSAGE_BYTES
            if long or len(signature) > MAX_TPM_SIGNATURE_BYTES:
                raise AcquisitionError("the quote is too long")
            return TpmQuote(message=message, signature=signature, pcrs=before)
        raise AcquisitionError(f"the registers changed, {ATTEMPTS} times")


def _snp_report(hcl: bytes) -> bytes:
    try:
        blob = parse_hcl(hcl)
    except RefusedError as error:
        raise AcquisitionError(f"the paravisor's report: {error.code}") from None
    if blob.kind is not HardwareKind.SNP:
        raise AcquisitionError(
            "a TDX machine: its quote comes from the metadata service, not from here"
        )
    return blob.report
