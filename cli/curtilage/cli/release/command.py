"""``curtilage release``: publish releases in a log, prove them, check them."""

from typing import TYPE_CHECKING

from curtilage.cli.release import audit as release_audit
from curtilage.cli.release import check as release_check
from curtilage.cli.release import log as release_log
from curtilage.cli.release import manifest as release_manifest
from curtilage.cli.release import witness as release_witness
from curtilage.cli.terminal import Commands, add_command

if TYPE_CHECKING:
    import argparse

TEXT = """\
Publish releases so that everybody can check what an enclave runs.

A release is described by a manifest. Its publisher adds it to a transparency log: a
folder that any static web server can serve, to which leaves are added and from which
nothing is ever taken. Witnesses cosign the log's state, so that it cannot show
different leaves to different people. A client believes a measurement only if its
manifest was logged, witnessed, and has not expired; it checks that offline.

publisher: manifest, log init, log add, log cosign, prove
witness:   witness init, witness cosign
everybody: verify, audit

See docs/transparency.md for the formats, and for how to serve the folder."""
EXAMPLE = """\
curtilage release log init public/log --origin log.example.com/enclave --key log.pem
curtilage release manifest --name curtilage-enclave --version 1.2.0 \\
  --source git+https://example.com/enclave@4f2a... --measurements measured.json \\
  --model model.gguf --not-after +180d --out manifest.json
curtilage release log add public/log --key log.pem manifest.json
curtilage release witness cosign w1 --log public/log --log-key log.vkey --write
curtilage release prove public/log --log-key log.vkey --manifest manifest.json \\
  --out proof.txt
curtilage release verify --manifest manifest.json --proof proof.txt --policy mine.yaml
curtilage release audit public/log --policy mine.yaml"""


def add(commands: "Commands[argparse.ArgumentParser]") -> None:
    """Add the command and its subcommands."""
    parser = add_command(
        commands,
        "release",
        summary="publish, prove, verify and audit releases",
        text=TEXT,
        example=EXAMPLE,
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    release_manifest.add(actions)
    release_log.add(actions)
    release_witness.add(actions)
    release_check.add(actions)
    release_audit.add(actions)
