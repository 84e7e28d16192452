"""A name that the real detectors find does not leave, and comes back."""

import pytest
from end_to_end.conftest import OpenSession

from curtilage.client.chat.answer import Answerer
from curtilage.client.chat.query import Message, Query, Settings
from curtilage.client.detection.inspection import Inspector
from curtilage.client.parts import ClientParts
from curtilage.client.session import Session
from curtilage.policy.document.load import load_profile
from support.client_parts import MemoryTrail, ScriptedLocal
from support.memory_enclave import Clock, MemoryEnclave, Reply, chunk, key_store, sse

PERSON = "identifier.direct.person"
QUESTION = "who is mr. smith"
ANSWER = ("I do not know mr. ⟦PER", "SON_1⟧", ".")


def query(*texts: str, stream: bool = True) -> Query:
    roles = ("user", "assistant")
    return Query(
        messages=tuple(
            Message(role=roles[index % 2], content=text)
            for index, text in enumerate(texts)
        ),
        settings=Settings(max_tokens=16, temperature=0, seed=1),
        stream=stream,
    )


async def test_a_name_stays_here_and_comes_back(inspector: Inspector) -> None:
    """The enclave opens the seal itself, and reads a token."""
    enclave = MemoryEnclave(
        Reply(content=sse(*map(chunk, ANSWER), chunk(finish="stop")))
    )
    session = Session(
        ClientParts(
            policy=load_profile("default"),
            inspector=inspector,
            local=ScriptedLocal(),
            transport=enclave,
            keys=key_store(),
            audit=MemoryTrail(),
            clock=Clock(),
        )
    )
    answer = await session.ask(query(QUESTION))
    assert answer.route is Answerer.ENCLAVE
    assert answer.provenance.deidentified == ((PERSON, 1),)
    assert answer.text == "I do not know mr. smith."
    follow_up = query(QUESTION, answer.text, "then forget mr. smith")
    assert (await session.ask(follow_up)).route is Answerer.ENCLAVE
    assert len(enclave.requests) == 2
    for request in enclave.requests:
        assert b"smith" not in request.content.lower()
        assert "mr. ⟦PERSON_1⟧".encode() in request.content


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
async def test_over_relay_and_enclave(open_session: OpenSession, stream: bool) -> None:
    async with open_session() as session:
        answer = await session.ask(query(QUESTION, stream=stream))
    assert answer.route is Answerer.ENCLAVE
    assert answer.provenance.deidentified == ((PERSON, 1),)
    assert answer.finished.completion_tokens > 0
