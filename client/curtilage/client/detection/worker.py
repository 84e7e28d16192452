"""Our end of the pipe: starts, queries and kills the detectors' process.

A regular expression that runs away holds the interpreter's lock, so nothing in its own
process can stop it. So the detectors have a process of their own, which can be killed.
It runs ``detectors``; nothing of that is imported here, in the process with a network.
"""

import queue
import subprocess  # noqa: TID251 - a door
import threading
import time
from base64 import b64encode
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Final, cast

from curtilage.client.detection.pipe import (
    BROKEN,
    LOAD_PROCESSOR_S,
    LOAD_WALL_S,
    LOADING,
    READY,
    SPARE,
)
from curtilage.client.errors import ConfigError, DetectorsError
from curtilage.client.telemetry import UNREPORTED, RestartCause
from curtilage.policy.document.detection_plan import DetectionPlan
from curtilage.sandbox.parent import command_of, environment, processor_s
from curtilage.sandbox.pipe import encode_frame, read_frame, write_frame
from curtilage.sandbox.wall import Wall

_ONE_THREAD: Final = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_MOST_THREADS: Final = 2  # threads with which the worker computes at once
_LEAST_LOOK_S: Final = 0.005  # between two readings of its clock
_MODULE: Final = "curtilage.client.detection.detectors"


class WorkerError(Exception):
    """The worker gave no usable answer.

    Attributes:
        cause: late, kept waiting, dead, or malformed output.
    """

    def __init__(self, cause: RestartCause) -> None:
        super().__init__(f"the detectors' process: {cause.value}")
        self.cause = cause


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeLimit:
    """How long a worker may take from the moment at which it could begin.

    Attributes:
        processor_s: of all its threads together, so that other programs on a busy
            machine do not count. If the system does not report it, wall time is used.
        wall_s: wall time, whatever the worker does meanwhile: also if it hangs.
    """

    processor_s: float
    wall_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Conversations that are examined together, and their time limit.

    Attributes:
        conversations: every text of each, in the order of the places.
        limit: after it, all of them are given up.
        application: whose texts they are. How long a task takes shows whether a text
            was seen before, so two applications share nothing.
    """

    conversations: tuple[tuple[str, ...], ...] = field(repr=False)
    limit: TimeLimit
    application: str = ""


def require_presidio() -> None:
    """Raise unless Presidio is installed; imports nothing.

    Raises:
        ConfigError: names the extra.
    """
    if find_spec("presidio_analyzer") is None or find_spec("spacy") is None:
        raise ConfigError(
            "the detectors are not installed: pip install 'curtilage[pii]'"
        )


def worker_command(*, spare: bool = False) -> tuple[str, ...]:
    """Return the command that starts a worker."""
    return command_of(_MODULE, *([SPARE] if spare else []))


def worker_environment() -> dict[str, str]:
    """Return a worker's whole environment, without proxies and tokens."""
    return environment() | dict.fromkeys(_ONE_THREAD, "1") | dict(UNREPORTED)


class DetectorProcess:
    """One worker, from the parent's side; for one caller at a time.

    Two threads move bytes, so that a worker that neither reads nor writes never blocks
    the caller for longer than the caller is willing to wait.
    """

    def __init__(
        self,
        command: Sequence[str] | None = None,
        *,
        plan: DetectionPlan | None = None,
        wall_required: bool = False,
    ) -> None:
        self._wall_required = wall_required
        self._wall: Wall | None = None
        self._broken: tuple[str, ...] = ()
        self._popen = subprocess.Popen(  # noqa: S603 - our own interpreter and module
            worker_command() if command is None else command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # a library's message may contain a text
            env=worker_environment(),
            bufsize=0,  # see ``write_frame``
        )
        self._outgoing: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._incoming: queue.SimpleQueue[object] = queue.SimpleQueue()
        self._sent = 0
        self._received = 0
        self._loads = TimeLimit(processor_s=LOAD_PROCESSOR_S, wall_s=LOAD_WALL_S)
        self._threads = [
            threading.Thread(target=run, daemon=True, name="detectors")
            for run in (self._write_all, self._read_all)
        ]
        for thread in self._threads:
            thread.start()
        if plan is not None:
            # As data, not as paths: the process uses the bytes that were read, checked
            # and verified, whatever is on the disk by then.
            tables = plan.tables
            self._outgoing.put(encode_frame([plan.to_fields(), len(tables)]))
            for table in tables.values():
                self._outgoing.put(encode_frame(b64encode(table).decode()))

    @property
    def pid(self) -> int:
        """The worker's process id."""
        return self._popen.pid

    @property
    def ended(self) -> bool:
        """Whether the worker has ended."""
        return self._popen.poll() is not None

    @property
    def wall(self) -> Wall | None:
        """The sandbox that the worker reports; None until it is warm."""
        return self._wall

    @property
    def broken(self) -> tuple[str, ...]:
        """Detectors that it could not build, known once it is warm."""
        return self._broken

    def wait_ready(self, limit: TimeLimit) -> bool:
        """Wait until the worker is warm; False if it will not be.

        Raises:
            DetectorsError: a sandbox is required, and its own is not sufficient.
        """
        try:
            answer = self._next(limit)
            fields = cast(
                "dict[str, object]", answer if isinstance(answer, dict) else {}
            )
            self._wall = Wall.from_fields(fields.get(READY))
            broken = fields.get(BROKEN)
            names = cast("list[object]", broken) if isinstance(broken, list) else []
            self._broken = tuple(map(str, names))
        except (WorkerError, ValueError):
            return False
        if self._wall_required and self._wall.gaps:
            raise DetectorsError(
                f"the policy requires a wall around the detectors (detectors: {{wall: "
                f"required}}), but here {without_a_wall(self._wall)}; run it on a "
                "Linux system that supports this, or set wall: wanted in the policy"
            )
        return True

    def send(self, tasks: Sequence[Task]) -> None:
        """Send a batch; then call ``receive`` once for each task.

        Answers to an earlier batch that were not received are never used for this one.
        """
        self._received = self._sent
        batch = [
            {
                "task": self._sent + number,
                "texts": task.conversations,
                "limit_ms": int(task.limit.processor_s * 1000),
                "wall_ms": int(task.limit.wall_s * 1000),
                "application": task.application,
            }
            for number, task in enumerate(tasks)
        ]
        self._sent += len(tasks)
        self._outgoing.put(encode_frame(batch))

    def receive(self, limit: TimeLimit) -> object:
        """Return the findings for the next task, of any shape; see ``parse_found``.

        Raises:
            WorkerError: late, kept waiting, dead, not in frames, or for another task,
                since after an interrupted call an answer could be matched with the
                wrong question.
        """
        answer = self._next(limit)
        fields = cast("dict[str, object]", answer) if isinstance(answer, dict) else {}
        if fields.keys() != {"task", "found"} or fields["task"] != self._received:
            raise WorkerError(RestartCause.GARBAGE)
        self._received += 1
        return fields["found"]

    def drain(self, limit: TimeLimit) -> bool:
        """Wait for answers that are no longer needed; return whether all came."""
        try:
            while self._received < self._sent:
                self.receive(limit)
        except WorkerError:
            return False
        return True

    def kill(self) -> None:
        """End the worker now, with everything it holds. May be called twice."""
        # The process first: then its pipes end, and with them the reading thread. The
        # writing thread waits for a frame, and is notified that none comes.
        self._popen.kill()
        self._popen.wait()
        self._outgoing.put(None)
        for thread in self._threads:
            thread.join()
        for stream in (self._popen.stdin, self._popen.stdout):
            # Buffered data cannot be delivered to a dead process.
            if stream is not None:
                with suppress(OSError):
                    stream.close()

    def _next(self, limit: TimeLimit) -> object:
        answer = self._awaited(limit)
        if isinstance(answer, RestartCause):
            self._incoming.put(answer)  # for every later caller it is dead too
            raise WorkerError(answer)
        return answer

    def _awaited(self, limit: TimeLimit) -> object:
        """Return the next answer; loading meanwhile has its own limit."""
        while True:
            answer, limit = self._taken(limit)
            if answer != {LOADING: True}:
                return answer
            # The sum is limited: a worker that reports loading again and again gains no
            # more time than one that loads everything.
            loaded, self._loads = self._taken(self._loads)
            if loaded != {LOADING: False}:
                return (
                    loaded if isinstance(loaded, RestartCause) else RestartCause.GARBAGE
                )

    def _taken(self, limit: TimeLimit) -> tuple[object, TimeLimit]:
        """Return the next frame, and the rest of the limit.

        The clocks are only read while there is no frame.
        """
        began, used_before = time.monotonic(), processor_s(self._popen.pid)
        pause_s = 0.0  # an answer that is already there is not late
        while True:
            with suppress(queue.Empty):
                answer = self._incoming.get(timeout=pause_s)
                waited, spent = self._spent(began, used_before)
                left = TimeLimit(
                    processor_s=limit.processor_s - spent, wall_s=limit.wall_s - waited
                )
                return answer, left
            waited, spent = self._spent(began, used_before)
            processor_left_s = limit.processor_s - spent
            if processor_left_s <= 0:
                raise WorkerError(RestartCause.TIMEOUT)
            if waited >= limit.wall_s:
                raise WorkerError(RestartCause.WAITED)
            # Several threads can use the processor time faster than the wall clock
            # runs.
            pause_s = min(
                max(processor_left_s / _MOST_THREADS, _LEAST_LOOK_S),
                limit.wall_s - waited,
            )

    def _spent(self, began: float, used_before: float | None) -> tuple[float, float]:
        """Return the elapsed time, and the processor time used meanwhile."""
        waited, used = time.monotonic() - began, processor_s(self._popen.pid)
        # Once the process is gone, its clock cannot be read; the other clock began at
        # another time, and must not be compared with it.
        if used is None or used_before is None:
            return waited, waited
        return waited, used - used_before

    def _read_all(self) -> None:
        stream = self._popen.stdout
        try:
            while stream is not None and (frame := read_frame(stream)) is not None:
                self._incoming.put(frame)
        except (ValueError, RecursionError):
            self._incoming.put(RestartCause.GARBAGE)
        except OSError:
            self._incoming.put(RestartCause.CRASH)
        else:
            self._incoming.put(RestartCause.CRASH)

    def _write_all(self) -> None:
        stream = self._popen.stdin
        while stream is not None and (frame := self._outgoing.get()) is not None:
            try:
                write_frame(stream, frame)
            except OSError:
                return  # it is dead; the reading thread reports it
            del frame  # this thread may wait for days for the next one


def without_a_wall(wall: Wall) -> str:
    """Return what only Python code prevents in the detectors' process, and why."""
    gaps = ", nor to ".join(wall.gaps)
    reasons = "; ".join(wall.missing)
    return f"the kernel does not forbid them to {gaps} ({reasons})"


def advice_on(wall: Wall | None, broken: Sequence[str]) -> str | None:
    """Return advice for the user about the worker and its sandbox, or None."""
    advice = None
    if broken:
        advice = (
            f"{', '.join(broken)}: could not be built in the detectors' process; "
            "provide what it needs, or remove it from the policy"
        )
    if wall is None or not wall.gaps:
        return advice
    no_wall = (
        f"no wall around the detectors: {without_a_wall(wall)}; a policy can require "
        "one (detectors: {wall: required})"
    )
    return no_wall if advice is None else f"{advice}\n{no_wall}"


def warmed(process: DetectorProcess, *, limit: TimeLimit) -> DetectorProcess:
    """Wait until a worker is warm; end one that will not be.

    Raises:
        DetectorsError: it ended, or did not become ready in time.
    """
    try:
        ready = process.wait_ready(limit)
    except DetectorsError:
        process.kill()
        raise
    if not ready:
        ended = process.ended
        process.kill()
        how = "their process ended"
        if not ended:
            how = (
                f"not ready after {limit.processor_s:g} s of processor time or "
                f"{limit.wall_s:g} s of wall time"
            )
        raise DetectorsError(f"the detectors did not start: {how}")
    return process
