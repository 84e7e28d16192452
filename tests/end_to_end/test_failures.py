"""Each failure over real sockets and processes, as the user sees it."""

import asyncio
import base64
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from end_to_end.conftest import OpenSession, make_stack, patient_profile

from curtilage.client.chat.answer import Answerer
from curtilage.client.chat.query import Message, Query, Settings
from curtilage.client.detection.inspection import Inspector
from curtilage.client.errors import LocalUnavailableError
from curtilage.client.failure_texts import FAILURE_TEXTS
from curtilage.client.parts import UnavailableLocal
from curtilage.client.remote.reasons import EnclaveFailure
from curtilage.policy.document.load import load_policy
from curtilage_dev.processes import Processes
from curtilage_dev.stack import Stack
from support.client_parts import MODEL_MISSING
from support.evil_relay import evil_relay

SHORT = Settings(max_tokens=24, temperature=0, seed=1)


def query(text: str, *, stream: bool = False) -> Query:
    return Query(
        messages=(Message(role="user", content=text),), settings=SHORT, stream=stream
    )


HARMLESS = query("What is the difference between a virus and a bacterium?")
REGULATED = query("My card is 4111 1111 1111 1111, is that a valid number?")


def edited(change: Callable[[dict[str, Any]], None]) -> Callable[[bytes], bytes]:
    """Change a bundle as a JSON object."""

    def edit(data: bytes) -> bytes:
        bundle = json.loads(data)
        change(bundle)
        return json.dumps(bundle, separators=(",", ":")).encode()

    return edit


def flip(text: str, index: int) -> str:
    data = bytearray(base64.b64decode(text))
    data[index] ^= 1
    return base64.b64encode(bytes(data)).decode()


def tamper_keys(bundle: dict[str, Any]) -> None:
    bundle["key_configs"] = flip(bundle["key_configs"], 12)


def tamper_report(bundle: dict[str, Any]) -> None:
    bundle["cpu"]["report"] = flip(bundle["cpu"]["report"], 0x90)


def tamper_window(bundle: dict[str, Any]) -> None:
    bundle["not_after"] += 3600


def swap_manifest(bundle: dict[str, Any]) -> None:
    manifest = base64.b64decode(bundle["release"]["manifest"])
    changed = manifest.replace(b'"0.1.0"', b'"9.1.0"')
    bundle["release"]["manifest"] = base64.b64encode(changed).decode()


def expire(bundle: dict[str, Any]) -> None:
    bundle["not_before"] -= 10 * 86400
    bundle["not_after"] -= 10 * 86400


@pytest.mark.parametrize(
    "change",
    [tamper_keys, tamper_report, tamper_window, swap_manifest, expire],
    ids=lambda change: change.__name__,
)
async def test_tampered_evidence_seals_nothing(
    stack: Stack,
    open_session: OpenSession,
    change: Callable[[dict[str, Any]], None],
) -> None:
    async with evil_relay(stack.relay_url) as relay:
        relay.bundle = edited(change)
        async with open_session(relay=relay.url) as session:
            answer = await session.ask(HARMLESS)
    assert answer.route is Answerer.LOCAL
    assert answer.provenance.fallback is EnclaveFailure.EVIDENCE_REFUSED
    assert relay.posts == 0, "not one byte was sealed"


@pytest.mark.parametrize(
    ("accepted", "offered"),
    [("period_ms: 5", "period_ms: 6"), ("first_bucket: 8", "first_bucket: 16")],
    ids=["period", "bucket"],
)
async def test_frames_that_the_policy_does_not_accept_seal_nothing(
    stack: Stack, open_session: OpenSession, accepted: str, offered: str
) -> None:
    text = stack.policy.read_text("utf-8")
    assert accepted in text
    async with evil_relay(stack.relay_url) as relay:
        policy = text.replace(accepted, offered)
        async with open_session(relay=relay.url, policy=policy) as session:
            answer = await session.ask(HARMLESS)
    assert answer.route is Answerer.LOCAL
    assert answer.provenance.fallback is EnclaveFailure.EVIDENCE_REFUSED
    assert relay.posts == 0, "not one byte was sealed"


async def test_a_changed_request_is_refused_and_answered_at_home(
    stack: Stack, open_session: OpenSession
) -> None:
    async with evil_relay(stack.relay_url) as relay:
        relay.request = lambda body: body[:-1] + bytes([body[-1] ^ 1])
        async with open_session(relay=relay.url) as session:
            answer = await session.ask(HARMLESS)
    assert answer.route is Answerer.LOCAL
    assert answer.provenance.fallback is EnclaveFailure.REFUSED


async def test_a_cut_answer_is_answered_at_home_when_nothing_was_shown(
    stack: Stack, open_session: OpenSession
) -> None:
    async with evil_relay(stack.relay_url) as relay:
        relay.cut = 100
        async with open_session(relay=relay.url) as session:
            answer = await session.ask(HARMLESS)
    assert answer.route is Answerer.LOCAL
    assert answer.provenance.fallback is not None


@pytest.mark.parametrize("status", [413, 429, 500, 502, 503])
async def test_a_relay_that_refuses_is_answered_at_home(
    stack: Stack, open_session: OpenSession, status: int
) -> None:
    async with evil_relay(stack.relay_url) as relay:
        relay.status = status
        async with open_session(relay=relay.url) as session:
            answer = await session.ask(HARMLESS)
    assert answer.route is Answerer.LOCAL
    assert answer.provenance.fallback is not None
    assert relay.posts == 1, "nothing is sent twice"


async def test_relay_down_is_answered_at_home(open_session: OpenSession) -> None:
    async with open_session(relay="http://127.0.0.1:9/demo") as session:
        answer = await session.ask(HARMLESS)
    assert answer.route is Answerer.LOCAL
    assert answer.provenance.fallback is EnclaveFailure.RELAY_UNREACHABLE


async def test_relay_down_and_no_model_is_an_honest_error(
    open_session: OpenSession,
) -> None:
    gone = UnavailableLocal(MODEL_MISSING)
    async with open_session(relay="http://127.0.0.1:9/demo", local=gone) as session:
        with pytest.raises(LocalUnavailableError) as error:
            await session.ask(HARMLESS)
    assert FAILURE_TEXTS["relay_unreachable"] in str(error.value)
    assert MODEL_MISSING in str(error.value)


async def test_model_missing_and_regulated_is_an_honest_error(
    stack: Stack, open_session: OpenSession
) -> None:
    async with evil_relay(stack.relay_url) as relay:
        gone = UnavailableLocal(MODEL_MISSING)
        async with open_session(relay=relay.url, local=gone) as session:
            with pytest.raises(LocalUnavailableError, match="must stay here"):
                await session.ask(REGULATED)
    assert relay.posts == 0


async def test_enclave_down_then_up_again(
    tmp_path: Path,
    model: tuple[str, str],
    open_session: OpenSession,
) -> None:
    with Processes(tmp_path) as processes:
        own = make_stack(tmp_path, processes, model)
        own.start_evidence()
        own.publish()
        own.start_enclave()
        own.start_relay()
        text = own.policy.read_text("utf-8")
        async with open_session(relay=own.relay_url, policy=text) as session:
            first = await session.ask(HARMLESS)
            assert first.route is Answerer.ENCLAVE
            # Before it is gone: a later request may get the new one already.
            before = (await session.verified_key()).key_configs_digest
            own.running["enclave"].kill()
            down = await session.ask(HARMLESS)
            assert down.route is Answerer.LOCAL
            assert down.provenance.fallback is EnclaveFailure.ENCLAVE_UNREACHABLE
            own.start_enclave()  # a new key: the old one is gone for good
            await _until_cache_is_stale()
            again = await session.ask(HARMLESS)
            assert again.route is Answerer.ENCLAVE
            assert (await session.verified_key()).key_configs_digest != before


async def _until_cache_is_stale() -> None:
    await asyncio.sleep(1.2)  # the relay of these tests keeps copies for a second


async def test_another_measurement_is_refused(
    tmp_path: Path, model: tuple[str, str], open_session: OpenSession, stack: Stack
) -> None:
    """The chip reports another build than the release that the policy accepts."""
    with Processes(tmp_path) as processes:
        own = make_stack(tmp_path, processes, model)
        own.start_evidence()
        own.publish()
        own.start_enclave()
        own.start_relay()
        own.publish(measurement="ab" * 48)  # what the policy now accepts
        text = own.policy.read_text("utf-8")
        async with open_session(relay=own.relay_url, policy=text) as session:
            answer = await session.ask(HARMLESS)
        assert answer.route is Answerer.LOCAL
        assert answer.provenance.fallback is EnclaveFailure.EVIDENCE_REFUSED
    async with open_session(relay=stack.relay_url, policy=text) as session:
        foreign = await session.ask(HARMLESS)
    assert foreign.provenance.fallback is EnclaveFailure.EVIDENCE_REFUSED


async def test_oversize_stays_home(stack: Stack, open_session: OpenSession) -> None:
    long = query("The quick brown fox jumps over the lazy dog. " * 6000)
    async with (
        evil_relay(stack.relay_url) as relay,
        open_session(relay=relay.url) as session,
    ):
        decision = await session.decide(long)
        answer = await session.ask(long)
    # This policy allows a part of it to be read locally, and the answer says so.
    assert answer.route is Answerer.LOCAL
    assert answer.text.startswith("[read ")
    assert "uncertain.oversize" in decision.uncertain
    assert relay.posts == 0


async def test_a_crashed_detector_keeps_the_query_home(
    stack: Stack, open_session: OpenSession
) -> None:
    own = Inspector.start(load_policy(patient_profile()))
    try:
        assert own.worker_pid is not None
        os.kill(own.worker_pid, signal.SIGKILL)
        async with evil_relay(stack.relay_url) as relay:
            async with open_session(relay=relay.url, detectors=own) as session:
                answer = await session.ask(HARMLESS)
            assert relay.posts == 0
            own.wait_ready(60)
            async with open_session(relay=relay.url, detectors=own) as session:
                assert (await session.ask(HARMLESS)).route is Answerer.ENCLAVE
    finally:
        own.close()
    assert answer.route is Answerer.LOCAL
    assert answer.provenance.uncertain == ("uncertain.error",)


async def test_a_broken_policy_starts_nothing(stack: Stack, tmp_path: Path) -> None:
    broken = tmp_path / "policy.yaml"
    text = stack.policy.read_text("utf-8").replace("version: 1", "verson: 1")
    broken.write_text(text, "utf-8")
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "curtilage.cli",
        "ask",
        "--policy",
        str(broken),
        "--relay",
        stack.relay_url,
        "hello",
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode == 2
    assert out == b""
    assert b"verson" in err
    assert b"line" in err
