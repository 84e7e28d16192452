"""The padded answer to a challenge: as long and as slow whatever it says.

Evidence that is not there when it would have to begin is given up, so that no
answer outgrows the bucket that all of them have. Knows no time: whoever ticks
calls ``tick``.
"""

import asyncio

from curtilage.enclave_server.answers import JSON_TYPE, Answer, encode_error
from curtilage.enclave_server.challenger import ChallengeShape, challenge_error
from curtilage.enclave_server.errors import ChatError
from curtilage.enclave_server.padded import STATUS_OK, outcome_of, write_error
from curtilage.enclave_server.sealing import PaddedSealer
from curtilage.enclave_server.telemetry import Event
from curtilage.wire.frames import fill_json


class PaddedChallenge:
    """Evidence, or why there is none.

    The head goes out with the first frame: its status tells what is known by
    then, and an error that comes later stands in the content alone.

    Args:
        sealer: not begun.
        acquiring: gives the content.
        shape: of all answers to challenges.
    """

    is_behind = False
    """Nobody waits for its frames."""

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
        """Do nothing: no model is asked; see the Protocol."""

    def fail(self, error: ChatError) -> None:
        """End in an error; see the Protocol."""
        self._acquiring.cancel()
        if self._begun and self._sealer.ended:
            return
        if self._begun:
            self._tell(error)
        else:
            self._begun = True
            write_error(self._sealer, error, least_bucket=self._shape.bucket)
        self.outcome = outcome_of(error)

    def tick(self) -> None:
        """Take the evidence when it is there; see the Protocol."""
        if self._begun and self._sealer.ended:
            return
        if self._acquiring.done():
            self._finish()
            return
        self._begin()
        # Behind the next frame the evidence must still fit.
        next_bytes = self._sealer.parameters.frame_bytes
        if self._room() - next_bytes < self._shape.content_bytes:
            self.fail(ChatError(503, "no_evidence"))

    def _finish(self) -> None:
        try:
            content = self._acquiring.result()
        # Whatever it was: what failed is told sealed.
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

    def _tell(self, error: ChatError) -> None:
        content = encode_error(error)
        if len(content) <= self._room():
            self._sealer.write(content)
        self._sealer.end()

    def _begin(self) -> None:
        if not self._begun:
            self._begun = True
            fields = ((b"content-type", JSON_TYPE),)
            self._sealer.begin(
                STATUS_OK, fields, filler=fill_json, least_bucket=self._shape.bucket
            )

    def _room(self) -> int:
        return self._sealer.room_in(self._shape.bucket)
