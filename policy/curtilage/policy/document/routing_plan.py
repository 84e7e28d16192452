"""What a policy says of routing, ready to run: beside the mask, hints for the choice.

Values only. What of the section permits or denies is the decision's ``Tiering``; what
stands here says what to prefer among the permitted, and can permit nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum, unique
from typing import Final, Literal

from curtilage.policy.decision.conversation import History
from curtilage.policy.decision.tiers import RoutingClass, TierKind

INTENTS: Final = (
    "classification",
    "extraction",
    "summarisation",
    "generation",
    "transform",
    "qa",
    "reasoning",
    "code",
    "unknown",
)
"""What a question can be, for a policy's ``overrides``; the estimator's words."""


@unique
class Preference(StrEnum):
    """Where a policy wants questions of an intent answered.

    ``PREFER_HOME`` and ``PREFER_STRONG``: a tier in the house, or an enclave, if one is
    permitted and can be had. ``ONLY_HOME``: in the house or not at all.
    """

    PREFER_HOME = "prefer_home"
    PREFER_STRONG = "prefer_strong"
    ONLY_HOME = "only_home"


@dataclass(frozen=True, slots=True, kw_only=True)
class Priors:
    """What is taken for a tier's figures until some were measured; None: unknown.

    Attributes:
        ttft_ms: until the first token.
        tokens_per_s: after it.
        quality_permille: of a thousand answers, how many are good enough.
    """

    ttft_ms: int | None = None
    tokens_per_s: int | None = None
    quality_permille: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TierPlan:
    """One tier, as far as it is more than a name in the mask.

    Attributes:
        id: its name, as in ``Tiering.tiers``.
        kind: what it is.
        address: of a server in the house: ``https://host[:port][/path]``, ``http://``
            on this machine in development, or ``unix:/path``. Else empty.
        model: the name by which such a server knows the model; else empty.
        ca: PEM of the only roots that its certificate may have; empty: ``spki_sha256``
            says whose it is, or the address needs none.
        spki_sha256: the digest of its public key (SubjectPublicKeyInfo), 64
            hexadecimal digits; empty likewise.
        context_tokens: how long question and answer may be together; None: the tier
            says itself.
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
    """What counts how much against an expected gain in quality, in thousandths."""

    latency: int = 250
    cost: int = 80
    risk: int = 50
    switch: int = 20
    hysteresis: int = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Budgets:
    """How long a query may take, where a request says nothing, in milliseconds."""

    first_signal_ms: int = 1000
    total_ms: int = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Breaker:
    """When a tier that fails is left alone.

    Attributes:
        fails: so many failures
        window_s: in so many seconds open the breaker,
        open_s: for so many seconds.
    """

    fails: int = 3
    window_s: int = 30
    open_s: int = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingPlan:
    """The section ``routing`` of a policy, made ready.

    Attributes:
        tiers: what is known of each beside the mask, in the policy's order.
        threshold_permille: how sure an intent must be to count as one.
        overrides: what is wanted of an intent, one of ``INTENTS``.
        estimator: what estimates how hard a question is.
        weights: what counts how much.
        budgets: how long a query may take.
        breaker: when a tier is left alone.
        observe: the mask holds, and nothing is chosen: what may leave leaves, the rest
            is answered here. A trace without content tells what would have been.
        history: in which form turns of a class may enter what leaves of a conversation
            of which another turn had to stay. Without ``RESTRICTED`` it stays whole.
        consent: the classes of which nothing leaves before a person agreed to it.
    """

    tiers: tuple[TierPlan, ...]
    threshold_permille: int = 700
    overrides: Mapping[str, Preference] = field(default_factory=dict[str, Preference])
    estimator: EstimatorPlan = EstimatorPlan()
    weights: Weights = Weights()
    budgets: Budgets = Budgets()
    breaker: Breaker = Breaker()
    observe: bool = False
    history: Mapping[RoutingClass, History] = field(
        default_factory=dict[RoutingClass, History]
    )
    consent: frozenset[RoutingClass] = frozenset()

    def tier(self, name: str) -> TierPlan:
        """Return what is known of a tier.

        Raises:
            KeyError: the policy has no tier of this id.
        """
        for each in self.tiers:
            if each.id == name:
                return each
        raise KeyError(name)
