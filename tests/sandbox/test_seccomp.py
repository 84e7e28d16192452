"""The filters, run by a small BPF interpreter: each call and its verdict."""

import errno
import struct
from collections.abc import Callable, Sequence

import pytest

from curtilage.sandbox import seccomp
from curtilage.sandbox.syscalls import (
    FORKING,
    HARMLESS,
    MACHINES,
    ON_SOCKETS,
    WAYS_OUT,
    numbers,
)
from support.examples import examples

AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
ALLOW, ERROR, KILL = 0x7FFF0000, 0x00050000, 0x80000000
O_RDONLY, O_WRONLY, O_RDWR, O_CREAT, O_TRUNC, O_APPEND = 0, 1, 2, 0o100, 0o1000, 0o2000
O_TMPFILE, O_CLOEXEC, O_DIRECTORY = 0o20200000, 0o2000000, 0o200000
CLONE_THREAD, CLONE_VM = 0x10000, 0x100
AF_UNIX, AF_INET, AF_INET6, AF_NETLINK, AF_VSOCK = 1, 2, 10, 16, 40
F_SETOWN, F_SETSIG, F_SETOWN_EX = 8, 10, 15
# The commands of fcntl that leave a mark which another program can see, and the calls
# of prctl that do: asm-generic/fcntl.h, linux/fcntl.h, linux/prctl.h.
F_LOCKS = (5, 6, 7, 36, 37, 38)
F_MARKS = (1024, 1026, 1031, 1033, 1036, 1038)
PR_SET_NAME, PR_SET_MM, PR_SET_VMA, PR_SET_PTRACER = 15, 35, 0x53564D41, 0x59616D61
PR_SETS = (1, 4, 8, 29, 36, 38, PR_SET_NAME, PR_SET_MM, PR_SET_VMA, PR_SET_PTRACER)
FS_IOC_SETFLAGS, FS_IOC_ENABLE_VERITY, TIOCSWINSZ = 0x40086602, 0x40806685, 0x5414
FS_IOC_FSSETXATTR = 0x401C5820
# NV_ESC_RM_ALLOC, UVM_INITIALIZE, UVM_MAP_EXTERNAL_ALLOCATION, DRM_IOCTL_VERSION,
# AMDKFD_IOC_GET_VERSION.
GPU_REQUESTS = (0xC030462B, 0x30000001, 33, 0xC0406400, 0x80084B01)
PID = 4711


def computes(machine: str) -> bytes:
    """Return the program of a process with the id ``PID``."""
    return seccomp.compute_only(machine, PID)


def drives(machine: str) -> bytes:
    """Return the program of one that drives GPUs."""
    return seccomp.compute_only(machine, PID, devices=True)


def forks(machine: str) -> bytes:
    """Return the program of one that forks others."""
    return seccomp.compute_only(machine, PID, forks=True)


def serves(machine: str) -> bytes:
    """Return the program of a locked server with the id ``PID``."""
    return seccomp.serve_only(machine, PID)


PROGRAMS = (computes, drives, forks, serves, seccomp.no_network, seccomp.local_server)


def verdict(
    program: bytes, machine: str, number: int, arguments: Sequence[int] = ()
) -> int:
    """Run classic BPF over one call, as the kernel does; return its result."""
    words = [*arguments, *(0,) * (6 - len(arguments))]
    data = struct.pack("<IIQ6Q", number, AUDIT[machine], 0, *words)
    steps = [
        struct.unpack_from("<HBBI", program, at) for at in range(0, len(program), 8)
    ]
    at, accumulator = 0, 0
    while True:
        code, then, otherwise, value = steps[at]
        at += 1
        if code == 0x54:
            accumulator &= value
        elif code == 0x20:
            (accumulator,) = struct.unpack_from("<I", data, value)
        elif code == 0x06:
            return int(value)
        else:
            met = {
                0x15: accumulator == value,
                0x35: accumulator >= value,
                0x45: bool(accumulator & value),
            }[code]
            at += then if met else otherwise


def called(
    make: Callable[[str], bytes], name: str, *arguments: int, machine: str = "x86_64"
) -> int:
    return verdict(make(machine), machine, numbers(machine)[name], arguments)


@pytest.mark.parametrize("machine", MACHINES)
@examples("name", WAYS_OUT)
def test_a_computing_process_has_no_way_out(name: str, machine: str) -> None:
    if name not in numbers(machine):
        return
    answer = called(computes, name, machine=machine)
    refused = errno.ENOSYS if name == "clone3" else errno.EPERM
    newer = name.startswith(("io_uring", "pidfd_"))
    assert answer in {ERROR | refused, ERROR | (errno.ENOSYS if newer else refused)}


@pytest.mark.parametrize("machine", MACHINES)
def test_a_locked_server_only_has_the_sockets_that_exist(machine: str) -> None:
    known = numbers(machine)
    for name in (set(WAYS_OUT) & set(known)) - set(ON_SOCKETS):
        assert called(serves, name, machine=machine) != ALLOW, name
    for name in set(ON_SOCKETS) & set(known):
        assert called(serves, name, machine=machine) == ALLOW, name
        assert called(computes, name, machine=machine) != ALLOW, name


@pytest.mark.parametrize("address", [1, 1 << 32, (1 << 47) + 8])
def test_a_locked_server_sends_to_no_address(address: int) -> None:
    assert called(serves, "sendto", 3, 0, 1, 0, 0) == ALLOW
    assert called(serves, "sendto", 3, 0, 1, 0, address) == ERROR | errno.EPERM


@pytest.mark.parametrize("machine", MACHINES)
def test_what_is_harmless_is_allowed(machine: str) -> None:
    conditional = {"open", "openat", "clone", "ioctl", "tgkill", "prlimit64", "prctl"}
    conditional.add("setpriority")
    known = numbers(machine)
    for name in set(HARMLESS) & set(known) - conditional:
        assert called(computes, name, machine=machine) == ALLOW, name


@pytest.mark.parametrize("machine", MACHINES)
def test_an_unlisted_call_is_refused(machine: str) -> None:
    listed = set(numbers(machine).values())
    for number in set(range(600)) - listed:
        answer = verdict(computes(machine), machine, number)
        assert answer == ERROR | (errno.EPERM if number < 424 else errno.ENOSYS), number


@pytest.mark.parametrize(
    "flags",
    [O_WRONLY, O_RDWR, O_CREAT, O_TRUNC, O_APPEND, O_TMPFILE, O_CREAT | O_CLOEXEC],
)
def test_nothing_is_opened_for_writing(flags: int) -> None:
    assert called(computes, "openat", 0, 0, flags) == ERROR | errno.EACCES
    assert called(computes, "open", 0, flags) == ERROR | errno.EACCES


def test_files_and_folders_are_opened_for_reading() -> None:
    for flags in (O_RDONLY, O_CLOEXEC, O_DIRECTORY | O_CLOEXEC):
        assert called(computes, "openat", 0, 0, flags) == ALLOW


@pytest.mark.parametrize("make", [computes, serves, seccomp.local_server])
def test_threads_but_no_processes(make: Callable[[str], bytes]) -> None:
    assert called(make, "clone", CLONE_VM | CLONE_THREAD) == ALLOW
    assert called(make, "clone", CLONE_VM) == ERROR | errno.EPERM


SIGCHLD, CHILD_SETTID, CHILD_CLEARTID = 17, 0x1000000, 0x200000
FORK = CHILD_SETTID | CHILD_CLEARTID | SIGCHLD
CLONE_NEW = (
    0x20000,
    0x2000000,
    0x4000000,
    0x8000000,
    *(1 << at for at in range(28, 31)),
)
CLONE_PTRACE, CLONE_VFORK, CLONE_PARENT, CLONE_UNTRACED = (
    0x2000,
    0x4000,
    0x8000,
    1 << 23,
)


@pytest.mark.parametrize("machine", MACHINES)
def test_one_that_forks_may_do_that_and_restrict_what_it_forked(machine: str) -> None:
    known = numbers(machine)
    assert called(forks, "clone", FORK, machine=machine) == ALLOW
    assert called(forks, "clone", CLONE_VM | CLONE_THREAD, machine=machine) == ALLOW
    refused = ERROR | errno.EPERM
    others = (CLONE_PTRACE, CLONE_VFORK, CLONE_PARENT, CLONE_UNTRACED)
    for flag in (*CLONE_NEW, *others):
        assert called(forks, "clone", FORK | flag, machine=machine) == refused, flag
    for name in FORKING:
        # Of seccomp it may load a filter for all threads: a mode, and these flags.
        assert called(forks, name, 1, 1, machine=machine) == ALLOW
        assert called(computes, name, 1, 1, machine=machine) == refused
    for flags in (0, 2, 4, 8, 9, 16):
        assert called(forks, "seccomp", 1, flags, machine=machine) == refused, flags
    for option in (1, 38):
        assert called(forks, "prctl", option, machine=machine) == ALLOW
    for option in set(PR_SETS) - {1, 38}:
        assert called(forks, "prctl", option, machine=machine) == refused, option
    # In everything else it is like one that only computes.
    for name in set(known) - {"clone", "prctl", *FORKING}:
        here = called(forks, name, machine=machine)
        assert here == called(computes, name, machine=machine), name


@pytest.mark.parametrize("make", PROGRAMS)
@pytest.mark.parametrize("request_", [0x5412, 0x541C])
def test_nothing_is_typed_into_a_terminal(
    make: Callable[[str], bytes], request_: int
) -> None:
    assert called(make, "ioctl", 0, request_) == ERROR | errno.EPERM
    assert called(make, "ioctl", 0, 0x5401) == ALLOW


def test_a_computing_process_touches_no_other_process() -> None:
    own, other = PID, PID + 1
    for name in ("tgkill", "prlimit64", "sched_setaffinity"):
        assert called(computes, name, own) == ALLOW
        assert called(computes, name, other) == ERROR | errno.EPERM
    assert called(computes, "prlimit64", 0) == ALLOW
    # Limits are read; a pointer to new ones may have either half at zero.
    for new in (8, 1 << 40, (1 << 40) + 8):
        assert called(computes, "prlimit64", 0, 7, new) == ERROR | errno.EPERM
    assert called(computes, "sched_setaffinity", 0) == ALLOW
    # Of the calling thread alone: 1 and 2 mean process groups and users.
    for which, who in ((0, own), (0, other), (1, 0), (2, 0)):
        assert called(computes, "setpriority", which, who) == ERROR | errno.EPERM
    assert called(computes, "setpriority", 0, 0) == ALLOW
    for command in (F_SETOWN, F_SETSIG, F_SETOWN_EX):
        answer = called(computes, "fcntl", 0, command)
        assert answer == ERROR | errno.EPERM


@pytest.mark.parametrize("command", [*F_LOCKS, *F_MARKS, F_SETOWN])
def test_a_computing_process_puts_no_lock_on_a_file(command: int) -> None:
    # /proc/locks shows two numbers of 63 bits of each lock to every account.
    assert called(computes, "fcntl", 0, command) == ERROR | errno.EPERM


@pytest.mark.parametrize("command", [0, 1, 2, 3, 4, 1030])
def test_descriptors_of_its_own_are_copied(command: int) -> None:
    assert called(computes, "fcntl", 0, command) == ALLOW


def test_a_computing_process_locks_nothing_by_another_call() -> None:
    flock = {"x86_64": 73, "aarch64": 32}
    for machine, number in flock.items():
        assert verdict(computes(machine), machine, number) == ERROR | errno.EPERM


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("option", PR_SETS)
def test_a_computing_process_gives_itself_no_name(option: int, machine: str) -> None:
    # 15 bytes of a name of its own choice are in /proc for every account.
    answer = called(computes, "prctl", option, machine=machine)
    assert answer == ERROR | errno.EPERM


def test_a_computing_process_may_ask_for_its_name() -> None:
    assert called(computes, "prctl", 16) == ALLOW


@pytest.mark.parametrize(
    "request_", [FS_IOC_SETFLAGS, FS_IOC_ENABLE_VERITY, TIOCSWINSZ]
)
def test_a_computing_process_changes_no_file_through_its_descriptor(
    request_: int,
) -> None:
    answer = called(computes, "ioctl", 0, request_)
    assert answer == ERROR | errno.EPERM


@pytest.mark.parametrize("flags", [O_RDONLY, O_WRONLY, O_RDWR, O_RDWR | O_CLOEXEC])
def test_one_that_drives_gpus_opens_devices_for_writing(flags: int) -> None:
    assert called(drives, "openat", 0, 0, flags) == ALLOW
    assert called(drives, "open", 0, flags) == ALLOW


@pytest.mark.parametrize("flags", [O_CREAT, O_TRUNC, O_APPEND, O_TMPFILE])
def test_one_that_drives_gpus_makes_no_file(flags: int) -> None:
    assert called(drives, "openat", 0, 0, flags | O_RDWR) == ERROR | errno.EACCES
    assert called(drives, "open", 0, flags | O_RDWR) == ERROR | errno.EACCES


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("request_", GPU_REQUESTS)
def test_only_one_that_drives_gpus_may_control_them(
    request_: int, machine: str
) -> None:
    assert called(drives, "ioctl", 3, request_, machine=machine) == ALLOW
    answer = called(computes, "ioctl", 3, request_, machine=machine)
    assert answer == ERROR | errno.EPERM


@pytest.mark.parametrize(
    "request_", [FS_IOC_SETFLAGS, FS_IOC_ENABLE_VERITY, FS_IOC_FSSETXATTR, TIOCSWINSZ]
)
def test_one_that_drives_gpus_changes_no_file_or_terminal(request_: int) -> None:
    assert called(drives, "ioctl", 3, request_) == ERROR | errno.EPERM


@pytest.mark.parametrize("machine", MACHINES)
def test_all_other_calls_are_the_same_with_gpus(machine: str) -> None:
    differ = {
        name
        for name, number in numbers(machine).items()
        for arguments in ((), (PID + 1, 8, O_RDWR), (PID, 0, 0), (AF_INET, O_RDWR))
        if verdict(computes(machine), machine, number, arguments)
        != verdict(drives(machine), machine, number, arguments)
    }
    assert differ <= {"open", "openat", "ioctl"}


@pytest.mark.parametrize("make", PROGRAMS)
def test_the_flags_of_clone3_are_out_of_sight(make: Callable[[str], bytes]) -> None:
    assert called(make, "clone3") == ERROR | errno.ENOSYS


@pytest.mark.parametrize("make", PROGRAMS)
def test_numbers_of_another_machine_end_the_process(
    make: Callable[[str], bytes],
) -> None:
    assert verdict(make("x86_64"), "aarch64", 0) == KILL
    x32 = 0x40000000 | numbers("x86_64")["read"]
    assert verdict(make("x86_64"), "x86_64", x32) == KILL


@pytest.mark.parametrize("family", [AF_INET, AF_INET6, AF_NETLINK, AF_VSOCK])
def test_a_local_server_has_sockets_of_this_machine_only(family: int) -> None:
    assert called(seccomp.local_server, "socket", family) == ERROR | errno.EPERM
    assert called(seccomp.local_server, "socket", AF_UNIX) == ALLOW
    assert called(seccomp.local_server, "connect") == ERROR | errno.EPERM
    assert called(seccomp.local_server, "accept4") == ALLOW
    assert called(seccomp.local_server, "execve") == ERROR | errno.EPERM


@pytest.mark.parametrize(
    "name", ["socket", "connect", "ptrace", "pidfd_getfd", "io_uring_setup"]
)
def test_without_a_network_programs_may_be_started(name: str) -> None:
    assert called(seccomp.no_network, name) == ERROR | errno.EPERM
    for allowed in ("execve", "vfork", "clone", "kill"):
        assert called(seccomp.no_network, allowed) == ALLOW


def test_an_unknown_machine_has_no_program() -> None:
    with pytest.raises(KeyError):
        computes("riscv64")


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("make", [seccomp.compute_only, seccomp.serve_only])
def test_a_program_is_the_same_for_each_process_but_for_its_id(
    make: Callable[[str, int], bytes], machine: str
) -> None:
    shared = make(machine, seccomp.OWN)
    assert seccomp.of_process(shared, PID) == make(machine, PID) != shared


def test_the_id_is_put_in_as_a_value_and_nowhere_else() -> None:
    equal, load = 0x15, 0x20
    steps = [(equal, 1, 2, seccomp.OWN), (load, 0, 0, seccomp.OWN), (equal, 0, 0, 5)]
    program = b"".join(struct.pack("<HBBI", *each) for each in steps)
    made = list(struct.iter_unpack("<HBBI", seccomp.of_process(program, PID)))
    assert made == [(equal, 1, 2, PID), *steps[1:]]
