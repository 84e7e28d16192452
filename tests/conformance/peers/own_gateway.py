"""A gateway made of our wire library alone, for the foreign client.

Its answers are made for the tests, by the inner path:

    /echo      the content comes back, in the framing it came in
    /steps     four pieces; each waits until ``next`` is set
    /flip/I/A  as /echo, with a bit of the answer's piece I flipped, at byte A
    /keep/I    as /echo, cut behind piece I
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web
from conformance.peers.sealed import (
    FORMS,
    REQUEST_TYPES,
    RESPONSE_TYPES,
    flipped,
    response_pieces,
)

from curtilage.wire import bhttp, chunked, ohttp
from curtilage.wire.encapsulation import GatewayKey
from curtilage.wire.errors import UnknownKeyError, WireError
from curtilage.wire.hpke.suite import (
    AEAD_AES_128_GCM,
    AEAD_CHACHA20_POLY1305,
    KDF_HKDF_SHA256,
    KEM_X25519,
    KEM_XWING,
    generate_private_key,
)
from curtilage.wire.keyconfig import (
    KeyConfig,
    SymmetricAlgorithms,
    encode_key_configs,
)
from curtilage.wire.media import OHTTP_KEYS, PROBLEM_OHTTP_KEY

STEPS = 4
LIMIT_BYTES = 2 * 1024 * 1024
AEADS = {
    KEM_XWING: (AEAD_AES_128_GCM, AEAD_CHACHA20_POLY1305),
    KEM_X25519: (AEAD_AES_128_GCM,),
}


def make_key(key_id: int, kem_id: int) -> GatewayKey:
    """Make a key that offers what our enclave offers with this KEM."""
    private_key = generate_private_key(kem_id)
    algorithms = tuple(
        SymmetricAlgorithms(kdf_id=KDF_HKDF_SHA256, aead_id=aead_id)
        for aead_id in AEADS[kem_id]
    )
    config = KeyConfig(
        key_id=key_id,
        kem_id=kem_id,
        public_key=private_key.public_key,
        algorithms=algorithms,
    )
    return GatewayKey(config=config, private_key=private_key)


@dataclass(frozen=True, kw_only=True)
class Opened:
    """One request and the sealer of its answer, in either form."""

    form: str
    bhttp: bytes = field(repr=False)
    sealer: chunked.ChunkedResponseSealer | ohttp.ResponseSealer

    def seal(self, message: bytes) -> tuple[bytes, ...]:
        """Seal a whole answer; return it in pieces."""
        if isinstance(self.sealer, ohttp.ResponseSealer):
            return response_pieces(self.sealer.seal(message), self.form)
        size = chunked.MAX_CHUNK_BYTES
        cut = [message[i : i + size] for i in range(0, len(message), size)]
        sealed = [self.sealer.begin(), *map(self.sealer.seal, cut[:-1])]
        sealed.append(self.sealer.finish(cut[-1]))
        return response_pieces(b"".join(sealed), self.form)


class OwnGateway:
    """Opens, answers, and counts nothing twice; see the module."""

    def __init__(self) -> None:
        keys = [make_key(9, KEM_XWING), make_key(10, KEM_X25519)]
        self.keys = {key.config.key_id: key for key in keys}
        self.next = asyncio.Queue[None]()

    async def publish(self, request: web.Request) -> web.Response:
        del request
        configs = encode_key_configs([key.config for key in self.keys.values()])
        return web.Response(body=configs, content_type=OHTTP_KEYS)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        by_type = {REQUEST_TYPES[form]: form for form in FORMS}
        form = by_type.get(request.headers.get("Content-Type", ""))
        if form is None:
            return _refused(415)
        try:
            opened = self._open(form, await request.read())
        except UnknownKeyError:
            return _refused(422, PROBLEM_OHTTP_KEY)
        except WireError:
            return _refused(422)
        response = web.StreamResponse(
            headers={"Content-Type": RESPONSE_TYPES[form], "Incremental": "?1"}
        )
        await response.prepare(request)
        async for part in self._parts(opened):
            await response.write(part)
        return response

    def _open(self, form: str, message: bytes) -> Opened:
        if form == "plain":
            plain = ohttp.open_request(self.keys, message)
            return Opened(form=form, bhttp=plain.bhttp, sealer=plain.sealer)
        opener = chunked.ChunkedRequestOpener(self.keys, limit_bytes=LIMIT_BYTES)
        # In pieces that match no boundary, as a network may cut them.
        cut = [message[i : i + 1009] for i in range(0, len(message), 1009)]
        opened = [piece for data in cut for piece in opener.push(data)]
        opened.append(opener.finish())
        return Opened(form=form, bhttp=b"".join(opened), sealer=opener.sealer())

    async def _parts(self, opened: Opened) -> AsyncGenerator[bytes]:
        request = bhttp.decode_request(opened.bhttp)
        verb, *numbers = request.path.decode().strip("/").split("/")
        if verb == "steps":
            async for part in self._steps(opened):
                yield part
            return
        pieces = opened.seal(_echo(request, indeterminate=opened.bhttp[0] > 1))
        yield _spoilt(verb, [int(number) for number in numbers], pieces)

    async def _steps(self, opened: Opened) -> AsyncGenerator[bytes]:
        sealer = opened.sealer
        assert isinstance(sealer, chunked.ChunkedResponseSealer)
        yield sealer.begin() + sealer.seal(bhttp.encode_response_head(200, ()))
        for step in range(STEPS):
            await self.next.get()
            yield sealer.seal(bhttp.encode_content_chunk(b"step %d\n" % step))
        yield sealer.finish(bhttp.encode_content_end())


def _echo(request: bhttp.Request, *, indeterminate: bool) -> bytes:
    fields = tuple(field for field in request.fields if field[0] == b"content-type")
    if not indeterminate:
        response = bhttp.Response(status=200, fields=fields, content=request.content)
        return bhttp.encode_response(response)
    cut = [request.content[i : i + 999] for i in range(0, len(request.content), 999)]
    chunks = b"".join(map(bhttp.encode_content_chunk, cut))
    head = bhttp.encode_response_head(200, fields)
    return head + chunks + bhttp.encode_content_end()


def _spoilt(verb: str, numbers: Sequence[int], pieces: Sequence[bytes]) -> bytes:
    if verb == "flip":
        index, at = numbers
        return flipped(pieces, index, at)
    if verb == "keep":
        return b"".join(pieces[: numbers[0]])
    return b"".join(pieces)


def _refused(status: int, kind: str = "about:blank") -> web.Response:
    return web.json_response(
        {"type": kind, "status": status},
        status=status,
        content_type="application/problem+json",
    )


@asynccontextmanager
async def serving(gateway: OwnGateway) -> AsyncGenerator[str]:
    """Serve on a free port; give the base address."""
    app = web.Application(client_max_size=LIMIT_BYTES)
    app.router.add_get("/keys", gateway.publish)
    app.router.add_post("/gateway", gateway.answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0]
        yield f"http://{host}:{port}"
    finally:
        await runner.cleanup()
