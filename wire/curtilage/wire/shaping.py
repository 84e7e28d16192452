"""Transport parameters: how much of an answer's size and timing is visible.

Knows frames, periods and buckets as numbers, and their binding form; makes no
frame and reads no clock. They belong to an enclave's release, so that a client
learns from its evidence what the shape of an answer may say.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from curtilage.wire.cursor import Cursor
from curtilage.wire.errors import LimitExceededError, MalformedError

__all__ = [
    "ENCODED_BYTES",
    "PADDED",
    "UNPADDED",
    "Shape",
    "TransportParameters",
    "parse_transport_parameters",
]

_VERSION: Final = 1

# The first frame holds the head of an answer whole.
MIN_FRAME_BYTES: Final = 64
MAX_FRAME_BYTES: Final = 16384  # of plaintext; what every receiver takes
MAX_PERIOD_MS: Final = 1000  # slower would be unusable for reading along
MIN_FIRST_BUCKET: Final = 2  # a first frame and a final one
MAX_FIRST_BUCKET: Final = 2**16 - 1
# Lengths double, so this many reveal four bits at most to an observer.
MAX_BUCKETS: Final = 16
# AES-128-GCM keeps its bounds for messages of up to this size.
MAX_ANSWER_BYTES: Final = 2**30

ENCODED_BYTES: Final = 9


class Shape(StrEnum):
    """Whether size and time of an answer are its own."""

    PADDED = "padded"
    UNSAFE_UNPADDED = "unsafe_unpadded"


_SHAPE_CODES: Final = {1: Shape.PADDED, 2: Shape.UNSAFE_UNPADDED}
_CODES: Final = {shape: code for code, shape in _SHAPE_CODES.items()}


def _check(name: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise MalformedError(f"transport parameters: {name} outside {low}..{high}")


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportParameters:
    """Outside appearance of every answer of one release.

    Attributes:
        shape: padded, or unsafe; then the four numbers are 0.
        frame_bytes: plaintext of every frame, 64..16384 bytes.
        period_ms: time from one frame to the next, 1..1000.
        first_bucket: frames of the shortest answer, 2..65535.
        buckets: number of lengths, each twice the one before, 1..16.

    Raises:
        MalformedError: at construction, for a number out of its range, or when
            the longest answer would exceed 2^30 bytes.
    """

    shape: Shape = Shape.PADDED
    frame_bytes: int = 512
    period_ms: int = 50
    first_bucket: int = 64
    buckets: int = 7

    def __post_init__(self) -> None:
        """Refuse what no enclave could keep to."""
        if self.shape is not Shape.PADDED:
            # Zeros, or one release could be bound in many ways, each another digest.
            if any((self.frame_bytes, self.period_ms, self.first_bucket, self.buckets)):
                raise MalformedError("transport parameters: an unpadded shape has none")
            return
        _check("frame_bytes", self.frame_bytes, MIN_FRAME_BYTES, MAX_FRAME_BYTES)
        _check("period_ms", self.period_ms, 1, MAX_PERIOD_MS)
        _check("first_bucket", self.first_bucket, MIN_FIRST_BUCKET, MAX_FIRST_BUCKET)
        _check("buckets", self.buckets, 1, MAX_BUCKETS)
        # Together they may still be too much: a client counts on this bound for what
        # it accepts (``frames.answer_limits``).
        if self.max_frames * self.frame_bytes > MAX_ANSWER_BYTES:
            raise MalformedError("transport parameters: the longest answer is too long")

    @property
    def max_frames(self) -> int:
        """Number of frames of the longest answer; 0 if unpadded."""
        # first_bucket * 2^(buckets - 1), and 0 where both are 0.
        return self.first_bucket << self.buckets >> 1

    def frames_of(self, bucket: int) -> int:
        """Return the number of frames of one bucket, 0 being the shortest.

        Raises:
            LimitExceededError: there is no such bucket.
        """
        if not 0 <= bucket < self.buckets:
            raise LimitExceededError(f"buckets: {self.buckets}")
        return self.first_bucket << bucket

    def bucket_of(self, frames: int) -> int:
        """Return the smallest bucket that holds ``frames`` frames.

        Raises:
            LimitExceededError: none does.
        """
        for bucket in range(self.buckets):
            if frames <= self.first_bucket << bucket:
                return bucket
        raise LimitExceededError(f"answer: {self.max_frames} frames at most")

    def encode(self) -> bytes:
        """Encode as evidence binds it, 9 bytes.

        ``version(1) = 1, shape(1), frame_bytes(2), period_ms(2),
        first_bucket(2), buckets(1)``, big-endian; shape 1 is padded, 2 unsafe.
        """
        numbers = (self.frame_bytes, self.period_ms, self.first_bucket)
        return b"".join(
            (
                bytes([_VERSION, _CODES[self.shape]]),
                *(number.to_bytes(2, "big") for number in numbers),
                bytes([self.buckets]),
            )
        )


PADDED: Final = TransportParameters()
UNPADDED: Final = TransportParameters(
    shape=Shape.UNSAFE_UNPADDED,
    frame_bytes=0,
    period_ms=0,
    first_bucket=0,
    buckets=0,
)


def parse_transport_parameters(data: bytes) -> TransportParameters:
    """Parse what ``TransportParameters.encode`` gives, all of ``data``.

    Raises:
        MalformedError: another length, version or shape, or a number out of
            its range.
    """
    if len(data) != ENCODED_BYTES:
        raise MalformedError(f"transport parameters: {ENCODED_BYTES} bytes expected")
    # A client acts on these before it has an answer to compare with: what it does not
    # know in full it refuses, also a version that might only have added something.
    cursor = Cursor(data)
    if cursor.take_uint(1) != _VERSION:
        raise MalformedError(f"transport parameters: version {_VERSION} expected")
    shape = _SHAPE_CODES.get(cursor.take_uint(1))
    if shape is None:
        raise MalformedError("transport parameters: no such shape")
    # The order of keyword arguments is the order of the bytes.
    return TransportParameters(
        shape=shape,
        frame_bytes=cursor.take_uint(2),
        period_ms=cursor.take_uint(2),
        first_bucket=cursor.take_uint(2),
        buckets=cursor.take_uint(1),
    )
