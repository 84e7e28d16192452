"""The deployment's hardening, read as plain YAML; and by compose where it is there."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import cast

import pytest
import yaml
from deploy.image.rootfs import ENVIRONMENT

from curtilage.enclave_server.config import parse_config as parse_enclave
from curtilage.inference.default_model import DEFAULT_SHA256
from curtilage.relay.config import UnixAddress
from curtilage.relay.config import parse_config as parse_relay
from curtilage.sandbox.parent import FORGETTING

ROOT = Path(__file__).resolve().parents[1]
Tree = dict[str, object]
DOCKERFILES = ("relay", "enclave_server", "dev")
SERVICES = ("enclave", "relay", "emulator")


def compose() -> Tree:
    return cast("Tree", yaml.safe_load((ROOT / "compose.yaml").read_text("utf-8")))


def service(name: str) -> Tree:
    return cast("Tree", cast("Tree", compose()["services"])[name])


def dockerfile(folder: str) -> str:
    return (ROOT / folder / "Dockerfile").read_text("utf-8")


def copied(folder: str) -> list[str]:
    """What the final image takes from the tree."""
    final = dockerfile(folder).rpartition("\nFROM ")[2]
    return re.findall(r"^COPY (?!--from)(\S+) ", final, re.MULTILINE)


@pytest.mark.parametrize("name", SERVICES)
def test_every_service_is_hardened(name: str) -> None:
    found = service(name)
    assert found["read_only"] is True
    assert found["user"] == "65532:65532"
    assert found["cap_drop"] == ["ALL"]
    assert found["security_opt"] == ["no-new-privileges:true"]
    assert found["ipc"] == "none"
    assert found["init"] is True
    assert found["logging"] == {"driver": "none"}
    assert found["ulimits"] == {"core": 0}
    assert found["mem_limit"] == found["memswap_limit"]
    assert isinstance(found["pids_limit"], int)
    assert found["restart"] == "no"
    for risky in ("privileged", "cap_add", "devices", "pid", "tmpfs", "env_file"):
        assert risky not in found


def test_there_are_no_other_services() -> None:
    assert tuple(cast("Tree", compose()["services"])) == SERVICES


@pytest.mark.parametrize("name", ["enclave", "emulator"])
def test_enclave_and_emulator_have_no_network(name: str) -> None:
    found = service(name)
    assert found["network_mode"] == "none"
    assert "ports" not in found
    assert "networks" not in found


def test_relay_is_published_on_loopback_only() -> None:
    ports = cast("list[str]", service("relay")["ports"])
    assert len(ports) == 1
    assert ports[0].startswith("127.0.0.1:")


def test_volumes_are_writable_for_their_owner_only() -> None:
    owners = {"gateway": "enclave", "evidence": "emulator"}
    for name in SERVICES:
        for volume in cast("list[str]", service(name)["volumes"]):
            source = volume.split(":")[0]
            assert volume.endswith(":ro") or owners.get(source) == name


def test_sockets_lie_in_small_private_memory() -> None:
    for volume in cast("Tree", compose()["volumes"]).values():
        options = cast("dict[str, dict[str, str]]", volume)["driver_opts"]
        assert options["type"] == options["device"] == "tmpfs"
        assert set(options["o"].split(",")) >= {
            "uid=65532",
            "gid=65532",
            "mode=0700",
            "noexec",
            "nosuid",
            "nodev",
        }


def test_emulator_is_for_development_only() -> None:
    assert service("emulator")["profiles"] == ["development"]
    assert "profiles" not in service("relay")
    assert "profiles" not in service("enclave")


def test_emulator_reports_the_measurement_that_the_release_names() -> None:
    command = cast("list[str]", service("emulator")["command"])
    expected = hashlib.sha384(b"emulated launch measurement").hexdigest()
    assert command[command.index("--measurement") + 1] == expected


def test_relay_configuration_is_valid_for_production() -> None:
    text = (ROOT / "deploy" / "relay.toml").read_text("utf-8")
    config = parse_relay(text, {})
    assert config.gateways == {"demo": UnixAddress(path="/run/enclave/gateway.sock")}


def test_enclave_configuration_names_the_same_sockets_and_the_default_model() -> None:
    text = (ROOT / "deploy" / "enclave.toml").read_text("utf-8")
    config = tomllib.loads(text)
    assert config["listen"] == "unix:/run/enclave/gateway.sock"
    command = cast("list[str]", service("emulator")["command"])
    assert config["evidence"] == command[command.index("--listen") + 1]
    model = config["model"]
    assert (model["path"], model["sha256"]) == ("embedded", DEFAULT_SHA256)
    mounts = cast("list[str]", service("enclave")["volumes"])
    assert any(mount.split(":")[1] == config["release"] for mount in mounts)


def test_prepare_makes_a_configuration_the_enclave_accepts(tmp_path: Path) -> None:
    for arguments in ((), ("--refresh",)):
        command = [sys.executable, str(ROOT / "deploy" / "prepare.py")]
        command += ["--out", str(tmp_path), *arguments]
        subprocess.run(command, check=True)
    config = parse_enclave((tmp_path / "enclave.toml").read_text("utf-8"))
    assert config.log.quorum == 1
    assert sorted(path.name for path in (tmp_path / "release").iterdir()) == [
        "checkpoint.txt",
        "consistency.txt",
        "manifest.json",
        "proof.txt",
    ]


# The images


@pytest.mark.parametrize("folder", DOCKERFILES)
def test_dockerfiles_keep_the_rules(folder: str) -> None:
    text = dockerfile(folder)
    assert not text.lower().startswith("# syntax")
    instructions = [line for line in text.splitlines() if re.match(r"[A-Z]+ ", line)]
    assert instructions[0] == "ARG BASE_IMAGE=python:3.11-slim-bookworm"
    assert "USER 65532:65532" in instructions
    assert not any(line.startswith("ADD ") for line in instructions)
    entry = next(line for line in instructions if line.startswith("ENTRYPOINT"))
    assert entry.startswith('ENTRYPOINT ["/opt/venv/bin/python3", "-s", "-B", "-m", ')
    for line in re.findall(r"pip install(?:[^&]|\\\n)*-r \S+", text):
        assert "--require-hashes" in line
    assert "https://" not in text


def test_services_that_see_questions_overwrite_freed_memory() -> None:
    allocator = {name: ENVIRONMENT[name] for name in ("PYTHONMALLOC", "GLIBC_TUNABLES")}
    settings = " ".join(f"{name}={value}" for name, value in allocator.items())
    final = dockerfile("enclave_server").rpartition("\nFROM ")[2]
    assert f"\nENV {settings}\n" in final
    assert allocator == FORGETTING


def test_relay_image_holds_the_relay_alone() -> None:
    assert copied("relay") == ["relay/curtilage/"]
    assert "requirements/relay.txt" in dockerfile("relay")


def test_enclave_image_holds_neither_policy_nor_client_nor_relay() -> None:
    assert copied("enclave_server") == [
        "sandbox/curtilage/",
        "wire/curtilage/",
        "attest/curtilage/",
        "inference/curtilage/",
        "enclave_server/curtilage/",
    ]


def test_engine_is_compiled_with_the_options_that_bootstrap_uses() -> None:
    bootstrap = (ROOT / "tools" / "bootstrap.py").read_text("utf-8")
    names = re.search(r"X86_FLAGS = \(([^)]*)\)", bootstrap)
    assert names is not None
    wanted = re.findall(r'"(\w+)"', names[1])
    text = dockerfile("enclave_server")
    assert f"for name in {' '.join(wanted)}; do" in text
    for flag in ("-DLLAVA_BUILD=OFF", "-DGGML_NATIVE=OFF", "lean_llama.cmake"):
        assert flag in bootstrap
        assert flag in text


@pytest.mark.parametrize("folder", DOCKERFILES)
def test_everything_copied_is_let_through_to_the_build(folder: str) -> None:
    ignored = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    allowed = [line[1:] for line in ignored if line.startswith("!")]
    assert "*" in ignored
    sources = re.findall(r"^COPY (?!--from)(.*) \S+$", dockerfile(folder), re.MULTILINE)
    for source in " ".join(sources).split():
        assert any(source.rstrip("/").startswith(entry) for entry in allowed), source
        assert (ROOT / source).exists(), source


def without_compose(reason: str) -> None:
    """Skip loudly, or fail where the run says that compose must be there."""
    if "compose" in os.environ.get("CURTILAGE_REQUIRE", "").split(","):
        pytest.fail(reason)
    pytest.skip(f"SKIPPED LOUDLY: {reason}")


def run_compose(*arguments: str) -> subprocess.CompletedProcess[str]:
    docker = shutil.which("docker")
    if docker is None:
        without_compose("there is no docker command")
    command = [docker or "docker", "compose", *arguments]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("profile", [(), ("--profile", "development")])
def test_compose_accepts_the_file(profile: tuple[str, ...]) -> None:
    if run_compose("version").returncode != 0:
        without_compose("docker has no compose plugin")
    done = run_compose("-f", "compose.yaml", *profile, "config", "-q")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("right", "wrong"),
    [("read_only:", "read_onyl:"), ("enclave: {condition", "nobody: {condition")],
)
def test_compose_refuses_a_misspelt_file(
    right: str, wrong: str, tmp_path: Path
) -> None:
    if run_compose("version").returncode != 0:
        without_compose("docker has no compose plugin")
    text = (ROOT / "compose.yaml").read_text("utf-8")
    assert right in text
    mutant = tmp_path / "compose.yaml"
    mutant.write_text(text.replace(right, wrong), "utf-8")
    assert run_compose("-f", str(mutant), "config", "-q").returncode != 0
