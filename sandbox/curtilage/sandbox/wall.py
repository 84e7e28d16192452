"""Builds a sandbox around this process, layer by layer, and reports the layers.

A missing layer is not an error here: the caller reports it, or refuses to continue. A
layer cannot be removed again, and children inherit it. Build the sandbox before any
library is loaded: a namespace needs a process with one thread, and Landlock restricts
only the calling thread.
"""

import hashlib
import os
import platform
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum, unique
from pathlib import Path
from typing import Final, TypeAlias, cast

from curtilage.sandbox import folders, kernel, memory, seccomp

# linux/landlock.h: LANDLOCK_ACCESS_FS_*, each by its bit position.
_RIGHTS: Final = (
    *("execute", "write_file", "read_file", "read_dir", "remove_dir", "remove_file"),
    *("make_char", "make_dir", "make_reg", "make_sock", "make_fifo", "make_block"),
    *("make_sym", "refer", "truncate", "ioctl_dev"),
)
_READS: Final = frozenset({"read_file", "read_dir"})
_OF_FILES: Final = frozenset({"write_file", "truncate", "ioctl_dev"})
_NOT_BELOW: Final = _READS | {"execute"}
_RIGHTS_BY_VERSION: Final = (13, 14, 15, 15, 16)  # the kernel's documentation, "ABI"
_BIND_AND_CONNECT_TCP: Final = 3
_NETWORK_FROM: Final = 4
_ABSTRACT_SOCKETS_AND_SIGNALS: Final = 3
_SCOPES_FROM: Final = 6


@unique
class Layer(StrEnum):
    """The layers of a wall; the value is shown to users."""

    NAMESPACE = "an empty network namespace"
    FOLDERS = "a root folder of its own"
    LANDLOCK = "Landlock"
    SECCOMP = "seccomp"


@unique
class Promise(StrEnum):
    """Acts that a wall prevents; the value is shown to users."""

    NETWORK = "reach the network"
    LOOKUPS = "look up paths on every mounted file system"
    FILES = "write files"
    PROGRAMS = "start programs or touch other processes"


# For ``compute_only``, with the layers that prevent it on their own. The other walls'
# filters prevent less, and their gaps are not reported.
_HOLD: Final = {
    Promise.NETWORK: {Layer.NAMESPACE, Layer.SECCOMP},
    Promise.LOOKUPS: {Layer.FOLDERS},
    Promise.FILES: {Layer.LANDLOCK, Layer.SECCOMP},
    Promise.PROGRAMS: {Layer.SECCOMP},
}


Loaded: TypeAlias = Mapping[str, str | list[str]]
"""A description of what the kernel was given; the same for each process."""
_DEVICE: Final = "a device"
"""Stands for a device's path in a description: machines name and number them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wall:
    """The layers around a process.

    Attributes:
        standing: layers that the kernel has confirmed.
        missing: the others, each with the kernel's reason.
        loaded: what the layers are; not part of ``to_fields``.
    """

    standing: frozenset[Layer] = frozenset()
    missing: tuple[str, ...] = ()
    loaded: Loaded = field(default_factory=dict[str, str | list[str]], compare=False)

    @property
    def gaps(self) -> tuple[Promise, ...]:
        """Acts that no layer prevents; empty if the wall is complete."""
        return tuple(each for each in Promise if not _HOLD[each] & self.standing)

    def to_fields(self) -> dict[str, list[str]]:
        """Return it as JSON data."""
        return {"standing": sorted(self.standing), "missing": list(self.missing)}

    @classmethod
    def from_fields(cls, fields: object) -> "Wall":
        """Read the result of ``to_fields``.

        Raises:
            ValueError: it is something else.
        """
        given = cast("dict[str, object]", fields) if isinstance(fields, dict) else {}
        if given.keys() != {"standing", "missing"}:
            raise ValueError("a wall has layers that stand, and others")
        standing, missing = (_strings(given[key]) for key in ("standing", "missing"))
        return cls(standing=frozenset(map(Layer, standing)), missing=missing)


def _strings(value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise ValueError("layers are a list")  # noqa: TRY004 - of JSON, not of types
    each = cast("list[object]", value)
    return tuple(text for text in each if isinstance(text, str))


def _nothing() -> None:
    """Do nothing."""


def compute_only(
    reads: Sequence[Path] = (),
    *,
    devices: Sequence[Path] = (),
    forks: bool = False,
    before_filter: Callable[[], object] = _nothing,
) -> Wall:
    """Restrict this process to reading files, computing and answering over open pipes.

    Args:
        reads: folders that remain visible, besides those of Python and its libraries.
        devices: GPUs that it may also write to and control, if Landlock works. Without
            it nothing else would refuse to write other files.
        forks: whether it may fork; then ``fork_no_more`` is for what it forked.
        before_filter: called behind the other layers.
    """
    with_devices = False

    def before() -> None:
        before_filter()
        # Behind the folders, for which it writes to files below /proc. The filter
        # refuses this.
        memory.forbid_tracing()

    def make_only_these_calls() -> Loaded:
        return _filter(
            lambda machine: seccomp.compute_only(
                machine, seccomp.OWN, devices=with_devices, forks=forks
            ),
            before,
        )

    def write_only_devices() -> Loaded:
        nonlocal with_devices
        loaded = _write_only(devices)
        with_devices = bool(devices)
        return loaded

    # A user namespace without mappings hides the user's identity.
    owner = (os.getuid(), os.getgid()) if hasattr(os, "getuid") else (0, 0)
    return _build(
        {
            Layer.NAMESPACE: lambda: _leave_the_network(user_namespace=True),
            Layer.FOLDERS: lambda: _leave_other_folders((*reads, *devices), *owner),
            Layer.LANDLOCK: write_only_devices,
            Layer.SECCOMP: make_only_these_calls,
        }
    )


def fork_no_more() -> Wall:
    """Restrict a forked process, which may do what its parent may, to computing."""
    return _build(
        {
            Layer.SECCOMP: lambda: _filter(
                lambda machine: seccomp.compute_only(machine, seccomp.OWN)
            )
        }
    )


def serve_only(*, before_filter: Callable[[], object] = _nothing) -> Wall:
    """Restrict this process to computing, and to serving the sockets that it has.

    Landlock restricts the calling thread and those that it starts later; the filter
    holds all threads.

    Args:
        before_filter: called behind the other layer.
    """
    return _build(
        {
            Layer.LANDLOCK: lambda: _write_only(()),
            Layer.SECCOMP: lambda: _filter(
                lambda machine: seccomp.serve_only(machine, seccomp.OWN),
                before_filter,
            ),
        }
    )


def described(
    landlock_version: int,
    program: bytes,
    *,
    devices: bool = False,
    further: bytes = b"",
) -> Loaded:
    """Return the description of Landlock and filters, which are not loaded.

    Args:
        landlock_version: the kernel's.
        program: the filter's, with ``seccomp.OWN``.
        devices: whether the process drives GPUs.
        further: the program of the filter of what it forks; empty: it forks nothing.
    """
    _, handled = _handled(landlock_version)
    allowed = (os.devnull, _DEVICE) if devices else (os.devnull,)
    found = _described_rules(handled, allowed) | _described_program(program)
    return {**found, **(further_of(_described_program(further)) if further else {})}


def further_of(loaded: Loaded) -> Loaded:
    """Return the description of a forked process's filter, to be added to its parent's.

    Args:
        loaded: by ``fork_no_more``.
    """
    return {f"forked_{key}": value for key, value in loaded.items()}


def local_server(writes: Sequence[Path]) -> Wall:
    """Restrict this process to serving UNIX sockets, and writing below some folders.

    No user namespace is used: in one, a device may refuse this process.

    Args:
        writes: folders and devices; those that do not exist are skipped.
    """
    return _build(
        {
            Layer.NAMESPACE: lambda: _leave_the_network(user_namespace=False),
            Layer.LANDLOCK: lambda: _write_only(writes),
            Layer.SECCOMP: lambda: _filter(seccomp.local_server),
        }
    )


def no_network() -> Wall:
    """Cut this process, and all that it starts, off from the network."""
    return _build({Layer.SECCOMP: lambda: _filter(seccomp.no_network)})


def _build(layers: Mapping[Layer, Callable[[], Loaded | None]]) -> Wall:
    standing: set[Layer] = set()
    missing: list[str] = []
    loaded: dict[str, str | list[str]] = {}
    # In the order given, the filter last: it refuses the calls that build the others.
    for layer, build in layers.items():
        try:
            loaded |= build() or {}
        except OSError as error:
            missing.append(f"{layer}: {error.strerror}")
        except (AttributeError, KeyError):  # another system; an unknown processor
            missing.append(f"{layer}: not on {platform.system()} {platform.machine()}")
        else:
            standing.add(layer)
    return Wall(standing=frozenset(standing), missing=tuple(missing), loaded=loaded)


def _leave_the_network(*, user_namespace: bool) -> None:
    """Enter a network namespace with nothing in it but ``lo``, which is down."""
    try:
        kernel.unshare(kernel.CLONE_NEWNET)
    except OSError:
        if not user_namespace:
            raise
        # An unprivileged process needs its own user namespace, if that is allowed.
        kernel.unshare(kernel.CLONE_NEWUSER | kernel.CLONE_NEWNET)


def _leave_other_folders(reads: Sequence[Path], user: int, group: int) -> None:
    """Enter a mount namespace with only the folders of Python and ``reads``."""
    try:
        kernel.unshare(kernel.CLONE_NEWNS)
    except OSError:
        kernel.unshare(kernel.CLONE_NEWUSER | kernel.CLONE_NEWNS)
    proc = Path("/proc/self")
    if not (proc / "uid_map").read_text("ascii").strip():
        # Without a mapping nothing can be created, not even in our own file system. The
        # kernel requires the second line before it accepts the third.
        (proc / "uid_map").write_text(f"{user} {user} 1", "ascii")
        (proc / "setgroups").write_text("deny", "ascii")
        (proc / "gid_map").write_text(f"{group} {group} 1", "ascii")
    folders.enter(reads)


def _filter(
    program: Callable[[str], bytes], before: Callable[[], object] = _nothing
) -> Loaded:
    machine = platform.machine()
    made = program(machine)
    before()
    # Without this, only root may install filters (seccomp(2)): a setuid program started
    # under a filter could be made to fail where it must not.
    kernel.no_new_privileges()
    kernel.seccomp_filter(seccomp.of_process(made, os.getpid()), machine)
    return _described_program(made)


def _write_only(folders: Sequence[Path]) -> Loaded:
    """Refuse changes of files, and execution of programs, except below these folders.

    TCP, abstract sockets and signals to others are refused if the version supports it.
    """
    known, handled = _handled(kernel.landlock_version())
    of_files = sum(bit for name, bit in known.items() if name in _OF_FILES)
    # Not execute: a file written below one of them must not run.
    below = sum(bit for name, bit in known.items() if name not in _NOT_BELOW)
    allowed = [
        (str(path), below if path.is_dir() else of_files)
        for path in (Path(os.devnull), *folders)
        if path.exists()
    ]
    kernel.no_new_privileges()
    kernel.landlock(handled, allowed)
    return _described_rules(handled, [path for path, _ in allowed])


def _handled(version: int) -> tuple[dict[str, int], bytes]:
    """Return the rights that a version knows, and what is refused, for the kernel."""
    # A ruleset with one right that this kernel does not know is refused as a whole.
    count = _RIGHTS_BY_VERSION[min(version, len(_RIGHTS_BY_VERSION)) - 1]
    known = {name: 1 << bit for bit, name in enumerate(_RIGHTS[:count])}
    changes = sum(bit for name, bit in known.items() if name not in _READS)
    handled = struct.pack("=Q", changes)
    if version >= _NETWORK_FROM:
        handled += struct.pack("=Q", _BIND_AND_CONNECT_TCP)
    if version >= _SCOPES_FROM:
        handled += struct.pack("=Q", _ABSTRACT_SOCKETS_AND_SIGNALS)
    return known, handled


def _described_rules(
    handled: bytes, allowed: Sequence[str]
) -> dict[str, str | list[str]]:
    writable = [path if path == os.devnull else _DEVICE for path in allowed]
    return {"landlock": handled.hex(), "writable": sorted(set(writable))}


def _described_program(program: bytes) -> dict[str, str | list[str]]:
    return {"seccomp": hashlib.sha256(program).hexdigest()}
