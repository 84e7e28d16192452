"""How a confined process is started, for its parent: command, environment, clock.

Starts nothing itself; the modules that do are doors.
"""

import os
import sys
import time
from typing import Final

# Nothing else of our environment is passed on: no proxy, no token, no setting.
_KEPT_ENVIRONMENT: Final = ("PATH", "LD_LIBRARY_PATH", "SYSTEMROOT")
FORGETTING: Final = {
    "PYTHONMALLOC": "malloc",
    "GLIBC_TUNABLES": "glibc.malloc.perturb=165:glibc.malloc.tcache_count=0",
}
"""Has glibc overwrite freed memory, in Python and in C, at once."""
LARGE_PAGES: Final = "glibc.malloc.hugetlb=1"
"""A further tunable: has glibc ask for transparent huge pages."""
_WHOLE_PROCESS: Final = 2  # CPUCLOCK_SCHED, for all threads (linux/posix-timers.h)


def command_of(module: str, *arguments: str) -> tuple[str, ...]:
    """Return the command that runs a module: no bytecode, no current folder."""
    return (sys.executable, "-B", "-P", "-m", module, *arguments)


def environment(*kept: str) -> dict[str, str]:
    """Return the process's whole environment, without proxies and tokens.

    Args:
        kept: names that are also passed on, where they are set.
    """
    names = (*_KEPT_ENVIRONMENT, *kept)
    found = {name: os.environ[name] for name in names if name in os.environ}
    paths = os.pathsep.join(path for path in sys.path if path)
    return found | FORGETTING | {"PYTHONPATH": paths}


def processor_s(pid: int) -> float | None:
    """Return the processor time of all of a process's threads, in seconds.

    None: the system does not report it, or the process is gone.
    """
    if sys.platform != "linux":
        return None
    # Python has no clock_getcpuclockid(3), so this computes its result for a process;
    # /proc only counts in hundredths of a second.
    try:
        return time.clock_gettime(~pid << 3 | _WHOLE_PROCESS)
    except OSError:
        return None
