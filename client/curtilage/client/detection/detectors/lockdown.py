"""Take from a process what detectors never need: network, programs, files.

An audit hook cannot be removed. It stops mistakes of libraries, such as a
first use that downloads; it is no sandbox against code that wants out.
"""

import os
import sys

_FORBIDDEN = (
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
# ``socket.gethostname`` tells nobody anything, and libraries ask at import.
_HARMLESS = frozenset({"socket.gethostname"})
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def refuse_network_and_files() -> None:
    """Make every later attempt to connect, to start or to write an error.

    For the rest of the process's life. File descriptors that are open stay.
    """
    sys.addaudithook(_refuse)


def _refuse(event: str, args: tuple[object, ...]) -> None:
    if event == "open":
        flags = args[2]
        if isinstance(flags, int) and flags & _WRITES:
            raise PermissionError("the detectors write no files")
    elif event.startswith(_FORBIDDEN) and event not in _HARMLESS:
        raise PermissionError("the detectors use no network and start no programs")
