"""Joins text that was spelled out, spaced, mistyped or split.

Digits that are made here, and were not written, are kept in a private range of code
points until the end. A run of digits counts only if some of them were made, since
joined lines alone would turn every table into a number.
"""

import ipaddress
import re
from typing import Final

from curtilage.client.detection.detectors import told_numbers

# A digit that a reading made is in this private range until the end.
_MADE: Final = 0xE000
_MADE_DIGITS: Final = {_MADE + number: str(number) for number in range(10)}
_MARK: Final = "\ue000-\ue009"
_ANY_MADE = re.compile(f"[{_MARK}]")
_DIGIT = re.compile(r"\d")
_JOINT: Final = "\x1e"

_UNITS: Final = {
    name: str(number)
    for number, names in enumerate(
        (
            "zero oh nought naught",
            "one",
            "two",
            "three",
            "four",
            "five",
            "six",
            "seven",
            "eight",
            "nine niner",
        )
    )
    for name in names.split()
}
_TEENS: Final = {
    name: str(10 + number)
    for number, name in enumerate(
        (
            "ten",
            "eleven",
            "twelve",
            "thirteen",
            "fourteen",
            "fifteen",
            "sixteen",
            "seventeen",
            "eighteen",
            "nineteen",
        )
    )
}
_TENS: Final = {
    name: str(2 + number)
    for number, name in enumerate(
        ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
    )
}
_TIMES: Final = {"double": 2, "triple": 3, "treble": 3, "quadruple": 4}
# "two sevens", "a pair of nines".
_SEVERAL: Final = {"two": 2, "three": 3, "four": 4, "five": 5, "a pair of": 2}
_PLURALS: Final = {"zeroes": "0", "sixes": "6"} | {
    f"{name}s": digit for name, digit in _UNITS.items()
}
_SPELLED: Final = _UNITS | _TEENS
_WORDS = "|".join([*_SPELLED, *_TENS, *_TIMES])
_SPELLED_WORD = re.compile(
    rf"(?<!\w)(?:(?P<several>{'|'.join(_SEVERAL)}) (?P<many>{'|'.join(_PLURALS)})|"
    rf"(?P<ten>{'|'.join(_TENS)})"
    rf"(?:[ \-]?(?P<unit>{'|'.join(name for name in _UNITS if name != 'oh')})(?!\w))?|"
    rf"(?:(?P<times>{'|'.join(_TIMES)}),? (?:the )?)?"
    rf"(?P<one>{'|'.join(_SPELLED)}|\d)(?P<hundred> hundred)?)(?!\w)",
    re.IGNORECASE,
)
# Marks and pauses that are dictated between digits. Between written numbers, "then" and
# "next" belong to a list, so they count only between spoken digits or single ones.
_PAUSE = (
    r"dash|hyphen|um+|uh+|erm?|\(?pause\)?|bindestrich|tiret|gui[oó]n|trattino|"
    r"streepje|tra[cç]o|h[ií]fen|bindestreck|my[śs]lnik|ähm?|euh|spaces?|gap|blank|"
    r"leerzeichen|espace|espacio|spazio|spatie|espaço"
)
_THEN = (
    r"then|next|and|now|again|(?:a )?new ?line|line break|followed by|after that|dot|"
    r"point|period|full stop|stop|slash|minus|underscore|break"
)
_SPOKEN_MARK = re.compile(
    rf"([\d{_MARK}])(?:[ ,.]{{1,4}}(?:(?:an? |the )?(?:{_PAUSE})(?!\w))){{1,3}}"
    rf"[ ,.]{{1,4}}(?=[\d{_MARK}])|"
    rf"([{_MARK}])(?:[ ,.]{{1,4}}(?:(?:an? |the )?(?:{_PAUSE}|{_THEN})(?!\w))){{1,3}}"
    rf"[ ,.]{{1,4}}(?=[{_MARK}])|"
    rf"((?<![\w.,])\d) {{1,3}}(?:then|next|new ?line) {{1,3}}(?=\d(?![\w]|[.,]\d))|"
    # Between two spoken digits and two more, any word or two is a pause.
    rf"(?<=[{_MARK}][ ,.\-])([{_MARK}])(?:[ ,.]{{1,4}}[^\W\d_]{{1,14}}){{1,2}}"
    rf"[ ,.]{{1,4}}(?=[{_MARK}][ ,.\-]{{1,3}}[{_MARK}])",
    re.IGNORECASE,
)
# "o" is a zero only between spoken digits.
_LETTER_ZERO = re.compile(
    rf"(?<=[{_MARK}])([ ,.]{{1,3}})o(?=[ ,.]{{1,3}}[{_MARK}])", re.IGNORECASE
)
_NUMBER_WORDS: Final = frozenset({*_SPELLED, *_TENS})
_LETTERS_ROW = re.compile(r"[a-z]+")

# A letter in place of a digit between digits: l and I for 1, O for 0.
_LETTERS: Final = {"o": "0", "O": "0", "l": "1", "I": "1", "|": "1", "S": "5", "B": "8"}
_MISTYPED = re.compile(r"(?<=\d)[lI|oO](?![a-zA-Z]{2})|(?<![a-zA-Z\d])[lI|oO](?=\d)")
# A separate bar belongs to a table.
_SIGN = r"(?:[\dlIoOSB]|\|(?=[\dlIoO|])|(?<=[\dlIoO|])\|)"
_MISTYPED_RUN = re.compile(
    rf"(?<![A-Za-z]){_SIGN}(?:[ .\-/_:()]{{0,2}}{_SIGN}){{6,}}(?![A-Za-z])"
)
_TABLE_ROW = re.compile(r"\|[^|\n]*\|")
_ACRONYM = re.compile(r"(?<![\dA-Za-z|])(?=O*[ISB])[OISB]{2,}(?![\dA-Za-z|])")
_MISTYPED_ADDRESS = re.compile(
    r"(?<![\w.])[\dlI|oO]{1,3}(?:\.[\dlI|oO]{1,3}){3}(?!\w|\.\w)"
)
_MIN_TRUE_SHARE: Final = 0.5  # of a run with S or B in it

_LEFT, _RIGHT = rf"(?<=[\w{_MARK}])", rf"(?=[\w{_MARK}])"
_OPEN, _CLOSE = r"\s?[\[({<]\s?", r"\s?[\])}>]\s?"
_AT = re.compile(rf"{_LEFT}(?:{_OPEN}at{_CLOSE}|\s?\bat\b\s?){_RIGHT}", re.IGNORECASE)
_AT_BRACKETED = re.compile(rf"{_LEFT}{_OPEN}(?:at|@){_CLOSE}{_RIGHT}", re.IGNORECASE)
_AT_DOTTED = re.compile(
    r"(?<!\S)([\w+\-]{1,30}[._\d][\w.+\-]{0,30}) at "
    r"([\w\-]{1,40}(?:\.[\w\-]{2,40}){1,4})",
    re.IGNORECASE,
)
_DOT = re.compile(
    rf"{_LEFT}(?:{_OPEN}(?:dot|\.){_CLOSE}|\s?\bdot\b\s?){_RIGHT}", re.IGNORECASE
)
_SPACED = re.compile(r"(?<!\S)(?:\S[ \t]{1,3}){4,}\S(?!\S)")
_MADE_ROW = re.compile(rf"[{_MARK}](?:[ ][{_MARK}]){{2,}}")
_SEPARATED = re.compile(r"(?<!\S)\S([._/|*,+~\-])\S(?:\1\S){4,}(?!\S)")

_BROKEN = re.compile(r"(?<=[\d@.\-/])[ \t]?\r?\n[ \t]*(?=[\d@.\-/])")
# A line's end, or the joint between two texts (``turns``).
_END = r"[ \t]?(?:\r?\n|\x1e)[ \t]*"
_BROKEN_ADDRESS = re.compile(
    rf"(?<=@){_END}(?=\w)|(?<=\w\.){_END}(?=[a-z]{{2,6}}(?!\w))|"
    rf"((?<!\S)[\w+\-]{{1,30}}[._\d][\w.+\-]{{0,30}}){_END}"
    r"(?=@[\w\-]+\.[a-z]{2,6}(?![\w.(]))"
)
_LIST_NUMBER = re.compile(r"\s*\d{1,3}[.)]?\s*")
_GLUED_IP = re.compile(
    r"(?<=[A-Za-z_])(?<![vV])(?<![\d.])(\d{1,3}(?:\.\d{1,3}){3})(?!\d|\.\d)|"
    r"(?<![\w.])(\d{1,3}(?:\.\d{1,3}){3})(?=[A-Za-z_])"
)
_OTHER_IP = re.compile(
    r"(?<![\w./\-])\d{1,3}([_/\-])\d{1,3}\1\d{1,3}\1\d{1,3}(?![\w/\-]|[.,:]\d)"
)
_USUAL_OCTETS: Final = frozenset({"10", "172", "192"})
_LARGE_OCTET: Final = 100


def compact(text: str) -> str:
    """Join what was spelled or split; made digits are in the private range."""
    # Before the English ones: "six" is French in a row of French numbers.
    text = told_numbers.replaced(text, _made)
    lower = text.lower()
    if not _NUMBER_WORDS.isdisjoint(_LETTERS_ROW.findall(lower)):
        text = _SPELLED_WORD.sub(_digits_of, text)
    dotted = text.count(".") >= _DOTS
    if dotted or _DIGIT.search(text) or _ANY_MADE.search(text):
        text = _LETTER_ZERO.sub(lambda match: match[1] + _made("0"), text)
        text = _SPOKEN_MARK.sub(_joined_at_mark, text)
        text = _OTHER_IP.sub(_as_address, _without_slips(text))
    text = _with_marks(text, lower)
    text = _MADE_ROW.sub(lambda match: match[0].replace(" ", ""), text)
    text = _SPACED.sub(lambda match: _made_of(re.sub(r"[ \t]", "", match[0])), text)
    text = _SEPARATED.sub(lambda match: match[0].replace(match[1], ""), text)
    if "\n" in text or _JOINT in text:
        text = _mended(text)
    if dotted:
        text = _GLUED_IP.sub(lambda match: f" {match[1] or match[2]} ", text)
    return text


_DOTS: Final = 3  # in an address of four numbers


def made_in(marked: str) -> frozenset[int]:
    """Return the offsets of digits that were made."""
    return frozenset(match.start() for match in _ANY_MADE.finditer(marked))


def unmarked(marked: str) -> str:
    """Return a text in which made digits are ordinary ones."""
    return marked.translate(_MADE_DIGITS)


def _made(digits: str) -> str:
    return "".join(chr(_MADE + int(digit)) for digit in digits)


def _digits_of(match: re.Match[str]) -> str:
    """Return one spelled number; "double two" is two of them."""
    if match["ten"]:
        unit = match["unit"]
        last = "0" if unit is None else _UNITS[unit.lower()]
        return _made(_TENS[match["ten"].lower()] + last)
    if match["several"]:
        digit = _PLURALS[match["many"].lower()]
        return _made(digit * _SEVERAL[match["several"].lower()])
    word = match["one"].lower()
    more = _made("00") if match["hundred"] else ""
    if match["times"] is None:
        return match[0] if word.isdigit() else _made(_SPELLED[word]) + more
    return _made(_SPELLED.get(word, word)) * _TIMES[match["times"].lower()] + more


def _made_of(text: str) -> str:
    """Return a text whose digits are made: they were not written together."""
    return "".join(_made(c) if c.isascii() and c.isdigit() else c for c in text)


def _joined_at_mark(match: re.Match[str]) -> str:
    """Return the digit before a dictated mark, as a made one, and a dash."""
    digit = match[1] or match[2] or match[3] or match[4]
    return f"{_made(digit) if digit.isdecimal() else digit}-"


def _without_slips(text: str) -> str:
    """Return a text in which letters in place of digits are digits."""
    if "|" in text and _TABLE_ROW.search(text):
        parts = text.split("|")
        return "|".join(_without_slips(each) for each in parts)
    text = _MISTYPED_RUN.sub(_corrected, text)
    text = _MISTYPED_ADDRESS.sub(_corrected, text)
    return _MISTYPED.sub(lambda match: _made(_LETTERS[match[0]]), text)


def _corrected(match: re.Match[str]) -> str:
    found = match[0]
    if _ACRONYM.search(found):
        return found  # "ISO 26262"
    signs = [char for char in found if char.isdigit() or char in _LETTERS]
    digits = sum(char.isdigit() for char in signs)
    doubtful = "S" in found or "B" in found
    if digits in {0, len(signs)} or (
        doubtful and digits < _MIN_TRUE_SHARE * len(signs)
    ):
        return found
    return "".join(_made(_LETTERS[c]) if c in _LETTERS else c for c in found)


def _with_marks(text: str, lower: str) -> str:
    """Return a text in which "at" and "dot" in an address are signs."""
    bracketed = any(map(text.__contains__, _OPENING))
    if bracketed:
        text = _AT_BRACKETED.sub("@", text)
    if " at " in lower:
        text = _AT_DOTTED.sub(r"\1@\2", text)
    if (bracketed or "dot" in lower) and _DOT.search(text):
        text = _DOT.sub(".", _AT.sub("@", text))
    return text


_OPENING: Final = "[({<"


def _mended(text: str) -> str:
    """Return a text in which no line ends inside a number or an address."""

    def join(match: re.Match[str]) -> str:
        start = text.rfind("\n", 0, match.start()) + 1
        return match[0] if _LIST_NUMBER.fullmatch(text, start, match.start()) else ""

    mended = _BROKEN.sub(join, text)
    if "@" not in mended:
        return mended
    return _BROKEN_ADDRESS.sub(lambda match: match[1] or "", mended)


def _as_address(match: re.Match[str]) -> str:
    """Return four numbers as an address if they are unlikely to be anything else."""
    octets = match[0].split(match[1])
    usual = octets[0] in _USUAL_OCTETS or (
        sum(int(octet) >= _LARGE_OCTET for octet in octets) > 1
    )
    try:
        return str(ipaddress.IPv4Address(".".join(octets))) if usual else match[0]
    except ValueError:
        return match[0]
