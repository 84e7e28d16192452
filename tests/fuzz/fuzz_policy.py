"""The policy loader: text that an administrator wrote, or somebody else.

Run with ``--seconds 60``, it tries damaged copies of its corpus; ``run.py`` lets
atheris choose.
"""

import sys
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fuzz.common import Harness, hold, run_harnesses

from curtilage.policy.document.load import load_policy
from curtilage.policy.errors import PolicyError


def check_policy(data: bytes) -> None:
    """A policy that keeps the unknown at home, or every problem of the text."""
    # Undecodable bytes become lone surrogates, which a text can hold as well.
    text = data.decode("utf-8", errors="surrogateescape")
    try:
        policy = load_policy(text)
    except PolicyError as error:
        hold(error.problems)
    else:
        assert "any-uncertain" in {rule.id for rule in policy.rules}


HARNESSES: Final = (Harness(name="policy", check=check_policy, max_bytes=2048),)

if __name__ == "__main__":
    sys.exit(run_harnesses("fuzz_policy", HARNESSES))
