"""Find what is not proven to be in a language that the policy names."""

from collections.abc import Collection, Iterator
from typing import Final

from curtilage.client.detection.detectors.languages.identifier import load_identifier
from curtilage.client.detection.detectors.languages.scripts import (
    WORD,
    is_in_another_script,
)
from curtilage.client.detection.detectors.languages.stretches import stretches
from curtilage.client.detection.detectors.languages.vocabulary import VOCABULARIES
from curtilage.client.detection.detectors.readings import Reading
from curtilage.client.detection.spans import MAX_SCORE, Span

UNCERTAIN: Final = "uncertain.language"


class LanguageDetector:
    """Find letters of other scripts, and parts of a text in other languages."""

    id = "language"

    def __init__(self, languages: Collection[str]) -> None:
        """Load what tells languages apart.

        Args:
            languages: that the policy names, as ISO 639-1; every one covered.

        Raises:
            ValueError: one of them brings no words to prove it by.
            Exception: of any kind, where the identifier cannot be loaded.
        """
        if not VOCABULARIES.keys() >= set(languages):
            raise ValueError("a language that is named is not covered")
        self._languages = frozenset(languages)
        load_identifier()  # now, not while the first text waits

    def find(self, reading: Reading) -> Iterator[Span]:
        """Yield the words, or else the parts of the text, that are not covered."""
        text = reading.text
        places = []
        if not text.isascii():
            places = [
                match.span()
                for match in WORD.finditer(text)
                if not match[0].isascii() and is_in_another_script(match[0])
            ]
        # The identifier knows Latin letters only, and the query stays home already.
        for start, end in places or (
            (each.start, each.end)
            for each in stretches(text)
            if each.language not in self._languages
        ):
            yield Span(
                data_class=UNCERTAIN,
                detector=self.id,
                start=start,
                end=end,
                score=MAX_SCORE,
            )
