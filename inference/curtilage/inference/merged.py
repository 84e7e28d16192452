"""Several event streams read at the same time."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import TypeVar

_Item = TypeVar("_Item")


async def merged(
    streams: Sequence[AsyncGenerator[_Item]],
) -> AsyncGenerator[tuple[int, _Item]]:
    """Yield the items of all streams as they come, each with its stream's number.

    Several are each read in a task of its own, however slowly the items are taken here.
    The first error ends the others, and is raised after the items of its stream.
    Closing closes all.
    """
    if len(streams) == 1:
        async with aclosing(streams[0]) as only:
            async for item in only:
                yield 0, item
        return
    came: asyncio.Queue[tuple[int, _Item] | asyncio.Task[None]] = asyncio.Queue()
    tasks = [_reading(*each, came) for each in enumerate(streams)]
    try:
        for _ in streams:
            while not isinstance(each := await came.get(), asyncio.Task):
                yield each
            try:
                each.result()
            finally:
                # Its error references this frame, so this frame must not reference it.
                del each
    finally:
        await _cancelled(tasks)


def _reading(
    number: int,
    stream: AsyncGenerator[_Item],
    came: "asyncio.Queue[tuple[int, _Item] | asyncio.Task[None]]",
) -> "asyncio.Task[None]":
    """Begin to read a stream; its items come into the queue, and then its task."""

    async def read() -> None:
        async with aclosing(stream):
            async for item in stream:
                came.put_nowait((number, item))

    task = asyncio.create_task(read())
    task.add_done_callback(came.put_nowait)
    return task


async def _cancelled(tasks: "list[asyncio.Task[None]]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    tasks.clear()
