"""Cover requests: same class, delayed, silent, recorded, without query content."""

import asyncio
import gc
import hashlib
from collections.abc import Callable
from dataclasses import replace
from typing import get_type_hints

import pytest

from curtilage.client import telemetry
from curtilage.client.audit.record import Outcome
from curtilage.client.chat.answer import Answerer
from curtilage.client.chat.options import Require, RoutingOptions
from curtilage.client.chat.query import Message, Query
from curtilage.client.errors import BlockedError, EnclaveError, NotRoutedError
from curtilage.client.parts import ClientParts
from curtilage.client.remote import cover as cover_module
from curtilage.client.remote.cover import CoverSettings, CoverTraffic
from curtilage.client.remote.enclave import Enclave
from curtilage.client.remote.keys import KeySource
from curtilage.client.remote.reasons import EnclaveFailure
from curtilage.client.remote.requests import (
    RecentLengths,
    RecordsCover,
    bucket_like,
)
from curtilage.client.remote.seal import cover_content, size_class_of
from curtilage.client.session import Session
from curtilage.policy.decision.decide import Inspection
from curtilage.policy.decision.routes import Route
from curtilage.policy.document.load import load_policy, load_profile, profile_text
from curtilage.policy.document.model import Policy
from curtilage.wire import media
from curtilage.wire.shaping import UNPADDED, TransportParameters
from support.client_parts import MemoryTrail, ScriptedInspector, ScriptedLocal
from support.memory_enclave import (
    NOW,
    QUICK,
    Clock,
    MemoryEnclave,
    Reply,
    chunk,
    key_store,
    problem,
    sse,
    verified,
)
from support.permits import new_desk

CANARY = "canary-5d5d"
QUERY = Query(messages=(Message(role="user", content=CANARY),), stream=True)
LARGE = Query(messages=(Message(role="user", content="x" * 9000),))
AT_ONCE = CoverSettings(delay_s=(0, 0), share=100)


class Bench:
    """A session that keeps every query local, and its transport."""

    def __init__(
        self,
        *found: str,
        enclave: MemoryEnclave | None = None,
        settings: CoverSettings | None = AT_ONCE,
        broken: bool = False,
        most_running: int = 64,
        policy: Policy | None = None,
    ) -> None:
        self.enclave = enclave or MemoryEnclave()
        self.trail = MemoryTrail(broken=broken)
        self.inspector = ScriptedInspector(*found)
        self.session = Session(
            ClientParts(
                policy=policy or load_profile("default"),
                inspector=self.inspector,
                local=ScriptedLocal(),
                transport=self.enclave,
                keys=key_store(self.enclave.parameters, policy=policy),
                audit=self.trail,
                cover=settings,
                most_running=most_running,
                clock=Clock(),
            )
        )

    async def ask(self, query: Query = QUERY) -> None:
        answer = await self.session.ask(query)
        assert answer.route is Answerer.LOCAL


@pytest.mark.parametrize("query", [QUERY, LARGE], ids=["small", "large"])
async def test_a_local_query_has_a_dummy_of_its_class(query: Query) -> None:
    bench = Bench("financial.pan")
    await bench.ask(query)
    await bench.session.settle()
    (body,) = bench.enclave.sealed
    key, length = verified(bench.enclave), len(query.payload().content)
    assert len(body) == size_class_of(length, key, now=NOW)
    (request,) = bench.enclave.requests
    assert (request.path, request.content) == (b"/v1/cover", cover_content(0))
    assert bench.enclave.ended.is_set(), "its answer is let in to its end"


async def test_a_query_that_is_blocked_has_one_too() -> None:
    rule = 'rules:\n- {id: never, when: "secret.*", then: block, reason: no}\n'
    policy = load_policy(profile_text("default").replace("rules:\n", rule, 1))
    bench = Bench("secret.token", policy=policy)
    with pytest.raises(BlockedError):
        await bench.session.ask(QUERY)
    await bench.session.settle()
    (request,) = bench.enclave.requests
    assert request.path == b"/v1/cover"


async def test_a_query_without_any_tier_has_one_too() -> None:
    # Silence would say: it must stay, and an enclave was required of it.
    bench = Bench("financial.pan")
    required = replace(QUERY, options=RoutingOptions(require=Require.ENCLAVE))
    with pytest.raises(NotRoutedError):
        await bench.session.ask(required)
    await bench.session.settle()
    (request,) = bench.enclave.requests
    assert request.path == b"/v1/cover"


@pytest.mark.parametrize(("classes", "covers"), [("health.*", 0), ("financial.*", 1)])
async def test_a_policy_may_limit_it_to_classes(classes: str, covers: int) -> None:
    policy = load_policy(
        f"{profile_text('default')}\ntransport: {{cover: {{classes: ['{classes}']}}}}\n"
    )
    bench = Bench("financial.pan", policy=policy)
    await bench.ask()
    await bench.session.settle()
    assert len(bench.enclave.sealed) == covers


async def test_a_query_that_was_sent_has_none() -> None:
    bench = Bench()
    assert (await bench.session.ask(QUERY)).route is Answerer.ENCLAVE
    await bench.session.settle()
    assert len(bench.enclave.sealed) == 1


async def test_a_local_fallback_has_none() -> None:
    bench = Bench()
    bench.enclave.fails = EnclaveError(EnclaveFailure.BUSY)
    await bench.ask()
    await bench.session.settle()
    assert len(bench.enclave.sealed) == 1


async def test_without_the_policys_word_there_are_none() -> None:
    bench = Bench("financial.pan", settings=None)
    await bench.ask()
    await bench.session.settle()
    assert (bench.enclave.sealed, bench.enclave.fetched) == ([], 0)


async def test_an_answer_does_not_wait_for_its_dummy() -> None:
    bench = Bench("financial.pan")
    bench.enclave.held = 0
    await bench.ask()
    assert bench.session.unsettled
    bench.enclave.go.set()
    await bench.session.close()
    assert len(bench.enclave.sealed) == 1


async def test_a_dummy_is_recorded_and_commits_to_what_it_says() -> None:
    bench = Bench("financial.pan")
    await bench.ask()
    await bench.session.settle()
    own, dummy = bench.trail.entries
    assert (own.outcome, dummy.outcome) == (Outcome.LOCAL, Outcome.COVER)
    assert (dummy.route, dummy.rule) == (Route.ENCLAVE, "transport.cover")
    assert (dict(dummy.classes), dummy.messages) == ({}, 0)
    assert dummy.query != own.query, "no record shows which query it replaces"
    assert dummy.payload_digest == hashlib.sha256(b'{"bucket":0}').digest()
    assert dummy.verdict


async def test_without_a_record_no_dummy_is_sent() -> None:
    bench = Bench("financial.pan", broken=True)
    await bench.ask()
    await bench.session.settle()
    assert bench.enclave.sealed == []


async def test_a_failing_dummy_fails_in_silence() -> None:
    reported: list[object] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: reported.append(context))
    for enclave in (MemoryEnclave(), MemoryEnclave(problem(media.PROBLEM_DATE))):
        enclave.fails = EnclaveError(EnclaveFailure.RELAY_UNREACHABLE)
        bench = Bench("financial.pan", enclave=enclave)
        await bench.ask()
        await bench.session.settle()
    gc.collect()  # an unretrieved error of a task is reported when it is freed
    assert reported == []


async def test_a_dummy_is_corrected_as_a_query_would_be() -> None:
    """On the wire, a key that is no longer held looks the same for both."""
    bench = Bench("financial.pan", enclave=MemoryEnclave(key_id=1))
    await bench.session.verified_key()
    bench.enclave.rotate(2)
    await bench.ask()
    await bench.session.settle()
    assert (bench.enclave.fetched, len(bench.enclave.sealed)) == (2, 2)
    assert len(bench.enclave.requests) == 1


async def test_an_enclave_that_shapes_nothing_is_sent_none() -> None:
    bench = Bench("financial.pan", enclave=MemoryEnclave(parameters=UNPADDED))
    await bench.ask()
    await bench.session.settle()
    assert bench.enclave.sealed == []
    assert [each.outcome for each in bench.trail.entries] == [Outcome.LOCAL]


async def test_a_dummys_answer_is_as_long_as_those_of_late() -> None:
    bench = Bench()
    bench.enclave.reply = Reply(
        content=sse(chunk("a"), chunk(finish="stop")), frames=QUICK.frames_of(3)
    )
    await bench.session.ask(QUERY)
    await bench.session.settle()
    bench.inspector.findings = Bench("financial.pan").inspector.findings
    await bench.ask()
    await bench.session.settle()
    assert bench.enclave.requests[-1].content == cover_content(3)


async def test_dummies_do_not_copy_each_others_length() -> None:
    """Only real answers are drawn from: a dummy's own would feed back."""
    enclave, drawn = MemoryEnclave(), list[int]()

    def below(bound: int) -> int:
        drawn.append(bound)
        return 0

    keys = KeySource(enclave, key_store(), Clock(), new_desk())
    remote = Enclave(enclave, keys, Clock(), new_desk(), lengths=RecentLengths(below))
    for _ in range(3):
        await remote.cover(4096, Unrecorded())
        await remote.settle()
    assert drawn == [], "there was no real answer yet, so the shortest is taken"


class Unrecorded:
    """Records nothing."""

    async def covered(self, content: bytes, verdict_id: str) -> None:
        """Record nothing."""


class Sender:
    """Sends nothing, and remembers which size classes it should have sent."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    async def cover(self, size_class: int, records: RecordsCover) -> None:
        del records
        self.sizes.append(size_class)


async def test_closing_waits_for_a_dummy_that_waits() -> None:
    bench = Bench("financial.pan", settings=CoverSettings(delay_s=(1, 1), share=100))
    await bench.ask()
    assert bench.enclave.sealed == []
    await bench.session.close()
    assert len(bench.enclave.sealed) == 1


async def test_closing_that_is_cancelled_sends_none() -> None:
    bench = Bench("financial.pan", settings=CoverSettings(delay_s=(60, 60), share=100))
    await bench.ask()
    closing = asyncio.create_task(bench.session.close())
    await asyncio.sleep(0.01)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert (bench.session.unsettled, bench.enclave.sealed) == (0, [])


class Slept:
    """Does not wait, and remembers for how long it should have."""

    def __init__(self) -> None:
        self.waits: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.waits.append(seconds)


def drawing(*numbers: int) -> Callable[[int], int]:
    """Draw these numbers, one after another."""
    drawn = iter(numbers)

    def below(bound: int) -> int:
        number = next(drawn)
        assert number < bound
        return number

    return below


async def sent(settings: CoverSettings, below: Callable[[int], int]) -> list[float]:
    slept, sender = Slept(), Sender()
    cover = CoverTraffic(settings, sender, Unrecorded(), below=below, sleep=slept)
    cover.answered_here(4096)
    await cover.settle()
    assert set(sender.sizes) <= {4096}
    return slept.waits


@pytest.mark.parametrize(("drawn", "waits"), [(0, 2.0), (1234, 3.234), (6000, 8.0)])
async def test_the_delay_is_drawn(drawn: int, waits: float) -> None:
    settings = CoverSettings(delay_s=(2, 8), share=30)
    assert await sent(settings, drawing(29, drawn)) == [waits]


async def test_the_share_is_drawn() -> None:
    settings = CoverSettings(delay_s=(2, 8), share=30)
    assert await sent(settings, drawing(30)) == []


async def test_only_so_many_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cover_module, "MAX_PENDING", 2)
    sender = Sender()
    cover = CoverTraffic(
        AT_ONCE, sender, Unrecorded(), below=lambda _: 0, sleep=Slept()
    )
    for size in (1, 2, 3):
        cover.answered_here(size)
    await cover.settle()
    assert sender.sizes == [1, 2]


async def test_dummies_leave_room_for_waiting_callers() -> None:
    bench = Bench(most_running=2)
    bench.enclave.held = 600
    bench.enclave.reply = Reply(
        content=sse(chunk("a"), chunk(finish="stop")), frames=QUICK.frames_of(3)
    )
    assert (await bench.session.ask(QUERY)).route is Answerer.ENCLAVE
    bench.inspector.findings = Bench("financial.pan").inspector.findings
    await bench.ask()
    bench.enclave.go.set()
    await bench.session.settle()
    assert len(bench.enclave.sealed) == 1, "half of the room is not for dummies"
    await bench.ask()
    await bench.session.settle()
    assert len(bench.enclave.sealed) == 2


async def test_counts_show_it_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[object] = []

    def count(event: object, **labels: object) -> None:
        counted.append((event, labels))

    monkeypatch.setattr(telemetry, "_count", count)
    bench = Bench("financial.pan")
    await bench.ask()
    await bench.session.settle()
    assert (telemetry.Event.COVERED, {}) in counted


async def test_a_query_with_half_a_character_is_answered_and_has_no_dummy() -> None:
    bench = Bench("financial.pan")
    found = await bench.inspector.ainspect(QUERY)

    async def ainspect(query: Query) -> Inspection:
        del query
        return found

    bench.inspector.ainspect = ainspect  # type: ignore[method-assign]
    await bench.ask(Query(messages=(Message(role="user", content="\ud800"),)))
    await bench.session.settle()
    assert bench.enclave.sealed == []


def test_a_dummy_is_made_of_a_number() -> None:
    """No text can be handed over: neither to the way out, nor to what delays it."""
    for taken in (Enclave.size_class, CoverTraffic.answered_here, Enclave.cover):
        hints = get_type_hints(taken)
        del hints["return"]
        assert set(hints.values()) <= {int, RecordsCover}


def test_a_shape_of_fewer_buckets_is_not_exceeded() -> None:
    two = TransportParameters(frame_bytes=128, period_ms=1, first_bucket=4, buckets=2)
    for frames, bucket in ((4, 0), (5, 1), (8, 1), (200, 1)):
        assert bucket_like(two, frames) == bucket
    assert bucket_like(UNPADDED, 7) == 0
