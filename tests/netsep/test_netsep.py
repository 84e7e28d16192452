"""Relay and enclave in networks of their own: who sees whose address, and no question.

``make netsep-test``. The real programs run in three network namespaces in a row; every
frame of both links is kept. A judge then looks for the question in many forms, for the
client's address behind the relay, and for connections that none of them may open.
"""

import base64
import os
import re
import socket
from collections.abc import Generator
from functools import partial
from ipaddress import ip_address
from pathlib import Path

import pytest
from netsep.judge import TCP, Link, leaks, streams
from netsep.namespaces import (
    ADDRESSES,
    CLIENT,
    ENCLAVE,
    OUTSIDE,
    RELAY,
    Capture,
    Net,
    UnableError,
)
from netsep.scene import CANARY, PROGRAMS, QUESTION, Seen, rules_of, watch

REQUIRED = "netsep" in os.environ.get("CURTILAGE_REQUIRE", "").split(",")
PORT = 7000
each_family = pytest.mark.parametrize("family", [4, 6], ids=["IPv4", "IPv6"])


@pytest.fixture(scope="module")
def net() -> Generator[Net]:
    made = Net()
    try:
        made.__enter__()
    except UnableError as error:
        words = f"SKIPPED LOUDLY: no networks of our own: {error}"
        if REQUIRED:
            pytest.fail(words)
        pytest.skip(words)
    try:
        yield made
    finally:
        made.__exit__(None, None, None)


@pytest.fixture(scope="module", params=[4, 6], ids=["IPv4", "IPv6"])
def seen(
    request: pytest.FixtureRequest, net: Net, tmp_path_factory: pytest.TempPathFactory
) -> tuple[int, Seen]:
    family: int = request.param
    folder = tmp_path_factory.mktemp(f"ip{family}")
    return family, watch(net, folder, family=family)


# What passes.


def test_the_enclave_opened_the_question_and_answered_it(
    seen: tuple[int, Seen],
) -> None:
    _, scene = seen
    assert scene.route == "enclave"
    assert scene.answer == QUESTION


def test_nothing_is_where_it_may_not_be(seen: tuple[int, Seen]) -> None:
    _, scene = seen
    assert leaks(scene.packets, scene.rules) == []


def test_each_link_carried_the_exchange_between_its_ends(
    seen: tuple[int, Seen],
) -> None:
    family, scene = seen
    client, near, far, enclave = map(ip_address, ADDRESSES[family])
    for link, ends in ((Link.CLIENT, {client, near}), (Link.ENCLAVE, {far, enclave})):
        tcp = [
            each
            for each in scene.packets
            if each.link is link and each.protocol == TCP and each.payload
        ]
        assert {each.source for each in tcp} == ends
        # A padded question, and an answer of 64 frames.
        assert sum(map(len, streams(tcp).values())) > 20_000


def test_the_relay_reads_neither_fields_of_the_client_nor_its_question(
    seen: tuple[int, Seen],
) -> None:
    _, scene = seen
    heads = [
        head
        for (link, *_), data in streams(scene.packets).items()
        if link is Link.ENCLAVE
        for head in re.findall(rb"POST [^\r]+\r\n(.+?)\r\n\r\n", data, re.DOTALL)
    ]
    assert heads
    lines = [line for head in heads for line in head.split(b"\r\n")]
    names = {line.partition(b":")[0].lower() for line in lines}
    assert names <= {
        *(b"host", b"content-type", b"incremental"),
        *(b"transfer-encoding", b"content-length"),
    }


# Connections that must fail.


def forbidden(family: int) -> list[tuple[str, str]]:
    client, near, far, enclave = ADDRESSES[family]
    return [
        (CLIENT, enclave),
        (CLIENT, far),
        (CLIENT, OUTSIDE[family]),
        (ENCLAVE, client),
        (ENCLAVE, near),
        (ENCLAVE, OUTSIDE[family]),
    ]


@each_family
def test_there_is_no_way_but_through_the_relay(net: Net, family: int) -> None:
    for place, host in forbidden(family):
        assert net.probe(place, host, PORT) == "ENETUNREACH", (place, host)


@each_family
def test_with_routes_the_relays_machine_still_forwards_nothing(
    net: Net, family: int
) -> None:
    client, _, _, enclave = ADDRESSES[family]
    made = [
        net.inside(place, partial(_listening, host))
        for place, host in ((CLIENT, client), (ENCLAVE, enclave))
    ]
    try:
        net.set_routes(forwarding=False)
        assert net.probe(CLIENT, enclave, PORT) != "reached"
        assert net.probe(ENCLAVE, client, PORT) != "reached"
        # Positive control: where the way is open, the same probe finds it.
        net.set_routes(forwarding=True)
        assert net.probe(CLIENT, enclave, PORT) == "reached"
        assert net.probe(ENCLAVE, client, PORT) == "reached"
    finally:
        net.clear_routes()
        for each in made:
            each.close()


# What the judge sees.


@each_family
def test_the_judge_sees_what_passes_in_the_clear(net: Net, family: int) -> None:
    client, near, _, enclave = ADDRESSES[family]
    coded = base64.b64encode(b"text: " + CANARY.encode())
    with Capture(net) as capture:
        _send(net, (CLIENT, RELAY, near), CANARY.encode() + coded)
        _send(net, (RELAY, ENCLAVE, enclave), f"for={client}".encode())
    found = leaks(capture.packets, rules_of(family, PORT))
    assert {each for each in found if "connection" not in each} == {
        f"{Link.CLIENT}: canary, text",
        f"{Link.CLIENT}: canary, base64",
        f"{Link.ENCLAVE}: client's address",
    }


def _send(net: Net, way: tuple[str, str, str], data: bytes) -> None:
    place, other, host = way
    with (
        net.inside(other, partial(_listening, host)) as server,
        net.inside(place, partial(socket.create_connection, (host, PORT), 5)) as opened,
        server.accept()[0] as accepted,
    ):
        opened.sendall(data)
        opened.shutdown(socket.SHUT_WR)
        while accepted.recv(65536):
            pass


def _listening(host: str) -> socket.socket:
    kind = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, PORT), family=kind)


def test_the_judge_sees_a_stranger_and_a_connection_the_wrong_way(net: Net) -> None:
    _, _, far, _ = ADDRESSES[4]
    with Capture(net) as capture:
        # The relay's machine refuses: no program listens there.
        assert net.probe(ENCLAVE, far, PORT) == "ECONNREFUSED"
        assert net.probe(CLIENT, ADDRESSES[6][1], PORT) == "ECONNREFUSED"
    found = leaks(capture.packets, rules_of(4, PORT))
    enclave, client6 = ADDRESSES[4][3], ADDRESSES[6][0]
    assert f"{Link.ENCLAVE}: connection {enclave} to {far} port {PORT}" in found
    assert f"{Link.CLIENT}: address {client6}" in found


MUTANTS = {
    "relay": (Link.ENCLAVE, "client's address"),
    "client": (Link.CLIENT, "canary, base64"),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_caught(name: str, net: Net, tmp_path: Path) -> None:
    program = PROGRAMS / f"mutant_{name}.py"
    scene = watch(net, tmp_path, family=4, instead={name: program})
    # It works as before, but for what it gives away.
    assert (scene.route, scene.answer) == ("enclave", QUESTION)
    link, finding = MUTANTS[name]
    assert leaks(scene.packets, scene.rules) == [f"{link}: {finding}"]
