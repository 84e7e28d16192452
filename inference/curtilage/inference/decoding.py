"""One request from turns to its last token; and the measured cost of a decode.

An answer knows its tokens, its sampler and its text, and no other answer.
"""

import math
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from curtilage.inference.batch import Piece
from curtilage.inference.calls import MARKS
from curtilage.inference.errors import (
    ContextTooLongError,
    RequestError,
    TemplateError,
)
from curtilage.inference.native import (
    Context,
    Model,
    Row,
    Sampler,
    Saved,
    draw_of,
)
from curtilage.inference.protocol import (
    Called,
    ChatMessage,
    Done,
    Finish,
    Token,
    Tool,
    TopLogprob,
    Usage,
)
from curtilage.inference.sampling import SamplingSettings
from curtilage.inference.signals import log_probability, most_likely, top_margin
from curtilage.inference.structured import AnswerForm
from curtilage.inference.templates import ChatTemplate, Part
from curtilage.inference.text import TextAssembler

MAX_BYTES_PER_TOKEN: Final = 16
"""More text than the context times this is not tokenised at all: with some vocabularies
the time grows with the square of the length, and tokenising cannot be interrupted.
English averages four to five bytes a token, other prose and code fewer or about as
many; only runs of one character exceed sixteen, and may be refused although they would
fit."""
_ROUNDS: Final = 4
"""How often each decode is measured; the shortest time counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A model ready to answer.

    Attributes:
        model: its weights and vocabulary.
        template: its chat template.
        context: the one context; empty while no request runs.
    """

    model: Model
    template: ChatTemplate
    context: Context


class Answer:
    """One answer in progress.

    Args:
        model: that writes it.
        prompt: its tokens.
        settings: of the request.
        form: of the answer.

    Attributes:
        saved: its sequence, while it gives way to others; None otherwise, and if
            there was no room for it.
        finish: how it ended; None: it has not.
    """

    def __init__(
        self,
        model: Model,
        prompt: list[int],
        settings: SamplingSettings,
        form: AnswerForm,
    ) -> None:
        self._model = model
        self._settings = settings
        self._tokens = prompt
        self._prompt_tokens = len(prompt)
        self._made = 0
        self._text = TextAssembler(settings.stop, form.parser())
        # One for each request: it holds the state of a sequence of draws.
        self._sampler = Sampler(draw_of(settings, form.grammar), model)
        self.saved: Saved | None = None
        self.finish: Finish | None = None

    @property
    def size(self) -> int:
        """How many tokens are to be read before the next one is drawn."""
        return len(self._tokens)

    @property
    def remaining(self) -> int:
        """How many tokens it may still write."""
        return self._settings.max_tokens - self._made

    @property
    def has_begun(self) -> bool:
        """Whether something was written."""
        return self._made > 0

    def rows(self, piece: Piece) -> list[Row]:
        """Return the tokens of a piece, with their places."""
        last = piece.count - 1
        tokens = self._tokens[piece.start : piece.start + piece.count]
        return [
            Row(token, piece.start + at, piece.sequence, piece.sampled and at == last)
            for at, token in enumerate(tokens)
        ]

    def draw(self, context: Context, row: int) -> Iterator[Token | Called]:
        """Draw the next token and yield what it makes certain; may set ``finish``.

        Raises:
            NativeError: the library failed.
            RequestError: no token fulfils the form, a call is too long, or the
                probabilities are not numbers; of this request alone.
        """
        settings, text = self._settings, self._text
        token = context.sample(self._sampler, row)
        if self._model.is_end(token):
            self.finish = "tool_calls" if text.called else "stop"
            yield from self._rest()
            return
        self._made += 1
        # The last token is not read: nothing is drawn after it.
        self._tokens.append(token)
        piece = self._model.piece(token)
        yield self._about(context, row, token, Token(text=text.push(piece)))
        yield from text.take_calls()
        if text.stopped:
            self.finish = "stop"
        elif self._made == settings.max_tokens:
            yield from self._rest()
            self.finish = "length"

    def _about(self, context: Context, row: int, token: int, event: Token) -> Token:
        """Add to a token's event as much about it as was requested."""
        settings = self._settings
        if not (settings.logprobs or settings.margins):
            return event
        logits = context.logits(row)
        logprob = log_probability(logits, token)
        if math.isnan(logprob):
            # Of this text alone, as a sum may overflow: others go on.
            raise RequestError("the model's probabilities are not numbers")
        return replace(
            event,
            logprob=logprob,
            margin=top_margin(logits) if settings.margins else None,
            data=self._model.piece(token) if settings.logprobs else b"",
            top=tuple(
                TopLogprob(data=self._model.piece(other), logprob=logprob)
                for other, logprob in most_likely(logits, settings.top_logprobs)
            ),
        )

    def done(self, finish: Finish) -> Done:
        """Return its last event."""
        usage = Usage(prompt_tokens=self._prompt_tokens, completion_tokens=self._made)
        return Done(usage=usage, finish=finish)

    def free(self) -> None:
        """Free what it holds of the library, and overwrite what was saved."""
        self._sampler.free()
        self._tokens.clear()
        if self.saved is not None:
            self.saved.wipe()
            self.saved = None

    def _rest(self) -> Iterator[Token]:
        if rest := self._text.flush():
            yield Token(text=rest)


def measure_costs(
    context: Context, sequences: int, *, clock: Callable[[], float] = time.thread_time
) -> list[float]:
    """Return the time of a decode of 1, 2, … sequences, and leave the context empty.

    In processor time of this thread, which has an even share of the work: a busy
    machine would distort any other. Erases one of them as well, and what the library
    keeps of it: a model whose sequences cannot be erased one by one must answer one
    request at a time.

    Raises:
        EngineMemoryError: there is too little memory for so many.
        NativeError: the library failed, or a sequence cannot be erased.
    """
    costs = [math.inf] * sequences
    try:
        context.open(sequences - 1)
        for _ in range(_ROUNDS):
            for count in range(1, sequences + 1):
                rows = [Row(0, context.used(at), at, True) for at in range(count)]
                began = clock()
                context.decode(rows)
                costs[count - 1] = min(costs[count - 1], clock() - began)
        context.erase(0)
        context.flush(0)
    finally:
        context.clear()
    return costs


def build_prompt(
    loaded: Loaded,
    messages: Sequence[ChatMessage],
    max_tokens: int,
    *,
    tools: Sequence[Tool] = (),
    note: str = "",
) -> list[int]:
    """Render and tokenise the turns, part by part.

    Raises:
        ContextTooLongError: prompt and answer do not fit.
        TemplateError: the model cannot take these turns.
    """
    # By the bytes first, then by the tokens: see ``MAX_BYTES_PER_TOKEN``.
    parts = loaded.template.render(messages, tools=tools, note=note)
    size = sum(len(part.text.encode()) for part in parts)
    if size > loaded.context.size * MAX_BYTES_PER_TOKEN:
        estimate = -(-size // MAX_BYTES_PER_TOKEN)
        _refuse_too_long(loaded.context, estimate, max_tokens)
    tokens = [token for part in parts for token in part_tokens(loaded.model, part)]
    bos = loaded.model.bos()
    # Templates often write the marker themselves; twice would be wrong.
    if bos is not None and loaded.model.adds_bos() and tokens[:1] != [bos]:
        tokens.insert(0, bos)
    _refuse_too_long(loaded.context, len(tokens), max_tokens)
    return tokens


def part_tokens(model: Model, part: Part) -> list[int]:
    """Return the tokens of one part; only templates may contain control tokens.

    ``special=False`` does not parse control tokens, but a vocabulary may still
    merge plain pieces into one. Such a text is tokenised character by character. The
    marks of tool calls are mostly tokens that are no control tokens; only a template's
    text has them.

    Raises:
        TemplateError: even single characters become control tokens.
    """
    if part.special:
        return model.tokenize(part.text, special=True)
    tokens = [
        token
        for text in _cut_marks(model, part.text)
        for token in model.tokenize(text, special=False)
    ]
    if not any(map(model.is_control, tokens)):
        return tokens
    tokens = [
        token
        for character in part.text
        for token in model.tokenize(character, special=False)
    ]
    if any(map(model.is_control, tokens)):
        raise TemplateError("the vocabulary makes control tokens of plain text")
    return tokens


def _cut_marks(model: Model, text: str) -> list[str]:
    """Cut a text inside each mark that the vocabulary has as one token."""
    marks = [
        mark
        for mark in MARKS
        if mark in text and len(model.tokenize(mark, special=True)) == 1
    ]
    if not marks:
        return [text]
    # Each begins with a character that it does not have again.
    whole = "|".join(re.escape(mark[1:]) for mark in marks)
    return re.split(f"(?<=<)(?={whole})", text)


def _refuse_too_long(context: Context, prompt_tokens: int, max_tokens: int) -> None:
    if prompt_tokens + max_tokens > context.size:
        raise ContextTooLongError(
            prompt_tokens=prompt_tokens,
            max_tokens=max_tokens,
            context_tokens=context.size,
        )
