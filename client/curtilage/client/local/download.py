"""The way to download a model: the only door to the Hub's library.

Nothing that answers queries calls this, and nothing of a query is known here. The
library is imported when somebody pulls, and nowhere else.
"""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import BinaryIO, Final, Self, cast

from curtilage.client.errors import ClientError
from curtilage.client.local.registry import (
    SHA256_HEX,
    ModelEntry,
    ModelRegistryError,
    Progress,
    Registry,
    check_name,
)
from curtilage.client.telemetry import UNREPORTED

REVISION: Final = re.compile(r"[0-9a-f]{40}")
"""A commit, never a branch or tag: those can be moved."""


Agree = Callable[[int | None], None]
"""Called once with the file's size, if it is known; raises to refuse."""


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
        size_bytes: its size, where that is known already.
    """

    name: str
    repo_id: str
    filename: str
    revision: str
    sha256: str
    size_bytes: int | None = None

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
    agree: Agree | None = None,
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
        agree: asked before anything is fetched; where the request names the size,
            before anything is asked of the network.
        progress: called as bytes arrive.
        endpoint: the Hub's address; None is the library's own default.

    Raises:
        ModelPullError: the download broke off or was refused.
        ModelArrivingError: another process fetches it.
        ModelRegistryError: what came has another digest (it was deleted), or
            there is no room for it.
    """

    def allow(size: int | None, here: int) -> None:
        if size is not None:
            registry.require_room(size - here)
        if agree is not None:
            agree(size)

    def fetch(file: BinaryIO) -> None:
        if request.size_bytes is not None:
            allow(request.size_bytes, file.seek(0, os.SEEK_END))
        _download(request, file, allow, progress or _silent, endpoint)

    return registry.receive(
        ModelEntry(
            name=request.name,
            path="",
            sha256=request.sha256,
            size_bytes=0,
            source=request.source,
        ),
        fetch,
    )


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
    request: PullRequest,
    file: BinaryIO,
    allow: Callable[[int | None, int], None],
    progress: Progress,
    endpoint: str | None,
) -> None:
    """Bring the file to its full length, going on where it ends.

    Args:
        request: what to fetch.
        file: what came so far.
        allow: called with the size and what is here, where the request does not
            name the size; raises to refuse.
        progress: called as bytes arrive.
        endpoint: as ``pull``.

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
        if request.size_bytes is None:
            allow(metadata.size, here)
        # What was agreed to is this size, and not more.
        elif metadata.size not in {None, request.size_bytes}:
            raise ModelPullError("the server has a file of another size")
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
            f"the download failed ({type(problem).__name__}); where no hub is reached, "
            f"bring the file: `curtilage models add {request.name} --from FILES`"
        ) from None


def _faults(hub: ModuleType) -> tuple[type[Exception], ...]:
    """Return what the Hub's library raises; its HTTP client changed once."""
    http = tuple(
        base
        for base in hub.errors.HfHubHTTPError.__mro__
        if issubclass(base, Exception) and base is not Exception
    )
    return (*http, OSError, ValueError)
