"""From flags to a configuration, and from a configuration to a client."""

import argparse
import asyncio
import os
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from curtilage.cli.options import renamed
from curtilage.cli.terminal import err, progress
from curtilage.client.config import ClientConfig, Flags, read_config
from curtilage.client.local.registry import Registry, data_directory

if TYPE_CHECKING:  # a command that only decides loads none of what asks
    from collections.abc import AsyncGenerator

    from curtilage.client.audit.recorder import SaveTranscript
    from curtilage.client.consent import Consents
    from curtilage.client.session import Session
    from curtilage.policy.signing import Currency

TOLD_AFTER_S: Final = 2.0
WAITING: Final = (
    "waiting for connections to reach the length that they would have with any "
    "answer: whoever\nwatches the line is not to learn how long this one was, or "
    "that it was cancelled;\ninterrupt (Ctrl-C) to close them now, which shows"
)


def config_from(arguments: argparse.Namespace) -> ClientConfig:
    """Read the configuration that the flags and the environment give."""
    flags = Flags(
        policy=arguments.policy,
        relay=getattr(arguments, "relay", None),
        relay_ca=getattr(arguments, "relay_ca", None),
        relay_certificate=getattr(arguments, "relay_certificate", None),
        relay_certificate_key=getattr(arguments, "relay_certificate_key", None),
        relay_key_file=getattr(arguments, "relay_key_file", None),
        model=getattr(arguments, "model", None),
        model_sha256=getattr(arguments, "model_sha256", None),
        context_tokens=getattr(arguments, "context_tokens", None),
        policy_key=getattr(arguments, "policy_key", None),
        audit=getattr(arguments, "audit", None),
        on_premises_key_file=getattr(arguments, "on_premises_key_file", None),
    )
    if "CURTILAGE_HOUSE_KEY_FILE" in os.environ:
        err(renamed("CURTILAGE_HOUSE_KEY_FILE", "CURTILAGE_ON_PREMISES_KEY_FILE"))
    return read_config(flags, os.environ)


def registry() -> Registry:
    """Open the registry of this user's models."""
    return Registry(data_directory(os.environ, Path.home()))


@asynccontextmanager
async def session_from(
    config: ClientConfig,
    *,
    spare: bool = False,
    save_transcript: "SaveTranscript | None" = None,
    consents: "Consents | None" = None,
    serves: bool = False,
) -> "AsyncGenerator[Session]":
    """Start a client and stop it at the end; ``spare`` as for ``assemble``.

    ``serves``: programs ask it, and go on with their conversations after a restart. A
    log says how it is, so only what that cannot say, the causes, is said here.
    """
    from curtilage.client.assemble import assemble  # noqa: PLC0415 - see above
    from curtilage.client.session import Session  # noqa: PLC0415

    warn_of_signature(config.currency, logged=serves)
    for notice in config.policy.notices:
        err(notice)
    with progress("starting detectors and local model"):
        parts = await assemble(config, spare=spare, notify=err, lasting=serves)
    if parts.audit.problem is not None:
        err(parts.audit.problem)
        if not serves:
            err("while the audit trail fails, nothing leaves")
    if parts.advice is not None:
        err(parts.advice)
    session = Session(
        replace(parts, save_transcript=save_transcript, consents=consents)
    )
    try:
        yield session
    finally:
        await asyncio.shield(close_told(session))


def warn_of_signature(currency: "Currency | None", *, logged: bool = False) -> None:
    """Say that the policy is not in force, or will soon not be any more.

    ``logged``: a log says so as well, and until when, but not why.
    """
    if currency is None:
        return
    now = datetime.now(UTC)
    # Everything is answered all the same, here, and looks as if all was well.
    if warning := currency.problem(now) if logged else currency.warning(now):
        err(f"warning: {warning}")


async def close_told(session: "Session", *, after_s: float = TOLD_AFTER_S) -> None:
    """Close a session; where that takes a while, say what it waits for."""
    closing = asyncio.ensure_future(session.close())
    try:
        await asyncio.wait((closing,), timeout=after_s)
        if not closing.done() and session.unsettled:
            err(WAITING)
        await asyncio.shield(closing)
    except asyncio.CancelledError:
        closing.cancel()
        raise
