"""The engine's process: it confines itself, loads one model, and answers requests.

The first frame is the plan, which names the model's files. Before it loads a library
the process confines itself (``curtilage.sandbox``): native code too reaches no network,
sees no other file, writes none and starts no program. If layers are computed on a GPU,
its devices remain usable. Then it loads the files, which
its parent hashes meanwhile, and reports the model and the layers of its wall, or why it
cannot. From then on
it answers requests, as many at a time as the engine has sequences, until its parent
closes the pipe. What is printed is discarded. If the plan says so, each is answered by
a process of its own, which this one forks (``forked``).
"""

import os
import queue
import signal
import sys
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, Literal, cast

from curtilage.inference.errors import (
    EngineFailedError,
    EngineMissingError,
    InferenceError,
)
from curtilage.inference.modelfile import LentModel
from curtilage.inference.process.codec import (
    DRAW_S,
    EXIT_FAILED,
    LOADED,
    STEPS,
    TRIAL,
    TURN_S,
    WALL,
    Plan,
    error_to_value,
    from_value,
    to_value,
)
from curtilage.inference.protocol import (
    CancelToken,
    Done,
    EngineInfo,
    Event,
    GenerateRequest,
)
from curtilage.inference.settings import lower_priority
from curtilage.inference.structured import AnswerForm, demands, form_of
from curtilage.sandbox.child import (
    forbid_core_dumps,
    refuse_network_and_files,
    take_streams,
)
from curtilage.sandbox.folders import gpus
from curtilage.sandbox.memory import Paging, keep_from_disk, overwrites_freed
from curtilage.sandbox.pipe import encode_frame, read_frame, write_frame
from curtilage.sandbox.wall import Layer, Wall, compute_only

if TYPE_CHECKING:
    from collections.abc import Callable

    from curtilage.inference.engine import LlamaCppEngine
    from curtilage.sandbox.trial import Trial

_PULSE_S: Final = 1.0
_OVERWRITTEN: Final[dict[bool, Literal["none", "overwritten"]]] = {
    False: "none",
    True: "overwritten",
}
_PAGING: Final[dict[Paging, Literal["possible", "locked", "no_swap"]]] = {
    Paging.POSSIBLE: "possible",
    Paging.LOCKED: "locked",
    Paging.NO_SWAP: "no_swap",
}
_SWITCH_S: Final = 0.0005
"""How long one thread of Python keeps another waiting: while schemas are converted, the
engine's thread needs Python hundreds of times for each piece of a prompt."""


def main() -> int:
    """Read the plan, load the model, and answer until the parent closes the pipe."""
    sys.setswitchinterval(_SWITCH_S)
    requests, replies = take_streams()
    forbid_core_dumps()
    plan = from_value(Plan, read_frame(requests))
    paging = keep_from_disk()
    forks = plan.isolation == "process"
    # Before any library is loaded: it may start threads, and the layers that confine
    # only the calling thread do not apply to threads that already run.
    devices, of_drivers = gpus() if plan.settings.gpu_layers else ((), ())
    files = [Path(each) for each in (plan.model, plan.adapter) if each]
    reads = [*files, *of_drivers]
    trial: Trial | None = None
    if plan.tried:
        from curtilage.sandbox.trial import (  # noqa: PLC0415 - on Linux
            lock_engine,
            lock_keeper,
        )

        wall, trial = lock_keeper(reads) if forks else lock_engine(reads, devices)
    else:
        wall = compute_only(reads, devices=devices, forks=forks)
    # Then Python's own hook: it works even if the kernel has no sandbox.
    refuse_network_and_files(forks=forks)
    prepare = _keeper if forks else _server
    try:
        around = _Around(wall=wall, paging=paging, trial=trial)
        prepared = prepare(plan, around, requests, replies)
    except InferenceError as problem:
        write_frame(replies, encode_frame(error_to_value(problem, loading=True)))
        return 1
    info = replace(
        prepared.info,
        model_id=plan.model_id,
        isolation=plan.isolation,
        ephemerality="process" if forks else _OVERWRITTEN[overwrites_freed()],
        paging=_PAGING[paging],
    )
    ready = {LOADED: to_value(info), WALL: wall.to_fields()}
    if prepared.trial is not None:
        ready[TRIAL] = prepared.trial.to_fields()
    write_frame(replies, encode_frame(ready))
    prepared.serve()
    # The parent has closed the pipe, or is gone. Whatever the engine does now, nobody
    # waits for it; the kernel clears the memory before it gives it to another process.
    os._exit(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Around:
    """What this process is in.

    Attributes:
        wall: the layers around it.
        paging: why its memory is not swapped; or that it may be.
        trial: what it found when it tried its wall; None: it did not.
    """

    wall: Wall
    paging: Paging
    trial: "Trial | None"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Prepared:
    """An engine that can answer.

    Attributes:
        info: the model and its settings.
        trial: what the process that answers found; None: it has tried nothing.
        serve: answers requests until the parent closes the pipe.
    """

    info: EngineInfo
    trial: "Trial | None"
    serve: "Callable[[], None]"


def _server(
    plan: Plan, around: _Around, requests: IO[bytes], replies: IO[bytes]
) -> _Prepared:
    """Load the engine, which answers all requests in this process."""
    engine = _loaded(plan)
    info = engine.begin().result()

    def serve() -> None:
        server = Server(engine, replies, niceness=plan.settings.niceness)
        threading.Thread(target=_end_with, args=(engine,), daemon=True).start()
        while server.take(requests):
            pass

    return _Prepared(info=info, trial=around.trial, serve=serve)


def _loaded(plan: Plan) -> "LlamaCppEngine":
    try:
        # Only behind the wall: this import loads all libraries.
        from curtilage.inference.engine import LlamaCppEngine  # noqa: PLC0415
    except ImportError as missing:
        raise EngineMissingError(missing.name or str(missing)) from None
    model, adapter = _files(plan)
    return LlamaCppEngine(
        model, model_id=plan.model_id, adapter=adapter, settings=plan.settings
    )


def _keeper(
    plan: Plan, around: _Around, requests: IO[bytes], replies: IO[bytes]
) -> _Prepared:
    """Load the weights, for processes that answer one request each."""
    if plan.settings.gpu_layers:
        # Their drivers do not survive a fork.
        raise EngineFailedError("a process for each request computes no layer on a GPU")
    # A fork ends all threads but one. Read when numpy is loaded, which starts some.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        from curtilage.inference.engine import load  # noqa: PLC0415 - see above
        from curtilage.inference.process.forked import (  # noqa: PLC0415
            Keeper,
            Replies,
            Shared,
        )
    except ImportError as missing:
        raise EngineMissingError(missing.name or str(missing)) from None
    shared = Shared(
        weights=load(*_files(plan)),
        settings=plan.settings,
        locked=around.paging is Paging.LOCKED,
        filtered=Layer.SECCOMP in around.wall.standing,
        trial=around.trial,
    )
    keeper = Keeper(shared, requests, Replies(replies))
    info, trial = keeper.describe()
    return _Prepared(info=info, trial=trial, serve=keeper.serve)


def _files(plan: Plan) -> tuple[LentModel, LentModel | None]:
    """Return the model's file and the adapter's."""
    model, *adapter = (
        LentModel(path, sha256, lent)
        for (path, sha256), lent in zip(plan.files, plan.lent, strict=True)
    )
    return model, adapter[0] if adapter else None


def _end_with(engine: "LlamaCppEngine") -> None:
    """End the process once the engine has given up; a new one may have memory."""
    engine.wait()
    os._exit(EXIT_FAILED)


class _Stream:
    """One request in progress: its token, and what ends it in the engine."""

    def __init__(self) -> None:
        self.token = CancelToken()
        self.leave: Callable[[], None] | None = None
        self.ended = False


class Server:
    """Passes requests to an engine, and its events to the pipe.

    Args:
        engine: a loaded engine.
        replies: the pipe to the parent, without a buffer.
        niceness: of the thread that converts schemas.
    """

    def __init__(
        self, engine: "LlamaCppEngine", replies: IO[bytes], *, niceness: int = 0
    ) -> None:
        self._engine = engine
        self._replies = replies
        self._niceness = niceness
        self._writing = threading.Lock()
        # One at a time: each takes up to some seconds and megabytes.
        self._schemas: queue.SimpleQueue[tuple[int, _Stream, GenerateRequest]] = (
            queue.SimpleQueue()
        )
        self._converter: threading.Thread | None = None
        self._streams: dict[int, _Stream] = {}
        self._changed = threading.Condition()
        threading.Thread(target=self._pulse, daemon=True).start()

    def take(self, requests: IO[bytes]) -> bool:
        """Read one frame and act on it; False at the end of the stream.

        A function of its own, so that no frame of Python keeps a request while the
        process waits for the next one.

        Raises:
            ValueError: it is no request.
        """
        frame = read_frame(requests)
        if frame is None:
            return False
        number, *asked = cast("list[object]", frame)
        if not isinstance(number, int):
            raise ValueError("a request has no number")  # noqa: TRY004 - of bytes
        if asked:
            self._begin(number, asked[0])
        elif (stream := self._streams.get(number)) is not None:
            stream.token.cancel()
        return True

    def _begin(self, number: int, asked: object) -> None:
        stream = _Stream()
        with self._changed:
            self._streams[number] = stream
            self._changed.notify()
        try:
            request = from_value(GenerateRequest, asked)
        except InferenceError as problem:
            self._deliver(number, problem)
            return
        if not demands(request):
            self._submit(number, stream, request)
            return
        # It may take seconds to convert schemas, and the next frame may be another
        # request, or cancel this one.
        self._schemas.put((number, stream, request))
        if self._converter is None:
            self._converter = threading.Thread(target=self._convert, daemon=True)
            self._converter.start()

    def _convert(self) -> None:
        lower_priority(self._niceness)
        while True:
            # In one expression: while it waits, it keeps no request.
            self._submit(*self._schemas.get())

    def _submit(self, number: int, stream: _Stream, request: GenerateRequest) -> None:
        def deliver(item: Event | InferenceError) -> bool:
            self._deliver(number, item)
            return True

        try:
            # If it was cancelled while it waited, it ends as soon as it is submitted.
            form = (
                AnswerForm()
                if stream.token.cancelled
                else form_of(request, time.thread_time)
            )
            leave = self._engine.submit(request, form, deliver, stream.token)
        except InferenceError as problem:
            self._deliver(number, problem)
            return
        except Exception:  # noqa: BLE001 - its caller must hear of any failure
            self._deliver(number, EngineFailedError("the engine failed"))
            return
        with self._changed:
            stream.leave, ended = leave, stream.ended
        if ended:
            leave()

    def _deliver(self, number: int, item: Event | InferenceError) -> None:
        if isinstance(item, InferenceError):
            self._say([number, error_to_value(item, loading=False)])
        else:
            self._say([number, to_value(item)])
            if not isinstance(item, Done):
                return
        with self._changed:
            stream = self._streams.pop(number)
            stream.ended, leave = True, stream.leave
        if leave is not None:
            leave()

    def _say(self, value: object) -> None:
        with self._writing:
            try:
                write_frame(self._replies, encode_frame(value))
            except OSError:
                os._exit(0)  # the parent is gone

    def _pulse(self) -> None:
        """Report progress while requests run: reading a prompt has no events.

        And how long the present draw takes. Not by the clock: the process may have been
        stopped meanwhile.
        """
        told, draws, draw_s = -1, 0, 0.0
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._streams)
            steps, before, draws = self._engine.steps, draws, self._engine.draws
            goes_on = draws == before and draws % 2
            draw_s = draw_s + _PULSE_S if goes_on else 0.0
            if steps != told or goes_on:
                told = steps
                turn_s = self._engine.usual_turn_s
                self._say({STEPS: steps, TURN_S: turn_s, DRAW_S: draw_s})
            time.sleep(_PULSE_S)


if __name__ == "__main__":
    # A terminal sends it to the whole group; the parent decides when this one ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.exit(main())
