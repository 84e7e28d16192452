from collections.abc import Callable
from contextvars import copy_context
from dataclasses import asdict, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar

import pytest

from curtilage.client.chat.document import Document
from curtilage.client.chat.query import Message, Query, ToolCall
from curtilage.client.conversation.contents import LAST, MAX_CONTENTS, KeptContents
from curtilage.client.conversation.kept import MAX_CALLERS, KeptConversations
from curtilage.client.conversation.pinned import (
    LOST_S,
    MAX_TURNS,
    MAX_WORDS,
    Found,
    PinnedConversations,
)
from curtilage.client.system.fair_queue import (
    APPLICATION,
    ASKER,
    CALLER,
    Asker,
    caller_of,
)
from curtilage.policy.decision.findings import Where
from curtilage.policy.decision.tiers import RoutingClass
from curtilage.policy.document.load import load_profile
from support.client_parts import finding
from support.examples import examples
from support.follow_ups import GOES_ON, MISSED, SELF_CONTAINED, UNDECIDABLE
from support.inspections import inspection_of

CANARY = "canary-1d7e"
T = TypeVar("T")


def conversation(*texts: str) -> Query:
    return Query(messages=tuple(Message(role="user", content=each) for each in texts))


def test_a_continuation_of_a_pinned_conversation_is_held() -> None:
    pins = PinnedConversations()
    pins.add(conversation("a", "b"))
    assert pins.holds(conversation("a", "b", "c"))
    assert pins.holds(conversation("a", "b", "c", "d"))


def test_another_conversation_is_not_held() -> None:
    pins = PinnedConversations()
    pins.add(conversation("a", "b"))
    assert not pins.holds(conversation("a"))
    assert not pins.holds(conversation("a", "c", "d"))
    assert not pins.holds(conversation("ab", "c"))
    assert not pins.holds(Query(messages=()))


def test_a_call_belongs_to_its_turn() -> None:
    def asks(who: str) -> Query:
        arguments = Document.of({"who": who})
        call = ToolCall(number=1, name="find", arguments=arguments)
        turn = Message(role="assistant", content="", calls=(call,))
        found = Message(role="tool", content="nothing", result_of=1)
        return Query(messages=(*conversation("a").messages, turn, found))

    pins = PinnedConversations()
    pins.add(Query(messages=asks("Ann").messages[:2]))
    assert pins.holds(asks("Ann"))
    assert not pins.holds(asks("Bob"))


def test_the_words_of_a_call_are_those_of_a_kept_conversation() -> None:
    call = ToolCall(
        number=1, name="find", arguments=Document.of({"illness": "leukaemia"})
    )
    turn = Message(role="assistant", content="", calls=(call,))

    def held(question: Query) -> bool:
        pins = PinnedConversations(contents=KeptContents)
        asked(b"one", lambda: pins.add(Query(messages=(turn,)), Found(frozenset())))
        none = Found(frozenset())
        return asked(b"one", lambda: pins.holds(question, none))

    described = Document.of({"description": "treats leukaemia"}, schema=True)
    plain = chat("What is the capital of France?")
    assert held(chat("Write a haiku about leukaemia and rain."))
    assert not held(plain)
    assert held(replace(plain, tools=(described,)))
    assert held(replace(plain, response_format=described))


@pytest.mark.parametrize("name", ["tools", "response_format"])
def test_the_words_of_a_definition_count_if_something_is_found_in_it(name: str) -> None:
    document = Document.of({"description": "treats leukaemia"}, schema=True)
    kept = (
        replace(chat(SAID), tools=(document,))
        if name == "tools"
        else replace(chat(SAID), response_format=document)
    )

    def holds(path: str, question: Query) -> bool:
        pins = PinnedConversations(contents=KeptContents)
        where = Where(message=0, role="system", json_path=path)
        seen = replace(finding("health.diagnosis"), where=where)
        found = Found.of(
            load_profile("default").rulebook, inspection_of(findings=[seen])
        )
        pins.add(kept, found)
        return pins.holds(question, NOTHING)

    inside = "tools[0].function" if name == "tools" else name
    asks = chat("Write a haiku about leukaemia and rain.")
    assert holds(inside, asks)
    assert not holds("content", asks)
    # The next first question of an application with the same definitions.
    assert not holds("content", replace(kept, messages=chat(OTHER).messages))


@pytest.mark.parametrize("role", ["tool", "user"])
def test_a_kept_result_of_a_call_is_recognised(role: str) -> None:
    call = ToolCall(number=1, name="find", arguments=Document.of({"who": "Ann"}))
    turns = (
        Message(role="user", content="Look it up."),
        Message(role="assistant", content="", calls=(call,)),
        Message(role="tool", content='{"illness": "leukaemia"}', result_of=1),
    )
    pins = PinnedConversations(contents=KeptContents)
    pins.add(Query(messages=turns), NOTHING)
    assert pins.holds(chat("Write a haiku about leukaemia and rain."), NOTHING)
    assert not pins.holds(chat(OTHER), NOTHING)
    again = (
        replace(turns[2], role=role, result_of=None),
        *chat(OTHER).messages,
    )
    assert pins.holds(Query(messages=again), NOTHING)


def test_a_repeated_question_is_inspected_again() -> None:
    pins = PinnedConversations()
    pins.add(conversation("a"))
    assert not pins.holds(conversation("a"))


def asked(name: bytes | None, work: Callable[[], T]) -> T:
    """Do something as a caller of the endpoint does it."""

    def does() -> T:
        CALLER.set(name)
        ASKER.set(Asker())
        return work()

    return copy_context().run(does)


def test_forgotten_conversations_count_as_kept() -> None:
    """More conversations than there is room for, then each goes on."""
    pins = PinnedConversations(limit=2)
    pins.clears(conversation("open"))
    for text in ("a", "b", "c"):
        pins.add(conversation(text))
    assert repr(pins) == "<PinnedConversations: 2>"
    held = [pins.holds(conversation(text, "more")) for text in ("a", "b", "c")]
    assert held == [True, True, True]
    # What was asked and might leave goes on; so does what has no earlier turn.
    assert not pins.holds(conversation("open", "more"))
    assert not pins.holds(chat("open", "Yes.", "more"))
    assert not pins.holds(conversation("new"))
    assert not pins.holds(chat("new", system="Be kind."))
    assert pins.holds(conversation("new", "more"))
    assert pins.holds(chat("new", "Yes.", "more"))


@pytest.mark.parametrize(
    "goes_on",
    [
        ("open", "Yes.", "kept", "I see.", "more"),
        ("open", "Yes.", "kept", "more"),
        ("open", "Yes.", "other", "more", "and more"),
        ("", "open", "more"),
    ],
)
def test_only_continuations_of_the_last_request_are_known(
    goes_on: tuple[str, ...],
) -> None:
    """That a conversation began by what might leave does not say how it went on."""
    pins = PinnedConversations(limit=1)
    pins.clears(chat("open"))
    pins.add(chat("open", "Yes.", "kept"))
    pins.add(conversation("another"))
    assert pins.holds(chat(*goes_on))


def test_kept_queries_are_not_known_as_free() -> None:
    pins = PinnedConversations(limit=1)
    pins.clears(conversation("a"))
    pins.add(conversation("a"))
    pins.add(conversation("b"))
    assert pins.holds(conversation("a", "more"))
    again = PinnedConversations(limit=1)
    again.add(conversation("a"))
    again.clears(conversation("a"))
    again.add(conversation("b"))
    assert again.holds(conversation("a", "more"))


def test_one_caller_takes_no_room_of_another() -> None:
    pins = PinnedConversations(limit=3)
    asked(b"ward", lambda: pins.add(conversation("mine")))
    for caller in (b"other", None):
        for number in range(9):
            text = f"{caller!r} {number}"
            asked(caller, partial(pins.add, conversation(text)))
    assert asked(b"ward", lambda: pins.holds(conversation("mine", "more")))
    assert not asked(b"ward", lambda: pins.holds(conversation("new", "more")))
    # A caller that filled its own room is held; so is one that may be the same caller.
    for caller in (b"other", None, b"unheard of"):
        assert asked(caller, lambda: pins.holds(conversation("new", "more")))


def test_a_caller_with_another_key_is_compared_with_kept_content() -> None:
    pins = PinnedConversations()
    asked(b"yesterday", lambda: pins.add(conversation("mine")))
    for caller in (b"today", None, b""):
        assert asked(caller, lambda: pins.holds(conversation("mine", "more")))


def test_another_caller_that_asked_the_same_does_not_make_it_forgotten() -> None:
    pins = PinnedConversations(limit=2)
    for caller in (b"ward", b"other"):
        asked(caller, lambda: pins.add(conversation("same")))
    for number in range(3):
        text = f"more {number}"
        asked(b"other", partial(pins.add, conversation(text)))
    assert asked(b"ward", lambda: pins.holds(conversation("same", "more")))


def test_nothing_of_a_text_is_kept() -> None:
    pins = PinnedConversations()
    pins.add(conversation(CANARY, "\ud800"))
    assert CANARY not in repr(pins) + repr(vars(pins))


def test_an_empty_query_pins_nothing() -> None:
    pins = PinnedConversations()
    pins.add(Query(messages=()))
    assert repr(pins) == "<PinnedConversations: 0>"


# --- by content -------------------------------------------------------------------

NOTHING = Found(frozenset())
SAID = "My mother Anna has breast cancer and starts chemotherapy on Monday."
ANSWER = "Ask the oncologist about antiemetics such as ondansetron."
OTHER = "Write a haiku about autumn rain."


def chat(*said: str, system: str | None = None) -> Query:
    """Texts of the user and the assistant, in turn."""
    prompt = () if system is None else (Message(role="system", content=system),)
    turns = (
        Message(role=("user", "assistant")[at % 2], content=text)
        for at, text in enumerate(said)
    )
    return Query(messages=(*prompt, *turns))


def contents(pins: PinnedConversations) -> list[Any]:
    return vars(pins)["_memories"][b""].contents  # type: ignore[no-any-return]


def after(*said: str, system: str | None = None) -> PinnedConversations:
    pins = PinnedConversations(contents=KeptContents)
    pins.add(chat(*said, system=system), NOTHING)
    return pins


@cache
def asked_only(said: str) -> PinnedConversations:
    """After one text; shared by all examples, for asking changes nothing."""
    return after(said)


@examples(
    ("stayed", "question"),
    [(stayed, each) for stayed, follow in GOES_ON.items() for each in follow],
)
def test_a_continuing_question_is_held(stayed: str, question: str) -> None:
    pins = asked_only(stayed)
    assert pins.holds(chat(question), NOTHING)
    assert pins.holds(chat(stayed, ANSWER, question), NOTHING)


@examples("question", SELF_CONTAINED)
def test_a_question_of_another_subject_is_not_held(question: str) -> None:
    for stayed in GOES_ON:
        pins = asked_only(stayed)
        assert not pins.holds(chat(question), NOTHING), stayed
        # With what stayed before it, it would take that along.
        assert pins.holds(chat(stayed, ANSWER, question), NOTHING)


@examples("question", UNDECIDABLE)
def test_an_uncertain_question_is_held(question: str) -> None:
    assert all(asked_only(stayed).holds(chat(question), NOTHING) for stayed in GOES_ON)


@pytest.mark.parametrize(("stayed", "question"), MISSED)
def test_limits_of_comparing_words_are_known(stayed: str, question: str) -> None:
    """It leaves if nothing is found in it; to mend one moves it to another list."""
    assert not after(stayed).holds(chat(question), NOTHING)


def test_without_the_policys_word_contents_do_not_matter() -> None:
    pins = PinnedConversations()
    pins.add(chat(SAID), NOTHING)
    assert not pins.holds(chat("And the dosage?"), NOTHING)


@pytest.mark.parametrize(
    "carries",
    [
        (SAID, ANSWER, OTHER),
        ("Hello.", "How can I help?", SAID, ANSWER, OTHER),
        (f"  {SAID.upper()}\n", ANSWER, OTHER),
        (OTHER, SAID, OTHER),
    ],
    ids=["as it was", "later", "trimmed", "as another's"],
)
def test_a_query_with_a_kept_turn_is_held(carries: tuple[str, ...]) -> None:
    assert after(SAID).holds(chat(*carries), NOTHING)


@pytest.mark.parametrize(
    "summary", ["The user's mother Anna has cancer.", "Topics so far: chemotherapy."]
)
def test_a_summary_that_repeats_is_held(summary: str) -> None:
    assert after(SAID).holds(chat(OTHER, system=summary), NOTHING)
    assert after(SAID).holds(chat("Hi.", summary, OTHER), NOTHING)


def test_the_local_answer_is_kept_too() -> None:
    pins = after(SAID)
    pins.answered(chat(SAID), ANSWER, here=True)
    assert pins.holds(chat("Hi.", ANSWER, OTHER), NOTHING)
    assert pins.holds(chat("List names for Ondansetron."), NOTHING)
    assert not pins.holds(chat(OTHER), NOTHING)


def test_sent_turns_may_be_sent_again() -> None:
    pins = PinnedConversations(contents=KeptContents)
    first = chat("Explain quicksort with pseudocode.")
    pins.leaves(first)
    pins.answered(first, "Choose it, then sort both parts.", here=False)
    begun = (first.messages[0].content, "Choose it, then sort both parts.")
    pins.add(chat(*begun, SAID), NOTHING)
    assert not pins.holds(chat(*begun, OTHER), NOTHING)
    assert pins.holds(chat(*begun, "How does it go on in Rome?"), NOTHING)
    assert pins.holds(chat(*begun, SAID, ANSWER, OTHER), NOTHING)


def test_another_sent_conversation_is_independent() -> None:
    pins = after(SAID)
    pins.leaves(chat("Who was Ada Lovelace?"))
    assert not pins.holds(
        chat("Who was Ada Lovelace?", "x", "And her mother?"), NOTHING
    )
    assert pins.holds(chat("Who was Alan Turing?", "x", "And her mother?"), NOTHING)


def test_a_constant_prompt_is_not_a_repetition() -> None:
    system = "You are a helpful assistant in our hospital. It is important to be kind."
    pins = after(SAID, system=system)
    assert not pins.holds(chat(OTHER, system=system), NOTHING)
    assert pins.holds(chat("And the dosage?", system=system), NOTHING)


@pytest.mark.parametrize(
    ("before", "now", "held"),
    [
        ("topic.health", "topic.health", True),
        ("health.condition", "health.medication", True),
        ("financial.iban", "marker.first_person", True),
        ("identifier.quasi.city", "identifier.quasi.city", True),
        ("identifier.quasi.city", "identifier.quasi.date", False),
    ],
)
def test_a_finding_counts_as_a_repetition(before: str, now: str, *, held: bool) -> None:
    pins = PinnedConversations(contents=KeptContents)
    pins.add(chat(SAID), Found(frozenset({(before, 0)})))
    assert pins.holds(chat(OTHER), Found(frozenset({(now, 0)}))) is held


@pytest.mark.parametrize(
    "name", ["attachment", "timeout", "waited", "error", "opaque_blob"]
)
def test_unread_content_keeps_every_question(name: str) -> None:
    pins = PinnedConversations(contents=KeptContents)
    pins.leaves(chat("Tell me about Rome."))
    seen = Found(frozenset({(f"uncertain.{name}", 2)}))
    pins.add(chat("Tell me about Rome.", "x", "y z"), seen)
    assert pins.holds(chat("Tell me about Rome.", "x", OTHER), NOTHING)


def test_asking_again_is_not_a_continuation() -> None:
    assert not after(SAID).holds(chat(SAID), NOTHING)
    assert not after(SAID, ANSWER, "And?").holds(chat(SAID), NOTHING)


def test_follow_ups_do_not_push_out_what_they_follow() -> None:
    pins = after(SAID)
    for number in range(10):
        question = chat(f"And it, in the year {number}?")
        assert pins.holds(question, NOTHING)
        pins.add(question, NOTHING, own=False)
    assert pins.holds(chat("List hotels near Anna."), NOTHING)


def test_a_bare_question_is_held_against_the_last_few_alone() -> None:
    pins = after("The Lindenhof file is late.")
    question = chat("List hotels near Lindenhof.")
    for number in range(LAST - 1):
        pins.add(chat(f"Osprey {number} is secret."), NOTHING)
    assert pins.holds(question, NOTHING)
    pins.add(chat("One more is secret."), NOTHING)
    assert not pins.holds(question, NOTHING)


def test_contents_are_bounded() -> None:
    pins = PinnedConversations(contents=KeptContents)
    for number in range(MAX_CONTENTS + 3):
        pins.add(chat(f"secret number {number}x"), NOTHING)
        pins.leaves(chat(f"open number {number}x"))
    assert len(contents(pins)) == MAX_CONTENTS
    # None is forgotten: the oldest are known as one, so that what holds a turn stays.
    assert pins.holds(chat("secret number 0x", "I see.", OTHER), NOTHING)
    many = " ".join(f"w{number}x" for number in range(MAX_WORDS + 1))
    pins.add(chat(many), NOTHING)
    # Not all its words are there, so nothing is unlike them.
    assert pins.holds(chat(OTHER), NOTHING)
    assert not contents(pins)[-1].words


def test_nothing_of_contents_is_kept_as_text() -> None:
    pins = PinnedConversations(contents=KeptContents)
    pins.add(chat(f"{CANARY} zebra\ud800"), Found(frozenset({("health.lab", 0)})))
    pins.answered(chat(f"{CANARY} zebra\ud800"), CANARY, here=True)
    pins.leaves(chat(CANARY))
    (content,) = contents(pins)
    shown = repr(pins) + repr(vars(pins)) + repr(asdict(content))
    assert all(word not in shown for word in (CANARY, "zebra", "health"))
    # Under a key of this object: another one makes other digests of the same words.
    (other,) = contents(after(f"{CANARY} zebra"))
    assert content.words.isdisjoint(other.words)


def test_a_repeated_continuation_is_still_one() -> None:
    pins = after(SAID)
    for question in ("And the dosage?", "List hotels near Anna."):
        for _ in range(3):
            assert pins.holds(chat(question), NOTHING)
            pins.add(chat(question), NOTHING, own=False)


def test_a_kept_turn_is_recognised_though_it_was_sent_another_time() -> None:
    pins = after(SAID)
    pins.leaves(chat(SAID))
    assert pins.holds(chat("Compare Vim and Emacs.", SAID, OTHER), NOTHING)


# --- by message -------------------------------------------------------------------

KEPT, LEFT, ASKED = (
    RoutingClass.RESTRICTED,
    RoutingClass.INTERNAL,
    RoutingClass.PUBLIC,
)


def test_a_turn_is_known_as_sent_or_kept() -> None:
    pins = PinnedConversations(by_message=True)
    pins.leaves(chat(OTHER), LEFT)
    pins.answered(chat(OTHER), "A haiku.", here=False, left=True)
    pins.answered(chat(SAID), ANSWER, here=True)
    query = chat(SAID, ANSWER, OTHER, "A haiku.", "And another?")
    assert pins.taint(query, NOTHING) == (KEPT, KEPT, LEFT, LEFT, ASKED)


def test_a_free_query_answered_locally_was_not_sent() -> None:
    pins = PinnedConversations(by_message=True)
    pins.clears(chat(OTHER))
    pins.answered(chat(OTHER), "A haiku.", here=False)
    query = chat(OTHER, "A haiku.", "And another?")
    assert pins.taint(query, NOTHING) == (KEPT, KEPT, ASKED)


def test_one_callers_sent_turns_are_not_anothers() -> None:
    pins = PinnedConversations(by_message=True)
    query = chat(OTHER, ANSWER, SAID)
    asked(b"one", lambda: pins.leaves(chat(OTHER), LEFT))
    assert asked(b"one", lambda: pins.taint(query, NOTHING))[0] is LEFT
    for caller in (b"two", None, b""):
        assert asked(caller, lambda: pins.taint(query, NOTHING))[0] is KEPT


def test_a_turn_in_which_something_is_found_had_to_stay() -> None:
    pins = PinnedConversations(by_message=True)
    pins.leaves(chat(OTHER, ANSWER, OTHER), LEFT)
    query = chat(OTHER, ANSWER, OTHER)
    for name, index, kept in (
        ("identifier.direct.person", 1, (1,)),
        ("identifier.direct.person", 2, (2,)),
        ("identifier.direct.person", -1, (0, 1, 2)),
        ("identifier.quasi.date", 1, ()),
        ("uncertain.error", -1, (0, 1, 2)),
    ):
        found = Found(frozenset({(name, index)}))
        taint = pins.taint(query, found)
        assert tuple(at for at, each in enumerate(taint) if each is KEPT) == kept


def test_a_turn_that_was_sent_twice_has_the_more_private_class() -> None:
    pins = PinnedConversations(by_message=True)
    for each in (ASKED, RoutingClass.CONFIDENTIAL, LEFT):
        pins.leaves(chat(OTHER), each)
    assert pins.taint(chat(OTHER, ANSWER, SAID), NOTHING)[0] is (
        RoutingClass.CONFIDENTIAL
    )


def test_a_turn_that_was_forgotten_had_to_stay() -> None:
    pins = PinnedConversations(by_message=True)
    pins.leaves(chat(OTHER), LEFT)
    for number in range(MAX_TURNS):
        pins.leaves(chat(f"turn {number}"), LEFT)
    assert pins.taint(chat(OTHER, ANSWER, SAID), NOTHING)[0] is KEPT


def test_without_a_query_no_turn_is_remembered() -> None:
    pins = PinnedConversations()
    pins.leaves(chat(OTHER), LEFT)
    assert pins.taint(chat(OTHER, ANSWER, SAID), NOTHING)[:2] == (KEPT, KEPT)


# --- by content, of several callers -----------------------------------------------

WORDS = ("merger", "lacquer", "varnish", "pallets", "conveyor", "warehouse")
UNSAID = ("trombone", "hexagon", "orchard", "lighthouse", "glacier", "bicycle")


def of_words(now_s: Callable[[], float] = lambda: 1e9) -> PinnedConversations:
    """One caller's text with some words stayed."""
    pins = PinnedConversations(contents=KeptContents, now_s=now_s)
    asked(b"one", lambda: pins.add(chat(" ".join(WORDS)), NOTHING))
    return pins


@pytest.mark.parametrize("caller", [b"two", None, b""])
def test_no_caller_learns_which_words_another_said(caller: bytes | None) -> None:
    """Every word is asked for; whether it was said makes no difference."""
    pins = of_words()
    held = {
        word: asked(
            caller,
            partial(pins.holds, chat(f"Compare {word} against Turing."), NOTHING),
        )
        for word in (*WORDS, *UNSAID)
    }
    assert set(held.values()) == {False}
    said = chat(" ".join(WORDS), ANSWER, OTHER)
    # A whole conversation is known to all: that is what stays, for every caller.
    assert asked(caller, lambda: pins.holds(said, NOTHING))


def test_a_caller_is_held_to_its_own_words() -> None:
    pins = of_words()
    for word in WORDS:
        question = chat(f"Compare {word} against Turing.")
        assert asked(b"one", partial(pins.holds, question, NOTHING))


def test_callers_without_a_name_are_all_held_once_one_of_them_was() -> None:
    """They cannot be distinguished, so nothing is compared: all stays, for a while."""
    now = [1e9]
    pins = PinnedConversations(contents=KeptContents, now_s=lambda: now[0])
    asked(None, lambda: pins.add(chat(" ".join(WORDS)), NOTHING))
    for word in (*WORDS, *UNSAID):
        question = chat(f"Compare {word} against Turing.")
        assert asked(None, partial(pins.holds, question, NOTHING))
        # What is held because of another makes it no longer.
        asked(
            None,
            partial(pins.add, question, NOTHING, own=False),
        )
        now[0] += 60
        assert not asked(b"two", partial(pins.holds, question, NOTHING))
    now[0] = 1e9 + LOST_S
    assert not asked(None, lambda: pins.holds(chat(OTHER), NOTHING))


def test_callers_beyond_the_room_count_as_without_a_name() -> None:
    pins = PinnedConversations(contents=KeptContents)
    for number in range(MAX_CALLERS):
        name = f"caller {number}".encode()
        asked(name, lambda: pins.add(chat("Osprey is secret."), NOTHING))
    question = chat("List hotels near Osprey.")
    assert asked(b"caller 0", lambda: pins.holds(question, NOTHING))
    asked(b"one more", lambda: pins.add(chat("Lindenhof is late."), NOTHING))
    assert asked(b"one more", lambda: pins.holds(chat(OTHER), NOTHING))
    assert not asked(b"caller 0", lambda: pins.holds(chat(OTHER), NOTHING))


# --- over a restart ---------------------------------------------------------------


def test_after_a_restart_kept_conversations_are_kept(tmp_path: Path) -> None:
    first = PinnedConversations(kept=KeptConversations(tmp_path))
    first.add(conversation("a"))
    assert first.save()
    first.close()
    pins = PinnedConversations(kept=KeptConversations(tmp_path))
    assert pins.holds(conversation("a", "more"))
    assert not pins.holds(conversation("b", "more"))
    assert repr(pins) == "<PinnedConversations: 1>"


def test_after_a_restart_without_words_all_is_kept_for_a_while(
    tmp_path: Path,
) -> None:
    now = [1e9]

    def started() -> PinnedConversations:
        return PinnedConversations(
            contents=KeptContents,
            kept=KeptConversations(tmp_path),
            now_s=lambda: now[0],
        )

    first = started()
    asked(b"one", lambda: first.add(chat(SAID), NOTHING))
    first.save()
    first.close()
    now[0] += LOST_S - 1
    pins = started()
    # A name that is not known may be the same program with another key.
    for caller in (b"one", b"two", None):
        assert asked(caller, lambda: pins.holds(chat(OTHER), NOTHING))
    now[0] += 1
    for caller in (b"one", b"two", None):
        assert not asked(caller, lambda: pins.holds(chat(OTHER), NOTHING))


def test_content_kept_by_another_running_process_is_kept_for_a_while(
    tmp_path: Path,
) -> None:
    """It is not known which words it was, to the process that did not keep it."""
    now = [1e9]
    one, other = (
        PinnedConversations(
            contents=KeptContents,
            kept=KeptConversations(tmp_path),
            now_s=lambda: now[0],
        )
        for _ in range(2)
    )
    for caller in (b"one", b"two", None):
        asked(caller, lambda: other.clears(chat(OTHER)))
        assert not asked(caller, lambda: other.holds(chat(OTHER), NOTHING))
    for caller in (b"one", None):
        asked(caller, lambda: one.add(chat(SAID), NOTHING))
    assert one.save()
    for caller in (b"one", None):
        assert asked(caller, lambda: other.holds(chat(OTHER), NOTHING))
    # What is harmless is held for that caller alone, and not where the words are known.
    assert not asked(b"two", lambda: other.holds(chat(OTHER), NOTHING))
    assert not asked(b"one", lambda: one.holds(chat(OTHER), NOTHING))
    now[0] += LOST_S
    for caller in (b"one", None):
        assert not asked(caller, lambda: other.holds(chat(OTHER), NOTHING))


def in_application(name: str, work: Callable[[], T]) -> T:
    """Do something as an application of a gateway does it."""

    def does() -> T:
        APPLICATION.set(name)
        CALLER.set(caller_of(name))
        ASKER.set(Asker())
        return work()

    return copy_context().run(does)


def test_no_application_learns_that_another_ones_conversation_was_kept() -> None:
    pins = PinnedConversations()
    in_application("letters", lambda: pins.add(conversation("a")))
    goes_on = conversation("a", "more")
    assert in_application("letters", lambda: pins.holds(goes_on))
    assert not in_application("triage", lambda: pins.holds(goes_on))
    assert not pins.holds(goes_on)
    # What this process kept is no application's either.
    pins.add(conversation("b"))
    assert not in_application("triage", lambda: pins.holds(conversation("b", "more")))
