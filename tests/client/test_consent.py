"""Nothing leaves that a person was to agree to and did not."""

import json
from collections.abc import Callable
from dataclasses import replace

import aiohttp
import pytest
from typing_extensions import override

from curtilage.attest.verify import VerifiedKey
from curtilage.cli.ask import outbound_lines
from curtilage.client.audit.record import Outcome
from curtilage.client.chat.answer import Answerer
from curtilage.client.chat.openai_chat import query_from
from curtilage.client.chat.query import Query
from curtilage.client.consent import LIFE_MS, ConsentDesk, Outbound, Stays
from curtilage.client.endpoint import server as gateway
from curtilage.client.endpoint.openai_answers import error_object
from curtilage.client.errors import ConsentRequiredError, EnclaveError
from curtilage.client.parts import ClientParts
from curtilage.client.remote.reasons import EnclaveFailure, Unmet
from curtilage.client.session import Session
from curtilage.policy.decision.decide import Inspection
from curtilage.policy.decision.tiers import RoutingClass
from curtilage.policy.document.load import load_policy
from support.client_parts import PLAIN, MemoryTrail, ScriptedLocal, WordInspector
from support.memory_enclave import (
    Clock,
    MemoryEnclave,
    Reply,
    chunk,
    key_store,
    sse,
)

KEY = bytes(range(32))
DIGEST, OTHER = bytes(32), bytes([1] * 32)
WORDS = {"Ann": "identifier.direct.person", "4111": "financial.pan"}
ROUTING = """
routing:
  tiers: [{id: device, kind: in_process}, {id: enclave, kind: attested}]
  classes:
    confidential: {consent: required}
"""


class Now:
    """A clock that the test sets, and ids that are never the same."""

    def __init__(self) -> None:
        self.ms = 1_000_000
        self._ids = iter(range(10**6))

    def __call__(self) -> int:
        return self.ms

    def draw(self, size: int) -> bytes:
        return next(self._ids).to_bytes(size, "big")


def desk(now: Now, *, key: bytes = KEY, most: int = 8) -> ConsentDesk:
    return ConsentDesk(key, now.draw, now, most=most)


# --- tokens ---------------------------------------------------------------------------


def test_a_token_holds_once() -> None:
    made = desk(Now())
    token = made.token_for(DIGEST)
    assert [made.takes(token, DIGEST) for _ in range(3)] == [True, False, False]


def test_a_token_is_for_these_bytes() -> None:
    made = desk(Now())
    token = made.token_for(DIGEST)
    assert not made.takes(token, OTHER)
    assert made.takes(token, DIGEST)


@pytest.mark.parametrize(
    ("later_ms", "holds"), [(0, True), (LIFE_MS, True), (LIFE_MS + 1, False)]
)
def test_a_token_holds_ten_minutes(later_ms: int, *, holds: bool) -> None:
    now = Now()
    made = desk(now)
    token = made.token_for(DIGEST)
    now.ms += later_ms
    assert made.takes(token, DIGEST) is holds


def test_a_token_of_a_later_clock_does_not_hold() -> None:
    now = Now()
    made = desk(now)
    token = made.token_for(DIGEST)
    now.ms -= 1
    assert not made.takes(token, DIGEST)


@pytest.mark.parametrize("token", ["", "zz", "00" * 56, "é", "00" * 55])
def test_what_is_no_token_does_not_hold(token: str) -> None:
    assert not desk(Now()).takes(token, DIGEST)


def test_each_bit_of_a_token_counts() -> None:
    made = desk(Now())
    token = bytes.fromhex(made.token_for(DIGEST))
    for at in range(len(token)):
        changed = bytearray(token)
        changed[at] ^= 1
        assert not made.takes(changed.hex(), DIGEST)


def test_a_token_of_another_process_does_not_hold() -> None:
    token = desk(Now(), key=KEY[::-1]).token_for(DIGEST)
    assert not desk(Now()).takes(token, DIGEST)


def test_a_full_desk_takes_none_until_some_are_over() -> None:
    now = Now()
    made = desk(now, most=1)
    first, second = made.token_for(DIGEST), made.token_for(DIGEST)
    assert [made.takes(each, DIGEST) for each in (first, second)] == [True, False]
    now.ms += LIFE_MS + 1
    assert made.takes(made.token_for(DIGEST), DIGEST)


def test_the_error_has_a_token_and_no_content() -> None:
    status, body = error_object(ConsentRequiredError("a-token"))
    assert status == 409
    assert body["error"] == {
        "message": str(ConsentRequiredError("a-token")),
        "type": "invalid_request_error",
        "param": None,
        "code": "consent_required",
        "consent": "a-token",
    }


@pytest.mark.parametrize(
    "other",
    [
        {"release": "other/1"},
        {"tier": "other"},
        {"evidence": "emulated-tdx"},
        {"routing_class": RoutingClass.PUBLIC},
        {"boundary": "extract"},
    ],
    ids=lambda other: next(iter(other)),
)
def test_a_token_is_for_whom_it_was_shown(other: dict[str, object]) -> None:
    made = desk(Now())
    shown = Outbound(
        payload=b"{}",
        payload_digest=DIGEST,
        routing_class=RoutingClass.CONFIDENTIAL,
        tier="enclave",
        release="llm/1",
        verdict_id="v",
        evidence="tdx",
    )
    with pytest.raises(ConsentRequiredError) as refused:
        made(shown)
    again = replace(shown, token=refused.value.token, verdict_id="w")
    with pytest.raises(ConsentRequiredError):
        made(replace(again, **other))  # type: ignore[arg-type]
    assert made(again)


# --- asked ----------------------------------------------------------------------------


class Bench:
    """A session whose policy wants consent for what leaves without its names."""

    def __init__(
        self,
        consents: object = None,
        *,
        routing: str = ROUTING,
        inspector: WordInspector | None = None,
    ) -> None:
        policy = load_policy(PLAIN + routing)
        self.enclave = MemoryEnclave(
            Reply(content=sse(chunk("Yes."), chunk(finish="stop")))
        )
        self.shown: list[Outbound] = []
        self.trail = MemoryTrail()
        self.session = Session(
            ClientParts(
                policy=policy,
                inspector=inspector or WordInspector(WORDS),
                local=ScriptedLocal(),
                transport=self.enclave,
                keys=key_store(policy=policy),
                audit=self.trail,
                clock=Clock(),
                consents=consents,  # type: ignore[arg-type]  # wrong ones, too
            )
        )


def ask(text: str, consent: str | None = None) -> Query:
    return query_from(
        text, {} if consent is None else {"consent": consent}, stream=True
    )


def says(answer: object) -> Callable[[Outbound], object]:
    """Return who answers so."""

    def consents(_: Outbound) -> object:
        return answer

    return consents


async def _agrees(_: Outbound) -> bool:
    return True


@pytest.mark.parametrize("consents", [_agrees, says(True)])
async def test_what_was_agreed_to_leaves(consents: object) -> None:
    bench = Bench(consents)
    answer = await bench.session.ask(ask("Is Ann older?"))
    assert answer.route is Answerer.ENCLAVE
    assert len(bench.enclave.requests) == 1


async def test_another_release_than_the_one_agreed_to_reads_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A key may be renewed while a person thinks."""
    named = iter(["llm/1", "llm/2"])

    monkeypatch.setattr(VerifiedKey, "release", property(lambda _: next(named)))
    bench = Bench(_agrees)
    answer = await bench.session.ask(ask("Is Ann older?"))
    assert answer.provenance.fallback is Unmet.CONSENT
    assert bench.enclave.sealed == []
    recorded = [each.outcome for each in bench.trail.entries]
    assert recorded == [Outcome.LOCAL], "nothing was sent, and no record says so"


@pytest.mark.parametrize("consents", [None, says(False), says("yes"), says(None)])
async def test_what_was_not_agreed_to_stays(consents: object) -> None:
    bench = Bench(consents)
    answer = await bench.session.ask(ask("Is Ann older?"))
    assert answer.route is Answerer.LOCAL
    assert answer.provenance.fallback is Unmet.CONSENT
    assert bench.enclave.sealed == []


async def test_no_consent_is_asked_unless_the_policy_wants_it() -> None:
    asked: list[Outbound] = []
    bench = Bench(asked.append)
    answer = await bench.session.ask(ask("Is water wet?"))
    assert (answer.route, asked) == (Answerer.ENCLAVE, [])


async def test_a_query_kept_local_needs_no_consent() -> None:
    asked: list[Outbound] = []
    bench = Bench(asked.append)
    answer = await bench.session.ask(ask("My card is 4111"))
    assert (answer.route, asked) == (Answerer.LOCAL, [])


async def test_what_is_shown_is_what_is_sealed() -> None:
    asked: list[Outbound] = []

    def consents(shown: Outbound) -> bool:
        asked.append(shown)
        return True

    bench = Bench(consents)
    await bench.session.ask(ask("Is Ann older?"))
    (sealed,) = bench.enclave.requests
    assert [each.payload for each in asked] == [sealed.content]


async def test_a_request_is_repeated_with_its_token() -> None:
    bench = Bench(desk(Now()))
    with pytest.raises(ConsentRequiredError) as refused:
        await bench.session.ask(ask("Is Ann older?"))
    assert bench.enclave.sealed == []
    token = refused.value.token
    with pytest.raises(ConsentRequiredError):
        await bench.session.ask(ask("Is Ann younger?", token))
    answer = await bench.session.ask(ask("Is Ann older?", token))
    assert answer.route is Answerer.ENCLAVE
    with pytest.raises(ConsentRequiredError):
        await bench.session.ask(ask("Is Ann older?", token))
    assert len(bench.enclave.sealed) == 1


@pytest.mark.parametrize("floor", ["public", "internal", "confidential", "restricted"])
async def test_a_declared_class_goes_past_no_consent(floor: str) -> None:
    bench = Bench(says(False), routing=ROUTING.replace("confidential", "public"))
    asked = query_from("Is water wet?", {"floor": floor}, stream=True)
    assert (await bench.session.ask(asked)).route is Answerer.LOCAL
    assert bench.enclave.sealed == []


# --- shown ----------------------------------------------------------------------------


async def test_what_would_leave_is_shown_and_stays() -> None:
    bench = Bench()
    shown = await bench.session.outbound(ask("Is Ann older?"))
    assert isinstance(shown, Outbound)
    assert (shown.routing_class, shown.tier) == (RoutingClass.CONFIDENTIAL, "enclave")
    assert shown.deidentified == (("identifier.direct.person", 1),)
    said = json.loads(shown.payload)["messages"]
    assert said == [{"role": "user", "content": "Is ⟦PERSON_1⟧ older?"}]
    assert bench.enclave.sealed == []
    assert "Ann" not in repr(shown)
    assert "PERSON" not in repr(replace(shown, deidentified=()))


async def test_the_octets_that_are_shown_are_those_that_leave() -> None:
    bench = Bench(says(True))
    shown = await bench.session.outbound(ask("Is Ann older?"))
    assert isinstance(shown, Outbound)
    await bench.session.ask(ask("Is Ann older?"))
    assert bench.enclave.requests[0].content == shown.payload
    assert shown.value()["payload"] == shown.payload.decode()


async def test_of_what_must_stay_nothing_is_shown() -> None:
    bench = Bench()
    shown = await bench.session.outbound(ask("My card is 4111"))
    assert isinstance(shown, Stays)
    assert shown.rule == "payment-card"
    assert bench.enclave.fetched == 0


async def test_without_an_enclave_that_is_believed_nothing_is_shown() -> None:
    bench = Bench()
    bench.enclave.fetch_fails = EnclaveError(EnclaveFailure.RELAY_UNREACHABLE)
    with pytest.raises(EnclaveError):
        await bench.session.outbound(ask("Is Ann older?"))


async def test_the_sender_sees_who_reads_what() -> None:
    shown = await Bench().session.outbound(ask("Is Ann older?"))
    assert isinstance(shown, Outbound)
    first, second, turn, *_, last = outbound_lines(shown).split("\n")
    assert f" {shown.routing_class}, " in first
    assert f" {shown.tier}; 1 " in first
    assert (shown.routing_class, shown.tier) == ("confidential", "enclave")
    assert shown.release in second
    assert turn == "  user: Is ⟦PERSON_1⟧ older?"
    assert f"the {len(shown.payload)} bytes, SHA-256" in last


async def test_the_endpoint_shows_what_to_agree_to() -> None:
    bench = Bench(desk(Now()))
    asked: dict[str, object] = {
        "messages": [{"role": "user", "content": "Is Ann older?"}],
        "stream": True,
    }
    async with (
        bench.session,
        gateway.serving(bench.session, "127.0.0.1", 0) as port,
        aiohttp.ClientSession(f"http://127.0.0.1:{port}") as http,
    ):
        async with http.post("/v1/chat/completions", json=asked) as refused:
            body = await refused.json()
        assert (refused.status, body["error"]["code"]) == (409, "consent_required")
        payload = body["outbound"]["payload"]
        assert "⟦PERSON_1⟧" in payload
        assert bench.enclave.sealed == []
        asked["curtilage"] = {"consent": body["error"]["consent"]}
        async with http.post("/v1/chat/completions", json=asked) as answered:
            assert answered.status == 200
            await answered.read()
    assert bench.enclave.requests[0].content == payload.encode()


class Changing(WordInspector):
    """Finds something the second time that it looks which was not there the first."""

    later = "financial.pan"

    @override
    async def ainspect(self, query: Query) -> Inspection:
        found = await super().ainspect(query)
        if len(self.seen) > 1:
            self.words = {"older": self.later}
        return found


@pytest.mark.parametrize("later", ["financial.pan", "identifier.direct.person"])
async def test_there_is_no_token_for_what_is_not_shown(later: str) -> None:
    inspector = Changing(WORDS)
    inspector.later = later
    bench = Bench(desk(Now()), inspector=inspector)
    asked = {"messages": [{"role": "user", "content": "Is Ann older?"}]}
    async with (
        bench.session,
        gateway.serving(bench.session, "127.0.0.1", 0) as port,
        aiohttp.ClientSession(f"http://127.0.0.1:{port}") as http,
        http.post("/v1/chat/completions", json=asked) as refused,
    ):
        body = await refused.json()
    assert (refused.status, body["error"]["code"]) == (409, "consent_required")
    assert body.keys() == {"error"}
    assert "consent" not in body["error"]
