"""One answer under way: what the model says becomes sealed bytes, in order.

Knows no HTTP. Every failure after decapsulation ends here as an encapsulated
error; what is sealed is never kept.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Protocol

from curtilage.enclave_server.answers import (
    EVENT_STREAM_TYPE,
    JSON_TYPE,
    Answer,
    AnswerHead,
    Begun,
    Ending,
    Piece,
    encode_completion,
    error_event,
    first_event,
    last_events,
    piece_event,
)
from curtilage.enclave_server.chat import ChatRequest
from curtilage.enclave_server.errors import (
    BusyError,
    ChatError,
    PromptTooLongError,
)
from curtilage.enclave_server.gateway import (
    RETRY_LATER,
    Exchange,
    Sealer,
    seal_error,
)
from curtilage.enclave_server.telemetry import Event

_STATUS_OK = 200
_SERVER_FAULT = 500


class AnswersChat(Protocol):
    """Whoever answers chat requests; see ``model.Model``."""

    def answer(self, chat: ChatRequest) -> AsyncGenerator[Answer]:
        """Answer one request; closing the iterator cancels."""
        ...


class AnswerUnderway:
    """The sealed bytes of one answer.

    Args:
        exchange: opened by the gateway.
        model: answers it.
        head: what the answer's parts repeat.
        deadline: in the event loop's time; then the answer ends in an error.

    Attributes:
        outcome: how it ended, to be counted; ``ANSWER_CANCELLED`` until then.
    """

    def __init__(
        self,
        *,
        exchange: Exchange,
        model: AnswersChat,
        head: AnswerHead,
        deadline: float,
    ) -> None:
        self._exchange = exchange
        self._model = model
        self._head = head
        self._deadline = deadline
        self.outcome = Event.ANSWER_CANCELLED

    async def pieces(self) -> AsyncGenerator[bytes]:
        """Yield what can be sent now; close the iterator to cancel.

        Never raises for what the request or the model did, foreseen or not: that
        is sealed, in fixed words.
        """
        asked = self._exchange.asked
        if isinstance(asked, ChatError):
            self.outcome = _outcome_of(asked)
            yield seal_error(self._exchange.sealer, asked)
            return
        shape = _shape_of(asked, self._exchange.sealer, self._head)
        try:
            async with aclosing(self._model.answer(asked)) as answers:
                while (answer := await self._next(answers)) is not None:
                    if isinstance(answer, Ending):
                        self.outcome = Event.ANSWERED
                    if data := shape.take(answer):
                        yield data
            self._require_ending()
        except Exception as error:  # noqa: BLE001 - the edge: what failed is told sealed
            refusal = _as_chat_error(error)
            self.outcome = _outcome_of(refusal)
            yield shape.fail(refusal)

    def _require_ending(self) -> None:
        if self.outcome is not Event.ANSWERED:
            raise ChatError(_SERVER_FAULT, "internal_error")

    async def _next(self, answers: AsyncGenerator[Answer]) -> Answer | None:
        async with asyncio.timeout_at(self._deadline):
            return await anext(answers, None)


class _Shape(Protocol):
    """Turns what the model says into sealed bytes."""

    def take(self, answer: Answer) -> bytes: ...

    def fail(self, error: ChatError) -> bytes: ...


class _Whole:
    """One JSON object, sealed when everything is there."""

    def __init__(self, sealer: Sealer, head: AnswerHead, *, logprobs: bool) -> None:
        self._sealer = sealer
        self._head = head
        self._logprobs = logprobs
        self._pieces: list[Piece] = []

    def take(self, answer: Answer) -> bytes:
        if isinstance(answer, Piece):
            self._pieces.append(answer)
        if not isinstance(answer, Ending):
            return b""
        content = encode_completion(
            self._head, self._pieces, answer, logprobs=self._logprobs
        )
        fields = ((b"content-type", JSON_TYPE),)
        return (
            self._sealer.begin(_STATUS_OK, fields)
            + self._sealer.write(content)
            + self._sealer.finish()
        )

    def fail(self, error: ChatError) -> bytes:
        return seal_error(self._sealer, error)


class _Streamed:
    """Server-sent events, each sealed as it comes."""

    def __init__(self, sealer: Sealer, head: AnswerHead) -> None:
        self._sealer = sealer
        self._head = head
        self._begun = False

    def take(self, answer: Answer) -> bytes:
        match answer:
            case Begun():
                event = first_event(self._head)
                self._begun = True
                fields = ((b"content-type", EVENT_STREAM_TYPE),)
                head = self._sealer.begin(_STATUS_OK, fields)
                return head + self._sealer.write(event)
            case Piece():
                if not answer.text and answer.logprob is None:
                    return b""
                return self._sealer.write(piece_event(self._head, answer))
            case Ending():
                end = self._sealer.write(last_events(self._head, answer))
                return end + self._sealer.finish()

    def fail(self, error: ChatError) -> bytes:
        if not self._begun:
            return seal_error(self._sealer, error)
        # The status is out already, so the stream itself says what happened.
        return self._sealer.write(error_event(error)) + self._sealer.finish()


def _shape_of(chat: ChatRequest, sealer: Sealer, head: AnswerHead) -> _Shape:
    if chat.stream:
        return _Streamed(sealer, head)
    return _Whole(sealer, head, logprobs=chat.logprobs)


def _as_chat_error(error: Exception) -> ChatError:
    match error:
        case ChatError():
            return error
        case BusyError():
            return ChatError(503, "busy", fields=RETRY_LATER)
        case PromptTooLongError():
            return ChatError(400, "context_length_exceeded", param="messages")
        case TimeoutError():
            return ChatError(504, "time_limit")
        case _:
            return ChatError(_SERVER_FAULT, "internal_error")


def _outcome_of(error: ChatError) -> Event:
    named = {"busy": Event.BUSY, "replayed": Event.REPLAYED}
    if error.code in named:
        return named[error.code]
    if error.status >= _SERVER_FAULT:
        return Event.ANSWER_FAILED
    return Event.INNER_REFUSED
