"""What the endpoint keeps apart: programs that ask under keys of their own."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager

import aiohttp
import pytest

from curtilage.client.endpoint import server as gateway
from curtilage.client.parts import ClientParts
from curtilage.client.session import Session
from curtilage.policy.document.load import load_policy
from support.client_parts import PLAIN, MemoryTrail, ScriptedLocal, WordInspector
from support.memory_enclave import Clock, MemoryEnclave, key_store

CONTENT = PLAIN.replace("sticky: conversation", "sticky: content").replace(
    "languages: [en, de, es, fr, it, nl, pt]", "languages: [en]"
)
SAID = "4111: the merger, lacquer, varnish and pallets."
SLOGANS = "The bakery on the square moves to the old mill in spring."


@asynccontextmanager
async def served(text: str) -> AsyncGenerator[str]:
    policy = load_policy(text)
    session = Session(
        ClientParts(
            policy=policy,
            inspector=WordInspector({"4111": "financial.pan"}),
            local=ScriptedLocal(),
            transport=MemoryEnclave(),
            keys=key_store(policy=policy),
            audit=MemoryTrail(),
            clock=Clock(),
        )
    )
    async with session, gateway.serving(session, "127.0.0.1", 0) as port:
        yield f"http://127.0.0.1:{port}/v1/chat/completions"


async def said(
    url: str, *texts: str, key: str | None = None, **options: object
) -> Mapping[str, str]:
    """Ask on a connection of its own; return what the headers say."""
    messages = [
        {"role": ("user", "assistant")[at % 2], "content": text}
        for at, text in enumerate(texts)
    ]
    fields = {} if key is None else {"Authorization": f"Bearer {key}"}
    body = {"messages": messages, "curtilage": options}
    async with (
        aiohttp.ClientSession() as http,
        http.post(url, json=body, headers=fields) as response,
    ):
        assert response.status == 200
        return {
            name.lower().removeprefix("x-curtilage-"): value
            for name, value in response.headers.items()
        }


@pytest.mark.parametrize("key", ["two", "", " one"])
async def test_no_program_learns_the_words_of_another(key: str) -> None:
    async with served(CONTENT) as url:
        assert (await said(url, SAID, key="one"))["route"] == "local"
        for word in ("merger", "lacquer", "orchard"):
            question = f"Compare {word} against bicycles."
            other = await said(url, question, key=key or None)
            assert (other["rule"], other["route"]) == ("default", "enclave")
        # On another connection, and the program is known by its key.
        own = await said(url, "Compare lacquer against bicycles.", key="one")
        assert (own["rule"], own["route"]) == ("sticky", "local")


async def test_a_program_without_a_key_is_held_as_long_as_any_is() -> None:
    async with served(CONTENT) as url:
        assert (await said(url, "Who was Turing?"))["rule"] == "default"
        await said(url, SAID)
        for word in ("merger", "orchard"):
            question = f"Compare {word} against bicycles."
            assert (await said(url, question))["rule"] == "sticky"
            assert (await said(url, question, key="two"))["rule"] == "default"


async def test_a_declared_conversation_is_kept_under_another_key() -> None:
    async with served(PLAIN) as url:
        first = await said(url, SLOGANS, key="one", floor="restricted")
        # That it was declared holds for one request; the answer says so.
        assert (first["rule"], first["floor"]) == ("floor", "restricted")
        for key in ("one", "two", None):
            later = await said(url, SLOGANS, "Nice.", "Write two.", key=key)
            assert (later["rule"], later["route"]) == ("sticky", "local")
            assert "floor" not in later
