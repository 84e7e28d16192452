"""The command as a person starts it: help, check, ready, stop, and silence."""

import asyncio
import json
import os
import resource
import signal
import socket
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from curtilage.relay.__main__ import main
from curtilage.relay.process import allow_descriptors
from support.relay_certificates import make_certificates
from support.relay_parts import (
    ANSWER,
    FakeGateway,
    MakeRelay,
    Message,
    Running,
    raw_answer,
    raw_request,
    read_message,
    say,
)

CANARY = "canary-4111111111111111"
NAME = "curtilage"
DEVELOPMENT = ("--environment", "development")


@pytest.fixture(autouse=True)
def limits_set(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, tuple[int, int]]]:
    """Keep the command from limiting this process, and so the tests' children."""
    seen: list[tuple[int, tuple[int, int]]] = []

    def note(kind: int, limit: tuple[int, int]) -> None:
        seen.append((kind, limit))

    monkeypatch.setattr(resource, "setrlimit", note)
    return seen


def run(*arguments: str) -> int:
    try:
        return main(arguments)
    except SystemExit as left:
        return int(left.code or 0)


def test_help_teaches_with_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--help") == 0
    text = capsys.readouterr().out
    for part in ("relay.toml", "[gateways]", "--check", "exit codes", "/demo/keys"):
        assert part in text


def test_check_accepts_a_valid_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "relay.toml"
    file.write_text('listen = "127.0.0.1:0"\n[gateways]\na = "https://a.example"\n')
    assert run("--config", str(file), "--check") == 0
    assert capsys.readouterr().out == "1 gateway(s): configuration valid\n"


def test_check_reports_every_problem(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--listen", "x", "--gateway", "A=b", "--check") == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert all(line.startswith("curtilage-relay: ") for line in lines)


@pytest.mark.parametrize(
    "arguments",
    [
        ("--unknown",),
        ("--environment", "test"),
        ("--gateway", "nothing"),
        ("--config", "/nonexistent/relay.toml"),
        ("--listen", "127.0.0.1:0", "--gateway", "a=http://127.0.0.1:1"),
        (
            *("--listen", "127.0.0.1:0", "--gateway", "a=https://a.example"),
            *("--unsafe-record-view", "view.jsonl"),
        ),
        ("--conf", "abbreviated.toml"),
    ],
)
def test_wrong_use_exits_with_2(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*arguments) == 2
    assert capsys.readouterr().out == ""


def test_undecodable_file_exits_with_2(tmp_path: Path) -> None:
    file = tmp_path / "relay.toml"
    file.write_bytes(b"\xff\xfe")
    assert run("--config", str(file), "--check") == 2


def test_address_in_use_exits_with_3(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        address = f"127.0.0.1:{port}"
        assert run("--listen", address, "--gateway", "a=https://a.example") == 3
    output = capsys.readouterr()
    assert output.out == ""
    assert "cannot start" in output.err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_run_in_this_process_ends_at_the_signal(
    number: signal.Signals,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def start_and_signal(_: object) -> str:
        asyncio.get_running_loop().call_later(0.05, os.kill, os.getpid(), number)
        return "127.0.0.1:1"

    monkeypatch.setattr("curtilage.relay.app.Relay.start", start_and_signal)
    assert run("--listen", "127.0.0.1:0", "--gateway", "a=https://a.example") == 0
    assert json.loads(capsys.readouterr().out) == {
        "ready": True,
        "listen": "127.0.0.1:1",
        "transport": "plain",
        "access": "open",
    }


def test_relay_runs_without_uvloop(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        assert run("--listen", address, "--gateway", "a=https://a.example") == 3
    assert capsys.readouterr().out == ""


class Process:
    """The real command in a process of its own."""

    def __init__(self, process: asyncio.subprocess.Process, address: str) -> None:
        self.process = process
        self.address = address

    @classmethod
    async def start(cls, *arguments: str, home: Path, code: str = "") -> "Process":
        program = code or "from curtilage.relay.__main__ import main\n"
        program += "import sys; sys.exit(main())"
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-X", "dev", "-W", "error", "-c", program),
            *(*DEVELOPMENT, "--listen", "127.0.0.1:0", *arguments),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=home,
        )
        assert process.stdout is not None
        async with asyncio.timeout(20):
            ready = json.loads(await process.stdout.readline())
        assert ready["ready"] is True
        return cls(process, str(ready["listen"]))

    async def stop(self, number: int = signal.SIGTERM) -> tuple[int, bytes, bytes]:
        self.process.send_signal(number)
        async with asyncio.timeout(20):
            output, errors = await self.process.communicate()
        assert self.process.returncode is not None
        return self.process.returncode, output, errors


def talk(address: str) -> Running:
    return Running(relay=None, address=address)  # type: ignore[arg-type]


def test_core_dumps_are_forbidden_first(
    limits_set: list[tuple[int, tuple[int, int]]],
) -> None:
    assert run("--unknown") == 2
    assert limits_set == [(resource.RLIMIT_CORE, (0, 0))]


def test_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--version") == 0
    assert capsys.readouterr().out == f"curtilage-relay {metadata.version(NAME)}\n"


def test_version_without_a_distribution_is_unknown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    assert run("--version") == 0
    assert capsys.readouterr().out == "curtilage-relay unknown\n"


GOOD = "--listen 127.0.0.1:0 --gateway a=https://a.example"


@pytest.mark.parametrize(
    "line",
    [
        "--help >/dev/full",
        "--version >/dev/full",
        "--version >&-",
        "--unknown 2>/dev/full",
        "--unknown 2>&-",
        "--check 2>/dev/full",
        f"{GOOD} --check >/dev/full",
        f"{GOOD} >/dev/full",
        f"{GOOD} >&-",
        f"{GOOD} 2>&-",
    ],
)
def test_stream_that_cannot_be_written_exits_with_3(line: str) -> None:
    command = f'exec "$0" -m curtilage.relay {line}'
    done = subprocess.run(
        ["/bin/sh", "-c", command, sys.executable],
        capture_output=True,
        check=False,
        env={**os.environ, "PYTHONUNBUFFERED": ""},  # empty means unset
        timeout=30,
    )
    assert (done.returncode, done.stderr) == (3, b"")


async def test_no_core_dump_is_ever_written(
    gateway: FakeGateway, tmp_path: Path
) -> None:
    target = f"demo=http://127.0.0.1:{gateway.port}"
    process = await Process.start("--gateway", target, home=tmp_path)
    file = Path(f"/proc/{process.process.pid}/limits")
    limits = await asyncio.to_thread(file.read_text)
    await process.stop()
    (line,) = [line for line in limits.splitlines() if "core file" in line]
    assert line.split()[4:6] == ["0", "0"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_ready_serve_and_stop(
    gateway: FakeGateway, tmp_path: Path, number: int
) -> None:
    target = f"demo=http://127.0.0.1:{gateway.port}"
    process = await Process.start("--gateway", target, home=tmp_path)
    answer = await talk(process.address).post()
    assert (answer.status, answer.body) == (200, ANSWER)
    assert await process.stop(number) == (0, b"", b"")


async def test_second_signal_ends_at_once(gateway: FakeGateway, tmp_path: Path) -> None:
    gateway.script = say()
    target = f"demo=http://127.0.0.1:{gateway.port}"
    process = await Process.start("--gateway", target, home=tmp_path)
    waiting = asyncio.create_task(talk(process.address).post())
    await gateway.arrived()
    process.process.send_signal(signal.SIGTERM)
    await asyncio.sleep(1)
    assert process.process.returncode is None  # the grace is 30 s
    assert await process.stop() == (0, b"", b"")
    with pytest.raises(asyncio.IncompleteReadError):
        await waiting


async def test_plain_http_beyond_this_machine_is_reported(tmp_path: Path) -> None:
    process = await Process.start(
        *("--gateway", "a=https://a.example", "--listen", "0.0.0.0:0"), home=tmp_path
    )
    code, _, errors = await process.stop()
    assert code == 0
    assert errors.startswith(b"curtilage-relay: no TLS towards clients")
    assert errors.count(b"\n") == 1


def test_make_key_is_a_command_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("make-key", "hospital-a") == 0
    key, line = capsys.readouterr().out.splitlines()
    assert key.startswith("key: hospital-a.")
    assert line.startswith("line: hospital-a:")
    assert run("make-key", "--help") == 0
    assert "Authorization: Bearer" in capsys.readouterr().out
    assert run("make-key") == 2


def test_the_example_of_the_help_is_a_valid_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    certificates = make_certificates(tmp_path)
    assert run("make-key", "hospital-a") == 0
    line = capsys.readouterr().out.splitlines()[1].removeprefix("line: ")
    assert run("--help") == 0
    text = capsys.readouterr().out
    example = text.partition("example (relay.toml):\n")[2].partition("\n\n")[0]
    example = example.replace("hospital-a:salt:hash", line)
    for named, real in (
        ("/etc/ca.pem", certificates.authority),
        ("/etc/relay/chain.pem", tmp_path / "server.pem"),
        ("/etc/relay/key.pem", tmp_path / "server.key"),
        ("/etc/relay/clients.pem", certificates.authority),
    ):
        assert named in example
        example = example.replace(named, str(real))
    file = tmp_path / "relay.toml"
    file.write_text(example)
    assert run("--config", str(file), "--check") == 0


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"key": "absent.key"}, "tls.certificate or tls.key: No such file"),
        ({"key": "misnamed.key"}, "tls.certificate or tls.key: not usable PEM, or the"),
        ({"client_ca": "server.key"}, "tls.client_ca: not usable PEM"),
        ({"upstream_ca_file": "server.key"}, "upstream_ca_file: not usable PEM"),
        ({"upstream_ca_file": "absent.pem"}, "upstream_ca_file: No such file"),
    ],
)
def test_check_reads_the_files_of_tls(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    changes: dict[str, str],
    problem: str,
) -> None:
    make_certificates(tmp_path)
    files = {
        "certificate": "server.pem",
        "key": "server.key",
        "client_ca": "authority.pem",
        "upstream_ca_file": "authority.pem",
        **changes,
    }
    paths = {key: f"{key} = {json.dumps(str(tmp_path / files[key]))}" for key in files}
    top = ['listen = "127.0.0.1:0"', paths.pop("upstream_ca_file")]
    gateways = ["[gateways]", 'a = "https://a.example"']
    file = tmp_path / "relay.toml"
    file.write_text("\n".join([*top, *gateways, "[tls]", *paths.values()]))
    assert run("--config", str(file), "--check") == 3
    read = capsys.readouterr()
    assert read.out == ""
    assert problem in read.err


def test_descriptors_suffice_for_the_connections_allowed(
    limits_set: list[tuple[int, tuple[int, int]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def have(_: int) -> tuple[int, int]:
        return 256, 600

    monkeypatch.setattr(resource, "getrlimit", have)
    for count in (100, 200, 10_000):
        allow_descriptors(count)
    assert limits_set == [
        (resource.RLIMIT_NOFILE, (328, 600)),
        (resource.RLIMIT_NOFILE, (600, 600)),
    ]


DEBUG_EVERYTHING = """\
import logging
logging.basicConfig(level=logging.DEBUG)
logging.getLogger('aiohttp.server').setLevel(logging.DEBUG)
logging.getLogger('asyncio').setLevel(logging.DEBUG)
from curtilage.relay.__main__ import main
"""


async def every_path_with_canaries(relay: Running, gateway: FakeGateway) -> None:
    """Send a canary through every place that could remember or repeat it."""
    canary = CANARY.encode()
    fields = (f"Cookie: {CANARY}", f"X-{CANARY}: {CANARY}")
    await relay.post(f"/demo?{CANARY}", *fields, body=canary)
    await relay.post("/demo", *fields, "Incremental: ?1", body=canary)
    await relay.post(f"/{CANARY}", body=canary)
    await relay.post("/demo", kind=CANARY, body=canary)
    await relay.post("/demo", f"Expect: {CANARY}", body=canary)
    await relay.send(b"\x01" + canary + b"\r\n\r\n")
    await relay.send(raw_request("POST", "/demo", (f"X-{CANARY} : {CANARY}",)))
    head = raw_request("POST", "/demo", ("Content-Type: message/ohttp-req",))
    chunked = head[:-2] + b"Transfer-Encoding: chunked\r\n\r\n"
    await relay.send(chunked + b"zz" + canary + b"\r\n")
    gateway.script = say(raw_answer(canary, kind=CANARY, fields=fields))
    await relay.post(body=canary)
    gateway.script = say(canary + b"\r\n\r\n")
    await relay.post(body=canary)
    await relay.get("/demo/keys")
    gateway.script = say(raw_answer(canary, status=f"500 {CANARY}", kind="text/html"))
    await relay.post(body=canary)

    async def cut(writer: asyncio.StreamWriter, _: Message) -> None:
        writer.write(raw_answer(canary)[:-1])
        await writer.drain()
        writer.transport.abort()

    gateway.script = cut
    await relay.post(body=canary)
    await relay.post("/demo", "Incremental: ?1", body=canary)
    _, leaving = await relay.connect()
    leaving.write(head[:-2] + b"Content-Length: 99\r\n\r\n" + canary)
    await leaving.drain()
    leaving.transport.abort()


async def test_canary_is_in_nothing_the_relay_writes(
    gateway: FakeGateway, tmp_path: Path
) -> None:
    process = await Process.start(
        *("--gateway", f"demo=http://127.0.0.1:{gateway.port}"),
        home=tmp_path,
        code=DEBUG_EVERYTHING,
    )
    relay = talk(process.address)
    await every_path_with_canaries(relay, gateway)
    gateway.script = say(raw_answer())
    assert (await relay.post()).status == 200
    code, output, errors = await process.stop()
    assert code == 0
    assert b"canary" not in output + errors
    assert b"127.0.0.1" not in output + errors
    assert os.listdir(tmp_path) == []  # noqa: PTH208 - pathlib's would be refused here


async def test_canary_is_in_no_answer_but_the_sealed_one(
    make_relay: MakeRelay, gateway: FakeGateway
) -> None:
    relay = await make_relay()
    answers: list[Message] = []
    original = Running.send

    async def keep(self: Running, data: bytes) -> Message:
        answer = await original(self, data)
        answers.append(answer)
        return answer

    relay.send = keep.__get__(relay)  # type: ignore[method-assign]
    await every_path_with_canaries(relay, gateway)
    assert len(answers) > 10
    for answer in answers:
        assert b"canary" not in answer.head.lower()
        if answer.status != 200:
            assert b"canary" not in answer.body.lower()


async def test_module_runs_as_a_script(gateway: FakeGateway, tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "curtilage.relay", "--check"),
        *("--listen", "127.0.0.1:0", "--gateway", "a=https://a.example"),
        stdout=asyncio.subprocess.PIPE,
        cwd=tmp_path,
    )
    output, _ = await process.communicate()
    assert (process.returncode, gateway.requests) == (0, [])
    assert b"configuration valid" in output


async def test_half_closed_connection_is_let_go(relay: Running) -> None:
    reader, writer = await relay.connect()
    writer.write_eof()
    async with asyncio.timeout(5):
        assert await reader.read() == b""
    writer.close()
    assert (await read_answer(relay)).status == 200


async def read_answer(relay: Running) -> Message:
    reader, writer = await relay.connect()
    writer.write(raw_request("GET", "/healthz"))
    answer = await read_message(reader)
    writer.close()
    return answer
