"""An on-premises server: the local model behind OpenAI's API, over TLS or a socket.

For the demo and for tests, in place of, for example, a hospital's vLLM. TLS on loopback
under its own authority, or a UNIX socket, both in the given folder; one line of JSON
reports the address and the authority. Nothing is stored.
"""

import argparse
import asyncio
import json
import signal
import ssl
import sys
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from aiohttp import web

from curtilage.client.chat.answer import Answerer, Delta, Provenance
from curtilage.client.chat.openai_chat import parse_completion_request
from curtilage.client.chat.openai_fields import MODEL_ID
from curtilage.client.endpoint.openai_answers import ChunkBuilder, error_object
from curtilage.client.errors import ClientError
from curtilage.client.local.model import LocalModel
from curtilage.client.local.registry.store import Registry
from curtilage_dev.certificates import Authority

CHAT_PATH: Final = "/v1/chat/completions"
SOCKET: Final = "on-premises.sock"
_PRIVATE_FOLDER: Final = 0o700


class _Arguments(argparse.Namespace):
    folder: Path
    socket: bool
    model: str | None
    model_sha256: str | None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until SIGTERM or SIGINT; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m curtilage_dev.on_premises")
    parser.add_argument(
        "--folder", type=Path, required=True, help="for certificate or socket"
    )
    parser.add_argument("--socket", action="store_true", help="a socket and no TLS")
    parser.add_argument("--model", help="a file; else the embedded model")
    parser.add_argument("--model-sha256", help="its digest")
    asyncio.run(_serve(parser.parse_args(arguments, namespace=_Arguments())))
    return 0


async def _serve(arguments: _Arguments) -> None:
    folder = arguments.folder.absolute()
    folder.mkdir(mode=_PRIVATE_FOLDER, parents=True, exist_ok=True)
    model = LocalModel.open(
        arguments.model,
        sha256=arguments.model_sha256,
        registry=Registry(folder),
    )
    await model.start()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    try:
        async with _listening(model, folder, socket=arguments.socket) as ready:
            sys.stdout.write(json.dumps({**ready, "model": MODEL_ID}) + "\n")
            sys.stdout.flush()
            await stop.wait()
    finally:
        await model.close()


@asynccontextmanager
async def _listening(
    model: LocalModel, folder: Path, *, socket: bool
) -> AsyncGenerator[dict[str, str]]:
    """Listen; yield the policy's fields for this tier."""

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        return await _answer(model, request)

    runner = web.ServerRunner(web.Server(handle, handler_cancellation=True))
    await runner.setup()
    try:
        if socket:
            # Replaces the socket of an earlier run that was killed.
            await web.UnixSite(runner, str(folder / SOCKET)).start()
            yield {"address": f"unix:{folder / SOCKET}"}
            return
        now = datetime.now(UTC)
        authority = Authority.make(folder, now=now)
        server = authority.issue("on_premises", now=now)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(server.certificate, server.key)
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
        yield {
            "address": f"https://localhost:{runner.addresses[0][1]}/v1",
            "ca": str(authority.certificate),
        }
    finally:
        await runner.cleanup()


async def _answer(model: LocalModel, request: web.BaseRequest) -> web.StreamResponse:
    """Answer a streamed question; all else gets an error in OpenAI's format."""
    if (request.method, request.path) != ("POST", CHAT_PATH):
        return web.json_response({"error": {"message": "no such thing"}}, status=404)
    try:
        asked = parse_completion_request(await request.read())
        chunks = ChunkBuilder(
            answer_id="chatcmpl-on-premises",
            created=int(time.time()),
            provenance=Provenance(
                route=Answerer.LOCAL,
                model=MODEL_ID,
                classes=(),
                rule="",
                reason="",
                policy_digest="",
            ),
        )
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        async with aclosing(model.generate(asked.query)) as events:
            async for event in events:
                # Not before the model has begun: until then a failure has its own
                # status.
                if not response.prepared:
                    await response.prepare(request)
                    await response.write(chunks.first())
                if isinstance(event, Delta):
                    await response.write(chunks.piece(event))
                    continue
                for data in chunks.last(event, include_usage=asked.include_usage):
                    await response.write(data)
    except ClientError as error:
        status, body = error_object(error)
        return web.json_response(body, status=status)
    else:
        return response


if __name__ == "__main__":
    sys.exit(main())
