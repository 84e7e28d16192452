"""The error of a query that no tier answered."""

from typing import Final

from curtilage.client.answering.course import Course
from curtilage.client.chat.options import Mode
from curtilage.client.errors import (
    ClientError,
    LocalUnavailableError,
    NotRoutedError,
    UsageError,
)
from curtilage.client.failure_texts import FAILURE_TEXTS, NO_QUEUE
from curtilage.client.remote.reasons import Unmet
from curtilage.client.routing.router import REMEDIES, required_unmet
from curtilage.client.routing.utility import Refusal
from curtilage.policy.decision.classes import STALE_POLICY, UNFINISHED
from curtilage.policy.decision.tiers import Tier

# These end by themselves: a detector recovers, or a policy is signed again. A refusal
# for them must not be stored as permanent.
_PASSING: Final = UNFINISHED | {STALE_POLICY}


def wanted(course: Course) -> tuple[Tier, ...]:
    """Return the permitted tiers that the request's options allow."""
    options, tiers = course.case.options, course.case.ways.permitted.tiers
    if options.require is not None:
        kind = options.require.kind
        return tuple(each for each in tiers if each.kind is kind)
    if options.mode is Mode.HOME:
        return tuple(each for each in tiers if not each.kind.outside)
    return tiers


def no_queue() -> UsageError:
    """Return the error if a query is to be queued and the policy has no queue."""
    return UsageError(NO_QUEUE, param="defer")


def forbidden(course: Course, *, consents: bool) -> bool:
    """Return whether the policy, and not a failure, is why no tier can be asked."""
    # A query that could not be inspected now, or only under an outdated policy, may be
    # permitted later.
    if not _PASSING.isdisjoint(course.case.recorder.decision.uncertain):
        return False
    if not wanted(course):
        return True
    unmet = Unmet.CONSENT
    return not consents and any(each.reason is unmet for each in course.failures)


def unanswered(course: Course) -> ClientError:
    """Return the error if no tier was asked, or all failed."""
    plan, required = course.plan, course.case.options.require
    if not course.failures:
        none = Refusal.NO_PERMITTED_TIER
        return plan.refusal or NotRoutedError(none.value, REMEDIES[none])
    *earlier, last = course.failures
    if required is not None and not isinstance(last, LocalUnavailableError):
        # The same error, whether the required kind was tried or not.
        unmet = Refusal.REQUIRED_UNMET
        return NotRoutedError(unmet.value, required_unmet(str(last)))
    if not isinstance(last, LocalUnavailableError):
        return last
    if earlier:
        said = "; ".join(str(each) for each in earlier)
        return last.with_message(f"{said}, and on this machine: {last}")
    missed = plan.fallback
    if missed is not None and not missed.value.startswith("local_"):
        # It might have been sent to a tier that failed recently and is left alone.
        return last.with_message(
            f"{FAILURE_TEXTS[missed]}, and on this machine: {last}"
        )
    rule = course.case.recorder.decision.rule
    return last.with_message(f"this query must stay here (rule {rule!r}), but {last}")
