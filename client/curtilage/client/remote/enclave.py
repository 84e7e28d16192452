"""Ask the enclave: a verified key, one sealed request, its answer.

A request is sealed and sent once, with two exceptions, each once a query and each
with a fresh seal (docs/protocol.md says when a client may send again):

- The enclave no longer holds the key: it is fetched and verified again, and the
  query sealed again only if the verified key changed.
- The enclave finds our date outside its window: the date inside the seal is
  corrected by what its clock says (RFC 9458, section 6.5.2). The correction is for
  this one request; no other use is made of another's clock.

A clock that is off marks its owner: each query, and each cover request, then goes out
twice, in the same size class, which nobody else's do. The second is sent only once
the answer to the first has run to the end of its bucket, so that they look like two
queries, one after the other; but a relay that counts will still tell such a client
from others, also from another address. The person is asked, once, to set the
clock; that alone ends it.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Protocol

from curtilage.attest.errors import RefusedError
from curtilage.attest.verify import VerifiedKey
from curtilage.client import telemetry
from curtilage.client.answer import AnswerEvent
from curtilage.client.errors import DateRefusedError, EnclaveError, FailureReason
from curtilage.client.query import Query
from curtilage.client.remote.challenges import Challenges
from curtilage.client.remote.draining import ExchangeSupervisor
from curtilage.client.remote.keys import KeySource, failure_of, not_permitted
from curtilage.client.remote.requests import (
    Attempt,
    ChallengeRequest,
    ChatRequest,
    CoverRequest,
    RecentLengths,
    RecordsCover,
    Request,
)
from curtilage.client.remote.seal import NO_SKEW, AnswerReader, size_class_of
from curtilage.client.remote.sealed import FetchOrder, SealedExchange
from curtilage.policy.decision.permit import (
    PermitDesk,
    PermitRefusedError,
    WireException,
)

FIRST_EVENT_S: Final = 300.0  # a whole answer, when it is not streamed
_MINUTE_S: Final = 60

Notify = Callable[[str], None]
"""Takes a sentence for the person whose machine this is."""


class Transport(Protocol):
    """The way out, as its users see it; tests have one in memory."""

    async def fetch_bundle(self, order: FetchOrder) -> bytes:
        """Return the attestation bundle that the relay serves."""
        ...

    def send(self, exchange: SealedExchange) -> AsyncGenerator[bytes]:
        """Send one sealed request and yield its sealed answer."""
        ...

    async def close(self) -> None:
        """Close every connection."""
        ...


@dataclass(frozen=True, slots=True)
class AttemptRecorded:
    """A request is recorded and about to be sealed; no part of an answer.

    Attributes:
        key: what it will be sealed to.
    """

    key: VerifiedKey


Step = AttemptRecorded | AnswerEvent


class Enclave:
    """The one enclave of a client.

    Args:
        transport: the way out.
        keys: where its key comes from.
        clock: the time, aware UTC.
        desk: where the permit of each attempt is minted and redeemed.
        first_s: how long to wait for an answer to begin.
        lengths: how long its last answers were; None: none is known yet.
        supervisor: keeps the exchanges that run; None: one of its own.
        notify: called once where the clock is off.
    """

    def __init__(
        self,
        transport: Transport,
        keys: KeySource,
        clock: Callable[[], datetime],
        desk: PermitDesk,
        *,
        first_s: float = FIRST_EVENT_S,
        lengths: RecentLengths | None = None,
        supervisor: ExchangeSupervisor | None = None,
        notify: Notify | None = None,
    ) -> None:
        self._transport = transport
        self._keys = keys
        self._clock = clock
        self._desk = desk
        self._first_s = first_s
        self._lengths = lengths or RecentLengths()
        self._supervisor = supervisor or ExchangeSupervisor()
        self._notify = notify
        self._challenges = Challenges(clock)

    @property
    def running(self) -> int:
        """How many exchanges are on the wire."""
        return self._supervisor.running

    async def ask(self, request: ChatRequest) -> AsyncGenerator[Step]:
        """Yield the enclave's answer; before each attempt, that it was recorded.

        Raises:
            EnclaveError: not asked or not believed, the enclave does not show
                what is demanded, or it could not be recorded; after it nothing
                follows.
        """
        async with aclosing(self._attempts(request)) as steps:
            async for step in steps:
                yield step

    async def cover(self, size_class: int, records: RecordsCover) -> None:
        """Send a cover request, as a query would be sent, and wait for its answer.

        Args:
            size_class: of the query that it stands for.
            records: where it is recorded.

        Raises:
            EnclaveError: as for ``ask``; also where the enclave shapes nothing,
                so that it would not pass for a query.
        """
        # By the same way as a query, corrections included: what were done for queries
        # only would show which of the two it is.
        request = CoverRequest(
            size_class=size_class, lengths=self._lengths, records=records
        )
        async with aclosing(self._attempts(request)) as steps:
            async for _ in steps:
                pass

    def size_class(self, query: Query) -> int:
        """Return the size class that a query would have on the wire.

        Raises:
            EnclaveError: none; it could not leave.
            UnicodeError: half a character; it could not leave either.
        """
        return size_class_of(query, self._keys.known, now=self._clock())

    async def verified_key(self) -> VerifiedKey:
        """Return a key that is in force, fetching and verifying if need be.

        Raises:
            EnclaveError: unreachable, or the evidence was refused.
        """
        return await self._keys.current()

    async def probe(self) -> None:
        """Find out whether the way there is open; see ``KeySource.probe``."""
        await self._keys.probe()

    async def settle(self) -> None:
        """Wait until every exchange has run to its end."""
        await self._supervisor.settle()

    async def close(self) -> None:
        """Cut off what still runs and close the ways out."""
        # Keys first: a renewal that is under way uses the transport.
        await self._keys.close()
        await self._supervisor.close()
        await self._transport.close()

    async def _attempts(self, request: Request) -> AsyncGenerator[Step]:
        """Try, and once more each for another key and for a corrected date."""
        # One key for all of an attempt: what is demanded of it, recorded about it and
        # sealed to it must be one and the same, whatever is renewed meanwhile.
        key, skew = await self._keys.current(), NO_SKEW
        renewed = corrected = False
        exception: WireException | None = None
        while True:
            try:
                exchange = self._exchange(request, key, skew, exception)
                async with aclosing(exchange) as steps:
                    async for step in steps:
                        yield step
            except DateRefusedError as refusal:
                # Once, and for this request alone. A clock that others could set would
                # keep old evidence in force; the enclave's is used for one field.
                if corrected or refusal.date is None:
                    raise
                corrected, skew = True, refusal.date - self._clock()
                exception = WireException.DATE_REFUSED
                self._clock_is_off(skew)
            except EnclaveError as failure:
                # Once, whatever comes back: a relay that says it of each key would
                # otherwise collect as many copies of a query as it likes.
                if renewed or failure.reason is not FailureReason.KEY_UNKNOWN:
                    raise
                renewed, key = True, await self._keys.after(key)
                exception = WireException.KEY_UNKNOWN
            else:
                return

    def _clock_is_off(self, skew: timedelta) -> None:
        telemetry.clock_off()
        # Once in a session: each query says the same, and a person reads it once.
        if self._notify is not None:
            self._notify(clock_words(skew))
            self._notify = None

    async def _exchange(
        self,
        request: Request,
        key: VerifiedKey,
        skew: timedelta,
        exception: WireException | None = None,
    ) -> AsyncGenerator[Step]:
        """Record, seal and send one attempt; yield its answer.

        ``exception``: for what it is sealed again, where it was sealed before.
        """
        # First of all: what cannot be seen to the end of its bucket is not begun.
        self._supervisor.require_room(share=request.share)
        if isinstance(request, ChatRequest):
            # What is too large, or not for this enclave, leaves no record of having
            # left: so both are known before it is recorded.
            size_class_of(request.query, key, now=self._clock())
            await self._require(request, key, skew)
        # On the disk before a byte is sealed. A crash behind this line leaves a record
        # of what did not leave, never the other way round.
        await request.record(key)
        yield AttemptRecorded(key)
        if isinstance(request, ChatRequest):
            # Again, at the moment of sealing: evidence has grown older meanwhile.
            self._challenges.require(key, request.requirement, challenged=False)
        try:
            exchange, reader = request.seal(
                self._desk, key, now=self._clock(), skew=skew, exception=exception
            )
        except RefusedError as refusal:
            raise failure_of(refusal) from None
        except PermitRefusedError as refused:
            raise not_permitted(refused) from None
        attempt = Attempt(request=request, key=key, lengths=self._lengths)
        # For the first event only: a long answer is no late one.
        due = asyncio.get_running_loop().time() + self._first_s
        begun = False
        send = self._drained if exchange.padded else self._direct
        async with aclosing(send(exchange, reader, attempt)) as events:
            while True:
                try:
                    async with asyncio.timeout_at(None if begun else due):
                        event = await anext(events, None)
                except TimeoutError:
                    raise EnclaveError(FailureReason.TIMEOUT) from None
                if event is None:
                    return
                begun = True
                yield event

    async def _require(
        self, request: ChatRequest, key: VerifiedKey, skew: timedelta
    ) -> None:
        """Hold the key against what the query's data need; challenge if it is due."""
        needs = request.requirement
        # What no challenge could mend is refused first, so that nothing is sent for
        # a query that stays here anyway.
        self._challenges.require(key, needs, challenged=True)
        if needs.challenge_age_s is None:
            return
        # Asked again once it is our turn: the one before us may have been answered.
        async with self._challenges.turn:
            if self._challenges.is_fresh(key, needs):
                return
            challenge = self._challenges.new(key, request.records)
            try:
                async with aclosing(self._exchange(challenge, key, skew)) as steps:
                    async for _ in steps:
                        pass
            except EnclaveError as failure:
                raise self._challenges.failed(key, failure) from None
            self._challenges.verify(challenge, key, self._keys.expectations)

    async def _drained(
        self, exchange: SealedExchange, reader: AnswerReader, attempt: Attempt
    ) -> AsyncGenerator[AnswerEvent]:
        """Watch a padded exchange, which runs to its end by itself."""
        # Of a challenge, the whole bucket is awaited before the query follows.
        challenge = isinstance(attempt.request, ChallengeRequest)
        running = self._supervisor.start(
            exchange, reader, self._transport.send, attempt
        )
        try:
            async with aclosing(running.events()) as events:
                async for event in events:
                    yield event
        except EnclaveError as failure:
            # Two requests side by side would say: this clock is wrong, or that
            # the second is a query which needs a challenge.
            if challenge or isinstance(failure, DateRefusedError):
                await running.settled()
            raise
        if challenge:
            await running.settled()

    async def _direct(
        self, exchange: SealedExchange, reader: AnswerReader, attempt: Attempt
    ) -> AsyncGenerator[AnswerEvent]:
        """Read an exchange that ends where we stop reading: nothing is hidden."""
        # For releases that shape nothing (docs/protocol.md, "Unpadded releases"). The
        # length shows anyway, so there is nothing that reading on would hide.
        async with aclosing(self._transport.send(exchange)) as pieces:
            async for data in pieces:
                for event in reader.push(data):
                    yield event
        # The last events are shown once the receipt is kept, as for a padded answer.
        last = reader.finish()
        if reader.receipt is not None:
            await attempt.keep(reader.receipt)
        for event in last:
            yield event


def clock_words(skew: timedelta) -> str:
    """Say that this machine's clock is off, by how much, and what that costs.

    Args:
        skew: how far the enclave's clock is ahead.
    """
    # Rounded down, to the largest unit: the exact skew does not belong on a
    # screen.
    minutes = max(int(abs(skew).total_seconds()) // _MINUTE_S, 1)
    units = ((24 * 60, "day"), (60, "hour"), (1, "minute"))
    each, name = next(unit for unit in units if minutes >= unit[0])
    count = minutes // each
    howlong = f"{count} {name}" if count == 1 else f"{count} {name}s"
    return (
        f"this machine's clock is {howlong} or more away from the enclave's: "
        "set it.\nUntil then every question that leaves is sent twice, by which the "
        "relay can tell this machine from others"
    )
