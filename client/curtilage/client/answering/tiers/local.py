"""The tier of the local model: it answers in this process."""

from contextlib import aclosing
from dataclasses import replace
from functools import partial

from curtilage.client.answering.attempt import Answers, Attempt, Status
from curtilage.client.answering.background import Covering
from curtilage.client.audit.record import Outcome
from curtilage.client.chat.query import Query
from curtilage.client.local.reasons import DraftRejectedError
from curtilage.client.local.shorten import Parts, begun_within, shortened_to_fit
from curtilage.client.parts import AnswersLocally, ClientParts, demonstrates


class LocalTier:
    """Asks the local model; if no other tier is left, it answers as well as it can."""

    def __init__(self, parts: ClientParts, covering: Covering) -> None:
        self._parts = parts
        self._covering = covering

    async def answer(self, attempt: Attempt, query: Query, status: Status) -> Answers:
        """Yield the local model's answer.

        Raises:
            LocalUnavailableError: there is none.
            DraftRejectedError: another model runs than the one whose draft was planned.
        """
        parts, case, router = self._parts, attempt.case, self._parts.router
        recorded = await case.recorder.stays(Outcome.LOCAL, attempt.fallback)
        # No ``await`` between this and ``generate``: another model may take over
        # meanwhile, and the provenance must name the model that answers.
        local = parts.local_for(case.options)
        # Its thresholds and its grades are of no other model.
        usual = local is parts.local
        draft = attempt.plan.draft
        if attempt.draft and (
            router is None
            or draft is None
            or router.unfit(draft.thresholds) is not None
        ):
            # The thresholds were certified for another model.
            raise DraftRejectedError
        status.source = attempt.provenance(
            model=local.model_id,
            recorded=recorded,
            home_model=parts.home_model() if usual else "",
            demonstration=demonstrates(local),
        )
        if not attempt.draft:  # a draft may still be sent on
            self._covering.unless_sent(case, attempt.failures)
        doubts = None
        if router is not None and usual and case.ways.here and router.judges:
            doubts = router.doubts(query)
        signals = attempt.draft or doubts is not None
        answer = self._generated(local, attempt, query, status, signals=signals)
        if doubts is not None:
            from curtilage.client.answering.steps.doubt import (  # noqa: PLC0415
                doubted,
                wants_json,
            )

            answer = doubted(
                answer, doubts, formatted=wants_json(query) or not query.is_plain
            )
        async with aclosing(answer) as events:
            async for event in events:
                yield event

    def _generated(
        self,
        local: AnswersLocally,
        attempt: Attempt,
        query: Query,
        status: Status,
        *,
        signals: bool,
    ) -> Answers:
        """Return the model's answer; of a part of the query, if it is the last resort.

        Args:
            local: the model.
            attempt: which it is, and what may follow.
            query: the query.
            status: shows how much of the query was left out.
            signals: include how sure the model was, for the judge of the answer.
        """
        router, generate = self._parts.router, local.generate
        if signals:
            generate = partial(generate, signals=True)
        if attempt.draft:
            return generate(query)
        estimate = attempt.plan.estimate
        # A slow local model is given up only if another tier is left.
        if not attempt.last:
            if router is None or router.plan.observe or estimate is None:
                return generate(query)
            first_s = router.plan.local.stall_s + router.begins_s(
                attempt.tier, estimate
            )
            return begun_within(first_s, generate(query))
        # The same with and without routing rules, and while they only observe.
        plan = self._parts.policy.routing
        # A part of a call or of a schema is none, and a note would break the format.
        if (plan is not None and not plan.local.shortens) or not query.is_plain:
            return generate(query)

        def left_out(count: int) -> None:
            if status.source is not None:
                status.source = replace(status.source, left_out=count)

        return shortened_to_fit(
            generate(query), lambda: Parts(generate, query, left_out)
        )

    async def close(self) -> None:
        """Free every model."""
        await self._parts.local.close()
        if self._parts.named is not None:
            await self._parts.named.close()
