"""Every kind of exchange, once, over a stack between taps."""

import asyncio
import hashlib
from datetime import timedelta
from pathlib import Path

import aiohttp

from curtilage.client.chat.answer import Answerer
from curtilage.client.endpoint.gateway import serving
from curtilage.client.endpoint.gateway_file import GatewayFile
from curtilage.client.endpoint.keys import make_key
from curtilage.client.remote.cover import CoverSettings
from curtilage.client.session import Session
from curtilage.wire.media import OHTTP_CHUNKED_REQUEST, OHTTP_REQUEST
from curtilage.wire.shaping import TransportParameters
from curtilage_dev.processes import Processes
from curtilage_dev.stack import Stack
from support.byte_model import make_byte_model
from support.hops import (
    POOL,
    REGULATED,
    Hops,
    get,
    plain_request,
    post,
    query,
    tapped_stack,
)

QUICK = TransportParameters(frame_bytes=512, period_ms=5, first_bucket=8, buckets=16)
CACHE_S = 1
STRICT = "topic.finance"
COVER = CoverSettings(delay_s=(0.0, 0.0), share=100)
APPLICATIONS = ("wombat-letters", "wombat-triage")


async def record(folder: Path) -> Hops:
    """Run everything in a folder; the taps keep the traffic."""
    path = make_byte_model(folder / "byte.gguf")
    with Processes(folder) as processes:
        stack = Stack(
            folder=folder,
            processes=processes,
            model=str(path),
            model_sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
            transport=QUICK,
            record=False,
            enclave_extra="[challenge]\nenabled = true\nleast_interval_s = 1\n",
            relay_extra="[clients]\nexchanges = 0\n[limits]\n"
            f"cache_s = {CACHE_S}\nmax_upstream = 4\nplace_wait_s = 0\n",
        )
        stack.start_evidence()
        stack.publish()
        async with tapped_stack(stack) as hops:
            await ours(hops)
            await challenged(hops)
            await others(hops)
            await late(hops)
            return hops


async def ours(hops: Hops) -> None:
    """What our client does by itself."""
    async with hops.session() as session:
        for kind, stream in (("streamed", True), ("whole", False)):
            async with hops.capturing(kind, ours=True):
                answer = await session.ask(query(stream=stream))
                assert answer.provenance.route is Answerer.ENCLAVE, (
                    answer.provenance.fallback
                )
                await session.settle()
        async with hops.capturing("a longer class", ours=True):
            await session.ask(query("Why? " * 900))
            await session.settle()
        async with hops.capturing("cancelled", ours=True):
            stream_ = session.stream(query())
            await stream_.begin()
            await stream_.aclose()
            await session.settle()
    async with hops.session() as session:
        await session.verified_key()
        async with hops.capturing("applications", ours=True):
            await applications(session)
            await session.settle()
    async with (
        hops.session(pool=True) as session,
        hops.capturing("pool", ours=True),
    ):
        answer = await session.ask(query())
        assert answer.provenance.route is Answerer.ENCLAVE, answer.provenance.fallback
        await session.settle()
    async with (
        hops.session(finds=(REGULATED,), cover=COVER) as session,
        hops.capturing("cover", ours=True),
    ):
        answer = await session.ask(query())
        assert answer.provenance.route is Answerer.LOCAL
        await session.settle()
    async with (
        hops.session(clock_off=timedelta(minutes=5)) as session,
        hops.capturing("date corrected", ours=True),
    ):
        answer = await session.ask(query())
        assert answer.provenance.route is Answerer.ENCLAVE, answer.provenance.fallback
        await session.settle()


async def applications(session: Session) -> None:
    """The same question by two applications of a gateway."""
    made = [make_key(name) for name in APPLICATIONS]
    file = GatewayFile(
        path=Path("gateway.toml"),
        host="127.0.0.1",
        port=0,
        names=frozenset({"127.0.0.1"}),
        records=tuple(record for _, record in made),
    )
    async with serving(session, file) as gateway, aiohttp.ClientSession() as http:
        for key, _ in made:
            said = {"role": "user", "content": "What is a curtilage?"}
            async with http.post(
                f"{gateway.url}/chat/completions",
                json={"messages": [said], "max_tokens": 24},
                headers={"Authorization": f"Bearer {key}"},
            ) as response:
                assert response.headers["x-curtilage-route"] == "enclave"


async def challenged(hops: Hops) -> None:
    """A question of the strictest class: a challenge goes before it."""
    demands = f"  classes: [{{classes: [{STRICT}], challenge: true}}]\n"
    async with (
        hops.session(finds=(STRICT,), demands=demands) as session,
        hops.capturing("challenged", ours=True),
    ):
        answer = await session.ask(query())
        assert answer.provenance.route is Answerer.ENCLAVE, answer.provenance.fallback
        assert answer.finished.receipted
        await session.settle()


async def others(hops: Hops) -> None:
    """What other clients send, careless ones and worse."""
    (keys,) = await hops.raw("key list", get("/demo/keys"))
    await hops.raw("bundle", get("/demo/bundle"))
    await hops.raw("pool's key lists", get(f"/{POOL}/keys"))
    await hops.raw("plain", post(plain_request(keys.body), OHTTP_REQUEST))
    asked = hops.of_kind("streamed").near[-1].request.body
    await hops.raw("replayed", post(asked, OHTTP_CHUNKED_REQUEST, "Incremental: ?1"))
    spoilt = asked[:-1] + bytes([asked[-1] ^ 1])
    await hops.raw("does not open", post(spoilt, OHTTP_CHUNKED_REQUEST))
    unknown = bytes([asked[0] ^ 128]) + asked[1:]
    await hops.raw("unknown key", post(unknown, OHTTP_CHUNKED_REQUEST))
    await hops.raw("no such path", get("/quokka"))
    await hops.raw("no such method", get("/demo"))
    await hops.raw("wrong type", post(b"x", "text/plain"))
    await hops.raw("coded", post(b"x", OHTTP_REQUEST, "Content-Encoding: gzip"))
    await hops.raw("expectant", post(b"x", OHTTP_REQUEST, "Expect: 100-continue"))
    await hops.raw("too large", post(bytes(2 * 1024 * 1024), OHTTP_REQUEST))
    many = [post(plain_request(keys.body), OHTTP_REQUEST) for _ in range(8)]
    await hops.raw("too many", *many)


async def late(hops: Hops) -> None:
    """What follows when the enclave is another, and when it is gone."""
    async with hops.session() as session:
        await session.verified_key()
        hops.stack.running["enclave"].stop()
        hops.stack.start_enclave()
        await asyncio.sleep(CACHE_S + 0.2)
        async with hops.capturing("keys replaced", ours=True):
            answer = await session.ask(query())
            assert answer.provenance.route is Answerer.ENCLAVE, (
                answer.provenance.fallback
            )
            await session.settle()
        hops.stack.running["enclave"].stop()
        async with hops.capturing("enclave gone", ours=True):
            answer = await session.ask(query())
            assert answer.provenance.route is Answerer.LOCAL
