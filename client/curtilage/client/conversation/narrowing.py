"""Ask others a part of a conversation of which another part had to stay.

Joins the boundary, the detectors and the decision, as the session does for a whole
query: what is made is inspected and decided by itself, and without an ``Allowed`` of
its own nothing of it leaves.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Final

from curtilage.client.answer import AnswerEvent, Delta
from curtilage.client.boundary.ladder import (
    NotPossible,
    Rung,
    narrowed,
    rungs,
    summary_request,
)
from curtilage.client.conversation.pinned import Found, PinnedConversations
from curtilage.client.errors import LocalUnavailableError
from curtilage.client.query import Query
from curtilage.client.route import AskEnclave, AskLocal, Narrowed, first_step
from curtilage.policy.decision.decide import Inspection, decide
from curtilage.policy.decision.tiers import RoutingClass
from curtilage.policy.document.model import Policy

_SEVERAL: Final = 2


class Narrowing:
    """Makes of a conversation that stays a query that may leave, if there is one.

    Args:
        policy: says what of the turns may enter it.
        inspect: looks at what is made.
        generate: makes summaries; the local model.
        pinned: knows what stayed, also of what is no longer in the conversation.
        parameters: of the local model, about; 0: not known.
    """

    def __init__(
        self,
        policy: Policy,
        inspect: Callable[[Query], Awaitable[Inspection]],
        generate: Callable[[Query], AsyncGenerator[AnswerEvent]],
        *,
        pinned: PinnedConversations,
        parameters: int,
    ) -> None:
        self._pinned = pinned
        self._policy = policy
        self._inspect = inspect
        self._generate = generate
        self._parameters = parameters

    async def step(
        self, query: Query, taint: Sequence[RoutingClass], floor: RoutingClass
    ) -> AskEnclave | AskLocal:
        """Return the way of the first rung that may leave, else why the last may not.

        Args:
            query: the conversation; the decision about it is to stay.
            taint: the routing class of each message; see ``PinnedConversations``.
            floor: what its sender declared.
        """
        plan = self._policy.routing
        if plan is None or plan.observe or len(query.messages) < _SEVERAL:
            return AskLocal()
        why: NotPossible | None = None
        for rung in rungs(plan.history, parameters=self._parameters):
            summary = None
            if rung is Rung.SUMMARY:
                told = summary_request(query, taint, plan.history)
                summary = None if told is None else await self._said(told)
            made = narrowed(query, taint, rung, history=plan.history, summary=summary)
            if isinstance(made, NotPossible):
                why = made
                continue
            # Another text than any that was judged: without its neighbours a turn may
            # say something else.
            inspection = await self._inspect(made)
            found = Found.of(self._policy.rulebook, inspection)
            inspection = inspection.stricter(
                # Where contents count: an application may have cut off the turn that
                # stayed, and then nothing in the conversation is like what is asked.
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
