"""Recognises conversations that were kept local once, so that they stay local.

Chat applications send the whole history again with every turn. A conversation is
recognised by its first turns, as keyed digests: no text is stored, and the set is
bounded. It survives this process if ``kept`` has files; forgotten entries count as
kept. With ``sticky: content``, the turns that were kept and their words are recognised
individually, in the same way; and where a part of such a conversation may be sent, the
turns that were sent. These are in memory, separate for each caller: a caller must not
be able to test what another one wrote. This module decides nothing;
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
from curtilage.client.conversation.standalone import stands_alone, words_of
from curtilage.client.fair_queue import ASKER, CALLER, Asker
from curtilage.client.query import Message, Query
from curtilage.policy.decision.classes import UNFINISHED
from curtilage.policy.decision.decide import Inspection
from curtilage.policy.decision.rules import Rulebook, unapproved
from curtilage.policy.decision.tiers import RoutingClass
from curtilage.policy.document.dictionaries import folded

MAX_TURNS: Final = 4096  # that were sent or might have been
MAX_KEPT_TURNS: Final = 65_536  # of one caller, that were not
LOST_S: Final = 12 * 3600
"""How long a conversation may continue whose words were lost with a process."""
MAX_WORDS: Final = 8192  # of one conversation; 20,000 English characters have 5,000
MAX_CONTENTS: Final = 32
# A request without any known turn may continue any conversation. It is compared with
# the last ones that were kept, and not with all: together these are about
# everything.
LAST: Final = 4
# After these, it is unknown which content was kept.
_UNREAD: Final = UNFINISHED | {
    f"uncertain.{each}"
    for each in (
        *("attachment", "language", "obfuscation"),
        *("opaque_blob", "oversize", "undecodable"),
    )
}
_SHORT_BYTES: Final = 16
PROMPTS: Final = frozenset({"system", "developer"})
_NO_CONNECTION: Final = Asker()
ENGLISH: Final = ("en",)


@dataclass(slots=True)
class _Content:
    """A kept conversation: keyed digests of its content, never text."""

    asked: set[bytes] = field(repr=False)  # all turns of a query, in order
    first: set[bytes] = field(repr=False)  # the same for each prefix of the first one
    turns: set[bytes] = field(repr=False)  # each alone; no prompts, none that is empty
    kept: set[bytes] = field(repr=False)  # of these, those never sent
    prompts: set[bytes] = field(repr=False)  # of the system and the developer
    words: set[bytes] = field(repr=False)
    unread: bool = False  # it is unknown which content was kept
    full: bool = False  # it does not include all its words

    @property
    def size(self) -> int:
        """Number of digests, without those of words."""
        sets = (self.asked, self.first, self.turns, self.kept, self.prompts)
        return sum(map(len, sets))

    def take(self, other: "_Content") -> None:
        """Merge another conversation into this one."""
        self.asked |= other.asked
        self.first |= other.first
        self.turns |= other.turns
        self.kept |= other.kept
        self.prompts |= other.prompts
        self.unread |= other.unread
        self.full |= other.full
        self.learn(other.words)

    def learn(self, words: set[bytes]) -> None:
        """Add words; beyond the limit none are kept, and any text counts as similar."""
        self.words |= words
        if self.full or len(self.words) > MAX_WORDS:
            self.words, self.full = set(), True


@dataclass(slots=True)
class _Memory:
    """The known conversations of one caller; keyed digests."""

    contents: list[_Content]  # that were kept; the most recent one last
    asked: OrderedDict[bytes, None]  # whole queries that might have been sent
    free: OrderedDict[bytes, None]  # turns of these
    left: OrderedDict[bytes, RoutingClass]  # turns that were sealed

    @classmethod
    def empty(cls) -> "_Memory":
        return cls([], OrderedDict(), OrderedDict(), OrderedDict())


class PinnedConversations:
    """The conversations that were kept local.

    Args:
        by_content: recognise them by their contents, too (``sticky: content``).
        by_message: remember the turns that were sent, for ``taint``.
        languages: in which a text may be sent, as ISO 639-1. With others than English,
            a conversation may switch language and repeat a meaning without its words:
            then only everyday subjects may be sent.
        limit: how many of one caller are remembered; the oldest is forgotten first.
        kept: storage that survives this process; None: none.
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
            # Read at the start: during a query, a missing file is found too late.
            read_all(self._languages)
        self._memories: OrderedDict[bytes, _Memory] = OrderedDict()
        # Callers without a name, by their connection.
        self._unnamed: WeakKeyDictionary[Asker, _Memory] = WeakKeyDictionary()
        self._unnamed_kept_s = 0

    @override
    def __repr__(self) -> str:
        """Show their number; a digest could confirm a guess."""
        return f"<PinnedConversations: {self._kept.count()}>"

    def close(self) -> bool:
        """Close the files, if any; return whether all is saved."""
        return self._kept.close()

    def save(self) -> bool:
        """Save what was passed to ``add``; return whether it is on disk."""
        return self._kept.save()

    def add(
        self,
        query: Query,
        found: "Found | None" = None,
        *,
        own: bool = True,
        apart: bool = False,
    ) -> None:
        """Remember the conversation in its present form.

        Args:
            query: that was kept local.
            found: its findings; only with ``sticky: content``.
            own: it would have been kept local without what was before.
            apart: its last turn may be sent by itself.
        """
        # Only as a whole: its earlier turns were judged by themselves, and another
        # query with the same beginning need not have the same subject.
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
        """Return whether this continues a conversation that was kept local.

        The same turns again are no continuation: a repeated query is inspected again,
        or one failed detector would keep a question local for good. Forgotten entries
        count as kept: then only a continuation of a query that might have been sent is
        known to continue no other.

        With ``sticky: content``, it also continues one of which it contains a turn that
        was never sent; and one of which it contains another turn, or one of the last if
        it contains no turn known from another, unless its new text is understandable by
        itself.
        """
        digests = list(self._digests(query))
        # Of all callers: a program may have changed its key in the meantime. Whole
        # conversations, character by character, so that no single word can be probed.
        if self._kept.holds(digests[:-1]):
            return True
        caller, memory = self._caller()
        roles = [each.role for each in query.messages]
        if self._may_go_on(roles, digests, memory) and self._kept.forgot(caller):
            return True
        if not self._by_content or found is None:
            return False
        # Only the process that kept the words knows them. It may run now, so ask each
        # time. Among callers without a name, each may continue what another one
        # began.
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
        """Remember a query that might be sent: it is not secret."""
        *_, whole = (b"", *self._digests(query))
        # If it was kept local before and then forgotten, it must not be recorded as one
        # that may be sent.
        if not whole or self._kept.holds((whole,)):
            return
        _, memory = self._caller()
        _note(memory.asked, whole)
        for message in query.messages if self._by_message else ():
            _note(memory.free, self._turn(message.content))

    def leaves(
        self, sealed: Query, routing_class: RoutingClass = RoutingClass.CONFIDENTIAL
    ) -> None:
        """Remember the turns about to be sealed as sent."""
        _, memory = self._caller()
        for message in sealed.messages if self._by_message else ():
            self._let_go(message.content, routing_class, memory)

    def _caller(self) -> tuple[bytes | None, _Memory]:
        """Return the caller of this task, and its known conversations.

        If there is no room for another caller, it counts as one without a name.
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
        """Return whether there is room for another caller; may forget the oldest.

        Never one with kept conversations: none may be forgotten because of another.
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
    def _may_go_on(roles: list[str], digests: list[bytes], memory: _Memory) -> bool:
        """Return whether a query may continue a forgotten one."""
        *earlier, _ = roles or [""]
        if PROMPTS.issuperset(earlier):
            return False
        # The request before this one: all but its answer and the new turn. A query that
        # continues a kept one is kept, so this one did not continue a kept one.
        before = digests[: -2 if earlier[-1] == "assistant" else -1]
        return not before or before[-1] not in memory.asked

    def taint(self, query: Query, found: "Found") -> tuple[RoutingClass, ...]:
        """Return the class under which each message was sent or, the last, might be.

        ``RESTRICTED``: it is not known to have been sent, or something is found in it.
        Forgotten messages are not known.
        """
        last = len(query.messages) - 1
        _, memory = self._caller()
        return tuple(
            RoutingClass.RESTRICTED
            if any(_counts(name) for name in found.classes_in({index}))
            else memory.left.get(
                self._turn(message.content),
                # The current question is new; it is judged by itself.
                RoutingClass.PUBLIC if index == last else RoutingClass.RESTRICTED,
            )
            for index, message in enumerate(query.messages)
        )

    def answered(
        self, query: Query, text: str, *, here: bool, left: bool = False
    ) -> None:
        """Remember an answer: applications send it again as a turn.

        Args:
            query: the question.
            text: the answer.
            here: it is from the local model, for a query kept local.
            left: it is from an enclave, which therefore knows it.
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
        # It was derived from kept content, whatever words it uses.
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
            return False  # repeated, not continued
        turns = [self._turn(each.content) for each in query.messages]
        if not content.kept.isdisjoint(turns):
            return True
        shared = not content.turns.isdisjoint(turns)
        if not shared and not (last and self._is_of_no_other(query, turns, memory)):
            return False
        if content.full or (shared and content.unread):
            return True
        # Turns that might be sent before were judged by themselves; a known prompt is
        # inspected each time. The last turn is always new.
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
        """Return whether the new text may be about the kept content."""
        words = set(self._asked_in("\n".join(query.settings.stop)))
        # Places and dates occur in many harmless questions; any other finding may be
        # the earlier one under another name.
        for name in found.classes_in(new):
            if _counts(name):
                return True
            words.add(name)
        for index in new:
            message = query.messages[index]
            if not self._stands_alone(message):
                return True
            words |= self._asked_in(f"{message.name or ''}\n{message.content}")
        return not content.words.isdisjoint(self._keyed(words))

    def _stands_alone(self, message: Message) -> bool:
        """Return whether a new turn names its own subject."""
        if self._in_english:
            return message.role != "user" or stands_alone(message.content)
        # In any role: a summary in another language shares no word with its
        # source.
        return is_everyday(message.content, self._languages)

    def _words_of(self, text: str) -> frozenset[str]:
        """Return the words of a text, to be compared with later questions."""
        return words_of(text) if self._in_english else traces_of(text)

    def _asked_in(self, text: str) -> frozenset[str]:
        """Return the words by which a question may repeat earlier text."""
        if self._in_english:
            return words_of(text)
        return subject_traces(text, self._languages)

    @staticmethod
    def _is_of_no_other(query: Query, turns: list[bytes], memory: _Memory) -> bool:
        """Return whether nothing links this to a query that might be sent."""
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
        learned = self._words_of("\n".join(query.settings.stop)) | found.classes
        for index, message in enumerate(query.messages):
            turn, words = self._turn(message.content), self._words_of(message.content)
            if _is_prompt(message):
                # An application sends the same one with every question, and it is
                # inspected each time. Its words count if something is found in it.
                content.prompts.add(turn)
                words = words if index in found.messages else frozenset[str]()
            # "Thanks" occurs in many conversations, and identifies none.
            elif words:
                content.turns.add(turn)
                if turn not in memory.free:
                    content.kept.add(turn)
            learned |= words | self._words_of(message.name or "")
        content.learn(self._keyed(learned))
        return content

    def _remember(
        self, query: Query, found: "Found", memory: _Memory, *, own: bool, apart: bool
    ) -> None:
        """Merge it with those it continues, or add it; the oldest are merged."""
        new = self._content_of(query, found, memory)
        if apart:
            new.kept.discard(self._turn(query.messages[-1].content))
        # Kept for its own content, it is a new conversation, unless they share turns.
        joined = [
            content
            for number, content in enumerate(reversed(memory.contents), start=1)
            if not content.turns.isdisjoint(new.turns)
            or (
                not own
                and self._goes_on(query, found, content, memory, last=number <= LAST)
            )
        ]
        # A continuation must not count as a first question when it is repeated.
        if own and not joined:
            new.first = set(self._digests(query))
        for content in joined:
            new.take(content)
        contents = [
            each for each in memory.contents if all(each is not one for one in joined)
        ]
        contents.append(new)
        # None is forgotten: the two oldest are merged.
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
        # Without its role, and case folded: applications trim turns, and may send them
        # again with another role.
        return self._digest(b"turn", folded(text))

    def _keyed(self, words: Iterable[str]) -> set[bytes]:
        return {self._digest(b"word", word) for word in words}

    def _digest(self, label: bytes, text: str) -> bytes:
        # Keyed: there are few words, and a plain digest would identify one.
        data = label + b"\0" + text.encode("utf-8", "surrogatepass")
        return hmac.digest(self._key, data, "sha256")[:_SHORT_BYTES]

    def _digests(self, query: Query) -> Iterator[bytes]:
        """Yield one digest for each prefix of the conversation."""
        # Keyed: a plain digest, if it were disclosed, would confirm a guess. Each
        # covers the one before, so that one pass yields all prefixes.
        digest = b""
        for message in query.messages:
            digest = hmac.digest(self._key, digest + message.encoded(), "sha256")
            yield digest


@dataclass(frozen=True, slots=True)
class Found:
    """The findings in one query, by message.

    Attributes:
        by_message: class and index of the message; -1: over several texts.
    """

    by_message: frozenset[tuple[str, int]]

    @classmethod
    def of(cls, rulebook: Rulebook, inspection: Inspection) -> "Found":
        """Return the findings of an inspection, without approved ones."""
        counted = unapproved(rulebook, inspection.findings, inspection.approved)
        return cls(
            frozenset(
                (each.data_class, each.where.message if each.where.json_path else -1)
                for each in counted
            )
        )

    @property
    def classes(self) -> frozenset[str]:
        """All classes that were found."""
        return frozenset(name for name, _ in self.by_message)

    @property
    def messages(self) -> frozenset[int]:
        """The messages with findings."""
        return frozenset(index for _, index in self.by_message)

    def classes_in(self, messages: Collection[int]) -> frozenset[str]:
        """Return the classes found in these messages, or over several texts."""
        return frozenset(
            name for name, index in self.by_message if index in messages or index < 0
        )


def _counts(name: str) -> bool:
    """Return whether a class found in a turn may be that of an earlier finding."""
    return not name.startswith("identifier.quasi.")


def _is_prompt(message: Message) -> bool:
    return message.role in PROMPTS


def _note(known: OrderedDict[bytes, None], digest: bytes) -> None:
    """Add an entry, newest last; the oldest is dropped."""
    known[digest] = None
    known.move_to_end(digest)
    if len(known) > MAX_TURNS:
        known.popitem(last=False)
