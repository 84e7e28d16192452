"""Who builds an inspection, what may be done to one, and that nothing else decides."""

import copy
import pickle  # what comes back from it is none that was built
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import cast

import pytest

from curtilage.policy.decision.decide import (
    INSPECTION_DOOR,
    Inspection,
    WhatIf,
    assess,
    decide,
    require_inspected,
)
from curtilage.policy.decision.findings import Finding, Normalization, Where
from curtilage.policy.decision.routes import Route
from curtilage.policy.decision.tiers import RoutingClass
from curtilage.policy.document.load import load_profile
from support.inspections import inspection_of

DIGEST = bytes(range(32))
RULEBOOK = load_profile("default").rulebook
ILL = Finding(
    data_class="health.diagnosis",
    detector="test",
    start=0,
    end=1,
    score=100,
    validated=True,
    normalization=Normalization.RAW,
    where=Where(message=0, role="user", json_path="content"),
)
CLEAN = inspection_of(payload_digest=DIGEST)


@pytest.mark.parametrize("door", [None, object(), True, "INSPECTION_DOOR"])
def test_only_the_detectors_side_builds_an_inspection(door: object) -> None:
    with pytest.raises(TypeError, match=r"only detection\.inspection"):
        Inspection(door=door, findings=(), payload_digest=DIGEST)


def test_an_inspection_cannot_be_made_laxer_by_replace() -> None:
    ill = inspection_of(findings=[ILL])
    with pytest.raises(ValueError, match="door"):
        replace(ill, findings=())  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        ill.findings = ()  # type: ignore[misc]
    assert decide(RULEBOOK, ill).allowed is None


@pytest.mark.parametrize("length", [0, 31, 33])
def test_a_digest_of_another_length_names_no_payload(length: int) -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        Inspection(door=INSPECTION_DOOR, findings=(), payload_digest=bytes(length))
    with pytest.raises(ValueError, match="32 bytes"):
        CLEAN.moved_to(bytes(length))


def shell() -> Inspection:
    """Return an inspection that was never built, only filled from outside."""
    empty = object.__new__(Inspection)
    fields = {"findings": (), "payload_digest": DIGEST, "messages": 1, "pinned": False}
    for name, value in (fields | {"approved": (), "_brand": object()}).items():
        object.__setattr__(empty, name, value)
    object.__setattr__(empty, "floor", RoutingClass.PUBLIC)
    return empty


class Lookalike:
    findings = ()
    payload_digest = DIGEST
    messages = 1
    pinned = False
    approved = ()
    floor = RoutingClass.PUBLIC
    _brand = getattr(CLEAN, "_brand")  # noqa: B009 - as a thief would


@pytest.mark.parametrize(
    "value",
    [
        WhatIf(findings=()),
        object.__new__(Inspection),
        shell(),
        Lookalike(),
        pickle.loads(pickle.dumps(CLEAN)),  # noqa: S301 - made in this line
        None,
    ],
    ids=["what-if", "unfinished", "shell", "lookalike", "pickled", "none"],
)
def test_nothing_else_is_decided_on(value: object) -> None:
    with pytest.raises(TypeError, match="takes an Inspection"):
        require_inspected(value)
    with pytest.raises(TypeError, match="takes an Inspection"):
        decide(RULEBOOK, cast("Inspection", value))


def moved(inspection: Inspection) -> Inspection:
    return inspection.moved_to(DIGEST)


@pytest.mark.parametrize("step", [Inspection.stricter, moved])
def test_no_step_makes_a_shell_whole(step: Callable[[Inspection], Inspection]) -> None:
    with pytest.raises(TypeError, match="takes an Inspection"):
        step(shell())


def test_an_inspection_shows_no_payload_digest() -> None:
    assert DIGEST.hex() not in repr(CLEAN)
    assert str(DIGEST) not in repr(CLEAN)


def test_stricter_takes_nothing_away() -> None:
    """Every pinned, floor and finding, before and after."""
    for pinned, floor, findings in product((False, True), RoutingClass, ((), (ILL,))):
        before = inspection_of(
            findings=findings, payload_digest=DIGEST, pinned=pinned, floor=floor
        )
        for pins, lowest, more in product((False, True), RoutingClass, ((), (ILL,))):
            after = before.stricter(pinned=pins, floor=lowest, findings=more)
            assert after.pinned == (pinned or pins)
            assert after.floor.privacy == max(floor.privacy, lowest.privacy)
            assert after.findings == (*findings, *more)
            assert after.payload_digest == DIGEST
            routes = [decide(RULEBOOK, each).route.privacy for each in (before, after)]
            assert routes == sorted(routes)


def test_a_moved_inspection_is_the_same_about_another_payload() -> None:
    ill = inspection_of(findings=[ILL], payload_digest=DIGEST).stricter(pinned=True)
    other = ill.moved_to(bytes(32))
    assert other.payload_digest == bytes(32)
    assert moved(other) == ill


def test_a_what_if_is_assessed_as_an_inspection_and_permits_nothing() -> None:
    for findings, route in (((), Route.ENCLAVE), ((ILL,), Route.LOCAL)):
        supposed = assess(RULEBOOK, WhatIf(findings=findings))
        decision = decide(RULEBOOK, inspection_of(findings=findings))
        assert supposed.route is decision.route is route
        assert supposed.rules == decision.rules
        assert supposed.permitted == decision.permitted
        assert not hasattr(supposed, "allowed")
        assert not hasattr(supposed, "on_premises")
    assert copy.copy(CLEAN) == CLEAN
