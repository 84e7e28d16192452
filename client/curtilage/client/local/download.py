"""The way to download a model: the only door to the Hub's library.

Nothing that answers queries calls this, and nothing of a query is known here. The
library is imported when somebody pulls, and nowhere else.
"""

import fcntl
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import BinaryIO, Final, Self, cast

from curtilage.client.errors import ClientError
from curtilage.client.files import open_private
from curtilage.client.local.registry import (
    SHA256_HEX,
    ModelEntry,
    ModelRegistryError,
    Registry,
    check_name,
    make_private,
    sha256_of,
    verified_size,
)
from curtilage.client.telemetry import UNREPORTED

REVISION: Final = re.compile(r"[0-9a-f]{40}")
"""A commit, never a branch or tag: those can be moved."""


Progress = Callable[[int, int | None], None]
"""Called with the bytes that are here and the bytes expected, if known."""


class ModelPullError(ClientError):
    """A download failed; what came so far is kept and goes on next time."""


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
        check_name(self.name)
        if REVISION.fullmatch(self.revision) is None:
            raise ModelRegistryError("the revision is not a commit of 40 hex digits")
        if SHA256_HEX.fullmatch(self.sha256) is None:
            raise ModelRegistryError("the SHA-256 is not 64 lower-case hex digits")

    @property
    def source(self) -> str:
        """Where the file comes from, in one line."""
        return f"{self.repo_id}@{self.revision}/{self.filename}"


def pull(
    registry: Registry,
    request: PullRequest,
    *,
    progress: Progress | None = None,
    endpoint: str | None = None,
) -> ModelEntry:
    """Download a pinned file, check its digest, register it.

    A download that breaks off leaves a file ``….partial``, and the
    next call goes on from there. The final name appears only after the
    digest matched. No credentials are sent.

    Args:
        registry: the models of the user.
        request: what to fetch.
        progress: called as bytes arrive.
        endpoint: the Hub's address; None is the library's own default.

    Raises:
        ModelPullError: the download broke off or was refused.
        ModelRegistryError: what came has another digest; it was deleted.
    """
    make_private(registry.folder)
    final = registry.folder / f"{request.sha256}.gguf"
    entry = ModelEntry(
        name=request.name,
        path=str(final.absolute()),
        sha256=request.sha256,
        size_bytes=0,
        source=request.source,
    )
    registry.refuse_taken(entry)
    if not final.exists():
        _fetch(request, final, progress or _silent, endpoint)
    entry = replace(entry, size_bytes=verified_size(entry))
    registry.register(entry)
    return entry


def _fetch(
    request: PullRequest,
    final: Path,
    progress: Progress,
    endpoint: str | None,
) -> None:
    partial = final.with_suffix(".partial")
    descriptor = open_private(partial, os.O_RDWR | os.O_CREAT)
    with os.fdopen(descriptor, "r+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ModelPullError("this file is being downloaded already") from None
        _download(request, file, progress, endpoint)
        # On the medium before it has its name, or a power cut would leave the name on
        # other bytes than were hashed. Hashed by the descriptor that was written.
        file.flush()
        os.fsync(file.fileno())
        file.seek(0)
        found = sha256_of(file)
        if found != request.sha256:
            partial.unlink()
            raise ModelRegistryError(
                f"the downloaded file has SHA-256 {found}, not {request.sha256};"
                " it was deleted"
            )
        partial.rename(final)


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
        # Here, since only a download needs it. It types some arguments as a
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
        # The digest decides; this only says sooner that it would be in vain.
        if metadata.commit_hash != request.revision:
            raise ModelPullError("the server answers with another revision")
        here = file.seek(0, os.SEEK_END)
        # More than the whole is no beginning of it.
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
