"""What is said of an estimate, and that no word of the text is in it."""

import pytest

from curtilage.client.routing.estimate import RulesEstimator
from curtilage.client.routing.explain import Reach, explain_text, reach
from curtilage.client.routing.router import Router
from curtilage.policy.decision.routes import Route
from curtilage.policy.document.load import load_policy

TIERS = """\
version: 1
default: {decision: enclave}
rules:
- {id: any-uncertain, when: "uncertain.*", then: local}
routing:
  tiers:
  - {id: device, kind: in_process}
  - {id: enclave, kind: attested}
"""
AIM = "  aim: {quality_loss_permille: 35}\n"
SERVER = """\
  - {id: ward, kind: on_premises, address: "unix:/run/llm.sock", model: m}
  - {id: enclave,"""


def reached(text: str, *, solved: int, route: Route = Route.ENCLAVE) -> Reach | None:
    policy = load_policy(text)
    assert policy.routing is not None
    router = Router(
        policy.routing,
        RulesEstimator(),
        clock=lambda: 0.0,
        home_quality=lambda: solved,
    )
    return reach(router, policy.tiering.permitted(route, frozenset()))


def test_a_better_local_model_reaches_further_by_the_same_aim() -> None:
    found = [reached(TIERS + AIM, solved=each) for each in (30, 600, 800)]
    least, more, most = (each.local for each in found if each is not None)
    assert least < 0.1
    assert 0.4 < more < most
    assert [each and each.solved for each in found] == [0.03, 0.6, 0.8]


def test_an_aim_that_names_a_share_has_it_whatever_the_model() -> None:
    aim = "  aim: {local_percent: 70}\n"
    assert reached(TIERS + aim, solved=30) == Reach(solved=0.03, local=0.7)


@pytest.mark.parametrize(
    ("text", "route"),
    [
        (TIERS, Route.ENCLAVE),
        (TIERS + AIM + "  observe: true\n", Route.ENCLAVE),
        (TIERS + AIM, Route.LOCAL),
        (TIERS.replace("  - {id: enclave,", SERVER) + AIM, Route.ENCLAVE),
    ],
    ids=["no aim", "observes", "stays", "a better server"],
)
def test_where_no_aim_weighs_the_local_model_it_reaches_nothing(
    text: str, route: Route
) -> None:
    assert reached(text, solved=30, route=route) is None


def test_an_explanation_holds_the_estimate_and_its_source() -> None:
    lines = explain_text(
        RulesEstimator(), "Debug this Python script step by step: code"
    )
    by_word = {line.split()[0]: line for line in lines}
    assert "code" in by_word["intent"]
    assert "rules" in by_word["source"]
    assert "several steps" in by_word["signs"]


def test_an_explanation_counts_the_words_of_hard_work() -> None:
    lines = explain_text(RulesEstimator(), "Assess the liability of the tenant")
    assert any(line.startswith("signs") and "words: 3" in line for line in lines)


def test_an_explanation_says_how_much_was_read() -> None:
    assert "9000" in explain_text(RulesEstimator(), "x" * 9000)[-1]


def test_an_explanation_holds_no_word_of_the_text() -> None:
    lines = explain_text(
        RulesEstimator(), "Is Mrs Ottokar Quibble positive or negative?"
    )
    assert "quibble" not in "".join(lines).lower()
