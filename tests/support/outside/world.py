"""The files of this machine, with every write isolated.

To be built in user, mount and network namespaces of its own. Each folder is what
it was, under an overlay whose upper half takes what is written; nothing reaches
the machine but what lies below the programs' own folder. What was made and taken
away again shows as well: the folder around it is copied to the upper half first.

Not seen: reading, sockets of the file system (none of the machine's answers), and
what is written into the programs' own folder.
"""

import ctypes
import errno
import marshal
import os
import re
import shutil
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ACCOUNT_HOME: Final = "/account-home"
"""Where ``getpwuid`` says that the user is at home; ``HOME`` says otherwise."""
ENVIRONMENT_HOME: Final = "/environment-home"
RESOLVER: Final = "192.0.2.53"
OWN_FILES: Final[Mapping[str, str]] = {
    "/etc/hosts": "127.0.0.1 localhost\n::1 localhost\n",
    "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
    "/etc/passwd": f"root:x:0:0:watched:{ACCOUNT_HOME}:/bin/sh\n",
    "/etc/resolv.conf": f"nameserver {RESOLVER}\noptions timeout:2 attempts:2\n",
}
FRESH: Final = frozenset({"/dev", "/proc", "/run", "/sys", "/tmp", "/var/tmp"})  # noqa: S108 - to be watched
"""Not the machine's: made empty, or mounted anew. Where everybody may write, an
overlay would not let a user without privileges, since root owns the folder."""
OPENED: Final = frozenset({"/", "/etc"})
"""Folders whose entries are mirrored one by one, as where others are mounted."""
DEVICES: Final = ("null", "zero", "full", "random", "urandom", "tty")
MOST_COPIED_BYTES: Final = 1 << 20
MS_RDONLY, MS_REMOUNT, MS_BIND = 1, 32, 4096
MS_KEPT: Final = 2 | 4 | 8 | 1024 | 2048
"""``nosuid``, ``nodev``, ``noexec``, ``noatime`` and ``nodiratime``."""

Snapshot = dict[str, tuple[int, int, int]]


BYTECODE: Final = "bytecode, and nothing but its source compiled"
BYTECODE_NAME: Final = re.compile(r"(.+)/__pycache__/([^/.]+)\.cpython-\d+\.pyc")
BYTECODE_HEADER: Final = 16


class WorldError(Exception):
    """Here no such world can be had; says what is missing."""


class MountError(OSError):
    """Something cannot be mounted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A file or folder that is not what it was.

    Attributes:
        path: as the programs see it; a folder ends with a slash.
        change: how it differs.
        at: when, in seconds since 1970.
    """

    path: str
    change: str
    at: float


def mount(
    source: str, target: Path, *, kind: str = "", flags: int = 0, data: str = ""
) -> None:
    """Mount as ``mount(2)`` does.

    Raises:
        MountError: it cannot be mounted.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    texts = (source, str(target), kind or "none")
    encoded = [text.encode() for text in texts]
    if libc.mount(*encoded, ctypes.c_ulong(flags), data.encode()) != 0:
        number = ctypes.get_errno()
        raise MountError(number, os.strerror(number), str(target))


class World:
    """A mirror of ``/`` whose changes are known.

    Args:
        scratch: an empty folder, where it is built; below it all is in memory.
        own: the programs' own folder, shared with the machine.
    """

    def __init__(self, scratch: Path, own: Path) -> None:
        self._root = scratch / "root"
        self._scratch = scratch
        self._own = own
        self._uppers: dict[int, str] = {}
        self._before: Snapshot = {}
        self._descriptor = -1

    def enter(self) -> None:
        """Build it and make it this process's root; for good.

        Raises:
            WorldError: the kernel or its configuration does not permit it.
        """
        try:
            self._build()
        except MountError as error:
            raise WorldError(
                f"an overlay of this machine's folders ({error.strerror}, "
                f"{error.filename}): user namespaces that may mount, Linux 5.11"
            ) from None
        self._descriptor = os.open(self._scratch, os.O_RDONLY | os.O_DIRECTORY)
        self._before = self._snapshot()
        here = Path.cwd()
        os.chroot(self._root)
        os.chdir(here)

    def written(self) -> list[Written]:
        """Return all changes since the world was entered."""
        after = self._snapshot()
        changed = {
            path
            for path in self._before.keys() | after.keys()
            if self._before.get(path) != after.get(path)
        }
        return [
            self._described(path, after)
            for path in sorted(changed)
            if not self._follows(path, changed)
        ]

    def _follows(self, path: str, changed: set[str]) -> bool:
        """Return whether a folder changed only since something in it did."""
        if path not in self._before:
            return any(each.startswith(f"{path}/") for each in changed)
        return any(os.path.dirname(each) == path for each in changed)  # noqa: PTH120 - texts

    def _described(self, path: str, after: Snapshot) -> Written:
        if path not in after:
            return Written(path=path, change="removed", at=0.0)
        mode, device, time_ns = after[path]
        change = "changed" if path in self._before else "new"
        if stat.S_ISDIR(mode):
            change, path = "something in it came and went, or its mode", f"{path}/"
        elif stat.S_ISCHR(mode) and device == 0:
            change = "removed"
        elif is_bytecode(path):
            change = BYTECODE
        return Written(path=path, change=change, at=time_ns / 1e9)

    def _build(self) -> None:
        mount("tmpfs", self._scratch, kind="tmpfs", data="mode=755")
        self._root.mkdir()
        mounts = frozenset(_mount_points()) - {str(self._scratch)}
        self._mirror("/", mounts | FRESH)
        if not self._uppers:
            raise MountError(errno.ENODEV, "no overlay at all", "/")
        for name in FRESH:
            self._inside(name).mkdir(exist_ok=True)
        for home in (ACCOUNT_HOME, ENVIRONMENT_HOME):
            self._inside(home).mkdir()
        for name, text in OWN_FILES.items():
            self._inside(name).write_text(text, "utf-8")
        mount("proc", self._inside("/proc"), kind="proc")
        self._make_devices()
        own = self._inside(str(self._own))
        own.mkdir(parents=True, exist_ok=True)
        mount(str(self._own), own, flags=MS_BIND)

    def _make_devices(self) -> None:
        folder = self._inside("/dev")
        for name in DEVICES:
            (folder / name).touch()
            mount(f"/dev/{name}", folder / name, flags=MS_BIND)
        (folder / "fd").symlink_to("/proc/self/fd")
        (folder / "shm").mkdir()

    def _mirror(self, path: str, apart: frozenset[str]) -> None:
        """Make a folder look the same, entry by entry if one is separate."""
        inside = self._inside(path)
        around = path.rstrip("/") + "/"
        if path not in OPENED and not any(each.startswith(around) for each in apart):
            self._overlay(path, inside)
            return
        for entry in _entries(path):
            each = around + entry.name
            if entry.is_symlink():
                (self._root / each[1:]).symlink_to(Path(each).readlink())
            elif entry.is_dir() and each not in FRESH:
                self._inside(each).mkdir()
                self._mirror(each, apart)
            elif entry.is_file() and each not in OWN_FILES:
                _copy(Path(each), self._inside(each))

    def _overlay(self, path: str, inside: Path) -> None:
        number = len(self._uppers)
        halves = [self._scratch / half / str(number) for half in ("upper", "work")]
        for half in halves:
            half.mkdir(parents=True, exist_ok=True)  # of one that could not be
            shutil.copymode(path, half)
        lower = re.sub(r"([\\:,])", r"\\\1", path)
        options = f"userxattr,lowerdir={lower},upperdir={halves[0]},workdir={halves[1]}"
        try:
            mount("overlay", inside, kind="overlay", data=options)
        except MountError:
            # Not every file system goes below an overlay.
            _bind_read_only(path, inside)
        else:
            self._uppers[number] = path

    def _inside(self, path: str) -> Path:
        return self._root / path.removeprefix("/")

    def _snapshot(self) -> Snapshot:
        # By descriptor: from inside its root nothing else leads here.
        base = f"/proc/self/fd/{self._descriptor}"
        found = dict(_walked(f"{base}/root", ""))
        for number, path in self._uppers.items():
            found |= dict(_walked(f"{base}/upper/{number}", path))
        return found


def is_bytecode(path: str) -> bool:
    """Return whether a file is the bytecode of the module next to it."""
    named = BYTECODE_NAME.fullmatch(path)
    if named is None:
        return False
    source = Path(named[1]) / f"{named[2]}.py"
    try:
        kept: object = marshal.loads(Path(path).read_bytes()[BYTECODE_HEADER:])  # noqa: S302 - see above
        return kept == compile(source.read_bytes(), path, "exec", dont_inherit=True)
    except (OSError, ValueError, EOFError, TypeError, SyntaxError):
        return False


def _walked(folder: str, shown: str) -> Iterator[tuple[str, tuple[int, int, int]]]:
    """Yield everything below a folder, on its own file system."""
    own = os.stat(folder)  # noqa: PTH116 - a path that is no place
    yield shown or "/", (own.st_mode, 0, own.st_mtime_ns)
    for entry in _entries(folder):
        path, found = f"{shown}/{entry.name}", entry.stat(follow_symlinks=False)
        if found.st_dev != own.st_dev:
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from _walked(f"{folder}/{entry.name}", path)
        else:
            device = found.st_rdev if stat.S_ISCHR(found.st_mode) else found.st_size
            yield path, (found.st_mode, device, found.st_mtime_ns)


def _entries(folder: str) -> list["os.DirEntry[str]"]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except PermissionError:
        return []  # nor could the programs look into it


def _copy(source: Path, target: Path) -> None:
    if not os.access(source, os.R_OK):
        return
    if source.stat().st_size > MOST_COPIED_BYTES:
        target.touch()
        _bind_read_only(str(source), target)
        return
    shutil.copyfile(source, target)
    shutil.copymode(source, target)


def _bind_read_only(source: str, target: Path) -> None:
    """Show what cannot be watched, so that it cannot be written."""
    mount(source, target, flags=MS_BIND)
    # A user without privileges may take no restriction away.
    kept = os.statvfs(target).f_flag & MS_KEPT
    mount(source, target, flags=MS_BIND | MS_REMOUNT | MS_RDONLY | kept)


def _mount_points() -> Iterator[str]:
    """Yield where something is mounted (proc(5), ``mountinfo``)."""
    for line in Path("/proc/self/mountinfo").read_text("utf-8").splitlines():
        octal = line.split(" ")[4]
        yield re.sub(r"\\(\d{3})", lambda found: chr(int(found[1], 8)), octal)
