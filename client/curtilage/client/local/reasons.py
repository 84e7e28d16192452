"""Why the local model did not answer, and the errors that always have one reason."""

from enum import unique

from curtilage.client.errors import (
    PASSES,
    AnswererError,
    Failure,
    FailureReason,
    LocalUnavailableError,
)
from curtilage.client.failure_texts import FAILURE_TEXTS


@unique
class LocalFailure(FailureReason):
    """Why the local model did not answer; a closed set."""

    UNAVAILABLE = "local_unavailable", Failure.UNREACHABLE
    BUSY = "local_busy", Failure.BUSY, PASSES
    TOO_LONG = "local_too_long", None
    OUT_OF_MEMORY = "local_out_of_memory", Failure.UNREACHABLE, PASSES
    SLOW = "local_slow", Failure.BROKEN, PASSES
    LATE = "local_late", Failure.BROKEN, PASSES
    CRASHED = "local_crashed", Failure.BROKEN, PASSES
    HUNG = "local_hung", Failure.BROKEN, PASSES
    RESTARTING = "local_restarting", Failure.BUSY, PASSES
    DRAFT_REJECTED = "draft_rejected", None


class LocalModelError(LocalUnavailableError):
    """The local model cannot answer this query, or any."""

    reason = LocalFailure.UNAVAILABLE


class DraftRejectedError(AnswererError):
    """The draft was rejected; escalate to a stronger model."""

    reason = LocalFailure.DRAFT_REJECTED

    def __init__(self) -> None:
        super().__init__(FAILURE_TEXTS[self.reason])
