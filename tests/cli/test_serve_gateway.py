"""``curtilage serve --gateway`` as a program: TLS, keys, SIGHUP, the audit trail."""

import asyncio
import json
import os
import signal
import ssl
import subprocess
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import openai
import pytest

from curtilage.client.endpoint.keys import KeyRecord, make_key
from support.byte_model import make_byte_model, sha256_of
from support.tls_files import write_tls_files

LETTERS, LETTERS_ROW = make_key("letters")
TRIAGE, TRIAGE_ROW = make_key("triage")
QUESTION = "My card 4111 1111 1111 1111 was refused, what now?"


def write(folder: Path, *records: KeyRecord) -> Path:
    path = folder / "gateway.toml"
    path.write_text(
        f'listen = "127.0.0.1:0"\nnames = ["localhost"]\n'
        f"keys = {[each.row() for each in records]}\n"
        '[tls]\ncertificate = "server.pem"\nkey = "server.key"\n'
    )
    return path


@asynccontextmanager
async def served(folder: Path, *more: str) -> AsyncGenerator[Process]:
    model = make_byte_model(folder / "model.gguf", layers=1)
    environ = os.environ | {
        "XDG_STATE_HOME": str(folder / "state"),
        "XDG_DATA_HOME": str(folder / "data"),
        "CURTILAGE_MODEL": str(model),
        "CURTILAGE_MODEL_SHA256": sha256_of(model),
    }
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "curtilage.cli", "serve", *more),
        stdout=PIPE,
        stderr=PIPE,
        env=environ,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
        await process.communicate()


def client(base_url: str, key: str, folder: Path) -> openai.AsyncOpenAI:
    trust = ssl.create_default_context(cafile=str(folder / "server.pem"))
    http = openai.DefaultAsyncHttpxClient(verify=trust)
    return openai.AsyncOpenAI(
        base_url=base_url, api_key=key, http_client=http, max_retries=0
    )


async def asked(base_url: str, key: str, folder: Path) -> str | None:
    async with client(base_url, key, folder) as api:
        answer = await api.chat.completions.with_raw_response.create(
            model="curtilage",
            messages=[{"role": "user", "content": QUESTION}],
            max_tokens=4,
        )
        assert answer.headers["x-curtilage-audit"] == "recorded"
        return answer.headers.get("x-curtilage-route")


async def heard(process: Process, text: str) -> str:
    assert process.stderr is not None
    async with asyncio.timeout(60):
        while text not in (line := (await process.stderr.readline()).decode()):
            assert line, f"it ended without {text!r}"
        return line


@pytest.mark.skipif(sys.platform != "linux", reason="signals are POSIX's")
async def test_applications_ask_over_tls_until_their_key_is_revoked(
    tmp_path: Path,
) -> None:
    write_tls_files(tmp_path)
    path = write(tmp_path, LETTERS_ROW, TRIAGE_ROW)
    async with served(tmp_path, "--gateway", str(path)) as process:
        assert process.stdout is not None
        ready = json.loads(await process.stdout.readline())
        assert ready["applications"] == ["letters", "triage"]
        assert ready["names"] == ["localhost"]
        assert "token_file" not in ready
        port = ready["listen"].rpartition(":")[2]
        base_url = f"https://localhost:{port}"
        assert await asked(base_url, LETTERS, tmp_path) == "local"
        assert await asked(base_url, TRIAGE, tmp_path) == "local"
        with pytest.raises(openai.AuthenticationError):
            await asked(base_url, "unused", tmp_path)
        # A mistake changes nothing, and is reported; neither does it show a key.
        path.write_text(
            f"keys = ['{LETTERS}']\n{path.read_text().partition('keys')[0]}"
        )
        process.send_signal(signal.SIGHUP)
        said = await heard(process, "the gateway is unchanged")
        assert LETTERS not in said
        assert await asked(base_url, LETTERS, tmp_path) == "local"
        write(tmp_path, TRIAGE_ROW)
        old = (tmp_path / "server.pem").read_bytes()
        write_tls_files(tmp_path)
        process.send_signal(signal.SIGHUP)
        await heard(process, "the gateway is that of")
        # ``asked`` trusts the new certificate alone.
        assert (tmp_path / "server.pem").read_bytes() != old
        assert await asked(base_url, TRIAGE, tmp_path) == "local"
        with pytest.raises(openai.AuthenticationError):
            await asked(base_url, LETTERS, tmp_path)
    # The trail knows which application asked; no file knows a key.
    for file in (tmp_path / "state").rglob("*"):
        if file.is_file():
            content = file.read_bytes()
            for key in (LETTERS, TRIAGE):
                assert key.partition(".")[2].encode() not in content, file
    lines = (tmp_path / "state/curtilage/audit/000001.jsonl").read_text().splitlines()
    names = [json.loads(line).get("application") for line in lines]
    assert names == [None, "letters", "triage", "letters", "triage"]


@pytest.mark.skipif(sys.platform != "linux", reason="signals are POSIX's")
async def test_without_tls_it_does_not_start_off_loopback(tmp_path: Path) -> None:
    path = tmp_path / "gateway.toml"
    path.write_text('listen = "192.0.2.1:0"\nnames = ["localhost"]\n')
    async with served(tmp_path, "--gateway", str(path)) as process:
        _, errors = await process.communicate()
        assert process.returncode == 2
        assert b"without [tls]" in errors


def test_without_a_gateway_nothing_of_it_is_imported() -> None:
    shown = "import sys, curtilage.cli.serve; print(*sys.modules, sep='\\n')"
    done = subprocess.run(
        [sys.executable, "-c", shown], capture_output=True, check=True, text=True
    )
    names = done.stdout.split()
    assert "curtilage.client.endpoint.server" in names
    for name in ("gateway", "gateway_file", "gateway_notices", "keys", "listener"):
        assert f"curtilage.client.endpoint.{name}" not in names
