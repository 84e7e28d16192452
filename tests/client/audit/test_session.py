"""A query is recorded before it is sent; without a record it is kept local."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from typing_extensions import override

from curtilage.client.audit.reader import LogToRead
from curtilage.client.audit.record import AuditEntry, AuditRecord, Line, Outcome
from curtilage.client.audit.trail import AuditTrail, DiskAuditTrail
from curtilage.client.audit.writer import AuditLog
from curtilage.client.chat.answer import Answerer
from curtilage.client.chat.query import Message, Query
from curtilage.client.errors import (
    AttemptFailure,
    BlockedError,
    EnclaveError,
    IncompleteAnswerError,
)
from curtilage.client.parts import ClientParts, UnavailableLocal
from curtilage.client.remote.reasons import EnclaveFailure
from curtilage.client.remote.sealed import SealedExchange
from curtilage.client.session import Session
from curtilage.policy.decision.routes import Route
from curtilage.policy.document.load import load_policy, load_profile, profile_text
from support.client_parts import MemoryTrail, ScriptedInspector, ScriptedLocal
from support.memory_enclave import Clock, MemoryEnclave, Reply, chunk, key_store, sse

QUERY = Query(messages=(Message(role="user", content="canary-7c1e"),), stream=True)
BLOCKING = profile_text("default").replace(
    "rules:\n", 'rules:\n- {id: never, when: "secret.*", then: block, reason: no}\n', 1
)


class Watched(MemoryEnclave):
    """Notes how much of the trail there was when something was sent to it."""

    def __init__(self, trail: MemoryTrail, reply: Reply | None = None) -> None:
        super().__init__(reply)
        self.trail = trail
        self.recorded: list[int] = []

    @override
    async def send(self, exchange: SealedExchange) -> AsyncGenerator[bytes]:
        self.recorded.append(len(self.trail.entries))
        async for piece in super().send(exchange):
            yield piece


class Bench:
    """A session of in-memory parts, with a trail."""

    def __init__(
        self,
        *found: str,
        broken: bool = False,
        local: bool = True,
        reply: Reply | None = None,
        policy: str | None = None,
        audit: AuditTrail | None = None,
    ) -> None:
        self.trail = MemoryTrail(broken=broken)
        self.enclave = Watched(self.trail, reply)
        self.local = ScriptedLocal()
        loaded = load_policy(policy) if policy else load_profile("default")
        self.session = Session(
            ClientParts(
                policy=loaded,
                inspector=ScriptedInspector(*found),
                local=self.local if local else UnavailableLocal("there is none"),
                transport=self.enclave,
                keys=key_store(policy=loaded),
                audit=audit or self.trail,
                clock=Clock(),
            )
        )

    @property
    def entry(self) -> AuditEntry:
        (entry,) = self.trail.entries
        return entry


async def test_a_query_is_recorded_before_it_is_sent() -> None:
    bench = Bench("topic.finance")
    answer = await bench.session.ask(QUERY)
    assert bench.enclave.recorded == [1]
    entry = bench.entry
    assert (entry.route, entry.outcome) == (Route.ENCLAVE, Outcome.ENCLAVE)
    assert entry.verdict == answer.provenance.verdict_id
    assert entry.payload_digest == QUERY.payload_digest()
    assert entry.classes == {"topic.finance": 1}
    assert (entry.policy, entry.rule) == (answer.policy_digest, answer.rule)
    assert (entry.attempt, entry.messages, entry.fallback) == (1, 1, "")
    assert answer.provenance.recorded


async def test_without_a_record_nothing_is_sealed() -> None:
    bench = Bench(broken=True)
    answer = await bench.session.ask(QUERY)
    assert bench.enclave.sealed == []
    assert bench.enclave.recorded == [], "the way out was never asked"
    assert answer.route is Answerer.LOCAL
    assert answer.provenance.fallback is AttemptFailure.AUDIT_FAILED
    assert not answer.provenance.recorded


async def test_without_a_record_the_seal_is_never_called(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("sealed without a record")

    monkeypatch.setattr("curtilage.client.remote.requests.seal", refuse)
    answer = await Bench(broken=True).session.ask(QUERY)
    assert answer.provenance.fallback is AttemptFailure.AUDIT_FAILED


async def test_every_attempt_has_a_record_of_its_own() -> None:
    bench = Bench()
    await bench.session.ask(QUERY)
    bench.enclave.rotate(7)
    await bench.session.ask(QUERY)
    assert bench.enclave.recorded == [1, 2, 3]
    first, old, new = bench.trail.entries
    assert old.query == new.query != first.query
    assert (old.attempt, new.attempt) == (1, 2)
    assert {each.outcome for each in bench.trail.entries} == {Outcome.ENCLAVE}


async def test_a_second_attempt_that_cannot_be_recorded_is_not_made() -> None:
    bench = Bench()
    await bench.session.ask(QUERY)
    bench.enclave.rotate(7)
    bench.trail.entries = Stubborn(bench.trail)
    answer = await bench.session.ask(QUERY)
    assert len(bench.enclave.sealed) == 2, "the first query, and one attempt"
    assert answer.provenance.fallback is AttemptFailure.AUDIT_FAILED


class Stubborn(list[AuditEntry]):
    """Takes one entry; then the disk is full."""

    def __init__(self, trail: MemoryTrail) -> None:
        super().__init__()
        self.trail = trail

    @override
    def append(self, entry: AuditEntry) -> None:
        super().append(entry)
        self.trail.broken = True


async def test_a_local_answer_is_recorded() -> None:
    bench = Bench("financial.pan", "financial.pan", "uncertain.timeout")
    answer = await bench.session.ask(QUERY)
    assert (bench.entry.route, bench.entry.outcome) == (Route.LOCAL, Outcome.LOCAL)
    assert bench.entry.classes == {"financial.pan": 2, "uncertain.timeout": 1}
    assert (bench.entry.verdict, bench.entry.fallback) == ("", "")
    assert answer.provenance.recorded


async def test_a_local_answer_is_given_even_without_a_record() -> None:
    """Nothing is sent, so the promise holds; the caller is informed."""
    answer = await Bench("financial.pan", broken=True).session.ask(QUERY)
    assert answer.route is Answerer.LOCAL
    assert not answer.provenance.recorded
    assert answer.provenance.fallback is None


async def test_a_local_fallback_is_recorded_again() -> None:
    bench = Bench()
    bench.enclave.fails = EnclaveError(EnclaveFailure.BUSY)
    await bench.session.ask(QUERY)
    left, home = bench.trail.entries
    assert (left.outcome, home.outcome) == (Outcome.ENCLAVE, Outcome.LOCAL)
    assert (left.fallback, home.fallback) == ("", "busy")
    assert (left.query, left.attempt, home.attempt) == (home.query, 1, 2)


async def test_an_untrusted_enclave_was_sent_nothing() -> None:
    bench = Bench()
    bench.enclave.bundle = b"{}"
    await bench.session.ask(QUERY)
    assert (bench.entry.outcome, bench.entry.fallback) == (
        Outcome.LOCAL,
        "evidence_refused",
    )


async def test_a_blocked_query_is_recorded() -> None:
    bench = Bench("secret.password", policy=BLOCKING)
    with pytest.raises(BlockedError):
        await bench.session.ask(QUERY)
    assert (bench.entry.route, bench.entry.outcome) == (Route.BLOCK, Outcome.BLOCKED)


async def test_a_blocked_query_stays_blocked_without_a_trail() -> None:
    with pytest.raises(BlockedError):
        await Bench("secret.password", policy=BLOCKING, broken=True).session.ask(QUERY)


async def test_an_answer_that_was_cut_is_recorded() -> None:
    bench = Bench(reply=Reply(content=sse(chunk("From "), done=False)))
    with pytest.raises(IncompleteAnswerError):
        await bench.session.ask(QUERY)
    assert [each.outcome for each in bench.trail.entries] == [
        Outcome.ENCLAVE,
        Outcome.CUT,
    ]


async def test_a_decision_alone_is_not_recorded() -> None:
    bench = Bench()
    await bench.session.decide(QUERY)
    assert bench.trail.entries == []


async def test_an_unknown_class_name_is_not_recorded() -> None:
    bench = Bench("maria gonzalez", "org.dictionary.maria")
    await bench.session.ask(QUERY)
    assert bench.entry.classes == {"uncertain.error": 2}


async def test_a_real_log_shows_it_without_a_word(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit", make=True)
    bench = Bench("topic.finance", audit=DiskAuditTrail(log))
    answer = await bench.session.ask(QUERY)
    await bench.session.close()
    assert answer.provenance.recorded
    assert read_back(tmp_path / "audit") == [Outcome.ENCLAVE]


def read_back(folder: Path) -> list[Outcome]:
    outcomes: list[Outcome] = []

    def see(line: Line, data: bytes) -> None:
        assert b"canary" not in data
        if isinstance(line, AuditRecord):
            outcomes.append(line.outcome)

    LogToRead.open(folder).verify(see)
    for path in folder.iterdir():
        data = path.read_bytes()
        assert b"canary" not in data
        assert QUERY.payload_digest().hex().encode() not in data
    return outcomes


async def test_closing_the_session_closes_the_trail() -> None:
    bench = Bench()
    await bench.session.close()
    assert bench.trail.closed
