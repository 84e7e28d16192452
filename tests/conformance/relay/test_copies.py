"""Keys and bundle: one copy for all clients, byte for byte."""

import os
import re
import shlex
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from conformance.relay.conftest import PATIENT, StartRelay

from support.relay_differences import differs
from support.relay_processes import NGINX, RelayProcess, Tree, generate
from support.relay_wire import Gateway, raw_answer, say

KEYS = bytes(range(64))
KINDS = {
    "keys": ("/ohttp-keys", "application/ohttp-keys"),
    "bundle": (
        "/attestation-bundle",
        "application/vnd.curtilage.evidence-bundle+json",
    ),
}
PASSING = {
    *("Content-Type", "Content-Length", "Cache-Control", "Server", "Date"),
    "Connection",
}


@pytest.fixture(scope="module")
def fresh(start_relay: StartRelay) -> RelayProcess:
    """Return a relay that has fetched nothing yet."""
    return start_relay()


@pytest.mark.parametrize("name", KINDS)
def test_a_copy_is_fetched_once_and_is_the_same_for_everybody(
    fresh: RelayProcess, gateway: Gateway, name: str
) -> None:
    path, kind = KINDS[name]
    fields = ("ETag: canary", "Cache-Control: max-age=7", "Set-Cookie: canary")
    gateway.script = say(raw_answer(*fields, "Age: 5", kind=kind, body=KEYS))
    first = fresh.get(f"/demo/{name}?canary", "Cookie: canary")
    second = fresh.get(f"/demo/{name}", "Cache-Control: no-cache", "Range: bytes=0-1")
    third = fresh.get(f"/demo/{name}", "If-None-Match: canary")
    assert {answer.body for answer in (first, second, third)} == {KEYS}
    assert first.names == second.names == third.names
    assert set(first.names) <= PASSING
    assert first.value("Content-Type") == kind
    assert first.value("Cache-Control") == "public, max-age=600"
    assert len(gateway.exchanges) == 1
    exchange = gateway.exchanges[0]
    assert exchange.head.start_line == f"GET {path} HTTP/1.1"
    assert set(exchange.head.names) <= {"Host", "Connection"}
    assert b"canary" not in exchange.wire.seen


@pytest.fixture(scope="module")
def forgetful(start_relay: StartRelay) -> RelayProcess:
    """Return a relay whose copies live one second."""
    return start_relay(limits={**PATIENT, "cache_s": 1})


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("status", ["301 Moved", "404 Gone", "503 Busy"])
def test_an_error_is_neither_passed_nor_kept(
    forgetful: RelayProcess, other_gateway: Gateway, name: str, status: str
) -> None:
    kind = KINDS[name][1]
    other_gateway.script = say(raw_answer("Location: /x", status=status, kind=kind))
    for count in (1, 2):
        answer = forgetful.get(f"/other/{name}")
        assert answer.status == 502
        assert answer.value("Cache-Control") == "no-store"
        assert len(other_gateway.exchanges) == count


def test_a_copy_grows_old(forgetful: RelayProcess, gateway: Gateway) -> None:
    kind = KINDS["keys"][1]
    gateway.script = say(raw_answer(kind=kind, body=b"old"))
    assert forgetful.get("/demo/keys").body == b"old"
    gateway.script = say(raw_answer(kind=kind, body=b"new"))
    while forgetful.get("/demo/keys").body == b"old":
        pass
    assert len(gateway.exchanges) == 2


@pytest.mark.parametrize("kind", ["text/html", "message/ohttp-res", None])
def test_another_media_type_is_not_kept(
    relay: RelayProcess, gateway: Gateway, kind: str | None
) -> None:
    gateway.script = say(raw_answer(kind=kind, body=KEYS))
    answers = [relay.get("/demo/keys") for _ in range(2)]
    assert KINDS["keys"][1] not in {answer.value("Content-Type") for answer in answers}
    assert len(gateway.exchanges) == 2


@differs("answer-kind")
@pytest.mark.parametrize("kind", ["text/html", None])
def test_another_media_type_is_refused(
    relay: RelayProcess, gateway: Gateway, kind: str | None
) -> None:
    gateway.script = say(raw_answer(kind=kind, body=KEYS))
    assert relay.get("/demo/keys").status == 502


AS_ROOT = pytest.mark.skipif(
    NGINX is None or os.geteuid() != 0,
    reason="SKIPPED LOUDLY: only root's nginx gives its workers another user",
)


@pytest.fixture
def roots_nginx(tree: Tree) -> Iterator[RelayProcess]:
    """Return an nginx that root started as the generated text says."""
    with tempfile.TemporaryDirectory() as name:
        parent = Path(name)
        parent.chmod(0o711)
        folder = parent / "run"
        text = generate({**tree, "listen": "127.0.0.1:8080"}, folder)
        (before,) = re.findall(r"\n# +(install -d .*)", text)
        subprocess.run(shlex.split(before), check=True)
        relay = RelayProcess("nginx", tree, folder, own_user=False)
        yield relay
        relay.stop()


@AS_ROOT
@pytest.mark.parametrize("name", KINDS)
def test_roots_workers_reach_the_copies(
    roots_nginx: RelayProcess, gateway: Gateway, name: str
) -> None:
    gateway.script = say(raw_answer(kind=KINDS[name][1], body=KEYS))
    answers = [roots_nginx.get(f"/demo/{name}") for _ in range(2)]
    assert [(answer.status, answer.body) for answer in answers] == [(200, KEYS)] * 2
    assert len(gateway.exchanges) == 1


def test_an_absent_gateway_is_reported(relay: RelayProcess) -> None:
    answer = relay.get("/absent/keys")
    assert answer.status == 502
    assert answer.value("Cache-Control") == "no-store"
