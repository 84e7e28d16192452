"""Whether routing pays: what a trace and graded answers say, with intervals.

Pure: lines and figures in, an ``Advice`` out. Nothing of it is promised beforehand:
what others promise (70 to 85 % at home, 60 to 80 % saved) stands beside what this
traffic gives, and the advice may be not to route at all.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum, unique
from hashlib import blake2b
from itertools import count
from math import ceil, exp, log2, sqrt
from statistics import NormalDist, median
from typing import Final

from curtilage.client.errors import UsageError
from curtilage.client.local.reasons import LocalFailure
from curtilage.client.routing.bounds import lower_bound, upper_bound
from curtilage.client.routing.figures import TierFigures
from curtilage.client.routing.trace import (
    TOKENS,
    TraceLine,
    TraceOutcome,
    below,
)
from curtilage.client.routing.utility import Reason
from curtilage.lab.routing.certify import MIN_GRADED
from curtilage.policy.decision.tiers import TierKind

Draw = Callable[[], float]
"""Draws a number from 0 up to 1, as ``random.random`` does."""

PROMISED_AT_HOME: Final = (0.70, 0.85)
PROMISED_SAVING: Final = (0.60, 0.80)
QUALITIES: Final = (0.90, 0.95, 0.99)

ONE_KIND: Final = 0.95  # of the queries: then one tier is enough for all of them
SMALL_QUERIES: Final = 100_000  # a day, below which upkeep is not repaid
SMALL_TOKENS: Final = 200_000
MIN_FEEDBACK: Final = 100
QUALITY_KEPT: Final = 0.95  # at which less than this much at home is not worth it
WORTH_KEEPING: Final = 0.10
_LEVEL: Final = 0.05
_REPETITIONS: Final = 400
_DAY_S: Final = 86_400
_NORMAL: Final = 40  # from which a Poisson count is drawn as a normal one
_LEAST: Final = 2.0**-53
_MTOK: Final = 1_000_000
# What a sealed request is padded to, in octets, and about how much of it is no text.
_REQUESTS: Final = tuple(4**power * 1024 for power in range(1, 6))
_AROUND_A_TEXT: Final = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A figure, and between which two it lies with 95 % confidence."""

    low: float
    value: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One graded question.

    Attributes:
        ease: larger means kept home sooner.
        weak: how good the home model's answer was, 0 to 1.
        strong: how good the strong tier's was.
    """

    ease: float
    weak: float
    strong: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CoverShape:
    """What a dummy costs on the wire.

    Attributes:
        percent: of the questions that stay home, so many have one.
        frame_bytes: of one frame of an answer.
        period_ms: between two frames.
        first_bucket: frames of the shortest answer; the others double it.
        buckets: how many lengths there are.
    """

    percent: int
    frame_bytes: int
    period_ms: int
    first_bucket: int
    buckets: int


@unique
class Against(StrEnum):
    """A reason not to route; a closed set."""

    HOMOGENEOUS = "homogeneous"
    ONE_TIER = "one_tier"
    HARD = "hard"
    SMALL = "small"
    UNTESTED = "untested"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The share at home of a part of the traffic, such as an intent."""

    name: str
    queries: int
    at_home: Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What all of it costs in a day, without routing and with it.

    Attributes:
        before: everything at the strongest tier that was permitted.
        after: where the router would have it, or has it.
        saving: 1 less the second by the first.
    """

    before: Interval
    after: Interval
    saving: Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Feasible:
    """How much can stay home at a quality.

    Attributes:
        quality: of what the strong tier alone would have.
        share: at home, the easiest first.
        by_chance: the share if nobody knew which are easy.
    """

    quality: float
    share: Interval
    by_chance: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CoverCost:
    """What dummies cost, per 100 queries.

    Attributes:
        at_home: the share at home that this is for.
        dummies: how many.
        octets: up and down, together.
    """

    at_home: float
    dummies: float
    octets: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """What a trace says.

    Attributes:
        queries: lines that a tier answered.
        unanswered: queries that had no answer.
        forced: queries that another tier than the chosen one answered, because that
            one could not be reached. They show no choice, and are not counted further.
        days: from the first line to the last, one at least.
        queries_per_day: of all devices.
        tokens_per_day: of all devices; the sizes are classes, so it is an interval.
        may_leave: share of the queries that some enclave might have answered.
        at_home: share that the router answers locally or on premises, or would.
        at_home_of_free: the same of those that may leave.
        intents: the same by intent, the most frequent first.
        lengths: the same by the queries' length in characters.
        cost: in millionths of a US dollar a day.
        energy: in joules a day; None where a tier's is not known.
        ratio: mean quality of the home model by that of the strong tier.
        feasible: how much could stay home at each quality.
        kept: quality that is left at the promised shares at home.
        cover: what dummies cost; empty where none is to be told.
        against: why not to route; empty: it may pay.
    """

    queries: int
    unanswered: int
    forced: int
    days: float
    queries_per_day: float
    tokens_per_day: Interval
    may_leave: Interval
    at_home: Interval
    at_home_of_free: Interval
    intents: tuple[Part, ...]
    lengths: tuple[Part, ...]
    cost: Spent
    energy: Spent | None
    ratio: float | None
    feasible: tuple[Feasible, ...]
    kept: tuple[float, ...]
    cover: tuple[CoverCost, ...]
    against: tuple[Against, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Way:
    """One query: where it would go without routing, and where with it."""

    line: TraceLine
    before: str
    after: str


def advise(
    lines: Iterable[TraceLine],
    tiers: Sequence[TierFigures],
    *,
    judged: Sequence[Judged] = (),
    devices: int = 1,
    cover: CoverShape | None = None,
    draw: Draw,
) -> Advice:
    """Say what routing gives on this traffic.

    Args:
        lines: the trace.
        tiers: what each tier costs.
        judged: graded questions of the same traffic.
        devices: how many such devices there are.
        cover: how cover traffic is shaped; None: say nothing of it.
        draw: for the bootstrap.

    Raises:
        UsageError: nothing in the trace was answered, or it names a tier that is not
            among ``tiers``.
    """
    said = list(lines)
    answered = [line for line in said if line.answered]
    if not answered:
        raise UsageError("no line of the trace tells of an answer")
    ways = [_way_of(line) for line in answered if not _is_forced(line)]
    if not ways:
        raise UsageError(
            "no line of the trace shows a choice: the tier that was chosen could never "
            "be reached, and another one answered; see `curtilage route stats`"
        )
    used = {name for each in ways for name in (each.before, each.after)}
    if unknown := used - {each.id for each in tiers}:
        raise UsageError(
            f"the trace names {', '.join(sorted(unknown))}, which the policy has not; "
            "give the policy that it was written under with --policy"
        )
    near = {each.id for each in tiers if each.kind is not TierKind.ATTESTED}
    free = [each for each in ways if not near.issuperset(each.line.permitted)]

    def home(part: Sequence[_Way]) -> Interval:
        return proportion(sum(each.after in near for each in part), len(part))

    at_home, at_home_of_free = home(ways), home(free)
    minutes = [each.line.minute for each in ways]
    days = max((max(minutes) - min(minutes)).total_seconds() / _DAY_S, 1.0)
    scale = devices / days
    joules = {each.id: each.joules_per_token for each in tiers}
    energy = {name: each for name, each in joules.items() if each is not None}
    price = {each.id: each.microusd_per_mtok / _MTOK for each in tiers}
    tokens = _spent(ways, dict.fromkeys(used, 1.0), scale, draw).after
    feasible = tuple(feasible_at(judged, each, draw) for each in QUALITIES if judged)
    feedback = sum(each.feedback is not None for each in said)
    graded = len(judged) >= MIN_GRADED or feedback >= MIN_FEEDBACK
    reasons = {
        Against.HOMOGENEOUS: _one_kind(each.line.intent for each in ways),
        Against.ONE_TIER: not free or at_home_of_free.value >= ONE_KIND,
        Against.HARD: bool(free)
        and (
            at_home_of_free.value <= 1 - ONE_KIND
            or any(
                each.quality == QUALITY_KEPT and each.share.value < WORTH_KEEPING
                for each in feasible
            )
        ),
        Against.SMALL: len(ways) * scale < SMALL_QUERIES or tokens.value < SMALL_TOKENS,
        Against.UNTESTED: not graded,
    }
    return Advice(
        queries=len(ways),
        unanswered=sum(each.outcome is TraceOutcome.REFUSED for each in said),
        forced=len(answered) - len(ways),
        days=days,
        queries_per_day=len(ways) * scale,
        tokens_per_day=tokens,
        may_leave=proportion(len(free), len(ways)),
        at_home=at_home,
        at_home_of_free=at_home_of_free,
        intents=_parts(ways, home, lambda way: way.line.intent),
        lengths=_parts(ways, home, lambda way: f"up to {way.line.length:,} characters"),
        cost=_spent(ways, price, scale, draw),
        energy=_spent(ways, energy, scale, draw) if used <= energy.keys() else None,
        ratio=_ratio(judged),
        feasible=feasible,
        kept=tuple(quality_at(judged, each) for each in PROMISED_AT_HOME if judged),
        cover=()
        if cover is None
        else _cover(ways, near, cover, (at_home.value, *PROMISED_AT_HOME)),
        against=tuple(each for each, holds in reasons.items() if holds),
    )


def repeatable(seed: int) -> Draw:
    """Return draws that are the same for the same seed; for a bootstrap, no secret."""

    def numbers() -> Iterator[float]:
        for block in count():
            drawn = blake2b(f"{seed}|{block}".encode()).digest()
            for at in range(0, len(drawn), 8):
                yield (int.from_bytes(drawn[at : at + 8], "big") >> 11) * _LEAST

    return numbers().__next__


def proportion(some: int, of: int) -> Interval:
    """Return a share with its Clopper-Pearson interval, from 0 to 1 of nothing."""
    return Interval(
        low=lower_bound(some, of, _LEVEL / 2),
        value=some / of if of else 0.0,
        high=upper_bound(some, of, _LEVEL / 2),
    )


def feasible_at(judged: Sequence[Judged], quality: float, draw: Draw) -> Feasible:
    """Return how much can stay home while that much of the quality is left.

    Args:
        judged: graded questions, one at least; ``ease`` made without the grades.
        quality: 0 to 1, of what the strong tier alone would have.
        draw: for the bootstrap.
    """
    shares = [
        _share_at([judged[int(draw() * len(judged))] for _ in judged], quality)
        for _ in range(_REPETITIONS // 2)
    ]
    ratio = _ratio(judged)
    lost = 1.0 if ratio is None else max(1 - ratio, 0.0)
    return Feasible(
        quality=quality,
        share=_interval(shares, value=_share_at(judged, quality)),
        by_chance=min(1.0, (1 - quality) / lost) if lost else 1.0,
    )


def _share_at(judged: Sequence[Judged], quality: float) -> float:
    ranked = sorted(judged, key=lambda each: -each.ease)
    kept = sum(each.strong for each in ranked)
    wanted, best = quality * kept, 0
    for at_home, each in enumerate(ranked, start=1):
        kept += each.weak - each.strong
        if kept >= wanted:
            best = at_home
    return best / len(ranked)


def quality_at(judged: Sequence[Judged], share: float) -> float:
    """Return what is left of the strong tier's quality with so much at home."""
    ranked = sorted(judged, key=lambda each: -each.ease)
    strong = sum(each.strong for each in ranked)
    here = ranked[: round(share * len(ranked))]
    lost = sum(each.strong - each.weak for each in here)
    return (strong - lost) / strong if strong else 1.0


def _ratio(judged: Sequence[Judged]) -> float | None:
    strong = sum(each.strong for each in judged)
    return sum(each.weak for each in judged) / strong if strong else None


def _way_of(line: TraceLine) -> _Way:
    # The least private of the permitted: as if there were no router, and all that may
    # leave left. While observing, that is also what happened.
    used = line.tier or ""
    return _Way(
        line=line,
        before=line.permitted[-1] if line.permitted else used,
        after=line.would_choose or used,
    )


def _is_forced(line: TraceLine) -> bool:
    """Return whether another tier answered than the one that was chosen."""
    if line.would_choose is not None:  # while the policy observes
        return False
    # A draft that was rejected is the way that routing takes.
    failed = line.fallback not in {None, LocalFailure.DRAFT_REJECTED}
    return failed or line.why == Reason.UNAVAILABLE


def _one_kind(intents: Iterable[str]) -> bool:
    counted = Counter(intents)
    name, most = counted.most_common(1)[0]
    # Of what the estimator does not know nobody can say that it is all of a kind.
    return name != "unknown" and most >= ONE_KIND * counted.total()


def _parts(
    ways: Sequence[_Way],
    home: Callable[[Sequence[_Way]], Interval],
    name_of: Callable[[_Way], str],
) -> tuple[Part, ...]:
    parts: dict[str, list[_Way]] = {}
    for way in ways:
        parts.setdefault(name_of(way), []).append(way)
    return tuple(
        Part(name=name, queries=len(part), at_home=home(part))
        for name, part in sorted(parts.items(), key=lambda each: -len(each[1]))
    )


def _spent(
    ways: Sequence[_Way], price: Mapping[str, float], scale: float, draw: Draw
) -> Spent:
    """Bootstrap what the tokens cost; of tokens, only the classes are known."""
    cells = Counter(
        (each.before, each.after, each.line.prompt_tokens, each.line.answer_tokens)
        for each in ways
    )
    before: list[float] = []
    after: list[float] = []
    for _ in range(_REPETITIONS):
        # One place inside the classes for a whole repetition: whether texts lie rather
        # at the upper or at the lower end does not even out over many.
        prompt_at, answer_at = draw(), draw()
        sums = [0.0, 0.0]
        for (unrouted, routed, prompt, answer), queries in cells.items():
            tokens = _inside(prompt, prompt_at)
            tokens += 0.0 if answer is None else _inside(answer, answer_at)
            tokens *= _poisson(queries, draw)
            sums[0] += tokens * price[unrouted] * scale
            sums[1] += tokens * price[routed] * scale
        before.append(sums[0])
        after.append(sums[1])
    return Spent(
        before=_interval(before),
        after=_interval(after),
        saving=_interval(
            [
                1 - routed / unrouted if unrouted else 0.0
                for unrouted, routed in zip(before, after, strict=True)
            ]
        ),
    )


def _inside(size: int, at: float) -> float:
    least = below(size, TOKENS)
    return least + at * (size - least)


def _poisson(mean: int, draw: Draw) -> float:
    if mean > _NORMAL:
        return max(0.0, NormalDist(mean, sqrt(mean)).inv_cdf(draw() or _LEAST))
    # Knuth's: as many as fit before a product of uniforms falls below e to the -mean.
    fitted, product, least = -1, 1.0, exp(-mean)
    while product > least:
        fitted += 1
        product *= draw()
    return fitted


def _interval(values: Sequence[float], *, value: float | None = None) -> Interval:
    ranked = sorted(values)
    last = len(ranked) - 1
    return Interval(
        low=ranked[round(_LEVEL / 2 * last)],
        value=median(ranked) if value is None else value,
        high=ranked[round((1 - _LEVEL / 2) * last)],
    )


def _cover(
    ways: Sequence[_Way], near: set[str], cover: CoverShape, shares: Iterable[float]
) -> tuple[CoverCost, ...]:
    sealed = [
        next(
            (each for each in _REQUESTS if way.line.length + _AROUND_A_TEXT <= each),
            _REQUESTS[-1],
        )
        for way in ways
    ]
    # A dummy's answer is as long as those of real queries: of those that were answered
    # outside, or, while none was, the shortest.
    frames = [
        _frames(way.line.total_ms, cover) for way in ways if way.line.tier not in near
    ] or [cover.first_bucket]
    octets = sum(sealed) / len(sealed) + cover.frame_bytes * sum(frames) / len(frames)
    return tuple(
        CoverCost(
            at_home=at_home,
            dummies=at_home * cover.percent,
            octets=at_home * cover.percent * octets,
        )
        for at_home in shares
    )


def _frames(total_ms: int, cover: CoverShape) -> int:
    doubled = ceil(log2(max(total_ms / cover.period_ms / cover.first_bucket, 1.0)))
    return int(cover.first_bucket * 2 ** min(doubled, cover.buckets - 1))
