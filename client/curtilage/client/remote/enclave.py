"""Ask the enclave: a verified key, one sealed request, its answer.

Every method takes the ``Allowed`` of the query. A key is fetched and verified
by one task at a time; a request is sealed and sent once, with two exceptions
(wire.md §3), each once a query and each with a fresh seal:

- The enclave no longer holds the key: it is fetched and verified again, and the
  query sealed again only if the verified key changed.
- The enclave finds our date outside its window: the date inside the seal is
  corrected by what its clock says. The correction is for this one request; no
  other use is made of another's clock.

A key is renewed in the background, at times that no query moves (``refresh``).
What the policy demands of the enclave for some data is asked before anything is
recorded or sealed (``challenges``); a renewal that fails takes no key away.

A clock that is off marks its owner: each question, and each dummy, then goes out
twice, in the same size class, which nobody else's do. The second is sent only
once the answer to the first has run to the end of its bucket, so that they look
like two questions, one after the other; but a relay that counts will still tell
such a client from others, also from another address. The person is told, once,
to set the clock; that alone ends it.
"""

import asyncio
import secrets
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from curtilage.attest.claims import Requirement
from curtilage.attest.errors import RefusedError
from curtilage.attest.verify import VerifiedKey
from curtilage.client import telemetry
from curtilage.client.answer import AnswerEvent
from curtilage.client.errors import DateRefusedError, EnclaveError, FailureReason
from curtilage.client.query import Query
from curtilage.client.remote.challenges import Challenges
from curtilage.client.remote.cover import Below
from curtilage.client.remote.draining import Drains, Keep
from curtilage.client.remote.key_consistency import MirrorSilentError, mirror_silent
from curtilage.client.remote.keys import EnclaveBook, Refresher
from curtilage.client.remote.requests import (
    NOTHING_MORE,
    Before,
    BeforeOther,
    Challenge,
    Dummy,
    Errand,
    Kept,
    Question,
    keep_nothing,
)
from curtilage.client.remote.seal import NO_SKEW, AnswerReader, size_class_of
from curtilage.client.remote.sealed import SealedExchange
from curtilage.client.remote.transport import KeyMirror, Transport
from curtilage.policy.decision.decide import Allowed
from curtilage.wire.shaping import TransportParameters

FIRST_EVENT_S: Final = 300.0  # a whole answer, when it is not streamed
RECENT_ANSWERS: Final = 32
_MINUTE_S: Final = 60

Tell = Callable[[str], None]
"""Takes a sentence for the person whose machine this is."""


Renewal = Callable[
    [Callable[[VerifiedKey], Awaitable[VerifiedKey | None]], Callable[[], datetime]],
    Refresher,
]
"""Takes what renews a key, and the clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Departure:
    """How a query leaves: what is recorded, kept and demanded.

    Attributes:
        before: records each attempt; what it raises stops it.
        kept: keeps the receipt of a complete answer.
        requirement: what the enclave must show for the query's data.
        before_challenge: records a challenge before it leaves.
    """

    before: Before
    kept: Kept = keep_nothing
    requirement: Requirement = NOTHING_MORE
    before_challenge: BeforeOther | None = None


class Remote:
    """The one enclave of a client.

    Args:
        transport: the way out.
        book: the enclave's key, and what the policy demands of it.
        clock: the time, aware UTC.
        first_s: how long to wait for an answer to begin.
        mirror: an independent copy of the key list, where the policy names one.
        below: randomness, for the length of a dummy's answer.
        drains: keeps the exchanges that run; None: one of its own.
        tell: told, once, of a clock that is off.
        renewal: makes what renews keys.
    """

    def __init__(
        self,
        transport: Transport,
        book: EnclaveBook,
        clock: Callable[[], datetime],
        *,
        first_s: float = FIRST_EVENT_S,
        mirror: KeyMirror | None = None,
        below: Below = secrets.randbelow,
        drains: Drains | None = None,
        tell: Tell | None = None,
        renewal: Renewal = Refresher,
    ) -> None:
        self._first_s = first_s
        self._transport = transport
        self._mirror = mirror
        self._book = book
        self._clock = clock
        self._below = below
        self._fetching = asyncio.Lock()
        self._drains = Drains() if drains is None else drains
        self._tell = tell
        self._recent_frames: deque[int] = deque(maxlen=RECENT_ANSWERS)
        self._challenges = Challenges(self._challenge, clock)
        self._refresher = renewal(self._renew_early, clock)

    @property
    def running(self) -> int:
        """How many exchanges are on the wire."""
        return self._drains.running

    async def ask(
        self, allowed: Allowed, query: Query, departure: Departure
    ) -> AsyncGenerator[AnswerEvent]:
        """Yield the enclave's answer.

        Args:
            allowed: the proof that this payload may leave.
            query: the query that was inspected.
            departure: what is recorded, kept and demanded, for each attempt.

        Raises:
            EnclaveError: not asked or not believed, the enclave does not show
                what is demanded, or it could not be recorded; after it nothing
                follows.
        """
        errand = Question(
            allowed=allowed,
            query=query,
            before=departure.before,
            kept=departure.kept,
            meet=partial(self._meet, departure),
            met=partial(
                self._challenges.require,
                requirement=departure.requirement,
                challenged=False,
            ),
            clock=self._clock,
        )
        async with aclosing(self._attempts(errand, self._recent_frames)) as events:
            async for event in events:
                yield event

    async def cover(self, size_class: int, *, before: BeforeOther) -> None:
        """Send a dummy, as a query would be sent, and wait for its answer.

        Args:
            size_class: of the query that it stands for.
            before: as for ``ask``.

        Raises:
            EnclaveError: as for ``ask``; also where the enclave shapes nothing,
                so that a dummy would not pass for a query.
        """
        errand = Dummy(
            size_class=size_class,
            bucket_of=self._usual_bucket,
            before=before,
            clock=self._clock,
        )
        async with aclosing(self._attempts(errand, None)) as events:
            async for _ in events:
                pass

    def size_class(self, query: Query) -> int:
        """Return the size class that a query would have on the wire.

        Raises:
            EnclaveError: none; it could not leave.
            UnicodeError: half a character; it could not leave either.
        """
        return size_class_of(query, self._book.known, now=self._clock())

    async def verified_key(self) -> VerifiedKey:
        """Return a key that is in force, fetching and verifying if need be.

        Raises:
            EnclaveError: unreachable, or the evidence was refused.
        """
        try:
            key = self._book.current(self._clock())
            if key is not None:
                return key
            async with self._fetching:
                return self._book.current(self._clock()) or await self._accepted()
        except RefusedError as refusal:
            telemetry.attest(telemetry.AttestOutcome.REFUSED, refusal.code)
            raise _refused(refusal) from None

    async def settle(self) -> None:
        """Wait until every exchange has run to its end."""
        await self._drains.settle()

    async def close(self) -> None:
        """Cut off what still runs and close the ways out."""
        await self._refresher.close()
        await self._drains.close()
        await self._transport.close()
        if self._mirror is not None:
            await self._mirror.close()

    async def _attempts(
        self, errand: Errand, recent: deque[int] | None
    ) -> AsyncGenerator[AnswerEvent]:
        key, skew = await self.verified_key(), NO_SKEW
        renewed = corrected = False
        while True:
            try:
                once = self._once(errand, key, skew, recent)
                async with aclosing(once) as events:
                    async for event in events:
                        yield event
            except DateRefusedError as refusal:
                if corrected or refusal.date is None:
                    raise
                corrected, skew = True, refusal.date - self._clock()
                self._clock_is_off(skew)
            except EnclaveError as failure:
                if renewed or failure.reason is not FailureReason.KEY_UNKNOWN:
                    raise
                renewed, key = True, await self._renewed(key)
            else:
                return

    async def _once(
        self,
        errand: Errand,
        key: VerifiedKey,
        skew: timedelta,
        recent: deque[int] | None,
    ) -> AsyncGenerator[AnswerEvent]:
        self._drains.require_room(share=errand.share)
        await errand.prepare(key, skew)
        try:
            exchange, reader = errand.sealed(key, skew)
        except RefusedError as refusal:
            raise _refused(refusal) from None
        begun, keep = False, errand.keep(key)
        due = asyncio.get_running_loop().time() + self._first_s
        if exchange.padded:
            to_end = isinstance(errand, Challenge)
            answer = self._kept(exchange, reader, recent, keep, to_end=to_end)
        else:
            answer = self._own(exchange, reader, keep)
        async with aclosing(answer) as events:
            while (event := await _next(events, None if begun else due)) is not None:
                begun = True
                yield event

    async def _kept(
        self,
        exchange: SealedExchange,
        reader: AnswerReader,
        recent: deque[int] | None,
        keep: Keep | None,
        *,
        to_end: bool,
    ) -> AsyncGenerator[AnswerEvent]:
        """Watch an exchange that runs to its end by itself."""
        ended = None if recent is None else recent.append
        send = self._transport.send
        watch = self._drains.start(exchange, reader, send, ended=ended, keep=keep)
        try:
            async with aclosing(watch.events()) as events:
                async for event in events:
                    yield event
        except EnclaveError as failure:
            # Two requests side by side would say: this clock is wrong, or that
            # the second is a question which needs a challenge.
            if to_end or isinstance(failure, DateRefusedError):
                await watch.settled()
            raise
        if to_end:
            await watch.settled()

    async def _own(
        self, exchange: SealedExchange, reader: AnswerReader, keep: Keep | None
    ) -> AsyncGenerator[AnswerEvent]:
        """Read an exchange that ends where we stop reading: nothing is hidden."""
        async with aclosing(self._transport.send(exchange)) as pieces:
            async for data in pieces:
                for event in reader.push(data):
                    yield event
        last = reader.finish()
        if keep is not None and reader.receipt is not None:
            await keep(reader.receipt)
        for event in last:
            yield event

    async def _meet(
        self, departure: Departure, key: VerifiedKey, skew: timedelta
    ) -> None:
        """Ask of the enclave what the data of a query need."""
        before = departure.before_challenge
        if before is None:
            self._challenges.require(key, departure.requirement, challenged=False)
            return
        await self._challenges.meet(
            key,
            skew,
            requirement=departure.requirement,
            expectations=self._book.expectations,
            before=before,
        )

    async def _challenge(
        self, challenge: Challenge, key: VerifiedKey, skew: timedelta
    ) -> None:
        async with aclosing(self._once(challenge, key, skew, None)) as events:
            async for _ in events:
                pass

    def _clock_is_off(self, skew: timedelta) -> None:
        telemetry.clock_off()
        if self._tell is not None:
            self._tell(clock_words(skew))
            self._tell = None

    def _usual_bucket(self, key: VerifiedKey) -> int:
        """Draw the bucket of one of the last answers; the shortest without any."""
        recent = self._recent_frames
        if not recent:
            return 0
        return bucket_like(key.transport, recent[self._below(len(recent))])

    async def _accepted(self) -> VerifiedKey:
        """Fetch and verify because none is in force; plan its renewal."""
        bundle = await self._transport.fetch_bundle()
        try:
            mirrored = await self._mirrored()
        except MirrorSilentError as silent:
            self._book.refuse(silent, self._clock())
            raise
        key = self._book.accept(bundle, self._clock(), mirrored=mirrored)
        telemetry.attest(telemetry.AttestOutcome.VERIFIED)
        self._refresher.accepted(key)
        return key

    async def _renew_early(self, old: VerifiedKey) -> VerifiedKey | None:
        """Fetch and verify before a key ends; a failure changes nothing."""
        async with self._fetching:
            known = self._book.known
            if known is not None and known is not old:
                return known  # somebody else was first
            try:
                bundle = await self._transport.fetch_bundle()
                mirrored = await self._mirrored()
                fresh = self._book.renew(bundle, self._clock(), mirrored=mirrored)
            except EnclaveError:
                return None
            except RefusedError as refusal:
                telemetry.attest(telemetry.AttestOutcome.REFUSED, refusal.code)
                return None
        telemetry.attest(telemetry.AttestOutcome.VERIFIED)
        return fresh

    async def _mirrored(self) -> bytes | None:
        if self._mirror is None:
            return None
        try:
            return await self._mirror.fetch_key_configs()
        except EnclaveError:
            raise mirror_silent() from None

    async def _renewed(self, old: VerifiedKey) -> VerifiedKey:
        self._book.drop(old)
        fresh = await self.verified_key()
        if fresh.key_configs == old.key_configs:
            raise EnclaveError(FailureReason.KEY_UNKNOWN)
        return fresh


def clock_words(skew: timedelta) -> str:
    """Say that this machine's clock is off, by how much, and what that costs.

    Args:
        skew: how far the enclave's clock is ahead.
    """
    minutes = max(int(abs(skew).total_seconds()) // _MINUTE_S, 1)
    return (
        f"this machine's clock is {_told(minutes)} or more away from the enclave's: "
        "set it.\nUntil then every question that leaves is sent twice, by which the "
        "relay can tell this machine from others"
    )


def _told(minutes: int) -> str:
    units = ((24 * 60, "day"), (60, "hour"), (1, "minute"))
    each, name = next(unit for unit in units if minutes >= unit[0])
    count = minutes // each
    return f"{count} {name}" if count == 1 else f"{count} {name}s"


def bucket_like(parameters: TransportParameters, frames: int) -> int:
    """Return the bucket that holds so many frames, or the longest there is."""
    buckets = range(parameters.buckets)
    fitting = (each for each in buckets if parameters.frames_of(each) >= frames)
    return next(fitting, max(len(buckets) - 1, 0))


async def _next(
    events: AsyncGenerator[AnswerEvent], due: float | None
) -> AnswerEvent | None:
    try:
        async with asyncio.timeout_at(due):
            return await anext(events, None)
    except TimeoutError:
        raise EnclaveError(FailureReason.TIMEOUT) from None


def _refused(refusal: RefusedError) -> EnclaveError:
    if isinstance(refusal, MirrorSilentError):
        return EnclaveError(FailureReason.MIRROR_UNREACHABLE)
    return EnclaveError(FailureReason.EVIDENCE_REFUSED, code=refusal.code.value)
