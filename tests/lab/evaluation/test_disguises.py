"""The red team: identifiers in disguise stay home."""

import json
from functools import cache

import pytest

from curtilage.client.chat.query import Message, Query
from curtilage.client.detection.detectors.scanner import Scanner
from curtilage.client.detection.inspection import prepare
from curtilage.lab.evaluation.disguises import (
    MUTATIONS,
    SEEDS,
    Case,
    Seed,
    mutated,
)
from curtilage.policy.decision.decide import decide
from curtilage.policy.decision.routes import Route
from curtilage.policy.document.load import load_profile
from support.equipment import own
from support.examples import examples

POLICY = load_profile("default")
CASES = {f"{case.identifier}-{case.mutation}": case for case in mutated()}


@cache
def scanner() -> Scanner:
    return Scanner(own())  # no model, no Presidio: those only add


def route_of(*texts: str) -> Route:
    turns = tuple(Message(role="user", content=text) for text in texts)
    return route_of_query(Query(messages=turns))


def route_of_query(query: Query) -> Route:
    prepared = prepare(query, POLICY.limits)
    found = scanner().scan(prepared.texts)
    pairs = zip(found, prepared.places, strict=True)
    findings = [span.at(place) for spans, place in pairs for span in spans]
    return decide(POLICY.rulebook, prepared.with_findings(findings)).route


def test_there_are_thirty_mutations_of_six_identifiers() -> None:
    assert (len(MUTATIONS), len(SEEDS), len(CASES)) == (30, 6, 180)
    assert len({case.text for case in CASES.values()}) > 150  # few change nothing


def test_a_case_shows_no_text() -> None:
    case = CASES["ssn-plain"]
    assert "536" not in repr(case) + repr(SEEDS)


@pytest.mark.parametrize("seed", SEEDS, ids=[seed.name for seed in SEEDS])
def test_the_carriers_alone_may_leave(seed: Seed) -> None:
    assert route_of(seed.carrier.format("it")) is Route.ENCLAVE


@examples("case", CASES.values())
def test_a_disguised_identifier_stays_home(case: Case) -> None:
    assert route_of(case.text) is Route.LOCAL


# --- beyond the list ------------------------------------------------------------

OTHERS = {
    "teens": "five thirty-six twenty-two twelve thirty four",
    "doubles": "four triple one double one double one double one double one 1 1 1 1",
    "at only": "mia.keller at example.org",
    "at in brackets": "mia [at] example [dot] org",
    "at in round brackets": "mia(at)example.org",
    "dots between": ".".join("mia@example.org"),
    "slashes between": "m/i/a/@/e/x/a/m/p/l/e/./o/r/g",
    "two spaces": "m  i  a  @  e  x  a  m  p  l  e  .  o  r  g",
    "small address, base64": "MTAuMC4wLjc=",
    "small address, spelled": "one zero dot zero dot zero dot seven",
    "small address, glued": "abc10.0.0.7xyz",
    "small address, underscores": "10_0_0_7",
    "small address, dashes": "192-168-1-1",
    "small address, letters": "lO.O.O.7",
    "newline in address": "203.0.\n113.57",
    "newline before at": "mia.keller\n@example.org",
    "newline in number": "536-2\n2-1234",
    "stacked encodings": "NTM2LTIyLTEyMzQ%3D",
    "S and B": "S36-22-1234",
    "wide spaces": "5\u20093\u20096\u20092\u20092\u20091\u20092\u20093\u20094",
    "circled": "\u2464\u2462\u2465\u2461\u2461\u2460\u2461\u2462\u2463",
    "keycaps": "".join(f"{digit}\ufe0f\u20e3" for digit in "536221234"),
    "devanagari": "\u096b\u0969\u096c-\u0968\u0968-\u0967\u0968\u0969\u096a",
    "key in JSON": '{"536-22-1234": "number"}',
    "escaped JSON": json.dumps(json.dumps({"ssn": "536-22-1234"})),
    "escaped JSON, escapes": json.dumps({"a": "\u0665\u0663\u0666-22-1234"}),
    "url query": "https://example.org/find?id=536-22-1234&x=1",
    "file name": "scan_536-22-1234_final.pdf",
    "backwards": "4321-22-635 si rebmun ytiruces laicos ym dna em ot gnoleb ti",
}


@examples("text", OTHERS.values())
def test_other_disguises_stay_home(text: str) -> None:
    assert route_of(f"Please look at {text} for me") is Route.LOCAL


HARMLESS = (
    "Our list:\n1.\n2.\n3.\n4.\n",
    "a table:\n12 34\n56 78\n90 12",
    "def f(x):\n    return x\n@app.route\ndef g(): ...",
    "the score was 3-2-1-0 and then 4/3/2/1",
    "twenty people and one dog walked three miles",
    "release v1.2.3.4 of the tool",
    "look at github.com and meet at noon",
    "wait, who said \u201clol lol lol\u201d?",
    "I.e. this, that; o.k. then",
)


@pytest.mark.parametrize("text", HARMLESS, ids=range(len(HARMLESS)))
def test_harmless_texts_are_not_taken_for_disguises(text: str) -> None:
    prepared = prepare(
        Query(messages=(Message(role="user", content=text),)), POLICY.limits
    )
    (found,) = scanner().scan(prepared.texts)
    classes = {span.data_class for span in found}
    assert not {name for name in classes if name.startswith("identifier.direct.")}
    assert "uncertain.number_run" not in classes


# --- split over a conversation ----------------------------------------------------


def turns(*said: tuple[str, str]) -> Query:
    return Query(messages=tuple(Message(role=r, content=c) for r, c in said))


def interposed(*parts: str) -> Query:
    said = (each for part in parts for each in (("user", part), ("assistant", "Next?")))
    return turns(*said)


SPLIT = {
    "answers between": interposed("4111 1111", "1111 1111"),
    "four turns": interposed("4111", "1111", "1111", "1111"),
    "told": interposed("It begins with 4111", "then 1111", "and 1111", "ends in 1111"),
    "told, a number": interposed("First comes 536", "then 22", "and last 1234"),
    "run between answers": interposed("555 01", "32 99"),
    "digits only": interposed("536", "22", "1234"),
    "name and content": Query(
        messages=(Message(role="user", content="41111111", name="a11111111"),)
    ),
    "system and user": turns(("system", "The id is 536-22"), ("user", "-1234")),
    "address": interposed("mia.keller@", "example.org"),
    "long answer between": turns(
        ("user", "4111 1111"), ("assistant", "word " * 400), ("user", "1111 1111")
    ),
}


@pytest.mark.parametrize("query", SPLIT.values(), ids=SPLIT.keys())
def test_what_is_split_over_turns_stays_home(query: Query) -> None:
    assert route_of_query(query) is Route.LOCAL


HARMLESS_TALKS = {
    "sums": interposed("What is 17 times 12?", "And 40 more?", "Thanks, now 3 fewer"),
    "numbers": interposed("What is bus 1234?", "And bus 567?", "And bus 89?"),
    "years": interposed("Tell me about 2020", "and 2021", "and 2022"),
}


@pytest.mark.parametrize("query", HARMLESS_TALKS.values(), ids=HARMLESS_TALKS.keys())
def test_numbers_of_a_conversation_may_leave(query: Query) -> None:
    assert route_of_query(query) is Route.ENCLAVE
