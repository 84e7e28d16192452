"""The image itself: built twice, compared bit for bit, and started.

Opt in with CURTILAGE_IMAGE=1: it downloads 50 MB of Debian packages where they are
not there yet, needs the engine of ``make setup``, QEMU, OVMF and swtpm, and takes
minutes. CURTILAGE_REQUIRE=image turns what is missing into a failure.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from deploy.image.boot import OVMF, Guest, ask, booted, wait_for_health
from deploy.image.build import ALL, RECORD
from deploy.image.compare import compare
from deploy.image.development import make_deployment
from deploy.image.options import ROOT
from deploy.image.push import push_when_ready

REQUIRED = "image" in os.environ.get("CURTILAGE_REQUIRE", "").split(",")
ASKED = REQUIRED or os.environ.get("CURTILAGE_IMAGE") == "1"
PROGRAMS = {
    "apt-get": "apt",
    "qemu-system-x86_64": "qemu-system-x86",
    "swtpm": "swtpm",
}
TEE = "emulated-nitro"
# One thread of emulation on a busy machine: this is how long it may take, not
# how long it should.
PATIENCE_S = 900.0

pytestmark = pytest.mark.skipif(
    not ASKED,
    reason="SKIPPED LOUDLY: building and starting the image takes minutes; "
    "CURTILAGE_IMAGE=1 runs it",
)


def require_programs() -> None:
    missing = [each for name, each in PROGRAMS.items() if shutil.which(name) is None]
    missing += [] if all(path.is_file() for path in OVMF) else ["ovmf"]
    if missing:
        words = f"SKIPPED LOUDLY: apt-get install {' '.join(missing)}"
        pytest.fail(words) if REQUIRED else pytest.skip(words)


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    require_programs()
    folder = tmp_path_factory.mktemp("deployment")
    make_deployment(folder, TEE)
    return folder


def build(out: Path, deployment: Path, **environment: str) -> Path:
    command = [sys.executable, "-m", "deploy.image", "build", "--tee", TEE]
    command += ["--config", str(deployment / "enclave.toml"), "--out", str(out)]
    command += ["--address", "10.0.2.15/24", "--vcpus", "2"]
    subprocess.run(command, cwd=ROOT, env=os.environ | environment, check=True)
    return out


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory, deployment: Path) -> Path:
    return build(tmp_path_factory.mktemp("image"), deployment)


def test_two_builds_are_the_same_bit_for_bit(
    tmp_path: Path, image: Path, deployment: Path
) -> None:
    again = build(
        tmp_path / "again",
        deployment,
        PYTHONHASHSEED="7",
        TZ="Asia/Kathmandu",
        TMPDIR=str(tmp_path),
    )
    assert compare(image, again, ALL) == []


def test_another_configuration_is_another_image(
    tmp_path: Path, image: Path, deployment: Path
) -> None:
    other = tmp_path / "deployment"
    shutil.copytree(deployment, other)
    with (other / "enclave.toml").open("a") as file:
        file.write("# one comment more\n")
    another = build(tmp_path / "image", other)
    records = [json.loads((each / RECORD).read_text()) for each in (image, another)]
    assert records[0]["pcr11"] != records[1]["pcr11"]
    digests = [{each["digest"] for each in record["launch"]} for record in records]
    assert digests[0].isdisjoint(digests[1])


@pytest.fixture(params=["kernel", "firmware and TPM"])
def guest(
    request: pytest.FixtureRequest, tmp_path: Path, image: Path
) -> Iterator[tuple[Guest, bool]]:
    tpm: bool = request.param != "kernel"
    with booted(image, tmp_path, tpm=tpm, patience_s=PATIENCE_S) as machine:
        yield machine, tpm


def test_image_starts_measures_and_serves(
    guest: tuple[Guest, bool], image: Path, deployment: Path
) -> None:
    machine, tpm = guest
    register = machine.wait_for_line("pcr11", timeout_s=1)
    predicted = json.loads((image / RECORD).read_text())["pcr11"]
    assert register.lower() == (predicted if tpm else "none: no tpm")
    server, intake = machine.addresses
    push_when_ready(intake, deployment, timeout_s=PATIENCE_S)
    assert wait_for_health(server, machine.process, timeout_s=PATIENCE_S)
    assert ask(server, "/ohttp-keys").startswith("HTTP/1.1 200")
    assert not any("failed" in line for line in machine.lines())
