import re
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curtilage.client.detection.detectors.patterns.re2 import (
    LinearError,
    LinearPattern,
    WordSet,
)
from curtilage.client.detection.detectors.policy_detectors import (
    or_broken,
    own_detectors,
)
from curtilage.client.detection.detectors.scanner import (
    EVERY_FORM,
    Detector,
    Scanner,
)
from curtilage.client.detection.spans import Span
from curtilage.policy.document.detection_plan import ExclusionList, OwnDetector
from curtilage.policy.document.dictionaries import edm_entry
from curtilage.policy.document.exact_list import MAX_WORDS as MAX_VALUE_WORDS
from support.growth import takes_less_than

pytest.importorskip("re2", reason="SKIPPED LOUDLY: needs the extra pii")
CANARY = "zq7canary4711"
SALT = bytes(range(16))
CODENAME = "org.dictionary.codename"
MEMBER = "org.edm.member"


def regex(pattern: str, **more: object) -> OwnDetector:
    return _detector("regex", "identifier.direct.username", pattern=pattern, **more)


def words(*entries: str, **more: object) -> OwnDetector:
    return _detector("dictionary", CODENAME, entries=entries, **more)


def values(*exact: str, **more: object) -> OwnDetector:
    digests = tuple(edm_entry(value, salt=SALT) for value in exact)
    return _detector("edm", MEMBER, entries=digests, salt=SALT.hex(), **more)


def _detector(kind: str, data_class: str, **more: object) -> OwnDetector:
    plain = OwnDetector(id="own", kind="regex", data_class=data_class, base_score=60)
    given: dict[str, object] = {
        name: list(cast("tuple[object, ...]", value))
        if isinstance(value, tuple)
        else value
        for name, value in more.items()
    }
    return OwnDetector.from_fields(plain.to_fields() | {"kind": kind} | given)


def found(text: str, *detectors: OwnDetector) -> tuple[Span, ...]:
    (spans,) = Scanner(own_detectors(detectors)).scan([text])
    return spans


def shown(text: str, *detectors: OwnDetector) -> list[str]:
    return [text[each.start : each.end] for each in found(text, *detectors)]


def classes(text: str, *detectors: OwnDetector) -> set[str]:
    return {each.data_class for each in found(text, *detectors)}


# --- patterns -----------------------------------------------------------------


def test_a_pattern_is_found_where_it_occurs() -> None:
    text = "Grüße, badge EMP-1234 and EMP-77"
    assert shown(text, regex(r"EMP-\d{2,4}")) == ["EMP-1234", "EMP-77"]
    assert shown("emp-1234", regex(r"EMP-\d{2,4}")) == []
    assert shown("emp-1234", regex(r"(?i)EMP-\d{2,4}")) == ["emp-1234"]


def test_a_pattern_takes_linear_time() -> None:
    detector = regex(r"(a+)+$|(a|aa)+b")
    text = "a" * 20_000 + "!"
    assert shown(text, detector) == []
    assert takes_less_than(lambda: shown(text, detector), 2)


@pytest.mark.parametrize("text", ["\ud800 EMP-1234", "\x00EMP-1234", "EMP-1234\udfff"])
def test_a_pattern_reads_any_text(text: str) -> None:
    assert shown(text, regex(r"EMP-\d{4}")) == ["EMP-1234"]


@pytest.mark.parametrize(
    "broken",
    [
        regex(r"(?<=a)b"),
        regex(r"("),
        regex(r"a*"),
        regex(""),
        regex(r"(?:x{1000}){1000}"),
        regex("x", validate="nothing"),
        words(),
        words("---"),
        _detector("edm", MEMBER, entries=("ab",), salt=SALT.hex()),
        _detector("edm", MEMBER, entries=(), salt=SALT.hex()),
        _detector("edm", MEMBER, entries=("00" * 32,), salt=""),
    ],
    ids=[
        "look-behind",
        "syntax",
        "matches nothing",
        "no pattern",
        "too large",
        "unknown check",
        "no words",
        "no word in it",
        "no digest",
        "no digests",
        "no salt",
    ],
)
def test_what_cannot_be_built_fails_on_every_text(broken: OwnDetector) -> None:
    assert classes("a harmless question", broken) == {"uncertain.error"}
    assert classes("", broken) == {"uncertain.error"}


def test_a_pattern_that_is_wrong_is_not_repeated(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(LinearError) as caught:
        LinearPattern(f"{CANARY}(")
    out, err = capfd.readouterr()
    assert CANARY not in str(caught.value) + out + err
    assert caught.value.__cause__ is None


def test_or_broken_keeps_what_can_be_built() -> None:
    class Works:
        id = "works"

        def find(self, reading: object) -> tuple[Span, ...]:
            del reading
            return ()

    detector: Detector = Works()
    assert or_broken("x", lambda: detector, EVERY_FORM) == (
        detector,
        EVERY_FORM,
    )


# --- words --------------------------------------------------------------------

LIST = words("Project Falcon", "Blue-Heron", "C++", "Ärger", "Falcon")


@pytest.mark.parametrize(
    ("text", "hits"),
    [
        ("about PROJECT   falcon now", ["PROJECT   falcon"]),
        ("project_falcon", ["project_falcon"]),
        ("project-falcon", ["project-falcon"]),
        ("project\nfalcon", ["project\nfalcon"]),
        ("blue heron", ["blue heron"]),
        ("falcon", ["falcon"]),
        ("falconry and falcons", []),
        ("projectfalcon", []),
        ("written in C++", ["C++"]),
        ("written in C", []),
        ("viel ÄRGER hier", ["ÄRGER"]),
        ("a project for falcon", ["falcon"]),
    ],
)
def test_words_are_found_whole_in_any_case(text: str, hits: list[str]) -> None:
    assert shown(text, LIST) == hits


def test_words_in_disguise_are_found_in_their_reading() -> None:
    assert classes("f\u200balcon", LIST) == {CODENAME}
    assert classes("f a l c o n", LIST) == {CODENAME}
    assert classes("f\u0430lcon", LIST) == {CODENAME}


def test_many_words_cost_no_more_than_few() -> None:
    many = words(*(f"word{number} thing" for number in range(20_000)))
    text = "some word17 thing and other text, " * 100
    scanner = Scanner(own_detectors([many]))
    assert takes_less_than(lambda: scanner.scan([text]), 2)
    (spans,) = scanner.scan([text])
    assert len(spans) == 64


@given(st.text(max_size=200))
def test_words_take_any_text(text: str) -> None:
    assert "uncertain.error" not in classes(text, LIST)


# --- exact values -------------------------------------------------------------

EXACT = values("AB-1234-X", "Mia Keller", "42")


@pytest.mark.parametrize(
    ("text", "hits"),
    [
        ("id AB-1234-X here", ["AB-1234-X"]),
        ("id ab 1234 x here", ["ab 1234 x"]),
        ("id ab1234x here", ["ab1234x"]),
        ("ask mia KELLER", ["mia KELLER"]),
        ("ask mia and keller", []),
        ("42", ["42"]),
        ("421", []),
        ("mia     keller", []),
    ],
)
def test_exact_values_are_found_by_their_digest(text: str, hits: list[str]) -> None:
    assert shown(text, EXACT) == hits


def test_an_exact_value_has_at_most_eight_words() -> None:
    eight = "aa bb cc dd ee ff gg hh"
    assert MAX_VALUE_WORDS == 8
    assert classes(f"so {eight}", values(eight)) == {MEMBER}
    assert classes(f"so {eight} ii", values(f"{eight} ii")) == set()


def test_exact_values_take_linear_time() -> None:
    assert takes_less_than(lambda: found("a1 " * 6000, EXACT), 3)


# --- scores, checks, exceptions -----------------------------------------------


def test_context_in_the_window_makes_surer() -> None:
    own = regex(r"EMP-\d{4}", context=("badge", "staff id"), window=10, boost=30)
    scores = {
        text: [each.score for each in found(text, own)]
        for text in (
            "badge EMP-1234",
            "EMP-1234, staff ID",
            "badge" + " " * 11 + "EMP-1234",
            "badges EMP-1234",
        )
    }
    assert list(scores.values()) == [[90], [90], [60], [60]]


def test_a_score_stays_below_the_highest() -> None:
    own = regex(r"EMP-\d{4}", context=("badge",), window=10, boost=90)
    assert [each.score for each in found("badge EMP-1234", own)] == [100]


def test_a_check_drops_and_proves() -> None:
    own = regex(r"\d{16}", validate="luhn")
    (span,) = found("4111111111111111 and 4111111111111112", own)
    assert (span.start, span.validated) == (0, True)
    assert not found("EMP-1234", regex(r"EMP-\d{4}"))[0].validated


def test_excluded_values_do_not_count() -> None:
    own = regex(r"EMP-\d{4}", exclude=("EMP-0000",))
    assert shown("EMP-0000 EMP-1234", own) == ["EMP-1234"]


def test_a_pattern_without_a_check_is_not_run_where_lines_are_joined() -> None:
    pattern = r"\d{8}"
    text = "536-2\n2-1234 1 2 3 4 5 6 7 8"
    assert shown(text, regex(pattern)) == []


# --- lists that exclusions name -----------------------------------------------


def test_words_in_a_list_are_marked() -> None:
    public = ExclusionList(name="public", classes=(CODENAME,), entries=("Blue Heron",))
    scanner = Scanner(own_detectors([words("blue heron", "falcon")]), lists=[public])
    (spans,) = scanner.scan(["BLUE  heron, falcon"])
    assert [each.listed for each in spans] == [("public",), ()]


def test_a_merged_span_is_listed_only_if_all_of_it_is() -> None:
    public = ExclusionList(name="public", classes=(CODENAME,), entries=("falcon",))
    pair = [words("falcon", id="sure", base_score=90), words("project falcon")]
    (spans,) = Scanner(own_detectors(pair), lists=[public]).scan(["project falcon"])
    assert [each.listed for each in spans] == [()]


# --- words in one pass --------------------------------------------------------


@given(st.text(alphabet="abcAB .-\u00e9\u017f", max_size=40))
def test_a_word_set_finds_what_re_finds(text: str) -> None:
    many = ["ab", "abc", "b.", "c-a", "."]
    got = sorted(WordSet(many).found(text) or ())
    expected = [
        at
        for at, word in enumerate(many)
        if re.search(re.escape(word), text, re.IGNORECASE)
    ]
    assert got == expected
