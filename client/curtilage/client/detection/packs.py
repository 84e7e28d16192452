"""What a covered language brings, in one file each that its speakers can read.

``data/languages/de.toml`` holds the words by which German is proven, the rules by which
a text tells of somebody, the words that say what it is about, and what stands beside
names. A pack's rules run over a text only where a part of that text is in the language.
English has no pack: its rules were here before, and are modules of their own. Data
alone: whoever replaces names reads it, too, where no detector runs.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any, Final

from curtilage.client.detection.wordlists import ENGLISH_TITLES, read_data, words

_PACKAGE: Final = "curtilage.client.detection"
_FOLDER: Final = "languages"
ENGLISH: Final = "en"


@dataclass(frozen=True, slots=True, kw_only=True)
class Titles:
    """The words of one language that announce a person, all in lower case.

    An abbreviation is listed with its full stop, and without where people omit it.

    Attributes:
        honorifics: behind which any word with a capital is a name, particles as well.
        roles: kin, ranks, offices and trades; the same, but for ``not_names``.
        unsure: of these, the ones that mean something else as often ("general"). An
            ordinary word behind them is a name only if a model says so.
        heads: by which a longer word that ends so is a role: "Klassenlehrerin".
        articles: words before "Frau" that make a woman of it, and no title.
        not_names: words with a capital that follow a role and name no one.
        not_name_heads: by which a longer word is most likely one of these, too.
        things: a title and a word that together name no one: "uncle sam".
    """

    honorifics: frozenset[str]
    roles: frozenset[str]
    unsure: frozenset[str]
    heads: tuple[str, ...]
    articles: frozenset[str]
    not_names: frozenset[str]
    not_name_heads: tuple[str, ...]
    things: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pack:
    """One language; every pattern is for lower-case text.

    Attributes:
        capitals: whether a capital inside a sentence is the mark of a name.
        words: its most frequent forms; they prove it, and are not names.
        everyday: more of its words, which prove nothing and are not names either.
        determiners: behind which an unknown word in small letters is hardly a name.
        inflections: how forms of its words end, which say the same of them.
        excludes: words that tell of a language near it.
        endings: by which its learned words are known, of which no list has all.
        near: languages that no pack covers, by ISO 639-1, that are so near that only
            such a word tells them apart.
        markers: patterns of ``somebody``, ``addressee``, ``case``; of ``nobody``,
            inside of which the others say nothing; of ``everyday`` (may be missing),
            the same where no listed word is sensitive and the model alone says so;
            and of ``asks``, how a sentence begins that tells of nobody.
        classes: words and stems (``*``) by data class.
        lists: ``common``, words of these that are as often about something else, and
            ``not_by_stem``, words that no stem takes in.
        phrases: patterns by data class.
        names: patterns of ``introduced``, ``greeted`` and ``closed``, which stand
            before a name, and of ``things_before`` and ``things_after``, which stand
            beside a name that is nobody's.
        titles: what announces a person.
    """

    capitals: bool
    words: frozenset[str]
    everyday: frozenset[str]
    determiners: frozenset[str]
    inflections: tuple[str, ...]
    excludes: frozenset[str]
    endings: tuple[str, ...]
    near: frozenset[str]
    markers: Mapping[str, tuple[str, ...]]
    classes: Mapping[str, str]
    lists: Mapping[str, frozenset[str]]
    phrases: Mapping[str, tuple[str, ...]]
    names: Mapping[str, tuple[str, ...]]
    titles: Titles


def one_of(patterns: Iterable[str]) -> re.Pattern[str]:
    """Return a pattern for any of these between borders of words, or for nothing."""
    every = "|".join(patterns)
    # An accent may be a character of its own behind its letter; no word ends there.
    letter = "[\\w\u0300-\u036f]"
    return re.compile(f"(?<!{letter})(?:{every})(?!{letter})" if every else "(?!)")


_PART: Final = re.compile(r"<([a-z]+)>")


def _titles(data: Mapping[str, Any]) -> Titles:
    return Titles(
        honorifics=words(data["honorifics"]),
        roles=words(data["roles"]),
        unsure=words(data.get("unsure", "")),
        heads=tuple(words(data.get("heads", ""))),
        articles=words(data.get("articles", "")),
        not_names=words(data["not_names"]),
        not_name_heads=tuple(words(data.get("not_name_heads", ""))),
        things=frozenset(data["things"]),
    )


def _read(code: str) -> Pack:
    data: Mapping[str, Any] = read_data(_PACKAGE, f"{_FOLDER}/{code}.toml")
    parts: Mapping[str, str] = data.get("parts", {})

    def whole(patterns: Iterable[str]) -> tuple[str, ...]:
        # Kin, and what tells of an event, stand in many a rule, and once in the file.
        return tuple(
            _PART.sub(lambda found: parts[found[1]], each) for each in patterns
        )

    return Pack(
        capitals=data["capitals"],
        words=words(data["words"]),
        everyday=words(data["everyday"]),
        determiners=words(data["determiners"]),
        inflections=tuple(words(data["inflections"])),
        excludes=words(data["excludes"]),
        endings=tuple(data.get("endings", "").split()),
        near=words(data.get("near", "")),
        markers={name: whole(each) for name, each in data["markers"].items()},
        classes=data["classes"],
        lists={name: words(each) for name, each in data["lists"].items()},
        phrases={name: whole(each) for name, each in data["phrases"].items()},
        names={name: whole(each) for name, each in data["names"].items()},
        titles=_titles(data["titles"]),
    )


# By ISO 639-1.
PACKS: Final[Mapping[str, Pack]] = {
    code: _read(code)
    for code in sorted(
        file.name.removesuffix(".toml")
        for file in resources.files(_PACKAGE).joinpath("data", _FOLDER).iterdir()
    )
}

# English among them: it has titles, if no pack.
TITLES: Final[Mapping[str, Titles]] = {
    ENGLISH: _titles(ENGLISH_TITLES),
    **{code: pack.titles for code, pack in PACKS.items()},
}
