import hashlib
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from curtilage.client.enclaves import EnclaveBook
from curtilage.client.inspection import Inspector
from curtilage.client.local import LocalModel
from curtilage.client.models import Registry
from curtilage.client.session import AnswersLocally, ClientParts, Session
from curtilage.client.transport import RelayAddress, RelayTransport
from curtilage.policy.load import load_policy, load_profile
from curtilage.policy.trust import expectations_from
from curtilage_dev.processes import Processes
from curtilage_dev.stack import Stack
from support.byte_model import make_byte_model
from support.client_parts import MemoryTrail

OpenSession = Callable[..., AbstractAsyncContextManager[Session]]


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
    )


@pytest.fixture(scope="session")
def inspector() -> Generator[Inspector]:
    """The detectors in their process; started once."""
    running = Inspector.start(load_profile("default"))
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
        transport = RelayTransport(address)
        session = Session(
            ClientParts(
                policy=loaded,
                inspector=detectors or inspector,
                local=local,
                transport=transport,
                book=EnclaveBook(expectations=expectations_from(loaded)),
                audit=MemoryTrail(),
            )
        )
        try:
            yield session
        finally:
            await local.close()
            await transport.close()

    return opened
