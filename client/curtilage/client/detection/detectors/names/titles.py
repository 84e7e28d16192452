"""Finds people by the title, rank, trade or family word before a name.

"Herrn Döring", "dott.ssa Cavallini", "Schwester Kupfernagel": a capitalised word there
is a person, even if it is a town, a company or an ordinary noun elsewhere. The words
are in the packs, and for English in ``words.toml``. Pure functions of a text.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from curtilage.client.detection.detectors.names.cues import PERSON
from curtilage.client.detection.detectors.readings import Reading
from curtilage.client.detection.packs import ENGLISH, PACKS, TITLES
from curtilage.client.detection.spans import Span
from curtilage.client.detection.wordlists import (
    ACRONYM_CHARS,
    COMMON,
    GIVEN,
    PARTICLES,
    PARTICLES_MORE,
    bare,
    is_known,
    lowered,
    words,
)

TITLE: Final = "name-title"
UNSURE_TITLE: Final = "name-titled"  # a model must agree
# "sig.ra", "dipl.-ing.", "l'infirmière", "O'Brien"; with the full stop of an
# abbreviation or of the sentence.
_TOKEN = re.compile(
    r"['\u2019]?[^\W\d_]+(?:\.?[-'\u2019]?[^\W\d_\u00aa\u00ba]+)*[\u00aa\u00ba]?"
    r"(?:\.[\u00aa\u00ba])?\.?"
)
_GAP = re.compile(r"[ \t\u00a0\u202f]{1,3}[\"'\u201c\u201e\u00ab\u2018(]?")
_PER = re.compile(r"[\d%l] ?/ ?$")
_PER_REACH: Final = 4
_JOINT = re.compile(r"['\u2019\-]")
_MOST_TITLES: Final = 4  # "Herrn Univ.-Prof. Dr. med. Döring"
_MOST_PARTICLES: Final = 4
# Between titles, and not titles by themselves: "Dr. med.", "Madame la comtesse".
_BETWEEN: Final = words("""
med. phil. jur. iur. rer. nat. h.c. dent. vet. habil. mult. pol. oec. la le el il the
""")
_ARTICLES: Final = words("the a an our your their his her my this that these any no")
_SURE, _LIKELY = 80, 65
# "Nachbarin Freund zum Abschied": these begin a name only after an honorific.
_NOT_AFTER_ROLES: Final = frozenset(("vom", "zu", "zum", "zur"))
_MIN_FOREIGN_CHARS: Final = 4
_MIN_HEAD_REST: Final = 3


class _Token(NamedTuple):
    start: int
    end: int
    raw: str
    plain: str  # in lower case, with its full stop if there is one

    @property
    def word(self) -> str:
        return self.plain.rstrip(".")


class _Title(NamedTuple):
    code: str
    honorific: bool
    unsure: bool


def titled(reading: Reading) -> Iterator[Span]:
    """Yield people with a title in a text; all words of one name in one span."""
    text = reading.text
    codes = (*((ENGLISH,) if reading.english else ()), *reading.packs)
    plain = lowered(text)
    tokens = [
        _Token(*match.span(), match[0], plain[match.start() : match.end()])
        for match in _TOKEN.finditer(text)
    ]
    for at, token in enumerate(tokens):
        title = _title(tokens, at, codes)
        # "18/min. An oral examination": a unit, not a minister.
        per = max(0, token.start - _PER_REACH), token.start
        if title is not None and not _PER.search(text, *per):
            yield from _behind(text, tokens, at, title, codes)


def _title(tokens: Sequence[_Token], at: int, codes: Sequence[str]) -> _Title | None:
    """Return a word's title in one of these languages, or None."""
    if tokens[at].raw == "me":
        return None  # "Me" is a lawyer, "me" is a pronoun
    found = _listed(tokens[at].plain, codes)
    if found is None:
        # "l'infirmière", "all'avvocato"; "ex-chef", "Klassen-Lehrerin".
        _, joint, rest = _split(tokens[at].plain)
        found = _listed(rest, codes) if joint else None
    if found is None or not at:
        return found
    articles = TITLES[found.code].articles
    if (
        found.honorific
        and tokens[at].word == "frau"
        and (tokens[at - 1].plain in articles)
    ):
        return found._replace(honorific=False, unsure=True)
    return found


def _split(plain: str) -> tuple[str, str, str]:
    joints = list(_JOINT.finditer(plain))
    if not joints:
        return plain, "", ""
    last = joints[-1]
    return plain[: last.start()], last[0], plain[last.end() :]


def _listed(plain: str, codes: Sequence[str]) -> _Title | None:
    for code in codes:
        titles = TITLES[code]
        if plain in titles.honorifics:
            return _Title(code, honorific=True, unsure=False)
        if plain in titles.roles:
            return _Title(code, honorific=False, unsure=plain in titles.unsure)
        if titles.heads and any(
            plain.endswith(head) and len(plain) >= len(head) + _MIN_HEAD_REST
            for head in titles.heads
        ):
            return _Title(code, honorific=False, unsure=False)
    # "Write to Frau Döring": a title in another language than the text's.
    abroad = (
        code
        for code, titles in TITLES.items()
        if code not in codes and plain in titles.honorifics
    )
    other = next(abroad, None) if len(plain) >= _MIN_FOREIGN_CHARS else None
    if other is None or any(_is_ordinary(plain, code) for code in codes):
        return None
    return _Title(other, honorific=True, unsure=False)


def _is_ordinary(plain: str, code: str) -> bool:
    """Return whether a lower-case word is in the vocabulary of a language."""
    if code == ENGLISH:
        return plain in COMMON or is_known(plain)
    return plain in PACKS[code].words


def _has_nouns(codes: Sequence[str]) -> bool:
    """Return whether one of these languages capitalises all nouns."""
    return any(code in PACKS and not PACKS[code].capitals for code in codes)


def _behind(
    text: str, tokens: Sequence[_Token], at: int, title: _Title, codes: Sequence[str]
) -> Iterator[Span]:
    """Yield the name after a title, if there is one."""
    first, title = _past_titles(text, tokens, at + 1, title, codes)
    start = _past_particles(text, tokens, first)
    if start is None:
        return
    name, listed = tokens[start], TITLES[title.code]
    if f"{tokens[at].plain} {tokens[at + 1].word}" in listed.things:
        return
    # After "Herr", any noun is a name; elsewhere, "Mr President" names no one.
    if not (title.honorific and listed.articles) and (
        name.word in listed.not_names or bare(name.word) in listed.not_names
    ):
        return
    # "Engineer ECU": an acronym, unless the text is all in capitals.
    acronym = name.raw.isupper() and len(name.word) <= ACRONYM_CHARS
    if acronym and not (title.honorific or tokens[at].raw.isupper()):
        return
    prefixed = start > first and tokens[first].raw[0].islower()
    sure = title.honorific or not (
        prefixed or (title.unsure and _is_doubtful(tokens, at, name, codes))
    )
    last = tokens[_last(text, tokens, start, codes)]
    yield Span(
        data_class=PERSON,
        detector=TITLE if sure else UNSURE_TITLE,
        start=name.start if prefixed else tokens[first].start,
        end=last.start + len(last.raw.rstrip(".")),
        score=_SURE if sure else _LIKELY,
    )


def _past_titles(
    text: str, tokens: Sequence[_Token], at: int, title: _Title, codes: Sequence[str]
) -> tuple[int, _Title]:
    """Return the index after all titles in a row, and their combination."""
    for _ in range(_MOST_TITLES):
        if not (_follows(text, tokens, at) and _follows(text, tokens, at + 1)):
            break
        more = _title(tokens, at, codes)
        if tokens[at].plain not in _BETWEEN:
            following = tokens[at + 1].plain
            if more is None or not (
                following in _BETWEEN or _may_begin(text, tokens, at + 1)
            ):
                break
            title = title if title.honorific else more
        at += 1
    return at, title


def _is_doubtful(
    tokens: Sequence[_Token], at: int, name: _Token, codes: Sequence[str]
) -> bool:
    """Return whether a title before an ordinary word is ambiguous: "General Terms"."""
    # A capital inside a sentence marks a name, unless every noun has one.
    marked = tokens[at].raw.islower() and not _has_nouns(codes)
    # "of Major Butter" in a sentence, but not "the General Terms".
    if codes == (ENGLISH,) and at and tokens[at - 1].raw.islower():
        marked = marked or tokens[at - 1].plain not in _ARTICLES
    return not marked and any(_is_ordinary(bare(name.word), code) for code in codes)


def _follows(text: str, tokens: Sequence[_Token], at: int) -> bool:
    """Return whether a word directly follows the one before it."""
    return at < len(tokens) and (
        _GAP.fullmatch(text, tokens[at - 1].end, tokens[at].start) is not None
    )


def _is_capital(token: _Token) -> bool:
    """Return whether a word is capitalised, possibly after "d'" or "al-"."""
    return any(part[:1].isupper() for part in _JOINT.split(token.raw)[:2])


def _may_begin(text: str, tokens: Sequence[_Token], at: int) -> bool:
    if at < len(tokens) and tokens[at].plain in _NOT_AFTER_ROLES:
        return False
    return _past_particles(text, tokens, at) is not None


def _past_particles(text: str, tokens: Sequence[_Token], at: int) -> int | None:
    """Return the index of a name's first capitalised word, after its particles."""
    if not _follows(text, tokens, at):
        return None
    here = at
    while (
        here - at < _MOST_PARTICLES
        and tokens[here].plain in (PARTICLES_MORE if here > at else PARTICLES)
        and _follows(text, tokens, here + 1)
    ):
        here += 1
    if here > at and not _is_capital(tokens[here]):
        here = at
    return here if _is_capital(tokens[here]) else None


def _last(text: str, tokens: Sequence[_Token], at: int, codes: Sequence[str]) -> int:
    """Return the last word of a name that begins with a capitalised word."""
    while _follows(text, tokens, at + 1) and _is_capital(tokens[at + 1]):
        # A full stop ends a sentence, except after an initial.
        if tokens[at].raw.endswith(".") and len(tokens[at].word) > 1:
            break
        plain = bare(tokens[at + 1].word)
        if any(plain in TITLES[code].not_names for code in codes):
            break
        # In a language that capitalises all nouns, it may be the next noun.
        given = bare(tokens[at].word) in GIVEN
        if (
            _has_nouns(codes)
            and not given
            and any(_is_ordinary(plain, code) for code in codes)
        ):
            break
        at += 1
    return at
