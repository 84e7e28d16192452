"""Which conversations stayed home once, so that they stay there.

Chats send their whole history again with every turn. A conversation is known
again by its first turns, as keyed digests: no text is kept, and the set is
bounded. It outlives this process where ``kept`` has files; what was forgotten
counts as kept. Where the policy says ``sticky: content``, the turns that stayed
and their words are known again one by one, likewise; and where a part of such a
conversation may leave, the turns that left. These are in memory, each caller's
apart: one must not learn what another said by asking. Decides nothing;
``policy.decision.decide`` does.
"""

import hmac
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final
from weakref import WeakKeyDictionary

from typing_extensions import override

from curtilage.client.conversation.everyday import (
    is_everyday,
    read_all,
    subject_traces,
    traces_of,
)
from curtilage.client.conversation.kept import (
    MAX_CALLERS,
    MAX_KEPT,
    KeptConversations,
)
from curtilage.client.fair_queue import ASKER, CALLER, Asker
from curtilage.client.query import Message, Query
from curtilage.client.repetition import stands_alone, words_of
from curtilage.policy.decision.classes import UNFINISHED
from curtilage.policy.decision.decide import Inspection
from curtilage.policy.decision.rules import Rulebook, unapproved
from curtilage.policy.decision.tiers import RoutingClass
from curtilage.policy.document.dictionaries import folded

MAX_TURNS: Final = 4096  # that left or might have, so that they are known as such
MAX_KEPT_TURNS: Final = 65_536  # of one caller, that did not
LOST_S: Final = 12 * 3600
"""For so long, a conversation may go on whose words were lost with a process."""
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
_NO_CONNECTION: Final = Asker()
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

    @property
    def size(self) -> int:
        """How many digests it has, but for those of words."""
        sets = (self.asked, self.first, self.turns, self.kept, self.prompts)
        return sum(map(len, sets))

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


@dataclass(slots=True)
class _Memory:
    """What is known of one caller's conversations; keyed digests."""

    contents: list[_Content]  # that stayed; the one that stayed last, last
    asked: OrderedDict[bytes, None]  # whole queries that might have left
    free: OrderedDict[bytes, None]  # turns of these
    left: OrderedDict[bytes, RoutingClass]  # turns that were sealed

    @classmethod
    def empty(cls) -> "_Memory":
        return cls([], OrderedDict(), OrderedDict(), OrderedDict())


class PinnedConversations:
    """The conversations that stayed home.

    Args:
        by_content: know them by their contents, too (``sticky: content``).
        by_message: know the turns that left, for ``taint``.
        languages: in which a text may leave, as ISO 639-1. Where there are more than
            English, a conversation may change them, and words be no repetition though
            they mean the same: what leaves is of everyday subjects alone.
        limit: how many of one caller are remembered; the oldest is forgotten first.
        kept: where they outlive this process; None: they do not.
        now_s: Unix time.
    """

    def __init__(
        self,
        *,
        by_content: bool = False,
        by_message: bool = False,
        languages: Collection[str] = ENGLISH,
        limit: int = MAX_KEPT,
        kept: KeptConversations | None = None,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        self._kept = KeptConversations(share=limit) if kept is None else kept
        self._key = self._kept.key
        self._now_s = now_s
        self._by_content = by_content
        self._by_message = by_message or by_content
        self._languages = tuple(languages)
        self._in_english = self._languages == ENGLISH
        if by_content and not self._in_english:
            # Read at the start: over a question it is too late to miss a file.
            read_all(self._languages)
        self._memories: OrderedDict[bytes, _Memory] = OrderedDict()
        # Of callers without a name, by their connection.
        self._unnamed: WeakKeyDictionary[Asker, _Memory] = WeakKeyDictionary()
        self._unnamed_kept_s = 0

    @override
    def __repr__(self) -> str:
        """Tell how many; a digest could confirm a guess."""
        return f"<PinnedConversations: {self._kept.count()}>"

    def close(self) -> bool:
        """Close the files, if there are any; return whether all is in them."""
        return self._kept.close()

    def save(self) -> bool:
        """Write what ``add`` was called with; return whether it is on the disk."""
        return self._kept.save()

    def add(
        self,
        query: Query,
        found: "Found | None" = None,
        *,
        own: bool = True,
        apart: bool = False,
    ) -> None:
        """Remember the conversation as it stands now.

        Args:
            query: it stayed.
            found: what was found in it; only where contents count.
            own: it would have stayed without what was before.
            apart: its last turn may leave by itself.
        """
        # The whole of it alone: its earlier turns were judged by themselves, and what
        # begins like it need not be about the same.
        *_, whole = (b"", *self._digests(query))
        if not whole:
            return
        caller, memory = self._caller()
        self._kept.add(caller, whole)
        memory.asked.pop(whole, None)
        if not self._by_content or found is None:
            return
        if own:
            self._kept.kept_content(caller, int(self._now_s()))
        if caller is not None:
            self._remember(query, found, memory, own=own, apart=apart)
        elif own:
            self._unnamed_kept_s = int(self._now_s())

    def holds(self, query: Query, found: "Found | None" = None) -> bool:
        """Tell whether this goes on with a conversation that stayed home.

        The same turns once more are no continuation: asking again is inspected
        afresh, or one failed detector would keep a question home for good. What was
        forgotten counts as kept: then only what goes on with a query that might have
        left is known to go on with no other.

        Where contents count, it also goes on with one of which it holds a turn that
        never left; and with one of which it holds another turn, or with one of the
        last where it holds no turn that is known to be of another, unless what it
        says for the first time stands by itself.
        """
        digests = list(self._digests(query))
        # Of all callers: a program may have another key than an hour ago. Whole
        # conversations, letter by letter, so that asking reveals no single word.
        if self._kept.holds(digests[:-1]):
            return True
        caller, memory = self._caller()
        if self._may_go_on(query, digests, memory) and self._kept.forgot(caller):
            return True
        if not self._by_content or found is None:
            return False
        # The words are known to the process that kept them alone. It may run now, so
        # ask each time. Of callers without a name, any may go on with what any other
        # of them began.
        before_s = self._kept.content_before(caller)
        if caller is None:
            before_s = max(before_s, self._unnamed_kept_s)
        if before_s and self._now_s() < before_s + LOST_S:
            return True
        return any(
            self._goes_on(query, found, content, memory, last=number <= LAST)
            for number, content in enumerate(reversed(memory.contents), start=1)
        )

    def clears(self, query: Query) -> None:
        """Remember a query that was asked and might leave: it is no secret."""
        *_, whole = (b"", *self._digests(query))
        # What stayed when it was asked before, and then was forgotten, must not be
        # known as what may leave.
        if not whole or self._kept.holds((whole,)):
            return
        _, memory = self._caller()
        _note(memory.asked, whole)
        for message in query.messages if self._by_message else ():
            _note(memory.free, self._turn(message.content))

    def leaves(
        self, sealed: Query, routing_class: RoutingClass = RoutingClass.CONFIDENTIAL
    ) -> None:
        """Remember the turns of what is about to be sealed: they have left."""
        _, memory = self._caller()
        for message in sealed.messages if self._by_message else ():
            self._let_go(message.content, routing_class, memory)

    def _caller(self) -> tuple[bytes | None, _Memory]:
        """Return the caller of this task, and what is known of it.

        Where there is no room for one more, it counts as one without a name.
        """
        caller = CALLER.get()
        if caller is not None:
            memory = self._memories.get(caller)
            if memory is None and self._made_room():
                memory = _Memory.empty()
                self._memories[caller] = memory
            if memory is not None:
                self._memories.move_to_end(caller)
                return caller, memory
        asker = ASKER.get() or _NO_CONNECTION
        return None, self._unnamed.setdefault(asker, _Memory.empty())

    def _made_room(self) -> bool:
        """Return whether one more caller may be known; the oldest may be forgotten.

        None of which something stayed: one must not be forgotten for another's sake.
        """
        if len(self._memories) < MAX_CALLERS:
            return True
        idle = (name for name, each in self._memories.items() if not each.contents)
        oldest = next(idle, None)
        if oldest is None:
            return False
        del self._memories[oldest]
        return True

    @staticmethod
    def _may_go_on(query: Query, digests: list[bytes], memory: _Memory) -> bool:
        """Return whether a query may go on with one that is not known any more."""
        earlier = query.messages[:-1]
        if all(map(_is_prompt, earlier)):
            return False
        # The request before this one: all but the answer to it and the new turn. What
        # goes on with a query that stayed stays, so this was none that went on with it.
        before = digests[: -2 if earlier[-1].role == "assistant" else -1]
        return not before or before[-1] not in memory.asked

    def taint(self, query: Query, found: "Found") -> tuple[RoutingClass, ...]:
        """Return of each message the class under which it left or, the last, might.

        ``RESTRICTED``: it is not known to have left, or something is found in it. What
        was forgotten is not known.
        """
        last = len(query.messages) - 1
        _, memory = self._caller()
        return tuple(
            RoutingClass.RESTRICTED
            if any(_counts(name) for name in found.classes_in({index}))
            else memory.left.get(
                self._turn(message.content),
                # What is asked now was never asked; it is judged by itself.
                RoutingClass.PUBLIC if index == last else RoutingClass.RESTRICTED,
            )
            for index, message in enumerate(query.messages)
        )

    def answered(
        self, query: Query, text: str, *, here: bool, left: bool = False
    ) -> None:
        """Remember an answer: applications send it again as a turn.

        Args:
            query: what was asked.
            text: what was answered.
            here: by the local model, to a query that had to stay.
            left: by an enclave, which knows it.
        """
        caller, memory = self._caller()
        turn = self._turn(text)
        if not here and query.messages and self._by_message:
            _note(memory.free, turn)
            if left:
                asked = self._turn(query.messages[-1].content)
                of = memory.left.get(asked, RoutingClass.CONFIDENTIAL)
                self._let_go(text, of, memory)
        if not here or not self._by_content or caller is None:
            return
        # It was made of what stayed, whatever words it uses.
        whole = tuple(self._digests(query))[-1:]
        for content in memory.contents:
            if content.asked.issuperset(whole):
                content.turns.add(turn)
                content.kept.add(turn)
                content.learn(self._keyed(self._words_of(text)))

    def _goes_on(
        self,
        query: Query,
        found: "Found",
        content: _Content,
        memory: _Memory,
        *,
        last: bool,
    ) -> bool:
        *_, whole = (b"", *self._digests(query))
        if whole in content.first:
            return False  # asked again, not gone on with
        turns = [self._turn(each.content) for each in query.messages]
        if not content.kept.isdisjoint(turns):
            return True
        shared = not content.turns.isdisjoint(turns)
        if not shared and not (last and self._is_of_no_other(query, turns, memory)):
            return False
        if content.full or (shared and content.unread):
            return True
        # What might leave before was judged by itself; a prompt that was there before
        # is looked at each time. The last turn is new in any case.
        end = len(query.messages) - 1
        new = {
            index
            for index, turn in enumerate(turns)
            if index == end or not (turn in memory.free or turn in content.prompts)
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

    @staticmethod
    def _is_of_no_other(query: Query, turns: list[bytes], memory: _Memory) -> bool:
        """Return whether nothing says that this goes on with what might leave."""
        earlier = zip(query.messages[:-1], turns, strict=False)
        return not any(
            turn in memory.free for message, turn in earlier if not _is_prompt(message)
        )

    def _content_of(self, query: Query, found: "Found", memory: _Memory) -> _Content:
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
                if turn not in memory.free:
                    content.kept.add(turn)
            told |= words | self._words_of(message.name or "")
        content.learn(self._keyed(told))
        return content

    def _remember(
        self, query: Query, found: "Found", memory: _Memory, *, own: bool, apart: bool
    ) -> None:
        """Join it with what it goes on with, or begin anew; the oldest are joined."""
        new = self._content_of(query, found, memory)
        if apart:
            new.kept.discard(self._turn(query.messages[-1].content))
        # What stayed by itself is a conversation of its own, unless they share turns.
        joined = [
            content
            for number, content in enumerate(reversed(memory.contents), start=1)
            if not content.turns.isdisjoint(new.turns)
            or (
                not own
                and self._goes_on(query, found, content, memory, last=number <= LAST)
            )
        ]
        # One that goes on may not be asked again as if it were the first.
        if own and not joined:
            new.first = set(self._digests(query))
        for content in joined:
            new.take(content)
        contents = [
            each for each in memory.contents if all(each is not one for one in joined)
        ]
        contents.append(new)
        # None is forgotten: two that are old are known as one.
        while len(contents) > MAX_CONTENTS:
            oldest, *contents = contents
            contents[0].take(oldest)
        if contents[0].size > MAX_KEPT_TURNS:
            del contents[0]
            self._kept.forget(CALLER.get())
        memory.contents = contents

    def _let_go(self, text: str, routing_class: RoutingClass, memory: _Memory) -> None:
        turn = self._turn(text)
        known = memory.left.get(turn, routing_class)
        memory.left[turn] = max(known, routing_class, key=lambda each: each.privacy)
        memory.left.move_to_end(turn)
        if len(memory.left) > MAX_TURNS:
            memory.left.popitem(last=False)
        _note(memory.free, turn)

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


def _note(known: OrderedDict[bytes, None], digest: bytes) -> None:
    """Know one more, the last one last; the oldest is forgotten."""
    known[digest] = None
    known.move_to_end(digest)
    if len(known) > MAX_TURNS:
        known.popitem(last=False)
