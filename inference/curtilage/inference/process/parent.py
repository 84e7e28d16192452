"""Our end of the pipe: starts, watches and replaces the engine's process.

It is an engine as the Protocol says. If its process ends or hangs, every running
request gets an error at once, and another process is started: immediately, then after
pauses that double while it keeps ending. Nothing of the engine's own code is imported
here.
"""

import asyncio
import math
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self, cast

from typing_extensions import override

from curtilage.inference.errors import (
    EngineBusyError,
    EngineClosedError,
    EngineCrashedError,
    EngineFailedError,
    EngineHungError,
    EngineRestartingError,
    InferenceError,
    ModelDigestError,
    ModelFileError,
)
from curtilage.inference.modelfile import ModelFile, open_model_file
from curtilage.inference.process.codec import (
    DRAW_S,
    ERROR,
    LOADED,
    STEPS,
    TRIAL,
    TURN_S,
    WALL,
    Plan,
    error_from_value,
    from_value,
    one_of,
    to_value,
)
from curtilage.inference.process.starting import HereStarts, Started, Starts
from curtilage.inference.protocol import (
    MAX_CALLS,
    Called,
    CancelToken,
    Done,
    EngineInfo,
    Event,
    GenerateRequest,
    Load,
    Token,
)
from curtilage.inference.settings import lower_priority
from curtilage.sandbox.parent import processor_s
from curtilage.sandbox.pipe import FrameReader, encode_frame
from curtilage.sandbox.wall import Wall

if TYPE_CHECKING:
    from curtilage.sandbox.trial import Trial

MAX_EVENT_BYTES: Final = 4 << 20
"""One tool call may have the text of a whole answer."""
MAX_TOKEN_CHARS: Final = 1024
"""On average over an answer; no model's vocabulary has tokens as long."""
EXIT_S: Final = 2.0
"""How long a process whose pipe has ended may take to end too."""
_LOOKS: Final = 8
_IDLE: Final = 0.01
"""A process that uses less of one processor than this does nothing."""
_LOADS: Final = 10
"""How much longer it may do nothing while it loads: it may wait for a disk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """When a process counts as hung, and when another one is started.

    Attributes:
        quiet_s: how long it may neither progress nor compute while requests run; ten
            times as long while it loads.
        busy_s: how long it may compute without progress, in processor time of each of
            its threads. A step of a large model takes minutes on a slow machine.
        draw_s: how long it may take to draw one token, as it reports it. Seconds are
            usual only with the largest grammars, on a busy machine.
        patience_s: how long a request waits for a process that is being started.
        pause_s: before the second attempt of several that fail; then it doubles.
        longest_pause_s: the longest pause.
    """

    quiet_s: float = 60.0
    busy_s: float = 600.0
    draw_s: float = 30.0
    patience_s: float = 10.0
    pause_s: float = 1.0
    longest_pause_s: float = 30.0


USUAL: Final = Watch()
Why = Callable[[], InferenceError]
"""Makes an error anew for each caller: a raised one holds the frames that it passed."""


class _Stream:
    """The events of one request, from the process to its caller."""

    def __init__(self, request: GenerateRequest) -> None:
        self.out: asyncio.Queue[Event | InferenceError] = asyncio.Queue()
        self.left = False
        # More come only from a process that does not do what ours does. It must not
        # fill this one's memory.
        settings = request.settings
        self._rest = 2 * settings.max_tokens + MAX_CALLS + _LOOKS
        self._top = settings.top_logprobs
        each = MAX_TOKEN_CHARS * (2 + self._top)
        self._chars = MAX_EVENT_BYTES + settings.max_tokens * each

    def expects(self, item: Event | InferenceError) -> bool:
        """Count one more; return whether an answer to this request may have it."""
        self._rest -= 1
        if isinstance(item, Token):
            top = sum(len(each.data) for each in item.top)
            self._chars -= len(item.text) + len(item.data) + top
        elif isinstance(item, Called):
            self._chars -= len(item.call.name) + len(item.call.arguments)
        return min(self._rest, self._chars) >= 0 and (
            not isinstance(item, Token) or len(item.top) <= self._top
        )


class _Child(asyncio.Protocol):
    """One process, from its start to its end, in this event loop.

    Args:
        plan: its first frame.
        starts: starts it.
        take: takes each of its values; raises ValueError if it is none.
    """

    def __init__(
        self, plan: Plan, starts: Starts, take: Callable[[object], None]
    ) -> None:
        self._plan = plan
        self._starts = starts
        self._take = take
        self._reader = FrameReader(MAX_EVENT_BYTES)
        self._process: Started | None = None
        self._to: asyncio.WriteTransport | None = None
        self._from: asyncio.BaseTransport | None = None
        self.ended: asyncio.Future[Why | None] = (
            asyncio.get_running_loop().create_future()
        )
        """Why it must be ended; None: its pipe has ended."""

    @property
    def pid(self) -> int:
        return 0 if self._process is None else self._process.pid

    async def start(self) -> None:
        """Start it, and send the plan."""
        process = self._process = await self._starts.start(self._plan.lent)
        loop = asyncio.get_running_loop()
        self._to, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, process.to)
        self._from, _ = await loop.connect_read_pipe(lambda: self, process.from_)
        plan = replace(self._plan, lent=process.lent)
        self._to.write(encode_frame(to_value(plan)))

    def say(self, value: object) -> None:
        """Send a value, if the process still reads."""
        if self._to is not None and not self._to.is_closing():
            self._to.write(encode_frame(value))

    @override
    def data_received(self, data: bytes) -> None:
        """Take what the process wrote."""
        if self.ended.done():
            return
        try:
            for value in self._reader.feed(data):
                self._take(value)
        except (ValueError, RecursionError, InferenceError):
            # Without the cause, which may hold a text.
            self.fail(partial(EngineFailedError, "the engine's process sent no answer"))

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        """Note that the pipe has ended."""
        self.fail(None)

    def fail(self, why: Why | None) -> None:
        """Note why this process must be ended, once."""
        if not self.ended.done():
            self.ended.set_result(why)

    async def end(self) -> Why:
        """End it, with everything it holds; return why, as its callers are told."""
        if self._to is not None and not self._to.is_closing():
            self._to.abort()  # what was not written yet is dropped
        if self._from is not None:
            self._from.close()
        why = self.ended.result() if self.ended.done() else None
        if self._process is None:
            return why or EngineRestartingError
        # Its pipe may end shortly before it: then its own status says more.
        patience_s = EXIT_S if self.ended.done() and why is None else 0.0
        try:
            status = await self._starts.reap(self._process.pid, patience_s)
        except EngineFailedError as lost:
            return why or partial(EngineFailedError, str(lost))
        finally:
            for pipe in (self._process.to, self._process.from_):
                pipe.close()  # a transport has closed it already, if any
        return why or partial(EngineCrashedError, status)


class _Files:
    """The files of a plan, open, and their hashing."""

    def __init__(self, files: list[ModelFile], niceness: int) -> None:
        self._files = files
        self._niceness = niceness
        self.lent = tuple(each.descriptor for each in files)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def verified(self) -> Why | None:
        """Hash them; return what is wrong."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Why | None] = loop.create_future()

        def tell(why: Why | None) -> None:
            if not done.cancelled():
                done.set_result(why)

        def hashed() -> None:
            # In a thread of its own, whose niceness cannot be taken back.
            lower_priority(self._niceness)
            why = self._wrong(ModelFile.verify)
            with suppress(RuntimeError):  # the loop is closed, and no caller waits
                loop.call_soon_threadsafe(tell, why)

        threading.Thread(target=hashed, daemon=True).start()
        return await done

    def changed(self) -> Why | None:
        """Return what is wrong if one was written to, or replaced, since."""
        return self._wrong(ModelFile.check_unchanged)

    def _wrong(self, check: Callable[[ModelFile], None]) -> Why | None:
        try:
            for each in self._files:
                check(each)
        except InferenceError as problem:
            return _same(problem)
        return None

    def close(self) -> None:
        for each in self._files:
            each.close()


def _opened(plan: Plan) -> _Files:
    """Open the files of a plan.

    Raises:
        ModelFileError: one is missing, or no model file.
    """
    files: list[ModelFile] = []
    try:
        for path, sha256 in plan.files:
            files.append(open_model_file(path, sha256))
    except BaseException:
        for each in files:
            each.close()
        raise
    return _Files(files, plan.settings.niceness)


def _same(problem: InferenceError) -> Why:
    """Return how to make an error of a file again."""
    if isinstance(problem, ModelDigestError):
        return partial(ModelDigestError, expected=problem.expected, found=problem.found)
    return partial(ModelFileError, str(problem))


def _ignore(_problem: InferenceError | None) -> None:
    """Do nothing."""


@dataclass(slots=True)
class _Progress:
    """What the watch has seen of a process."""

    seen: int = -1
    quiet: int = 0
    used_s: float = 0.0
    since_s: float = 0.0

    def is_hung(
        self, progress: int, used_s: float | None, look_s: float, busy_s: float
    ) -> bool:
        """Look once; return whether it hangs. Its processor time may be unknown."""
        computed = 0.0 if used_s is None else used_s - self.used_s
        self.used_s = used_s or 0.0
        if progress != self.seen:
            self.seen, self.quiet, self.since_s = progress, 0, self.used_s
            return False
        self.quiet = self.quiet + 1 if computed < _IDLE * look_s else 0
        return self.quiet >= _LOOKS or self.used_s - self.since_s >= busy_s


class EngineProcess:
    """The Protocol's engine, in a process of its own; for one event loop.

    Args:
        plan: what the process loads; its paths are absolute.
        watch: when it is replaced.
        starts: starts the process; None: it is a child of this one.

    Attributes:
        changed: called with the error when no process can answer, and with None when
            one can again.
        restarts: how many processes were replaced.
    """

    def __init__(
        self, plan: Plan, *, watch: Watch = USUAL, starts: Starts | None = None
    ) -> None:
        self._plan = plan
        self._starts = starts or HereStarts()
        # Counted here, where it is known how many are held: the process counts those as
        # waiting that it has not admitted yet.
        limits = replace(
            plan.settings, max_queued=plan.settings.max_queued + plan.settings.sequences
        )
        self._sent = replace(plan, settings=limits)
        self._watch = watch
        self.changed: Callable[[InferenceError | None], object] = _ignore
        self._streams: dict[int, _Stream] = {}
        self._waiting = 0
        self._number = 0
        self._progress = 0
        self._steps = -1
        self._turn_s = 0.0
        self._info: EngineInfo | None = None
        self._wall: Wall | None = None
        self._trial: Trial | None = None
        self._child: _Child | None = None
        self._loading: asyncio.Future[EngineInfo] | None = None
        # Set while it is known whether a process answers; ``_down`` says why none does.
        self._settled = asyncio.Event()
        self._down: Why | None = None
        self._supervising: asyncio.Task[None] | None = None
        self._started: asyncio.Future[None] | None = None
        self._closed = False
        self.restarts = 0

    @property
    def info(self) -> EngineInfo:
        """The loaded model; see the Protocol."""
        if self._info is None or self._closed:
            raise EngineClosedError("the engine is not running")
        return self._info

    @property
    def is_running(self) -> bool:
        """Whether it was started and not closed, even if no process answers now."""
        return self._info is not None and not self._closed

    @property
    def wall(self) -> Wall | None:
        """The layers around the process, as it reports them; None before ``start``."""
        return self._wall

    @property
    def trial(self) -> "Trial | None":
        """What the process found when it tried its wall, if the plan demands that."""
        return self._trial

    @property
    def pid(self) -> int | None:
        """The process's id; None while there is none."""
        return None if self._child is None else self._child.pid

    async def start(self) -> None:
        """Start the process, which loads the model; see the Protocol."""
        if self._closed:
            raise EngineClosedError("the engine was closed")
        if self._started is None:
            self._started = asyncio.get_running_loop().create_future()
            self._supervising = asyncio.create_task(self._supervise(self._started))
        # Shielded: a caller that gives up does not stop the loading.
        await asyncio.shield(self._started)

    async def generate(
        self, request: GenerateRequest, *, cancel: CancelToken | None = None
    ) -> AsyncGenerator[Event]:
        """Answer; see the Protocol.

        Raises:
            EngineCrashedError: the process ended meanwhile.
            EngineHungError: it made no progress, and was ended.
            EngineRestartingError: no process was ready in time.
        """
        child = await self._ready()
        stream, token = _Stream(request), cancel or CancelToken()
        self._number = number = self._number + 1
        # First: what cannot be sent must hold no place.
        child.say([number, to_value(request)])
        self._streams[number] = stream
        loop = asyncio.get_running_loop()

        def withdraw() -> None:
            """Have the process stop this answer; called from any thread."""
            with suppress(RuntimeError):  # the loop is closed, and no caller waits
                loop.call_soon_threadsafe(child.say, [number])

        token.subscribe(withdraw)
        try:
            while True:
                item = await stream.out.get()
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
            token.unsubscribe(withdraw)
            stream.left = True
            if number in self._streams:
                child.say([number])

    def load(self) -> Load:
        """Return how busy the engine is now."""
        held, info = len(self._streams) + self._waiting, self._info
        sequences = 1 if info is None else info.sequences
        # That many must end or give way before a new one begins.
        ahead = max(0, held - sequences + 1)
        return Load(
            running=min(held, sequences),
            queued=max(0, held - sequences),
            max_queued=self._plan.settings.max_queued,
            wait_s=ahead * self._turn_s / sequences,
        )

    async def close(self) -> None:
        """End the process and every stream; see the Protocol."""
        self._closed = True
        self._settled.set()
        if self._supervising is not None:
            self._supervising.cancel()
            with suppress(asyncio.CancelledError):
                await self._supervising

    async def _ready(self) -> _Child:
        """Return the process that answers, or wait for it."""
        if self._started is None or self._closed:
            raise EngineClosedError("the engine is not running")
        room = self.info.sequences + self._plan.settings.max_queued
        if len(self._streams) + self._waiting >= room:
            raise EngineBusyError("too many requests are waiting")
        self._waiting += 1
        try:
            async with asyncio.timeout(self._watch.patience_s):
                await self._settled.wait()
        except TimeoutError:
            raise EngineRestartingError from None
        finally:
            self._waiting -= 1
        if self._closed:
            raise EngineClosedError("the engine was closed")
        if self._down is not None:
            raise self._down()
        if self._child is None:
            raise EngineRestartingError
        return self._child

    # The process.

    async def _supervise(self, started: "asyncio.Future[None]") -> None:
        """Keep a process running; end if the first one cannot load the model."""
        failures = 0
        try:
            while True:
                why, served = await self._lived(started)
                if not started.done():
                    started.set_exception(why())
                    return
                # One that has served is replaced at once.
                failures = 0 if served else failures + 1
                self._replace(why, failed=not served)
                if failures:
                    await asyncio.sleep(self._pause_s(failures))
        finally:
            self._drop(partial(EngineClosedError, "the engine was closed"))
            if not started.done():
                started.set_exception(EngineClosedError("the engine was closed"))
                started.exception()  # perhaps no caller waits

    def _pause_s(self, failures: int) -> float:
        limits = self._watch
        return min(limits.pause_s * 2.0 ** min(failures - 1, 9), limits.longest_pause_s)

    def _replace(self, why: Why, *, failed: bool) -> None:
        """Tell every caller that the process is gone."""
        self.restarts += 1
        if failed:
            # The next callers need not wait: why it fails is known.
            self._down = why
            self._settled.set()
        else:
            self._settled.clear()
        self._drop(why)
        self.changed(why())

    def _drop(self, why: Why) -> None:
        streams, self._streams = self._streams, {}
        for stream in streams.values():
            if not stream.left:
                stream.out.put_nowait(why())

    async def _lived(self, started: "asyncio.Future[None]") -> tuple[Why, bool]:
        """Run one process as ``_live``, whatever keeps it from being started."""
        try:
            return await self._live(started)
        except Exception:  # noqa: BLE001 - no descriptor, thread or memory is left
            # Without the cause. Another attempt may succeed.
            why = partial(EngineFailedError, "the engine's process cannot be started")
            return why, False

    async def _live(self, started: "asyncio.Future[None]") -> tuple[Why, bool]:
        """Run one process until it ends; return why, and whether it had loaded."""
        loading = self._loading = asyncio.get_running_loop().create_future()
        opening = asyncio.ensure_future(asyncio.to_thread(_opened, self._plan))
        try:
            files = await asyncio.shield(opening)
        except asyncio.CancelledError:
            with suppress(InferenceError):
                (await opening).close()
            raise
        except InferenceError as problem:
            return _same(problem), False
        with files:
            child = self._child = _Child(
                replace(self._sent, lent=files.lent), self._starts, self._take
            )
            watching = asyncio.create_task(self._watch_over(child, loading))
            wrong: Why | None = None
            try:
                await child.start()
                # While the process loads them: it is confined, and gets no request
                # before. Not in that process: a file that has taken it over would
                # report any digest.
                wrong = await files.verified()
                await asyncio.wait(
                    {loading, child.ended}, return_when=asyncio.FIRST_COMPLETED
                )
                wrong = wrong or files.changed()
                if wrong is None and not child.ended.done():
                    files.close()
                    self._serve(loading.result(), started)
                    await asyncio.wait({child.ended})
            finally:
                self._child = None
                watching.cancel()
                why = await child.end()
        return wrong or why, wrong is None and loading.done()

    def _serve(self, info: EngineInfo, started: "asyncio.Future[None]") -> None:
        """Let requests reach the process, which has loaded its model."""
        self._info, self._down = info, None
        self._settled.set()
        if not started.done():
            started.set_result(None)
        else:
            self.changed(None)

    async def _watch_over(
        self, child: _Child, loading: "asyncio.Future[EngineInfo]"
    ) -> None:
        """End a process that hangs."""
        look_s = self._watch.quiet_s / _LOOKS
        seen = _Progress()
        while True:
            await asyncio.sleep(look_s if loading.done() else look_s * _LOADS)
            used_s = processor_s(child.pid)
            if not self._streams and loading.done():
                seen = _Progress(used_s=used_s or 0.0)
            elif seen.is_hung(self._progress, used_s, look_s, self._busy_s()):
                child.fail(EngineHungError)

    def _busy_s(self) -> float:
        threads = 1 if self._info is None else self._info.threads
        return self._watch.busy_s * threads

    def _take(self, value: object) -> None:
        """Take one value of the process.

        Raises:
            ValueError: it is none that is due.
            InferenceError: a value of it is refused.
        """
        loading = self._loading
        if loading is not None and not loading.done():
            self._take_loaded(value, loading)
        elif isinstance(value, dict):
            self._take_beat(cast("dict[str, object]", value))
        elif isinstance(value, list):
            self._take_item(cast("list[object]", value))
        else:
            raise ValueError("a process sends objects and lists")

    def _take_beat(self, beat: dict[str, object]) -> None:
        steps, turn_s = beat.get(STEPS), beat.get(TURN_S)
        draw_s = beat.get(DRAW_S, 0.0)
        if (
            type(steps) is not int
            or type(turn_s) is not float
            or type(draw_s) is not float
        ):
            raise ValueError("a process reports steps and times")
        # Else it only says that a draw goes on.
        if steps != self._steps:
            self._steps = steps
            self._progress += 1
        self._turn_s = turn_s if 0 <= turn_s < math.inf else 0.0
        if draw_s >= self._watch.draw_s and self._child is not None:
            self._child.fail(EngineHungError)

    def _take_loaded(
        self, value: object, loading: "asyncio.Future[EngineInfo]"
    ) -> None:
        if not isinstance(value, dict):
            raise ValueError("a process reports its model first")  # noqa: TRY004 - of bytes
        fields = cast("dict[str, object]", value)
        child = self._child
        if ERROR in fields:
            error_from_value(fields, loading=True)  # refuses what is none
            if child is not None:
                child.fail(partial(error_from_value, fields, loading=True))
            return
        info = from_value(EngineInfo, fields.get(LOADED))
        self._wall = Wall.from_fields(fields.get(WALL))
        self._take_trial(fields.get(TRIAL))
        expected = self._info or info
        if (info.model_sha256, info.adapter_sha256, info.template_sha256) != (
            self._plan.sha256,
            self._plan.adapter_sha256,
            expected.template_sha256,
        ):
            # What evidence and certificates name is no longer what would answer.
            raise ValueError("a process loaded another model")
        if info.isolation != self._plan.isolation:
            raise ValueError("a process separates requests in another way")
        if self._plan.tried and (info.ephemerality, info.paging) != (
            expected.ephemerality,
            expected.paging,
        ):
            # As with its wall: evidence states it.
            raise ValueError("a process forgets in another way than the one before")
        loading.set_result(info)

    def _take_trial(self, fields: object) -> None:
        """Take what the process found, which is to be what the first one found.

        Raises:
            ValueError: it is something else.
        """
        if self._plan.tried != (fields is not None):
            raise ValueError("a process tries its wall if the plan demands that")
        if fields is None:
            return
        from curtilage.sandbox.trial import Trial  # noqa: PLC0415 - on Linux

        trial = Trial.from_fields(fields)
        if self._trial is not None and self._trial != trial:
            # What evidence states of it would no longer be true.
            raise ValueError("a process has another wall than the one before")
        self._trial = trial

    def _take_item(self, value: list[object]) -> None:
        number, item = cast("list[Any]", value)
        if type(number) is not int:
            raise ValueError("an event names its request by a number")
        stream = self._streams.get(number)
        read: Event | InferenceError
        fields = cast("dict[str, object]", item if isinstance(item, dict) else {})
        if ERROR in fields:
            read = error_from_value(fields, loading=False)
        else:
            read = cast("Event", one_of(Event, fields))
        if stream is None or not stream.expects(read):
            raise ValueError("an event that no request is due")
        self._progress += 1
        if isinstance(read, Done | InferenceError):
            del self._streams[number]
        if not stream.left:
            stream.out.put_nowait(read)
