"""Builds a configuration from flags, and a client from a configuration."""

import asyncio
import os
import sys
from contextlib import asynccontextmanager
from dataclasses import fields, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from curtilage.cli.declared import Arguments, renamed
from curtilage.cli.terminal import err, progress
from curtilage.client.config import ClientConfig, Flags, read_config

if TYPE_CHECKING:  # commands that only decide do not load the tiers
    from collections.abc import AsyncGenerator

    from curtilage.client.audit.recorder import SaveTranscript
    from curtilage.client.consent import Consents
    from curtilage.client.session import Session
    from curtilage.policy.signing import Currency

REPORTED_AFTER_S: Final = 2.0
NOT_SENT: Final = "nothing is sent while the audit trail fails"
WAITING: Final = (
    "waiting until open connections are padded to the length of every answer, so "
    "that an\nobserver cannot infer the length of this one, or that it was "
    "cancelled;\nCtrl-C closes them now, which an observer can see"
)


def config_from(arguments: Arguments) -> ClientConfig:
    """Return the configuration from flags and environment."""
    # A command has only some of these options.
    given = {each.name: getattr(arguments, each.name, None) for each in fields(Flags)}
    if "CURTILAGE_HOUSE_KEY_FILE" in os.environ:
        err(renamed("CURTILAGE_HOUSE_KEY_FILE", "CURTILAGE_ON_PREMISES_KEY_FILE"))
    return read_config(Flags(**given), os.environ)


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

    ``serves``: for `curtilage serve`, whose callers continue conversations after a
    restart. Its state log reports most states, so only causes are printed here.
    """
    from curtilage.client.assemble import assemble  # noqa: PLC0415 - see above
    from curtilage.client.session import Session  # noqa: PLC0415

    warn_of_signature(config.currency, logged=serves)
    for notice in config.policy.notices:
        err(notice)
    with progress("starting detectors and local model"):
        parts = await assemble(
            config,
            spare=spare,
            notify=err,
            # A script that asks a question gets no line that it does not need.
            sized=err if serves or sys.stderr.isatty() else None,
            lasting=serves,
        )
    if parts.audit.problem is not None:
        err(parts.audit.problem)
        if not serves:
            err(NOT_SENT)
    if parts.advice is not None:
        err(parts.advice)
    session = Session(
        replace(parts, save_transcript=save_transcript, consents=consents)
    )
    try:
        yield session
    finally:
        await asyncio.shield(close_reporting(session))


def warn_of_signature(currency: "Currency | None", *, logged: bool = False) -> None:
    """Warn that the policy is not in force, or about to expire.

    ``logged``: the state log has the state and the expiry, but not the cause.
    """
    if currency is None:
        return
    now = datetime.now(UTC)
    # Without a warning this would go unnoticed: questions are still answered locally.
    if warning := currency.problem(now) if logged else currency.warning(now):
        err(f"warning: {warning}")


async def close_reporting(
    session: "Session", *, after_s: float = REPORTED_AFTER_S
) -> None:
    """Close a session; if that takes a while, print the reason."""
    closing = asyncio.ensure_future(session.close())
    try:
        await asyncio.wait((closing,), timeout=after_s)
        if not closing.done() and session.unsettled:
            err(WAITING)
        await asyncio.shield(closing)
    except asyncio.CancelledError:
        # Ctrl-C while closing: the connections are closed now, as ``WAITING`` says.
        closing.cancel()
        raise
