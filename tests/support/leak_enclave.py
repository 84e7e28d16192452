"""The enclave server as a process, with answers that an observer should confuse.

``python -m support.leak_enclave SHAPE FRAME PERIOD FIRST BUCKETS PAUSE_MS``: all
is the shipped program but the engine and the evidence. A question that is a
number gets that answer of ``leak_texts``. One line of JSON says where it is.
"""

import asyncio
import json
import sys
from collections.abc import AsyncGenerator
from dataclasses import replace
from datetime import UTC, datetime

from typing_extensions import override

from curtilage.enclave_server.model import Model
from curtilage.inference.protocol import (
    CancelToken,
    Done,
    Event,
    GenerateRequest,
    Started,
    Token,
    Usage,
)
from curtilage.wire.shaping import Shape, TransportParameters
from curtilage_dev.scripted_engine import ScriptedEngine
from support.enclave_parts import make_parts, serving
from support.leak_texts import answers

PROMPT_TOKENS = 9


class LeakEngine(ScriptedEngine):
    """Says each answer at its own pace, however many are said at once."""

    def __init__(self, pause_s: float) -> None:
        super().__init__()
        self._answers = answers()
        self._pause_s = pause_s

    @override
    async def generate(
        self, request: GenerateRequest, *, cancel: CancelToken | None = None
    ) -> AsyncGenerator[Event]:
        """Play the answer whose number was asked for; see the Protocol."""
        answer = self._answers[int(request.messages[-1].content)]
        loop = asyncio.get_running_loop()
        began = loop.time()
        yield Started(prompt_tokens=PROMPT_TOKENS)
        for text, due in zip(answer.tokens, answer.due, strict=True):
            await asyncio.sleep(max(0.0, began + due * self._pause_s - loop.time()))
            yield Token(text=text)
        usage = Usage(prompt_tokens=PROMPT_TOKENS, completion_tokens=len(answer.tokens))
        yield Done(usage=usage, finish="stop")


async def serve(parameters: TransportParameters, pause_s: float) -> None:
    """Serve until killed."""
    parts = await make_parts(now=datetime.now(UTC))
    engine = LeakEngine(pause_s)
    await engine.start()
    parts.context = replace(
        parts.context,
        model=Model(engine),
        transport=parameters,
        clock=lambda: datetime.now(UTC),
    )
    async with serving(parts) as address:
        sys.stdout.write(json.dumps({"listen": address}) + "\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


def main() -> None:
    shape, frame, period, first, buckets, pause_ms = sys.argv[1:]
    parameters = TransportParameters(
        shape=Shape(shape),
        frame_bytes=int(frame),
        period_ms=int(period),
        first_bucket=int(first),
        buckets=int(buckets),
    )
    asyncio.run(serve(parameters, float(pause_ms) / 1000))


if __name__ == "__main__":
    main()
