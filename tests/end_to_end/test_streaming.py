"""A stream over all hops: when its pieces come, and what happens when it is cut.

The enclave plays a script and says the next piece only when a test lets it, so
that the order of events shows what streams; no clock decides anything.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import aclosing, asynccontextmanager

import aiohttp
import pytest
from end_to_end.conftest import QUICK, OpenSession, patient_profile, with_evidence_of

from curtilage.client.answering.answer_stream import AnswerStream
from curtilage.client.chat.answer import Answerer
from curtilage.client.chat.query import Message, Query, Settings
from curtilage.client.errors import IncompleteAnswerError
from curtilage.client.session import Session
from curtilage.wire.frames import answer_bytes
from curtilage.wire.hpke.suite import SUITES
from curtilage.wire.shaping import UNPADDED, Shape, TransportParameters
from curtilage_dev.processes import Processes
from curtilage_dev.scripted_enclave import BEGAN, ENDED, STOPPED, Play
from curtilage_dev.stack import Stack
from support.middle import middle

PIECES = 6
LONG_S = 60
QUERY = Query(
    messages=(Message(role="user", content="What is a virus?"),),
    settings=Settings(max_tokens=64, temperature=0, seed=1),
    stream=True,
)


class Played:
    """A running stack whose enclave sends a piece when released."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.gate = stack.folder / "gate"
        self.runs = stack.folder / "runs"
        self.restart()

    def restart(self) -> None:
        self.gate.write_bytes(b"")
        self.runs.write_text("")
        if self.stack.relay_view.exists():
            self.stack.relay_view.write_text("")

    def let(self, pieces: int) -> None:
        """Release this many pieces, in total."""
        self.gate.write_bytes(b"." * pieces)

    @property
    def words(self) -> list[str]:
        return self.runs.read_text("utf-8").split()

    @property
    def padded(self) -> bool:
        return self.stack.transport.shape is Shape.PADDED

    async def until_recorded(self, word: str) -> None:
        async with asyncio.timeout(LONG_S):
            while word not in self.words:  # noqa: ASYNC110 - another process writes it
                await asyncio.sleep(0.01)

    async def posts(self, count: int) -> list[dict[str, object]]:
        """The traffic in front of the relay of this many complete questions."""
        async with asyncio.timeout(LONG_S):
            while True:
                lines = self.stack.relay_view.read_text("utf-8").splitlines()
                seen = [json.loads(line) for line in lines]
                posts = [each for each in seen if each["method"] == "POST"]
                if len(posts) >= count:
                    return posts
                await asyncio.sleep(0.01)


@pytest.fixture(scope="module", params=[QUICK, UNPADDED], ids=["padded", "unpadded"])
def running(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    stack: Stack,
) -> Generator[Played]:
    transport: TransportParameters = request.param
    folder = tmp_path_factory.mktemp("played")
    with Processes(folder) as processes:
        play = Play(pieces=PIECES, runs=folder / "runs", gate=folder / "gate")
        own = Stack(
            folder=folder,
            processes=processes,
            relay_extra="[limits]\ncache_s = 1\n",
            transport=transport,
            profile=patient_profile(),
            play=play,
            record=True,
        )
        with_evidence_of(stack, own)
        own.publish()
        own.start_enclave()
        own.start_relay()
        yield Played(own)


@pytest.fixture
def played(running: Played) -> Played:
    running.restart()
    return running


@asynccontextmanager
async def opened(
    played: Played, open_session: OpenSession, *, through: str = ""
) -> AsyncGenerator[Session]:
    """Open a session, through another address if one is given."""
    stack = played.stack
    relay = stack.relay_url.replace(stack.relay_address, through or stack.relay_address)
    policy = stack.policy.read_text("utf-8")
    async with asyncio.timeout(LONG_S), open_session(relay=relay, policy=policy) as own:
        yield own


def whole_answers(transport: TransportParameters) -> set[int]:
    """Every size that a padded answer may have on the wire."""
    return {
        answer_bytes(transport, suite, bucket)
        for suite in SUITES
        for bucket in range(transport.buckets)
    }


async def sent_again(played: Played, outward: bytes) -> bytes:
    """Send the recorded traffic again, and return the sealed answer."""
    sealed = outward.partition(b"POST ")[2].partition(b"\r\n\r\n")[2]
    headers = {"Content-Type": "message/ohttp-chunked-req", "Incremental": "?1"}
    async with (
        aiohttp.ClientSession() as again,
        again.post(played.stack.relay_url, data=sealed, headers=headers) as response,
    ):
        assert response.status == 200, "the refusal is inside the seal"
        assert response.content_type == "message/ohttp-chunked-res"
        return await response.read()


async def require_incomplete(stream: AnswerStream, cut: Callable[[], None]) -> None:
    """Cut after the first piece; the answer must not look finished."""
    await stream.begin()
    cut()
    with pytest.raises(IncompleteAnswerError):
        _ = [piece async for piece in stream]
    with pytest.raises(RuntimeError):
        _ = stream.answer


async def test_each_piece_comes_before_the_next_is_said(
    played: Played, open_session: OpenSession
) -> None:
    """No party holds anything back: the next piece waits for this one."""
    played.let(1)
    async with opened(played, open_session) as session:
        stream = session.stream(QUERY)
        pieces = 0
        async for _ in stream:
            pieces += 1
            played.let(pieces + 1)
        assert stream.answer.route is Answerer.ENCLAVE
    assert pieces == PIECES
    assert played.words == [BEGAN, ENDED]


async def test_a_stream_cut_at_the_relay_is_incomplete(
    played: Played, open_session: OpenSession
) -> None:
    played.let(1)
    async with (
        middle(played.stack.relay_address) as line,
        opened(played, open_session, through=line.address) as session,
    ):
        await require_incomplete(session.stream(QUERY), line.cut)
    # No further piece was released, so the engine did not come to its end.
    await played.until_recorded(STOPPED)


async def test_a_cancel_shows_only_where_nothing_is_hidden(
    played: Played, open_session: OpenSession
) -> None:
    """Padded, the answer goes on to its end; unpadded, the engine stops."""
    played.let(1)
    async with opened(played, open_session) as session:
        async with aclosing(session.stream(QUERY)) as stream:
            await stream.begin()
        if played.padded:
            played.let(PIECES)
            await played.until_recorded(ENDED)
        else:
            # No further piece was released, so it cannot have come to its end.
            await played.until_recorded(STOPPED)
    (post,) = await played.posts(1)
    if played.padded:
        assert post["status"] == 200
        assert post["response_bytes"] in whole_answers(played.stack.transport)


async def test_a_request_sent_twice_runs_once(
    played: Played, open_session: OpenSession
) -> None:
    """A replay of the bytes does not run the model again."""
    played.let(PIECES)
    async with (
        middle(played.stack.relay_address) as line,
        opened(played, open_session, through=line.address) as session,
    ):
        answer = await session.ask(QUERY)
    assert answer.route is Answerer.ENCLAVE
    for _ in range(2):
        body = await sent_again(played, bytes(line.outward))
        if played.padded:
            assert len(body) in whole_answers(played.stack.transport)
    assert played.words == [BEGAN, ENDED]


async def test_a_request_sent_twice_at_once_runs_once(
    played: Played, open_session: OpenSession
) -> None:
    """The second is refused while the first still runs."""
    played.let(1)
    async with (
        middle(played.stack.relay_address) as line,
        opened(played, open_session, through=line.address) as session,
    ):
        stream = session.stream(QUERY)
        await stream.begin()
        _ = await sent_again(played, bytes(line.outward))
        played.let(PIECES)
        _ = [piece async for piece in stream]
        assert stream.answer.route is Answerer.ENCLAVE
    assert played.words == [BEGAN, ENDED]


async def test_a_key_that_is_gone_is_fetched_again_while_asking(
    played: Played, open_session: OpenSession
) -> None:
    """The enclave starts anew with another key; one question, and it is answered."""
    played.let(PIECES)
    async with opened(played, open_session) as session:
        first = await session.ask(QUERY)
        before = (await session.verified_key()).key_configs_digest
        played.stack.running["enclave"].kill()
        played.stack.start_enclave()
        await asyncio.sleep(1.2)  # the relay of these tests keeps copies for a second
        second = await session.ask(QUERY)
        after = (await session.verified_key()).key_configs_digest
    assert (first.route, second.route) == (Answerer.ENCLAVE, Answerer.ENCLAVE)
    assert before != after
    assert played.words == [BEGAN, ENDED] * 2


async def test_a_stream_cut_at_the_enclave_is_incomplete(
    played: Played, open_session: OpenSession
) -> None:
    played.let(1)
    async with opened(played, open_session) as session:
        await require_incomplete(
            session.stream(QUERY), played.stack.running["enclave"].kill
        )
    assert played.words == [BEGAN]
    played.stack.start_enclave()
