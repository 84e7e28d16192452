"""Files of a log, its keys and its witnesses: replaced whole, locked, private.

A file is replaced in one step and only after its bytes are on the medium, so that a
reader sees the old one or the new one, even after a power failure. Locks are ``flock``
on the folder or key file itself, so no lock files remain or are served; use a local
file system.
"""

import errno
import fcntl
import os
import stat
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.mldsa import MLDSA44PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from curtilage.transparency.errors import FileError, HeldError

PRIVATE_FILE: Final = 0o600
PRIVATE_FOLDER: Final = 0o700
PUBLIC_FILE: Final = 0o644
MAX_KEY_BYTES: Final = 16 * 1024
NOT_ORDINARY: Final = "not an ordinary file"
KEY_INSIDE: Final = "a private key must not lie inside"
_OTHERS: Final = 0o077
_NEW: Final = ".new"

SigningKey = Ed25519PrivateKey | MLDSA44PrivateKey


def open_ordinary(path: Path) -> BinaryIO:
    """Open a regular file for reading, following links, without blocking.

    A pipe or a device in someone else's folder could block forever.

    Raises:
        OSError: it cannot be opened, or is not a regular file.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, f"{NOT_ORDINARY} (a pipe, a folder, a device)")
    return os.fdopen(descriptor, "rb")


def read_bounded(path: Path, limit: int) -> bytes:
    """Read a regular file of at most ``limit`` bytes.

    Raises:
        FileError: it cannot be read, is not a regular file, or is larger.
    """
    try:
        with open_ordinary(path) as file:
            data = file.read(limit + 1)
    except OSError as failure:
        raise FileError(f"{path}: {failure.strerror}") from None
    if len(data) > limit:
        raise FileError(f"{path}: larger than {limit} bytes")
    return data


def read_text(path: Path, limit: int) -> str:
    """Read a UTF-8 file of at most ``limit`` bytes, with its line ends unchanged.

    Raises:
        FileError: as ``read_bounded``, or it is not UTF-8.
    """
    try:
        return read_bounded(path, limit).decode("utf-8")
    except UnicodeDecodeError:
        raise FileError(f"{path}: not UTF-8 text") from None


def replace_file(path: Path, data: bytes, mode: int = PUBLIC_FILE) -> None:
    """Write a file atomically.

    Raises:
        FileError: it cannot be written.
    """
    new = path.with_name(path.name + _NEW)
    try:
        # Left by a crash, or planted: if it were a link, the bytes would be written
        # to a file of an attacker's choice.
        new.unlink(missing_ok=True)
        _write_synced(new, data, mode)
        new.replace(path)
        _sync_folder(path.parent)
    except OSError as failure:
        raise FileError(f"{path}: {failure.strerror}") from None


def create_file(path: Path, data: bytes, mode: int) -> None:
    """Write a file that must not exist yet.

    Raises:
        FileError: it exists, or cannot be written.
    """
    try:
        _write_synced(path, data, mode)
        _sync_folder(path.parent)
    except FileExistsError:
        raise FileError(f"{path}: already exists") from None
    except OSError as failure:
        raise FileError(f"{path}: {failure.strerror}") from None


def make_folder(path: Path, mode: int = 0o755) -> None:
    """Create a folder and its missing parents.

    Raises:
        FileError: it cannot be created.
    """
    try:
        path.mkdir(mode=mode, parents=True, exist_ok=True)
    except OSError as failure:
        raise FileError(f"{path}: {failure.strerror}") from None


@contextmanager
def locked(*paths: Path) -> Generator[None]:
    """Lock files or folders against other processes.

    Raises:
        HeldError: another process has locked one.
        FileError: one cannot be opened.
    """
    with ExitStack() as stack:
        for path in paths:
            try:
                # Without blocking, in case it is a pipe.
                flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
                descriptor = os.open(path, flags)
            except OSError as failure:
                raise FileError(f"{path}: {failure.strerror}") from None
            stack.callback(os.close, descriptor)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise HeldError(f"{path}: another process works on it") from None
        yield


def write_key(path: Path, key: SigningKey) -> None:
    """Write a new private key, readable only by its owner.

    Raises:
        FileError: a file already exists, or cannot be written.
    """
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    create_file(path, pem, PRIVATE_FILE)


def read_key(path: Path) -> SigningKey:
    """Read a private key; refuse one that others may read.

    Raises:
        FileError: it cannot be read, is open to others, or is not an Ed25519 or
            ML-DSA-44 key in PEM without a password.
    """
    data = read_bounded(path, MAX_KEY_BYTES)
    if stat.S_IMODE(path.stat().st_mode) & _OTHERS:
        raise FileError(f"{path}: others may read this key (chmod 600 it)")
    try:
        key = load_pem_private_key(data, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise FileError(f"{path}: not a private key in PEM") from None
    if not isinstance(key, Ed25519PrivateKey | MLDSA44PrivateKey):
        raise FileError(f"{path}: neither an Ed25519 nor an ML-DSA-44 key")
    return key


def require_outside(path: Path, folder: Path) -> None:
    """Refuse a private file inside a folder that is served.

    Raises:
        FileError: it is inside.
    """
    if path.resolve().is_relative_to(folder.resolve()):
        raise FileError(f"{path}: {KEY_INSIDE} {folder}, which is served")


def _write_synced(path: Path, data: bytes, mode: int) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, mode), "wb") as file:
        file.write(data)
        file.flush()
        # Before the rename: otherwise the name could refer to an empty file after a
        # power cut.
        os.fsync(file.fileno())


def _sync_folder(path: Path) -> None:
    # A name is on the medium only when its folder is.
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
