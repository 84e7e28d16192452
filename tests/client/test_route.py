"""What stays home has no way out: by property, for every set of findings."""

import asyncio
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curtilage.client.answer import Answerer, Obstacle
from curtilage.client.pseudonyms.rewrite import Deidentified, deidentify
from curtilage.client.query import Message, Query
from curtilage.client.route import (
    AskEnclave,
    AskLocal,
    Refuse,
    Rewrite,
    after_enclave_failure,
    after_rewriting,
    first_step,
)
from curtilage.client.session import ClientParts, Session
from curtilage.policy.decision.classes import CLASSES
from curtilage.policy.decision.decide import Inspection, decide
from curtilage.policy.decision.routes import Route
from curtilage.policy.document.load import load_profile
from support.client_parts import MemoryTrail, ScriptedInspector, ScriptedLocal, finding
from support.memory_enclave import Clock, MemoryEnclave, key_store

POLICY = load_profile("default")
QUERY = Query(messages=(Message(role="user", content="hello"),))
FOUND = st.lists(st.sampled_from(sorted(CLASSES)), max_size=5)


@cache
def enclave() -> MemoryEnclave:
    return MemoryEnclave()


def inspection(names: list[str]) -> Inspection:
    return Inspection(
        findings=tuple(finding(name) for name in names),
        payload_digest=QUERY.payload_digest(),
        messages=1,
    )


@given(FOUND)
def test_only_an_allowed_query_gets_a_step_outward(names: list[str]) -> None:
    decision = decide(POLICY.rulebook, inspection(names))
    step = first_step(decision)
    assert isinstance(step, AskEnclave) == (decision.route is Route.ENCLAVE)
    assert isinstance(step, AskLocal) == (decision.route is Route.LOCAL)
    assert isinstance(step, Rewrite) == (decision.route is Route.DEIDENTIFY)


@given(FOUND)
def test_a_rewritten_query_leaves_by_its_own_decision_only(names: list[str]) -> None:
    rewritten = deidentify(
        QUERY, inspection(["identifier.direct.person"]).findings, key=bytes(32)
    )
    assert isinstance(rewritten, Deidentified)
    decision = decide(POLICY.rulebook, inspection(names))
    step = after_rewriting(rewritten, decision)
    if decision.route is Route.ENCLAVE:
        assert decision.allowed is not None
        assert step == AskEnclave(decision.allowed, rewritten, decision.classes)
    else:
        assert step == AskLocal(Obstacle.STILL_FOUND)


@settings(max_examples=60)
@given(FOUND)
def test_what_is_not_allowed_is_never_sealed_nor_sent(names: list[str]) -> None:
    """Through the whole session, with an enclave that would gladly answer."""
    decision = decide(POLICY.rulebook, inspection(names))
    sent_before = len(enclave().sealed)
    session = Session(
        ClientParts(
            policy=POLICY,
            inspector=ScriptedInspector(*names),
            local=ScriptedLocal(),
            transport=enclave(),
            keys=key_store(),
            audit=MemoryTrail(),
            clock=Clock(),
        )
    )
    answer = asyncio.run(session.ask(QUERY))
    sent = len(enclave().sealed) - sent_before
    assert sent == (1 if decision.route is Route.ENCLAVE else 0)
    assert (answer.route is Answerer.ENCLAVE) == (sent == 1)


@pytest.mark.parametrize(
    ("shown", "step"), [(False, AskLocal), (True, Refuse)], ids=["unseen", "shown"]
)
def test_after_a_failure_nothing_leads_outward(shown: bool, step: type) -> None:
    assert isinstance(after_enclave_failure(shown=shown), step)
