"""When to leave a tier alone.

Pure: all times are arguments, milliseconds of a clock that does not jump.
"""

from collections import deque
from enum import StrEnum, unique

from curtilage.policy.document.routing_plan import Breaker as BreakerSettings


@unique
class BreakerState(StrEnum):
    """Whether questions pass: ``CLOSED`` they do, ``HALF_OPEN`` one may try."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Breaker:
    """Keeps questions from a tier that fails, and lets one try again after a while."""

    def __init__(self, settings: BreakerSettings) -> None:
        self._fails = settings.fails
        self._window_ms = 1000.0 * settings.window_s
        self._open_ms = 1000.0 * settings.open_s
        self._failed_ms: deque[float] = deque(maxlen=settings.fails)
        self._shut_until_ms: float | None = None

    def state(self, now_ms: float) -> BreakerState:
        """Return the state; while one tries, it is ``OPEN`` for all others."""
        if self._shut_until_ms is None:
            return BreakerState.CLOSED
        if now_ms < self._shut_until_ms:
            return BreakerState.OPEN
        return BreakerState.HALF_OPEN

    def open_ms(self, now_ms: float) -> float | None:
        """Return how long it is open yet; None: it is not."""
        if self._shut_until_ms is None or now_ms >= self._shut_until_ms:
            return None
        return self._shut_until_ms - now_ms

    def admit(self, now_ms: float) -> BreakerState:
        """Return the state for one that would pass; the probe, if ``HALF_OPEN``."""
        state = self.state(now_ms)
        if state is BreakerState.HALF_OPEN:
            # One that never reports keeps others out no longer than one that failed.
            self._shut_until_ms = now_ms + self._open_ms
        return state

    def succeeded(self, *, probe: bool) -> None:
        """Note a success: the probe's closes, another makes up for one failure."""
        # Three failures among hundreds of answers are no dead tier. What began before
        # it opened says nothing about whether one could begin now.
        if probe:
            self._shut_until_ms = None
        elif self._shut_until_ms is None and self._failed_ms:
            self._failed_ms.popleft()

    def failed(self, now_ms: float, *, probe: bool, dead: bool) -> None:
        """Note a failure; ``dead`` counts as all that it takes to open."""
        if self._shut_until_ms is not None and not probe:
            # It began before: were the time begun anew, those that fail late would keep
            # the probe away.
            return
        self._failed_ms.append(now_ms)
        recent = [each for each in self._failed_ms if each > now_ms - self._window_ms]
        if probe or dead or len(recent) >= self._fails:
            self._shut_until_ms = now_ms + self._open_ms
            self._failed_ms.clear()

    def abandoned(self, now_ms: float) -> None:
        """Note that the probe ended without telling anything: another may try."""
        self._shut_until_ms = now_ms
