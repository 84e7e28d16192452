"""``curtilage release log``: keep a transparency log of releases in a folder."""

from pathlib import Path
from typing import Final

from curtilage.attest.errors import RefusedError
from curtilage.attest.evidence import MAX_MANIFEST_BYTES
from curtilage.attest.log.manifest import ReleaseManifest
from curtilage.attest.log.model_manifest import ModelManifest, parse_leaf
from curtilage.cli.declared import Arguments
from curtilage.cli.options import write_or_print
from curtilage.cli.release.options import Progress, key_of, refusing
from curtilage.cli.terminal import DONE, out, out_json
from curtilage.client.errors import ConfigError
from curtilage.client.system.files import read_bounded, read_text
from curtilage.transparency.files import PUBLIC_FILE, create_file
from curtilage.transparency.log import LogFolder, add_cosignatures, create_log, open_log
from curtilage.transparency.witness import request_for

MAX_LINES_BYTES: Final = 256 * 1024


def run_init(arguments: Arguments) -> int:
    """Create a log; exit 2 if there already is one."""
    key_path = Path(arguments.key)
    signer = create_log(Path(arguments.folder), arguments.origin, key_path)
    text = signer.verifier_key.text
    public = key_path.with_suffix(".vkey")
    # An existing key file may be published already.
    if not public.exists():
        create_file(public, f"{text}\n".encode(), PUBLIC_FILE)
    out(f"{arguments.folder}: an empty log, {signer.name}")
    out(f"{key_path}: its private key; it can add leaves")
    out(f"{public}: its public key:")
    out(text)
    return DONE


@refusing
def run_add(arguments: Arguments) -> int:
    """Log manifests; exit 1 if the folder cannot be trusted."""
    # All are parsed before any is added, since a leaf cannot be removed.
    entries: list[bytes] = []
    for path in map(Path, arguments.manifests):
        entries.append(read_bounded(path, MAX_MANIFEST_BYTES))
        try:
            parse_leaf(entries[-1])
        except RefusedError as refusal:
            raise ConfigError(f"{path}: {refusal.detail}") from None
    folder, key = Path(arguments.folder), Path(arguments.key)
    progress = Progress().leaves
    with open_log(folder, key, progress=progress, adopt=arguments.adopt) as log:
        # Under the log's lock: no other process can add such a release between check
        # and write. A logged leaf cannot be removed.
        _refuse_other_contents(LogFolder(folder), log.size, entries)
        added = log.add(entries)
    if arguments.json:
        out_json({"indices": added.indices, "size": added.size, "added": added.fresh})
        return DONE
    for name, index in zip(arguments.manifests, added.indices, strict=True):
        out(f"{name}: leaf {index}")
    out(f"{folder}: {added.size} leaves, {added.fresh} of them new")
    return DONE


@refusing
def run_request(arguments: Arguments) -> int:
    """Write a request; exit 1 if the folder cannot be trusted."""
    key = key_of(arguments.log_key)
    request = request_for(LogFolder(Path(arguments.folder)), key, arguments.old)
    return write_or_print(arguments.out, request.encode().encode())


@refusing
def run_cosign(arguments: Arguments) -> int:
    """Merge cosignatures; exit 1 if one is invalid."""
    lines = read_text(Path(arguments.lines), MAX_LINES_BYTES)
    # Only keys that the caller names: a line by anyone else adds nothing that a client
    # would accept.
    witnesses = [key_of(text) for text in arguments.witness]
    log = key_of(arguments.log_key)
    named = add_cosignatures(Path(arguments.folder), log, witnesses, lines)
    for name in named:
        out(f"cosigned by {name}")
    # Otherwise a mistyped key would look like success, and the log would still lack its
    # witness.
    if not named:
        raise ConfigError(f"{arguments.lines}: no line of a named witness")
    return DONE


def _refuse_other_contents(folder: LogFolder, size: int, entries: list[bytes]) -> None:
    """Refuse a second release of a name and version: they would be ambiguous."""
    fresh = {_release(parse_leaf(entry)): entry for entry in entries}
    logged = [entry for _, bundle in folder.bundles(size) for entry in bundle]
    for index, entry in enumerate(logged):
        try:
            release = _release(parse_leaf(entry))
        except RefusedError:
            continue  # a leaf that is not a manifest releases nothing
        # The same bytes again are no conflict: the command may be repeated after an
        # interruption.
        if fresh.get(release, entry) != entry:
            raise ConfigError(
                f"{release}: leaf {index} has other contents for this version; "
                "give the new release a new version"
            )


def _release(manifest: ReleaseManifest | ModelManifest) -> str:
    return f"{manifest.name} {manifest.version}"
