"""Attacks on evidence: nothing is sent, and no other party learns the reason."""

import dataclasses
import json
from collections.abc import AsyncGenerator, Callable
from datetime import timedelta

import pytest
from typing_extensions import override

from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.expectations import Expectations
from curtilage.attest.steps import UNFORESEEN
from curtilage.attest.verify import VerifiedKey
from curtilage.cli.main import main
from curtilage.client.audit.record import Outcome
from curtilage.client.chat.answer import Answer, Answerer
from curtilage.client.chat.query import Message, Query
from curtilage.client.errors import EnclaveError, FailureReason
from curtilage.client.parts import ClientParts
from curtilage.client.remote.fetch_order import FetchOrder
from curtilage.client.remote.key_store import NEGATIVE_TTL, KeyStore
from curtilage.client.remote.reasons import EnclaveFailure
from curtilage.client.remote.seal import seal
from curtilage.client.remote.sealed import SealedExchange
from curtilage.client.session import Session
from curtilage.policy.decision.decide import decide
from curtilage.policy.document.load import load_profile
from support.client_parts import MemoryTrail, ScriptedInspector, ScriptedLocal
from support.inspections import inspection_of
from support.memory_enclave import (
    NOW,
    ROOMY,
    Clock,
    MemoryEnclave,
    deployment,
    key_store,
    verified,
)
from support.permits import new_desk, permit_for

QUERY = Query(messages=(Message(role="user", content="canary-7c1e"),), stream=True)


class Bench:
    """A session, its enclave and everything that it did."""

    def __init__(
        self,
        enclave: MemoryEnclave | None = None,
        *,
        expectations: Expectations | None = None,
    ) -> None:
        self.enclave = enclave or MemoryEnclave()
        self.clock = Clock()
        self.trail = MemoryTrail()
        shape = self.enclave.parameters
        self.book = key_store(shape)
        if expectations is not None:
            self.book = KeyStore(expectations=expectations)
        self.session = Session(
            ClientParts(
                policy=load_profile("default"),
                inspector=ScriptedInspector(),
                local=ScriptedLocal(),
                transport=self.enclave,
                keys=self.book,
                audit=self.trail,
                clock=self.clock,
            )
        )

    async def ask(self) -> Answer:
        return await self.session.ask(QUERY)

    async def stays(self) -> FailureReason | None:
        """Ask; see that it was answered here, and that nothing of it left."""
        answer = await self.ask()
        assert answer.route is Answerer.LOCAL
        assert self.enclave.requests == []
        assert Outcome.ENCLAVE not in {each.outcome for each in self.trail.entries}
        await self.session.close()
        return answer.provenance.fallback


# --- 13: between verifying and sealing ---------------------------------------


async def test_a_key_that_ends_before_the_seal_seals_nothing() -> None:
    """The key expires while the record is written: ``seal`` checks again."""
    bench = Bench()
    key = await bench.session.verified_key()

    async def slow(entry: object) -> None:
        del entry
        bench.clock.now = key.expires_at

    bench.trail.append = slow  # type: ignore[method-assign]
    answer = await bench.ask()
    assert answer.route is Answerer.LOCAL
    assert bench.enclave.sealed == []


async def test_an_answer_that_outlives_its_key_is_read_to_its_end() -> None:
    bench = Bench(MemoryEnclave(parameters=ROOMY))
    bench.enclave.held = 700  # the first frame, and no more
    stream = bench.session.stream(QUERY)
    pieces = aiter(stream)
    first = await anext(pieces)
    bench.clock.now += timedelta(hours=12)
    bench.enclave.go.set()
    rest = [piece.text async for piece in pieces]
    assert first.text + "".join(rest) == "From afar."
    assert stream.answer.finished.receipted
    assert (await bench.ask()).route is Answerer.LOCAL, "the next one is not sealed"


async def test_keys_that_change_under_way_are_verified_before_they_are_used() -> None:
    bench = Bench()
    await bench.session.verified_key()
    bench.enclave.rotate(7)
    assert (await bench.ask()).route is Answerer.ENCLAVE
    assert bench.enclave.fetched == 2
    verdicts = [each.verdict for each in bench.trail.entries]
    assert len(set(verdicts)) == 2, "each record names the verdict of its own key"


def test_a_verified_key_cannot_be_changed_or_made() -> None:
    key = verified(MemoryEnclave())
    with pytest.raises(dataclasses.FrozenInstanceError):
        key.key_configs = b"other"  # type: ignore[misc]
    with pytest.raises(TypeError):
        dataclasses.replace(key, key_configs=b"other", door=object())
    inspection = inspection_of(
        findings=(), payload_digest=QUERY.payload_digest(), messages=1
    )
    allowed = decide(load_profile("default").rulebook, inspection).allowed
    assert allowed is not None
    desk, forged = new_desk(), object.__new__(VerifiedKey)
    permit = permit_for(desk, allowed, key, now=NOW)
    with pytest.raises(TypeError):
        seal(permit, QUERY.payload(), forged, desk=desk, now=NOW)


# --- 14: a key of one's own --------------------------------------------------


async def test_a_relay_that_withholds_renewals_extends_no_key() -> None:
    bench = Bench()
    key = await bench.session.verified_key()
    bench.enclave.fetch_fails = EnclaveError(EnclaveFailure.RELAY_UNREACHABLE)
    bench.clock.now = key.expires_at - timedelta(seconds=1)
    assert (await bench.ask()).route is Answerer.ENCLAVE
    bench.clock.now = key.expires_at
    assert (await bench.ask()).route is Answerer.LOCAL


async def test_another_list_for_the_same_window_is_refused() -> None:
    bench = Bench()
    await bench.session.verified_key()
    mine, bench.enclave.rotations = MemoryEnclave(key_id=9), 0
    with pytest.raises(RefusedError) as refused:
        bench.book.accept(mine.bundle, NOW)
    assert refused.value.code is RefusalCode.KEY_INCONSISTENT


async def test_an_older_bundle_does_not_take_a_newer_ones_place() -> None:
    bench = Bench()
    older = bench.enclave.bundle
    await bench.session.verified_key()
    bench.enclave.rotate(7)
    fresh = bench.book.renew(bench.enclave.bundle, NOW)
    with pytest.raises(RefusedError):
        bench.book.renew(older, NOW)
    assert bench.book.current(NOW) is fresh


# --- 15: nothing fails open --------------------------------------------------


def broken_verifier(*_: object, **__: object) -> None:
    raise RuntimeError("canary-7c1e")


async def test_a_verifier_that_fails_lets_nothing_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("curtilage.attest.sev_snp.verify.verify_snp", broken_verifier)
    monkeypatch.setattr("curtilage.attest.verify.verify_cpu", broken_verifier)
    bench = Bench()
    assert await bench.stays() is EnclaveFailure.EVIDENCE_REFUSED
    with pytest.raises(RefusedError) as refused:
        key_store().accept(MemoryEnclave().bundle, NOW)
    assert refused.value.code is RefusalCode.VERIFIER_UNAVAILABLE
    assert "canary" not in str(refused.value)
    assert UNFORESEEN in str(refused.value)


EMPTIED: dict[str, Callable[[Expectations], Expectations]] = {
    "roots": lambda each: dataclasses.replace(each, roots=()),
    "kinds": lambda each: dataclasses.replace(each, required_cpu_tees=frozenset()),
    "releases": lambda each: dataclasses.replace(each, release_names=frozenset()),
    "ways of shaping": lambda each: dataclasses.replace(each, transport=frozenset()),
    "witnesses": lambda each: dataclasses.replace(
        each, log=dataclasses.replace(each.log, witnesses={})
    ),
    "firmware": lambda each: dataclasses.replace(
        each, snp=dataclasses.replace(each.snp, min_tcb={})
    ),
    "privilege levels": lambda each: dataclasses.replace(
        each, snp=dataclasses.replace(each.snp, vmpl=frozenset())
    ),
}


@pytest.mark.parametrize("emptied", EMPTIED)
async def test_an_empty_list_refuses_everything(emptied: str) -> None:
    expectations = EMPTIED[emptied](deployment().expectations())
    bench = Bench(expectations=expectations)
    assert await bench.stays() is EnclaveFailure.EVIDENCE_REFUSED


async def test_a_network_that_is_down_lets_nothing_out() -> None:
    bench = Bench()
    bench.enclave.fetch_fails = EnclaveError(EnclaveFailure.RELAY_UNREACHABLE)
    assert await bench.stays() is EnclaveFailure.RELAY_UNREACHABLE


@pytest.mark.parametrize("command", ["show", "verify", "verify-evidence"])
def test_a_policy_that_is_not_there_accepts_nothing(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    files = ["--tee", "nitro", "--evidence"] if "-" in command else ["--bundle"]
    options = [*files, "/dev/null", "--policy", "/nowhere/policy.yaml", "--json"]
    assert main(["attest", command, *options]) == 2
    assert capsys.readouterr().out == ""


# --- 16: the reason of a refusal stays local ---------------------------------


def without(part: str) -> Callable[[MemoryEnclave], None]:
    def change(enclave: MemoryEnclave) -> None:
        bundle = json.loads(enclave.bundle)
        bundle[part] = type(bundle[part])()
        enclave.bundle = json.dumps(bundle, separators=(",", ":")).encode()

    return change


def long_ago(enclave: MemoryEnclave) -> None:
    enclave.attest(NOW - timedelta(days=3))


def cut(enclave: MemoryEnclave) -> None:
    enclave.bundle = enclave.bundle[:-1]


CAUSES: dict[str, Callable[[MemoryEnclave], None]] = {
    "no keys": without("key_configs"),
    "no transport": without("transport_parameters"),
    "no evidence": without("cpu"),
    "no release": without("release"),
    "expired": long_ago,
    "cut": cut,
}


class Counting(MemoryEnclave):
    """Notes, in order, what the way out was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    @override
    async def fetch_bundle(self, order: FetchOrder) -> bytes:
        self.asked.append("bundle")
        return await super().fetch_bundle(order)

    @override
    async def send(self, exchange: SealedExchange) -> AsyncGenerator[bytes]:
        self.asked.append("question")
        async for piece in super().send(exchange):
            yield piece


async def test_every_cause_of_refusal_looks_the_same_from_outside() -> None:
    seen: dict[str, list[str]] = {}
    for cause, spoil in CAUSES.items():
        enclave = Counting()
        spoil(enclave)
        bench = Bench(enclave)
        for _ in range(3):
            await bench.ask()
        bench.clock.now += NEGATIVE_TTL
        await bench.ask()
        await bench.session.close()
        seen[cause] = enclave.asked
    assert all(asked == ["bundle", "bundle"] for asked in seen.values()), seen


async def test_errors_contain_nothing_of_the_evidence() -> None:
    for spoil in CAUSES.values():
        enclave = MemoryEnclave()
        spoil(enclave)
        with pytest.raises(RefusedError) as refused:
            key_store().accept(enclave.bundle, NOW)
        assert len(str(refused.value)) < 200
        assert refused.value.__cause__ is None


# --- 17: no other party is asked about it ------------------------------------


async def test_verifying_uses_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a socket was opened")

    bench = Bench()
    for name in ("socket", "create_connection", "getaddrinfo"):
        monkeypatch.setattr(f"socket.{name}", refuse)
    assert (await bench.ask()).route is Answerer.ENCLAVE


# --- every record names its verdict ------------------------------------------


async def test_every_record_names_the_verdict_relied_upon() -> None:
    bench = Bench()
    await bench.ask()
    bench.enclave.rotate(7)
    await bench.ask()
    bench.enclave.fails = EnclaveError(EnclaveFailure.TIMEOUT)
    await bench.ask()
    for entry in bench.trail.entries:
        assert bool(entry.verdict) == (entry.outcome is Outcome.ENCLAVE)
    left = [each for each in bench.trail.entries if each.outcome is Outcome.ENCLAVE]
    assert len(left) == len(bench.enclave.sealed)
