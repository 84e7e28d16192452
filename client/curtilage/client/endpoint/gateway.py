"""The gateway of a department: the same API over TLS, for applications with a key.

Who asks is known by the key alone, never by an account or an address. Each application
has its own share of the detectors and the models, its own limit of requests in
progress, and its own memory of conversations; the audit trail has its name. Nothing
that is sent depends on it.
"""

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final, cast

from aiohttp import web
from typing_extensions import override

from curtilage.client import telemetry
from curtilage.client.endpoint.accounts import Callers
from curtilage.client.endpoint.admission import (
    Connection,
    Server,
    affordable_connections,
    page,
)
from curtilage.client.endpoint.gateway_file import GatewayFile
from curtilage.client.endpoint.keys import Keys
from curtilage.client.endpoint.listener import Listener, server_context
from curtilage.client.endpoint.openai_answers import TOO_MANY
from curtilage.client.endpoint.server import (
    OWN_SITES,
    RETRY_AFTER_S,
    SHUTDOWN_S,
    Endpoint,
    error_page,
    unauthorized,
)
from curtilage.client.session import Session
from curtilage.client.system.fair_queue import (
    APPLICATION,
    ASKER,
    CALLER,
    Asker,
    caller_of,
)

_HOST: Final = re.compile(r"([^:\[\]]+|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?")
_ORIGIN: Final = re.compile(r"https://(.+)")
NOT_NAMED: Final = page(
    "this gateway does not answer to the name in Host, or a page of another site asked",
    code="unknown_host",
)
NO_KEY: Final = page(
    "this gateway answers applications that send their key as api_key (Authorization: "
    "Bearer KEY); the one of this request is missing, wrong or revoked. Its operator "
    "makes keys with `curtilage gateway make-key NAME`",
    code="invalid_api_key",
)
IN_PROGRESS: Final = page(
    "this application has as many requests in progress as the gateway permits one; "
    "try again later",
    kind="rate_limit_error",
    code="rate_limit_exceeded",
)


class Gateway:
    """A running gateway, whose file may be replaced.

    Args:
        session: answers the requests.
        file: the settings.

    Raises:
        ConfigError: the certificate or its key cannot be used.
        ListenError: the address cannot be used.
    """

    def __init__(self, session: Session, file: GatewayFile) -> None:
        self._endpoint = _GatewayEndpoint(session, file)
        self._server = Server(self._endpoint.handle, most=affordable_connections())
        self._file = file
        context = None if file.tls is None else server_context(file.tls)
        self._listener = Listener(
            file.host, file.port, context=context, make=self._server
        )

    @property
    def url(self) -> str:
        """The base URL at the address that it listens on."""
        host = f"[{self._file.host}]" if ":" in self._file.host else self._file.host
        scheme = "http" if self._file.tls is None else "https"
        return f"{scheme}://{host}:{self._listener.port}/v1"

    @property
    def applications(self) -> tuple[str, ...]:
        """The applications that have a key."""
        return self._endpoint.keys.applications

    def replace(self, file: GatewayFile) -> bool:
        """Take another file's settings; answers in progress go on.

        Returns:
            Whether all were taken: the address and whether there is TLS are not.

        Raises:
            ConfigError: the certificate or its key cannot be used; nothing is changed.
        """
        mine = self._file
        same = (file.host, file.port) == (mine.host, mine.port)
        if self._listener.context is not None and file.tls is not None:
            self._listener.context = server_context(file.tls)
        self._endpoint.take(file)
        return same and (file.tls is None) == (mine.tls is None)

    async def close(self) -> None:
        """Stop listening; give answers in progress some seconds to end."""
        self._listener.close()
        # Requests that have arrived are handled first.
        await asyncio.sleep(0)
        self._server.pre_shutdown()
        await self._server.shutdown(SHUTDOWN_S)


@asynccontextmanager
async def serving(session: Session, file: GatewayFile) -> AsyncGenerator[Gateway]:
    """Serve until the block ends.

    Args:
        session: answers the requests; the caller closes it.
        file: the gateway's settings.

    Raises:
        ConfigError: the certificate or its key cannot be used.
        ListenError: the address cannot be used.
    """
    telemetry.silence_libraries()
    async with AsyncExitStack() as stack:
        gateway = Gateway(session, file)
        stack.push_async_callback(gateway.close)
        yield gateway


class _GatewayEndpoint(Endpoint):
    """The handlers, for applications.

    Attributes:
        keys: that are accepted.
    """

    def __init__(self, session: Session, file: GatewayFile) -> None:
        super().__init__(session, Callers())
        self._asking: dict[Connection, str] = {}
        self._askers: dict[str, Asker] = {}
        self.take(file)

    def take(self, file: GatewayFile) -> None:
        """Take the names, keys and limits of a file."""
        self.keys = Keys(file.records)
        self._names = file.names
        self._most = file.in_progress

    @override
    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer; meanwhile the request counts as its application's."""
        try:
            return await super().handle(request)
        finally:
            self._asking.pop(cast("Connection", request.protocol), None)

    @override
    async def _admit(
        self, request: web.BaseRequest, connection: Connection
    ) -> web.Response | None:
        APPLICATION.set("")
        if not self._is_named(request):
            return self._refused(request, error_page(NOT_NAMED, 403))
        application = self.keys.application(request.headers.getall("Authorization", []))
        if application is None:
            return self._refused(request, unauthorized(NO_KEY))
        if sum(each == application for each in self._asking.values()) >= self._most:
            again = {"Retry-After": str(RETRY_AFTER_S)}
            return error_page(IN_PROGRESS, TOO_MANY, again)
        self._asking[connection] = application
        caller = f"application:{application}"
        if connection.asker.caller != caller:
            # Not the same object with another name: a proxy may ask for several.
            group = self._askers.setdefault(application, Asker(caller))
            connection.asker = Asker(caller, group)
        ASKER.set(connection.asker)
        APPLICATION.set(application)
        CALLER.set(caller_of(application))
        return None

    def _is_named(self, request: web.BaseRequest) -> bool:
        """Refuse requests to other names, and those that a web page sends."""
        hosts = request.headers.getall("Host", [])
        origins = request.headers.getall("Origin", [])
        sites = request.headers.getall("Sec-Fetch-Site", [])
        return (
            len(hosts) == 1
            and self._is_ours(hosts[0])
            and all(
                (match := _ORIGIN.fullmatch(origin)) is not None
                and self._is_ours(match[1])
                for origin in origins
            )
            and all(site.strip().lower() in OWN_SITES for site in sites)
        )

    def _is_ours(self, host: str) -> bool:
        match = _HOST.fullmatch(host.lower())
        return match is not None and match[1] in self._names
