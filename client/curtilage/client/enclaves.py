"""Which enclave key may be used now: fetched, verified once, pinned, expired.

Bytes and the time come in, a ``VerifiedKey`` or a refusal comes out; what was
seen of the log may be kept where ``logs`` says.
A key is known by the policy's digest and that of its list; it is never used past
its expiry, nor under another policy than the one it was verified under. A
refusal is remembered for a minute, so that a bad bundle is not verified once a
query (attestation.md §6). A renewal that fails takes nothing away: the key in
force stays until it ends.
"""

import hashlib
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.expectations import Expectations
from curtilage.attest.verify import VerifiedKey, verify
from curtilage.client.consistency import KeyHistory, compare_with_mirror, view_of
from curtilage.client.log_memory import LogBook

NEGATIVE_TTL = timedelta(seconds=60)


@dataclass(slots=True, kw_only=True)
class EnclaveBook:
    """The one enclave of this client, and what is known of its key.

    Attributes:
        expectations: what the policy demands of evidence.
        logs: what was seen of release logs.
    """

    expectations: Expectations
    logs: LogBook = field(default_factory=LogBook, repr=False)
    _key: VerifiedKey | None = field(default=None, repr=False)
    _bundle_digest: bytes = field(default=b"", repr=False)
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
            if self._in_force(self._key, now):
                return self._key
            self._key = None
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
            return self._accepted(bundle, now, mirrored)
        except RefusedError as refusal:
            self.refuse(refusal, now)
            raise

    def renew(
        self, bundle: bytes, now: datetime, *, mirrored: bytes | None = None
    ) -> VerifiedKey:
        """Do as ``accept``, for a key that is still in force and stays so.

        Raises:
            RefusedError: as ``accept``, and ``stale`` where the bundle is no
                newer than the one before; nothing changes.
        """
        old = self._key
        if old is not None and self._same(bundle):
            raise RefusedError(RefusalCode.STALE, "the evidence was not renewed")
        try:
            fresh = self._accepted(bundle, now, mirrored)
        except RefusedError:
            self._key = old
            raise
        if old is not None and fresh.expires_at <= old.expires_at:
            self._key = old
            raise RefusedError(RefusalCode.STALE, "the evidence was not renewed")
        return fresh

    def refuse(self, refusal: RefusedError, now: datetime) -> None:
        """Remember that no evidence was accepted, and why."""
        self._key, self._refusal = None, refusal
        self._refused_until = now + NEGATIVE_TTL

    def drop(self, key: VerifiedKey) -> None:
        """Forget a key that the enclave no longer holds."""
        if self._key is key:
            self._key = None

    def apply(self, expectations: Expectations) -> None:
        """Hold everything against another policy; what was verified is dropped.

        What was seen of key lists and of the log stays remembered.
        """
        self.expectations = expectations
        self._key, self._bundle_digest = None, b""
        self._refusal = self._refused_until = None

    def _accepted(
        self, bundle: bytes, now: datetime, mirrored: bytes | None
    ) -> VerifiedKey:
        key = verify(bundle, self.expectations, now=now)
        key.usable_at(now)
        if mirrored is not None:
            compare_with_mirror(key, mirrored)
        keep = self.logs.check(self.expectations.log.public_key, view_of(bundle, key))
        self._history.check(key)
        keep()
        self._key = key
        self._bundle_digest = hashlib.sha256(bundle).digest()
        self._refusal = self._refused_until = None
        return key

    def _in_force(self, key: VerifiedKey, now: datetime) -> bool:
        if key.expectations_digest != self.expectations.digest:
            return False
        try:
            key.usable_at(now)
        except RefusedError:
            return False
        return True

    def _same(self, bundle: bytes) -> bool:
        return hashlib.sha256(bundle).digest() == self._bundle_digest

    def _still_refused(self, now: datetime) -> bool:
        return self._refused_until is not None and now < self._refused_until
