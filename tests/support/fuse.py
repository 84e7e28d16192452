"""A file server of our own: it notes what is looked up, and has nothing.

A stand-in for NFS and automounters, which serve paths the same way. Speaks as much of
the kernel's protocol (linux/fuse.h) as one folder without entries needs.
"""

import ctypes
import os
import struct
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

DEVICE = Path("/dev/fuse")
_LOOKUP, _FORGET, _GETATTR, _INIT = 1, 2, 3, 26
_NO_ENTRY, _NO_CALL = -2, -38
_DETACH = 2
_HEAD = struct.Struct("<IIQQ")
_ANSWER = struct.Struct("<IiQ")


@contextmanager
def file_server(folder: Path) -> Generator[list[str]]:
    """Serve a folder; yield the names that were looked up in it so far."""
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        device = os.open(DEVICE, os.O_RDWR)
    except OSError as missing:
        pytest.skip(f"SKIPPED LOUDLY: no file server here: {missing.strerror}")
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0"
    if libc.mount(b"test", os.fsencode(folder), b"fuse", 0, options.encode()):
        os.close(device)
        pytest.skip("SKIPPED LOUDLY: no file server may be mounted here")
    seen: list[str] = []
    thread = threading.Thread(target=_serve, args=(device, seen), daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        libc.umount2(os.fsencode(folder), _DETACH)
        thread.join(timeout=10)
        os.close(device)


def _serve(device: int, seen: list[str]) -> None:
    while True:
        try:
            request = os.read(device, 1 << 17)
        except OSError:
            return  # it is no longer mounted
        _, call, number, _ = _HEAD.unpack_from(request)
        error, answer = 0, b""
        if call == _INIT:
            answer = struct.pack("<IIIIHHII", 7, 31, 0, 0, 0, 0, 4096, 0) + bytes(32)
        elif call == _GETATTR:
            # Valid for 0 s; then a folder, inode 1, mode 0755.
            times = bytes(16) + struct.pack("<Q", 1) + bytes(52)
            answer = times + struct.pack("<IIIIIII", 0o40755, 2, 0, 0, 0, 4096, 0)
        elif call == _LOOKUP:
            seen.append(request[40:].rstrip(b"\0").decode())
            error = _NO_ENTRY
        elif call == _FORGET:
            continue
        else:
            error = _NO_CALL
        head = _ANSWER.pack(_ANSWER.size + len(answer), error, number)
        os.write(device, head + answer)
