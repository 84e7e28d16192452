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
    │   │                           (in local/reasons.py)
    │   ├── LocalUnavailableError   the local model cannot answer
    │   └── ElsewhereError          a tier outside this process failed
    │       ├── OnPremisesUnavailableError   an on-premises server failed, or its
    │       │                           reply is not an answer
    │       │   └── TooLongForServerError    the query exceeds its context
    │       │                           (in on_premises/reasons.py)
    │       └── EnclaveError        the enclave cannot be asked, or is not trusted
    │           ├── DateRefusedError    its clock and ours differ too much
    │           └── TooLongForEnclaveError   the query exceeds its context
    │                               (both in remote/reasons.py)
    └── IncompleteAnswerError   an answer began and was cut; never 'finished'

Messages contain names, sizes and codes; never text of a query or an answer.
"""

from enum import StrEnum, unique
from typing import Final, Self

from curtilage.client.failure_texts import FAILURE_TEXTS

NOTHING_SENT: Final = "nothing of it was sent from this device"
PASSES: Final = True
"""The failure ends by itself, or with its cause outside, such as a broken network."""


@unique
class Failure(StrEnum):
    """Kind of a failed attempt; a closed set.

    ``UNREACHABLE``: no connection, or a long wait without an answer, so the next
    attempt would be in vain. ``BROKEN``: no answer or an invalid one. ``BUSY``: it
    said 'later'. ``EVIDENCE``: its evidence was refused.
    """

    UNREACHABLE = "unreachable"
    BROKEN = "broken"
    BUSY = "busy"
    EVIDENCE = "evidence"


class FailureReason(StrEnum):
    """Why a tier did not answer; a closed set for each tier, safe to count.

    Each tier's are in its own folder: ``local/reasons.py``, ``on_premises/reasons.py``,
    ``remote/reasons.py``. Their sentences are in ``failure_texts.py``.

    Attributes:
        counts_as: how it counts against the tier; None: not at all, as it is caused by
            this query, its data, or this machine's own disk.
        passes: the same tier may answer later. Refused evidence and a missing model do
            not pass: waiting changes nothing.
    """

    counts_as: Failure | None
    passes: bool

    def __new__(
        cls,
        word: str,
        counts_as: Failure | None = Failure.BROKEN,
        passes: bool = False,
    ) -> Self:
        """Create a member from its row."""
        member = str.__new__(cls, word)
        member._value_ = word
        member.counts_as = counts_as
        member.passes = passes
        return member


@unique
class AttemptFailure(FailureReason):
    """Reasons that stop an attempt at any tier outside of this process."""

    NOT_PERMITTED = "not_permitted", None
    AUDIT_FAILED = "audit_failed", None


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
        here = "" if left else f"; {NOTHING_SENT}"
        super().__init__(
            "queued",
            f"queued: {FAILURE_TEXTS[reason]}; will be retried automatically{again} "
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
        limit_tokens: question and answer together, where a text that is too long
            showed the limit; None: not known.
    """

    reason: FailureReason
    retry_after_s: int | None = None
    limit_tokens: int | None = None

    def alone(self) -> Self:
        """Return the same failure without its traceback, for storing it.

        A raised error refers to the frames that it passed through and to their callers,
        including the question and the object that stores the error: such a cycle
        persists until the next garbage collection.
        """
        same = type(self).__new__(type(self), *self.args)
        vars(same).update(vars(self))
        return same


class LocalUnavailableError(AnswererError):
    """The local model cannot answer a query: what all of ``local/`` raises.

    Each subclass, such as ``LocalModelError``, has its reason.

    Attributes:
        http_status: the status that the local endpoint returns.
        code: the problem, from a closed set.
    """

    http_status = 503
    code = "local_model_unavailable"

    def with_message(self, message: str) -> Self:
        """Return the same error with a message that also explains its cause."""
        same = self.alone()
        same.args = (message,)
        return same


class ElsewhereError(AnswererError):
    """A tier outside this process could not be asked, or its reply is not an answer.

    Attributes:
        code: how it refused: the HTTP status of an on-premises server, or the refusal
            code of evidence; otherwise None.
        param: the field of the request that it refused, if it said which.
    """

    param: str | None = None

    def __init__(
        self,
        reason: FailureReason,
        *,
        code: str | None = None,
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(FAILURE_TEXTS[reason] + (f" ({code})" if code else ""))
        self.reason = reason
        self.code = code
        self.retry_after_s = retry_after_s


class OnPremisesUnavailableError(ElsewhereError):
    """An on-premises server could not be asked, or its reply is not an answer."""


class EnclaveError(ElsewhereError):
    """The enclave could not be asked, or could not be trusted."""


class IncompleteAnswerError(ClientError):
    """An answer began to arrive and was cut.

    Attributes:
        reason: why.
    """

    def __init__(self, reason: FailureReason) -> None:
        super().__init__(f"the answer is incomplete: {FAILURE_TEXTS[reason]}")
        self.reason = reason
