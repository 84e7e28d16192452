"""TLS on both hops: nothing for an observer to track, counted before the handshake.

Contexts come from files. Every protocol but HTTP/1.1 is refused; clients need TLS 1.3,
gateways TLS 1.2 or later. An error in a file is reported under its key in the
configuration. A client's connection is counted before its handshake, not after: a
refused client gets no handshake and so no answer, since a handshake costs more than
everything else that the relay would do for it. After the handshake, ``connections``
takes over.
"""

import asyncio
import contextlib
import socket  # noqa: TID251 - a door
import ssl  # noqa: TID251 - a door
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from curtilage.relay.admission import AdmissionControl, ConnectionSlot
from curtilage.relay.config import TLSSettings
from curtilage.relay.errors import StartError
from curtilage.relay.refusals import RefusedError
from curtilage.relay.telemetry import Telemetry

PROTOCOLS: Final = ("http/1.1",)
"""ALPN: a peer that agrees on another protocol would send what we cannot read."""
ACCEPT_PAUSE_S: Final = 0.1
"""After a failed accept: the system may have no descriptor left for a while."""


class TLSListener:
    """Accepts connections, counts them, and performs their handshakes.

    Args:
        sockets: bound, listening, not blocking; closed with this.
        context: of the handshakes.
        timeout_s: how long a handshake may take.
        admission: counts.
        telemetry: where refusals are counted.
        make: makes the protocol that takes over after a handshake.
    """

    def __init__(
        self,
        sockets: Sequence[socket.socket],
        context: ssl.SSLContext,
        *,
        timeout_s: float,
        admission: AdmissionControl,
        telemetry: Telemetry,
        make: Callable[[ConnectionSlot], asyncio.Protocol],
    ) -> None:
        self.sockets = sockets
        self._context = context
        self._timeout_s = timeout_s
        self._admission = admission
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
            # Before the close: the selector must not keep a closed descriptor.
            self._loop.remove_reader(listening.fileno())
            listening.close()

    async def _accept(self, listening: socket.socket) -> None:
        while True:
            try:
                accepted, address = await self._loop.sock_accept(listening)
            except OSError:
                await asyncio.sleep(ACCEPT_PAUSE_S)
                continue
            try:
                slot = self._admission.admit(str(address[0]))
            except RefusedError as refused:
                self._telemetry.rejected(refused.refusal)
                accepted.close()
            else:
                task = self._loop.create_task(self._shake_hands(accepted, slot))
                # Held: the loop keeps only weak references to tasks and may lose it.
                self._handshakes.add(task)
                task.add_done_callback(self._handshakes.discard)
            # A queue that never empties must not hold up other tasks.
            await asyncio.sleep(0)

    async def _shake_hands(self, accepted: socket.socket, slot: ConnectionSlot) -> None:
        # A failed handshake is not worth a report.
        with contextlib.suppress(OSError):
            try:
                await self._loop.connect_accepted_socket(
                    partial(self._make, slot),
                    accepted,
                    ssl=self._context,
                    ssl_handshake_timeout=self._timeout_s,
                )
            except BaseException:
                # No protocol exists yet that would: a client that never ends its
                # handshake would hold its slot for ever.
                self._admission.release(slot)
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


def make_server_context(tls: TLSSettings) -> ssl.SSLContext:
    """Return the TLS context for clients.

    Raises:
        StartError: a file cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # TLS 1.2 sends a client's certificate and, on resumption, a session id in clear: an
    # observer of the line could identify the client or link two connections. A session
    # ticket would too.
    _restrict(context, ssl.TLSVersion.TLSv1_3)
    context.num_tickets = 0
    try:
        # An encrypted key gets an empty password: there is no prompt.
        context.load_cert_chain(tls.certificate, tls.key, password=lambda: b"")
    except (OSError, ValueError) as error:
        raise _unusable("tls.certificate or tls.key", error) from None
    if tls.client_ca is not None:
        try:
            context.load_verify_locations(tls.client_ca)
        except (OSError, ValueError) as error:
            raise _unusable("tls.client_ca", error) from None
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def make_client_context(ca_file: Path | None) -> ssl.SSLContext:
    """Return the TLS context for gateways: verified, including the name.

    Args:
        ca_file: trust these certificates, not the system's.

    Raises:
        StartError: the file cannot be used.
    """
    try:
        context = ssl.create_default_context(
            cafile=None if ca_file is None else str(ca_file)
        )
    except (OSError, ValueError) as error:
        raise _unusable("upstream_ca_file", error) from None
    _restrict(context, ssl.TLSVersion.TLSv1_2)
    return context


def _restrict(context: ssl.SSLContext, oldest: ssl.TLSVersion) -> None:
    context.minimum_version = oldest
    context.set_alpn_protocols(PROTOCOLS)


def _unusable(what: str, error: Exception) -> StartError:
    reason = "not usable PEM, or the key is another certificate's"
    if isinstance(error, OSError) and not isinstance(error, ssl.SSLError):
        reason = error.strerror or reason
    return StartError(f"cannot start: {what}: {reason}")
