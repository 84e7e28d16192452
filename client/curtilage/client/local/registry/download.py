"""Downloads models: the only module that uses the Hub's library.

No code that answers queries calls it, and it knows nothing about queries. The library
is imported only when a user downloads a model.
"""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from types import ModuleType
from typing import Any, BinaryIO, Final, Self

from curtilage.client.errors import ClientError
from curtilage.client.local.registry.store import (
    SHA256_HEX,
    ModelEntry,
    ModelRegistryError,
    Progress,
    Registry,
    check_name,
)
from curtilage.client.telemetry import UNREPORTED

TOO_MUCH: Final = "the server sends more than the file's size"
REVISION: Final = re.compile(r"[0-9a-f]{40}")
"""A commit, never a branch or tag: those can be moved."""


Agree = Callable[[int | None], None]
"""Called once with the file's size, if known; raises to refuse."""


class NotAgreedError(ClientError):
    """The user was asked, and declined the download."""


class ModelPullError(ClientError):
    """A download failed; the partial file is kept and will be resumed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PullRequest:
    """A file on the Hub, pinned.

    Attributes:
        name: its name here.
        repo_id: ``owner/name`` of the repository.
        filename: path of the GGUF file in it.
        revision: the commit, 40 hex digits.
        sha256: the file's digest, 64 hex digits.
        size_bytes: its size, if already known.
    """

    name: str
    repo_id: str
    filename: str
    revision: str
    sha256: str
    size_bytes: int | None = None

    def __post_init__(self) -> None:
        """Refuse a request that is not pinned."""
        check_name(self.name)
        if REVISION.fullmatch(self.revision) is None:
            raise ModelRegistryError("the revision is not a commit of 40 hex digits")
        if SHA256_HEX.fullmatch(self.sha256) is None:
            raise ModelRegistryError("the SHA-256 is not 64 lower-case hex digits")

    @property
    def source(self) -> str:
        """The source of the file, in one line."""
        return f"{self.repo_id}@{self.revision}/{self.filename}"


def can_pull() -> bool:
    """Return whether the Hub's library is installed."""
    return find_spec("huggingface_hub") is not None


def pull(
    registry: Registry,
    request: PullRequest,
    *,
    agree: Agree | None = None,
    progress: Progress | None = None,
    endpoint: str | None = None,
) -> ModelEntry:
    """Download a pinned file, check its digest, register it.

    An interrupted download leaves a file ``….partial``, and the next call resumes it.
    The file gets its final name only after the digest matched. No credentials are
    sent.

    Args:
        registry: the models of the user.
        request: the file to download.
        agree: asked before the download; if the request has the size, before
            any network access.
        progress: called as bytes arrive.
        endpoint: the Hub's address; None: the library's default.

    Raises:
        ModelPullError: the download was interrupted or refused.
        NotAgreedError: ``agree`` refused.
        ModelArrivingError: another process downloads it.
        ModelRegistryError: the file has another digest (it was deleted), or
            there is no space for it.
    """

    def allow(size: int | None, here: int) -> None:
        if size is not None:
            registry.require_room(size - here)
        if agree is not None:
            agree(size)

    def fetch(file: BinaryIO) -> None:
        if request.size_bytes is not None:
            allow(request.size_bytes, file.seek(0, os.SEEK_END))
        _download(
            request, file, allow, progress or (lambda _done, _total: None), endpoint
        )

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


class _Bar:
    """Replaces the library's progress bar; reports, and limits the size.

    Attributes:
        report: called with the bytes present and the size.
        size: of the file that was agreed to; None: unknown. What the server says
            afterwards does not count.
    """

    report: Progress
    size: int | None

    def __init__(self, *, initial: int, **_settings: object) -> None:
        self._here = initial

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_problem: object) -> None:
        pass

    def update(self, count: int) -> None:
        """Count a piece, before it is written."""
        self._here += count
        if self.size is not None and self._here > self.size:
            raise ModelPullError(TOO_MUCH)
        self.report(self._here, self.size)


def _download(
    request: PullRequest,
    file: BinaryIO,
    allow: Callable[[int | None, int], None],
    progress: Progress,
    endpoint: str | None,
) -> None:
    """Complete the partial file, starting at its end.

    Args:
        request: the file to download.
        file: the partial file.
        allow: called with the size and the bytes present, if the request does
            not have the size; raises to refuse.
        progress: called as bytes arrive.
        endpoint: as ``pull``.

    Raises:
        ModelPullError: the Hub refused, or the connection was lost.
    """
    try:
        # Imported here, since only a download needs it. It types some arguments as a
        # bare ``dict``; those are not used. By default it reports the runtime and other
        # installed packages to the hub.
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
        # False: never send credentials stored on this machine.
        metadata = hub.get_hf_file_metadata(  # pyright: ignore[reportUnknownMemberType]
            url, token=False, endpoint=endpoint
        )
        # The digest decides; this only fails earlier.
        if metadata.commit_hash != request.revision:
            raise ModelPullError("the server answers with another revision")
        here = file.seek(0, os.SEEK_END)
        # A partial file longer than the whole cannot be its beginning.
        if metadata.size is not None and here > metadata.size:
            here = file.seek(0)
            file.truncate()
        if request.size_bytes is None:
            allow(metadata.size, here)
        # The user agreed to this size, and not to more.
        elif metadata.size not in {None, request.size_bytes}:
            raise ModelPullError("the server has a file of another size")
        progress(here, metadata.size)
        fields = {"report": staticmethod(progress), "size": metadata.size}
        bar: Any = type("Bar", (_Bar,), fields)
        http_get(
            metadata.location,
            file,
            resume_size=here,
            headers={"Accept-Encoding": "identity"},
            expected_size=metadata.size,
            displayed_filename=request.name,
            tqdm_class=bar,
        )
    except _faults(hub) as problem:
        raise ModelPullError(
            f"the download failed ({type(problem).__name__}); without access to a hub, "
            f"bring the file: `curtilage models add {request.name} --from FILES`"
        ) from None


def _faults(hub: ModuleType) -> tuple[type[Exception], ...]:
    """Return the Hub library's exceptions; its HTTP client changed once."""
    http = tuple(
        base
        for base in hub.errors.HfHubHTTPError.__mro__
        if issubclass(base, Exception) and base is not Exception
    )
    return (*http, OSError, ValueError)
