"""What a session counts, and what may be said of its answers."""

from collections.abc import Iterator

import pytest

from curtilage.client import telemetry
from curtilage.client.audit.record import Outcome
from curtilage.client.errors import BlockedError, EnclaveError, UsageError
from curtilage.client.parts import ClientParts
from curtilage.client.remote.reasons import EnclaveFailure
from curtilage.client.routing.estimate import RulesEstimator
from curtilage.client.routing.router import Router
from curtilage.client.routing.trace import TraceLine, TraceOutcome
from curtilage.client.session import Session
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
from support.memory_enclave import Clock, MemoryEnclave, key_store

SECTION = """
routing:
  tiers:
  - {id: device, kind: in_process, cost_microusd_per_mtok: 50000}
  - {id: enclave, kind: attested}
"""


@pytest.fixture
def counts() -> Iterator[Counts]:
    counts = Counts()
    telemetry.use(counts.telemetry)
    yield counts
    telemetry.use(None)


class Bench:
    def __init__(
        self, *found: str, section: str = SECTION, rules: str = "rules:\n"
    ) -> None:
        policy = load_policy(f"{PLAIN}\n{section}".replace("rules:\n", rules, 1))
        self.enclave = MemoryEnclave()
        self.trail = MemoryTrail()
        self.lines: list[TraceLine] = []
        plan = policy.routing
        self.session = Session(
            ClientParts(
                policy=policy,
                inspector=ScriptedInspector(*found),
                local=ScriptedLocal(),
                transport=self.enclave,
                keys=key_store(policy=policy),
                audit=self.trail,
                clock=Clock(),
                trace=self.lines.append,
                router=(
                    None
                    if plan is None
                    else Router(plan, RulesEstimator(), clock=lambda: 0.0)
                ),
            )
        )

    async def ask(self, text: str) -> str:
        """Return the answer's id."""
        return (await self.session.ask(query(text))).id


async def test_a_choice_and_its_answer_are_counted(counts: Counts) -> None:
    bench = Bench()
    await bench.ask(EASY)
    await bench.ask(HARD)
    assert counts.of("route.decision") == {
        "classification device private_tie": 1,
        "enclave hard unknown": 1,
    }
    assert counts.of("route.duration") == {"": 2}
    assert counts.of("tier.ttft") == {"device": 1, "enclave": 1}
    assert counts.of("tier.cost_microusd").keys() == {"device", "enclave"}
    assert counts.of("answered") == {"local": 1, "enclave": 1}
    assert counts.of("local_share") == {"": 0.5}
    assert counts.of("retry.budget").keys() == {"retry", "hedge"}
    assert counts.of("duration") == {"attest": 1}


async def test_a_tier_that_may_not_answer_is_counted(counts: Counts) -> None:
    await Bench("financial.pan").ask(HARD)
    assert counts.of("mask.denied") == {"enclave route": 1}


@pytest.mark.parametrize("section", ["", SECTION + "  observe: true\n"])
async def test_policy_denials_are_counted_without_a_choice(
    section: str, counts: Counts
) -> None:
    bench = Bench("financial.pan", section=section)
    await bench.ask(HARD)
    assert counts.of("mask.denied") == {"enclave route": 1}
    assert counts.of("route.decision") == {}
    assert [each.outcome for each in bench.trail.entries] == [Outcome.LOCAL]


async def test_a_dead_enclave_is_counted_and_the_answer_recorded_as_less(
    counts: Counts,
) -> None:
    bench = Bench()
    bench.enclave.fetch_fails = EnclaveError(EnclaveFailure.RELAY_UNREACHABLE)
    await bench.ask(HARD)
    assert counts.of("fallback") == {"enclave relay_unreachable": 1}
    assert counts.of("breaker.state") == {
        "closed device": 1,
        "device half_open": 0,
        "device open": 0,
        "closed enclave": 0,
        "enclave half_open": 0,
        "enclave open": 1,
    }
    assert [(each.outcome, each.fallback) for each in bench.trail.entries] == [
        (Outcome.LOCAL, "relay_unreachable"),
        (Outcome.DEGRADED, "relay_unreachable"),
    ]


async def test_what_is_blocked_is_counted_as_refused(counts: Counts) -> None:
    never = 'rules:\n- {id: never, when: "secret.*", then: block, reason: no}\n'
    with pytest.raises(BlockedError):
        await Bench("secret.password", rules=never).ask(HARD)
    assert counts.of("refuse") == {"blocked": 1}


@pytest.mark.parametrize("good", [True, False])
async def test_a_word_on_an_answer_is_counted_and_traced(
    counts: Counts, *, good: bool
) -> None:
    bench = Bench()
    easy = await bench.ask(EASY)
    await bench.ask(HARD)
    await bench.session.settle()
    bench.session.feedback(easy, good=good)
    await bench.session.settle()
    word = bench.lines[-1]
    assert (word.outcome, word.tier) == (TraceOutcome.GRADED, "device")
    assert (word.intent, word.feedback) == ("classification", good)
    assert counts.of("feedback") == {"device good" if good else "bad device": 1}
    with pytest.raises(UsageError, match="no such answer"):
        bench.session.feedback(easy, good=good)


async def test_without_a_routing_section_a_word_is_counted_and_leaves_no_line(
    counts: Counts,
) -> None:
    bench = Bench(section="")
    bench.session.feedback(await bench.ask(EASY), good=True)
    await bench.session.settle()
    assert counts.of("feedback") == {"enclave good": 1}
    assert bench.lines == []


async def test_a_question_without_an_answer_cannot_be_graded() -> None:
    bench = Bench()
    stream = bench.session.stream(query(EASY))
    with pytest.raises(UsageError):
        bench.session.feedback(stream.id, good=True)
    await stream.aclose()
