"""What the local model does where it cannot do all: less of it, or another's turn.

Where somebody else may answer, a model that does not begin is not waited for. Where
nobody else may, of a text that its context does not hold a part is left out, and said:
the passages that say most about the question remain, word for word and in their order.
One pass over the text: to have the model read all of it, part by part, would take
minutes on the machines that this is for (docs/costs.md).
"""

import asyncio
import math
import re
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass, replace
from itertools import count
from typing import Final

from curtilage.client.answer import AnswerEvent, Delta, Finished, reading_note
from curtilage.client.local.model import (
    LocalContextTooLongError,
    LocalModelSlowError,
)
from curtilage.client.query import MESSAGE_TOKENS, Message, Query

GAP: Final = "\n[…]\n"
"""Stands where something was left out; the model is to know."""
PASSAGE_CHARS: Final = 400
LEAST_ROOM_TOKENS: Final = 64
"""What is left of a question in less is none."""
ROUNDS: Final = 4
"""How often to shorten: how long a text is in tokens is known once it was refused."""
_MOST_CHARS_PER_TOKEN: Final = 3.5
_CAREFUL: Final = 0.9
_UNCOUNTED_BYTES: Final = 12
"""No tokenizer takes so many bytes for a token, over a whole text."""
_PROMPTS: Final = frozenset({"system", "developer"})
_PASSAGE: Final = re.compile(
    rf".{{{PASSAGE_CHARS // 4},{PASSAGE_CHARS}}}?(?:[.!?]\s|\n)|.{{1,{PASSAGE_CHARS}}}",
    re.DOTALL,
)
_WORD: Final = re.compile(r"[^\W_]{3,}")
# Multiples of it lie evenly in 0..1, wherever one stops.
_GOLDEN: Final = 0.6180339887


async def begun_within(
    first_s: float, events: AsyncGenerator[AnswerEvent]
) -> AsyncGenerator[AnswerEvent]:
    """Yield an answer that begins in time; what has begun is waited for to its end.

    Args:
        first_s: how long to wait for the first piece.
        events: the local model's answer; stopped where it is late.

    Raises:
        LocalModelSlowError: it did not begin.
        LocalUnavailableError: as ``events``.
    """
    async with aclosing(events):
        try:
            async with asyncio.timeout(first_s):
                first = await anext(events)
        except TimeoutError:
            raise LocalModelSlowError from None
        yield first
        async for event in events:
            yield event


async def shortened_to_fit(
    generate: Callable[[Query], AsyncGenerator[AnswerEvent]],
    query: Query,
    left_out: Callable[[int], None],
) -> AsyncGenerator[AnswerEvent]:
    """Answer a query here; one that does not fit, from the part that does.

    Such an answer begins with a line that says how much was read, and its
    ``finish_reason`` is ``length``: who reads it must not take it for an answer to
    the whole text.

    Args:
        generate: the local model's; it refuses what is too long before the first piece.
        query: what is asked.
        left_out: told before the first piece how many characters were not read.

    Raises:
        LocalContextTooLongError: there is no room for a question.
        LocalUnavailableError: as ``generate``.
    """
    asked, whole_tokens = query, 0
    for rounds in count(1):
        answer = generate(asked)
        if asked is not query:
            answer = _of_a_part(answer, query, asked, whole_tokens)
        try:
            async with aclosing(answer) as events:
                async for event in events:
                    yield event
        except LocalContextTooLongError as problem:
            shorter = shortened(
                asked,
                prompt_tokens=problem.prompt_tokens,
                context_tokens=problem.context_tokens,
            )
            if shorter is None or rounds > ROUNDS:
                raise
            whole_tokens = whole_tokens or problem.prompt_tokens
            asked = shorter
            left_out(_chars(query) - _chars(asked))
        else:
            return


async def _of_a_part(
    answer: AsyncGenerator[AnswerEvent], query: Query, asked: Query, whole_tokens: int
) -> AsyncGenerator[AnswerEvent]:
    """Yield an answer to a part of a query, which says so in its text and its end."""
    async with aclosing(answer) as events:
        said = False
        async for event in events:
            if not said:
                yield _how_much(query, asked, event, whole_tokens)
                said = True
            if isinstance(event, Finished):
                event = replace(event, finish_reason="length")  # noqa: PLW2901
            yield event


def _how_much(
    query: Query, asked: Query, first: AnswerEvent, whole_tokens: int
) -> Delta:
    """Return the line that says how much of a query was read.

    Args:
        query: what was to be read.
        asked: what was.
        first: what comes first of the answer.
        whole_tokens: how long the query was said to be.
    """
    share = _chars(asked) / max(_chars(query), 1)
    whole, read = f"{whole_tokens:,}", first.prompt_tokens
    size = sum(len(each.encoded()) for each in query.messages)
    # Of a text that is too long to be counted the engine names a lower bound, by which
    # nearly all of it would seem to be read.
    if read and whole_tokens * _UNCOUNTED_BYTES <= size:
        whole = f"about {round(read / share):,}"
    if read:
        return reading_note(read=f"{read:,}", whole=whole)
    return reading_note(read=f"about {round(whole_tokens * share):,}", whole=whole)


def shortened(query: Query, *, prompt_tokens: int, context_tokens: int) -> Query | None:
    """Return about as much of a query as fits, or None where no question would.

    Args:
        query: what does not fit.
        prompt_tokens: how long it is.
        context_tokens: how long question and answer may be together.
    """
    room = context_tokens - query.settings.max_tokens
    room -= MESSAGE_TOKENS * len(query.messages)
    if room < LEAST_ROOM_TOKENS:
        return None
    chars = _chars(query)
    per_token = min(chars / max(prompt_tokens, 1), _MOST_CHARS_PER_TOKEN)
    # Less than there is in any case: the estimate that it would fit was wrong.
    budget = int(_CAREFUL * min(room * per_token, chars))
    passages = list(_passages(query))
    kept: set[int] = set()
    for at, passage in sorted(enumerate(passages), key=lambda each: each[1].rank):
        cost = len(passage.text) + len(GAP)
        if cost <= budget:
            budget -= cost
            kept.add(at)
    # A question of which nothing but its surroundings remain is another one.
    if not any(passages[at].asks for at in kept):
        return None
    return replace(query, messages=tuple(_joined(query, passages, kept)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Passage:
    """A piece of a message.

    Attributes:
        message: which message.
        text: the piece, with the space behind it.
        asks: it is a part of what is asked.
        rank: what is kept first has the lowest.
    """

    message: int
    text: str
    asks: bool
    rank: tuple[float, float]


def _passages(query: Query) -> Iterator[_Passage]:
    """Yield every piece of every message in order, which together are all of it."""
    messages = query.messages
    pieces = [_PASSAGE.findall(each.content) for each in messages]
    last = max(
        (at for at, each in enumerate(messages) if each.role == "user"),
        default=len(messages) - 1,
    )
    # What is asked stands before a long text or behind it.
    some = len(pieces[last])
    ends = {at for at in (0, 1, some - 2, some - 1) if 0 <= at < some}
    words = [[_words(text) for text in each] for each in pieces]
    asked = {word for at in ends for word in words[last][at]}
    seen = Counter(word for each in words for some in each for word in some)
    whole = sum(map(len, pieces))
    number = 0
    for message, texts in enumerate(pieces):
        for at, text in enumerate(texts):
            number += 1
            asks = message == last and at in ends
            told = messages[message].role in _PROMPTS
            shared = asked & words[message][at]
            weight = sum(math.log(1 + whole / seen[word]) for word in shared)
            # Where words do not tell, the pieces are taken from everywhere alike.
            yield _Passage(
                message=message,
                text=text,
                asks=asks,
                rank=(
                    -math.inf if asks else -1e6 if told else -weight,
                    number * _GOLDEN % 1.0,
                ),
            )


def _joined(
    query: Query, passages: list[_Passage], kept: set[int]
) -> Iterator[Message]:
    """Yield the messages with what is kept of each, from the first user's turn on."""
    texts = [""] * len(query.messages)
    dropped = [""] * len(query.messages)  # since the last passage that is kept
    for at, passage in enumerate(passages):
        index = passage.message
        if at in kept:
            texts[index] += _in_place_of(dropped[index]) + passage.text
            dropped[index] = ""
        else:
            dropped[index] += passage.text
    begun = False
    for message, text, rest in zip(query.messages, texts, dropped, strict=True):
        # Templates want a user's turn first, and then the others in turn.
        begun = begun or (message.role == "user" and bool(text))
        if begun or (message.role in _PROMPTS and text):
            yield replace(message, content=text + _in_place_of(rest))


def _in_place_of(dropped: str) -> str:
    """Return the mark for what was left out, or that itself where it is no longer."""
    return GAP if len(dropped) > len(GAP) else dropped


def _chars(query: Query) -> int:
    return sum(len(each.content) for each in query.messages)


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text.casefold()))
