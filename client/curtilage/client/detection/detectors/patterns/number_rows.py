"""Decides whether a row of digits is one number in groups or a list of several numbers.

A card number is printed in groups, and so is every table; some part of any table
satisfies Luhn. They differ in their separators: those inside a number join (a space, a
dash, a dot), those of a list separate (a comma, a bar). A sign that is not known to
separate joins, so an unforeseen sign cannot hide a number. A list still counts as a
number if its groups are as printed on one, or a label is near. This module runs nothing
by itself; every expression takes time linear in the length.
"""

import re
from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise
from typing import Final

from curtilage.client.detection.detectors.patterns import check_digits as checks

NUMBER_RUN: Final = r"\d(?:(?:[^\w\n]|_){0,3}\d){6,}"
MIN_DIGITS: Final = 7
# Between the texts of a query that are read as one (``turns.JOINT``).
_JOINT = "\x1e"
# Harmless forms of a long run: a grouped amount, a list of years, a decimal with a
# short integer part; a year at the end of one text and a number at the beginning of the
# next.
HARMLESS_RUN: Final = (
    r"\d{1,3}(?:,\d{3}){2,6}(?:\.\d{1,4})?|\d{1,3},\d{3}\.\d{2}|"
    rf"{checks.YEAR}(?:[ ,/\-\u2013\u2014{_JOINT}]{{1,3}}{checks.YEAR}){{1,7}}|"
    rf"{checks.YEAR}{_JOINT}\d{{1,4}}|\d{{1,4}}{_JOINT}{checks.YEAR}|"
    rf"\d{{1,2}}\.\d{{1,16}}"
)

# Near this word, nine digits in any form are a social security number.
SSN_LABEL: Final = r"(?<![^\W_])(?:ssn|soc(?:ial)?[\W_]{0,3}sec(?:urity)?)(?![^\W\d_])"
SSN_REACH: Final = 30  # characters
# Words for a number that belongs to a person, in the languages of likely users. Near
# one of them, a list of digits is that number.
NUMBER_LABEL: Final = (
    r"(?<![^\W_])(?:ssn|soc(?:ial)?[\W_]{0,3}sec(?:urity)?|"
    r"(?:my|his|her|their|your|whose) (?:\w{2,12} ){0,2}(?:number|no|id|social|nr)|"
    r"(?:id|identity|identification|insurance|account|acct|card|phone|telephone|cell|"
    r"mobile|fax|passport|licen[cs]e|member(?:ship)?|patient|customer|client|policy|"
    r"tax|nhs|national|personal|record|routing|citizen|pension|benefit|student)"
    r"[ ._\-]{0,2}(?:number|num|no|nr|id|code|#)|"
    r"mrn|iban|nino|bsn|nir|niss|insz|nif|dni|pesel|cpr|cpf|pps|ppsn|hetu|svnr|ahv|"
    r"avs|tfn|kvnr|aadh?aar|niss|"
    r"\w{0,20}(?:nummer|numret|tunnus)|(?:n[uú]mer[oe]?|num[eé]ro|n[°º]) (?:de|di|do|"
    r"d['\u2019]|national|fiscal|konta|karty|s[eé]cu|pesel|ident)|"
    r"s[eé]cu(?:rit[eé] sociale)?|codice fiscale|tessera sanitaria|contribuinte|"
    r"carte vitale|cart[aã]o de cidad[aã]o|seguridad social|steuer-?id|idnr|telefon|"
    r"t[eé]l[eé]phone|tel[eé]fono|telefone)(?![^\W\d_])"
)
LABEL_REACH: Final = 40  # characters

# Numbers of public things, by their form: a vulnerability, a standard with its year, a
# date with the time to the second, as in a log.
PUBLIC: Final = (
    r"(?<![\w\-])(?:CVE-(?:19|20)\d{2}-\d{4,7}|"
    r"(?:ISO|IEC|DIN|EN)(?:[ /](?:ISO|IEC|EN|TS|TR)){0,3} \d{3,5}(?:-\d{1,2})?:"
    r"(?:19|20)\d{2}(?: ?(?:,|and|und|et|y|e|en|or|oder|to) \d{3,5}:(?:19|20)\d{2})?)"
    r"(?![\w\-])|"
    r"(?:(?<=\n)|\A)(?:(?:0[1-9]|1[0-2])/(?:0[1-9]|[12]\d|3[01])|"
    r"(?:0[1-9]|[12]\d|3[01])/(?:0[1-9]|1[0-2])) "
    r"(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?=[.,]\d{3} | [A-Z\[])"
)

# Separators of the numbers in a list. They decide alone; a colon or a plus does so with
# blanks around it, since "+49" and "12:30" contain them too.
_PARTS = ",;|\t=<>^%$\u20ac\u00a3\u00a5\u20b9*\u00d7\u00f7"
_JOIN = rf"(?!:\s|\s\+\s)(?:[^\w\n{_PARTS}]|_){{1,3}}"
_END = r"(?![._\-/:]?\d)"
_HOUR = r"(?:1?\d|2[0-4])\.[0-5][05]"
_ITEM = re.compile(
    rf"(?P<date>{checks.MOMENT}|{checks.TIME}(?:[ ]?[\-\u2013][ ]?{checks.TIME})?"
    # Hours in the notation of much of Europe: 9.00-17.30.
    rf"{_END}|{_HOUR}[ ]?[\-\u2013][ ]?{_HOUR}{_END})|"
    r"(?P<amount>\d{1,3}(?:,\d{3})+(?:\.\d+)?(?![,.]?\d))|"
    rf"(?P<row>\d+(?:{_JOIN}\d+)*)"
)
_DIGITS = re.compile(r"\d+")
_YEARS = re.compile(rf"{checks.YEAR}(?:[ /\-\u2013\u2014]{checks.YEAR})?")
_HARMLESS = re.compile(
    # A list's decimal; years; one digit and zeros; bits; one digit repeated. A range of
    # round numbers.
    rf"{HARMLESS_RUN}|\d{{1,4}}0{{2,}}[ ]?[\-\u2013][ ]?\d{{1,4}}0{{2,}}|"
    r"\d{3}\.\d{5,16}|[1-9]\d?0{5,}\d?|[01]{7,}|(\d)\1{6,}"
)
_CURRENCY_BEFORE = re.compile(r"(?:[$\u20ac\u00a3\u00a5\u20b9]|USD|EUR|GBP|CHF)\s?\Z")
_UNIT_BEHIND = re.compile(
    r"\s?(?:[%\u00b0\u20ac\u00a3]|(?:usd|eur|gbp|chf|dollars?|euros?|pounds|people|"
    r"inhabitants|residents|views|downloads|bytes|[kmgt]i?b|bits?|ms|ns|seconds|"
    r"reais|francs|franken|pesos|personnes|personen|personas|persone|pessoas|menschen|"
    r"einwohner|habitants|habitantes|abitanti|inwoners|millionen|stück|"
    r"[kcm]m|miles|kg|tons?|tonnes|rows|lines|records|tokens|parameters|"
    r"times|years|samples|iterations)(?!\w))",
    re.IGNORECASE,
)
# Amounts may be grouped in this way; so are telephone numbers, unless a unit follows.
_THOUSANDS = re.compile(r"\d{1,3}([ .'\u2019\u00a0\u202f])\d{3}(?:\1\d{3})*")
# Hexadecimal, a version, a degree, or below zero.
_MARK_BEFORE = re.compile(
    r"(?:(?<![^\W_])(?:0x|&h)|(?<![^\W\d_])v|[\\~^]|==)\Z", re.IGNORECASE
)
# Words before a number of a thing or a time.
_THING_BEFORE = re.compile(
    r"(?<![^\W_])(?:isbn(?:-1[03])?|issn|ean(?:-13)?|upc|gtin|asin|doi|pmid|pmcid|"
    r"arxiv|rfc|commit|build|version|release|revision|time_?stamp|ts|epoch|population|"
    r"seed|port|pid|mod(?:ulo)?|max|min|inf|"
    r"10\.\d{4,9}/[\w./()\-]{0,30})[\s:=#\"'(of]{0,6}\Z",
    re.IGNORECASE,
)
# A law has a year and a few more digits. Not many, since Italian "lei" is "she" and
# English "wet" is not a law.
_LAW_BEFORE = re.compile(
    r"(?<![^\W_])(?:loi|d[eé]cret|arr[eê]t[eé]|ordonnance|directive|r[eè]glement|"
    r"richtlinie|verordnung|ley|legge|lei|decreto|wet)"
    r"(?: \([a-z]{2,3}\))?(?: n(?:[°ºor]\.?|\.[°º]?))?[\s:=#\"'(of]{0,6}\Z",
    re.IGNORECASE,
)
_MOST_OF_LAW: Final = 9  # digits
_BEFORE: Final = 48  # characters that are examined before a number
_ARITHMETIC = re.compile(r"\s?[*\u00d7\u00f7^%]\s?\Z|\s[+/]\s\Z|\*\*\s?\Z")
_ARITHMETIC_BEHIND = re.compile(r"\s?[*\u00d7\u00f7^%]{1,2}\s?\d|\s[+/]\s\d")
_LEAST_COUNTED: Final = 5
_DICTATED_SHAPES: Final = ((3, 2, 4), (3, 3, 4), (2, 2, 2, 2, 2))


class Row:
    """One run of digits in a text, with its groups and separators."""

    def __init__(self, text: str, start: int, end: int) -> None:
        self._text = text
        self.places = [
            (match.lastgroup or "", match.start(), match.end())
            for match in _ITEM.finditer(text, start, end)
        ]

    def is_number(self) -> bool:
        """Return whether a part of it can be a number of seven or more digits."""
        return any(self._numbers()) or self._is_number_in_list()

    def digits(self) -> int:
        """Return how many digits are not part of a date, a year or an amount."""
        return sum(
            len(checks.digits_of(self._text[start:end]))
            for kind, start, end in self.places
            if kind != "date"
            and not _YEARS.fullmatch(self._text, start, end)
            and not _CURRENCY_BEFORE.search(self._text[max(start - 4, 0) : start])
        )

    def _numbers(self) -> Iterator[bool]:
        for kind, start, end in self.places:
            if kind != "row" or end - start < MIN_DIGITS:
                continue
            found = self._text[start:end]
            if len(checks.digits_of(found)) >= MIN_DIGITS:
                yield not (
                    _HARMLESS.fullmatch(found)
                    or checks.is_series(_DIGITS.findall(found))
                    or self._is_thing(found, start, end)
                )

    def _is_thing(self, found: str, start: int, end: int) -> bool:
        """Return whether the context shows that a number is not a person's."""
        before = self._text[max(start - _BEFORE, 0) : start]
        if _MARK_BEFORE.search(before) or _THING_BEFORE.search(before):
            return True
        if len(checks.digits_of(found)) <= _MOST_OF_LAW and _LAW_BEFORE.search(before):
            return True
        if (found.isdecimal() or "." in found or _THOUSANDS.fullmatch(found)) and (
            _CURRENCY_BEFORE.search(before) or _UNIT_BEHIND.match(self._text, end)
        ):
            return True
        return found.isdecimal() and bool(
            _ARITHMETIC.search(before)
            or _ARITHMETIC_BEHIND.match(self._text, end)
            or is_book(found)
        )

    def _is_number_in_list(self) -> bool:
        """Return whether a list has a number's groups with equal separators."""
        texts = [
            self._text[start:end] if kind == "row" else ""
            for kind, start, end in self.places
        ]
        between = [
            self._text[one[2] : other[1]]
            for one, other in zip(self.places, self.places[1:], strict=False)
        ]
        return any(
            has_shape(texts[at : at + len(shape)], between[at:], shape)
            for shape in _DICTATED_SHAPES
            for at in range(len(texts) - len(shape) + 1)
        )


def is_counting(run: str) -> bool:
    """Return whether a run counts, by ones or tens, with commas in between."""
    parts = [each.rpartition(":")[2].strip() for each in run.split(",")]
    if len(parts) < _LEAST_COUNTED or not all(map(str.isdecimal, parts)):
        return False
    numbers = [int(each) for each in parts]
    steps = {late - early for early, late in pairwise(numbers)}
    return len(steps) == 1 and steps <= {1, 10} and numbers[0] in {0, *steps}


def has_shape(
    groups: Sequence[str], between: Sequence[str], shape: tuple[int, ...]
) -> bool:
    """Return whether groups are those of a telephone number or a personal number."""
    if tuple(map(len, groups)) != shape or len(set(between[: len(shape) - 1])) > 1:
        return False
    if not all(map(str.isdecimal, groups)):
        return False
    digits = "".join(groups)
    if shape == (3, 2, 4):
        return checks.ssn(digits)
    # Many a number is followed by a column of years; no exchange begins with 0 or 1.
    if shape == (3, 3, 4):
        return min(digits[0], digits[3]) > "1" and not re.fullmatch(
            checks.YEAR, groups[2]
        )
    return digits[0] == "0" != digits[1]


_ARTICLE_BEFORE = re.compile(
    r"(?<![^\W_])(?:isbn(?:-1[03])?|ean(?:-(?:8|13))?|upc|gtin(?:-1[234])?|barcode)"
    r"(?: (?:no\.?|number|code|is))?[\s:=#\"'(]{0,4}\Z",
    re.IGNORECASE,
)
_ARTICLE_DIGITS: Final = (8, 12, 13, 14)


def is_article(text: str, start: int, end: int) -> bool:
    """Return whether a number is labelled as a thing's, with that kind's check digit.

    GS1 General Specifications, 7.9: from the right, every second digit has weight
    three.
    """
    digits = text[start:end]
    return (
        digits.isdecimal()
        and len(digits) in _ARTICLE_DIGITS
        and _ARTICLE_BEFORE.search(text[max(start - _BEFORE, 0) : start]) is not None
        and sum(int(d) * (1 + 2 * (at % 2)) for at, d in enumerate(reversed(digits)))
        % 10
        == 0
    )


def is_book(digits: str) -> bool:
    """Return whether digits are an ISBN's thirteen (ISO 2108: an EAN from 978 on)."""
    if len(digits) != 13 or digits[:3] not in {"978", "979"}:  # noqa: PLR2004 - ISO 2108
        return False
    weights = (1, 3) * 7
    return sum(w * int(d) for w, d in zip(weights, digits, strict=False)) % 10 == 0


# --- numbers dictated in parts ------------------------------------------------------

# A group of a dictated number: nothing next to it makes it an amount or a name.
DICTATED_GROUP: Final = re.compile(
    r"(?<![\w$\u20ac\u00a3\u00a5%])(?<!\d[.,])\d{1,10}(?![\w%\u20ac\u00b0]|[.,]\d)"
)
DICTATED_GAP: Final = 40  # characters between two groups, including the words there
DICTATED_REACH: Final = 60  # between the groups and a label
_DICTATED_MOST: Final = 20  # groups, if each is a digit; else
_DICTATED_GROUPS: Final = 7  # as many as any number is printed in
# Labels, and the number of digits that each of them implies.
_SOCIAL = (
    r"ssn|soc(?:ial)?[\W_]{0,3}sec(?:urity)?|(?:my|his|her|their|your) social|"
    r"social(?= ?[:=])"
)
_CARD = (
    r"(?:credit |debit |bank )?card (?:number|no\.?|#)|karten-?n(?:umme)?r|"
    r"num[eé]ro de (?:la )?carte|n[uú]mero de (?:la )?tarjeta|"
    r"numero (?:della )?carta|kaartnummer|n[uú]mero do cart[aã]o|numer karty|kortnummer"
)
_ACCOUNT = (
    r"(?:bank )?account (?:number|no\.?|#)|konto-?n(?:umme)?r|num[eé]ro de compte|"
    r"n[uú]mero de cuenta|numero di conto|n[uú]mero da conta|rekeningnummer|numer konta"
)
_TELEPHONE = (
    r"(?:phone|telephone|mobile|cell|fax|telefon|handy)[ \-]?(?:number|no\.?|#|"
    r"nummer)|num[eé]ro de t[eé]l[eé]phone|n[uú]mero de tel[eé]fono|"
    r"numero di telefono|telefoonnummer|mobilnummer|numer telefonu|"
    r"call me(?: back)? (?:at|on)|(?:mon|mein|mijn|mi|il mio|o meu|meu) "
    r"(?:t[eé]l[eé]phone|portable|telefon|handy|handynummer|nummer|telefoon|mobiel|"
    r"tel[eé]fono|m[oó]vil|cellulare|telefone|telem[oó]vel|celular|n[uú]m[eé]ro)|"
    r"(?:telefoon|telefon|t[eé]l[eé]phone|telefone|tel[eé]fono) ?:"
)
_OFFICIAL = (
    r"nhs(?: n(?:umber|o)\.?)?|bsn|burgerservicenummer|citizen service number|nir|"
    r"s[eé]curit[eé] sociale|n[°º] ?s[eé]cu|dni|nif|contribuinte|pesel|"
    r"cpr(?:-nummer)?|personnummer|f[øo]dselsnummer|henkil[öo]tunnus|hetu|"
    r"rijksregisternummer|insz|niss|(?:num[eé]ro|n[uú]mero) (?:national|nacional)|"
    r"ahv(?:-n(?:umme)?r)?|\w{0,12}versicherungs-?n(?:umme)?r|sv-n(?:umme)?r|"
    r"versichertennummer|cpf|idnr|steuer-?id\w{0,24}|pps[ns]?|"
    r"social insurance number|tax file number|tfn|aadh?aar|mrn|"
    r"(?:national |tax |identity |passport |member |patient |insurance |medical |"
    r"record |customer )(?:id )?(?:number|no\.?|record)"
)
# Labels, and the number of digits that each of them implies.
DICTATED_LABELS: Final[tuple[tuple[str, Collection[int]], ...]] = (
    (_SOCIAL, {9}),
    (_CARD, {13, 14, 15, 16, 19}),
    (_ACCOUNT, range(7, 15)),
    (_TELEPHONE, {7, *range(9, 14)}),
    (_OFFICIAL, {*range(8, 14), 15}),
)


def dictated(text: str) -> Iterator[list[tuple[int, int]]]:
    """Yield groups of digits with little between them."""
    row: list[tuple[int, int]] = []
    for match in DICTATED_GROUP.finditer(text):
        if row and match.start() - row[-1][1] > DICTATED_GAP:
            yield row
            row = []
        row.append(match.span())
    if row:
        yield row


def called(
    groups: Sequence[tuple[int, int]], label: tuple[int, int], counts: Collection[int]
) -> tuple[int, int] | None:
    """Return the position of a number in parts that a label refers to, or None.

    Args:
        groups: the positions of all groups in a text, in order.
        label: the position of the label: before the number, or right after it.
        counts: the possible numbers of digits.
    """
    ahead = bisect_left(groups, (label[1], 0))
    behind = bisect_left(groups, (label[0], 0))
    return _called(groups[ahead : ahead + _DICTATED_MOST], label[1], counts) or _called(
        [
            (-end, -start)
            for start, end in groups[max(behind - _DICTATED_MOST, 0) : behind]
        ][::-1],
        -label[0],
        counts,
    )


def _called(
    groups: Sequence[tuple[int, int]], label: int, counts: Collection[int]
) -> tuple[int, int] | None:
    """Do the same for groups after a label; negative positions mean before it."""
    at, reach, digits = label, DICTATED_REACH, 0
    for count, (start, end) in enumerate(groups, 1):
        if start - at > reach or (count > _DICTATED_GROUPS and digits >= count):
            return None
        at, reach, digits = end, DICTATED_GAP, digits + end - start
        if count > 1 and digits in counts:
            first = groups[0][0]
            return (first, end) if first >= 0 else (-end, -first)
    return None
