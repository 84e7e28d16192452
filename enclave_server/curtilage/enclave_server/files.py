"""Reads ordinary files only: a pipe would keep its opener waiting."""

import errno
import os
import stat
from pathlib import Path


def read_ordinary(path: Path, most: int, *, links: bool = True) -> bytes:
    """Read an ordinary file; wait for nothing.

    Args:
        path: the file.
        most: bytes that are read; what comes after them is left.
        links: whether the path itself may be a symbolic link.

    Raises:
        OSError: it cannot be opened or read, or is no ordinary file.
    """
    # Without O_NONBLOCK, opening a pipe waits until somebody writes to it.
    follow = 0 if links else os.O_NOFOLLOW
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | follow
    descriptor = os.open(path, flags)
    try:
        # Of what was opened, not of the path: that may lead elsewhere by now.
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not an ordinary file")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read(most)
    finally:
        os.close(descriptor)
