"""Whether a question is about everyday subjects and refers to nothing said before.

For ``sticky: content`` where a policy names languages other than English. Words
identify kept content in one language only, and a conversation may change it. So instead
of a list of forbidden words there is a list of allowed ones: every word must be in the
file of one language (``data/follow_ups/de.toml``), which a speaker can read and
correct. With any other word (a pronoun, a drug, an unlisted place) the question is kept
local.
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

# In "in Excel" a tool is the setting, in "Docker on Ubuntu" the subject.
MIN_TOOLS: Final = 2
_MAX_DIGITS: Final = 2  # of a question: more may be a code mentioned before
MAX_CHARS: Final = 1000  # a longer text is more than a question, and slow
_MAX_PHRASE_WORDS: Final = 4
_STEM_CHARS: Final = 6
_LEAST_STEM_CHARS: Final = 4
_LONG_CHARS: Final = 9  # "Limonadenrezept": compounds share words inside
_TOKEN: Final = re.compile(r"[^\W_]+|[.!?;:,\n]")
_COMMON: Final = "common"  # the same in all languages
_PHRASE: Final = "_"
_ANY_ENDING: Final = "*"
_SMALL: Final = (
    *("tasks", "asks", "small", "verbs", "articles", "prepositions", "of", "foremost"),
)
_ABOUT: Final = ("subjects", "unique", "made", "scenery", "settings", "tools")
_LISTS: Final = (*_SMALL, *_ABOUT, "to_me", "me", "refers")


@dataclass(frozen=True, slots=True, kw_only=True)
class Everyday:
    """The vocabulary of fresh questions in one language.

    Words without accents, except ``refers``; several words that count as one are
    joined ("es_gibt"). "berg*" is combined with each of the file's endings.

    Attributes:
        tasks: begin a request.
        asks: begin a question.
        small: words without information about a subject.
        verbs: of things, not of people; a question without one is a fragment.
        articles: also used as pronouns, if no subject follows.
        prepositions: before a subject that says where or when, and not what.
        of: before a specification: "the capital of".
        foremost: after an article: the highest, the first. Only one exists.
        to_me: the second word of a request, as in "give me".
        me: the first person; a question about software may contain it.
        subjects: of general interest; none about health, family, law, work, money or
            faith. A question needs one.
        unique: subjects of which only one exists ("the moon"): with an article, they do
            not refer back. For others the question must specify which one.
        made: written, made or visited things; with an article they refer back
            ("the letter").
        scenery: seasons and weather: a subject for a text to be written, not for a
            question ("¿Cómo es en invierno?").
        settings: places, languages, units.
        tools: software.
        refers: words that refer back, above all those that look like a listed word.
        about: ``subjects``, ``unique``, ``made``, ``settings`` and ``tools`` together.
        known: everything but ``to_me``, ``me`` and ``refers``.
        phrases: entries of more than one word.
        pro_drop: whether a verb may lack its pronoun: "¿Qué flores tiene?"
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
            entries = _folded(f"{common.get(key, '')} {own[key]}".replace("-", _PHRASE))
            listed = entries.split()
            plain = listed if key == "refers" else map(_plain, listed)
            words: set[str] = set()
            for word in plain:
                stem = word.removesuffix(_ANY_ENDING)
                words.add(stem)
                if stem != word:
                    words |= {stem + ending for ending in endings}
            lists[key] = frozenset(words)
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
        """Return whether a question is about everyday subjects only, and names them.

        None if a word of it is not of this language; False if this cannot be
        determined.
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
        tokens = [word for word in plain if word[0].isalnum()]
        if not tokens or not self.refers.isdisjoint(words):
            return False
        return self._begins_and_ends(tokens, plain) and not any(
            self._points_back(plain, at) for at in range(len(plain))
        )

    def _begins_and_ends(self, tokens: list[str], plain: list[str]) -> bool:
        """Return whether it is complete: both the request and its subject."""
        # "Write a letter in English" omits a subject that was mentioned before.
        asked, task = self.subjects | self.unique, tokens[0] in self.tasks
        subjects = [
            at
            for at, word in enumerate(plain)
            if word in asked or (task and word in self.scenery)
        ]
        if not subjects and len(self.tools.intersection(plain)) < MIN_TOOLS:
            return False
        # "In winter", "in the winter": they say where or when.
        settings = [
            not self.prepositions.isdisjoint(plain[max(at - 2, 0) : at])
            for at in subjects
        ]
        return task or (
            tokens[0] in self.asks
            # "Which rivers?", "Which rivers in winter?"
            and not self.verbs.isdisjoint(plain)
            # "¿Cómo es en la luna?" is about an omitted subject: the kept content.
            and not (settings and all(settings))
            and not (self.pro_drop and tokens[-1] in self.verbs)
        )

    def _points_back(self, plain: list[str], at: int) -> bool:
        """Return whether an article is a pronoun here, or refers back."""
        if plain[at] not in self.articles:
            return False
        after = list(takewhile(lambda word: word[0].isalnum(), plain[at + 1 : at + 4]))
        if not after:
            return True
        # "Eine Funktion, die ...": refers to the noun before it.
        if after[0] in self.foremost or (at and plain[at - 1] == ","):
            return False
        if after[0] not in self.about or not self.made.isdisjoint(after[:2]):
            return True
        # "Where is the dog?" refers back; so does "the dog in Excel".
        alone = self.unique | self.scenery | self.settings
        which = self.of | self.foremost | alone
        return after[0] not in alone | self.tools and which.isdisjoint(after[1:])

    def _joined(self, text: str) -> Iterator[str]:
        """Yield words in lower case, and punctuation; phrases as one word."""
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
    """Read the files of these languages, so that a missing one is noticed early.

    Raises:
        FileNotFoundError: a language has none.
    """
    for each in languages:
        _everyday(each)


def is_everyday(text: str, languages: Iterable[str]) -> bool:
    """Return whether a text is about everyday subjects, in one of these languages.

    A mixture is in none; if a text may be in two, both must accept it: Portuguese
    "o algoritmo" refers back, and is Spanish for "or algorithm".
    """
    if len(text) > MAX_CHARS:
        return False
    return {_everyday(each).judge(text) for each in languages} - {None} == {True}


def traces_of(text: str) -> frozenset[str]:
    """Return the beginnings of a text's words, and of parts inside long ones.

    Used to compare whether two texts share a word, with any ending; not stored.
    """
    traces: set[str] = set()
    for token in _TOKEN.findall(_folded(text)):
        if token[0].isalnum():
            word = _plain(token)
            traces.add(_stem(word))
            if len(word) >= _LONG_CHARS:
                starts = range(3, len(word) - _STEM_CHARS + 1)
                traces |= {f"+{word[at : at + _STEM_CHARS]}" for at in starts}
    return frozenset(traces)


def subject_traces(text: str, languages: Iterable[str]) -> frozenset[str]:
    """Return the traces of a question's subject, as far as the languages know it.

    Every word counts that is not a small word of any language.
    """
    small = _small(tuple(sorted(languages)))
    words = (_plain(word) for word in _TOKEN.findall(_folded(text)))
    tokens = [word for word in words if word[0].isalnum() and word not in small]
    inside = {f"+{word[:_STEM_CHARS]}" for word in tokens if len(word) >= _STEM_CHARS}
    return frozenset(map(_stem, tokens)) | inside


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
    folder = resources.files("curtilage.client.conversation").joinpath(
        "data", "follow_ups"
    )
    return tomllib.loads(folder.joinpath(f"{name}.toml").read_text("utf-8"))


def _folded(text: str) -> str:
    folded = unicodedata.normalize("NFKC", text).casefold()
    # Hair spaces and soft hyphens inside words would split them.
    return "".join(c for c in folded if unicodedata.category(c) != "Cf")


def _plain(word: str) -> str:
    """Return a word without its accents: many people omit them."""
    if len(word) == 1:
        return word  # Portuguese "é" is, "e" and
    parted = unicodedata.normalize("NFD", word.casefold())
    return "".join(char for char in parted if not unicodedata.combining(char))
