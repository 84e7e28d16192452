"""The client's metrics: members of closed lists, and figures by their class only.

Off unless the user configures it; then counts, coarse durations and coarse spans are
sent to the configured destination only. No environment variable enables or extends it.
Providers are private: no global provider, no propagator, no trace context in or out,
since one trace id on both sides of the relay would defeat the relay's purpose. In this
package, only this folder may use ``logging`` or OpenTelemetry.

Client, relay and enclave each have such a part: the parties share no code, so that
no change for one of them can affect another.
"""

import logging
import re
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from enum import Enum
from typing import Final

from curtilage.client.errors import ConfigError
from curtilage.client.telemetry.lists import (
    DESCRIBED,
    TOKENS,
    AttestOutcome,
    Event,
    Figure,
    Level,
    Names,
    Opinion,
    RestartCause,
    Stage,
    Twice,
    coarse_duration,
    edge_of,
    label,
    names,
)
from curtilage.client.telemetry.providers import (
    METRIC_PREFIX,
    Telemetry,
    TelemetrySettings,
    build,
)
from curtilage.client.telemetry.state_log import LogForm, StateLog

__all__ = [  # of the folder's other files
    "DESCRIBED",
    "METRIC_PREFIX",
    "AttestOutcome",
    "Event",
    "Figure",
    "Level",
    "LogForm",
    "Names",
    "Opinion",
    "RestartCause",
    "Stage",
    "StateLog",
    "Telemetry",
    "TelemetrySettings",
    "Twice",
    "coarse_duration",
    "label",
    "names",
]

URL: Final = re.compile(r"https?://[A-Za-z0-9._\[\]:-]+(?:/[!-~]*)?")
LOUDER_THAN_ANYTHING: Final = logging.CRITICAL + 1
LIBRARY_LOGGERS: Final = (
    "aiohttp",
    "aiohttp.access",
    "aiohttp.client",
    "aiohttp.internal",
    "aiohttp.server",
    "aiohttp.web",
    "aiohttp.websocket",
    "asyncio",
    "concurrent.futures",
    "opentelemetry",
    "presidio-analyzer",
    "presidio_analyzer",
    "spacy",
    "urllib3",
)

# Read by libraries, some once at load time, so it is set before any is imported. It is
# defined here since every module that imports one of them may import this module.
UNREPORTED: Final[Mapping[str, str]] = {
    "ORT_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "DO_NOT_TRACK": "1",
}


class TelemetryError(ConfigError):
    """Telemetry was requested and is not available; names what is missing."""


class _State:
    """The only mutable state of this module."""

    active: Telemetry | None = None


def configure(settings: TelemetrySettings) -> Telemetry | None:
    """Enable telemetry as the user configured it, or leave it off.

    Returns:
        The active telemetry; None if the settings name no destination.

    Raises:
        TelemetryError: a destination is set and the extra is not installed, the address
            is invalid, or the port is not available.
    """
    shutdown()
    if settings.otlp_endpoint is None and settings.prometheus_port is None:
        return None
    if settings.otlp_endpoint is not None and not URL.fullmatch(settings.otlp_endpoint):
        # Its library would log this once a minute, but its log is off.
        raise TelemetryError(
            "the collector's address (--otlp) must be http:// or https://, a host, and "
            "optionally a port: http://127.0.0.1:4318"
        )
    try:
        _State.active = build(settings)
    except ImportError:
        raise TelemetryError(
            "telemetry is configured but its libraries are not installed: "
            "pip install 'curtilage[telemetry]'"
        ) from None
    except OSError as error:
        raise TelemetryError(
            f"{settings.prometheus_host}:{settings.prometheus_port} "
            f"(--prometheus-port) cannot be listened at: {error.strerror}"
        ) from None
    return _State.active


def use(telemetry: Telemetry | None) -> None:
    """Make ``telemetry`` active; for callers with readers of their own."""
    _State.active = telemetry


def shutdown() -> None:
    """Send the remaining data and disable telemetry."""
    active, _State.active = _State.active, None
    if active is not None:
        active.close()


def inspected() -> None:
    """Count an inspected query."""
    _count(Event.INSPECTED)


def decided(route: Enum) -> None:
    """Count a decision by its route."""
    _count(Event.DECIDED, route=route)


def answered(route: Enum, *, home: bool) -> None:
    """Count a complete answer by tier, and whether it was local or on-premises."""
    _count(Event.ANSWERED, route=route)
    if _State.active is not None:
        _State.active.share(home=home)


def routed(tier: Enum, intent: Enum, reason: Enum, seconds: float) -> None:
    """Count a choice among tiers, and record its duration."""
    _count(Event.ROUTED, tier=tier, intent=intent, reason=reason)
    if _State.active is not None:
        _State.active.measured(Figure.ROUTE_DURATION, seconds, {})


def denied(tier: Enum, reason: Enum) -> None:
    """Count a tier that may not or cannot answer a query."""
    _count(Event.DENIED, tier=tier, reason=reason)


def boundary(step: Enum) -> None:
    """Count how much of a conversation was sent, or why none of it."""
    _count(Event.BOUNDARY, step=step)


def verified(tier: Enum, opinion: Opinion) -> None:
    """Count the verifier's opinion of a tier's answer."""
    _count(Event.VERIFIED, tier=tier, opinion=opinion)


def escalated(tier: Enum) -> None:
    """Count an answer of a tier that was abandoned for another's."""
    _count(Event.ESCALATED, tier=tier)


def feedback(tier: Enum, opinion: Opinion) -> None:
    """Count a user's opinion of a tier's answer."""
    _count(Event.FEEDBACK, tier=tier, opinion=opinion)


def certified(alpha: Enum, *, in_force: bool) -> None:
    """Report whether drafts are judged by thresholds certified for this error rate."""
    _set_level(Level.CERTIFIED, float(in_force), alpha=alpha)


def breaker(tier: Enum, state: Enum) -> None:
    """Report a breaker's state: 1 for the current one, 0 for the others."""
    for each in type(state):
        _set_level(Level.BREAKER, float(each is state), tier=tier, state=each)


def retry_budget(share: Twice, left: int) -> None:
    """Report the number of additional attempts available now."""
    _set_level(Level.RETRY_BUDGET, left, share=share)


def queued(depth: int, age_s: float) -> None:
    """Report how many queries wait on this device, and for how long the oldest."""
    _set_level(Level.QUEUE_DEPTH, depth)
    _set_level(Level.QUEUE_AGE, coarse_duration(age_s) if depth else 0)


class Answering:
    """Measures one tier's answer; recorded once it is complete.

    Args:
        tier: the tier.
        cost_microusd_per_mtok: of a million tokens; None: unknown.
    """

    def __init__(self, tier: Enum, *, cost_microusd_per_mtok: int | None) -> None:
        self._tier = tier
        self._price = cost_microusd_per_mtok
        self._began_s = time.perf_counter()
        self._first_s: float | None = None
        self._last_s = self._began_s

    def text(self) -> None:
        """Record that a piece arrived."""
        self._last_s = time.perf_counter()
        if self._first_s is None:
            self._first_s = self._last_s

    def finished(self, prompt_tokens: int, answer_tokens: int) -> None:
        """Record its end."""
        label(self._tier)
        active = _State.active
        if active is None:
            return
        if self._first_s is not None:
            tier = {"tier": self._tier}
            active.measured(Figure.TTFT, self._first_s - self._began_s, tier)
            writing_s = self._last_s - self._first_s
            if writing_s > 0 and answer_tokens > 1:
                speed = (answer_tokens - 1) / writing_s
                active.measured(Figure.TOKENS_PER_S, speed, tier)
        if self._price is not None:
            # From the classes' middles: the exact sum would reveal a query's length.
            tokens = _middle(prompt_tokens) + _middle(answer_tokens)
            active.cost(self._tier, self._price * tokens / 10**6)


def fallback(tier: Enum, reason: Enum) -> None:
    """Count a tier that was asked and failed."""
    _count(Event.FALLBACK, tier=tier, reason=reason)


def refused(code: Enum) -> None:
    """Count a query that was not answered."""
    _count(Event.REFUSED, code=code)


def attest(outcome: AttestOutcome, code: Enum | None = None) -> None:
    """Count an attempt to verify the enclave, with the refusal's code if any."""
    if code is None:
        _count(Event.ATTEST, outcome=outcome)
    else:
        _count(Event.ATTEST, outcome=outcome, code=code)


def unfinished(cause: RestartCause) -> None:
    """Count a query that the detectors did not finish, which is kept local."""
    _count(Event.UNFINISHED, cause=cause)


def detector_restart(cause: RestartCause) -> None:
    """Count a replacement of the detectors' process."""
    _count(Event.DETECTOR_RESTART, cause=cause)


def covered() -> None:
    """Count a cover request, without query, size or time."""
    _count(Event.COVERED)


def clock_off() -> None:
    """Count a date that an enclave refused, without the difference."""
    _count(Event.CLOCK_OFF)


def took(stage: Stage, seconds: float) -> None:
    """Record a stage's duration; only its class is kept."""
    label(stage)
    if _State.active is not None:
        _State.active.took(stage, seconds)


@contextmanager
def timed(stage: Stage) -> Generator[None]:
    """Time the block, whether it succeeds or not."""
    began = time.perf_counter()
    try:
        yield
    finally:
        took(stage, time.perf_counter() - began)


def health(status: Enum) -> None:
    """Report the status of the client: 1 for the current one, 0 for the others."""
    for each in type(status):
        _set_level(Level.HEALTH, float(each is status), status=each)


def expires(level: Level, seconds: float) -> None:
    """Report when something expires: whole minutes from now, in seconds."""
    _set_level(level, max(0.0, seconds // 60 * 60))


def silence_libraries() -> None:
    """Silence the loggers of our libraries, at every level.

    Some of them log their data: addresses, malformed bytes, texts.
    """
    for name in LIBRARY_LOGGERS:
        logger = logging.getLogger(name)
        logger.disabled = True
        logger.propagate = False
        logger.setLevel(LOUDER_THAN_ANYTHING)
        # For child loggers: without any handler, Python's last resort would print.
        if not logger.handlers:
            logger.addHandler(logging.NullHandler())


def _count(event: Event, **labels: Enum) -> None:
    for value in labels.values():
        label(value)  # also checked while telemetry is off, for tests
    if _State.active is not None:
        _State.active.count(event, labels)


def _set_level(level: Level, value: float, **labels: Enum) -> None:
    for each in labels.values():
        label(each)
    if _State.active is not None:
        _State.active.set_level(level, value, labels)


def _middle(tokens: int) -> float:
    """Return the middle of the class of a number of tokens."""
    edge = edge_of(tokens, TOKENS)
    return edge / 2 if edge == TOKENS[0] else edge * 3 / 4
