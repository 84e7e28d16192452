"""The form of a pattern rule: a class, a regular expression, a check.

The lists of patterns share it; it runs nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass

# Between a label and its value: "is", "number", a colon. Words of the languages in
# which labels are written.
IS = (
    r"(?:[\s_]{0,3}(?:is|was|are|no|nr|num|number|id|code|of|to|"
    r"ist|lautet|est(?: le| la)?|es|[èé]|jest|on|är|er|je|nummer|num[eé]ro|n\.?[º°]|"
    # Records have a quote before the colon, or a tag before the value.
    r"[:=#.\->]|->|[\"'](?=\s?[:=]))){0,4}\s{0,3}[\"'(]?"
)
# A value that is neither a word nor a year: letters, dashes, and at least one digit. A
# space may separate capitals from the digits: EK 441209.
CODE = (
    r"(?!(?:19|20)\d\d(?![\w\-]))(?:(?-i:[A-Z]{1,3})[ ](?=\d{3})"
    r"(?!(?:19|20)\d\d(?![\w\-])))?"
    r"(?=[A-Z0-9\-]{0,20}\d)[A-Z0-9](?:[A-Z0-9\-]{2,24})[A-Z0-9]"
)
ANY_DIGIT = "0"
# "Number of the" before the numbered thing: numéro de, n.º do, nº, codice, código del.
NUMBER_OF = (
    r"(?:n[uúo]m[eé]?r?[eo]?\.?|n\.? ?[º°o]\.?|n[ro]?\.|nr|c[oó]digo|codice|code|id)"
    r" ?(?:d[eiao]l?l?a?s? |du |d['\u2019]|dell['\u2019]|de la )?"
)
# The German and Dutch forms at the end of a word: Fallnummer, Fall-Nr., zaaknr.
NUMMER = r"(?:[ -]?n(?:umme)?r\.?|[ -]?id)"
# After a word that is a label only if "number" follows: dossier n° 889123.
_NUMBERED = (
    r"\s?(?:n\.? ?[º°o]\.?|n[ro]?\.|nr|num\.|:|=)(?!\s{0,2}(?:19|20)\d\d(?![\w\-/]))"
)


def numbered(words: str) -> str:
    """Return labels for numbered things, with "number" before or after the word.

    Args:
        words: the things, as alternatives of a regular expression.
    """
    return rf"{NUMBER_OF}(?:{words})|(?:{words}){_NUMBERED}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PatternRule:
    """One pattern of one class.

    Attributes:
        id: the detector's name in findings.
        data_class: a name of the class tree.
        regex: for ``re``; letters match in either case unless ``cased``.
        score: without a check, or if an optional check fails.
        group: the group that is the finding; 0 is the whole match.
        check: raises the score to 100 if it holds.
        required: a match whose check fails is dropped.
        gate: the text must contain one of these characters; ``0``: any digit.
        cased: case matters.
        words: the text must contain one of these, in either case; three or more
            characters each. Empty: no condition.
        digits: the text must contain this many digits in a row, at most eight
            characters apart.
        mixed: the text must contain a letter directly next to a digit.
        everywhere: also runs in the compact reading, where lines and spaces are
            joined; a rule with a required check always does.
        spoken: also runs there, for values with spelled-out digits.
    """

    id: str
    data_class: str
    regex: str
    score: int
    group: int = 0
    check: Callable[[str], bool] | None = None
    required: bool = False
    gate: str = ""
    cased: bool = False
    words: tuple[str, ...] = ()
    digits: int = 0
    mixed: bool = False
    everywhere: bool = False
    spoken: bool = False


def labelled(
    name: str,
    data_class: str,
    label: str,
    value: str = CODE,
    *,
    words: str = "",
    score: int = 75,
    check: Callable[[str], bool] | None = None,
) -> PatternRule:
    """Return a rule for a value with a digit that follows its label.

    Args:
        name: of the rule.
        data_class: a name of the class tree.
        label: alternatives, as a regular expression.
        value: the value's shape.
        words: a part of each alternative, separated by bars; "" if too short.
        score: without a check, or if it fails: a mistyped number still counts.
        check: makes the finding certain.
    """
    return PatternRule(
        id=name,
        data_class=data_class,
        regex=rf"(?<!\w)(?:{label}){IS}({value})(?!\w)",
        score=score,
        group=1,
        gate=ANY_DIGIT,
        words=tuple(words.split("|")) if words else (),
        check=check,
        spoken=True,
    )


def listed(text: str) -> tuple[str, ...]:
    """Return the words of a list that is written as text."""
    return tuple(text.split())
