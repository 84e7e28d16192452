"""What is made up is the same each time, marked where it stands, and valid."""

from itertools import islice

import pytest

from curtilage.evaluation.made_up import (
    FORMS,
    asked_about_somebody,
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
from curtilage.evaluation.rows import Row


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
    with pytest.raises(ValueError, match="no number of the shape"):
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
