"""What a session remembers of the questions that it is asked, and of no others."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest

from curtilage.client.chat.answer import Answer, Answerer
from curtilage.client.chat.options import Mode, Require, RoutingOptions
from curtilage.client.chat.query import Message, Query
from curtilage.client.consent import Outbound
from curtilage.client.conversation.kept import (
    LOST,
    UNSAVED,
    UNSAVED_AT_END,
    KeptConversations,
)
from curtilage.client.errors import ClientError
from curtilage.client.parts import ClientParts
from curtilage.client.session import Session
from curtilage.client.system.fair_queue import ASKER, CALLER, Asker
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

OPEN = "Write a Python function that sorts a list of numbers."
CARD = "My card is 4111 1111 1111 1111; why is it refused?"
GOES_ON = "now make it shorter please"
SLOGANS = "The bakery on the square moves to the old mill in spring."
TWO = "Write two slogans for it."
ANSWER = "Here is a function: it calls the method of the list."
WORDS = {"4111": "financial.pan"}
ROUTING = """
routing:
  tiers: [{id: device, kind: in_process}, {id: enclave, kind: attested}]
  classes:
    restricted: {history: safe_summary}
    public: {history: redacted_extract}
    confidential: {history: redacted_extract}
"""
T = TypeVar("T")


class Bench:
    """A session of in-memory parts, with or without files of its own."""

    def __init__(
        self,
        *,
        kept: KeptConversations | None = None,
        text: str = PLAIN,
        agrees: bool = True,
    ) -> None:
        policy = load_policy(text)
        self.enclave = MemoryEnclave(
            Reply(content=sse(chunk(ANSWER), chunk(finish="stop")))
        )
        self.said: list[str] = []
        self.shown: list[Outbound] = []
        self.agrees = agrees
        self.session = Session(
            ClientParts(
                policy=policy,
                inspector=WordInspector(WORDS),
                local=ScriptedLocal(),
                transport=self.enclave,
                keys=key_store(policy=policy),
                audit=MemoryTrail(),
                clock=Clock(),
                kept=kept,
                notify=self.said.append,
                consents=self.consents,
            )
        )

    def consents(self, outbound: Outbound) -> bool:
        self.shown.append(outbound)
        return self.agrees

    @property
    def read(self) -> list[list[str]]:
        """The texts that the enclave read, of each request."""
        return [
            [each["content"] for each in json.loads(request.content)["messages"]]
            for request in self.enclave.requests
        ]


def chat(*said: str, **options: object) -> Query:
    """Texts of the user and the assistant, in turn."""
    return of(
        *(
            Message(role=("user", "assistant")[at % 2], content=text)
            for at, text in enumerate(said)
        ),
        **options,
    )


def of(*messages: Message, **options: object) -> Query:
    return Query(
        messages=messages,
        stream=True,
        options=RoutingOptions(**options),  # type: ignore[arg-type]
    )


async def by(caller: bytes | None, work: Callable[[], Awaitable[T]]) -> T:
    """Do something as a caller of the endpoint does it."""
    context = copy_context()
    context.run(CALLER.set, caller)
    context.run(ASKER.set, Asker())

    async def does() -> T:
        return await work()

    return await asyncio.create_task(does(), context=context)


# --- what counts as having left ---------------------------------------------------

CONSENT = ROUTING.replace("public: {", "public: {consent: required, ")


async def decided(bench: Bench) -> None:
    await bench.session.decide(chat(OPEN))


async def previewed(bench: Bench) -> None:
    await bench.session.outbound(chat(OPEN))


def asked(**options: object) -> Callable[[Bench], Awaitable[None]]:
    async def ask(bench: Bench) -> None:
        with suppress(ClientError):
            await bench.session.ask(chat(OPEN, **options))

    return ask


async def never(bench: Bench) -> None:
    del bench


WAYS = {
    "never": never,
    "decided": decided,
    "previewed": previewed,
    "mode home": asked(mode=Mode.HOME),
    "require local": asked(require=Require.LOCAL),
    "require on_premises, of which there is none": asked(require=Require.ON_PREMISES),
    "consent refused": asked(),
}


async def last_step(bench: Bench) -> Answer:
    """A turn that had to stay, then the first one again and what refers to it."""
    await bench.session.ask(chat(CARD))
    turns = chat(CARD, "Ask your bank.", OPEN).messages
    return await bench.session.ask(of(*turns, Message(role="user", content=GOES_ON)))


@pytest.mark.parametrize("way", WAYS)
async def test_what_never_left_does_not_go_along(way: str) -> None:
    refused = way == "consent refused"
    bench = Bench(text=PLAIN + (CONSENT if refused else ROUTING), agrees=not refused)
    await WAYS[way](bench)
    assert bench.read == []
    answer = await last_step(bench)
    assert answer.route is Answerer.LOCAL
    assert answer.provenance.boundary == "refers"
    assert bench.read == []
    # A person is not asked about it either, but for the first time.
    assert [each.boundary for each in bench.shown] == [""] * refused


async def test_what_left_goes_along() -> None:
    bench = Bench(text=PLAIN + ROUTING)
    await bench.session.ask(chat(OPEN))
    answer = await last_step(bench)
    assert answer.provenance.boundary == "extract"
    assert len(bench.read) == 2


async def test_an_answer_that_was_given_here_does_not_go_along() -> None:
    bench = Bench(text=PLAIN + ROUTING)
    await bench.session.ask(chat(OPEN, mode=Mode.HOME))
    await bench.session.ask(chat(OPEN))
    await bench.session.ask(chat(CARD))
    # The local model's words were never read by the enclave, though the question was.
    answer = await bench.session.ask(
        of(
            *chat(CARD, "Ask your bank.", OPEN, "At home.").messages,
            Message(role="user", content=GOES_ON),
        )
    )
    assert "At home." not in json.dumps(bench.read)
    assert answer.route is Answerer.LOCAL


# --- what is known as kept --------------------------------------------------------

FLOOR = RoutingClass.RESTRICTED


async def goes_on(bench: Bench) -> Answer:
    return await bench.session.ask(chat(SLOGANS, "Nice.", TWO))


async def test_what_was_declared_is_not_forgotten_over_what_others_ask() -> None:
    bench = Bench(kept=KeptConversations(share=20))
    await by(b"ward", lambda: bench.session.ask(chat(SLOGANS, floor=FLOOR)))
    for caller in (b"other", None):
        for number in range(30):
            question = chat(f"{CARD} Number {number}.", require=Require.ENCLAVE)

            async def floods(question: Query = question) -> None:
                with suppress(ClientError):
                    await bench.session.ask(question)

            await by(caller, floods)
    answer = await by(b"ward", lambda: goes_on(bench))
    assert (answer.route, answer.rule) == (Answerer.LOCAL, "sticky")
    assert bench.read == []


async def test_what_was_declared_is_not_forgotten_over_ones_own() -> None:
    bench = Bench(kept=KeptConversations(share=3))
    await bench.session.ask(chat(OPEN))
    await bench.session.ask(chat(SLOGANS, floor=FLOOR))
    for number in range(9):
        await bench.session.ask(chat(f"{CARD} Number {number}."))
    answer = await goes_on(bench)
    assert (answer.route, answer.rule) == (Answerer.LOCAL, "sticky")
    # What might leave goes on as before.
    assert (await bench.session.ask(chat(OPEN, ANSWER, "Explain it."))).route is (
        Answerer.ENCLAVE
    )
    assert bench.read == [[OPEN], [OPEN, ANSWER, "Explain it."]]


async def test_what_was_declared_is_known_after_a_restart(tmp_path: Path) -> None:
    first = Bench(kept=KeptConversations(tmp_path))
    await first.session.ask(chat(SLOGANS, floor=FLOOR))
    # Killed: nothing is closed.
    bench = Bench(kept=KeptConversations(tmp_path))
    answer = await goes_on(bench)
    assert (answer.route, answer.rule) == (Answerer.LOCAL, "sticky")
    assert (await bench.session.ask(chat(OPEN))).route is Answerer.ENCLAVE
    await bench.session.close()


async def test_it_is_on_the_disk_before_anybody_answers(tmp_path: Path) -> None:
    bench = Bench(kept=KeptConversations(tmp_path))
    stream = bench.session.stream(chat(SLOGANS, floor=FLOOR))
    await anext(aiter(stream))
    other = Bench(kept=KeptConversations(tmp_path))
    assert (await goes_on(other)).rule == "sticky"
    await stream.aclose()


async def test_after_a_loss_only_what_begins_anew_leaves(tmp_path: Path) -> None:
    first = Bench(kept=KeptConversations(tmp_path))
    await first.session.ask(chat(SLOGANS, floor=FLOOR))
    await first.session.close()
    (tmp_path / "conversations.db").unlink()
    kept = KeptConversations(tmp_path)
    assert kept.advice == LOST
    bench = Bench(kept=kept)
    assert (await goes_on(bench)).rule == "sticky"
    assert (await bench.session.ask(chat(OPEN))).route is Answerer.ENCLAVE
    again = await bench.session.ask(chat(OPEN, ANSWER, "Explain it."))
    assert again.route is Answerer.ENCLAVE
    await bench.session.close()


@pytest.mark.parametrize("asks", ["decide", "outbound"])
async def test_a_question_of_where_it_might_go_is_not_remembered(asks: str) -> None:
    bench = Bench(kept=(kept := KeptConversations(share=2)))
    for number in range(5):
        question = chat(f"{CARD} Number {number}.", floor=FLOOR)
        await getattr(bench.session, asks)(question)
    assert kept.count() == 0
    assert not kept.forgot(b"")


async def test_a_disk_that_fails_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = KeptConversations()
    bench = Bench(kept=kept)
    monkeypatch.setattr(kept, "save", lambda: False)
    for _ in range(3):
        await bench.session.ask(chat(SLOGANS, floor=FLOOR))
    assert bench.said == [UNSAVED]
    # It is known all the same.
    assert (await goes_on(bench)).rule == "sticky"
    monkeypatch.undo()
    await bench.session.ask(chat(CARD))
    assert kept.count() == 3


async def test_a_disk_that_fails_at_the_end_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept = KeptConversations()
    bench = Bench(kept=kept)
    monkeypatch.setattr(kept, "save", lambda: False)
    await bench.session.close()
    assert bench.said == [UNSAVED_AT_END]


# --- by content, of several programs ----------------------------------------------

CONTENT = PLAIN.replace("sticky: conversation", "sticky: content").replace(
    "languages: [en, de, es, fr, it, nl, pt]", "languages: [en]"
)
SAID = "4111 merger, lacquer, varnish, pallets, conveyor, warehouse."


async def test_no_program_learns_the_words_of_another() -> None:
    bench = Bench(text=CONTENT)
    assert bench.session.policy.rulebook.sticky == "content"
    await by(b"one", lambda: bench.session.ask(chat(SAID)))
    for word in ("merger", "lacquer", "hexagon", "orchard"):
        question = chat(f"Compare {word} against bicycles.")
        other = await by(b"two", partial(bench.session.ask, question))
        assert (other.rule, other.route) == ("default", Answerer.ENCLAVE)
    own = await by(
        b"one", lambda: bench.session.ask(chat("Compare lacquer against bicycles."))
    )
    assert (own.rule, own.route) == ("sticky", Answerer.LOCAL)
