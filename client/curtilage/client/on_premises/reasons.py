"""Why an on-premises server did not answer."""

from enum import unique

from curtilage.client.errors import (
    PASSES,
    Failure,
    FailureReason,
    OnPremisesUnavailableError,
)


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
    TOO_LONG = "on_premises_too_long", None
    FAILED = "on_premises_failed", Failure.BROKEN, PASSES
    NO_LOGPROBS = "on_premises_no_logprobs", None
    NOT_DETERMINISTIC = "on_premises_not_deterministic", None
    ANSWER_BROKEN = "on_premises_answer_broken", Failure.BROKEN, PASSES
    ANSWER_INCOMPLETE = "on_premises_answer_incomplete", Failure.BROKEN, PASSES
    # As for an enclave: see ``EnclaveFailure.ANSWER_LATE``.
    LATE = "on_premises_late", Failure.UNREACHABLE, PASSES


class TooLongForServerError(OnPremisesUnavailableError):
    """Query and answer exceed the context of an on-premises server's model.

    Args:
        prompt_tokens: length of the query; None: the server did not say.
        context_tokens: size of the context; likewise.
    """

    def __init__(self, prompt_tokens: int | None, context_tokens: int | None) -> None:
        numbers = {"query has at least": prompt_tokens, "context has": context_tokens}
        said = [f"the {name} {n} tokens" for name, n in numbers.items() if n]
        super().__init__(OnPremisesFailure.TOO_LONG, code=", ".join(said) or None)
        self.code = None  # the numbers are the asker's, and enter no record
        self.limit_tokens = context_tokens
