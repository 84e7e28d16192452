"""Language packs: the data of each covered language, in a file that speakers can read.

``data/languages/de.toml`` has the words that prove German, the rules for references to
a person, the words for topics, and the words next to names. A pack's rules run over a
text only if a part of it is in the language. English has no pack: its rules are older,
and are modules of their own. This module is data only, because the code that replaces
names reads it too, without any detector.
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
    """The words of one language that introduce a person, all in lower case.

    An abbreviation is listed with its full stop, and without it if people omit it.

    Attributes:
        honorifics: any capitalised word after them is a name, particles included.
        roles: kin, ranks, offices and trades; the same, except for ``not_names``.
        unsure: those of them that are as often something else ("general"). An ordinary
            word after them is a name only if a model agrees.
        heads: endings that make a longer word a role: "Klassenlehrerin".
        articles: words before "Frau" that make it "woman", not a title.
        not_names: capitalised words that follow a role and name no one.
        not_name_heads: endings of longer words that probably name no one either.
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
        capitals: whether a capital inside a sentence marks a name.
        words: its most frequent forms; they prove the language, and are not names.
        everyday: more of its words, which prove nothing and are not names either.
        determiners: an unknown lower-case word after them is probably not a name.
        inflections: the endings of its words' forms, which do not change the meaning.
        excludes: words that indicate a related language.
        endings: of its technical words, which no list has in full.
        near: ISO 639-1 codes of languages without a pack that are so similar that only
            such a word distinguishes them.
        markers: patterns of ``somebody``, ``addressee``, ``case``; of ``nobody``,
            inside which the others are ignored; of ``everyday`` (optional), the same if
            no listed word is sensitive and only the model considers the text so; and of
            ``asks``, beginnings of sentences that disclose nothing about a person.
        classes: words and stems (``*``) by data class.
        lists: ``common``, words of these that are as often about something else, and
            ``not_by_stem``, words that no stem matches.
        phrases: patterns by data class.
        names: patterns of ``introduced``, ``greeted`` and ``closed``, which precede a
            name, and of ``things_before`` and ``things_after``, which are next to a
            name that is not a person's.
        titles: words that introduce a person.
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
    """Return a pattern for any of these as whole words, or for nothing."""
    every = "|".join(patterns)
    # A combining accent may follow its letter; no word ends there.
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
        # Kin, and verbs of an event, are in many rules, but only once in the file.
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

# English too: it has titles, although no pack.
TITLES: Final[Mapping[str, Titles]] = {
    ENGLISH: _titles(ENGLISH_TITLES),
    **{code: pack.titles for code, pack in PACKS.items()},
}
