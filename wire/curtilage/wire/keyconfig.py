"""Key configurations and their lists (RFC 9458, sections 3.1 and 3.2).

::

    key_config = key_id(1) kem_id(2) public_key(Npk)
                 length(2) { kdf_id(2) aead_id(2) }+
    list       = { length(2) key_config }*

Knows shapes only. Whether a list is the true one is for attestation to say.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from curtilage.wire.cursor import Cursor
from curtilage.wire.errors import (
    LimitExceededError,
    MalformedError,
    TruncatedError,
    UnsupportedError,
)
from curtilage.wire.hpke.suite import Suite, public_key_bytes

# Ours take 1,274 bytes in two entries once a post-quantum KEM is among them.
# These leave room for a decade of larger keys and refuse a body sent to fill
# the memory of its reader.
MAX_LIST_BYTES: Final = 16 * 1024
MAX_ENTRIES: Final = 8

# key_id, kem_id, a public key of one byte, one pair of algorithms. Below this there
# is no room for the identifiers that are read ahead of everything else.
_MIN_ENTRY_BYTES: Final = 1 + 2 + 1 + 2 + 4
_PAIR_BYTES: Final = 4
_MAX_PAIRS: Final = 65532 // _PAIR_BYTES  # what a length of two bytes can say


@dataclass(frozen=True, slots=True, kw_only=True)
class SymmetricAlgorithms:
    """One pair of KDF and AEAD that a gateway accepts with its key.

    Attributes:
        kdf_id: registered identifier, supported by us or not.
        aead_id: the same for the AEAD.
    """

    kdf_id: int
    aead_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyConfig:
    """One public key of a gateway and what it may be used with.

    Attributes:
        key_id: 0..255, chosen by the gateway.
        kem_id: a KEM that we support.
        public_key: Npk bytes, not yet tried as a point.
        algorithms: at least one pair, in the gateway's order of preference.

    Raises:
        UnsupportedError: at construction, if the KEM is not one of ours.
        MalformedError: at construction, if a value cannot be encoded.
    """

    key_id: int
    kem_id: int
    public_key: bytes
    algorithms: tuple[SymmetricAlgorithms, ...]
    _suites: tuple[Suite, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check every width, so that ``encode`` cannot fail."""
        npk = public_key_bytes(self.kem_id)
        if npk is None:
            raise UnsupportedError("key configuration: KEM not supported")
        if len(self.public_key) != npk:
            raise MalformedError(f"key configuration: public key of {npk} bytes")
        if not 0 <= self.key_id <= 0xFF:  # noqa: PLR2004 - one byte
            raise MalformedError("key configuration: key identifier of one byte")
        if not 1 <= len(self.algorithms) <= _MAX_PAIRS:
            raise MalformedError(f"key configuration: 1..{_MAX_PAIRS} algorithms")
        for pair in self.algorithms:
            if not (0 <= pair.kdf_id <= 0xFFFF and 0 <= pair.aead_id <= 0xFFFF):  # noqa: PLR2004 - two bytes
                raise MalformedError("key configuration: identifiers of two bytes")
        # What we cannot run is left out; it may be of use to another client.
        suites: list[Suite] = []
        for pair in self.algorithms:
            with suppress(UnsupportedError):
                suites.append(
                    Suite(kem_id=self.kem_id, kdf_id=pair.kdf_id, aead_id=pair.aead_id)
                )
        object.__setattr__(self, "_suites", tuple(suites))

    def encode(self) -> bytes:
        """Encode this configuration alone (RFC 9458, section 3.1)."""
        pairs = b"".join(
            pair.kdf_id.to_bytes(2, "big") + pair.aead_id.to_bytes(2, "big")
            for pair in self.algorithms
        )
        return (
            self.key_id.to_bytes(1, "big")
            + self.kem_id.to_bytes(2, "big")
            + self.public_key
            + len(pairs).to_bytes(2, "big")
            + pairs
        )

    def suites(self) -> tuple[Suite, ...]:
        """Return the suites offered here that we support, in order."""
        return self._suites


def choose_suite(config: KeyConfig) -> Suite:
    """Return the first suite of ``config`` that we support.

    Raises:
        UnsupportedError: there is none.
    """
    # The gateway's first, not our first: every client of one list then speaks the
    # same suite, and none is known by its taste.
    suites = config.suites()
    if not suites:
        raise UnsupportedError("key configuration: no supported algorithms")
    return suites[0]


def parse_key_config(data: bytes) -> KeyConfig:
    """Parse one key configuration, all of ``data``.

    Raises:
        TruncatedError: ``data`` ends too soon.
        MalformedError: a length is wrong, or something follows.
        UnsupportedError: the KEM is not ours, so its key has no known length.
    """
    cursor = Cursor(data)
    key_id = cursor.take_uint(1)
    kem_id = cursor.take_uint(2)
    # The public key has no length of its own: the KEM says where it ends, and so an
    # unknown KEM hides all that follows it (RFC 9458, section 3.1).
    npk = public_key_bytes(kem_id)
    if npk is None:
        raise UnsupportedError("key configuration: KEM not supported")
    public_key = cursor.take(npk)
    length = cursor.take_uint(2)
    if length % _PAIR_BYTES:  # none at all is refused by KeyConfig
        raise MalformedError("key configuration: algorithms in units of 4 bytes")
    pairs = Cursor(cursor.take(length))
    algorithms = tuple(
        SymmetricAlgorithms(kdf_id=pairs.take_uint(2), aead_id=pairs.take_uint(2))
        for _ in range(length // _PAIR_BYTES)
    )
    # Whatever stood here, one client would read and another would not, and with it
    # two lists that evidence binds as one could mean two things.
    if cursor.remaining:
        raise MalformedError("key configuration: bytes behind the algorithms")
    return KeyConfig(
        key_id=key_id, kem_id=kem_id, public_key=public_key, algorithms=algorithms
    )


def encode_key_configs(configs: Sequence[KeyConfig]) -> bytes:
    """Encode a list, ``application/ohttp-keys`` (RFC 9458, section 3.2).

    Raises:
        LimitExceededError: the list is larger than our own clients accept.
        MalformedError: two entries share a key identifier.
    """
    # Nothing is published that our own clients would throw away.
    if len(configs) > MAX_ENTRIES:
        raise LimitExceededError(f"key list: more than {MAX_ENTRIES} entries")
    _check_key_ids(config.key_id for config in configs)
    encoded = [config.encode() for config in configs]
    data = b"".join(len(entry).to_bytes(2, "big") + entry for entry in encoded)
    if len(data) > MAX_LIST_BYTES:
        raise LimitExceededError(f"key list: more than {MAX_LIST_BYTES} bytes")
    return data


def parse_key_configs(data: bytes) -> tuple[KeyConfig, ...]:
    """Parse a list, ``application/ohttp-keys`` (RFC 9458, section 3.2).

    An error anywhere discards the whole list: clients that recover different
    parts of a damaged list could be distinguished by the key they then use. Entries
    that are well framed but of no use to us are skipped: an unknown KEM, or no
    algorithm that we support.

    Raises:
        LimitExceededError: more than 16 KiB or 8 entries.
        TruncatedError: the list ends inside an entry.
        MalformedError: an entry is wrong, or two share a key identifier.
        UnsupportedError: no entry is of use, or there is none.
    """
    if len(data) > MAX_LIST_BYTES:
        raise LimitExceededError(f"key list: more than {MAX_LIST_BYTES} bytes")
    # The frame of every entry and the identifiers of every entry come first, also of
    # those that are skipped below: two clients that know different KEMs agree as far
    # as they can on whether this is a list.
    entries = _split_entries(Cursor(data))
    _check_key_ids(entry[0] for entry in entries)
    usable: list[KeyConfig] = []
    for entry in entries:
        if public_key_bytes(int.from_bytes(entry[1:3], "big")) is None:
            continue
        try:
            config = parse_key_config(entry)
        except TruncatedError:
            # The entry is here in full: it is its own lengths that disagree.
            raise MalformedError("key list: entry shorter than its contents") from None
        if config.suites():
            usable.append(config)
    if not usable:
        raise UnsupportedError("key list: no usable key configuration")
    return tuple(usable)


def _split_entries(cursor: Cursor) -> list[bytes]:
    entries: list[bytes] = []
    while cursor.remaining:
        if len(entries) == MAX_ENTRIES:
            raise LimitExceededError(f"key list: more than {MAX_ENTRIES} entries")
        length = cursor.take_uint(2)
        if length < _MIN_ENTRY_BYTES:
            raise MalformedError(f"key list: entry below {_MIN_ENTRY_BYTES} bytes")
        entries.append(cursor.take(length))
    return entries


def _check_key_ids(key_ids: Iterable[int]) -> None:
    # A request names its key by this byte alone: of two keys under one identifier,
    # the gateway could not say which a client took.
    seen: set[int] = set()
    for key_id in key_ids:
        if key_id in seen:
            raise MalformedError("key list: two entries share a key identifier")
        seen.add(key_id)
