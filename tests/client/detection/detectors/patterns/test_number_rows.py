"""A number spelled out in groups is one; a list of numbers is none."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from curtilage.client.detection.detectors.patterns import check_digits as checks
from curtilage.client.detection.detectors.patterns import number_rows
from curtilage.client.detection.detectors.scanner import scan
from support.equipment import own
from support.examples import examples
from support.growth import grows_at_most, seconds_of

NUMBERS = ("financial.", "uncertain.number_run", "identifier.direct.")


def classes(text: str) -> set[str]:
    (spans,) = scan([text], own())
    return {span.data_class for span in spans if span.data_class.startswith(NUMBERS)}


LISTS = [
    "la loi n° 2018-493, la ley 1581/2012",
    # tables, whose stretches pass Luhn now and then
    "Total cost of revenue | $48,881 | $51,896 | $(3,015) | (6)%",
    "Shares outstanding | 445,520 | 442,960 | 431,688",
    "per square metre ($) | 18,675 | 18,094 | 3.2% | 1.4%",
    " | 2019 | 2018 | 2017\nWorking capital | 1,024 | 998 | 1,101",
    "2020 | $460 | 47\n2021 | 361 | 28\n2022 | 308 | 22\n2023 | 265 | 22",
    "2017/2018 | 2018/2019 | 2019/2020",
    "Taken in the year | 623 | 623 | 932 | 1,064",
    '"3","25","1386"\n"1","17","1200"',
    "11,11,20,42",
    # arrays and code
    "search([1, 2, 2, 3, 3, 3, 4, 4, 4]) == 3",
    "arr = [-3, 2, 1, 2, -1, -2, 1], k = 1",
    "rescale([1.0, 2.0, 3.0, 4.0, 5.0])",
    "&H0000FF00,&H00000000,0,0,0,0,100,100,0,0,1,1,0,2,10,10,10,1",
    "{1: 20, 2: 30, 3: 40, 4: 50}",
    "mod = 1000000007",
    "MAX = 1000000",
    "6\n1\n1\n2\n00\n4\n1010\n4\n1100\n6\n010101\n5\n00001",
    "error 0x80070005 after the update",
    "let mut x: u32 = 0x11223344;",
    "batch sizes of 512, 1024, and 2048",
    # moments, measures, sums, things
    "the answer is 10/01/2023",
    "2024-06-01 12:34:56,789 INFO started",
    "opened 2024-06-01T12:34:56 closed 2024-06-02",
    "timestamp: 1696118400",
    "What is CVE-2019-11510 about?",
    "between ISO/IEC 27001:2013 and 27001:2022",
    "so:\n04/17 09:31:45 WARN reconnecting",
    "at 36.57861, -118.29210",
    "from 20000-30000 a month",
    "about 12345678 people live there",
    "it costs $1234567",
    "What is 12345678 * 3?",
    "12345678 ^ 2",
    "ISBN 978-3-16-148410-0",
    "9783161484100 is a good book",
    "https://doi.org/10.1038/s41586-020-2649-2",
    "ndk\\25.1.8937393\\build",
    "tests: 65, 94, 81, 86 and 74",
    "ISO 26262: write a technical report",
]
KEPT = [
    # Italian "she" is Portuguese "law".
    "la tessera di lei 80380000100012345678", "loi n° 80380000100012345678",
    # joined by what joins
    "5362 21234", "536 - 22 - 1234", "12.34.567", "id_1_2_3_4_5_6_7", "1 2 3 4 5 6 7",
    "20241986 1", "2024 1234567", "1990-02-01-1234", "123.456.789", "12345678",
    # a list with a number's groups
    "536, 22, 1234", "536 | 22 | 1234", "536*22*1234", "212, 555, 0100",
    "06, 12, 34, 56, 78",
    # what a list's neighbour is
    "123, 45, 1234567", "1,5 and 2,7 and 12345678",
    # near misses of what is harmless
    "0x 536221234", "$ok 536221234", "12345678 peopled", "1000000107", "10101012",
    "ISBN: no; 536221234", "9783161484101",
    "99/99/2023 1", "10/01/2023-1234", "20000-30001",
    # a label near makes a number of any list
    "my number is 5, 3, 6, 2, 2, 1, 2", "SSN 536,221,234", "536,221,234 is my SSN",
    "BSN 123,456,789", "account number: 12, 345, 67", "numer konta 12, 345, 67",
    "Kundennummer 12; 345; 67", "my card number | 4111 | 1111 | 1111 | 1112",
]  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        # Like a form that is public, and none.
        "my number is CVE-1985-123456789",
        "call ISO 0316555014",
        "call 03/22 08:51:06",
        "\n03/22 08:51:06",
        "\n31/22 08:51:06 INFO",
    ],
)
def test_a_number_in_the_dress_of_a_public_one_is_found(text: str) -> None:
    assert "uncertain.number_run" in classes(text)


@examples("text", LISTS)
def test_a_list_of_numbers_is_no_number(text: str) -> None:
    assert classes(text) == set()


@examples("text", KEPT)
def test_a_number_is_one_however_it_is_written(text: str) -> None:
    assert "uncertain.number_run" in classes(text)


CARDS = [
    "4111111111111111", "4111 1111 1111 1111", "4111, 1111, 1111, 1111",
    "4111 | 1111 | 1111 | 1111", "4111\n1111\n1111\n1111", "3782 822463 10005",
    "3782, 822463, 10005", "41111111\n11111111", "41 11 11 11 11 11 11 11",
    "4,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1", "4\n1\n1\n1\n1\n1\n1\n1\n1\n1\n1\n1\n1\n1\n1\n1",
    "41111 111111 11111", "4111 11111\n111 1111",
]  # fmt: skip
NO_CARDS = [
    # each passes Luhn in some stretch
    "48,881 | 51,896 | 3,015 | 6", "445,520 | 442,960 | 431,688",
    "623 | 623 | 932 | 1,064 | 7", "1234, 5678, 9012, 3452",
    "4, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0", "4111, 11111, 1111, 111",
]  # fmt: skip


@pytest.mark.parametrize("text", CARDS)
def test_a_card_in_groups_is_a_card(text: str) -> None:
    assert checks.pan(text)
    assert "financial.pan" in classes(f"Is {text} right?")


@pytest.mark.parametrize("text", NO_CARDS)
def test_a_list_that_passes_luhn_is_no_card(text: str) -> None:
    assert not checks.pan(text)


SPELLED_OUT = [
    "5425 (pause) 2334 (pause) 3010 (pause) 9903",
    "5425 um 2334 um 3010 um 9903 is what it says",
    "card: 5425... wait... 2334... 3010... 9903",
    "Agent: yes. Caller: 5425. Agent: on. Caller: 2334. Caller: 3010. Caller: 9903.",
    "First: 412\nSecond: 68\nThird: 3397\nJoin them with dashes; that is my ssn.",
    "4\n1\n2\n6\n8\n3\n3\n9\n7\n\nis my social",
    "x1='412'; x2='68'; x3='3397'; ssn=x1+'-'+x2+'-'+x3",
    "Part A is 536. Part B is 22. Part C is 1234. Put together: my SSN.",
    "social: 526\n01\n8159",
    "account number is 00 then 4417 and at the end 882190",
    "Mein Konto: erst 417, dann 882, dann 190 - das ist die Kontonummer",
    "numéro de sécurité sociale, d'abord 2 61 07, puis 99 184, et 024 58",
    "BSN: 6241\n80\n578",
    "four one two, six eight, three three nine seven, that's my social",
    "five four two five, two three three four, three oh one oh, double nine oh three",
    "null eins sieben sechs vier vier drei zwei eins",
    "zéro six, douze, trente-quatre, cinquante-six, soixante-dix-huit",
    "seis uno dos tres cuatro cinco seis siete",
    "tre quattro sette uno due tre quattro cinque",
    "een twee drie vier vijf zes zeven acht twee",
    "nove um dois três quatro cinco seis sete oito",
    "five three six dash two two dash one two three four",
    "call five five five, two hundred, oh one nine nine",
]
LABELLED_SHORT = [
    ("MRN eight eight two three one", "health.mrn"),
    ("chart no 8 8 2 3 1", "health.mrn"),
    ("my member id is eight eight two three one", "health.plan_id"),
    ("my pin code for the bank is 7193", "secret.password"),
    ("the door code is seven one nine three", "secret.password"),
]
UNLABELLED = [
    "In 2023 we sold 412 apples, 68 pears and 3397 plums",
    "a pan of 12 rolls, a tin of 24, 3 trays of 10 and 30 cakes",
    "I have one, two, or three options for you to buy due to fire",
    "How do I get a social security number in 2024 if I am 25 with 3 kids?",
    "what does account number mean? I have 3 accounts, 2 cards and 1 loan",
    "5425 people, 2334 cars, 3010 bikes and 9904 trains",
    "my social is 536 then 22 and finally 12345",
    "one two three go", "five hundred dollars and two hundred euros",
    "the pin is the third one of five",
]  # fmt: skip


@pytest.mark.parametrize("text", SPELLED_OUT)
def test_a_number_spelled_out_in_parts_is_one(text: str) -> None:
    assert classes(text) & {"uncertain.number_run", "financial.pan"}


@pytest.mark.parametrize(("text", "data_class"), LABELLED_SHORT)
def test_a_short_number_is_recognised_by_its_label(text: str, data_class: str) -> None:
    (spans,) = scan([text], own())
    assert data_class in {span.data_class for span in spans}


@pytest.mark.parametrize("text", UNLABELLED)
def test_numbers_between_words_are_no_number(text: str) -> None:
    assert classes(text) == set()


JOINING = st.text(" .-_/:·~#@!?'()", min_size=1, max_size=3)
PARTING = st.sampled_from([",", ", ", " | ", "; ", "|", ";", " = ", "\t", "*", " * "])


@settings(max_examples=60, deadline=None)
@given(sign=st.one_of(JOINING, PARTING), label=st.sampled_from(["SSN", "my number is"]))
@example(sign=",", label="BSN")
def test_no_sign_between_the_groups_frees_a_labelled_number(
    sign: str, label: str
) -> None:
    assert classes(f"{label} {sign.join(['287', '65', '4320'])}")
    assert classes(f"{sign.join(['287', '654', '320'])}, that is my SSN")


@pytest.mark.parametrize(
    "pump", ["1 ", "1, ", "1,234,", "1|", "12:30 ", "1.2.3 ", "ssn 1 ", "one "]
)
def test_time_of_a_row_is_linear(pump: str) -> None:
    def seconds(length: int) -> float:
        text = (pump * length)[:length]
        return seconds_of(lambda: classes(text))

    assert grows_at_most(seconds, lengths=(4000, 16000), factor=8)


DIGEST = "1e42bbe2508154c9126d48c2b8a75420c3544343bf86fd041fb7527e017a4b4a"


def opaque(text: str) -> set[str]:
    (spans,) = scan([text], own())
    looks = ("secret.high_entropy", "uncertain.number_run")
    return {span.data_class for span in spans if span.data_class in looks}


@pytest.mark.parametrize("before", ["alpine@sha256:", "--hash=sha256:"])
def test_a_digest_with_its_algorithm_is_neither_number_nor_secret(before: str) -> None:
    assert opaque(f"pull {before}{DIGEST}") == set()


@pytest.mark.parametrize(
    "text",
    [
        DIGEST,
        f"sha256 {DIGEST}",
        f"key: {DIGEST}",
        f"sha256:{DIGEST}0",
        f"sha1:{DIGEST}",
    ],
)
def test_what_only_looks_like_a_digest_stays_a_secret(text: str) -> None:
    assert "secret.high_entropy" in opaque(text)


@pytest.mark.parametrize(
    ("label", "digits", "article"),
    [
        ("EAN", "4006381333931", True),
        ("GTIN-13:", "5901234123457", True),
        ("UPC", "036000291452", True),
        ("EAN", "4006381333932", False),
        ("my", "4006381333931", False),
        ("passport", "4006381333931", False),
    ],
)
def test_a_number_called_an_article_with_its_check_digit_is_one(
    label: str, digits: str, *, article: bool
) -> None:
    text = f"{label} {digits}"
    start = len(text) - len(digits)
    assert number_rows.is_article(text, start, len(text)) is article
