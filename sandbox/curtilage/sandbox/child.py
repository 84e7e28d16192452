"""How a confined process begins, on its own side: streams, core files, Python's hook.

The kernel's walls are in ``wall``.
"""

import os
import sys
from typing import IO, Final

_FORBIDDEN: Final = (
    "socket.",
    "subprocess.",
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "os.spawn",
    "os.startfile",
    "os.fork",
    "pty.",
    "urllib.",
    "http.",
    "ftplib.",
    "smtplib.",
    "imaplib.",
    "webbrowser.",
    "tempfile.",
    "os.mkdir",
    "os.rename",
    "os.remove",
    "shutil.",
    "sqlite3.",
)
# ``socket.gethostname`` discloses nothing, and libraries call it on import.
_HARMLESS: Final = frozenset({"socket.gethostname"})
_WRITES: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def take_streams() -> tuple[IO[bytes], IO[bytes]]:
    """Keep the two pipes; anything that is printed from now on is discarded."""
    requests = os.fdopen(os.dup(0), "rb", buffering=0)
    replies = os.fdopen(os.dup(1), "wb", buffering=0)
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nothing, standard)
    os.close(nothing)
    return requests, replies


def forbid_core_dumps() -> None:
    """Let no crash write this process's memory, and so texts, to disk."""
    if sys.platform != "win32":
        import resource  # noqa: PLC0415 - not on every system

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def refuse_network_and_files(*, forks: bool = False) -> None:
    """Make every later attempt to connect, to start a program or to write a file fail.

    For the rest of the process's life: an audit hook cannot be removed. Open file
    descriptors are kept. This stops mistakes of libraries, such as a download at first
    use. It is not a sandbox against malicious code.

    Args:
        forks: whether the process may still fork.
    """
    sys.addaudithook(_refuse_all_but_forks if forks else _refuse)


def _refuse_all_but_forks(event: str, args: tuple[object, ...]) -> None:
    if event != "os.fork":
        _refuse(event, args)


def _refuse(event: str, args: tuple[object, ...]) -> None:
    if event == "open":
        flags = args[2]
        if isinstance(flags, int) and flags & _WRITES:
            raise PermissionError("this process must not write files")
    elif event.startswith(_FORBIDDEN) and event not in _HARMLESS:
        raise PermissionError("this process must not use the network or start programs")
