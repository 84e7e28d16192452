"""Questions that wait for an answer: which may, as what they are kept, how they go on.

What is kept of a question is its request, as OpenAI's API has it; of its answer, the
answer and where it is from. Nothing that permits anything is kept: no permission, no
permit, no consent. A question that goes on is inspected and decided anew, and may leave
only as long as it is still of the class that it was put by under.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from enum import StrEnum, unique
from typing import Any, Final, cast

from curtilage.client.answer import Answer, Answerer, Finished, Obstacle, Provenance
from curtilage.client.errors import FailureReason
from curtilage.client.openai_chat import parse_completion_request
from curtilage.client.options import Mode, RoutingOptions
from curtilage.client.query import Query
from curtilage.policy.decision.tiers import RoutingClass

TICKET_BYTES: Final = 16

# What ends by itself, or by somebody who plugs a cable in. An enclave whose evidence
# was refused, and a model that is not there, are none: waiting changes nothing.
OUT_THERE: Final = frozenset(
    {
        FailureReason.RELAY_UNREACHABLE,
        FailureReason.RELAY_HUNG_UP,
        FailureReason.ENCLAVE_UNREACHABLE,
        FailureReason.MIRROR_UNREACHABLE,
        FailureReason.KEY_UNKNOWN,
        FailureReason.TOO_MANY_RUNNING,
        FailureReason.BUSY,
        FailureReason.ANSWER_BROKEN,
        FailureReason.ANSWER_INCOMPLETE,
        FailureReason.ANSWER_LATE,
        FailureReason.TIMEOUT,
    }
)
"""Why an enclave did not answer that may answer later."""
_AT_HOME: Final = frozenset(
    {
        FailureReason.LOCAL_BUSY,
        FailureReason.LOCAL_OUT_OF_MEMORY,
        FailureReason.LOCAL_SLOW,
        FailureReason.ON_PREMISES_UNREACHABLE,
        FailureReason.ON_PREMISES_BUSY,
        FailureReason.ON_PREMISES_FAILED,
        FailureReason.ON_PREMISES_ANSWER_BROKEN,
        FailureReason.ON_PREMISES_ANSWER_INCOMPLETE,
        FailureReason.ON_PREMISES_LATE,
    }
)
TRANSIENT: Final = OUT_THERE | _AT_HOME
"""Why somebody did not answer who may answer later."""


def worth_waiting(
    reasons: Iterable[FailureReason], routing_class: RoutingClass
) -> FailureReason | None:
    """Return what a query could wait for the end of; None: nothing.

    Args:
        reasons: why those who may answer did not.
        routing_class: of the query. What is restricted goes on at home alone, so it
            waits for nobody else.
    """
    ends = _AT_HOME if routing_class is RoutingClass.RESTRICTED else TRANSIENT
    return next((each for each in reasons if each in ends), None)


@unique
class State(StrEnum):
    """What became of a question that waits, so far.

    ``REFUSED``: asked again, it was refused for good. ``EXPIRED``: it waited as long as
    one of its class may; nothing of it is left.
    """

    WAITING = "waiting"
    ANSWERED = "answered"
    REFUSED = "refused"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True, kw_only=True)
class Deferred:
    """One question that waits, without a word of it.

    Attributes:
        ticket: by which its answer is collected, 32 hexadecimal digits.
        routing_class: under which it was put by.
        policy: ``sha256:…`` of the policy that was in force then.
        cause: why nobody answered, a ``FailureReason``.
        put_ms: when it was put by, Unix time.
        until_ms: when it is forgotten.
        state: what became of it.
    """

    ticket: str
    routing_class: RoutingClass
    policy: str
    cause: str
    put_ms: int
    until_ms: int
    state: State = State.WAITING

    def bound(self) -> bytes:
        """Return what its content is sealed together with, so that none can change."""
        said = asdict(self)
        return json.dumps(said, sort_keys=True, separators=(",", ":")).encode()


def goes_on(query: Query, *, put_as: RoutingClass, is_now: RoutingClass) -> Query:
    """Return a query as it is asked again.

    Args:
        query: as it was put by.
        put_as: its class then.
        is_now: its class by the policy in force, decided anew.
    """
    options = replace(query.options, defer=True)  # or it would not wait on
    if put_as is RoutingClass.RESTRICTED or is_now is not put_as:
        # What had to stay may be about what no detector finds now: another turn of its
        # conversation, which this process never saw. A list that was shortened, or a
        # policy that was changed under it, sends nothing out that waited because of it.
        return replace(query, options=replace(options, mode=Mode.HOME))
    # Between that decision and the next one it can become more private, and never less.
    floor = max(put_as, options.floor, key=lambda each: each.privacy)
    return replace(query, options=replace(options, floor=floor))


def request_of(query: Query) -> bytes:
    """Encode a query as the request by which OpenAI's API would ask it."""
    settings, options = query.settings, query.options
    body = {
        "messages": [
            {"role": each.role, "content": each.content}
            | ({} if each.name is None else {"name": each.name})
            for each in query.messages
        ],
        "max_tokens": settings.max_tokens,
        "temperature": settings.temperature,
        "top_p": settings.top_p,
        "seed": settings.seed,
        "stop": list(settings.stop) or None,
        "logprobs": settings.logprobs,
        "stream": query.stream,
        "curtilage": _asked(options),
    }
    # As ``json`` reads it: half a character, which no UTF-8 has, may come in a request.
    return json.dumps(body, ensure_ascii=False).encode("utf-8", "surrogatepass")


def _asked(options: RoutingOptions) -> dict[str, object]:
    # Not the consent: that was for what was shown then, and for ten minutes.
    return {
        "slo_ms": {"ttft": options.ttft_ms, "total": options.total_ms},
        "slo_hard": options.slo_hard,
        "max_cost": options.max_cost_microusd,
        "floor": options.floor,
        "mode": options.mode,
        "require": options.require,
    }


def query_of(request: bytes) -> Query:
    """Read a query as ``request_of`` wrote it.

    Raises:
        UsageError: it is no such request.
    """
    return parse_completion_request(request).query


def outcome_of(answer: Answer) -> bytes:
    """Encode an answer and where it is from."""
    return json.dumps(asdict(answer), ensure_ascii=False).encode(
        "utf-8", "surrogatepass"
    )


def answer_of(outcome: bytes) -> Answer:
    """Read an answer as ``outcome_of`` wrote it.

    Raises:
        ValueError: another version of this program wrote it otherwise.
    """
    try:
        value = cast("dict[str, Any]", json.loads(outcome))
        said: dict[str, Any] = value["provenance"]
        fallback, obstacle = said["fallback"], said["obstacle"]
        said |= {
            "route": Answerer(said["route"]),
            "classes": tuple(said["classes"]),
            "uncertain": tuple(said["uncertain"]),
            "deidentified": _pairs(said["deidentified"]),
            "fallback": None if fallback is None else FailureReason(fallback),
            "obstacle": None if obstacle is None else Obstacle(obstacle),
        }
        return Answer(
            text=value["text"],
            provenance=Provenance(**said),
            finished=Finished(**value["finished"]),
            logprobs=_pairs(value["logprobs"]),
            id=value["id"],
        )
    except (TypeError, LookupError) as error:
        raise ValueError("no answer of this version") from error


def _pairs(value: list[list[Any]]) -> tuple[tuple[Any, Any], ...]:
    return tuple((first, second) for first, second in value)


def refusal_of(code: str, message: str) -> bytes:
    """Encode why a question was refused for good when it was asked again."""
    return json.dumps({"code": code, "message": message}).encode()


def refused_as(outcome: bytes) -> tuple[str, str]:
    """Read a refusal: its code and its message."""
    said = cast("Mapping[str, str]", json.loads(outcome))
    return said["code"], said["message"]
