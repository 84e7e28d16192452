"""Every code has its meaning: something raises it, and some test sees that."""

import re
from functools import cache
from pathlib import Path

import pytest

from curtilage.attest.errors import RefusalCode, RefusedError

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("attest", "client", "enclave_server")
# The first release's list. Later ones may be added; none of these may go, since
# readers of a verdict's JSON rely on them.
DESIGNED = [
    "malformed",
    "too_large",
    "unsupported_version",
    "unsupported_algorithm",
    "unsupported_product",
    "unsigned",
    "verifier_unavailable",
    "untrusted_root",
    "chain_invalid",
    "expired_endorsement",
    "not_yet_valid",
    "revoked",
    "crl_missing",
    "crl_invalid",
    "crl_expired",
    "collateral_expired",
    "collateral_invalid",
    "bad_signature",
    "endorsement_mismatch",
    "debug_enabled",
    "migration_agent_allowed",
    "vmpl",
    "tcb_too_low",
    "tcb_status",
    "measurement_not_allowed",
    "release_not_logged",
    "proof_invalid",
    "quorum_not_met",
    "checkpoint_stale",
    "binding_mismatch",
    "device_missing",
    "device_mismatch",
    "stale",
    "emulated_refused",
    "key_inconsistent",
    "policy_invalid",
]


@cache
def _named(*folders: str) -> dict[str, frozenset[str]]:
    """Return for each code the files in which ``RefusalCode`` names it."""
    found: dict[str, set[str]] = {}
    files = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    for path in files:
        for name in re.findall(r"\bRefusalCode\.([A-Z_]+)", path.read_text("utf-8")):
            found.setdefault(name, set()).add(path.name)
    return {code: frozenset(names) for code, names in found.items()}


def test_the_designs_codes_are_all_there() -> None:
    assert len(set(DESIGNED)) == 36
    assert set(DESIGNED) <= {code.value for code in RefusalCode}


@pytest.mark.parametrize("code", RefusalCode, ids=str)
def test_a_code_is_raised_and_seen(code: RefusalCode) -> None:
    assert _named(*SOURCES)[code.name] - {"attest_words.py", "errors.py"}
    assert _named("tests")[code.name] - {Path(__file__).name}


@pytest.mark.parametrize("code", RefusalCode, ids=str)
def test_a_code_says_itself_first(code: RefusalCode) -> None:
    """What a program reads is the code; what a person reads begins with it."""
    assert code.value == code.name.lower()
    assert str(RefusedError(code, "why")).partition(":")[0] == code.value
