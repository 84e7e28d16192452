"""The life cycle of one relay: start, serve, drain.

Knows addresses and what signals mean. Requests are handled by ``service``, and read
and written by ``connections``.
"""

import asyncio
import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from curtilage.relay.config import Listen, RelayConfig, UnixAddress
from curtilage.relay.connections import Server
from curtilage.relay.errors import StartError
from curtilage.relay.refusals import Refusal
from curtilage.relay.service import Service
from curtilage.relay.telemetry import StateLog, Telemetry, silence_libraries
from curtilage.relay.tls import TLSListener, bind, make_server_context
from curtilage.relay.upstream import Upstreams

BACKLOG: Final = 512
CANCEL_S: Final = 1.0
"""Time that handlers have to end once they are cancelled."""


class Relay:
    """One relay: start, serve, stop.

    Args:
        config: what it does.
        telemetry: where it counts.
        log: takes a line for each change of state; with None, none are written.
    """

    def __init__(
        self,
        config: RelayConfig,
        *,
        telemetry: Telemetry,
        log: StateLog | None = None,
    ) -> None:
        self._log = log or StateLog(config.gateways)
        self._config = config
        self._telemetry = telemetry
        self._service: Service | None = None
        self._server: Server | None = None
        self._listener: asyncio.Server | TLSListener | None = None

    async def start(self) -> str:
        """Listen; return the address as the configuration would write it.

        Raises:
            StartError: the address or a certificate file cannot be used.
        """
        # Before anything that may fail: messages of libraries quote peers' bytes.
        silence_libraries()
        asyncio.get_running_loop().set_exception_handler(self._on_loop_error)
        try:
            upstreams = Upstreams(self._config)
            self._service = Service(
                self._config,
                telemetry=self._telemetry,
                upstreams=upstreams,
                log=self._log,
            )
            return await self._listen(self._service)
        except OSError as error:
            await self.stop()
            reason = error.strerror or type(error).__name__
            raise StartError(f"cannot start: {reason}") from None

    async def stop(self, hurry: asyncio.Event | None = None) -> None:
        """Stop listening, let running requests end, close everything.

        Args:
            hurry: set when an operator does not want to wait any longer.
        """
        await self._drain(hurry or asyncio.Event())
        # Handlers before the gateways' connections: each handler returns its own.
        if self._server is not None:
            await self._server.shutdown(CANCEL_S)
            self._server = None
        if self._service is not None:
            await self._service.close()
            self._service = None

    async def _drain(self, hurry: asyncio.Event) -> None:
        limits = self._config.limits
        # /healthz reports it first, while we still listen: a load balancer can then
        # send clients to other relays before any is refused.
        if self._service is not None:
            self._service.draining = True
        if self._listener is not None and self._server is not None:
            self._server.draining = True
            if limits.drain_delay_s:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(limits.drain_delay_s):
                        await hurry.wait()
            self._listener.close()
            self._listener = None
            _remove_socket(self._config.listen)
            # A padded answer takes a while. One that is cut off is lost, since no
            # request is ever sent twice.
            if self._server.close_idle():
                waits = (self._server.quiet.wait(), hurry.wait())
                tasks = [asyncio.create_task(wait) for wait in waits]
                await asyncio.wait(
                    tasks,
                    timeout=limits.shutdown_grace_s,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                for task in tasks:
                    task.cancel()

    async def _listen(self, service: Service) -> str:
        listen, loop = self._config.listen, asyncio.get_running_loop()
        self._server = server = Server(service, self._config, telemetry=self._telemetry)
        if isinstance(listen, UnixAddress):
            self._listener = await loop.create_unix_server(
                server, listen.path, backlog=BACKLOG
            )
            return f"unix:{listen.path}"
        listener: asyncio.Server | TLSListener
        if self._config.tls is None:
            listener = await loop.create_server(
                server, listen.host, listen.port, backlog=BACKLOG
            )
        else:
            # The files first: errors in them are reported before a port is taken.
            context = make_server_context(self._config.tls)
            listener = TLSListener(
                await bind(listen.host, listen.port, backlog=BACKLOG),
                context,
                timeout_s=self._config.limits.header_timeout_s,
                admission=server.admission,
                telemetry=self._telemetry,
                make=server.protocol_for,
            )
        self._listener = listener
        # The actual address, not the configured one: port 0 picks a free port.
        host = f"[{listen.host}]" if ":" in listen.host else listen.host
        return f"{host}:{listener.sockets[0].getsockname()[1]}"

    def _on_loop_error(self, _: object, __: Mapping[str, object]) -> None:
        # asyncio's default prints its context, which includes peers' bytes.
        self._telemetry.rejected(Refusal.INTERNAL)


def _remove_socket(listen: Listen) -> None:
    if isinstance(listen, UnixAddress):
        Path(listen.path).unlink(missing_ok=True)
