"""Whether a question speaks of everyday subjects, and of nothing that was said before.

For ``sticky: content`` where a policy names more than English. Words tell of what
stayed in one language alone, and a conversation may change it. So it is not asked what
a question must not say, but what it may: every word of it stands in the file of one
language (``data/follow_ups/de.toml``), which a speaker can read and mend. A pronoun, a
drug, a place that nobody listed is a word too many, and the question stays.
"""

import re
import tomllib
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from itertools import takewhile
from typing import Final

# "In Excel" is where something is done, "Docker on Ubuntu" is what.
MIN_TOOLS: Final = 2
_MAX_DIGITS: Final = 2  # of a question: more may be a code that was told before
MAX_CHARS: Final = 1000  # a longer text is more than a question, and costs time
_MAX_PHRASE_WORDS: Final = 4
_STEM_CHARS: Final = 6
_LEAST_STEM_CHARS: Final = 4
_LONG_CHARS: Final = 9  # "Limonadenrezept": compounds share words inside
_TOKEN: Final = re.compile(r"[^\W_]+|[.!?;:,\n]")
_COMMON: Final = "common"  # what is called the same in all languages
_PHRASE: Final = "_"
_ANY_ENDING: Final = "*"
_SMALL: Final = (
    *("tasks", "asks", "small", "verbs", "articles", "prepositions", "of", "foremost"),
)
_ABOUT: Final = ("subjects", "unique", "made", "scenery", "settings", "tools")
_LISTS: Final = (*_SMALL, *_ABOUT, "to_me", "me", "refers")


@dataclass(frozen=True, slots=True, kw_only=True)
class Everyday:
    """What a fresh question of one language is made of.

    Words without accents, but for ``refers``; two and more words that count as one are
    joined ("es_gibt"). "berg*" stands with each of the file's endings.

    Attributes:
        tasks: with which a request begins.
        asks: with which a question begins.
        small: words that say nothing about a subject.
        verbs: of things, not of people; a question without one is a piece of another.
        articles: as words, and as pronouns: these are followed by no subject.
        prepositions: behind which a subject says where or when, and not what.
        of: with which a question says which one: "the capital of".
        foremost: after an article: the highest, the first. There is but one of it.
        to_me: the second word of a request, as in "give me".
        me: the first person; a question about software may have it.
        subjects: what everybody may ask about, none of health, kin, law, work, money,
            faith. A question needs one.
        unique: subjects that an article does not make those that were spoken of: there
            is but one ("the moon"). Of others the question must say which one.
        made: what is written, made or visited; with an article it is the one that was
            spoken of ("the letter").
        scenery: seasons and weather: a subject of what is to be written, and not of
            what is asked ("¿Cómo es en invierno?").
        settings: places, languages, units.
        tools: software.
        refers: what points back, first of all where it looks like a listed word.
        about: ``subjects``, ``unique``, ``made``, ``settings`` and ``tools`` together.
        known: everything but ``to_me``, ``me`` and ``refers``.
        phrases: those of more than one word.
        pro_drop: whether a verb may stand without a pronoun: "¿Qué flores tiene?"
    """

    tasks: frozenset[str]
    asks: frozenset[str]
    small: frozenset[str]
    verbs: frozenset[str]
    articles: frozenset[str]
    prepositions: frozenset[str]
    of: frozenset[str]
    foremost: frozenset[str]
    to_me: frozenset[str]
    me: frozenset[str]
    subjects: frozenset[str]
    unique: frozenset[str]
    made: frozenset[str]
    scenery: frozenset[str]
    settings: frozenset[str]
    tools: frozenset[str]
    refers: frozenset[str]
    about: frozenset[str]
    known: frozenset[str]
    phrases: frozenset[str]
    pro_drop: bool

    @classmethod
    def read(cls, code: str) -> "Everyday":
        """Read the file of a language, by ISO 639-1."""
        common, own = _data(_COMMON), _data(code)
        endings = own["endings"].split()
        lists: dict[str, frozenset[str]] = {}
        for key in _LISTS:
            told = _folded(f"{common.get(key, '')} {own[key]}".replace("-", _PHRASE))
            listed = told.split()
            plain = listed if key == "refers" else map(_plain, listed)
            lists[key] = frozenset(_spelled(plain, endings))
        about = frozenset[str]().union(*(lists[key] for key in _ABOUT))
        small = frozenset[str]().union(*(lists[key] for key in _SMALL))
        phrases = frozenset(each for each in about | small if _PHRASE in each)
        return cls(
            **lists,
            about=about,
            known=about | small,
            phrases=phrases,
            pro_drop=bool(own.get("pro_drop")),
        )

    def judge(self, text: str) -> bool | None:
        """Tell whether a question is of everyday subjects alone, and names them itself.

        None where a word of it is none of this language; False wherever the rest
        cannot be told.
        """
        words = list(self._joined(text))
        plain = [_plain(word) for word in words]
        tools = self.tools.intersection(plain)
        digits = sum(len(word) for word in words if word.isdecimal())
        if not all(
            not word[0].isalnum()
            or word in self.known
            or exact in self.refers
            or (word.isdecimal() and digits <= _MAX_DIGITS)
            or (word in self.to_me and at == 1)
            or (word in self.me and tools)
            for at, (word, exact) in enumerate(zip(plain, words, strict=True))
        ):
            return None
        told = [word for word in plain if word[0].isalnum()]
        if not told or not self.refers.isdisjoint(words):
            return False
        return self._begins_and_ends(told, plain) and not any(
            self._points_back(plain, at) for at in range(len(plain))
        )

    def _begins_and_ends(self, told: list[str], plain: list[str]) -> bool:
        """Tell whether nothing is left out: neither what is asked nor about what."""
        # "Write a letter in English" leaves out what about, and that was said before.
        asked, task = self.subjects | self.unique, told[0] in self.tasks
        subjects = [
            at
            for at, word in enumerate(plain)
            if word in asked or (task and word in self.scenery)
        ]
        if not subjects and len(self.tools.intersection(plain)) < MIN_TOOLS:
            return False
        return task or (
            told[0] in self.asks
            # "Which rivers?", "Which rivers in winter?"
            and not self.verbs.isdisjoint(plain)
            # "¿Cómo es en la luna?" is said of something: of what stayed.
            and not (subjects and all(self._is_beside(plain, at) for at in subjects))
            and not (self.pro_drop and told[-1] in self.verbs)
        )

    def _is_beside(self, plain: list[str], at: int) -> bool:
        """Tell whether a subject says where or when: "in winter", "in the winter"."""
        return not self.prepositions.isdisjoint(plain[max(at - 2, 0) : at])

    def _points_back(self, plain: list[str], at: int) -> bool:
        """Tell whether an article here is a pronoun, or of what was spoken of."""
        if plain[at] not in self.articles:
            return False
        after = list(takewhile(lambda word: word[0].isalnum(), plain[at + 1 : at + 4]))
        if not after:
            return True
        # "Eine Funktion, die ...": said of what stands before it.
        if after[0] in self.foremost or (at and plain[at - 1] == ","):
            return False
        if after[0] not in self.about or not self.made.isdisjoint(after[:2]):
            return True
        # "Where is the dog?" is about one that was spoken of; so is "the dog in Excel".
        alone = self.unique | self.scenery | self.settings
        which = self.of | self.foremost | alone
        return after[0] not in alone | self.tools and which.isdisjoint(after[1:])

    def _joined(self, text: str) -> Iterator[str]:
        """Yield words in lower case, and marks; what counts as one word as one."""
        words = [match[0] for match in _TOKEN.finditer(_folded(text))]
        at = 0
        while at < len(words):
            size = next(
                size
                for size in range(_MAX_PHRASE_WORDS, 0, -1)
                if size == 1
                or _plain(_PHRASE.join(words[at : at + size])) in self.phrases
            )
            yield _PHRASE.join(words[at : at + size])
            at += size


def read_all(languages: Iterable[str]) -> None:
    """Read the files of these languages, so that none is missed later.

    Raises:
        FileNotFoundError: a language has none.
    """
    for each in languages:
        _everyday(each)


def is_everyday(text: str, languages: Iterable[str]) -> bool:
    """Tell whether a text is in one of these languages, and of everyday subjects.

    A mixture is in none; where a text may be in two, both must say so: Portuguese
    "o algoritmo" points back, and is Spanish for "or algorithm".
    """
    if len(text) > MAX_CHARS:
        return False
    return {_everyday(each).judge(text) for each in languages} - {None} == {True}


def traces_of(text: str) -> frozenset[str]:
    """Return the beginnings of a text's words, and those inside of long ones.

    To tell whether two texts share a word, whatever its ending; never to be kept.
    """
    return frozenset(
        trace
        for word in _TOKEN.findall(_folded(text))
        if word[0].isalnum()
        for trace in _traces(_plain(word))
    )


def subject_traces(text: str, languages: Iterable[str]) -> frozenset[str]:
    """Return those of what a question is about, as far as a language knows it.

    Every word counts that is none of the small ones of all languages together.
    """
    small = _small(tuple(sorted(languages)))
    words = (_plain(word) for word in _TOKEN.findall(_folded(text)))
    told = [word for word in words if word[0].isalnum() and word not in small]
    inside = {f"+{word[:_STEM_CHARS]}" for word in told if len(word) >= _STEM_CHARS}
    return frozenset(map(_stem, told)) | inside


def _traces(word: str) -> Iterator[str]:
    yield _stem(word)
    if len(word) >= _LONG_CHARS:
        for at in range(3, len(word) - _STEM_CHARS + 1):
            yield f"+{word[at : at + _STEM_CHARS]}"


def _stem(word: str) -> str:
    # "receta" and "recetas", "gedicht" and "gedichte", "ville" and "villes".
    beginning = word[:_STEM_CHARS]
    plain = beginning.rstrip("aeiosn")
    return beginning[: max(len(plain), _LEAST_STEM_CHARS)]


@cache
def _everyday(code: str) -> Everyday:
    return Everyday.read(code)


@cache
def _small(languages: tuple[str, ...]) -> frozenset[str]:
    every = [_everyday(each) for each in languages]
    return frozenset[str]().union(
        *((each.known - each.about) | each.to_me | each.me for each in every)
    )


def _data(name: str) -> Mapping[str, str]:
    folder = resources.files("curtilage.client").joinpath("data", "follow_ups")
    return tomllib.loads(folder.joinpath(f"{name}.toml").read_text("utf-8"))


def _spelled(words: Iterable[str], endings: Iterable[str]) -> Iterator[str]:
    for word in words:
        stem = word.removesuffix(_ANY_ENDING)
        yield stem
        if stem != word:
            yield from (stem + ending for ending in endings)


def _folded(text: str) -> str:
    folded = unicodedata.normalize("NFKC", text).casefold()
    # Hair spaces and soft hyphens inside of words would part them.
    return "".join(c for c in folded if unicodedata.category(c) != "Cf")


def _plain(word: str) -> str:
    """Return a word without its accents: many are typed without."""
    if len(word) == 1:
        return word  # Portuguese "é" is, "e" and
    parted = unicodedata.normalize("NFD", word.casefold())
    return "".join(char for char in parted if not unicodedata.combining(char))
