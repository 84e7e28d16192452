import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from curtilage.client.errors import ConfigError, EnclaveError, FailureReason
from curtilage.client.exchange import SealedExchange, seal
from curtilage.client.query import Message, Query
from curtilage.client.transport import (
    MAX_BUNDLE_BYTES,
    MAX_REQUEST_BYTES,
    RelayAddress,
    RelayTransport,
)
from curtilage.policy.decide import Inspection, decide
from curtilage.policy.load import load_profile
from curtilage.wire import media
from support.memory_enclave import NOW, MemoryEnclave, verified

CANARY = "canary-31c4"
Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
ALLOWED_FIELDS = {"Host", "Content-Type", "Content-Length", "Incremental"}


def sealed(text: str = CANARY) -> SealedExchange:
    query = Query(messages=(Message(role="user", content=text),))
    inspection = Inspection(
        findings=(), payload_digest=query.payload_digest(), messages=1
    )
    allowed = decide(load_profile("default"), inspection).allowed
    assert allowed is not None
    return seal(allowed, query, verified(MemoryEnclave()), now=NOW)


@asynccontextmanager
async def relay(
    handler: Handler, *, fetch_s: float = 5
) -> AsyncGenerator[RelayTransport]:
    runner = web.ServerRunner(web.Server(handler, handler_cancellation=True))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    address = RelayAddress.parse(f"http://127.0.0.1:{port}/demo", plain_loopback=True)
    try:
        made = RelayTransport(address, connect_s=1, idle_s=0.5, fetch_s=fetch_s)
        async with made as transport:
            yield transport
    finally:
        await runner.cleanup()


async def send(handler: Handler) -> bytes:
    async with relay(handler) as transport:
        return b"".join([data async for data in transport.send(sealed())])


async def reason(handler: Handler) -> EnclaveError:
    with pytest.raises(EnclaveError) as refused:
        await send(handler)
    assert refused.value.__cause__ is None
    return refused.value


async def test_send_posts_the_sealed_request_and_names_nobody() -> None:
    seen: list[web.BaseRequest] = []

    async def answer(request: web.BaseRequest) -> web.Response:
        seen.append(request)
        assert CANARY.encode() not in await request.read()
        return web.Response(body=b"abc", content_type=media.OHTTP_CHUNKED_RESPONSE)

    assert await send(answer) == b"abc"
    assert (seen[0].method, seen[0].path_qs) == ("POST", "/demo")
    assert {name.title() for name in seen[0].headers} == ALLOWED_FIELDS
    assert seen[0].headers["Incremental"] == "?1"


async def test_fetch_names_nobody() -> None:
    seen: list[web.BaseRequest] = []

    async def answer(request: web.BaseRequest) -> web.Response:
        seen.append(request)
        return web.Response(body=b"{}", content_type=media.EVIDENCE_BUNDLE)

    async with relay(answer) as transport:
        assert await transport.fetch_bundle() == b"{}"
    assert (seen[0].method, seen[0].path_qs) == ("GET", "/demo/bundle")
    assert {name.title() for name in seen[0].headers} == {"Host"}


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (413, FailureReason.TOO_LARGE),
        (429, FailureReason.BUSY),
        (502, FailureReason.ENCLAVE_UNREACHABLE),
        (503, FailureReason.BUSY),
        (504, FailureReason.TIMEOUT),
        (422, FailureReason.REFUSED),
        (302, FailureReason.REFUSED),
        (500, FailureReason.REFUSED),
    ],
)
async def test_every_other_status_is_a_reason(
    status: int, expected: FailureReason
) -> None:
    async def answer(request: web.BaseRequest) -> web.Response:
        del request
        return web.Response(status=status, headers={"Location": "/elsewhere"})

    assert (await reason(answer)).reason is expected


async def test_an_answer_of_another_type_is_broken() -> None:
    async def answer(request: web.BaseRequest) -> web.Response:
        del request
        return web.Response(text="hello", content_type="text/html")

    assert (await reason(answer)).reason is FailureReason.ANSWER_BROKEN


async def test_the_key_problem_is_told_apart() -> None:
    async def answer(request: web.BaseRequest) -> web.Response:
        del request
        return web.Response(
            status=422,
            text=f'{{"type": "{media.PROBLEM_OHTTP_KEY}"}}',
            content_type=media.PROBLEM_JSON,
        )

    assert (await reason(answer)).reason is FailureReason.KEY_UNKNOWN


async def test_silence_is_a_timeout() -> None:
    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(
            headers={"Content-Type": media.OHTTP_CHUNKED_RESPONSE}
        )
        await response.prepare(request)
        await response.write(b"x")
        await _forever()
        return response

    assert (await reason(answer)).reason is FailureReason.TIMEOUT


async def test_a_lost_connection_is_an_incomplete_answer() -> None:
    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(
            headers={"Content-Type": media.OHTTP_CHUNKED_RESPONSE}
        )
        await response.prepare(request)
        await response.write(b"x")
        assert request.transport is not None
        request.transport.abort()
        return response

    assert (await reason(answer)).reason is FailureReason.ANSWER_INCOMPLETE


async def test_nobody_there_is_told() -> None:
    address = RelayAddress.parse("http://127.0.0.1:9/demo", plain_loopback=True)
    async with RelayTransport(address) as transport:
        with pytest.raises(EnclaveError) as refused:
            await transport.fetch_bundle()
    assert refused.value.reason is FailureReason.RELAY_UNREACHABLE
    assert refused.value.__cause__ is None


async def test_a_large_bundle_is_refused() -> None:
    async def answer(request: web.BaseRequest) -> web.Response:
        del request
        body = b"x" * (MAX_BUNDLE_BYTES + 1)
        return web.Response(body=body, content_type=media.EVIDENCE_BUNDLE)

    async with relay(answer) as transport:
        with pytest.raises(EnclaveError) as refused:
            await transport.fetch_bundle()
    assert refused.value.code == "too_large"


async def test_a_bundle_that_drips_is_given_up() -> None:
    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": media.EVIDENCE_BUNDLE})
        await response.prepare(request)
        for _ in range(500):
            await response.write(b"x")
            await asyncio.sleep(0.02)
        return response

    async with relay(answer, fetch_s=0.2) as transport:
        with pytest.raises(EnclaveError) as refused:
            await transport.fetch_bundle()
    assert refused.value.reason is FailureReason.TIMEOUT


async def test_only_a_sealed_exchange_is_sent() -> None:
    address = RelayAddress.parse("https://relay.invalid/x", plain_loopback=False)
    transport = RelayTransport(address)
    with pytest.raises(TypeError):
        await anext(transport.send(b"plain text"))  # type: ignore[arg-type]


async def test_a_large_request_is_not_sent() -> None:
    seen: list[web.BaseRequest] = []

    async def answer(request: web.BaseRequest) -> web.Response:
        seen.append(request)
        return web.Response(status=413)

    async with relay(answer) as transport:
        with pytest.raises(EnclaveError) as refused:
            await anext(transport.send(sealed("x" * MAX_REQUEST_BYTES)))
    assert refused.value.reason is FailureReason.TOO_LARGE
    assert seen == []


@pytest.mark.parametrize(
    "text",
    [
        "relay.example/x",
        "ftp://relay.example/x",
        "https://relay.example",
        "https://relay.example/x?y=1",
        "https://user:secret@relay.example/x",
        "http://relay.example/x",
        "http://127.0.0.1.example/x",
        "http://10.0.0.1/x",
    ],
)
def test_an_address_that_will_not_do_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        RelayAddress.parse(text, plain_loopback=True)


def test_plain_http_on_loopback_needs_a_development_policy() -> None:
    address = RelayAddress.parse("http://[::1]:80/x/", plain_loopback=True)
    assert address.url == "http://[::1]:80/x"
    with pytest.raises(ConfigError):
        RelayAddress.parse("http://127.0.0.1:80/x", plain_loopback=False)


async def _forever() -> None:

    await asyncio.sleep(30)
