"""Questions for a long time: each part that they pass is killed, then none is.

The evidence process is left alone: the emulator comes back with a key that no client
knows. What memory a part needs can be judged only while it lives, so for the last third
nothing is killed.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Final

from tools.compose_test.errors import FailedError
from tools.compose_test.layouts import Endpoint
from tools.compose_test.stack import Stack

QUESTION: Final = "Which is longer, a mile or a kilometre? Answer in one sentence."
BETWEEN_KILLS_S: Final = 45.0
BETWEEN_SAMPLES_S: Final = 15.0
KILLED_SHARE: Final = 2 / 3
BACK_S: Final = 2.0
"""Until callers have noticed that a part is back."""
ENDING_S: Final = 300.0
MEBIBYTE: Final = 1024 * 1024
GROWTH: Final = 1.02
SLACK_BYTES: Final = 8 * MEBIBYTE
"""What the detectors remember of texts; a pool of connections."""
OK: Final = 200
_PAUSE_S: Final = 0.5


class Askers:
    """Threads that ask one question after the other until they are stopped."""

    def __init__(self, endpoints: Sequence[Endpoint]) -> None:
        self.outcomes: Counter[str] = Counter()
        self.without_client = threading.Event()
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
            except ConnectionError:
                outcome = outcome_of_none(client_lives=not self.without_client.is_set())
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


def outcome_of_none(*, client_lives: bool) -> str:
    """Name a broken connection, which callers may see only if the client is killed."""
    return "unclear" if client_lives else "connection error"


def soak(
    endpoints: Sequence[Endpoint],
    parts: Sequence[tuple[Stack, str]],
    *,
    client: str,
    minutes: float,
    say: Callable[[str], None],
) -> None:
    """Ask for so long; kill one part after the other, then none.

    Args:
        endpoints: of the client; each is asked one question after the other.
        parts: that are killed.
        client: the service whose callers see that it is killed.
        minutes: in all.
        say: receives one line for each step.

    Raises:
        FailedError: a question got no clear answer, a part did not come back, or the
            memory of one grew while nothing was killed.
    """
    askers = Askers(endpoints)
    began = time.monotonic()
    kills = 0
    while time.monotonic() < began + 60 * minutes * KILLED_SHARE:
        time.sleep(BETWEEN_KILLS_S)
        stack, service = parts[kills % len(parts)]
        if service == client:
            askers.without_client.set()
        stack.crash(service)
        time.sleep(BACK_S)
        askers.without_client.clear()
        kills += 1
        say(f"soak: {kills} kills, last {service}; {dict(askers.outcomes)}")
    memory: dict[str, list[int]] = {service: [] for _, service in parts}
    while time.monotonic() < began + 60 * minutes:
        time.sleep(BETWEEN_SAMPLES_S)
        for stack, service in parts:
            memory[service].append(resident_bytes(stack, service))
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
    """Return whether the last third needs clearly more than the second did.

    In the first it fills caches and pools.
    """
    third = max(1, len(sizes) // 3)
    return (
        median(sizes[-third:])
        > GROWTH * median(sizes[-2 * third : -third] or sizes) + SLACK_BYTES
    )


def resident_bytes(stack: Stack, service: str) -> int:
    """Return the resident memory of all processes of a service."""
    total = 0
    for number in stack.processes(service):
        status = Path(f"/proc/{number}/status").read_text()
        rows = [line.split() for line in status.splitlines()]
        total += sum(int(row[1]) * 1024 for row in rows if row[0] == "VmRSS:")
    return total
