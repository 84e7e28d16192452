"""A root folder that contains only what a process reads.

A path lookup sends the path's text to the server of the file system: over the network
for NFS, to another process for FUSE and automounters. Neither Landlock nor seccomp sees
that. So the process gets a mount namespace whose root is an empty tmpfs, with the
folders that it needs bound into it, read-only.
"""

import os
import stat
import sys
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from curtilage.sandbox import kernel

SYSTEM: Final = (
    # Libraries that are loaded later, and the loader's search paths.
    *("/lib", "/lib32", "/lib64", "/usr/lib", "/usr/lib32", "/usr/lib64"),
    *("/usr/local/lib", "/nix/store", "/gnu/store"),
    *("/etc/ld.so.cache", "/etc/alternatives", "/etc/localtime"),
    # What libraries read about processor and memory. Of /proc only single files,
    # because /proc/PID/root is the root folder of another process.
    *("/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/sys/devices/system/cpu"),
    *("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom"),
)
"""Folders and files of the system that remain visible, where they exist."""

_GPUS: Final = (
    *("nvidia[0-9]*", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-caps/*"),
    *("dri/renderD*", "kfd"),
)
# What drivers' libraries read about the machine's GPUs.
_OF_GPUS: Final = (
    *("/proc/driver/nvidia/params", "/proc/driver/nvidia/version", "/proc/devices"),
    *("/sys/bus/pci/devices", "/sys/class/drm", "/sys/class/kfd", "/sys/dev/char"),
    *("/sys/module/nvidia", "/sys/module/nvidia_uvm", "/sys/module/amdgpu"),
    *("/etc/vulkan", "/usr/share/vulkan", "/usr/share/libdrm", "/opt/rocm/lib"),
)

_SCRATCH: Final = ("/tmp", "/mnt", "/var", "/usr")  # noqa: S108 - only mounted over
_TMPFS: Final = "size=1m,nr_inodes=4k,mode=0755"
# nosuid, nodev, noexec: the same bits in sys/statvfs.h and linux/mount.h.
_KEPT_FLAGS: Final = 2 | 4 | 8


@dataclass(frozen=True, slots=True)
class _Source:
    """A bind source, held open while the mounts change; ``path`` is its target."""

    path: Path
    descriptor: int

    @property
    def name(self) -> str:
        return f"/proc/self/fd/{self.descriptor}"


def of_python() -> tuple[Path, ...]:
    """Return the folders from which this interpreter loads modules and libraries."""
    prefixes = {sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix}
    libraries = os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)
    # The empty entry is the current folder, which no library needs.
    found = [Path(each) for each in (*sys.path, *libraries) if each]
    found += [Path(each, "lib") for each in prefixes]
    return tuple(each.absolute() for each in found)


def gpus(root: Path = Path("/")) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """Return the devices of GPUs, and what their drivers' libraries read."""
    devices = [each for name in _GPUS for each in sorted((root / "dev").glob(name))]
    buses = sorted((root / "sys/devices").glob("pci*"))
    return tuple(devices), (*map(Path, _OF_GPUS), *buses)


def enter(reads: Sequence[Path]) -> None:
    """Make a root folder of ``SYSTEM``, Python's folders and ``reads``, and enter it.

    The process must be in a mount namespace that it may change. Open files remain
    open. A mount inside a folder is visible only if it is listed as well.

    Raises:
        OSError: the kernel refuses; the process keeps its root folder.
        KeyError: the machine's call numbers are unknown; the same.
    """
    # Mounts do not propagate in either direction: mounts made here must not reach the
    # machine's namespace, and an automounter there must not reach this one.
    kernel.mount("none", "/", "", kernel.MS_REC | kernel.MS_PRIVATE, "")
    named = [*map(Path, SYSTEM), *of_python(), *(each.absolute() for each in reads)]
    # Under the given and the resolved name: libraries refer to each other by both.
    wanted = {*named, *(each.resolve() for each in named)}
    root = next((each for each in _SCRATCH if Path(each).is_dir()), "/")
    with ExitStack() as opened:
        sources = list(_opened(wanted, opened))
        kernel.mount("tmpfs", root, "tmpfs", kernel.MS_NOSUID, _TMPFS)
        try:
            for source in sources:
                _bind(source, Path(root))
            kernel.mount("none", root, "", _read_only(root), "")
            os.chdir(root)
            # Both names are the same folder: the old root is mounted over the new one
            # and then removed. After that only open files lead out.
            kernel.pivot_root(".", ".")
        except (OSError, KeyError):
            os.chdir("/")
            kernel.umount(root, kernel.MNT_DETACH)
            raise
        kernel.umount(".", kernel.MNT_DETACH)
        os.chdir("/")


def _opened(wanted: Iterable[Path], opened: ExitStack) -> Iterable[_Source]:
    # By length: a folder comes before the mounts inside it.
    for path in sorted(wanted, key=lambda each: (len(each.parts), each)):
        try:
            descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue  # not on this machine, or not readable anyway
        opened.callback(os.close, descriptor)
        yield _Source(path, descriptor)


def _bind(source: _Source, root: Path) -> None:
    at = root / source.path.relative_to("/")
    given = os.fstat(source.descriptor)
    there = at.exists()
    if there and os.path.samestat(at.stat(), given):
        return  # it is inside a folder that is bound already
    if not there:
        at.parent.mkdir(parents=True, exist_ok=True)
        if stat.S_ISDIR(given.st_mode):
            at.mkdir()
        else:
            at.touch()
    # Not recursive: other mounts below it are not wanted here.
    kernel.mount(source.name, str(at), "", kernel.MS_BIND, "")
    kernel.mount("none", str(at), "", _read_only(str(at)), "")


def _read_only(path: str) -> int:
    # Flags that another user namespace set must not be removed.
    kept = os.statvfs(path).f_flag & _KEPT_FLAGS
    flags = kernel.MS_REMOUNT | kernel.MS_BIND | kernel.MS_RDONLY | kernel.MS_NOSUID
    return flags | kept
