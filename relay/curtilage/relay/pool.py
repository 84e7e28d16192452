"""Pool of connections to one gateway, shared by all clients.

Knows where a gateway is and how long a connection may be idle; nothing of the
content that passes over it, and nothing of the clients.
"""

import asyncio
import ssl  # noqa: TID251 - a door
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar
from urllib.parse import urlsplit

from curtilage.relay.config import UnixAddress, Upstream
from curtilage.relay.refusals import Refusal, RefusedError

IDLE_S: Final = 10.0
"""Shorter than a gateway keeps connections: a request sent into a connection that is
being closed is lost, and nothing is ever sent twice."""
UNIX_HOST: Final = "localhost"
TLS_PORT: Final = 443
PLAIN_PORT: Final = 80


class Poolable(Protocol):
    """The interface of a pooled connection."""

    idle_since: float
    """Time at which it was put back, on the loop's clock."""

    @property
    def usable(self) -> bool:
        """Whether a request may be sent."""
        ...

    def free(self) -> None:
        """End the watches of the current request."""
        ...

    def close(self) -> None:
        """Close an idle connection."""
        ...

    def abort(self) -> None:
        """Abort a connection in any state."""
        ...


ConnectionT = TypeVar("ConnectionT", bound=Poolable)
Dial = Callable[
    [Callable[[], asyncio.Protocol]],
    Coroutine[Any, Any, tuple[asyncio.BaseTransport, asyncio.BaseProtocol]],
]
"""Opens a connection with the protocol that the given factory makes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Location of a gateway.

    Attributes:
        host: the value of Host.
        dial: opens a connection to it.
    """

    host: str
    dial: Dial


class Pool(Generic[ConnectionT]):
    """The connections to one gateway; the one used last is used next.

    Args:
        open_one: opens a connection; raises OSError.
        connect_timeout_s: how long that may take.
    """

    def __init__(
        self,
        open_one: Callable[[], Coroutine[Any, Any, ConnectionT]],
        *,
        connect_timeout_s: float,
    ) -> None:
        self._open_one = open_one
        self._connect_timeout_s = connect_timeout_s
        self._loop = asyncio.get_running_loop()
        self._idle: list[ConnectionT] = []
        self._busy: set[ConnectionT] = set()
        self._sweep: asyncio.TimerHandle | None = None

    async def take(self) -> ConnectionT:
        """Return a connection for one request.

        Raises:
            RefusedError: the gateway cannot be reached.
        """
        # Any client's request uses any connection: a connection for each client would
        # show the gateway which requests belong together.
        while self._idle:
            connection = self._idle.pop()
            # It may have ended, or grown too old, since it was put back.
            if self._is_fresh(connection):
                self._busy.add(connection)
                return connection
            connection.close()
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                connection = await self._open_one()
        except TimeoutError:
            raise RefusedError(Refusal.GATEWAY_TIMEOUT) from None
        except OSError:
            # Includes certificate errors. The error's text is dropped: it names
            # addresses.
            raise RefusedError(Refusal.GATEWAY_UNREACHABLE) from None
        self._busy.add(connection)
        return connection

    def put_back(self, connection: ConnectionT, *, reusable: bool) -> None:
        """Take back a connection, or end it."""
        self._busy.discard(connection)
        # First: its watches and its reader still belong to the request that ended.
        connection.free()
        if not (reusable and connection.usable):
            # Not close: unread or unsent data on it belongs to no request any more.
            connection.abort()
            return
        connection.idle_since = self._loop.time()
        self._idle.append(connection)
        if self._sweep is None:
            self._sweep = self._loop.call_later(IDLE_S, self._close_old)

    def close(self) -> None:
        """End every connection."""
        if self._sweep is not None:
            self._sweep.cancel()
        for connection in (*self._idle, *self._busy):
            connection.abort()
        self._idle.clear()

    def _is_fresh(self, connection: ConnectionT) -> bool:
        age_s = self._loop.time() - connection.idle_since
        return age_s < IDLE_S and connection.usable

    def _close_old(self) -> None:
        kept = [one for one in self._idle if self._is_fresh(one)]
        for connection in self._idle:
            if connection not in kept:
                connection.close()
        self._idle = kept
        self._sweep = self._loop.call_later(IDLE_S, self._close_old) if kept else None


def make_target(upstream: Upstream, tls: ssl.SSLContext) -> Target:
    """Split an address into its parts, once.

    Args:
        upstream: where the gateway is.
        tls: the context for https.
    """
    loop = asyncio.get_running_loop()
    if isinstance(upstream, UnixAddress):
        path = upstream.path
        return Target(
            host=UNIX_HOST, dial=lambda make: loop.create_unix_connection(make, path)
        )
    url = urlsplit(upstream.origin)
    host = url.hostname or ""
    # Plain HTTP is allowed only where the configuration says so: on this machine.
    context = tls if url.scheme == "https" else None
    port = url.port or (PLAIN_PORT if context is None else TLS_PORT)
    return Target(
        host=url.netloc,
        dial=lambda make: loop.create_connection(make, host, port, ssl=context),
    )
