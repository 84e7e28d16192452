"""Hedging: if a tier is late, a second one is asked, and the first to begin is read."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, aclosing

from curtilage.client.answering.attempt import Status
from curtilage.client.answering.course import Course
from curtilage.client.answering.pump import Ended, Writer, Writes, ready
from curtilage.client.chat.answer import AnswerEvent
from curtilage.client.errors import AnswererError
from curtilage.client.system.budget import Budget


def hedged(
    course: Course, first: Writer, writes: Writes, budget: Budget, stack: AsyncExitStack
) -> AsyncGenerator[AnswerEvent]:
    """Yield the answer of a late tier, or of the next one if that begins before it.

    Raises:
        AnswererError: neither gave a whole answer.
    """

    async def second() -> Writer | None:
        """Ask the next tier, if the budget has an additional attempt left."""
        # The budget bounds the load: if every tier is slow, a second request for each
        # query would make all of them slower.
        if not budget.take():
            return None
        return await writes(course.attempt(course.left.pop(0), hedge=True), stack)

    return sooner(first, 0.0, second, course.stream.status, course.failures)


async def sooner(
    first: Writer,
    after_s: float,
    second: Callable[[], Awaitable[Writer | None]],
    status: Status,
    failures: list[AnswererError],
) -> AsyncGenerator[AnswerEvent]:
    """Yield the answer of the first tier; if it is late, of the first to begin.

    Args:
        first: the tier that was asked.
        after_s: after how many seconds without text it is late.
        second: asks another tier, if one may be; called at most once.
        status: shows which of them is read.
        failures: gets the failure of one while the other continues.

    Raises:
        AnswererError: the one that was read broke off, and there is no other.
    """
    status.phase = first.status.phase
    event: AnswerEvent | Ended | None = await first.pump.next(after_s)
    other = await second() if event is None else None
    read, left = first, [first] if other is None else [first, other]
    # The query was sent to two tiers, and its provenance must say so, whichever is
    # read.
    first.in_parallel = other is not None
    while event is None:
        pump = await ready(*(each.pump for each in left))
        read = next(each for each in left if each.pump is pump)
        try:
            event = await pump.next()
        except AnswererError as error:
            left.remove(read)
            if not left:
                raise
            failures.append(error.alone())
            # The second is then read because the first failed, not because it is late.
            left[0].failed = error.reason if read is first else None
    for writer in left:
        if writer is not read:
            # An answer that is not read would still use its tier, and be paid for.
            await writer.pump.aclose()
    if not isinstance(event, Ended):
        async with aclosing(read.rest(status, [event])) as events:
            async for each in events:
                yield each
