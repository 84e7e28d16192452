"""Readers of a query's text, and of a worker's answer."""

import io
from functools import cache
from typing import Final

from fuzz.common import Harness

from curtilage.client.detection.detectors.all import own_equipment
from curtilage.client.detection.detectors.scanner import scan
from curtilage.client.detection.spans import GarbageError, parse_findings
from curtilage.policy.decision.findings import Where
from curtilage.sandbox.pipe import read_frame

PLACE: Final = Where(message=0, role="user", json_path="content")

equipment = cache(own_equipment)


def check_scan(data: bytes) -> None:
    """Any text gives spans within it; no detector fails on it."""
    text = data.decode("utf-8", "surrogateescape")
    (found,) = scan([text], equipment())
    assert all(0 <= span.start <= span.end <= len(text) for span in found)
    assert all(span.data_class != "uncertain.error" for span in found)


def check_worker_frame(data: bytes) -> None:
    """Bytes from a worker give findings, or one of three refusals."""
    try:
        frame = read_frame(io.BytesIO(len(data).to_bytes(4, "big") + data))
        parse_findings(frame, [PLACE])
    except (ValueError, GarbageError, RecursionError):
        return


HARNESSES: Final = (
    Harness(name="scan", check=check_scan, max_bytes=256),
    Harness(name="worker_frame", check=check_worker_frame, max_bytes=1024),
)
