r"""Single-use, short-lived permit to seal one payload to one enclave.

``decide`` permits a query to be sent; a permit covers one attempt at that. It names
the bytes, their routing class, the tier, the enclave's keys and its release, the
policy and the attempt, is valid for at most 30 seconds, and for one attempt. So a
faulty retry, hedge or queue can neither send a query twice nor send it elsewhere:
only the desk mints permits, and only from a decision, and without a permit nothing
is sealed.

A query may be sealed a second time where the wire says that the first was of no use
(``WireException``): each reason once, and only after the permit of the attempt before
was redeemed. Requests that carry no query have their own kinds of permit (``permit``).

``lp(x)`` is a u32 big-endian length and x, integers are big-endian, texts are UTF-8;
each kind has a label of its own:

    mac = HMAC-SHA-256(key of this process, "curtilage/egress-permit/v1\0"
          | lp(id) | u64 not_after_ms | lp(payload_digest) | lp(routing_class)
          | lp(tier) | lp(enclave_key_digest) | lp(release_digest)
          | lp(policy_digest) | u8 attempt | lp(exceptions, joined by commas))

Pure: the time, the key and randomness are arguments. Permits guard against our own
mistakes. Malicious code in our own process can reach the key; no value could stop it.
"""

import heapq
import hmac
import struct
from collections.abc import Callable
from dataclasses import InitVar, dataclass, field
from datetime import datetime
from enum import StrEnum, unique
from typing import ClassVar, Final, NoReturn, TypedDict, TypeVar, final
from weakref import WeakSet

from typing_extensions import override

from curtilage.policy.decision.decide import DIGEST_BYTES, Allowed, require_allowed
from curtilage.policy.decision.tiers import RoutingClass

LIFE_MS: Final = 30_000
"""The longest life of a permit: between the decision and the seal, a record is written
to disk and a challenge is answered; nothing takes longer."""

ID_BYTES: Final = 16
KEY_BYTES: Final = 32
MOST_USED: Final = 65_536
"""How many used permits are remembered: two thousand attempts a second."""

LAST_ATTEMPT: Final = 255
# Like that of ``decide``: a permit with this mark comes from a desk.
_BRAND: Final = object()


@unique
class WireException(StrEnum):
    """Why a query may be sealed again although it was sealed before.

    ``KEY_UNKNOWN``: the enclave no longer holds the key, and there is another.
    ``DATE_REFUSED``: the date inside the seal was outside of the enclave's window.
    ``NODE_FAILED``: one of a pool's nodes could not answer, and there is another.
    """

    KEY_UNKNOWN = "key_unknown"
    DATE_REFUSED = "date_refused"
    NODE_FAILED = "node_failed"


@unique
class PermitRefusal(StrEnum):
    """Why a permit is not minted or not redeemed; a closed set, safe to report."""

    FORGED = "forged"
    EXPIRED = "expired"
    USED = "used"
    FULL = "full"
    PAYLOAD = "payload"
    ROUTING_CLASS = "routing_class"
    TIER = "tier"
    KEY = "key"
    RELEASE = "release"
    POLICY = "policy"
    SERVER = "server"
    PARTY = "party"
    ATTEMPT = "attempt"
    NOT_REDEEMED = "not_redeemed"


class PermitRefusedError(PermissionError):
    """A permit is not minted, or does not hold for what it was shown with.

    Attributes:
        refusal: why; its value is the whole message.
    """

    def __init__(self, refusal: PermitRefusal) -> None:
        super().__init__(f"permit refused: {refusal.value}")
        self.refusal = refusal


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, weakref_slot=True)
class Permit:
    """Base of all permits: only a desk builds one, and it cannot be copied or changed.

    Attributes:
        id: 16 random bytes.
        not_after_ms: when it expires, by the desk's clock.
        mac: over everything that the permit is bound to.
    """

    label: ClassVar[bytes]

    id: bytes = field(repr=False)
    not_after_ms: int
    brand: InitVar[object]
    _brand: object = field(init=False, repr=False)
    mac: bytes = field(init=False, repr=False, default=b"")

    def __post_init__(self, brand: object) -> None:
        """Refuse to exist unless a desk made this."""
        # An ``InitVar``: ``dataclasses.replace`` has no value to pass on.
        if brand is not _BRAND:
            raise TypeError("only a PermitDesk builds a permit")
        object.__setattr__(self, "_brand", _BRAND)

    @override
    def __reduce_ex__(self, protocol: object) -> NoReturn:
        """Refuse to be copied or pickled: each copy could be shown once."""
        raise TypeError("a permit cannot be copied")

    def bound(self) -> tuple[bytes, ...]:
        """Return what it is bound to, each field in bytes."""
        raise NotImplementedError


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EgressPermit(Permit):
    """The permit for one attempt to seal one payload to one enclave's keys.

    Attributes:
        payload_digest: SHA-256 of the payload.
        routing_class: how much the query may risk.
        tier: the attested tier's id.
        enclave_key_digest: SHA-256 of the enclave's key list.
        release_digest: SHA-256 of its release's manifest.
        policy_digest: the policy that permits it.
        attempt: which one, from 0.
        exceptions: why it is sealed again; empty for a first permit.
    """

    label = b"curtilage/egress-permit/v1\0"

    payload_digest: bytes = field(repr=False)
    routing_class: RoutingClass
    tier: str
    enclave_key_digest: bytes = field(repr=False)
    release_digest: bytes = field(repr=False)
    policy_digest: str
    attempt: int
    exceptions: tuple[WireException, ...] = ()

    @override
    def bound(self) -> tuple[bytes, ...]:
        """Return what it is bound to."""
        return (
            lp(self.payload_digest),
            lp(self.routing_class.value.encode()),
            lp(self.tier.encode()),
            lp(self.enclave_key_digest),
            lp(self.release_digest),
            lp(self.policy_digest.encode()),
            struct.pack(">B", self.attempt),
            lp(",".join(self.exceptions).encode()),
        )


_P = TypeVar("_P", bound=Permit)


class _Head(TypedDict):
    """What every permit begins with."""

    brand: object
    id: bytes
    not_after_ms: int


class EgressDesk:
    """Mints permits to seal a payload, and redeems each once; see ``PermitDesk``."""

    __slots__ = ("_draw", "_expiries", "_key", "_latest_ms", "_most", "_open", "_used")

    def __init__(
        self, key: bytes, draw: Callable[[int], bytes], most: int = MOST_USED
    ) -> None:
        if len(key) != KEY_BYTES:
            raise ValueError(f"the key of a desk has {KEY_BYTES} bytes")
        self._key = key
        self._draw = draw
        self._most = most
        self._latest_ms = 0
        self._used: set[bytes] = set()
        self._expiries: list[tuple[int, bytes]] = []  # a heap of what is in ``_used``
        # Redeemed permits after which the wire may still ask for another attempt; by
        # identity, and dropped with the permit.
        self._open: WeakSet[EgressPermit] = WeakSet()

    @override
    def __reduce_ex__(self, protocol: object) -> NoReturn:
        """Refuse to be copied: a copy would not know what was used."""
        raise TypeError("a PermitDesk cannot be copied")

    def mint(
        self,
        allowed: Allowed,
        *,
        tier: str,
        enclave_key_digest: bytes,
        release_digest: bytes,
        attempt: int,
        now_ms: int,
    ) -> EgressPermit:
        """Mint the permit for one attempt to ask an enclave.

        Args:
            allowed: the decision about the payload.
            tier: one of ``allowed.tiers``.
            enclave_key_digest: SHA-256 of the key list that will be sealed to.
            release_digest: SHA-256 of the manifest of the release behind it.
            attempt: which one, from 0 to 255.
            now_ms: the time.

        Raises:
            TypeError: ``allowed`` was not built by ``decide``.
            PermitRefusedError: ``tier``, ``routing_class`` or ``attempt``.
        """
        permitted = require_allowed(allowed)
        require_tier(tier, permitted.tiers)
        require_attempt(attempt)
        # ``decide`` gives such a query no ``Allowed``. If it ever did so by mistake,
        # the query would be stopped here.
        if permitted.routing_class is RoutingClass.RESTRICTED:
            raise PermitRefusedError(PermitRefusal.ROUTING_CLASS)
        return self._issued(
            EgressPermit(
                **self._head(now_ms),
                payload_digest=permitted.payload_digest,
                routing_class=permitted.routing_class,
                tier=tier,
                enclave_key_digest=require_digest(enclave_key_digest),
                release_digest=require_digest(release_digest),
                policy_digest=permitted.policy_digest,
                attempt=attempt,
            )
        )

    def mint_again(
        self,
        after: EgressPermit,
        *,
        exception: WireException,
        enclave_key_digest: bytes,
        release_digest: bytes,
        now_ms: int,
    ) -> EgressPermit:
        """Mint the permit for the next attempt, where the wire asks for one.

        Once after each attempt, and once per query for each reason: otherwise a relay
        that repeats the reason would collect copies of a query.

        Args:
            after: the permit of the attempt before, redeemed; it may have expired.
            exception: why; a refused date needs the same key, all else another.
            enclave_key_digest: as for ``mint``.
            release_digest: as for ``mint``.
            now_ms: the time.

        Raises:
            TypeError: ``after`` was not built by a desk.
            PermitRefusedError: ``forged``, ``not_redeemed``, ``attempt``, ``key``.
        """
        self._time(now_ms)  # where it is set back, the permit before is void
        self._require(after, EgressPermit)
        if after not in self._open:
            raise PermitRefusedError(PermitRefusal.NOT_REDEEMED)
        require_attempt(after.attempt + 1)
        if exception in after.exceptions:
            raise PermitRefusedError(PermitRefusal.ATTEMPT)
        # Reports of an unknown key or a missing node are outside the seal, where a
        # relay can forge them: if the query were sealed to the same key again, the
        # relay would have a second copy.
        same = hmac.compare_digest(after.enclave_key_digest, enclave_key_digest)
        if same is not (exception is WireException.DATE_REFUSED):
            raise PermitRefusedError(PermitRefusal.KEY)
        self._open.discard(after)
        return self._issued(
            EgressPermit(
                **self._head(now_ms),
                payload_digest=after.payload_digest,
                routing_class=after.routing_class,
                tier=after.tier,
                enclave_key_digest=require_digest(enclave_key_digest),
                release_digest=require_digest(release_digest),
                policy_digest=after.policy_digest,
                attempt=after.attempt + 1,
                exceptions=(*after.exceptions, exception),
            )
        )

    def redeem(
        self,
        permit: EgressPermit,
        *,
        payload_digest: bytes,
        enclave_key_digest: bytes,
        release_digest: bytes,
        policy_digest: str,
        now_ms: int,
    ) -> None:
        """Redeem the permit for the given payload and keys, just before sealing.

        Args:
            permit: of this desk.
            payload_digest: SHA-256 of the exact bytes that are sealed.
            enclave_key_digest: SHA-256 of the key list that is sealed to.
            release_digest: of the verified key.
            policy_digest: the policy that the key was verified under.
            now_ms: the time.

        Raises:
            TypeError: no permit of this kind that a desk built.
            PermitRefusedError: it does not hold, for these or any more.
        """
        shown = self._spent(permit, EgressPermit, now_ms)
        compare(shown.payload_digest, payload_digest, PermitRefusal.PAYLOAD)
        keys = shown.enclave_key_digest, shown.release_digest
        compare_keys(keys, enclave_key_digest, release_digest)
        compare(
            shown.policy_digest.encode(), policy_digest.encode(), PermitRefusal.POLICY
        )
        self._open.add(shown)

    def _head(self, now_ms: int) -> _Head:
        """Return what every permit begins with."""
        return {
            "brand": _BRAND,
            "id": self._new_id(),
            "not_after_ms": self._time(now_ms) + LIFE_MS,
        }

    def _issued(self, permit: _P) -> _P:
        object.__setattr__(permit, "mac", self._mac(permit))
        return permit

    def _new_id(self) -> bytes:
        drawn = self._draw(ID_BYTES)
        if len(drawn) != ID_BYTES:
            raise ValueError(f"the id of a permit has {ID_BYTES} bytes")
        return drawn

    def _mac(self, permit: Permit) -> bytes:
        head = lp(permit.id) + struct.pack(">Q", permit.not_after_ms)
        text = b"".join((permit.label, head, *permit.bound()))
        return hmac.digest(self._key, text, "sha256")

    def _require(self, permit: object, kind: type[_P]) -> _P:
        """Return a permit of a kind that this desk minted, unchanged since."""
        # As ``require_allowed``: ``type`` and not ``isinstance``, and the brand, which
        # what ``__new__`` alone made does not have.
        if type(permit) is not kind or getattr(permit, "_brand", None) is not _BRAND:
            raise TypeError(f"{kind.__name__} expected, minted by a desk")
        # From another process, from before the clock was set back, or modified (class,
        # tier or attempt) although permits are immutable.
        if not hmac.compare_digest(permit.mac, self._mac(permit)):
            raise PermitRefusedError(PermitRefusal.FORGED)
        return permit

    def _spent(self, permit: object, kind: type[_P], now_ms: int) -> _P:
        """Return a permit that holds and was not used before; mark it as used."""
        time_ms = self._time(now_ms)
        shown = self._require(permit, kind)
        if not time_ms < shown.not_after_ms <= time_ms + LIFE_MS:
            raise PermitRefusedError(PermitRefusal.EXPIRED)
        if shown.id in self._used:
            raise PermitRefusedError(PermitRefusal.USED)
        # Forgotten only when expired, never for lack of room: otherwise filling the set
        # would make a used permit valid again.
        if len(self._used) >= self._most:
            raise PermitRefusedError(PermitRefusal.FULL)
        self._used.add(shown.id)
        heapq.heappush(self._expiries, (shown.not_after_ms, shown.id))
        return shown

    def _time(self, now_ms: int) -> int:
        """Return the time, which never goes back, and forget what has expired."""
        if now_ms < self._latest_ms - LIFE_MS:
            # Set back: permits that expired by the old time, and were forgotten, would
            # be valid again. Under a new key, no earlier permit is.
            self._key = self._draw(KEY_BYTES)
            self._used.clear()
            self._expiries.clear()
            self._latest_ms = now_ms
        self._latest_ms = max(now_ms, self._latest_ms)
        while self._expiries and self._expiries[0][0] <= self._latest_ms:
            self._used.discard(heapq.heappop(self._expiries)[1])
        return self._latest_ms


def time_ms(now: datetime) -> int:
    """Return an aware time as a desk counts it."""
    return int(now.timestamp() * 1000)


def lp(data: bytes) -> bytes:
    """Return bytes behind their length."""
    # Prefixed with the length, so that no byte can move from one field into the next.
    return struct.pack(">I", len(data)) + data


def require_digest(value: bytes) -> bytes:
    """Return a digest, if it is as long as one."""
    # An empty digest would compare equal to another empty one.
    if len(value) != DIGEST_BYTES:
        raise ValueError(f"a digest has {DIGEST_BYTES} bytes, not {len(value)}")
    return value


def require_tier(tier: str, tiers: frozenset[str]) -> None:
    """Refuse a tier that is not permitted."""
    if tier not in tiers:
        raise PermitRefusedError(PermitRefusal.TIER)


def require_attempt(attempt: int) -> None:
    """Refuse an attempt that has no number."""
    if not 0 <= attempt <= LAST_ATTEMPT:
        raise PermitRefusedError(PermitRefusal.ATTEMPT)


def compare_keys(
    bound: tuple[bytes, bytes], enclave_key_digest: bytes, release_digest: bytes
) -> None:
    """Refuse other keys than a permit is bound to, or another release."""
    compare(bound[0], enclave_key_digest, PermitRefusal.KEY)
    compare(bound[1], release_digest, PermitRefusal.RELEASE)


def compare(bound: bytes, shown: bytes, refusal: PermitRefusal) -> None:
    """Refuse what is not the same."""
    # In constant time: the duration must not reveal how far two digests agree.
    if not hmac.compare_digest(bound, shown):
        raise PermitRefusedError(refusal)
