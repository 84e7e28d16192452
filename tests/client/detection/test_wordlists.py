import pytest
from hypothesis import given
from hypothesis import strategies as st

from curtilage.client.detection.wordlists import unaccented


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
