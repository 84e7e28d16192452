"""What is kept of this process's memory: by the allocator, by the kernel, on disks.

The allocator's settings are environment variables that must be in force before the
process begins, and may be ignored (``python -I``, another C library). So the allocator
itself is looked at.
"""

import ctypes  # noqa: TID251 - a door
import sys
from contextlib import suppress
from enum import StrEnum, unique
from pathlib import Path
from typing import Final

from curtilage.sandbox import kernel

_OBJECTS: Final = 2  # PYMEM_DOMAIN_OBJ
_RAW: Final = 0  # PYMEM_DOMAIN_RAW
_BLOCK: Final = 1000
"""A size that few others ask for, and that glibc would keep in a thread's cache."""
_BLOCKS: Final = 8
"""One more than such a cache holds."""
_LINKS: Final = 16
"""Of a freed block glibc uses as many bytes itself."""
_PATTERN: Final = 0x77


@unique
class Paging(StrEnum):
    """Whether memory can be written to a swap area."""

    LOCKED = "locked"
    NO_SWAP = "no_swap"
    POSSIBLE = "possible"


class _Allocator(ctypes.Structure):
    """``PyMemAllocatorEx`` of Python's C interface."""

    _fields_ = tuple(
        (name, ctypes.c_void_p)
        for name in ("ctx", "malloc", "calloc", "realloc", "free")
    )


def overwrites_freed() -> bool:
    """Whether freed memory is overwritten at once, in Python and in C.

    True for glibc with ``perturb`` and without a cache for each thread, if Python has
    no allocator of its own.
    """
    if sys.platform != "linux":
        return False
    objects, raw = _python_allocator(_OBJECTS), _python_allocator(_RAW)
    return objects == raw and all(map(_is_overwritten, _reused()))


def _python_allocator(domain: int) -> int | None:
    """Return the address of the function that allocates for Python."""
    found = _Allocator()
    ctypes.pythonapi.PyMem_GetAllocator(domain, ctypes.byref(found))
    address: int | None = found.malloc
    return address


def _reused() -> list[bytes]:
    """Allocate, fill and free some blocks; return what others of that size hold."""
    libc = ctypes.CDLL(None)
    malloc, free = libc.malloc, libc.free
    malloc.restype, malloc.argtypes = ctypes.c_void_p, (ctypes.c_size_t,)
    free.restype, free.argtypes = None, (ctypes.c_void_p,)
    filled = [malloc(_BLOCK) for _ in range(_BLOCKS)]
    for block in filled:
        ctypes.memset(block, _PATTERN, _BLOCK)
    for block in filled:
        free(block)
    blocks = [malloc(_BLOCK) for _ in range(_BLOCKS)]
    found = [ctypes.string_at(block, _BLOCK)[_LINKS:] for block in blocks]
    for block in blocks:
        free(block)
    return found


def _is_overwritten(block: bytes) -> bool:
    # With one value, which is not what was there, nor that of memory never used.
    return len(set(block)) == 1 and block[0] not in {0, _PATTERN}


def keep_from_disk(proc: Path = Path("/proc")) -> Paging:
    """Keep this process's memory from being swapped, now and later; return why it is.

    A process that it forks must lock its own memory.

    Args:
        proc: the kernel's files.
    """
    if sys.platform != "linux":
        return Paging.POSSIBLE
    # Also kept from being merged with equal pages of others, which would take them a
    # measurable time to change. Kernels before 6.4 merge nothing unasked.
    with suppress(OSError):
        kernel.forbid_merging()
    # With a limit, later allocations would fail.
    if _is_unlimited():
        with suppress(OSError):
            kernel.lock_memory()
            return Paging.LOCKED
    swaps = not (_has_no_swap(proc) or _may_not_swap(proc))
    return Paging.POSSIBLE if swaps else Paging.NO_SWAP


def forbid_tracing() -> None:
    """Let no process without privileges trace this one, and no crash dump it.

    Neither into a file nor into a program's pipe, for which the kernel ignores the
    limit of core files. Files of this process below ``/proc`` belong to root then.

    Raises:
        OSError: the kernel refuses.
        AttributeError: the system is not Linux.
    """
    if sys.platform != "linux":
        raise AttributeError("prctl")
    kernel.set_dumpable(dumpable=False)


def _is_unlimited() -> bool:
    import resource  # noqa: PLC0415 - not on every system

    # Not if CAP_IPC_LOCK lifts the limit: in a namespace of its own, which the wall may
    # be, a process does not have it any more.
    with suppress(OSError, ValueError):
        unlimited = resource.RLIM_INFINITY
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (unlimited, unlimited))
        return True
    return False


def _has_no_swap(proc: Path) -> bool:
    """Whether the kernel lists no swap area; without its list, there may be one."""
    with suppress(OSError):
        lines = (proc / "swaps").read_text("utf-8").splitlines()
        return len(lines) == 1 and lines[0].startswith("Filename")
    return False


def _may_not_swap(proc: Path) -> bool:
    """Whether this process's control group may use no swap (version 2)."""
    with suppress(OSError, StopIteration):
        groups = (proc / "self/cgroup").read_text("utf-8").splitlines()
        own = next(each for each in groups if each.startswith("0::/"))
        limit = Path("/sys/fs/cgroup", own.removeprefix("0::/"), "memory.swap.max")
        return limit.read_text("ascii").strip() == "0"
    return False
