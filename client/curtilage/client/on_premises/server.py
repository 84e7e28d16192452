"""The client of an on-premises server: one question to the server in the policy.

The request is readable, unlike the relay's. So it needs a permit for exactly this text
and this server, which is redeemed before a connection is made; and the server must
prove that it holds the key, or a certificate of the authority, that the policy names.
It follows no redirect, keeps no cookie, uses no proxy and retries nothing; no field
names the user, the program or its library.
"""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Final

import aiohttp
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from typing_extensions import override

from curtilage.client.chat.answer import AnswerEvent, Finished
from curtilage.client.chat.document import Document
from curtilage.client.chat.query import Message, Query
from curtilage.client.chat.turns import CHOICES
from curtilage.client.errors import FailureReason, OnPremisesUnavailableError
from curtilage.client.on_premises.answer_events import ChatReader, refusal_of
from curtilage.client.on_premises.reasons import OnPremisesFailure
from curtilage.client.on_premises.settings import (
    OnPremisesSettings,
    require_private_socket,
)
from curtilage.policy.decision.permit import OnPremisesPermit, PermitDesk, ServerBinding

EVENT_STREAM: Final = "text/event-stream"
RETRY_AFTER: Final = re.compile(r"[0-9]|10")
"""Up to 10 seconds; longer is not worth waiting, dates need synchronised clocks."""
QUIET_HEADERS: Final = ("User-Agent", "Accept", "Accept-Encoding")
"""Headers that aiohttp would add: the library's version identifies clients."""
HTTP_OK: Final = 200
_BAD_REQUEST: Final = 400
_MAX_REFUSAL_BYTES: Final = 64 * 1024
FAILED_STATUS: Final = {
    401: OnPremisesFailure.DENIED,
    403: OnPremisesFailure.DENIED,
    404: OnPremisesFailure.MODEL_MISSING,
    405: OnPremisesFailure.MODEL_MISSING,
    429: OnPremisesFailure.BUSY,
    500: OnPremisesFailure.FAILED,
    502: OnPremisesFailure.UNREACHABLE,
    503: OnPremisesFailure.BUSY,
    504: OnPremisesFailure.LATE,
}


PATIENCE: Final = 10
"""An answer may take this many times the budget for a whole answer."""


@dataclass(frozen=True, slots=True)
class _Said:
    """The content of one event from the server.

    Attributes:
        events: for the caller; often none.
        text: whether the model wrote anything, its reasoning included.
    """

    events: tuple[AnswerEvent, ...] = field(repr=False)
    text: bool


class OnPremisesServer:
    """Asks one on-premises server; close it at the end.

    Args:
        settings: of the server, with its timeouts.
        desk: redeems permits.
        now_ms: the permits' clock.
    """

    def __init__(
        self, settings: OnPremisesSettings, desk: PermitDesk, now_ms: Callable[[], int]
    ) -> None:
        self._settings = settings
        self._desk = desk
        self._now_ms = now_ms
        self._session: aiohttp.ClientSession | None = None  # noqa: TID251 - a door

    @property
    def model_id(self) -> str:
        """The model's name, as in the policy."""
        return self._settings.model

    @property
    def digest(self) -> bytes:
        """The digest in a permit for this server, 32 bytes."""
        return self._settings.digest

    async def generate(
        self, permit: OnPremisesPermit, query: Query
    ) -> AsyncGenerator[AnswerEvent]:
        """Ask once, never again, and yield the answer as it arrives.

        Closing the iterator closes the connection, which makes servers stop the model.
        Text must arrive in time: the first after ``first_s``, the next after
        ``stall_s``. The whole may take ``PATIENCE`` times the query's budget, or the
        policy's; exactly the budget if the query's deadlines are hard.

        Raises:
            OnPremisesUnavailableError: with a reason of this tier.
            TypeError: the permit was not minted by the desk.
            PermissionError: the permit is for something else, or was used.
        """
        if query.settings.deterministic:
            # No server promises it, and most ignore fields that they do not know.
            raise OnPremisesUnavailableError(OnPremisesFailure.NOT_DETERMINISTIC)
        # One query for both: the request is built from the value whose digest the
        # permit must contain, and a query cannot be changed in between.
        try:
            digest, body = query.payload_digest(), _body(query, self._settings.model)
        except UnicodeEncodeError:
            # Its message contains the text. Without a digest there is no permit.
            raise OnPremisesUnavailableError(OnPremisesFailure.REFUSED) from None
        presented = ServerBinding(payload=digest, server=self._settings.digest)
        self._desk.redeem(permit, presented, now_ms=self._now_ms())
        answer = self._answer(body, query)
        clock = asyncio.get_running_loop().time
        asked, all_s = query.options, self._settings.total_s
        if asked.total_ms is not None:
            all_s = asked.total_ms / 1000
        all_s = all_s if asked.slo_hard else all_s * PATIENCE
        pause_s = self._settings.first_s
        async with aclosing(answer) as steps:
            while True:
                # Only the time spent waiting for the server counts: the caller may
                # read slowly.
                began = clock()
                try:
                    async with asyncio.timeout(min(pause_s, all_s)):
                        said = await anext(steps)
                except TimeoutError:
                    raise OnPremisesUnavailableError(OnPremisesFailure.LATE) from None
                waited_s = clock() - began
                all_s -= waited_s
                # Not reset by every byte or event: comments and empty events keep a
                # connection alive while the model hangs.
                pause_s = self._settings.stall_s if said.text else pause_s - waited_s
                for event in said.events:
                    yield event
                    if isinstance(event, Finished):
                        return

    async def close(self) -> None:
        """Close every connection."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _answer(self, body: bytes, query: Query) -> AsyncGenerator[_Said]:
        """Post, and yield the content of each event."""
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
                # A redirect leads to a party that the policy does not name.
                allow_redirects=False,
            )
        try:
            if response.status == _BAD_REQUEST:
                with _as_failure():
                    raise refusal_of(await response.content.read(_MAX_REFUSAL_BYTES))
            _require(response)
            asked = query.settings
            chat = ChatReader(
                logprobs=asked.logprobs,
                tops=asked.top_logprobs,
                n=asked.n,
                must_call=query.tool_choice not in {"none", "auto"},
            )
            while True:
                # The answer has begun: an error from here on means that it was cut.
                with _as_failure(OnPremisesFailure.ANSWER_INCOMPLETE):
                    data = await response.content.readany()
                if not data:
                    # The end of the body is not the end of the answer; ``[DONE]`` is.
                    raise OnPremisesUnavailableError(
                        OnPremisesFailure.ANSWER_INCOMPLETE
                    )
                texts = chat.texts
                for events in chat.push(data):
                    # A call that was not offered would be executed by a program.
                    if not all(map(query.expects, events)):
                        raise OnPremisesUnavailableError(
                            OnPremisesFailure.ANSWER_BROKEN
                        )
                    yield _Said(events, text=chat.texts > texts)
                    texts = chat.texts
        finally:
            response.close()

    def _open(self) -> aiohttp.ClientSession:  # noqa: TID251 - a door
        """Return the session, created when first used."""
        settings = self._settings
        if self._session is None:
            pin = settings.spki_sha256
            # No connection is reused: one that the server is closing would lose a
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
                # Otherwise a small body could unpack to gigabytes.
                auto_decompress=False,
                # A proxy from the environment would be another party.
                trust_env=False,
            )
        return self._session


class _Pin(aiohttp.Fingerprint):
    """A server's public key, compared after the handshake, before anything is sent.

    The library's own fingerprint compares certificates, which change more often than
    keys. With either, name and dates of the certificate do not count, as RFC 7671,
    section 5.1, specifies for keys: anyone can choose them.
    """

    @override
    def check(self, transport: asyncio.Transport) -> None:
        """Refuse a server with another key; called by the connector."""
        certificate = transport.get_extra_info("ssl_object").getpeercert(
            binary_form=True
        )
        try:
            key = x509.load_der_x509_certificate(certificate).public_key()
            spki = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            spki = b""  # equals no key's
        found = sha256(spki).digest()
        if found != self.fingerprint:
            raise aiohttp.ServerFingerprintMismatch(self.fingerprint, found, "", 0)


def _body(query: Query, model: str) -> bytes:
    """Encode the request: the query, without the tools that it does not permit."""
    settings = query.settings
    if query.tool_choice not in CHOICES:
        # llama.cpp's server ignores a choice by name. A call of the only tool is the
        # same.
        query = replace(
            query,
            tools=tuple(filter(query.may_call, query.tools)),
            tool_choice="required",
            parallel_tool_calls=False,
        )
    body: dict[str, object] = {
        "model": model,
        # Most chat templates know only 'system'; OpenAI renamed it.
        **replace(
            query, messages=tuple(map(_as_system, query.messages))
        ).conversation(),
        "max_tokens": settings.max_tokens,
        "temperature": settings.temperature,
        "top_p": settings.top_p,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if settings.seed is not None:
        body["seed"] = settings.seed
    if settings.logprobs:
        body["logprobs"] = True
    more = {
        "top_logprobs": settings.top_logprobs,
        "n": settings.n if settings.n > 1 else 0,
        "presence_penalty": settings.presence_penalty,
        "frequency_penalty": settings.frequency_penalty,
    }
    body |= {name: number for name, number in more.items() if number}
    return json.dumps(
        body, ensure_ascii=False, separators=(",", ":"), default=Document.plain
    ).encode()


def _as_system(message: Message) -> Message:
    return replace(message, role="system") if message.role == "developer" else message


def _require(response: aiohttp.ClientResponse) -> None:
    """Refuse anything but an event stream; its content is not read."""
    if response.status != HTTP_OK:
        reason = FAILED_STATUS.get(response.status, OnPremisesFailure.REFUSED)
        code = str(response.status) if reason is OnPremisesFailure.REFUSED else None
        retry_after_s = None
        if reason is OnPremisesFailure.BUSY:
            said = RETRY_AFTER.fullmatch(response.headers.get("Retry-After", ""))
            retry_after_s = int(said[0]) if said else None
        raise OnPremisesUnavailableError(reason, code=code, retry_after_s=retry_after_s)
    encoded = "Content-Encoding" in response.headers
    if response.content_type != EVENT_STREAM or encoded:
        raise OnPremisesUnavailableError(OnPremisesFailure.ANSWER_BROKEN)


@contextmanager
def _as_failure(lost: FailureReason | None = None) -> Generator[None]:
    """Map the library's errors to a reason, without their text.

    Args:
        lost: the reason, once an answer has begun.
    """
    # ``from None``: their messages contain addresses and text of the server.
    try:
        yield
    except (aiohttp.ClientConnectorCertificateError, aiohttp.ServerFingerprintMismatch):
        raise OnPremisesUnavailableError(OnPremisesFailure.UNTRUSTED) from None
    except PermissionError:  # ``require_private_socket``
        raise OnPremisesUnavailableError(OnPremisesFailure.UNTRUSTED) from None
    except aiohttp.ClientSSLError:
        raise OnPremisesUnavailableError(OnPremisesFailure.TLS_FAILED) from None
    except aiohttp.ClientResponseError:
        raise OnPremisesUnavailableError(
            lost or OnPremisesFailure.ANSWER_BROKEN
        ) from None
    except (aiohttp.ClientError, OSError):
        raise OnPremisesUnavailableError(
            lost or OnPremisesFailure.UNREACHABLE
        ) from None
