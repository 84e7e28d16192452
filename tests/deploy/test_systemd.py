"""The units of deploy/systemd: read here, and checked by systemd's own program."""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from curtilage.cli.declared import parse
from curtilage.cli.table import root
from curtilage.enclave_server.acquire.command import DEVICES
from curtilage.sandbox import kernel

FOLDER = Path(__file__).resolve().parents[2] / "deploy" / "systemd"
UNITS = ("client", "enclave", "evidence", "relay", "stapler")
# Its own measure of exposure, 0 to 100; the walls of the programs need some calls.
MOST_EXPOSED = {"client": 25, "enclave": 25, "evidence": 20, "relay": 16, "stapler": 16}
BUILD_WALLS = {"client", "enclave", "evidence"}
CONFINED = {
    "AmbientCapabilities": [""],
    "CapabilityBoundingSet": [""],
    "LimitCORE": ["0"],
    "LockPersonality": ["yes"],
    "MemoryDenyWriteExecute": ["yes"],
    "MemorySwapMax": ["0"],
    "NoNewPrivileges": ["yes"],
    "PrivateTmp": ["yes"],
    "ProtectHome": ["yes"],
    "ProtectProc": ["invisible"],
    "ProtectSystem": ["strict"],
    "RestrictSUIDSGID": ["yes"],
    "SystemCallArchitectures": ["native"],
    "SystemCallErrorNumber": ["EPERM"],
}
Section = Mapping[str, list[str]]


def text_of(name: str) -> str:
    return (FOLDER / f"curtilage-{name}.service").read_text("utf-8")


def service(name: str) -> Section:
    """Return the settings of a unit's service; a name may have several values."""
    found: dict[str, list[str]] = {}
    lines = text_of(name).replace("\\\n", " ").partition("[Service]")[2].splitlines()
    for line in lines:
        if line.startswith("["):
            break
        if line and not line.startswith("#"):
            key, equals, value = line.partition("=")
            assert equals, line
            found.setdefault(key, []).append(value.strip())
    return found


def command(name: str) -> list[str]:
    (line,) = service(name)["ExecStart"]
    return line.split()


def test_there_are_no_other_units() -> None:
    found = {path.name for path in FOLDER.glob("*.service")}
    assert found == {f"curtilage-{name}.service" for name in UNITS}


@pytest.mark.parametrize("name", UNITS)
def test_every_unit_is_confined(name: str) -> None:
    found = service(name)
    assert {key: found.get(key) for key in CONFINED} == CONFINED
    assert all(not value.startswith(("+", "!", "-")) for value in found["ExecStart"])


@pytest.mark.parametrize("name", UNITS)
def test_only_who_builds_walls_may_make_namespaces(name: str) -> None:
    found = service(name)
    calls = " ".join(found["SystemCallFilter"])
    if name not in BUILD_WALLS:
        assert found["RestrictNamespaces"] == ["yes"]
        assert "@mount" not in calls
        return
    assert found["RestrictNamespaces"] == ["user mnt net"]
    # The walls' own: a namespace that they begin to use must be added here.
    flags = {name for name in vars(kernel) if name.startswith("CLONE_NEW")}
    assert flags == {"CLONE_NEWUSER", "CLONE_NEWNS", "CLONE_NEWNET"}
    for call in ("landlock_restrict_self", "seccomp", "@mount", "memfd_secret"):
        assert call in calls


def test_only_who_talks_to_the_device_is_root() -> None:
    for name in UNITS:
        found = service(name)
        if name == "evidence":
            assert found["User"] == ["root"]
            assert found["DevicePolicy"] == ["closed"]
            named = {each.split()[0] for each in found["DeviceAllow"]}
            named |= {each.lstrip("-") for each in found["ReadWritePaths"][0].split()}
            assert set(DEVICES) <= named
            continue
        own = found.get("User", [""])[0].startswith("curtilage-")
        assert own or found.get("DynamicUser") == ["yes"]
        assert found["PrivateDevices"] == ["yes"]


def test_who_signs_has_no_network_and_who_fetches_takes_no_connection() -> None:
    evidence = service("evidence")
    assert evidence["PrivateNetwork"] == ["yes"]
    assert evidence["RestrictAddressFamilies"] == ["AF_UNIX"]
    for name in ("client", "enclave", "relay"):
        found = service(name)
        assert found["SocketBindAllow"] == ["tcp:8443"]
        assert found["SocketBindDeny"] == ["any"]
    assert "SocketBindAllow" not in service("stapler")
    assert service("stapler")["SocketBindDeny"] == ["any"]


def test_who_sees_questions_writes_no_log() -> None:
    enclave = service("enclave")
    assert enclave["StandardOutput"] == enclave["StandardError"] == ["null"]
    for name in UNITS:
        assert service(name)["StandardOutput"] == ["null"]


@pytest.mark.parametrize("name", ["client", "enclave", "relay"])
def test_a_key_is_handed_over_by_systemd_and_named_so(name: str) -> None:
    (given,) = service(name)["LoadCredential"]
    key = f"{name}.key"
    assert given == f"{key}:/etc/curtilage/tls/{key}"
    assert f'key = "/run/credentials/curtilage-{name}.service/{key}"' in text_of(name)


def test_the_processes_of_an_enclave_find_each_other() -> None:
    folders = (FOLDER / "curtilage.tmpfiles").read_text("utf-8")
    rows = [line.split() for line in folders.splitlines() if line.startswith("d ")]
    made = {row[1]: (row[2], row[4]) for row in rows}
    words = command("evidence")
    sockets = {
        option: Path(words[words.index(option) + 1].removeprefix("unix:"))
        for option in ("--listen", "--identify")
    }
    # One group for both would let the stapler have keys attested.
    evidence, identify = sockets["--listen"], sockets["--identify"]
    assert made[str(evidence.parent)] == ("2750", "curtilage-enclave")
    assert made[str(identify.parent)] == ("2750", "curtilage-stapler")
    stapler = command("stapler")
    assert f"unix:{identify}" == stapler[stapler.index("--identity") + 1]
    stapled = stapler[stapler.index("--endorsements") + 1]
    assert stapled == words[words.index("--endorsements") + 1]
    assert made[stapled] == ("0755", "curtilage-stapler")
    assert service("stapler")["ReadWritePaths"] == [stapled]
    assert service("stapler")["UMask"] == ["0022"]
    users = (FOLDER / "curtilage.sysusers").read_text("utf-8")
    for name in ("enclave", "stapler"):
        assert service(name)["User"] == [f"curtilage-{name}"]
        assert re.search(rf"^u curtilage-{name} ", users, re.MULTILINE)
    assert str(evidence) in (FOLDER / "README.md").read_text("utf-8")


def test_the_commands_are_those_of_the_programs() -> None:
    programs = {name: Path(command(name)[0]).name for name in UNITS}
    assert programs == {
        "client": "curtilage",
        "enclave": "curtilage-enclave",
        "evidence": "curtilage-enclave",
        "relay": "curtilage-relay",
        "stapler": "curtilage-stapler",
    }
    parse(root, command("client")[1:])
    assert command("evidence")[1] == "evidence"
    assert command("stapler")[1] == "run"


# By systemd's own program.


def analyzed(*arguments: str) -> "subprocess.CompletedProcess[str]":
    program = shutil.which("systemd-analyze")
    if program is None:
        words = "SKIPPED LOUDLY: there is no systemd-analyze here"
        if "systemd" in os.environ.get("CURTILAGE_REQUIRE", "").split(","):
            pytest.fail(words)
        pytest.skip(words)
    return subprocess.run(
        [program, "--no-pager", *arguments], capture_output=True, text=True, check=False
    )


def installed(folder: Path, changes: Mapping[str, str] | None = None) -> list[str]:
    """Copy the units, with a program that exists; return their paths."""
    paths: list[str] = []
    for name in UNITS:
        text = re.sub(r"(?m)^ExecStart=\S+", "ExecStart=/bin/true", text_of(name))
        for old, new in (changes or {}).items():
            text = text.replace(old, new)
        path = folder / f"curtilage-{name}.service"
        path.write_text(text, "utf-8")
        paths.append(str(path))
    return paths


def verified(paths: list[str]) -> tuple[int, str]:
    done = analyzed("verify", "--recursive-errors=yes", *paths)
    return done.returncode, done.stderr


def test_systemd_accepts_every_line(tmp_path: Path) -> None:
    assert verified(installed(tmp_path)) == (0, "")


@pytest.mark.parametrize(
    ("right", "wrong"),
    [("NoNewPrivileges=", "NoNewPrivilege="), ("memfd_secret", "memfd_secrets")],
)
def test_a_line_that_systemd_would_ignore_is_seen(
    right: str, wrong: str, tmp_path: Path
) -> None:
    code, said = verified(installed(tmp_path, {right: wrong}))
    assert code != 0
    assert wrong.strip("=") in said


@pytest.mark.parametrize("name", UNITS)
def test_no_unit_is_more_exposed_than_it_needs(name: str, tmp_path: Path) -> None:
    installed(tmp_path)
    path = str(tmp_path / f"curtilage-{name}.service")
    measure = ["security", "--offline=true", f"--threshold={MOST_EXPOSED[name]}", path]
    done = analyzed(*measure)
    assert done.returncode == 0, done.stdout[-400:]
    open_ = Path(path).read_text("utf-8").replace("ProtectSystem=strict", "")
    Path(path).write_text(open_.replace("PrivateTmp=yes", "User=root"), "utf-8")
    assert analyzed(*measure).returncode != 0
