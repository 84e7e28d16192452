"""Files: those that somebody names, read up to a bound; our own, private and whole.

A pipe or a device is refused, because opening one may wait for ever and reading
one may never end. What another program prints goes into a file first.

What is ours is for its owner alone (0600), is locked with ``flock`` while several
processes may write, and is replaced in one step: who reads it sees the old bytes or
the new ones, also after a power cut. Use a local file system.
"""

import errno
import fcntl
import os
import stat
import time
from collections.abc import Generator
from contextlib import contextmanager
from hashlib import file_digest, sha256
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO, Final

from curtilage.client.errors import ConfigError

PRIVATE_FILE: Final = 0o600
PRIVATE_FOLDER: Final = 0o700
_FIRST_PAUSE_S: Final = 0.0002
_LONGEST_PAUSE_S: Final = 0.01


def open_ordinary(path: Path) -> BufferedReader:
    """Open an ordinary file for reading, links followed; wait for nothing.

    Raises:
        OSError: it cannot be opened, or is no ordinary file.
    """
    # Opened without waiting, then looked at by its descriptor: a path that was looked
    # at first could name something else by the time it is opened.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not an ordinary file (a pipe, a folder, a device)")
    return os.fdopen(descriptor, "rb")


def open_named(path: Path) -> BinaryIO:
    """Open an ordinary file that somebody named, for reading.

    Raises:
        ConfigError: it cannot be opened, or is no ordinary file.
    """
    try:
        return open_ordinary(path)
    except OSError as failure:
        raise ConfigError(f"{path}: {failure.strerror}") from None


def read_start(path: Path, limit: int) -> bytes:
    """Read a file, one byte beyond the limit at most.

    Raises:
        ConfigError: it cannot be read, or is no ordinary file.
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
    """Read a UTF-8 file of at most ``limit`` bytes, its line ends as they are.

    Raises:
        ConfigError: as ``read_bounded``, or it is not UTF-8.
    """
    try:
        return read_bounded(path, limit).decode("utf-8")
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: not UTF-8 text") from None


def open_private(path: Path, flags: int) -> int:
    """Open a file of ours; made for its owner alone, and never through a link.

    Args:
        path: the file.
        flags: of ``os.open``.

    Returns:
        A descriptor, which programs that we start do not inherit.

    Raises:
        OSError: it cannot be opened.
    """
    # Through a link that somebody laid, we would write into a file of their choice.
    return os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, PRIVATE_FILE)


def own_place(path: Path) -> Path:
    """Return where a file of ours is to be made, links of its folder followed.

    Raises:
        ConfigError: another account could put one in its place; names the folder.
    """
    try:
        folder = path.parent.resolve(strict=True)
        for each in (folder, *folder.parents):
            status = each.stat()
            # In a folder such as /tmp the sticky bit keeps the entries of others as
            # they are, but anybody may add one.
            shared = each != folder and status.st_mode & stat.S_ISVTX
            others = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not shared
            if others or status.st_uid not in {0, os.geteuid()}:
                raise ConfigError(f"{path}: others may write to the folder {each}")
    except OSError as failure:
        raise ConfigError(f"{path.parent}: {failure.strerror}") from None
    return folder / path.name


def make_private_folder(path: Path) -> None:
    """Make a folder and every missing folder above it, each for its owner alone.

    A folder that is already there keeps its permissions.

    Raises:
        OSError: it cannot be made, or something else has its name.
    """
    # Not ``mkdir(parents=True)``: it gives the folders above the mode of the umask, and
    # their listing shows other accounts the names, sizes and times of our files.
    missing = [path]
    while not missing[-1].parent.exists():
        missing.append(missing[-1].parent)
    for folder in reversed(missing):
        folder.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)


@contextmanager
def write_private_atomically(path: Path) -> Generator[BinaryIO]:
    """Write a private file that is there whole, or as it was before.

    Where the body raises, nothing is replaced and nothing is left behind.

    Raises:
        OSError: it cannot be written.
    """
    temporary = path.with_name(f".{path.name}.new")
    descriptor = open_private(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            # Before the rename: else a power cut could leave the new name empty.
            file.flush()
            os.fsync(descriptor)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@contextmanager
def locked(path: Path, wait_s: float) -> Generator[None]:
    """Hold a lock against all other processes that ask for it.

    Args:
        path: a file for the lock alone, made where it is missing.
        wait_s: seconds, or ``math.inf``.

    Raises:
        TimeoutError: somebody else holds it for longer than that.
        OSError: it cannot be opened.
    """
    descriptor = open_private(path, os.O_RDWR | os.O_CREAT)
    try:
        _take_lock(descriptor, wait_s)
        yield
    finally:
        # Lets go of the lock; the kernel does the same where this process is killed.
        os.close(descriptor)


def _take_lock(descriptor: int, wait_s: float) -> None:
    # By asking again, since a blocking flock cannot be given an end, and a writer
    # that was stopped must not stop us all.
    until, pause_s = time.monotonic() + wait_s, _FIRST_PAUSE_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                raise TimeoutError(errno.ETIMEDOUT, "held by another process") from None
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        else:
            return


def folder_digest(folder: Path) -> str:
    r"""Return the SHA-256 by which a policy names a folder, in hexadecimal.

    It is that of a text with one line for each file, in the byte order of the
    paths: the file's own SHA-256 in hexadecimal, two spaces, the path below the
    folder with ``/`` between its parts. In a shell::

        cd FOLDER && find . -type f -printf '%P\0' | LC_ALL=C sort -z |
            xargs -0 sha256sum | sha256sum

    Raises:
        ConfigError: there is something that is neither file nor folder, a link
            included: it could change without the folder changing.
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
