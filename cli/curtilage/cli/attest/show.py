"""``curtilage attest show``: who vouches for what, as a tree."""

import asyncio
import secrets
from datetime import UTC, datetime
from pathlib import Path

from curtilage.attest.errors import RefusedError
from curtilage.cli.attest.encodings import MAX_FILE_BYTES
from curtilage.cli.attest.tree import verdict_text
from curtilage.cli.attest.verdict_json import key_object, named
from curtilage.cli.attest.words import print_refusal
from curtilage.cli.declared import Arguments
from curtilage.cli.options import time_of
from curtilage.cli.start import config_from
from curtilage.cli.terminal import DONE, REFUSED, out, out_json
from curtilage.client.assemble import ways_out
from curtilage.client.config import ClientConfig
from curtilage.client.errors import ConfigError, UsageError
from curtilage.client.failure_texts import FAILURE_TEXTS
from curtilage.client.remote.key_store import KeyStore
from curtilage.client.remote.keys import fetch_order
from curtilage.client.remote.nodes import GATEWAY, bundles_of, key_lists_of
from curtilage.client.system.files import read_start
from curtilage.policy.decision.permit import KEY_BYTES, Party, PermitDesk
from curtilage.policy.expectations import expectations_from
from curtilage.policy.explain.breaks import not_ruled_out


def run(arguments: Arguments) -> int:
    """Show the evidence of each node; exit 1 if any is refused."""
    config = config_from(arguments)
    now = time_of(arguments.at)
    # With a time in the past, a live enclave with expired evidence would look trusted.
    if arguments.at is not None and arguments.bundle is None:
        raise UsageError("--at needs --bundle: a live enclave is verified as of now")
    mirrored: bytes | None = None
    if arguments.bundle is not None:
        bundle = read_start(Path(arguments.bundle), MAX_FILE_BYTES)
    else:
        bundle, mirrored = asyncio.run(fetched(config))
    bundles = bundles_of(bundle)
    trusted = [
        _shown(config, (node, each), mirrored, now, as_json=arguments.json)
        for node, each in bundles.items()
    ]
    # One refused node of a pool is a reason to look, although the client would leave it
    # out.
    return DONE if all(trusted) else REFUSED


def _shown(
    config: ClientConfig,
    served: tuple[str, bytes],
    mirrored: bytes | None,
    now: datetime,
    *,
    as_json: bool,
) -> bool:
    """Show one bundle with its node's id; return whether it is trusted."""
    node, bundle = served
    # A new store for each node: what was accepted from one must not influence the
    # verdict on another.
    book = KeyStore(expectations=expectations_from(config.policy))
    if node and not as_json:
        out(f"node {node}")
    try:
        if mirrored is not None:
            lists = key_lists_of(mirrored, pool=node != GATEWAY)
            # Empty and not None: with None, a node that the mirror does not list would
            # be accepted without comparison.
            mirrored = lists.get(node, b"")
        key = book.accept(bundle, now, mirrored=mirrored)
    except RefusedError as refusal:
        print_refusal("bundle", refusal, at=now, as_json=as_json, node=node)
        return False
    left = not_ruled_out(config.policy, key)
    if as_json:
        out_json(key_object(key, left, at=now) | named(node))
    else:
        out(verdict_text(key, left))
    return True


async def fetched(config: ClientConfig) -> tuple[bytes, bytes | None]:
    """Fetch the bundle like a client, and the mirror's key list if one is named."""
    ways = ways_out(config)
    if ways.transport is None:
        raise ConfigError(f"{FAILURE_TEXTS[ways.absent]}; or name a file with --bundle")
    desk = PermitDesk(secrets.token_bytes(KEY_BYTES), secrets.token_bytes)
    try:
        order = fetch_order(desk, Party.RELAY, datetime.now(UTC))
        bundle = await ways.transport.fetch_bundle(order)
        if ways.mirror is None:
            return bundle, None
        order = fetch_order(desk, Party.MIRROR, datetime.now(UTC))
        return bundle, await ways.mirror.fetch_key_configs(order)
    finally:
        await ways.transport.close()
        if ways.mirror is not None:
            await ways.mirror.close()
