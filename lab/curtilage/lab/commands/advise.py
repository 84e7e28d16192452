"""``curtilage route advise``: reports whether routing pays on this traffic."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

from curtilage.cli.declared import Arguments
from curtilage.cli.route.stats import amounts_of, figures_of, read_named
from curtilage.cli.start import config_from
from curtilage.cli.terminal import DONE, err, out, out_json, plural, progress
from curtilage.client.assemble import router_for, shipped_of, thresholds_of
from curtilage.client.chat.query import single_query
from curtilage.client.config import ClientConfig
from curtilage.client.errors import ConfigError, LocalUnavailableError, UsageError
from curtilage.client.local.model import resolve, running_digest
from curtilage.client.local.registry.store import Registry
from curtilage.client.parts import UnavailableLocal
from curtilage.client.routing.bounds import lower_bound
from curtilage.client.routing.drift import Drift
from curtilage.client.routing.estimate import Estimate
from curtilage.client.routing.estimators import open_estimator
from curtilage.client.routing.figures import TierFigures
from curtilage.client.routing.router import UNFIT
from curtilage.client.routing.thresholds import Thresholds, Unfit
from curtilage.client.routing.trace import TraceLine
from curtilage.lab.commands.graded_file import GradedRow, read_graded
from curtilage.lab.routing.advise import (
    PROMISED_AT_HOME,
    PROMISED_SAVING,
    SMALL_QUERIES,
    SMALL_TOKENS,
    Advice,
    Against,
    CoverShape,
    Interval,
    Judged,
    Spent,
    advise,
    repeatable,
)
from curtilage.lab.routing.certify import MIN_GRADED
from curtilage.policy.document.model import Policy
from curtilage.policy.document.routing import Routing
from curtilage.policy.document.routing_settings import Speculating

SEED: Final = 1  # the same file gives the same advice
DELTA: Final = 0.05
FEW: Final = 30
MAX_TOKENS: Final = 256
GOOD: Final = 0.5
DOES_NOT_HOLD: Final = "it does not hold"
WHY_NOT: Final = {
    Against.HOMOGENEOUS: "nearly all of it is one kind of task, for which one model "
    "can be chosen once",
    Against.ONE_TIER: "nearly all of it is answered locally or on premises "
    "anyway, so there is nothing to choose",
    Against.HARD: "it is hard throughout: what may leave would nearly always go to the "
    "strong tier, or keeping it home would cost too much quality",
    Against.SMALL: "there is little of it: below "
    f"{SMALL_QUERIES:,} questions or {SMALL_TOKENS:,} tokens a day, what routing "
    "saves does not repay its upkeep (--devices says how many have such traffic)",
    Against.UNTESTED: "there is nothing to judge it with: neither 500 graded questions "
    "(--graded) nor 100 words of feedback in the trace",
}


def run(arguments: Arguments) -> int:
    """Print the advice, as text or JSON."""
    config = config_from(arguments)
    policy = config.policy
    if arguments.devices < 1:
        raise UsageError("--devices is at least 1")
    lines = read_named(arguments.trace)
    rows = () if arguments.graded is None else read_graded(Path(arguments.graded), err)
    if 0 < len(rows) < MIN_GRADED:
        err(
            f"{arguments.graded}: {len(rows)} graded {plural(len(rows), 'question')}, "
            "and it takes "
            f"{MIN_GRADED}: rely on nothing that is said of quality"
        )
    tiers = figures_of(
        policy, amounts_of("--prices", arguments.prices),
        amounts_of("--energy", arguments.energy),
    )  # fmt: skip
    with progress("judging graded questions"):
        judged = judged_of(rows, estimates_of(policy))
    with progress("drawing samples again"):
        advice = advise(
            lines,
            tiers,
            judged=judged,
            devices=arguments.devices,
            cover=cover_of(policy),
            draw=repeatable(SEED),
        )
    drift = drift_of(lines, tiers, judged, advice, arguments.promised)
    drafts = list(draft_words(policy, _model_of(config)))
    if arguments.json:
        fields = asdict(advice)
        fields["hybrid"] = not advice.against
        fields["drafts"] = drafts
        fields["drift"] = None if drift is None else {
            "promised": drift.promised, "graded": drift.graded,
            "evidence": drift.evidence, "alarm": drift.alarm(),
        }  # fmt: skip
        out_json(fields)
        return DONE
    for line in words_of(advice, tiers, cover_share=_cover_share(policy)):
        out(line)
    for line in drafts:
        out(f"drafts    {line}")
    if drift is not None:
        out(drift_words(drift))
    return DONE


def _model_of(config: ClientConfig) -> str | None:
    """Return the digest of the model that would run, as thresholds name it, or None."""
    try:
        named = resolve(config.model, sha256=config.model_sha256, registry=Registry())
    except (ConfigError, LocalUnavailableError):
        return None
    return running_digest(named.sha256, named.adapter_sha256)


def draft_words(policy: Policy, model_sha256: str | None) -> Iterator[str]:
    """Yield what the thresholds promise about drafts, or why no draft is used.

    Args:
        policy: names the thresholds.
        model_sha256: of the model that would write the drafts; None: there is none.
    """
    plan = policy.routing
    if plan is None or plan.speculation.mode is Speculating.OFF:
        return
    thresholds = thresholds_of(plan, policy.routing_files)
    if thresholds is None:
        yield from _shipped_words(plan, model_sha256)
        return
    # The model's file contains the template, so nothing has to be loaded here.
    unfit = Unfit.NO_MODEL if model_sha256 is None else thresholds.unfit(
        model_sha256=model_sha256, template_sha256=thresholds.template_sha256
    )  # fmt: skip
    if unfit is not None:
        yield f"none are written: {UNFIT[unfit]}"
        return
    yield _promised(thresholds)


def _shipped_words(plan: Routing, model_sha256: str | None) -> Iterator[str]:
    """Yield the same for a policy that names no thresholds of its own."""
    fit = [
        each
        for each in shipped_of(plan)
        if each.thresholds.model_sha256 == model_sha256
    ]
    for each in fit:
        yield f"{each.intent}: {_promised(each.thresholds)}, of {each.made_of}"
    if not fit:
        yield (
            "none are written: no thresholds for the local model come with Curtilage; "
            "`curtilage route certify` makes your own"
        )


def _promised(thresholds: Thresholds) -> str:
    return (
        f"{thresholds.accepts:.0%} of them were accepted, and with "
        f"{1 - thresholds.delta:.0%} confidence at most {thresholds.alpha:.0%} of "
        f"these are bad ({thresholds.graded} graded answers)"
    )


def estimates_of(policy: Policy) -> Callable[[str], Estimate]:
    """Return the estimator of a policy's router, or the shipped one if it has none."""
    router = router_for(policy, UnavailableLocal("not started"))
    if router is None:
        estimator = open_estimator()
        return lambda text: estimator.estimate(text, MAX_TOKENS)
    return lambda text: router.estimate(single_query(text))


def judged_of(
    rows: Sequence[GradedRow], estimate: Callable[[str], Estimate]
) -> tuple[Judged, ...]:
    """Return how easy each question is: its score, or the negative expected gain."""
    return tuple(
        Judged(
            ease=-estimate(row.text).gain if row.score is None else row.score,
            weak=row.weak,
            strong=row.strong,
        )
        for row in rows
    )


def cover_of(policy: Policy) -> CoverShape | None:
    """Return the shape of a policy's dummies: 100 % cover if it configures no share."""
    if not policy.document.transport.accept:
        return None
    frames = policy.document.transport.accept[0]
    return CoverShape(
        percent=_cover_share(policy) or 100,
        frame_bytes=frames.frame_bytes,
        period_ms=frames.period_ms,
        first_bucket=frames.first_bucket,
        buckets=frames.buckets,
    )


def _cover_share(policy: Policy) -> int | None:
    cover = policy.document.transport.cover
    return None if cover is None else cover.share


def drift_of(
    lines: Sequence[TraceLine],
    tiers: Sequence[TierFigures],
    judged: Sequence[Judged],
    advice: Advice,
    promised: float | None,
) -> Drift | None:
    """Return how feedback on local and on-premises answers compares with the promise.

    None if there is no feedback or no promise.
    """
    near = {each.id for each in tiers if not each.kind.outside}
    marks = [line.feedback for line in lines if line.tier in near]
    grades = [float(mark) for mark in marks if mark is not None]
    if promised is None and judged:
        # The lower bound for what the router would keep local; with the point estimate,
        # an unlucky sample alone could raise the alarm.
        ranked = sorted(judged, key=lambda each: -each.ease)
        kept = ranked[: max(1, round(advice.at_home_of_free.value * len(ranked)))]
        promised = lower_bound(
            sum(each.weak >= GOOD for each in kept), len(kept), DELTA
        )
    if promised is None or not grades or promised == 0:
        return None
    return Drift(promised=promised).after(grades)


def drift_words(drift: Drift) -> str:
    """Return one line that says whether quality has dropped."""
    said = (
        f"quality   {drift.graded} {plural(drift.graded, 'word')} of feedback on "
        "local and on-premises answers; "
        f"{drift.promised:.0%} good were promised"
    )
    if drift.alarm():
        return f"{said}: ALARM, it has dropped (false once in 100); calibrate again"
    return f"{said}: no evidence against it so far"


def words_of(
    advice: Advice, tiers: Sequence[TierFigures], *, cover_share: int | None
) -> Iterator[str]:
    """Yield the advice as lines of text."""
    yield (
        f"trace     {advice.queries:,} {plural(advice.queries, 'answer')} in "
        f"{advice.days:.1f} days, "
        f"{advice.unanswered:,} {plural(advice.unanswered, 'question')} without one"
    )
    if advice.forced:
        yield (
            f"          {advice.forced:,} {plural(advice.forced, 'answer')} of another "
            "tier than the chosen one, which could not be reached: not counted below"
        )
    tokens = advice.tokens_per_day
    yield (
        f"volume    {advice.queries_per_day:,.0f} questions and {tokens.low:,.0f} to "
        f"{tokens.high:,.0f} tokens a day"
    )
    yield f"may leave {_percent(advice.may_leave)} of them"
    yield f"at home   {_percent(advice.at_home)} of all"
    yield f"          {_percent(advice.at_home_of_free)} of what may leave"
    held = _against(advice.at_home, PROMISED_AT_HOME)
    yield f"          often promised: 70 to 85 %; here: {held}"
    low = PROMISED_AT_HOME[0]
    for part in (*advice.intents, *advice.lengths):
        if part.queries >= FEW and part.at_home.high < low:
            yield f"          not for {part.name}: {_percent(part.at_home)}"
    yield f"cost      {_money(advice.cost)}"
    yield (
        f"saving    {_percent(advice.cost.saving)}; often promised: 60 to 80 %; here: "
        f"{_against(advice.cost.saving, PROMISED_SAVING)}"
    )
    yield (
        "          "
        + ", ".join(f"{each.id} at ${each.microusd_per_mtok / 1e6:g}" for each in tiers)
        + " a million tokens"
    )
    if advice.energy is None:
        yield "energy    not known; --energy says what a token takes"
    else:
        before, after = advice.energy.before.value, advice.energy.after.value
        yield (
            f"energy    {before / 3.6e6:.3g} kWh a day without routing, "
            f"{after / 3.6e6:.3g} with it: {_percent(advice.energy.saving)} saved"
        )
    yield from _quality_words(advice)
    yield from _cover_words(advice, cover_share)
    if not advice.against:
        yield "advice    route: no reason against it. Calibrate, then switch it on"
        return
    yield (
        "advice    do not go hybrid. The policy keeps sensitive queries local in "
        "any case, without routing"
    )
    for reason in advice.against:
        yield f"          - {WHY_NOT[reason]}"


def _quality_words(advice: Advice) -> Iterator[str]:
    if not advice.feasible:
        yield "quality   not known: no graded questions (--graded)"
        return
    if advice.ratio is not None:
        yield f"quality   the local model reaches {advice.ratio:.0%} of the strong tier"
    for each in advice.feasible:
        yield (
            f"          {each.quality:.0%} of its quality with "
            f"{_percent(each.share)} at home; by chance {each.by_chance:.0%}"
        )
    for share, kept in zip(PROMISED_AT_HOME, advice.kept, strict=True):
        yield f"          with {share:.0%} at home, {kept:.1%} of it would be left"


def _cover_words(advice: Advice, share: int | None) -> Iterator[str]:
    title = "cover    "
    if advice.cover and share is None:
        yield "cover     the policy asks for none; a dummy for each question at home:"
        title = "         "
    for each in advice.cover:
        yield (
            f"{title} {each.at_home:.0%} at home: {each.dummies:.0f} dummies and "
            f"{each.octets / 1e6:.1f} MB for 100 questions; no model runs for them"
        )
        title = "         "


def _percent(share: Interval) -> str:
    return f"{share.value:.1%} ({share.low:.1%} to {share.high:.1%})"


def _money(spent: Spent) -> str:
    before, after = spent.before, spent.after
    return (
        f"${_dollars(before.value)} a day if everything that may leave left "
        f"(${_dollars(before.low)} to {_dollars(before.high)}); "
        f"${_dollars(after.value)} routed"
    )


def _dollars(micro: float) -> str:
    """Format an amount of dollars without an exponent."""
    dollars = micro / 1e6
    return f"{dollars:,.2f}" if dollars >= 1 else f"{dollars:.6f}"


def _against(share: Interval, promised: tuple[float, float]) -> str:
    if share.high < promised[0]:
        return DOES_NOT_HOLD
    if share.low > promised[1]:
        return "it is more"
    inside = promised[0] <= share.low and share.high <= promised[1]
    return "it holds" if inside else "it cannot be distinguished from that"
