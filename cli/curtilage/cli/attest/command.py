"""``curtilage attest``: verify a bundle of evidence and show every check."""

import argparse
from pathlib import Path

from curtilage.attest.errors import RefusedError
from curtilage.attest.verify import verify
from curtilage.cli.attest import show as attest_show
from curtilage.cli.attest import verify_evidence as attest_evidence
from curtilage.cli.attest.encodings import MAX_FILE_BYTES
from curtilage.cli.attest.verdict_json import key_object
from curtilage.cli.attest.words import (
    steps_text,
    tell_refusal,
)
from curtilage.cli.options import time_of
from curtilage.cli.terminal import (
    DONE,
    REFUSED,
    Commands,
    add_command,
    out,
    out_json,
)
from curtilage.client.config import read_policy
from curtilage.client.files import read_start
from curtilage.policy.expectations import expectations_from


def add(commands: "Commands[argparse.ArgumentParser]") -> None:
    """Add the command and its subcommands."""
    parser = add_command(
        commands,
        "attest",
        summary="verify an enclave's evidence",
        text="Work with attestation evidence: see who vouches for an enclave, verify\n"
        "a bundle, or one piece of evidence. Vendors are never contacted.",
        example="curtilage attest verify --bundle bundle.json --policy clinic.yaml",
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    check = add_command(
        actions,
        "verify",
        summary="print each numbered check of a bundle",
        text="Verify a bundle against a policy, offline, and print each check with "
        "pass or fail.\nExit 1 when it is refused.",
        example="curtilage attest verify --bundle bundle.json --policy clinic.yaml "
        "--at 2026-11-21T12:00:00Z",
    )
    check.add_argument("--bundle", required=True, metavar="FILE")
    check.add_argument("--policy", required=True, metavar="FILE")
    check.add_argument(
        "--at", metavar="RFC3339", help="verify as of this time (default: now)"
    )
    check.add_argument("--json", action="store_true", help="one JSON object")
    check.set_defaults(run=run_verify)
    attest_show.add(actions)
    attest_evidence.add(actions)


def run_verify(arguments: argparse.Namespace) -> int:
    """Verify; exit 1 where the evidence is refused."""
    policy, _ = read_policy(arguments.policy)
    now = time_of(arguments.at)
    bundle = read_start(Path(arguments.bundle), MAX_FILE_BYTES)
    try:
        key = verify(bundle, expectations_from(policy), now=now)
    except RefusedError as refusal:
        tell_refusal("bundle", refusal, at=now, as_json=arguments.json)
        return REFUSED
    if arguments.json:
        out_json(key_object(key, at=now))
    else:
        out(steps_text(key.steps))
        out(f"ACCEPTED until {key.expires_at:%Y-%m-%d %H:%M:%S} UTC")
    return DONE
