"""System calls by name, with their numbers on x86-64 and on aarch64.

The numbers are those of the kernel's user-space headers (``asm/unistd_64.h`` and
``asm-generic/unistd.h``); they never change. ``-``: not on that machine.
"""

from collections.abc import Mapping
from typing import Final

MACHINES: Final = ("x86_64", "aarch64")
"""In the order of the two columns."""

_HARMLESS: Final = """
# Read, and write to open files.
read 0 63; write 1 64; readv 19 65; writev 20 66; pread64 17 67; pwrite64 18 68;
preadv 295 69; pwritev 296 70; preadv2 327 286; pwritev2 328 287; close 3 57;
close_range 436 436; dup 32 23; dup2 33 -; dup3 292 24; fcntl 72 25; lseek 8 62;
fadvise64 221 223; readahead 187 213;
# Inspect files; ``OPENS`` lets none be opened for writing.
open 2 -; openat 257 56; stat 4 -; fstat 5 80; lstat 6 -; newfstatat 262 79;
statx 332 291; statfs 137 43; fstatfs 138 44; access 21 -; faccessat 269 48;
faccessat2 439 439; readlink 89 -; readlinkat 267 78; getdents 78 -; getdents64 217 61;
getcwd 79 17; chdir 80 49; fchdir 81 50; getxattr 191 8; lgetxattr 192 9;
fgetxattr 193 10; listxattr 194 11; ioctl 16 29;
# Wait, and be woken.
poll 7 -; ppoll 271 73; select 23 -; pselect6 270 72; epoll_create 213 -;
epoll_create1 291 20; epoll_ctl 233 21; epoll_wait 232 -; epoll_pwait 281 22;
epoll_pwait2 441 441; eventfd 284 -; eventfd2 290 19; pipe 22 -; pipe2 293 59;
timerfd_create 283 85; timerfd_settime 286 86; timerfd_gettime 287 87;
# Memory of its own.
mmap 9 222; munmap 11 215; mprotect 10 226; mremap 25 216; madvise 28 233; brk 12 214;
mincore 27 232; mlock 149 228; mlock2 325 284; munlock 150 229; memfd_create 319 279;
ftruncate 77 46; membarrier 324 283; pkey_alloc 330 289; pkey_free 331 290;
pkey_mprotect 329 288; get_mempolicy 239 236; set_mempolicy 238 237; mbind 237 235;
# Threads of its own.
futex 202 98; futex_waitv 449 449; set_robust_list 273 99; get_robust_list 274 100;
rseq 334 293; clone 56 220; set_tid_address 218 96; arch_prctl 158 -; prctl 157 167;
sched_yield 24 124; sched_getaffinity 204 123; sched_setaffinity 203 122;
sched_getparam 143 121; sched_getscheduler 145 120; sched_get_priority_max 146 125;
sched_get_priority_min 147 126; sched_getattr 315 275; getpriority 140 141;
setpriority 141 140; getcpu 309 168;
# Identity, time and limits.
gettid 186 178; getpid 39 172; getppid 110 173; getpgid 121 155; getpgrp 111 -;
getsid 124 156; getuid 102 174; geteuid 107 175; getgid 104 176; getegid 108 177;
getresuid 118 148; getresgid 120 150; getgroups 115 158; capget 125 90;
getrlimit 97 163; prlimit64 302 261; getrusage 98 165; sysinfo 99 179; uname 63 160;
getrandom 318 278; nanosleep 35 101; clock_nanosleep 230 115; clock_gettime 228 113;
clock_getres 229 114; gettimeofday 96 169; time 201 -; times 100 153;
# Signals to itself, and the end.
rt_sigaction 13 134; rt_sigprocmask 14 135; rt_sigreturn 15 139; rt_sigpending 127 136;
rt_sigtimedwait 128 137; rt_sigsuspend 130 133; sigaltstack 131 132; tgkill 234 131;
setitimer 38 103; getitimer 36 102; restart_syscall 219 128; exit 60 93;
exit_group 231 94; wait4 61 260; waitid 247 95;
"""

_FORKING: Final = """
# Of a process that forks others, which confine themselves further.
seccomp 317 277; mlockall 151 230;
"""

_ON_SOCKETS: Final = """
# On sockets that exist.
listen 50 201; accept 43 202; accept4 288 242; recvfrom 45 207; recvmsg 47 212;
sendto 44 206; sendmsg 46 211; shutdown 48 210; getsockname 51 204;
getpeername 52 205; setsockopt 54 208; getsockopt 55 209;
"""

_REFUSED: Final = """
# Communication with others.
socket 41 198; connect 42 203; bind 49 200; listen 50 201; accept 43 202;
accept4 288 242; sendto 44 206; sendmsg 46 211; sendmmsg 307 269;
# Other programs and other processes.
execve 59 221; execveat 322 281; fork 57 -; vfork 58 -; clone3 435 435; ptrace 101 117;
process_vm_readv 310 270; process_vm_writev 311 271; pidfd_getfd 438 438;
pidfd_send_signal 424 424; kill 62 129; tkill 200 130;
# Ways to bypass the two lists above.
io_uring_setup 425 425; io_uring_enter 426 426; io_uring_register 427 427; bpf 321 280;
perf_event_open 298 241; userfaultfd 323 282; unshare 272 97; setns 308 268;
mount 165 40;
"""


def _numbers(text: str) -> dict[str, tuple[int | None, ...]]:
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    rows = [row.split() for row in " ".join(lines).split(";") if row.strip()]
    return {
        name: tuple(None if number == "-" else int(number) for number in numbers)
        for name, *numbers in rows
    }


_NUMBERS: Final = _numbers(_HARMLESS + _FORKING + _ON_SOCKETS + _REFUSED)

HARMLESS: Final = tuple(_numbers(_HARMLESS))
"""All calls that a computing process needs; it cannot make any other."""

FORKING: Final = tuple(_numbers(_FORKING))
"""Calls that only restrict a process further, or keep its memory from being swapped."""

ON_SOCKETS: Final = tuple(_numbers(_ON_SOCKETS))
"""All calls that a server needs besides, once its sockets exist."""

WAYS_OUT: Final = tuple(_numbers(_REFUSED))
"""Calls that send data out, or make a process another one. None is harmless."""


def numbers(machine: str) -> Mapping[str, int]:
    """Return the number of each call that a machine has.

    Args:
        machine: as ``platform.machine()`` names it; another one has none.
    """
    if machine not in MACHINES:
        return {}
    at = MACHINES.index(machine)
    return {
        name: number
        for name, each in _NUMBERS.items()
        if (number := each[at]) is not None
    }
