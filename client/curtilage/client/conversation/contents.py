"""Recognises kept conversations by their turns and words (``sticky: content``).

Imported only if a policy asks for it.
"""

from collections.abc import Collection, Iterator
from typing import Final

from curtilage.client.chat.query import PROMPTS, Query
from curtilage.client.conversation.everyday import (
    is_everyday,
    read_all,
    subject_traces,
    traces_of,
)
from curtilage.client.conversation.pinned import Content, Digests, Found, Memory
from curtilage.client.conversation.standalone import stands_alone, words_of
from curtilage.policy.decision.classes import UNFINISHED

ENGLISH: Final = ("en",)
MAX_KEPT_TURNS: Final = 65_536  # of one caller, that were not sent
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


def _defined(query: Query) -> Iterator[str]:
    """Yield the texts of the tools and of the response format."""
    for each in (*query.tools, query.response_format):
        if each is not None:
            yield each.text()


class KeptContents:
    """The contents of kept conversations, as digests in the memory of each caller.

    Args:
        digests: makes the digests.
        languages: in which a text may be sent, as ISO 639-1. With others than English,
            a conversation may switch language and repeat a meaning without its words:
            then only everyday subjects may be sent.
    """

    def __init__(self, digests: Digests, languages: Collection[str] = ENGLISH) -> None:
        self._digests = digests
        self._languages = tuple(languages)
        self._in_english = self._languages == ENGLISH
        if not self._in_english:
            # Read at the start: during a query, a missing file is found too late.
            read_all(self._languages)

    def continued_by(self, query: Query, found: Found, memory: Memory) -> bool:
        """Return whether a query may be about the content of a kept conversation."""
        return any(
            self._goes_on(query, found, content, memory, last=number <= LAST)
            for number, content in enumerate(reversed(memory.contents), start=1)
        )

    def answered(self, query: Query, text: str, memory: Memory) -> None:
        """Remember the answer to a query that was kept local."""
        # It was derived from kept content, whatever words it uses.
        whole = tuple(self._digests.prefixes(query))[-1:]
        turn = self._digests.turn(text)
        for content in memory.contents:
            if content.asked.issuperset(whole):
                content.turns.add(turn)
                content.kept.add(turn)
                content.learn(self._digests.words(self._words_of(text)))

    def remember(
        self, query: Query, found: Found, memory: Memory, *, own: bool, apart: bool
    ) -> bool:
        """Merge it with those it continues, or add it; the oldest are merged.

        Returns:
            Whether the oldest content had to be forgotten.
        """
        new = self._content_of(query, found, memory)
        if apart:
            new.kept.discard(self._digests.turn(query.messages[-1].said))
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
            new.first = set(self._digests.prefixes(query))
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
        forgotten = contents[0].size > MAX_KEPT_TURNS
        memory.contents = contents[1:] if forgotten else contents
        return forgotten

    def _goes_on(
        self,
        query: Query,
        found: Found,
        content: Content,
        memory: Memory,
        *,
        last: bool,
    ) -> bool:
        if self._digests.whole(query) in content.first:
            return False  # repeated, not continued
        turns = [self._digests.turn(each.said) for each in query.messages]
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
        self, query: Query, found: Found, new: Collection[int], content: Content
    ) -> bool:
        """Return whether the new text may be about the kept content."""
        words = set(self._asked_in("\n".join((*query.settings.stop, *_defined(query)))))
        # Places and dates occur in many harmless questions; any other finding may be
        # the earlier one under another name.
        if found.repeats_in(new):
            return True
        words |= found.classes_in(new)
        for index in new:
            message = query.messages[index]
            if self._in_english:
                alone = message.role != "user" or stands_alone(message.content)
            else:
                # In any role: a summary in another language shares no word with its
                # source.
                alone = is_everyday(message.said, self._languages)
            if not alone:
                return True
            words |= self._asked_in(f"{message.name or ''}\n{message.said}")
        return not content.words.isdisjoint(self._digests.words(words))

    def _words_of(self, text: str) -> frozenset[str]:
        """Return the words of a text, to be compared with later questions."""
        return words_of(text) if self._in_english else traces_of(text)

    def _asked_in(self, text: str) -> frozenset[str]:
        """Return the words by which a question may repeat earlier text."""
        if self._in_english:
            return words_of(text)
        return subject_traces(text, self._languages)

    @staticmethod
    def _is_of_no_other(query: Query, turns: list[bytes], memory: Memory) -> bool:
        """Return whether nothing links this to a query that might be sent."""
        earlier = zip(query.messages[:-1], turns, strict=False)
        return not any(
            turn in memory.free
            for message, turn in earlier
            if message.role not in PROMPTS
        )

    def _content_of(self, query: Query, found: Found, memory: Memory) -> Content:
        content = Content(
            asked=set(tuple(self._digests.prefixes(query))[-1:]),
            first=set(),
            turns=set(),
            kept=set(),
            prompts=set(),
            words=set(),
            unread=not _UNREAD.isdisjoint(found.classes),
        )
        beyond = query.settings.stop
        # As of a prompt, below: an application sends the same ones with each question.
        beyond += tuple(_defined(query)) if found.defined else ()
        learned = self._words_of("\n".join(beyond)) | found.classes
        for index, message in enumerate(query.messages):
            turn = self._digests.turn(message.said)
            words = self._words_of(message.said)
            if message.role in PROMPTS:
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
        content.learn(self._digests.words(learned))
        return content
