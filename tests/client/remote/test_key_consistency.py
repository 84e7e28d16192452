"""The same keys for all clients, as far as one client can see."""

from datetime import timedelta

import pytest

from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.client.chat.answer import Answerer
from curtilage.client.chat.query import Message, Query
from curtilage.client.errors import EnclaveError, FailureReason
from curtilage.client.parts import ClientParts
from curtilage.client.remote import key_consistency as consistency_module
from curtilage.client.remote.fetch_order import MIRROR, FetchOrder
from curtilage.client.remote.key_consistency import KeyHistory, compare_with_mirror
from curtilage.client.remote.key_store import NEGATIVE_TTL
from curtilage.client.remote.reasons import EnclaveFailure
from curtilage.client.session import Session
from curtilage.policy.document.load import load_profile
from support.client_parts import MemoryTrail, ScriptedInspector, ScriptedLocal
from support.memory_enclave import NOW, Clock, MemoryEnclave, key_store, verified

QUERY = Query(messages=(Message(role="user", content="hello"),))


class MemoryMirror:
    """A mirror that serves the configured list, or nothing."""

    def __init__(self, key_configs: bytes | None) -> None:
        self.key_configs = key_configs
        self.fetched = 0
        self.closed = False

    async def fetch_key_configs(self, order: FetchOrder) -> bytes:
        order.take(MIRROR)
        self.fetched += 1
        if self.key_configs is None:
            raise EnclaveError(EnclaveFailure.RELAY_UNREACHABLE)
        return self.key_configs

    async def close(self) -> None:
        self.closed = True


class Bench:
    """A session that compares with a mirror."""

    def __init__(self, key_configs: bytes | None = b"") -> None:
        self.enclave = MemoryEnclave()
        served = self.enclave.key_configs if key_configs == b"" else key_configs
        self.mirror = MemoryMirror(served)
        self.clock = Clock()
        self.session = Session(
            ClientParts(
                policy=load_profile("default"),
                inspector=ScriptedInspector(),
                local=ScriptedLocal(),
                transport=self.enclave,
                mirror=self.mirror,
                keys=key_store(),
                audit=MemoryTrail(),
                clock=self.clock,
            )
        )

    async def home(self) -> FailureReason | None:
        answer = await self.session.ask(QUERY)
        assert answer.route is Answerer.LOCAL
        assert self.enclave.sealed == []
        return answer.provenance.fallback


async def test_the_mirror_is_asked_when_the_bundle_is_not_with_every_query() -> None:
    bench = Bench()
    for _ in range(3):
        assert (await bench.session.ask(QUERY)).route is Answerer.ENCLAVE
    assert (bench.mirror.fetched, bench.enclave.fetched) == (1, 1)
    await bench.session.close()
    assert bench.mirror.closed


async def test_another_list_at_the_mirror_keeps_the_query_local() -> None:
    bench = Bench(MemoryEnclave().key_configs)
    assert await bench.home() is EnclaveFailure.EVIDENCE_REFUSED
    with pytest.raises(EnclaveError, match="key_inconsistent"):
        await bench.session.verified_key()


async def test_a_silent_mirror_keeps_the_query_local_and_is_reported_as_such() -> None:
    bench = Bench(None)
    assert await bench.home() is EnclaveFailure.MIRROR_UNREACHABLE
    assert await bench.home() is EnclaveFailure.MIRROR_UNREACHABLE
    assert bench.mirror.fetched == 1, "a refusal is remembered"
    bench.mirror.key_configs = bench.enclave.key_configs
    bench.clock.now += NEGATIVE_TTL
    assert (await bench.session.ask(QUERY)).route is Answerer.ENCLAVE


async def test_a_new_key_is_compared_again() -> None:
    bench = Bench()
    await bench.session.ask(QUERY)
    bench.enclave.rotate(7)
    answer = await bench.session.ask(QUERY)
    assert answer.provenance.fallback is EnclaveFailure.EVIDENCE_REFUSED
    assert bench.mirror.fetched == 2
    assert len(bench.enclave.sealed) == 2, "refused once; not sealed to the new key"


async def test_another_list_for_the_same_window_is_refused() -> None:
    enclave, twin = MemoryEnclave(key_id=1), MemoryEnclave(key_id=2)
    history = KeyHistory()
    history.check(verified(enclave))
    history.check(verified(enclave))
    with pytest.raises(RefusedError) as refused:
        history.check(verified(twin))
    assert refused.value.code is RefusalCode.KEY_INCONSISTENT


async def test_a_new_list_of_a_window_gone_by_is_refused() -> None:
    enclave, other = MemoryEnclave(), MemoryEnclave()
    history = KeyHistory()
    first = verified(enclave)
    history.check(first)
    enclave.rotate(7)
    history.check(verified(enclave))
    history.check(first)  # a copy that the relay still has
    for begins in (timedelta(hours=-2), timedelta(minutes=-59, seconds=-30)):
        other.attest(NOW + begins)
        with pytest.raises(RefusedError) as refused:
            history.check(verified(other))
        assert refused.value.code is RefusalCode.KEY_INCONSISTENT
    other.attest(NOW)
    history.check(verified(other))


async def test_the_book_looks_into_the_history() -> None:
    enclaves = key_store()
    enclaves.accept(MemoryEnclave().bundle, NOW)
    with pytest.raises(RefusedError) as refused:
        enclaves.accept(MemoryEnclave().bundle, NOW)
    assert refused.value.code is RefusalCode.KEY_INCONSISTENT


def test_only_so_much_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consistency_module, "REMEMBERED", 2)
    history, enclave = KeyHistory(), MemoryEnclave()
    first = verified(enclave)
    history.check(first)
    for key_id in range(2):
        history.check(first)
        enclave.rotate(key_id)
        history.check(verified(enclave))
    with pytest.raises(RefusedError):
        history.check(first)


def test_the_whole_list_is_compared() -> None:
    enclave = MemoryEnclave()
    key = verified(enclave)
    compare_with_mirror(key, enclave.key_configs)
    for other in (b"", enclave.key_configs[:-1], enclave.key_configs + b"\0"):
        with pytest.raises(RefusedError):
            compare_with_mirror(key, other)
