"""What the ``release`` commands share: keys and rules by option, progress, outcomes."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Final

from curtilage.attest.errors import RefusedError
from curtilage.attest.log.note import NoteKey
from curtilage.attest.log.vkeys import parse_verifier_key
from curtilage.attest.log.witness_policy import MAX_POLICY_BYTES, parse_policy
from curtilage.cli.terminal import (
    REFUSED,
    HowFar,
    err,
    out_json,
)
from curtilage.client.config import read_policy
from curtilage.client.errors import UsageError
from curtilage.client.files import read_bounded, read_text
from curtilage.policy.expectations import expectations_from
from curtilage.transparency.proof import ReleaseRules, rules_from

MAX_VKEY_BYTES: Final = 8192
_MEBIBYTE: Final = 1 << 20

Run = Callable[[argparse.Namespace], int]


def rules_of(arguments: argparse.Namespace) -> ReleaseRules:
    """Read the rules that ``add_rules`` asked for.

    Raises:
        RefusedError: ``policy_invalid``.
    """
    if arguments.policy is not None:
        if arguments.name:
            raise UsageError("--name goes with --log-policy; a policy names its own")
        policy, _ = read_policy(arguments.policy)
        return rules_from(expectations_from(policy))
    data = read_bounded(Path(arguments.log_policy), MAX_POLICY_BYTES)
    names = frozenset(arguments.name) if arguments.name else None
    return ReleaseRules(log=parse_policy(data), names=names)


def key_of(text: str) -> NoteKey:
    """Read a public key: the text itself, or the file that holds it.

    Raises:
        UsageError: it is neither.
    """
    path = Path(text)
    # A public key has a plus sign in it; where a file is called so, the file is meant.
    if "+" not in text or path.is_file():
        text = read_text(path, MAX_VKEY_BYTES).strip()
    try:
        return parse_verifier_key(text).key
    except RefusedError as refusal:
        raise UsageError(f"not a public key of a log: {refusal.detail}") from None


def refusing(run: Run) -> Run:
    """Wrap a command so that a refusal is told, with its code, and exits with 1."""

    def guarded(arguments: argparse.Namespace) -> int:
        try:
            return run(arguments)
        except RefusedError as refusal:
            if getattr(arguments, "json", False):
                out_json(refusal_object(refusal))
            err(f"REFUSED: {refusal.code}: {refusal.detail}")
            return REFUSED

    return guarded


def refusal_object(refusal: RefusedError) -> dict[str, object]:
    """Return a refusal as programs read it."""
    return {
        "accepted": False,
        "code": refusal.code.value,
        "detail": refusal.detail,
    }


class Progress(HowFar):
    """How far the reading of a log, or of files, is."""

    def leaves(self, done: int, total: int) -> None:
        """Tell how many leaves were looked at."""
        self.tell(f"{done:,} of {total:,} leaves", last=done == total)

    def hashed(self, name: str, done: int, total: int) -> None:
        """Tell how much of a file was hashed."""
        text = f"{name}: {done / _MEBIBYTE:,.0f} of {total / _MEBIBYTE:,.0f} MiB"
        self.tell(text, last=done == total)
