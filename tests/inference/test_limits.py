# pyright: reportPrivateUsage=false
"""What one request takes of the engine is bounded, and only that request ends."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from curtilage.inference import calls, engine, native
from curtilage.inference.decoding import Answer
from curtilage.inference.engine import LlamaCppEngine
from curtilage.inference.errors import EngineBusyError, RequestError
from curtilage.inference.modelfile import verify_model_file
from curtilage.inference.protocol import (
    CancelToken,
    ChatMessage,
    Done,
    Event,
    GenerateRequest,
    JsonSchema,
    Tool,
)
from curtilage.inference.sampling import SamplingSettings
from curtilage.inference.settings import EngineSettings
from curtilage.inference.shape import (
    CONVERSION_BYTES,
    GRAMMARS_BYTES,
    WORKING_BYTES,
)
from curtilage.inference.structured import AnswerForm, form_of
from support.byte_model import sha256_of
from support.fakes import returns

MEASURED_BYTES = 62 << 20
"""Of a loaded model without grammars: docs/costs.md."""
LONG_TEXT = JsonSchema(schema='{"type": "string", "minLength": 1900}')


def ask(max_tokens: int = 1400, **fields: object) -> GenerateRequest:
    return GenerateRequest(
        messages=(ChatMessage(role="user", content="hello"),),
        settings=SamplingSettings(max_tokens=max_tokens, temperature=0),
        **fields,  # type: ignore[arg-type]
    )


SHORT = ask(5)


@pytest.fixture
async def running(byte_model: Path) -> AsyncIterator[LlamaCppEngine]:
    file = verify_model_file(byte_model, sha256_of(byte_model))
    settings = EngineSettings(threads=1, sequences=2)
    found = LlamaCppEngine(file, model_id="byte", settings=settings)
    await found.start()
    yield found
    await found.close()


async def collect(
    of: LlamaCppEngine, request: GenerateRequest, cancel: CancelToken | None = None
) -> list[Event]:
    async with (
        asyncio.timeout(30),
        aclosing(of.generate(request, cancel=cancel)) as events,
    ):
        return [event async for event in events]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - it belongs to a thread
            await asyncio.sleep(0.002)


@asynccontextmanager
async def writing(
    of: LlamaCppEngine, request: GenerateRequest
) -> AsyncGenerator["asyncio.Task[list[Event]]"]:
    """Have a request answered meanwhile."""
    cancel = CancelToken()
    task = asyncio.create_task(collect(of, request, cancel))
    await until(lambda: of.load().running == 1)
    try:
        yield task
    finally:
        cancel.cancel()
        await task


def finish_of(events: list[Event]) -> str:
    assert isinstance(events[-1], Done)
    return events[-1].finish


def test_what_is_planned_for_the_rest_is_enough() -> None:
    assert MEASURED_BYTES + GRAMMARS_BYTES + CONVERSION_BYTES <= WORKING_BYTES


async def test_grammars_of_all_requests_together_are_bounded(
    running: LlamaCppEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = ask(response_format=LONG_TEXT)
    held = form_of(wanted).held_bytes
    monkeypatch.setattr(engine, "GRAMMARS_BYTES", held * 3 // 2)
    async with writing(running, wanted):
        with pytest.raises(EngineBusyError):
            await collect(running, wanted)
        assert finish_of(await collect(running, SHORT)) == "length"
    # Its place is free again.
    short = replace(SHORT, response_format=LONG_TEXT)
    assert finish_of(await collect(running, short)) == "length"


def test_a_grammar_is_work_that_others_wait_for() -> None:
    def chars(form: AnswerForm) -> int:
        job = engine._Job(
            request=SHORT, form=form, token=CancelToken(), deliver=lambda _: True
        )
        return job.chars

    assert chars(AnswerForm()) == SHORT.chars
    assert chars(AnswerForm(grammar="x" * 640)) == SHORT.chars + 40


async def test_an_answer_that_takes_too_long_to_draw_ends_alone(
    running: LlamaCppEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with writing(running, ask()) as other:
        monkeypatch.setattr(engine, "DRAWS_S", 0.0)
        monkeypatch.setattr(engine, "DRAW_S", 0.0)
        with pytest.raises(RequestError, match="takes too long"):
            await collect(running, ask(response_format=LONG_TEXT))
        # One without a grammar has nothing that could take long.
        assert finish_of(await collect(running, SHORT)) == "length"
        assert not other.done()


async def test_each_token_adds_to_the_time_of_an_answer(
    running: LlamaCppEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "DRAWS_S", 0.0)
    monkeypatch.setattr(engine, "DRAW_S", 10.0)
    assert await collect(running, replace(SHORT, response_format=LONG_TEXT))


async def test_it_is_seen_while_the_library_draws(
    running: LlamaCppEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    draw, make = native.Sampler.draw, native.Sampler.__init__

    def draws(sampler: native.Sampler, context: object, row: int) -> int:
        seen.append(running.draws)
        return draw(sampler, context, row)  # type: ignore[arg-type]

    def makes(sampler: native.Sampler, how: native.Draw, model: native.Model) -> None:
        seen.append(running.draws)
        make(sampler, how, model)

    monkeypatch.setattr(native.Sampler, "draw", draws)
    monkeypatch.setattr(native.Sampler, "__init__", makes)
    await collect(running, SHORT)
    assert len(seen) == 6
    assert seen == sorted(set(seen))
    assert all(each % 2 for each in seen)
    await until(lambda: running.load().running == 0)
    assert running.draws % 2 == 0


async def test_numbers_that_are_none_end_their_answer_alone(
    running: LlamaCppEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with writing(running, ask()) as other:
        about = Answer._about

        def broken(answer: Answer, context: native.Context, *rest: object) -> object:
            numbers = np.full(running_size(context), np.nan, np.float32)
            monkeypatch.setattr(context, "logits", returns(numbers))
            try:
                return about(answer, context, *rest)  # type: ignore[arg-type]
            finally:
                monkeypatch.delattr(context, "logits")

        monkeypatch.setattr(Answer, "_about", broken)
        asked = replace(SHORT, settings=replace(SHORT.settings, logprobs=True))
        with pytest.raises(RequestError, match="not numbers"):
            await collect(running, asked)
        assert not other.done()


def running_size(context: native.Context) -> int:
    return context._vocabulary_size


async def test_a_call_that_is_too_long_ends_its_answer_alone(
    running: LlamaCppEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = {"properties": {"a": {"type": "string", "minLength": 50}}, "required": ["a"]}
    tool = Tool(name="find", parameters=json.dumps(text))
    async with writing(running, ask()) as other:
        monkeypatch.setattr(calls, "MAX_ARGUMENT_CHARS", 40)
        with pytest.raises(RequestError, match="too many characters"):
            await collect(running, ask(200, tools=(tool,), tool_choice="required"))
        assert not other.done()
