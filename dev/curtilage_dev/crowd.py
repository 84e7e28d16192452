"""Many clients at different addresses that send requests through a relay without end.

For attacks on a deployment's places and on its model, in the benchmark and the
end-to-end
tests: real connections from any address of loopback, sealed requests, opened answers.
"""

import asyncio
import json
import urllib.request
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from curtilage.wire import bhttp
from curtilage.wire.dates import format_date
from curtilage.wire.keyconfig import KeyConfig, parse_key_configs
from curtilage.wire.padding import seal_padded_request
from curtilage_dev.stack import GATEWAY, Stack

OK: Final = 200
AGAIN_S: Final = 0.05
"""After a refusal."""
STORY_WORDS: Final = 3900
PROMPT_WORDS: Final = 4000
"""Of a long prompt; the embedded model reads it for as long as it writes an answer."""


@dataclass(frozen=True, slots=True)
class Inner:
    """An inner request; dated anew each time.

    Attributes:
        path: of the gateway's.
        body: to be JSON.
    """

    path: bytes
    body: object

    def encoded(self) -> bytes:
        """Return the request to be sealed."""
        return bhttp.encode_request(
            bhttp.Request(
                method=b"POST",
                scheme=b"https",
                authority=b"curtilage.invalid",
                path=self.path,
                fields=(
                    (b"content-type", b"application/json"),
                    (b"date", format_date(datetime.now(UTC))),
                ),
                content=json.dumps(self.body).encode(),
            )
        )


def question(words: int) -> Inner:
    """Ask for a short answer."""
    return _chat("What is a curtilage?", words)


def story() -> Inner:
    """Ask for the longest answer."""
    return _chat("Tell the longest story that you know.", STORY_WORDS)


def long_prompt() -> Inner:
    """Ask about a long text."""
    return _chat("word " * PROMPT_WORDS, 50)


def exact_story() -> Inner:
    """Ask for a long answer that repeats bit for bit, so that it is written alone."""
    return _chat("Tell the longest story that you know.", STORY_WORDS, exact=True)


def dummy(bucket: int) -> Inner:
    """Ask for cover."""
    return Inner(b"/v1/cover", {"bucket": bucket})


def _chat(content: str, max_tokens: int, *, exact: bool = False) -> Inner:
    turn = {"role": "user", "content": content}
    body = {"messages": [turn], "stream": False, "max_tokens": max_tokens}
    chosen = body | {"deterministic": True} if exact else body
    return Inner(b"/v1/chat/completions", chosen)


class Crowd:
    """Sends requests from any address of loopback.

    Args:
        stack: whose relay and enclave run.
    """

    def __init__(self, stack: Stack) -> None:
        host, _, port = stack.relay_address.rpartition(":")
        self._host, self._port = host, int(port)
        self._key = _key(stack)

    @asynccontextmanager
    async def asking(
        self, attackers: Iterable[tuple[str, Inner]]
    ) -> AsyncGenerator[None]:
        """Let each of these send requests until the end, whatever the answers."""
        tasks = [
            asyncio.create_task(self._ask_on(address, inner))
            for address, inner in attackers
        ]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def ask(self, address: str, inner: Inner) -> bool:
        """Send one request, read to the end; return whether the model answered."""
        sealed = seal_padded_request(self._key, inner.encoded())
        reader, writer = await asyncio.open_connection(
            self._host, self._port, local_addr=(address, 0)
        )
        try:
            head = (
                f"POST /{GATEWAY} HTTP/1.1\r\nHost: localhost\r\n"
                "Content-Type: message/ohttp-chunked-req\r\nIncremental: ?1\r\n"
                f"Content-Length: {len(sealed.message)}\r\n\r\n"
            )
            writer.write(head.encode() + sealed.message)
            answered = await reader.readuntil(b"\r\n\r\n")
            if not answered.startswith(b"HTTP/1.1 200"):
                return False
            plaintext = bytearray()
            while size := int(await reader.readuntil(b"\r\n"), 16):
                piece = await reader.readexactly(size + 2)
                plaintext += b"".join(sealed.opener.push(piece[:-2]))
            plaintext += sealed.opener.finish()
        finally:
            writer.transport.abort()
        response = bhttp.decode_response(bytes(plaintext))
        return response.status == OK and "choices" in json.loads(response.content)

    async def _ask_on(self, address: str, inner: Inner) -> None:
        while True:
            with suppress(OSError, EOFError):
                await self.ask(address, inner)
            await asyncio.sleep(AGAIN_S)


def _key(stack: Stack) -> KeyConfig:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"{stack.relay_url}/keys", timeout=20) as response:
        return parse_key_configs(response.read())[0]
