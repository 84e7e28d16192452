"""What a locked server states, when it states nothing, and when it does not serve."""

import asyncio
import json
import platform
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest
from typing_extensions import override

from curtilage.attest.evidence import CpuEvidence, GpuEvidence, Tee
from curtilage.attest.evidence_json import parse_bundle
from curtilage.attest.log.manifest import ReleaseManifest
from curtilage.attest.sandbox import (
    PROCESSES,
    PROMISED,
    Ephemerality,
    Isolation,
    Memory,
    SandboxStatement,
    encode_statement,
    parse_statement,
    require_held,
)
from curtilage.enclave_server.config import EnclaveConfig
from curtilage.enclave_server.confinement import (
    Confined,
    description,
    lacking,
    require_closed,
    require_described,
    statement_of,
)
from curtilage.enclave_server.errors import (
    BundleError,
    EnclaveError,
    EvidenceError,
    ModelError,
    SandboxError,
)
from curtilage.enclave_server.evidence.report import SocketEvidenceSource
from curtilage.enclave_server.model import Model
from curtilage.enclave_server.service import (
    LOST,
    NO_STARTER,
    NOT_RELEASED,
    Surroundings,
    running,
)
from curtilage.inference.protocol import EngineInfo
from curtilage.sandbox.escapes import ALL, PASSED, UNFILTERED
from curtilage.sandbox.trial import (
    LOCKED,
    NO_SWAP,
    SWAPPED,
    Trial,
    engine_description,
    server_description,
)
from curtilage.sandbox.wall import Layer, Wall
from curtilage_dev.scripted_engine import ScriptedEngine
from support.enclave_deployment import AnyWorld, make_any_world
from support.enclave_parts import exchange, get
from support.sandboxes import naming

MACHINE = platform.machine()
ANSWERS = dict.fromkeys((*ALL, *UNFILTERED), "EPERM")
SERVER = Trial(
    loaded=server_description(MACHINE, 6), answers=ANSWERS, landlock=6, memory=NO_SWAP
)
ENGINE = replace(SERVER, loaded=engine_description(MACHINE, 6, devices=False))
WALL = Wall(standing=frozenset({Layer.LANDLOCK, Layer.SECCOMP}))
CONFINED = Confined(wall=WALL, trial=SERVER, overwrites=True)
INFO = EngineInfo(
    model_id="m",
    model_sha256="00" * 32,
    template_sha256="00" * 32,
    architecture="llama",
    context_tokens=512,
    threads=1,
    ephemerality="overwritten",
    paging="no_swap",
)
FORKING = replace(INFO, isolation="process", ephemerality="process")
STATED = statement_of(CONFINED, ENGINE, INFO)
ESCAPED = ANSWERS | {"tcp": PASSED, "create": PASSED}


# What is stated.


@pytest.mark.parametrize("info", [INFO, FORKING], ids=lambda each: each.isolation)
def test_what_was_loaded_is_what_the_command_describes(info: EngineInfo) -> None:
    forks = info.isolation == "process"
    loaded = engine_description(MACHINE, 6, devices=False, forks=forks)
    stated = statement_of(CONFINED, replace(ENGINE, loaded=loaded), info)
    described = description(machine=MACHINE, landlock=6, devices=False, forks=forks)
    assert stated.loaded == sha256(described).digest()
    assert stated.isolation == info.isolation
    assert stated.ephemerality == PROMISED[stated.isolation] == info.ephemerality
    require_held(stated.result)
    assert parse_statement(encode_statement(stated)) == stated
    assert tuple(each.name for each in stated.result.processes) == PROCESSES
    for each in stated.result.processes:
        assert set(each.denied) == set(ANSWERS)


@pytest.mark.parametrize("info", [INFO, FORKING], ids=lambda each: each.isolation)
def test_nothing_is_promised_where_the_server_does_not_overwrite(
    info: EngineInfo,
) -> None:
    keeping = replace(CONFINED, overwrites=False)
    stated = statement_of(keeping, ENGINE, info)
    assert stated.ephemerality is Ephemerality.NONE
    assert stated.isolation == info.isolation


def test_what_the_engine_does_not_promise_is_not_stated() -> None:
    stated = statement_of(CONFINED, ENGINE, replace(INFO, ephemerality="none"))
    assert stated.ephemerality is Ephemerality.NONE


@pytest.mark.parametrize("key", sorted(SERVER.loaded))
@pytest.mark.parametrize("name", PROCESSES)
def test_the_digest_is_of_everything_that_was_loaded(name: str, key: str) -> None:
    server, engine = SERVER, ENGINE
    if name == "server":
        server = replace(SERVER, loaded={**SERVER.loaded, key: "another"})
    else:
        engine = replace(ENGINE, loaded={**ENGINE.loaded, key: "another"})
    other = statement_of(Confined(wall=WALL, trial=server), engine, INFO)
    assert other.loaded != statement_of(CONFINED, ENGINE, INFO).loaded


def test_a_description_names_its_machine_its_devices_and_its_forks() -> None:
    described = {
        description(machine=machine, landlock=landlock, devices=devices, forks=forks)
        for machine in ("x86_64", "aarch64")
        for landlock in (5, 6)
        for devices, forks in ((False, False), (True, False), (False, True))
    }
    assert len(described) == 12
    for each in described:
        assert each == each.strip()
        assert set(json.loads(each)) == {"v", "machine", "processes"}
    with pytest.raises(SandboxError, match="no sandbox for vax"):
        description(machine="vax", landlock=6, devices=False)


def test_a_digest_of_another_description_is_refused() -> None:
    ours = sha256(description(devices=False)).hexdigest()
    require_described(ours, devices=False)
    with pytest.raises(SandboxError, match=f"names the sandbox {ours}"):
        require_described(ours, devices=True)
    with pytest.raises(SandboxError, match=f"names the sandbox {ours}"):
        require_described(ours, devices=False, forks=True)


@pytest.mark.parametrize(
    ("server", "engine", "memory"),
    [
        (NO_SWAP, NO_SWAP, Memory.NO_SWAP),
        (LOCKED, LOCKED, Memory.LOCKED),
        (NO_SWAP, LOCKED, Memory.NO_SWAP),
        (LOCKED, NO_SWAP, Memory.NO_SWAP),
        (NO_SWAP, SWAPPED, None),
        (LOCKED, SWAPPED, None),
        (SWAPPED, SWAPPED, None),
    ],
)
def test_memory_counts_if_it_is_kept_in_both_processes(
    server: str, engine: str, memory: Memory | None
) -> None:
    confined = Confined(wall=WALL, trial=replace(SERVER, memory=server))
    other = replace(ENGINE, memory=engine)
    missing = lacking(confined, other, INFO)
    assert bool(missing) is (memory is None)
    if memory is not None:
        stated = statement_of(confined, other, INFO)
        assert stated.result.memory is memory


@pytest.mark.parametrize(
    ("confined", "engine", "why"),
    [
        (CONFINED, None, "engine: it is not a process of ours"),
        (CONFINED, replace(ENGINE, answers={}), "engine: Landlock or seccomp"),
        (CONFINED, replace(ENGINE, early=("a thread",)), "engine: a thread"),
        (
            Confined(wall=WALL, trial=replace(SERVER, early=("a file",))),
            ENGINE,
            "server: a file",
        ),
        (
            Confined(wall=Wall(missing=("Landlock: no",)), trial=SERVER),
            ENGINE,
            "server: Landlock: no",
        ),
        (
            Confined(wall=Wall(missing=("seccomp: no",)), trial=SERVER),
            ENGINE,
            "server: seccomp: no",
        ),
    ],
    ids=["none", "layers", "engine early", "server early", "Landlock", "seccomp"],
)
def test_whatever_is_missing_is_said(
    confined: Confined, engine: Trial | None, why: str
) -> None:
    assert lacking(CONFINED, ENGINE, INFO) == ()
    assert any(each.startswith(why) for each in lacking(confined, engine, INFO))


def test_memory_that_may_be_swapped_is_not_stated() -> None:
    swapped = lacking(CONFINED, ENGINE, replace(INFO, paging="possible"))
    assert swapped == ("memory may be swapped to a disk, and cannot be locked",)
    assert lacking(CONFINED, ENGINE, None) == ("engine: it is not a process of ours",)


def test_whoever_gets_out_does_not_serve() -> None:
    require_closed(CONFINED, ENGINE)
    require_closed(CONFINED, None)
    escaped = Confined(wall=WALL, trial=replace(SERVER, answers=ESCAPED))
    with pytest.raises(SandboxError, match="the server can create, tcp"):
        require_closed(escaped, None)
    with pytest.raises(SandboxError, match="the engine can create, tcp"):
        require_closed(CONFINED, replace(ENGINE, answers=ESCAPED))


# What the service does with it. Nothing is locked here: the tests go on.


class TriedModel(Model):
    """A model whose engine has tried its wall."""

    def __init__(self, found: Trial | None) -> None:
        self.engine = ScriptedEngine()
        super().__init__(self.engine)
        self._found = found

    @property
    @override
    def trial(self) -> Trial | None:
        return self._found

    @property
    @override
    def info(self) -> EngineInfo:
        scripted = super().info
        return replace(scripted, ephemerality=INFO.ephemerality, paging=INFO.paging)


class Said:
    """What a service wrote, and the models that it opened."""

    def __init__(self) -> None:
        self.out: list[str] = []
        self.notices: list[str] = []
        self.models: list[TriedModel] = []
        self.order: list[str] = []


def surroundings(
    world: AnyWorld,
    said: Said,
    *,
    server: Confined = CONFINED,
    engine: Trial | None = ENGINE,
    source: SocketEvidenceSource | None = None,
) -> Surroundings:
    async def open_model(_config: EnclaveConfig) -> Model:
        said.order.append("model")
        model = TriedModel(engine)
        await model.engine.start()
        said.models.append(model)
        return model

    def lock() -> Confined:
        said.order.append("lock")
        return server

    return Surroundings(
        out=said.out.append,
        notice=said.notices.append,
        open_model=open_model,
        open_evidence=lambda _config: source or world.evidence,
        clock=world.clock,
        lock=lock,
    )


def released(
    folder: Path, change: Callable[[ReleaseManifest], ReleaseManifest] | None = None
) -> AnyWorld:
    """Return a world whose release names our sandbox, or is changed otherwise."""
    return make_any_world(
        folder,
        Tee.EMULATED_NITRO,
        change=change or (lambda plain: naming(plain, STATED)),
    )


def plain(folder: Path) -> AnyWorld:
    """Return a world whose release names no sandbox."""
    return make_any_world(folder, Tee.EMULATED_NITRO)


async def stated_by(address: str) -> SandboxStatement | None:
    bundle = parse_bundle((await exchange(address, get("/attestation-bundle"))).body)
    return parse_statement(bundle.sandbox) if bundle.sandbox else None


async def test_what_was_found_is_stated_and_bound(tmp_path: Path) -> None:
    world, said = released(tmp_path), Said()
    async with running(world.config, surroundings(world, said)) as address:
        stated = await stated_by(address)
    assert stated == STATED
    # Locked before a model is loaded, and long before there is a key.
    assert said.order == ["lock", "model"]
    assert not any(line.startswith("NO SANDBOX") for line in said.notices)


async def test_a_release_that_names_none_is_served_without_a_statement(
    tmp_path: Path,
) -> None:
    world, said = plain(tmp_path), Said()
    async with running(world.config, surroundings(world, said)) as address:
        assert await stated_by(address) is None
    assert said.notices.count(f"NO SANDBOX STATED: {NOT_RELEASED}") == 1


@pytest.mark.parametrize(
    "change",
    [
        replace(STATED, loaded=bytes(32)),
        replace(STATED, isolation=Isolation.PROCESS),
        replace(STATED, ephemerality=Ephemerality.PROCESS),
    ],
    ids=["digest", "isolation", "ephemerality"],
)
async def test_a_release_that_names_another_is_not_served(
    tmp_path: Path, change: SandboxStatement
) -> None:
    world = released(tmp_path, lambda manifest: naming(manifest, change))
    said = Said()
    with pytest.raises(BundleError) as refused:
        async with running(world.config, surroundings(world, said)):
            pytest.fail("it serves")
    assert refused.value.code == "sandbox_not_released"
    assert said.out == []


async def test_an_escape_of_the_server_ends_it_before_a_model_is_loaded(
    tmp_path: Path,
) -> None:
    world, said = released(tmp_path), Said()
    escaped = Confined(wall=WALL, trial=replace(SERVER, answers=ESCAPED))
    with pytest.raises(SandboxError, match="the server can create, tcp"):
        async with running(world.config, surroundings(world, said, server=escaped)):
            pytest.fail("it serves")
    assert said.order == ["lock"]


async def test_an_escape_of_the_engine_ends_it_before_there_is_evidence(
    tmp_path: Path,
) -> None:
    # Also where no release names a sandbox.
    world, said = plain(tmp_path), Said()
    escaped = replace(ENGINE, answers=ESCAPED)
    with pytest.raises(SandboxError, match="the engine can create, tcp"):
        async with running(world.config, surroundings(world, said, engine=escaped)):
            pytest.fail("it serves")
    assert world.evidence.asked == []
    assert said.out == []


async def test_what_is_missing_is_said_and_nothing_stated(tmp_path: Path) -> None:
    world, said = plain(tmp_path), Said()
    logging = Confined(wall=WALL, trial=replace(SERVER, early=("a log",)))
    async with running(
        world.config, surroundings(world, said, server=logging)
    ) as address:
        assert await stated_by(address) is None
    assert "NO SANDBOX STATED: server: a log" in said.notices


async def test_what_is_missing_refuses_a_release_that_names_it(
    tmp_path: Path,
) -> None:
    world, said = released(tmp_path), Said()
    with pytest.raises(BundleError) as refused:
        async with running(world.config, surroundings(world, said, engine=None)):
            pytest.fail("it serves")
    assert refused.value.code == "sandbox_not_applied"
    assert said.notices == ["NO SANDBOX STATED: engine: it is not a process of ours"]


class Connected(SocketEvidenceSource):
    """A source with a connection, whose evidence comes from memory."""

    def __init__(self, path: Path, world: AnyWorld) -> None:
        super().__init__(path)
        self._world = world

    @override
    async def acquire(self, report_data: bytes) -> CpuEvidence:
        return await self._world.evidence.acquire(report_data)

    @override
    async def acquire_devices(self, base: bytes) -> tuple[GpuEvidence, ...]:
        return await self._world.evidence.acquire_devices(base)


@pytest.mark.parametrize("filtered", [True, False])
async def test_a_locked_server_ends_with_the_evidence_process(
    tmp_path: Path, *, filtered: bool
) -> None:
    world, said = plain(tmp_path), Said()
    writers: list[asyncio.StreamWriter] = []

    def accept(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)

    path, ended = tmp_path / "e.sock", asyncio.Queue[EnclaveError]()
    # Without the filter it can connect again.
    standing = WALL.standing if filtered else frozenset({Layer.LANDLOCK})
    server = replace(CONFINED, wall=Wall(standing=standing))
    evidence = await asyncio.start_unix_server(accept, path)
    around = surroundings(world, said, server=server, source=Connected(path, world))
    async with running(world.config, around, end=ended.put_nowait) as address:
        while not writers:  # noqa: ASYNC110 - the other end of a socket
            await asyncio.sleep(0)
        writers[0].close()
        evidence.close()
        if filtered:
            why = await asyncio.wait_for(ended.get(), 20)
            assert isinstance(why, EvidenceError)
            assert str(why) == LOST
        else:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(ended.get(), 0.2)
        # It stops as at a signal: what runs is finished.
        assert (await exchange(address, get("/healthz"))).status == 200
    assert ended.empty()


async def test_without_an_evidence_process_nothing_is_locked(tmp_path: Path) -> None:
    world, said = plain(tmp_path), Said()
    source = Connected(tmp_path / "e.sock", world)
    with pytest.raises(EvidenceError, match="FileNotFoundError"):
        async with running(world.config, surroundings(world, said, source=source)):
            pytest.fail("it serves")
    assert said.order == []


async def test_a_server_ends_with_what_starts_its_engines(tmp_path: Path) -> None:
    world, said = plain(tmp_path), Said()
    watched: list[Callable[[], object]] = []
    around = replace(surroundings(world, said), watch=watched.append)
    ended = asyncio.Queue[EnclaveError]()
    async with running(world.config, around, end=ended.put_nowait) as address:
        (lost,) = watched
        assert ended.empty()
        lost()
        why = ended.get_nowait()
        assert isinstance(why, ModelError)
        assert str(why) == NO_STARTER
        assert (await exchange(address, get("/healthz"))).status == 200
