"""The models this user named: a small registry.

A model is a file and its SHA-256; nothing is registered or used without. The
registry is one JSON file in the user's data directory, replaced in one step.
"""

import fcntl
import hashlib
import json
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from io import BufferedRandom, BufferedReader
from pathlib import Path
from typing import BinaryIO, Final, cast

from curtilage.client.errors import ClientError, ConfigError
from curtilage.client.files import (
    locked,
    make_private_folder,
    open_ordinary,
    open_private,
    write_private_atomically,
)
from curtilage.client.local.machine import free_room

NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
SHA256_HEX: Final = re.compile(r"[0-9a-f]{64}")
RESERVED: Final = frozenset({"default"})
"""The embedded model's name; it is not in the registry."""

FORMAT_VERSION: Final = 1
MAX_REGISTRY_BYTES: Final = 1 << 20
CHUNK_BYTES: Final = 1 << 20


GGUF_MAGIC: Final = b"GGUF"


Progress = Callable[[int, int | None], None]
"""Called with the bytes that are here and the bytes expected, if known."""


class ModelRegistryError(ConfigError):
    """The registry, a name in it, or a file it names is wrong."""


class NoRoomError(ModelRegistryError):
    """The disk has less room than the file needs."""


class ModelArrivingError(ClientError):
    """Another process brings the same file already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEntry:
    """One registered model.

    Attributes:
        name: lower-case letters, digits, ``.``, ``_`` and ``-``.
        path: the GGUF file, absolute.
        sha256: its digest, hex.
        size_bytes: its size when it was registered.
        source: where it was downloaded from; empty if it was added.
        base: of a LoRA adapter, the digest of the model's file that it was made for,
            and on which alone it is loaded; else empty.
    """

    name: str
    path: str
    sha256: str
    size_bytes: int
    source: str = ""
    base: str = ""


def data_directory(environ: Mapping[str, str], home: Path) -> Path:
    """Return the user's data directory for this program (XDG).

    Args:
        environ: the process's environment.
        home: the user's home directory.
    """
    # The specification: a relative path is to be ignored.
    named = Path(environ.get("XDG_DATA_HOME", ""))
    base = named if named.is_absolute() else home / ".local" / "share"
    return base / "curtilage"


class Registry:
    """The models of one user.

    Args:
        root: the data directory; made, for its owner alone, when first written.

    Attributes:
        folder: where downloaded files lie.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._file = root / "models.json"
        self.folder = root / "models"

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
        return tuple(sorted(self._parse(document), key=lambda entry: entry.name))

    def get(self, name: str) -> ModelEntry:
        """Return one model; its file is not looked at.

        Raises:
            ModelRegistryError: there is none of that name.
        """
        for entry in self.entries():
            if entry.name == name:
                return entry
        raise ModelRegistryError(
            f"no model is registered under the name {name!r}: `curtilage models list` "
            "shows those that are, `curtilage models recommend` what can be fetched"
        )

    def find(self, sha256: str, *, base: str = "") -> ModelEntry | None:
        """Return a registered file by its digest, whatever it is called, or None.

        Args:
            sha256: of the file, hex.
            base: of an adapter, as ``ModelEntry`` has it.
        """
        for entry in self.entries():
            if (entry.sha256, entry.base) == (sha256, base):
                return entry
        return None

    def add(self, name: str, path: Path, sha256: str, *, base: str = "") -> ModelEntry:
        """Register a file that is here already, if it has the named digest.

        Args:
            name: what it is called from now on.
            path: the file, which stays where it is.
            sha256: its digest, hex.
            base: of an adapter, as ``ModelEntry`` has it.

        Raises:
            ModelRegistryError: name or digest is wrong, or the name is taken
                by another file.
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
            ModelRegistryError: the file is gone or is another one now.
        """
        entry = self.get(name)
        if verified_size(entry) != entry.size_bytes:
            raise ModelRegistryError(f"the registry names a wrong size for {name!r}")
        return entry

    def receive(
        self, entry: ModelEntry, write: Callable[[BinaryIO], None]
    ) -> ModelEntry:
        """Take a file in, check its digest, register it.

        It has its final name only once the digest matched; until then it is
        ``{sha256}.partial``, which stays where writing broke off. A file that is
        here already is not written again.

        Args:
            entry: its name, digest and source; path and size are filled in.
            write: brings the partial file, open for reading and writing at its
                beginning, to its full length.

        Raises:
            ModelRegistryError: the name stands for another file, or what came has
                another digest; it was deleted.
            ModelArrivingError: another process brings it.
            OSError: it cannot be written.
        """
        check_name(entry.name)
        # It becomes a file's name.
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
        descriptor = open_private(partial, os.O_RDWR | os.O_CREAT)
        with os.fdopen(descriptor, "r+b") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise ModelArrivingError(
                    "another process brings this file already"
                ) from None
            write(file)
            # On the medium before it has its name, or a power cut would leave the
            # name on other bytes than were hashed. Hashed by the descriptor that was
            # written.
            file.flush()
            os.fsync(file.fileno())
            file.seek(0)
            found = sha256_of(file)
            if found != sha256:
                partial.unlink()
                raise ModelRegistryError(
                    f"the file that came has SHA-256 {found}, not {sha256}; it was"
                    " deleted"
                )
            partial.rename(final)

    def require_room(self, size_bytes: int) -> None:
        """Refuse a file before any of it is written, where the disk cannot hold it.

        Raises:
            NoRoomError: it cannot; that the system does not tell is no reason.
        """
        room = free_room(self.folder)
        if room is not None and size_bytes > room:
            raise NoRoomError(
                f"the file needs {size_bytes >> 20} MiB, and {self.folder} has room "
                f"for {room >> 20} MiB"
            )

    def refuse_taken(self, entry: ModelEntry) -> None:
        """Refuse a name that stands for another file.

        Raises:
            ModelRegistryError: it does.
        """
        for other in self.entries():
            named = other.name == entry.name
            if named and (other.sha256, other.base) != (entry.sha256, entry.base):
                raise ModelRegistryError(
                    f"the name {entry.name!r} stands for another file already"
                )

    def register(self, entry: ModelEntry) -> None:
        """Write down a model whose file was verified.

        Raises:
            ModelRegistryError: its name stands for another file.
        """
        make_private(self._root)
        # Asked again under the lock: another process may have taken the name since.
        with locked(self._root / "models.lock", math.inf):
            self.refuse_taken(entry)
            others = [other for other in self.entries() if other.name != entry.name]
            document = {
                "version": FORMAT_VERSION,
                # What is no adapter is written as ever, so that an older version of
                # this program can read it.
                "models": [
                    {key: value for key, value in asdict(each).items() if key != "base"}
                    | ({"base": each.base} if each.base else {})
                    for each in (*others, entry)
                ],
            }
            with write_private_atomically(self._file) as file:
                file.write(json.dumps(document, indent=2).encode() + b"\n")

    def _parse(self, document: object) -> Iterator[ModelEntry]:
        try:
            members = cast("Mapping[str, object]", document)
            if members["version"] != FORMAT_VERSION:
                raise ModelRegistryError(f"{self._file} has an unknown version")
            for item in cast("Sequence[Mapping[str, object]]", members["models"]):
                yield _entry(item)
        except (KeyError, TypeError, ValueError):
            raise ModelRegistryError(f"{self._file} is damaged") from None


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
    """Refuse what no model may be called.

    Raises:
        ModelRegistryError: another character, or the embedded model's name.
    """
    if NAME.fullmatch(name) is None:
        raise ModelRegistryError(
            "a model's name is 1 to 64 of a-z, 0-9, '.', '_' and '-'"
        )
    if name in RESERVED:
        raise ModelRegistryError(f"the name {name!r} stands for the embedded model")


def verified_size(entry: ModelEntry) -> int:
    """Return the file's size, if it is the file that the entry names.

    Raises:
        ModelRegistryError: it is another one, or cannot be read.
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
        raise ModelRegistryError(f"{path} is no GGUF file")
    return size


def sha256_of(file: BufferedReader | BufferedRandom) -> str:
    """Return the digest of a file from where it stands, hex."""
    return hashlib.file_digest(file, "sha256").hexdigest()


def make_private(folder: Path) -> None:
    """Make a folder for its owner alone, where it is missing.

    Raises:
        ModelRegistryError: it cannot be made.
    """
    try:
        make_private_folder(folder)
    except OSError as problem:
        raise ModelRegistryError(f"{folder}: {problem.strerror}") from None
