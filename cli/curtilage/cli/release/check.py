"""``curtilage release prove`` and ``verify``: inclusion of a release in a log."""

import hashlib
from pathlib import Path
from typing import Final

from curtilage.attest.evidence import MAX_MANIFEST_BYTES
from curtilage.attest.log.note import encode_hashes
from curtilage.cli.declared import Arguments
from curtilage.cli.options import time_of, write_or_print
from curtilage.cli.release.options import Progress, key_of, refusing, rules_of
from curtilage.cli.terminal import DONE, err, out, out_json, unix_text
from curtilage.client.errors import UsageError
from curtilage.client.system.files import read_bounded, read_text
from curtilage.transparency.log import LogFolder
from curtilage.transparency.proof import VerifiedRelease, prove, verify_release
from curtilage.transparency.sigstore import (
    MAX_BUNDLE_BYTES,
    Publisher,
    PublisherSignature,
    verify_bundle,
)

MAX_PROOF_BYTES: Final = 512 * 1024


@refusing
def run_prove(arguments: Arguments) -> int:
    """Write proofs; exit 1 if the manifest is not in the log."""
    if (arguments.since is None) != (arguments.consistency is None):
        raise UsageError("--since and --consistency need each other")
    leaf = read_bounded(Path(arguments.manifest), MAX_MANIFEST_BYTES)
    log = key_of(arguments.log_key)
    folder = LogFolder(Path(arguments.folder))
    proven = prove(folder, log, leaf, progress=Progress().leaves)
    if arguments.since is not None:
        if not 0 <= arguments.since <= proven.size:
            raise UsageError(f"--since: the log has {proven.size} leaves")
        hashes = proven.tree.consistency(arguments.since)
        write_or_print(arguments.consistency, encode_hashes(hashes).encode())
    err(f"leaf {proven.index} of {proven.size}")
    return write_or_print(arguments.out, proven.text.encode())


@refusing
def run_verify(arguments: Arguments) -> int:
    """Verify; exit 1 if the release is refused."""
    # Before any file is read: a forgotten option must not look like a release without a
    # publisher.
    publisher = _publisher(arguments)
    now = time_of(arguments.at)
    manifest = read_bounded(Path(arguments.manifest), MAX_MANIFEST_BYTES)
    proof = read_text(Path(arguments.proof), MAX_PROOF_BYTES)
    release = verify_release(manifest, proof, rules_of(arguments), now=now)
    # In addition to the log's proof, never instead: a stolen account could also sign,
    # but what it logs is visible.
    signature = None
    if publisher is not None:
        bundle = read_bounded(Path(arguments.sigstore), MAX_BUNDLE_BYTES)
        root = Path(arguments.trusted_root)
        signature = verify_bundle(manifest, bundle, root, publisher)
    if arguments.json:
        out_json(_object(manifest, release, signature))
        return DONE
    described, witnessed = release.manifest, release.witnessed
    # An accepted proof only shows that some release is in the log; which one is the
    # reader's question.
    named = "" if release.name_checked else " (any name was accepted)"
    out(f"ACCEPTED  {described.name} {described.version}{named}")
    out(f"  source     {described.source}")
    out(f"  expires    {unix_text(described.not_after)}")
    checkpoint = witnessed.checkpoint
    out(f"  log        {checkpoint.origin}, leaf {release.index} of {checkpoint.size}")
    for name, time in witnessed.times.items():
        out(f"  witness    {_shown(name)}, {unix_text(time)}")
    if not witnessed.times:
        out("  witness    none: the log could show others different contents")
    if signature is not None:
        out(f"  publisher  {signature.identity}")
        out(f"  issuer     {signature.issuer}")
    return DONE


def _publisher(arguments: Arguments) -> Publisher | None:
    given = (
        arguments.sigstore,
        arguments.trusted_root,
        arguments.identity,
        arguments.issuer,
    )
    if all(each is None for each in given):
        return None
    # With one of them missing or empty, the check would accept more signers than were
    # meant.
    if not all(given):
        raise UsageError(
            "--sigstore, --trusted-root, --identity and --issuer need each other, "
            "and none may be empty"
        )
    return Publisher(identity=arguments.identity, issuer=arguments.issuer)


def _object(
    manifest: bytes, release: VerifiedRelease, signature: PublisherSignature | None
) -> dict[str, object]:
    parsed, witnessed = release.manifest, release.witnessed
    return {
        "accepted": True,
        "code": None,
        "detail": "",
        "release": {
            "name": parsed.name,
            "version": parsed.version,
            "source": parsed.source,
            "sha256": hashlib.sha256(manifest).hexdigest(),
            "not_after": unix_text(parsed.not_after),
            "name_checked": release.name_checked,
        },
        "log": {
            "origin": witnessed.checkpoint.origin,
            "index": release.index,
            "size": witnessed.checkpoint.size,
            "root": witnessed.checkpoint.root.hex(),
            "witnesses": {
                _shown(name): unix_text(time) for name, time in witnessed.times.items()
            },
            "vouched_time": None
            if witnessed.vouched_time is None
            else unix_text(witnessed.vouched_time),
        },
        "publisher": None
        if signature is None
        else {
            "identity": signature.identity,
            "issuer": signature.issuer,
            "statement": signature.statement,
        },
    }


def _shown(name: bytes) -> str:
    """Return a policy's name for a witness; names are opaque bytes there."""
    return name.decode("utf-8", "backslashreplace")
