"""Turns an answer into sealed bytes: token by token, or as constant frames.

Knows the order of head, content and end, and which bytes may be sent when; neither the
content nor HTTP. The wire's sealers are passed in by ``gateway``, the only module that
opens what is sealed.
"""

from typing import Protocol

from curtilage.enclave_server.ohttp.receipts import NO_RECEIPT, Receipting
from curtilage.wire import bhttp
from curtilage.wire.bhttp import Fields
from curtilage.wire.errors import ConsumedError
from curtilage.wire.frames import (
    AnswerFramer,
    Filler,
    Frame,
    encode_padded_response,
)
from curtilage.wire.hpke.suite import Suite
from curtilage.wire.media import OHTTP_CHUNKED_RESPONSE, OHTTP_RESPONSE
from curtilage.wire.shaping import TransportParameters


class SealsChunks(Protocol):
    """The wire's sealer of a chunked response."""

    def begin(self) -> bytes:
        """Return the nonce."""
        ...

    def seal(self, plaintext: bytes) -> bytes:
        """Seal a chunk that is not the last."""
        ...

    def finish(self, plaintext: bytes = b"") -> bytes:
        """Seal the last chunk."""
        ...


class SealsWhole(Protocol):
    """The wire's sealer of a plain response."""

    def seal(self, bhttp: bytes) -> bytes:
        """Seal the whole response."""
        ...


class Sealer(Protocol):
    """Seals one unpadded answer: ``begin``, any number of ``write``, ``finish``.

    Each returns the bytes to send now, which may be none.
    """

    @property
    def media_type(self) -> str:
        """The outer Content-Type of the answer."""
        ...

    def begin(self, status: int, fields: Fields) -> bytes:
        """Seal the inner head."""
        ...

    def write(self, content: bytes) -> bytes:
        """Seal some inner content."""
        ...

    def finish(self) -> bytes:
        """Seal the end; without it the client sees a truncated answer."""
        ...


class ChunkedSealer:
    """Streams: content can be sent as soon as it is written.

    Args:
        sealer: of the chunked response.
        chunk_bytes: plaintext of the longest chunk that a receiver takes.
        receipt: takes what is sealed, and ends the answer.
    """

    media_type = OHTTP_CHUNKED_RESPONSE

    def __init__(
        self,
        sealer: SealsChunks,
        chunk_bytes: int,
        receipt: Receipting = NO_RECEIPT,
    ) -> None:
        self._sealer = sealer
        self._chunk_bytes = chunk_bytes
        self._receipt = receipt

    def begin(self, status: int, fields: Fields) -> bytes:
        """Seal the inner head; see the Protocol."""
        # The nonce is sent with the head: RFC 9458, section 4.4 derives the response's
        # keys from it, so it is drawn once and precedes all chunks.
        self._receipt.begin(status)
        head = bhttp.encode_response_head(status, fields)
        return self._sealer.begin() + self._sealer.seal(head)

    def write(self, content: bytes) -> bytes:
        """Seal some inner content; see the Protocol."""
        # A chunk of binary HTTP without content would be its end (RFC 9292, section
        # 3.2).
        self._receipt.add(content)
        encoded = bhttp.encode_content_chunk(content) if content else b""
        return b"".join(
            self._sealer.seal(encoded[start : start + self._chunk_bytes])
            for start in range(0, len(encoded), self._chunk_bytes)
        )

    def finish(self) -> bytes:
        """Seal the end; see the Protocol."""
        # The last chunk is sealed with other associated data than the others: an
        # attacker who truncates the answer cannot make another chunk the last.
        return self._sealer.finish(bhttp.encode_content_end(self._receipt.trailers()))


class PlainSealer:
    """Buffers everything: plain OHTTP seals an answer whole.

    Args:
        sealer: of the plain response.
        receipt: takes what is sealed, and ends the answer.
    """

    media_type = OHTTP_RESPONSE

    def __init__(self, sealer: SealsWhole, receipt: Receipting = NO_RECEIPT) -> None:
        self._sealer = sealer
        self._receipt = receipt
        self._status = 0
        self._fields: Fields = ()
        self._content = bytearray()

    def begin(self, status: int, fields: Fields) -> bytes:
        """Record the inner head; see the Protocol."""
        # Nothing may be sent: RFC 9458, section 4.4 seals the response as one message.
        self._status, self._fields = status, fields
        return b""

    def write(self, content: bytes) -> bytes:
        """Record some inner content; see the Protocol."""
        self._content += content
        return b""

    def finish(self) -> bytes:
        """Seal all of it; see the Protocol."""
        response = _whole(
            self._status, self._fields, bytes(self._content), self._receipt
        )
        self._content[:] = bytes(len(self._content))
        return self._sealer.seal(bhttp.encode_response(response))


class FrameOutput(Protocol):
    """Turns the frames of one answer into bytes to send."""

    @property
    def media_type(self) -> str:
        """The outer Content-Type of the answer."""
        ...

    def begin(self, status: int, fields: Fields) -> None:
        """Take the inner head, which the first frame contains as well."""
        ...

    def write(self, content: bytes) -> None:
        """Take inner content, which the frames contain as well."""
        ...

    def frame(self, frame: Frame) -> bytes:
        """Return the bytes to send at this frame's tick; possibly none."""
        ...

    def trailers(self) -> Fields:
        """Return the trailers of the final frame, when it is due."""
        ...


class ChunkedOutput:
    """Each frame is one chunk.

    Args:
        sealer: of the chunked response.
        receipt: takes the content of the frames, and ends the last.
    """

    media_type = OHTTP_CHUNKED_RESPONSE

    def __init__(self, sealer: SealsChunks, receipt: Receipting = NO_RECEIPT) -> None:
        self._sealer = sealer
        self._receipt = receipt
        self._opening = b""

    def begin(self, status: int, fields: Fields) -> None:  # noqa: ARG002 - the frame holds them
        """Draw the nonce, which is sent with the first frame."""
        self._receipt.begin(status)
        self._opening = self._sealer.begin()

    def write(self, content: bytes) -> None:
        """Do nothing: the frames contain the content."""

    def frame(self, frame: Frame) -> bytes:
        """Seal one frame; see the Protocol."""
        # The trailers are in the final frame, so the receipt is complete before it.
        if frame.final:
            return self._sealer.finish(frame.plaintext)
        self._receipt.add(frame.content)
        # The nonce is sent with the first frame, never alone: alone it would disclose
        # when the answer began, and make one more write than frames.
        opening, self._opening = self._opening, b""
        return opening + self._sealer.seal(frame.plaintext)

    def trailers(self) -> Fields:
        """Return the receipt over all frames' content; see the Protocol."""
        return self._receipt.trailers()


class PlainOutput:
    """Sends nothing before the last frame's tick; then everything at once.

    The result is as long as the frames would be together.

    Args:
        sealer: of the plain response.
        parameters: padded.
        suite: the request's.
        receipt: takes what is sealed, and ends the answer.
    """

    media_type = OHTTP_RESPONSE

    def __init__(
        self,
        sealer: SealsWhole,
        parameters: TransportParameters,
        suite: Suite,
        receipt: Receipting = NO_RECEIPT,
    ) -> None:
        self._sealer = sealer
        self._receipt = receipt
        self._parameters = parameters
        self._suite = suite
        self._status = 0
        self._fields: Fields = ()
        self._content = bytearray()
        self._frames = 0

    def begin(self, status: int, fields: Fields) -> None:
        """Record the inner head; see the Protocol."""
        self._status, self._fields = status, fields

    def write(self, content: bytes) -> None:
        """Record some inner content; see the Protocol."""
        self._content += content

    def frame(self, frame: Frame) -> bytes:
        """Count one frame; at the final one seal all; see the Protocol."""
        # Plain OHTTP seals an answer whole, so nothing is sent before its last tick:
        # sent when it is ready, it would disclose when the model was.
        self._frames += 1
        if not frame.final:
            return b""
        response = _whole(
            self._status, self._fields, bytes(self._content), self._receipt
        )
        # Now, not when the answer is collected: sealed content is not kept.
        self._content[:] = bytes(len(self._content))
        self._content.clear()
        encoded, _ = encode_padded_response(
            response,
            self._parameters,
            self._suite,
            # As long as the frames would be together, whatever it contains.
            least_bucket=self._parameters.bucket_of(self._frames),
        )
        return self._sealer.seal(encoded)

    def trailers(self) -> Fields:
        """Return none: the trailers are at the end of the whole answer."""
        return ()


class PaddedSealer:
    """Seals one answer in constant frames: ``next`` once at every tick.

    ``begin`` once, ``write`` any number of times, ``end`` once; ``next`` from
    ``begin`` on until ``over``.
    """

    def __init__(self, parameters: TransportParameters, output: FrameOutput) -> None:
        self.parameters = parameters
        self._output = output
        self._begun: AnswerFramer | None = None

    @property
    def media_type(self) -> str:
        """The outer Content-Type of the answer."""
        return self._output.media_type

    @property
    def room(self) -> int:
        """Bytes of content that still fit."""
        return self._framer.room

    def room_in(self, bucket: int) -> int:
        """Return the bytes of content that still fit before a bucket's end."""
        return self._framer.room_in(bucket)

    @property
    def pending(self) -> int:
        """Bytes of content that wait for their frame."""
        return self._framer.pending

    @property
    def sent(self) -> int:
        """Number of frames so far."""
        return self._framer.sent

    @property
    def ended(self) -> bool:
        """Whether ``end`` was called."""
        return self._framer.ended

    @property
    def over(self) -> bool:
        """Whether the final frame was sealed; False if none has begun."""
        return self._begun is not None and self._begun.over

    def begin(
        self, status: int, fields: Fields, *, filler: Filler, least_bucket: int = 0
    ) -> None:
        """Set the inner head, and the filler for empty frames."""
        # In the first frame, whatever the status: a refusal looks like an answer.
        head = bhttp.encode_response_head(status, fields)
        self._begun = AnswerFramer(
            self.parameters, head, filler=filler, least_bucket=least_bucket
        )
        self._output.begin(status, fields)

    def write(self, content: bytes) -> None:
        """Add whole units of content, after which filler may follow.

        Raises:
            LimitExceededError: longer than ``room``.
        """
        # The framer first: it refuses what does not fit, and then nothing of it is
        # recorded.
        self._framer.write(content)
        self._output.write(content)

    def end(self) -> None:
        """End the content; frames continue to the bucket's end."""
        # Requested when the final frame is due: filler is content too, and the receipt
        # covers all of it.
        self._framer.end(self._output.trailers)

    def next(self) -> bytes:
        """Seal the frame of this tick; return what to send, maybe nothing."""
        return self._output.frame(self._framer.next())

    @property
    def _framer(self) -> AnswerFramer:
        if self._begun is None:
            raise ConsumedError("this answer has not begun")
        return self._begun


def _whole(
    status: int, fields: Fields, content: bytes, receipt: Receipting
) -> bhttp.Response:
    # In this order: the trailers cover the status and the content before them.
    receipt.begin(status)
    receipt.add(content)
    return bhttp.Response(
        status=status, fields=fields, content=content, trailers=receipt.trailers()
    )
