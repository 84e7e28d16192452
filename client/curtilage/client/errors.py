"""Errors: why a query got no answer, grouped by what the caller can do.

::

    ClientError
    ├── UsageError              the request itself is wrong
    │   ├── UnsupportedContentError   it contains something else than text
    │   ├── UnsupportedFieldError     it requests an unsupported feature
    │   ├── UnknownFieldError         it has an unknown field
    │   ├── ModelNotFoundError        it names another model
    │   └── TooLargeError             it is too large
    ├── ConfigError             a file or an address is invalid; names it
    ├── DetectorsError          the detectors do not start
    ├── SealingError            HPKE fails its self-test on this machine
    ├── AuditError              the audit trail cannot be written, or is invalid
    ├── ListenError             the address or the port is in use
    ├── BlockedError            blocked by policy
    ├── BusyError               too many queries wait on this machine; try again
    ├── NotRoutedError          no permitted tier meets the request's requirements
    │   ├── ConsentRequiredError    it may be sent once the user consents
    │   ├── QueuedError         it is queued, and will be retried automatically
    │   └── TicketError         the queued query has no answer, and will not get one
    ├── AnswererError           a tier could not answer
    │   ├── DraftRejectedError      the local model's draft was rejected
    │   ├── LocalUnavailableError   the local model cannot answer
    │   └── ElsewhereError          a tier outside this process failed
    │       ├── OnPremisesUnavailableError   an on-premises server failed, or its
    │       │                           reply is not an answer
    │       └── EnclaveError        the enclave cannot be asked, or is not trusted
    │           └── DateRefusedError    its clock and ours differ too much
    └── IncompleteAnswerError   an answer began and was cut; never 'finished'

Messages contain names, sizes and codes; never text of a query or an answer.
"""

from datetime import datetime
from enum import StrEnum
from typing import Self

from typing_extensions import override


class FailureReason(StrEnum):
    """Why a tier did not answer; a closed set, safe to count.

    Those of the local model begin with ``local_``, those of an on-premises server with
    ``on_premises_``; all others are the enclave's, except a rejected draft.
    """

    NOT_CONFIGURED = "not_configured"
    NO_ENCLAVE_NAMED = "no_enclave_named"
    RELAY_UNREACHABLE = "relay_unreachable"
    RELAY_UNTRUSTED = "relay_untrusted"
    RELAY_TLS_FAILED = "relay_tls_failed"
    RELAY_WANTS_CERTIFICATE = "relay_wants_certificate"
    RELAY_HUNG_UP = "relay_hung_up"
    RELAY_KNOWS_NO_SUCH = "relay_knows_no_such"
    RELAY_DENIED = "relay_denied"
    ENCLAVE_UNREACHABLE = "enclave_unreachable"
    EVIDENCE_REFUSED = "evidence_refused"
    CLOCK_SUSPECTED = "clock_suspected"
    MIRROR_UNREACHABLE = "mirror_unreachable"
    KEY_UNKNOWN = "key_unknown"
    DATE_REFUSED = "date_refused"
    TOO_LARGE = "too_large"
    TOO_MANY_RUNNING = "too_many_running"
    NOT_PERMITTED = "not_permitted"
    BUSY = "busy"
    REFUSED = "refused"
    ANSWER_BROKEN = "answer_broken"
    ANSWER_INCOMPLETE = "answer_incomplete"
    ANSWER_LATE = "answer_late"
    TIMEOUT = "timeout"
    AUDIT_FAILED = "audit_failed"
    RECEIPT_INVALID = "receipt_invalid"
    UNMET_HARDWARE = "unmet_hardware"
    UNMET_GPU = "unmet_gpu"
    UNMET_WEIGHTS = "unmet_weights"
    UNMET_NO_WRITE = "unmet_no_write"
    UNMET_CPU_TEE = "unmet_cpu_tee"
    UNMET_EVIDENCE_AGE = "unmet_evidence_age"
    UNMET_CHALLENGE = "unmet_challenge"
    UNMET_RESIDENCY = "unmet_residency"
    UNMET_CONSENT = "unmet_consent"
    LOCAL_UNAVAILABLE = "local_unavailable"
    LOCAL_BUSY = "local_busy"
    LOCAL_TOO_LONG = "local_too_long"
    ON_PREMISES_UNREACHABLE = "on_premises_unreachable"
    ON_PREMISES_UNTRUSTED = "on_premises_untrusted"
    ON_PREMISES_TLS_FAILED = "on_premises_tls_failed"
    ON_PREMISES_DENIED = "on_premises_denied"
    ON_PREMISES_MODEL_MISSING = "on_premises_model_missing"
    ON_PREMISES_BUSY = "on_premises_busy"
    ON_PREMISES_REFUSED = "on_premises_refused"
    ON_PREMISES_FAILED = "on_premises_failed"
    ON_PREMISES_NO_LOGPROBS = "on_premises_no_logprobs"
    ON_PREMISES_ANSWER_BROKEN = "on_premises_answer_broken"
    ON_PREMISES_ANSWER_INCOMPLETE = "on_premises_answer_incomplete"
    ON_PREMISES_LATE = "on_premises_late"
    DRAFT_REJECTED = "draft_rejected"
    LOCAL_OUT_OF_MEMORY = "local_out_of_memory"
    LOCAL_SLOW = "local_slow"
    TOO_FEW_NODES = "too_few_nodes"

    @classmethod
    @override
    def _missing_(cls, value: object) -> Self | None:
        # In queries queued by version 0.1. Any other value raises ``ValueError`` here,
        # too.
        if isinstance(value, str) and value.startswith("house_"):
            return cls(value.replace("house_", "on_premises_", 1))
        return None


EXPLAINED = {
    FailureReason.NOT_CONFIGURED: "no relay is configured",
    FailureReason.NO_ENCLAVE_NAMED: "the policy names no enclave (attestation:)",
    FailureReason.RELAY_UNREACHABLE: "the relay cannot be reached",
    FailureReason.RELAY_UNTRUSTED: "the relay's certificate is not from a trusted "
    "authority, is not valid by this machine's clock, or names another host (a private "
    "authority is set with --relay-ca)",
    FailureReason.RELAY_TLS_FAILED: "TLS handshake with the relay failed: not a TLS "
    "server, or no common version",
    FailureReason.RELAY_WANTS_CERTIFICATE: "the relay requires a client certificate, "
    "or another one than was presented (--relay-certificate)",
    FailureReason.RELAY_HUNG_UP: "the relay closed the connection without a response: "
    "it may require a client certificate (--relay-certificate), or https",
    FailureReason.RELAY_KNOWS_NO_SUCH: "the relay does not know this address: check "
    "the name after its host (--relay https://host/name)",
    FailureReason.RELAY_DENIED: "the relay does not accept this client's key or "
    "certificate",
    FailureReason.ENCLAVE_UNREACHABLE: "the relay cannot reach the enclave",
    FailureReason.EVIDENCE_REFUSED: "the enclave's evidence was refused",
    FailureReason.CLOCK_SUSPECTED: "the enclave's evidence is valid at another time "
    "than this machine's clock shows: the clock is probably wrong; set it. If it is "
    "right, the evidence is outdated",
    FailureReason.MIRROR_UNREACHABLE: "the policy's mirror of the enclave's keys "
    "returned no list for comparison",
    FailureReason.KEY_UNKNOWN: "the enclave no longer holds the verified key",
    FailureReason.DATE_REFUSED: "the enclave's clock and this machine's differ too "
    "much",
    FailureReason.TOO_LARGE: "the query is larger than the enclave accepts",
    FailureReason.TOO_MANY_RUNNING: "too many connections of earlier queries are "
    "still running to their end",
    FailureReason.NOT_PERMITTED: "no permit was available for this attempt",
    FailureReason.BUSY: "the enclave is busy",
    FailureReason.REFUSED: "the enclave refused the request",
    FailureReason.ANSWER_BROKEN: "the enclave's answer could not be decrypted",
    FailureReason.ANSWER_INCOMPLETE: "the enclave's answer ended early",
    FailureReason.ANSWER_LATE: "the enclave's answer arrived slower than promised: "
    "it is delayed on the way",
    FailureReason.TIMEOUT: "the enclave did not answer in time",
    FailureReason.AUDIT_FAILED: "the audit trail cannot be written",
    FailureReason.RECEIPT_INVALID: "the enclave sent no valid receipt for its answer",
    FailureReason.UNMET_HARDWARE: "the policy requires hardware isolation for such "
    "data; this enclave's evidence shows none",
    FailureReason.UNMET_GPU: "the policy requires attested GPUs for such data; this "
    "enclave's evidence shows none",
    FailureReason.UNMET_WEIGHTS: "for such data, the policy requires a release that "
    "names the model's files; this one names none",
    FailureReason.UNMET_NO_WRITE: "the policy requires an attested sandbox without "
    "write access for such data; this enclave's evidence shows none",
    FailureReason.UNMET_CPU_TEE: "the policy requires another kind of hardware "
    "for such data",
    FailureReason.UNMET_EVIDENCE_AGE: "the enclave's evidence is older than the policy "
    "allows for such data",
    FailureReason.UNMET_CONSENT: "the policy requires the user's consent before such a "
    "query is sent, and there is none",
    FailureReason.UNMET_CHALLENGE: "the policy requires an answer to a fresh challenge "
    "for such data; there was none",
    FailureReason.UNMET_RESIDENCY: "the policy restricts who may run an enclave, or "
    "where, for such data; this release does not state it",
    FailureReason.LOCAL_UNAVAILABLE: "the local model cannot answer",
    FailureReason.LOCAL_BUSY: "too many queries wait for the local model",
    FailureReason.LOCAL_TOO_LONG: "it exceeds the local model's context",
    FailureReason.ON_PREMISES_UNREACHABLE: "the on-premises server cannot be reached",
    FailureReason.ON_PREMISES_UNTRUSTED: "the on-premises server does not match "
    "the policy: another CA or key (ca, spki_sha256), a certificate that is expired or "
    "names another host, or a socket that others may replace",
    FailureReason.ON_PREMISES_TLS_FAILED: "TLS handshake with the on-premises "
    "server failed: not a TLS server, or no common version",
    FailureReason.ON_PREMISES_DENIED: "the on-premises server requires an API key, or "
    "another one",
    FailureReason.ON_PREMISES_MODEL_MISSING: "the on-premises server does not have "
    "this model, or has nothing at this address: check model and address of the tier",
    FailureReason.ON_PREMISES_BUSY: "the on-premises server is busy",
    FailureReason.ON_PREMISES_REFUSED: "the on-premises server refused the request",
    FailureReason.ON_PREMISES_FAILED: "the on-premises server reported an error",
    FailureReason.ON_PREMISES_NO_LOGPROBS: "the on-premises server returns no "
    "log-probabilities, which were requested",
    FailureReason.ON_PREMISES_ANSWER_BROKEN: "the on-premises server's reply is not a "
    "valid OpenAI API response",
    FailureReason.ON_PREMISES_ANSWER_INCOMPLETE: "the on-premises server's answer "
    "ended early",
    FailureReason.ON_PREMISES_LATE: "the on-premises server did not answer in time",
    FailureReason.DRAFT_REJECTED: "the local model's draft was not good enough",
    FailureReason.LOCAL_OUT_OF_MEMORY: "there is too little memory for the local model",
    FailureReason.LOCAL_SLOW: "the local model is too slow just now",
    FailureReason.TOO_FEW_NODES: "fewer than half of the enclaves that the relay lists "
    "could be verified; an attacker who hides the others would choose the one that is "
    "asked",
}

UNMET = frozenset(
    reason for reason in FailureReason if reason.value.startswith("unmet_")
)
"""The enclave was not asked, because it lacks what the policy requires for the data."""


class ClientError(Exception):
    """Root of all errors of the client."""


class UsageError(ClientError):
    """The request is invalid; repeating it unchanged cannot help.

    Attributes:
        param: the invalid field of the request, or None.
        code: the problem, from a closed set.
        http_status: the status that the local endpoint returns.
    """

    code = "invalid_request"
    http_status = 400

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


class UnsupportedContentError(UsageError):
    """The request contains something that no answer could take into account.

    A model that is not shown a picture invents its content, so none is asked.
    """

    code = "unsupported_content"


class UnsupportedFieldError(UsageError):
    """A field requests an unsupported feature."""

    code = "unsupported_parameter"


class UnknownFieldError(UsageError):
    """A field has an unknown name."""

    code = "unknown_parameter"


class ModelNotFoundError(UsageError):
    """There is no model of that name."""

    code = "model_not_found"
    http_status = 404


class TooLargeError(UsageError):
    """The request is larger than the limit."""

    code = "request_too_large"
    http_status = 413


class ConfigError(ClientError):
    """A setting, a file or an address is wrong."""


class ListenError(ClientError):
    """The local endpoint cannot listen at the configured address."""


class DetectorsError(ClientError):
    """The detectors do not start, so nothing can be classified."""


class SealingError(ClientError):
    """HPKE fails its self-test on this machine, so nothing may be sent."""


class AuditError(ClientError):
    """The audit trail cannot be written or is damaged, so nothing may be sent.

    Contains the file and the system's message; never what was to be recorded.
    """


class BlockedError(ClientError):
    """The policy blocks this query.

    Attributes:
        rule: id of the rule that decided.
        classes: the data classes found.
        policy_digest: digest of the policy.
    """

    def __init__(
        self, *, rule: str, reason: str, classes: tuple[str, ...], policy_digest: str
    ) -> None:
        super().__init__(f"blocked by rule {rule!r}: {reason}")
        self.rule = rule
        self.classes = classes
        self.policy_digest = policy_digest


class BusyError(ClientError):
    """Too many queries wait on this machine; a later attempt may be answered."""


class NotRoutedError(ClientError):
    """The policy permits an answer, but no tier meets the request's requirements.

    Attributes:
        http_status: the status that the local endpoint returns.
        code: the reason, from a closed set.
        final: the policy forbids it: repeating the query cannot help.
    """

    http_status = 503
    final = False

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class TooLongError(NotRoutedError):
    """A query is longer than the context of every permitted tier."""

    http_status = 400


class ConsentRequiredError(NotRoutedError):
    """A query may be sent once the user consents, and there is no consent yet.

    Attributes:
        token: for repeating exactly this request, once; empty: there is none.
        payload_digest: of the data to be sent; the data shown must have the same.
    """

    http_status = 409

    def __init__(self, token: str, payload_digest: bytes = b"") -> None:
        super().__init__(
            "consent_required",
            "the policy requires consent before this is sent: show the data to be "
            "sent, then repeat the request within ten minutes with its token (the "
            "option 'consent'; in the endpoint, 'curtilage': {'consent': …})",
        )
        self.token = token
        self.payload_digest = payload_digest


class QueuedError(NotRoutedError):
    """No tier can answer just now; the query is queued, and will be retried.

    Attributes:
        ticket: for collecting its answer; anyone who knows it can.
        reason: the failure that it waits for to end.
        eta_s: within how many seconds the failed tier is tried again, without
            guarantee; None: unknown.
        left: some of it may have been sent.
    """

    def __init__(
        self,
        ticket: str,
        reason: FailureReason,
        *,
        eta_s: int | None = None,
        left: bool = True,
    ) -> None:
        again = "" if eta_s is None else f", next within {eta_s} s"
        here = "" if left else "; nothing of it was sent from this device"
        super().__init__(
            "queued",
            f"queued: {EXPLAINED[reason]}; will be retried automatically{again} "
            f"(ticket {ticket}){here}",
        )
        self.ticket = ticket
        self.reason = reason
        self.eta_s = eta_s
        self.left = left


class TicketError(NotRoutedError):
    """A ticket has no answer, and will not get one.

    Attributes:
        http_status: 404: nothing is queued under it; 410: it has expired; otherwise
            the status of its last retry.
    """

    def __init__(self, code: str, message: str, *, http_status: int = 503) -> None:
        super().__init__(code, message)
        self.http_status = http_status

    @classmethod
    def unknown(cls, message: str) -> Self:
        """Return the error for a ticket under which nothing is queued."""
        return cls("queue_unknown", message, http_status=404)


class AnswererError(ClientError):
    """A tier could not answer; another may.

    Attributes:
        reason: the failure.
        retry_after_s: the delay before the next attempt, as the tier requested it (an
            enclave does so inside the seal); None if it did not, or if it is too long
            to wait for.
    """

    reason: FailureReason
    retry_after_s: int | None = None

    def alone(self) -> Self:
        """Return the same failure without its traceback, for storing it.

        A raised error refers to the frames that it passed through and to their callers,
        including the question and the object that stores the error: such a cycle
        persists until the next garbage collection.
        """
        same = type(self).__new__(type(self), *self.args)
        vars(same).update(vars(self))
        return same


class DraftRejectedError(AnswererError):
    """The draft was rejected; escalate to a stronger model."""

    reason = FailureReason.DRAFT_REJECTED

    def __init__(self) -> None:
        super().__init__(EXPLAINED[self.reason])


class LocalUnavailableError(AnswererError):
    """The local model cannot answer a query.

    Attributes:
        http_status: the status that the local endpoint returns.
        code: the problem, from a closed set.
    """

    http_status = 503
    code = "local_model_unavailable"
    reason = FailureReason.LOCAL_UNAVAILABLE

    def told_as(self, message: str) -> Self:
        """Return the same error with a message that also explains its cause."""
        same = self.alone()
        same.args = (message,)
        return same


class ElsewhereError(AnswererError):
    """A tier outside this process could not be asked, or its reply is not an answer.

    Attributes:
        code: how it refused: the HTTP status of an on-premises server, or the refusal
            code of evidence; otherwise None.
    """

    def __init__(
        self,
        reason: FailureReason,
        *,
        code: str | None = None,
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(EXPLAINED[reason] + (f" ({code})" if code else ""))
        self.reason = reason
        self.code = code
        self.retry_after_s = retry_after_s


class OnPremisesUnavailableError(ElsewhereError):
    """An on-premises server could not be asked, or its reply is not an answer."""


class EnclaveError(ElsewhereError):
    """The enclave could not be asked, or could not be trusted."""


class DateRefusedError(EnclaveError):
    """The enclave refuses the date inside the seal as outside its window.

    Attributes:
        date: the enclave's own date, to be used for one corrected request only; None
            if it sent none.
    """

    def __init__(self, date: datetime | None) -> None:
        super().__init__(FailureReason.DATE_REFUSED)
        self.date = date


class IncompleteAnswerError(ClientError):
    """An answer began to arrive and was cut.

    Attributes:
        reason: why.
    """

    def __init__(self, reason: FailureReason) -> None:
        super().__init__(f"the answer is incomplete: {EXPLAINED[reason]}")
        self.reason = reason
