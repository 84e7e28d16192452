"""A part of a conversation is sent although another part is kept local."""

import json
from collections.abc import AsyncGenerator

import pytest
from typing_extensions import override

from curtilage.client.audit.record import Outcome
from curtilage.client.chat.answer import Answerer, AnswerEvent
from curtilage.client.chat.options import RoutingOptions
from curtilage.client.chat.query import Message, Query
from curtilage.client.conversation.excerpt import LEAST_PARAMETERS
from curtilage.client.parts import ClientParts
from curtilage.client.session import Session
from curtilage.policy.decision.decide import Inspection
from curtilage.policy.decision.routes import Route
from curtilage.policy.decision.tiers import RoutingClass
from curtilage.policy.document.load import load_policy
from support.client_parts import PLAIN, MemoryTrail, ScriptedLocal, WordInspector
from support.fakes import returns
from support.memory_enclave import (
    Clock,
    MemoryEnclave,
    Reply,
    chunk,
    key_store,
    sse,
)

SECRET = "My sister takes methotrexate for her lupus; is that too much?"
AT_HOME = "At home."
FRESH = "Write a Python function that sorts a list of numbers."
ANSWER = "Here is a function: it calls the method of the list."
MORE = "now make it shorter please"
BRIEF = "The user wants to know whether the amount of a medicine is too much."
WORDS = {"lupus": "financial.pan", "Kowalski": "identifier.direct.person"}
ROUTING = """
routing:
  tiers: [{id: device, kind: in_process}, {id: enclave, kind: attested}]
  classes:
    confidential: {history: redacted_extract}
"""


class Bench:
    """A session whose policy lets parts of a conversation leave."""

    def __init__(
        self,
        restricted: str | None = "never",
        *,
        confidential: str = "redacted_extract",
        inspector: WordInspector | None = None,
        local: ScriptedLocal | None = None,
        parameters: int = 0,
        extra: str = "",
        text: str | None = None,
    ) -> None:
        section = ROUTING.replace("redacted_extract", confidential)
        if restricted is not None:
            section += f"    restricted: {{history: {restricted}}}\n"
        text = PLAIN + section + extra if text is None else text
        self.inspector = inspector or WordInspector(WORDS)
        self.local = local or ScriptedLocal()
        self.enclave = MemoryEnclave(
            Reply(content=sse(chunk(ANSWER), chunk(finish="stop")))
        )
        self.trail = MemoryTrail()
        policy = load_policy(text)
        self.session = Session(
            ClientParts(
                policy=policy,
                inspector=self.inspector,
                local=self.local,
                transport=self.enclave,
                keys=key_store(policy=policy),
                audit=self.trail,
                clock=Clock(),
                parameters=returns(parameters),
            )
        )

    @property
    def sent(self) -> list[list[dict[str, str]]]:
        """The messages that the enclave read."""
        return [json.loads(each.content)["messages"] for each in self.enclave.requests]


def chat(*said: str, floor: RoutingClass = RoutingClass.PUBLIC) -> Query:
    """Texts of the user and the assistant, in turn."""
    turns = (
        Message(role=("user", "assistant")[at % 2], content=text)
        for at, text in enumerate(said)
    )
    return Query(
        messages=tuple(turns), stream=True, options=RoutingOptions(floor=floor)
    )


async def test_a_fresh_question_is_sent_without_its_conversation() -> None:
    bench = Bench()
    first = await bench.session.ask(chat(SECRET))
    assert (first.route, first.provenance.boundary) == (Answerer.LOCAL, "")
    answer = await bench.session.ask(chat(SECRET, AT_HOME, FRESH))
    assert (answer.text, answer.route) == (ANSWER, Answerer.ENCLAVE)
    assert answer.provenance.boundary == "current"
    assert bench.sent == [[{"role": "user", "content": FRESH}]]


async def test_the_reduced_query_is_inspected_and_recorded_by_itself() -> None:
    bench = Bench()
    await bench.session.ask(chat(SECRET, AT_HOME, FRESH))
    assert [len(each.messages) for each in bench.inspector.seen] == [3, 1]
    (entry,) = bench.trail.entries
    # Of the part: what was found in the rest did not leave.
    assert (entry.route, entry.outcome) == (Route.ENCLAVE, Outcome.ENCLAVE)
    assert (entry.classes, entry.messages, entry.attempt) == ({}, 1, 1)
    assert entry.payload_digest == chat(FRESH).payload_digest()


async def test_the_turns_since_go_along() -> None:
    bench = Bench()
    await bench.session.ask(chat(SECRET, AT_HOME, FRESH))
    answer = await bench.session.ask(chat(SECRET, AT_HOME, FRESH, ANSWER, MORE))
    assert answer.provenance.boundary == "extract"
    assert bench.sent[1] == [
        {
            "role": "user",
            "content": "Write a [...] function that [...] a list of numbers.",
        },
        {"role": "assistant", "content": ANSWER},
        {"role": "user", "content": MORE},
    ]


@pytest.mark.parametrize(
    ("question", "why"),
    [
        (MORE, "refers"),
        ("Write a poem about methotrexate and the sea.", "repeats"),
        ("Write a poem about lupus and the sea.", "current_turn"),
        ("Schreibe mir bitte ein Gedicht.", "language"),
    ],
)
async def test_a_question_that_must_not_be_sent_is_kept_with_a_reason(
    question: str, why: str
) -> None:
    bench = Bench()
    await bench.session.ask(chat(SECRET))
    answer = await bench.session.ask(chat(SECRET, AT_HOME, question))
    assert (answer.text, answer.route) == (AT_HOME, Answerer.LOCAL)
    assert answer.provenance.boundary == why
    assert bench.sent == []


async def test_the_local_answer_to_a_kept_turn_is_never_sent() -> None:
    # Nothing is found in it, and it was made of what had to stay.
    bench = Bench()
    await bench.session.ask(chat(SECRET))
    await bench.session.ask(chat(SECRET, AT_HOME, MORE))
    answer = await bench.session.ask(chat(SECRET, AT_HOME, MORE, AT_HOME, "thanks"))
    assert answer.route is Answerer.LOCAL
    assert bench.sent == []


async def test_a_local_fallback_gets_the_whole_and_is_no_turn_that_was_sent() -> None:
    bench = Bench()
    bench.enclave.replies = [Reply(status=500), Reply(status=500)]
    await bench.session.ask(chat(SECRET))
    answer = await bench.session.ask(chat(SECRET, AT_HOME, FRESH))
    assert answer.route is Answerer.LOCAL
    assert len(bench.local.asked[-1].messages) == 3
    later = await bench.session.ask(chat(SECRET, AT_HOME, FRESH, AT_HOME, MORE))
    assert (later.route, later.provenance.boundary) == (Answerer.LOCAL, "refers")


async def test_without_the_key_the_whole_conversation_is_kept() -> None:
    bench = Bench(None)
    await bench.session.ask(chat(SECRET))
    answer = await bench.session.ask(chat(SECRET, AT_HOME, FRESH))
    assert (answer.route, answer.provenance.boundary) == (Answerer.LOCAL, "")
    assert len(bench.inspector.seen) == 2


async def test_while_observing_the_whole_conversation_is_kept() -> None:
    bench = Bench(extra="  observe: true\n")
    answer = await bench.session.ask(chat(SECRET, AT_HOME, FRESH))
    assert answer.route is Answerer.LOCAL
    assert len(bench.inspector.seen) == 1


async def test_a_request_for_a_local_answer_is_honoured() -> None:
    bench = Bench()
    query = chat(SECRET, AT_HOME, FRESH, floor=RoutingClass.RESTRICTED)
    answer = await bench.session.ask(query)
    assert answer.route is Answerer.LOCAL
    assert answer.provenance.boundary == "still_found"


async def test_a_class_that_no_enclave_may_answer_is_kept() -> None:
    # Any sent part of such a conversation is at least confidential.
    bench = Bench(confidential="redacted_extract, tiers: [device]")
    answer = await bench.session.ask(chat(SECRET, AT_HOME, FRESH))
    assert (answer.route, answer.provenance.boundary) == (Answerer.LOCAL, "still_found")


class Suspicious(WordInspector):
    """Finds something in what is asked apart, and nothing of it in the whole."""

    @override
    async def ainspect(self, query: Query) -> Inspection:
        self.words = WORDS if len(query.messages) > 1 else {"Python": "financial.pan"}
        return await super().ainspect(query)


async def test_a_finding_in_the_part_keeps_it_local() -> None:
    bench = Bench(inspector=Suspicious(WORDS))
    answer = await bench.session.ask(chat(SECRET, AT_HOME, FRESH))
    assert (answer.route, answer.provenance.boundary) == (Answerer.LOCAL, "still_found")
    assert bench.sent == []


# --- with a summary ------------------------------------------------------------------


class Summarising(ScriptedLocal):
    """Summarises where it is asked to, and else answers."""

    def __init__(self, summary: str) -> None:
        super().__init__()
        self.summary = summary

    @override
    async def generate(
        self, query: Query, *, signals: bool = False
    ) -> AsyncGenerator[AnswerEvent]:
        summing = query.messages[0].content.startswith("Summarise")
        self.words = (self.summary,) if summing else ("At ", "home.")
        async for event in super().generate(query):
            yield event


async def test_a_summary_of_a_large_enough_model_goes_along() -> None:
    bench = Bench("safe_summary", local=Summarising(BRIEF), parameters=LEAST_PARAMETERS)
    await bench.session.ask(chat(SECRET))
    answer = await bench.session.ask(chat(SECRET, AT_HOME, MORE))
    assert (answer.route, answer.provenance.boundary) == (Answerer.ENCLAVE, "summary")
    assert [each["role"] for each in bench.sent[0]] == ["system", "user"]
    assert bench.sent[0][0]["content"].endswith(BRIEF)
    assert "methotrexate" not in str(bench.sent)


@pytest.mark.parametrize(
    ("local", "parameters"),
    [
        (Summarising(BRIEF), LEAST_PARAMETERS - 1),
        (Summarising("Die Frage ist, ob das zu viel ist."), 10**10),
        (Summarising("Rose Miller of Ulm"), 10**10),
        (ScriptedLocal(words=("",)), 10**10),
    ],
)
async def test_no_summary_no_leaving(local: ScriptedLocal, parameters: int) -> None:
    bench = Bench("safe_summary", local=local, parameters=parameters)
    answer = await bench.session.ask(chat(SECRET, AT_HOME, MORE))
    assert (answer.route, answer.provenance.boundary) == (Answerer.LOCAL, "refers")
    assert bench.sent == []


# --- where contents count -------------------------------------------------------------

BY_CONTENT = PLAIN.replace("sticky: conversation", "sticky: content")
BY_CLASS = """
routing:
  tiers: [{id: device, kind: in_process}, {id: enclave, kind: attested}]
  classes:
    public: {history: redacted_extract}
    restricted: {history: never}
"""
PROMPT = "You are a helpful assistant."


async def test_a_question_is_compared_with_turns_removed_from_its_history() -> None:
    # Applications cut old turns off. Nothing is found in the question, and it is about
    # what stayed: it says a word of it.
    bench = Bench(text=BY_CONTENT + BY_CLASS)
    prompt = Message(role="system", content=PROMPT)

    def after_prompt(text: str) -> Query:
        return Query(messages=(prompt, Message(role="user", content=text)), stream=True)

    await bench.session.ask(after_prompt("What is the capital of France?"))
    await bench.session.ask(after_prompt(SECRET))
    about = "Write a poem about methotrexate and the sea."
    answer = await bench.session.ask(after_prompt(about))
    assert answer.route is Answerer.LOCAL
    assert "methotrexate" not in str(bench.sent)
