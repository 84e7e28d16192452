"""HPKE keys and what they opened: made in memory, never written, overwritten.

A key here is a pair, one for each KEM, with one window, one replay set and one
key that signs receipts. One pair is current; those before it still open what
clients sealed to them until their own windows end, or their replay set is full:
then their ids are unknown, so that clients fetch the current ones. What was opened
is remembered exactly as long as the key that opened it. Knows the time only as an
argument.
"""

import hashlib
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from curtilage.enclave_server.ohttp.receipts import ReceiptIssuer
from curtilage.wire.encapsulation import GatewayKey
from curtilage.wire.hpke.suite import (
    AEAD_AES_128_GCM,
    AEAD_CHACHA20_POLY1305,
    KDF_HKDF_SHA256,
    KEM_X25519,
    KEM_XWING,
    generate_private_key,
)
from curtilage.wire.keyconfig import (
    KeyConfig,
    SymmetricAlgorithms,
    encode_key_configs,
)

_MARK_BYTES: Final = 16
"""Enough: to be taken for a replay, a request must collide with one seen before, and
a sender who finds such a pair (2**64 tries) has only refused himself."""


class ReplaySet:
    """The requests opened under one pair of keys.

    A request is known by its encapsulated key ``enc``, which HPKE binds into the
    secret: other bytes for the same request do not open (RFC 9458, section 6.5).
    It never evicts: an attacker who fills it gains refusals, not a replay.

    Args:
        capacity: how many are remembered; afterwards all are refused.
    """

    __slots__ = ("_capacity", "_seen")

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._seen: set[bytes] = set()

    @property
    def is_full(self) -> bool:
        """Tell whether no further request can be admitted."""
        return len(self._seen) >= self._capacity

    @property
    def is_nearly_full(self) -> bool:
        """Tell whether nine tenths are taken: time for other keys."""
        return len(self._seen) >= self._capacity - self._capacity // 10

    def admit(self, enc: bytes) -> bool:
        """Check and insert in one step; False when seen before or full.

        Call it after opening only: an ``enc`` that opened nothing is anybody's.
        """
        # Hashed: an X-Wing ``enc`` has 1120 octets, and there may be a hundred
        # thousand.
        mark = hashlib.sha256(enc).digest()[:_MARK_BYTES]
        if mark in self._seen or self.is_full:
            return False
        self._seen.add(mark)
        return True

    def clear(self) -> None:
        """Forget everything; only once nothing can be opened any more."""
        self._seen.clear()
        # So that an exchange that still holds the set gets refusals, not a second
        # opening.
        self._capacity = 0


ALGORITHMS: Final[Mapping[int, tuple[SymmetricAlgorithms, ...]]] = {
    KEM_XWING: (
        SymmetricAlgorithms(kdf_id=KDF_HKDF_SHA256, aead_id=AEAD_AES_128_GCM),
        SymmetricAlgorithms(kdf_id=KDF_HKDF_SHA256, aead_id=AEAD_CHACHA20_POLY1305),
    ),
    KEM_X25519: (
        SymmetricAlgorithms(kdf_id=KDF_HKDF_SHA256, aead_id=AEAD_AES_128_GCM),
    ),
}
"""What each KEM is offered with. X-Wing comes first, so that what is recorded
today is not read once there are quantum computers; X25519 with AES-128-GCM is
what every implementation of RFC 9458 has."""

KEY_IDS: Final = 256
MAX_KEYS: Final = 4
"""Pairs held at a time. Two, in the normal course; more only when a replay set
filled before its time, and then the oldest goes early."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerKey:
    """HPKE keys, one for each KEM, with their window and their replay set.

    Attributes:
        gateway_keys: configurations and private keys, in published order.
        key_configs: the exact ``application/ohttp-keys`` bytes that evidence
            binds.
        not_before: unix seconds.
        not_after: unix seconds; nothing is opened from then on.
        replay: what was opened with these keys.
        receipts: signs for what was opened with these keys; None where answers
            have no room for a receipt.
    """

    gateway_keys: tuple[GatewayKey, ...] = field(repr=False)
    key_configs: bytes = field(repr=False)
    not_before: int
    not_after: int
    replay: ReplaySet = field(repr=False)
    receipts: ReceiptIssuer | None = field(default=None, repr=False)

    @property
    def receipt_public_key(self) -> bytes:
        """What verifies our receipts, 32 bytes; empty where there are none."""
        return b"" if self.receipts is None else self.receipts.public_key

    @property
    def key_ids(self) -> tuple[int, ...]:
        """The ids, 0 to 255, in published order."""
        return tuple(key.config.key_id for key in self.gateway_keys)

    def gateway_key(self, key_id: int) -> GatewayKey:
        """Return the one with this id.

        Raises:
            KeyError: it is not one of ours.
        """
        for key in self.gateway_keys:
            if key.config.key_id == key_id:
                return key
        raise KeyError(key_id)

    def overwrite(self) -> None:
        """Wipe the private keys and forget what was opened with them."""
        # What was recorded on the line stays sealed to a key that exists nowhere: the
        # forward secrecy that OHTTP alone does not have (RFC 9458, section 6.6).
        for key in self.gateway_keys:
            key.private_key.overwrite()
        self.replay.clear()
        if self.receipts is not None:
            self.receipts.overwrite()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiptTerms:
    """What every receipt of one pair says.

    Attributes:
        release_digest: SHA-256 of the manifest that evidence binds to it.
        model_digest: SHA-256 of the loaded model.
    """

    release_digest: bytes
    model_digest: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """What clients are given about the current key.

    Attributes:
        bundle: the evidence bundle, verified by ourselves.
        key_configs: the list that it binds.
        tee: the kind of evidence.
    """

    bundle: bytes = field(repr=False)
    key_configs: bytes = field(repr=False)
    tee: str


def make_key(
    *,
    now: datetime,
    lifetime_s: int,
    replay_capacity: int,
    avoid: frozenset[int] = frozenset(),
    receipts: ReceiptTerms | None = None,
    random: Callable[[int], bytes] = secrets.token_bytes,
) -> ServerKey:
    """Make a fresh pair whose window starts now.

    Args:
        now: aware UTC.
        lifetime_s: length of the window.
        replay_capacity: see ``ReplaySet``.
        avoid: key ids still in use; the new ones differ from them.
        receipts: what its receipts say; None for a pair without receipts.
        random: source of the key ids; the private keys have their own.
    """
    made: list[GatewayKey] = []
    taken = set(avoid)
    for kem_id in ALGORITHMS:
        # Drawn, not counted up: two enclaves, or one before and after a restart, seldom
        # use one id for different keys, and then a client would see a failure of
        # decapsulation where it should see an unknown key.
        key_id = random(1)[0]
        # At most MAX_KEYS pairs are in use, so there always is a free one.
        while key_id in taken:
            key_id = (key_id + 1) % KEY_IDS
        taken.add(key_id)
        private_key = generate_private_key(kem_id)
        config = KeyConfig(
            key_id=key_id,
            kem_id=kem_id,
            public_key=private_key.public_key,
            algorithms=ALGORITHMS[kem_id],
        )
        made.append(GatewayKey(config=config, private_key=private_key))
    start = int(now.timestamp())
    key_configs = encode_key_configs([key.config for key in made])
    # A receipt names the keys that its request was sealed to, so it is signed by a key
    # of the same age: it can neither outlive them nor speak for others.
    issuer = None
    if receipts is not None:
        issuer = ReceiptIssuer(
            key_configs=key_configs,
            release_digest=receipts.release_digest,
            model_digest=receipts.model_digest,
        )
    return ServerKey(
        gateway_keys=tuple(made),
        key_configs=key_configs,
        not_before=start,
        not_after=start + lifetime_s,
        replay=ReplaySet(replay_capacity),
        receipts=issuer,
    )


class KeyRing:
    """The current pair and those before it that are still live."""

    __slots__ = ("_keys",)

    def __init__(self) -> None:
        self._keys: list[ServerKey] = []

    @property
    def current(self) -> ServerKey | None:
        """The pair that new clients are given, or None before the first."""
        return self._keys[-1] if self._keys else None

    @property
    def key_ids(self) -> frozenset[int]:
        """The ids in use, which a new pair must avoid."""
        return frozenset(key_id for key in self._keys for key_id in key.key_ids)

    def install(self, key: ServerKey) -> None:
        """Make ``key`` the current one; the ones before it stay until they end.

        Those whose replay set is full end now.

        Raises:
            ValueError: one of its ids is in use.
        """
        # RFC 9458, section 3.1: an id says which key a request was sealed to; of two
        # keys with one id, requests to one of them would never open.
        if self.key_ids & set(key.key_ids):
            raise ValueError("a key id is in use")
        self._keys.append(key)
        # Full: nothing more can be opened with it, so to keep it has a risk and no use.
        self._drop(self._is_spent)
        # A flood fills one set after the other; without a bound each would leave a key.
        while len(self._keys) > MAX_KEYS:
            self._keys.pop(0).overwrite()

    def expire(self, now: datetime) -> None:
        """Overwrite and drop every pair whose window has ended.

        This is what forward secrecy consists of here. A pair that has a
        successor also goes when its replay set is full: nothing more can be
        opened with it.
        """
        # The second at which the window ends is over already, as for a verifier.
        at = now.timestamp()
        self._drop(lambda key: at >= key.not_after or self._is_spent(key))

    def expires_in_s(self, now: datetime) -> float | None:
        """Return the seconds until the next window ends; None without keys."""
        # The earliest of all: an old key must go in time as well as the current one.
        ends = [key.not_after for key in self._keys]
        return max(0.0, min(ends) - now.timestamp()) if ends else None

    def usable(self, now: datetime) -> Mapping[int, ServerKey]:
        """Return the pairs whose window holds ``now`` under each of their ids."""
        # Not by the timer that renews: late by a second, it would open what is over.
        self.expire(now)
        return {key_id: key for key in self._keys for key_id in key.key_ids}

    def _is_spent(self, key: ServerKey) -> bool:
        return key is not self.current and key.replay.is_full

    def _drop(self, is_over: Callable[[ServerKey], bool]) -> None:
        # Dropped before they are overwritten: nothing may find a key that opens no
        # more.
        ended = [key for key in self._keys if is_over(key)]
        self._keys = [key for key in self._keys if not is_over(key)]
        for key in ended:
            key.overwrite()
