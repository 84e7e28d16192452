"""The gateway: whom it answers, over TLS, and what SIGHUP changes."""

import asyncio
import json
import ssl
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import aiohttp
import openai
import pytest

from curtilage.client.chat.openai_fields import REFUSALS
from curtilage.client.endpoint import listener
from curtilage.client.endpoint.gateway import serving
from curtilage.client.endpoint.gateway_file import TLSFiles
from curtilage.client.errors import ConfigError, ListenError
from support.gateways import (
    LETTERS,
    LETTERS_ROW,
    LETTERS_TOO,
    LETTERS_TOO_ROW,
    PATIENCE_S,
    TRIAGE_ROW,
    Waiting,
    code_of,
    served,
)
from support.tls_files import write_tls_files

CANARY = "canary-5d01"


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
        f"unknown.{LETTERS.partition('.')[2]}",
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
    monkeypatch.setattr(listener, "HANDSHAKE_S", 10 * PATIENCE_S)
    async with served(tmp_path) as at:
        silent = [await asyncio.open_connection("127.0.0.1", at.port) for _ in range(5)]
        assert (await at.asks(LETTERS, "hello"))[0] == 200
        async with asyncio.timeout(PATIENCE_S / 3):
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
