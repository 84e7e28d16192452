"""Which enclave key may be used: fetched, verified, pinned, renewed before it ends.

``KeyStore`` knows what was verified and until when; ``KeySource`` fetches for it.

A relay sees when evidence is fetched. Fetched when a query needs it, that would tell
of queries; so the next time is drawn when a key is accepted, near four fifths of its
life, and nothing that is asked meanwhile moves it. One fetch runs at a time. After
one that failed the next is drawn likewise, and the key in force serves on until it
ends: a renewal takes nothing away.
"""

import asyncio
import hashlib
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, Protocol

from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.expectations import Expectations
from curtilage.attest.verify import VerifiedKey, verify
from curtilage.client import telemetry
from curtilage.client.errors import EnclaveError, FailureReason
from curtilage.client.remote.key_consistency import (
    KeyHistory,
    MirrorSilentError,
    compare_with_mirror,
    mirror_silent,
)
from curtilage.client.remote.log_history import LogHistory, view_of
from curtilage.client.remote.sealed import FETCH_DOOR, MIRROR, RELAY, FetchOrder
from curtilage.policy.decision.permit import (
    Party,
    PermitDesk,
    PermitRefusedError,
    time_ms,
)

NEGATIVE_TTL = timedelta(seconds=60)


@dataclass(slots=True, kw_only=True)
class KeyStore:
    """What is known of the one enclave's key: verified, in force, refused.

    Bytes and the time come in, a ``VerifiedKey`` or a refusal comes out; nothing is
    fetched here. A key is known by the policy's digest and that of its list; it is
    never used past its expiry, nor under another policy than it was verified under.

    Attributes:
        expectations: what the policy demands of evidence.
        logs: what was seen of release logs.
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

    def current(self, now: datetime) -> VerifiedKey | None:
        """Return the pinned key, or None when one must be fetched.

        Raises:
            RefusedError: the last evidence was refused less than a minute ago.
        """
        # Held against policy and time at each use, not by a timer: a machine that slept
        # through the end of a key would otherwise use it once more.
        if self._key is not None:
            if self._in_force(self._key, now):
                return self._key
            self._key = None
        until = self._refused_until
        if self._refusal is not None and until is not None and now < until:
            # A new one: an exception raised again and again grows its traceback.
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
            # Or each query would have a bad bundle fetched and verified again.
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
        # A relay that serves the old bundle again would otherwise make each renewal
        # look like one, until the key has ended and the query that comes next must
        # wait.
        old = self._key
        same = hashlib.sha256(bundle).digest() == self._bundle_digest
        if old is not None and same:
            raise RefusedError(RefusalCode.STALE, "the evidence was not renewed")
        try:
            fresh = self._accepted(bundle, now, mirrored)
        except RefusedError:
            # Bad evidence takes no key away: a relay could serve it on
            # purpose, to see which clients then fall silent.
            self._key = old
            raise
        # Another bundle with no more life in it: as good as the same.
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
        # By identity: another query may have fetched its successor already.
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
        # Sound evidence is not enough: a list that was made for this client alone
        # marks all that it seals. So it is compared with what others see, and what
        # was seen of the log may only grow.
        # The cheapest first, and what writes to the disk last.
        if mirrored is not None:
            compare_with_mirror(key, mirrored)
        keep = self.logs.check(self.expectations.log.public_key, view_of(bundle, key))
        self._history.check(key)
        keep()  # only now: what is refused must not count as seen
        self._key = key
        self._bundle_digest = hashlib.sha256(bundle).digest()
        self._refusal = self._refused_until = None
        return key

    def _in_force(self, key: VerifiedKey, now: datetime) -> bool:
        # A policy that changed may demand more than the evidence was asked for.
        if key.expectations_digest != self.expectations.digest:
            return False
        try:
            key.usable_at(now)
        except RefusedError:
            return False
        return True


EARLIEST: Final = 0.75
SPREAD: Final = 0.10
"""A key is renewed after 0.75 to 0.85 of its life, evenly distributed."""
RETRY: Final = 0.05
"""After a failure, the next attempt comes after this part of the life, give or
take half of it, and never sooner than the time a refusal is remembered."""
LEAST_RETRY_S: Final = 60.0
_STEPS: Final = 2**32

RandomBelow = Callable[[int], int]
"""Draws an integer from 0 to one less than what it is given."""

Sleep = Callable[[float], Awaitable[None]]
"""Waits, in seconds."""


class EvidenceSource(Protocol):
    """Where evidence is fetched: the relay, in the product."""

    async def fetch_bundle(self, order: FetchOrder) -> bytes:
        """Return the attestation bundle that the relay serves."""
        ...


class KeyMirror(Protocol):
    """An independent copy of the key list."""

    async def fetch_key_configs(self, order: FetchOrder) -> bytes:
        """Return the key list that the mirror serves."""
        ...

    async def close(self) -> None:
        """Close every connection."""
        ...


class KeySource:
    """The key that may be sealed to now, fetched and verified when there is none.

    Args:
        evidence: where the bundle is fetched.
        store: what was verified.
        clock: the time, aware UTC.
        desk: where the permit of each fetch is minted and redeemed.
        mirror: an independent copy of the key list, where the policy names one.
        sleep: waits for the time of a renewal.
        below: randomness of that time.
    """

    def __init__(
        self,
        evidence: EvidenceSource,
        store: KeyStore,
        clock: Callable[[], datetime],
        desk: PermitDesk,
        *,
        mirror: KeyMirror | None = None,
        sleep: Sleep = asyncio.sleep,
        below: RandomBelow = secrets.randbelow,
    ) -> None:
        self._evidence = evidence
        self._store = store
        self._clock = clock
        self._desk = desk
        self._mirror = mirror
        self._sleep = sleep
        self._below = below
        self._fetching = asyncio.Lock()
        self._renewing: asyncio.Task[None] | None = None

    @property
    def known(self) -> VerifiedKey | None:
        """The key that was accepted last, whether or not it is still in force."""
        return self._store.known

    @property
    def expectations(self) -> Expectations:
        """What the policy demands of evidence."""
        return self._store.expectations

    async def current(self) -> VerifiedKey:
        """Return a key that is in force, fetching and verifying if need be.

        Raises:
            EnclaveError: unreachable, or the evidence was refused.
        """
        try:
            key = self._store.current(self._clock())
            if key is not None:
                return key
            async with self._fetching:
                # Asked again: the one that held the lock may have fetched it for us.
                key = self._store.current(self._clock())
                return await self._fetch() if key is None else key
        except RefusedError as refusal:
            telemetry.attest(telemetry.AttestOutcome.REFUSED, refusal.code)
            raise failure_of(refusal) from None

    async def after(self, old: VerifiedKey) -> VerifiedKey:
        """Return the key that follows one which the enclave no longer holds.

        Raises:
            EnclaveError: as ``current``; ``KEY_UNKNOWN`` where it is the same key.
        """
        self._store.drop(old)
        fresh = await self.current()
        # That the key is unknown was said outside of the seal, where a relay can say
        # anything. Sealing to the same key again would give it a second copy.
        if fresh.key_configs == old.key_configs:
            raise EnclaveError(FailureReason.KEY_UNKNOWN)
        return fresh

    async def probe(self) -> None:
        """Find out whether the relay is there, without any query.

        Raises:
            EnclaveError: as ``current``.
        """
        known = self._store.known
        if await self.current() is known:
            await self._bundle()  # a key in force says nothing of the way there

    async def renew(self, old: VerifiedKey) -> VerifiedKey | None:
        """Fetch and verify before a key ends; None where that failed."""
        # The same lock as for queries: two fetches side by side would be seen as one
        # that a query needed.
        async with self._fetching:
            known = self._store.known
            if known is not None and known is not old:
                return known  # it ended while we waited, and a query fetched another
            try:
                bundle = await self._bundle()
                mirrored = await self._mirrored()
                fresh = self._store.renew(bundle, self._clock(), mirrored=mirrored)
            except EnclaveError:
                return None
            except RefusedError as refusal:
                telemetry.attest(telemetry.AttestOutcome.REFUSED, refusal.code)
                return None
        telemetry.attest(telemetry.AttestOutcome.VERIFIED)
        return fresh

    async def close(self) -> None:
        """Renew nothing more, and close the way to the mirror."""
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.gather(self._renewing, return_exceptions=True)
        if self._mirror is not None:
            await self._mirror.close()

    async def _fetch(self) -> VerifiedKey:
        """Fetch and verify because none is in force; plan its renewal."""
        bundle = await self._bundle()
        try:
            mirrored = await self._mirrored()
        except MirrorSilentError as silent:
            # Remembered like a refusal: else each query would wait for the mirror anew.
            self._store.refuse(silent, self._clock())
            raise
        key = self._store.accept(bundle, self._clock(), mirrored=mirrored)
        telemetry.attest(telemetry.AttestOutcome.VERIFIED)
        if self._renewing is not None:
            self._renewing.cancel()  # what was drawn for the key before is void
        # Drawn at this moment, before any query can be sealed to the key.
        life_s, wait_s = self._draw(key)
        self._renewing = asyncio.create_task(self._keep_renewing(key, life_s, wait_s))
        return key

    async def _bundle(self) -> bytes:
        order = fetch_order(self._desk, Party.RELAY, self._clock())
        return await self._evidence.fetch_bundle(order)

    async def _mirrored(self) -> bytes | None:
        if self._mirror is None:
            return None
        try:
            order = fetch_order(self._desk, Party.MIRROR, self._clock())
            return await self._mirror.fetch_key_configs(order)
        except EnclaveError:
            # Not "no mirror": an attacker who can silence it would switch the
            # comparison off.
            raise mirror_silent() from None

    async def _keep_renewing(
        self, key: VerifiedKey, life_s: float, wait_s: float
    ) -> None:
        while True:
            await self._sleep(wait_s)
            fresh = await self.renew(key)
            # Drawn again, so that many clients of one relay that fails do not all come
            # back in the same second.
            if fresh is None:
                wait_s = max(life_s * RETRY * (0.5 + self._share()), LEAST_RETRY_S)
            else:
                key = fresh
                life_s, wait_s = self._draw(key)

    def _draw(self, key: VerifiedKey) -> tuple[float, float]:
        """Return how long a key lives from now, and how long to wait, in seconds."""
        # At least a second, and never a negative share: a key that is at its end when
        # it is accepted must not be fetched in a loop.
        life_s = max((key.expires_at - self._clock()).total_seconds(), 0.0)
        return life_s, max(life_s * (EARLIEST + SPREAD * self._share()), 1.0)

    def _share(self) -> float:
        return self._below(_STEPS) / _STEPS


def fetch_order(desk: PermitDesk, party: Party, now: datetime) -> FetchOrder:
    """Return the order for one fetch of public bytes, by a permit of its own kind.

    Raises:
        EnclaveError: the desk has no room for another permit.
    """
    # The transport knows no policy, so it takes what stands for the redeemed permit.
    permit = desk.mint_fetch(party, now_ms=time_ms(now))
    try:
        desk.redeem_fetch(permit, party=party, now_ms=time_ms(now))
    except PermitRefusedError as refused:
        raise not_permitted(refused) from None
    return FetchOrder(FETCH_DOOR, RELAY if party is Party.RELAY else MIRROR)


def not_permitted(refused: PermitRefusedError) -> EnclaveError:
    """Say a refused permit in the client's terms."""
    return EnclaveError(FailureReason.NOT_PERMITTED, code=refused.refusal.value)


def failure_of(refusal: RefusedError) -> EnclaveError:
    """Say a refusal of evidence in the client's terms."""
    if isinstance(refusal, MirrorSilentError):
        return EnclaveError(FailureReason.MIRROR_UNREACHABLE)
    return EnclaveError(FailureReason.EVIDENCE_REFUSED, code=refusal.code.value)
