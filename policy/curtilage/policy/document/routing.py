"""The section ``routing``: the tiers that may answer, and what to prefer.

Types, ranges and enumerations of ``routing:``; ``model`` puts it into the document.
Checks across entries are in ``routing_checks``.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Final, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ValidationInfo,
    model_validator,
)

from curtilage.attest.errors import RefusedError
from curtilage.attest.log.note import NoteKey
from curtilage.attest.log.witness_policy import LogPolicy, simple_policy
from curtilage.policy.decision.classes import CLASSES, expand
from curtilage.policy.decision.conversation import History
from curtilage.policy.decision.tiers import (
    Demand,
    RoutingClass,
    Tier,
    Tiering,
    TierKind,
)
from curtilage.policy.document.addresses import on_premises_address
from curtilage.policy.document.attestation import Log
from curtilage.policy.document.routing_plan import (
    TTL_S,
    Aim,
    AimKind,
    Breaker,
    Budgets,
    EstimatorPlan,
    IntentName,
    LocalPlan,
    Preference,
    Priors,
    QueuePlan,
    Resilience,
    RolloutPlan,
    RoutingPlan,
    Speculating,
    SpeculationPlan,
    TierPlan,
    Weights,
)
from curtilage.policy.document.sections import FileName, Id, Patterns, Section
from curtilage.policy.document.values import class_pattern, each_once, some

ANYTHING: Final = "*"
MAX_TIERS: Final = 16
_DOLLARS: Final = re.compile(r"([0-9]{1,5})(?:\.([0-9]{1,3}))?")


def _trusted(value: str, info: ValidationInfo) -> str:
    return value if value == ANYTHING else class_pattern(value, info)


def _renamed(kind: object) -> object:
    """Accept the name that version 0.1 has; ``load`` reports it."""
    return "on_premises" if kind == "house" else kind


Permille = Annotated[int, Field(ge=0, le=1000)]
Milliseconds = Annotated[int, Field(ge=1, le=600_000)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
TierIds = Annotated[
    tuple[Id, ...],
    Field(max_length=MAX_TIERS),
    AfterValidator(some),
    AfterValidator(each_once),
]


class PriorFigures(Section):
    """The assumed figures of a tier, until some have been measured."""

    ttft_ms: Milliseconds | None = None
    tokens_per_s: Annotated[int, Field(ge=1, le=100_000)] | None = None
    quality_permille: Permille | None = None


class TierEntry(Section):
    """One place that can answer, as it is written."""

    id: Id
    kind: Annotated[
        Literal["in_process", "on_premises", "attested"], BeforeValidator(_renamed)
    ]
    address: Annotated[str, AfterValidator(on_premises_address)] | None = None
    model: Annotated[str, Field(pattern=r"^[!-~]{1,200}$")] | None = None
    ca: FileName | None = None
    spki_sha256: Sha256 | None = None
    trusted: Annotated[
        tuple[Annotated[str, AfterValidator(_trusted)], ...], Field(max_length=100)
    ] = ()
    context_tokens: Annotated[int, Field(ge=256, le=100_000_000)] | None = None
    questions_per_min: Annotated[int, Field(ge=1, le=100_000)] | None = None
    cost_microusd_per_mtok: Annotated[int, Field(ge=0, le=10_000_000_000)] = 0
    priors: PriorFigures = PriorFigures()

    @model_validator(mode="after")
    def _of_its_kind(self) -> Self:
        if self.kind != "on_premises":
            given = (self.address, self.model, self.ca, self.spki_sha256, self.trusted)
            if any(given):
                raise ValueError(
                    "'address', 'model', 'ca', 'spki_sha256' and 'trusted' are only "
                    "for a tier of kind 'on_premises'"
                )
            if self.kind == "in_process" and self.context_tokens is not None:
                raise ValueError("the local model knows its own context size")
            if self.kind == "in_process" and self.questions_per_min is not None:
                raise ValueError("the local model has no limit on questions a minute")
            return self
        if self.address is None or self.model is None:
            raise ValueError("a tier of kind 'on_premises' has 'address' and 'model'")
        pins = (self.ca is not None) + (self.spki_sha256 is not None)
        # Otherwise any public CA could certify an impostor under an internal name,
        # who would then receive data that must not leave.
        if self.address.startswith("https:") and pins != 1:
            raise ValueError("say whose server it is: either 'ca' or 'spki_sha256'")
        if not self.address.startswith("https:") and pins:
            raise ValueError("such an address has no certificate")
        return self

    def trusts(self, own: frozenset[str]) -> frozenset[str]:
        """Return the classes that it may receive although they must not leave."""
        if ANYTHING in self.trusted:
            return CLASSES | own
        return frozenset[str]().union(*(expand(each, own=own) for each in self.trusted))


class ClassQueue(Section):
    """How long a question of one routing class may wait for an answer; 0: not."""

    ttl_s: Annotated[int, Field(ge=0, le=604_800)]


class ClassEntry(Section):
    """Which tiers may answer queries of one routing class, and what they need."""

    tiers: TierIds | None = None
    history: Literal["never", "redacted_extract", "safe_summary"] = "never"
    consent: Literal["required"] | None = None
    queue: ClassQueue | None = None
    speculation: Literal["allow", "deny"] | None = None


class RestrictedEntry(Section):
    """The same for restricted queries, which need no consent."""

    tiers: TierIds | None = None
    # Not as an extract: "my sister has [...]" is revealing without a name. In a summary
    # a model omits what was not asked for, and it is inspected like any other text.
    history: Literal["never", "safe_summary"] | None = None
    queue: ClassQueue | None = None


class Classes(Section):
    """The routing classes; one that is left out may be answered by any tier."""

    public: ClassEntry | None = None
    internal: ClassEntry | None = None
    confidential: ClassEntry | None = None
    restricted: RestrictedEntry | None = None

    def entries(self) -> Iterator[tuple[RoutingClass, ClassEntry | RestrictedEntry]]:
        """Yield each class that has an entry, with the entry."""
        for each in RoutingClass:
            entry: ClassEntry | RestrictedEntry | None = getattr(self, each.value)
            if entry is not None:
                yield each, entry


class TierDemand(Section):
    """What some data classes require of a tier."""

    classes: Patterns
    only: TierIds | None = None
    never: TierIds | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.only is None) == (self.never is None):
            raise ValueError("a demand has either 'only' or 'never'")
        return self


class Intents(Section):
    """What is wanted of questions of one kind, and how sure their kind must be."""

    threshold_permille: Permille = 700
    overrides: dict[IntentName, Preference] = Field(
        default_factory=dict[IntentName, Preference]
    )


class Estimator(Section):
    """What estimates how hard a question is; weights of other origin are pinned."""

    kind: Literal["ngram", "rules"] = "ngram"
    file: FileName | None = None
    sha256: Sha256 | None = None

    @model_validator(mode="after")
    def _pinned(self) -> Self:
        if (self.file is None) != (self.sha256 is None):
            raise ValueError("'file' and 'sha256' must be given together")
        if self.kind == "rules" and self.file is not None:
            raise ValueError("rules have no 'file'")
        return self


class WeightsEntry(Section):
    """The weight of each cost against an expected gain, in thousandths."""

    latency: Permille = 250
    cost: Permille = 80
    risk: Permille = 50
    switch: Permille = 20
    hysteresis: Permille = 20


def _thousandths(value: object) -> int:
    """Return a number of dollars, such as ``2`` or ``0.125``, in thousandths."""
    # A policy has no fractions: one that is written arrives as text.
    found = _DOLLARS.fullmatch(str(value)) if type(value) in {int, str} else None
    if found is None:
        raise ValueError("expected US dollars, such as 2 or 0.125, at most 99999.999")
    return 1000 * int(found[1]) + int((found[2] or "").ljust(3, "0"))


def _an_aim(value: object) -> object:
    # A line `aim:` with nothing behind it looks like one that is met.
    if value is None:
        raise ValueError(f"an aim is exactly one of {', '.join(AimKind)}")
    return value


class AimEntry(Section):
    """The operator's aim for routing: one of three numbers."""

    local_percent: Annotated[int, Field(ge=0, le=100)] | None = None
    quality_loss_permille: Permille | None = None
    cost_per_1000: Annotated[int, BeforeValidator(_thousandths)] | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        if len(self.model_dump(exclude_none=True)) != 1:
            raise ValueError(f"an aim is exactly one of {', '.join(AimKind)}")
        return self

    def plan(self) -> Aim:
        """Return it as the router reads it."""
        ((name, value),) = self.model_dump(exclude_none=True).items()
        return Aim(kind=AimKind(name), value=value)


class BudgetsEntry(Section):
    """How long a query may take, where its request says nothing."""

    first_signal_ms: Milliseconds = 1000
    total_ms: Milliseconds = 60_000


class BreakerEntry(Section):
    """When a failing tier is not asked, and for how long."""

    fails: Annotated[int, Field(ge=1, le=100)] = 3
    window_s: Annotated[int, Field(ge=1, le=3600)] = 30
    open_s: Annotated[int, Field(ge=1, le=3600)] = 30


class Queue(Section):
    """Where questions wait that no tier can answer at the moment."""

    store: Literal["none", "memory", "file"] = "none"
    max_items: Annotated[int, Field(ge=1, le=100_000)] = 256
    max_bytes: Annotated[int, Field(ge=4096, le=1_073_741_824)] = 8_388_608
    key_file: Annotated[str, Field(pattern=r"^/[^\x00]{1,1000}$")] | None = None

    @model_validator(mode="after")
    def _sealed(self) -> Self:
        # Even what may leave: a finder of the disk is not its intended recipient.
        if self.store == "file" and self.key_file is None:
            raise ValueError("a queue on the disk is sealed: it needs 'key_file'")
        if self.store != "file" and self.key_file is not None:
            raise ValueError("'key_file' is only for a queue in a file")
        return self


class Speculation(Section):
    """Whether the local model writes drafts, and the thresholds for judging them."""

    mode: Speculating = Speculating.OFF
    thresholds: FileName | None = None
    sha256: Sha256 | None = None

    @model_validator(mode="after")
    def _certified(self) -> Self:
        if (self.thresholds is None) != (self.sha256 is None):
            raise ValueError("'thresholds' and 'sha256' must be given together")
        return self


class ResilienceEntry(Section):
    """When a tier that says 'later' is asked again rather than another one."""

    # A peer could impose a longer wait than this indefinitely.
    retry_after_max_s: Annotated[int, Field(ge=0, le=10)] = 10
    retry_budget_percent: Annotated[int, Field(ge=0, le=100)] = 10


class LocalEntry(Section):
    """What the local model does where it cannot answer in full."""

    stall_s: Annotated[int, Field(ge=1, le=600)] = 8
    long_text: Literal["shorten", "refuse"] = "shorten"


class Rollout(Section):
    """Whose manifests say which model this device runs."""

    name: Id
    log: Log

    @model_validator(mode="after")
    def _believable(self) -> Self:
        try:
            self.log_policy()
        except RefusedError as refusal:
            raise ValueError(refusal.detail) from None
        return self

    def log_policy(self) -> LogPolicy:
        """Return which log is trusted, and which cosignatures suffice.

        Raises:
            RefusedError: ``policy_invalid``; never once it was loaded.
        """
        return simple_policy(
            log=NoteKey(name=self.log.origin, public_key=self.log.key),
            witnesses=[
                NoteKey(name=each.name, public_key=each.key)
                for each in self.log.witnesses
            ],
            quorum=self.log.quorum,
        )


class Routing(Section):
    """The tiers, the most private first, and what to prefer."""

    tiers: Annotated[
        tuple[TierEntry, ...], Field(max_length=MAX_TIERS), AfterValidator(some)
    ]
    classes: Classes = Classes()
    demands: Annotated[tuple[TierDemand, ...], Field(max_length=100)] = ()
    intents: Intents = Intents()
    estimator: Estimator = Estimator()
    weights_permille: WeightsEntry = WeightsEntry()
    aim: Annotated[AimEntry | None, BeforeValidator(_an_aim)] = None
    budgets: BudgetsEntry = BudgetsEntry()
    breaker: BreakerEntry = BreakerEntry()
    observe: bool = False
    queue: Queue = Queue()
    speculation: Speculation = Speculation()
    resilience: ResilienceEntry = ResilienceEntry()
    local: LocalEntry = LocalEntry()
    rollout: Rollout | None = None

    def tiering(self, own: frozenset[str], claimed: frozenset[str]) -> Tiering:
        """Return the mask.

        Args:
            own: the classes of the policy's own detectors.
            claimed: those for which an enclave must show more than for others.
        """
        return Tiering(
            tiers=tuple(
                Tier(id=each.id, kind=TierKind(each.kind), trusted=each.trusts(own))
                for each in self.tiers
            ),
            classes={
                each: frozenset(entry.tiers)
                for each, entry in self.classes.entries()
                if entry.tiers is not None
            },
            demands=tuple(
                Demand(
                    classes=frozenset[str]().union(
                        *(expand(pattern, own=own) for pattern in each.classes)
                    ),
                    only=None if each.only is None else frozenset(each.only),
                    never=frozenset(each.never or ()),
                )
                for each in self.demands
            ),
            claimed=claimed,
            known=CLASSES | own,
        )

    def plan(self, files: Mapping[str, bytes]) -> RoutingPlan:
        """Return the rest of the section, with the contents of the files it names."""
        return RoutingPlan(
            tiers=tuple(
                TierPlan(
                    id=each.id,
                    kind=TierKind(each.kind),
                    address=each.address or "",
                    model=each.model or "",
                    ca=b"" if each.ca is None else files[each.ca],
                    spki_sha256=each.spki_sha256 or "",
                    context_tokens=each.context_tokens,
                    questions_per_min=each.questions_per_min,
                    cost_microusd_per_mtok=each.cost_microusd_per_mtok,
                    priors=Priors(**each.priors.model_dump()),
                )
                for each in self.tiers
            ),
            threshold_permille=self.intents.threshold_permille,
            overrides={str(k): v for k, v in self.intents.overrides.items()},
            estimator=EstimatorPlan(
                kind=self.estimator.kind,
                artifact=b""
                if self.estimator.file is None
                else files[self.estimator.file],
                sha256=self.estimator.sha256 or "",
            ),
            weights=Weights(**self.weights_permille.model_dump()),
            aim=None if self.aim is None else self.aim.plan(),
            budgets=Budgets(**self.budgets.model_dump()),
            breaker=Breaker(**self.breaker.model_dump()),
            observe=self.observe,
            history={
                each: History(entry.history)
                for each, entry in self.classes.entries()
                if entry.history is not None
            },
            consent=frozenset(
                each
                for each, entry in self.classes.entries()
                if isinstance(entry, ClassEntry) and entry.consent is not None
            ),
            queue=QueuePlan(
                store=self.queue.store,
                max_items=self.queue.max_items,
                max_bytes=self.queue.max_bytes,
                key_file=self.queue.key_file or "",
                ttl_s={
                    **TTL_S,
                    **{
                        each: entry.queue.ttl_s
                        for each, entry in self.classes.entries()
                        if entry.queue is not None
                    },
                },
            ),
            speculation=SpeculationPlan(
                mode=self.speculation.mode,
                artifact=b""
                if self.speculation.thresholds is None
                else files[self.speculation.thresholds],
                sha256=self.speculation.sha256 or "",
                classes=frozenset(
                    each
                    for each, entry in (
                        (RoutingClass.PUBLIC, self.classes.public),
                        (RoutingClass.INTERNAL, self.classes.internal),
                    )
                    if entry is None or entry.speculation != "deny"
                ),
            ),
            resilience=Resilience(**self.resilience.model_dump()),
            local=LocalPlan(
                stall_s=self.local.stall_s,
                shortens=self.local.long_text == "shorten",
            ),
            rollout=None
            if self.rollout is None
            else RolloutPlan(name=self.rollout.name, log=self.rollout.log_policy()),
        )
