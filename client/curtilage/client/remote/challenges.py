"""The challenge to an enclave for the strictest data: show yourself, now.

Evidence shows that a key was made in a machine that was verified. It does not show
that this machine still runs: an attacker who copied the key out of it, or took it apart
since, shows the same evidence. So before a query of such data, and over the
same key, the enclave is asked for evidence over random bytes that could not be known
beforehand. It is asked once for each key, and again when the last answer is older
than the policy lets evidence be. A refusal is remembered for a minute. That the
enclave is busy is not: it shows itself to one client every few seconds.

Nothing is sent from here: the enclave's client sends a challenge and brings back what
came of it. Its content and its answer's are sealed and sized as a short query's, but
a relay can tell it: it always has the smallest size and the one bucket, and the query
follows its last frame at once. So the relay learns that the data demanded one.
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
from curtilage.client.errors import EnclaveError, FailureReason
from curtilage.client.remote.requests import ChallengeRequest, Records

NEGATIVE_TTL: Final = timedelta(seconds=60)
# These say something of the key, the clock, the trail or the hour, and nothing of
# how the enclave answers a challenge; they are not remembered.
_PASSED_ON: Final = frozenset(
    {
        FailureReason.BUSY,
        FailureReason.KEY_UNKNOWN,
        FailureReason.DATE_REFUSED,
        FailureReason.AUDIT_FAILED,
        FailureReason.EVIDENCE_REFUSED,
        FailureReason.CLOCK_SUSPECTED,
    }
)


class Challenges:
    """Which key has answered a challenge, and when.

    Args:
        clock: the time, aware UTC.
        random: makes the nonces.

    Attributes:
        turn: held while a challenge is sent, so that queries that begin together
            wait for one answer instead of asking each for its own.
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
            challenged: take a challenge for answered; else it must have been.

        Raises:
            EnclaveError: the first thing that is not met; ``code`` has them all.
        """
        # All that is lacking is named, so that an operator need not mend them one by
        # one.
        lacking = unmet(
            key,
            requirement,
            now=self._clock(),
            challenged=challenged or self.is_fresh(key, requirement),
        )
        if lacking:
            reason = FailureReason(f"unmet_{lacking[0]}")
            raise EnclaveError(reason, code=",".join(lacking))

    def is_fresh(self, key: VerifiedKey, requirement: Requirement) -> bool:
        """Tell whether a key has answered, recently enough."""
        if self._answered is None or self._answered[0] != key.key_configs_digest:
            return False
        since = self._clock() - self._answered[1]
        lasts = timedelta(seconds=requirement.challenge_age_s or 0)
        # Below zero, the clock was set back: then the age of the answer is not known.
        return timedelta() <= since < lasts

    def new(self, key: VerifiedKey, records: Records) -> ChallengeRequest:
        """Return a challenge to be sent to a key.

        Raises:
            EnclaveError: it was refused less than a minute ago.
        """
        # Else each query would pay for a challenge that will fail, and a relay would
        # see one for each.
        digest, until = self._refused or ("", self._clock())
        if digest == key.key_configs_digest and self._clock() < until:
            raise EnclaveError(FailureReason.UNMET_CHALLENGE, code="challenge")
        # Drawn now: evidence over bytes that were known before shows nothing of now.
        nonce = self._random(NONCE_BYTES)
        return ChallengeRequest(nonce=nonce, asked=self._clock(), records=records)

    def verify(
        self, challenge: ChallengeRequest, key: VerifiedKey, expectations: Expectations
    ) -> None:
        """Verify what came back for a challenge, and remember that it held.

        Args:
            challenge: that was sent and answered.
            key: it was sealed to.
            expectations: of the policy.

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
        # The time of asking: the evidence may have been made at once, and kept back.
        self._answered = (key.key_configs_digest, challenge.asked)
        self._refused = None

    def failed(self, key: VerifiedKey, failure: EnclaveError) -> EnclaveError:
        """Return what to tell of a challenge that had no answer; remember it."""
        # A relay could else keep such data at home for a minute by saying
        # "busy" once.
        if failure.reason in _PASSED_ON:
            return failure
        return self._refusal(key, failure.reason.value)

    def _refusal(self, key: VerifiedKey, code: str) -> EnclaveError:
        self._refused = (key.key_configs_digest, self._clock() + NEGATIVE_TTL)
        return EnclaveError(FailureReason.UNMET_CHALLENGE, code=code)
