"""Opens a sealed answer: checks the frames' shape, the content and its receipt.

Sans-IO. No part of a query is passed in here. Where the evidence binds a receipt key,
an answer is complete only after the receipt at its end was verified. In a padded answer
that end follows the last content; the frames behind it hold padding.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Protocol

from curtilage.attest.errors import RefusedError
from curtilage.client.chat.answer import AnswerEvent, Finished
from curtilage.client.errors import EnclaveError
from curtilage.client.remote.answer_reader import ContentReader, content_reader
from curtilage.client.remote.reasons import EnclaveFailure
from curtilage.client.remote.receipts import ReceiptCheck
from curtilage.wire import bhttp, frames
from curtilage.wire.errors import TruncatedError, WireError
from curtilage.wire.shaping import Shape, TransportParameters

MAX_ANSWER_BYTES = 8 * 1024 * 1024  # unpadded: thousands of times the largest

ReaderOf = Callable[[bhttp.ResponseHead], ContentReader]


class OpensFrames(Protocol):
    """Opens the frames of one answer; created when the request is sealed."""

    def push(self, data: bytes) -> Iterable[bytes]:
        """Return the frames that are complete so far."""
        ...

    def finish(self) -> bytes:
        """Return the final frame."""
        ...


class AnswerReader:
    """Turns the sealed answer's bytes into events; a failure is final.

    Call ``push`` with each piece received and ``finish`` at the end of the body. A
    truncated stream is never reported as complete. A padded answer is ``Finished`` as
    soon as its receipt was verified, which covers all content; without a receipt, at
    the end mark inside, after which only filler may follow. The frames behind it are
    still checked. An unpadded answer is ``Finished`` after the final chunk opened.

    Args:
        opener: the request's.
        parameters: the shape that the enclave's evidence promises.
        reader_of: returns the reader of the content for a head.
        check: of the receipt, where the evidence promises one; the answer is then
            complete only with a valid receipt.

    Attributes:
        receipt: the verified receipt, once it was read, or None.
    """

    def __init__(
        self,
        opener: OpensFrames,
        parameters: TransportParameters,
        reader_of: ReaderOf = content_reader,
        check: ReceiptCheck | None = None,
    ) -> None:
        self.receipt: bytes | None = None
        self._receipt_check = check
        self._opener = opener
        self._padded = parameters.shape is Shape.PADDED
        self._check = frames.FrameCheck(parameters)
        # Limits come from the shape in this enclave's evidence, not from a default.
        self._limit = most_bytes(parameters) if self._padded else MAX_ANSWER_BYTES
        self._decoder = bhttp.ResponseDecoder(frames.answer_limits(parameters))
        self._reader_of = reader_of
        self._content = ContentReader()
        self._finish_reported = False
        self._received = 0

    @property
    def frames(self) -> int:
        """Number of frames opened so far."""
        return self._check.frames

    def push(self, data: bytes) -> list[AnswerEvent]:
        """Open the data received.

        Raises:
            EnclaveError: malformed, oversize, not of the promised shape, or the
                answer is a refusal.
        """
        # Checked before anything is opened: an endless answer must not fill the memory,
        # and its length is all that a relay, which has no key, can choose.
        self._received += len(data)
        if self._received > self._limit:
            raise EnclaveError(EnclaveFailure.ANSWER_BROKEN)
        events: list[AnswerEvent] = []
        try:
            for plaintext in self._opener.push(data):
                # Frames must have the promised size. Otherwise an enclave could reveal
                # the question to an observer of the wire by the sizes that it chooses.
                self._check.chunk(len(plaintext))
                events += self._read(self._decoder.push(plaintext))
        except WireError:
            raise EnclaveError(EnclaveFailure.ANSWER_BROKEN) from None
        return events

    def finish(self) -> list[AnswerEvent]:
        """Open the final chunk and close the answer.

        Raises:
            EnclaveError: as ``push``, and when the answer was truncated.
        """
        try:
            # The final chunk is sealed with "final" as associated data, so a relay
            # that stops early cannot make a middle chunk pass for the end.
            last = self._opener.finish()
            # Shape before content: number and size of the frames as promised.
            self._check.finish(len(last))
            events = list(self._read(self._decoder.push(last)))
            events += self._read(self._decoder.finish())
        except TruncatedError:
            raise EnclaveError(EnclaveFailure.ANSWER_INCOMPLETE) from None
        except WireError:
            raise EnclaveError(EnclaveFailure.ANSWER_BROKEN) from None
        return [*events, *self._finished()]

    def _read(self, events: Iterable[bhttp.ResponseEvent]) -> Iterator[AnswerEvent]:
        """Read the inner response (RFC 9292) and record it for the receipt."""
        check = self._receipt_check
        for event in events:
            if isinstance(event, bhttp.ResponseHead):
                if check is not None:
                    check.head(event.status)
                self._content = self._reader_of(event)
            elif isinstance(event, bhttp.ContentChunk):
                # Filler included: the receipt covers every byte of the content.
                if check is not None:
                    check.content(event.data)
                yield from self._content.push(event.data)
                # Filler to the end of the bucket may take a minute, and a reader that
                # has the whole answer should not wait for it.
                if self._padded and check is None and self._content.finished:
                    yield from self._finished()
            else:
                yield from self._end(event.trailers)

    def _end(self, trailers: tuple[bhttp.Field, ...]) -> Iterator[Finished]:
        """Verify the receipt; yield the end of a padded answer."""
        self._content.end()
        if self._receipt_check is not None:
            # Nothing was reported as complete before: without its receipt, no party can
            # be held to this answer.
            try:
                self.receipt = self._receipt_check.end(trailers)
            except RefusedError:
                raise EnclaveError(EnclaveFailure.RECEIPT_INVALID) from None
        # An unpadded answer may still be cut: its final chunk is this one.
        if self._padded:
            yield from self._finished()

    def _finished(self) -> Iterator[Finished]:
        """Yield the end, once."""
        if not self._finish_reported:
            self._finish_reported = True
            receipted = self.receipt is not None
            yield replace(self._content.end(), receipted=receipted)


def most_bytes(parameters: TransportParameters) -> int:
    """Return an upper bound for the sealed bytes of an answer of this shape."""
    # A nonce first; each frame adds its length field and its tag. Rounded up.
    return 64 + parameters.max_frames * (parameters.frame_bytes + 32)
