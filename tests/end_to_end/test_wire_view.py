"""What passes each hop is what docs/threat-model.md lists, and nothing more."""

import asyncio
import re
import sys
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from end_to_end.conftest import OpenSession, make_stack

from curtilage.client.answers import Answerer
from curtilage.client.query import Message, Query, Settings
from curtilage_dev.processes import Processes
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
DATE = re.compile(r"[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT")
LITERAL = re.compile(r"`([^`]*)`")


@dataclass(frozen=True)
class Passed:
    """One message's start line and its fields."""

    start: str
    fields: Mapping[str, str]


@dataclass(frozen=True)
class Row:
    """One line of the table: a field that may pass in one kind of message."""

    field: str
    value: str

    def allows(self, value: str, own: str) -> bool:
        if literal := LITERAL.match(self.value):
            return value == literal[1]
        (form,) = (form for form in FORMS if self.value.startswith(form))
        return FORMS[form](value, own)


FORMS: Mapping[str, Callable[[str, str], bool]] = {
    "size": lambda value, _: re.fullmatch(r"[0-9]+", value) is not None,
    "the hop's own": lambda value, own: value == own,
    "the time": lambda value, _: DATE.fullmatch(value) is not None,
}


@dataclass(slots=True)
class Hop:
    """A tap, the address behind it, and the ports it connected from."""

    there: str
    tap: Tap = field(default_factory=Tap)
    ports: set[int] = field(default_factory=set[int])
    peers: set[tuple[str, int]] = field(default_factory=set[tuple[str, int]])


@asynccontextmanager
async def watched(there: str, *, source: str) -> AsyncGenerator[Hop]:
    """Tap the hop to ``there``; connect from ``source``, as the one who asks."""
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


def messages(data: bytes) -> list[Passed]:
    return [
        Passed(start=match["start"].decode(), fields=fields_of(match["fields"]))
        for match in MESSAGE.finditer(data)
    ]


def fields_of(lines: bytes) -> Mapping[str, str]:
    fields: dict[str, str] = {}
    for line in lines.decode("latin-1").splitlines():
        name, _, value = line.partition(":")
        assert name.lower() not in fields, f"{name} passes twice"
        fields[name.lower()] = value.strip()
    return fields


def table() -> list[list[str]]:
    text = (ROOT / "docs" / "threat-model.md").read_text("utf-8")
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in text.splitlines()
        if line.startswith(tuple(f"| {hop} |" for hop in HOPS))
    ]


def listed(hop: str, kind: str) -> Mapping[str, Row]:
    """Fields that the threat model lists for one kind of message of one hop."""
    rows = [Row(row[2].strip("`"), row[3]) for row in table() if row[:2] == [hop, kind]]
    return {row.field: row for row in rows}


def kind_of(message: Passed, number: int) -> str:
    """Name a message as the table does; the fetch comes before the question."""
    if message.start.startswith("HTTP/"):
        return ("bundle", "answer")[number]
    return {"GET": "fetch", "POST": "question"}[message.start.split()[0]]


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

    def own_host(self, hop: str) -> str:
        """What the one who asks calls the other side: the tap's address."""
        side = self.client_hop if hop == HOPS[0] else self.enclave_hop
        return f"127.0.0.1:{side.tap.port}"


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
        own.relay_extra = ""  # as shipped: the table tells the defaults
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


async def test_only_what_is_listed_passes(recorded: Recorded) -> None:
    for hop, data in recorded.passed().items():
        seen = messages(data)
        assert len(seen) == 2, f"{hop}: a fetch and a question"
        for number, message in enumerate(seen):
            kind = kind_of(message, number)
            check(f"{hop}, {kind}", message, listed(hop, kind), recorded.own_host(hop))


def check(where: str, message: Passed, rows: Mapping[str, Row], own: str) -> None:
    """Compare one message's fields, names and values, with the table's."""
    more = message.fields.keys() - rows.keys()
    assert not more, f"{where}: {sorted(more)} passes and is not listed"
    missing = rows.keys() - message.fields.keys()
    assert not missing, f"{where}: {sorted(missing)} is listed and does not pass"
    for name, value in message.fields.items():
        assert rows[name].allows(value, own), f"{where}: {name}: {value}"


async def test_only_listed_start_lines_pass(recorded: Recorded) -> None:
    for hop, data in recorded.passed().items():
        for number, message in enumerate(messages(data)):
            row = listed(hop, kind_of(message, number) + " line")
            (shown,) = row.values()
            start = message.start.replace("/demo", "/{gateway}")
            assert f"`{start}`" in shown.value, f"{hop}: {start}"


async def test_no_content_passes(recorded: Recorded) -> None:
    for data in recorded.passed().values():
        assert data
        for secret in (CANARY, "chat/completions", "curtilage.invalid"):
            assert secret.encode() not in data


async def test_the_enclave_learns_nothing_of_the_client(recorded: Recorded) -> None:
    """Neither the client's address nor a port of its connections goes on."""
    client, enclave = recorded.client_hop, recorded.enclave_hop
    assert client.ports
    # What the enclave's side sees of the network is the relay's own.
    assert {host for host, _ in enclave.peers} == {RELAY_HOST}
    heads = b"".join(match[0] for match in MESSAGE.finditer(bytes(enclave.tap.outward)))
    assert heads
    if TWO_ADDRESSES:
        assert CLIENT_HOST.encode() not in enclave.tap.outward
    for port in {*client.ports, *(port for _, port in client.peers)}:
        # A sealed body may hold any octets, so digits are looked for in the heads.
        numbers = {int(found) for found in re.findall(rb"[0-9]+", heads)}
        assert port not in numbers


def test_the_tables_name_every_hop() -> None:
    asked, answered = ("fetch", "question"), ("bundle", "answer")
    kinds = (asked, asked, answered, answered)
    for hop, of in zip(HOPS, kinds, strict=True):
        for kind in of:
            assert listed(hop, kind)
            assert listed(hop, f"{kind} line")
    assert {row[1].removesuffix(" line") for row in table()} == {*asked, *answered}


def test_any_field_name_is_seen() -> None:
    (message,) = messages(b"GET /x HTTP/1.1\r\nX_Trace-2: a:b\r\nhost:c\r\n\r\n")
    assert message.fields == {"x_trace-2": "a:b", "host": "c"}


@pytest.mark.parametrize(
    ("value", "seen", "allowed"),
    [
        ("`a`", "a", True),
        ("`a`", "b", False),
        ("`a`; why", "a", True),
        ("size of it", "12", True),
        ("size of it", "12a", False),
        ("the hop's own: x", "own", True),
        ("the hop's own: x", "other", False),
        ("the time", "Sat, 21 Nov 2026 13:52:06 GMT", True),
        ("the time", "Sat, 21 Nov 2026 13:52:06 GMT 7", False),
    ],
)
def test_values_are_compared(value: str, seen: str, *, allowed: bool) -> None:
    assert Row("x", value).allows(seen, "own") is allowed


def test_an_unlisted_field_or_value_fails() -> None:
    rows = {"server": Row("server", "`curtilage`")}
    check("here", Passed("", {"server": "curtilage"}), rows, "own")
    for fields in (
        {"server": "curtilage-7f3a"},
        {"server": "curtilage", "x_1": ""},
        {},
    ):
        with pytest.raises(AssertionError):
            check("here", Passed("", fields), rows, "own")
