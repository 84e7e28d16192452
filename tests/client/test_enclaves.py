from datetime import timedelta

import pytest

from curtilage.attest.errors import RefusedError
from curtilage.client.enclaves import NEGATIVE_TTL
from support.memory_enclave import NOW, MemoryEnclave, book


def test_an_accepted_key_is_pinned_until_it_expires() -> None:
    enclaves = book()
    assert enclaves.current(NOW) is None
    key = enclaves.accept(MemoryEnclave().bundle, NOW)
    assert enclaves.current(NOW) is key
    assert enclaves.current(key.expires_at - timedelta(seconds=1)) is key
    assert enclaves.current(key.expires_at) is None
    assert enclaves.current(NOW) is None, "an expired key is gone for good"


def test_a_refusal_is_remembered_for_a_minute() -> None:
    enclaves = book()
    with pytest.raises(RefusedError) as refused:
        enclaves.accept(b"{}", NOW)
    with pytest.raises(RefusedError) as again:
        enclaves.current(NOW + NEGATIVE_TTL - timedelta(seconds=1))
    assert again.value.code is refused.value.code
    assert again.value is not refused.value, "a traceback would grow"
    assert enclaves.current(NOW + NEGATIVE_TTL) is None


def test_a_refusal_drops_the_key_before() -> None:
    enclaves = book()
    enclaves.accept(MemoryEnclave().bundle, NOW)
    with pytest.raises(RefusedError):
        enclaves.accept(b"{}", NOW)
    assert enclaves.current(NOW + NEGATIVE_TTL) is None


def test_expired_evidence_is_not_pinned() -> None:
    enclaves = book()
    with pytest.raises(RefusedError):
        enclaves.accept(MemoryEnclave().bundle, NOW + timedelta(days=2))
    assert enclaves.current(NOW + timedelta(days=3)) is None


def test_drop_forgets_only_that_key() -> None:
    enclaves = book()
    enclave = MemoryEnclave()
    old = enclaves.accept(enclave.bundle, NOW)
    enclave.rotate(7)
    new = enclaves.accept(enclave.bundle, NOW)
    enclaves.drop(old)
    assert enclaves.current(NOW) is new
    enclaves.drop(new)
    assert enclaves.current(NOW) is None
