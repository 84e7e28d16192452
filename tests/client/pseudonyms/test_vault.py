import copy
import pickle  # shown to be impossible

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curtilage.client.chat.query import Message, Query
from curtilage.client.pseudonyms.vault import (
    KINDS,
    MAX_NUMBER,
    TOKEN,
    TOO_MANY,
    ConversationKeys,
    Vault,
    VaultError,
    kind_of,
    normalised,
)
from curtilage.client.pseudonyms.wording import worded
from curtilage.policy.decision.classes import CLASSES

PERSON = "identifier.direct.person"
DATE = "identifier.quasi.dob"
KEY = bytes(range(32))


def vault(source: str = "") -> Vault:
    return Vault(KEY, source=source)


@pytest.mark.parametrize(
    "written", ["Dr. Smith", "smith", "SMITH", "Smith's", "Mr Smith", "Smith,"]
)
def test_a_name_in_any_spelling_has_one_token(written: str) -> None:
    one = vault()
    assert one.stand_in(PERSON, "Smith") == one.stand_in(PERSON, written)


@pytest.mark.parametrize("said", ["PERSON_1", "person_1", "Person\\_1", "xPERSON_1"])
def test_a_number_in_the_source_is_not_used(said: str) -> None:
    one = vault(f"The field {said} and PERSON_3.")
    given = [one.stand_in(PERSON, name) for name in ("Smith", "Jones", "Brown")]
    numbers = [each.strip("\u27e6\u27e7") for each in given]
    first = "PERSON_1" if said.startswith("x") else "PERSON_2"
    assert numbers[0] == first
    assert "PERSON_3" not in numbers
    assert len(set(numbers)) == len(numbers)


def test_a_source_with_all_numbers_leaves_none() -> None:
    said = " ".join(f"PERSON_{number}" for number in range(1, MAX_NUMBER + 1))
    with pytest.raises(VaultError):
        vault(said).stand_in(PERSON, "Smith")


def test_two_names_have_two_tokens() -> None:
    one = vault()
    names = ["Smith", "John Smith", "Smyth", "Jones", "Ann Lee", "Anne Lee", "Lee"]
    tokens = [one.stand_in(PERSON, name) for name in names]
    assert len(set(tokens)) == len(names)
    assert tokens[0] == "⟦PERSON_1⟧"


def test_a_number_is_one_value_however_it_is_grouped() -> None:
    one = vault()
    card = "financial.pan"
    assert one.stand_in(card, "4111 1111") == one.stand_in(card, "4111-1111")


@given(st.lists(st.text(min_size=1, max_size=12), max_size=30))
def test_one_value_one_token_one_token_one_value(written: list[str]) -> None:
    one = vault()
    seen: dict[str, str] = {}
    for each in written:
        plain = normalised("PERSON", each)
        if not plain:
            with pytest.raises(VaultError):
                one.stand_in(PERSON, each)
            continue
        token = one.stand_in(PERSON, each)
        assert TOKEN.fullmatch(token)
        assert seen.setdefault(plain, token) == token
    whole = {token for plain, token in seen.items() if " " in plain}
    assert len(whole) == sum(" " in plain for plain in seen)
    alone = [token for plain, token in seen.items() if " " not in plain]
    assert len(set(alone) - whole) == sum(token not in whole for token in alone)


def test_a_single_name_belongs_to_the_person_named_before() -> None:
    one = vault()
    sequence = ["Ann", "Ann Lee", "Ann", "Bea Roe", "Bea", "Dr. Roe", "Bea Low", "Bea"]
    tokens = [one.stand_in(PERSON, name) for name in sequence]
    first, lee, again, roe, bea, doctor, low, which = tokens
    assert first == again != lee
    assert roe == bea == doctor
    assert len({roe, low, which}) == 3
    assert one.values[roe] == "Bea Roe"
    assert one.stand_in(PERSON, "roe", alone=False) not in {roe, low, which}


def test_a_token_holds_a_word_of_a_fixed_list_and_a_counter_only() -> None:
    """Nothing of the source can hide in it, no number and no name."""
    one = vault()
    for value in ("5551234567", "Smith", "⟦PERSON_1⟧"):
        token = one.stand_in(PERSON, value)
        kind, number = token.strip("⟦⟧").split("_")
        assert kind in KINDS
        assert number == str(len(one.values))


@pytest.mark.parametrize("language", ["de", "fr", "es", "it", "nl", "pt"])
def test_tokens_of_a_language_are_distinct_and_fit_the_grammar(language: str) -> None:
    words = [worded(kind, language) for kind in sorted(KINDS)]
    assert len(set(words)) == len(words)
    assert all(TOKEN.fullmatch(f"⟦{word}_1⟧") for word in words)


def test_a_token_is_worded_in_the_language_of_the_text() -> None:
    german = Vault(KEY, source="", language="de")
    assert german.stand_in("identifier.quasi.city", "Köln") == "⟦ORT_1⟧"
    assert german.stand_in(DATE, "bald") == "⟦DATUM_1⟧"


@pytest.mark.parametrize(
    "written",
    ["Frau Müller", "Herrn Müller", "mevrouw Müller", "Sra. Müller", "dott.ssa Müller",
     "Mlle Müller", "sig.ra Müller", "dhr. Müller", "Dra. Müller"],
)  # fmt: skip
def test_titles_of_all_covered_languages_are_not_part_of_a_name(written: str) -> None:
    one = vault()
    assert one.stand_in(PERSON, "Müller") == one.stand_in(PERSON, written)


def test_more_values_than_tokens_are_refused() -> None:
    one = vault()
    for number in range(MAX_NUMBER):
        one.stand_in(PERSON, f"n{number}")
    with pytest.raises(VaultError, match=TOO_MANY):
        one.stand_in(PERSON, "one more")


@pytest.mark.parametrize(
    "data_class",
    [
        "health.condition",
        "special.religion",
        "secret.password",
        "topic.health",
        "uncertain.name",
        "marker.first_person",
        "org.confidential",
        "no.such.class",
    ],
)
def test_classes_with_meaning_have_no_stand_in(data_class: str) -> None:
    with pytest.raises(VaultError, match="no stand-in"):
        vault().stand_in(data_class, "Smith")


def test_every_kind_fits_the_grammar() -> None:
    assert all(TOKEN.fullmatch(f"⟦{kind}_1⟧") for kind in KINDS)
    named = {kind_of(name) for name in (*CLASSES, "org.dictionary.x", "org.edm.y")}
    assert named - {None} == KINDS


def test_dates_move_by_one_offset_of_whole_weeks() -> None:
    one = vault()
    there = [one.stand_in(DATE, day) for day in ("1980-05-12", "1980-05-19")]
    assert one.values[there[0]] == "1980-05-12"
    days = [int(day[-2:]) for day in there]
    assert (days[1] - days[0]) % 7 == 0 or there[0][:7] != there[1][:7]
    assert there[0] != "1980-05-12"
    again = vault()
    assert again.stand_in(DATE, "1980-05-12") == there[0], "the same with every turn"
    other = Vault(bytes(32), source="")
    assert other.stand_in(DATE, "1980-05-12") != there[0]


def test_a_date_that_cannot_be_read_is_a_token() -> None:
    assert vault().stand_in(DATE, "3/4/1980") == "⟦DATE_1⟧"
    assert vault().stand_in(DATE, "last spring") == "⟦DATE_1⟧"


def test_no_date_moves_to_what_the_source_says_already() -> None:
    moved = vault().stand_in(DATE, "1980-05-12")
    assert vault(source=f"since {moved}").stand_in(DATE, "1980-05-12") == "⟦DATE_1⟧"


@given(st.binary(min_size=32, max_size=32))
def test_no_date_keeps_its_value(key: bytes) -> None:
    assert Vault(key, source="").stand_in(DATE, "1980-05-12") != "1980-05-12"


def test_the_better_spelling_is_kept() -> None:
    one = vault()
    token = one.stand_in(PERSON, "smith")
    one.stand_in(PERSON, "Smith")
    one.stand_in(PERSON, "SMITH")
    assert one.values == {token: "Smith"}


def test_a_vault_shows_nothing_and_goes_nowhere() -> None:
    one = vault("a secret source")
    one.stand_in(PERSON, "Smith")
    assert repr(one) == "<Vault: 1>"
    for leave in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="cannot be copied"):
            leave(one)


def test_errors_hold_no_value() -> None:
    with pytest.raises(VaultError) as refused:
        vault().stand_in("secret.password", "hunter2")
    assert "hunter2" not in str(refused.value)


def turns(*texts: str) -> Query:
    roles = ("user", "assistant")
    return Query(
        messages=tuple(
            Message(role=roles[index % 2], content=text)
            for index, text in enumerate(texts)
        )
    )


def test_a_conversation_has_one_key_with_every_turn() -> None:
    keys = ConversationKeys(random=bytes)
    first = keys.of(turns("Hello"))
    assert len(first) == 32
    assert keys.of(turns("Hello", "Yes?", "More")) == first
    assert keys.of(turns("Good day")) != first
    assert ConversationKeys().of(turns("Hello")) != first
    assert keys.of(Query(messages=())) != first
    system = Message(role="system", content="Be brief.")
    whole = Query(messages=(system, *turns("Hello").messages))
    assert keys.of(whole) not in {first, keys.of(Query(messages=(system,)))}
    assert repr(keys) == "<ConversationKeys>"
    other = keys.of(turns("Hello"), b"another application")
    assert other not in {first, keys.of(turns("Hello"), b"a third one")}
    # Without a turn, it is no constant either.
    assert keys.of(Query(messages=()), b"another application") != b"another application"
