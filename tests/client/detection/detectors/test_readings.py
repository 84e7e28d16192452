import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curtilage.client.detection.detectors.readings import (
    MAX_DECODED_CHARS,
    decode,
    fold,
    hidden_text,
    readings,
)
from curtilage.client.detection.detectors.respelling import compact
from curtilage.policy.decision.findings import Normalization


def text_in(view: Normalization, text: str) -> str:
    return next(each.text for each in readings(text) if each.normalization is view)


def test_plain_text_has_one_reading() -> None:
    assert [each.normalization for each in readings("a plain sentence")] == [
        Normalization.RAW
    ]


@pytest.mark.parametrize(
    ("text", "folded"),
    [
        ("５３６", "536"),  # noqa: RUF001 - fullwidth digits
        ("٥٣٦", "536"),
        ("𝟓𝟑𝟔", "536"),  # noqa: RUF001 - mathematical digits
        ("5\u200b3\u200d6", "536"),
        ("5\u00ad36", "536"),
        ("\u202e536", "536"),
        ("536–22", "536-22"),  # noqa: RUF001 - en dash
        ("536\u00a022", "536 22"),
    ],
    ids=["fullwidth", "arabic", "bold", "zwsp", "shy", "rtl", "dash", "nbsp"],
)
def test_fold_undoes_typography(text: str, folded: str) -> None:
    assert fold(text) == folded


def test_look_alikes_become_latin() -> None:
    assert text_in(Normalization.CONFUSABLE, "b\u043eb@c\u043erp.com") == "bob@corp.com"


@pytest.mark.parametrize(
    "text",
    [
        "&#98;ob",
        "%62ob",
        "\\u0062ob",
        "\\x62ob",
        "b<b>o</b>b",
        "b**o**b",
        "&#37;62ob",
    ],
    ids=["entity", "percent", "escape", "hex escape", "tag", "markdown", "stacked"],
)
def test_decode_undoes_encodings(text: str) -> None:
    assert decode(text)[0] == "bob"


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ('{"user":"app","pin":"8841"}', '{user: app",pin: 8841"}'),
        ("{'pin' : 8841}", "{pin: 8841}"),
        ("'db pin' => 'tulip',", "db pin: tulip',"),
        ('{\\"pin\\":\\"8841\\"}', '{pin: 8841\\"}'),
        ("<a><pin>8841</pin></a>", "pin: 8841 "),
        ("&lt;pin&gt;8841&lt;/pin&gt;", "pin: 8841 "),
    ],
    ids=["json", "dict", "arrow", "escaped", "tag", "entity"],
)
def test_decode_reads_a_quoted_key_as_a_label(text: str, read: str) -> None:
    assert decode(text)[0] == read


@pytest.mark.parametrize(
    "text",
    ['he said "yes" and left', "it's 'ok': fine'"[:9], 'f("a", "b")', "don't: 'do'"],
)
def test_decode_leaves_other_quotes_alone(text: str) -> None:
    assert decode(text)[0] == text


@pytest.mark.parametrize(
    "text", ["41<abc>11</abc>1", "41<abc>11</abc> 1", "41 <abc>11</abc>1",
             "41 <b>11</b> 1", "41 <span>11</span> 1"]
)  # fmt: skip
def test_a_tag_inside_a_number_is_still_dropped(text: str) -> None:
    assert decode(text)[0].replace(" ", "") == "41111"


@given(st.text(alphabet="<>/\"'\\:= ab", max_size=60))
def test_labels_are_never_longer_than_what_they_replace(text: str) -> None:
    assert len(decode(text)[0]) <= len(text)


def test_decode_reads_base64_and_hex() -> None:
    secret = b"ssn 536-22-1234"
    assert "536-22-1234" in decode(base64.b64encode(secret).decode())[0]
    assert "536-22-1234" in decode(secret.hex())[0]


def test_hidden_text_leaves_words_alone() -> None:
    assert hidden_text("internationalization") is None


def test_compact_marks_the_digits_it_made() -> None:
    reading = next(
        each
        for each in readings("five 36 22 one two three four")
        if each.normalization is Normalization.COMPACT
    )
    assert reading.text == "5 36 22 1234"
    assert [reading.text[at] for at in sorted(reading.made)] == list("51234")


def test_compact_joins_spelled_addresses() -> None:
    assert compact("bob at corp dot com") == "bob@corp.com"


def test_compact_joins_spaced_letters() -> None:
    assert compact("b o b @ x . c o m") == "bob@x.com"


@given(st.text(max_size=200))
def test_readings_take_any_text(text: str) -> None:
    found = list(readings(text))
    assert found[0].text == text
    assert all(0 <= at < len(each.text) for each in found for at in each.made)


@given(st.text(max_size=200))
def test_fold_is_stable_for_digits_and_dashes(text: str) -> None:
    folded = fold(text)
    assert not any(char.isdecimal() and not char.isascii() for char in folded)


def test_repr_of_a_reading_shows_no_text() -> None:
    (reading,) = readings("canary")
    assert "canary" not in repr(reading)


def test_a_reading_that_is_cut_says_so() -> None:
    decoded = {
        each.normalization: each
        for each in readings("\ufdfa" * 3000 + " jsmith%40hospital.org")
    }[Normalization.DECODED]
    assert decoded.cut
    assert len(decoded.text) == MAX_DECODED_CHARS


def test_a_long_text_that_does_not_grow_is_not_cut() -> None:
    found = list(readings("**word** " * 5000 + "a%40b.com"))
    assert [each.cut for each in found] == [False] * len(found)
    assert found[-1].text.endswith("a@b.com")


def test_a_bar_of_a_table_is_no_mistyped_digit() -> None:
    for text in ("a | 2019 | 2018 | 2017", "(38) | 20 | (18) | 12"):
        assert not any(reading.made for reading in readings(text))


def test_an_acronym_is_no_mistyped_number() -> None:
    assert not any(reading.made for reading in readings("ISO 26262-6 of 2018"))


def test_a_star_between_blanks_is_no_markdown() -> None:
    assert [each.text for each in readings("12345678 * 3 * 2")] == ["12345678 * 3 * 2"]
    assert "4111 1111" in [each.text for each in readings("*4111* **1111**")]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("eins zwei drei vier fünf sechs", "123456"),
        ("one two dash three four five", "12-345"),
        ("five hundred", "500"),
        ("double seven oh", "77 0"),
        ("fire to sex due", "fire to sex due"),
    ],
)
def test_digits_are_spelled_in_other_languages_and_with_marks(
    text: str, shown: str
) -> None:
    *_, last = readings(text)
    assert last.text.replace(" ", "") == shown.replace(" ", "")
