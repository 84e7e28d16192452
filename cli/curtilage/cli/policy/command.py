"""``curtilage policy``: check, explain, test, compare, report and sign policies."""

import argparse
from collections.abc import Iterator

from curtilage.cli import explain
from curtilage.cli.policy import diff as policy_diff
from curtilage.cli.policy import report as policy_report
from curtilage.cli.policy import sign as policy_sign
from curtilage.cli.policy import test_cases as policy_test
from curtilage.cli.terminal import (
    DONE,
    WRONG_USE,
    Commands,
    add_command,
    err,
    out,
    out_json,
)
from curtilage.client.config import read_usable_policy
from curtilage.client.errors import UsageError
from curtilage.policy.document.load import (
    PROFILES,
    load_pack,
    load_profile,
    profile_text,
)
from curtilage.policy.document.model import Policy
from curtilage.policy.errors import PolicyError
from curtilage.policy.explain.attestation import attestation_in_words
from curtilage.policy.explain.transport import transport_in_words

_NER = {
    "none": "no model; a name that is suspected stays home as uncertain.name",
    "embedded": "the embedded model",
    "spacy": "a spaCy pipeline of yours",
    "transformers": "a transformers model of yours",
}
_SCAN = {
    "early_exit": "ends once a validated finding keeps the query home",
    "full": "everything is looked at",
}


def add(commands: "Commands[argparse.ArgumentParser]") -> None:
    """Add the command and its subcommands."""
    parser = add_command(
        commands,
        "policy",
        summary="check, explain, test, compare, report and sign policies",
        text="Work with policies: files, or by their names the shipped profiles.",
        example="curtilage policy list\ncurtilage policy check clinic.yaml\n"
        "curtilage policy explain - < letter.txt\n"
        "curtilage policy report --policy clinic --out clinic.html",
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    _add_check(actions)
    explain.add(actions, path="curtilage policy explain")
    policy_test.add(actions)
    policy_diff.add(actions)
    policy_report.add(actions)
    policy_sign.add(actions)
    _add_list(actions)


def _add_check(actions: "Commands[argparse.ArgumentParser]") -> None:
    check = add_command(
        actions,
        "check",
        summary="find every problem of a policy, with its line",
        text="Load a policy, compile its patterns, look for the files and the model it "
        "names,\nand print every problem with its line, or what it combines.",
        example="curtilage policy check clinic.yaml\ncurtilage policy check",
    )
    check.add_argument(
        "file",
        nargs="?",
        help="policy file, or a shipped profile (default: the default profile)",
    )
    check.add_argument("--json", action="store_true", help="one JSON object")
    check.set_defaults(run=run_check)


def _add_list(actions: "Commands[argparse.ArgumentParser]") -> None:
    listing = add_command(
        actions,
        "list",
        summary="list the shipped profiles, or show one",
        text="List the shipped profiles and the packs that they combine, or print one "
        "to start\na policy of your own from.",
        example="curtilage policy list\ncurtilage policy list clinic > mine.yaml",
    )
    listing.add_argument("name", nargs="?", help="a profile, to print it")
    listing.add_argument("--json", action="store_true", help="one JSON object")
    listing.set_defaults(run=run_list)


def run_check(arguments: argparse.Namespace) -> int:
    """Check a policy; exit 2 where it is wrong."""
    try:
        policy, source = read_usable_policy(arguments.file)
    except PolicyError as error:
        _tell_problems(error, as_json=arguments.json)
        return WRONG_USE
    if arguments.json:
        out_json({"ok": True, "digest": policy.digest, "problems": []})
    else:
        out(summary(policy, source))
    return DONE


def run_list(arguments: argparse.Namespace) -> int:
    """List the profiles, or print one."""
    if arguments.name is not None:
        if arguments.name not in PROFILES:
            raise UsageError(f"no such profile; there are {', '.join(PROFILES)}")
        out(profile_text(arguments.name), end="")
        return DONE
    profiles = {name: load_profile(name) for name in PROFILES}
    if arguments.json:
        out_json(
            [
                {"name": name, "packs": policy.document.packs, "digest": policy.digest}
                for name, policy in profiles.items()
            ]
        )
        return DONE
    for name, policy in profiles.items():
        out(f"{name:<14}  {', '.join(policy.document.packs) or 'no packs'}")
    return DONE


def summary(policy: Policy, source: str) -> str:
    """Say in a few lines what a policy combines."""
    return "\n".join(_summary(policy, source))


def _summary(policy: Policy, source: str) -> Iterator[str]:
    document = policy.document
    yield f"{source}: no problem found"
    yield f"  digest    {policy.digest}"
    yield f"  rules     {len(policy.rules)}, {len(document.rules)} of them its own"
    for name in document.packs:
        pack = load_pack(name)
        count = f"{len(pack.rules)} rule{'s' if len(pack.rules) > 1 else ''}"
        yield f"  pack      {name}: {pack.title} ({count})"
    yield f"  default   {document.default.decision}, where no rule is more private"
    yield f"  names     {_NER[document.ner.engine]}"
    yield f"  scan      {_SCAN[document.scan]}"
    if policy.wall_required:
        yield "  wall      required: without the kernel's wall, no detector starts"
    for each in policy.detectors:
        yield f"  detector  {each.id}: {each.kind}, finds {each.data_class}"
    for exclusion in policy.exclusions:
        listed = f" that stand in {exclusion.listed}" if exclusion.listed else ""
        yield f"  excluded  {exclusion.pattern}{listed}"
    for label, sentence in attestation_in_words(policy):
        yield f"  {label:<8}  {sentence}"
    for label, sentence in transport_in_words(policy.transport):
        yield f"  {label:<8}  {sentence}"


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
