"""The challenge to an enclave for the strictest data: show yourself, now.

Before such a question, and over the same key, the enclave is asked for evidence
over random bytes; it shows that the machine that was verified is there at this
moment, and not only its keys. It is asked once for each key, and again when the
last answer is older than the policy lets evidence be. While an answer is
awaited, others wait for the same one. A refusal is remembered for a minute. That the
enclave is busy is not: it shows itself to one client every few seconds.

A challenge runs to the end of its bucket before the question itself is sent. Its
content and its answer's are sealed and sized as a short question's, but a relay can
tell it: it always has the smallest size and the one bucket, and the question follows
its last frame at once. So the relay learns that the data demanded a challenge.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Final

from curtilage.attest.binding import NONCE_BYTES
from curtilage.attest.errors import RefusedError
from curtilage.attest.expectations import Expectations
from curtilage.attest.requirements import Requirement, unmet
from curtilage.attest.verify import VerifiedKey, verify_challenge
from curtilage.client.errors import EnclaveError, FailureReason
from curtilage.client.remote.requests import BeforeOther, Challenge, Clock

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
    }
)

Send = Callable[[Challenge, VerifiedKey, timedelta], Awaitable[None]]


class Challenges:
    """Which keys have answered, and when.

    Args:
        send: sends a challenge and returns once its answer has ended.
        clock: the time, aware UTC.
        random: makes the nonces.
    """

    def __init__(
        self,
        send: Send,
        clock: Clock,
        *,
        random: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        self._send = send
        self._clock = clock
        self._random = random
        self._asking = asyncio.Lock()
        self._answered: tuple[str, datetime] | None = None
        self._refused: tuple[str, datetime] | None = None

    async def meet(
        self,
        key: VerifiedKey,
        skew: timedelta,
        *,
        requirement: Requirement,
        expectations: Expectations,
        before: BeforeOther,
    ) -> None:
        """Challenge the enclave if the requirement asks for it and it is due.

        What no challenge could mend is refused first, so that nothing is sent
        for a question that stays here anyway.

        Args:
            key: that the question would be sealed to.
            skew: of the enclave's clock.
            requirement: what the question's data need.
            expectations: of the policy.
            before: records a challenge before it leaves.

        Raises:
            EnclaveError: the first thing that is not met.
        """
        self.require(key, requirement, challenged=True)
        if requirement.challenge_age_s is None:
            return
        async with self._asking:
            if not self.is_fresh(key, requirement):
                self._refuse_again(key)
                await self._ask(key, skew, expectations, before)

    def is_fresh(self, key: VerifiedKey, requirement: Requirement) -> bool:
        """Tell whether a key has answered, recently enough."""
        if self._answered is None or self._answered[0] != key.key_configs_digest:
            return False
        since = self._clock() - self._answered[1]
        lasts = timedelta(seconds=requirement.challenge_age_s or 0)
        return timedelta() <= since < lasts

    def require(
        self, key: VerifiedKey, requirement: Requirement, *, challenged: bool
    ) -> None:
        """Refuse a key that does not meet a requirement now.

        Args:
            key: verified.
            requirement: what the question's data need.
            challenged: take a challenge for answered; else it must have been.

        Raises:
            EnclaveError: the first thing that is not met; ``code`` has them all.
        """
        lacking = unmet(
            key,
            requirement,
            now=self._clock(),
            challenged=challenged or self.is_fresh(key, requirement),
        )
        if lacking:
            reason = FailureReason(f"unmet_{lacking[0]}")
            raise EnclaveError(reason, code=",".join(lacking))

    async def _ask(
        self,
        key: VerifiedKey,
        skew: timedelta,
        expectations: Expectations,
        before: BeforeOther,
    ) -> None:
        challenge = Challenge(
            nonce=self._random(NONCE_BYTES), before=before, clock=self._clock
        )
        asked = self._clock()
        try:
            await self._send(challenge, key, skew)
            verify_challenge(
                challenge.answer.evidence or b"",
                key,
                challenge.nonce,
                expectations,
                now=self._clock(),
            )
        except EnclaveError as failure:
            if failure.reason in _PASSED_ON:
                raise
            raise self._refusal(key, failure.reason.value) from None
        except RefusedError as refusal:
            raise self._refusal(key, refusal.code.value) from None
        self._answered, self._refused = (key.key_configs_digest, asked), None

    def _refusal(self, key: VerifiedKey, code: str) -> EnclaveError:
        self._refused = (key.key_configs_digest, self._clock() + NEGATIVE_TTL)
        return EnclaveError(FailureReason.UNMET_CHALLENGE, code=code)

    def _refuse_again(self, key: VerifiedKey) -> None:
        if self._refused is None or self._refused[0] != key.key_configs_digest:
            return
        if self._clock() < self._refused[1]:
            raise EnclaveError(FailureReason.UNMET_CHALLENGE, code="challenge")
