"""``curtilage route calibrate``: fits an estimator and certifies error rates.

It answers two questions. Does the fitted estimator rank questions better than the
policy's current one? Only then is it written. Which error rates can be certified? The
answer is reported for each rate.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from curtilage.cli.declared import Arguments
from curtilage.cli.start import config_from
from curtilage.cli.terminal import (
    DONE,
    REFUSED,
    HowFar,
    err,
    out,
    out_json,
    plural,
    progress,
)
from curtilage.client.assemble import estimator_of, router_for
from curtilage.client.audit.export import new_file, refuse_taken
from curtilage.client.chat.query import single_query
from curtilage.client.errors import ConfigError, UsageError
from curtilage.client.parts import UnavailableLocal
from curtilage.client.routing.estimate import RulesEstimator
from curtilage.client.routing.estimators import FILE, FOLDER, open_estimator
from curtilage.client.routing.health import PRIORS
from curtilage.lab.commands.graded_file import GradedRow, read_graded
from curtilage.lab.routing.advise import repeatable
from curtilage.lab.routing.certify import (
    DELTA,
    MIN_GRADED,
    MOST_FITTED,
    Bound,
    Graded,
    bounds_of,
    certified,
    least_abstention,
)
from curtilage.policy.decision.tiers import TierKind
from curtilage.policy.document.model import Policy

if TYPE_CHECKING:  # they need numpy, which is an extra
    from curtilage.client.routing.ngram import Weights
    from curtilage.lab.routing import refit

NO_GAIN: Final = (
    "the strong tier's answers are no better than the local model's: answer "
    "everything with the local model"
)
NO_SHARE: Final = "cannot certify any share"
ONLY_RANKS: Final = (
    "no error rate is certified; the estimator ranks better all the same"
)
ALPHAS: Final = (0.05, 0.10, 0.15, 0.20, 0.30)
SEED: Final = 1  # so that the same file is always split in the same way
LEAST: Final = 150
"""Minimum number of pairs: with so few, only large effects show."""
RULES: Final = "the rules"
SHIPPED: Final = "the shipped estimator"
_FEW_FOLDS: Final = 5  # with few pairs, most are needed for the fit
_REPEATS: Final = 4
_REPEATED: Final = 1000  # with more pairs, one repetition is enough
_MOST: Final = 256  # answer tokens; the order of the gains does not depend on it
_REPORT_EVERY: Final = 100


class CannotCertifyError(Exception):
    """No result can be used; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Present:
    """The policy's current estimator.

    Attributes:
        name: for people.
        compared: what the fit is compared with, for people.
        gains: the gain that it expects for each question.
    """

    name: str
    compared: str
    gains: Sequence[float] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """One error rate that can be promised.

    Attributes:
        alpha: the largest share of bad answers among those kept local.
        share: the share of questions kept local.
        threshold: a question is kept local from this ease on.
        errors: how many were counted among those kept local.
        upper: upper bound of their rate.
        saving: share of the cost saved, at usual prices.
    """

    alpha: float
    share: float
    threshold: float
    errors: int
    upper: float
    saving: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibrated:
    """The result of a calibration.

    Attributes:
        graded: how many pairs there are.
        folds: the number of parts for cross-validation of the ranking; 0: none.
        ranking: how well a fitted estimator ranks questions outside its fit; None: the
            file's scores were judged, and nothing was fitted.
        judged: how many pairs judged the error rates; 0: there are too few for it.
        bad: the share of bad answers of the local model among those.
        certificates: one for each error rate that can be promised.
        weights: the fitted estimator; None: it must not be used, or nothing was
            fitted.
    """

    graded: int
    folds: int
    ranking: "refit.Ranking | None"
    judged: int
    bad: float
    certificates: tuple[Certificate, ...]
    weights: "Weights | None"

    @property
    def promised(self) -> tuple[Certificate, ...]:
        """The error rates of an estimator that may be used; empty for any other."""
        return self.certificates if self.reason is None else ()

    @property
    def reason(self) -> str | None:
        """The reason against the fitted estimator; None: none, or no estimator."""
        if self.ranking is None or self.ranking.better:
            return None
        judgement = self.ranking.judgement
        if not judgement.beats_chance:
            return (
                f"the estimator recovers {judgement.apgr:.2f} of the gap (APGR), and "
                f"perhaps only {judgement.apgr_low:.2f}; chance has 0.50"
            )
        worse = [name for name, each in self.ranking.against.items() if each.by <= 0]
        return f"it ranks the questions no better than {' and '.join(worse)}"


def run(arguments: Arguments) -> int:
    """Calibrate; exit 1 and write nothing if the fit is no improvement."""
    rows = read_graded(Path(arguments.data), err)
    # Files are often sorted, so the first rows would be of one kind.
    rows = tuple(rows[at] for at in drawn(len(rows)))
    path: str | None = arguments.out
    if path is not None:
        require_folder(path)
        if rows and rows[0].score is not None:
            raise UsageError(
                "the file's own scores are judged: there is nothing to write"
            )
        refuse_taken(path)
    present = present_of(config_from(arguments).policy, rows)
    try:
        found = calibrated(rows, good=arguments.good, present=present)
    except CannotCertifyError as reason:
        if arguments.json:
            out_json(
                {
                    "ranks_better": False,
                    "certified": False,
                    "estimator": present.name,
                    "reason": str(reason),
                }
            )
        else:
            err(f"cannot calibrate: {reason}. {_kept(present)}")
        return REFUSED
    digest = None
    if path is not None and found.weights is not None:
        from curtilage.lab.routing.refit import packed  # noqa: PLC0415 - numpy

        digest = write_new(path, packed(found.weights))
    if arguments.json:
        out_json(object_of(found, present, digest))
    else:
        _say(found, present, path, digest)
    used = found.promised if found.ranking is None else found.ranking.better
    return DONE if used else REFUSED


def _say(
    found: Calibrated, present: Present, path: str | None, digest: str | None
) -> None:
    for line in words_of(found):
        out(line)
    if path is not None and digest is not None:
        out(f"written to {path}; in a policy in the same folder:")
        out(
            "  routing: {estimator: {kind: ngram, "
            f'file: "{Path(path).name}", sha256: "{digest}"}}}}'
        )
    elif found.weights is not None:
        out("it is better than what the policy has; --out FILE writes it")
    elif found.reason is not None:
        err(f"not to be used: {found.reason}. {_kept(present)}")


def _kept(present: Present) -> str:
    return f"Nothing is written; the policy's estimator is still {present.name}"


def object_of(
    found: Calibrated, present: Present, digest: str | None
) -> dict[str, object]:
    """Return the result as a JSON object."""
    ranking = found.ranking
    return {
        "ranks_better": ranking is not None and ranking.better,
        "certified": bool(found.promised),
        "estimator": present.name,
        "reason": found.reason,
        "graded": found.graded,
        "judged": found.judged,
        "bad": found.bad,
        "apgr": None if ranking is None else asdict(ranking.judgement),
        "against": None
        if ranking is None
        else {
            name: asdict(each) | {"shown": each.shown}
            for name, each in ranking.against.items()
        },
        "certificates": [asdict(each) for each in found.promised],
        "sha256": digest,
    }


def require_folder(path: str | None) -> None:
    """Refuse a path whose folder does not exist, before any work is done."""
    if path is not None and not Path(path).absolute().parent.is_dir():
        raise ConfigError(f"{path}: there is no such folder")


def write_new(path: str, data: bytes) -> str:
    """Create a file, never overwriting one; return its digest as policies name it."""
    with new_file(Path(path)) as file:
        file.write(data)
    return sha256(data).hexdigest()


def drawn(count: int) -> list[int]:
    """Return a fixed pseudo-random order of so many rows.

    Files are often sorted, so the first rows would be of one kind.
    """
    draw = repeatable(SEED)
    return [at for _, at in sorted((draw(), at) for at in range(count))]


def require_numpy() -> None:
    """Refuse to go on without numpy, and name the extra that installs it."""
    if find_spec("numpy") is None:
        raise UsageError(
            "fitting needs numpy, which comes with the extras `pii` and `llm`"
        )


def present_of(policy: Policy, rows: Sequence[GradedRow]) -> Present:
    """Return the policy's current estimator and the gains that it expects.

    If the policy names a file of the operator's own, the shipped estimator replaces it:
    the file may have been fitted to these very questions.
    """
    texts = [row.text for row in rows[:MOST_FITTED]]
    router = router_for(policy, UnavailableLocal("not started"))
    shipped = open_estimator()
    own = None if router is None else router.plan.estimator.sha256
    if router is None or own is not None:
        name = "none, for want of a routing section"
        if own is not None:
            name = f"its own file ({own[:12]})"
        gains = [shipped.estimate(text, _MOST).gain for text in texts]
        return Present(name=name, compared=SHIPPED, gains=gains)
    # With weights that do not beat chance, the rules decide.
    read = estimator_of(router.plan, policy.routing_files).estimate("", _MOST)
    name = RULES if read.source == "rules" else SHIPPED
    gains = [router.estimate(single_query(text)).gain for text in texts]
    return Present(name=name, compared=name, gains=gains)


def calibrated(
    rows: Sequence[GradedRow], *, good: float, present: Present
) -> Calibrated:
    """Fit an estimator and judge it; or judge the file's own scores.

    All pairs judge the ranking, each scored by fits that excluded it. From 500 pairs
    on, error rates are certified as well: one half is for the fit, the other for the
    bounds, and the fit to that half is the one to use.

    Args:
        rows: the pairs, in random order.
        good: an answer with a lower grade is bad.
        present: the policy's current estimator, on the same questions.

    Raises:
        CannotCertifyError: too few questions, or the strong tier is no better.
    """
    scores = [row.score for row in rows if row.score is not None]
    least = MIN_GRADED if scores else LEAST
    if len(rows) < least:
        raise CannotCertifyError(
            f"{len(rows)} graded {plural(len(rows), 'question')}; it takes {least} at "
            "least"
        )
    if scores:
        bad, certificates = _certified(scores, rows, good=good, least=MIN_GRADED)
        return Calibrated(
            graded=len(rows),
            folds=0,
            ranking=None,
            judged=len(rows),
            bad=bad,
            certificates=certificates,
            weights=None,
        )
    if sum(row.strong - row.weak for row in rows[:MOST_FITTED]) <= 0:
        raise CannotCertifyError(NO_GAIN)
    require_numpy()
    return _fitted(rows, good=good, present=present)


def _certified(
    scores: Sequence[float], rows: Sequence[GradedRow], *, good: float, least: int
) -> tuple[float, tuple[Certificate, ...]]:
    """Return the share of bad answers, and the certificates that the scores allow."""
    graded = [
        Graded(score=score, bad=row.weak < good)
        for score, row in zip(scores, rows, strict=True)
    ]
    bounds = bounds_of(graded, least=least)
    held = [(alpha, certified(bounds, alpha)) for alpha in ALPHAS]
    return (
        sum(each.bad for each in graded) / len(graded),
        tuple(
            _certificate(alpha, bound, len(graded)) for alpha, bound in held if bound
        ),
    )


def _fitted(rows: Sequence[GradedRow], *, good: float, present: Present) -> Calibrated:
    from curtilage.client.routing.ngram import load_weights  # noqa: PLC0415
    from curtilage.lab.routing import refit  # noqa: PLC0415 - needs numpy

    package = resources.files("curtilage.client.routing")
    shipped = load_weights(package.joinpath(FOLDER, FILE).read_bytes())
    enough = len(rows) >= MIN_GRADED
    folds = 2 if enough else _FEW_FOLDS
    some = rows[:MOST_FITTED]  # the policy's estimator scored these as well
    gains = [row.strong - row.weak for row in some]
    far = HowFar(logged=True)
    with progress(f"reading {len(some)} questions"):
        questions = refit.read(shipped, [row.text for row in some])
    repeats = 1 if len(some) > _REPEATED else _REPEATS
    scores: list[refit.Numbers] = []
    for each in refit.cross_scores(
        questions, gains, repeatable(SEED), folds=folds, repeats=repeats
    ):
        scores.append(each)
        done = len(scores)
        far.show(f"{done} of {repeats} rounds of fits", last=done == repeats)
    with progress(f"judging the order of {len(some)} questions"):
        ranking = refit.compare(scores, _others(some, present), gains, repeatable(SEED))
    certificates: tuple[Certificate, ...] = ()
    judged, bad = 0, sum(row.weak < good for row in rows) / len(rows)
    weights = refit.fit_to(questions, gains)
    if enough:
        half = min(len(rows) // 2, MOST_FITTED)
        known, seen = rows[:half], rows[half:]
        part = refit.fit(
            shipped,
            [row.text for row in known],
            [row.strong - row.weak for row in known],
        )
        needs = list(_needs(part, seen))
        judged = len(seen)
        # The minimum was checked for all pairs; the bounds are exact for any number.
        bad, certificates = _certified(
            [-each for each in needs], seen, good=good, least=MIN_GRADED // 2
        )
        weights = part if certificates else weights
    used = refit.judged(weights, ranking.judgement)
    return Calibrated(
        graded=len(rows),
        folds=folds,
        ranking=ranking,
        judged=judged,
        bad=bad,
        certificates=certificates,
        weights=used if ranking.better else None,
    )


def _others(
    rows: Sequence[GradedRow], present: Present
) -> Mapping[str, Sequence[float]]:
    """Return the competing estimators, and the gains that each expects."""
    rules = RulesEstimator()
    ruled = [rules.estimate(row.text, _MOST).gain for row in rows]
    # If both are the rules, there is one entry: with the gains that the router uses.
    return {RULES: ruled, present.compared: present.gains}


def _needs(weights: "Weights", rows: Sequence[GradedRow]) -> Iterator[float]:
    from curtilage.lab.routing import refit  # noqa: PLC0415 - needs numpy

    far = HowFar(logged=True)
    for number, row in enumerate(rows, start=1):
        yield refit.score(weights, row.text)
        if number % _REPORT_EVERY == 0 or number == len(rows):
            far.show(f"{number} of {len(rows)} scored", last=number == len(rows))


def _certificate(alpha: float, bound: Bound, graded: int) -> Certificate:
    home = PRIORS[TierKind.IN_PROCESS].cost_microusd_per_mtok
    strong = PRIORS[TierKind.ATTESTED].cost_microusd_per_mtok
    share = bound.accepted / graded
    return Certificate(
        alpha=alpha,
        share=share,
        threshold=bound.threshold,
        errors=bound.errors,
        upper=bound.upper,
        saving=share * (1 - home / strong),
    )


def words_of(found: Calibrated) -> Iterator[str]:
    """Yield the result in lines: the quality of the ranking, then the certificates."""
    if found.ranking is not None:
        yield from _ranking_words(found.ranking, found.graded, found.folds)
    if found.reason is not None:
        return  # an estimator that must not be used promises nothing
    if not found.judged:
        yield (
            f"no error rate is certified: that takes {MIN_GRADED} pairs, and there are "
            f"{found.graded}"
        )
        return
    yield (
        f"error rates, judged on {found.judged} questions; {found.bad:.1%} of the "
        "local model's answers were bad"
    )
    yield f"with {1 - DELTA:.0%} confidence, all of these together:"
    done = {each.alpha: each for each in found.promised}
    for alpha in ALPHAS:
        least = least_abstention(found.bad, alpha)
        said = f"  {alpha:4.0%} bad at most: any rule sends {least:.0%} on; "
        if alpha in done:
            each = done[alpha]
            yield (
                f"{said}{each.share:.0%} may be kept local ({each.errors} bad, at most "
                f"{each.upper:.1%}), which saves {each.saving:.0%} of the cost"
            )
        else:
            yield f"{said}{NO_SHARE}"
    if not done and found.weights is not None:
        yield ONLY_RANKS


def _ranking_words(ranking: "refit.Ranking", graded: int, folds: int) -> Iterator[str]:
    judgement = ranking.judgement
    part = "half" if folds == 2 else f"{folds - 1} of {folds} parts"  # noqa: PLR2004
    yield (
        f"ranking, judged on {graded} questions by fits to {part} of them that had not "
        "seen them:"
    )
    yield (
        f"  recovers {judgement.apgr:.3f} of the gap (APGR), {judgement.apgr_low:.3f} "
        "at least; chance has 0.5"
    )
    for name, each in ranking.against.items():
        doubt = "" if each.shown else "; with so few questions it may be chance"
        if each.by <= 0:
            doubt = "; not better"
        yield (
            f"  {name}: {each.apgr:.3f}; difference {each.by:+.3f} "
            f"({each.low:+.3f} to {each.high:+.3f}){doubt}"
        )
