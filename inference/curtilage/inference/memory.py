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
    # that exceed the container's limit. There, cached files count as used, the model's
    # own file included.
    for limit in (_limit_of_version_2, _limit_of_version_1):
        with suppress(OSError, ValueError, KeyError):
            found.append(max(0, limit(root)))
    # The process's own limit (ulimit -v), less its current use.
    with suppress(OSError, ValueError, IndexError):
        most, _ = resource.getrlimit(resource.RLIMIT_AS)
        pages = int((root / "proc/self/statm").read_text().split()[0])
        if most != resource.RLIM_INFINITY:
            found.append(max(0, most - pages * resource.getpagesize()))
    return min(found, default=None)


def _limit_of_version_2(root: Path) -> int:
    group = root / "sys/fs/cgroup" / _groups(root)[""].lstrip("/")
    limit = int((group / "memory.max").read_text())  # "max": no limit
    used = int((group / "memory.current").read_text())
    return limit - used + _fields(group / "memory.stat")["inactive_file"]


def _limit_of_version_1(root: Path) -> int:
    mounted = root / "sys/fs/cgroup/memory"
    # A container sees its path on the host, but only its own group is mounted.
    inside = mounted / _groups(root)["memory"].lstrip("/")
    group = inside if inside.is_dir() else mounted
    used = int((group / "memory.usage_in_bytes").read_text())
    stat = _fields(group / "memory.stat")
    # The least of the group's and of those above it; without one, nearly 2**63.
    return stat["hierarchical_memory_limit"] - used + stat["total_inactive_file"]


def _groups(root: Path) -> dict[str, str]:
    """Return this process's control group by controller; that of version 2 by ""."""
    lines = (root / "proc/self/cgroup").read_text().splitlines()
    parts = (line.split(":", 2) for line in lines)
    return {name: path for _, names, path in parts for name in names.split(",")}


def _fields(path: Path) -> dict[str, int]:
    """Return the second word of each line by its first, which may end in a colon."""
    lines = (line.split() for line in path.read_text().splitlines())
    return {words[0].removesuffix(":"): int(words[1]) for words in lines}
