"""The short run of ``make bench ARGS=egress``, which says what it counts."""

from functools import cache

import pytest
from benchmarks.egress import Egress, watched

from curtilage.attest.verify import VerifiedKey
from support.memory_enclave import NOW, MemoryEnclave, verified
from support.samples import Sample


@cache
def keys() -> tuple[VerifiedKey, VerifiedKey]:
    return verified(MemoryEnclave(key_id=1)), verified(MemoryEnclave(key_id=2))


@pytest.mark.parametrize(
    ("requests", "encrypt"), [(20_000, False), (200, True)], ids=["many", "encrypted"]
)
def test_faults_let_nothing_out_and_no_permit_opens_twice(
    requests: int, encrypt: bool, sample: Sample
) -> None:
    egress = Egress(keys(), NOW, seed=1)
    with watched(egress, encrypt=encrypt):
        egress.run(requests if sample.every else min(requests, 8_000))
    totals = egress.totals
    assert totals.wrong == dict.fromkeys(totals.wrong, 0)
    assert 0 < totals.allowed < totals.requests
    assert min(totals.sealed, totals.again) > 0
    if not encrypt:
        assert totals.full > 0
        assert set(totals.refused) == {
            "attempt",
            "expired",
            "forged",
            "full",
            "key",
            "no permit",
            "not_redeemed",
            "payload",
            "used",
        }


def test_sending_without_a_permit_is_counted() -> None:
    """A run that saw nothing would hold, too."""
    egress = Egress(keys(), NOW, seed=1)
    egress.observe(b"it must stay here")
    assert egress.totals.wrong["restricted bytes out"] == 17
    assert egress.totals.wrong["without a permit"] == 1
