"""Questions for a long time, while each part is killed in turn."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from tools.compose_test.errors import FailedError
from tools.compose_test.layouts import Endpoint
from tools.compose_test.stack import Stack

QUESTION: Final = "Which is longer, a mile or a kilometre? Answer in one sentence."
BETWEEN_KILLS_S: Final = 45.0
ENDING_S: Final = 300.0
MEBIBYTE: Final = 1024 * 1024
GROWTH: Final = 1.25
SLACK_BYTES: Final = 32 * MEBIBYTE
OK: Final = 200
_PAUSE_S: Final = 0.5


class Askers:
    """Threads that ask one question after the other until they are stopped."""

    def __init__(self, endpoints: Sequence[Endpoint]) -> None:
        self.outcomes: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._ask, args=(each,), daemon=True)
            for each in endpoints
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Wait for the last answers.

        Raises:
            FailedError: one never came.
        """
        self._stop.set()
        until = time.monotonic() + ENDING_S
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
            if thread.is_alive():
                raise FailedError("soak: a question was never answered")

    def _ask(self, endpoint: Endpoint) -> None:
        while not self._stop.is_set():
            try:
                answered = endpoint.ask(QUESTION)
            # The client was killed, or is not back yet: its callers see that.
            except ConnectionError:
                outcome = "connection error"
                time.sleep(_PAUSE_S)
            else:
                outcome = outcome_of(answered.status, answered.route, answered.code)
            with self._lock:
                self.outcomes[outcome] += 1


def outcome_of(status: int, route: str, code: str) -> str:
    """Name what came of a question: its route, its error, or nothing clear."""
    if status == OK:
        return f"route {route}" if route else "unclear"
    return f"error {code}" if code else "unclear"


def soak(
    endpoints: Sequence[Endpoint],
    parts: Sequence[tuple[Stack, str]],
    *,
    minutes: float,
    say: Callable[[str], None],
) -> None:
    """Ask for so long; kill one part after the other.

    Raises:
        FailedError: a question got no clear answer, a part did not come back, or the
            memory of one grew.
    """
    askers = Askers(endpoints)
    until = time.monotonic() + 60 * minutes
    memory: dict[str, list[int]] = {service: [] for _, service in parts}
    kills = 0
    while time.monotonic() < until:
        time.sleep(BETWEEN_KILLS_S)
        # Before the next kill, when each has answered for a while.
        for stack, service in parts:
            memory[service].append(resident_bytes(stack, service))
        stack, service = parts[kills % len(parts)]
        stack.crash(service)
        kills += 1
        say(f"soak: {kills} kills, last {service}; {dict(askers.outcomes)}")
    askers.stop()
    for service, sizes in memory.items():
        shown = ", ".join(f"{size / MEBIBYTE:.0f}" for size in sizes)
        say(f"soak: {service}: MiB resident: {shown}")
        if has_grown(sizes):
            raise FailedError(f"soak: the memory of {service} grew")
    if askers.outcomes["unclear"]:
        raise FailedError(f"soak: {askers.outcomes['unclear']} unclear answers")
    say(f"soak: {minutes:g} minutes, {kills} kills: {dict(askers.outcomes)}")


def has_grown(sizes: Sequence[int]) -> bool:
    """Return whether the last third needs clearly more than the first did."""
    third = max(1, len(sizes) // 3)
    return max(sizes[-third:]) > GROWTH * max(sizes[:third]) + SLACK_BYTES


def resident_bytes(stack: Stack, service: str) -> int:
    """Return the resident memory of all processes of a service."""
    total = 0
    for number in stack.processes(service):
        status = Path(f"/proc/{number}/status").read_text()
        rows = [line.split() for line in status.splitlines()]
        total += sum(int(row[1]) * 1024 for row in rows if row[0] == "VmRSS:")
    return total
