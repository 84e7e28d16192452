"""Process setup of the command: no core dumps, and checked standard streams.

Knows nothing of what is served; refuses to start if it could not report.
The enclave server has its own copy: the parties share no code.
"""

import argparse
import contextlib
import os
import sys
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Final, TextIO

from curtilage.relay.errors import ConfigError

DISTRIBUTION: Final = "curtilage"
UNKNOWN_VERSION: Final = "unknown"
EXIT_CONFIG: Final = 2
SPARE_DESCRIPTORS: Final = 128
"""For all descriptors that are not our connections, and those being refused."""


class OutputError(Exception):
    """Standard output or standard error cannot be written to."""


def forbid_core_dumps() -> None:
    """Let no crash write this process's memory, and so clients' addresses, to disk."""
    if sys.platform != "win32":
        import resource  # noqa: PLC0415 - not on every system

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def allow_descriptors(count: int) -> None:
    """Raise the limit of open files for so many connections, as far as allowed."""
    if sys.platform != "win32":
        import resource  # noqa: PLC0415 - not on every system

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft < count + SPARE_DESCRIPTORS:
            wanted = min(count + SPARE_DESCRIPTORS, hard)
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))


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


def make_parser(prog: str, description: str, epilog: str) -> argparse.ArgumentParser:
    """Return a command's parser, without options; its texts are not reformatted."""
    return argparse.ArgumentParser(
        prog=prog,
        description=description,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


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


def read_config_file(path: str) -> str:
    """Return the text of the file that ``--config`` names.

    Raises:
        ConfigError: it cannot be read, or is not UTF-8.
    """
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--config {path}: {error}") from None


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


def _discard(stream: TextIO) -> None:
    """Redirect what is still buffered to nowhere: the exit would try it again."""
    with contextlib.suppress(OSError):
        descriptor = os.open(os.devnull, os.O_WRONLY)
        os.dup2(descriptor, stream.fileno())
        os.close(descriptor)


def write_config(
    parser: argparse.ArgumentParser,
    arguments: Sequence[str],
    folder: Path,
    text_of: Callable[[argparse.Namespace], str],
) -> int:
    """Parse the options and write the configuration; return the exit code.

    Args:
        parser: has the command's own options and texts.
        arguments: the command line.
        folder: the default of --folder.
        text_of: makes the configuration from the options.

    Raises:
        OutputError: a standard stream cannot be written to.
    """
    parser.add_argument(
        "--config", metavar="FILE", required=True, help="what to generate it from"
    )
    parser.add_argument(
        "--folder",
        metavar="FOLDER",
        type=Path,
        default=folder,
        help="where the program keeps its pid, its socket or copies of keys; best on a "
        f"tmpfs, and it must exist (default: {folder})",
    )
    try:
        text = text_of(parse(parser, arguments))
    except ConfigError as error:
        for problem in error.problems:
            say(sys.stderr, f"{parser.prog}: {problem}\n")
        return EXIT_CONFIG
    say(sys.stdout, text)
    return 0
