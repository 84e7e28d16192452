"""The models this user named: a small registry.

A model is a file and its SHA-256; nothing is registered or used without. The
registry is one JSON file in the user's data directory, replaced in one step.
"""

import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from io import BufferedRandom, BufferedReader
from pathlib import Path
from typing import Final, cast

from curtilage.client.errors import ConfigError
from curtilage.client.files import locked, write_private_atomically

NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
SHA256_HEX: Final = re.compile(r"[0-9a-f]{64}")
RESERVED: Final = frozenset({"default"})
"""The embedded model's name; it is not in the registry."""

FORMAT_VERSION: Final = 1
MAX_REGISTRY_BYTES: Final = 1 << 20
CHUNK_BYTES: Final = 1 << 20


GGUF_MAGIC: Final = b"GGUF"


class ModelRegistryError(ConfigError):
    """The registry, a name in it, or a file it names is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEntry:
    """One registered model.

    Attributes:
        name: lower-case letters, digits, ``.``, ``_`` and ``-``.
        path: the GGUF file, absolute.
        sha256: its digest, hex.
        size_bytes: its size when it was registered.
        source: where it was downloaded from; empty if it was added.
    """

    name: str
    path: str
    sha256: str
    size_bytes: int
    source: str = ""


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
        raise ModelRegistryError(f"no model is registered under the name {name!r}")

    def add(self, name: str, path: Path, sha256: str) -> ModelEntry:
        """Register a file that is here already, if it has the named digest.

        Raises:
            ModelRegistryError: name or digest is wrong, or the name is taken
                by another file.
        """
        check_name(name)
        entry = ModelEntry(
            name=name, path=str(path.absolute()), sha256=sha256.lower(), size_bytes=0
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

    def refuse_taken(self, entry: ModelEntry) -> None:
        """Refuse a name that stands for another file.

        Raises:
            ModelRegistryError: it does.
        """
        for other in self.entries():
            if other.name == entry.name and other.sha256 != entry.sha256:
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
                "models": [asdict(each) for each in (*others, entry)],
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
    texts = {key: item[key] for key in ("name", "path", "sha256", "source")}
    size = item["size_bytes"]
    if not all(isinstance(text, str) for text in texts.values()):
        raise TypeError
    if not isinstance(size, int) or len(item) != len(texts) + 1:
        raise TypeError
    entry = ModelEntry(size_bytes=size, **cast("dict[str, str]", texts))
    if not (NAME.fullmatch(entry.name) and SHA256_HEX.fullmatch(entry.sha256)):
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
    if SHA256_HEX.fullmatch(entry.sha256) is None:
        raise ModelRegistryError("the SHA-256 is not 64 hex digits")
    try:
        with path.open("rb") as file:
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
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as problem:
        raise ModelRegistryError(f"{folder}: {problem.strerror}") from None
