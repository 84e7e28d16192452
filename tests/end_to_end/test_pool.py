"""Three enclaves, killed and started again under load: nothing lost or duplicated."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from end_to_end.conftest import QUICK, with_evidence_of

from curtilage.client.chat.answer import Answer, Answerer
from curtilage.client.chat.query import Message, Query
from curtilage.client.errors import IncompleteAnswerError
from curtilage.client.parts import ClientParts
from curtilage.client.remote.addresses import RelayAddress
from curtilage.client.remote.key_store import KeyStore
from curtilage.client.remote.transport import RelayTransport
from curtilage.client.session import Session
from curtilage.policy.document.load import load_policy
from curtilage.policy.expectations import expectations_from
from curtilage_dev.processes import Processes
from curtilage_dev.scripted_enclave import WORD, Play
from curtilage_dev.stack import NODES, Stack
from support.client_parts import MemoryTrail, ScriptedInspector, ScriptedLocal

PIECES = 8
ASKING = 4
LONG_S = 300.0
QUERY = Query(messages=(Message(role="user", content="What is a curtilage?"),))


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory, stack: Stack) -> Generator[Stack]:
    folder = tmp_path_factory.mktemp("pool")
    with Processes(folder) as processes:
        own = Stack(
            folder=folder,
            processes=processes,
            relay_extra="[clients]\nexchanges = 0\nconnections = 0\n"
            "[limits]\ncache_s = 1\nnode_fetch_timeout_s = 20\n",
            transport=QUICK,
            play=Play(pieces=PIECES, delay_ms=2),
            nodes=3,
        )
        with_evidence_of(stack, own)
        own.publish()
        own.start_enclave()
        own.start_relay()
        yield own


@asynccontextmanager
async def opened(pool: Stack) -> AsyncGenerator[Session]:
    policy = load_policy(pool.policy.read_text("utf-8"))
    session = Session(
        ClientParts(
            policy=policy,
            inspector=ScriptedInspector(),
            local=ScriptedLocal(),
            transport=RelayTransport(
                RelayAddress.parse(pool.relay_url, plain_loopback=True)
            ),
            keys=KeyStore(expectations=expectations_from(policy)),
            audit=MemoryTrail(),
        )
    )
    async with asyncio.timeout(LONG_S), session:
        yield session


@dataclass
class Load:
    """Questions without a pause, and their results.

    Attributes:
        asked: how many began.
        answers: of those that were answered.
        cut: how many answers broke off.
    """

    session: Session
    asked: int = 0
    cut: int = 0
    answers: list[Answer] = field(default_factory=list[Answer])
    over: bool = False

    async def ask(self) -> None:
        while not self.over:
            self.asked += 1
            try:
                self.answers.append(await self.session.ask(QUERY))
            except IncompleteAnswerError:
                self.cut += 1

    async def more(self, count: int, *, by: Answerer) -> None:
        """Wait for this many more answers of one kind."""
        wanted = count + sum(each.route is by for each in self.answers)
        while sum(each.route is by for each in self.answers) < wanted:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_nodes_are_killed_and_started_again_under_load(pool: Stack) -> None:
    async with opened(pool) as session:
        load = Load(session)
        async with asyncio.TaskGroup() as group:
            for _ in range(ASKING):
                group.create_task(load.ask())
            await load.more(20, by=Answerer.ENCLAVE)
            for node in NODES[:3]:
                pool.running[f"enclave-{node}"].kill()
                await load.more(20, by=Answerer.ENCLAVE)
                pool.begin_node(node)
                await asyncio.to_thread(pool.wait_node, node)
                await load.more(20, by=Answerer.ENCLAVE)
            load.over = True
    assert len(load.answers) + load.cut == load.asked, "none is lost"
    assert load.cut <= 3 * ASKING, "none but what ran on a node when it was killed"
    texts = Counter((each.route, each.text) for each in load.answers)
    assert set(texts) <= {
        (Answerer.ENCLAVE, WORD * PIECES),
        (Answerer.LOCAL, "At home."),
    }, "none is cut or said twice"


async def test_every_node_is_asked(pool: Stack) -> None:
    async with opened(pool) as session:
        verdicts = {(await session.ask(QUERY)).provenance.verdict_id for _ in range(40)}
    assert len(verdicts) == 3, "by the evidence that each answer relied upon"
