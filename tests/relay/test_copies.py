"""Keys and bundle: one copy for everybody, never older than it may be."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from curtilage.relay.cache import SharedCopy
from curtilage.wire.media import EVIDENCE_BUNDLES, KEY_LISTS
from curtilage.wire.node_list import parse_node_list
from support.relay_parts import (
    CANARY,
    SEALED,
    FakeGateway,
    MakeRelay,
    Message,
    Running,
    Script,
    raw_answer,
    raw_request,
    read_message,
    say,
)

KEYS = b"\x00\x29keys"
BUNDLE = b'{"v":2}'
BUNDLE_TYPE = "application/vnd.curtilage.evidence-bundle+json"


def serve_both(fields: tuple[str, ...] = ()) -> bytes:
    return raw_answer(KEYS, kind="application/ohttp-keys", fields=fields)


async def by_path(writer: asyncio.StreamWriter, message: Message) -> None:
    if message.start_line.startswith("GET /ohttp-keys "):
        writer.write(raw_answer(KEYS, kind="application/ohttp-keys"))
    else:
        writer.write(raw_answer(BUNDLE, kind=BUNDLE_TYPE))


async def test_keys_and_bundle_are_fetched_from_their_paths(
    relay: Running, gateway: FakeGateway
) -> None:
    gateway.script = by_path
    keys = await relay.get("/demo/keys")
    bundle = await relay.get("/demo/bundle")
    assert (keys.body, keys.value("Content-Type")) == (KEYS, "application/ohttp-keys")
    assert (bundle.body, bundle.value("Content-Type")) == (BUNDLE, BUNDLE_TYPE)
    assert [request.start_line for request in gateway.requests] == [
        "GET /ohttp-keys HTTP/1.1",
        "GET /attestation-bundle HTTP/1.1",
    ]
    assert all(request.names == ["Host"] for request in gateway.requests)


async def test_all_clients_get_the_same_bytes_and_fields(
    relay: Running, gateway: FakeGateway
) -> None:
    gateway.script = say(
        serve_both((f"ETag: {CANARY}", "Cache-Control: max-age=47111", "Age: 9"))
    )
    fields = ("If-None-Match: *", "Cache-Control: no-cache", f"Cookie: {CANARY}")
    answers = [
        await relay.get("/demo/keys"),
        await relay.get("/demo/keys", *fields),
        await relay.get("/demo/keys?fresh=1"),
    ]
    heads = {
        tuple(line for line in answer.lines if not line.startswith("Date:"))
        for answer in answers
    }
    assert heads == {
        (
            "Content-Type: application/ohttp-keys",
            f"Content-Length: {len(KEYS)}",
            "Cache-Control: public, max-age=30",
            "Server: curtilage-relay",
        )
    }
    assert {answer.body for answer in answers} == {KEYS}
    assert len(gateway.requests) == 1


async def test_a_burst_fetches_once(relay: Running, gateway: FakeGateway) -> None:
    async def slowly(writer: asyncio.StreamWriter, _: Message) -> None:
        await asyncio.sleep(0.1)
        writer.write(serve_both())

    gateway.script = slowly
    answers = await asyncio.gather(*(relay.get("/demo/keys") for _ in range(20)))
    assert {answer.body for answer in answers} == {KEYS}
    assert len(gateway.requests) == 1


async def test_a_client_that_leaves_does_not_stop_the_fetch(
    relay: Running, gateway: FakeGateway
) -> None:
    async def slowly(writer: asyncio.StreamWriter, _: Message) -> None:
        await asyncio.sleep(0.2)
        writer.write(serve_both())

    gateway.script = slowly
    _, leaving = await relay.connect()
    leaving.write(raw_request("GET", "/demo/keys"))
    staying = asyncio.create_task(relay.get("/demo/keys"))
    await asyncio.sleep(0.1)
    leaving.close()
    assert (await staying).body == KEYS
    assert len(gateway.requests) == 1


async def test_a_copy_is_fetched_again_when_old_and_never_served_past_it(
    make_relay: MakeRelay, gateway: FakeGateway
) -> None:
    relay = await make_relay(limits={"cache_s": 1})
    gateway.script = say(serve_both())
    assert (await relay.get("/demo/keys")).status == 200
    gateway.script = say(raw_answer(b"", status="500 No"))
    assert (await relay.get("/demo/keys")).status == 200
    await asyncio.sleep(1.05)
    assert (await relay.get("/demo/keys")).status == 502
    gateway.script = say(raw_answer(b"new", kind="application/ohttp-keys"))
    answer = await relay.get("/demo/keys")
    assert answer.body == b"new"
    assert answer.value("Cache-Control") == "public, max-age=1"


@pytest.mark.parametrize(
    "answer",
    [
        raw_answer(KEYS, kind="text/plain"),
        raw_answer(KEYS, kind=None),
        raw_answer(KEYS, kind="application/ohttp-keys;x=canary"),
        raw_answer(KEYS, kind="application/ohttp-keys", status="203 Other"),
        raw_answer(KEYS, kind="application/ohttp-keys", status="302 Found"),
        raw_answer(KEYS, kind="application/ohttp-keys", status="404 No"),
        raw_answer(
            KEYS, kind="application/ohttp-keys", fields=("Content-Encoding: gzip",)
        ),
        raw_answer(b"x" * (16 * 1024 + 1), kind="application/ohttp-keys"),
        raw_answer(KEYS, kind="application/ohttp-keys")[:-1],
        b"canary\r\n\r\n",
    ],
)
async def test_odd_key_answers_are_not_served(
    relay: Running, gateway: FakeGateway, answer: bytes
) -> None:
    async def once(writer: asyncio.StreamWriter, _: Message) -> None:
        writer.write(answer)
        await writer.drain()
        writer.close()

    gateway.script = once
    refused = await relay.get("/demo/keys")
    assert refused.status == 502
    assert b"canary" not in refused.head + refused.body


async def test_bundle_may_be_larger_than_keys(
    relay: Running, gateway: FakeGateway
) -> None:
    gateway.script = say(raw_answer(b"x" * 262144, kind=BUNDLE_TYPE))
    assert (await relay.get("/demo/bundle")).status == 200


async def test_too_large_a_bundle_is_not_served(
    relay: Running, gateway: FakeGateway
) -> None:
    gateway.script = say(raw_answer(b"x" * 262145, kind=BUNDLE_TYPE))
    assert (await relay.get("/demo/bundle")).status == 502


async def test_a_silent_gateway_ends_the_fetch(
    make_relay: MakeRelay, gateway: FakeGateway
) -> None:
    relay = await make_relay(limits={"fetch_timeout_s": 0.2})
    gateway.script = say()
    assert (await relay.get("/demo/keys")).status == 504


async def test_stop_ends_a_fetch_that_is_under_way(
    make_relay: MakeRelay, gateway: FakeGateway
) -> None:
    relay = await make_relay(limits={"shutdown_grace_s": 0.1})
    gateway.script = say()
    reader, writer = await relay.connect()
    writer.write(raw_request("GET", "/demo/keys"))
    await gateway.arrived()
    async with asyncio.timeout(8):
        await relay.relay.stop()
        assert not (await reader.read()).startswith(b"HTTP/1.1 200")
    writer.close()


# The nodes of a pool

PATIENT = {"node_fetch_timeout_s": 20.0}


@pytest.fixture
async def second() -> AsyncIterator[FakeGateway]:
    fake = FakeGateway()
    server = await asyncio.start_server(fake.serve, "127.0.0.1", 0)
    fake.port = server.sockets[0].getsockname()[1]
    yield fake
    server.close()


def pool_of(*nodes: FakeGateway) -> dict[str, object]:
    ids = ("b", "a")  # the configuration's order is not the list's
    return {
        "many": {
            node: f"http://127.0.0.1:{gateway.port}"
            for node, gateway in zip(ids, nodes, strict=True)
        }
    }


async def test_a_pool_has_one_list_of_keys_and_one_of_bundles(
    make_relay: MakeRelay, gateway: FakeGateway, second: FakeGateway
) -> None:
    relay = await make_relay(gateways=pool_of(gateway, second), limits=PATIENT)
    gateway.script, second.script = by_path, say(raw_answer(b"?", kind=BUNDLE_TYPE))
    bundles = await relay.get("/many/bundle")
    assert bundles.value("Content-Type") == EVIDENCE_BUNDLES
    assert parse_node_list(bundles.body) == {"a": b"?", "b": BUNDLE}
    second.script = by_path
    keys = await relay.get("/many/keys")
    assert keys.value("Content-Type") == KEY_LISTS
    assert parse_node_list(keys.body) == {"a": KEYS, "b": KEYS}
    assert keys.names == bundles.names
    again = await asyncio.gather(*(relay.get("/many/bundle") for _ in range(5)))
    assert {answer.body for answer in again} == {bundles.body}
    assert (len(gateway.requests), len(second.requests)) == (2, 2)


async def test_nothing_can_be_fetched_of_one_node(
    make_relay: MakeRelay, gateway: FakeGateway, second: FakeGateway
) -> None:
    relay = await make_relay(gateways=pool_of(gateway, second))
    for path in ("/many/a/bundle", "/many/a/keys", "/many/c", "/many"):
        assert (await relay.get(path)).status == 404
    assert (await relay.get("/many/a")).status == 405
    assert gateway.requests == second.requests == []


@pytest.mark.parametrize(
    "fails", [say(raw_answer(b"", status="500 No")), say()], ids=["refuses", "silent"]
)
async def test_a_node_that_gives_nothing_is_listed_all_the_same(
    make_relay: MakeRelay, gateway: FakeGateway, second: FakeGateway, fails: Script
) -> None:
    limit = {"node_fetch_timeout_s": 5.0}
    relay = await make_relay(gateways=pool_of(gateway, second), limits=limit)
    gateway.script, second.script = by_path, fails
    answer = await relay.get("/many/bundle")
    assert parse_node_list(answer.body) == {"a": b"", "b": BUNDLE}


async def test_a_pool_of_which_no_node_answers_has_no_list(
    make_relay: MakeRelay, gateway: FakeGateway, second: FakeGateway
) -> None:
    relay = await make_relay(gateways=pool_of(gateway, second), limits=PATIENT)
    gateway.script = second.script = say(raw_answer(b"", status="500 No"))
    assert (await relay.get("/many/bundle")).status == 502
    gateway.script = by_path
    assert (await relay.get("/many/bundle")).status == 200, "a failure is not kept"


async def test_a_question_reaches_the_node_that_it_names(
    make_relay: MakeRelay, gateway: FakeGateway, second: FakeGateway
) -> None:
    relay = await make_relay(gateways=pool_of(gateway, second))
    answer = await relay.post("/many/a", body=SEALED)
    assert answer.status == 200
    assert (len(gateway.requests), len(second.requests)) == (0, 1)
    assert second.requests[0].start_line == "POST /.well-known/ohttp-gateway HTTP/1.1"


async def test_healthz_says_ok_without_asking_a_gateway(
    relay: Running, gateway: FakeGateway
) -> None:
    answer = await relay.get("/healthz")
    assert (answer.status, answer.body) == (200, b"ok\n")
    assert gateway.requests == []


async def test_a_get_with_content_is_answered_and_closes_cleanly(
    relay: Running,
) -> None:
    reader, writer = await relay.connect()
    writer.write(raw_request("GET", "/healthz", (), b"ignored"))
    writer.write(raw_request("GET", "/healthz"))
    async with asyncio.timeout(8):
        first, second = await read_message(reader), await read_message(reader)
    writer.close()
    assert (first.status, second.status) == (200, 200)


# The copy by itself


class Source:
    def __init__(self) -> None:
        self.now = 100.0
        self.fetched = 0
        self.failing = False

    def clock(self) -> float:
        return self.now

    async def fetch(self) -> bytes:
        self.fetched += 1
        self.now += 2
        if self.failing:
            raise LookupError
        return str(self.fetched).encode()


async def test_age_counts_from_before_the_fetch() -> None:
    source = Source()
    copy = SharedCopy(source.fetch, max_age_s=30, clock=source.clock)
    assert await copy.get() == b"1"
    source.now = 129.9
    assert (copy.current(), await copy.get()) == (b"1", b"1")
    source.now = 130.0
    assert copy.current() is None
    assert await copy.get() == b"2"


async def test_failure_reaches_everybody_who_waits_and_is_not_kept() -> None:
    source = Source()
    source.failing = True
    copy = SharedCopy(source.fetch, max_age_s=30, clock=source.clock)
    results = await asyncio.gather(copy.get(), copy.get(), return_exceptions=True)
    assert [type(result) for result in results] == [LookupError, LookupError]
    assert source.fetched == 1
    source.failing = False
    assert await copy.get() == b"2"


async def test_closing_an_idle_copy_does_nothing() -> None:
    source = Source()
    await SharedCopy(source.fetch, max_age_s=30, clock=source.clock).close()
    assert source.fetched == 0
