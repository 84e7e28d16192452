"""``curtilage serve`` with a file of models, as a program: names, and SIGHUP."""

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from support.byte_model import make_byte_model, sha256_of

LONG = {
    "model": "gpt-4o-mini",
    "messages": [{"role": "user", "content": "Is water wet?"}],
    "max_tokens": 1800,
    "temperature": 0,
    "stream": True,
}


def write(folder: Path, model: Path, sha256: str = "") -> Path:
    path = folder / "models.toml"
    path.write_text(
        f"[models.small]\nmodel = '{model}'\nsha256 = '{sha256 or sha256_of(model)}'\n"
        "context_tokens = 2048\n[aliases]\ngpt-4o-mini = 'small'\n"
    )
    return path


@asynccontextmanager
async def served(folder: Path, models: Path) -> AsyncGenerator[tuple[str, Process]]:
    environ = os.environ | {
        "XDG_STATE_HOME": str(folder / "state"),
        "XDG_DATA_HOME": str(folder / "data"),
        "CURTILAGE_MODELS": str(models),
        "CURTILAGE_MODEL": "small",
    }
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "curtilage.cli", "serve", "--port", "0"),
        stdout=PIPE,
        stderr=PIPE,
        env=environ,
    )
    try:
        assert process.stdout is not None
        ready = json.loads(await process.stdout.readline())
        yield ready["listen"], process
    finally:
        process.terminate()
        await process.communicate()


async def heard(process: Process, text: str) -> None:
    assert process.stderr is not None
    async with asyncio.timeout(60):
        while text not in (await process.stderr.readline()).decode():
            pass


async def events_of(response: aiohttp.ClientResponse) -> list[dict[str, object]]:
    data = [line async for line in response.content if line.startswith(b"data: {")]
    return [json.loads(line.removeprefix(b"data: ")) for line in data]


@pytest.mark.skipif(sys.platform != "linux", reason="signals are POSIX's")
async def test_another_model_takes_over_and_no_answer_is_cut(tmp_path: Path) -> None:
    old = make_byte_model(tmp_path / "old.gguf", layers=12)
    new = make_byte_model(tmp_path / "new.gguf", layers=1)
    async with (
        served(tmp_path, write(tmp_path, old)) as (url, process),
        aiohttp.ClientSession() as session,
    ):

        async def answered_by() -> object:
            asked = {**LONG, "stream": False, "max_tokens": 2}
            async with session.post(f"{url}/chat/completions", json=asked) as response:
                return (await response.json())["model"]

        async with session.post(f"{url}/chat/completions", json=LONG) as running:
            assert running.status == 200
            # Comments say what is done until the model begins.
            while not (await running.content.readline()).startswith(b"data: "):
                pass
            write(tmp_path, new)
            process.send_signal(signal.SIGHUP)
            await heard(process, "the models are those of")
            assert await answered_by() == "new"
            *_, last = await events_of(running)
            assert last["model"] == "old"
            assert last["choices"][0]["finish_reason"] in {"stop", "length"}  # type: ignore[index]
        # What is wrong changes nothing.
        write(tmp_path, old, "00" * 32)
        process.send_signal(signal.SIGHUP)
        await heard(process, "'small' is not replaced")
        await heard(process, "models.toml, but for what is not replaced")
        (tmp_path / "models.toml").write_text("[aliases]\na = 'b'")
        process.send_signal(signal.SIGHUP)
        await heard(process, "the models are unchanged")
        assert await answered_by() == "new"
        asked = {**LONG, "model": "gpt-9"}
        async with session.post(f"{url}/chat/completions", json=asked) as response:
            assert response.status == 404
            error = (await response.json())["error"]
        assert (error["code"], error["param"]) == ("model_not_found", "model")
        assert "gpt-9" not in error["message"]
