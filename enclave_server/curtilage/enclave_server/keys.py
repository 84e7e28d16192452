"""HPKE keys: made in memory, never written, dropped after their window.

One key is current; the one before it still opens what clients sealed to it
until its own window ends. Knows the time only as an argument.
"""

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from curtilage.enclave_server.replay import ReplaySet
from curtilage.wire.encapsulation import GatewayKey
from curtilage.wire.keyconfig import (
    KeyConfig,
    SymmetricAlgorithms,
    encode_key_configs,
)
from curtilage.wire.suite import (
    AEAD_AES_128_GCM,
    AEAD_CHACHA20_POLY1305,
    KDF_HKDF_SHA256,
    KEM_X25519,
    generate_private_key,
)

ALGORITHMS: Final = (
    SymmetricAlgorithms(kdf_id=KDF_HKDF_SHA256, aead_id=AEAD_AES_128_GCM),
    SymmetricAlgorithms(kdf_id=KDF_HKDF_SHA256, aead_id=AEAD_CHACHA20_POLY1305),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerKey:
    """One HPKE key with its window and its replay set.

    Attributes:
        gateway_key: configuration and private key.
        key_configs: the exact ``application/ohttp-keys`` bytes that evidence
            binds.
        not_before: unix seconds.
        not_after: unix seconds; nothing is opened from then on.
        replay: what was opened with this key; the only mutable thing here.
    """

    gateway_key: GatewayKey = field(repr=False)
    key_configs: bytes = field(repr=False)
    not_before: int
    not_after: int
    replay: ReplaySet = field(repr=False)

    @property
    def key_id(self) -> int:
        """The key's id, 0 to 255."""
        return self.gateway_key.config.key_id


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
    avoid: int | None = None,
    random: Callable[[int], bytes] = secrets.token_bytes,
) -> ServerKey:
    """Make a fresh key whose window starts now.

    Args:
        now: aware UTC.
        lifetime_s: length of the window.
        replay_capacity: see ``ReplaySet``.
        avoid: a key id still in use; the new one differs from it.
        random: source of the key id; the private key has its own.
    """
    key_id = random(1)[0]
    if key_id == avoid:
        key_id = (key_id + 1) % 256
    private_key = generate_private_key(KEM_X25519)
    config = KeyConfig(
        key_id=key_id,
        kem_id=KEM_X25519,
        public_key=private_key.public_key,
        algorithms=ALGORITHMS,
    )
    start = int(now.timestamp())
    return ServerKey(
        gateway_key=GatewayKey(config=config, private_key=private_key),
        key_configs=encode_key_configs([config]),
        not_before=start,
        not_after=start + lifetime_s,
        replay=ReplaySet(replay_capacity),
    )


class KeyRing:
    """The current key and its predecessor."""

    __slots__ = ("_current", "_previous")

    def __init__(self) -> None:
        self._current: ServerKey | None = None
        self._previous: ServerKey | None = None

    @property
    def current(self) -> ServerKey | None:
        """The key that new clients are given, or None before the first."""
        return self._current

    def install(self, key: ServerKey) -> None:
        """Make ``key`` the current one; the current one becomes previous."""
        self._previous, self._current = self._current, key

    def usable(self, now: datetime) -> Mapping[int, ServerKey]:
        """Return the keys whose window holds ``now``; drop the others.

        Dropping the last reference is what forward secrecy consists of here.
        """
        if self._previous is not None and not _is_live(self._previous, now):
            self._previous = None
        keys = (self._previous, self._current)
        return {
            key.key_id: key for key in keys if key is not None and _is_live(key, now)
        }


def _is_live(key: ServerKey, now: datetime) -> bool:
    return now.timestamp() < key.not_after
