"""What is said of an estimate, and that no word of the text is in it."""

from curtilage.client.routing.estimate import RulesEstimator
from curtilage.client.routing.explain import explain_text


def test_an_explanation_says_what_was_told_and_by_what() -> None:
    lines = explain_text(
        RulesEstimator(), "Debug this Python script step by step: code"
    )
    told = {line.split()[0]: line for line in lines}
    assert "code" in told["intent"]
    assert "rules" in told["told"]
    assert "several steps" in told["signs"]


def test_an_explanation_says_how_much_was_read() -> None:
    assert "9000" in explain_text(RulesEstimator(), "x" * 9000)[-1]


def test_an_explanation_holds_no_word_of_the_text() -> None:
    lines = explain_text(
        RulesEstimator(), "Is Mrs Ottokar Quibble positive or negative?"
    )
    assert "quibble" not in "".join(lines).lower()
