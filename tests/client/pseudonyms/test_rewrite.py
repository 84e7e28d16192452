import dataclasses
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curtilage.client.chat.answer import Obstacle
from curtilage.client.chat.document import Document
from curtilage.client.chat.query import Message, Query, Settings, ToolCall
from curtilage.client.detection.detectors.names.capitals import NameDetector
from curtilage.client.detection.detectors.readings import Reading
from curtilage.client.pseudonyms.deidentified import Deidentified
from curtilage.client.pseudonyms.obstacles import WHY_NOT_REPLACED
from curtilage.client.pseudonyms.restore import Restorer
from curtilage.client.pseudonyms.rewrite import deidentify, findings_asked
from curtilage.client.pseudonyms.vault import TOKEN
from curtilage.policy.decision.decide import decide
from curtilage.policy.decision.findings import (
    Approved,
    Finding,
    Normalization,
    Where,
)
from curtilage.policy.document.load import load_policy
from curtilage.policy.document.model import Policy
from support.inspections import changed, inspection_of

KEY = bytes(range(32))
PERSON = "identifier.direct.person"
USERNAME = "identifier.direct.username"
DATE = "identifier.quasi.date"
AGE = "identifier.quasi.age"


def chat(*texts: str, settings: Settings | None = None) -> Query:
    """Texts of the user and the assistant, in turn."""
    return Query(
        messages=tuple(
            Message(role=("user", "assistant")[index % 2], content=text)
            for index, text in enumerate(texts)
        ),
        settings=settings or Settings(),
    )


def found(
    query: Query, value: str, data_class: str = PERSON, *, message: int = 0
) -> Finding:
    """The first place of ``value`` in one message's content."""
    start = query.messages[message].content.index(value)
    return place(query, start, start + len(value), data_class, message=message)


def place(
    query: Query, start: int, end: int, data_class: str, *, message: int = 0
) -> Finding:
    where = Where(
        message=message, role=query.messages[message].role, json_path="content"
    )
    return Finding(
        data_class=data_class,
        detector="test",
        start=start,
        end=end,
        score=80,
        validated=False,
        normalization=Normalization.RAW,
        where=where,
    )


def rewritten(query: Query, *findings: Finding) -> Deidentified:
    result = deidentify(query, findings, key=KEY)
    assert isinstance(result, Deidentified), result
    return result


def sent(query: Query, *findings: Finding) -> str:
    return "|".join(rewritten(query, *findings).outgoing_texts())


def test_a_name_is_replaced_everywhere_in_any_case() -> None:
    query = chat("Ask Smith.", "SMITH's car is smith", "mr. Smith")
    assert sent(query, found(query, "Smith")) == (
        "Ask ⟦PERSON_1⟧.|⟦PERSON_1⟧'s car is ⟦PERSON_1⟧|mr. ⟦PERSON_1⟧"
    )


def test_a_german_genitive_is_outside_the_token() -> None:
    query = chat("Frau Müller ist da, und Müllers Befund ist nicht da.")
    names = [found(query, name) for name in ("Müller", "Müllers")]
    answer = "Ja, ⟦PERSON_1⟧s Befund kam mit ⟦PERSON_1⟧."
    assert sent(query, *names) == (
        "Frau ⟦PERSON_1⟧ ist da, und ⟦PERSON_1⟧s Befund ist nicht da."
    )
    restorer = Restorer(rewritten(query, *names).vault.values)
    assert restorer.push(answer) + restorer.close() == (
        "Ja, Müllers Befund kam mit Müller."
    )


def test_an_s_that_no_other_name_explains_is_a_part_of_the_name() -> None:
    query = chat("Herr Peters ist nicht der Peter.")
    assert sent(query, found(query, "Peters")) == (
        "Herr ⟦PERSON_1⟧ ist nicht der Peter."
    )


def test_the_words_of_tokens_keep_the_language_of_the_first_turn() -> None:
    query = chat(
        "Wie ist das Wetter in Köln?", "Well.", "What of the rain and the sun?"
    )
    assert sent(query, found(query, "Köln", "identifier.quasi.city")).startswith(
        "Wie ist das Wetter in ⟦ORT_1⟧?"
    )


def test_the_system_prompt_is_rewritten_too() -> None:
    """Others sent it as it was (stella PR 294)."""
    query = Query(
        messages=(
            Message(role="system", content="You assist Ann Lee."),
            Message(role="user", content="Who is Ann Lee?"),
        )
    )
    assert sent(query, found(query, "Ann Lee", message=1)) == (
        "You assist ⟦PERSON_1⟧.|Who is ⟦PERSON_1⟧?"
    )


def test_one_name_has_one_token_however_often() -> None:
    """Others gave one name several fakes (LangChain PR 10093)."""
    query = chat("Dr. Smith met smith, then Ann; Ann left.")
    names = [found(query, name) for name in ("Dr. Smith", "smith", "Ann")]
    assert sent(query, *names) == (
        "Dr. ⟦PERSON_1⟧ met ⟦PERSON_1⟧, then ⟦PERSON_2⟧; ⟦PERSON_2⟧ left."
    )


def test_the_offsets_are_those_of_the_text_that_was_inspected() -> None:
    """Others cut the text at offsets of the shortened one (litellm PR 24291)."""
    query = chat("Al, Maximiliana-Augustina and Bo: Bo, Al.")
    names = [found(query, name) for name in ("Al", "Maximiliana-Augustina", "Bo")]
    assert sent(query, *reversed(names)) == (
        "⟦PERSON_1⟧, ⟦PERSON_2⟧ and ⟦PERSON_3⟧: ⟦PERSON_3⟧, ⟦PERSON_1⟧."
    )


def test_neighbours_are_not_merged() -> None:
    query = chat("Ann,Bob Ann Bob")
    parts = [found(query, "Ann"), found(query, "Bob")]
    assert sent(query, *parts) == ("⟦PERSON_1⟧,⟦PERSON_2⟧ ⟦PERSON_1⟧ ⟦PERSON_2⟧")


def test_the_words_of_a_name_count_alone_as_well() -> None:
    query = chat("John van Smith-Jones, JONES, John; a jones, a van")
    assert sent(query, found(query, "John van Smith-Jones")) == (
        "⟦PERSON_1⟧, ⟦PERSON_2⟧, ⟦PERSON_1⟧; a ⟦PERSON_2⟧, a van"
    )


OTHER_SPELLINGS = {
    "plural and possessive": (
        "Mr. Smith's and the Smiths' dog",
        "Smith",
        "Mr. ⟦PERSON_1⟧'s and the ⟦PERSON_1⟧s' dog",
    ),
    "plural of a part": (
        "Ann Jones; the Joneses left",
        "Ann Jones",
        "⟦PERSON_1⟧; the ⟦PERSON_2⟧es left",
    ),
    "in an address": (
        "Ewa Kowalczyk: https://x.example/kowalczyk/edit",
        "Ewa Kowalczyk",
        "⟦PERSON_1⟧: https://x.example/⟦PERSON_2⟧/edit",
    ),
    "joined by a sign or a digit": (
        "Omar Haddad. Re: Haddad_rent, haddad2024.pdf",
        "Omar Haddad",
        "⟦PERSON_1⟧. Re: ⟦PERSON_2⟧_rent, ⟦PERSON_2⟧2024.pdf",
    ),
    "two letters": (
        "Li Na wrote. Na is ill; na, Nap",
        "Li Na",
        "⟦PERSON_1⟧ wrote. ⟦PERSON_2⟧ is ill; na, Nap",
    ),
    "an ordinary word": (
        "Mark Ho: Mark my words, mark them",
        "Mark Ho",
        "⟦PERSON_1⟧: ⟦PERSON_2⟧ my words, mark them",
    ),
    "inside an ordinary word": (
        "Alan Ho: the balance",
        "Alan Ho",
        "⟦PERSON_1⟧: the balance",
    ),
}


@pytest.mark.parametrize(
    ("text", "name", "expected"), OTHER_SPELLINGS.values(), ids=list(OTHER_SPELLINGS)
)
def test_a_name_is_found_in_other_spellings(
    text: str, name: str, expected: str
) -> None:
    query = chat(text)
    result = rewritten(query, found(query, name))
    assert result.outgoing_texts() == (expected,)


# What a detector may take for one name, and what is sent in its place.
ONE_NAME = {
    "two lines": (
        "A\nIlse Obern\nOtto Wieck\nB",
        "Ilse Obern\nOtto Wieck",
        "A\n1\n2\nB",
    ),
    "a list": ("- Ilse Obern\n- Otto Wieck", "Ilse Obern\n- Otto Wieck", "- 1\n- 2"),
    "two sentences": ("Ilse Obern. Otto Wieck", "Ilse Obern. Otto Wieck", "1. 2"),
    "a title": ("meet Mlle. Obern", "Mlle. Obern", "meet Mlle. 1"),
    "an initial": ("I. Obern is in", "I. Obern", "1 is in"),
    "the next sentence": (
        "Ilse Obern. Schreibe ihr",
        "Ilse Obern. Schreibe",
        "1. Schreibe ihr",
    ),
    "a heading": (
        "Ilse Obern\nSummary: late",
        "Ilse Obern\nSummary",
        "1\nSummary: late",
    ),
    "a heading before": (
        "Betreff: Obern ist da",
        "Betreff: Obern",
        "Betreff: 1 ist da",
    ),
    "a verb": ("Greet Ilse Obern today", "Greet Ilse Obern", "Greet 1 today"),
    "a verb behind": ("Ilse Obern nimmt es", "Ilse Obern nimmt", "1 nimmt es"),
    "a greeting": ("Lieber Herr Wieck, ja", "Lieber Herr Wieck", "Lieber Herr 1, ja"),
    "an option": ("x --name Obern -v", "--name Obern", "x --name 1 -v"),
    "a handle": ("ask @obern.i: now", "@obern", "ask @1: now"),
    "only such words": ("Greet her", "Greet", "1 her"),
    "who is called so": ("An Obern is in", "An Obern", "1 is in"),
    "who is called like a greeting": (
        "a card for Dag Obern",
        "Dag Obern",
        "a card for 1",
    ),
    "a greeting within": ("write to Liebe Obern", "Liebe Obern", "write to 1"),
    "a greeting behind a colon": ("reply: Dear Obern", "Dear Obern", "reply: Dear 1"),
}


@pytest.mark.parametrize(
    ("text", "name", "expected"), ONE_NAME.values(), ids=list(ONE_NAME)
)
def test_a_token_swallows_nothing_but_a_name(
    text: str, name: str, expected: str
) -> None:
    query = chat(text)
    (outgoing,) = rewritten(query, found(query, name)).outgoing_texts()
    assert re.sub("⟦PERSON_([0-9])⟧", r"\1", outgoing) == expected


SAME_PERSON = {
    "a first name": ("Ilse Obern and Otto Wieck, then Ilse", "1 and 2, then 1"),
    "a last name": ("Ilse Obern rang. Dr. Obern says", "1 rang. Dr. 1 says"),
    "of two": ("Ilse Obern, Ilse Wieck; Ilse", "1, 2; 3"),
    "of two last names": ("Ilse Obern, Otto Obern; Obern", "1, 2; 3"),
    "before the whole": ("Ilse, Ilse Obern", "1, 2"),
    "a genitive": ("Ilse Obern: Ilses Rad", "1: 2s Rad"),
    "in a file's name": ("Ilse Obern: obern_a.txt", "1: 2_a.txt"),
}


@pytest.mark.parametrize(
    ("text", "expected"), SAME_PERSON.values(), ids=list(SAME_PERSON)
)
def test_a_single_name_is_that_of_one_person_named_before(
    text: str, expected: str
) -> None:
    query = chat(text)
    names = {
        match[0]: found(query, match[0])
        for match in re.finditer(r"(?:Ilse|Otto) (?:Obern|Wieck)", text)
    }
    (outgoing,) = rewritten(query, *names.values()).outgoing_texts()
    assert re.sub("⟦PERSON_([0-9])⟧", r"\1", outgoing) == expected


def test_a_half_of_a_joined_name_is_the_whole() -> None:
    query = chat("Anne-Marie O'Neill-Jones and pre-Raphael")
    assert sent(query, found(query, "Marie O"), found(query, "Raphael")) == (
        "⟦PERSON_1⟧ and pre-⟦PERSON_2⟧"
    )


def test_a_word_cut_by_a_finding_is_taken_whole() -> None:
    query = chat("user_ann99 wrote ( Ann )")
    assert sent(query, found(query, "ann", USERNAME), found(query, " Ann ")) == (
        "⟦USERNAME_1⟧ wrote ( ⟦PERSON_1⟧ )"
    )


def test_an_ordinary_word_is_a_name_with_a_capital_only() -> None:
    query = chat("Will came. Will you, will he? WILL!")
    assert sent(query, found(query, "Will")) == (
        "⟦PERSON_1⟧ came. ⟦PERSON_1⟧ you, will he? ⟦PERSON_1⟧!"
    )


def test_a_short_number_is_an_age_in_its_place_only() -> None:
    query = chat("He is 45 and has 45 apples.")
    assert sent(query, found(query, "45", AGE)) == "He is ⟦AGE_1⟧ and has 45 apples."


def test_a_date_moves_and_comes_back() -> None:
    query = chat("Seen on 12 May 1980.")
    result = rewritten(query, found(query, "12 May 1980", DATE))
    (text,) = result.outgoing_texts()
    assert re.fullmatch(r"Seen on \d+ [A-Z][a-z]+ 19\d\d\.", text)
    assert "12 May 1980" not in text
    assert list(result.vault.values.values()) == ["12 May 1980"]


def test_the_same_history_gives_the_same_tokens() -> None:
    one = chat("Ann met Bob.")
    first = sent(one, found(one, "Ann"), found(one, "Bob"))
    two = chat("Ann met Bob.", "Good for Bob.", "And Cy?")
    names = [found(two, name) for name in ("Ann", "Bob")]
    later = sent(two, *names, found(two, "Cy", message=2))
    assert later == f"{first}|Good for ⟦PERSON_2⟧.|And ⟦PERSON_3⟧?"


def test_counts_are_of_values_by_class() -> None:
    query = chat("Ann, Bob, Ann and @cy")
    names = [found(query, "Ann"), found(query, "Bob"), found(query, "@cy", USERNAME)]
    assert rewritten(query, *names).counts == ((PERSON, 2), (USERNAME, 1))


def test_an_outer_finding_is_replaced_as_a_whole() -> None:
    query = chat("write to @ann.lee now")
    both = [found(query, "@ann.lee", USERNAME), found(query, "ann")]
    assert sent(query, *both) == "write to ⟦USERNAME_1⟧ now"


def test_two_crossing_parts_of_a_name_are_one() -> None:
    query = chat("Ann Lee Moore came")
    both = [found(query, "Ann Lee"), found(query, "Lee Moore")]
    assert sent(query, *both) == "⟦PERSON_1⟧ came"


def at(query: Query, **changes: object) -> Finding:
    return dataclasses.replace(found(query, "Ann"), **changes)  # type: ignore[arg-type]


PLAIN = chat("Ask Ann now")
STOPPED = chat("Ask Ann now", settings=Settings(stop=("Ann", "x")))
NAMED = Query(
    messages=(
        Message(role="user", content="Ask Ann now"),
        Message(role="user", content="Hi", name="Ann"),
    )
)
KEPT: dict[str, tuple[Query, list[Finding], Obstacle]] = {
    "no finding": (PLAIN, [], Obstacle.NOTHING_FOUND),
    "only a word of doubt": (
        PLAIN,
        [at(PLAIN, data_class="uncertain.name")],
        Obstacle.NOTHING_FOUND,
    ),
    "found in a disguise": (
        PLAIN,
        [found(PLAIN, "Ann"), at(PLAIN, normalization=Normalization.NFKC)],
        Obstacle.OTHER_VIEW,
    ),
    "found across texts": (
        PLAIN,
        [at(PLAIN, where=Where(message=0, role="user", json_path=""))],
        Obstacle.ACROSS_TEXTS,
    ),
    "an opening mark": (
        chat("Ask Ann ⟦now"),
        [found(PLAIN, "Ann")],
        Obstacle.MARK_IN_SOURCE,
    ),
    "a token of the user": (
        chat("Ask Ann", "⟦PERSON_1⟧"),
        [found(PLAIN, "Ann")],
        Obstacle.MARK_IN_SOURCE,
    ),
    "a mark in a name": (
        Query(messages=(Message(role="user", content="Ask Ann", name="⟧"),)),
        [found(PLAIN, "Ann")],
        Obstacle.MARK_IN_SOURCE,
    ),
    "in a name field": (NAMED, [found(NAMED, "Ann")], Obstacle.NOT_CONTENT),
    "in a stop string": (STOPPED, [found(STOPPED, "Ann")], Obstacle.STOP_STRING),
    "a stop that cuts tokens": (
        chat("Ask Ann now", settings=Settings(stop=("N_",))),
        [found(PLAIN, "Ann")],
        Obstacle.STOP_STRING,
    ),
    "log-probabilities": (
        chat("Ask Ann now", settings=Settings(logprobs=True)),
        [found(PLAIN, "Ann")],
        Obstacle.LOGPROBS,
    ),
    "crossing": (
        PLAIN,
        [found(PLAIN, "Ask Ann", USERNAME), found(PLAIN, "Ann now")],
        Obstacle.OVERLAP,
    ),
    **{
        f"left: {rest}": (
            chat("Ask Zoë Kowalczyk", rest),
            [found(chat("Ask Zoë Kowalczyk"), "Zoë Kowalczyk")],
            Obstacle.NAME_LEFT,
        )
        for rest in (
            "KowalczykLease2024.pdf",
            "mrkowalczyk",
            "the Kowalczykowie",
            "Kow\u00e1lczyk",
            "Kowal\u00adczyk",
            "Kowa\u0142czyk",
        )
    },
    "left in a name field": (
        Query(
            messages=(
                Message(role="user", content="Ask Haddad"),
                Message(role="user", content="Hi", name="omarhaddad"),
            )
        ),
        [found(chat("Ask Haddad"), "Haddad")],
        Obstacle.NAME_LEFT,
    ),
    "beyond the text": (PLAIN, [at(PLAIN, end=99)], Obstacle.NO_STAND_IN),
    "no width": (PLAIN, [at(PLAIN, end=4)], Obstacle.NO_STAND_IN),
    "nothing but marks": (
        chat("Ask ... Ann"),
        [place(PLAIN, 4, 7, PERSON)],
        Obstacle.NO_STAND_IN,
    ),
}


@pytest.mark.parametrize(
    ("query", "findings", "obstacle"), KEPT.values(), ids=list(KEPT)
)
def test_a_query_with_irreplaceable_findings_is_kept(
    query: Query, findings: list[Finding], obstacle: Obstacle
) -> None:
    assert deidentify(query, findings, key=KEY) is obstacle


def test_every_obstacle_is_explained() -> None:
    assert set(WHY_NOT_REPLACED) == set(Obstacle)


def test_letters_that_fold_in_odd_ways_do_no_harm() -> None:
    query = chat("Ask Kim, \u212aim, k\u0131m and I\u017fa, \u0130sa", "isa \u212aIM")
    result = rewritten(query, found(query, "Kim"), found(query, "\u0130sa"))
    assert "Kim" not in result.outgoing_texts()[0]
    assert "\u212aim" not in result.outgoing_texts()[0]


TEXTS = st.text(alphabet="ab AB.-'\n1é", min_size=1, max_size=30)


@settings(max_examples=80)
@given(st.data(), st.lists(TEXTS, min_size=1, max_size=3))
def test_only_stand_ins_are_new_and_only_found_text_is_gone(
    data: st.DataObject, texts: list[str]
) -> None:
    """No digit run and no name can hide from the detectors behind a token.

    What they read is the source, but for plain words; what leaves is the source,
    but for tokens: between the two, every character is the same, in order.
    """
    query = chat(*texts)
    findings: list[Finding] = []
    for index, text in enumerate(texts):
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, len(text)))
        name = data.draw(st.sampled_from([PERSON, USERNAME]))
        findings.append(place(query, start, end, name, message=index))
    result = deidentify(query, findings, key=KEY)
    if isinstance(result, Obstacle):
        return
    for source, out, read in zip(
        texts, result.outgoing_texts(), read_texts(result), strict=True
    ):
        literal = TOKEN.sub("\0", out)
        assert "⟦" not in literal
        seen = re.sub(r" ?\[(?:name|x)\] ?", "\0", read)
        assert seen == re.sub(" ?\0 ?", "\0", literal)
        gap = ".+?".join(map(re.escape, literal.split("\0")))
        assert re.fullmatch(gap, source, re.DOTALL)
        for token in TOKEN.findall(out):
            value = result.vault.values[token]
            assert value.casefold() in source.casefold()
        alone = re.sub(r"\w\[name\]|\[name\]\w", "", read)
        assert alone == read, "no word of the source is glued to a plain one"


def read_texts(result: Deidentified) -> list[str]:
    return [leaf.text for leaf in result.reading.leaves()]


def test_the_word_of_a_token_is_not_a_remaining_name() -> None:
    query = chat("Erna met @cy99 of Dock 1")
    names = [found(query, "Erna"), found(query, "@cy99", USERNAME)]
    assert sent(query, *names) == "⟦PERSON_1⟧ met ⟦USERNAME_1⟧ of Dock 1"
    record = chat("Cord has 12345-6")
    both = [found(record, "Cord"), found(record, "12345-6", "health.mrn")]
    assert sent(record, *both) == "⟦PERSON_1⟧ has ⟦RECORD_1⟧"
    docket = chat("Docke has 12345-6")
    both = [found(docket, "Docke"), found(docket, "12345-6", "legal.docket")]
    assert sent(docket, *both) == "⟦PERSON_1⟧ has ⟦DOCKET_1⟧"


def test_the_inspection_is_about_the_reading_and_no_other_query() -> None:
    result = rewritten(PLAIN, found(PLAIN, "Ann"))
    assert read_texts(result) == ["Ask [x] now"]
    about = inspection_of(
        findings=(), payload_digest=result.reading.payload_digest(), messages=1
    )
    assert result.inspected(about).payload_digest == result.query.payload_digest()
    for other in (PLAIN, result.query):
        foreign = changed(about, payload_digest=other.payload_digest())
        with pytest.raises(ValueError, match="another query"):
            result.inspected(foreign)


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("What is the address of Ann?", "What is the address of [name]?"),
        ("Pregunta a Ann por la caja de las sillas.", "Pregunta a [x] por la caja"),
        ("Erinnere Ann an die Stühle für das Fest.", "Erinnere [x] an die Stühle"),
        ("Relance Ann vendredi.", "Relance [x] vendredi."),
    ],
)
def test_no_model_takes_its_stand_in_for_a_person(text: str, read: str) -> None:
    query = chat(text)
    (found_there,) = read_texts(rewritten(query, found(query, "Ann")))
    assert read in found_there


def test_only_a_rewriting_says_that_two_texts_are_one() -> None:
    """Otherwise the inspection of a harmless text would be accepted for any other."""
    result = rewritten(PLAIN, found(PLAIN, "Ann"))
    with pytest.raises(TypeError, match="only deidentified"):
        Deidentified(
            brand=object(),
            query=PLAIN,
            reading=result.reading,
            vault=result.vault,
            counts=(),
        )
    with pytest.raises(ValueError, match="brand"):
        dataclasses.replace(result, query=PLAIN)  # type: ignore[call-arg]


def test_nothing_of_the_source_shows() -> None:
    query = chat("Ask Zanzibarquill now")
    assert "Zanzibarquill" not in repr(rewritten(query, found(query, "Zanzibarquill")))


HEAD = """
version: 1
languages: [en]
default: {decision: enclave, require: [all_detectors_ok, language_covered,
  within_limits, policy_current]}
limits: {max_chars: 20000, deadline_ms: 50, deadline_ms_per_1000_chars: 50, over: local}
thresholds: {direct: 35, quasi: 50, topic: 50}
sticky: conversation
scan: full
ner: {engine: none}
rules:
- {id: any-uncertain, when: "uncertain.*", then: local}
"""


def policy(rules: str) -> Policy:
    return load_policy(HEAD + rules)


def asked(policy: Policy, *findings: Finding) -> list[str]:
    inspection = inspection_of(findings=findings, payload_digest=bytes(32), messages=1)
    decision = decide(policy.rulebook, inspection)
    return [each.data_class for each in findings_asked(policy, inspection, decision)]


BOTH = (found(PLAIN, "Ann"), found(PLAIN, "now", DATE))


def test_asked_for_is_what_the_rules_that_fired_ask_for() -> None:
    names = "- {id: names, when: identifier.direct.person, then: deidentify}\n"
    days = "- {id: days, when: identifier.quasi.date, then: deidentify}\n"
    assert asked(policy(names), *BOTH) == [PERSON]
    assert asked(policy(names + days), *BOTH) == [PERSON, DATE]
    both = "- {id: both, when: identifier.*, then: deidentify}\n"
    assert asked(policy(both), *BOTH) == [PERSON, DATE]


def test_nothing_is_replaced_where_no_rule_asks() -> None:
    """Others did it although it was switched off (litellm 16919)."""
    home = "- {id: names, when: identifier.direct.person, then: local}\n"
    assert asked(policy(home), *BOTH) == []
    assert asked(policy(""), *BOTH) == []


def test_excluded_findings_are_not_replaced() -> None:
    text = (
        "- {id: names, when: identifier.*, then: deidentify}\n"
        "exclude:\n- {class: identifier.quasi.date, reason: every day is a date}\n"
    )
    assert asked(policy(text), *BOTH) == [PERSON]


@pytest.mark.parametrize(
    "text",
    ["Upload it to S3 from EKS please", "the C4 model and the EKS cluster in S3"],
)
def test_names_of_services_are_no_people(text: str) -> None:
    """Others replaced S3, EKS and C4 (litellm PR 21949)."""
    assert (
        list(NameDetector().find(Reading(normalization=Normalization.RAW, text=text)))
        == []
    )


# --- neighbours ---------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "Lade heute Anna von der Quorheide ein.",
        "Ist denn Anna im Quorhof schon da?",
        "Envoie la liste à Anna du Quorlin.",
        "Escribe hoy a Anna de la Quorra.",
        "Scrivi oggi a Anna della Quorra.",
        "Stuur Anna in 't Quorveld de lijst.",
        "Escreve hoje a Anna dos Quorjos.",
        "Send Anna of the Quorglen the list.",
    ],
)
def test_half_a_name_behind_a_particle_keeps_the_query_local(text: str) -> None:
    query = chat(text)
    assert deidentify(query, [found(query, "Anna")], key=KEY) is Obstacle.STILL_FOUND


def test_an_unknown_word_next_to_a_name_keeps_the_query_local() -> None:
    # Found in the first text; its neighbour in the second was not inspected.
    query = chat("Ask Okafor to pay", "{'okafor': 2, 'haugland': 1}")
    assert deidentify(query, [found(query, "Okafor")], key=KEY) is Obstacle.STILL_FOUND


def test_neighbours_that_are_replaced_leave_without_their_names() -> None:
    query = chat("{'okafor': 2, 'haugland': 1, 'rent': 4}")
    names = [found(query, "okafor"), found(query, "haugland")]
    rewritten = deidentify(query, names, key=KEY)
    assert isinstance(rewritten, Deidentified)
    (text,) = rewritten.outgoing_texts()
    assert "okafor" not in text
    assert "haugland" not in text
    assert "'rent': 4" in text


def test_an_approved_text_is_not_rewritten() -> None:
    approving = policy(
        "- {id: names, when: identifier.direct.person, then: deidentify}\n"
        f"approved: [{{sha256: '{'ab' * 32}', by: me, date: 2026-11-22}}]\n"
    )
    query = Query(
        messages=(
            Message(role="system", content="You assist Ann Lee."),
            Message(role="user", content="Who is Bo Ray?"),
        )
    )
    names = (found(query, "Ann Lee"), found(query, "Bo Ray", message=1))
    inspection = inspection_of(
        findings=names,
        payload_digest=bytes(32),
        messages=2,
        approved=(Approved(where=names[0].where, sha256="ab" * 32),),
    )
    decision = decide(approving.rulebook, inspection)
    asked_for = findings_asked(approving, inspection, decision)
    assert asked_for == names[1:]
    assert sent(query, *asked_for) == "You assist Ann Lee.|Who is ⟦PERSON_1⟧?"
    # The same name in both: the prompt would reveal who is behind the token, so it is
    # replaced there, too, and the prompt is no longer the approved one.
    same = Query(
        messages=(
            Message(role="system", content="You assist Ann Lee."),
            Message(role="user", content="Who is Ann Lee?"),
        )
    )
    outgoing = sent(same, found(same, "Ann Lee", message=1))
    assert outgoing == "You assist ⟦PERSON_1⟧.|Who is ⟦PERSON_1⟧?"


def with_call(arguments: object, *texts: str, tool: object = None) -> Query:
    call = ToolCall(number=1, name="find", arguments=Document.of(arguments))
    turn = Message(role="assistant", content="", calls=(call,))
    query = chat(*texts)
    return dataclasses.replace(
        query,
        messages=(*query.messages, turn),
        tools=() if tool is None else (Document.of(tool, schema=True),),
    )


def outgoing(query: Query, *findings: Finding) -> tuple[object, ...]:
    """The arguments and the tools that would be sent."""
    result = rewritten(query, *findings).query
    call = result.messages[-1].calls[0]
    return (call.arguments.value(), *(each.value() for each in result.tools))


def test_a_name_in_arguments_and_tools_is_replaced_and_they_stay_json() -> None:
    query = with_call(
        {"who": 'Smith "Q"\n', "also": ["x", "Smith"]},
        "Find Smith",
        tool={
            "name": "find",
            "description": "Finds Smith",
            "parameters": {"properties": {"who": {"enum": ["Smith", "none"]}}},
        },
    )
    assert outgoing(query, found(query, "Smith", message=0)) == (
        {"who": '⟦PERSON_1⟧ "Q"\n', "also": ["x", "⟦PERSON_1⟧"]},
        {
            "name": "find",
            "description": "Finds ⟦PERSON_1⟧",
            "parameters": {"properties": {"who": {"enum": ["⟦PERSON_1⟧", "none"]}}},
        },
    )
    result = rewritten(query, found(query, "Smith", message=0))
    assert b"Smith" not in result.query.payload().content
    call = result.reading.messages[-1].calls[0]
    assert call.arguments.value() == {"who": '[x] "Q"\n', "also": ["x", "[x]"]}


def test_a_finding_inside_arguments_is_replaced_there() -> None:
    query = with_call({"who": "Smith", "n": 2}, "Find them")
    where = Where(
        message=1, role="assistant", json_path="tool_calls[0].function.arguments"
    )
    at = dataclasses.replace(found(query, "Find"), where=where, start=5, end=10)
    assert outgoing(query, at) == ({"who": "⟦PERSON_1⟧", "n": 2},)


@pytest.mark.parametrize(
    ("arguments", "tool"),
    [
        ({"Smith": 1}, None),
        ({"n": 81155512}, None),
        ({}, {"name": "Smith"}),
        ({}, {"parameters": {"properties": {"Smith": {}}}}),
        ({}, {"parameters": {"required": ["Smith"]}}),
        ({}, {"parameters": {"properties": {"who": {"pattern": "Smith"}}}}),
    ],
    ids=["name", "number", "tool", "property", "required", "pattern"],
)
def test_what_a_tool_knows_by_name_is_kept_local(
    arguments: object, tool: object
) -> None:
    query = with_call(arguments, "Find Smith, 81155512", tool=tool)
    phone = "identifier.direct.phone"
    findings = (found(query, "Smith"), found(query, "81155512", phone))
    assert deidentify(query, findings, key=KEY) is Obstacle.NOT_CONTENT


def test_a_place_over_two_strings_is_kept_local() -> None:
    query = with_call(["Ann", "Smith"], "Find them")
    where = Where(
        message=1, role="assistant", json_path="tool_calls[0].function.arguments"
    )
    at = dataclasses.replace(
        found(query, "Find"), where=where, start=0, end=9, data_class=USERNAME
    )
    assert deidentify(query, (at,), key=KEY) is Obstacle.NOT_CONTENT
