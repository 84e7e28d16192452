"""Many enclaves under one name: each verified, one drawn, another if it fails."""

import gc
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta

import pytest

from curtilage.attest.requirements import Requirement
from curtilage.attest.verify import VerifiedKey
from curtilage.client.chat.answer import AnswerEvent, Delta, Finished
from curtilage.client.chat.query import Message, Query
from curtilage.client.chat.receipt import ReceiptSecret
from curtilage.client.errors import EnclaveError, FailureReason
from curtilage.client.remote.enclave import Enclave
from curtilage.client.remote.fetch_order import MIRROR, FetchOrder
from curtilage.client.remote.key_store import NEGATIVE_TTL, KeyStore
from curtilage.client.remote.keys import KeySource
from curtilage.client.remote.nodes import FAILED_FOR
from curtilage.client.remote.reasons import EnclaveFailure
from curtilage.client.remote.requests import NOTHING_MORE, ChatRequest
from curtilage.client.system.budget import Budget
from curtilage.policy.decision.decide import Allowed, decide
from curtilage.policy.document.load import load_profile
from curtilage.relay.forward import node_list
from curtilage.wire.node_list import MAX_NODES
from support.inspections import inspection_of
from support.memory_enclave import (
    NOW,
    ROOMY,
    Clock,
    MemoryEnclave,
    Reply,
    key_store,
)
from support.memory_pool import MemoryPool
from support.permits import new_desk
from support.virtual_time import VirtualTime

QUERY = Query(messages=(Message(role="user", content="hello"),), stream=True)
ANSWER = "From afar."
BUSY = Reply(content=b"{}", status=503, media_type=b"application/json")


def allowed() -> Allowed:
    inspection = inspection_of(
        findings=(), payload_digest=QUERY.payload_digest(), messages=1
    )
    permission = decide(load_profile("default").rulebook, inspection).allowed
    assert permission is not None
    return permission


def shows_nothing(nonce: bytes, b0: bytes) -> Reply:
    """Answer a challenge with malformed evidence."""
    del nonce, b0
    return Reply(content=b"{}")


def having(key_configs: bytes) -> Callable[[VerifiedKey], bool]:
    return lambda key: key.key_configs == key_configs


def first(bound: int) -> int:
    del bound
    return 0


class MemoryMirror:
    """Serves what the test configures."""

    def __init__(self, served: bytes) -> None:
        self.served = served

    async def fetch_key_configs(self, order: FetchOrder) -> bytes:
        order.take(MIRROR)
        return self.served

    async def close(self) -> None:
        """Do nothing."""


class Bench:
    """A client of a pool; ``chosen`` decides each draw.

    Nodes have the ids a, b, c, in this order.
    """

    def __init__(
        self,
        pool: MemoryPool,
        *,
        mirror: MemoryMirror | None = None,
        retries: Budget | None = None,
    ) -> None:
        self.pool = pool
        self.clock = Clock()
        self.chosen: list[int] = []
        self.recorded: list[str] = []
        self.challenges = 0
        desk = new_desk()
        shape = pool.enclaves["a"].parameters
        self.keys = KeySource(
            pool, key_store(shape), self.clock, desk, mirror=mirror, below=self.below
        )
        self.remote = Enclave(pool, self.keys, self.clock, desk, retries=retries)

    def below(self, bound: int) -> int:
        if bound > len(self.pool.enclaves):  # the time of a renewal
            return 0
        return self.chosen.pop(0) % bound if self.chosen else 0

    async def leaves(self, allowed: Allowed, verdict_id: str) -> None:
        del allowed
        self.recorded.append(verdict_id)

    async def receipted(
        self, secret: ReceiptSecret, public_key: bytes, receipt: bytes
    ) -> None:
        """Keep no receipt."""

    async def challenged(self, content: bytes, verdict_id: str) -> None:
        del content, verdict_id
        self.challenges += 1

    async def covered(self, content: bytes, verdict_id: str) -> None:
        """Record nothing."""

    async def steps(
        self,
        requirement: Requirement = NOTHING_MORE,
        *,
        into: list[AnswerEvent] | None = None,
    ) -> list[AnswerEvent]:
        request = ChatRequest(
            allowed=allowed(),
            tier="enclave",
            payload=QUERY.payload(),
            records=self,
            requirement=requirement,
        )
        steps = [] if into is None else into
        async for step in self.remote.ask(request):
            steps.append(step)
        return steps

    async def ask(self, *draws: int) -> list[str]:
        """Ask once with these draws; return which nodes were asked."""
        before = len(self.pool.asked)
        self.chosen = list(draws)
        steps = await self.steps()
        assert "".join(e.text for e in steps if isinstance(e, Delta)) == ANSWER
        assert sum(isinstance(each, Finished) for each in steps) == 1
        assert self.chosen == [], "as many draws as were foreseen"
        return self.pool.asked[before:]

    async def fails(self) -> FailureReason:
        with pytest.raises(EnclaveError) as refused:
            await self.steps()
        return refused.value.reason


async def test_a_node_is_drawn_for_each_question() -> None:
    bench = Bench(MemoryPool(3))
    asked = [await bench.ask(draw) for draw in (0, 2, 2, 1, 0)]
    assert asked == [["a"], ["c"], ["c"], ["b"], ["a"]]
    opened = {node: len(each.requests) for node, each in bench.pool.enclaves.items()}
    assert opened == {"a": 2, "b": 1, "c": 2}


async def test_the_same_data_are_fetched_for_every_node() -> None:
    bench = Bench(MemoryPool(3))
    for draw in (0, 1, 2, 0):
        await bench.ask(draw)
    assert bench.pool.fetched == 1


async def test_each_attempt_is_recorded_with_the_evidence_of_its_node() -> None:
    bench = Bench(MemoryPool(3))
    bench.pool.kill("b")
    bench.pool.unlisted.clear()
    assert await bench.ask(1, 0) == ["b", "a"]
    assert len(set(bench.recorded)) == len(bench.recorded) == 2


async def test_a_query_is_sealed_again_for_the_next_node() -> None:
    pool = MemoryPool(3)
    bench = Bench(pool)
    pool.enclaves["b"].fails = EnclaveError(EnclaveFailure.ENCLAVE_UNREACHABLE)
    await bench.ask(1, 1)
    first, second = pool.enclaves["b"].sealed + pool.enclaves["c"].sealed
    assert first[7:1127] != second[7:1127], "enc is never used twice"
    assert first[0] != second[0], "to another key"


@pytest.mark.parametrize(
    "failure",
    [
        EnclaveError(EnclaveFailure.ENCLAVE_UNREACHABLE),
        EnclaveError(EnclaveFailure.BUSY),
        EnclaveError(EnclaveFailure.TIMEOUT, code="504"),
        EnclaveError(EnclaveFailure.RELAY_KNOWS_NO_SUCH),
    ],
    ids=str,
)
async def test_if_a_node_cannot_answer_another_does(failure: EnclaveError) -> None:
    bench = Bench(MemoryPool(3))
    bench.pool.dead["a"] = failure
    assert await bench.ask(0, 1) == ["a", "c"]


async def test_if_a_node_is_busy_another_answers() -> None:
    bench = Bench(MemoryPool(3))
    bench.pool.enclaves["a"].reply = BUSY
    assert await bench.ask(0, 0) == ["a", "b"]


@pytest.mark.parametrize(
    "failure",
    [
        EnclaveError(EnclaveFailure.BUSY, code="429"),
        EnclaveError(EnclaveFailure.RELAY_UNREACHABLE),
        EnclaveError(EnclaveFailure.RELAY_DENIED),
        EnclaveError(EnclaveFailure.TIMEOUT),
        EnclaveError(EnclaveFailure.REFUSED, code="400"),
    ],
    ids=str,
)
async def test_a_failure_that_no_other_node_could_mend_is_reported(
    failure: EnclaveError,
) -> None:
    bench = Bench(MemoryPool(3))
    bench.pool.dead["a"] = failure
    assert await bench.fails() is failure.reason
    assert bench.pool.asked == ["a"]


async def test_a_relays_own_refusal_leaves_no_node_out() -> None:
    bench = Bench(MemoryPool(3))
    bench.pool.dead["a"] = EnclaveError(EnclaveFailure.BUSY, code="429")
    await bench.fails()
    del bench.pool.dead["a"]
    assert await bench.ask(0) == ["a"]


async def test_a_query_is_taken_to_another_node_once() -> None:
    """A relay that says so of each node would collect as many copies as there are."""
    bench = Bench(MemoryPool(5))
    bench.pool.kill("a", "b", "c")
    bench.pool.unlisted.clear()
    assert await bench.fails() is EnclaveFailure.ENCLAVE_UNREACHABLE
    assert bench.pool.asked == ["a", "b"]


async def test_no_node_finishes_anothers_answer() -> None:
    bench = Bench(MemoryPool(3))
    bench.pool.enclaves["a"].cut = 400
    assert await bench.fails() is EnclaveFailure.ANSWER_INCOMPLETE
    assert bench.pool.asked == ["a"]
    bench.pool.enclaves["a"].cut = None
    assert await bench.ask(0) == ["b"], "it is left out of the next draws"


async def test_after_the_first_words_no_other_node_is_asked() -> None:
    """Whatever its reason: two beginnings of an answer are none."""
    bench = Bench(MemoryPool(3))
    bench.pool.enclaves["a"].cut = 400
    bench.pool.breaks_off["a"] = EnclaveError(EnclaveFailure.ENCLAVE_UNREACHABLE)
    shown: list[AnswerEvent] = []
    with pytest.raises(EnclaveError, match="cannot reach"):
        await bench.steps(into=shown)
    assert any(isinstance(each, Delta) for each in shown)
    assert bench.pool.asked == ["a"]


async def test_a_node_that_failed_is_remembered_for_a_while() -> None:
    bench = Bench(MemoryPool(3))
    bench.pool.dead["a"] = EnclaveError(EnclaveFailure.ENCLAVE_UNREACHABLE)
    await bench.ask(0, 0)
    del bench.pool.dead["a"]
    assert await bench.ask(0) == ["b"]
    bench.clock.now += FAILED_FOR
    assert await bench.ask(0) == ["a"]


async def test_only_a_part_of_all_queries_is_taken_to_another_node() -> None:
    bench = Bench(MemoryPool(3), retries=Budget(100, reserve=1))
    bench.pool.kill("a", "b", "c")
    bench.pool.unlisted.clear()
    for _ in range(4):
        await bench.fails()
    assert len(bench.pool.asked) == 5


async def test_a_restarted_node_is_asked_with_its_new_keys() -> None:
    bench = Bench(MemoryPool(3))
    await bench.ask(1)
    bench.pool.enclaves["b"].rotate(60)
    assert await bench.ask(1) == ["b", "b"]
    assert bench.pool.fetched == 2
    assert await bench.ask(0) == ["a"], "the others' keys serve on"


async def test_while_the_relays_list_is_old_another_node_answers() -> None:
    bench = Bench(MemoryPool(3))
    bench.pool.served = bench.pool.bundles()
    await bench.ask(1)
    bench.pool.enclaves["b"].rotate(60)
    assert await bench.ask(1, 0) == ["b", "a"]
    assert bench.pool.fetched == 2


async def test_a_node_whose_evidence_is_refused_is_not_asked() -> None:
    def make(number: int) -> MemoryEnclave:
        enclave = MemoryEnclave(key_id=number + 1)
        if number == 1:
            enclave.bundle = enclave.bundle.replace(b'"v":4', b'"v":2')
        return enclave

    bench = Bench(MemoryPool(3, make))
    asked = [await bench.ask(draw) for draw in range(4)]
    assert asked == [["a"], ["c"], ["a"], ["c"]]


async def test_with_fewer_than_half_verified_nothing_is_asked() -> None:
    bench = Bench(MemoryPool(3))
    bench.pool.unlisted = {"b", "c"}
    assert await bench.fails() is EnclaveFailure.TOO_FEW_NODES
    assert await bench.fails() is EnclaveFailure.TOO_FEW_NODES
    assert (bench.pool.sealed, bench.pool.fetched) == ([], 1)
    bench.pool.unlisted = {"c"}
    bench.clock.now += NEGATIVE_TTL
    assert await bench.ask(0) == ["a"]
    assert bench.pool.fetched == 2


async def test_a_list_that_shrinks_hides_nodes_as_long_as_their_keys_last() -> None:
    bench = Bench(MemoryPool(3))
    await bench.ask(0)
    bench.pool.enclaves["a"].rotate(60)
    bench.pool.served = node_list({"a": bench.pool.enclaves["a"].bundle})
    await bench.ask(0)
    assert await bench.fails() is EnclaveFailure.TOO_FEW_NODES
    assert bench.pool.asked == ["a", "a", "a"], "with the new key, and no more"
    bench.clock.now += timedelta(hours=11)
    assert await bench.ask() == ["a"], "the others' keys have ended"


async def test_a_pool_that_becomes_one_gateway_hides_its_nodes() -> None:
    bench = Bench(MemoryPool(3))
    await bench.ask(0)
    bench.pool.enclaves["a"].rotate(60)
    bench.pool.served = bench.pool.enclaves["a"].bundle
    assert await bench.fails() is EnclaveFailure.KEY_UNKNOWN
    assert await bench.fails() is EnclaveFailure.TOO_FEW_NODES
    assert bench.pool.asked == ["a", "a"]


async def test_an_enclave_that_is_listed_twice_is_one() -> None:
    """Two chances for one node, or a pool that is none."""
    pool = MemoryPool(3)
    pool.enclaves["b"] = pool.enclaves["c"] = pool.enclaves["a"]
    assert await Bench(pool).fails() is EnclaveFailure.TOO_FEW_NODES
    pool = MemoryPool(3)
    pool.enclaves["c"] = pool.enclaves["a"]
    bench = Bench(pool)
    asked = Counter([(await bench.ask(draw))[0] for draw in range(4)])
    assert asked == {"a": 2, "b": 2}


@pytest.mark.parametrize("served", [b"\x01", b"\x01\x01a\x00", b"\x02"])
async def test_a_malformed_list_is_refused_and_remembered(served: bytes) -> None:
    bench = Bench(MemoryPool(3))
    bench.pool.served = served
    assert await bench.fails() is EnclaveFailure.EVIDENCE_REFUSED
    assert await bench.fails() is EnclaveFailure.EVIDENCE_REFUSED
    assert bench.pool.fetched == 1


async def test_a_pool_of_which_nothing_can_be_verified_is_remembered() -> None:
    pool = MemoryPool(2)
    for enclave in pool.enclaves.values():
        enclave.bundle = enclave.bundle.replace(b'"v":4', b'"v":2')
    bench = Bench(pool)
    assert await bench.fails() is EnclaveFailure.EVIDENCE_REFUSED
    assert await bench.fails() is EnclaveFailure.EVIDENCE_REFUSED
    assert pool.fetched == 1


async def test_a_node_that_the_mirror_does_not_confirm_is_not_asked() -> None:
    pool = MemoryPool(3)
    lists = {node: each.key_configs for node, each in pool.enclaves.items()}
    other = MemoryEnclave(key_id=9).key_configs
    bench = Bench(pool, mirror=MemoryMirror(node_list({**lists, "b": other})))
    asked = [await bench.ask(draw) for draw in range(4)]
    assert asked == [["a"], ["c"], ["a"], ["c"]]


async def test_nodes_that_only_the_mirror_has_count_as_hidden() -> None:
    whole = MemoryPool(3)
    bench = Bench(whole, mirror=MemoryMirror(whole.key_lists()))
    whole.served = node_list({"a": whole.enclaves["a"].bundle})
    assert await bench.fails() is EnclaveFailure.TOO_FEW_NODES
    assert whole.sealed == []


async def test_one_gateways_keys_at_the_mirror_confirm_no_pool() -> None:
    pool = MemoryPool(2)
    bench = Bench(pool, mirror=MemoryMirror(pool.enclaves["a"].key_configs))
    assert await bench.fails() is EnclaveFailure.EVIDENCE_REFUSED
    assert await bench.fails() is EnclaveFailure.EVIDENCE_REFUSED
    assert pool.fetched == 1, "a refusal is remembered"


async def test_cover_requests_are_drawn_likewise_and_fail_over_likewise() -> None:
    bench = Bench(MemoryPool(3))
    bench.chosen = [2]
    await bench.remote.cover(4096, bench)
    bench.pool.dead["b"] = EnclaveError(EnclaveFailure.ENCLAVE_UNREACHABLE)
    bench.chosen = [1, 0]
    await bench.remote.cover(4096, bench)
    assert bench.pool.asked == ["c", "b", "a"]


async def test_each_node_answers_a_challenge_of_its_own() -> None:
    def make(number: int) -> MemoryEnclave:
        return MemoryEnclave(key_id=number + 1, parameters=ROOMY)

    bench = Bench(MemoryPool(3, make))
    needs = Requirement(challenge_age_s=300)
    for draw in (0, 0, 2):
        bench.chosen = [draw]
        await bench.steps(needs)
    assert bench.pool.asked == ["a", "a", "a", "c", "c"]
    assert bench.challenges == 2


async def test_if_one_node_fails_its_challenge_another_is_challenged() -> None:
    def make(number: int) -> MemoryEnclave:
        return MemoryEnclave(key_id=number + 1, parameters=ROOMY)

    bench = Bench(MemoryPool(3, make))
    bench.pool.enclaves["a"].challenged = shows_nothing
    bench.chosen = [0, 0]
    await bench.steps(Requirement(challenge_age_s=300))
    assert bench.pool.asked == ["a", "b", "b"]
    assert bench.pool.enclaves["a"].requests == [], "the question went to one node"


# Renewal, for all nodes at once


class Renewing:
    """A client of a pool on virtual time; keys live for eleven hours."""

    def __init__(self, pool: MemoryPool) -> None:
        self.pool = pool
        self.time = VirtualTime(now=0.0)
        self.keys = KeySource(
            pool,
            key_store(),
            self.clock,
            new_desk(),
            sleep=self.time.sleep,
            below=first,
        )

    def clock(self) -> datetime:
        return NOW + timedelta(seconds=self.time.now)


async def test_one_fetch_renews_the_keys_of_all_nodes() -> None:
    bench = Renewing(MemoryPool(3))
    await bench.keys.node()
    for number, enclave in enumerate(bench.pool.enclaves.values()):
        enclave.rotate(60 + number)
    await bench.time.sleep(10 * 3600)
    assert bench.pool.fetched == 2
    for node, enclave in bench.pool.enclaves.items():
        ours = enclave.key_configs
        drawn = await bench.keys.node(having(ours))
        assert (drawn.id, drawn.key.key_configs) == (node, ours)
    await bench.keys.close()


async def test_a_list_with_gaps_is_fetched_again_sooner() -> None:
    bench = Renewing(MemoryPool(3))
    bench.pool.unlisted = {"c"}
    await bench.keys.node()
    bench.pool.unlisted = set()
    await bench.time.sleep(3600)
    assert bench.pool.fetched == 2, "after a twentieth of eleven hours, give or take"
    await bench.keys.close()


async def test_a_node_that_is_not_served_keeps_its_key_and_is_looked_for() -> None:
    bench = Renewing(MemoryPool(3))
    await bench.keys.node()
    kept = bench.pool.enclaves["c"].key_configs
    for number, node in enumerate("ab"):
        bench.pool.enclaves[node].rotate(60 + number)
    bench.pool.unlisted = {"c"}
    await bench.time.sleep(9 * 3600)
    found = await bench.keys.node(having(kept))
    assert found.id == "c"
    assert bench.pool.fetched == 2
    await bench.time.sleep(1.5 * 3600)
    assert bench.pool.fetched > 2, "before the key that was not renewed has ended"
    await bench.keys.close()


async def test_names_that_a_relay_makes_up_are_not_kept_for_ever() -> None:
    bench = Bench(MemoryPool(1))
    await bench.ask()
    before = sum(isinstance(each, KeyStore) for each in gc.get_objects())
    known = bench.keys.known
    assert known is not None
    for number in range(9 * MAX_NODES):
        bench.pool.served = node_list({f"made-up-{number}": b""})
        await bench.keys.renew(known)
    kept = sum(isinstance(each, KeyStore) for each in gc.get_objects()) - before
    assert kept <= 3 * MAX_NODES
    assert await bench.ask() == ["a"]


async def test_no_node_is_asked_under_a_name_that_the_mirror_lacks() -> None:
    """A name for each client would reveal whose question it is."""
    pool = MemoryPool(1)
    bench = Bench(pool, mirror=MemoryMirror(pool.key_lists()))
    pool.served = node_list({"of-this-client": pool.enclaves["a"].bundle})
    assert await bench.fails() is EnclaveFailure.EVIDENCE_REFUSED
    assert pool.asked == []
