"""What stays home has no way out: by property, for every set of findings."""

import asyncio
from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curtilage.client.answering.attempt import ANSWERERS
from curtilage.client.chat.answer import Answerer, Obstacle
from curtilage.client.chat.options import Require, RoutingOptions
from curtilage.client.chat.query import Message, Query
from curtilage.client.parts import ClientParts
from curtilage.client.pseudonyms.deidentified import Deidentified
from curtilage.client.pseudonyms.rewrite import deidentify
from curtilage.client.route import (
    AskEnclave,
    AskLocal,
    AskOnPremises,
    Rewrite,
    Ways,
    after_rewriting,
    first_step,
    ways,
)
from curtilage.client.routing.health import PRIORS
from curtilage.client.session import Session
from curtilage.policy.decision.classes import CLASSES
from curtilage.policy.decision.decide import Inspection, decide
from curtilage.policy.decision.routes import Route
from curtilage.policy.decision.tiers import (
    ENCLAVE_TIER,
    LOCAL_TIER,
    Demand,
    Tier,
    Tiering,
    TierKind,
)
from curtilage.policy.document.load import load_profile
from support.client_parts import MemoryTrail, ScriptedInspector, ScriptedLocal, finding
from support.inspections import inspection_of
from support.memory_enclave import Clock, MemoryEnclave, key_store

POLICY = load_profile("default")
QUERY = Query(messages=(Message(role="user", content="hello"),))
HR = frozenset({"topic.hr"})
FOUND = st.lists(st.sampled_from(sorted(CLASSES)), max_size=5)


@cache
def enclave() -> MemoryEnclave:
    return MemoryEnclave()


def inspection(names: list[str]) -> Inspection:
    return inspection_of(
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


def tiering(*trusted: str, demands: tuple[Demand, ...] = ()) -> Tiering:
    return Tiering(
        tiers=(
            LOCAL_TIER,
            Tier(id="ward", kind=TierKind.ON_PREMISES, trusted=frozenset(trusted)),
            ENCLAVE_TIER,
        ),
        demands=demands,
    )


def ways_of(names: list[str], rules: Tiering) -> Ways:
    rulebook = replace(POLICY.rulebook, tiering=rules)
    decision = decide(rulebook, inspection(names))
    return ways(rules, decision, first_step(decision))


@given(FOUND, st.frozensets(st.sampled_from(sorted(CLASSES))))
def test_each_way_holds_the_permission_that_its_door_asks_for(
    names: list[str], trusted: frozenset[str]
) -> None:
    found = ways_of(names, tiering(*trusted))
    for tier in found.permitted.tiers:
        way = found.by_tier[tier.id]
        assert isinstance(way, AskEnclave) == (tier.kind is TierKind.ATTESTED)
        assert isinstance(way, AskOnPremises) == (tier.kind is TierKind.ON_PREMISES)
        if not isinstance(way, AskLocal):
            assert tier.id in way.allowed.tiers
    assert set(found.by_tier) == {tier.id for tier in found.permitted.tiers}


@given(FOUND, st.frozensets(st.sampled_from(sorted(CLASSES))))
def test_what_must_stay_has_no_way_out_and_reaches_who_is_trusted(
    names: list[str], trusted: frozenset[str]
) -> None:
    decision = decide(POLICY.rulebook, inspection(names))
    found = ways_of(names, tiering(*trusted))
    assert (found.here is not True) == (decision.route is Route.ENCLAVE)
    if decision.route is Route.LOCAL:
        held = {*decision.classes, *decision.uncertain}
        assert ("ward" in found.by_tier) == (held <= trusted)


@pytest.mark.parametrize(
    ("demand", "left"),
    [
        (Demand(classes=HR, only=frozenset({"enclave"})), ["enclave"]),
        (Demand(classes=HR, never=frozenset({"enclave"})), ["local"]),
    ],
    ids=["only", "never"],
)
def test_pseudonyms_need_what_their_data_need(demand: Demand, left: list[str]) -> None:
    """The rewritten text holds none of the class; the one that was asked does."""
    rules = tiering(demands=(demand,))
    rulebook = replace(POLICY.rulebook, tiering=rules)
    clean = decide(rulebook, inspection([]))
    assert clean.allowed is not None
    rewritten = deidentify(
        QUERY, inspection(["identifier.direct.person"]).findings, key=bytes(32)
    )
    assert isinstance(rewritten, Deidentified)
    asked = replace(
        clean,
        route=Route.DEIDENTIFY,
        allowed=None,
        classes=("topic.hr",),
        permitted=rules.permitted(Route.DEIDENTIFY, frozenset({"topic.hr"})),
    )
    found = ways(rules, asked, AskEnclave(clean.allowed, rewritten))
    assert list(found.by_tier) == left


def test_without_a_section_what_may_leave_leaves_and_comes_home() -> None:
    assert [each.id for each in ways_of([], Tiering()).usual(RoutingOptions())] == [
        "enclave",
        "local",
    ]
    kept = ways_of(["financial.pan"], Tiering())
    assert [each.id for each in kept.usual(RoutingOptions())] == ["local"]


def test_every_table_names_every_kind_of_tier() -> None:
    kinds = set(TierKind)
    assert ANSWERERS.keys() == PRIORS.keys() == kinds
    assert set(ANSWERERS.values()) == set(Answerer)
    assert {each.kind for each in Require} == kinds
