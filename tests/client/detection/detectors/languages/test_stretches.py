import pytest
from hypothesis import given
from hypothesis import strategies as st

from curtilage.client.detection.detectors.languages.stretches import Stretch, stretches
from curtilage.client.detection.detectors.languages.vocabulary import VOCABULARIES
from support.growth import grows_at_most, seconds_of

pytest.importorskip("py3langid", reason="SKIPPED LOUDLY: needs the extra pii")

ENGLISH = (
    "Can you help me with this?",
    "set a timer for ten minutes",
    "What are the side effects of ibuprofen?",
    "Compare the two methods, and tell me which is faster.",
    "for i in range(10): print(i)",
    "The meeting is on Friday at three.",
)
COVERED = {
    "Mi madre tiene cancer de mama": "es",
    "Ik heb sinds gisteren koorts en kramp": "nl",
    "ho paura di perdere il lavoro": "it",
    "Ich weiß nicht, ob ich schwanger bin": "de",
    "ma fille ne veut plus manger": "fr",
    "minha irmã foi presa ontem à noite": "pt",
}
UNCOVERED = (
    "mój brat stracił pracę",
    "min man dricker för mycket",
    "Am fost condamnat pentru furt acum doi ani",
    "Hogy mondjam el a feleségemnek",
)


def foreign(text: str) -> list[str]:
    """Return the parts of a text that are not in English."""
    return [
        text[each.start : each.end]
        for each in stretches(text)
        if "en" not in each.languages
    ]


def is_covered(text: str) -> bool:
    """Return whether every part of a text may be in a covered language."""
    return not any(each.languages.isdisjoint(VOCABULARIES) for each in stretches(text))


@pytest.mark.parametrize("text", [*COVERED, *UNCOVERED])
def test_another_language_is_foreign(text: str) -> None:
    assert foreign(text)


@pytest.mark.parametrize(
    "text",
    [
        "Sono incinta",
        "Ik heb hiv",
        "ICH HABE KREBS",
        "Ich Habe Krebs",
        "Schwangerschaftsabbruch",
        "mujhe cancer hai",
        "ana 3andi sida",
        "bghit n7bes 7it 3andi",
        "is my mujhe ok",
        "Doktè a di mwen gen kansè.",
    ],
)
def test_a_few_words_of_another_language_are_foreign(text: str) -> None:
    assert foreign(text)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("Sum up what it says: la paciente llegó anoche.", "la paciente llegó anoche"),
        ("She wrote “ich habe es satt” to him.", "ich habe es satt"),
        ("Is it right (mam raka piersi) or not?", "mam raka piersi"),
        ("Check this. Ma femme est malade.", "Ma femme est malade"),
        ("print('Mi hijo es esquizofrénico')", "Mi hijo es esquizofrénico"),
        ("# der Kunde ist pleite\ndef close(a):\n    return a", "der Kunde ist pleite"),
        ("what does ich habe mich gestern geritzt mean", "habe mich gestern geritzt"),
        ("please help, sono incinta, what now", "sono incinta"),
        ("what is mam raka piersi in english", "mam raka piersi"),
        ("my Sohn hat Krebs", "Sohn hat Krebs"),
    ],
)
def test_a_part_is_judged_apart(text: str, part: str) -> None:
    assert any(part in each for each in foreign(text))


def test_marks_between_the_words_hide_no_sentence() -> None:
    assert foreign("Mein Mann: weiß nicht, dass ich wieder (sehr) krank bin")
    # "Un metge" is nearly Italian, and "ara" a word of three covered languages.
    assert not is_covered("Necessito un metge, ara")


@pytest.mark.parametrize(
    "text",
    [
        # "Hai" is Italian, and "cancer" is Spanish.
        "mujhe cancer hai",
        # The identifier takes no language for likelier than Dutch here.
        "Ek het kanker",
        "La meva dona és a l'hospital",
    ],
)
def test_a_word_of_no_covered_language_speaks_against_all_of_them(text: str) -> None:
    assert not is_covered(text)


@pytest.mark.parametrize(
    "text",
    [
        "Welche Bohle eignet sich, um ein Boot am Steg festzumachen?",
        "Hoe breek ik in Python uit twee geneste lussen?",
    ],
)
def test_rare_words_in_a_sentence_are_in_its_language(text: str) -> None:
    assert is_covered(text)


@pytest.mark.parametrize(
    "text",
    [
        *ENGLISH,
        "im hungry",
        "hello world",
        "das boot tickets",
        "a café in Zürich",
        "what is schadenfreude",
        "tell me about Le Corbusier and El Greco",
        "play a song by Luis Fonsi",
        "how do you say hello in german",
        "apixaban vs rivaroxaban in atrial fibrillation",
        "tuna, salt, chocolate: what can I cook?",
    ],
)
def test_english_is_covered(text: str) -> None:
    assert not foreign(text)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT a.id, b.naam FROM a JOIN b ON a.id = b.id;",
        '{"colour": "red", "sizes": [1, 2, 3]}',
        "https://de.wikipedia.org/wiki/Schwangerschaft",
        "$y_t = \\beta_1 + \\beta_2 x_{2t} + u_t$",
        "| Net debt | 7,821 | 8,290 |\n| Audit fees | 12 | 13 |",
        "def gcd(p, q):\n    while q != 0:\n        p, q = q, p % q\n    return p",
        "2026-11-23T04:44:10Z ERROR db.pool: timeout after 3000ms",
        "git rebase -i HEAD~3",
        "1234 5678 -- 90",
        "",
    ],
)
def test_what_is_no_language_is_not_judged(text: str) -> None:
    assert not foreign(text)


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("What is the weather like tomorrow?", "en"),
        ("Wie wird das Wetter morgen in der Stadt?", "de"),
        ("Quel temps fera-t-il demain en ville ?", "fr"),
        ("¿Qué tiempo hará mañana en la ciudad?", "es"),
        ("Che tempo farà domani in città?", "it"),
        ("Wat voor weer wordt het morgen in de stad?", "nl"),
        ("Como vai estar o tempo amanhã na cidade?", "pt"),
        ("Jaka będzie jutro pogoda w mieście?", "pl"),
        ("Hur blir vädret i morgon i staden?", "sv"),
        ("Hvordan bliver vejret i morgen i byen?", "da"),
    ],
)
def test_the_language_of_a_sentence_is_recognised(text: str, language: str) -> None:
    assert {each.languages for each in stretches(text)} == {frozenset({language})}


def test_each_sentence_has_its_own_language() -> None:
    text = "Thank you for the help. Das Wetter ist heute sehr schön."
    assert list(stretches(text))[-1] == Stretch(
        start=24, end=55, languages=frozenset({"de"})
    )


_AROUND = st.lists(st.sampled_from(ENGLISH), max_size=4)
_MARKS = st.sampled_from((" ", "\n", "\n\n", "\t"))


@given(before=_AROUND, clause=st.sampled_from(UNCOVERED), after=_AROUND, mark=_MARKS)
def test_english_around_a_clause_does_not_cover_it(
    before: list[str], clause: str, after: list[str], mark: str
) -> None:
    # A clause that is added to a harmless text can only keep it at home.
    assert not is_covered(mark.join((*before, f"{clause}.", *after)))


@given(before=_AROUND, clause=st.sampled_from([*COVERED]), after=_AROUND, mark=_MARKS)
def test_english_around_a_clause_does_not_hide_its_language(
    before: list[str], clause: str, after: list[str], mark: str
) -> None:
    # Or no rule of that language would read it; it may be kept home for another.
    found = stretches(mark.join((*before, f"{clause}.", *after)))
    assert any(
        COVERED[clause] in each.languages or each.languages.isdisjoint(VOCABULARIES)
        for each in found
    )


@given(st.text(max_size=120))
def test_any_text_has_stretches_inside_it(text: str) -> None:
    for each in stretches(text):
        assert 0 <= each.start < each.end <= len(text)


@pytest.mark.parametrize(
    "unit",
    ["ik heb ", "Sono incinta. ", "ik: ", "a, b ", "foo ", "'", "1/", "x.y ", "ä"],
)
def test_time_is_linear(unit: str) -> None:
    def cost(length: int) -> float:
        text = unit * (length // len(unit))
        return seconds_of(lambda: list(stretches(text)))

    assert grows_at_most(cost, lengths=(2_000, 8_000), factor=8)
