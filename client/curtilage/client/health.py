"""The health of a running client, in words of closed lists.

Reported by ``/healthz``, and by ``serve`` with one line for each change. Contains no
query, text or address: parts of the client, reasons, and times. Pure: observations and
the time are arguments.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum, StrEnum, unique
from typing import Final

from curtilage.client.errors import FailureReason
from curtilage.client.failure_texts import FAILURE_TEXTS
from curtilage.policy.decision.tiers import Tier

HOLD_S: Final = 30.0
"""Minimum time between two lines about one part."""
LAST_SHARE: Final = 0.1
"""Evidence that was not renewed is reported in the last tenth of its life."""


@unique
class Part(StrEnum):
    """A part with a condition of its own."""

    CLIENT = "client"
    RELAY = "relay"
    ENCLAVE = "enclave"
    EVIDENCE = "evidence"
    ON_PREMISES = "on_premises"
    MODEL = "model"
    DETECTORS = "detectors"
    AUDIT = "audit"
    QUEUE = "queue"
    POLICY = "policy"


@unique
class Status(StrEnum):
    """The condition of the whole client.

    ``DEGRADED``: some part has a reason, and questions are answered. ``FAILING``: no
    tier can answer, so every question is refused.
    """

    OK = "ok"
    DEGRADED = "degraded"
    FAILING = "failing"


@unique
class Note(StrEnum):
    """An event of a healthy part."""

    RECOVERED = "ok"
    LOADED = "loaded"
    REFRESHED = "refreshed"
    RESTARTED = "restarted"


@unique
class Reason(StrEnum):
    """A problem of a part."""

    RELAY_UNREACHABLE = "relay_unreachable"
    RELAY_UNTRUSTED = "relay_untrusted"
    RELAY_TLS_FAILED = "relay_tls_failed"
    RELAY_WANTS_CERTIFICATE = "relay_wants_certificate"
    RELAY_HUNG_UP = "relay_hung_up"
    RELAY_KNOWS_NO_SUCH = "relay_knows_no_such"
    RELAY_DENIED = "relay_denied"
    ENCLAVE_UNREACHABLE = "enclave_unreachable"
    KEY_UNKNOWN = "key_unknown"
    ANSWER_BROKEN = "answer_broken"
    ANSWER_INCOMPLETE = "answer_incomplete"
    ANSWER_LATE = "answer_late"
    TIMEOUT = "timeout"
    RECEIPT_INVALID = "receipt_invalid"
    ENCLAVE_MODEL_FAILED = "enclave_model_failed"
    ENCLAVE_MODEL_UNAVAILABLE = "enclave_model_unavailable"
    EVIDENCE_REFUSED = "evidence_refused"
    CLOCK_SUSPECTED = "clock_suspected"
    MIRROR_UNREACHABLE = "mirror_unreachable"
    TOO_FEW_NODES = "too_few_nodes"
    EVIDENCE_EXPIRING = "evidence_expiring"
    EVIDENCE_EXPIRED = "evidence_expired"
    ON_PREMISES_UNREACHABLE = "on_premises_unreachable"
    ON_PREMISES_UNTRUSTED = "on_premises_untrusted"
    ON_PREMISES_TLS_FAILED = "on_premises_tls_failed"
    ON_PREMISES_DENIED = "on_premises_denied"
    ON_PREMISES_MODEL_MISSING = "on_premises_model_missing"
    ON_PREMISES_FAILED = "on_premises_failed"
    ON_PREMISES_ANSWER_BROKEN = "on_premises_answer_broken"
    ON_PREMISES_ANSWER_INCOMPLETE = "on_premises_answer_incomplete"
    ON_PREMISES_LATE = "on_premises_late"
    LOCAL_UNAVAILABLE = "local_unavailable"
    LOCAL_OUT_OF_MEMORY = "local_out_of_memory"
    LOCAL_SLOW = "local_slow"
    LOCAL_LATE = "local_late"
    LOCAL_CRASHED = "local_crashed"
    LOCAL_HUNG = "local_hung"
    LOCAL_RESTARTING = "local_restarting"
    MODEL_MISSING = "model_missing"
    DETECTORS_ABSENT = "detectors_absent"
    DETECTORS_BROKEN = "detectors_broken"
    AUDIT_FAILED = "audit_failed"
    QUEUE_FAILED = "queue_failed"
    POLICY_NOT_CURRENT = "policy_not_current"
    POLICY_EXPIRING = "policy_expiring"
    NO_TIER = "no_tier"


PARTS: Final[Mapping[Reason, Part]] = {
    **{each: Part.RELAY for each in Reason if each.value.startswith("relay_")},
    **{
        each: Part.ON_PREMISES
        for each in Reason
        if each.value.startswith("on_premises_")
    },
    **{each: Part.MODEL for each in Reason if each.value.startswith("local_")},
    **dict.fromkeys(
        (
            Reason.ENCLAVE_UNREACHABLE,
            Reason.KEY_UNKNOWN,
            Reason.ANSWER_BROKEN,
            Reason.ANSWER_INCOMPLETE,
            Reason.ANSWER_LATE,
            Reason.TIMEOUT,
            Reason.RECEIPT_INVALID,
            Reason.ENCLAVE_MODEL_FAILED,
            Reason.ENCLAVE_MODEL_UNAVAILABLE,
        ),
        Part.ENCLAVE,
    ),
    **dict.fromkeys(
        (
            Reason.EVIDENCE_REFUSED,
            Reason.CLOCK_SUSPECTED,
            Reason.MIRROR_UNREACHABLE,
            Reason.TOO_FEW_NODES,
            Reason.EVIDENCE_EXPIRING,
            Reason.EVIDENCE_EXPIRED,
        ),
        Part.EVIDENCE,
    ),
    Reason.MODEL_MISSING: Part.MODEL,
    Reason.DETECTORS_ABSENT: Part.DETECTORS,
    Reason.DETECTORS_BROKEN: Part.DETECTORS,
    Reason.AUDIT_FAILED: Part.AUDIT,
    Reason.QUEUE_FAILED: Part.QUEUE,
    Reason.POLICY_NOT_CURRENT: Part.POLICY,
    Reason.POLICY_EXPIRING: Part.POLICY,
    Reason.NO_TIER: Part.CLIENT,
}
"""The part that each reason is about."""

_REASONS: Final[Mapping[str, Reason]] = {
    each.value: each
    for each in Reason
    # The audit trail reports its own condition.
    if each.value in FAILURE_TEXTS and each is not Reason.AUDIT_FAILED
}
WORDS: Final[Mapping[str, str]] = {
    **{word: FAILURE_TEXTS[word] for word in _REASONS},
    Reason.EVIDENCE_EXPIRING: "the enclave's evidence was not renewed and expires soon",
    Reason.EVIDENCE_EXPIRED: "the enclave's evidence has expired and was not renewed",
    Reason.MODEL_MISSING: "there is no local model: queries that must be kept local "
    "are refused",
    Reason.DETECTORS_ABSENT: "the detectors' process is not running: every query is "
    "kept local until it is",
    Reason.DETECTORS_BROKEN: "a detector of the policy could not be built: every query "
    "is kept local",
    Reason.AUDIT_FAILED: "the audit trail cannot be written: nothing is sent",
    Reason.QUEUE_FAILED: "the queue cannot be read or written: queued questions are "
    "not retried until it can",
    Reason.POLICY_NOT_CURRENT: "the policy's signature is missing, wrong or out of "
    "date: every query is kept local",
    Reason.POLICY_EXPIRING: "the policy's signature ends soon: sign it again",
    Reason.NO_TIER: "no tier can answer: every question is refused",
    Note.LOADED: "the local model is loaded",
    Note.REFRESHED: "the enclave's evidence was verified",
    Note.RESTARTED: "the detectors' process was replaced",
}
"""The meaning of each word in a line."""


def reason_of(failure: FailureReason) -> Reason | None:
    """Return the reason that a failed attempt indicates; None: nothing lasting."""
    return _REASONS.get(failure)


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """The condition of one part.

    Attributes:
        part: the part.
        tier: the policy's name, if there are several of its kind; None: only one.
        reason: the problem; None: none.
        mark: changes with every event to be reported in a healthy part.
        until: expiry of what is in force.
    """

    part: Part
    tier: Enum | None = None
    reason: Reason | None = None
    mark: int = 0
    until: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Detectors:
    """The condition of the detectors' process.

    Attributes:
        ready: whether one is warm.
        broken: whether it failed to build something that the policy names.
        restarts: number of replacements.
    """

    ready: bool = True
    broken: bool = False
    restarts: int = 0

    @property
    def condition(self) -> Condition:
        """Return it as a ``Condition``."""
        reason = Reason.DETECTORS_BROKEN if self.broken else None
        if not self.ready:
            reason = Reason.DETECTORS_ABSENT
        return Condition(part=Part.DETECTORS, reason=reason, mark=self.restarts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """The condition of the whole client.

    Attributes:
        conditions: of each part.
        tiers: the policy's, and whether each may be asked at the moment.
    """

    conditions: tuple[Condition, ...]
    tiers: tuple[tuple[Tier, bool], ...]

    @property
    def answers(self) -> bool:
        """Whether any tier can be asked."""
        return any(available for _, available in self.tiers)

    @property
    def status(self) -> Status:
        """The worst status."""
        if not self.answers:
            return Status.FAILING
        wrong = any(each.reason is not None for each in self.conditions)
        return Status.DEGRADED if wrong else Status.OK

    @property
    def whole(self) -> Condition:
        """The client itself, as one more condition."""
        reason = None if self.answers else Reason.NO_TIER
        return Condition(part=Part.CLIENT, reason=reason)

    @property
    def reasons(self) -> tuple[Condition, ...]:
        """All problems."""
        every = (self.whole, *self.conditions)
        return tuple(each for each in every if each.reason is not None)


@dataclass(slots=True)
class Evidence:
    """Lifetime of the evidence in force, from the time at which it was obtained."""

    _until: datetime | None = None
    _since: datetime | None = None

    def condition(self, until: datetime | None, now: datetime) -> Condition:
        """Return the condition of evidence valid until then; None: there is none."""
        if until != self._until:
            self._until, self._since = until, now
        if until is None or self._since is None:
            return Condition(part=Part.EVIDENCE)
        reason = None
        if now >= until:
            reason = Reason.EVIDENCE_EXPIRED
        elif until - now < LAST_SHARE * (until - self._since):
            reason = Reason.EVIDENCE_EXPIRING
        mark = int(until.timestamp())
        return Condition(part=Part.EVIDENCE, reason=reason, mark=mark, until=until)


_NOTES: Final[Mapping[Part, Note]] = {
    Part.MODEL: Note.LOADED,
    Part.EVIDENCE: Note.REFRESHED,
    Part.DETECTORS: Note.RESTARTED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """The content of a line.

    Attributes:
        condition: of the part.
        note: the event, if there is no problem.
    """

    condition: Condition
    note: Note | None


@dataclass(slots=True)
class Changes:
    """Selects the conditions to report; for one part at most every ``HOLD_S``.

    Changes in the meantime are not lost: afterwards, a part whose condition differs
    from the one reported last is reported.
    """

    _reported: dict[tuple[Part, Enum | None], Condition] = field(
        default_factory=dict[tuple[Part, Enum | None], Condition]
    )
    _at_s: dict[tuple[Part, Enum | None], float] = field(
        default_factory=dict[tuple[Part, Enum | None], float]
    )

    def news(self, conditions: Iterable[Condition], now_s: float) -> Iterator[News]:
        """Yield what is to be reported now, and record it as reported.

        Args:
            conditions: of every part.
            now_s: the time, of a clock that does not jump.
        """
        for condition in conditions:
            at = (condition.part, condition.tier)
            # A client starts healthy; any other condition is reported at once.
            before = self._reported.get(at, Condition(part=at[0], tier=at[1]))
            same = condition.reason is before.reason and condition.mark == before.mark
            if same or now_s < self._at_s.get(at, now_s) + HOLD_S * (at in self._at_s):
                continue
            self._reported[at], self._at_s[at] = condition, now_s
            note = None
            if condition.reason is None:
                happened = condition.mark != before.mark and before.reason is None
                note = _NOTES[condition.part] if happened else Note.RECOVERED
            yield News(condition=condition, note=note)
