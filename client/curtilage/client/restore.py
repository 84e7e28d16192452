"""Put the values back into an answer that arrives in pieces.

Sans-IO. Looks for exactly the stand-ins that were sent and at no offsets, so a
rewritten, reordered or cut answer is restored as well. Ordinary text passes at
once: held back is only the longest end that could become a stand-in.

Not restored, on purpose, is a stand-in inside a URL: whoever shows the answer
may fetch what it links to, and a name put into the address would go out to
whom the answer's author chose. A token nobody sent stays as it is. Both are
counted.
"""

import json
import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from typing_extensions import override

from curtilage.client.answers import AnswerEvent, Delta, Finished
from curtilage.client.errors import EnclaveError, FailureReason
from curtilage.client.vault import OPENING, TOKEN

# How far back a URL may have begun: as long as browsers take them.
REACH_CHARS: Final = 2048
# An answer of 32,768 tokens of the model, five to a stand-in, has fewer.
MAX_STAND_INS: Final = 10_000
_MAX_TOKEN_CHARS: Final = 32
# Where an address begins: by its scheme, as an attribute of a tag, in CSS, as the
# target of a Markdown link or in the definition of one. An encoded address has
# no scheme that can be seen, so the places count by themselves.
_BEGINS: Final = re.compile(
    r"(?:https?|wss?|ftp):|//|\\\\|www\.|"
    r"(?:src|srcset|href|action|formaction|poster|background)\s*=\s*(?P<value>[\"']?)|"
    r"url\(\s*(?P<css>[\"']?)|"
    r"\]\((?P<target><?)|"
    r"(?P<line>^ {0,3}\[[^\]\n]{1,200}\]:)",
    re.IGNORECASE | re.MULTILINE,
)
# Without any of these no address begins; looking for them is quicker.
_SIGNS: Final = (
    *("http", "ws:", "wss:", "ftp:", "//", "\\\\", "www.", "url(", "](", "]:"),
    *("src", "href", "action", "poster", "background"),
)
_ENDS: Final[Mapping[str, re.Pattern[str]]] = {
    "": re.compile(r"\s"),
    "<": re.compile(r"(?<!\\)>|\n"),
    '"': re.compile('"'),
    "'": re.compile("'"),
    "line": re.compile(r"\n"),
}


def as_text(value: str) -> str:
    """Return a value as it stands in plain text: unchanged."""
    return value


def as_json_string(value: str) -> str:
    """Return a value as it stands inside a JSON string, such as an argument."""
    return json.dumps(value, ensure_ascii=False)[1:-1]


class Restorer:
    """Restores one text, piece by piece.

    Args:
        values: what each stand-in hides.
        written: how a value is written where it goes: ``as_text`` for an
            answer, ``as_json_string`` for a tool's arguments that are JSON.

    Attributes:
        unknown: tokens that nobody sent, so far.
        in_urls: stand-ins left alone because they stood in a URL, so far.
    """

    def __init__(
        self, values: Mapping[str, str], *, written: Callable[[str], str] = as_text
    ) -> None:
        self._values = dict(values)
        self._written = written
        self._sorted = sorted(values)
        self._longest = max(map(len, values), default=0)
        self._first = {each[:1] for each in values}
        self._known = _pattern(values)
        self._before = ""  # what came and was passed on, as it came
        self._held = ""
        self._seen = 0
        self.unknown = 0
        self.in_urls = 0

    @override
    def __repr__(self) -> str:
        """Tell how many stand-ins are known; nothing of what they hide."""
        return f"<Restorer: {len(self._values)}>"

    def push(self, piece: str) -> str:
        """Return what can be told after one more piece; it may be empty.

        Raises:
            EnclaveError: more stand-ins than an answer can have; each takes time.
        """
        return self._told(piece, last=False)

    def close(self) -> str:
        """Return the rest of the text.

        Raises:
            EnclaveError: it ends inside a token; half a token is no text.
        """
        if self._held.startswith(OPENING):
            raise EnclaveError(FailureReason.ANSWER_INCOMPLETE)
        return self._told("", last=True)

    def _told(self, piece: str, *, last: bool) -> str:
        text, at = self._before + self._held + piece, len(self._before)
        told = ""
        for match in self._certain(text, at, last=last):
            told += text[at : match.start()] + self._restored(match)
            at = match.end()
        end = len(text) if last else self._first_held(text, at)
        self.unknown += self._count_unknown(text[:end], len(self._before))
        self._before, self._held = text[:end][-REACH_CHARS:], text[end:]
        return told + text[at:end]

    def _certain(self, text: str, start: int, *, last: bool) -> Iterator[re.Match[str]]:
        """Yield the stand-ins; no date at the end while more may come.

        A token is certain with its closing mark. A date is not before the
        character after it is known: 1 May 1980 and 1 May 19805 begin alike.
        """
        if self._known is None:
            return
        for match in self._known.finditer(text, start):
            at_end = match.end() == len(text)
            if at_end and not last and not match[0].startswith(OPENING):
                return
            yield match

    def _first_held(self, text: str, start: int) -> int:
        """Return where the longest end begins that could become a stand-in."""
        at = max(len(text) - self._longest, start)
        while at < len(text) and not self._could_become(text[at:]):
            at += 1
        return at

    def _could_become(self, end: str) -> bool:
        if end[0] not in self._first:
            return False
        at = bisect_left(self._sorted, end)
        return at < len(self._sorted) and self._sorted[at].startswith(end)

    def _restored(self, match: re.Match[str]) -> str:
        self._seen += 1
        if self._seen > MAX_STAND_INS:
            raise EnclaveError(FailureReason.ANSWER_BROKEN)
        start = match.start()
        if is_in_url(match.string[max(start - REACH_CHARS, 0) : start]):
            self.in_urls += 1
            return match[0]
        return self._written(self._values[match[0]])

    def _count_unknown(self, text: str, start: int) -> int:
        tokens = TOKEN.finditer(text, max(start - _MAX_TOKEN_CHARS, 0))
        return sum(
            match.end() > start and match[0] not in self._values for match in tokens
        )


def _pattern(values: Mapping[str, str]) -> re.Pattern[str] | None:
    """Return what finds every stand-in; a date only where it stands alone."""
    longest_first = sorted(values, key=len, reverse=True)
    return re.compile("|".join(map(_form, longest_first))) if values else None


def _form(stand_in: str) -> str:
    form = re.escape(stand_in)
    return form if stand_in.startswith(OPENING) else rf"(?<!\w){form}(?!\w)"


def is_in_url(before: str) -> bool:
    """Tell whether what follows ``before`` would be a part of a URL.

    Errs towards yes: a stand-in left alone is ugly, a name sent out is not
    undone. A URL in quotes or angle brackets ends with them, and any other one
    at white space.
    """
    plain = before.lower()
    if not any(sign in plain for sign in _SIGNS):
        return False
    at = 0
    while begun := _BEGINS.search(before, at):
        ended = _ENDS[_closed_by(begun)].search(before, begun.end())
        if ended is None:
            return True
        at = ended.end()
    return False


def _closed_by(begun: re.Match[str]) -> str:
    if begun["line"] is not None:
        return "line"
    opened = begun["value"] or begun["css"] or begun["target"]
    before = begun.string[max(begun.start() - 1, 0) : begun.start()]
    return opened or (before if before in _ENDS else "")


class AnswerRestorer:
    """Restores the events of one answer; log-probabilities do not survive it.

    Args:
        values: what each stand-in hides.
    """

    def __init__(self, values: Mapping[str, str]) -> None:
        self._restorer = Restorer(values)

    def push(self, event: AnswerEvent) -> Iterator[AnswerEvent]:
        """Yield what can be shown after one more event.

        Raises:
            EnclaveError: the answer ends inside a token.
        """
        if isinstance(event, Delta):
            yield from _shown(self._restorer.push(event.text))
            return
        yield from _shown(self._restorer.close())
        yield Finished(
            finish_reason=event.finish_reason,
            prompt_tokens=event.prompt_tokens,
            completion_tokens=event.completion_tokens,
            unknown_tokens=self._restorer.unknown,
        )


def _shown(text: str) -> Iterator[Delta]:
    # Their tokens and numbers tell of the text with stand-ins, not of this one.
    if text:
        yield Delta(text=text, logprobs=())
