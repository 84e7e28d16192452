"""Answers in constant frames, which a timer sends whether or not there is content.

Knows binary HTTP of indeterminate length and what its content's media type
allows as filler; neither seals nor waits. Until the answer ends, the filler is part of
its content; after that it is the message's padding. So any reader of Oblivious HTTP,
binary HTTP and the media type reads an answer, and knows nothing of frames. See
docs/protocol.md for the layout.

Every frame is ``frame_bytes`` of plaintext for one chunk of chunked Oblivious
HTTP; the frames of an answer, the final one included, fill a bucket.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from curtilage.wire.bhttp import Response, encode_content_end, encode_response
from curtilage.wire.errors import (
    ConsumedError,
    LimitExceededError,
    MalformedError,
    WireError,
)
from curtilage.wire.hpke.suite import TAG_BYTES, Suite
from curtilage.wire.messages import DEFAULT_LIMITS, Fields, Limits
from curtilage.wire.shaping import Shape, TransportParameters
from curtilage.wire.varint import encode_varint

__all__ = [
    "AnswerFramer",
    "Filler",
    "Frame",
    "FrameCheck",
    "answer_bytes",
    "answer_limits",
    "encode_padded_response",
    "fill_event_stream",
    "fill_json",
]

Filler: TypeAlias = Callable[[int], bytes]

# A content chunk of up to 63 bytes has its length in one byte, any that fits
# into a frame in two. Where the two bytes could be one, they still are two:
# integers in a longer form than needed are legal.
_SHORT_BYTES: Final = 63
_TWO_OCTETS: Final = 0x4000


def fill_event_stream(count: int) -> bytes:
    """Return ``count`` bytes that say nothing between two server-sent events.

    A comment and the end of an event without data, which a reader drops; in less
    than three bytes, empty lines.
    """
    # HTML, section 9.2.6: a line that begins with a colon is ignored, and so is an
    # empty line where no data stand before it. Two line ends, so that whatever comes
    # next begins an event of its own.
    blank_lines = b"\n" * min(count, 2)
    return (
        b":".ljust(count - 2) + blank_lines if count > len(blank_lines) else blank_lines
    )


def fill_json(count: int) -> bytes:
    """Return ``count`` bytes that say nothing before or after a JSON text."""
    return b" " * count  # insignificant whitespace (RFC 8259, section 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One frame, to be sealed as one chunk.

    Attributes:
        plaintext: exactly ``frame_bytes`` bytes.
        final: to be sealed as the final chunk; nothing comes after it.
        content: what of it is content, filler included.
    """

    plaintext: bytes = field(repr=False)
    final: bool
    content: bytes = field(default=b"", repr=False)


class AnswerFramer:
    """Cuts one answer into frames; ``next`` at every tick until ``over``.

    The end of the message follows the last content at once, in a frame of its own: a
    reader knows then that the answer is complete. The frames behind it, up to a
    bucket, hold padding.

    Never says that an answer is too long after the fact: what ``write`` takes
    goes out. Every tick without anything to say uses up a frame all the same,
    so ``room`` falls with time.

    Args:
        parameters: of the release; padded.
        head: what ``encode_response_head`` gives, at most one frame.
        filler: makes the content of any length that says nothing.
        least_bucket: the answer's bucket is not below this one.

    Raises:
        MalformedError: the parameters are not padded, or ``head`` is longer than
            a frame.
        LimitExceededError: there is no bucket ``least_bucket``.
    """

    __slots__ = (
        "_closed",
        "_end",
        "_filler",
        "_head",
        "_least_frames",
        "_over",
        "_parameters",
        "_pending",
        "_sent",
    )

    def __init__(
        self,
        parameters: TransportParameters,
        head: bytes,
        *,
        filler: Filler,
        least_bucket: int = 0,
    ) -> None:
        if parameters.shape is not Shape.PADDED:
            raise MalformedError("frames: the transport parameters are not padded")
        if len(head) > parameters.frame_bytes:
            raise MalformedError("response head longer than a frame")
        # A single byte behind the head could only be the length 0, which would end
        # the content. The head ends with such a length, that of the field name that
        # ends the field section, and takes the byte into it: integers in a longer
        # form than needed are legal.
        if parameters.frame_bytes - len(head) == 1:
            head = head[:-1] + _TWO_OCTETS.to_bytes(2, "big")
        self._parameters = parameters
        self._least_frames = parameters.frames_of(least_bucket)
        self._head = head
        self._filler = filler
        self._pending = bytearray()
        self._end: bytes | Callable[[], Fields] | None = None
        self._sent = 0
        self._closed = False
        self._over = False

    @property
    def over(self) -> bool:
        """Whether the final frame was given."""
        return self._over

    @property
    def ended(self) -> bool:
        """Whether ``end`` was called: nothing can be written any more."""
        return self._end is not None

    @property
    def sent(self) -> int:
        """Number of frames given so far."""
        return self._sent

    @property
    def pending(self) -> int:
        """Bytes written and not yet in a frame."""
        return len(self._pending)

    @property
    def room(self) -> int:
        """Bytes of content that still fit before the last bucket's end."""
        return self.room_in(self._parameters.buckets - 1)

    def room_in(self, bucket: int) -> int:
        """Return the bytes of content that still fit before a bucket's end.

        Negative for what is written already and goes beyond it.

        Raises:
            LimitExceededError: there is no such bucket.
        """
        if self._end is not None:
            return 0
        # One frame is kept for the end, at the latest the last of the bucket: what
        # would not fit into the others has to be known before it is written, since
        # an answer cannot be cut off without a cut being seen.
        left = self._parameters.frames_of(bucket) - 1 - self._sent
        space = self._parameters.frame_bytes - len(self._head)
        first = _content_bytes(space) if left > 0 else 0
        full = _content_bytes(self._parameters.frame_bytes)
        return first + max(left - 1, 0) * full - len(self._pending)

    def write(self, content: bytes) -> None:
        """Add whole units of content: filler may follow the last byte.

        Raises:
            LimitExceededError: longer than ``room``; nothing of it is taken.
            ConsumedError: after ``end``.
        """
        if self._end is not None:
            raise ConsumedError("this answer has ended")
        # All of it or nothing: half of an event would leave filler in its middle.
        if len(content) > self.room:
            raise LimitExceededError(f"answer: {self.room} bytes left")
        self._pending += content

    def end(self, trailers: Fields | Callable[[], Fields] = ()) -> None:
        """Say that nothing more will be written.

        The frame behind the last content holds the end of the content and the
        trailers; padding follows until the frames make a bucket.

        Args:
            trailers: or a function that makes them, called once when that frame is
                due: what a trailer says may depend on all content, filler included.
                The errors below then come from ``next``.

        Raises:
            LimitExceededError: the trailers do not fit into a frame.
            MalformedError: a trailer breaks the rules.
            ConsumedError: the second call.
        """
        if self._end is not None:
            raise ConsumedError("this answer has ended")
        # Encoded now where they are known, so that the caller hears of an error while
        # it can still say something else.
        self._end = trailers if callable(trailers) else self._encoded_end(trailers)

    def next(self) -> Frame:
        """Return the frame of this tick.

        Raises:
            ConsumedError: the final frame was given.
            LimitExceededError: only the final frame of the last bucket is left,
                and the answer has not ended.
        """
        if self._over:
            raise ConsumedError("the final frame was given")
        content = b""
        if self._closed:
            plaintext = b""
        elif self._end is not None and not self._pending and self._sent:
            # Trailers that waited: a receipt signs what was said, filler included. It
            # comes now and not in the final frame, so that nobody waits for a bucket's
            # end to know that the answer is complete.
            plaintext = (
                self._end
                if isinstance(self._end, bytes)
                else self._encoded_end(self._end())
            )
            self._closed = True
        elif self._sent == self._parameters.max_frames - 1:
            # One frame short of the end there is no content left to send. To stop is
            # all that remains, and a client sees an answer that was cut.
            raise LimitExceededError(f"answer: {self._sent} frames of content at most")
        else:
            # The head shortens the first frame's content; after that it is empty.
            space = self._parameters.frame_bytes - len(self._head)
            count = _content_bytes(space)
            content = bytes(self._pending[:count])
            del self._pending[: len(content)]
            # Filled up to the frame, whether there was something to say or nothing:
            # from outside, and by its length inside, one tick is like another.
            content += self._filler(count - len(content))
            plaintext = self._head + _content_chunk(space, content)
            self._head = b""
        self._sent += 1
        self._over = self._closed and self._is_bucket()
        # Zeros behind a message are padding (RFC 9292, section 3.8).
        return Frame(
            plaintext=plaintext.ljust(self._parameters.frame_bytes, b"\0"),
            final=self._over,
            content=content,
        )

    def _is_bucket(self) -> bool:
        """Return whether the frames so far make a bucket.

        The number of frames is what an observer counts; any other would say how long
        the answer is.
        """
        if self._sent < self._least_frames:
            return False
        bucket = self._parameters.bucket_of(self._sent)
        return self._parameters.frames_of(bucket) == self._sent

    def _encoded_end(self, trailers: Fields) -> bytes:
        encoded = encode_content_end(trailers)
        # They are signed in one piece, and a frame is kept for them.
        if len(encoded) > self._parameters.frame_bytes:
            raise LimitExceededError("trailers longer than a frame")
        return encoded


class FrameCheck:
    """Checks that an answer has the shape that its release promised.

    For an unpadded release it has nothing to check. Counts; reads no content.

    Args:
        parameters: from the evidence.
    """

    __slots__ = ("_frames", "_parameters")

    def __init__(self, parameters: TransportParameters) -> None:
        self._parameters = parameters
        self._frames = 0

    @property
    def frames(self) -> int:
        """Number of frames seen so far."""
        return self._frames

    def chunk(self, length: int) -> None:
        """Take note of a chunk that is not the final one.

        Args:
            length: bytes of its plaintext.

        Raises:
            MalformedError: it is not a frame, or one more than an answer has.
        """
        self._frames += 1
        # A client holds the enclave to what its evidence promised: one whose answers
        # show their lengths after all is refused while the first of them arrives.
        if self._parameters.shape is Shape.PADDED:
            self._check_length(length)
            # The final one is still to come.
            if self._frames >= self._parameters.max_frames:
                raise MalformedError("answer: more frames than the last bucket")

    def finish(self, length: int) -> None:
        """Take note of the final chunk.

        Raises:
            MalformedError: it is not a frame, or the frames are not a bucket.
        """
        self._frames += 1
        if self._parameters.shape is not Shape.PADDED:
            return
        self._check_length(length)
        try:
            bucket = self._parameters.bucket_of(self._frames)
        except WireError:
            raise MalformedError("answer: more frames than the last bucket") from None
        # ``bucket_of`` rounds up. What is not a whole bucket ended where the answer
        # ended, and said so to everybody on the line.
        if self._parameters.frames_of(bucket) != self._frames:
            raise MalformedError("answer: its number of frames is not a bucket")

    def _check_length(self, length: int) -> None:
        if length != self._parameters.frame_bytes:
            expected = self._parameters.frame_bytes
            raise MalformedError(f"answer: frames of {expected} bytes expected")


def answer_limits(parameters: TransportParameters) -> Limits:
    """Return what a decoder must accept to read the longest answer there is.

    The usual limits for an unpadded release, which promises nothing.
    """
    if parameters.shape is not Shape.PADDED:
        return DEFAULT_LIMITS
    # All of it may be content, and every frame is one chunk of it; or nearly all of it
    # padding. The parameters are bounded (``MAX_ANSWER_BYTES``), so that these are.
    most_bytes = parameters.max_frames * parameters.frame_bytes
    return replace(
        DEFAULT_LIMITS,
        max_content_bytes=most_bytes,
        max_content_chunks=parameters.max_frames,
        max_message_bytes=most_bytes,
        max_padding_bytes=most_bytes,
    )


def answer_bytes(parameters: TransportParameters, suite: Suite, bucket: int) -> int:
    """Return the length of a sealed answer, in bytes on the wire.

    Args:
        parameters: of the release; padded.
        suite: the request's; its nonce opens the answer.
        bucket: 0 for the shortest.

    Raises:
        LimitExceededError: there is no such bucket.
    """
    sealed = parameters.frame_bytes + TAG_BYTES
    chunk = len(encode_varint(sealed)) + sealed
    # The response nonce, the chunks with their lengths, and the final one, whose length
    # is a single zero byte.
    others = parameters.frames_of(bucket) - 1
    return _nonce_bytes(suite) + others * chunk + 1 + sealed


def encode_padded_response(
    response: Response,
    parameters: TransportParameters,
    suite: Suite,
    *,
    least_bucket: int = 0,
) -> tuple[bytes, int]:
    """Encode a response for plain Oblivious HTTP, padded to a bucket.

    Sealed, it is as long as the frames of its bucket are together.

    Returns:
        The binary HTTP message and the bucket, whose time it should take.

    Raises:
        LimitExceededError: it is longer than the last bucket.
        MalformedError: a value breaks the rules.
    """
    # One message has no frames to count, but it has a length: that of the same bucket.
    encoded = encode_response(response)
    for bucket in range(least_bucket, parameters.buckets):
        sealed = answer_bytes(parameters, suite, bucket)
        octets = sealed - _nonce_bytes(suite) - TAG_BYTES
        if len(encoded) <= octets:
            return encoded.ljust(octets, b"\0"), bucket
    raise LimitExceededError("answer: longer than the last bucket")


def _nonce_bytes(suite: Suite) -> int:
    return max(suite.nn, suite.nk)


def _content_bytes(space: int) -> int:
    """Return the content that fits into ``space`` bytes with its length."""
    # One byte of length up to 63, two beyond; at 65 a chunk of 63 with its one byte
    # would leave a gap, so its length takes two from there on.
    return space - 1 if 0 < space <= _SHORT_BYTES + 1 else max(space - 2, 0)


def _content_chunk(space: int, content: bytes) -> bytes:
    # Without content there is no chunk: one of length 0 would end the content.
    if not content:
        return b""
    if space <= _SHORT_BYTES + 1:
        return bytes([len(content)]) + content
    return (_TWO_OCTETS | len(content)).to_bytes(2, "big") + content
