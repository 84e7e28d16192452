"""Ask the enclave: a verified key, one sealed request, its answer.

What is behind one relay's name may be a pool of enclaves; which of its nodes is asked
is drawn for each query (``nodes``), and whoever asks here does not notice.

A request is sealed and sent once, with three exceptions, each once a query and each
with a fresh seal (docs/protocol.md says when a client may send again):

- The enclave no longer holds the key: it is fetched and verified again, and the
  query sealed again only if the verified key changed.
- The enclave finds our date outside its window: the date inside the seal is
  corrected by what its clock says (RFC 9458, section 6.5.2). The correction is for
  this one request; no other use is made of another's clock.
- A node of a pool could not answer, and nothing of an answer came: another is drawn.

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
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, Protocol

from curtilage.attest.errors import RefusedError
from curtilage.attest.requirements import unmet
from curtilage.attest.verified_key import VerifiedKey
from curtilage.client import telemetry
from curtilage.client.answer import AnswerEvent
from curtilage.client.budget import RETRY_PERMILLE, Budget
from curtilage.client.errors import DateRefusedError, EnclaveError, FailureReason
from curtilage.client.remote.answer_opener import AnswerReader
from curtilage.client.remote.challenges import Challenges
from curtilage.client.remote.draining import ExchangeSupervisor
from curtilage.client.remote.fetch_order import FetchOrder
from curtilage.client.remote.keys import KeySource, failure_of, not_permitted
from curtilage.client.remote.nodes import Node
from curtilage.client.remote.requests import (
    Attempt,
    ChallengeRequest,
    ChatRequest,
    CoverRequest,
    RecentLengths,
    RecordsCover,
    Request,
)
from curtilage.client.remote.seal import NO_SKEW, size_class_of
from curtilage.client.remote.sealed import SealedExchange
from curtilage.policy.decision.permit import (
    PermitDesk,
    PermitRefusedError,
    WireException,
)

FIRST_EVENT_S: Final = 300.0  # a whole answer, when it is not streamed
_MINUTE_S: Final = 60
_SPARE_RETRIES: Final = 5
_ANOTHER_MAY: Final = frozenset(
    {
        FailureReason.BUSY,
        FailureReason.ENCLAVE_UNREACHABLE,
        FailureReason.EVIDENCE_REFUSED,
        FailureReason.CLOCK_SUSPECTED,
        FailureReason.KEY_UNKNOWN,
        FailureReason.RELAY_KNOWS_NO_SUCH,
        FailureReason.UNMET_CHALLENGE,
    }
)
"""Another node may answer, and the query is sealed to it."""
_RELAYS_OWN: Final = "429"
_GATEWAY_SILENT: Final = "504"
_SPOILT: Final = frozenset(
    {
        FailureReason.ANSWER_BROKEN,
        FailureReason.ANSWER_INCOMPLETE,
        FailureReason.ANSWER_LATE,
        FailureReason.RECEIPT_INVALID,
        FailureReason.TIMEOUT,
    }
)
"""The node may have answered, or begun to: it is left out of the next draws only."""

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


@dataclass(slots=True)
class _Course:
    """How one request is asked, as far as that changes from attempt to attempt.

    Attributes:
        node: that is asked.
        skew: how far its clock is ahead, by what it said.
        exceptions: why it was asked again, each reason once, the last one last.
        begun: whether anything of an answer was passed on.
    """

    node: Node
    skew: timedelta = NO_SKEW
    exceptions: list[WireException] = field(default_factory=list[WireException])
    begun: bool = False


class Enclave:
    """The one enclave of a client, or the one pool of them.

    Args:
        transport: the way out.
        keys: where its key comes from.
        clock: the time, aware UTC.
        desk: where the permit of each attempt is minted and redeemed.
        first_s: how long to wait for an answer to begin.
        lengths: how long its last answers were; None: none is known yet.
        supervisor: keeps the exchanges that run; None: one of its own.
        notify: called once where the clock is off.
        retries: what is spent where a second node is asked, kept by whoever else
            tries again; None: a tenth of all queries, kept here.
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
        retries: Budget | None = None,
    ) -> None:
        self._transport = transport
        self._keys = keys
        self._clock = clock
        self._desk = desk
        self._first_s = first_s
        self._lengths = lengths or RecentLengths()
        self._supervisor = supervisor or ExchangeSupervisor()
        self._notify = notify
        # Many that fail over at once would be a storm on the nodes that are left.
        self._retries = retries or Budget(RETRY_PERMILLE, reserve=_SPARE_RETRIES)
        self._earns = retries is None
        self._challenges: dict[str, Challenges] = {}

    @property
    def running(self) -> int:
        """How many exchanges are on the wire."""
        return self._supervisor.running

    def ask(self, request: ChatRequest) -> AsyncGenerator[Step]:
        """Yield the enclave's answer; before each attempt, that it was recorded.

        Raises:
            EnclaveError: not asked or not believed, the enclave does not show
                what is demanded, or it could not be recorded; after it nothing
                follows.
        """
        return self._attempts(request)

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

    def size_class(self, length: int) -> int:
        """Return the size class that a payload of so many bytes would have on the wire.

        Raises:
            EnclaveError: none; it could not leave.
        """
        return size_class_of(length, self._keys.known, now=self._clock())

    @property
    def evidence_until(self) -> datetime | None:
        """When the evidence ends that was verified last; None: none was."""
        known = self._keys.known
        return None if known is None else known.expires_at

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
        """Try; once more each for another key, a corrected date and another node."""

        def meets(key: VerifiedKey) -> bool:
            # Drawn among those that show what the data need, since any other would only
            # refuse. A challenge is asked of the one that is drawn.
            return not isinstance(request, ChatRequest) or not unmet(
                key, request.requirement, now=self._clock(), challenged=True
            )

        course = _Course(await self._keys.node(meets))
        if self._earns:
            self._retries.earn()
        while True:
            try:
                async with aclosing(self._exchange(request, course)) as steps:
                    async for step in steps:
                        course.begun |= not isinstance(step, AttemptRecorded)
                        yield step
            except EnclaveError as failure:
                if not await self._changed(course, failure, meets):
                    raise
            else:
                return

    async def _changed(
        self,
        course: _Course,
        failure: EnclaveError,
        meets: Callable[[VerifiedKey], bool],
    ) -> bool:
        """Change what a failed attempt shows to be wrong; tell whether that was done.

        Raises:
            EnclaveError: what came of asking for another key.
        """
        # Nothing here holds on to a failure that it raises: it would hold the frames
        # that it went through, and so the question.
        done = course.exceptions
        if isinstance(failure, DateRefusedError):
            # For this request alone. A clock that others could set would keep old
            # evidence in force; the enclave's is used for one field.
            if WireException.DATE_REFUSED in done or failure.date is None:
                return False
            done.append(WireException.DATE_REFUSED)
            course.skew = failure.date - self._clock()
            self._clock_is_off(course.skew)
            return True
        # Once, whatever comes back: a relay that says it of each key would otherwise
        # collect as many copies of a query as it likes.
        unknown = failure.reason is FailureReason.KEY_UNKNOWN
        if unknown and WireException.KEY_UNKNOWN not in done:
            done.append(WireException.KEY_UNKNOWN)
            try:
                course.node = await self._keys.after(course.node)
            except EnclaveError as none:
                if not self._moved(course, none, meets):
                    raise
            return True
        return self._moved(course, failure, meets)

    def _moved(
        self,
        course: _Course,
        failure: EnclaveError,
        meets: Callable[[VerifiedKey], bool],
    ) -> bool:
        """Note that a node failed, if it did; take the request to another, once."""
        # What the relay refuses by itself, it refuses this client: no node failed.
        gone = failure.reason in _ANOTHER_MAY or failure.code == _GATEWAY_SILENT
        another_may = gone and failure.code != _RELAYS_OWN
        if not another_may and failure.reason not in _SPOILT:
            return False
        busy = failure.reason is FailureReason.BUSY
        other = self._keys.failed(course.node, meets, busy=busy)
        # What one node began to answer, no other finishes.
        moved = course.begun or WireException.NODE_FAILED in course.exceptions
        if other is None or not another_may or moved or not self._retries.take():
            return False
        course.exceptions.append(WireException.NODE_FAILED)
        course.node = other
        return True

    def _clock_is_off(self, skew: timedelta) -> None:
        telemetry.clock_off()
        # Once in a session: each query says the same, and a person reads it once.
        if self._notify is not None:
            self._notify(clock_words(skew))
            self._notify = None

    async def _exchange(
        self, request: Request, course: _Course
    ) -> AsyncGenerator[Step]:
        """Record, seal and send one attempt; yield its answer."""
        # One key for all of it: what is demanded of it, recorded about it and sealed to
        # it must be one and the same, whatever is renewed meanwhile.
        node, skew = course.node, course.skew
        key, challenges = node.key, self._challenges_of(node)
        # First of all: what cannot be seen to the end of its bucket is not begun.
        self._supervisor.require_room(share=request.share)
        if isinstance(request, ChatRequest):
            # What is too large, or not for this enclave, leaves no record of having
            # left: so both are known before it is recorded.
            size_class_of(len(request.payload.content), key, now=self._clock())
            await self._require(request, node, skew)
        # On the disk before a byte is sealed. A crash behind this line leaves a record
        # of what did not leave, never the other way round.
        await request.record(key)
        yield AttemptRecorded(key)
        if isinstance(request, ChatRequest):
            # Again, at the moment of sealing: evidence has grown older meanwhile.
            challenges.require(key, request.requirement, challenged=False)
        try:
            exchange, reader = request.seal(
                self._desk,
                key,
                now=self._clock(),
                skew=skew,
                exception=course.exceptions[-1] if course.exceptions else None,
            )
        except RefusedError as refusal:
            raise failure_of(refusal) from None
        except PermitRefusedError as refused:
            raise not_permitted(refused) from None
        exchange.node = node.id
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

    async def _require(self, request: ChatRequest, node: Node, skew: timedelta) -> None:
        """Hold the key against what the query's data need; challenge if it is due."""
        key, needs = node.key, request.requirement
        challenges = self._challenges_of(node)
        # What no challenge could mend is refused first, so that nothing is sent for
        # a query that stays here anyway.
        challenges.require(key, needs, challenged=True)
        if needs.challenge_age_s is None:
            return
        # Asked again once it is our turn: the one before us may have been answered.
        async with challenges.turn:
            if challenges.is_fresh(key, needs):
                return
            challenge = challenges.new(key, request.records)
            try:
                async with aclosing(
                    self._exchange(challenge, _Course(node, skew))
                ) as steps:
                    async for _ in steps:
                        pass
            except EnclaveError as failure:
                raise challenges.failed(key, failure) from None
            challenges.verify(challenge, key, self._keys.expectations)

    def _challenges_of(self, node: Node) -> Challenges:
        return self._challenges.setdefault(node.id, Challenges(self._clock))

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
