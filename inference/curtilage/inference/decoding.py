"""Runs one request from turns to its last token, step by step, in one thread.

Nothing of an earlier request is used, and nothing of this one remains in the context
when it ends, however it ends.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from curtilage.inference.errors import ContextTooLongError, TemplateError
from curtilage.inference.native import (
    PREFILL_CHUNK,
    Context,
    Model,
    Sampler,
    Saved,
    draw_of,
)
from curtilage.inference.protocol import (
    ChatMessage,
    Done,
    Event,
    Finish,
    GenerateRequest,
    Started,
    Token,
    Tool,
    TopLogprob,
    Usage,
)
from curtilage.inference.sampling import SamplingSettings
from curtilage.inference.signals import log_probability, most_likely, top_margin
from curtilage.inference.structured import AnswerForm, form_of
from curtilage.inference.templates import ChatTemplate, Part
from curtilage.inference.text import TextAssembler

MAX_BYTES_PER_TOKEN: Final = 16
"""More text than the context times this is not tokenised at all: with some vocabularies
the time grows with the square of the length, and tokenising cannot be interrupted.
English averages four to five bytes a token, other prose and code fewer or about as
many; only runs of one character exceed sixteen, and may be refused although they would
fit."""
MAX_KEPT: Final = 4
"""How many paused answers have their keys and values saved: each needs as much memory
as it fills of the context, and one client holds at most four places."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A model ready to answer.

    Attributes:
        model: its weights and vocabulary.
        template: its chat template.
        context: the one context; empty between requests.
        kept: saved contexts of paused answers.
    """

    model: Model
    template: ChatTemplate
    context: Context
    kept: list[Saved] = field(default_factory=list[Saved], repr=False)


@dataclass(frozen=True, slots=True)
class Paused:
    """Others may use the context now; the next step continues this answer."""


def answer(
    loaded: Loaded,
    request: GenerateRequest,
    cancelled: Callable[[], bool],
    yields: Callable[[], bool],
) -> Generator[Event | Paused]:
    """Yield one answer's events; ``Done`` comes after the overwriting.

    Args:
        loaded: owned by this thread.
        request: to be answered.
        cancelled: called before every step.
        yields: called before every token, once the prompt was read; whether to
            pause.

    Raises:
        ContextTooLongError: prompt and answer do not fit.
        RequestError: the model or the library cannot fulfil its settings.
        TemplateError: the model cannot take these turns.
        NativeError: the library failed; the context is not to be used again.
    """
    settings, form = request.settings, form_of(request)
    made = 0
    finish: Finish = "cancelled"
    try:
        prompt = build_prompt(
            loaded,
            request.messages,
            settings.max_tokens,
            tools=form.tools,
            note=form.note,
        )
        yield Started(prompt_tokens=len(prompt))
        if _read(loaded.context, prompt, cancelled):
            # One for each request: it holds the state of a sequence of draws.
            sampler = Sampler(draw_of(settings, form.grammar), loaded.model)
            try:
                asked = _Asked(settings, form, cancelled, yields)
                made, finish = yield from _sample(loaded, sampler, prompt, asked)
            finally:
                sampler.free()
    finally:
        # However it ended: with an error, or closed because the caller has gone. The
        # next request must find nothing of this one.
        loaded.context.clear()
    # After the overwriting: a caller that receives ``Done`` may rely on it.
    usage = Usage(prompt_tokens=len(prompt), completion_tokens=made)
    yield Done(usage=usage, finish=finish)


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
    merge plain pieces into one. Such a text is tokenised character by character.

    Raises:
        TemplateError: even single characters become control tokens.
    """
    tokens = model.tokenize(part.text, special=part.special)
    if part.special or not any(map(model.is_control, tokens)):
        return tokens
    tokens = [
        token
        for character in part.text
        for token in model.tokenize(character, special=False)
    ]
    if any(map(model.is_control, tokens)):
        raise TemplateError("the vocabulary makes control tokens of plain text")
    return tokens


def _refuse_too_long(context: Context, prompt_tokens: int, max_tokens: int) -> None:
    if prompt_tokens + max_tokens > context.size:
        raise ContextTooLongError(
            prompt_tokens=prompt_tokens,
            max_tokens=max_tokens,
            context_tokens=context.size,
        )


@dataclass(frozen=True, slots=True)
class _Asked:
    """When to continue, pause or stop."""

    settings: SamplingSettings
    form: AnswerForm
    cancelled: Callable[[], bool]
    yields: Callable[[], bool]


def _read(
    context: Context, tokens: Sequence[int], cancelled: Callable[[], bool]
) -> bool:
    """Read tokens into an empty context; False when it was stopped."""
    return all(
        not cancelled()
        and context.prefill(
            tokens[start : start + PREFILL_CHUNK],
            last=start + PREFILL_CHUNK >= len(tokens),
            cancelled=cancelled,
        )
        for start in range(0, len(tokens), PREFILL_CHUNK)
    )


def _sample(
    loaded: Loaded, sampler: Sampler, prompt: Sequence[int], asked: _Asked
) -> Generator[Event | Paused, None, tuple[int, Finish]]:
    context, model, settings = loaded.context, loaded.model, asked.settings
    text, said = TextAssembler(settings.stop, asked.form.parser()), list[int]()
    for made in range(settings.max_tokens):
        if asked.cancelled():
            return made, "cancelled"
        token = context.sample(sampler)
        if model.is_end(token):
            yield from _rest(text)
            return made, "tool_calls" if text.called else "stop"
        yield _token(loaded, token, text, settings)
        yield from text.take_calls()
        if text.stopped:
            return made + 1, "stop"
        said.append(token)
        # The last token is not read: nothing is drawn after it.
        if made + 1 == settings.max_tokens:
            break
        if not asked.yields():
            context.step(token)
        elif not (yield from _pause(loaded, [*prompt, *said], asked)):
            return made + 1, "cancelled"
    yield from _rest(text)
    return settings.max_tokens, "stop" if text.stopped else "length"


def _token(
    loaded: Loaded, token: int, text: TextAssembler, settings: SamplingSettings
) -> Token:
    """Return a token's event, with as much about it as was requested."""
    piece = loaded.model.piece(token)
    plain = Token(text=text.push(piece))
    if not (settings.logprobs or settings.margins):
        return plain
    logits = loaded.context.logits()
    return replace(
        plain,
        logprob=log_probability(logits, token),
        margin=top_margin(logits) if settings.margins else None,
        data=piece if settings.logprobs else b"",
        top=tuple(
            TopLogprob(data=loaded.model.piece(other), logprob=logprob)
            for other, logprob in most_likely(logits, settings.top_logprobs)
        ),
    )


def _pause(
    loaded: Loaded, tokens: Sequence[int], asked: _Asked
) -> Generator[Paused, None, bool]:
    """Make room for others, and read up to the last token; False when stopped.

    Nothing of this answer may be in the context while another is generated. What was
    read is saved if there is room, since on a slow machine reading it again takes
    minutes; else it is read again.
    """
    context, kept = loaded.context, loaded.kept
    saved = context.save() if len(kept) < MAX_KEPT else None
    try:
        if saved is not None:
            kept.append(saved)
        context.clear()
        yield Paused()
        # The wait may have been long: an answer that was cancelled meanwhile is not
        # restored, only to be cleared again.
        if saved is None:
            return _read(context, tokens, asked.cancelled)
        if not asked.cancelled():
            context.restore(saved)
            context.step(tokens[-1])
    finally:
        if saved is not None:
            saved.wipe()
            kept.remove(saved)
    return True


def _rest(text: TextAssembler) -> Iterator[Token]:
    if rest := text.flush():
        yield Token(text=rest)
