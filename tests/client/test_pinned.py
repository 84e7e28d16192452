from curtilage.client.pinned import PinnedConversations
from curtilage.client.query import Message, Query

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
