"""Which enclave key may be used: fetched, verified, pinned, renewed before it ends.

``KeyStore`` knows what was verified and until when, of one enclave; ``KeySource``
fetches for it, and for every node of a pool at once: a client fetches the same,
whichever node it asks.

A relay sees when evidence is fetched. Fetched when a query needs it, that would tell
of queries; so the next time is drawn when a key is accepted, near four fifths of its
life, and nothing that is asked meanwhile moves it. One fetch runs at a time. After
one that failed the next is drawn likewise, and the key in force serves on until it
ends: a renewal takes nothing away.
"""

import asyncio
import hashlib
import secrets
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, Protocol

from curtilage.attest.clock import ClockSuspectedError, suspect_clock
from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.expectations import Expectations
from curtilage.attest.verified_key import VerifiedKey
from curtilage.attest.verify import verify
from curtilage.client import telemetry
from curtilage.client.errors import EnclaveError, FailureReason
from curtilage.client.remote.fetch_order import (
    FETCH_DOOR,
    MIRROR,
    RELAY,
    FetchOrder,
)
from curtilage.client.remote.key_consistency import (
    KeyHistory,
    MirrorSilentError,
    compare_with_mirror,
    mirror_silent,
)
from curtilage.client.remote.log_history import LogHistory, view_of
from curtilage.client.remote.nodes import (
    GATEWAY,
    Draw,
    Node,
    bundles_of,
    key_lists_of,
)
from curtilage.policy.decision.permit import (
    Party,
    PermitDesk,
    PermitRefusedError,
    time_ms,
)
from curtilage.wire.node_list import MAX_NODES

NEGATIVE_TTL = timedelta(seconds=60)


@dataclass(slots=True, kw_only=True)
class KeyStore:
    """What is known of one enclave's key: verified, in force, refused.

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

    def holds(self, now: datetime) -> bool:
        """Tell whether a key is pinned and in force."""
        return self._key is not None and self._in_force(self._key, now)

    def another(self) -> "KeyStore":
        """Return a store for another enclave, under the same rules and of one log."""
        return KeyStore(expectations=self.expectations, logs=self.logs)

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
            raise _alone(self._refusal)
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
            raise self._refused(refusal, bundle, now) from None

    def _refused(
        self, refusal: RefusedError, bundle: bytes, now: datetime
    ) -> RefusedError:
        """Return a refusal to raise, and remember it."""
        refusal = suspect_clock(refusal, bundle, self.expectations, now=now)
        # Or each query would have a bad bundle fetched and verified again.
        self.refuse(refusal, now)
        return refusal

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
        self._key, self._refusal = None, _alone(refusal)
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
    """The keys that may be sealed to now, fetched and verified when there are none.

    Args:
        evidence: where the bundle is fetched.
        store: what was verified of the gateway; also begins the stores of a pool's
            nodes.
        clock: the time, aware UTC.
        desk: where the permit of each fetch is minted and redeemed.
        mirror: an independent copy of the key list, where the policy names one.
        sleep: waits for the time of a renewal.
        below: randomness of that time, and of the draw among nodes.
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
        self._stores = {GATEWAY: store}
        self._listed: tuple[str, ...] = (GATEWAY,)
        self._unlisted = 0
        self._fetched_at: datetime | None = None
        self._clock = clock
        self._desk = desk
        self._mirror = mirror
        self._sleep = sleep
        self._below = below
        self._draw_of = Draw(below)
        self._fetching = asyncio.Lock()
        self._renewing: asyncio.Task[None] | None = None

    @property
    def known(self) -> VerifiedKey | None:
        """The key in force that ends first; where there is none, one that was."""
        keys = self._in_force() or [
            key for node in self._listed if (key := self._stores[node].known)
        ]
        return min(keys, key=lambda key: key.expires_at, default=None)

    @property
    def expectations(self) -> Expectations:
        """What the policy demands of evidence."""
        return self._stores[GATEWAY].expectations

    async def current(self) -> VerifiedKey:
        """Return a key that is in force, fetching and verifying if need be.

        Raises:
            EnclaveError: unreachable, or the evidence was refused.
        """
        return (await self.node()).key

    async def node(self, meets: Callable[[VerifiedKey], bool] = lambda _: True) -> Node:
        """Draw a node whose key is in force, fetching and verifying if need be.

        Args:
            meets: whether a key meets what is demanded of it; see ``Draw.node``.

        Raises:
            EnclaveError: unreachable, the evidence was refused, or too few of a pool's
                nodes could be verified.
        """
        try:
            node = self._drawn(meets)
            if node is None:
                async with self._fetching:
                    # Asked again: the one that held the lock may have fetched for us.
                    node = self._drawn(meets)
                    if node is None and self._may_fetch():
                        await self._fetch()
                        node = self._drawn(meets)
        except RefusedError as refusal:
            telemetry.attest(telemetry.AttestOutcome.REFUSED, refusal.code)
            raise failure_of(refusal) from None
        if node is None:
            raise EnclaveError(FailureReason.TOO_FEW_NODES)
        return node

    def failed(
        self, node: Node, meets: Callable[[VerifiedKey], bool], *, busy: bool
    ) -> Node | None:
        """Leave a node out for a while; return another one, where there is any."""
        self._draw_of.failed(node.id, self._clock(), busy=busy)
        try:
            return self._drawn(meets, other_than=node.id)
        except RefusedError:
            return None

    async def after(self, old: Node) -> Node:
        """Return a node with the key that follows one which it no longer holds.

        Raises:
            EnclaveError: as ``node``; ``KEY_UNKNOWN`` where it is the same key.
        """
        # Of a node that was forgotten since there is nothing to go on from.
        store = self._stores.get(old.id)
        if store is None:
            raise EnclaveError(FailureReason.KEY_UNKNOWN)
        store.drop(old.key)
        try:
            async with self._fetching:
                # Unless another query has fetched its successor already.
                if store.current(self._clock()) is None:
                    await self._fetch()
        except RefusedError as refusal:
            telemetry.attest(telemetry.AttestOutcome.REFUSED, refusal.code)
            raise failure_of(refusal) from None
        fresh = store.known
        # That the key is unknown was said outside of the seal, where a relay can say
        # anything. Sealing to the same key again would give it a second copy.
        if fresh is None or fresh.key_configs == old.key.key_configs:
            raise EnclaveError(FailureReason.KEY_UNKNOWN)
        return Node(old.id, fresh)

    async def probe(self) -> None:
        """Find out whether the relay is there, without any query.

        Raises:
            EnclaveError: as ``node``.
        """
        before = self._fetched_at
        await self.node()
        if self._fetched_at is before:
            await self._bundle()  # a key in force says nothing of the way there

    async def renew(self, old: VerifiedKey) -> VerifiedKey | None:
        """Fetch and verify before a key ends; None where that failed for any node."""
        # The same lock as for queries: two fetches side by side would be seen as one
        # that a query needed.
        async with self._fetching:
            known = self.known
            if known is not None and known is not old:
                return known  # it ended while we waited, and a query fetched another
            try:
                bundle, mirrored = await self._bundle(), await self._mirrored()
                refusals = self._take(bundle, mirrored, renewing=True)
            except EnclaveError:
                return None
            except RefusedError as refusal:
                refusals = [refusal]
            _count(refusals)
            fresh = self.known
            if refusals or fresh is old or self._has_gaps():
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

    def _drawn(
        self,
        meets: Callable[[VerifiedKey], bool],
        other_than: str | None = None,
    ) -> Node | None:
        now = self._clock()
        verified: list[Node] = []
        refusals: list[RefusedError] = []
        for node in self._listed:
            try:
                key = self._stores[node].current(now)
            except RefusedError as refusal:
                refusals.append(_alone(refusal))
            else:
                verified += [] if key is None else [Node(node, key)]
        if refusals and not verified:
            raise _alone(refusals[0])
        return self._draw_of.node(
            verified,
            len(self._listed) - len(verified) + self._unlisted + len(self._gone(now)),
            now,
            meets=meets,
            other_than=other_than,
        )

    def _gone(self, now: datetime) -> list[str]:
        """Return the nodes that are listed no more and whose keys are in force."""
        # A list that shrinks from one fetch to the next would otherwise do what hiding
        # bundles may not. An operator may take away half of a pool at a time.
        others = self._stores.keys() - {GATEWAY, *self._listed}
        return [node for node in others if self._stores[node].holds(now)]

    def _in_force(self) -> list[VerifiedKey]:
        """Return the keys in force of the listed nodes."""
        now = self._clock()
        stores = (self._stores[node] for node in self._listed)
        return [each.known for each in stores if each.known and each.holds(now)]

    def _has_gaps(self) -> bool:
        return len(self._in_force()) < len(self._listed)

    def _may_fetch(self) -> bool:
        """Tell whether it is time to fetch, for lack of a node that may be drawn."""
        # A pool with too few is fetched again once a minute: fetched for each query, it
        # would show when each was asked.
        at, now = self._fetched_at, self._clock()
        lately = at is not None and timedelta() <= now - at < NEGATIVE_TTL
        return not (lately and self._in_force())

    async def _fetch(self) -> None:
        """Fetch and verify because one is needed; plan the renewal."""
        with telemetry.timed(telemetry.Stage.ATTEST):
            bundle = await self._bundle()
            try:
                mirrored = await self._mirrored()
                refusals = self._take(bundle, mirrored, renewing=False)
                if refusals and not self._in_force():
                    raise _alone(refusals[0])
            except RefusedError as refusal:
                # Remembered, a mirror's silence too: else each query would have the
                # same fetched and refused anew.
                for store in (self._stores[node] for node in self._listed):
                    if not store.holds(self._clock()):
                        store.refuse(refusal, self._clock())
                raise
        key = self.known
        if key is None:
            raise EnclaveError(FailureReason.ENCLAVE_UNREACHABLE)
        telemetry.attest(telemetry.AttestOutcome.VERIFIED)
        _count(refusals)
        if self._renewing is not None:
            self._renewing.cancel()  # what was drawn for the key before is void
        # Drawn at this moment, before any query can be sealed to the key.
        life_s, wait_s = self._draw(key)
        if self._has_gaps():
            wait_s = self._retry_s(life_s)
        self._renewing = asyncio.create_task(self._keep_renewing(key, life_s, wait_s))

    def _take(
        self, served: bytes, mirrored: bytes | None, *, renewing: bool
    ) -> list[RefusedError]:
        """Verify what was fetched, each node's by itself; return what was refused.

        Raises:
            RefusedError: the mirror's list is none; nothing changes.
        """
        now = self._clock()
        self._fetched_at = now
        bundles = bundles_of(served)
        pool = GATEWAY not in bundles
        lists = None if mirrored is None else key_lists_of(mirrored, pool=pool)
        refusals: list[RefusedError] = []
        for node, bundle in bundles.items():
            store = self._stores.setdefault(node, self._stores[GATEWAY].another())
            # What the relay could not get, or refuses to show, takes no key away; nor
            # does bad evidence, where there is a key: as for a renewal.
            held = store.holds(now)
            take = store.renew if held or renewing else store.accept
            try:
                if bundle:
                    theirs = None if lists is None else lists.get(node, b"")
                    self._require_own(node, take(bundle, now, mirrored=theirs), bundles)
            except RefusedError as refusal:
                refusals += [_alone(refusal)] if renewing or not held else []
        # A list of nothing that can be verified takes nobody's place.
        if any(self._stores[node].holds(now) for node in bundles):
            self._listed = tuple(bundles)
            hidden = (
                each for node, each in (lists or {}).items() if node not in bundles
            )
            self._unlisted = sum(map(bool, hidden))
        # Also where nothing of it can be verified: a relay names as many as it likes.
        self._forget(bundles, now)
        return refusals

    def _require_own(self, node: str, key: VerifiedKey, listed: Iterable[str]) -> None:
        """Refuse a node that has another one's key list."""
        # Listed under two names, an enclave would be drawn twice as often.
        for other in listed:
            store = self._stores.get(other)
            known = None if store is None or other == node else store.known
            if known is not None and known.key_configs == key.key_configs:
                refusal = RefusedError(
                    RefusalCode.KEY_INCONSISTENT, f"the keys of node {other}"
                )
                self._stores[node].refuse(refusal, self._clock())
                raise refusal

    def _forget(self, served: Collection[str], now: datetime) -> None:
        """Forget nodes that are listed no more, once there are many."""
        # Not at once: what was seen of a node's keys holds when it comes back.
        kept = {GATEWAY, *self._listed, *served, *self._gone(now)}
        for node in [each for each in self._stores if each not in kept]:
            if len(self._stores) > 2 * MAX_NODES:
                del self._stores[node]

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
            early = self._has_gaps()
            await self._sleep(wait_s)
            fresh = await self.renew(key)
            if early and not self._has_gaps():
                # It was for the nodes that were missing; the others' keys are not due.
                fresh = self.known
            # Drawn again, so that many clients of one relay that fails do not all come
            # back in the same second.
            if fresh is None:
                key, wait_s = self.known or key, self._retry_s(life_s)
            else:
                key = fresh
                life_s, wait_s = self._draw(key)

    def _draw(self, key: VerifiedKey) -> tuple[float, float]:
        """Return how long a key lives from now, and how long to wait, in seconds."""
        # At least a second, and never a negative share: a key that is at its end when
        # it is accepted must not be fetched in a loop.
        life_s = max((key.expires_at - self._clock()).total_seconds(), 0.0)
        return life_s, max(life_s * (EARLIEST + SPREAD * self._share()), 1.0)

    def _retry_s(self, life_s: float) -> float:
        return max(life_s * RETRY * (0.5 + self._share()), LEAST_RETRY_S)

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


def _alone(refusal: RefusedError) -> RefusedError:
    """Return the same refusal without where it came from, to be kept or raised again.

    One that was raised holds the frames that it went through, and so the question that
    a key was wanted for; raised again and again, it would hold more of them.
    """
    return type(refusal)(
        refusal.code, refusal.detail, step=refusal.step, steps=refusal.steps
    )


def _count(refusals: Iterable[RefusedError]) -> None:
    for refusal in refusals:
        telemetry.attest(telemetry.AttestOutcome.REFUSED, refusal.code)


def not_permitted(refused: PermitRefusedError) -> EnclaveError:
    """Say a refused permit in the client's terms."""
    return EnclaveError(FailureReason.NOT_PERMITTED, code=refused.refusal.value)


def failure_of(refusal: RefusedError) -> EnclaveError:
    """Say a refusal of evidence in the client's terms."""
    if isinstance(refusal, MirrorSilentError):
        return EnclaveError(FailureReason.MIRROR_UNREACHABLE)
    reason = FailureReason.EVIDENCE_REFUSED
    if isinstance(refusal, ClockSuspectedError):
        reason = FailureReason.CLOCK_SUSPECTED
    return EnclaveError(reason, code=refusal.code.value)
