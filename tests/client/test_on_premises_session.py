"""A session whose policy trusts an on-premises server, of in-memory parts."""

from collections.abc import AsyncGenerator, Callable

import pytest

from curtilage.client.audit.record import Outcome
from curtilage.client.chat.answer import Answerer, AnswerEvent, Delta, Finished
from curtilage.client.chat.options import Require
from curtilage.client.chat.query import Query
from curtilage.client.errors import (
    AttemptFailure,
    FailureReason,
    LocalUnavailableError,
    NotRoutedError,
    OnPremisesUnavailableError,
)
from curtilage.client.failure_texts import FAILURE_TEXTS
from curtilage.client.on_premises.reasons import OnPremisesFailure
from curtilage.client.parts import ClientParts
from curtilage.client.routing.estimate import RulesEstimator
from curtilage.client.routing.router import Router
from curtilage.client.session import Session
from curtilage.policy.decision.permit import (
    LIFE_MS,
    OnPremisesPermit,
    PermitDesk,
    ServerBinding,
)
from curtilage.policy.document.load import load_policy
from support.client_parts import (
    HARD,
    PLAIN,
    MemoryTrail,
    ScriptedInspector,
    ScriptedLocal,
    query,
)
from support.memory_enclave import Clock, MemoryEnclave, key_store

SECTION = """
routing:
  tiers:
  - {id: device, kind: in_process}
  - {id: ward, kind: on_premises, address: "unix:/run/w", model: big, trusted: TRUSTED}
  - {id: enclave, kind: attested}
"""


class Ward:
    """An on-premises server that redeems its permit, as the real door does."""

    model_id = "big"
    digest = bytes(32)

    def __init__(self, desk: PermitDesk, now_ms: Callable[[], int]) -> None:
        self._desk = desk
        self._now_ms = now_ms
        self.asked: list[Query] = []
        self.fails: FailureReason | None = None
        self.slept_ms = 0
        self.closed = False

    async def generate(
        self, permit: OnPremisesPermit, query: Query
    ) -> AsyncGenerator[AnswerEvent]:
        presented = ServerBinding(payload=query.payload_digest(), server=self.digest)
        self._desk.redeem(permit, presented, now_ms=self._now_ms() + self.slept_ms)
        if self.fails is not None:
            raise OnPremisesUnavailableError(self.fails)
        self.asked.append(query)
        yield Delta(text="From the ward.")
        yield Finished(finish_reason="stop", prompt_tokens=3, completion_tokens=4)

    async def close(self) -> None:
        self.closed = True


class Bench:
    def __init__(
        self,
        *found: str,
        trusted: str = "['*']",
        local: ScriptedLocal | None = None,
        trail: MemoryTrail | None = None,
    ) -> None:
        policy = load_policy(f"{PLAIN}\n{SECTION.replace('TRUSTED', trusted)}")
        assert policy.routing is not None
        self.local = local or ScriptedLocal()
        self.enclave = MemoryEnclave()
        self.trail = trail or MemoryTrail()
        self.ward: Ward | None = None
        self.session = Session(
            ClientParts(
                policy=policy,
                inspector=ScriptedInspector(*found),
                local=self.local,
                transport=self.enclave,
                keys=key_store(policy=policy),
                audit=self.trail,
                clock=Clock(),
                on_premises={"ward": self._make},
                router=Router(policy.routing, RulesEstimator(), clock=lambda: 0.0),
            )
        )

    def _make(self, desk: PermitDesk, now_ms: Callable[[], int]) -> Ward:
        self.ward = Ward(desk, now_ms)
        return self.ward


async def test_a_confined_query_may_go_to_a_trusted_server() -> None:
    bench = Bench("financial.pan")
    answer = await bench.session.ask(query(HARD))
    assert (answer.route, answer.text) == (Answerer.ON_PREMISES, "From the ward.")
    assert (answer.provenance.tier, answer.provenance.model) == ("ward", "big")
    assert bench.enclave.sealed == []
    assert [each.outcome for each in bench.trail.entries] == [Outcome.ON_PREMISES]


@pytest.mark.parametrize("trusted", ["[]", "['health.*']"])
async def test_an_untrusted_server_is_not_asked(trusted: str) -> None:
    bench = Bench("financial.pan", trusted=trusted)
    answer = await bench.session.ask(query(HARD))
    assert answer.route is Answerer.LOCAL
    with pytest.raises(NotRoutedError):
        await bench.session.ask(query(HARD, require=Require.ON_PREMISES))
    assert bench.ward is not None
    assert bench.ward.asked == []


async def test_an_unrecorded_query_is_not_sent() -> None:
    bench = Bench("financial.pan", trail=MemoryTrail(broken=True))
    answer = await bench.session.ask(query(HARD))
    assert answer.route is Answerer.LOCAL
    assert answer.provenance.fallback is AttemptFailure.AUDIT_FAILED
    with pytest.raises(NotRoutedError):
        await bench.session.ask(query(HARD, require=Require.ON_PREMISES))
    assert bench.ward is not None
    assert bench.ward.asked == []


async def test_a_ward_that_is_down_is_answered_for_at_home() -> None:
    bench = Bench("financial.pan")
    assert bench.ward is not None
    bench.ward.fails = OnPremisesFailure.UNREACHABLE
    for _ in range(3):
        answer = await bench.session.ask(query(HARD))
        assert answer.provenance.tier == "device"
        assert answer.provenance.fallback is OnPremisesFailure.UNREACHABLE
    outcomes = [each.outcome for each in bench.trail.entries]
    assert outcomes.count(Outcome.ON_PREMISES) == 1  # then the breaker is open


async def test_a_ward_that_never_answers_is_waited_for_once() -> None:
    bench = Bench("financial.pan")
    assert bench.ward is not None
    bench.ward.fails = OnPremisesFailure.LATE
    for _ in range(3):
        assert (await bench.session.ask(query(HARD))).provenance.tier == "device"
    outcomes = [each.outcome for each in bench.trail.entries]
    assert outcomes.count(Outcome.ON_PREMISES) == 1


async def test_without_a_permit_that_holds_it_is_answered_at_home() -> None:
    # The machine was suspended between the record and the door, say.
    bench = Bench("financial.pan")
    assert bench.ward is not None
    bench.ward.slept_ms = LIFE_MS
    answer = await bench.session.ask(query(HARD))
    assert answer.provenance.tier == "device"
    assert answer.provenance.fallback is AttemptFailure.NOT_PERMITTED
    assert bench.ward.asked == []


async def test_when_all_at_home_fail_it_is_said_and_nothing_leaves() -> None:
    bench = Bench("financial.pan", local=ScriptedLocal(broken=True))
    assert bench.ward is not None
    bench.ward.fails = OnPremisesFailure.UNREACHABLE
    both = f"{FAILURE_TEXTS['on_premises_unreachable']}.*model file is missing"
    with pytest.raises(LocalUnavailableError, match=both):
        await bench.session.ask(query(HARD))
    assert bench.enclave.sealed == []


async def test_closing_closes_the_way_to_it() -> None:
    bench = Bench()
    await bench.session.close()
    assert bench.ward is not None
    assert bench.ward.closed
