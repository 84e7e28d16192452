from dataclasses import asdict

import pytest

from curtilage.client.conversation.pinned import (
    LAST,
    MAX_CONTENTS,
    MAX_TURNS,
    MAX_WORDS,
    Found,
    PinnedConversations,
)
from curtilage.client.query import Message, Query
from curtilage.policy.decision.tiers import RoutingClass
from support.follow_ups import CANNOT_BE_TOLD, GOES_ON, MISSED, STANDS_ALONE

CANARY = "canary-1d7e"


def conversation(*texts: str) -> Query:
    return Query(messages=tuple(Message(role="user", content=each) for each in texts))


def test_what_goes_on_from_a_pinned_conversation_is_held() -> None:
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


def test_the_same_question_again_is_looked_at_afresh() -> None:
    pins = PinnedConversations()
    pins.add(conversation("a"))
    assert not pins.holds(conversation("a"))


def test_only_so_many_are_remembered() -> None:
    pins = PinnedConversations(limit=2)
    for text in ("a", "b", "c"):
        pins.add(conversation(text))
    held = [pins.holds(conversation(text, "more")) for text in ("a", "b", "c")]
    assert held == [False, True, True]


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


def after(*said: str, system: str | None = None) -> PinnedConversations:
    pins = PinnedConversations(by_content=True)
    pins.add(chat(*said, system=system), NOTHING)
    return pins


@pytest.mark.parametrize(
    ("stayed", "question"),
    [(stayed, each) for stayed, follow in GOES_ON.items() for each in follow],
)
def test_a_question_that_goes_on_is_held(stayed: str, question: str) -> None:
    assert after(stayed).holds(chat(question), NOTHING)
    assert after(stayed).holds(chat(stayed, ANSWER, question), NOTHING)


@pytest.mark.parametrize("question", STANDS_ALONE)
def test_a_question_of_another_subject_is_not_held(question: str) -> None:
    for stayed in GOES_ON:
        pins = after(stayed)
        assert not pins.holds(chat(question), NOTHING), stayed
        # With what stayed before it, it would take that along.
        assert pins.holds(chat(stayed, ANSWER, question), NOTHING)


@pytest.mark.parametrize("question", CANNOT_BE_TOLD)
def test_what_cannot_be_told_is_held(question: str) -> None:
    assert all(after(stayed).holds(chat(question), NOTHING) for stayed in GOES_ON)


@pytest.mark.parametrize(("stayed", "question"), MISSED)
def test_what_words_alone_do_not_tell_is_known(stayed: str, question: str) -> None:
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
def test_what_carries_a_turn_that_stayed_is_held(carries: tuple[str, ...]) -> None:
    assert after(SAID).holds(chat(*carries), NOTHING)


@pytest.mark.parametrize(
    "summary", ["The user's mother Anna has cancer.", "Topics so far: chemotherapy."]
)
def test_a_summary_that_repeats_is_held(summary: str) -> None:
    assert after(SAID).holds(chat(OTHER, system=summary), NOTHING)
    assert after(SAID).holds(chat("Hi.", summary, OTHER), NOTHING)


def test_the_answer_that_was_given_here_stays_too() -> None:
    pins = after(SAID)
    pins.answered(chat(SAID), ANSWER, here=True)
    assert pins.holds(chat("Hi.", ANSWER, OTHER), NOTHING)
    assert pins.holds(chat("List names for Ondansetron."), NOTHING)
    assert not pins.holds(chat(OTHER), NOTHING)


def test_what_left_may_leave_again() -> None:
    pins = PinnedConversations(by_content=True)
    first = chat("Explain quicksort with pseudocode.")
    pins.leaves(first)
    pins.answered(first, "Choose it, then sort both parts.", here=False)
    begun = (first.messages[0].content, "Choose it, then sort both parts.")
    pins.add(chat(*begun, SAID), NOTHING)
    assert not pins.holds(chat(*begun, OTHER), NOTHING)
    assert pins.holds(chat(*begun, "How does it go on in Rome?"), NOTHING)
    assert pins.holds(chat(*begun, SAID, ANSWER, OTHER), NOTHING)


def test_another_conversation_that_left_is_another() -> None:
    pins = after(SAID)
    pins.leaves(chat("Who was Ada Lovelace?"))
    assert not pins.holds(
        chat("Who was Ada Lovelace?", "x", "And her mother?"), NOTHING
    )
    assert pins.holds(chat("Who was Alan Turing?", "x", "And her mother?"), NOTHING)


def test_a_constant_prompt_is_no_repetition() -> None:
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
def test_what_is_found_is_a_repetition(before: str, now: str, *, held: bool) -> None:
    pins = PinnedConversations(by_content=True)
    pins.add(chat(SAID), Found(frozenset({(before, 0)})))
    assert pins.holds(chat(OTHER), Found(frozenset({(now, 0)}))) is held


@pytest.mark.parametrize(
    "name", ["attachment", "timeout", "waited", "error", "opaque_blob"]
)
def test_of_what_was_not_read_nothing_can_be_told(name: str) -> None:
    pins = PinnedConversations(by_content=True)
    pins.leaves(chat("Tell me about Rome."))
    seen = Found(frozenset({(f"uncertain.{name}", 2)}))
    pins.add(chat("Tell me about Rome.", "x", "y z"), seen)
    assert pins.holds(chat("Tell me about Rome.", "x", OTHER), NOTHING)


def test_asking_again_is_no_continuation() -> None:
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
    pins = PinnedConversations(by_content=True)
    for number in range(MAX_CONTENTS + 3):
        pins.add(chat(f"secret number {number}x"), NOTHING)
        pins.leaves(chat(f"open number {number}x"))
    assert len(vars(pins)["_contents"]) == MAX_CONTENTS
    many = " ".join(f"w{number}x" for number in range(MAX_WORDS + 1))
    pins.add(chat(many), NOTHING)
    # Not all its words are there, so nothing is unlike them.
    assert pins.holds(chat(OTHER), NOTHING)
    assert not vars(pins)["_contents"][-1].words


def test_nothing_of_contents_is_kept_as_text() -> None:
    pins = PinnedConversations(by_content=True)
    pins.add(chat(f"{CANARY} zebra\ud800"), Found(frozenset({("health.lab", 0)})))
    pins.answered(chat(f"{CANARY} zebra\ud800"), CANARY, here=True)
    pins.leaves(chat(CANARY))
    (content,) = vars(pins)["_contents"]
    shown = repr(pins) + repr(vars(pins)) + repr(asdict(content))
    assert all(word not in shown for word in (CANARY, "zebra", "health"))
    # Under a key of this object: another one makes other digests of the same words.
    (other,) = vars(after(f"{CANARY} zebra"))["_contents"]
    assert content.words.isdisjoint(other.words)


def test_what_goes_on_does_so_when_it_is_asked_again() -> None:
    pins = after(SAID)
    for question in ("And the dosage?", "List hotels near Anna."):
        for _ in range(3):
            assert pins.holds(chat(question), NOTHING)
            pins.add(chat(question), NOTHING, own=False)


def test_a_turn_that_stayed_is_carried_though_it_left_another_time() -> None:
    pins = after(SAID)
    pins.leaves(chat(SAID))
    assert pins.holds(chat("Compare Vim and Emacs.", SAID, OTHER), NOTHING)


# --- by message -------------------------------------------------------------------

KEPT, LEFT, ASKED = (
    RoutingClass.RESTRICTED,
    RoutingClass.INTERNAL,
    RoutingClass.PUBLIC,
)


def test_a_turn_is_known_to_have_left_or_had_to_stay() -> None:
    pins = PinnedConversations(by_message=True)
    pins.leaves(chat(OTHER), LEFT)
    pins.answered(chat(OTHER), "A haiku.", here=False)
    pins.answered(chat(SAID), ANSWER, here=True)
    query = chat(SAID, ANSWER, OTHER, "A haiku.", "And another?")
    assert pins.taint(query, NOTHING) == (KEPT, KEPT, LEFT, LEFT, ASKED)


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


def test_a_turn_that_left_twice_has_the_more_private_class() -> None:
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


def test_where_nobody_asks_no_turn_is_remembered() -> None:
    pins = PinnedConversations()
    pins.leaves(chat(OTHER), LEFT)
    assert pins.taint(chat(OTHER, ANSWER, SAID), NOTHING)[:2] == (KEPT, KEPT)
