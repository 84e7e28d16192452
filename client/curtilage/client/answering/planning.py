"""The plan of a query: in which order the permitted tiers are asked, and how long."""

from dataclasses import replace
from time import monotonic
from typing import TYPE_CHECKING, Final

from curtilage.client.answering.attempt import Case
from curtilage.client.answering.course import Course, Shown
from curtilage.client.answering.observer import Observer
from curtilage.client.chat.options import Require, RoutingOptions
from curtilage.client.errors import (
    AnswererError,
    EnclaveError,
    NotRoutedError,
    TooLongError,
    UsageError,
)
from curtilage.client.remote.keys import RandomBelow
from curtilage.client.route import AskEnclave, AskLocal, Plan
from curtilage.client.routing.router import REMEDIES, Routed, Router, required_unmet
from curtilage.client.routing.utility import SPECULATIVE, Refusal
from curtilage.policy.decision.tiers import Denial, RoutingClass, Tier
from curtilage.policy.document.routing import Routing

if TYPE_CHECKING:
    from curtilage.client.routing.speculate import Speculation

_TRIED_ANYWAY: Final = frozenset(
    {
        Refusal.CONTEXT_TOO_LONG,
        Refusal.REQUIRED_UNMET,
        Refusal.HOME_UNAVAILABLE,
        Refusal.UNAVAILABLE,
    }
)
_LIMITS: Final = frozenset({Denial.COST, Denial.SLO})
"""Limits of the request, which a tier exceeds although it can answer."""
_JITTER: Final = 1000


class Planner:
    """Plans the attempts at the permitted tiers; it can add none, and reads no text."""

    def __init__(
        self,
        router: Router | None,
        observer: Observer,
        rules: Routing | None,
        below: RandomBelow,
    ) -> None:
        self._router = router
        self._observer = observer
        self._rules = rules
        self._below = below

    def asks_about(self, routing_class: RoutingClass) -> bool:
        """Return whether a query of a class is sent only with consent."""
        return self._rules is not None and self._rules.asks_first(routing_class)

    def refuse_limits(self, asked: RoutingOptions) -> None:
        """Refuse limits that only a router could keep: it knows prices and times.

        Raises:
            UsageError: there is such a limit, and no router that chooses.
        """
        if self._router is not None and not self._router.plan.observe:
            return
        for name, said in (
            ("max_cost", asked.max_cost_microusd is not None),
            ("slo_hard", asked.slo_hard),
        ):
            if said:
                raise UsageError(
                    f"{name} needs a policy that chooses (routing, not observing)",
                    param=name,
                )

    def usual(self, case: Case) -> Plan:
        """Return the plan if the policy chooses nothing."""
        self._observer.denied(case.ways.permitted.denied)
        # The request's options restrict it, too.
        tiers, require = case.ways.usual(case.options), case.options.require
        if tiers or not case.ways.permitted.tiers:
            return Plan(tiers=tiers)
        none, said = Refusal.HOME_UNAVAILABLE, REMEDIES[Refusal.HOME_UNAVAILABLE]
        if require is not None:
            none = Refusal.REQUIRED_UNMET
            said = required_unmet(
                f"the policy permits no tier of the kind {require.value!r}"
            )
        return Plan(tiers=(), refusal=NotRoutedError(none.value, said))

    def plan(
        self, case: Case, routed: Routed, conversation: bytes | None, *, seconds: float
    ) -> Plan:
        """Return the order in which the permitted tiers are asked.

        Args:
            case: what was decided.
            routed: what the router chose.
            conversation: its key; None: there was no choice.
            seconds: how long the choice took.
        """
        router = self._router
        if router is None:
            return self.usual(case)
        # Counted before anything is asked: if it were counted after an answer, an
        # outage would stop the retries that are for it.
        router.retries.earn()
        tiers = routed.choice.order
        if router.plan.observe:
            return replace(
                self.usual(case),
                estimate=routed.estimate,
                would_choose=tiers[0].id if tiers else None,
                conversation=conversation,
            )
        self._observer.chose(routed, seconds)
        refusal = routed.choice.refusal
        if refusal in _TRIED_ANYWAY:
            # The local model itself reports what it lacks, and what to do. It counts
            # tokens exactly, and shortens a long text where the policy lets it.
            denied = dict(routed.choice.denied)
            # Only tiers of the mask, so that trying nevertheless sends nothing out.
            tiers = tuple(
                each
                for each in case.ways.permitted.tiers
                if isinstance(case.ways.by_tier[each.id], AskLocal)
                and case.options.require in {None, Require.LOCAL}
                and denied.get(each.id) not in _LIMITS
            )
        too_long = refusal is Refusal.CONTEXT_TOO_LONG
        refused = TooLongError if too_long else NotRoutedError
        draft = None
        if conversation is not None:
            draft = self._draft(router, case, routed, conversation)
        return Plan(
            tiers=tiers,
            draft=draft,
            conversation=conversation,
            why=routed.choice.reason.value,
            fallback=routed.fallback,
            estimate=routed.estimate,
            refusal=(
                None
                if refusal is None
                else refused(refusal.value, router.remedy(routed, case.options.require))
            ),
        )

    def _draft(
        self, router: Router, case: Case, routed: Routed, conversation: bytes
    ) -> "Speculation | None":
        """Return whether the local model writes a draft first."""
        for way in case.ways.by_tier.values():
            # Only a query that may be sent whole, as it is, has drafts.
            if (
                isinstance(way, AskEnclave)
                and not (way.rewritten or way.narrowed)
                and self._lightly(way.allowed.routing_class)
            ):
                return router.speculation(
                    way.allowed, routed, case.options, conversation=conversation
                )
        return None

    def late_after_s(self, course: Course, tier: Tier) -> float | None:
        """Return when a tier is late, so that a second one is asked; None: never."""
        router, estimate = self._router, course.plan.estimate
        if router is None or estimate is None or router.plan.observe or not course.left:
            return None
        # Two answers may cost more than the limit, which holds for their sum.
        if course.case.options.max_cost_microusd is not None:
            return None
        # For more private classes, a second request would reveal too much; and consent
        # is not asked for on suspicion.
        if not self._lightly(course.case.ways.permitted.routing_class):
            return None
        # Only a query that may be hedged earns. If all did, hedges could exceed their
        # share (one in twenty) of the queries that they are for.
        router.hedges.earn()
        view = router.views()[tier.id]
        return view.ttft_ms(estimate.prompt_tokens, slow=True) / 1000

    def _lightly(self, routing_class: RoutingClass) -> bool:
        """Return whether a query of a class may be sent to a second tier."""
        return routing_class in SPECULATIVE and not self.asks_about(routing_class)

    def wait_s(self, course: Course, failed: AnswererError) -> float | None:
        """Return how long to wait before a tier is asked again; None: another is.

        Once for each query, if the tier wants to be asked later and there is time.
        """
        router, wait_s = self._router, failed.retry_after_s
        if router is None or router.plan.observe or wait_s is None:
            return None
        # Consent is for one attempt, and is not asked for again.
        agreed = isinstance(failed, EnclaveError) and self.asks_about(
            course.case.ways.permitted.routing_class
        )
        alone = not course.drafts and course.shown is Shown.NOTHING
        if course.waited or not alone or agreed:
            return None
        most_s, total_ms = (
            router.plan.resilience.retry_after_max_s,
            course.case.options.total_ms or router.plan.budgets.total_ms,
        )
        # Clients that were refused at the same time must not return at the same time.
        longer_s = wait_s * (1 + self._below(_JITTER) / _JITTER / 2)
        # The budget comes last: a wait that is refused for another reason must not use
        # up a part of it.
        late = monotonic() + longer_s > course.began_s + total_ms / 1000
        if late or not 0 < most_s >= wait_s or not router.retries.take():
            return None
        return longer_s
