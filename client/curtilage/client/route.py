"""The next step of a query, as pure functions of the decision.

Regulated data go to the local model, or to an on-premises server that the policy trusts
with them. The rest may be sent to an enclave, without names if the policy requires it.
``ways`` returns the permitted ways: each contains the permission that its tier needs,
and later selection can omit some but add none.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, assert_never

from curtilage.client.chat.answer import NotPossible, Obstacle, Rung
from curtilage.client.chat.options import Mode, RoutingOptions
from curtilage.client.chat.query import Query
from curtilage.client.errors import FailureReason, NotRoutedError
from curtilage.client.pseudonyms.deidentified import Deidentified
from curtilage.client.routing.estimate import Estimate
from curtilage.policy.decision.decide import (
    Allowed,
    AllowedOnPremises,
    Decision,
    Inspection,
)
from curtilage.policy.decision.routes import Route
from curtilage.policy.decision.tiers import Permitted, Tier, Tiering, TierKind

if TYPE_CHECKING:  # optional steps, which are not imported until a query needs them
    from curtilage.client.routing.speculate import Speculation


@dataclass(frozen=True, slots=True)
class Narrowed:
    """A part of a conversation of which another part had to be kept local.

    Attributes:
        query: the query to be sent, which is a query of its own.
        rung: how much of the conversation it includes.
        inspection: its findings.
        decision: about it alone.
    """

    query: Query
    rung: Rung
    inspection: Inspection
    decision: Decision


@dataclass(frozen=True, slots=True)
class AskEnclave:
    """Ask the enclave; contains the proof that the query may be sent.

    Attributes:
        allowed: the proof.
        rewritten: the query to be sent, if it is not the original.
        classes: the classes found in it.
        narrowed: the part of the conversation to be sent, if not the whole; local
            and on-premises tiers get the whole.
    """

    allowed: Allowed
    rewritten: Deidentified | None = None
    classes: tuple[str, ...] = ()
    narrowed: Narrowed | None = None

    @property
    def boundary(self) -> str:
        """The part of the conversation that is sent, if not the whole."""
        return "" if self.narrowed is None else self.narrowed.rung.value

    @property
    def instead(self) -> Query | None:
        """The query to be sent in place of the original; None: that is sent itself."""
        if self.narrowed is not None:
            return self.narrowed.query
        return None if self.rewritten is None else self.rewritten.query


@dataclass(frozen=True, slots=True)
class AskOnPremises:
    """Ask an on-premises server; contains the proof that it may see the query.

    Attributes:
        allowed: the proof.
    """

    allowed: AllowedOnPremises


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Replace the findings, inspect the result and decide again."""


@dataclass(frozen=True, slots=True)
class AskLocal:
    """Ask the local model.

    Attributes:
        obstacle: why the findings could not be replaced, if that was tried.
        kept: why no part of a conversation could be sent, if that was tried.
    """

    obstacle: Obstacle | None = None
    kept: NotPossible | None = None

    @property
    def boundary(self) -> str:
        """Why the conversation is kept local, if a part of it might be sent."""
        return "" if self.kept is None else self.kept.value


@dataclass(frozen=True, slots=True)
class Refuse:
    """Do not answer."""


Step = AskEnclave | Rewrite | AskLocal | Refuse
Way = AskEnclave | AskOnPremises | AskLocal


def first_step(decision: Decision) -> Step:
    """Return the step that the decision requires.

    Without an ``Allowed`` there is no way to the enclave, whatever the route is
    called.
    """
    if decision.route is Route.BLOCK:
        return Refuse()
    if decision.route is Route.DEIDENTIFY:
        return Rewrite()
    # Both: the route is a name, the ``Allowed`` is what a permit is minted from.
    if decision.route is Route.ENCLAVE and decision.allowed is not None:
        return AskEnclave(decision.allowed, classes=decision.classes)
    return AskLocal()


def after_rewriting(rewritten: Deidentified, decision: Decision) -> Step:
    """Return the step after the rewritten query was inspected and decided.

    Args:
        rewritten: the query with its findings replaced.
        decision: about its payload; anything but ``enclave`` keeps the query local,
            including a second ``deidentify``.
    """
    if decision.route is Route.ENCLAVE and decision.allowed is not None:
        return AskEnclave(decision.allowed, rewritten, decision.classes)
    return AskLocal(Obstacle.STILL_FOUND)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The order in which tiers are asked, each if the one before failed.

    Attributes:
        tiers: the tiers, the preferred one first.
        why: a member of ``routing.utility.Reason``; empty without a choice.
        fallback: why a tier that might be first is not asked.
        estimate: the estimates for the query, if a choice was made.
        would_choose: while observing, the tier that would have been chosen.
        refusal: why there is none.
        draft: whether the local model writes a draft first, which is judged.
        conversation: the key of the conversation; None: no choice was made.
    """

    tiers: tuple[Tier, ...]
    why: str = ""
    fallback: FailureReason | None = None
    estimate: Estimate | None = None
    would_choose: str | None = None
    refusal: NotRoutedError | None = None
    draft: "Speculation | None" = None
    conversation: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ways:
    """All permitted ways to answer one query.

    Attributes:
        permitted: the tiers, the most private first.
        by_tier: the way of each, by its id.
        conversation: the key of the conversation, if names were replaced.
    """

    permitted: Permitted
    by_tier: Mapping[str, Way] = field(repr=False)
    conversation: bytes | None = field(default=None, repr=False)

    @property
    def here(self) -> bool | None:
        """The kind of content in a local answer to this query.

        True: content that must be kept local. False: content that may be sent as it is.
        None: neither: it may only be sent without its names, and the answer may contain
        them.
        """
        for way in self.by_tier.values():
            if isinstance(way, AskEnclave) and way.narrowed is None:
                return False if way.rewritten is None else None
        return True

    def usual(self, asked: RoutingOptions) -> tuple[Tier, ...]:
        """Return the order for a policy without routing rules.

        A query that may be sent is sent; if the enclave cannot be asked or trusted, it
        is answered locally. A query that must be kept local has one way.

        Args:
            asked: the request's options; ``require`` and ``mode: home`` also apply.
        """
        # The order is by privacy, enclaves last: here they come first.
        return tuple(
            sorted(
                # A request for a local answer, or for one kind of tier, is honoured
                # whatever the policy's routing rules are.
                (
                    tier
                    for tier in self.permitted.tiers
                    if (asked.require is None or tier.kind is asked.require.kind)
                    and not (asked.mode is Mode.HOME and tier.kind.outside)
                ),
                key=lambda tier: not tier.kind.outside,
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
        decision: about the original query.
        step: the decision's step, after rewriting if that was tried; the only
            possible way to an enclave.
        conversation: the key of the conversation, if names were replaced.
    """
    found: dict[str, Way] = {}
    # What could receive the original's classes; nothing else may get its pseudonyms.
    asked = tiering.permitted(
        Route.ENCLAVE, frozenset((*decision.classes, *decision.uncertain))
    )
    for tier in tiering.tiers:
        mask = asked if tier.kind.outside else decision.permitted
        way = _way(tier, decision, step) if tier in mask.tiers else None
        if way is not None:
            found[tier.id] = way
    routing_class = decision.permitted.routing_class
    if isinstance(step, AskEnclave):
        own = step.allowed.routing_class
        # The class of the part that is sent, which differs from that of the whole.
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


def _way(tier: Tier, decision: Decision, step: Step) -> Way | None:
    """Return the way of a permitted tier, if there is the permission that it needs."""
    match tier.kind:
        case TierKind.IN_PROCESS:
            return step if isinstance(step, AskLocal) else AskLocal()
        case TierKind.ON_PREMISES:
            allowed = decision.on_premises
            if allowed is not None and tier.id in allowed.tiers:
                return AskOnPremises(allowed)
        case TierKind.ATTESTED:
            if isinstance(step, AskEnclave) and tier.id in step.allowed.tiers:
                return step
        case _:
            assert_never(tier.kind)
    return None
