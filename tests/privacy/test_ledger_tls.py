"""What TLS discloses of client and relay: the same for all, and no earlier visit."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from curtilage.client.remote.access import read_access
from curtilage.client.remote.addresses import RelayAddress
from curtilage.client.remote.transport import RelayTransport
from curtilage_dev.processes import Processes
from curtilage_dev.scripted_enclave import Play
from curtilage_dev.stack import Stack
from support.client_hello import SERVER_NAME, ClientHello, read_client_hello
from support.hop_exchanges import QUICK
from support.hops import Hops, tapped_stack
from support.permits import order
from support.wiretap import Wiretap


async def visit(hops: Hops, path: str) -> None:
    """Fetch as our client does, over a connection of its own."""
    url = f"https://{hops.near.address}/demo{path}"
    access = read_access(ca=hops.stack.authority)
    address = RelayAddress.parse(url, plain_loopback=True)
    async with RelayTransport(address, access=access) as transport:
        await transport.fetch_bundle(order())


async def record(folder: Path) -> Hops:
    with Processes(folder) as processes:
        stack = Stack(
            folder=folder,
            processes=processes,
            transport=QUICK,
            tls=True,
            record=False,
            play=Play(pieces=2),
            relay_extra="[limits]\ncache_s = 1\n",
        )
        stack.start_evidence()
        stack.publish()
        async with tapped_stack(stack) as hops:
            await visit(hops, "")
            # The relay's idle connection is gone after this, and the copy too.
            stack.running["enclave"].stop()
            stack.start_enclave()
            await asyncio.sleep(1.2)
            await visit(hops, "")
            return hops


@pytest.fixture(scope="module")
def hops(tmp_path_factory: pytest.TempPathFactory) -> Hops:
    return asyncio.run(record(tmp_path_factory.mktemp("tls")))


def hellos(tap: Wiretap) -> Sequence[ClientHello]:
    return [read_client_hello(stream.outward) for stream in tap.since(0)]


@pytest.mark.parametrize("hop", ["near", "far"])
def test_no_connection_discloses_an_earlier_one(hops: Hops, hop: str) -> None:
    first, second, *_ = hellos(getattr(hops, hop))
    assert not first.resumes
    assert not second.resumes


@pytest.mark.parametrize("hop", ["near", "far"])
def test_every_connection_begins_alike(hops: Hops, hop: str) -> None:
    first, second, *_ = hellos(getattr(hops, hop))
    assert first.suites == second.suites
    assert first.extensions == second.extensions
    assert set(first.protocols) <= {b"http/1.1"}
    # An address is not a name: with a name, it would be the relay's or the enclave's.
    assert SERVER_NAME not in first.contents


@pytest.mark.parametrize("hop", ["near", "far"])
def test_nothing_of_http_is_in_the_clear(hops: Hops, hop: str) -> None:
    tap: Wiretap = getattr(hops, hop)
    for stream in tap.since(0):
        for data in (stream.outward, stream.homeward):
            assert b"HTTP/1.1" not in data
            assert b"curtilage" not in data
