"""Shows the progress of a set-up: its steps, and what share of each is done."""

from __future__ import annotations

import contextlib
import re
import sys
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

HEARTBEAT_S: Final = 10.0


@dataclass(frozen=True)
class Step:
    """One thing to set up.

    Attributes:
        name: for display.
        key: digest of everything that the step depends on.
        usual_s: how long it takes on two idle cores and a fast connection.
        run: does it; raises StepError.
        share: how much of it is done, 0 to 1, as far as it is visible from outside.
    """

    name: str
    key: str
    usual_s: int
    run: Callable[[], None]
    share: Callable[[], float] = lambda: 0.0


class Progress:
    """Shows the progress of the set-up: percent, seconds, and the usual duration.

    On a terminal one line is updated each second; otherwise a new line is written
    every ten.
    """

    def __init__(
        self,
        one: list[Step],
        other: list[Step],
        last: list[Step],
        *,
        extra_s: int,
    ) -> None:
        # The first two run side by side.
        one_s, other_s, last_s = (
            sum(step.usual_s for step in steps) for steps in (one, other, last)
        )
        self._usual_s = extra_s + max(one_s, other_s) + last_s
        self._work_s = (extra_s + one_s + other_s + last_s) or 1
        self._running: dict[str, Step] = {}
        self._done_s = 0
        self._started = time.monotonic()
        self._reached = 0
        self._line = threading.Lock()

    @contextlib.contextmanager
    def shown(self) -> Generator[None]:
        """Show progress until the end."""
        over = threading.Event()
        every_s = 1.0 if sys.stderr.isatty() else HEARTBEAT_S

        def show() -> None:
            while not over.wait(every_s):
                self._show()

        say(f"set-up in .venv: usually {self._usual_s} s on two quiet cores")
        updater = threading.Thread(target=show, daemon=True)
        updater.start()
        try:
            yield
        finally:
            over.set()
            updater.join()
            self._clear()
        say(f"set-up: done in {time.monotonic() - self._started:.0f} s")

    @contextlib.contextmanager
    def timed(self, step: Step) -> Generator[None]:
        """Count a step as running, then as done, and say how long it took."""
        started = time.monotonic()
        self._running[step.name] = step
        try:
            yield
        finally:
            del self._running[step.name]
        with self._line:
            self._done_s += step.usual_s
            self._clear()
            say(f"  {step.name}: done in {time.monotonic() - started:.0f} s")

    def _show(self) -> None:
        running = list(self._running.values())
        got = self._done_s + sum(step.usual_s * step.share() for step in running)
        # Never backwards: pip may look at a distribution twice.
        self._reached = max(self._reached, min(99, int(100 * got / self._work_s)))
        spent = time.monotonic() - self._started
        text = (
            f"set-up: {self._reached} %, {spent:.0f} s "
            f"(usually {self._usual_s} s on two quiet cores): "
            + (", ".join(step.name for step in running) or "virtual environment")
        )
        with self._line:
            self._clear()
            sys.stderr.write(text if sys.stderr.isatty() else f"{text}\n")
            sys.stderr.flush()

    @staticmethod
    def _clear() -> None:
        if sys.stderr.isatty():
            sys.stderr.write("\r\x1b[K")


def collected_share(said: str, installed: int, wanted: int) -> float:
    """Return half for what pip has looked at, half for what is installed."""
    seen = len(re.findall(r"^(?:Collecting|Requirement already)", said, re.MULTILINE))
    return (min(seen, wanted) + min(installed, wanted)) / (2 * wanted)


def compiled_share(said: str) -> float:
    """Return the share of files that ninja says it has compiled.

    Before it begins, some of the time has gone into fetching and unpacking.
    """
    counts = re.findall(r"^ *\[(\d+)/(\d+)\]", said, re.MULTILINE)
    return 0.05 + 0.9 * int(counts[-1][0]) / int(counts[-1][1]) if counts else 0.05


def say(text: str) -> None:
    """Write a line to standard error."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
