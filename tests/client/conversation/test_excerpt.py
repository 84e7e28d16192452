import dataclasses
import re
from typing import Any

import pytest
from benchmarks.boundary import measure_follow_ups
from hypothesis import given, settings
from hypothesis import strategies as st

from curtilage.client.chat.answer import NotPossible, Rung
from curtilage.client.chat.document import Document
from curtilage.client.chat.query import Message, Query, Settings, ToolCall
from curtilage.client.conversation.excerpt import (
    INTRODUCTION,
    LEAST_PARAMETERS,
    MAX_SUMMARISED_CHARS,
    MAX_SUMMARY_CHARS,
    HistoryRules,
    narrowed,
    rungs,
    summary_request,
)
from curtilage.client.conversation.redaction import own_words, vocabulary
from curtilage.policy.decision.conversation import History
from curtilage.policy.decision.findings import Where
from curtilage.policy.decision.tiers import RoutingClass

KEPT, LEFT, ASKED = (
    RoutingClass.RESTRICTED,
    RoutingClass.INTERNAL,
    RoutingClass.PUBLIC,
)
NEVER: HistoryRules = {KEPT: History.NEVER, LEFT: History.REDACTED_EXTRACT}
SUMMARISED: HistoryRules = {KEPT: History.SAFE_SUMMARY, LEFT: History.SAFE_SUMMARY}
SECRET = "My sister Rose Miller takes methotrexate, 15 mg a week; is that too much?"
ADVICE = "For Rose that is a usual amount; ask the doctor at the clinic in Ulm."
FRESH = "Write a Python function that sorts a list of numbers."
CODE = "Here is a function that does it: it calls the sort method of the list."
MORE = "now make it shorter please"
BRIEF = "The user wants to know whether the amount of a medicine is too much."


def chat(*said: str, system: str | None = None) -> Query:
    """Texts of the user and the assistant, in turn."""
    prompt = () if system is None else (Message(role="system", content=system),)
    turns = (
        Message(role=("user", "assistant")[at % 2], content=text)
        for at, text in enumerate(said)
    )
    return Query(messages=(*prompt, *turns))


def texts(query: Query | NotPossible) -> list[tuple[str, str]]:
    assert isinstance(query, Query), query
    return [(each.role, each.content) for each in query.messages]


# --- the question alone -------------------------------------------------------------


def test_an_independent_question_is_sent_alone() -> None:
    query = chat(SECRET, ADVICE, FRESH)
    taint = (KEPT, KEPT, ASKED)
    assert texts(narrowed(query, taint, Rung.CURRENT, history=NEVER)) == [
        ("user", FRESH)
    ]


def test_settings_are_not_changed() -> None:
    query = dataclasses.replace(
        chat(SECRET, ADVICE, FRESH), settings=Settings(max_tokens=7), stream=True
    )
    made = narrowed(query, (KEPT, KEPT, ASKED), Rung.CURRENT, history=NEVER)
    assert isinstance(made, Query)
    assert (made.settings, made.stream) == (query.settings, True)
    assert made.payload_digest() != query.payload_digest()


def test_the_speakers_name_is_not_sent() -> None:
    last = Message(role="user", content=FRESH, name="rose_miller")
    query = Query(messages=(*chat(SECRET, ADVICE).messages, last))
    made = narrowed(query, (KEPT, KEPT, ASKED), Rung.CURRENT, history=NEVER)
    assert isinstance(made, Query)
    assert made.messages[0].name is None


@pytest.mark.parametrize(
    ("question", "why"),
    [
        (MORE, NotPossible.REFERS),
        ("Write a poem about methotrexate and the sea.", NotPossible.REPEATS),
        ("Write a birthday poem for Rose and her friends.", NotPossible.REPEATS),
        ("Write a table of 15 words that end in a vowel.", NotPossible.REPEATS),
        (
            "Write a poem; my sister rose takes everything she finds.",
            NotPossible.REFERS,
        ),
        ("Say that is a usual amount ask the doctor at once.", NotPossible.REPEATS),
        ("Schreibe eine Funktion, die eine Liste sortiert.", NotPossible.LANGUAGE),
        ("Escribe un poema sobre el mar y la luna.", NotPossible.LANGUAGE),
        ("", NotPossible.LANGUAGE),
    ],
)
def test_a_question_that_may_repeat_kept_content_is_kept(
    question: str, why: NotPossible
) -> None:
    query = chat(SECRET, ADVICE, question)
    taint = (KEPT, KEPT, ASKED)
    assert narrowed(query, taint, Rung.CURRENT, history=NEVER) is why


def test_kept_turns_in_another_language_keep_the_question() -> None:
    query = chat("Meine Schwester nimmt jede Woche Methotrexat.", ADVICE, FRESH)
    made = narrowed(query, (KEPT, KEPT, ASKED), Rung.CURRENT, history=NEVER)
    assert made is NotPossible.LANGUAGE


@pytest.mark.parametrize("how", Rung)
def test_a_question_that_must_be_kept_is_kept(how: Rung) -> None:
    query = chat(FRESH, CODE, SECRET)
    made = narrowed(query, (LEFT, LEFT, KEPT), how, history=SUMMARISED, summary=BRIEF)
    assert made is NotPossible.CURRENT_TURN


@pytest.mark.parametrize("how", Rung)
def test_parts_other_than_text_keep_it_local(how: Rung) -> None:
    where = Where(message=0, role="user", json_path="content[1]")
    query = dataclasses.replace(chat(SECRET, ADVICE, FRESH), opaque=(where,))
    made = narrowed(query, (KEPT, KEPT, ASKED), how, history=SUMMARISED, summary=BRIEF)
    assert made is NotPossible.ATTACHMENT


CALL = ToolCall(number=1, name="find", arguments=Document.of({"who": "Rose"}))
FORMAT = Document.of({"type": "json_object"})


@pytest.mark.parametrize("how", Rung)
@pytest.mark.parametrize(
    "changes",
    [{"tools": (FORMAT,)}, {"response_format": FORMAT}, {"settings": Settings(n=2)}],
    ids=["tools", "format", "several"],
)
def test_what_asks_for_more_than_a_text_keeps_it_local(
    how: Rung, changes: dict[str, Any]
) -> None:
    query = dataclasses.replace(chat(SECRET, ADVICE, FRESH), **changes)
    made = narrowed(query, (KEPT, KEPT, ASKED), how, history=SUMMARISED, summary=BRIEF)
    assert made is NotPossible.NOT_PLAIN


def test_an_earlier_call_keeps_it_local() -> None:
    first, answer, question = chat(SECRET, ADVICE, FRESH).messages
    turns = (first, dataclasses.replace(answer, calls=(CALL,)), question)
    query = Query(messages=turns)
    made = narrowed(query, (KEPT, KEPT, ASKED), Rung.CURRENT, history=NEVER)
    assert made is NotPossible.NOT_PLAIN


def test_a_stop_string_of_words_keeps_it_local() -> None:
    query = chat(SECRET, ADVICE, FRESH)
    for stop, leaves in (("Rose", False), ("\n\n", True)):
        asked = dataclasses.replace(query, settings=Settings(stop=(stop,)))
        made = narrowed(asked, (KEPT, KEPT, ASKED), Rung.CURRENT, history=NEVER)
        assert isinstance(made, Query) is leaves
        assert leaves or made is NotPossible.STOP_STRING


@pytest.mark.parametrize("query", [chat(FRESH), chat(FRESH, CODE), Query(messages=())])
def test_there_is_a_question_after_something(query: Query) -> None:
    taint = (ASKED,) * len(query.messages)
    made = narrowed(query, taint, Rung.CURRENT, history=NEVER)
    assert made is NotPossible.NO_QUESTION


def test_each_message_has_its_class() -> None:
    with pytest.raises(ValueError, match="routing class"):
        narrowed(chat(SECRET, ADVICE, FRESH), (KEPT, KEPT), Rung.CURRENT, history=NEVER)


# --- with the turns since ------------------------------------------------------------


def test_turns_that_were_sent_are_included_redacted() -> None:
    query = chat(SECRET, ADVICE, f"{FRESH} For Peter.", CODE, MORE, system="Be Brief.")
    taint = (LEFT, KEPT, KEPT, LEFT, LEFT, ASKED)
    assert texts(narrowed(query, taint, Rung.EXTRACT, history=NEVER)) == [
        ("system", "Be [...]."),
        ("user", "Write a [...] function that [...] a list of numbers. For [...]."),
        ("assistant", CODE),
        ("user", MORE),
    ]


@pytest.mark.parametrize("how", Rung)
def test_a_prompt_that_must_not_be_sent_keeps_it_local(how: Rung) -> None:
    query = chat(SECRET, ADVICE, FRESH, CODE, FRESH, system="You are a helpful nurse.")
    taint = (KEPT, KEPT, LEFT, LEFT, ASKED)
    for prompt, history in ((KEPT, SUMMARISED), (LEFT, {KEPT: History.SAFE_SUMMARY})):
        made = narrowed(query, (prompt, *taint), how, history=history, summary=BRIEF)
        assert made in {NotPossible.PROMPT, NotPossible.NO_HISTORY}
    made = narrowed(query, (LEFT, *taint), how, history=SUMMARISED, summary=BRIEF)
    assert texts(made)[0] == ("system", "You are a helpful nurse.")


def test_turns_before_a_kept_turn_are_kept() -> None:
    query = chat(FRESH, CODE, SECRET, ADVICE, MORE)
    made = narrowed(query, (LEFT, LEFT, KEPT, KEPT, ASKED), Rung.EXTRACT, history=NEVER)
    assert made is NotPossible.NO_HISTORY


def test_an_answer_without_its_question_is_kept() -> None:
    query = chat(SECRET, CODE, MORE)
    made = narrowed(query, (KEPT, LEFT, ASKED), Rung.EXTRACT, history=NEVER)
    assert made is NotPossible.NO_HISTORY


def test_a_class_that_must_not_be_included_is_kept() -> None:
    query = chat(FRESH, CODE, MORE)
    for history in ({KEPT: History.NEVER}, {**NEVER, LEFT: History.NEVER}):
        made = narrowed(query, (LEFT, LEFT, ASKED), Rung.EXTRACT, history=history)
        assert made is NotPossible.NO_HISTORY


def test_kept_turns_are_never_in_an_extract() -> None:
    # A policy cannot say so (a load error); if it did, nothing would be taken of it.
    history = {KEPT: History.REDACTED_EXTRACT}
    query = chat(SECRET, ADVICE, FRESH)
    made = narrowed(query, (KEPT, KEPT, ASKED), Rung.EXTRACT, history=history)
    assert made is NotPossible.NO_HISTORY


def test_a_tools_words_stay() -> None:
    messages = [*chat(FRESH, CODE, MORE).messages]
    messages[1] = Message(role="tool", content=CODE)
    made = narrowed(
        Query(messages=tuple(messages)), (LEFT,) * 3, Rung.EXTRACT, history=NEVER
    )
    assert made is NotPossible.NO_HISTORY


# --- with a summary ------------------------------------------------------------------


def test_a_summary_goes_along() -> None:
    query = chat(SECRET, ADVICE, "what would be a better way to take it?")
    made = narrowed(
        query, (KEPT, KEPT, ASKED), Rung.SUMMARY, history=SUMMARISED, summary=BRIEF
    )
    assert texts(made) == [
        ("system", f"{INTRODUCTION}{BRIEF}"),
        ("user", "what would be a better way to take it?"),
    ]


@pytest.mark.parametrize(
    ("summary", "why"),
    [
        (None, NotPossible.NO_SUMMARY),
        ("", NotPossible.NO_SUMMARY),
        ("Die Schwester nimmt ein Medikament.", NotPossible.NO_SUMMARY),
        ("the user asks " * MAX_SUMMARY_CHARS, NotPossible.NO_SUMMARY),
        ("Rose Miller takes methotrexate in Ulm.", NotPossible.NO_SUMMARY),
        ("The user asks for Rose, of Ulm, and Peter, of Bonn, what to do.", None),
        (
            "It was said: that is a usual amount ask the doctor again.",
            NotPossible.REPEATS,
        ),
    ],
)
def test_a_summary_that_reveals_too_much_is_rejected(
    summary: str | None, why: NotPossible | None
) -> None:
    query = chat(SECRET, ADVICE, MORE)
    made = narrowed(
        query, (KEPT, KEPT, ASKED), Rung.SUMMARY, history=SUMMARISED, summary=summary
    )
    assert made is (why or NotPossible.SUMMARY_TELLS)


def test_no_summary_of_turns_that_must_not_be_summarised() -> None:
    query = chat(SECRET, ADVICE, MORE)
    made = narrowed(
        query, (KEPT, KEPT, ASKED), Rung.SUMMARY, history=NEVER, summary=BRIEF
    )
    assert made is NotPossible.NO_HISTORY


def test_the_local_model_gets_what_may_be_summarised() -> None:
    query = chat(SECRET, ADVICE, FRESH, CODE, MORE, system="Be brief.")
    taint = (LEFT, KEPT, KEPT, LEFT, LEFT, ASKED)
    asked = summary_request(query, taint, SUMMARISED)
    assert asked is not None
    request_text = asked.messages[-1].content
    assert [SECRET in request_text, CODE in request_text, MORE in request_text] == [
        True,
        True,
        False,
    ]
    assert (asked.settings.temperature, asked.settings.max_tokens) == (0, 200)
    partly = summary_request(
        query, taint, {**SUMMARISED, LEFT: History.REDACTED_EXTRACT}
    )
    assert partly is not None
    assert CODE not in partly.messages[-1].content
    assert summary_request(query, taint, NEVER) is None


def test_of_a_long_conversation_the_end_is_summarised() -> None:
    query = chat("a word " * MAX_SUMMARISED_CHARS, "the last thing", MORE)
    asked = summary_request(query, (KEPT, KEPT, ASKED), SUMMARISED)
    assert asked is not None
    assert len(asked.messages[-1].content) == MAX_SUMMARISED_CHARS
    assert asked.messages[-1].content.endswith("the last thing")


def test_the_rungs() -> None:
    large, small = LEAST_PARAMETERS, LEAST_PARAMETERS - 1
    assert rungs(SUMMARISED, parameters=large) == tuple(Rung)
    assert rungs(SUMMARISED, parameters=small) == (Rung.EXTRACT, Rung.CURRENT)
    assert rungs(NEVER, parameters=large) == (Rung.EXTRACT, Rung.CURRENT)
    assert rungs({}, parameters=large) == ()
    assert rungs({LEFT: History.SAFE_SUMMARY}, parameters=large) == ()


# --- what never leaves ---------------------------------------------------------------

WORDS = sorted(vocabulary())
SAID = st.lists(
    st.one_of(
        st.sampled_from(WORDS),
        st.sampled_from(WORDS),
        st.sampled_from(["Rose", "Miller", "köln", "4111", "15", "mtx", "Ulm"]),
        st.from_regex(r"[a-zA-Z]{3,9}", fullmatch=True),
    ),
    min_size=1,
    max_size=25,
).map(" ".join)


@settings(max_examples=300, deadline=None)
@given(st.lists(SAID, min_size=3, max_size=6), st.lists(st.booleans()), SAID)
def test_only_common_words_of_a_kept_turn_are_sent(
    said: list[str], flags: list[bool], summary: str
) -> None:
    query = chat(*said[: len(said) - 1 + len(said) % 2])
    taint = [KEPT if flag else LEFT for flag in flags] + [KEPT] * len(query.messages)
    classes = (*taint[: len(query.messages) - 1], ASKED)
    stayed = " ".join(
        message.content
        for message, each in zip(query.messages, classes, strict=True)
        if each is KEPT
    )
    for how in Rung:
        made = narrowed(query, classes, how, history=SUMMARISED, summary=summary)
        if isinstance(made, NotPossible):
            continue
        left = " ".join(each.content for each in made.messages)
        assert set(re.findall(r"[^\W_]{2,}", left.casefold())).isdisjoint(
            own_words(stayed) - vocabulary()
        )


CANARIES = (
    *("Okonkwo", "Szymańska", "thistlewood", "quarmby"),
    *("+49 171 5550123", "(0)30-555-0199", "four one one two nine"),
    *("okonkwo@example.org", "a.thistlewood (at) example dot org"),
    *("4111 1111 1111 1111", "4111-1111-1111-1111", "DE89 3704 0044 0532 0130 00"),
    *("078-05-1120", "X12345678", "1984-03-09", "09.03.1984"),
    *("10.23.4.77", "Quarmby Lane 17", "CN-55-AB-1", "@quarmby_84"),
)


@pytest.mark.parametrize("how", Rung)
@pytest.mark.parametrize("frame", ["the record says {} today", "{}", "my code: {}."])
def test_no_canary_is_sent(how: Rung, frame: str) -> None:
    def written(value: str) -> str:
        return "the file of the client is about a visit; " + frame.format(value)

    assert len(CANARIES) == 20
    asked = {Rung.CURRENT: FRESH}.get(how, MORE)
    leaves = 0
    said = [written(each) for each in CANARIES]
    # In turns that stayed, in turns that left, in the system's words, in the summary.
    for at in (KEPT, LEFT):
        query = chat(*said, FRESH, CODE, asked, system=said[0])
        taint = (at,) * (len(said) + 1) + (LEFT, LEFT, ASKED)
        for canary in CANARIES:
            made = narrowed(
                query, taint, how, history=SUMMARISED, summary=written(canary) + BRIEF
            )
            if isinstance(made, NotPossible):
                continue
            leaves += 1
            left = " ".join(each.content for each in made.messages).casefold()
            assert not [each for each in CANARIES if each.casefold() in left]
    assert leaves


# --- the battery --------------------------------------------------------------------


def test_the_battery_is_sent_as_the_documents_say() -> None:
    rows = {str(row[0]): row[1:] for row in measure_follow_ups().rows}
    fresh, fresh_sent, back, back_sent = map(int, rows["English"])
    assert (fresh, back) == (112, 132)
    assert fresh_sent >= 48
    assert back_sent <= 27
    assert rows["six other languages"] == (372, 0, 388, 0)
