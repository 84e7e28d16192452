"""``curtilage route certify``: finds the score from which a draft is accepted."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from curtilage.cli.declared import Arguments
from curtilage.cli.terminal import DONE, REFUSED, err, out, out_json, plural, progress
from curtilage.client.audit.export import refuse_taken
from curtilage.client.errors import UsageError
from curtilage.client.routing.answer_features import FEATURES_SHA256
from curtilage.client.routing.bounds import upper_bound
from curtilage.client.routing.thresholds import Thresholds, packed
from curtilage.lab.commands.answered_file import AnsweredRow, read_answered
from curtilage.lab.commands.calibrate import (
    ALPHAS,
    NO_SHARE,
    CannotCertifyError,
    drawn,
    require_folder,
    require_numpy,
    write_new,
)
from curtilage.lab.commands.graded_file import same_question
from curtilage.lab.routing.certify import (
    DELTA,
    GRID,
    MIN_GRADED,
    Bound,
    Graded,
    auroc,
    bounds_of,
    certified,
    least_abstention,
)
from curtilage.lab.routing.scores import looks_at, score_by

MIN_FITTED: Final = 200
MOST_FITTED: Final = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Certified:
    """The result of a certification.

    Attributes:
        fitted: how many answers the heads were fitted to.
        auroc: how well the score separates the other answers; chance has 0.5.
        bounds: from the other answers, one for each share of the grid.
        thresholds: for the requested error rate.
    """

    fitted: int
    auroc: float
    bounds: tuple[Bound, ...]
    thresholds: Thresholds


def run(arguments: Arguments) -> int:
    """Certify; exit 1 and write nothing if nothing can be certified."""
    if not 0 < arguments.alpha < 1:
        raise UsageError("--alpha lies between 0 and 1")
    path: str | None = arguments.out
    refuse_taken(path)
    require_folder(path)
    rows = each_once(read_answered(Path(arguments.data)), err)
    if not arguments.json and rows:
        # Printed first, in any case: no score can be better than this.
        for line in least_words(_bad_share(rows, arguments.good)):
            out(line)
    try:
        found = certify(rows, alpha=arguments.alpha, good=arguments.good)
    except CannotCertifyError as reason:
        # Drafts may still be used: the policy may name older thresholds.
        err(
            f"cannot certify: {reason}. Nothing is written, and the policy is as before"
        )
        if arguments.json:
            out_json({"certified": False, "reason": str(reason)})
        return REFUSED
    digest = None if path is None else write_new(path, packed(found.thresholds))
    if arguments.json:
        out_json(object_of(found, digest))
    else:
        for line in words_of(found, path, digest):
            out(line)
    return DONE


def object_of(found: Certified, digest: str | None) -> dict[str, object]:
    """Return the result as a JSON object."""
    thresholds = found.thresholds
    return {
        "certified": True,
        "fitted": found.fitted,
        "graded": thresholds.graded,
        "bad": thresholds.bad,
        "auroc": found.auroc,
        "alpha": thresholds.alpha,
        "accepted": thresholds.accepted,
        "errors": thresholds.errors,
        "upper": thresholds.upper,
        "threshold": thresholds.threshold,
        "sha256": digest,
    }


def each_once(
    rows: Sequence[AnsweredRow], notify: Callable[[str], None]
) -> list[AnsweredRow]:
    """Return the first answer to each question: the bounds need independent ones."""
    first = {same_question(row.text): row for row in reversed(rows)}
    if len(first) < len(rows):
        notify(
            f"{len(rows)} answers are to {len(first)} different "
            f"{plural(len(first), 'question')}; the first to each counts"
        )
    return [row for row in rows if first[same_question(row.text)] is row]


def certify(rows: Sequence[AnsweredRow], *, alpha: float, good: float) -> Certified:
    """Fit the heads to one part and certify the threshold on the other.

    Raises:
        CannotCertifyError: too few answers, nothing to learn from them, or no share has
            an error rate below ``alpha``.
        UsageError: numpy is missing.
    """
    if len(rows) < MIN_FITTED + MIN_GRADED:
        raise CannotCertifyError(
            f"{len(rows)} graded {plural(len(rows), 'answer')}; it takes {MIN_FITTED} "
            f"to learn from, and {MIN_GRADED} others"
        )
    half = min(len(rows) // 2, len(rows) - MIN_GRADED, MOST_FITTED)
    rows = [rows[at] for at in drawn(len(rows))]
    with progress(f"reading {len(rows)} answers"):
        looks = [looks_at(each.text, each.deltas, each.finish) for each in rows]
    bad = [_is_bad(each, good) for each in rows]
    require_numpy()
    from curtilage.lab.routing.answer_heads import fit_heads  # noqa: PLC0415

    try:
        with progress(f"learning from {half} of them"):
            heads = fit_heads(looks[:half], [not each for each in bad[:half]])
    except ValueError as error:
        raise CannotCertifyError(f"nothing can be learned: {error}") from None
    graded = [
        Graded(score=score_by(heads, look), bad=was_bad)
        for look, was_bad in zip(looks[half:], bad[half:], strict=True)
    ]
    bounds = tuple(_from_zero(each, graded) for each in bounds_of(graded))
    chosen = certified(bounds, alpha)
    if chosen is None:
        share = sum(each.bad for each in graded) / len(graded)
        raise CannotCertifyError(
            f"of {len(graded)} answers {share:.0%} were bad; the score's "
            f"AUROC is {auroc(graded):.2f} (chance has 0.50), and {alpha:.0%} cannot "
            "be promised for any share of them"
        )
    model = rows[0].model
    return Certified(
        fitted=half,
        auroc=auroc(graded),
        bounds=bounds,
        thresholds=Thresholds(
            model_sha256=model.model_sha256.lower(),
            template_sha256=model.template_sha256.lower(),
            features_sha256=FEATURES_SHA256,
            quantisation=model.quantisation,
            alpha=alpha,
            delta=DELTA,
            grid=GRID,
            share=chosen.share,
            threshold=chosen.threshold,
            graded=len(graded),
            bad=sum(each.bad for each in graded),
            accepted=chosen.accepted,
            errors=chosen.errors,
            heads=heads,
        ),
    )


def _from_zero(bound: Bound, graded: Sequence[Graded]) -> Bound:
    """Return the bound for all answers that a verifier can accept: never score 0.

    The largest share excludes no answer, and so has no threshold of its own.
    """
    if bound.threshold >= 0:
        return bound
    taken = [each.bad for each in graded if each.score > 0]
    return Bound(
        share=bound.share,
        threshold=0.0,
        accepted=len(taken),
        errors=sum(taken),
        upper=upper_bound(sum(taken), len(taken), DELTA / len(GRID)),
    )


def _is_bad(row: AnsweredRow, good: float) -> bool:
    return row.grade is None or row.grade < good


def _bad_share(rows: Sequence[AnsweredRow], good: float) -> float:
    return sum(_is_bad(each, good) for each in rows) / len(rows)


def least_words(bad: float) -> Iterator[str]:
    """Yield the limit that holds for every score."""
    yield f"{bad:.1%} of the answers were bad; so any rule sends on, at least,"
    for alpha in ALPHAS:
        yield f"  {least_abstention(bad, alpha):4.0%} for {alpha:.0%} bad at most"


def words_of(found: Certified, path: str | None, digest: str | None) -> Iterator[str]:
    """Yield the promise in lines, and the lines for the policy that name the file."""
    thresholds = found.thresholds
    yield (
        f"learned from {found.fitted} answers, judged on {thresholds.graded} others: "
        f"AUROC {found.auroc:.3f} (chance has 0.5)"
    )
    yield f"with {1 - DELTA:.0%} confidence, all of these together:"
    for alpha in sorted({*ALPHAS, thresholds.alpha}):
        bound = certified(found.bounds, alpha)
        if bound is None:
            yield f"  {alpha:4.0%} bad at most: {NO_SHARE}"
        else:
            yield (
                f"  {alpha:4.0%} bad at most: {bound.accepted / thresholds.graded:.0%} "
                f"of the drafts are accepted ({bound.errors} bad, at most "
                f"{bound.upper:.1%})"
            )
    if path is not None:
        yield f"written to {path}; in a policy in the same folder:"
        yield (
            "  routing: {speculation: {mode: verify, "
            f'thresholds: "{Path(path).name}", sha256: "{digest}"}}}}'
        )
