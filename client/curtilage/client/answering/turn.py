"""An answer as a turn of its conversation, which is remembered when it ends."""

from types import TracebackType
from typing import Self

from curtilage.client.answer import AnswerEvent, Delta
from curtilage.client.answering.attempt import Attempt
from curtilage.client.conversation.pinned import PinnedConversations
from curtilage.client.errors import FailureReason
from curtilage.client.options import Mode, Require
from curtilage.client.route import AskEnclave


class Turn:
    """One answer; a context manager, since a reader may stop at any time.

    Args:
        attempt: that it comes from.
        pinned: remembers it.
    """

    def __init__(self, attempt: Attempt, pinned: PinnedConversations) -> None:
        way, here = attempt.way, attempt.case.ways.here
        self._query = attempt.case.query
        self._pinned = pinned
        self._clears = here is not True and not _was_kept_home(attempt)
        self._left = isinstance(way, AskEnclave)
        if isinstance(way, AskEnclave):
            # A restored answer holds the values that were replaced in the query.
            here = None if way.rewritten is not None else False
        self._here = here
        self._said: list[str] = []

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Remember the text, also an incomplete one: it was read up to here."""
        if self._here is not None:
            text = "".join(self._said)
            self._pinned.answered(self._query, text, here=self._here, left=self._left)

    def saw(self, event: AnswerEvent) -> None:
        """Note an event of the answer."""
        if self._clears:
            self._pinned.clears(self._query)
            self._clears = False
        # Notes that the client wrote are no part of the turn: they are removed where
        # the answer is sent again as one.
        if isinstance(event, Delta) and not event.note:
            self._said.append(event.text)


def _was_kept_home(attempt: Attempt) -> bool:
    """Return whether the caller kept a query local that could have been sent."""
    asked = attempt.case.query.options
    return (
        asked.mode is Mode.HOME
        or asked.require not in {None, Require.ENCLAVE}
        or any(each.reason is FailureReason.UNMET_CONSENT for each in attempt.failures)
    )
