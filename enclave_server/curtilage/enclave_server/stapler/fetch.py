"""The stapler's network access: bounded requests with retries, through aiohttp.

No redirect is followed, no cookie kept, no environment variable read. A failure that
may be temporary is retried with growing pauses. The result is bytes that are not
verified here.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Protocol, Self
from urllib.parse import urlsplit

import aiohttp

from curtilage.enclave_server.stapler.addresses import AZURE_IMDS
from curtilage.enclave_server.stapler.errors import FetchError

TIMEOUT_S: Final = 30.0
"""For one whole try."""
ATTEMPTS: Final = 4
FIRST_PAUSE_S: Final = 2.0
"""Before the second try; twice as long before each further one."""
MAX_HEADER_BYTES: Final = 16 * 1024
"""Intel sends a chain of two certificates in a header."""
HTTP_OK: Final = 200
PASSING: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Statuses for which another try may succeed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """An answer.

    Attributes:
        body: bounded.
        headers: lower-case names; the last value of repeated ones.
    """

    body: bytes = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)


class Fetches(Protocol):
    """Fetches from the vendors."""

    async def get(self, url: str, *, limit: int) -> Fetched:
        """Return the content of an address, at most ``limit`` bytes.

        Raises:
            FetchError: it is not available.
        """
        ...

    async def post(
        self, url: str, body: bytes, *, content_type: str, limit: int
    ) -> Fetched:
        """Return the response to a body, at most ``limit`` bytes.

        Raises:
            FetchError: there is none.
        """
        ...


class Fetcher:
    """Fetches over HTTPS; a context manager.

    Args:
        proxy: an ``http://`` proxy that forwards with CONNECT, or None.
        timeout_s: for one try.
        sleep: waits between tries.
    """

    def __init__(
        self,
        *,
        proxy: str | None = None,
        timeout_s: float = TIMEOUT_S,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._proxy = proxy
        self._timeout_s = timeout_s
        self._sleep = sleep
        self._session: aiohttp.ClientSession | None = None  # noqa: TID251 - a door

    async def __aenter__(self) -> Self:
        """Open the session."""
        self._session = aiohttp.ClientSession(  # noqa: TID251 - a door
            # The limit applies to received bytes: decompressed, a few may become
            # gigabytes.
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"User-Agent": "curtilage-stapler", "Accept-Encoding": "identity"},
            max_field_size=MAX_HEADER_BYTES,
            max_line_size=MAX_HEADER_BYTES,
            timeout=aiohttp.ClientTimeout(total=self._timeout_s),
            trust_env=False,
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close every connection."""
        if self._session is not None:
            await self._session.close()

    async def get(self, url: str, *, limit: int) -> Fetched:
        """Fetch, and retry while that may help; see the Protocol."""
        return await self._tried(url, limit, None, {})

    async def post(
        self, url: str, body: bytes, *, content_type: str, limit: int
    ) -> Fetched:
        """Ask, and retry while that may help; see the Protocol."""
        return await self._tried(url, limit, body, {"Content-Type": content_type})

    async def _tried(
        self, url: str, limit: int, body: bytes | None, headers: dict[str, str]
    ) -> Fetched:
        pause_s = FIRST_PAUSE_S
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return await self._try(url, limit, body, headers)
            except FetchError as error:
                if error.lasting or attempt == ATTEMPTS:
                    raise
            await self._sleep(pause_s)
            pause_s *= 2
        raise FetchError(f"{_host(url)}: not tried")  # pragma: no cover - returned

    async def _try(
        self, url: str, limit: int, sent: bytes | None, more: dict[str, str]
    ) -> Fetched:
        if self._session is None:
            raise FetchError("the way out is closed", lasting=True)
        try:
            async with self._session.request(
                "GET" if sent is None else "POST",
                url,
                data=sent,
                headers=more,
                # No proxy reaches the metadata service of this machine.
                proxy=None if url.startswith(f"{AZURE_IMDS}/") else self._proxy,
                allow_redirects=False,
            ) as response:
                status = response.status
                if status != HTTP_OK:
                    # A redirect too: it would lead to a host that was not configured.
                    lasting = status not in PASSING
                    raise FetchError(
                        f"{_host(url)}: HTTP status {status}", lasting=lasting
                    )
                # Read to one byte beyond: a body that never ends is not waited for.
                body = await response.content.read(limit + 1)
                while body and len(body) <= limit and not response.content.at_eof():
                    body += await response.content.read(limit + 1 - len(body))
                headers = {
                    name.lower(): value for name, value in response.headers.items()
                }
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise FetchError(f"{_host(url)}: {type(error).__name__}") from None
        if len(body) > limit:
            raise FetchError(f"{_host(url)}: more than {limit} bytes", lasting=True)
        return Fetched(body=body, headers=headers)


def _host(url: str) -> str:
    # The rest of an address identifies a chip.
    return urlsplit(url).netloc
