"""Counts of what becomes of queries; no word and no exact length of any."""

from collections.abc import Iterable
from datetime import datetime

from curtilage.client import telemetry
from curtilage.client.chat.answer import NotPossible, Rung
from curtilage.client.errors import (
    AnswererError,
    BlockedError,
    ClientError,
    FailureReason,
    IncompleteAnswerError,
    NotRoutedError,
)
from curtilage.client.failure_texts import FAILURE_TEXTS
from curtilage.client.health import Reason, reason_of
from curtilage.client.local.reasons import LocalFailure
from curtilage.client.route import AskOnPremises, Ways
from curtilage.client.routing.router import Routed, Router
from curtilage.client.routing.trace import TraceLine, minute_of
from curtilage.client.routing.tracing import Gradable
from curtilage.client.routing.utility import Refusal
from curtilage.client.telemetry import Opinion, Twice
from curtilage.policy.decision.tiers import Denial, Tier

_OTHER = "other"
# A closed set of labels. With an error's own text as a label, part of a query could
# reach the operator's collector, and every new text would be a new time series.
_CODES = telemetry.names(
    (
        *("blocked", "cut", "consent_required", "queued", "queue_full", _OTHER),
        *(each.value for each in Refusal),
        *FAILURE_TEXTS,
    )
)


class Observer:
    """Counts what becomes of one client's queries.

    Attributes:
        tiers: of the policy, by their id.
        names: of the tiers, for telemetry.
        failing: the failure of each tier that failed last, by its id.
        gradable: the latest answers, which can be graded.
    """

    def __init__(self, tiers: Iterable[Tier], router: Router | None) -> None:
        self.tiers = {tier.id: tier for tier in tiers}
        self.names = telemetry.names(self.tiers)
        self._router = router
        promised = None if router is None else router.certified
        self._alpha = telemetry.names(() if promised is None else (f"{promised:g}",))
        self.gradable = Gradable()
        self.failing: dict[str, Reason] = {}

    def there(self, tier: str) -> None:
        """Note that a tier can be reached."""
        self.failing.pop(tier, None)

    def denied(self, tiers: Iterable[tuple[str, Denial]]) -> None:
        """Count the tiers that the policy or the router excludes."""
        for tier, reason in tiers:
            telemetry.denied(self.names[tier], reason)

    def crossed(self, ways: Ways) -> None:
        """Count how much of a conversation is sent, or why none of it is."""
        said = {
            way.boundary
            for way in ways.by_tier.values()
            if not isinstance(way, AskOnPremises) and way.boundary
        }
        if said:
            steps = telemetry.names(each.value for each in (*Rung, *NotPossible))
            # Once for each word, not for each tier: it counts conversations.
            for word in said:
                telemetry.boundary(steps[word])

    def chose(self, routed: Routed, seconds: float) -> None:
        """Count a choice, the time that it took, and the tiers that were excluded."""
        choice = routed.choice
        self.denied(choice.denied)
        if choice.order:
            first = self.names[choice.order[0].id]
            intent = routed.estimate.intent
            telemetry.routed(first, intent, choice.reason, seconds)

    def asks(self, tier: Tier) -> telemetry.Answering:
        """Begin to measure a tier's answer."""
        return telemetry.Answering(
            self.names[tier.id],
            cost_microusd_per_mtok=(
                None if self._router is None else self._router.price(tier)
            ),
        )

    def failed(self, tier: Tier, reason: FailureReason) -> None:
        """Count a tier that failed; a rejected draft is no failure."""
        self.missed(tier.id, reason)
        # The local model works: its text was not good enough. As a failure, it would
        # hide real ones.
        if reason is not LocalFailure.DRAFT_REJECTED:
            telemetry.fallback(self.names[tier.id], reason)

    def missed(self, tier: str, reason: FailureReason) -> None:
        """Note a failure, if it says something about the tier."""
        lasts = reason_of(reason)
        if lasts is not None:
            self.failing[tier] = lasts

    def refused(self, error: ClientError) -> None:
        """Count a query without an answer; invalid requests are not counted."""
        match error:
            case AnswererError():
                word = error.reason.value
            case NotRoutedError():
                word = error.code
            case BlockedError():
                word = "blocked"
            case IncompleteAnswerError():
                word = "cut"
            case _:
                return
        telemetry.refused(_CODES.get(word, _CODES[_OTHER]))

    def report(self) -> None:
        """Report the state of the tiers."""
        if self._router is None:
            return
        telemetry.retry_budget(Twice.HEDGE, self._router.hedges.left)
        telemetry.retry_budget(Twice.RETRY, self._router.retries.left)
        for alpha in self._alpha.values():
            telemetry.certified(alpha, in_force=self._router.judges)
        for tier, view in self._router.views().items():
            telemetry.breaker(self.names[tier], view.state)

    def graded(self, answer_id: str, *, good: bool, now: datetime) -> TraceLine | None:
        """Count the grade of an answer; return its line for the trace, if there is one.

        Raises:
            UsageError: no such answer is remembered.
        """
        tier, line = self.gradable.take(answer_id)
        telemetry.feedback(self.names[tier], Opinion.GOOD if good else Opinion.BAD)
        return None if line is None else line.graded(good=good, at=minute_of(now))
