import asyncio
import re
from collections.abc import AsyncGenerator
from dataclasses import replace

import pytest
from typing_extensions import override

from curtilage.client.chat.answer import Answerer
from curtilage.client.chat.document import Document
from curtilage.client.chat.query import Message, Query, Settings
from curtilage.client.errors import (
    BlockedError,
    EnclaveError,
    FailureReason,
    IncompleteAnswerError,
    LocalUnavailableError,
)
from curtilage.client.failure_texts import FAILURE_TEXTS
from curtilage.client.parts import ClientParts, UnavailableLocal
from curtilage.client.queue.reasons import REASONS
from curtilage.client.remote.fetch_order import FetchOrder
from curtilage.client.remote.reasons import EnclaveFailure
from curtilage.client.remote.sealed import SealedExchange
from curtilage.client.session import Session
from curtilage.inference.default_model import DEFAULT_SHA256
from curtilage.policy.decision.findings import Approved, Where
from curtilage.policy.decision.routes import Route
from curtilage.policy.document.load import load_policy, load_profile, profile_text
from support.client_parts import (
    MODEL_MISSING,
    MemoryTrail,
    ScriptedInspector,
    ScriptedLocal,
)
from support.memory_enclave import (
    Clock,
    MemoryEnclave,
    Reply,
    chunk,
    key_store,
    sse,
)

CANARY = "canary-0b1d"
QUERY = Query(messages=(Message(role="user", content=CANARY),), stream=True)
OFFERED = Document.of({"name": "find"}, schema=True)
REGULATED = "financial.pan"
BLOCKING = profile_text("default").replace(
    "rules:\n", 'rules:\n- {id: never, when: "secret.*", then: block, reason: no}\n', 1
)


class Bench:
    """A session of in-memory parts, each within reach of the test."""

    def __init__(
        self,
        *found: str,
        local: ScriptedLocal | None = None,
        enclave: MemoryEnclave | None = None,
        policy: str | None = None,
        first_s: float = 30,
    ) -> None:
        self.inspector = ScriptedInspector(*found)
        self.local = local
        self.enclave = enclave
        self.clock = Clock()
        loaded = load_policy(policy) if policy else load_profile("default")
        self.session = Session(
            ClientParts(
                policy=loaded,
                inspector=self.inspector,
                local=local or UnavailableLocal("there is no local model"),
                transport=enclave,
                keys=key_store(policy=loaded),
                audit=MemoryTrail(),
                clock=self.clock,
                first_s=first_s,
            )
        )


async def test_regulated_is_answered_at_home_and_nothing_is_sent() -> None:
    bench = Bench(REGULATED, local=ScriptedLocal(), enclave=MemoryEnclave())
    answer = await bench.session.ask(QUERY)
    assert (answer.text, answer.route) == ("At home.", Answerer.LOCAL)
    assert answer.classes == (REGULATED,)
    assert answer.rule == "payment-card"
    assert answer.policy_digest.startswith("sha256:")
    assert bench.enclave is not None
    assert (bench.enclave.sealed, bench.enclave.fetched) == ([], 0)


async def test_harmless_is_answered_by_the_enclave() -> None:
    local = ScriptedLocal()
    bench = Bench(local=local, enclave=MemoryEnclave())
    stream = bench.session.stream(QUERY)
    provenance = await stream.begin()
    assert provenance.route is Answerer.ENCLAVE
    assert provenance.verdict_id
    assert [piece.text async for piece in stream] == ["From ", "afar."]
    assert stream.answer.finished.completion_tokens == 2
    assert local.asked == []


FUNCTION = {"index": 0, "function": {"name": "find", "arguments": "{}"}}
CALLING: dict[str, object] = {
    "choices": [
        {"delta": {"tool_calls": [FUNCTION]}, "finish_reason": None},
        {"delta": {}, "finish_reason": "tool_calls"},
    ]
}
TWICE: dict[str, object] = {
    "choices": [
        {
            "delta": {"tool_calls": [FUNCTION, {**FUNCTION, "index": 1}]},
            "finish_reason": "tool_calls",
        }
    ]
}
SECOND: dict[str, object] = {
    "choices": [{"index": 1, "delta": {}, "finish_reason": "stop"}]
}
NAMED = Document.of({"name": "lose"}, schema=True)


@pytest.mark.parametrize(
    ("chunks", "query"),
    [
        ([CALLING], QUERY),
        ([CALLING], replace(QUERY, tools=(NAMED,))),
        ([CALLING], replace(QUERY, tools=(OFFERED,), tool_choice="none")),
        ([CALLING], replace(QUERY, tools=(OFFERED, NAMED), tool_choice="lose")),
        ([TWICE], replace(QUERY, tools=(OFFERED,), parallel_tool_calls=False)),
        ([chunk(finish="tool_calls")], QUERY),
        ([chunk(finish="stop"), SECOND], QUERY),
        ([chunk(finish="stop")], replace(QUERY, settings=Settings(n=2))),
    ],
    ids=[
        *("call", "other tool", "no tool", "another chosen", "two calls"),
        *("end", "too many", "too few"),
    ],
)
async def test_what_was_not_asked_for_is_not_shown(
    chunks: list[dict[str, object]], query: Query
) -> None:
    enclave = MemoryEnclave(Reply(content=sse(*chunks)))
    bench = Bench(local=ScriptedLocal(), enclave=enclave)
    stream = bench.session.stream(query)
    pieces = [piece async for piece in stream]
    assert stream.answer.provenance.fallback is EnclaveFailure.ANSWER_BROKEN
    assert stream.answer.text == "At home."
    assert not any(piece.calls for piece in pieces)


@pytest.mark.parametrize("found", [(), (REGULATED,)])
async def test_only_an_answer_of_the_embedded_model_is_of_a_demonstration(
    found: tuple[str, ...],
) -> None:
    local = ScriptedLocal()
    local.digests = (DEFAULT_SHA256, None)  # whatever it is called
    bench = Bench(*found, local=local, enclave=MemoryEnclave())
    answer = await bench.session.ask(QUERY)
    assert answer.provenance.demonstration is (answer.route is Answerer.LOCAL)
    assert (answer.route is Answerer.LOCAL) is bool(found)


async def test_the_key_is_verified_once() -> None:
    bench = Bench(enclave=MemoryEnclave())
    await bench.session.ask(QUERY)
    await bench.session.ask(QUERY)
    assert bench.enclave is not None
    assert bench.enclave.fetched == 1


async def test_two_first_queries_share_one_fetch() -> None:
    bench = Bench(enclave=MemoryEnclave())
    await asyncio.gather(bench.session.ask(QUERY), bench.session.ask(QUERY))
    assert bench.enclave is not None
    assert bench.enclave.fetched == 1


@pytest.mark.parametrize("reason", REASONS.values())
async def test_a_failing_enclave_is_answered_at_home(reason: FailureReason) -> None:
    enclave = MemoryEnclave()
    enclave.fails = EnclaveError(reason)
    bench = Bench(local=ScriptedLocal(), enclave=enclave)
    answer = await bench.session.ask(QUERY)
    assert answer.route is Answerer.LOCAL
    assert answer.provenance.fallback is reason
    assert answer.provenance.verdict_id is None


async def test_a_failing_enclave_without_a_local_model_is_an_error() -> None:
    enclave = MemoryEnclave()
    enclave.fetch_fails = EnclaveError(EnclaveFailure.RELAY_UNREACHABLE)
    with pytest.raises(LocalUnavailableError, match=FAILURE_TEXTS["relay_unreachable"]):
        await Bench(enclave=enclave).session.ask(QUERY)


async def test_both_failures_are_reported() -> None:
    enclave = MemoryEnclave()
    enclave.fetch_fails = EnclaveError(EnclaveFailure.RELAY_UNREACHABLE)
    bench = Bench(local=ScriptedLocal(broken=True), enclave=enclave)
    with pytest.raises(
        LocalUnavailableError,
        match=f"{FAILURE_TEXTS['relay_unreachable']}.*{MODEL_MISSING}",
    ):
        await bench.session.ask(QUERY)


async def test_refused_evidence_seals_nothing() -> None:
    enclave = MemoryEnclave()
    enclave.bundle = enclave.bundle.replace(b'"', b"'", 1)
    bench = Bench(local=ScriptedLocal(), enclave=enclave)
    answer = await bench.session.ask(QUERY)
    assert answer.provenance.fallback is EnclaveFailure.EVIDENCE_REFUSED
    assert enclave.sealed == []


async def test_expired_evidence_seals_nothing() -> None:
    bench = Bench(local=ScriptedLocal(), enclave=MemoryEnclave())
    bench.clock.move(hours=20)
    answer = await bench.session.ask(QUERY)
    assert answer.provenance.fallback is EnclaveFailure.EVIDENCE_REFUSED
    assert bench.enclave is not None
    assert bench.enclave.sealed == []


@pytest.mark.parametrize("days", [3, -3])
async def test_a_clock_that_is_days_off_is_named_and_seals_nothing(days: int) -> None:
    bench = Bench(local=ScriptedLocal(), enclave=MemoryEnclave())
    bench.clock.move(days=days)
    for _ in range(2):  # the second time it is remembered
        answer = await bench.session.ask(QUERY)
        assert answer.provenance.fallback is EnclaveFailure.CLOCK_SUSPECTED
    assert bench.enclave is not None
    assert bench.enclave.sealed == []


async def test_no_relay_means_everything_stays() -> None:
    answer = await Bench(local=ScriptedLocal()).session.ask(QUERY)
    assert answer.provenance.fallback is EnclaveFailure.NOT_CONFIGURED


async def test_regulated_without_a_local_model_is_an_error_not_a_query() -> None:
    bench = Bench(REGULATED, enclave=MemoryEnclave())
    with pytest.raises(LocalUnavailableError, match="must stay here"):
        await bench.session.ask(QUERY)
    assert bench.enclave is not None
    assert bench.enclave.sealed == []


async def test_no_tier_answers_a_blocked_query() -> None:
    local = ScriptedLocal()
    bench = Bench(
        "secret.password", local=local, enclave=MemoryEnclave(), policy=BLOCKING
    )
    with pytest.raises(BlockedError) as blocked:
        await bench.session.ask(QUERY)
    assert blocked.value.rule == "never"
    assert local.asked == []
    assert bench.enclave is not None
    assert bench.enclave.sealed == []


async def test_deidentify_is_reported_and_carried_out_as_local() -> None:
    bench = Bench(
        "identifier.direct.person", local=ScriptedLocal(), enclave=MemoryEnclave()
    )
    decision = await bench.session.decide(QUERY)
    assert decision.route is Route.DEIDENTIFY
    assert (await bench.session.ask(QUERY)).route is Answerer.LOCAL
    assert bench.enclave is not None
    assert bench.enclave.sealed == []


async def test_a_new_key_is_fetched_verified_and_used_once() -> None:
    bench = Bench(enclave=MemoryEnclave(key_id=1))
    await bench.session.ask(QUERY)
    assert bench.enclave is not None
    bench.enclave.rotate(2)
    answer = await bench.session.ask(QUERY)
    assert answer.route is Answerer.ENCLAVE
    assert bench.enclave.fetched == 2
    assert len({body[:39] for body in bench.enclave.sealed}) == 3, "enc is never reused"


async def test_the_same_key_again_is_not_resent() -> None:
    enclave = MemoryEnclave(key_id=1)
    enclave.keys = {}  # claims not to know the key that its evidence names
    bench = Bench(local=ScriptedLocal(), enclave=enclave)
    answer = await bench.session.ask(QUERY)
    assert answer.provenance.fallback is EnclaveFailure.KEY_UNKNOWN
    assert len(enclave.sealed) == 1


async def test_a_key_that_is_always_new_is_tried_twice_and_no_more() -> None:
    enclave = EverNewEnclave(key_id=1)
    enclave.fails = EnclaveError(EnclaveFailure.KEY_UNKNOWN)
    answer = await Bench(local=ScriptedLocal(), enclave=enclave).session.ask(QUERY)
    assert answer.route is Answerer.LOCAL
    assert answer.provenance.fallback is EnclaveFailure.KEY_UNKNOWN
    assert (enclave.fetched, len(enclave.sealed)) == (2, 2)


class EverNewEnclave(MemoryEnclave):
    """Has another key whenever its bundle is fetched."""

    @override
    async def fetch_bundle(self, order: FetchOrder) -> bytes:
        self.rotate(2 + self.fetched)
        return await super().fetch_bundle(order)


async def test_a_cut_before_anything_was_shown_is_answered_at_home() -> None:
    enclave = MemoryEnclave()
    enclave.cut = 60
    answer = await Bench(local=ScriptedLocal(), enclave=enclave).session.ask(QUERY)
    assert (answer.text, answer.route) == ("At home.", Answerer.LOCAL)


async def test_a_cut_while_shown_is_incomplete_never_finished() -> None:
    local = ScriptedLocal()
    enclave = MemoryEnclave(Reply(content=sse(chunk("From "), done=False)))
    stream = Bench(local=local, enclave=enclave).session.stream(QUERY)
    shown: list[str] = []

    async def show() -> None:
        async for piece in stream:
            shown.append(piece.text)  # noqa: PERF401 - kept when it raises

    with pytest.raises(IncompleteAnswerError):
        await show()
    assert shown == ["From "]
    assert local.asked == [], "two answers are never mixed"
    with pytest.raises(RuntimeError):
        _ = stream.answer


async def test_closing_a_stream_stops_the_local_model() -> None:
    local = ScriptedLocal(words=["word "] * 1000)
    stream = Bench(REGULATED, local=local).session.stream(QUERY)
    await stream.begin()
    await stream.aclose()
    assert local.stopped == 1


async def test_closing_the_session_closes_every_part() -> None:
    local, enclave = ScriptedLocal(), MemoryEnclave()
    bench = Bench(local=local, enclave=enclave)
    async with bench.session:
        pass
    assert (bench.inspector.closed, local.closed, enclave.closed) == (True,) * 3


async def test_a_conversation_that_stayed_home_stays_there() -> None:
    """Its history is sent again with every turn, and what was found is in it."""
    bench = Bench(REGULATED, local=ScriptedLocal(), enclave=MemoryEnclave())
    first = await bench.session.ask(QUERY)
    assert first.route is Answerer.LOCAL
    bench.inspector.findings = ()  # as if the detectors saw nothing now
    turns = (*QUERY.messages, Message(role="assistant", content="At home."))
    follow_up = Query(messages=(*turns, Message(role="user", content="And then?")))
    decision = await bench.session.decide(follow_up)
    assert (decision.route, decision.rule) == (Route.LOCAL, "sticky")
    assert (await bench.session.ask(follow_up)).route is Answerer.LOCAL
    fresh = Query(messages=(Message(role="user", content="Another thing?"),))
    assert (await bench.session.ask(fresh)).route is Answerer.ENCLAVE


async def test_an_answer_that_does_not_begin_is_given_up() -> None:
    enclave = SilentEnclave()
    bench = Bench(local=ScriptedLocal(), enclave=enclave, first_s=0.05)
    answer = await bench.session.ask(QUERY)
    assert answer.provenance.fallback is EnclaveFailure.TIMEOUT


class SilentEnclave(MemoryEnclave):
    """Takes a question and says nothing, byte by byte."""

    @override
    async def send(self, exchange: SealedExchange) -> AsyncGenerator[bytes]:
        body = exchange.take_body()
        for byte in self.answer(body)[:40]:
            await asyncio.sleep(0.02)
            yield bytes([byte])


async def test_verified_key_without_a_relay_is_an_error() -> None:
    with pytest.raises(EnclaveError):
        await Bench().session.verified_key()
    assert (await Bench(enclave=MemoryEnclave()).session.verified_key()).emulated


async def test_reprs_hold_no_content() -> None:
    bench = Bench(local=ScriptedLocal(words=[CANARY]))
    answer = await bench.session.ask(QUERY)
    decision = await bench.session.decide(QUERY)
    shown = repr(answer) + repr(QUERY) + repr(decision) + str(vars(bench.session))
    assert CANARY not in shown
    digest = QUERY.payload_digest()
    assert digest.hex() not in shown
    assert repr(digest) not in shown


CONTENT = re.sub(
    r"(?m)^languages: .*$",
    "languages: [en]",
    profile_text("default").replace("sticky: conversation", "sticky: content", 1),
)
PRIVATE = "My mother Anna has cancer."


def say(*texts: str) -> Query:
    roles = ("user", "assistant")
    return Query(
        messages=tuple(
            Message(role=roles[at % 2], content=text) for at, text in enumerate(texts)
        )
    )


async def stayed_with_content() -> Bench:
    bench = Bench(
        REGULATED, local=ScriptedLocal(), enclave=MemoryEnclave(), policy=CONTENT
    )
    assert (await bench.session.ask(say(PRIVATE))).route is Answerer.LOCAL
    bench.inspector.findings = ()  # as if the detectors saw nothing from now on
    return bench


@pytest.mark.parametrize(
    ("query", "leaves"),
    [
        (say("Write a haiku about autumn rain."), True),
        (say("What about her mother?"), False),
        (say("List hotels that Anna likes."), False),
        (say(PRIVATE, "At home.", "Write a haiku about autumn rain."), False),
        (say("Hi.", PRIVATE.upper(), "Write a haiku about autumn rain."), False),
    ],
    ids=["changed", "refers", "repeats", "carries it all", "carries it"],
)
async def test_by_content_what_repeats_nothing_may_leave(
    query: Query, *, leaves: bool
) -> None:
    bench = await stayed_with_content()
    decision = await bench.session.decide(query)
    assert decision.rule == ("default" if leaves else "sticky")
    answer = await bench.session.ask(query)
    assert answer.route is (Answerer.ENCLAVE if leaves else Answerer.LOCAL)
    assert bench.enclave is not None
    assert len(bench.enclave.sealed) == int(leaves)


@pytest.mark.parametrize(
    ("question", "leaves"),
    [
        ("Wie heißt die Hauptstadt der Mongolei?", True),
        ("What is the capital of Mongolia?", True),
        ("Und was nimmt man dagegen?", False),
        ("Recommend board games for rainy afternoons.", False),
    ],
    ids=["German", "English", "refers", "what English alone would let go"],
)
async def test_by_content_the_policys_languages_count(
    question: str, *, leaves: bool
) -> None:
    bench = Bench(
        REGULATED,
        local=ScriptedLocal(),
        enclave=MemoryEnclave(),
        policy=CONTENT.replace("languages: [en]", "languages: [en, de]"),
    )
    await bench.session.ask(say("Meine Mutter Anna hat Krebs."))
    bench.inspector.findings = ()
    decision = await bench.session.decide(say(question))
    assert decision.rule == ("default" if leaves else "sticky")


async def test_by_content_an_answer_given_here_is_known_again() -> None:
    bench = await stayed_with_content()
    carried = say("Hello.", "At home.", "Write a haiku about autumn rain.")
    assert (await bench.session.ask(carried)).route is Answerer.LOCAL


async def test_by_content_what_the_enclave_answered_may_go_back() -> None:
    bench = await stayed_with_content()
    task = "Write a haiku about autumn rain."
    answer = await bench.session.ask(say(task))
    assert answer.text == "From afar."
    longer = say(task, answer.text, "Is it any good?")
    assert (await bench.session.ask(longer)).route is Answerer.ENCLAVE


async def test_the_audit_trail_names_an_approval_that_was_used() -> None:
    digest = "ab" * 32
    approval = f"approved: [{{sha256: '{digest}', by: me, date: 2026-11-22}}]\n"
    bench = Bench(enclave=MemoryEnclave(), policy=profile_text("default") + approval)
    prompt = Where(message=0, role="system", json_path="content")
    bench.inspector.approved = (Approved(where=prompt, sha256=digest),)
    asked = (Message(role="system", content="Be polite."), *QUERY.messages)
    await bench.session.ask(Query(messages=asked))
    assert isinstance(bench.session.audit, MemoryTrail)
    assert [each.approved for each in bench.session.audit.entries] == [(digest,)]
