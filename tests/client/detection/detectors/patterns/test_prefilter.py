import re
from functools import cache
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curtilage.client.detection.detectors.patterns.catalog import PATTERNS
from curtilage.client.detection.detectors.patterns.prefilter import (
    OPEN,
    Prefilter,
    Prefilters,
    any_of,
    positions,
    prefilter_of,
)
from curtilage.client.detection.detectors.patterns.secrets import SECRETS
from curtilage.client.detection.detectors.readings import Reading
from curtilage.client.detection.detectors.scanner import EVERY_FORM, Scanner
from curtilage.client.detection.spans import Span

RULES = (*PATTERNS, *SECRETS)


@cache
def gates() -> list[Prefilter]:
    return [prefilter_of(rule.regex) for rule in RULES]


@cache
def compiled() -> list[re.Pattern[str]]:
    return [re.compile(r.regex, 0 if r.cased else re.IGNORECASE) for r in RULES]


@cache
def bank() -> Prefilters:
    return Prefilters(gates())


REQUIRED: Final[list[tuple[str, int, set[str]]]] = [
    (r"abc", 0, {"abc"}),
    (r"(?:abc|def)\d{3}", 3, {"abc", "def"}),
    (r"ab?c", 0, {"ac", "abc"}),
    (r"x.y", 0, {"x"}),
    (r"(?:foo)*bar", 0, {"bar"}),
    (r"(?:foo){2,9}", 0, {"foo"}),
    (r"(?:foo)?", 0, set()),
    (r"[ab]c", 0, {"ac", "bc"}),
    (r"[^a]", 0, set()),
    (r"\d+|x", 0, set()),
    (r"(?=.*\d)pass", 1, {"pass"}),
    (r"(?!no)yes", 0, {"yes"}),
    (r"(?<!no)yes", 0, {"yes"}),
    (r"(?i:YES)\b", 0, {"yes"}),
    (r"(a)\1bcd", 0, {"bcd"}),
    (r"stra\u00dfe", 0, {"stra"}),
    (r"[0-9]{2}-[0-9]{7}", 9, {"-"}),
    (r"password|passwd|pass", 0, {"pass"}),
]


@pytest.mark.parametrize(("regex", "digits", "words"), REQUIRED)
def test_a_prefilter_is_read_off_the_expression(
    regex: str, digits: int, words: set[str]
) -> None:
    needed = prefilter_of(regex)
    assert (needed.digits, needed.words) == (digits, frozenset(words))


@pytest.mark.parametrize(
    ("regex", "run"),
    [
        (r"\d{3}-\d{2}-\d{4}", 9),
        (r"a{8}\d{3}", 3),
        (r"a{9}\d{3}", 0),
        (r"\d{3}.*\d", 0),
        (r"\d{3,99}", 0),
        (r"(?=\d{4})\d{1,2}", 1),
        (r"(?:(?=.*\d.*\d)\d)x", 1),
        (r"[a-z]{1,4}", 0),
    ],
)
def test_digits_that_stand_close_together_are_read_off_the_expression(
    regex: str, run: int
) -> None:
    assert prefilter_of(regex).run == run


def test_digits_far_apart_are_no_run() -> None:
    several = Prefilters([Prefilter(run=3), Prefilter(digits=3)])
    assert several.passed("1 2 3") == 0b11
    assert several.passed("1 and 2 " + "and so on 3") == 0b10
    assert several.passed("12" + "x" * 8 + "3") == 0b11
    assert several.passed("12" + "x" * 9 + "3") == 0b10


@pytest.mark.parametrize("regex", ["(", "(?P<a", "\\"])
def test_an_expression_that_is_not_understood_is_always_run(regex: str) -> None:
    assert prefilter_of(regex) == OPEN


def test_of_several_expressions_the_weaker_gate_counts() -> None:
    both = any_of([Prefilter(digits=3, words=frozenset({"ab"})), Prefilter(digits=1)])
    assert both == Prefilter(digits=1)
    assert any_of([]) == OPEN


def test_most_rules_have_a_gate() -> None:
    assert sum(gate != OPEN for gate in gates()) > 0.9 * len(RULES)


def passed(text: str) -> set[int]:
    return set(positions(bank().passed(text)))


def matching(text: str) -> set[int]:
    return {at for at, each in enumerate(compiled()) if each.search(text)}


PIECES = st.deferred(
    lambda: st.sampled_from(
        [
            *sorted({word for gate in gates() for word in gate.words}),
            "536-22-1234",
            "4111 1111 1111 1111",
            "\u0665\u0663",
            "pa\u017f\u017fword is ",
            "to\u212aen ",
            "a@b.com",
            " is ",
            ": ",
            "Main ",
            "7",
            "x1y2z3",
            "\n",
            "'",
        ]
    )
)


@settings(deadline=None, max_examples=300)
@given(st.lists(PIECES, max_size=8), st.booleans())
def test_no_gate_hides_a_match(pieces: list[str], shout: bool) -> None:
    text = " ".join(pieces)
    text = text.upper() if shout else text
    assert matching(text) <= passed(text)


@settings(deadline=None, max_examples=200)
@given(st.text(max_size=80))
def test_no_gate_hides_a_match_in_any_text(text: str) -> None:
    assert matching(text) <= passed(text)


@given(st.data())
def test_no_gate_hides_what_is_made_from_its_expression(data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(RULES) - 1))
    text = data.draw(st.from_regex(compiled()[at]))
    assert at in passed(text)


@pytest.mark.parametrize(
    "text",
    ["p\u0131n 4821", "\u0130BAN GB82 WEST 1234", "pa\u017f\u017fword is hunter2"],
)
def test_letters_that_only_re_takes_for_plain_ones_hide_nothing(text: str) -> None:
    assert matching(text)
    assert matching(text) <= passed(text)


def test_a_harmless_text_passes_few_prefilters() -> None:
    assert len(passed("What is the capital of the country to the north")) < 20


def test_positions_are_those_of_the_bits() -> None:
    assert list(positions(0b101001)) == [0, 3, 5]


def test_without_the_library_every_word_is_taken_to_be_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "re2", None)
    several = Prefilters([Prefilter(words=frozenset({"abc"})), Prefilter(digits=2)])
    assert several.passed("nothing") == 0b01
    assert several.passed("12") == 0b11


class Gated:
    """A detector that is called only where its prefilter lets it."""

    id = "gated"
    prefilter = Prefilter(words=frozenset({"needle"}))

    def __init__(self) -> None:
        self.seen: list[str] = []

    def find(self, reading: Reading) -> tuple[Span, ...]:
        self.seen.append(reading.text)
        return ()


def test_a_detector_with_a_prefilter_is_called_where_it_could_find_something() -> None:
    gated = Gated()
    scanner = Scanner([(gated, EVERY_FORM)])
    scanner.scan(["hay", "a NEEDLE", "n\u200beedle"])
    assert gated.seen == ["a NEEDLE", "needle"]
