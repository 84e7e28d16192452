import asyncio
import math
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import pytest

from curtilage.inference.errors import (
    EngineBusyError,
    EngineClosedError,
    EngineFailedError,
)
from curtilage.inference.protocol import (
    Called,
    CancelToken,
    ChatMessage,
    Done,
    Engine,
    Event,
    GenerateRequest,
    Started,
    Token,
    Tool,
    ToolCall,
    TopLogprob,
)
from curtilage.inference.sampling import SamplingSettings
from curtilage_dev.scripted_engine import Script, ScriptedEngine


def ask(**settings: int) -> GenerateRequest:
    return GenerateRequest(
        messages=(ChatMessage(role="user", content="hi"),),
        settings=SamplingSettings(**settings),  # type: ignore[arg-type]
    )


async def collect(engine: Engine, request: GenerateRequest) -> list[Event]:
    async with aclosing(engine.generate(request)) as events:
        return [event async for event in events]


async def started(*scripts: Script, max_queued: int = 16) -> ScriptedEngine:
    engine = ScriptedEngine(*scripts, max_queued=max_queued)
    await engine.start()
    return engine


async def test_script_is_played() -> None:
    engine = await started(Script(pieces=("a", "b")))
    kinds = [type(event) for event in await collect(engine, ask())]
    assert kinds == [Started, Token, Token, Done]
    assert len(engine.requests) == 1


async def test_scripts_follow_each_other_and_the_last_repeats() -> None:
    engine = await started(Script(pieces=("a",)), Script(pieces=("b",)))
    texts = [(await collect(engine, ask()))[1] for _ in range(3)]
    assert [t.text for t in texts if isinstance(t, Token)] == ["a", "b", "b"]


async def test_length_is_limited() -> None:
    events = await collect(await started(), ask(max_tokens=2))
    assert isinstance(events[-1], Done)
    assert (events[-1].finish, events[-1].usage.completion_tokens) == ("length", 2)


@pytest.mark.parametrize("after", [0, 1, 2])
async def test_fault_comes_after_its_tokens(after: int) -> None:
    fault = EngineFailedError("scripted")
    engine = await started(Script(pieces=("a", "b"), fault=fault, fault_after=after))
    events = engine.generate(ask())
    seen = [type(await anext(events)) for _ in range(after + 1)]
    assert seen == [Started] + [Token] * after
    with pytest.raises(EngineFailedError):
        await anext(events)


async def test_start_fault_is_raised() -> None:
    engine = ScriptedEngine(start_fault=EngineFailedError("scripted"))
    with pytest.raises(EngineFailedError):
        await engine.start()
    with pytest.raises(EngineClosedError):
        _ = engine.info


async def test_queue_is_bounded_and_closing_ends_streams() -> None:
    engine = await started(Script(delay_s=0.01), max_queued=1)
    tasks = [asyncio.create_task(collect(engine, ask())) for _ in range(2)]
    await asyncio.sleep(0.005)
    assert (engine.load().running, engine.load().queued) == (1, 1)
    with pytest.raises(EngineBusyError):
        await collect(engine, ask())
    await engine.close()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(result, EngineClosedError) for result in results)
    with pytest.raises(EngineClosedError):
        await collect(engine, ask())


async def test_as_many_are_played_at_a_time_as_there_are_sequences() -> None:
    engine = ScriptedEngine(
        Script(pieces=["a"] * 9, delay_s=3600), sequences=2, turn_s=40
    )
    await engine.start()
    assert engine.info.sequences == 2
    loads: list[tuple[int, int, float]] = []
    tasks: list[asyncio.Task[list[Event]]] = []
    for _ in range(4):
        load = engine.load()
        loads.append((load.running, load.queued, load.wait_s))
        tasks.append(asyncio.create_task(collect(engine, ask())))
        await asyncio.sleep(0)
    assert loads == [(0, 0, 0), (1, 0, 0), (2, 0, 20), (2, 1, 40)]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert (engine.load().running, engine.load().queued) == (0, 0)


async def test_cancel_and_closing_are_counted() -> None:
    engine = await started()
    assert engine.info.model_id == "scripted"
    token = CancelToken()
    token.cancel()
    events = [event async for event in engine.generate(ask(), cancel=token)]
    assert [type(event) for event in events] == [Done]
    stream = engine.generate(ask(logprobs=1))
    await anext(stream)
    await stream.aclose()
    assert engine.cancelled == 2
    assert engine.load().running == 0


async def test_turns_let_a_short_answer_pass_a_long_one() -> None:
    engine = ScriptedEngine(
        Script(pieces=["a"] * 1000, delay_s=0.01), Script(), turn_s=0.01
    )
    await engine.start()
    long = asyncio.create_task(collect(engine, ask()))
    await asyncio.sleep(0)
    assert engine.load().wait_s == 0.01
    assert len(await collect(engine, ask())) == 6
    assert not long.done()
    long.cancel()
    await asyncio.gather(long, return_exceptions=True)
    assert engine.load().running == 0


async def test_a_request_cancelled_between_turns_gives_up_its_turn() -> None:
    engine = ScriptedEngine(Script(pieces=["a"] * 1000, delay_s=0.01), turn_s=0)
    await engine.start()
    tasks = [asyncio.create_task(collect(engine, ask())) for _ in range(3)]
    await asyncio.sleep(0.05)
    for task in tasks:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert (engine.load().running, engine.load().queued) == (0, 0)


CALL = ToolCall(id="call_1", name="find", arguments='{"what": "it"}')


def ask_tools(**fields: object) -> GenerateRequest:
    asked: dict[str, Any] = {"tools": (Tool(name="find"),)} | fields
    return GenerateRequest(messages=(ChatMessage(role="user", content="hi"),), **asked)


async def test_calls_are_played_and_end_the_answer() -> None:
    second = replace(CALL, id="call_2")
    events = await collect(
        await started(Script(pieces=("a", CALL, second))), ask_tools()
    )
    assert [type(event) for event in events[2:-1]] == [Token, Called, Token, Called]
    called = [event for event in events if isinstance(event, Called)]
    assert called == [Called(index=0, call=CALL), Called(index=1, call=second)]
    assert isinstance(events[-1], Done)
    assert (events[-1].finish, events[-1].usage.completion_tokens) == ("tool_calls", 3)


@pytest.mark.parametrize(
    "fields",
    [{"tools": ()}, {"tools": (Tool(name="other"),)}, {"tool_choice": "none"}],
    ids=["no tool", "another", "none wanted"],
)
async def test_a_call_that_was_not_offered_is_not_played(
    fields: dict[str, Any],
) -> None:
    engine = await started(Script(pieces=(CALL,)))
    with pytest.raises(ValueError, match="does not offer"):
        await collect(engine, ask_tools(**fields))


async def test_likeliest_tokens_are_shown_if_asked_for() -> None:
    engine = await started(Script(pieces=("é",), probability=0.25, second="b"))
    for top, likeliest in ((0, []), (1, [b"b"]), (2, [b"b", "é".encode()])):
        events = await collect(engine, ask(logprobs=True, top_logprobs=top))
        token = events[1]
        assert isinstance(token, Token)
        assert token.data == "é".encode()
        assert [one.data for one in token.top] == likeliest
        if top:
            assert token.top[0] == TopLogprob(data=b"b", logprob=math.log(0.75))
    plain = (await collect(engine, ask()))[1]
    assert isinstance(plain, Token)
    assert (plain.data, plain.top) == (b"", ())


async def test_a_prompt_gives_way_while_it_is_read() -> None:
    engine = ScriptedEngine(
        Script(read_s=3600, pieces=("a",)), Script(pieces=("b",)), turn_s=0
    )
    await engine.start()
    long = asyncio.create_task(collect(engine, ask()))
    await asyncio.sleep(0)
    async with asyncio.timeout(5):
        assert [type(each) for each in await collect(engine, ask())][-1] is Done
    long.cancel()
    await asyncio.gather(long, return_exceptions=True)
    assert (engine.load().running, engine.load().queued) == (0, 0)


async def test_a_prompt_is_read_for_as_long_as_it_is() -> None:
    engine = await started(Script(read_s=0.02, pieces=("a",)))
    loop = asyncio.get_running_loop()
    began = loop.time()
    assert len(await collect(engine, ask())) == 3
    # Two characters.
    assert loop.time() - began >= 0.04
