"""Features of an answer: how certain the model was, and properties of its text.

Pure, standard library only, and bounded for any answer: of a long text, two ends are
examined, and no pattern has nested repetition. Heads are learned for exactly these
features, in this order; ``FEATURES_SHA256`` identifies them.

Sums and means of log-probabilities favour short answers; quantiles and windows do not
(arXiv:2404.10136).
"""

import json
import math
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final

from curtilage.client.chat.answer import Delta, TokenSignal

VERSION: Final = 1
# The judge runs in the process of the client while an answer is streamed. Without
# limits, a model that repeats itself could keep it busy and fill its memory.
MAX_CHARS: Final = 8000
TAIL_CHARS: Final = 2000
MAX_SIGNALS: Final = 4096
NAMES: Final = (
    *("logprob mean", "logprob tenth", "logprob window", "logprob end"),
    *("margin mean", "margin tenth", "unsure tokens", "log tokens"),
    *("log characters", "compressed", "repeated", "cut", "open end"),
    *("refuses", "hedges", "digits", "sums right", "sums wrong", "of the question"),
    *("question characters", "question words", "question numbers"),
    *("question formulas", "question code", "question brackets"),
)
# A head that was learned for other features would still return a number, and its
# certificate would not hold for it.
FEATURES_SHA256: Final = sha256("\n".join((str(VERSION), *NAMES)).encode()).hexdigest()

_WINDOW: Final = 8
_END: Final = 16
_UNSURE: Final = math.log(2)  # the likeliest is less than twice as likely as the second
_LEAST_LOGPROB: Final = -20.0
_MOST_MARGIN: Final = 20.0
_LEAST_COMPRESSED: Final = 64  # characters; shorter texts have no room for repetition
_SHORT_WORD: Final = 3
_CLOSE: Final = 1e-2

# At most five numbers, each of at most 12 and 6 digits, and none begins within
# another: a row of 8,000 digits is scanned once.
_NUMBER: Final = r"\d{1,12}(?:\.\d{1,6})?"
_SUM: Final = re.compile(
    rf"(?<![\d.+*/x=%-])(?<![+*/x=%-] )({_NUMBER}(?: ?[-+*/x] ?{_NUMBER}){{1,4}})"
    rf" ?= ?({_NUMBER})(?![\d%]| ?[-+*/x])"
)
_TERM: Final = re.compile(rf"{_NUMBER}|[-+*/x]")
_FIGURE: Final = re.compile(r"\d{1,12}")
_CODE: Final = re.compile(r"\b(?:def|return|import|for|if|lambda|assert|class)\b")
_WORD: Final = re.compile(r"[^\W_]{1,32}")
_JSON_WANTED: Final = re.compile(r"\bjson\b", re.IGNORECASE)
_FENCE: Final = re.compile(r"```(?:json|JSON)?\n(.*?)(?:```|\Z)", re.DOTALL)
_ENDS: Final = frozenset(".!?:;…。\uff01\uff1f)]}\"'»”`*|")
# Only looked for at the beginning: in the middle of an answer, such words may be
# quoted.
_REFUSES: Final = (
    "i can't", "i cannot", "i can not", "i'm sorry", "i am sorry", "i'm unable",
    "i am unable", "as an ai", "as a language model", "i'm not able", "i am not able",
    "i don't have access", "i do not have access", "sorry, ",
    "es tut mir leid", "ich kann nicht", "ich kann ihnen nicht", "als ki",
    "je suis désolé", "je ne peux pas", "lo siento", "no puedo", "mi dispiace",
    "non posso", "het spijt me", "ik kan niet", "desculpe", "não posso",
)  # fmt: skip
_HEDGES: Final = (
    "not sure", "i think", "i believe", "perhaps", "maybe", "it depends", "might be",
    "unclear", "i don't know", "i do not know", "probably", "possibly", "however, it",
    "vielleicht", "möglicherweise", "ich weiß nicht", "peut-être", "je ne sais pas",
    "quizás", "no lo sé", "forse", "non lo so", "misschien", "talvez", "não sei",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The features of an answer at one moment.

    Attributes:
        values: the numbers that ``NAMES`` names.
        sound: it has text, the model's certainty is known for every token, and
            requested JSON is complete; otherwise no score makes it acceptable.
    """

    values: tuple[float, ...] = field(repr=False)
    sound: bool


class Draft:
    """An answer while it is generated; only the examined parts are stored.

    Args:
        question: the question; the last turn of its sender.

    Attributes:
        wants_json: whether it asks for JSON, whose beginning shows little.
        chars: number of characters of the answer.
        tokens: number of its tokens with a known certainty.
    """

    def __init__(self, question: str) -> None:
        self._question = question[:MAX_CHARS]
        self.wants_json = _JSON_WANTED.search(self._question) is not None
        self._asked = frozenset(_long_words(self._question))
        self._of_question = tuple(
            math.log1p(count)
            for count in (
                len(self._question),
                len(self._question.split()),
                len(_FIGURE.findall(self._question)),
                self._question.count("\\"),
                len(_CODE.findall(self._question)),
                self._question.count("("),
            )
        )
        self._head = self._tail = ""
        self._signals: list[TokenSignal] = []
        self._silent = False
        self.chars = 0
        self.tokens = 0

    def add(self, delta: Delta) -> None:
        """Add one piece."""
        self.chars += len(delta.text)
        self.tokens += len(delta.signals)
        room = MAX_CHARS - TAIL_CHARS - len(self._head)
        self._head += delta.text[:room]
        self._tail = (self._tail + delta.text[room:])[-TAIL_CHARS:]
        # The last piece of an answer may have text without tokens; any other must have
        # tokens.
        self._silent = self._silent or not (delta.signals or self._signals)
        # NaN is not below any threshold, so without clamping it would count as certain.
        for each in delta.signals:
            self._silent |= math.isnan(each.logprob) or math.isnan(each.margin)
        self._signals.extend(delta.signals[: MAX_SIGNALS - len(self._signals)])

    def seen(self, *, finish_reason: str | None = None) -> Seen:
        """Return the current features; ``finish_reason``: how it ended, if it did."""
        text = self._head + self._tail
        lowered = text.lower()
        right, wrong = _sums(text)
        words = _WORD.findall(lowered)
        runs = list(zip(words, words[1:], words[2:], strict=False))
        own = frozenset(_long_words(lowered))
        ended = finish_reason is not None
        # A model can generate half of a surrogate pair, on which a strict encoder would
        # fail. A repetitive text has a small ratio.
        data, compressed = text.encode("utf-8", "surrogatepass"), 1.0
        if len(data) >= _LEAST_COMPRESSED:
            compressed = len(zlib.compress(data, 1)) / len(data)
        values = (
            *_sureness(self._signals),
            math.log1p(self.chars),
            compressed,
            1 - len(set(runs)) / len(runs) if runs else 0.0,  # repeated
            float(finish_reason == "length"),
            float(ended and text.rstrip()[-1:] not in _ENDS),
            float(any(each in lowered[:200] for each in _REFUSES)),
            math.log1p(sum(lowered.count(each) for each in _HEDGES)),
            sum(map(str.isdigit, text)) / max(1, len(text)),
            math.log1p(right),
            math.log1p(wrong),
            len(own & self._asked) / max(1, len(own)),
            *self._of_question,
        )
        sound = not self._silent and bool(self._signals)
        if ended:
            sound = sound and bool(text.strip()) and self._is_whole(text)
        return Seen(values=values, sound=sound)

    def _is_whole(self, text: str) -> bool:
        """Whether requested JSON can be parsed; True if none was requested."""
        if not self.wants_json:
            return True
        fenced = _FENCE.search(text)
        value = (fenced[1] if fenced else text).strip()
        if value[:1] not in {"{", "["}:
            return True  # the question is about JSON, and does not request it
        # Fail closed: what was not stored cannot be checked, and must not be accepted
        # as valid JSON.
        if self.chars > MAX_CHARS:
            return False  # its middle was not stored
        try:
            json.loads(value)
        # A model may nest brackets beyond Python's recursion limit.
        except (ValueError, RecursionError):
            return False
        return True


def _sureness(signals: Sequence[TokenSignal]) -> Iterator[float]:
    if not signals:
        # The length must not depend on the answer, since features are identified by
        # their place.
        yield from (0.0,) * 8
        return
    # Clamped to what any model returns: probability 0 has no logarithm.
    logs = [max(_LEAST_LOGPROB, min(0.0, each.logprob)) for each in signals]
    margins = [max(0.0, min(_MOST_MARGIN, each.margin)) for each in signals]
    count = len(signals)
    width = min(_WINDOW, count)
    window = least = sum(logs[:width])
    for gone, come in zip(logs, logs[width:], strict=False):
        # A running sum: with a new sum for each place, the cost would grow with the
        # window, too.
        window += come - gone
        least = min(least, window)
    yield sum(logs) / count
    yield sorted(logs)[count // 10]
    yield least / width
    yield sum(logs[-_END:]) / min(_END, count)
    yield sum(margins) / count
    yield sorted(margins)[count // 10]
    yield sum(each < _UNSURE for each in margins) / count
    yield math.log1p(count)


def _long_words(text: str) -> Iterator[str]:
    return (each for each in _WORD.findall(text.lower()) if len(each) > _SHORT_WORD)


def _sums(text: str) -> tuple[int, int]:
    """Return the numbers of correct and wrong calculations written in a text."""
    right = wrong = 0
    # Thousands separators and currency signs would split one number into two.
    plain = text.replace(",", "").replace("$", "").replace("\u00d7", "*")
    for match in _SUM.finditer(plain):
        # Computed here and not by ``eval``, which would run whatever a model writes.
        value = _value(_TERM.findall(match[1]))
        if value is None:
            continue
        said = float(match[2])
        # With usual rounding: to two decimal places, or by 1 %.
        if math.isclose(value, said, rel_tol=_CLOSE, abs_tol=_CLOSE):
            right += 1
        else:
            wrong += 1
    return right, wrong


def _value(terms: Sequence[str]) -> float | None:
    """Return the value of a calculation; None for a division by zero."""
    total, last = 0.0, float(terms[0])
    for sign, number in zip(terms[1::2], map(float, terms[2::2]), strict=True):
        match sign:
            # Products are collected in ``last`` before they are added: multiplication
            # comes before addition.
            case "*" | "x":
                last *= number
            case "/":
                if not number:
                    return None
                last /= number
            case _:
                total, last = total + last, number if sign == "+" else -number
    return total + last
