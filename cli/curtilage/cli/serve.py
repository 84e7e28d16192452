"""``curtilage serve``: the OpenAI-compatible endpoint, on loopback or as a gateway."""

import asyncio
import secrets
import signal
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from curtilage.cli.declared import Arguments
from curtilage.cli.provenance import demonstration_words
from curtilage.cli.start import config_from, session_from
from curtilage.cli.terminal import DONE, err, out_json, plural
from curtilage.client.audit.checkpoint import CHECKPOINT_S
from curtilage.client.config import ClientConfig
from curtilage.client.consent import KEY_BYTES, ConsentDesk
from curtilage.client.endpoint import server as endpoint
from curtilage.client.endpoint.accounts import TOKEN_NAME, Callers, stored_token
from curtilage.client.errors import ClientError, UsageError
from curtilage.client.failure_texts import FAILURE_TEXTS
from curtilage.client.health import WORDS
from curtilage.client.local.models_file import ModelsFile, read_models_file
from curtilage.client.queue.deferred import State
from curtilage.client.session import Session
from curtilage.client.system.files import state_folder
from curtilage.client.telemetry import (
    LogForm,
    StateLog,
    TelemetrySettings,
    configure,
    shutdown,
)
from curtilage.client.watch import watching

if TYPE_CHECKING:  # imported where a gateway is asked for
    from curtilage.client.endpoint.gateway_file import GatewayFile

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8642


@dataclass(frozen=True, slots=True, kw_only=True)
class _Listen:
    """The addresses to listen on: TCP, a UNIX socket, or both."""

    host: str | None
    port: int
    socket: Path | None

    def shown(self, port: int) -> dict[str, str]:
        """Return the addresses as JSON members; ``port`` is the one that was bound."""
        socket = {} if self.socket is None else {"socket": str(self.socket)}
        if self.host is None:
            return {"listen": f"unix:{self.socket}", **socket}
        host = f"[{self.host}]" if ":" in self.host else self.host
        return {"listen": f"http://{host}:{port}/v1", **socket}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Running:
    """An endpoint that listens.

    Attributes:
        ready: more members of the line on standard output.
        reload: takes its file's present content, and says so; None: it has no file.
    """

    ready: dict[str, object]
    reload: Callable[[], Awaitable[None]] | None = None


_Opens = Callable[[Session], AbstractAsyncContextManager[_Running]]


def run(arguments: Arguments) -> int:
    """Serve until interrupted."""
    if arguments.gateway is not None:
        given = (arguments.host, arguments.port, arguments.listen)
        if arguments.no_tcp or any(each is not None for each in given):
            raise UsageError(
                "--gateway FILE says where to listen; it excludes --host, --port, "
                "--listen and --no-tcp"
            )
        opens = _as_gateway(Path(arguments.gateway))
    else:
        opens = _on_loopback(
            _Listen(
                host=None if arguments.no_tcp else arguments.host or DEFAULT_HOST,
                port=DEFAULT_PORT if arguments.port is None else arguments.port,
                socket=arguments.listen,
            )
        )
    configure(
        TelemetrySettings(
            otlp_endpoint=arguments.otlp, prometheus_port=arguments.prometheus_port
        )
    )
    try:
        log = StateLog(
            LogForm(arguments.log), err, words=WORDS, clock=lambda: datetime.now(UTC)
        )
        asyncio.run(_serve(config_from(arguments), opens, log))
    finally:
        shutdown()
    return DONE


def _on_loopback(listen: _Listen) -> _Opens:
    """Return what serves this machine's programs."""
    if listen.host is None and listen.socket is None:
        raise UsageError("--no-tcp needs --listen unix:PATH")

    @asynccontextmanager
    async def opened(session: Session) -> AsyncGenerator[_Running]:
        # Not before: a policy that cannot be used must leave nothing behind.
        token, path = kept_token()
        served = endpoint.serving(
            session,
            listen.host,
            listen.port,
            socket=listen.socket,
            callers=Callers(token),
        )
        async with served as port:
            if token is not None:
                announce(token, path)
            kept = None if token is None else str(path)
            yield _Running(ready={**listen.shown(port), "token_file": kept})

    return opened


def _as_gateway(path: Path) -> _Opens:
    """Return what serves a department's applications."""
    from curtilage.client.endpoint.gateway import serving  # noqa: PLC0415
    from curtilage.client.endpoint.gateway_file import read_gateway_file  # noqa: PLC0415

    # Before the detectors start, which takes seconds.
    file = read_gateway_file(path)
    _warn_of(file)

    @asynccontextmanager
    async def opened(session: Session) -> AsyncGenerator[_Running]:
        async with serving(session, file) as gateway:

            async def reload() -> None:
                """Take the file's present content; what is wrong changes nothing."""
                try:
                    read = await asyncio.to_thread(read_gateway_file, path)
                    whole = gateway.replace(read)
                except ClientError as error:
                    err(f"the gateway is unchanged: {error}")
                    return
                _warn_of(read)
                but = "" if whole else ", but for `listen` and whether there is TLS"
                err(f"the gateway is that of {path}{but}")

            ready: dict[str, object] = {
                "listen": gateway.url,
                "names": sorted(file.names),
                "applications": list(gateway.applications),
            }
            yield _Running(ready=ready, reload=reload)

    return opened


def _warn_of(file: "GatewayFile") -> None:
    """Warn of what a gateway's file permits and its author may not have meant."""
    from curtilage.client.endpoint.gateway_notices import notices  # noqa: PLC0415

    for notice in notices(file, datetime.now(UTC)):
        err(notice)


async def _serve(config: ClientConfig, opens: _Opens, log: StateLog) -> None:
    stop = asyncio.Event()
    loop, task = asyncio.get_running_loop(), asyncio.current_task()

    def request_stop() -> None:
        """Stop gracefully; a second request stops at once."""
        if stop.is_set() and task is not None:
            task.cancel()
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        # SIGTERM, too: by default it ends the process at once, also between an answer
        # and its audit record.
        loop.add_signal_handler(number, request_stop)
    try:
        await _serve_until(stop, config, opens, log)
    except asyncio.CancelledError:
        if not stop.is_set():
            raise
    except ClientError:
        # The signal reaches the detectors too, so their failure is expected.
        if not stop.is_set():
            raise


async def _serve_until(
    stop: asyncio.Event, config: ClientConfig, opens: _Opens, log: StateLog
) -> None:
    # Consent is asked for by the callers' applications, not at this terminal.
    consents = ConsentDesk(
        secrets.token_bytes(KEY_BYTES),
        secrets.token_bytes,
        lambda: int(monotonic() * 1000),
    )
    async with (
        session_from(config, spare=True, consents=consents, serves=True) as session,
        opens(session) as running,
    ):
        # Said at the start: without it, an operator would only notice that every answer
        # is local.
        if session.absent is not None:
            reason = FAILURE_TEXTS[session.absent]
            err(f"{reason}: questions are sent only to on-premises servers, if any")
        if session.demonstration:
            router = None if session.absent is not None else session.router
            words = "; ".join(demonstration_words(config.policy, router))
            err(f"local answers come from {words}")
        plan = config.policy.routing
        queue = None
        if plan is not None and plan.queue.store != "none":
            # Retry what was queued before the last exit, and by other processes.
            queue = session.queue
            queue.keep_on()
        # After the socket is bound: a program that waits for this line can connect at
        # once.
        out_json({"ready": True, **running.ready})
        files = [each for each in (running.reload, _models(session, config)) if each]
        async with watching(session, log), _following(files):
            while not await _stopped(stop, CHECKPOINT_S):
                # Without questions nothing else signs, and lines that stay unsigned can
                # be edited (docs/decisions/0012).
                await session.audit.checkpoint()
        err("stopping")
        if queue is not None and queue.in_memory:
            left = [each for each in await queue.items() if each.state is State.WAITING]
            if left:
                were, are = ("was", "is") if len(left) == 1 else ("were", "are")
                questions = f"{len(left)} {plural(len(left), 'question')}"
                err(f"{questions} {were} queued in memory, and {are} lost")


def _models(
    session: Session, config: ClientConfig
) -> Callable[[], Awaitable[None]] | None:
    """Return what takes the present content of the file of models, if there is one."""
    return None if config.models is None else partial(_take, session, config.models)


async def _take(session: Session, models: ModelsFile) -> None:
    """Take the present content of the file of models; what is wrong changes nothing."""
    try:
        file = await asyncio.to_thread(read_models_file, models.path)
        all_taken = await session.replace_models(file)
    except ClientError as error:
        err(f"the models are unchanged: {error}")
    else:
        but = "" if all_taken else ", but for what is not replaced"
        err(f"the models are those of {models.path}{but}")


@asynccontextmanager
async def _following(
    files: list[Callable[[], Awaitable[None]]],
) -> AsyncGenerator[None]:
    """Read each file again at each SIGHUP, if there is one."""
    if not files:
        yield
        return
    asked, loop = asyncio.Event(), asyncio.get_running_loop()

    async def follow() -> None:
        """Take the files, the gateway's first: it revokes keys."""
        while True:
            await asked.wait()
            asked.clear()
            for take in files:
                await take()

    loop.add_signal_handler(signal.SIGHUP, asked.set)
    following = asyncio.ensure_future(follow())
    try:
        yield
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


def kept_token() -> tuple[str | None, Path]:
    """Return the token for programs of other accounts, or None, and its file.

    Raises:
        ConfigError: the file is invalid, or readable by others.
    """
    folder = state_folder()
    path = folder / TOKEN_NAME
    try:
        return stored_token(folder, secrets.token_urlsafe), path
    # Fail closed: without a token, other accounts are not served at all.
    except OSError as failure:
        err(
            f"{path}: {failure.strerror}; without a token, only programs of this "
            "account are served"
        )
        return None, path


def announce(token: str, path: Path) -> None:
    """Print where the token is; at a terminal, also the token itself."""
    # Others may read a log file or the journal.
    named = f"{token}\n(kept in {path})" if sys.stderr.isatty() else f"in {path}"
    err(f"api_key for programs of other accounts: {named}")


async def _stopped(stop: asyncio.Event, wait_s: float) -> bool:
    """Wait for the stop event or a timeout; return whether it was the event."""
    with suppress(TimeoutError):
        async with asyncio.timeout(wait_s):
            await stop.wait()
    return stop.is_set()
