"""What a program sees of a question that waits, over HTTP."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp

from curtilage.client.endpoint import server as gateway
from curtilage.client.errors import EnclaveError
from curtilage.client.failure_texts import FAILURE_TEXTS
from curtilage.client.parts import ClientParts, UnavailableLocal
from curtilage.client.queue.deferred_store import KEY_BYTES, DeferredStore
from curtilage.client.remote.reasons import EnclaveFailure
from curtilage.client.session import Session
from curtilage.policy.document.load import load_policy
from support.client_parts import PLAIN, MemoryTrail, ScriptedInspector
from support.memory_enclave import Clock, MemoryEnclave, key_store

POLICY = (
    PLAIN
    + """
routing:
  tiers:
  - {id: device, kind: in_process}
  - {id: enclave, kind: attested}
  queue: {store: memory}
"""
)
ASK = {
    "messages": [{"role": "user", "content": "What is HIV?"}],
    "curtilage": {"defer": True},
}


@dataclass(frozen=True, slots=True)
class Served:
    """An endpoint whose relay is down until the test brings it up."""

    http: aiohttp.ClientSession
    session: Session
    enclave: MemoryEnclave

    async def put(self) -> str:
        async with self.http.post("/v1/chat/completions", json=ASK) as response:
            assert response.status == 503
            within_s = int(response.headers["Retry-After"])
            assert within_s > 0
            # Otherwise OpenAI's client asks twice more, and loses two tickets.
            assert response.headers["x-should-retry"] == "false"
            error = (await response.json())["error"]
        assert error["code"] == "queued"
        assert error["message"].startswith(
            f"queued: {FAILURE_TEXTS['relay_unreachable']}"
        )
        assert f", next within {within_s} s (ticket " in error["message"]
        ticket = error["ticket"]
        assert isinstance(ticket, str)
        return f"/v1/curtilage/queue/{ticket}"

    async def back(self) -> None:
        self.enclave.fetch_fails = None
        assert (await self.session.queue.drain()).answered == 1


@asynccontextmanager
async def served() -> AsyncGenerator[Served]:
    policy = load_policy(POLICY)
    enclave = MemoryEnclave()
    enclave.fetch_fails = EnclaveError(EnclaveFailure.RELAY_UNREACHABLE)
    session = Session(
        ClientParts(
            policy=policy,
            inspector=ScriptedInspector(),
            local=UnavailableLocal("there is no model"),
            transport=enclave,
            keys=key_store(policy=policy),
            audit=MemoryTrail(),
            clock=Clock(),
            queue=DeferredStore(None, bytes(KEY_BYTES), max_items=9, max_bytes=99_999),
        )
    )
    async with (
        session,
        gateway.serving(session, "127.0.0.1", 0) as port,
        aiohttp.ClientSession(f"http://127.0.0.1:{port}") as http,
    ):
        yield Served(http, session, enclave)


async def test_a_question_that_waits_is_collected_once_it_is_answered() -> None:
    async with served() as client:
        path = await client.put()
        async with client.http.get(path) as response:
            assert response.status == 202
            assert int(response.headers["Retry-After"]) > 0
            assert (await response.json())["error"]["code"] == "queued"
        await client.back()
        for _ in range(2):  # an answer that was lost on the way is still there
            async with client.http.get(path) as response:
                assert response.status == 200
                assert response.headers["x-curtilage-route"] == "enclave"
                body = await response.json()
            assert body["choices"][0]["message"]["content"] == "From afar."


async def test_the_holder_of_an_answer_can_drop_it() -> None:
    async with served() as client:
        path = await client.put()
        async with client.http.delete(path) as response:
            assert (response.status, await response.json()) == (200, {"dropped": True})
        async with client.http.delete(path) as response:
            assert response.status == 404
            assert (await response.json())["error"]["code"] == "queue_unknown"
        async with client.http.get(path) as response:
            assert response.status == 404
            assert (await response.json())["error"]["code"] == "queue_unknown"


async def test_without_a_queue_no_ticket_is_known() -> None:
    session = Session(
        ClientParts(
            policy=load_policy(PLAIN),
            inspector=ScriptedInspector(),
            local=UnavailableLocal("there is no model"),
            transport=None,
            keys=key_store(),
            audit=MemoryTrail(),
        )
    )
    async with (
        session,
        gateway.serving(session, "127.0.0.1", 0) as port,
        aiohttp.ClientSession(f"http://127.0.0.1:{port}") as http,
    ):
        for method in ("GET", "DELETE"):
            async with http.request(method, "/v1/curtilage/queue/X") as response:
                assert response.status == 404
                error = (await response.json())["error"]
            assert error["code"] == "queue_unknown"
            assert "no queue" in error["message"]


async def test_tickets_are_not_listed() -> None:
    """The holder of a ticket reads the answer: other callers must not."""
    async with served() as client:
        await client.put()
        for path in ("/v1/curtilage/queue", "/v1/curtilage/queue/"):
            async with client.http.get(path) as response:
                assert response.status == 404
