"""``curtilage serve``: the OpenAI-compatible endpoint on loopback."""

import argparse
import asyncio
import secrets
import signal
from contextlib import suppress
from datetime import UTC, datetime
from time import monotonic

from curtilage.cli.start import config_from, session_from
from curtilage.cli.terminal import (
    DONE,
    err,
    out_json,
    plural,
)
from curtilage.client.audit.checkpoint import CHECKPOINT_S
from curtilage.client.config import ClientConfig
from curtilage.client.consent import KEY_BYTES, ConsentDesk
from curtilage.client.endpoint import server as gateway
from curtilage.client.errors import EXPLAINED, ClientError
from curtilage.client.health import WORDS
from curtilage.client.queue.deferred import State
from curtilage.client.telemetry import (
    LogForm,
    StateLog,
    TelemetrySettings,
    configure,
    shutdown,
)
from curtilage.client.watch import watching


def run(arguments: argparse.Namespace) -> int:
    """Serve until interrupted."""
    configure(
        TelemetrySettings(
            otlp_endpoint=arguments.otlp, prometheus_port=arguments.prometheus_port
        )
    )
    try:
        log = StateLog(LogForm(arguments.log), err, words=WORDS, clock=_utc_now)
        config = config_from(arguments)
        asyncio.run(_serve(config, arguments.host, arguments.port, log))
    finally:
        shutdown()
    return DONE


def _utc_now() -> datetime:
    return datetime.now(UTC)


def _monotonic_ms() -> int:
    return int(monotonic() * 1000)


async def _serve(config: ClientConfig, host: str, port: int, log: StateLog) -> None:
    stop = asyncio.Event()
    loop, task = asyncio.get_running_loop(), asyncio.current_task()

    def told_to_stop() -> None:
        """Stop in order; told twice, at once."""
        if stop.is_set() and task is not None:
            task.cancel()
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, told_to_stop)
    try:
        await _serve_until(stop, config, host, port, log)
    except asyncio.CancelledError:
        if not stop.is_set():
            raise
    except ClientError:
        # A signal reaches the detectors too: then this is no fault of theirs.
        if not stop.is_set():
            raise


async def _serve_until(
    stop: asyncio.Event, config: ClientConfig, host: str, port: int, log: StateLog
) -> None:
    # Whoever serves others asks none of them here: their applications do.
    consents = ConsentDesk(
        secrets.token_bytes(KEY_BYTES), secrets.token_bytes, _monotonic_ms
    )
    async with (
        session_from(config, spare=True, consents=consents) as session,
        gateway.serving(session, host, port) as bound,
    ):
        if session.absent is not None:
            reason = EXPLAINED[session.absent]
            err(f"{reason}: no question leaves this machine or the house's servers")
        plan = config.policy.routing
        queue = None
        if plan is not None and plan.queue.store != "none":
            # What was put by before it ended last, and what other programs put by.
            queue = session.queue
            queue.keep_on()
        shown = f"[{host}]" if ":" in host else host
        out_json({"ready": True, "listen": f"http://{shown}:{bound}/v1"})
        async with watching(session, log):
            while not await _stopped(stop, CHECKPOINT_S):
                await session.audit.checkpoint()
        err("stopping")
        if queue is not None and queue.in_memory:
            left = [each for each in await queue.items() if each.state is State.WAITING]
            if left:
                are = "is" if len(left) == 1 else "are"
                questions = f"{len(left)} {plural(len(left), 'question')}"
                err(f"{questions} waited in memory, and {are} forgotten")


async def _stopped(stop: asyncio.Event, wait_s: float) -> bool:
    """Wait until told to stop, or for a while; tell which."""
    with suppress(TimeoutError):
        async with asyncio.timeout(wait_s):
            await stop.wait()
    return stop.is_set()
