"""The client's metrics: members of closed lists, and figures by their class only.

Off unless the user configures it; then counts, coarse durations and coarse spans are
sent to the configured destination only. No environment variable enables or extends it.
Providers are private: no global provider, no propagator, no trace context in or out,
since one trace id on both sides of the relay would defeat the relay's purpose. In this
package, only this module may use ``logging`` or OpenTelemetry.

Client, relay and enclave each have such a module: the parties share no code, so that
no change for one of them can affect another.
"""

import json
import logging
import os
import re
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum, StrEnum, unique
from typing import TYPE_CHECKING, Final, cast

from curtilage.client.errors import ConfigError

if TYPE_CHECKING:
    from opentelemetry.metrics import Counter, Histogram
    from opentelemetry.sdk.metrics.export import MetricReader
    from opentelemetry.sdk.trace.export import SpanExporter
    from prometheus_client import CollectorRegistry as Registry

SERVICE_NAME: Final = "curtilage-client"
METRIC_PREFIX: Final = "curtilage.client."
EXPORT_TIMEOUT_S: Final = 10
LABEL: Final = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}")
URL: Final = re.compile(r"https?://[A-Za-z0-9._\[\]:-]+(?:/[!-~]*)?")
BOUNDS_S: Final = (0.1, 0.5, 1.0, 5.0, 10.0, 60.0, 300.0)
"""Limits of the duration classes; only a duration's class is recorded."""
TOKENS: Final = tuple(2**power for power in range(4, 21))
"""Limits of the classes of a number of tokens, as in the trace."""
SHARE_OF: Final = 1000
"""``local_share`` is computed over this many answers."""
SPAN_GRAIN_S: Final = 60
"""The start of a span is rounded to a minute."""
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
_UNITS: Final[Mapping[Figure, str]] = {
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


_SECONDS: Final = frozenset(
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
class LogForm(StrEnum):
    """Format of a line about a change of state."""

    TEXT = "text"
    JSON = "json"


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
    """How an attempt to verify the enclave ended."""

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


class TelemetryError(ConfigError):
    """Telemetry was requested and is not available; names what is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetrySettings:
    """Destination of the metrics; both None: none.

    Attributes:
        otlp_endpoint: base URL of an OTLP/HTTP collector, such as
            ``http://127.0.0.1:4318``; ``/v1/metrics`` and ``/v1/traces`` follow.
        prometheus_host: address to serve Prometheus on.
        prometheus_port: its port; 0: any free one; None: no port.
        interval_s: reporting interval; long, so that no query is alone in a
            report.
    """

    otlp_endpoint: str | None = None
    prometheus_host: str = "127.0.0.1"
    prometheus_port: int | None = None
    interval_s: float = 60.0


class Telemetry:
    """Private OpenTelemetry providers; ``configure`` builds one.

    Args:
        readers: where counts are read from.
        spans: where spans go, or None for none.
    """

    def __init__(
        self, *, readers: "Sequence[MetricReader]", spans: "SpanExporter | None" = None
    ) -> None:
        # These libraries are an extra: imported only when used.
        from opentelemetry.sdk import metrics, resources, trace  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
        from opentelemetry.sdk.trace.sampling import ALWAYS_ON  # noqa: PLC0415

        # Not Resource.create: that adds data of the environment and of detectors.
        resource = resources.Resource({"service.name": SERVICE_NAME})
        self._meters = metrics.MeterProvider(
            metric_readers=readers,
            resource=resource,
            exemplar_filter=metrics.AlwaysOffExemplarFilter(),
            shutdown_on_exit=False,
        )
        self._tracers = trace.TracerProvider(
            sampler=ALWAYS_ON, resource=resource, shutdown_on_exit=False
        )
        if spans is not None:
            self._tracers.add_span_processor(
                BatchSpanProcessor(
                    spans,
                    max_queue_size=2048,
                    schedule_delay_millis=SPAN_GRAIN_S * 1000,
                    max_export_batch_size=512,
                    export_timeout_millis=EXPORT_TIMEOUT_S * 1000,
                )
            )
        meter = self._meters.get_meter(SERVICE_NAME)
        self._tracer = self._tracers.get_tracer(SERVICE_NAME)
        self._counters: Mapping[Event, Counter] = {
            event: meter.create_counter(
                f"{METRIC_PREFIX}{event}", description=DESCRIBED[event.value]
            )
            for event in Event
        }
        self._duration = meter.create_histogram(
            f"{METRIC_PREFIX}duration",
            unit="s",
            description=DESCRIBED["duration"],
            explicit_bucket_boundaries_advisory=list(BOUNDS_S),
        )
        self._figures: Mapping[Figure, Histogram] = {
            figure: meter.create_histogram(
                f"{METRIC_PREFIX}{figure}",
                unit=_UNITS[figure],
                description=DESCRIBED[figure.value],
                explicit_bucket_boundaries_advisory=list(EDGES[figure]),
            )
            for figure in Figure
        }
        self._levels = {
            level: meter.create_gauge(
                f"{METRIC_PREFIX}{level}",
                unit="s" if level in _SECONDS else "",
                description=DESCRIBED[level.value],
            )
            for level in Level
        }
        self._cost = meter.create_counter(
            f"{METRIC_PREFIX}tier.cost_microusd",
            description=DESCRIBED["tier.cost_microusd"],
        )
        self._at_home: deque[bool] = deque(maxlen=SHARE_OF)
        self._closers: list[Callable[[], None]] = []
        self.prometheus_port: int | None = None

    def count(self, event: Event, labels: Mapping[str, Enum]) -> None:
        """Count one event; labels are members of closed lists."""
        self._counters[event].add(1, {key: label(labels[key]) for key in labels})

    def measured(
        self, figure: Figure, value: float, labels: Mapping[str, Enum]
    ) -> None:
        """Record a figure by its class only."""
        words = {key: label(labels[key]) for key in labels}
        # The histogram also exports a sum, which would reveal a single exact value.
        self._figures[figure].record(_edge_of(value, EDGES[figure]), words)

    def set_level(self, level: Level, value: float, labels: Mapping[str, Enum]) -> None:
        """Set the current value of a level."""
        self._levels[level].set(value, {key: label(labels[key]) for key in labels})

    def cost(self, tier: Enum, microusd: float) -> None:
        """Add the approximate cost of an answer."""
        self._cost.add(microusd, {"tier": label(tier)})

    def share(self, *, home: bool) -> None:
        """Record where one more answer was given."""
        self._at_home.append(home)
        share = sum(self._at_home) / len(self._at_home)
        self.set_level(Level.LOCAL_SHARE, share, {})

    def took(self, stage: Stage, seconds: float) -> None:
        """Record a stage's duration, by class only, as a number and a span."""
        from opentelemetry.context import Context  # noqa: PLC0415

        coarse_s = coarse_duration(seconds)
        # The histogram also exports a sum, which would reveal a single exact value.
        self._duration.record(coarse_s, {"stage": label(stage)})
        began_ns = int(time.time()) // SPAN_GRAIN_S * SPAN_GRAIN_S * 10**9
        # An empty context: no parent, and no context that others could continue.
        span = self._tracer.start_span(
            label(stage), context=Context(), start_time=began_ns
        )
        span.end(end_time=began_ns + int(coarse_s * 10**9))

    def answer_prometheus(self, host: str, port: int, registry: "Registry") -> None:
        """Serve the metrics of a private registry to a Prometheus server."""
        from prometheus_client import start_http_server  # noqa: PLC0415

        server, thread = start_http_server(port, host, registry)

        def stop() -> None:
            server.shutdown()
            server.server_close()
            thread.join()

        self._closers.append(stop)
        self.prometheus_port = server.server_port

    def close(self) -> None:
        """Send the remaining data and stop."""
        self._tracers.shutdown()
        self._meters.shutdown()
        for close in self._closers:
            close()


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
    with _without_otel_environment():
        try:
            _State.active = _build(settings)
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


Names = Mapping[str, Enum]
"""A closed list of words that may be labels."""


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


def coarse_duration(seconds: float) -> float:
    """Return the upper edge of the class a duration falls into."""
    return _edge_of(seconds, BOUNDS_S)


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


class StateLog:
    """Writes one line for each change of state; never about a query.

    Every word of a line is a member of a closed list, or is in ``words``.

    Args:
        form: the format.
        write: takes a line; its errors are ignored.
        words: the meaning of each reason.
        clock: the time, aware.
    """

    def __init__(
        self,
        form: LogForm,
        write: Callable[[str], object],
        *,
        words: Mapping[str, str],
        clock: Callable[[], datetime],
    ) -> None:
        self._form = form
        self._write = write
        self._words = words
        self._clock = clock

    def changed(
        self,
        part: Enum,
        state: Enum,
        *,
        tier: Enum | None = None,
        reason: Enum | None = None,
        until: datetime | None = None,
    ) -> None:
        """Write a line about a change.

        Args:
            part: the part.
            state: its new state, or the event.
            tier: if there are several of its kind.
            reason: the problem.
            until: expiry of what is in force.

        Raises:
            TypeError: a value is not a member of a closed list.
        """
        fields = {
            "time": _seconds(self._clock()),
            "part": label(part),
            "tier": None if tier is None else label(tier),
            "state": label(state),
            "reason": None if reason is None else label(reason),
            "until": None if until is None else _seconds(until),
        }
        shown = {name: value for name, value in fields.items() if value is not None}
        if self._form is LogForm.JSON:
            line = json.dumps(shown)
        else:
            which = f" {shown['tier']}" if "tier" in shown else ""
            line = f"{shown['time']} {shown['part']}{which}: {shown['state']}"
            words = self._words.get(shown.get("reason", shown["state"]))
            line += f" ({shown['reason']})" if "reason" in shown else ""
            line += f": {words}" if words else ""
            line += f"; until {shown['until']}" if "until" in shown else ""
        # A full disk or a closed pipe must not stop the client.
        with suppress(OSError, ValueError):
            self._write(line)


def health(status: Enum) -> None:
    """Report the status of the client: 1 for the current one, 0 for the others."""
    for each in type(status):
        _set_level(Level.HEALTH, float(each is status), status=each)


def expires(level: Level, seconds: float) -> None:
    """Report when something expires: whole minutes from now, in seconds."""
    _set_level(level, max(0.0, seconds // 60 * 60))


def _seconds(time: datetime) -> str:
    return time.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


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


def _edge_of(value: float, edges: tuple[float, ...]) -> float:
    return next((edge for edge in edges if value <= edge), edges[-1])


def _middle(tokens: int) -> float:
    """Return the middle of the class of a number of tokens."""
    edge = _edge_of(tokens, TOKENS)
    return edge / 2 if edge == TOKENS[0] else edge * 3 / 4


def _build(settings: TelemetrySettings) -> Telemetry:
    readers: list[MetricReader] = []
    spans: SpanExporter | None = None
    registry: Registry | None = None
    if settings.otlp_endpoint is not None:
        reader, spans = _otlp(settings.otlp_endpoint, settings.interval_s)
        readers.append(reader)
    if settings.prometheus_port is not None:
        from opentelemetry.exporter.prometheus import PrometheusMetricReader  # noqa: PLC0415
        from prometheus_client import CollectorRegistry  # noqa: PLC0415

        # Not the library's global registry: it also exports data about the process.
        registry = CollectorRegistry()
        readers.append(
            PrometheusMetricReader(
                disable_target_info=True, scope_info_enabled=False, registry=registry
            )
        )
    telemetry = Telemetry(readers=readers, spans=spans)
    if registry is not None and settings.prometheus_port is not None:
        telemetry.answer_prometheus(
            settings.prometheus_host, settings.prometheus_port, registry
        )
    return telemetry


def _otlp(endpoint: str, interval_s: float) -> "tuple[MetricReader, SpanExporter]":
    import requests  # noqa: PLC0415, TID251 - a door
    from opentelemetry.exporter.otlp.proto.http import Compression  # noqa: PLC0415
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import (  # noqa: PLC0415
        OTLPMetricExporter,
    )
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import (  # noqa: PLC0415
        OTLPSpanExporter,
    )
    from opentelemetry.sdk.metrics.export import (  # noqa: PLC0415
        PeriodicExportingMetricReader,
    )

    session = requests.Session()
    session.trust_env = False  # neither proxies nor .netrc from the environment
    session.headers.clear()
    base = endpoint.rstrip("/")
    metrics = OTLPMetricExporter(
        endpoint=f"{base}/v1/metrics",
        timeout=EXPORT_TIMEOUT_S,
        compression=Compression.NoCompression,
        session=session,
    )
    spans = OTLPSpanExporter(
        endpoint=f"{base}/v1/traces",
        timeout=EXPORT_TIMEOUT_S,
        compression=Compression.NoCompression,
        session=session,
    )
    reader = PeriodicExportingMetricReader(
        metrics,
        export_interval_millis=interval_s * 1000,
        export_timeout_millis=EXPORT_TIMEOUT_S * 1000,
    )
    return reader, spans


@contextmanager
def _without_otel_environment() -> Generator[None]:
    """Hide OTEL_* while providers are built, since they would apply them."""
    hidden = {name: os.environ[name] for name in os.environ if name.startswith("OTEL_")}
    for name in hidden:
        del os.environ[name]
    try:
        yield
    finally:
        os.environ.update(hidden)
