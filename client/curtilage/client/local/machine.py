"""What this machine has for a model: memory, processors, room, and its network.

Read from files of the kernel, never by starting a program. What the system does not
tell is None, and is said to be unknown: it is not guessed.
"""

import os
import resource
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """This machine, now.

    Attributes:
        memory_bytes: what a new program can take before others are paged out or
            the limit of its container ends it; None: unknown.
        cpus: that this process may use.
        room_bytes: free on the disk where models are kept; None: unknown.
        metered: whether the network is paid by volume; None: unknown. Only a mobile
            adapter of this machine's own is recognised: a telephone that shares its
            connection looks like any other wireless network.
    """

    memory_bytes: int | None
    cpus: int
    room_bytes: int | None
    metered: bool | None

    @property
    def spare_bytes(self) -> int | None:
        """What of the memory a model may take: it is not alone here."""
        return None if self.memory_bytes is None else self.memory_bytes * 3 // 4

    @classmethod
    def read(cls, folder: Path, *, root: Path = Path("/")) -> Self:
        """Look at the machine.

        Args:
            folder: where models are kept; need not exist yet.
            root: above ``proc`` and ``sys``.
        """
        if hasattr(os, "sched_getaffinity"):
            cpus = len(os.sched_getaffinity(0))
        else:
            cpus = os.cpu_count() or 1
        return cls(
            memory_bytes=available_memory(root),
            cpus=cpus,
            room_bytes=free_room(folder),
            metered=is_metered(root),
        )


def available_memory(root: Path = Path("/")) -> int | None:
    """Return what a new program can take, or None where the system does not tell."""
    found: list[int] = []
    with suppress(OSError, ValueError, KeyError):
        found.append(_fields(root / "proc/meminfo")["MemAvailable"] * 1024)
    # In a container the kernel tells of the whole machine, and ends whoever takes more
    # than the container may have (version 2 of control groups). Files that were read
    # and could be dropped count as used there, a model's own file among them.
    with suppress(OSError, ValueError, KeyError):
        own = (root / "proc/self/cgroup").read_text().splitlines()[-1]
        group = root / "sys/fs/cgroup" / own.removeprefix("0::").lstrip("/")
        limit = int((group / "memory.max").read_text())  # "max": no limit
        used = int((group / "memory.current").read_text())
        droppable = _fields(group / "memory.stat")["inactive_file"]
        found.append(max(0, limit - used + droppable))
    # What the process itself may have (ulimit -v), less what it has.
    with suppress(OSError, ValueError, IndexError):
        most, _ = resource.getrlimit(resource.RLIMIT_AS)
        pages = int((root / "proc/self/statm").read_text().split()[0])
        if most != resource.RLIM_INFINITY:
            found.append(max(0, most - pages * resource.getpagesize()))
    return min(found, default=None)


def free_room(folder: Path) -> int | None:
    """Return the bytes free where a folder is, or will be; None: unknown."""
    for place in (folder, *folder.parents):
        with suppress(OSError):
            return shutil.disk_usage(place).free
    return None


def on_battery(root: Path = Path("/")) -> bool | None:
    """Tell whether computing empties a battery; None where the system does not say."""
    supplies = root / "sys/class/power_supply"
    with suppress(OSError):
        kinds = {
            each: (each / "type").read_text().strip() for each in supplies.iterdir()
        }
        if "Battery" not in kinds.values():
            return None
        # Plugged in, a machine has a supply that is on line: the mains, or USB.
        plugged = [
            (each / "online").read_text().strip() == "1"
            for each, kind in kinds.items()
            if kind in {"Mains", "USB"}
        ]
        return not any(plugged)
    return None


def _fields(path: Path) -> dict[str, int]:
    """Return the second word of each line by its first, which may end in a colon."""
    lines = (line.split() for line in path.read_text().splitlines())
    return {words[0].removesuffix(":"): int(words[1]) for words in lines}


def is_metered(root: Path = Path("/")) -> bool | None:
    """Tell whether the network is paid by volume; None: not known."""
    with suppress(OSError, IndexError):
        routes = (root / "proc/net/route").read_text().splitlines()[1:]
        for name, destination, *_ in (line.split() for line in routes):
            # The way to everywhere that has no way of its own.
            if destination == "00000000":
                told = (root / "sys/class/net" / name / "uevent").read_text()
                return True if "DEVTYPE=wwan" in told.splitlines() else None
    return None
