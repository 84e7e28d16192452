"""A policy as data: what the file may say, and the policy that is made of it.

The models mirror the file, section by section. They check shapes, ranges and
words; what concerns several entries at once is in ``checks``. Everything is
frozen, and a key that stands here has an effect.
"""

import base64
import binascii
import re
from dataclasses import dataclass, field
from typing import Annotated, Final, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    model_validator,
)

from curtilage.policy.classes import expand, is_uncertain
from curtilage.policy.routes import Route
from curtilage.policy.rules import (
    ANY_UNCERTAIN,
    ANY_UNCERTAIN_WHEN,
    RESERVED_IDS,
    Exclusion,
    Rule,
    Within,
)
from curtilage.policy.when import parse_when

REQUIREMENTS: Final = frozenset(
    {"all_detectors_ok", "language_covered", "within_limits", "policy_current"}
)
EMULATED_TEE: Final = "emulated-sev-snp"
ED25519_KEY_BYTES: Final = 32
CERTIFICATE_BYTES: Final = 8192  # an AMD root certificate has about 1,600
_DER_SEQUENCE: Final = 0x30

_PEM = re.compile(
    r"\s*-----BEGIN CERTIFICATE-----\s+([A-Za-z0-9+/=\s]+?)\s*"
    r"-----END CERTIFICATE-----\s*"
)


class _Section(BaseModel):
    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, hide_input_in_errors=True
    )


# --- attestation: what evidence must show before anything leaves -------------


def _decode_key(value: object) -> bytes:
    if not isinstance(value, str):
        raise ValueError("expected text: the key in base64")  # noqa: TRY004 - pydantic
    try:
        key = base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("not base64") from None
    if len(key) != ED25519_KEY_BYTES:
        raise ValueError(
            f"an Ed25519 public key has {ED25519_KEY_BYTES} bytes, not {len(key)}"
        )
    return key


def _decode_certificate(value: object) -> bytes:
    match = _PEM.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError("expected one certificate in PEM, and nothing else")
    try:
        der = base64.b64decode("".join(match[1].split()), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("the certificate is not base64 inside") from None
    if not 0 < len(der) <= CERTIFICATE_BYTES or der[0] != _DER_SEQUENCE:
        raise ValueError("the certificate is not DER inside")
    return der


Ed25519Key = Annotated[bytes, PlainValidator(_decode_key)]
Certificate = Annotated[bytes, PlainValidator(_decode_certificate)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/+-]{0,127}$")]
Product = Literal["Milan", "Genoa", "Turin"]
Spl = Annotated[int, Field(ge=0, le=255)]  # a security patch level is one byte


class TrustAnchor(_Section):
    """A root certificate that this client pins.

    ``certificate`` is PEM in the file, so that the policy's digest covers it,
    and DER here. It is not examined here; verification does that.
    """

    kind: Literal["amd", "emulated"]
    product: Product
    certificate: Certificate = Field(repr=False)


class Witness(_Section):
    """Someone who signs what he has seen of a log."""

    name: Name
    key: Ed25519Key


class Log(_Section):
    """The log that a release must be in, and who must have witnessed it."""

    origin: Name
    key: Ed25519Key
    witnesses: tuple[Witness, ...]
    quorum: Annotated[int, Field(ge=1, le=64)]

    @model_validator(mode="after")
    def _no_witness_counts_twice(self) -> Self:
        names = {each.name for each in self.witnesses}
        keys = {each.key for each in self.witnesses} | {self.key}
        if len(names) < len(self.witnesses) or len(keys) <= len(self.witnesses):
            raise ValueError(
                "each witness has a name and a key of its own, other than the log's"
            )
        if self.witnesses and self.quorum > len(self.witnesses):
            raise ValueError("the quorum is larger than the number of witnesses")
        return self


class Releases(_Section):
    """Which software an enclave may run."""

    names: tuple[Name, ...]
    log: Log
    max_checkpoint_age_s: Annotated[int, Field(ge=1, le=31_622_400)]


class MinTCB(_Section):
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
            raise ValueError("'fmc' stands for Turin, and for Turin alone")
        return self


class Snp(_Section):
    """What a SEV-SNP report must show."""

    min_version: Annotated[int, Field(ge=3, le=5)]  # version 2 names no product
    vmpl: tuple[Annotated[int, Field(ge=0, le=3)], ...]
    allow_vlek: bool
    allow_masked_chip: bool
    min_tcb: tuple[MinTCB, ...]

    @model_validator(mode="after")
    def _one_minimum_for_each_product(self) -> Self:
        if len({each.product for each in self.min_tcb}) < len(self.min_tcb):
            raise ValueError("'min_tcb' names a product twice")
        return self


class Freshness(_Section):
    """How old evidence and keys may be, in seconds."""

    max_key_lifetime_s: Annotated[int, Field(ge=1, le=604_800)]
    max_evidence_age_s: Annotated[int, Field(ge=1, le=604_800)]
    clock_skew_s: Annotated[int, Field(ge=0, le=600)]


class Attestation(_Section):
    """What evidence must show. No field means 'skip'; an empty list refuses."""

    environment: Literal["production", "development"]
    trust_anchors: tuple[TrustAnchor, ...]
    required_cpu_tees: tuple[Literal["sev-snp", "emulated-sev-snp"], ...]
    releases: Releases
    snp: Snp
    freshness: Freshness


# --- detection: what is looked for, and when it counts -----------------------


def _no_packs(value: tuple[object, ...]) -> tuple[object, ...]:
    if value:
        raise ValueError("packs are not in this release: write [], and rules inline")
    return value


def _no_detectors(value: tuple[object, ...]) -> tuple[object, ...]:
    if value:
        raise ValueError("detectors of a policy's own are not in this release")
    return value


def _complete(value: tuple[str, ...]) -> tuple[str, ...]:
    if frozenset(value) != REQUIREMENTS or len(value) != len(REQUIREMENTS):
        raise ValueError(
            f"every requirement always holds: list {', '.join(sorted(REQUIREMENTS))}, "
            "or leave 'require' out"
        )
    return value


def _covered(value: tuple[str, ...]) -> tuple[str, ...]:
    if value != ("en",):
        raise ValueError("detectors of other languages than en are not in this release")
    return value


def _enclave_not_relay(value: object) -> object:
    if isinstance(value, str) and value in {"relay", "remote"}:
        raise ValueError("the route is called 'enclave' here")
    return value


def _no_engine(value: object) -> object:
    if value != "none":
        raise ValueError("models that find names are not in this release: write none")
    return value


def _whole_scan(value: object) -> object:
    if value == "early_exit":
        raise ValueError("early_exit is not in this release: write full")
    return value


def _no_dictionary(value: object) -> object:
    del value
    raise ValueError("dictionaries are not in this release")


def _excludable(value: str) -> str:
    if any(is_uncertain(name) or name.startswith("secret.") for name in expand(value)):
        raise ValueError("secret.* and uncertain.* cannot be excluded")
    return value


def _expression(value: str) -> str:
    parse_when(value)
    return value


def _unreserved(value: str) -> str:
    if value in RESERVED_IDS:
        raise ValueError(f"the id {value!r} is taken by the program itself")
    return value


RouteName = Annotated[Route, BeforeValidator(_enclave_not_relay)]
RuleId = Annotated[
    str,
    Field(pattern=r"^[a-z][a-z0-9-]{0,63}$"),
    AfterValidator(_unreserved),
]
Expression = Annotated[str, AfterValidator(_expression)]
Reason = Annotated[str, Field(max_length=1000)]
Confidence = Annotated[int, Field(ge=1, le=100)]


class Default(_Section):
    """What happens to a query that no rule keeps home."""

    decision: RouteName
    require: Annotated[tuple[str, ...], AfterValidator(_complete)] = ()


class Limits(_Section):
    """How much is inspected, and for how long; beyond is uncertain."""

    max_chars: Annotated[int, Field(ge=1, le=1_000_000)] = 20_000
    deadline_ms: Annotated[int, Field(ge=1, le=60_000)] = 250
    deadline_ms_per_1000_chars: Annotated[int, Field(ge=0, le=60_000)] = 150
    over: Literal["local"] = "local"


class Thresholds(_Section):
    """The least score at which a class counts, where a rule says none.

    They concern ``identifier.direct``, ``identifier.quasi`` and ``topic``.
    Every other class counts at any score.
    """

    direct: Confidence = 35
    quasi: Confidence = 50
    topic: Confidence = 50

    def minimum_of(self, name: str) -> int:
        """Return the least score at which this class counts."""
        if name.startswith("identifier.direct."):
            return self.direct
        if name.startswith("identifier.quasi."):
            return self.quasi
        return self.topic if name.startswith("topic.") else 0


class Ner(_Section):
    """The model that finds names."""

    engine: Annotated[Literal["none"], BeforeValidator(_no_engine)]


class RuleEntry(_Section):
    """One rule as it is written."""

    id: RuleId
    when: Expression
    within: Within = Within.CONVERSATION
    min_conf: Confidence | None = None
    distinct: Annotated[int, Field(ge=1, le=100)] = 1
    then: RouteName
    reason: Reason = ""

    @model_validator(mode="after")
    def _can_fire(self) -> Self:
        if self.distinct > len(parse_when(self.when).classes):
            raise ValueError("'distinct' is more than the classes that 'when' names")
        return self

    def compile(self, thresholds: Thresholds) -> Rule:
        """Return the rule, ready to run."""

        def minimum_of(name: str) -> int:
            return self.min_conf or thresholds.minimum_of(name)

        return Rule(
            id=self.id,
            when=self.when,
            condition=parse_when(self.when, minimum_of=minimum_of),
            within=self.within,
            distinct=self.distinct,
            route=self.then,
            reason=self.reason,
        )


class ExclusionEntry(_Section):
    """Unvalidated findings that do not count, as it is written."""

    pattern: Annotated[str, AfterValidator(_excludable)] = Field(alias="class")
    unless: Expression | None = None
    reason: Reason = ""
    dictionary: Annotated[None, BeforeValidator(_no_dictionary)] = None

    def compile(self, thresholds: Thresholds) -> Exclusion:
        """Return the exclusion, ready to run."""
        unless = self.unless
        return Exclusion(
            pattern=self.pattern,
            classes=expand(self.pattern),
            unless=None
            if unless is None
            else parse_when(unless, minimum_of=thresholds.minimum_of),
            unless_text=unless or "",
            reason=self.reason,
        )


class Transport(_Section):
    """Nothing can be chosen here yet, so every key is unknown."""


class Routing(_Section):
    """Nothing can be chosen here yet, so every key is unknown."""


class Document(_Section):
    """The file, key by key; what may be left out has the value shown here.

    The order is that of the shipped profile. An absent ``default`` keeps every
    query home, and an absent ``attestation`` lets no enclave be believed.
    """

    version: Literal[1]
    languages: Annotated[tuple[str, ...], AfterValidator(_covered)] = ("en",)
    default: Default = Default(decision=Route.LOCAL)
    limits: Limits = Limits()
    thresholds: Thresholds = Thresholds()
    strict_topics: bool = False
    sticky: Literal["conversation", "validated"] = "conversation"
    scan: Annotated[Literal["full"], BeforeValidator(_whole_scan)] = "full"
    ner: Ner = Ner(engine="none")
    packs: Annotated[tuple[object, ...], AfterValidator(_no_packs)] = ()
    detectors: Annotated[tuple[object, ...], AfterValidator(_no_detectors)] = ()
    rules: Annotated[tuple[RuleEntry, ...], Field(max_length=500)]
    exclude: Annotated[tuple[ExclusionEntry, ...], Field(max_length=500)] = ()
    attestation: Attestation | None = None
    transport: Transport | None = None
    routing: Routing | None = None


# --- the policy that is made of it -------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A policy in force: the document, its digest, and its rules made ready.

    ``load.load_policy`` makes it.

    Attributes:
        document: the file as data.
        digest: ``sha256:`` and the hexadecimal digest of the file's bytes.
        source: what the caller calls the file.
        rules: in the file's order; ``any-uncertain`` is among them.
        exclusions: in the file's order.
    """

    document: Document = field(repr=False)
    digest: str
    source: str
    rules: tuple[Rule, ...] = field(repr=False)
    exclusions: tuple[Exclusion, ...] = field(repr=False)

    def __post_init__(self) -> None:
        """Refuse to exist without the rule that keeps the unknown home."""
        if not any(_keeps_the_unknown_home(rule) for rule in self.rules):
            raise ValueError(f"a policy without the rule {ANY_UNCERTAIN!r}")

    @property
    def attestation(self) -> Attestation | None:
        """What evidence must show; None: nothing is ever enough."""
        return self.document.attestation

    @property
    def limits(self) -> Limits:
        """How much is inspected, and for how long."""
        return self.document.limits

    @property
    def languages(self) -> tuple[str, ...]:
        """The languages that the detectors cover."""
        return self.document.languages


def _keeps_the_unknown_home(rule: Rule) -> bool:
    return (
        rule.id == ANY_UNCERTAIN
        and rule.when == ANY_UNCERTAIN_WHEN
        and rule.distinct == 1
        and rule.route in {Route.BLOCK, Route.LOCAL}
    )
