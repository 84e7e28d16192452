"""The router of one client: chooses tiers for a query, and records how tiers perform.

It has no permission and opens no connection. Its input is the mask that the decision
created; it returns an ordered subset of it. It stores figures about tiers and, for
each conversation, the tier that answered last; no text of a query.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, inf
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from curtilage.client.chat.answer import AnswerEvent, Finished
from curtilage.client.chat.options import Require, RoutingOptions
from curtilage.client.chat.query import MESSAGE_TOKENS, Query
from curtilage.client.errors import (
    AnswererError,
    FailureReason,
)
from curtilage.client.failure_texts import FAILURE_TEXTS
from curtilage.client.routing.aim import (
    REFERENCE,
    REFERENCE_SCALE,
    STRONG,
    Pair,
    Scale,
    Traffic,
    tokens_of,
    traffic_of,
)
from curtilage.client.routing.breaker import BreakerState
from curtilage.client.routing.estimate import (
    Estimate,
    Estimator,
    Intent,
    prompt_tokens,
    unread,
)
from curtilage.client.routing.health import (
    PRIORS,
    Attempt,
    TierHealth,
    TierPriors,
    TierView,
)
from curtilage.client.routing.thresholds import Shipped, Thresholds, Unfit
from curtilage.client.routing.utility import (
    Choice,
    Reason,
    Refusal,
    UtilitySettings,
    choose,
)
from curtilage.client.routing.verifier import Verifier
from curtilage.client.system.budget import HEDGE_PERMILLE, Budget
from curtilage.policy.decision.decide import Allowed
from curtilage.policy.decision.tiers import Denial, Permitted, Tier, TierKind
from curtilage.policy.document.routing import Routing
from curtilage.policy.document.routing_settings import (
    AimKind,
    Preference,
    Speculating,
    TierEntry,
)

if TYPE_CHECKING:
    from curtilage.client.routing.speculate import Speculation

# A server answers for months; without a limit, each conversation would keep its entry.
MAX_CONVERSATIONS: Final = 4096
# The battery and the network are read from the system, and seldom change.
LOOK_MS: Final = 30_000.0

REMEDIES: Final[Mapping[Refusal, str]] = {
    Refusal.NO_PERMITTED_TIER: "the policy permits no tier: for such data it requires "
    "one that its rules exclude",
    Refusal.REQUIRED_UNMET: "this kind of tier was required, so no other was asked: "
    "ask without --require (`require`), or make sure that it can answer",
    Refusal.HOME_UNAVAILABLE: "a local answer was requested, and no local or "
    "on-premises tier may or can answer: ask without --mode home (`mode`), or install "
    "a local model",
    Refusal.UNAVAILABLE: "every permitted tier is failing just now: try again in half "
    "a minute",
    Refusal.CONTEXT_TOO_LONG: "it exceeds the context of every permitted tier: "
    "shorten it, or ask for a shorter answer (`max_tokens`)",
    Refusal.COST_UNMEETABLE: "every permitted tier costs more than `max_cost`: "
    "raise `max_cost`, or omit it",
    Refusal.SLO_UNMEETABLE: "no permitted tier is likely to meet `slo_ms`, which "
    "`slo_hard` requires: allow more time, or omit `slo_hard`",
}
"""Why no tier answers, and what to do."""


UNFIT: Final[Mapping[Unfit, str]] = {
    Unfit.NO_MODEL: "there is no local model",
    Unfit.LOADING: "the local model is not loaded yet",
    Unfit.FEATURES: "the thresholds were certified by another version of Curtilage",
    Unfit.MODEL: "the thresholds were certified for another model",
    Unfit.TEMPLATE: "the thresholds were certified for another chat template",
}
"""Why no drafts are written although the policy enables them."""


WHY_NOT: Final[Mapping[Denial, str]] = {
    Denial.ROUTE: "the text may not be sent as it is",
    Denial.NOT_TRUSTED: "the policy does not trust it with what was found",
    Denial.CLASS: "the policy does not list it for queries of this class",
    Denial.DEMAND: "the policy requires another tier for what was found",
    Denial.MODE: "the policy keeps such tasks local or on premises",
    Denial.REQUIRED: "another kind of tier was required",
    Denial.CONTEXT: "question and answer exceed its context",
    Denial.SLO: "it would probably miss the deadline",
    Denial.COST: "it would cost too much",
    Denial.MISSING: "its state is not known",
    Denial.UNAVAILABLE: "it cannot answer just now",
}
"""Why a tier may not or cannot answer."""


CHOSEN: Final[Mapping[Reason, str]] = {
    Reason.ONLY_PERMITTED: "the policy permits no other",
    Reason.EASY: "the query is easy, and its answer there is good enough",
    Reason.HARD: "the query is hard, and a better answer is worth the cost",
    Reason.AIM: "preferred by the policy's aim and weights",
    Reason.FASTER: "it is faster",
    Reason.CHEAPER: "it is cheaper",
    Reason.REQUIRED: "the request requires it",
    Reason.MODE: "the request's mode prefers it",
    Reason.SLO: "another would probably miss the deadline",
    Reason.CONTEXT: "the query exceeds another tier's context",
    Reason.UNAVAILABLE: "another cannot answer just now",
    Reason.PRIVATE_TIE: "another is as good, but less private",
    Reason.OVERRIDE: "the policy prefers it for such tasks",
}
"""Why a tier was chosen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """Conditions of this machine that affect the cost of a tier; None: unknown.

    Attributes:
        on_battery: computing here drains a battery.
        metered: network traffic is charged by volume.
    """

    on_battery: bool | None
    metered: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """The rank of a query among ordinary ones, and the rank that the aim sets.

    Attributes:
        rank: share of ordinary queries with a smaller need of a strong model, 0 to 1.
        line: rank up to which they are answered locally; None: the policy has no aim.
        bar: the need at that rank; None likewise.
    """

    rank: float
    line: float | None = None
    bar: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Routed:
    """The choice for one query.

    Attributes:
        choice: the order, and why.
        estimate: the estimate for the query.
        standing: its rank; None: there was no choice between a local tier and an
            enclave.
        fallback: why a tier that might have been preferred is not asked, if its last
            failure is known.
        scale: the meaning of the estimate's gain.
    """

    choice: Choice
    estimate: Estimate
    scale: Scale = REFERENCE_SCALE
    standing: Standing | None = None
    fallback: FailureReason | None = None


class Router:
    """Chooses among tiers, and remembers how they perform.

    Attributes:
        plan: the policy's.
        hedges: budget for asking a second tier because the first is late.
        retries: budget for asking a tier again that was busy.

    Args:
        plan: the policy's.
        estimator: estimates what a text asks for.
        clock: the time in seconds, of a monotonic clock.
        home_tokens: returns the local model's current context; None: not known.
        home_quality: returns how many of a thousand ordinary questions the local model
            solves, as measured; None: not measured.
        demonstrates: returns whether the local model is only a demonstration; what the
            policy assumes of a local model is then not assumed of this one.
        device: returns the machine's current conditions; None: not available.
        thresholds: for judging drafts of the local model; None: the policy names none.
        shipped: used instead if the policy names none.
        running: returns the SHA-256 of the current local model's file and of its chat
            template, which is None until it is loaded; None: there is no model.
    """

    def __init__(
        self,
        plan: Routing,
        estimator: Estimator,
        *,
        clock: Callable[[], float],
        home_tokens: Callable[[], int | None] = lambda: None,
        home_quality: Callable[[], int | None] = lambda: None,
        demonstrates: Callable[[], bool] = lambda: False,
        device: Callable[[], Device] | None = None,
        thresholds: Thresholds | None = None,
        shipped: Sequence[Shipped] = (),
        running: Callable[[], tuple[str, str | None] | None] = lambda: None,
    ) -> None:
        self.plan = plan
        self.hedges = Budget(HEDGE_PERMILLE)
        # One in reserve: the first query of a process may be retried, too.
        self.retries = Budget(10 * plan.resilience.retry_budget_percent, reserve=1)
        # If the policy disables drafts, none are judged.
        off = plan.speculation.mode is Speculating.OFF
        self._thresholds = None if off else thresholds
        self._shipped = () if off or thresholds is not None else tuple(shipped)
        self._running = running
        self._estimator = estimator
        self._clock = clock
        self._device = device
        self._home_tokens = home_tokens
        self._home_quality = home_quality
        self._demonstrates = demonstrates
        # Made with the first estimate, since it is ranked by the estimator that was
        # really used.
        self._traffic: Traffic | None = None
        self._looked_ms = -inf
        self._health = {
            tier.id: TierHealth(
                tier.kind,
                _priors(tier),
                breaker=plan.breaker,
                context_tokens=tier.context_tokens,
                limit_per_min=tier.questions_per_min,
            )
            for tier in plan.tiers
        }
        self._last_failure: dict[str, FailureReason] = {}
        self._last_tier: OrderedDict[bytes, str] = OrderedDict()
        self._settings = UtilitySettings(
            weights=plan.weights_permille,
            total_ms=plan.budgets.total_ms,
            overrides={str(k): v for k, v in plan.intents.overrides.items()},
        )

    def estimate(self, query: Query) -> Estimate:
        """Return the estimate for a query; its last question determines the intent."""
        text = question_of(query)
        estimate = self._estimator.estimate(text, query.settings.max_tokens)
        # All turns are read by the model, so all count as prompt tokens.
        whole = sum(
            prompt_tokens(each.said) + MESSAGE_TOKENS for each in query.messages
        )
        documents = [*query.tools, query.response_format]
        whole += sum(
            prompt_tokens(each.encoded) for each in documents if each is not None
        )
        most = query.settings.max_tokens
        return replace(estimate, prompt_tokens=whole, most_tokens=most)

    def chooses(self, permitted: Permitted) -> bool:
        """Return whether there is a choice to make, for which the text is read.

        There is none if the mask has one tier, as for all that is kept local.
        """
        match permitted.tiers:
            case ():
                return False
            case (tier,):
                # An override may keep a query from an enclave although it may be sent.
                wishes = self._settings.overrides.values()
                only_home = Preference.ONLY_HOME in wishes
                return only_home and tier.kind.outside
            case _:
                return True

    def route(
        self, permitted: Permitted, query: Query, *, conversation: bytes
    ) -> Routed:
        """Choose for one query, based on an estimate of its text.

        Args:
            permitted: the mask.
            query: the query.
            conversation: its keyed digest, by which ``answered`` remembered the tier.
        """
        last = self._last_tier.get(conversation)
        return self._routed(permitted, self.estimate(query), query.options, last)

    def asked(self, routed: Routed) -> None:
        """Count a query of this device in the ordinary traffic.

        Args:
            routed: what ``route`` returned.
        """
        found = routed.estimate
        # Only where there was a choice: what is always kept local is no part of the
        # traffic that the aim is about.
        if routed.standing is not None:
            need = routed.scale.need(found.gain)
            self._ordinary(found).saw(need, tokens_of(found))

    def _ordinary(self, estimate: Estimate) -> Traffic:
        """Return the ordinary traffic, ranked by the current estimator."""
        if self._traffic is None:
            self._traffic = traffic_of(estimate.source)
        return self._traffic

    def route_unread(
        self,
        permitted: Permitted,
        options: RoutingOptions,
        *,
        text_bytes: int,
        messages: int,
        most: int,
    ) -> Routed:
        """Return the same if there is no choice; the query's text is not an argument.

        Args:
            permitted: the mask.
            options: the sender's options.
            text_bytes: length of the query's texts in bytes.
            messages: number of its messages.
            most: largest number of tokens of its answer.
        """
        estimate = unread(text_bytes, messages, most)
        return self._routed(permitted, estimate, options, None)

    def _routed(
        self,
        permitted: Permitted,
        estimate: Estimate,
        options: RoutingOptions,
        last: str | None,
    ) -> Routed:
        views = self.views()
        pair = self._pair(permitted, views)
        scale = REFERENCE_SCALE
        if self.plan.estimator.file and pair is not None:
            # An operator's own weights were learned between the operator's own two
            # models: the gain is the actual loss, whatever quality the policy states
            # for them.
            if self.plan.aim is None:
                scale = Scale(pair.local, pair.strong)
            else:
                pair = replace(pair, local=REFERENCE, strong=STRONG)
        standing = self._standing(pair, views, estimate, scale, last)
        choice = choose(
            permitted,
            views,
            estimate,
            options,
            self._settings,
            last=last,
            scale=scale,
            bar=None if standing is None else standing.bar,
        )
        missed = (
            self._last_failure.get(tier_id)
            for tier_id, denial in reversed(choice.denied)
            if denial is Denial.UNAVAILABLE
        )
        return Routed(
            choice=choice,
            estimate=estimate,
            scale=scale,
            standing=standing,
            fallback=next((each for each in missed if each is not None), None),
        )

    def _standing(
        self,
        pair: Pair | None,
        views: Mapping[str, TierView],
        estimate: Estimate,
        scale: Scale,
        last: str | None,
    ) -> Standing | None:
        """Return the rank of a query; None: there is no choice to make."""
        if pair is None or estimate.source == "unread":
            return None
        traffic, aim = self._ordinary(estimate), self.plan.aim
        rank = traffic.rank(scale.need(estimate.gain))
        if aim is None:
            return Standing(rank=rank)
        line = traffic.line(aim, pair, scale)
        # A conversation changes tiers only if it is clearly beyond the line.
        if last is not None and last in views:
            away = views[last].kind.outside
            shift = self._settings.weights.hysteresis / 1000
            line = min(1.0, max(0.0, line - shift if away else line + shift))
        return Standing(rank=rank, line=line, bar=traffic.need(line))

    @staticmethod
    def _pair(permitted: Permitted, views: Mapping[str, TierView]) -> Pair | None:
        """Return the two tiers that the aim compares; None: one is missing.

        The best enclave of the mask, and the best local tier that can answer now: while
        the usual one is out of order, the loss is that of the weaker one.
        """
        known = [views[tier.id] for tier in permitted.tiers if tier.id in views]
        # On-premises servers count as local: the aim is about the share that an enclave
        # answers.
        local = [each for each in known if not each.kind.outside]
        local = [each for each in local if each.available] or local
        strong = [each for each in known if each.kind.outside]
        if not local or not strong:
            return None
        best, away = (
            max(each, key=lambda view: view.quality_permille)
            for each in (local, strong)
        )
        return Pair(
            local=best.quality_permille / 1000,
            strong=away.quality_permille / 1000,
            local_price=best.cost_microusd_per_mtok / 1e6,
            strong_price=away.cost_microusd_per_mtok / 1e6,
        )

    def speculation(
        self,
        allowed: Allowed | None,
        routed: Routed,
        options: RoutingOptions,
        *,
        conversation: bytes,
    ) -> "Speculation | None":
        """Return a draft if it is worth more than the choice; None: it is not.

        Args:
            allowed: the decision's permission to send; None: there is none, so a
                rejected draft could not be escalated.
            routed: what ``route`` returned.
            options: what its sender asks.
            conversation: as for ``route``.
        """
        thresholds = self._judge_of(routed.estimate.intent)
        # An aim of share or cost may require a local answer. With a draft it might
        # still be sent, and the aim would be missed by that much.
        aim, standing = self.plan.aim, routed.standing
        kept = (
            aim is not None
            and aim.kind is not AimKind.QUALITY_LOSS_PERMILLE
            and standing is not None
            and standing.line is not None
            and standing.rank <= standing.line
        )
        if thresholds is None or kept:
            return None
        # Where no drafts can be judged, none is planned, and this is not imported.
        from curtilage.client.routing.speculate import wanted  # noqa: PLC0415

        return wanted(
            allowed,
            routed.choice,
            views=self.views(),
            estimate=routed.estimate,
            options=options,
            settings=self._settings,
            plan=self.plan,
            thresholds=thresholds,
            last=self._last_tier.get(conversation),
            scale=routed.scale,
            bar=None if routed.standing is None else routed.standing.bar,
        )

    def doubts(self, query: Query) -> Verifier | None:
        """Return the verifier for an answer that has to be given locally.

        None: it is not known which answers of the current model to such a question are
        often wrong. Then the text was not read.

        Args:
            query: the query.
        """
        thresholds = self._thresholds
        if thresholds is None and any(
            self.unfit(each.thresholds) is None for each in self._shipped
        ):
            thresholds = self._judge_of(self.estimate(query).intent)
        if (
            thresholds is None
            or not thresholds.warns
            or self.plan.observe
            or self.unfit(thresholds) is not None
        ):
            return None
        return Verifier(
            thresholds.heads, thresholds.threshold, question=question_of(query)
        )

    def _judge_of(self, intent: Intent) -> Thresholds | None:
        """Return the thresholds for the current model; None: there are none."""
        if self._thresholds is not None:
            return None if self.unfit() is not None else self._thresholds
        fit = (
            each.thresholds
            for each in self._shipped
            if each.intent is intent and self.unfit(each.thresholds) is None
        )
        return next(fit, None)

    def unfit(self, thresholds: Thresholds | None = None) -> Unfit | None:
        """Return why drafts cannot be judged here although the policy enables them.

        Evaluated for every query: the local model may have changed.

        Args:
            thresholds: these; None: those that the policy names.
        """
        running, thresholds = self._running(), thresholds or self._thresholds
        if thresholds is None:
            return None
        if running is None:
            return Unfit.NO_MODEL
        model, template = running
        if template is None:
            other = thresholds.unfit(
                model_sha256=model, template_sha256=thresholds.template_sha256
            )
            return other or Unfit.LOADING
        return thresholds.unfit(model_sha256=model, template_sha256=template)

    @property
    def certified(self) -> float | None:
        """The certified error rate of accepted drafts; None: there is none."""
        # The largest one: it is shown as a promise for all drafts.
        shipped = (each.thresholds.alpha for each in self._shipped)
        own = self._thresholds
        return max(shipped, default=None) if own is None else own.alpha

    @property
    def judges(self) -> bool:
        """Whether drafts of the current model can be judged."""
        judges = [each.thresholds for each in self._shipped]
        if self._thresholds is not None:
            judges = [self._thresholds]
        return any(self.unfit(each) is None for each in judges)

    def remedy(self, routed: Routed, require: Require | None = None) -> str:
        """Return why no tier was chosen, and what to do; empty if one was chosen.

        Args:
            routed: what ``route`` returned.
            require: the kind that the query required, to explain why it cannot answer.
        """
        refusal = routed.choice.refusal
        if refusal is None:
            return ""
        if refusal is Refusal.CONTEXT_TOO_LONG:
            return f"{REMEDIES[refusal]}; {self._sizes(routed)}"
        if require is None or refusal is not Refusal.REQUIRED_UNMET:
            return REMEDIES[refusal]
        kinds = {tier.id: tier.kind for tier in self.plan.tiers}
        why = [
            FAILURE_TEXTS[self._last_failure[tier]]
            if denial is Denial.UNAVAILABLE and tier in self._last_failure
            else WHY_NOT[denial]
            for tier, denial in routed.choice.denied
            if kinds.get(tier) is require.kind
        ]
        none = f"the policy names no tier of the kind {require.value!r}"
        return required_unmet(why[0] if why else none)

    def _sizes(self, routed: Routed) -> str:
        expected = routed.estimate
        contexts = [
            self._health[tier].context_tokens or 0
            for tier, denial in routed.choice.denied
            if denial is Denial.CONTEXT
        ]
        return (
            f"it has about {expected.prompt_tokens:,} tokens and asks for "
            f"{max(expected.answer_tokens, expected.most_tokens):,}, and the largest "
            f"context is {max(contexts):,}"
        )

    def price(self, tier: Tier) -> int:
        """Return the price of a million tokens, in millionths of a US dollar."""
        return _priors(self.plan.tier(tier.id)).cost_microusd_per_mtok

    def views(self) -> dict[str, TierView]:
        """Return the current view of each tier."""
        now_ms = self.now_ms()
        if self._device is not None and now_ms - self._looked_ms > LOOK_MS:
            self._looked_ms = now_ms
            now = self._device()
            for each in self._health.values():
                each.note_device(on_battery=now.on_battery, metered=now.metered)
        for tier in self.plan.tiers:
            if tier.kind is TierKind.IN_PROCESS:
                # Each time anew: if there was too little memory for the usual model,
                # another may be running.
                health = self._health[tier.id]
                health.context_tokens = self._home_tokens()
                measured = self._home_quality()
                # What the policy states is about the usual model; the demonstration
                # model is far below it, and with its value nearly every query would be
                # answered badly.
                if tier.priors.quality_permille is None or self._demonstrates():
                    usual = _priors(tier).quality_permille
                    health.quality_permille = usual if measured is None else measured
        return {name: each.view(now_ms) for name, each in self._health.items()}

    def left_alone_s(self, tier: str) -> int | None:
        """Return for how long a tier is not asked, by its id; None: it may be."""
        left_ms = self._health[tier].left_alone_ms(self.now_ms())
        return None if left_ms is None else ceil(left_ms / 1000)

    def begins_s(self, tier: Tier, estimate: Estimate) -> float:
        """Return the latest time of a tier's first text after its turn, in seconds."""
        # Its turn has come, so the queue is no longer part of the wait.
        view = replace(self._health[tier.id].view(self.now_ms()), queue_ms=0.0)
        return view.ttft_ms(estimate.prompt_tokens, slow=True) / 1000

    def follow(self, tier: Tier, estimate: Estimate) -> "Following":
        """Begin an attempt at a tier of the mask."""
        health = self._health[tier.id]
        prompt = estimate.prompt_tokens
        # None if the breaker is open: the tier is asked nevertheless, since there is no
        # other.
        attempt = health.begin(self.now_ms(), prompt_tokens=prompt)
        return Following(self, tier.id, health, attempt)

    def probes(self, *, first: bool = False) -> Iterator["Following"]:
        """Yield an attempt at each enclave that failed and may be reachable again.

        These are made in the background and not by a question, so that no question
        waits for an unreachable enclave. Meanwhile the tier is not asked.

        Args:
            first: also at an enclave that has not failed, as nothing is known yet.
        """
        for tier in self.plan.tiers:
            if tier.kind is not TierKind.ATTESTED:
                continue
            health = self._health[tier.id]
            state = health.view(self.now_ms()).state
            unknown = first and state is BreakerState.CLOSED
            if unknown or state is BreakerState.HALF_OPEN:
                # A half-open breaker lets one attempt pass. This one takes it, so that
                # a query does not.
                attempt = health.begin(self.now_ms(), prompt_tokens=0)
                if attempt is not None:
                    yield Following(self, tier.id, health, attempt)

    def answered(self, conversation: bytes, tier: str) -> None:
        """Remember the tier that answered in a conversation; switching has a cost."""
        self._last_tier[conversation] = tier
        # The longest unused one is dropped, not the oldest: a long conversation must
        # not change tiers because many short ones began.
        self._last_tier.move_to_end(conversation)
        if len(self._last_tier) > MAX_CONVERSATIONS:
            self._last_tier.popitem(last=False)

    def failed(self, tier: str, reason: FailureReason | None) -> None:
        """Remember a tier's last failure, by its id; None: it succeeded."""
        if reason is None:
            self._last_failure.pop(tier, None)
        else:
            self._last_failure[tier] = reason

    def ready(
        self,
        tier: Tier,
        *,
        life_s: float,
        period_ms: int,
        first_bucket: int,
        buckets: int,
    ) -> None:
        """Record that an enclave can begin at once; see ``TierHealth.ready``.

        Args:
            tier: the enclave.
            life_s: remaining validity of its key.
            period_ms: from one frame of an answer to the next.
            first_bucket: frames of the shortest answer.
            buckets: number of lengths.
        """
        self._health[tier.id].ready(
            self.now_ms() + 1000 * life_s,
            period_ms=period_ms,
            first_bucket=first_bucket,
            buckets=buckets,
        )

    def now_ms(self) -> float:
        """Return the time, in milliseconds of the router's clock."""
        return 1000 * self._clock()


class Following:
    """One attempt at one tier; its result is recorded in the tier's figures.

    As a context manager, it records an exception as a failure; leaving the block before
    the end of the answer records nothing.
    """

    def __init__(
        self, router: Router, tier: str, health: TierHealth, attempt: Attempt | None
    ) -> None:
        self._router = router
        self._tier = tier
        self._health = health
        self._attempt = attempt

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Record how it ended."""
        now_ms = self._router.now_ms()
        # Its own word, which holds from the next query on; never more than the policy
        # states, which may keep long texts from a tier that could take them.
        if isinstance(error, AnswererError) and error.limit_tokens is not None:
            self._health.learn_context(error.limit_tokens)
        # A failure such as a missing consent says nothing about the tier, and must not
        # open its breaker.
        if isinstance(error, AnswererError) and error.reason.counts_as is not None:
            self._router.failed(self._tier, error.reason)
            if self._attempt is not None:
                failure = error.reason.counts_as
                later_ms = 1000.0 * (error.retry_after_s or 0)
                self._health.failed(
                    self._attempt, now_ms, failure, retry_after_ms=later_ms
                )
        elif self._attempt is not None:
            self._health.dropped(self._attempt, now_ms)  # no effect if it has ended

    def there(self) -> None:
        """Record that the tier is reachable, although it answered nothing."""
        self._router.failed(self._tier, None)
        if self._attempt is not None:
            self._health.finished(self._attempt, self._router.now_ms())

    def saw(self, event: AnswerEvent) -> None:
        """Record an event of the answer."""
        now_ms = self._router.now_ms()
        if isinstance(event, Finished):
            self._router.failed(self._tier, None)
            if self._attempt is not None:
                tokens = event.completion_tokens
                self._health.finished(self._attempt, now_ms, tokens=tokens)
        elif self._attempt is not None:
            self._health.text(self._attempt, now_ms)


def question_of(query: Query) -> str:
    """Return the last turn of the user; empty if there is none."""
    # Only the user's own turns: an instruction of the application is the same for every
    # query, and would hide what differs.
    turns = (each for each in reversed(query.messages) if each.role == "user")
    asked = next(turns, None)
    return "" if asked is None else asked.content


def required_unmet(why: str) -> str:
    """Return why the only permitted tier did not answer, and what to do."""
    return f"{why}; {REMEDIES[Refusal.REQUIRED_UNMET]}"


def _priors(tier: TierEntry) -> TierPriors:
    """Return the policy's expectations of a tier, completed by those of its kind."""
    said = tier.priors.model_dump(exclude_none=True)
    if tier.cost_microusd_per_mtok:
        said["cost_microusd_per_mtok"] = tier.cost_microusd_per_mtok
    return replace(PRIORS[tier.kind], **said)
