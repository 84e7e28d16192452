"""TLS towards clients: a connection is counted before its handshake, not after.

Knows sockets and the door; what follows a handshake is ``connections``'. Who is
refused at the door gets no handshake either, and so no words: one costs more than
everything that the relay would do for him.
"""

import asyncio
import contextlib
import socket  # noqa: TID251 - a door
import ssl  # noqa: TID251 - a door
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from curtilage.relay.door import Door, Seat
from curtilage.relay.forward import RefusedError
from curtilage.relay.telemetry import Telemetry

ACCEPT_PAUSE_S: Final = 0.1
"""After a failed accept: the system may have no descriptor left for a while."""


class TLSListener:
    """Accepts connections, counts them, and lets them shake hands.

    Args:
        sockets: bound, listening, not blocking; closed with this.
        context: of the handshakes.
        timeout_s: how long one may take.
        door: counts.
        telemetry: where refusals are counted.
        make: makes the protocol that goes on after a handshake.
    """

    def __init__(
        self,
        sockets: Sequence[socket.socket],
        context: ssl.SSLContext,
        *,
        timeout_s: float,
        door: Door,
        telemetry: Telemetry,
        make: Callable[[Seat], asyncio.Protocol],
    ) -> None:
        self.sockets = sockets
        self._context = context
        self._timeout_s = timeout_s
        self._door = door
        self._telemetry = telemetry
        self._make = make
        self._loop = asyncio.get_running_loop()
        self._handshakes: set[asyncio.Task[None]] = set()
        self._accepting = [
            self._loop.create_task(self._accept(listening)) for listening in sockets
        ]

    def close(self) -> None:
        """Stop listening; handshakes that have not ended are cut."""
        for task in (*self._accepting, *self._handshakes):
            task.cancel()
        for listening in self.sockets:
            # What waits in accept is told before the descriptor goes.
            self._loop.remove_reader(listening.fileno())
            listening.close()

    async def _accept(self, listening: socket.socket) -> None:
        while True:
            try:
                accepted, address = await self._loop.sock_accept(listening)
            except OSError:
                await asyncio.sleep(ACCEPT_PAUSE_S)
                continue
            self._admit(accepted, str(address[0]))
            # A queue that never empties must not hold up everybody else.
            await asyncio.sleep(0)

    def _admit(self, accepted: socket.socket, address: str) -> None:
        try:
            seat = self._door.enter(address)
        except RefusedError as refused:
            self._telemetry.rejected(refused.refusal)
            accepted.close()
            return
        task = self._loop.create_task(self._shake_hands(accepted, seat))
        self._handshakes.add(task)
        task.add_done_callback(self._handshakes.discard)

    async def _shake_hands(self, accepted: socket.socket, seat: Seat) -> None:
        # A handshake that fails is nothing to tell anybody.
        with contextlib.suppress(OSError):
            try:
                await self._loop.connect_accepted_socket(
                    partial(self._make, seat),
                    accepted,
                    ssl=self._context,
                    ssl_handshake_timeout=self._timeout_s,
                )
            except BaseException:
                self._door.leave(seat)
                raise


async def bind(host: str, port: int, *, backlog: int) -> list[socket.socket]:
    """Listen on every address of a host.

    Raises:
        OSError: one of them cannot be used.
    """
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    sockets: list[socket.socket] = []
    try:
        for family, address in dict.fromkeys((one[0], one[4]) for one in found):
            listening = socket.create_server(address, family=family, backlog=backlog)
            listening.setblocking(False)
            sockets.append(listening)
    except OSError:
        for listening in sockets:
            listening.close()
        raise
    return sockets
