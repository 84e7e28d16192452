"""HPKE keys and replay protection: in memory only, overwritten at the end.

A key here is a set of HPKE key pairs, one for each KEM, with one window, one replay set
and one key that signs receipts. One set is current; earlier ones still open what
clients sealed to them until their own windows end, or their replay set is full: then
their ids are unknown, so that clients fetch the current ones. Opened requests are
remembered exactly as long as the key that opened them. The time is always an argument.
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
"""Long enough: to be refused as a replay, a request must collide with an earlier one,
and a sender who finds such a pair (2**64 tries) only causes its own refusal."""


class ReplaySet:
    """The requests opened under one set of keys.

    A request is identified by its encapsulated key ``enc``, which HPKE binds into the
    secret: other bytes for the same request do not open (RFC 9458, section 6.5).
    It never evicts: an attacker who fills it causes refusals, not a replay.

    Args:
        capacity: how many are remembered; afterwards all are refused.
    """

    __slots__ = ("_capacity", "_seen")

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._seen: set[bytes] = set()

    @property
    def is_full(self) -> bool:
        """Return whether no further request can be admitted."""
        return len(self._seen) >= self._capacity

    @property
    def is_nearly_full(self) -> bool:
        """Return whether nine tenths are used: then new keys are due."""
        return len(self._seen) >= self._capacity - self._capacity // 10

    def admit(self, enc: bytes) -> bool:
        """Check and insert in one step; False when seen before or full.

        Call it only after opening: an ``enc`` that opened nothing proves nothing.
        """
        # Hashed: an X-Wing ``enc`` has 1120 bytes, and there may be a hundred thousand.
        mark = hashlib.sha256(enc).digest()[:_MARK_BYTES]
        if mark in self._seen or self.is_full:
            return False
        self._seen.add(mark)
        return True

    def clear(self) -> None:
        """Forget everything; only when nothing can be opened any more."""
        self._seen.clear()
        # So that an exchange that still references the set gets refusals, not a second
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
"""The suites of each KEM. X-Wing comes first, so that recorded traffic cannot be read
by later quantum computers; X25519 with AES-128-GCM is supported by every implementation
of RFC 9458."""

KEY_IDS: Final = 256
MAX_KEYS: Final = 4
"""Keys held at a time. Normally two; more only when a replay set filled before the end
of its window, and then the oldest is dropped early."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerKey:
    """HPKE keys, one for each KEM, with their window and their replay set.

    Attributes:
        gateway_keys: configurations and private keys, in published order.
        key_configs: the exact ``application/ohttp-keys`` bytes that evidence
            binds.
        not_before: unix seconds.
        not_after: unix seconds; nothing is opened from then on.
        replay: the requests opened with these keys.
        receipts: signs receipts for them; None where answers have no room for a
            receipt.
    """

    gateway_keys: tuple[GatewayKey, ...] = field(repr=False)
    key_configs: bytes = field(repr=False)
    not_before: int
    not_after: int
    replay: ReplaySet = field(repr=False)
    receipts: ReceiptIssuer | None = field(default=None, repr=False)

    @property
    def receipt_public_key(self) -> bytes:
        """The public key of our receipts, 32 bytes; empty if there are none."""
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
        """Wipe the private keys and forget the requests opened with them."""
        # Recorded traffic remains sealed to a key that no longer exists: the forward
        # secrecy that OHTTP by itself does not have (RFC 9458, section 6.6).
        for key in self.gateway_keys:
            key.private_key.overwrite()
        self.replay.clear()
        if self.receipts is not None:
            self.receipts.overwrite()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiptTerms:
    """The constant contents of every receipt of one key.

    Attributes:
        release_digest: SHA-256 of the manifest that evidence binds to it.
        model_digest: SHA-256 of the loaded model.
    """

    release_digest: bytes
    model_digest: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """The published data of the current key.

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
    """Make a fresh key whose window starts now.

    Args:
        now: aware UTC.
        lifetime_s: length of the window.
        replay_capacity: see ``ReplaySet``.
        avoid: key ids in use; the new ones differ from them.
        receipts: contents of its receipts; None for a key without receipts.
        random: source of the key ids; the private keys have their own.
    """
    made: list[GatewayKey] = []
    taken = set(avoid)
    for kem_id in ALGORITHMS:
        # Random, not counted: two enclaves, or one before and after a restart, seldom
        # use one id for different keys; a client would then see a failed decapsulation
        # instead of an unknown key.
        key_id = random(1)[0]
        # At most MAX_KEYS keys are in use, so a free id always exists.
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
    # of the same lifetime: it can neither outlive them nor attest for others.
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
    """The current key and earlier ones that are still valid."""

    __slots__ = ("_keys",)

    def __init__(self) -> None:
        self._keys: list[ServerKey] = []

    @property
    def current(self) -> ServerKey | None:
        """The key that is published to clients, or None before the first."""
        return self._keys[-1] if self._keys else None

    @property
    def key_ids(self) -> frozenset[int]:
        """The ids in use, which a new key must avoid."""
        return frozenset(key_id for key in self._keys for key_id in key.key_ids)

    def install(self, key: ServerKey) -> None:
        """Make ``key`` the current one; earlier ones are kept until they end.

        Those whose replay set is full end now.

        Raises:
            ValueError: one of its ids is in use.
        """
        # RFC 9458, section 3.1: an id identifies the key that a request was sealed to;
        # of two keys with one id, requests to one of them would never open.
        if self.key_ids & set(key.key_ids):
            raise ValueError("a key id is in use")
        self._keys.append(key)
        # Full: nothing more can be opened with it, so keeping it is a risk without a
        # use.
        self._drop(self._is_spent)
        # A flood fills one set after the other; without a bound each would leave a key.
        while len(self._keys) > MAX_KEYS:
            self._keys.pop(0).overwrite()

    def expire(self, now: datetime) -> None:
        """Overwrite and drop every key whose window has ended.

        This provides forward secrecy. A key that has a successor is also dropped when
        its replay set is full: nothing more can be opened with it.
        """
        # The second at which the window ends is outside of it, as for a verifier.
        at = now.timestamp()
        self._drop(lambda key: at >= key.not_after or self._is_spent(key))

    def expires_in_s(self, now: datetime) -> float | None:
        """Return the seconds until the next window ends; None without keys."""
        # The earliest of all: an old key must be dropped in time as well.
        ends = [key.not_after for key in self._keys]
        return max(0.0, min(ends) - now.timestamp()) if ends else None

    def usable(self, now: datetime) -> Mapping[int, ServerKey]:
        """Return the keys whose window includes ``now`` under each of their ids."""
        # Not by the renewal timer: a second late, it would open with an expired key.
        self.expire(now)
        return {key_id: key for key in self._keys for key_id in key.key_ids}

    def _is_spent(self, key: ServerKey) -> bool:
        return key is not self.current and key.replay.is_full

    def _drop(self, is_over: Callable[[ServerKey], bool]) -> None:
        # Dropped before they are overwritten: no lookup may find a key that no longer
        # opens.
        ended = [key for key in self._keys if is_over(key)]
        self._keys = [key for key in self._keys if not is_over(key)]
        for key in ended:
            key.overwrite()
