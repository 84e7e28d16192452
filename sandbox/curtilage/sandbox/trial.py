"""Locks a process for good, tries to get out, and reports both.

A promise holds as far as this goes: what the kernel was given, what it refused when
each escape was tried, whether memory may reach a disk, and what existed before that no
layer can stop. Whoever relies on a promise needs all four; here nothing is judged.
"""

import fcntl
import os
import platform
import resource
import stat
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final, Protocol, cast

from curtilage.sandbox import kernel, seccomp
from curtilage.sandbox.escapes import (
    EarlyThread,
    let_through,
    listed,
    self_test,
    unfiltered,
)
from curtilage.sandbox.memory import Paging, keep_from_disk
from curtilage.sandbox.parent import FORGETTING, LARGE_PAGES
from curtilage.sandbox.syscalls import MACHINES
from curtilage.sandbox.wall import (
    Layer,
    Loaded,
    Wall,
    compute_only,
    described,
    further_of,
    serve_only,
)

LOCKED: Final = Paging.LOCKED.value
NO_SWAP: Final = Paging.NO_SWAP.value
SWAPPED: Final = Paging.POSSIBLE.value
"""What keeps memory off a disk: it is locked, there is no swap, or nothing does."""
_LIMITS: Final = {"core": resource.RLIMIT_CORE, "fsize": resource.RLIMIT_FSIZE}
_DUMPS: Final = "dumps"
_STREAM: Final = 1  # SOCK_STREAM
_OUTSIDE: Final = {2, 10, 40}
"""AF_INET, AF_INET6 and AF_VSOCK: the other end may be on another machine."""
_KEYS: Final = {"loaded", "answers", "landlock", "memory", "early"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What one process loaded, and what it found when it tried to get out.

    Attributes:
        loaded: a description of everything that was put in force; the same for each
            process of this kind.
        answers: to each attempt, by its name; empty where a layer is missing.
        landlock: the kernel's version of Landlock; 0: none.
        memory: ``LOCKED``, ``NO_SWAP`` or ``SWAPPED``.
        early: what existed before, and no layer stops; without content.
    """

    loaded: Loaded
    answers: dict[str, str]
    landlock: int
    memory: str
    early: tuple[str, ...] = ()

    @property
    def succeeded(self) -> tuple[str, ...]:
        """The names of the attempts that were not refused."""
        return let_through(self.answers)

    def to_fields(self) -> dict[str, object]:
        """Return it as JSON data."""
        return {
            "loaded": dict(self.loaded),
            "answers": self.answers,
            "landlock": self.landlock,
            "memory": self.memory,
            "early": list(self.early),
        }

    @classmethod
    def from_fields(cls, fields: object) -> "Trial":
        """Read the result of ``to_fields``.

        Raises:
            ValueError: it is something else.
        """
        given = cast("dict[str, object]", fields) if isinstance(fields, dict) else {}
        if given.keys() != _KEYS:
            raise ValueError("a trial has what was loaded, and what was found")
        landlock, memory = given["landlock"], given["memory"]
        kept = isinstance(memory, str) and memory in {LOCKED, NO_SWAP, SWAPPED}
        if type(landlock) is not int or not kept:
            raise ValueError("a trial has a version, and a word for its memory")
        answers = _table(given["answers"])
        if not all(isinstance(each, str) for each in answers.values()):
            raise ValueError("answers are texts")
        early = given["early"]
        texts = cast("list[object]", early) if isinstance(early, list) else [None]
        if not all(isinstance(each, str) for each in texts):
            raise ValueError("what existed before is named by texts")
        return cls(
            loaded=cast("Loaded", _table(given["loaded"])),
            answers=cast("dict[str, str]", answers),
            landlock=landlock,
            memory=str(memory),
            early=tuple(cast("list[str]", texts)),
        )


def _table(value: object) -> dict[str, object]:
    if not isinstance(value, dict):
        raise ValueError("a table is wanted")  # noqa: TRY004 - of JSON, not of types
    return cast("dict[str, object]", value)


class _Builds(Protocol):
    def __call__(self, *, before_filter: Callable[[], object]) -> Wall: ...


def lock_server() -> tuple[Wall, Trial]:
    """Lock this process behind ``serve_only``; return its wall and what it found.

    Call it before threads exist: Landlock restricts those that start later.
    """
    return _locked(serve_only, threads=True)


def lock_engine(reads: Sequence[Path], devices: Sequence[Path]) -> tuple[Wall, Trial]:
    """Lock this process behind ``compute_only``; return its wall and what it found.

    Args:
        reads: folders that remain visible.
        devices: GPUs that it drives.
    """

    def build(*, before_filter: Callable[[], object]) -> Wall:
        return compute_only(reads, devices=devices, before_filter=before_filter)

    # No thread can exist from before: namespaces need a process with one.
    return _locked(build, threads=False, devices=bool(devices))


def lock_keeper(reads: Sequence[Path]) -> tuple[Wall, Trial]:
    """Lock this process, which may fork; return its wall and what it found so far.

    Only without its filter does it try to get out: a forked process has a further one,
    behind which ``try_forked`` makes the other attempts.

    Args:
        reads: folders that remain visible.
    """

    def build(*, before_filter: Callable[[], object]) -> Wall:
        return compute_only(reads, forks=True, before_filter=before_filter)

    return _locked(build, threads=False, tries=False)


def try_forked(kept: Trial, wall: Wall) -> Trial:
    """Try to get out of a forked process; return what it and its parent found.

    Args:
        kept: what its parent found, by ``lock_keeper``.
        wall: the layers that this process has added, by ``fork_no_more``.
    """
    answers: dict[str, str] = {}
    if kept.answers and Layer.SECCOMP in wall.standing:
        descriptor = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        try:
            answers = kept.answers | self_test(platform.machine(), descriptor)
        finally:
            os.close(descriptor)
    loaded = {**kept.loaded, **further_of(wall.loaded), "zero": _at_zero()}
    return replace(kept, loaded=loaded, answers=answers)


def server_description(machine: str, landlock: int) -> Loaded:
    """Return what ``lock_server`` loads on a machine, without loading it.

    Args:
        machine: as ``platform.machine()`` names it.
        landlock: the kernel's version of Landlock.

    Raises:
        KeyError: the machine's call numbers are unknown.
    """
    program = seccomp.serve_only(machine, seccomp.OWN)
    zero = sorted((*_LIMITS, _DUMPS))
    return _description(described(landlock, program), zero, _allocator())


def engine_description(
    machine: str, landlock: int, *, devices: bool, forks: bool = False
) -> Loaded:
    """Return what an engine loads on a machine; see ``server_description``.

    Args:
        machine: as ``platform.machine()`` names it.
        landlock: the kernel's version of Landlock.
        devices: whether it drives GPUs.
        forks: whether it forks a process for each request: what ``lock_keeper`` and
            ``try_forked`` load, else ``lock_engine``.

    Raises:
        KeyError: the machine's call numbers are unknown.
    """
    program = seccomp.compute_only(machine, seccomp.OWN, devices=devices, forks=forks)
    further = seccomp.compute_only(machine, seccomp.OWN) if forks else b""
    zero = sorted({*_LIMITS, _DUMPS} - ({"fsize"} if devices else set()))
    return _description(
        described(landlock, program, devices=devices, further=further),
        zero,
        _allocator(),
        devices=devices,
    )


def ways_out() -> tuple[str, ...]:
    """Return what this process has that no layer stops; without content.

    Pipes, UNIX streams and terminals are not named: somebody of this machine reads what
    is written to them, and this process's own account gave them to it.
    """
    try:
        found = [
            why
            for path in Path("/proc/self/fd").iterdir()
            if (why := _way_out_of(int(path.name)))
        ]
        maps = Path("/proc/self/maps").read_text("ascii", "replace").splitlines()
        threads = len(list(Path("/proc/self/task").iterdir()))
    except OSError as error:
        return (f"/proc cannot be read: {error.strerror}",)
    if any(_is_shared_file(*line.split()[:5]) for line in maps):
        found.append("a file is mapped, shared and writable")
    if threads > 1:
        found.append("threads exist already")
    return tuple(found)


def landlock_version() -> int:
    """Return the kernel's version of Landlock; 0: it has none."""
    try:
        return kernel.landlock_version()
    except (OSError, AttributeError):
        return 0


def _locked(
    build: _Builds, *, threads: bool, devices: bool = False, tries: bool = True
) -> tuple[Wall, Trial]:
    machine = platform.machine()
    early, memory, version = ways_out(), keep_from_disk().value, landlock_version()
    answers: dict[str, str] = {}
    # A log in a file must still be written; then nothing is promised. Drivers of GPUs
    # may need files in memory.
    lower = partial(_lower, files=not devices and not early)
    thread = EarlyThread(machine) if threads and machine in MACHINES else None

    def before_filter() -> None:
        if version:
            answers.update(unfiltered(version))
        lower()

    descriptor = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    try:
        wall = build(before_filter=before_filter)
        if Layer.SECCOMP not in wall.standing:
            lower()
        if not {Layer.LANDLOCK, Layer.SECCOMP} <= wall.standing:
            answers.clear()
        elif tries:
            answers |= self_test(machine, descriptor, thread, devices=devices)
    finally:
        os.close(descriptor)
    return wall, Trial(
        loaded=_description(
            wall.loaded, _at_zero(), _allocator_in_force(), devices=devices
        ),
        answers=answers,
        landlock=version if Layer.LANDLOCK in wall.standing else 0,
        memory=memory,
        early=early,
    )


def _lower(*, files: bool) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if files:
        # What a descriptor from before could still write, Landlock does not see.
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    kernel.set_dumpable(dumpable=False)


def _at_zero() -> list[str]:
    """Return what is zero now, by the kernel's answer."""
    zero = [name for name, each in _LIMITS.items() if resource.getrlimit(each)[1] == 0]
    return sorted((*zero, *(() if kernel.is_dumpable() else (_DUMPS,))))


def _allocator() -> list[str]:
    return sorted(f"{name}={value}" for name, value in FORGETTING.items())


def _allocator_in_force() -> list[str]:
    # With -E or -I, Python has ignored its own.
    names = [
        name
        for name in FORGETTING
        if not (sys.flags.ignore_environment and name.startswith("PYTHON"))
    ]
    found = {name: os.environ[name] for name in names if name in os.environ}
    # The size of pages is no part of what is promised.
    return sorted(
        f"{name}={value.removesuffix(f':{LARGE_PAGES}')}"
        for name, value in found.items()
    )


def _description(
    loaded: Loaded, zero: list[str], allocator: list[str], *, devices: bool = False
) -> Loaded:
    escapes = listed(devices=devices)
    return {**loaded, "zero": zero, "allocator": allocator, "escapes": escapes}


def _way_out_of(number: int) -> str:
    """Return why a descriptor is a way out; empty: it is none, or is closed."""
    try:
        mode, device = _kind_of(number)
        writes = fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY
        why = _way_out_of_socket(number) if stat.S_ISSOCK(mode) else ""
    except OSError:
        return ""
    if why:
        return f"descriptor {number} {why}"
    if not writes or stat.S_ISSOCK(mode):
        return ""
    if stat.S_ISREG(mode):
        return f"descriptor {number} writes to a file"
    harmless = device == Path(os.devnull).stat().st_rdev or os.isatty(number)
    if stat.S_ISBLK(mode) or (stat.S_ISCHR(mode) and not harmless):
        return f"descriptor {number} writes to a device"
    return ""


def _way_out_of_socket(number: int) -> str:
    if kernel.socket_type(number) != _STREAM:
        return "is a socket that is not a stream"
    # One that only listens is how a server is reached.
    if kernel.socket_family(number) in _OUTSIDE and kernel.is_connected(number):
        return "is connected over a network"
    return ""


def _kind_of(number: int) -> tuple[int, int]:
    found = os.fstat(number)
    return found.st_mode, found.st_rdev


def _is_shared_file(
    _range: str, rights: str, _offset: str, _device: str, inode: str
) -> bool:
    return rights[1] == "w" and rights[3] == "s" and inode != "0"
