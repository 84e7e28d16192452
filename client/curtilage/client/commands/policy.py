"""``curtilage policy``: check a policy file."""

import argparse

from curtilage.client.commands.terminal import (
    DONE,
    WRONG_USE,
    Commands,
    add_command,
    err,
    out,
    out_json,
)
from curtilage.client.config import read_policy
from curtilage.policy.errors import PolicyError
from curtilage.policy.model import Policy


def add(commands: "Commands[argparse.ArgumentParser]") -> None:
    """Add the command and its subcommands."""
    parser = add_command(
        commands,
        "policy",
        summary="check a policy file",
        text="Work with policy files.",
        example="curtilage policy check clinic.yaml",
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    check = add_command(
        actions,
        "check",
        summary="find every problem of a policy, with its line",
        text="Load a policy and print every problem with its line, or what it says.",
        example="curtilage policy check clinic.yaml\ncurtilage policy check",
    )
    check.add_argument(
        "file", nargs="?", help="policy file (default: the shipped profile)"
    )
    check.add_argument("--json", action="store_true", help="one JSON object")
    check.set_defaults(run=run_check)


def run_check(arguments: argparse.Namespace) -> int:
    """Check a policy; exit 2 where it is wrong."""
    try:
        policy, source = read_policy(arguments.file)
    except PolicyError as error:
        _tell_problems(error, as_json=arguments.json)
        return WRONG_USE
    if arguments.json:
        out_json({"ok": True, "digest": policy.digest, "problems": []})
    else:
        out(summary(policy, source))
    return DONE


def summary(policy: Policy, source: str) -> str:
    """Say in a few lines what a policy holds."""
    attestation = policy.document.attestation
    enclaves = (
        "none: nothing may leave"
        if attestation is None
        else f"{attestation.environment}, "
        f"TEEs {', '.join(attestation.required_cpu_tees) or 'none'}"
    )
    return "\n".join(
        [
            f"{source}: no problem found",
            f"  digest    {policy.digest}",
            f"  rules     {len(policy.rules)}",
            f"  enclaves  {enclaves}",
        ]
    )


def _tell_problems(error: PolicyError, *, as_json: bool) -> None:
    if as_json:
        problems = [
            {"line": each.line, "path": each.path, "message": each.message}
            for each in error.problems
        ]
        out_json({"ok": False, "digest": None, "problems": problems})
        return
    for problem in error.problems:
        err(f"{error.source}: {problem}")
    count = len(error.problems)
    err(f"{count} problem{'s' if count > 1 else ''}; the policy is not usable")
