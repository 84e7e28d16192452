import argparse
import asyncio
import itertools
from contextlib import aclosing
from pathlib import Path

import pytest

from curtilage.inference.protocol import ChatMessage, Done, GenerateRequest, Token
from curtilage.inference.sampling import SamplingSettings
from curtilage_dev.scripted_enclave import (
    BEGAN,
    ENDED,
    STOPPED,
    WORD,
    Play,
    PlayArguments,
    PlayedEngine,
    add_play,
)

REQUEST = GenerateRequest(
    messages=(ChatMessage(role="user", content="x"),),
    settings=SamplingSettings(max_tokens=64, temperature=0),
)


def test_arguments_are_read_as_they_are_written(tmp_path: Path) -> None:
    play = Play(
        pieces=3,
        delay_ms=4,
        read_us=7,
        first_ms=5,
        spread_ms=6,
        runs=tmp_path / "runs",
        gate=tmp_path / "gate",
    )
    for each in (play, Play(pieces=1)):
        parser = argparse.ArgumentParser()
        add_play(parser)
        read = parser.parse_args(each.arguments(), namespace=PlayArguments())
        assert read.play() == each


def test_first_pauses_are_spread_and_the_same_for_all() -> None:
    play = Play(pieces=1, first_ms=10, spread_ms=100)
    pauses = sorted(play.first_s(seed) for seed in range(20))
    assert pauses[0] == pytest.approx(0.01)
    assert pauses[-1] < 0.11
    gaps = [b - a for a, b in itertools.pairwise(pauses)]
    assert max(gaps) < 0.01
    assert play.first_s(7) == Play(pieces=9, first_ms=10, spread_ms=100).first_s(7)


async def test_a_run_is_recorded(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    engine = PlayedEngine(Play(pieces=3, runs=runs))
    await engine.start()
    async with aclosing(engine.generate(REQUEST)) as events:
        said = [event async for event in events]
    assert [event.text for event in said if isinstance(event, Token)] == [WORD] * 3
    assert isinstance(said[-1], Done)
    async with aclosing(engine.generate(REQUEST)) as events:
        async for event in events:
            if isinstance(event, Token):
                break
    assert _reported(runs) == [BEGAN, ENDED, BEGAN, STOPPED]


async def test_nothing_comes_through_a_gate_that_is_closed(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    engine = PlayedEngine(Play(pieces=3, gate=gate))
    await engine.start()
    async with aclosing(engine.generate(REQUEST)) as events:
        _ = await anext(events)
        waiting = asyncio.ensure_future(anext(events))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not waiting.done()
        _open(gate, 1)
        assert isinstance(await waiting, Token)


def _reported(runs: Path) -> list[str]:
    return runs.read_text().split()


def _open(gate: Path, pieces: int) -> None:
    gate.write_bytes(b"." * pieces)
