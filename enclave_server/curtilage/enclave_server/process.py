"""Process setup of the command: no core dumps, and checked standard streams.

Knows nothing of what is served; refuses to start if it could not report.
The relay has its own copy: the parties share no code.
"""

import argparse
import contextlib
import os
import sys
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Final, TextIO

DISTRIBUTION: Final = "curtilage"
UNKNOWN_VERSION: Final = "unknown"
UNIX: Final = "unix:"
"""The prefix of a socket's path."""


class OutputError(Exception):
    """Standard output or standard error cannot be written to."""


def forbid_core_dumps() -> None:
    """Let no crash write this process's memory, and so keys and questions, to disk."""
    if sys.platform != "win32":
        import resource  # noqa: PLC0415 - not on every system

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def restart_with(settings: Mapping[str, str]) -> None:
    """Start this program again, in this process, with settings in its environment.

    Where they are set already, it does nothing: some take effect only at the start.

    Raises:
        OSError: it cannot be started again.
    """
    if any(os.environ.get(name) != value for name, value in settings.items()):
        os.execve(sys.executable, sys.orig_argv, {**os.environ, **settings})  # noqa: S606, TID251 - a door: the same program


def version() -> str:
    """Return the distribution's version; an image may hold the bare files."""
    try:
        return metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return UNKNOWN_VERSION


def require_streams() -> None:
    """Refuse closed standard streams: sockets would get their numbers.

    What a library then writes to descriptor 2 would be sent to a peer.

    Raises:
        OutputError: one of them is closed.
    """
    streams: tuple[TextIO | None, ...] = (sys.stdout, sys.stderr)
    if None in streams:
        raise OutputError


def parse(
    parser: argparse.ArgumentParser, arguments: Sequence[str] | None
) -> argparse.Namespace:
    """Parse the arguments.

    Raises:
        OutputError: help, version or usage could not be written.
        SystemExit: they were.
    """
    try:
        return parser.parse_args(arguments)
    except OSError:
        # Older parsers do not report which of the two streams it was.
        for stream in (sys.stdout, sys.stderr):
            _discard(stream)
        raise OutputError from None
    except SystemExit:
        # The parser leaves its text in the buffer.
        for stream in (sys.stdout, sys.stderr):
            say(stream, "")
        raise


def say(stream: TextIO, text: str) -> None:
    """Write and flush.

    Raises:
        OutputError: the disk is full, or the reader has gone.
    """
    try:
        stream.write(text)
        stream.flush()
    except OSError:
        _discard(stream)
        raise OutputError from None


def out(line: str) -> None:
    """Write a line to standard output; see ``say``."""
    say(sys.stdout, line + "\n")


def notice(line: str) -> None:
    """Write a line to standard error; see ``say``."""
    say(sys.stderr, line + "\n")


def unix_path(text: str) -> Path:
    """Read ``unix:`` and an absolute path, as an argument's type.

    Raises:
        argparse.ArgumentTypeError: it is something else.
    """
    # Absolute: a relative path depends on the working directory.
    if not text.startswith(f"{UNIX}/"):
        raise argparse.ArgumentTypeError('must be "unix:" and an absolute path')
    return Path(text.removeprefix(UNIX))


def _discard(stream: TextIO) -> None:
    """Redirect what is still buffered to nowhere: the exit would try it again."""
    with contextlib.suppress(OSError):
        descriptor = os.open(os.devnull, os.O_WRONLY)
        os.dup2(descriptor, stream.fileno())
        os.close(descriptor)
