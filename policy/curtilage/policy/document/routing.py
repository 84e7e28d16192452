"""The section ``routing``: the tiers that may answer, and what to prefer.

The router reads it as it is (``routing_settings``); the decision reads the ``Tiering``
that it makes. Checks across entries are in ``routing_checks``.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from curtilage.policy.decision.classes import CLASSES, expand
from curtilage.policy.decision.conversation import History
from curtilage.policy.decision.tiers import Demand, RoutingClass, Tier, Tiering
from curtilage.policy.document.routing_settings import (
    Aim,
    AimKind,
    Breaker,
    Budgets,
    Estimator,
    Intents,
    Local,
    Queue,
    Resilience,
    Rollout,
    Speculation,
    TierEntry,
    Weights,
)
from curtilage.policy.document.sections import Id, Patterns, Section
from curtilage.policy.document.values import each_once, some

MAX_TIERS: Final = 16
# Restricted questions are stored no longer than a person waits for them.
TTL_S: Final[dict[RoutingClass, int]] = {
    RoutingClass.RESTRICTED: 600,
    RoutingClass.CONFIDENTIAL: 28_800,
    RoutingClass.INTERNAL: 86_400,
    RoutingClass.PUBLIC: 86_400,
}
"""Waiting time of a question of each class, where a policy sets none."""

TierIds = Annotated[
    tuple[Id, ...],
    Field(max_length=MAX_TIERS),
    AfterValidator(some),
    AfterValidator(each_once),
]


class ClassQueue(Section):
    """Longest wait of a question of one routing class for an answer; 0: none."""

    ttl_s: Annotated[int, Field(ge=0, le=604_800)]


class ClassEntry(Section):
    """Tiers that may answer queries of one routing class, and what they need."""

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
    """Requirements of some data classes on a tier."""

    classes: Patterns
    only: TierIds | None = None
    never: TierIds | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.only is None) == (self.never is None):
            raise ValueError("a demand has either 'only' or 'never'")
        return self


def _an_aim(value: object) -> object:
    # A line `aim:` with nothing behind it looks like one that is met.
    if value is None:
        raise ValueError(f"an aim is exactly one of {', '.join(AimKind)}")
    return value


class Routing(Section):
    """The tiers, the most private first, and what to prefer.

    Attributes:
        tiers: each of them.
        classes: which of them may answer a routing class, and what that needs.
        demands: what some data classes require of a tier.
        intents: the preference for questions of one kind.
        estimator: what estimates how hard a question is.
        weights_permille: the weight of each cost.
        aim: the operator's aim for routing; None: only the weights decide.
        budgets: how long a query may take.
        breaker: when a failing tier is not asked.
        observe: the mask holds, and nothing is chosen: every query that may leave is
            sent, the rest is answered locally. A content-free trace records the choice
            that would have been made.
        queue: where questions wait.
        speculation: when the local model writes a draft that may be discarded.
        resilience: when a tier is asked again.
        local: what the local model does where it cannot answer in full.
        rollout: whose manifests say which model the tier in this process runs, where
            none is named; None: no manifests.
    """

    tiers: Annotated[
        tuple[TierEntry, ...], Field(max_length=MAX_TIERS), AfterValidator(some)
    ]
    classes: Classes = Classes()
    demands: Annotated[tuple[TierDemand, ...], Field(max_length=100)] = ()
    intents: Intents = Intents()
    estimator: Estimator = Estimator()
    weights_permille: Weights = Weights()
    aim: Annotated[Aim | None, BeforeValidator(_an_aim)] = None
    budgets: Budgets = Budgets()
    breaker: Breaker = Breaker()
    observe: bool = False
    queue: Queue = Queue()
    speculation: Speculation = Speculation()
    resilience: Resilience = Resilience()
    local: Local = Local()
    rollout: Rollout | None = None

    def tier(self, name: str) -> TierEntry:
        """Return a tier.

        Raises:
            KeyError: the policy has no tier of this id.
        """
        for each in self.tiers:
            if each.id == name:
                return each
        raise KeyError(name)

    @property
    def files(self) -> Iterator[str]:
        """The names of the files that the section names."""
        named = [each.ca for each in self.tiers]
        named += [self.estimator.file, self.speculation.thresholds]
        return (each for each in named if each is not None)

    @property
    def history(self) -> Mapping[RoutingClass, History]:
        """In which form turns of a class may be sent after another was kept local.

        Without ``RESTRICTED``, nothing of such a conversation is sent.
        """
        return {
            each: History(entry.history)
            for each, entry in self.classes.entries()
            if entry.history is not None
        }

    @property
    def consent(self) -> frozenset[RoutingClass]:
        """The classes of which nothing is sent before a person has agreed."""
        return frozenset(
            each
            for each, entry in self.classes.entries()
            if isinstance(entry, ClassEntry) and entry.consent is not None
        )

    def asks_first(self, routing_class: RoutingClass) -> bool:
        """Return whether a person must agree before a query of a class is sent out."""
        # For a class that is named, and for every more private one: a declaration, or
        # cutting a conversation down to its question, raises the class, and would
        # otherwise let a query that needs consent be sent without it.
        return any(routing_class.privacy >= each.privacy for each in self.consent)

    @property
    def ttl_s(self) -> Mapping[RoutingClass, int]:
        """Return the longest wait of a question of a class; 0: none."""
        return TTL_S | {
            each: entry.queue.ttl_s
            for each, entry in self.classes.entries()
            if entry.queue is not None
        }

    @property
    def drafted(self) -> frozenset[RoutingClass]:
        """The classes of which there may be drafts, none more private than internal."""
        entries = {
            RoutingClass.PUBLIC: self.classes.public,
            RoutingClass.INTERNAL: self.classes.internal,
        }
        return frozenset(
            each
            for each, entry in entries.items()
            if entry is None or entry.speculation != "deny"
        )

    def tiering(self, own: frozenset[str], claimed: frozenset[str]) -> Tiering:
        """Return the mask.

        Args:
            own: the classes of the policy's own detectors.
            claimed: those for which an enclave must show more than for others.
        """
        return Tiering(
            tiers=tuple(
                Tier(id=each.id, kind=each.kind, trusted=each.trusts(own))
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
