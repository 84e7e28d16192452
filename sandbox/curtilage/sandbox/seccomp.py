"""Seccomp filters: the system calls that a process may make. Pure.

A program is classic BPF over ``struct seccomp_data`` (linux/seccomp.h): the call's
number, the machine, and six arguments of 64 bits. A refused call returns an error and
the process continues; a call with the numbers of another machine ends the process,
since its numbers mean other calls.
"""

import errno
import struct
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final

from curtilage.sandbox.syscalls import (
    FORKING,
    HARMLESS,
    ON_SOCKETS,
    WAYS_OUT,
    numbers,
)

# linux/bpf_common.h, linux/seccomp.h, linux/audit.h
_LOAD: Final = 0x20
_EQUAL: Final = 0x15
_AT_LEAST: Final = 0x35
_MASK: Final = 0x54
_ANY_BIT: Final = 0x45
_RETURN: Final = 0x06
_ALLOW: Final = 0x7FFF0000
_ERROR: Final = 0x00050000
_KILL: Final = 0x80000000
_NUMBER_AT: Final = 0
_MACHINE_AT: Final = 4
_ARGUMENTS_AT: Final = 16
_MACHINE: Final = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32: Final = 0x40000000  # the same machine, but other numbers
OWN: Final = 0x7FFFFFFF  # more than any id: the kernel's largest has 22 bits
"""Stands for a process's own id, in a program that is the same for each process."""
_NEWER_FROM: Final = 424  # since Linux 5.1 all machines number new calls alike

# asm-generic/fcntl.h: O_WRONLY, O_RDWR, O_CREAT, O_TRUNC, O_APPEND, and O_TMPFILE's
# own bit. O_CREAT counts: it leaves an empty file whose name may contain data.
_WRITES: Final = 0o1 | 0o2 | 0o100 | 0o1000 | 0o2000 | 0o20000000
_CLONE_THREAD: Final = 0x10000
_AF_UNIX: Final = 1
# asm-generic/ioctls.h: both put characters into a terminal's input, which the shell
# would execute after us.
_TIOCSTI: Final = 0x5412
_TIOCLINUX: Final = 0x541C


@dataclass(frozen=True, slots=True, kw_only=True)
class Only:
    """Calls that are allowed with some arguments only; the low 32 bits are tested.

    Attributes:
        argument: its index, from 0.
        test: ``_EQUAL`` or ``_ANY_BIT``.
        values: to test with, one after the other.
        allowed: whether arguments that meet a test are allowed, or refused.
        error: the result of a refused call.
        kinds: kinds of ioctl requests, bits 8 to 15, that are allowed as well.
        zero: the index of an argument that must be 0; -1: none must.
        null: the index of a pointer that must be null, whatever else holds; likewise.
    """

    argument: int
    test: int
    values: tuple[int, ...]
    allowed: bool
    error: int = errno.EPERM
    kinds: tuple[int, ...] = ()
    zero: int = -1
    null: int = -1


OPENS: Final = {
    "open": Only(
        argument=1, test=_ANY_BIT, values=(_WRITES,), allowed=False, error=errno.EACCES
    ),
    "openat": Only(
        argument=2, test=_ANY_BIT, values=(_WRITES,), allowed=False, error=errno.EACCES
    ),
}
"""Files are opened for reading only."""

THREADS: Final = {
    "clone": Only(argument=0, test=_ANY_BIT, values=(_CLONE_THREAD,), allowed=True)
}
"""New threads, but no new processes."""

# linux/sched.h: CLONE_NEW*, CLONE_PTRACE, _VFORK, _PARENT, _UNTRACED.
_TSYNC: Final = 1  # SECCOMP_FILTER_FLAG_TSYNC
_NOT_FORKED: Final = 0x7E020000 | 0x2000 | 0x4000 | 0x8000 | 0x800000

FORKS: Final = {
    "clone": Only(argument=0, test=_ANY_BIT, values=(_NOT_FORKED,), allowed=False),
    # Its flags: a filter for all threads, as we load one, and nothing else of seccomp.
    "seccomp": Only(argument=1, test=_EQUAL, values=(_TSYNC,), allowed=True),
}
"""New threads and forked processes, none in a namespace of its own; further filters."""

TERMINALS: Final = {
    "ioctl": Only(argument=1, test=_EQUAL, values=(_TIOCSTI, _TIOCLINUX), allowed=False)
}
"""No characters are put into a terminal's input."""

# Not O_RDWR and O_WRONLY: which file may be opened so, Landlock decides. The rest
# would make or change a file, which no device needs.
_CREATES: Final = _WRITES & ~0o3

DEVICE_OPENS: Final = {
    name: replace(only, values=(_CREATES,)) for name, only in OPENS.items()
}
"""Files may be opened for writing, but none is made, emptied or appended to."""

# asm-generic/ioctls.h, asm-generic/fcntl.h, linux/socket.h: what libraries query about
# an open file. All other requests may change it even if it was opened for reading: for
# example flags of its inode, which remain on the disk (FS_IOC_SETFLAGS).
_ASKED: Final = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451, 0x802C542A)
_CALLERS_OWN: Final = 0

HARMLESS_CONTROLS: Final = {
    "ioctl": Only(argument=1, test=_EQUAL, values=_ASKED, allowed=True)
}
"""TCGETS, TIOCGWINSZ, FIONREAD, FIONBIO, FIONCLEX, FIOCLEX, TCGETS2."""

# NVIDIA's nv-ioctl-numbers.h and uvm_ioctl.h (its requests have no kind), drm/drm.h,
# linux/kfd_ioctl.h. Not those of files ('f', 'X'), of terminals ('T'), of sockets.
_GPU_KINDS: Final = (ord("F"), 0, ord("d"), ord("K"))

DEVICE_CONTROLS: Final = {
    name: replace(only, kinds=_GPU_KINDS) for name, only in HARMLESS_CONTROLS.items()
}
"""``HARMLESS_CONTROLS``, and the requests of GPU drivers."""

# asm-generic/fcntl.h, linux/fcntl.h: copies of a descriptor, its flags, and queries.
# Not here: locks of any kind, which all accounts can read in /proc/locks; leases and
# notifications, which other programs notice; signals of the caller's choice; hints,
# which the file keeps.
_DUPLICATES: Final = (0, 1030)  # F_DUPFD, F_DUPFD_CLOEXEC
_FLAGS: Final = (1, 2, 3, 4)  # F_GETFD, F_SETFD, F_GETFL, F_SETFL
_QUESTIONS: Final = (1032, 1034)  # F_GETPIPE_SZ, F_GET_SEALS

DESCRIPTORS: Final = {
    "fcntl": Only(
        argument=1,
        test=_EQUAL,
        values=(*_DUPLICATES, *_FLAGS, *_QUESTIONS),
        allowed=True,
    )
}
"""Descriptors of its own, and no mark on a file that other programs can see."""

# linux/prctl.h. PR_SET_NAME is not here: the name, 15 bytes, is in /proc for every
# account. A library that names its threads gets an error, and continues without.
_PROCESS_QUESTIONS: Final = (
    *(2, 3, 16, 21, 23),  # GET_PDEATHSIG, _DUMPABLE, _NAME, _SECCOMP, CAPBSET_READ
    *(30, 39, 42, 51, 56),  # GET_TIMERSLACK, _NO_NEW_PRIVS, _THP_DISABLE, SVE, TAGGED
)

NO_NAMES: Final = {
    "prctl": Only(argument=0, test=_EQUAL, values=_PROCESS_QUESTIONS, allowed=True)
}
"""It queries itself, and changes nothing that other programs can see."""


_FORKED: Final = (1, 38)  # PR_SET_PDEATHSIG, PR_SET_NO_NEW_PRIVS

FURTHER: Final = {
    name: replace(only, values=(*only.values, *_FORKED))
    for name, only in NO_NAMES.items()
}
"""``NO_NAMES``, and what a forked process does before it has a further filter."""


def own_process(pid: int) -> dict[str, Only]:
    """Return conditions that restrict signals, limits and priorities to this process.

    Priorities only to the calling thread: argument 0 chooses threads, groups or users.
    """
    own = (_CALLERS_OWN, pid)
    return {
        "tgkill": Only(argument=0, test=_EQUAL, values=(pid,), allowed=True),
        # Its limits are read, and not changed: a privileged process could raise them.
        "prlimit64": Only(
            argument=0, test=_EQUAL, values=own, allowed=True, zero=2, null=2
        ),
        "sched_setaffinity": Only(argument=0, test=_EQUAL, values=own, allowed=True),
        "setpriority": Only(
            argument=1, test=_EQUAL, values=(_CALLERS_OWN,), allowed=True, zero=0
        ),
    }


NO_ADDRESSES: Final = {
    "sendto": Only(argument=4, test=_EQUAL, values=(0,), allowed=True, null=4)
}
"""Data goes to the other end of a connection. ``sendmsg`` has its address behind a
pointer, which a filter cannot read: no socket must exist that accepts one."""

LOCAL_SOCKETS: Final = {
    "socket": Only(argument=0, test=_EQUAL, values=(_AF_UNIX,), allowed=True)
}
"""Sockets of this machine only, by a path."""


_SERVING: Final = frozenset(
    ("bind", "listen", "accept", "accept4", "sendto", "sendmsg")  # on allowed sockets
)
# Sending remains: an event loop wakes itself over a private socket pair.
_REACH: Final = frozenset(
    {
        *("socket", "connect", "bind", "listen", "accept", "accept4", "pidfd_getfd"),
        *("ptrace", "process_vm_readv", "process_vm_writev", "bpf"),
        *("io_uring_setup", "io_uring_enter", "io_uring_register"),
    }
)


def compute_only(
    machine: str, pid: int, *, devices: bool = False, forks: bool = False
) -> bytes:
    """Return the program for a process that reads files, computes and answers.

    An allow-list: calls that are in no list here, or in no kernel yet, are refused.

    Args:
        machine: as ``platform.machine()`` names it.
        pid: the process's own id, the only one that it may signal and limit; or
            ``OWN``, and ``of_process`` puts it in.
        devices: whether it drives GPUs. Then Landlock must refuse to write other files:
            this program does not.
        forks: whether it may fork, and put what it forked under a further filter.
    """
    only, allowed = _own_only(pid), HARMLESS
    if devices:
        only |= DEVICE_OPENS | DEVICE_CONTROLS
    if forks:
        only |= FORKS | FURTHER
        allowed += FORKING
    return _program(machine, allowed=allowed, only=only, otherwise=_refusal())


def serve_only(machine: str, pid: int) -> bytes:
    """Return the program for a process that also serves the sockets it has.

    It makes no other, and connects none. An allow-list, as ``compute_only``.

    Args:
        machine: as ``platform.machine()`` names it.
        pid: the process's own id, or ``OWN``.
    """
    return _program(
        machine,
        allowed={*HARMLESS, *ON_SOCKETS},
        only=_own_only(pid) | NO_ADDRESSES,
        otherwise=_refusal(),
    )


def of_process(program: bytes, pid: int) -> bytes:
    """Return a program with a process's id in the places of ``OWN``."""
    steps = struct.iter_unpack("<HBBI", program)
    return b"".join(
        _step(
            code,
            pid if (code, value) == (_EQUAL, OWN) else value,
            then=then,
            otherwise=otherwise,
        )
        for code, then, otherwise, value in steps
    )


def _own_only(pid: int) -> dict[str, Only]:
    own = own_process(pid)
    return OPENS | THREADS | HARMLESS_CONTROLS | DESCRIPTORS | NO_NAMES | own


def no_network(machine: str) -> bytes:
    """Return the program for a process without network, inherited by its children.

    It may do everything else: write files, and start programs, under the same filter.
    """
    return _program(machine, refused=_REACH, only=TERMINALS, otherwise=_allowance())


def local_server(machine: str) -> bytes:
    """Return the program for a server on UNIX sockets that starts nothing."""
    only = LOCAL_SOCKETS | THREADS | TERMINALS
    refused = set(WAYS_OUT) - _SERVING - {"clone3"}
    return _program(machine, refused=refused, only=only, otherwise=_allowance())


def _program(
    machine: str,
    *,
    allowed: Collection[str] = (),
    refused: Collection[str] = (),
    only: Mapping[str, Only],
    otherwise: bytes,
) -> bytes:
    """Assemble the program: machine, calls with conditions, lists, the rest.

    Raises:
        KeyError: the machine's call numbers are unknown.
    """
    known = numbers(machine)
    # The machine before the number: a 32-bit call from a 64-bit process has numbers
    # that mean other calls here, and would bypass every list below.
    parts = [
        _step(_LOAD, _MACHINE_AT),
        _step(_EQUAL, _MACHINE[machine], then=1),
        _step(_RETURN, _KILL),
        _step(_LOAD, _NUMBER_AT),
    ]
    if machine == "x86_64":
        parts += [_step(_AT_LEAST, _X32, otherwise=1), _step(_RETURN, _KILL)]
    for name, condition in only.items():
        if name in known:
            body = _condition(condition)
            parts += [_step(_EQUAL, known[name], otherwise=len(body) // 8), body]
    for names, verdict in ((allowed, _ALLOW), (refused, _ERROR | errno.EPERM)):
        for name in sorted(set(names) - only.keys()):
            if name in known:
                parts += [
                    _step(_EQUAL, known[name], otherwise=1),
                    _step(_RETURN, verdict),
                ]
    # clone3's flags are behind a pointer, which a filter cannot read. An old kernel has
    # no such call; libraries handle that and use clone, whose flags are readable.
    clone3 = [_step(_EQUAL, 435, otherwise=1), _step(_RETURN, _ERROR | errno.ENOSYS)]
    return b"".join((*parts, *clone3, otherwise))


def _refusal() -> bytes:
    # Calls newer than the list return the error of a kernel that lacks them: libraries
    # then use the older call, which is in the list.
    steps = (
        _step(_AT_LEAST, _NEWER_FROM, otherwise=1),
        _step(_RETURN, _ERROR | errno.ENOSYS),
        _step(_RETURN, _ERROR | errno.EPERM),
    )
    return b"".join(steps)


def _allowance() -> bytes:
    return _step(_RETURN, _ALLOW)


def _condition(only: Only) -> bytes:
    meets, fails = _ALLOW, _ERROR | only.error
    if not only.allowed:
        meets, fails = fails, meets
    # Both machines are little-endian: the low half of an argument comes first. The
    # kernel itself reads only that half of the arguments tested here.
    steps: list[bytes] = []
    if only.zero >= 0:
        steps += [
            _step(_LOAD, _ARGUMENTS_AT + 8 * only.zero),
            _step(_EQUAL, 0, then=1),
            _step(_RETURN, fails),
        ]
    if only.null >= 0:
        # The high half: the low one is tested with the others.
        steps += [
            _step(_LOAD, _ARGUMENTS_AT + 8 * only.null + 4),
            _step(_EQUAL, 0, then=1),
            _step(_RETURN, fails),
        ]
    steps.append(_step(_LOAD, _ARGUMENTS_AT + 8 * only.argument))
    for value in only.values:
        steps += [_step(only.test, value, otherwise=1), _step(_RETURN, meets)]
    if only.kinds:
        steps.append(_step(_MASK, 0xFF00))
    for kind in only.kinds:
        steps += [_step(_EQUAL, kind << 8, otherwise=1), _step(_RETURN, _ALLOW)]
    return b"".join((*steps, _step(_RETURN, fails)))


def _step(code: int, value: int, *, then: int = 0, otherwise: int = 0) -> bytes:
    """Return one instruction: ``then`` and ``otherwise`` are steps to skip."""
    return struct.pack("<HBBI", code, then, otherwise, value)
