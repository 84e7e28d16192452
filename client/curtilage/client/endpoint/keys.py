"""The keys of a gateway's applications, of which only digests are stored.

A record is a name, a salt and a digest; the key itself is in memory only while it is
checked. A key is 256 random bits, so it cannot be guessed and a fast hash is enough.
Several records may have one name: so a new key is handed out before the old one is
removed. It knows no question.
"""

import base64
import hashlib
import hmac
import re
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from curtilage.client.audit.record import APPLICATION_NAME
from curtilage.client.errors import UsageError

KEY_BYTES: Final = 32
SALT_BYTES: Final = 16
A_NAME: Final = "1 to 32 of a-z, 0-9 and -, not with - in front"
_RECORD: Final = re.compile(
    rf"({APPLICATION_NAME.pattern}):([0-9a-f]{{32}}):([0-9a-f]{{64}})"
)
_CREDENTIALS: Final = re.compile(
    rf"[Bb][Ee][Aa][Rr][Ee][Rr] +({APPLICATION_NAME.pattern})\.([A-Za-z0-9_-]{{43}}) *"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRecord:
    """What is stored of one key.

    Attributes:
        name: of its application; a part of the key's text, and no secret.
        salt: 16 random bytes.
        digest: HMAC-SHA256 of the key's secret part under the salt.
    """

    name: str
    salt: bytes
    digest: bytes = field(repr=False)

    def row(self) -> str:
        """Return it in the form of the gateway's file."""
        return f"{self.name}:{self.salt.hex()}:{self.digest.hex()}"


def parse_record(row: str) -> KeyRecord | None:
    """Parse ``NAME:SALT:DIGEST``; None for anything else."""
    match = _RECORD.fullmatch(row)
    if match is None:
        return None
    name, salt, digest = match.groups()
    return KeyRecord(name=name, salt=bytes.fromhex(salt), digest=bytes.fromhex(digest))


def make_key(
    name: str, *, random: Callable[[int], bytes] = secrets.token_bytes
) -> tuple[str, KeyRecord]:
    """Make a key; return its text, to be shown once, and the record to store.

    Raises:
        UsageError: it is not a name.
    """
    if APPLICATION_NAME.fullmatch(name) is None:
        raise UsageError(f"an application's name is {A_NAME}")
    secret = base64.urlsafe_b64encode(random(KEY_BYTES)).rstrip(b"=").decode()
    salt = random(SALT_BYTES)
    record = KeyRecord(name=name, salt=salt, digest=_digest(salt, secret))
    return f"{name}.{secret}", record


class Keys:
    """The keys that a gateway accepts.

    Args:
        records: of all of them; none: it accepts none.
    """

    def __init__(self, records: Iterable[KeyRecord]) -> None:
        by_name: dict[str, tuple[KeyRecord, ...]] = {}
        for each in records:
            by_name[each.name] = (*by_name.get(each.name, ()), each)
        self._by_name: Mapping[str, tuple[KeyRecord, ...]] = by_name
        # Compared for an unknown name, which so takes as long as a wrong secret.
        self._no_record = KeyRecord(
            name="", salt=bytes(SALT_BYTES), digest=bytes(hashlib.sha256().digest_size)
        )

    @property
    def applications(self) -> tuple[str, ...]:
        """The names, each once, sorted."""
        return tuple(sorted(self._by_name))

    def application(self, authorization: Sequence[str]) -> str | None:
        """Return the application whose key a request has; None: it has none.

        Args:
            authorization: the values of its ``Authorization`` fields.
        """
        # Of two fields, a proxy in front may have checked the other one.
        match = _CREDENTIALS.fullmatch(authorization[0]) if authorization else None
        if match is None or len(authorization) != 1:
            return None
        name, secret = match.groups()
        found = False
        for each in self._by_name.get(name, (self._no_record,)):
            # In constant time, or its duration would show how much of it is right.
            found |= hmac.compare_digest(each.digest, _digest(each.salt, secret))
        return name if found and name in self._by_name else None


def _digest(salt: bytes, secret: str) -> bytes:
    return hmac.digest(salt, secret.encode(), hashlib.sha256)
