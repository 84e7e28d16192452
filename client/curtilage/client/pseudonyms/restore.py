"""Put the values back into an answer that arrives in pieces.

Sans-IO. Looks for exactly the stand-ins that were sent and at no offsets, so a
rewritten, reordered or cut answer is restored as well. Ordinary text passes at
once: held back is only the longest end that could become a stand-in, and a
stand-in until the word that it stands in has ended.

Not restored, on purpose, is a stand-in inside an address, or right before the
rest of a host's name: whoever shows the answer may fetch what it links to, and a
name put into the address would go out to whom the answer's author chose. Nor is
one beside a control character. A token nobody sent stays as it is. All are counted.
"""

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from typing import Final

from typing_extensions import override

from curtilage.client.answer import AnswerEvent, Delta, Finished
from curtilage.client.errors import EnclaveError, FailureReason
from curtilage.client.pseudonyms.link_guard import AddressWatch, is_joined
from curtilage.client.pseudonyms.vault import OPENING, TOKEN

# An answer of 32,768 tokens of the model, five to a stand-in, has fewer.
MAX_STAND_INS: Final = 10_000
_MAX_TOKEN_CHARS: Final = 32


class Restorer:
    """Restores one text, piece by piece.

    Args:
        values: what each stand-in hides.

    Attributes:
        unknown: tokens that nobody sent, so far.
        in_urls: stand-ins left alone because they may be a part of an address.
    """

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = dict(values)
        self._sorted = sorted(values)
        self._longest = max(map(len, values), default=0)
        self._first = {each[:1] for each in values}
        # Longest first, so that none is taken for a shorter one that it begins with. A
        # date only where it stands alone: as digits of a longer number it is none.
        forms = [
            re.escape(each)
            if each.startswith(OPENING)
            else rf"(?<!\w){re.escape(each)}(?!\w)"
            for each in sorted(values, key=len, reverse=True)
        ]
        self._known = re.compile("|".join(forms)) if forms else None
        self._before = ""  # the end of what came and was passed on, as it came
        self._watch = AddressWatch()  # of what was told
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
        return self._released(piece, last=False)

    def close(self) -> str:
        """Return the rest of the text.

        Raises:
            EnclaveError: it ends inside a token; half a token is no text.
        """
        return self._released("", last=True)

    def _released(self, piece: str, *, last: bool) -> str:
        text, at = self._before + self._held + piece, len(self._before)
        told: list[str] = []
        end = None
        for match in () if self._known is None else self._known.finditer(text, at):
            joined = is_joined(text, match.end(), last=last)
            if joined is None:
                end = match.start()
                break
            told.append(self._passed(text[at : match.start()]))
            told.append(self._passed(self._restored(match, joined=joined)))
            at = match.end()
        if end is None:
            end = self._first_held(text, at)
            if last and text.startswith(OPENING, end):
                raise EnclaveError(FailureReason.ANSWER_INCOMPLETE)
            end = len(text) if last else end
        # Tokens that nobody sent, each where it ends: with as much of what was told
        # before as one can have, since pieces cut where they like.
        start = len(self._before)
        self.unknown += sum(
            match.end() > start and match[0] not in self._values
            for match in TOKEN.finditer(text, max(start - _MAX_TOKEN_CHARS, 0), end)
        )
        told.append(self._passed(text[at:end]))
        # Enough for a token nobody sent, and for the letter before a date.
        self._before = text[max(end - _MAX_TOKEN_CHARS, 0) : end]
        self._held = text[end:]
        return "".join(told)

    def _passed(self, text: str) -> str:
        self._watch.push(text)
        return text

    def _first_held(self, text: str, start: int) -> int:
        """Return where the longest end begins that could become a stand-in."""
        for at in range(max(len(text) - self._longest, start), len(text)):
            if text[at] not in self._first:
                continue
            # Sorted: what begins with an end stands right behind its place.
            end = text[at:]
            place = bisect_left(self._sorted, end)
            if place < len(self._sorted) and self._sorted[place].startswith(end):
                return at
        return len(text)

    def _restored(self, match: re.Match[str], *, joined: bool) -> str:
        # No answer has so many, and each takes time: an enclave that sends nothing
        # else must not hold this machine.
        self._seen += 1
        if self._seen > MAX_STAND_INS:
            raise EnclaveError(FailureReason.ANSWER_BROKEN)
        # An address that the answer's author chose, with the name in it, would be
        # fetched by whatever shows the answer (the module's head says more).
        if joined or self._watch.inside:
            self.in_urls += 1
            return match[0]
        return self._values[match[0]]


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
