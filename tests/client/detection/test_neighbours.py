import pytest

from curtilage.client.detection.neighbours import carried, is_carried_on, neighbours


def others_in(text: str, *names: str) -> list[str]:
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
    assert others_in(text, name) == others


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
    assert others_in(text, *(["okafor"] if text else [])) == []


def test_no_name_has_no_neighbours() -> None:
    assert others_in("{'okafor': 2, 'haugland': 1}") == []


def test_a_list_of_every_length_is_followed() -> None:
    names = [f"zork{chr(97 + i % 26)}{chr(97 + i // 26)}" for i in range(400)]
    assert others_in(", ".join(names), names[0]) == names[1:]


def more(text: str, name: str) -> list[tuple[str, bool]]:
    place = (text.index(name), text.index(name) + len(name))
    return [
        (text[start:end], surely) for (start, end), surely in carried(text, [place])
    ]


@pytest.mark.parametrize(
    ("text", "name", "rest"),
    [
        ("Lade heute Anna von der Osten-Quor ein.", "Anna", ["von der Osten-Quor"]),
        ("Lade heute Anna von und zu Quorbach ein.", "Anna", ["von und zu Quorbach"]),
        ("Ist denn Peter am Ende schon da?", "Peter", ["am Ende"]),
        ("Ist denn Pia in der Au schon da?", "Pia", ["in der Au"]),
        ("Schick Hans vor dem Esche die Liste.", "Hans", ["vor dem Esche"]),
        ("Schick Ida von Berg und Quortal die Liste.", "Ida", ["von Berg", "Quortal"]),
        ("Schick Klaus zum Felde die Liste.", "Klaus", ["zum Felde"]),
        ("Stuur Jan op de Beek de lijst.", "Jan", ["op de Beek"]),
        ("Stuur Mia in 't Veld de lijst.", "Mia", ["in 't Veld"]),
        ("Stuur Kees uit den Bogaard de lijst.", "Kees", ["uit den Bogaard"]),
        ("Envoie la liste à Luc du Quorlin-Blanc.", "Luc", ["du Quorlin-Blanc"]),
        ("Envoie la liste à Anne d'Orimel.", "Anne", ["d'Orimel"]),
        (
            "Envía la lista a Ana de la Torre del Mar.",
            "Ana",
            ["de la Torre", "del Mar"],
        ),
        ("Envía la lista a Luis del Monte y Sol.", "Luis", ["del Monte", "Sol"]),
        ("Manda la lista a Luca dal Ponte.", "Luca", ["dal Ponte"]),
        ("Envia a lista a Rosa dos Anjos.", "Rosa", ["dos Anjos"]),
        ("Send Peter of the Glen the list.", "Peter", ["of the Glen"]),
        ("Send Ben ap Rice the list.", "Ben", ["ap Rice"]),
        ("Send Omar bin Quorshidi the list.", "Omar", ["bin Quorshidi"]),
        ("Schick Anna von der Quor die Liste.", "Quor", ["Anna von der "]),
    ],
)
def test_what_a_particle_joins_belongs_to_the_name(
    text: str, name: str, rest: list[str]
) -> None:
    assert more(text, name) == [(each, True) for each in rest]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Lade heute Anna zum Geburtstag ein.", "Anna"),
        ("Ist denn Peter am Montag im Büro?", "Peter"),
        ("Frag doch Anna aus der Buchhaltung.", "Anna"),
        ("Ask Anna on Monday in the kitchen.", "Anna"),
        ("Fragt okafor von der Liste weg.", "okafor"),
        ("Invite Ana de manhã e Rosa à tarde.", "Ana"),
    ],
)
def test_a_time_a_department_or_a_small_letter_is_no_part_of_a_name(
    text: str, name: str
) -> None:
    assert more(text, name) == []


def test_a_small_word_that_ends_a_found_name_is_no_part_of_it() -> None:
    text = "Frage Friederike aus dem Bach, ob die Stühle da sind."
    taken = [(6, 6 + len("Friederike aus"))]
    (((start, end), _),) = carried(text, taken)
    assert text[start:end] == "aus dem Bach"


@pytest.mark.parametrize(
    ("text", "carries"),
    [("Malte von Felde", True), ("Malte von hier", False), ("Malte und Anna", False)],
)
def test_a_particle_carries_a_name_on_to_a_capital(text: str, carries: bool) -> None:
    assert is_carried_on(text, len("Malte")) is carries


def test_what_ends_like_an_occasion_is_left_to_the_model() -> None:
    assert more("Lade heute Anna zum Waldfest ein.", "Anna") == [
        ("zum Waldfest", False)
    ]
