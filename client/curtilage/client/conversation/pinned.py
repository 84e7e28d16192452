"""Which conversations stayed home once, so that they stay there.

Chats send their whole history again with every turn. A conversation is known
again by its first turns, as HMACs under a key of this process: no text is kept,
and the set is bounded. Where the policy says ``sticky: content``, the turns that
stayed and their words are known again one by one, likewise; and where a part of
such a conversation may leave, the turns that left. Decides nothing;
``policy.decision.decide`` does.
"""

import hmac
import secrets
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from typing_extensions import override

from curtilage.client.conversation.everyday import (
    is_everyday,
    read_all,
    subject_traces,
    traces_of,
)
from curtilage.client.query import Message, Query
from curtilage.client.repetition import stands_alone, words_of
from curtilage.policy.decision.classes import UNFINISHED
from curtilage.policy.decision.decide import Inspection
from curtilage.policy.decision.rules import Rulebook, unapproved
from curtilage.policy.decision.tiers import RoutingClass
from curtilage.policy.document.dictionaries import folded

MAX_PINS: Final = 4096
MAX_TURNS: Final = 4096  # that left, so that they are known as such
MAX_WORDS: Final = 8192  # of one conversation; of English, 20,000 characters have 5,000
MAX_CONTENTS: Final = 32
# A request without any turn that is known may go on with any conversation. It is held
# against the last of those that stayed, and not against all: together they speak of
# everything.
LAST: Final = 4
# After these, nobody knows what it was that stayed.
_UNREAD: Final = UNFINISHED | {
    f"uncertain.{each}"
    for each in (
        *("attachment", "language", "obfuscation"),
        *("opaque_blob", "oversize", "undecodable"),
    )
}
_SHORT_BYTES: Final = 16
ENGLISH: Final = ("en",)


@dataclass(slots=True)
class _Content:
    """A conversation that stayed: keyed digests of what is in it, never text."""

    asked: set[bytes] = field(repr=False)  # all turns of a query, in order
    first: set[bytes] = field(repr=False)  # the same of each beginning of the first one
    turns: set[bytes] = field(repr=False)  # each alone; no prompts, none that is empty
    kept: set[bytes] = field(repr=False)  # of these, what never left
    prompts: set[bytes] = field(repr=False)  # of the system and the developer
    words: set[bytes] = field(repr=False)
    unread: bool = False  # nobody knows what it was that stayed
    full: bool = False  # not all its words are there

    def take(self, other: "_Content") -> None:
        """Make what is known of another a part of this."""
        self.asked |= other.asked
        self.first |= other.first
        self.turns |= other.turns
        self.kept |= other.kept
        self.prompts |= other.prompts
        self.unread |= other.unread
        self.full |= other.full
        self.learn(other.words)

    def learn(self, words: set[bytes]) -> None:
        """Take words; beyond the bound there are none, and nothing is unlike them."""
        self.words |= words
        if self.full or len(self.words) > MAX_WORDS:
            self.words, self.full = set(), True


class PinnedConversations:
    """The conversations that stayed home.

    Args:
        by_content: know them by their contents, too (``sticky: content``).
        by_message: know the turns that left, for ``taint``.
        languages: in which a text may leave, as ISO 639-1. Where there are more than
            English, a conversation may change them, and words be no repetition though
            they mean the same: what leaves is of everyday subjects alone.
        limit: how many are remembered; the oldest is forgotten first.
    """

    def __init__(
        self,
        *,
        by_content: bool = False,
        by_message: bool = False,
        languages: Collection[str] = ENGLISH,
        limit: int = MAX_PINS,
    ) -> None:
        self._key = secrets.token_bytes(32)
        self._by_content = by_content
        self._by_message = by_message or by_content
        self._languages = tuple(languages)
        self._in_english = self._languages == ENGLISH
        if by_content and not self._in_english:
            # Read at the start: over a question it is too late to miss a file.
            read_all(self._languages)
        self._limit = limit
        self._held: OrderedDict[bytes, None] = OrderedDict()
        self._contents: list[_Content] = []  # the one that stayed last, last
        self._left: OrderedDict[bytes, RoutingClass] = OrderedDict()

    @override
    def __repr__(self) -> str:
        """Tell how many; a digest could confirm a guess."""
        return f"<PinnedConversations: {len(self._held)}>"

    def add(
        self, query: Query, found: "Found | None" = None, *, own: bool = True
    ) -> None:
        """Remember the conversation as it stands now.

        Args:
            query: it stayed.
            found: what was found in it; only where contents count.
            own: it would have stayed without what was before.
        """
        # The whole of it alone: its earlier turns were judged by themselves, and what
        # begins like it need not be about the same.
        for digest in islice(
            self._digests(query), max(len(query.messages) - 1, 0), None
        ):
            self._held[digest] = None
            self._held.move_to_end(digest)
        if len(self._held) > self._limit:
            self._held.popitem(last=False)
        if self._by_content and found is not None:
            self._remember(query, found, own=own)

    def holds(self, query: Query, found: "Found | None" = None) -> bool:
        """Tell whether this goes on with a conversation that stayed home.

        The same turns once more are no continuation: asking again is inspected
        afresh, or one failed detector would keep a question home for good.

        Where contents count, it also goes on with one of which it holds a turn that
        never left; and with one of which it holds another turn, or with one of the
        last where it holds no turn that is known to be of another, unless what it
        says for the first time stands by itself.
        """
        earlier = islice(self._digests(query), max(len(query.messages) - 1, 0))
        if any(digest in self._held for digest in earlier):
            return True
        if not self._by_content or found is None:
            return False
        return any(
            self._goes_on(query, found, content, last=number <= LAST)
            for number, content in enumerate(reversed(self._contents), start=1)
        )

    def leaves(
        self, query: Query, routing_class: RoutingClass = RoutingClass.CONFIDENTIAL
    ) -> None:
        """Remember the turns of a query that may leave: they are no secret of it."""
        for message in query.messages if self._by_message else ():
            self._let_go(message.content, routing_class)

    def taint(self, query: Query, found: "Found") -> tuple[RoutingClass, ...]:
        """Return of each message the class under which it left or, the last, might.

        ``RESTRICTED``: it is not known to have left, or something is found in it. What
        was forgotten is not known.
        """
        last = len(query.messages) - 1
        return tuple(
            RoutingClass.RESTRICTED
            if any(_counts(name) for name in found.classes_in({index}))
            else self._left.get(
                self._turn(message.content),
                # What is asked now was never asked; it is judged by itself.
                RoutingClass.PUBLIC if index == last else RoutingClass.RESTRICTED,
            )
            for index, message in enumerate(query.messages)
        )

    def answered(self, query: Query, text: str, *, here: bool) -> None:
        """Remember an answer: applications send it again as a turn.

        Args:
            query: what was asked.
            text: what was answered.
            here: by the local model, to a query that had to stay.
        """
        if not here and query.messages and self._by_message:
            asked = self._turn(query.messages[-1].content)
            self._let_go(text, self._left.get(asked, RoutingClass.CONFIDENTIAL))
        if not here or not self._by_content:
            return
        # It was made of what stayed, whatever words it uses.
        whole = tuple(self._digests(query))[-1:]
        for content in self._contents:
            if content.asked.issuperset(whole):
                turn = self._turn(text)
                content.turns.add(turn)
                content.kept.add(turn)
                content.learn(self._keyed(self._words_of(text)))

    def _goes_on(
        self, query: Query, found: "Found", content: _Content, *, last: bool
    ) -> bool:
        *_, whole = (b"", *self._digests(query))
        if whole in content.first:
            return False  # asked again, not gone on with
        turns = [self._turn(each.content) for each in query.messages]
        if not content.kept.isdisjoint(turns):
            return True
        shared = not content.turns.isdisjoint(turns)
        if not shared and not (last and self._is_of_no_other(query, turns)):
            return False
        if content.full or (shared and content.unread):
            return True
        # What left before was judged by itself, and did; a prompt that was there before
        # is looked at each time. The last turn is new in any case.
        end = len(query.messages) - 1
        new = {
            index
            for index, turn in enumerate(turns)
            if index == end or not (turn in self._left or turn in content.prompts)
        }
        return self._says_more(query, found, new, content)

    def _says_more(
        self, query: Query, found: "Found", new: Collection[int], content: _Content
    ) -> bool:
        """Tell whether what is new may be about what stayed."""
        told = set(self._asked_in("\n".join(query.settings.stop)))
        # A place or a day is found in many harmless questions; all else that is found
        # may be what was found before, under another name.
        for name in found.classes_in(new):
            if _counts(name):
                return True
            told.add(name)
        for index in new:
            message = query.messages[index]
            if not self._stands_alone(message):
                return True
            told |= self._asked_in(f"{message.name or ''}\n{message.content}")
        return not content.words.isdisjoint(self._keyed(told))

    def _stands_alone(self, message: Message) -> bool:
        """Tell whether a new turn names its own subject."""
        if self._in_english:
            return message.role != "user" or stands_alone(message.content)
        # Of whatever role: a summary in another language shares no word with what it
        # tells.
        return is_everyday(message.content, self._languages)

    def _words_of(self, text: str) -> frozenset[str]:
        """Return what a text says, to be held against what is asked later."""
        return words_of(text) if self._in_english else traces_of(text)

    def _asked_in(self, text: str) -> frozenset[str]:
        """Return what a question may repeat of what was said before it."""
        if self._in_english:
            return words_of(text)
        return subject_traces(text, self._languages)

    def _is_of_no_other(self, query: Query, turns: list[bytes]) -> bool:
        """Tell whether nothing says that this goes on with what left."""
        earlier = zip(query.messages[:-1], turns, strict=False)
        return not any(
            turn in self._left for message, turn in earlier if not _is_prompt(message)
        )

    def _content_of(self, query: Query, found: "Found") -> _Content:
        content = _Content(
            asked=set(tuple(self._digests(query))[-1:]),
            first=set(),
            turns=set(),
            kept=set(),
            prompts=set(),
            words=set(),
            unread=not _UNREAD.isdisjoint(found.classes),
        )
        told = self._words_of("\n".join(query.settings.stop)) | found.classes
        for index, message in enumerate(query.messages):
            turn, words = self._turn(message.content), self._words_of(message.content)
            if _is_prompt(message):
                # The same one stands before every question of an application, and is
                # looked at each time. Its words count where something is found in it.
                content.prompts.add(turn)
                words = words if index in found.messages else frozenset[str]()
            # "Thanks" is in many conversations, and carries nothing on.
            elif words:
                content.turns.add(turn)
                if turn not in self._left:
                    content.kept.add(turn)
            told |= words | self._words_of(message.name or "")
        content.learn(self._keyed(told))
        return content

    def _remember(self, query: Query, found: "Found", *, own: bool) -> None:
        """Join it with what it goes on with, or begin anew; the oldest is forgotten."""
        new = self._content_of(query, found)
        # What stayed by itself is a conversation of its own, unless they share turns.
        joined = [
            content
            for number, content in enumerate(reversed(self._contents), start=1)
            if not content.turns.isdisjoint(new.turns)
            or (not own and self._goes_on(query, found, content, last=number <= LAST))
        ]
        # One that goes on may not be asked again as if it were the first.
        if own and not joined:
            new.first = set(self._digests(query))
        for content in joined:
            new.take(content)
        self._contents = [
            each for each in self._contents if all(each is not one for one in joined)
        ]
        self._contents.append(new)
        del self._contents[:-MAX_CONTENTS]

    def _let_go(self, text: str, routing_class: RoutingClass) -> None:
        turn = self._turn(text)
        known = self._left.get(turn, routing_class)
        self._left[turn] = max(known, routing_class, key=lambda each: each.privacy)
        self._left.move_to_end(turn)
        if len(self._left) > MAX_TURNS:
            self._left.popitem(last=False)

    def _turn(self, text: str) -> bytes:
        # Without its role, and folded: applications trim turns, and hand them on under
        # another role.
        return self._digest(b"turn", folded(text))

    def _keyed(self, words: Iterable[str]) -> set[bytes]:
        return {self._digest(b"word", word) for word in words}

    def _digest(self, label: bytes, text: str) -> bytes:
        # Keyed: words are few, and a bare digest of one says which it is.
        data = label + b"\0" + text.encode("utf-8", "surrogatepass")
        return hmac.digest(self._key, data, "sha256")[:_SHORT_BYTES]

    def _digests(self, query: Query) -> Iterator[bytes]:
        """Yield one digest for each beginning of the conversation."""
        # Keyed: a bare digest, wherever it turned up, would confirm a guess. Each is
        # over the one before, so that one pass serves for all beginnings.
        digest = b""
        for message in query.messages:
            digest = hmac.digest(self._key, digest + message.encoded(), "sha256")
            yield digest


@dataclass(frozen=True, slots=True)
class Found:
    """What was found in one query, by the messages in which it was.

    Attributes:
        by_message: class and index of the message; -1: over several texts.
    """

    by_message: frozenset[tuple[str, int]]

    @classmethod
    def of(cls, rulebook: Rulebook, inspection: Inspection) -> "Found":
        """Return what an inspection found, but for what is approved."""
        counted = unapproved(rulebook, inspection.findings, inspection.approved)
        return cls(
            frozenset(
                (each.data_class, each.where.message if each.where.json_path else -1)
                for each in counted
            )
        )

    @property
    def classes(self) -> frozenset[str]:
        """Everything that was found."""
        return frozenset(name for name, _ in self.by_message)

    @property
    def messages(self) -> frozenset[int]:
        """The messages in which something was found."""
        return frozenset(index for _, index in self.by_message)

    def classes_in(self, messages: Collection[int]) -> frozenset[str]:
        """Return what was found in these, or over several texts."""
        return frozenset(
            name for name, index in self.by_message if index in messages or index < 0
        )


def _counts(name: str) -> bool:
    """Tell whether a class found in a turn may be what was found before it."""
    return not name.startswith("identifier.quasi.")


def _is_prompt(message: Message) -> bool:
    return message.role in {"system", "developer"}
