"""A process that starts engines for a server that has locked itself, and nothing else.

A locked server can start no program, and an engine that ended must be replaced. So it
starts this process before it locks itself. It holds no text and no key; when asked, it
starts the engine's process and hands over the two ends of its pipes (SCM_RIGHTS). Code
that took over the server could so start engines, which confine themselves.
"""

import asyncio
import json
import os
import signal
import socket  # noqa: TID251 - a door
import subprocess  # noqa: TID251 - a door
import sys
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import IO, Final, cast

from curtilage.inference.errors import EngineFailedError
from curtilage.inference.process.starting import (
    KEPT_ENVIRONMENT,
    Started,
    reaped,
    spawn,
)
from curtilage.sandbox.kernel import adopt_orphans
from curtilage.sandbox.parent import command_of, environment
from curtilage.sandbox.wall import no_network

STARTER: Final = "curtilage.inference.process.starter"
MOST_BYTES: Final = 4096
MOST_LENT: Final = 4
"""A model's file and an adapter's; and room."""
END_S: Final = 10.0
"""How long it may take to end."""
_BOTH_ENDS: Final = 2
_START: Final = "start"
_REAP: Final = "reap"
_GONE: Final = "the process that starts the engine's is gone"


class StarterStarts:
    """Starts engines through a starter, a child of this process.

    Make it before this process is locked.

    Raises:
        OSError: the starter cannot be started.
    """

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._starter = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                command_of(STARTER),
                stdin=theirs.fileno(),
                stdout=subprocess.PIPE,  # for its end: it writes nothing
                stderr=subprocess.DEVNULL,
                env=environment(*KEPT_ENVIRONMENT),
            )
        self._line = ours
        self._turn = asyncio.Lock()

    @property
    def pid(self) -> int:
        """The starter's id."""
        return self._starter.pid

    def watch(self, lost: Callable[[], object]) -> None:
        """Call back when the starter has ended; from within an event loop."""
        loop, pipe = asyncio.get_running_loop(), cast("IO[bytes]", self._starter.stdout)

        def ended() -> None:
            if os.read(pipe.fileno(), 1) == b"":
                loop.remove_reader(pipe)
                lost()

        loop.add_reader(pipe, ended)

    async def start(self, lent: Sequence[int]) -> Started:
        """Have it started; see the Protocol."""
        asking = asyncio.ensure_future(self._asked({"word": _START}, lent))
        try:
            said, found = await asyncio.shield(asking)
        except asyncio.CancelledError:
            with suppress(EngineFailedError):
                _close((await asking)[1])  # it ends with its pipe
            raise
        if len(found) == _BOTH_ENDS:
            to, from_ = found
            return Started(
                pid=cast("int", said["pid"]),
                to=os.fdopen(to, "wb", buffering=0),
                from_=os.fdopen(from_, "rb", buffering=0),
                lent=tuple(cast("list[int]", said["lent"])),
            )
        _close(found)
        number = cast("int", said["errno"])
        raise OSError(number, os.strerror(number))

    async def reap(self, pid: int, patience_s: float) -> int:
        """Have it reaped; see the Protocol."""
        asked: dict[str, object] = {"word": _REAP, "pid": pid, "patience_s": patience_s}
        asking = asyncio.ensure_future(self._asked(asked, ()))
        try:
            said, _ = await asyncio.shield(asking)
        except asyncio.CancelledError:
            with suppress(EngineFailedError):
                await asking  # else a process would remain
            raise
        return cast("int", said["status"])

    def close(self) -> None:
        """End the starter, and with it the engines that it started."""
        self._line.close()
        with suppress(subprocess.TimeoutExpired):
            self._starter.wait(END_S)
        cast("IO[bytes]", self._starter.stdout).close()

    async def _asked(
        self, asked: dict[str, object], lent: Sequence[int]
    ) -> tuple[dict[str, object], list[int]]:
        async with self._turn:
            return await asyncio.to_thread(self._exchanged, asked, lent)

    def _exchanged(
        self, asked: dict[str, object], lent: Sequence[int]
    ) -> tuple[dict[str, object], list[int]]:
        try:
            socket.send_fds(self._line, [json.dumps(asked).encode("ascii")], lent)
            data, found, _, _ = socket.recv_fds(self._line, MOST_BYTES, _BOTH_ENDS)
        except OSError:
            raise EngineFailedError(_GONE) from None
        if not data:
            raise EngineFailedError(_GONE)
        return cast("dict[str, object]", json.loads(data)), found


def main() -> int:
    """Start engines until the other end of the line is closed."""
    # Inherited by the engines, which build closer walls of their own. Landlock would
    # forbid them to mount.
    no_network()
    # Processes for one request each, if the one that forked them has ended.
    adopt_orphans()
    children: dict[int, subprocess.Popen[bytes]] = {}
    with socket.socket(fileno=os.dup(0)) as line:
        while True:
            data, lent, _, _ = socket.recv_fds(line, MOST_BYTES, MOST_LENT)
            if not data:
                break
            asked = json.loads(data)
            if asked["word"] == _START:
                _start(line, lent, children)
            else:
                status = reaped(children.pop(asked["pid"]), asked["patience_s"])
                line.sendall(json.dumps({"status": status}).encode("ascii"))
            _reap_orphans(children)
    for popen in children.values():
        popen.kill()
        popen.wait()
    return 0


def _reap_orphans(children: Collection[int]) -> None:
    """Reap what has ended, but no child of ours: its status is asked for."""
    ended = os.WEXITED | os.WNOHANG | os.WNOWAIT
    with suppress(ChildProcessError):
        while (found := os.waitid(os.P_ALL, 0, ended)) is not None:
            if found.si_pid in children:
                return
            os.waitpid(found.si_pid, 0)


def _start(
    line: socket.socket, lent: list[int], children: dict[int, "subprocess.Popen[bytes]"]
) -> None:
    pipes: list[int] = []
    try:
        pipes += os.pipe()
        pipes += os.pipe()
        their_input, to, from_, their_output = pipes
        popen = spawn(their_input, their_output, lent)
        children[popen.pid] = popen
        said = json.dumps({"pid": popen.pid, "lent": lent}).encode("ascii")
        socket.send_fds(line, [said], [to, from_])
    except OSError as error:
        line.sendall(json.dumps({"errno": error.errno or 0}).encode("ascii"))
    finally:
        _close((*pipes, *lent))


def _close(descriptors: Sequence[int]) -> None:
    for each in descriptors:
        os.close(each)


if __name__ == "__main__":
    # A terminal, or a supervisor, sends them to the whole group; the server decides
    # when this process ends, and its engines, which inherit this.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    sys.exit(main())
