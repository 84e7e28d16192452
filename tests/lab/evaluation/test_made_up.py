"""Invented texts are the same each time, marked in place, and valid."""

from collections import Counter
from itertools import islice

import pytest
from stdnum import iban

from curtilage.lab.evaluation.made_up import (
    BURIED,
    FORMS,
    about_people,
    asked_about_somebody,
    buried,
    checks_of,
    draws,
    filled,
    languages,
    national,
    person,
    sentences,
    surnames,
    texts,
    valid_numbers,
    written,
)
from curtilage.lab.evaluation.rows import Row

COVERED = ("de", "en", "es", "fr", "it", "nl", "pt")
LEAST = (35, 20, 15, 30)
# What python-stdnum knows; German, Spanish and Portuguese ones it does not.
INSURANCE = {
    "en": ("gb", "nhs"),
    "fr": ("fr", "nir"),
    "it": ("it", "codicefiscale"),
    "nl": ("nl", "bsn"),
}


def test_slots_that_identify_are_marked_and_others_not() -> None:
    values = {"given": "Ana", "family": "Ruiz", "mrn": "12", "question": "Why {x}?"}
    text, gold = filled("{given} {family} ({mrn}): {question}", values)
    assert text == "Ana Ruiz (12): Why {x}?"
    assert [(each.kind, text[each.start : each.end]) for each in gold] == [
        ("PERSON", "Ana"),
        ("PERSON", "Ruiz"),
        ("MRN", "12"),
    ]


def test_chance_is_the_same_each_time_and_another_for_another_seed() -> None:
    first, again, other = draws("a"), draws("a"), draws("b")
    drawn = [first(1000) for _ in range(8)]
    assert drawn == [again(1000) for _ in range(8)]
    assert drawn != [other(1000) for _ in range(8)]


def test_a_question_keeps_its_part_and_gains_a_person() -> None:
    asked = Row(id="s:1", key="s:why", text="What is gout?")
    (row,) = asked_about_somebody([asked], "en")
    assert row.key == asked.key
    assert asked.text in row.text
    assert row.gold


@pytest.mark.parametrize("lang", languages())
@pytest.mark.parametrize("kind", ["named", "health"])
def test_every_language_has_sentences(lang: str, kind: str) -> None:
    rows = sentences(lang, kind, 30)
    assert len(rows) == len({row.text for row in rows}) == 30
    assert all("{" not in row.text for row in rows)
    assert all(row.gold for row in rows if kind == "named")
    assert person(lang, "x") == person(lang, "x")


@pytest.mark.parametrize("lang", COVERED)
@pytest.mark.parametrize("name", ["naming", "structured"])
def test_a_template_is_filled_with_people_of_its_language(name: str, lang: str) -> None:
    rows = list(about_people(name, lang))
    assert len(rows) == 3 * len(texts(name, lang))
    assert rows == list(about_people(name, lang))
    assert all(row.gold and "{" not in row.text for row in rows)
    assert {row.tags for row in rows} == {(lang,)}


@pytest.mark.parametrize("lang", COVERED)
def test_a_marked_value_occurs_once_in_its_text(lang: str) -> None:
    # Else a text that lost its name would count as one that kept it.
    for row in (*about_people("naming", lang), *about_people("structured", lang)):
        others = row.text.casefold()
        for gold in row.gold:
            others = others.replace(row.value(gold).casefold(), "", 1)
        values = [row.value(gold).casefold() for gold in row.gold]
        assert not [value for value in values if value in others], row.id


def test_no_person_is_made_up_for_a_language_without_names() -> None:
    assert list(about_people("naming", "pl")) == []


@pytest.mark.parametrize("source", texts("people"), ids=lambda row: str(row["lang"]))
def test_account_and_insurance_numbers_of_people_are_valid(
    source: dict[str, list[str]],
) -> None:
    assert all(map(iban.is_valid, source["iban"]))
    lang = str(source["lang"])
    if lang in INSURANCE:
        assert all(map(checks_of(*INSURANCE[lang]).is_valid, source["insurance"]))


@pytest.mark.parametrize("lang", COVERED)
def test_every_covered_language_has_texts_of_every_kind(lang: str) -> None:
    kinds = ("told_health", "told_special", "told_affairs", "harmless")
    for name, least in zip(kinds, LEAST, strict=True):
        assert len([row for row in written(name) if lang in row.tags]) >= least


def test_a_buried_text_lies_at_the_end_or_at_a_windows_border() -> None:
    rows = list(buried())
    facts = [row for row in texts("redteam") if row["topic"] == BURIED]
    assert len(rows) == len({row.id for row in rows}) == 5 * len(facts)
    assert Counter(row.tags[1] for row in rows) == {
        "end of a document": len(facts),
        "window border": 4 * len(facts),
    }
    for row in rows:
        (fact,) = (str(fact["text"]) for fact in facts if str(fact["text"]) in row.text)
        at_end = row.tags[1] == "end of a document"
        assert row.text.endswith(fact) is at_end


def test_surnames_stand_alone() -> None:
    assert all(len(row.gold) == 1 for row in surnames(40))


def test_there_is_health_in_26_languages() -> None:
    assert len(written("health")) == 43
    assert len({row.tags for row in written("health")}) == 26


@pytest.mark.parametrize(
    "source", texts("numbers"), ids=lambda row: str(row["country"])
)
def test_numbers_are_valid_and_differ(source: dict[str, str]) -> None:
    checks = checks_of(source["country"], source["check"])
    found = list(islice(valid_numbers(source["shape"], checks, draws("x")), 5))
    assert all(checks.is_valid(number) for number in found)
    assert len(set(found)) == 5


def test_a_shape_without_a_valid_number_is_an_error() -> None:
    checks = checks_of("gb", "nhs")
    with pytest.raises(ValueError, match="shape 1 "):
        next(valid_numbers("1", checks, draws("x")))


def test_each_number_is_bare_labelled_and_in_a_sentence() -> None:
    rows = list(national(2))
    assert len(rows) == 2 * 3 * len(texts("numbers"))
    german = [row for row in rows if row.tags[0] == "de"]
    assert [row.tags[1] for row in german] == [*FORMS, *FORMS]
    (mark,) = german[0].gold
    assert german[0].text == german[0].value(mark)
    assert " " in german[0].text  # as people write it
    assert " " not in german[3].text
    assert german[1].text.startswith("Steuer-ID: ")
