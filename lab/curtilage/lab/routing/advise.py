"""Advice whether routing pays, from a trace and graded answers, with intervals.

Pure: from lines and figures to an ``Advice``. Nothing is assumed: the usual claims (70
to 85 % kept local, 60 to 80 % saved) are compared with this traffic, and the advice may
be not to route at all.
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
from curtilage.client.routing.trace import TOKENS, TraceLine, TraceOutcome, below
from curtilage.client.routing.utility import Reason
from curtilage.lab.routing.certify import MIN_GRADED

Draw = Callable[[], float]
"""Returns a random number from 0 up to 1, as ``random.random`` does."""

PROMISED_AT_HOME: Final = (0.70, 0.85)
PROMISED_SAVING: Final = (0.60, 0.80)
QUALITIES: Final = (0.90, 0.95, 0.99)

ONE_KIND: Final = 0.95  # share of one kind at which one tier is enough for all
SMALL_QUERIES: Final = 100_000  # a day; with fewer, upkeep does not pay
SMALL_TOKENS: Final = 200_000
MIN_FEEDBACK: Final = 100
QUALITY_KEPT: Final = 0.95  # routing must keep enough local at this quality
WORTH_KEEPING: Final = 0.10
_LEVEL: Final = 0.05
_REPETITIONS: Final = 400
_DAY_S: Final = 86_400
_NORMAL: Final = 40  # Poisson means from here on use a normal distribution
_LEAST: Final = 2.0**-53
_MTOK: Final = 1_000_000
# The sizes in bytes that a sealed request is padded to, and the overhead per request.
_REQUESTS: Final = tuple(4**power * 1024 for power in range(1, 6))
_AROUND_A_TEXT: Final = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A figure with its 95 % confidence interval."""

    low: float
    value: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One graded question.

    Attributes:
        ease: questions with a larger value are kept local first.
        weak: how good the local model's answer was, 0 to 1.
        strong: how good the strong tier's answer was.
    """

    ease: float
    weak: float
    strong: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CoverShape:
    """The shape and cost of a dummy on the wire.

    Attributes:
        percent: the share of local questions that have one.
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
    """The local share of a part of the traffic, such as an intent."""

    name: str
    queries: int
    at_home: Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """The total cost per day, without and with routing.

    Attributes:
        before: everything at the strongest permitted tier.
        after: where the router sends it, or would.
        saving: 1 minus ``after`` / ``before``.
    """

    before: Interval
    after: Interval
    saving: Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Feasible:
    """The share that can be kept local at a quality.

    Attributes:
        quality: relative to the strong tier alone.
        share: kept local, the easiest first.
        by_chance: the share if the easy questions were unknown.
    """

    quality: float
    share: Interval
    by_chance: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CoverCost:
    """The cost of dummies per 100 queries.

    Attributes:
        at_home: the local share that this is for.
        dummies: how many.
        octets: up and down, together.
    """

    at_home: float
    dummies: float
    octets: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """The findings from a trace.

    Attributes:
        queries: lines with an answer of a tier.
        unanswered: queries without an answer.
        forced: queries that another tier answered because the chosen one could not be
            reached. They show no choice, and all other figures exclude them.
        days: from the first line to the last, at least one.
        queries_per_day: of all devices.
        tokens_per_day: of all devices; an interval, since sizes are classes.
        may_leave: share of the queries that an enclave was permitted to answer.
        at_home: share that the router answers locally or on premises, or would.
        at_home_of_free: the same, of those that may leave.
        intents: the same by intent, the most frequent first.
        lengths: the same by the queries' length in characters.
        cost: in millionths of a US dollar a day.
        energy: in joules a day; None if a tier's is not known.
        ratio: mean quality of the local model divided by the strong tier's.
        feasible: how much could be kept local at each quality.
        kept: the quality that remains at the usual promised local shares.
        cover: the cost of dummies; empty if none is reported.
        against: reasons not to route; empty: it may pay.
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
    """One query, with its tier without routing and with routing."""

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
    """Judge what routing gains on this traffic.

    Args:
        lines: the trace.
        tiers: the cost of each tier.
        judged: graded questions of the same traffic.
        devices: the number of such devices.
        cover: the shape of cover traffic; None: report nothing about it.
        draw: for the bootstrap.

    Raises:
        UsageError: the trace has no answered query, or names a tier that is not among
            ``tiers``.
    """
    said = list(lines)
    answered = [line for line in said if line.answered]
    if not answered:
        raise UsageError("no line of the trace has an answer")
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
    near = {each.id for each in tiers if not each.kind.outside}
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
    """Return draws that repeat for the same seed; for a bootstrap, not for secrets."""

    def numbers() -> Iterator[float]:
        for block in count():
            drawn = blake2b(f"{seed}|{block}".encode()).digest()
            for at in range(0, len(drawn), 8):
                yield (int.from_bytes(drawn[at : at + 8], "big") >> 11) * _LEAST

    return numbers().__next__


def proportion(some: int, of: int) -> Interval:
    """Return a share with its Clopper-Pearson interval; 0 to 1 if the total is 0."""
    return Interval(
        low=lower_bound(some, of, _LEVEL / 2),
        value=some / of if of else 0.0,
        high=upper_bound(some, of, _LEVEL / 2),
    )


def feasible_at(judged: Sequence[Judged], quality: float, draw: Draw) -> Feasible:
    """Return how much can be kept local at a given quality.

    Args:
        judged: graded questions, at least one; ``ease`` must not depend on the grades.
        quality: 0 to 1, relative to the strong tier alone.
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
    """Return the remaining share of the strong tier's quality at a local share."""
    ranked = sorted(judged, key=lambda each: -each.ease)
    strong = sum(each.strong for each in ranked)
    here = ranked[: round(share * len(ranked))]
    lost = sum(each.strong - each.weak for each in here)
    return (strong - lost) / strong if strong else 1.0


def _ratio(judged: Sequence[Judged]) -> float | None:
    strong = sum(each.strong for each in judged)
    return sum(each.weak for each in judged) / strong if strong else None


def _way_of(line: TraceLine) -> _Way:
    # The least private permitted tier, as without a router: everything that may leave
    # would. While the policy observes, that is also what happened.
    used = line.tier or ""
    return _Way(
        line=line,
        before=line.permitted[-1] if line.permitted else used,
        after=line.would_choose or used,
    )


def _is_forced(line: TraceLine) -> bool:
    """Return whether another tier than the chosen one answered."""
    if line.would_choose is not None:  # while the policy observes
        return False
    # A rejected draft is a regular route.
    failed = line.fallback not in {None, LocalFailure.DRAFT_REJECTED}
    return failed or line.why == Reason.UNAVAILABLE


def _one_kind(intents: Iterable[str]) -> bool:
    counted = Counter(intents)
    name, most = counted.most_common(1)[0]
    # Queries of unknown intent need not be all of one kind.
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
    """Bootstrap the cost of the tokens; the trace has only their size classes."""
    cells = Counter(
        (each.before, each.after, each.line.prompt_tokens, each.line.answer_tokens)
        for each in ways
    )
    before: list[float] = []
    after: list[float] = []
    for _ in range(_REPETITIONS):
        # One position inside the classes for a whole repetition: whether texts tend to
        # the upper or the lower end does not average out over many.
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
    # Knuth's method: count how many uniforms fit until their product is below e^-mean.
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
    # A dummy's answer has the length of real queries' answers from outside; while there
    # are none, the shortest.
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
