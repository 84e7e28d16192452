"""Watches a running client, and reports each change of its state.

It polls the state that the parts report. It contains no question and no question waits
for it. A failure that only a question can cause (an on-premises server, a full disk) is
reported within one poll, so the time of that line reveals that a question was asked.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from time import monotonic
from typing import Final

from curtilage.client import telemetry
from curtilage.client.health import Changes, Part, Status
from curtilage.client.session import Session
from curtilage.client.telemetry import Level, StateLog

TICK_S: Final = 2.0


@asynccontextmanager
async def watching(
    session: Session, log: StateLog, *, tick_s: float = TICK_S
) -> AsyncGenerator[None]:
    """Report changes until the block ends."""
    changes = Changes()

    async def reporting() -> None:
        """Report what changed since the last poll."""
        report(session, log, changes, now_s=monotonic())

    tasks = [
        asyncio.ensure_future(_repeated(work, tick_s))
        for work in (reporting, session.look)
    ]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _repeated(work: Callable[[], Awaitable[None]], tick_s: float) -> None:
    while True:
        # Failures are ignored until the next poll; a report that stopped for good would
        # look like a healthy client.
        with suppress(Exception):
            await work()
        await asyncio.sleep(tick_s)


def report(
    session: Session,
    log: StateLog,
    changes: Changes,
    *,
    now_s: float,
    clock: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> None:
    """Write a line for each part whose state differs from the one reported last."""
    health = session.health()
    telemetry.health(health.status)
    for level, part in (
        (Level.EVIDENCE_EXPIRES, Part.EVIDENCE),
        (Level.POLICY_EXPIRES, Part.POLICY),
    ):
        for each in health.conditions:
            if each.part is part and each.until is not None:
                telemetry.expires(level, (each.until - clock()).total_seconds())
    for news in changes.news((*health.conditions, health.whole), now_s):
        condition = news.condition
        state = Status.DEGRADED
        if condition.part is Part.CLIENT:
            state = health.status
        log.changed(
            condition.part,
            state if news.note is None else news.note,
            tier=condition.tier,
            reason=condition.reason,
            until=condition.until,
        )
