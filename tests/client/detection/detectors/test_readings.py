import base64
import unicodedata
from dataclasses import replace
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curtilage.client.detection.detectors.readings import (
    DECODE_LEVELS,
    MAX_DECODED_CHARS,
    Reading,
    decode,
    fold,
    hidden_text,
    readings,
    stretches,
    undone,
    words_of,
)
from curtilage.client.detection.detectors.respelling import compact
from curtilage.policy.decision.findings import Normalization


def text_in(view: Normalization, text: str) -> str:
    return next(each.text for each in readings(text) if each.normalization is view)


def test_what_is_asked_twice_of_a_reading_is_made_once() -> None:
    made: list[str] = []

    def length(reading: Reading) -> int:
        made.append(reading.text)
        return len(reading.text)

    reading = Reading(normalization=Normalization.RAW, text="a plain sentence")
    assert [reading.once(length), reading.once(length)] == [16, 16]
    part = replace(reading, text="a part")
    assert part.once(length) == 6
    assert made == ["a plain sentence", "a part"]


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
        ("one two space three four five", "12-345"),
        ("one two gap then three four five", "12-345"),
        ("one two, new line, three four five", "12-345"),
        ("12 space 345", "12-345"),
        ("1 then 2 then 3 then 4", "1-2-3-4"),
        ("one two garland three four five", "12-345"),
        ("three sevens oh o one", "777001"),
        ("first 200 then 350 then 400", "first 200 then 350 then 400"),
        ("times of 25, 15, 5, 3, and 2", "times of 25, 15, 5, 3, and 2"),
        ("twenty people and thirty chairs", "20 people and 30 chairs"),
        ("double the seven, oh", "77, 0"),
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


@pytest.mark.parametrize(
    ("text", "folded"),
    [
        ("\U0001f177\U0001f178\U0001f185", "HIV"),
        ("\U0001f157\U0001f158\U0001f165", "HIV"),
        ("\u24a3\u24a4\u24b1", "hiv"),
        ("\u029c\u026a\u1d20", "hiv"),
        ("\U0001f1ed\U0001f1ee\U0001f1fb", "HIV"),
        ("\U0001f1f3\U0001f1f1", "\U0001f1f3\U0001f1f1"),
    ],
    ids=["squared", "circled", "bracketed", "small capitals", "flags", "a flag"],
)
def test_fold_reads_letters_in_other_shapes(text: str, folded: str) -> None:
    assert fold(text) == folded


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("H&zwnj;I&zwnj;V", "HIV"),
        ("can&#173;cer", "cancer"),
        ("H%E2%80%8BI%E2%80%8BV", "HIV"),
        ("s%D1%81hiz%D0%BE%D1%80hr%D0%B5ni%D0%B0", "schizophrenia"),
        ("&#127351;\\u200b&#127352;", "HI"),
    ],
    ids=["zwnj", "shy", "percent", "cyrillic", "squared"],
)
def test_what_is_decoded_is_folded(text: str, read: str) -> None:
    assert decode(text)[0] == read


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("it is =68=69=76", "it is hiv"),
        ("=C3=A9t=C3=A9", "\u00e9t\u00e9"),
        ("name=3DChidi=20Okafor", "name=Chidi Okafor"),
        ("di=\nabetes", "diabetes"),
        ("K=C3=B6ln and a =3D b", "K\u00f6ln and a = b"),
        ("=46=6F=72=65=6E=61=6D=65 &#x3D;3D", "Forename ="),
    ],
    ids=["octets", "pairs", "quoted", "soft break", "prose", "stacked"],
)
def test_decode_undoes_quoted_printable(text: str, read: str) -> None:
    assert decode(text)[0] == read


@pytest.mark.parametrize(
    "text",
    [
        "x=20 and y=30",
        "a == b, c =\n d",
        "https://example.org/?a=41&b=20",
        "====\nTitle\n====",
        "x=AB; y=3D; z=if",
        "total =00=01",
    ],
    ids=["numbers", "code", "query", "heading", "not all", "no text"],
)
def test_an_equals_sign_is_left_where_it_is_one(text: str) -> None:
    assert decode(text)[0] == text


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("=?utf-8?b?T2thZm9yLCBDaGlkaQ==?= owes", "Okafor, Chidi owes"),
        ("=?UTF-8?Q?Bj=C3=B8rn_Haugland?=", "Bj\u00f8rn Haugland"),
        ("=?iso-8859-1?q?Ren=E9?= =?iso-8859-1?q?e?= is", "Ren\u00e9e is"),
        ("=?utf-8*en?Q?Mia?=", "Mia"),
    ],
    ids=["base64", "quoted", "two in a row", "language"],
)
def test_decode_reads_encoded_words(text: str, read: str) -> None:
    assert decode(text)[0] == read


def test_decode_joins_base64_in_pieces() -> None:
    text = "SSBoYXZl IEhJViBh bmQgSSBh\nbSBhZnJh aWQ="
    assert decode(text)[0].strip() == "I have HIV and I am afraid"


def test_pieces_that_are_words_are_left_alone() -> None:
    text = "myList fooBar maxValue iPhone14 size2 "
    assert decode(text)[0] == text


def test_decode_reads_base32() -> None:
    encoded = base64.b32encode(b"ssn 536-22-1234").decode()
    assert "536-22-1234" in decode(encoded)[0]


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("<td>rent</td><td>late</td>", "rent late"),
        ("one<br/>two", "one two"),
        ("H<b>I</b>V", "HIV"),
        ("41<br>11", "4111"),
    ],
)
def test_tags_of_cells_and_lines_part_words(text: str, read: str) -> None:
    assert decode(text)[0] == read


@given(st.integers(min_value=1, max_value=DECODE_LEVELS + 3))
def test_decoding_ends_after_a_fixed_number_of_levels(depth: int) -> None:
    text = "a:b"
    for _ in range(depth):
        text = quote(text, safe="")
    shown = decode(text)[0]
    assert (shown == "a:b") is (depth <= DECODE_LEVELS)


@given(st.text(alphabet="=?utf-8qb3DC\n <br>%&;aB1", max_size=120))
def test_decoding_takes_any_mail(text: str) -> None:
    decoded, cut = decode(text, most=200)
    assert len(decoded) <= 200
    assert not cut


def test_stretches_are_what_reads_otherwise_with_its_surroundings() -> None:
    text = f"{'word ' * 200}the tenant Chidi%20Okafor pays {'word ' * 200}"
    other = undone(tuple(readings(text)))
    fresh = words_of(other.text) - words_of(text)
    ((start, end),) = stretches(other.text, fresh)
    assert fresh == {"okafor"}
    assert "the tenant Chidi Okafor pays" in other.text[start:end]
    assert end - start < 400


@given(st.text(alphabet="ab1 _%20\n", max_size=80), st.sets(st.sampled_from("ab")))
def test_stretches_stand_apart_and_in_the_text(text: str, ends: set[str]) -> None:
    words = {word for word in words_of(text) if word[-1] in ends}
    places = list(stretches(text, words))
    flat = [at for place in places for at in place]
    assert flat == sorted(set(flat))
    assert all(0 <= at <= len(text) for at in flat)
    found = set[str]().union(*(words_of(text[a:b]) for a, b in places))
    assert words <= found


def test_torn_accents_do_not_change_the_language_nor_the_places() -> None:
    text = "\u00c0 l'h\u00f4pital, ma m\u00e8re a \u00e9t\u00e9 op\u00e9r\u00e9e."
    torn = unicodedata.normalize("NFD", text)
    whole, apart = next(readings(text)), next(readings(torn))
    assert whole.packs == apart.packs == ("fr",)
    assert [
        unicodedata.normalize("NFC", torn[each.start : each.end])
        for each in apart.stretches
    ] == [text[each.start : each.end] for each in whole.stretches]
