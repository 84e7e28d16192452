"""The dashboard covers exactly the metrics that a client exports."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from curtilage.client import telemetry
from curtilage.client.chat.answer import Answerer, Rung
from curtilage.client.health import Status
from curtilage.client.remote.reasons import EnclaveFailure
from curtilage.client.routing.breaker import BreakerState
from curtilage.client.routing.estimate import Intent
from curtilage.client.routing.utility import Reason, Refusal
from curtilage.client.telemetry import (
    METRIC_PREFIX,
    Answering,
    AttestOutcome,
    Event,
    Figure,
    Level,
    Opinion,
    RestartCause,
    Stage,
    Telemetry,
    Twice,
)
from curtilage.policy.decision.routes import Route
from curtilage.policy.decision.tiers import Denial

ROOT = Path(__file__).resolve().parents[2]
PREFIX = METRIC_PREFIX.replace(".", "_")
NAME = re.compile(rf"\b{PREFIX}[a-z0-9_]+")
# Prometheus queries a histogram's buckets under a separate name.
PART = re.compile(r"_(?:bucket|sum|count)$")


@pytest.fixture(scope="module")
def dashboard() -> dict[str, Any]:
    value: dict[str, Any] = json.loads(
        (ROOT / "deploy" / "grafana" / "client.json").read_text("utf-8")
    )
    return value


@pytest.fixture(scope="module")
def exported() -> dict[str, set[str]]:
    """By the name of each metric that a client exports, the names of its labels."""
    registry = CollectorRegistry()
    reader = PrometheusMetricReader(
        disable_target_info=True, scope_info_enabled=False, registry=registry
    )
    telemetry.use(Telemetry(readers=[reader]))
    (tier,) = telemetry.names(["ward"]).values()
    telemetry.inspected()
    telemetry.decided(Route.LOCAL)
    telemetry.answered(Answerer.ON_PREMISES, home=True)
    telemetry.fallback(tier, EnclaveFailure.BUSY)
    telemetry.refused(Refusal.SLO_UNMEETABLE)
    telemetry.attest(AttestOutcome.REFUSED, EnclaveFailure.BUSY)
    telemetry.unfinished(RestartCause.TIMEOUT)
    telemetry.detector_restart(RestartCause.CRASH)
    telemetry.covered()
    telemetry.clock_off()
    telemetry.routed(tier, Intent.QA, Reason.EASY, 0.001)
    telemetry.denied(tier, Denial.COST)
    telemetry.boundary(Rung.SUMMARY)
    telemetry.escalated(tier)
    telemetry.verified(tier, Opinion.BAD)
    telemetry.feedback(tier, Opinion.GOOD)
    telemetry.certified(tier, in_force=True)
    telemetry.health(Status.OK)
    telemetry.expires(Level.EVIDENCE_EXPIRES, 60)
    telemetry.expires(Level.POLICY_EXPIRES, 60)
    telemetry.breaker(tier, BreakerState.OPEN)
    telemetry.retry_budget(Twice.RETRY, 1)
    telemetry.queued(1, 1.0)
    telemetry.took(Stage.INSPECT, 1.0)
    answering = Answering(tier, cost_microusd_per_mtok=1)
    for _ in range(2):
        answering.text()
    answering.finished(16, 16)
    text = generate_latest(registry).decode()
    telemetry.use(None)
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            name = PART.sub("", sample.name)
            found.setdefault(name, set()).update(sample.labels)
    return found


def queries(dashboard: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield each panel's queries and legends."""
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            yield target["expr"], target["legendFormat"]


def asked(dashboard: dict[str, Any]) -> set[str]:
    found = {name for expr, _ in queries(dashboard) for name in NAME.findall(expr)}
    return {PART.sub("", name) for name in found}


def test_whatever_can_be_counted_was_counted_here(
    exported: dict[str, set[str]],
) -> None:
    for each in (*Event, *Figure, *Level):
        word = each.value.replace(".", "_")
        assert any(name.startswith(f"{PREFIX}{word}") for name in exported), each


def test_every_panel_shows_what_is_exported(
    dashboard: dict[str, Any], exported: dict[str, set[str]]
) -> None:
    assert asked(dashboard) - exported.keys() == set()


def test_what_is_exported_has_a_panel(
    dashboard: dict[str, Any], exported: dict[str, set[str]]
) -> None:
    assert exported.keys() - asked(dashboard) == set()


def test_every_label_that_is_asked_for_is_there(
    dashboard: dict[str, Any], exported: dict[str, set[str]]
) -> None:
    for expr, legend in queries(dashboard):
        there = {
            label
            for name in NAME.findall(expr)
            for label in exported[PART.sub("", name)]
        }
        groups = re.findall(r"(?:by|ignoring) \(([a-z_, ]*)\)", expr)
        wanted = {label for group in groups for label in group.split(", ")}
        wanted |= set(re.findall(r"\{([a-z_]+)=", expr))
        wanted |= set(re.findall(r"\{\{([a-z_]+)\}\}", legend))
        assert wanted <= there, expr


def test_panels_do_not_lie_on_each_other(dashboard: dict[str, Any]) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not taken & cells, panel["title"]
        assert at["x"] + at["w"] <= 24
        taken |= cells
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(
        dashboard["panels"]
    )
