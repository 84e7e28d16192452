"""The relay's metrics: counts of answers, refusals and fetches, by closed lists only.

Off unless the configuration names a destination; no environment variable turns
anything on or adds anything. Counts and duration classes only: no span, since one per
exchange would record who sent a request when, and no path, address, size or time.
Providers are private; nothing is propagated. This is the only module of the relay that
may use ``logging`` or OpenTelemetry.

``StateLog`` writes a line when a gateway's state changes: which gateway, and what is
wrong with it. No line is about a request or a client.

Client, relay and enclave each have such a module: the parties share no code, so that
no change for one of them can affect another.
"""

import asyncio
import json
import logging
import os
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum, unique
from functools import partial
from typing import TYPE_CHECKING, Final

from curtilage.relay.errors import StartError
from curtilage.relay.refusals import Refusal

if TYPE_CHECKING:
    from opentelemetry.metrics import Counter
    from opentelemetry.sdk.metrics.export import MetricReader
    from prometheus_client import CollectorRegistry as Registry

SERVICE_NAME: Final = "curtilage-relay"
METRIC_PREFIX: Final = "curtilage.relay."
EXPORT_TIMEOUT_S: Final = 10
BOUNDS_S: Final = (0.1, 1.0, 10.0, 100.0)
"""Upper bounds of the duration classes; only the class of a duration is known."""
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
    "opentelemetry",
    "urllib3",
)


@unique
class Event(StrEnum):
    """Everything that is counted."""

    FORWARDED = "forwarded"
    REJECTED = "rejected"
    CACHED_FETCH = "cached_fetch"


DESCRIBED: Final[Mapping[Event, str]] = {
    Event.FORWARDED: "Answers that came from a gateway, by the class of their status.",
    Event.REJECTED: "Requests and answers that did not pass, by reason.",
    Event.CACHED_FETCH: "Requested copies of keys and evidence.",
}
"""The description of each metric."""


@unique
class StatusClass(StrEnum):
    """Kind of a gateway's answer; the exact status could carry a message."""

    SUCCESS = "2xx"
    CLIENT_ERROR = "4xx"
    SERVER_ERROR = "5xx"


@unique
class Fetch(StrEnum):
    """Origin of a copy of keys or bundle."""

    FRESH = "fresh"
    CACHED = "cached"
    FAILED = "failed"


@unique
class LogForm(StrEnum):
    """The format of a line about a change of state."""

    TEXT = "text"
    JSON = "json"


@unique
class State(StrEnum):
    """The state of a gateway in a line."""

    OK = "ok"
    DEGRADED = "degraded"


WORDS: Final[Mapping[Refusal, str]] = {
    Refusal.GATEWAY_UNREACHABLE: "the gateway cannot be reached",
    Refusal.GATEWAY_TIMEOUT: "the gateway did not answer in time",
}
"""Problems of a gateway; all other refusals concern one request."""
HOLD_S: Final = 30.0
"""The shortest time between two lines about one gateway."""


class StateLog:
    """Writes one line for each change of a gateway's state; never about a request.

    A gateway that flaps gets a line every ``HOLD_S`` at most; when that time is over,
    the current state is written if it differs from the last one written.

    Args:
        gateways: their names, as the configuration has them.
        form: how a line is written.
        write: takes a line. A failure to write stops nothing.
        clock: the time, aware.
        monotonic: the time in seconds, of a clock that does not jump.
        later: schedules a call after so many seconds.
    """

    def __init__(
        self,
        gateways: Iterable[str],
        form: LogForm = LogForm.TEXT,
        *,
        write: Callable[[str], object] = lambda _: None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        monotonic: Callable[[], float] = time.monotonic,
        later: Callable[[float, Callable[[], object]], object] | None = None,
    ) -> None:
        self._form = form
        self._write = write
        self._clock = clock
        self._monotonic = monotonic
        self._later = later
        self._now: dict[str, Refusal | None] = dict.fromkeys(gateways)
        self._written = dict(self._now)
        self._written_s: dict[str, float] = {}
        self._waiting: set[str] = set()

    @property
    def degraded(self) -> bool:
        """Whether a gateway's last exchange failed."""
        return any(each is not None for each in self._now.values())

    def gateway(self, name: str, refusal: Refusal | None) -> None:
        """Record that a gateway answered, or why it did not.

        Raises:
            KeyError: the configuration names no such gateway.
        """
        if refusal is not None and refusal not in WORDS:
            return
        if self._now[name] is not refusal:
            self._now[name] = refusal
            self._report(name)

    def _report(self, name: str) -> None:
        refusal = self._now[name]
        if refusal is self._written[name]:
            return
        now_s = self._monotonic()
        last_s = self._written_s.get(name)
        wait_s = 0.0 if last_s is None else last_s + HOLD_S - now_s
        if wait_s <= 0:
            self._written[name], self._written_s[name] = refusal, now_s
            state = State.OK if refusal is None else State.DEGRADED
            self._line(name, state, refusal)
        elif name not in self._waiting:
            self._waiting.add(name)
            later = self._later or asyncio.get_running_loop().call_later
            later(wait_s, partial(self._after, name))

    def _after(self, name: str) -> None:
        self._waiting.discard(name)
        self._report(name)

    def _line(self, name: str, state: State, refusal: Refusal | None) -> None:
        time_ = self._clock().astimezone(UTC).isoformat(timespec="seconds")
        at = time_.replace("+00:00", "Z")
        if self._form is LogForm.JSON:
            fields = {"time": at, "part": "gateway", "name": name, "state": state.value}
            reason = {} if refusal is None else {"reason": refusal.value}
            line = json.dumps(fields | reason)
        else:
            line = f"{at} gateway {name}: {state.value}"
            if refusal is not None:
                line += f" ({refusal.value}): {WORDS[refusal]}"
        # A full disk or a reader that is gone stops no request.
        with suppress(OSError, ValueError):
            self._write(line)


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetrySettings:
    """Destination of metrics; with both None, there is none.

    Attributes:
        otlp_endpoint: base URL of an OTLP/HTTP collector, such as
            ``http://127.0.0.1:4318``; ``/v1/metrics`` follows.
        prometheus_host: address on which to serve Prometheus.
        prometheus_port: its port; 0 picks a free port; None serves nothing.
        interval_s: how often counts are sent; long, so that a report does not consist
            of a single request.
    """

    otlp_endpoint: str | None = None
    prometheus_host: str = "127.0.0.1"
    prometheus_port: int | None = None
    interval_s: float = 60.0


class Telemetry:
    """Counts, or does nothing without readers.

    Args:
        readers: where counts are read from.
    """

    def __init__(self, readers: "Sequence[MetricReader]" = ()) -> None:
        self._closers: list[Callable[[], object]] = []
        self._counters: Mapping[Event, Counter] = {}
        self._record: Callable[[float], None] = lambda _: None
        self.prometheus_port: int | None = None
        if not readers:
            return
        # These libraries are an extra: imported only if telemetry is configured.
        from opentelemetry.sdk import metrics, resources  # noqa: PLC0415

        provider = metrics.MeterProvider(
            metric_readers=readers,
            # Not Resource.create: that reads the environment.
            resource=resources.Resource({"service.name": SERVICE_NAME}),
            # An exemplar stores one measurement with its time, which is one exchange.
            exemplar_filter=metrics.AlwaysOffExemplarFilter(),
            shutdown_on_exit=False,
        )
        meter = provider.get_meter(SERVICE_NAME)
        self._closers.append(provider.shutdown)
        self._counters = {
            event: meter.create_counter(
                f"{METRIC_PREFIX}{event}", description=DESCRIBED[event]
            )
            for event in Event
        }
        self._record = meter.create_histogram(
            f"{METRIC_PREFIX}duration",
            unit="s",
            description="Time that an exchange took, by its class.",
            explicit_bucket_boundaries_advisory=list(BOUNDS_S),
        ).record

    def forwarded(self, status_class: StatusClass) -> None:
        """Count an answer that came from a gateway."""
        self._count(Event.FORWARDED, status_class)

    def rejected(self, reason: Refusal) -> None:
        """Count a request or an answer that did not pass."""
        self._count(Event.REJECTED, reason)

    def cached_fetch(self, outcome: Fetch) -> None:
        """Count a request for a copy of keys or bundle."""
        self._count(Event.CACHED_FETCH, outcome)

    def took(self, seconds: float) -> None:
        """Record the duration class of an exchange."""
        # A histogram also exports a sum: of exact values it could disclose one.
        edge = next((edge for edge in BOUNDS_S if seconds <= edge), BOUNDS_S[-1])
        self._record(edge)

    def answer_prometheus(self, host: str, port: int, registry: "Registry") -> None:
        """Serve the counts of a registry of our own to a Prometheus server."""
        from prometheus_client import start_http_server  # noqa: PLC0415

        server, thread = start_http_server(port, host, registry)
        self._closers += [server.shutdown, server.server_close, thread.join]
        self.prometheus_port = server.server_port

    def close(self) -> None:
        """Send what is left and stop."""
        closers, self._closers = self._closers, []
        for close in closers:
            close()

    def _count(self, event: Event, member: object) -> None:
        # A string would be a label of the caller's choice: an address, a path, a name.
        if not isinstance(member, Refusal | StatusClass | Fetch):
            raise TypeError("telemetry takes members of closed lists only")
        if event in self._counters:
            self._counters[event].add(1, {"kind": member.value})


def configure(settings: TelemetrySettings) -> Telemetry:
    """Build the configured telemetry; without a destination, nothing is counted.

    Raises:
        StartError: a destination is named and the extra is not installed, or
            the address cannot be listened on.
    """
    readers: list[MetricReader] = []
    with _without_otel_environment():
        try:
            if settings.otlp_endpoint is not None:
                readers.append(_otlp(settings.otlp_endpoint, settings.interval_s))
            if settings.prometheus_port is None:
                return Telemetry(readers)
            from opentelemetry.exporter.prometheus import (  # noqa: PLC0415
                PrometheusMetricReader,
            )
            from prometheus_client import CollectorRegistry  # noqa: PLC0415

            # Not the library's global registry: it also exports data about the process.
            registry = CollectorRegistry()
            readers.append(
                PrometheusMetricReader(
                    disable_target_info=True,
                    scope_info_enabled=False,
                    registry=registry,
                )
            )
            telemetry = Telemetry(readers)
            telemetry.answer_prometheus(
                settings.prometheus_host, settings.prometheus_port, registry
            )
        except ImportError:
            raise StartError(
                "telemetry is configured but its libraries are not installed: "
                "pip install 'curtilage[telemetry]'"
            ) from None
        except OSError as error:
            raise StartError(f"telemetry.prometheus: {error.strerror}") from None
    return telemetry


def silent_logger() -> logging.Logger:
    """Return a logger that belongs to no tree and drops everything.

    For libraries that insist on one; the root logger's level and handlers
    cannot reach it.
    """
    logger = logging.Logger("silent", level=LOUDER_THAN_ANYTHING)  # noqa: LOG001 - outside the tree on purpose
    logger.disabled = True
    return logger


def silence_libraries() -> None:
    """Silence the loggers of the libraries below us, whatever level is set.

    ``aiohttp.server`` would write addresses and a malformed request's bytes,
    ``asyncio`` the representation of objects that a failed task held.
    """
    for name in LIBRARY_LOGGERS:
        logger = logging.getLogger(name)
        logger.disabled = True
        logger.propagate = False
        logger.setLevel(LOUDER_THAN_ANYTHING)
        # For the children: with no handler at all, the handler of last resort prints.
        if not logger.handlers:
            logger.addHandler(logging.NullHandler())


def _otlp(endpoint: str, interval_s: float) -> "MetricReader":
    import requests  # noqa: PLC0415, TID251 - a door
    from opentelemetry.exporter.otlp.proto.http import Compression  # noqa: PLC0415
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import (  # noqa: PLC0415
        OTLPMetricExporter,
    )
    from opentelemetry.sdk.metrics.export import (  # noqa: PLC0415
        PeriodicExportingMetricReader,
    )

    session = requests.Session()
    session.trust_env = False  # neither proxies nor .netrc from the environment
    session.headers.clear()
    exporter = OTLPMetricExporter(
        endpoint=f"{endpoint.rstrip('/')}/v1/metrics",
        timeout=EXPORT_TIMEOUT_S,
        compression=Compression.NoCompression,
        session=session,
    )
    return PeriodicExportingMetricReader(
        exporter,
        export_interval_millis=interval_s * 1000,
        export_timeout_millis=EXPORT_TIMEOUT_S * 1000,
    )


@contextmanager
def _without_otel_environment() -> Generator[None]:
    """Hide OTEL_* while providers are built: they read it, and add its values."""
    hidden = {name: os.environ[name] for name in os.environ if name.startswith("OTEL_")}
    for name in hidden:
        del os.environ[name]
    try:
        yield
    finally:
        os.environ.update(hidden)
