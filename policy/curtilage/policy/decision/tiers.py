"""Where an answer may be made: the tiers of a policy, and which one decision permits.

A route says how far a query may go; a tier is a place that can answer it. The mask
that is made here comes before any score: whoever chooses later can only narrow it
(``Permitted.without``), and what it lists needs a permission of ``decide`` besides.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum, unique
from typing import Final

from curtilage.policy.decision.classes import CLASSES
from curtilage.policy.decision.routes import Route


@unique
class TierKind(StrEnum):
    """What a tier is.

    ``IN_PROCESS``: the local model, in this process. ``HOUSE``: a server in the
    organisation's own network, which the policy trusts. ``ATTESTED``: an enclave.
    """

    IN_PROCESS = "in_process"
    HOUSE = "house"
    ATTESTED = "attested"


@unique
class RoutingClass(StrEnum):
    """How much a query may risk; an earlier member is more private than a later one.

    ``RESTRICTED``: it must stay in the house. ``CONFIDENTIAL``: it leaves without its
    names only, or to an enclave that shows more than others. ``INTERNAL``: it may
    leave, and its sender asked for care. ``PUBLIC``: it may leave.
    """

    RESTRICTED = "restricted"
    CONFIDENTIAL = "confidential"
    INTERNAL = "internal"
    PUBLIC = "public"

    @property
    def privacy(self) -> int:
        """Return a rank: a larger number is more private."""
        return _PRIVACY[self]


_PRIVACY: Final = {each: -index for index, each in enumerate(RoutingClass)}


@unique
class Denial(StrEnum):
    """Why a tier may not answer, or cannot; a closed set, safe to tell.

    The first four are the policy's; the rest narrow what it permits.
    """

    ROUTE = "route"
    NOT_TRUSTED = "not_trusted"
    CLASS = "class"
    DEMAND = "demand"
    MODE = "mode"
    REQUIRED = "required"
    CONTEXT = "context"
    SLO = "slo"
    COST = "cost"
    MISSING = "missing"
    UNAVAILABLE = "unavailable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """One place that can answer.

    Attributes:
        id: its name in the policy.
        kind: what it is.
        trusted: of a tier in the house, the classes that it may be told although
            they must not leave; the ``uncertain.*`` among them, too.
    """

    id: str
    kind: TierKind
    trusted: frozenset[str] = field(default=frozenset(), repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What some classes of data ask of a tier.

    Attributes:
        classes: whose presence makes it hold.
        only: the tiers that may answer, by id; None: any.
        never: the tiers that may not.
    """

    classes: frozenset[str] = field(repr=False)
    only: frozenset[str] | None = None
    never: frozenset[str] = frozenset()

    def denies(self, tier: Tier) -> bool:
        """Tell whether it denies a tier."""
        return tier.id in self.never or (
            self.only is not None and tier.id not in self.only
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Permitted:
    """The tiers that may answer one query, and why the others may not.

    Attributes:
        routing_class: how much the query may risk.
        tiers: the most private first.
        denied: each other tier's id and the reason, in the policy's order.
    """

    routing_class: RoutingClass
    tiers: tuple[Tier, ...]
    denied: tuple[tuple[str, Denial], ...] = ()

    def without(self, tier: Tier, reason: Denial) -> "Permitted":
        """Return what is left without a tier; nothing can be added."""
        if tier.id not in {each.id for each in self.tiers}:
            return self
        return Permitted(
            routing_class=self.routing_class,
            tiers=tuple(each for each in self.tiers if each.id != tier.id),
            denied=(*self.denied, (tier.id, reason)),
        )

    def of_kind(self, kind: TierKind) -> frozenset[str]:
        """Return the ids of the tiers of a kind."""
        return frozenset(each.id for each in self.tiers if each.kind is kind)


LOCAL_TIER: Final = Tier(id="local", kind=TierKind.IN_PROCESS)
ENCLAVE_TIER: Final = Tier(id="enclave", kind=TierKind.ATTESTED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiering:
    """What a policy says of tiers.

    Attributes:
        tiers: the most private first; ids are unique.
        classes: the tiers that may answer queries of a routing class, by id; of a
            class that is left out, any.
        demands: what classes of data ask for, in the policy's order.
        claimed: classes for which an enclave must show more than for others.
        known: every class that can be found.

    Raises:
        ValueError: two tiers have one id.
    """

    tiers: tuple[Tier, ...] = (LOCAL_TIER, ENCLAVE_TIER)
    classes: Mapping[RoutingClass, frozenset[str]] = field(
        default_factory=dict[RoutingClass, frozenset[str]]
    )
    demands: tuple[Demand, ...] = ()
    claimed: frozenset[str] = field(default=frozenset(), repr=False)
    known: frozenset[str] = field(default=CLASSES, repr=False)

    def __post_init__(self) -> None:
        """Refuse ids that stand for two tiers."""
        # The loader says so too, with a line number. Permissions name tiers by id: a
        # server in the house and an enclave of one name could each pass for the other.
        if len({each.id for each in self.tiers}) < len(self.tiers):
            raise ValueError("two tiers have the same id")

    def permitted(
        self,
        route: Route,
        found: frozenset[str],
        *,
        pinned: bool = False,
        floor: RoutingClass = RoutingClass.PUBLIC,
    ) -> Permitted:
        """Return the tiers that may answer a query.

        Args:
            route: what the rules permit.
            found: every class that was found, ``uncertain.*`` too.
            pinned: an earlier query of its conversation had to stay.
            floor: what its sender declared; raises its class and lowers none.
        """
        own = _of_route(route, claimed=bool(self.claimed & found))
        routing_class = max(own, floor, key=lambda each: each.privacy)
        # What a server in the house would be told, if it were asked. Of a conversation
        # that an earlier query pinned, anything may be in the history; and who asks for
        # care himself knows of something that was not found. So only one that may be
        # told anything may be told these.
        unknown = pinned or floor is RoutingClass.RESTRICTED
        told = self.known | found if unknown else found
        # Sorted out one by one, with the first reason that holds: the policy's author
        # reads of each tier why it may not answer.
        tiers: list[Tier] = []
        denied: list[tuple[str, Denial]] = []
        for tier in self.tiers:
            reasons = self._denials(tier, route, routing_class, found, told)
            reason = next(reasons, None)
            if reason is None:
                tiers.append(tier)
            else:
                denied.append((tier.id, reason))
        return Permitted(
            routing_class=routing_class, tiers=tuple(tiers), denied=tuple(denied)
        )

    def _denials(
        self,
        tier: Tier,
        route: Route,
        routing_class: RoutingClass,
        found: frozenset[str],
        told: frozenset[str],
    ) -> Iterator[Denial]:
        leaves = route is Route.ENCLAVE
        # Of a blocked query nobody is asked. What is to leave without its names is
        # another text, and has a decision of its own.
        if route is Route.BLOCK or (tier.kind is TierKind.ATTESTED and not leaves):
            yield Denial.ROUTE
        # Even where nothing was found: a default of ``local`` keeps such a query too,
        # and a server that is trusted with nothing is not told it.
        trusted = bool(tier.trusted) and told <= tier.trusted
        if tier.kind is TierKind.HOUSE and not leaves and not trusted:
            yield Denial.NOT_TRUSTED
        if not self._lists(routing_class, tier):
            yield Denial.CLASS
        for demand in self.demands:
            if demand.classes & found and demand.denies(tier):
                yield Denial.DEMAND

    def _lists(self, routing_class: RoutingClass, tier: Tier) -> bool:
        # An enclave must be listed for every less private class as well: by a finding
        # or a declaration more, which only raise the class, a query would leave that
        # stayed without it.
        asked = [
            each
            for each in RoutingClass
            if each is routing_class
            or (tier.kind is TierKind.ATTESTED and each.privacy < routing_class.privacy)
        ]
        return all(tier.id in self.classes.get(each, {tier.id}) for each in asked)


def _of_route(route: Route, *, claimed: bool) -> RoutingClass:
    if route in {Route.BLOCK, Route.LOCAL}:
        return RoutingClass.RESTRICTED
    if route is Route.DEIDENTIFY or claimed:
        return RoutingClass.CONFIDENTIAL
    return RoutingClass.PUBLIC
