"""OpenTelemetry's providers and exporters, private to the client.

Its libraries are an extra, and are imported only where a destination is configured.
"""

import os
import time
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from curtilage.client.telemetry.lists import (
    BOUNDS_S,
    DESCRIBED,
    EDGES,
    SECONDS,
    UNITS,
    Event,
    Figure,
    Level,
    Stage,
    coarse_duration,
    edge_of,
    label,
)

if TYPE_CHECKING:
    from opentelemetry.metrics import Counter, Histogram
    from opentelemetry.sdk.metrics.export import MetricReader
    from opentelemetry.sdk.trace.export import SpanExporter
    from prometheus_client import CollectorRegistry as Registry

SERVICE_NAME: Final = "curtilage-client"
METRIC_PREFIX: Final = "curtilage.client."
EXPORT_TIMEOUT_S: Final = 10
SHARE_OF: Final = 1000
"""``local_share`` is computed over this many answers."""
SPAN_GRAIN_S: Final = 60
"""The start of a span is rounded to a minute."""


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
                unit=UNITS[figure],
                description=DESCRIBED[figure.value],
                explicit_bucket_boundaries_advisory=list(EDGES[figure]),
            )
            for figure in Figure
        }
        self._levels = {
            level: meter.create_gauge(
                f"{METRIC_PREFIX}{level}",
                unit="s" if level in SECONDS else "",
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
        self._figures[figure].record(edge_of(value, EDGES[figure]), words)

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


@_without_otel_environment()
def build(settings: TelemetrySettings) -> Telemetry:
    """Build the providers that the settings name, whatever OTEL_* says.

    Raises:
        ImportError: the extra is not installed.
        OSError: the port is not available.
    """
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
