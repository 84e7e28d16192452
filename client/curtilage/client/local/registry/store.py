"""The registry of a user's models.

A model is a file and its SHA-256; none is registered or used without it. The registry
is one JSON file in the user's data directory, replaced atomically.
"""

import hashlib
import json
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from io import BufferedRandom, BufferedReader
from pathlib import Path
from typing import BinaryIO, Final, cast

from curtilage.client.errors import ClientError, ConfigError
from curtilage.client.local.registry.machine import free_room
from curtilage.client.system.files import (
    data_folder,
    locked,
    make_private_folder,
    open_ordinary,
    open_private,
    write_private_atomically,
)

NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
SHA256_HEX: Final = re.compile(r"[0-9a-f]{64}")
RESERVED: Final = frozenset({"default"})
"""The embedded model's name; it is not in the registry."""

FORMAT_VERSION: Final = 1
MAX_REGISTRY_BYTES: Final = 1 << 20
CHUNK_BYTES: Final = 1 << 20


NONE_REGISTERED: Final = "no model is registered under the name"
GGUF_MAGIC: Final = b"GGUF"


Progress = Callable[[int, int | None], None]
"""Called with the bytes present and the bytes expected, if known."""


class ModelRegistryError(ConfigError):
    """The registry, a name in it, or a file that it refers to is wrong."""


class OtherDigestError(ModelRegistryError):
    """The received file does not have the expected digest."""


class NoRoomError(ModelRegistryError):
    """The disk has too little space for the file."""


class ModelArrivingError(ClientError):
    """Another process is already receiving the same file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEntry:
    """One registered model.

    Attributes:
        name: lower-case letters, digits, ``.``, ``_`` and ``-``.
        path: the GGUF file, absolute.
        sha256: its digest, hex.
        size_bytes: its size when it was registered.
        source: where it was downloaded from; empty if it was added.
        base: for a LoRA adapter, the digest of the model that it was made for and is
            only loaded with; otherwise empty.
    """

    name: str
    path: str
    sha256: str
    size_bytes: int
    source: str = ""
    base: str = ""


class Registry:
    """The models of one user.

    Args:
        root: the data folder; created, for its owner only, when first written; None:
            the user's.

    Attributes:
        folder: for downloaded files.
    """

    def __init__(self, root: Path | None = None) -> None:
        self._root = root or data_folder()
        self._file = self._root / "models.json"
        self.folder = self._root / "models"

    def entries(self) -> tuple[ModelEntry, ...]:
        """Return every registered model, by name.

        Raises:
            ModelRegistryError: the registry cannot be read.
        """
        if not self._file.exists():
            return ()
        try:
            if self._file.stat().st_size > MAX_REGISTRY_BYTES:
                raise ModelRegistryError(f"{self._file} is too large")
            document: object = json.loads(self._file.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            raise ModelRegistryError(f"{self._file} cannot be read") from None
        try:
            members = cast("Mapping[str, object]", document)
            if members["version"] != FORMAT_VERSION:
                raise ModelRegistryError(f"{self._file} has an unknown version")
            models = cast("Sequence[Mapping[str, object]]", members["models"])
            return tuple(sorted(map(_entry, models), key=lambda entry: entry.name))
        except (KeyError, TypeError, ValueError):
            raise ModelRegistryError(f"{self._file} is damaged") from None

    def get(self, name: str) -> ModelEntry:
        """Return one model; its file is not checked.

        Raises:
            ModelRegistryError: no model has this name.
        """
        for entry in self.entries():
            if entry.name == name:
                return entry
        raise ModelRegistryError(
            f"{NONE_REGISTERED} {name!r}: `curtilage models list` "
            "shows those that are, `curtilage models recommend` those to download"
        )

    def find(self, sha256: str, *, base: str = "") -> ModelEntry | None:
        """Return a registered file by its digest, under any name, or None.

        Args:
            sha256: of the file, hex.
            base: for an adapter, as in ``ModelEntry``.
        """
        for entry in self.entries():
            if (entry.sha256, entry.base) == (sha256, base):
                return entry
        return None

    def add(self, name: str, path: Path, sha256: str, *, base: str = "") -> ModelEntry:
        """Register an existing file, if it has this digest.

        Args:
            name: its name from now on.
            path: the file, which is not moved.
            sha256: its digest, hex.
            base: for an adapter, as in ``ModelEntry``.

        Raises:
            ModelRegistryError: name or digest is wrong, or another file already
                has this name.
        """
        check_name(name)
        entry = ModelEntry(
            name=name,
            path=str(path.absolute()),
            sha256=sha256.lower(),
            size_bytes=0,
            base=base.lower(),
        )
        entry = replace(entry, size_bytes=verified_size(entry))
        self.register(entry)
        return entry

    def verify(self, name: str) -> ModelEntry:
        """Hash a registered model's file again.

        Raises:
            ModelRegistryError: the file is missing or was changed.
        """
        entry = self.get(name)
        if verified_size(entry) != entry.size_bytes:
            raise ModelRegistryError(f"the registry has a wrong size for {name!r}")
        return entry

    def receive(
        self, entry: ModelEntry, write: Callable[[BinaryIO], None]
    ) -> ModelEntry:
        """Receive a file, check its digest, register it.

        It gets its final name only after the digest matched; until then it is
        ``{sha256}.partial``, which is kept after an interruption. A file that
        exists is not written again.

        Args:
            entry: its name, digest and source; path and size are filled in.
            write: completes the partial file, which is open for reading and writing
                at its beginning.

        Raises:
            ModelRegistryError: the name refers to another file.
            OtherDigestError: the received file has another digest; it was deleted.
            ModelArrivingError: another process is receiving it.
            OSError: it cannot be written.
        """
        check_name(entry.name)
        # It becomes a file name.
        if SHA256_HEX.fullmatch(entry.sha256) is None:
            raise ModelRegistryError("the SHA-256 is not 64 hex digits")
        self.refuse_taken(entry)
        make_private(self.folder)
        final = self.folder / f"{entry.sha256}.gguf"
        entry = replace(entry, path=str(final.absolute()))
        if not final.exists():
            self._write(final, entry.sha256, write)
        entry = replace(entry, size_bytes=verified_size(entry))
        self.register(entry)
        return entry

    def _write(
        self, final: Path, sha256: str, write: Callable[[BinaryIO], None]
    ) -> None:
        partial = final.with_suffix(".partial")
        with ExitStack() as held:
            try:
                held.enter_context(locked(partial, 0))
            except TimeoutError:
                raise ModelArrivingError(
                    "another process is already receiving this file"
                ) from None
            descriptor = open_private(partial, os.O_RDWR)
            file = held.enter_context(os.fdopen(descriptor, "r+b"))
            write(file)
            # Synced before it gets its name, or after a power failure the name could
            # refer to other bytes than were hashed. Hashed through the descriptor that
            # was written.
            file.flush()
            os.fsync(file.fileno())
            file.seek(0)
            found = sha256_of(file)
            if found != sha256:
                partial.unlink()
                raise OtherDigestError(
                    f"the received file has SHA-256 {found}, not {sha256}; it was"
                    " deleted"
                )
            partial.rename(final)

    def require_room(self, size_bytes: int) -> None:
        """Refuse a file before any of it is written, if the disk has too little space.

        Raises:
            NoRoomError: it has; unknown free space is no reason.
        """
        room = free_room(self.folder)
        if room is not None and size_bytes > room:
            raise NoRoomError(
                f"the file needs {size_bytes >> 20} MiB, and {self.folder} has room "
                f"for {room >> 20} MiB"
            )

    def refuse_taken(self, entry: ModelEntry) -> None:
        """Refuse a name that is registered for another file.

        Raises:
            ModelRegistryError: it is.
        """
        for other in self.entries():
            named = other.name == entry.name
            if named and (other.sha256, other.base) != (entry.sha256, entry.base):
                raise ModelRegistryError(
                    f"the name {entry.name!r} is already registered for another file"
                )

    def register(self, entry: ModelEntry) -> None:
        """Add a model whose file was verified.

        Raises:
            ModelRegistryError: its name is registered for another file.
        """
        make_private(self._root)
        # Checked again under the lock: another process may have taken the name.
        with locked(self._root / "models.lock", math.inf):
            self.refuse_taken(entry)
            others = [other for other in self.entries() if other.name != entry.name]
            document = {
                "version": FORMAT_VERSION,
                # Models without adapter keep their format, so that an older version of
                # this program can read it.
                "models": [
                    {key: value for key, value in asdict(each).items() if key != "base"}
                    | ({"base": each.base} if each.base else {})
                    for each in (*others, entry)
                ],
            }
            with write_private_atomically(self._file) as file:
                file.write(json.dumps(document, indent=2).encode() + b"\n")


def _entry(item: Mapping[str, object]) -> ModelEntry:
    keys = ("name", "path", "sha256", "source", *(("base",) if "base" in item else ()))
    texts = {key: item[key] for key in keys}
    size = item["size_bytes"]
    if not all(isinstance(text, str) for text in texts.values()):
        raise TypeError
    if not isinstance(size, int) or len(item) != len(texts) + 1:
        raise TypeError
    entry = ModelEntry(size_bytes=size, **cast("dict[str, str]", texts))
    digests = (entry.sha256, entry.base) if "base" in item else (entry.sha256,)
    if not (NAME.fullmatch(entry.name) and all(map(SHA256_HEX.fullmatch, digests))):
        raise ValueError
    return entry


def check_name(name: str) -> None:
    """Refuse an invalid name for a model.

    Raises:
        ModelRegistryError: an invalid character, or the embedded model's name.
    """
    if NAME.fullmatch(name) is None:
        raise ModelRegistryError(
            "a model's name is 1 to 64 of a-z, 0-9, '.', '_' and '-'"
        )
    if name in RESERVED:
        raise ModelRegistryError(f"the name {name!r} is that of the embedded model")


def verified_size(entry: ModelEntry) -> int:
    """Return the file's size, if it is the file of the entry.

    Raises:
        ModelRegistryError: it has another digest, or cannot be read.
    """
    path = Path(entry.path)
    if not all(map(SHA256_HEX.fullmatch, filter(None, (entry.sha256, entry.base)))):
        raise ModelRegistryError("the SHA-256 is not 64 hex digits")
    try:
        with open_ordinary(path) as file:
            is_model = file.read(len(GGUF_MAGIC)) == GGUF_MAGIC
            file.seek(0)
            found, size = sha256_of(file), file.tell()
    except OSError as problem:
        raise ModelRegistryError(f"{path}: {problem.strerror}") from None
    if found != entry.sha256:
        raise ModelRegistryError(f"{path} has SHA-256 {found}, not {entry.sha256}")
    if not is_model:
        raise ModelRegistryError(f"{path} is not a GGUF file")
    return size


def sha256_of(file: BufferedReader | BufferedRandom) -> str:
    """Return the digest of a file from its current position, hex."""
    return hashlib.file_digest(file, "sha256").hexdigest()


def make_private(folder: Path) -> None:
    """Create a missing folder for its owner only.

    Raises:
        ModelRegistryError: it cannot be created.
    """
    try:
        make_private_folder(folder)
    except OSError as problem:
        raise ModelRegistryError(f"{folder}: {problem.strerror}") from None
