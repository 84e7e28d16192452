"""``curtilage attest verify --bundle``: verify a bundle and show every check."""

from datetime import datetime
from pathlib import Path

from curtilage.attest.clock import suspect_clock
from curtilage.attest.errors import RefusedError
from curtilage.attest.expectations import Expectations
from curtilage.attest.verified_key import VerifiedKey
from curtilage.attest.verify import verify
from curtilage.cli.attest.encodings import MAX_FILE_BYTES
from curtilage.cli.attest.verdict_json import key_object
from curtilage.cli.attest.words import print_refusal, steps_text
from curtilage.cli.declared import Arguments
from curtilage.cli.options import time_of
from curtilage.cli.terminal import DONE, REFUSED, out, out_json
from curtilage.client.config import read_policy
from curtilage.client.system.files import read_start
from curtilage.policy.document.model import Policy
from curtilage.policy.expectations import expectations_from
from curtilage.policy.explain.breaks import not_ruled_out


def run_verify(arguments: Arguments) -> int:
    """Verify; exit 1 if the evidence is refused."""
    policy, _ = read_policy(arguments.policy)
    # Once for all checks: evidence that expires between two of them would get a
    # contradictory verdict.
    now = time_of(arguments.at)
    bundle = read_start(Path(arguments.bundle), MAX_FILE_BYTES)
    try:
        key = verified(bundle, expectations_from(policy), now)
    except RefusedError as refusal:
        print_refusal("bundle", refusal, at=now, as_json=arguments.json)
        return REFUSED
    print_key(policy, key, now, as_json=arguments.json)
    return DONE


def verified(bundle: bytes, expectations: Expectations, now: datetime) -> VerifiedKey:
    """Verify a bundle.

    Raises:
        RefusedError: it is refused; a wrong clock is named if it is the likely cause.
    """
    try:
        return verify(bundle, expectations, now=now)
    except RefusedError as refused:
        # A wrong clock looks like expired evidence, and is a common cause that the
        # reader can repair.
        raise suspect_clock(refused, bundle, expectations, now=now) from None


def print_key(
    policy: Policy, key: VerifiedKey, now: datetime, *, as_json: bool
) -> None:
    """Print the verdict on an accepted bundle."""
    if as_json:
        out_json(key_object(key, not_ruled_out(policy, key), at=now))
        return
    out(steps_text(key.steps))
    out(f"ACCEPTED until {key.expires_at:%Y-%m-%d %H:%M:%S} UTC")
