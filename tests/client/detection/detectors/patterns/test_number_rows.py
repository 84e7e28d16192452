"""A number told in groups is one; a list of numbers is none."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from curtilage.client.detection.detectors.patterns import check_digits as checks
from curtilage.client.detection.detectors.scanner import scan
from support.equipment import own
from support.growth import grows_at_most, seconds_of

NUMBERS = ("financial.", "uncertain.number_run", "identifier.direct.")


def classes(text: str) -> set[str]:
    (spans,) = scan([text], own())
    return {span.data_class for span in spans if span.data_class.startswith(NUMBERS)}


LISTS = [
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


@pytest.mark.parametrize("text", LISTS)
def test_a_list_of_numbers_is_no_number(text: str) -> None:
    assert classes(text) == set()


@pytest.mark.parametrize("text", KEPT)
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


@pytest.mark.parametrize("pump", ["1 ", "1, ", "1,234,", "1|", "12:30 ", "1.2.3 "])
def test_time_of_a_row_is_linear(pump: str) -> None:
    def seconds(length: int) -> float:
        text = (pump * length)[:length]
        return seconds_of(lambda: classes(text))

    assert grows_at_most(seconds, lengths=(4000, 16000), factor=8)
