"""File access: bounded reading of files named by users; private files of our own.

A pipe or a device is refused, because opening one may block for ever and reading
one may never end. Output of another program must be saved to a file first.

Our own files are for their owner only (0600), are locked with ``flock`` if several
processes may write, and are replaced atomically: readers see the old bytes or the new
ones, also after a power failure. Use a local file system.
"""

import errno
import math
import os
import stat
from collections.abc import Generator
from contextlib import contextmanager
from hashlib import file_digest, sha256
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO, Final

from filelock import FileLock, Timeout
from platformdirs.unix import Unix

from curtilage.client.errors import ConfigError

PRIVATE_FILE: Final = 0o600
PRIVATE_FOLDER: Final = 0o700
NOT_ORDINARY: Final = "not an ordinary file (a pipe, a folder, a device)"
_POLL_S: Final = 0.002
# Also on macOS, where platformdirs has ~/Library: earlier versions have files here.
_PLACES: Final = Unix("curtilage", appauthor=False)


def data_folder() -> Path:
    """Return the user's data folder (``$XDG_DATA_HOME``); may be missing."""
    return _PLACES.user_data_path


def state_folder() -> Path:
    """Return the folder of a client's own state (``$XDG_STATE_HOME``)."""
    return _PLACES.user_state_path


def open_ordinary(path: Path) -> BufferedReader:
    """Open a regular file for reading, following links; never blocks.

    Raises:
        OSError: it cannot be opened, or is not a regular file.
    """
    # Opened without blocking, then checked by its descriptor: a path that was checked
    # first could refer to something else by the time it is opened.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, NOT_ORDINARY)
    return os.fdopen(descriptor, "rb")


def open_named(path: Path) -> BinaryIO:
    """Open a regular file that a user named, for reading.

    Raises:
        ConfigError: it cannot be opened, or is not a regular file.
    """
    try:
        return open_ordinary(path)
    except OSError as failure:
        raise ConfigError(f"{path}: {failure.strerror}") from None


def read_start(path: Path, limit: int) -> bytes:
    """Read a file, up to one byte beyond the limit.

    Raises:
        ConfigError: it cannot be read, or is not a regular file.
    """
    try:
        with open_ordinary(path) as file:
            return file.read(limit + 1)
    except OSError as failure:
        raise ConfigError(f"{path}: {failure.strerror}") from None


def read_bounded(path: Path, limit: int) -> bytes:
    """Read a file of at most ``limit`` bytes.

    Raises:
        ConfigError: as ``read_start``, or it is larger.
    """
    data = read_start(path, limit)
    if len(data) > limit:
        raise ConfigError(f"{path}: larger than {limit} bytes")
    return data


def read_text(path: Path, limit: int) -> str:
    """Read a UTF-8 file of at most ``limit`` bytes, keeping its line ends.

    Raises:
        ConfigError: as ``read_bounded``, or it is not UTF-8.
    """
    try:
        return read_bounded(path, limit).decode("utf-8")
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: not UTF-8 text") from None


def open_private(path: Path, flags: int) -> int:
    """Open a file of our own; created for its owner only, and never through a link.

    Args:
        path: the file.
        flags: of ``os.open``.

    Returns:
        A descriptor, which child processes do not inherit.

    Raises:
        OSError: it cannot be opened.
    """
    # Through a planted link, we would write into a file of an attacker's choice.
    return os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, PRIVATE_FILE)


def open_unshared(path: Path, flags: int) -> int:
    """Open a file as ``open_private`` does; one that is there must be ours alone.

    Its permissions are as they were.

    Raises:
        OSError: it cannot be opened, is no ordinary file, belongs to another account
            or has a second name.
    """
    # Another account that makes the file first could read what is written into it.
    descriptor = open_private(path, flags | os.O_NONBLOCK)
    status = os.fstat(descriptor)
    problem = None
    if not stat.S_ISREG(status.st_mode):
        problem = (errno.EINVAL, NOT_ORDINARY)
    elif status.st_uid != os.geteuid():
        problem = (errno.EPERM, "belongs to another account")
    elif status.st_nlink > 1:
        problem = (errno.EMLINK, "has a second name (a hard link)")
    if problem is not None:
        os.close(descriptor)
        raise OSError(*problem)
    return descriptor


def own_place(path: Path) -> Path:
    """Return the path for a new file of our own, with links in its folder resolved.

    Raises:
        ConfigError: another account could replace it; names the folder.
    """
    try:
        folder = path.parent.resolve(strict=True)
        for each in (folder, *folder.parents):
            status = each.stat()
            # In a folder such as /tmp the sticky bit protects existing entries, but any
            # account may add one.
            shared = each != folder and status.st_mode & stat.S_ISVTX
            others = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not shared
            if others or status.st_uid not in {0, os.geteuid()}:
                raise ConfigError(f"{path}: others may write to the folder {each}")
    except OSError as failure:
        raise ConfigError(f"{path.parent}: {failure.strerror}") from None
    return folder / path.name


def make_private_folder(path: Path) -> None:
    """Create a folder and its missing parents, each for its owner only.

    An existing folder keeps its permissions.

    Raises:
        OSError: it cannot be created, or another kind of file has its name.
    """
    # Not ``mkdir(parents=True)``: it creates parents with the umask's mode, and their
    # listing shows other accounts the names, sizes and times of our files.
    missing = [path]
    while not missing[-1].parent.exists():
        missing.append(missing[-1].parent)
    for folder in reversed(missing):
        folder.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)


@contextmanager
def write_private_atomically(path: Path) -> Generator[BinaryIO]:
    """Write a private file atomically.

    If the body raises, nothing is replaced or left behind.

    Raises:
        OSError: it cannot be written.
    """
    temporary = path.with_name(f".{path.name}.new")
    # A process that was killed left it, or another account made it, and could read what
    # is written into it.
    temporary.unlink(missing_ok=True)
    descriptor = open_private(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            # Before the rename: otherwise a power failure could leave the file empty.
            file.flush()
            os.fsync(descriptor)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@contextmanager
def locked(path: Path, wait_s: float) -> Generator[None]:
    """Hold an exclusive lock between processes.

    Args:
        path: a file used only as the lock, created if missing.
        wait_s: seconds, or ``math.inf``.

    Raises:
        TimeoutError: another process holds it for longer than that.
        OSError: it cannot be opened, or the file system has no ``flock``.
    """
    # The library would create a missing folder, which others could read; and a log on a
    # volume that is not mounted must not begin anew.
    path.parent.stat()
    lock = FileLock(
        path,
        timeout=-1 if wait_s == math.inf else wait_s,
        mode=PRIVATE_FILE,
        # Another thread may release it than took it.
        thread_local=False,
        poll_interval=_POLL_S,
        # A lock that is a mere file would remain if this process were killed.
        fallback_to_soft=False,
    )
    try:
        lock.acquire()
    except Timeout:
        raise TimeoutError(errno.ETIMEDOUT, "held by another process") from None
    try:
        yield
    finally:
        # The kernel does the same if this process is killed.
        lock.release()


def folder_digest(folder: Path) -> str:
    r"""Return the SHA-256 that identifies a folder in a policy, in hexadecimal.

    It is the digest of a text with one line for each file, in byte order of the
    paths: the file's own SHA-256 in hexadecimal, two spaces, the path below the
    folder with ``/`` as separator. In a shell::

        cd FOLDER && find . -type f -printf '%P\0' | LC_ALL=C sort -z |
            xargs -0 sha256sum | sha256sum

    Raises:
        ConfigError: it contains something other than files and folders, such as a
            link: its target could change without the folder changing.
        OSError: a file cannot be read.
    """
    lines: list[bytes] = []
    below = {
        os.fsencode(path.relative_to(folder).as_posix()): path
        for path in folder.rglob("*")
    }
    for name, path in sorted(below.items()):
        if path.is_symlink() or not (path.is_dir() or path.is_file()):
            raise ConfigError("holds a link or a device")
        if path.is_file():
            with path.open("rb") as stream:
                digest = file_digest(stream, "sha256").hexdigest()
            lines.append(f"{digest}  ".encode() + name + b"\n")
    return sha256(b"".join(lines)).hexdigest()
