"""The operator's figures: coarse, listed, and of no single request."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

import pytest

from curtilage.enclave_server.counters import (
    EXACT,
    CountedModel,
    Figures,
    rounded,
)
from curtilage.enclave_server.errors import ModelError
from curtilage.enclave_server.ohttp.chat import (
    ChatCompletionRequest,
    ChatLimits,
)
from curtilage.enclave_server.ohttp.chat import (
    parse_chat_completion_request as parse,
)
from curtilage.enclave_server.ohttp.openai_answers import (
    Answer,
    Begun,
    Call,
    Ending,
    Piece,
)
from curtilage.enclave_server.telemetry import Counters, Event
from support.enclave_parts import chat_body
from support.fakes import returns
from support.ledger import figures_problems, read_ledger

ROWS = read_ledger()["figures"]
CHAT: ChatCompletionRequest = parse(chat_body(), ChatLimits())
SECRET = "xyzzy-canary"


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Answers:
    """Gives parts of an answer, each after some seconds; errors are raised."""

    def __init__(
        self, clock: Clock, parts: Sequence[tuple[float, Answer | Exception]]
    ) -> None:
        self._clock = clock
        self._parts = parts

    async def answer(self, chat: ChatCompletionRequest) -> AsyncGenerator[Answer]:
        assert chat is CHAT
        for after_s, part in self._parts:
            self._clock.now += after_s
            if isinstance(part, Exception):
                raise part
            yield part


UP, DOWN = 0.0, 0.9999
"""Draws by which every rest is rounded up, or down."""


def figures_of(clock: Clock, draw: float = UP) -> Figures:
    return Figures(Counters(), clock=clock, draw=lambda: draw)


def samples(figures: Figures) -> dict[str, int]:
    pairs = (
        line.rsplit(" ", 1)
        for line in figures.text.splitlines()
        if not line.startswith("#")
    )
    return {name.removeprefix("curtilage_enclave_"): int(n) for name, n in pairs}


async def answered(
    clock: Clock, figures: Figures, *parts: tuple[float, Answer | Exception]
) -> None:
    model = CountedModel(Answers(clock, parts), figures)
    async with aclosing(model.answer(CHAT)) as answers:
        async for _ in answers:
            pass


def end(*, prompt: int = 300, completion: int = 3) -> Ending:
    return Ending(
        finish_reason="stop", prompt_tokens=prompt, completion_tokens=completion
    )


def test_every_figure_is_listed_and_no_other() -> None:
    assert figures_problems(ROWS, figures_of(Clock()).text) == []


@pytest.mark.parametrize(
    "line",
    [
        'curtilage_enclave_events_total{event="asked"} 0',
        'curtilage_enclave_tokens_total{client="10.0.0.1"} 1000',
        "curtilage_enclave_tokens_total 1000",
        "curtilage_enclave_first_token_seconds_sum 0.4",
        "python_info 1",
    ],
)
def test_an_unlisted_figure_is_found(line: str) -> None:
    text = figures_of(Clock()).text
    assert figures_problems(ROWS, f"{text}{line}\n") == [f"not listed: {line}"]


def test_a_figure_finer_than_its_step_is_found() -> None:
    text = figures_of(Clock()).text
    finer = text.replace('{kind="read"} 0', '{kind="read"} 312')
    assert len(figures_problems(ROWS, finer)) == 1
    without = text.replace('curtilage_enclave_events_total{event="busy"} 0\n', "")
    (missing,) = figures_problems(ROWS, without)
    assert missing.startswith("missing: ")


def test_an_event_is_exact_only_if_the_ledger_says_so() -> None:
    exact = {
        event
        for row in ROWS
        if row["name"].endswith("events_total") and row["step"] == 1
        for event in row.get("labels", {})["event"]
    }
    assert exact == {event.value for event in EXACT}


@pytest.mark.parametrize("event", list(Event))
def test_what_only_the_seal_knows_is_counted_in_tens(event: Event) -> None:
    """One dummy, or one question, in a quiet minute is not told apart."""
    for draw, shown in ((UP, 10), (DOWN, 0)):
        counters, clock = Counters(), Clock()
        figures = Figures(counters, clock=clock, draw=returns(draw))
        counters.count(event)
        figures.update()
        expected = 1 if event in EXACT else shown
        assert samples(figures)[f'events_total{{event="{event.value}"}}'] == expected


async def test_nothing_changes_between_updates() -> None:
    clock = Clock()
    figures = figures_of(clock)
    before = figures.text
    await answered(
        clock, figures, (1, Begun(prompt_tokens=300)), (1, Piece(text="a")), (1, end())
    )
    assert figures.text == before
    figures.update()
    assert figures.text != before


async def test_tokens_are_counted_in_steps_without_a_remainder() -> None:
    """Questions of the operator's own cannot fill a step up to measure another's."""
    clock = Clock()
    figures = figures_of(clock, DOWN)
    for _ in range(9):
        await answered(
            clock,
            figures,
            (0, Begun(prompt_tokens=900)),
            (0, end(prompt=900, completion=999)),
        )
        figures.update()
    shown = samples(figures)
    assert shown['tokens_total{kind="read"}'] == 0
    assert shown['tokens_total{kind="written"}'] == 0


async def test_tokens_are_those_of_pieces_and_end() -> None:
    """A piece is a token of ours; of another server's, the end has the whole count."""
    clock = Clock()
    figures = figures_of(clock, DOWN)
    call = Call(index=0, name="f", arguments="{}")
    for _ in range(500):
        # Cut off: what was written until then is counted.
        pieces = (0, Piece(text="a")), (0, Piece(text="")), (0, Piece(text="b"))
        with pytest.raises(ModelError):
            await answered(
                clock,
                figures,
                (0, Begun(prompt_tokens=8)),
                *pieces,
                (0, Piece(text="", call=call)),
                (0, ModelError("the engine failed")),
            )
        await answered(
            clock, figures, (0, Begun()), pieces[0], (0, end(prompt=2, completion=9))
        )
    figures.update()
    shown = samples(figures)
    assert shown['tokens_total{kind="read"}'] == 500 * (8 + 2)
    assert shown['tokens_total{kind="written"}'] == 5000
    assert 500 * (3 + 9) - 5000 < 5000
    assert shown["tokens_per_second"] == 5000 // 600
    for _ in range(10):
        figures.update()
    assert samples(figures)["tokens_per_second"] == 0


async def test_waits_are_counted_by_class() -> None:
    clock = Clock()
    figures = figures_of(clock, DOWN)
    for queue_s, reading_s in ((0.25, 0.1), (3.0, 3.0), (100.0, 0.0)):
        for _ in range(10):
            await answered(
                clock,
                figures,
                (queue_s, Begun(prompt_tokens=1)),
                (reading_s, Piece(text="a")),
                (1, Piece(text="b")),
                (1, end()),
            )
    figures.update()
    shown = samples(figures)
    edges = ("0.25", "1", "4", "16", "64", "+Inf")
    for name, classes in (
        ("queue", (10, 10, 20, 20, 20, 30)),
        ("first_token", (0, 10, 10, 20, 20, 30)),
    ):
        found = [shown[f'{name}_seconds_bucket{{le="{edge}"}}'] for edge in edges]
        assert tuple(found) == classes
        assert shown[f"{name}_seconds_count"] == 30


async def test_requests_are_the_mean_of_ten_minutes() -> None:
    clock = Clock()
    figures = figures_of(clock, DOWN)
    parts = (200, Begun()), (400, Piece(text="a")), (0, end())
    first, second = (
        CountedModel(Answers(clock, parts), figures).answer(CHAT) for _ in range(2)
    )
    async with aclosing(first), aclosing(second):
        # The first waits for 200 s, and runs while the second waits.
        await anext(first)
        await anext(second)
        figures.update()
        shown = samples(figures)
        # 400 s in the queue, 200 s in progress: neither is 600.
        assert shown['requests{state="queued"}'] == 0
        assert shown['requests{state="running"}'] == 0
        clock.now += 600
        figures.update()
        assert samples(figures)['requests{state="running"}'] == 2
    # Both were closed before their ends.
    clock.now += 600
    for _ in range(10):
        figures.update()
    assert samples(figures)['requests{state="running"}'] == 0


async def test_one_question_shows_in_all_figures_or_in_none() -> None:
    """With a draw for each figure it would show in one of them quite often."""
    shown = 0
    for draw in range(100):
        clock, counters = Clock(), Counters()
        draws = iter([draw / 100, *([0.0] * 100)])
        figures = Figures(counters, clock=clock, draw=draws.__next__)
        counters.count(Event.ANSWERED)
        await answered(
            clock,
            figures,
            (5, Begun(prompt_tokens=300)),
            (15, Piece(text="a")),
            (40, end(completion=200)),
        )
        figures.update()
        shown += any(samples(figures).values())
    assert shown == 10


async def test_no_content_gets_in() -> None:
    clock = Clock()
    figures = figures_of(clock)
    call = Call(index=0, name=SECRET, arguments=f'{{"a": "{SECRET}"}}')
    await answered(
        clock,
        figures,
        (0, Begun(prompt_tokens=3)),
        (0, Piece(text=SECRET, logprob=-0.5, top=((SECRET, -0.5),))),
        (0, Piece(text="", call=call)),
        (0, end()),
    )
    figures.update()
    assert SECRET not in figures.text
    assert SECRET not in repr(vars(figures))
    assert figures_problems(ROWS, figures.text) == []


@pytest.mark.parametrize("rest", [0, 1, 250, 999])
def test_rounding_by_chance_is_right_on_average(rest: int) -> None:
    shown = [rounded(2000 + rest, 1000, draw / 1000) for draw in range(1000)]
    assert set(shown) <= {2000, 3000}
    assert sum(shown) == 1000 * (2000 + rest)
