"""Evidence from an Azure confidential VM, through its paravisor's vTPM.

The guest can reach the hardware's report only through the vTPM: index 0x01400001
holds a report that the paravisor requested at start, over the vTPM's own key; that key
(handle 0x81000003) quotes the registers, and our binding is the quote's qualifying
data. On TDX machines the report becomes a quote at the instance metadata service, a
connection that nothing inside an enclave may open: the stapler fetches it, and it is
stapled here. Until it is, the evidence has none, and identifies the machine.
"""

import errno
from typing import Final

from curtilage.attest.azure.hcl import HardwareKind, HclBlob, parse_hcl
from curtilage.attest.binding import qualifying_data_v2
from curtilage.attest.errors import RefusedError
from curtilage.attest.evidence import (
    MAX_HCL_BYTES,
    MAX_TPM_MESSAGE_BYTES,
    MAX_TPM_SIGNATURE_BYTES,
    AzureEvidence,
    CpuEvidence,
    SnpEvidence,
    TdxEvidence,
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
    """Makes the evidence of an Azure machine, on SEV-SNP or TDX.

    Args:
        channel: to the vTPM.
    """

    def __init__(self, channel: TpmChannel | None = None) -> None:
        self._tpm = Tpm(TpmDevice() if channel is None else channel)

    def acquire(self, report_data: bytes, endorsements: Endorsements) -> CpuEvidence:
        """Have the qualifying data of 64 bytes quoted.

        Raises:
            AcquisitionError: the vTPM returned none.
        """
        try:
            hcl = self._tpm.nv_read(HCL_INDEX, MAX_HCL_BYTES)
            # Before anything is signed: on another kind of machine a quote is useless.
            blob = _blob(hcl)
            quote = self._quote(qualifying_data_v2(report_data))
        except OSError as error:
            name = errno.errorcode.get(error.errno or 0, type(error).__name__)
            raise AcquisitionError(f"no quote: {name}") from None
        if blob.kind is HardwareKind.TDX:
            tdx = TdxEvidence(
                tee=Tee.TDX,
                quote=endorsements.quote,
                collateral=endorsements.collateral,
            )
            return AzureEvidence(tee=Tee.AZURE_TDX, hcl=hcl, hardware=tdx, quote=quote)
        snp = SnpEvidence(
            tee=Tee.SEV_SNP,
            report=blob.report,
            vek=endorsements.vek,
            ask=endorsements.ask,
            crl=endorsements.crl,
            ark=endorsements.ark,
        )
        return AzureEvidence(tee=Tee.AZURE_SNP, hcl=hcl, hardware=snp, quote=quote)

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


def _blob(hcl: bytes) -> HclBlob:
    try:
        return parse_hcl(hcl)
    except RefusedError as error:
        raise AcquisitionError(f"the paravisor's report: {error.code}") from None
