"""Move a date by whole weeks and write it again the way it was written.

Knows English dates with a day, a month and a four-digit year. What is no such
date, or could be two (``3/4/1980``), is left to others: no guess is made.
"""

import re
from datetime import date, timedelta
from typing import Final

MAX_DATE_CHARS: Final = 40

_MONTHS: Final = (
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
)
_SHORT_CHARS: Final = 3
_NAMES: Final = "|".join(
    f"{name}|{name[:_SHORT_CHARS]}" for name in _MONTHS if name != "may"
)
_DAY: Final = r"(?P<day>\d{1,2})"
_YEAR: Final = r"(?P<year>\d{4})"
_MONTH_NAME: Final = rf"(?P<month>{_NAMES}|may|sept)"
_MONTH_NUMBER: Final = r"(?P<month>\d{1,2})"
_ORDINAL: Final = r"(?P<ordinal>st|nd|rd|th)?"
# Which of the first two is the day is not known: both orders are tried.
_EITHER: Final = r"(?P<{}>\d{{1,2}})/(?P<{}>\d{{1,2}})/"
_FORMS: Final = tuple(
    re.compile(form, re.IGNORECASE)
    for form in (
        rf"{_YEAR}(?P<gap>[-/.]){_MONTH_NUMBER}(?P=gap){_DAY}",
        rf"{_DAY}\.{_MONTH_NUMBER}\.{_YEAR}",
        rf"{_DAY}{_ORDINAL}(?:\s+(?:of\s+)?|-){_MONTH_NAME}\.?(?:,?\s+|-){_YEAR}",
        rf"{_MONTH_NAME}\.?\s+{_DAY}{_ORDINAL}(?:,\s*|\s+){_YEAR}",
        _EITHER.format("day", "month") + _YEAR,
        _EITHER.format("month", "day") + _YEAR,
    )
)
_ORDINALS: Final = {1: "st", 2: "nd", 3: "rd", 21: "st", 22: "nd", 23: "rd", 31: "st"}


def moved(written: str, *, weeks: int) -> str | None:
    """Return a date moved by so many weeks, or None where it cannot be.

    Whole weeks keep the day of the week, and so what else a text says of it.

    Args:
        written: the date and nothing else.
        weeks: how far; negative is earlier.
    """
    if len(written) > MAX_DATE_CHARS or not written.isascii():
        return None
    # Every form and not the first that fits: "3/4/1980" is a date in two of them, and
    # two days; no guess is made.
    readings = [match for form in _FORMS if (match := form.fullmatch(written))]
    dated = [(match, day) for match in readings if (day := _date_of(match))]
    if len({day for _, day in dated}) != 1:
        return None
    match, day = dated[0]
    try:
        later = day + timedelta(weeks=weeks)
    except OverflowError:
        return None
    return _written_like(match, later)


def _date_of(match: re.Match[str]) -> date | None:
    month = match["month"].lower()
    number = (
        int(month)
        if month.isdigit()
        else next(
            at
            for at, full in enumerate(_MONTHS, start=1)
            if full.startswith(month[:_SHORT_CHARS])
        )
    )
    try:
        return date(int(match["year"]), number, int(match["day"]))
    except ValueError:
        return None


def _written_like(match: re.Match[str], day: date) -> str:
    """Write ``day`` with the separators, case and zeros of what was matched."""
    old = {name: text for name, text in match.groupdict("").items() if text}
    numbers = [text for text in (old["day"], old["month"]) if text.isdigit()]
    two = len(numbers) > 1 and all(len(text) > 1 for text in numbers)
    digits = "02" if two or old["day"].startswith("0") else "1"
    new = {
        "day": f"{day.day:{digits}}",
        "month": _month_like(old["month"], day.month, digits),
        "year": f"{day.year:04}",
        "ordinal": _cased_like(old.get("ordinal", "x"), _ORDINALS.get(day.day, "th")),
    }
    written, at = "", 0
    for name in sorted(old.keys() & new.keys(), key=match.start):
        written += match.string[at : match.start(name)] + new[name]
        at = match.end(name)
    return written + match.string[at:]


def _month_like(old: str, number: int, digits: str) -> str:
    if old.isdigit():
        return f"{number:{digits}}"
    name = _MONTHS[number - 1]
    full = old.lower() in _MONTHS and old.lower() != "may"
    return _cased_like(old, name if full else name[:_SHORT_CHARS])


def _cased_like(old: str, new: str) -> str:
    if old.isupper():
        return new.upper()
    return new.capitalize() if old[0].isupper() else new
