"""Restores the values in an answer that arrives in pieces.

Sans-IO. Searches for exactly the stand-ins that were sent and uses no offsets, so it
also restores a rewritten, reordered or truncated answer. Ordinary text passes at once:
held back are only the longest suffix that could become a stand-in, and a stand-in until
the word that contains it has ended.

Deliberately not restored is a stand-in inside an address, or right before the rest of a
host name: an application that shows the answer may fetch what it links to, and would
send the name to a server of the answer author's choice. The same holds next to a
control character. A token that was not sent stays as it is. All of these are counted.

Small models drop the brackets of a token. ``PERSON_1`` is also restored where it
is a word that was sent: in Markdown's emphasis, with its underscore escaped, before
``'s``, in capitals or with only the first letter as one. As part of an identifier in
code (``MY_PERSON_1``, ``$PERSON_1``, ``PERSON_1.age``, ``person_1``) it is kept and
counted.

JSON stays JSON: in a string of a call's arguments that is JSON itself, the strings of
that are restored. Of an answer that is JSON, pieces were shown before such a string
ends; there a value that would need escapes within escapes is not restored.
"""

import json
import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final, cast

from typing_extensions import override

from curtilage.client.chat.answer import AnswerEvent, Called, Delta
from curtilage.client.errors import EnclaveError
from curtilage.client.pseudonyms.link_guard import AddressWatch, is_joined
from curtilage.client.pseudonyms.vault import BARE_FORM, CLOSING, OPENING, TOKEN
from curtilage.client.remote.reasons import EnclaveFailure

# An answer of 32,768 model tokens, five for a stand-in, has fewer.
MAX_STAND_INS: Final = 10_000
_MAX_TOKEN_CHARS: Final = 32
# Characters before or after a word that make it part of an identifier in code.
_BEFORE_NAME: Final = r"(?<![\w$@#%.&\\])"
_AFTER_NAME: Final = r"(?![\w$@(\[=]|\.\w|->)"
_MAX_EMPHASIS: Final = 3
# It may still become part of such an identifier, or the end of an emphasis.
_UNDECIDED: Final = re.compile(rf"(?:_{{0,{_MAX_EMPHASIS}}}|s|\.|-)\Z")
# In German a person's name takes an "s" and no apostrophe.
_AS_WORD: Final = (
    rf"{_BEFORE_NAME}{BARE_FORM}(?:(?=s(?!\w))|{_AFTER_NAME})",
    *(
        rf"(?<={_BEFORE_NAME}{'_' * count}){BARE_FORM}(?={'_' * count}(?!\w))"
        for count in range(1, _MAX_EMPHASIS + 1)
    ),
)
_EMPHASISED: Final = re.compile(rf"(?<![A-Za-z])({BARE_FORM})_{{1,{_MAX_EMPHASIS}}}\Z")
# In any case and position: stand-ins that are not restored are counted.
_BARE: Final = re.compile(r"(?<![^\W_])([A-Za-z]+)\\?_([0-9]{1,4})(?![0-9])")


class _JsonWatch:
    """Follows JSON, and knows whether it is in a string that is JSON again."""

    def __init__(self) -> None:
        self.nested = False
        self._quoted = False
        self._escaped = False
        self._begins = False

    def push(self, text: str) -> None:
        """Take the next characters."""
        for char in text:
            escaped, self._escaped = self._escaped, False
            if char == '"' and not escaped:
                self._quoted = self._begins = not self._quoted
                self.nested = False
            elif char == "\\" and not escaped:
                self._escaped = True
            # The escapes of white space; that of any other may be of a bracket.
            elif self._begins and char not in (" nrt" if escaped else " "):
                self._begins = False
                self.nested = escaped or char in "{["


class Restorer:
    """Restores one text, piece by piece.

    Args:
        values: the value behind each stand-in.
        formatted: the text is JSON, and a value is written as in a string of it.

    Attributes:
        unknown: number of tokens that were not sent, so far.
        in_urls: number of stand-ins kept because they may be part of an address.
        unrestored: number of places without their value, so far: both, and
            tokens that are part of another word.
    """

    def __init__(self, values: Mapping[str, str], *, formatted: bool = False) -> None:
        self._values = dict(values)
        self._json: _JsonWatch | None = None
        if formatted:
            self._json = _JsonWatch()
            self._values = {name: _in_json(each) for name, each in values.items()}
        self._bare = {
            spelled: token
            for token in values
            if token.startswith(OPENING)
            for spelled in _spellings(token)
        }
        self._sorted = sorted((*values, *self._bare))
        self._longest = max(map(len, self._sorted), default=0)
        self._first = {each[:1] for each in self._sorted}
        # A date only as a word of its own: within a longer number it is not one.
        # Longest first, so that none matches as a shorter one that it begins with.
        # Tokens are matched by their form and then looked up: one by one, each would
        # cost time at every letter of an answer.
        forms = [
            rf"(?<!\w){re.escape(each)}(?!\w)"
            for each in sorted(values, key=len, reverse=True)
            if not each.startswith(OPENING)
        ]
        if self._bare:
            forms += (TOKEN.pattern, *_AS_WORD)
        self._known = re.compile("|".join(forms)) if forms else None
        self._before = ""  # the end of the text that was passed on, as received
        self._watch = AddressWatch()  # follows the returned text
        self._held: str = ""
        self._seen = 0
        self._recognised = 0  # stand-ins with or without brackets
        self._restored_count = 0  # of these, restored
        self.unknown = 0
        self.in_urls = 0

    @property
    def unrestored(self) -> int:
        """Number of places without their value."""
        return self.unknown + max(self._recognised - self._restored_count, 0)

    @override
    def __repr__(self) -> str:
        """Show the number of stand-ins; nothing of the values behind them."""
        return f"<Restorer: {len(self._values)}>"

    def push(self, piece: str) -> str:
        """Return the text that can be shown after one more piece; may be empty.

        Raises:
            EnclaveError: more stand-ins than an answer can have; each costs time.
        """
        return self._released(piece, last=False)

    def close(self) -> str:
        """Return the rest of the text.

        Raises:
            EnclaveError: it ends inside a token; half a token is not text.
        """
        return self._released("", last=True)

    def _released(self, piece: str, *, last: bool) -> str:
        text, at = self._before + self._held + piece, len(self._before)
        released: list[str] = []
        end = None
        for match in () if self._known is None else self._known.finditer(text, at):
            bare = match[0] in self._bare
            if not bare and match[0] not in self._values:
                continue  # has the form of one, and was not sent
            joined = is_joined(text, match.end(), last=last)
            if joined is None or (
                bare and not last and _UNDECIDED.match(text, match.end())
            ):
                # Without its brackets only if none is about to follow.
                end = min(match.start(), self._first_held(text, at))
                break
            if bare and last and _is_cut(text, match):
                raise EnclaveError(EnclaveFailure.ANSWER_INCOMPLETE)
            released.append(self._passed(text[at : match.start()]))
            released.append(self._passed(self._restored(match, joined=joined)))
            at = match.end()
        if end is None:
            end = self._first_held(text, at)
            if last and text.startswith(OPENING, end):
                raise EnclaveError(EnclaveFailure.ANSWER_INCOMPLETE)
            end = len(text) if last else end
        self._count(text, end, last=last)
        # Tokens that were not sent, each where it ends: with as much preceding text as
        # one can have, since pieces are cut anywhere.
        start = len(self._before)
        self.unknown += sum(
            match.end() > start and match[0] not in self._values
            for match in TOKEN.finditer(text, max(start - _MAX_TOKEN_CHARS, 0), end)
        )
        released.append(self._passed(text[at:end]))
        # Enough for a token that was not sent, and for the letter before a date.
        self._before = text[max(end - _MAX_TOKEN_CHARS, 0) : end]
        self._held = text[end:]
        return "".join(released)

    def _count(self, text: str, end: int, *, last: bool) -> None:
        """Count what has the form of a stand-in that was sent, once it is complete.

        With the same beginning as below; what ends where more may follow waits.
        """
        start = len(self._before)
        for match in _BARE.finditer(text, max(start - _MAX_TOKEN_CHARS, 0)):
            ends = start <= match.end() < end or (last and match.end() == end)
            token = f"{OPENING}{match[1].upper()}_{match[2]}{CLOSING}"
            self._recognised += ends and token in self._values

    def _passed(self, text: str) -> str:
        self._watch.push(text)
        if self._json is not None:
            self._json.push(text)
        return text

    def _first_held(self, text: str, start: int) -> int:
        """Return where the longest suffix begins that could become a stand-in."""
        tail = max(len(text) - self._longest - _MAX_EMPHASIS, start)
        undecided = _EMPHASISED.search(text, tail) if self._bare else None
        if undecided is not None and undecided[1] in self._bare:
            return undecided.start()
        for at in range(max(len(text) - self._longest, start), len(text)):
            if text[at] not in self._first or (at and text[at - 1 : at + 1].isalnum()):
                continue
            # Sorted: anything with this prefix follows its insertion point.
            end = text[at:]
            place = bisect_left(self._sorted, end)
            if place < len(self._sorted) and self._sorted[place].startswith(end):
                return at
        return len(text)

    def _restored(self, match: re.Match[str], *, joined: bool) -> str:
        # No answer has so many, and each costs time: an enclave that sends nothing else
        # must not block this machine.
        self._seen += 1
        if self._seen > MAX_STAND_INS:
            raise EnclaveError(EnclaveFailure.ANSWER_BROKEN)
        # An address of the answer author's choice, with the name in it, would be
        # fetched by the application that shows the answer (see the module's docstring).
        token = self._bare.get(match[0], match[0])
        value = self._values[token]
        if self._json is not None and self._json.nested and "\\" in value:
            return match[0]
        if joined or self._watch.inside:
            self.in_urls += 1
            self._recognised += not token.startswith(OPENING)
            return match[0]
        self._restored_count += token.startswith(OPENING)
        return value


class AnswerRestorer:
    """Restores the events of one answer; log-probabilities do not survive it.

    Args:
        values: the value behind each stand-in.
        formatted: the texts are JSON; see ``Restorer``.
    """

    def __init__(self, values: Mapping[str, str], *, formatted: bool = False) -> None:
        self._values = values
        self._formatted = formatted
        self._texts: dict[int, Restorer] = {}
        self._ended: list[Restorer] = []

    def push(self, event: AnswerEvent) -> Iterator[AnswerEvent]:
        """Yield what can be shown after one more event.

        Raises:
            EnclaveError: the answer ends inside a token.
        """
        if isinstance(event, Delta):
            choice = event.choice
            if choice not in self._texts:
                self._texts[choice] = Restorer(self._values, formatted=self._formatted)
            yield from _shown(self._texts[choice].push(event.text), choice)
            if event.calls:
                yield from self._close(choice)
                calls = tuple(map(self._called, event.calls))
                yield Delta(text="", choice=choice, calls=calls)
            return
        for choice in sorted(self._texts):
            yield from self._close(choice)
        yield replace(
            event,
            unknown_tokens=sum(each.unknown for each in self._ended),
            unrestored=sum(each.unrestored for each in self._ended),
        )

    def _close(self, choice: int) -> Iterator[Delta]:
        text = self._texts.pop(choice)
        self._ended.append(text)
        yield from _shown(text.close(), choice)

    def _called(self, call: Called) -> Called:
        """Restore the strings of a call's arguments, which stay JSON."""
        try:
            arguments = _encoded(self._restored(json.loads(call.arguments)))
            # An escape may stand for half a character, which has no encoding.
            arguments.encode()
        except (ValueError, RecursionError):
            # Their errors contain the arguments.
            raise EnclaveError(EnclaveFailure.ANSWER_BROKEN) from None
        return replace(call, arguments=arguments)

    def _restored(self, value: object) -> object:
        if isinstance(value, dict):
            given = cast("dict[str, object]", value)
            members = {
                cast("str", self._restored(name)): self._restored(each)
                for name, each in given.items()
            }
            if len(members) < len(given):  # a name and its stand-in
                raise EnclaveError(EnclaveFailure.ANSWER_BROKEN)
            return members
        if isinstance(value, list):
            return [*map(self._restored, cast("list[object]", value))]
        if not isinstance(value, str):
            return value
        inner = _json_of(value)
        if inner is not None:
            # As it was written, unless something changes in it.
            restored = self._restored(inner)
            return value if restored == inner else _encoded(restored)
        restorer = Restorer(self._values)
        self._ended.append(restorer)
        return restorer.push(value) + restorer.close()


def _json_of(text: str) -> object:
    """Return the object, list or string that a text is, as JSON; None: it is none."""
    if not text.lstrip().startswith(("{", "[", '"')):
        return None
    try:
        return cast("object", json.loads(text))
    except json.JSONDecodeError:
        return None


def _encoded(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _in_json(value: str) -> str:
    """Return a text as it is written between the quotes of JSON."""
    return json.dumps(value, ensure_ascii=False)[1:-1]


def _is_cut(text: str, match: re.Match[str]) -> bool:
    """Return whether a text ends inside a token."""
    opened = text[max(match.start() - 1, 0) : match.start()] == OPENING
    return opened and match.end() == len(text)


def _spellings(token: str) -> Iterator[str]:
    """Yield the spellings by which models write a token without its brackets."""
    word, _, number = token[len(OPENING) : -len(CLOSING)].rpartition("_")
    for spelled in (word, word.capitalize()):
        yield f"{spelled}_{number}"
        yield f"{spelled}\\_{number}"  # as Markdown escapes it


def _shown(text: str, choice: int) -> Iterator[Delta]:
    # Log-probabilities belong to the text with stand-ins, so they are dropped.
    if text:
        yield Delta(text=text, choice=choice)
