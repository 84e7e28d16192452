"""``curtilage attest export``: a verdict with all that it follows from, in one file."""

import asyncio
import hashlib
import os
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Final

from curtilage.attest.encoding.strict_json import canonical_json, malformed
from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.cli.attest.command import print_key, verified
from curtilage.cli.attest.encodings import MAX_FILE_BYTES as MAX_BUNDLE_FILE_BYTES
from curtilage.cli.attest.export_file import (
    MAX_FILE_BYTES,
    Export,
    PolicyParts,
    expectations_object,
    read_export,
)
from curtilage.cli.attest.show import fetched
from curtilage.cli.attest.verdict_json import (
    NOT_RULED_OUT,
    key_object,
    refusal_object,
)
from curtilage.cli.attest.words import meaning_text, print_refusal
from curtilage.cli.declared import Arguments
from curtilage.cli.options import time_of, write_or_print
from curtilage.cli.start import config_from
from curtilage.cli.terminal import DONE, REFUSED, err
from curtilage.client.config import (
    MAX_POLICY_BYTES,
    SHIPPED_PROFILE,
    is_shipped,
    read_listed,
    read_policy,
)
from curtilage.client.errors import UsageError
from curtilage.client.remote.nodes import bundles_of
from curtilage.client.system.files import read_bounded, read_start, read_text
from curtilage.policy.document.load import load_policy, pack_text, profile_text
from curtilage.policy.document.model import Policy
from curtilage.policy.expectations import expectations_from
from curtilage.policy.explain.breaks import not_ruled_out

KIND: Final = "bundle"


def run(arguments: Arguments) -> int:
    """Verify, and write the file in either case; exit 1 if the evidence is refused."""
    if arguments.at is not None and arguments.bundle is None:
        raise UsageError("--at needs --bundle: a live enclave is verified as of now")
    # To the second, as the file says it: the verdict is computed again from that.
    now = time_of(arguments.at).replace(microsecond=0)
    path = arguments.policy or os.environ.get("CURTILAGE_POLICY") or SHIPPED_PROFILE
    policy, parts = _policy(path, contents=arguments.attachments)
    bundle = _bundle(arguments)
    verdict, refusal = _verdict(bundle, policy, now)
    export = Export(
        made=now,
        bundle=bundle,
        policy=parts,
        expectations=expectations_object(expectations_from(policy)),
        verdict=verdict,
    )
    data = export.encode()
    write_or_print(arguments.out, data)
    # The file says nothing about who made it: whoever passes it on signs this.
    err(f"sha256 {hashlib.sha256(data).hexdigest()}")
    if refusal is None:
        return DONE
    err(f"REFUSED: {refusal.code.value} ({refusal.detail})")
    err(meaning_text(refusal.code))
    return REFUSED


def run_verify(arguments: Arguments) -> int:
    """Verify a file of ``run``; exit 1 if it or the evidence in it is refused."""
    if arguments.as_made and (arguments.at or arguments.policy):
        raise UsageError("--as-made takes neither --at nor --policy: the file has both")
    now = time_of(arguments.at)
    try:
        export = read_export(read_bounded(Path(arguments.export), MAX_FILE_BYTES))
        now = export.made if arguments.as_made else now
        if arguments.policy is None:
            policy = _policy_within(export)
        else:
            policy, _ = read_policy(arguments.policy)
        if arguments.as_made:
            _require_verdict(export, policy)
    except RefusedError as refused:
        print_refusal("export", refused, at=now, as_json=arguments.json)
        return REFUSED
    try:
        key = verified(export.bundle, expectations_from(policy), now)
    except RefusedError as refused:
        print_refusal(KIND, refused, at=now, as_json=arguments.json)
        return REFUSED
    print_key(policy, key, now, as_json=arguments.json)
    return DONE


def _require_verdict(export: Export, policy: Policy) -> None:
    """Refuse a file whose verdict does not follow from the rest of it."""
    verdict, _ = _verdict(export.bundle, policy, export.made)
    # What is known to be broken follows from the day, not from the file.
    made, again = (
        {name: value for name, value in each.items() if name != NOT_RULED_OUT}
        for each in (export.verdict, verdict)
    )
    if canonical_json(again) != canonical_json(made):
        raise malformed("export.verdict: not the one that follows from the rest")


def _verdict(
    bundle: bytes, policy: Policy, now: datetime
) -> tuple[Mapping[str, object], RefusedError | None]:
    try:
        key = verified(bundle, expectations_from(policy), now)
    except RefusedError as refusal:
        return refusal_object(KIND, refusal, at=now), refusal
    return key_object(key, not_ruled_out(policy, key), at=now), None


def _bundle(arguments: Arguments) -> bytes:
    """Return one enclave's bundle, from a file or live."""
    if arguments.bundle is not None:
        served = read_start(Path(arguments.bundle), MAX_BUNDLE_FILE_BYTES)
    else:
        served, _ = asyncio.run(fetched(config_from(arguments)))
    nodes = bundles_of(served)
    if len(nodes) == 1 and arguments.node is None:
        return next(iter(nodes.values()))
    # One verdict in one file: a pool's nodes have evidence of their own.
    if arguments.node not in nodes:
        raise UsageError(f"name one of {len(nodes)} with --node: {', '.join(nodes)}")
    return nodes[arguments.node]


def _policy(path: str, *, contents: bool) -> tuple[Policy, PolicyParts]:
    """Return the policy, and all that its digest covers."""
    read: dict[str, bytes] = {}
    if is_shipped(path):
        text = profile_text(path)
    else:
        text = read_text(Path(path), MAX_POLICY_BYTES)

    def listed_file(name: str) -> bytes:
        # Kept as it was read: a second reading may find another content.
        return read.setdefault(name, read_listed(Path(path), name))

    policy = load_policy(text, source=path, files=listed_file)
    return policy, PolicyParts(
        text=text,
        packs={name: pack_text(name) for name in policy.document.packs},
        digests={name: hashlib.sha256(data).hexdigest() for name, data in read.items()},
        contents=read if contents else {},
    )


def _policy_within(export: Export) -> Policy:
    """Return the policy in a file, once its other members follow from it."""
    parts = export.policy
    missing = [name for name in parts.digests if name not in parts.contents]
    # Without them a policy cannot be loaded, and so nothing follows from it.
    if missing:
        raise UsageError(
            f"{len(missing)} list(s) of the policy are not in the file: give the "
            "policy with --policy, or export with --attachments"
        )
    policy = load_policy(
        parts.text, source="the file's policy", files=parts.contents.__getitem__
    )
    # This version's packs may have other rules under the same names.
    if policy.digest != parts.digest:
        raise RefusedError(
            RefusalCode.POLICY_INVALID, "this version has another text of a pack"
        )
    expected = expectations_object(expectations_from(policy))
    if canonical_json(expected) != canonical_json(export.expectations):
        raise RefusedError(
            RefusalCode.POLICY_INVALID, "export.expectations: not those of the policy"
        )
    return policy
