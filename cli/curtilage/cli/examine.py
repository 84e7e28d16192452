"""Detectors for examining a policy: all of them run, without a deadline.

In use, detection may end once the route is settled, and a text that takes too long
is kept local. An examination needs every finding, and the same result on a busy
machine.
"""

import asyncio
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

from curtilage.cli.terminal import HowFar, err, progress
from curtilage.client.chat.query import Query
from curtilage.client.detection.checked import CheckedInspector, InspectsMany
from curtilage.client.detection.side_by_side import SideBySide, cores
from curtilage.policy.decision.decide import Inspection
from curtilage.policy.document.model import Policy, full_scan
from curtilage.policy.signing import Currency

BATCH: Final = 64


def start_detectors(
    policy: Policy, currency: Currency | None = None
) -> CheckedInspector:
    """Start the detectors of a policy, without deadline or early exit.

    Args:
        policy: the policy.
        currency: the signature that it must have, or None if none is required;
            without it, everything is kept local, as in use.
    """
    _warn_of(currency)
    with progress("starting detectors"):
        detectors = CheckedInspector.start(full_scan(policy), currency)
    if detectors.advice is not None:
        err(detectors.advice)
    return detectors


def start_many(policy: Policy, currency: Currency | None = None) -> SideBySide:
    """Start the same detectors for many texts, in one process per core.

    Args:
        policy: as for ``start_detectors``.
        currency: as for ``start_detectors``.
    """
    _warn_of(currency)

    def start() -> CheckedInspector:
        return CheckedInspector.start(full_scan(policy), currency)

    with progress("starting detectors"):
        detectors = SideBySide(start, count=cores())
    if detectors.advice is not None:
        err(detectors.advice)
    return detectors


async def inspect_one(
    query: Query, policy: Policy, currency: Currency | None = None
) -> Inspection:
    """Return the findings of one query; the detectors run for it alone."""
    # In a thread, since starting the processes takes seconds.
    inspector = await asyncio.to_thread(start_detectors, policy, currency)
    try:
        return await inspector.ainspect(query)
    finally:
        inspector.close()


def _warn_of(currency: Currency | None) -> None:
    if currency is not None and (warning := currency.warning(datetime.now(UTC))):
        err(f"warning: {warning}")


def inspect_all(
    inspector: InspectsMany, queries: Sequence[Query]
) -> Iterator[Inspection]:
    """Yield the findings of each query; show progress after a while."""
    far = HowFar()
    for first in range(0, len(queries), BATCH):
        batch = queries[first : first + BATCH]
        yield from inspector.inspect_many(batch)
        done = first + len(batch)
        far.show(f"{done} of {len(queries)} queries", last=done == len(queries))
