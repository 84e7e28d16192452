import hashlib
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from curtilage.client.detection.inspection import Inspector
from curtilage.client.local.model import LocalModel
from curtilage.client.local.registry.store import Registry
from curtilage.client.parts import AnswersLocally, ClientParts
from curtilage.client.remote.access import read_access
from curtilage.client.remote.addresses import RelayAddress
from curtilage.client.remote.key_store import KeyStore
from curtilage.client.remote.transport import RelayTransport
from curtilage.client.session import Session
from curtilage.policy.document.load import load_policy, profile_text
from curtilage.policy.expectations import expectations_from
from curtilage.wire.shaping import TransportParameters
from curtilage_dev.emulator import ROOT_FILE
from curtilage_dev.processes import Processes
from curtilage_dev.stack import Stack
from support.byte_model import make_byte_model
from support.client_parts import MemoryTrail

OpenSession = Callable[..., AbstractAsyncContextManager[Session]]
QUICK = TransportParameters(frame_bytes=512, period_ms=5, first_bucket=8, buckets=16)
"""Padded like the release, but no test waits 3.2 s; and no answer is too long."""


def patient_profile() -> str:
    """The default profile, with detectors that have time on a busy machine."""
    text = profile_text("default")
    patient = text.replace("\n  deadline_ms: 250\n", "\n  deadline_ms: 30000\n")
    assert patient != text
    return patient


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A small random model: path and digest."""
    path = make_byte_model(tmp_path_factory.mktemp("model") / "byte.gguf")
    return str(path), hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture(scope="session")
def stack(
    tmp_path_factory: pytest.TempPathFactory, model: tuple[str, str]
) -> Generator[Stack]:
    """Enclave, relay and emulated processor as processes, without a client."""
    folder = tmp_path_factory.mktemp("stack")
    with Processes(folder) as processes:
        running = make_stack(folder, processes, model)
        running.start_evidence()
        running.publish()
        running.start_enclave()
        running.start_relay()
        yield running


def make_stack(folder: Path, processes: Processes, model: tuple[str, str]) -> Stack:
    path, digest = model
    return Stack(
        folder=folder,
        processes=processes,
        model=path,
        model_sha256=digest,
        # Long enough for many tests, and the small model is quick.
        relay_extra="[limits]\ncache_s = 1\n",
        transport=QUICK,
        profile=patient_profile(),
    )


def with_evidence_of(stack: Stack, own: Stack) -> Stack:
    """Let a separate stack use the emulated processor of a running one."""
    own.evidence_socket.symlink_to(stack.evidence_socket)
    (own.folder / ROOT_FILE).write_bytes((stack.folder / ROOT_FILE).read_bytes())
    return own


@pytest.fixture(scope="session")
def inspector() -> Generator[Inspector]:
    """The detectors in their process; started once."""
    running = Inspector.start(load_policy(patient_profile()))
    yield running
    running.close()


@pytest.fixture
def open_session(
    stack: Stack,
    inspector: Inspector,
    model: tuple[str, str],
    tmp_path: Path,
) -> OpenSession:
    """Open sessions that share the detectors; everything else is their own."""

    @asynccontextmanager
    async def opened(
        *,
        relay: str | None = None,
        policy: str | None = None,
        local: AnswersLocally | None = None,
        detectors: Inspector | None = None,
        ca: Path | None = None,
    ) -> AsyncGenerator[Session]:
        path, digest = model
        if local is None:
            own = LocalModel.open(
                path, sha256=digest, registry=Registry(tmp_path / "registry")
            )
            await own.start()
            local = own
        text = stack.policy.read_text("utf-8") if policy is None else policy
        loaded = load_policy(text)
        address = RelayAddress.parse(relay or stack.relay_url, plain_loopback=True)
        access = read_access(ca=ca)
        transport = RelayTransport(address, access=access)
        session = Session(
            ClientParts(
                policy=loaded,
                inspector=detectors or inspector,
                local=local,
                transport=transport,
                keys=KeyStore(expectations=expectations_from(loaded)),
                audit=MemoryTrail(),
            )
        )
        try:
            yield session
        finally:
            await session.settle()
            await local.close()
            await transport.close()

    return opened
