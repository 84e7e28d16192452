"""The system calls that build a sandbox: one function each, without decisions.

Only this module and ``memory`` load ``ctypes``. Every function raises OSError if the
kernel refuses, and AttributeError if the system is not Linux.
"""

import ctypes  # noqa: TID251 - a door
import errno
import os
import platform
from collections.abc import Sequence
from typing import Final

# linux/prctl.h, linux/seccomp.h, linux/sched.h, asm-generic/unistd.h
_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36
_PR_SET_MEMORY_MERGE: Final = 67
_PR_GET_DUMPABLE: Final = 3
_PR_SET_DUMPABLE: Final = 4
_SIGKILL: Final = 9
_PR_SET_NO_NEW_PRIVS: Final = 38
# sys/mman.h: pages of now and of later, locked when they are first used.
_MCL_CURRENT_FUTURE_ONFAULT: Final = 1 | 2 | 4
# sys/socket.h
_SOL_SOCKET: Final = 1
_SO_TYPE: Final = 3
_SO_DOMAIN: Final = 39
_ANY_ADDRESS: Final = 128  # struct sockaddr_storage
_SECCOMP_SET_MODE_FILTER: Final = 1
_SECCOMP_FILTER_FLAG_TSYNC: Final = 1
_SYS_SECCOMP: Final = {"x86_64": 317, "aarch64": 277}
# The same on every machine: Linux numbers newer calls alike.
_SYS_LANDLOCK_CREATE_RULESET: Final = 444
_SYS_LANDLOCK_ADD_RULE: Final = 445
_SYS_LANDLOCK_RESTRICT_SELF: Final = 446
_LANDLOCK_CREATE_RULESET_VERSION: Final = 1
_LANDLOCK_RULE_PATH_BENEATH: Final = 1
_SYS_PIVOT_ROOT: Final = {"x86_64": 155, "aarch64": 41}
CLONE_NEWNS: Final = 0x00020000
CLONE_NEWUSER: Final = 0x10000000
CLONE_NEWNET: Final = 0x40000000
# linux/mount.h
MS_RDONLY: Final = 1
MS_NOSUID: Final = 2
MS_REMOUNT: Final = 32
MS_BIND: Final = 4096
MS_REC: Final = 16384
MS_PRIVATE: Final = 1 << 18
MNT_DETACH: Final = 2


class _Program(ctypes.Structure):
    """``struct sock_fprog`` of linux/filter.h."""

    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p))


class _PathBeneath(ctypes.Structure):
    """``struct landlock_path_beneath_attr`` of linux/landlock.h."""

    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def _syscall(number: int, *arguments: object) -> int:
    # Variadic: without a width, a pointer or a length would be cut to 32 bits.
    wide = [
        ctypes.c_long(each) if isinstance(each, int) else each for each in arguments
    ]
    return _checked(_libc().syscall(ctypes.c_long(number), *wide))


def call(number: int, *arguments: int | bytes | None) -> int:
    """Make a system call by its number, as native code would; return its result.

    Args:
        number: on this machine.
        arguments: numbers; bytes, which the kernel may read and, up to their length,
            overwrite; None: a null pointer.

    Raises:
        OSError: the kernel refuses.
    """
    passed = [
        ctypes.create_string_buffer(each, len(each) + 1)
        if isinstance(each, bytes)
        else each
        for each in arguments
    ]
    return _syscall(number, *passed)


def set_dumpable(*, dumpable: bool) -> None:
    """Set whether a crash leaves a core file (PR_SET_DUMPABLE).

    Without it, only a privileged process reads this one's memory or traces it, and
    /proc/self belongs to root.
    """
    value = ctypes.c_ulong(dumpable)
    _checked(_libc().prctl(_PR_SET_DUMPABLE, value, *map(ctypes.c_ulong, (0, 0, 0))))


def is_dumpable() -> bool:
    """Return whether a crash leaves a core file (PR_GET_DUMPABLE)."""
    nothing = map(ctypes.c_ulong, (0, 0, 0, 0))
    return bool(_checked(_libc().prctl(_PR_GET_DUMPABLE, *nothing)))


def lock_memory() -> None:
    """Keep this process's memory from being swapped, now and later (mlockall(2)).

    A process that it forks does not inherit this.

    Raises:
        OSError: its limit is lower than its memory.
    """
    _checked(_libc().mlockall(_MCL_CURRENT_FUTURE_ONFAULT))


def socket_type(descriptor: int) -> int:
    """Return a socket's type, as ``socket.SOCK_STREAM`` (SO_TYPE).

    Raises:
        OSError: it is no socket.
    """
    return _socket_option(descriptor, _SO_TYPE)


def socket_family(descriptor: int) -> int:
    """Return a socket's family, as ``socket.AF_INET`` (SO_DOMAIN).

    Raises:
        OSError: it is no socket.
    """
    return _socket_option(descriptor, _SO_DOMAIN)


def is_connected(descriptor: int) -> bool:
    """Return whether a socket has another end (getpeername(2)).

    Raises:
        OSError: it is no socket.
    """
    address = ctypes.create_string_buffer(_ANY_ADDRESS)
    length = ctypes.c_uint(_ANY_ADDRESS)
    try:
        _checked(_libc().getpeername(descriptor, address, ctypes.byref(length)))
    except OSError as error:
        if error.errno != errno.ENOTCONN:
            raise
        return False
    return True


def _socket_option(descriptor: int, option: int) -> int:
    found, length = ctypes.c_int(), ctypes.c_uint(ctypes.sizeof(ctypes.c_int))
    _checked(
        _libc().getsockopt(
            descriptor,
            _SOL_SOCKET,
            option,
            ctypes.byref(found),
            ctypes.byref(length),
        )
    )
    return found.value


def no_new_privileges() -> None:
    """Let no executed program gain privileges (PR_SET_NO_NEW_PRIVS)."""
    _checked(_libc().prctl(_PR_SET_NO_NEW_PRIVS, *map(ctypes.c_ulong, (1, 0, 0, 0))))


def end_with_parent() -> None:
    """Have the kernel kill this process when its parent ends (PR_SET_PDEATHSIG)."""
    _checked(
        _libc().prctl(_PR_SET_PDEATHSIG, *map(ctypes.c_ulong, (_SIGKILL, 0, 0, 0)))
    )


def forbid_merging() -> None:
    """Have no page of this process merged with an equal one (PR_SET_MEMORY_MERGE)."""
    _checked(_libc().prctl(_PR_SET_MEMORY_MERGE, *map(ctypes.c_ulong, (0, 0, 0, 0))))


def adopt_orphans() -> None:
    """Become the parent of descendants whose own ends (PR_SET_CHILD_SUBREAPER)."""
    _checked(_libc().prctl(_PR_SET_CHILD_SUBREAPER, *map(ctypes.c_ulong, (1, 0, 0, 0))))


def unshare(flags: int) -> None:
    """Enter new namespaces (unshare(2)); a user namespace needs a single thread."""
    _checked(_libc().unshare(flags))


def mount(source: str, target: str, kind: str, flags: int, options: str) -> None:
    """Mount a file system, or change a mount (mount(2)).

    Raises:
        OSError: the kernel refuses.
    """
    texts = [os.fsencode(each) for each in (source, target, kind)]
    length = ctypes.c_ulong(flags)
    _checked(_libc().mount(*texts, length, os.fsencode(options)))


def umount(target: str, flags: int) -> None:
    """Remove a mount (umount2(2)).

    Raises:
        OSError: the kernel refuses.
    """
    _checked(_libc().umount2(os.fsencode(target), flags))


def pivot_root(new: str, old: str) -> None:
    """Make ``new`` the root folder, and put the old one at ``old`` (pivot_root(2)).

    Raises:
        OSError: the kernel refuses.
        KeyError: the machine's call numbers are unknown.
    """
    number = _SYS_PIVOT_ROOT[platform.machine()]
    _syscall(number, os.fsencode(new), os.fsencode(old))


def seccomp_filter(program: bytes, machine: str) -> None:
    """Put all threads of this process under a filter (seccomp(2)), permanently.

    Args:
        program: instructions of 8 bytes, classic BPF.
        machine: as ``platform.machine()`` names it.

    Raises:
        OSError: the kernel supports no filters, or a thread has another one.
        KeyError: the machine's call numbers are unknown.
    """
    instructions = ctypes.create_string_buffer(program, len(program))
    filter_ = _Program(len(program) // 8, ctypes.addressof(instructions))
    # All threads (TSYNC): else one that a library has started would be outside. The
    # kernel returns the number of a thread that cannot follow.
    stuck = _syscall(
        _SYS_SECCOMP[machine],
        _SECCOMP_SET_MODE_FILTER,
        _SECCOMP_FILTER_FLAG_TSYNC,
        ctypes.byref(filter_),
    )
    if stuck:
        raise OSError(0, "a thread has another filter")


def landlock_version() -> int:
    """Return the kernel's Landlock ABI version (landlock(7)): 1 or more.

    Raises:
        OSError: it has none, or it is disabled.
    """
    version = _LANDLOCK_CREATE_RULESET_VERSION
    return _syscall(_SYS_LANDLOCK_CREATE_RULESET, None, 0, version)


def landlock(handled: bytes, allowed: Sequence[tuple[str, int]]) -> None:
    """Restrict this thread, and all that it starts, to a ruleset, permanently.

    Args:
        handled: ``struct landlock_ruleset_attr``: the rights refused from now on.
        allowed: paths that exist, each with the rights that remain below it.

    Raises:
        OSError: the kernel refuses, or a path does not exist.
    """
    ruleset = _syscall(_SYS_LANDLOCK_CREATE_RULESET, handled, len(handled), 0)
    try:
        for path, rights in allowed:
            _allow(ruleset, path, rights)
        _syscall(_SYS_LANDLOCK_RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:
    parent = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        rule = ctypes.byref(_PathBeneath(rights, parent))
        _syscall(_SYS_LANDLOCK_ADD_RULE, ruleset, _LANDLOCK_RULE_PATH_BENEATH, rule, 0)
    finally:
        os.close(parent)
