import re
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curtilage.policy.decision.classes import CLASSES
from curtilage.policy.decision.conditions import (
    DEPTH,
    EXPRESSION_CHARS,
    joins,
    parse_condition,
)

NAMES = sorted(CLASSES)[::5]
SCORES = st.dictionaries(st.sampled_from(NAMES), st.integers(0, 100), max_size=6)
TERMS = st.one_of(
    st.sampled_from(NAMES),
    st.sampled_from(NAMES).map(lambda name: name.rsplit(".", 1)[0] + ".*"),
    st.builds("{}>={}".format, st.sampled_from(NAMES), st.integers(1, 100)),
)
EXPRESSIONS = st.recursive(
    TERMS,
    lambda inner: st.one_of(
        st.builds("({} & {})".format, inner, inner),
        st.builds("({} | {})".format, inner, inner),
    ),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("expression", "scores", "expected"),
    [
        ("secret.*", {"secret.token": 1}, True),
        ("secret.*", {"financial.pan": 100}, False),
        ("topic.health>=50", {"topic.health": 49}, False),
        ("topic.health>=50", {"topic.health": 50}, True),
        ("topic.health >= 50", {"topic.health": 50}, True),
        ("topic.*>=50", {"topic.health": 1, "topic.legal": 50}, True),
        ("health.lab & marker.first_person", {"health.lab": 9}, False),
        (
            "health.lab & marker.first_person",
            {"health.lab": 9, "marker.first_person": 9},
            True,
        ),
        ("health.lab | org.* & legal.*", {"health.lab": 9}, True),
        ("(health.lab | org.*) & legal.*", {"health.lab": 9}, False),
        ("((secret.dsn))", {"secret.dsn": 9}, True),
        ("financial.{pan, iban}\n| secret.*", {"financial.iban": 9}, True),
    ],
)
def test_parse_condition_reads(
    expression: str, scores: Mapping[str, int], expected: bool
) -> None:
    assert parse_condition(expression).holds(scores) is expected


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("", "expected a class but found the end, at character 1"),
        ("   ", "expected a class but found the end"),
        ("secret.* &", "found the end, at character 11"),
        ("secret.* secret.*", "or the end but found 'secret.*', at character 10"),
        ("(secret.*", "expected ')' but found the end"),
        ("secret.*)", "or the end but found ')'"),
        ("| secret.*", "expected a class but found '|'"),
        ("secret.*>=", "expected a score from 1 to 100 but found the end"),
        ("secret.*>=0", "expected a score from 1 to 100 but found '0'"),
        ("secret.*>=101", "expected a score from 1 to 100 but found '101'"),
        ("secret.*>=1000", "cannot read '1'"),
        ("secret.*>=5x", "cannot read '5'"),
        ("secret.* > 5", "cannot read '>', at character 10"),
        ("!secret.*", "there is no negation, at character 1"),
        ("not secret.*", "there is no negation"),
        ("secret.* and topic.*", "use '&' and '|'"),
        ("topic.* & nope.*", "unknown class 'nope.*'"),
        ("topic.* & nope.*", "at character 11"),
        ("'secret.*'", 'cannot read "\'"'),
        ("(" * (DEPTH + 1) + "secret.*" + ")" * (DEPTH + 1), "at most 16 deep"),
        ("(" * 4000, "at most 16 deep"),
        ("x" * (EXPRESSION_CHARS + 1), "at most 4096 characters"),
    ],
)
def test_parse_condition_refuses(expression: str, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        parse_condition(expression)


def test_parse_condition_takes_the_deepest_nesting() -> None:
    condition = parse_condition("(" * DEPTH + "secret.*" + ")" * DEPTH)
    assert condition.holds({"secret.token": 1})


def test_minimum_of_concerns_terms_without_a_score() -> None:
    condition = parse_condition(
        "identifier.direct.email | topic.health>=20", minimum_of=lambda _name: 35
    )
    assert not condition.holds({"identifier.direct.email": 34})
    assert condition.holds({"identifier.direct.email": 35})
    assert condition.holds({"topic.health": 20})


@settings(deadline=None)  # a busy machine is no finding
@given(EXPRESSIONS, SCORES)
def test_matched_is_there_and_named(expression: str, scores: dict[str, int]) -> None:
    condition = parse_condition(expression)
    assert condition.matched(scores) <= condition.classes & scores.keys()


@settings(deadline=None)  # a busy machine is no finding
@given(EXPRESSIONS, SCORES)
def test_what_holds_matches_something(expression: str, scores: dict[str, int]) -> None:
    condition = parse_condition(expression)
    assert not condition.holds(scores) or condition.matched(scores)


@settings(deadline=None)  # a busy machine is no finding
@given(EXPRESSIONS, SCORES, SCORES)
def test_more_findings_never_undo_a_condition(
    expression: str, some: dict[str, int], others: dict[str, int]
) -> None:
    more = {
        name: max(some.get(name, -1), others.get(name, -1))
        for name in some.keys() | others.keys()
    }
    condition = parse_condition(expression)
    assert not condition.holds(some) or condition.holds(more)
    assert condition.matched(some) <= condition.matched(more)


@settings(deadline=None)  # a busy machine is no finding
@given(EXPRESSIONS)
def test_joins_depends_on_the_ampersand(expression: str) -> None:
    assert joins(parse_condition(expression)) is ("&" in expression)


@settings(deadline=None)  # a busy machine is no finding
@given(st.text(alphabet="secrthal.*{},&|()>=0159 \n!", max_size=60))
def test_parse_condition_of_any_text_gives_a_condition_or_says_why(text: str) -> None:
    try:
        parse_condition(text)
    except ValueError as error:
        assert str(error)  # noqa: PT017 - either outcome is fine
