"""Our client against a foreign gateway: every form, size and kind of damage."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import aiohttp
from conformance.peers.sealed import (
    FORMS,
    FRAMINGS,
    KEMS,
    REQUEST_TYPES,
    RESPONSE_TYPES,
    Sealed,
    flipped,
    inner,
    response_pieces,
    seal,
    seal_padded,
)
from conformance.peers.table import Row, Table

from curtilage.wire import bhttp, padding
from curtilage.wire.errors import OpenError, TruncatedError, WireError
from curtilage.wire.keyconfig import KeyConfig, parse_key_configs
from curtilage.wire.media import OHTTP_KEYS, PROBLEM_JSON, PROBLEM_OHTTP_KEY
from curtilage_dev.processes import Process

US = "curtilage"
SIZES = (0, 1, 63, 64, 1000, 16_383, 16_384, 16_385, 40_000, 300_000)
STEPS = 4
TIMEOUT = aiohttp.ClientTimeout(total=60)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A gateway's answer as seen from outside."""

    status: int
    content_type: str
    body: bytes


@dataclass(frozen=True, kw_only=True)
class Gateway:
    """A running foreign gateway; the answers that it can give."""

    name: str
    base: str
    session: aiohttp.ClientSession

    async def configs(self) -> dict[int, KeyConfig]:
        """Fetch the key configurations, by KEM."""
        async with self.session.get(f"{self.base}/keys") as answer:
            assert answer.content_type == OHTTP_KEYS
            configs = parse_key_configs(await answer.read())
        return {config.kem_id: config for config in configs}

    async def post(self, message: bytes, form: str) -> Answer:
        async with self.session.post(
            f"{self.base}/gateway",
            data=message,
            headers={"Content-Type": REQUEST_TYPES.get(form, form)},
        ) as answer:
            return Answer(
                status=answer.status,
                content_type=answer.headers["Content-Type"],
                body=await answer.read(),
            )

    async def genuine(self, sealed: Sealed, form: str) -> bytes:
        answer = await self.post(sealed.message, form)
        assert answer.status == 200, answer.status
        assert answer.content_type == RESPONSE_TYPES[form]
        return answer.body


@asynccontextmanager
async def running(
    name: str, command: Sequence[str], folder: Path
) -> AsyncGenerator[Gateway]:
    """Start a foreign gateway; stop it at the end."""
    process = Process(name, command, folder=folder)
    try:
        ready = await asyncio.to_thread(process.wait_ready, 20.0)
        async with aiohttp.ClientSession(timeout=TIMEOUT) as session:
            yield Gateway(name=name, base=f"http://{ready['listen']}", session=session)
    finally:
        await asyncio.to_thread(process.stop)


async def ask(table: Table, gateway: Gateway) -> None:
    """Run all cases against one gateway."""
    configs = await gateway.configs()
    for kem, kem_id in KEMS.items():
        for form in FORMS:
            row = Row(US, gateway.name, form, kem)
            exchange = _Exchange(table, gateway, row, configs[kem_id])
            await exchange.echoes()
            await exchange.spoilt_requests()
            await exchange.spoilt_answers()
            if form == "chunked":
                await exchange.classes()
                await exchange.steps()


@dataclass(frozen=True)
class _Exchange:
    table: Table
    gateway: Gateway
    row: Row
    config: KeyConfig

    def seal(self, message: bytes) -> Sealed:
        return seal(self.config, self.row.form, self.row.kem, message)

    async def echoes(self) -> None:
        """Content of many sizes comes back, whichever framing it went in."""
        for framing in FRAMINGS:
            for size in SIZES:
                with self.table.case(self.row, f"echo {size} {framing}"):
                    content = bytes(i * 7 % 251 for i in range(size))
                    await self.echo(content, inner(content, framing))
        with self.table.case(self.row, "truncated: neither content nor trailers"):
            await self.echo(b"", inner(b"").removesuffix(bytes(2)))

    async def echo(self, content: bytes, message: bytes) -> None:
        await self.echoed(self.seal(message), content, message)

    async def echoed(self, sealed: Sealed, content: bytes, message: bytes) -> None:
        body = await self.gateway.genuine(sealed, self.row.form)
        response = bhttp.decode_response(sealed.open(body))
        fields = dict(response.fields)
        chunks = max(1, (len(sealed.pieces) - 2) // 2)
        assert response.status == 200
        assert response.content == content, "the content came back changed"
        assert fields[b"content-type"] == b"application/octet-stream"
        assert fields[b"x-target"].startswith(b"POST https"), "another target"
        assert int(fields[b"x-chunks"]) == chunks, f"{len(message)} in other chunks"

    async def classes(self) -> None:
        """Our client's requests: padded to each class."""
        for size in padding.SIZE_CLASSES:
            with self.table.case(self.row, f"padded to {size}"):
                content = b"p" * (size * 3 // 10)
                message = inner(content)
                sealed = seal_padded(self.config, self.row.kem, message)
                assert len(sealed.message) == size
                await self.echoed(sealed, content, message)

    async def steps(self) -> None:
        """Each chunk arrives before the gateway may make the next."""
        with self.table.case(self.row, "streams chunk by chunk"):
            sealed = self.seal(inner(b"", path="/steps"))
            opened = await self._follow(sealed)
            response = bhttp.decode_response(b"".join(opened))
            said = b"".join(b"step %d\n" % number for number in range(STEPS))
            assert response.content == said
        with self.table.case(self.row, "a stream without its end"):
            sealed = self.seal(inner(b"", path="/steps"))
            assert sealed.opener is not None
            await self._follow(sealed, stop_at=2)
            _refuses_to(sealed.opener.finish, TruncatedError)

    async def _follow(self, sealed: Sealed, *, stop_at: int = STEPS) -> list[bytes]:
        opener = sealed.opener
        assert opener is not None
        opened: list[bytes] = []
        asked = 0
        async with self.gateway.session.post(
            f"{self.gateway.base}/gateway",
            data=sealed.message,
            headers={"Content-Type": REQUEST_TYPES["chunked"]},
        ) as answer:
            async for data in answer.content.iter_any():
                opened += opener.push(data)
                if len(opened) == asked + 1 and asked < STEPS:
                    if asked == stop_at:
                        break
                    await self._next()
                    asked += 1
        if stop_at < STEPS:
            for _ in range(STEPS - stop_at):  # the gateway still waits
                await self._next()
            return opened
        return [*opened, opener.finish()]

    async def _next(self) -> None:
        async with self.gateway.session.post(f"{self.gateway.base}/next") as answer:
            assert answer.status == 200

    async def spoilt_requests(self) -> None:
        """Whatever is changed, the answer is the one 422 for all causes."""
        pieces = self.seal(inner(b"s" * 20_000)).pieces
        for index, piece in enumerate(pieces):
            for at in (0, len(piece) - 1):
                wanted = PROBLEM_OHTTP_KEY if index == at == 0 else "about:blank"
                with self.table.case(self.row, f"bit of piece {index} at {at}"):
                    await self._refuses(flipped(pieces, index, at), wanted)
        for count in range(1, len(pieces)):
            with self.table.case(self.row, f"cut behind piece {count}"):
                await self._refuses(b"".join(pieces[:count]), "about:blank")
        await self._other_forms(b"".join(pieces), pieces)

    async def _other_forms(self, message: bytes, pieces: Sequence[bytes]) -> None:
        form = self.row.form
        with self.table.case(self.row, "under the other form's type"):
            other = next(name for name in FORMS if name != form)
            await self._refuses(message, "about:blank", form=other)
        with self.table.case(self.row, "under no form's type"):
            answer = await self.gateway.post(message, "application/octet-stream")
            assert answer.status == 415, answer.status
        if form == "chunked":
            with self.table.case(self.row, "chunks swapped"):
                head, first, last = pieces[:2], pieces[2:4], pieces[4:]
                await self._refuses(b"".join([*head, *last, *first]), "about:blank")
            with self.table.case(self.row, "chunk twice"):
                twice = [*pieces[:4], *pieces[2:4], *pieces[4:]]
                await self._refuses(b"".join(twice), "about:blank")

    async def _refuses(
        self, message: bytes, problem: str, *, form: str | None = None
    ) -> None:
        answer = await self.gateway.post(message, form or self.row.form)
        assert answer.status == 422, answer.status
        assert answer.content_type == PROBLEM_JSON, answer.content_type
        assert json.loads(answer.body) == {"type": problem, "status": 422}

    async def spoilt_answers(self) -> None:
        """We refuse an answer after any change."""
        form = self.row.form
        count = 0
        with self.table.case(self.row, "an answer to spoil"):
            _, whole = await self._answer()
            count = len(response_pieces(whole, form))
        for index in range(count):
            for at in (0, -1):
                with self.table.case(self.row, f"bit of the answer's piece {index}"):
                    sealed, body = await self._answer()
                    spoilt = flipped(response_pieces(body, form), index, at)
                    _refuses_to(partial(sealed.open, spoilt), WireError)
        for kept in range(1, count):
            with self.table.case(self.row, f"answer cut behind piece {kept}"):
                sealed, body = await self._answer()
                cut = b"".join(response_pieces(body, form)[:kept])
                kind = OpenError if form == "plain" else TruncatedError
                _refuses_to(partial(sealed.open, cut), kind)
        with self.table.case(self.row, "another request's answer"):
            (sealed, _), (_, other) = await self._answer(), await self._answer()
            _refuses_to(partial(sealed.open, other), OpenError)

    async def _answer(self) -> tuple[Sealed, bytes]:
        sealed = self.seal(inner(b"a" * 20_000))
        return sealed, await self.gateway.genuine(sealed, self.row.form)


def _refuses_to(act: Callable[[], bytes], kind: type[WireError]) -> None:
    try:
        act()
    except kind:
        return
    raise AssertionError("it was taken")
