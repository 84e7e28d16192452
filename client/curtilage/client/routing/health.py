"""Performance of a tier: recent measurements, and whether it is worth asking.

Pure: all times are arguments, milliseconds of any one monotonic clock. A missing
measurement does not exclude a tier: the operator's expectations are used instead
(``TierPriors``), and measurements decay towards them.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Final
from weakref import WeakSet

from curtilage.client.errors import Failure
from curtilage.client.routing.breaker import Breaker, BreakerState
from curtilage.policy.decision.tiers import TierKind
from curtilage.policy.document.routing_settings import Breaker as BreakerSettings

MOST_SAMPLES: Final = 32
NEWER: Final = 0.9
"""Weight of a sample relative to the next one: about ten samples decide, so a laptop
that is throttled after eight runs is noticed within the next few."""
HALF_LIFE_MS: Final = 300_000.0
"""Time after which a sample has half its weight: a laptop cools down."""
LONG_PROMPT: Final = 256
"""Tokens from which the time to the first text is mostly that of reading."""
ONE_PIECE: Final = 8
"""Tokens that may arrive at once although they are generated one by one."""
TYPICAL_TOKENS: Final = 200
"""Duration of an answer, before one was measured."""
MIN_HOLD_MS: Final = 1_000.0
MAX_HOLD_MS: Final = 10_000.0
"""Bound of a 'retry later': it may come from outside the seal, unauthenticated."""
RATE_WINDOW_MS: Final = 60_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TierPriors:
    """Expectations of a tier before anything was measured.

    Attributes:
        ttft_ms: from its turn to the first text of an answer to a short question.
        tokens_per_s: generation speed.
        prompt_tokens_per_s: reading speed for a long question.
        quality_permille: how many of a thousand ordinary questions it solves.
        cost_microusd_per_mtok: of a million tokens, read or generated; locally, energy.
        setup_ms: until it can begin, if it is not ready: loading a model, or fetching a
            key and verifying its evidence.
        parallel: number of questions answered in parallel.
    """

    ttft_ms: float
    tokens_per_s: float
    prompt_tokens_per_s: float
    quality_permille: int
    cost_microusd_per_mtok: int
    setup_ms: float = 0.0
    parallel: int = 1

    def __post_init__(self) -> None:
        """Refuse zero for values used as divisors."""
        # They come from the policy, which an operator writes by hand.
        if min(self.tokens_per_s, self.prompt_tokens_per_s, self.parallel) <= 0:
            raise ValueError("a tier's speeds and places must be above 0")


PRIORS: Final[Mapping[TierKind, TierPriors]] = {
    TierKind.IN_PROCESS: TierPriors(
        ttft_ms=300,
        tokens_per_s=25,
        prompt_tokens_per_s=150,
        quality_permille=600,
        cost_microusd_per_mtok=50_000,
        setup_ms=2_000,
    ),
    TierKind.ON_PREMISES: TierPriors(
        ttft_ms=300,
        tokens_per_s=40,
        prompt_tokens_per_s=2_000,
        quality_permille=800,
        cost_microusd_per_mtok=200_000,
        parallel=8,
    ),
    TierKind.ATTESTED: TierPriors(
        ttft_ms=700,
        tokens_per_s=60,
        prompt_tokens_per_s=4_000,
        quality_permille=900,
        cost_microusd_per_mtok=1_500_000,
        setup_ms=500,
        parallel=8,
    ),
}
"""Defaults, if the policy states nothing more about a tier."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TierView:
    """The state of a tier at one moment.

    Attributes:
        kind: its kind.
        available: it may be asked now.
        state: of its breaker.
        quality_permille: how many of a thousand ordinary questions it solves.
        cost_microusd_per_mtok: of a million tokens.
        setup_ms: until it could begin.
        queue_ms: until a new question's turn.
        ttft_p50_ms: from the turn to the first text, for short questions; median.
        ttft_p95_ms: the same, 95th percentile.
        prompt_tokens_per_s: reading speed for long questions.
        tokens_per_s: generation speed.
        tokens_per_s_p05: the same, 5th percentile.
        rate_used: share of its rate limit that is used up; 0 without one.
        strained: it would use a scarce resource: the battery, a metered network.
        context_tokens: question and answer together; None: not known.
        period_ms: from one frame of an answer to the next; 0: no frames.
        first_bucket: frames of the shortest answer.
        buckets: number of lengths, each twice the one before.
    """

    kind: TierKind
    available: bool = True
    state: BreakerState = BreakerState.CLOSED
    quality_permille: int
    cost_microusd_per_mtok: int
    setup_ms: float = 0.0
    queue_ms: float = 0.0
    ttft_p50_ms: float
    ttft_p95_ms: float
    prompt_tokens_per_s: float
    tokens_per_s: float
    tokens_per_s_p05: float
    rate_used: float = 0.0
    strained: bool = False
    context_tokens: int | None = None
    period_ms: int = 0
    first_bucket: int = 0
    buckets: int = 0

    def ttft_ms(self, prompt_tokens: int, *, slow: bool = False) -> float:
        """Return the expected time of the first text; ``slow``: the slowest 5 %."""
        first = self.ttft_p95_ms if slow else self.ttft_p50_ms
        reading = 1000.0 * prompt_tokens / self.prompt_tokens_per_s
        # Either, not both: the time to the first text of a short question includes
        # little reading, that of a long one little else.
        wait = self.setup_ms + self.queue_ms + max(first, reading)
        # Rounded up: text that is ready between two frames is sent with the next one.
        return -(-wait // self.period_ms) * self.period_ms if self.period_ms else wait

    def total_ms(
        self, prompt_tokens: int, answer_tokens: int, *, slow: bool = False
    ) -> float:
        """Return the expected time of the end; ``slow``: the slowest 5 %.

        With frames, the answer ends with the last one of its bucket, which has the
        receipt.
        """
        speed = self.tokens_per_s_p05 if slow else self.tokens_per_s
        total = self.ttft_ms(prompt_tokens, slow=slow) + 1000.0 * answer_tokens / speed
        if not self.period_ms:
            return total
        # Frames only begin once the enclave has the question.
        before = self.setup_ms
        end = float(self.first_bucket * self.period_ms)
        for _ in range(1, self.buckets):
            if before + end >= total:
                break
            end *= 2
        return before + end

    def cost_microusd(self, prompt_tokens: int, answer_tokens: int) -> float:
        """Return the expected cost of an answer."""
        return (prompt_tokens + answer_tokens) * self.cost_microusd_per_mtok / 1e6


class _Decaying:
    """Recent measurements, newer ones with more weight; and their quantiles."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, float]] = deque(maxlen=MOST_SAMPLES)

    def note(self, now_ms: float, value: float) -> None:
        """Add a measurement."""
        self._samples.append((now_ms, value))

    def quantiles(
        self, now_ms: float, shares: tuple[float, ...], prior: float
    ) -> list[float]:
        """Return the quantiles; ``prior`` counts as one measurement of this moment."""
        newer = 1.0
        weighted: list[tuple[float, float]] = []
        for noted_ms, value in reversed(self._samples):
            age = max(0.0, now_ms - noted_ms)
            weighted.append((value, newer * 0.5 ** (age / HALF_LIFE_MS)))
            newer *= NEWER
        weighted.sort()
        whole = sum(weight for _, weight in weighted)
        found: list[float] = []
        for share in shares:
            measured, up_to = prior, 0.0
            for value, weight in weighted:
                measured = value
                up_to += weight
                if up_to >= share * whole:
                    break
            # The prior counts as one sample, so that one unusual answer does not decide
            # alone, and old samples fade towards what the operator expects.
            found.append((prior + whole * measured) / (1.0 + whole))
        return found


@dataclass(slots=True, eq=False, weakref_slot=True, kw_only=True)
class Attempt:
    """One question to one tier, as recorded in the tier's health.

    Attributes:
        prompt_tokens: of the question.
        began_ms: when it began.
        probe: whether it is the one attempt that an open breaker lets pass.
        cold: whether a model had to be loaded, or a key verified.
        queued: others were before it, and the time of its turn is unknown.
        first_ms: when the first piece arrived.
        last_ms: when the last one did.
        over: its end was recorded.
    """

    prompt_tokens: int
    began_ms: float
    probe: bool
    cold: bool
    queued: bool
    first_ms: float | None = None
    last_ms: float = 0.0
    over: bool = False


class TierHealth:
    """The health of one tier, as it changes.

    Args:
        kind: its kind.
        priors: expectations of it; None: those of its kind.
        breaker: when it is no longer asked.
        context_tokens: question and answer together; None: not known.
        limit_per_min: questions per minute that it accepts; None: not known.
    """

    def __init__(
        self,
        kind: TierKind,
        priors: TierPriors | None = None,
        *,
        breaker: BreakerSettings | None = None,
        context_tokens: int | None = None,
        limit_per_min: int | None = None,
    ) -> None:
        self._kind = kind
        self._priors = priors or PRIORS[kind]
        self._breaker = Breaker(breaker or BreakerSettings())
        self.context_tokens = context_tokens
        self.quality_permille = self._priors.quality_permille
        self._begun_ms: deque[float] | None = (
            None if limit_per_min is None else deque(maxlen=limit_per_min)
        )
        # Weakly: an attempt that was dropped without a recorded end must not make the
        # tier look busy for ever.
        self._running: WeakSet[Attempt] = WeakSet()
        self._ttft_ms = _Decaying()
        self._prompt_tokens_per_s = _Decaying()
        self._tokens_per_s = _Decaying()
        self._took_ms = _Decaying()
        self._held_until_ms = -inf
        self._distrusted = False
        self._ready_until_ms = -inf
        self._frames = (0, 0, 0)
        self._strained = False

    def begin(self, now_ms: float, *, prompt_tokens: int) -> Attempt | None:
        """Begin an attempt; None if it may not be asked now.

        After a failure, the next attempt is the only one until it ends. It need not be
        a question: fetching a key also shows whether the tier is reachable, and then no
        question waits for an unreachable one.
        """
        if not self._may_be_asked(now_ms):
            return None
        state = self._breaker.admit(now_ms)
        if state is BreakerState.OPEN:
            return None
        if self._begun_ms is not None:
            self._begun_ms.append(now_ms)
        attempt = Attempt(
            prompt_tokens=prompt_tokens,
            began_ms=now_ms,
            probe=state is BreakerState.HALF_OPEN,
            cold=now_ms >= self._ready_until_ms,
            queued=len(self._running) >= self._priors.parallel,
        )
        self._running.add(attempt)
        return attempt

    def text(self, attempt: Attempt, now_ms: float) -> None:
        """Record a piece of the answer."""
        if attempt.first_ms is None:
            attempt.first_ms = now_ms
        attempt.last_ms = now_ms

    def finished(self, attempt: Attempt, now_ms: float, *, tokens: int = 0) -> None:
        """Record a whole answer with this many tokens; with 0, that it is reachable."""
        # An answer may be reported twice, by its last event and by the end of its
        # context; the breaker must count it once.
        if not self._end(attempt):
            return
        self._breaker.succeeded(probe=attempt.probe)
        if attempt.first_ms is None:
            return
        if self._kind is not TierKind.ATTESTED:
            self._ready_until_ms = inf  # it answered, so its model is loaded
        # Measured to the last piece: after it there are frames without text.
        writing_ms = attempt.last_ms - attempt.first_ms
        if writing_ms > 0:
            # Without the first token: its time is part of the time to the first text.
            self._tokens_per_s.note(now_ms, 1000.0 * max(1, tokens - 1) / writing_ms)
        if attempt.cold or attempt.queued:
            return  # its remaining time says nothing about other answers
        self._took_ms.note(now_ms, now_ms - attempt.began_ms)
        first_ms = attempt.first_ms - attempt.began_ms
        if writing_ms == 0 and tokens > ONE_PIECE:
            return  # it was not streamed: its first piece came with the last
        if attempt.prompt_tokens < LONG_PROMPT:
            self._ttft_ms.note(now_ms, first_ms)
        else:
            speed = 1000.0 * attempt.prompt_tokens / max(1.0, first_ms)
            self._prompt_tokens_per_s.note(now_ms, speed)

    def failed(
        self,
        attempt: Attempt,
        now_ms: float,
        failure: Failure,
        *,
        retry_after_ms: float = 0.0,
    ) -> None:
        """Record that there was no answer, or no complete one.

        Args:
            attempt: the attempt; no effect if it has ended.
            now_ms: the time.
            failure: the kind of failure.
            retry_after_ms: if it was busy, the time that it asked for.
        """
        if not self._end(attempt):
            return
        match failure:
            case Failure.BUSY:
                # It is reachable. 'Later' may come from outside the seal, so its time
                # is limited: no one on the way can exclude a tier for long.
                hold_ms = min(max(retry_after_ms, MIN_HOLD_MS), MAX_HOLD_MS)
                self._held_until_ms = max(self._held_until_ms, now_ms + hold_ms)
                if attempt.probe:
                    self._breaker.succeeded(probe=True)
            case Failure.EVIDENCE:
                self._distrusted = True
                # The key that was ready belongs to the evidence that was refused.
                self._ready_until_ms = -inf
                self._breaker.failed(now_ms, probe=attempt.probe, dead=True)
            case Failure.UNREACHABLE | Failure.BROKEN:
                dead = failure is Failure.UNREACHABLE
                self._breaker.failed(now_ms, probe=attempt.probe, dead=dead)

    def dropped(self, attempt: Attempt, now_ms: float) -> None:
        """Record that the attempt was abandoned, which says nothing about the tier."""
        if self._end(attempt) and attempt.probe:
            self._breaker.abandoned(now_ms)

    def ready(
        self,
        until_ms: float = inf,
        *,
        period_ms: int = 0,
        first_bucket: int = 0,
        buckets: int = 0,
    ) -> None:
        """Record that it can begin at once: model loaded, evidence verified.

        After refused evidence this makes the tier available again, so it may only be
        called after other evidence was verified. Without such a call, attempts may
        bring new evidence, one at a time, as after any failure.

        Args:
            until_ms: expiry of its evidence or its key.
            period_ms: from one frame of an answer to the next; 0: no frames.
            first_bucket: frames of the shortest answer.
            buckets: number of lengths, each twice the one before.
        """
        if self._distrusted:
            self._distrusted = False
            self._breaker.succeeded(probe=True)
        self._ready_until_ms = until_ms
        self._frames = (period_ms, first_bucket, buckets)

    def learn_context(self, tokens: int) -> None:
        """Record the context that a tier named when it refused a long text."""
        known = self.context_tokens
        self.context_tokens = tokens if known is None else min(known, tokens)

    def note_device(
        self,
        *,
        on_battery: bool | None = None,
        metered: bool | None = None,
    ) -> None:
        """Record the conditions that the system reports; None: unknown.

        Args:
            on_battery: computing here drains the battery.
            metered: network traffic is charged by volume.
        """
        self._strained = bool(
            # Each resource affects one kind: local answers drain the battery, and
            # remote ones use the network.
            on_battery if self._kind is TierKind.IN_PROCESS else metered
        )

    def view(self, now_ms: float) -> TierView:
        """Return its current state."""
        priors = self._priors
        ttft_p50, ttft_p95 = self._ttft_ms.quantiles(
            now_ms, (0.5, 0.95), priors.ttft_ms
        )
        speed_p05, speed_p50 = self._tokens_per_s.quantiles(
            now_ms, (0.05, 0.5), priors.tokens_per_s
        )
        (reading,) = self._prompt_tokens_per_s.quantiles(
            now_ms, (0.5,), priors.prompt_tokens_per_s
        )
        state = self._breaker.state(now_ms)
        period_ms, first_bucket, buckets = self._frames
        return TierView(
            kind=self._kind,
            available=state is not BreakerState.OPEN and self._may_be_asked(now_ms),
            state=state,
            quality_permille=self.quality_permille,
            cost_microusd_per_mtok=priors.cost_microusd_per_mtok,
            setup_ms=0.0 if now_ms < self._ready_until_ms else priors.setup_ms,
            queue_ms=self._queue_ms(now_ms),
            ttft_p50_ms=ttft_p50,
            ttft_p95_ms=ttft_p95,
            prompt_tokens_per_s=reading,
            tokens_per_s=speed_p50,
            tokens_per_s_p05=speed_p05,
            rate_used=self._rate_used(now_ms),
            strained=self._strained,
            context_tokens=self.context_tokens,
            period_ms=period_ms,
            first_bucket=first_bucket,
            buckets=buckets,
        )

    def left_alone_ms(self, now_ms: float) -> float | None:
        """Return for how long it is not asked; None: it may be."""
        held_ms = self._held_until_ms - now_ms
        left_ms = max(held_ms, self._breaker.open_ms(now_ms) or 0.0)
        if self._begun_ms and self._rate_used(now_ms) >= 1:
            left_ms = max(left_ms, self._begun_ms[0] + RATE_WINDOW_MS - now_ms)
        return left_ms if left_ms > 0 else None

    def _may_be_asked(self, now_ms: float) -> bool:
        """Return whether it may be asked, apart from the breaker."""
        return now_ms >= self._held_until_ms and self._rate_used(now_ms) < 1

    def _rate_used(self, now_ms: float) -> float:
        begun = self._begun_ms
        if begun is None or not begun.maxlen:
            return 0.0
        while begun and begun[0] <= now_ms - RATE_WINDOW_MS:
            begun.popleft()
        return len(begun) / begun.maxlen

    def _queue_ms(self, now_ms: float) -> float:
        # With all places taken, this many must finish before a new one is served;
        # assume that they finish at even intervals.
        places = self._priors.parallel
        ahead = len(self._running) - places + 1
        if ahead <= 0:
            return 0.0
        typical = (
            self._priors.ttft_ms + 1000.0 * TYPICAL_TOKENS / self._priors.tokens_per_s
        )
        # The median: one answer of ten minutes must not make the queue look that long.
        (took_ms,) = self._took_ms.quantiles(now_ms, (0.5,), typical)
        return ahead * took_ms / places

    def _end(self, attempt: Attempt) -> bool:
        """End an attempt; return whether it had not ended yet."""
        self._running.discard(attempt)
        ended, attempt.over = attempt.over, True
        return not ended
