"""After an answer, however it ended, the endpoint holds neither question nor answer.

The collector of cycles is off: see ``support.left_over``. Connections are kept
open, as clients keep them.
"""

import asyncio
import json
import os
import sys
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import IO

import pytest
from typing_extensions import override

from curtilage.client.chat.answer import AnswerEvent, Delta, Finished
from curtilage.client.chat.query import Query
from curtilage.client.detection.detectors import __main__ as detector_process
from curtilage.client.detection.detectors.__main__ import serve
from curtilage.client.detection.detectors.all import scanner_of
from curtilage.client.detection.detectors.scanner import Scanner
from curtilage.client.detection.pipe import READY
from curtilage.client.endpoint import server as gateway
from curtilage.client.errors import EnclaveError
from curtilage.client.local.reasons import LocalModelError
from curtilage.client.parts import ClientParts
from curtilage.client.remote.reasons import EnclaveFailure
from curtilage.client.session import Session
from curtilage.policy.decision.decide import Inspection
from curtilage.policy.document.load import load_policy, load_profile, profile_text
from curtilage.policy.document.model import Policy
from curtilage.sandbox.pipe import encode_frame, read_frame, write_frame
from curtilage.sandbox.wall import Wall
from support.client_parts import MemoryTrail, WordInspector
from support.fakes import returns
from support.left_over import Canary, uncollected
from support.memory_enclave import (
    Clock,
    MemoryEnclave,
    Reply,
    chunk,
    completion,
    key_store,
    sse,
)

HOME = "4111111111111111"
PERSON = "Okafor"
PASSWORD = "hunter2"
DEFAULT = load_profile("default")
BLOCKING = load_policy(
    profile_text("default").replace(
        "rules:\n",
        'rules:\n- {id: never, when: "secret.*", then: block, reason: no}\n',
        1,
    )
)


class Forgetful(WordInspector):
    """Finds words, and remembers no query."""

    @override
    async def ainspect(self, query: Query) -> Inspection:
        inspection = await super().ainspect(query)
        self.seen.clear()
        return inspection


@dataclass
class Echo:
    """Says the question again; cannot where it says so, or stops half-way."""

    begun: asyncio.Event = field(default_factory=asyncio.Event)
    model_id: str = "echo"
    context_tokens: int | None = None
    digests: tuple[str, str] | None = None

    async def generate(
        self, query: Query, *, signals: bool = False
    ) -> AsyncGenerator[AnswerEvent]:
        del signals
        text = next(leaf.text for leaf in query.leaves())
        self.begun.set()
        if "unavailable" in text:
            raise LocalModelError("the model file is missing")
        for word in text.split():
            yield Delta(text=word, logprobs=((word, -0.5),))
            if word == "held":
                await asyncio.Event().wait()
        yield Finished(finish_reason="stop", prompt_tokens=3, completion_tokens=1)

    async def close(self) -> None:
        """Free nothing."""


@dataclass
class Asked:
    """An endpoint, and what surrounds it."""

    port: int
    enclave: MemoryEnclave
    local: Echo
    canary: Canary
    writers: list[asyncio.StreamWriter] = field(
        default_factory=list[asyncio.StreamWriter]
    )

    async def send(self, text: str, **extra: object) -> asyncio.StreamReader:
        """Ask as any program would."""
        body = {"messages": [{"role": "user", "content": text}], **extra}
        return await self.send_body(json.dumps(body).encode())

    async def send_body(self, body: bytes) -> asyncio.StreamReader:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self.writers.append(writer)
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        writer.write(head.encode() + body)
        return reader

    async def ask(self, text: str, **extra: object) -> int:
        """Ask, read the answer to its end and forget it; return the status."""
        return await read_to_end(await self.send(text, **extra))


async def read_to_end(reader: asyncio.StreamReader) -> int:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    if "content-length: " in head:
        length = head.partition("content-length: ")[2].partition("\r")[0]
        await reader.readexactly(int(length))
    else:
        await reader.readuntil(b"\r\n0\r\n\r\n")
    return int(head.split(" ")[1])


@asynccontextmanager
async def endpoint(policy: Policy = DEFAULT) -> AsyncGenerator[Asked]:
    enclave, local = MemoryEnclave(), Echo()
    session = Session(
        ClientParts(
            policy=policy,
            inspector=Forgetful(
                {
                    HOME: "financial.pan",
                    PERSON: "identifier.direct.person",
                    PASSWORD: "secret.password",
                }
            ),
            local=local,
            transport=enclave,
            keys=key_store(),
            audit=MemoryTrail(),
            clock=Clock(),
        )
    )
    async with session, gateway.serving(session, "127.0.0.1", 0) as port:
        asked = Asked(port=port, enclave=enclave, local=local, canary=Canary())
        try:
            yield asked
        finally:
            for writer in asked.writers:
                writer.close()
                with suppress(ConnectionError):
                    await writer.wait_closed()


async def at_home(asked: Asked) -> None:
    word = asked.canary.text("home")
    assert await asked.ask(f"{word} {HOME}") == 200


async def at_home_streamed(asked: Asked) -> None:
    word = asked.canary.text("home")
    assert await asked.ask(f"{word} {HOME}", stream=True, logprobs=True) == 200


async def away(asked: Asked) -> None:
    word = asked.canary.text("away")
    asked.enclave.replies.append(
        Reply(content=completion(word), media_type=b"application/json")
    )
    assert await asked.ask(word, stop=[word], user=word) == 200


async def away_streamed(asked: Asked) -> None:
    word = asked.canary.text("away")
    events = sse(chunk(word), chunk("."), chunk(finish="stop"))
    asked.enclave.replies.append(Reply(content=events))
    assert await asked.ask(word, stream=True) == 200


async def without_names(asked: Asked) -> None:
    word = asked.canary.text("names")
    assert await asked.ask(f"{word} {PERSON}") == 200


async def fallen_back(asked: Asked) -> None:
    asked.enclave.fails = EnclaveError(EnclaveFailure.BUSY)
    assert await asked.ask(asked.canary.text("fallback")) == 200
    asked.enclave.fails = None


async def not_fetched(asked: Asked) -> None:
    asked.enclave.fetch_fails = EnclaveError(EnclaveFailure.RELAY_UNREACHABLE)
    assert await asked.ask(asked.canary.text("unfetched")) == 200
    asked.enclave.fetch_fails = None


async def not_believed(asked: Asked) -> None:
    asked.enclave.bundle = asked.enclave.bundle.replace(b'"v":4', b'"v":2')
    assert await asked.ask(asked.canary.text("unbelieved")) == 200


async def keys_replaced(asked: Asked) -> None:
    assert await asked.ask("hello") == 200
    asked.enclave.rotate(7)
    asked.enclave.bundle = asked.enclave.bundle.replace(b'"v":4', b'"v":2')
    assert await asked.ask(asked.canary.text("replaced")) == 200


async def unanswered(asked: Asked) -> None:
    asked.enclave.fails = EnclaveError(EnclaveFailure.BUSY)
    assert await asked.ask(f"{asked.canary.text('nobody')} unavailable") == 503
    asked.enclave.fails = None


async def blocked(asked: Asked) -> None:
    assert await asked.ask(f"{asked.canary.text('blocked')} {PASSWORD}") == 403


async def cut(asked: Asked) -> None:
    word = asked.canary.text("cut")
    asked.enclave.replies.append(Reply(content=sse(chunk(word), done=False)))
    assert await asked.ask(word) == 502


async def cut_streamed(asked: Asked) -> None:
    word = asked.canary.text("cut")
    asked.enclave.replies.append(Reply(content=sse(chunk(word), done=False)))
    assert await asked.ask(word, stream=True) == 200


async def flipped(asked: Asked) -> None:
    asked.enclave.flip = 300
    assert await asked.ask(asked.canary.text("flipped")) == 502
    asked.enclave.flip = None


async def no_json(asked: Asked) -> None:
    body = json.dumps({"messages": [asked.canary.text("no-json")]}).encode()
    assert await read_to_end(await asked.send_body(body[:-1])) == 400


async def unknown_key(asked: Asked) -> None:
    word = asked.canary.text("key")
    assert await asked.ask(word, **{word: word}) == 400


async def gone_at_home(asked: Asked) -> None:
    await asked.send(f"{asked.canary.text('gone')} held {HOME}", stream=True)
    await asked.local.begun.wait()
    asked.writers[-1].transport.abort()


async def gone_away(asked: Asked) -> None:
    asked.enclave.held = 600
    await asked.send(asked.canary.text("gone"), stream=True)
    await asked.enclave.begun.wait()
    asked.writers[-1].transport.abort()
    asked.enclave.go.set()


ENDS = [
    at_home,
    at_home_streamed,
    away,
    away_streamed,
    without_names,
    fallen_back,
    not_fetched,
    not_believed,
    keys_replaced,
    unanswered,
    cut,
    cut_streamed,
    flipped,
    no_json,
    unknown_key,
    gone_at_home,
    gone_away,
]


@pytest.mark.parametrize("end", [*ENDS, blocked], ids=lambda end: end.__name__)
async def test_nothing_is_left_of_a_question(
    end: Callable[[Asked], Awaitable[None]],
) -> None:
    with uncollected():
        async with endpoint(BLOCKING if end is blocked else DEFAULT) as asked:
            await end(asked)
            for _ in range(50):
                await asyncio.sleep(0)
            # The enclave's stand-in is no part of what is looked at.
            asked.enclave.requests.clear()
            asked.enclave.reply = Reply()
            assert asked.canary.holders() == {}


TEXTS = (
    "{} has diabetes, says Dr. Okafor of Springfield",
    "my card is 4111 1111 1111 1111, {}",
    "{} wrote to Søren Kierkegård@example.org, &zwnj; 0x41 %20",
    "Schreiben Sie {} an das Amt, bitte noch heute",
    "a" * 9000 + " {}",
)


@contextmanager
def worker(
    scanner: Scanner,
) -> Generator[tuple[IO[bytes], IO[bytes], threading.Thread]]:
    """Run the worker's loop in a thread, over pipes as it has them."""
    (requests, to), (back, replies) = os.pipe(), os.pipe()
    with ExitStack() as stack:
        files = [
            stack.enter_context(os.fdopen(each, mode, buffering=0))
            for each, mode in ((requests, "rb"), (replies, "wb"), (back, "rb"))
        ]
        thread = threading.Thread(
            target=serve, args=(files[0], files[1], scanner, Wall())
        )
        thread.start()
        # The end of its requests ends it.
        stack.callback(thread.join)
        asks = stack.enter_context(os.fdopen(to, "wb", buffering=0))
        yield asks, files[2], thread


def waits(thread: threading.Thread) -> bool:
    """Return whether a thread is where it reads the next frame."""
    assert thread.ident is not None
    # In one expression: a name would hold frames, this one's too, in a cycle.
    return (
        sys._current_frames()[thread.ident].f_code.co_name  # pyright: ignore[reportPrivateUsage]
        == "_read"
    )


def test_nothing_is_left_of_a_text_in_the_detectors_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(detector_process, "set_alarm", returns(None))
    canary, scanner = Canary(), scanner_of(load_profile("default").plan)
    with worker(scanner) as (to, back, thread), uncollected():
        assert read_frame(back) == {READY: Wall().to_fields()}
        for number, text in enumerate(TEXTS):
            texts = [[text.format(canary.text(f"text-{number}"))]]
            limits = {"limit_ms": 60_000, "wall_ms": 60_000}
            batch = [{"task": number, "texts": texts, **limits}]
            write_frame(to, encode_frame(batch))
            del texts, batch
            assert read_frame(back) is not None
        while not waits(thread):
            time.sleep(0.01)
        assert canary.holders() == {}
