import pytest

from curtilage.client.detection.neighbours import neighbours


def beside(text: str, *names: str) -> list[str]:
    places = [(text.index(name), text.index(name) + len(name)) for name in names]
    return [text[start:end] for start, end in neighbours(text, places)]


@pytest.mark.parametrize(
    ("text", "others"),
    [
        ("{'okafor': 2, 'haugland': 1, 'petrosyan': 3}", ["haugland", "petrosyan"]),
        ("okafor->2\nhaugland->1\npetrosyan->3 rents", ["haugland", "petrosyan"]),
        ("okafor;2;late\nhaugland;1;ok", ["haugland"]),
        ("| okafor | 2 |\n| haugland | 1 |", ["haugland"]),
        ("<fn>okafor</fn><ln>haugland</ln>", ["haugland"]),
        ("?name=okafor%20haugland fails", ["haugland"]),
        ("~/okafor-v-haugland/brief.tex", ["haugland"]),
        ("okafor, haugland and petrosyan pay", ["haugland", "petrosyan"]),
        ("The okafors and the Hauglands fight", ["Hauglands"]),
        ("okafor/haugland", ["haugland"]),
        ("OKAFOR 2 RENTS\nHAUGLAND 1 RENT", ["HAUGLAND"]),
    ],
)
def test_the_others_of_a_list_are_found_by_one_of_them(
    text: str, others: list[str]
) -> None:
    name = "OKAFOR" if text.isupper() else "okafor"
    assert beside(text, name) == others


@pytest.mark.parametrize(
    "text",
    [
        "okafor paid the haugland bill",
        "okafor, notwithstanding all this, paid",
        "okafor. Haugland came, too",
        "{'okafor': 2, 'rent': 1, 'aspirin': 3}",
        "okafor and Berlin and Pfizer",
        "okafor, CRP and others",
        "",
    ],
)
def test_prose_and_ordinary_words_are_no_neighbours(text: str) -> None:
    assert beside(text, *(["okafor"] if text else [])) == []


def test_nobody_has_no_neighbours() -> None:
    assert beside("{'okafor': 2, 'haugland': 1}") == []


def test_a_list_of_every_length_is_followed() -> None:
    names = [f"zork{chr(97 + i % 26)}{chr(97 + i // 26)}" for i in range(400)]
    assert beside(", ".join(names), names[0]) == names[1:]
