"""The local gateway: an OpenAI-compatible endpoint on loopback; the door inward.

Any program on this machine may ask it, as any program may read the user's own
files; nothing else may. A request that a browser's page could have made is
refused: the Host must name this machine, and an Origin must as well. How many
may connect, and for how long, ``admission`` decides.
"""

import ipaddress
import json
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import Final, TypeAlias, cast

from aiohttp import web
from aiohttp.http import HttpProcessingError

from curtilage.client import telemetry
from curtilage.client.answer import Answer, Delta, Progress, SessionEvent
from curtilage.client.answering.answer_stream import AnswerStream
from curtilage.client.consent import Outbound
from curtilage.client.endpoint.admission import (
    BACKLOG,
    FIELDS,
    INTERNAL,
    MALFORMED,
    Connection,
    Server,
    affordable_connections,
    page,
)
from curtilage.client.errors import (
    ClientError,
    ConfigError,
    ConsentRequiredError,
    ListenError,
    NotRoutedError,
    QueuedError,
    UsageError,
)
from curtilage.client.fair_queue import ASKER
from curtilage.client.health import Status
from curtilage.client.openai_chat import (
    MAX_REQUEST_BYTES,
    MODEL_ID,
    TOO_MANY,
    ChatCompletionRequest,
    ChunkBuilder,
    JsonObject,
    completion_object,
    error_object,
    parse_completion_request,
    parse_feedback,
    provenance_headers,
    sse,
)
from curtilage.client.query import Query
from curtilage.client.session import Session

Handler: TypeAlias = Callable[[web.BaseRequest, bytes], Awaitable[web.StreamResponse]]
"""Answers a request whose content was read."""

Refusal: TypeAlias = Callable[[Query, ClientError], Awaitable[tuple[int, JsonObject]]]
"""Returns the status and the body that tell of an error."""

SHUTDOWN_S = 5.0
RETRY_AFTER_S: Final = 5
OWN = r"(?:localhost|127(?:\.[0-9]{1,3}){3}|\[::1\])(?::[0-9]{1,5})?"
OWN_HOST = re.compile(OWN, re.IGNORECASE)
OWN_ORIGIN = re.compile(rf"https?://{OWN}", re.IGNORECASE)
# What a browser says of a page that has another site's is anything else.
OWN_SITES = frozenset({"none", "same-origin", "same-site"})
CHAT_PATH: Final = "/v1/chat/completions"
MODELS_PATH: Final = "/v1/models"
FEEDBACK_PATH: Final = "/v1/curtilage/feedback"
HEALTH_PATH: Final = "/healthz"
QUEUE_PATH: Final = "/v1/curtilage/queue/"
CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
NOT_FOUND: Final = page("no such resource")
NOT_ALLOWED: Final = page("no such method here")
NOT_EXPECTED: Final = page("only 100-continue may be expected")
NOT_OURS: Final = page("this endpoint serves this machine only")


@asynccontextmanager
async def serving(session: Session, host: str, port: int) -> AsyncGenerator[int]:
    """Serve until the block ends; yield the port in use.

    Args:
        session: answers the requests; the caller closes it.
        host: a loopback address; anything else is refused.
        port: 0 picks a free one.

    Raises:
        ConfigError: not a loopback address.
        ListenError: the port is taken.
    """
    if not _is_loopback(host):
        raise ConfigError(
            f"{host!r} is not a loopback address: whoever can reach the endpoint can "
            "read the answers, so it serves this machine only"
        )
    telemetry.silence_libraries()
    endpoint = _Endpoint(session)
    server = Server(endpoint.handle, most=affordable_connections())
    runner = web.ServerRunner(server, shutdown_timeout=SHUTDOWN_S)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port, backlog=BACKLOG)
        try:
            await site.start()
        except OSError as failure:
            raise ListenError(
                f"cannot listen on {host}:{port}: {failure.strerror}; "
                "name another port with --port"
            ) from None
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


class _Endpoint:
    """What is answered to whom."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._routes: Mapping[str, Mapping[str, Handler]] = {
            CHAT_PATH: {"POST": self._chat},
            MODELS_PATH: {"GET": self._models, "HEAD": self._models},
            FEEDBACK_PATH: {"POST": self._feedback},
            HEALTH_PATH: {"GET": self._health, "HEAD": self._health},
        }

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer; every failure as JSON, without a word of the request."""
        connection = cast("Connection", request.protocol)
        ASKER.set(connection.asker)
        try:
            return await self._checked(request, connection)
        except ClientError as error:
            status, body = error_object(error)
            return _json(body, status=status, fields=_again(error))
        except (web.RequestPayloadError, HttpProcessingError):
            return _page(MALFORMED, 400)
        except ConnectionError:
            raise
        except Exception:  # noqa: BLE001 - the outermost edge: nothing may leak from here
            return _page(INTERNAL, 500)
        finally:
            connection.answered()

    async def _checked(
        self, request: web.BaseRequest, connection: Connection
    ) -> web.StreamResponse:
        # Before its path or its content is looked at: a page of some web site learns
        # nothing by asking, not even what is here.
        if not _is_own(request):
            return _page(NOT_OURS, 403)
        handler = self._handler(request)
        if isinstance(handler, web.StreamResponse):
            return handler
        expected = request.headers.get("Expect")
        if expected is not None:
            if expected.lower() != "100-continue":
                return _page(NOT_EXPECTED, 417)
            await request.writer.write(CONTINUE)
            # No part of an answer: an error that follows can still be told as one.
            request.writer.output_size = 0
        # All of it, before anything is done: until then others come first.
        body = await _body(request)
        connection.asked()
        return await handler(request, body)

    def _handler(self, request: web.BaseRequest) -> Handler | web.Response:
        path = request.rel_url.raw_path
        if path.startswith(f"{MODELS_PATH}/"):
            methods: Mapping[str, Handler] = {"GET": self._model, "HEAD": self._model}
        elif path.startswith(QUEUE_PATH):
            methods = {"GET": self._collect, "DELETE": self._drop}
        else:
            methods = self._routes.get(path, {})
        if not methods:
            return _page(NOT_FOUND, 404)
        handler = methods.get(request.method)
        if handler is None:
            return _page(NOT_ALLOWED, 405, {"Allow": ", ".join(methods)})
        return handler

    async def _chat(
        self, request: web.BaseRequest, content: bytes
    ) -> web.StreamResponse:
        _require_json(request)
        chat = parse_completion_request(content)
        stream = self._session.stream(chat.query)
        try:
            if chat.query.stream:
                return await _streamed(request, chat, stream, self._refusal)
            async for _ in stream:
                pass
            return await _answered(request, stream.answer)
        except ClientError as error:
            status, body = await self._refusal(chat.query, error)
            return _json(body, status=status, fields=_again(error))
        finally:
            await stream.aclose()

    async def _refusal(
        self, query: Query, refused: ClientError
    ) -> tuple[int, JsonObject]:
        """Return the status and the body that tell of an error."""
        if not isinstance(refused, ConsentRequiredError):
            return error_object(refused)
        # Who is to agree sees what to: he asked, and what leaves is of it.
        shown = await self._session.outbound(query)
        # It was decided about anew, and a summary may be another: nobody gets a token
        # for what he is not shown.
        if (
            isinstance(shown, Outbound)
            and shown.payload_digest == refused.payload_digest
        ):
            status, body = error_object(refused)
            return status, {**body, "outbound": shown.value()}
        return error_object(ConsentRequiredError(""))

    async def _feedback(
        self, request: web.BaseRequest, content: bytes
    ) -> web.StreamResponse:
        _require_json(request)
        answer_id, good = parse_feedback(content)
        self._session.feedback(answer_id, good=good)
        return _json({"object": "curtilage.feedback", "good": good})

    async def _models(
        self, request: web.BaseRequest, content: bytes
    ) -> web.StreamResponse:
        del request, content
        return _json({"object": "list", "data": [_model_object()]})

    async def _model(
        self, request: web.BaseRequest, content: bytes
    ) -> web.StreamResponse:
        del content
        if request.path != f"{MODELS_PATH}/{MODEL_ID}":
            raise UsageError(f"the only model here is {MODEL_ID!r}", param="model")
        return _json(_model_object())

    async def _collect(
        self, request: web.BaseRequest, content: bytes
    ) -> web.StreamResponse:
        del content
        ticket = request.path.removeprefix(QUEUE_PATH)
        try:
            answer = await self._session.queue.collect(ticket)
        except QueuedError as waits:
            # RFC 9110, 15.3.3: accepted, and its processing has not been completed.
            _, body = error_object(waits)
            return _json(body, status=202, fields=_again(waits))
        return await _answered(request, answer)

    async def _drop(
        self, request: web.BaseRequest, content: bytes
    ) -> web.StreamResponse:
        del content
        dropped = await self._session.queue.drop(request.path.removeprefix(QUEUE_PATH))
        return _json({"dropped": dropped}, status=200 if dropped else 404)

    async def _health(
        self, request: web.BaseRequest, content: bytes
    ) -> web.StreamResponse:
        del request, content
        # So that an application can ask whether the strong tier is there before it
        # requires it; says nothing of any query.
        tiers = [
            {"id": each.id, "kind": each.kind.value, "available": available}
            for each, available in self._session.tiers()
        ]
        health = self._session.health()
        reasons = [
            {"part": each.part.value, "reason": each.reason.value}
            | ({} if each.tier is None else {"tier": each.tier.value})
            for each in health.reasons
            if each.reason is not None
        ]
        return _json(
            {
                "status": health.status.value,
                "reasons": cast("object", reasons),
                "policy": self._session.policy.digest,
                "tiers": cast("object", tiers),
            },
            # A monitor that reads no JSON sees that every question is refused.
            status=503 if health.status is Status.FAILING else 200,
        )


def _require_json(request: web.BaseRequest) -> None:
    # A page of a web site can post forms and plain text without asking a browser's
    # leave, but not JSON; another bar behind ``_is_own``.
    if request.content_type != "application/json":
        raise UsageError("the content type must be application/json")
    if "Content-Encoding" in request.headers:
        raise UsageError("a compressed request is not accepted")


async def _body(request: web.BaseRequest) -> bytes:
    # Not ``request.read()``: the library keeps what that returns, and the request,
    # until the connection brings the next one.
    body = bytearray()
    async for data in request.content.iter_any():
        body += data
        if len(body) > MAX_REQUEST_BYTES:
            raise UsageError(f"the request is larger than {MAX_REQUEST_BYTES} bytes")
    return bytes(body)


async def _answered(request: web.BaseRequest, answer: Answer) -> web.StreamResponse:
    body = completion_object(answer, answer_id=answer.id, created=_unix_now())
    content = json.dumps(body, ensure_ascii=False).encode()
    # Without a body of its own: the library keeps the response as well.
    response = web.StreamResponse(
        headers={
            **FIELDS,
            **provenance_headers(answer.provenance),
            "Content-Type": "application/json",
        }
    )
    response.content_length = len(content)
    await response.prepare(request)
    await response.write(content)
    await response.write_eof()
    return response


async def _streamed(
    request: web.BaseRequest,
    chat: ChatCompletionRequest,
    stream: AnswerStream,
    refusal: Refusal,
) -> web.StreamResponse:
    events = stream.events(retract=False)
    async with aclosing(events):
        # An error before anything was said has a status of its own.
        event: SessionEvent | Progress | None = await anext(events)
        provenance = None if isinstance(event, Progress) else stream.provenance
        response = web.StreamResponse(
            headers={
                **FIELDS,
                **({} if provenance is None else provenance_headers(provenance)),
                "Content-Type": "text/event-stream; charset=utf-8",
            }
        )
        await response.prepare(request)
        chunks = None
        try:
            while event is not None:
                if isinstance(event, Progress):
                    # A comment (HTML, 9.2.6): it keeps the connection alive, and who
                    # looks sees what he waits for.
                    await response.write(f": {event.phase.value}\n\n".encode())
                elif chunks is None:
                    chunks = ChunkBuilder(
                        answer_id=stream.id,
                        created=_unix_now(),
                        provenance=stream.provenance,
                    )
                    await response.write(chunks.first())
                if isinstance(event, Delta) and chunks is not None:
                    await response.write(chunks.piece(event))
                event = await anext(events, None)
            if chunks is None:
                raise RuntimeError("an answer has an end")
            end = b"".join(
                chunks.last(stream.answer.finished, include_usage=chat.include_usage)
            )
        except ClientError as error:
            # Something is already shown: say so, and leave out the end mark.
            _, body = await refusal(chat.query, error)
            end = sse(body)
        await response.write(end)
        await response.write_eof()
        return response


def _model_object() -> JsonObject:
    return {"id": MODEL_ID, "object": "model", "created": 0, "owned_by": "curtilage"}


def _is_own(request: web.BaseRequest) -> bool:
    """Refuse what a page of some web site could have sent (DNS rebinding)."""
    hosts = request.headers.getall("Host", [])
    origins = request.headers.getall("Origin", [])
    sites = request.headers.getall("Sec-Fetch-Site", [])
    return (
        len(hosts) == 1
        and OWN_HOST.fullmatch(hosts[0]) is not None
        and all(OWN_ORIGIN.fullmatch(origin) for origin in origins)
        and all(site.strip().lower() in OWN_SITES for site in sites)
    )


def _page(
    body: bytes, status: int, headers: Mapping[str, str] | None = None
) -> web.Response:
    return web.Response(
        body=body,
        status=status,
        content_type="application/json",
        headers={**FIELDS, **(headers or {})},
    )


def _again(error: ClientError) -> dict[str, str]:
    """Say after how long to come back, where somebody waits, or that it is no use."""
    if not isinstance(error, NotRoutedError):
        return {}
    # OpenAI's clients repeat 409 and 503 by themselves, twice: each time the question
    # would wait once more, under a ticket that nobody is told.
    fields = {"x-should-retry": "false"}
    if isinstance(error, QueuedError):
        fields["Retry-After"] = str(error.eta_s or RETRY_AFTER_S)
    return fields


def _json(
    body: JsonObject, *, status: int = 200, fields: Mapping[str, str] | None = None
) -> web.Response:
    if status == TOO_MANY:
        fields = {**(fields or {}), "Retry-After": str(RETRY_AFTER_S)}
    return _page(json.dumps(body, ensure_ascii=False).encode(), status, fields)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return False


def _unix_now() -> int:
    return int(datetime.now(UTC).timestamp())
