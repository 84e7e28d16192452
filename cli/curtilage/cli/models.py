"""``curtilage models``: the local models of this user."""

import argparse
import os
import sys
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from time import monotonic

from curtilage.cli.terminal import (
    COULD_NOT,
    DONE,
    err,
    err_again,
    out,
    out_json,
)
from curtilage.client.errors import ClientError
from curtilage.client.local.download import PullRequest, pull
from curtilage.client.local.model import DEFAULT_NAME, resolve, verify_choice
from curtilage.client.local.registry import (
    ModelEntry,
    Registry,
    data_directory,
)

MEBIBYTE = 1024 * 1024
TOLD_EVERY_S = 0.5


def registry() -> Registry:
    """Open the registry of this user."""
    return Registry(data_directory(os.environ, Path.home()))


def run_list(arguments: argparse.Namespace) -> int:
    """List the models."""
    entries = [*registry().entries()]
    with suppress(ClientError):  # the package that holds it may not be installed
        entries.insert(0, _embedded())
    if arguments.json:
        out_json([asdict(entry) for entry in entries])
        return DONE
    if not entries:
        err("no model is here; in a source checkout `make setup` installs one")
    for entry in entries:
        out(
            f"{entry.name:<16} {entry.size_bytes / MEBIBYTE:9.1f} MiB  "
            f"sha256:{entry.sha256[:16]}…  {entry.source or entry.path}"
        )
    return DONE


def run_add(arguments: argparse.Namespace) -> int:
    """Register a file."""
    entry = registry().add(arguments.name, arguments.file, arguments.sha256)
    out(f"{entry.name}: {entry.size_bytes} bytes, sha256:{entry.sha256}")
    return DONE


def run_pull(arguments: argparse.Namespace) -> int:
    """Download a file; show how far it is."""
    request = PullRequest(
        name=arguments.name,
        repo_id=arguments.repo,
        filename=arguments.file,
        revision=arguments.revision,
        sha256=arguments.sha256,
    )
    bar = _Bar(request.filename)
    entry = pull(registry(), request, progress=bar, endpoint=arguments.endpoint)
    bar.end()
    out(f"{entry.name}: {entry.size_bytes} bytes, sha256:{entry.sha256}")
    return DONE


def run_verify(arguments: argparse.Namespace) -> int:
    """Hash models again; exit 3 where one differs."""
    known = registry()
    names = arguments.names or [DEFAULT_NAME, *(e.name for e in known.entries())]
    failed = False
    for name in names:
        try:
            if name == DEFAULT_NAME:
                entry = _embedded(verify=True)
            else:
                entry = known.verify(name)
        except ClientError as error:
            err(f"{name}: {error}")
            failed = True
        else:
            out(f"{name}: ok, sha256:{entry.sha256}")
    return COULD_NOT if failed else DONE


def _embedded(*, verify: bool = False) -> ModelEntry:
    """Return the embedded model, hashed again where that is asked for.

    Raises:
        ClientError: its package is not installed, or holds another file.
    """
    choice = resolve(None, registry=registry())
    if verify:
        verify_choice(choice)
    return ModelEntry(
        name=DEFAULT_NAME,
        path=str(choice.path),
        sha256=choice.sha256,
        size_bytes=choice.path.stat().st_size,
        source=f"embedded ({choice.model_id})",
    )


class _Bar:
    """A line that shows how much came, for a person."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._told = 0.0
        self._shown = sys.stderr.isatty()

    def __call__(self, done: int, total: int | None) -> None:
        """Show it, twice a second at most."""
        if not self._shown or monotonic() - self._told < TOLD_EVERY_S:
            return
        self._told = monotonic()
        share = f" of {total / MEBIBYTE:.1f}" if total else ""
        percent = f" ({100 * done // total} %)" if total else ""
        err_again(f"{self._title}: {done / MEBIBYTE:.1f}{share} MiB{percent}")

    def end(self) -> None:
        """End the line."""
        if self._told:
            err("")
