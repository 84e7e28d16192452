"""What is sent again, and why: once for a key, once for a date, never else."""

import asyncio
from datetime import timedelta

import pytest
from typing_extensions import override

from curtilage.client import telemetry
from curtilage.client.chat.answer import AnswerEvent, Delta
from curtilage.client.chat.query import Message, Query
from curtilage.client.chat.receipt import ReceiptSecret
from curtilage.client.errors import AttemptFailure, EnclaveError, FailureReason
from curtilage.client.remote.enclave import CLOCK_DIFFERS, Enclave, clock_words
from curtilage.client.remote.fetch_order import FetchOrder
from curtilage.client.remote.keys import KeySource
from curtilage.client.remote.reasons import EnclaveFailure
from curtilage.client.remote.requests import ChatRequest
from curtilage.policy.decision.decide import Allowed, decide
from curtilage.policy.document.load import load_profile
from curtilage.wire import media
from support.inspections import inspection_of
from support.memory_enclave import (
    NOW,
    QUICK,
    Clock,
    MemoryEnclave,
    Reply,
    key_store,
    problem,
)
from support.permits import new_desk

QUERY = Query(messages=(Message(role="user", content="hello"),), stream=True)
THEIRS = NOW + timedelta(hours=3)
LATE = problem(media.PROBLEM_DATE, date=THEIRS)


def allowed() -> Allowed:
    inspection = inspection_of(
        findings=(), payload_digest=QUERY.payload_digest(), messages=1
    )
    permission = decide(load_profile("default").rulebook, inspection).allowed
    assert permission is not None
    return permission


class Asked:
    """A client's remote half, and what it recorded before it sealed."""

    def __init__(self, enclave: MemoryEnclave) -> None:
        self.enclave = enclave
        self.clock = Clock()
        self.desk = new_desk()
        self.notices: list[str] = []
        keys = KeySource(enclave, key_store(enclave.parameters), self.clock, self.desk)
        self.remote = Enclave(
            enclave, keys, self.clock, self.desk, notify=self.notices.append
        )
        self.recorded: list[int] = []

    async def leaves(self, allowed: Allowed, verdict_id: str) -> None:
        del allowed, verdict_id
        self.recorded.append(len(self.enclave.sealed))

    async def receipted(
        self, secret: ReceiptSecret, public_key: bytes, receipt: bytes
    ) -> None:
        """Keep no receipt."""

    async def challenged(self, content: bytes, verdict_id: str) -> None:
        """Record nothing."""

    async def ask(self) -> list[AnswerEvent]:
        request = ChatRequest(
            allowed=allowed(), tier="enclave", payload=QUERY.payload(), records=self
        )
        return [step async for step in self.remote.ask(request)]

    async def failure(self) -> FailureReason:
        with pytest.raises(EnclaveError) as refused:
            await self.ask()
        return refused.value.reason


def dates(enclave: MemoryEnclave) -> list[bytes]:
    return [dict(request.fields)[b"date"] for request in enclave.requests]


def encs(enclave: MemoryEnclave) -> int:
    return len({body[7:1127] for body in enclave.sealed})


async def test_a_refused_date_is_corrected_once_under_a_fresh_seal() -> None:
    asked = Asked(MemoryEnclave())
    asked.enclave.replies = [LATE]
    events = await asked.ask()
    assert [each.text for each in events if isinstance(each, Delta)] == [
        "From ",
        "afar.",
    ]
    assert dates(asked.enclave) == [
        b"Sat, 21 Nov 2026 12:00:00 GMT",
        b"Sat, 21 Nov 2026 15:00:00 GMT",
    ]
    assert encs(asked.enclave) == 2, "enc is never reused"
    assert asked.recorded == [0, 1], "each attempt is recorded before it is sealed"
    assert asked.enclave.fetched == 1


async def test_a_corrected_date_is_for_one_query_alone() -> None:
    asked = Asked(MemoryEnclave())
    asked.enclave.replies = [LATE]
    await asked.ask()
    await asked.ask()
    assert dates(asked.enclave)[-1] == b"Sat, 21 Nov 2026 12:00:00 GMT"


async def test_a_request_that_is_asked_twice_is_sealed_once() -> None:
    asked = Asked(MemoryEnclave())
    request = ChatRequest(
        allowed=allowed(), tier="enclave", payload=QUERY.payload(), records=asked
    )
    assert [step async for step in asked.remote.ask(request)]
    with pytest.raises(EnclaveError) as refused:
        [step async for step in asked.remote.ask(request)]
    assert refused.value.reason is AttemptFailure.NOT_PERMITTED
    assert refused.value.code == "attempt"
    assert len(asked.enclave.sealed) == 1


async def test_a_tier_that_the_decision_does_not_name_is_not_asked() -> None:
    asked = Asked(MemoryEnclave())
    request = ChatRequest(
        allowed=allowed(), tier="other", payload=QUERY.payload(), records=asked
    )
    with pytest.raises(EnclaveError) as refused:
        [step async for step in asked.remote.ask(request)]
    assert refused.value.reason is AttemptFailure.NOT_PERMITTED
    assert asked.enclave.sealed == []


async def test_a_second_refused_date_is_an_error() -> None:
    asked = Asked(MemoryEnclave(LATE))
    assert await asked.failure() is EnclaveFailure.DATE_REFUSED
    assert len(asked.enclave.sealed) == 2


async def test_the_second_request_waits_for_the_end_of_the_first() -> None:
    """Two side by side, of one class, would say: this machine's clock is wrong."""
    asked = Asked(MemoryEnclave())
    asked.enclave.replies = [LATE]
    asked.enclave.held = 16 + 3 * (2 + QUICK.frame_bytes + 16)
    asking = asyncio.create_task(asked.ask())
    await asked.enclave.begun.wait()
    for _ in range(200):
        await asyncio.sleep(0)
    assert (len(asked.enclave.sealed), asked.recorded) == (1, [0])
    asked.enclave.go.set()
    await asking
    assert len(asked.enclave.sealed) == 2


async def test_a_clock_that_is_off_is_reported_once_and_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counted: list[object] = []

    def count(event: object, **labels: object) -> None:
        counted.append((event, *labels))

    monkeypatch.setattr(telemetry, "_count", count)
    asked = Asked(MemoryEnclave())
    for _ in range(2):
        asked.enclave.replies = [LATE]
        await asked.ask()
    (notice,) = asked.notices
    assert notice.startswith(f"{CLOCK_DIFFERS} 3 hours or ")
    assert "set it" in notice
    assert counted.count((telemetry.Event.CLOCK_OFF,)) == 2


@pytest.mark.parametrize(
    ("seconds", "howlong"),
    [
        (61, "1 minute or"),
        (-61, "1 minute or"),
        (-179, "2 minutes or"),
        (7199, "1 hour or"),
        (86400 * 3.5, "3 days or"),
        (0, "1 minute or"),
    ],
)
def test_how_far_a_clock_is_off(seconds: float, howlong: str) -> None:
    words = clock_words(timedelta(seconds=seconds))
    assert words.startswith(f"{CLOCK_DIFFERS} {howlong} ")


async def test_without_the_enclaves_date_nothing_is_corrected() -> None:
    asked = Asked(MemoryEnclave(problem(media.PROBLEM_DATE)))
    assert await asked.failure() is EnclaveFailure.DATE_REFUSED
    assert len(asked.enclave.sealed) == 1


async def test_the_enclaves_date_does_not_lengthen_the_life_of_a_key() -> None:
    """Ours says that the evidence has run out; theirs would say that it has not."""
    enclave = Rejuvenating()
    asked = Asked(enclave)
    enclave.clock = asked.clock
    asked.enclave.replies = [problem(media.PROBLEM_DATE, date=NOW)]
    assert await asked.failure() is EnclaveFailure.EVIDENCE_REFUSED
    assert len(asked.enclave.sealed) == 1


class Rejuvenating(MemoryEnclave):
    """Answers after the client's own clock has run past the evidence."""

    clock: Clock

    @override
    def answer(self, body: bytes) -> bytearray:
        self.clock.move(days=2)
        return super().answer(body)


@pytest.mark.parametrize("first", ["date", "key"])
async def test_a_date_and_a_key_are_each_corrected_once(first: str) -> None:
    asked = Asked(OldKeyAndLate(first))
    await asked.ask()
    assert len(asked.enclave.sealed) == 3
    assert encs(asked.enclave) == 3
    assert asked.enclave.fetched == 2
    assert asked.recorded == [0, 1, 2]


class OldKeyAndLate(MemoryEnclave):
    """Finds the date wrong once, and has another key once."""

    def __init__(self, first: str) -> None:
        super().__init__(key_id=1)
        self.replies = [LATE]
        self.first = first

    @override
    async def fetch_bundle(self, order: FetchOrder) -> bytes:
        bundle = await super().fetch_bundle(order)
        if self.first == "key" and self.fetched == 1:
            self.rotate(2)
        return bundle

    @override
    def answer(self, body: bytes) -> bytearray:
        answer = super().answer(body)
        if self.first == "date" and len(self.requests) == 1:
            self.rotate(2)
        return answer


async def test_a_redirect_inside_is_refused_and_not_followed() -> None:
    moved = Reply(status=302, fields=((b"location", b"https://elsewhere.invalid/"),))
    asked = Asked(MemoryEnclave(moved))
    assert await asked.failure() is EnclaveFailure.REFUSED
    assert len(asked.enclave.sealed) == 1


async def test_cookies_and_tags_inside_are_not_kept() -> None:
    fields = ((b"set-cookie", b"id=7"), (b"etag", b'"7"'))
    asked = Asked(MemoryEnclave(Reply(fields=fields)))
    await asked.ask()
    await asked.ask()
    for request in asked.enclave.requests:
        assert [name for name, _ in request.fields] == [b"content-type", b"date"]


async def test_an_oversize_query_is_not_even_recorded() -> None:
    large = Query(messages=(Message(role="user", content="x" * 1_100_000),))
    asked = Asked(MemoryEnclave())
    inspection = inspection_of(
        findings=(), payload_digest=large.payload_digest(), messages=1
    )
    permission = decide(load_profile("default").rulebook, inspection).allowed
    assert permission is not None
    request = ChatRequest(
        allowed=permission, tier="enclave", payload=large.payload(), records=asked
    )
    with pytest.raises(EnclaveError) as refused:
        await anext(asked.remote.ask(request))
    assert refused.value.reason is EnclaveFailure.TOO_LARGE
    assert (asked.recorded, asked.enclave.sealed) == ([], [])
