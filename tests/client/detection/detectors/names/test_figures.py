import pytest

from curtilage.client.detection import wordlists
from curtilage.client.detection.detectors.names.cues import PERSON
from curtilage.client.detection.detectors.names.figures import (
    FIGURE,
    figures,
    with_figures,
)
from curtilage.client.detection.detectors.readings import Reading
from curtilage.client.detection.spans import Span
from curtilage.policy.decision.findings import Normalization
from support.examples import examples
from support.growth import grows_at_most, seconds_of


def reading(text: str) -> Reading:
    return Reading(normalization=Normalization.RAW, text=text)


def named(text: str) -> list[str]:
    return [text[start:end] for start, end in figures(reading(text))]


def classes(text: str, *names: str) -> list[str]:
    """The classes of these parts of a text, each found as a person."""
    spans = [
        Span(
            data_class=PERSON,
            detector="test",
            start=text.index(name),
            end=text.index(name) + len(name),
            score=90,
        )
        for name in names
    ]
    return [each.data_class for each in with_figures(reading(text), spans)]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("Who was Albert Einstein?", ["Albert Einstein"]),
        ("who was albert einstein?", ["albert einstein"]),
        ("Write a story about Sherlock Holmes", ["Sherlock Holmes"]),
        ("Compare Hamlet and Macbeth", ["Hamlet", "Macbeth"]),
        ("Explain Plato's theory of forms", ["Plato"]),
        ("Wann lebte Johann Sebastian Bach?", ["Johann Sebastian Bach"]),
        ("Erkläre Goethes Faust", ["Goethes", "Faust"]),
        ("Quand est né Victor Hugo ?", ["Victor Hugo"]),
        ("Qui a écrit sur Moliere, et quand ?", ["Moliere"]),
        ("Explica la filosofía de Platón", ["Platón"]),
        ("¿Quién fue Simón Bolívar?", ["Simón Bolívar"]),
        ("Chi era Leonardo da Vinci?", ["Leonardo da Vinci"]),
        ("Schrijf een gedicht over Rembrandt", ["Rembrandt"]),
        ("Quem foi Fernando Pessoa?", ["Fernando Pessoa"]),
        ("J. S. Bach composed it", ["J. S. Bach"]),
        ("The story of Sir Lancelot", ["Sir Lancelot"]),
    ],
)
def test_whom_everybody_knows_is_a_figure(text: str, names: list[str]) -> None:
    assert named(text) == names


@pytest.mark.parametrize(
    "text",
    [
        "Explain Kant's ethics",
        "Write a speech in the style of Churchill",
        "Who was Kant?",
        "Compare Kant and Hegel",
        "Immanuel Kant wrote three critiques. Summarize what Kant says of reason.",
        "Which operas did Wagner write?",
        "Was ist Kants kategorischer Imperativ?",
        "un poème dans le style de Rilke",
    ],
)
def test_a_common_surname_is_a_figure_next_to_its_works(text: str) -> None:
    assert named(text)


@pytest.mark.parametrize(
    "text",
    [
        "Compare the plans of Kant for the story",
        "Adam Smith has read the novel",
        "Harry Potter paints portraits",
        "Bach likes poems",
        "Explain how Adam Smith and David Hume differ",
    ],
)
def test_a_name_of_today_alone_is_no_figure(text: str) -> None:
    assert named(text) == []


@examples(
    "text",
    [
        # A title, a role, kin, how one is called or addressed.
        "Dr. Hamlet wrote a story",
        "Herr Beethoven hat ein Gedicht geschrieben",
        "my friend Hamlet wrote a story",
        "our tenant is called Hamlet, a name from the play",
        "the tenants read about Napoleon and the war",
        "Beethoven is deaf and our tenant, compare the offers",
        "Mein Freund Hamlet mag Gedichte",
        "Mon ami Voltaire aime la poésie",
        "Mi paciente Cleopatra tiene fiebre, explica por qué",
        "La mia vicina di casa Cleopatra scrive poesie",
        "Onze huurder Rembrandt schrijft gedichten",
        "O meu amigo Camões gosta de poemas",
        "Dear Hamlet, the story of your application is long",
        "I am Napoleon and I wrote a poem",
        # What one does with people of today.
        "Tell Hamlet that his story is too long",
        "Write an e-mail to Cleopatra about the novel",
        "Hamlet owes me a book of poems",
        "I met Othello and we wrote a poem",
        "Napoleon called about the invoice for the portrait",
        "Hamlet was here yesterday and read us a story",
        # Longer names, and names that are no prose.
        "Napoleon Hill wrote a story",
        "Anna Shakespeare wrote a story",
        "hamlet@example.org wrote a story",
        "who=Hamlet; story=3",
        "# TODO(Hamlet): fix this and the novel",
        # A word in small letters, where names have capitals.
        "What did plato say about Kant?",
        # About nothing that its bearer is known for.
        "Hamlet wants a refund",
        "What is Cleopatra's password?",
        "Napoleon",
    ],
)
def test_who_bears_such_a_name_is_none(text: str) -> None:
    assert named(text) == []


def test_a_person_is_a_figure_where_all_his_words_are() -> None:
    text = "Compare the style of Goethe and Schiller with the poems of Miller"
    assert classes(text, "Goethe", "Goethe and Schiller") == [FIGURE, FIGURE]
    assert classes(text, "Miller", "Schiller with the poems of Miller") == [PERSON] * 2


def test_other_classes_stay_what_they_are() -> None:
    text = "Who was Albert Einstein?"
    span = Span(
        data_class="identifier.quasi.city", detector="test", start=8, end=23, score=9
    )
    assert list(with_figures(reading(text), [span])) == [span]


@pytest.mark.parametrize(
    "text", ["Who was Luther?", "a story of Martin Luther King, and of King himself"]
)
def test_a_usual_surname_needs_the_whole_name(text: str) -> None:
    assert "King" not in named(text.replace("Martin Luther King", "him"))
    assert named(text)[-1] in {"Luther", "King"}


def test_the_list_holds_no_given_name_alone() -> None:
    listed = wordlists.read_data("curtilage.client.detection", "figures.toml")
    names = {each.strip().lower() for each in listed["alone"].split(",")}
    assert names.isdisjoint(wordlists.GIVEN)


def test_time_grows_with_the_length_only() -> None:
    def cost(times: int) -> float:
        text = reading("the story of hamlet, by " * times)
        return seconds_of(lambda: figures(text))

    assert grows_at_most(cost, lengths=(200, 1600), factor=12)
