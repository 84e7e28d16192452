"""What an observer such as the relay learns from sizes and gaps of answers.

``record`` requests every answer and records when how many bytes arrived;
``features`` describes such a trace to ``leak_model``, which learns kinds from them;
``LengthAttack`` is the published one on token lengths (Weiss and others, "What
Was Your Prompt?", USENIX Security 2024).
"""

import asyncio
import json
import math
import os
import re
import sys
from bisect import bisect_left
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import accumulate
from pathlib import Path
from time import monotonic

import numpy as np
from numpy.typing import NDArray

from curtilage.wire import bhttp
from curtilage.wire.cursor import Cursor
from curtilage.wire.keyconfig import KeyConfig, parse_key_configs
from curtilage.wire.media import GATEWAY_PATH, KEYS_PATH
from curtilage.wire.padding import seal_padded_request
from curtilage.wire.shaping import TransportParameters
from curtilage.wire.varint import read_varint
from curtilage_dev.processes import Process
from support.enclave_parts import connect, exchange, get, inner_request, post
from support.leak_texts import KINDS, Played, answers

Floats = NDArray[np.float64]
CONFIDENCE = 0.95
SIZE_BINS = (64, 226, 228, 230, 232, 234, 238, 300, 400, 529, 530)
GAP_BINS_MS = (0.2, 1.0, 2.0, 4.0, 6.0, 10.0)
TESTS = Path(__file__).resolve().parents[1]
OURS = (str(TESTS), str(TESTS.with_name("dev")))
TEXT = re.compile(rb'"delta":\{"content":"[^"]')
DONE = re.compile(rb"data: \[DONE\]")
AGAIN = 5
ORDER = 7
BEGINNINGS = 5
NONCE_BYTES = 16
NGRAMS = (2, 3)
MOST_NGRAMS = 150
"""Longer alphabets are counted in pairs only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """One answer as the relay sees it.

    Attributes:
        kind: of the answer; the observer does not see it.
        sizes: bytes of each sealed chunk, in order.
        moments: when it was there, in seconds from the question on.
        tokens: true lengths of the tokens; the observer does not see them.
        first_s: when the user sees the first text, in seconds.
        last_s: when the user knows that the answer is complete.
    """

    kind: int
    sizes: tuple[int, ...]
    moments: tuple[float, ...]
    tokens: tuple[int, ...]
    first_s: float
    last_s: float

    @property
    def gaps(self) -> Floats:
        """Milliseconds from each arrival to the next."""
        return np.diff(np.asarray(self.moments)) * 1000

    @property
    def octets(self) -> int:
        """All of it."""
        return sum(self.sizes)


@asynccontextmanager
async def leak_enclave(
    parameters: TransportParameters, pause_ms: float, folder: Path
) -> AsyncGenerator[str]:
    """Run the enclave with the answers; give its address."""
    numbers = (
        parameters.frame_bytes,
        parameters.period_ms,
        parameters.first_bucket,
        parameters.buckets,
    )
    command = [sys.executable, "-m", "support.leak_enclave", parameters.shape.value]
    command += [*map(str, numbers), str(pause_ms)]
    paths = os.pathsep.join(filter(None, (*OURS, os.environ.get("PYTHONPATH"))))
    process = Process("leak", command, folder=folder, environment={"PYTHONPATH": paths})
    try:
        ready = await asyncio.to_thread(process.wait_ready)
        yield str(ready["listen"])
    finally:
        await asyncio.to_thread(process.stop)


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """Where questions are sent, and observed.

    Attributes:
        address: host and port.
        keys: path of the key list.
        gateway: path that takes questions.
    """

    address: str
    keys: str = KEYS_PATH
    gateway: str = GATEWAY_PATH


async def record(way: Way, *, at_once: int, frames: int | None = None) -> list[Trace]:
    """Ask for every answer; note what arrives.

    They are asked for in an order that has nothing to do with their kinds: what
    the machine does meanwhile, for some answers in a row, must not look like one.

    Args:
        way: where to.
        at_once: how many answers run at the same time.
        frames: of the one bucket that is looked at; what a busy machine made
            longer is asked for again.
    """
    listed = await exchange(way.address, get(way.keys))
    (config, *_) = parse_key_configs(listed.body)
    turns = asyncio.Semaphore(at_once)
    played = answers()
    order = np.random.default_rng(ORDER).permutation(len(played)).tolist()

    async def one(number: int) -> Trace:
        async with turns:
            trace = await _observe(way, config, number, played[number])
            for _ in range(AGAIN):
                if frames in {None, len(trace.sizes)}:
                    break
                trace = await _observe(way, config, number, played[number])
            return trace

    return await asyncio.gather(*(one(number) for number in order))


async def _observe(way: Way, config: KeyConfig, number: int, played: Played) -> Trace:
    now = datetime.now(UTC).strftime("%a, %d %b %Y %H:%M:%S GMT").encode()
    asked = {
        "messages": [{"role": "user", "content": str(number)}],
        "max_tokens": 4000,
        "stream": True,
    }
    inner = inner_request(
        json.dumps(asked).encode(),
        fields=((b"content-type", b"application/json"), (b"date", now)),
    )
    sealed = seal_padded_request(config, inner)
    reader, writer = await connect(way.address)
    try:
        fields = ("Incremental: ?1",)
        writer.write(post(sealed.message, path=way.gateway, fields=fields))
        arrivals = await _arrivals(reader)
    finally:
        writer.close()
    opened = [b"".join(sealed.opener.push(piece)) for _, piece in arrivals]
    opened[-1] += sealed.opener.finish()
    moments = tuple(moment for moment, _ in arrivals)
    chunks = _sealed_chunks(arrivals)
    return Trace(
        kind=played.kind,
        sizes=tuple(size for _, size in chunks),
        moments=tuple(moment for moment, _ in chunks),
        tokens=tuple(len(token.encode()) for token in played.tokens),
        first_s=moments[_first(opened, TEXT)],
        last_s=moments[_first(opened, DONE)],
    )


def _first(opened: Sequence[bytes], pattern: re.Pattern[bytes]) -> int:
    """Return with which piece a pattern in the content is complete."""
    decoder = bhttp.ResponseDecoder()
    said = b""
    for number, piece in enumerate(opened):
        for event in decoder.push(piece):
            said += event.data if isinstance(event, bhttp.ContentChunk) else b""
        if pattern.search(said):
            return number
    raise AssertionError("the answer is not what was asked for")


async def _arrivals(reader: asyncio.StreamReader) -> list[tuple[float, bytes]]:
    """Return each transfer chunk and when it was whole."""
    began = monotonic()
    head = await reader.readuntil(b"\r\n\r\n")
    assert b" 200 " in head
    arrivals: list[tuple[float, bytes]] = []
    while size := int(await reader.readuntil(b"\r\n"), 16):
        piece = await reader.readexactly(size + 2)
        arrivals.append((monotonic() - began, piece[:-2]))
    return arrivals


def _sealed_chunks(arrivals: Sequence[tuple[float, bytes]]) -> list[tuple[float, int]]:
    """Return when each sealed chunk was whole, and its bytes.

    Their lengths are in the clear, so a network that joins them hides nothing.
    """
    cursor = Cursor(b"".join(piece for _, piece in arrivals))
    ends = list(accumulate(len(piece) for _, piece in arrivals))
    cursor.take(NONCE_BYTES)
    chunks: list[tuple[float, int]] = []
    while cursor.remaining:
        before = cursor.remaining
        length = read_varint(cursor)
        cursor.take(length or cursor.remaining)
        at = bisect_left(ends, ends[-1] - cursor.remaining)
        chunks.append((arrivals[at][0], before - cursor.remaining))
    return chunks


def features(trace: Trace) -> Floats:
    """Describe a trace by its sizes, its gaps, their n-grams and its pace."""
    sizes = np.asarray(trace.sizes, dtype=np.float64)
    gaps = trace.gaps
    return np.concatenate(
        [
            [len(sizes), sizes.sum()],
            _summary(sizes),
            _summary(gaps),
            _pace(trace),
            _ngrams(np.digitize(sizes, SIZE_BINS), len(SIZE_BINS) + 1),
            _ngrams(np.digitize(gaps, np.quantile(gaps, (0.2, 0.4, 0.6, 0.8))), 5),
            _ngrams(np.digitize(gaps, GAP_BINS_MS), len(GAP_BINS_MS) + 1),
        ]
    )


def _pace(trace: Trace) -> Floats:
    """Return when it began, and how far the rest is from a constant pace.

    A delay that is the same for every frame of an answer is in no gap but in the
    first one, that from the question on. The pace itself is public.
    """
    moments = np.asarray(trace.moments) * 1000
    pace = np.round(np.median(trace.gaps))
    apart = moments - pace * np.arange(len(moments))
    early, late = np.array_split(apart, 2)
    rest = late.min() - early.min()
    return np.concatenate(
        [[moments[0], rest], _summary(apart), _summary(apart - apart.min())]
    )


def _summary(values: Floats) -> Floats:
    marks = np.quantile(values, (0.02, 0.1, 0.25, 0.5, 0.75, 0.9, 0.98))
    return np.concatenate(
        [[values.mean(), values.std(), values.min(), values.max()], marks]
    )


def _ngrams(symbols: NDArray[np.int64], alphabet: int) -> Floats:
    """Return how often each sequence of two or three symbols occurs."""
    counted: list[Floats] = []
    for length in NGRAMS:
        if alphabet**length > MOST_NGRAMS:
            continue
        windows = np.lib.stride_tricks.sliding_window_view(symbols, length)
        codes = windows @ (alphabet ** np.arange(length))
        counts = np.bincount(codes, minlength=alphabet**length)
        counted.append(counts / max(1, len(codes)))
    return np.concatenate(counted)


def chance(count: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Return the interval in which the share of right guesses lies by chance.

    It has two sides: too few right guesses also reveal something.

    Args:
        count: how often is guessed.
        confidence: how often guessing lies in it, at least.
    """
    share = 1 / len(KINDS)
    tail = (1 - confidence) / 2
    terms = [
        math.comb(count, right) * share**right * (1 - share) ** (count - right)
        for right in range(count + 1)
    ]
    sums = list(accumulate(terms))
    low = next(right for right, below in enumerate(sums) if below > tail)
    high = next(right for right, below in enumerate(sums) if below >= 1 - tail)
    return low / count, high / count


class LengthAttack:
    """Guesses token lengths from sizes, and measures the result.

    The guess is the size of the data received: one byte more means one byte more
    in a token. The beginning of the tokens is unknown, so several places are tried.

    Args:
        traces: each gives one coefficient; where all guesses of one are the
            same, it is 0.
    """

    def __init__(self, traces: Sequence[Trace]) -> None:
        self._pairs: list[tuple[Floats, Floats]] = []
        for trace in traces:
            count = min(len(trace.sizes) - BEGINNINGS + 1, len(trace.tokens))
            sizes = np.asarray(trace.sizes, dtype=np.float64)
            windows = np.lib.stride_tricks.sliding_window_view(sizes, count)
            true = np.asarray(trace.tokens[:count], dtype=np.float64)
            self._pairs.append((_standard(windows[:BEGINNINGS]), _standard(true)))

    def correlation(self, shuffled: np.random.Generator | None = None) -> float:
        """Return how well guessed and true lengths go together, over all traces.

        Args:
            shuffled: puts the true lengths into another order first.
        """
        found: list[float] = []
        for guesses, true in self._pairs:
            order = true if shuffled is None else shuffled.permutation(true)
            found.append(float((guesses @ order).max()) / len(true))
        return float(np.mean(found))


def _standard(values: Floats) -> Floats:
    """Return values with mean 0 and deviation 1; all 0 where they are the same."""
    centred = values - values.mean(axis=-1, keepdims=True)
    deviation = centred.std(axis=-1, keepdims=True)
    standard: Floats = centred / np.where(deviation > 0, deviation, 1.0)
    return standard
