"""Find one's family in a sentence of two languages.

"My abuela tiene azúcar again": no rule of either language reads it, for each of them
is asked of a part that is in its language. The words are data (``data/mixed.toml``).
"""

import re
from collections.abc import Iterator
from typing import Final

from curtilage.client.detection.packs import PACKS
from curtilage.client.detection.wordlists import COMMON, read_data, words

_DATA: Final = read_data("curtilage.client.detection.detectors.topics", "mixed.toml")
_KIN: Final = {code: words(text) for code, text in _DATA["kin"].items()}
_ANY_KIN: Final = frozenset[str]().union(*_KIN.values())
_SMALL: Final = {code: words(text) for code, text in _DATA["small"].items()}
_WORD: Final = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*")
_LEAST: Final = 2  # small words of another language; one may be a name's
_AROUND: Final = 150  # characters on either side, in which they are


def _vocabulary(code: str) -> frozenset[str]:
    return _KIN[code] | (PACKS[code].words if code in PACKS else COMMON | _SMALL[code])


_KNOWN: Final = {code: _vocabulary(code) for code in _KIN}


def family_in(text: str) -> Iterator[tuple[int, int]]:
    """Yield the places of words for one's family amid words of another language.

    Args:
        text: in lower case.
    """
    for match in _WORD.finditer(text):
        if match[0] not in _ANY_KIN:
            continue
        around = text[max(match.start() - _AROUND, 0) : match.end() + _AROUND]
        here = {each[0] for each in _WORD.finditer(around)}
        own = [code for code, each in _KIN.items() if match[0] in each]
        # A word of the kin's own language tells of no other one.
        known = frozenset[str]().union(*(_KNOWN[code] for code in own))
        if any(
            len((here & small) - known) >= _LEAST and match[0] not in _KNOWN[code]
            for code, small in _SMALL.items()
        ):
            yield match.span()
