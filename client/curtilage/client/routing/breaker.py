"""Circuit breaker of a tier.

Pure: all times are arguments, milliseconds of a monotonic clock.
"""

from collections import deque
from enum import StrEnum, unique

from curtilage.policy.document.routing_settings import Breaker as BreakerSettings


@unique
class BreakerState(StrEnum):
    """State: ``CLOSED`` lets all questions pass, ``HALF_OPEN`` lets one pass."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Breaker:
    """Stops questions to a failing tier, and lets a probe pass after a while."""

    def __init__(self, settings: BreakerSettings) -> None:
        self._fails = settings.fails
        self._window_ms = 1000.0 * settings.window_s
        self._open_ms = 1000.0 * settings.open_s
        # No more are needed to decide, so the memory is bounded however often a tier
        # fails.
        self._failed_ms: deque[float] = deque(maxlen=settings.fails)
        self._shut_until_ms: float | None = None

    def state(self, now_ms: float) -> BreakerState:
        """Return the state; while a probe runs, it is ``OPEN`` for all others."""
        if self._shut_until_ms is None:
            return BreakerState.CLOSED
        if now_ms < self._shut_until_ms:
            return BreakerState.OPEN
        return BreakerState.HALF_OPEN

    def open_ms(self, now_ms: float) -> float | None:
        """Return for how long it remains open; None: it is not open."""
        if self._shut_until_ms is None or now_ms >= self._shut_until_ms:
            return None
        return self._shut_until_ms - now_ms

    def admit(self, now_ms: float) -> BreakerState:
        """Return the state for a new attempt; if ``HALF_OPEN``, it is the probe."""
        state = self.state(now_ms)
        if state is BreakerState.HALF_OPEN:
            # A probe that never reports blocks others no longer than a failed one.
            self._shut_until_ms = now_ms + self._open_ms
        return state

    def succeeded(self, *, probe: bool) -> None:
        """Record a success: a probe closes it, another one offsets one failure."""
        # Three failures among hundreds of answers do not mean that the tier is down.
        # An attempt begun before it opened does not show whether a new one can begin.
        if probe:
            self._shut_until_ms = None
        elif self._shut_until_ms is None and self._failed_ms:
            self._failed_ms.popleft()

    def failed(self, now_ms: float, *, probe: bool, dead: bool) -> None:
        """Record a failure; ``dead`` opens it at once."""
        if self._shut_until_ms is not None and not probe:
            # An attempt from before it opened: if these restarted the time, late
            # failures would keep delaying the probe.
            return
        self._failed_ms.append(now_ms)
        recent = [each for each in self._failed_ms if each > now_ms - self._window_ms]
        if probe or dead or len(recent) >= self._fails:
            self._shut_until_ms = now_ms + self._open_ms
            # Otherwise one failure after the probe's success would open it again.
            self._failed_ms.clear()

    def abandoned(self, now_ms: float) -> None:
        """Record that the probe ended without a result: another may try."""
        self._shut_until_ms = now_ms
