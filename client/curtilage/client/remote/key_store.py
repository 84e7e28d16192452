"""The keys of one enclave: what was verified, and until when it may be used."""

import hashlib
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from curtilage.attest.clock import suspect_clock
from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.expectations import Expectations
from curtilage.attest.verified_key import VerifiedKey
from curtilage.attest.verify import verify
from curtilage.client.remote.key_consistency import (
    KeyHistory,
    compare_with_mirror,
)
from curtilage.client.remote.log_history import LogHistory, view_of

NEGATIVE_TTL = timedelta(seconds=60)


@dataclass(slots=True, kw_only=True)
class KeyStore:
    """State of one enclave's key: verified, in force, refused.

    Takes bytes and the time, returns a ``VerifiedKey`` or raises a refusal; it fetches
    nothing. A key is identified by the digests of the policy and of its list; it is
    never used past its expiry, nor under another policy than it was verified under.

    Attributes:
        expectations: what the policy demands of evidence.
        logs: history of the release logs.
    """

    expectations: Expectations
    logs: LogHistory = field(default_factory=LogHistory, repr=False)
    _key: VerifiedKey | None = field(default=None, repr=False)
    _bundle_digest: bytes = field(default=b"", repr=False)
    _history: KeyHistory = field(default_factory=KeyHistory, repr=False)
    _refusal: RefusedError | None = field(default=None, repr=False)
    _refused_until: datetime | None = None

    @property
    def known(self) -> VerifiedKey | None:
        """The key that was pinned last, whether or not it is still in force."""
        return self._key

    def holds(self, now: datetime) -> bool:
        """Return whether a key is pinned and in force."""
        return self._key is not None and self._in_force(self._key, now)

    def another(self) -> "KeyStore":
        """Return a store for another enclave, with the same rules and log history."""
        return KeyStore(expectations=self.expectations, logs=self.logs)

    def current(self, now: datetime) -> VerifiedKey | None:
        """Return the pinned key, or None when one must be fetched.

        Raises:
            RefusedError: the last evidence was refused less than a minute ago.
        """
        # Checked at each use and not by a timer: a machine that was asleep when the key
        # expired would otherwise use it once more.
        if self._key is not None:
            if self._in_force(self._key, now):
                return self._key
            self._key = None
        until = self._refused_until
        if self._refusal is not None and until is not None and now < until:
            raise alone(self._refusal)
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
            RefusedError: the evidence is not acceptable, or its key list is not the
                one that others see; remembered.
        """
        try:
            return self._accepted(bundle, now, mirrored)
        except RefusedError as refusal:
            raise self._refused(refusal, bundle, now) from None

    def _refused(
        self, refusal: RefusedError, bundle: bytes, now: datetime
    ) -> RefusedError:
        """Remember a refusal and return it to be raised.

        In a frame of its own: an error that a frame on its way holds would keep it,
        and the question with it.
        """
        refusal = suspect_clock(refusal, bundle, self.expectations, now=now)
        # Otherwise each query would fetch and verify the bad bundle again.
        self.refuse(refusal, now)
        return refusal

    def renew(
        self, bundle: bytes, now: datetime, *, mirrored: bytes | None = None
    ) -> VerifiedKey:
        """Like ``accept``, but the key in force stays if the new evidence is refused.

        Raises:
            RefusedError: as ``accept``, and ``stale`` if the bundle is not newer than
                the current one; nothing changes.
        """
        # A relay could otherwise serve the old bundle again at each renewal until the
        # key expires, and the next query would have to wait.
        old = self._key
        same = hashlib.sha256(bundle).digest() == self._bundle_digest
        if old is not None and same:
            raise RefusedError(RefusalCode.STALE, "the evidence was not renewed")
        try:
            fresh = self._accepted(bundle, now, mirrored)
        except RefusedError:
            # Bad evidence does not revoke a key: a relay could serve it on purpose, to
            # see which clients then fall silent.
            self._key = old
            raise
        # Another bundle with the same expiry is no renewal either.
        if old is not None and fresh.expires_at <= old.expires_at:
            self._key = old
            raise RefusedError(RefusalCode.STALE, "the evidence was not renewed")
        return fresh

    def refuse(self, refusal: RefusedError, now: datetime) -> None:
        """Remember that no evidence was accepted, and the reason."""
        self._key, self._refusal = None, alone(refusal)
        self._refused_until = now + NEGATIVE_TTL

    def drop(self, key: VerifiedKey) -> None:
        """Forget a key that the enclave no longer holds."""
        # By identity: another query may have fetched its successor already.
        if self._key is key:
            self._key = None

    def apply(self, expectations: Expectations) -> None:
        """Switch to another policy's expectations; verified keys are dropped.

        The history of key lists and of the log is kept.
        """
        self.expectations = expectations
        self._key, self._bundle_digest = None, b""
        self._refusal = self._refused_until = None

    def _accepted(
        self, bundle: bytes, now: datetime, mirrored: bytes | None
    ) -> VerifiedKey:
        key = verify(bundle, self.expectations, now=now)
        key.usable_at(now)
        # Sound evidence is not enough: a list made for this client alone marks
        # everything that it seals. So compare it with what others see; and the log may
        # only grow.
        # The cheapest check first, and the one that writes to disk last.
        if mirrored is not None:
            compare_with_mirror(key, mirrored)
        keep = self.logs.check(self.expectations.log.public_key, view_of(bundle, key))
        self._history.check(key)
        keep()  # only now: a refused bundle must not count as seen
        self._key = key
        self._bundle_digest = hashlib.sha256(bundle).digest()
        self._refusal = self._refused_until = None
        return key

    def _in_force(self, key: VerifiedKey, now: datetime) -> bool:
        # A changed policy may demand more than this key was verified for.
        if key.expectations_digest != self.expectations.digest:
            return False
        try:
            key.usable_at(now)
        except RefusedError:
            return False
        return True


def alone(refusal: RefusedError) -> RefusedError:
    """Return the same refusal without its traceback, to be kept or raised again.

    A raised refusal holds the frames that it passed through, and so the question that
    needed a key; each time it is raised, it holds more of them.
    """
    return type(refusal)(
        refusal.code, refusal.detail, step=refusal.step, steps=refusal.steps
    )
