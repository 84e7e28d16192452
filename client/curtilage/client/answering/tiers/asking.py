"""Asks a tier: the one of three classes that the way of an attempt names."""

from contextlib import aclosing, nullcontext

from curtilage.client.answer import Finished
from curtilage.client.answering.attempt import Answers, Attempt, Status
from curtilage.client.answering.covering import Covering
from curtilage.client.answering.observer import Observer
from curtilage.client.answering.tiers.enclave import EnclaveTier
from curtilage.client.answering.tiers.local import LocalTier
from curtilage.client.answering.tiers.on_premises import OnPremisesTier
from curtilage.client.answering.turn import Turn
from curtilage.client.conversation.pinned import PinnedConversations
from curtilage.client.parts import ClientParts
from curtilage.client.remote.enclave import Enclave
from curtilage.client.route import AskEnclave, AskHouse, AskLocal
from curtilage.policy.decision.permit import PermitDesk


class Tiers:
    """The tiers of one client.

    Attributes:
        enclave: the tier of enclaves.
    """

    def __init__(
        self,
        parts: ClientParts,
        desk: PermitDesk,
        enclave: Enclave | None,
        *,
        pinned: PinnedConversations,
        observer: Observer,
        covering: Covering,
    ) -> None:
        self._router = parts.router
        self._pinned = pinned
        self._observer = observer
        self.enclave = EnclaveTier(parts, enclave, pinned)
        self._on_premises = OnPremisesTier(parts, desk, covering)
        self._local = LocalTier(parts, covering)

    async def asked(self, attempt: Attempt, status: Status) -> Answers:
        """Ask one tier; note its events in its figures, and its answer as a turn."""
        status.phase = attempt.phase
        match attempt.way:
            case AskEnclave() as way:
                answer = self.enclave.answer(attempt, way, status)
            case AskHouse() as way:
                answer = self._on_premises.answer(attempt, way, status)
            case AskLocal():
                answer = self._local.answer(attempt, status)
        router, estimate = self._router, attempt.plan.estimate
        following = (
            router.follow(attempt.tier, estimate) if router and estimate else None
        )
        measured = self._observer.asks(attempt.tier)
        with following or nullcontext(), Turn(attempt, self._pinned) as turn:
            async with aclosing(answer) as events:
                async for event in events:
                    turn.saw(event)
                    if following is not None:
                        following.saw(event)
                    if isinstance(event, Finished):
                        measured.finished(event.prompt_tokens, event.completion_tokens)
                    else:
                        measured.text()
                    yield event

    async def close(self) -> None:
        """Free the model, and close every connection to on-premises servers."""
        await self._local.close()
        await self._on_premises.close()
