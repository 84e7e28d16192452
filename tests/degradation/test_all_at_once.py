"""Rows 9 to 11: no network, no classifier, no server; and overload."""

import asyncio
import os
import shutil
import signal
from asyncio import FIRST_COMPLETED
from collections.abc import Generator
from functools import partial
from pathlib import Path

import pytest
from degradation.conftest import Kind, OpenSession, ask, patient
from degradation.test_home import missing, starved
from degradation.test_way_out import closed_port
from end_to_end.conftest import patient_profile

from curtilage.client import assemble
from curtilage.client.assemble import local_model
from curtilage.client.chat.answer import Answerer
from curtilage.client.detection.inspection import Inspector
from curtilage.client.errors import NOTHING_SENT, QueuedError
from curtilage.client.failure_texts import FAILURE_TEXTS
from curtilage.client.local.model import LocalModel
from curtilage.client.local.reasons import LocalFailure
from curtilage.client.local.registry.machine import on_battery
from curtilage.client.queue.deferred_store import QueueFullError
from curtilage.client.system.fair_queue import FairQueue
from curtilage.policy.document.load import load_policy
from curtilage_dev.scripted_engine import Script, ScriptedEngine
from curtilage_dev.stack import Stack
from support.evil_relay import evil_relay

UNSHARE = ("unshare", "--map-root-user", "--net")


# 9: no network at all.


async def test_9_offline_everything_is_answered_here_and_says_why(
    model: tuple[Path, str],
) -> None:
    """In a network namespace without even a loopback."""
    if shutil.which("unshare") is None:
        pytest.skip("SKIPPED LOUDLY: no network namespace can be made")
    seen = await starved(model[0], "--relay", "http://127.0.0.1:9/demo", within=UNSHARE)
    expected = {"route": "local", "fallback": "relay_unreachable"}
    assert (seen["A"], seen["B"]) == (expected, expected)
    assert seen["C"] == {"route": "local", "fallback": None}


# 10: the classifier is down, or late.


@pytest.fixture(scope="module")
def hasty() -> Generator[Inspector]:
    """Separate detectors, with one second, and three in which they hang."""
    text = patient_profile()
    for limit, ms in (("deadline_ms", 1000), ("deadline_wall_ms", 3000)):
        text = text.replace(f"  {limit}: 30000\n", f"  {limit}: {ms}\n")
    own = Inspector.start(load_policy(text))
    yield own
    own.close()


@pytest.mark.parametrize("fault", [signal.SIGKILL, signal.SIGSTOP])
async def test_10_a_query_not_inspected_in_time_is_kept_local(
    open_session: OpenSession, stack: Stack, hasty: Inspector, fault: signal.Signals
) -> None:
    async with (
        evil_relay(stack.relay_url) as relay,
        open_session(relay=relay.url, detectors=hasty) as session,
    ):
        for kind in Kind:
            # Each time: its replacement may be ready by the next question.
            await asyncio.to_thread(hasty.wait_ready, 120)
            assert hasty.worker_pid is not None
            os.kill(hasty.worker_pid, fault)
            seen = await ask(session, kind.abroad)
            assert seen.answer is not None
            assert (seen.route, seen.fallback) == (Answerer.LOCAL, None)
            assert seen.answer.provenance.uncertain
    assert relay.posts == 0


# 11: no server answers.


async def test_11_without_any_answer_both_reasons_are_reported(
    open_session: OpenSession, stack: Stack, tmp_path: Path
) -> None:
    local = await local_model(missing(tmp_path))
    stack.running["enclave"].kill()
    async with open_session(local=local) as session:
        for kind in (Kind.A, Kind.B):
            seen = await ask(session, kind.abroad)
            assert FAILURE_TEXTS["enclave_unreachable"] in seen.refusal
            assert "cannot be used" in seen.refusal
            assert "must stay" not in seen.refusal
        held = await ask(session, Kind.C.abroad)
    assert "must stay here" in held.refusal
    assert "enclave" not in held.refusal


async def test_11_a_patient_caller_waits_and_learns_that_nothing_was_sent(
    open_session: OpenSession, tmp_path: Path
) -> None:
    """What waits for a model to be installed does not wait: that may take for ever."""
    local = await local_model(missing(tmp_path))
    # Not behind the relay: its copy of the evidence would be accepted for a second.
    with closed_port() as relay:
        pass
    async with open_session(local=local, relay=relay, most_waiting=2) as session:
        for kind in (Kind.A, Kind.B):
            seen = await ask(session, patient(kind))
            assert isinstance(seen.error, QueuedError)
            assert "queued: " in seen.refusal
            assert NOTHING_SENT in seen.refusal
        held = await ask(session, patient(Kind.C))
        assert not isinstance(held.error, QueuedError)
        assert "must stay here" in held.refusal
        full = await ask(session, patient(Kind.A))
    assert isinstance(full.error, QueueFullError)


# Overload without failure.


async def test_a_full_queue_at_home_sends_on_what_may_leave(
    open_session: OpenSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = LocalModel(lambda: ScriptedEngine(Script(delay_s=3600)), model_id="busy")
    monkeypatch.setattr(local, "_turns", FairQueue(most=1))
    await local.start()
    async with open_session(local=local) as session:
        asking = [asyncio.ensure_future(ask(session, Kind.C.at_home)) for _ in range(3)]
        try:
            refused, _ = await asyncio.wait(asking, return_when=FIRST_COMPLETED)
            (seen,) = (each.result() for each in refused)
            assert FAILURE_TEXTS["local_busy"] in seen.refusal
            for kind in (Kind.A, Kind.B):
                seen = await ask(session, kind.at_home)
                assert (seen.route, seen.fallback) == (
                    Answerer.ENCLAVE,
                    LocalFailure.BUSY,
                )
        finally:
            for each in asking:
                each.cancel()
            await asyncio.wait(asking)


@pytest.mark.parametrize(
    ("plugged", "answerer"), [("1", Answerer.LOCAL), ("0", Answerer.ENCLAVE)]
)
async def test_a_battery_is_spared_where_the_policy_gives_weight_to_it(
    open_session: OpenSession,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    plugged: str,
    answerer: Answerer,
) -> None:
    supply = tmp_path / "sys/class/power_supply"
    battery, mains = {"type": "Battery"}, {"type": "Mains", "online": plugged}
    for name, fields in {"BAT0": battery, "AC": mains}.items():
        (supply / name).mkdir(parents=True)
        for field, value in fields.items():
            (supply / name / field).write_text(f"{value}\n")
    monkeypatch.setattr(assemble, "on_battery", partial(on_battery, tmp_path))

    def weighed(policy: str) -> str:
        return policy.replace(
            "\nrouting:\n", "\nrouting:\n  weights_permille: {risk: 1000}\n"
        )

    async with open_session(edit=weighed) as session:
        assert (await ask(session, Kind.A.at_home)).route is answerer
        assert (await ask(session, Kind.C.at_home)).route is Answerer.LOCAL
