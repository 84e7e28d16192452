import hashlib
import re
from importlib import resources

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curtilage.client.conversation.redaction import (
    MASK,
    is_english,
    own_words,
    redacted,
    vocabulary,
)

DATA = resources.files("curtilage.client.conversation").joinpath("data")
WORDS = sorted(vocabulary())


def test_the_list_is_the_one_of_its_card() -> None:
    made = hashlib.sha256(DATA.joinpath("words.txt").read_bytes()).hexdigest()
    assert made in DATA.joinpath("WORDS.md").read_text("utf-8")


def test_the_list_is_of_small_words_in_order() -> None:
    listed = DATA.joinpath("words.txt").read_text("ascii").split("\n")[:-1]
    assert listed == sorted(set(listed))
    assert all(re.fullmatch(r"[a-z]+('[a-z]+)?", each) for each in listed)


@pytest.mark.parametrize(
    "name", ["john", "maria", "anna", "smith", "london", "berlin", "google", "miller"]
)
def test_the_list_holds_no_name(name: str) -> None:
    assert name not in vocabulary()


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("Write a letter about the meeting.", "Write a letter about the meeting."),
        ("write a letter to maria klein", "write a letter to [...]"),
        ("Write a letter to Maria Klein.", "Write a letter to [...]."),
        ("My boss Rose was late.", "My boss [...] was late."),
        ("Rose was late, and we know why.", "[...] was late, and we know why."),
        ("Baker Street was closed for a week.", "[...] was closed for a week."),
        ("I saw Dr. Potter at the door.", "I saw [...]. [...] at the door."),
        ("The meeting IS LATE again today.", "The meeting [...] again today."),
        ("my room is 5 on the list", "my room is 5 on the list"),
        ("my room is 512 on the list", "my room is [...] on the list"),
        ("my code is 5 1 2 on the list", "my code is [...] on the list"),
        ("my code is four one two on the list", "my code is [...] on the list"),
        ("my code is 4, one-two on the list", "my code is [...] on the list"),
        ("write to the owner at a@b.de please", "write to the owner at [...] please"),
        ("the house of the café is open", "the house of the [...] is open"),
        ("the house of the owner\u200b is open", "the house of the [...] is open"),
        ("the house/garden is well-known", "the house/garden is well-known"),
        ("The people\u2019s choice \u2013 again", "The people's choice - again"),
        ("first line here\n\n  second line here", "first line here\nsecond line here"),
        ("see example.com/help for the rules", "see [...] for the rules"),
        ("the user_name is not known here", "the [...] is not known here"),
    ],
)
def test_the_redaction_of_a_text(text: str, left: str) -> None:
    assert redacted(text) == left


@pytest.mark.parametrize(
    "text",
    [
        "",
        " \n",
        "12 34 56",
        "Meine Mutter hat seit gestern starke Schmerzen in der Brust.",
        "Mi madre tiene un dolor muy fuerte en el pecho desde ayer.",
        "Mijn moeder heeft sinds gisteren erge pijn op de borst.",
        "Minha mãe está com uma dor muito forte no peito.",
        "Моя мама заболела вчера вечером.",
        "SGVsbG8gd29ybGQhIFRoaXMgaXMgYmFzZTY0",
        "Maria Klein, Berlin, Torstrasse",
    ],
)
def test_nothing_is_left_of_another_language(text: str) -> None:
    assert redacted(text) is None
    assert not is_english(text)


def test_adjacent_masks_are_merged() -> None:
    # Their number would reveal the length of a name.
    assert redacted("please call Anna Maria Klein today") == "please call [...] today"


def test_words_that_are_not_common() -> None:
    said = "My sister Rose takes methotrexate, 15 mg, in Köln; don't tell her."
    assert own_words(said) == {"rose", "methotrexate", "15", "köln"}


def test_a_flower_is_no_person() -> None:
    assert own_words("I bought a red rose for 3 days.") == frozenset()


ANY_TEXT = st.one_of(
    st.text(max_size=200),
    st.lists(
        st.one_of(
            st.sampled_from(WORDS),
            st.text(min_size=1, max_size=12),
            st.from_regex(r"[A-Z][a-z]{2,9}", fullmatch=True),
            st.from_regex(r"[0-9][0-9 .,/-]{0,9}", fullmatch=True),
        ),
        max_size=40,
    ).map(" ".join),
)


@settings(max_examples=300)
@given(ANY_TEXT)
def test_only_common_words_are_left(text: str) -> None:
    left = redacted(text)
    if left is None:
        return
    assert left.isascii()
    for word in re.findall(r"[A-Za-z]+(?:'[A-Za-z]+)?", left):
        base = word.lower()
        assert {base, base.removesuffix("'s")} & vocabulary() or own_words(base) == (
            frozenset()
        )
        assert word[1:] == word[1:].lower()
    assert not re.search(r"\d\S*\d", left.replace(MASK, ""))


@settings(max_examples=100)
@given(ANY_TEXT)
def test_redaction_is_idempotent(text: str) -> None:
    left = redacted(text)
    if left is not None:
        again = redacted(left)
        assert again is None or not own_words(again.replace(MASK, "")) - own_words(text)
