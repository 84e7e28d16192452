"""An on-premises server: answers of vLLM, Ollama and llama.cpp, over any transport."""

import json
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Final

from aiohttp import web

from curtilage.client.chat.answer import AnswerEvent
from curtilage.client.chat.query import Message, Query
from curtilage.client.on_premises.server import OnPremisesServer
from curtilage.client.on_premises.settings import (
    OnPremisesSettings,
    on_premises_settings,
)
from curtilage.policy.decision.decide import AllowedOnPremises, decide
from curtilage.policy.decision.permit import KEY_BYTES, OnPremisesPermit, PermitDesk
from curtilage.policy.decision.tiers import Tier, Tiering, TierKind
from curtilage.policy.document.load import load_profile
from support.inspections import inspection_of

CANARY: Final = "canary-5b0e"
WARD: Final = Tier(id="ward", kind=TierKind.ON_PREMISES)
QUERY: Final = Query(messages=(Message(role="user", content=CANARY),))
NOW_MS: Final = 1_000_000
Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


def allowed_on_premises(query: Query = QUERY) -> AllowedOnPremises:
    """Return a decision that permits sending a query to an on-premises server."""
    inspection = inspection_of(
        findings=(), payload_digest=query.payload_digest(), messages=1
    )
    tiering = Tiering(tiers=(*Tiering().tiers, WARD))
    rulebook = replace(load_profile("default").rulebook, tiering=tiering)
    allowed = decide(rulebook, inspection).on_premises
    assert allowed is not None
    return allowed


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A client of a server, and the desk that redeems its permits."""

    server: OnPremisesServer
    desk: PermitDesk
    clock: list[int]

    def permit(self, query: Query = QUERY) -> OnPremisesPermit:
        return self.desk.mint_on_premises(
            allowed_on_premises(query),
            tier=WARD.id,
            server_digest=self.server.digest,
            attempt=0,
            now_ms=self.clock[0],
        )

    async def ask(self, query: Query = QUERY) -> list[AnswerEvent]:
        asked = self.server.generate(self.permit(query), query)
        return [event async for event in asked]


@asynccontextmanager
async def asking(
    settings: OnPremisesSettings,
    *,
    connect_s: float = 10,
    first_s: float = 10,
    stall_s: float = 10,
    total_s: float = 60,
) -> AsyncGenerator[Asked]:
    """Open a client of a server."""
    settings = replace(
        settings,
        connect_s=connect_s,
        first_s=first_s,
        stall_s=stall_s,
        total_s=total_s,
    )
    numbers, clock = count(), [NOW_MS]
    desk = PermitDesk(
        bytes(KEY_BYTES), lambda size: next(numbers).to_bytes(size, "big")
    )
    server = OnPremisesServer(settings, desk, lambda: clock[0])
    try:
        yield Asked(server=server, desk=desk, clock=clock)
    finally:
        await server.close()


@asynccontextmanager
async def serving(
    handler: Handler,
    *,
    tls: ssl.SSLContext | None = None,
    socket: Path | None = None,
) -> AsyncGenerator[str]:
    """Serve, and yield the base of the address."""
    runner = web.ServerRunner(web.Server(handler, handler_cancellation=True))
    await runner.setup()
    try:
        if socket is not None:
            await web.UnixSite(runner, str(socket)).start()
            yield f"unix:{socket}"
            return
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
        scheme = "http" if tls is None else "https"
        yield f"{scheme}://localhost:{runner.addresses[0][1]}/v1"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def on_premises_server(handler: Handler, **waits: float) -> AsyncGenerator[Asked]:
    """Serve without TLS on loopback, and open a client of it."""
    async with serving(handler) as address:
        settings = on_premises_settings(address=address, model="m", plain_loopback=True)
        async with asking(settings, **waits) as asked:
            yield asked


def says(*events: bytes, seen: list[bytes] | None = None) -> Handler:
    """Return what answers with these events, and notes what it was asked."""

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        body = await request.read()
        if seen is not None:
            seen.append(body)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for event in events:
            await response.write(event)
        await response.write_eof()
        return response

    return answer


def data(value: object, end: bytes = b"\n\n") -> bytes:
    """Return one event."""
    return b"data: " + json.dumps(value, ensure_ascii=False).encode() + end


def chunk(
    delta: object,
    *,
    finish: object = None,
    usage: object = None,
    end: bytes = b"\n\n",
    **choice: object,
) -> bytes:
    """Return the event of one chunk."""
    chosen = {"index": 0, "delta": delta, "finish_reason": finish, **choice}
    made = {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": [chosen],
    }
    return data(made if usage is None else {**made, "usage": usage}, end)


USAGE: Final = {"prompt_tokens": 11, "completion_tokens": 3, "total_tokens": 14}
COUNTED: Final = data(
    {"object": "chat.completion.chunk", "choices": [], "usage": USAGE}
)
DONE: Final = b"data: [DONE]\n\n"
VLLM: Final = (
    chunk({"role": "assistant", "content": ""}, logprobs=None),
    chunk({"content": "Hi "}, logprobs=None, stop_reason=None),
    chunk({"content": "Ü"}, logprobs=None),
    chunk({"content": "."}, finish="length", stop_reason=None),
    COUNTED,
    DONE,
)
OLLAMA: Final = (
    chunk({"role": "assistant", "content": "Hi "}),
    chunk({"role": "assistant", "content": "Ü"}),
    chunk({"role": "assistant", "content": "."}),
    chunk({"role": "assistant", "content": ""}, finish="length"),
    COUNTED,
    DONE,
)
"""llama.cpp's server keeps a connection alive by comments; its Python one ends lines
as MIME does, and both count in the last chunk."""
LLAMA: Final = (
    b":\r\n\r\n",
    b": ping - 2026-11-23 13:30:00\r\n\r\n",
    chunk({"role": "assistant", "content": None}, end=b"\r\n\r\n"),
    chunk({"content": "Hi Ü."}, end=b"\r\n\r\n"),
    b"event: message\r\nid: 7\r\nretry: 100\r\n"
    + chunk({}, finish="length", usage=USAGE, end=b"\r\n\r\n"),
    b"data: [DONE]\r\n\r\n",
)
