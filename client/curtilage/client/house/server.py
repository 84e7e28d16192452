"""The door to a server in the house: one question to the server that the policy names.

What goes out is readable, unlike all that the relay gets. So it goes with a permit for
exactly this text and this server, which is redeemed before a connection is made; and
to nobody but who holds the key, or a certificate of the authority, that the policy
names. No redirect is followed, no cookie kept, no proxy asked, nothing retried; no
field names the user, the program or its library.
"""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final

import aiohttp
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from typing_extensions import override

from curtilage.client.answer import AnswerEvent, Finished
from curtilage.client.errors import FailureReason, HouseUnavailableError
from curtilage.client.house.answer_events import ChatReader
from curtilage.client.house.settings import HouseSettings, require_private_socket
from curtilage.client.query import Query
from curtilage.policy.decision.permit import HousePermit, PermitDesk

EVENT_STREAM: Final = "text/event-stream"
RETRY_AFTER: Final = re.compile(r"[0-9]|10")
"""In seconds. More is not worth waiting for, and a date needs two clocks that agree."""
QUIET_HEADERS: Final = ("User-Agent", "Accept", "Accept-Encoding")
"""What aiohttp would add: the library's version tells clients apart."""
HTTP_OK: Final = 200
FAILED_STATUS: Final = {
    401: FailureReason.HOUSE_DENIED,
    403: FailureReason.HOUSE_DENIED,
    404: FailureReason.HOUSE_MODEL_MISSING,
    405: FailureReason.HOUSE_MODEL_MISSING,
    429: FailureReason.HOUSE_BUSY,
    500: FailureReason.HOUSE_FAILED,
    502: FailureReason.HOUSE_UNREACHABLE,
    503: FailureReason.HOUSE_BUSY,
    504: FailureReason.HOUSE_LATE,
}


PATIENCE: Final = 10
"""A budget says when an answer should be whole. After so many of it no more comes."""


@dataclass(frozen=True, slots=True)
class _Said:
    """What one event of the server's said.

    Attributes:
        events: for the caller; often none.
        text: whether the model wrote anything, its thoughts included.
    """

    events: tuple[AnswerEvent, ...] = field(repr=False)
    text: bool


class HouseServer:
    """Asks one server in the house; close it at the end.

    Args:
        settings: which server, and how long to wait.
        desk: redeems permits.
        now_ms: the clock that permits run by.
    """

    def __init__(
        self, settings: HouseSettings, desk: PermitDesk, now_ms: Callable[[], int]
    ) -> None:
        self._settings = settings
        self._desk = desk
        self._now_ms = now_ms
        self._session: aiohttp.ClientSession | None = None  # noqa: TID251 - a door

    @property
    def model_id(self) -> str:
        """The model's name for people: as the policy has it."""
        return self._settings.model

    @property
    def digest(self) -> bytes:
        """What a permit for this server names, 32 bytes."""
        return self._settings.digest

    async def generate(
        self, permit: HousePermit, query: Query
    ) -> AsyncGenerator[AnswerEvent]:
        """Ask once, never again, and yield the answer as it comes.

        Closing the iterator ends the connection, by which servers stop the model.
        Text must come at its times: the first after ``first_s``, the next ones after
        ``stall_s``. All of it may take ``PATIENCE`` times the query's budget, or the
        policy's; exactly the budget where the query says that its times are hard.

        Raises:
            HouseUnavailableError: the reason is one of the house's.
            TypeError: no permit of the desk's own making.
            PermissionError: the permit is for something else, or was used.
        """
        # One query for both: what is asked is made of the very value whose digest the
        # permit must name, and a query cannot be changed between the two.
        try:
            digest, body = query.payload_digest(), _body(query, self._settings.model)
        except UnicodeEncodeError:
            # Its words hold the text. Such a query has no digest, so no permit either.
            raise HouseUnavailableError(FailureReason.HOUSE_REFUSED) from None
        self._desk.redeem_house(
            permit,
            payload_digest=digest,
            server_digest=self._settings.digest,
            now_ms=self._now_ms(),
        )
        answer = self._answer(body, logprobs=query.settings.logprobs)
        clock = asyncio.get_running_loop().time
        pause_s, all_s = self._settings.first_s, self._most_s(query)
        async with aclosing(answer) as steps:
            while True:
                # Only the time in which the server is waited for is counted: the
                # caller may read slowly.
                began = clock()
                try:
                    async with asyncio.timeout(min(pause_s, all_s)):
                        said = await anext(steps)
                except TimeoutError:
                    raise HouseUnavailableError(FailureReason.HOUSE_LATE) from None
                waited_s = clock() - began
                all_s -= waited_s
                # Not by every byte or event: comments and empty events keep a
                # connection alive while a model that hangs says nothing.
                pause_s = self._settings.stall_s if said.text else pause_s - waited_s
                for event in said.events:
                    yield event
                    if isinstance(event, Finished):
                        return

    def _most_s(self, query: Query) -> float:
        """Return how long an answer may take in all."""
        asked, budget_s = query.options, self._settings.total_s
        if asked.total_ms is not None:
            budget_s = asked.total_ms / 1000
        return budget_s if asked.slo_hard else budget_s * PATIENCE

    async def close(self) -> None:
        """Close every connection."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _answer(self, body: bytes, *, logprobs: bool) -> AsyncGenerator[_Said]:
        """Post, and yield what each event of the answer says."""
        key = self._settings.api_key
        fields = {"Content-Type": "application/json"}
        if key is not None:
            fields["Authorization"] = f"Bearer {key}"
        with _as_failure():
            if self._settings.socket is not None:
                require_private_socket(self._settings.socket)
            response = await self._open().post(
                self._settings.url,
                data=body,
                headers=fields,
                # Elsewhere is a party that the policy does not name.
                allow_redirects=False,
            )
        try:
            _require(response)
            chat = ChatReader(logprobs=logprobs)
            while True:
                # From here on the answer has begun: what breaks now has cut it.
                with _as_failure(FailureReason.HOUSE_ANSWER_INCOMPLETE):
                    data = await response.content.readany()
                if not data:
                    # An end of the body is no end of the answer; ``[DONE]`` is.
                    raise HouseUnavailableError(FailureReason.HOUSE_ANSWER_INCOMPLETE)
                texts = chat.texts
                for events in chat.push(data):
                    yield _Said(events, text=chat.texts > texts)
                    texts = chat.texts
        finally:
            response.close()

    def _open(self) -> aiohttp.ClientSession:  # noqa: TID251 - a door
        """Return the session, made when first used."""
        settings = self._settings
        if self._session is None:
            pin = settings.spki_sha256
            # No connection is kept: one that the server is closing would lose a
            # question, and nothing is ever sent twice.
            connector: aiohttp.BaseConnector = (
                aiohttp.UnixConnector(  # noqa: TID251 - a door
                    str(settings.socket), force_close=True, limit=0
                )
                if settings.socket is not None
                else aiohttp.TCPConnector(  # noqa: TID251 - a door
                    ssl=_Pin(pin) if pin else settings.tls or True,
                    force_close=True,
                    limit=0,
                )
            )
            self._session = aiohttp.ClientSession(  # noqa: TID251 - a door
                connector=connector,
                timeout=aiohttp.ClientTimeout(
                    total=None,
                    connect=settings.connect_s,
                    sock_connect=settings.connect_s,
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
                skip_auto_headers=QUIET_HEADERS,
                # A small body that unpacks to gigabytes is all it could bring.
                auto_decompress=False,
                # A proxy that the environment names is another party.
                trust_env=False,
            )
        return self._session


class _Pin(aiohttp.Fingerprint):
    """A server's public key, compared once TLS stands and before anything is sent.

    The library's own compares certificates, which are renewed more often than keys.
    With either of them neither name nor date of the certificate counts, as RFC 7671,
    section 5.1, has it for a key: they are what its maker liked to write.
    """

    @override
    def check(self, transport: asyncio.Transport) -> None:
        """Refuse a server with another key; the connector asks this."""
        certificate = transport.get_extra_info("ssl_object").getpeercert(
            binary_form=True
        )
        try:
            key = x509.load_der_x509_certificate(certificate).public_key()
            spki = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            spki = b""  # no key that could be the one
        found = sha256(spki).digest()
        if found != self.fingerprint:
            raise aiohttp.ServerFingerprintMismatch(self.fingerprint, found, "", 0)


def _body(query: Query, model: str) -> bytes:
    """Encode the request: all of the query, as it was asked."""
    settings = query.settings
    body: dict[str, object] = {
        "model": model,
        "messages": [
            {
                # Templates of models know 'system' only; OpenAI renamed it.
                "role": "system" if each.role == "developer" else each.role,
                **({} if each.name is None else {"name": each.name}),
                "content": each.content,
            }
            for each in query.messages
        ],
        "max_tokens": settings.max_tokens,
        "temperature": settings.temperature,
        "top_p": settings.top_p,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if settings.seed is not None:
        body["seed"] = settings.seed
    if settings.stop:
        body["stop"] = list(settings.stop)
    if settings.logprobs:
        body["logprobs"] = True
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


def _require(response: aiohttp.ClientResponse) -> None:
    """Refuse what is no stream of events; read nothing of what it says."""
    if response.status != HTTP_OK:
        reason = FAILED_STATUS.get(response.status, FailureReason.HOUSE_REFUSED)
        code = str(response.status) if reason is FailureReason.HOUSE_REFUSED else None
        retry_after_s = None
        if reason is FailureReason.HOUSE_BUSY:
            said = RETRY_AFTER.fullmatch(response.headers.get("Retry-After", ""))
            retry_after_s = int(said[0]) if said else None
        raise HouseUnavailableError(reason, code=code, retry_after_s=retry_after_s)
    encoded = "Content-Encoding" in response.headers
    if response.content_type != EVENT_STREAM or encoded:
        raise HouseUnavailableError(FailureReason.HOUSE_ANSWER_BROKEN)


@contextmanager
def _as_failure(lost: FailureReason | None = None) -> Generator[None]:
    """Turn the library's errors into a reason, without their words.

    Args:
        lost: the reason, once an answer has begun.
    """
    # ``from None``: their messages hold addresses, and the server's own words.
    try:
        yield
    except (aiohttp.ClientConnectorCertificateError, aiohttp.ServerFingerprintMismatch):
        raise HouseUnavailableError(FailureReason.HOUSE_UNTRUSTED) from None
    except PermissionError:  # ``require_private_socket``
        raise HouseUnavailableError(FailureReason.HOUSE_UNTRUSTED) from None
    except aiohttp.ClientSSLError:
        raise HouseUnavailableError(FailureReason.HOUSE_TLS_FAILED) from None
    except aiohttp.ClientResponseError:
        raise HouseUnavailableError(lost or FailureReason.HOUSE_ANSWER_BROKEN) from None
    except (aiohttp.ClientError, OSError):
        raise HouseUnavailableError(lost or FailureReason.HOUSE_UNREACHABLE) from None
