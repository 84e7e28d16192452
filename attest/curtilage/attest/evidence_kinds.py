"""The kinds of evidence, and the bytes that each of them consists of.

Everything here is unverified: shape and size, nothing else. What the fields
mean and whether they are believed is each kind's verifier's business.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

# A SEV-SNP report has 1184 bytes; longer ones are let in so that their own step
# can say what is wrong with them.
MAX_REPORT_BYTES: Final = 4096
# Vendors' certificates take 700 to 1700 bytes.
MAX_CERTIFICATE_BYTES: Final = 4096
# AMD's lists take 900 bytes; this leaves room for some hundred entries.
MAX_CRL_BYTES: Final = 24 * 1024
# Quotes take about 5000 bytes, 8000 where the kernel pads them.
MAX_QUOTE_BYTES: Final = 16 * 1024
# Collateral takes 14 to 19 KB.
MAX_COLLATERAL_BYTES: Final = 48 * 1024
# AWS: an attestation document has at most 16 KiB; twice that is let in.
MAX_DOCUMENT_BYTES: Final = 32 * 1024
# The non-volatile index holds 2600 bytes.
MAX_HCL_BYTES: Final = 8 * 1024
MAX_TPM_MESSAGE_BYTES: Final = 4096
MAX_TPM_SIGNATURE_BYTES: Final = 1024
MAX_TPM_KEY_BYTES: Final = 1024
MAX_PCRS: Final = 24
# The largest digest; a wrong length is refused by the verifier's own step.
MAX_PCR_BYTES: Final = 64
# A request of 37 bytes and a response of about 4000.
MAX_GPU_REPORT_BYTES: Final = 32 * 1024
MAX_GPU_CHAIN: Final = 8


class Tee(StrEnum):
    """The kinds of CPU evidence that this release knows."""

    SEV_SNP = "sev-snp"
    TDX = "tdx"
    NITRO = "nitro"
    AZURE_SNP = "azure-snp"
    AZURE_TDX = "azure-tdx"
    TPM = "tpm"
    EMULATED_SEV_SNP = "emulated-sev-snp"
    EMULATED_TDX = "emulated-tdx"
    EMULATED_NITRO = "emulated-nitro"
    EMULATED_AZURE_SNP = "emulated-azure-snp"

    @property
    def emulated(self) -> bool:
        """Whether no hardware stands behind this kind."""
        return self.value.startswith("emulated-")

    @property
    def isolates(self) -> bool:
        """Whether evidence of this kind shows that memory is kept from the host.

        A TPM says what was started, and nothing about who can read memory.
        """
        return not self.emulated and self is not Tee.TPM

    @property
    def quoted(self) -> bool:
        """Whether the binding is the qualifying data of a TPM quote."""
        return self in {
            Tee.AZURE_SNP,
            Tee.AZURE_TDX,
            Tee.TPM,
            Tee.EMULATED_AZURE_SNP,
        }


class DeviceKind(StrEnum):
    """The kinds of device evidence that this release knows."""

    NVIDIA_GPU = "nvidia-gpu"
    EMULATED_NVIDIA_GPU = "emulated-nvidia-gpu"

    @property
    def emulated(self) -> bool:
        """Whether no hardware stands behind this kind."""
        return self is DeviceKind.EMULATED_NVIDIA_GPU


@dataclass(frozen=True, slots=True, kw_only=True)
class SnpEvidence:
    """A SEV-SNP report with everything needed to check it offline.

    Attributes:
        tee: genuine or emulated; says only which roots apply.
        report: 1184 bytes.
        vek: the VCEK or VLEK certificate, DER.
        ask: the ASK or ASVK certificate, DER.
        crl: the ARK's revocation list, DER; empty if the server has none.
        ark: the root as it was served, DER, or empty; used only where its
            SHA-256 is a pinned fingerprint.
    """

    tee: Tee
    report: bytes = field(repr=False)
    vek: bytes = field(repr=False)
    ask: bytes = field(repr=False)
    crl: bytes = field(repr=False)
    ark: bytes = field(repr=False, default=b"")


@dataclass(frozen=True, slots=True, kw_only=True)
class TdxEvidence:
    """A TDX quote with everything needed to check it offline.

    Attributes:
        tee: genuine or emulated; says only which roots apply.
        quote: a version 4 or version 5 quote.
        collateral: Intel's statements about the platform, as the JSON text
            that ``dcap-qvl`` calls ``QuoteCollateralV3``.
    """

    tee: Tee
    quote: bytes = field(repr=False)
    collateral: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class NitroEvidence:
    """A Nitro attestation document; its chain is inside.

    Attributes:
        tee: genuine or emulated; says only which roots apply.
        document: the COSE_Sign1 bytes.
    """

    tee: Tee
    document: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TpmQuote:
    """A TPM 2.0 quote and the register values that it is about.

    Attributes:
        message: TPMS_ATTEST.
        signature: TPMT_SIGNATURE, or the bare RSA or ECDSA signature.
        pcrs: each register's index and its value, in the order of the digest.
    """

    message: bytes = field(repr=False)
    signature: bytes = field(repr=False)
    pcrs: tuple[tuple[int, bytes], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AzureEvidence:
    """An Azure confidential VM: hardware report, runtime data and a quote.

    Attributes:
        tee: genuine or emulated; says only which roots apply.
        hcl: the "HCLA" blob from the vTPM's non-volatile memory: the hardware
            report and the runtime JSON that names the attestation key.
        hardware: the same SEV-SNP report, or a TDX quote over the same
            report data, with its endorsements.
        quote: by the key that the runtime JSON names.
    """

    tee: Tee
    hcl: bytes = field(repr=False)
    hardware: SnpEvidence | TdxEvidence
    quote: TpmQuote


@dataclass(frozen=True, slots=True, kw_only=True)
class TpmEvidence:
    """A TPM quote by itself, which shows no isolation at all.

    Attributes:
        tee: ``tpm``.
        quote: the quote.
        ak: the attestation key, SubjectPublicKeyInfo DER; the policy pins it.
    """

    tee: Tee
    quote: TpmQuote
    ak: bytes = field(repr=False)


CpuEvidence = SnpEvidence | TdxEvidence | NitroEvidence | AzureEvidence | TpmEvidence


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuEvidence:
    """An SPDM measurement report of a GPU.

    Attributes:
        kind: genuine or emulated; says only which roots apply.
        report: the request and the signed response, one after the other.
        chain: certificates, DER, leaf first.
    """

    kind: DeviceKind
    report: bytes = field(repr=False)
    chain: tuple[bytes, ...] = field(repr=False)
