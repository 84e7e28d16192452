import logging
import sys
from collections.abc import Iterator
from importlib import import_module
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curtilage.client.detection.detectors import scanner as scan
from curtilage.client.detection.detectors.presidio import engine as detect
from curtilage.client.detection.detectors.presidio import phone as phones
from curtilage.client.detection.detectors.presidio.catalog import RECOGNIZERS
from curtilage.client.detection.detectors.readings import Reading
from curtilage.client.detection.detectors.scanner import (
    EVERY_FORM,
    Detector,
    Equipment,
)
from curtilage.client.detection.spans import Span
from curtilage.policy.decision.classes import is_class
from curtilage.policy.decision.findings import Normalization
from support.equipment import OWN_IDS, own
from support.growth import takes_less_than

predefined_recognizers = pytest.importorskip(
    "presidio_analyzer.predefined_recognizers",
    reason="SKIPPED LOUDLY: needs the extra pii",
)
CANARY = "zq7canary4711"


@pytest.fixture(scope="module")
def presidio() -> detect.PresidioDetector:
    return detect.PresidioDetector()


def raw(text: str) -> Reading:
    return Reading(normalization=Normalization.RAW, text=text)


def spans(presidio: detect.PresidioDetector, text: str) -> set[tuple[str, int]]:
    return {(each.data_class, each.score) for each in presidio.find(raw(text))}


TEXTS = [
    "ssn 536-22-1234 and card 4111 1111 1111 1111",
    "call 212-555-0100 or +49 30 901820, or (415) 555 2671",
    "born 1982-03-03, moved 12/31/1999",
    "my driver license is D1234567",
    "192.0.2.1 and 2001:db8::1",
    "PESEL 44051401359, NIF 12345678Z",
    "codice fiscale RSSMRA85T10A562S",
    "nothing here",
    "a table: 1 2 3\n4 5 6\n7 8 9 10 11 12",
    "x = df.iloc[3:17, 250] # see 10.1000/182",
]


@pytest.mark.parametrize("text", TEXTS)
def test_fast_path_finds_what_presidio_finds(
    presidio: detect.PresidioDetector, text: str
) -> None:
    plain = presidio.engine.analyze(text, language="en", score_threshold=0)
    assert set(presidio.spans_of(plain)) == set(presidio.find(raw(text)))


@settings(deadline=None, max_examples=50)
@given(st.lists(st.sampled_from([*TEXTS, "call", "phone", "\n", "id:"]), max_size=4))
def test_fast_path_finds_what_presidio_finds_in_longer_texts(parts: list[str]) -> None:
    presidio = shared_presidio()
    text = " ".join(parts)
    plain = presidio.engine.analyze(text, language="en", score_threshold=0)
    assert set(presidio.spans_of(plain)) == set(presidio.find(raw(text)))


def shared_presidio() -> detect.PresidioDetector:
    if not _SHARED:
        _SHARED.append(detect.PresidioDetector())
    return _SHARED[0]


_SHARED: list[detect.PresidioDetector] = []


def test_context_words_raise_scores(presidio: detect.PresidioDetector) -> None:
    licence = "identifier.direct.licence"
    assert not {name for name, _ in spans(presidio, "it is D1234567")} & {licence}
    assert licence in {name for name, _ in spans(presidio, "driver license D1234567")}


def test_an_address_of_no_machine_is_nobodys(presidio: detect.PresidioDetector) -> None:
    addresses = "bind 127.0.0.1 and 0.0.0.0 with 255.255.255.0"
    assert not {name for name, _ in spans(presidio, addresses)} & {
        "identifier.direct.ip"
    }
    assert "identifier.direct.ip" in {
        name for name, _ in spans(presidio, "bind 203.0.113.7")
    }


def test_every_class_of_the_map_is_in_the_tree() -> None:
    assert [name for name in RECOGNIZERS.values() if not is_class(name)] == []


def test_registry_holds_nothing_that_fetches_or_skips(
    presidio: detect.PresidioDetector,
) -> None:
    names = {str(vars(each)["name"]) for each in presidio.recognizers}
    assert not names & {
        "EmailRecognizer",
        "UrlRecognizer",
        "InPanRecognizer",
        "IbanRecognizer",
        "UsHealthInsuranceMemberIdRecognizer",
        "SpacyRecognizer",
    }
    assert len(names) == len(RECOGNIZERS)


def test_a_foreign_recognizer_that_overrides_analyze_is_refused() -> None:
    inner = predefined_recognizers.IbanRecognizer()
    with pytest.raises(TypeError, match="IbanRecognizer"):
        detect.strict_recognizer(cast("detect.Patterned", inner))


def test_decision_process_is_not_logged(presidio: detect.PresidioDetector) -> None:
    assert presidio.engine.log_decision_process is False


def test_a_pattern_that_times_out_is_a_finding(
    presidio: detect.PresidioDetector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(detect, "PATTERN_TIMEOUT_S", 1e-9)
    text = "card 4111 1111 1111 1111 " * 400
    (span,) = scan.run(presidio, raw(text))
    assert span.data_class == "uncertain.timeout"


def test_nothing_is_logged_at_debug(
    presidio: detect.PresidioDetector,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    with caplog.at_level(logging.DEBUG):
        list(presidio.find(raw(f"{CANARY} ssn 536-22-1234 on 3/4/1980")))
    out, err = capfd.readouterr()
    assert CANARY not in caplog.text + out + err


def test_module_imports_without_presidio(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [each for each in sys.modules if each.startswith("presidio")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "presidio_analyzer", None)
    monkeypatch.delitem(
        sys.modules, "curtilage.client.detection.detectors.presidio.engine"
    )
    __import__("curtilage.client.detection.detectors.presidio.engine")


@given(st.text(alphabet="0123456789 -()+\nab", max_size=300))
def test_phone_windows_cover_every_candidate(text: str) -> None:
    windows = phones.phone_windows(text)
    for match in phones.PHONE_CANDIDATE.finditer(text):
        assert any(a <= match.start() and match.end() <= b for a, b in windows)
    assert all(b < c for (_, b), (c, _) in pairwise(windows))


# --- any detector, whatever it does -------------------------------------------


class Faulty:
    """A detector that does what the test says."""

    id = "faulty"

    def __init__(self, answer: object) -> None:
        self._answer = answer

    def find(self, reading: Reading) -> Iterator[Span]:
        if isinstance(self._answer, BaseException):
            raise self._answer
        if callable(self._answer):
            return cast("Iterator[Span]", self._answer(reading))
        return cast("Iterator[Span]", self._answer)


def explode(reading: Reading) -> Iterator[Span]:
    yield Span(data_class="financial.pan", detector="x", start=0, end=1, score=1)
    raise RuntimeError(reading.text)


FAULTS: dict[str, object] = {
    "raises": RuntimeError(CANARY),
    "raises at import": ModuleNotFoundError("presidio_analyzer"),
    "recursion": RecursionError(),
    "memory": MemoryError(),
    "raises midway": explode,
    "none": None,
    "number": 7,
    "text": "text",
    "unknown class": [
        Span(data_class="x.y", detector="x", start=0, end=1, score=1),
    ],
    "beyond the text": [
        Span(data_class="financial.pan", detector="x", start=0, end=10**6, score=1),
    ],
    "dictionary": {"financial.pan": 1},
    "object": SimpleNamespace(data_class="financial.pan"),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
def test_a_faulty_detector_is_a_finding(fault: object) -> None:
    equipment = (*own(), (cast("Detector", Faulty(fault)), EVERY_FORM))
    (found,) = scan.scan(["a harmless question"], equipment)
    assert "uncertain.error" in {span.data_class for span in found}
    assert CANARY not in repr(found)


@pytest.mark.parametrize("index", range(len(OWN_IDS)), ids=OWN_IDS)
def test_each_detector_of_ours_may_fail(index: int) -> None:
    equipment: list[tuple[Detector, frozenset[Normalization]]] = list(own())
    equipment[index] = (
        cast("Detector", Faulty(ValueError(CANARY))),
        equipment[index][1],
    )
    # A text with all five readings, so that every detector has its turn.
    text = "\uff11 b\u043eb &amp; five"
    (found,) = scan.scan([text], tuple(equipment))
    assert "uncertain.error" in {span.data_class for span in found}


def test_a_timeout_of_a_detector_has_its_own_finding() -> None:
    equipment: Equipment = ((cast("Detector", Faulty(TimeoutError())), EVERY_FORM),)
    (found,) = scan.scan(["text"], equipment)
    assert {span.data_class for span in found} == {"uncertain.timeout"}


def test_a_text_that_cannot_be_read_is_uncertain(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(text: str) -> Iterator[Reading]:
        raise ValueError(text)

    monkeypatch.setattr(scan, "readings", fail)
    (found,) = scan.scan([CANARY], own())
    assert "uncertain.error" in {span.data_class for span in found}


def test_no_finding_shows_a_text(presidio: detect.PresidioDetector) -> None:
    equipment: Equipment = (*own(), (presidio, EVERY_FORM))
    text = (
        f"{CANARY} my password is {CANARY}, mail {CANARY}@{CANARY}.com, "
        f"name: {CANARY}, mrn {CANARY}, Dr {CANARY.title()}, diabetes"
    )
    (found,) = scan.scan([text], equipment)
    assert len(found) > 3
    assert CANARY not in repr(found).lower()


def test_lone_surrogates_are_undecodable() -> None:
    (found,) = scan.scan(["a \ud800 b"], own())
    assert "uncertain.undecodable" in {span.data_class for span in found}


@settings(deadline=None)
@given(st.text(max_size=300))
def test_own_detectors_take_any_text(text: str) -> None:
    (found,) = scan.scan([text], own())
    assert "uncertain.error" not in {span.data_class for span in found}


def test_no_word_stays_in_the_tokenizer(presidio: detect.PresidioDetector) -> None:
    text = f"{CANARY} my ssn is 536-22-1234 {CANARY}"
    assert list(presidio.find(raw(text)))
    nlp_engine = presidio.engine.nlp_engine
    pipeline = cast("Any", detect.blank_pipeline(nlp_engine))
    assert CANARY not in pipeline.vocab.strings
    nlp_engine.process_text(CANARY, detect.LANGUAGE)  # what happens outside a zone
    assert CANARY in pipeline.vocab.strings


def test_a_long_run_of_punctuation_takes_linear_time(
    presidio: detect.PresidioDetector,
) -> None:
    text = "\u2026" * 6000 + " born 1980-01-01"
    assert list(presidio.find(raw(text)))
    # 4 s and more before
    assert takes_less_than(lambda: list(presidio.find(raw(text))), 1)


@given(st.text(max_size=300))
def test_loosening_keeps_length_and_words(text: str) -> None:
    long = text + "\u2026" * 50 + "ssn" + "." * 50
    assert len(detect.loosen(long)) == len(long)
    assert "ssn" in detect.loosen(long).split()[-1]


def test_digits_are_sought_in_linear_time() -> None:
    text = "." * 20000 + " a%40"
    scan.scan(["a%40"], own())  # what is loaded at first use
    # 20 s and more before
    assert takes_less_than(lambda: scan.scan([text], own()), 2)


def test_a_text_that_grows_too_long_is_oversize() -> None:
    (found,) = scan.scan(["\ufdfa" * 3000 + " jsmith%40hospital.org"], own())
    assert "uncertain.oversize" in {span.data_class for span in found}


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("hello\ufe01\ufe02\ufe03\ufe04 there", True),
        ("hello \U0001f600\U000e0101\U000e0102\U000e0103\U000e0104 there", True),
        ("a \u200b b \u200b c \u200b d \u200b e", True),
        ("a \u200b b \u200b c \u200b d", False),
        (
            "\u2764\ufe0f \u2600\ufe0f \u2705\ufe0f 1\ufe0f\u20e3 \u00a9\ufe0f fine",
            False,
        ),
        (
            "\U0001f468\u200d\U0001f469\u200d\U0001f467 \u2764\ufe0f\u200d\U0001f525",
            False,
        ),
    ],
    ids=["selectors", "after emoji", "zero width", "three", "emoji", "family"],
)
def test_invisible_characters_are_obfuscation(text: str, *, hidden: bool) -> None:
    (found,) = scan.scan([text], own())
    assert ("uncertain.obfuscation" in {each.data_class for each in found}) is hidden


# --- phone numbers: windows and regions ---------------------------------------------


def stock_phones(text: str) -> set[tuple[int, int]]:
    """Return what Presidio's own recognizer finds, window by window.

    Less what is a decimal, or groups of a longer row with full stops: a version.
    """
    recognizer = predefined_recognizers.PhoneRecognizer()
    return {
        (start + found.start, start + found.end)
        for start, end in phones.phone_windows(text)
        for found in recognizer.analyze(text[start:end], ["PHONE_NUMBER"])
        if not phones.is_decimal(text, start + found.start, start + found.end)
    }


PHONE_PIECES = st.sampled_from(
    [*"0123456789", "+", "00", "011", "49", "44", "1", "555", "-", " ", ".", "/", "(",
     ") ", "x", " xxx ", " ext. ", "#", ",", "$", "anexo ", "1234567", "30112", "a"]
)  # fmt: skip


@settings(deadline=None, max_examples=400)
@given(st.lists(PHONE_PIECES, min_size=4, max_size=14))
def test_fewer_regions_find_the_same_numbers(parts: list[str]) -> None:
    text = "call " + "".join(parts)
    recognizer = cast("Any", phones.windowed_phone(detect.LANGUAGE))
    ours = recognizer.analyze(text, ["PHONE_NUMBER"])
    assert {(found.start, found.end) for found in ours} == stock_phones(text)


@settings(deadline=None, max_examples=200)
@given(
    st.lists(st.text("0123456789", min_size=1, max_size=4), min_size=4, max_size=14),
    st.sampled_from(["/", " - ", "/ ", ".", " ", ") "]),
    st.sampled_from(["", "00", "011", "+49", "1 ", "1 1 1 ", "0 33 0 ", "0 91 0 "]),
)
def test_what_is_not_parsed_is_no_number(
    groups: list[str], separator: str, begin: str
) -> None:
    text = begin + separator.join(groups)
    recognizer = cast("Any", phones.windowed_phone(detect.LANGUAGE))
    ours = recognizer.analyze(text, ["PHONE_NUMBER"])
    assert {(found.start, found.end) for found in ours} == stock_phones(text)


def test_a_row_without_a_numbers_length_is_not_parsed() -> None:
    assert phones.may_be_number("202-555-0100", "US")
    assert phones.may_be_number("1 1 1 900 234 5673", "US")
    assert phones.may_be_number("33 0 0 92 012 3456", "FR")
    assert not phones.may_be_number("1/1/1/1", "US")
    assert not phones.may_be_number("1/" * 20, "US")
    assert phones.may_be_number("011 49 5555 " + "1/" * 10, "US")
    for other in ("+1/1", "1x1", "1,,1", "1#", "\u0661/\u0661"):
        assert phones.may_be_number(other, "US")


def test_a_long_row_is_parsed_at_few_places(monkeypatch: pytest.MonkeyPatch) -> None:
    matcher = import_module("phonenumbers.phonenumbermatcher")
    tried: list[str] = []

    def refuse(candidate: str, *_: object, **__: object) -> object:
        tried.append(candidate)
        raise matcher.NumberParseException(0, "")

    monkeypatch.setattr(matcher, "parse", refuse)
    recognizer = cast("Any", phones.windowed_phone(detect.LANGUAGE))
    recognizer.analyze("1234 - " * 100, ["PHONE_NUMBER"])
    lengths = [sum(map(str.isdecimal, candidate)) for candidate in tried]
    assert lengths
    # Nothing shorter than four digits is tried, nor what is longer than a number.
    assert all(4 <= length <= 30 for length in lengths)


def test_no_country_has_a_longer_prefix() -> None:
    tables = import_module("phonenumbers")
    for region in ("US", "GB", "DE", "FR", "IL", "IN", "CA"):
        prefix = tables.PhoneMetadata.metadata_for_region(region)
        longest = max(map(len, prefix.national_prefix_for_parsing.split("|")))
        assert longest <= phones.MAX_PREFIX
    # Brazil's is a pattern: 0 or 90, then a carrier of two digits, then a number.
    brazil = tables.PhoneMetadata.metadata_for_region("BR").national_prefix_for_parsing
    assert brazil.startswith("(?:0|90)(?:(")
    assert brazil.endswith(r")(\d{10,11}))?")


def test_no_country_is_dialled_with_fewer_digits() -> None:
    tables = import_module("phonenumbers")
    shortest = min(
        2 + len(str(code)) + min(table.general_desc.possible_length)
        for code, regions in tables.COUNTRY_CODE_TO_REGION_CODE.items()
        for table in map(tables.PhoneMetadata.metadata_for_region, regions)
        if table is not None
    )
    assert shortest >= phones.ABROAD_DIGITS


def test_a_short_number_is_asked_of_few_regions() -> None:
    every = ("US", "GB", "DE", "FR")
    assert phones.regions_of("it costs 20000 a year", every) == ("DE",)
    assert phones.regions_of("call 555 1234", every) == ("US", "GB", "DE")
    for window in ("+20000", "20000 x5", "20000 ext 5", "20000#", "123 456 78"):
        assert phones.regions_of(window, every) == every
    assert phones.least_digits("XX") == 0
