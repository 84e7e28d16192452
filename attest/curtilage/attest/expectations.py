"""What evidence must look like to be believed; every field is a value.

There is no way to leave something unchecked: no field has a meaning of "skip",
and an empty set refuses everything. Debugging and migration agents are never
allowed, so there is no field for them.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.evidence import Tee
from curtilage.attest.tcb import Product, Tcb
from curtilage.wire.shaping import TransportParameters

PUBLIC_KEY_BYTES: Final = 32
# Report version 2 is the oldest that exists.
OLDEST_REPORT_VERSION: Final = 2
# SHA-256 of the DER of AMD's three root keys (ARK), each of which is valid for
# 25 years. A root that calls itself AMD's and is not among these is refused.
AMD_ROOT_FINGERPRINTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        Product.MILAN: (
            "69d063b45344d26a2e94e1f4210de49ef555308287d4c174445c95639a540bcd"
        ),
        Product.GENOA: (
            "4c6598d19c18719c5dfd4a7d335f674e5bfe1d8f800cea2cf270c10d103db2f1"
        ),
        Product.TURIN: (
            "1f084161a44bb6d93778a904877d4819cafa5d05ef4193b2ded9dd9c73dd3f6a"
        ),
    }
)
# AMD issues a list about once a year, valid until shortly after the next.
DEFAULT_MAX_CRL_AGE_S: Final = 400 * 86400
# The host sets host_data at launch; a release that gives it no meaning
# expects the 32 zero bytes of a host that set nothing.
NO_HOST_DATA: Final = bytes(32)


class Environment(StrEnum):
    """Where the client runs; only development may believe emulated evidence."""

    PRODUCTION = "production"
    DEVELOPMENT = "development"


class AnchorKind(StrEnum):
    """Who made a root."""

    AMD = "amd"
    EMULATED = "emulated"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustAnchor:
    """A pinned root certificate (ARK).

    Attributes:
        kind: AMD's own, or an emulator's.
        product: ``Milan``, ``Genoa`` or ``Turin``.
        certificate_der: the whole certificate.
    """

    kind: AnchorKind
    product: str
    certificate_der: bytes

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the certificate, lower-case hex."""
        return hashlib.sha256(self.certificate_der).hexdigest()


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
    quorum: int
    max_checkpoint_age_s: int

    def __post_init__(self) -> None:
        """Make the mapping immutable."""
        object.__setattr__(self, "witnesses", MappingProxyType(dict(self.witnesses)))


@dataclass(frozen=True, slots=True, kw_only=True)
class SnpExpectations:
    """What a SEV-SNP report and its certificates must say.

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
    min_version: int = 3
    vmpl: frozenset[int] = frozenset({0})
    allow_vlek: bool = False
    allow_masked_chip: bool = False
    max_crl_age_s: int = DEFAULT_MAX_CRL_AGE_S
    host_data: frozenset[bytes] = frozenset({NO_HOST_DATA})

    def __post_init__(self) -> None:
        """Make the mapping immutable."""
        object.__setattr__(self, "min_tcb", MappingProxyType(dict(self.min_tcb)))


@dataclass(frozen=True, slots=True, kw_only=True)
class FreshnessExpectations:
    """How old things may be, in seconds.

    Attributes:
        max_key_lifetime_s: longest window of a key.
        max_evidence_age_s: longest time since the anchor.
        clock_skew_s: how far ahead other clocks may run.
    """

    max_key_lifetime_s: int = 43200
    max_evidence_age_s: int = 43200
    clock_skew_s: int = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectations:
    """Everything that evidence is held against.

    Attributes:
        environment: whether emulated evidence may be believed at all.
        roots: the pinned roots.
        required_cpu_tees: the kinds of evidence that will do.
        release_names: the releases that will do.
        log: where releases are published.
        snp: rules for SEV-SNP, genuine and emulated alike.
        freshness: rules about time.
        transport: the ways of shaping answers that will do.
        digest: digest of the policy that these were made from.
    """

    environment: Environment
    roots: tuple[TrustAnchor, ...]
    required_cpu_tees: frozenset[str]
    release_names: frozenset[str]
    log: LogExpectations
    snp: SnpExpectations
    freshness: FreshnessExpectations
    transport: frozenset[TransportParameters]
    digest: str


def validate_expectations(expectations: Expectations) -> None:
    """Refuse expectations that permit nothing, or too much.

    Raises:
        RefusedError: ``emulated_refused`` for anything emulated in production,
            ``policy_invalid`` for the rest.
    """
    _refuse_emulated_in_production(expectations)
    _refuse_empty(expectations)
    for anchor in expectations.roots:
        _validate_anchor(anchor)
    _validate_log(expectations.log)
    _validate_numbers(expectations)


def _refuse_emulated_in_production(expectations: Expectations) -> None:
    if expectations.environment is Environment.DEVELOPMENT:
        return
    roots = any(root.kind is AnchorKind.EMULATED for root in expectations.roots)
    if roots or Tee.EMULATED_SEV_SNP.value in expectations.required_cpu_tees:
        raise RefusedError(
            RefusalCode.EMULATED_REFUSED, "production names something emulated"
        )


def _refuse_empty(expectations: Expectations) -> None:
    sets = {
        "trust anchors": expectations.roots,
        "required CPU TEEs": expectations.required_cpu_tees,
        "release names": expectations.release_names,
        "log witnesses": expectations.log.witnesses,
        "privilege levels": expectations.snp.vmpl,
        "minimum TCBs": expectations.snp.min_tcb,
        "host data": expectations.snp.host_data,
        "transport parameters": expectations.transport,
    }
    empty = [name for name, values in sets.items() if not values]
    if empty:
        raise _invalid(f"permits nothing: no {', no '.join(empty)}")


def _validate_anchor(anchor: TrustAnchor) -> None:
    if anchor.kind is AnchorKind.EMULATED:
        return
    if AMD_ROOT_FINGERPRINTS.get(anchor.product) != anchor.fingerprint:
        raise _invalid("a trust anchor of kind amd is not AMD's root of its product")


def _validate_log(log: LogExpectations) -> None:
    keys = [log.public_key, *log.witnesses.values()]
    if any(len(key) != PUBLIC_KEY_BYTES for key in keys):
        raise _invalid(f"a log key is not {PUBLIC_KEY_BYTES} bytes")
    # Under two names one witness would count twice, and a log that is its own
    # witness vouches for nothing.
    if len(set(keys)) != len(keys):
        raise _invalid("a log key is named twice")
    if not 1 <= log.quorum <= len(log.witnesses):
        raise _invalid("the quorum is not between 1 and the number of witnesses")


def _validate_numbers(expectations: Expectations) -> None:
    freshness = expectations.freshness
    positive = (
        freshness.max_key_lifetime_s,
        freshness.max_evidence_age_s,
        expectations.log.max_checkpoint_age_s,
        expectations.snp.max_crl_age_s,
    )
    if any(number <= 0 for number in positive) or freshness.clock_skew_s < 0:
        raise _invalid("an age or lifetime is not positive")
    if expectations.snp.min_version < OLDEST_REPORT_VERSION:
        raise _invalid("the minimum report version does not exist")


def _invalid(detail: str) -> RefusedError:
    return RefusedError(RefusalCode.POLICY_INVALID, detail)
