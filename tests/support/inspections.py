"""Inspections that no detector made, for tests and measurements.

The product's code cannot build one outside of ``client.detection.inspection``
(``tests/test_doors.py``). A test names the door itself.
"""

from collections.abc import Sequence
from dataclasses import replace

from curtilage.policy.decision.decide import INSPECTION_DOOR, Inspection
from curtilage.policy.decision.findings import Approved, Finding
from curtilage.policy.decision.tiers import RoutingClass


def inspection_of(
    *,
    findings: Sequence[Finding] = (),
    payload_digest: bytes = bytes(32),
    messages: int = 1,
    pinned: bool = False,
    approved: tuple[Approved, ...] = (),
    floor: RoutingClass = RoutingClass.PUBLIC,
) -> Inspection:
    """Return an inspection with these fields; see ``Inspection``."""
    return Inspection(
        door=INSPECTION_DOOR,
        findings=tuple(findings),
        payload_digest=payload_digest,
        messages=messages,
        pinned=pinned,
        approved=approved,
        floor=floor,
    )


def changed(
    inspection: Inspection,
    *,
    findings: Sequence[Finding] | None = None,
    payload_digest: bytes | None = None,
    approved: tuple[Approved, ...] | None = None,
) -> Inspection:
    """Return the same with other fields, such as fewer findings."""
    return replace(
        inspection,
        door=INSPECTION_DOOR,
        findings=inspection.findings if findings is None else tuple(findings),
        payload_digest=payload_digest or inspection.payload_digest,
        approved=inspection.approved if approved is None else approved,
    )
