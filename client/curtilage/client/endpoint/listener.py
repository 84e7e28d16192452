"""The gateway's socket: TLS handshakes, limited in number and time, and its context.

A connection counts from its beginning: aiohttp knows it only after its handshake, and
many that never end theirs would take every descriptor. The context is replaced between
two handshakes, so connections go on under the one that they began with.
"""

import asyncio
import socket  # noqa: TID251 - a door
import ssl  # noqa: TID251 - a door
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final

from curtilage.client.endpoint.admission import BACKLOG
from curtilage.client.endpoint.gateway_file import TLSFiles
from curtilage.client.errors import ConfigError, ListenError
from curtilage.client.system.tls import trouble

HANDSHAKE_S: Final = 10.0
SHUTDOWN_S: Final = 3.0
"""For the end of TLS, while a closed connection holds a descriptor."""
MAX_HANDSHAKES: Final = 64
"""At the same time; for the next one, the oldest is closed."""
ACCEPT_PAUSE_S: Final = 0.1
"""After a failed accept: the system may have no descriptor left for a while."""

Make = Callable[[], asyncio.Protocol]


class Listener:
    """Accepts connections and performs their handshakes; for one event loop.

    Args:
        host: a numeric address.
        port: 0 takes a free one.
        context: of the handshakes; None: plain HTTP.
        make: makes the protocol that takes over after a handshake.

    Attributes:
        context: of the next handshake.
        port: in use.

    Raises:
        ListenError: the address cannot be used.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        context: ssl.SSLContext | None,
        make: Make,
    ) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            self._socket = socket.create_server(
                (host, port), family=family, backlog=BACKLOG
            )
        except OSError as failure:
            raise ListenError(
                f"cannot listen on {host}, port {port}: {failure.strerror}"
            ) from None
        self._socket.setblocking(False)
        self.port = int(self._socket.getsockname()[1])
        self.context = context
        self._make = make
        self._loop = asyncio.get_running_loop()
        self._handshakes: dict[asyncio.Task[None], None] = {}
        self._accepting = self._loop.create_task(self._accept())

    def close(self) -> None:
        """Stop listening; handshakes that have not ended are cut."""
        for task in (self._accepting, *self._handshakes):
            task.cancel()
        # Before the close: the selector must not keep a closed descriptor.
        self._loop.remove_reader(self._socket.fileno())
        self._socket.close()

    async def _accept(self) -> None:
        while True:
            try:
                accepted, _ = await self._loop.sock_accept(self._socket)
            except OSError:
                await asyncio.sleep(ACCEPT_PAUSE_S)
                continue
            if len(self._handshakes) >= MAX_HANDSHAKES:
                oldest = next(iter(self._handshakes))
                del self._handshakes[oldest]
                oldest.cancel()
            task = self._loop.create_task(self._shake_hands(accepted))
            # Held: the loop keeps only weak references to tasks and may lose it.
            self._handshakes[task] = None
            task.add_done_callback(partial(self._done, accepted))
            # A queue that never empties must not hold up other tasks.
            await asyncio.sleep(0)

    def _done(self, accepted: socket.socket, task: asyncio.Task[None]) -> None:
        self._handshakes.pop(task, None)
        if task.cancelled():  # perhaps before it began
            accepted.close()

    async def _shake_hands(self, accepted: socket.socket) -> None:
        limits = (HANDSHAKE_S, SHUTDOWN_S) if self.context is not None else (None, None)
        # A failed handshake is not worth a report.
        with suppress(OSError):
            await self._loop.connect_accepted_socket(
                self._make,
                accepted,
                ssl=self.context,
                ssl_handshake_timeout=limits[0],
                ssl_shutdown_timeout=limits[1],
            )


def server_context(files: TLSFiles) -> ssl.SSLContext:
    """Return the TLS settings of the gateway: 1.3, HTTP/1.1, its own certificate.

    Raises:
        ConfigError: a file cannot be used; names it.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    # By a ticket an observer of the network could link two connections.
    context.num_tickets = 0
    context.set_alpn_protocols(["http/1.1"])
    for path in (files.certificate, files.key):
        # The library's error does not say which of the two it could not open.
        try:
            with path.open("rb"):
                pass
        except OSError as failure:
            raise ConfigError(f"{path}: {failure.strerror}") from None
    try:
        # An encrypted key gets an empty password: there is no prompt.
        context.load_cert_chain(files.certificate, files.key, password=lambda: b"")
    except (OSError, ValueError) as failure:
        wrong = "not a certificate and its private key"
        what = wrong if isinstance(failure, ValueError) else trouble(failure, wrong)
        raise ConfigError(f"{files.certificate}, {files.key}: {what}") from None
    return context
