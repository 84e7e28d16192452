"""Shifts a date by whole weeks, in the format in which it was written.

Supports dates with a day, a month and a four-digit year, with month names in seven
languages. Anything else, and an ambiguous date (``3/4/1980``), is not shifted: nothing
is guessed.
"""

import re
from collections.abc import Mapping
from datetime import date, timedelta
from types import MappingProxyType
from typing import Final

MAX_DATE_CHARS: Final = 40


# For each language the full month names, then the abbreviations.
_MONTHS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        language: tuple(names.split())
        for language, names in {
            "en": """
                january february march april may june july august september october
                november december
                jan feb mar apr may jun jul aug sep oct nov dec
            """,
            "de": """
                januar februar märz april mai juni juli august september oktober
                november dezember
                jan feb mär apr mai jun jul aug sep okt nov dez
            """,
            "fr": """
                janvier février mars avril mai juin juillet août septembre octobre
                novembre décembre
                janv févr mars avr mai juin juil août sept oct nov déc
            """,
            "es": """
                enero febrero marzo abril mayo junio julio agosto septiembre octubre
                noviembre diciembre
                ene feb mar abr may jun jul ago sep oct nov dic
            """,
            "it": """
                gennaio febbraio marzo aprile maggio giugno luglio agosto settembre
                ottobre novembre dicembre
                gen feb mar apr mag giu lug ago set ott nov dic
            """,
            "nl": """
                januari februari maart april mei juni juli augustus september
                oktober november december
                jan feb mrt apr mei jun jul aug sep okt nov dec
            """,
            "pt": """
                janeiro fevereiro março abril maio junho julho agosto setembro
                outubro novembro dezembro
                jan fev mar abr mai jun jul ago set out nov dez
            """,
        }.items()
    }
)
_YEAR_MONTHS: Final = 12
# Variant spellings.
_ALSO: Final = {
    "jänner": "januar",
    "mrz": "mär",
    "sept": "sep",
    "fevrier": "février",
    "aout": "août",
    "decembre": "décembre",
    "setiembre": "septiembre",
    "febr": "feb",
}
_NAMES: Final = "|".join(
    sorted(
        {name for names in _MONTHS.values() for name in names} | _ALSO.keys(),
        key=len,
        reverse=True,
    )
)
_DAY: Final = r"(?P<day>[0-9]{1,2})"
_YEAR: Final = r"(?P<year>[0-9]{4})"
_MONTH_NAME: Final = rf"(?P<month>{_NAMES})"
_MONTH_NUMBER: Final = r"(?P<month>[0-9]{1,2})"
_ORDINAL: Final = r"(?P<ordinal>st|nd|rd|th|er|[º°])?"
# Day and month may be in either order: both are tried.
_EITHER: Final = r"(?P<{}>[0-9]{{1,2}})/(?P<{}>[0-9]{{1,2}})/"
_FORMS: Final = tuple(
    re.compile(form, re.IGNORECASE)
    for form in (
        rf"{_YEAR}(?P<gap>[-/.]){_MONTH_NUMBER}(?P=gap){_DAY}",
        rf"{_DAY}\.{_MONTH_NUMBER}\.{_YEAR}",
        (
            rf"{_DAY}{_ORDINAL}(?:\.?\s+(?:of\s+|de\s+)?|-|\.){_MONTH_NAME}\.?"
            rf"(?:,?\s+(?:del?\s+)?|-){_YEAR}"
        ),
        rf"{_MONTH_NAME}\.?\s+{_DAY}{_ORDINAL}(?:,\s*|\s+){_YEAR}",
        _EITHER.format("day", "month") + _YEAR,
        _EITHER.format("month", "day") + _YEAR,
    )
)
_ENGLISH: Final = frozenset({"st", "nd", "rd", "th"})
_ORDINALS: Final = {1: "st", 2: "nd", 3: "rd", 21: "st", 22: "nd", 23: "rd", 31: "st"}


def moved(written: str, *, weeks: int, language: str = "en") -> str | None:
    """Return a date shifted by a number of weeks, or None if it cannot be.

    Whole weeks keep the day of the week, and statements in the text about it.

    Args:
        written: the date and nothing else.
        weeks: how far; negative is earlier.
        language: of the text, in ISO 639-1; decides where two languages share a
            month name (``agosto``).
    """
    if len(written) > MAX_DATE_CHARS:
        return None
    # All formats and not the first that matches: "3/4/1980" matches two of them, with
    # two different days; nothing is guessed.
    readings = [match for form in _FORMS if (match := form.fullmatch(written))]
    dated = [(match, day) for match in readings if (day := _date_of(match))]
    if len({day for _, day in dated}) != 1:
        return None
    match, day = dated[0]
    try:
        later = day + timedelta(weeks=weeks)
    except OverflowError:
        return None
    return _written_like(match, later, language)


def _date_of(match: re.Match[str]) -> date | None:
    month = match["month"].lower()
    numbers = (
        {int(month)}
        if month.isdigit()
        else {number for each in _MONTHS if (number := _number(month, each))}
    )
    try:
        (number,) = numbers
        return date(int(match["year"]), number, int(match["day"]))
    except ValueError:
        return None


def _written_like(match: re.Match[str], day: date, language: str) -> str:
    """Format ``day`` with the separators, case and zeros of the match."""
    old = {name: text for name, text in match.groupdict("").items() if text}
    numbers = [text for text in (old["day"], old["month"]) if text.isdigit()]
    two = len(numbers) > 1 and all(len(text) > 1 for text in numbers)
    digits = "02" if two or old["day"].startswith("0") else "1"
    new = {
        "day": f"{day.day:{digits}}",
        "month": _month_like(old["month"], day.month, digits, language),
        "year": f"{day.year:04}",
        "ordinal": _ordinal_like(old.get("ordinal", ""), day.day),
    }
    written, at = "", 0
    for name in sorted(old.keys() & new.keys(), key=match.start):
        written += match.string[at : match.start(name)] + new[name]
        at = match.end(name)
    return written + match.string[at:]


def _ordinal_like(old: str, day: int) -> str:
    if old.lower() not in _ENGLISH:
        return old if day == 1 else ""  # 1er, 1º: only for the first of a month
    return _cased_like(old, _ORDINALS.get(day, "th"))


def _month_like(old: str, number: int, digits: str, language: str) -> str:
    if old.isdigit():
        return f"{number:{digits}}"
    word = old.lower()
    whose = [each for each in _MONTHS if _number(word, each)]
    names = _MONTHS[language if language in whose else whose[0]]
    full, cut = names[:_YEAR_MONTHS], names[_YEAR_MONTHS:]
    # A word that is both counts as a full name ("mai"), except English "May".
    is_cut = word not in full or (word == "may" and cut[0] == "jan")
    return _cased_like(old, (cut if is_cut else full)[number - 1])


def _number(word: str, language: str) -> int | None:
    """Return 1 to 12 for a month name of a language, in lower case."""
    names = _MONTHS[language]
    for each in (word, _ALSO.get(word, word)):
        if each in names:
            return names.index(each) % _YEAR_MONTHS + 1
    return None


def _cased_like(old: str, new: str) -> str:
    if old.isupper():
        return new.upper()
    return new.capitalize() if old[0].isupper() else new
