"""Ask the enclave: a verified key, one sealed request, its answer.

Every method takes the ``Allowed`` of the query. A key is fetched and verified
by one task at a time; a request is sealed and sent once, except that a key
which the enclave no longer holds is fetched and verified again, once, and the
query sealed afresh only if the verified key changed (wire.md §3, exception 1).
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from datetime import datetime
from typing import Final

from curtilage.attest.errors import RefusedError
from curtilage.attest.verify import VerifiedKey
from curtilage.client import telemetry
from curtilage.client.answers import AnswerEvent
from curtilage.client.enclaves import EnclaveBook
from curtilage.client.errors import EnclaveError, FailureReason
from curtilage.client.exchange import seal
from curtilage.client.query import Query
from curtilage.client.transport import Transport
from curtilage.policy.decide import Allowed

FIRST_EVENT_S: Final = 300.0  # a whole answer, when it is not streamed

Before = Callable[[VerifiedKey], Awaitable[None]]
"""Is awaited before a query is sealed to a key; what it raises stops that."""


class Remote:
    """The one enclave of a client.

    Args:
        transport: the way out.
        book: the enclave's key, and what the policy demands of it.
        clock: the time, aware UTC.
        first_s: how long to wait for an answer to begin.
    """

    def __init__(
        self,
        transport: Transport,
        book: EnclaveBook,
        clock: Callable[[], datetime],
        *,
        first_s: float = FIRST_EVENT_S,
    ) -> None:
        self._first_s = first_s
        self._transport = transport
        self._book = book
        self._clock = clock
        self._fetching = asyncio.Lock()

    async def ask(
        self, allowed: Allowed, query: Query, *, before: Before
    ) -> AsyncGenerator[AnswerEvent]:
        """Yield the enclave's answer.

        Args:
            allowed: the proof that this payload may leave.
            query: the query that was inspected.
            before: told, for each attempt, which verified key the query is about
                to be sealed to; it writes the audit record.

        Raises:
            EnclaveError: not asked or not believed, or ``before`` refused; after
                it nothing follows.
        """
        key = await self.verified_key()
        for again in (False, True):
            try:
                async with aclosing(self._ask(allowed, query, key, before)) as events:
                    async for event in events:
                        yield event
            except EnclaveError as failure:
                if again or failure.reason is not FailureReason.KEY_UNKNOWN:
                    raise
            else:
                return
            key = await self._renewed(key)

    async def verified_key(self) -> VerifiedKey:
        """Return a key that is in force, fetching and verifying if need be.

        Raises:
            EnclaveError: unreachable, or the evidence was refused.
        """
        try:
            async with self._fetching:
                key = self._book.current(self._clock())
                if key is None:
                    bundle = await self._transport.fetch_bundle()
                    key = self._book.accept(bundle, self._clock())
                    telemetry.attest(telemetry.AttestOutcome.VERIFIED)
                return key
        except RefusedError as refusal:
            telemetry.attest(telemetry.AttestOutcome.REFUSED, refusal.code)
            raise _refused(refusal) from None

    async def close(self) -> None:
        """Close the way out."""
        await self._transport.close()

    async def _ask(
        self,
        allowed: Allowed,
        query: Query,
        key: VerifiedKey,
        before: Before,
    ) -> AsyncGenerator[AnswerEvent]:
        await before(key)
        try:
            exchange = seal(allowed, query, key, now=self._clock())
        except RefusedError as refusal:
            raise _refused(refusal) from None
        begun = False
        due = asyncio.get_running_loop().time() + self._first_s
        async with aclosing(self._transport.send(exchange)) as pieces:
            while data := await _next(pieces, None if begun else due):
                for event in exchange.reader.push(data):
                    begun = True
                    yield event
        for event in exchange.reader.finish():
            yield event

    async def _renewed(self, old: VerifiedKey) -> VerifiedKey:
        self._book.drop(old)
        fresh = await self.verified_key()
        if fresh.key_configs == old.key_configs:
            raise EnclaveError(FailureReason.KEY_UNKNOWN)
        return fresh


async def _next(pieces: AsyncGenerator[bytes], due: float | None) -> bytes:
    try:
        async with asyncio.timeout_at(due):
            return await anext(pieces, b"")
    except TimeoutError:
        raise EnclaveError(FailureReason.TIMEOUT) from None


def _refused(refusal: RefusedError) -> EnclaveError:
    return EnclaveError(FailureReason.EVIDENCE_REFUSED, code=refusal.code.value)
