"""The router of one client: what it chooses for a query, and what it learns of tiers.

It holds no permission and opens no door. What it is given is the mask that the decision
made; it returns an order of a part of it. It keeps figures of tiers and, of
conversations, which tier answered last; no word of a query.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import ceil, inf
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from curtilage.client.answer import AnswerEvent, Finished
from curtilage.client.budget import HEDGE_PERMILLE, Budget
from curtilage.client.errors import (
    EXPLAINED,
    UNMET,
    AnswererError,
    FailureReason,
)
from curtilage.client.options import Require, RoutingOptions
from curtilage.client.query import MESSAGE_TOKENS, Query
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
    Failure,
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
from curtilage.policy.decision.decide import Allowed
from curtilage.policy.decision.tiers import Denial, Permitted, Tier, TierKind
from curtilage.policy.document.routing_plan import (
    AimKind,
    Preference,
    RoutingPlan,
    Speculating,
    TierPlan,
)

if TYPE_CHECKING:
    from curtilage.client.routing.speculate import Speculation

MAX_CONVERSATIONS: Final = 4096
LOOK_MS: Final = 30_000.0

# What ends an attempt and says nothing of the tier: what this query or its data need,
# or this machine's own disk. Everything else counts against it.
_OF_THE_QUERY: Final = UNMET | {
    FailureReason.AUDIT_FAILED,
    FailureReason.DATE_REFUSED,
    FailureReason.DRAFT_REJECTED,
    FailureReason.HOUSE_NO_LOGPROBS,
    FailureReason.HOUSE_REFUSED,
    FailureReason.LOCAL_TOO_LONG,
    FailureReason.NOT_PERMITTED,
    FailureReason.TOO_LARGE,
}
_FAILURES: Final[Mapping[FailureReason, Failure]] = {
    FailureReason.BUSY: Failure.BUSY,
    FailureReason.TOO_MANY_RUNNING: Failure.BUSY,
    FailureReason.LOCAL_BUSY: Failure.BUSY,
    FailureReason.EVIDENCE_REFUSED: Failure.EVIDENCE,
    FailureReason.CLOCK_SUSPECTED: Failure.EVIDENCE,
    FailureReason.TOO_FEW_NODES: Failure.EVIDENCE,
    FailureReason.NOT_CONFIGURED: Failure.UNREACHABLE,
    FailureReason.NO_ENCLAVE_NAMED: Failure.UNREACHABLE,
    FailureReason.RELAY_UNREACHABLE: Failure.UNREACHABLE,
    FailureReason.RELAY_UNTRUSTED: Failure.UNREACHABLE,
    FailureReason.RELAY_TLS_FAILED: Failure.UNREACHABLE,
    FailureReason.RELAY_WANTS_CERTIFICATE: Failure.UNREACHABLE,
    FailureReason.RELAY_KNOWS_NO_SUCH: Failure.UNREACHABLE,
    FailureReason.RELAY_DENIED: Failure.UNREACHABLE,
    FailureReason.ENCLAVE_UNREACHABLE: Failure.UNREACHABLE,
    FailureReason.MIRROR_UNREACHABLE: Failure.UNREACHABLE,
    # Where nothing comes back, a question waits 15 seconds or more. So few of them in a
    # row lie within a breaker's window, and the next one would wait as long.
    FailureReason.TIMEOUT: Failure.UNREACHABLE,
    FailureReason.ANSWER_LATE: Failure.UNREACHABLE,
    FailureReason.HOUSE_LATE: Failure.UNREACHABLE,
    FailureReason.LOCAL_OUT_OF_MEMORY: Failure.UNREACHABLE,
    FailureReason.LOCAL_UNAVAILABLE: Failure.UNREACHABLE,
    FailureReason.HOUSE_BUSY: Failure.BUSY,
    FailureReason.HOUSE_UNREACHABLE: Failure.UNREACHABLE,
    FailureReason.HOUSE_UNTRUSTED: Failure.UNREACHABLE,
    FailureReason.HOUSE_TLS_FAILED: Failure.UNREACHABLE,
    FailureReason.HOUSE_DENIED: Failure.UNREACHABLE,
    FailureReason.HOUSE_MODEL_MISSING: Failure.UNREACHABLE,
}


REMEDIES: Final[Mapping[Refusal, str]] = {
    Refusal.NO_PERMITTED_TIER: "no tier may answer such data: the policy demands one "
    "that its rules keep it from",
    Refusal.REQUIRED_UNMET: "it was required, and no other was asked: ask without "
    "--require (`require`), or see to it that it can answer",
    Refusal.HOME_UNAVAILABLE: "it was to be answered at home, and nothing at home may "
    "or can: ask without --mode home (`mode`), or install a local model",
    Refusal.UNAVAILABLE: "every tier that may answer fails just now: ask again in half "
    "a minute",
    Refusal.CONTEXT_TOO_LONG: "it is longer than any tier takes that may answer: "
    "shorten it, or ask for a shorter answer (`max_tokens`)",
    Refusal.COST_UNMEETABLE: "every tier that may answer costs more than `max_cost`: "
    "allow more, or leave `max_cost` out",
    Refusal.SLO_UNMEETABLE: "no tier that may answer is likely to keep `slo_ms`, which "
    "`slo_hard` asks for: allow more time, or leave `slo_hard` out",
}
"""Why nobody answers, and what to do."""


UNFIT: Final[Mapping[Unfit, str]] = {
    Unfit.NO_MODEL: "there is no local model that could write one",
    Unfit.LOADING: "the local model is not loaded yet",
    Unfit.FEATURES: "the thresholds were certified by another version of Curtilage",
    Unfit.MODEL: "the thresholds were certified for another model",
    Unfit.TEMPLATE: "the thresholds were certified for another chat template",
}
"""Why no drafts are written, though the policy wants them."""


WHY_NOT: Final[Mapping[Denial, str]] = {
    Denial.ROUTE: "the text may not leave as it stands",
    Denial.NOT_TRUSTED: "the policy does not trust it with what was found",
    Denial.CLASS: "the policy does not list it for texts of this class",
    Denial.DEMAND: "the policy demands another place for what was found",
    Denial.MODE: "the policy wants such tasks in the house alone",
    Denial.REQUIRED: "another kind was required",
    Denial.CONTEXT: "text and answer are longer than it takes",
    Denial.SLO: "it would be too late",
    Denial.COST: "it would cost too much",
    Denial.MISSING: "nothing is known of it",
    Denial.UNAVAILABLE: "it cannot answer just now",
}
"""Why a tier may not answer, in words."""


CHOSEN: Final[Mapping[Reason, str]] = {
    Reason.ONLY_PERMITTED: "the policy permits no other",
    Reason.EASY: "it is easy, and the answer there good enough",
    Reason.HARD: "it is hard, and a better answer is worth it",
    Reason.AIM: "by the aim and weights of the policy it comes first",
    Reason.FASTER: "it is sooner there",
    Reason.CHEAPER: "it is cheaper there",
    Reason.REQUIRED: "it was required",
    Reason.MODE: "it was asked for",
    Reason.SLO: "another would be too late",
    Reason.CONTEXT: "another takes nothing so long",
    Reason.UNAVAILABLE: "another cannot answer just now",
    Reason.PRIVATE_TIE: "another is as good, and less private",
    Reason.OVERRIDE: "the policy wants it there",
}
"""Why a tier was chosen, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """What of this machine makes a tier dearer; None: the system does not tell.

    Attributes:
        on_battery: computing here empties a battery.
        metered: what goes over the network is paid by volume.
    """

    on_battery: bool | None
    metered: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where a query is among ordinary ones, and where the operator's aim draws a line.

    Attributes:
        rank: share of ordinary queries that need a strong model less, 0 to 1.
        line: up to which rank they are answered locally; None: the policy has no aim.
        bar: the need at that rank; None likewise.
    """

    rank: float
    line: float | None = None
    bar: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Routed:
    """What was chosen for one query.

    Attributes:
        choice: the order, and why.
        estimate: what was expected of the query.
        standing: where it is among ordinary queries; None: nothing was to be chosen
            between a local tier and an enclave.
        fallback: why a tier that might have come before them is not asked, where its
            last failure is known.
        scale: what the estimate's gain means.
    """

    choice: Choice
    estimate: Estimate
    scale: Scale = REFERENCE_SCALE
    standing: Standing | None = None
    fallback: FailureReason | None = None


class Router:
    """Chooses among tiers, and remembers how they do.

    Attributes:
        plan: the policy's.
        hedges: how often a second may be asked, since the first is late.
        retries: how often one that said 'later' may be asked again.

    Args:
        plan: the policy's.
        estimator: tells of a text what it asks for.
        clock: the time in seconds, of any clock that does not jump.
        home_tokens: tells how many tokens the home model takes, now; None: not known.
        home_quality: of a thousand ordinary questions, how many the local model solves,
            as it was measured; None: nobody did.
        device: tells of the machine, now; None: nobody does.
        thresholds: by which drafts of the home model are judged; None: the policy names
            none.
        shipped: those that are used instead where it names none.
        running: tells the SHA-256 of the home model's file and of its chat template,
            now; of the template None: it is not loaded yet; None: there is no model.
    """

    def __init__(
        self,
        plan: RoutingPlan,
        estimator: Estimator,
        *,
        clock: Callable[[], float],
        home_tokens: Callable[[], int | None] = lambda: None,
        home_quality: Callable[[], int | None] = lambda: None,
        device: Callable[[], Device] | None = None,
        thresholds: Thresholds | None = None,
        shipped: Sequence[Shipped] = (),
        running: Callable[[], tuple[str, str | None] | None] = lambda: None,
    ) -> None:
        self.plan = plan
        self.hedges = Budget(HEDGE_PERMILLE)
        self.retries = Budget(10 * plan.resilience.retry_budget_percent, reserve=1)
        # Of a policy that wants no drafts, none are judged.
        off = plan.speculation.mode is Speculating.OFF
        self._thresholds = None if off else thresholds
        self._shipped = () if off or thresholds is not None else tuple(shipped)
        self._running = running
        self._estimator = estimator
        self._clock = clock
        self._device = device
        self._home_tokens = home_tokens
        self._home_quality = home_quality
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
        weights = plan.weights
        self._settings = UtilitySettings(
            latency_permille=weights.latency,
            cost_permille=weights.cost,
            risk_permille=weights.risk,
            switch_permille=weights.switch,
            hysteresis_permille=weights.hysteresis,
            total_ms=plan.budgets.total_ms,
            overrides={Intent(intent): wish for intent, wish in plan.overrides.items()},
        )

    def estimate(self, query: Query) -> Estimate:
        """Return what is expected of a query; its last question says what it asks."""
        text = question_of(query)
        estimate = self._estimator.estimate(text, query.settings.max_tokens)
        # All of it is read, also what was said before.
        whole = sum(
            prompt_tokens(each.content) + MESSAGE_TOKENS for each in query.messages
        )
        return replace(estimate, prompt_tokens=whole)

    def chooses(self, permitted: Permitted) -> bool:
        """Return whether there is a choice to make, for which the text is read.

        There is none where the mask has one tier, as for whatever is kept local.
        """
        match permitted.tiers:
            case ():
                return False
            case (tier,):
                # Only what may leave: an intent may keep that from an enclave.
                wishes = self._settings.overrides.values()
                only_home = Preference.ONLY_HOME in wishes
                return only_home and tier.kind is TierKind.ATTESTED
            case _:
                return True

    def route(
        self, permitted: Permitted, query: Query, *, conversation: bytes
    ) -> Routed:
        """Choose for one query, whose text is read for what it asks.

        Args:
            permitted: the mask.
            query: what is asked.
            conversation: its keyed digest, by which ``answered`` remembered the tier.
        """
        last = self._last_tier.get(conversation)
        return self._routed(permitted, self.estimate(query), query.options, last)

    def asked(self, routed: Routed) -> None:
        """Count a query of this device among the ordinary ones.

        Args:
            routed: what ``route`` returned.
        """
        found = routed.estimate
        if routed.standing is not None:
            need = routed.scale.need(found.gain)
            self._ordinary(found).saw(need, tokens_of(found))

    def _ordinary(self, estimate: Estimate) -> Traffic:
        """Return ordinary traffic, as the estimator at hand ranks it."""
        if self._traffic is None:
            self._traffic = traffic_of(estimate.source)
        return self._traffic

    def route_unread(
        self,
        permitted: Permitted,
        options: RoutingOptions,
        *,
        octets: int,
        messages: int,
        most: int,
    ) -> Routed:
        """Return the same where nothing is chosen; no word of the query comes here.

        Args:
            permitted: the mask.
            options: what its sender asks.
            octets: bytes of the query's texts.
            messages: how many there are.
            most: how many tokens its answer may have.
        """
        return self._routed(permitted, unread(octets, messages, most), options, None)

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
        if self.plan.estimator.artifact and pair is not None:
            # An operator's own was learned between the operator's own two models: its
            # gain is what is lost, whatever the policy says of their quality.
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
        """Return where a query is among ordinary ones; None: nothing is to choose."""
        if pair is None or estimate.source == "unread":
            return None
        traffic, aim = self._ordinary(estimate), self.plan.aim
        rank = traffic.rank(scale.need(estimate.gain))
        if aim is None:
            return Standing(rank=rank)
        line = traffic.line(aim, pair, scale)
        # A conversation changes tiers only where it is clearly beyond the line.
        if last is not None and last in views:
            away = views[last].kind is TierKind.ATTESTED
            shift = self._settings.hysteresis_permille / 1000
            line = min(1.0, max(0.0, line - shift if away else line + shift))
        return Standing(rank=rank, line=line, bar=traffic.need(line))

    @staticmethod
    def _pair(permitted: Permitted, views: Mapping[str, TierView]) -> Pair | None:
        """Return the two between which the aim's line is drawn; None: one is missing.

        The best enclave of the mask, and the best local tier that can answer now: while
        the usual one is out of order, what a weaker one loses is what counts.
        """
        known = [views[tier.id] for tier in permitted.tiers if tier.id in views]
        local = [each for each in known if each.kind is not TierKind.ATTESTED]
        local = [each for each in local if each.available] or local
        strong = [each for each in known if each.kind is TierKind.ATTESTED]
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
        """Return the draft that is worth more than what was chosen; None: none is.

        Args:
            allowed: the decision's permission to leave; None: there is none, and so
                nobody to ask if a draft does not do.
            routed: what ``route`` returned.
            options: what its sender asks.
            conversation: as for ``route``.
        """
        thresholds = self._judge_of(routed.estimate.intent)
        if thresholds is None or self._kept(routed.standing):
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
            plan=self.plan.speculation,
            thresholds=thresholds,
            last=self._last_tier.get(conversation),
            scale=routed.scale,
            bar=None if routed.standing is None else routed.standing.bar,
        )

    def _kept(self, standing: Standing | None) -> bool:
        """Return whether an aim of share or cost has a query answered locally.

        A draft of it might be sent after all, and the aim would be missed by as much.
        """
        aim = self.plan.aim
        if aim is None or aim.kind is AimKind.QUALITY_LOSS_PERMILLE:
            return False
        if standing is None or standing.line is None:
            return False
        return standing.rank <= standing.line

    def doubts(self, query: Query) -> Verifier | None:
        """Return what judges an answer that is given locally since it must be.

        None: of the model that runs it is not known which of its answers to such a
        question are often wrong. Then nothing was read for it.

        Args:
            query: what is asked.
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
        """Return what judges answers of the model that runs; None: nothing does."""
        if self._thresholds is not None:
            return None if self.unfit() is not None else self._thresholds
        fit = (
            each.thresholds
            for each in self._shipped
            if each.intent is intent and self.unfit(each.thresholds) is None
        )
        return next(fit, None)

    def unfit(self, thresholds: Thresholds | None = None) -> Unfit | None:
        """Return why drafts cannot be judged here, where the policy wants some.

        Asked anew for every query: the home model may be another one since.

        Args:
            thresholds: by these; None: by those that the policy names.
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
        """The share of bad ones among accepted drafts that is promised; None: none."""
        shipped = (each.thresholds.alpha for each in self._shipped)
        own = self._thresholds
        return max(shipped, default=None) if own is None else own.alpha

    @property
    def judges(self) -> bool:
        """Whether drafts of the model that runs can be judged."""
        judges = [each.thresholds for each in self._shipped]
        if self._thresholds is not None:
            judges = [self._thresholds]
        return any(self.unfit(each) is None for each in judges)

    def remedy(self, routed: Routed, require: Require | None = None) -> str:
        """Say why nobody was chosen, and what to do; empty where somebody was.

        Args:
            routed: what ``route`` returned.
            require: what the query required; told is what stands against that kind.
        """
        refusal = routed.choice.refusal
        if refusal is None:
            return ""
        if require is None or refusal is not Refusal.REQUIRED_UNMET:
            return REMEDIES[refusal]
        kinds = {tier.id: tier.kind for tier in self.plan.tiers}
        why = [
            EXPLAINED[self._last_failure[tier]]
            if denial is Denial.UNAVAILABLE and tier in self._last_failure
            else WHY_NOT[denial]
            for tier, denial in routed.choice.denied
            if kinds.get(tier) is require.kind
        ]
        none = f"the policy names no tier of the kind {require.value!r}"
        return required_unmet(why[0] if why else none)

    def price(self, tier: Tier) -> int:
        """Return what a million tokens cost there, in millionths of a US dollar."""
        return _priors(self.plan.tier(tier.id)).cost_microusd_per_mtok

    def views(self) -> dict[str, TierView]:
        """Return what is known of each tier now."""
        now_ms = self.now_ms()
        if self._device is not None and now_ms - self._looked_ms > LOOK_MS:
            self._looked_ms = now_ms
            now = self._device()
            for each in self._health.values():
                each.note_device(on_battery=now.on_battery, metered=now.metered)
        for tier in self.plan.tiers:
            if tier.kind is TierKind.IN_PROCESS:
                # Not once for all: memory may have been too short for the usual one,
                # and another model may have taken over.
                health = self._health[tier.id]
                health.context_tokens = self._home_tokens()
                measured = self._home_quality()
                if tier.priors.quality_permille is None:
                    usual = _priors(tier).quality_permille
                    health.quality_permille = usual if measured is None else measured
        return {name: each.view(now_ms) for name, each in self._health.items()}

    def left_alone_s(self, tier: str) -> int | None:
        """Return for how long a tier is left alone yet, by its id; None: it is not."""
        left_ms = self._health[tier].left_alone_ms(self.now_ms())
        return None if left_ms is None else ceil(left_ms / 1000)

    def begins_s(self, tier: Tier, estimate: Estimate) -> float:
        """Return by when a tier's first text is due once it is its turn, at worst."""
        view = replace(self._health[tier.id].view(self.now_ms()), queue_ms=0.0)
        return view.ttft_ms(estimate.prompt_tokens, slow=True) / 1000

    def follow(self, tier: Tier, estimate: Estimate) -> "Following":
        """Begin to ask a tier of the mask."""
        health = self._health[tier.id]
        prompt = estimate.prompt_tokens
        # None where it is to be left alone just now, and is asked all the same: there
        # is no other.
        attempt = health.begin(self.now_ms(), prompt_tokens=prompt)
        return Following(self, tier.id, health, attempt)

    def probes(self, *, first: bool = False) -> Iterator["Following"]:
        """Yield an attempt at each enclave that failed and may be there again.

        It is to be made beside the questions, by one that is none: what may be dead
        keeps nobody waiting. While it runs, the tier is left alone.

        Args:
            first: also at one that has not failed, since nothing is known of it yet.
        """
        for tier in self.plan.tiers:
            if tier.kind is not TierKind.ATTESTED:
                continue
            health = self._health[tier.id]
            state = health.view(self.now_ms()).state
            unknown = first and state is BreakerState.CLOSED
            if unknown or state is BreakerState.HALF_OPEN:
                attempt = health.begin(self.now_ms(), prompt_tokens=0)
                if attempt is not None:
                    yield Following(self, tier.id, health, attempt)

    def answered(self, conversation: bytes, tier: str) -> None:
        """Remember who answered in a conversation: another costs something."""
        self._last_tier[conversation] = tier
        self._last_tier.move_to_end(conversation)
        if len(self._last_tier) > MAX_CONVERSATIONS:
            self._last_tier.popitem(last=False)

    def failed(self, tier: str, reason: FailureReason | None) -> None:
        """Remember why a tier failed last, by its id; None: it did not."""
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
        """Note that an enclave can begin at once; see ``TierHealth.ready``.

        Args:
            tier: the enclave.
            life_s: for how long its key is in force.
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
    """One attempt at one tier: what comes of it is noted in the tier's figures.

    As a context manager: it notes the failure that goes through it, and whoever leaves
    without an end has said nothing of the tier.
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
        """Note how it ended."""
        now_ms = self._router.now_ms()
        if isinstance(error, AnswererError) and error.reason not in _OF_THE_QUERY:
            self._router.failed(self._tier, error.reason)
            if self._attempt is not None:
                failure = _FAILURES.get(error.reason, Failure.BROKEN)
                later_ms = 1000.0 * (error.retry_after_s or 0)
                self._health.failed(
                    self._attempt, now_ms, failure, retry_after_ms=later_ms
                )
        elif self._attempt is not None:
            self._health.dropped(self._attempt, now_ms)  # unless it has ended

    def there(self) -> None:
        """Note that it is there, though it answered nothing."""
        self._router.failed(self._tier, None)
        if self._attempt is not None:
            self._health.finished(self._attempt, self._router.now_ms())

    def saw(self, event: AnswerEvent) -> None:
        """Note an event of the answer."""
        now_ms = self._router.now_ms()
        if isinstance(event, Finished):
            self._router.failed(self._tier, None)
            if self._attempt is not None:
                tokens = event.completion_tokens
                self._health.finished(self._attempt, now_ms, tokens=tokens)
        elif self._attempt is not None:
            self._health.text(self._attempt, now_ms)


def question_of(query: Query) -> str:
    """Return the last turn of its sender; empty where there is none."""
    turns = (each for each in reversed(query.messages) if each.role == "user")
    asked = next(turns, None)
    return "" if asked is None else asked.content


def required_unmet(why: str) -> str:
    """Say why the only one that might answer did not, and what to do."""
    return f"{why}; {REMEDIES[Refusal.REQUIRED_UNMET]}"


def _priors(tier: TierPlan) -> TierPriors:
    """Return what the policy expects of a tier; of its kind, what it leaves open."""
    said = {k: v for k, v in asdict(tier.priors).items() if v is not None}
    if tier.cost_microusd_per_mtok:
        said["cost_microusd_per_mtok"] = tier.cost_microusd_per_mtok
    return replace(PRIORS[tier.kind], **said)
