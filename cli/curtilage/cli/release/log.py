"""``curtilage release log``: keep a transparency log of releases in a folder."""

import argparse
from pathlib import Path
from typing import Final

from curtilage.attest.errors import RefusedError
from curtilage.attest.evidence import MAX_MANIFEST_BYTES
from curtilage.attest.log.manifest import ReleaseManifest, parse_manifest
from curtilage.cli.release.options import (
    Progress,
    add_log_key,
    key_of,
    refusing,
    write_or_print,
)
from curtilage.cli.terminal import (
    DONE,
    Commands,
    add_command,
    out,
    out_json,
)
from curtilage.client.errors import ConfigError
from curtilage.client.files import read_bounded, read_text
from curtilage.transparency.files import (
    PUBLIC_FILE,
    create_file,
)
from curtilage.transparency.log import (
    HEAD_SUFFIX,
    LogFolder,
    add_cosignatures,
    create_log,
    open_log,
)
from curtilage.transparency.witness import request_for

MAX_LINES_BYTES: Final = 256 * 1024


def add(commands: "Commands[argparse.ArgumentParser]") -> None:
    """Add the command and its subcommands."""
    parser = add_command(
        commands,
        "log",
        summary="keep a log that any static web server can serve",
        text="Keep a transparency log (C2SP tlog-tiles) in a folder. Leaves are added "
        "and never\ntaken away; a folder that was changed or set back is not written "
        "to.",
        example="curtilage release log init public/log "
        "--origin log.example.com/enclave --key log.pem\n"
        "curtilage release log add public/log --key log.pem manifest.json",
    )
    actions = parser.add_subparsers(dest="log_action", required=True, metavar="ACTION")
    _add_init(actions)
    _add_add(actions)
    _add_request(actions)
    _add_cosign(actions)


def _add_init(actions: "Commands[argparse.ArgumentParser]") -> None:
    parser = add_command(
        actions,
        "init",
        summary="begin an empty log",
        text="Begin an empty log, and make its key (Ed25519, mode 0600) where there is "
        "none.\nBeside the key stand KEY.vkey, its public half for everybody, and "
        f"KEY{HEAD_SUFFIX}, what it\nsigned last: back up both, and never keep the key "
        "in a folder that is served.\nThe origin is the log's name for ever: the "
        "address that it is served from, without\nhttps://.",
        example="curtilage release log init public/log "
        "--origin log.example.com/enclave --key log.pem",
    )
    parser.add_argument("folder", help="the folder that will be served")
    parser.add_argument("--origin", required=True, help="the log's name")
    parser.add_argument(
        "--key", required=True, metavar="KEY.pem", help="made if it is not there"
    )
    parser.set_defaults(run=run_init)


def _add_add(actions: "Commands[argparse.ArgumentParser]") -> None:
    parser = add_command(
        actions,
        "add",
        summary="log manifests",
        text="Add manifests to a log and sign its new state. A manifest that is there "
        "already\nkeeps its number. Every file is compared with the checkpoint before "
        "anything is\nwritten, and the checkpoint is replaced last: a crash leaves "
        "the old state or the\nnew one. Afterwards, have witnesses cosign.",
        example="curtilage release log add public/log --key log.pem manifest.json",
    )
    parser.add_argument("folder", help="the log")
    parser.add_argument("manifests", nargs="+", metavar="MANIFEST")
    parser.add_argument("--key", required=True, metavar="KEY.pem")
    parser.add_argument(
        "--adopt",
        action="store_true",
        help=f"KEY{HEAD_SUFFIX} was lost: believe the folder, which must be whole and "
        "the newest state that was ever signed",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.set_defaults(run=refusing(run_add))


def _add_request(actions: "Commands[argparse.ArgumentParser]") -> None:
    parser = add_command(
        actions,
        "request",
        summary="ask a witness elsewhere to cosign",
        text="Write the body of an add-checkpoint request (C2SP tlog-witness): the "
        "checkpoint,\nand the proof that it continues what the witness has seen. Send "
        "it with any HTTP\nclient; give the answer to `release log cosign`.",
        example="curtilage release log request public/log --log-key log.vkey --old 7 "
        "> request\ncurl --data-binary @request https://witness.example/add-checkpoint "
        "> lines\ncurtilage release log cosign public/log --log-key log.vkey "
        "--witness w.vkey lines",
    )
    parser.add_argument("folder", help="the log")
    add_log_key(parser)
    parser.add_argument(
        "--old",
        type=int,
        default=0,
        metavar="SIZE",
        help="the size that the witness cosigned last (default: 0, never)",
    )
    parser.add_argument("--out", metavar="FILE", help="default: standard output")
    parser.set_defaults(run=refusing(run_request))


def _add_cosign(actions: "Commands[argparse.ArgumentParser]") -> None:
    parser = add_command(
        actions,
        "cosign",
        summary="put witnesses' lines under the checkpoint",
        text="Verify cosignature lines and put those of the named witnesses under the "
        "log's\ncheckpoint. A line of an unknown key is passed over, a wrong one of a "
        "known key is\nrefused.",
        example="curtilage release log cosign public/log --log-key log.vkey "
        "--witness w.vkey lines",
    )
    parser.add_argument("folder", help="the log")
    parser.add_argument("lines", help="file with the witness's lines")
    add_log_key(parser)
    parser.add_argument(
        "--witness",
        action="append",
        required=True,
        metavar="VKEY",
        help="a witness's public key, or a file with it; repeatable",
    )
    parser.set_defaults(run=refusing(run_cosign))


def run_init(arguments: argparse.Namespace) -> int:
    """Begin a log; exit 2 where there is one already."""
    key_path = Path(arguments.key)
    signer = create_log(Path(arguments.folder), arguments.origin, key_path)
    text = signer.verifier_key.text
    public = key_path.with_suffix(".vkey")
    if not public.exists():
        create_file(public, f"{text}\n".encode(), PUBLIC_FILE)
    out(f"{arguments.folder}: an empty log, {signer.name}")
    out(f"{key_path}: its private key; whoever has it can add leaves")
    out(f"{public}: its public key:")
    out(text)
    return DONE


def run_add(arguments: argparse.Namespace) -> int:
    """Log manifests; exit 1 where the folder cannot be believed."""
    entries = [_manifest(Path(name)) for name in arguments.manifests]
    folder, key = Path(arguments.folder), Path(arguments.key)
    told = Progress().leaves
    with open_log(folder, key, told=told, adopt=arguments.adopt) as log:
        _refuse_other_contents(LogFolder(folder), log.size, entries)
        added = log.add(entries)
    if arguments.json:
        out_json({"indices": added.indices, "size": added.size, "added": added.fresh})
        return DONE
    for name, index in zip(arguments.manifests, added.indices, strict=True):
        out(f"{name}: leaf {index}")
    out(f"{folder}: {added.size} leaves, {added.fresh} of them new")
    return DONE


def run_request(arguments: argparse.Namespace) -> int:
    """Write a request; exit 1 where the folder cannot be believed."""
    key = key_of(arguments.log_key)
    request = request_for(LogFolder(Path(arguments.folder)), key, arguments.old)
    return write_or_print(arguments.out, request.encode().encode())


def run_cosign(arguments: argparse.Namespace) -> int:
    """Merge cosignatures; exit 1 where one is not what it says."""
    lines = read_text(Path(arguments.lines), MAX_LINES_BYTES)
    witnesses = [key_of(text) for text in arguments.witness]
    log = key_of(arguments.log_key)
    named = add_cosignatures(Path(arguments.folder), log, witnesses, lines)
    for name in named:
        out(f"cosigned by {name}")
    if not named:
        raise ConfigError(f"{arguments.lines}: no line of a named witness")
    return DONE


def _manifest(path: Path) -> bytes:
    data = read_bounded(path, MAX_MANIFEST_BYTES)
    try:
        parse_manifest(data)
    except RefusedError as refusal:
        raise ConfigError(f"{path}: {refusal.detail}") from None
    return data


def _refuse_other_contents(folder: LogFolder, size: int, entries: list[bytes]) -> None:
    """Refuse a second release of one name and version: nobody could tell them apart."""
    fresh = {_release(parse_manifest(entry)): entry for entry in entries}
    logged = [entry for _, bundle in folder.bundles(size) for entry in bundle]
    for index, entry in enumerate(logged):
        try:
            release = _release(parse_manifest(entry))
        except RefusedError:
            continue
        if fresh.get(release, entry) != entry:
            raise ConfigError(
                f"{release}: leaf {index} says something else of this version; "
                "give the new release a version of its own"
            )


def _release(manifest: ReleaseManifest) -> str:
    return f"{manifest.name} {manifest.version}"
