"""Writes endorsements atomically: a reader finds the old file or the new one."""

import os
import re
import secrets
from collections.abc import Container
from contextlib import suppress
from pathlib import Path
from typing import Final

from curtilage.enclave_server.stapler.errors import StoreError

FILE_MODE: Final = 0o644
"""Public data; another user reads the files."""


class EndorsementStore:
    """The directory that the evidence process reads.

    Args:
        directory: created if it does not exist.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def read(self, name: str) -> bytes:
        """Return a file's bytes, or none if there is no such file.

        Raises:
            StoreError: it exists and cannot be read.
        """
        try:
            return (self._directory / name).read_bytes()
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise StoreError(f"{name}: {type(error).__name__}") from None

    def drop(self, kind: re.Pattern[str], keep: Container[str]) -> None:
        """Remove the files of a kind, by their names, except some.

        Raises:
            StoreError: one could not be removed.
        """
        try:
            for path in sorted(self._directory.iterdir()):
                if kind.fullmatch(path.name) and path.name not in keep:
                    path.unlink(missing_ok=True)
        except FileNotFoundError:
            return
        except OSError as error:
            raise StoreError(f"an old file: {type(error).__name__}") from None

    def write(self, name: str, data: bytes) -> None:
        """Replace a file in one step.

        Raises:
            StoreError: it could not be written; the old one is kept.
        """
        temporary = self._directory / f".{name}.{secrets.token_hex(8)}"
        try:
            # Next to the file, so that the rename is atomic; under a name that no
            # reader uses.
            self._directory.mkdir(parents=True, exist_ok=True)
            _write_whole(temporary, data)
            temporary.replace(self._directory / name)
        except OSError as error:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise StoreError(f"{name}: {type(error).__name__}") from None


def _write_whole(path: Path, data: bytes) -> None:
    # O_EXCL follows no link: a file that was put there before is not written through.
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    descriptor = os.open(path, flags, FILE_MODE)
    try:
        left = memoryview(data)
        while left:
            left = left[os.write(descriptor, left) :]
        # Before the rename: after a crash the name must not refer to an empty file.
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
