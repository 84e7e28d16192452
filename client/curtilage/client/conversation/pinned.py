"""Recognises conversations that were kept local once, so that they stay local.

Chat applications send the whole history again with every turn. A conversation is
recognised by its first turns, as keyed digests: no text is stored, and the set is
bounded. It survives this process if ``kept`` has files; forgotten entries count as
kept. With ``sticky: content``, the turns that were kept and their words are recognised
individually, in the same way (``contents``); and where a part of such a conversation
may be sent, the turns that were sent. These are in memory, separate for each caller: a
caller must not be able to test what another one wrote. This module decides nothing;
``policy.decision.decide`` does.
"""

import hmac
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, Protocol
from weakref import WeakKeyDictionary

from typing_extensions import override

from curtilage.client.chat.query import PROMPTS, Query
from curtilage.client.conversation.kept import (
    MAX_CALLERS,
    MAX_KEPT,
    KeptConversations,
)
from curtilage.client.system.fair_queue import (
    APPLICATION,
    ASKER,
    CALLER,
    Asker,
    memory_of,
)
from curtilage.policy.decision.decide import Inspection
from curtilage.policy.decision.rules import Rulebook, unapproved
from curtilage.policy.decision.tiers import RoutingClass
from curtilage.policy.document.dictionaries import folded

DEFINED: Final = ("tools[", "response_format")
"""Beginnings of the places of definitions (``Where.json_path``)."""
MAX_TURNS: Final = 4096  # that were sent or might have been
MAX_WORDS: Final = 8192  # of one conversation; 20,000 English characters have 5,000
_SHORT_BYTES: Final = 16
LOST_S: Final = 12 * 3600
"""Longest continuation of a conversation whose words were lost with a process."""
_NO_CONNECTION: Final = Asker()


class Digests:
    """Makes the keyed digests of conversations.

    Args:
        key: of the digests.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key

    def prefixes(self, query: Query) -> Iterator[bytes]:
        """Yield one digest for each prefix of an application's conversation."""
        # Each covers the one before, so that one pass yields all prefixes. And the
        # application: another one must not learn that the same text was kept.
        digest = memory_of(APPLICATION.get())
        for message in query.messages:
            digest = hmac.digest(self._key, digest + message.encoded(), "sha256")
            yield digest

    def whole(self, query: Query) -> bytes:
        """Return the digest of the whole conversation; empty if it has no turn."""
        *_, whole = (b"", *self.prefixes(query))
        return whole

    def turn(self, text: str) -> bytes:
        """Return the digest of one turn."""
        # Without its role, and case folded: applications trim turns, and may send them
        # again with another role.
        return self._digest(b"turn", folded(text))

    def words(self, words: Iterable[str]) -> set[bytes]:
        """Return the digests of words."""
        # Keyed: there are few words, and a plain digest would identify one.
        return {self._digest(b"word", word) for word in words}

    def _digest(self, label: bytes, text: str) -> bytes:
        data = label + b"\0" + text.encode("utf-8", "surrogatepass")
        return hmac.digest(self._key, data, "sha256")[:_SHORT_BYTES]


@dataclass(slots=True)
class Content:
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

    def take(self, other: "Content") -> None:
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
class Memory:
    """The known conversations of one caller; keyed digests."""

    contents: list[Content]  # that were kept; the most recent one last
    asked: OrderedDict[bytes, None]  # whole queries that might have been sent
    free: OrderedDict[bytes, None]  # turns of these
    left: OrderedDict[bytes, RoutingClass]  # turns that were sealed

    @classmethod
    def empty(cls) -> "Memory":
        """Return that of a caller of whom nothing is known."""
        return cls([], OrderedDict(), OrderedDict(), OrderedDict())


@dataclass(frozen=True, slots=True)
class Found:
    """The findings in one query, by message.

    Attributes:
        by_message: class and index of the message; -1: over several texts.
        defined: whether something was found in the tools or the response format.
    """

    by_message: frozenset[tuple[str, int]]
    defined: bool = False

    @classmethod
    def of(cls, rulebook: Rulebook, inspection: Inspection) -> "Found":
        """Return the findings of an inspection, without approved ones."""
        counted = unapproved(rulebook, inspection.findings, inspection.approved)
        return cls(
            frozenset(
                (each.data_class, each.where.message if each.where.json_path else -1)
                for each in counted
            ),
            defined=any(each.where.json_path.startswith(DEFINED) for each in counted),
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

    def repeats_in(self, messages: Collection[int]) -> bool:
        """Return whether a class found there may be that of an earlier finding."""
        names = self.classes_in(messages)
        return any(not name.startswith("identifier.quasi.") for name in names)


class Contents(Protocol):
    """The recogniser of kept conversations by their contents; see ``contents``."""

    def continued_by(self, query: Query, found: Found, memory: Memory) -> bool:
        """Return whether a query may be about the content of a kept conversation."""
        ...

    def remember(
        self, query: Query, found: Found, memory: Memory, *, own: bool, apart: bool
    ) -> bool:
        """Remember a query that is kept; return whether another was forgotten."""
        ...

    def answered(self, query: Query, text: str, memory: Memory) -> None:
        """Remember the answer to a query that was kept local."""
        ...


class PinnedConversations:
    """The conversations that were kept local.

    Args:
        contents: recognises them by their contents, too (``sticky: content``); None:
            the policy does not ask for it.
        by_message: remember the turns that were sent, for ``taint``.
        limit: how many of one caller are remembered; the oldest is forgotten first.
        kept: storage that survives this process; None: none.
        now_s: Unix time.
    """

    def __init__(
        self,
        *,
        contents: Callable[[Digests], Contents] | None = None,
        by_message: bool = False,
        limit: int = MAX_KEPT,
        kept: KeptConversations | None = None,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        self._kept = KeptConversations(share=limit) if kept is None else kept
        self._digests = Digests(self._kept.key)
        self._now_s = now_s
        self._by_message = by_message or contents is not None
        self._contents = None if contents is None else contents(self._digests)
        self._memories: OrderedDict[bytes, Memory] = OrderedDict()
        # Callers without a name, by their connection.
        self._unnamed: WeakKeyDictionary[Asker, Memory] = WeakKeyDictionary()
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
        found: Found | None = None,
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
        whole = self._digests.whole(query)
        if not whole:
            return
        caller, memory = self._caller()
        self._kept.add(caller, whole)
        memory.asked.pop(whole, None)
        if self._contents is None or found is None:
            return
        if own:
            self._kept.kept_content(caller, int(self._now_s()))
            if caller is None:
                self._unnamed_kept_s = int(self._now_s())
        if caller is None:
            return
        if self._contents.remember(query, found, memory, own=own, apart=apart):
            self._kept.forget(caller)

    def holds(self, query: Query, found: Found | None = None) -> bool:
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
        digests = list(self._digests.prefixes(query))
        # Of all programs on loopback: one may have changed its key in the meantime.
        # Whole conversations, character by character, so that no single word can be
        # probed.
        if self._kept.holds(digests[:-1]):
            return True
        caller, memory = self._caller()
        roles = [each.role for each in query.messages]
        if self._may_go_on(roles, digests, memory) and self._kept.forgot(caller):
            return True
        if self._contents is None or found is None:
            return False
        # Only the process that kept the words knows them. It may run now, so ask each
        # time. Among callers without a name, each may continue what another one
        # began.
        before_s = self._kept.content_before(caller)
        if caller is None:
            before_s = max(before_s, self._unnamed_kept_s)
        if before_s and self._now_s() < before_s + LOST_S:
            return True
        return self._contents.continued_by(query, found, memory)

    def clears(self, query: Query) -> None:
        """Remember a query that might be sent: it is not secret."""
        whole = self._digests.whole(query)
        # If it was kept local before and then forgotten, it must not be recorded as one
        # that may be sent.
        if not whole or self._kept.holds((whole,)):
            return
        _, memory = self._caller()
        _note(memory.asked, whole)
        for message in query.messages if self._by_message else ():
            _note(memory.free, self._digests.turn(message.said))

    def leaves(
        self, sealed: Query, routing_class: RoutingClass = RoutingClass.CONFIDENTIAL
    ) -> None:
        """Remember the turns about to be sealed as sent."""
        _, memory = self._caller()
        for message in sealed.messages if self._by_message else ():
            self._let_go(message.said, routing_class, memory)

    def _caller(self) -> tuple[bytes | None, Memory]:
        """Return the caller of this task, and its known conversations.

        If there is no room for another caller, it counts as one without a name.
        """
        caller = CALLER.get()
        if caller is not None:
            memory = self._memories.get(caller)
            if memory is None:
                # Room is never made by forgetting a caller with kept conversations.
                idle = (
                    name for name, each in self._memories.items() if not each.contents
                )
                full = len(self._memories) >= MAX_CALLERS
                if full and (oldest := next(idle, None)) is not None:
                    del self._memories[oldest]
                if len(self._memories) < MAX_CALLERS:
                    memory = self._memories[caller] = Memory.empty()
            if memory is not None:
                self._memories.move_to_end(caller)
                return caller, memory
        asker = ASKER.get() or _NO_CONNECTION
        return None, self._unnamed.setdefault(asker, Memory.empty())

    @staticmethod
    def _may_go_on(roles: list[str], digests: list[bytes], memory: Memory) -> bool:
        """Return whether a query may continue a forgotten one."""
        *earlier, _ = roles or [""]
        if PROMPTS.issuperset(earlier):
            return False
        # The request before this one: all but its answer and the new turn. A query that
        # continues a kept one is kept, so this one did not continue a kept one.
        before = digests[: -2 if earlier[-1] == "assistant" else -1]
        return not before or before[-1] not in memory.asked

    def taint(self, query: Query, found: Found) -> tuple[RoutingClass, ...]:
        """Return the class under which each message was sent or, the last, might be.

        ``RESTRICTED``: it is not known to have been sent, or something is found in it.
        Forgotten messages are not known.
        """
        last = len(query.messages) - 1
        _, memory = self._caller()
        return tuple(
            RoutingClass.RESTRICTED
            if found.repeats_in({index})
            else memory.left.get(
                self._digests.turn(message.said),
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
        turn = self._digests.turn(text)
        if not here and query.messages and self._by_message:
            _note(memory.free, turn)
            if left:
                asked = self._digests.turn(query.messages[-1].said)
                of = memory.left.get(asked, RoutingClass.CONFIDENTIAL)
                self._let_go(text, of, memory)
        if here and self._contents is not None and caller is not None:
            self._contents.answered(query, text, memory)

    def _let_go(self, text: str, routing_class: RoutingClass, memory: Memory) -> None:
        turn = self._digests.turn(text)
        known = memory.left.get(turn, routing_class)
        memory.left[turn] = max(known, routing_class, key=lambda each: each.privacy)
        memory.left.move_to_end(turn)
        if len(memory.left) > MAX_TURNS:
            memory.left.popitem(last=False)
        _note(memory.free, turn)


def _note(known: OrderedDict[bytes, None], digest: bytes) -> None:
    """Add an entry, newest last; the oldest is dropped."""
    known[digest] = None
    known.move_to_end(digest)
    if len(known) > MAX_TURNS:
        known.popitem(last=False)
