"""Tiers: the places of a policy that can answer, and which of them a decision permits.

A route says how far a query may go; a tier is a place that can answer it. The mask made
here precedes any score: later choices can only narrow it (``Permitted.without``), and
a listed tier also needs a permission from ``decide``.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum, unique
from typing import Final

from curtilage.policy.decision.classes import CLASSES
from curtilage.policy.decision.routes import Route


@unique
class TierKind(StrEnum):
    """Kind of a tier: the local model, an on-premises server or an enclave."""

    IN_PROCESS = "in_process"
    ON_PREMISES = "on_premises"
    ATTESTED = "attested"

    @property
    def outside(self) -> bool:
        """Whether it is away from the organisation; a kind not listed here is."""
        return self not in {TierKind.IN_PROCESS, TierKind.ON_PREMISES}


@unique
class RoutingClass(StrEnum):
    """Sensitivity of a query; an earlier member is more private than a later one.

    ``RESTRICTED``: it is kept local, or sent to an on-premises server that is trusted
    with it. ``CONFIDENTIAL``: it may leave without its names, or to an enclave with
    stronger evidence. ``INTERNAL``: it may leave, with care. ``PUBLIC``: it may leave.
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
    """Why a tier may not or cannot answer; a closed set, safe to report.

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
        trusted: for an on-premises tier, the classes that it may receive although
            they must not leave; ``uncertain.*`` included.
    """

    id: str
    kind: TierKind
    trusted: frozenset[str] = field(default=frozenset(), repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """Requirements of some data classes on a tier.

    Attributes:
        classes: the demand applies when one of them is found.
        only: the tiers that may answer, by id; None: any.
        never: the tiers that may not.
    """

    classes: frozenset[str] = field(repr=False)
    only: frozenset[str] | None = None
    never: frozenset[str] = frozenset()

    def denies(self, tier: Tier) -> bool:
        """Return whether it denies a tier."""
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
    """A policy's rules about tiers.

    Attributes:
        tiers: the most private first; ids are unique.
        classes: the tiers that may answer queries of a routing class, by id; any
            tier for a class that is left out.
        demands: what data classes require, in the policy's order.
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
        """Refuse an id that two tiers share."""
        # The loader checks it too, with a line number. Permissions name tiers by id: an
        # on-premises server and an enclave with the same id could be confused.
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
            pinned: an earlier query of its conversation was kept local.
            floor: what its sender declared; can only raise the class.
        """
        own = _of_route(route, claimed=bool(self.claimed & found))
        routing_class = max(own, floor, key=lambda each: each.privacy)
        # What an on-premises server would receive if it were asked. The history of a
        # pinned conversation may contain anything, and a sender who asks for care may
        # know of something that was not found. So only a server that may receive
        # everything may receive these.
        unknown = pinned or floor is RoutingClass.RESTRICTED
        disclosed = self.known | found if unknown else found
        # The first reason that applies shows the policy's author why a tier is denied.
        tiers: list[Tier] = []
        denied: list[tuple[str, Denial]] = []
        for tier in self.tiers:
            reasons = self._denials(tier, route, routing_class, found, disclosed)
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
        disclosed: frozenset[str],
    ) -> Iterator[Denial]:
        leaves = route is Route.ENCLAVE
        sealed = leaves and tier.kind is TierKind.ATTESTED
        # A blocked query is sent to no tier, and no query to a kind that is not named
        # here. A query without its names is another text and has its own decision.
        if route is Route.BLOCK or (tier.kind.outside and not sealed):
            yield Denial.ROUTE
        # Even where nothing was found: a default of ``local`` keeps such a query too,
        # so it is not sent to a server that is trusted with nothing.
        trusted = bool(tier.trusted) and disclosed <= tier.trusted
        if tier.kind is not TierKind.IN_PROCESS and not leaves and not trusted:
            yield Denial.NOT_TRUSTED
        if not self._lists(routing_class, tier):
            yield Denial.CLASS
        for demand in self.demands:
            if demand.classes & found and demand.denies(tier):
                yield Denial.DEMAND

    def _lists(self, routing_class: RoutingClass, tier: Tier) -> bool:
        # An enclave must be listed for every less private class as well. Otherwise an
        # additional finding or declaration, which raises the class, would let a query
        # leave that was kept local without it.
        asked = [
            each
            for each in RoutingClass
            if each is routing_class
            or (tier.kind.outside and each.privacy < routing_class.privacy)
        ]
        return all(tier.id in self.classes.get(each, {tier.id}) for each in asked)


def _of_route(route: Route, *, claimed: bool) -> RoutingClass:
    if route in {Route.BLOCK, Route.LOCAL}:
        return RoutingClass.RESTRICTED
    if route is Route.DEIDENTIFY or claimed:
        return RoutingClass.CONFIDENTIAL
    return RoutingClass.PUBLIC
