import asyncio
import re
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from curtilage.client.chat.answer import (
    AnswerEvent,
    Delta,
    Finished,
    without_notes,
)
from curtilage.client.chat.openai_chat import turns_of
from curtilage.client.chat.query import Message, Query, Settings
from curtilage.client.local.model import (
    LocalContextTooLongError,
    LocalModelFailedError,
    LocalModelSlowError,
)
from curtilage.client.local.shorten import (
    GAP,
    LEAST_ROOM_TOKENS,
    Parts,
    begun_within,
    shortened,
    shortened_to_fit,
)

ASKED = "Which remedy did the patient get against her headache?"
FACT = "On the ward the patient got sumatriptan, a remedy against headache."
OCTETS = 16  # of a token, at most: ``decoding.MAX_BYTES_PER_TOKEN``
DULL = "Nothing of note happened on that day, and everybody went home at five. "


def conversation(*texts: str, max_tokens: int = 100, prompt: str = "") -> Query:
    system = (Message(role="system", content=prompt),) if prompt else ()
    turns = (
        Message(role=("user", "assistant")[at % 2], content=text)
        for at, text in enumerate(texts)
    )
    settings = Settings(max_tokens=max_tokens)
    return Query(messages=(*system, *turns), settings=settings)


def long(words: str, *, prompt: str = "") -> Query:
    return conversation(ASKED + "\n\n" + DULL * 200 + words + DULL * 200, prompt=prompt)


class Model:
    """Holds so many characters of a question, each a token, and answers with it.

    One that is absurdly long is refused before it is counted (``decoding``).
    """

    def __init__(self, context_tokens: int, *, says: bool = True) -> None:
        self.context_tokens = context_tokens
        self.says = says  # with its first piece how many tokens it read
        self.asked: list[Query] = []

    async def generate(self, query: Query) -> AsyncGenerator[AnswerEvent]:
        self.asked.append(query)
        size = sum(len(each.content) for each in query.messages)
        if size + query.settings.max_tokens > self.context_tokens:
            counted = size <= OCTETS * self.context_tokens
            raise LocalContextTooLongError(
                prompt_tokens=size if counted else size // OCTETS,
                max_tokens=query.settings.max_tokens,
                context_tokens=self.context_tokens,
            )
        yield Delta(text=query.messages[-1].content, prompt_tokens=self.says * size)
        yield Finished(finish_reason="stop", prompt_tokens=size, completion_tokens=1)


def fitted(
    generate: Callable[[Query], AsyncGenerator[AnswerEvent]],
    query: Query,
    left_out: Callable[[int], None],
) -> AsyncGenerator[AnswerEvent]:
    """Return the answer to a query, or to the part of it that fits."""
    return shortened_to_fit(generate(query), lambda: Parts(generate, query, left_out))


async def events_of(model: Model, query: Query) -> tuple[list[AnswerEvent], list[int]]:
    left: list[int] = []
    answer = fitted(model.generate, query, left.append)
    async with aclosing(answer) as events:
        return [event async for event in events], left


async def answer_to(model: Model, query: Query) -> tuple[str, list[int]]:
    """Return what the model wrote; the client's line about it is no part of that."""
    events, left = await events_of(model, query)
    pieces = [each for each in events if isinstance(each, Delta) and not each.note]
    return "".join(each.text for each in pieces), left


async def test_a_fitting_query_is_not_changed() -> None:
    query = conversation(ASKED)
    model = Model(4096)
    assert await answer_to(model, query) == (ASKED, [])
    assert model.asked == [query]


async def test_of_a_long_text_what_the_question_is_about_is_read() -> None:
    query = long(FACT, prompt="Be brief.")
    text, left = await answer_to(model := Model(3000), query)
    assert text.startswith(ASKED)
    assert FACT in text
    assert GAP in text
    assert model.asked[-1].messages[0].content == "Be brief."
    assert left == [
        sum(len(each.content) for each in query.messages)
        - sum(len(each.content) for each in model.asked[-1].messages)
    ]


async def test_a_text_that_was_not_counted_is_shortened_again() -> None:
    text, left = await answer_to(model := Model(1500), long(FACT))
    assert FACT in text
    assert len(model.asked) > 2
    assert left == sorted(left)


async def test_an_answer_to_a_part_begins_with_how_much_was_read() -> None:
    query = long(FACT)
    events, _ = await events_of(model := Model(3000), query)
    read, whole = (
        sum(len(each.content) for each in asked.messages)
        for asked in (model.asked[-1], query)
    )
    assert read < 3000 < whole
    first, *_, last = events
    said = f"[read {read:,} of {whole:,} tokens]\n\n"
    assert first == Delta(text=said, note=True)
    assert isinstance(last, Finished)
    assert (last.finish_reason, last.prompt_tokens) == ("length", read)


async def test_an_answer_to_all_of_it_has_no_such_line() -> None:
    events, _ = await events_of(Model(4096), conversation(ASKED))
    assert not any(isinstance(each, Delta) and each.note for each in events)
    assert isinstance(events[-1], Finished)
    assert events[-1].finish_reason == "stop"


@pytest.mark.parametrize(
    ("model", "said"),
    [
        # A text that is absurdly long is not counted: of it a lower bound is known.
        (Model(1500), r"\[read [0-9,]+ of about (2[6-9],[0-9]{3}) tokens\]\n\n"),
        (
            Model(3000, says=False),
            r"\[read about 2,[0-9]{3} of 28,[0-9]{3} tokens\]\n\n",
        ),
    ],
    ids=["not counted", "does not say"],
)
async def test_an_estimate_is_marked_as_one(model: Model, said: str) -> None:
    events, _ = await events_of(model, long(FACT))
    assert isinstance(events[0], Delta)
    assert re.fullmatch(said, events[0].text), events[0].text


async def test_an_answer_without_a_word_says_it_as_well() -> None:
    async def silent(query: Query) -> AsyncGenerator[AnswerEvent]:
        async for event in Model(3000).generate(query):
            if isinstance(event, Finished):
                yield event

    answer = fitted(silent, long(FACT), lambda _: None)
    first, last = [event async for event in answer]
    assert isinstance(first, Delta)
    assert first.note
    assert isinstance(last, Finished)


@pytest.mark.parametrize("says", [True, False])
async def test_the_line_is_taken_off_where_the_answer_comes_back(says: bool) -> None:
    events, _ = await events_of(Model(3000, says=says), long(FACT))
    assert isinstance(events[0], Delta)
    for text in (f"{events[0].text}Yes.", f"  {events[0].text.strip()} Yes."):
        assert without_notes(text) == "Yes."
        assert turns_of([{"role": "user", "content": text}])[0][0].content == text
    for text in ("Yes.", "[read it] Yes.", "Yes. [read 2 of 3 tokens]"):
        assert without_notes(text) == text


async def test_the_end_of_a_conversation_remains_before_its_beginning() -> None:
    turns = [f"Turn {at}. {DULL}" for at in range(60)]
    text, _ = await answer_to(model := Model(2000), conversation(*turns, "Go on."))
    asked = model.asked[-1].messages
    assert text == asked[-1].content == "Go on."
    assert "Turn 59." in asked[-2].content
    assert asked[0].role == "user"
    assert all(first.role != then.role for first, then in pairwise(asked))


@pytest.mark.parametrize("room", [LEAST_ROOM_TOKENS, 20])
async def test_without_room_for_a_question_none_is_asked(room: int) -> None:
    model = Model(100 + room)
    with pytest.raises(LocalContextTooLongError):
        await answer_to(model, long(""))


async def test_a_model_that_never_holds_it_is_asked_a_few_times_only() -> None:
    model = Model(3000)

    async def never(query: Query) -> AsyncGenerator[AnswerEvent]:
        model.asked.append(query)
        for _ in ():
            yield Delta(text="")
        # Always by a little: each time a little less is tried.
        raise LocalContextTooLongError(
            prompt_tokens=3001, max_tokens=100, context_tokens=3000
        )

    with pytest.raises(LocalContextTooLongError):
        async for _ in fitted(never, long(""), lambda _: None):
            pass
    assert len(model.asked) <= 6


@given(
    st.lists(st.text(st.sampled_from("ab .!?\n"), min_size=1, max_size=2000)),
    st.integers(0, 5000),
    st.integers(1, 9000),
)
# Turns that are shorter than the mark that says that they were left out.
@example(texts=["?"] * 9, context=154, prompt=1)
@example(texts=["a. b. " * 200, "?", "a", "b.", "?"] * 3, context=300, prompt=900)
def test_nothing_is_said_that_was_not_there(
    texts: list[str], context: int, prompt: int
) -> None:
    query = conversation(*texts, "What is a?", max_tokens=10)
    less = shortened(query, prompt_tokens=prompt, context_tokens=context)
    if less is None:
        return
    whole = "\n".join(each.content for each in query.messages)
    for each in less.messages:
        for piece in each.content.split(GAP):
            assert piece in whole
    size = sum(len(each.content) for each in less.messages)
    assert size <= sum(len(each.content) for each in query.messages)
    assert less.settings == query.settings


def test_a_turn_that_is_shorter_than_its_mark_is_kept() -> None:
    query = conversation("Hi.", DULL * 90, ASKED, max_tokens=10)
    less = shortened(query, prompt_tokens=2000, context_tokens=200)
    assert less is not None
    assert [each.content for each in less.messages][::2] == ["Hi.", ASKED]
    assert GAP in less.messages[1].content


# Waiting.


async def answering(*pieces: str, go: asyncio.Event) -> AsyncGenerator[AnswerEvent]:
    for piece in pieces:
        yield Delta(text=piece)
    await go.wait()
    yield Finished(finish_reason="stop", prompt_tokens=1, completion_tokens=1)


async def test_an_answer_that_does_not_begin_is_given_up_and_stopped() -> None:
    source = answering(go=asyncio.Event())
    with pytest.raises(LocalModelSlowError):
        await anext(begun_within(0.01, source))
    with pytest.raises(StopAsyncIteration):
        await anext(source)


async def test_an_answer_that_began_is_waited_for() -> None:
    go = asyncio.Event()
    events = begun_within(0.01, answering("a", go=go))
    assert await anext(events) == Delta(text="a")
    last = asyncio.ensure_future(anext(events))
    await asyncio.sleep(0.05)
    assert not last.done()
    go.set()
    assert isinstance(await last, Finished)


async def test_a_failure_is_reported_unchanged() -> None:
    async def failing() -> AsyncGenerator[AnswerEvent]:
        for _ in ():
            yield Delta(text="")
        raise LocalModelFailedError("it failed")

    with pytest.raises(LocalModelFailedError, match="it failed"):
        await anext(begun_within(60, failing()))
