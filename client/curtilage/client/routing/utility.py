"""Chooses among the permitted tiers: restricts, scores and orders them.

Pure. The input is what the policy permits; each stage can only remove from it. Then
each remaining tier gets a score, and among tiers with about equal scores the more
private one is asked first. The score is the share of such questions that the tier
solves, minus the costs of latency, money, risk and switching. If the operator has an
aim, its line (``aim``) replaces money and switching: above it, an enclave is asked.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum, unique
from math import inf
from typing import Final, TypeAlias

from curtilage.client.chat.options import Mode, RoutingOptions
from curtilage.client.routing.aim import REFERENCE_SCALE, Scale
from curtilage.client.routing.breaker import BreakerState
from curtilage.client.routing.estimate import Estimate
from curtilage.client.routing.health import TierView
from curtilage.policy.decision.tiers import (
    Denial,
    Permitted,
    RoutingClass,
    Tier,
)
from curtilage.policy.document.routing_settings import Preference, Weights

REF_MICROUSD: Final = 1000
"""The cost that counts as one."""
SPECULATIVE: Final = frozenset({RoutingClass.PUBLIC, RoutingClass.INTERNAL})
"""The classes of which a second tier may be asked, as after a rejected draft. That
reveals to the enclave that a query was hard, and to an observer a delay."""
HARD_GAIN: Final = 0.2
"""Gain from which a question is called hard, independent of the aim's line."""
_USED_FREELY: Final = 0.6
"""Share of a rate limit that may be used up without a penalty."""


@unique
class Reason(StrEnum):
    """Why the first tier of a choice is the first; a closed set, safe to show.

    ``ONLY_PERMITTED``: the policy permits one. ``REQUIRED``, ``MODE``, ``OVERRIDE``:
    the sender's or the operator's setting. ``SLO``, ``CONTEXT``, ``CHEAPER``,
    ``UNAVAILABLE``: another would have been chosen, and may not or cannot answer.
    ``PRIVATE_TIE``: another is as good, or not known to be better, and less private.
    ``EASY``: estimated as easy, so a better answer elsewhere is not worth its cost.
    ``HARD``: estimated as hard, so it is. ``AIM``: neither, and the operator's aim or
    weights decide. ``FASTER``: it is faster.
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
    """Why no tier is left; a closed set, safe to show.

    ``NO_PERMITTED_TIER``: the policy permits none. ``REQUIRED_UNMET``: the required
    kind may not or cannot answer; ``Choice.denied`` has the reasons.
    ``HOME_UNAVAILABLE``: a local or on-premises answer was required, and no such tier
    may give one. The others name what excluded the last tiers.
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
    """Preferences of an operator, from the policy.

    Attributes:
        weights: of costs.
        total_ms: deadline for the complete answer, if the sender sets none.
        overrides: preferences by intent.
    """

    weights: Weights = field(default_factory=Weights)
    total_ms: int = 60_000
    overrides: Mapping[str, Preference] = field(default_factory=dict[str, Preference])


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The tiers to ask, in order.

    Attributes:
        order: a subset of the permitted tiers, the chosen one first; empty: a refusal.
        reason: why that is the first, or why there is none.
        refusal: why there is none.
        denied: id and reason of each other tier, the policy's own reasons first.
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
        views: the state of each tier, by its id; a tier without one cannot answer.
        estimate: the estimate for the query.
        options: the sender's options.
        settings: the weights.
        last: the tier that answered last in the conversation; None: none did.
        scale: the meaning of the estimate's gain.
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
        # One by one and not sorted by score: "beats" needs a minimum difference, so it
        # is not transitive, and a sort would depend on the order of comparisons.
        order.append(scores.best(rest))
    # What would have been chosen if every tier could answer: the reason names the
    # obstacle only if it changed the choice.
    unhindered = scores.best(known)
    if options.require is not None:
        reason = Reason.REQUIRED
    elif len(permitted.tiers) == 1:
        reason = Reason.ONLY_PERMITTED
    elif unhindered is order[0]:
        reason = scores.reason(unhindered, known)
    else:
        # It may still be available: it can be the best because an excluded tier beats
        # the more private one by the minimum difference, and it does not itself.
        gone = dict(left.denied)
        reason = _REASONS[gone.get(unhindered.id, left.denied[-1][1])]
        if reason is Reason.MODE and options.mode is not Mode.HOME:
            reason = Reason.OVERRIDE
    # Preferences of operator and sender only change the order. The sender's is applied
    # last and so takes precedence: it is about this query.
    for wish, later in _wishes(order, views, options, override):
        first = order[0]
        order.sort(key=later)  # stable: among equals, the scores decide
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
    """Return the scores of all tiers with a known state.

    With an aim, an enclave is compared with the best local tier that can answer now:
    the aim remains valid while a better one is out of order.
    """
    terms = {
        tier.id: terms_of(
            tier, views, estimate, options, settings, last=last, aimed=bar is not None
        )
        for tier in known
    }
    if bar is None:
        worth, least = _worth(views, scale), settings.weights.hysteresis / 1000
        # The rules only know an interval of the gain: a query is moved to a less
        # private tier only if that is better at both ends.
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
        elif home and tier.kind.outside:
            denial = Denial.MODE
        elif view is None:
            denial = Denial.MISSING
        else:
            denial = next(_shortcomings(view, estimate, options), None)
        if denial is not None:
            # ``Permitted`` can only be reduced, so a fault in this module cannot add a
            # tier.
            left = left.without(tier, denial)
    return left


def _shortcomings(
    view: TierView, estimate: Estimate, options: RoutingOptions
) -> Iterator[Denial]:
    """Yield what excludes a tier for this query, whatever its score."""
    prompt, answer = estimate.prompt_tokens, estimate.answer_tokens
    # The sender's limits come first: if there is no other tier, one with a different
    # shortcoming may be tried nevertheless, but these limits always apply.
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
    # Engines refuse what exceeds their context if the answer is as long as it may be.
    whole = prompt + max(answer, estimate.most_tokens)
    if view.context_tokens is not None and whole > view.context_tokens:
        yield Denial.CONTEXT


# In the order in which they are checked.
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
    # Without the policy's own denials, which the sender cannot remedy.
    denials = [denial for _, denial in left.denied[len(permitted.denied) :]]
    if options.require is not None and Denial.CONTEXT not in denials:
        refusal, reason = Refusal.REQUIRED_UNMET, Reason.REQUIRED
    elif not denials:
        refusal, reason = Refusal.NO_PERMITTED_TIER, Reason.ONLY_PERMITTED
    else:
        # Reported is what stopped the tier that came furthest: that can be remedied.
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
    """Yield preferences that precede the scores, and the tiers that each puts last."""
    if override is Preference.PREFER_HOME:
        yield Reason.OVERRIDE, lambda tier: tier.kind.outside
    if override is Preference.PREFER_STRONG:
        most = max(views[tier.id].quality_permille for tier in order)
        yield Reason.OVERRIDE, lambda tier: views[tier.id].quality_permille < most
    if options.mode is Mode.ENCLAVE_IF_ALLOWED:
        yield Reason.MODE, lambda tier: not tier.kind.outside


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """A tier's quality and its deductions, all in units of quality.

    Attributes:
        quality: share of ordinary questions that it solves.
        latency: deduction for its latency.
        cost: deduction for its cost.
        risk: deduction for its risk.
        switch: deduction because another tier answered before.
    """

    quality: float
    latency: float
    cost: float
    risk: float
    switch: float

    @property
    def taken(self) -> float:
        """Sum of all deductions."""
        return self.latency + self.cost + self.risk + self.switch


Worth: TypeAlias = Callable[[str, float], float]
"""Share of such questions that a tier solves, by its id and the estimated gain."""


def _worth(views: Mapping[str, TierView], scale: Scale) -> Worth:
    """Return it, based on the tiers' quality."""
    return lambda tier, gain: solved_by(views[tier], gain, scale)


def _worth_above(
    bar: float, able: Sequence[Tier], views: Mapping[str, TierView], scale: Scale
) -> Worth:
    """Return it for an aim: from some need on, an enclave's answers count as better.

    They count as better than those of the best other tier by the difference between the
    need and the bar; below the bar, as worse.
    """
    plain = _worth(views, scale)
    others = [each.id for each in able if not each.kind.outside]
    best = max(others, key=lambda each: views[each].quality_permille, default=None)
    span = scale.gain_of(1.0)

    def worth(tier: str, gain: float) -> float:
        if best is None or not views[tier].kind.outside:
            return plain(tier, gain)
        return plain(best, gain) + span * (scale.need(gain) - bar)

    return worth


def solved_by(view: TierView, gain: float, scale: Scale) -> float:
    """Return the share of questions of an estimated gain that a tier solves."""
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
    """Return the terms of a tier's score; arguments as for ``choose``.

    ``aimed``: the operator's aim replaces cost and switching.
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
    # Only the upper part of a rate limit is risky: below it, a penalty would move
    # queries for no reason.
    risk = max(0.0, (view.rate_used - _USED_FREELY) / (1 - _USED_FREELY))
    risk += (view.state is BreakerState.HALF_OPEN) + view.strained
    cost = view.cost_microusd(prompt, answer) / REF_MICROUSD
    return Terms(
        quality=view.quality_permille / 1000,
        latency=lateness(times, options, settings),
        cost=0.0 if aimed else settings.weights.cost * cost / 1000,
        risk=settings.weights.risk * risk / 1000,
        switch=0.0
        if aimed or last in {None, tier.id}
        else settings.weights.switch / 1000,
    )


def lateness(
    times: Sequence[tuple[float, float]],
    options: RoutingOptions,
    settings: UtilitySettings,
) -> float:
    """Return the mean penalty for exceeding the deadlines.

    Args:
        times: in milliseconds, until the first text and until the end.
        options: the deadlines.
        settings: the default deadline, and the penalty's weight.
    """
    most_ms = settings.total_ms if options.total_ms is None else options.total_ms
    late = 0.0
    # The mean over a typical and a slow case: a tier that is usually fast and sometimes
    # very slow is penalised for it.
    for first_ms, total_ms in times:
        over = total_ms / most_ms
        if options.ttft_ms is not None:
            over = max(over, first_ms / options.ttft_ms)
        late += max(0.0, over - 1) / len(times)
    return settings.weights.latency * late / 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scores:
    """The tiers' scores, and when one beats another.

    Attributes:
        terms: by tier id.
        worth: the quality from which the deductions are subtracted.
        gain: the expected one.
        gains: those at which a less private tier must be better to be preferred.
        least: the minimum difference.
    """

    terms: Mapping[str, Terms]
    worth: Worth
    gain: float
    gains: tuple[float, ...]
    least: float

    def of(self, tier: Tier) -> float:
        """Return a tier's score."""
        return self._at(tier, self.gain)

    def best(self, tiers: Sequence[Tier]) -> Tier:
        """Return the most private tier that no less private one beats."""
        return next(
            tier
            for at, tier in enumerate(tiers)
            # Only less private tiers have to prove that they are better; a more private
            # one wins a tie.
            if not any(
                all(
                    self._at(each, gain) - self._at(tier, gain) > self.least
                    for gain in self.gains
                )
                for each in tiers[at + 1 :]
            )
        )

    def reason(self, chosen: Tier, known: Sequence[Tier]) -> Reason:
        """Return the main reason for the chosen tier, compared with the next best."""
        others = [tier for tier in known if tier is not chosen]
        if not others:
            return Reason.UNAVAILABLE
        rival = self.best(others)
        if self.of(chosen) <= self.of(rival):
            return Reason.PRIVATE_TIE
        mine, other = self.terms[chosen.id], self.terms[rival.id]
        hard, weaker = self.gain >= HARD_GAIN, mine.quality < other.quality
        # It is only called easy or hard if it was estimated so.
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
