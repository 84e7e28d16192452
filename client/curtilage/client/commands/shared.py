"""Flags that several commands share, and the way from flags to a client."""

import argparse
import asyncio
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from curtilage.client.assemble import assemble
from curtilage.client.commands.terminal import err, progress
from curtilage.client.config import ClientConfig, Flags, read_config
from curtilage.client.errors import UsageError
from curtilage.client.session import Session


def add_policy_flag(parser: argparse.ArgumentParser) -> None:
    """Add ``--policy``."""
    parser.add_argument(
        "--policy",
        metavar="FILE",
        help="policy file, or the name of a shipped profile (default: "
        "$CURTILAGE_POLICY, else the profile 'default')",
    )
    parser.add_argument(
        "--policy-key",
        metavar="FILE",
        help="public key (PEM) that must have signed the policy, as FILE.sig beside "
        "it; while it has not, everything stays (default: $CURTILAGE_POLICY_KEY)",
    )


def add_client_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of every command that answers."""
    add_policy_flag(parser)
    parser.add_argument(
        "--relay",
        metavar="URL",
        help="https://host/name of the relay (default: $CURTILAGE_RELAY; without "
        "one, everything is answered here)",
    )
    parser.add_argument(
        "--model",
        metavar="NAME|FILE",
        help="local model: a name of `curtilage models list`, or a GGUF file "
        "(default: $CURTILAGE_MODEL, else the embedded one)",
    )
    parser.add_argument(
        "--model-sha256", metavar="HEX", help="digest, required for a GGUF file"
    )
    parser.add_argument(
        "--audit",
        metavar="DIR",
        help="audit log, made with `curtilage audit init` (default: $CURTILAGE_AUDIT, "
        "else one of your own, made when first used); what cannot be recorded there "
        "does not leave",
    )


def config_from(arguments: argparse.Namespace) -> ClientConfig:
    """Read the configuration that the flags and the environment give."""
    flags = Flags(
        policy=arguments.policy,
        relay=getattr(arguments, "relay", None),
        model=getattr(arguments, "model", None),
        model_sha256=getattr(arguments, "model_sha256", None),
        policy_key=getattr(arguments, "policy_key", None),
        audit=getattr(arguments, "audit", None),
    )
    return read_config(flags, os.environ)


@asynccontextmanager
async def session_from(
    config: ClientConfig, *, spare: bool = False
) -> AsyncGenerator[Session]:
    """Start a client and stop it at the end; ``spare`` as for ``assemble``."""
    with progress("starting detectors and local model"):
        parts = await assemble(config, spare=spare)
    if parts.audit.problem is not None:
        err(f"{parts.audit.problem}\nwhile the audit trail fails, nothing leaves")
    session = Session(parts)
    try:
        yield session
    finally:
        await asyncio.shield(session.close())


def text_from(words: list[str]) -> str:
    """Join the words of a command line; a single ``-`` reads standard input.

    Raises:
        UsageError: there is no text.
    """
    if words == ["-"]:
        text = sys.stdin.buffer.read().decode("utf-8", "surrogateescape").strip()
    else:
        text = " ".join(words)
    if not text:
        raise UsageError("there is no text; give it as words, or `-` to read it")
    return text
