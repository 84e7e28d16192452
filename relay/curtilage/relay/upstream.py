"""The door outward: aiohttp as a client of the gateways.

Adds nothing of its own to a request and takes nothing from an answer but its
status, its type, its length and its content. Follows no redirect, keeps no
cookie, decompresses nothing, sends nothing twice. All clients of the relay
share one pool, so that no connection here stands for one client there.
"""

import asyncio
import ssl
from collections.abc import AsyncGenerator
from types import TracebackType
from typing import Final

import aiohttp

from curtilage.relay import forward
from curtilage.relay.config import HTTPUpstream, RelayConfig, UnixAddress
from curtilage.relay.forward import Passage, Refusal, RefusedError

IDLE_S: Final = 10.0
"""Shorter than a gateway keeps connections: a request sent into one that is
being closed is lost, and nothing is ever sent twice."""
MAX_FIELD_BYTES: Final = 8190
QUIET: Final = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")
UNIX_ORIGIN: Final = "http://localhost"


class UpstreamAnswer:
    """A gateway's answer whose head may pass.

    Args:
        response: the answer as it arrives.

    Attributes:
        head: what may pass of it.

    Raises:
        RefusedError: it may not pass.
    """

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.head = forward.admit_answer(response.status, response.raw_headers)

    async def whole(self, max_bytes: int) -> bytes:
        """Read the content to its end.

        Raises:
            RefusedError: too large, too slow or cut.
        """
        return b"".join([piece async for piece in self.pieces(max_bytes)])

    async def pieces(self, max_bytes: int) -> AsyncGenerator[bytes]:
        """Yield the content as it comes.

        Raises:
            RefusedError: too large, too slow or cut.
        """
        seen = 0
        while True:
            with _told_as_refusal():
                piece = await self._response.content.readany()
            if not piece:
                return
            seen += len(piece)
            if seen > max_bytes:
                raise RefusedError(Refusal.GATEWAY_ANSWER)
            yield piece

    def close(self) -> None:
        """Let go; a connection whose answer was read to its end is pooled."""
        self._response.close()


class Upstreams:
    """The pools that all clients share: one for TCP, one per UNIX socket.

    Args:
        config: the gateways and the limits.

    Raises:
        OSError: the certificate file cannot be used.
    """

    def __init__(self, config: RelayConfig) -> None:
        self._config = config
        ca_file = config.upstream_ca_file
        tls = ssl.create_default_context(
            cafile=None if ca_file is None else str(ca_file)
        )
        self._tcp = self._open(
            aiohttp.TCPConnector(limit=0, ssl=tls, keepalive_timeout=IDLE_S)
        )
        self._unix = {
            upstream.path: self._open(
                aiohttp.UnixConnector(upstream.path, limit=0, keepalive_timeout=IDLE_S)
            )
            for upstream in config.gateways.values()
            if isinstance(upstream, UnixAddress)
        }

    async def fetch(
        self, gateway: str, *, path: str, media_type: str, max_bytes: int
    ) -> bytes:
        """Fetch keys or bundle, whole.

        Raises:
            RefusedError: unreachable, slow, too large or of another type.
        """
        session, origin = self._session(gateway)
        with _told_as_refusal():
            async with (
                asyncio.timeout(self._config.limits.fetch_timeout_s),
                session.get(origin + path, allow_redirects=False) as response,
            ):
                forward.admit_copy(
                    response.status, response.raw_headers, media_type=media_type
                )
                return await _read(response, max_bytes)

    async def ask(self, passage: Passage, content: bytes) -> UpstreamAnswer:
        """Send a request, once, and return the answer's head.

        Args:
            passage: the request.
            content: its content, whole.

        Raises:
            RefusedError: unreachable, slow, or an answer that may not pass.
        """
        session, origin = self._session(passage.place.gateway)
        with _told_as_refusal():
            response = await session.post(
                origin + forward.GATEWAY_PATH,
                data=content,
                headers=forward.request_fields(passage, length=len(content)),
                allow_redirects=False,
            )
        try:
            return UpstreamAnswer(response)
        except RefusedError:
            response.close()
            raise

    async def close(self) -> None:
        """Close every connection."""
        for session in (self._tcp, *self._unix.values()):
            await session.close()

    def _session(self, gateway: str) -> tuple[aiohttp.ClientSession, str]:
        upstream = self._config.gateways[gateway]
        if isinstance(upstream, HTTPUpstream):
            return self._tcp, upstream.origin
        return self._unix[upstream.path], UNIX_ORIGIN

    def _open(self, connector: aiohttp.BaseConnector) -> aiohttp.ClientSession:
        limits = self._config.limits
        return aiohttp.ClientSession(
            # The connector's own limit would let a request wait unseen; the
            # relay has one that refuses.
            connector=connector,
            timeout=aiohttp.ClientTimeout(
                total=None,
                sock_connect=limits.connect_timeout_s,
                sock_read=limits.upstream_read_timeout_s,
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=QUIET,
            auto_decompress=False,
            trust_env=False,
            max_line_size=MAX_FIELD_BYTES,
            max_field_size=MAX_FIELD_BYTES,
        )


class _told_as_refusal:  # noqa: N801 - reads as a statement
    """Turn what aiohttp and the system raise into a refusal, without its words."""

    def __enter__(self) -> None:
        """Enter."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Replace what was raised."""
        if isinstance(error, TimeoutError):
            raise RefusedError(Refusal.GATEWAY_TIMEOUT) from None
        if isinstance(error, aiohttp.ClientConnectorError | ConnectionError):
            raise RefusedError(Refusal.GATEWAY_UNREACHABLE) from None
        if isinstance(error, aiohttp.ClientError | OSError):
            raise RefusedError(Refusal.GATEWAY_ANSWER) from None


async def _read(response: aiohttp.ClientResponse, max_bytes: int) -> bytes:
    content = b""
    async for piece in response.content.iter_any():
        content += piece
        if len(content) > max_bytes:
            raise RefusedError(Refusal.GATEWAY_ANSWER)
    return content
