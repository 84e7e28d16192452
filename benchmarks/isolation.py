"""What one person can measure of another by the engine's times: prefixes, neighbours.

*Prefixes.* A person asks something; then two others guess it. One guess begins with the
same text, the other with random text of the same length. Their times to the first token
and between tokens must not tell which is which: idle, and beside running answers. The
positive control is ``llama_cpp.Llama`` as it is, which reuses the prefix of the last
prompt: there the probe must see it.

*Neighbours.* An answer is written while a neighbour asks: with a short or a long
prompt, for a short or a long answer, for one word again and again or for an article.
Two sides are measured: the answer's tokens, inside the engine; and its frames, at the
enclave, padded as released. An observer on the line has only the frames. The person who
asks also reads when its own text comes, and so how busy the engine is, as with any
shared server; that is in the table, too.

Everything is an area under the curve with a 95 % interval: 0.5 is chance. Other work of
the machine hides differences, so only the figures of an idle machine count.
"""

import asyncio
import json
import secrets
import statistics
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from benchmarks.jitter import PERIOD_MS
from benchmarks.report import Table, area_above, busy, host, progress
from curtilage.inference.default_model import DEFAULT_SHA256, find_default_model
from curtilage.inference.process.codec import Plan
from curtilage.inference.process.parent import EngineProcess
from curtilage.inference.protocol import ChatMessage, Engine, GenerateRequest, Token
from curtilage.inference.sampling import SamplingSettings
from curtilage.inference.settings import EngineSettings
from curtilage.wire.keyconfig import KeyConfig, parse_key_configs
from curtilage.wire.media import KEYS_PATH
from curtilage.wire.padding import seal_padded_request
from curtilage_dev.processes import Processes
from curtilage_dev.stack import Stack
from support.enclave_parts import connect, dated, exchange, get, inner_request, post

CONTEXT_TOKENS: Final = 2048
PREFIX_WORDS: Final = 40
"""Of a guess: about 100 tokens, most of its prompt."""
FEW: Final = 6
"""Tokens of an answer to a guess."""
CONTROL_ROUNDS: Final = 30
LOAD: Final = 8
SETTLE_S: Final = 0.2
CHANCE: Final = secrets.SystemRandom()
SYLLABLES: Final = ("ka", "lo", "mi", "ter", "sun", "ra", "vel", "do", "pri", "ash")
COLUMNS: Final = ("probe", "of each", "first, ms", "against", "first token (95 %)")
CLASS_BYTES: Final = 16384


def words(count: int) -> str:
    """Return random words."""
    return " ".join(
        "".join(CHANCE.choices(SYLLABLES, k=CHANCE.randint(1, 3))) for _ in range(count)
    )


@dataclass(slots=True)
class Times:
    """Of several answers: when text began, and the mean gap between tokens, in ms."""

    first: list[float] = field(default_factory=list[float])
    gap: list[float] = field(default_factory=list[float])

    def add(self, began: float, moments: Sequence[float]) -> None:
        """Take the moments of an answer's tokens; one without any is left out."""
        if len(moments) > 1:
            self.first.append(1000 * (moments[0] - began))
            gaps = (b - a for a, b in pairwise(moments))
            self.gap.append(1000 * statistics.fmean(gaps))


Asks = Callable[[str, int], AsyncGenerator[float]]
"""Asks a text for so many tokens; yields when each came."""


def by(engine: Engine) -> Asks:
    """Return a way to ask ours."""

    async def ask(text: str, tokens: int) -> AsyncGenerator[float]:
        request = GenerateRequest(
            messages=(ChatMessage(role="user", content=text),),
            settings=SamplingSettings(max_tokens=tokens, temperature=0),
        )
        async with aclosing(engine.generate(request)) as events:
            async for event in events:
                if isinstance(event, Token):
                    yield time.perf_counter()

    return ask


def reusing() -> Asks:
    """Return a way to ask an engine that reuses the last prompt's prefix."""
    package: Any = import_module("llama_cpp.llama")
    model = package.Llama(
        str(find_default_model()), n_ctx=CONTEXT_TOKENS, n_threads=1, verbose=False
    )

    async def ask(text: str, tokens: int) -> AsyncGenerator[float]:
        for _ in model.create_chat_completion(
            [{"role": "user", "content": text}],
            max_tokens=tokens,
            temperature=0,
            stream=True,
        ):
            yield time.perf_counter()

    return ask


@asynccontextmanager
async def opened(sequences: int) -> AsyncGenerator[Engine]:
    """Load the embedded model into an engine's process with one thread."""
    engine = EngineProcess(
        Plan(
            model=str(find_default_model()),
            sha256=DEFAULT_SHA256,
            model_id="default",
            settings=EngineSettings(
                context_tokens=CONTEXT_TOKENS,
                threads=1,
                sequences=sequences,
                max_queued=64,
            ),
        )
    )
    await engine.start()
    try:
        yield engine
    finally:
        await engine.close()


async def probe(asks: Asks, rounds: int, title: str) -> tuple[Times, Times]:
    """Let somebody ask, then let others guess it right and wrong, in random order."""
    right, wrong = Times(), Times()
    for number in range(rounds):
        if number % 20 == 0:
            progress(f"{title}: {number} of {rounds} guesses")
        secret = f"My record: {words(PREFIX_WORDS)}"
        await _time(asks, f"{secret}. What is it?", Times())
        guesses = [
            (right, f"{secret}. And now?"),
            (wrong, f"My record: {words(PREFIX_WORDS)}. And now?"),
        ]
        # An engine that keeps the last prompt alone shows it with the first of them.
        for times, text in CHANCE.sample(guesses, 2):
            await _time(asks, text, times)
    return right, wrong


async def _time(asks: Asks, text: str, times: Times, tokens: int = FEW) -> None:
    began = time.perf_counter()
    async with aclosing(asks(text, tokens)) as moments:
        found = [moment async for moment in moments]
    times.add(began, found)


@asynccontextmanager
async def running(asks: Asks, answers: int) -> AsyncGenerator[None]:
    """Keep so many long answers running."""

    async def write() -> None:
        while True:
            text = f"Write a long story about {words(6)}."
            await _time(asks, text, Times(), tokens=400)

    tasks = [asyncio.create_task(write()) for _ in range(answers)]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _prefixes(rounds: int) -> list[tuple[str | float, ...]]:
    rows: list[tuple[str | float, ...]] = []
    for answers in (0, LOAD):
        title = "idle" if not answers else f"beside {answers} answers"
        # One place more: the guess waits for no other answer's end.
        async with opened(answers + 1) as engine:
            asks = by(engine)
            async with running(asks, answers):
                rows.append(_row(title, *await probe(asks, rounds, title)))
    title = "CONTROL: an engine that reuses prefixes"
    control = await probe(reusing(), min(rounds, CONTROL_ROUNDS), title)
    return [*rows, _row(title, *control)]


def _row(title: str, right: Times, wrong: Times) -> tuple[str | float, ...]:
    return (
        title,
        str(min(len(right.first), len(wrong.first))),
        statistics.median(right.first),
        statistics.median(wrong.first),
        # A hit would be faster.
        str(area_above(wrong.first, right.first)),
        str(area_above(wrong.gap, right.gap)),
    )


LINES: Final = "Write one hundred lines. Each line says:"
REPETITIVE: Final = f"{LINES} I will not talk in class."
DIVERSE: Final = f"{LINES} what you know of one city."
"""As many tokens each, and answers that do not end before their limit."""
VARIED: Final = "Write an article about a city that you know, with many details."


@dataclass(frozen=True, slots=True)
class Neighbour:
    """What somebody else asks meanwhile."""

    text: Callable[[], str]
    tokens: int


def _varied() -> str:
    return f"{VARIED} {words(3)}"


PAIRS: Final[Mapping[str, tuple[Neighbour, Neighbour]]] = {
    "its prompt: long or short": (
        Neighbour(lambda: f"{VARIED} {words(250)}", 8),
        Neighbour(_varied, 8),
    ),
    "its answer: long or short": (Neighbour(_varied, 60), Neighbour(_varied, 2)),
    "its content: repeated or varied": (
        Neighbour(lambda: f"{REPETITIVE} {words(3)}", 60),
        Neighbour(lambda: f"{DIVERSE} {words(3)}", 60),
    ),
}
OBSERVED_TOKENS: Final = 40
"""So that the answer stays in its first bucket beside each of these."""
LONGER_TOKENS: Final = 160
LONGER: Final = (Neighbour(_varied, 400), Neighbour(_varied, 2))
"""Observed in a longer answer, which may take the next bucket."""


async def _tokens_beside(
    rounds: int,
) -> list[tuple[str | float, ...]]:
    """Measure the tokens of an answer while a neighbour asks, in the engine."""
    rows: list[tuple[str | float, ...]] = []
    async with opened(2) as engine:
        asks = by(engine)
        for title, pair in PAIRS.items():
            seen: tuple[Times, Times] = (Times(), Times())
            for number in range(rounds):
                if number % 20 == 0:
                    progress(f"tokens, {title}: {number} of {rounds}")
                for which in CHANCE.sample((0, 1), 2):
                    other = pair[which]
                    await asyncio.gather(
                        _time(asks, _varied(), seen[which], OBSERVED_TOKENS),
                        _time(asks, other.text(), Times(), other.tokens),
                    )
            one, two = seen
            rows.append(
                (
                    f"tokens, {title}",
                    str(len(one.gap)),
                    "-",
                    str(area_above(one.gap, two.gap)),
                    str(area_above(one.first, two.first)),
                )
            )
    return rows


@dataclass(slots=True)
class Line:
    """Of several answers, as the line and as the person who asked sees them.

    Attributes:
        spread: of the frames' delays, in ms.
        frames: how many.
        text: until the last text came, in ms.
    """

    spread: list[float] = field(default_factory=list[float])
    frames: list[float] = field(default_factory=list[float])
    text: list[float] = field(default_factory=list[float])


def _inner(text: str, tokens: int) -> bytes:
    body = {
        "messages": [{"role": "user", "content": text}],
        "max_tokens": tokens,
        "temperature": 0,
        "stream": True,
    }
    return inner_request(json.dumps(body).encode(), fields=dated(now=datetime.now(UTC)))


async def _observe(address: str, config: KeyConfig, line: Line, tokens: int) -> None:
    """Ask and read an answer to its end."""
    sealed = seal_padded_request(
        config, _inner(_varied(), tokens), at_least=CLASS_BYTES
    )
    reader, writer = await connect(address)
    try:
        began = time.perf_counter()
        writer.write(post(sealed.message))
        await reader.readuntil(b"\r\n\r\n")
        moments: list[float] = []
        said = began
        while size := int(await reader.readuntil(b"\r\n"), 16):
            data = await reader.readexactly(size + 2)
            now = time.perf_counter()
            moments.append(1000 * (now - began) - len(moments) * PERIOD_MS)
            if any(b'"content":"' in each for each in sealed.opener.push(data[:-2])):
                said = now
        line.spread.append(statistics.pstdev(moments))
        line.frames.append(len(moments))
        line.text.append(1000 * (said - began))
    finally:
        writer.transport.abort()


async def _ask(address: str, config: KeyConfig, other: Neighbour) -> None:
    sealed = seal_padded_request(
        config, _inner(other.text(), other.tokens), at_least=CLASS_BYTES
    )
    with suppress(OSError, EOFError):
        await exchange(address, post(sealed.message), timeout_s=600)


async def _frames_beside(address: str, rounds: int) -> list[tuple[str | float, ...]]:
    listed = await exchange(address, get(KEYS_PATH))
    (config, *_) = parse_key_configs(listed.body)
    rows: list[tuple[str | float, ...]] = []
    observed = [(title, pair, OBSERVED_TOKENS, rounds) for title, pair in PAIRS.items()]
    # A difference that every round shows needs fewer of them.
    longer = f"its answer: long or short, beside {LONGER_TOKENS} tokens"
    observed.append((longer, LONGER, LONGER_TOKENS, max(2, rounds // 8)))
    for title, pair, tokens, times in observed:
        seen = (Line(), Line())
        for number in range(times):
            if number % 10 == 0:
                progress(f"frames, {title}: {number} of {times}")
            for which in CHANCE.sample((0, 1), 2):
                await asyncio.gather(
                    _observe(address, config, seen[which], tokens),
                    _ask(address, config, pair[which]),
                )
                await asyncio.sleep(SETTLE_S)
        one, two = seen
        rows += [
            (
                f"frames, {title}",
                str(len(one.spread)),
                str(area_above(one.frames, two.frames)),
                str(area_above(one.spread, two.spread)),
                "-",
            ),
            (
                f"own text, {title}",
                str(len(one.text)),
                "-",
                "-",
                str(area_above(one.text, two.text)),
            ),
        ]
    return rows


def measure_isolation(folder: Path, guesses: int) -> list[Table]:
    """Measure guesses, then a quarter as many answers beside each neighbour.

    With 400 guesses it takes two hours; each part is shown when it is there.
    """
    rounds = max(2, guesses // 4)
    guessed = Table(
        title="A guess of another person's prompt, right or wrong",
        columns=(
            "engine",
            "of each",
            "right, ms",
            "wrong, ms",
            "first token (95 %)",
            "gap (95 %)",
        ),
        rows=tuple(asyncio.run(_prefixes(guesses))),
        note="how often a wrong guess is slower; times to the first token, "
        f"medians; the control must not be chance; {host()}; {busy()}",
    )
    progress(f"\n{guessed.text()}\n")
    tokens = asyncio.run(_tokens_beside(rounds))
    progress(f"\n{_beside(tokens).text()}\n")
    with Processes(folder) as processes:
        stack = Stack(folder=folder, processes=processes)
        stack.start_evidence()
        stack.publish()
        stack.start_enclave()
        frames = asyncio.run(_frames_beside(stack.enclave_address, rounds))
    return [guessed, _beside([*tokens, *frames])]


def _beside(rows: Sequence[tuple[str | float, ...]]) -> Table:
    return Table(
        title="An answer beside a neighbour of one kind or the other",
        columns=(
            "seen, of the neighbour",
            "of each",
            "number of frames (95 %)",
            "gap or spread (95 %)",
            "first token or last text (95 %)",
        ),
        rows=tuple(rows),
        note="tokens: inside the engine; frames: what the line sees, padded as "
        "released; own text: when the person who asked read its last text, which "
        f"any shared server tells; {host()}; {busy()}",
    )
