"""Real failures: processes, sockets, files, memory.

Of the design's matrix, each row is a fault and each column a kind of query: ``A`` may
leave, ``B`` may leave without its names, ``C`` must stay.
"""

import asyncio
import hashlib
import time
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import Final

import pytest
from end_to_end.conftest import QUICK, patient_profile

from curtilage.client.assemble import router_for
from curtilage.client.chat.answer import Answer, Answerer
from curtilage.client.chat.options import Mode, Require, RoutingOptions
from curtilage.client.chat.query import Message, Query, Settings
from curtilage.client.detection.inspection import Inspector
from curtilage.client.errors import ClientError, FailureReason
from curtilage.client.local.model import LocalModel
from curtilage.client.local.registry.store import Registry
from curtilage.client.parts import AnswersLocally, ClientParts, Inspects
from curtilage.client.queue.deferred_store import KEY_BYTES, DeferredStore
from curtilage.client.remote.access import read_access
from curtilage.client.remote.addresses import RelayAddress
from curtilage.client.remote.key_store import KeyStore
from curtilage.client.remote.transport import RelayTransport
from curtilage.client.session import Session
from curtilage.policy.decision.decide import Inspection
from curtilage.policy.document.load import load_policy
from curtilage.policy.expectations import expectations_from
from curtilage_dev.processes import Processes
from curtilage_dev.scripted_enclave import BEGAN, ENDED, STOPPED, Play
from curtilage_dev.stack import Stack
from support.byte_model import make_byte_model
from support.client_parts import MemoryTrail

LONG_S: Final = 60
"""No test needs so long; a machine may."""
PIECES: Final = 6
SIGNAL_S: Final = 0.5
TICK_S: Final = 0.05


class Kind(Enum):
    """A column of the matrix; its value is a question of that kind."""

    A = "Is this mail spam or not? Classify it: 'You have won a prize.'"
    B = "Is this mail spam or not? Classify it: 'Dear Mr. Smith, you have won.'"
    C = "Is this card real or not? Classify it: 4111 1111 1111 1111"

    @property
    def at_home(self) -> Query:
        """Return it so that the local model is tried first."""
        return query(self.value)

    @property
    def abroad(self) -> Query:
        """Return it so that the enclave is tried first, if allowed."""
        return query(self.value, mode=Mode.ENCLAVE_IF_ALLOWED)


def query(text: str, *, mode: Mode = Mode.AUTO, max_tokens: int = 24) -> Query:
    return Query(
        messages=(Message(role="user", content=text),),
        settings=Settings(max_tokens=max_tokens, temperature=0, seed=1),
        stream=True,
        options=RoutingOptions(mode=mode),
    )


def required(kind: Kind) -> Query:
    """Return a question that only the enclave may answer."""
    asked = query(kind.value)
    return replace(asked, options=RoutingOptions(require=Require.ENCLAVE))


def patient(kind: Kind) -> Query:
    """Return a question that waits if no server can answer it now."""
    return replace(query(kind.value), options=RoutingOptions(defer=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What the caller received.

    Attributes:
        answer: the whole one, or None.
        error: why there is none, or None.
    """

    answer: Answer | None = None
    error: ClientError | None = None

    @property
    def route(self) -> Answerer:
        assert self.answer is not None, self.error
        return self.answer.route

    @property
    def fallback(self) -> FailureReason | None:
        assert self.answer is not None, self.error
        return self.answer.provenance.fallback

    @property
    def refusal(self) -> str:
        """The text that replaced an answer."""
        assert self.error is not None, self.answer
        return str(self.error)


async def ask(session: Session, asked: Query) -> Seen:
    """Ask, and record the silences."""
    stream = session.stream(asked)
    stream.first_signal_s = SIGNAL_S
    ticks = [0]
    heard = asyncio.create_task(_ticking(ticks))
    quiet, error = 0, None
    try:
        async with aclosing(stream.events()) as events:
            async for _ in events:
                quiet, ticks[0] = max(quiet, ticks[0]), 0
    except ClientError as caught:
        error = caught
    finally:
        heard.cancel()
    quiet = max(quiet, ticks[0])
    assert quiet * TICK_S <= 1, "a sign of life within a second"
    return Seen(answer=None if error else stream.answer, error=error)


async def _ticking(ticks: list[int]) -> None:
    # Counted, not measured: if the whole machine stalls, so does this.
    while True:
        await asyncio.sleep(TICK_S)
        ticks[0] += 1


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A small random model: path and digest."""
    path = make_byte_model(tmp_path_factory.mktemp("model") / "byte.gguf")
    return path, hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture(scope="session")
def inspector() -> Generator[Inspector]:
    """The detectors in their process; started once."""
    running = Inspector.start(load_policy(patient_profile()))
    yield running
    running.close()


@pytest.fixture(scope="session")
def started(tmp_path_factory: pytest.TempPathFactory) -> Generator[Stack]:
    """Relay, enclave and emulated processor as processes; started once."""
    folder = tmp_path_factory.mktemp("stack")
    with Processes(folder) as processes:
        stack = Stack(
            folder=folder,
            processes=processes,
            relay_extra="[limits]\ncache_s = 1\n",
            transport=QUICK,
            profile=patient_profile(),
            routed=True,
            play=Play(
                pieces=PIECES, gate=folder / "gate", runs=folder / "runs", queue=1
            ),
        )
        (folder / "gate").write_bytes(b"." * 99)
        stack.start_evidence()
        stack.publish()
        stack.start_enclave()
        stack.start_relay()
        yield stack


@pytest.fixture
def stack(started: Stack) -> Stack:
    """The same, restored if an earlier test killed a part of it."""
    (started.folder / "gate").write_bytes(b"." * 99)
    if not started.running["enclave"].running:
        started.start_enclave()
        time.sleep(1.2)  # this relay keeps copies of the evidence for a second
    (started.folder / "runs").write_bytes(b"")
    return started


async def until_running(stack: Stack, count: int) -> None:
    """Wait until the enclave runs, or queues, this many answers."""
    runs = stack.folder / "runs"
    async with asyncio.timeout(LONG_S):
        while True:
            text = await asyncio.to_thread(runs.read_text, "utf-8")
            if text.count(BEGAN) - text.count(ENDED) - text.count(STOPPED) == count:
                return
            await asyncio.sleep(0.01)


OpenSession = Callable[..., AbstractAsyncContextManager[Session]]
Edit = Callable[[str], str]


@pytest.fixture
def open_session(
    stack: Stack, inspector: Inspector, model: tuple[Path, str], tmp_path: Path
) -> OpenSession:
    """Open sessions that share the detectors; everything else is their own."""

    @asynccontextmanager
    async def opened(
        *,
        relay: str | None = None,
        local: AnswersLocally | None = None,
        edit: Edit = str,
        detectors: Inspects | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        most_waiting: int = 0,
    ) -> AsyncGenerator[Session]:
        if local is None:
            path, digest = model
            own = LocalModel.open(
                str(path), sha256=digest, registry=Registry(tmp_path / "registry")
            )
            await own.start()
            local = own
        text = edit(stack.policy.read_text("utf-8"))
        queue = None
        if most_waiting:
            text = text.replace(
                "\nrouting:\n", "\nrouting:\n  queue: {store: memory}\n"
            )
            queue = DeferredStore(
                None, bytes(KEY_BYTES), max_items=most_waiting, max_bytes=100_000
            )
        policy = load_policy(text)
        transport = RelayTransport(
            RelayAddress.parse(relay or stack.relay_url, plain_loopback=True),
            access=read_access(),
            # The product uses 1 s and 15 s here.
            connect_s=0.3,
            fetch_s=1.0,
            silence_s=1.0,
        )
        async with Session(
            ClientParts(
                policy=policy,
                inspector=_Kept(detectors or inspector),
                local=local,
                transport=transport,
                keys=KeyStore(expectations=expectations_from(policy)),
                audit=MemoryTrail(),
                router=router_for(policy, local),
                clock=clock,
                queue=queue,
            )
        ) as session:
            yield session

    return opened


@dataclass(frozen=True, slots=True)
class _Kept:
    """Detectors that outlive the closed session."""

    inner: Inspects

    async def ainspect(self, query: Query) -> Inspection:
        return await self.inner.ainspect(query)

    def close(self) -> None:
        """Close nothing."""
