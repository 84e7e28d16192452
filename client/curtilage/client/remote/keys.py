"""Which enclave key may be used now: fetched, verified once, pinned, expired.

Bytes and the time come in, a ``VerifiedKey`` or a refusal comes out; what was
seen of the log may be kept where ``logs`` says.
A key is known by the policy's digest and that of its list; it is never used past
its expiry, nor under another policy than the one it was verified under. A
refusal is remembered for a minute, so that a bad bundle is not verified once a
query (attestation.md §6). A renewal that fails takes nothing away: the key in
force stays until it ends.

When a key is renewed: in the background, at a time that was drawn beforehand.

A relay sees when evidence is fetched. Fetched when a query needs it, that would
tell of queries; so the next time is drawn when a key is accepted, near four
fifths of its life, and nothing that is asked meanwhile moves it. One renewal
runs at a time. After one that failed the next is drawn likewise, and the key in
force serves on until it ends.
"""

import asyncio
import hashlib
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.expectations import Expectations
from curtilage.attest.verify import VerifiedKey, verify
from curtilage.client.remote.key_consistency import (
    KeyHistory,
    compare_with_mirror,
)
from curtilage.client.remote.log_history import LogBook, view_of

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


EARLIEST: Final = 0.75
SPREAD: Final = 0.10
"""A key is renewed after 0.75 to 0.85 of its life, evenly distributed."""
RETRY: Final = 0.05
"""After a failure, the next attempt comes after this part of the life, give or
take half of it, and never sooner than the time a refusal is remembered."""
LEAST_RETRY_S: Final = 60.0
_STEPS: Final = 2**32

Below = Callable[[int], int]
"""Draws an integer from 0 to one less than what it is given."""

Sleep = Callable[[float], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """One renewal to come.

    Attributes:
        key: to be renewed.
        life_s: from its acceptance to its end.
        wait_s: until the renewal.
    """

    key: VerifiedKey
    life_s: float
    wait_s: float


class Refresher:
    """Renews the key in force before it ends.

    Args:
        renew: fetches and verifies; returns the new key, or None if that failed.
        clock: the time, aware UTC.
        sleep: waits, in seconds.
        below: randomness.
    """

    def __init__(
        self,
        renew: Callable[[VerifiedKey], Awaitable[VerifiedKey | None]],
        clock: Callable[[], datetime],
        *,
        sleep: Sleep = asyncio.sleep,
        below: Below = secrets.randbelow,
    ) -> None:
        self._renew = renew
        self._clock = clock
        self._sleep = sleep
        self._below = below
        self._task: asyncio.Task[None] | None = None

    def accepted(self, key: VerifiedKey) -> None:
        """Draw when a key that was just accepted is renewed, and begin to wait.

        What was drawn for the key before is dropped.
        """
        if self._task is not None:
            self._task.cancel()
        self._task = asyncio.create_task(self._run(self._first(key)))

    async def close(self) -> None:
        """Renew nothing more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self, plan: _Plan) -> None:
        while True:
            await self._sleep(plan.wait_s)
            fresh = await self._renew(plan.key)
            plan = self._again(plan) if fresh is None else self._first(fresh)

    def _first(self, key: VerifiedKey) -> _Plan:
        life_s = max((key.expires_at - self._clock()).total_seconds(), 0.0)
        wait_s = max(life_s * (EARLIEST + SPREAD * self._drawn()), 1.0)
        return _Plan(key=key, life_s=life_s, wait_s=wait_s)

    def _again(self, plan: _Plan) -> _Plan:
        wait_s = plan.life_s * RETRY * (0.5 + self._drawn())
        return _Plan(
            key=plan.key, life_s=plan.life_s, wait_s=max(wait_s, LEAST_RETRY_S)
        )

    def _drawn(self) -> float:
        return self._below(_STEPS) / _STEPS
