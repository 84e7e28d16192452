"""The Go client against the gateway made of our wire library alone."""

import json
from dataclasses import dataclass

from conformance.peers.go_client import Address, GoClient, Heard
from conformance.peers.own_gateway import STEPS, OwnGateway, serving
from conformance.peers.sealed import FORMS, FRAMINGS, KEMS
from conformance.peers.table import Row, Table

from curtilage.wire.media import PROBLEM_OHTTP_KEY

SIZES = (0, 1, 16_384, 40_000, 300_000)
ASKS, ANSWERS = "go", "curtilage (wire)"
SPOILT_BYTES = 20_000
KNOWN_RESPONSE, INDETERMINATE_RESPONSE = 1, 3
DOES_NOT_OPEN = "ohttp: the message does not open"
TRUNCATED = "ohttp: the message ends before its final chunk"
TOO_LONG = "ohttp: a chunk is too long"


async def ask(table: Table, client: GoClient) -> None:
    """Try everything that the Go client can do."""
    gateway = OwnGateway()
    async with serving(gateway) as base:
        address = Address(keys=f"{base}/keys", gateway=f"{base}/gateway")
        for kem in KEMS:
            for form in FORMS:
                row = Row(ASKS, ANSWERS, form, kem)
                exchange = _Exchange(table, client, gateway, address, row)
                await exchange.echoes()
                await exchange.spoilt_requests()
                await exchange.spoilt_answers()
                if form == "chunked":
                    await exchange.steps()


@dataclass(frozen=True)
class _Exchange:
    table: Table
    client: GoClient
    gateway: OwnGateway
    address: Address
    row: Row

    async def go(self, content: bytes = b"", **flags: str | int) -> Heard:
        chosen = {"form": self.row.form, "kem": self.row.kem, **flags}
        return await self.client.ask(self.address, content, flags=chosen)

    async def echoes(self) -> None:
        for framing in FRAMINGS:
            for size in SIZES:
                with self.table.case(self.row, f"echo {size} {framing}"):
                    await self._echo(bytes(i * 5 % 241 for i in range(size)), framing)
        with self.table.case(self.row, "zeros behind the request"):
            await self._echo(b"padded", "known", padding=5000)

    async def _echo(self, content: bytes, framing: str, **flags: str | int) -> None:
        heard = await self.go(content, framing=framing, **flags)
        known = framing == "known"
        assert heard.event == "answer", heard.error or heard.outside
        assert heard.status == 200
        assert heard.content == content, "the content came back changed"
        wanted = KNOWN_RESPONSE if known else INDETERMINATE_RESPONSE
        assert heard.framing == wanted, heard.framing
        assert heard.fields == {"content-type": "application/json"}

    async def steps(self) -> None:
        """Each chunk is sent before our gateway may make the next."""

        async def release(chunks: int) -> None:
            if chunks <= STEPS:
                self.gateway.next.put_nowait(None)

        with self.table.case(self.row, "streams chunk by chunk"):
            heard = await self.client.ask(
                self.address,
                flags={"kem": self.row.kem, "path": "/steps"},
                on_chunk=release,
            )
            said = b"".join(b"step %d\n" % number for number in range(STEPS))
            assert heard.content == said, heard.error
            assert len(heard.chunks) == STEPS + 2

    async def spoilt_requests(self) -> None:
        content = b"s" * SPOILT_BYTES
        pieces = 3 if self.row.form == "plain" else 6
        for index in range(pieces):
            with self.table.case(self.row, f"bit of piece {index}"):
                _refused(await self.go(content, flip=index), "about:blank")
        for kept in range(1, pieces):
            with self.table.case(self.row, f"cut behind piece {kept}"):
                _refused(await self.go(content, keep=kept), "about:blank")
        with self.table.case(self.row, "unknown key id"):
            _refused(await self.go(content, key_id=77), PROBLEM_OHTTP_KEY)

    async def spoilt_answers(self) -> None:
        """The other side refuses our answer after any change."""
        content = b"a" * SPOILT_BYTES
        plain = self.row.form == "plain"
        count = 2 if plain else 5
        for index in range(count):
            for at in (0, -1):
                with self.table.case(self.row, f"bit of the answer's piece {index}"):
                    heard = await self.go(content, path=f"/flip/{index}/{at}")
                    assert heard.event == "error", heard.event
                    assert heard.error in {DOES_NOT_OPEN, TRUNCATED, TOO_LONG}
        for kept in range(1, count):
            with self.table.case(self.row, f"answer cut behind piece {kept}"):
                heard = await self.go(content, path=f"/keep/{kept}")
                whole_prefix = plain or kept == count - 1
                wanted = DOES_NOT_OPEN if whole_prefix else TRUNCATED
                assert heard.error == wanted, heard.error or heard.event


def _refused(heard: Heard, problem: str) -> None:
    assert heard.event == "refused", heard.error or heard.event
    assert heard.http == 422, heard.http
    assert json.loads(heard.outside) == {"type": problem, "status": 422}
