"""Reads regular files only: opening a pipe would block."""

import errno
import os
import stat
from pathlib import Path


def read_ordinary(path: Path, most: int, *, links: bool = True) -> bytes:
    """Read a regular file without waiting.

    Args:
        path: the file.
        most: the number of bytes to read; the rest is ignored.
        links: whether the path itself may be a symbolic link.

    Raises:
        OSError: it cannot be opened or read, or is not a regular file.
    """
    # Without O_NONBLOCK, opening a pipe waits for a writer.
    follow = 0 if links else os.O_NOFOLLOW
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | follow
    descriptor = os.open(path, flags)
    try:
        # Of the open descriptor, not of the path: that may point elsewhere by now.
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read(most)
    finally:
        os.close(descriptor)
