"""A model file: opened once, and hashed through the open descriptor.

The hashed file is the loaded one: the loader gets the open file itself (by its
descriptor, where the system exposes descriptors as paths), and calls
``check_unchanged`` afterwards. Fetches nothing.

A process that holds keys or questions hashes a file first: the library that parses it
is not made for hostile files. A confined process may load it while another one hashes
it (docs/decisions/0078).
"""

import hashlib
import os
import re
import stat
import sys
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from typing_extensions import override

from curtilage.inference.errors import ModelDigestError, ModelFileError

CHANGED: Final = "the model file changed after it was verified"
CHANGED_MEANWHILE: Final = "the model file changed while it was hashed"
UNREADABLE: Final = "the model file cannot be read"
CHUNK_BYTES: Final = 1 << 20
MAGIC: Final = b"GGUF"
SHA256_HEX: Final = re.compile(r"[0-9a-f]{64}")
DESCRIPTORS: Final = Path("/proc/self/fd")

_Identity = tuple[int, int, int, int, int]


class ModelFile:
    """An open model file, and the SHA-256 that it must have.

    Close it, or use it in a ``with``.

    Attributes:
        path: for messages.
        sha256: its digest, hex; until ``verify`` returned, only the expected one.
        size_bytes: its size.

    Raises:
        ModelFileError: it cannot be opened, or is not a GGUF file.
    """

    def __init__(self, path: Path, sha256: str) -> None:
        self.path = path
        self.sha256 = sha256
        self._verified = False
        try:
            self._file = path.open("rb")
        except OSError as problem:
            raise ModelFileError(
                f"the model file cannot be opened: {problem.strerror}"
            ) from None
        try:
            self._identity = _identity(os.fstat(self._file.fileno()))
            magic = os.pread(self._file.fileno(), len(MAGIC), 0)
        except OSError:
            self._file.close()
            raise ModelFileError(UNREADABLE) from None
        if magic != MAGIC:
            self._file.close()
            raise ModelFileError("the model file is not a GGUF file")
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
    def descriptor(self) -> int:
        """Of the open file; closed with it."""
        return self._file.fileno()

    @property
    def load_path(self) -> Path:
        """The path to load from: the descriptor itself on Linux.

        Elsewhere the path by which it was opened, which may name another file by
        now; ``check_unchanged`` detects that.
        """
        if sys.platform == "linux" and DESCRIPTORS.is_dir():
            return DESCRIPTORS / str(self._file.fileno())
        return self.path

    def verify(self) -> None:
        """Hash the file and compare; a second call returns at once.

        Raises:
            ModelDigestError: it is another file.
            ModelFileError: it was written to meanwhile, or cannot be read.
        """
        if self._verified:
            return
        digest = hashlib.sha256()
        try:
            read = 0
            # At offsets of its own: a process that inherited the descriptor may read at
            # the same time, and the two have one position.
            while chunk := os.pread(self._file.fileno(), CHUNK_BYTES, read):
                digest.update(chunk)
                read += len(chunk)
            now = _identity(os.fstat(self._file.fileno()))
        except (OSError, ValueError):
            raise ModelFileError(UNREADABLE) from None
        if digest.hexdigest() != self.sha256:
            raise ModelDigestError(expected=self.sha256, found=digest.hexdigest())
        # If it was written to meanwhile, the file differs from what was hashed.
        if now != self._identity:
            raise ModelFileError(CHANGED_MEANWHILE)
        self._verified = True

    def check_unchanged(self) -> None:
        """Refuse the file if it was written to, or replaced, since it was opened.

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


class VerifiedModel(ModelFile):
    """A model file that was hashed when it was opened."""

    def __init__(self, path: Path, sha256: str) -> None:
        super().__init__(path, sha256)
        try:
            self.verify()
        except BaseException:
            self.close()
            raise


class LentModel(ModelFile):
    """A model file that another process has open too, and hashes meanwhile.

    That process sends no request before the digest is right (decision 0078).

    Args:
        path: the file.
        sha256: its expected digest, hex.
        lent: the other process's descriptor, inherited.
    """

    def __init__(self, path: Path, sha256: str, lent: int) -> None:
        super().__init__(path, sha256)
        self._lent = lent

    @override
    def verify(self) -> None:
        """Check that this is the file that the other process hashes.

        Raises:
            ModelFileError: it is another one, or was written to meanwhile.
        """
        if _identity(os.fstat(self._lent)) != self._identity:
            raise ModelFileError(CHANGED)


def open_model_file(path: Path, expected_sha256: str) -> ModelFile:
    """Open a model file; the engine verifies it before it loads it.

    Args:
        path: a GGUF file.
        expected_sha256: 64 hex digits; mandatory.

    Raises:
        ModelFileError: it cannot be opened, or is not a GGUF file.
    """
    return ModelFile(path, _checked(path, expected_sha256))


def verify_model_file(path: Path, expected_sha256: str) -> VerifiedModel:
    """Open a model file and check its digest.

    Args:
        path: a GGUF file.
        expected_sha256: 64 hex digits; mandatory.

    Raises:
        ModelDigestError: it is another file.
        ModelFileError: it cannot be read, or is not a GGUF file.
    """
    return VerifiedModel(path, _checked(path, expected_sha256))


def _checked(path: Path, expected_sha256: str) -> str:
    expected = expected_sha256.lower()
    if SHA256_HEX.fullmatch(expected) is None:
        raise ModelFileError("the model's SHA-256 is not 64 hex digits")
    try:
        # Opening a pipe would block.
        if not stat.S_ISREG(path.stat().st_mode):
            raise ModelFileError("the model file is not a regular file")
    except OSError:
        pass  # opening it says why
    return expected


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
