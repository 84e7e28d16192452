import asyncio
import gc
import weakref
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curtilage.inference.merged import merged


class Played:
    """A stream of its steps; remembers whether it was closed."""

    def __init__(self, *steps: str | BaseException | asyncio.Event) -> None:
        self._steps = steps
        self.begun = self.closed = False

    async def stream(self) -> AsyncGenerator[str]:
        self.begun = True
        try:
            for step in self._steps:
                if isinstance(step, BaseException):
                    raise step
                if isinstance(step, asyncio.Event):
                    await step.wait()
                else:
                    yield step
        finally:
            self.closed = True


async def all_of(streams: Sequence[AsyncGenerator[str]]) -> list[tuple[int, str]]:
    return [each async for each in merged(streams)]


async def test_one_waits_for_no_other() -> None:
    gate = asyncio.Event()
    first, second = Played("a", gate, "b"), Played("c", "d")
    seen: list[tuple[int, str]] = []
    async for each in merged([first.stream(), second.stream()]):
        seen.append(each)
        if each == (1, "d"):
            gate.set()
    assert seen == [(0, "a"), (1, "c"), (1, "d"), (0, "b")]
    assert first.closed
    assert second.closed


@pytest.mark.parametrize("number", [1, 2, 3])
async def test_closing_in_the_middle_closes_all(number: int) -> None:
    never = asyncio.Event()
    played = [Played("a", never) for _ in range(number)]
    async with aclosing(merged([each.stream() for each in played])) as events:
        await anext(events)
    assert all(each.closed for each in played)
    assert len(asyncio.all_tasks()) == 1


async def test_cancelling_closes_all() -> None:
    played = [Played("a", asyncio.Event()) for _ in range(2)]
    task = asyncio.create_task(all_of([each.stream() for each in played]))
    await asyncio.sleep(0.01)
    assert all(each.begun and not each.closed for each in played)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert all(each.closed for each in played)


async def test_an_error_comes_after_what_was_before_it_and_ends_the_others() -> None:
    others = Played("a", asyncio.Event())
    failing = Played("b", "c", ValueError("broken"))
    events = merged([others.stream(), failing.stream()])
    assert [await anext(events) for _ in "abc"] == [(0, "a"), (1, "b"), (1, "c")]
    with pytest.raises(ValueError, match="broken"):
        await anext(events)
    assert others.closed
    assert len(asyncio.all_tasks()) == 1


async def test_an_error_keeps_nothing() -> None:
    class Item(str):
        """Can be referenced weakly."""

        __slots__ = ("__weakref__",)

    async def fails(item: Item) -> AsyncGenerator[str]:
        yield item
        raise ValueError

    item = Item("content")
    alive = weakref.ref(item)
    events = merged([fails(item), Played().stream()])
    del item
    gc.collect()
    gc.disable()
    try:
        await anext(events)
        with suppress(ValueError):
            await anext(events)
            pytest.fail("there was no error")
        await asyncio.sleep(0)  # the loop still holds the task
        assert alive() is None
    finally:
        gc.enable()


@given(st.lists(st.lists(st.sampled_from("abc"), max_size=5), max_size=4))
async def test_each_stream_keeps_its_order(texts: list[list[str]]) -> None:
    seen = await all_of([Played(*each).stream() for each in texts])
    for number, own in enumerate(texts):
        assert [text for at, text in seen if at == number] == own
    assert len(seen) == sum(map(len, texts))
