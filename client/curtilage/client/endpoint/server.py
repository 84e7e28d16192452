"""The local gateway: an OpenAI-compatible endpoint on loopback.

Programs of the user who started it may use it, as they may read the user's own files,
and so may holders of its token; ``accounts`` identifies callers. Requests that a web
page could have made are refused: the Host must name this machine, and so must an
Origin. ``admission`` limits the number and duration of connections.
"""

import hashlib
import ipaddress
import json
import re
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Generator,
    Mapping,
    Sequence,
)
from contextlib import (
    AsyncExitStack,
    ExitStack,
    aclosing,
    asynccontextmanager,
    contextmanager,
    suppress,
)
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from aiohttp import web
from aiohttp.http import HttpProcessingError

from curtilage.client import telemetry
from curtilage.client.answering.answer_stream import AnswerStream
from curtilage.client.chat.answer import Answer, Delta, Progress, SessionEvent
from curtilage.client.chat.model_names import ANY
from curtilage.client.chat.openai_chat import (
    MAX_REQUEST_BYTES,
    ChatCompletionRequest,
    JsonObject,
    parse_completion_request,
    parse_feedback,
)
from curtilage.client.chat.openai_fields import (
    CHAT_PATH,
    DOCUMENT,
    FEEDBACK_PATH,
    HEALTH_PATH,
    MODEL_ID,
    MODELS_PATH,
    QUEUE_PATH,
    ROUTES,
)
from curtilage.client.chat.options import Require
from curtilage.client.chat.query import Query
from curtilage.client.endpoint.accounts import Callers
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
from curtilage.client.endpoint.openai_answers import (
    TOO_MANY,
    ChunkBuilder,
    completion_object,
    error_object,
    provenance_headers,
    sse,
)
from curtilage.client.errors import (
    ClientError,
    ConfigError,
    ConsentRequiredError,
    ListenError,
    NotRoutedError,
    QueuedError,
    TicketError,
    TooLargeError,
    UsageError,
)
from curtilage.client.health import Status
from curtilage.client.session import Session
from curtilage.client.system.fair_queue import ASKER, CALLER
from curtilage.client.system.files import PRIVATE_FILE, locked, own_place

if TYPE_CHECKING:
    from curtilage.client.queue.deferring import Deferring

Handler: TypeAlias = Callable[[web.BaseRequest, bytes], Awaitable[web.StreamResponse]]
"""Answers a request whose content was read."""

Refusal: TypeAlias = Callable[[Query, ClientError], Awaitable[tuple[int, JsonObject]]]
"""Returns the status and the body of an error."""

SHUTDOWN_S = 5.0
RETRY_AFTER_S: Final = 5
OWN = r"(?:localhost|127(?:\.[0-9]{1,3}){3}|\[::1\])(?::[0-9]{1,5})?"
OWN_HOST = re.compile(OWN, re.IGNORECASE)
OWN_ORIGIN = re.compile(rf"https?://{OWN}", re.IGNORECASE)
# For a page of another site, browsers send another value.
OWN_SITES = frozenset({"none", "same-origin", "same-site"})
CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
NOT_FOUND: Final = page(
    f"no such path; supported are {', '.join(ROUTES)} ({DOCUMENT})", code="not_found"
)
NOT_ALLOWED: Final = page(
    f"no such method for this path ({DOCUMENT})", code="method_not_allowed"
)
NOT_EXPECTED: Final = page(
    "the only supported expectation is 100-continue", code="expectation_failed"
)
NOT_OURS: Final = page("this endpoint serves this machine only", code="not_local")
NO_CALLER: Final = page(
    "this endpoint answers programs of the account that started it; any other must "
    "send the token as api_key (Authorization: Bearer TOKEN). The token is in the file "
    "endpoint-token of that account's state folder (~/.local/state/curtilage, or "
    "$XDG_STATE_HOME/curtilage), which only that account can read "
    "(docs/commands.md, who may ask)",
    code="invalid_api_key",
)


@asynccontextmanager
async def serving(
    session: Session,
    host: str | None,
    port: int = 0,
    *,
    socket: Path | None = None,
    callers: Callers | None = None,
) -> AsyncGenerator[int]:
    """Serve until the block ends; yield the port in use, or 0.

    Args:
        session: answers the requests; the caller closes it.
        host: a loopback address; anything else is refused. None: no TCP.
        port: 0 picks a free one.
        socket: a UNIX socket to create and listen on, in addition.
        callers: decides who is served; None: this account only, without a token.

    Raises:
        ConfigError: not a loopback address, or a socket where others may write.
        ListenError: the port or the socket is in use.
    """
    if host is not None and not _is_loopback(host):
        raise ConfigError(
            f"{host!r} is not a loopback address: any program that can reach the "
            "endpoint can read the answers, so it serves this machine only"
        )
    telemetry.silence_libraries()
    endpoint = Endpoint(session, callers or Callers())
    server = Server(endpoint.handle, most=affordable_connections())
    runner = web.ServerRunner(server, shutdown_timeout=SHUTDOWN_S)
    await runner.setup()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(runner.cleanup)
        bound = 0
        if host is not None:
            site = web.TCPSite(runner, host, port, backlog=BACKLOG)
            try:
                await site.start()
            except OSError as failure:
                raise ListenError(
                    f"cannot listen on {host}:{port}: {failure.strerror}; "
                    "choose another port with --port"
                ) from None
            bound = runner.addresses[0][1]
        if socket is not None:
            place = stack.enter_context(_place_of(socket))
            try:
                await web.UnixSite(runner, place, backlog=BACKLOG).start()
                stack.callback(place.unlink, missing_ok=True)
                place.chmod(PRIVATE_FILE)
            except OSError as failure:
                raise ListenError(
                    f"cannot listen on unix:{socket}: {failure.strerror or failure}"
                ) from None
        yield bound


@contextmanager
def _place_of(socket: Path) -> Generator[Path]:
    """Lock the path of a socket, where no other account can create one."""
    place = own_place(socket)
    with ExitStack() as held:
        try:
            # asyncio replaces an existing socket, whether its server has ended or not;
            # this lock ends with its process.
            held.enter_context(locked(place.with_name(f".{place.name}.lock"), 0))
        except TimeoutError:
            raise ListenError(f"cannot listen on unix:{socket}: it is in use") from None
        except OSError as failure:
            raise ListenError(
                f"cannot listen on unix:{socket}: {failure.strerror}"
            ) from None
        yield place


class Endpoint:
    """The handlers of all paths.

    Args:
        session: answers the requests.
        callers: decides who is served.
    """

    def __init__(self, session: Session, callers: Callers) -> None:
        self._session = session
        self._callers = callers
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
        CALLER.set(None)
        try:
            return await self._checked(request, connection)
        except ClientError as error:
            status, body = error_object(error)
            return _json(body, status=status, fields=_again(error))
        except (web.RequestPayloadError, HttpProcessingError):
            return error_page(MALFORMED, 400)
        except ConnectionError:
            raise
        except Exception:  # noqa: BLE001 - the outermost handler: nothing may leak
            return error_page(INTERNAL, 500)
        finally:
            connection.answered()

    async def _checked(
        self, request: web.BaseRequest, connection: Connection
    ) -> web.StreamResponse:
        # Before its path or its content is examined: a web page must learn nothing,
        # not even which paths exist.
        refused = await self._admit(request, connection)
        if refused is not None:
            return refused
        handler = self._handler(request)
        if isinstance(handler, web.StreamResponse):
            return handler
        if (request.content_length or 0) > MAX_REQUEST_BYTES:
            raise TooLargeError(f"the request is larger than {MAX_REQUEST_BYTES} bytes")
        expected = request.headers.get("Expect")
        if expected is not None:
            if expected.lower() != "100-continue":
                return error_page(NOT_EXPECTED, 417)
            await request.writer.write(CONTINUE)
            # Not part of an answer: a later error can still have its own status.
            request.writer.output_size = 0
        # All of it, before anything else: until then others come first.
        body = await _body(request)
        connection.asked()
        return await handler(request, body)

    async def _admit(
        self, request: web.BaseRequest, connection: Connection
    ) -> web.Response | None:
        """Note who asks; return the answer to a request that is refused."""
        if not _is_own(request):
            return error_page(NOT_OURS, 403)
        caller = await self._caller(request, connection)
        if caller is None:
            return self._refused(request, unauthorized(NO_CALLER))
        connection.asker.caller = caller
        CALLER.set(program_of(request, caller))
        return None

    async def _caller(
        self, request: web.BaseRequest, connection: Connection
    ) -> str | None:
        """Return the caller, or None: it is refused."""
        transport = request.transport
        if connection.account is None and transport is not None:
            connection.account = (await self._callers.account(transport),)
        (uid,) = connection.account or (None,)
        given = request.headers.getall("Authorization", [])
        return self._callers.caller(uid, given)

    def _refused(self, request: web.BaseRequest, refused: web.Response) -> web.Response:
        """Answer a refused caller, for whom only the health check is available."""
        if request.rel_url.raw_path == HEALTH_PATH and request.method in {
            "GET",
            "HEAD",
        }:
            return _health_of(self._session.health().status)
        refused.force_close()
        return refused

    def _handler(self, request: web.BaseRequest) -> Handler | web.Response:
        path = request.rel_url.raw_path
        if path.startswith(f"{MODELS_PATH}/"):
            methods: Mapping[str, Handler] = {"GET": self._model, "HEAD": self._model}
        elif path.startswith(QUEUE_PATH):
            methods = {"GET": self._collect, "DELETE": self._drop}
        else:
            methods = self._routes.get(path, {})
        if not methods:
            return error_page(NOT_FOUND, 404)
        handler = methods.get(request.method)
        if handler is None:
            return error_page(NOT_ALLOWED, 405, {"Allow": ", ".join(methods)})
        return handler

    async def _chat(
        self, request: web.BaseRequest, content: bytes
    ) -> web.StreamResponse:
        _require_json(request)
        chat = parse_completion_request(content, self._session.names)
        stream = self._session.stream(chat.query)
        try:
            if chat.query.stream:
                return await _streamed(request, chat, stream, self._refusal)
            async for _ in stream:
                pass
            return await _answered(request, stream.answer, dropped=chat.dropped)
        except ClientError as error:
            status, body = await self._refusal(chat.query, error)
            fields = {**_again(error), **_dropped(chat.dropped)}
            return _json(body, status=status, fields=fields)
        finally:
            await stream.aclose()

    async def _refusal(
        self, query: Query, refused: ClientError
    ) -> tuple[int, JsonObject]:
        """Return the status and the body of an error."""
        if not isinstance(refused, ConsentRequiredError):
            return error_object(refused)
        from curtilage.client.consent import Outbound  # noqa: PLC0415

        # The user sees what the consent is for: it derives from the request itself.
        shown = await self._session.outbound(query)
        # It was decided again, and a summary may differ: a token is only issued for
        # what is shown.
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
        names = self._session.names.listed
        entries = [self._model_object(name) for name in names]
        return _json({"object": "list", "data": entries})

    async def _model(
        self, request: web.BaseRequest, content: bytes
    ) -> web.StreamResponse:
        del content
        name, names = request.path.removeprefix(f"{MODELS_PATH}/"), self._session.names
        names.target(name)  # refuses an unknown one
        # Any other name is answered under ``*``; no sender's text is repeated.
        return _json(self._model_object(name if name in names.listed else ANY))

    def _model_object(self, name: str) -> JsonObject:
        meaning = self._session.names.meaning(name) or MODEL_ID
        about: JsonObject = {} if meaning == name else {"alias_of": meaning}
        if meaning in {MODEL_ID, Require.LOCAL}:
            # The tier is chosen for each question; this describes the local model.
            about |= {
                "local_model": self._session.local_model,
                "demonstration": self._session.demonstration,
            }
        elif meaning in self._session.names.models:
            about |= self._session.named(meaning)
        return {
            "id": name,
            "object": "model",
            "created": 0,
            "owned_by": "curtilage",
            "curtilage": about,
        }

    async def _collect(
        self, request: web.BaseRequest, content: bytes
    ) -> web.StreamResponse:
        del content
        ticket = request.path.removeprefix(QUEUE_PATH)
        try:
            answer = await self._deferring().collect(ticket)
        except QueuedError as waits:
            # RFC 9110, 15.3.3: accepted, and its processing has not been completed.
            _, body = error_object(waits)
            return _json(body, status=202, fields=_again(waits))
        return await _answered(request, answer)

    async def _drop(
        self, request: web.BaseRequest, content: bytes
    ) -> web.StreamResponse:
        del content
        queue = self._deferring()
        from curtilage.client.queue.deferring import UNKNOWN  # noqa: PLC0415

        if not await queue.drop(request.path.removeprefix(QUEUE_PATH)):
            raise TicketError.unknown(UNKNOWN)
        return _json({"dropped": True})

    def _deferring(self) -> "Deferring":
        """Return the queued questions; without a queue, no ticket is known."""
        try:
            return self._session.queue
        except UsageError as error:
            raise TicketError.unknown(str(error)) from None

    async def _health(
        self, request: web.BaseRequest, content: bytes
    ) -> web.StreamResponse:
        del request, content
        # So that an application can check that the enclave is available before it
        # requires it; contains nothing about queries.
        health = self._session.health()
        tiers = [
            {"id": each.id, "kind": each.kind.value, "available": available}
            for each, available in health.tiers
        ]
        reasons = [
            {"part": each.part.value, "reason": each.reason.value}
            | ({} if each.tier is None else {"tier": each.tier.value})
            for each in health.reasons
            if each.reason is not None
        ]
        return _health_of(
            health.status,
            reasons=cast("object", reasons),
            policy=self._session.policy.digest,
            tiers=cast("object", tiers),
        )


def _health_of(status: Status, **more: object) -> web.Response:
    # A monitor that ignores the JSON must see that every question is refused.
    code = 503 if status is Status.FAILING else 200
    return _json({"status": status.value, **more}, status=code)


def _require_json(request: web.BaseRequest) -> None:
    # A web page can post forms and plain text without a preflight request, but not
    # JSON; a second check after ``_is_own``.
    if request.content_type != "application/json":
        raise UsageError("the content type must be application/json")
    if "Content-Encoding" in request.headers:
        raise UsageError("a compressed request is not accepted")


async def _body(request: web.BaseRequest) -> bytes:
    # Not ``request.read()``: the library keeps its result, and the request, until the
    # connection's next one.
    body = bytearray()
    async for data in request.content.iter_any():
        body += data
        if len(body) > MAX_REQUEST_BYTES:
            raise TooLargeError(f"the request is larger than {MAX_REQUEST_BYTES} bytes")
    return bytes(body)


async def _answered(
    request: web.BaseRequest, answer: Answer, *, dropped: Sequence[str] = ()
) -> web.StreamResponse:
    body = completion_object(answer, answer_id=answer.id, created=_unix_now())
    content = json.dumps(body, ensure_ascii=False).encode()
    # Without a body of its own: the library keeps the response as well.
    response = web.StreamResponse(
        headers={
            **FIELDS,
            **provenance_headers(answer.provenance),
            **_dropped(dropped),
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
        # An error before the first event has a status of its own.
        event: SessionEvent | Progress | None = await anext(events)
        provenance = None if isinstance(event, Progress) else stream.provenance
        response = web.StreamResponse(
            headers={
                **FIELDS,
                **({} if provenance is None else provenance_headers(provenance)),
                **_dropped(chat.dropped),
                "Content-Type": "text/event-stream; charset=utf-8",
            }
        )
        await response.prepare(request)
        chunks = None
        try:
            while event is not None:
                if isinstance(event, Progress):
                    # A comment (HTML, 9.2.6): it keeps the connection alive, and shows
                    # an observer of the stream the current phase.
                    await response.write(f": {event.phase.value}\n\n".encode())
                elif chunks is None:
                    chunks = ChunkBuilder(
                        answer_id=stream.id,
                        created=_unix_now(),
                        provenance=stream.provenance,
                        n=chat.query.settings.n,
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
            # A part was already shown: send the error, and omit the end mark.
            _, body = await refusal(chat.query, error)
            end = sse(body)
        await response.write(end)
        await response.write_eof()
        return response


def _dropped(names: Sequence[str]) -> dict[str, str]:
    return {"x-curtilage-dropped": ", ".join(names)} if names else {}


def program_of(request: web.BaseRequest, caller: str) -> bytes | None:
    """Return which of a caller's programs asks, or None if unknown.

    Identified by a digest of its API key. This does not prove its identity: it only
    separates the stored data of programs that do not know each other's key.
    """
    keys = request.headers.getall("Authorization", [])
    if len(keys) != 1 or not keys[0].strip():
        return None
    key = keys[0].strip().encode("utf-8", "surrogateescape")
    return hashlib.sha256(caller.encode() + b"\0" + key).digest()


def _is_own(request: web.BaseRequest) -> bool:
    """Refuse requests that a web page could have sent (DNS rebinding)."""
    hosts = request.headers.getall("Host", [])
    origins = request.headers.getall("Origin", [])
    sites = request.headers.getall("Sec-Fetch-Site", [])
    return (
        len(hosts) == 1
        and OWN_HOST.fullmatch(hosts[0]) is not None
        and all(OWN_ORIGIN.fullmatch(origin) for origin in origins)
        and all(site.strip().lower() in OWN_SITES for site in sites)
    )


def unauthorized(body: bytes) -> web.Response:
    """Return the answer to a request without a token or key that counts."""
    return error_page(body, 401, {"WWW-Authenticate": 'Bearer realm="curtilage"'})


def error_page(
    body: bytes, status: int, headers: Mapping[str, str] | None = None
) -> web.Response:
    """Return an answer with an error's page; see ``admission.page``."""
    return web.Response(
        body=body,
        status=status,
        content_type="application/json",
        headers={**FIELDS, **(headers or {})},
    )


def _again(error: ClientError) -> dict[str, str]:
    """Return header fields for retries: after how long, or that it is no use."""
    if not isinstance(error, NotRoutedError):
        return {}
    # OpenAI's clients repeat 409 and 503 automatically, twice: each time the question
    # would be queued again, under a ticket that the application never sees.
    fields = {"x-should-retry": "false"}
    if isinstance(error, QueuedError):
        fields["Retry-After"] = str(error.eta_s or RETRY_AFTER_S)
    return fields


def _json(
    body: JsonObject, *, status: int = 200, fields: Mapping[str, str] | None = None
) -> web.Response:
    if status == TOO_MANY:
        fields = {**(fields or {}), "Retry-After": str(RETRY_AFTER_S)}
    return error_page(json.dumps(body, ensure_ascii=False).encode(), status, fields)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return False


def _unix_now() -> int:
    return int(datetime.now(UTC).timestamp())
