"""Finds the figures of a household without a named person, and those of a company.

"Take-home 1,870, rent 1,240: what first?" names no person and yet concerns one. So do a
negative balance next to another amount or a word about debts, and lists of debtors with
numbers in place of names. The words are data (``data/household.toml``), and are
searched for in every language at once, since a list has too few words to identify one.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Final

from curtilage.client.detection.detectors.readings import Reading
from curtilage.client.detection.spans import Span
from curtilage.client.detection.wordlists import bag, lowered, read_data, unaccented

_DATA: Final = read_data(
    "curtilage.client.detection.detectors.topics", "household.toml"
)
_FINANCE: Final = "financial.balance"
_SOMEBODY: Final = "marker.first_person"
_SCORE: Final = 60
_REACH: Final = 90  # characters between two amounts of a list
_NEXT: Final = 4  # the same if a company's list could contain both nouns


def _entries(text: str) -> frozenset[str]:
    plain = frozenset(each.replace("|", " ") for each in text.split())
    return plain | frozenset(map(unaccented, plain))


_OWN: Final = _entries(_DATA["nouns"]["own"])
_SHARED: Final = _entries(_DATA["nouns"]["shared"])
_ACCOUNTS: Final = _entries(_DATA["nouns"]["accounts"])
_FLAT: Final = _entries(_DATA["nouns"]["flat"])
_DEBTS: Final = _entries(_DATA["debts"]["words"])
_ROWS: Final = _entries(_DATA["people"]["rows"])
_HEADS: Final = frozenset(
    word for each in (*_OWN, *_SHARED, *_ACCOUNTS) for word in each.split()[-1:]
)


def _any_of(words: Iterable[str]) -> str:
    return "|".join(
        r"[ \-]".join(map(re.escape, each.split()))
        for each in sorted(words, key=len, reverse=True)
    )


_SUM: Final = (
    r"(?:[$\u20ac\u00a3] ?)?(?:\d{1,2}(?:[.,]\d)?k|\d{1,3}(?:[.,'\u2019 ]?\d{3}){0,2}"
    r"(?:[.,]\d{1,2}|,-)?)"
    r"(?: ?(?:[$\u20ac\u00a3]|eur|euros?|usd|gbp|chf|pounds|dollars)(?!\w))?"
    # A number in a table row has another one next to it; a percentage is not an amount.
    r"(?!\w| ?%|[.,]?\d|[\t|]|\s{2,}\d| \d)"
)
_NOUNS: Final = _any_of({*_OWN, *_SHARED})
_ITEM: Final = re.compile(
    rf"(?<![\w\-])(?:(?P<noun>{_NOUNS})(?: [^\W\d_]{{2,12}}){{0,2}}? ?[:=]? ?"
    rf"(?:(?:is|ist|est|es|[èé]|von|de|di|van|of|ca\.?|about|around) )?{_SUM}|"
    rf"{_SUM}(?: (?:for|für|pour|de|para|per|di|voor|the|die|le|la|el|il|a|o))"
    rf"{{0,2}} (?P<thing>{_NOUNS})(?![\w\-]))"
)
_BELOW: Final = re.compile(
    rf"(?<![\w\-])(?:{_any_of(_ACCOUNTS)}) ?[:=]? ?"
    r"(?:[\-\u2212\u2013](?=[\d$\u20ac\u00a3])|minus |moins |menos |meno |min )"
    rf"(?:{_SUM})"
)
_ROW: Final = re.compile(
    rf"(?<![^\W_])(?:{_any_of(_ROWS)})[ _#\-]{{1,3}}\d{{3,9}}(?!\w)"
)


_CONFIDENTIAL: Final = "org.confidential"
_COMPANY: Final = _DATA["company"]
_OWNERS: Final = _entries(_COMPANY["owners"])
_NEAR: Final = _entries(_COMPANY["near"])


def _stems(text: str) -> str:
    words = sorted(_entries(text), key=len, reverse=True)
    return "|".join(
        re.escape(each[:-1]) + r"[^\W_]{0,24}" if each[-1] == "*" else re.escape(each)
        for each in words
    )


_SHARE: Final = (
    r"[^\n]{0,120}?(?<![\d.,])\d{1,3}(?:[.,]\d{1,2})? ?"
    r"(?:%|percent|per cent|prozent|pour cent|por ciento|per cento|procent|por cento)"
)
_FIGURE: Final = re.compile(
    rf"(?<!\w)(?:{'|'.join(_OWNERS)}) (?:[\w'\u2019\-]{{1,20}} ){{0,4}}?"
    rf"(?:(?P<sure>{_stems(_COMPANY['sure'])})|{_stems(_COMPANY['others'])})(?!\w)"
    rf"{_SHARE}"
)


class HouseholdDetector:
    """Finds amounts of a household, or of a person in a list of debtors."""

    id = "household"

    def find(self, reading: Reading) -> Iterator[Span]:
        """Yield amounts as money, one marker of a person, and figures."""
        text = lowered(reading.text)
        here = bag(text)
        if not _OWNERS.isdisjoint(here):
            for match in _FIGURE.finditer(text):
                if match["sure"] or not _NEAR.isdisjoint(here):
                    yield self._span(_CONFIDENTIAL, *match.span())
        if _HEADS.isdisjoint(here) and _HEADS.isdisjoint(map(unaccented, here)):
            return
        places = list(_places(text))
        for start, end in places:
            yield self._span(_FINANCE, start, end)
        for start, end in places[:1]:
            yield self._span(_SOMEBODY, start, end)

    def _span(self, name: str, start: int, end: int) -> Span:
        return Span(
            data_class=name, detector=self.id, start=start, end=end, score=_SCORE
        )


def _places(text: str) -> Iterator[tuple[int, int]]:
    items = list(_ITEM.finditer(text))
    below = [match.span() for match in _BELOW.finditer(text)]
    words = {*map(unaccented, bag(text)), *bag(text)}
    owed = not words.isdisjoint(_DEBTS) or _ROW.search(text) is not None
    if below and (owed or items or len(below) > 1):
        yield from below
    for one, other in pairwise(items):
        nouns = {each["noun"] or each["thing"] for each in (one, other)}
        apart = other.start() - one.end()
        near = apart <= (_NEXT if nouns.isdisjoint(_OWN) else _REACH)
        # Every advertisement of a flat has its price.
        if nouns <= _FLAT:
            continue
        if near and len(nouns) > 1:
            yield one.span()
            yield other.span()
    if owed:
        for each in items:
            if (each["noun"] or each["thing"]) in _OWN or _ROW.search(text):
                yield each.span()
