"""The section ``attestation``: what an enclave must prove before it is sent anything.

Types, ranges and enumerations of ``attestation:``; ``model`` puts it into the
document. Checks across entries are in ``attestation_checks``.
"""

import hashlib
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, Field, PlainValidator, model_validator

from curtilage.attest.expectations import (
    DEFAULT_MAX_CRL_AGE_S,
    NO_HOST_DATA,
    VENDOR_ROOT_FINGERPRINTS,
    AnchorKind,
)
from curtilage.policy.document.keys import (
    decode_certificate,
    decode_key,
    decode_witness_key,
)
from curtilage.policy.document.sections import FileName, Id, Section
from curtilage.policy.document.values import class_or_branch, covered_classes, each_once

MAX_LISTED: Final = 256
CHALLENGE_AGE_S: Final = 60
"""Validity of an answered challenge where an entry names no greatest age."""

TeeName = Literal[
    "sev-snp",
    "tdx",
    "nitro",
    "azure-snp",
    "azure-tdx",
    "tpm",
    "emulated-sev-snp",
    "emulated-tdx",
    "emulated-nitro",
    "emulated-azure-snp",
]
DeviceName = Literal["nvidia-gpu", "emulated-nvidia-gpu"]
ClaimName = Literal[
    "hardware", "gpu", "weights", "no_write", "isolation", "ephemerality", "custody"
]
Product = Literal["Milan", "Genoa", "Turin"]
EmulatedProduct = Literal["Milan", "Genoa", "Turin", "tdx", "nitro", "nvidia-gpu"]
RevocationName = Literal["required", "if_stapled"]
# Not "Revoked": nothing that Intel has revoked is ever trusted.
TcbStatus = Literal[
    "UpToDate",
    "SWHardeningNeeded",
    "ConfigurationNeeded",
    "ConfigurationAndSWHardeningNeeded",
    "OutOfDate",
    "OutOfDateConfigurationNeeded",
]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/+-]{0,127}$")]
# Of a signed note: without spaces and plus signs.
KeyName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]{0,127}$")]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Register = Annotated[str, Field(pattern=r"^([0-9a-f]{64}|[0-9a-f]{96})$")]
RegisterName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9]{0,31}$")]
# A chip id (SEV-SNP), a PPID (TDX), a Nitro instance with or without its enclave.
Machine = Annotated[
    str,
    Field(
        pattern=r"^([0-9a-f]{128}|[0-9a-f]{32}|i-[0-9a-f]{8,32}(-enc[0-9a-f]{1,64})?)$"
    ),
]
Printable = Annotated[str, Field(pattern=r"^[ -~]{1,128}$")]
Advisory = Annotated[str, Field(pattern=r"^INTEL-SA-[0-9]{5}$")]
NameAndVersion = Annotated[
    str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/+-]{0,127} [!-~]{1,128}$")
]
Ed25519Key = Annotated[bytes, PlainValidator(decode_key)]
WitnessKey = Annotated[bytes, PlainValidator(decode_witness_key)]
Certificate = Annotated[bytes, PlainValidator(decode_certificate)]
Spl = Annotated[int, Field(ge=0, le=255)]  # a security patch level is one byte
Count = Annotated[int, Field(ge=1, le=16)]
Tees = Annotated[tuple[TeeName, ...], AfterValidator(each_once)]
Digests = Annotated[tuple[Sha256, ...], Field(max_length=MAX_LISTED)]
Printables = Annotated[tuple[Printable, ...], Field(max_length=MAX_LISTED)]
Measurements = Annotated[
    tuple[dict[RegisterName, Register], ...], Field(max_length=MAX_LISTED)
]


class Anchor(Section):
    """A root that this client pins.

    ``certificate`` is PEM in the file, so that the policy's digest covers it,
    and DER here. It is not examined here; verification does that.
    """

    kind: Literal["amd", "intel", "aws", "nvidia", "tpm", "emulated"]
    product: EmulatedProduct | None = None
    certificate: Certificate | None = Field(default=None, repr=False)
    fingerprint: Sha256 | None = None

    @model_validator(mode="after")
    def _one_root(self) -> Self:
        _require_product(self.kind, self.product)
        pinned = VENDOR_ROOT_FINGERPRINTS.get(AnchorKind(self.kind))
        named = self._named()
        # A policy cannot supply its own root for a vendor; the message is for its
        # author, and ``attest`` refuses it again.
        if len(named) > 1:
            raise ValueError("'certificate' and 'fingerprint' name two roots")
        if pinned is None and not named:
            raise ValueError("say which root: 'certificate', or 'fingerprint'")
        if pinned is not None and not named <= {pinned[self.product or ""]}:
            raise ValueError(f"not the root that {self.kind} publishes")
        if self.kind == "tpm" and self.certificate is not None:
            raise ValueError("a TPM's key has no certificate here: 'fingerprint'")
        return self

    def _named(self) -> set[str]:
        named = set[str]()
        if self.fingerprint is not None:
            named.add(self.fingerprint)
        if self.certificate is not None:
            named.add(hashlib.sha256(self.certificate).hexdigest())
        return named

    @property
    def sha256(self) -> str:
        """The root's fingerprint, be it written here or the vendor's own."""
        named = self._named()
        if named:
            return named.pop()
        return VENDOR_ROOT_FINGERPRINTS[AnchorKind(self.kind)][self.product or ""]


def _require_product(kind: str, product: str | None) -> None:
    if kind == "emulated":
        if product is None:
            raise ValueError("say what the emulated root is the root of: 'product'")
    elif kind == "amd":
        if product not in {"Milan", "Genoa", "Turin"}:
            raise ValueError("AMD's roots are one for each product: 'product'")
    elif product is not None:
        raise ValueError(f"'product' has no meaning for {kind}")


class Witness(Section):
    """A witness, which signs the checkpoints of a log that it has seen."""

    name: Name
    key: WitnessKey


class Log(Section):
    """The log that a release must be in, and the witnesses that count."""

    origin: Name
    key: Ed25519Key
    witnesses: tuple[Witness, ...]
    quorum: Annotated[int, Field(ge=1, le=64)]

    @model_validator(mode="after")
    def _no_witness_counts_twice(self) -> Self:
        # Under two names one witness would count twice, and a log that is its own
        # witness proves nothing.
        names = {each.name for each in self.witnesses}
        keys = {each.key for each in self.witnesses} | {self.key}
        if len(names) < len(self.witnesses) or len(keys) <= len(self.witnesses):
            raise ValueError(
                "each witness has a name and a key of its own, other than the log's"
            )
        if self.witnesses and self.quorum > len(self.witnesses):
            raise ValueError("the quorum is larger than the number of witnesses")
        return self


class Releases(Section):
    """Software that an enclave may run."""

    names: tuple[Name, ...]
    denied: Annotated[tuple[NameAndVersion, ...], Field(max_length=MAX_LISTED)] = ()
    log: Log
    max_checkpoint_age_s: Annotated[int, Field(ge=1, le=31_622_400)]


class MinTCB(Section):
    """The oldest firmware that is accepted of one product."""

    product: Product
    bl: Spl
    tee: Spl
    snp: Spl
    ucode: Spl
    fmc: Spl | None = None

    @model_validator(mode="after")
    def _fmc_where_it_exists(self) -> Self:
        if (self.fmc is not None) != (self.product == "Turin"):
            raise ValueError("'fmc' is only for Turin")
        return self


class Snp(Section):
    """Requirements on a SEV-SNP report."""

    min_version: Annotated[int, Field(ge=2, le=5)]
    vmpl: tuple[Annotated[int, Field(ge=0, le=3)], ...]
    allow_vlek: bool
    allow_masked_chip: bool
    min_tcb: tuple[MinTCB, ...]
    max_crl_age_s: Annotated[int, Field(ge=1, le=126_489_600)] = DEFAULT_MAX_CRL_AGE_S
    host_data: Digests = (NO_HOST_DATA.hex(),)

    @model_validator(mode="after")
    def _one_minimum_for_each_product(self) -> Self:
        # The second would win, and it could be the lower one.
        if len({each.product for each in self.min_tcb}) < len(self.min_tcb):
            raise ValueError("'min_tcb' names a product twice")
        return self


class Tdx(Section):
    """Requirements on a TDX quote and on Intel's collateral."""

    statuses: tuple[TcbStatus, ...]
    min_tcb_evaluation_number: Annotated[int, Field(ge=0, le=65535)] = 0
    rejected_advisories: Annotated[
        tuple[Advisory, ...], Field(max_length=MAX_LISTED)
    ] = ()


class Nitro(Section):
    """Requirements on a Nitro document in addition to its measurement."""

    revocation: RevocationName = "if_stapled"


class Tpm(Section):
    """Requirements on a TPM quote in addition to its measurement: none."""


class Gpu(Section):
    """Requirements on a GPU's report; a GPU that is not listed is refused."""

    drivers: Printables
    vbioses: Printables
    golden: Digests
    revocation: RevocationName = "if_stapled"


class Platforms(Section):
    """Permitted machines; with this section, evidence that names none is refused."""

    deny: Annotated[tuple[Machine, ...], Field(max_length=MAX_LISTED)] = ()
    allow: Annotated[tuple[Machine, ...], Field(max_length=MAX_LISTED)] | None = None

    @model_validator(mode="after")
    def _something(self) -> Self:
        # An empty ``allow`` has a meaning: it allows no machine.
        if not self.deny and self.allow is None:
            raise ValueError("lists no machine: 'deny', 'allow'")
        return self


class Freshness(Section):
    """Greatest ages of evidence and keys, in seconds."""

    max_key_lifetime_s: Annotated[int, Field(ge=1, le=604_800)]
    max_evidence_age_s: Annotated[int, Field(ge=1, le=604_800)]
    clock_skew_s: Annotated[int, Field(ge=0, le=600)]


class Custody(Section):
    """A signed list of machines in custody, and who signed it."""

    file: FileName
    name: KeyName
    key: Ed25519Key


class AcceptedBreak(Section):
    """A known break whose consequence a policy gives up, and why."""

    id: Id
    reason: Printable


Operators = Annotated[tuple[Printable, ...], Field(max_length=MAX_LISTED)]
Country = Annotated[str, Field(pattern=r"^[A-Z]{2}$")]
Region = Annotated[str, Field(pattern=r"^[!-~]{1,128}$")]
ClassName = Annotated[str, AfterValidator(class_or_branch)]


class Demand(Section):
    """Demands of some data classes in addition to the rest of the section."""

    classes: Annotated[
        tuple[ClassName, ...], Field(min_length=1, max_length=MAX_LISTED)
    ]
    require: Annotated[tuple[ClaimName, ...], AfterValidator(each_once)] = ()
    cpu_tees: Tees | None = None
    max_evidence_age_s: Annotated[int, Field(ge=1, le=604_800)] | None = None
    challenge: bool = False
    operators: Operators | None = None
    countries: Annotated[tuple[Country, ...], Field(max_length=MAX_LISTED)] | None = (
        None
    )
    regions: Annotated[tuple[Region, ...], Field(max_length=MAX_LISTED)] | None = None

    @model_validator(mode="after")
    def _something(self) -> Self:
        # An empty list has a meaning: no enclave meets it.
        limits = (
            self.cpu_tees,
            self.max_evidence_age_s,
            self.operators,
            self.countries,
            self.regions,
        )
        if (
            not self.require
            and not self.challenge
            and all(each is None for each in limits)
        ):
            raise ValueError("demands nothing")
        return self

    def covered(self, own: frozenset[str]) -> frozenset[str]:
        """Return the classes meant, in a policy with classes of its own."""
        return frozenset[str]().union(
            *(covered_classes(name, own=own) for name in self.classes)
        )

    @property
    def challenge_age_s(self) -> int | None:
        """Greatest age of an answered challenge; None: none is wanted."""
        if not self.challenge:
            return None
        return self.max_evidence_age_s or CHALLENGE_AGE_S


class Attestation(Section):
    """Requirements on evidence. No field means 'skip'; an empty list refuses."""

    environment: Literal["production", "development"]
    trust_anchors: tuple[Anchor, ...]
    required_cpu_tees: Tees
    required_devices: dict[DeviceName, Count] = Field(
        default_factory=dict[DeviceName, int]
    )
    releases: Releases
    measurements: dict[TeeName, Measurements] = Field(
        default_factory=dict[TeeName, tuple[dict[str, str], ...]]
    )
    snp: Snp | None = None
    tdx: Tdx | None = None
    nitro: Nitro | None = None
    tpm: Tpm | None = None
    gpu: Gpu | None = None
    sandbox: Digests = ()
    platforms: Platforms | None = None
    custody: Custody | None = None
    accept_broken: Annotated[
        tuple[AcceptedBreak, ...], Field(max_length=MAX_LISTED)
    ] = ()
    freshness: Freshness
    classes: Annotated[tuple[Demand, ...], Field(max_length=100)] = ()

    @property
    def accepted_breaks(self) -> dict[str, str]:
        """The known breaks that are accepted, by id, and the reason for each."""
        return {each.id: each.reason for each in self.accept_broken}
