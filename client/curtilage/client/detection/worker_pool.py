"""A pool of one worker that answers, and a spare that can replace it at once.

Starting a worker takes seconds, during which every query is kept local; a warm spare
avoids this gap. It is started after the first query, in the background, and costs the
memory of a second process. The pool knows nothing about texts.
"""

import threading
from collections import deque
from collections.abc import Callable
from typing import Final

from curtilage.client import telemetry
from curtilage.client.detection.pipe import GRACE_S
from curtilage.client.detection.worker import DetectorProcess, TimeLimit, warmed
from curtilage.client.errors import DetectorsError
from curtilage.client.health import Detectors
from curtilage.client.telemetry import RestartCause

_JOIN_S: Final = 60.0
_GRACE: Final = TimeLimit(processor_s=GRACE_S, wall_s=5 * GRACE_S)


class Workers:
    """One worker in use and, if wanted, a warm spare; thread-safe.

    Attributes:
        restarts: how many workers failed and were replaced.
    """

    def __init__(
        self,
        launch: Callable[[bool], DetectorProcess],
        *,
        limit: TimeLimit,
        spare: bool,
    ) -> None:
        """Take the function that launches workers; launch none.

        Args:
            launch: returns a worker that is not warm yet; True requests low priority
                until it is.
            limit: the time within which a worker must be warm.
            spare: keep a second one warm, once ``keep_spare`` was called.
        """
        self._launch = launch
        self._limit = limit
        self._starting: DetectorProcess | None = None
        self._wanted = spare
        self._keeping = False
        self._changed = threading.Condition()
        self._current: DetectorProcess | None = None
        self._spare: DetectorProcess | None = None
        self.restarts = 0
        self._failed: deque[tuple[DetectorProcess, RestartCause]] = deque()
        self._thread: threading.Thread | None = None
        self._closed = False

    def start(self) -> None:
        """Start the first worker and wait until it is warm.

        Raises:
            DetectorsError: it does not start.
        """
        self._install(self._start(False))

    @property
    def current(self) -> DetectorProcess | None:
        """The worker to use; one that has died meanwhile is replaced first."""
        current = self._current
        if current is not None and current.ended:
            self.failed(current, RestartCause.CRASH)
        return self._current

    @property
    def condition(self) -> Detectors:
        """The state of the workers; a worker that has died counts immediately."""
        process = self.current
        return Detectors(
            ready=process is not None,
            broken=process is not None and bool(process.broken),
            restarts=self.restarts,
        )

    @property
    def spare(self) -> DetectorProcess | None:
        """The spare, or None while there is none."""
        return self._spare

    def keep_spare(self) -> None:
        """Begin to keep a spare warm, if one is wanted; returns at once."""
        if self._wanted and not self._keeping:
            self._keeping = True
            self.refill()

    def failed(self, process: DetectorProcess, cause: RestartCause) -> None:
        """Replace a worker by the spare, and start another in the background."""
        with self._changed:
            # By identity: it may already be replaced, and its successor is healthy.
            if process is self._current:
                self._failed.append((process, cause))
                self._current, self._spare = self._spare, None
            if self._current is not None and self._current.ended:
                self._failed.append((self._current, RestartCause.CRASH))
                self._current = None
        self.refill()

    def refill(self) -> None:
        """Start missing workers in the background, unless that is under way."""
        with self._changed:
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._work, daemon=True)
                self._thread.start()

    def wait(self, timeout_s: float) -> bool:
        """Wait for a worker that is being started; return whether there is one."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._current is not None or self._thread is None, timeout_s
            )
            return self._current is not None

    def close(self) -> None:
        """Stop all workers; none is started any more. May be called twice."""
        with self._changed:
            self._closed = True
            thread = self._thread
            held = (self._current, self._spare, self._starting)
            ended = [*held, *(each for each, _ in self._failed)]
            self._current = self._spare = None
            self._failed.clear()
        for process in ended:
            if process is not None:
                process.kill()
        if thread is not None:
            thread.join(_JOIN_S)

    def _start(self, in_background: bool) -> DetectorProcess:
        """Launch a worker and wait until it is warm; ``close`` may end it."""
        process = self._launch(in_background)
        # Registered for ``close``, or closed here: otherwise a worker that starts
        # during ``close`` would keep running.
        with self._changed:
            self._starting = process
            if self._closed:
                process.kill()
        try:
            return warmed(process, limit=self._limit)
        finally:
            self._starting = None

    def _work(self) -> None:
        """Handle failed workers, then start missing ones."""
        while self._next_step():
            pass

    def _next_step(self) -> bool:
        """Do one step; if none is left, give up the thread and return False."""
        with self._changed:
            failed = self._failed.popleft() if self._failed else None
            if failed is None and not self._lacks():
                return self._ended()
        if failed is not None:
            self._retire(*failed)
            return True
        try:
            self._install(self._start(self._current is not None))
        except (DetectorsError, OSError):
            with self._changed:
                return self._ended()  # the next query, which is kept local, tries again
        return True

    def _lacks(self) -> bool:
        if self._closed:
            return False
        return self._current is None or (self._keeping and self._spare is None)

    def _ended(self) -> bool:
        self._thread = None
        self._changed.notify_all()
        return False

    def _retire(self, process: DetectorProcess, cause: RestartCause) -> None:
        # A worker that is merely slow is kept: a new one costs seconds. One that was
        # still waiting at the end may wait forever.
        if cause is RestartCause.TIMEOUT and process.drain(_GRACE):
            self._install(process)
            return
        process.kill()
        if not self._closed:
            self.restarts += 1
            telemetry.detector_restart(cause)

    def _install(self, process: DetectorProcess) -> None:
        """Put a ready worker in its place; end it if there is none."""
        with self._changed:
            if not self._closed and self._current is None:
                self._current = process
            elif not self._closed and self._keeping and self._spare is None:
                self._spare = process
            else:
                process.kill()
            self._changed.notify_all()
