"""Why a query got no answer, by what the caller can do about it.

::

    ClientError
    ├── UsageError              the request itself is wrong
    │   ├── UnsupportedContentError   it holds what is not text: pictures, files
    │   ├── UnsupportedFieldError     it asks for what is not done here
    │   ├── UnknownFieldError         it has a field that nothing here knows
    │   ├── ModelNotFoundError        it names another model
    │   └── TooLargeError             it is too large
    ├── ConfigError             a file or an address is wrong; names it
    ├── DetectorsError          the detectors do not start
    ├── SealingError            this machine does not seal as HPKE does
    ├── AuditError              the audit trail cannot be written, or is not right
    ├── ListenError             the address or the port is taken
    ├── BlockedError            the policy lets nobody answer this
    ├── BusyError               too many wait on this machine; later it may be
    │                           answered
    ├── NotRoutedError          nobody who may answer meets what was asked of him
    │   ├── ConsentRequiredError    it may leave, once a person agreed to it
    │   ├── QueuedError         it waits here, and is asked again by itself
    │   └── TicketError         what waited here has no answer, and will have none
    ├── AnswererError           one who might have answered could not
    │   ├── DraftRejectedError      the local model's draft would not do
    │   ├── LocalUnavailableError   nothing here can answer
    │   └── ElsewhereError          one outside this process could not
    │       ├── OnPremisesUnavailableError   an on-premises server failed, or its
    │       │                           reply is not an answer
    │       └── EnclaveError        the enclave could not be asked, or not believed
    │           └── DateRefusedError    its clock and ours differ too much
    └── IncompleteAnswerError   an answer began and was cut; never 'finished'

Messages hold names, sizes and codes; never a word of a query or an answer.
"""

from datetime import datetime
from enum import StrEnum
from typing import Self

from typing_extensions import override


class FailureReason(StrEnum):
    """Why one who might have answered did not; a closed set, safe to count.

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
        # In what version 0.1 queued. An unknown rest raises ``ValueError`` as well.
        if isinstance(value, str) and value.startswith("house_"):
            return cls(value.replace("house_", "on_premises_", 1))
        return None


EXPLAINED = {
    FailureReason.NOT_CONFIGURED: "no relay is configured",
    FailureReason.NO_ENCLAVE_NAMED: "the policy names no enclave (attestation:)",
    FailureReason.RELAY_UNREACHABLE: "the relay cannot be reached",
    FailureReason.RELAY_UNTRUSTED: "the relay's certificate is not of an authority "
    "that this machine trusts, is out of date by this machine's clock, or names "
    "another host (a private authority is named with --relay-ca)",
    FailureReason.RELAY_TLS_FAILED: "there is no TLS with the relay: what answers on "
    "that port speaks something else, or other versions of TLS",
    FailureReason.RELAY_WANTS_CERTIFICATE: "the relay wants a client certificate, or "
    "another one than it was shown (--relay-certificate)",
    FailureReason.RELAY_HUNG_UP: "the relay closed the connection without a word: it "
    "may want a client certificate (--relay-certificate), or https",
    FailureReason.RELAY_KNOWS_NO_SUCH: "the relay does not know this address: check "
    "the name behind its host (--relay https://host/name)",
    FailureReason.RELAY_DENIED: "the relay does not accept this client's key or "
    "certificate",
    FailureReason.ENCLAVE_UNREACHABLE: "the relay cannot reach the enclave",
    FailureReason.EVIDENCE_REFUSED: "the enclave's evidence was refused",
    FailureReason.CLOCK_SUSPECTED: "the enclave's evidence holds at another time than "
    "this machine's clock shows: likely this clock is wrong; set it. If it is right, "
    "old evidence is served",
    FailureReason.MIRROR_UNREACHABLE: "the mirror of the enclave's keys, which the "
    "policy names, gave no list to compare",
    FailureReason.KEY_UNKNOWN: "the enclave no longer holds the verified key",
    FailureReason.DATE_REFUSED: "the enclave's clock and this machine's differ too "
    "much",
    FailureReason.TOO_LARGE: "the query is larger than the enclave accepts",
    FailureReason.TOO_MANY_RUNNING: "too many connections of earlier queries are "
    "still running to their end",
    FailureReason.NOT_PERMITTED: "no permit could be had, or held, for this attempt",
    FailureReason.BUSY: "the enclave is busy",
    FailureReason.REFUSED: "the enclave refused the request",
    FailureReason.ANSWER_BROKEN: "the enclave's answer could not be opened",
    FailureReason.ANSWER_INCOMPLETE: "the enclave's answer ended early",
    FailureReason.ANSWER_LATE: "the enclave's answer came slower than promised: "
    "something holds it up on the way",
    FailureReason.TIMEOUT: "the enclave did not answer in time",
    FailureReason.AUDIT_FAILED: "the audit trail cannot be written",
    FailureReason.RECEIPT_INVALID: "the enclave gave no valid receipt for its answer",
    FailureReason.UNMET_HARDWARE: "the policy wants hardware that isolates, for such "
    "data; this enclave's evidence shows none",
    FailureReason.UNMET_GPU: "the policy wants attested GPUs, for such data; this "
    "enclave's evidence shows none",
    FailureReason.UNMET_WEIGHTS: "the policy wants the model's files named by the "
    "release, for such data; this release names none",
    FailureReason.UNMET_NO_WRITE: "the policy wants an attested sandbox that writes "
    "nothing, for such data; this enclave's evidence shows none",
    FailureReason.UNMET_CPU_TEE: "the policy wants another kind of hardware, for such "
    "data",
    FailureReason.UNMET_EVIDENCE_AGE: "the enclave's evidence is older than the policy "
    "allows, for such data",
    FailureReason.UNMET_CONSENT: "the policy wants a person's consent before such a "
    "query leaves, and there is none",
    FailureReason.UNMET_CHALLENGE: "the policy wants a fresh challenge answered, for "
    "such data; it was not",
    FailureReason.UNMET_RESIDENCY: "the policy names who may run an enclave, or where, "
    "for such data; this release does not state that",
    FailureReason.LOCAL_UNAVAILABLE: "the local model cannot answer",
    FailureReason.LOCAL_BUSY: "too many queries wait for the local model",
    FailureReason.LOCAL_TOO_LONG: "it does not fit into the local model's context",
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
    "log-probabilities, which were asked for",
    FailureReason.ON_PREMISES_ANSWER_BROKEN: "the on-premises server's reply is not a "
    "valid OpenAI API response",
    FailureReason.ON_PREMISES_ANSWER_INCOMPLETE: "the on-premises server's answer "
    "ended early",
    FailureReason.ON_PREMISES_LATE: "the on-premises server did not answer in time",
    FailureReason.DRAFT_REJECTED: "the local model's draft was not good enough",
    FailureReason.LOCAL_OUT_OF_MEMORY: "there is too little memory for the local model",
    FailureReason.LOCAL_SLOW: "the local model is too slow just now",
    FailureReason.TOO_FEW_NODES: "fewer than half of the enclaves that the relay lists "
    "could be verified, and whoever hides the others must not choose the one that is "
    "asked",
}

UNMET = frozenset(
    reason for reason in FailureReason if reason.value.startswith("unmet_")
)
"""Nothing was asked of the enclave: it does not show what such data needs."""


class ClientError(Exception):
    """Root of all errors of this part."""


class UsageError(ClientError):
    """The request is wrong; asking again unchanged cannot help.

    Attributes:
        param: the request's field at fault, or None.
        code: the same in a word, from a closed set.
        http_status: how the local endpoint reports it.
    """

    code = "invalid_request"
    http_status = 400

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


class UnsupportedContentError(UsageError):
    """The request holds what no answer could take into account.

    A model that is not shown a picture invents what is on it, so none is asked.
    """

    code = "unsupported_content"


class UnsupportedFieldError(UsageError):
    """A field asks for something that is not done here."""

    code = "unsupported_parameter"


class UnknownFieldError(UsageError):
    """A field has an unknown name."""

    code = "unknown_parameter"


class ModelNotFoundError(UsageError):
    """There is no model of that name."""

    code = "model_not_found"
    http_status = 404


class TooLargeError(UsageError):
    """The request is larger than any that is read."""

    code = "request_too_large"
    http_status = 413


class ConfigError(ClientError):
    """A setting, a file or an address is wrong."""


class ListenError(ClientError):
    """The local endpoint cannot listen where it was told to."""


class DetectorsError(ClientError):
    """The detectors do not start, so nothing can be classified."""


class SealingError(ClientError):
    """What would be sealed here is not HPKE, so nothing may leave."""


class AuditError(ClientError):
    """The audit trail cannot be written or is damaged, so nothing may leave.

    Names the file and what the system said; never what was to be recorded.
    """


class BlockedError(ClientError):
    """The policy says that this query may not be answered.

    Attributes:
        rule: id of the rule that decided.
        classes: the data classes found.
        policy_digest: which policy said so.
    """

    def __init__(
        self, *, rule: str, reason: str, classes: tuple[str, ...], policy_digest: str
    ) -> None:
        super().__init__(f"blocked by rule {rule!r}: {reason}")
        self.rule = rule
        self.classes = classes
        self.policy_digest = policy_digest


class BusyError(ClientError):
    """Too many queries wait on this machine; the same one later may be answered."""


class NotRoutedError(ClientError):
    """The policy permits an answer, and nobody can give it as it was asked for.

    Attributes:
        http_status: how the local endpoint tells it.
        code: why, from a closed set.
        final: the policy forbids it: asked again, the same query is refused again.
    """

    http_status = 503
    final = False

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class TooLongError(NotRoutedError):
    """A query is longer than anybody reads who may answer it."""

    http_status = 400


class ConsentRequiredError(NotRoutedError):
    """A query may leave once a person agreed to it, and nobody did yet.

    Attributes:
        token: to repeat the very same request with, once; empty: there is none.
        payload_digest: of what it is about; what is shown with it must be the same.
    """

    http_status = 409

    def __init__(self, token: str, payload_digest: bytes = b"") -> None:
        super().__init__(
            "consent_required",
            "the policy wants consent before this leaves: show what would, then "
            "repeat the request within ten minutes with its token (the option "
            "'consent'; in the endpoint, 'curtilage': {'consent': …})",
        )
        self.token = token
        self.payload_digest = payload_digest


class QueuedError(NotRoutedError):
    """Nobody could answer just now; the query waits here, and is asked again.

    Attributes:
        ticket: by which its answer is collected; who knows it may read that.
        reason: what it waits for the end of.
        eta_s: within how many seconds whoever failed is tried again, where that is
            known; None: it is not, and nothing is promised.
        left: something of it may have left this device.
    """

    def __init__(
        self,
        ticket: str,
        reason: FailureReason,
        *,
        eta_s: int | None = None,
        left: bool = True,
    ) -> None:
        again = "" if eta_s is None else f"; the next try is within {eta_s} s"
        here = "" if left else "; nothing of it has left this device"
        super().__init__(
            "queued",
            f"I need more time: {EXPLAINED[reason]}; it waits, and is asked again by "
            f"itself{again} (ticket {ticket}){here}",
        )
        self.ticket = ticket
        self.reason = reason
        self.eta_s = eta_s
        self.left = left


class TicketError(NotRoutedError):
    """A ticket has no answer, and will have none.

    Attributes:
        http_status: 404: nothing waits under it; 410: it waited too long; else what
            became of it when it was asked again.
    """

    def __init__(self, code: str, message: str, *, http_status: int = 503) -> None:
        super().__init__(code, message)
        self.http_status = http_status

    @classmethod
    def unknown(cls, message: str) -> Self:
        """Return the error of a ticket under which nothing waits."""
        return cls("queue_unknown", message, http_status=404)


class AnswererError(ClientError):
    """One who might have answered could not; another may.

    Attributes:
        reason: the closed set's member.
        retry_after_s: after how long it wants to be asked again (an enclave says so
            inside the seal); None where it does not, or says more than is worth
            waiting for.
    """

    reason: FailureReason
    retry_after_s: int | None = None

    def alone(self) -> Self:
        """Return the same failure without where it came from, to be kept.

        One that was raised holds the frames that it went through and all that
        called them, the question in them and what keeps the error: such a
        cycle lives until the interpreter looks for cycles.
        """
        same = type(self).__new__(type(self), *self.args)
        vars(same).update(vars(self))
        return same


class DraftRejectedError(AnswererError):
    """The local model's draft would not do, and a stronger one is to be asked."""

    reason = FailureReason.DRAFT_REJECTED

    def __init__(self) -> None:
        super().__init__(EXPLAINED[self.reason])


class LocalUnavailableError(AnswererError):
    """The local model cannot answer a query.

    Attributes:
        http_status: how the local endpoint tells it.
        code: the same in a word, from a closed set.
    """

    http_status = 503
    code = "local_model_unavailable"
    reason = FailureReason.LOCAL_UNAVAILABLE

    def told_as(self, message: str) -> Self:
        """Return the same trouble with more words about how it came to it."""
        same = self.alone()
        same.args = (message,)
        return same


class ElsewhereError(AnswererError):
    """One outside this process could not be asked, or what it said is no answer.

    Attributes:
        code: what it was refused with: the HTTP status of an on-premises server, the
            refusal code of evidence; else None.
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
    """The enclave could not be asked, or could not be believed."""


class DateRefusedError(EnclaveError):
    """The enclave finds the date inside the seal outside its window.

    Attributes:
        date: the enclave's own date, good for one corrected request and nothing
            else; None where it gave none.
    """

    def __init__(self, date: datetime | None) -> None:
        super().__init__(FailureReason.DATE_REFUSED)
        self.date = date


class IncompleteAnswerError(ClientError):
    """An answer began to arrive and was cut; what came is not the whole.

    Attributes:
        reason: what cut it.
    """

    def __init__(self, reason: FailureReason) -> None:
        super().__init__(f"the answer is incomplete: {EXPLAINED[reason]}")
        self.reason = reason
