"""A verified model file: opened once, and hashed through the open descriptor.

The hashed file is the loaded one: the loader gets the open file itself (by its
descriptor, where the system exposes descriptors as paths), and calls
``check_unchanged`` afterwards. Fetches nothing.
"""

import hashlib
import os
import re
import sys
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from curtilage.inference.errors import ModelDigestError, ModelFileError

CHANGED: Final = "the model file changed after it was verified"
CHANGED_MEANWHILE: Final = "the model file changed while it was hashed"
CHUNK_BYTES: Final = 1 << 20
MAGIC: Final = b"GGUF"
SHA256_HEX: Final = re.compile(r"[0-9a-f]{64}")
DESCRIPTORS: Final = Path("/proc/self/fd")

_Identity = tuple[int, int, int, int, int]


class VerifiedModel:
    """An open model file whose SHA-256 was verified.

    Made only by ``verify_model_file``. Close it, or use it in a ``with``.

    Attributes:
        path: for messages.
        sha256: its digest, hex.
        size_bytes: its size.
    """

    def __init__(self, path: Path, sha256: str) -> None:
        self.path = path
        self.sha256 = sha256
        try:
            self._file = path.open("rb")
        except OSError as problem:
            raise ModelFileError(
                f"the model file cannot be opened: {problem.strerror}"
            ) from None
        try:
            self._identity = self._verify()
        except BaseException:
            self._file.close()
            raise
        self.size_bytes = self._identity[2]

    def __enter__(self) -> Self:
        """Return the open file."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the file."""
        self.close()

    @property
    def load_path(self) -> Path:
        """The path to load from: the descriptor itself on Linux.

        Elsewhere the path by which it was opened, which may name another file by
        now; ``check_unchanged`` detects that.
        """
        if sys.platform == "linux" and DESCRIPTORS.is_dir():
            return DESCRIPTORS / str(self._file.fileno())
        return self.path

    def check_unchanged(self) -> None:
        """Refuse the file if it was written to, or replaced, since hashing.

        Raises:
            ModelFileError: it is not the hashed file any more.
        """
        # Both: the descriptor shows whether it was written to, the path whether it was
        # replaced.
        try:
            now = _identity(os.fstat(self._file.fileno()))
            there = _identity(self.load_path.stat())
        except (OSError, ValueError):
            raise ModelFileError("the model file was closed or removed") from None
        if not now == there == self._identity:
            raise ModelFileError(CHANGED)

    def close(self) -> None:
        """Close the file; a model loaded from it remains."""
        self._file.close()

    def _verify(self) -> _Identity:
        before = _identity(os.fstat(self._file.fileno()))
        if self._file.read(len(MAGIC)) != MAGIC:
            raise ModelFileError("the model file is not a GGUF file")
        self._file.seek(0)
        digest = hashlib.sha256()
        while chunk := self._file.read(CHUNK_BYTES):
            digest.update(chunk)
        if digest.hexdigest() != self.sha256:
            raise ModelDigestError(expected=self.sha256, found=digest.hexdigest())
        # If it was written to meanwhile, the file differs from what was hashed.
        if _identity(os.fstat(self._file.fileno())) != before:
            raise ModelFileError(CHANGED_MEANWHILE)
        return before


def verify_model_file(path: Path, expected_sha256: str) -> VerifiedModel:
    """Open a model file and check its digest.

    Args:
        path: a GGUF file.
        expected_sha256: 64 hex digits; mandatory.

    Raises:
        ModelDigestError: it is another file.
        ModelFileError: it cannot be read, or is not a GGUF file.
    """
    expected = expected_sha256.lower()
    if SHA256_HEX.fullmatch(expected) is None:
        raise ModelFileError("the model's SHA-256 is not 64 hex digits")
    # Opening a pipe would block.
    if path.exists() and not path.is_file():
        raise ModelFileError("the model file is not a regular file")
    return VerifiedModel(path, expected)


def read_head(path: Path, size: int) -> tuple[bytes, int]:
    """Return the first bytes of a file, at most ``size``, and its length, unverified.

    Nothing, if it cannot be read: the engine reports why, when it opens it.
    """
    try:
        # Opening a pipe would block.
        if not path.is_file():
            return b"", 0
        with path.open("rb") as file:
            return file.read(size), os.fstat(file.fileno()).st_size
    except OSError:
        return b"", 0


def _identity(status: os.stat_result) -> _Identity:
    return (
        status.st_dev,
        status.st_ino,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
    )
