"""The places in a text to be replaced: whole words, at every occurrence.

Pure. Turns a detector's finding into a place with clean edges, separates overlapping
places, and finds further occurrences of a value that no detector reported.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from curtilage.client.chat.answer import Obstacle
from curtilage.client.detection.wordlists import BESIDE, COMMON, words
from curtilage.client.pseudonyms.obstacles import CannotRewriteError
from curtilage.client.pseudonyms.vault import POSSESSIVE, TITLES, TOKEN, kind_of
from curtilage.policy.decision.findings import Finding
from curtilage.policy.decision.rules import FIGURE
from curtilage.policy.decision.rules import PERSON as PERSON_CLASS

PERSON: Final = "PERSON"
_MIN_PART_CHARS: Final = 3
_MIN_LEFT_CHARS: Final = 4  # shorter ones occur in too many other words
_MIN_DIGITS: Final = 5
# Words inside names that are not names: kept where they occur alone.
_PARTICLES: Final = words(
    "and the von van der den del dos das della ben bin ibn abu san sri jnr snr iii"
)
# Of two letters: "De Luca", "St John"; without those that are given names too.
_SHORT_PARTICLES: Final = words("de di da du la el st jr sr dr mr ms ii iv of")
_JOINERS: Final = "-'\u2019"
_GLUE: Final = tuple("/_.@#-\\")  # joins the parts of an address or a file name
_WORD_CHAR: Final = re.compile(r"\w")
_LETTERS: Final = re.compile(r"[^\W\d_]+")
# Letters with a stroke and the like, which Unicode does not decompose.
_PLAIN_LETTERS: Final = str.maketrans(
    {"ł": "l", "ø": "o", "đ": "d", "ð": "d", "ħ": "h", "ŧ": "t", "\u0131": "i"}
    | {"æ": "ae", "œ": "oe", "þ": "th"}
)
_UNSEEN: Final = ("Mn", "Cf")  # accents, and characters such as a soft hyphen
_EDGE_MARKS: Final = re.compile(r"^[\W_]+|[\W_]+$")


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Place:
    """A part of one text to be replaced, and its class.

    Attributes:
        start: first character.
        end: one past the last character.
        data_class: the class of the finding.
    """

    start: int
    end: int
    data_class: str

    def of(self, text: str) -> str:
        """Return the text at this place."""
        return text[self.start : self.end]


def fitted(text: str, finding: Finding) -> tuple[Place, ...]:
    """Return the words of a finding: whole ones, without titles and punctuation.

    A name ends with its line and its sentence: a finding across such an end becomes one
    place on each side of it.

    Raises:
        CannotRewriteError: it is outside the text, or contains no letter or digit.
    """
    if not 0 <= finding.start < finding.end <= len(text):
        raise CannotRewriteError(Obstacle.NO_STAND_IN)
    start, end = _whole_words(text, finding.start, finding.end)
    handle = _handle_at(text, start, end)
    ends = [handle or (start, end)]
    if kind_of(finding.data_class) == PERSON:
        ends = (
            [_bare_name(text, *handle)]
            if handle
            else _names(text, *_joined_name(text, start, end))
        )
    if not ends or not all(text[start:end].strip() for start, end in ends):
        raise CannotRewriteError(Obstacle.NO_STAND_IN)
    # A public figure counts as a person: places of both may be parts of one name.
    figure = finding.data_class == FIGURE
    data_class = PERSON_CLASS if figure else finding.data_class
    return tuple(Place(start=a, end=b, data_class=data_class) for a, b in ends)


# The end of a line, sentence or heading, which no name crosses; an initial and a title
# have a full stop as well.
_BREAK: Final = re.compile(
    r"\s*[\r\n\x1e]\s*(?:[-*\u2022>]\s+)?|(?<=[^\W\d_]{3}[.!?])[\"'\u00bb\u201d)]*\s+|"
    r"\s*[:;]\s+"
)
_HANDLE: Final = re.compile(r"\w[\w\-]*(?:\.[\w\-]+)*")
_OPTION: Final = re.compile(r"(?<!\S)--?[a-z][a-z\-]*[= ]?")


def _handle_at(text: str, start: int, end: int) -> tuple[int, int] | None:
    """Return the whole handle that a place is part of: "@some.body"."""
    at = start + 1 if text[start : start + 1] == "@" else start
    match = _HANDLE.match(text, at) if at and text[at - 1] == "@" else None
    if match is None or match.end() < end:
        return None
    return start, match.end()


def _names(text: str, start: int, end: int) -> list[tuple[int, int]]:
    """Split a finding at breaks; return the names in it."""
    pieces: list[tuple[int, int]] = []
    at = start
    for match in _BREAK.finditer(text, start, end):
        last = text[at : match.start()].split()[-1:]
        if not last or TITLES.match(f"{last[0]} x") is None:
            pieces.append((at, match.start()))
            at = match.end()
    pieces = [_bare_name(text, *place) for place in (*pieces, (at, end))]
    pieces = [place for place in pieces if any(map(is_word, text[slice(*place)]))]
    # Words next to a name are not part of it, if a name remains without them.
    named = [place for place in pieces if not _is_only_context(text[slice(*place)])]
    return [_without_context(text, *place) for place in named] or pieces


def _is_only_context(found: str) -> bool:
    return all(each.lower() in BESIDE for each in _LETTERS.findall(found))


def _without_context(text: str, start: int, end: int) -> tuple[int, int]:
    """Exclude a verb, a greeting, a heading or an option at the edges of a name."""
    if option := _OPTION.match(text, start, end):
        start = option.end() if option.end() < end else start
    found = list(_LETTERS.finditer(text, start, end))
    while (
        len(found) > 1
        and found[0][0].lower() in BESIDE
        and not _may_be_name(text, found[0])
    ):
        found.pop(0)
        start = found[0].start()
    # Only in lower case: with a capital, an ordinary word may be a surname.
    while len(found) > 1 and found[-1][0].islower() and found[-1][0] in BESIDE:
        found.pop()
        end = found[-1].end()
    return _bare_name(text, start, end)


# A capital within a sentence, where such a word has none: "for Dag Kuipers".
_WITHIN: Final = re.compile(r"[\w,)\]][^\S\r\n]+\Z")


def _may_be_name(text: str, word: re.Match[str]) -> bool:
    """Return whether a word next to a name may be part of it: its capital decides.

    "Dag", "Bel" and "Liebe" are greetings and verbs, and also given names.
    """
    before = text[max(word.start() - 8, 0) : word.start()]
    return word[0][0].isupper() and _WITHIN.search(before) is not None


def _whole_words(text: str, start: int, end: int) -> tuple[int, int]:
    """Trim white space at the edges; include words that the edges cut."""
    while start < end and text[start].isspace():
        start += 1
    while end > start and text[end - 1].isspace():
        end -= 1
    if start < end and is_word(text[start]):
        start = _word_start(text, start)
    if start < end and is_word(text[end - 1]):
        end = _word_end(text, end)
    return start, end


def _word_start(text: str, at: int) -> int:
    while at > 0 and is_word(text[at - 1]):
        at -= 1
    return at


def _word_end(text: str, at: int) -> int:
    while at < len(text) and is_word(text[at]):
        at += 1
    return at


def is_word(char: str) -> bool:
    """Return whether a character belongs to a word; an empty text does not."""
    return _WORD_CHAR.fullmatch(char) is not None


def is_alone(text: str, place: Place) -> bool:
    """Return whether a place is words of a sentence and not part of a longer form.

    Not so in "Berg_rent", "berg2024.pdf", "x.example/berg/", "the Bergs".
    """
    around = (
        text[max(place.start - 1, 0) : place.start],
        text[place.end : place.end + 2],
    )
    return not (
        around[0] in _GLUE
        or is_word(around[0])
        or is_word(around[1][:1])
        or (around[1][:1] in _GLUE and is_word(around[1][1:]))
    )


def _joined_name(text: str, start: int, end: int) -> tuple[int, int]:
    """Include the other half of ``Anne-Marie``: both begin with a capital."""
    while text[end : end + 1] in _JOINERS and text[end + 1 : end + 2].isupper():
        end = _word_end(text, end + 1)
    while start > 1 and text[start - 1] in _JOINERS and text[start].isupper():
        earlier = _word_start(text, start - 1)
        if not text[earlier].isupper():
            break
        start = earlier
    return start, end


def _bare_name(text: str, start: int, end: int) -> tuple[int, int]:
    """Exclude titles, a possessive and punctuation at the edges of a name."""
    name = text[start:end]
    if title := TITLES.match(name):
        start += title.end()
    name = text[start:end]
    if possessive := POSSESSIVE.search(name):
        end = start + possessive.start()
    marks = list(_EDGE_MARKS.finditer(text[start:end]))
    for match in reversed(marks):
        if match.start():
            end = start + match.start()
        else:
            start += match.end()
    return start, end


def apart(places: Iterable[Place]) -> list[Place]:
    """Return places that do not overlap: of two nested ones, the outer.

    Two of one class that overlap are merged; adjacent ones are not.

    Raises:
        CannotRewriteError: two of different classes overlap.
    """
    kept: list[Place] = []
    for place in sorted(places, key=lambda each: (each.start, -each.end)):
        last = kept[-1] if kept else None
        if last is None or place.start >= last.end:
            kept.append(place)
        elif place.end <= last.end:
            continue
        elif place.data_class == last.data_class:
            kept[-1] = replace(last, end=place.end)
        else:
            raise CannotRewriteError(Obstacle.OVERLAP)
    return kept


class Occurrences:
    """Finds values again: whole words, in any case and spacing.

    An ordinary word that is a name elsewhere ("will", "may") counts as a name only with
    a capital. Each word of a name of several counts alone as well; one of two letters
    only with a capital. Names are also found before a plural, a digit and "_": "the
    Smiths", "Smith_rent". A short number ("45") is only replaced where it was
    found.

    Args:
        values: each value as it is written in a text, and its class.
    """

    def __init__(self, values: Mapping[str, str]) -> None:
        distinctive = {
            each: name for each, name in values.items() if _is_distinctive(each)
        }
        people = {
            each: name for each, name in distinctive.items() if kind_of(name) == PERSON
        }
        others = {
            each: name for each, name in distinctive.items() if each not in people
        }
        parts = [(part, name) for each, name in people.items() for part in _parts(each)]
        self._forms = (
            _Forms(_all_spaced(others), _WHOLE, flags=re.IGNORECASE),
            _Forms(_all_spaced(people), _NAME, flags=re.IGNORECASE),
            _Forms(
                {re.escape(part): name for part, name in parts if is_rare(part)},
                _NAME,
                flags=re.IGNORECASE,
            ),
            _Forms(
                {
                    re.escape(form): name
                    for part, name in parts
                    if not is_rare(part)
                    for form in (part, part.capitalize(), part.upper())
                },
                _NAME,
            ),
        )

    def places(self, text: str) -> Iterator[Place]:
        """Yield every place where one of them occurs; places may overlap."""
        for forms in self._forms:
            for place in forms.places(text):
                # "will" without a capital is not a name, even if "Will" is one.
                word = place.of(text)
                if not (word.islower() and word in COMMON):
                    yield place


# A value may begin or end with punctuation: "+1 202".
_WHOLE: Final = r"(?<!\w)(?:{})(?!\w)"
_NAME: Final = r"(?<![^\W\d_])(?:{})(?=(?:e?s)?(?![^\W\d_]))"


class _Forms:
    """Regular expressions, one for each class, that match whole words."""

    def __init__(
        self, classes: Mapping[str, str], around: str, *, flags: int = 0
    ) -> None:
        longest_first = sorted(classes, key=len, reverse=True)
        self._classes = [classes[form] for form in longest_first]
        groups = "|".join(f"({form})" for form in longest_first)
        self._regex = re.compile(around.replace("{}", groups or "(?!)"), flags)

    def places(self, text: str) -> Iterator[Place]:
        for match in self._regex.finditer(text):
            data_class = self._classes[(match.lastindex or 1) - 1]
            yield Place(start=match.start(), end=match.end(), data_class=data_class)


def _all_spaced(values: Mapping[str, str]) -> dict[str, str]:
    return {
        r"\s+".join(map(re.escape, each.split())): name for each, name in values.items()
    }


def _parts(value: str) -> Iterator[str]:
    """Yield the words of a name, and the halves of hyphenated ones."""
    found = [_EDGE_MARKS.sub("", word) for word in value.split()]
    halves = [half for word in found if "-" in word for half in word.split("-")]
    for part in (*found, *halves) if len(found) + len(halves) > 1 else ():
        if _is_part(part):
            yield part


def _is_part(part: str) -> bool:
    if len(part) == _MIN_PART_CHARS - 1:
        return part[0].isupper() and part.lower() not in _SHORT_PARTICLES
    return len(part) >= _MIN_PART_CHARS and part.lower() not in _PARTICLES


def is_rare(part: str) -> bool:
    """Return whether a part of a name is also one in lower case."""
    return len(part) >= _MIN_PART_CHARS and part.lower() not in COMMON


def _is_distinctive(value: str) -> bool:
    digits = sum(char.isdigit() for char in value)
    return digits >= _MIN_DIGITS or any(char.isalpha() for char in value)


def require_gone(values: Mapping[str, str], texts: Iterable[str]) -> None:
    """Search the rewritten texts for remains of names, in any spelling.

    Ignores case, accents and invisible characters, and searches inside longer words,
    except ordinary ones: "Alan" is not part of "balance".

    Args:
        values: each value that was replaced, and its class.
        texts: the texts to be sent, with stand-ins.

    Raises:
        CannotRewriteError: a part of a name of four or more letters is left.
    """
    people = (each for each, name in values.items() if kind_of(name) == PERSON)
    parts = {part for each in people for part in _LETTERS.findall(_folded(each))}
    distinctive = [
        each for each in parts - COMMON - _PARTICLES if len(each) >= _MIN_LEFT_CHARS
    ]
    if not distinctive:
        return
    left = re.compile("|".join(map(re.escape, distinctive)))
    for text in texts:
        plain = _folded(TOKEN.sub(" ", text))
        if any(left.search(word) for word in {*_LETTERS.findall(plain)} - COMMON):
            raise CannotRewriteError(Obstacle.NAME_LEFT)


def _folded(text: str) -> str:
    if text.isascii():
        return text.lower()
    apart = unicodedata.normalize("NFKD", text).casefold().translate(_PLAIN_LETTERS)
    return "".join(char for char in apart if unicodedata.category(char) not in _UNSEEN)
