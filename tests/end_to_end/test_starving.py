"""No client can take the model, or every place, from one with normal use.

Real processes on loopback, each client at an address of its own, and the enclave
plays a script. ``make bench ARGS=starve`` measures the same with all attackers.
"""

import asyncio
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path

import pytest

from curtilage.wire.shaping import TransportParameters
from curtilage_dev.crowd import Crowd, Inner, dummy, long_prompt, question, story
from curtilage_dev.processes import Processes
from curtilage_dev.scripted_enclave import BEGAN, Play
from curtilage_dev.stack import Stack

VICTIM = "127.0.0.9"
WORDS = 5
# The longest answer takes 82 s, and any of the attackers' would go on for longer.
SHAPE = TransportParameters(period_ms=40, first_bucket=8, buckets=9)
PIECES = 10_000
DELAY_MS = 10
READ_US = 2_000
"""For each character: 40 s for a long prompt."""
QUEUE = 8
TURN_MS = 200
PATIENCE_S = 60


@contextmanager
def deployment(folder: Path) -> Generator[Stack]:
    """Run relay and enclave, with room for nine questions."""
    with Processes(folder) as processes:
        stack = Stack(
            folder=folder,
            processes=processes,
            transport=SHAPE,
            play=Play(
                pieces=PIECES,
                delay_ms=DELAY_MS,
                read_us=READ_US,
                turn_ms=TURN_MS,
                queue=QUEUE,
                runs=folder / "runs",
            ),
        )
        stack.start_evidence()
        stack.publish()
        stack.start_enclave()
        stack.start_relay()
        yield stack


async def answered(stack: Stack, attackers: Iterable[tuple[str, Inner]]) -> bool:
    """Ask while others ask all the time; return whether there was an answer."""
    crowd = await asyncio.to_thread(Crowd, stack)
    attacking = list(attackers)
    async with asyncio.timeout(PATIENCE_S), crowd.asking(attacking):
        if any(inner in (story(), long_prompt()) for _, inner in attacking):
            await begun(stack, 4)
        # They take everything they can get.
        await asyncio.sleep(1)
        return await crowd.ask(VICTIM, question(WORDS))


async def begun(stack: Stack, count: int) -> None:
    """Wait until the engine got requests for this many answers."""
    runs = stack.folder / "runs"
    while not runs.exists() or runs.read_text("utf-8").count(BEGAN) < count:  # noqa: ASYNC110 - another process writes it
        await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("addresses", "times", "what"),
    [
        pytest.param(["127.0.0.2"], 9, story(), id="nine long stories"),
        pytest.param(["127.0.0.2"], 9, long_prompt(), id="nine long prompts"),
        pytest.param(["127.0.0.3", "127.0.0.4"], 24, dummy(8), id="48 long dummies"),
    ],
)
async def test_a_quiet_client_is_answered(
    tmp_path: Path, addresses: list[str], times: int, what: Inner
) -> None:
    with deployment(tmp_path) as stack:
        attackers = [(address, what) for address in addresses for _ in range(times)]
        assert await answered(stack, attackers)
