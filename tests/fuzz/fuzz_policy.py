"""The policy loader: text from an administrator, or from an attacker."""

from typing import Final

from fuzz.common import Harness, hold

from curtilage.policy.document.load import load_policy
from curtilage.policy.errors import PolicyError


def check_policy(data: bytes) -> None:
    """A policy that keeps the unknown local, or every problem of the text."""
    # Undecodable bytes become lone surrogates, which a text can hold as well.
    text = data.decode("utf-8", errors="surrogateescape")
    try:
        policy = load_policy(text)
    except PolicyError as error:
        hold(error.problems)
    else:
        assert "any-uncertain" in {rule.id for rule in policy.rules}


HARNESSES: Final = (Harness(name="policy", check=check_policy, max_bytes=2048),)
