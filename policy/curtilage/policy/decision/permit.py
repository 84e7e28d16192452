"""The desk, and the permits for everything but a query to an enclave.

An ``OnPremisesPermit`` permits one payload to be sent to an on-premises server.
Requests that carry no query have their own kinds: a cover request, a challenge, a
fetch of public bytes. None of them has a field for a payload's digest, so they cannot
carry a query. The permit to seal a query is in ``egress_permit``.
"""

import struct
from dataclasses import dataclass, field
from enum import StrEnum, unique
from typing import final

from typing_extensions import override

from curtilage.policy.decision.decide import (
    AllowedOnPremises,
    require_allowed_on_premises,
)
from curtilage.policy.decision.egress_permit import (
    KEY_BYTES,
    LIFE_MS,
    EgressDesk,
    EgressPermit,
    Permit,
    PermitRefusal,
    PermitRefusedError,
    WireException,
    compare,
    compare_keys,
    lp,
    require_attempt,
    require_digest,
    require_tier,
    time_ms,
)
from curtilage.policy.decision.tiers import RoutingClass

__all__ = [
    "KEY_BYTES", "LIFE_MS",
    "ChallengePermit", "CoverPermit", "EgressPermit", "FetchPermit", "OnPremisesPermit",
    "Party", "PermitDesk", "PermitRefusal", "PermitRefusedError", "WireException",
    "time_ms",
]  # fmt: skip


@unique
class Party(StrEnum):
    """From whom public bytes may be fetched."""

    RELAY = "relay"
    MIRROR = "mirror"


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OnPremisesPermit(Permit):
    """The permit for one attempt to send one payload to one on-premises server.

    Attributes:
        payload_digest: SHA-256 of the payload.
        routing_class: how much the query may risk.
        tier: the tier's id, of kind ``on_premises``.
        server_digest: SHA-256 of the server's address and its credentials.
        policy_digest: the policy that permits it.
        attempt: which one, from 0.
    """

    label = b"curtilage/on-premises-permit/v1\0"

    payload_digest: bytes = field(repr=False)
    routing_class: RoutingClass
    tier: str
    server_digest: bytes = field(repr=False)
    policy_digest: str
    attempt: int

    @override
    def bound(self) -> tuple[bytes, ...]:
        """Return what it is bound to."""
        return (
            lp(self.payload_digest),
            lp(self.routing_class.value.encode()),
            lp(self.tier.encode()),
            lp(self.server_digest),
            lp(self.policy_digest.encode()),
            struct.pack(">B", self.attempt),
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Wordless(Permit):
    """The permit to seal a request without any query data to one enclave's keys.

    Attributes:
        enclave_key_digest: SHA-256 of the enclave's key list.
        release_digest: SHA-256 of its release's manifest.
    """

    enclave_key_digest: bytes = field(repr=False)
    release_digest: bytes = field(repr=False)

    @override
    def bound(self) -> tuple[bytes, ...]:
        """Return what it is bound to."""
        return lp(self.enclave_key_digest), lp(self.release_digest)


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CoverPermit(_Wordless):
    """The permit to seal one cover request."""

    label = b"curtilage/cover-permit/v1\0"


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ChallengePermit(_Wordless):
    """The permit to seal one challenge."""

    label = b"curtilage/challenge-permit/v1\0"


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FetchPermit(Permit):
    """The permit to fetch public bytes once: evidence, or the mirror's key list.

    Attributes:
        party: from whom.
    """

    label = b"curtilage/fetch-permit/v1\0"

    party: Party

    @override
    def bound(self) -> tuple[bytes, ...]:
        """Return what it is bound to."""
        return (lp(self.party.value.encode()),)


@final
class PermitDesk(EgressDesk):
    """Mints permits and redeems each once; one for a process, for one thread.

    A permit is used up when it is presented, whether or not it holds: it cannot be
    tried again with other bytes. Used permits are remembered until they expire; when
    there is no room for another, nothing is redeemed or used up. A clock that is set
    back by more than a permit's life voids all permits, since some used ones have been
    forgotten by then.

    Args:
        key: 32 random bytes, drawn for this process and never passed on.
        draw: randomness: returns as many bytes as it is asked for.
        most: how many used permits are remembered.
    """

    __slots__ = ()

    def mint_on_premises(
        self,
        allowed: AllowedOnPremises,
        *,
        tier: str,
        server_digest: bytes,
        attempt: int,
        now_ms: int,
    ) -> OnPremisesPermit:
        """Mint the permit for one attempt to ask an on-premises server.

        Args:
            allowed: the decision about the payload.
            tier: one of ``allowed.tiers``.
            server_digest: SHA-256 of the server's address and its credentials.
            attempt: which one, from 0 to 255.
            now_ms: the time.

        Raises:
            TypeError: ``allowed`` was not built by ``decide``, or is an
                ``Allowed``.
            PermitRefusedError: ``tier`` or ``attempt``.
        """
        permitted = require_allowed_on_premises(allowed)
        require_tier(tier, permitted.tiers)
        require_attempt(attempt)
        return self._issued(
            OnPremisesPermit(
                **self._head(now_ms),
                payload_digest=permitted.payload_digest,
                routing_class=permitted.routing_class,
                tier=tier,
                server_digest=require_digest(server_digest),
                policy_digest=permitted.policy_digest,
                attempt=attempt,
            )
        )

    def mint_cover(
        self, *, enclave_key_digest: bytes, release_digest: bytes, now_ms: int
    ) -> CoverPermit:
        """Mint the permit for one cover request; digests and time as for ``mint``."""
        return self._issued(
            CoverPermit(
                **self._head(now_ms),
                enclave_key_digest=require_digest(enclave_key_digest),
                release_digest=require_digest(release_digest),
            )
        )

    def mint_challenge(
        self, *, enclave_key_digest: bytes, release_digest: bytes, now_ms: int
    ) -> ChallengePermit:
        """Mint the permit for one challenge; digests and time as for ``mint``."""
        return self._issued(
            ChallengePermit(
                **self._head(now_ms),
                enclave_key_digest=require_digest(enclave_key_digest),
                release_digest=require_digest(release_digest),
            )
        )

    def mint_fetch(self, party: Party, *, now_ms: int) -> FetchPermit:
        """Mint the permit for one fetch of public bytes."""
        return self._issued(
            FetchPermit(
                **self._head(now_ms),
                party=party,
            )
        )

    def redeem_on_premises(
        self,
        permit: OnPremisesPermit,
        *,
        payload_digest: bytes,
        server_digest: bytes,
        now_ms: int,
    ) -> None:
        """Redeem the permit for the given payload and server, just before sending.

        Args:
            permit: of this desk.
            payload_digest: SHA-256 of the exact bytes that are sent.
            server_digest: of the server that is connected.
            now_ms: the time.

        Raises:
            TypeError: as ``redeem``.
            PermitRefusedError: as ``redeem``.
        """
        shown = self._spent(permit, OnPremisesPermit, now_ms)
        compare(shown.payload_digest, payload_digest, PermitRefusal.PAYLOAD)
        compare(shown.server_digest, server_digest, PermitRefusal.SERVER)

    def redeem_cover(
        self,
        permit: CoverPermit,
        *,
        enclave_key_digest: bytes,
        release_digest: bytes,
        now_ms: int,
    ) -> None:
        """Redeem the permit for a cover request; raises as ``redeem``."""
        shown = self._spent(permit, CoverPermit, now_ms)
        keys = shown.enclave_key_digest, shown.release_digest
        compare_keys(keys, enclave_key_digest, release_digest)

    def redeem_challenge(
        self,
        permit: ChallengePermit,
        *,
        enclave_key_digest: bytes,
        release_digest: bytes,
        now_ms: int,
    ) -> None:
        """Redeem the permit for a challenge; raises as ``redeem``."""
        shown = self._spent(permit, ChallengePermit, now_ms)
        keys = shown.enclave_key_digest, shown.release_digest
        compare_keys(keys, enclave_key_digest, release_digest)

    def redeem_fetch(self, permit: FetchPermit, *, party: Party, now_ms: int) -> None:
        """Redeem the permit for a fetch; raises as ``redeem``."""
        shown = self._spent(permit, FetchPermit, now_ms)
        if shown.party is not party:
            raise PermitRefusedError(PermitRefusal.PARTY)
