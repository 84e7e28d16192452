import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from curtilage.client.chat.query import Message, Query
from curtilage.client.errors import ConfigError, EnclaveError, FailureReason
from curtilage.client.remote.access import RelayAccess
from curtilage.client.remote.addresses import MirrorAddress, RelayAddress
from curtilage.client.remote.fetch_order import RELAY
from curtilage.client.remote.mirror import MirrorTransport
from curtilage.client.remote.reasons import EnclaveFailure
from curtilage.client.remote.sealed import SealedExchange
from curtilage.client.remote.transport import (
    MAX_BUNDLE_BYTES,
    MAX_KEY_CONFIGS_BYTES,
    MAX_REQUEST_BYTES,
    RelayTransport,
    pause_s,
)
from curtilage.client.system.tls import tls_context
from curtilage.policy.decision.decide import decide
from curtilage.policy.decision.permit import Party
from curtilage.policy.document.load import load_profile
from curtilage.wire import media
from curtilage.wire.node_list import MAX_LIST_BYTES
from curtilage.wire.shaping import UNPADDED, TransportParameters
from support.inspections import inspection_of
from support.memory_enclave import NOW, QUICK, MemoryEnclave, verified
from support.permits import order, seal_permitted

CANARY = "canary-31c4"
API_KEY = "ward-7.0123456789abcdef"
Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
ALLOWED_FIELDS = {"Host", "Content-Type", "Content-Length", "Incremental"}


def sealed(
    text: str = CANARY, *, enclave: MemoryEnclave | None = None
) -> SealedExchange:
    query = Query(messages=(Message(role="user", content=text),))
    inspection = inspection_of(
        findings=(), payload_digest=query.payload_digest(), messages=1
    )
    allowed = decide(load_profile("default").rulebook, inspection).allowed
    assert allowed is not None
    key = verified(enclave or MemoryEnclave())
    return seal_permitted(allowed, query, key, now=NOW)[0]


@asynccontextmanager
async def relay(
    handler: Handler,
    *,
    fetch_s: float = 5,
    idle_s: float = 0.5,
    access: RelayAccess | None = None,
) -> AsyncGenerator[RelayTransport]:
    runner = web.ServerRunner(web.Server(handler, handler_cancellation=True))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    address = RelayAddress.parse(f"http://127.0.0.1:{port}/demo", plain_loopback=True)
    try:
        made = RelayTransport(
            address,
            access=access,
            connect_s=10,
            idle_s=idle_s,
            silence_s=2,
            fetch_s=fetch_s,
        )
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


async def test_send_posts_the_sealed_request_and_identifies_no_one() -> None:
    seen: list[web.BaseRequest] = []

    async def answer(request: web.BaseRequest) -> web.Response:
        seen.append(request)
        assert CANARY.encode() not in await request.read()
        return web.Response(body=b"abc", content_type=media.OHTTP_CHUNKED_RESPONSE)

    assert await send(answer) == b"abc"
    assert (seen[0].method, seen[0].path_qs) == ("POST", "/demo")
    assert {name.title() for name in seen[0].headers} == ALLOWED_FIELDS
    assert seen[0].headers["Incremental"] == "?1"


async def test_a_request_for_a_pools_node_names_the_node_alone() -> None:
    seen: list[web.BaseRequest] = []

    async def answer(request: web.BaseRequest) -> web.Response:
        seen.append(request)
        return web.Response(body=b"abc", content_type=media.OHTTP_CHUNKED_RESPONSE)

    exchange = sealed()
    exchange.node = "b"
    async with relay(answer) as transport:
        assert b"".join([data async for data in transport.send(exchange)]) == b"abc"
    assert (seen[0].method, seen[0].path_qs) == ("POST", "/demo/b")
    assert {name.title() for name in seen[0].headers} == ALLOWED_FIELDS


async def test_a_pools_bundles_come_with_the_same_fetch_and_may_be_longer() -> None:
    seen: list[str] = []
    body = b"x" * (MAX_BUNDLE_BYTES + 1)

    async def answer(request: web.BaseRequest) -> web.Response:
        seen.append(request.path_qs)
        return web.Response(body=body, content_type=media.EVIDENCE_BUNDLES)

    async with relay(answer) as transport:
        assert await transport.fetch_bundle(order()) == body
    assert seen == ["/demo/bundle"]


async def test_too_long_a_list_of_bundles_is_refused() -> None:
    async def answer(request: web.BaseRequest) -> web.Response:
        del request
        body = b"x" * (MAX_LIST_BYTES + 1)
        return web.Response(body=body, content_type=media.EVIDENCE_BUNDLES)

    async with relay(answer) as transport:
        with pytest.raises(EnclaveError) as refused:
            await transport.fetch_bundle(order())
    assert refused.value.code == "too_large"


@pytest.mark.parametrize(("status", "code"), [(429, "429"), (504, "504"), (503, None)])
async def test_the_relays_own_statuses_are_distinguished(
    status: int, code: str | None
) -> None:
    async def answer(request: web.BaseRequest) -> web.Response:
        del request
        return web.Response(status=status)

    assert (await reason(answer)).code == code


async def test_fetch_identifies_no_one() -> None:
    seen: list[web.BaseRequest] = []

    async def answer(request: web.BaseRequest) -> web.Response:
        seen.append(request)
        return web.Response(body=b"{}", content_type=media.EVIDENCE_BUNDLE)

    async with relay(answer) as transport:
        assert await transport.fetch_bundle(order()) == b"{}"
    assert (seen[0].method, seen[0].path_qs) == ("GET", "/demo/bundle")
    assert {name.title() for name in seen[0].headers} == {"Host"}


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (401, EnclaveFailure.RELAY_DENIED),
        (403, EnclaveFailure.RELAY_DENIED),
        (404, EnclaveFailure.RELAY_KNOWS_NO_SUCH),
        (405, EnclaveFailure.RELAY_KNOWS_NO_SUCH),
        (421, EnclaveFailure.RELAY_KNOWS_NO_SUCH),
        (413, EnclaveFailure.TOO_LARGE),
        (429, EnclaveFailure.BUSY),
        (502, EnclaveFailure.ENCLAVE_UNREACHABLE),
        (503, EnclaveFailure.BUSY),
        (504, EnclaveFailure.TIMEOUT),
        (422, EnclaveFailure.REFUSED),
        (302, EnclaveFailure.REFUSED),
        (500, EnclaveFailure.REFUSED),
    ],
)
async def test_every_other_status_is_a_reason(
    status: int, expected: FailureReason
) -> None:
    async def answer(request: web.BaseRequest) -> web.Response:
        del request
        return web.Response(status=status, headers={"Location": "/elsewhere"})

    assert (await reason(answer)).reason is expected


@pytest.mark.parametrize(
    "kind", ["text/html", media.OHTTP_RESPONSE, media.OHTTP_CHUNKED_REQUEST]
)
async def test_an_answer_of_another_type_is_broken(kind: str) -> None:
    async def answer(request: web.BaseRequest) -> web.Response:
        del request
        return web.Response(text="hello", content_type=kind)

    assert (await reason(answer)).reason is EnclaveFailure.ANSWER_BROKEN


async def test_the_key_problem_is_distinguished() -> None:
    async def answer(request: web.BaseRequest) -> web.Response:
        del request
        return web.Response(
            status=422,
            text=f'{{"type": "{media.PROBLEM_OHTTP_KEY}"}}',
            content_type=media.PROBLEM_JSON,
        )

    assert (await reason(answer)).reason is EnclaveFailure.KEY_UNKNOWN


async def test_silence_is_a_timeout() -> None:
    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(
            headers={"Content-Type": media.OHTTP_CHUNKED_RESPONSE}
        )
        await response.prepare(request)
        await response.write(b"x")
        await _forever()
        return response

    assert (await reason(answer)).reason is EnclaveFailure.TIMEOUT


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

    assert (await reason(answer)).reason is EnclaveFailure.ANSWER_INCOMPLETE


async def test_an_unreachable_relay_is_reported() -> None:
    address = RelayAddress.parse("http://127.0.0.1:9/demo", plain_loopback=True)
    async with RelayTransport(address) as transport:
        with pytest.raises(EnclaveError) as refused:
            await transport.fetch_bundle(order())
    assert refused.value.reason is EnclaveFailure.RELAY_UNREACHABLE
    assert refused.value.__cause__ is None


async def test_a_name_that_the_relay_does_not_know_is_reported() -> None:
    async def answer(request: web.BaseRequest) -> web.Response:
        del request
        return web.Response(status=404)

    async with relay(answer) as transport:
        with pytest.raises(EnclaveError) as no:
            await transport.fetch_bundle(order())
    assert no.value.reason is EnclaveFailure.RELAY_KNOWS_NO_SUCH


async def test_an_unresolved_name_costs_the_time_for_a_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A network may swallow the questions to its name server as well."""

    async def never(*_: object, **__: object) -> object:
        return await asyncio.Event().wait()

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", never)
    address = RelayAddress.parse("https://relay.example/demo", plain_loopback=False)
    async with RelayTransport(address, connect_s=0.2, fetch_s=3600) as transport:
        with pytest.raises(EnclaveError) as refused:
            await transport.fetch_bundle(order())
    assert refused.value.reason is EnclaveFailure.TIMEOUT


async def test_a_large_bundle_is_refused() -> None:
    async def answer(request: web.BaseRequest) -> web.Response:
        del request
        body = b"x" * (MAX_BUNDLE_BYTES + 1)
        return web.Response(body=body, content_type=media.EVIDENCE_BUNDLE)

    async with relay(answer) as transport:
        with pytest.raises(EnclaveError) as refused:
            await transport.fetch_bundle(order())
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
            await transport.fetch_bundle(order())
    assert refused.value.reason is EnclaveFailure.TIMEOUT


async def test_only_a_sealed_exchange_is_sent() -> None:
    address = RelayAddress.parse("https://relay.invalid/x", plain_loopback=False)
    transport = RelayTransport(address)
    with pytest.raises(TypeError):
        await anext(transport.send(b"plain text"))  # type: ignore[arg-type]


async def test_the_largest_class_is_sent() -> None:
    sizes: list[int] = []

    async def answer(request: web.BaseRequest) -> web.Response:
        sizes.append(len(await request.read()))
        return web.Response(body=b"abc", content_type=media.OHTTP_CHUNKED_RESPONSE)

    async with relay(answer) as transport:
        large = sealed("x" * (MAX_REQUEST_BYTES - 4096))
        assert b"".join([data async for data in transport.send(large)]) == b"abc"
    assert sizes == [MAX_REQUEST_BYTES]


async def test_an_api_key_goes_to_the_relay_with_every_request() -> None:
    seen: list[web.BaseRequest] = []

    async def answer(request: web.BaseRequest) -> web.Response:
        seen.append(request)
        if request.method == "GET":
            return web.Response(body=b"{}", content_type=media.EVIDENCE_BUNDLE)
        return web.Response(body=b"abc", content_type=media.OHTTP_CHUNKED_RESPONSE)

    access = RelayAccess(tls=tls_context(), api_key=API_KEY)
    async with relay(answer, access=access) as transport:
        await transport.fetch_bundle(order())
        _ = [data async for data in transport.send(sealed())]
    own = {"Authorization": f"Bearer {API_KEY}"}
    for request in seen:
        assert {name.title() for name in request.headers} <= {*ALLOWED_FIELDS, *own}
        assert request.headers["Authorization"] == own["Authorization"]
    assert API_KEY not in repr(access) + repr(transport) + str(vars(transport))


async def test_a_padded_answer_may_be_silent_for_many_periods_and_no_longer() -> None:
    slow = TransportParameters(period_ms=200, first_bucket=2, buckets=1)
    assert pause_s(QUICK) == 5
    assert pause_s(slow) == 20


@pytest.mark.parametrize("parameters", [QUICK, UNPADDED], ids=["padded", "not"])
async def test_the_pause_depends_on_the_shape(parameters: TransportParameters) -> None:
    """Of a padded answer, a pause of 2 s is too long here; of the other, 60 s."""

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(
            headers={"Content-Type": media.OHTTP_CHUNKED_RESPONSE}
        )
        await response.prepare(request)
        await response.write(b"x")
        await asyncio.sleep(4)
        await response.write_eof()
        return response

    async with relay(answer, idle_s=60) as transport:
        exchange = sealed(enclave=MemoryEnclave(parameters=parameters))
        pieces = transport.send(exchange)
        assert await anext(pieces) == b"x"
        if parameters is UNPADDED:
            assert [data async for data in pieces] == []
            return
        with pytest.raises(EnclaveError) as refused:
            await anext(pieces)
        assert refused.value.reason is EnclaveFailure.TIMEOUT


# --- the mirror of the key list ---------------------------------------------------


@asynccontextmanager
async def mirror(handler: Handler) -> AsyncGenerator[MirrorTransport]:
    runner = web.ServerRunner(web.Server(handler, handler_cancellation=True))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}/keys"
    address = MirrorAddress.parse(url, plain_loopback=True)
    transport = MirrorTransport(address, connect_s=10, fetch_s=5)
    try:
        yield transport
    finally:
        await transport.close()
        await runner.cleanup()


async def mirrored(handler: Handler) -> bytes:
    async with mirror(handler) as transport:
        return await transport.fetch_key_configs(order(Party.MIRROR))


async def test_the_mirror_is_sent_nothing() -> None:
    seen: list[web.BaseRequest] = []

    async def answer(request: web.BaseRequest) -> web.Response:
        seen.append(request)
        return web.Response(body=b"keys", content_type=media.OHTTP_KEYS)

    assert await mirrored(answer) == b"keys"
    assert (seen[0].method, seen[0].path_qs) == ("GET", "/keys")
    assert {name.title() for name in seen[0].headers} == {"Host"}


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (200, b"keys", "application/octet-stream"),
        (200, b"x" * (MAX_KEY_CONFIGS_BYTES + 1), media.OHTTP_KEYS),
        (302, b"keys", media.OHTTP_KEYS),
        (500, b"keys", media.OHTTP_KEYS),
    ],
)
async def test_anything_but_a_key_list_is_refused(
    status: int, body: bytes, kind: str
) -> None:
    seen: list[web.BaseRequest] = []

    async def answer(request: web.BaseRequest) -> web.Response:
        seen.append(request)
        fields = {"Location": "/keys"}
        return web.Response(status=status, body=body, content_type=kind, headers=fields)

    with pytest.raises(EnclaveError):
        await mirrored(answer)
    assert len(seen) == 1, "no redirect is followed"


@pytest.mark.parametrize(
    "text",
    [
        "keys.example/x",
        "http://keys.example/x",
        "https:///x",
        "https://me@keys.example/x",
        "https://keys.example/x#y",
        "https://[::1/x",
        "https://keys.example:x/y",
    ],
)
def test_a_mirrors_address_that_will_not_do_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        MirrorAddress.parse(text, plain_loopback=True)


def test_a_mirror_without_tls_needs_a_development_policy() -> None:
    MirrorAddress.parse("http://127.0.0.1:80/x", plain_loopback=True)
    with pytest.raises(ConfigError):
        MirrorAddress.parse("http://127.0.0.1:80/x", plain_loopback=False)


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


async def test_nothing_is_fetched_without_an_order() -> None:
    address = RelayAddress.parse("http://127.0.0.1:1/x", plain_loopback=True)
    mirror = MirrorAddress.parse("http://127.0.0.1:1/x", plain_loopback=True)
    spent = order()
    spent.take(RELAY)
    async with RelayTransport(address) as transport:
        for wrong in (None, "relay"):
            with pytest.raises(TypeError):
                await transport.fetch_bundle(wrong)  # type: ignore[arg-type]
            with pytest.raises(TypeError):
                await MirrorTransport(mirror).fetch_key_configs(wrong)  # type: ignore[arg-type]
        for wrong_order in (spent, order(Party.MIRROR)):
            with pytest.raises(RuntimeError):
                await transport.fetch_bundle(wrong_order)
    with pytest.raises(RuntimeError):
        await MirrorTransport(mirror).fetch_key_configs(order(Party.RELAY))
