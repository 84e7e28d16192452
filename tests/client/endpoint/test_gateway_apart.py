"""What a gateway keeps apart: its applications' share, memory, tickets and names."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import aiohttp
from typing_extensions import override

from curtilage.client.chat.answer import AnswerEvent
from curtilage.client.chat.query import Query
from curtilage.client.errors import EnclaveError
from curtilage.client.remote.reasons import EnclaveFailure
from curtilage.client.system.fair_queue import ASKER, Asker
from support.client_parts import PLAIN, ScriptedLocal
from support.gateways import (
    LETTERS,
    LETTERS_TOO,
    PATIENCE_S,
    TRIAGE,
    Waiting,
    code_of,
    served,
)

CONTENT = PLAIN.replace("sticky: conversation", "sticky: content").replace(
    "languages: [en, de, es, fr, it, nl, pt]", "languages: [en]"
)
QUEUE = (
    PLAIN
    + """
routing:
  tiers:
  - {id: device, kind: in_process}
  - {id: enclave, kind: attested}
  queue: {store: memory}
"""
)
SLOGANS = "The bakery on the square moves to the old mill in spring."


class Remembering(ScriptedLocal):
    """Remembers who asked."""

    def __init__(self) -> None:
        super().__init__()
        self.askers: list[Asker] = []

    @override
    async def generate(
        self, query: Query, *, signals: bool = False
    ) -> AsyncGenerator[AnswerEvent]:
        asker = ASKER.get()
        assert asker is not None
        self.askers.append(asker)
        async for event in super().generate(query, signals=signals):
            yield event


async def test_one_application_does_not_take_all_places(tmp_path: Path) -> None:
    local = Waiting()
    async with (
        served(tmp_path, local=local, in_progress=2) as at,
        asyncio.timeout(PATIENCE_S),
    ):
        # With both of its keys: what counts is the application.
        running = [
            asyncio.create_task(at.asks(key, "4111")) for key in (LETTERS, LETTERS_TOO)
        ]
        for _ in running:
            await local.begun.acquire()
        status, body, fields = await at.asks(LETTERS, "hello")
        assert (status, code_of(body)) == (429, "rate_limit_exceeded")
        assert int(fields["retry-after"]) > 0
        assert (await at.asks(TRIAGE, "hello"))[0] == 200
        local.go.set()
        assert [status for status, _, _ in await asyncio.gather(*running)] == [200] * 2
        # A refused one counts no longer than it takes to refuse it.
        for _ in range(3):
            assert (await at.asks(LETTERS, path="/x"))[0] == 404
        assert (await at.asks(LETTERS, "hello"))[0] == 200


async def test_all_connections_of_an_application_have_one_share(
    tmp_path: Path,
) -> None:
    local = Remembering()
    async with served(tmp_path, local=local) as at:
        for key in (LETTERS, LETTERS_TOO, TRIAGE):
            assert (await at.asks(key, "4111"))[0] == 200
        first, second, other = local.askers
        assert first is not second
        assert first.group is second.group
        assert first.group is not None
        assert other.group is not None
        assert other.group is not first.group
        # One connection with the keys of two, as of a proxy.
        trust = at.trust
        async with aiohttp.ClientSession() as http:
            for key in (LETTERS, TRIAGE):
                async with http.post(
                    f"{at.url}/v1/chat/completions",
                    json={"messages": [{"role": "user", "content": "4111"}]},
                    headers={"Authorization": f"Bearer {key}"},
                    ssl=trust,
                ) as response:
                    assert response.status == 200
        assert local.askers[3].group is first.group
        assert local.askers[4].group is other.group
        assert local.askers[3] is not local.askers[4]


async def test_the_trail_names_the_application_and_no_key(tmp_path: Path) -> None:
    async with served(tmp_path) as at:
        await at.asks(LETTERS, "hello")
        await at.asks(LETTERS_TOO, "4111")
        await at.asks(TRIAGE, "hello")
        said = [each.application for each in at.trail.entries]
        assert said == ["letters", "letters", "triage"]
        shown = repr(at.trail.entries)
        for key in (LETTERS, LETTERS_TOO, TRIAGE):
            assert key.partition(".")[2] not in shown


async def test_what_is_sent_does_not_say_which_application_asks(
    tmp_path: Path,
) -> None:
    async with served(tmp_path) as at:
        for key in (LETTERS, TRIAGE):
            await at.asks(key, "hello")
        first, second = at.enclave.requests
        assert first.content == second.content
        assert [name for name, _ in first.fields] == [name for name, _ in second.fields]
        for name in ("letters", "triage"):
            assert name not in repr((first.path, first.fields, first.content))


async def test_no_application_learns_the_words_of_another(tmp_path: Path) -> None:
    async with served(tmp_path, policy=CONTENT) as at:
        said = "4111: the merger, lacquer, varnish and pallets."
        assert (await at.asks(LETTERS, said))[2]["route"] == "local"
        for word in ("merger", "lacquer"):
            question = f"Compare {word} against bicycles."
            _, _, other = await at.asks(TRIAGE, question)
            assert (other["rule"], other["route"]) == ("default", "enclave")
            # Of one application, whatever its key.
            _, _, own = await at.asks(LETTERS_TOO, question)
            assert (own["rule"], own["route"]) == ("sticky", "local")


async def test_a_kept_conversation_is_kept_for_its_application_only(
    tmp_path: Path,
) -> None:
    async with served(tmp_path) as at:
        _, _, first = await at.asks(LETTERS, SLOGANS, floor="restricted")
        assert first["rule"] == "floor"
        goes_on = (SLOGANS, "Nice.", "Write two.")
        for key, rule in (
            (LETTERS, "sticky"),
            (LETTERS_TOO, "sticky"),
            (TRIAGE, "default"),
        ):
            assert (await at.asks(key, *goes_on))[2]["rule"] == rule


async def test_a_ticket_is_its_applications(tmp_path: Path) -> None:
    local = ScriptedLocal(broken=True)
    async with served(tmp_path, policy=QUEUE, local=local, queue=True) as at:
        at.enclave.fetch_fails = EnclaveError(EnclaveFailure.RELAY_UNREACHABLE)
        status, body, _ = await at.asks(LETTERS, "What is HIV?", defer=True)
        assert (status, code_of(body)) == (503, "queued")
        error = body["error"]
        assert isinstance(error, dict)
        path = f"/v1/curtilage/queue/{error['ticket']}"
        assert (await at.asks(LETTERS_TOO, path=path))[0] == 202
        status, body, _ = await at.asks(TRIAGE, path=path)
        assert (status, code_of(body)) == (404, "queue_unknown")
        at.enclave.fetch_fails = None
        assert (await at.session.queue.drain()).answered == 1
        assert (await at.asks(TRIAGE, path=path))[0] == 404
        assert (await at.asks(LETTERS, path=path))[0] == 200
        assert {each.application for each in at.trail.entries} == {"letters"}
