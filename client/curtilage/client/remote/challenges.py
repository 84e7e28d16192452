"""Challenges to an enclave: fresh evidence, demanded before the strictest data.

Evidence shows that a key was made in a verified machine. It does not show that the
machine still runs: an attacker who has since copied the key or opened the machine can
present the same evidence. So before a query with such data, the enclave must return
evidence for the same key over unpredictable random bytes. One challenge is sent for
each key, and another when the last answer is older than the policy's limit. A refusal
is remembered for a minute. "Busy" is not: an enclave produces evidence for only one
client every few seconds.

This module sends nothing: the enclave's client sends the challenge and returns the
result. Question and answer are sealed and sized like those of a short query, but a
relay can recognise them: always the smallest size and the one bucket, and the query
follows the last frame at once. So the relay learns that the data demanded a challenge.
"""

import asyncio
import secrets
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from curtilage.attest.binding import NONCE_BYTES
from curtilage.attest.errors import RefusedError
from curtilage.attest.expectations import Expectations
from curtilage.attest.requirements import Requirement, unmet
from curtilage.attest.verified_key import VerifiedKey
from curtilage.attest.verify import verify_challenge
from curtilage.client.errors import AttemptFailure, EnclaveError
from curtilage.client.remote.reasons import EnclaveFailure, Unmet
from curtilage.client.remote.requests import ChallengeRequest, Records

NEGATIVE_TTL: Final = timedelta(seconds=60)
# Caused by the key, the clock, the audit trail or the load, not by how the enclave
# answers challenges; so they are not remembered.
_PASSED_ON: Final = frozenset(
    {
        EnclaveFailure.BUSY,
        EnclaveFailure.KEY_UNKNOWN,
        EnclaveFailure.DATE_REFUSED,
        AttemptFailure.AUDIT_FAILED,
        EnclaveFailure.EVIDENCE_REFUSED,
        EnclaveFailure.CLOCK_SUSPECTED,
    }
)


class Challenges:
    """Records which key answered a challenge, and when.

    Args:
        clock: the time, aware UTC.
        random: makes the nonces.

    Attributes:
        turn: lock held while a challenge is sent, so that concurrent queries wait for
            one answer instead of each sending a challenge.
    """

    def __init__(
        self,
        clock: Callable[[], datetime],
        *,
        random: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        self.turn = asyncio.Lock()
        self._clock = clock
        self._random = random
        self._answered: tuple[str, datetime] | None = None
        self._refused: tuple[str, datetime] | None = None

    def require(
        self, key: VerifiedKey, requirement: Requirement, *, challenged: bool
    ) -> None:
        """Refuse a key that does not meet a requirement now.

        Args:
            key: verified.
            requirement: what the query's data need.
            challenged: assume that a challenge was answered; else it must have been.

        Raises:
            EnclaveError: the first thing that is not met; ``code`` has them all.
        """
        # All that is missing is named, so that an operator need not fix one thing at a
        # time.
        lacking = unmet(
            key,
            requirement,
            now=self._clock(),
            challenged=challenged or self.is_fresh(key, requirement),
        )
        if lacking:
            reason = Unmet(f"unmet_{lacking[0]}")
            raise EnclaveError(reason, code=",".join(lacking))

    def is_fresh(self, key: VerifiedKey, requirement: Requirement) -> bool:
        """Return whether the key answered a challenge recently enough."""
        if self._answered is None or self._answered[0] != key.key_configs_digest:
            return False
        since = self._clock() - self._answered[1]
        lasts = timedelta(seconds=requirement.challenge_age_s or 0)
        # Negative: the clock was set back, so the age of the answer is unknown.
        return timedelta() <= since < lasts

    def new(self, key: VerifiedKey, records: Records) -> ChallengeRequest:
        """Return a challenge for a key.

        Raises:
            EnclaveError: a challenge was refused less than a minute ago.
        """
        # Otherwise each query would send a challenge that will fail, and a relay would
        # see one for each.
        digest, until = self._refused or ("", self._clock())
        if digest == key.key_configs_digest and self._clock() < until:
            raise EnclaveError(Unmet.CHALLENGE, code="challenge")
        # Drawn now: evidence over bytes that were known earlier proves nothing.
        nonce = self._random(NONCE_BYTES)
        return ChallengeRequest(nonce=nonce, asked=self._clock(), records=records)

    def verify(
        self, challenge: ChallengeRequest, key: VerifiedKey, expectations: Expectations
    ) -> None:
        """Verify the evidence that answers a challenge, and remember that it held.

        Args:
            challenge: as sent and answered.
            key: that it was sealed to.
            expectations: the policy's.

        Raises:
            EnclaveError: the evidence does not hold; remembered for a minute.
        """
        evidence = challenge.answer.evidence or b""
        try:
            verify_challenge(
                evidence, key, challenge.nonce, expectations, now=self._clock()
            )
        except RefusedError as refusal:
            raise self._refusal(key, refusal.code.value) from None
        # The time of asking: the evidence may have been made at once and held back.
        self._answered = (key.key_configs_digest, challenge.asked)
        self._refused = None

    def failed(self, key: VerifiedKey, failure: EnclaveError) -> EnclaveError:
        """Return the error for a challenge without an answer; remember it."""
        # Otherwise a relay could keep such data local for a minute by reporting "busy"
        # once.
        if failure.reason in _PASSED_ON:
            return failure
        return self._refusal(key, failure.reason.value)

    def _refusal(self, key: VerifiedKey, code: str) -> EnclaveError:
        self._refused = (key.key_configs_digest, self._clock() + NEGATIVE_TTL)
        return EnclaveError(Unmet.CHALLENGE, code=code)
