"""Which of the permitted tiers should answer: narrow, score, order.

Pure. What comes in is what the policy permits; each stage can only take from it. Then
each tier that is left gets a number, and of tiers that are about equal the more private
one is asked first. The number is the share of such questions that the tier solves, less
what lateness, cost, risk and change are worth. Where the operator has an aim, its line
(``aim``) takes the place of cost and change, and an enclave is asked above it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum, unique
from math import inf
from typing import Final, TypeAlias

from curtilage.client.options import Mode, RoutingOptions
from curtilage.client.routing.aim import REFERENCE_SCALE, Scale
from curtilage.client.routing.breaker import BreakerState
from curtilage.client.routing.estimate import Estimate, Intent
from curtilage.client.routing.health import TierView
from curtilage.policy.decision.tiers import (
    Denial,
    Permitted,
    RoutingClass,
    Tier,
    TierKind,
)
from curtilage.policy.document.routing_plan import Preference

SPECULATIVE: Final = frozenset({RoutingClass.PUBLIC, RoutingClass.INTERNAL})
"""The classes of which a second tier may be asked, as after a rejected draft. That
reveals to the enclave that a query was hard, and to an observer a delay."""
HARD_GAIN: Final = 0.2
"""From such a gain on a question is called hard, wherever the aim's line is."""
_USED_FREELY: Final = 0.6
"""Share of a rate limit below which nothing speaks against using more."""


@unique
class Reason(StrEnum):
    """Why the first tier of a choice is the first; a closed set, safe to tell.

    ``ONLY_PERMITTED``: policy left one. ``REQUIRED``, ``MODE``, ``OVERRIDE``: the
    sender or the operator said so. ``SLO``, ``CONTEXT``, ``CHEAPER``, ``UNAVAILABLE``:
    another had been chosen, and may not or cannot answer. ``PRIVATE_TIE``: another is
    as good, or not known to be better, and less private. ``EASY``: it was found easy,
    and a better answer elsewhere is not worth what it costs. ``HARD``: it was found
    hard, and it is. ``AIM``: it was found neither, and the operator's aim or weights
    decide. ``FASTER``: it is sooner there.
    """

    ONLY_PERMITTED = "only_permitted"
    EASY = "easy"
    HARD = "hard"
    AIM = "aim"
    FASTER = "faster"
    CHEAPER = "cheaper"
    REQUIRED = "required"
    MODE = "mode"
    SLO = "slo"
    CONTEXT = "context"
    UNAVAILABLE = "unavailable"
    PRIVATE_TIE = "private_tie"
    OVERRIDE = "override"


@unique
class Refusal(StrEnum):
    """Why no tier is left; a closed set, safe to tell.

    ``NO_PERMITTED_TIER``: the policy permits none. ``REQUIRED_UNMET``: the kind that
    was asked for may not or cannot answer; ``Choice.denied`` says why.
    ``HOME_UNAVAILABLE``: it was to stay home, and none there may answer. The others
    say what the last ones failed at.
    """

    NO_PERMITTED_TIER = "no_permitted_tier"
    REQUIRED_UNMET = "required_unmet"
    HOME_UNAVAILABLE = "home_unavailable"
    UNAVAILABLE = "unavailable"
    CONTEXT_TOO_LONG = "context_too_long"
    COST_UNMEETABLE = "cost_unmeetable"
    SLO_UNMEETABLE = "slo_unmeetable"


@dataclass(frozen=True, slots=True, kw_only=True)
class UtilitySettings:
    """What things are worth against each other, as the policy says it.

    Attributes:
        latency_permille: being as late again as the time there was.
        cost_permille: costing ``ref_microusd``.
        risk_permille: being about to fail: little headroom, a breaker half open, the
            battery or a metered network used up.
        switch_permille: another tier than that of the conversation's last answer.
        hysteresis_permille: a difference in quality that counts as none. Where there is
            an aim: so many ranks beyond its line a conversation changes tiers.
        ref_microusd: the cost that counts as one.
        total_ms: when the answer should be complete, where its sender does not say.
        overrides: what the operator says of intents.
    """

    latency_permille: int = 250
    cost_permille: int = 80
    risk_permille: int = 50
    switch_permille: int = 20
    hysteresis_permille: int = 20
    ref_microusd: int = 1000
    total_ms: int = 60_000
    overrides: Mapping[Intent, Preference] = field(
        default_factory=dict[Intent, Preference]
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Which tiers to ask, in which order.

    Attributes:
        order: a subset of what is permitted, the chosen one first; empty: a refusal.
        reason: why that is the first, or what left none.
        refusal: why there is none.
        denied: each other tier's id and why, the policy's own reasons first.
        scores: of each tier in ``order``.
    """

    order: tuple[Tier, ...]
    reason: Reason
    refusal: Refusal | None
    denied: tuple[tuple[str, Denial], ...]
    scores: tuple[float, ...]


def choose(
    permitted: Permitted,
    views: Mapping[str, TierView],
    estimate: Estimate,
    options: RoutingOptions,
    settings: UtilitySettings,
    *,
    last: str | None,
    scale: Scale = REFERENCE_SCALE,
    bar: float | None = None,
) -> Choice:
    """Choose among the permitted tiers.

    Args:
        permitted: what the policy permits for this query.
        views: by tier id, what is known of each; a tier without one cannot answer.
        estimate: what is expected of the query.
        options: what its sender asks.
        settings: what things are worth.
        last: the tier that answered in the conversation before; None: none did.
        scale: what the estimate's gain means.
        bar: the need from which an enclave is asked, by the operator's aim; None: there
            is no aim, and costs decide.
    """
    override = settings.overrides.get(estimate.intent)
    left = _narrowed(permitted, views, estimate, options, override)
    if not left.tiers:
        return _refused(permitted, left, options)
    known = tuple(tier for tier in permitted.tiers if tier.id in views)
    scores = _scored(
        known,
        views,
        estimate,
        options,
        settings,
        last=last,
        scale=scale,
        bar=bar,
        able=left.tiers,
    )
    order: list[Tier] = []
    while rest := tuple(tier for tier in left.tiers if tier not in order):
        order.append(scores.best(rest))
    unhindered = scores.best(known)
    if options.require is not None:
        reason = Reason.REQUIRED
    elif len(permitted.tiers) == 1:
        reason = Reason.ONLY_PERMITTED
    elif unhindered is order[0]:
        reason = scores.reason(unhindered, known)
    else:
        # It may be left all the same: it was the best because one that is gone beat the
        # more private one, by the least difference, which it does not itself.
        gone = dict(left.denied)
        reason = _REASONS[gone.get(unhindered.id, left.denied[-1][1])]
        if reason is Reason.MODE and options.mode is not Mode.HOME:
            reason = Reason.OVERRIDE
    # What operator and sender would rather have changes the order alone; the sender's
    # wish comes last and so before the operator's, for it was said of this query.
    for wish, later in _wishes(order, views, options, override):
        first = order[0]
        order.sort(key=later)  # stable: among those that are alike the scores decide
        reason = reason if order[0] is first else wish
    return Choice(
        order=tuple(order),
        reason=reason,
        refusal=None,
        denied=left.denied,
        scores=tuple(scores.of(tier) for tier in order),
    )


def _scored(
    known: Sequence[Tier],
    views: Mapping[str, TierView],
    estimate: Estimate,
    options: RoutingOptions,
    settings: UtilitySettings,
    *,
    last: str | None,
    scale: Scale,
    bar: float | None,
    able: Sequence[Tier],
) -> "_Scores":
    """Return the numbers of all tiers that something is known of.

    With an aim an enclave is compared with the best local tier that can answer now: the
    aim holds while a better one is out of order.
    """
    terms = {
        tier.id: terms_of(
            tier, views, estimate, options, settings, last=last, aimed=bar is not None
        )
        for tier in known
    }
    if bar is None:
        worth, least = _worth(views, scale), settings.hysteresis_permille / 1000
        # The rules know no more of a gain than its interval: only what holds at both
        # ends takes a query away from where it is more private.
        bounded = estimate.source == "rules"
        gains = (estimate.gain_low, estimate.gain_high) if bounded else (estimate.gain,)
    else:
        worth, least = _worth_above(bar, able, views, scale), 0.0
        gains = (estimate.gain,)
    return _Scores(
        terms=terms, worth=worth, gain=estimate.gain, gains=gains, least=least
    )


def _narrowed(
    permitted: Permitted,
    views: Mapping[str, TierView],
    estimate: Estimate,
    options: RoutingOptions,
    override: Preference | None,
) -> Permitted:
    left = permitted
    home = options.mode is Mode.HOME or override is Preference.ONLY_HOME
    for tier in permitted.tiers:
        view = views.get(tier.id)
        denial: Denial | None
        if options.require is not None and tier.kind is not options.require.kind:
            denial = Denial.REQUIRED
        elif home and tier.kind is TierKind.ATTESTED:
            denial = Denial.MODE
        elif view is None:
            denial = Denial.MISSING
        else:
            denial = next(_shortcomings(view, estimate, options), None)
        if denial is not None:
            left = left.without(tier, denial)
    return left


def _shortcomings(
    view: TierView, estimate: Estimate, options: RoutingOptions
) -> Iterator[Denial]:
    """Yield what a tier lacks for this query, whatever it would score."""
    prompt, answer = estimate.prompt_tokens, estimate.answer_tokens
    # What its sender would not have comes first: who lacks something may be tried all
    # the same, where there is no other, and these limits hold for him as well.
    most = options.max_cost_microusd
    if most is not None and view.cost_microusd(prompt, answer) > most:
        yield Denial.COST
    if options.slo_hard and (
        view.ttft_ms(prompt, slow=True) > (options.ttft_ms or inf)
        or view.total_ms(prompt, answer, slow=True) > (options.total_ms or inf)
    ):
        yield Denial.SLO
    if not view.available:
        yield Denial.UNAVAILABLE
    if view.context_tokens is not None and prompt + answer > view.context_tokens:
        yield Denial.CONTEXT


# In the order in which they are looked at.
_REFUSALS: Final = {
    Denial.REQUIRED: Refusal.REQUIRED_UNMET,
    Denial.MODE: Refusal.HOME_UNAVAILABLE,
    Denial.MISSING: Refusal.UNAVAILABLE,
    Denial.UNAVAILABLE: Refusal.UNAVAILABLE,
    Denial.CONTEXT: Refusal.CONTEXT_TOO_LONG,
    Denial.COST: Refusal.COST_UNMEETABLE,
    Denial.SLO: Refusal.SLO_UNMEETABLE,
}
_REASONS: Final = {
    Denial.REQUIRED: Reason.REQUIRED,
    Denial.MODE: Reason.MODE,
    Denial.MISSING: Reason.UNAVAILABLE,
    Denial.UNAVAILABLE: Reason.UNAVAILABLE,
    Denial.CONTEXT: Reason.CONTEXT,
    Denial.COST: Reason.CHEAPER,
    Denial.SLO: Reason.SLO,
}


def _refused(permitted: Permitted, left: Permitted, options: RoutingOptions) -> Choice:
    denials = [denial for _, denial in left.denied[len(permitted.denied) :]]
    if options.require is not None:
        refusal, reason = Refusal.REQUIRED_UNMET, Reason.REQUIRED
    elif not denials:
        refusal, reason = Refusal.NO_PERMITTED_TIER, Reason.ONLY_PERMITTED
    else:
        # What stopped the tier that came furthest is what could be helped.
        furthest = max(denials, key=list(_REFUSALS).index)
        refusal, reason = _REFUSALS[furthest], _REASONS[furthest]
    return Choice(
        order=(), reason=reason, refusal=refusal, denied=left.denied, scores=()
    )


def _wishes(
    order: Sequence[Tier],
    views: Mapping[str, TierView],
    options: RoutingOptions,
    override: Preference | None,
) -> Iterator[tuple[Reason, Callable[[Tier], bool]]]:
    """Yield what comes before the scores, and which tiers go behind the others."""
    if override is Preference.PREFER_HOME:
        yield Reason.OVERRIDE, lambda tier: tier.kind is TierKind.ATTESTED
    if override is Preference.PREFER_STRONG:
        most = max(views[tier.id].quality_permille for tier in order)
        yield Reason.OVERRIDE, lambda tier: views[tier.id].quality_permille < most
    if options.mode is Mode.ENCLAVE_IF_ALLOWED:
        yield Reason.MODE, lambda tier: tier.kind is not TierKind.ATTESTED


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """A tier's quality, and what is taken from it; all as quality.

    Attributes:
        quality: share of ordinary questions that it solves.
        latency: what its lateness is worth.
        cost: what its cost is worth.
        risk: what its risk is worth.
        switch: what it is worth that another answered before.
    """

    quality: float
    latency: float
    cost: float
    risk: float
    switch: float

    @property
    def taken(self) -> float:
        """All that is taken."""
        return self.latency + self.cost + self.risk + self.switch


Worth: TypeAlias = Callable[[str, float], float]
"""What share of such questions a tier solves, by its id and the estimated gain."""


def _worth(views: Mapping[str, TierView], scale: Scale) -> Worth:
    """Return it as the tiers' qualities say it."""
    return lambda tier, gain: solved_by(views[tier], gain, scale)


def _worth_above(
    bar: float, able: Sequence[Tier], views: Mapping[str, TierView], scale: Scale
) -> Worth:
    """Return it where an enclave's answers count as better from a need on.

    By how much the need is above the bar, so much they are better than those of the
    best of the others; below it, so much worse.
    """
    plain = _worth(views, scale)
    others = [each.id for each in able if each.kind is not TierKind.ATTESTED]
    best = max(others, key=lambda each: views[each].quality_permille, default=None)
    span = scale.gain_of(1.0)

    def worth(tier: str, gain: float) -> float:
        if best is None or views[tier].kind is not TierKind.ATTESTED:
            return plain(tier, gain)
        return plain(best, gain) + span * (scale.need(gain) - bar)

    return worth


def solved_by(view: TierView, gain: float, scale: Scale) -> float:
    """Return what share of questions of an estimated gain a tier solves."""
    return scale.solved(view.quality_permille / 1000, scale.need(gain))


def terms_of(
    tier: Tier,
    views: Mapping[str, TierView],
    estimate: Estimate,
    options: RoutingOptions,
    settings: UtilitySettings,
    *,
    last: str | None,
    aimed: bool,
) -> Terms:
    """Return what a tier's number is made of; arguments as for ``choose``.

    ``aimed``: the operator's aim takes the place of cost and change.
    """
    view = views[tier.id]
    prompt, answer = estimate.prompt_tokens, estimate.answer_tokens
    times = [
        (
            view.ttft_ms(prompt, slow=slow),
            view.total_ms(prompt, answer, slow=slow),
        )
        for slow in (False, True)
    ]
    risk = max(0.0, (view.rate_used - _USED_FREELY) / (1 - _USED_FREELY))
    risk += (view.state is BreakerState.HALF_OPEN) + view.strained
    cost = view.cost_microusd(prompt, answer) / settings.ref_microusd
    return Terms(
        quality=view.quality_permille / 1000,
        latency=lateness(times, options, settings),
        cost=0.0 if aimed else settings.cost_permille * cost / 1000,
        risk=settings.risk_permille * risk / 1000,
        switch=0.0
        if aimed or last in {None, tier.id}
        else settings.switch_permille / 1000,
    )


def lateness(
    times: Sequence[tuple[float, float]],
    options: RoutingOptions,
    settings: UtilitySettings,
) -> float:
    """Return what it is worth to be as late as some times, in the mean over them.

    Args:
        times: in milliseconds, until the first text and until the end.
        options: when they should be there.
        settings: the same, where the sender does not say.
    """
    most_ms = settings.total_ms if options.total_ms is None else options.total_ms
    late = 0.0
    for first_ms, total_ms in times:
        over = total_ms / most_ms
        if options.ttft_ms is not None:
            over = max(over, first_ms / options.ttft_ms)
        late += max(0.0, over - 1) / len(times)
    return settings.latency_permille * late / 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scores:
    """The tiers' numbers, and when one beats another.

    Attributes:
        terms: by tier id.
        worth: the quality from which they are taken.
        gain: the expected one.
        gains: those at which a less private tier must be better to be so.
        least: the difference that is one.
    """

    terms: Mapping[str, Terms]
    worth: Worth
    gain: float
    gains: tuple[float, ...]
    least: float

    def of(self, tier: Tier) -> float:
        """Return a tier's number."""
        return self._at(tier, self.gain)

    def best(self, tiers: Sequence[Tier]) -> Tier:
        """Return the most private of some that none behind it beats."""
        return next(
            tier
            for at, tier in enumerate(tiers)
            if not any(self._beats(each, tier) for each in tiers[at + 1 :])
        )

    def reason(self, chosen: Tier, known: Sequence[Tier]) -> Reason:
        """Return what spoke most for the chosen tier, against the next best."""
        others = [tier for tier in known if tier is not chosen]
        if not others:
            return Reason.UNAVAILABLE
        rival = self.best(others)
        if self.of(chosen) <= self.of(rival):
            return Reason.PRIVATE_TIE
        mine, other = self.terms[chosen.id], self.terms[rival.id]
        hard, weaker = self.gain >= HARD_GAIN, mine.quality < other.quality
        # It is only called easy or hard where that was found.
        by_need = Reason.AIM
        if weaker != hard:
            by_need = Reason.EASY if weaker else Reason.HARD
        _, reason = max(
            (
                self.worth(chosen.id, self.gain) - self.worth(rival.id, self.gain),
                by_need,
            ),
            (other.latency - mine.latency, Reason.FASTER),
            (other.cost - mine.cost, by_need if weaker else Reason.CHEAPER),
            (other.risk - mine.risk, Reason.UNAVAILABLE),
            (other.switch - mine.switch, by_need),
            key=lambda each: each[0],
        )
        return reason

    def _at(self, tier: Tier, gain: float) -> float:
        return self.worth(tier.id, gain) - self.terms[tier.id].taken

    def _beats(self, one: Tier, other: Tier) -> bool:
        return all(
            self._at(one, each) - self._at(other, each) > self.least
            for each in self.gains
        )
