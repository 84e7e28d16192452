"""Records of steps that disclose nothing."""

import asyncio

import pytest
from typing_extensions import override

from curtilage.client.audit.record import SENDING, Outcome
from curtilage.client.audit.recorder import QueryRecorder
from curtilage.client.remote.reasons import EnclaveFailure
from curtilage.policy.decision.decide import decide
from curtilage.policy.document.load import load_profile
from support.client_parts import MemoryTrail
from support.inspections import inspection_of

STAYING = sorted(set(Outcome) - SENDING)


def recorder(trail: MemoryTrail) -> QueryRecorder:
    policy = load_profile("default")
    inspection = inspection_of(payload_digest=bytes(32), findings=(), messages=1)
    decision = decide(policy.rulebook, inspection)
    return QueryRecorder(trail, policy, inspection, decision)


@pytest.mark.parametrize("outcome", sorted(SENDING))
async def test_a_disclosure_is_recorded_before_it_is_made(outcome: Outcome) -> None:
    trail = MemoryTrail()
    with pytest.raises(ValueError, match="disclosure"):
        await recorder(trail).stays(outcome)
    assert trail.entries == []


@pytest.mark.parametrize("outcome", STAYING)
async def test_a_local_step_is_recorded_with_its_cause(outcome: Outcome) -> None:
    trail = MemoryTrail()
    assert await recorder(trail).stays(outcome, EnclaveFailure.BUSY)
    (entry,) = trail.entries
    assert (entry.outcome, entry.fallback) == (outcome, "busy")


async def test_other_outcomes_of_a_query_have_a_record_of_their_own() -> None:
    trail = MemoryTrail()
    one = recorder(trail)
    await one.stays(Outcome.LOCAL)
    await one.stays(Outcome.ESCALATED)
    home, escalated = trail.entries
    assert home.query == escalated.query
    assert (home.attempt, escalated.attempt) == (1, 2)
    assert home.payload_digest == escalated.payload_digest


async def test_a_failed_record_is_reported() -> None:
    assert not await recorder(MemoryTrail(broken=True)).stays(Outcome.QUEUED)


class Slow(MemoryTrail):
    """Takes its time before it returns a secret."""

    def __init__(self) -> None:
        super().__init__()
        self.go = asyncio.Event()

    @override
    async def receipt_secret(self, receipt_id: bytes) -> bytes | None:
        await self.go.wait()
        return await super().receipt_secret(receipt_id)


async def test_a_receipt_is_kept_with_its_own_attempt_where_two_are_made() -> None:
    """A draft is recorded while the enclave is asked at the same time."""
    trail = Slow()
    one = recorder(trail)
    assert one.decision.allowed is not None
    leaving = asyncio.ensure_future(one.leaves(one.decision.allowed, "verdict"))
    await asyncio.sleep(0)
    await one.stays(Outcome.LOCAL)
    trail.go.set()
    secret = await leaving
    assert [each.outcome for each in trail.entries] == [Outcome.ENCLAVE, Outcome.LOCAL]
    assert secret.attempt == trail.entries[0].attempt
