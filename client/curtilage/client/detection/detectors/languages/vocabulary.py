"""What each covered language brings: the words by which it is proven."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, cast

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
        knows: whether a word, in any case, is one of it.
        excludes: words in lower case that tell of another language, whatever
            ``knows`` says.
    """

    listed: frozenset[str]
    knows: Callable[[str], bool]
    excludes: frozenset[str]


_ENGLISH: Final = words(_LISTS["english_terms"] + _LISTS["english_loans"])


def _is_english(word: str) -> bool:
    return is_known(word) or word.lower() in _ENGLISH


# By ISO 639-1. What ``curtilage.policy`` calls covered stands here, and nothing else.
VOCABULARIES: Final[Mapping[str, Vocabulary]] = {
    "en": Vocabulary(
        listed=COMMON | _ENGLISH,
        knows=_is_english,
        excludes=words(_LISTS["not_english"]),
    ),
}
