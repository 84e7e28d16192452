"""Other readings of a text, as an evader or a machine might have written it.

A text is read raw, then folded (NFKC, invisible characters dropped, digits of
every script as ASCII), with look-alike letters replaced, with its encodings
undone, and with what was spelled or torn apart joined (``respelling``). Each
reading is scanned; its offsets are its own.
"""

import base64
import binascii
import html
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, field
from urllib.parse import unquote

from curtilage.client.detection.detectors.respelling import compact, made_in, unmarked
from curtilage.policy.decision.findings import Normalization

DECODE_LEVELS = 2
MAX_DECODED_CHARS = 40_000  # or as the text was; what grows longer is cut
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

_ESCAPE = re.compile(r"\\u([0-9a-fA-F]{4})|\\x([0-9a-fA-F]{2})")
_TAG = re.compile(r"</?[A-Za-z][^<>]{0,200}>|<!--|-->")
# "key": "value" and 'key' => 'value', as what they say: a label and its value.
_KEY = re.compile(
    r"(\\?[\"'])([^\W\d][\w .\-]{0,40})\1\s{0,3}(?::|=>)\s{0,3}(?:\\?[\"'])?"
)
# <key>value</key>, alone between spaces or tags, where a page has no such tag.
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
# A text without one of these, and with two of them backwards, is backwards.
_FUNCTION_WORD = re.compile(
    r"(?<!\w)(?:the|an?|is|are|was|my|to|of|and|in|for|you|with|it|this|that|at|on|i)"
    r"(?!\w)",
    re.IGNORECASE,
)
_MIN_TURNED_CHARS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One reading of a text.

    Attributes:
        normalization: which reading.
        text: the text as read.
        made: offsets of digits that this reading produced.
        cut: whether this reading ends before the text does.
    """

    normalization: Normalization
    text: str = field(repr=False)
    made: frozenset[int] = frozenset()
    cut: bool = False


def readings(text: str) -> Iterator[Reading]:
    """Yield the raw text, then every reading that differs from those before."""
    # Each is made of the one before, since disguises are stacked.
    yield Reading(normalization=Normalization.RAW, text=text)
    folded = fold(text)
    if folded != text:
        yield Reading(normalization=Normalization.NFKC, text=folded)
    replaced = folded if folded.isascii() else folded.translate(_LOOK_ALIKES)
    if replaced != folded:
        yield Reading(normalization=Normalization.CONFUSABLE, text=replaced)
    decoded, cut = decode(replaced, most=max(MAX_DECODED_CHARS, len(text)))
    if decoded != replaced:
        yield Reading(normalization=Normalization.DECODED, text=decoded, cut=cut)
    marked = compact(decoded)
    if marked != decoded:
        yield Reading(
            normalization=Normalization.COMPACT,
            text=unmarked(marked),
            made=made_in(marked),
        )


def fold(text: str) -> str:
    """Return NFKC without invisible characters, digits and dashes as ASCII."""
    if text.isascii():
        return text
    kept = (
        char
        for char in unicodedata.normalize("NFKC", text)
        if unicodedata.category(char) not in {"Cf", "Mn", "Co"}
    )
    return "".join(map(_ascii_digit, kept)).translate(_DASHES)


def _ascii_digit(char: str) -> str:
    return (
        str(unicodedata.digit(char)) if char.isdigit() and not char.isascii() else char
    )


def decode(text: str, *, most: int = MAX_DECODED_CHARS) -> tuple[str, bool]:
    """Undo entities, escapes, quoted keys, tags, Markdown, percent, base64, hex.

    Twice, since encodings are stacked.

    Args:
        text: folded already; one character can have become eighteen.
        most: where it is cut, in characters.

    Returns:
        The text, and whether it was cut.
    """
    cut = False
    for _ in range(DECODE_LEVELS):
        undone = _decode_once(text)
        cut = cut or len(undone) > most
        if undone == text:
            break
        text = undone[:most]
    return text[:most], cut


def _decode_once(text: str) -> str:
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
        text = _TAG.sub("", text)
    if any(map(text.__contains__, _MARKS)):
        text = _MARKDOWN.sub("", text)
    text = _ENCODED.sub(lambda match: hidden_text(match[0]) or match[0], text)
    return text[::-1] if _is_turned(text) else text


def _is_turned(text: str) -> bool:
    """Tell whether a text is written from its end to its beginning."""
    if len(text) < _MIN_TURNED_CHARS or _FUNCTION_WORD.search(text):
        return False
    return len(_FUNCTION_WORD.findall(text[::-1])) > 1


def hidden_text(token: str) -> str | None:
    """Return the text that a base64 or hex token holds, spaced, or None."""
    plain = token.rstrip("=")
    padded = plain.translate({45: "+", 95: "/"}) + "=" * (-len(plain) % 4)
    for undo in (binascii.unhexlify, _from_base64):
        try:
            found = undo(plain if undo is binascii.unhexlify else padded).decode()
        except (ValueError, UnicodeDecodeError):
            continue
        shown = sum(char.isprintable() or char.isspace() for char in found)
        if len(found) >= _MIN_DECODED_CHARS and shown >= _MIN_PRINTABLE * len(found):
            return f" {found} "
    return None


def _from_base64(text: str) -> bytes:
    return base64.b64decode(text, validate=True)
