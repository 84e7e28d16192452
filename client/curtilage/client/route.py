"""Where a query goes next: the cascade as pure functions of what happened.

Regulated goes to the local model, or to a server in the house that the policy trusts
with it. The rest may go to an enclave, without the names where the policy asks for
that. ``ways`` is the mask: each way holds the permission that its door asks for, and
whoever chooses among them later can leave some out and add none.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from curtilage.client.answer import Obstacle
from curtilage.client.boundary.ladder import NotPossible, Rung
from curtilage.client.errors import FailureReason, NotRoutedError
from curtilage.client.options import Mode, RoutingOptions
from curtilage.client.pseudonyms.deidentified import Deidentified
from curtilage.client.query import Query
from curtilage.client.routing.estimate import Estimate
from curtilage.client.routing.speculate import Speculation
from curtilage.policy.decision.decide import (
    Allowed,
    AllowedInHouse,
    Decision,
    Inspection,
)
from curtilage.policy.decision.routes import Route
from curtilage.policy.decision.tiers import Permitted, Tier, Tiering, TierKind


@dataclass(frozen=True, slots=True)
class Narrowed:
    """A part of a conversation of which another part had to stay.

    Attributes:
        query: what would be sent: a query of its own.
        rung: how much of the conversation it takes along.
        inspection: what was found in it.
        decision: about it alone.
    """

    query: Query
    rung: Rung
    inspection: Inspection
    decision: Decision


@dataclass(frozen=True, slots=True)
class AskEnclave:
    """Ask the enclave; carries the proof that a query may leave.

    Attributes:
        allowed: the proof.
        rewritten: the query that it is about, if it is not the one asked.
        classes: what was found in what leaves.
        narrowed: the part of the conversation that it is about, if it is not about
            the whole; who answers at home is told the whole.
    """

    allowed: Allowed
    rewritten: Deidentified | None = None
    classes: tuple[str, ...] = ()
    narrowed: Narrowed | None = None

    @property
    def boundary(self) -> str:
        """How much of the conversation leaves, where not the whole does."""
        return "" if self.narrowed is None else self.narrowed.rung.value

    def sent_of(self, query: Query) -> Query:
        """Return what would be sent of the query that was asked."""
        if self.narrowed is not None:
            return self.narrowed.query
        return query if self.rewritten is None else self.rewritten.query


@dataclass(frozen=True, slots=True)
class AskHouse:
    """Ask a server in the house; carries the proof that it may be told.

    Attributes:
        allowed: the proof.
    """

    allowed: AllowedInHouse


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Replace what was found, inspect the result and decide again."""


@dataclass(frozen=True, slots=True)
class AskLocal:
    """Ask the local model.

    Attributes:
        obstacle: why what was found could not be replaced, if that was tried.
        kept: why no part of a conversation could leave, if that was tried.
    """

    obstacle: Obstacle | None = None
    kept: NotPossible | None = None

    @property
    def boundary(self) -> str:
        """Why the conversation stays, where a part of it might leave."""
        return "" if self.kept is None else self.kept.value


@dataclass(frozen=True, slots=True)
class Refuse:
    """Answer not at all."""


Step = AskEnclave | Rewrite | AskLocal | Refuse
Way = AskEnclave | AskHouse | AskLocal


def first_step(decision: Decision) -> Step:
    """Return what the decision asks for.

    Without an ``Allowed`` there is no way to the enclave, whatever the route is
    called.
    """
    if decision.route is Route.BLOCK:
        return Refuse()
    if decision.route is Route.DEIDENTIFY:
        return Rewrite()
    # Both: the route is a word, the ``Allowed`` is what a permit is minted from.
    if decision.route is Route.ENCLAVE and decision.allowed is not None:
        return AskEnclave(decision.allowed, classes=decision.classes)
    return AskLocal()


def after_rewriting(rewritten: Deidentified, decision: Decision) -> Step:
    """Return what follows when the rewritten query was inspected and decided.

    Args:
        rewritten: the query without what was found in it.
        decision: about its own payload; anything but ``enclave`` keeps the
            query home, also a second ``deidentify``.
    """
    if decision.route is Route.ENCLAVE and decision.allowed is not None:
        return AskEnclave(decision.allowed, rewritten, decision.classes)
    return AskLocal(Obstacle.STILL_FOUND)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """In which order those who may answer are asked, each if the one before failed.

    Attributes:
        tiers: the one that was chosen first.
        why: a member of ``routing.utility.Reason``; empty without a choice.
        fallback: why a tier that might have come first is not asked.
        estimate: what was expected of the query, where somebody chose.
        would_choose: while observing, the tier that would have been chosen.
        refusal: why there is none.
        draft: the local model writes first, and what it writes is judged.
        conversation: the key of the conversation; None: nothing was chosen.
    """

    tiers: tuple[Tier, ...]
    why: str = ""
    fallback: FailureReason | None = None
    estimate: Estimate | None = None
    would_choose: str | None = None
    refusal: NotRoutedError | None = None
    draft: Speculation | None = None
    conversation: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ways:
    """Every way in which one query may be answered.

    Attributes:
        permitted: the tiers, the most private first.
        by_tier: the way of each, by its id.
        conversation: the key of the conversation, where something was replaced.
    """

    permitted: Permitted
    by_tier: Mapping[str, Way] = field(repr=False)
    conversation: bytes | None = field(default=None, repr=False)

    @property
    def here(self) -> bool | None:
        """Of what an answer is made that was given at home.

        True: of what has to stay. False: of what may leave as it is. None: of neither,
        since it may leave without its names only, and such an answer may say them.
        """
        for way in self.by_tier.values():
            if isinstance(way, AskEnclave) and way.narrowed is None:
                return False if way.rewritten is None else None
        return True

    def usual(self, asked: RoutingOptions) -> tuple[Tier, ...]:
        """Return the order of a policy that says nothing of routing.

        What may leave leaves; when the enclave cannot be asked or believed, it is
        answered at home. What must stay has one way.

        Args:
            asked: what was asked for; ``require`` and ``mode: home`` hold here, too.
        """
        # The most private first, so the enclaves are last: here they come first.
        return tuple(
            sorted(
                # Who wants it at home, or there and nowhere else, was promised that by
                # the request, whatever the policy says of routing.
                (
                    tier
                    for tier in self.permitted.tiers
                    if (asked.require is None or tier.kind is asked.require.kind)
                    and not (asked.mode is Mode.HOME and tier.kind is TierKind.ATTESTED)
                ),
                key=lambda tier: tier.kind is not TierKind.ATTESTED,
            )
        )


def ways(
    tiering: Tiering,
    decision: Decision,
    step: Step,
    *,
    conversation: bytes | None = None,
) -> Ways:
    """Return every way that a decision permits.

    Args:
        tiering: the policy's tiers.
        decision: about the query as it was asked.
        step: what the decision asks for, after rewriting where that was tried; the way
            to an enclave is this one or there is none.
        conversation: the key of the conversation, where something was replaced.
    """
    found: dict[str, Way] = {}
    # As it was asked, too: a tier that may not see data may not see their pseudonyms.
    asked = tiering.permitted(
        Route.ENCLAVE, frozenset((*decision.classes, *decision.uncertain))
    )
    for tier in tiering.tiers:
        if tier.kind is TierKind.ATTESTED:
            if (
                isinstance(step, AskEnclave)
                and tier.id in step.allowed.tiers
                and tier in asked.tiers
            ):
                found[tier.id] = step
        elif tier in decision.permitted.tiers:
            in_house = decision.in_house
            if tier.kind is TierKind.IN_PROCESS:
                found[tier.id] = step if isinstance(step, AskLocal) else AskLocal()
            elif in_house is not None and tier.id in in_house.tiers:
                found[tier.id] = AskHouse(in_house)
    routing_class = decision.permitted.routing_class
    if isinstance(step, AskEnclave):
        own = step.allowed.routing_class
        # A part has the class of what leaves; the whole does not.
        routing_class = (
            max(routing_class, own, key=lambda each: each.privacy)
            if step.narrowed is None
            else own
        )
    return Ways(
        permitted=Permitted(
            routing_class=routing_class,
            tiers=tuple(each for each in tiering.tiers if each.id in found),
            denied=tuple(
                each for each in decision.permitted.denied if each[0] not in found
            ),
        ),
        by_tier=found,
        conversation=conversation,
    )
