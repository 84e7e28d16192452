import asyncio
import json
import os
import shutil
import signal
import struct
import sys
import sysconfig
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from curtilage.attest.amd_tcb import Product
from curtilage.attest.binding import device_nonce_v2
from curtilage.attest.evidence import DeviceKind, SnpEvidence, Tee
from curtilage.attest.evidence_json import parse_cpu_evidence
from curtilage.attest.expectations import AnchorKind, SnpExpectations, TrustAnchor
from curtilage.attest.log.manifest import encode_manifest
from curtilage.attest.sev_snp.verify import SnpRules, verify_snp
from curtilage.attest.steps import StepLog
from curtilage.enclave_server import evidence_protocol
from curtilage.enclave_server.evidence_protocol import parse_devices
from curtilage_dev import emulator
from curtilage_dev.deployment import make_manifest
from curtilage_dev.emulated.machines import (
    KINDS,
    SnpMachine,
    image_of,
    make_gpus,
    make_machine,
    registers_of,
)
from curtilage_dev.emulated.snp_pki import EmulatedPlatform, RootKeys
from curtilage_dev.emulator import (
    REAL_DEVICES,
    Emulator,
    EmulatorConfig,
    find_real_devices,
    main,
    parse_arguments,
)

MEASUREMENT = bytes(range(48))
ROOT = Path(__file__).resolve().parents[2]
# What its container holds, and nothing of the enclave's or the client's.
ALONE = [str(ROOT / part) for part in ("wire", "attest", "dev")]
ALONE.append(sysconfig.get_paths()["purelib"])


@pytest.fixture
def config() -> Iterator[EmulatorConfig]:
    # A socket's path is limited to about 100 characters, so not tmp_path.
    folder = Path(tempfile.mkdtemp(prefix="emulator"))
    yield EmulatorConfig(
        state=folder / "state", listen=folder / "socket", measurement=MEASUREMENT
    )
    shutil.rmtree(folder)


@pytest.fixture
async def running(
    config: EmulatorConfig, platform: EmulatedPlatform
) -> AsyncIterator[Emulator]:
    device = Emulator(config, SnpMachine(platform=platform, image=MEASUREMENT))
    await device.start()
    yield device
    await device.close()


async def _exchange(path: Path, data: bytes, *, asked: int = 1) -> bytes:
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(bytes([asked]) + data)
    writer.write_eof()
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


def _evidence(answer: bytes) -> SnpEvidence:
    (length,) = struct.unpack(">I", answer[:4])
    assert length == len(answer) - 4
    evidence = parse_cpu_evidence(answer[4:])
    assert isinstance(evidence, SnpEvidence)
    return evidence


async def test_emulator_answers_with_evidence_that_verifies(
    running: Emulator, config: EmulatorConfig, platform: EmulatedPlatform
) -> None:
    del running
    evidence = _evidence(await _exchange(config.listen, bytes(range(64))))
    assert evidence.tee is Tee.EMULATED_SEV_SNP
    anchor = TrustAnchor.of_certificate(AnchorKind.EMULATED, "Genoa", platform.ark)
    rules = SnpRules(
        anchors=(anchor,),
        expectations=SnpExpectations(min_tcb={"Genoa": platform.tcb}),
        clock_skew_s=60,
        release_min_tcb={},
        measurements=(registers_of(evidence.tee, MEASUREMENT),),
    )
    claims = verify_snp(evidence, rules, now=datetime.now(UTC), log=StepLog())
    assert claims.bound == bytes(range(64))


@pytest.mark.parametrize("tee", [Tee.EMULATED_TDX, Tee.EMULATED_NITRO], ids=str)
async def test_emulator_plays_other_machines_with_gpus(
    config: EmulatorConfig, tee: Tee
) -> None:
    now = datetime.now(UTC)
    machine = make_machine(tee, MEASUREMENT, now=now)
    device = Emulator(config, machine, make_gpus(2, now=now))
    await device.start()
    b0 = bytes(range(64))
    cpu = await _exchange(config.listen, b0)
    devices = parse_devices((await _exchange(config.listen, b0, asked=2))[4:])
    await device.close()
    assert parse_cpu_evidence(cpu[4:]).tee is tee
    kind = DeviceKind.EMULATED_NVIDIA_GPU
    assert [each.kind for each in devices] == [kind, kind]
    nonces = [device_nonce_v2(b0, kind.value, index) for index in range(2)]
    assert [each.report[4:36] for each in devices] == nonces
    files = sorted(path.name for path in config.state.iterdir())
    assert files == ["gpu-root.pem", "root.pem"]
    root = x509.load_pem_x509_certificate((config.state / "gpu-root.pem").read_bytes())
    assert root.public_bytes(Encoding.DER) == devices[0].chain[-1]


async def test_emulator_without_gpus_has_none(
    running: Emulator, config: EmulatorConfig
) -> None:
    del running
    assert parse_devices((await _exchange(config.listen, bytes(64), asked=2))[4:]) == ()


def test_protocol_is_the_one_that_the_enclave_speaks() -> None:
    assert emulator.REQUEST_BYTES == evidence_protocol.REQUEST_BYTES
    assert emulator.CPU_EVIDENCE == evidence_protocol.CPU_EVIDENCE
    assert emulator.DEVICE_EVIDENCE == evidence_protocol.DEVICE_EVIDENCE
    theirs = evidence_protocol.MAX_ANSWER_BYTES
    assert emulator.MAX_ANSWER_BYTES.items() <= theirs.items()


@pytest.mark.parametrize("asked", [0, 3, 4, 255])
async def test_emulator_answers_nothing_to_an_unknown_request(
    running: Emulator, config: EmulatorConfig, asked: int
) -> None:
    del running
    assert await _exchange(config.listen, bytes(64), asked=asked) == b""


@pytest.mark.parametrize("size", [0, 1, 63])
async def test_emulator_answers_nothing_to_a_short_request(
    running: Emulator, config: EmulatorConfig, size: int
) -> None:
    del running
    assert await _exchange(config.listen, bytes(size)) == b""


async def test_emulator_answers_many_in_turn(
    running: Emulator, config: EmulatorConfig
) -> None:
    del running
    answers = await asyncio.gather(
        *(_exchange(config.listen, bytes([n]) * 64) for n in range(8))
    )
    said = [_evidence(answer).report[0x50:0x90] for answer in answers]
    assert said == [bytes([n]) * 64 for n in range(8)]


async def test_emulator_answers_one_connection_again_and_again(
    running: Emulator, config: EmulatorConfig
) -> None:
    del running
    reader, writer = await asyncio.open_unix_connection(config.listen)
    for number in range(3):
        writer.write(b"\1" + bytes([number]) * 64)
        length = await reader.readexactly(4)
        evidence = _evidence(length + await reader.readexactly(int.from_bytes(length)))
        assert evidence.report[0x50:0x90] == bytes([number]) * 64
    writer.close()


async def test_emulator_hangs_up_in_the_middle_of_a_request(
    running: Emulator, config: EmulatorConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    del running
    monkeypatch.setattr(emulator, "EXCHANGE_TIMEOUT_S", 0.05)
    reader, writer = await asyncio.open_unix_connection(config.listen)
    writer.write(b"\1")
    assert await asyncio.wait_for(reader.read(), timeout=5) == b""
    writer.close()


async def test_emulator_writes_its_public_root_and_nothing_private(
    running: Emulator, config: EmulatorConfig
) -> None:
    del running
    files = [path.name for path in config.state.iterdir()]
    assert files == ["root.pem"]
    assert "PRIVATE" not in (config.state / "root.pem").read_text()


async def test_closing_removes_the_socket(
    config: EmulatorConfig, platform: EmulatedPlatform
) -> None:
    device = Emulator(config, SnpMachine(platform=platform, image=MEASUREMENT))
    await device.close()
    await device.start()
    assert config.listen.exists()
    await device.close()
    assert not config.listen.exists()


def test_private_keys_do_not_show(platform: EmulatedPlatform) -> None:
    assert "rsa" not in repr(platform).lower()
    assert "PrivateKey" not in repr(platform)
    assert isinstance(platform.root_keys, RootKeys)
    assert repr(platform.root_keys) == "RootKeys()"


@pytest.mark.parametrize("name", REAL_DEVICES)
def test_emulator_refuses_to_start_next_to_a_real_tee(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    (tmp_path / name).parent.mkdir(parents=True)
    (tmp_path / name).touch()
    assert find_real_devices(tmp_path) == (tmp_path / name,)
    state = tmp_path / "state"
    arguments = ["--state", str(state), "--listen", f"unix:{tmp_path}/s"]
    arguments += ["--measurement", MEASUREMENT.hex()]
    assert main(arguments, device_root=tmp_path) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert name in captured.err
    assert not state.exists()


def test_no_devices_are_found_where_none_are(tmp_path: Path) -> None:
    assert find_real_devices(tmp_path) == ()


def test_arguments_are_read() -> None:
    read = parse_arguments(
        [
            *("--state", "s", "--listen", "unix:p"),
            *("--measurement", "ab" * 48, "--product", "Turin"),
        ]
    )
    assert read == EmulatorConfig(
        state=Path("s"),
        listen=Path("p"),
        measurement=b"\xab" * 48,
        product=Product.TURIN,
    )


def test_other_machines_are_asked_for() -> None:
    arguments = ["--state", "s", "--listen", "unix:p", "--measurement", "ab" * 48]
    read = parse_arguments([*arguments, "--tee", "emulated-nitro", "--gpus", "2"])
    assert (read.tee, read.gpus) == (Tee.EMULATED_NITRO, 2)


@pytest.mark.parametrize("tee", KINDS, ids=str)
def test_measurement_is_the_one_that_the_release_names(
    tmp_path: Path, tee: Tee
) -> None:
    manifest = make_manifest(datetime.now(UTC), tee=tee)
    named = {tee.value: (registers_of(tee, MEASUREMENT),)}
    data = encode_manifest(replace(manifest, measurements=named))
    (tmp_path / "manifest.json").write_bytes(data)
    arguments = ["--state", "s", "--listen", "unix:p", "--release", str(tmp_path)]
    read = parse_arguments([*arguments, "--tee", tee.value])
    assert read.measurement == MEASUREMENT


@pytest.mark.parametrize("content", [None, "{}", "of another kind"])
def test_a_release_without_a_measurement_is_refused(
    tmp_path: Path, content: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "manifest.json"
    if content is not None:
        path.write_text(content)
    if content == "of another kind":
        manifest = make_manifest(datetime.now(UTC), tee=Tee.EMULATED_TDX)
        path.write_bytes(encode_manifest(manifest))
    arguments = ["--state", "s", "--listen", "unix:p", "--release", str(tmp_path)]
    with pytest.raises(SystemExit):
        parse_arguments(arguments)
    assert "--release" in capsys.readouterr().err


@pytest.mark.parametrize("tee", KINDS, ids=str)
def test_registers_of_no_image_are_refused(tee: Tee) -> None:
    registers = dict(registers_of(tee, MEASUREMENT))
    image = next(name for name, value in registers.items() if len(value) == 96)
    with pytest.raises(ValueError, match="no image"):
        image_of(tee, {**registers, image: "ab" * 47})
    with pytest.raises(ValueError, match="no image"):
        image_of(tee, {**registers, "pcr30": "ab" * 32})


def test_release_and_measurement_exclude_each_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--state", "s", "--listen", "unix:p", "--release", str(tmp_path)]
    with pytest.raises(SystemExit):
        parse_arguments([*arguments, "--measurement", "ab" * 48])
    assert "not allowed with" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("--listen", "tcp:1"),
        ("--listen", "unix:"),
        ("--measurement", "ab"),
        ("--measurement", "AB" * 48),
        ("--product", "Rome"),
        ("--tee", "sev-snp"),
        ("--tee", "nitro"),
        ("--tee", "tpm"),
        ("--gpus", "-1"),
        ("--gpus", "9"),
    ],
)
def test_senseless_arguments_are_refused(
    capsys: pytest.CaptureFixture[str], name: str, value: str
) -> None:
    given = {"--state": "s", "--listen": "unix:p", "--measurement": "ab" * 48}
    given[name] = value
    with pytest.raises(SystemExit):
        parse_arguments([part for pair in given.items() for part in pair])
    assert name in capsys.readouterr().err


async def test_emulator_runs_as_a_process(config: EmulatorConfig) -> None:
    if find_real_devices():
        pytest.skip("SKIPPED LOUDLY: a real TEE device exists on this machine")
    process = await asyncio.create_subprocess_exec(
        # -S: no .pth file adds the other parts.
        *(sys.executable, "-S", "-W", "error", "-m", "curtilage_dev.emulator"),
        *("--state", str(config.state), "--listen", f"unix:{config.listen}"),
        *("--measurement", MEASUREMENT.hex()),
        env={**os.environ, "PYTHONPATH": os.pathsep.join(ALONE)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    line = await asyncio.wait_for(process.stdout.readline(), timeout=120)
    ready = json.loads(line)
    assert ready["event"] == "ready"
    assert ready["listen"] == f"unix:{config.listen}"
    evidence = _evidence(await _exchange(config.listen, bytes(64)))
    assert evidence.tee is Tee.EMULATED_SEV_SNP
    process.send_signal(signal.SIGTERM)
    assert await asyncio.wait_for(process.wait(), timeout=10) == 0
    assert not config.listen.exists()
    assert b"RSA-4096" in await process.stderr.read()
