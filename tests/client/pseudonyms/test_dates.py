import re
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curtilage.client.pseudonyms.dates import moved


@pytest.mark.parametrize(
    ("written", "later"),
    [
        ("1982-03-03", "1982-03-24"),
        ("1980/02/29", "1980/03/21"),
        ("03.04.1980", "24.04.1980"),
        ("3 March 1982", "24 March 1982"),
        ("3rd of March 1982", "24th of March 1982"),
        ("March 3rd, 1982", "March 24th, 1982"),
        ("Mar. 3, 1982", "Mar. 24, 1982"),
        ("MAY 12 1980", "JUN 2 1980"),
        ("12-Mar-1982", "2-Apr-1982"),
        ("13/4/1980", "4/5/1980"),
        ("4/13/1980", "5/4/1980"),
        ("4/4/1980", "25/4/1980"),
        ("sept 5 2001", "sep 26 2001"),
        ("december 31st, 1999", "january 21st, 2000"),
    ],
)
def test_a_date_keeps_its_form(written: str, later: str) -> None:
    assert moved(written, weeks=3) == later


@pytest.mark.parametrize(
    ("language", "written", "later"),
    [
        ("de", "3. März 1975", "24. März 1975"),
        ("de", "12. Mai 1975", "2. Juni 1975"),
        ("de", "12. Sept. 2020", "3. Okt. 2020"),
        ("de", "3. Mrz 1975", "24. Mär 1975"),
        ("fr", "1er avril 1961", "22 avril 1961"),
        ("fr", "12 sept. 2020", "3 oct. 2020"),
        ("es", "3 de mayo de 1980", "24 de mayo de 1980"),
        ("es", "12-dic-2020", "2-ene-2021"),
        ("it", "12 dicembre 1961", "2 gennaio 1962"),
        ("nl", "5 mei 1970", "26 mei 1970"),
        ("pt", "7 de março de 1988", "28 de março de 1988"),
        ("pt", "1º de maio de 2020", "22 de maio de 2020"),
        # Spanish and Italian both have an "agosto": the text's language decides.
        ("es", "20 agosto 1980", "10 septiembre 1980"),
        ("it", "20 agosto 1980", "10 settembre 1980"),
        ("en", "20 mars 1980", "10 avril 1980"),
    ],
)
def test_a_date_keeps_its_language(language: str, written: str, later: str) -> None:
    assert moved(written, weeks=3, language=language) == later


@pytest.mark.parametrize(
    "written",
    [
        "3/4/1980",  # two readings
        "31.02.1980",  # no day
        "9999-12-30",  # no day that far
        "0000-01-01",
        "March 3rd",
        "1.2.80",
        "1980-2/3",
        "Monday",
        "2019",
        "",
        "\u0661980-01-01",  # an Arabic digit
        "1982-03-03" + " " * 40,
    ],
)
def test_an_uncertain_date_is_not_shifted(written: str) -> None:
    assert moved(written, weeks=3) is None


@given(
    st.dates(min_value=date(1001, 1, 1), max_value=date(9998, 1, 1)),
    st.integers(-52, 52),
    st.sampled_from(["%Y-%m-%d", "%d.%m.%Y", "%d %B %Y", "%B %d, %Y", "%d-%b-%Y"]),
)
def test_moved_forth_and_back_is_the_same_day(day: date, weeks: int, form: str) -> None:
    written = day.strftime(form.replace("%Y", f"{day.year:04}"))
    there = moved(written, weeks=weeks)
    assert there is not None
    back = moved(there, weeks=-weeks)
    assert bare(back or "") == bare(written)


def bare(written: str) -> str:
    """Without what moving may lose: a day's zero, the rest of a month's name."""
    short = re.sub("([A-Za-z]{3})[a-z]+", r"\1", written)
    return short.replace(" 0", " ").removeprefix("0")
