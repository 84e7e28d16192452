import asyncio
import hashlib
import socket
import urllib.request
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from curtilage.client import Answerer, Client, SyncClient, TelemetrySettings, api
from curtilage.client.config import ClientConfig, Flags, read_config
from curtilage.client.errors import ConfigError, LocalUnavailableError, UsageError
from curtilage.client.local.computing import Computing
from curtilage.policy.decision.routes import Route
from support.byte_model import make_byte_model

HARMLESS = "What is HIV?"
HARD = "Write a Python function that merges two sorted lists, with tests."


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path = make_byte_model(tmp_path_factory.mktemp("model") / "byte.gguf")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return {"model": str(path), "model_sha256": digest}


async def test_client_answers_decides_and_streams(model: dict[str, Any]) -> None:
    async with Client(**model) as client:
        answer = await client.chat(HARD, max_tokens=8, temperature=0)
        assert answer.route is Answerer.LOCAL, "there is no relay"
        assert answer.provenance.fallback is not None
        assert answer.finished.completion_tokens <= 8
        decision = await client.decide(HARMLESS)
        assert decision.route is Route.ENCLAVE
        turns = [{"role": "user", "content": "my ssn is 536-22-1234"}]
        stream = client.stream(turns, max_tokens=8, temperature=0)
        assert (await stream.begin()).rule == "government-id"
        pieces = [piece.text async for piece in stream]
        assert "".join(pieces) == stream.answer.text


def test_sync_client_does_the_same(model: dict[str, Any]) -> None:
    with SyncClient(**model) as client:
        answer = client.chat(HARMLESS, max_tokens=8, temperature=0, seed=1)
        stream = client.stream(HARMLESS, max_tokens=8, temperature=0, seed=1)
        assert "".join(piece.text for piece in stream) == stream.answer.text
        assert stream.answer.text == answer.text
        assert client.decide(HARMLESS).route is Route.ENCLAVE
    client.close()  # a second time does nothing


def test_a_program_may_set_what_the_command_line_may() -> None:
    flags = {each.name for each in fields(Flags)}
    assert set(api.ClientOptions.__annotations__) == flags | {"consent", "telemetry"}


async def test_settings_of_the_local_model_reach_its_configuration(
    monkeypatch: pytest.MonkeyPatch, model: dict[str, Any]
) -> None:
    seen: list[ClientConfig] = []

    async def assemble(config: ClientConfig) -> None:
        seen.append(config)
        raise ConfigError("enough")

    monkeypatch.setattr(api, "assemble", assemble)
    client = Client(
        **model,
        sequences=3,
        threads=2,
        kv_type="q8_0",
        flash_attention="on",
        gpu_layers=0,
        answer_seconds=60,
    )
    with pytest.raises(ConfigError, match="enough"):
        await client.start()
    (config,) = seen
    assert config.sequences == 3
    assert config.computing == Computing(
        threads=2, kv_type="q8_0", flash_attention="on", gpu_layers=0, answer_s=60
    )


def test_a_stream_may_be_left_early(model: dict[str, Any]) -> None:
    with SyncClient(**model) as client:
        for _ in client.stream(HARMLESS, max_tokens=500):
            break
        assert client.chat(HARMLESS, max_tokens=4).finished.completion_tokens <= 4


@pytest.fixture
def settings() -> TelemetrySettings:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return TelemetrySettings(prometheus_port=int(free.getsockname()[1]))


def _metrics(settings: TelemetrySettings) -> str:
    url = f"http://127.0.0.1:{settings.prometheus_port}/metrics"
    with urllib.request.urlopen(url) as answer:
        return str(answer.read().decode())


async def test_counts_go_where_a_program_says_while_its_client_runs(
    model: dict[str, Any], settings: TelemetrySettings
) -> None:
    async with Client(telemetry=settings, **model) as client:
        answer = await client.chat(HARMLESS, max_tokens=8, temperature=0)
        client.feedback(answer, good=True)
        shown = await asyncio.to_thread(_metrics, settings)
        assert 'curtilage_client_answered_total{route="local"} 1.0' in shown
        assert 'opinion="good"' in shown
        with pytest.raises(UsageError, match="no such answer"):
            client.feedback(answer.id, good=True)
    with pytest.raises(OSError, match="refused"):
        await asyncio.to_thread(_metrics, settings)


async def test_counts_stop_where_a_client_does_not_start(
    settings: TelemetrySettings,
) -> None:
    client = Client(relay="http://127.0.0.1:1/demo", telemetry=settings)
    with pytest.raises(ConfigError):
        await client.start()
    with pytest.raises(OSError, match="refused"):
        await asyncio.to_thread(_metrics, settings)


def test_sync_client_takes_a_word(model: dict[str, Any]) -> None:
    with SyncClient(**model) as client:
        stream = client.stream(HARMLESS, max_tokens=8)
        for _ in stream:
            pass
        client.feedback(stream, good=False)
        with pytest.raises(UsageError, match="no such answer"):
            client.feedback(stream.answer, good=False)


async def test_a_client_that_is_not_started_says_so(model: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="not started"):
        await Client(**model).chat(HARMLESS)
    sync = SyncClient(**model)
    with pytest.raises(UsageError, match="not started"):
        sync.chat(HARMLESS)
    with pytest.raises(UsageError, match="not started"):
        sync.stream(HARMLESS)
    sync.close()


async def test_a_missing_model_is_reported_when_needed(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing.gguf")
    async with Client(model=missing, model_sha256="0" * 64) as client:
        with pytest.raises(LocalUnavailableError, match="must stay here"):
            await client.chat("my ssn is 536-22-1234")


async def test_a_plain_relay_address_needs_a_development_policy(
    model: dict[str, Any],
) -> None:
    client = Client(relay="http://127.0.0.1:1/demo", **model)
    with pytest.raises(ConfigError, match="development"):
        await client.start()


def test_a_missing_policy_is_reported_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        Client(policy=tmp_path / "missing.yaml")


def test_the_old_name_of_the_key_file_is_deprecated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[Flags] = []

    def reads(flags: Flags, environ: Mapping[str, str]) -> ClientConfig:
        read.append(flags)
        return read_config(flags, environ)

    monkeypatch.setattr(api, "read_config", reads)
    old: dict[str, Any] = {"house_key_file": "old"}
    both: dict[str, Any] = {**old, "on_premises_key_file": "new"}
    for options in (old, both):
        with pytest.warns(DeprecationWarning, match="on_premises_key_file"):
            Client(**options)
    assert [each.on_premises_key_file for each in read] == ["old", "new"]
