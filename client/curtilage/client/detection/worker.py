"""The detectors in a process of their own, which can be killed.

A regular expression that runs away holds the interpreter's lock, so nothing
inside its process can stop it. The worker is told what to run by its first
frame, then answers one batch after the other over its standard streams, as
length-prefixed JSON; its errors go nowhere, since a library's message may hold
a text. Before it loads a library it walls itself in (``curtilage.sandbox``), so
that native code, too, reaches no network, writes no file and starts no program; its
first answer says which layers of the wall stand. It ends when its parent does, and
ends itself when a text takes far too long.
"""

import json
import os
import queue
import signal
import struct
import subprocess  # noqa: TID251 - a door
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Final, cast

from curtilage.client.detection.detectors.lockdown import refuse_network_and_files
from curtilage.client.detection.spans import to_fields
from curtilage.client.errors import DetectorsError
from curtilage.client.telemetry import UNREPORTED, RestartCause
from curtilage.policy.document.detection_plan import DetectionPlan
from curtilage.sandbox.wall import Wall, compute_only

if TYPE_CHECKING:
    from curtilage.client.detection.detectors.scanner import Scanner

_HEADER: Final = struct.Struct(">I")
MAX_FRAME_BYTES: Final = 64 * 1024 * 1024  # a batch of the longest texts, escaped
READY: Final = "ready"
GRACE_S: Final = 2.0  # a late answer is awaited so long before the worker is killed
_KEPT_ENVIRONMENT: Final = ("PATH", "LD_LIBRARY_PATH", "SYSTEMROOT")
_ONE_THREAD: Final = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
FORGETTING: Final = {
    "PYTHONMALLOC": "malloc",
    "GLIBC_TUNABLES": "glibc.malloc.perturb=165:glibc.malloc.tcache_count=0",
}
"""Has glibc overwrite what is freed, in Python and in C, at once."""
_MODULE: Final = "curtilage.client.detection.worker"
SPARE: Final = "--spare"
_GIVE_WAY: Final = 19  # the lowest priority that there is


class WorkerError(Exception):
    """The worker gave no usable answer.

    Attributes:
        cause: late, dead, or talking nonsense.
    """

    def __init__(self, cause: RestartCause) -> None:
        super().__init__(f"the detectors' process: {cause.value}")
        self.cause = cause


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """The texts of one conversation, and how long they may take.

    Attributes:
        texts: every text, in the order in which places are counted.
        limit_s: from the moment at which the worker could begin.
    """

    texts: tuple[str, ...] = field(repr=False)
    limit_s: float


# --- frames, on both sides ----------------------------------------------------


def encode_frame(value: object) -> bytes:
    """Return a value as JSON behind its length, 4 bytes, big-endian."""
    body = json.dumps(value, separators=(",", ":")).encode("ascii")
    return _HEADER.pack(len(body)) + body


def read_frame(stream: IO[bytes]) -> object | None:
    """Read one value; None at the end of the stream.

    Raises:
        ValueError: cut, too long, or no JSON.
    """
    header = _read(stream, _HEADER.size)
    if not header:
        return None
    if len(header) != _HEADER.size:
        raise ValueError("a frame's length is cut")
    (length,) = _HEADER.unpack(header)
    if length > MAX_FRAME_BYTES:
        raise ValueError("a frame is too long")
    body = _read(stream, length)
    if len(body) != length:
        raise ValueError("a frame is cut")
    value: object = json.loads(body)
    if value is None:
        raise ValueError("a frame holds nothing")
    return value


def write_frame(stream: IO[bytes], frame: bytes) -> None:
    """Write all of a frame to a pipe that has no buffer of its own.

    A buffer would keep what went through it last for as long as nothing else
    goes through, and that is a text.
    """
    rest = memoryview(frame)
    while rest:
        rest = rest[stream.write(rest) :]


def _read(stream: IO[bytes], size: int) -> bytearray:
    """Read so many bytes, or those before the end."""
    data = bytearray()
    while len(data) < size and (part := stream.read(size - len(data))):
        data += part
    return data


# --- the worker's side --------------------------------------------------------


def main(arguments: Sequence[str] = ()) -> int:
    """Read the plan, then answer the parent until it closes or dies."""
    requests, replies = _take_streams()
    # First of all: a library that is loaded may start threads, and a thread that
    # runs already stands outside of what only the calling thread is put behind.
    wall = compute_only()
    refuse_network_and_files()
    _refuse_core_dumps()
    plan = read_plan(requests)
    serve(requests, replies, _built(plan, spare=SPARE in arguments), wall)
    return 0


def read_plan(requests: IO[bytes]) -> DetectionPlan:
    """Return the first frame, which says what to run.

    Raises:
        ValueError: it is no plan.
    """
    return DetectionPlan.from_fields(read_frame(requests))


def _built(plan: DetectionPlan, *, spare: bool) -> "Scanner":
    """Build the detectors; a spare's in a thread that gives way to others.

    On Linux a thread has a priority of its own, and this one ends with it: a
    process could lower its own, but not raise it again.
    """
    from curtilage.client.detection.detectors.presidio.engine import scanner_of  # noqa: PLC0415 - seconds

    if not spare or sys.platform != "linux":
        return scanner_of(plan)
    made: list[Scanner] = []

    def build() -> None:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _GIVE_WAY)
        made.append(scanner_of(plan))

    thread = threading.Thread(target=build)
    thread.start()
    thread.join()
    return made[0]


def serve(
    requests: IO[bytes], replies: IO[bytes], scanner: "Scanner", wall: Wall
) -> None:
    """Say behind which wall one is ready, then answer every batch, task by task."""
    _send(replies, {READY: wall.to_fields()})
    while _serve_batch(requests, replies, scanner):
        pass


def _serve_batch(requests: IO[bytes], replies: IO[bytes], scanner: "Scanner") -> bool:
    """Answer one batch; False at the end.

    A function, so that nobody's texts are in a frame that waits for the next.
    """
    batch = read_frame(requests)
    if batch is None:
        return False
    for number, texts, limit_ms in _parse_batch(batch):
        _set_alarm(limit_ms / 1000 + 2 * GRACE_S)
        found = scanner.scan(texts)
        _set_alarm(0)
        fields = [
            to_fields(index, span)
            for index, spans in enumerate(found)
            for span in spans
        ]
        _send(replies, {"task": number, "found": fields})
    return True


def _parse_batch(batch: object) -> list[tuple[int, list[str], int]]:
    if not isinstance(batch, list):
        raise ValueError("a batch is a list")  # noqa: TRY004 - of bytes, not of types
    return [_parse_task(task) for task in cast("list[object]", batch)]


def _parse_task(task: object) -> tuple[int, list[str], int]:
    fields = cast("dict[str, object]", task) if isinstance(task, dict) else {}
    number, texts, limit_ms = (fields.get(key) for key in ("task", "texts", "limit_ms"))
    if not (
        isinstance(number, int)
        and isinstance(texts, list)
        and isinstance(limit_ms, int)
    ):
        raise ValueError("a task has a number, texts and a limit")  # noqa: TRY004 - see above
    return number, [str(text) for text in cast("list[object]", texts)], limit_ms


def _send(stream: IO[bytes], value: object) -> None:
    write_frame(stream, encode_frame(value))


def _take_streams() -> tuple[IO[bytes], IO[bytes]]:
    """Keep the two pipes; what anybody prints from now on goes nowhere."""
    requests = os.fdopen(os.dup(0), "rb", buffering=0)
    replies = os.fdopen(os.dup(1), "wb", buffering=0)
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nothing, standard)
    os.close(nothing)
    return requests, replies


def _refuse_core_dumps() -> None:
    """Keep texts out of a core file, where the system can be told so."""
    if sys.platform != "win32":
        import resource  # noqa: PLC0415 - not on every system

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _set_alarm(seconds: float) -> None:
    """Let the kernel end this process then; no Python code is needed for it.

    The parent kills a worker that is late, but a parent can die first.
    """
    if sys.platform != "win32":
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, seconds)


# --- the parent's side --------------------------------------------------------


def worker_command(*, spare: bool = False) -> tuple[str, ...]:
    """Return how a worker is started: no bytecode, no current folder."""
    return (sys.executable, "-B", "-P", "-m", _MODULE, *([SPARE] if spare else []))


def worker_environment() -> dict[str, str]:
    """Return a worker's whole environment; no proxy and no token is in it."""
    kept = {name: os.environ[name] for name in _KEPT_ENVIRONMENT if name in os.environ}
    paths = os.pathsep.join(path for path in sys.path if path)
    made = FORGETTING | dict.fromkeys(_ONE_THREAD, "1") | {"PYTHONPATH": paths}
    return kept | made | dict(UNREPORTED)


class DetectorProcess:
    """One worker, from the parent's side; for one caller at a time.

    Two threads move bytes, so that a worker that neither reads nor writes
    never blocks the caller for longer than it is willing to wait.
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
        self._popen = subprocess.Popen(  # noqa: S603 - our own interpreter and module
            worker_command() if command is None else command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=worker_environment(),
            bufsize=0,  # see ``write_frame``
        )
        self._outgoing: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._incoming: queue.SimpleQueue[object] = queue.SimpleQueue()
        self._sent = 0
        self._received = 0
        self._threads = [
            threading.Thread(target=run, daemon=True, name="detectors")
            for run in (self._write_all, self._read_all)
        ]
        for thread in self._threads:
            thread.start()
        if plan is not None:
            self._outgoing.put(encode_frame(plan.to_fields()))

    @property
    def pid(self) -> int:
        """The worker's process id."""
        return self._popen.pid

    @property
    def ended(self) -> bool:
        """Whether the worker is gone."""
        return self._popen.poll() is not None

    @property
    def wall(self) -> Wall | None:
        """The wall behind which it says it stands; None until it is warm."""
        return self._wall

    def wait_ready(self, timeout_s: float) -> bool:
        """Wait until the worker is warm; False if it will not be.

        Raises:
            DetectorsError: it stands behind no wall that holds, and must.
        """
        try:
            answer = self._next(timeout_s)
            fields = cast(
                "dict[str, object]", answer if isinstance(answer, dict) else {}
            )
            self._wall = Wall.from_fields(fields.get(READY))
        except (WorkerError, ValueError):
            return False
        if self._wall_required and self._wall.gaps:
            raise DetectorsError(
                f"the policy demands a wall round the detectors (detectors: {{wall: "
                f"required}}), and here {without_a_wall(self._wall)}; run it where "
                "Linux lets a process give these up, or let the policy say wall: wanted"
            )
        return True

    def send(self, tasks: Sequence[Task]) -> None:
        """Hand over a batch; then call ``receive`` once for each task.

        Answers to an earlier batch that nobody took are never taken for this.
        """
        self._received = self._sent
        batch = [
            {
                "task": self._sent + number,
                "texts": task.texts,
                "limit_ms": int(task.limit_s * 1000),
            }
            for number, task in enumerate(tasks)
        ]
        self._sent += len(tasks)
        self._outgoing.put(encode_frame(batch))

    def receive(self, timeout_s: float) -> object:
        """Return what was found for the next task, of any shape.

        Raises:
            WorkerError: late, dead, not in frames, or about another task: after
                an interrupted call an answer would meet the wrong question.
        """
        answer = self._next(timeout_s)
        fields = cast("dict[str, object]", answer) if isinstance(answer, dict) else {}
        if fields.keys() != {"task", "found"} or fields["task"] != self._received:
            raise WorkerError(RestartCause.GARBAGE)
        self._received += 1
        return fields["found"]

    def drain(self, timeout_s: float) -> bool:
        """Wait for answers that nobody wants any more; tell whether all came."""
        try:
            while self._received < self._sent:
                self.receive(timeout_s)
        except WorkerError:
            return False
        return True

    def kill(self) -> None:
        """End the worker now; nothing it held is left. May be called twice."""
        self._popen.kill()
        self._popen.wait()
        self._outgoing.put(None)
        for thread in self._threads:
            thread.join()
        for stream in (self._popen.stdin, self._popen.stdout):
            _close(stream)

    def _next(self, timeout_s: float) -> object:
        try:
            answer = self._incoming.get(timeout=max(timeout_s, 0))
        except queue.Empty:
            raise WorkerError(RestartCause.TIMEOUT) from None
        if isinstance(answer, RestartCause):
            self._incoming.put(answer)  # it is dead for every later caller too
            raise WorkerError(answer)
        return answer

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
                return  # it is dead; the reader says so
            del frame  # this thread waits for the next, for days maybe


def without_a_wall(wall: Wall) -> str:
    """Say what nothing but Python code keeps the detectors' process from."""
    gaps = ", nor to ".join(wall.gaps)
    reasons = "; ".join(wall.missing)
    return f"the kernel does not forbid them to {gaps} ({reasons})"


def _close(stream: IO[bytes] | None) -> None:
    if stream is not None:
        try:
            stream.close()
        except OSError:
            return  # what was buffered cannot be delivered to the dead


def start_worker(
    command: Sequence[str] | None = None,
    *,
    plan: DetectionPlan | None = None,
    timeout_s: float,
) -> DetectorProcess:
    """Start a worker and wait until it is warm.

    Args:
        command: another one than ours; for tests.
        plan: what it shall run, its first frame; ours needs one.
        timeout_s: how long to wait.

    Raises:
        DetectorsError: it ended, or did not become ready in time.
    """
    return warmed(DetectorProcess(command, plan=plan), timeout_s=timeout_s)


def warmed(process: DetectorProcess, *, timeout_s: float) -> DetectorProcess:
    """Wait until a worker is warm; one that will not be is ended.

    Raises:
        DetectorsError: it ended, or did not become ready in time.
    """
    try:
        ready = process.wait_ready(timeout_s)
    except DetectorsError:
        process.kill()
        raise
    if not ready:
        ended = process.ended
        process.kill()
        how = "their process ended" if ended else f"not ready after {timeout_s:g} s"
        raise DetectorsError(f"the detectors did not start: {how}")
    return process


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
