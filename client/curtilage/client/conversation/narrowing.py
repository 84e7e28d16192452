"""Finds a part of a conversation that may be sent although another part may not.

Combines boundary, detectors and decision in the same way as the session does for a
whole query: the result is inspected and decided by itself, and is not sent without an
``Allowed`` of its own.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Final

from curtilage.client.chat.answer import AnswerEvent, Delta, NotPossible, Rung
from curtilage.client.chat.query import Query
from curtilage.client.conversation.excerpt import (
    narrowed,
    rungs,
    summary_request,
)
from curtilage.client.conversation.pinned import Found, PinnedConversations
from curtilage.client.errors import LocalUnavailableError
from curtilage.client.route import AskEnclave, AskLocal, Narrowed, first_step
from curtilage.policy.decision.decide import Inspection, decide
from curtilage.policy.decision.tiers import RoutingClass
from curtilage.policy.document.model import Policy

_SEVERAL: Final = 2


class Narrowing:
    """Reduces a conversation that is kept local to a query that may be sent, if any.

    Args:
        policy: defines which turns may be included.
        inspect: inspects the result.
        generate: writes summaries; the local model.
        pinned: knows kept turns, also those no longer in the conversation.
        parameters: returns the approximate size of the local model; 0: unknown.
    """

    def __init__(
        self,
        policy: Policy,
        inspect: Callable[[Query], Awaitable[Inspection]],
        generate: Callable[[Query], AsyncGenerator[AnswerEvent]],
        *,
        pinned: PinnedConversations,
        parameters: Callable[[], int],
    ) -> None:
        self._pinned = pinned
        self._policy = policy
        self._inspect = inspect
        self._generate = generate
        self._parameters = parameters

    async def step(
        self, query: Query, taint: Sequence[RoutingClass], floor: RoutingClass
    ) -> AskEnclave | AskLocal:
        """Return the first rung that may be sent, else why the last one may not.

        Args:
            query: the conversation, which was decided to be kept local.
            taint: the routing class of each message; see ``PinnedConversations``.
            floor: the class that its sender declared.
        """
        plan = self._policy.routing
        if plan is None or plan.observe or len(query.messages) < _SEVERAL:
            return AskLocal()
        why: NotPossible | None = None
        for rung in rungs(plan.history, parameters=self._parameters()):
            summary = None
            if rung is Rung.SUMMARY:
                request = summary_request(query, taint, plan.history)
                summary = None if request is None else await self._said(request)
            made = narrowed(query, taint, rung, history=plan.history, summary=summary)
            if isinstance(made, NotPossible):
                why = made
                continue
            # It differs from every text that was judged: without its neighbours a turn
            # may have another meaning.
            inspection = await self._inspect(made)
            found = Found.of(self._policy.rulebook, inspection)
            inspection = inspection.stricter(
                # With ``sticky: content``: an application may have removed the kept
                # turn, and nothing left in the conversation resembles the question.
                pinned=self._pinned.holds(made, found),
                floor=max(
                    floor, RoutingClass.CONFIDENTIAL, key=lambda each: each.privacy
                ),
            )
            decision = decide(self._policy.rulebook, inspection)
            step = first_step(decision)
            if isinstance(step, AskEnclave):
                part = Narrowed(made, rung, inspection, decision)
                return replace(step, narrowed=part)
            why = NotPossible.STILL_FOUND
        return AskLocal(kept=why)

    async def _said(self, query: Query) -> str | None:
        try:
            async with aclosing(self._generate(query)) as events:
                return "".join(
                    [each.text async for each in events if isinstance(each, Delta)]
                )
        except LocalUnavailableError:
            return None
