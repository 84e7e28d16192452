"""The vocabulary of each covered language: the words that prove it."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, cast

from curtilage.client.detection.packs import ENGLISH, PACKS, Pack
from curtilage.client.detection.wordlists import COMMON, is_known, read_data, words

_LISTS: Final = cast(
    "Mapping[str, str]",
    read_data("curtilage.client.detection.detectors.languages", "words.toml"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Vocabulary:
    """The words of one language.

    Attributes:
        listed: its most frequent words, in lower case.
        knows: whether a word, in any case, belongs to it.
        excludes: words in lower case that indicate another language, whatever
            ``knows`` returns.
    """

    listed: frozenset[str]
    knows: Callable[[str], bool]
    excludes: frozenset[str]


_ENGLISH: Final = words(_LISTS["english_terms"] + _LISTS["english_loans"])


def _is_english(word: str) -> bool:
    return is_known(word) or word.lower() in _ENGLISH


_JOINT: Final = re.compile(r"['\u2019-]")
_LEARNED_CHARS: Final = 7  # minimum length of a word that is recognised by its ending


def _knower(pack: Pack) -> Callable[[str], bool]:
    """Return a test for listed, learned and elided words, such as "qu'as-tu"."""

    def is_listed(plain: str) -> bool:
        return plain in pack.words or (
            len(plain) >= _LEARNED_CHARS and plain.endswith(pack.endings)
        )

    def knows(word: str) -> bool:
        plain = word.lower()
        parts = [part for part in _JOINT.split(plain) if len(part) > 1]
        return is_listed(plain) or (bool(parts) and all(map(is_listed, parts)))

    return knows


# By ISO 639-1: exactly the languages that ``curtilage.policy`` calls covered.
VOCABULARIES: Final[Mapping[str, Vocabulary]] = {
    ENGLISH: Vocabulary(
        listed=COMMON | _ENGLISH,
        knows=_is_english,
        excludes=words(_LISTS["not_english"]),
    ),
    **{
        code: Vocabulary(
            listed=pack.words,
            knows=_knower(pack),
            excludes=pack.excludes,
        )
        for code, pack in PACKS.items()
    },
}
