"""Access keys of the relay, stored as salted hashes.

A record holds a name, a salt and a hash. The key itself is only in memory while it
is checked; it is never stored, logged or passed on. A key is 256 random bits, so a
fast hash is enough: it cannot be guessed. This module knows nothing of requests.
The subcommand make-key makes one for a client, shows it once on standard output with
the record to store, and keeps nothing itself.
"""

import base64
import hashlib
import hmac
import re
import secrets
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from curtilage.relay.process import make_parser, parse, say

KEY_BYTES: Final = 32
SALT_BYTES: Final = 16
KEY_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")
_LINE: Final = re.compile(r"([a-z0-9][a-z0-9-]{0,31}):([0-9a-f]{32}):([0-9a-f]{64})")
_CREDENTIALS: Final = re.compile(
    rb"[Bb][Ee][Aa][Rr][Ee][Rr] +([a-z0-9][a-z0-9-]{0,31})\.([A-Za-z0-9_-]{43})"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRecord:
    """The stored record of one key.

    Attributes:
        name: of its holder; part of the key's text, not secret.
        salt: 16 random bytes.
        digest: HMAC-SHA256 of the key's secret part under the salt.
    """

    name: str
    salt: bytes
    digest: bytes = field(repr=False)

    def line(self) -> str:
        """Return it in the form that the configuration holds."""
        return f"{self.name}:{self.salt.hex()}:{self.digest.hex()}"


def parse_key_record(line: str) -> KeyRecord | None:
    """Read ``name:salt:hash``; None for anything else."""
    match = _LINE.fullmatch(line)
    if match is None:
        return None
    name, salt, digest = match.groups()
    return KeyRecord(name=name, salt=bytes.fromhex(salt), digest=bytes.fromhex(digest))


def make_key(
    name: str, *, random: Callable[[int], bytes] = secrets.token_bytes
) -> tuple[str, KeyRecord]:
    """Make a key; return its text, to be shown once, and the record to store.

    Raises:
        ValueError: the name is not 1 to 32 of a-z, 0-9 and -.
    """
    if KEY_NAME.fullmatch(name) is None:
        raise ValueError("a key's name is 1 to 32 of a-z, 0-9 and -")
    secret = base64.urlsafe_b64encode(random(KEY_BYTES)).rstrip(b"=")
    salt = random(SALT_BYTES)
    record = KeyRecord(name=name, salt=salt, digest=_digest(salt, secret))
    # The name is part of the key: it selects the record, so not every salt is tried.
    return f"{name}.{secret.decode()}", record


class AccessKeys:
    """The keys that open this relay.

    Args:
        records: all of them; if there are none, no key is required.
    """

    def __init__(self, records: Iterable[KeyRecord]) -> None:
        self._records: Mapping[bytes, KeyRecord] = {
            record.name.encode(): record for record in records
        }
        # The record to check for an unknown name, so that an unknown name and a wrong
        # secret take the same code path.
        self._unknown_name = KeyRecord(
            name="", salt=bytes(SALT_BYTES), digest=bytes(32)
        )

    @property
    def required(self) -> bool:
        """Whether a key is required."""
        return bool(self._records)

    def admits(self, values: Sequence[bytes]) -> bool:
        """Return whether the request's only Authorization field holds a valid key.

        Args:
            values: of every Authorization field of the request.
        """
        # Only one field: with two, a server in front may have checked the other one.
        match = _CREDENTIALS.fullmatch(values[0]) if len(values) == 1 else None
        if match is None:
            return False
        record = self._records.get(match[1], self._unknown_name)
        # In constant time: else the duration reveals how many bytes of the hash match.
        return hmac.compare_digest(record.digest, _digest(record.salt, match[2]))


def _digest(salt: bytes, secret: bytes) -> bytes:
    return hmac.digest(salt, secret, hashlib.sha256)


EXIT_USAGE: Final = 2

DESCRIPTION: Final = """\
Make a key for one client of the relay.

The key is 256 random bits behind a name. The relay keeps only a salted hash of
it; the key is shown only here, so pass it on and do not store it.
"""
EPILOG: Final = """\
example:
  curtilage-relay make-key hospital-a
    key: hospital-a.0123...          for the client: its header is
                                     Authorization: Bearer hospital-a.0123...
    line: hospital-a:salt:hash       for relay.toml:
                                     [access]
                                     keys = ["hospital-a:salt:hash"]

Once keys are listed, everything but /healthz asks for one. To take a key back,
delete its line and restart.

exit codes: 0 made; 2 not a name.
"""


def run(arguments: Sequence[str]) -> int:
    """Run the subcommand; return its exit code.

    Raises:
        OutputError: standard output cannot be written to.
    """
    parser = make_parser("curtilage-relay make-key", DESCRIPTION, EPILOG)
    parser.add_argument(
        "name", metavar="NAME", help="whose key it is: 1 to 32 of a-z, 0-9 and -"
    )
    options = parse(parser, arguments)
    try:
        key, record = make_key(options.name)
    except ValueError as error:
        say(sys.stderr, f"curtilage-relay make-key: {error}\n")
        return EXIT_USAGE
    say(sys.stdout, f"key: {key}\nline: {record.line()}\n")
    return 0
