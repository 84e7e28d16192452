"""Fallbacks of the local model: time limits, and shortening of long texts.

If another tier may answer, a model that does not begin in time is stopped. If not, a
text that exceeds the context is shortened, and the answer says so: the passages most
relevant to the question are kept, verbatim and in their order. The text is read once:
letting the model read all of it, part by part, would take minutes on the machines that
this is for (docs/costs.md).
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

from curtilage.client.chat.answer import AnswerEvent, Finished, reading_note
from curtilage.client.chat.query import MESSAGE_TOKENS, PROMPTS, Message, Query
from curtilage.client.local.model import (
    LocalContextTooLongError,
    LocalModelSlowError,
)

GAP: Final = "\n[…]\n"
"""Marks omitted text, for the model."""
PASSAGE_CHARS: Final = 400
LEAST_ROOM_TOKENS: Final = 64
"""With less room, the rest of a question is no longer the same question."""
ROUNDS: Final = 4
"""Limit of attempts: the length in tokens is only known after a refusal."""
_MOST_CHARS_PER_TOKEN: Final = 3.5
_CAREFUL: Final = 0.9
_UNCOUNTED_BYTES: Final = 12
"""No tokenizer needs this many bytes for each token of a whole text."""
_PASSAGE: Final = re.compile(
    rf".{{{PASSAGE_CHARS // 4},{PASSAGE_CHARS}}}?(?:[.!?]\s|\n)|.{{1,{PASSAGE_CHARS}}}",
    re.DOTALL,
)
_WORD: Final = re.compile(r"[^\W_]{3,}")
# Its multiples, modulo 1, are evenly distributed after any number of them.
_GOLDEN: Final = 0.6180339887


async def begun_within(
    first_s: float, events: AsyncGenerator[AnswerEvent]
) -> AsyncGenerator[AnswerEvent]:
    """Yield an answer that begins in time; once begun, it is completed.

    Args:
        first_s: how long to wait for the first piece.
        events: the local model's answer; stopped if it is late.

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
    answer: AsyncGenerator[AnswerEvent], parts: "Callable[[], Parts]"
) -> AsyncGenerator[AnswerEvent]:
    """Yield an answer to a query; if it is too long, to the part that fits.

    Args:
        answer: the local model's; refuses an overlong query before the first piece.
        parts: called if it does; returns the answers to parts of the query.

    Raises:
        LocalContextTooLongError: there is no room for a question.
        LocalUnavailableError: as the answers.
    """
    shorter: Parts | None = None
    for rounds in count(1):
        try:
            async with aclosing(answer) as events:
                async for event in events:
                    yield event
        except LocalContextTooLongError as problem:
            shorter = shorter or parts()
            if rounds > ROUNDS or not shorter.shorten(problem):
                raise
            answer = shorter.answer()
        else:
            return


class Parts:
    """Answers to ever shorter parts of a query, until one fits.

    Such an answer begins with a line that states how much was read, and its
    ``finish_reason`` is ``length``, so that it is not mistaken for an answer to the
    whole text.

    Args:
        generate: the local model's.
        query: the question.
        left_out: called before the first piece with the number of omitted characters.
    """

    def __init__(
        self,
        generate: Callable[[Query], AsyncGenerator[AnswerEvent]],
        query: Query,
        left_out: Callable[[int], None],
    ) -> None:
        self._generate = generate
        self._query = self._asked = query
        self._whole_tokens = 0
        self._left_out = left_out

    def shorten(self, problem: LocalContextTooLongError) -> bool:
        """Take a shorter part; return whether there is room for a question."""
        shorter = shortened(
            self._asked,
            prompt_tokens=problem.prompt_tokens,
            context_tokens=problem.context_tokens,
        )
        if shorter is None:
            return False
        self._whole_tokens = self._whole_tokens or problem.prompt_tokens
        self._asked = shorter
        self._left_out(_chars(self._query) - _chars(shorter))
        return True

    async def answer(self) -> AsyncGenerator[AnswerEvent]:
        """Yield an answer to the part, marked in its text and its end."""
        query, whole_tokens = self._query, self._whole_tokens
        share = _chars(self._asked) / max(_chars(query), 1)
        size = sum(len(each.encoded()) for each in query.messages)
        async with aclosing(self._generate(self._asked)) as events:
            noted = False
            async for event in events:
                if not noted:
                    whole, read = f"{whole_tokens:,}", event.prompt_tokens
                    # For a text that is too long to be counted the engine reports a
                    # lower bound; with it, nearly all of the text would seem to have
                    # been read.
                    if read and whole_tokens * _UNCOUNTED_BYTES <= size:
                        whole = f"about {round(read / share):,}"
                    said = f"about {round(whole_tokens * share):,}"
                    yield reading_note(read=f"{read:,}" if read else said, whole=whole)
                    noted = True
                if isinstance(event, Finished):
                    event = replace(event, finish_reason="length")  # noqa: PLW2901
                yield event


def shortened(query: Query, *, prompt_tokens: int, context_tokens: int) -> Query | None:
    """Return a shortened query that should fit, or None if no question would.

    Args:
        query: the query that does not fit.
        prompt_tokens: its length.
        context_tokens: limit for question and answer together.
    """
    room = context_tokens - query.settings.max_tokens
    room -= MESSAGE_TOKENS * len(query.messages)
    if room < LEAST_ROOM_TOKENS:
        return None
    chars = _chars(query)
    per_token = min(chars / max(prompt_tokens, 1), _MOST_CHARS_PER_TOKEN)
    # Always less than the whole: the estimate that it would fit was wrong.
    budget = int(_CAREFUL * min(room * per_token, chars))
    passages = list(_passages(query))
    kept: set[int] = set()
    for at, passage in sorted(enumerate(passages), key=lambda each: each[1].rank):
        cost = len(passage.text) + len(GAP)
        if cost <= budget:
            budget -= cost
            kept.add(at)
    # If only the surroundings of a question remain, it is another question.
    if not any(passages[at].asks for at in kept):
        return None
    return replace(query, messages=tuple(_joined(query, passages, kept)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Passage:
    """A piece of a message.

    Attributes:
        message: which message.
        text: the piece, with the following space.
        asks: whether it is part of the question.
        rank: the lowest is kept first.
    """

    message: int
    text: str
    asks: bool
    rank: tuple[float, float]


def _passages(query: Query) -> Iterator[_Passage]:
    """Yield all pieces of all messages, in order."""
    messages = query.messages
    pieces = [_PASSAGE.findall(each.content) for each in messages]
    last = max(
        (at for at, each in enumerate(messages) if each.role == "user"),
        default=len(messages) - 1,
    )
    # The question is at the beginning or the end of a long text.
    some = len(pieces[last])
    ends = {at for at in (0, 1, some - 2, some - 1) if 0 <= at < some}
    words = [[set(_WORD.findall(text.casefold())) for text in each] for each in pieces]
    asked = {word for at in ends for word in words[last][at]}
    seen = Counter(word for each in words for some in each for word in some)
    whole = sum(map(len, pieces))
    number = 0
    for message, texts in enumerate(pieces):
        for at, text in enumerate(texts):
            number += 1
            asks = message == last and at in ends
            is_prompt = messages[message].role in PROMPTS
            shared = asked & words[message][at]
            weight = sum(math.log(1 + whole / seen[word]) for word in shared)
            # Where words make no difference, pieces are taken evenly from everywhere.
            yield _Passage(
                message=message,
                text=text,
                asks=asks,
                rank=(
                    -math.inf if asks else -1e6 if is_prompt else -weight,
                    number * _GOLDEN % 1.0,
                ),
            )


def _joined(
    query: Query, passages: list[_Passage], kept: set[int]
) -> Iterator[Message]:
    """Yield the messages with their kept passages, from the first user turn on."""
    texts = [""] * len(query.messages)
    dropped = [""] * len(query.messages)  # since the last kept passage
    for at, passage in enumerate(passages):
        index = passage.message
        if at in kept:
            texts[index] += _in_place_of(dropped[index]) + passage.text
            dropped[index] = ""
        else:
            dropped[index] += passage.text
    begun = False
    for message, text, rest in zip(query.messages, texts, dropped, strict=True):
        # Templates require a user's turn first, and then alternating turns.
        begun = begun or (message.role == "user" and bool(text))
        if begun or (message.role in PROMPTS and text):
            yield replace(message, content=text + _in_place_of(rest))


def _in_place_of(dropped: str) -> str:
    """Return the mark for omitted text, or the text itself if it is not longer."""
    return GAP if len(dropped) > len(GAP) else dropped


def _chars(query: Query) -> int:
    return sum(len(each.content) for each in query.messages)
