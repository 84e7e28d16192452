"""The content of a padded answer, whose frames are sent whatever it contains.

Takes the model's output as it comes and passes whole units to the frames: text that
waits at a tick becomes one event. Output that would exceed the longest answer ends it
with finish reason ``length``; room for an end, or for an error, is always reserved. An
answer to a challenge has the same length and duration whatever it contains: evidence
that is missing when it would have to begin is given up, so that no answer exceeds the
common bucket. Knows no time: ``tick`` is called for it.
"""

import asyncio
from functools import partial
from typing import Final, Protocol

from curtilage.enclave_server.answer.challenger import ChallengeShape, challenge_error
from curtilage.enclave_server.errors import ChatError
from curtilage.enclave_server.ohttp.chat import ChatCompletionRequest
from curtilage.enclave_server.ohttp.openai_answers import (
    EVENT_STREAM_TYPE,
    JSON_TYPE,
    Answer,
    AnswerHead,
    Begun,
    Ending,
    Piece,
    completion_bytes,
    encode_completion,
    encode_error,
    error_event,
    error_type,
    first_event,
    last_events,
    last_events_bytes,
    merged_event,
    outgrown,
    piece_bytes,
    piece_event,
    tellable,
    text_bytes,
)
from curtilage.enclave_server.ohttp.sealing import PaddedSealer
from curtilage.enclave_server.telemetry import Event
from curtilage.wire.errors import MalformedError
from curtilage.wire.frames import fill_event_stream, fill_json

STATUS_OK: Final = 200
SERVER_FAULT: Final = 500
PENDING_FRAMES: Final = 4
"""Bytes that may wait for their frame before the model has to wait as well."""


class PaddedContent(Protocol):
    """The content of one answer in progress; its head is set."""

    @property
    def outcome(self) -> Event:
        """Its end; ``ANSWER_CANCELLED`` until then."""
        ...

    @property
    def is_behind(self) -> bool:
        """Whether the model should wait until frames are sent."""
        ...

    def take(self, answer: Answer) -> None:
        """Take the model's output; after the end it is dropped."""
        ...

    def fail(self, error: ChatError) -> None:
        """End in an error, unless the answer has ended."""
        ...

    def tick(self) -> None:
        """Prepare for the next frame: it takes room, used or not."""
        ...


class PaddedStream:
    """Server-sent events.

    Args:
        sealer: not begun.
        head: the values that the events repeat.
        n: number of answers.
    """

    def __init__(self, sealer: PaddedSealer, head: AnswerHead, n: int = 1) -> None:
        self._sealer = sealer
        self._head = head
        self._n = n
        self._waiting: dict[int, list[str]] = {}  # by the choice
        self._waiting_bytes = 0
        self._event_bytes = len(merged_event(head, ()))
        self._end_bytes = last_events_bytes(head, n)
        self._prompt_tokens = 0
        self._tokens = 0
        self.outcome = Event.ANSWER_CANCELLED
        fields = ((b"content-type", EVENT_STREAM_TYPE),)
        sealer.begin(STATUS_OK, fields, filler=fill_event_stream)

    @property
    def is_behind(self) -> bool:
        """Whether the model should wait; see the Protocol."""
        most = PENDING_FRAMES * self._sealer.parameters.frame_bytes
        return self._sealer.pending + self._waiting_bytes > most

    def take(self, answer: Answer) -> None:
        """Take the model's output; see the Protocol."""
        if self._sealer.ended:
            return
        match answer:
            case Begun(prompt_tokens=prompt_tokens):
                self._prompt_tokens = prompt_tokens
                event = first_event(self._head, self._n)
                if len(event) > self._room():
                    self._cut()
                else:
                    self._sealer.write(event)
            case Piece():
                self._take_piece(answer)
            case Ending():
                self._end(answer)

    def fail(self, error: ChatError) -> None:
        """End in an error event; see the Protocol."""
        if self._sealer.ended:
            return
        # Earlier output cannot be withdrawn: its frames were sent, and the client has
        # displayed them.
        self._flush()
        event = error_event(error)
        if len(event) <= self._sealer.room:
            self._sealer.write(event)
        self._sealer.end()
        self.outcome = outcome_of(error)

    def tick(self) -> None:
        """Write what waits, or end while there is room; see the Protocol."""
        if self._sealer.ended:
            return
        frame_bytes = self._sealer.parameters.frame_bytes
        if self._sealer.pending < frame_bytes:
            self._flush()
        # After the next frame there must still be room for an end: an answer that ran
        # out of room would end without a finish reason, as a truncated one does.
        if self._room() < frame_bytes:
            self._cut()

    def _room(self) -> int:
        """Return the room that is left after what waits and an end."""
        waiting = self._event_bytes * len(self._waiting) + self._waiting_bytes
        return self._sealer.room - waiting - self._end_bytes

    def _take_piece(self, piece: Piece) -> None:
        # A log-probability belongs to one token, so such a piece is an event of its own
        # and cannot wait for others. Nor does a call.
        if piece.logprob is not None or piece.call is not None:
            self._flush()
            event = piece_event(self._head, piece)
            if len(event) > self._room():
                self._cut()
                return
            self._tokens += 1
            self._sealer.write(event)
            return
        added = text_bytes(piece.text)
        if added + self._event_bytes > self._room():
            self._cut()
            return
        self._tokens += 1
        # Counted, yet nothing waits: bytes of a character that is incomplete.
        if piece.text:
            self._waiting.setdefault(piece.choice, []).append(piece.text)
            self._waiting_bytes += added

    def _flush(self) -> None:
        for choice, texts in self._waiting.items():
            self._sealer.write(merged_event(self._head, texts, choice))
        self._waiting.clear()
        self._waiting_bytes = 0

    def _cut(self) -> None:
        # Out of room before the first token: not the answer was too long, but the wait
        # for it.
        if not self._tokens:
            self.fail(ChatError(504, "time_limit"))
            return
        self._end(outgrown(self._prompt_tokens, self._tokens, self._n))

    def _end(self, ending: Ending) -> None:
        self._flush()
        self._sealer.write(last_events(self._head, ending))
        self._sealer.end()
        self.outcome = Event.ANSWERED


class PaddedWhole:
    """One JSON object, preceded by white space while it was generated.

    Args:
        sealer: not begun.
        head: of the completion.
        logprobs: whether they were asked for.
        n: number of answers.
    """

    is_behind = False
    """Its content is sent only at its end, and is limited by its room."""

    def __init__(
        self, sealer: PaddedSealer, head: AnswerHead, *, logprobs: bool, n: int = 1
    ) -> None:
        self._n = n
        self._sealer = sealer
        self._head = head
        self._logprobs = logprobs
        self._pieces: list[Piece] = []
        self._bytes = completion_bytes(head, n)
        self._prompt_tokens = 0
        self.outcome = Event.ANSWER_CANCELLED
        fields = ((b"content-type", JSON_TYPE),)
        sealer.begin(STATUS_OK, fields, filler=fill_json)

    def take(self, answer: Answer) -> None:
        """Take the model's output; see the Protocol."""
        if self._sealer.ended:
            return
        match answer:
            case Begun(prompt_tokens=prompt_tokens):
                self._prompt_tokens = prompt_tokens
            case Piece():
                added = piece_bytes(answer, logprobs=self._logprobs)
                if self._bytes + added > self._sealer.room:
                    self._cut()
                    return
                self._pieces.append(answer)
                self._bytes += added
            case Ending():
                self._end(answer)

    def fail(self, error: ChatError) -> None:
        """End in an error object; see the Protocol."""
        if self._sealer.ended:
            return
        # Nothing of it was sent, and with an error after it, it would not be JSON.
        self._pieces.clear()
        content = encode_error(error)
        if len(content) <= self._sealer.room:
            self._sealer.write(content)
        self._sealer.end()
        self.outcome = outcome_of(error)

    def tick(self) -> None:
        """End while there is room; see the Protocol."""
        frame_bytes = self._sealer.parameters.frame_bytes
        if not self._sealer.ended and self._sealer.room - frame_bytes < self._bytes:
            self._cut()

    def _cut(self) -> None:
        if not self._pieces:
            self.fail(ChatError(504, "time_limit"))
            return
        self._end(outgrown(self._prompt_tokens, len(self._pieces), self._n))

    def _end(self, ending: Ending) -> None:
        content = encode_completion(
            self._head, self._pieces, ending, logprobs=self._logprobs
        )
        self._pieces.clear()
        self._sealer.write(content)
        self._sealer.end()
        self.outcome = Event.ANSWERED


class PaddedChallenge:
    """Evidence, or the error that replaces it.

    The head is sent with the first frame: its status reflects what is known by then; a
    later error is only in the content.

    Args:
        sealer: not begun.
        acquiring: returns the content.
        shape: of all answers to challenges.
    """

    is_behind = False
    """Nothing waits for its frames."""

    def __init__(
        self,
        sealer: PaddedSealer,
        acquiring: "asyncio.Task[bytes]",
        shape: ChallengeShape,
    ) -> None:
        self._sealer = sealer
        self._acquiring = acquiring
        self._shape = shape
        self._begun = False
        self.outcome = Event.ANSWER_CANCELLED

    def take(self, answer: Answer) -> None:
        """Do nothing: there is no model; see the Protocol."""

    def fail(self, error: ChatError) -> None:
        """End in an error; see the Protocol."""
        # Even if the answer has ended: the device is free for the next challenge.
        self._acquiring.cancel()
        if self._begun and self._sealer.ended:
            return
        if self._begun:
            content = encode_error(error)
            if len(content) <= self._room():
                self._sealer.write(content)
            self._sealer.end()
        else:
            # Whatever it contains, in the common bucket.
            self._begun = True
            write_error(self._sealer, error, least_bucket=self._shape.bucket)
        self.outcome = outcome_of(error)

    def tick(self) -> None:
        """Take the evidence when it is available; see the Protocol."""
        if self._begun and self._sealer.ended:
            return
        if self._acquiring.done():
            self._finish()
            return
        self._begin()
        # After the next frame the evidence must still fit.
        next_bytes = self._sealer.parameters.frame_bytes
        if self._room() - next_bytes < self._shape.content_bytes:
            self.fail(ChatError(503, "no_evidence"))

    def _finish(self) -> None:
        try:
            content = self._acquiring.result()
        # Any exception: the failure is reported inside the seal.
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001
            cause = error if isinstance(error, Exception) else TimeoutError()
            self.fail(challenge_error(cause))
            return
        self._begin()
        if len(content) > self._room():
            self.fail(ChatError(503, "no_evidence"))
            return
        self._sealer.write(content)
        self._sealer.end()
        self.outcome = Event.CHALLENGED

    def _begin(self) -> None:
        if not self._begun:
            self._begun = True
            fields = ((b"content-type", JSON_TYPE),)
            self._sealer.begin(
                STATUS_OK, fields, filler=fill_json, least_bucket=self._shape.bucket
            )

    def _room(self) -> int:
        return self._sealer.room_in(self._shape.bucket)


def begin_content(
    chat: ChatCompletionRequest, sealer: PaddedSealer, head: AnswerHead
) -> PaddedContent:
    """Set the answer's head, before anything of its content is known."""
    if chat.stream:
        return PaddedStream(sealer, head, chat.n)
    return PaddedWhole(sealer, head, logprobs=chat.logprobs, n=chat.n)


def write_cover(sealer: PaddedSealer, bucket: int) -> None:
    """Write the whole answer to a cover request."""
    fields = ((b"content-type", JSON_TYPE),)
    sealer.begin(STATUS_OK, fields, filler=fill_json, least_bucket=bucket)
    sealer.write(b"{}")
    sealer.end()


def write_error(
    sealer: PaddedSealer, error: ChatError, *, least_bucket: int = 0
) -> None:
    """Write the whole answer to a request that was refused at once.

    If a release's frames are too short for all of it, the status is still sent.
    """
    error = tellable(error)
    fields = ((b"content-type", error_type(error)),)
    begin = partial(sealer.begin, filler=fill_json, least_bucket=least_bucket)
    try:
        begin(error.status, (*fields, *error.fields))
    except MalformedError:
        begin(error.status, fields)
    content = encode_error(error)
    if len(content) <= sealer.room:
        sealer.write(content)
    sealer.end()


def outcome_of(error: ChatError) -> Event:
    """Return the event that an answer ending in ``error`` is counted as."""
    named = {
        "busy": Event.BUSY,
        "date": Event.DATE_REFUSED,
        "no_evidence": Event.CHALLENGE_FAILED,
        "replayed": Event.REPLAYED,
    }
    if error.code in named:
        return named[error.code]
    if error.status >= SERVER_FAULT:
        return Event.ANSWER_FAILED
    return Event.INNER_REFUSED
