"""``curtilage route stats``: figures of each tier in a trace."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from curtilage.cli.declared import Arguments
from curtilage.cli.start import config_from
from curtilage.cli.terminal import DONE, out, out_json, plural
from curtilage.client.errors import UsageError
from curtilage.client.failure_texts import FAILURE_TEXTS
from curtilage.client.routing.figures import TierFigures
from curtilage.client.routing.health import PRIORS
from curtilage.client.routing.trace import (
    TIMES_MS,
    TOKENS,
    TRACE_NAME,
    TraceLine,
    TraceOutcome,
    below,
    read_trace_file,
)
from curtilage.client.system.files import state_folder
from curtilage.policy.document.model import Policy

MOST: Final = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class TierStats:
    """Figures of one tier in a trace; times and speeds are classes.

    Attributes:
        tier: its name.
        queries: number of queries that it answered.
        share: its share of all answers.
        incomplete: number of its answers that were cut.
        ttft_ms: class of the time to the first text, at the median and 95th percentile.
        tokens_per_s: approximate median; None if unknown.
        cost_usd: approximate cost of all its answers; None if its price is unknown.
        instead: reasons why it answered in another tier's place, with counts.
        good: number of answers rated good.
        bad: number of answers rated bad.
    """

    tier: str
    queries: int
    share: float
    incomplete: int
    ttft_ms: tuple[int, int] | None
    tokens_per_s: float | None
    cost_usd: float | None
    instead: dict[str, int]
    good: int
    bad: int


def run(arguments: Arguments) -> int:
    """Print the figures of each tier in a trace."""
    figures = figures_of(
        config_from(arguments).policy, amounts_of("--prices", arguments.prices), {}
    )
    lines = read_named(arguments.trace)
    stats = stats_of(lines, {each.id: each.microusd_per_mtok for each in figures})
    refused = Counter(
        line.why for line in lines if line.outcome is TraceOutcome.REFUSED
    )
    if arguments.json:
        tiers = [asdict(each) for each in stats]
        out_json({"tiers": tiers, "refused": dict(refused)})
        return DONE
    # Not an empty table, which would look like a measurement.
    if not stats:
        raise UsageError("the trace has no answer yet: ask a question first")
    for each in stats:
        for line in _words_of(each):
            out(line)
    for reason, count in refused.most_common():
        out(f"no answer: {_times(count)} ({reason})")
    return DONE


def _words_of(stats: TierStats) -> Iterator[str]:
    answers = plural(stats.queries, "answer")
    yield f"{stats.tier}: {stats.queries} {answers}, {stats.share:.1%} of all"
    if stats.ttft_ms is not None:
        p50, p95 = stats.ttft_ms
        yield f"  first text    up to {p50} ms (median), {p95} ms (95th percentile)"
    if stats.tokens_per_s is not None:
        yield f"  speed         about {stats.tokens_per_s:.0f} tokens per second"
    if stats.cost_usd is not None:
        each_1000 = 1000 * stats.cost_usd / stats.queries
        yield f"  cost          about ${stats.cost_usd:.2f}, ${each_1000:.2f} per 1,000"
    if stats.incomplete:
        yield f"  cut           {stats.incomplete} {plural(stats.incomplete, 'answer')}"
    for reason, count in stats.instead.items():
        why = FAILURE_TEXTS.get(reason, reason)
        yield f"  instead       {_times(count)} in another's place: {why}"
    if stats.good or stats.bad:
        yield f"  feedback      {stats.good} good, {stats.bad} bad"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def trace_path(given: str | None) -> Path:
    """Return the named trace, or the user's own."""
    if given is not None:
        return Path(given)
    return state_folder() / TRACE_NAME


def read_named(given: str | None) -> tuple[TraceLine, ...]:
    """Read the named trace, or the user's own.

    Raises:
        ClientError: it cannot be read, or the user has none yet.
    """
    path = trace_path(given)
    if given is None and not path.exists():
        raise UsageError(
            f"{path}: there is no trace yet: if the policy has a section "
            "`routing:`, each question adds a line there (or name one with --trace)"
        )
    return read_trace_file(path)


def figures_of(
    policy: Policy, prices: dict[str, float], energy: dict[str, float]
) -> tuple[TierFigures, ...]:
    """Return the costs of each tier of a policy.

    Args:
        policy: has the tiers, and possibly prices.
        prices: dollars per million tokens; they take precedence.
        energy: joules per token.

    Raises:
        UsageError: a price or an energy names a tier that the policy does not have.
    """
    tiers = policy.rulebook.tiering.tiers
    # A mistyped tier would otherwise keep its usual price, and the sums would be wrong.
    if unknown := (prices.keys() | energy.keys()) - {tier.id for tier in tiers}:
        raise UsageError(
            f"the policy has no tier {', '.join(sorted(unknown))}; it has "
            f"{', '.join(tier.id for tier in tiers)}"
        )
    plan = policy.routing
    said = {} if plan is None else {
        tier.id: tier.cost_microusd_per_mtok for tier in plan.tiers
    }  # fmt: skip
    return tuple(
        TierFigures(
            id=tier.id,
            kind=tier.kind,
            microusd_per_mtok=round(1e6 * prices[tier.id])
            if tier.id in prices
            else said.get(tier.id) or PRIORS[tier.kind].cost_microusd_per_mtok,
            joules_per_token=energy.get(tier.id),
        )
        for tier in tiers
    )


def amounts_of(flag: str, text: str | None) -> dict[str, float]:
    """Parse a flag's ``TIER=NUMBER,TIER=NUMBER``.

    Raises:
        UsageError: the syntax or a number is invalid.
    """
    amounts: dict[str, float] = {}
    for part in (text or "").split(",") if text else ():
        name, _, amount = part.partition("=")
        # A repeated tier is a mistake: one of its two prices would silently be ignored.
        twice = name in amounts
        try:
            amounts[name] = float(amount)
        except ValueError:
            amounts[name] = -1.0
        # Written so that NaN, which ``float`` accepts, is refused as well.
        if twice or not 0 <= amounts[name] < MOST:
            raise UsageError(f"{flag} needs TIER=NUMBER,TIER=NUMBER")
    return amounts


def stats_of(
    lines: Sequence[TraceLine], microusd_per_mtok: Mapping[str, int]
) -> tuple[TierStats, ...]:
    """Return the figures of each tier that answered, the busiest first.

    Args:
        lines: the trace.
        microusd_per_mtok: by tier, the price of a million tokens.
    """
    tiers = Counter(line.tier for line in lines if line.answered and line.tier)
    stats: list[TierStats] = []
    for tier, _ in tiers.most_common():
        own, price = [x for x in lines if x.tier == tier], microusd_per_mtok.get(tier)
        # Grades are lines of their own, with the smallest class in each size; they are
        # no answers.
        answers = [line for line in own if line.answered]
        first = sorted(each.ttft_ms for each in answers if each.ttft_ms is not None)
        speeds = sorted(x for each in answers if (x := _speed(each)) is not None)
        last = len(first) - 1
        tokens = sum(
            _middle(size, TOKENS)
            for each in answers
            for size in (each.prompt_tokens, each.answer_tokens)
            if size
        )
        instead = Counter(each.fallback for each in answers if each.fallback)
        stats.append(
            TierStats(
                tier=tier,
                queries=len(answers),
                share=len(answers) / tiers.total(),
                incomplete=sum(x.outcome is TraceOutcome.INCOMPLETE for x in answers),
                ttft_ms=(first[last // 2], first[round(0.95 * last)])
                if first
                else None,
                tokens_per_s=speeds[(len(speeds) - 1) // 2] if speeds else None,
                cost_usd=None if price is None else price / 1e12 * tokens,
                instead=dict(instead.most_common()),
                good=sum(line.feedback is True for line in own),
                bad=sum(line.feedback is False for line in own),
            )
        )
    return tuple(stats)


def _speed(line: TraceLine) -> float | None:
    """Return the approximate speed of an answer, from the middles of its classes."""
    if line.ttft_ms is None or line.answer_tokens is None:
        return None
    took_ms = _middle(line.total_ms, TIMES_MS) - _middle(line.ttft_ms, TIMES_MS)
    if took_ms <= 0:  # both in one class: too short to measure
        return None
    return 1000 * _middle(line.answer_tokens, TOKENS) / took_ms


def _middle(size: int, edges: tuple[int, ...]) -> float:
    # A trace has classes only, so all sums are approximate; the middle has the smallest
    # error on average.
    return (below(size, edges) + size) / 2
