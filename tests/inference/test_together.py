# pyright: reportPrivateUsage=false
# Private members are looked at here, to see what is left in them.
"""Several requests at the same time, in one engine."""

import asyncio
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from itertools import pairwise
from pathlib import Path

import pytest
from llama_cpp import llama_cpp as lib

from curtilage.inference import engine as engine_module
from curtilage.inference import native
from curtilage.inference.batch import LEAST_CHUNK, PREFILL_CHUNK
from curtilage.inference.engine import LlamaCppEngine
from curtilage.inference.errors import (
    ContextTooLongError,
    EngineBusyError,
    EngineClosedError,
    EngineFailedError,
    EngineMemoryError,
    NativeError,
)
from curtilage.inference.modelfile import verify_model_file
from curtilage.inference.protocol import (
    CancelToken,
    ChatMessage,
    Done,
    Event,
    GenerateRequest,
    Load,
    Started,
    Token,
)
from curtilage.inference.sampling import SamplingSettings
from curtilage.inference.settings import EngineSettings
from support.byte_model import make_byte_model, sha256_of
from support.fakes import returns
from support.left_over import Canary, uncollected

QUESTIONS = ("hello", "an entirely other text", "x")


def ask(
    text: str = "hello", *, deterministic: bool = False, **settings: object
) -> GenerateRequest:
    chosen = {"max_tokens": 24, "temperature": 0.0} | settings
    return GenerateRequest(
        messages=(ChatMessage(role="user", content=text),),
        settings=SamplingSettings(**chosen),  # type: ignore[arg-type]
        deterministic=deterministic,
    )


ENDLESS = ask(max_tokens=1800)


@asynccontextmanager
async def running(
    path: Path, **settings: float | str
) -> AsyncGenerator[LlamaCppEngine]:
    file = verify_model_file(path, sha256_of(path))
    chosen = {"threads": 1, "sequences": 3} | settings
    engine = LlamaCppEngine(file, model_id="byte", settings=EngineSettings(**chosen))  # type: ignore[arg-type]
    await engine.start()
    try:
        yield engine
    finally:
        await engine.close()


@pytest.fixture
async def together(byte_model: Path) -> AsyncIterator[LlamaCppEngine]:
    async with running(byte_model) as engine:
        yield engine


async def collect(
    engine: LlamaCppEngine, request: GenerateRequest, cancel: CancelToken | None = None
) -> list[Event]:
    async with aclosing(engine.generate(request, cancel=cancel)) as events:
        return [event async for event in events]


def text_of(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, Token))


def finish_of(events: list[Event]) -> str:
    assert isinstance(events[-1], Done)
    return events[-1].finish


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - it belongs to a thread
            await asyncio.sleep(0.002)


@asynccontextmanager
async def endless(engine: LlamaCppEngine, count: int = 1) -> AsyncGenerator[None]:
    """Run so many answers that do not end by themselves."""
    tasks = [asyncio.create_task(collect(engine, ENDLESS)) for _ in range(count)]
    wanted = min(count, engine.info.sequences)
    await until(lambda: engine.load().running == wanted)
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await until(lambda: engine.load().running == 0)


class Watch:
    """Records the decodes of all contexts."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.batches: list[list[native.Row]] = []
        decode = native.Context.decode

        def decodes(
            context: native.Context, rows: list[native.Row], **how: object
        ) -> bool:
            self.batches.append(list(rows))
            return decode(context, rows, **how)  # type: ignore[arg-type]

        monkeypatch.setattr(native.Context, "decode", decodes)

    def together(self) -> int:
        """Return how many sequences one decode had at most."""
        return max(len({row.sequence for row in rows}) for rows in self.batches)


# Answers.


async def test_answers_are_written_at_the_same_time_and_do_not_mix(
    together: LlamaCppEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert together.info.sequences == 3
    # However the costs were measured: one decode for all.
    together._planner._splits = [(1,), (2,), (3,)]
    alone = [text_of(await collect(together, ask(text))) for text in QUESTIONS]
    watch = Watch(monkeypatch)
    answers = await asyncio.gather(*(collect(together, ask(q)) for q in QUESTIONS))
    assert watch.together() == 3
    assert [text_of(each) for each in answers] == alone
    for events in answers:
        assert isinstance(events[0], Started)
        assert finish_of(events) == "length"


async def test_a_short_answer_does_not_wait_for_a_long_one(byte_model: Path) -> None:
    async with running(byte_model, turn_s=3600) as engine, endless(engine):
        assert finish_of(await collect(engine, ask())) == "length"
        assert engine.load().running >= 1


async def test_no_one_waits_while_a_sequence_is_free(together: LlamaCppEngine) -> None:
    await collect(together, ask())
    async with endless(together, 2):
        assert together.load() == Load(running=2, queued=0, max_queued=16)
        assert together.load().wait_s == 0
    async with endless(together, 4):
        await until(lambda: together.load().queued == 1)
        assert together.load().wait_s > 0


async def test_a_long_prompt_does_not_stop_the_others(
    together: LlamaCppEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with endless(together):
        watch = Watch(monkeypatch)
        await collect(together, ask("x" * 900, max_tokens=1))
        newcomer = [
            max((row.sequence for row in rows), default=0) > 0
            and sum(row.sequence > 0 for row in rows)
            for rows in watch.batches
        ]
    chunks = [at for at, count in enumerate(newcomer) if count]
    assert len(chunks) > 900 // PREFILL_CHUNK
    assert all(len(rows) <= PREFILL_CHUNK for rows in watch.batches)
    for before, after in pairwise(chunks):
        # A token of the running answer is between two pieces of the prompt.
        assert any(
            watch.batches[at][0].sequence == 0 for at in range(before + 1, after + 1)
        )


async def test_a_slow_machine_reads_less_of_a_prompt_at_a_time(
    together: LlamaCppEngine,
) -> None:
    sizes: list[int] = []
    for took_s in (0.7, 0.7, 1.3, 60, 0.01, 0.01, 0.01):
        together._learn(PREFILL_CHUNK, took_s)
        sizes.append(together._planner.chunk)
    # In 1.3 s: 34 tokens; whole eights of them.
    assert sizes == [64, 64, 32, LEAST_CHUNK, 32, 64, PREFILL_CHUNK]


async def test_more_than_fit_take_turns(byte_model: Path) -> None:
    async with running(byte_model, sequences=2, turn_s=0) as engine:
        alone = text_of(await collect(engine, ask()))
        async with endless(engine, 4):
            await until(lambda: engine.load().queued == 2)
            for _ in range(3):
                assert text_of(await collect(engine, ask())) == alone


@pytest.mark.parametrize("kv_type", ["f16", "q8_0"])
async def test_a_long_request_makes_the_context_larger_and_disturbs_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kv_type: str
) -> None:
    monkeypatch.setattr(native, "FIRST_TOKENS", 256)
    made: list[tuple[int, int]] = []
    make = lib.llama_init_from_model

    def watched(
        model: lib.llama_model_p, params: lib.llama_context_params
    ) -> lib.llama_context_p | None:
        made.append((params.n_ctx, params.n_seq_max))
        return make(model, params)  # type: ignore[no-any-return]

    path = make_byte_model(tmp_path / "wide.gguf", head_width=32)
    asked = (ask(max_tokens=120), ask("x" * 1000, max_tokens=120))
    # A sum may be another in its last bit, by the number of cells: no draw is close.
    async with running(path, sequences=2, kv_type=kv_type) as engine:
        assert engine.info.sequences == 2
        alone = [text_of(await collect(engine, each)) for each in asked]
        monkeypatch.setattr(lib, "llama_init_from_model", watched)
        short, long = asked
        first = asyncio.create_task(collect(engine, short))
        await until(lambda: first.done() or engine.load().running == 1)
        second = await collect(engine, long)
        assert [text_of(await first), text_of(second)] == alone
        # For both, if the first had not ended yet; and small again after them.
        assert made[-1] == (256, 1)
        assert {2048, 2 * 2048} & {tokens for tokens, _ in made}


@pytest.mark.parametrize("sequences", [1, 2])
async def test_a_short_question_does_not_wait_for_long_prompts_to_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sequences: int
) -> None:
    # Two that are decoded together have other last bits: no draw is close.
    path = make_byte_model(tmp_path / "wide.gguf", head_width=32)
    asked = [ask(f"{at} is a number. " * 100, max_tokens=40) for at in range(4)]
    async with running(path, sequences=sequences, turn_s=0) as engine:
        alone = [text_of(await collect(engine, each)) for each in asked]
        decode = native.Context.decode

        def slower(
            context: native.Context, rows: list[native.Row], **how: object
        ) -> bool:
            # So that what comes meanwhile comes while prompts are read.
            threading.Event().wait(0.005)
            return decode(context, rows, **how)  # type: ignore[arg-type]

        monkeypatch.setattr(native.Context, "decode", slower)
        longs = [asyncio.create_task(collect(engine, each)) for each in asked]
        await until(lambda: engine.load().running == sequences)
        for _ in range(3):
            assert finish_of(await collect(engine, ask(max_tokens=4))) == "length"
            assert not any(each.done() for each in longs)
        # In the middle of it they gave way, and went on as if they had not.
        assert [text_of(await each) for each in longs] == alone


# Alone.


async def test_a_deterministic_answer_is_decoded_alone_and_repeats(
    together: LlamaCppEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = ask("x" * 300, deterministic=True, temperature=1.0, seed=5, logprobs=True)
    first = await collect(together, request)
    for _ in range(3):
        watch = Watch(monkeypatch)
        others = [
            asyncio.create_task(collect(together, ask(str(at)))) for at in range(5)
        ]
        assert await collect(together, request) == first
        await asyncio.gather(*others)
        # No other position is as high: from its first chunk to its last token.
        own = [
            at
            for at, rows in enumerate(watch.batches)
            if any(row.position >= 120 for row in rows)
        ]
        batches = [watch.batches[at] for at in own]
        assert [len(rows) for rows in batches[:2]] == [PREFILL_CHUNK, PREFILL_CHUNK]
        assert all({row.sequence for row in rows} == {0} for rows in batches)
        assert own == list(range(own[0], own[0] + len(own)))


async def test_a_deterministic_answer_gives_way_to_others(byte_model: Path) -> None:
    async with running(byte_model, turn_s=0) as engine:
        long = asyncio.create_task(
            collect(engine, ask(max_tokens=1800, deterministic=True))
        )
        await until(lambda: engine.load().running == 1)
        assert finish_of(await collect(engine, ask())) == "length"
        assert not long.done()
        long.cancel()


@pytest.mark.parametrize("kept", [engine_module.KEPT_CONTEXTS, 0], ids=["kept", "lost"])
@pytest.mark.parametrize("sequences", [1, 3])
async def test_a_deterministic_answer_repeats_though_it_gave_way(
    byte_model: Path, monkeypatch: pytest.MonkeyPatch, kept: float, sequences: int
) -> None:
    asked = ask(
        "x" * 300,
        deterministic=True,
        temperature=1.0,
        seed=5,
        logprobs=True,
        max_tokens=200,
        stop=("never",),
    )
    monkeypatch.setattr(engine_module, "KEPT_CONTEXTS", kept)
    async with running(byte_model, sequences=sequences, turn_s=0) as engine:
        alone = await collect(engine, asked)
        paused: list[bool] = []
        give_way = engine._planner.give_way

        def gives_way(ticket: int, *, saved: bool) -> int:
            if engine._planner._running[ticket].alone and (
                engine._planner._running[ticket].position
            ):
                paused.append(saved)
            return give_way(ticket, saved=saved)

        monkeypatch.setattr(engine._planner, "give_way", gives_way)
        answer = asyncio.create_task(collect(engine, asked))
        await until(lambda: engine.load().running == 1)
        while not answer.done():
            await collect(engine, ask(max_tokens=4))
        assert await answer == alone
    assert set(paused) == {bool(kept)}


# Endings.


async def test_cancelling_one_leaves_the_others(together: LlamaCppEngine) -> None:
    alone = text_of(await collect(together, ask(max_tokens=300)))
    token = CancelToken()
    left = asyncio.create_task(collect(together, ENDLESS, token))
    await until(lambda: together.load().running == 1)
    other = asyncio.create_task(collect(together, ask(max_tokens=300)))
    await until(lambda: together.load().running == 2)
    token.cancel()
    assert finish_of(await left) == "cancelled"
    assert text_of(await other) == alone


async def test_refusals_do_not_touch_the_others(together: LlamaCppEngine) -> None:
    alone = text_of(await collect(together, ask(max_tokens=300)))
    other = asyncio.create_task(collect(together, ask(max_tokens=300)))
    await until(lambda: together.load().running == 1)
    for _ in range(3):
        with pytest.raises(ContextTooLongError):
            await collect(together, ask("x" * 3000))
    assert text_of(await other) == alone


async def test_a_failed_decode_ends_all_that_run_and_none_that_waits(
    together: LlamaCppEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = await collect(together, ask())
    tasks = [asyncio.create_task(collect(together, ENDLESS)) for _ in range(3)]
    await until(lambda: together.load().running == 3)
    waiting = asyncio.create_task(collect(together, ask()))
    await until(lambda: together.load().queued == 1)
    failed = threading.Event()
    decode = lib.llama_decode

    def fails_once(handle: lib.llama_context_p, batch: lib.llama_batch) -> int:
        if failed.is_set():
            return int(decode(handle, batch))
        failed.set()
        return -3

    with monkeypatch.context() as patch:
        patch.setattr(lib, "llama_decode", fails_once)
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(each, NativeError) for each in results)
        assert len({id(each) for each in results}) == 3
        assert await waiting == before
    assert await collect(together, ask()) == before


async def test_closing_ends_every_stream(byte_model: Path) -> None:
    async with running(byte_model) as engine:
        tasks = [asyncio.create_task(collect(engine, ENDLESS)) for _ in range(5)]
        await until(lambda: engine.load() == Load(running=3, queued=2, max_queued=16))
        await engine.close()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(each, EngineClosedError) for each in results)


# Memory.


async def test_a_newcomer_without_memory_is_refused_and_the_others_go_on(
    together: LlamaCppEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with endless(together):
        monkeypatch.setattr(lib, "llama_init_from_model", returns(None))
        with pytest.raises(EngineBusyError):
            await collect(together, ask())
        await until(lambda: together.load().running == 1)
        monkeypatch.undo()
        assert finish_of(await collect(together, ask())) == "length"


@pytest.mark.parametrize(
    "problem", [EngineMemoryError(64), NativeError("llama_state_seq_get_data", 0)]
)
async def test_without_memory_or_erasing_one_is_answered_at_a_time(
    byte_model: Path, monkeypatch: pytest.MonkeyPatch, problem: EngineFailedError
) -> None:
    def fails(*_arguments: object) -> None:
        raise problem

    name = "open" if isinstance(problem, EngineMemoryError) else "erase"
    with monkeypatch.context() as patch:
        patch.setattr(native.Context, name, fails)
        async with running(byte_model) as engine:
            assert engine.info.sequences == 1
            patch.undo()
            async with endless(engine, 2):
                assert engine.load().running == 1
            assert finish_of(await collect(engine, ask())) == "length"


# Forgetting.


async def test_a_sequence_is_erased_before_its_end_is_reported(
    together: LlamaCppEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    erased: list[int] = []
    cleared: list[int] = []
    erase, clear = native.Context.erase, native.Context.clear

    def erases(context: native.Context, sequence: int) -> None:
        assert context.used(sequence)
        erase(context, sequence)
        erased.append(context.used(sequence))

    def clears(context: native.Context) -> None:
        clear(context)
        cleared.append(context._room)

    monkeypatch.setattr(native.Context, "erase", erases)
    monkeypatch.setattr(native.Context, "clear", clears)
    async with endless(together):
        async for event in together.generate(ask()):
            assert not isinstance(event, Done) or erased == [0]
        assert not cleared
    # The last one takes the whole context with it, and all that was made for others.
    assert (erased, cleared) == ([0], [1])


async def test_the_librarys_copies_are_overwritten_before_an_end_is_reported(
    together: LlamaCppEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[int] = []
    flush = native.Context.flush

    def flushes(context: native.Context, sequence: int) -> None:
        flush(context, sequence)
        flushed.append(sequence)

    monkeypatch.setattr(native.Context, "flush", flushes)
    async with endless(together):
        with pytest.raises(ContextTooLongError):
            await collect(together, ask(max_tokens=99_999))
        assert not flushed, "nothing was read"
        async for event in together.generate(ask()):
            assert not isinstance(event, Done) or len(flushed) == 1


async def test_no_logits_stay_after_a_step(
    together: LlamaCppEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    left: list[bool] = []
    plan = together._planner.plan
    contexts: set[native.Context] = set()
    decode = native.Context.decode

    def decodes(context: native.Context, rows: list[native.Row], **how: object) -> bool:
        contexts.add(context)
        return decode(context, rows, **how)  # type: ignore[arg-type]

    def looks() -> object:
        left.extend(bool(each._with_logits) for each in contexts)
        return plan()

    monkeypatch.setattr(native.Context, "decode", decodes)
    monkeypatch.setattr(together._planner, "plan", looks)
    await asyncio.gather(*(collect(together, ask(each)) for each in QUESTIONS))
    assert left
    assert not any(left)


async def test_the_context_is_renewed_under_answers_that_go_on(
    together: LlamaCppEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = text_of(await collect(together, ask(max_tokens=400)))
    renewed = threading.Event()
    renew = native.Context.renew

    def renews(context: native.Context) -> None:
        renew(context)
        renewed.set()

    monkeypatch.setattr(native.Context, "renew", renews)
    monkeypatch.setattr(engine_module, "RENEW_S", 0.0)
    long = asyncio.create_task(collect(together, ask(max_tokens=400)))
    await until(lambda: together.load().running == 1)
    await collect(together, ask())
    assert text_of(await long) == alone
    assert renewed.is_set()


@pytest.mark.parametrize("end", ["done", "left", "cancelled", "too long"])
async def test_no_question_is_left_while_others_go_on(
    together: LlamaCppEngine, end: str
) -> None:
    canary = Canary()
    token = CancelToken()

    async def question() -> None:
        asked = ask(
            f"x {canary.text(end)} y",
            max_tokens=8 if end == "done" else 1500 if end != "too long" else 9999,
        )
        async with aclosing(together.generate(asked, cancel=token)) as events:
            async for event in events:
                if end == "cancelled":
                    token.cancel()
                if end == "left" and isinstance(event, Token):
                    return

    async with endless(together):
        with uncollected():
            if end == "too long":
                with pytest.raises(ContextTooLongError):
                    await question()
            else:
                await question()
            await until(lambda: together._planner.running == 1)
            # Its step may go on; after the next one nothing refers to it.
            used = [0]

            def advanced() -> bool:
                used.append(together._planner._work)
                return used[-1] > used[1] + 16

            await until(advanced)
            assert canary.holders() == {}
