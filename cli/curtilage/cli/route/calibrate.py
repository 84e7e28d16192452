"""``curtilage route calibrate``: what may stay home, learned and certified here."""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from curtilage.cli.route.graded_file import GradedRow, read_graded
from curtilage.cli.terminal import DONE, REFUSED, err, out, out_json, plural, progress
from curtilage.client.audit.export import new_file
from curtilage.client.errors import UsageError
from curtilage.client.routing.advise import repeatable
from curtilage.client.routing.certify import (
    DELTA,
    MIN_GRADED,
    Bound,
    Graded,
    bounds_of,
    certified,
    least_abstention,
)
from curtilage.client.routing.estimators import FILE, FOLDER, MOST_FITTED
from curtilage.client.routing.health import PRIORS
from curtilage.policy.decision.tiers import TierKind

if TYPE_CHECKING:  # they need numpy, which is an extra
    from curtilage.client.routing import refit
    from curtilage.client.routing.ngram import Weights

ALPHAS: Final = (0.05, 0.10, 0.15, 0.20, 0.30)
SEED: Final = 1  # the same file is cut into the same halves


class CannotCertifyError(Exception):
    """Nothing is to be used, and the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """One error rate that can be promised.

    Attributes:
        alpha: at most so many of what stays home are bad.
        share: of the questions stays home.
        threshold: of the ease from which one does.
        errors: were counted among what stays.
        upper: bound of their rate.
        saving: of the cost, at usual prices.
    """

    alpha: float
    share: float
    threshold: float
    errors: int
    upper: float
    saving: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibrated:
    """What graded questions allow.

    Attributes:
        graded: how many judged.
        bad: share of the home model's answers that were bad.
        judgement: what the fitted estimator is worth; None: the file's scores were
            judged, and nothing was fitted.
        certificates: one for each error rate that can be promised.
        weights: the fitted estimator, or None likewise.
    """

    graded: int
    bad: float
    judgement: "refit.Judgement | None"
    certificates: tuple[Certificate, ...]
    weights: "Weights | None"


def run(arguments: argparse.Namespace) -> int:
    """Calibrate; exit 1, and write nothing, where nothing can be certified."""
    rows = read_graded(Path(arguments.data))
    if arguments.out is not None and rows and rows[0].score is not None:
        raise UsageError("the file's own scores are judged: there is nothing to write")
    try:
        found = calibrated(rows, good=arguments.good)
    except CannotCertifyError as reason:
        if arguments.json:
            out_json({"certified": False, "reason": str(reason)})
        else:
            err(f"cannot certify: {reason}. Nothing is written; the rules go on")
        return REFUSED
    path, digest = arguments.out, None
    if path is not None and found.weights is not None:
        from curtilage.client.routing.refit import packed  # noqa: PLC0415 - numpy

        digest = write_new(path, packed(found.weights))
    if arguments.json:
        out_json(
            {
                "certified": True,
                "graded": found.graded,
                "bad": found.bad,
                "apgr": None if found.judgement is None else asdict(found.judgement),
                "certificates": [asdict(each) for each in found.certificates],
                "sha256": digest,
            }
        )
        return DONE
    for line in words_of(found):
        out(line)
    if path is not None and digest is not None:
        out(f"written to {path}; in the policy, which it lies beside:")
        out(
            "  routing: {estimator: {kind: ngram, "
            f'file: "{Path(path).name}", sha256: "{digest}"}}}}'
        )
    return DONE


def write_new(path: str, data: bytes) -> str:
    """Write a file that is not there yet; return its digest, as a policy names it."""
    with new_file(Path(path)) as file:
        file.write(data)
    return sha256(data).hexdigest()


def drawn(count: int) -> list[int]:
    """Return the places of so many rows in an order of chance, always the same one.

    Files are often sorted, and what comes first is of another kind.
    """
    draw = repeatable(SEED)
    return [at for _, at in sorted((draw(), at) for at in range(count))]


def require_numpy() -> None:
    """Raise what says how to get numpy, which is an extra, where it is missing."""
    if find_spec("numpy") is None:
        raise UsageError(
            "fitting needs numpy, which comes with the extras `pii` and `llm`"
        )


def calibrated(rows: Sequence[GradedRow], *, good: float) -> Calibrated:
    """Fit on one half, judge and certify on the other; or judge the file's scores.

    Raises:
        CannotCertifyError: too few questions, a strong tier that is no better, an
            estimator that does not beat chance, or no error rate that holds.
    """
    if len(rows) < MIN_GRADED:
        raise CannotCertifyError(
            f"{len(rows)} graded {plural(len(rows), 'question')}; it takes "
            f"{MIN_GRADED} at least"
        )
    judgement, weights, seen = None, None, rows
    scores = [row.score for row in rows if row.score is not None]
    least = MIN_GRADED
    if not scores:
        order = [rows[at] for at in drawn(len(rows))]
        half = min(len(order) // 2, MOST_FITTED)
        known, seen = order[:half], order[half:]
        # The bounds are exact for any number; what is too few is so for both halves.
        least = MIN_GRADED // 2
        weights, judgement, scores = _fitted(known, seen)
    graded = [
        Graded(score=score, bad=row.weak < good)
        for score, row in zip(scores, seen, strict=True)
    ]
    bad = sum(each.bad for each in graded) / len(graded)
    bounds = bounds_of(graded, least=least)
    held = [(alpha, certified(bounds, alpha)) for alpha in ALPHAS]
    certificates = tuple(
        _certificate(alpha, bound, len(graded)) for alpha, bound in held if bound
    )
    if not certificates:
        raise CannotCertifyError(
            f"of {len(graded)} answers of the home model {bad:.0%} were bad; not even "
            f"{ALPHAS[-1]:.0%} can be promised for a tenth of them, and no rule that "
            f"promises it keeps more than {1 - least_abstention(bad, ALPHAS[-1]):.0%}"
        )
    return Calibrated(
        graded=len(graded),
        bad=bad,
        judgement=judgement,
        certificates=certificates,
        weights=weights,
    )


def _fitted(
    known: Sequence[GradedRow], seen: Sequence[GradedRow]
) -> "tuple[Weights, refit.Judgement, list[float]]":
    gains = [row.strong - row.weak for row in seen]
    if sum(gains) <= 0:
        raise CannotCertifyError(
            "the strong tier's answers are no better than the home model's: keep "
            "everything home"
        )
    require_numpy()
    from curtilage.client.routing import refit  # noqa: PLC0415 - needs numpy
    from curtilage.client.routing.ngram import load_weights  # noqa: PLC0415

    package = resources.files("curtilage.client.routing")
    shipped = load_weights(package.joinpath(FOLDER, FILE).read_bytes())
    with progress(f"fitting the estimator to {len(known)} questions"):
        fitted = refit.fit(
            shipped,
            [row.text for row in known],
            [row.strong - row.weak for row in known],
        )
    with progress(f"judging it on {len(seen)} others"):
        needs = [refit.score(fitted, row.text) for row in seen]
        judgement = refit.judge(needs, gains, repeatable(SEED))
    if not judgement.beats_chance:
        raise CannotCertifyError(
            f"the estimator recovers {judgement.apgr:.2f} of the gap (APGR), and "
            f"perhaps only {judgement.apgr_low:.2f}; chance has 0.50"
        )
    return refit.judged(fitted, judgement), judgement, [-each for each in needs]


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
    """Yield what can be promised, in lines."""
    yield f"judged on {found.graded} questions; {found.bad:.1%} of the answers were bad"
    if found.judgement is not None:
        yield (
            f"estimator recovers {found.judgement.apgr:.3f} of the gap (APGR), "
            f"{found.judgement.apgr_low:.3f} at least; chance has 0.5"
        )
    yield f"with {1 - DELTA:.0%} confidence, all of these together:"
    done = {each.alpha: each for each in found.certificates}
    for alpha in ALPHAS:
        least = least_abstention(found.bad, alpha)
        said = f"  {alpha:4.0%} bad at most: any rule sends {least:.0%} on; "
        if alpha in done:
            each = done[alpha]
            yield (
                f"{said}{each.share:.0%} may stay home ({each.errors} bad, at most "
                f"{each.upper:.1%}), which saves {each.saving:.0%} of the cost"
            )
        else:
            yield f"{said}cannot certify any share"
