"""After an answer, however it ended, no object of the server holds the question.

The collector of cycles is off: see ``support.left_over``. Engines play here;
``tests/inference`` does the same to the real one.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

import pytest

from curtilage.enclave_server.config import Limits
from curtilage.enclave_server.model import Model
from curtilage.inference.errors import (
    ContextTooLongError,
    EngineBusyError,
    EngineFailedError,
    TemplateError,
)
from curtilage.inference.protocol import (
    CancelToken,
    Done,
    EngineInfo,
    Event,
    GenerateRequest,
    Load,
    Started,
    Token,
    Usage,
)
from curtilage.wire.shaping import UNPADDED, TransportParameters
from curtilage_dev.scripted_engine import SCRIPTED_INFO
from support.enclave_parts import (
    CHUNKED,
    JSON,
    PLAIN,
    QUICK,
    Parts,
    connect,
    dated,
    inner_request,
    make_parts,
    post,
    read_answer,
    seal,
    serving,
    until,
)
from support.left_over import Canary, uncollected

FAULTS: dict[str, Callable[[], Exception]] = {
    "busy": lambda: EngineBusyError("x"),
    "too-long": lambda: ContextTooLongError(
        prompt_tokens=2, max_tokens=1, context_tokens=1
    ),
    "template": lambda: TemplateError("x"),
    "failed": lambda: EngineFailedError("x"),
    "unforeseen": lambda: RuntimeError("x"),
}


@dataclass
class Echo:
    """Answers with the question's words; each wrong turn is part of the question.

    ``held``: after the first word nothing more comes.
    """

    held: bool = False
    begun: int = 0
    info: EngineInfo = field(default=SCRIPTED_INFO)

    async def start(self) -> None:
        """Do nothing; see the Protocol."""

    async def close(self) -> None:
        """Do nothing; see the Protocol."""

    def load(self) -> Load:
        return Load(running=0, queued=0, max_queued=4)

    async def generate(
        self, request: GenerateRequest, *, cancel: CancelToken | None = None
    ) -> AsyncGenerator[Event]:
        del cancel
        self.begun += 1
        for word in request.messages[0].content.split():
            yield Started(prompt_tokens=1)
            if self.held:
                await asyncio.Event().wait()
            if word in FAULTS:
                fault = FAULTS[word]
                raise fault()
            yield Token(text=word)
        yield Done(usage=Usage(prompt_tokens=1, completion_tokens=2), finish="stop")


def asking(text: str, *, role: str = "user", **extra: object) -> bytes:
    turns = [{"role": role, "content": f"x {text} y"}]
    return json.dumps({"messages": turns, **extra}).encode()


def faulty(fault: str, word: str, *, stream: bool = False) -> bytes:
    return inner_request(asking(f"{word} {fault}", stream=stream))


SHAPES: dict[str, Callable[[str], bytes]] = {
    "whole": lambda word: inner_request(asking(word)),
    "streamed": lambda word: inner_request(asking(word, stream=True)),
    "logprobs": lambda word: inner_request(asking(word, logprobs=True)),
    "stop": lambda word: inner_request(asking(word, stop=[word])),
    "no-json": lambda word: inner_request(asking(word)[:-1]),
    "unknown-key": lambda word: inner_request(
        b'{"%b":1,%b' % (word.encode(), asking(word)[1:])
    ),
    "twice": lambda word: inner_request(b'{"messages":1,' + asking(word)[1:]),
    "no-role": lambda word: inner_request(asking(word, role=word)),
    "no-utf8": lambda word: inner_request(asking(word).replace(b"x ", b"\\ud800")),
    "no-date": lambda word: inner_request(asking(word), fields=JSON),
    "no-path": lambda word: inner_request(asking(word), path=f"/{word}".encode()),
    "no-type": lambda word: inner_request(
        asking(word), fields=dated(((b"content-type", word.encode()),))
    ),
    "cut": lambda word: inner_request(asking(word))[:-3],
    "cover": lambda word: inner_request(asking(word), path=b"/v1/cover"),
    **{fault: partial(faulty, fault) for fault in FAULTS},
    **{f"{fault}-sse": partial(faulty, fault, stream=True) for fault in FAULTS},
}


async def parts_of(
    engine: Echo, transport: TransportParameters, *, limit_s: int = 600
) -> Parts:
    parts = await make_parts(transport=transport, limits=Limits(answer_s=limit_s))
    context = replace(parts.context, model=Model(engine))
    return replace(parts, context=context)


async def send(
    parts: Parts, address: str, inner: bytes, form: str
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    sealed = seal(parts.key, inner, form=form)
    reader, writer = await connect(address)
    writer.write(post(sealed.message, content_type=form))
    return reader, writer


async def settled() -> None:
    """Let the loop process the consequences of an answer's end."""
    for _ in range(20):
        await asyncio.sleep(0)


COUNTED = {"gone": "answer_cancelled", "too-late": "answer_failed"}
TRANSPORTS = pytest.mark.parametrize(
    "transport", [QUICK, UNPADDED], ids=["padded", "unpadded"]
)
FORMS = pytest.mark.parametrize("form", [PLAIN, CHUNKED])


@TRANSPORTS
@FORMS
async def test_no_question_is_left_after_its_answer(
    form: str, transport: TransportParameters
) -> None:
    canary = Canary()
    parts = await parts_of(Echo(), transport)
    with uncollected():
        async with serving(parts) as address:
            # The connections stay open: they must not hold the question either.
            writers: list[asyncio.StreamWriter] = []
            for name, shape in SHAPES.items():
                inner = shape(canary.text(name))
                reader, writer = await send(parts, address, inner, form)
                del inner
                await read_answer(reader)
                writers.append(writer)
            await settled()
            assert canary.holders() == {}
            for writer in writers:
                writer.close()
                await writer.wait_closed()


@TRANSPORTS
@FORMS
@pytest.mark.parametrize("end", ["gone", "too-late"])
async def test_no_question_is_left_after_an_answer_that_was_broken_off(
    form: str, transport: TransportParameters, end: str
) -> None:
    canary, engine = Canary(), Echo(held=True)
    limit_s = 600 if end == "gone" else 1
    parts = await parts_of(engine, transport, limit_s=limit_s)
    with uncollected():
        async with serving(parts) as address:
            reader, writer = await send(
                parts, address, SHAPES["streamed"](canary.text("streamed")), form
            )
            await until(lambda: engine.begun == 1)
            if end == "gone":
                # So it is found while it exists.
                assert canary.holders().keys() == {"streamed"}
                writer.transport.abort()
            else:
                await read_answer(reader)
            await until(lambda: COUNTED[end] in parts.counted())
            await settled()
            assert canary.holders() == {}
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()
