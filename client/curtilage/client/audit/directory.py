"""The audit log's directory: its files, its keys, and one lock for all writers.

::

    DIR/                  0700
      organisation.key    the organisation's HMAC key, 64 hex digits
      signing.key         Ed25519, PKCS#8 PEM; signs the checkpoints
      log.vkey            the public key, a C2SP verifier key; may be shared
      000001.jsonl …      the log's lines
      checkpoints         signed notes, one after the other
      lock                held by the current writer
      torn-…              the remains of an unconfirmed line after a crash

Every file is 0600 and must stay so: with the organisation's key, guesses of short
questions can be tested. The lock is ``flock``: use a local file system.
"""

import os
import re
import stat
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)

from curtilage.attest.log.note import NoteKey
from curtilage.client.audit.checkpoint import (
    MAX_CHECKPOINT_BYTES,
    encode_key,
    log_id,
    parse_key,
    sign_head,
)
from curtilage.client.audit.record import KEY_BYTES
from curtilage.client.audit.tail import Tail
from curtilage.client.audit.verify import lines_of
from curtilage.client.errors import AuditError
from curtilage.client.system.files import (
    locked,
    make_private_folder,
    open_ordinary,
    open_private,
    write_private_atomically,
)
from curtilage.policy.errors import AuditRefusedError

ORGANISATION_KEY: Final = "organisation.key"
SIGNING_KEY: Final = "signing.key"
PUBLIC_KEY: Final = "log.vkey"
CHECKPOINTS: Final = "checkpoints"
LOCK: Final = "lock"
NOTE_LINES: Final = 7  # five lines of text, a blank one, one signature
SIGNATURE_MARK: Final = "\u2014 ".encode()
MAX_KEY_FILE_BYTES: Final = 4096
CHUNK_BYTES: Final = 1 << 20
LOG_ID_BYTES: Final = 8
_OTHERS: Final = 0o077
_SEGMENT: Final = re.compile(r"([0-9]{6})\.jsonl", re.ASCII)
OTHER_KEY: Final = "not the key of this log"
_HEX_KEY: Final = re.compile(r"[0-9a-f]{64}\n?", re.ASCII)


class Disk:
    """The system calls that write a log; a test makes them fail."""

    def write(self, descriptor: int, data: bytes) -> int:
        """Append in one call; return the number of bytes written."""
        return os.write(descriptor, data)

    def sync(self, descriptor: int) -> None:
        """Return once the bytes are on disk."""
        os.fsync(descriptor)

    def truncate(self, descriptor: int, size_bytes: int) -> None:
        """Cut the file."""
        os.ftruncate(descriptor, size_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditKeys:
    """The keys of one log.

    Attributes:
        public: the log's id and the key of its checkpoints.
        organisation: keys the commitments, 32 bytes.
        signing: signs the checkpoints.
    """

    public: NoteKey
    organisation: bytes = field(repr=False)
    signing: Ed25519PrivateKey = field(repr=False)


class AuditDirectory:
    """A directory with one log, or for one.

    Args:
        path: the directory.
        disk: the system calls.
    """

    def __init__(self, path: Path, disk: Disk | None = None) -> None:
        self.path = path
        self.disk = disk or Disk()

    @property
    def made(self) -> bool:
        """Whether a log was created here."""
        return (self.path / PUBLIC_KEY).exists()

    def make(
        self,
        *,
        random: Callable[[int], bytes],
        now: datetime,
        organisation: bytes | None = None,
    ) -> None:
        """Create the directory, its keys, the log's first line and its checkpoint.

        Existing ones are kept. A log always has a checkpoint, so a log without one is
        known to have lost it.

        Args:
            random: the keys' randomness.
            now: aware; the log's first time.
            organisation: an existing organisation key to use.

        Raises:
            AuditError: it cannot be created, or holds a log without keys.
        """
        with as_audit_error(self.path):
            make_private_folder(self.path)
        with self.locked(10.0):
            if self.made:
                return
            # The public key is written last, so a crash during creation leaves at most
            # the first line. A longer log has lost its keys, and new keys would allow
            # forging it from the beginning.
            numbers = self.segments()
            only = b"".join(self.read_segment(1)) if numbers == [1] else b""
            if numbers not in ([], [1]) or only.count(b"\n") > 1:
                raise AuditError(f"{self.path}: there is a log, but its keys are gone")
            # Not Ed25519PrivateKey.generate(): the randomness is an argument.
            organisation = organisation or random(KEY_BYTES)
            signing = Ed25519PrivateKey.from_private_bytes(random(KEY_BYTES))
            name = log_id(random(LOG_ID_BYTES))
            public = NoteKey(name=name, public_key=_raw(signing))
            pem = signing.private_bytes(
                Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
            )
            self._write_private(ORGANISATION_KEY, f"{organisation.hex()}\n".encode())
            self._write_private(SIGNING_KEY, pem)
            tail = Tail(public.name)
            first = tail.next_segment(now)
            tail.take(first)
            note = sign_head(tail.head(now), public, signing.sign)
            self._write_private(self.segment(1).name, first)
            self._write_private(CHECKPOINTS, note.encode())
            # Last: its presence means that the log is complete.
            self._write_private(PUBLIC_KEY, f"{encode_key(public)}\n".encode())
            with as_audit_error(self.path):
                self.sync_folder()

    def keys(self) -> AuditKeys:
        """Read the keys.

        Raises:
            AuditError: they are missing, readable by others, or do not match.
        """
        public = self.public_key()
        pem = self._read_private(SIGNING_KEY)
        try:
            signing = load_pem_private_key(pem, password=None)
        except (ValueError, TypeError):
            signing = None
        organisation = self._read_private(ORGANISATION_KEY).decode("latin-1")
        fits = isinstance(signing, Ed25519PrivateKey) and (
            _raw(signing) == public.public_key
        )
        if not isinstance(signing, Ed25519PrivateKey) or not fits:
            raise AuditError(f"{self.path / SIGNING_KEY}: {OTHER_KEY}")
        return AuditKeys(
            public=public,
            organisation=parse_organisation_key(organisation),
            signing=signing,
        )

    def public_key(self) -> NoteKey:
        """Read the public key that is stored with the log.

        Raises:
            AuditError: there is none.
        """
        path = self.path / PUBLIC_KEY
        try:
            with as_audit_error(path):
                return parse_key(_read(path, MAX_KEY_FILE_BYTES).decode("latin-1"))
        except AuditRefusedError as refusal:
            raise AuditError(f"{path}: {refusal.detail}") from None

    @contextmanager
    def locked(self, wait_s: float) -> Generator[None]:
        """Hold the lock of all writers.

        Raises:
            AuditError: another process holds it for longer than ``wait_s``.
        """
        path = self.path / LOCK
        with ExitStack() as stack:
            with as_audit_error(path):
                try:
                    stack.enter_context(locked(path, wait_s))
                except TimeoutError:
                    raise AuditError(
                        "the audit trail: another process holds its lock for too long"
                    ) from None
            yield

    def segments(self) -> list[int]:
        """Return the numbers of the log's files, sorted."""
        with as_audit_error(self.path):
            names = [path.name for path in self.path.iterdir()]
            matches = map(_SEGMENT.fullmatch, names)
            return sorted(int(match[1]) for match in matches if match)

    def segment(self, number: int) -> Path:
        """Return the path of a file of the log."""
        return self.path / f"{number:06}.jsonl"

    def read_segment(self, number: int) -> Iterator[bytes]:
        """Yield the bytes of a file of the log, in pieces."""
        path = self.segment(number)
        with as_audit_error(path):
            yield from self._read(path)

    def notes(self) -> tuple[list[str], int]:
        """Return the complete checkpoints, and their size in bytes."""
        notes = list(self.each_note())
        texts = [note.decode("utf-8", "replace") for note in notes]
        return texts, sum(map(len, notes))

    def each_note(self) -> Iterator[bytes]:
        """Yield the complete checkpoints; a log may have a million."""
        lines = lines_of(self._read(self.path / CHECKPOINTS))
        with suppress(FileNotFoundError):
            while note := b"".join(islice(lines, NOTE_LINES)):
                # Torn by a crash; a note that is too long for that is refused when it
                # is verified.
                if note.count(b"\n") < NOTE_LINES and len(note) < MAX_CHECKPOINT_BYTES:
                    return
                yield note

    def append_note(self, note: bytes) -> None:
        """Add a checkpoint, replacing one that a crash cut short.

        Raises:
            AuditError: it may not be on disk.
        """
        path = self.path / CHECKPOINTS
        with as_audit_error(path):
            descriptor = open_private(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
            try:
                size = os.fstat(descriptor).st_size
                start = max(0, size - MAX_CHECKPOINT_BYTES)
                end = os.pread(descriptor, MAX_CHECKPOINT_BYTES, start)
                # The last line of a complete note is a signature. What a crash cut
                # short is signed again by the new note.
                last = end[:-1].rpartition(b"\n")[2]
                whole = end.endswith(b"\n") and last.startswith(SIGNATURE_MARK)
                if end and not whole:
                    size = self.notes()[1]
                    self.disk.truncate(descriptor, size)
                try:
                    self.write_all(descriptor, note)
                except OSError:
                    # Undone; if that fails as well, the next writer removes it.
                    with suppress(OSError):
                        self.disk.truncate(descriptor, size)
                    raise
            finally:
                os.close(descriptor)

    def set_aside(self, name: str, data: bytes) -> None:
        """Save bytes that are about to be truncated."""
        path = self.path / f"torn-{name}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        with as_audit_error(path):
            descriptor = open_private(path, flags)
            try:
                self.write_all(descriptor, data)
            finally:
                os.close(descriptor)

    def write_all(self, descriptor: int, data: bytes) -> None:
        """Append bytes in one call and wait until they are on disk.

        Raises:
            OSError: they are not, or only in part.
        """
        written = self.disk.write(descriptor, data)
        if written != len(data):
            raise OSError(None, "not all bytes could be written")
        self.disk.sync(descriptor)

    def sync_folder(self) -> None:
        """Wait until new file names are on disk."""
        descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            self.disk.sync(descriptor)
        finally:
            os.close(descriptor)

    def check_private(self) -> None:
        """Refuse a directory that other users may enter.

        Raises:
            AuditError: they may, or the directory is missing.
        """
        with as_audit_error(self.path):
            mode = stat.S_IMODE(self.path.stat().st_mode)
        if mode & _OTHERS:
            raise AuditError(f"{self.path}: others may enter it; chmod 700 it")

    @staticmethod
    def _read(path: Path) -> Iterator[bytes]:
        with as_audit_error(path, missing=True), open_ordinary(path) as file:
            while data := file.read(CHUNK_BYTES):
                yield data

    def _write_private(self, name: str, data: bytes) -> None:
        path = self.path / name
        with as_audit_error(path), write_private_atomically(path) as file:
            self.write_all(file.fileno(), data)

    def _read_private(self, name: str) -> bytes:
        path = self.path / name
        with as_audit_error(path):
            if stat.S_IMODE(path.stat().st_mode) & _OTHERS:
                raise AuditError(f"{path}: others may read it; chmod 600 it")
            return _read(path, MAX_KEY_FILE_BYTES)


def parse_organisation_key(text: str) -> bytes:
    """Parse the organisation's key, 64 hex digits.

    Raises:
        AuditError: not such a key; the message contains nothing of it.
    """
    if _HEX_KEY.fullmatch(text) is None:
        raise AuditError("the organisation's key is not 64 hex digits")
    return bytes.fromhex(text)


@contextmanager
def as_audit_error(path: Path, *, missing: bool = False) -> Generator[None]:
    """Turn an ``OSError`` into an ``AuditError`` that names the file.

    Args:
        path: the file.
        missing: let ``FileNotFoundError`` pass as it is.
    """
    try:
        yield
    except OSError as failure:
        if missing and isinstance(failure, FileNotFoundError):
            raise
        raise AuditError(f"{path}: {failure.strerror or 'cannot be used'}") from None


def _read(path: Path, limit_bytes: int) -> bytes:
    with open_ordinary(path) as file:
        return file.read(limit_bytes)


def _raw(key: Ed25519PrivateKey) -> bytes:
    return key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
