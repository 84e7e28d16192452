"""Alternative readings of a text, which undo what an evader or a machine may have done.

A text is read raw, then folded (NFKC, without invisible characters, digits of every
script as ASCII), with look-alike letters replaced, with its encodings undone and the
result folded again, and with spelled or separated parts joined (``respelling``). Each
reading is scanned and has its own offsets.
"""

import base64
import binascii
import html
import quopri
import re
import unicodedata
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TypeVar, cast
from urllib.parse import unquote

from curtilage.client.detection.detectors.disguised_words import respelled
from curtilage.client.detection.detectors.languages.stretches import Stretch
from curtilage.client.detection.detectors.languages.stretches import (
    stretches as languages_of,
)
from curtilage.client.detection.detectors.respelling import compact, made_in, unmarked
from curtilage.client.detection.packs import ENGLISH, PACKS
from curtilage.policy.decision.findings import Normalization

DECODE_LEVELS = 3  # entities in quoted-printable in base64: a page in a mail
MAX_DECODED_CHARS = 40_000  # or the text's length, if longer; the rest is cut
_MIN_PRINTABLE = 0.95
_MIN_DECODED_CHARS = 6

_DASHES = dict.fromkeys(
    map(ord, "\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe58\ufe63\uff0d"), "-"
)
_CYRILLIC = dict(
    zip(
        "\u0430\u0435\u043e\u0440\u0441\u0443\u0445\u0456\u0458\u0455\u0501\u04bb\u04cf\u0410\u0412\u0415\u041a\u041c\u041d\u041e\u0420\u0421\u0422\u0425\u0406\u0408\u0405",
        "aeopcyxijsdhlABEKMHOPCTXIJS",
        strict=True,
    )
)
_GREEK = dict(
    zip(
        "\u03b1\u03bf\u03b9\u03bd\u03c1\u03c4\u03c5\u03ba\u0391\u0392\u0395\u0396\u0397\u0399\u039a\u039c\u039d\u039f\u03a1\u03a4\u03a5\u03a7",
        "aoivptukABEZHIKMNOPTYX",
        strict=True,
    )
)
_LOOK_ALIKES = {ord(key): value for key, value in (_CYRILLIC | _GREEK).items()}


def _letters_by_name() -> Iterator[tuple[int, str]]:
    """Yield the letters that NFKC does not change, or puts in brackets.

    Small capitals become small letters, since texts in small capitals have both kinds.
    """
    named = re.compile(
        r"(?:(?P<large>NEGATIVE (?:CIRCLED|SQUARED) LATIN CAPITAL|PARENTHESIZED LATIN "
        r"CAPITAL)|PARENTHESIZED LATIN SMALL|"
        r"LATIN LETTER SMALL CAPITAL|LATIN SMALL LETTER TURNED) (?:LETTER )?([A-Z])"
    )
    for first, end in ((0x180, 0x2B0), (0x1D00, 0x1DC0), (0x249C, 0x24B6),
                       (0xA720, 0xA800), (0x1F100, 0x1F1E6)):  # fmt: skip
        for code in range(first, end):
            found = named.fullmatch(unicodedata.name(chr(code), ""))
            if found is not None:
                yield code, found[2] if found["large"] else found[2].lower()


_LETTERS = dict(_letters_by_name())
# Two of them are a flag, which hides nothing.
_REGIONAL = re.compile("[\U0001f1e6-\U0001f1ff]+")
_FLAG_CHARS = 2

_ESCAPE = re.compile(r"\\u([0-9a-fA-F]{4})|\\x([0-9a-fA-F]{2})")
_TAGS = re.compile(r"(?:</?[A-Za-z][^<>]{0,200}>|<!--|-->)+")
# Cells, lines and paragraphs: they separate the words on their two sides.
_BLOCK = re.compile(
    r"</?(?:br|p|div|li|[uod]l|d[td]|t[dhr]|h[1-6r]|table|tbody|thead|caption|title|"
    r"option|label|button|section|article|header|footer|nav|main|pre|blockquote)(?!\w)",
    re.IGNORECASE,
)
# "key": "value" and 'key' => 'value', as a label and its value.
_KEY = re.compile(
    r"(\\?[\"'])([^\W\d][\w .\-]{0,40})\1\s{0,3}(?::|=>)\s{0,3}(?:\\?[\"'])?"
)
# <key>value</key>, alone between spaces or tags; web pages have no such tags.
_FIELD = re.compile(
    r"(?<!\w)<(?!(?:h\d|span|strong|font|small|sub|sup|mark|code|kbd|var|big|del|ins|"
    r"abbr|cite|dfn|samp|bdi|bdo|div|pre|title|option|label|button|body|html|head|"
    r"script|style|textarea|summary|ruby|center|strike|caption|article|section|"
    r"header|footer|nav|main|aside|select|table|form|em|tt)\b)"
    r"([A-Za-z][\w.:\-]{2,40})>([^<>]{1,200})</\1>(?!\w)"
)
# A star between blanks is multiplication.
_MARKDOWN = re.compile(r"(?<![*\s])\*{1,3}(?!\*)|(?<!\*)\*{1,3}(?![*\s])|`{1,3}|__|~~")
_MARKS = "*`_~"
_ENCODED = re.compile(r"(?<![A-Za-z0-9+/_\-])[A-Za-z0-9+/_\-]{11,}={0,2}")
# base64 that is cut into pieces: no piece looks like a word.
_PIECES = re.compile(
    r"(?<!\S)(?:(?=[A-Za-z0-9+/]{0,76}?(?:[a-z][A-Z]|\d[A-Za-z]|[A-Za-z]\d|=))"
    r"[A-Za-z0-9+/]{2,76}={0,2}(?:\s{1,2}|\Z)){2,}"
)
_BASE32 = re.compile(r"[A-Z2-7]{16,}")
# Quoted-printable (RFC 2045, 6.7): a row of bytes; or single bytes and continued lines,
# if no "=" is anything else and one of them is rare in other texts.
_OCTETS = re.compile(r"(?:=[0-9A-Fa-f]{2}){2,}")
_OCTET = re.compile(r"(?:=[0-9A-F]{2})+")
_SOFT_BREAK = re.compile(r"(?<=[^\s=])=[ \t]*\r?\n(?=[^\s=])")
_NOT_QUOTED = re.compile(r"=(?![0-9A-F]{2}|[ \t]*\r?\n|[ \t]*\Z)")
_QUOTED = re.compile(r"=3D|=20\r?\n|[^\s=]=\r?\n[^\s=]|(?:=[0-9A-F]{2}){2}")
# Encoded words (RFC 2047, 2), and text that only begins like one. Spaces between two of
# them are not part of the text (6.2).
ENCODED_WORD = re.compile(
    r"=\?(?P<charset>[A-Za-z][\w\-]{2,40})(?:\*[\w\-]{1,20})?\?(?P<kind>[A-Za-z])\?"
    r"(?:(?P<text>[^?\s]{0,1000})\?=(?:\s{1,3}(?==\?[A-Za-z]))?)?"
)
# In other alphabets than these, the text would be in no covered language.
_CHARSETS = re.compile(
    r"utf-?8|us-ascii|ascii|latin-?1|iso-8859-(?:1|2|3|4|9|10|13|14|15|16)|"
    r"windows-125[0247]",
    re.IGNORECASE,
)
# A text without these words, and with two of them reversed, is reversed.
_FUNCTION_WORD = re.compile(
    r"(?<!\w)(?:the|an?|is|are|was|my|to|of|and|in|for|you|with|it|this|that|at|on|i)"
    r"(?!\w)",
    re.IGNORECASE,
)
_MIN_TURNED_CHARS = 20

_Made = TypeVar("_Made")


@dataclass(frozen=True, kw_only=True)
class Reading:
    """One reading of a text.

    Attributes:
        normalization: which reading.
        text: the text in this reading.
        made: offsets of digits that this reading produced.
        cut: whether this reading ends before the text does.
    """

    normalization: Normalization
    text: str = field(repr=False)
    made: frozenset[int] = frozenset()
    cut: bool = False
    _once: dict[object, object] = field(
        default_factory=dict[object, object], init=False, repr=False, compare=False
    )

    def once(self, make: Callable[["Reading"], _Made]) -> _Made:
        """Return a function's result for this reading, computed only once.

        For results that several detectors need. They are dropped with the reading: no
        text outlives its query here.
        """
        if make not in self._once:
            self._once[make] = make(self)
        return cast("_Made", self._once[make])

    def keep(self, make: Callable[["Reading"], _Made], made: _Made) -> None:
        """Store a function's result for this reading that was already computed."""
        self._once[make] = made

    @property
    def stretches(self) -> tuple[Stretch, ...]:
        """The parts of the text that are in some language.

        Raises:
            Exception: of any kind, if the identifier cannot be loaded.
        """
        return self.once(_stretches)

    @property
    def packs(self) -> tuple[str, ...]:
        """The covered languages other than English that a part may be in."""
        here = self.once(_languages)
        return tuple(code for code in PACKS if code in here)

    @property
    def english(self) -> bool:
        """Whether a part may be in English, or none is in another covered language."""
        return not self.packs or ENGLISH in self.once(_languages)

    def in_english(self, start: int, end: int) -> bool:
        """Return whether the text at a position may be English.

        "Er" and "im" are a hospital ward and "I'm" in English, and ordinary German
        words.
        """
        if not self.packs:
            return True
        # A clause in another language comes before the sentence that contains it.
        around = [each for each in self.stretches if each.start <= start < each.end]
        if around and ENGLISH not in around[0].languages:
            return False
        found = self.text[start:end].lower()
        here = frozenset[str]().union(*(each.languages for each in around))
        return not any(found in PACKS[code].words for code in here & PACKS.keys())


def _stretches(reading: Reading) -> tuple[Stretch, ...]:
    text = reading.text
    if unicodedata.is_normalized("NFC", text):
        return tuple(languages_of(text))
    # A combining accent splits words, and fragments may be in any language. Each letter
    # is joined with its accents; the positions are still those of the text.
    ends = [
        at for at, char in enumerate(text) if at and not unicodedata.combining(char)
    ]
    clusters = list(pairwise((0, *ends, len(text))))
    parts = [unicodedata.normalize("NFC", text[begin:end]) for begin, end in clusters]
    places = [place for place, part in zip(clusters, parts, strict=True) for _ in part]
    return tuple(
        replace(each, start=places[each.start][0], end=places[each.end - 1][1])
        for each in languages_of("".join(parts))
    )


def _languages(reading: Reading) -> frozenset[str]:
    """Return the languages of a text's parts.

    A part with several candidates is in those that the rest of the text is certainly
    in, if any: "error" and "data" are English next to English.
    """
    parts = [each.languages for each in reading.stretches]
    sure = frozenset[str]().union(*(each for each in parts if len(each) == 1))
    return frozenset[str]().union(*(each & sure or each for each in parts))


def readings(text: str) -> Iterator[Reading]:
    """Yield the raw text, then every reading that differs from those before."""
    # Each is made from the one before, since disguises are stacked.
    yield Reading(normalization=Normalization.RAW, text=text)
    folded = fold(text)
    if folded != text:
        yield Reading(normalization=Normalization.NFKC, text=folded)
    replaced = folded if folded.isascii() else folded.translate(_LOOK_ALIKES)
    if replaced != folded:
        yield Reading(normalization=Normalization.CONFUSABLE, text=replaced)
    decoded, cut = decode(replaced, most=max(MAX_DECODED_CHARS, len(text)))
    mended = respelled(decoded)
    if mended != replaced:
        yield Reading(normalization=Normalization.DECODED, text=mended, cut=cut)
    # Not from the last reading: half of an address would already be joined.
    marked = compact(decoded)
    if marked != decoded:
        yield Reading(
            normalization=Normalization.COMPACT,
            text=unmarked(marked),
            made=made_in(marked),
        )


def fold(text: str) -> str:
    """Return NFKC without invisible characters, with digits and dashes as ASCII.

    Letters in boxes and similar ones become letters, which NFKC does not do.
    """
    if text.isascii():
        return text
    text = _REGIONAL.sub(_spelled, text).translate(_LETTERS)
    kept = (
        char
        for char in unicodedata.normalize("NFKC", text)
        if unicodedata.category(char) not in {"Cf", "Mn", "Co"}
    )
    return "".join(map(_ascii_digit, kept)).translate(_DASHES)


def _spelled(row: re.Match[str]) -> str:
    """Return regional indicators as their letters."""
    if len(row[0]) == _FLAG_CHARS:
        return row[0]
    return "".join(chr(ord(char) - 0x1F1E6 + ord("A")) for char in row[0])


def _ascii_digit(char: str) -> str:
    return (
        str(unicodedata.digit(char)) if char.isdigit() and not char.isascii() else char
    )


def decode(text: str, *, most: int = MAX_DECODED_CHARS) -> tuple[str, bool]:
    """Undo entities, escapes, quoted keys, tags, Markdown, mail encodings and base64.

    Three times, since encodings are stacked; each result is folded.

    Args:
        text: already folded; a single character may have become eighteen.
        most: the maximum length of the result in characters.

    Returns:
        The text, and whether it was cut.
    """
    cut = False
    for _ in range(DECODE_LEVELS):
        undone = _decode_once(text)
        cut = cut or len(undone) > most
        if not undone.isascii():
            undone = fold(undone[:most]).translate(_LOOK_ALIKES)
            cut = cut or len(undone) > most
        if undone == text:
            break
        text = undone[:most]
    return text[:most], cut


def _decode_once(text: str) -> str:
    # First, as the outermost encoding: marks inside it are not Markdown.
    text = _unpacked(text)
    if "&" in text:
        text = html.unescape(text)
    if "%" in text:
        text = unquote(text)
    if "\\" in text:
        text = _ESCAPE.sub(lambda match: chr(int(match[1] or match[2], 16)), text)
    if '"' in text or "'" in text:
        text = _KEY.sub(r"\2: ", text)
    if "</" in text:
        text = _FIELD.sub(r"\1: \2 ", text)
    if "<" in text:
        text = _TAGS.sub(_without_tags, text)
    if any(map(text.__contains__, _MARKS)):
        text = _MARKDOWN.sub("", text)
    return text[::-1] if _is_turned(text) else text


def _unpacked(text: str) -> str:
    """Undo the encodings of mail: encoded words, base64, quoted-printable."""
    if "=?" in text:
        text = ENCODED_WORD.sub(lambda word: word_text(word) or word[0], text)
    text = _PIECES.sub(_joined_pieces, text)
    text = _ENCODED.sub(lambda match: hidden_text(match[0]) or match[0], text)
    # After base64, in which "=" at a line's end is padding, not a continued line.
    return _unquoted(text) if "=" in text else text


def _without_tags(match: re.Match[str]) -> str:
    """Return the replacement for tags: a space if they separate two words."""
    start, end = match.span()
    apart = (
        match.string[start - 1 : start].isalpha()
        and match.string[end : end + 1].isalpha()
        and _BLOCK.search(match[0])
    )
    return " " if apart else ""


def word_text(word: re.Match[str]) -> str | None:
    """Return the text of an encoded word, or None if it cannot be decoded."""
    text, kind = word["text"], word["kind"].upper()
    if text is None or not _CHARSETS.fullmatch(word["charset"]):
        return None
    try:
        octets = text.encode("ascii")
        if kind == "B":
            octets = base64.b64decode(octets + b"=" * (-len(octets) % 4), validate=True)
        elif kind == "Q":
            octets = quopri.decodestring(octets, header=True)
        else:
            return None
        return octets.decode(word["charset"])
    except (ValueError, LookupError):
        return None


def _joined_pieces(match: re.Match[str]) -> str:
    found = hidden_text("".join(match[0].split()))
    return match[0] if found is None else found


def _unquoted(text: str) -> str:
    """Undo quoted-printable; bytes that are not text are unchanged."""

    def shown(match: re.Match[str]) -> str:
        octets = bytes.fromhex(match[0].replace("=", ""))
        for charset in ("utf-8", "cp1252"):
            try:
                found = octets.decode(charset)
            except UnicodeDecodeError:
                continue
            return found if _is_shown(found) else match[0]
        return match[0]

    quoted = _QUOTED.search(text) is not None and _NOT_QUOTED.search(text) is None
    text = _OCTETS.sub(shown, text)
    return _OCTET.sub(shown, _SOFT_BREAK.sub("", text)) if quoted else text


def _is_shown(text: str) -> bool:
    shown = sum(char.isprintable() or char.isspace() for char in text)
    return shown >= _MIN_PRINTABLE * len(text)


def _is_turned(text: str) -> bool:
    """Return whether a text is reversed."""
    if len(text) < _MIN_TURNED_CHARS or _FUNCTION_WORD.search(text):
        return False
    return len(_FUNCTION_WORD.findall(text[::-1])) > 1


def hidden_text(token: str) -> str | None:
    """Return the text in a base64, base32 or hex token, with spaces, or None."""
    plain = token.rstrip("=")
    for undo in (binascii.unhexlify, _from_base64, _from_base32):
        try:
            found = undo(plain).decode()
        except (ValueError, UnicodeDecodeError):
            continue
        if len(found) >= _MIN_DECODED_CHARS and _is_shown(found):
            return f" {found} "
    return None


def _from_base64(plain: str) -> bytes:
    padded = plain.translate({45: "+", 95: "/"}) + "=" * (-len(plain) % 4)
    return base64.b64decode(padded, validate=True)


def _from_base32(plain: str) -> bytes:
    if _BASE32.fullmatch(plain) is None:
        raise ValueError("not in base32's alphabet, or too short to tell")
    return base64.b32decode(plain + "=" * (-len(plain) % 8))


# --- where readings differ
# --------------------------------------------------------------

_WORD = re.compile(r"(?<![^\W_])\d*[^\W\d_][^\W_]+")
_AROUND = 160  # characters on either side of a word that are read again


def words_of(text: str) -> set[str]:
    """Return a text's words of two or more letters, in lower case."""
    return {match[0].lower() for match in _WORD.finditer(text)}


def undone(read: Sequence[Reading]) -> Reading:
    """Return the reading in which the most is undone, but nothing is joined."""
    return [each for each in read if each.normalization is not Normalization.COMPACT][
        -1
    ]


def stretches(text: str, words: Container[str]) -> Iterator[tuple[int, int]]:
    """Yield the parts of a text with some given words, separate and in order.

    Each with its context, cut at spaces, so that it can be read alone.

    Args:
        text: any text.
        words: in the form that ``words_of`` returns.
    """
    begun: tuple[int, int] | None = None
    for match in _WORD.finditer(text):
        if match[0].lower() not in words:
            continue
        start, end = max(match.start() - _AROUND, 0), match.end() + _AROUND
        if start:
            space = text.find(" ", start, match.start())
            start = start if space < 0 else space + 1
        if end < len(text):
            space = text.rfind(" ", match.end(), end)
            end = end if space < 0 else space
        end = min(end, len(text))
        if begun is None or start > begun[1]:
            if begun is not None:
                yield begun
            begun = start, end
        else:
            begun = begun[0], max(end, begun[1])
    if begun is not None:
        yield begun
