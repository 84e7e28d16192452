"""Figures that are counted, timed and reported: closed lists and their classes."""

import re
from collections.abc import Callable, Iterable, Mapping
from enum import Enum, StrEnum, unique
from typing import Final, cast

LABEL: Final = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}")
BOUNDS_S: Final = (0.1, 0.5, 1.0, 5.0, 10.0, 60.0, 300.0)
"""Limits of the duration classes; only a duration's class is recorded."""
TOKENS: Final = tuple(2**power for power in range(4, 21))
"""Limits of the classes of a number of tokens, as in the trace."""
Names = Mapping[str, Enum]
"""A closed list of words that may be labels."""


@unique
class Event(StrEnum):
    """Everything that is counted."""

    INSPECTED = "inspected"
    DECIDED = "decided"
    ANSWERED = "answered"
    FALLBACK = "fallback"
    REFUSED = "refuse"
    ATTEST = "attest"
    UNFINISHED = "unfinished"
    DETECTOR_RESTART = "detector_restart"
    COVERED = "covered"
    CLOCK_OFF = "clock_off"
    ROUTED = "route.decision"
    DENIED = "mask.denied"
    BOUNDARY = "boundary.hits"
    ESCALATED = "escalations"
    VERIFIED = "verifier.accept"
    FEEDBACK = "feedback"


@unique
class Stage(StrEnum):
    """Everything that is timed, and every name a span may have."""

    INSPECT = "inspect"
    ATTEST = "attest"


@unique
class Figure(StrEnum):
    """All figures of routing; each value is rounded to its class's limit."""

    ROUTE_DURATION = "route.duration"
    TTFT = "tier.ttft"
    TOKENS_PER_S = "tier.tokens_per_s"


EDGES: Final[Mapping[Figure, tuple[float, ...]]] = {
    Figure.ROUTE_DURATION: (0.001, 0.002, 0.005, 0.01, 0.05, 0.1, 1.0),
    # The usual targets lie between them: 50, 100, 150, 300, 500 ms, 2 s.
    Figure.TTFT: (0.05, 0.1, 0.15, 0.3, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0),
    Figure.TOKENS_PER_S: (1.0, 3.0, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0),
}
UNITS: Final[Mapping[Figure, str]] = {
    Figure.ROUTE_DURATION: "s",
    Figure.TTFT: "s",
    Figure.TOKENS_PER_S: "",
}


@unique
class Level(StrEnum):
    """Everything of which the current state is reported."""

    LOCAL_SHARE = "local_share"
    BREAKER = "breaker.state"
    RETRY_BUDGET = "retry.budget"
    QUEUE_DEPTH = "queue.depth"
    QUEUE_AGE = "queue.age"
    CERTIFIED = "verifier.certified"
    HEALTH = "health"
    EVIDENCE_EXPIRES = "evidence.expires"
    POLICY_EXPIRES = "policy.expires"


SECONDS: Final = frozenset(
    {Level.QUEUE_AGE, Level.EVIDENCE_EXPIRES, Level.POLICY_EXPIRES}
)
DESCRIBED: Final[Mapping[str, str]] = {
    Event.INSPECTED: "Queries that the detectors inspected.",
    Event.DECIDED: "Decisions, by their route.",
    Event.ANSWERED: "Complete answers, by tier.",
    Event.FALLBACK: "Tiers that were asked and failed, by reason.",
    Event.REFUSED: "Queries without a complete answer, by reason.",
    Event.ATTEST: "Attempts to verify evidence, by outcome.",
    Event.UNFINISHED: "Queries that the detectors did not finish.",
    Event.DETECTOR_RESTART: "Replacements of the detectors' process.",
    Event.COVERED: "Cover requests.",
    Event.CLOCK_OFF: "Dates that an enclave refused.",
    Event.ROUTED: "Choices among tiers.",
    Event.DENIED: "Tiers that may not or cannot answer a query, by reason.",
    Event.BOUNDARY: "How much of a conversation was sent, or why none of it.",
    Event.ESCALATED: "Answers that were abandoned for another tier's.",
    Event.VERIFIED: "Drafts that were judged, by verdict.",
    Event.FEEDBACK: "Feedback on answers.",
    Figure.ROUTE_DURATION: "Time to choose a tier, by its class.",
    Figure.TTFT: "Time to the first text of an answer, by its class.",
    Figure.TOKENS_PER_S: "Speed of an answer after its first text, by its class.",
    Level.LOCAL_SHARE: "Share of the last 1,000 answers that were not an enclave's.",
    Level.BREAKER: "1 for the current state of a tier's breaker.",
    Level.RETRY_BUDGET: "Additional attempts available now.",
    Level.QUEUE_DEPTH: "Questions that wait on this device.",
    Level.QUEUE_AGE: "How long the oldest of them has waited, by its class.",
    Level.CERTIFIED: "1 while drafts are judged by certified thresholds.",
    Level.HEALTH: "1 for the status that /healthz reports.",
    Level.EVIDENCE_EXPIRES: "Seconds until the verified evidence expires.",
    Level.POLICY_EXPIRES: "Seconds until the policy's signature expires.",
    "duration": "Duration of a stage, by its class.",
    "tier.cost_microusd": "Approximate cost of answers, in millionths of a dollar.",
}
"""Descriptions of the metrics."""


@unique
class Opinion(StrEnum):
    """A user's or the verifier's opinion of an answer."""

    GOOD = "good"
    BAD = "bad"


@unique
class Twice(StrEnum):
    """Why a query is sent twice: one attempt failed, or is late."""

    RETRY = "retry"
    HEDGE = "hedge"


@unique
class AttestOutcome(StrEnum):
    """Result of an attempt to verify the enclave."""

    VERIFIED = "verified"
    REFUSED = "refused"
    UNREACHABLE = "unreachable"


@unique
class RestartCause(StrEnum):
    """Why the detectors returned no result, or their process was replaced."""

    TIMEOUT = "timeout"
    WAITED = "waited"
    CRASH = "crash"
    GARBAGE = "garbage"


def names(words: Iterable[str]) -> Names:
    """Create a closed list of words, so that they may be labels.

    Called once, with a policy's tiers or our own words; never with data of a
    query.

    Raises:
        TypeError: one is not a plain word.
    """
    listed = dict.fromkeys(words)
    # Its members are only known at run time, which type checkers cannot see.
    close = cast("Callable[[str, list[tuple[str, str]]], Iterable[Enum]]", Enum)
    members = close("Name", [(f"N{at}", word) for at, word in enumerate(listed)])
    closed = {str(member.value): member for member in members}
    for member in closed.values():
        label(member)
    return closed


def label(value: object) -> str:
    """Return the word of a member of a closed list.

    Raises:
        TypeError: not a member of an ``Enum``, or its value is not a plain word; it is
            not repeated, since it may be content.
    """
    word: object = value.value if isinstance(value, Enum) else None
    if not isinstance(word, str) or LABEL.fullmatch(word) is None:
        raise TypeError("telemetry takes members of closed lists only")
    return word


def coarse_duration(seconds: float) -> float:
    """Return the upper edge of the class a duration falls into."""
    return edge_of(seconds, BOUNDS_S)


def edge_of(value: float, edges: tuple[float, ...]) -> float:
    """Return the upper edge of the class that a value falls into."""
    return next((edge for edge in edges if value <= edge), edges[-1])
