import asyncio
import json
import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

import pytest

from curtilage.attest.evidence import (
    MAX_CERTIFICATE_BYTES,
    MAX_CPU_EVIDENCE_BYTES,
    CpuEvidence,
    DeviceKind,
    GpuEvidence,
    NitroEvidence,
    Tee,
)
from curtilage.attest.evidence_json import encode_cpu_evidence
from curtilage.enclave_server.__main__ import main
from curtilage.enclave_server.acquire import command as evidence_command
from curtilage.enclave_server.acquire import process as process_module
from curtilage.enclave_server.acquire.configfs_tsm import NO_NEW_ENTRY
from curtilage.enclave_server.acquire.endorsements import (
    MAX_NAMED,
    Endorsements,
    answer_file,
    list_file,
    read_endorsements,
)
from curtilage.enclave_server.acquire.process import (
    IDENTITY_KEPT_S,
    MAX_CONNECTIONS,
    NO_EVIDENCE,
    TOO_LONG,
    EvidenceServer,
    EvidenceSettings,
)
from curtilage.enclave_server.errors import AcquisitionError, EvidenceError
from curtilage.enclave_server.evidence.report import SocketEvidenceSource
from curtilage.enclave_server.evidence_protocol import identity_data, parse_devices
from curtilage.sandbox.wall import Wall
from support.enclave_parts import until

DATA = bytes(range(64))
NONE = bytes(4)
CANARY = "canary-0b7e"
LIST, ANSWER = list_file(b"authority"), answer_file(b"certificate")
FILES = (
    *("vek.der", "ask.der", "ark.der", "crl.der", "collateral.json"),
    *("td-quote.bin", LIST, ANSWER),
)


@dataclass
class Provider:
    """A device in memory: signs any data, or fails."""

    fault: Exception | None = None
    document: bytes = b"document"
    gate: threading.Event = field(default_factory=threading.Event)
    asked: list[tuple[bytes, Endorsements]] = field(
        default_factory=list[tuple[bytes, Endorsements]]
    )
    at_once: int = 0
    most_at_once: int = 0

    def __post_init__(self) -> None:
        self.gate.set()

    def acquire(self, report_data: bytes, endorsements: Endorsements) -> CpuEvidence:
        self.at_once += 1
        self.most_at_once = max(self.at_once, self.most_at_once)
        self.gate.wait(30)
        self.at_once -= 1
        self.asked.append((report_data, endorsements))
        if self.fault is not None:
            raise self.fault
        return NitroEvidence(tee=Tee.NITRO, document=self.document + report_data)


@dataclass
class Devices:
    """GPUs in memory: they sign any base, or fail."""

    fault: Exception | None = None
    asked: list[tuple[bytes, Endorsements]] = field(
        default_factory=list[tuple[bytes, Endorsements]]
    )

    def acquire(
        self, base: bytes, endorsements: Endorsements
    ) -> tuple[GpuEvidence, ...]:
        self.asked.append((base, endorsements))
        if self.fault is not None:
            raise self.fault
        return (_gpu(base),)


def _gpu(base: bytes) -> GpuEvidence:
    return GpuEvidence(
        kind=DeviceKind.NVIDIA_GPU, report=b"report" + base, chain=(b"leaf",)
    )


@dataclass(kw_only=True)
class Running:
    """A process under test."""

    provider: Provider
    devices: Devices
    folder: Path
    notices: list[str] = field(default_factory=list[str])
    clock: float = 0.0
    sources: list[SocketEvidenceSource] = field(
        default_factory=list[SocketEvidenceSource]
    )

    @property
    def listen(self) -> Path:
        return self.folder / "e.sock"

    @property
    def identify(self) -> Path:
        return self.folder / "i.sock"

    def source(self) -> SocketEvidenceSource:
        """Return a server's, with a connection of its own."""
        self.sources.append(SocketEvidenceSource(self.listen, timeout_s=20))
        return self.sources[-1]


@asynccontextmanager
async def running(
    folder: Path, provider: Provider, *, gpus: bool = False
) -> AsyncGenerator[Running]:
    run = Running(provider=provider, devices=Devices(), folder=folder)
    settings = EvidenceSettings(
        endorsements=folder / "endorsements", listen=run.listen, identify=run.identify
    )
    server = EvidenceServer(
        settings,
        provider,
        run.notices.append,
        devices=run.devices if gpus else None,
        timer=lambda: run.clock,
    )
    await server.start()
    try:
        yield run
    finally:
        for source in run.sources:
            source.close()
        await server.close()


async def exchange(path: Path, request: bytes) -> bytes:
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(request)
    writer.write_eof()
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        await closed(writer)


async def closed(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()


async def test_server_gets_evidence_over_its_data(tmp_path: Path) -> None:
    async with running(tmp_path, Provider()) as run:
        evidence = await run.source().acquire(DATA)
    assert evidence == NitroEvidence(tee=Tee.NITRO, document=b"document" + DATA)
    assert run.notices == []


async def test_server_gets_no_device(tmp_path: Path) -> None:
    async with running(tmp_path, Provider()) as run:
        assert await run.source().acquire_devices(DATA) == ()
    assert run.provider.asked == []


async def test_server_gets_its_gpus_over_its_base(tmp_path: Path) -> None:
    (tmp_path / "endorsements").mkdir()
    (tmp_path / "endorsements" / "crl.der").write_bytes(b"list")
    async with running(tmp_path, Provider(), gpus=True) as run:
        assert await run.source().acquire_devices(DATA) == (_gpu(DATA),)
        assert run.provider.asked == []
        assert run.devices.asked == [(DATA, Endorsements(crl=b"list"))]
        run.devices.fault = AcquisitionError("NVML: NVMLError_NotSupported")
        with pytest.raises(EvidenceError, match="has no evidence"):
            await run.source().acquire_devices(DATA)
    assert run.notices == [f"{NO_EVIDENCE}: NVML: NVMLError_NotSupported"]


async def test_stapler_learns_the_gpus_and_no_more(tmp_path: Path) -> None:
    async with running(tmp_path, Provider(), gpus=True) as run:
        assert await exchange(run.identify, b"\2" + DATA) == b""
        answer = await exchange(run.identify, b"\4" + DATA)
        assert await exchange(run.identify, b"\4" + bytes(64)) == answer
        run.clock = IDENTITY_KEPT_S
        assert await exchange(run.identify, b"\4" + DATA) == answer
    assert parse_devices(answer[4:]) == (_gpu(identity_data()),)
    assert run.devices.asked == [(identity_data(), Endorsements())] * 2
    assert run.provider.asked == []


async def test_a_machine_without_gpus_says_so_to_the_stapler(tmp_path: Path) -> None:
    async with running(tmp_path, Provider()) as run:
        answer = await exchange(run.identify, b"\4" + DATA)
    assert parse_devices(answer[4:]) == ()


async def test_endorsements_are_read_anew_for_each_request(tmp_path: Path) -> None:
    folder = tmp_path / "endorsements"
    async with running(tmp_path, Provider()) as run:
        await run.source().acquire(DATA)
        folder.mkdir()
        (folder / "vek.der").write_bytes(b"first")
        await run.source().acquire(DATA)
        (folder / "new").write_bytes(b"second")
        (folder / "new").rename(folder / "vek.der")
        await run.source().acquire(DATA)
    seen = [endorsements.vek for _, endorsements in run.provider.asked]
    assert seen == [b"", b"first", b"second"]


def test_every_endorsement_has_its_file(tmp_path: Path) -> None:
    for name in FILES:
        (tmp_path / name).write_bytes(name.encode())
    assert read_endorsements(tmp_path) == Endorsements(
        vek=b"vek.der",
        ask=b"ask.der",
        ark=b"ark.der",
        crl=b"crl.der",
        collateral=b"collateral.json",
        quote=b"td-quote.bin",
        named={LIST: LIST.encode(), ANSWER: ANSWER.encode()},
    )
    assert "vek.der" not in repr(read_endorsements(tmp_path))


@pytest.mark.parametrize("name", FILES)
def test_endorsement_that_is_too_long_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(bytes(100_000))
    with pytest.raises(AcquisitionError, match=f"{name}: more than"):
        read_endorsements(tmp_path)


@pytest.mark.parametrize(
    "name",
    [
        "nitro-crl-.der",
        f"nitro-crl-{'a' * 63}.der",
        f"nitro-crl-{'a' * 64}.pem",
        f"gpu-ocsp-{'A' * 64}.der",
        f".{ANSWER}.0011223344556677",
    ],
)
def test_file_of_another_name_is_not_read(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(bytes(100_000))
    assert read_endorsements(tmp_path) == Endorsements()


def test_too_many_files_are_an_error(tmp_path: Path) -> None:
    for number in range(MAX_NAMED + 1):
        assert len(read_endorsements(tmp_path).named) == number
        (tmp_path / answer_file(bytes([number]))).write_bytes(b"x")
    with pytest.raises(AcquisitionError, match=f"more than {MAX_NAMED}"):
        read_endorsements(tmp_path)


def test_folder_that_cannot_be_listed_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    with pytest.raises(AcquisitionError, match=r"vek\.der: NotADirectoryError"):
        read_endorsements(tmp_path / "file")


def test_endorsement_at_the_limit_is_read(tmp_path: Path) -> None:
    (tmp_path / "vek.der").write_bytes(bytes(MAX_CERTIFICATE_BYTES))
    assert len(read_endorsements(tmp_path).vek) == MAX_CERTIFICATE_BYTES


@pytest.mark.parametrize("name", FILES)
def test_endorsement_that_is_a_link_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "secret").write_text(CANARY)
    (tmp_path / name).symlink_to(tmp_path / "secret")
    with pytest.raises(AcquisitionError, match=f"{name}: OSError"):
        read_endorsements(tmp_path)


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo], ids=["folder", "pipe"])
def test_endorsement_that_is_no_file_is_refused(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    make(tmp_path / "ask.der")
    with pytest.raises(AcquisitionError, match=r"ask\.der: "):
        read_endorsements(tmp_path)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (AcquisitionError("no report: EFBIG"), "no evidence: no report: EFBIG"),
        (RuntimeError(CANARY), "no evidence: RuntimeError"),
    ],
)
async def test_device_that_fails_gives_no_answer(
    tmp_path: Path, fault: Exception, message: str
) -> None:
    async with running(tmp_path, Provider(fault=fault)) as run:
        source = run.source()
        with pytest.raises(EvidenceError, match="has no evidence"):
            await source.acquire(DATA)
        run.provider.fault = None
        # Over the same connection.
        await source.acquire(DATA)
    assert run.notices == [message]


async def test_evidence_beyond_the_protocol_is_not_sent(tmp_path: Path) -> None:
    provider = Provider(document=bytes(MAX_CPU_EVIDENCE_BYTES))
    async with running(tmp_path, provider) as run:
        assert await exchange(run.listen, b"\1" + DATA) == NONE
    assert run.notices == [f"{NO_EVIDENCE}: {TOO_LONG}"]


@pytest.mark.parametrize("request_", [b"", b"\1", b"\1" + DATA[1:], b"\0" + DATA])
async def test_request_out_of_shape_gets_nothing(
    tmp_path: Path, request_: bytes
) -> None:
    async with running(tmp_path, Provider()) as run:
        assert await exchange(run.listen, request_) == b""
    assert run.provider.asked == []


async def test_one_connection_has_many_exchanges(tmp_path: Path) -> None:
    async with running(tmp_path, Provider()) as run:
        reader, writer = await asyncio.open_unix_connection(run.listen)
        for number in range(3):
            data = bytes([number]) * 64
            # A request in two pieces.
            writer.write((b"\1" + data)[:40])
            await asyncio.sleep(0)
            writer.write((b"\1" + data)[40:])
            length = int.from_bytes(await reader.readexactly(4))
            assert length
            await reader.readexactly(length)
            assert [asked for asked, _ in run.provider.asked][-1] == data
        # What is not allowed ends it.
        writer.write(b"\0" + DATA + b"\1" + DATA)
        assert await reader.read() == b""
        await closed(writer)
    assert len(run.provider.asked) == 3


async def test_only_the_servers_socket_waits_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_module, "EXCHANGE_TIMEOUT_S", 0.05)
    async with running(tmp_path, Provider()) as run:
        source = run.source()
        await source.open()
        reader, writer = await asyncio.open_unix_connection(run.identify)
        assert await asyncio.wait_for(reader.read(), 20) == b""
        await closed(writer)
        # By now the other one has been idle for as long.
        lost: list[bool] = []
        source.lost = lambda: lost.append(True)
        assert isinstance(await source.acquire(DATA), NitroEvidence)
        assert lost == []
        # A request that has begun is waited for here, too, but not for ever.
        reader, writer = await asyncio.open_unix_connection(run.listen)
        writer.write(b"\1")
        assert await asyncio.wait_for(reader.read(), 20) == b""
        await closed(writer)


@pytest.mark.parametrize("asked", [0, 5, 255])
async def test_unknown_request_gets_nothing(tmp_path: Path, asked: int) -> None:
    async with running(tmp_path, Provider()) as run:
        assert await exchange(run.listen, bytes([asked]) + DATA) == b""
    assert run.provider.asked == []


async def test_device_has_one_request_at_a_time(tmp_path: Path) -> None:
    async with running(tmp_path, Provider()) as run:
        run.provider.gate.clear()
        # Over a connection each.
        asking = [run.source().acquire(bytes([n]) * 64) for n in range(6)]
        together = asyncio.gather(*asking)
        await until(lambda: run.provider.at_once > 0)
        # Long enough for the others to be served as well, if that were allowed.
        await asyncio.sleep(0.1)
        run.provider.gate.set()
        answers = await together
    assert run.provider.most_at_once == 1
    documents = [a.document for a in answers if isinstance(a, NitroEvidence)]
    assert documents == [b"document" + bytes([n]) * 64 for n in range(6)]


async def hold(path: Path) -> list[asyncio.StreamWriter]:
    """Open all connections that a socket accepts, and send nothing."""
    held = [await asyncio.open_unix_connection(path) for _ in range(MAX_CONNECTIONS)]
    return [writer for _, writer in held]


async def becomes(path: Path, *, answered: bool) -> None:
    """Repeat until there is an answer, or none: connections open and close in turn."""
    while bool(await exchange(path, b"\3" + DATA)) is not answered:
        pass


async def test_further_connections_are_turned_away(tmp_path: Path) -> None:
    async with running(tmp_path, Provider()) as run:
        held = await hold(run.listen)
        await becomes(run.listen, answered=False)
        for writer in held:
            await closed(writer)
        await becomes(run.listen, answered=True)


async def test_a_busy_staplers_socket_starves_no_other_client(tmp_path: Path) -> None:
    async with running(tmp_path, Provider()) as run:
        held = await hold(run.identify)
        await becomes(run.identify, answered=False)
        evidence = await run.source().acquire(DATA)
        assert isinstance(evidence, NitroEvidence)
        for writer in held:
            await closed(writer)


async def test_stapler_learns_the_machine_and_no_more(tmp_path: Path) -> None:
    """Callers of its socket cannot have data of their choice signed."""
    async with running(tmp_path, Provider()) as run:
        for asked in (1, 2):
            assert await exchange(run.identify, bytes([asked]) + DATA) == b""
        assert run.provider.asked == []
        answer = await exchange(run.identify, b"\3" + DATA)
        assert await exchange(run.identify, b"\3" + bytes(64)) == answer
    assert run.provider.asked == [(identity_data(), Endorsements())]
    expected = encode_cpu_evidence(
        NitroEvidence(tee=Tee.NITRO, document=b"document" + identity_data())
    )
    assert answer == len(expected).to_bytes(4) + expected


async def test_stapler_does_not_occupy_the_device(tmp_path: Path) -> None:
    """However often it asks, the device answers it once an hour."""
    async with running(tmp_path, Provider()) as run:
        for hour in range(3):
            run.clock = hour * IDENTITY_KEPT_S
            for _ in range(5):
                assert await exchange(run.identify, b"\3" + DATA)
    assert len(run.provider.asked) == 3


async def test_server_precedes_requests_for_the_identity(tmp_path: Path) -> None:
    async with running(tmp_path, Provider()) as run:
        run.provider.gate.clear()
        first = asyncio.create_task(run.source().acquire(bytes(64)))
        await until(lambda: run.provider.at_once > 0)
        asking = [asyncio.create_task(exchange(run.identify, b"\3" + DATA))]
        # Long enough to be served before the server's next request, if allowed.
        await asyncio.sleep(0.1)
        asking += [
            asyncio.create_task(exchange(run.identify, b"\3" + DATA)) for _ in range(3)
        ]
        second = asyncio.create_task(run.source().acquire(DATA))
        await asyncio.sleep(0.1)
        run.provider.gate.set()
        await asyncio.gather(first, second)
        answers = await asyncio.gather(*asking)
    assert len(set(answers)) == 1
    signed = [data for data, _ in run.provider.asked]
    assert signed == [bytes(64), DATA, identity_data()]


async def test_nothing_is_stapled_to_the_identity(tmp_path: Path) -> None:
    """The stapler can ask for the machine's identity, whatever is in the folder."""
    folder = tmp_path / "endorsements"
    folder.mkdir()
    (folder / "vek.der").write_bytes(b"vek")
    (folder / "crl.der").write_bytes(bytes(100_000))
    async with running(tmp_path, Provider()) as run:
        assert await exchange(run.identify, b"\3" + DATA)
    assert run.provider.asked == [(identity_data(), Endorsements())]


async def test_identity_is_available_once_the_device_answers_again(
    tmp_path: Path,
) -> None:
    fault = AcquisitionError("no report: EBUSY")
    async with running(tmp_path, Provider(fault=fault)) as run:
        assert await exchange(run.identify, b"\3" + DATA) == NONE
        run.provider.fault = None
        assert await exchange(run.identify, b"\3" + DATA)
    assert run.notices == [f"{NO_EVIDENCE}: {fault}"]


async def test_sockets_are_not_for_everybody(tmp_path: Path) -> None:
    async with running(tmp_path, Provider()) as run:
        modes = [
            stat.S_IMODE(path.stat().st_mode) for path in (run.listen, run.identify)
        ]
        assert modes == [0o660, 0o660]
    assert not run.listen.exists()
    assert not run.identify.exists()


def test_command_serves_until_a_signal(tmp_path: Path) -> None:
    """A machine without a TEE: the process runs, and reports the missing device."""
    command = [
        *(sys.executable, "-m", "curtilage.enclave_server", "evidence"),
        *("--provider", "tsm", "--endorsements", str(tmp_path)),
        *("--listen", f"unix:{tmp_path}/e.sock"),
    ]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        assert ready == {"ready": True, "listen": f"unix:{tmp_path}/e.sock"}
        answer = asyncio.run(exchange(tmp_path / "e.sock", b"\1" + DATA))
        assert answer == NONE
    finally:
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 0
    assert errors.startswith(f"{NO_EVIDENCE}: {NO_NEW_ENTRY}: ")
    assert not (tmp_path / "e.sock").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--provider", "sgx", "--endorsements", "/e", "--listen", "unix:/s"],
        ["--provider", "tsm", "--endorsements", "/e", "--listen", "127.0.0.1:1"],
        ["--provider", "tsm", "--endorsements", "/e", "--listen", "unix:s"],
        ["--provider", "tsm", "--listen", "unix:/s"],
        [
            *("--provider", "tsm", "--endorsements", "/e", "--listen", "unix:/s"),
            *("--privilege-level", "4"),
        ],
    ],
)
def test_wrong_arguments_are_a_usage_error(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evidence_command, "forbid_core_dumps", lambda: None)
    with pytest.raises(SystemExit) as caught:
        main(["evidence", *arguments])
    assert caught.value.code == 2


def no_wall(writes: Sequence[Path]) -> Wall:
    del writes
    return Wall()


def test_socket_that_cannot_be_had_is_an_error(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(evidence_command, "forbid_core_dumps", lambda: None)
    # The sandbox would apply to the test's own process.
    monkeypatch.setattr(evidence_command, "local_server", no_wall)
    arguments = [
        *("evidence", "--provider", "nsm", "--endorsements", str(tmp_path)),
        *("--listen", f"unix:{tmp_path}/absent/e.sock"),
    ]
    assert main(arguments) == 3
    assert capsys.readouterr().err.startswith("cannot listen: ")


def test_gpus_without_nvidias_package_are_an_error(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(evidence_command, "forbid_core_dumps", lambda: None)
    monkeypatch.setattr(evidence_command, "local_server", no_wall)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    arguments = [
        *("evidence", "--provider", "nsm", "--endorsements", str(tmp_path)),
        *("--listen", f"unix:{tmp_path}/e.sock", "--gpus", "nvml"),
    ]
    assert main(arguments) == 3
    assert capsys.readouterr().err == f"{evidence_command.NO_NVML}\n"


@pytest.mark.parametrize("gpus", ["none", "nvml"])
def test_gpus_are_writable_only_where_they_are_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gpus: str
) -> None:
    device, written = Path("/dev/nvidia0"), list[Path]()

    def wall(writes: Sequence[Path]) -> Wall:
        written.extend(writes)
        return Wall()

    monkeypatch.setattr(evidence_command, "forbid_core_dumps", lambda: None)
    monkeypatch.setattr(evidence_command, "local_server", wall)
    monkeypatch.setattr(evidence_command, "gpus", lambda: ((device,), ()))
    monkeypatch.setitem(sys.modules, "pynvml", ModuleType("pynvml"))
    arguments = [
        *("evidence", "--provider", "nsm", "--endorsements", str(tmp_path)),
        *("--listen", f"unix:{tmp_path}/absent/e.sock", "--gpus", gpus),
    ]
    assert main(arguments) == 3
    assert (device in written) is (gpus == "nvml")


@pytest.mark.parametrize("provider", ["tsm", "nsm", "azure-vtpm"])
def test_every_provider_is_made(provider: str) -> None:
    arguments = evidence_command.EvidenceArguments(privilege_level=None)
    made = evidence_command.PROVIDERS[provider](arguments)
    with pytest.raises(AcquisitionError):
        made.acquire(DATA, Endorsements())


def test_server_does_not_load_what_talks_to_devices() -> None:
    code = (
        "import sys, curtilage.enclave_server.__main__\n"
        "bad = [name for name in sys.modules if '.acquire' in name"
        " or '.stapler' in name]\n"
        "assert not bad, bad\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=dict(os.environ),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
