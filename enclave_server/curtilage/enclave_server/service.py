"""Starts the enclave: joins the parts in an order that fails closed.

Self-test, configuration, anchors, bound sockets, the lock and its self-test, model,
key, evidence, self-verification, and only then a listening socket. Progress is written
to standard error; standard output gets one line, when the server is ready.
"""

import asyncio
import contextlib
import gc
import json
import secrets
import signal
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, TypeVar

from curtilage.attest.sandbox import SandboxStatement
from curtilage.enclave_server.answer.challenger import Challenger
from curtilage.enclave_server.answer.pacing import LOOP_TIMER, Timer
from curtilage.enclave_server.answer.run import AnswersChat
from curtilage.enclave_server.config import EnclaveConfig
from curtilage.enclave_server.confinement import (
    Confined,
    lacking,
    require_closed,
    statement_of,
)
from curtilage.enclave_server.errors import (
    EnclaveError,
    EvidenceError,
    ModelError,
    OpeningError,
)
from curtilage.enclave_server.evidence.bundle import BundleKeeper, Held
from curtilage.enclave_server.evidence.release import read_anchors, read_release
from curtilage.enclave_server.evidence.report import (
    EvidenceSource,
    SocketEvidenceSource,
)
from curtilage.enclave_server.http.binding import Bound, bind, bind_path
from curtilage.enclave_server.http.context import RequestContext
from curtilage.enclave_server.http.server import EnclaveServer
from curtilage.enclave_server.http.tls import server_context
from curtilage.enclave_server.model import ServedModel, open_model
from curtilage.enclave_server.ohttp.chat import ChatLimits
from curtilage.enclave_server.ohttp.keys import KeyRing
from curtilage.enclave_server.process import OutputError
from curtilage.enclave_server.telemetry import (
    Counters,
    Event,
    LogForm,
    Reason,
    StateLog,
    silence_libraries,
)
from curtilage.wire.errors import SelfTestError
from curtilage.wire.hpke.self_test import self_test
from curtilage.wire.shaping import Shape

PROGRESS_S: Final = 2.0
SWITCH_S: Final = 0.0005
"""Time for which the engine's thread may delay the sending of a frame."""
NOT_RELEASED: Final = "this server is in one, and its release names none"
LOST: Final = (
    "the evidence process has ended, and this server, which has locked itself, can"
    " connect to no other; start it again"
)
NO_STARTER: Final = (
    "the process that starts engines has ended, and this server, which has locked"
    " itself, can start no other; start it again"
)
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """The service's dependencies; tests replace them.

    Attributes:
        out: takes the ready line.
        notice: takes one line for the error stream.
        open_model: makes a started model.
        open_evidence: makes the evidence source.
        lock: locks this process for good; None: it stays open, and states no sandbox.
        watch: calls back when the process that starts engines has ended; None: this one
            starts them.
        clock: aware UTC.
        log: the format of changes of state written to ``notice``.
        timer: the clock of frames.
    """

    out: Callable[[str], None]
    notice: Callable[[str], None]
    open_model: Callable[[EnclaveConfig], Awaitable[ServedModel]] = open_model
    open_evidence: Callable[[EnclaveConfig], EvidenceSource] = field(
        default=lambda config: SocketEvidenceSource(config.evidence)
    )
    lock: Callable[[], Confined] | None = None
    watch: Callable[[Callable[[], object]], object] | None = None
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    log: LogForm = LogForm.TEXT
    timer: Timer = LOOP_TIMER


async def serve_until_signalled(
    config: EnclaveConfig, surroundings: Surroundings
) -> None:
    """Run until SIGTERM or SIGINT, then finish running answers and stop.

    Raises:
        OpeningError: our HPKE fails its self-test.
        ConfigError: something that the configuration names is unusable.
        SandboxError: an attempt got out of the sandbox.
        ModelError: the model cannot be loaded, or what starts its engine has ended.
        EvidenceError: there is no evidence, or the evidence process has ended.
        BundleError: our own bundle does not verify.
        OSError: the address cannot be used.
    """
    usual_s = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_S)
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[EnclaveError | None] = loop.create_future()

    def end(why: EnclaveError | None = None) -> None:
        if not ended.done():
            ended.set_result(why)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end)
    try:
        async with running(config, surroundings, end=end):
            why = await ended
        if why is not None:
            raise why
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
        sys.setswitchinterval(usual_s)


def _ignored(_why: EnclaveError) -> None:
    """Do nothing."""


@contextlib.asynccontextmanager
async def running(
    config: EnclaveConfig,
    surroundings: Surroundings,
    *,
    end: Callable[[EnclaveError], object] = _ignored,
) -> AsyncGenerator[str]:
    """Start the enclave, yield its address, stop it; raises as above.

    Args:
        config: the configuration.
        surroundings: the dependencies.
        end: called with the reason if it cannot go on.
    """
    counters = Counters()
    silence_libraries()
    # Count exceptions that no task awaited; the default handler would print them whole,
    # with requests in the variables of their frames.
    asyncio.get_running_loop().set_exception_handler(
        lambda _loop, _context: counters.count(Event.INTERNAL_ERROR)
    )
    # First, before a key exists that evidence would certify: a client that trusts this
    # enclave would seal data to it that it cannot open, or that others can.
    try:
        self_test()
    except SelfTestError as error:
        raise OpeningError(str(error)) from None
    anchors = read_anchors(config.anchors)
    tls = None if config.tls is None else server_context(config.tls)
    async with contextlib.AsyncExitStack() as stack:
        door = stack.enter_context(bind(config.listen))
        counted = None
        if config.counters is not None:
            counted = stack.enter_context(bind_path(config.counters))
        source = surroundings.open_evidence(config)
        if isinstance(source, SocketEvidenceSource):
            stack.callback(source.close)
        confined = await _locked(surroundings, source, end)
        # Loaded by a process that confines itself; from here on this one is locked.
        model = await _with_progress(
            surroundings.open_model(config), "loading the model", surroundings.notice
        )
        stack.push_async_callback(model.close)
        # Held in memory only, so that access to the disk yields no key.
        keys = KeyRing()
        keeper = BundleKeeper(
            config=config,
            anchors=anchors,
            model_sha256=model.sha256,
            source=source,
            keys=keys,
            counters=counters,
            clock=surroundings.clock,
            sandbox=_stated(config, confined, model, surroundings.notice),
        )
        challenger = None
        if config.challenge.enabled:
            challenger = Challenger(
                bases=keeper,
                source=source,
                least_interval_s=config.challenge.least_interval_s,
                clock=asyncio.get_running_loop().time,
            )
        # Before the address is open: a client that connects always finds evidence.
        await _with_progress(keeper.renew(), "acquiring evidence", surroundings.notice)
        held = keeper.require()
        model.keep_to(held.verified.transport)
        warn_if_unprotected(held, surroundings.notice)
        if model.gaps:
            surroundings.notice(
                f"NO WALL: the kernel does not forbid the engine to {model.gaps}"
            )
        answers: AnswersChat = model
        if counted is not None:
            answers = await stack.enter_async_context(
                _counted(model, counters, counted)
            )
        server = EnclaveServer(
            RequestContext(
                keys=keys,
                bundles=keeper,
                model=answers,
                model_name=model.name,
                counters=counters,
                limits=config.limits,
                chat_limits=ChatLimits(
                    max_tokens=min(config.limits.max_tokens, model.context_tokens)
                ),
                transport=held.verified.transport,
                clock=surroundings.clock,
                timer=surroundings.timer,
                challenges=challenger,
                failing=lambda: model.failing,
                sweep=gc.collect,
            )
        )
        stack.push_async_callback(server.stop)
        address = await server.start(door, tls)
        # The stack closes them in reverse order: renewal stops first, then running
        # answers finish, and the model is closed last.
        _report(stack, model, keeper, counters, surroundings)
        # Objects that exist now are permanent. Without them, a sweep takes less than
        # half a millisecond while eight answers are in progress, and 80 ms with them.
        gc.collect()
        gc.freeze()
        stack.callback(gc.unfreeze)
        surroundings.out(json.dumps({"ready": True, "listen": address}))
        yield address


def _report(
    stack: contextlib.AsyncExitStack,
    model: ServedModel,
    keeper: BundleKeeper,
    counters: Counters,
    surroundings: Surroundings,
) -> None:
    """Renew the evidence from now on, and log changes of state."""
    loop = asyncio.get_running_loop()
    log = StateLog(
        surroundings.log,
        _ignoring_output_errors(surroundings.notice),
        surroundings.clock,
        monotonic=loop.time,
        later=loop.call_later,
    )
    log.loaded()
    model.report_to(log.loaded, _lost(log, counters))
    log.refreshed(keeper.require().verified.expires_at)
    renewing = asyncio.create_task(
        keeper.run(
            _failed(keeper, log, surroundings.clock),
            renewed=lambda: log.refreshed(keeper.require().verified.expires_at),
        )
    )
    stack.push_async_callback(_cancelled, renewing)


async def _locked(
    surroundings: Surroundings,
    source: EvidenceSource,
    end: Callable[[EnclaveError], object],
) -> Confined | None:
    """Lock this process, with its connection to the evidence process open.

    Then what it needs cannot be started again, so it ends with that.

    Raises:
        EvidenceError: there is no such process.
        SandboxError: an attempt got out of the sandbox.
    """
    if surroundings.watch is not None:
        surroundings.watch(lambda: end(ModelError(NO_STARTER)))
    if surroundings.lock is None:
        return None
    if isinstance(source, SocketEvidenceSource):
        await source.open()
    confined = surroundings.lock()
    require_closed(confined, None)
    if isinstance(source, SocketEvidenceSource) and not confined.connects:
        source.lost = lambda: end(EvidenceError(LOST))
    return confined


def _stated(
    config: EnclaveConfig,
    confined: Confined | None,
    model: ServedModel,
    notice: Callable[[str], None],
) -> SandboxStatement | None:
    """Return what this enclave states about its sandbox; None: nothing.

    Raises:
        SandboxError: an attempt got out of it.
        BundleError: the release cannot be read.
    """
    if confined is None:
        return None
    trial, info = model.trial, model.info
    require_closed(confined, trial)
    missing = lacking(confined, trial, info)
    if trial is None or info is None or missing:
        notice(f"NO SANDBOX STATED: {'; '.join(missing)}")
        return None
    # A release from before sandboxes were stated names none, and clients refuse a
    # statement that no release names.
    if not read_release(config.release).manifest.sandbox:
        notice(f"NO SANDBOX STATED: {NOT_RELEASED}")
        return None
    return statement_of(confined, trial, info)


@contextlib.asynccontextmanager
async def _counted(
    model: ServedModel, counters: Counters, bound: Bound
) -> AsyncGenerator[AnswersChat]:
    """Show the operator's figures at a socket, and count the model's answers."""
    # Imported late: without such a socket there is nothing that counts.
    from curtilage.enclave_server.counters import (  # noqa: PLC0415
        UPDATE_S,
        CountedModel,
        Figures,
    )
    from curtilage.enclave_server.http.counter_socket import (  # noqa: PLC0415
        CounterSocket,
    )

    clock = asyncio.get_running_loop().time
    figures = Figures(counters, clock=clock, draw=secrets.SystemRandom().random)

    async def update() -> None:
        while True:
            await asyncio.sleep(UPDATE_S)
            figures.update()

    socket = CounterSocket(bound, lambda: figures.text)
    await socket.start()
    updating = asyncio.create_task(update())
    try:
        yield CountedModel(model, figures)
    finally:
        socket.stop()
        await _cancelled(updating)


def warn_if_unprotected(held: Held, notice: Callable[[str], None]) -> None:
    """Warn about missing protection, one line each."""
    if held.verified.emulated:
        notice(
            "EMULATED EVIDENCE: no hardware protects anything here; the operator of"
            " this machine can read every question. For development only."
        )
    elif not held.verified.claims.tee.isolates:
        notice(
            "NO ISOLATION: a TPM only reports what was started; the operator of this"
            " machine can read every question. For development only."
        )
    if held.verified.transport.shape is Shape.UNSAFE_UNPADDED:
        notice(
            "UNSAFE UNPADDED: this release does not shape its answers; an observer of"
            " the network sees their lengths and their pace."
        )


def _failed(
    keeper: BundleKeeper, log: StateLog, clock: Callable[[], datetime]
) -> Callable[[str], None]:
    """Record that evidence was not renewed, and why."""

    def note(why: str) -> None:
        ended = keeper.published(clock()) is None
        log.failed(Reason.EXPIRED if ended else Reason.NOT_RENEWED, why)

    return note


def _lost(log: StateLog, counters: Counters) -> Callable[[Reason, str], None]:
    """Record that no engine answers, and why."""

    def note(reason: Reason, why: str) -> None:
        # Not each attempt to load its model again.
        if reason in {Reason.ENGINE_CRASHED, Reason.ENGINE_HUNG}:
            counters.count(Event.ENGINE_ENDED)
        log.unloaded(reason, why)

    return note


def _ignoring_output_errors(notice: Callable[[str], None]) -> Callable[[str], None]:
    """Return ``notice`` without its errors: renewal continues if it cannot write."""

    def note(line: str) -> None:
        with contextlib.suppress(OutputError):
            notice(line)

    return note


async def _with_progress(
    work: Awaitable[_Result], what: str, notice: Callable[[str], None]
) -> _Result:
    """Await ``work``; report progress every two seconds."""
    task = asyncio.ensure_future(work)
    waited = 0.0
    try:
        while True:
            done, _ = await asyncio.wait({task}, timeout=PROGRESS_S)
            if done:
                return task.result()
            waited += PROGRESS_S
            notice(f"{what}: {waited:.0f} s so far")
    finally:
        task.cancel()


async def _cancelled(task: "asyncio.Task[None]") -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
