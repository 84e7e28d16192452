"""Parser of an OpenAI-compatible server's answer, strict and bounded.

Server-sent events with a ``chat.completion.chunk`` of OpenAI's API in each, ended by
``[DONE]``. Servers differ in what they add: fields, comments that keep a connection
alive, a first chunk without text, the token counts in the last chunk or in one of their
own. All that is accepted, and none of it is shown; the parts that an answer needs are
required. Errors contain nothing of it.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NoReturn, cast

from curtilage.client.chat.answer import (
    AnswerEvent,
    Called,
    Delta,
    Finished,
    Logprobs,
    token_said,
)
from curtilage.client.chat.event_stream import EventParser
from curtilage.client.errors import OnPremisesUnavailableError
from curtilage.client.on_premises.reasons import (
    OnPremisesFailure,
    TooLongForServerError,
)

MAX_EVENT_BYTES: Final = 256 * 1024
"""Of one event: a token has some hundred bytes, its log-probability as many."""
MAX_ANSWER_BYTES: Final = 64 * 1024 * 1024
DONE: Final = b"[DONE]"
FINISH_REASONS: Final = frozenset({"stop", "length", "tool_calls"})
MAX_CALLS: Final = 128
"""Of one answer."""
MAX_CALL_BYTES: Final = 8 * 1024 * 1024
LEAST_LOGPROB: Final = -1_000_000
_MAX_TOKENS: Final = 1 << 31
_TOO_LONG_TYPES: Final = frozenset(
    {"context_length_exceeded", "exceed_context_size_error"}
)
# Sentences of vLLM, of its releases until now, and of SGLang. From the beginning: a
# server may quote the query further on. The enclave server has the same table.
_TOO_LONG_WORDS: Final = (
    re.compile(
        r"(?:'max_tokens'[^.]{0,80}\. )?This model's maximum context length is "
        r"(?P<context>[0-9]{1,9}) tokens(?:(?: and|\. However,) "
        r"(?:you requested [0-9]{1,9} output tokens and )?"
        r"(?:your request has |your prompt contains |you requested [0-9]{1,9} tokens "
        r"\()(?:at least |[0-9]{1,12} characters \(more than [0-9]{1,12} characters, "
        r"which is the upper bound for )?"
        r"(?P<prompt>[0-9]{1,9}) (?:in the messages|input tokens))?"
    ),
    re.compile(
        r"You passed (?P<prompt>[0-9]{1,9}) input tokens and requested [0-9]{1,9} "
        r"output tokens\. However, the model's context length is only "
        r"(?P<context>[0-9]{1,9})\b"
    ),
    re.compile(
        r"Requested token count exceeds the model's maximum context length of "
        r"(?P<context>[0-9]{1,9}) tokens\. You requested a total of [0-9]{1,9} "
        r"tokens: (?P<prompt>[0-9]{1,9}) tokens from the input messages"
    ),
    re.compile(
        r"The input \((?P<prompt>[0-9]{1,9}) tokens\) is longer than the model's "
        r"context length \((?P<context>[0-9]{1,9}) tokens\)"
    ),
)

JsonObject = dict[str, object]


_THOUGHTS: Final = ("reasoning_content", "reasoning")
"""Field for the model's reasoning before its answer, which is not shown."""


@dataclass(slots=True)
class _Call:
    """A call of which pieces have arrived."""

    name: str = field(default="", repr=False)
    pieces: list[str] = field(default_factory=list[str], repr=False)

    @property
    def arguments(self) -> str:
        """The pieces, joined; an object without members if there are none."""
        return "".join(self.pieces) or "{}"

    @property
    def is_whole(self) -> bool:
        """Whether the server sent all of its arguments."""
        return bool(self.pieces) and _is_object(self.arguments)


def refusal_of(data: bytes) -> OnPremisesUnavailableError:
    """Return the error for the body of a 400; only numbers of it are kept.

    llama.cpp's server names the error's type and both numbers; vLLM and SGLang say both
    in words, vLLM sometimes only the least that the query has.
    """
    try:
        value: object = json.loads(data)
    except (ValueError, RecursionError):
        value = None
    outer = cast("JsonObject", value) if isinstance(value, dict) else {}
    inner = outer.get("error")
    error = cast("JsonObject", inner) if isinstance(inner, dict) else outer
    said = str(error.get("message"))
    words = next(filter(None, (each.match(said) for each in _TOO_LONG_WORDS)), None)
    if words is None and str(error.get("type")) not in _TOO_LONG_TYPES:
        return OnPremisesUnavailableError(OnPremisesFailure.REFUSED, code="400")
    if words is None:
        prompt, context = error.get("n_prompt_tokens"), error.get("n_ctx")
    else:
        prompt, context = int(words["prompt"] or 0), int(words["context"])
    return TooLongForServerError(_tokens(prompt), _tokens(context))


def _tokens(value: object) -> int | None:
    return value if type(value) is int and 0 < value < _MAX_TOKENS else None


class ChatReader:
    """Turns the chunks of one answer into events.

    Args:
        logprobs: whether log-probabilities were requested.
        tops: number of alternatives to each token that were requested.
        n: number of answers that were requested.
        must_call: whether each answer has to call a tool.

    Attributes:
        texts: number of events with text so far, of the answer or of the reasoning:
            only these show that the model is still writing.
    """

    def __init__(
        self,
        *,
        logprobs: bool,
        tops: int = 0,
        n: int = 1,
        must_call: bool = False,
    ) -> None:
        self._logprobs = logprobs
        self._tops = tops
        self._n = n
        self._must_call = must_call
        self._events = EventParser(_broken, most_bytes=MAX_EVENT_BYTES)
        self._read_bytes = 0
        self._finish: dict[int, str] = {}
        self._counts = (0, 0)
        self._calls: dict[tuple[int, int], _Call] = {}
        self._call_bytes = 0
        self.texts = 0

    def push(self, data: bytes) -> Iterator[tuple[AnswerEvent, ...]]:
        """Take the next bytes; yield the contents of each event, often nothing.

        ``Finished`` is the last: nothing is read after it. Its counts are 0 if the
        server sent none.

        Raises:
            OnPremisesUnavailableError: an error, too much data, or another format.
        """
        # Comments count as well: an endless series of them must not be accepted.
        self._read_bytes += len(data)
        if self._read_bytes > MAX_ANSWER_BYTES:
            raise _broken()
        for event in self._events.push(data):
            yield self._said(event)

    def _said(self, data: bytes) -> tuple[AnswerEvent, ...]:
        if data == DONE:
            # Without a finish reason, an answer is incomplete in spite of the mark.
            if len(self._finish) < self._n:
                raise OnPremisesUnavailableError(OnPremisesFailure.ANSWER_INCOMPLETE)
            prompt, completion = self._counts
            first, *others = (self._finish[number] for number in range(self._n))
            return (
                Finished(
                    finish_reason=first,
                    prompt_tokens=prompt,
                    completion_tokens=completion,
                    others=tuple(others),
                ),
            )
        chunk = _object(_parsed(data))
        # vLLM and Ollama report late failures in this field; older ones by ``object``.
        if chunk.get("error") is not None or chunk.get("object") == "error":
            raise OnPremisesUnavailableError(OnPremisesFailure.FAILED)
        usage, choices = chunk.get("usage"), chunk.get("choices")
        none = choices is None or choices == []
        if usage is not None:
            counts = _object(usage)
            # llama.cpp's server counts each of several answers in an event of its own,
            # others all of them in one.
            before = self._counts[1] if none and self._n > 1 else 0
            self._counts = (
                _count(counts.get("prompt_tokens")),
                _count(before + _count(counts.get("completion_tokens"))),
            )
        if none:
            return ()
        listed = cast("list[object]", choices) if isinstance(choices, list) else []
        if not 0 < len(listed) <= self._n:
            raise _broken()
        each = map(_object, listed)
        return tuple(event for choice in each for event in self._choice(choice))

    def _choice(self, choice: JsonObject) -> tuple[AnswerEvent, ...]:
        number = _count(choice.get("index", 0))
        # One that was not requested would be mixed into the others.
        if number >= self._n:
            raise _broken()
        delta = choice.get("delta")
        fields = {} if delta is None else _object(delta)
        text = fields.get("content")
        self.texts += any(map(fields.get, ("content", "tool_calls", *_THOUGHTS)))
        events: list[AnswerEvent] = []
        if text is not None and text != "":
            events.append(self._delta(_text(text), choice, number))
        self._take_calls(fields.get("tool_calls"), number)
        finish = choice.get("finish_reason")
        # Once: its calls would be given again.
        if finish is not None and number not in self._finish:
            # Any other reason ("abort", "content_filter") means that a part of the
            # answer is missing.
            if not isinstance(finish, str) or finish not in FINISH_REASONS:
                raise OnPremisesUnavailableError(OnPremisesFailure.ANSWER_INCOMPLETE)
            self._finish[number] = finish
            calls = self._called(number, finish)
            must_call = self._must_call and finish == "stop"
            if calls:
                events.append(Delta(text="", choice=number, calls=calls))
            elif finish == "tool_calls" or must_call:
                raise OnPremisesUnavailableError(OnPremisesFailure.ANSWER_INCOMPLETE)
        return tuple(events)

    def _take_calls(self, value: object, number: int) -> None:
        """Take pieces of calls; they are shown when they are complete."""
        if value is None or value == []:
            return
        if not isinstance(value, list) or number in self._finish:
            raise _broken()
        for piece in map(_object, cast("list[object]", value)):
            index = _count(piece.get("index"))
            function = _object(piece.get("function"))
            if index >= MAX_CALLS:
                raise _broken()
            call = self._calls.setdefault((number, index), _Call())
            # Some servers repeat the name with each piece, others send null.
            if function.get("name"):
                call.name = _text(function["name"])
            if function.get("arguments"):
                text = _text(function["arguments"])
                self._call_bytes += len(text)
                call.pieces.append(text)
        if self._call_bytes > MAX_CALL_BYTES:
            raise _broken()

    def _called(self, number: int, finish: str) -> tuple[Called, ...]:
        """Return the whole calls: an application must not execute half of one."""
        found = sorted(self._calls.items(), key=lambda each: each[0])
        calls = [call for (choice, _), call in found if choice == number]
        # The token limit may have cut the last one. Our own engine omits it, too.
        if finish == "length" and calls and not calls[-1].is_whole:
            calls.pop()
        if not all(each.name and _is_object(each.arguments) for each in calls):
            raise _broken()
        return tuple(
            # Servers differ in what they count from.
            Called(index=at, name=each.name, arguments=each.arguments)
            for at, each in enumerate(calls)
        )

    def _delta(self, text: str, choice: JsonObject, number: int) -> Delta:
        if number in self._finish:
            raise _broken()
        if not self._logprobs:
            return Delta(text=text, choice=number)
        # At the first word, before anything is shown: an answer without the requested
        # log-probabilities would be incomplete.
        given = choice.get("logprobs")
        listed = None if given is None else _object(given).get("content")
        if not isinstance(listed, list) or not listed:
            raise OnPremisesUnavailableError(OnPremisesFailure.NO_LOGPROBS)
        tokens = [*map(_object, cast("list[object]", listed))]
        tops = tuple(self._top(each.get("top_logprobs")) for each in tokens)
        return Delta(
            text=text,
            logprobs=tuple(map(_pair, tokens)),
            tops=tops if any(tops) else (),
            choice=number,
        )

    def _top(self, value: object) -> Logprobs:
        listed = cast("list[object]", value) if isinstance(value, list) else []
        if self._tops and not listed:
            raise OnPremisesUnavailableError(OnPremisesFailure.NO_LOGPROBS)
        # Some servers send more than was requested, and unrequested.
        return tuple(_pair(_object(each)) for each in listed[: self._tops])


def _pair(token: JsonObject) -> tuple[str, float]:
    value = token.get("logprob")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _broken()
    # The least that servers send is -9999; a probability of 1 is rounded.
    if not LEAST_LOGPROB <= value <= 1:
        raise _broken()
    return token_said(_text(token.get("token")), token.get("bytes")), float(value)


def _parsed(data: bytes) -> object:
    # Every error of the library quotes its input. ``RecursionError``: a thousand
    # brackets are a small event.
    try:
        return cast("object", json.loads(data.decode(), parse_constant=_no_number))
    except (ValueError, RecursionError):
        raise _broken() from None


def _is_object(text: str) -> bool:
    try:
        value = cast("object", json.loads(text, parse_constant=_no_number))
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict)


def _no_number(_: str) -> NoReturn:
    raise ValueError


def _object(value: object) -> JsonObject:
    if not isinstance(value, dict):
        raise _broken()
    return cast("JsonObject", value)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise _broken()
    try:
        # A lone surrogate is valid JSON, and has no UTF-8 form.
        value.encode()
    except UnicodeEncodeError:
        raise _broken() from None
    return value


def _count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _broken()
    if not 0 <= value < _MAX_TOKENS:
        raise _broken()
    return value


def _broken() -> OnPremisesUnavailableError:
    return OnPremisesUnavailableError(OnPremisesFailure.ANSWER_BROKEN)
