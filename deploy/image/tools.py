"""Runs the pinned tools: zstd, and ukify with the stub of its own systemd.

They are unpacked from the lock file's packages, so that a build does not depend on the
machine's versions. zstd runs under the pinned C library's own loader, which needs
neither root nor a chroot; ukify is Python.
"""

import os
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from deploy.image.debs import read_package
from deploy.image.errors import FormatError, ImageError

LIBRARIES: Final = "usr/lib/x86_64-linux-gnu"
LOADER: Final = "usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2"
STUB: Final = "usr/lib/systemd/boot/efi/linuxx64.efi.stub"
ZSTD_LEVEL: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class UKIParts:
    """The parts of a unified kernel image."""

    kernel: Path
    initrd: Path
    command_line: str
    os_release: str
    release: str


class Tools:
    """The tools, unpacked into a folder.

    Args:
        folder: an empty one.
        packages: the files of the packages to unpack.
        epoch: SOURCE_DATE_EPOCH, in seconds.
    """

    def __init__(self, folder: Path, packages: Iterable[Path], *, epoch: int) -> None:
        self._folder = folder
        self._environment = {
            "PATH": os.environ.get("PATH", ""),
            "LC_ALL": "C",
            "TZ": "UTC",
            "SOURCE_DATE_EPOCH": str(epoch),
        }
        for package in packages:
            self._unpack(package)

    def compress(self, source: Path, target: Path) -> None:
        """Compress with one thread: the number of threads affects the result."""
        command = [str(self._folder / LOADER)]
        command += ["--library-path", str(self._folder / LIBRARIES)]
        command += [str(self._folder / "usr/bin/zstd"), "--quiet", "--force", "-T1"]
        command += [f"-{ZSTD_LEVEL}", "--no-progress", "-o", str(target), str(source)]
        self._run("zstd", command, self._environment)

    def make_uki(self, parts: UKIParts, target: Path) -> None:
        """Join kernel, initrd, command line and names into one EFI program."""
        modules = self._folder / "usr/lib/python3/dist-packages"
        command = [
            sys.executable,
            "-s",
            "-B",
            "-P",
            str(self._folder / "usr/bin/ukify"),
        ]
        command += ["build", f"--linux={parts.kernel}", f"--initrd={parts.initrd}"]
        command += [f"--cmdline={parts.command_line}", f"--uname={parts.release}"]
        command += [f"--os-release={parts.os_release}"]
        command += [f"--stub={self._folder / STUB}", "--efi-arch=x64"]
        command += ["--config=/dev/null", f"--output={target}"]
        environment = self._environment | {"PYTHONPATH": str(modules)}
        self._run("ukify", command, environment)

    def _unpack(self, package: Path) -> None:
        for member, content in read_package(package):
            parts = PurePosixPath(member.name).parts
            if ".." in parts or member.name.startswith("/"):
                raise FormatError(f"{package.name}: a path that leads out")
            parts = parts[1:] if parts[:1] == (".",) else parts
            name = "/".join(("usr", *parts) if parts[:1] == ("lib",) else parts)
            target = self._folder / name
            if member.isfile():
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content)
                target.chmod(0o755 if member.mode & 0o111 else 0o644)
            elif member.issym() and not member.linkname.startswith("/"):
                target.parent.mkdir(parents=True, exist_ok=True)
                target.unlink(missing_ok=True)
                target.symlink_to(member.linkname)

    def _run(self, name: str, command: list[str], environment: dict[str, str]) -> None:
        done = subprocess.run(  # noqa: S603 - every argument is ours
            command, env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise ImageError(f"{name} failed:\n{(done.stdout + done.stderr)[-800:]}")
