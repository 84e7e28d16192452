"""Runs one answer: turns the model's output into sealed bytes, in order.

Knows no HTTP. Every failure after decapsulation ends here as an encapsulated error;
sealed content is never stored. In padded mode a timer sends, and the model fills what
it sends; unpadded, the model's output is sent as it comes.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from typing import Protocol

from curtilage.enclave_server.answer.challenger import (
    WAIT_S,
    ChallengeShape,
    challenge_error,
)
from curtilage.enclave_server.answer.pacing import LOOP_TIMER, Pacer, Timer
from curtilage.enclave_server.answer.padded import (
    SERVER_FAULT,
    STATUS_OK,
    PaddedChallenge,
    PaddedContent,
    begin_content,
    outcome_of,
    write_cover,
    write_error,
)
from curtilage.enclave_server.errors import (
    BusyError,
    ChatError,
    EngineCrashedError,
    EngineHungError,
    ModelUnavailableError,
    PromptTooLongError,
)
from curtilage.enclave_server.ohttp.chat import ChatCompletionRequest
from curtilage.enclave_server.ohttp.gateway import (
    RETRY_LATER,
    Exchange,
    seal_error,
)
from curtilage.enclave_server.ohttp.inner_requests import (
    ChallengeRequest,
    CoverRequest,
    CoverRoom,
)
from curtilage.enclave_server.ohttp.keys import ServerKey
from curtilage.enclave_server.ohttp.openai_answers import (
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
from curtilage.enclave_server.ohttp.receipts import Receipting
from curtilage.enclave_server.ohttp.sealing import PaddedSealer, Sealer
from curtilage.enclave_server.telemetry import Event
from curtilage.wire.shaping import TransportParameters


class AnswersChat(Protocol):
    """Answers chat requests; see ``model.Model``."""

    def answer(self, chat: ChatCompletionRequest) -> AsyncGenerator[Answer]:
        """Answer one request; closing the iterator cancels."""
        ...


class AnswersChallenges(Protocol):
    """Answers challenges; see ``challenger.Challenger``."""

    def shape(self, transport: TransportParameters) -> ChallengeShape:
        """Return the shape of every padded answer."""
        ...

    def begin(
        self, key: ServerKey, challenge: ChallengeRequest
    ) -> "asyncio.Task[bytes]":
        """Start acquiring evidence, or raise ``ChatError``."""
        ...


class AnswerRun:
    """The sealed bytes of one answer.

    Args:
        exchange: opened by the gateway.
        model: answers it.
        head: the values that the answer's parts repeat.
        accepted: when the request's last byte was read, by the timer's clock.
        limit_s: from then on; afterwards the answer ends in an error, whether it was
            still waiting for the model or not.
        timer: the clock of the frames and the limit.
        challenges: answers challenges; None if the gateway accepts none.
        covers: bounds dummy answers; None: no bound.

    Attributes:
        exchange: see above.
        outcome: how it ended, to be counted; ``ANSWER_CANCELLED`` until then.
        batches: the number of frames sent, in units of the shortest answer's.
        late: whether a frame was sent a whole period late, or more.
    """

    def __init__(
        self,
        *,
        exchange: Exchange,
        model: AnswersChat,
        head: AnswerHead,
        accepted: float,
        limit_s: float,
        timer: Timer = LOOP_TIMER,
        challenges: AnswersChallenges | None = None,
        covers: CoverRoom | None = None,
    ) -> None:
        self.exchange = exchange
        self._covers = covers
        self._covered = 0
        self._challenges = challenges
        self._acquiring: asyncio.Task[bytes] | None = None
        self._model = model
        self._head = head
        self._timer = timer
        self._accepted = accepted
        self._deadline = accepted + limit_s
        self.outcome = Event.ANSWER_CANCELLED
        self.batches = 0
        self.late = False

    def pieces(self) -> AsyncGenerator[bytes]:
        """Yield the bytes to send now; close the iterator to cancel.

        Never raises because of the request or the model: every such error is sealed,
        with a fixed text.
        """
        sealer = self.exchange.sealer
        if isinstance(sealer, PaddedSealer):
            return self._frames(sealer)
        return self._unpadded(sealer)

    async def _frames(self, sealer: PaddedSealer) -> AsyncGenerator[bytes]:
        period_s = sealer.parameters.period_ms / 1000
        pacer = Pacer(self._accepted, period_s, self._timer)
        model_run = _ModelRun(sealer, self.exchange.receipt)
        try:
            model_run.content = self._begin(sealer)
            async with aclosing(pacer.ticks()) as ticks:
                async for _ in ticks:
                    self._tick(model_run, sealer)
                    data = sealer.next()
                    await pacer.due()
                    if data:
                        yield data
                    self.late = pacer.late > 0
                    self.batches = sealer.sent // sealer.parameters.first_bucket
                    if sealer.over:
                        return
                    # Not before the first frame is sent: it must not wait.
                    self._start_model(model_run, sealer)
        finally:
            if not sealer.over:
                # All content was produced, but not all of it was sent.
                self.outcome = Event.ANSWER_CANCELLED
            # In every case, also if closed in the middle: the device and the room are
            # for the next request, and a model without a reader must not continue.
            if self._acquiring is not None:
                self._acquiring.cancel()
            if self._covers is not None:
                self._covers.give_back(self._covered)
            await model_run.stop()

    def _begin(self, sealer: PaddedSealer) -> PaddedContent | None:
        """Set the answer's head; return None if its content is complete already."""
        asked = self.exchange.asked
        match asked:
            case ChatError():
                self._refuse(sealer, asked)
            case ChallengeRequest():
                try:
                    challenges, acquiring = self._acquire(asked)
                except ChatError as error:
                    self._refuse(sealer, error)
                else:
                    shape = challenges.shape(sealer.parameters)
                    return PaddedChallenge(sealer, acquiring, shape)
            case CoverRequest():
                self.outcome = Event.COVERED
                bucket = asked.bucket
                if self._covers is not None:
                    bucket = self._covers.take(asked, sealer.parameters)
                    # Noted at once: ``_frames`` gives it back whatever comes now.
                    self._covered = bucket
                write_cover(sealer, bucket)
            case ChatCompletionRequest():
                return begin_content(asked, sealer, self._head)
        return None

    def _refuse(self, sealer: PaddedSealer, error: ChatError) -> None:
        self.outcome = outcome_of(error)
        write_error(sealer, error, least_bucket=self.exchange.least_bucket)

    def _acquire(
        self, challenge: ChallengeRequest
    ) -> "tuple[AnswersChallenges, asyncio.Task[bytes]]":
        challenges, key = self._challenges, self.exchange.key
        if challenges is None or key is None:
            # The gateway has none where no challenger is configured.
            raise ChatError(404, "not_found")
        self._acquiring = challenges.begin(key, challenge)
        return challenges, self._acquiring

    def _tick(self, model_run: "_ModelRun", sealer: PaddedSealer) -> None:
        """Let the content prepare for the frame that is sent now."""
        if model_run.content is None:
            return
        # Before the content's own tick: if both would end the answer, the deadline's
        # error is the one that is sent.
        if self._timer.clock() >= self._deadline:
            model_run.content.fail(ChatError(504, "time_limit"))
        model_run.content.tick()
        if sealer.ended:
            model_run.abandon()
        self.outcome = model_run.content.outcome

    def _start_model(self, model_run: "_ModelRun", sealer: PaddedSealer) -> None:
        asked = self.exchange.asked
        if model_run.content is not None and isinstance(asked, ChatCompletionRequest):
            # A token is at least one byte: more of them could not be sent.
            most = max(1, min(asked.max_tokens, sealer.room))
            model_run.start(self._model, replace(asked, max_tokens=most))
        model_run.wake()

    async def _unpadded(self, sealer: Sealer) -> AsyncGenerator[bytes]:
        asked = self.exchange.asked
        if not isinstance(asked, ChatCompletionRequest):
            yield await self._unpadded_whole(sealer, asked)
            return
        encoder: _Encoder = (
            _EventEncoder(sealer, self._head, asked.n)
            if asked.stream
            else _WholeEncoder(sealer, self._head, logprobs=asked.logprobs)
        )
        refusal: ChatError | None
        try:
            async with aclosing(self._model.answer(asked)) as answers:
                while (answer := await self._next(answers)) is not None:
                    if isinstance(answer, Begun):
                        self.exchange.receipt.model_ran()
                    if isinstance(answer, Ending):
                        self.outcome = Event.ANSWERED
                    if data := encoder.take(answer):
                        yield data
            # A model that stops without an ending has failed: else the client would see
            # a truncated answer.
            answered = self.outcome is Event.ANSWERED
            refusal = None if answered else ChatError(SERVER_FAULT, "internal_error")
        except Exception as error:  # noqa: BLE001 - the edge: failures are reported inside the seal
            refusal = _as_chat_error(error)
        # Not in the handler: while it yields, the error would reference the frames that
        # it went through, and the request in them.
        if refusal is not None:
            self.outcome = outcome_of(refusal)
            yield encoder.fail(refusal)

    async def _next(self, answers: AsyncGenerator[Answer]) -> Answer | None:
        # By the deadline of the whole answer: one limit for waiting and writing.
        left_s = self._deadline - self._timer.clock()
        async with asyncio.timeout(left_s):
            return await anext(answers, None)

    async def _unpadded_whole(
        self, sealer: Sealer, asked: CoverRequest | ChallengeRequest | ChatError
    ) -> bytes:
        refusal: ChatError | None = None
        content = b""
        match asked:
            case ChatError():
                refusal = asked
            case CoverRequest():
                # The gateway accepts none if answers are not padded.
                refusal = ChatError(404, "not_found")
            case ChallengeRequest():
                try:
                    _, acquiring = self._acquire(asked)
                    async with asyncio.timeout(WAIT_S):
                        content = await acquiring
                except Exception as error:  # noqa: BLE001 - the edge: failures are reported inside the seal
                    refusal = challenge_error(error)
        if refusal is not None:
            self.outcome = outcome_of(refusal)
            return seal_error(sealer, refusal)
        self.outcome = Event.CHALLENGED
        fields = ((b"content-type", JSON_TYPE),)
        begun = sealer.begin(STATUS_OK, fields)
        return begun + sealer.write(content) + sealer.finish()


class _ModelRun:
    """Runs the model while a timer sends: its output is written into the content.

    Args:
        sealer: knows whether the answer has ended.
        receipt: records whether the model ran.

    Attributes:
        content: None if all of it is available at once.
    """

    def __init__(self, sealer: PaddedSealer, receipt: Receipting) -> None:
        self.content: PaddedContent | None = None
        self._sealer = sealer
        self._receipt = receipt
        self._task: asyncio.Task[None] | None = None
        self._all_said = False
        self._sent = asyncio.Event()

    def start(self, model: AnswersChat, chat: ChatCompletionRequest) -> None:
        """Start the model, once."""
        if self._task is None and self.content is not None and not self._sealer.ended:
            self._task = asyncio.create_task(self._run(self.content, model, chat))

    def wake(self) -> None:
        """Notify a waiting model that a frame was sent."""
        self._sent.set()

    def abandon(self) -> None:
        """Stop a model that has more output: the content has ended."""
        if self._task is not None and not self._all_said:
            self._task.cancel()

    async def stop(self) -> None:
        """Stop the model and wait until it has stopped."""
        # Released: a cancelled task references its error, that the frame of ``_run``
        # with the request, and that frame us. See ``ChatError.alone``.
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task})

    async def _run(
        self, content: PaddedContent, model: AnswersChat, chat: ChatCompletionRequest
    ) -> None:
        try:
            async with aclosing(model.answer(chat)) as answers:
                async for answer in answers:
                    if isinstance(answer, Begun):
                        self._receipt.model_ran()
                    content.take(answer)
                    self._all_said = isinstance(answer, Ending)
                    if self._sealer.ended and not self._all_said:
                        return
                    # Output that is read faster than it is sent would have to be
                    # buffered.
                    while content.is_behind and not self._sealer.ended:
                        self._sent.clear()
                        await self._sent.wait()
            content.fail(ChatError(SERVER_FAULT, "internal_error"))
        except Exception as error:  # noqa: BLE001 - the edge: failures are reported inside the seal
            content.fail(_as_chat_error(error))


class _Encoder(Protocol):
    """Turns the model's output into sealed bytes."""

    def take(self, answer: Answer) -> bytes: ...

    def fail(self, error: ChatError) -> bytes: ...


class _WholeEncoder:
    """One JSON object, sealed when it is complete."""

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
            self._sealer.begin(STATUS_OK, fields)
            + self._sealer.write(content)
            + self._sealer.finish()
        )

    def fail(self, error: ChatError) -> bytes:
        return seal_error(self._sealer, error)


class _EventEncoder:
    """Server-sent events, each sealed as it comes."""

    def __init__(self, sealer: Sealer, head: AnswerHead, n: int) -> None:
        self._sealer = sealer
        self._head = head
        self._n = n
        self._begun = False

    def take(self, answer: Answer) -> bytes:
        match answer:
            case Begun():
                event = first_event(self._head, self._n)
                self._begun = True
                fields = ((b"content-type", EVENT_STREAM_TYPE),)
                head = self._sealer.begin(STATUS_OK, fields)
                return head + self._sealer.write(event)
            case Piece():
                empty = not answer.text and answer.call is None
                if empty and answer.logprob is None:
                    return b""
                return self._sealer.write(piece_event(self._head, answer))
            case Ending():
                end = self._sealer.write(last_events(self._head, answer))
                return end + self._sealer.finish()

    def fail(self, error: ChatError) -> bytes:
        if not self._begun:
            return seal_error(self._sealer, error)
        # The status was sent already, so the stream itself reports the error.
        return self._sealer.write(error_event(error)) + self._sealer.finish()


def _as_chat_error(error: Exception) -> ChatError:  # noqa: PLR0911 - one error each
    match error:
        case ChatError():
            return error.alone()
        case BusyError():
            return ChatError(503, "busy", fields=RETRY_LATER)
        case EngineCrashedError():
            return ChatError(SERVER_FAULT, "engine_crashed")
        case EngineHungError():
            return ChatError(SERVER_FAULT, "engine_hung")
        case ModelUnavailableError():
            return ChatError(503, "model_unavailable", fields=RETRY_LATER)
        case PromptTooLongError():
            return ChatError(
                400,
                "context_length_exceeded",
                param="messages",
                too_long=error.too_long,
            )
        case TimeoutError():
            return ChatError(504, "time_limit")
        case _:
            return ChatError(SERVER_FAULT, "internal_error")
