"""Conditions for accepting evidence; every field is a value.

There is no way to leave something unchecked: no field has a meaning of "skip",
and an empty set refuses everything. Debugging and migration agents are never
allowed, so there is no field for them. Whether expectations make sense is
``expectations_checks``' business.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final, Self

from curtilage.attest.amd_tcb import Product, Tcb
from curtilage.attest.claims import Measurement
from curtilage.attest.evidence import DeviceKind, Tee
from curtilage.wire.shaping import TransportParameters

# AMD issues a list about once a year, valid until shortly after the next.
DEFAULT_MAX_CRL_AGE_S: Final = 400 * 86400
# The host sets host_data at launch; a release that gives it no meaning
# expects the 32 zero bytes of a host that set nothing.
NO_HOST_DATA: Final = bytes(32)


class Environment(StrEnum):
    """Environment of the client; only development may accept emulated evidence."""

    PRODUCTION = "production"
    DEVELOPMENT = "development"


class Revocation(StrEnum):
    """Whether evidence must come with what its issuers say about revocation."""

    REQUIRED = "required"
    # What is stapled must hold, and say that nothing is revoked.
    IF_STAPLED = "if_stapled"


class AnchorKind(StrEnum):
    """Maker of a root."""

    AMD = "amd"
    INTEL = "intel"
    AWS = "aws"
    NVIDIA = "nvidia"
    TPM = "tpm"
    EMULATED = "emulated"


# SHA-256 of the DER of the vendors' root certificates: AMD's three root keys
# (ARK), Intel's SGX Root CA, AWS's Nitro Enclaves root (G1) and NVIDIA's Device
# Identity CA. A root that calls itself a vendor's and is not here is refused.
VENDOR_ROOT_FINGERPRINTS: Final[Mapping[AnchorKind, Mapping[str, str]]] = (
    MappingProxyType(
        {
            AnchorKind.AMD: MappingProxyType(
                {
                    Product.MILAN.value: (
                        "69d063b45344d26a2e94e1f4210de49e"
                        "f555308287d4c174445c95639a540bcd"
                    ),
                    Product.GENOA.value: (
                        "4c6598d19c18719c5dfd4a7d335f674e"
                        "5bfe1d8f800cea2cf270c10d103db2f1"
                    ),
                    Product.TURIN.value: (
                        "1f084161a44bb6d93778a904877d4819"
                        "cafa5d05ef4193b2ded9dd9c73dd3f6a"
                    ),
                }
            ),
            AnchorKind.INTEL: MappingProxyType(
                {"": "44a0196b2b99f889b8e149e95b807a350e7424964399e885a7cbb8ccfab674d3"}
            ),
            AnchorKind.AWS: MappingProxyType(
                {"": "641a0321a3e244efe456463195d606317ed7cdcc3c1756e09893f3c68f79bb5b"}
            ),
            AnchorKind.NVIDIA: MappingProxyType(
                {"": "102bf659d5419614c9d8e6aecebc80454eb26b1df6a769ac720b9a690b167b48"}
            ),
        }
    )
)
_PRODUCTS: Final = frozenset(product.value for product in Product)
EMULATED_PRODUCTS: Final = _PRODUCTS | {"tdx", "nitro", "nvidia-gpu"}
"""Kinds of evidence that an emulated root may be the root of."""
SNP_TEES: Final = frozenset(
    {Tee.SEV_SNP, Tee.EMULATED_SEV_SNP, Tee.AZURE_SNP, Tee.EMULATED_AZURE_SNP}
)
"""The kinds of evidence that hold a SEV-SNP report."""
TDX_TEES: Final = frozenset({Tee.TDX, Tee.EMULATED_TDX, Tee.AZURE_TDX})
"""The kinds of evidence that hold a TDX quote."""
# Which vendor's root may vouch for which hardware. A kind that is missing here has no
# root, so nothing can vouch for it.
_VENDORS: Final[Mapping[Tee, AnchorKind]] = MappingProxyType(
    {
        Tee.SEV_SNP: AnchorKind.AMD,
        Tee.AZURE_SNP: AnchorKind.AMD,
        Tee.TDX: AnchorKind.INTEL,
        Tee.AZURE_TDX: AnchorKind.INTEL,
        Tee.NITRO: AnchorKind.AWS,
        Tee.TPM: AnchorKind.TPM,
    }
)
# One emulated root per kind: the emulator of one must not vouch for the other.
_EMULATED: Final[Mapping[Tee | DeviceKind, frozenset[str]]] = MappingProxyType(
    {
        Tee.EMULATED_SEV_SNP: _PRODUCTS,
        Tee.EMULATED_AZURE_SNP: _PRODUCTS,
        Tee.EMULATED_TDX: frozenset({"tdx"}),
        Tee.EMULATED_NITRO: frozenset({"nitro"}),
        DeviceKind.EMULATED_NVIDIA_GPU: frozenset({"nvidia-gpu"}),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustAnchor:
    """A pinned root.

    Attributes:
        kind: whose it is.
        product: ``Milan``, ``Genoa`` or ``Turin`` for AMD and for emulated
            SEV-SNP; ``tdx``, ``nitro`` or ``nvidia-gpu`` for what else is
            emulated; "" for everybody else.
        fingerprint: SHA-256 of the root, lower-case hex.
        certificate_der: the whole certificate, or for a TPM the attestation
            key (SubjectPublicKeyInfo); empty where only the fingerprint is
            pinned, and then a root that is served may be used in its place.
    """

    kind: AnchorKind
    product: str
    fingerprint: str
    certificate_der: bytes = field(repr=False, default=b"")

    @classmethod
    def of_certificate(cls, kind: AnchorKind, product: str, der: bytes) -> Self:
        """Pin a whole certificate."""
        return cls(
            kind=kind,
            product=product,
            fingerprint=hashlib.sha256(der).hexdigest(),
            certificate_der=der,
        )

    @classmethod
    def of_vendor(cls, kind: AnchorKind, product: str = "") -> Self:
        """Pin a vendor's root by its fingerprint alone.

        Raises:
            KeyError: this vendor has no such root.
        """
        fingerprint = VENDOR_ROOT_FINGERPRINTS[kind][product]
        return cls(kind=kind, product=product, fingerprint=fingerprint)

    def root(self, served: bytes = b"") -> bytes | None:
        """Return the root's bytes: the pinned ones, or served ones equal to them.

        Args:
            served: what came with the evidence; trusted only if its SHA-256 is
                the pinned fingerprint, in which case it is the pinned root.
        """
        # The policy's own bytes before served ones. Served ones count only if their
        # hash is the pin, so what comes back is the pinned root in either case.
        for candidate in (self.certificate_der, served):
            if candidate and hashlib.sha256(candidate).hexdigest() == self.fingerprint:
                return candidate
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogExpectations:
    """The transparency log that releases and anchors come from.

    Attributes:
        origin: the log's origin line, which is also its key's name.
        public_key: the log's Ed25519 key, 32 bytes.
        witnesses: name and Ed25519 key of each witness.
        quorum: how many of them must have cosigned, at least 1.
        max_checkpoint_age_s: how old a release proof's checkpoint may be.
    """

    origin: str
    public_key: bytes
    witnesses: Mapping[str, bytes]
    # One witness may be in league with the log; of several, all of the quorum would
    # have to be.
    quorum: int
    max_checkpoint_age_s: int

    def __post_init__(self) -> None:
        """Make the mapping immutable."""
        object.__setattr__(self, "witnesses", MappingProxyType(dict(self.witnesses)))


@dataclass(frozen=True, slots=True, kw_only=True)
class SnpExpectations:
    """Conditions for a SEV-SNP report and its certificates.

    Attributes:
        min_tcb: per product the lowest patch levels; a product that is not
            named is refused.
        min_version: lowest report version; 2 does not name its product.
        vmpl: the privilege levels that may have asked for the report.
        allow_vlek: accept keys that a cloud provider loaded into the chip.
        allow_masked_chip: accept reports that do not say which chip made them.
        max_crl_age_s: how long ago the revocation list may have been issued.
        host_data: the values that the host may have set at launch.
    """

    min_tcb: Mapping[str, Tcb]
    # From 3 on a report says which processor made it.
    min_version: int = 3
    # 0 is where the guest's firmware or paravisor runs; the rest of the guest may be
    # anything.
    vmpl: frozenset[int] = frozenset({0})
    # Off unless a policy asks: a provider's key speaks for many chips.
    allow_vlek: bool = False
    allow_masked_chip: bool = False
    max_crl_age_s: int = DEFAULT_MAX_CRL_AGE_S
    host_data: frozenset[bytes] = frozenset({NO_HOST_DATA})

    def __post_init__(self) -> None:
        """Make the mapping immutable."""
        object.__setattr__(self, "min_tcb", MappingProxyType(dict(self.min_tcb)))


@dataclass(frozen=True, slots=True, kw_only=True)
class TdxExpectations:
    """Conditions for a TDX quote and its collateral.

    Attributes:
        statuses: the accepted TCB statuses, as Intel spells them.
        min_tcb_evaluation_number: how recent Intel's judgement must be.
        rejected_advisories: advisories (``INTEL-SA-…``) that may not be open.
    """

    # Intel's best word alone; every other one names something that is open.
    statuses: frozenset[str] = frozenset({"UpToDate"})
    min_tcb_evaluation_number: int = 0
    rejected_advisories: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class NitroExpectations:
    """Conditions for a Nitro document, besides its measurement.

    Attributes:
        revocation: whether AWS's revocation lists must be stapled.
    """

    revocation: Revocation = Revocation.IF_STAPLED


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuExpectations:
    """Conditions for a GPU's report; a set that is empty refuses every GPU.

    Attributes:
        drivers: driver versions.
        vbioses: VBIOS versions.
        golden: SHA-256 over the measurement records as the report carries
            them, lower-case hex.
        revocation: whether NVIDIA's answers about the certificates must be stapled.
    """

    # By exact version and never "at least": a newer one has not been reviewed yet.
    drivers: frozenset[str] = frozenset()
    vbioses: frozenset[str] = frozenset()
    golden: frozenset[str] = frozenset()
    revocation: Revocation = Revocation.IF_STAPLED


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformExpectations:
    """Permitted machines, where evidence names one (chip id, PPID, module id; hex).

    Attributes:
        deny: never these.
        allow: only these; None: any but the denied ones. Evidence that names
            no machine is on no list, so a list refuses it. A Nitro instance's
            name, without its enclave's ("i-…-enc…"), covers all its enclaves.
    """

    deny: frozenset[str] = frozenset()
    allow: frozenset[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CustodyExpectations:
    """A list of machines in custody; its signature was verified.

    Attributes:
        machines: as ``CpuClaims.platform`` names them; a Nitro instance's name covers
            all its enclaves.
        until: Unix seconds at which the list ends.
    """

    machines: frozenset[str]
    until: int

    def covers(self, platform: str, now_s: float) -> bool:
        """Return whether a machine is on the list, and the list still counts."""
        return now_s < self.until and bool(names_of(platform) & self.machines)


@dataclass(frozen=True, slots=True, kw_only=True)
class FreshnessExpectations:
    """Greatest ages, in seconds.

    Attributes:
        max_key_lifetime_s: longest window of a key.
        max_evidence_age_s: longest time since the anchor.
        clock_skew_s: how far ahead other clocks may run.
    """

    max_key_lifetime_s: int = 43200
    max_evidence_age_s: int = 43200
    # More than a clock is off that is kept by NTP; less than an attack needs.
    clock_skew_s: int = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectations:
    """Everything that evidence is verified against.

    Attributes:
        environment: whether emulated evidence may be accepted at all.
        roots: the pinned roots.
        required_cpu_tees: the accepted kinds of evidence.
        release_names: the accepted releases.
        log: where releases are published.
        freshness: rules about time.
        transport: the accepted ways of shaping answers.
        digest: digest of the policy that these were made from.
        snp: rules for SEV-SNP, genuine, emulated and below Azure's.
        tdx: rules for TDX, genuine, emulated and below Azure's.
        nitro: rules for Nitro documents, genuine and emulated.
        gpu: rules for GPUs, genuine and emulated alike.
        platforms: which machines.
        custody: the machines of a list that the policy names; None: it names none.
        required_devices: kind of device to how many there must be.
        measurements: for each kind of evidence, measurements that are accepted in
            addition to a release's.
        denied_releases: "name version" of releases that will not do.
        sandbox: digests (hex) of the sandbox policies that count as keeping the
            enclave from writing anything.
    """

    # No default: the builder of expectations must choose one of the two.
    environment: Environment
    roots: tuple[TrustAnchor, ...]
    required_cpu_tees: frozenset[str]
    release_names: frozenset[str]
    log: LogExpectations
    freshness: FreshnessExpectations
    transport: frozenset[TransportParameters]
    digest: str
    snp: SnpExpectations = SnpExpectations(min_tcb={})
    tdx: TdxExpectations = TdxExpectations()
    nitro: NitroExpectations = NitroExpectations()
    gpu: GpuExpectations = GpuExpectations()
    platforms: PlatformExpectations = PlatformExpectations()
    custody: CustodyExpectations | None = None
    required_devices: Mapping[str, int] = field(default_factory=dict[str, int])
    measurements: Mapping[str, tuple[Measurement, ...]] = field(
        default_factory=dict[str, tuple[Measurement, ...]]
    )
    denied_releases: frozenset[str] = frozenset()
    sandbox: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        """Make the mappings immutable."""
        # Frozen, as everything here: expectations that changed after their digest was
        # taken would no longer be the policy's.
        devices = MappingProxyType(dict(self.required_devices))
        measured = {
            tee: tuple(MappingProxyType(dict(each)) for each in accepted)
            for tee, accepted in self.measurements.items()
        }
        object.__setattr__(self, "required_devices", devices)
        object.__setattr__(self, "measurements", MappingProxyType(measured))


def names_of(platform: str) -> frozenset[str]:
    """Return the names under which a list may hold a machine."""
    # A Nitro enclave's name is its instance's and a number that is new with each
    # start; a list may name either.
    return frozenset({platform, platform.partition("-enc")[0]})


def anchors_for(
    roots: tuple[TrustAnchor, ...], kind: Tee | DeviceKind
) -> tuple[TrustAnchor, ...]:
    """Return the roots that may vouch for one kind of evidence.

    An emulated root never vouches for hardware, nor a vendor's for an emulator.
    """
    # A wall in both directions. An emulator's root is made by a developer's script; and
    # a vendor's above an emulator would be a forgery.
    if kind.emulated:
        products = _EMULATED[kind]
        return tuple(
            root
            for root in roots
            if root.kind is AnchorKind.EMULATED and root.product in products
        )
    vendor = _VENDORS[kind] if isinstance(kind, Tee) else AnchorKind.NVIDIA
    return tuple(root for root in roots if root.kind is vendor)
