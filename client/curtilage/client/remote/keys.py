"""The enclave keys that may be used: fetched, verified, renewed in time.

``KeySource`` fetches for all nodes of a pool at once: a client's fetches are the same,
whichever node it uses. Each node has a ``KeyStore``, which verifies and pins its keys.

A relay sees when evidence is fetched. Fetching on demand would reveal when queries are
made; so the time of the next fetch is drawn when a key is accepted, near four fifths of
its life, and no query in the meantime moves it. One fetch runs at a time. After a
failed fetch the next is drawn in the same way, and the key in force is used until it
expires: a failed renewal does not revoke it.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Collection, Iterable
from datetime import datetime, timedelta
from typing import Final, Protocol

from curtilage.attest.clock import ClockSuspectedError
from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.expectations import Expectations
from curtilage.attest.verified_key import VerifiedKey
from curtilage.client import telemetry
from curtilage.client.errors import AttemptFailure, EnclaveError
from curtilage.client.remote.fetch_order import (
    FETCH_DOOR,
    MIRROR,
    RELAY,
    FetchOrder,
)
from curtilage.client.remote.key_consistency import (
    MirrorSilentError,
    mirror_silent,
)
from curtilage.client.remote.key_store import NEGATIVE_TTL, KeyStore, alone
from curtilage.client.remote.nodes import (
    GATEWAY,
    Draw,
    Node,
    bundles_of,
    key_lists_of,
)
from curtilage.client.remote.reasons import EnclaveFailure
from curtilage.policy.decision.permit import (
    FetchBinding,
    Party,
    PermitDesk,
    PermitRefusedError,
    time_ms,
)
from curtilage.wire.node_list import MAX_NODES

EARLIEST: Final = 0.75
SPREAD: Final = 0.10
"""A key is renewed after 0.75 to 0.85 of its life, evenly distributed."""
RETRY: Final = 0.05
"""After a failed renewal, the next attempt comes after this share of the life, plus or
minus half of it, and never before a remembered refusal expires."""
LEAST_RETRY_S: Final = 60.0
_STEPS: Final = 2**32

RandomBelow = Callable[[int], int]
"""Draws an integer from 0 to one less than what it is given."""

Sleep = Callable[[float], Awaitable[None]]
"""Waits, in seconds."""


class EvidenceSource(Protocol):
    """Source of evidence: the relay, in the product."""

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
    """The keys that may be sealed to now; fetches and verifies them when necessary.

    Args:
        evidence: source of the bundle.
        store: of the gateway's key; also creates the stores of a pool's
            nodes.
        clock: the time, aware UTC.
        desk: mints and redeems the permit of each fetch.
        mirror: an independent copy of the key list, if the policy names one.
        sleep: waits for the time of a renewal.
        below: randomness for that time, and for the draw of nodes.
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
        """The key in force that expires first; without one, an expired key."""
        keys = self._in_force() or [
            key for node in self._listed if (key := self._stores[node].known)
        ]
        return min(keys, key=lambda key: key.expires_at, default=None)

    @property
    def expectations(self) -> Expectations:
        """The policy's demands on evidence."""
        return self._stores[GATEWAY].expectations

    async def current(self) -> VerifiedKey:
        """Return a key in force; fetches and verifies if necessary.

        Raises:
            EnclaveError: unreachable, or the evidence was refused.
        """
        return (await self.node()).key

    async def node(self, meets: Callable[[VerifiedKey], bool] = lambda _: True) -> Node:
        """Draw a node with a key in force; fetches and verifies if necessary.

        Args:
            meets: whether a key meets the requirement; see ``Draw.node``.

        Raises:
            EnclaveError: unreachable, the evidence was refused, or too few of a pool's
                nodes could be verified.
        """
        try:
            node = self._drawn(meets)
            if node is None:
                async with self._fetching:
                    # Checked again: the holder of the lock may have fetched for us.
                    node = self._drawn(meets)
                    # A pool with too few nodes is fetched again once a minute; fetching
                    # for each query would reveal when each was made.
                    at, now = self._fetched_at, self._clock()
                    lately = at is not None and timedelta() <= now - at < NEGATIVE_TTL
                    if node is None and not (lately and self._in_force()):
                        await self._fetch()
                        node = self._drawn(meets)
        except RefusedError as refusal:
            telemetry.attest(telemetry.AttestOutcome.REFUSED, refusal.code)
            raise failure_of(refusal) from None
        if node is None:
            raise EnclaveError(EnclaveFailure.TOO_FEW_NODES)
        return node

    def failed(
        self, node: Node, meets: Callable[[VerifiedKey], bool], *, busy: bool
    ) -> Node | None:
        """Leave a node out for a while; return another one, if there is any."""
        self._draw_of.failed(node.id, self._clock(), busy=busy)
        try:
            return self._drawn(meets, other_than=node.id)
        except RefusedError:
            return None

    async def after(self, old: Node) -> Node:
        """Return a node with the successor of a key that the node no longer holds.

        Raises:
            EnclaveError: as ``node``; ``KEY_UNKNOWN`` where it is the same key.
        """
        # A node that was forgotten meanwhile has no store to continue from.
        store = self._stores.get(old.id)
        if store is None:
            raise EnclaveError(EnclaveFailure.KEY_UNKNOWN)
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
        # "Key unknown" came from outside the seal, where a relay can forge it. Sealing
        # to the same key again would give the relay a second copy.
        if fresh is None or fresh.key_configs == old.key.key_configs:
            raise EnclaveError(EnclaveFailure.KEY_UNKNOWN)
        return Node(old.id, fresh)

    async def probe(self) -> None:
        """Check that the relay can be reached, without sending a query.

        Raises:
            EnclaveError: as ``node``.
        """
        before = self._fetched_at
        await self.node()
        if self._fetched_at is before:
            await self._bundle()  # a key in force does not show that the relay is up

    async def renew(self, old: VerifiedKey) -> VerifiedKey | None:
        """Fetch and verify before a key expires; None if that failed for any node."""
        # The same lock as for queries: two parallel fetches would reveal that a query
        # needed one of them.
        async with self._fetching:
            known = self.known
            if known is not None and known is not old:
                return known  # it expired while we waited, and a query fetched another
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
        """Stop renewing, and close the connection to the mirror."""
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
                refusals.append(alone(refusal))
            else:
                verified += [] if key is None else [Node(node, key)]
        if refusals and not verified:
            raise alone(refusals[0])
        return self._draw_of.node(
            verified,
            len(self._listed) - len(verified) + self._unlisted + len(self._gone(now)),
            now,
            meets=meets,
            other_than=other_than,
        )

    def _gone(self, now: datetime) -> list[str]:
        """Return the nodes that are no longer listed and whose keys are in force."""
        # Otherwise shrinking the list from one fetch to the next would do what hiding
        # bundles may not. An operator may remove up to half of a pool at a time.
        others = self._stores.keys() - {GATEWAY, *self._listed}
        return [node for node in others if self._stores[node].holds(now)]

    def _in_force(self) -> list[VerifiedKey]:
        """Return the keys in force of the listed nodes."""
        now = self._clock()
        stores = (self._stores[node] for node in self._listed)
        return [each.known for each in stores if each.known and each.holds(now)]

    def _has_gaps(self) -> bool:
        return len(self._in_force()) < len(self._listed)

    async def _fetch(self) -> None:
        """Fetch and verify on demand; schedule the renewal."""
        with telemetry.timed(telemetry.Stage.ATTEST):
            bundle = await self._bundle()
            try:
                mirrored = await self._mirrored()
                refusals = self._take(bundle, mirrored, renewing=False)
                if refusals and not self._in_force():
                    raise alone(refusals[0])
            except RefusedError as refusal:
                # Remembered, also when the mirror did not respond: otherwise each query
                # would fetch and refuse the same again.
                for store in (self._stores[node] for node in self._listed):
                    if not store.holds(self._clock()):
                        store.refuse(refusal, self._clock())
                raise
        key = self.known
        if key is None:
            raise EnclaveError(EnclaveFailure.ENCLAVE_UNREACHABLE)
        telemetry.attest(telemetry.AttestOutcome.VERIFIED)
        _count(refusals)
        if self._renewing is not None:
            self._renewing.cancel()  # the time drawn for the previous key is void
        # Drawn now, before any query can be sealed to the key.
        life_s, wait_s = self._draw(key)
        if self._has_gaps():
            wait_s = self._retry_s(life_s)
        self._renewing = asyncio.create_task(self._keep_renewing(key, life_s, wait_s))

    def _take(
        self, served: bytes, mirrored: bytes | None, *, renewing: bool
    ) -> list[RefusedError]:
        """Verify each node's fetched bundle separately; return the refusals.

        Raises:
            RefusedError: the mirror's list is malformed; nothing changes.
        """
        now = self._clock()
        self._fetched_at = now
        bundles = bundles_of(served)
        pool = GATEWAY not in bundles
        lists = None if mirrored is None else key_lists_of(mirrored, pool=pool)
        refusals: list[RefusedError] = []
        for node, bundle in bundles.items():
            store = self._stores.setdefault(node, self._stores[GATEWAY].another())
            # A bundle that the relay could not get, or withholds, revokes no key; nor
            # does bad evidence while a key is in force: as for a renewal.
            held = store.holds(now)
            take = store.renew if held or renewing else store.accept
            try:
                if bundle:
                    theirs = None if lists is None else lists.get(node, b"")
                    self._require_own(node, take(bundle, now, mirrored=theirs), bundles)
            except RefusedError as refusal:
                refusals += [alone(refusal)] if renewing or not held else []
        # A list without a single verified node does not replace the previous one.
        if any(self._stores[node].holds(now) for node in bundles):
            self._listed = tuple(bundles)
            hidden = (
                each for node, each in (lists or {}).items() if node not in bundles
            )
            self._unlisted = sum(map(bool, hidden))
        # Also when nothing was verified: a relay can list any number of nodes.
        self._forget(bundles, now)
        return refusals

    def _require_own(self, node: str, key: VerifiedKey, listed: Iterable[str]) -> None:
        """Refuse a node that has another node's key list."""
        # An enclave listed under two names would be drawn twice as often.
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
        """Forget nodes that are no longer listed, once there are many."""
        # Not at once: a node's key history still applies when the node comes back.
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
            # Not treated as "no mirror": an attacker who can silence it would switch
            # the comparison off.
            raise mirror_silent() from None

    async def _keep_renewing(
        self, key: VerifiedKey, life_s: float, wait_s: float
    ) -> None:
        while True:
            early = self._has_gaps()
            await self._sleep(wait_s)
            fresh = await self.renew(key)
            if early and not self._has_gaps():
                # This fetch was for missing nodes; the others' keys are not due yet.
                fresh = self.known
            # Drawn again, so that many clients of a failing relay do not all retry in
            # the same second.
            if fresh is None:
                key, wait_s = self.known or key, self._retry_s(life_s)
            else:
                key = fresh
                life_s, wait_s = self._draw(key)

    def _draw(self, key: VerifiedKey) -> tuple[float, float]:
        """Return how long a key lives from now, and how long to wait, in seconds."""
        # At least a second, and never negative: a key that has almost expired when it
        # is accepted must not be fetched in a loop.
        life_s = max((key.expires_at - self._clock()).total_seconds(), 0.0)
        return life_s, max(life_s * (EARLIEST + SPREAD * self._share()), 1.0)

    def _retry_s(self, life_s: float) -> float:
        return max(life_s * RETRY * (0.5 + self._share()), LEAST_RETRY_S)

    def _share(self) -> float:
        return self._below(_STEPS) / _STEPS


def fetch_order(desk: PermitDesk, party: Party, now: datetime) -> FetchOrder:
    """Return the order for one fetch of public bytes, using a permit for fetches.

    Raises:
        EnclaveError: the desk has no room for another permit.
    """
    # The transport has no access to the policy, so it takes this order for the permit.
    binding = FetchBinding(party=party)
    permit = desk.mint_without_query(binding, now_ms=time_ms(now))
    try:
        desk.redeem(permit, binding, now_ms=time_ms(now))
    except PermitRefusedError as refused:
        raise not_permitted(refused) from None
    return FetchOrder(FETCH_DOOR, RELAY if party is Party.RELAY else MIRROR)


def _count(refusals: Iterable[RefusedError]) -> None:
    for refusal in refusals:
        telemetry.attest(telemetry.AttestOutcome.REFUSED, refusal.code)


def not_permitted(refused: PermitRefusedError) -> EnclaveError:
    """Return the client's error for a refused permit."""
    return EnclaveError(AttemptFailure.NOT_PERMITTED, code=refused.refusal.value)


def failure_of(refusal: RefusedError) -> EnclaveError:
    """Return the client's error for refused evidence."""
    if isinstance(refusal, MirrorSilentError):
        return EnclaveError(EnclaveFailure.MIRROR_UNREACHABLE)
    reason = EnclaveFailure.EVIDENCE_REFUSED
    if isinstance(refusal, ClockSuspectedError):
        reason = EnclaveFailure.CLOCK_SUSPECTED
    return EnclaveError(reason, code=refusal.code.value)
