"""In what condition a client is: what is wrong, since when it is news, what it says."""

import dataclasses
import re
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from curtilage.client.answering.background import LOOK_S
from curtilage.client.chat.options import Require
from curtilage.client.errors import (
    AttemptFailure,
    ClientError,
    EnclaveError,
)
from curtilage.client.health import (
    HOLD_S,
    PARTS,
    WORDS,
    Changes,
    Condition,
    Detectors,
    Evidence,
    Health,
    Note,
    Part,
    Reason,
    Status,
    reason_of,
)
from curtilage.client.local.reasons import LocalFailure
from curtilage.client.on_premises.reasons import OnPremisesFailure
from curtilage.client.parts import AnswersLocally, ClientParts, UnavailableLocal
from curtilage.client.queue.reasons import REASONS
from curtilage.client.remote.reasons import EnclaveFailure
from curtilage.client.routing.estimate import RulesEstimator
from curtilage.client.routing.router import Router
from curtilage.client.session import Session
from curtilage.policy.decision.tiers import Tier, TierKind
from curtilage.policy.document.load import load_policy
from curtilage.policy.document.model import Policy
from curtilage.policy.signing import Currency, public_bytes, sign_policy
from support.client_parts import (
    PLAIN,
    MemoryTrail,
    ScriptedInspector,
    ScriptedLocal,
    query,
)
from support.memory_enclave import NOW, Clock, MemoryEnclave, key_store

OF_THE_QUERY = {
    AttemptFailure.AUDIT_FAILED,  # which the audit trail says itself
    EnclaveFailure.DATE_REFUSED,
    LocalFailure.DRAFT_REJECTED,
    OnPremisesFailure.NO_LOGPROBS,
    OnPremisesFailure.NOT_DETERMINISTIC,
    OnPremisesFailure.REFUSED,
    OnPremisesFailure.TOO_LONG,
    LocalFailure.TOO_LONG,
    AttemptFailure.NOT_PERMITTED,
    EnclaveFailure.REFUSED,
    EnclaveFailure.REFUSED_QUERY,
    EnclaveFailure.TOO_LARGE,
    EnclaveFailure.TOO_LONG,
}
# What passes by itself within seconds, and is no change of state.
PASSING = {
    EnclaveFailure.BUSY,
    EnclaveFailure.TOO_MANY_RUNNING,
    LocalFailure.BUSY,
    OnPremisesFailure.BUSY,
}
CONFIGURED = {EnclaveFailure.NOT_CONFIGURED, EnclaveFailure.NO_ENCLAVE_NAMED}
KEY = Ed25519PrivateKey.from_private_bytes(bytes([5]) * 32)
LONG_AFTER_S = 10 * HOLD_S
ASKED = query("hello", require=Require.ENCLAVE)


# --- the lists ----------------------------------------------------------------------


def test_every_failure_is_a_reason_or_passes_or_is_of_the_query() -> None:
    for failure in REASONS.values():
        passes = (
            failure in PASSING | OF_THE_QUERY | CONFIGURED
            or failure.value.startswith("unmet_")
        )
        assert (reason_of(failure) is None) == passes, failure


def test_every_reason_has_a_part_and_words() -> None:
    assert PARTS.keys() == set(Reason)
    assert WORDS.keys() == {*Reason, Note.LOADED, Note.REFRESHED, Note.RESTARTED}
    assert all(WORDS.values())


# --- the whole ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "answers", "status"),
    [
        (None, True, Status.OK),
        (Reason.AUDIT_FAILED, True, Status.DEGRADED),
        (Reason.AUDIT_FAILED, False, Status.FAILING),
        (None, False, Status.FAILING),
    ],
)
def test_the_whole_is_as_its_worst_part(
    reason: Reason | None, answers: bool, status: Status
) -> None:
    condition = Condition(part=Part.AUDIT, reason=reason)
    tiers = ((Tier(id="local", kind=TierKind.IN_PROCESS), answers),)
    health = Health(conditions=(condition,), tiers=tiers)
    assert health.status is status
    wrong = {each.reason for each in health.reasons}
    assert wrong == {reason, None if answers else Reason.NO_TIER} - {None}


@pytest.mark.parametrize(
    ("after", "reason"),
    [
        (timedelta(), None),
        (timedelta(minutes=53), None),
        (timedelta(minutes=55), Reason.EVIDENCE_EXPIRING),
        (timedelta(hours=1), Reason.EVIDENCE_EXPIRED),
    ],
)
def test_evidence_that_is_not_renewed_is_reported(
    after: timedelta, reason: Reason | None
) -> None:
    evidence, until = Evidence(), NOW + timedelta(hours=1)
    evidence.condition(until, NOW)
    found = evidence.condition(until, NOW + after)
    assert (found.reason, found.until) == (reason, until)
    renewed = evidence.condition(until + timedelta(hours=1), NOW + after)
    assert renewed.reason is None
    assert renewed.mark != found.mark


# --- what is news -------------------------------------------------------------------

BROKEN = Condition(part=Part.RELAY, reason=Reason.RELAY_UNREACHABLE)
WELL = Condition(part=Part.RELAY)


def noted(changes: Changes, condition: Condition, now_s: float) -> list[str]:
    return [
        (each.note or each.condition.reason or Note.RECOVERED).value
        for each in changes.news([condition], now_s)
    ]


def test_a_change_is_news_once() -> None:
    changes = Changes()
    assert noted(changes, WELL, 0) == []
    assert noted(changes, BROKEN, 1) == ["relay_unreachable"]
    assert noted(changes, BROKEN, LONG_AFTER_S) == []
    assert noted(changes, WELL, LONG_AFTER_S) == ["ok"]


def test_what_is_wrong_at_the_start_is_news() -> None:
    assert noted(Changes(), BROKEN, 0) == ["relay_unreachable"]


def test_another_reason_is_news() -> None:
    changes = Changes()
    other = dataclasses.replace(BROKEN, reason=Reason.RELAY_DENIED)
    assert noted(changes, BROKEN, 0) == ["relay_unreachable"]
    assert noted(changes, other, LONG_AFTER_S) == ["relay_denied"]


def test_what_flaps_is_news_now_and_then_and_ends_as_it_is() -> None:
    changes = Changes()
    lines = [
        line
        for second in range(1000)
        for line in noted(changes, (WELL, BROKEN)[second % 2], second)
    ]
    assert len(lines) <= 1000 / HOLD_S + 1
    assert noted(changes, BROKEN, 2000) + noted(changes, WELL, 3000)
    assert noted(changes, WELL, 4000) == []


def test_what_flapped_is_reported_as_it_is_in_the_end() -> None:
    changes = Changes()
    assert noted(changes, BROKEN, 0) == ["relay_unreachable"]
    assert noted(changes, WELL, 1) == []
    assert noted(changes, BROKEN, 2) == []
    assert noted(changes, WELL, HOLD_S - 1) == []
    assert noted(changes, WELL, HOLD_S) == ["ok"]


@pytest.mark.parametrize(
    ("part", "note"),
    [
        (Part.MODEL, "loaded"),
        (Part.EVIDENCE, "refreshed"),
        (Part.DETECTORS, "restarted"),
    ],
)
def test_what_happens_to_a_part_in_order_is_news(part: Part, note: str) -> None:
    changes = Changes()
    assert noted(changes, Condition(part=part), 0) == []
    assert noted(changes, Condition(part=part, mark=1), 1) == [note]
    assert noted(changes, Condition(part=part, mark=1), LONG_AFTER_S) == []


def test_two_of_a_kind_are_two() -> None:
    changes = Changes()
    ward, lab = (
        Condition(part=Part.ON_PREMISES, tier=each, reason=Reason.ON_PREMISES_LATE)
        for each in (Part.RELAY, Part.QUEUE)  # any members of a closed list
    )
    assert len(list(changes.news([ward, lab], 0))) == 2


@pytest.mark.parametrize(
    ("detectors", "reason"),
    [
        (Detectors(), None),
        (Detectors(ready=False), Reason.DETECTORS_ABSENT),
        (Detectors(broken=True), Reason.DETECTORS_BROKEN),
        (Detectors(restarts=3), None),
    ],
)
def test_detectors_say_how_they_are(
    detectors: Detectors, reason: Reason | None
) -> None:
    assert detectors.condition.reason is reason
    assert detectors.condition.mark == detectors.restarts


# --- a session ----------------------------------------------------------------------

CHOOSES = load_policy(
    PLAIN + "\nrouting: {tiers: [{id: local, kind: in_process}, "
    "{id: enclave, kind: attested}]}\n"
)
PLAINLY = load_policy(PLAIN)


class Running:
    """A session of in-memory parts that a test breaks and mends."""

    def __init__(
        self,
        *,
        policy: Policy = PLAINLY,
        local: AnswersLocally | None = None,
        currency: Currency | None = None,
    ) -> None:
        self.clock = Clock()
        self.enclave = MemoryEnclave()
        self.audit = MemoryTrail()
        self.detectors = Detectors()
        self.time_s = 0.0
        router = None
        if policy.routing is not None:
            router = Router(
                policy.routing,
                RulesEstimator(threshold=0.5),
                clock=lambda: self.time_s,
            )
        self.session = Session(
            ClientParts(
                policy=policy,
                inspector=ScriptedInspector(),
                local=local or ScriptedLocal(),
                transport=self.enclave,
                keys=key_store(policy=policy),
                audit=self.audit,
                clock=self.clock,
                router=router,
                detectors=lambda: self.detectors,
                currency=currency,
            )
        )

    def enclave_is_available(self) -> bool:
        there = {
            tier.kind: available for tier, available in self.session.health().tiers
        }
        return there[TierKind.ATTESTED]

    @property
    def wrong(self) -> set[Reason]:
        found = (each.reason for each in self.session.health().reasons)
        return {each for each in found if each is not None}


def dead() -> EnclaveError:
    return EnclaveError(EnclaveFailure.RELAY_UNREACHABLE)


@pytest.mark.parametrize("policy", [PLAINLY, CHOOSES])
async def test_a_dead_relay_shows_without_a_question(policy: Policy) -> None:
    running = Running(policy=policy)
    async with running.session as session:
        assert (running.wrong, running.enclave_is_available()) == (set(), True)
        running.enclave.fetch_fails = dead()
        await session.look()
        assert running.wrong == {Reason.RELAY_UNREACHABLE}
        assert not running.enclave_is_available()
        assert session.health().status is Status.DEGRADED


@pytest.mark.parametrize("policy", [PLAINLY, CHOOSES])
async def test_a_relay_that_fails_and_comes_back_shows(
    policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = Running(policy=policy)
    monkeypatch.setattr(
        "curtilage.client.answering.background.monotonic", lambda: running.time_s
    )
    async with running.session as session:
        await session.look()
        assert running.wrong == set()
        fetched = running.enclave.fetched
        await session.look()
        assert running.enclave.fetched == fetched  # all is well: nothing is asked
        running.enclave.fails = dead()
        for _ in range(3):
            with pytest.raises(ClientError):
                await session.ask(ASKED)
        assert running.wrong == {Reason.RELAY_UNREACHABLE}
        running.enclave.fails = None
        running.time_s += 3600
        await session.look()
        assert running.wrong == set()
        assert running.enclave_is_available()


@pytest.mark.parametrize("policy", [PLAINLY, CHOOSES])
async def test_a_failure_that_opens_no_breaker_is_looked_at_again(
    policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = Running(policy=policy)
    monkeypatch.setattr(
        "curtilage.client.answering.background.monotonic", lambda: running.time_s
    )
    async with running.session as session:
        await session.look()
        running.enclave.fails = EnclaveError(EnclaveFailure.RECEIPT_INVALID)
        with pytest.raises(ClientError):
            await session.ask(ASKED)
        running.enclave.fails = None
        assert running.wrong == {Reason.RECEIPT_INVALID}
        fetched = running.enclave.fetched
        running.time_s += LOOK_S - 1
        await session.look()
        assert running.enclave.fetched == fetched
        assert running.wrong == {Reason.RECEIPT_INVALID}
        running.time_s += 1
        await session.look()
        assert running.wrong == set()
        fetched = running.enclave.fetched
        running.time_s += LOOK_S
        await session.look()
        assert running.enclave.fetched == fetched


@pytest.mark.parametrize("policy", [PLAINLY, CHOOSES])
async def test_what_still_fails_is_looked_for_every_half_minute(
    policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = Running(policy=policy)
    monkeypatch.setattr(
        "curtilage.client.answering.background.monotonic", lambda: running.time_s
    )
    looks: list[float] = []
    async with running.session as session:
        running.enclave.fetch_fails = dead()
        for _ in range(200):
            before = running.enclave.fetched
            await session.look()
            if running.enclave.fetched > before:
                looks.append(running.time_s)
            running.time_s += 1
    assert 200 / LOOK_S <= len(looks) <= 2 * 200 / LOOK_S


async def test_an_answer_says_that_the_enclave_is_there_again() -> None:
    running = Running()
    async with running.session as session:
        running.enclave.fails = dead()
        with pytest.raises(ClientError):
            await session.ask(ASKED)
        assert running.wrong == {Reason.RELAY_UNREACHABLE}
        running.enclave.fails = None
        await session.ask(ASKED)
        assert running.wrong == set()


async def test_refused_evidence_is_the_evidences() -> None:
    running = Running()
    async with running.session as session:
        running.enclave.fetch_fails = EnclaveError(EnclaveFailure.EVIDENCE_REFUSED)
        await session.look()
        (wrong,) = session.health().reasons
        assert (wrong.part, wrong.reason) == (Part.EVIDENCE, Reason.EVIDENCE_REFUSED)


async def test_verified_evidence_says_until_when() -> None:
    running = Running()
    async with running.session as session:
        await session.look()
        (evidence,) = [
            each for each in session.health().conditions if each.part is Part.EVIDENCE
        ]
        assert evidence.until is not None
        assert evidence.until > running.clock()
        running.clock.now = evidence.until
        assert running.wrong == {Reason.EVIDENCE_EXPIRED}


def full_disk(running: Running) -> None:
    running.audit.broken = True


def no_detectors(running: Running) -> None:
    running.detectors = Detectors(ready=False)


def broken_detectors(running: Running) -> None:
    running.detectors = Detectors(broken=True)


@pytest.mark.parametrize(
    ("breaks", "reason"),
    [
        (full_disk, Reason.AUDIT_FAILED),
        (no_detectors, Reason.DETECTORS_ABSENT),
        (broken_detectors, Reason.DETECTORS_BROKEN),
    ],
)
@pytest.mark.parametrize("policy", [PLAINLY, CHOOSES])
async def test_where_nothing_can_be_sent_no_enclave_is_available(
    breaks: Callable[[Running], None], reason: Reason, policy: Policy
) -> None:
    running = Running(policy=policy)
    async with running.session as session:
        assert running.enclave_is_available()
        breaks(running)
        assert not running.enclave_is_available()
        assert running.wrong == {reason}
        assert session.health().status is Status.DEGRADED


async def test_without_a_model_a_client_answers_elsewhere() -> None:
    running = Running(local=UnavailableLocal("there is no model"))
    async with running.session as session:
        assert running.wrong == {Reason.MODEL_MISSING}
        assert session.health().status is Status.DEGRADED
        full_disk(running)
        assert session.health().status is Status.FAILING
        assert Reason.NO_TIER in running.wrong


def signed_until(until: datetime) -> Currency:
    signature = sign_policy(
        PLAINLY.digest,
        KEY,
        not_before=int((NOW - timedelta(days=1)).timestamp()),
        not_after=int(until.timestamp()),
    )
    return Currency(
        policy_digest=PLAINLY.digest,
        signature=signature.encode(),
        public_key=public_bytes(KEY),
    )


@pytest.mark.parametrize(
    ("left", "reason"),
    [
        (timedelta(days=15), None),
        (timedelta(days=13), Reason.POLICY_EXPIRING),
        (timedelta(seconds=-1), Reason.POLICY_NOT_CURRENT),
    ],
)
async def test_a_signature_is_reported_before_it_ends(
    left: timedelta, reason: Reason | None
) -> None:
    running = Running(currency=signed_until(NOW + left))
    async with running.session:
        assert running.wrong == ({reason} - {None})
        assert running.enclave_is_available() == (
            reason is not Reason.POLICY_NOT_CURRENT
        )


async def test_a_health_report_verifies_the_signature_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    running = Running(currency=signed_until(NOW + timedelta(days=15)))
    asked: list[datetime] = []

    def problem(_: Currency, now: datetime) -> None:
        asked.append(now)

    async with running.session as session:
        monkeypatch.setattr(Currency, "problem", problem)
        health = session.health()
        assert (len(health.tiers), len(asked)) == (2, 1)


def test_operating_md_names_every_reason_and_its_part() -> None:
    text = (Path(__file__).parents[2] / "docs" / "operating.md").read_text("utf-8")
    _, _, section = text.partition("| reason | part | what to do |\n")
    table, _, _ = section.partition("\n\n")
    named = {
        (Reason(reason), Part(part))
        for row in table.splitlines()[1:]
        for reasons, parts in [row.split("|")[1:3]]
        for reason in re.findall("`([a-z_]+)`", reasons)
        for part in re.findall("`([a-z_]+)`", parts)
    }
    assert named == set(PARTS.items())
