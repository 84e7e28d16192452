"""The enclave as a separate process: its connections and its writes."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest

from curtilage.inference.default_model import DEFAULT_SHA256, find_default_model
from curtilage.inference.errors import ModelFileError
from curtilage.wire.keyconfig import KeyConfig, parse_key_configs
from curtilage.wire.shaping import UNPADDED, TransportParameters
from curtilage_dev.deployment import MEASUREMENT
from curtilage_dev.emulated.machines import SnpMachine
from curtilage_dev.emulator import Emulator, EmulatorConfig
from support.enclave_deployment import config_text, deploy, write_release
from support.enclave_parts import (
    JSON,
    PLAIN,
    QUICK,
    ask,
    chat_body,
    connect,
    dated,
    exchange,
    get,
    inner_request,
    post,
    seal,
)

ROOT = Path(__file__).resolve().parents[2]
CANARY = "canary-e1c9-4f07"


@dataclass(kw_only=True)
class Process:
    address: str
    folder: Path
    child: asyncio.subprocess.Process
    err: list[bytes] = field(default_factory=list[bytes])
    out: list[bytes] = field(default_factory=list[bytes])

    async def key(self) -> KeyConfig:
        answer = await exchange(self.address, get("/ohttp-keys"))
        return parse_key_configs(answer.body)[0]

    async def stop(self) -> int:
        self.child.terminate()
        assert self.child.stdout is not None
        assert self.child.stderr is not None
        async with asyncio.timeout(15):
            self.out.append(await self.child.stdout.read())
            self.err.append(await self.child.stderr.read())
            return await self.child.wait()


@asynccontextmanager
async def started(
    folder: Path,
    *arguments: str,
    model: str = "",
    extra: str = "",
    transport: TransportParameters = QUICK,
) -> AsyncGenerator[Process]:
    now = datetime.now(UTC)
    deployment = (
        deploy(now, model=DEFAULT_SHA256, transport=UNPADDED)
        if model
        else deploy(now, transport=transport)
    )
    write_release(folder, deployment, now)
    text = config_text(folder, deployment, extra=extra)
    if model:
        text = text[: text.index("[model]")] + model
    (folder / "enclave.toml").write_text(text, "utf-8")
    emulator = Emulator(
        EmulatorConfig(
            state=folder, listen=folder / "evidence.sock", measurement=MEASUREMENT
        ),
        SnpMachine(platform=deployment.platform, image=MEASUREMENT),
    )
    await emulator.start()
    path = os.pathsep.join(str(ROOT / name) for name in ("tests", "dev"))
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        *arguments,
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": path},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert child.stdout is not None
    try:
        async with asyncio.timeout(60):
            line = await child.stdout.readline()
        if not line:
            assert child.stderr is not None
            pytest.fail((await child.stderr.read()).decode())
        ready = json.loads(line)
        assert ready["ready"] is True
        yield Process(address=ready["listen"], folder=folder, child=child, out=[line])
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
        await emulator.close()


@asynccontextmanager
async def scripted(
    folder: Path, transport: TransportParameters = QUICK
) -> AsyncGenerator[Process]:
    arguments = (
        "support.run_enclave",
        str(folder / "enclave.toml"),
        str(folder / "connects"),
        CANARY,
    )
    async with started(folder, *arguments, transport=transport) as process:
        yield process


async def exercise(process: Process) -> None:
    """Walk every path that could store something."""
    key = await process.key()
    address, now = process.address, datetime.now(UTC)
    fields = dated(now=now)
    streamed = inner_request(
        chat_body(
            stream=True,
            messages=[{"role": "user", "content": CANARY, "name": "canary-e1c9"}],
            stop=[CANARY + "!"],
        ),
        fields=dated((*JSON, (b"authorization", CANARY.encode())), now=now),
    )
    # As scripted: an answer, a fault of the engine, an unforeseen one.
    for ending in (b"[DONE]", b"internal_error", b"internal_error"):
        sealed = seal(key, streamed)
        content = sealed.open((await ask(address, sealed)).body).content
        assert CANARY.encode() in content
        assert ending in content
    # A client that disconnects in the middle.
    sealed = seal(key, streamed)
    _, writer = await connect(address)
    writer.write(post(sealed.message))
    await asyncio.sleep(0.3)
    writer.transport.abort()
    for inner in (
        inner_request(CANARY.encode(), fields=fields),
        inner_request(chat_body(**{CANARY: 1}), fields=fields),
        inner_request(path=f"/{CANARY}".encode(), fields=fields),
        inner_request(fields=(*JSON, (b"date", CANARY.encode()))),
        CANARY.encode(),
    ):
        for form in (PLAIN, "message/ohttp-chunked-req"):
            sealed = seal(key, inner, form=form)
            assert (
                CANARY.encode()
                not in sealed.open((await ask(address, sealed)).body).content
            )
    for raw in (
        post(CANARY.encode()),
        post(CANARY.encode(), content_type=f"text/{CANARY}"),
        post(b"", path=f"/{CANARY}"),
        get(f"/ohttp-keys?{CANARY}"),
        get("/healthz"),
        post(sealed.message[:-1], fields=[f"Cookie: {CANARY}"]),
        f"{CANARY} / HTTP/1.1\r\n\r\n".encode(),
        f"GET / HTTP/1.1\r\n{CANARY} : x\r\n\r\n".encode(),
        post(f"{CANARY}\r\n".encode(), fields=["Transfer-Encoding: chunked"]),
    ):
        answer = await exchange(address, raw)
        assert CANARY.encode() not in answer.body


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("transport", [QUICK, UNPADDED], ids=["padded", "unpadded"])
async def test_nothing_that_was_said_is_written_anywhere(
    tmp_path: Path, transport: TransportParameters
) -> None:
    async with scripted(tmp_path, transport) as process:
        await exercise(process)
        assert await process.stop() == 0
    err = b"".join(process.err)
    written = contents(tmp_path)
    assert b"EMULATED EVIDENCE" in err
    written[Path("stderr")] = err
    written[Path("stdout")] = b"".join(process.out)
    found = [str(path) for path, data in written.items() if CANARY.encode() in data]
    assert found == []
    assert not any(b"canary-e1c9" in data for data in written.values())


async def test_nothing_is_connected_to_but_the_evidence_process(
    tmp_path: Path,
) -> None:
    async with scripted(tmp_path) as process:
        await exercise(process)
        assert await process.stop() == 0
    lines = (tmp_path / "connects").read_text("utf-8").splitlines()
    assert lines, "the hook saw nothing, not even the evidence process"
    evidence = f"socket.connect ({str(tmp_path / 'evidence.sock')!r},)"
    assert {line.replace("PosixPath(", "").rstrip(")") for line in lines} <= {
        evidence.rstrip(")")
    }


@pytest.mark.model
async def test_command_answers_with_the_embedded_model(tmp_path: Path) -> None:
    pytest.importorskip("llama_cpp")
    try:
        find_default_model()
    except ModelFileError as error:
        pytest.skip(f"SKIPPED LOUDLY: {error}")
    command = ("curtilage.enclave_server", "--config", str(tmp_path / "enclave.toml"))
    model = '[model]\npath = "embedded"\ncontext_tokens = 512\nthreads = 2\n'
    async with started(tmp_path, *command, model=model) as process:
        body = chat_body(max_tokens=8, temperature=0, stream=True)
        inner = inner_request(body, fields=dated(now=datetime.now(UTC)))
        sealed = seal(await process.key(), inner)
        content = sealed.open((await ask(process.address, sealed)).body).content
        file = Path(f"/proc/{process.child.pid}/limits")
        limits = await asyncio.to_thread(file.read_text)
        assert await process.stop() == 0
    (line,) = [line for line in limits.splitlines() if "core file" in line]
    assert line.split()[4:6] == ["0", "0"]
    assert content.endswith(b"data: [DONE]\n\n")
    assert b'"finish_reason":"length"' in content
