"""Millions of requests with faults: forbidden queries are never sent.

Two conversations at a time, interleaved. A query is decided by ``decide``, asked by
``ChatRequest``, and sealed at the real seal door with permits of a real desk, while
its attempts are retried, hedged, cancelled, queued and drained, and the enclave loses
its key or refuses a date. Also tried is everything that this machinery could do
wrong with what it holds, which is permits, queries and keys, but no decision and no
desk: a permit is used again, for another query, for an edited one, to another key,
too late, edited, from another process, or in another kind's place.

Counted: bytes of restricted queries that were sealed, permits that opened the door
twice, requests that were sealed without one, doors that a fault opened, and honest
attempts that were refused, but for lack of room. All must be 0. Time is virtual and
the randomness is seeded, so that a run can be repeated.

Only the encryption is skipped for a million requests; a smaller run includes it.
"""

import hashlib
import random
import statistics
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, cast
from unittest import mock

from benchmarks.report import Table
from curtilage.attest.evidence_json import encode_bundle
from curtilage.attest.verified_key import VerifiedKey
from curtilage.attest.verify import verify
from curtilage.client.chat.query import Message, Query
from curtilage.client.chat.receipt import ReceiptSecret
from curtilage.client.remote.requests import ChatRequest
from curtilage.client.remote.seal import NO_SKEW, seal
from curtilage.policy.decision.decide import Allowed, decide
from curtilage.policy.decision.findings import Finding, Normalization, Where
from curtilage.policy.decision.permit import (
    KEY_BYTES,
    LIFE_MS,
    Attempt,
    CoverBinding,
    EgressBinding,
    EgressPermit,
    PermitDesk,
    PermitRefusal,
    PermitRefusedError,
    WireException,
    time_ms,
)
from curtilage.policy.document.load import load_profile
from curtilage.wire import padding
from curtilage.wire.chunked import SealedChunkedRequest
from curtilage.wire.hpke.suite import KEM_XWING, generate_private_key
from curtilage.wire.keyconfig import KeyConfig, SymmetricAlgorithms, encode_key_configs
from curtilage_dev.deployment import make_deployment
from curtilage_dev.emulated.snp_pki import generate_root_keys, make_platform
from support.inspections import inspection_of
from support.permits import unfinished_permit

SHARE_RESTRICTED: Final = 0.15
NEW_CONVERSATION: Final = 0.4
QUEUED: Final = 0.1
FAILED: Final = 0.1
FAULTY: Final = 0.6
SET_BACK: Final = 0.01
RESTRICTED: Final = "must stay here"
MOST_USED: Final = 2048
HELD: Final = 64
LONG_AGO: Final = 4096
STEP_MS: Final = 20
BURST: Final = 5000
BURST_EVERY: Final = 20_000
PROGRESS: Final = 20
ROUNDS: Final = 20
DEFAULT = load_profile("default")
STAYS: Final = Finding(
    data_class="financial.pan",
    detector="benchmark",
    start=0,
    end=4,
    score=95,
    validated=False,
    normalization=Normalization.RAW,
    where=Where(message=0, role="user", json_path="content"),
)


@dataclass(slots=True)
class Totals:
    """The counts; those in ``wrong`` must be 0.

    Attributes:
        requests: queries that were asked.
        allowed: of them, those that the decision allows to be sent.
        sealed: sealed requests.
        again: of them, those by an exception of the wire.
        faults: faults by name that the door was tried with.
        refused: what the door answered, by name.
        full: honest attempts that found the desk full, and were answered locally.
        redeemed: permits that opened the door for a query.
        restricted_bytes: of restricted queries that were sealed.
        twice: permits that opened the door a second time.
        opened_by_faults: doors that a fault opened.
        refused_wrongly: honest attempts that were refused.
    """

    requests: int = 0
    allowed: int = 0
    sealed: int = 0
    again: int = 0
    redeemed: int = 0
    full: int = 0
    faults: Counter[str] = field(default_factory=Counter[str])
    refused: Counter[str] = field(default_factory=Counter[str])
    restricted_bytes: int = 0
    twice: int = 0
    opened_by_faults: Counter[str] = field(default_factory=Counter[str])
    refused_wrongly: Counter[str] = field(default_factory=Counter[str])

    @property
    def wrong(self) -> dict[str, int]:
        """The counts that must be 0, by name."""
        return {
            "restricted bytes out": self.restricted_bytes,
            "permits twice": self.twice,
            "without a permit": self.sealed - self.redeemed,
            "opened by faults": self.opened_by_faults.total(),
            "refused wrongly": self.refused_wrongly.total(),
        }


@dataclass(slots=True)
class _Asked:
    """One query and what was decided of it."""

    query: Query
    conversation: "_Conversation"
    allowed: Allowed | None
    digest: bytes


@dataclass(slots=True)
class _Conversation:
    pinned: bool = False


@dataclass(slots=True)
class _Held:
    """A permit that lies around: of an attempt that was made, or was given up."""

    permit: EgressPermit
    asked: _Asked
    key: VerifiedKey
    minted_ms: int


class _Unrecorded:
    """Keeps no records: what is recorded has tests of its own."""

    async def leaves(self, allowed: Allowed, verdict_id: str) -> None:
        """Record nothing."""

    async def receipted(
        self, secret: ReceiptSecret, public_key: bytes, receipt: bytes
    ) -> None:
        """Keep nothing."""

    async def challenged(self, content: bytes, verdict_id: str) -> None:
        """Record nothing."""


class Egress:
    """The machinery around the seal door, with all that can go wrong.

    Args:
        keys: two verified keys of different enclaves.
        now: a time at which both are in force.
        seed: of chance.
    """

    def __init__(self, keys: Sequence[VerifiedKey], now: datetime, seed: int) -> None:
        self.totals = Totals()
        self._keys = keys
        self._chance = random.Random(seed)  # noqa: S311 - a run must be repeatable
        self._begin = now
        self._ms = 0
        self._drawn = 0
        self._fault_name = ""
        self._desk = PermitDesk(bytes(KEY_BYTES), self._draw, MOST_USED)
        self._foreign = PermitDesk(b"\1" * KEY_BYTES, self._draw, MOST_USED)
        self._opened = bytearray()  # by a permit's id, which counts up here
        self._held: deque[_Held] = deque(maxlen=HELD)
        self._kept: deque[_Held] = deque()
        self._old: deque[_Held] = deque(maxlen=LONG_AGO)
        self._queue: deque[tuple[int, _Asked]] = deque()
        self._conversations = [_Conversation(), _Conversation()]
        self._faults: tuple[Callable[[_Held, _Asked], None], ...] = (
            self._shown_again,
            self._for_another_query,
            self._for_an_edited_query,
            self._to_another_key,
            self._too_late,
            self._edited,
            self._of_another_process,
            self._of_another_kind,
            self._again_unasked,
            self._after_the_clock_was_set_back,
        )

    def run(
        self, requests: int, *, progress: Callable[[int], None] | None = None
    ) -> None:
        """Ask so many queries, each with the faults that chance brings."""
        for number in range(requests):
            self._one(number)
            if (
                progress is not None
                and (number + 1) % max(requests // PROGRESS, 1) == 0
            ):
                progress(number + 1)
        while self._queue:
            self._ms += LIFE_MS
            self._drain()

    def observe(self, plaintext: bytes) -> None:
        """Receive the plaintext of everything that is sealed, for the test only."""
        self.totals.sealed += 1
        if RESTRICTED.encode() in plaintext:
            self.totals.restricted_bytes += len(plaintext)

    def redeemed(self, permit: EgressPermit) -> None:
        """See which permit opens the door."""
        number = int.from_bytes(permit.id, "big")
        if number >= len(self._opened):
            self._opened.extend(bytes(number + 1))
        self.totals.redeemed += 1
        self.totals.twice += self._opened[number]
        self._opened[number] = 1

    def _was_redeemed(self, permit: EgressPermit) -> bool:
        number = int.from_bytes(permit.id, "big")
        return number < len(self._opened) and bool(self._opened[number])

    @property
    def _now(self) -> datetime:
        return self._begin + timedelta(milliseconds=self._ms)

    def _draw(self, size: int) -> bytes:
        self._drawn += 1
        return self._drawn.to_bytes(size, "big")

    def _one(self, number: int) -> None:
        chance = self._chance
        # Bursts now and then, all at once, which fill the desk.
        burst = number % BURST_EVERY < BURST
        self._ms += 0 if burst else int(chance.expovariate(1 / STEP_MS))
        asked = self._ask(number)
        if asked.allowed is not None:
            chance.choice((self._attempt, self._attempt, self._hedge, self._give_up))(
                asked
            )
        if chance.random() < QUEUED:
            self._queue.append((self._ms + chance.randrange(2 * LIFE_MS), asked))
        if self._held and chance.random() < FAULTY:
            held = chance.choice(self._held)
            fault = chance.choice(self._faults)
            self._fault_name = fault.__name__.strip("_")
            self.totals.faults[self._fault_name] += 1
            fault(held, asked)
        self._drain()

    def _ask(self, number: int) -> _Asked:
        slot = self._chance.randrange(2)
        if self._chance.random() < NEW_CONVERSATION:
            self._conversations[slot] = _Conversation()
        conversation = self._conversations[slot]
        restricted = self._chance.random() < SHARE_RESTRICTED
        words = RESTRICTED if restricted else "may leave"
        text = f"{words} {number} {'x' * self._chance.randrange(200)}"
        query = Query(messages=(Message(role="user", content=text),))
        self.totals.requests += 1
        return self._decided(query, conversation, restricted=restricted)

    def _decided(
        self, query: Query, conversation: _Conversation, *, restricted: bool
    ) -> _Asked:
        digest = query.payload_digest()
        inspection = inspection_of(
            findings=(STAYS,) if restricted else (),
            payload_digest=digest,
            messages=1,
            pinned=conversation.pinned,
        )
        allowed = decide(DEFAULT.rulebook, inspection).allowed
        conversation.pinned = conversation.pinned or allowed is None
        self.totals.allowed += allowed is not None
        return _Asked(query, conversation, allowed, digest)

    # What the machinery does correctly.

    def _attempt(self, asked: _Asked) -> None:
        """Ask as the product does: retried, and sealed again where the wire says so."""
        if asked.allowed is None:
            return
        key = self._chance.choice(self._keys)
        for attempt in range(3):
            request = ChatRequest(
                allowed=asked.allowed,
                tier="enclave",
                payload=asked.query.payload(),
                records=_Unrecorded(),
                attempt=attempt,
            )
            exception: WireException | None = None
            unseen = list(WireException)
            while self._sealed(request, key, exception):
                if self._chance.random() > FAILED or not unseen:
                    break
                exception = unseen.pop(self._chance.randrange(len(unseen)))
                self.totals.again += 1
                if exception is not WireException.DATE_REFUSED:
                    key = self._keys[1 - self._keys.index(key)]
            if self._chance.random() > FAILED:  # else it was cut, and is retried
                return
            self._ms += self._chance.randrange(200)

    def _hedge(self, asked: _Asked) -> None:
        """Ask two enclaves, each attempt with a permit of its own; cancel one late."""
        for attempt, key in enumerate(self._keys):
            held = self._minted(asked, key, attempt)
            self._shown(held, held.asked.query, held.key)
            self._old.append(held)

    def _give_up(self, asked: _Asked) -> None:
        """Begin next to the local model, and cancel before anything is sealed."""
        self._kept.append(self._minted(asked, self._chance.choice(self._keys), 0))

    def _drain(self) -> None:
        """Ask again, from the decision on, what waited long enough."""
        while self._queue and self._queue[0][0] <= self._ms:
            _, asked = self._queue.popleft()
            restricted = RESTRICTED in asked.query.messages[0].content
            conversation = asked.conversation
            self._attempt(
                self._decided(asked.query, conversation, restricted=restricted)
            )

    def _minted(self, asked: _Asked, key: VerifiedKey, attempt: int) -> _Held:
        permit = self._mint(self._desk, cast("Allowed", asked.allowed), key, attempt)
        held = _Held(permit, asked, key, self._ms)
        self._held.append(held)
        return held

    def _mint(
        self, desk: PermitDesk, allowed: Allowed, key: VerifiedKey, attempt: int
    ) -> EgressPermit:
        return desk.mint(
            allowed,
            tier="enclave",
            enclave_key_digest=bytes.fromhex(key.key_configs_digest),
            release_digest=key.release_digest,
            attempt=attempt,
            now_ms=time_ms(self._now),
        )

    def _sealed(
        self, request: ChatRequest, key: VerifiedKey, exception: WireException | None
    ) -> bool:
        """Seal as the product does; it must not be refused but for lack of room."""
        try:
            request.seal(
                self._desk, key, now=self._now, skew=NO_SKEW, exception=exception
            )
        except PermitRefusedError as refused:
            self._refused_honestly(refused)
            return False
        return True

    def _shown(self, held: _Held, query: Query, key: VerifiedKey) -> None:
        """Show a permit for what it is for, for the first time."""
        try:
            seal(held.permit, query.payload(), key, desk=self._desk, now=self._now)
        except PermitRefusedError as refused:
            self._refused_honestly(refused)

    def _refused_honestly(self, refused: PermitRefusedError) -> None:
        if refused.refusal is PermitRefusal.FULL:
            self.totals.full += 1
        else:
            self.totals.refused_wrongly[refused.refusal.value] += 1

    # What the machinery could do wrong, with what it holds.

    def _fault(self, permit: object, query: Query, key: VerifiedKey) -> None:
        """Try to send with a permit that must be refused."""
        shown = cast("EgressPermit", permit)
        try:
            seal(shown, query.payload(), key, desk=self._desk, now=self._now)
        except PermitRefusedError as refused:
            self.totals.refused[refused.refusal.value] += 1
        except TypeError:
            self.totals.refused["no permit"] += 1
        else:
            self.totals.opened_by_faults[self._fault_name] += 1

    def _shown_again(self, held: _Held, _: _Asked) -> None:
        if self._was_redeemed(held.permit):
            self._fault(held.permit, held.asked.query, held.key)

    def _for_another_query(self, held: _Held, asked: _Asked) -> None:
        """As when two conversations are mixed up, or what must stay is escalated."""
        if held.asked is not asked:
            self._fault(held.permit, asked.query, held.key)

    def _for_an_edited_query(self, held: _Held, _: _Asked) -> None:
        query = held.asked.query
        more = Message(role="user", content=RESTRICTED)
        edited = replace(query, messages=(*query.messages, more))
        self._fault(held.permit, edited, held.key)

    def _to_another_key(self, held: _Held, _: _Asked) -> None:
        other = self._keys[1 - self._keys.index(held.key)]
        self._fault(held.permit, held.asked.query, other)

    def _too_late(self, _: _Held, __: _Asked) -> None:
        """As from a queue that keeps its permits."""
        while self._kept and self._ms - self._kept[0].minted_ms >= LIFE_MS:
            kept = self._kept.popleft()
            self._fault(kept.permit, kept.asked.query, kept.key)

    def _edited(self, held: _Held, asked: _Asked) -> None:
        binding, attempt = held.permit.binding, cast("Attempt", held.permit.attempt)
        changes: tuple[tuple[object, str, object], ...] = (
            (binding, "payload", asked.digest),
            (attempt, "number", attempt.number + 1),
            (held.permit, "id", self._draw(16)),
            (held.permit, "not_after_ms", held.permit.not_after_ms + LIFE_MS),
            (attempt, "tier", "another"),
            (binding, "key", hashlib.sha256(b"").digest()),
        )
        part, name, value = self._chance.choice(changes)
        before = getattr(part, name)
        if before != value:
            object.__setattr__(part, name, value)
            query = asked.query if name == "payload" else held.asked.query
            self._fault(held.permit, query, held.key)
            object.__setattr__(part, name, before)

    def _of_another_process(self, held: _Held, _: _Asked) -> None:
        allowed = cast("Allowed", held.asked.allowed)
        permit = self._mint(self._foreign, allowed, held.key, 0)
        self._fault(permit, held.asked.query, held.key)

    def _of_another_kind(self, held: _Held, asked: _Asked) -> None:
        listed = bytes.fromhex(held.key.key_configs_digest)
        binding = CoverBinding(key=listed, release=held.key.release_digest)
        cover = self._desk.mint_without_query(binding, now_ms=time_ms(self._now))
        for permit in (None, cover, held.asked.allowed, unfinished_permit()):
            self._fault(permit, asked.query, held.key)

    def _again_unasked(self, held: _Held, _: _Asked) -> None:
        """Ask for another attempt, though the one before was never made; or twice."""
        for _time in range(2):
            try:
                permit = self._desk.mint_again(
                    held.permit,
                    exception=WireException.DATE_REFUSED,
                    enclave_key_digest=bytes.fromhex(held.key.key_configs_digest),
                    release_digest=held.key.release_digest,
                    now_ms=time_ms(self._now),
                )
            except PermitRefusedError as refused:
                self.totals.refused[refused.refusal.value] += 1
                continue
            # It was made: then once more is right, and this permit is good once.
            if not self._was_redeemed(held.permit):
                self.totals.opened_by_faults["again_unasked"] += 1
            self._held.append(_Held(permit, held.asked, held.key, self._ms))
            self.totals.again += 1
            self._shown(self._held[-1], held.asked.query, held.key)

    def _after_the_clock_was_set_back(self, _: _Held, __: _Asked) -> None:
        """To a time at which a permit was good that is forgotten since."""
        old = self._old[0] if self._old else None
        if old is None or self._ms - old.minted_ms < 2 * LIFE_MS:
            return
        self._old.popleft()
        if self._chance.random() < SET_BACK and self._was_redeemed(old.permit):
            self._ms = old.minted_ms + self._chance.randrange(LIFE_MS)
            self._fault(old.permit, old.asked.query, old.key)


@contextmanager
def watched(egress: Egress, *, encrypt: bool) -> Generator[None]:
    """Let a machinery see what is sealed, in place of the encryption or before it."""
    sealing = padding.seal_padded_request
    nothing = SealedChunkedRequest(message=b"", opener=cast("Any", None))

    def sealed(*given: Any, **more: Any) -> SealedChunkedRequest:  # noqa: ANN401
        egress.observe(given[1])
        return sealing(*given, **more) if encrypt else nothing

    redeeming = PermitDesk.redeem

    def redeemed(
        desk: PermitDesk, permit: EgressPermit, presented: EgressBinding, *, now_ms: int
    ) -> None:
        redeeming(desk, permit, presented, now_ms=now_ms)
        egress.redeemed(permit)

    with (
        mock.patch.object(padding, "seal_padded_request", sealed),
        mock.patch.object(PermitDesk, "redeem", redeemed),
    ):
        yield


def make_keys(now: datetime) -> tuple[VerifiedKey, VerifiedKey]:
    """Make two enclaves of one release, and verify them under the default policy."""
    deployment = make_deployment(make_platform(generate_root_keys(), now=now), now=now)
    expectations = replace(deployment.expectations(), digest=DEFAULT.digest)

    def one(key_id: int) -> VerifiedKey:
        private = generate_private_key(KEM_XWING)
        config = KeyConfig(
            key_id=key_id,
            kem_id=KEM_XWING,
            public_key=private.public_key,
            algorithms=(SymmetricAlgorithms(kdf_id=1, aead_id=1),),
        )
        listed = encode_key_configs([config])
        bundle = replace(deployment.unsigned_bundle(), key_configs=listed)
        signed = encode_bundle(deployment.attest(bundle))
        return verify(signed, expectations, now=now)

    return one(1), one(2)


def measure_egress(requests: int, encrypted: int) -> list[Table]:
    """Run both, and time a permit by itself.

    Args:
        requests: how many without encryption.
        encrypted: how many with it.
    """
    now = datetime.now(UTC)
    keys = make_keys(now)
    rows: list[tuple[str | float, ...]] = []
    refusals: list[tuple[str | float, ...]] = []
    for count, encrypt in ((requests, False), (encrypted, True)):
        egress = Egress(keys, now, seed=count)
        started = time.monotonic()
        with watched(egress, encrypt=encrypt):
            egress.run(count, progress=lambda done, of=count: _report(done, of))  # type: ignore[misc]
        totals = egress.totals
        rows.append(
            (
                f"{totals.requests:,}{' encrypted' if encrypt else ''}",
                f"{totals.sealed:,}",
                f"{totals.again:,}",
                f"{totals.faults.total():,}",
                f"{totals.full:,}",
                *map(str, totals.wrong.values()),
                f"{time.monotonic() - started:.0f}",
            )
        )
        refusals += [
            (f"{'encrypted: ' if encrypt else ''}{name}", f"{number:,}")
            for name, number in sorted(totals.refused.items())
        ]
    rounds = [_permit_us(keys[0], now) for _ in range(ROUNDS)]
    minted, redeemed = zip(*rounds, strict=True)
    return [
        Table(
            title="Requests with faults: what was sent, and by what",
            columns=(
                "requests",
                "sealed",
                "again",
                "faults",
                "desk full",
                *Totals().wrong,
                "s",
            ),
            rows=tuple(rows),
            note="retry, hedge, cancel, queue and drain over two conversations at a "
            "time; the five counts before the last column must be 0",
        ),
        Table(
            title="What the door answered to faults",
            columns=("refusal", "times"),
            rows=tuple(refusals),
        ),
        Table(
            title=f"A permit: µs of processor time, {ROUNDS} rounds",
            columns=("what", "median", "least"),
            rows=(
                ("minted", statistics.median(minted), min(minted)),
                ("redeemed", statistics.median(redeemed), min(redeemed)),
            ),
        ),
    ]


def _report(done: int, of: int) -> None:
    print(f"egress: {done:,} of {of:,}", file=sys.stderr, flush=True)


def _permit_us(
    key: VerifiedKey, now: datetime, count: int = 2000
) -> tuple[float, float]:
    query = Query(messages=(Message(role="user", content="What is a kernel?"),))
    digest = query.payload_digest()
    inspection = inspection_of(findings=(), payload_digest=digest, messages=1)
    allowed = decide(DEFAULT.rulebook, inspection).allowed
    if allowed is None:
        raise RuntimeError("the default policy keeps a harmless question")
    desk = PermitDesk(bytes(KEY_BYTES), random.Random(1).randbytes, count)  # noqa: S311
    listed, now_ms = bytes.fromhex(key.key_configs_digest), time_ms(now)
    begun = time.thread_time_ns()
    permits = [
        desk.mint(
            allowed,
            tier="enclave",
            enclave_key_digest=listed,
            release_digest=key.release_digest,
            attempt=0,
            now_ms=now_ms,
        )
        for _ in range(count)
    ]
    minted = time.thread_time_ns()
    for permit in permits:
        presented = EgressBinding(
            payload=digest,
            key=listed,
            release=key.release_digest,
            policy=DEFAULT.digest,
        )
        desk.redeem(permit, presented, now_ms=now_ms)
    ended = time.thread_time_ns()
    return (minted - begun) / count / 1000, (ended - minted) / count / 1000
