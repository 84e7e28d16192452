"""From a query to every way in which it may be answered: inspected, decided, rewritten.

Whatever comes later chooses among these ways and can add none.
"""

import asyncio
from dataclasses import replace

from curtilage.client import telemetry
from curtilage.client.answer import Obstacle
from curtilage.client.audit.recorder import QueryRecorder
from curtilage.client.conversation.kept import UNSAVED
from curtilage.client.conversation.narrowing import Narrowing
from curtilage.client.conversation.pinned import Found, PinnedConversations
from curtilage.client.parts import ClientParts
from curtilage.client.pseudonyms.rewrite import deidentify, findings_asked
from curtilage.client.pseudonyms.vault import ConversationKeys
from curtilage.client.query import Query
from curtilage.client.route import (
    AskEnclave,
    AskLocal,
    Rewrite,
    Ways,
    after_rewriting,
    first_step,
    ways,
)
from curtilage.policy.decision.conversation import pins
from curtilage.policy.decision.decide import decide
from curtilage.policy.decision.routes import Route
from curtilage.policy.decision.rules import STICKY


class Decider:
    """Decides of each query, and remembers of conversations what must stay.

    Args:
        parts: the policy, the detectors and the model that shortens.
        pinned: the conversations that stay.
        keys: of each conversation, for its pseudonyms.
        way_out: there is an enclave that could be asked.
    """

    def __init__(
        self,
        parts: ClientParts,
        pinned: PinnedConversations,
        keys: ConversationKeys,
        *,
        way_out: bool,
    ) -> None:
        self._parts = parts
        self._pinned = pinned
        self._keys = keys
        self._way_out = way_out
        self._saves = True
        self._narrowing = Narrowing(
            parts.policy,
            parts.inspector.ainspect,
            parts.local.generate,
            pinned=pinned,
            parameters=parts.parameters,
        )

    async def decided(
        self, query: Query, *, remember: bool = False
    ) -> tuple[QueryRecorder, Ways]:
        """Inspect, decide, and where the policy asks for it rewrite and do so again.

        Args:
            query: what is asked.
            remember: it is really asked, so that what stays is known later; a question
                of where something might go leaves no trace.
        """
        policy = self._parts.policy
        # First, and whole: nobody is asked anything before all of it was looked at. A
        # detector that fails or is too slow is a finding, which keeps the query home.
        inspection = await self._parts.inspector.ainspect(query)
        # What stayed home once takes the turns that follow with it: a later one may
        # say nothing that is found, and still be about what was.
        seen = Found.of(policy.rulebook, inspection)
        inspection = inspection.stricter(
            pinned=self._pinned.holds(query, seen), floor=query.options.floor
        )
        decision = decided = decide(policy.rulebook, inspection)
        step, conversation = first_step(decision), None
        if isinstance(step, Rewrite):
            found = findings_asked(policy, inspection, decision)
            conversation = self._keys.of(query)
            rewritten = deidentify(query, found, key=conversation)
            if isinstance(rewritten, Obstacle):
                step = AskLocal(rewritten)
            else:
                # What leaves is another text than the one that was judged, so the
                # detectors and the policy judge it again, with its stand-ins left out.
                again = await self._parts.inspector.ainspect(rewritten.reading)
                second = rewritten.inspected(again).stricter(
                    floor=decision.permitted.routing_class
                )
                step = after_rewriting(rewritten, decide(policy.rulebook, second))
            if isinstance(step, AskLocal):
                # What could not be replaced stays, with all that follows it.
                decided = replace(decision, route=Route.LOCAL)
        if decision.route is Route.LOCAL and self._way_out:
            taint = self._pinned.taint(query, seen)
            step = await self._narrowing.step(query, taint, inspection.floor)
        # Before anybody answers: a caller that goes on at once is held to it as well.
        # What left is remembered where it is sealed (``doors``).
        if remember and pins(policy.rulebook, inspection, decided):
            own = [hit for hit in decision.rules if hit.id != STICKY]
            alone = any(hit.route in {Route.BLOCK, Route.LOCAL} for hit in own)
            self._pinned.add(
                query,
                seen,
                own=alone or not inspection.pinned,
                apart=isinstance(step, AskEnclave),
            )
            await self._save()
        telemetry.decided(decision.route)
        recorder = QueryRecorder(
            self._parts.audit,
            policy,
            inspection,
            decision,
            save_transcript=self._parts.save_transcript,
        )
        tiering = policy.rulebook.tiering
        return recorder, ways(tiering, decision, step, conversation=conversation)

    async def _save(self) -> None:
        """Put on the disk what has to stay; says once where that fails."""
        # What cannot be written now is written with the next one, or at the end.
        saved = await asyncio.to_thread(self._pinned.save)
        if not saved and self._saves and self._parts.notify is not None:
            self._parts.notify(UNSAVED)
        self._saves = saved
