"""After an answer, however it ended, no object of the engine holds the question.

The collector of cycles is off: see ``support.left_over``. What is in plain
memory, ``tests/privacy/test_memory.py`` looks for.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, suppress
from pathlib import Path

import pytest
from llama_cpp import llama_cpp as lib

from curtilage.inference import decoding
from curtilage.inference.engine import LlamaCppEngine
from curtilage.inference.errors import (
    ContextTooLongError,
    InferenceError,
)
from curtilage.inference.modelfile import verify_model_file
from curtilage.inference.protocol import (
    CancelToken,
    ChatMessage,
    Event,
    GenerateRequest,
    Started,
)
from curtilage.inference.sampling import SamplingSettings
from curtilage.inference.settings import EngineSettings
from support.byte_model import sha256_of
from support.fakes import returns
from support.left_over import Canary, uncollected

TOKEN = CancelToken()
"""A caller's token for all its requests: it outlives every question."""


def request(canary: Canary, name: str, *, max_tokens: int = 8) -> GenerateRequest:
    word = canary.text(name)
    settings = SamplingSettings(max_tokens=max_tokens, temperature=0, stop=(word,))
    turns = (ChatMessage(role="user", content=f"x {word} y"),)
    return GenerateRequest(messages=turns, settings=settings)


async def read(events: AsyncGenerator[Event]) -> None:
    async with aclosing(events):
        async for _ in events:
            pass


async def whole(engine: LlamaCppEngine, canary: Canary) -> None:
    await read(engine.generate(request(canary, "whole"), cancel=TOKEN))


async def left(engine: LlamaCppEngine, canary: Canary) -> None:
    async with aclosing(
        engine.generate(request(canary, "left", max_tokens=1800), cancel=TOKEN)
    ) as events:
        async for event in events:
            if not isinstance(event, Started):
                return


async def cancelled(engine: LlamaCppEngine, canary: Canary) -> None:
    token = CancelToken()
    asked = request(canary, "cancelled", max_tokens=1800)
    async with aclosing(engine.generate(asked, cancel=token)) as events:
        async for _ in events:
            token.cancel()


async def withdrawn(engine: LlamaCppEngine, canary: Canary) -> None:
    """Cancel one in the queue, while another is being answered."""
    token = CancelToken()
    first = engine.generate(request(canary, "first", max_tokens=1800))
    async with aclosing(first):
        await anext(first)
        asked = engine.generate(request(canary, "withdrawn"), cancel=token)
        token.cancel()
        await read(asked)


async def too_long(engine: LlamaCppEngine, canary: Canary) -> None:
    with pytest.raises(ContextTooLongError):
        await read(engine.generate(request(canary, "too-long", max_tokens=9999)))


async def failed(engine: LlamaCppEngine, canary: Canary) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lib, "llama_decode", returns(-3))
        with suppress(InferenceError):
            await read(engine.generate(request(canary, "failed")))


async def unforeseen(engine: LlamaCppEngine, canary: Canary) -> None:
    def broken(*_arguments: object, **_more: object) -> list[int]:
        raise RuntimeError("x")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decoding, "build_prompt", broken)
        with suppress(InferenceError):
            await read(engine.generate(request(canary, "unforeseen")))


ENDS = [whole, left, cancelled, withdrawn, too_long, failed, unforeseen]


@pytest.mark.parametrize("end", ENDS, ids=lambda end: end.__name__)
async def test_no_question_is_left_after_its_answer(
    byte_model: Path, end: Callable[[LlamaCppEngine, Canary], Awaitable[None]]
) -> None:
    canary = Canary()
    file = verify_model_file(byte_model, sha256_of(byte_model))
    engine = LlamaCppEngine(file, model_id="byte", settings=EngineSettings(threads=1))
    await engine.start()
    try:
        with uncollected():
            await end(engine, canary)
            # The engine's thread takes its next step some time after the last event.
            while engine.load().running:  # noqa: ASYNC110 - it belongs to a thread
                await asyncio.sleep(0.001)
            assert canary.holders() == {}
    finally:
        await engine.close()
