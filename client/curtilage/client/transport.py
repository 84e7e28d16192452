"""The door outward: HTTP to the relay, and nowhere else.

It sees sealed bytes only, both ways: ``send`` takes a ``SealedExchange``, which
the seal door alone can build, and yields what came back unopened. No redirect
is followed, no cookie kept, nothing retried,
no header of ours names the client, its language or its library.
"""

import asyncio
import ipaddress
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self
from urllib.parse import urlsplit

import aiohttp

from curtilage.client.errors import ConfigError, EnclaveError, FailureReason
from curtilage.client.exchange import SealedExchange
from curtilage.wire import media

MAX_BUNDLE_BYTES = 256 * 1024  # attestation.md §4
MAX_PROBLEM_BYTES = 4096
MAX_REQUEST_BYTES = 1024 * 1024  # the largest size class of wire.md §5
HTTP_OK = 200
QUIET_HEADERS = ("User-Agent", "Accept", "Accept-Encoding")
FAILED_STATUS = {
    413: FailureReason.TOO_LARGE,
    429: FailureReason.BUSY,
    502: FailureReason.ENCLAVE_UNREACHABLE,
    503: FailureReason.BUSY,
    504: FailureReason.TIMEOUT,
}


class Transport(Protocol):
    """What the session needs of the way out; tests have one in memory."""

    async def fetch_bundle(self) -> bytes:
        """Return the attestation bundle that the relay serves."""
        ...

    def send(self, exchange: SealedExchange) -> AsyncGenerator[bytes]:
        """Send one sealed request and yield its sealed answer."""
        ...

    async def close(self) -> None:
        """Close every connection."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayAddress:
    """Where the relay is, and which of its gateways is meant.

    Attributes:
        url: ``https://host[:port]/name``; plain ``http`` on loopback only.
    """

    url: str

    @classmethod
    def parse(cls, text: str, *, plain_loopback: bool) -> "RelayAddress":
        """Check an address.

        Args:
            text: the address as a person wrote it.
            plain_loopback: whether ``http`` to this machine is acceptable,
                which a development policy alone says.

        Raises:
            ConfigError: not such an address; says which rule it breaks.
        """
        url = urlsplit(text)
        if url.scheme not in {"http", "https"} or not url.hostname:
            raise ConfigError(f"relay address {text!r}: expected https://host/name")
        if url.query or url.fragment or url.username or not url.path.strip("/"):
            raise ConfigError(
                f"relay address {text!r}: expected https://host/name, where name is "
                "the gateway's name at the relay, and nothing after it"
            )
        if url.scheme == "http" and not (plain_loopback and _loopback(url.hostname)):
            raise ConfigError(
                f"relay address {text!r}: plain http is for this machine's own "
                "addresses under a policy with environment: development"
            )
        return cls(url=text.rstrip("/"))


class RelayTransport:
    """The relay over aiohttp; use as an async context manager."""

    def __init__(
        self,
        address: RelayAddress,
        *,
        connect_s: float = 5.0,
        idle_s: float = 120.0,
        fetch_s: float = 15.0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._address = address
        self._connect_s = connect_s
        self._idle_s = idle_s
        self._fetch_s = fetch_s
        self._tls = tls
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        """Return the transport; it connects when first used."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close it."""
        await self.close()

    async def fetch_bundle(self) -> bytes:
        """Fetch the attestation bundle, bounded.

        Raises:
            EnclaveError: unreachable, or the answer is not a bundle.
        """
        with _told_as_failure():
            # A whole: a drip of bytes would hold every query that may leave.
            async with (
                asyncio.timeout(self._fetch_s),
                self._open().get(
                    self._address.url + "/bundle", allow_redirects=False
                ) as response,
            ):
                _require(response, media.EVIDENCE_BUNDLE)
                data = await response.content.read(MAX_BUNDLE_BYTES + 1)
                while len(data) <= MAX_BUNDLE_BYTES and not response.content.at_eof():
                    data += await response.content.read(MAX_BUNDLE_BYTES + 1)
        if len(data) > MAX_BUNDLE_BYTES:
            raise EnclaveError(FailureReason.EVIDENCE_REFUSED, code="too_large")
        return data

    async def send(self, exchange: SealedExchange) -> AsyncGenerator[bytes]:
        """Send once, never again, and yield the sealed answer as it comes.

        Raises:
            EnclaveError: the reason is one of a closed set.
        """
        # The types say so; this is the last place to make sure.
        if not isinstance(exchange, SealedExchange):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError("only a SealedExchange may be sent")
        body = exchange.take_body()
        if len(body) > MAX_REQUEST_BYTES:
            raise EnclaveError(FailureReason.TOO_LARGE)
        async with self._post(body) as response:
            while True:
                with _told_as_failure(FailureReason.ANSWER_INCOMPLETE):
                    data = await response.content.readany()
                if not data:
                    break
                yield data

    async def close(self) -> None:
        """Close every connection."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    @asynccontextmanager
    async def _post(self, body: bytes) -> AsyncGenerator[aiohttp.ClientResponse]:
        headers = {"Content-Type": media.OHTTP_CHUNKED_REQUEST, "Incremental": "?1"}
        with _told_as_failure():
            response = await self._open().post(
                self._address.url, data=body, headers=headers, allow_redirects=False
            )
        try:
            with _told_as_failure():
                await _require_answer(response)
            yield response
        finally:
            response.close()

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            timeout = aiohttp.ClientTimeout(
                total=None, sock_connect=self._connect_s, sock_read=self._idle_s
            )
            connector = aiohttp.TCPConnector(ssl=self._tls or True)
            self._session = aiohttp.ClientSession(
                connector=connector,
                timeout=timeout,
                cookie_jar=aiohttp.DummyCookieJar(),
                skip_auto_headers=QUIET_HEADERS,
                auto_decompress=False,
                trust_env=False,
            )
        return self._session


class _told_as_failure:  # noqa: N801 - reads as a statement: `with _told_as_failure()`
    """Turn the library's errors into a reason, without their words."""

    def __init__(self, lost: FailureReason = FailureReason.RELAY_UNREACHABLE) -> None:
        self._lost = lost

    def __enter__(self) -> None:
        """Enter."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Replace what aiohttp and the system raise."""
        if isinstance(error, asyncio.TimeoutError):
            raise EnclaveError(FailureReason.TIMEOUT) from None
        if isinstance(error, aiohttp.ClientError | OSError):
            raise EnclaveError(self._lost) from None


async def _require_answer(response: aiohttp.ClientResponse) -> None:
    """Accept a chunked answer; tell every other status as its reason."""
    if response.status == HTTP_OK:
        _require(response, media.OHTTP_CHUNKED_RESPONSE)
        return
    if response.content_type == media.PROBLEM_JSON:
        problem = await response.content.read(MAX_PROBLEM_BYTES)
        # Unencapsulated, so the relay could forge it: it only makes us fetch
        # and verify again, once (wire.md §3, exception 1).
        if media.PROBLEM_OHTTP_KEY.encode() in problem:
            raise EnclaveError(FailureReason.KEY_UNKNOWN)
    _raise_status(response.status)


def _require(response: aiohttp.ClientResponse, media_type: str) -> None:
    if response.status != HTTP_OK:
        _raise_status(response.status)
    if response.content_type != media_type:
        raise EnclaveError(FailureReason.ANSWER_BROKEN)


def _raise_status(status: int) -> None:
    reason = FAILED_STATUS.get(status, FailureReason.REFUSED)
    code = str(status) if reason is FailureReason.REFUSED else None
    raise EnclaveError(reason, code=code)


def _loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
