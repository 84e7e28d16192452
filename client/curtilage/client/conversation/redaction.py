"""Redaction of a text to common words.

A word is kept if it is in a list of words that ten public texts have in lower case
(``data/WORDS.md``), however harmless another may look: a word that is not known to be
common may identify somebody. So no detector is used here, and none can fail.
English only: nothing is left of a text in another language.
"""

import re
from functools import cache
from importlib import resources
from typing import Final

from curtilage.client.detection.wordlists import AMBIGUOUS, NOT_IN_LOWER_CASE, words

MASK: Final = "[...]"
# If less of a text would be kept, nothing is: it is in another language, or code, or
# consists mostly of names.
LEAST_KEPT_PERCENT: Final = 50
# Longer runs of number words are a number that is spelled out.
MAX_NUMBER_WORDS: Final = 2
_NEAR: Final = 2  # words on either side without another digit
_PLAIN: Final = str.maketrans(
    {
        "\u2018": "'",
        "\u2019": "'",
        "\u201c": '"',
        "\u201d": '"',
        "\u2013": "-",
        "\u2014": "-",
        "\u2022": "-",
        "\u2026": "...",
    }
)
_WORD: Final = r"[A-Za-z]+(?:'[A-Za-z]+)?"
_CHUNK: Final = re.compile(r"\S+")
_SHAPE: Final = re.compile(r"([(\"']*)(.*?)([)\"'.,;:?!]*)", re.DOTALL)
_WORDS: Final = re.compile(rf"{_WORD}(?:[-/,;:]{_WORD})*")
_JOINTS: Final = re.compile(r"[-/,;:]")
_SIGNS: Final = re.compile(r"[-+*=&%$|<>]{0,3}")
_END: Final = re.compile(r"[.?!][)\"']*$")
_BREAK: Final = re.compile(r"\s*\n\s*")
_LETTERS: Final = re.compile(r"[^\W\d_]+")
_OWN: Final = re.compile(r"[^\W_]+")
# A capitalised word that does not begin a sentence.
_INSIDE: Final = re.compile(r"(?<=[^\s.?!:] )([A-Z][^\W_]+)")
_DIGITS: Final = words(
    "zero oh one two three four five six seven eight nine double triple"
)
_MAYBE_NAMES: Final = AMBIGUOUS | NOT_IN_LOWER_CASE
# They do not begin names, so their capital means nothing, as in a title. "Will" and
# "May" do, and "New" begins place names.
_FUNCTION: Final = words(
    """
    a about after all also although an and any are as at be because before but by can
    could did do does during each for from had has have he her here his how however i
    i'd i'll i'm i've if in into is it it's its me more most my no not now of on only or
    our please she should since so some such than thank thanks that the their them then
    there these they this those through to under until was we were what when where which
    while who why with without would yes you your
    """
)
# The parts of "don't" and "I've" after splitting, with and without the apostrophe.
_ENDS: Final = words(
    """
    im ive ill id isnt arent dont doesnt didnt cant couldnt wont wouldnt wasnt werent
    havent hasnt hadnt its hes shes thats whats theres youre theyre were youve theyve
    ve ll re isn aren don doesn didn couldn won wouldn wasn weren haven hasn hadn
    """
)


@cache
def vocabulary() -> frozenset[str]:
    """Return the list of common words, in lower case."""
    file = resources.files("curtilage.client.conversation").joinpath(
        "data", "words.txt"
    )
    return frozenset(file.read_text("ascii").split())


def is_english(text: str) -> bool:
    """Return whether most words of a text are common, and so English."""
    words = _LETTERS.findall(text.translate(_PLAIN).replace("'", "").casefold())
    known = sum(each in vocabulary() or each in _ENDS for each in words)
    return bool(words) and 100 * known >= LEAST_KEPT_PERCENT * len(words)


def own_words(text: str) -> frozenset[str]:
    """Return the words of a text that are not common, case folded.

    Words that are not listed, numbers, and words with a capital inside a sentence or
    that may be names: "Rose" differs from "rose". A single digit does not count.
    """
    plain = text.translate(_PLAIN)
    own = {
        word.casefold()
        for word in _OWN.findall(plain)
        if word.casefold() not in vocabulary() and len(word) > 1
    }
    inside = {match[1].casefold() for match in _INSIDE.finditer(plain)}
    names = {
        word.casefold()
        for word in _LETTERS.findall(plain)
        if word[0].isupper() and word.casefold() in _MAYBE_NAMES
    }
    return frozenset((own - _ENDS) | ((inside | names) - _FUNCTION))


def redacted(text: str) -> str | None:
    """Return a text with a mask for everything that is not a common word.

    Masked are words that are not listed; those with a capital, unless it begins a
    sentence or the word does not begin names; numbers of more than one digit, and
    digits near others; everything that is not ASCII; addresses and anything else
    that is neither a word nor punctuation.

    Returns:
        The text, or None: it is in another language, or too little of it is left.
    """
    plain = text.translate(_PLAIN)
    lines = (_line(each) for each in _BREAK.split(plain))
    left = "\n".join(each for each in lines if each)
    kept, every = len(_LETTERS.findall(left)), len(_LETTERS.findall(plain))
    if not kept or 100 * kept < LEAST_KEPT_PERCENT * every:
        return None
    return left


def _line(text: str) -> str:
    """Redact a text without line breaks; its first word begins a sentence."""
    shapes = [(chunk, _SHAPE.fullmatch(chunk)) for chunk in _CHUNK.findall(text)]
    parts = [
        ("", chunk, "") if shape is None else (shape[1], shape[2], shape[3])
        for chunk, shape in shapes
    ]
    kept: list[str] = []
    begins = True
    for at, (before, core, after) in enumerate(parts):
        # "Baker Street": both are masked, though the first begins a sentence.
        following = parts[at + 1][1] if not after and at + 1 < len(parts) else ""
        name = following[:1].isupper() and following.casefold() not in _FUNCTION
        near = (each[1] for each in parts[max(at - _NEAR, 0) : at + _NEAR + 1])
        lone = sum(any(map(str.isdigit, each)) for each in near) == 1
        if _is_common(core, begins=begins and not name, lone=lone):
            kept.append(f"{before}{core}{after}")
            # After a mask no sentence begins: it may have been "Dr."
            begins = bool(_END.search(after)) or (begins and not core.isalpha())
        else:
            kept.append(MASK + after.replace('"', "").replace("'", "").replace(")", ""))
            begins = False
    line: list[str] = []
    for word in _without_spelled_numbers(kept):
        # Adjacent masks are merged, so that they cannot be counted.
        if line and word.startswith(MASK) and line[-1] == MASK:
            line[-1] = word
        else:
            line.append(word)
    return " ".join(line)


def _is_common(core: str, *, begins: bool, lone: bool) -> bool:
    if len(core) == 1 and core in "0123456789":
        return lone
    if _WORDS.fullmatch(core) is None:
        return _SIGNS.fullmatch(core) is not None
    return all(
        _is_listed(word, begins=begins and number == 0)
        for number, word in enumerate(_JOINTS.split(core))
    )


def _is_listed(word: str, *, begins: bool) -> bool:
    low = word.lower()
    base = low.removesuffix("'s")
    if low not in vocabulary() and base not in vocabulary() and low not in _FUNCTION:
        return False
    if word == low:
        return True
    if word[1:] != low[1:]:
        return False
    return low in _FUNCTION or (begins and base not in _MAYBE_NAMES)


def _without_spelled_numbers(words: list[str]) -> list[str]:
    run: list[int] = []
    masked: set[int] = set()
    for at, word in enumerate((*words, "")):
        spoken = _JOINTS.split(word.strip("()\"'.,;:?!").lower())
        if all(each in _DIGITS or each.isdigit() for each in spoken):
            run += [at] * len(spoken)
            continue
        if len(run) > MAX_NUMBER_WORDS:
            masked.update(run)
        run = []
    return [MASK if at in masked else word for at, word in enumerate(words)]
