"""The evidence bundle, and the kinds of evidence that it may hold.

Everything here is unverified: form and size, nothing else. ``verify`` and each kind's
verifier determine what the fields mean and whether they are trusted.
``evidence_json`` reads and writes it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final

BUNDLE_VERSION: Final = 4
PREVIOUS_BUNDLE_VERSION: Final = 3
"""Still read: it has binding 2, no sandbox statement and nothing about revocation."""
MAX_BUNDLE_BYTES: Final = 256 * 1024
# The acquisition protocol carries one evidence object, never a bundle: a quote
# and its collateral, in base64.
MAX_CPU_EVIDENCE_BYTES: Final = 96 * 1024
# A report of 32 KiB and a chain of 8, in base64.
MAX_DEVICE_EVIDENCE_BYTES: Final = 96 * 1024
MAX_DEVICES: Final = 16
# RFC 9458 lists are a few dozen bytes per key; the wire part's own cap.
MAX_KEY_CONFIGS_BYTES: Final = 16 * 1024
MAX_MANIFEST_BYTES: Final = 32 * 1024
# A cosignature line takes 150 bytes with Ed25519, 3300 with ML-DSA-44.
MAX_CHECKPOINT_BYTES: Final = 24 * 1024
# 63 hashes of 45 characters, plus a checkpoint.
MAX_PROOF_BYTES: Final = 32 * 1024
# A proof between two trees of fewer than 2**63 leaves (RFC 6962, section 2.1.2).
MAX_CONSISTENCY_HASHES: Final = 64
MAX_ORIGIN_BYTES: Final = 256
MAX_TRANSPORT_PARAMETERS_BYTES: Final = 1024
# About 70 attempts with names of 15 characters, for a few processes.
MAX_SANDBOX_BYTES: Final = 16 * 1024
DIGEST_BYTES: Final = 32

# A SEV-SNP report has 1184 bytes; longer ones are let in so that their own step
# can say what is wrong with them.
MAX_REPORT_BYTES: Final = 4096
# Vendors' certificates take 700 to 1700 bytes.
MAX_CERTIFICATE_BYTES: Final = 4096
# AMD's lists take 900 bytes; this leaves room for some hundred entries.
MAX_CRL_BYTES: Final = 24 * 1024
# One for each authority of a chain.
MAX_CRLS: Final = 8
# An answer with its signer's certificate, of which each takes about 1000 bytes.
MAX_OCSP_BYTES: Final = 4096
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
        """Whether this kind is not backed by hardware."""
        # By the name, so that a kind added later cannot forget to say so.
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
        # What a TPM signs is 32 bytes of qualifying data, so the binding is hashed once
        # more there.
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
        """Whether this kind is not backed by hardware."""
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
        crls: the authorities' revocation lists, DER; none where none are stapled.
    """

    tee: Tee
    document: bytes = field(repr=False)
    crls: tuple[bytes, ...] = field(repr=False, default=())


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
        ocsp: answers about these certificates (RFC 6960), DER; none where none are
            stapled.
    """

    kind: DeviceKind
    report: bytes = field(repr=False)
    chain: tuple[bytes, ...] = field(repr=False)
    ocsp: tuple[bytes, ...] = field(repr=False, default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """A release manifest and the proof that it was logged.

    Attributes:
        manifest: the canonical JSON bytes, which are the log's leaf.
        proof: a ``c2sp.org/tlog-proof@v1`` text.
    """

    manifest: bytes
    proof: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchor:
    """The public beacon inside the binding: a witnessed checkpoint.

    Attributes:
        origin: the log's origin line.
        size: the tree's size.
        root: the tree's root hash, 32 bytes.
        time: a time that a quorum of witnesses vouches for, Unix seconds.
        checkpoint: the signed and cosigned note itself.
        consistency: RFC 6962 consistency proof between the release proof's
            tree and this one, whichever is the smaller; empty where their sizes
            are equal.
    """

    origin: str
    size: int
    root: bytes
    time: int
    checkpoint: str
    consistency: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceBundle:
    """Everything a client needs to trust one list of key configurations.

    Attributes:
        key_configs: the exact RFC 9458 list, u16-prefixed entries.
        not_before: first second of the key's life, Unix time.
        not_after: the second at which it ends.
        release: what is running.
        anchor: when at the earliest the evidence was made.
        cpu: the CPU's evidence.
        receipt_public_key: 32 bytes, or empty where there is none.
        sandbox: the sandbox statement's octets, or empty; version 3 has none.
        sandbox_policy_digest: 32 bytes, or empty; version 3 alone.
        sandbox_result_digest: 32 bytes, or empty; version 3 alone.
        transport_parameters: encoded, the same as the release manifest's.
        devices: evidence of other devices, at most 16; their order is signed.
        v: the version of this format; 4 has binding 3, and 3 has binding 2.
    """

    key_configs: bytes
    not_before: int
    not_after: int
    release: Release
    anchor: Anchor
    cpu: CpuEvidence
    receipt_public_key: bytes = b""
    sandbox: bytes = b""
    sandbox_policy_digest: bytes = b""
    sandbox_result_digest: bytes = b""
    transport_parameters: bytes = b""
    devices: tuple[GpuEvidence, ...] = ()
    v: int = BUNDLE_VERSION


# The hardware evidence inside Azure's evidence of each kind.
_HARDWARE: Final[Mapping[Tee, Tee]] = MappingProxyType(
    {
        Tee.AZURE_SNP: Tee.SEV_SNP,
        Tee.AZURE_TDX: Tee.TDX,
        Tee.EMULATED_AZURE_SNP: Tee.EMULATED_SEV_SNP,
    }
)


def hardware_of(tee: Tee) -> Tee:
    """Return the kind of the hardware report inside Azure's evidence.

    Raises:
        KeyError: there is none inside this kind.
    """
    return _HARDWARE[tee]
