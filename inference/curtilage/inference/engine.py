"""The engine: one thread that owns the model, and its asyncio interface.

Requests are answered one at a time and in turns: an answer that has been written for a
while gives way to those that wait, and continues at the end of the queue. So a few long
answers cannot block all others. The queue is bounded. Every error in the owner thread
reaches all callers that wait for it.
"""

import asyncio
import contextlib
import hashlib
import os
import sys
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Generator
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from curtilage.inference.decoding import Loaded, Paused, answer
from curtilage.inference.errors import (
    EngineBusyError,
    EngineClosedError,
    EngineFailedError,
    InferenceError,
    ModelFileError,
    NativeError,
    TemplateError,
)
from curtilage.inference.modelfile import VerifiedModel
from curtilage.inference.native import Context, Model, check_machine
from curtilage.inference.protocol import (
    CancelToken,
    Done,
    EngineInfo,
    Event,
    GenerateRequest,
    Load,
    Usage,
)
from curtilage.inference.templates import ChatTemplate

DEFAULT_CONTEXT_TOKENS: Final = 4096
DEFAULT_MAX_QUEUED: Final = 16
TURN_S: Final = 2.0
"""How long one answer may be written while others wait."""
MAX_THREADS: Final = 16
"""Decoding is bound by memory; more threads than this only wait."""

_NEVER_RAN: Final = Done(
    usage=Usage(prompt_tokens=0, completion_tokens=0), finish="cancelled"
)


@dataclass(slots=True, kw_only=True, eq=False)
class _Job:
    """One request in progress, shared by the caller's loop and the owner thread."""

    request: GenerateRequest = field(repr=False)
    token: CancelToken
    loop: asyncio.AbstractEventLoop
    out: "asyncio.Queue[Event | InferenceError]" = field(repr=False)
    abandoned: threading.Event = field(default_factory=threading.Event)
    steps: Generator[Event | Paused] | None = field(default=None, repr=False)

    def cancelled(self) -> bool:
        return self.abandoned.is_set() or self.token.cancelled

    def post(self, item: Event | InferenceError) -> None:
        try:
            self.loop.call_soon_threadsafe(self.out.put_nowait, item)
        except RuntimeError:
            # The caller's loop is closed.
            self.abandoned.set()


class _Turn:
    """The time of one request's turn, from now on.

    Args:
        least_s: minimum; at least as long as the preparation took, so that half of
            the time or more is spent on writing.
        others: whether other requests wait.
    """

    def __init__(self, least_s: float, others: Callable[[], bool]) -> None:
        self._least_s = least_s
        self._others = others
        self._began = time.monotonic()
        self._end: float | None = None

    def is_over(self) -> bool:
        """Whether to make room; called only once something was written."""
        now = time.monotonic()
        if self._end is None:
            self._end = now + max(self._least_s, now - self._began)
        return now >= self._end and self._others()

    def took_s(self) -> float:
        """Return how long it has taken, or would have if others had waited."""
        now = time.monotonic()
        return (now if self._end is None else min(now, self._end)) - self._began


class LlamaCppEngine:
    """The Protocol's engine, in this process, on llama.cpp.

    Args:
        model: verified and open; closed by the engine once it is loaded.
        model_id: a display name.
        adapter: a LoRA adapter, verified and open, made for this model; likewise.
        context_tokens: prompt and answer together; at most what the model was
            trained for.
        least_context_tokens: if memory is short, a context is made that is smaller
            by half or more, but not below this; None: no smaller one is accepted.
        threads: threads of one decode; None: the CPUs this process may use.
        max_queued: how many requests may wait.
        niceness: of the computing threads, 0 to 19; if the system supports niceness
            per thread.
        turn_s: how long one answer may be written while others wait.
    """

    def __init__(
        self,
        model: VerifiedModel,
        *,
        model_id: str,
        adapter: VerifiedModel | None = None,
        context_tokens: int = DEFAULT_CONTEXT_TOKENS,
        least_context_tokens: int | None = None,
        threads: int | None = None,
        max_queued: int = DEFAULT_MAX_QUEUED,
        niceness: int = 0,
        turn_s: float = TURN_S,
    ) -> None:
        self._file = model
        self._adapter = adapter
        self._model_id = model_id
        self._context_tokens = context_tokens
        self._least_context_tokens = least_context_tokens
        self._threads = threads or available_cpus()
        self._max_queued = max_queued
        self._niceness = niceness
        self._turn_s = turn_s
        self._turn = _Turn(turn_s, self._others_wait)
        self._usual_turn_s = 0.0
        self._changed = threading.Condition()
        self._queue: deque[_Job] = deque()
        self._running: _Job | None = None
        self._closing = False
        self._failed = False
        self._ready: Future[EngineInfo] = Future()
        self._thread: threading.Thread | None = None

    @property
    def info(self) -> EngineInfo:
        """The loaded model; see the Protocol."""
        if not self._ready.done() or self._ready.exception() is not None:
            raise EngineClosedError("the engine is not running")
        return self._ready.result()

    async def start(self) -> None:
        """Load the model and check the machine; see the Protocol."""
        with self._changed:
            if self._closing:
                raise EngineClosedError("the engine was closed")
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._own, name="curtilage-engine", daemon=True
                )
                self._thread.start()
        # Shielded: a caller that gives up does not stop the loading.
        await asyncio.shield(asyncio.wrap_future(self._ready))

    async def generate(
        self, request: GenerateRequest, *, cancel: CancelToken | None = None
    ) -> AsyncGenerator[Event]:
        """Answer; see the Protocol."""
        job = _Job(
            request=request,
            token=cancel or CancelToken(),
            loop=asyncio.get_running_loop(),
            out=asyncio.Queue(),
        )
        self._enqueue(job)
        withdraw = partial(self._withdraw, job)
        job.token.subscribe(withdraw)
        try:
            while True:
                item = await job.out.get()
                if isinstance(item, InferenceError):
                    try:
                        raise item
                    finally:
                        # It references this frame, so this frame must not reference it.
                        del item
                yield item
                if isinstance(item, Done):
                    return
        finally:
            # Else job, token and callback form a cycle, with the request.
            job.token.unsubscribe(withdraw)
            job.abandoned.set()
            self._withdraw(job)

    def load(self) -> Load:
        """Return how busy the engine is now."""
        with self._changed:
            running, queued = int(self._running is not None), self._wanted()
            return Load(
                running=running,
                queued=queued,
                max_queued=self._max_queued,
                wait_s=(running + queued) * self._usual_turn_s,
            )

    async def close(self) -> None:
        """Stop, end every stream, free the model; see the Protocol."""
        with self._changed:
            self._closing = True
            if self._running is not None:
                self._running.abandoned.set()
            self._changed.notify()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)
        for file in self._files:
            file.close()

    @property
    def _files(self) -> tuple[VerifiedModel, ...]:
        return (self._file,) if self._adapter is None else (self._file, self._adapter)

    # The caller's side.

    def _enqueue(self, job: _Job) -> None:
        with self._changed:
            if self._failed:
                raise EngineFailedError("the engine failed earlier")
            if self._closing or not self._ready.done() or self._ready.exception():
                raise EngineClosedError("the engine is not running")
            if self._wanted() >= self._max_queued:
                raise EngineBusyError("too many requests are waiting")
            self._queue.append(job)
            self._changed.notify()

    def _withdraw(self, job: _Job) -> None:
        """Remove a job that has not begun from the queue.

        The owner thread frees what a begun one holds, at its next turn.
        """
        with self._changed:
            if job not in self._queue or job.steps is not None:
                return
            self._queue.remove(job)
        job.post(_NEVER_RAN)

    def _wanted(self) -> int:
        """Count waiting jobs; a begun one that was cancelled ends at its next turn."""
        return sum(not job.cancelled() for job in self._queue)

    def _others_wait(self) -> bool:
        return bool(self._queue)

    # The owner thread's side.

    def _own(self) -> None:
        if self._niceness and sys.platform == "linux":
            # For this thread, and for those that the library will start. Refused if it
            # is that low already, or by a sandbox.
            with contextlib.suppress(OSError):
                os.setpriority(
                    os.PRIO_PROCESS, threading.get_native_id(), self._niceness
                )
        try:
            loaded, info = self._open()
        except InferenceError as problem:
            self._ready.set_exception(problem)
            return
        except Exception:  # noqa: BLE001 - a waiter must hear of any failure
            self._ready.set_exception(EngineFailedError("the engine did not start"))
            return
        self._ready.set_result(info)
        self._serve(loaded)

    def _open(self) -> tuple[Loaded, EngineInfo]:
        check_machine()
        adapter = self._adapter
        model = Model(
            str(self._file.load_path),
            adapter=None if adapter is None else str(adapter.load_path),
        )
        try:
            # After the loading, not before: the hashed file is the loaded one.
            for file in self._files:
                file.check_unchanged()
            _refuse_split(model)
            template, source = _template_of(model)
            tokens = min(self._context_tokens, model.trained_context)
            context = self._context(model, tokens)
        except BaseException:
            model.free()
            raise
        for file in self._files:
            file.close()
        info = EngineInfo(
            model_id=self._model_id,
            model_sha256=self._file.sha256,
            template_sha256=hashlib.sha256(source.encode()).hexdigest(),
            architecture=model.metadata("general.architecture"),
            context_tokens=context.size,
            threads=self._threads,
            adapter_sha256="" if adapter is None else adapter.sha256,
        )
        return Loaded(model=model, template=template, context=context), info

    def _context(self, model: Model, tokens: int) -> Context:
        return Context(
            model,
            tokens=tokens,
            threads=self._threads,
            least_tokens=self._least_context_tokens,
        )

    def _serve(self, loaded: Loaded) -> None:
        most = min(self._context_tokens, loaded.model.trained_context)
        while (job := self._next_job()) is not None:
            try:
                self._answer(loaded, job)
            except Exception as problem:  # noqa: BLE001 - every waiter must hear
                job.post(_public(problem))
                if isinstance(problem, InferenceError) and not isinstance(
                    problem, EngineFailedError
                ):
                    continue
                # Jobs that have begun lose their state with the context.
                self._drop(lambda job: job.steps is not None)
                try:
                    # After a failure it may contain anything: it is replaced.
                    loaded.context.free()
                    context = self._context(loaded.model, most)
                    loaded = Loaded(
                        model=loaded.model, template=loaded.template, context=context
                    )
                except Exception:  # noqa: BLE001 - as above; nothing works now
                    self._fail()
                    loaded.model.free()
                    return
            finally:
                # This frame waits for the next job, possibly for days.
                del job
        self._drop(lambda _: True, closed=True)
        loaded.context.free()
        loaded.model.free()

    def _next_job(self) -> _Job | None:
        with self._changed:
            self._running = None
            while not self._queue and not self._closing:
                self._changed.wait()
            if self._closing:
                return None
            self._running = self._queue.popleft()
            return self._running

    def _answer(self, loaded: Loaded, job: _Job) -> None:
        self._turn = turn = _Turn(self._turn_s, self._others_wait)
        steps = job.steps or answer(
            loaded, job.request, job.cancelled, self._turn_is_over
        )
        job.steps = None
        for event in steps:
            if isinstance(event, Paused):
                with self._changed:
                    job.steps = steps
                    self._queue.append(job)
                break
            # Cancelled by ``close``, not by the caller: it must not look like an end.
            if self._closing and isinstance(event, Done):
                raise EngineClosedError("the engine was closed")
            job.post(event)
        # Of the last few, so that the estimate follows the current load.
        self._usual_turn_s += (turn.took_s() - self._usual_turn_s) / 4

    def _turn_is_over(self) -> bool:
        # An answer takes several turns; this refers to the current one.
        return self._turn.is_over()

    def _fail(self) -> None:
        with self._changed:
            self._failed = True
            self._running = None
        self._drop(lambda _: True)

    def _drop(self, which: Callable[[_Job], bool], *, closed: bool = False) -> None:
        """End waiting jobs, and free what they hold."""
        with self._changed:
            dropped = [job for job in self._queue if which(job)]
            for job in dropped:
                self._queue.remove(job)
        for job in dropped:
            if job.steps is not None:
                # If the library fails once more, the others must be notified even so.
                with contextlib.suppress(InferenceError):
                    job.steps.close()
                job.steps = None
            job.post(
                EngineClosedError("the engine was closed")
                if closed
                else EngineFailedError("the engine failed earlier")
            )


def available_cpus() -> int:
    """Return how many CPUs this process may use, at most ``MAX_THREADS``."""
    if hasattr(os, "sched_getaffinity"):
        return min(len(os.sched_getaffinity(0)), MAX_THREADS)
    return min(os.cpu_count() or 1, MAX_THREADS)


def _refuse_split(model: Model) -> None:
    # The further files of a split model are not verified.
    if model.metadata("split.count") not in {"", "0", "1"}:
        raise ModelFileError("the model is split over several files")


def _template_of(model: Model) -> tuple[ChatTemplate, str]:
    source = model.chat_template()
    if not source:
        raise TemplateError("the model file holds no chat template")
    begin, end = model.marker_texts()
    return ChatTemplate(source, bos_token=begin, eos_token=end), source


def _public(problem: Exception) -> InferenceError:
    """Return the error that the caller may see: ours unchanged, else without cause."""
    # Without its traceback: the frames hold the request, and the caller may keep the
    # error for long.
    if isinstance(problem, NativeError):
        return NativeError(problem.call, problem.code)
    if isinstance(problem, InferenceError):
        return problem.with_traceback(None)
    return EngineFailedError("the engine failed while it worked on this request")
