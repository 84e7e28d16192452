"""The routing section of a policy in executable form: preferences for the choice.

Values only. The part that permits or denies is the decision's ``Tiering``; these
values express preferences among the permitted tiers and can permit nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum, unique
from typing import Final, Literal, TypeAlias, get_args

from curtilage.attest.log.witness_policy import LogPolicy
from curtilage.policy.decision.conversation import History
from curtilage.policy.decision.tiers import RoutingClass, TierKind

IntentName: TypeAlias = Literal[
    "classification",
    "extraction",
    "summarisation",
    "generation",
    "transform",
    "qa",
    "reasoning",
    "code",
    "unknown",
]
INTENTS: Final[tuple[str, ...]] = get_args(IntentName)
"""What a question can be, for a policy's ``overrides``; the estimator's words."""

# Restricted questions are stored no longer than a person waits for them.
TTL_S: Final[Mapping[RoutingClass, int]] = {
    RoutingClass.RESTRICTED: 600,
    RoutingClass.CONFIDENTIAL: 28_800,
    RoutingClass.INTERNAL: 86_400,
    RoutingClass.PUBLIC: 86_400,
}
"""How long a question of each class waits, where a policy says nothing."""


@unique
class Preference(StrEnum):
    """Where a policy wants questions of an intent answered.

    ``PREFER_HOME`` and ``PREFER_STRONG``: a local or on-premises tier, or an enclave,
    if one is permitted and available. ``ONLY_HOME``: local, on premises, or not at all.
    """

    PREFER_HOME = "prefer_home"
    PREFER_STRONG = "prefer_strong"
    ONLY_HOME = "only_home"


@dataclass(frozen=True, slots=True, kw_only=True)
class Priors:
    """The assumed figures of a tier, until some have been measured; None: unknown.

    Attributes:
        ttft_ms: until the first token.
        tokens_per_s: after it.
        quality_permille: of a thousand ordinary questions, how many it solves.
    """

    ttft_ms: int | None = None
    tokens_per_s: int | None = None
    quality_permille: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TierPlan:
    """One tier, with what is known of it besides its name in the mask.

    Attributes:
        id: its name, as in ``Tiering.tiers``.
        kind: what it is.
        address: of an on-premises server: ``https://host[:port][/path]``, ``http://``
            on this machine in development, or ``unix:/path``. Otherwise empty.
        model: the name by which such a server knows the model; otherwise empty.
        ca: PEM of the only roots that its certificate may have; empty: ``spki_sha256``
            identifies it, or the address needs none.
        spki_sha256: the digest of its public key (SubjectPublicKeyInfo), 64
            hexadecimal digits; empty likewise.
        context_tokens: how long question and answer may be together; None: the tier
            says itself.
        questions_per_min: that it accepts from one device; None: unknown.
        cost_microusd_per_mtok: of a million tokens, in millionths of a dollar.
        priors: what to take for its figures before any was measured.
    """

    id: str
    kind: TierKind
    address: str = ""
    model: str = ""
    ca: bytes = field(default=b"", repr=False)
    spki_sha256: str = ""
    context_tokens: int | None = None
    questions_per_min: int | None = None
    cost_microusd_per_mtok: int = 0
    priors: Priors = Priors()


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimatorPlan:
    """What estimates how hard a question is.

    Attributes:
        kind: ``ngram``, learned weights; ``rules``, a few of them.
        artifact: the weights that the policy names; empty: those that come along.
        sha256: of ``artifact``; empty likewise.
    """

    kind: Literal["ngram", "rules"] = "ngram"
    artifact: bytes = field(default=b"", repr=False)
    sha256: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """The weight of each cost against an expected gain in quality, in thousandths.

    Where there is an aim, it takes the place of ``cost`` and ``switch``, and
    ``hysteresis`` is in ranks.
    """

    latency: int = 250
    cost: int = 80
    risk: int = 50
    switch: int = 20
    hysteresis: int = 20


@unique
class AimKind(StrEnum):
    """The kinds of an operator's aim for routing; the keys of ``routing.aim``.

    ``LOCAL_PERCENT``: of a hundred questions that may be sent, so many are answered
    locally. ``QUALITY_LOSS_PERMILLE``: of a thousand, at most so many answers are worse
    than if all were sent. ``COST_PER_1000``: a thousand cost at most so much.
    """

    LOCAL_PERCENT = "local_percent"
    QUALITY_LOSS_PERMILLE = "quality_loss_permille"
    COST_PER_1000 = "cost_per_1000"


@dataclass(frozen=True, slots=True, kw_only=True)
class Aim:
    """An operator's aim.

    Attributes:
        kind: of what.
        value: how much: percent, thousandths, or thousandths of a US dollar.
    """

    kind: AimKind
    value: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Budgets:
    """How long a query may take, where a request says nothing, in milliseconds."""

    first_signal_ms: int = 1000
    total_ms: int = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Breaker:
    """When a failing tier is not asked.

    Attributes:
        fails: so many failures
        window_s: in so many seconds open the breaker,
        open_s: for so many seconds.
    """

    fails: int = 3
    window_s: int = 30
    open_s: int = 30


@unique
class Speculating(StrEnum):
    """Whether the local model writes a draft that may be discarded.

    ``VERIFY``: if the draft is rejected, an enclave is asked. ``RACE``: it is asked at
    once, in parallel with the draft.
    """

    OFF = "off"
    VERIFY = "verify"
    RACE = "race"


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeculationPlan:
    """When the local model writes a draft.

    Attributes:
        mode: how.
        artifact: the certified thresholds by which drafts are judged, as a file; empty:
            those that come with Curtilage, and of other models there are no drafts.
        sha256: of ``artifact``; empty likewise.
        classes: the routing classes of which there may be drafts; never one that is
            more private than internal.
    """

    mode: Speculating = Speculating.OFF
    artifact: bytes = field(default=b"", repr=False)
    sha256: str = ""
    classes: frozenset[RoutingClass] = frozenset(
        {RoutingClass.PUBLIC, RoutingClass.INTERNAL}
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePlan:
    """Where questions wait that no tier can answer yet, if their sender wants it.

    Attributes:
        store: ``memory``: until this process ends. ``file``: sealed, on this machine's
            disk. ``none``: no questions wait.
        max_items: how many may wait, or be answered and not collected.
        max_bytes: how much they may take.
        key_file: path of the key that seals the file; otherwise empty.
        ttl_s: how long one of a routing class waits at most; 0: not at all.
    """

    store: Literal["none", "memory", "file"] = "none"
    max_items: int = 256
    max_bytes: int = 8_388_608
    key_file: str = ""
    ttl_s: Mapping[RoutingClass, int] = field(default_factory=lambda: dict(TTL_S))


@dataclass(frozen=True, slots=True, kw_only=True)
class Resilience:
    """When a tier that says 'later' is asked again rather than another one.

    Attributes:
        retry_after_max_s: where it wants no longer a wait; 0: never.
        retry_budget_percent: of all first attempts, so many may be followed by another.
    """

    retry_after_max_s: int = 10
    retry_budget_percent: int = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalPlan:
    """What the local model does where it cannot answer in full.

    Attributes:
        stall_s: how late it may start before the next permitted tier is asked.
        shortens: it reads a part of a text that exceeds its context and may be sent to
            no other tier; otherwise there is no answer.
    """

    stall_s: int = 8
    shortens: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutPlan:
    """Whose manifests say which model this device runs.

    Attributes:
        name: of the line of manifests that is followed.
        log: the log that each must be in, and which cosignatures suffice.
    """

    name: str
    log: LogPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingPlan:
    """The section ``routing`` of a policy, in executable form.

    Attributes:
        tiers: what is known of each besides the mask, in the policy's order.
        threshold_permille: how sure an intent must be to count as one.
        overrides: the preference for an intent, one of ``INTENTS``.
        estimator: what estimates how hard a question is.
        weights: the weight of each cost.
        aim: the operator's aim for routing; None: only the weights decide.
        budgets: how long a query may take.
        breaker: when a failing tier is not asked.
        observe: the mask holds, and nothing is chosen: every query that may leave is
            sent, the rest is answered locally. A content-free trace records the choice
            that would have been made.
        history: in which form turns of a class may be sent from a conversation in which
            another turn was kept local. Without ``RESTRICTED``, none of it is sent.
        consent: the classes of which nothing is sent before a person has agreed.
        queue: where questions wait.
        speculation: when the local model writes a draft that may be discarded.
        resilience: when a tier is asked again.
        local: what the local model does where it cannot answer in full.
        rollout: whose manifests say which model the tier in this process runs, where
            none is named; None: no manifests.
    """

    tiers: tuple[TierPlan, ...]
    threshold_permille: int = 700
    overrides: Mapping[str, Preference] = field(default_factory=dict[str, Preference])
    estimator: EstimatorPlan = EstimatorPlan()
    weights: Weights = Weights()
    aim: Aim | None = None
    budgets: Budgets = Budgets()
    breaker: Breaker = Breaker()
    observe: bool = False
    history: Mapping[RoutingClass, History] = field(
        default_factory=dict[RoutingClass, History]
    )
    consent: frozenset[RoutingClass] = frozenset()
    queue: QueuePlan = QueuePlan()
    speculation: SpeculationPlan = SpeculationPlan()
    resilience: Resilience = Resilience()
    local: LocalPlan = LocalPlan()
    rollout: RolloutPlan | None = None

    def tier(self, name: str) -> TierPlan:
        """Return what is known of a tier.

        Raises:
            KeyError: the policy has no tier of this id.
        """
        for each in self.tiers:
            if each.id == name:
                return each
        raise KeyError(name)

    def asks_first(self, routing_class: RoutingClass) -> bool:
        """Return whether a person must agree before a query of a class is sent out."""
        # For a class that is named, and for every more private one: a declaration, or
        # cutting a conversation down to its question, raises the class, and would
        # otherwise let a query that needs consent be sent without it.
        return any(routing_class.privacy >= each.privacy for each in self.consent)
