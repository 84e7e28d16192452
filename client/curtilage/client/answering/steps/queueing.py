"""The queue's step: a query that no tier could answer waits, and is asked again."""

import asyncio

from curtilage.client.answering.course import Course
from curtilage.client.audit.record import Outcome
from curtilage.client.chat.query import Query
from curtilage.client.errors import QueuedError
from curtilage.client.queue.deferring import Deferring
from curtilage.client.routing.router import Router


async def queued_for_later(
    queue: Deferring, query: Query, course: Course, router: Router | None
) -> QueuedError | None:
    """Queue a query; None: it may not wait, or waiting would not help.

    Raises:
        QueueFullError: the queue is full.
    """
    recorder = course.case.recorder
    reasons = [each.reason for each in course.failures]
    if course.plan.fallback is not None:
        reasons.append(course.plan.fallback)
    known: list[int | None] = []
    if router is not None:
        # Until one of them may be asked, every attempt would fail in the same way.
        known = [router.left_alone_s(each.id) for each in course.wanted]
    # Without the way and its permission: the query is decided anew when it is asked
    # again (docs/decisions/0046).
    queued = await queue.put(
        query,
        recorder.decision,
        reasons,
        alone_s=min((each for each in known if each is not None), default=None),
        left=recorder.let_out,
    )
    if queued is not None and not queue.asks_again:
        try:
            await recorder.stays(Outcome.QUEUED, queued.reason)
        except asyncio.CancelledError:
            # The caller never gets the ticket, so the query must not be asked again.
            await queue.drop(queued.ticket)
            raise
    return queued
