"""What the relay counts, and that nothing else can be counted."""

import asyncio
import http.server
import json
import logging
import socket
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import pytest
from typing_extensions import override

from curtilage.relay import telemetry
from curtilage.relay.errors import StartError
from curtilage.relay.refusals import Refusal, refusal_body
from curtilage.relay.telemetry import (
    HOLD_S,
    WORDS,
    Fetch,
    LogForm,
    StateLog,
    StatusClass,
    Telemetry,
    TelemetrySettings,
    configure,
)
from support.relay_parts import FakeGateway, MakeRelay, raw_answer, say

pytest.importorskip("opentelemetry.sdk")

from opentelemetry import metrics as otel_metrics
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader

CANARY = "canary-4111111111111111"
Seen = list[tuple[str, dict[str, str], bytes]]


class Capture(http.server.BaseHTTPRequestHandler):
    """Keeps what an exporter sends."""

    seen: Seen

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.seen.append((self.path, dict(self.headers), body))
        self.send_response(200)
        self.end_headers()

    @override
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def collector() -> Iterator[tuple[str, Seen]]:
    seen: Seen = []
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


def counts(reader: InMemoryMetricReader) -> dict[tuple[str, str], int]:
    """Counters by metric and their one label."""
    found: dict[tuple[str, str], int] = {}
    for name, group in points(reader).items():
        for point in group:
            if not isinstance(point, HistogramDataPoint):
                attributes = cast("dict[str, str]", getattr(point, "attributes"))  # noqa: B009
                assert set(attributes) == {"kind"}
                label = (name.rpartition(".")[2], attributes["kind"])
                found[label] = int(getattr(point, "value"))  # noqa: B009
    return found


def test_everything_is_a_no_op_when_nothing_is_configured() -> None:
    active = configure(TelemetrySettings())
    active.forwarded(StatusClass.SUCCESS)
    active.rejected(Refusal.BUSY)
    active.cached_fetch(Fetch.FRESH)
    active.took(1.0)
    assert active.prometheus_port is None
    active.close()


def test_environment_alone_switches_nothing_on(
    monkeypatch: pytest.MonkeyPatch, collector: tuple[str, Seen]
) -> None:
    endpoint, seen = collector
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
    active = configure(TelemetrySettings())
    active.rejected(Refusal.BUSY)
    active.close()
    assert seen == []


@pytest.mark.parametrize("value", [CANARY, "busy", 7, None])
def test_free_text_is_refused_also_while_off(value: object) -> None:
    for active in (Telemetry(), Telemetry([InMemoryMetricReader()])):
        for record in (active.forwarded, active.rejected, active.cached_fetch):
            with pytest.raises(TypeError) as caught:
                cast("Callable[[object], None]", record)(value)
            assert CANARY not in str(caught.value)
        active.close()


@pytest.mark.parametrize(
    ("seconds", "edge"), [(0.0, 0.1), (0.1, 0.1), (0.2, 1.0), (9.0, 10.0), (9e9, 100.0)]
)
def test_duration_is_known_by_its_class_only(seconds: float, edge: float) -> None:
    reader = InMemoryMetricReader()
    active = Telemetry([reader])
    active.took(seconds)
    (point,) = points(reader)["curtilage.relay.duration"]
    active.close()
    assert isinstance(point, HistogramDataPoint)
    assert (point.sum, point.min, point.max) == (edge, edge, edge)
    assert not point.attributes
    assert not point.exemplars


async def test_relay_counts_what_happened_and_nothing_about_whom(
    make_relay: MakeRelay, gateway: FakeGateway
) -> None:
    reader = InMemoryMetricReader()
    relay = await make_relay(telemetry=Telemetry([reader]))
    await relay.post("/demo", f"Cookie: {CANARY}")
    await relay.post(f"/{CANARY}")
    await relay.post(kind=CANARY)
    await relay.send(CANARY.encode() + b"\r\n\r\n")
    gateway.script = say(raw_answer(status="422 No", kind="text/plain"))
    await relay.post()
    gateway.script = say(raw_answer(status="302 Found"))
    await relay.post()
    await relay.get("/demo/keys")
    gateway.script = say(raw_answer(b"keys", kind="application/ohttp-keys"))
    await relay.get("/demo/keys")
    await relay.get("/demo/keys")
    assert counts(reader) == {
        ("forwarded", "2xx"): 1,
        ("forwarded", "4xx"): 1,
        ("rejected", "unknown_path"): 1,
        ("rejected", "media_type"): 1,
        ("rejected", "malformed"): 1,
        ("rejected", "gateway_answer"): 2,
        ("cached_fetch", "failed"): 1,
        ("cached_fetch", "fresh"): 1,
        ("cached_fetch", "cached"): 1,
    }
    assert CANARY not in str(points(reader))


async def test_start_silences_libraries_and_the_server_needs_no_silencing(
    make_relay: MakeRelay,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    logger = logging.getLogger("aiohttp.server")
    monkeypatch.setattr(logger, "disabled", False)
    relay = await make_relay()
    assert logger.disabled
    # Somebody switches it on again: the connections' own logger stays silent.
    for name, value in (("disabled", False), ("propagate", True)):
        monkeypatch.setattr(logger, name, value)
    logger.setLevel(logging.DEBUG)  # also forgets what the logger remembered
    monkeypatch.setattr(logger, "handlers", [logging.StreamHandler()])
    await relay.send(b"\x01" + CANARY.encode() + b"\r\n\r\n")
    server = relay.relay._server  # pyright: ignore[reportPrivateUsage]
    assert server is not None
    server().logger.critical(CANARY)
    assert capfd.readouterr() == ("", "")


async def test_errors_of_the_event_loop_are_counted_not_printed(
    make_relay: MakeRelay, capfd: pytest.CaptureFixture[str]
) -> None:
    reader = InMemoryMetricReader()
    await make_relay(telemetry=Telemetry([reader]))
    asyncio.get_running_loop().call_exception_handler({"message": CANARY})
    assert counts(reader) == {("rejected", "internal"): 1}
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("begun", [False, True])
async def test_an_internal_failure_is_counted_and_has_a_constant_text(
    make_relay: MakeRelay,
    gateway: FakeGateway,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    *,
    begun: bool,
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise LookupError(CANARY)

    reader = InMemoryMetricReader()
    relay = await make_relay(telemetry=Telemetry([reader]))
    step = "connections._Outflow.flush" if begun else "service.Service._exchange"
    monkeypatch.setattr(f"curtilage.relay.{step}", fail)
    gateway.script = say(raw_answer()[:-1])
    answer = await relay.post("/demo", "Incremental: ?1")
    if begun:
        assert (answer.status, answer.complete) == (200, False)
    else:
        assert answer.status == 500
        assert answer.body == refusal_body(Refusal.INTERNAL)
    assert counts(reader)[("rejected", "internal")] == 1
    assert CANARY not in "".join(capfd.readouterr())


def test_providers_stay_private() -> None:
    before = otel_metrics.get_meter_provider()
    active = configure(TelemetrySettings(prometheus_port=0))
    assert otel_metrics.get_meter_provider() is before
    active.close()


def test_prometheus_answers_counts_and_nothing_about_the_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", f"user={CANARY}")
    active = configure(TelemetrySettings(prometheus_port=0))
    active.rejected(Refusal.BUSY)
    url = f"http://127.0.0.1:{active.prometheus_port}/metrics"
    with urllib.request.urlopen(url) as answer:
        text = answer.read().decode()
    active.close()
    assert 'curtilage_relay_rejected_total{kind="busy"} 1.0' in text
    assert "python_info" not in text
    assert "process_" not in text
    assert CANARY not in text


def test_otlp_sends_where_configured_and_ignores_the_environment(
    monkeypatch: pytest.MonkeyPatch, collector: tuple[str, Seen]
) -> None:
    endpoint, seen = collector
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", f"x-canary={CANARY}")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", f"user={CANARY}")
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    active = configure(TelemetrySettings(otlp_endpoint=endpoint))
    active.forwarded(StatusClass.SUCCESS)
    active.close()
    ((path, headers, body),) = seen
    assert path == "/v1/metrics"
    names = {name.lower() for name in headers}
    assert not names & {"traceparent", "tracestate", "baggage", "x-canary"}
    assert CANARY.encode() not in body
    assert b"curtilage.relay.forwarded" in body


def test_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(StartError, match="curtilage\\[telemetry\\]"):
        configure(TelemetrySettings(prometheus_port=0))


def test_prometheus_port_in_use_is_reported() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = int(listener.getsockname()[1])
        with pytest.raises(StartError, match="in use"):
            configure(TelemetrySettings(prometheus_port=port))


def test_silent_logger_drops_everything(capfd: pytest.CaptureFixture[str]) -> None:
    logger = telemetry.silent_logger()
    logger.critical(CANARY)
    assert CANARY not in "".join(capfd.readouterr())


@pytest.mark.parametrize("name", [*telemetry.LIBRARY_LOGGERS, "aiohttp.server.child"])
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
    assert CANARY not in "".join(capfd.readouterr())


def test_only_telemetry_imports_logging_or_opentelemetry() -> None:
    folder = Path(telemetry.__file__).parent
    for source in folder.rglob("*.py"):
        if source.name != "telemetry.py":
            text = source.read_text()
            assert "import logging" not in text
            assert "opentelemetry" not in text


# --- lines about changes of state ----------------------------------------------------

AT = datetime(2026, 11, 28, 10, 26, 17, tzinfo=UTC)


class Log:
    """A log of two gateways, its lines and its clock."""

    def __init__(self, form: LogForm = LogForm.TEXT) -> None:
        self.lines: list[str] = []
        self.now_s = 0.0
        self.due: list[tuple[float, Callable[[], object]]] = []
        self.log = StateLog(
            ("demo", "many/a"),
            form,
            write=self.lines.append,
            clock=lambda: AT,
            monotonic=lambda: self.now_s,
            later=lambda wait_s, call: self.due.append((wait_s, call)),
        )

    def later(self) -> None:
        """Let the time come at which something was to be called."""
        (wait_s, call), self.due = self.due[0], []
        self.now_s += wait_s
        call()


def test_a_gateway_that_cannot_be_reached_has_one_line() -> None:
    log = Log()
    for _ in range(9):
        log.log.gateway("demo", Refusal.GATEWAY_UNREACHABLE)
    degraded = [log.log.degraded]
    log.now_s += HOLD_S
    for _ in range(9):
        log.log.gateway("demo", None)
    assert [*degraded, log.log.degraded] == [True, False]
    first, second = log.lines
    assert first == (
        "2026-11-28T10:26:17Z gateway demo: degraded (gateway_unreachable): "
        f"{WORDS[Refusal.GATEWAY_UNREACHABLE]}"
    )
    assert second == "2026-11-28T10:26:17Z gateway demo: ok"


def test_a_gateway_that_flaps_has_few_lines_and_the_last_is_true() -> None:
    log = Log()
    for second in range(300):
        log.now_s = second
        refusal = (Refusal.GATEWAY_TIMEOUT, None)[second % 2]
        log.log.gateway("demo", refusal)
        if log.due and log.now_s >= HOLD_S * len(log.lines):
            log.later()
    assert len(log.lines) <= 300 / HOLD_S + 1
    log.log.gateway("demo", Refusal.GATEWAY_TIMEOUT)
    log.log.gateway("demo", None)
    if log.due:
        log.later()
    assert log.lines[-1].endswith("gateway demo: ok")


def test_what_was_held_back_is_written_once_the_time_is_over() -> None:
    log = Log()
    log.log.gateway("demo", Refusal.GATEWAY_TIMEOUT)
    log.log.gateway("demo", None)
    log.log.gateway("demo", Refusal.GATEWAY_UNREACHABLE)
    assert len(log.lines) == len(log.due) == 1
    log.later()
    assert "gateway_unreachable" in log.lines[1]
    assert len(log.lines) == 2


def test_one_line_of_each_gateway() -> None:
    log = Log()
    log.log.gateway("demo", Refusal.GATEWAY_TIMEOUT)
    log.log.gateway("many/a", Refusal.GATEWAY_TIMEOUT)
    assert ["demo:" in line for line in log.lines] == [True, False]


def test_a_line_of_a_relay_may_be_json() -> None:
    log = Log(LogForm.JSON)
    log.log.gateway("many/a", Refusal.GATEWAY_TIMEOUT)
    assert [json.loads(line) for line in log.lines] == [
        {
            "time": "2026-11-28T10:26:17Z",
            "part": "gateway",
            "name": "many/a",
            "state": "degraded",
            "reason": "gateway_timeout",
        },
    ]


@pytest.mark.parametrize(
    "refusal", [each for each in Refusal if each not in telemetry.WORDS]
)
def test_what_is_about_one_request_changes_no_state(refusal: Refusal) -> None:
    log = Log()
    log.log.gateway("demo", refusal)
    degraded = [log.log.degraded]
    log.log.gateway("demo", Refusal.GATEWAY_TIMEOUT)
    log.log.gateway("demo", refusal)
    assert [*degraded, log.log.degraded] == [False, True]
    assert len(log.lines) == 1


def test_a_name_of_no_gateway_is_never_written() -> None:
    log = Log()
    with pytest.raises(KeyError):
        log.log.gateway(CANARY, Refusal.GATEWAY_TIMEOUT)
    assert log.lines == []


async def test_a_relay_says_which_gateway_it_cannot_reach(
    make_relay: MakeRelay,
) -> None:
    relay = await make_relay(gateways={"demo": "http://127.0.0.1:9"})
    assert (await relay.get("/healthz")).body == b"ok\n"
    answer = await relay.post("/demo", f"X-Canary: {CANARY}")
    assert answer.status == 502
    health = await relay.get("/healthz")
    # Another relay reaches no other gateway: this one need not be left out.
    assert (health.status, health.body) == (200, b"degraded\n")


async def test_a_gateway_that_is_there_again_shows(
    make_relay: MakeRelay, gateway: FakeGateway
) -> None:
    gateway.script = say(raw_answer())
    relay = await make_relay()
    log = relay.relay._log  # pyright: ignore[reportPrivateUsage]
    log.gateway("demo", Refusal.GATEWAY_UNREACHABLE)
    assert (await relay.get("/healthz")).body == b"degraded\n"
    assert (await relay.post()).status == 200
    assert (await relay.get("/healthz")).body == b"ok\n"


def test_help_lines_say_what_is_counted() -> None:
    active = configure(TelemetrySettings(prometheus_port=0))
    active.forwarded(StatusClass.SUCCESS)
    active.rejected(Refusal.BUSY)
    active.cached_fetch(Fetch.FRESH)
    active.took(0.1)
    url = f"http://127.0.0.1:{active.prometheus_port}/metrics"
    with urllib.request.urlopen(url) as answer:
        text = answer.read().decode()
    active.close()
    described = [line for line in text.splitlines() if line.startswith("# HELP ")]
    assert len(described) == 4
    assert all(len(line.split(" ", 3)) == 4 for line in described), described
