import hashlib
import re
from textwrap import dedent

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from curtilage.policy.document.load import (
    MAX_CHARS,
    MAX_DEPTH,
    MAX_NODES,
    PLAIN_WORDS,
    load_policy,
    load_profile,
    profile_text,
)
from curtilage.policy.document.model import Policy
from curtilage.policy.errors import PolicyError, Problem

ANY = '{id: any-uncertain, when: "uncertain.*", then: local}'
SMALL = f"version: 1\nrules: [{ANY}]\n"


def problems_of(text: str) -> tuple[Problem, ...]:
    with pytest.raises(PolicyError) as caught:
        load_policy(dedent(text), source="p.yaml")
    assert caught.value.source == "p.yaml"
    assert caught.value.problems
    return caught.value.problems


def only_problem_of(text: str) -> Problem:
    (problem,) = problems_of(text)
    return problem


def test_load_policy_takes_the_smallest() -> None:
    policy = load_policy(SMALL, source="mine")
    assert policy.source == "mine"
    assert policy.attestation is None
    assert policy.languages == ("en",)
    assert policy.limits.max_chars == 20_000
    assert policy.document.default.decision == "local"
    assert [rule.id for rule in policy.rules] == ["any-uncertain"]


def test_digest_is_of_the_bytes() -> None:
    text = SMALL + "# Grüße\n"
    expected = "sha256:" + hashlib.sha256(text.encode()).hexdigest()
    assert load_policy(text).digest == expected
    assert load_policy(SMALL).digest != expected


def test_shipped_profile_loads() -> None:
    policy = load_profile("default")
    assert policy == load_policy(profile_text("default"), source="profile default")


COVERED = (
    "en (English), de (German), es (Spanish), fr (French), it (Italian), nl (Dutch), "
    "pt (Portuguese)"
)


@pytest.mark.parametrize(
    ("languages", "message"),
    [
        ("[]", f"name a language at least; those that are covered: {COVERED}"),
        ("[en, en]", "the same name is given twice"),
        ("[EN]", f"'EN' is not covered; languages that are: {COVERED}"),
    ],
)
def test_languages_are_covered_ones(languages: str, message: str) -> None:
    (problem,) = problems_of(f"version: 1\nlanguages: {languages}\nrules: [{ANY}]\n")
    assert (problem.path, problem.message) == ("languages", message)


def test_problem_reads_as_a_line() -> None:
    problem = Problem(line=3, path="rules[0].when", message="no")
    assert str(problem) == "line 3: rules[0].when: no"
    assert str(Problem(line=1, path="", message="no")) == "line 1: no"
    error = PolicyError((problem, problem), source="p.yaml")
    assert str(error) == "\n".join([f"p.yaml: {problem}"] * 2)


def test_every_problem_is_reported_at_once() -> None:
    problems = problems_of(
        """\
        version: 2
        sticky: &x always
        thresholds: {direct: NO, quasi: 1:30}
        limits: {max_chars: 012}
        rules:
        - id: Any
          when: "nope.* &"
          then: relay
        - {id: twice, when: org.*, then: local, id: twice}
        - {id: twice, when: org.*, then: local, distinct: 9}
        - 7
        colour: red
        packs: [hipaa, hippa]
        detectors: [{id: x}]
        ner: {engine: own}
        scan: some
        languages: [en, sv]
        default: {decision: enclave, require: [within_limits]}
        exclude:
        - {class: "secret.*"}
        - {class: identifier.direct.person, dictionary: a/../people.txt}
        transport: {accept_unpadded: true}
        routing: {tiers: 3}
        """
    )
    reported = {(each.line, each.path): each.message for each in problems}
    assert {key: reported[key] for key in reported if key[0] <= 4} == {
        (1, "version"): "expected 1",
        (2, "sticky"): reported[2, "sticky"],
        (3, "thresholds.direct"): "expected a whole number",
        (3, "thresholds.quasi"): "expected a whole number",
        (4, "limits.max_chars"): "expected a whole number",
    }
    assert any("anchors" in each.message for each in problems)
    assert "cannot be removed" in reported[5, "rules"]
    assert "pattern" in reported[6, "rules[0].id"]
    assert "unknown class 'nope.*'" in reported[7, "rules[0].when"]
    assert "'enclave'" in reported[8, "rules[0].then"]
    assert "line 9" in reported[9, "rules[1].id"]
    assert "same id" in reported[10, "rules[2].id"]
    assert "'distinct'" in reported[10, "rules[2]"]
    assert reported[11, "rules[3]"] == PLAIN_WORDS["model_type"]
    assert reported[12, "colour"] == "unknown key"
    assert "expected 'secrets', 'pci'" in reported[13, "packs[1]"]
    assert reported[14, "detectors[0].kind"] == PLAIN_WORDS["missing"]
    assert "expected 'none', 'embedded'" in reported[15, "ner.engine"]
    assert "'early_exit' or 'full'" in reported[16, "scan"]
    assert "'sv'" in reported[17, "languages"]
    assert "'require'" in reported[18, "default.require"]
    assert "cannot be excluded" in reported[20, "exclude[0].class"]
    assert "no '..'" in reported[21, "exclude[1].dictionary"]
    assert reported[22, "transport.accept_unpadded"] == "unknown key"
    assert reported[23, "routing.tiers"] == "expected a list"
    assert problems == tuple(sorted(problems))


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("", 1, "expected keys and values"),
        ("- 1\n", 1, "expected keys and values"),
        ("just words\n", 1, "expected keys and values"),
    ],
)
def test_load_policy_refuses_other_documents(text: str, line: int, said: str) -> None:
    first = problems_of(text)[0]
    assert (first.line, first.message) == (line, said)


@pytest.mark.parametrize(
    ("text", "line", "path", "said"),
    [
        ("sticky: !!str conversation\n", 1, "sticky", "tags are not accepted"),
        ("sticky: ! conversation\n", 1, "sticky", "tags are not accepted"),
        ("limits: !x {max_chars: 5}\n", 1, "limits", "tags are not accepted"),
        ("!!str sticky: conversation\n", 1, "sticky", "tags are not accepted"),
        ("? &a sticky\n: conversation\n", 1, "sticky", "anchors are not accepted"),
        ("limits: &a {max_chars: 5}\n", 1, "limits", "anchors are not accepted"),
        ("packs: &a []\n", 1, "packs", "anchors are not accepted"),
        ("<<: {sticky: conversation}\n", 1, "<<", "unknown key"),
        ("1: x\n", 1, "1", "a key is text"),
        ("true: x\n", 1, "true", "a key is text"),
        ("~: x\n", 1, "~", "a key is text"),
        ("sticky: conversation\nsticky: conversation\n", 2, "sticky", "line 1"),
        ('"a\\u202e": x\n', 1, "'a\\u202e'", "cannot be shown"),
        ('"a\\ud800": x\n', 1, "'a\\ud800'", "cannot be shown"),
        ('sticky: "\\ud800"\n', 1, "sticky", "cannot be shown"),
        ('sticky: "\\e[2J"\n', 1, "sticky", "cannot be shown"),
        ('sticky: "\\0"\n', 1, "sticky", "cannot be shown"),
        ("k" * 90 + ": x\n", 1, "k" * 40, "unknown key"),
        ("sticky: null\n", 1, "sticky", "expected"),
        ("strict_topics: yes\n", 1, "strict_topics", "expected true or false"),
        ("strict_topics: 'true'\n", 1, "strict_topics", "expected true or false"),
        ("limits: {max_chars: '5'}\n", 1, "limits.max_chars", "whole number"),
        ("limits: {max_chars: 1e3}\n", 1, "limits.max_chars", "whole number"),
        ("limits: {max_chars: true}\n", 1, "limits.max_chars", "whole number"),
        ("limits: {max_chars: 0}\n", 1, "limits.max_chars", "greater than or equal"),
        (f"limits: {{max_chars: {9**40}}}\n", 1, "limits.max_chars", "whole number"),
        ("limits:\n  over: enclave\n", 2, "limits.over", "expected 'local'"),
        ("limits:\n", 1, "limits", "expected keys and values"),
        ("packs: hipaa\n", 1, "packs", "expected a list"),
        ("thresholds: {direct: 101}\n", 1, "thresholds.direct", "less than or equal"),
        ("default: {}\n", 1, "default.decision", "this key is missing"),
        ("default:\n  decision: 7\n", 2, "default.decision", "expected 'block'"),
        ("exclude: [{class: [x]}]\n", 1, "exclude[0].class", "expected text"),
        ("exclude: [{class: uncertain.*}]\n", 1, "exclude[0].class", "excluded"),
        ("exclude: [{class: nope}]\n", 1, "exclude[0].class", "unknown class"),
        ("exclude: [{class: org.*, unless: x}]\n", 1, "exclude[0].unless", "unknown"),
    ],
)
def test_load_policy_refuses_by_line(
    text: str, line: int, path: str, said: str
) -> None:
    problem = only_problem_of(text + SMALL)
    assert (problem.line, problem.path) == (line, path)
    assert said in problem.message


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        (SMALL + "---\nversion: 1\n", 3, "a policy is one document"),
        (SMALL + "...\n---\n", 4, "a policy is one document"),
        (SMALL + "a: *nowhere\n", 3, "aliases are not accepted"),
        ("%YAML 1.1\n---\n" + SMALL, 1, "directives are not accepted"),
        ("%TAG ! tag:x,2000:\n---\n" + SMALL, 1, "directives are not accepted"),
        (SMALL + "a: {b: [}\n", 3, "not YAML"),
        (SMALL + "a: 'b\n", 4, "not YAML"),
        (SMALL + "\ta: b\n", 3, "not YAML"),
        (SMALL + 'a: "\\UFFFFFFFF"\n', 3, "an escape beyond Unicode"),
        (SMALL + 'a: "\\U00110000"\n', 3, "an escape beyond Unicode"),
        (SMALL + "a: \x01\n", 3, "a character that YAML does not allow"),
        (SMALL + "a: \ud800\n", 3, "a character that YAML does not allow"),
        (SMALL + "? [a]\n: b\n", 3, "a key is text"),
        (SMALL + "? *a\n: b\n", 3, "a key is text"),
        (SMALL + "a: " + "[" * 400, 3, f"nests at most {MAX_DEPTH} deep"),
        (SMALL + "a: " + "{a: " * 400, 3, f"nests at most {MAX_DEPTH} deep"),
        (SMALL + "- " * 400, 3, "not YAML"),
        ("- " * 400, 1, f"nests at most {MAX_DEPTH} deep"),
        ("- \n" * (MAX_NODES + 1), MAX_NODES, f"at most {MAX_NODES} entries"),
        ("#" * (MAX_CHARS + 1), 1, f"at most {MAX_CHARS} characters"),
    ],
)
def test_load_policy_refuses_the_rest_of_yaml(text: str, line: int, said: str) -> None:
    problem = only_problem_of(text)
    assert problem.line == line
    assert said in problem.message


def test_plain_words_are_text() -> None:
    policy = load_policy(
        "version: 1\nrules:\n"
        f"- {ANY}\n"
        "- {id: no, when: org.*, then: local, reason: NO}\n"
        "- {id: octal, when: org.*, then: local, reason: 012}\n"
        "- {id: sexagesimal, when: org.*, then: local, reason: 1:30}\n"
        "- {id: date, when: org.*, then: local, reason: 2026-01-01}\n"
        "- {id: float, when: org.*, then: local, reason: 1.5}\n"
    )
    reasons = [rule.reason for rule in policy.rules[1:]]
    assert reasons == ["NO", "012", "1:30", "2026-01-01", "1.5"]


@pytest.mark.parametrize(
    ("rule", "path", "said"),
    [
        (None, "rules", "cannot be removed"),
        ('{id: any-uncertain, when: "uncertain.error", then: local}', "when", "write"),
        ('{id: any-uncertain, when: "uncertain.*>=9", then: local}', "when", "write"),
        (
            '{id: any-uncertain, when: "uncertain.* & org.*", then: local}',
            "when",
            "write",
        ),
        ('{id: any-uncertain, when: "uncertain.*", then: enclave}', "then", "local or"),
        (
            '{id: any-uncertain, when: "uncertain.*", then: deidentify}',
            "then",
            "local or",
        ),
        (ANY[:-1] + ", min_conf: 90}", "min_conf", "weakened by"),
        (ANY[:-1] + ", distinct: 2}", "distinct", "weakened by"),
    ],
)
def test_any_uncertain_cannot_be_removed_or_weakened(
    rule: str | None, path: str, said: str
) -> None:
    other = "{id: other, when: org.*, then: local}"
    problem = only_problem_of(f"version: 1\nrules: [{rule or other}]\n")
    assert problem.path.removeprefix("rules[0].") == path
    assert said in problem.message


def test_any_uncertain_may_block() -> None:
    text = SMALL.replace("then: local", "then: block, within: span, reason: x")
    assert load_policy(text).rules[0].route == "block"


def test_any_uncertain_is_reported_along_with_wrong_types() -> None:
    messages = [each.message for each in problems_of("version: 1\nrules: {a: 1}\n")]
    assert len(messages) == 2
    problems_of("version: 1\nrules: [{id: [any-uncertain], when: {}, then: []}]\n")
    found = problems_of(
        "version: 1\nrules: [{id: any-uncertain, when: uncertain.*, then: [local]}]\n"
    )
    assert any("cannot be weakened" in each.message for each in found)


def test_rule_ids_of_the_program_are_reserved() -> None:
    for name in ("default", "sticky", "strict-topics"):
        rule = f"{{id: {name}, when: org.*, then: local}}"
        problem = only_problem_of(f"version: 1\nrules: [{ANY}, {rule}]\n")
        assert "is reserved" in problem.message


def test_policy_cannot_be_made_without_the_rule() -> None:
    policy = load_policy(SMALL)
    for rules in ((), policy.rules[1:]):
        with pytest.raises(ValueError, match="any-uncertain"):
            Policy(
                document=policy.document,
                digest=policy.digest,
                source="forged",
                rules=rules,
                exclusions=(),
            )


def test_errors_hold_no_values() -> None:
    problems = problems_of(SMALL + "sticky: hunter2\nlimits: {over: hunter2}\n")
    assert "hunter2" not in str(problems)


@settings(deadline=None)  # a busy machine is no finding
@given(st.text(max_size=200))
@example("? ? ? a")
@example('"\\x')
@example("%")
@example("--- |\n")
@example("&a *a")
@example("\ufeffversion: 1")
@example("a: !<tag:yaml.org,2002:int> 1")
def test_any_text_gives_a_policy_or_problems(text: str) -> None:
    check_outcome(text)


@settings(deadline=None)  # a busy machine is no finding
@given(st.data())
def test_any_damage_gives_a_policy_or_problems(data: st.DataObject) -> None:
    text = re.sub(r"#.*\n|reason: >-\n(    .*\n)*", "", profile_text("default"))
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 20)))
    piece = data.draw(
        st.one_of(st.text("[]{}:,-&*!|>%@?#'\"\n \t01ax.~", max_size=8), st.text())
    )
    check_outcome(text[:start] + piece + text[end:])


def check_outcome(text: str) -> None:
    policy, problems = outcome_of(text)
    if policy is None:
        assert problems
        assert all(each.message and each.line >= 1 for each in problems)
    else:
        assert "any-uncertain" in {rule.id for rule in policy.rules}


def outcome_of(text: str) -> tuple[Policy | None, tuple[Problem, ...]]:
    try:
        return load_policy(text), ()
    except PolicyError as error:
        return None, error.problems


APPROVAL = f"{{sha256: '{'ab' * 32}', by: A. Weber, date: 2026-11-22}}"


def test_an_approved_text_is_named_by_its_digest_and_its_role() -> None:
    policy = load_policy(SMALL + f"approved: [{APPROVAL}]\n")
    assert policy.rulebook.approved == {("system", "ab" * 32)}
    assert load_policy(SMALL).rulebook.approved == frozenset()


@pytest.mark.parametrize(
    ("wrong", "path", "message"),
    [
        (APPROVAL.replace("ab", "AB", 1), "approved[0].sha256", "pattern"),
        (APPROVAL.replace("ab", "", 1), "approved[0].sha256", "pattern"),
        (APPROVAL.replace("11-22", "11-31"), "approved[0].date", "a day"),
        (APPROVAL.replace("2026-11-22", "20261122"), "approved[0].date", "text"),
        (APPROVAL.replace("2026-11-22", "today"), "approved[0].date", "a day"),
        (APPROVAL.replace("2026-11-22", "2026-W47-7"), "approved[0].date", "a day"),
        (APPROVAL.replace("by: A. Weber, ", ""), "approved[0].by", "missing"),
        (APPROVAL.replace("}", ", role: user}"), "approved[0].role", "system"),
        (APPROVAL.replace("}", ", role: tool}"), "approved[0].role", "system"),
        (f"{APPROVAL}, {APPROVAL}", "approved", "is approved twice"),
    ],
)
def test_an_invalid_approval_is_reported_with_its_place(
    wrong: str, path: str, message: str
) -> None:
    problem = only_problem_of(SMALL + f"approved: [{wrong}]\n")
    assert (problem.line, problem.path) == (3, path)
    assert message in problem.message


@pytest.mark.parametrize("languages", ["[en]", "[de]", "[en, de, es, fr, it, nl, pt]"])
def test_contents_can_be_compared_in_every_covered_language(languages: str) -> None:
    policy = load_policy(SMALL + f"languages: {languages}\nsticky: content\n")
    assert policy.rulebook.sticky == "content"
