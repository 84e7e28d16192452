import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import pytest

from curtilage.client.system.fair_queue import ASKER, Asker, FairQueue, TurnRefusedError


class Line:
    """Many that ask one thing; the order in which they are served."""

    def __init__(self, turns: FairQueue | None = None) -> None:
        self.turns = turns or FairQueue()
        self.served: list[str] = []
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def ask(self, name: str, cost: int, asker: Asker | None = None) -> None:
        """Join the end of the line; return once it is in it."""

        async def wait() -> None:
            ASKER.set(asker)
            await self.turns.take(cost)
            self.served.append(name)

        self.tasks[name] = asyncio.create_task(wait())
        await asyncio.sleep(0)

    async def serve(self, times: int) -> Sequence[str]:
        """End the turn so many times; return who was served since."""
        self.served.clear()
        for _ in range(times):
            self.turns.end()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        return self.served


@asynccontextmanager
async def line(turns: FairQueue | None = None) -> AsyncGenerator[Line]:
    made = Line(turns)
    await made.ask("first", 1)
    try:
        yield made
    finally:
        for task in made.tasks.values():
            task.cancel()
        await asyncio.gather(*made.tasks.values(), return_exceptions=True)


async def test_one_is_served_at_a_time() -> None:
    async with line() as asked:
        await asked.ask("a", 1)
        await asked.ask("b", 1)
        assert asked.served == ["first"]
        assert await asked.serve(1) == ["a"]
        assert await asked.serve(1) == ["b"]


async def test_two_are_served_at_a_time_where_there_are_two_places() -> None:
    turns = FairQueue()
    turns.places = 2
    async with line(turns) as asked:
        for name in ("a", "b", "c"):
            await asked.ask(name, 1)
        assert asked.served == ["first", "a"]
        assert await asked.serve(1) == ["b"]
        assert await asked.serve(1) == ["c"]
        assert await asked.serve(2) == []
        await asked.ask("d", 1)
        await asked.ask("e", 1)
        await asked.ask("f", 1)
        assert asked.served == ["d", "e"]


async def test_who_asks_for_less_is_served_first() -> None:
    async with line() as asked:
        for number in range(8):
            await asked.ask(f"long {number}", 20_000)
        await asked.ask("short", 50)
        assert await asked.serve(2) == ["short", "long 0"]


async def test_connections_are_served_in_turn() -> None:
    greedy, modest = Asker(), Asker()
    async with line() as asked:
        for number in range(3):
            await asked.ask(f"greedy {number}", 100, greedy)
        await asked.ask("modest", 100, modest)
        assert await asked.serve(1) == ["greedy 0"]
        await asked.ask("greedy again", 100, greedy)
        await asked.ask("modest again", 100, modest)
        order = await asked.serve(5)
        assert order.index("modest again") < order.index("greedy again")


async def test_an_application_with_many_connections_has_one_share() -> None:
    crowd, other = Asker(), Asker()
    async with line() as asked:
        for number in range(20):
            await asked.ask(f"crowd {number}", 100, Asker(group=crowd))
        await asked.ask("other 0", 100, Asker(group=other))
        await asked.ask("other 1", 100, Asker(group=other))
        order = await asked.serve(4)
        assert sum(name.startswith("other") for name in order) == 2
        # Its own connections are served in turn.
        assert [name for name in order if name[0] == "c"] == ["crowd 0", "crowd 1"]
        # A third one does not wait for the crowd, which has had its share.
        await asked.ask("third", 100, Asker(group=Asker()))
        assert "third" in await asked.serve(2)


async def test_no_connection_of_an_application_waits_for_ever() -> None:
    crowd = Asker()
    async with line() as asked:
        await asked.ask("long", 1000, Asker(group=crowd))
        for number in range(100):
            await asked.ask(f"short {number}", 50, Asker(group=crowd))
            if "long" in await asked.serve(1):
                break
        assert "long" in asked.served


async def test_beyond_the_bound_the_crowd_is_refused() -> None:
    crowd = Asker()
    async with line(FairQueue(most=4)) as asked:
        for number in range(4):
            await asked.ask(f"crowd {number}", 10, Asker(group=crowd))
        await asked.ask("other", 30, Asker(group=Asker()))
        with pytest.raises(TurnRefusedError):
            await asked.tasks["crowd 3"]
        assert "other" in await asked.serve(4)


async def test_many_short_ones_do_not_keep_a_long_one_waiting_for_ever() -> None:
    async with line() as asked:
        await asked.ask("long", 1000)
        for number in range(100):
            await asked.ask(f"short {number}", 50)
            if "long" in await asked.serve(1):
                break
        assert "long" in asked.served


async def test_beyond_the_bound_the_last_is_refused() -> None:
    async with line(FairQueue(most=2)) as asked:
        await asked.ask("long", 1000)
        await asked.ask("longer", 2000)
        await asked.ask("short", 10)
        with pytest.raises(TurnRefusedError):
            await asked.tasks["longer"]
        await asked.ask("longest", 3000)
        with pytest.raises(TurnRefusedError):
            await asked.tasks["longest"]
        assert await asked.serve(2) == ["short", "long"]


async def test_who_leaves_is_not_waited_for() -> None:
    async with line() as asked:
        await asked.ask("leaves", 1)
        await asked.ask("stays", 2)
        asked.tasks["leaves"].cancel()
        assert await asked.serve(1) == ["stays"]


async def test_who_leaves_when_called_gives_the_turn_on() -> None:
    async with line() as asked:
        await asked.ask("leaves", 1)
        await asked.ask("stays", 2)
        asked.turns.end()
        asked.tasks["leaves"].cancel()
        for _ in range(3):
            await asyncio.sleep(0)
        assert asked.served == ["first", "stays"]


async def test_who_leaves_when_refused_ends_no_turn() -> None:
    async with line(FairQueue(most=1)) as asked:
        await asked.ask("a", 1)
        await asked.ask("b", 2)
        asked.tasks["b"].cancel()
        for _ in range(3):
            await asyncio.sleep(0)
        assert asked.served == ["first"]


async def test_a_failure_gives_the_turn_on() -> None:
    turns = FairQueue()
    with pytest.raises(ZeroDivisionError):
        async with turns.turn(1):
            raise ZeroDivisionError
    async with asyncio.timeout(60), turns.turn(1):
        pass


async def test_an_idle_queue_owes_nothing() -> None:
    old, new = Asker(), Asker()
    turns = FairQueue()
    ASKER.set(old)
    async with turns.turn(1_000_000):
        pass
    ASKER.set(None)
    async with line(turns) as asked:
        await asked.ask("old", 10, old)
        await asked.ask("new", 11, new)
        assert await asked.serve(1) == ["old"]
