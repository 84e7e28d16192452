"""What detectors of the last stage see of a text that reads otherwise when undone."""

import re
from collections.abc import Iterator, Sequence

import pytest
from typing_extensions import override

from curtilage.client.detection.detectors import scanner as module
from curtilage.client.detection.detectors.all import own_equipment
from curtilage.client.detection.detectors.readings import Reading
from curtilage.client.detection.detectors.scanner import (
    AS_WRITTEN,
    EVERY_FORM,
    Detector,
    Equipment,
    Scanner,
    scan,
)
from curtilage.client.detection.spans import Span
from curtilage.policy.decision.findings import Normalization

PERSON = "identifier.direct.person"


class Names:
    """Finds names and a topic, and keeps what it was asked to read."""

    id = "names"

    def __init__(self, name: str = r"Chidi(?: Okafor)?|Okafor") -> None:
        self.read: list[str] = []
        self._name = name

    def find(self, reading: Reading) -> Iterator[Span]:
        text = reading.text
        self.read.append(text)
        for match in re.finditer(self._name, text):
            yield span(PERSON, *match.span())
        if "cancer" in text:
            yield span("topic.health", 0, len(text))


def span(data_class: str, start: int, end: int) -> Span:
    return Span(data_class=data_class, detector="names", start=start, end=end, score=90)


def fitted(detector: Detector) -> Equipment:
    return ((detector, AS_WRITTEN),)


class Mute:
    id = "mute"

    def find(self, reading: Reading) -> tuple[Span, ...]:
        del reading
        return ()


def found(text: str, names: Detector) -> list[tuple[str, Normalization]]:
    scanner = Scanner(((Mute(), EVERY_FORM),), fitted(names))
    (spans,) = scanner.scan([text])
    return [(each.data_class, each.normalization) for each in spans]


@pytest.mark.parametrize(
    "text",
    [
        "=?utf-8?b?T2thZm9yLCBDaGlkaQ==?= owes rent",
        "\\u0043hidi owes rent",
        "C<b>hi</b>di owes rent",
        "C\u200bhidi owes rent",
    ],
    ids=["encoded word", "escape", "tags", "invisible"],
)
def test_a_name_that_an_encoding_hides_is_found_at_no_place(text: str) -> None:
    kinds = set(found(text, Names()))
    assert {name for name, _ in kinds} == {PERSON}
    assert Normalization.RAW not in {form for _, form in kinds}


def test_a_name_of_which_an_encoding_hides_a_half_is_found_in_both() -> None:
    kinds = found("Chidi =4F=6B=61=66=6F=72 owes rent", Names())
    assert kinds == [(PERSON, Normalization.RAW), (PERSON, Normalization.DECODED)]


def test_a_name_that_is_seen_as_it_is_written_is_found_there_only() -> None:
    names = Names(r"Jos(?:&eacute;|\u00e9)")
    assert found("Jos&eacute; owes rent", names) == [(PERSON, Normalization.RAW)]
    assert len(names.read) == 2


def test_a_topic_that_an_encoding_hides_is_found() -> None:
    assert found("I have can&shy;cer", Names()) == [
        ("topic.health", Normalization.DECODED)
    ]


def test_a_topic_that_is_seen_as_it_is_written_is_found_once() -> None:
    text = "I have cancer, says the ca&shy;rd of the wa&shy;rd"
    assert found(text, Names()) == [("topic.health", Normalization.RAW)]


@pytest.mark.parametrize(
    "text",
    [
        "a plain text about rent",
        "R&amp;D at **our** `office`, see <b>this</b>",
        '{"rent": "two", "paid": 1}',
        "what does 5\u200b36 mean",
        "https://example.org/a%3Fb%3D1",
        "five of them, and 41<b>11</b>",
    ],
    ids=["plain", "markup", "json", "number", "percent", "spelled"],
)
def test_names_are_looked_for_once_where_no_word_is_hidden(text: str) -> None:
    names = Names()
    found(text, names)
    assert names.read == [text]


def test_of_a_long_text_only_what_reads_otherwise_is_looked_at_twice() -> None:
    names = Names()
    text = "one sentence like another. " * 400
    found(f"{text} =4F=6B=61=66=6F=72 {text}", names)
    _, again = names.read
    assert "Okafor" in again
    assert len(again) < 400


class Ahead(Names):
    """The same, and it gets the readings ahead."""

    def __init__(self, *, fails: bool = False) -> None:
        super().__init__()
        self.passed: list[list[Reading]] = []
        self.asked: list[Reading] = []
        self._fails = fails

    def ahead(self, readings: Sequence[Reading]) -> None:
        self.passed.append(list(readings))
        if self._fails:
            raise ValueError

    @override
    def find(self, reading: Reading) -> Iterator[Span]:
        self.asked.append(reading)
        return super().find(reading)


TALK = ["Chidi owes rent", "hello", "C&shy;hidi, who owes rent, is Ok&shy;afor"]


@pytest.mark.parametrize("fails", [True, False])
def test_all_readings_are_passed_ahead_in_one_batch(*, fails: bool) -> None:
    names = Ahead(fails=fails)
    scanner = Scanner(((Mute(), EVERY_FORM),), fitted(names))
    passed = scanner.scan_all([TALK[:2], TALK[1:]])
    (together,) = names.passed
    # The very readings, since what was done ahead is kept with each.
    assert list(map(id, together)) == list(map(id, names.asked))
    plain = Scanner(((Mute(), EVERY_FORM),), fitted(Names()))
    assert passed == [plain.scan(TALK[:2]), plain.scan(TALK[1:])]


def test_a_text_of_several_conversations_is_looked_at_once() -> None:
    names = Names()
    scanner = Scanner(((Mute(), EVERY_FORM),), fitted(names))
    scanner.scan_all([["hello", "hello"], ["hello", "Chidi"]])
    assert names.read == ["hello", "Chidi"]


def test_one_conversation_that_is_settled_settles_no_other() -> None:
    class Settling(Mute):
        @override
        def find(self, reading: Reading) -> tuple[Span, ...]:
            return (span("uncertain.opaque_blob", 0, 1),) * ("blob" in reading.text)

    names = Names()
    scanner = Scanner(
        ((Settling(), EVERY_FORM),), fitted(names), exits=["uncertain.opaque_blob"]
    )
    one, other = scanner.scan_all([["blob", "Chidi"], ["Chidi", "hello"]])
    assert names.read == ["Chidi", "hello"]
    assert "uncertain.opaque_blob" in {each.data_class for each in one[0]}
    assert [each.data_class for spans in other for each in spans] == [PERSON]


def test_a_failure_in_what_is_undone_is_one() -> None:
    class Failing:
        id = "failing"

        def find(self, reading: Reading) -> Iterator[Span]:
            if reading.normalization is not Normalization.RAW:
                raise ValueError
            return iter(())

    assert found("I have can&shy;cer", Failing()) == [
        ("uncertain.error", Normalization.DECODED)
    ]


def test_a_text_that_cannot_be_read_is_uncertain(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(text: str) -> Iterator[Reading]:
        yield Reading(normalization=Normalization.RAW, text=text)
        raise ValueError(text)

    monkeypatch.setattr(module, "readings", fail)
    ((passed,),) = scan(["hello"], ((Mute(), EVERY_FORM),))
    assert (passed.data_class, passed.start, passed.end) == ("uncertain.error", 0, 5)


def test_a_text_of_which_the_end_was_not_read_is_oversize() -> None:
    text = "\ufdfa" * 3000 + " jsmith%40hospital.org"
    ((passed,),) = scan([text], ((Mute(), EVERY_FORM),))
    assert (passed.data_class, passed.end) == ("uncertain.oversize", len(text))


def test_a_number_is_looked_for_where_an_encoding_hides_a_digit() -> None:
    class Numbers:
        id = "numbers"
        numeric = True

        def find(self, reading: Reading) -> Iterator[Span]:
            for match in re.finditer(r"\d{4}", reading.text):
                yield span("financial.account", *match.span())

    ((passed,),) = scan(["12&#51;4 <b>or</b> 12"], ((Numbers(), EVERY_FORM),))
    assert passed.normalization is Normalization.DECODED


@pytest.mark.parametrize(
    "text",
    [
        "=?utf-8?x?T2thZm9y?= owes rent",
        "=?utf-8?b?T2thZm9y",
        "=?utf-7?b?T2thZm9y?=",
        "=?utf-8?b?/w==?=",
        "&#61;?koi8-r?b?T2thZm9y?=",
    ],
    ids=["kind", "open", "charset", "octets", "inside another"],
)
def test_an_encoded_word_of_unknown_content_is_undecodable(text: str) -> None:
    (spans,) = Scanner(own_equipment()).scan([text])
    assert "uncertain.undecodable" in {each.data_class for each in spans}


def test_an_encoded_word_that_can_be_read_is_decodable() -> None:
    (spans,) = Scanner(own_equipment()).scan(["=?utf-8?b?aGVsbG8gd29ybGQ=?="])
    assert "uncertain.undecodable" not in {each.data_class for each in spans}
