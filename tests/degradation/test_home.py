"""Rows 1 to 4: no local model, no memory for it, a slow one, a text too long for it."""

import asyncio
import json
import os
import resource
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import pytest
from degradation.conftest import LONG_S, Kind, OpenSession, ask, query

from curtilage.client.assemble import local_model
from curtilage.client.chat.answer import Answerer
from curtilage.client.chat.options import Mode
from curtilage.client.config import ClientConfig
from curtilage.client.errors import NOTHING_SENT
from curtilage.client.failure_texts import FAILURE_TEXTS
from curtilage.client.local.model import LocalModel
from curtilage.client.local.reasons import LocalFailure
from curtilage.policy.document.load import load_profile
from curtilage_dev.scripted_engine import Script, ScriptedEngine
from curtilage_dev.stack import Stack
from support.byte_model import make_byte_model, sha256_of
from support.evil_relay import evil_relay

STACK_BYTES = 512 << 10


def configured(path: Path, sha256: str) -> ClientConfig:
    return ClientConfig(
        policy=load_profile("default"),
        policy_source="",
        model=str(path),
        model_sha256=sha256,
    )


# 1: there is none.


def missing(folder: Path) -> ClientConfig:
    return configured(folder / "none.gguf", "00" * 32)


def corrupt(folder: Path) -> ClientConfig:
    path = make_byte_model(folder / "corrupt.gguf")
    digest = sha256_of(path)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    return configured(path, digest)


def unsupported(folder: Path) -> ClientConfig:
    """The right file, of a kind that the engine does not support."""
    path = make_byte_model(folder / "unsupported.gguf")
    path.write_bytes(path.read_bytes().replace(b"llama", b"lemur"))
    return configured(path, sha256_of(path))


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (missing, "cannot be used"),
        (corrupt, "another file"),
        (unsupported, "cannot be"),
    ],
    ids=["missing", "corrupt", "unsupported"],
)
async def test_1_without_a_model_the_enclave_answers_what_may_leave(
    open_session: OpenSession,
    stack: Stack,
    tmp_path: Path,
    fault: Callable[[Path], ClientConfig],
    said: str,
) -> None:
    local = await local_model(await asyncio.to_thread(fault, tmp_path))
    async with evil_relay(stack.relay_url) as relay:
        async with open_session(relay=relay.url, local=local) as session:
            held = await ask(session, Kind.C.at_home)
            assert relay.posts == 0
            for kind in (Kind.A, Kind.B):
                seen = await ask(session, kind.at_home)
                assert (seen.route, seen.fallback) == (
                    Answerer.ENCLAVE,
                    LocalFailure.UNAVAILABLE,
                )
        assert relay.posts == 2
    assert "must stay here" in held.refusal
    assert said in held.refusal


async def test_1_without_a_model_and_consent_it_is_refused(
    open_session: OpenSession, stack: Stack, tmp_path: Path
) -> None:
    def wanting(policy: str) -> str:
        consent = "classes: {confidential: {consent: required}}"
        return policy.replace("\nrouting:\n", f"\nrouting:\n  {consent}\n")

    local = await local_model(missing(tmp_path))
    async with (
        evil_relay(stack.relay_url) as relay,
        open_session(relay=relay.url, local=local, edit=wanting) as session,
    ):
        seen = await ask(session, Kind.B.at_home)
    assert "consent" in seen.refusal
    assert relay.posts == 0


# 2: there is too little memory for it.


async def starved(
    model: Path, *arguments: str, within: Sequence[str] = ()
) -> Mapping[str, object]:
    """Ask in a separate process, with a resource removed."""
    process = await asyncio.create_subprocess_exec(
        *(*within, sys.executable, "-m", "degradation.starving"),
        *("--model", str(model), "--sha256", sha256_of(model), *arguments),
        stdout=asyncio.subprocess.PIPE,
        # Addresses that are only reserved, for threads, would be most of the limit.
        env={
            **os.environ,
            "MALLOC_ARENA_MAX": "1",
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        },
        preexec_fn=partial(
            resource.setrlimit, resource.RLIMIT_STACK, (STACK_BYTES, STACK_BYTES)
        ),
    )
    out, _ = await process.communicate()
    assert process.returncode == 0
    outcome: Mapping[str, object] = json.loads(out)
    return outcome


@pytest.fixture(scope="module")
def greedy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of 54 MiB, of which 1,024 tokens take 128 more."""
    path = tmp_path_factory.mktemp("greedy") / "greedy.gguf"
    return make_byte_model(path, layers=64, head_width=256)


async def test_2_where_memory_is_short_the_context_is_smaller(greedy: Path) -> None:
    seen = await starved(greedy, "--spare-mib", "400")
    assert seen["context_tokens"] == 1024
    for kind in ("A", "B", "C"):
        assert seen[kind] == {"route": "local", "fallback": None}


async def test_2_without_memory_the_enclave_answers_what_may_leave(
    greedy: Path,
) -> None:
    seen = await starved(greedy, "--spare-mib", "250")
    for kind in ("A", "B"):
        assert seen[kind] == {"route": "enclave", "fallback": "local_out_of_memory"}
    held = str(seen["C"])
    assert "must stay here" in held
    assert "too little memory" in held
    assert "choose a smaller model" in held
    # Memory may become available again; a patient caller waits for it, here.
    later = str(seen["C, with time"])
    assert f"queued: {FAILURE_TEXTS['local_out_of_memory']}" in later
    assert NOTHING_SENT in later


# 3: it is too slow.


def hurried(policy: str) -> str:
    return policy.replace("\nrouting:\n", "\nrouting:\n  local: {stall_s: 1}\n")


@pytest.mark.parametrize("kind", [Kind.A, Kind.B])
async def test_3_a_model_that_does_not_begin_is_not_waited_for(
    open_session: OpenSession, kind: Kind
) -> None:
    local = LocalModel(
        lambda: ScriptedEngine(Script(delay_s=LONG_S)),
        model_id="slow",
    )
    await local.start()
    async with open_session(local=local, edit=hurried) as session:
        seen = await ask(session, kind.at_home)
    assert seen.route is Answerer.ENCLAVE


async def test_3_what_must_stay_is_waited_for_with_signs_of_life(
    open_session: OpenSession,
) -> None:
    local = LocalModel(
        lambda: ScriptedEngine(Script(pieces=("At ", "last."), delay_s=1.5)),
        model_id="slow",
    )
    await local.start()
    async with open_session(local=local, edit=hurried) as session:
        seen = await ask(session, Kind.C.at_home)
    assert seen.answer is not None
    assert (seen.route, seen.answer.text) == (Answerer.LOCAL, "At last.")


# 4: its context is too small for the text.

LETTER = "The river runs from the hills to the sea, and boats go up and down. " * 60


@pytest.mark.parametrize("kind", [Kind.A, Kind.B])
async def test_4_a_text_that_is_too_long_here_is_answered_by_the_enclave(
    open_session: OpenSession, kind: Kind
) -> None:
    async with open_session() as session:
        seen = await ask(session, query(f"{kind.value}\n\n{LETTER}"))
    assert seen.route is Answerer.ENCLAVE


async def test_4_of_a_long_text_that_must_stay_a_part_is_read(
    open_session: OpenSession, stack: Stack
) -> None:
    asked = query(f"{Kind.C.value}\n\n{LETTER}", mode=Mode.ENCLAVE_IF_ALLOWED)
    async with (
        evil_relay(stack.relay_url) as relay,
        open_session(relay=relay.url) as session,
    ):
        seen = await ask(session, asked)
    assert seen.answer is not None
    assert seen.route is Answerer.LOCAL
    assert 2000 < seen.answer.provenance.left_out < len(LETTER)
    assert relay.posts == 0


async def test_4_where_the_policy_wants_it_a_long_text_is_refused(
    open_session: OpenSession,
) -> None:
    def whole(policy: str) -> str:
        said = "local: {long_text: refuse}"
        return policy.replace("\nrouting:\n", f"\nrouting:\n  {said}\n")

    async with open_session(edit=whole) as session:
        seen = await ask(session, query(f"{Kind.C.value}\n\n{LETTER}"))
    assert " 2048" in seen.refusal
