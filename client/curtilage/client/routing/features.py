"""Features of a text: hashed pieces of it, and a few counts.

The same text has the same features on every machine: bytes are hashed, with integer
arithmetic, by a hash function of our own. Weights are learned for exactly these
features; any change of them must increase ``VERSION``, so that older weights are
refused. Needs numpy (extras ``pii``, ``llm``).
"""

import math
import re
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from curtilage.client.routing.estimate import Signs, read

VERSION: Final = 2
BUCKET_BITS: Final = 16
BUCKETS: Final = 1 << BUCKET_BITS
DENSE: Final = (
    *("log characters", "log words", "digits", "given text", "hard words"),
    *("question marks", "numbers", "operators", "backslashes", "backticks"),
    *("code words", "several steps", "options", "word length"),
    *("distinct words", "negations", "longest sentence"),
    *("cue classification", "cue extraction", "cue summarisation", "cue generation"),
    *("cue transform", "cue qa", "cue reasoning", "cue code"),
)
CUES: Final = 8  # the last ones: for the intent only; the gain does not use them
_MOST_BYTES: Final = 8192  # two ends of a text, in any script
_EDGE_WORDS: Final = 25
_ALL: Final = (1 << 64) - 1
# Odd, since only odd numbers have an inverse modulo 2^64.
_BASE: Final = 0xD6E8FEB86659FD93

Floats = npt.NDArray[np.float32]
Places = npt.NDArray[np.int64]
_Hashes = npt.NDArray[np.uint64]

# Random odd numbers, one for each part of each kind of piece, so that a word and the
# same letters within another word get different hashes.
_ODD: Final[_Hashes] = np.array(
    [
        (0x9E3779B97F4A7C15 * (2 * n + 1) + 0x632BE59BD9B4E019 * n * n) & _ALL | 1
        for n in range(1, 14)
    ],
    dtype=np.uint64,
)
_MIX: Final = np.uint64(0x9E3779B97F4A7C15)
_WORD_FOLD: Final = np.uint64(29)
_FOLD: Final = np.uint64(31)
_DROP: Final = np.uint64(64 - BUCKET_BITS)


def _powers(base: int) -> _Hashes:
    values = [1]
    for _ in range(_MOST_BYTES):
        values.append(values[-1] * base & _ALL)
    return np.array(values, dtype=np.uint64)


# The hash of a word is a sum over its bytes, computed from prefix sums:
# (sum to its end - sum to its beginning) / base^beginning. Odd numbers have an inverse
# modulo 2^64.
_POWERS: Final = _powers(_BASE)
_INVERSE: Final = _powers(pow(_BASE, -1, 1 << 64))
_IN_WORD: Final = np.array(
    [not chr(n).isascii() or chr(n).isalnum() for n in range(256)]
)
_OPERATORS: Final = np.frombuffer(b"+-*/=^<>%", dtype=np.uint8)
_CODE_WORDS: Final = re.compile(
    r"\b(?:def|class|import|return|function|select|const|void|int|public|print)\b"
)
_OPTION: Final = re.compile(r"(?:^|\s)\(?[a-d][).]\s")
_GIVEN: Final = re.compile(r"[:\"\u00ab\u201c\u201e]")
_NEGATION: Final = re.compile(
    r"\b(?:not|no|never|none|except|without|cannot|nicht|kein\w{0,2}|pas|non|niet|não"
    r"|nunca)\b|n['\u2019]t\b"
)
_SENTENCE_END: Final = re.compile(r"[.!?]")


@dataclass(frozen=True, slots=True)
class Features:
    """The features of one text.

    Attributes:
        places: the non-empty buckets, ascending.
        counts: log(1 + number of pieces), for each of them.
        dense: the numbers that ``DENSE`` names.
    """

    places: Places
    counts: Floats
    dense: Floats


def features_of(text: str) -> Features:
    """Return the features of a text, of any length and content."""
    return features_in(*read(text))


def features_in(request: str, signs: Signs) -> Features:
    """Return the same of a text that ``read`` has read."""
    # A lone surrogate becomes three bytes, like other characters of its size.
    # The table of powers ends there; without the limit, a text in a script with long
    # characters would exceed it.
    encoded = request.encode("utf-8", "surrogatepass")[: _MOST_BYTES - 2]
    # A blank at either end: every word then has a beginning and an end, and they pair
    # up.
    raw = np.frombuffer(b" " + encoded + b" ", dtype=np.uint8)
    edges = np.flatnonzero(np.diff(_IN_WORD[raw])) + 1
    begins, finishes = edges[::2], edges[1::2]
    sums = np.zeros(len(raw) + 1, dtype=np.uint64)
    np.cumsum(raw * _POWERS[: len(raw)], out=sums[1:])
    plain = (sums[finishes] - sums[begins]) * _INVERSE[begins]
    words: _Hashes = (plain ^ (plain >> _WORD_FOLD)) * _ODD[7]
    # Words, pairs of words, and words near either end.
    of_words = [
        words * _ODD[8],
        words[:-1] * _ODD[9] + words[1:] * _ODD[10],
        words[:_EDGE_WORDS] * _ODD[11],
        words[-_EDGE_WORDS:] * _ODD[12],
    ]
    # Every three, four and five bytes.
    wide = np.concatenate([raw, np.zeros(3, dtype=np.uint8)]).astype(np.uint64)
    three = wide[:-2] * _ODD[0] + wide[1:-1] * _ODD[1] + wide[2:] * _ODD[2]
    four = three[:-1] * _ODD[3] + wide[3:] * _ODD[4]
    five = four[:-1] * _ODD[5] + wide[4:] * _ODD[6]
    pieces = np.concatenate([three, four, five, *of_words])
    # The low bits of a product depend only on the low bits of its factors, so the high
    # half is mixed in first, and the top bits are used.
    mixed = (pieces ^ (pieces >> _FOLD)) * _MIX >> _DROP
    times = np.bincount(mixed.astype(np.int64), minlength=BUCKETS)
    places = np.flatnonzero(times > 0)
    return Features(
        places,
        # Logarithms: a word that is repeated a hundred times says little more than one
        # that occurs ten times.
        np.log1p(times[places]).astype(np.float32),
        np.array(
            [
                *_counts(request, signs),
                float((finishes - begins).mean()) if len(words) else 0.0,
                len(np.unique(words)) / max(1, len(words)),
                math.log1p(len(_NEGATION.findall(request))),
                math.log1p(max(map(len, _SENTENCE_END.split(request)))),
                *signs.shares,
            ],
            dtype=np.float32,
        ),
    )


def _counts(request: str, signs: Signs) -> tuple[float, ...]:
    raw = np.frombuffer(request.encode("utf-8", "surrogatepass"), dtype=np.uint8)
    times = np.bincount(raw, minlength=256)
    size = max(1, len(raw))
    given = _GIVEN.search(request)
    return (
        math.log1p(signs.characters),
        math.log1p(signs.words),
        float(times[ord("0") : ord("9") + 1].sum()) / size,
        1.0 - given.start() / len(request) if given else 0.0,
        math.log1p(signs.hard_words),
        math.log1p(times[ord("?")]),
        math.log1p(signs.numbers),
        math.log1p(times[_OPERATORS].sum()),
        math.log1p(times[ord("\\")]),
        math.log1p(times[ord("`")]),
        math.log1p(len(_CODE_WORDS.findall(request))) + 2.0 * signs.in_code,
        float(signs.in_steps),
        math.log1p(len(_OPTION.findall(request))),
    )
