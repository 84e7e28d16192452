import base64
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.evidence import Tee
from curtilage.attest.evidence_json import encode_bundle
from curtilage.attest.verify import verify
from curtilage.cli.deploy.sections import unrouted
from curtilage.policy.document.load import load_policy, profile_text
from curtilage.policy.document.routing_settings import Aim
from curtilage.policy.expectations import expectations_from, transport_expectations
from curtilage.wire.shaping import PADDED, UNPADDED, TransportParameters
from curtilage_dev.deployment import (
    MEASUREMENT,
    make_any_deployment,
    make_deployment,
)
from curtilage_dev.devlog import ReleaseArguments, create
from curtilage_dev.emulated.machines import (
    KINDS,
    Machine,
    SnpMachine,
    azure_machine,
    make_gpus,
    make_machine,
)
from curtilage_dev.emulated.snp_pki import EmulatedPlatform
from curtilage_dev.emulator import GPU_ROOT_FILE, ROOT_FILE, write_root
from curtilage_dev.policy import aimed, main, with_server
from support.release_logs import load_log


@pytest.fixture
def state(tmp_path: Path, platform: EmulatedPlatform) -> Path:
    """Lay out what the emulator and the log command write."""
    release = ReleaseArguments(
        version="0.0.1",
        source="development",
        measurements=(MEASUREMENT.hex(),),
        models=(),
    )
    create(tmp_path, release, now=datetime.now(UTC))
    root = x509.load_der_x509_certificate(platform.ark)
    (tmp_path / "root.pem").write_bytes(root.public_bytes(Encoding.PEM))
    assert main(["--state", str(tmp_path), "--out", str(tmp_path / "p.yaml")]) == 0
    return tmp_path


def test_written_policy_is_the_profile_and_a_section(state: Path) -> None:
    text = (state / "p.yaml").read_text()
    assert text.startswith(unrouted(profile_text("default")).rstrip())
    assert text.count("\nattestation:\n") == 1
    assert text.count("\ntransport:\n") == 1


@pytest.mark.parametrize(
    "transport",
    [PADDED, UNPADDED, replace(PADDED, frame_bytes=256, period_ms=5, first_bucket=8)],
    ids=["default", "unpadded", "quick"],
)
def test_written_policy_accepts_its_release_alone(
    tmp_path: Path, platform: EmulatedPlatform, transport: TransportParameters
) -> None:
    release = ReleaseArguments(
        version="0.0.1",
        source="development",
        measurements=(MEASUREMENT.hex(),),
        models=(),
        transport=transport,
    )
    create(tmp_path, release, now=datetime.now(UTC))
    root = x509.load_der_x509_certificate(platform.ark)
    (tmp_path / "root.pem").write_bytes(root.public_bytes(Encoding.PEM))
    out = tmp_path / "p.yaml"
    assert main(["--state", str(tmp_path), "--out", str(out)]) == 0
    assert transport_expectations(load_policy(out.read_text())) == {transport}


def test_written_policy_trusts_this_deployment(
    state: Path, platform: EmulatedPlatform
) -> None:
    """Emulator, log and policy as files, then the client's whole verification."""
    now = datetime.now(UTC)
    expectations = expectations_from(load_policy((state / "p.yaml").read_text()))
    deployment = replace(
        make_deployment(platform, now=now),
        log=load_log(state),
        manifest=(state / "manifest.json").read_bytes(),
        index=4,
    )
    data = encode_bundle(deployment.bundle())
    verified = verify(data, expectations, now=now)
    assert verified.emulated
    assert verified.expectations_digest == expectations.digest


def test_written_policy_trusts_no_other_deployment(
    state: Path, platform: EmulatedPlatform
) -> None:
    now = datetime.now(UTC)
    expectations = expectations_from(load_policy((state / "p.yaml").read_text()))
    other = make_deployment(platform, now=now)
    with pytest.raises(RefusedError) as caught:
        verify(encode_bundle(other.bundle()), expectations, now=now)
    assert caught.value.code is RefusalCode.UNSIGNED


def test_log_may_lie_elsewhere(state: Path, tmp_path: Path) -> None:
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    for name in ("log.json", "manifest.json"):
        (state / name).rename(moved / name)
    out = tmp_path / "q.yaml"
    assert main(["--state", str(state), "--log", str(moved), "--out", str(out)]) == 0
    assert out.read_text() == (state / "p.yaml").read_text()


def test_keys_are_written_as_base64(state: Path) -> None:
    key = load_log(state).signer.public.public_key
    assert base64.b64encode(key).decode() in (state / "p.yaml").read_text()


@pytest.mark.parametrize("tee", KINDS, ids=str)
@pytest.mark.parametrize("gpus", [0, 2])
def test_written_policy_trusts_every_kind_of_machine(
    tmp_path: Path, platform: EmulatedPlatform, tee: Tee, gpus: int
) -> None:
    now = datetime.now(UTC)
    machine = _machine(tee, platform, now)
    devices = make_gpus(gpus, now=now) if gpus else None
    release = ReleaseArguments(
        version="0.0.1",
        source="development",
        measurements=(MEASUREMENT.hex(),),
        models=(),
        tee=tee,
    )
    create(tmp_path, release, now=now)
    write_root(tmp_path / ROOT_FILE, machine.anchor())
    if devices is not None:
        write_root(tmp_path / GPU_ROOT_FILE, devices.anchor())
    out = tmp_path / "p.yaml"
    arguments = ["--state", str(tmp_path), "--out", str(out)]
    assert main([*arguments, "--tee", tee.value, "--gpus", str(gpus)]) == 0
    expectations = expectations_from(load_policy(out.read_text()))
    deployment = replace(
        make_any_deployment(machine, now=now, gpus=devices),
        log=load_log(tmp_path),
        manifest=(tmp_path / "manifest.json").read_bytes(),
        index=4,
    )
    verified = verify(encode_bundle(deployment.bundle()), expectations, now=now)
    assert (verified.tee, len(verified.devices)) == (tee.value, gpus)


def _machine(tee: Tee, platform: EmulatedPlatform, now: datetime) -> Machine:
    if tee is Tee.EMULATED_SEV_SNP:
        return SnpMachine(platform=platform, image=MEASUREMENT)
    if tee is Tee.EMULATED_AZURE_SNP:
        return azure_machine(platform, MEASUREMENT)
    return make_machine(tee, MEASUREMENT, now=now)


def test_another_aim_takes_the_place_of_the_profile_s() -> None:
    plan = load_policy(aimed(profile_text("default"), "{local_percent: 50}")).routing
    assert plan is not None
    assert plan.aim == Aim(local_percent=50)


def test_a_policy_without_an_aim_gets_none() -> None:
    with pytest.raises(ValueError, match="no aim"):
        aimed(unrouted(profile_text("default")), "{local_percent: 50}")


def test_an_on_premises_server_is_a_tier_between_device_and_enclave() -> None:
    text = with_server(
        profile_text("default"), address="unix:/run/llm.sock", model="a-7b"
    )
    plan = load_policy(text).routing
    assert plan is not None
    assert [tier.id for tier in plan.tiers] == ["local", "on-premises", "enclave"]
    assert (plan.tiers[1].address, plan.tiers[1].model) == (
        "unix:/run/llm.sock",
        "a-7b",
    )
    named = with_server(
        profile_text("default"), address="https://llm/v1", model="m", ca="ca.pem"
    )
    assert '"ca": "ca.pem"' in named


def test_a_policy_without_a_local_tier_gets_no_server() -> None:
    with pytest.raises(ValueError, match="no tier"):
        with_server(unrouted(profile_text("default")), address="unix:/s", model="m")
