"""Runs every kind of exchange through taps on both hops and records the traffic.

Real processes: enclave, relay, emulated processor; our client in this process.
Requests that our client never sends (those of other clients, with any fields)
come from plain sockets.
"""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from curtilage.client.chat.query import Message, Query, Settings
from curtilage.client.parts import ClientParts
from curtilage.client.remote.addresses import MirrorAddress, RelayAddress
from curtilage.client.remote.cover import CoverSettings
from curtilage.client.remote.key_store import KeyStore
from curtilage.client.remote.mirror import MirrorTransport
from curtilage.client.remote.transport import RelayTransport
from curtilage.client.session import Session
from curtilage.policy.document.load import load_policy
from curtilage.policy.expectations import expectations_from
from curtilage.wire import bhttp, ohttp
from curtilage.wire.keyconfig import parse_key_configs
from curtilage.wire.media import KEYS_PATH
from curtilage_dev.stack import Stack
from support.client_parts import MemoryTrail, ScriptedInspector, ScriptedLocal
from support.enclave_parts import until
from support.http_stream import HttpMessage, read_requests, read_responses
from support.wiretap import Wiretap, wiretapped

REGULATED = "financial.pan"
POOL = "many"
NODE = "a"
"""The enclave is also a pool's node, with a second one that is unreachable."""
DIRT = (
    "User-Agent: quokka/7",
    "Cookie: id=quokka",
    "Traceparent: 00-quokka-quokka-01",
    "X-Forwarded-For: 192.0.2.7",
    "Accept-Language: tlh",
    "If-None-Match: quokka",
    "X-Quokka: quokka",
)
"""Fields of a careless client; none of them may reach the enclave."""


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A request and its answer on one hop."""

    request: HttpMessage
    response: HttpMessage


@dataclass(frozen=True, kw_only=True)
class Capture:
    """What one kind of exchange put on the two hops.

    Attributes:
        kind: what was done.
        ours: whether our own client did it.
        near: between client and relay.
        far: between relay and enclave.
        mirror: between client and mirror.
    """

    kind: str
    ours: bool
    near: tuple[Pair, ...] = field(repr=False)
    far: tuple[Pair, ...] = field(repr=False)
    mirror: tuple[Pair, ...] = field(repr=False)


@dataclass
class Hops:
    """A running stack between two taps.

    Attributes:
        stack: the processes.
        near: the tap between client and relay.
        far: the tap between relay and enclave.
        mirror: the tap before the mirror, whose role the enclave takes.
        captures: one for each exchange so far.
    """

    stack: Stack
    near: Wiretap
    far: Wiretap
    mirror: Wiretap
    captures: list[Capture] = field(default_factory=list[Capture])

    def of_kind(self, kind: str) -> Capture:
        (found,) = [capture for capture in self.captures if capture.kind == kind]
        return found

    @asynccontextmanager
    async def capturing(self, kind: str, *, ours: bool) -> AsyncGenerator[None]:
        """Record the traffic inside the block as one capture."""
        taps = (self.near, self.far, self.mirror)
        marks = [len(tap.seen) for tap in taps]
        yield
        cut = (not ours, False, False)
        near, far, mirror = map(_pairs, taps, marks, cut)
        self.captures.append(
            Capture(
                kind=kind,
                ours=ours,
                near=near,
                far=far,
                mirror=mirror,
            )
        )

    @asynccontextmanager
    async def session(
        self,
        *,
        finds: tuple[str, ...] = (),
        clock_off: timedelta = timedelta(0),
        cover: CoverSettings | None = None,
        demands: str = "",
        pool: bool = False,
    ) -> AsyncGenerator[Session]:
        """Open our client on the tap; ``demands`` go into ``attestation:``.

        ``pool``: of the pool, whose key lists no mirror serves.
        """
        text = self.stack.policy.read_text("utf-8")
        begins = "attestation:\n  environment"
        policy = load_policy(
            text.replace(begins, f"attestation:\n{demands}  environment")
        )
        mirror = MirrorAddress.parse(
            f"http://{self.mirror.address}{KEYS_PATH}", plain_loopback=True
        )
        session = Session(
            ClientParts(
                policy=policy,
                inspector=ScriptedInspector(*finds),
                local=ScriptedLocal(),
                transport=RelayTransport(
                    RelayAddress.parse(
                        self.url("", POOL if pool else "demo"), plain_loopback=True
                    )
                ),
                keys=KeyStore(expectations=expectations_from(policy)),
                audit=MemoryTrail(),
                mirror=None if pool else MirrorTransport(mirror),
                cover=cover,
                clock=lambda: datetime.now(UTC) + clock_off,
            )
        )
        open_before = self.near.alive
        async with session:
            yield session
        # The tap hears a little later: what is still open would hide what comes next.
        await until(lambda: self.near.alive <= open_before, within_s=30)

    def url(self, path: str, gateway: str = "demo") -> str:
        return f"http://{self.near.address}/{gateway}{path}"

    async def raw(self, kind: str, *requests: bytes) -> list[HttpMessage]:
        """Send raw requests, all at once; return the answers."""
        async with self.capturing(kind, ours=False):
            before = self.near.alive
            answers = await asyncio.gather(*map(self._send, requests))
            await until(lambda: self.near.alive <= before, within_s=30)
        return answers

    async def _send(self, data: bytes) -> HttpMessage:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.near.port)
        try:
            writer.write(data)
            async with asyncio.timeout(30):
                return await _read_answer(reader)
        finally:
            writer.close()


@asynccontextmanager
async def tapped_stack(stack: Stack) -> AsyncGenerator[Hops]:
    """Start enclave and relay with a tap before each."""
    stack.start_enclave()
    async with wiretapped(stack.enclave_address) as far:
        real = stack.enclave_address
        stack.enclave_address = far.address
        stack.relay_extra += (
            f'[gateways.{POOL}]\n{NODE} = "http://{far.address}"\n'
            'b = "http://127.0.0.1:9"\n'
        )
        stack.start_relay()
        stack.enclave_address = real
        async with (
            wiretapped(stack.relay_address) as near,
            wiretapped(stack.enclave_address) as mirror,
        ):
            yield Hops(stack, near, far, mirror)


def query(text: str = "What is a curtilage?", *, stream: bool = True) -> Query:
    """A question for the small model."""
    settings = Settings(max_tokens=24, temperature=0, seed=1)
    message = Message(role="user", content=text)
    return Query(messages=(message,), settings=settings, stream=stream)


def post(body: bytes, kind: str, *more: str, path: str = "/demo") -> bytes:
    """A request as another client would send it, dirt included."""
    lines = [f"POST {path} HTTP/1.1", "Host: relay.example", f"Content-Type: {kind}"]
    lines += [*DIRT, *more, f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, "", ""]).encode() + body


def get(path: str) -> bytes:
    lines = [f"GET {path} HTTP/1.1", "Host: relay.example", *DIRT]
    return "\r\n".join([*lines, "", ""]).encode()


def plain_request(keys: bytes) -> bytes:
    """Seal a chat request in the plain form, as other people's clients do."""
    now = datetime.now(UTC).strftime("%a, %d %b %Y %H:%M:%S GMT").encode()
    asked = {"messages": [{"role": "user", "content": "?"}], "max_tokens": 8}
    request = bhttp.Request(
        method=b"POST",
        scheme=b"https",
        authority=b"curtilage.invalid",
        path=b"/v1/chat/completions",
        fields=((b"content-type", b"application/json"), (b"date", now)),
        content=json.dumps(asked).encode(),
    )
    config = parse_key_configs(keys)[0]
    return ohttp.seal_request(config, bhttp.encode_request(request)).message


async def _read_answer(reader: asyncio.StreamReader) -> HttpMessage:
    head = await reader.readuntil(b"\r\n\r\n")
    body = b""
    if b"chunked" in head:
        while not body.endswith(b"0\r\n\r\n"):
            body += await reader.readuntil(b"\r\n")
    else:
        (known,) = read_responses(head.replace(b"ontent-Length", b"ontent-Skipped"))
        body = await reader.readexactly(int(known.value("content-skipped") or "0"))
    (answer,) = read_responses(head + body)
    return answer


def _pairs(tap: Wiretap, mark: int, cut: bool) -> tuple[Pair, ...]:
    pairs: list[Pair] = []
    for stream in tap.since(mark):
        requests = read_requests(stream.outward, cut=cut)
        responses = read_responses(stream.homeward)
        pairs += [
            Pair(request=request, response=response)
            for request, response in zip(requests, responses, strict=True)
        ]
    return tuple(pairs)
