import http.server
import logging
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from enum import Enum
from typing import cast

import pytest
from typing_extensions import override

from curtilage.client import telemetry
from curtilage.client.routing.breaker import BreakerState
from curtilage.client.telemetry import (
    Answering,
    AttestOutcome,
    Opinion,
    RestartCause,
    Stage,
    Telemetry,
    TelemetryError,
    TelemetrySettings,
    Twice,
)

pytest.importorskip("opentelemetry.sdk")

from opentelemetry import metrics as otel_metrics
from opentelemetry import trace as otel_trace
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

CANARY = "canary-4111111111111111"


class Colour(Enum):
    RED = "red"
    BLUE = "blue"
    SPOKEN = CANARY + " says hello"
    SEVEN = 7


TIER = telemetry.names(["ward"])["ward"]


class Capture(http.server.BaseHTTPRequestHandler):
    """Keeps what an exporter sends."""

    seen: list[tuple[str, dict[str, str], bytes]]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.seen.append((self.path, dict(self.headers), body))
        self.send_response(200)
        self.end_headers()

    @override
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(autouse=True)
def off() -> Iterator[None]:
    telemetry.shutdown()
    yield
    telemetry.shutdown()


@pytest.fixture
def reader() -> InMemoryMetricReader:
    reader = InMemoryMetricReader()
    telemetry.use(Telemetry(readers=[reader]))
    return reader


@pytest.fixture
def collector() -> Iterator[tuple[str, list[tuple[str, dict[str, str], bytes]]]]:
    seen: list[tuple[str, dict[str, str], bytes]] = []
    handler = type("Handler", (Capture,), {"seen": seen})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", seen
    server.shutdown()
    server.server_close()
    thread.join()


def points(reader: InMemoryMetricReader) -> dict[str, list[object]]:
    data = reader.get_metrics_data()
    if data is None:
        return {}
    return {
        metric.name: list(metric.data.data_points)
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }


def attributes(point: object) -> dict[str, str]:
    return dict(cast("dict[str, str]", getattr(point, "attributes")))  # noqa: B009


def test_everything_is_a_no_op_while_off() -> None:
    telemetry.inspected()
    telemetry.decided(Colour.RED)
    telemetry.took(Stage.INSPECT, 1.0)
    with telemetry.timed(Stage.ATTEST):
        pass


def test_configure_without_destination_stays_off() -> None:
    assert telemetry.configure(TelemetrySettings()) is None


def test_environment_alone_switches_nothing_on(
    monkeypatch: pytest.MonkeyPatch,
    collector: tuple[str, list[tuple[str, dict[str, str], bytes]]],
) -> None:
    endpoint, seen = collector
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "otlp")
    assert telemetry.configure(TelemetrySettings()) is None
    telemetry.inspected()
    telemetry.shutdown()
    assert seen == []


def test_package_imports_without_the_extra() -> None:
    script = (
        "import sys\n"
        "class Absent:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] in {'opentelemetry', 'prometheus_client'}:\n"
        "            raise ImportError(name)\n"
        "sys.meta_path.insert(0, Absent())\n"
        "from curtilage.client import telemetry as t\n"
        "t.inspected()\n"
        "t.took(t.Stage.INSPECT, 1.0)\n"
        "try:\n"
        "    t.configure(t.TelemetrySettings(prometheus_port=0))\n"
        "except t.TelemetryError as error:\n"
        "    assert 'curtilage[telemetry]' in str(error)\n"
        "    print('refused')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("refused\n", "")


@pytest.mark.parametrize("address", ["foo", "127.0.0.1:4318", "ftp://host", "http://"])
def test_what_is_no_address_is_no_collectors(address: str) -> None:
    """Nothing would ever arrive, without an error."""
    with pytest.raises(TelemetryError, match="--otlp"):
        telemetry.configure(TelemetrySettings(otlp_endpoint=address))


def test_a_port_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(TelemetryError, match=f"{port} \\(--prometheus-port"):
            telemetry.configure(TelemetrySettings(prometheus_port=port))


def test_configure_names_the_extra_when_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(TelemetryError, match="curtilage\\[telemetry\\]"):
        telemetry.configure(TelemetrySettings(prometheus_port=0))


@pytest.mark.parametrize(
    ("record", "name", "labels"),
    [
        (telemetry.inspected, "inspected", {}),
        (lambda: telemetry.decided(Colour.RED), "decided", {"route": "red"}),
        (
            lambda: telemetry.answered(Colour.RED, home=True),
            "answered",
            {"route": "red"},
        ),
        (
            lambda: telemetry.fallback(TIER, Colour.RED),
            "fallback",
            {"tier": "ward", "reason": "red"},
        ),
        (lambda: telemetry.refused(Colour.RED), "refuse", {"code": "red"}),
        (
            lambda: telemetry.denied(TIER, Colour.RED),
            "mask.denied",
            {"tier": "ward", "reason": "red"},
        ),
        (lambda: telemetry.boundary(Colour.RED), "boundary.hits", {"step": "red"}),
        (lambda: telemetry.escalated(TIER), "escalations", {"tier": "ward"}),
        (
            lambda: telemetry.verified(TIER, Opinion.BAD),
            "verifier.accept",
            {"tier": "ward", "opinion": "bad"},
        ),
        (
            lambda: telemetry.feedback(TIER, Opinion.GOOD),
            "feedback",
            {"tier": "ward", "opinion": "good"},
        ),
        (
            lambda: telemetry.routed(TIER, Colour.RED, Colour.BLUE, 0.003),
            "route.decision",
            {"tier": "ward", "intent": "red", "reason": "blue"},
        ),
        (
            lambda: telemetry.attest(AttestOutcome.REFUSED, Colour.RED),
            "attest",
            {"outcome": "refused", "code": "red"},
        ),
        (
            lambda: telemetry.attest(AttestOutcome.VERIFIED),
            "attest",
            {"outcome": "verified"},
        ),
        (
            lambda: telemetry.unfinished(RestartCause.WAITED),
            "unfinished",
            {"cause": "waited"},
        ),
        (
            lambda: telemetry.detector_restart(RestartCause.CRASH),
            "detector_restart",
            {"cause": "crash"},
        ),
    ],
)
def test_record_counts_with_enum_labels_only(
    reader: InMemoryMetricReader,
    record: Callable[[], None],
    name: str,
    labels: dict[str, str],
) -> None:
    record()
    record()
    (point,) = points(reader)[f"curtilage.client.{name}"]
    assert attributes(point) == labels
    assert getattr(point, "value") == 2  # noqa: B009


@pytest.mark.parametrize("value", [CANARY, "red", 7, None, Colour.SPOKEN, Colour.SEVEN])
@pytest.mark.parametrize("switched_on", [True, False])
def test_record_refuses_free_text(value: object, *, switched_on: bool) -> None:
    if switched_on:
        telemetry.use(Telemetry(readers=[InMemoryMetricReader()]))
    with pytest.raises(TypeError) as caught:
        telemetry.decided(cast("Enum", value))
    assert CANARY not in str(caught.value)


@pytest.mark.parametrize(
    ("seconds", "edge"),
    [(0.0, 0.1), (0.1, 0.1), (0.11, 0.5), (59.0, 60.0), (9e9, 300.0)],
)
def test_duration_is_known_by_its_class_only(
    reader: InMemoryMetricReader, seconds: float, edge: float
) -> None:
    telemetry.took(Stage.ATTEST, seconds)
    (point,) = points(reader)["curtilage.client.duration"]
    assert isinstance(point, HistogramDataPoint)
    assert (point.sum, point.min, point.max) == (edge, edge, edge)
    assert attributes(point) == {"stage": "attest"}
    assert not point.exemplars


def figures(reader: InMemoryMetricReader, name: str) -> HistogramDataPoint:
    (point,) = points(reader)[f"curtilage.client.{name}"]
    assert isinstance(point, HistogramDataPoint)
    return point


def levels(reader: InMemoryMetricReader, name: str) -> dict[frozenset[str], float]:
    return {
        frozenset(attributes(point).values()): float(getattr(point, "value"))  # noqa: B009
        for point in points(reader)[f"curtilage.client.{name}"]
    }


def test_a_choice_is_timed_by_class_only(reader: InMemoryMetricReader) -> None:
    telemetry.routed(TIER, Colour.RED, Colour.BLUE, 0.0034)
    point = figures(reader, "route.duration")
    assert (point.sum, point.min, point.max, point.attributes) == (
        0.005,
        0.005,
        0.005,
        {},
    )


@pytest.mark.parametrize("word", ["two words", "Ward", "", "w" * 65, f"{CANARY}\n"])
def test_a_name_that_is_no_plain_word_is_none(word: str) -> None:
    with pytest.raises(TypeError) as caught:
        telemetry.names(["ward", word])
    assert CANARY not in str(caught.value)


def test_names_that_python_has_for_itself_are_names_all_the_same() -> None:
    assert {*telemetry.names(["mro", "name", "class"])} == {"mro", "name", "class"}


def test_a_breaker_has_one_state(reader: InMemoryMetricReader) -> None:
    telemetry.breaker(TIER, BreakerState.OPEN)
    telemetry.breaker(TIER, BreakerState.HALF_OPEN)
    assert levels(reader, "breaker.state") == {
        frozenset({"ward", "closed"}): 0,
        frozenset({"ward", "open"}): 0,
        frozenset({"ward", "half_open"}): 1,
    }


def test_the_queues_length_and_age_class_are_reported(
    reader: InMemoryMetricReader,
) -> None:
    telemetry.queued(3, 42.0)
    telemetry.retry_budget(Twice.RETRY, 2)
    assert levels(reader, "queue.depth") == {frozenset(): 3}
    assert levels(reader, "queue.age") == {frozenset(): 60}
    assert levels(reader, "retry.budget") == {frozenset({"retry"}): 2}
    telemetry.queued(0, 0.0)
    assert levels(reader, "queue.age") == {frozenset(): 0}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Return what lets time pass for the module."""
    now_s = [100.0]

    def passes(seconds: float) -> None:
        now_s[0] += seconds

    monkeypatch.setattr(time, "perf_counter", lambda: now_s[0])
    return passes


def test_an_answer_is_measured_by_classes_only(
    reader: InMemoryMetricReader, clock: Callable[[float], None]
) -> None:
    answering = Answering(TIER, cost_microusd_per_mtok=1_000_000)
    clock(0.42)
    answering.text()
    clock(2.0)
    answering.text()
    clock(9.0)  # frames without text
    answering.finished(100, 31)
    first, speed = figures(reader, "tier.ttft"), figures(reader, "tier.tokens_per_s")
    assert (first.sum, first.max, dict(first.attributes or {})) == (
        0.5,
        0.5,
        {"tier": "ward"},
    )
    assert (speed.sum, speed.max) == (20, 20)
    # The middles of 64 to 128 and of 16 to 32.
    assert levels(reader, "tier.cost_microusd") == {frozenset({"ward"}): 96 + 24}


def test_an_answer_without_text_or_price_has_neither(
    reader: InMemoryMetricReader,
) -> None:
    Answering(TIER, cost_microusd_per_mtok=None).finished(100, 0)
    assert points(reader) == {}


def test_the_share_at_home_is_of_the_last_answers(reader: InMemoryMetricReader) -> None:
    for home in [False] * 500 + [True] * 750 + [False] * 250:
        telemetry.answered(Colour.RED, home=home)
    assert levels(reader, "local_share") == {frozenset(): 0.75}


@pytest.mark.parametrize("switched_on", [True, False])
def test_an_answer_of_no_listed_tier_is_refused(*, switched_on: bool) -> None:
    if switched_on:
        telemetry.use(Telemetry(readers=[InMemoryMetricReader()]))
    answering = Answering(cast("Enum", CANARY), cost_microusd_per_mtok=None)
    with pytest.raises(TypeError) as caught:
        answering.finished(1, 1)
    assert CANARY not in str(caught.value)


def test_span_has_a_listed_name_a_coarse_time_and_nothing_else() -> None:
    exporter = InMemorySpanExporter()
    telemetry.use(Telemetry(readers=[], spans=exporter))
    with telemetry.timed(Stage.INSPECT):
        time.sleep(0.01)
    telemetry.shutdown()
    (span,) = exporter.get_finished_spans()
    assert span.name == "inspect"
    assert span.parent is None
    assert not span.attributes
    assert not span.events
    assert not span.links
    assert span.start_time is not None
    assert span.end_time is not None
    assert span.start_time % (60 * 10**9) == 0
    assert span.end_time - span.start_time == 10**8
    assert dict(span.resource.attributes) == {"service.name": "curtilage-client"}


def test_failing_block_leaves_no_trace_of_its_error() -> None:
    exporter = InMemorySpanExporter()
    telemetry.use(Telemetry(readers=[], spans=exporter))
    with pytest.raises(ValueError, match="canary"), telemetry.timed(Stage.INSPECT):
        raise ValueError(CANARY)
    telemetry.shutdown()
    (span,) = exporter.get_finished_spans()
    assert CANARY not in span.to_json()


def test_providers_stay_private(reader: InMemoryMetricReader) -> None:
    before = (otel_metrics.get_meter_provider(), otel_trace.get_tracer_provider())
    with telemetry.timed(Stage.INSPECT):
        assert not otel_trace.get_current_span().get_span_context().is_valid
    telemetry.configure(TelemetrySettings(prometheus_port=0))
    after = (otel_metrics.get_meter_provider(), otel_trace.get_tracer_provider())
    assert after == before
    assert reader.get_metrics_data() is not None


def test_prometheus_answers_counts_and_nothing_about_the_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", f"user={CANARY}")
    active = telemetry.configure(TelemetrySettings(prometheus_port=0))
    assert active is not None
    telemetry.decided(Colour.RED)
    url = f"http://127.0.0.1:{active.prometheus_port}/metrics"
    with urllib.request.urlopen(url) as answer:
        text = answer.read().decode()
    assert 'curtilage_client_decided_total{route="red"} 1.0' in text
    assert "python_info" not in text
    assert "process_" not in text
    assert CANARY not in text


def test_otlp_sends_where_configured_and_ignores_the_environment(
    monkeypatch: pytest.MonkeyPatch,
    collector: tuple[str, list[tuple[str, dict[str, str], bytes]]],
) -> None:
    endpoint, seen = collector
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", f"x-canary={CANARY}")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", f"user={CANARY}")
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    telemetry.configure(TelemetrySettings(otlp_endpoint=endpoint + "/"))
    telemetry.answered(Colour.RED, home=True)
    telemetry.took(Stage.ATTEST, 1.0)
    telemetry.shutdown()
    assert sorted(path for path, _, _ in seen) == ["/v1/metrics", "/v1/traces"]
    for _, headers, body in seen:
        names = {name.lower() for name in headers}
        assert not names & {"traceparent", "tracestate", "baggage", "x-canary"}
        assert CANARY.encode() not in body
        assert b"curtilage-client" in body
    assert b"answered" in {path: body for path, _, body in seen}["/v1/metrics"]


def test_environment_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "mine")
    telemetry.configure(TelemetrySettings(prometheus_port=0))
    assert os.environ["OTEL_SERVICE_NAME"] == "mine"


def test_prometheus_port_in_use_is_reported() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = int(listener.getsockname()[1])
        with pytest.raises(TelemetryError, match="in use"):
            telemetry.configure(TelemetrySettings(prometheus_port=port))


@pytest.mark.parametrize("name", [*telemetry.LIBRARY_LOGGERS, "opentelemetry.sdk.x"])
def test_silence_libraries_silences(
    name: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for silenced in telemetry.LIBRARY_LOGGERS:
        logger = logging.getLogger(silenced)
        monkeypatch.setattr(logger, "disabled", False)
        monkeypatch.setattr(logger, "propagate", True)
        logger.setLevel(logging.NOTSET)  # also forgets what the logger remembered
        monkeypatch.setattr(logger, "handlers", [])
    telemetry.silence_libraries()
    telemetry.silence_libraries()
    logging.getLogger(name).critical(CANARY)
    output = capfd.readouterr()
    assert CANARY not in output.out + output.err


def test_help_lines_say_what_is_counted() -> None:
    active = telemetry.configure(TelemetrySettings(prometheus_port=0))
    assert active is not None
    for event in telemetry.Event:
        active.count(event, {})
    for figure in telemetry.Figure:
        active.measured(figure, 1.0, {})
    for level in telemetry.Level:
        active.set_level(level, 1.0, {})
    active.took(Stage.INSPECT, 1.0)
    active.cost(TIER, 1.0)
    url = f"http://127.0.0.1:{active.prometheus_port}/metrics"
    with urllib.request.urlopen(url) as answer:
        text = answer.read().decode()
    lines = [line for line in text.splitlines() if line.startswith("# HELP ")]
    assert len(lines) == len(telemetry.DESCRIBED)
    assert all(len(line.split(" ", 3)) == 4 for line in lines), lines


def test_expiries_are_reported_in_minutes(reader: InMemoryMetricReader) -> None:
    telemetry.expires(telemetry.Level.POLICY_EXPIRES, 3599.0)
    telemetry.expires(telemetry.Level.EVIDENCE_EXPIRES, -5.0)
    found = points(reader)
    (policy,) = found["curtilage.client.policy.expires"]
    (evidence,) = found["curtilage.client.evidence.expires"]
    assert (getattr(policy, "value"), getattr(evidence, "value")) == (3540.0, 0.0)  # noqa: B009
