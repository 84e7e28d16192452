"""Which conversations stayed home once, so that they stay there.

Chats send their whole history again with every turn. A conversation is known
again by its first turns, as HMACs under a key of this process: no text is kept,
and the set is bounded. Decides nothing; ``policy.decision.decide`` does.
"""

import hmac
import secrets
from collections import OrderedDict
from collections.abc import Iterator
from itertools import islice
from typing import Final

from typing_extensions import override

from curtilage.client.query import Query

MAX_PINS: Final = 4096


class PinnedConversations:
    """The conversations that stayed home.

    Args:
        limit: how many are remembered; the oldest is forgotten first.
    """

    def __init__(self, *, limit: int = MAX_PINS) -> None:
        self._key = secrets.token_bytes(32)
        self._limit = limit
        self._held: OrderedDict[bytes, None] = OrderedDict()

    @override
    def __repr__(self) -> str:
        """Tell how many; a digest could confirm a guess."""
        return f"<PinnedConversations: {len(self._held)}>"

    def add(self, query: Query) -> None:
        """Remember the conversation as it stands now."""
        # The whole of it alone: its earlier turns were judged by themselves, and what
        # begins like it need not be about the same.
        for digest in islice(
            self._digests(query), max(len(query.messages) - 1, 0), None
        ):
            self._held[digest] = None
            self._held.move_to_end(digest)
        if len(self._held) > self._limit:
            self._held.popitem(last=False)

    def holds(self, query: Query) -> bool:
        """Tell whether this goes on with a conversation that stayed home.

        The same turns once more are no continuation: asking again is inspected
        afresh, or one failed detector would keep a question home for good.
        """
        earlier = islice(self._digests(query), max(len(query.messages) - 1, 0))
        return any(digest in self._held for digest in earlier)

    def _digests(self, query: Query) -> Iterator[bytes]:
        """Yield one digest for each beginning of the conversation."""
        # Keyed: a bare digest, wherever it turned up, would confirm a guess. Each is
        # over the one before, so that one pass serves for all beginnings.
        digest = b""
        for message in query.messages:
            digest = hmac.digest(self._key, digest + message.encoded(), "sha256")
            yield digest
