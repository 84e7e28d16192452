"""A malicious relay in front of the real one, over real sockets."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp
from aiohttp import web


def unchanged(data: bytes) -> bytes:
    return data


@dataclass(slots=True, kw_only=True)
class EvilRelay:
    """Forwards everything, with the changes that a test configured.

    ``bundle`` changes the attestation bundle, ``request`` the sealed request,
    ``cut`` ends the answer after so many bytes, ``status`` answers instead.
    """

    upstream: str
    bundle: Callable[[bytes], bytes] = unchanged
    request: Callable[[bytes], bytes] = unchanged
    cut: int | None = None
    status: int | None = None
    posts: int = 0
    url: str = ""

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        async with aiohttp.ClientSession(auto_decompress=False) as session:
            if request.method == "GET":
                return await self._get(session)
            self.posts += 1
            if self.status is not None:
                return web.Response(status=self.status)
            return await self._post(session, request)

    async def _get(self, session: aiohttp.ClientSession) -> web.Response:
        async with session.get(f"{self.upstream}/bundle") as answer:
            return web.Response(
                body=self.bundle(await answer.read()),
                status=answer.status,
                content_type=answer.content_type,
            )

    async def _post(
        self, session: aiohttp.ClientSession, request: web.BaseRequest
    ) -> web.StreamResponse:
        body = self.request(await request.read())
        headers = {
            name: request.headers[name] for name in ("Content-Type", "Incremental")
        }
        async with session.post(self.upstream, data=body, headers=headers) as answer:
            response = web.StreamResponse(
                status=answer.status,
                headers={"Content-Type": answer.headers["Content-Type"]},
            )
            await response.prepare(request)
            passed = 0
            async for piece in answer.content.iter_any():
                kept = piece if self.cut is None else piece[: self.cut - passed]
                await response.write(kept)
                passed += len(kept)
                if self.cut is not None and passed >= self.cut:
                    break
            await response.write_eof()
            return response


@asynccontextmanager
async def evil_relay(upstream: str) -> AsyncGenerator[EvilRelay]:
    relay = EvilRelay(upstream=upstream)
    runner = web.ServerRunner(web.Server(relay.handle, handler_cancellation=True))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    relay.url = f"http://127.0.0.1:{runner.addresses[0][1]}/demo"
    try:
        yield relay
    finally:
        await runner.cleanup()
        await asyncio.sleep(0)
