import json
from collections import Counter
from collections.abc import Callable
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curtilage.policy.cases import (
    MAX_LINES,
    SHIPPED,
    Case,
    CaseFile,
    Failure,
    Turn,
    judge,
    parse_case_lines,
    parse_cases,
    shipped_cases,
)
from curtilage.policy.decision.decide import Decision, RuleHit
from curtilage.policy.decision.routes import Route
from curtilage.policy.decision.tiers import Tiering
from curtilage.policy.document.load import PROFILES
from curtilage.policy.errors import PolicyError
from support.examples import examples

HEAD = "version: 1\ncases:\n"
TURN = HEAD + "- {id: a, route: local, messages: [{role: user, "
AT_LEAST = 200
CLEAN_AT_LEAST = 150


def decision(route: Route, *rules: str, classes: tuple[str, ...] = ()) -> Decision:
    return Decision(
        route=route,
        classes=classes,
        rules=tuple(RuleHit(id=each, route=route, reason="why") for each in rules),
        rule=rules[0] if rules else "default",
        reason="why",
        uncertain=("uncertain.name",),
        policy_digest="sha256:0",
        allowed=None,
        permitted=Tiering().permitted(route, frozenset()),
    )


def case(*, route: Route = Route.LOCAL, **fields: tuple[str, ...]) -> Case:
    turn = Turn(role="user", content="canary")
    return Case(id="a", turns=(turn,), routes={"else": route}, **fields)


def problems(text: str) -> list[str]:
    with pytest.raises(PolicyError) as refused:
        parse_cases(text, source="c.yaml")
    return [str(each) for each in refused.value.problems]


def test_parse_cases_reads_every_key() -> None:
    text = """\
version: 1
about: an example
cases:
- {id: a, text: "one", route: local}
- id: b
  messages:
  - {role: system, content: "two"}
  - {role: user, content: "three", name: "four"}
  route: {clinic: block, else: enclave}
  rules: [phi]
  classes: [financial.pan, uncertain.name]
  profiles: [clinic, bank]
known_misses:
- {id: c, text: "five", route: deidentify}
"""
    read = parse_cases(text)
    assert [each.id for each in read.cases] == ["a", "b"]
    assert read.cases[0].turns == (Turn(role="user", content="one"),)
    assert read.cases[1].turns[1] == Turn(role="user", content="three", name="four")
    assert read.cases[1].rules == ("phi",)
    assert read.cases[1].classes == ("financial.pan", "uncertain.name")
    assert [each.id for each in read.known_misses] == ["c"]


def test_a_case_has_a_route_for_each_policy_that_it_is_for() -> None:
    routes = {"clinic": Route.BLOCK, "else": Route.ENCLAVE}
    turn = Turn(role="user", content="x")
    one = Case(id="a", turns=(turn,), routes=routes, profiles=("clinic", "bank"))
    assert one.route_under("clinic") is Route.BLOCK
    assert one.route_under("bank") is Route.ENCLAVE
    assert one.route_under("default") is None
    assert (
        Case(id="b", turns=(turn,), routes={"x": Route.LOCAL}).route_under("y") is None
    )


def test_a_file_under_a_name_leaves_out_the_others() -> None:
    text = HEAD + (
        "- {id: a, text: x, route: {clinic: local}}\n"
        "- {id: b, text: x, route: local, profiles: [bank]}\n"
        "known_misses:\n- {id: c, text: x, route: {bank: local}}\n"
    )
    bank = parse_cases(text).under("bank")
    assert [each.id for each in bank.cases] == ["b"]
    assert [each.id for each in bank.known_misses] == ["c"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[]", "line 1: expected keys and values"),
        ("version: 2\ncases: [{id: a, text: x, route: local}]", "version: expected 1"),
        ("version: 1", "cases: there is no case"),
        ("version: 1\ncases: x", "cases: expected a list"),
        (HEAD + "- x", "line 3: cases[0]: expected keys and values"),
        (HEAD + "- {text: x, route: local}", "cases[0].id: expected text"),
        (HEAD + '- {id: "", text: x, route: local}', "cases[0].id: expected text"),
        (
            HEAD + "- {id: a, text: x, route: local}\n- {id: a, text: y, route: local}",
            "line 4: cases[1].id: another case above has the same id",
        ),
        (HEAD + "- {id: a, text: x, route: here}", "cases[0].route: expected one of"),
        (HEAD + "- {id: a, text: x}", "cases[0].route: expected one of block, local"),
        (HEAD + "- {id: a, text: x, route: {}}", "cases[0].route: names no route"),
        (
            HEAD + "- {id: a, text: x, route: {clinic: away}}",
            "cases[0].route.clinic: expected one of",
        ),
        (HEAD + "- {id: a, text: 12, route: local}", "cases[0].text: expected text"),
        (HEAD + "- {id: a, route: local}", "write either 'text' or 'messages'"),
        (
            HEAD + "- {id: a, text: x, messages: [], route: local}",
            "write either 'text' or 'messages'",
        ),
        (HEAD + "- {id: a, messages: [], route: local}", "messages: expected a list"),
        (
            HEAD + "- {id: a, messages: [x], route: local}",
            "cases[0].messages[0]: expected keys and values",
        ),
        (
            HEAD + "- {id: a, messages: [{role: robot, content: x}], route: local}",
            "cases[0].messages[0].role: expected one of system",
        ),
        (
            HEAD + "- {id: a, messages: [{role: user}], route: local}",
            "cases[0].messages[0].content: expected text",
        ),
        (
            HEAD
            + "- {id: a, messages: [{role: user, content: x, name: 1}], route: local}",
            "cases[0].messages[0].name: expected text",
        ),
        (
            HEAD
            + "- {id: a, messages: [{role: user, content: x, to: y}], route: local}",
            "cases[0].messages[0].to: unknown key",
        ),
        (
            HEAD + "- {id: a, text: x, route: local, rules: phi}",
            "cases[0].rules: expected a list of texts",
        ),
        (
            HEAD + "- {id: a, text: x, route: local, rules: [1]}",
            "cases[0].rules: expected a list of texts",
        ),
        (
            HEAD + "- {id: a, text: x, route: local, classes: [no.such]}",
            "cases[0].classes[0]: unknown class",
        ),
        (
            HEAD + "- {id: a, text: x, route: local, why: y}",
            "cases[0].why: unknown key",
        ),
        ("version: 1\nwhy: x\ncases: [&a x]", "why: unknown key"),
        ("version: 1\ncases: [&a x]", "anchors are not accepted"),
    ],
)
def test_parse_cases_reports_what_is_wrong(text: str, expected: str) -> None:
    assert any(expected in each for each in problems(text)), problems(text)


def test_parse_cases_reports_everything_at_once() -> None:
    text = HEAD + "- {id: a, text: x, route: here}\n- {id: b, route: local}\n"
    assert len(problems(text)) == 2


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["id", "text", "messages", "route", "rules", "role", "cases"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


def problems_or_none(parse: Callable[[str], CaseFile], text: str) -> object:
    try:
        return None if parse(text).cases else "no case"
    except PolicyError as refused:
        return refused.problems


@given(JSON)
def test_any_tree_gives_cases_or_problems(value: object) -> None:
    assert problems_or_none(parse_case_lines, json.dumps(value)) != ()
    file = json.dumps({"version": 1, "cases": value})
    assert problems_or_none(parse_cases, file) != "no case"


def test_parse_case_lines_reads_a_case_a_line() -> None:
    lines = [{"id": "a", "text": "x", "route": "local"}, {"id": "b", "text": "y"}]
    lines[1]["route"] = "enclave"
    read = parse_case_lines("\n\n".join(map(json.dumps, lines)))
    assert [each.id for each in read.cases] == ["a", "b"]
    assert read.known_misses == ()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "line 1: there is no case"),
        ("{", "line 1: not a JSON object"),
        ("[" * 100_000, "line 1: not a JSON object"),
        ('{"id": "a", "id": "b"}', "a key twice"),
        ("[]", "line 1: expected keys and values"),
        ('\n{"id": "a", "text": "x", "route": "y"}', "line 2: route: expected one of"),
        (
            '{"id": "a", "route": "local", "messages": [{"role": 1, "content": "x"}]}',
            "line 1: messages[0].role: expected",
        ),
        ("\n" * (MAX_LINES + 1), f"more than {MAX_LINES} lines"),
    ],
)
def test_parse_case_lines_reports_what_is_wrong(text: str, expected: str) -> None:
    with pytest.raises(PolicyError) as refused:
        parse_case_lines(text)
    assert expected in str(refused.value)


def test_judge_accepts_what_was_asked_for() -> None:
    asked = case(rules=("phi",), classes=("health.lab", "uncertain.name"))
    found = decision(Route.LOCAL, "other", "phi", classes=("health.lab",))
    assert judge(asked, "any", found) is None


def test_judge_passes_over_a_case_for_another_policy() -> None:
    asked = case(profiles=("clinic",))
    assert judge(asked, "bank", decision(Route.ENCLAVE)) is None


def test_judge_reports_failures_without_the_text() -> None:
    asked = case(rules=("phi", "secret"), classes=("health.lab",))
    failure = judge(asked, "any", decision(Route.ENCLAVE, "phi"))
    assert failure == Failure(
        id="a",
        expected=Route.LOCAL,
        got=Route.ENCLAVE,
        rule="phi",
        reason="why",
        missing_rules=("secret",),
        missing_classes=("health.lab",),
        fired=("phi",),
    )
    assert "canary" not in repr(failure)
    assert "canary" not in repr(asked)


@pytest.mark.parametrize(
    "asked", [case(rules=("secret",)), case(classes=("health.lab",))]
)
def test_judge_is_not_content_with_the_route_alone(asked: Case) -> None:
    assert judge(asked, "any", decision(Route.LOCAL, "phi")) is not None


@pytest.mark.parametrize("profile", PROFILES)
def test_every_profile_has_cases_of_both_kinds(profile: str) -> None:
    cases = shipped_cases(profile).cases
    assert len(cases) >= AT_LEAST
    routes = Counter(each.route_under(profile) for each in cases)
    assert routes[Route.LOCAL] >= AT_LEAST // 3
    assert routes[Route.ENCLAVE] >= AT_LEAST // 3
    assert len({each.turns for each in cases}) == len(cases), "the same query twice"


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("kind", ["open-", "near-"])
def test_every_profile_has_many_clean_cases_of_each_kind(
    profile: str, kind: str
) -> None:
    clean = [
        each
        for each in shipped_cases(profile).cases
        if each.id.startswith((kind, "code-") if kind == "open-" else kind)
        and each.route_under(profile) is Route.ENCLAVE
    ]
    assert len(clean) >= CLEAN_AT_LEAST


@pytest.mark.parametrize("profile", PROFILES)
@examples(
    ("lang", "kind"), product(["de", "fr", "es", "it", "nl", "pt"], ["open", "near"])
)
def test_every_profile_has_clean_cases_in_every_covered_language(
    profile: str, lang: str, kind: str
) -> None:
    routes = [
        each.route_under(profile)
        for each in shipped_cases(profile).cases
        if each.id.startswith(f"{kind}-{lang}-")
    ]
    assert routes == [Route.ENCLAVE] * 8


def test_ids_are_unique_over_all_shipped_files() -> None:
    ids = [each.id for profile in PROFILES for each in shipped_cases(profile).cases]
    per_profile = Counter(ids)
    assert max(per_profile.values()) == len(PROFILES)
    assert set(SHIPPED) >= set(PROFILES)


def test_there_are_no_cases_for_an_unknown_profile() -> None:
    with pytest.raises(KeyError):
        shipped_cases("unknown")
