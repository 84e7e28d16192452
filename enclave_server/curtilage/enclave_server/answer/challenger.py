"""Answers challenges: fresh evidence over a nonce, one at a time.

Evidence is expensive, and any client can request it. So there is one acquisition at a
time and a minimum interval between two, for all clients together; the others are asked
to retry later. The result of the evidence process is passed on; the client verifies it.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from curtilage.attest.binding import challenge_report_data
from curtilage.attest.evidence import MAX_CPU_EVIDENCE_BYTES, CpuEvidence
from curtilage.attest.evidence_json import encode_cpu_evidence
from curtilage.enclave_server.errors import ChatError, EvidenceError
from curtilage.enclave_server.ohttp.gateway import RETRY_LATER
from curtilage.enclave_server.ohttp.inner_requests import ChallengeRequest
from curtilage.enclave_server.ohttp.keys import ServerKey
from curtilage.wire.shaping import Shape, TransportParameters

WAIT_S: Final = 2.0
"""Time that evidence may take before a padded answer has to begin; the answer's
bucket has room for it, so it costs silence, not a longer answer."""
MARGIN_BYTES: Final = 2048
"""Length by which a challenge's evidence may exceed the bundle's: revocation lists
grow."""


class EvidenceBases(Protocol):
    """Knows the bases that our bundles were bound to; see ``evidence.bundle``."""

    def base_of(self, key: ServerKey, base: bytes) -> bytes | None:
        """Return a B0 published for this key: ``base`` itself, or the newest.

        None when there is none, or ``base`` is none of them.
        """
        ...

    @property
    def evidence_bytes(self) -> int:
        """The length of the current bundle's CPU evidence, encoded; 0 without one."""
        ...

    @property
    def emulated(self) -> bool:
        """Whether our evidence is emulated."""
        ...


class AcquiresEvidence(Protocol):
    """Acquires evidence; see ``evidence.report.EvidenceSource``."""

    async def acquire(self, report_data: bytes) -> CpuEvidence:
        """Return evidence over 64 bytes.

        Raises:
            EvidenceError: there is none.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ChallengeShape:
    """The shape of every padded answer to a challenge.

    Attributes:
        bucket: of its length, whatever it contains.
        content_bytes: room that is reserved in it for the evidence.
    """

    bucket: int
    content_bytes: int


class Challenger:
    """Answers challenges.

    Args:
        bases: that our bundles were bound to.
        source: the evidence process.
        least_interval_s: from the start of one acquisition to the next.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        *,
        bases: EvidenceBases,
        source: AcquiresEvidence,
        least_interval_s: float,
        clock: Callable[[], float],
    ) -> None:
        self._bases = bases
        self._source = source
        self._least_interval_s = least_interval_s
        self._clock = clock
        self._task: asyncio.Task[bytes] | None = None
        self._not_before: float | None = None

    def shape(self, transport: TransportParameters) -> ChallengeShape:
        """Return the shape of all answers until the next bundle.

        It follows from the bundle, which is public, and from nothing that a challenge
        contains or causes. Unpadded, it has no meaning.
        """
        content = min(self._bases.evidence_bytes + MARGIN_BYTES, MAX_CPU_EVIDENCE_BYTES)
        if transport.shape is not Shape.PADDED:
            return ChallengeShape(bucket=0, content_bytes=content)
        # The head's frame and the final one; one more for the division's rest.
        frames = content // (transport.frame_bytes - 2) + 3
        frames += int(WAIT_S * 1000) // transport.period_ms
        last = transport.buckets - 1
        bucket = transport.bucket_of(min(frames, transport.frames_of(last)))
        return ChallengeShape(bucket=bucket, content_bytes=content)

    def begin(
        self, key: ServerKey, challenge: ChallengeRequest
    ) -> "asyncio.Task[bytes]":
        """Start acquiring evidence; the task returns the answer's content.

        Its errors are ``EvidenceError``. If it is cancelled, another may start.

        Args:
            key: that the challenge was sealed to.
            challenge: the request.

        Raises:
            ChatError: 503 ``busy``; 400 for a base that this key never had.
        """
        # Before the interval starts: an unknown base must not cost other clients their
        # challenges.
        base = self._bases.base_of(key, challenge.base)
        if base is None:
            raise ChatError(400, "out_of_range", param="b0")
        now = self._clock()
        under_way = self._task is not None and not self._task.done()
        too_soon = self._not_before is not None and now < self._not_before
        if under_way or too_soon:
            raise ChatError(503, "busy", fields=RETRY_LATER)
        # From the start, and not reset if it fails or is cancelled: else a client that
        # disconnects at once could keep the device busy for all others.
        self._not_before = now + self._least_interval_s
        data = challenge_report_data(
            base, challenge.nonce, emulated=self._bases.emulated
        )
        self._task = asyncio.create_task(self._acquire(data))
        return self._task

    async def _acquire(self, report_data: bytes) -> bytes:
        evidence = await self._source.acquire(report_data)
        return b'{"evidence":' + encode_cpu_evidence(evidence) + b"}"


def challenge_error(error: Exception) -> ChatError:
    """Return the error that a failed challenge is answered with."""
    match error:
        case ChatError():
            return error.alone()
        case EvidenceError() | TimeoutError():
            return ChatError(503, "no_evidence", fields=RETRY_LATER)
        case _:
            return ChatError(500, "internal_error")
