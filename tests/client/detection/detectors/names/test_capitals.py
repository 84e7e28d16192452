import pytest
from hypothesis import given
from hypothesis import strategies as st

from curtilage.client.detection import wordlists
from curtilage.client.detection.detectors.names.capitals import (
    NameDetector,
    Why,
    suspects,
)
from curtilage.client.detection.detectors.names.cues import asked, people
from curtilage.client.detection.detectors.readings import Reading
from curtilage.client.detection.wordlists import bag, is_known, lowered
from curtilage.policy.decision.findings import Normalization
from support.equipment import as_written


def names_in(text: str) -> set[str]:
    return {text[each.start : each.end] for each in people(text)}


def suspects_in(text: str) -> dict[str, Why]:
    found = suspects(as_written(text))
    return {text[each.start : each.end]: each.why for each in found}


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Best regards,\nOluwaseun\nSales", "Oluwaseun"),
        ("thanks!\n\n- xiomara", "xiomara"),
        ("See you then.\nCheers,\r\nWijtze de Boer", "Wijtze"),
        ("Dear Bogdana,\nwe write", "Bogdana"),
        ("hi xiomara, are you there?", "xiomara"),
        ("Hello Nguyen!", "Nguyen"),
        ("written by J. R. R. Doerr in haste", "J. R. R. Doerr"),
        ("ask P. van der Meulen", "P. van der Meulen"),
        ("mr okonkwo", "okonkwo"),
        ("thx njoroge!", "njoroge"),
        ("Thank you, Njoroge.", "Njoroge"),
        ("im wijtze from accounting", "wijtze"),
        ("# TODO(park): fix this", "park"),
        ("// FIXME(j.doe) later", "j.doe"),
        ("MY NAME IS XIOMARA", "XIOMARA"),
    ],
)
def test_a_name_is_recognised_by_the_words_around_it(text: str, name: str) -> None:
    assert name in names_in(text)


@pytest.mark.parametrize(
    "text",
    [
        "Dear customer, thank you",
        "hi there, what is new?",
        "hello world!",
        "Thanks!\nPlease answer soon",
        "best\npractice",
        "e.g. this one, i.e. that",
        "I. Introduction",
        "thanks again!",
        "sorry, what",
        "thank you very much",
        "I am new here",
        "i'm calling from home",
        "todo(list)",
        "use MS Word",
        "version 1.2 of U.S. Law",
    ],
)
def test_ordinary_words_are_not_introduced(text: str) -> None:
    assert names_in(text) == set()


@pytest.mark.parametrize(
    ("text", "word", "why"),
    [
        ("assigned to john_smith today", "john_smith", Why.HANDLE),
        ("see sarahConnor84 for it", "sarahConnor84", Why.HANDLE),
        ("by JessicaMeyer", "JessicaMeyer", Why.HANDLE),
        ("ask jennifer about it", "jennifer", Why.GIVEN),
        ("ask Jennifer about it", "Jennifer", Why.LISTED),
        ("ask Wijtze about it", "Wijtze", Why.CAPITAL),
        ("Wijtze is late", "Wijtze", Why.FIRST),
    ],
)
def test_a_suspect_has_its_reason(text: str, word: str, why: Why) -> None:
    assert suspects_in(text)[word] is why


@pytest.mark.parametrize(
    "text",
    [
        "max_length = min_length + 1",
        "useState and JavaScript and getElementById",
        "the will of the people",
        "snake_case and kebab-case",
        "for_each item in list_of_rows",
    ],
)
def test_words_of_programs_are_no_suspects(text: str) -> None:
    assert suspects_in(text) == {}


def test_short_names_are_not_sought_in_handles() -> None:
    assert "amy" in wordlists.GIVEN
    assert suspects_in("amy_lib") == {}


@pytest.mark.parametrize("text", ["İstanbul", "ΑΣ", "A\u0130b", "straße", "plain"])
def test_lowered_keeps_places(text: str) -> None:
    assert len(lowered(text)) == len(text)
    assert lowered(text).isascii() == lowered(text).lower().isascii()


@given(st.text(max_size=60))
def test_lowered_keeps_any_length(text: str) -> None:
    assert len(lowered(text)) == len(text)


@given(st.text(max_size=60))
def test_bag_holds_no_capitals_and_no_marks(text: str) -> None:
    assert all(word == word.lower() for word in bag(text) if word.isascii())


@pytest.mark.parametrize(
    ("word", "known"),
    [
        ("tables", True),
        ("running", True),
        ("Monday's", True),
        ("well-known", True),
        ("jennifer", False),
        ("Wijtze", False),
        ("", False),
    ],
)
def test_known_words_may_be_inflected(word: str, *, known: bool) -> None:
    assert is_known(word) is known


@given(st.text(max_size=120))
def test_detector_takes_any_text(text: str) -> None:
    for span in NameDetector().find(
        Reading(normalization=Normalization.RAW, text=text)
    ):
        assert 0 <= span.start < span.end <= len(text)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("(IBS-SSS) and more", "IBS-SSS"),
        ("with CVVHDF we saw", "CVVHDF"),
        ("take Romiplostim now", "Romiplostim"),
        ("see Wilson's disease", "Wilson"),
    ],
)
def test_acronyms_and_things_are_no_suspects(text: str, word: str) -> None:
    assert word not in suspects_in(text)


@pytest.mark.parametrize(
    "text",
    ["the <td>Okonkwo</td> cell", "key=Okonkwo here", "C:\\Users\\Okonkwo\\a.xls"],
)
def test_marks_of_markup_alone_make_no_code(text: str) -> None:
    assert "Okonkwo" in suspects_in(text) or "Okonkwo" in names_in(text)


def test_marks_of_markup_are_code_where_other_code_is() -> None:
    assert "Wexlar" not in suspects_in("return x;\nprint(a=Wexlar)")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("<ln>okonkwo</ln>", "okonkwo"),
        ("tenant=okonkwo&rent=2", "okonkwo"),
        ("/home/okonkwo/a.xls", "okonkwo"),
        ("In re okonkwo: two rents", "okonkwo"),
        ("tell mx. sky her shift is moved", "sky"),
    ],
)
def test_keys_tags_and_folders_hold_names(text: str, name: str) -> None:
    assert name in names_in(text)


def test_who_is_asked_or_does_something_is_perhaps_somebody() -> None:
    text = "ask okonkwo to pay; a bill from haugland; petrosyan refuses; it is Wexlar"
    found = {text[start:end]: surely for start, end, surely in asked(text)}
    assert found == {"okonkwo": True, "haugland": False, "petrosyan": False}
