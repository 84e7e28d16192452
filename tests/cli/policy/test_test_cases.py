"""The shipped cases of every profile, against the detectors themselves."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache

import pytest

from curtilage.cli.examine import inspect_all, start_detectors
from curtilage.cli.policy.test_cases import in_words, query_of
from curtilage.policy.cases import Case, judge, shipped_cases
from curtilage.policy.decision.decide import Decision, Inspection, decide
from curtilage.policy.decision.rules import ANY_UNCERTAIN
from curtilage.policy.document.detection_plan import DetectionPlan
from curtilage.policy.document.load import PROFILES, load_policy, profile_text
from curtilage.policy.document.model import Limits, Policy, full_scan

HITS = 3
KNOWN_MISSES = 15  # per profile; more would not be exceptions any more
Seen = Mapping[str, Inspection]


@cache
def profile(name: str) -> Policy:
    """Return a profile with the names model, which the cases assume."""
    text = profile_text(name).replace("{engine: none}", "{engine: embedded}")
    return load_policy(text, source=f"profile {name}")


def looks(policy: Policy) -> tuple[DetectionPlan, Limits]:
    """Return what the detectors depend on: profiles with equal values share one run."""
    plan = full_scan(policy).plan
    return replace(plan, packs=()), policy.limits


@pytest.fixture(scope="module")
def seen() -> Mapping[object, Seen]:
    cases = {
        case.id: case
        for name in PROFILES
        for case in (*shipped_cases(name).cases, *shipped_cases(name).known_misses)
    }
    policies = {looks(profile(name)): profile(name) for name in PROFILES}
    return {key: inspected(policy, cases) for key, policy in policies.items()}


def inspected(policy: Policy, cases: Mapping[str, Case]) -> Seen:
    inspector = start_detectors(policy)
    try:
        queries = [query_of(case) for case in cases.values()]
        return dict(zip(cases, inspect_all(inspector, queries), strict=True))
    finally:
        inspector.close()


def decided(
    name: str, cases: tuple[Case, ...], seen: Mapping[object, Seen]
) -> Iterator[tuple[Case, Decision]]:
    inspections = seen[looks(profile(name))]
    for case in cases:
        yield case, decide(profile(name).rulebook, inspections[case.id])


@pytest.mark.parametrize("name", PROFILES)
def test_every_case_holds(name: str, seen: Mapping[object, Seen]) -> None:
    failures = [
        in_words(failure)
        for case, decision in decided(name, shipped_cases(name).cases, seen)
        if (failure := judge(case, name, decision)) is not None
    ]
    assert failures == [], "\n".join(failures)


@pytest.mark.parametrize("name", PROFILES)
def test_known_misses_are_few_and_still_missed(
    name: str, seen: Mapping[object, Seen]
) -> None:
    known = shipped_cases(name).known_misses
    mended = [
        case.id
        for case, decision in decided(name, known, seen)
        if judge(case, name, decision) is None
    ]
    assert mended == [], "these are misses no more: move them to the cases"
    assert len(known) <= KNOWN_MISSES


@pytest.mark.parametrize("name", PROFILES)
def test_every_rule_is_hit(name: str, seen: Mapping[object, Seen]) -> None:
    fired = Counter(
        hit.id
        for _, decision in decided(name, shipped_cases(name).cases, seen)
        for hit in decision.rules
    )
    rarely = [rule.id for rule in profile(name).rules if fired[rule.id] < HITS]
    assert rarely == [], f"hit less than {HITS} times"
    assert fired[ANY_UNCERTAIN] >= HITS
