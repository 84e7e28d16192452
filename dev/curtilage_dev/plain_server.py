"""A chat server without any protection: the baseline cost of an answer.

For measurements only. Plain HTTP on loopback, no key, no seal, no padding; the same
scripted engine and the same events as the enclave server's, each written as soon as the
engine produces it.
"""

import argparse
import asyncio
import json
import signal
import sys
from collections.abc import Sequence
from contextlib import aclosing

from aiohttp import web

from curtilage.enclave_server.model import Model
from curtilage.enclave_server.ohttp.chat import (
    ChatLimits,
    parse_chat_completion_request,
)
from curtilage.enclave_server.ohttp.openai_answers import (
    AnswerHead,
    Begun,
    Ending,
    Piece,
    first_event,
    last_events,
    piece_event,
)
from curtilage_dev.scripted_enclave import PlayArguments, PlayedEngine, add_play

HEAD = AnswerHead(answer_id="chatcmpl-plain", created=0, model="curtilage")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until SIGTERM or SIGINT; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m curtilage_dev.plain_server")
    add_play(parser)
    read = parser.parse_args(arguments, namespace=PlayArguments())
    asyncio.run(_serve(PlayedEngine(read.play())))
    return 0


async def _serve(engine: PlayedEngine) -> None:
    await engine.start()
    model = Model(engine)

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        return await _answer(model, request)

    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    runner = web.ServerRunner(web.Server(handle, handler_cancellation=True))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    ready = {"listen": f"http://127.0.0.1:{runner.addresses[0][1]}"}
    sys.stdout.write(json.dumps(ready) + "\n")
    sys.stdout.flush()
    try:
        await stop.wait()
    finally:
        await runner.cleanup()


async def _answer(model: Model, request: web.BaseRequest) -> web.StreamResponse:
    chat = parse_chat_completion_request(await request.read(), ChatLimits())
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    async with aclosing(model.answer(chat)) as answers:
        async for answer in answers:
            match answer:
                case Begun():
                    await response.write(first_event(HEAD))
                case Piece():
                    await response.write(piece_event(HEAD, answer))
                case Ending():
                    await response.write(last_events(HEAD, answer))
    await response.write_eof()
    return response


if __name__ == "__main__":
    sys.exit(main())
