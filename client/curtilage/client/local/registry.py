"""The models this user named: a small registry, and the way to download one.

A model is a file and its SHA-256; nothing is registered or used without. The
registry is one JSON file in the user's data directory, written beside and then
renamed. Downloading is done by ``pull`` alone, which nobody calls who answers
queries; the Hub's own library is imported there and nowhere else.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import re
import secrets
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from io import BufferedRandom, BufferedReader
from pathlib import Path
from types import ModuleType
from typing import BinaryIO, Final, Self, cast

from curtilage.client.errors import ClientError, ConfigError
from curtilage.client.telemetry import UNREPORTED

NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
SHA256_HEX: Final = re.compile(r"[0-9a-f]{64}")
REVISION: Final = re.compile(r"[0-9a-f]{40}")
"""A commit, never a branch or tag: those can be moved."""

RESERVED: Final = frozenset({"default"})
"""The embedded model's name; it is not in the registry."""

FORMAT_VERSION: Final = 1
MAX_REGISTRY_BYTES: Final = 1 << 20
CHUNK_BYTES: Final = 1 << 20

Progress = Callable[[int, int | None], None]
"""Told the bytes that are here and the bytes expected, if known."""


GGUF_MAGIC: Final = b"GGUF"


class ModelRegistryError(ConfigError):
    """The registry, a name in it, or a file it names is wrong."""


class ModelPullError(ClientError):
    """A download failed; what came so far is kept and goes on next time."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class PullRequest:
    """A file of the Hub, pinned.

    Attributes:
        name: the name it gets here.
        repo_id: ``owner/name`` of the repository.
        filename: path of the GGUF file in it.
        revision: the commit, 40 hex digits.
        sha256: the file's digest, 64 hex digits.
    """

    name: str
    repo_id: str
    filename: str
    revision: str
    sha256: str

    def __post_init__(self) -> None:
        """Refuse what is not pinned."""
        _check_name(self.name)
        if REVISION.fullmatch(self.revision) is None:
            raise ModelRegistryError("the revision is not a commit of 40 hex digits")
        if SHA256_HEX.fullmatch(self.sha256) is None:
            raise ModelRegistryError("the SHA-256 is not 64 lower-case hex digits")

    @property
    def source(self) -> str:
        """Where the file comes from, in one line."""
        return f"{self.repo_id}@{self.revision}/{self.filename}"


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
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._file = root / "models.json"
        self._folder = root / "models"

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
        _check_name(name)
        entry = ModelEntry(
            name=name, path=str(path.absolute()), sha256=sha256.lower(), size_bytes=0
        )
        entry = replace(entry, size_bytes=_verified_size(entry))
        self._register(entry)
        return entry

    def verify(self, name: str) -> ModelEntry:
        """Hash a registered model's file again.

        Raises:
            ModelRegistryError: the file is gone or is another one now.
        """
        entry = self.get(name)
        if _verified_size(entry) != entry.size_bytes:
            raise ModelRegistryError(f"the registry names a wrong size for {name!r}")
        return entry

    def pull(
        self,
        request: PullRequest,
        *,
        progress: Progress | None = None,
        endpoint: str | None = None,
    ) -> ModelEntry:
        """Download a pinned file, check its digest, register it.

        A download that breaks off leaves a file beside, ``….partial``, and the
        next call goes on from there. The final name appears only after the
        digest matched. No credentials are sent.

        Args:
            request: what to fetch.
            progress: called as bytes arrive.
            endpoint: the Hub's address; None is the library's own default.

        Raises:
            ModelPullError: the download broke off or was refused.
            ModelRegistryError: what came has another digest; it was deleted.
        """
        _make_private(self._folder)
        final = self._folder / f"{request.sha256}.gguf"
        entry = ModelEntry(
            name=request.name,
            path=str(final.absolute()),
            sha256=request.sha256,
            size_bytes=0,
            source=request.source,
        )
        self._refuse_taken(entry)
        if not final.exists():
            self._fetch(request, final, progress or _silent, endpoint)
        entry = replace(entry, size_bytes=_verified_size(entry))
        self._register(entry)
        return entry

    def _fetch(
        self,
        request: PullRequest,
        final: Path,
        progress: Progress,
        endpoint: str | None,
    ) -> None:
        partial = final.with_suffix(".partial")
        descriptor = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "r+b") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise ModelPullError("this file is being downloaded already") from None
            _download(request, file, progress, endpoint)
            file.flush()
            os.fsync(file.fileno())
            file.seek(0)
            found = _digest(file)
            if found != request.sha256:
                partial.unlink()
                raise ModelRegistryError(
                    f"the downloaded file has SHA-256 {found}, not {request.sha256};"
                    " it was deleted"
                )
            partial.rename(final)

    def _refuse_taken(self, entry: ModelEntry) -> None:
        for other in self.entries():
            if other.name == entry.name and other.sha256 != entry.sha256:
                raise ModelRegistryError(
                    f"the name {entry.name!r} stands for another file already"
                )

    def _register(self, entry: ModelEntry) -> None:
        _make_private(self._root)
        with _locked(self._root / "models.lock"):
            self._refuse_taken(entry)
            others = [other for other in self.entries() if other.name != entry.name]
            self._write([*others, entry])

    def _write(self, entries: Sequence[ModelEntry]) -> None:
        document = {
            "version": FORMAT_VERSION,
            "models": [asdict(entry) for entry in entries],
        }
        beside = self._root / f"models.json.{secrets.token_hex(8)}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            with os.fdopen(os.open(beside, flags, 0o600), "wb") as file:
                file.write(json.dumps(document, indent=2).encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
            beside.replace(self._file)
        finally:
            beside.unlink(missing_ok=True)

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


def _check_name(name: str) -> None:
    if NAME.fullmatch(name) is None:
        raise ModelRegistryError(
            "a model's name is 1 to 64 of a-z, 0-9, '.', '_' and '-'"
        )
    if name in RESERVED:
        raise ModelRegistryError(f"the name {name!r} stands for the embedded model")


def _verified_size(entry: ModelEntry) -> int:
    """Return the file's size, if it is the file that the entry names."""
    path = Path(entry.path)
    if SHA256_HEX.fullmatch(entry.sha256) is None:
        raise ModelRegistryError("the SHA-256 is not 64 hex digits")
    try:
        with path.open("rb") as file:
            is_model = file.read(len(GGUF_MAGIC)) == GGUF_MAGIC
            file.seek(0)
            found, size = _digest(file), file.tell()
    except OSError as problem:
        raise ModelRegistryError(f"{path}: {problem.strerror}") from None
    if found != entry.sha256:
        raise ModelRegistryError(f"{path} has SHA-256 {found}, not {entry.sha256}")
    if not is_model:
        raise ModelRegistryError(f"{path} is no GGUF file")
    return size


def _digest(file: BufferedReader | BufferedRandom) -> str:
    return hashlib.file_digest(file, "sha256").hexdigest()


def _make_private(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as problem:
        raise ModelRegistryError(f"{folder}: {problem.strerror}") from None


@contextlib.contextmanager
def _locked(path: Path) -> Generator[None]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


# Downloading: the Hub's library, and a file that tells how far it is.


def _silent(_done: int, _total: int | None) -> None:
    """Report nothing."""


class _NoBar:
    """Stands where the library would draw its own progress bar."""

    def __init__(self, *_args: object, **_settings: object) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_problem: object) -> None:
        pass

    def update(self, _count: float) -> None:
        """Take a step and show nothing."""


class _CountedFile:
    """The partial file, as the library writes it; reports after each write."""

    def __init__(self, file: BinaryIO, total: int | None, progress: Progress) -> None:
        self._file = file
        self._total = total
        self._progress = progress

    def write(self, data: bytes) -> int:
        written = self._file.write(data)
        if self._total is not None and self._file.tell() > self._total:
            raise ModelPullError("the server sends more than the file's size")
        self._progress(self._file.tell(), self._total)
        return written

    def seek(self, offset: int) -> int:
        return self._file.seek(offset)

    def tell(self) -> int:
        return self._file.tell()

    def truncate(self) -> int:
        return self._file.truncate()


def _download(
    request: PullRequest, file: BinaryIO, progress: Progress, endpoint: str | None
) -> None:
    """Bring the file to its full length, going on where it ends.

    Raises:
        ModelPullError: the Hub refuses, or the connection broke.
    """
    try:
        # Here, since only whoever pulls needs it. It types some arguments as a
        # bare ``dict``; those are not used. Untold, it names to the hub what runs
        # it and what else is installed.
        os.environ.update(UNREPORTED)
        import huggingface_hub as hub  # noqa: PLC0415
        from huggingface_hub.file_download import (  # noqa: PLC0415
            http_get,  # pyright: ignore[reportUnknownVariableType]
        )
    except ModuleNotFoundError:
        raise ModelPullError(
            "downloading models needs the extra 'models' (huggingface_hub)"
        ) from None
    try:
        url = hub.hf_hub_url(
            request.repo_id,
            request.filename,
            revision=request.revision,
            endpoint=endpoint,
        )
        # False: never send credentials that lie about on this machine.
        metadata = hub.get_hf_file_metadata(  # pyright: ignore[reportUnknownMemberType]
            url, token=False, endpoint=endpoint
        )
        if metadata.commit_hash != request.revision:
            raise ModelPullError("the server answers with another revision")
        here = file.seek(0, os.SEEK_END)
        if metadata.size is not None and here > metadata.size:
            here = file.seek(0)
            file.truncate()
        progress(here, metadata.size)
        http_get(
            metadata.location,
            cast("BinaryIO", _CountedFile(file, metadata.size, progress)),
            resume_size=here,
            headers={"Accept-Encoding": "identity"},
            expected_size=metadata.size,
            displayed_filename=request.name,
            tqdm_class=cast("type", _NoBar),
        )
    except _faults(hub) as problem:
        raise ModelPullError(
            f"the download failed ({type(problem).__name__})"
        ) from None


def _faults(hub: ModuleType) -> tuple[type[Exception], ...]:
    """Return what the Hub's library raises; its HTTP client changed once."""
    http = tuple(
        base
        for base in hub.errors.HfHubHTTPError.__mro__
        if issubclass(base, Exception) and base is not Exception
    )
    return (*http, OSError, ValueError)
