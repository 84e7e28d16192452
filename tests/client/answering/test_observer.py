"""What is counted of queries, and recorded of their answers."""

from collections.abc import AsyncGenerator, Iterator
from datetime import UTC, datetime

import pytest

from curtilage.client import telemetry
from curtilage.client.answering.answer_stream import AnswerStream
from curtilage.client.answering.attempt import Case
from curtilage.client.answering.course import Course
from curtilage.client.answering.observer import Delivery, Observer
from curtilage.client.audit.record import Outcome
from curtilage.client.audit.recorder import QueryRecorder
from curtilage.client.chat.answer import (
    Answerer,
    Delta,
    Finished,
    Provenance,
    Replaced,
    Retract,
    RetractReason,
    SessionEvent,
    Verified,
)
from curtilage.client.chat.options import RoutingOptions
from curtilage.client.errors import (
    BlockedError,
    ClientError,
    EnclaveError,
    FailureReason,
    IncompleteAnswerError,
    NotRoutedError,
    UsageError,
)
from curtilage.client.local.reasons import LocalFailure, LocalModelError
from curtilage.client.remote.reasons import EnclaveFailure
from curtilage.client.route import Plan, Ways
from curtilage.client.routing.utility import Reason
from curtilage.policy.decision.decide import decide
from curtilage.policy.decision.tiers import (
    ENCLAVE_TIER,
    LOCAL_TIER,
    Permitted,
    RoutingClass,
    Tier,
)
from curtilage.policy.document.load import load_profile
from support.client_parts import MemoryTrail
from support.counts import Counts
from support.inspections import inspection_of

POLICY = load_profile("default")
DONE = Finished(finish_reason="stop", prompt_tokens=3, completion_tokens=2)
DRAFT = Delta(text="At", tentative=True)
TEXT = Delta(text="At")
NOT_GOOD = Retract(from_char=0, reason=RetractReason.NOT_GOOD_ENOUGH)
BROKE_OFF = Retract(from_char=0, reason=RetractReason.BROKE_OFF)


@pytest.fixture
def counts() -> Iterator[Counts]:
    counts = Counts()
    telemetry.use(counts.telemetry)
    yield counts
    telemetry.use(None)


class Bench:
    """One query that is observed."""

    def __init__(self, *, retracts: bool = False, chosen: bool = True) -> None:
        inspection = inspection_of(payload_digest=bytes(32), findings=(), messages=1)
        self.trail = MemoryTrail()
        recorder = QueryRecorder(
            self.trail, POLICY, inspection, decide(POLICY.rulebook, inspection)
        )
        self.stream = AnswerStream(_nothing)
        self.stream.retracts = retracts
        case = Case(
            recorder=recorder,
            ways=Ways(
                permitted=Permitted(routing_class=RoutingClass.PUBLIC, tiers=()),
                by_tier={},
            ),
            options=RoutingOptions(),
            max_tokens=512,
            messages=1,
            characters=0,
            text_bytes=0,
            payload=0,
        )
        plan = Plan(tiers=(), why=Reason.AIM if chosen else "")
        self.delivery = Delivery(
            Course(case, plan, self.stream, began_s=0.0),
            Observer([LOCAL_TIER, ENCLAVE_TIER], None),
            None,
            now=lambda: datetime(2026, 1, 1, tzinfo=UTC),
            trace=lambda _: None,
        )

    def told(
        self, tier: Tier, fallback: FailureReason | None = None, *, left_out: int = 0
    ) -> None:
        """Say who answers from here on."""
        self.stream.status.source = Provenance(
            route=Answerer.LOCAL if tier is LOCAL_TIER else Answerer.ENCLAVE,
            model="m",
            classes=(),
            rule="r",
            reason="",
            policy_digest="",
            fallback=fallback,
            tier=tier.id,
            left_out=left_out,
        )

    async def saw(self, *events: SessionEvent) -> None:
        for event in events:
            await self.delivery.saw(event)

    @property
    def recorded(self) -> list[tuple[Outcome, str]]:
        return [(each.outcome, each.fallback) for each in self.trail.entries]


async def _nothing(stream: AnswerStream) -> AsyncGenerator[SessionEvent]:
    del stream
    for _ in ():
        yield DONE


async def test_an_answer_is_counted_by_who_gave_it(counts: Counts) -> None:
    bench = Bench()
    bench.told(LOCAL_TIER)
    await bench.saw(TEXT, DONE)
    assert counts.of("answered") == {"local": 1}
    assert counts.of("local_share") == {"": 1}
    assert bench.recorded == []


async def test_a_draft_that_will_do_is_counted(counts: Counts) -> None:
    bench = Bench()
    bench.told(LOCAL_TIER)
    await bench.saw(DRAFT, Verified(), DONE)
    assert counts.of("verifier.accept") == {"good local": 1}
    assert counts.of("escalations") == {}
    assert bench.recorded == []


@pytest.mark.parametrize("retracts", [False, True])
async def test_a_draft_that_will_not_do_is_escalated(
    counts: Counts, *, retracts: bool
) -> None:
    bench = Bench(retracts=retracts)
    bench.told(LOCAL_TIER)
    await bench.saw(DRAFT, NOT_GOOD, Replaced(tier="enclave"))
    # Before the other one is asked; and taken back is only what was shown.
    shown = [(Outcome.REPLACED, "")] if retracts else []
    assert bench.recorded == [(Outcome.ESCALATED, ""), *shown]
    bench.told(ENCLAVE_TIER, LocalFailure.DRAFT_REJECTED)
    await bench.saw(TEXT, DONE)
    assert len(bench.recorded) == 1 + len(shown), "a better answer is not less"
    assert counts.of("verifier.accept") == {"bad local": 1}
    assert counts.of("escalations") == {"local": 1}
    assert counts.of("answered") == {"enclave": 1}


async def test_a_draft_that_is_the_answer_after_all_is_less(counts: Counts) -> None:
    del counts
    bench = Bench()
    bench.told(LOCAL_TIER)
    await bench.saw(DRAFT, NOT_GOOD, Replaced(tier="enclave"))
    bench.told(LOCAL_TIER, EnclaveFailure.BUSY)
    await bench.saw(TEXT, DONE)
    assert bench.recorded == [(Outcome.ESCALATED, ""), (Outcome.DEGRADED, "busy")]


async def test_an_answer_that_broke_off_is_replaced_and_not_escalated(
    counts: Counts,
) -> None:
    bench = Bench(retracts=True)
    bench.told(ENCLAVE_TIER)
    await bench.saw(TEXT, BROKE_OFF, Replaced(tier="local"))
    bench.told(LOCAL_TIER, EnclaveFailure.ANSWER_INCOMPLETE)
    await bench.saw(TEXT, DONE)
    assert bench.recorded == [
        (Outcome.REPLACED, ""),
        (Outcome.DEGRADED, "answer_incomplete"),
    ]
    assert counts.of("escalations") == {}


async def test_an_answer_about_a_part_of_the_question_is_less() -> None:
    bench = Bench()
    bench.told(LOCAL_TIER, left_out=9000)
    await bench.saw(TEXT, DONE)
    assert bench.recorded == [(Outcome.DEGRADED, "local_too_long")]


async def test_where_nobody_chose_nothing_is_less_than_what_was_chosen() -> None:
    bench = Bench(chosen=False)
    bench.told(LOCAL_TIER, EnclaveFailure.BUSY)
    await bench.saw(TEXT, DONE)
    assert bench.recorded == []


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (EnclaveError(EnclaveFailure.BUSY), "busy"),
        (LocalModelError("it is missing"), "local_unavailable"),
        (IncompleteAnswerError(EnclaveFailure.TIMEOUT), "cut"),
        (NotRoutedError("required_unmet", "..."), "required_unmet"),
        (NotRoutedError("queued", "..."), "queued"),
        (NotRoutedError("a word from elsewhere", "..."), "other"),
        (BlockedError(rule="r", reason="", classes=(), policy_digest=""), "blocked"),
    ],
)
def test_a_refusal_is_counted_by_its_code(
    counts: Counts, error: ClientError, code: str
) -> None:
    Observer([LOCAL_TIER], None).refused(error)
    assert counts.of("refuse") == {code: 1}


def test_what_was_asked_wrongly_is_no_refusal(counts: Counts) -> None:
    Observer([LOCAL_TIER], None).refused(UsageError("no"))
    assert counts.of("refuse") == {}
