"""What is said around a request is taken off, in seven languages; no more is."""

import pytest

from curtilage.client.routing.wording import request_in

REQUEST = "fix the spelling: teh cat"
AROUND = [
    ("hello, could you please help me with this? ", " thank you."),
    ("hi everyone! quick question: ", " cheers!"),
    ("good morning. i would like you to ", ", please"),
    ("guten tag, ich hätte eine kurze frage: ", " vielen dank im voraus!"),
    ("könntest du mir bitte ", " danke"),
    ("bonjour, pourriez-vous m'aider avec ceci ? ", " merci beaucoup d'avance."),
    ("buenas tardes. ¿me puede ayudar con esto? ", " ¡muchas gracias!"),
    ("buongiorno, avrei una domanda: ", " grazie mille."),
    ("goedemiddag, kunt u mij even helpen? ", " alvast bedankt!"),
    ("olá, pode ajudar-me com isto? ", " muito obrigado."),
    ("question: ", "\nanswer:"),
    ("### instruction:\n", "\n\n### response:"),
    ("user request -> ", ""),
    ("aufgabe: ", "\nantwort:"),
    ("", "\n\n\n"),
    ("   ", " ."),
]


@pytest.mark.parametrize(("before", "after"), AROUND)
def test_what_is_said_around_a_request_is_taken_off(before: str, after: str) -> None:
    assert request_in(before + REQUEST + after) == REQUEST


def test_line_breaks_and_blanks_are_one_blank() -> None:
    assert request_in("sort\n\n this:\tb,  a") == "sort this: b, a"


@pytest.mark.parametrize(
    "text",
    [
        "help the customer find a room",
        "thank the team for its work in two lines",
        "answer in one word: is water wet",
        "can an employer refuse leave",
        "complete: we thank you for your",
        "question 3 of the survey is unclear",
        "hallo welt auf spanisch",
    ],
)
def test_a_request_that_begins_like_a_courtesy_is_kept(text: str) -> None:
    assert request_in(text) == text


@pytest.mark.parametrize("text", ["hello", "thank you very much", "question:"])
def test_what_is_nothing_but_courtesy_is_kept(text: str) -> None:
    assert request_in(text).startswith(text.split(maxsplit=1)[0].rstrip(":"))


@pytest.mark.parametrize("text", ["", " ", "?", "\n\n", "…"])
def test_what_says_nothing_is_empty(text: str) -> None:
    assert request_in(text) == ""
