"""Files that somebody names: ordinary ones only, read up to a bound.

A pipe or a device is refused, because opening one may wait for ever and reading
one may never end. What another program prints goes into a file first.
"""

import errno
import os
import stat
from hashlib import file_digest, sha256
from pathlib import Path
from typing import BinaryIO

from curtilage.client.errors import ConfigError


def open_ordinary(path: Path) -> BinaryIO:
    """Open an ordinary file for reading, links followed; wait for nothing.

    Raises:
        OSError: it cannot be opened, or is no ordinary file.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not an ordinary file (a pipe, a folder, a device)")
    return os.fdopen(descriptor, "rb")


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
