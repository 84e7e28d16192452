"""HTTP to the relay, the only network connection of this package besides the mirror's.

It handles sealed bytes only, both ways: ``send`` takes a ``SealedExchange``, which only
``seal`` can build, and yields the response unopened. What it fetches is public, and
each fetch needs a ``FetchOrder``. It follows no redirect, keeps no cookie and retries
nothing; no header identifies the client, its language or its library. If the relay
demands an API key, it identifies the customer to the relay, which strips it.

The mirror of the key list (``mirror``) is another party with connections of its own.
"""

import asyncio
import ssl  # noqa: TID251 - a door
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Self

import aiohttp

from curtilage.client.errors import EnclaveError, FailureReason
from curtilage.client.remote.access import RelayAccess
from curtilage.client.remote.addresses import RelayAddress
from curtilage.client.remote.failures import CERTIFICATE_ALERTS, HTTP_OK, require_ok
from curtilage.client.remote.fetch_order import RELAY, FetchOrder, take_order
from curtilage.client.remote.reasons import EnclaveFailure
from curtilage.client.remote.sealed import SealedExchange
from curtilage.client.system.tls import tls_context
from curtilage.wire import media
from curtilage.wire.node_list import MAX_LIST_BYTES
from curtilage.wire.shaping import TransportParameters

MAX_BUNDLE_BYTES = 256 * 1024
MAX_KEY_CONFIGS_BYTES = 16 * 1024
BUNDLE_TYPES = {
    media.EVIDENCE_BUNDLE: MAX_BUNDLE_BYTES,
    media.EVIDENCE_BUNDLES: MAX_LIST_BYTES,
}
KEY_TYPES = {
    media.OHTTP_KEYS: MAX_KEY_CONFIGS_BYTES,
    media.KEY_LISTS: MAX_LIST_BYTES,
}
"""Media types that may be served, for one enclave or a pool, with size limits."""
MAX_PROBLEM_BYTES = 4096
MAX_REQUEST_BYTES = 1024 * 1024  # the largest size class
SILENCE_S = 5.0
SILENT_PERIODS = 100
"""A paced answer never pauses: a silence of this length is a failure."""
QUIET_HEADERS = ("User-Agent", "Accept", "Accept-Encoding")
"""Headers that aiohttp would add: the library's version identifies clients."""


class RelayTransport:
    """The relay over aiohttp; use as an async context manager.

    Args:
        address: the relay's.
        access: our credentials and the trusted authorities; None: no credentials,
            and the system's trust store.
        connect_s: how long to wait for a connection.
        idle_s: how long an unpaced answer may pause.
        fetch_s: how long the whole fetch of a bundle may take.
        silence_s: the shortest silence that fails a paced answer.
    """

    def __init__(
        self,
        address: RelayAddress,
        *,
        access: RelayAccess | None = None,
        connect_s: float = 5.0,
        idle_s: float = 120.0,
        fetch_s: float = 15.0,
        silence_s: float = SILENCE_S,
    ) -> None:
        self._address = address
        self._idle_s = idle_s
        self._fetch_s = fetch_s
        self._silence_s = silence_s
        self._access = RelayAccess(tls=tls_context()) if access is None else access
        self._connections = Connections(self._access.tls, connect_s=connect_s)

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

    async def fetch_bundle(self, order: FetchOrder) -> bytes:
        """Fetch the attestation bundle, or those of a pool's nodes; bounded.

        Raises:
            EnclaveError: unreachable, or the answer is not a bundle.
            RuntimeError: the order is spent, or for another party.
        """
        take_order(order, RELAY)
        return await self._connections.fetch(
            self._address.url + "/bundle",
            self._access.fields(),
            BUNDLE_TYPES,
            whole_s=self._fetch_s,
        )

    async def send(self, exchange: SealedExchange) -> AsyncGenerator[bytes]:
        """Send once, never again, and yield the sealed answer as it arrives.

        Raises:
            EnclaveError: with one of a closed set of reasons.
        """
        # The types require it; this is the last check before the network. Any other
        # bytes have not been decided upon, verified and sealed.
        if not isinstance(exchange, SealedExchange):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError("only a SealedExchange may be sent")
        body = exchange.take_body()
        if len(body) > MAX_REQUEST_BYTES:
            raise EnclaveError(EnclaveFailure.TOO_LARGE)
        limit_s = self._idle_s
        if exchange.padded:
            limit_s = pause_s(exchange.parameters, self._silence_s)
        fields = {
            **self._access.fields(),
            "Content-Type": media.OHTTP_CHUNKED_REQUEST,
            # Asks proxies not to buffer the answer (draft-ietf-httpbis-incremental):
            # buffering would delay a whole paced answer.
            "Incremental": "?1",
        }
        with _as_failure():
            response = await self._connections.open().post(
                "/".join(filter(None, (self._address.url, exchange.node))),
                data=body,
                headers=fields,
                # A redirect leads to a party that was not configured: it would learn
                # that this address sends a request, and when.
                allow_redirects=False,
                timeout=self._connections.timeout(limit_s),
            )
        try:
            with _as_failure():
                await _require_answer(response)
            while True:
                # The answer has begun. An error from here on means that it was cut, not
                # that the relay was unreachable.
                with _as_failure(EnclaveFailure.ANSWER_INCOMPLETE):
                    data = await response.content.readany()
                if not data:
                    # The end of the body is not the end of the answer: a relay can
                    # close at any byte. ``AnswerReader`` looks for the final chunk.
                    return
                yield data
        finally:
            # Closed and not returned to the pool: the rest of an unread answer must not
            # precede the next one on the same connection.
            response.close()

    async def close(self) -> None:
        """Close every connection."""
        await self._connections.close()


class Connections:
    """Connections to one party, with no identifying headers."""

    # One object for each party: relay and mirror share no connection, TLS session or
    # cookie by which they could recognise the same client.

    def __init__(self, tls: ssl.SSLContext, *, connect_s: float) -> None:
        self._tls = tls
        self._connect_s = connect_s
        self._session: aiohttp.ClientSession | None = None  # noqa: TID251 - a door

    def timeout(self, limit_s: float | None) -> aiohttp.ClientTimeout:
        """Return the limits of one exchange; it has no total time limit."""
        # No total: a padded answer takes as long as its bucket. A relay that drips
        # bytes to hold it open is stopped by the frame rate check (``draining``).
        return aiohttp.ClientTimeout(
            total=None,
            # ``connect`` includes the name's resolution; ``sock_connect`` applies to
            # each of its addresses.
            connect=self._connect_s,
            sock_connect=self._connect_s,
            sock_read=limit_s,
        )

    def open(self) -> aiohttp.ClientSession:  # noqa: TID251 - a door
        """Return the session, made when first used."""
        if self._session is None:
            self._session = aiohttp.ClientSession(  # noqa: TID251 - a door
                # No limit here: callers limit the number of running exchanges, and a
                # request that waits in a connection pool would already be sealed.
                connector=aiohttp.TCPConnector(  # noqa: TID251 - a door
                    ssl=self._tls, limit=0
                ),
                timeout=self.timeout(None),
                # A cookie would link a client's requests, even when its network address
                # changes.
                cookie_jar=aiohttp.DummyCookieJar(),
                skip_auto_headers=QUIET_HEADERS,
                # Sealed bytes do not shrink; decompression would only allow a small
                # body to unpack to gigabytes.
                auto_decompress=False,
                # A proxy from the environment would be another party.
                trust_env=False,
            )
        return self._session

    async def fetch(
        self,
        url: str,
        fields: Mapping[str, str],
        most: Mapping[str, int],
        *,
        whole_s: float,
    ) -> bytes:
        """Fetch a small resource whole, following no redirect.

        ``most``: the accepted media types, each with its limit in bytes.
        """
        with _as_failure():
            # A total limit: queries wait while evidence is fetched, and bytes that
            # drip in never pause.
            async with (
                asyncio.timeout(whole_s),
                self.open().get(url, headers=fields, allow_redirects=False) as response,
            ):
                require_ok(response, most)
                most_bytes = most[response.content_type]
                # One byte more than allowed, so that an oversize body is recognised and
                # not truncated. A single read may return less than is available.
                data = await response.content.read(most_bytes + 1)
                while len(data) <= most_bytes and not response.content.at_eof():
                    data += await response.content.read(most_bytes + 1)
        if len(data) > most_bytes:
            raise EnclaveError(EnclaveFailure.EVIDENCE_REFUSED, code="too_large")
        return data

    async def close(self) -> None:
        """Close every connection."""
        if self._session is not None:
            await self._session.close()
            self._session = None


def pause_s(parameters: TransportParameters, least_s: float = SILENCE_S) -> float:
    """Return how long a paced answer may be silent before it has failed."""
    return max(least_s, SILENT_PERIODS * parameters.period_ms / 1000)


@contextmanager
def _as_failure(lost: FailureReason | None = None) -> Generator[None]:
    """Map the library's errors to a reason, without their text.

    Args:
        lost: the reason, once an answer has begun.
    """
    # ``from None``: their messages hold addresses and text of the relay.
    try:
        yield
    except TimeoutError:
        raise EnclaveError(EnclaveFailure.TIMEOUT) from None
    except (aiohttp.ClientError, OSError) as error:
        raise EnclaveError(lost or _unreached(error)) from None


def _unreached(error: aiohttp.ClientError | OSError) -> FailureReason:
    """Return why there is no answer at all: before, in or after the TLS handshake."""
    # aiohttp wraps errors of the system and of OpenSSL in two ways: as ``os_error``
    # while it connects, later as the cause.
    inner = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    cause = inner if isinstance(inner, ssl.SSLError) else error.__cause__
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return EnclaveFailure.RELAY_UNTRUSTED
    if isinstance(cause, ssl.SSLError):
        # In TLS 1.3 a client has already sent its certificate when the server rejects
        # it: the refusal is an alert on the first read.
        wanted = (cause.reason or "").endswith(CERTIFICATE_ALERTS)
        return (
            EnclaveFailure.RELAY_WANTS_CERTIFICATE
            if wanted
            else EnclaveFailure.RELAY_TLS_FAILED
        )
    # A relay that does not know our certificate may also just close.
    hung_up = (aiohttp.ServerDisconnectedError, ConnectionResetError, BrokenPipeError)
    if isinstance(inner, hung_up) or isinstance(cause, hung_up):
        return EnclaveFailure.RELAY_HUNG_UP
    return EnclaveFailure.RELAY_UNREACHABLE


async def _require_answer(response: aiohttp.ClientResponse) -> None:
    """Accept a chunked answer; raise the reason for any other status."""
    failed = response.status != HTTP_OK
    if failed and response.content_type == media.PROBLEM_JSON:
        problem = await response.content.read(MAX_PROBLEM_BYTES)
        # "ohttp-key": the gateway does not hold the key (RFC 9458, section 5.3). It is
        # not encapsulated, so the relay could forge it: we only fetch and verify
        # again, once, and seal again only to another key.
        if media.PROBLEM_OHTTP_KEY.encode() in problem:
            raise EnclaveError(EnclaveFailure.KEY_UNKNOWN)
    require_ok(response, (media.OHTTP_CHUNKED_RESPONSE,))
