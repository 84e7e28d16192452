"""Open a sealed answer: frames of the promised shape, the content, its receipt.

Sans-IO. Nothing of a query comes here. Where the evidence binds a receipt key, no
answer is finished before the receipt at its end was verified.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Protocol

from curtilage.attest.errors import RefusedError
from curtilage.client.answer import AnswerEvent, Finished
from curtilage.client.errors import EnclaveError, FailureReason
from curtilage.client.remote.answer_reader import ContentReader, content_reader
from curtilage.client.remote.receipts import ReceiptCheck
from curtilage.wire import bhttp, frames
from curtilage.wire.errors import TruncatedError, WireError
from curtilage.wire.shaping import Shape, TransportParameters

MAX_ANSWER_BYTES = 8 * 1024 * 1024  # unpadded: thousands of times the largest

ReaderOf = Callable[[bhttp.ResponseHead], ContentReader]


class OpensFrames(Protocol):
    """What opens the frames of one answer; it comes from sealing the request."""

    def push(self, data: bytes) -> Iterable[bytes]:
        """Return the frames that are whole by now."""
        ...

    def finish(self) -> bytes:
        """Return the last frame, which says that it is the last."""
        ...


class AnswerReader:
    """Turn the sealed answer's bytes into events; a failure is final.

    Call ``push`` with what arrives and ``finish`` at the end of the body. A
    stream that was cut is never reported as complete: ``Finished`` comes from
    ``finish`` alone, after the final chunk opened. Only a padded answer without
    a receipt is finished earlier, at the end mark inside, which only filler
    can follow; what follows is checked for its shape all the same.

    Args:
        opener: the request's.
        parameters: the shape that the enclave's evidence promises.
        reader_of: returns what reads the content behind a head.
        check: of the receipt, where the evidence promises one; the answer then
            is finished only with it.

    Attributes:
        receipt: the verified receipt, once the answer is finished, or None.
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
        # Each limit is of this answer: what the evidence promises, not what is usual.
        self._limit = most_bytes(parameters) if self._padded else MAX_ANSWER_BYTES
        self._decoder = bhttp.ResponseDecoder(frames.answer_limits(parameters))
        self._reader_of = reader_of
        self._content = ContentReader()
        self._told = False
        self._received = 0
        self._trailers: tuple[bhttp.Field, ...] = ()

    @property
    def frames(self) -> int:
        """How many frames opened so far."""
        return self._check.frames

    def push(self, data: bytes) -> list[AnswerEvent]:
        """Open what arrived.

        Raises:
            EnclaveError: broken, oversize, of another shape than was promised,
                or an answer that is a refusal.
        """
        # Before anything is opened: an endless answer must not fill the memory, and
        # its length is all that a relay, without the key, can choose.
        self._received += len(data)
        if self._received > self._limit:
            raise EnclaveError(FailureReason.ANSWER_BROKEN)
        events: list[AnswerEvent] = []
        try:
            for plaintext in self._opener.push(data):
                # Frames of the promised size, so that an enclave cannot answer in
                # sizes of its choice and show by them, to an observer of the wire,
                # what it was asked.
                self._check.chunk(len(plaintext))
                events += self._read(self._decoder.push(plaintext))
        except WireError:
            raise EnclaveError(FailureReason.ANSWER_BROKEN) from None
        return events

    def finish(self) -> list[AnswerEvent]:
        """Open the final chunk and close the answer.

        Raises:
            EnclaveError: as ``push``, and when the answer was cut.
        """
        try:
            # The final chunk is sealed with "final" as associated data, so a relay
            # that stops early cannot make a middle chunk pass for the end.
            last = self._opener.finish()
            # Shape before content: frames in number as in size what was promised.
            self._check.finish(len(last))
            events = list(self._read(self._decoder.push(last)))
            events += self._read(self._decoder.finish())
        except TruncatedError:
            raise EnclaveError(FailureReason.ANSWER_INCOMPLETE) from None
        except WireError:
            raise EnclaveError(FailureReason.ANSWER_BROKEN) from None
        finished = self._content.end()
        if self._receipt_check is not None:
            # The last thing that is checked, and nothing was reported as complete
            # before: without its receipt, no party can be held to this answer.
            try:
                self.receipt = self._receipt_check.end(self._trailers)
            except RefusedError:
                raise EnclaveError(FailureReason.RECEIPT_INVALID) from None
            finished = replace(finished, receipted=True)
        return events if self._told else [*events, finished]

    def _read(self, events: Iterable[bhttp.ResponseEvent]) -> Iterator[AnswerEvent]:
        """Read what the inner response says (RFC 9292), and note it for the receipt."""
        check = self._receipt_check
        for event in events:
            if isinstance(event, bhttp.ResponseHead):
                if check is not None:
                    check.head(event.status)
                self._content = self._reader_of(event)
            elif isinstance(event, bhttp.ContentChunk):
                # Filler included: the receipt is about every byte of the content.
                if check is not None:
                    check.content(event.data)
                yield from self._content.push(event.data)
                yield from self._finished_early()
            else:
                self._trailers = event.trailers

    def _finished_early(self) -> Iterator[Finished]:
        """Yield the end once, as soon as a padded answer has reached it."""
        # Filler to the end of the bucket may take a minute, and no reader should
        # wait for it who has the whole answer. With a receipt all must: it comes
        # behind the filler.
        early = self._padded and self._receipt_check is None
        if early and not self._told and self._content.finished is not None:
            self._told = True
            yield self._content.finished


def most_bytes(parameters: TransportParameters) -> int:
    """Return more bytes than the longest answer of a shape has, sealed."""
    # A nonce before, and for each frame its length and its tag; with room to spare.
    return 64 + parameters.max_frames * (parameters.frame_bytes + 32)
