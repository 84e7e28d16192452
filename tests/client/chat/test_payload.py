"""One value is inspected, decided, agreed to and sealed."""

import hashlib
from dataclasses import FrozenInstanceError, replace
from typing import Any, cast

import pytest

from curtilage.client.chat.payload import Payload
from curtilage.client.chat.query import Message, Query, single_query
from curtilage.client.parts import ClientParts
from curtilage.client.remote import requests
from curtilage.client.session import Session
from curtilage.policy.decision.routes import Route
from curtilage.policy.document.load import load_profile
from support.client_parts import MemoryTrail, ScriptedLocal, WordInspector
from support.memory_enclave import Clock, MemoryEnclave, key_store

PERSON = "identifier.direct.person"


def test_bytes_and_digest_are_of_one_text() -> None:
    payload = Payload(b"zq7canary")
    assert payload.digest == hashlib.sha256(payload.content).digest()
    assert payload == Payload(b"zq7canary") != Payload(b"other")
    assert "zq7canary" not in repr(payload)
    with pytest.raises(FrozenInstanceError):
        payload.content = b"other"  # type: ignore[misc]
    assert replace(payload, content=b"other").digest == Payload(b"other").digest


def test_a_query_is_encoded_once() -> None:
    query = single_query("Is it warm?")
    assert query.payload() is query.payload()
    assert query.payload_digest() is query.payload().digest


def test_another_query_has_a_payload_of_its_own() -> None:
    query = single_query("Is it warm?")
    before = query.payload()
    other = replace(query, messages=(Message(role="user", content="Is it cold?"),))
    assert b"cold" in other.payload().content
    assert query.payload() is before
    assert query == single_query("Is it warm?"), "what was encoded is not compared"
    assert "warm" not in repr(query)


class Counted:
    """A session over which every encoding and every payload that is sealed is noted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **words: str) -> None:
        self.encoded: list[Query] = []
        self.sealed: list[Payload] = []
        self.inspector = WordInspector(words)
        self.trail = MemoryTrail()
        self.session = Session(
            ClientParts(
                policy=load_profile("default"),
                inspector=self.inspector,
                local=ScriptedLocal(),
                transport=MemoryEnclave(),
                keys=key_store(),
                audit=self.trail,
                clock=Clock(),
            )
        )
        own_body: Any = vars(Query)["_body"]
        own_seal: Any = vars(requests)["seal"]

        def body(query: Query) -> bytes:
            self.encoded.append(query)
            return cast("bytes", own_body(query))

        def seal(*args: object, **named: object) -> object:
            self.sealed.append(cast("Payload", args[1]))
            return own_seal(*args, **named)

        monkeypatch.setattr(Query, "_body", body)
        monkeypatch.setattr(requests, "seal", seal)


async def test_what_was_inspected_is_the_very_value_that_is_sealed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counted = Counted(monkeypatch)
    query = single_query("Is it warm?")
    await counted.session.ask(query)
    assert counted.encoded == [query]
    (seen,) = counted.inspector.seen
    (sealed,) = counted.sealed
    assert sealed is seen.payload()


async def test_a_rewritten_query_has_one_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counted = Counted(monkeypatch, Ann=PERSON)
    await counted.session.ask(single_query("Is Ann warm?"))
    asked, reading = counted.inspector.seen
    *before, sent = counted.encoded
    assert before == [asked, reading]
    (sealed,) = counted.sealed
    assert sealed is sent.payload()
    assert b"PERSON_1" in sealed.content
    assert b"Ann" not in sealed.content
    (entry,) = counted.trail.entries
    assert entry.route is Route.DEIDENTIFY
    assert entry.payload_digest == sealed.digest


async def test_what_is_kept_local_is_never_sealed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counted = Counted(monkeypatch, Ann="financial.pan")
    await counted.session.ask(single_query("Is Ann warm?"))
    assert counted.sealed == []
