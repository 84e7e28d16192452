import pytest
from hypothesis import given
from hypothesis import strategies as st

from curtilage.client.detection.detectors.disguised_words import respelled
from curtilage.client.detection.detectors.readings import readings, undone


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("H I V p o s i t i v", "HIV positiv"),
        ("ich habe K-r-e-b-s, leider", "ich habe Krebs, leider"),
        ("ma femme est d.é.p.r.e.s.s.i.v.e", "ma femme est dépressive"),
        ("le V I H, que faire ?", "le VIH, que faire ?"),
        ("c á n c e r y tengo miedo", "cáncer y tengo miedo"),
        ("estoy e m b a r a z a d a y sola", "estoy embarazada y sola"),
        ("il t-u-m-o-r-e al seno", "il tumore al seno"),
        ("ik heb k _ a _ n _ k _ e _ r", "ik heb kanker"),
        ("tenho d e p r e s s ã o", "tenho depressão"),
        ("my wife is p r e g n a n t now", "my wife is pregnant now"),
        ("i c h h a b e k r 3 b s", "ich habe krebs"),
        # Who is named.
        ("M a r t i n   S c h u l z", "Martin Schulz"),
        ("M a r t i n S c h u l z", "Martin Schulz"),
    ],
)
def test_letters_apart_are_words(text: str, read: str) -> None:
    assert respelled(text) == read


@pytest.mark.parametrize(
    "text",
    [
        "A C G T T A C G G A",
        "G A T T A C A",
        "1. e4 e5 2. Nf3 Nc6 3. Bb5 a6",
        "x = a / b / c + d",
        "a, b, c, d, e",
        "K _ E _ S",
        "a b c d e f",
        "i.e. e.g. a.m.",
        "/a/b/c/d",
        "U S A",
        "4 1 1 1 1 1 1 1",
    ],
)
def test_other_rows_of_letters_stay(text: str) -> None:
    assert respelled(text) == text


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("ich h4be kr3bs", "ich habe krebs"),
        ("Schw4nger!", "Schwanger!"),
        ("H1V", "HIV"),
        ("mit dr0gen, v3rprügelt", "mit drogen, verprügelt"),
        ("j'ai le c@ncer", "j'ai le cancer"),
        ("une d€pression", "une depression"),
        ("tengo s1da", "tengo sida"),
        ("ho un tum0r3", "ho un tumore"),
        ("ik ben zw4nger", "ik ben zwanger"),
        ("estou gr4v1da", "estou gravida"),
        ("my br0ther", "my brother"),
    ],
)
def test_digits_among_letters_are_letters(text: str, read: str) -> None:
    assert respelled(text) == read


@pytest.mark.parametrize(
    "text",
    [
        "mp3 h264 x86 i7 c3po r2d2 b2b i18n k8s H2O CO2",
        "covid19 omega3 vitamin12 H1N1 b12",
        "N1nj4W4rr10r",
        "550e8400-e29b-41d4-a716-446655440000",
        "m4x@example.org",
        "price $5, 100€, 3,50€!",
        "https://example.org/k4nk3r",
        "arr4y[0] = f00(b4r)",
    ],
)
def test_codes_and_names_with_digits_stay(text: str) -> None:
    assert respelled(text) == text


def test_lists_and_models_see_what_was_disguised() -> None:
    read = tuple(readings("ich h4be K-r-e-b-s"))
    assert undone(read).text == "ich habe Krebs"


@given(st.text(st.sampled_from("k r3bs-.h1v@€!é "), max_size=120))
def test_any_text_is_taken(text: str) -> None:
    assert isinstance(respelled(text), str)
