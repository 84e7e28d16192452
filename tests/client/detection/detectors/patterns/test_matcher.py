import re
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache, partial
from importlib import import_module
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curtilage.client.detection.detectors.patterns.catalog import PATTERNS
from curtilage.client.detection.detectors.patterns.matcher import PatternSet, fold
from curtilage.client.detection.detectors.patterns.number_rows import (
    HARMLESS_RUN,
    NUMBER_RUN,
)
from curtilage.client.detection.detectors.patterns.rule import PatternRule
from curtilage.client.detection.detectors.patterns.secrets import SECRETS
from curtilage.client.detection.detectors.readings import Reading
from curtilage.policy.decision.findings import Normalization
from support.equipment import every_pattern
from support.examples import examples
from support.growth import grows_at_most, seconds_of

RULES = (*PATTERNS, *SECRETS)
WORDED = [rule for rule in RULES if rule.words]


def raw(text: str, view: Normalization = Normalization.RAW) -> Reading:
    return Reading(normalization=view, text=text)


ONE = PatternRule(id="one", data_class="secret.token", regex="x", score=50)


def ids(rules: Iterable[PatternRule], text: str) -> list[str]:
    return [span.detector for span in PatternSet(rules).find(raw(text))]


# --- a gate hides no match ------------------------------------------------------


def parse(regex: str) -> Sequence[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        parsed: Sequence[Any] = import_module("sre_parse").parse(regex)
    return parsed


def spelled(nodes: Iterable[Any]) -> set[str] | None:
    """Return all that some nodes can match, in lower case; None: too much."""
    found = {""}
    for node in nodes:
        one = spelled_node(str(node[0]), node[1])
        if one is None or len(one) * len(found) > 20_000:
            return None
        found = {left + right for left in found for right in one}
    return found


def spelled_node(kind: str, value: Any) -> set[str] | None:  # noqa: ANN401 - the parser's own
    reader = SPELLED.get(kind)
    return None if reader is None else reader(value)


def spelled_set(value: Sequence[Any]) -> set[str] | None:
    if any(str(each[0]) != "LITERAL" for each in value):
        return None
    return {chr(each[1]).lower() for each in value}


def spelled_branch(value: Sequence[Any]) -> set[str] | None:
    parts = [spelled(each) for each in value[1]]
    return None if None in parts else {text for part in parts for text in part or ()}


SPELLED: dict[str, Callable[[Any], set[str] | None]] = {
    "LITERAL": lambda value: {chr(value).lower()},
    "IN": spelled_set,
    "SUBPATTERN": lambda value: spelled(value[3]),
    "BRANCH": spelled_branch,
    "AT": lambda _: {""},
    "ASSERT": lambda _: {""},
    "ASSERT_NOT": lambda _: {""},
    "MAX_REPEAT": lambda value: (
        repeated(spelled(value[2]), value[0], int(value[1]))
        if int(value[1]) <= 4
        else None
    ),
}


def repeated(once: set[str] | None, least: int, most: int) -> set[str] | None:
    if once is None or len(once) > 8:
        return None
    found, so_far = set[str](), {""}
    for count in range(most + 1):
        found |= so_far if count >= least else set()
        so_far = {left + right for left in so_far for right in once}
    return found


def covered(nodes: Iterable[Any], words: Sequence[str], before: set[str]) -> bool:
    """Return whether every match of these nodes holds one of the words."""
    run = before
    for node in nodes:
        one = spelled([node])
        if one is not None and len(one) * len(run) <= 20_000:
            run = {left + right for left in run for right in one}
        elif covered_node(str(node[0]), node[1], words, run):
            return True
        else:
            run = {""}
        if all(any(word in text for word in words) for text in run):
            return True
    return False


def covered_node(
    kind: str,
    value: Any,  # noqa: ANN401 - the parser's own
    words: Sequence[str],
    run: set[str],
) -> bool:
    if kind == "SUBPATTERN":
        return covered(value[3], words, run)
    if kind == "BRANCH":
        return all(covered(each, words, run) for each in value[1])
    if kind in {"MAX_REPEAT", "MIN_REPEAT"}:
        return value[0] > 0 and covered(value[2], words, run)
    return False


@examples("rule", WORDED)
def test_every_match_holds_a_word_of_the_gate(rule: PatternRule) -> None:
    assert covered(parse(rule.regex), rule.words, {""})


def test_the_proof_sees_a_word_that_is_missing() -> None:
    assert covered(parse(r"(?:pass|word)\d"), ["pass", "word"], {""})
    assert not covered(parse(r"(?:pass|word)\d"), ["pass"], {""})
    assert not covered(parse(r"(?:pass)?\d"), ["pass"], {""})


SEEDS = (
    "ssn 536221234", "4111 1111 1111 1111", "IBAN DE89370400440532013000", "born on",
    "March 3rd, 1982", "12 Old Mill Lane", "my password is hunter2", "\n", " ",
    "\u017fsn 536 22 1234", "PASSWORD \u0131s hunter2", "aa:bb:cc:dd:ee:ff", "a@b.c",
    "1M8GDM9AXKP042788",
    "1" + " " * 8 + "2", "RSSMRA85T10A562S", "K1A 0B1", "(34F)", "x" * 9, "\u212a-1",
)  # fmt: skip


OFTEN = [each for each in RULES if not each.id.endswith("-named-key")][::3]


@cache
def gated() -> PatternSet:
    return PatternSet(OFTEN)


@cache
def ungated() -> PatternSet:
    return PatternSet(
        replace(each, gate="", words=(), digits=0, mixed=False) for each in OFTEN
    )


@settings(deadline=None, max_examples=40)
@given(st.lists(st.sampled_from(SEEDS), max_size=4))
def test_gates_change_nothing(parts: list[str]) -> None:
    reading = raw(" ".join(parts))
    assert sorted(gated().find(reading), key=repr) == sorted(
        ungated().find(reading), key=repr
    )


def test_gate_wants_a_digit_a_run_a_sign_and_a_mixed_word() -> None:
    assert ids([replace(ONE, gate="0")], "x") == []
    assert ids([replace(ONE, gate="0")], "x1") == ["one"]
    assert ids([replace(ONE, gate="@%")], "x") == []
    assert ids([replace(ONE, gate="@%")], "x%") == ["one"]
    assert ids([replace(ONE, digits=3)], "x 12 letters 34") == []
    assert ids([replace(ONE, digits=3)], "x 12 ... 34") == ["one"]
    assert ids([replace(ONE, mixed=True)], "x 12") == []
    assert ids([replace(ONE, mixed=True)], "x 1a") == ["one"]
    assert ids([replace(ONE, mixed=True)], "xa1") == ["one"]
    assert ids([replace(ONE, words=("abc", "longer"))], "x ab lon ger") == []
    assert ids([replace(ONE, words=("abc", "longer"))], "x LONGER") == ["one"]


def test_words_are_found_as_re_ignores_case() -> None:
    for letter in ("\u0130", "\u0131", "\u017f", "\u212a"):
        plain = fold(letter)
        assert len(plain) == 1
        assert re.fullmatch(plain, letter, re.IGNORECASE)


@pytest.mark.parametrize("words", [("ab",), ("ABC",), ("",)])
def test_a_word_that_could_never_be_found_is_refused(words: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="one"):
        PatternSet([replace(ONE, words=words)])


def test_check_confirms_or_refutes() -> None:
    def even(text: str) -> bool:
        return int(text) % 2 == 0

    found = list(PatternSet([replace(ONE, regex=r"\d+", check=even)]).find(raw("4 5")))
    assert [(span.score, span.validated) for span in found] == [
        (100, True),
        (50, False),
    ]
    required = PatternSet([replace(ONE, regex=r"\d+", check=even, required=True)])
    assert [span.start for span in required.find(raw("4 5"))] == [0]


def test_compact_view_is_for_checked_rules_and_those_that_ask() -> None:
    def compact(rule: PatternRule) -> int:
        return len(list(PatternSet([rule]).find(raw("x", Normalization.COMPACT))))

    assert compact(ONE) == 0
    assert compact(replace(ONE, everywhere=True)) == 1
    assert compact(replace(ONE, required=True, check=bool)) == 1


def test_group_is_the_finding() -> None:
    (span,) = PatternSet([replace(ONE, regex="pin (1)", group=1)]).find(raw("my pin 1"))
    assert (span.start, span.end) == (7, 8)


# --- time grows with length only --------------------------------------------------

# What drives patterns to trouble (F2, F3, F4), and what each repeats inside.
PUMPS = (
    "a.", "1.2.3.4", "1:", "1 ", "a@", "A1", "1-", "my ", "password is ", "x" * 16,
    "12 Old ", "://", "+1 (", "0x", "a" * 7 + " ", "case no ", "<", "_1", "AB12 ",
    ".", "****", "a=", "is ", "A", "1", "ssn ", "jan 1 ", "eyJa.", "::", "a:b@", "\n",
    "kind: Secret ",
)  # fmt: skip
ONE_OF_THE_NAMED = [
    each for each in RULES if not each.id.endswith("-named-key")
] + [each for each in RULES if each.id.endswith("-named-key")][:1]  # fmt: skip
NOTICEABLE_S = 0.02
SHORT, LONG = 2000, 8000


def seconds(regex: re.Pattern[str], pump: str, length: int) -> float:
    text = (pump * length)[:length]
    return seconds_of(lambda: sum(1 for _ in regex.finditer(text)))


def grows_with_length_only(regex: re.Pattern[str], pumps: Iterable[str]) -> bool:
    """Return whether four times the length takes less than eight times as long.

    Linear code takes four times as long, quadratic code sixteen times. What takes no
    noticeable time at the greater length is not measured.
    """
    for pump in pumps:
        if seconds(regex, pump, LONG) < NOTICEABLE_S:
            continue
        cost = partial(seconds, regex, pump)
        if not grows_at_most(cost, lengths=(SHORT, LONG), factor=8, noise_s=0):
            return False
    return True


@examples("rule", ONE_OF_THE_NAMED)
def test_time_of_a_pattern_grows_with_length_only(rule: PatternRule) -> None:
    regex = re.compile(rule.regex, 0 if rule.cased else re.IGNORECASE)
    own = [f"{word}{tail}" for word in rule.words[:3] for tail in ("", " ", ": 1 ")]
    assert grows_with_length_only(regex, (*PUMPS, *own))


@pytest.mark.parametrize("pattern", [NUMBER_RUN, HARMLESS_RUN])
def test_time_of_a_run_grows_with_length_only(pattern: str) -> None:
    assert grows_with_length_only(re.compile(pattern), PUMPS)


def test_the_measurement_sees_a_quadratic_pattern() -> None:
    assert not grows_with_length_only(re.compile(r"(?:a|b)*c"), ["ab"])


@pytest.mark.parametrize("pump", ["1 ", "ssn ", "1.2.3.4 ", "born 1 ", "a1: ", "x"])
def test_time_of_all_patterns_together_is_linear(pump: str) -> None:
    def took(length: int) -> float:
        reading = raw((pump * length)[:length])
        return seconds_of(lambda: list(every_pattern().find(reading)))

    assert grows_at_most(took, lengths=(SHORT, LONG), factor=8, noise_s=0.01)
