"""The client of the enclave: a verified key, one sealed request, its answer.

One relay name may lead to a pool of enclaves; the node for each query is drawn at
random (``nodes``), and callers of this module do not notice.

A request is sealed and sent once, with three exceptions, each at most once for a query
and each with a fresh seal (docs/protocol.md defines when a client may send again):

- The enclave no longer holds the key: it is fetched and verified again, and the query
  is sealed again only if the verified key changed.
- The enclave finds our date outside its window: the date inside the seal is corrected
  by the enclave's clock (RFC 9458, section 6.5.2). The correction applies to this one
  request; the enclave's clock is used for nothing else.
- A node of a pool failed before any part of an answer arrived: another node is drawn.

A wrong clock makes its owner recognisable: each query and each cover request is then
sent twice, in the same size class, unlike those of other clients. The second is sent
only when the answer to the first has run to the end of its bucket, so that they look
like two successive queries; but a relay that counts can still recognise such a client,
also from another address. The user is asked once to set the clock; only that ends it.
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
from curtilage.client.chat.answer import AnswerEvent
from curtilage.client.errors import EnclaveError
from curtilage.client.remote.answer_opener import AnswerReader
from curtilage.client.remote.challenges import Challenges
from curtilage.client.remote.draining import ExchangeSupervisor
from curtilage.client.remote.fetch_order import FetchOrder
from curtilage.client.remote.keys import KeySource, failure_of, not_permitted
from curtilage.client.remote.nodes import Node
from curtilage.client.remote.reasons import DateRefusedError, EnclaveFailure, Unmet
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
from curtilage.client.system.budget import RETRY_PERMILLE, Budget
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
        EnclaveFailure.BUSY,
        EnclaveFailure.ENCLAVE_UNREACHABLE,
        EnclaveFailure.EVIDENCE_REFUSED,
        EnclaveFailure.CLOCK_SUSPECTED,
        EnclaveFailure.KEY_UNKNOWN,
        EnclaveFailure.MODEL_UNAVAILABLE,
        EnclaveFailure.RELAY_KNOWS_NO_SUCH,
        Unmet.CHALLENGE,
    }
)
"""Another node may answer, and the query is sealed again, to that node's key."""
_RELAYS_OWN: Final = "429"
_GATEWAY_SILENT: Final = "504"
CLOCK_DIFFERS: Final = "this machine's clock differs by"
_SPOILT: Final = frozenset(
    {
        EnclaveFailure.ANSWER_BROKEN,
        EnclaveFailure.ANSWER_INCOMPLETE,
        EnclaveFailure.ANSWER_LATE,
        EnclaveFailure.RECEIPT_INVALID,
        EnclaveFailure.TIMEOUT,
    }
)
"""The node may have answered in part: it is only left out of the next draws."""

Notify = Callable[[str], None]
"""Takes a sentence for the user of this machine."""


class Transport(Protocol):
    """The transport's interface; tests have one in memory."""

    async def fetch_bundle(self, order: FetchOrder) -> bytes:
        """Return the attestation bundle that the relay serves."""
        ...

    def send(self, exchange: SealedExchange) -> AsyncGenerator[bytes]:
        """Send one sealed request and yield its sealed answer."""
        ...

    async def close(self) -> None:
        """Close every connection."""
        ...


@dataclass(slots=True)
class _Course:
    """State of one request that changes from attempt to attempt.

    Attributes:
        node: that the next attempt is sent to.
        skew: how far its clock is ahead, according to the node.
        exceptions: reasons for further attempts, each once, the last one last.
        begun: whether any part of an answer was passed on.
        recorded: see ``Enclave.ask``. It is kept here, as what is drained in the
            background must not keep anything of a query.
    """

    node: Node
    skew: timedelta = NO_SKEW
    exceptions: list[WireException] = field(default_factory=list[WireException])
    begun: bool = False
    recorded: Callable[[VerifiedKey], object] = lambda _: None


class Enclave:
    """The client of one enclave, or of one pool of enclaves.

    Args:
        transport: sends and fetches.
        keys: source of its keys.
        clock: the time, aware UTC.
        desk: mints and redeems the permit of each attempt.
        first_s: how long to wait for an answer to begin.
        lengths: lengths of recent answers; None: none is known yet.
        supervisor: owns the running exchanges; None: a new one.
        notify: called once if the clock is wrong.
        retries: budget for asking a second node, shared with other retries; None: a
            budget of its own, a tenth of all queries.
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
        # Many simultaneous failovers would overload the nodes that are left.
        self._retries = retries or Budget(RETRY_PERMILLE, reserve=_SPARE_RETRIES)
        self._earns = retries is None
        self._challenges: dict[str, Challenges] = {}

    @property
    def running(self) -> int:
        """Number of exchanges on the wire."""
        return self._supervisor.running

    async def ask(
        self,
        request: Request,
        recorded: Callable[[VerifiedKey], object] = lambda _: None,
    ) -> AsyncGenerator[AnswerEvent]:
        """Yield the enclave's answer.

        Tries once more each for another key, a corrected date and another node.

        Args:
            request: the request.
            recorded: called with the key of each attempt, once the attempt is recorded
                and before anything is sealed.

        Raises:
            EnclaveError: the enclave was not asked or not trusted, it does not meet
                the requirement, or the attempt could not be recorded; nothing
                follows it.
        """

        def meets(key: VerifiedKey) -> bool:
            # Draw among the nodes that meet the data's requirement, since any other
            # would only refuse. The node that is drawn gets a challenge.
            return not isinstance(request, ChatRequest) or not unmet(
                key, request.requirement, now=self._clock(), challenged=True
            )

        course = _Course(await self._keys.node(meets), recorded=recorded)
        if self._earns:
            self._retries.earn()
        while True:
            try:
                async with aclosing(self._exchange(request, course)) as events:
                    async for event in events:
                        course.begun = True
                        yield event
            except EnclaveError as failure:
                if not await self._changed(course, failure, meets):
                    raise
            else:
                return

    async def cover(self, size_class: int, records: RecordsCover) -> None:
        """Send a cover request, in the same way as a query, and wait for its answer.

        Args:
            size_class: of the query that it replaces.
            records: where it is recorded.

        Raises:
            EnclaveError: as for ``ask``; also where the enclave's release is unpadded,
                so that the request would not look like a query.
        """
        # By the same code as a query, corrections included: a difference would reveal
        # which of the two it is.
        request = CoverRequest(
            size_class=size_class, lengths=self._lengths, records=records
        )
        async with aclosing(self.ask(request)) as steps:
            async for _ in steps:
                pass

    def size_class(self, length: int) -> int:
        """Return the size class that a payload of this length has on the wire.

        Raises:
            EnclaveError: it is too large to be sent.
        """
        return size_class_of(length, self._keys.known, now=self._clock())

    @property
    def evidence_until(self) -> datetime | None:
        """Expiry of the evidence that was verified last; None: none was."""
        known = self._keys.known
        return None if known is None else known.expires_at

    async def verified_key(self) -> VerifiedKey:
        """Return a key in force; fetches and verifies evidence if necessary.

        Raises:
            EnclaveError: unreachable, or the evidence was refused.
        """
        return await self._keys.current()

    async def probe(self) -> None:
        """Check that the relay can be reached; see ``KeySource.probe``."""
        await self._keys.probe()

    async def settle(self) -> None:
        """Wait until every exchange has run to its end."""
        await self._supervisor.settle()

    async def close(self) -> None:
        """Cancel running exchanges and close the connections."""
        # Keys first: a renewal in progress uses the transport.
        await self._keys.close()
        await self._supervisor.close()
        await self._transport.close()

    async def _changed(
        self,
        course: _Course,
        failure: EnclaveError,
        meets: Callable[[VerifiedKey], bool],
    ) -> bool:
        """Adjust the course to a failure; return whether another attempt is due.

        Raises:
            EnclaveError: fetching another key failed.
        """
        # Keep no reference to a failure that is raised: its traceback holds the frames
        # it went through, and so the question.
        done = course.exceptions
        if isinstance(failure, DateRefusedError):
            # For this request only. A clock that others could set would keep old
            # evidence in force; the enclave's time is used for one field.
            if WireException.DATE_REFUSED in done or failure.date is None:
                return False
            done.append(WireException.DATE_REFUSED)
            course.skew = failure.date - self._clock()
            telemetry.clock_off()
            # Once per session: each query would report the same.
            if self._notify is not None:
                self._notify(clock_words(course.skew))
                self._notify = None
            return True
        # Once, whatever comes back: a relay that reports every key as unknown could
        # otherwise collect any number of copies of a query.
        unknown = failure.reason is EnclaveFailure.KEY_UNKNOWN
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
        """Record a node's failure, if it was one; move the request to another, once."""
        # A refusal by the relay itself concerns this client: no node failed.
        gone = failure.reason in _ANOTHER_MAY or failure.code == _GATEWAY_SILENT
        another_may = gone and failure.code != _RELAYS_OWN
        if not another_may and failure.reason not in _SPOILT:
            return False
        busy = failure.reason is EnclaveFailure.BUSY
        other = self._keys.failed(course.node, meets, busy=busy)
        # Once a node has begun to answer, no other node continues.
        moved = course.begun or WireException.NODE_FAILED in course.exceptions
        if other is None or not another_may or moved or not self._retries.take():
            return False
        course.exceptions.append(WireException.NODE_FAILED)
        course.node = other
        return True

    async def _exchange(
        self, request: Request, course: _Course
    ) -> AsyncGenerator[AnswerEvent]:
        """Record, seal and send one attempt; yield its answer."""
        # One key for the whole attempt: the key that is checked, recorded and sealed to
        # must be the same, whatever is renewed meanwhile.
        node, skew = course.node, course.skew
        key, challenges = node.key, self._challenges_of(node)
        # First: an exchange that cannot be read to the end of its bucket is not begun.
        self._supervisor.require_room(share=request.share)
        if isinstance(request, ChatRequest):
            # A request that is too large or not for this enclave must not be recorded
            # as sent, so both are checked before recording.
            size_class_of(len(request.payload.content), key, now=self._clock())
            await self._require(request, node, skew)
        # On disk before a byte is sealed. A crash after this line leaves a record of a
        # request that was not sent, never the other way round.
        await request.record(key)
        course.recorded(key)
        if isinstance(request, ChatRequest):
            # Again, at the moment of sealing: the evidence has aged meanwhile.
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
        # For the first event only: a long answer is not a late one.
        due = asyncio.get_running_loop().time() + self._first_s
        begun = False
        send = self._drained if exchange.padded else self._direct
        async with aclosing(send(exchange, reader, attempt)) as events:
            while True:
                try:
                    async with asyncio.timeout_at(None if begun else due):
                        event = await anext(events, None)
                except TimeoutError:
                    raise EnclaveError(EnclaveFailure.TIMEOUT) from None
                if event is None:
                    return
                begun = True
                yield event

    async def _require(self, request: ChatRequest, node: Node, skew: timedelta) -> None:
        """Check the key against the data's requirement; challenge it if one is due."""
        key, needs = node.key, request.requirement
        challenges = self._challenges_of(node)
        # First what no challenge could change, so that nothing is sent for a query
        # that is kept local anyway.
        challenges.require(key, needs, challenged=True)
        if needs.challenge_age_s is None:
            return
        # Checked again inside the lock: the caller before us may have challenged it.
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
        # A challenge's whole bucket is awaited before the query follows.
        challenge = isinstance(attempt.request, ChallengeRequest)
        running = self._supervisor.start(
            exchange, reader, self._transport.send, attempt
        )
        try:
            async with aclosing(running.events()) as events:
                async for event in events:
                    yield event
        except EnclaveError as failure:
            # Two simultaneous requests would reveal that this clock is wrong, or that
            # the second is a query which needs a challenge.
            if challenge or isinstance(failure, DateRefusedError):
                await running.settled()
            raise
        if challenge:
            await running.settled()

    async def _direct(
        self, exchange: SealedExchange, reader: AnswerReader, attempt: Attempt
    ) -> AsyncGenerator[AnswerEvent]:
        """Read an unpadded exchange, which ends when the reader stops."""
        # For unpadded releases (docs/protocol.md, "Unpadded releases"): the length is
        # visible anyway, so reading on would hide nothing.
        async with aclosing(self._transport.send(exchange)) as pieces:
            async for data in pieces:
                for event in reader.push(data):
                    yield event
        # The last events follow once the receipt is kept, as for a padded answer.
        last = reader.finish()
        if reader.receipt is not None:
            await attempt.keep(reader.receipt)
        for event in last:
            yield event


def clock_words(skew: timedelta) -> str:
    """Return the notice that this machine's clock is wrong, by how much and its effect.

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
        f"{CLOCK_DIFFERS} {howlong} or more from the enclave's: "
        "set it.\nUntil then every question to the enclave is sent twice, which "
        "lets the relay recognise this machine"
    )
