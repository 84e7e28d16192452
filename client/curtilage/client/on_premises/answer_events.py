"""Parser of an OpenAI-compatible server's answer, strict and bounded.

Server-sent events with a ``chat.completion.chunk`` of OpenAI's API in each, ended by
``[DONE]``. Servers differ in what they add: fields, comments that keep a connection
alive, a first chunk without text, the token counts in the last chunk or in one of their
own. All that is accepted, and none of it is shown; the parts that an answer needs are
required. Errors contain nothing of it.
"""

import json
from collections.abc import Iterator
from typing import Final, NoReturn, cast

from curtilage.client.chat.answer import AnswerEvent, Delta, Finished
from curtilage.client.chat.event_stream import EventParser
from curtilage.client.errors import OnPremisesUnavailableError
from curtilage.client.on_premises.reasons import OnPremisesFailure

MAX_EVENT_BYTES: Final = 256 * 1024
"""Of one event: a token has some hundred bytes, its log-probability as many."""
MAX_ANSWER_BYTES: Final = 64 * 1024 * 1024
DONE: Final = b"[DONE]"
FINISH_REASONS: Final = frozenset({"stop", "length"})
LEAST_LOGPROB: Final = -1_000_000
_MAX_TOKENS: Final = 1 << 31

JsonObject = dict[str, object]


_THOUGHTS: Final = ("reasoning_content", "reasoning")
"""Field for the model's reasoning before its answer, which is not shown."""


class ChatReader:
    """Turns the chunks of one answer into events.

    Args:
        logprobs: whether log-probabilities were requested.

    Attributes:
        texts: number of events with text so far, of the answer or of the reasoning:
            only these show that the model is still writing.
    """

    def __init__(self, *, logprobs: bool) -> None:
        self._logprobs = logprobs
        self._events = EventParser(_broken, most_bytes=MAX_EVENT_BYTES)
        self._read_bytes = 0
        self._finish: str | None = None
        self._counts = (0, 0)
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
            # Without a finish reason, the answer is incomplete in spite of the mark.
            if self._finish is None:
                raise OnPremisesUnavailableError(OnPremisesFailure.ANSWER_INCOMPLETE)
            prompt, completion = self._counts
            return (
                Finished(
                    finish_reason=self._finish,
                    prompt_tokens=prompt,
                    completion_tokens=completion,
                ),
            )
        chunk = _object(_parsed(data))
        # vLLM and Ollama report late failures in this field; older ones by ``object``.
        if chunk.get("error") is not None or chunk.get("object") == "error":
            raise OnPremisesUnavailableError(OnPremisesFailure.FAILED)
        usage = chunk.get("usage")
        if usage is not None:
            counts = _object(usage)
            self._counts = (
                _count(counts.get("prompt_tokens")),
                _count(counts.get("completion_tokens")),
            )
        choices = chunk.get("choices")
        if choices is None or choices == []:
            return ()
        # One answer was requested. A second one would be mixed into it.
        if not isinstance(choices, list) or len(cast("list[object]", choices)) != 1:
            raise _broken()
        return self._choice(_object(cast("list[object]", choices)[0]))

    def _choice(self, choice: JsonObject) -> tuple[AnswerEvent, ...]:
        if choice.get("index", 0) != 0:
            raise _broken()
        delta = choice.get("delta")
        fields = {} if delta is None else _object(delta)
        text = fields.get("content")
        self.texts += any(map(fields.get, ("content", *_THOUGHTS)))
        event = None if text is None or text == "" else self._delta(_text(text), choice)
        finish = choice.get("finish_reason")
        if finish is not None:
            # Any other reason ("abort", "content_filter", "tool_calls") means that a
            # part of the answer is missing.
            if not isinstance(finish, str) or finish not in FINISH_REASONS:
                raise OnPremisesUnavailableError(OnPremisesFailure.ANSWER_INCOMPLETE)
            self._finish = finish
        return () if event is None else (event,)

    def _delta(self, text: str, choice: JsonObject) -> Delta:
        if self._finish is not None:
            raise _broken()
        if not self._logprobs:
            return Delta(text=text)
        # At the first word, before anything is shown: an answer without the requested
        # log-probabilities would be incomplete.
        given = choice.get("logprobs")
        listed = None if given is None else _object(given).get("content")
        if not isinstance(listed, list) or not listed:
            raise OnPremisesUnavailableError(OnPremisesFailure.NO_LOGPROBS)
        pairs: list[tuple[str, float]] = []
        for each in map(_object, cast("list[object]", listed)):
            value = each.get("logprob")
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise _broken()
            # The least that servers send is -9999; a probability of 1 is rounded.
            if not LEAST_LOGPROB <= value <= 1:
                raise _broken()
            pairs.append((_text(each.get("token")), float(value)))
        return Delta(text=text, logprobs=tuple(pairs))


def _parsed(data: bytes) -> object:
    # Every error of the library quotes its input. ``RecursionError``: a thousand
    # brackets are a small event.
    try:
        return cast("object", json.loads(data.decode(), parse_constant=_no_number))
    except (ValueError, RecursionError):
        raise _broken() from None


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
