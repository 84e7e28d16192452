"""One engine under load, in a process of its own: prints a line of JSON for each round.

``python -m benchmarks.engine_peer PEER CLIENTS NAME FILE SHA256 BYTES``; each line of
standard input starts a round: ``load``, ``long``, ``pause`` or ``decode``. Every engine
has the same model, one thread, the same prompts, as many places as there are clients,
and flash attention, as llama.cpp's server chooses. Ours is ``own`` with it, ``plain``
with what it chooses itself, and ``shipped`` so in a process of its own.
"""

import asyncio
import json
import math
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from itertools import count, pairwise
from typing import Any, Final

import numpy as np
import psutil

from benchmarks.shapes import Chosen, chosen
from benchmarks.topics import TOPICS
from curtilage.inference.process.codec import Plan
from curtilage.inference.process.parent import EngineProcess
from curtilage.inference.protocol import (
    ChatMessage,
    Engine,
    GenerateRequest,
    Token,
)
from curtilage.inference.sampling import SamplingSettings
from curtilage.inference.settings import EngineSettings

TOKENS: Final = 48
CONTEXT_TOKENS: Final = 1536
THREADS: Final = 1
LEAST_QUESTIONS: Final = 4
"""Of all clients together, each client's one after the other."""
LONG_TOKENS: Final = 900
WRITERS: Final = 4
DECODED: Final = 128
"""Tokens of the answer whose gaps are compared with the memory's speed."""
READ_BYTES: Final = 512 * 1024 * 1024
FEW: Final = 10
"""Tokens of each of them before a measurement begins."""
_NUMBERS = count(int(time.time()) % 100_000 * 1000)


@dataclass(slots=True)
class Round:
    """What was measured.

    Attributes:
        tokens: written by all answers.
        first_ms: of each answer, from its question to its first text.
        cpu_s: of this process, all threads.
        wall_s: of the whole round.
    """

    tokens: int = 0
    first_ms: list[float] = field(default_factory=list[float])
    cpu_s: float = 0.0
    wall_s: float = 0.0

    def line(self) -> str:
        """Return it as a line of JSON."""
        return json.dumps(
            {
                "tokens": self.tokens,
                "first_ms": self.first_ms,
                "cpu_s": self.cpu_s,
                "wall_s": self.wall_s,
            }
        )


def question() -> str:
    """Return a prompt of about 66 tokens; none begins like another."""
    number = next(_NUMBERS)
    topic = TOPICS[number % len(TOPICS)]
    return (
        f"Number {number}. Write a long article about {topic} for a school newspaper, "
        "with an introduction, five paragraphs of explanations and a conclusion."
    )


def _turns(text: str) -> list[dict[str, Any]]:
    # With a system message, as engines add different ones where there is none.
    system = {"role": "system", "content": "Answer in English."}
    return [system, {"role": "user", "content": text}]


def long_question() -> str:
    """Return a prompt of about 766 tokens."""
    return f"{question()} {_filler(700)}"


def _filler(tokens: int) -> str:
    return "one two three " * (tokens // 3)


Asked = Callable[[], str]
Ask = Callable[[str], tuple[int, float]]
"""Asks a question; returns the tokens of the answer, and when its first text came."""


def _asked(line: str) -> Asked:
    """Return what is asked in a round that a line starts."""
    return long_question if line.strip() == "long" else question


def _load(ask: Ask, clients: int, asked: Asked) -> Round:
    """Ask from so many threads."""
    result, lock = Round(), threading.Lock()

    def client() -> None:
        for _ in range(_each(clients)):
            began = time.perf_counter()
            tokens, first = ask(asked())
            with lock:
                result.tokens += tokens
                result.first_ms.append(1000 * (first - began))

    _measure(result, lambda: _together(client, clients))
    return result


def _each(clients: int) -> int:
    return -(-LEAST_QUESTIONS // clients)


def _together(client: Callable[[], None], clients: int) -> None:
    with ThreadPoolExecutor(clients) as pool:
        for each in [pool.submit(client) for _ in range(clients)]:
            each.result()


def _measure(result: Round, run: Callable[[], object]) -> None:
    wall, cpu = time.perf_counter(), _cpu_s()
    run()
    result.cpu_s = _cpu_s() - cpu
    result.wall_s = time.perf_counter() - wall


def _cpu_s() -> float:
    """Return the processor time of this process, and of an engine's own."""
    own_s = time.process_time()
    for child in psutil.Process().children(recursive=True):
        times = child.cpu_times()
        own_s += times.user + times.system
    return own_s


def _serial(which: Chosen) -> Ask:
    """Return llama-cpp-python's ``Llama`` behind a lock."""
    package: Any = import_module("llama_cpp.llama")
    model = package.Llama(
        str(which.path),
        n_ctx=CONTEXT_TOKENS,
        n_threads=THREADS,
        n_threads_batch=THREADS,
        flash_attn=True,
        verbose=False,
    )
    lock = threading.Lock()

    def ask(text: str) -> tuple[int, float]:
        tokens, first = 0, 0.0
        with lock:
            # Else it continues from the beginning that it shares with the last prompt:
            # faster, and what one person could measure of another's.
            model.reset()
            for chunk in model.create_chat_completion(
                _turns(text),
                max_tokens=TOKENS,
                temperature=0,
                stream=True,
            ):
                if chunk["choices"][0]["delta"].get("content"):
                    tokens += 1
                    first = first or time.perf_counter()
        return tokens, first

    return ask


def _server(clients: int, which: Chosen) -> Ask:
    """Return llama.cpp's server, without the caches that join different people."""
    package: Any = import_module("xllamacpp")
    settings = package.CommonParams()
    settings.model.path = str(which.path)
    settings.n_parallel = clients
    settings.n_ctx = clients * CONTEXT_TOKENS
    settings.n_gpu_layers = 0
    settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = THREADS
    settings.cache_prompt = settings.cache_idle_slots = False
    settings.cache_ram_mib = 0
    server = package.Server(settings)

    def ask(text: str) -> tuple[int, float]:
        tokens, first = 0, 0.0

        def take(chunk: dict[str, Any]) -> bool:
            nonlocal tokens, first
            choices = chunk.get("choices")
            if choices and choices[0]["delta"].get("content"):
                tokens += 1
                first = first or time.perf_counter()
            return False

        body = {
            "messages": _turns(text),
            "max_tokens": TOKENS,
            "temperature": 0,
            "stream": True,
        }
        server.handle_chat_completions(body, take)
        return tokens, first

    return ask


def _engine(peer: str, clients: int, which: Chosen) -> Engine:
    """Return our engine, one of the three."""
    settings = EngineSettings(
        context_tokens=CONTEXT_TOKENS,
        threads=THREADS,
        sequences=max(clients, 1),
        max_queued=64,
        flash_attention="on" if peer == "own" else "auto",
    )
    if peer == "shipped":
        return EngineProcess(
            Plan(
                model=str(which.path),
                sha256=which.sha256,
                model_id=which.name,
                settings=settings,
            )
        )
    # Not in the other case: it loads the library here.
    from curtilage.inference.engine import LlamaCppEngine  # noqa: PLC0415
    from curtilage.inference.modelfile import verify_model_file  # noqa: PLC0415

    return LlamaCppEngine(
        verify_model_file(which.path, which.sha256),
        model_id=which.name,
        settings=settings,
    )


def _own(peer: str, clients: int, which: Chosen) -> Iterator[str]:
    """Run rounds of ours, on one loop; yield a line for each."""
    engine = _engine(peer, clients, which)
    with asyncio.Runner() as runner:
        runner.run(engine.start())
        runner.run(_once(engine, question()))
        for line in sys.stdin:
            if line.strip() == "pause":
                yield json.dumps(runner.run(_pause(engine, which)))
                continue
            if line.strip() == "decode":
                times = runner.run(_once(engine, question(), DECODED))
                gaps = sorted(after - before for before, after in pairwise(times))
                found = {"gap_s": gaps[len(gaps) // 2], "read_per_s": _read_per_s()}
                yield json.dumps(found)
                continue
            result = Round()
            work = partial(_clients, engine, clients, result, _asked(line))
            _measure(result, lambda: runner.run(work()))  # noqa: B023 - run at once
            yield result.line()
        runner.run(engine.close())


async def _clients(engine: Engine, clients: int, result: Round, asked: Asked) -> None:
    async def client() -> None:
        for _ in range(_each(clients)):
            began = time.perf_counter()
            times = await _once(engine, asked())
            result.tokens += len(times)
            result.first_ms.append(1000 * (times[0] - began))

    await asyncio.gather(*(client() for _ in range(clients)))


async def _once(engine: Engine, text: str, tokens: int = TOKENS) -> list[float]:
    """Ask; return when each token came."""
    request = GenerateRequest(
        messages=tuple(ChatMessage(**turn) for turn in _turns(text)),
        settings=SamplingSettings(max_tokens=tokens, temperature=0),
    )
    async with aclosing(engine.generate(request)) as events:
        return [
            time.perf_counter() async for event in events if isinstance(event, Token)
        ]


def _read_per_s() -> float:
    """Return how many bytes of memory one thread reads per second; the best of five."""
    # Written: zeros that were only reserved would all be one page.
    array = np.ones(READ_BYTES // 8, np.int64)
    best_s = math.inf
    for _ in range(5):
        began = time.perf_counter()
        array.max()
        best_s = min(best_s, time.perf_counter() - began)
    return READ_BYTES / best_s


async def _pause(engine: Engine, which: Chosen) -> dict[str, float]:
    """Return the longest gap of running answers before and while a prompt is read.

    In processor time of this process, too: the gap on a machine that is otherwise idle.
    """
    answers: list[list[tuple[float, float]]] = [[] for _ in range(WRITERS)]
    running = [asyncio.create_task(_write(engine, times)) for times in answers]
    while min(map(len, answers)) < FEW:  # noqa: ASYNC110 - tokens, not an event
        await asyncio.sleep(0.05)
    quiet = time.perf_counter()
    while min(map(len, answers)) < 2 * FEW:  # noqa: ASYNC110 - as above
        await asyncio.sleep(0.05)
    came = time.perf_counter()
    # It may end at once: then no token comes.
    text = _filler(LONG_TOKENS)
    if which.token_bytes == 1:
        text = text[:LONG_TOKENS]
    await _once(engine, text, 1)
    read = time.perf_counter()
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)

    def longest(start: float, end: float, which: int) -> float:
        gaps = [
            after[which] - before[which]
            for times in answers
            for before, after in pairwise(times)
            if start <= after[0] and before[0] <= end
        ]
        return 1000 * max(gaps, default=0.0)

    return {
        "before_ms": longest(quiet, came, 0),
        "while_ms": longest(came, read, 0),
        "before_cpu_ms": longest(quiet, came, 1),
        "while_cpu_ms": longest(came, read, 1),
        "read_ms": 1000 * (read - came),
    }


async def _write(engine: Engine, times: list[tuple[float, float]]) -> None:
    """Write a long answer; record when each token came, in wall and processor time."""
    request = GenerateRequest(
        messages=(ChatMessage(role="user", content=question()),),
        settings=SamplingSettings(max_tokens=1000, temperature=0),
    )
    async with aclosing(engine.generate(request)) as events:
        async for _ in events:
            times.append((time.perf_counter(), time.process_time()))  # noqa: PERF401 - read meanwhile


def main() -> int:
    """Say when ready, then run a round for each line of standard input."""
    peer, clients, which = sys.argv[1], int(sys.argv[2]), chosen(sys.argv[3:])
    if peer in {"own", "plain", "shipped"}:
        _say("ready")
        for line in _own(peer, clients, which):
            _say(line)
        return 0
    ask = _serial(which) if peer == "serial" else _server(clients, which)
    ask(question())
    _say("ready")
    for line in sys.stdin:
        _say(_load(ask, clients, _asked(line)).line())
    return 0


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
