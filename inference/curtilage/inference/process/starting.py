"""How the engine's process is started and reaped, and by whom.

The commands, and what is inherited; nothing of what the process is asked.
"""

import asyncio
import subprocess  # noqa: TID251 - a door
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, Final, Protocol, cast

from curtilage.sandbox.parent import LARGE_PAGES, command_of, environment

MODULE: Final = "curtilage.inference.process"
# How long its threads wait actively, which an image may set.
KEPT_ENVIRONMENT: Final = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")


@dataclass(frozen=True, slots=True)
class Started:
    """A process that was started.

    Attributes:
        pid: its id.
        to: its standard input.
        from_: its standard output.
        lent: the numbers that lent descriptors have in it, in the order given.
    """

    pid: int
    to: IO[bytes]
    from_: IO[bytes]
    lent: tuple[int, ...]


class Starts(Protocol):
    """Starts the engine's process, and takes its exit status."""

    async def start(self, lent: Sequence[int]) -> Started:
        """Start it.

        Args:
            lent: descriptors that it inherits.

        Raises:
            OSError: it cannot be started.
            EngineFailedError: there is no process that could start it.
        """
        ...

    async def reap(self, pid: int, patience_s: float) -> int:
        """Return its exit status; if it does not end in time, it is killed.

        Args:
            pid: of a process that was started here.
            patience_s: how long it may take to end, in seconds.

        Raises:
            EngineFailedError: its status is lost.
        """
        ...


class HereStarts:
    """Starts it as a child of this process."""

    def __init__(self) -> None:
        self._children: dict[int, subprocess.Popen[bytes]] = {}

    async def start(self, lent: Sequence[int]) -> Started:
        """Start it; see the Protocol."""
        popen = spawn(subprocess.PIPE, subprocess.PIPE, lent)
        self._children[popen.pid] = popen
        to, from_ = cast("IO[bytes]", popen.stdin), cast("IO[bytes]", popen.stdout)
        return Started(popen.pid, to, from_, tuple(lent))

    async def reap(self, pid: int, patience_s: float) -> int:
        """Return its exit status; see the Protocol."""
        popen = self._children.pop(pid)
        reaping = asyncio.ensure_future(asyncio.to_thread(reaped, popen, patience_s))
        try:
            return await asyncio.shield(reaping)
        except asyncio.CancelledError:
            await reaping  # else a process would remain
            raise


def spawn(to: int, from_: int, lent: Sequence[int]) -> "subprocess.Popen[bytes]":
    """Start the engine's process.

    Args:
        to: a descriptor for its standard input, or ``subprocess.PIPE``.
        from_: one for its standard output, likewise.
        lent: descriptors that it inherits.

    Raises:
        OSError: it cannot be started.
    """
    return subprocess.Popen(  # noqa: S603 - our own interpreter and module; vfork
        command_of(MODULE),
        stdin=to,
        stdout=from_,
        stderr=subprocess.DEVNULL,  # a library's message may contain a text
        env=_environment(),
        bufsize=0,
        pass_fds=lent,
    )


def _environment() -> dict[str, str]:
    # Each token reads all weights: from large pages, that takes a fifth less time.
    found = environment(*KEPT_ENVIRONMENT)
    tunables = filter(None, (found.get("GLIBC_TUNABLES"), LARGE_PAGES))
    return found | {"GLIBC_TUNABLES": ":".join(tunables)}


def reaped(popen: "subprocess.Popen[bytes]", patience_s: float) -> int:
    """Return a process's exit status; if it does not end in time, it is killed."""
    with suppress(subprocess.TimeoutExpired):
        return popen.wait(patience_s)
    popen.kill()
    return popen.wait()
