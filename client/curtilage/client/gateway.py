"""The local gateway: an OpenAI-compatible endpoint on loopback; the door inward.

Any program on this machine may ask it, as any program may read the user's own
files; nothing else may. A request that a browser's page could have made is
refused: the Host must name this machine, and an Origin must as well.
"""

import asyncio
import ipaddress
import json
import re
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from datetime import UTC, datetime

from aiohttp import web

from curtilage.client import telemetry
from curtilage.client.answer_stream import AnswerStream
from curtilage.client.completions import (
    MAX_REQUEST_BYTES,
    MODEL_ID,
    ChatRequest,
    ChunkBuilder,
    JsonObject,
    completion_object,
    error_object,
    parse_chat_request,
    provenance_headers,
)
from curtilage.client.errors import (
    ClientError,
    ConfigError,
    ListenError,
    UsageError,
)
from curtilage.client.session import Session

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
SESSION: web.AppKey[Session] = web.AppKey("session", Session)
SHUTDOWN_S = 5.0
OWN = r"(?:localhost|127(?:\.[0-9]{1,3}){3}|\[::1\])(?::[0-9]{1,5})?"
OWN_HOST = re.compile(OWN, re.IGNORECASE)
OWN_ORIGIN = re.compile(rf"https?://{OWN}", re.IGNORECASE)
NO_STORE = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


def application(session: Session) -> web.Application:
    """Build the endpoint over one session."""
    app = web.Application(
        middlewares=[_errors_told, _this_machine_only],
        client_max_size=MAX_REQUEST_BYTES + 1,
    )
    app[SESSION] = session
    app.router.add_post("/v1/chat/completions", _chat)
    app.router.add_get("/v1/models", _models)
    app.router.add_get("/v1/models/{id}", _model)
    app.router.add_get("/healthz", _health)
    return app


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
    runner = web.AppRunner(
        application(session),
        access_log=None,
        handler_cancellation=True,
        auto_decompress=False,
        shutdown_timeout=SHUTDOWN_S,
    )
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port)
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


async def _chat(request: web.Request) -> web.StreamResponse:
    if request.content_type != "application/json":
        raise UsageError("the content type must be application/json")
    if "Content-Encoding" in request.headers:
        raise UsageError("a compressed request is not accepted")
    chat = parse_chat_request(await _body(request))
    session = request.app[SESSION]
    stream = session.stream(chat.query)
    try:
        if chat.query.stream:
            return await _streamed(request, chat, stream)
        return await _whole(stream)
    finally:
        await stream.aclose()


async def _body(request: web.Request) -> bytes:
    try:
        return await request.read()
    except web.HTTPRequestEntityTooLarge:
        raise UsageError(
            f"the request is larger than {MAX_REQUEST_BYTES} bytes"
        ) from None


async def _whole(stream: AnswerStream) -> web.Response:
    async for _ in stream:
        pass
    body = completion_object(stream.answer, answer_id=_answer_id(), created=_unix_now())
    return _json(body, headers=provenance_headers(stream.provenance))


async def _streamed(
    request: web.Request, chat: ChatRequest, stream: AnswerStream
) -> web.StreamResponse:
    provenance = await stream.begin()
    response = web.StreamResponse(
        headers={
            **NO_STORE,
            **provenance_headers(provenance),
            "Content-Type": "text/event-stream; charset=utf-8",
        }
    )
    chunks = ChunkBuilder(
        answer_id=_answer_id(), created=_unix_now(), provenance=provenance
    )
    await response.prepare(request)
    await response.write(chunks.first())
    try:
        async with aclosing(aiter(stream)) as pieces:
            async for piece in pieces:
                await response.write(chunks.piece(piece))
        end = b"".join(
            chunks.last(stream.answer.finished, include_usage=chat.include_usage)
        )
    except ClientError as error:
        # Half an answer is already shown: say so, and leave out the end mark.
        _, body = error_object(error)
        end = b"data: " + json.dumps(body).encode() + b"\n\n"
    await response.write(end)
    await response.write_eof()
    return response


async def _models(request: web.Request) -> web.Response:
    del request
    return _json({"object": "list", "data": [_model_object()]})


async def _model(request: web.Request) -> web.Response:
    if request.match_info["id"] != MODEL_ID:
        raise UsageError(f"the only model here is {MODEL_ID!r}", param="model")
    return _json(_model_object())


async def _health(request: web.Request) -> web.Response:
    policy = request.app[SESSION].policy
    return _json({"status": "ok", "policy": policy.digest})


def _model_object() -> JsonObject:
    return {"id": MODEL_ID, "object": "model", "created": 0, "owned_by": "curtilage"}


@web.middleware
async def _errors_told(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Tell every failure as JSON, without a word of the request."""
    try:
        return await handler(request)
    except ClientError as error:
        status, body = error_object(error)
        return _json(body, status=status)
    except web.HTTPException as error:
        return _json(_plain_error("no such resource or method"), status=error.status)
    except asyncio.CancelledError:
        raise
    except Exception:  # noqa: BLE001 - the outermost edge: nothing may leak from here
        return _json(_plain_error("internal error"), status=500)


@web.middleware
async def _this_machine_only(
    request: web.Request, handler: Handler
) -> web.StreamResponse:
    """Refuse what a page of some web site could have sent (DNS rebinding)."""
    hosts = request.headers.getall("Host", [])
    origins = request.headers.getall("Origin", [])
    own = len(hosts) == 1 and OWN_HOST.fullmatch(hosts[0]) is not None
    own = own and all(OWN_ORIGIN.fullmatch(origin) for origin in origins)
    own = own and request.headers.get("Sec-Fetch-Site") != "cross-site"
    if not own:
        return _json(_plain_error("this endpoint serves this machine only"), status=403)
    return await handler(request)


def _plain_error(message: str) -> JsonObject:
    return {
        "error": {
            "message": message,
            "type": "invalid_request_error",
            "param": None,
            "code": None,
        }
    }


def _json(
    body: JsonObject, *, status: int = 200, headers: dict[str, str] | None = None
) -> web.Response:
    return web.Response(
        body=json.dumps(body, ensure_ascii=False).encode(),
        status=status,
        content_type="application/json",
        headers={**NO_STORE, **(headers or {})},
    )


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return False


def _answer_id() -> str:
    return f"chatcmpl-{secrets.token_hex(12)}"


def _unix_now() -> int:
    return int(datetime.now(UTC).timestamp())
