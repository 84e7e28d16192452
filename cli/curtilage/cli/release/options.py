"""Shared parts of the ``release`` commands: keys, rules, progress and refusals."""

from pathlib import Path
from typing import Final

from curtilage.attest.errors import RefusedError
from curtilage.attest.log.note import NoteKey
from curtilage.attest.log.vkeys import parse_verifier_key
from curtilage.attest.log.witness_policy import MAX_POLICY_BYTES, parse_policy
from curtilage.cli.declared import Arguments, Run
from curtilage.cli.terminal import REFUSED, HowFar, err, out_json
from curtilage.client.config import read_policy
from curtilage.client.errors import UsageError
from curtilage.client.system.files import read_bounded, read_text
from curtilage.policy.expectations import expectations_from
from curtilage.transparency.proof import ReleaseRules, rules_from

MAX_VKEY_BYTES: Final = 8192


def rules_of(arguments: Arguments) -> ReleaseRules:
    """Return the rules from the options of ``add_rules``.

    Raises:
        RefusedError: ``policy_invalid``.
    """
    if arguments.policy is not None:
        # Two sources for the accepted names could contradict each other.
        if arguments.name:
            raise UsageError(
                "--name needs --log-policy; a Curtilage policy names its own"
            )
        policy, _ = read_policy(arguments.policy)
        return rules_from(expectations_from(policy))
    data = read_bounded(Path(arguments.log_policy), MAX_POLICY_BYTES)
    names = frozenset(arguments.name) if arguments.name else None
    return ReleaseRules(log=parse_policy(data), names=names)


def key_of(text: str) -> NoteKey:
    """Return a public key, given as text or as a file.

    Raises:
        UsageError: it is neither a key nor a file with one.
    """
    path = Path(text)
    # A key contains a plus sign; if a file has this name, the file is used.
    if "+" not in text or path.is_file():
        text = read_text(path, MAX_VKEY_BYTES).strip()
    try:
        return parse_verifier_key(text).key
    except RefusedError as refusal:
        raise UsageError(f"not a log's public key: {refusal.detail}") from None


def refusing(run: Run) -> Run:
    """Wrap a command: a refusal is printed with its code, and exits with 1."""

    def guarded(arguments: Arguments) -> int:
        try:
            return run(arguments)
        except RefusedError as refusal:
            if getattr(arguments, "json", False):
                # In addition to the message on standard error: a program that reads
                # JSON gets an object in any case.
                out_json(refusal_object(refusal))
            err(f"REFUSED: {refusal.code}: {refusal.detail}")
            return REFUSED

    return guarded


def refusal_object(refusal: RefusedError) -> dict[str, object]:
    """Return a refusal as a JSON object."""
    return {
        "accepted": False,
        "code": refusal.code.value,
        "detail": refusal.detail,
    }


class Progress(HowFar):
    """Progress of reading a log or hashing files."""

    def leaves(self, done: int, total: int) -> None:
        """Show the number of leaves read."""
        self.show(f"{done:,} of {total:,} leaves", last=done == total)
