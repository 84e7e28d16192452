"""Secret strings are sent everywhere; no file or log may contain them.

Client, relay and enclave run with logging of everything at DEBUG and with the
interpreter's development mode, telemetry goes to a collector of ours, and each
process's home, temporary and working folders are ours too. Then every file and
every byte that left is searched.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import aiohttp
import pytest
from end_to_end.conftest import make_stack
from end_to_end.conftest import model as model  # noqa: PLC0414 - the fixture

from curtilage.client.endpoint.keys import make_key
from curtilage_dev.processes import Processes
from curtilage_dev.stack import GATEWAY, Stack
from support.tap import Tap, listening, tapped

IN_PROMPT = "zanzibarquill"
IN_HEADER = "headerquokka77"
IN_PATH = "pathwombat55"
APPLICATION = "canaryapplication3"
LOUD = ("client", "relay", "enclave")
CHANGES = {
    "client": b"enclave: degraded (enclave_unreachable)",
    "relay": f"gateway {GATEWAY}: degraded (gateway_unreachable)".encode(),
    "enclave": b"evidence: refreshed",
}
PATIENCE_S = 120
LEAVES: dict[str, object] = {
    "messages": [{"role": "user", "content": "What is the capital of France?"}],
    "max_tokens": 4,
}
MAKES_LOUD = """\
import logging, sys
logging.basicConfig(level=logging.DEBUG, stream=sys.stderr, force=True)
logging.getLogger().setLevel(logging.DEBUG)
logging.debug("loud")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder whose ``sitecustomize`` makes every process log everything."""
    loud = tmp_path / "loud"
    loud.mkdir()
    (loud / "sitecustomize.py").write_text(MAKES_LOUD, "utf-8")
    for name in ("home", "tmp", "stack"):
        (tmp_path / name).mkdir()
    return tmp_path


@pytest.fixture
def surroundings(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = str(folder / "home")
    for name, value in {
        "PYTHONPATH": str(folder / "loud"),
        "PYTHONASYNCIODEBUG": "1",
        "PYTHONUNBUFFERED": "1",
        "HOME": home,
        "XDG_CACHE_HOME": home,
        "XDG_DATA_HOME": home,
        "XDG_STATE_HOME": home,
        "XDG_CONFIG_HOME": home,
        "TMPDIR": str(folder / "tmp"),
    }.items():
        monkeypatch.setenv(name, value)


@asynccontextmanager
async def collector() -> AsyncGenerator[tuple[int, bytearray]]:
    """Receive all telemetry."""
    received = bytearray()

    async def connected(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while data := await reader.read(65536):
            received.extend(data)
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")

    async with listening(connected) as port:
        yield port, received


@pytest.fixture
def stack(folder: Path, surroundings: None, model: tuple[str, str]) -> Generator[Stack]:
    del surroundings
    with Processes(folder / "stack") as processes:
        running = make_stack(folder / "stack", processes, model)
        running.record = False
        running.start_evidence()
        running.publish()
        running.start_enclave()
        running.start_relay()
        yield running


async def ask(
    url: str,
    body: dict[str, object],
    headers: dict[str, str],
    *,
    path: str = "/chat/completions",
) -> str:
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{url}{path}", json=body, headers=headers) as answer,
    ):
        return await answer.text()


def bodies() -> list[dict[str, object]]:
    """Both routes, whole and streamed, and every early failure."""
    harmless = [{"role": "user", "content": f"what is a {IN_PROMPT}"}]
    regulated = [
        {"role": "user", "content": f"my card is 4111 1111 1111 1111 {IN_PROMPT}"}
    ]
    settings = {"max_tokens": 40, "temperature": 0, "seed": 3}
    return [
        {"messages": harmless, **settings},
        {"messages": harmless, "stream": True, **settings},
        {"messages": regulated, **settings},
        {"messages": regulated, "stream": True, **settings},
        {"messages": harmless, "stop": [IN_PROMPT], **settings},
        {"messages": harmless, "max_tokens": 100_000},
        {"messages": [{"role": IN_PROMPT, "content": ""}]},
        {"messages": harmless, IN_PROMPT: 1},
        {"messages": harmless, "model": IN_PROMPT},
        {"messages": [{"role": "user", "content": IN_PROMPT * 5000}]},
        {"messages": [{"role": "user", "content": IN_PROMPT + "\ud800"}]},
    ]


def answer_text(raw: str) -> str:
    value = json.loads(raw)
    return str(value["choices"][0]["message"]["content"])


async def test_nothing_that_anybody_wrote_holds_a_secret(
    folder: Path, stack: Stack
) -> None:
    host, _, port = stack.relay_address.rpartition(":")
    async with tapped(host, int(port)) as tap, collector() as (otlp, telemetry):
        stack.relay_address = f"127.0.0.1:{tap.port}"
        await asyncio.to_thread(
            stack.start_client, "--otlp", f"http://127.0.0.1:{otlp}"
        )
        headers = {
            "Authorization": f"Bearer {IN_HEADER}",
            "X-Request-Id": IN_HEADER,
            "Cookie": IN_HEADER,
            "traceparent": f"00-{IN_HEADER}",
        }
        answers = [await ask(stack.client_url, body, headers) for body in bodies()]
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"{stack.client_url}/{IN_PATH}?{IN_PATH}") as lost,
        ):
            assert lost.status == 404
        for said in (json.loads(answers[0])["id"], IN_PROMPT):
            word: dict[str, object] = {"id": said, "good": True}
            await ask(stack.client_url, word, headers, path="/curtilage/feedback")
        # Each party logs a change of state while secrets are sent.
        await asyncio.to_thread(stack.running["enclave"].stop)
        for body in (*bodies(), LEAVES):
            await ask(stack.client_url, body, headers)
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_S):
                while unchanged(folder / "stack"):  # noqa: ASYNC110 - of processes
                    await asyncio.sleep(0.1)
        assert unchanged(folder / "stack") == []
        for name in LOUD:
            await asyncio.to_thread(stack.running[name].stop)
    secrets = [IN_PROMPT, IN_HEADER, IN_PATH]
    made = [answer_text(answers[0]), answer_text(answers[2])]
    # The model's output is secret too; a piece of it is enough to detect.
    secrets += [text[:12] for text in made]
    assert all(len(secret) >= 12 for secret in secrets), "a short one proves nothing"
    assert not quiet(folder / "stack"), "a quiet process proves nothing"
    searched = search(folder, tap, bytes(telemetry), secrets)
    assert searched > 10, "logs, sockets and telemetry were searched"
    counted = ("answered", "mask.denied", "tier.ttft", "feedback")
    for name in counted:
        assert f"curtilage.client.{name}".encode() in telemetry, name


async def test_only_the_client_knows_which_application_asks(
    folder: Path, stack: Stack
) -> None:
    key, record = make_key(APPLICATION)
    secret = key.partition(".")[2]
    file = folder / "gateway.toml"
    file.write_text(
        f'listen = "127.0.0.1:0"\nnames = ["127.0.0.1"]\nkeys = {[record.row()]}\n'
    )
    host, _, port = stack.relay_address.rpartition(":")
    async with tapped(host, int(port)) as tap, collector() as (otlp, telemetry):
        stack.relay_address = f"127.0.0.1:{tap.port}"
        more = ("--gateway", str(file), "--otlp", f"http://127.0.0.1:{otlp}")
        await asyncio.to_thread(stack.start_client, *more)
        headers = {"Authorization": f"Bearer {key}"}
        answers = [await ask(stack.client_url, body, headers) for body in bodies()]
        assert answer_text(answers[0])
        wrong = {"Authorization": f"Bearer {APPLICATION}.{secret[::-1]}"}
        assert "invalid_api_key" in await ask(stack.client_url, LEAVES, wrong)
        for name in LOUD:
            await asyncio.to_thread(stack.running[name].stop)
    assert not quiet(folder / "stack"), "a quiet process proves nothing"
    assert b"curtilage.client.answered" in telemetry
    # The key is nowhere.
    search(folder, tap, bytes(telemetry), [secret, secret[::-1]])
    sent = (bytes(tap.outward), bytes(tap.homeward), bytes(telemetry))
    assert not any(form in data for data in sent for form in forms(APPLICATION))
    # Its file, the line that says it is ready, and the trail.
    audit = stack.audit.relative_to(folder) / "000001.jsonl"
    assert knowing(folder) == {"gateway.toml", "stack/client.out", str(audit)}


def knowing(folder: Path) -> set[str]:
    """Return the files with the application's name."""
    return {
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and APPLICATION.encode() in path.read_bytes()
    }


def unchanged(folder: Path) -> list[str]:
    """Return the processes that have not logged a change of state."""
    logs = {name: (folder / f"{name}.err").read_bytes() for name in LOUD}
    return [name for name, log in logs.items() if CHANGES[name] not in log]


def search(folder: Path, tap: Tap, telemetry: bytes, secrets: list[str]) -> int:
    """Search everything; return how many items there were."""
    places = {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not path.is_socket()
    }
    places["to the relay"] = bytes(tap.outward)
    places["from the relay"] = bytes(tap.homeward)
    places["telemetry"] = telemetry
    assert telemetry, "telemetry was on"
    for name, data in places.items():
        for secret in secrets:
            for form in forms(secret):
                assert form not in data, f"a secret is in {name}"
    return len(places)


def quiet(folder: Path) -> list[str]:
    """Return the processes that logged nothing at DEBUG."""
    logs = {name: (folder / f"{name}.err").read_bytes() for name in LOUD}
    return [name for name, log in logs.items() if b"DEBUG:" not in log]


def forms(secret: str) -> list[bytes]:
    """The forms in which the text could have been stored."""
    return [
        secret.encode(),
        secret.encode("utf-16-le"),
        secret.encode("utf-32-le"),
        json.dumps(secret)[1:-1].encode(),
        repr(secret)[1:-1].encode(),
        secret.encode().hex().encode(),
    ]


def test_one_quiet_process_is_noticed(tmp_path: Path) -> None:
    for name in LOUD:
        (tmp_path / f"{name}.err").write_text("DEBUG:root:loud", "utf-8")
    assert quiet(tmp_path) == []
    (tmp_path / "relay.err").write_text("listening", "utf-8")
    assert quiet(tmp_path) == ["relay"]


def test_the_search_finds_what_is_there(tmp_path: Path) -> None:
    """The positive control: a search that finds nothing anywhere is broken."""
    (tmp_path / "a.err").write_text(f"DEBUG {IN_PROMPT}", "utf-8")
    tap = Tap()
    with pytest.raises(AssertionError, match="a secret is in"):
        search(tmp_path, tap, b"x", [IN_PROMPT])
    (tmp_path / "a.err").write_text("DEBUG", "utf-8")
    assert search(tmp_path, tap, b"x", [IN_PROMPT]) == 4
