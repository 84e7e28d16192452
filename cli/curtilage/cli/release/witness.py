"""``curtilage release witness``: a witness of one's own for other people's logs."""

import argparse
from pathlib import Path
from typing import Final

from curtilage.cli.options import time_of
from curtilage.cli.release.options import (
    Progress,
    add_log_key,
    key_of,
    refusing,
    write_or_print,
)
from curtilage.cli.terminal import DONE, Commands, add_command, err, out
from curtilage.client.files import read_text
from curtilage.transparency.log import LogFolder, add_cosignatures
from curtilage.transparency.witness import Witness, create_witness, parse_request

MAX_REQUEST_BYTES: Final = 256 * 1024
TEXT: Final = """\
Be a witness: cosign a log's state if it continues what was cosigned before.

A log whose witnesses are run by others cannot show one history to you and another one
to somebody else: its key alone does not suffice. A witness needs no server: it reads a
folder (a copy fetched by any means will do) or a request file, and writes one line."""


def add(commands: "Commands[argparse.ArgumentParser]") -> None:
    """Add the command and its subcommands."""
    parser = add_command(
        commands,
        "witness",
        summary="watch logs and cosign them",
        text=TEXT,
        example="curtilage release witness init w1 --name witness.example.com/a\n"
        "curtilage release witness cosign w1 --log public/log --log-key log.vkey",
    )
    actions = parser.add_subparsers(
        dest="witness_action", required=True, metavar="ACTION"
    )
    _add_init(actions)
    _add_cosign(actions)


def _add_init(actions: "Commands[argparse.ArgumentParser]") -> None:
    parser = add_command(
        actions,
        "init",
        summary="make a witness's folder and key",
        text="Make a folder (mode 0700) with a key (0600), its public half "
        "(witness.vkey, for log\npolicies) and, later, the last checkpoint of each "
        "log. Keep the folder: a witness\nthat forgets is none.",
        example="curtilage release witness init w1 --name witness.example.com/hospital",
    )
    parser.add_argument("folder", help="the witness's folder")
    parser.add_argument("--name", required=True, help="the key's name")
    parser.add_argument(
        "--ml-dsa",
        action="store_true",
        help="an ML-DSA-44 key, safe against quantum computers, rather than Ed25519",
    )
    parser.set_defaults(run=run_init)


def _add_cosign(actions: "Commands[argparse.ArgumentParser]") -> None:
    parser = add_command(
        actions,
        "cosign",
        summary="cosign a log's checkpoint",
        text="Verify a log's checkpoint and that it continues what this witness "
        "cosigned last,\nremember it, and print the cosignature. From a folder every "
        "leaf is compared too.\nA checkpoint that contradicts the last one is kept "
        "as evidence, and refused.",
        example="curtilage release witness cosign w1 --log public/log "
        "--log-key log.vkey --write\n"
        "curtilage release witness cosign w1 --request request --log-key log.vkey",
    )
    parser.add_argument("folder", help="the witness's folder")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--log", metavar="DIR", help="the log, or a copy of it")
    source.add_argument(
        "--request", metavar="FILE", help="an add-checkpoint request (tlog-witness)"
    )
    add_log_key(parser)
    parser.add_argument(
        "--write",
        action="store_true",
        help="with --log: put the line under its checkpoint as well",
    )
    parser.add_argument("--at", metavar="RFC3339", help=argparse.SUPPRESS)
    parser.set_defaults(run=refusing(run_cosign))


def run_init(arguments: argparse.Namespace) -> int:
    """Make a witness; exit 2 where there is one already."""
    witness = create_witness(
        Path(arguments.folder), arguments.name, ml_dsa=arguments.ml_dsa
    )
    out(witness.verifier_key.text)
    return DONE


def run_cosign(arguments: argparse.Namespace) -> int:
    """Cosign; exit 1 where the log does not continue what it was."""
    witness = Witness(Path(arguments.folder))
    log = key_of(arguments.log_key)
    now = time_of(arguments.at)
    if arguments.request is not None:
        request = parse_request(read_text(Path(arguments.request), MAX_REQUEST_BYTES))
        line = witness.cosign_request(request, log, now=now)
        return write_or_print(None, line.encode())
    path = Path(arguments.log)
    line = witness.cosign_folder(LogFolder(path), log, now=now, told=Progress().leaves)
    if arguments.write:
        add_cosignatures(path, log, [witness.verifier_key.key], line)
        err(f"{path}: cosigned by {witness.verifier_key.key.name}")
        return DONE
    return write_or_print(None, line.encode())
