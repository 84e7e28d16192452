"""The locked server for real: its processes, from the outside and from the inside."""

import asyncio
import json
import os
import platform
import signal
import sys
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

import psutil
import pytest

from curtilage.attest.evidence import Tee
from curtilage.attest.evidence_json import parse_bundle
from curtilage.attest.log.manifest import ReleaseManifest
from curtilage.attest.sandbox import (
    Ephemerality,
    Isolation,
    SandboxStatement,
    parse_statement,
    require_held,
)
from curtilage.enclave_server.confinement import description
from curtilage.enclave_server.service import LOST, NO_STARTER
from curtilage.inference.process.starter import STARTER
from curtilage.inference.process.starting import MODULE
from curtilage.sandbox.parent import FORGETTING
from curtilage.sandbox.trial import landlock_version
from curtilage.wire.keyconfig import parse_key_configs
from curtilage_dev.deployment import MEASUREMENT, make_any_deployment, make_manifest
from curtilage_dev.emulated.machines import make_machine
from curtilage_dev.emulator import Emulator, EmulatorConfig
from support.byte_model import make_byte_model, sha256_of
from support.enclave_deployment import config_text, write_release
from support.enclave_parts import (
    QUICK,
    ask,
    chat_body,
    dated,
    exchange,
    get,
    inner_request,
    seal,
)

pytest.importorskip("llama_cpp", reason="SKIPPED LOUDLY: the extra 'llm' is absent")
pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64" or not landlock_version(),
    reason="SKIPPED LOUDLY: servers are locked on Linux with Landlock only",
)

ROOT = Path(__file__).resolve().parents[2]
SERVE = ("-m", "curtilage.enclave_server")
DONE = b"data: [DONE]"
PATIENCE_S = 60
TEE = Tee.EMULATED_NITRO
NITRO = """[[trust_anchors]]
kind = "emulated"
product = "nitro"
certificate = "{folder}/root.pem"
"""


def named(manifest: ReleaseManifest) -> ReleaseManifest:
    """Return the release that names the sandbox of this tree."""
    return replace(
        manifest,
        sandbox=sha256(description(devices=False)).hexdigest(),
        isolation=Isolation.SHARED,
        ephemerality=Ephemerality.OVERWRITTEN,
    )


def forking(manifest: ReleaseManifest) -> ReleaseManifest:
    """Return the release that names the sandbox with a process for each request."""
    described = description(devices=False, forks=True)
    return replace(
        manifest,
        sandbox=sha256(described).hexdigest(),
        isolation=Isolation.PROCESS,
        ephemerality=Ephemerality.PROCESS,
    )


def another(manifest: ReleaseManifest) -> ReleaseManifest:
    return replace(named(manifest), sandbox="12" * 32)


def forgetful(manifest: ReleaseManifest) -> ReleaseManifest:
    return replace(named(manifest), ephemerality=Ephemerality.PROCESS)


def unnamed(manifest: ReleaseManifest) -> ReleaseManifest:
    return manifest


@dataclass(kw_only=True)
class Server:
    """A server that runs, with the emulated processor that it asks."""

    child: asyncio.subprocess.Process
    emulator: Emulator
    address: str = ""
    notices: list[str] = field(default_factory=list[str])

    def family(self) -> dict[str, int]:
        """Return the processes by what they are."""
        found = {"server": self.child.pid}
        for each in psutil.Process(self.child.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                words = each.cmdline()
                found |= {name: each.pid for name in (STARTER, MODULE) if name in words}
        return found

    async def ended(self) -> int:
        """Return its exit status, with all that it wrote."""
        assert self.child.stderr is not None
        async with asyncio.timeout(PATIENCE_S):
            text = (await self.child.stderr.read()).decode()
            self.notices += text.splitlines()
            return await self.child.wait()

    async def stop(self) -> int:
        self.child.terminate()
        return await self.ended()

    async def answer(self) -> bytes:
        key = parse_key_configs((await exchange(self.address, get("/ohttp-keys"))).body)
        body = chat_body(max_tokens=8, temperature=0, stream=True)
        sealed = seal(key[0], inner_request(body, fields=dated(now=datetime.now(UTC))))
        return sealed.open((await ask(self.address, sealed)).body).content

    async def statement(self) -> SandboxStatement | None:
        answer = await exchange(self.address, get("/attestation-bundle"))
        bundle = parse_bundle(answer.body)
        return parse_statement(bundle.sandbox) if bundle.sandbox else None


def prepare(
    folder: Path,
    change: Callable[[ReleaseManifest], ReleaseManifest],
    extra: str,
    model_extra: str = "",
) -> Emulator:
    """Write the files of a server; return the processor that it will ask."""
    model = make_byte_model(folder / "model.gguf")
    now = datetime.now(UTC)
    machine = make_machine(TEE, MEASUREMENT, now=now)
    manifest = make_manifest(now, transport=QUICK, tee=TEE)
    manifest = replace(manifest, models=(sha256_of(model),))
    deployment = make_any_deployment(machine, now=now, manifest=change(manifest))
    write_release(folder, deployment, now)
    text = config_text(folder, deployment, extra=extra, anchors=NITRO)
    text = text[: text.index("[model]")]
    text += f'[model]\npath = "{model}"\nsha256 = "{sha256_of(model)}"\n'
    text += model_extra
    (folder / "enclave.toml").write_text(text, "utf-8")
    listen = folder / "evidence.sock"
    settings = EmulatorConfig(
        state=folder, listen=listen, measurement=MEASUREMENT, tee=TEE
    )
    return Emulator(settings, machine)


@asynccontextmanager
async def begun(
    folder: Path,
    *command: str,
    change: Callable[[ReleaseManifest], ReleaseManifest] = named,
    extra: str = "",
    model_extra: str = "",
    err: int = asyncio.subprocess.PIPE,
    environment: Mapping[str, str] | None = None,
) -> AsyncGenerator[Server]:
    """Start a server, which may end before it is ready."""
    emulator = prepare(folder, change, extra, model_extra)
    await emulator.start()
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        *(command or SERVE),
        *("--config", str(folder / "enclave.toml")),
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], **(environment or {})},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=err,
    )
    server = Server(child=child, emulator=emulator)
    try:
        yield server
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
        await emulator.close()


@asynccontextmanager
async def started(
    folder: Path,
    *command: str,
    change: Callable[[ReleaseManifest], ReleaseManifest] = named,
    extra: str = "",
    model_extra: str = "",
    err: int = asyncio.subprocess.PIPE,
) -> AsyncGenerator[Server]:
    """Start a server, and wait until it is ready."""
    async with begun(
        folder, *command, change=change, extra=extra, model_extra=model_extra, err=err
    ) as server:
        assert server.child.stdout is not None
        async with asyncio.timeout(PATIENCE_S):
            line = await server.child.stdout.readline()
        if not line:
            await server.ended()
            pytest.fail("\n".join(server.notices))
        server.address = json.loads(line)["listen"]
        yield server


def runs(pid: int) -> bool:
    """Whether a process has not ended; nobody may have taken its exit status yet."""
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


def status_of(pid: int) -> dict[str, str]:
    text = Path(f"/proc/{pid}/status").read_text("utf-8")
    return dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)


def environment_of(pid: int) -> bytes:
    # glibc cuts the list of its tunables into pieces where it stands.
    return Path(f"/proc/{pid}/environ").read_bytes().replace(b":", b"\0")


def threads_of(pid: int) -> list[str]:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [(each / "status").read_text("utf-8") for each in tasks]


def limits_of(pid: int) -> dict[str, list[str]]:
    text = Path(f"/proc/{pid}/limits").read_text("utf-8")
    return {line[:25].strip(): line[25:].split()[:2] for line in text.splitlines()}


async def test_it_states_what_the_release_names_and_answers(tmp_path: Path) -> None:
    async with started(tmp_path) as server:
        stated = await server.statement()
        assert DONE in await server.answer()
        assert await server.stop() == 0
    assert stated is not None
    require_held(stated.result)
    for each in stated.result.processes:
        assert len(each.denied) >= 80
    assert not any(line.startswith("NO ") for line in server.notices)


async def test_a_process_for_each_request_is_tried_and_stated(tmp_path: Path) -> None:
    isolated = 'isolation = "process"\n'
    async with started(tmp_path, change=forking, model_extra=isolated) as server:
        stated = await server.statement()
        for _ in range(2):
            assert DONE in await server.answer()
        assert await server.stop() == 0
    assert stated is not None
    require_held(stated.result)
    assert stated.isolation is Isolation.PROCESS
    assert stated.ephemerality is Ephemerality.PROCESS
    for each in stated.result.processes:
        assert len(each.denied) >= 80


async def test_each_of_its_processes_is_what_it_says(tmp_path: Path) -> None:
    async with started(tmp_path) as server:
        family = server.family()
        states = {name: status_of(pid) for name, pid in family.items()}
        limits = {name: limits_of(pid) for name, pid in family.items()}
        threads = threads_of(family["server"])
        environment = {
            name: environment_of(pid)
            for name, pid in family.items()
            if os.geteuid() == 0  # of a process that nobody else may read
        }
    assert family.keys() == {"server", STARTER, MODULE}
    for name, status in states.items():
        assert (status["Seccomp"], status["NoNewPrivs"]) == ("2", "1"), name
    for name, found in environment.items():
        for each in FORGETTING.items():
            assert "=".join(each).replace(":", "\0").encode() in found, name
    assert all("Seccomp:\t2" in each for each in threads)
    for name in ("server", MODULE):
        assert limits[name]["Max file size"] == ["0", "0"]
        assert limits[name]["Max core file size"] == ["0", "0"]


async def test_engines_are_replaced_by_a_locked_server(tmp_path: Path) -> None:
    async with started(tmp_path) as server:
        for _ in range(2):
            before = server.family()
            os.kill(before[MODULE], signal.SIGKILL)
            async with asyncio.timeout(PATIENCE_S):
                while server.family().get(MODULE) in {None, before[MODULE]}:  # noqa: ASYNC110 - other processes
                    await asyncio.sleep(0.01)
                while DONE not in await server.answer():  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
        assert await server.stop() == 0


async def test_a_signal_to_all_of_its_processes_stops_it(tmp_path: Path) -> None:
    async with started(tmp_path) as server:
        family = server.family()
        for pid in family.values():
            os.kill(pid, signal.SIGTERM)
        assert await server.ended() == 0
        assert not any(psutil.pid_exists(pid) for pid in family.values())


async def test_it_ends_when_the_evidence_process_has_ended(tmp_path: Path) -> None:
    async with started(tmp_path) as server:
        await server.emulator.close()
        assert await server.ended() == 3
    assert server.notices[-1] == f"cannot serve: {LOST}"


async def test_it_ends_when_the_starter_of_engines_has_ended(tmp_path: Path) -> None:
    async with started(tmp_path) as server:
        family = server.family()
        os.kill(family[STARTER], signal.SIGKILL)
        assert await server.ended() == 3
        async with asyncio.timeout(PATIENCE_S):
            while runs(family[MODULE]):  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.01)
    assert server.notices[-1] == f"cannot serve: {NO_STARTER}"


@pytest.mark.parametrize("change", [another, forgetful, forking])
async def test_it_does_not_serve_a_release_that_names_another(
    tmp_path: Path, change: Callable[[ReleaseManifest], ReleaseManifest]
) -> None:
    async with begun(tmp_path, change=change) as server:
        assert await server.ended() == 3
        assert server.child.stdout is not None
        assert await server.child.stdout.read() == b""
    assert NOT_NAMED in server.notices[-1]


# The shipped program, with one rule left out of what it loads.
MUTANT = """
import sys
from curtilage.sandbox import escapes, kernel, seccomp, trial, wall
{change}
from curtilage.enclave_server import process
from curtilage.enclave_server.__main__ import main
sys.exit(main())
"""
OPEN = "self-test: the server can"
NOT_NAMED = "the release names another"
NONE_HERE = "the release names a sandbox, and this server is in none"
LEFT_OUT = "def left_out(*_): raise OSError(1, 'left out')\n"
CHANGES = {
    "files": ("seccomp.OPENS.clear()", OPEN),
    "names": ("seccomp.NO_NAMES.clear()", OPEN),
    "processes": ("seccomp.THREADS.clear()", OPEN),
    "addresses": ("seccomp.NO_ADDRESSES.clear()", OPEN),
    "limits": ("trial._lower = lambda *, files: None", NOT_NAMED),
    "TCP": ("wall._BIND_AND_CONNECT_TCP = 1", OPEN),
    "scopes": ("wall._SCOPES_FROM = 99", NOT_NAMED),
    "threads": ("kernel._SECCOMP_FILTER_FLAG_TSYNC = 0", OPEN),
    "Landlock": (f"{LEFT_OUT}wall._write_only = left_out", NONE_HERE),
    "seccomp": (f"{LEFT_OUT}wall._filter = left_out", NONE_HERE),
    "an attempt": ("del escapes.ALL['udp']", NOT_NAMED),
}


@pytest.mark.parametrize(("change", "why"), CHANGES.values(), ids=CHANGES)
async def test_with_a_rule_left_out_it_does_not_serve(
    tmp_path: Path, change: str, why: str
) -> None:
    code = MUTANT.format(change=change)
    async with begun(tmp_path, "-c", code, environment=FORGETTING) as server:
        assert await server.ended() == 3
        assert server.child.stdout is not None
        assert await server.child.stdout.read() == b""
    assert why in server.notices[-1]


async def test_a_log_in_a_file_is_written_and_nothing_stated(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("wb") as file:
        async with started(tmp_path, change=unnamed, err=file.fileno()) as server:
            assert await server.statement() is None
            assert DONE in await server.answer()
            server.child.terminate()
            assert await server.child.wait() == 0
    lines = log.read_text("utf-8").splitlines()
    assert "NO SANDBOX STATED: server: descriptor 2 writes to a file" in lines
    assert any("model: loaded" in line for line in lines)


async def test_a_socket_that_a_locked_server_left_is_replaced(tmp_path: Path) -> None:
    counters = tmp_path / "counters.sock"
    extra = f'[counters]\nlisten = "unix:{counters}"\n'
    for _ in range(2):
        async with started(tmp_path, extra=extra) as server:
            reader, writer = await asyncio.open_unix_connection(counters)
            writer.write(get("/metrics"))
            assert b" 200 OK" in await reader.readline()
            writer.close()
            assert await server.stop() == 0


async def test_where_another_server_has_the_model_it_stays_open(
    tmp_path: Path,
) -> None:
    prepare(tmp_path, unnamed, "")
    config = tmp_path / "enclave.toml"
    text = config.read_text("utf-8")
    peer = 'engine = "openai"\nname = "m"\naddress = "unix:/none"\n'
    config.write_text(text[: text.index("path = ")] + peer, "utf-8")
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, *SERVE, "--config", str(config)),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert child.stderr is not None
    async with asyncio.timeout(PATIENCE_S):
        line = await child.stderr.readline()
    with suppress(ProcessLookupError):
        child.kill()
    await child.communicate()
    assert line.startswith(b"NO SANDBOX STATED: engine = ")
