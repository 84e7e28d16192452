"""The gateway: over TLS, for applications with a key, each apart from the others."""

import asyncio
import json
import ssl
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import aiohttp
import openai
import pytest
from typing_extensions import override

from curtilage.client.chat.answer import AnswerEvent
from curtilage.client.chat.openai_fields import REFUSALS
from curtilage.client.chat.query import Query
from curtilage.client.endpoint import listener
from curtilage.client.endpoint.gateway import Gateway, serving
from curtilage.client.endpoint.gateway_file import GatewayFile, TLSFiles
from curtilage.client.endpoint.keys import make_key
from curtilage.client.errors import ConfigError, EnclaveError, ListenError
from curtilage.client.parts import AnswersLocally, ClientParts
from curtilage.client.queue.deferred_store import KEY_BYTES, DeferredStore
from curtilage.client.remote.reasons import EnclaveFailure
from curtilage.client.session import Session
from curtilage.policy.document.load import load_policy
from support.client_parts import PLAIN, MemoryTrail, ScriptedLocal, WordInspector
from support.memory_enclave import Clock, MemoryEnclave, key_store
from support.tls_files import write_tls_files

CANARY = "canary-5d01"
# Not random: they are in the names of the tests, which every process must know.
LETTERS, LETTERS_ROW = make_key("letters", random=lambda size: bytes([1]) * size)
LETTERS_TOO, LETTERS_TOO_ROW = make_key(
    "letters", random=lambda size: bytes([2]) * size
)
TRIAGE, TRIAGE_ROW = make_key("triage", random=lambda size: bytes([3]) * size)
ROWS = (LETTERS_ROW, LETTERS_TOO_ROW, TRIAGE_ROW)
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
PATIENCE_S = 60


class Waiting(ScriptedLocal):
    """Answers when the test wants it."""

    def __init__(self) -> None:
        super().__init__()
        self.go = asyncio.Event()
        self.begun = asyncio.Semaphore(0)

    @override
    async def generate(
        self, query: Query, *, signals: bool = False
    ) -> AsyncGenerator[AnswerEvent]:
        self.begun.release()
        await self.go.wait()
        async for event in super().generate(query, signals=signals):
            yield event


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A running gateway and what trusts its certificate."""

    gateway: Gateway
    session: Session
    file: GatewayFile
    enclave: MemoryEnclave
    trail: MemoryTrail

    @property
    def port(self) -> int:
        return int(self.gateway.url.rpartition(":")[2].removesuffix("/v1"))

    @property
    def url(self) -> str:
        return f"https://localhost:{self.port}"

    @property
    def trust(self) -> ssl.SSLContext:
        assert self.file.tls is not None
        return ssl.create_default_context(cafile=str(self.file.tls.certificate))

    async def asks(
        self,
        key: str | None,
        *texts: str,
        path: str = "/v1/chat/completions",
        fields: Mapping[str, str] | None = None,
        **options: object,
    ) -> tuple[int, dict[str, object], Mapping[str, str]]:
        """Ask on a connection of its own; return status, body and header fields."""
        messages = [
            {"role": ("user", "assistant")[at % 2], "content": text}
            for at, text in enumerate(texts)
        ]
        given = {} if key is None else {"Authorization": f"Bearer {key}"}
        body = {"messages": messages, "curtilage": options}
        async with (
            aiohttp.ClientSession() as http,
            http.request(
                "POST" if texts else "GET",
                f"{self.url}{path}",
                json=body if texts else None,
                headers={**given, **(fields or {})},
                ssl=self.trust,
            ) as response,
        ):
            said = {
                name.lower().removeprefix("x-curtilage-"): value
                for name, value in response.headers.items()
            }
            return response.status, await response.json(), said


@asynccontextmanager
async def served(
    folder: Path,
    *,
    policy: str = PLAIN,
    local: AnswersLocally | None = None,
    in_progress: int = 8,
    queue: bool = False,
) -> AsyncGenerator[Served]:
    certificate, key = write_tls_files(folder)
    file = GatewayFile(
        path=folder / "gateway.toml",
        host="127.0.0.1",
        port=0,
        names=frozenset({"localhost"}),
        records=ROWS,
        tls=TLSFiles(certificate=certificate, key=key),
        in_progress=in_progress,
    )
    loaded, enclave, trail = load_policy(policy), MemoryEnclave(), MemoryTrail()
    parts = ClientParts(
        policy=loaded,
        inspector=WordInspector({"4111": "financial.pan"}),
        local=local or ScriptedLocal(),
        transport=enclave,
        keys=key_store(policy=loaded),
        audit=trail,
        clock=Clock(),
    )
    if queue:
        store = DeferredStore(None, bytes(KEY_BYTES), max_items=9, max_bytes=99_999)
        parts = replace(parts, queue=store)
    session = Session(parts)
    async with session, serving(session, file) as gateway:
        yield Served(
            gateway=gateway,
            session=session,
            file=file,
            enclave=enclave,
            trail=trail,
        )


def code_of(body: Mapping[str, object]) -> object:
    error = body["error"]
    assert isinstance(error, dict)
    return cast("dict[str, object]", error)["code"]


async def test_the_openai_package_asks_over_tls(tmp_path: Path) -> None:
    async with served(tmp_path) as at:
        assert at.gateway.applications == ("letters", "triage")
        http = openai.DefaultAsyncHttpxClient(verify=at.trust)
        async with openai.AsyncOpenAI(
            base_url=f"{at.url}/v1", api_key=LETTERS, http_client=http, max_retries=0
        ) as client:
            answer = await client.chat.completions.create(
                model="curtilage", messages=[{"role": "user", "content": "hello"}]
            )
            assert answer.choices[0].message.content == "From afar."
            stream = await client.chat.completions.create(
                model="curtilage",
                messages=[{"role": "user", "content": "4111"}],
                stream=True,
            )
            pieces = [each.choices[0].delta.content or "" async for each in stream]
            assert "".join(pieces) == "At home."
            with pytest.raises(openai.AuthenticationError) as refused:
                await client.with_options(api_key="letters.x").models.list()
            assert refused.value.code == "invalid_api_key"
            other = {"Host": "elsewhere.example"}
            with pytest.raises(openai.PermissionDeniedError) as denied:
                await client.models.list(extra_headers=other)
            assert denied.value.code == "unknown_host"


@pytest.mark.parametrize(
    "key",
    [
        None,
        "unused",
        f"{LETTERS[:-1]}{'A' if LETTERS[-1] != 'A' else 'B'}",
        f"triage.{LETTERS.partition('.')[2]}",
        f"nobody.{LETTERS.partition('.')[2]}",
        LETTERS_ROW.row(),
    ],
)
async def test_without_a_key_nothing_is_answered(
    key: str | None, tmp_path: Path
) -> None:
    """Nor to a program of the account that runs the gateway, on the same machine."""
    async with served(tmp_path) as at:
        status, body, fields = await at.asks(key, CANARY)
        assert (status, code_of(body)) == (401, "invalid_api_key")
        assert fields["www-authenticate"].startswith("Bearer")
        assert (401, "invalid_api_key") in REFUSALS
        for path in ("/v1/models", "/x", "/v1/curtilage/queue/x"):
            assert (await at.asks(key, path=path))[0] == 401
        assert at.trail.entries == []


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"Host": "localhost"}, 200),
        ({"Host": "LocalHost:8443"}, 200),
        ({"Origin": "https://localhost"}, 200),
        ({"Origin": "https://localhost:8443", "Sec-Fetch-Site": "same-origin"}, 200),
        ({"Host": "127.0.0.1"}, 403),
        ({"Host": "localhost.example"}, 403),
        ({"Host": "elsewhere.example"}, 403),
        ({"Host": "localhost@elsewhere.example"}, 403),
        ({"Host": ""}, 403),
        ({"Origin": "https://elsewhere.example"}, 403),
        ({"Origin": "http://localhost"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
    ],
)
async def test_it_answers_to_its_names_only(
    fields: dict[str, str], status: int, tmp_path: Path
) -> None:
    async with served(tmp_path) as at:
        got, body, _ = await at.asks(LETTERS, "hello", fields=fields)
        assert got == status
        if status == 403:
            assert code_of(body) == "unknown_host"
            assert at.trail.entries == []


async def test_a_container_asks_for_health_without_a_key(tmp_path: Path) -> None:
    """By whatever name it knows the gateway; it learns one word."""
    async with served(tmp_path) as at:
        for fields in ({}, {"Host": "127.0.0.1:8443"}):
            for key in (None, "wrong"):
                status, body, _ = await at.asks(key, path="/healthz", fields=fields)
                assert (status, set(body)) == (200, {"status"})
        _, body, _ = await at.asks(LETTERS, path="/healthz")
        assert "tiers" in body
        status, _, _ = await at.asks(None, CANARY, path="/healthz")
        assert status == 401


async def test_an_older_tls_and_no_tls_get_nothing(tmp_path: Path) -> None:
    async with served(tmp_path) as at:
        older = at.trust
        older.maximum_version = ssl.TLSVersion.TLSv1_2
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asyncio.open_connection("localhost", at.port, ssl=older)
        reader, writer = await asyncio.open_connection("127.0.0.1", at.port)
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        async with asyncio.timeout(PATIENCE_S):
            with suppress(ConnectionError):
                assert b"HTTP" not in await reader.read()
        writer.close()


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


async def test_a_revoked_key_is_refused_and_no_answer_is_cut(tmp_path: Path) -> None:
    local = Waiting()
    async with (
        served(tmp_path, local=local) as at,
        asyncio.timeout(PATIENCE_S),
        aiohttp.ClientSession() as http,
    ):
        trust, fields = at.trust, {"Authorization": f"Bearer {LETTERS}"}

        async def text() -> str:
            asked = {"messages": [{"role": "user", "content": "4111"}], "stream": True}
            path = f"{at.url}/v1/chat/completions"
            async with http.post(
                path, json=asked, headers=fields, ssl=trust
            ) as response:
                return await response.text()

        running = asyncio.create_task(text())
        await local.begun.acquire()
        # Another certificate, other names, and a key less.
        (tmp_path / "new").mkdir()
        certificate, key = write_tls_files(tmp_path / "new", "renewed")
        new = replace(
            at.file,
            records=(LETTERS_TOO_ROW, TRIAGE_ROW),
            tls=TLSFiles(certificate=certificate, key=key),
        )
        assert at.gateway.replace(new)
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await at.asks(LETTERS_TOO, "hello")
        renewed = replace(at, file=new)
        assert (await renewed.asks(LETTERS_TOO, "hello"))[0] == 200
        assert (await renewed.asks(LETTERS, "hello"))[0] == 401
        local.go.set()
        said = await running
        assert "At " in said
        assert said.endswith("data: [DONE]\n\n")
        # On the connection that it has had since before: the old certificate.
        async with http.get(f"{at.url}/v1/models", headers=fields, ssl=trust) as later:
            assert later.status == 401


async def test_other_names_are_taken_and_another_address_is_not(
    tmp_path: Path,
) -> None:
    async with served(tmp_path) as at:
        new = replace(at.file, names=frozenset({"ward.example"}), in_progress=1)
        assert at.gateway.replace(new)
        ward = {"Host": "ward.example"}
        assert (await at.asks(LETTERS, "hello", fields=ward))[0] == 200
        assert (await at.asks(LETTERS, "hello"))[0] == 403
        for elsewhere in (replace(new, port=1), replace(new, tls=None)):
            assert not at.gateway.replace(elsewhere)
            assert (await at.asks(LETTERS, "hello", fields=ward))[0] == 200


@pytest.mark.parametrize("wrong", ["other.key", "locked", "missing", "text"])
async def test_a_wrong_certificate_changes_nothing(wrong: str, tmp_path: Path) -> None:
    async with served(tmp_path) as at:
        assert at.file.tls is not None
        files = at.file.tls
        if wrong == "other.key":
            (tmp_path / "other").mkdir()
            files = replace(files, key=write_tls_files(tmp_path / "other")[1])
        elif wrong == "locked":
            files = replace(files, key=tmp_path / "server-locked.key")
        elif wrong == "missing":
            files = replace(files, certificate=tmp_path / "nothing.pem")
        else:
            (tmp_path / "text.pem").write_text(CANARY)
            files = replace(files, certificate=tmp_path / "text.pem")
        new = replace(at.file, records=(TRIAGE_ROW,), tls=files)
        with pytest.raises(ConfigError) as refused:
            at.gateway.replace(new)
        assert str(files.certificate) in str(refused.value)
        assert CANARY not in str(refused.value)
        assert (await at.asks(LETTERS, "hello"))[0] == 200


async def test_silent_connections_exclude_no_application(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They never end their handshake, so aiohttp does not know them."""
    monkeypatch.setattr(listener, "MAX_HANDSHAKES", 2)
    async with served(tmp_path) as at:
        silent = [await asyncio.open_connection("127.0.0.1", at.port) for _ in range(5)]
        assert (await at.asks(LETTERS, "hello"))[0] == 200
        async with asyncio.timeout(PATIENCE_S):
            for reader, _ in silent[:3]:
                with suppress(ConnectionError):
                    assert await reader.read() == b""
        for _, writer in silent:
            writer.close()


async def test_a_handshake_has_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "HANDSHAKE_S", 0.05)
    async with served(tmp_path) as at:
        reader, writer = await asyncio.open_connection("127.0.0.1", at.port)
        async with asyncio.timeout(PATIENCE_S):
            with suppress(ConnectionError):
                assert await reader.read() == b""
        writer.close()


async def test_behind_a_proxy_on_this_machine_it_needs_no_tls(tmp_path: Path) -> None:
    async with served(tmp_path) as at:
        plain = replace(at.file, tls=None)
        async with (
            serving(at.session, plain) as gateway,
            aiohttp.ClientSession() as http,
        ):
            assert gateway.url.startswith("http://127.0.0.1:")
            fields = {"Host": "localhost"}
            async with http.get(f"{gateway.url}/models", headers=fields) as refused:
                assert refused.status == 401
            fields["Authorization"] = f"Bearer {LETTERS}"
            async with http.get(f"{gateway.url}/models", headers=fields) as response:
                assert response.status == 200


async def test_an_address_in_use_is_named(tmp_path: Path) -> None:
    async with served(tmp_path) as at:
        taken = replace(at.file, port=at.port)
        with pytest.raises(ListenError, match=str(at.port)):
            async with serving(at.session, taken):
                pass


async def test_no_log_and_no_error_has_a_word_of_a_request(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(tmp_path) as at:
        said = [
            await at.asks(f"{CANARY}.{'A' * 43}", CANARY),
            await at.asks(LETTERS, CANARY, fields={"Host": CANARY}),
            await at.asks(LETTERS, CANARY, path=f"/{CANARY}"),
        ]
        assert CANARY not in json.dumps([body for _, body, _ in said])
    assert CANARY not in caplog.text
