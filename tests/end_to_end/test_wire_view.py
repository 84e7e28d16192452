"""What passes each hop is what docs/threat-model.md lists, and nothing more."""

import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from end_to_end.conftest import OpenSession, make_stack

from curtilage.client.answers import Answerer
from curtilage.client.query import Message, Query, Settings
from curtilage_dev.processes import Processes
from support.tap import Tap, tapped

ROOT = Path(__file__).resolve().parents[2]
CANARY = "heliotrope"
QUERY = Query(
    messages=(Message(role="user", content=f"What is a {CANARY}?"),),
    settings=Settings(max_tokens=24, temperature=0, seed=1),
    stream=True,
)
MESSAGE = re.compile(
    rb"(?P<start>(?:GET|POST) /[^\r\n]*|HTTP/1\.1 [0-9]{3}[^\r\n]*)\r\n"
    rb"(?P<fields>(?:[A-Za-z-]+:[^\r\n]*\r\n)*)\r\n"
)


@dataclass(frozen=True)
class Passed:
    """One message's start line and the names of its fields."""

    start: str
    fields: frozenset[str]


def messages(data: bytes) -> list[Passed]:
    found: list[Passed] = []
    for match in MESSAGE.finditer(data):
        names = [line.partition(b":")[0] for line in match["fields"].splitlines()]
        found.append(
            Passed(
                start=match["start"].decode(),
                fields=frozenset(name.decode().lower() for name in names),
            )
        )
    return found


def listed(hop: str) -> frozenset[str]:
    """Field names that the threat model lists for one hop."""
    text = (ROOT / "docs" / "threat-model.md").read_text("utf-8")
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in text.splitlines()
        if line.startswith(f"| {hop} |")
    ]
    return frozenset(row[2].strip("`") for row in rows if row[1] == "header")


def requests_listed(hop: str) -> str:
    text = (ROOT / "docs" / "threat-model.md").read_text("utf-8")
    return next(
        line
        for line in text.splitlines()
        if line.startswith(f"| {hop} |") and "method and path" in line
    )


@dataclass(frozen=True)
class Recorded:
    client_hop: Tap
    enclave_hop: Tap


@pytest.fixture
async def recorded(
    tmp_path: Path, model: tuple[str, str], open_session: OpenSession
) -> Recorded:
    """Ask through two taps: client → relay and relay → enclave."""
    with Processes(tmp_path) as processes:
        own = make_stack(tmp_path, processes, model)
        own.start_evidence()
        own.publish()
        own.start_enclave()
        host, _, port = own.enclave_address.rpartition(":")
        async with tapped(host, int(port)) as enclave_hop:
            own.enclave_address = f"127.0.0.1:{enclave_hop.port}"
            own.start_relay()
            host, _, port = own.relay_address.rpartition(":")
            async with tapped(host, int(port)) as client_hop:
                relay = f"http://127.0.0.1:{client_hop.port}/demo"
                text = own.policy.read_text("utf-8")
                async with open_session(relay=relay, policy=text) as session:
                    answer = await session.ask(QUERY)
                assert answer.route is Answerer.ENCLAVE
    return Recorded(client_hop=client_hop, enclave_hop=enclave_hop)


async def test_only_what_is_listed_passes(recorded: Recorded) -> None:
    hops = {
        "client → relay": recorded.client_hop.outward,
        "relay → enclave": recorded.enclave_hop.outward,
        "enclave → relay": recorded.enclave_hop.homeward,
        "relay → client": recorded.client_hop.homeward,
    }
    for hop, data in hops.items():
        seen = messages(bytes(data))
        assert len(seen) == 2, f"{hop}: a fetch and a question"
        names = frozenset(name for message in seen for name in message.fields)
        more = names - listed(hop)
        assert not more, f"{hop}: {sorted(more)} passes and is not listed"


async def test_only_listed_requests_pass(recorded: Recorded) -> None:
    for hop, data in (
        ("client → relay", recorded.client_hop.outward),
        ("relay → enclave", recorded.enclave_hop.outward),
    ):
        for message in messages(bytes(data)):
            method, path, _ = message.start.split(" ")
            shown = path.replace("/demo", "/{gateway}")
            assert f"`{method} {shown}`" in requests_listed(hop)


async def test_no_content_passes(recorded: Recorded) -> None:
    for tap in (recorded.client_hop, recorded.enclave_hop):
        for data in (tap.outward, tap.homeward):
            assert data
            for secret in (CANARY, "chat/completions", "curtilage.invalid"):
                assert secret.encode() not in data


async def test_the_enclave_learns_nothing_of_the_client(recorded: Recorded) -> None:
    """The two hops share no field value that could join them."""
    client_port = str(recorded.client_hop.port).encode()
    assert client_port not in recorded.enclave_hop.outward


def test_the_tables_name_every_hop() -> None:
    for hop in (
        "client → relay",
        "relay → enclave",
        "enclave → relay",
        "relay → client",
    ):
        assert listed(hop)
