"""The machine's resources for a model: memory, processors, disk space, network.

Read from files of the kernel, never by starting a program. Unknown values are None and
are reported as unknown, not guessed.
"""

import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from curtilage.inference.memory import available_memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """This machine's current resources.

    Attributes:
        memory_bytes: what a new program can use before others are swapped out or it
            exceeds its container's limit; None: unknown.
        cpus: number that this process may use.
        room_bytes: free space on the disk for models; None: unknown.
        metered: whether the network is paid by volume; None: unknown. Only a built-in
            mobile adapter is recognised: a telephone that shares its connection looks
            like any other wireless network.
    """

    memory_bytes: int | None
    cpus: int
    room_bytes: int | None
    metered: bool | None

    @property
    def spare_bytes(self) -> int | None:
        """Memory that a model may use, leaving some for other programs."""
        return None if self.memory_bytes is None else self.memory_bytes * 3 // 4

    @classmethod
    def read(cls, folder: Path, *, root: Path = Path("/")) -> Self:
        """Determine the machine's resources.

        Args:
            folder: of the models; need not exist yet.
            root: parent of ``proc`` and ``sys``.
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


def free_room(folder: Path) -> int | None:
    """Return the bytes free where a folder is, or will be; None: unknown."""
    for place in (folder, *folder.parents):
        with suppress(OSError):
            return shutil.disk_usage(place).free
    return None


def on_battery(root: Path = Path("/")) -> bool | None:
    """Return whether the machine runs on battery; None: unknown."""
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


def is_metered(root: Path = Path("/")) -> bool | None:
    """Return whether the network is paid by volume; None: unknown."""
    with suppress(OSError, IndexError):
        routes = (root / "proc/net/route").read_text().splitlines()[1:]
        for name, destination, *_ in (line.split() for line in routes):
            # The default route.
            if destination == "00000000":
                properties = (root / "sys/class/net" / name / "uevent").read_text()
                return True if "DEVTYPE=wwan" in properties.splitlines() else None
    return None
