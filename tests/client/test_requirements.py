"""Data of a class that demands more goes to an enclave that shows it, or nowhere."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curtilage.attest.binding import challenge_report_data
from curtilage.attest.claims import Claim
from curtilage.attest.evidence_json import encode_cpu_evidence
from curtilage.attest.requirements import unmet
from curtilage.client.audit.record import Outcome
from curtilage.client.chat.answer import Answer, Answerer
from curtilage.client.chat.query import Message, Query
from curtilage.client.errors import AttemptFailure, FailureReason
from curtilage.client.parts import ClientParts
from curtilage.client.remote.challenges import NEGATIVE_TTL
from curtilage.client.remote.reasons import EnclaveFailure, Unmet
from curtilage.client.session import Session
from curtilage.policy.document.attestation import CHALLENGE_AGE_S
from curtilage.policy.document.load import load_policy
from curtilage.policy.expectations import requirement_for
from curtilage.wire.shaping import TransportParameters
from curtilage_dev.deployment import MEASUREMENT
from support.client_parts import MemoryTrail, ScriptedInspector, ScriptedLocal
from support.evidence_policies import emulated_policy
from support.memory_enclave import (
    QUICK,
    ROOMY,
    Clock,
    MemoryEnclave,
    Reply,
    evidence_reply,
    key_store,
    report_over,
    verified,
)

QUERY = Query(messages=(Message(role="user", content="canary-7c1e"),), stream=True)
STRICT = "topic.finance"
"""A class that may leave, and of which a policy can demand more."""


class Bench:
    """A session under a policy that demands more for one class."""

    def __init__(
        self,
        demand: Mapping[str, object],
        *found: str,
        shape: TransportParameters = QUICK,
    ) -> None:
        self.trail = MemoryTrail()
        self.enclave = MemoryEnclave(parameters=shape)
        self.clock = Clock()
        self.policy = load_policy(emulated_policy({"classes": [STRICT], **demand}))
        self.session = Session(
            ClientParts(
                policy=self.policy,
                inspector=ScriptedInspector(*found),
                local=ScriptedLocal(),
                transport=self.enclave,
                keys=key_store(shape, policy=self.policy),
                audit=self.trail,
                clock=self.clock,
            )
        )

    async def ask(self) -> Answer:
        return await self.session.ask(QUERY)

    async def stays(self, reason: FailureReason) -> None:
        """Ask, and see that nothing of the question was recorded or sent."""
        answer = await self.ask()
        assert answer.route is Answerer.LOCAL
        assert answer.provenance.fallback is reason
        assert self.enclave.requests == []
        last = self.trail.entries[-1]
        assert (last.outcome, last.fallback) == (Outcome.LOCAL, reason.value)
        assert Outcome.ENCLAVE not in {each.outcome for each in self.trail.entries}


DEMANDS: dict[str, tuple[Mapping[str, object], FailureReason]] = {
    "hardware": ({"require": ["hardware"]}, Unmet.HARDWARE),
    "gpu": ({"require": ["gpu"]}, Unmet.GPU),
    "no_write": ({"require": ["no_write"]}, Unmet.NO_WRITE),
    "isolation": ({"require": ["isolation"]}, Unmet.ISOLATION),
    "ephemerality": ({"require": ["ephemerality"]}, Unmet.EPHEMERALITY),
    "custody": ({"require": ["custody"]}, Unmet.CUSTODY),
    "cpu_tee": ({"cpu_tees": ["sev-snp"]}, Unmet.CPU_TEE),
    "no kind at all": ({"cpu_tees": []}, Unmet.CPU_TEE),
    "evidence_age": ({"max_evidence_age_s": 1}, Unmet.EVIDENCE_AGE),
    "operator": ({"operators": ["Example AG"]}, Unmet.RESIDENCY),
    "country": ({"countries": ["CH", "DE"]}, Unmet.RESIDENCY),
    "region": ({"regions": ["zrh-1"]}, Unmet.RESIDENCY),
    "several": (
        {"require": ["no_write", "gpu"], "cpu_tees": ["sev-snp"]},
        Unmet.GPU,
    ),
}


@pytest.mark.parametrize("demand", DEMANDS)
async def test_what_is_not_shown_keeps_such_data_here(demand: str) -> None:
    wanted, reason = DEMANDS[demand]
    bench = Bench(wanted, STRICT)
    bench.clock.move(minutes=1)
    await bench.stays(reason)
    assert bench.enclave.sealed == [], "not even a challenge was sent"


@pytest.mark.parametrize("demand", DEMANDS)
async def test_other_data_may_still_leave(demand: str) -> None:
    bench = Bench(DEMANDS[demand][0])
    assert (await bench.ask()).route is Answerer.ENCLAVE


MET: dict[str, Mapping[str, object]] = {
    "kind": {"cpu_tees": ["emulated-sev-snp"]},
    "age": {"max_evidence_age_s": 43200},
    "challenge": {"challenge": True},
    "all": {
        "cpu_tees": ["emulated-sev-snp"],
        "max_evidence_age_s": 43200,
        "challenge": True,
    },
}


@pytest.mark.parametrize("shape", [QUICK, ROOMY], ids=["bare", "receipts"])
@pytest.mark.parametrize("demand", MET)
async def test_what_is_shown_lets_such_data_leave(
    demand: str, shape: TransportParameters
) -> None:
    bench = Bench(MET[demand], STRICT, shape=shape)
    assert (await bench.ask()).route is Answerer.ENCLAVE


def test_every_claim_has_a_reason_of_its_own() -> None:
    for word in (*Claim, "cpu_tee", "evidence_age", "challenge", "residency"):
        assert Unmet(f"unmet_{word}")


@given(st.sets(st.sampled_from(list(Claim))))
def test_dropping_any_claim_never_makes_a_key_do(dropped: set[Claim]) -> None:
    """Whatever a key lacks is named; nothing else makes up for it."""
    bench = Bench({"require": [claim.value for claim in Claim]}, STRICT)
    requirement = requirement_for(bench.policy, [STRICT])
    key = verified(bench.enclave)
    lacking = unmet(key, requirement, now=bench.clock(), challenged=True)
    assert set(lacking) == {claim.value for claim in Claim if claim not in key.shows}
    assert all(claim in lacking for claim in dropped - key.shows)


# --- the challenge -----------------------------------------------------------


async def test_a_challenge_goes_before_the_question_and_is_recorded() -> None:
    bench = Bench({"challenge": True}, STRICT)
    answer = await bench.ask()
    assert answer.route is Answerer.ENCLAVE
    assert len(bench.enclave.challenges) == len(bench.enclave.requests) == 1
    challenge, question = bench.trail.entries
    assert challenge.outcome is Outcome.CHALLENGE
    assert challenge.rule == "attestation.challenge"
    assert challenge.classes == {}
    assert question.outcome is Outcome.ENCLAVE
    assert challenge.query != question.query


async def test_a_challenge_looks_like_a_short_question() -> None:
    bench = Bench({"challenge": True}, STRICT, shape=ROOMY)
    await bench.ask()
    challenge, question = bench.enclave.sealed
    assert len(challenge) == len(question)
    assert b"canary" not in bench.enclave.challenges[0]


async def test_one_answer_is_good_for_a_while() -> None:
    bench = Bench({"challenge": True}, STRICT)
    await bench.ask()
    bench.clock.now += timedelta(seconds=CHALLENGE_AGE_S) - timedelta(seconds=1)
    await bench.ask()
    assert len(bench.enclave.challenges) == 1
    bench.clock.now += timedelta(seconds=1)
    await bench.ask()
    assert len(bench.enclave.challenges) == 2
    nonces = [content[:80] for content in bench.enclave.challenges]
    assert len(set(nonces)) == 2, "no nonce twice"


async def test_the_policy_says_for_how_long() -> None:
    bench = Bench({"challenge": True, "max_evidence_age_s": 43200}, STRICT)
    await bench.ask()
    bench.clock.now += timedelta(hours=1)
    await bench.ask()
    assert len(bench.enclave.challenges) == 1


async def test_a_clock_set_back_does_not_keep_an_answer_good() -> None:
    bench = Bench({"challenge": True}, STRICT)
    await bench.ask()
    bench.clock.now -= timedelta(minutes=5)
    await bench.ask()
    assert len(bench.enclave.challenges) == 2


async def test_another_key_is_challenged_anew() -> None:
    bench = Bench({"challenge": True}, STRICT)
    await bench.ask()
    bench.enclave.rotate(7)
    answer = await bench.ask()  # the old key is unknown now
    assert answer.route is Answerer.ENCLAVE
    assert len(bench.enclave.challenges) == 2


def shows(report_data: bytes, *, measurement: bytes = MEASUREMENT) -> Reply:
    evidence = report_over(report_data, measurement=measurement)
    return evidence_reply(encode_cpu_evidence(evidence))


def other_nonce(nonce: bytes, b0: bytes) -> Reply:
    del nonce
    return shows(challenge_report_data(b0, bytes(32), emulated=True))


def other_binding(nonce: bytes, b0: bytes) -> Reply:
    del b0
    return shows(challenge_report_data(bytes(64), nonce, emulated=True))


def genuine_label(nonce: bytes, b0: bytes) -> Reply:
    return shows(challenge_report_data(b0, nonce, emulated=False))


def other_image(nonce: bytes, b0: bytes) -> Reply:
    data = challenge_report_data(b0, nonce, emulated=True)
    return shows(data, measurement=bytes(48))


def json_of(content: bytes, *, status: int = 200) -> Callable[[bytes, bytes], Reply]:
    def answer(nonce: bytes, b0: bytes) -> Reply:
        del nonce, b0
        return Reply(content=content, media_type=b"application/json", status=status)

    return answer


def with_error(nonce: bytes, b0: bytes) -> Reply:
    right = shows(challenge_report_data(b0, nonce, emulated=True))
    content = right.content[:-1] + b',"error":{}}'
    return Reply(content=content, media_type=b"application/json")


WRONG: dict[str, Callable[[bytes, bytes], Reply]] = {
    "other nonce": other_nonce,
    "other binding": other_binding,
    "label of hardware": genuine_label,
    "other image": other_image,
    "no evidence": json_of(b"{}"),
    "evidence of no kind": json_of(b'{"evidence":{}}'),
    "an error behind a 200": json_of(b'{"error":{"code":"no_evidence"}}'),
    "evidence and an error": with_error,
    "no JSON": json_of(b"]"),
    "switched off": json_of(b'{"error":{}}', status=404),
}


@pytest.mark.parametrize("wrong", WRONG)
async def test_a_challenge_that_is_not_met_keeps_the_question_here(wrong: str) -> None:
    bench = Bench({"challenge": True}, STRICT)
    bench.enclave.challenged = WRONG[wrong]
    await bench.stays(Unmet.CHALLENGE)
    assert len(bench.enclave.challenges) == 1


async def test_a_refused_challenge_is_not_repeated_at_once() -> None:
    bench = Bench({"challenge": True}, STRICT)
    good, bench.enclave.challenged = bench.enclave.challenged, other_nonce
    for _ in range(3):
        await bench.stays(Unmet.CHALLENGE)
    assert len(bench.enclave.challenges) == 1
    bench.enclave.challenged = good
    bench.clock.now += NEGATIVE_TTL
    assert (await bench.ask()).route is Answerer.ENCLAVE


async def test_an_enclave_that_is_busy_is_challenged_again_at_once() -> None:
    bench = Bench({"challenge": True}, STRICT)
    good = bench.enclave.challenged
    bench.enclave.challenged = json_of(b'{"error":{}}', status=503)
    await bench.stays(EnclaveFailure.BUSY)
    bench.enclave.challenged = good
    assert (await bench.ask()).route is Answerer.ENCLAVE


async def test_a_challenge_that_cannot_be_recorded_is_not_sent() -> None:
    bench = Bench({"challenge": True}, STRICT)
    bench.trail.broken = True
    answer = await bench.ask()
    assert answer.provenance.fallback is AttemptFailure.AUDIT_FAILED
    assert bench.enclave.sealed == []


async def test_the_question_waits_for_the_end_of_the_challenge() -> None:
    """Side by side, the two would show that one of them is a challenge."""
    bench, end = Bench({"challenge": True}, STRICT), asyncio.Event()

    async def body(data: bytes) -> AsyncGenerator[bytes]:
        yield data[:-100]  # all that is said, and most of the filler
        await end.wait()
        yield data[-100:]

    bench.enclave.body = body  # type: ignore[method-assign]
    asking = asyncio.create_task(bench.ask())
    await bench.enclave.begun.wait()
    for _ in range(500):
        await asyncio.sleep(0)
    assert len(bench.enclave.sealed) == 1
    end.set()
    assert (await asking).route is Answerer.ENCLAVE
    assert len(bench.enclave.sealed) == 2


async def test_what_lapses_before_the_seal_is_not_sealed() -> None:
    """The record takes so long that the evidence grows too old meanwhile."""
    bench = Bench({"max_evidence_age_s": 60}, STRICT)
    await bench.session.verified_key()

    async def slow(entry: object) -> None:
        del entry
        bench.clock.move(minutes=2)

    bench.trail.append = slow  # type: ignore[method-assign]
    answer = await bench.ask()
    assert answer.provenance.fallback is Unmet.EVIDENCE_AGE
    assert bench.enclave.sealed == []
