"""The engine: one thread that owns the model, with callbacks, or with asyncio.

Several requests are answered at a time, each in a sequence of its own; ``planner``
plans the steps. If more wait than there are sequences, one that has been read or
written for a while gives way to them, and continues later. So a few long prompts or
answers cannot block all others. The queue is bounded. Every error in the owner thread
reaches all callers that wait for it.

What an answer leaves is erased before its end is reported: with the whole context once
no other runs, else its sequence, and the library's copies of the tokens read last. Then
the library's threads may still hold numbers computed from it, for ``RENEW_S`` at most.
"""

import asyncio
import contextlib
import hashlib
import threading
import time
from collections.abc import AsyncGenerator, Callable, Generator
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from curtilage.inference import decoding
from curtilage.inference.batch import (
    LEAST_CHUNK,
    PREFILL_CHUNK,
    READ_TOGETHER,
    Phase,
    Piece,
)
from curtilage.inference.decoding import Answer, Loaded, measure_costs
from curtilage.inference.errors import (
    EngineBusyError,
    EngineClosedError,
    EngineFailedError,
    EngineMemoryError,
    InferenceError,
    ModelFileError,
    NativeError,
    RequestError,
    TemplateError,
)
from curtilage.inference.modelfile import ModelFile
from curtilage.inference.native import Context, Model, check_machine
from curtilage.inference.planner import Admission, Pause, Planner
from curtilage.inference.protocol import (
    CancelToken,
    Done,
    EngineInfo,
    Event,
    GenerateRequest,
    Load,
    Started,
    Usage,
)
from curtilage.inference.settings import (
    DEFAULTS,
    EngineSettings,
    available_cpus,
    lower_priority,
)
from curtilage.inference.shape import GRAMMARS_BYTES
from curtilage.inference.structured import AnswerForm, demands, form_of
from curtilage.inference.templates import ChatTemplate

CHARS_PER_TOKEN: Final = 4  # English; good enough to decide which one waits longer
GRAMMAR_CHARS: Final = 16
"""So much of a grammar takes about as long to convert and read as a character of a
prompt. Both are work that a request has others wait for."""
DRAWS_S: Final = 10.0
DRAW_S: Final = 0.05
"""How long an answer's tokens may be compared with its grammar, in processor time: in
all, and in addition for each token. Others wait meanwhile."""
KEPT_CONTEXTS: Final = 1
"""How many contexts the saved keys and values of requests that give way may fill; what
is not saved is read again. So much memory is planned for (``contexts_at_once``)."""
PAUSE_S: Final = 0.35
"""How long the others may wait for a piece of a new prompt, in processor time."""
RENEW_S: Final = 10.0
"""How long buffers of the library's threads may hold numbers of an answer that has
ended while others continue; then the context is replaced under them."""

Deliver = Callable[[Event | InferenceError], bool]

_NEVER_RAN: Final = Done(
    usage=Usage(prompt_tokens=0, completion_tokens=0), finish="cancelled"
)


@dataclass(slots=True, kw_only=True, eq=False)
class _Job:
    """One request in progress, shared by its caller and the owner thread."""

    request: GenerateRequest = field(repr=False)
    form: AnswerForm = field(repr=False)
    token: CancelToken
    deliver: Deliver = field(repr=False)
    abandoned: threading.Event = field(default_factory=threading.Event)
    ticket: int = -1
    sequence: int = -1
    answer: Answer | None = field(default=None, repr=False)
    turn: "_Turn | None" = None
    drawn_s: float = 0.0

    def post(self, item: Event | InferenceError) -> None:
        if not self.deliver(item):
            self.abandoned.set()

    def cancelled(self) -> bool:
        return self.abandoned.is_set() or self.token.cancelled

    @property
    def chars(self) -> int:
        """How many characters of a prompt are about as much work, without writing."""
        return self.request.chars + len(self.form.grammar) // GRAMMAR_CHARS

    def draws_too_long(self) -> bool:
        """Whether its tokens took too long to compare with its grammar."""
        if not self.form.grammar or self.answer is None:
            return False
        return draws_too_long(self.drawn_s, self.request, self.answer)

    def done(self) -> Done:
        """Return its end, if it is cancelled now."""
        return _NEVER_RAN if self.answer is None else self.answer.done("cancelled")


def draws_too_long(drawn_s: float, request: GenerateRequest, answer: Answer) -> bool:
    """Whether an answer's tokens took too long to compare with its grammar.

    Args:
        drawn_s: how long, in processor time.
        request: with a grammar.
        answer: to it, so far.
    """
    drawn = request.settings.max_tokens - answer.remaining
    return drawn_s > DRAWS_S + DRAW_S * drawn


@dataclass(frozen=True, slots=True)
class _Leaving:
    """A sequence to be erased, and what is to be reported then.

    Attributes:
        sequence: None: the job has none.
        job: None: it only gives way.
        item: its end.
    """

    sequence: int | None
    job: _Job | None = None
    item: "Done | InferenceError | None" = field(default=None, repr=False)


class _Turn:
    """The time of one request's turn, from now on.

    Args:
        least_s: of reading, and then again of writing.
        others: whether other requests wait.
    """

    def __init__(self, least_s: float, others: Callable[[], bool]) -> None:
        self._least_s = least_s
        self._others = others
        self._began = time.monotonic()
        self._end = self._began + least_s
        self._writes = False

    def prepared(self) -> None:
        """Begin to read; the turn is at least as long as its preparation was.

        So half of the time or more is not spent on what was saved.
        """
        now = time.monotonic()
        self._least_s = max(self._least_s, now - self._began)
        self._end = now + self._least_s

    def is_over(self, *, writes: bool) -> bool:
        """Whether to make room.

        Args:
            writes: something was written.
        """
        now = time.monotonic()
        if writes and not self._writes:
            self._writes = True
            self._end = now + self._least_s
        return now >= self._end and self._others()

    def took_s(self) -> float:
        """Return how long it has taken, or would have if others had waited."""
        return min(time.monotonic(), self._end) - self._began


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """A loaded model without a context.

    Attributes:
        model: see ``Loaded``.
        template: likewise.
        info: of the model; not yet of a context.
    """

    model: Model
    template: ChatTemplate
    info: EngineInfo


def load(
    file: ModelFile, adapter: ModelFile | None = None, *, gpu_layers: int = 0
) -> Weights:
    """Verify files, load and close them.

    Raises:
        EngineFailedError: this machine, or this build, is not suitable.
        ModelFileError: a file is not the expected one, or cannot be used.
        TemplateError: the model has no usable chat template.
    """
    check_machine()
    files = (file,) if adapter is None else (file, adapter)
    # Before the library reads a byte: it parses the file.
    for each in files:
        each.verify()
    model = Model(
        str(file.load_path),
        adapter=None if adapter is None else str(adapter.load_path),
        gpu_layers=gpu_layers,
    )
    try:
        # After the loading, not before: the hashed file is the loaded one.
        for each in files:
            each.check_unchanged()
        _refuse_split(model)
        template, source = _template_of(model)
    except BaseException:
        model.free()
        raise
    for each in files:
        each.close()
    info = EngineInfo(
        model_id="",
        model_sha256=file.sha256,
        template_sha256=hashlib.sha256(source.encode()).hexdigest(),
        architecture=model.metadata("general.architecture"),
        context_tokens=0,
        threads=0,
        adapter_sha256="" if adapter is None else adapter.sha256,
    )
    return Weights(model=model, template=template, info=info)


def context_of(
    model: Model, settings: EngineSettings, *, sequences: int = 1
) -> Context:
    """Return a context of this model for so many requests.

    Raises:
        EngineFailedError: the model's keys or values cannot be quantised.
        EngineMemoryError: there is too little memory.
    """
    return Context(
        model,
        tokens=min(settings.context_tokens, model.trained_context),
        threads=settings.threads or available_cpus(),
        least_tokens=settings.least_context_tokens,
        sequences=sequences,
        kv_type=settings.kv_type,
        flash_attention=settings.attention,
    )


class LlamaCppEngine:
    """The Protocol's engine, in this process, on llama.cpp.

    Args:
        model: open; verified before it is loaded, and closed once it is.
        model_id: a display name.
        adapter: a LoRA adapter made for this model; likewise.
        settings: its limits.
    """

    def __init__(
        self,
        model: ModelFile,
        *,
        model_id: str,
        adapter: ModelFile | None = None,
        settings: EngineSettings = DEFAULTS,
    ) -> None:
        self._file = model
        self._adapter = adapter
        self._model_id = model_id
        self._settings = settings
        self._threads = settings.threads or available_cpus()
        self._usual_turn_s = 0.0
        # Guards the planner and the jobs; only the owner thread lets any of them run.
        self._changed = threading.Condition()
        self._planner = Planner(
            sequences=settings.sequences, max_waiting=settings.max_queued
        )
        self._jobs: dict[int, _Job] = {}
        self._leaving: list[_Leaving] = []
        self._stale_since: float | None = None
        self._running = 0
        self._steps = 0
        self._draws = 0
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
        # Shielded: a caller that gives up does not stop the loading.
        await asyncio.shield(asyncio.wrap_future(self.begin()))

    def begin(self) -> Future[EngineInfo]:
        """Begin to load the model; the future raises as ``start``.

        Raises:
            EngineClosedError: the engine was closed.
        """
        with self._changed:
            if self._closing:
                raise EngineClosedError("the engine was closed")
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._own, name="curtilage-engine", daemon=True
                )
                self._thread.start()
        return self._ready

    async def generate(
        self, request: GenerateRequest, *, cancel: CancelToken | None = None
    ) -> AsyncGenerator[Event]:
        """Answer; see the Protocol."""
        # In a thread: neither the loop, which sends, nor the owner thread, which others
        # wait for, may take seconds for one request's schemas.
        try:
            form = (
                await asyncio.to_thread(form_of, request, time.thread_time)
                if demands(request)
                else AnswerForm()
            )
        except InferenceError as problem:
            raise _public(problem) from None
        loop = asyncio.get_running_loop()
        out: asyncio.Queue[Event | InferenceError] = asyncio.Queue()

        def deliver(item: Event | InferenceError) -> bool:
            """Hand an event to the caller's loop; False: it is closed."""
            try:
                loop.call_soon_threadsafe(out.put_nowait, item)
            except RuntimeError:
                return False  # the caller's loop is closed
            return True

        leave = self.submit(request, form, deliver, cancel or CancelToken())
        try:
            while True:
                item = await out.get()
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
            leave()

    def submit(
        self,
        request: GenerateRequest,
        form: AnswerForm,
        deliver: Deliver,
        token: CancelToken,
    ) -> Callable[[], None]:
        """Queue a request; return what its caller must call at its end, or before.

        Args:
            request: the request.
            form: what its schemas demand (``form_of``).
            deliver: takes each event, and at the end ``Done`` or the error; returns
                whether anyone still waits for more. Called by any thread, mostly the
                engine's, which waits for it.
            token: cancels; the end is reported.

        Raises:
            EngineBusyError: too many requests are waiting, or their grammars together
                are too large.
            EngineClosedError: the engine is not running.
            EngineFailedError: the engine failed earlier.
        """
        job = _Job(request=request, form=form, token=token, deliver=deliver)
        self._enqueue(job)
        withdraw = partial(self._withdraw, job)
        token.subscribe(withdraw)

        def leave() -> None:
            # Else job, token and callback form a cycle, with the request.
            token.unsubscribe(withdraw)
            job.abandoned.set()
            self._withdraw(job)

        return leave

    @property
    def steps(self) -> int:
        """How many steps the owner thread has completed: the sign that it lives."""
        return self._steps

    @property
    def draws(self) -> int:
        """How often the owner thread has begun or ended to use a grammar or sampler.

        Odd while it does: nothing can stop the library then.
        """
        return self._draws

    @property
    def usual_turn_s(self) -> float:
        """How long recent turns took, in seconds."""
        return self._usual_turn_s

    def load(self) -> Load:
        """Return how busy the engine is now."""
        with self._changed:
            running, queued = self._running, self._planner.waiting
            sequences = self._planner.sequences
            # That many must end or give way before a new one begins.
            ahead = max(0, self._planner.running + queued - sequences + 1)
            return Load(
                running=running,
                queued=queued,
                max_queued=self._settings.max_queued,
                wait_s=ahead * self._usual_turn_s / sequences,
            )

    def wait(self) -> None:
        """Wait until the engine has stopped: it was closed, or nothing works any more.

        Every caller was told by then.
        """
        if self._thread is not None:
            self._thread.join()

    async def close(self) -> None:
        """Stop, end every stream, free the model; see the Protocol."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        await asyncio.to_thread(self.wait)
        for file in self._files:
            file.close()

    @property
    def _files(self) -> tuple[ModelFile, ...]:
        return (self._file,) if self._adapter is None else (self._file, self._adapter)

    # The caller's side.

    def _enqueue(self, job: _Job) -> None:
        with self._changed:
            if self._failed:
                raise EngineFailedError("the engine failed earlier")
            if self._closing or not self._ready.done() or self._ready.exception():
                raise EngineClosedError("the engine is not running")
            # Also of those that wait: a paused answer keeps its sampler.
            held = sum(each.form.held_bytes for each in (job, *self._jobs.values()))
            if job.form.held_bytes and held > GRAMMARS_BYTES:
                raise EngineBusyError("too many requests have large schemas")
            job.ticket = self._planner.submit(
                job.chars // CHARS_PER_TOKEN,
                job.request.settings.max_tokens,
                alone=job.request.deterministic,
            )
            self._jobs[job.ticket] = job
            self._changed.notify()

    def _withdraw(self, job: _Job) -> None:
        """Remove a job that has not begun from the queue.

        The owner thread frees what a begun one holds, before its next step.
        """
        with self._changed:
            waits = self._planner.phase(job.ticket) is Phase.WAITING
            if not waits or job.answer is not None:
                return
            self._planner.retire(job.ticket)
            del self._jobs[job.ticket]
        job.post(_NEVER_RAN)

    def _others_wait(self) -> bool:
        return self._planner.waiting > 0

    # The owner thread's side.

    def _own(self) -> None:
        # The library's threads are started by this one.
        lower_priority(self._settings.niceness)
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
        weights = load(self._file, self._adapter, gpu_layers=self._settings.gpu_layers)
        model = weights.model
        try:
            context = self._context(model)
            costs = self._measure(context)
        except BaseException:
            model.free()
            raise
        self._planner = Planner(
            sequences=max(1, len(costs)),
            max_waiting=self._settings.max_queued,
            costs=costs,
        )
        info = replace(
            weights.info,
            model_id=self._model_id,
            context_tokens=context.size,
            threads=self._threads,
            sequences=self._planner.sequences,
        )
        return Loaded(model=model, template=weights.template, context=context), info

    def _context(self, model: Model) -> Context:
        return context_of(model, self._settings, sequences=self._planner.sequences)

    def _measure(self, context: Context) -> list[float]:
        """Return the costs of decoding several sequences; empty: only one is used."""
        if self._planner.sequences == 1:
            return []
        try:
            return measure_costs(context, self._planner.sequences)
        except EngineFailedError:
            # Too little memory, or a model whose sequences cannot be erased one by one.
            context.clear()
            return []

    def _serve(self, loaded: Loaded) -> None:
        while self._has_work():
            self._steps += 1
            try:
                self._advance(loaded)
            except Exception as problem:  # noqa: BLE001 - every waiter must hear
                context = self._start_over(loaded, problem)
                if context is None:
                    loaded.model.free()
                    return
                loaded = Loaded(
                    model=loaded.model, template=loaded.template, context=context
                )
        self._drop(EngineClosedError("the engine was closed"))
        loaded.context.free()
        loaded.model.free()

    def _has_work(self) -> bool:
        """Wait for work; False: the engine closes."""
        with self._changed:
            # Here, where no frame of this thread holds a job: see ``test_forgetting``.
            self._running = self._planner.running
            while not self._closing and not self._jobs:
                self._changed.wait()
            return not self._closing

    def _advance(self, loaded: Loaded) -> None:
        """Run one step, and whatever changes before it."""
        self._end_cancelled()
        self._give_way(loaded.context)
        self._settle(loaded.context)
        while (admission := self._admit()) is not None:
            self._begin(loaded, admission)
            # Those that were refused leave at once.
            self._settle(loaded.context)
        self._renew(loaded.context)
        with self._changed:
            step = self._planner.plan()
            self._running = self._planner.running
        for pieces in step.decodes:
            if not self._decode(loaded.context, pieces):
                break
        self._settle(loaded.context)

    def _end_cancelled(self) -> None:
        with self._changed:
            cancelled = [job for job in self._jobs.values() if job.cancelled()]
        for job in cancelled:
            self._end(job, job.done())

    def _give_way(self, context: Context) -> None:
        with self._changed:
            self._planner.room = int(context.size * KEPT_CONTEXTS)
            over = {
                job.ticket
                for job in self._jobs.values()
                if job.turn is not None
                and job.answer is not None
                and job.turn.is_over(writes=job.answer.has_begun)
            }
        while (pause := self._pause(over)) is not None:
            over.remove(pause.ticket)
            job = self._jobs[pause.ticket]
            if pause.saved and job.answer is not None:
                job.answer.saved = context.save(pause.sequence)
            self._end_turn(job)
            with self._changed:
                self._planner.give_way(pause.ticket, saved=pause.saved)
            self._leaving.append(_Leaving(pause.sequence))

    def _pause(self, over: set[int]) -> Pause | None:
        with self._changed:
            return self._planner.pause(over)

    def _admit(self) -> Admission | None:
        with self._changed:
            admission = self._planner.admit()
            self._running = max(self._running, self._planner.running)
            return admission

    def _begin(self, loaded: Loaded, admission: Admission) -> None:
        with self._changed:
            job = self._jobs[admission.ticket]
        job.sequence = admission.sequence
        job.turn = turn = _Turn(self._settings.turn_s, self._others_wait)
        try:
            answer = job.answer or self._new_answer(loaded, job)
            held = 0 if answer.saved is None else answer.saved.used
            with self._changed:
                begun = self._planner.begin(job.ticket, tokens=answer.size, held=held)
            if not begun:
                job.turn = None
                return
            _open(loaded.context, job.sequence, answer)
        except EngineFailedError:
            raise
        except InferenceError as problem:
            self._end(job, _public(problem))
            return
        turn.prepared()

    def _new_answer(self, loaded: Loaded, job: _Job) -> Answer:
        """Return the answer of a job that begins.

        Raises:
            ContextTooLongError: prompt and answer do not fit.
            RequestError: the model cannot take these turns, or draw so.
        """
        settings, form = job.request.settings, job.form
        prompt = decoding.build_prompt(
            loaded,
            job.request.messages,
            settings.max_tokens,
            tools=form.tools,
            note=form.note,
        )
        with self._drawing():
            job.answer = Answer(loaded.model, prompt, settings, form)
        job.post(Started(prompt_tokens=len(prompt)))
        return job.answer

    def _decode(self, context: Context, pieces: tuple[Piece, ...]) -> bool:
        """Read tokens, and draw; False: it was stopped."""
        with self._changed:
            jobs = [self._jobs[piece.ticket] for piece in pieces]
            # Stopped in the middle, the whole context has to be cleared.
            alone = self._planner.running == 1
        rows = [
            row
            for job, piece in zip(jobs, pieces, strict=True)
            if job.answer is not None
            for row in job.answer.rows(piece)
        ]
        stops = partial(self._stops, jobs[0]) if alone and len(rows) > 1 else None
        began = time.thread_time()
        if not context.decode(rows, cancelled=stops):
            return False
        if len(rows) > self._planner.sequences:
            self._learn(len(rows), time.thread_time() - began)
        row = -1
        for job, piece in zip(jobs, pieces, strict=True):
            row += piece.count
            with self._changed:
                self._planner.note(piece)
            if piece.sampled and job.answer is not None:
                self._draw(context, row, job, job.answer)
        context.drop_logits()
        return True

    def _learn(self, tokens: int, took_s: float) -> None:
        """Read at a time as much of a prompt as is now read in ``PAUSE_S``."""
        # At once if it is slow, slowly if it is fast.
        chunk = min(int(tokens * PAUSE_S / max(took_s, 1e-9)), 2 * self._planner.chunk)
        chunk = max(LEAST_CHUNK, min(chunk, PREFILL_CHUNK))
        self._planner.chunk = chunk - chunk % READ_TOGETHER

    def _stops(self, job: _Job) -> bool:
        return self._closing or job.cancelled()

    def _draw(self, context: Context, row: int, job: _Job, answer: Answer) -> None:
        began = time.thread_time()
        try:
            with self._drawing():
                events = list(answer.draw(context, row))
        except RequestError as problem:
            # Of this request alone: no token fulfils its grammar, for one.
            self._end(job, _public(problem))
            return
        job.drawn_s += time.thread_time() - began
        for event in events:
            job.post(event)
        if answer.finish is not None:
            self._end(job, answer.done(answer.finish))
        elif job.draws_too_long():
            self._end(job, RequestError("the answer's form takes too long to enforce"))

    @contextlib.contextmanager
    def _drawing(self) -> Generator[None]:
        self._draws += 1
        try:
            yield
        finally:
            self._draws += 1

    def _end(self, job: _Job, item: Done | InferenceError) -> bool:
        """End a job; False: it had ended.

        The caller hears of it once its sequence is erased.
        """
        with self._changed:
            # Since the list was made that it is in, its caller may have withdrawn it.
            if self._jobs.pop(job.ticket, None) is None:
                return False
            sequence = self._planner.retire(job.ticket)
        self._leaving.append(_Leaving(sequence, job, item))
        self._end_turn(job)
        if job.answer is not None:
            job.answer.free()
        return True

    def _end_turn(self, job: _Job) -> None:
        if job.turn is not None:
            # Of the last few, so that the estimate follows the current load.
            self._usual_turn_s += (job.turn.took_s() - self._usual_turn_s) / 4
            job.turn = None

    def _settle(self, context: Context) -> None:
        """Erase what the ended ones left, and then report their ends."""
        left = [each.sequence for each in self._leaving if each.sequence is not None]
        if left and not self._planner.running:
            context.clear()
            self._stale_since = None
        else:
            read = [sequence for sequence in left if context.used(sequence)]
            for sequence in left:
                context.erase(sequence)
            if read:
                context.flush(read[-1])
                self._stale_since = self._stale_since or time.monotonic()
        with self._changed:
            for sequence in left:
                self._planner.erased(sequence)
        leaving, self._leaving = self._leaving, []
        for each in leaving:
            if each.job is not None and each.item is not None:
                # Cancelled by ``close``, not by the caller: no answer has ended so.
                each.job.post(
                    EngineClosedError("the engine was closed")
                    if self._closing
                    else each.item
                )

    def _renew(self, context: Context) -> None:
        """Replace the context if its buffers hold something of ended answers for long.

        Only while others run without a break: else it is replaced anyhow.
        """
        now = time.monotonic()
        if self._stale_since is None or now < self._stale_since + RENEW_S:
            return
        try:
            context.renew()
            self._stale_since = None
        except EngineMemoryError:
            self._stale_since = now

    def _start_over(self, loaded: Loaded, problem: Exception) -> Context | None:
        """After a failure: end what has begun, and return a new context, if any."""
        with self._changed:
            begun = [
                job
                for job in self._jobs.values()
                if job.answer is not None
                or self._planner.phase(job.ticket) is not Phase.WAITING
            ]
        # It may contain anything.
        for job in begun:
            had_sequence = job.turn is not None
            # Whatever fails once more, the others must be notified even so.
            with contextlib.suppress(Exception):
                self._end(
                    job,
                    _public(problem)
                    if had_sequence
                    else EngineFailedError("the engine failed earlier"),
                )
        leaving, self._leaving = self._leaving, []
        context: Context | None = None
        # Overwritten before it is freed, as far as the library still does that.
        with contextlib.suppress(InferenceError):
            loaded.context.clear()
        try:
            loaded.context.free()
            context = self._context(loaded.model)
        except Exception:  # noqa: BLE001 - every waiter must hear; nothing works now
            with self._changed:
                self._failed = True
                self._running = 0
        self._stale_since = None
        for each in leaving:
            if each.sequence is not None:
                with self._changed:
                    self._planner.erased(each.sequence)
            if each.job is not None:
                each.job.post(
                    each.item
                    if isinstance(each.item, InferenceError)
                    else _public(problem)
                )
        if context is None:
            self._drop(EngineFailedError("the engine failed earlier"))
        return context

    def _drop(self, reason: InferenceError) -> None:
        """End every job, and free what it holds."""
        with self._changed:
            dropped = list(self._jobs.values())
        for job in dropped:
            ended = True
            # Whatever fails once more, the others must be notified even so.
            with contextlib.suppress(Exception):
                ended = self._end(job, reason)
            if ended:
                job.post(type(reason)(*reason.args))
        self._leaving.clear()


def _open(context: Context, sequence: int, answer: Answer) -> None:
    """Make room for an answer, and restore what was saved of it.

    Raises:
        EngineBusyError: there is too little memory for one more sequence.
    """
    try:
        context.open(sequence, tokens=answer.size + answer.remaining)
    except EngineMemoryError:
        raise EngineBusyError("there is no memory for one more request") from None
    if answer.saved is None:
        return
    saved, answer.saved = answer.saved, None
    try:
        context.restore(saved, sequence)
    finally:
        saved.wipe()


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
    if isinstance(problem, EngineMemoryError):
        return EngineMemoryError(problem.context_tokens)
    if isinstance(problem, InferenceError):
        return problem.with_traceback(None)
    return EngineFailedError("the engine failed while it worked on this request")
