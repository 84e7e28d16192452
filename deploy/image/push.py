"""Sends public files to a running guest; the counterpart of ``guest/door.py``.

The files are signed by others and public, and the guest verifies them. So this side
needs no key, and sending other files can only delay a start.
"""

import re
import socket
import time
from pathlib import Path
from typing import Final

from deploy.image.errors import ImageError

FOLDERS: Final = ("release", "endorsements")
TIMEOUT_S: Final = 30.0
PAUSE_S: Final = 1.0
_TCP: Final = re.compile(r"tcp:([0-9.]+):([0-9]{1,5})")
_VSOCK: Final = re.compile(r"vsock:([0-9]{1,10}):([0-9]{1,10})")


def push_folder(address: str, folder: Path) -> list[str]:
    """Send every file below ``release`` and ``endorsements``; return their names.

    Raises:
        ImageError: there is none, the guest refused one, or it does not answer.
    """
    paths = [
        path
        for name in FOLDERS
        for path in sorted((folder / name).glob("*"))
        if path.is_file()
    ]
    if not paths:
        raise ImageError(f"{folder} has no files in {' or '.join(FOLDERS)}")
    names = [f"{path.parent.name}/{path.name}" for path in paths]
    for name, path in zip(names, paths, strict=True):
        push(address, name, path.read_bytes())
    return names


def push(address: str, name: str, content: bytes) -> None:
    """Send one file.

    Raises:
        ImageError: the guest refused it.
        OSError: the guest does not answer, or disconnects first.
    """
    head = bytes([len(name)]) + name.encode("ascii")
    with connect(address) as door:
        door.sendall(head + len(content).to_bytes(4) + content)
        answer = door.recv(1)
    if not answer:
        raise ConnectionError("the guest hung up")
    if answer != b"\0":
        raise ImageError(f"the guest refused {name}")


def connect(address: str) -> socket.socket:
    """Connect to ``tcp:HOST:PORT`` or ``vsock:CID:PORT``.

    Raises:
        ImageError: neither of the two.
        OSError: there is no answer.
    """
    if (found := _TCP.fullmatch(address)) is not None:
        return socket.create_connection((found[1], int(found[2])), TIMEOUT_S)
    if (found := _VSOCK.fullmatch(address)) is not None:
        door = socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)
        door.settimeout(TIMEOUT_S)
        door.connect((int(found[1]), int(found[2])))
        return door
    raise ImageError("an address is tcp:HOST:PORT or vsock:CID:PORT")


def push_when_ready(address: str, folder: Path, *, timeout_s: float) -> list[str]:
    """Send every file as soon as the guest's door is open.

    Raises:
        ImageError: a file was refused, or the door stayed closed.
    """
    until = time.monotonic() + timeout_s
    while True:
        try:
            return push_folder(address, folder)
        except OSError:
            if time.monotonic() > until:
                raise ImageError(f"no answer from {address}") from None
        time.sleep(PAUSE_S)
