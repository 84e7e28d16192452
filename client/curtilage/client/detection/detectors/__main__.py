"""The detectors' process: it reads its plan, confines itself, and answers batches.

The first frame is the plan, which contains no text; then the process answers one batch
after another over its standard streams. Its errors are discarded, since a library's
message may contain a text. Before it loads a library it confines itself
(``curtilage.sandbox``), so that native code too reaches no network, looks up no other
path, writes no file and starts no program. Its first answer lists the layers of the
sandbox in force. It ends with its parent, and on its own if a text takes far too long.
"""

import os
import select
import signal
import sys
import threading
from base64 import b64decode
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, cast

from curtilage.client.detection.detectors import loading
from curtilage.client.detection.pipe import (
    BROKEN,
    GRACE_S,
    LOAD_PROCESSOR_S,
    LOAD_WALL_S,
    LOADING,
    READY,
    SPARE,
)
from curtilage.client.detection.spans import to_fields
from curtilage.policy.document.detection_plan import DetectionPlan
from curtilage.sandbox.child import (
    forbid_core_dumps,
    refuse_network_and_files,
    take_streams,
)
from curtilage.sandbox.memory import keep_from_disk
from curtilage.sandbox.pipe import encode_frame, read_frame, write_frame
from curtilage.sandbox.wall import Wall, compute_only

if TYPE_CHECKING:
    from curtilage.client.detection.detectors.scanner import Scanner

_GIVE_WAY: Final = 19  # the lowest priority
_IDLE_S: Final = 1.0
"""After this time without a batch, load what most texts need."""


def main(arguments: Sequence[str] = ()) -> int:
    """Read the plan, then answer the parent until it closes the pipe or dies."""
    requests, replies = take_streams()
    forbid_core_dumps()
    keep_from_disk()
    # The plan names the folder of the operator's model. No text is read before the
    # wall.
    plan = read_plan(requests)
    models = [Path(plan.ner.path)] if plan.ner.path else []
    # Before any library is loaded: it may start threads, and the layers that confine
    # only the calling thread do not apply to threads that already run.
    wall = compute_only(models)
    # Then Python's own hook: it works even if the kernel has no sandbox, and raises
    # a Python error where the kernel would only return an error number.
    refuse_network_and_files()
    scanner = _built(plan, spare=SPARE in arguments)
    serve(requests, replies, scanner, wall, idle_s=_IDLE_S)
    return 0


def read_plan(requests: IO[bytes]) -> DetectionPlan:
    """Return the plan from the first frame, and the exact lists that follow it.

    Raises:
        ValueError: it is not a plan, or a list is missing.
    """
    first = read_frame(requests)
    parts = cast("list[object]", first) if isinstance(first, list) else []
    if len(parts) != len(("plan", "lists")) or not isinstance(parts[1], int):
        raise ValueError("the first frame is not a plan")
    lists = [b64decode(str(read_frame(requests))) for _ in range(parts[1])]
    return DetectionPlan.from_fields(
        parts[0], {sha256(each).hexdigest(): each for each in lists}
    )


def _built(plan: DetectionPlan, *, spare: bool) -> "Scanner":
    """Build the detectors; for a spare worker, in a thread of low priority.

    On Linux a thread has its own priority, which ends with the thread. A process could
    lower its own priority, but not raise it again.
    """
    # Only behind the wall: this import loads all libraries.
    from curtilage.client.detection.detectors.all import scanner_of  # noqa: PLC0415

    if not spare or sys.platform != "linux":
        return scanner_of(plan)
    made: list[Scanner] = []

    def build() -> None:
        os.setpriority(os.PRIO_PROCESS, 0, _GIVE_WAY)  # of this thread
        scanner = scanner_of(plan)
        for preload in scanner.preloads:
            with suppress(Exception):  # it fails again when a text needs it
                preload()
        made.append(scanner)

    thread = threading.Thread(target=build)
    thread.start()
    thread.join()
    return made[0]


# --- the loop ---------------------------------------------------------------------


def serve(
    requests: IO[bytes],
    replies: IO[bytes],
    scanner: "Scanner",
    wall: Wall,
    *,
    idle_s: float | None = None,
) -> None:
    """Report the wall in force, then answer every batch, task by task.

    Args:
        requests: the source of batches.
        replies: where answers are written.
        scanner: inspects the texts.
        wall: what confines this process.
        idle_s: after this time without a batch, load what a text would have to wait
            for; None: load it only when a text needs it.
    """
    loading.announce_to(partial(_announce, replies))
    ready: dict[str, object] = {READY: wall.to_fields()}
    if scanner.broken:
        ready[BROKEN] = list(scanner.broken)
    write_frame(replies, encode_frame(ready))
    left = [] if idle_s is None or sys.platform == "win32" else [*scanner.preloads]
    while True:
        while left and not select.select([requests], [], [], idle_s)[0]:
            with suppress(Exception):  # it fails again when a text needs it
                left.pop()()
        if not _serve_batch(requests, replies, scanner):
            return


def _announce(replies: IO[bytes], begins: bool) -> None:
    """Report that loading begins or ends, and set its own time limit meanwhile."""
    if begins:
        _Suspended.left = _alarm_left()
        # The parent limits the total of all loading; this limit is for an orphan.
        set_alarm(LOAD_PROCESSOR_S + 2 * GRACE_S, LOAD_WALL_S + 2 * GRACE_S)
        write_frame(replies, encode_frame({LOADING: True}))
    else:
        write_frame(replies, encode_frame({LOADING: False}))
        set_alarm(*_Suspended.left)


class _Suspended:
    """The remaining time of the alarm when loading began."""

    left: tuple[float, float] = (0.0, 0.0)


def _alarm_left() -> tuple[float, float]:
    if sys.platform == "win32":
        return 0.0, 0.0
    return (
        signal.getitimer(signal.ITIMER_PROF)[0],
        signal.getitimer(signal.ITIMER_REAL)[0],
    )


def _serve_batch(requests: IO[bytes], replies: IO[bytes], scanner: "Scanner") -> bool:
    """Answer one batch; False at the end.

    A function of its own, so that no frame keeps texts alive while it waits for the
    next batch.
    """
    batch = read_frame(requests)
    if batch is None:
        return False
    for number, texts, limit_ms, wall_ms, application in _parse_batch(batch):
        # The parent kills a late worker, but the parent may die first.
        set_alarm(limit_ms / 1000 + 2 * GRACE_S, wall_ms / 1000 + 2 * GRACE_S)
        found = scanner.scan_all(texts, application=application)
        set_alarm(0, 0)
        fields = [
            [
                to_fields(index, span)
                for index, spans in enumerate(each)
                for span in spans
            ]
            for each in found
        ]
        write_frame(replies, encode_frame({"task": number, "found": fields}))
    return True


def _parse_batch(batch: object) -> list[tuple[int, list[list[str]], int, int, str]]:
    """Return each task: number, texts, limits, application; refuse another shape."""
    if not isinstance(batch, list):
        raise ValueError("a batch is a list")  # noqa: TRY004 - of bytes, not of types
    tasks: list[tuple[int, list[list[str]], int, int, str]] = []
    for task in cast("list[object]", batch):
        fields = cast("dict[str, object]", task) if isinstance(task, dict) else {}
        names = ("task", "texts", "limit_ms", "wall_ms")
        number, texts, limit_ms, wall_ms = map(fields.get, names)
        application = fields.get("application", "")
        if not (
            isinstance(number, int)
            and isinstance(texts, list)
            and isinstance(limit_ms, int)
            and isinstance(wall_ms, int)
            and isinstance(application, str)
        ):
            raise ValueError("a task has a number, texts and two limits")  # noqa: TRY004 - see above
        read = [
            [str(text) for text in cast("list[object]", each)]
            for each in cast("list[object]", texts)
            if isinstance(each, list)
        ]
        # If one were omitted, its findings would be attributed to another text.
        if len(read) != len(cast("list[object]", texts)):
            raise ValueError("a conversation is a list of texts")
        tasks.append((number, read, limit_ms, wall_ms, application))
    return tasks


def set_alarm(processor_s: float, wall_s: float) -> None:
    """Have the kernel end this process at that time; this needs no Python code.

    So it works even while a pattern holds the interpreter's lock. 0 cancels it.
    """
    if sys.platform != "win32":
        for number, timer, seconds in (
            (signal.SIGPROF, signal.ITIMER_PROF, processor_s),
            (signal.SIGALRM, signal.ITIMER_REAL, wall_s),
        ):
            signal.signal(number, signal.SIG_DFL)
            signal.setitimer(timer, seconds)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
