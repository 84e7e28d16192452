"""A line of a trace, and a trace in a file."""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from curtilage.client.routing.trace import TraceFile, TraceLine, TraceOutcome
from curtilage.policy.decision.tiers import RoutingClass

LINE: Final = TraceLine(
    at="2026-11-23T13:45Z",
    intent="qa",
    length=256,
    classes=(),
    routing_class=RoutingClass.PUBLIC,
    permitted=("local", "enclave"),
    tier="enclave",
    why="hard",
    ttft_ms=300,
    total_ms=3000,
    prompt_tokens=64,
    answer_tokens=256,
    outcome=TraceOutcome.ANSWERED,
)


def written(folder: Path, lines: Iterable[TraceLine]) -> Path:
    """Write a trace and return its file."""
    path = folder / "trace.jsonl"
    path.touch()
    trace = TraceFile(path)
    for line in lines:
        assert trace.append(line)
    return path
