"""A process for each request: they share the weights, and nothing else.

The *keeper* loads the model, and never computes with it: threads of the library would
not survive a fork. For each request it forks a *worker*, which confines itself further,
reads the request from the pipe, answers it with a context of its own, and ends. With it
ends all memory of this engine that held the request; only then does the keeper report
the answer's end. It reads only how long a frame is, numbers of requests, and ends,
which are numbers too.

Workers that have read their requests wait in order until they may compute, as many at a
time as the engine has sequences. They write into one pipe by turns. A worker that ends
early ends its own request only, unless it was reading or writing just then.
"""

import json
import math
import os
import select
import struct
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from typing import IO, TYPE_CHECKING, Final, cast

from curtilage.inference.batch import PREFILL_CHUNK, Piece
from curtilage.inference.decoding import Answer, Loaded, build_prompt
from curtilage.inference.engine import Weights, context_of, draws_too_long
from curtilage.inference.errors import (
    EngineBusyError,
    EngineFailedError,
    EngineMemoryError,
    InferenceError,
    RequestError,
)
from curtilage.inference.native import Row
from curtilage.inference.process.codec import (
    EXIT_FAILED,
    STEPS,
    TURN_S,
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
    Started,
    Usage,
)
from curtilage.inference.settings import (
    EngineSettings,
    available_cpus,
    lower_priority,
)
from curtilage.inference.structured import AnswerForm, form_of
from curtilage.sandbox.child import refuse_network_and_files
from curtilage.sandbox.kernel import end_with_parent, lock_memory
from curtilage.sandbox.pipe import (
    encode_frame,
    read_body,
    read_frame,
    read_length,
    write_frame,
)
from curtilage.sandbox.wall import Wall, fork_no_more

if TYPE_CHECKING:
    from curtilage.sandbox.trial import Trial

CANCEL_BYTES: Final = 24
"""A frame that is not longer has the number of a request, which is to be stopped."""
_GO: Final = b"g"
_CANCEL: Final = b"c"
_STATUS: Final = struct.Struct(">q")
"""From a worker: its request's number once it is read, or one of the following."""
_PROGRESS: Final = -1
_ENDED: Final = -2
"""The answer's end follows, as JSON, and then the pipe's."""
_READS: Final = -3
"""It is confined, and reads its request now."""
_NO_MEMORY: Final = -4
_MOST_OF_END: Final = select.PIPE_BUF - _STATUS.size
"""Written at once, so that the keeper reads all of it or nothing."""
_PULSE_S: Final = 1.0
_IDLE: Final = 0.01
_BUSY_S: Final = 600.0
"""How long a worker may compute without a step, for each of its threads."""
IDLE_PULSES: Final = 60
"""How often in a row a worker may have done nothing, while it should compute."""
LONGEST_DRAW_S: Final = 30.0
"""How long a worker may take to draw one token."""
_PATIENCE_S: Final = 10.0
"""How long another's frame may take that is being written."""
FORK_S: Final = 30.0
"""For how long a process that cannot be forked is tried again."""
_AGAIN_S: Final = 0.2
_NEVER_RAN: Final = Done(
    usage=Usage(prompt_tokens=0, completion_tokens=0), finish="cancelled"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """What all workers have in common.

    Attributes:
        weights: loaded by the thread that forks.
        settings: the engine's limits.
        locked: whether memory must be locked.
        filtered: whether a filter of system calls must be in force.
        trial: what the keeper found when it tried its wall; None: nothing is tried.
    """

    weights: Weights
    settings: EngineSettings
    locked: bool
    filtered: bool
    trial: "Trial | None" = None

    def confine(self, keeper: int) -> Wall:
        """Confine a worker further than its keeper; return the layers added.

        Args:
            keeper: its process id.

        Raises:
            OSError: the kernel refuses, or the keeper has ended.
        """
        end_with_parent()
        if os.getppid() != keeper:
            raise OSError("the keeper has ended")
        lower_priority(self.settings.niceness)
        # A fork does not inherit it.
        if self.locked:
            lock_memory()
        wall = fork_no_more() if self.filtered else Wall()
        if self.filtered and not wall.standing:
            raise OSError("a worker has no filter of its own")
        refuse_network_and_files()
        return wall


class Replies:
    """The pipe to the parent, which several processes write frames into by turns.

    Args:
        stream: without a buffer.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        # Whoever has read the byte may write. Locks of files are seen by all accounts.
        self._turn, self._next = os.pipe()
        os.set_blocking(self._turn, False)
        os.write(self._next, b"x")

    def say(self, value: object, *, patience_s: float | None = None) -> bool:
        """Write a value; False: another process did not end its turn in time.

        Raises:
            OSError: the parent is gone.
        """
        frame = encode_frame(value)
        ends = math.inf if patience_s is None else time.monotonic() + patience_s
        while True:
            left_s = None if ends == math.inf else max(0.0, ends - time.monotonic())
            if not select.select([self._turn], [], [], left_s)[0]:
                return False
            with suppress(BlockingIOError):  # another one was faster
                os.read(self._turn, 1)
                break
        try:
            write_frame(self._stream, frame)
        finally:
            os.write(self._next, b"x")
        return True


@dataclass(slots=True, kw_only=True, eq=False)
class _Worker:
    """A worker, as its keeper knows it.

    Attributes:
        pid: its id.
        control: written to.
        status: read from.
        reads: whether it has begun to read its request.
        number: of its request; None: it has not read it yet.
        began: when it was let compute; None: it waits.
        end: of its answer, JSON; None: it has not reported one.
    """

    pid: int
    control: int
    status: int
    reads: bool = False
    number: int | None = None
    began: float | None = None
    end: bytes | None = None


class Keeper:
    """Forks a worker for each request.

    Args:
        shared: see there.
        requests: the pipe from the parent, without a buffer.
        replies: the pipe to it.
    """

    def __init__(self, shared: Shared, requests: IO[bytes], replies: Replies) -> None:
        self._shared = shared
        self._requests = requests
        self._replies = replies
        self._pid = os.getpid()
        self._workers: dict[int, _Worker] = {}
        # Of a frame that a worker is to read, or reads.
        self._length: int | None = None
        self._reader: _Worker | None = None
        self._fork_until_s = 0.0
        self._steps = 0
        self._turn_s = 0.0

    def describe(self) -> "tuple[EngineInfo, Trial | None]":
        """Return the model and the size of a context, which a worker makes and uses.

        And what that worker found when it tried to get out, if the keeper has tried.

        Raises:
            EngineFailedError: a worker cannot compute.
            EngineMemoryError: there is too little memory for a context.
        """
        settings = self._shared.settings
        status, theirs = os.pipe()
        pid = _forked()
        if pid == 0:
            try:
                wall = self._shared.confine(self._pid)
                ready = _rehearsed(self._shared, wall)
                os.write(theirs, encode_frame(ready))
            finally:
                os._exit(0)
        os.close(theirs)
        with os.fdopen(status, "rb", buffering=0) as stream:
            said = read_frame(stream)
        os.waitpid(pid, 0)
        size, found = (0, None) if said is None else cast("tuple[int, object]", said)
        if size == _NO_MEMORY:
            raise EngineMemoryError(settings.context_tokens)
        if size <= 0:
            raise EngineFailedError("a process for one request cannot compute")
        info = replace(
            self._shared.weights.info,
            context_tokens=size,
            threads=settings.threads or available_cpus(),
            sequences=settings.sequences,
        )
        if self._shared.trial is None:
            return info, None
        # Imported late: a client's engine tries nothing.
        from curtilage.sandbox.trial import Trial  # noqa: PLC0415

        return info, Trial.from_fields(found)

    def serve(self) -> None:
        """Answer requests until the parent closes the pipe.

        Raises:
            EngineFailedError: a worker left one of the pipes in the middle of a frame,
                or no process can be forked.
            OSError: the parent is gone.
            ValueError: a frame is no request.
        """
        requests = self._requests.fileno()
        while True:
            self._let_compute()
            if self._length is not None and self._reader is None:
                self._try_to_fork(self._length)
            # Not while a worker is to read the rest of a frame.
            waits = [*self._workers, *([requests] if self._length is None else [])]
            again = self._length is not None and self._reader is None
            for ready in _readable(waits, _AGAIN_S if again else None):
                if ready != requests:
                    self._note(self._workers[ready])
                elif not self._take():
                    return

    def _let_compute(self) -> None:
        """Let those that wait compute, in order, as long as there are places."""
        workers = [each for each in self._workers.values() if each.number is not None]
        places = self._shared.settings.sequences
        places -= sum(each.began is not None for each in workers)
        waiting = [each for each in workers if each.began is None]
        for worker in waiting[: max(0, places)]:
            worker.began = time.monotonic()
            with suppress(BrokenPipeError):  # it has ended
                os.write(worker.control, _GO)

    def _take(self) -> bool:
        """Act on the next frame; False: there is none any more."""
        length = read_length(self._requests)
        if length is None:
            return False
        if length > CANCEL_BYTES:
            self._length = length
            self._fork_until_s = time.monotonic() + FORK_S
            return True
        numbers = cast("list[object]", read_body(self._requests, length))
        for worker in self._workers.values():
            if [worker.number] == numbers:
                with suppress(BrokenPipeError):
                    os.write(worker.control, _CANCEL)
        return True

    def _try_to_fork(self, length: int) -> None:
        """Fork a worker for a frame; it is tried again if that is not possible now.

        Raises:
            EngineFailedError: it was not for too long.
        """
        if time.monotonic() >= self._fork_until_s:
            raise EngineFailedError("no process can be forked")
        opened: list[int] = []
        try:
            opened += os.pipe()
            opened += os.pipe()
            theirs, control, status, said = opened
            pid = _forked()
        except OSError:
            # As many as there may be; others end.
            for each in opened:
                os.close(each)
            return
        if pid == 0:
            code = EXIT_FAILED
            try:
                # The others' ends would be open as long as this one lives.
                for worker in self._workers.values():
                    os.close(worker.control)
                    os.close(worker.status)
                os.close(control)
                os.close(status)
                self._shared.confine(self._pid)
                os.write(said, _STATUS.pack(_READS))
                value = read_body(self._requests, length)
                # Whatever takes it over reads no other's request.
                self._requests.close()
                _Work(self._shared, self._replies, theirs, said).do(value)
                code = 0
            finally:
                # Without a word: what was raised may hold a text.
                os._exit(code)
        os.close(theirs)
        os.close(said)
        self._reader = _Worker(pid=pid, control=control, status=status)
        self._workers[status] = self._reader

    def _note(self, worker: _Worker) -> None:
        """Take what a worker says of itself."""
        most = _MOST_OF_END if worker.end is not None else _STATUS.size
        data = os.read(worker.status, most)
        if worker.end is not None and data:
            worker.end += data[: _MOST_OF_END - len(worker.end)]
            return
        if len(data) != _STATUS.size:
            self._bury(worker)
            return
        (said,) = _STATUS.unpack(data)
        if said == _ENDED:
            worker.end = b""
        elif said == _READS:
            worker.reads = True
        elif said >= 0 and worker is self._reader:
            worker.number, self._length, self._reader = said, None, None
        # If one is writing, that is progress as well.
        self._steps += 1
        beat = {STEPS: self._steps, TURN_S: self._turn_s}
        self._replies.say(beat, patience_s=0.0)

    def _bury(self, worker: _Worker) -> None:
        """Take notice of a worker's end, and report that of its answer.

        Raises:
            EngineFailedError: it was reading or writing a frame.
        """
        del self._workers[worker.status]
        os.close(worker.control)
        os.close(worker.status)
        os.waitpid(worker.pid, 0)
        if worker.began is not None:
            # Of the last few, so that the estimate follows the current load.
            self._turn_s += (time.monotonic() - worker.began - self._turn_s) / 4
        if worker is self._reader:
            self._reader = None
            if worker.reads:
                raise EngineFailedError("a worker ended while it read")
            time.sleep(_AGAIN_S)
            return  # another one reads it
        end = _end_of(worker)
        if not self._replies.say([worker.number, end], patience_s=_PATIENCE_S):
            raise EngineFailedError("a worker ended while it wrote")


def _end_of(worker: _Worker) -> object:
    """Return the end of a worker's answer, as a value for the parent."""
    with suppress(ValueError, RecursionError):
        if worker.end:
            end: object = json.loads(worker.end)
            return end
    return error_to_value(EngineFailedError("it ended"), loading=False)


def _readable(descriptors: Sequence[int], timeout_s: float | None) -> list[int]:
    """Wait until one of them can be read, or has ended; return which can."""
    # ``select`` knows 1,024 descriptors.
    polled = select.poll()
    for each in descriptors:
        polled.register(each, select.POLLIN)
    limit_ms = None if timeout_s is None else 1000 * timeout_s
    return [each for each, _ in polled.poll(limit_ms)]


def _forked() -> int:
    return os.fork()  # noqa: TID251 - a door


def _rehearsed(shared: Shared, wall: Wall) -> tuple[int, object]:
    """Return the size of a context that works, or ``_NO_MEMORY``; and a trial's fields.

    Args:
        shared: see there.
        wall: the layers that this worker has added.
    """
    found: object = None
    if shared.trial is not None:
        from curtilage.sandbox.trial import try_forked  # noqa: PLC0415 - see describe

        # Before the library has threads.
        found = try_forked(shared.trial, wall).to_fields()
    try:
        context = context_of(shared.weights.model, shared.settings)
    except EngineMemoryError:
        return _NO_MEMORY, found
    context.decode([Row(0, 0, 0, True)])
    return context.size, found


class _Work:
    """One request, in its worker.

    Args:
        shared: see there.
        replies: the pipe to the parent.
        control: read from; its end is the keeper's.
        status: written to.
    """

    def __init__(
        self, shared: Shared, replies: Replies, control: int, status: int
    ) -> None:
        self._shared = shared
        self._replies = replies
        self._control = control
        self._status = status
        self._go = threading.Event()
        self._token = CancelToken()
        self._steps = 0
        # Odd during a draw: nothing can stop the library then.
        self._draws = 0
        self._says = False

    def do(self, value: object) -> None:
        """Answer a request, and report its end.

        Args:
            value: of its frame.

        Raises:
            OSError: the parent is gone.
            ValueError: it is no request.
        """
        number, asked = cast("tuple[int, object]", value)
        self._tell(number)
        for work in (self._listen, self._pulse):
            threading.Thread(target=work, daemon=True).start()
        end: object
        try:
            end = to_value(self._answered(number, asked))
        except InferenceError as problem:
            end = error_to_value(problem, loading=False)
        except Exception:  # noqa: BLE001 - its caller must hear of any failure
            end = error_to_value(EngineFailedError("it failed"), loading=False)
        # Numbers and no text: the keeper passes it on when this process has ended.
        os.write(self._status, _STATUS.pack(_ENDED) + json.dumps(end).encode("ascii"))

    def _answered(self, number: int, asked: object) -> Done:
        def deliver(event: Event) -> None:
            self._says = True
            self._replies.say([number, to_value(event)])
            self._says = False

        request = from_value(GenerateRequest, asked)
        self._go.wait()
        if self._token.cancelled:
            return _NEVER_RAN
        # Not before: it takes seconds and megabytes.
        form = form_of(request, time.thread_time)
        try:
            context = context_of(self._shared.weights.model, self._shared.settings)
        except EngineMemoryError:
            raise EngineBusyError("there is no memory for one more request") from None
        weights = self._shared.weights
        return answer(
            Loaded(model=weights.model, template=weights.template, context=context),
            request,
            form,
            deliver,
            self._stops,
            drawing=self._drawing,
        )

    def _stops(self) -> bool:
        self._steps += 1
        return self._token.cancelled

    @contextmanager
    def _drawing(self) -> Generator[None]:
        self._draws += 1
        try:
            yield
        finally:
            self._draws += 1

    def _listen(self) -> None:
        """Take the keeper's words; end with it."""
        while word := os.read(self._control, 1):
            if word == _CANCEL:
                self._token.cancel()
            self._go.set()
        os._exit(EXIT_FAILED)

    def _pulse(self) -> None:
        """Report progress: a step, or time spent on computing one.

        A draw or a step that takes too long ends the process, and so does doing nothing
        for long, unless it waits to be read. Not by the clock: it may have been stopped
        meanwhile.
        """
        busy_s = _BUSY_S * (self._shared.settings.threads or available_cpus())
        steps, since_s, used_s = -1, 0.0, 0.0
        draws, draw_s, idle = 0, 0.0, 0
        while True:
            time.sleep(_PULSE_S)
            before, draws = draws, self._draws
            draw_s = draw_s + _PULSE_S if draws == before and draws % 2 else 0.0
            if draw_s >= LONGEST_DRAW_S:
                os._exit(EXIT_FAILED)
            before_s, used_s = used_s, time.process_time()
            if steps != self._steps:
                steps, since_s = self._steps, used_s
            elif used_s - before_s < _IDLE:
                idle += self._go.is_set() and not self._says
                if idle >= IDLE_PULSES:
                    os._exit(EXIT_FAILED)
                continue
            elif used_s - since_s > busy_s:
                os._exit(EXIT_FAILED)
            idle = 0
            self._tell(_PROGRESS)

    def _tell(self, word: int) -> None:
        os.write(self._status, _STATUS.pack(word))


def answer(
    loaded: Loaded,
    request: GenerateRequest,
    form: AnswerForm,
    deliver: Callable[[Event], None],
    stops: Callable[[], bool],
    *,
    drawing: Callable[[], AbstractContextManager[None]],
) -> Done:
    """Answer one request in an empty context that is for nothing else; return its end.

    Args:
        loaded: with that context.
        request: the request.
        form: what its schemas demand.
        deliver: takes each event but the last.
        stops: called before each step, and often during one; whether to stop.
        drawing: entered while a grammar or sampler is made or used.

    Raises:
        ContextTooLongError: prompt and answer do not fit.
        EngineBusyError: there is too little memory for so long an answer.
        NativeError: the library failed.
        RequestError: no token of the model fulfils the form, or it takes too long to
            enforce.
        TemplateError: the model cannot take these turns.
    """
    settings, context = request.settings, loaded.context
    prompt = build_prompt(
        loaded,
        request.messages,
        settings.max_tokens,
        tools=form.tools,
        note=form.note,
    )
    with drawing():
        written = Answer(loaded.model, prompt, settings, form)
    deliver(Started(prompt_tokens=len(prompt)))
    try:
        context.open(0, tokens=written.size + written.remaining)
    except EngineMemoryError:
        raise EngineBusyError("there is no memory for one more request") from None
    read, drawn_s = 0, 0.0
    while written.finish is None and not stops():
        if form.grammar and draws_too_long(drawn_s, request, written):
            raise RequestError("the answer's form takes too long to enforce")
        count = min(written.size - read, PREFILL_CHUNK)
        is_last = read + count == written.size
        piece = Piece(ticket=0, sequence=0, start=read, count=count, sampled=is_last)
        if not context.decode(
            written.rows(piece), cancelled=stops if count > 1 else None
        ):
            break
        read += count
        if is_last:
            began = time.thread_time()
            with drawing():
                events = list(written.draw(context, count - 1))
            drawn_s += time.thread_time() - began
            for event in events:
                deliver(event)
        context.drop_logits()
    return written.done(written.finish or "cancelled")
