"""The memory that this process can still use, from files of the kernel."""

import resource
from contextlib import suppress
from pathlib import Path


def available_memory(root: Path = Path("/")) -> int | None:
    """Return the memory that a new program can use; None: unknown."""
    found: list[int] = []
    with suppress(OSError, ValueError, KeyError):
        found.append(_fields(root / "proc/meminfo")["MemAvailable"] * 1024)
    # In a container the kernel reports the whole machine's memory, and kills processes
    # that exceed the container's limit (control groups, version 2). There, cached files
    # count as used, the model's own file included.
    with suppress(OSError, ValueError, KeyError):
        own = (root / "proc/self/cgroup").read_text().splitlines()[-1]
        group = root / "sys/fs/cgroup" / own.removeprefix("0::").lstrip("/")
        limit = int((group / "memory.max").read_text())  # "max": no limit
        used = int((group / "memory.current").read_text())
        droppable = _fields(group / "memory.stat")["inactive_file"]
        found.append(max(0, limit - used + droppable))
    # The process's own limit (ulimit -v), less its current use.
    with suppress(OSError, ValueError, IndexError):
        most, _ = resource.getrlimit(resource.RLIMIT_AS)
        pages = int((root / "proc/self/statm").read_text().split()[0])
        if most != resource.RLIM_INFINITY:
            found.append(max(0, most - pages * resource.getpagesize()))
    return min(found, default=None)


def _fields(path: Path) -> dict[str, int]:
    """Return the second word of each line by its first, which may end in a colon."""
    lines = (line.split() for line in path.read_text().splitlines())
    return {words[0].removesuffix(":"): int(words[1]) for words in lines}
