"""No hop discloses the question or the client; and the page that shows it.

Field by field, tests/privacy/test_ledger.py compares each hop with the ledger.
"""

import asyncio
import re
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from end_to_end.conftest import OpenSession, make_stack

from curtilage.client.chat.answer import Answerer
from curtilage.client.chat.query import Message, Query, Settings
from curtilage_dev.processes import Processes
from support.ledger import HopRow, MessageRow, read_ledger
from support.tap import Tap, listening

ROOT = Path(__file__).resolve().parents[2]
CANARY = "heliotrope"
QUERY = Query(
    messages=(Message(role="user", content=f"What is a {CANARY}?"),),
    settings=Settings(max_tokens=24, temperature=0, seed=1),
    stream=True,
)
HOPS = ("client → relay", "relay → enclave", "enclave → relay", "relay → client")
RELAY_HOST = "127.0.0.1"
TWO_ADDRESSES = sys.platform == "linux"
CLIENT_HOST = "127.0.0.2" if TWO_ADDRESSES else RELAY_HOST
"""Where the relay sees the client; only Linux has a second address by itself."""
MESSAGE = re.compile(
    rb"(?P<start>(?:GET|POST) /[^\r\n]*|HTTP/1\.1 [0-9]{3}[^\r\n]*)\r\n"
    rb"(?P<fields>(?:[!#$%&'*+.^_`|~0-9A-Za-z-]+:[^\r\n]*\r\n)*)\r\n"
)


@dataclass(slots=True)
class Hop:
    """A tap, the address behind it, and the ports it connected from."""

    there: str
    tap: Tap = field(default_factory=Tap)
    ports: set[int] = field(default_factory=set[int])
    peers: set[tuple[str, int]] = field(default_factory=set[tuple[str, int]])


@asynccontextmanager
async def watched(there: str, *, source: str) -> AsyncGenerator[Hop]:
    """Tap the hop to ``there``; connect from ``source``, as the client."""
    host, _, port = there.rpartition(":")
    hop = Hop(there)

    async def connected(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        hop.peers.add(writer.get_extra_info("peername"))
        there_reader, there_writer = await asyncio.open_connection(
            host, int(port), local_addr=(source, 0)
        )
        hop.ports.add(there_writer.get_extra_info("sockname")[1])
        try:
            await asyncio.gather(
                copied(reader, there_writer, hop.tap.outward),
                copied(there_reader, writer, hop.tap.homeward),
            )
        finally:
            there_writer.close()

    async with listening(connected) as hop.tap.port:
        yield hop


async def copied(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, kept: bytearray
) -> None:
    while data := await reader.read(65536):
        kept += data
        writer.write(data)
        await writer.drain()
    writer.close()


@dataclass(frozen=True)
class Recorded:
    client_hop: Hop
    enclave_hop: Hop

    def passed(self) -> dict[str, bytes]:
        streams = (
            self.client_hop.tap.outward,
            self.enclave_hop.tap.outward,
            self.enclave_hop.tap.homeward,
            self.client_hop.tap.homeward,
        )
        return dict(zip(HOPS, map(bytes, streams), strict=True))


@pytest.fixture(params=[True, False], ids=["stream", "whole"])
async def recorded(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    model: tuple[str, str],
    open_session: OpenSession,
) -> Recorded:
    """Ask through two taps: client → relay and relay → enclave."""
    query = replace(QUERY, stream=request.param)
    with Processes(tmp_path) as processes:
        own = make_stack(tmp_path, processes, model)
        own.relay_extra = ""  # as shipped
        own.start_evidence()
        own.publish()
        own.start_enclave()
        async with watched(own.enclave_address, source=RELAY_HOST) as enclave_hop:
            own.enclave_address = f"127.0.0.1:{enclave_hop.tap.port}"
            own.start_relay()
            async with watched(own.relay_address, source=CLIENT_HOST) as client_hop:
                relay = f"http://127.0.0.1:{client_hop.tap.port}/demo"
                text = own.policy.read_text("utf-8")
                async with open_session(relay=relay, policy=text) as session:
                    answer = await session.ask(query)
                assert answer.route is Answerer.ENCLAVE
    return Recorded(client_hop=client_hop, enclave_hop=enclave_hop)


async def test_no_content_passes(recorded: Recorded) -> None:
    for data in recorded.passed().values():
        assert data
        for secret in (CANARY, "chat/completions", "curtilage.invalid"):
            assert secret.encode() not in data


async def test_the_enclave_learns_nothing_of_the_client(recorded: Recorded) -> None:
    """Neither the client's address nor a port of its connections goes on."""
    client, enclave = recorded.client_hop, recorded.enclave_hop
    assert client.ports
    # The enclave's side sees only the relay's own address.
    assert {host for host, _ in enclave.peers} == {RELAY_HOST}
    heads = b"".join(match[0] for match in MESSAGE.finditer(bytes(enclave.tap.outward)))
    assert heads
    if TWO_ADDRESSES:
        assert CLIENT_HOST.encode() not in enclave.tap.outward
    for port in {*client.ports, *(port for _, port in client.peers)}:
        # A sealed body may contain any bytes, so digits are searched for in the heads.
        numbers = {int(found) for found in re.findall(rb"[0-9]+", heads)}
        assert port not in numbers


def test_the_threat_model_shows_the_ledger() -> None:
    """Each message with its first line, fields and content, and no other row."""
    text = (ROOT / "docs" / "threat-model.md").read_text("utf-8")
    shown = [line for line in text.splitlines() if re.match(r"\| \w+ → ", line)]
    hops = read_ledger()["hops"]
    assert shown == [row(hop, each) for hop in hops for each in hop["messages"]]


def row(hop: HopRow, message: MessageRow) -> str:
    fields = ", ".join(
        f"`{each['name']}`{'?' * each.get('optional', False)}"
        for each in message["fields"]
    )
    line = message["line"]
    first = f"`{line}`"
    if not isinstance(line, str):
        codes = [each.split()[1] for each in line]
        first = f"{len(codes)} statuses, {codes[0]} to {codes[-1]}"
    cells = (hop["hop"].replace(" to ", " → "), message["message"], first, fields)
    return f"| {' | '.join(cells)} | {message['content']} |"
