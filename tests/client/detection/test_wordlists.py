import pytest
from hypothesis import given
from hypothesis import strategies as st

from curtilage.client.detection.packs import PACKS
from curtilage.client.detection.wordlists import (
    ORGANISATIONS,
    PLACES,
    is_term,
    read_data,
    unaccented,
    words,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Müller", "muller"),
        ("ÉTÉ à Ñuñoa", "ete a nunoa"),
        ("straße", "straße"),
        ("İzmir", "izmir"),
        ("HIV", "hiv"),
    ],
)
def test_accents_and_capitals_are_left_out(text: str, expected: str) -> None:
    assert unaccented(text) == expected


@given(st.text())
def test_places_stay_places_without_accents(text: str) -> None:
    assert len(unaccented(text)) == len(text)


def test_given_names_of_other_languages_are_no_words_or_places() -> None:
    listed = read_data("curtilage.client.detection", "words.toml")
    names = words(listed["given_more"])
    ordinary = frozenset[str]().union(
        *(each.words | each.everyday for each in PACKS.values())
    )
    assert names
    assert names.isdisjoint(words(listed["given"]) | words(listed["common"]))
    assert names.isdisjoint(ordinary | PLACES | ORGANISATIONS)
    assert not any(map(is_term, names))
