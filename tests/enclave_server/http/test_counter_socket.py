"""The operator's socket: one text, for one account, at one path."""

import asyncio
import re
import secrets
import stat
import sys
from pathlib import Path

import pytest

import curtilage.enclave_server.counters as counters_module
from curtilage.enclave_server.config import EnclaveConfig
from curtilage.enclave_server.http import counter_socket
from curtilage.enclave_server.http.binding import bind_path
from curtilage.enclave_server.http.counter_socket import CounterSocket
from curtilage.enclave_server.model import Model
from curtilage.enclave_server.service import Surroundings, running
from curtilage.wire.keyconfig import parse_key_configs
from curtilage.wire.shaping import UNPADDED
from curtilage_dev.scripted_engine import ScriptedEngine
from support.enclave_deployment import World, make_world
from support.enclave_parts import ask, dated, exchange, get, inner_request, seal
from support.fakes import returns
from support.http_stream import HttpMessage, read_responses
from support.ledger import Surroundings as Deployment
from support.ledger import check_response, messages_of, read_ledger


def surroundings(world: World) -> Surroundings:
    async def open_model(_config: EnclaveConfig) -> Model:
        engine = ScriptedEngine()
        await engine.start()
        return Model(engine)

    return Surroundings(
        out=lambda _line: None,
        notice=lambda _line: None,
        open_model=open_model,
        open_evidence=lambda _config: world.evidence,
        clock=world.clock,
    )


async def fetch(path: Path, raw: bytes) -> bytes:
    async with asyncio.timeout(30):
        reader, writer = await asyncio.open_unix_connection(str(path))
        writer.write(raw)
        data = await reader.read()
        writer.close()
        return data


async def test_other_requests_get_nothing(tmp_path: Path) -> None:
    path = tmp_path / "counters.sock"
    bound = bind_path(path)
    served = CounterSocket(bound, lambda: "figures\n")
    await served.start()
    try:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        (found,) = read_responses(await fetch(path, get("/metrics")))
        assert (found.status, found.body) == (200, b"figures\n")
        for raw in (get("/"), get("/metrics?x"), b"POST /metrics HTTP/1.1\r\n\r\n"):
            (refused,) = read_responses(await fetch(path, raw))
            assert (refused.status, refused.body) == (404, b"")
    finally:
        served.stop()
        with bound:
            pass
    assert not path.exists()


async def test_a_long_or_slow_head_is_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "counters.sock"
    served = CounterSocket(bind_path(path), lambda: "figures\n")
    await served.start()
    try:
        padding = "x" * counter_socket.MAX_HEAD_BYTES
        long = f"GET /metrics HTTP/1.1\r\nX: {padding}\r\n\r\n"
        assert await fetch(path, long.encode()) == b""
        monkeypatch.setattr(counter_socket, "HEAD_S", 0.05)
        assert await fetch(path, b"GET /metrics HTTP/1.1\r\n") == b""
    finally:
        served.stop()


async def test_the_service_shows_its_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bytes of the hop, compared with the ledger, after a real question."""
    monkeypatch.setattr(counters_module, "UPDATE_S", 0.05)
    monkeypatch.setattr(secrets.SystemRandom, "random", returns(0.0))
    path = tmp_path / "counters.sock"
    extra = f'[counters]\nlisten = "unix:{path}"\n'
    world = make_world(tmp_path, extra=extra, transport=UNPADDED)
    async with running(world.config, surroundings(world)) as address:
        keys = await exchange(address, get("/ohttp-keys"))
        config = parse_key_configs(keys.body)[0]
        sealed = seal(config, inner_request(fields=dated(now=world.clock())))
        answer = sealed.open((await ask(address, sealed)).body)
        assert answer.status == 200

        text = ""
        async with asyncio.timeout(30):
            while 'events_total{event="answered"} 10\n' not in text:
                await asyncio.sleep(0.02)
                (message,) = read_responses(await fetch(path, get("/metrics")))
                require_listed(message)
                text = message.body.decode()
        assert 'events_total{event="opened"} 1\n' in text
        # Before anybody could ask.
        assert 'events_total{event="key_made"} 1\n' in text
        assert "first_token_seconds_count 10\n" in text
        # Once for each minute in which there were some: here there may be several.
        (written,) = re.findall(r'tokens_total\{kind="written"\} (\d+)\n', text)
        assert int(written) % 5000 == 0 < int(written)
    assert not path.exists()


async def test_without_the_table_nothing_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither module is even imported: an import would fail here."""
    for module in (counters_module, counter_socket):
        monkeypatch.setitem(sys.modules, module.__name__, None)
    world = make_world(tmp_path)
    async with running(world.config, surroundings(world)):
        pass


def require_listed(message: HttpMessage) -> None:
    rows = messages_of(read_ledger(), "enclave to operator")
    deployment = Deployment(
        words={},
        parameters=UNPADDED,
        keys=(),
        copies=frozenset(),
        constants=frozenset(),
    )
    asked = HttpMessage(start="GET /metrics HTTP/1.1", fields=(), body=b"", pieces=())
    found = check_response(rows, ["counters fetch"], message, asked, deployment)
    assert found == ("counters", [])
