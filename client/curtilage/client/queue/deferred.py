"""Queued queries: which may be queued, what is stored of them, how they are retried.

Of a query, its request in the format of OpenAI's API is stored; of an answer, the
answer and its provenance. Nothing that authorises anything is stored: no permission, no
permit, no consent. Each retry is inspected and decided anew, and may only be sent if
its class is still the one that it was queued with.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from enum import StrEnum, unique
from typing import Any, Final, cast

from curtilage.client.chat.answer import (
    Answer,
    Answerer,
    Called,
    Choice,
    Finished,
    Obstacle,
    Provenance,
)
from curtilage.client.chat.document import Document
from curtilage.client.chat.openai_chat import parse_completion_request
from curtilage.client.chat.options import Mode
from curtilage.client.chat.query import Query
from curtilage.client.errors import FailureReason
from curtilage.client.queue.reasons import REASONS, reason_named
from curtilage.client.remote.reasons import EnclaveFailure
from curtilage.policy.decision.tiers import RoutingClass

TICKET_BYTES: Final = 16

TRANSIENT: Final = frozenset(each for each in REASONS.values() if each.passes)
"""Failures after which the same tier may answer later."""
OUT_THERE: Final = frozenset(each for each in EnclaveFailure if each.passes)
"""Those of an enclave."""
_ON_THE_DEVICE: Final = TRANSIENT - OUT_THERE


def worth_waiting(
    reasons: Iterable[FailureReason], routing_class: RoutingClass
) -> FailureReason | None:
    """Return the failure that is worth waiting for to end; None: there is none.

    Args:
        reasons: why each permitted tier failed.
        routing_class: of the query. A restricted query is retried locally or on
            premises only, so failures of an enclave do not count.
    """
    ends = _ON_THE_DEVICE if routing_class is RoutingClass.RESTRICTED else TRANSIENT
    return next((each for each in reasons if each in ends), None)


@unique
class State(StrEnum):
    """State of a queued query.

    ``REFUSED``: a retry was refused permanently. ``EXPIRED``: it was queued for as long
    as its class permits; its content was deleted.
    """

    WAITING = "waiting"
    ANSWERED = "answered"
    REFUSED = "refused"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True, kw_only=True)
class Deferred:
    """Metadata of one queued query, without its text.

    Attributes:
        ticket: identifies its answer, 32 hexadecimal digits.
        routing_class: its class when it was queued.
        policy: ``sha256:…`` of the policy in force at that time.
        cause: why no tier answered, a ``FailureReason`` as the version that queued it
            names it.
        put_ms: when it was queued, Unix time.
        until_ms: when it is deleted.
        state: its state.
        application: that asked it, and may have the answer; empty: no gateway's.
    """

    ticket: str
    routing_class: RoutingClass
    policy: str
    cause: str
    put_ms: int
    until_ms: int
    state: State = State.WAITING
    application: str = ""

    @property
    def reason(self) -> FailureReason:
        """Why no tier answered."""
        return reason_named(self.cause)

    def bound(self) -> bytes:
        """Return the bytes that authenticate these fields together with the content."""
        said = asdict(self)
        if not self.application:  # as earlier versions wrote it
            del said["application"]
        return json.dumps(said, sort_keys=True, separators=(",", ":")).encode()


def goes_on(query: Query, *, put_as: RoutingClass, is_now: RoutingClass) -> Query:
    """Return the query to be retried.

    Args:
        query: as it was queued.
        put_as: its class at that time.
        is_now: its class by the policy in force, decided anew.
    """
    options = replace(query.options, defer=True)  # or it would not stay queued
    if put_as is RoutingClass.RESTRICTED or is_now is not put_as:
        # What kept it local may be invisible to the detectors now: an earlier turn of
        # its conversation, which this process never saw. A query that was queued under
        # one policy is not sent because a list was shortened or the policy changed.
        return replace(query, options=replace(options, mode=Mode.HOME))
    # Between this decision and the next, its class may become more private, never less.
    floor = max(put_as, options.floor, key=lambda each: each.privacy)
    return replace(query, options=replace(options, floor=floor))


def request_of(query: Query) -> bytes:
    """Encode a query as a request of OpenAI's API."""
    settings, options = query.settings, query.options
    body = {
        **query.conversation(),
        "max_tokens": settings.max_tokens,
        "temperature": settings.temperature,
        "top_p": settings.top_p,
        "seed": settings.seed,
        "logprobs": settings.logprobs,
        "top_logprobs": settings.top_logprobs or None,
        "n": settings.n,
        "presence_penalty": settings.presence_penalty,
        "frequency_penalty": settings.frequency_penalty,
        "deterministic": settings.deterministic,
        "stream": query.stream,
        # Without the consent: it was given for the data shown then, and for ten
        # minutes.
        "curtilage": {
            "slo_ms": {"ttft": options.ttft_ms, "total": options.total_ms},
            "slo_hard": options.slo_hard,
            "max_cost": options.max_cost_microusd,
            "floor": options.floor,
            "mode": options.mode,
            "require": options.require,
        },
    }
    # ``surrogatepass``: JSON may contain lone surrogates, which UTF-8 cannot encode.
    encoded = json.dumps(body, ensure_ascii=False, default=Document.plain)
    return encoded.encode("utf-8", "surrogatepass")


def query_of(request: bytes) -> Query:
    """Parse a query that ``request_of`` encoded.

    Raises:
        UsageError: it is not such a request.
    """
    return parse_completion_request(request).query


def outcome_of(answer: Answer) -> bytes:
    """Encode an answer and its provenance."""
    return json.dumps(asdict(answer), ensure_ascii=False).encode(
        "utf-8", "surrogatepass"
    )


def answer_of(outcome: bytes) -> Answer:
    """Parse an answer that ``outcome_of`` encoded.

    Raises:
        ValueError: another version of this program wrote it in another format.
    """
    try:
        value = cast("dict[str, Any]", json.loads(outcome))
        said: dict[str, Any] = value["provenance"]
        ended: dict[str, Any] = dict(value["finished"])
        ended |= {"others": tuple(ended.get("others", ()))}
        fallback, obstacle = said["fallback"], said["obstacle"]
        said |= {
            "route": Answerer(said["route"]),
            "classes": tuple(said["classes"]),
            "uncertain": tuple(said["uncertain"]),
            "deidentified": _pairs(said["deidentified"]),
            "fallback": None if fallback is None else reason_named(fallback),
            "obstacle": None if obstacle is None else Obstacle(obstacle),
        }
        return Answer(
            provenance=Provenance(**said),
            finished=Finished(**ended),
            **_choice(value),
            others=tuple(
                Choice(finish_reason=each["finish_reason"], **_choice(each))
                for each in value.get("others", ())
            ),
            id=value["id"],
        )
    except (TypeError, LookupError) as error:
        raise ValueError("not an answer of this version") from error


def _choice(value: dict[str, Any]) -> dict[str, Any]:
    # An earlier version has neither calls nor alternatives.
    return {
        "text": value["text"],
        "logprobs": _pairs(value["logprobs"]),
        "tops": tuple(map(_pairs, value.get("tops", ()))),
        "calls": tuple(Called(**each) for each in value.get("calls", ())),
    }


def _pairs(value: list[list[Any]]) -> tuple[tuple[Any, Any], ...]:
    return tuple((first, second) for first, second in value)


def refusal_of(code: str, message: str) -> bytes:
    """Encode why a retry was refused permanently."""
    return json.dumps({"code": code, "message": message}).encode()


def refused_as(outcome: bytes) -> tuple[str, str]:
    """Parse a refusal: its code and its message."""
    said = cast("Mapping[str, str]", json.loads(outcome))
    return said["code"], said["message"]
