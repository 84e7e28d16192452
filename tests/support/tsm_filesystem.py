# ruff: noqa: ARG002 - the library fixes the arguments of every call
"""configfs-tsm on FUSE: the kernel's interface as files, behind a real kernel.

``python -m support.tsm_filesystem MOUNTPOINT``: serves ``FakeTsm`` over an
emulated SEV-SNP platform until it is unmounted. Only for the one test that wants
real system calls.
"""

import errno
import os
import stat
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime

import mfusepy  # type: ignore[import-untyped]

from curtilage_dev.deployment import MEASUREMENT
from curtilage_dev.emulated.snp_pki import (
    EmulatedPlatform,
    generate_root_keys,
    make_platform,
)
from support.enclave_devices import FakeTsm

READ = frozenset({"outblob", "auxblob", "provider", "generation"})
WRITE = frozenset({"inblob", "privlevel"})
"""The attributes that a root process may only read, or only write."""
MOST_BYTES = 1 << 20


class TsmFilesystem(mfusepy.Operations):  # type: ignore[misc]
    """Answers the kernel's questions about ``FakeTsm``."""

    use_ns = True

    def __init__(self, tsm: FakeTsm) -> None:
        self._tsm = tsm

    def getattr(self, path: str, fh: int | None = None) -> dict[str, int]:
        parts = _parts(path)
        now = time.time_ns()
        common = {
            "st_mtime": now,
            "st_ctime": now,
            "st_atime": now,
            "st_uid": os.getuid(),
            "st_gid": os.getgid(),
        }
        if len(parts) < 2 and (not parts or parts[0] in self._tsm.entries):
            return {"st_mode": stat.S_IFDIR | 0o755, "st_nlink": 2, **common}
        if (
            len(parts) == 2
            and parts[0] in self._tsm.entries
            and parts[1] in READ | WRITE
        ):
            mode = 0o444 if parts[1] in READ else 0o200
            return {
                "st_mode": stat.S_IFREG | mode,
                "st_nlink": 1,
                "st_size": 4096,
                **common,
            }
        raise mfusepy.FuseOSError(errno.ENOENT)

    def readdir(self, path: str, fh: int) -> list[str]:
        inside = sorted(READ | WRITE) if _parts(path) else list(self._tsm.entries)
        return [".", "..", *inside]

    def mkdir(self, path: str, mode: int) -> int:
        self._tsm.make(*_parts(path))
        return 0

    def rmdir(self, path: str) -> int:
        self._tsm.remove(*_parts(path))
        return 0

    def open(self, path: str, flags: int) -> int:
        writes = flags & (os.O_WRONLY | os.O_RDWR)
        if bool(writes) != (_parts(path)[1] in WRITE):
            raise mfusepy.FuseOSError(errno.EACCES)
        return 0

    def truncate(self, path: str, length: int, fh: int | None = None) -> int:
        return 0

    def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
        entry, attribute = _parts(path)
        data = self._tsm.read(entry, attribute, MOST_BYTES)
        return data[offset : offset + size]

    def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
        entry, attribute = _parts(path)
        if offset or not 1 <= len(data) <= 64:
            raise mfusepy.FuseOSError(errno.EINVAL)
        return self._tsm.write(entry, attribute, data)


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part]


def serve(mountpoint: str) -> None:
    """Mount and serve until it is unmounted."""
    platform = make_platform(generate_root_keys(), now=datetime.now(UTC))

    def sign(report_data: bytes, level: int) -> bytes:
        return _signed(platform, report_data, level)

    mfusepy.FUSE(
        TsmFilesystem(FakeTsm(sign=sign)),
        mountpoint,
        foreground=True,
        nothreads=True,
        direct_io=True,
    )


def _signed(platform: EmulatedPlatform, report_data: bytes, level: int) -> bytes:
    fields = platform.report_fields(report_data=report_data, measurement=MEASUREMENT)
    return platform.evidence(replace(fields, vmpl=level), now=datetime.now(UTC)).report


if __name__ == "__main__":
    serve(sys.argv[1])
