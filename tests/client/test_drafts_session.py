"""A session whose local model writes first, and one whose first is late."""

import asyncio
import hashlib
import math
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace

import pytest
from typing_extensions import override

from curtilage.client import telemetry
from curtilage.client.audit.record import AuditEntry, Outcome
from curtilage.client.chat.answer import (
    Answerer,
    AnswerEvent,
    Delta,
    Finished,
    Phase,
    Progress,
    Replaced,
    Retract,
    RetractReason,
    SessionEvent,
    TokenSignal,
    Verified,
    without_notes,
)
from curtilage.client.chat.openai_chat import turns_of
from curtilage.client.chat.options import Require
from curtilage.client.chat.query import Message, Query
from curtilage.client.errors import (
    EnclaveError,
    IncompleteAnswerError,
    LocalUnavailableError,
    NotRoutedError,
)
from curtilage.client.local.reasons import LocalFailure, LocalModelError
from curtilage.client.parts import ClientParts
from curtilage.client.remote.cover import CoverSettings
from curtilage.client.remote.reasons import EnclaveFailure
from curtilage.client.routing.estimate import RulesEstimator
from curtilage.client.routing.router import Router
from curtilage.client.routing.thresholds import packed
from curtilage.client.session import Session
from curtilage.client.system.budget import Budget
from curtilage.policy.decision.tiers import RoutingClass
from curtilage.policy.document.load import load_policy
from support.client_parts import (
    EASY,
    HARD,
    PLAIN,
    MemoryTrail,
    ScriptedInspector,
    ScriptedLocal,
    query,
)
from support.counts import Counts
from support.drafts import THRESHOLDS
from support.memory_enclave import Clock, MemoryEnclave, Reply, chunk, key_store, sse

THRESHOLDS_FILE = packed(THRESHOLDS)
DIGEST = hashlib.sha256(THRESHOLDS_FILE).hexdigest()
# Of a home model that may be as good and costs nothing, so that a draft is worth it.
SECTION = """
routing:
  tiers:
  - {id: device, kind: in_process, priors: {quality_permille: 700}}
  - {id: enclave, kind: attested, cost_microusd_per_mtok: 9000000}
  weights_permille: {hysteresis: 0}
"""
SURE = TokenSignal(logprob=math.log(0.99), margin=4.6)
UNSURE = TokenSignal(logprob=math.log(0.01), margin=0.0)


def drafting(mode: str) -> str:
    """Return a section that wants drafts; a race pays both, so both are cheap."""
    section = SECTION.replace("9000000", "1") if mode == "race" else SECTION
    return (
        f"{section}  speculation: {{mode: {mode}, thresholds: t.json, "
        f"sha256: {DIGEST}}}\n"
    )


class Slow(ScriptedLocal):
    """Begins on a signal."""

    def __init__(self) -> None:
        super().__init__()
        self.go = asyncio.Event()

    @override
    async def generate(
        self, query: Query, *, signals: bool = False
    ) -> AsyncGenerator[AnswerEvent]:
        await self.go.wait()
        async for event in super().generate(query, signals=signals):
            yield event


class Breaking(ScriptedLocal):
    """Breaks off after its first word."""

    @override
    async def generate(
        self, query: Query, *, signals: bool = False
    ) -> AsyncGenerator[AnswerEvent]:
        async for event in super().generate(query, signals=signals):
            yield event
            raise LocalModelError("the engine is gone")


class Bench:
    """A session of in-memory parts."""

    def __init__(
        self,
        *found: str,
        section: str = SECTION,
        sure: TokenSignal = SURE,
        local: ScriptedLocal | None = None,
        trail: MemoryTrail | None = None,
        cover: CoverSettings | None = None,
    ) -> None:
        policy = load_policy(f"{PLAIN}\n{section}", files=lambda _: THRESHOLDS_FILE)
        assert policy.routing is not None
        self.local = local or ScriptedLocal()
        self.local.sure = sure
        self.enclave = MemoryEnclave()
        self.trail = trail or MemoryTrail()
        self.router = Router(
            policy.routing,
            RulesEstimator(),
            clock=lambda: 0.0,
            thresholds=THRESHOLDS,
            running=lambda: self.local.digests,
        )
        self.session = Session(
            ClientParts(
                policy=policy,
                inspector=ScriptedInspector(*found),
                local=self.local,
                transport=self.enclave,
                keys=key_store(policy=policy),
                audit=self.trail,
                clock=Clock(),
                router=self.router,
                cover=cover,
            )
        )

    async def events(self, text: str = HARD) -> list[SessionEvent]:
        """Return all that happens, but for signs of life."""
        found = self.session.stream(query(text)).events()
        return [
            event
            async for event in found
            if isinstance(event, Delta | Finished | Verified | Retract | Replaced)
        ]

    @property
    def outcomes(self) -> list[Outcome]:
        """What was recorded."""
        return [entry.outcome for entry in self.trail.entries]


async def test_a_draft_that_will_do_keeps_a_question_at_home() -> None:
    bench = Bench(section=drafting("verify"))
    answer = await bench.session.ask(query(HARD))
    assert answer.route is Answerer.LOCAL
    assert answer.text == "At home."
    assert bench.enclave.sealed == []


async def test_a_draft_is_covered_once_it_answers_and_not_where_it_is_given_up() -> (
    None
):
    for sure, sealed in (SURE, [b"/v1/cover"]), (UNSURE, [b"/v1/chat/completions"]):
        cover = CoverSettings(delay_s=(0, 0), share=100)
        bench = Bench(section=drafting("verify"), sure=sure, cover=cover)
        await bench.session.verified_key()
        await bench.session.ask(query(HARD))
        await bench.session.settle()
        assert [each.path for each in bench.enclave.requests] == sealed


async def test_a_draft_that_will_not_do_is_answered_by_the_enclave() -> None:
    bench = Bench(section=drafting("verify"), sure=UNSURE)
    answer = await bench.session.ask(query(HARD))
    assert answer.route is Answerer.ENCLAVE
    assert "home" not in answer.text
    assert answer.provenance.fallback is LocalFailure.DRAFT_REJECTED
    assert answer.provenance.why == "hard"
    assert len(bench.enclave.sealed) == 1


async def test_who_reads_events_sees_the_draft_and_that_it_is_taken_back() -> None:
    bench = Bench(section=drafting("verify"), sure=UNSURE)
    events = await bench.events()
    assert events[0] == Delta(text="At ", logprobs=(("At ", -0.5),), tentative=True)
    at = events.index(Retract(from_char=0, reason=RetractReason.NOT_GOOD_ENOUGH))
    assert events[at + 1] == Replaced(tier="enclave")
    assert isinstance(events[-1], Finished)


async def test_a_race_asks_the_enclave_at_once() -> None:
    bench = Bench(section=drafting("race"), sure=UNSURE)
    answer = await bench.session.ask(query(EASY))
    assert answer.route is Answerer.ENCLAVE
    assert len(bench.enclave.sealed) == len(bench.local.asked) == 1


async def test_what_must_stay_is_never_a_draft() -> None:
    bench = Bench("financial.pan", section=drafting("verify"), sure=UNSURE)
    answer = await bench.session.ask(query(HARD))
    assert answer.route is Answerer.LOCAL
    assert answer.provenance.fallback is None
    assert bench.enclave.sealed == []


async def test_a_rejected_draft_is_better_than_no_answer() -> None:
    bench = Bench(section=drafting("verify"), sure=UNSURE)
    bench.enclave.fetch_fails = EnclaveError(EnclaveFailure.RELAY_UNREACHABLE)
    answer = await bench.session.ask(query(HARD))
    assert answer.route is Answerer.LOCAL
    assert answer.provenance.fallback is LocalFailure.DRAFT_REJECTED


async def test_there_is_no_draft_of_a_model_that_was_not_certified() -> None:
    local = ScriptedLocal()
    local.digests = ("f" * 64, "f" * 64)
    bench = Bench(section=drafting("verify"), local=local)
    assert Verified() not in await bench.events(HARD)


async def test_there_is_no_draft_of_what_a_person_is_to_agree_to() -> None:
    section = drafting("verify") + "  classes: {public: {consent: required}}\n"
    bench = Bench(section=section)
    assert Verified() not in await bench.events(HARD)
    with pytest.raises(NotRoutedError, match="consent"):
        await bench.session.ask(query(HARD, require=Require.ENCLAVE))


async def test_a_cut_stream_is_retracted_and_restarted() -> None:
    bench = Bench(local=Breaking())
    events = await bench.events(EASY)
    at = events.index(Retract(from_char=0, reason=RetractReason.BROKE_OFF))
    assert isinstance(events[at - 1], Delta)
    assert events[at + 1] == Replaced(tier="enclave")
    assert isinstance(events[-1], Finished)


async def test_a_cut_answer_is_an_error_without_a_stream() -> None:
    bench = Bench(local=Breaking())
    with pytest.raises(LocalUnavailableError):
        await bench.session.ask(query(EASY))
    assert bench.enclave.sealed == []


async def test_a_stream_cut_by_the_enclave_is_answered_locally() -> None:
    half = Reply(content=sse(chunk("From "), done=False))
    bench = Bench(section=SECTION.replace("9000000", "1"))
    bench.enclave.reply = half
    events = await bench.events(HARD)
    at = events.index(Retract(from_char=0, reason=RetractReason.BROKE_OFF))
    assert Delta(text="From ") in events[:at]
    texts = [each.text for each in events[at:] if isinstance(each, Delta)]
    assert texts == ["At ", "home."]
    bench = Bench(section=SECTION.replace("9000000", "1"))
    bench.enclave.reply = half
    with pytest.raises(IncompleteAnswerError):
        await bench.session.ask(query(HARD))


async def test_a_late_tier_is_helped_out() -> None:
    bench = Bench(local=(slow := Slow()))
    bench.router.hedges = Budget(1000, reserve=1)
    answer = await bench.session.ask(query(EASY))
    assert answer.route is Answerer.ENCLAVE
    assert answer.provenance.why == "faster"
    assert not slow.go.is_set()


async def test_the_stream_reports_which_tier_it_waits_for() -> None:
    bench = Bench(local=(slow := Slow()))
    stream = bench.session.stream(query(EASY))
    stream.first_signal_s = 0.01
    async with asyncio.timeout(60), aclosing(stream.events()) as events:
        while await anext(events) != Progress(phase=Phase.ASKING_HERE):
            pass
        slow.go.set()


async def test_at_most_one_question_in_twenty_is_helped_out() -> None:
    bench = Bench(local=(slow := Slow()))
    asked = asyncio.ensure_future(bench.session.ask(query(EASY)))
    done, _ = await asyncio.wait({asked}, timeout=3)
    assert not done
    assert bench.enclave.sealed == []
    slow.go.set()
    assert (await asked).route is Answerer.LOCAL


async def test_what_must_stay_is_never_helped_out() -> None:
    bench = Bench("financial.pan", local=(slow := Slow()))
    bench.router.hedges = Budget(1000, reserve=9)
    asked = asyncio.ensure_future(bench.session.ask(query(EASY)))
    done, _ = await asyncio.wait({asked}, timeout=3)
    assert not done
    slow.go.set()
    assert (await asked).route is Answerer.LOCAL
    assert bench.enclave.sealed == []


@pytest.mark.parametrize("retracts", [False, True])
async def test_a_draft_that_is_given_up_is_recorded_before_another_is_asked(
    *, retracts: bool
) -> None:
    bench = Bench(section=drafting("verify"), sure=UNSURE)
    stream = bench.session.stream(query(HARD))
    async for _ in stream.events(retract=retracts):
        pass
    assert stream.provenance.route is Answerer.ENCLAVE
    shown = [Outcome.REPLACED] if retracts else []
    assert [each.outcome for each in bench.trail.entries] == [
        Outcome.LOCAL,
        Outcome.ESCALATED,
        *shown,
        Outcome.ENCLAVE,
    ]


@pytest.mark.parametrize("local", [Slow, ScriptedLocal])
async def test_what_is_more_private_is_neither_drafted_nor_helped_out(
    local: type[ScriptedLocal],
) -> None:
    """Of a discarded draft an observer sees a delay, and of two questions both."""
    slow = local()
    bench = Bench(section=drafting("verify"), local=slow, sure=UNSURE)
    bench.router.hedges = Budget(1000, reserve=9)
    private = query(EASY, floor=RoutingClass.CONFIDENTIAL)
    asked = asyncio.ensure_future(bench.session.ask(private))
    if isinstance(slow, Slow):
        done, _ = await asyncio.wait({asked}, timeout=3)
        assert not done
        slow.go.set()
    assert (await asked).route is Answerer.LOCAL
    assert bench.enclave.sealed == []


async def test_no_hedge_if_it_must_not_cost_twice() -> None:
    bench = Bench(section=SECTION.replace("9000000", "1"), local=(slow := Slow()))
    bench.router.hedges = Budget(1000, reserve=9)
    limited = query(EASY, max_cost_microusd=1_000_000)
    asked = asyncio.ensure_future(bench.session.ask(limited))
    done, _ = await asyncio.wait({asked}, timeout=3)
    assert not done
    slow.go.set()
    assert (await asked).route is Answerer.LOCAL


async def test_an_empty_draft_is_given_up_as_any_other() -> None:
    """No word of it was shown, and the enclave's answer is no worse for that."""
    local = ScriptedLocal(words=())
    bench = Bench(section=drafting("verify"), local=local)
    answer = await bench.session.ask(query(HARD))
    assert answer.route is Answerer.ENCLAVE
    assert bench.outcomes == [Outcome.LOCAL, Outcome.ESCALATED, Outcome.ENCLAVE]


class SlowToFail(Slow):
    """Says nothing until a signal, and then that it cannot."""

    @override
    async def generate(
        self, query: Query, *, signals: bool = False
    ) -> AsyncGenerator[AnswerEvent]:
        await self.go.wait()
        raise LocalModelError("the engine is gone")
        yield  # type: ignore[unreachable]


async def test_who_helped_out_says_that_the_other_failed() -> None:
    local = SlowToFail()
    bench = Bench(local=local)
    bench.router.hedges = Budget(1000, reserve=1)
    bench.enclave.held = 0
    asked = asyncio.ensure_future(bench.session.ask(query(EASY)))
    await bench.enclave.begun.wait()
    local.go.set()
    for _ in range(99):
        await asyncio.sleep(0)
    bench.enclave.go.set()
    answer = await asked
    assert answer.route is Answerer.ENCLAVE
    assert answer.provenance.fallback is LocalFailure.UNAVAILABLE
    assert answer.provenance.why == "unavailable"
    assert bench.outcomes[-1] is Outcome.DEGRADED


async def test_in_a_race_the_enclave_says_why_the_draft_is_not_the_answer() -> None:
    bench = Bench(section=drafting("race"), sure=UNSURE)
    answer = await bench.session.ask(query(EASY))
    assert answer.provenance.why == "hard"
    assert answer.provenance.fallback is LocalFailure.DRAFT_REJECTED
    assert Outcome.DEGRADED not in bench.outcomes
    bench = Bench(section=drafting("race"), local=Breaking())
    answer = await bench.session.ask(query(EASY))
    assert answer.route is Answerer.ENCLAVE
    assert answer.provenance.why == "unavailable"
    assert answer.provenance.fallback is LocalFailure.UNAVAILABLE


async def test_in_a_race_that_both_lose_nothing_was_escalated() -> None:
    bench = Bench(section=drafting("race"), sure=UNSURE, local=(slow := Slow()))
    bench.enclave.fetch_fails = EnclaveError(EnclaveFailure.RELAY_UNREACHABLE)
    asked = asyncio.ensure_future(bench.session.ask(query(EASY)))
    for _ in range(99):
        await asyncio.sleep(0)
    slow.go.set()
    answer = await asked
    assert answer.route is Answerer.LOCAL
    assert answer.provenance.fallback is EnclaveFailure.RELAY_UNREACHABLE
    assert bench.outcomes == [Outcome.LOCAL, Outcome.LOCAL, Outcome.DEGRADED]


@pytest.mark.parametrize(("sure", "opinion"), [(SURE, "good"), (UNSURE, "bad")])
async def test_what_is_said_of_drafts_is_counted(
    sure: TokenSignal, opinion: str
) -> None:
    counts = Counts()
    telemetry.use(counts.telemetry)
    bench = Bench(section=drafting("verify"), sure=sure)
    await bench.session.ask(query(HARD))
    telemetry.use(None)
    said = " ".join(sorted((opinion, "device")))
    assert counts.of("verifier.accept") == {said: 1}
    assert counts.of("escalations") == ({} if opinion == "good" else {"device": 1})
    assert counts.of("verifier.certified") == {f"{THRESHOLDS.alpha:g}": 1}
    assert counts.of("fallback") == {}, "a rejected draft is no failure"


class SwapsWhileItIsRecorded(MemoryTrail):
    """Another home model takes over while the first step is recorded."""

    local: ScriptedLocal

    @override
    async def append(self, entry: AuditEntry) -> None:
        await super().append(entry)
        self.local.model_id = "another"
        self.local.digests = ("f" * 64, "f" * 64)


async def test_the_reported_model_is_the_one_that_answers() -> None:
    bench = Bench("financial.pan", trail=(trail := SwapsWhileItIsRecorded()))
    trail.local = bench.local
    answer = await bench.session.ask(query(EASY))
    assert answer.provenance.model == "another"


async def test_no_draft_is_judged_of_a_model_that_took_over_meanwhile() -> None:
    trail = SwapsWhileItIsRecorded()
    bench = Bench(section=drafting("verify"), trail=trail)
    trail.local = bench.local
    answer = await bench.session.ask(query(HARD))
    assert answer.route is Answerer.ENCLAVE
    assert bench.local.asked == []


async def test_an_answer_of_this_machine_says_that_another_was_asked_as_well() -> None:
    raced = await Bench(section=drafting("race")).session.ask(query(EASY))
    assert raced.route is Answerer.LOCAL
    assert raced.provenance.in_parallel
    bench = Bench(local=(slow := Slow()))
    bench.router.hedges = Budget(1000, reserve=1)
    bench.enclave.held = 0
    asked = asyncio.ensure_future(bench.session.ask(query(EASY)))
    await bench.enclave.begun.wait()
    slow.go.set()
    helped = await asked
    assert (helped.route, helped.provenance.in_parallel) == (Answerer.LOCAL, True)
    alone = await Bench(section=drafting("verify")).session.ask(query(HARD))
    assert (alone.route, alone.provenance.in_parallel) == (Answerer.LOCAL, False)


DOUBT = "\n\n[the local model is often wrong on questions like this]"


@pytest.mark.parametrize(("sure", "doubtful"), [(SURE, False), (UNSURE, True)])
async def test_what_must_stay_is_answered_with_a_warning_where_a_draft_would_fail(
    sure: TokenSignal, *, doubtful: bool
) -> None:
    bench = Bench("financial.pan", section=drafting("verify"), sure=sure)
    answer = await bench.session.ask(query(HARD))
    assert answer.route is Answerer.LOCAL
    assert answer.text == "At home." + DOUBT * doubtful
    assert answer.finished.doubtful is doubtful
    assert bench.enclave.sealed == []


async def test_a_warning_is_a_note_and_no_signal_is_passed_on() -> None:
    bench = Bench("financial.pan", section=drafting("verify"), sure=UNSURE)
    deltas = [each for each in await bench.events() if isinstance(each, Delta)]
    assert [each.note for each in deltas] == [False, False, True]
    assert not any(each.signals for each in deltas)


async def test_an_answer_in_json_is_not_broken_by_a_warning() -> None:
    bench = Bench("financial.pan", section=drafting("verify"), sure=UNSURE)
    answer = await bench.session.ask(query("Give the total as JSON."))
    assert answer.text == "At home."
    assert answer.finished.doubtful


@pytest.mark.parametrize("role", ["system", "developer", "user"])
async def test_json_that_an_earlier_message_asked_for_is_not_broken(role: str) -> None:
    bench = Bench("financial.pan", section=drafting("verify"), sure=UNSURE)
    asked = query(HARD)
    earlier = Message(role=role, content="Answer in JSON alone.")
    answer = await bench.session.ask(
        replace(asked, messages=(earlier, *asked.messages))
    )
    assert answer.text == "At home."
    assert answer.finished.doubtful


async def test_json_in_an_earlier_answer_is_no_request_for_json() -> None:
    bench = Bench("financial.pan", section=drafting("verify"), sure=UNSURE)
    asked = query(HARD)
    earlier = Message(role="assistant", content="I can write JSON.")
    answer = await bench.session.ask(
        replace(asked, messages=(*asked.messages, earlier, *asked.messages))
    )
    assert answer.text == "At home." + DOUBT


@pytest.mark.parametrize(
    "words",
    [("\n", ' {"total": ', "7}"), ("[7]",), ("`", "``python\n", "7\n```")],
)
async def test_an_answer_that_a_program_reads_is_not_broken(
    words: tuple[str, ...],
) -> None:
    local = ScriptedLocal(words)
    bench = Bench("financial.pan", section=drafting("verify"), sure=UNSURE, local=local)
    answer = await bench.session.ask(query(HARD))
    assert answer.text == "".join(words)
    assert answer.finished.doubtful


class Signals(ScriptedLocal):
    """Notes whether it is asked how sure it is."""

    def __init__(self, *, finish_reason: str = "stop") -> None:
        super().__init__(finish_reason=finish_reason)
        self.wanted: list[bool] = []

    @override
    async def generate(
        self, query: Query, *, signals: bool = False
    ) -> AsyncGenerator[AnswerEvent]:
        self.wanted.append(signals)
        async for event in super().generate(query, signals=signals):
            yield event


async def test_where_there_are_no_drafts_nothing_is_judged() -> None:
    other = Signals()
    other.digests = ("f" * 64, "f" * 64)
    for section, local in ((SECTION, Signals()), (drafting("verify"), other)):
        bench = Bench("financial.pan", section=section, sure=UNSURE, local=local)
        answer = await bench.session.ask(query(HARD))
        assert (answer.text, local.wanted) == ("At home.", [False])
        assert not answer.finished.doubtful


async def test_an_answer_that_was_cut_is_not_judged() -> None:
    local = Signals(finish_reason="length")
    bench = Bench("financial.pan", section=drafting("verify"), sure=UNSURE, local=local)
    answer = await bench.session.ask(query(HARD))
    assert (answer.text, local.wanted) == ("At home.", [True])
    assert not answer.finished.doubtful


async def test_what_could_have_been_sent_has_no_warning() -> None:
    bench = Bench(section=drafting("verify"), sure=UNSURE)
    answer = await bench.session.ask(query(HARD, require=Require.LOCAL))
    assert answer.text == "At home."
    assert not answer.finished.doubtful


async def test_a_warning_is_no_part_of_the_conversation() -> None:
    bench = Bench("financial.pan", section=drafting("verify"), sure=UNSURE)
    first = query(HARD)
    said = (await bench.session.ask(first)).text
    assert said.endswith(DOUBT)
    turn = without_notes(said)
    assert turn == "At home."
    assert without_notes(f"{said}\n") == turn
    assert without_notes(f"[read 2 of 9 tokens]\n\n{said}") == turn
    assert turns_of([{"role": "user", "content": said}])[0][0].content == said
    inside = f"It said{DOUBT} and went on."
    assert without_notes(inside) == inside
