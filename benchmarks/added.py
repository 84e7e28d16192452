"""The cost of sealing, relaying and padding an answer, each alone and together.

Compared with a direct stream over plain HTTP from the same engine, in the same run,
with the ways in turns. Real processes on loopback. The engine is a script: 200 pieces
at a steady pace, and a pause before the first that varies from question to question,
equally for every way, so that a timer's phase varies too. So the model's own time is
excluded, and nothing else.

A second part asks for whole answers through a client's endpoint: when is an answer
complete, streamed and not, with its receipt verified?
"""

import asyncio
import json
import ssl
import time
import urllib.request
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks.hearing import Heard, Way, ask, counted
from benchmarks.report import Table, quantile
from curtilage.wire.keyconfig import KeyConfig, parse_key_configs
from curtilage.wire.shaping import PADDED, UNPADDED
from curtilage_dev.asking import events_of, open_answer
from curtilage_dev.emulator import ROOT_FILE
from curtilage_dev.processes import Processes
from curtilage_dev.scripted_enclave import Play
from curtilage_dev.stack import GATEWAY, Stack, listen_address

GATEWAY_PATH: Final = "/.well-known/ohttp-gateway"
PLAY: Final = Play(pieces=200, delay_ms=25, first_ms=50, spread_ms=100)
FIRST_ROUNDS: Final = 25
WHOLE_ROUNDS: Final = 3
WARM_UP: Final = 3
LENGTHS: Final = (20, 100, 400)
COMPLETE_ROUNDS: Final = 9
DIRECT: Final = "direct, plain HTTP"
SEALED: Final = "sealed"
RELAYED: Final = "sealed, relayed"
PADDED_ALONE: Final = "sealed, padded"
TOGETHER: Final = "sealed, relayed, padded"
WITH_TLS: Final = "the same, TLS on both hops"


@dataclass(slots=True, kw_only=True)
class _Measured:
    """The measurements of one way."""

    firsts: list[float] = field(default_factory=list[float])
    wholes: list[Heard] = field(default_factory=list[Heard])
    up: list[int] = field(default_factory=list[int])
    down: list[int] = field(default_factory=list[int])


def measure_added(folder: Path) -> list[Table]:
    """Measure all ways; takes about seven minutes."""
    with ExitStack() as running:
        ways = _start(folder, running)
        measured = asyncio.run(_measure(ways))
    return [_table(measured), _steps(measured), _complete(folder / "complete")]


def _complete(folder: Path) -> Table:
    """Measure when answers of several lengths are complete."""
    with ExitStack() as running:
        stack = _stack(folder, running)
        stack.play = replace(PLAY, pieces=max(LENGTHS) + 1)
        stack.start_all()
        complete_s(stack, 1, stream=True)
        rows: list[tuple[str | float, ...]] = []
        for length in LENGTHS:
            pairs = [
                (complete_s(stack, length, stream=True), complete_s(stack, length))
                for _ in range(COMPLETE_ROUNDS)
            ]
            streamed, whole = (median(each) for each in zip(*pairs, strict=True))
            written = (PLAY.first_ms + length * PLAY.delay_ms) / 1000
            rows.append((length, written, streamed, whole))
    return Table(
        title="A complete answer, its receipt verified",
        columns=("tokens", "engine s", "streamed s", "not streamed s"),
        rows=tuple(rows),
        note=f"medians of {COMPLETE_ROUNDS} in turns; endpoint, relay and enclave as "
        f"processes on loopback; the engine's script pauses up to {PLAY.spread_ms} ms "
        "more before the first token",
    )


def complete_s(
    stack: Stack, length: int, *, stream: bool = False, text: str = "Say hello."
) -> float:
    """Return after how many seconds a client has an answer of so many tokens.

    Raises:
        RuntimeError: the answer ended before.
    """
    more = {"stream": stream, "curtilage": {"require": "enclave"}}
    started = time.perf_counter()
    with open_answer(stack.client_url, text, max_tokens=length, more=more) as response:
        reason = ""
        if stream:
            for event in events_of(response):
                for choice in event["choices"]:
                    reason = choice["finish_reason"] or reason
        else:
            reason = json.load(response)["choices"][0]["finish_reason"]
    if reason != "length":
        raise RuntimeError("an answer of the benchmark was not written to its end")
    return time.perf_counter() - started


def _start(folder: Path, running: ExitStack) -> list[Way]:
    unpadded = _stack(folder / "unpadded", running)
    unpadded.transport = UNPADDED
    padded = _stack(folder / "padded", running)
    secure = _stack(folder / "secure", running)
    secure.tls = True
    unpadded.start_evidence()
    for stack in (padded, secure):
        stack.evidence_socket.symlink_to(unpadded.evidence_socket)
        root = (unpadded.folder / ROOT_FILE).read_bytes()
        (stack.folder / ROOT_FILE).write_bytes(root)
    for stack in (unpadded, padded, secure):
        stack.publish()
        stack.start_enclave()
        stack.start_relay()
    plain = unpadded.processes.start(
        "plain",
        ["-m", "curtilage_dev.plain_server", *PLAY.arguments()],
        environment={"PYTHONPATH": str(Path(__file__).resolve().parents[1] / "dev")},
    )
    direct = Way(
        name=DIRECT,
        address=listen_address(plain.wait_ready()),
        path="/v1/chat/completions",
    )
    return [
        direct,
        _enclave(SEALED, unpadded),
        through_relay(RELAYED, unpadded),
        _enclave(PADDED_ALONE, padded),
        through_relay(TOGETHER, padded),
        through_relay(WITH_TLS, secure),
    ]


def _stack(folder: Path, running: ExitStack) -> Stack:
    folder.mkdir()
    processes = running.enter_context(Processes(folder))
    return Stack(
        folder=folder, processes=processes, record=False, transport=PADDED, play=PLAY
    )


def _enclave(name: str, stack: Stack) -> Way:
    return Way(
        name=name,
        address=stack.enclave_address,
        path=GATEWAY_PATH,
        key=_key(stack),
        padded=stack.transport == PADDED,
    )


def through_relay(name: str, stack: Stack) -> Way:
    """Return the way through a stack's relay."""
    trusted = stack.authority
    return Way(
        name=name,
        address=stack.relay_address,
        path=f"/{GATEWAY}",
        key=_key(stack),
        padded=stack.transport == PADDED,
        tls=None if trusted is None else ssl.create_default_context(cafile=trusted),
    )


def _key(stack: Stack) -> KeyConfig:
    context = ssl.create_default_context(cafile=stack.authority)
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
    )
    with opener.open(f"{stack.relay_url}/keys", timeout=20) as response:
        return parse_key_configs(response.read())[0]


async def _measure(ways: Sequence[Way]) -> dict[str, _Measured]:
    measured = {way.name: _Measured() for way in ways}
    for number in range(FIRST_ROUNDS + WARM_UP):
        for way in ways:
            heard = await ask(way, seed=number, only_first=True)
            if number >= WARM_UP:
                measured[way.name].firsts.append(heard.first_s * 1000)
    for number in range(WHOLE_ROUNDS):
        for way in ways:
            async with counted(way.address) as line:
                through = replace(way, address=line.address)
                heard = await ask(through, seed=number)
                measured[way.name].wholes.append(heard)
                measured[way.name].up.append(line.up)
                measured[way.name].down.append(line.down)
    return measured


def _table(measured: dict[str, _Measured]) -> Table:
    direct = measured[DIRECT]
    rows: list[tuple[str | float, ...]] = [
        (
            name,
            quantile(way.firsts, 0.5),
            quantile(way.firsts, 0.9),
            median(each.text_s for each in way.wholes),
            median(each.all_s for each in way.wholes),
            f"{median(way.up):,.0f}",
            f"{median(way.down):,.0f}",
            median(way.down) / median(direct.down),
        )
        for name, way in measured.items()
    ]
    return Table(
        title=f"An answer of {PLAY.pieces} tokens, one every {PLAY.delay_ms} ms",
        columns=(
            "way",
            "first p50 ms",
            "first p90 ms",
            "last token s",
            "line free s",
            "bytes up",
            "bytes down",
            "x direct",
        ),
        rows=tuple(rows),
        note=f"{FIRST_ROUNDS} questions for the first token, {WHOLE_ROUNDS} for the "
        "rest; scripted engine; loopback; bytes as they pass the client's socket, "
        "HTTP and TLS included; connections are there already, the TLS handshake not "
        "timed",
    )


def _steps(measured: dict[str, _Measured]) -> Table:
    steps = (
        ("sealing, by itself", SEALED, DIRECT),
        ("relaying, by itself", RELAYED, SEALED),
        ("padding, by itself", PADDED_ALONE, SEALED),
        ("all three together", TOGETHER, DIRECT),
        ("TLS on both hops, on top", WITH_TLS, TOGETHER),
    )
    rows: list[tuple[str | float, ...]] = []
    for title, after, before in steps:
        one, other = measured[before], measured[after]
        added = [b - a for a, b in zip(one.firsts, other.firsts, strict=True)]
        rows.append(
            (
                title,
                quantile(added, 0.5),
                quantile(added, 0.9),
                f"{median(other.up) - median(one.up):+,.0f}",
                f"{median(other.down) - median(one.down):+,.0f}",
            )
        )
    return Table(
        title="What each step adds",
        columns=("step", "first p50 ms", "first p90 ms", "bytes up", "bytes down"),
        rows=tuple(rows),
        note="first token: of pairs with the same question, asked one after the other",
    )
