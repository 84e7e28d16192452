"""Which enclave key may be used now: fetched, verified once, pinned, expired.

Sans-IO: bytes and the time come in, a ``VerifiedKey`` or a refusal comes out.
A key is never used past its expiry; a refusal is remembered for a minute, so
that a bad bundle is not verified once a query (attestation.md §6).
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from curtilage.attest.errors import RefusedError
from curtilage.attest.expectations import Expectations
from curtilage.attest.verify import VerifiedKey, verify
from curtilage.client.consistency import KeyHistory, compare_with_mirror

NEGATIVE_TTL = timedelta(seconds=60)


@dataclass(slots=True, kw_only=True)
class EnclaveBook:
    """The one enclave of this client, and what is known of its key.

    Attributes:
        expectations: what the policy demands of evidence.
    """

    expectations: Expectations
    _key: VerifiedKey | None = field(default=None, repr=False)
    _history: KeyHistory = field(default_factory=KeyHistory, repr=False)
    _refusal: RefusedError | None = field(default=None, repr=False)
    _refused_until: datetime | None = None

    @property
    def known(self) -> VerifiedKey | None:
        """The key that was pinned last, whether or not it is still in force."""
        return self._key

    def current(self, now: datetime) -> VerifiedKey | None:
        """Return the pinned key, or None when one must be fetched.

        Raises:
            RefusedError: the last evidence was refused less than a minute ago.
        """
        if self._key is not None:
            try:
                self._key.usable_at(now)
            except RefusedError:
                self._key = None
            else:
                return self._key
        if self._refusal is not None and self._still_refused(now):
            # A fresh one: an exception raised again and again grows its traceback.
            old = self._refusal
            raise type(old)(old.code, old.detail, step=old.step, steps=old.steps)
        return None

    def accept(
        self, bundle: bytes, now: datetime, *, mirrored: bytes | None = None
    ) -> VerifiedKey:
        """Verify a fetched bundle, compare its keys, and pin them.

        Args:
            bundle: as the relay served it.
            now: aware UTC.
            mirrored: the key list of an independent mirror, if there is one.

        Raises:
            RefusedError: the evidence is not acceptable, or its keys are not
                everybody's; remembered.
        """
        try:
            key = verify(bundle, self.expectations, now=now)
            key.usable_at(now)
            if mirrored is not None:
                compare_with_mirror(key, mirrored)
            self._history.check(key)
        except RefusedError as refusal:
            self.refuse(refusal, now)
            raise
        self._key, self._refusal, self._refused_until = key, None, None
        return key

    def refuse(self, refusal: RefusedError, now: datetime) -> None:
        """Remember that no evidence was accepted, and why."""
        self._key, self._refusal = None, refusal
        self._refused_until = now + NEGATIVE_TTL

    def drop(self, key: VerifiedKey) -> None:
        """Forget a key that the enclave no longer holds."""
        if self._key is key:
            self._key = None

    def _still_refused(self, now: datetime) -> bool:
        return self._refused_until is not None and now < self._refused_until
