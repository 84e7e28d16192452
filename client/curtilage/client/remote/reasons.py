"""Why an enclave did not answer, or was not asked."""

from datetime import datetime
from enum import unique

from curtilage.client.errors import PASSES, EnclaveError, Failure, FailureReason


@unique
class EnclaveFailure(FailureReason):
    """Why an enclave, or the relay in front of it, did not answer; a closed set."""

    NOT_CONFIGURED = "not_configured", Failure.UNREACHABLE
    NO_ENCLAVE_NAMED = "no_enclave_named", Failure.UNREACHABLE
    RELAY_UNREACHABLE = "relay_unreachable", Failure.UNREACHABLE, PASSES
    RELAY_UNTRUSTED = "relay_untrusted", Failure.UNREACHABLE
    RELAY_TLS_FAILED = "relay_tls_failed", Failure.UNREACHABLE
    RELAY_WANTS_CERTIFICATE = "relay_wants_certificate", Failure.UNREACHABLE
    RELAY_HUNG_UP = "relay_hung_up", Failure.BROKEN, PASSES
    RELAY_KNOWS_NO_SUCH = "relay_knows_no_such", Failure.UNREACHABLE
    RELAY_DENIED = "relay_denied", Failure.UNREACHABLE
    ENCLAVE_UNREACHABLE = "enclave_unreachable", Failure.UNREACHABLE, PASSES
    EVIDENCE_REFUSED = "evidence_refused", Failure.EVIDENCE
    CLOCK_SUSPECTED = "clock_suspected", Failure.EVIDENCE
    TOO_FEW_NODES = "too_few_nodes", Failure.EVIDENCE
    MIRROR_UNREACHABLE = "mirror_unreachable", Failure.UNREACHABLE, PASSES
    KEY_UNKNOWN = "key_unknown", Failure.BROKEN, PASSES
    DATE_REFUSED = "date_refused", None
    TOO_LARGE = "too_large", None
    TOO_LONG = "enclave_too_long", None
    TOO_MANY_RUNNING = "too_many_running", Failure.BUSY, PASSES
    BUSY = "busy", Failure.BUSY, PASSES
    REFUSED = "refused", Failure.BROKEN
    # Said inside the seal, so by the enclave and about this query.
    REFUSED_QUERY = "enclave_refused_query", None
    MODEL_FAILED = "enclave_model_failed", Failure.BROKEN, PASSES
    MODEL_UNAVAILABLE = "enclave_model_unavailable", Failure.UNREACHABLE, PASSES
    ANSWER_BROKEN = "answer_broken", Failure.BROKEN, PASSES
    ANSWER_INCOMPLETE = "answer_incomplete", Failure.BROKEN, PASSES
    # A question without a response waits 15 seconds or more. So few of them fit into a
    # breaker's window that it would not open, and the next would wait as long.
    ANSWER_LATE = "answer_late", Failure.UNREACHABLE, PASSES
    TIMEOUT = "timeout", Failure.UNREACHABLE, PASSES
    RECEIPT_INVALID = "receipt_invalid", Failure.BROKEN


@unique
class Unmet(FailureReason):
    """Requirements of the policy that this enclave does not meet: it was not asked.

    The words after ``unmet_`` are those of ``attest.requirements.unmet``, and consent.
    """

    HARDWARE = "unmet_hardware", None
    GPU = "unmet_gpu", None
    WEIGHTS = "unmet_weights", None
    NO_WRITE = "unmet_no_write", None
    ISOLATION = "unmet_isolation", None
    EPHEMERALITY = "unmet_ephemerality", None
    CUSTODY = "unmet_custody", None
    CPU_TEE = "unmet_cpu_tee", None
    EVIDENCE_AGE = "unmet_evidence_age", None
    CHALLENGE = "unmet_challenge", None
    RESIDENCY = "unmet_residency", None
    CONSENT = "unmet_consent", None


class DateRefusedError(EnclaveError):
    """The enclave refuses the date inside the seal as outside its window.

    Attributes:
        date: the enclave's own date, to be used for one corrected request only; None
            if it sent none.
    """

    def __init__(self, date: datetime | None) -> None:
        super().__init__(EnclaveFailure.DATE_REFUSED)
        self.date = date


class TooLongForEnclaveError(EnclaveError):
    """Query and answer exceed the context of the enclave's model, as it said sealed.

    Args:
        prompt_tokens: length of the query.
        max_tokens: tokens asked for.
        context_tokens: size of the context.
    """

    def __init__(
        self, prompt_tokens: int, max_tokens: int, context_tokens: int
    ) -> None:
        sizes = f"at least {prompt_tokens} tokens and an answer of {max_tokens}"
        super().__init__(
            EnclaveFailure.TOO_LONG, code=f"{sizes} exceed {context_tokens}"
        )
        self.code = None  # the numbers are the asker's, and enter no record
        self.limit_tokens = context_tokens
