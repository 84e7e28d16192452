"""Single-use, short-lived permits, each for one request to one recipient.

``decide`` permits a query to be sent; a permit covers one attempt at that. It is valid
once, for at most 30 seconds, and only for its binding: the payload, its routing class,
the tier, the recipient's keys, the policy and the number of the attempt. So a faulty
retry, hedge or queue can neither send a query twice nor send it elsewhere: only a
``PermitDesk`` mints permits, those for a query only from a decision, and without a
permit nothing is sealed or sent. The bindings of requests that carry no query have no
field for a payload's digest, so no query fits their permits.

Pure: the time, the key and randomness are arguments. Permits guard against our own
mistakes. Malicious code in our own process can reach the key; no value could stop it.
"""

import heapq
import hmac
import struct
from collections.abc import Callable
from dataclasses import InitVar, dataclass, field, replace
from datetime import datetime
from enum import StrEnum, unique
from typing import Any, Final, Generic, NoReturn, TypeAlias, TypeVar, final
from weakref import WeakSet

from typing_extensions import override

from curtilage.policy.decision.decide import (
    DIGEST_BYTES,
    Allowed,
    AllowedOnPremises,
    require_allowed,
    require_allowed_on_premises,
)
from curtilage.policy.decision.tiers import RoutingClass

LIFE_MS: Final = 30_000
"""The longest life of a permit: between the decision and the seal, a record is written
to disk and a challenge is answered; nothing takes longer."""

ID_BYTES: Final = 16
KEY_BYTES: Final = 32
MOST_USED: Final = 65_536
"""Number of used permits that are remembered: two thousand attempts a second."""

LAST_ATTEMPT: Final = 255
# Like that of ``decide``: a permit with this mark comes from a desk.
_BRAND: Final = object()


@unique
class WireException(StrEnum):
    """Why a query may be sealed again although it was sealed before."""

    KEY_UNKNOWN = "key_unknown"  # the enclave dropped the key, and there is another
    DATE_REFUSED = "date_refused"  # inside the seal, outside of the enclave's window
    NODE_FAILED = "node_failed"  # one of a pool's nodes, and there is another


@unique
class Party(StrEnum):
    """From whom public bytes may be fetched."""

    RELAY = "relay"
    MIRROR = "mirror"


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
    """A permit is not minted, or is not valid for what is presented with it."""

    def __init__(self, refusal: PermitRefusal) -> None:
        super().__init__(f"permit refused: {refusal.value}")
        self.refusal = refusal


# What a permit is for. Every field must be presented when it is redeemed, and has the
# name of the refusal if it differs. Fields of bytes are SHA-256 digests: ``key`` of an
# enclave's key list, ``release`` of its release's manifest, ``server`` of an address
# and its credentials. Only the first two kinds have a field for a query's payload.


@dataclass(frozen=True, slots=True, kw_only=True)
class EgressBinding:
    """One payload, sealed to one enclave's keys, which one policy accepts."""

    payload: bytes = field(repr=False)
    key: bytes = field(repr=False)
    release: bytes = field(repr=False)
    policy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerBinding:
    """One payload, sent to one on-premises server."""

    payload: bytes = field(repr=False)
    server: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class CoverBinding:
    """One cover request, sealed to one enclave's keys."""

    key: bytes = field(repr=False)
    release: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChallengeBinding:
    """One challenge, sealed to one enclave's keys."""

    key: bytes = field(repr=False)
    release: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchBinding:
    """One fetch of public bytes: evidence, or the mirror's key list."""

    party: Party


Binding: TypeAlias = (
    EgressBinding | ServerBinding | CoverBinding | ChallengeBinding | FetchBinding
)
_B = TypeVar("_B", bound=Binding)
_W = TypeVar("_W", CoverBinding, ChallengeBinding, FetchBinding)


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt to have a query answered, and the policy that permits it."""

    policy: str
    routing_class: RoutingClass
    tier: str
    number: int  # from 0
    exceptions: tuple[WireException, ...] = ()  # why it is sealed again


@final
@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Permit(Generic[_B]):
    """A permit; only a desk builds one, and it cannot be copied or changed."""

    brand: InitVar[object]
    id: bytes = field(repr=False)  # random
    not_after_ms: int  # by the desk's clock
    binding: _B
    attempt: Attempt | None  # None where there is no query
    mac: bytes = field(init=False, repr=False, default=b"")  # over the four above
    _brand: object = field(init=False, repr=False)

    def __post_init__(self, brand: object) -> None:
        """Refuse to exist unless a desk made this."""
        # An ``InitVar``: ``dataclasses.replace`` has no value to pass on.
        if brand is not _BRAND:
            raise TypeError("only a PermitDesk builds a permit")
        object.__setattr__(self, "_brand", _BRAND)

    @override
    def __reduce_ex__(self, protocol: object) -> NoReturn:
        """Refuse to be copied or pickled: each copy could be presented once."""
        raise TypeError("a permit cannot be copied")


EgressPermit: TypeAlias = Permit[EgressBinding]
OnPremisesPermit: TypeAlias = Permit[ServerBinding]


@final
class PermitDesk:
    """Mints permits and redeems each once; one for a process, for one thread.

    A permit is used up when it is presented, whether or not it is valid: it cannot be
    tried again with other bytes. Used permits are remembered until they expire; when
    there is no room for another, nothing is redeemed or used up. A clock that is set
    back by more than a permit's life voids all permits, since some used ones have been
    forgotten by then.

    Args:
        key: 32 random bytes, drawn for this process and never passed on.
        draw: randomness: returns as many bytes as it is asked for.
        most: how many used permits are remembered.
    """

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
        # Redeemed permits that ``mint_again`` accepts, each once. Weak references: they
        # need no removal.
        self._open: WeakSet[Permit[Any]] = WeakSet()

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

        Raises:
            TypeError: ``allowed`` was not built by ``decide``.
            PermitRefusedError: ``tier``, ``routing_class`` or ``attempt``.
        """
        permitted = require_allowed(allowed)
        first = _attempt_at(tier, permitted, attempt)
        # ``decide`` gives such a query no ``Allowed``. If it ever did so by mistake,
        # the query would be stopped here.
        if permitted.routing_class is RoutingClass.RESTRICTED:
            raise PermitRefusedError(PermitRefusal.ROUTING_CLASS)
        binding = EgressBinding(
            payload=permitted.payload_digest,
            key=enclave_key_digest,
            release=release_digest,
            policy=permitted.policy_digest,
        )
        return self._minted(binding, first, now_ms)

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
        that repeats the reason would collect copies of a query. ``after``, the permit
        of the attempt before, must be redeemed; it may have expired.

        Raises:
            TypeError: ``after`` was not built by a desk.
            PermitRefusedError: ``forged``, ``not_redeemed``, ``attempt``, ``key``.
        """
        self._time(now_ms)  # where it is set back, the permit before is void
        self._require(after, EgressBinding)
        before = after.attempt
        if before is None or after not in self._open:
            raise PermitRefusedError(PermitRefusal.NOT_REDEEMED)
        if before.number >= LAST_ATTEMPT or exception in before.exceptions:
            raise PermitRefusedError(PermitRefusal.ATTEMPT)
        # A refused date needs the same key, all else another. Reports of an unknown key
        # or a missing node are outside the seal, where a relay can forge them: if the
        # query were sealed to the same key again, the relay would have a second copy.
        same = hmac.compare_digest(after.binding.key, enclave_key_digest)
        if same is not (exception is WireException.DATE_REFUSED):
            raise PermitRefusedError(PermitRefusal.KEY)
        self._open.discard(after)
        exceptions = (*before.exceptions, exception)
        return self._minted(
            replace(after.binding, key=enclave_key_digest, release=release_digest),
            replace(before, number=before.number + 1, exceptions=exceptions),
            now_ms,
        )

    def mint_on_premises(
        self,
        allowed: AllowedOnPremises,
        *,
        tier: str,
        server_digest: bytes,
        attempt: int,
        now_ms: int,
    ) -> OnPremisesPermit:
        """Mint one for an attempt at an on-premises server; raises as ``mint``."""
        permitted = require_allowed_on_premises(allowed)
        first = _attempt_at(tier, permitted, attempt)
        binding = ServerBinding(payload=permitted.payload_digest, server=server_digest)
        return self._minted(binding, first, now_ms)

    def mint_without_query(self, binding: _W, *, now_ms: int) -> Permit[_W]:
        """Mint the permit for one request that carries no query."""
        if type(binding) not in {CoverBinding, ChallengeBinding, FetchBinding}:
            raise TypeError("a permit for a query is minted from a decision")
        return self._minted(binding, None, now_ms)

    def redeem(self, permit: Permit[_B], presented: _B, *, now_ms: int) -> None:
        """Redeem a permit of this desk, just before sealing or sending.

        ``presented`` is the binding of the exact bytes and their recipient. The caller
        computes it from these and never takes it from the permit.

        Raises:
            TypeError: no permit of this kind that a desk built.
            PermitRefusedError: it is not valid, for these or any more.
        """
        time_ms = self._time(now_ms)
        self._require(permit, type(presented))
        if not time_ms < permit.not_after_ms <= time_ms + LIFE_MS:
            raise PermitRefusedError(PermitRefusal.EXPIRED)
        if permit.id in self._used:
            raise PermitRefusedError(PermitRefusal.USED)
        # Forgotten only when expired, never for lack of room: otherwise filling the set
        # would make a used permit valid again.
        if len(self._used) >= self._most:
            raise PermitRefusedError(PermitRefusal.FULL)
        self._used.add(permit.id)
        heapq.heappush(self._expiries, (permit.not_after_ms, permit.id))
        given = _encoded(presented)
        for name, bound in _encoded(permit.binding).items():
            # In constant time: the duration must not reveal how far two digests agree.
            if not hmac.compare_digest(bound, given[name]):
                raise PermitRefusedError(PermitRefusal(name))
        self._open.add(permit)

    def _minted(self, binding: _B, attempt: Attempt | None, now_ms: int) -> Permit[_B]:
        drawn = self._draw(ID_BYTES)
        if len(drawn) != ID_BYTES:
            raise ValueError(f"the id of a permit has {ID_BYTES} bytes")
        for value in (getattr(binding, name) for name in binding.__slots__):
            # An empty digest would compare equal to another empty one.
            if isinstance(value, bytes) and len(value) != DIGEST_BYTES:
                raise ValueError(f"a digest has {DIGEST_BYTES} bytes, not {len(value)}")
        not_after_ms = self._time(now_ms) + LIFE_MS
        permit = Permit(_BRAND, drawn, not_after_ms, binding, attempt)
        object.__setattr__(permit, "mac", self._mac(permit))
        return permit

    def _mac(self, permit: Permit[_B]) -> bytes:
        """Return the MAC over the kind of a permit and all that it is bound to."""
        expiry = struct.pack(">Q", permit.not_after_ms)
        parts = [type(permit.binding).__name__.encode(), permit.id, expiry]
        for each in (permit.binding, permit.attempt):
            parts += _encoded(each).values() if each else ()
        # Each behind its length, so that no byte can move from one into the next.
        text = b"".join(struct.pack(">I", len(part)) + part for part in parts)
        return hmac.digest(self._key, text, "sha256")

    def _require(self, permit: Permit[_B], kind: type[_B]) -> None:
        """Refuse all but a permit of a kind that this desk minted, unchanged since."""
        # As ``require_allowed``: ``type`` and not ``isinstance``, and the brand, which
        # what ``__new__`` alone made does not have.
        minted = getattr(permit, "_brand", None) is _BRAND and type(permit) is Permit
        if not minted or type(permit.binding) is not kind:
            raise TypeError(f"a permit for {kind.__name__} expected, minted by a desk")
        # From another process, from before the clock was set back, or modified although
        # permits are immutable.
        if not hmac.compare_digest(permit.mac, self._mac(permit)):
            raise PermitRefusedError(PermitRefusal.FORGED)

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


def _attempt_at(
    tier: str, permitted: Allowed | AllowedOnPremises, number: int
) -> Attempt:
    """Return an attempt that is permitted."""
    if tier not in permitted.tiers:
        raise PermitRefusedError(PermitRefusal.TIER)
    if not 0 <= number <= LAST_ATTEMPT:
        raise PermitRefusedError(PermitRefusal.ATTEMPT)
    return Attempt(permitted.policy_digest, permitted.routing_class, tier, number)


def _encoded(bound: Binding | Attempt) -> dict[str, bytes]:
    """Return each field in bytes, by name."""
    encoded: dict[str, bytes] = {}
    for name in bound.__slots__:
        value: bytes | str | int | tuple[str, ...] = getattr(bound, name)
        text = ",".join(value) if isinstance(value, tuple) else value
        encoded[name] = text if isinstance(text, bytes) else str(text).encode()
    return encoded
