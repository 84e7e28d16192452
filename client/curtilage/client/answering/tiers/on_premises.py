"""The tier of on-premises servers: the policy trusts each with what it is sent."""

from contextlib import aclosing

from curtilage.client.answering.attempt import Answers, Attempt, Status
from curtilage.client.answering.background import Covering
from curtilage.client.chat.query import Query
from curtilage.client.errors import AttemptFailure, OnPremisesUnavailableError
from curtilage.client.parts import ClientParts
from curtilage.client.route import AskOnPremises
from curtilage.policy.decision.permit import PermitDesk, PermitRefusedError


class OnPremisesTier:
    """Asks the policy's on-premises servers, each with a permit for one attempt."""

    def __init__(
        self, parts: ClientParts, desk: PermitDesk, covering: Covering
    ) -> None:
        self._desk = desk
        self._covering = covering
        self._now_ms = parts.now_ms
        self._servers = {
            tier: make(desk, parts.now_ms) for tier, make in parts.on_premises.items()
        }

    async def answer(
        self, attempt: Attempt, way: AskOnPremises, query: Query, status: Status
    ) -> Answers:
        """Yield the server's answer.

        Raises:
            OnPremisesUnavailableError: there is none.
        """
        server, case = self._servers[attempt.tier.id], attempt.case
        # On the disk first, as for an enclave: the trail must name every machine that
        # received the query.
        await case.recorder.sent_on_premises(way.allowed)
        status.source = attempt.provenance(model=server.model_id, recorded=True)
        # An observer of the relay sees nothing of an on-premises attempt, so its
        # silence has to be covered like that of a local one.
        self._covering.unless_sent(case, attempt.failures)
        try:
            # After the record, and directly before the request: a permit is valid for
            # 30 seconds and for one attempt, so none is kept in reserve.
            permit = self._desk.mint_on_premises(
                way.allowed,
                tier=attempt.tier.id,
                server_digest=server.digest,
                attempt=len(attempt.failures),
                now_ms=self._now_ms(),
            )
            async with aclosing(server.generate(permit, query)) as events:
                async for event in events:
                    yield event
        except PermitRefusedError as refused:
            # As with an enclave: another tier may answer, and nothing was sent.
            raise OnPremisesUnavailableError(
                AttemptFailure.NOT_PERMITTED, code=refused.refusal.value
            ) from None

    async def close(self) -> None:
        """Close every connection."""
        for server in self._servers.values():
            await server.close()
