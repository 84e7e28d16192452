"""Why an on-premises server did not answer."""

from enum import unique

from curtilage.client.errors import PASSES, Failure, FailureReason


@unique
class OnPremisesFailure(FailureReason):
    """Why an on-premises server did not answer; a closed set."""

    UNREACHABLE = "on_premises_unreachable", Failure.UNREACHABLE, PASSES
    UNTRUSTED = "on_premises_untrusted", Failure.UNREACHABLE
    TLS_FAILED = "on_premises_tls_failed", Failure.UNREACHABLE
    DENIED = "on_premises_denied", Failure.UNREACHABLE
    MODEL_MISSING = "on_premises_model_missing", Failure.UNREACHABLE
    BUSY = "on_premises_busy", Failure.BUSY, PASSES
    REFUSED = "on_premises_refused", None
    FAILED = "on_premises_failed", Failure.BROKEN, PASSES
    NO_LOGPROBS = "on_premises_no_logprobs", None
    NOT_DETERMINISTIC = "on_premises_not_deterministic", None
    ANSWER_BROKEN = "on_premises_answer_broken", Failure.BROKEN, PASSES
    ANSWER_INCOMPLETE = "on_premises_answer_incomplete", Failure.BROKEN, PASSES
    # As for an enclave: see ``EnclaveFailure.ANSWER_LATE``.
    LATE = "on_premises_late", Failure.UNREACHABLE, PASSES
