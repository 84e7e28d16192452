"""What a locked process must not be able to do, as attempts: its self-test.

Each attempt is one system call, made as native code would make it. Its arguments are
such that it does nothing even where it is allowed: a path that does not exist, a signal
that is none. So what counts is not whether it succeeds but who refused it. A wall
answers with one of four errors, before the call looks at its arguments; any other
answer means that the call was let through.

The same four errors may have another cause, such as a missing privilege. The tests make
each attempt without a wall too, as root, and see that it is let through there.
"""

import errno
import hashlib
import json
import os
import platform
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from curtilage.sandbox import kernel

PASSED: Final = "let through"
REFUSALS: Final = frozenset({errno.EPERM, errno.EACCES, errno.EROFS, errno.ENOSYS})
"""How a wall refuses: seccomp, Landlock, a read-only file system, an absent call."""

_FD: Final = "descriptor"
_Argument: TypeAlias = int | bytes | str | None
_HERE: Final = -100  # AT_FDCWD
_NONE: Final = b"/nonexistent/curtilage-escape"
_ANYBODYS: Final = b"/dev/zero"  # every account may write to it; it keeps nothing
_WRITE, _CREATE, _APPEND, _TMPFILE = 0o1, 0o101, 0o2001, 0o20200001
_NO_DESCRIPTOR: Final = -1
# No process has this id. Our parent's may be 0, from outside of a namespace: our own.
_ANOTHER: Final = 0x3FFFFFFF
_NOWHERE: Final = 8  # an address where nothing is
_PORT_0_HERE: Final = b"\2\0\0\0\x7f\0\0\1" + bytes(8)  # struct sockaddr_in
_TCP_FROM: Final = 4
_MACHINES: Final = {"x86_64": 0, "aarch64": 1}


@dataclass(frozen=True, slots=True)
class Attempt:
    """One system call.

    Attributes:
        numbers: its number on x86-64 and on aarch64; None: not on that machine.
        arguments: see the module.
    """

    numbers: tuple[int | None, int | None]
    arguments: tuple[_Argument, ...] = ()


FILES: Final[Mapping[str, Attempt]] = {
    "open_for_writing": Attempt((257, 56), (_HERE, _NONE, _WRITE)),
    "open_the_older_call": Attempt((2, None), (_NONE, _WRITE)),
    "create": Attempt((257, 56), (_HERE, _NONE, _CREATE, 0o600)),
    "create_the_older_call": Attempt((85, None), (_NONE, 0o600)),
    "append": Attempt((257, 56), (_HERE, _NONE, _APPEND)),
    "a_file_without_a_name": Attempt((257, 56), (_HERE, _NONE, _TMPFILE, 0o600)),
    "openat2": Attempt((437, 437), (_HERE, _NONE, bytes(24), 24)),
    "truncate": Attempt((76, 45), (_NONE, 0)),
    "make_a_folder": Attempt((258, 34), (_HERE, _NONE, 0o700)),
    "symbolic_link": Attempt((266, 36), (b"a secret", _HERE, _NONE)),
    "hard_link": Attempt((265, 37), (_HERE, _NONE, _HERE, _NONE, 0)),
    "rename": Attempt((316, 276), (_HERE, _NONE, _HERE, _NONE, 0)),
    "make_a_fifo": Attempt((259, 33), (_HERE, _NONE, 0o010600, 0)),
    "make_a_socket": Attempt((259, 33), (_HERE, _NONE, 0o140600, 0)),
    "remove": Attempt((263, 35), (_HERE, _NONE, 0)),
    "extended_attribute": Attempt((188, 5), (_NONE, b"user.a", b"secret", 6, 0)),
    "remove_an_attribute": Attempt((197, 14), (_NONE, b"user.a")),
    "mode": Attempt((268, 53), (_HERE, _NONE, 0o600)),
    "owner": Attempt((260, 54), (_HERE, _NONE, -1, -1, 0)),
    "owner_of_a_descriptor": Attempt((93, 55), (_NO_DESCRIPTOR, -1, -1)),
    "times": Attempt((280, 88), (_HERE, _NONE, None, 0)),
    "times_an_older_call": Attempt((235, None), (_NONE, None)),
    "times_the_oldest_call": Attempt((132, None), (_NONE, None)),
    "lock": Attempt((73, 32), (_NO_DESCRIPTOR, 1)),
    "reserve_blocks": Attempt((285, 47), (_NO_DESCRIPTOR, 0, 0, 1)),
    "flags_of_a_file": Attempt((16, 29), (_FD, 0x40086602, bytes(8))),
    "copy_between_descriptors": Attempt(
        (326, 285), (_NO_DESCRIPTOR, None, _NO_DESCRIPTOR, None, 1, 0)
    ),
    "open_by_handle": Attempt((304, 265), (_NO_DESCRIPTOR, bytes(136), _WRITE)),
}
"""Nothing is written, and no name that could carry data is made."""

PROCESSES: Final[Mapping[str, Attempt]] = {
    "execute": Attempt((59, 221), (_NONE, None, None)),
    "execute_a_descriptor": Attempt((322, 281), (_NO_DESCRIPTOR, _NONE, None, None, 0)),
    # Flags that no call accepts: where it is let through, there is no new process.
    "new_process": Attempt((56, 220), (0x800, None, None, None, 0)),
    "clone3": Attempt((435, 435), (bytes(88), 0)),
    "trace": Attempt((101, 117), (16, _ANOTHER, 0, 0)),
    "read_anothers_memory": Attempt((310, 270), (_ANOTHER, None, 0, None, 0, 1)),
    "write_anothers_memory": Attempt((311, 271), (_ANOTHER, None, 0, None, 0, 1)),
    "anothers_descriptor": Attempt((438, 438), (_NO_DESCRIPTOR, 0, 0)),
    "signal_another": Attempt((62, 129), (_ANOTHER, 0)),
    "signal_a_thread": Attempt((200, 130), (_ANOTHER, 0)),
    "signal_anothers_thread": Attempt((234, 131), (_ANOTHER, _ANOTHER, 0)),
    "signal_by_descriptor": Attempt((424, 424), (_NO_DESCRIPTOR, 0, None, 0)),
    "limits_of_another": Attempt((302, 261), (_ANOTHER, 7, None, None)),
    "own_limits": Attempt((302, 261), (0, 7, _NOWHERE, None)),
    "priority_of_another": Attempt((141, 140), (0, _ANOTHER, 0)),
    "advise_anothers_memory": Attempt((440, 440), (_NO_DESCRIPTOR, None, 0, 0, 1)),
    "compare_processes": Attempt((312, 272), (_ANOTHER, _ANOTHER, 0, 0, 0)),
    "allow_dumps": Attempt((157, 167), (4, 3, 0, 0, 0)),
    "a_name_for_all_to_see": Attempt((157, 167), (15, _NOWHERE, 0, 0, 0)),
}
"""No other program is started, read, changed or signalled."""

SHARED: Final[Mapping[str, Attempt]] = {
    "shared_memory": Attempt((29, 194), (0x7E57, 0, 0o600)),
    "semaphores": Attempt((64, 190), (0x7E57, 0, 0o600)),
    "message_queue": Attempt((68, 186), (0x7E57, 0o600)),
    "posix_message_queue": Attempt((240, 180), (b"curtilage-escape", 0, 0, None)),
    "key_ring": Attempt((248, 217), (b"user", b"escape", b"secret", 6, 0x7FFFFFFF)),
    "request_a_key": Attempt((249, 218), (b"user", b"escape", None, 0)),
    "control_keys": Attempt((250, 219), (0, 0x7FFFFFFF, 0)),
    "secret_memory": Attempt((447, 447), (0xFFFF,)),
}
"""Nothing is put where another process could find it."""

NETWORK: Final[Mapping[str, Attempt]] = {
    "tcp": Attempt((41, 198), (2, 1, 0)),
    "tcp_over_ipv6": Attempt((41, 198), (10, 1, 0)),
    "udp": Attempt((41, 198), (2, 2, 0)),
    "unix": Attempt((41, 198), (1, 1, 0)),
    "netlink": Attempt((41, 198), (16, 3, 0)),
    "vsock": Attempt((41, 198), (40, 1, 0)),
    "packets": Attempt((41, 198), (17, 3, 0)),
    "connect": Attempt((42, 203), (_NO_DESCRIPTOR, bytes(16), 16)),
    "bind": Attempt((49, 200), (_NO_DESCRIPTOR, bytes(16), 16)),
    "send_to_an_address": Attempt(
        (44, 206), (_NO_DESCRIPTOR, b"x", 1, 0, bytes(16), 16)
    ),
    "send_many": Attempt((307, 269), (_NO_DESCRIPTOR, None, 0, 0)),
}
"""No socket is made, and none is connected."""

KERNEL: Final[Mapping[str, Attempt]] = {
    "io_uring": Attempt((425, 425), (1, None)),
    "enter_io_uring": Attempt((426, 426), (_NO_DESCRIPTOR, 0, 0, 0, None, 0)),
    "bpf": Attempt((321, 280), (0, None, 0)),
    "performance_events": Attempt((298, 241), (None, 0, -1, -1, 0)),
    "user_faults": Attempt((323, 282), (0xFFFF,)),
    "mount": Attempt((165, 40), (_NONE, _NONE, b"none", 0, None)),
    "unmount": Attempt((166, 39), (_NONE, 0)),
    "a_file_system": Attempt((430, 430), (b"nonexistent", 0xFFFF)),
    "open_a_tree": Attempt((428, 428), (_HERE, _NONE, 0)),
    "move_a_mount": Attempt((429, 429), (_HERE, _NONE, _HERE, _NONE, 0)),
    "root_folder": Attempt((161, 51), (_NONE,)),
    "another_root": Attempt((155, 41), (_NONE, _NONE)),
    "namespaces": Attempt((272, 97), (0x10000,)),  # no flag of a namespace
    "enter_a_namespace": Attempt((308, 268), (_NO_DESCRIPTOR, 0)),
    "host_name": Attempt((170, 161), (None, -1)),
    "clock": Attempt((227, 112), (-1, None)),
    "kernel_log": Attempt((103, 116), (-1, None, 0)),
    "modules": Attempt((313, 273), (_NO_DESCRIPTOR, b"", 0)),
    "swap": Attempt((167, 224), (_NONE, 0)),
    "another_kernel": Attempt((246, 104), (0, -1, None, 0)),
    "restart": Attempt((169, 142), (0, 0, 0, None)),
    "process_accounting": Attempt((163, 89), (_NONE,)),
    "quotas": Attempt((179, 60), (-1, _NONE, 0, None)),
    "state_of_the_page_cache": Attempt((451, 451), (_NO_DESCRIPTOR, None, None, 0)),
}
"""No other way into the kernel, and nothing of the machine is changed."""

ALL: Final = {**FILES, **PROCESSES, **SHARED, **NETWORK, **KERNEL}
DRIVING: Final[Mapping[str, Attempt]] = {
    **ALL,
    "open_for_writing": Attempt((257, 56), (_HERE, _ANYBODYS, _WRITE)),
    "open_the_older_call": Attempt((2, None), (_ANYBODYS, _WRITE)),
}
"""``ALL``, for a process that may open devices for writing. There the filter leaves it
to Landlock which file may be opened so, and Landlock refuses only one that exists."""
OLD_THREAD: Final = "open_in_a_thread_from_before"
NEW_THREAD: Final = "open_in_a_new_thread"
THREADS: Final = {OLD_THREAD: "open_for_writing", NEW_THREAD: "open_for_writing"}
"""Attempts of other threads: a wall that only holds one of them is none."""
UNFILTERED: Final = ("open_without_a_filter", "connect_without_a_filter")
"""Attempts that Landlock alone refuses; behind the filter it would not be asked."""


class EarlyThread:
    """A thread that exists before the wall, and makes one attempt behind it.

    Args:
        machine: as ``platform.machine()`` names it.
        attempts: the list that its attempt is from.
    """

    def __init__(self, machine: str, attempts: Mapping[str, Attempt] = ALL) -> None:
        self._go = threading.Event()
        self._result = ""
        self._machine = machine
        self._attempt = attempts[THREADS[OLD_THREAD]]
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def result(self) -> str:
        """Let it make its attempt; return the answer, as ``tried``."""
        self._go.set()
        self._thread.join()
        return self._result

    def _run(self) -> None:
        self._go.wait()
        self._result = tried(self._attempt, self._machine)


def tried(attempt: Attempt, machine: str, descriptor: int = _NO_DESCRIPTOR) -> str:
    """Make one attempt; return the name of the refusal, or ``PASSED``.

    Args:
        attempt: what is tried.
        machine: as ``platform.machine()`` names it.
        descriptor: of a file that is open for reading.

    Raises:
        KeyError: the machine's call numbers are unknown.
    """
    number = attempt.numbers[_MACHINES[machine]]
    if number is None:
        return errno.errorcode[errno.ENOSYS]
    arguments = [
        descriptor if isinstance(each, str) else each for each in attempt.arguments
    ]
    return _answered(lambda: kernel.call(number, *arguments))


def _answered(
    attempt: Callable[[], object], refusals: Collection[int] = REFUSALS
) -> str:
    try:
        attempt()
    except OSError as error:
        refusal = error.errno or 0
        return errno.errorcode[refusal] if refusal in refusals else PASSED
    return PASSED


def _open_own_name() -> None:
    # A file that every account may write to: nothing but a wall refuses it.
    os.close(os.open("/proc/self/comm", os.O_WRONLY | os.O_CLOEXEC))


def _connect_here() -> None:
    # To port 0, where nothing can listen.
    machine = platform.machine()
    made = kernel.call(ALL["tcp"].numbers[_MACHINES[machine]] or 0, 2, 1, 0)
    try:
        number = ALL["connect"].numbers[_MACHINES[machine]] or 0
        kernel.call(number, made, _PORT_0_HERE, len(_PORT_0_HERE))
    finally:
        os.close(made)


def unfiltered(version: int) -> dict[str, str]:
    """Make the attempts that need Landlock and no filter; return the answers by name.

    Args:
        version: the kernel's of Landlock; from 4 on it knows TCP.
    """
    # In a root folder of its own, the file is not there.
    answers = {UNFILTERED[0]: _answered(_open_own_name, REFUSALS | {errno.ENOENT})}
    if version >= _TCP_FROM:
        answers[UNFILTERED[1]] = _answered(_connect_here)
    return answers


def self_test(
    machine: str,
    descriptor: int,
    early: EarlyThread | None = None,
    *,
    devices: bool = False,
) -> dict[str, str]:
    """Make every attempt behind the whole wall; return the answers by name.

    Args:
        machine: as ``platform.machine()`` names it.
        descriptor: of a file that is open for reading.
        early: a thread that was started before the wall was built, if one was.
        devices: whether the process may open devices for writing.

    Raises:
        KeyError: the machine's call numbers are unknown.
    """
    attempts = DRIVING if devices else ALL
    answers = {
        name: tried(each, machine, descriptor) for name, each in attempts.items()
    }
    if early is not None:
        answers[OLD_THREAD] = early.result()
    answers[NEW_THREAD] = EarlyThread(machine, attempts).result()
    return answers


def listed(*, devices: bool = False) -> str:
    """Return the digest of the list of attempts, hex.

    Args:
        devices: as for ``self_test``.
    """
    rows = [
        (name, each.numbers, [repr(argument) for argument in each.arguments])
        for name, each in sorted((DRIVING if devices else ALL).items())
    ]
    text = json.dumps([rows, sorted(THREADS.items()), UNFILTERED])
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def let_through(answers: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of the attempts that no wall refused."""
    return tuple(sorted(name for name, answer in answers.items() if answer == PASSED))
