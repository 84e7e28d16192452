# pyright: reportPrivateUsage=false
# A private function is called: the way to it takes a day of the clock.
import asyncio
import gc
import json
import logging
import os
import signal
import sys
import weakref
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import pytest
from typing_extensions import override

import curtilage.enclave_server.service as service_module
from curtilage.enclave_server.config import EnclaveConfig
from curtilage.enclave_server.errors import (
    BundleError,
    EvidenceError,
    ModelError,
    OpeningError,
)
from curtilage.enclave_server.evidence.report import NO_ANSWER
from curtilage.enclave_server.model import Model
from curtilage.enclave_server.process import OutputError
from curtilage.enclave_server.service import (
    SWITCH_S,
    Surroundings,
    running,
    serve_until_signalled,
)
from curtilage.enclave_server.telemetry import (
    WORDS,
    Counters,
    LogForm,
    Reason,
    State,
    StateLog,
)
from curtilage.inference.errors import EngineClosedError
from curtilage.wire.hpke import xwing
from curtilage.wire.keyconfig import parse_key_configs
from curtilage.wire.shaping import UNPADDED
from curtilage_dev.scripted_engine import ScriptedEngine
from support.enclave_deployment import World, make_world
from support.enclave_parts import (
    ask,
    dated,
    exchange,
    get,
    inner_request,
    seal,
    until,
)


@dataclass
class Said:
    out: list[str] = field(default_factory=list[str])
    notices: list[str] = field(default_factory=list[str])
    engines: list[ScriptedEngine] = field(default_factory=list[ScriptedEngine])


def surroundings(world: World, said: Said, *, delay_s: float = 0) -> Surroundings:
    async def open_model(_config: EnclaveConfig) -> Model:
        await asyncio.sleep(delay_s)
        engine = ScriptedEngine()
        await engine.start()
        said.engines.append(engine)
        return Model(engine)

    return Surroundings(
        out=said.out.append,
        notice=said.notices.append,
        open_model=open_model,
        open_evidence=lambda _config: world.evidence,
        clock=world.clock,
    )


async def test_enclave_serves_what_it_verified(tmp_path: Path) -> None:
    world, said = make_world(tmp_path), Said()
    async with running(world.config, surroundings(world, said)) as address:
        assert [json.loads(line) for line in said.out] == [
            {"ready": True, "listen": address}
        ]
        health = await exchange(address, get("/healthz"))
        assert json.loads(health.body)["evidence"] == "emulated-sev-snp"
        bundle = await exchange(address, get("/attestation-bundle"))
        assert len(bundle.body) < 256 * 1024
    honest, loaded, refreshed = said.notices
    assert honest.startswith("EMULATED EVIDENCE: ")
    assert loaded.endswith(f"model: loaded: {WORDS[State.LOADED]}")
    assert f"evidence: refreshed: {WORDS[State.REFRESHED]}; until 2" in refreshed
    with pytest.raises(OSError, match="Connect call failed"):
        await exchange(address, get("/healthz"))


class Lost(Model):
    """A model that does not answer."""

    @property
    @override
    def failing(self) -> Reason:
        return Reason.MODEL_UNAVAILABLE


async def test_a_model_that_does_not_answer_shows(tmp_path: Path) -> None:
    async def open_model(_config: EnclaveConfig) -> Model:
        engine = ScriptedEngine()
        await engine.start()
        return Lost(engine)

    world, said = make_world(tmp_path), Said()
    around = replace(surroundings(world, said), open_model=open_model)
    async with running(world.config, around) as address:
        health = await exchange(address, get("/healthz"))
    assert health.status == 200
    body = json.loads(health.body)
    assert (body["status"], body["reasons"]) == ("degraded", ["model_unavailable"])


async def test_nothing_listens_when_the_bundle_is_refused(tmp_path: Path) -> None:
    world, said = make_world(tmp_path), Said()
    world.evidence.measurement = bytes(48)
    with pytest.raises(BundleError):
        async with running(world.config, surroundings(world, said)):
            pytest.fail("it serves")
    assert said.out == []
    # The model is freed too.
    with pytest.raises(EngineClosedError):
        _ = said.engines[0].info


async def test_nothing_listens_where_hpke_is_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, said = make_world(tmp_path), Said()
    monkeypatch.setattr(xwing, "_LABEL", b"another label")
    with pytest.raises(OpeningError, match="0x647a"):
        async with running(world.config, surroundings(world, said)):
            pytest.fail("it serves")
    assert said.out == []
    assert said.engines == []


async def test_nothing_listens_without_evidence(tmp_path: Path) -> None:
    world, said = make_world(tmp_path), Said()
    world.evidence.fail = True
    with pytest.raises(EvidenceError):
        async with running(world.config, surroundings(world, said)):
            pytest.fail("it serves")
    assert said.out == []


async def test_default_evidence_is_the_configured_socket(tmp_path: Path) -> None:
    world, said = make_world(tmp_path), Said()
    around = Surroundings(
        out=said.out.append,
        notice=said.notices.append,
        open_model=surroundings(world, said).open_model,
    )
    with pytest.raises(EvidenceError, match="FileNotFoundError"):
        async with running(world.config, around):
            pytest.fail("it serves")


async def test_missing_model_is_an_error(tmp_path: Path) -> None:
    pytest.importorskip("llama_cpp")
    world, said = make_world(tmp_path), Said()
    around = Surroundings(out=said.out.append, notice=said.notices.append)
    with pytest.raises(ModelError, match="cannot be loaded"):
        async with running(world.config, around):
            pytest.fail("it serves")


async def test_slow_start_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_module, "PROGRESS_S", 0.05)
    world, said = make_world(tmp_path), Said()
    async with running(world.config, surroundings(world, said, delay_s=0.12)):
        pass
    assert said.notices[0].startswith("loading the model: ")


async def test_evidence_is_renewed_while_serving(tmp_path: Path) -> None:
    extra = "[freshness]\nrefresh_s = 1\n"
    world, said = make_world(tmp_path, extra=extra), Said()
    async with running(world.config, surroundings(world, said)):
        asked = len(world.evidence.asked)
        world.clock.forward(seconds=2)
        await until(lambda: len(world.evidence.asked) > asked)


async def test_signal_ends_it(tmp_path: Path) -> None:
    world, said = make_world(tmp_path), Said()
    usual_s = sys.getswitchinterval()
    task = asyncio.create_task(
        serve_until_signalled(world.config, surroundings(world, said))
    )
    await until(lambda: bool(said.out))
    # The engine's thread must not delay a frame for long.
    assert sys.getswitchinterval() == pytest.approx(SWITCH_S)
    os.kill(os.getpid(), signal.SIGTERM)
    async with asyncio.timeout(5):
        await task
    assert sys.getswitchinterval() == usual_s > SWITCH_S
    address = json.loads(said.out[0])["listen"]
    with pytest.raises(OSError, match="Connect call failed"):
        await exchange(address, get("/healthz"))


def test_an_engine_that_ends_is_counted_and_each_attempt_to_load_is_not() -> None:
    counters, said = Counters(), list[str]()
    log = StateLog(
        LogForm.TEXT,
        said.append,
        lambda: datetime(2026, 1, 1, tzinfo=UTC),
        monotonic=lambda: 0.0,
        later=lambda _s, _call: None,
    )
    lost = service_module._lost(log, counters)
    for reason in (Reason.ENGINE_CRASHED, Reason.ENGINE_HUNG, Reason.MODEL_UNAVAILABLE):
        lost(reason, "why")
    assert counters.snapshot()["engine_ended"] == 2
    assert said


async def test_stray_failures_are_counted_not_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world, said = make_world(tmp_path), Said()
    async with running(world.config, surroundings(world, said)):
        loop = asyncio.get_running_loop()
        # Both would print: the loop's own handler, and the logger it calls.
        assert loop.get_exception_handler() is not None
        assert logging.getLogger("asyncio").disabled
        assert logging.getLogger("aiohttp.server").disabled
        loop.call_soon(lambda: 1 / 0)
        await asyncio.sleep(0.01)
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "")


async def test_release_that_hides_no_lengths_says_so(tmp_path: Path) -> None:
    world, said = make_world(tmp_path, transport=UNPADDED), Said()
    async with running(world.config, surroundings(world, said)):
        pass
    assert any(line.startswith("UNSAFE UNPADDED") for line in said.notices)


async def test_client_of_the_bundle_can_ask(tmp_path: Path) -> None:
    world, said = make_world(tmp_path), Said()
    async with running(world.config, surroundings(world, said)) as address:
        keys = await exchange(address, get("/ohttp-keys"))
        config, _ = parse_key_configs(keys.body)
        inner = inner_request(fields=dated(now=world.clock.now))
        sealed = seal(config, inner)
        assert sealed.open((await ask(address, sealed)).body).status == 200


async def test_a_json_log_has_no_line_of_another_form(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, said = make_world(tmp_path), Said()
    monkeypatch.setattr("curtilage.enclave_server.telemetry.HOLD_S", 0.0)
    monkeypatch.setattr("curtilage.enclave_server.evidence.bundle.POLL_S", 0.01)
    around = replace(surroundings(world, said), log=LogForm.JSON)
    async with running(world.config, around):
        started = len(said.notices)
        world.evidence.fail = True
        world.clock.forward(hours=6)
        await until(lambda: len(said.notices) > started)
    last = json.loads(said.notices[-1])
    assert last["reason"] in set(Reason)
    assert last["detail"] == NO_ANSWER
    assert [json.loads(line)["part"] for line in said.notices[started:]] == ["evidence"]


def test_renewing_goes_on_when_notices_cannot_be_written() -> None:
    def full(_line: str) -> None:
        raise OutputError

    service_module._ignoring_output_errors(full)("evidence not renewed")


async def test_what_was_there_at_the_start_is_left_out_of_each_sweep(
    tmp_path: Path,
) -> None:
    world, said = make_world(tmp_path), Said()
    before = gc.get_freeze_count()
    async with running(world.config, surroundings(world, said)):
        assert gc.get_freeze_count() > before
    assert gc.get_freeze_count() == before


async def test_what_only_a_cycle_holds_goes_with_the_exchange(tmp_path: Path) -> None:
    world, said = make_world(tmp_path), Said()
    async with running(world.config, surroundings(world, said)) as address:
        ring: list[object] = []
        ring.append(Cycle(ring))
        gone = weakref.ref(cast("Cycle", ring[0]))
        del ring
        assert gone() is not None
        await exchange(address, get("/healthz"))
        await until(lambda: gone() is None)


class Cycle:
    def __init__(self, ring: list[object]) -> None:
        self.ring = ring
