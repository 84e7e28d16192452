"""What runs inside the image: its first process and its door; and what is in it."""

import ast
import json
import socket
import struct
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from deploy.image.build import COMMAND_LINE
from deploy.image.errors import ImageError
from deploy.image.guest import door, init
from deploy.image.kernel import Kernel
from deploy.image.options import EMULATED, ENDORSEMENTS, ROOT, Options
from deploy.image.rootfs import (
    CONFIG,
    GUEST,
    GUEST_FILE,
    OTHER_PARTIES,
    PYTHON,
    USERS,
    Inputs,
    make_root,
)
from deploy.image.tree import Kind, Tree
from deploy.image.wheels import SITE

from support.image_parts import CONFIG as PRODUCTION
from support.image_parts import kernel_module, write_deb, write_wheel

MODULES = {
    "configfs": "",
    "tsm": "configfs",
    "sev_guest": "tsm",
    "tdx_guest": "tsm",
    "failover": "",
    "net_failover": "failover",
    "virtio_net": "net_failover",
    "vsock": "",
    "vmw_vsock_virtio_transport_common": "vsock",
    "vmw_vsock_virtio_transport": "vmw_vsock_virtio_transport_common,vsock",
}
EMULATED_CONFIG = (
    PRODUCTION.replace('"production"', '"development"')
    .replace('"amd"', '"emulated"')
    .replace("/etc/curtilage/ark.pem", "/run/evidence/root.pem")
)


@pytest.fixture
def inputs(tmp_path: Path) -> Inputs:
    packed = {name: kernel_module(needs) for name, needs in MODULES.items()}
    files = {"usr/bin/python3.11": b"python", "usr/bin/sh": b"shell"}
    own = {
        "curtilage/enclave_server/http/server.py": b"server",
        "curtilage/enclave_server/stapler/fetch.py": b"fetches",
        "curtilage/client/session.py": b"client",
        "curtilage/policy/document/load.py": b"policy",
        "curtilage/relay/forward.py": b"relay",
    }
    return Inputs(
        packages=[write_deb(tmp_path / "python.deb", files)],
        kernel=Kernel(image=b"k", release="6", packed=packed, built_in=frozenset()),
        wheels=[write_wheel(tmp_path / "x-1-py3-none-any.whl", {"x.py": b"x"})],
        own=write_wheel(tmp_path / "curtilage-1-py3-none-any.whl", own),
        build_id="c0ffee",
    )


def options(
    tmp_path: Path, tee: str = "sev-snp", *, config: str = "", **changes: object
) -> Options:
    path = tmp_path / "enclave.toml"
    path.write_text(config or (EMULATED_CONFIG if tee in EMULATED else PRODUCTION))
    ark = tmp_path / "ark.pem"
    ark.write_text("certificate")
    values: dict[str, object] = {
        "config": path,
        "tee": tee,
        "vsock": True,
        "address": "",
        "gateway": "",
        "model": "embedded",
        "files": (("/etc/curtilage/ark.pem", ark),),
        "engine": write_wheel(tmp_path / "llama-1-py3-none-any.whl", {"l.py": b"l"}),
    }
    return Options(**(values | changes))  # type: ignore[arg-type]


def guest_of(tree: Tree) -> init.Guest:
    return init.parse_guest(tree.content(GUEST_FILE).decode())


# What is in the image.


def test_image_holds_no_shell_and_no_other_party(
    tmp_path: Path, inputs: Inputs
) -> None:
    tree = make_root(options(tmp_path), inputs)
    paths = [path for path, _ in tree.entries()]
    programs = [path for path, entry in tree.entries() if entry.kind is Kind.PROGRAM]
    assert programs == ["init", "usr/bin/python3.11"]
    assert not any(
        path.startswith(f"{SITE}/{o}") for path in paths for o in OTHER_PARTIES
    )
    assert tree.content(f"{SITE}/curtilage/enclave_server/http/server.py") == b"server"


def test_production_image_holds_no_emulator(tmp_path: Path, inputs: Inputs) -> None:
    production = make_root(options(tmp_path), inputs)
    assert not any("curtilage_dev" in path for path, _ in production.entries())
    assert b"curtilage_dev" not in production.content(GUEST_FILE)
    development = make_root(options(tmp_path, EMULATED[0]), inputs)
    assert development.has(f"{SITE}/curtilage_dev/emulator.py")


def test_users_have_no_password_no_shell_and_no_home(
    tmp_path: Path, inputs: Inputs
) -> None:
    tree = make_root(options(tmp_path), inputs)
    lines = tree.content("etc/passwd").decode().splitlines()
    assert len({line.split(":")[2] for line in lines}) == len(lines) == 4
    assert all(line.endswith(":/nonexistent:/nonexistent") for line in lines)
    assert not tree.has("etc/shadow")


def test_init_is_the_first_program_and_isolated(tmp_path: Path, inputs: Inputs) -> None:
    content = make_root(options(tmp_path), inputs).content("init")
    assert content.startswith(f"#!{PYTHON} -IBS\n".encode())
    assert content.endswith((GUEST / "init.py").read_bytes())


@pytest.mark.parametrize("name", ["init.py", "door.py"])
def test_guest_code_needs_the_standard_library_alone(name: str) -> None:
    parsed = ast.parse((GUEST / name).read_text("utf-8"))
    for node in ast.walk(parsed):
        names = (
            [each.name for each in node.names] if isinstance(node, ast.Import) else []
        )
        if isinstance(node, ast.ImportFrom):
            names = [node.module or "."]
        for each in names:
            assert each.split(".")[0] in sys.stdlib_module_names


def test_modules_are_those_of_what_was_asked_for(
    tmp_path: Path, inputs: Inputs
) -> None:
    def names(**changes: object) -> list[str]:
        chosen = replace(options(tmp_path), **changes)  # type: ignore[arg-type]
        return [Path(path).stem for path in guest_of(make_root(chosen, inputs)).modules]

    assert names()[:4] == ["configfs", "tsm", "sev_guest", "tdx_guest"]
    assert "virtio_net" not in names()
    assert "vsock" not in names(vsock=False, address="10.0.2.15/24")
    # Where the interface of a real TEE is, the emulator refuses to start.
    emulated = make_root(options(tmp_path, EMULATED[0]), inputs)
    assert not any("tsm" in path for path in guest_of(emulated).modules)


@pytest.mark.parametrize("tee", ENDORSEMENTS)
def test_guest_waits_for_the_files_of_its_kind(
    tmp_path: Path, inputs: Inputs, tee: str
) -> None:
    guest = guest_of(make_root(options(tmp_path, tee), inputs))
    assert guest.needed[:3] == (
        "release/manifest.json",
        "release/proof.txt",
        "release/checkpoint.txt",
    )
    assert [name.split("/")[1] for name in guest.needed[3:]] == list(ENDORSEMENTS[tee])
    for name in guest.needed:
        assert door.parse_name(name) == name


def test_each_service_is_a_user_of_its_own(tmp_path: Path, inputs: Inputs) -> None:
    guest = guest_of(make_root(options(tmp_path), inputs))
    assert [service.name for service in guest.services] == list(USERS)
    assert len({service.user for service in guest.services}) == 3
    assert 0 not in {service.user for service in guest.services}
    capable = {service.name for service in guest.services if service.capability}
    assert capable == {"evidence"}
    assert {service.command[0] for service in guest.services} == {PYTHON}


def test_capability_is_for_configfs_alone(tmp_path: Path, inputs: Inputs) -> None:
    for tee in ("azure-snp", *EMULATED):
        guest = guest_of(make_root(options(tmp_path, tee), inputs))
        assert all(service.capability is None for service in guest.services)


def test_freed_memory_is_overwritten(tmp_path: Path, inputs: Inputs) -> None:
    environment = guest_of(make_root(options(tmp_path), inputs)).environment
    assert environment["PYTHONMALLOC"] == "malloc"
    assert "perturb" in environment["GLIBC_TUNABLES"]
    assert {"init_on_free=1", "lockdown=confidentiality"} <= set(COMMAND_LINE.split())


# The server's configuration must fit.


@pytest.mark.parametrize(
    ("old", "new", "word"),
    [
        ("/run/enclave/gateway.sock", "/run/x.sock", "listen"),
        ("/run/evidence/evidence.sock", "/run/x.sock", "evidence"),
        ("/run/curtilage/release", "/release", "release"),
        ("/etc/curtilage/ark.pem", "/etc/curtilage/other.pem", "other.pem"),
        (
            'path = "embedded"',
            'engine = "openai"\naddress = "unix:/e.sock"\nname = "m"',
            "model.engine",
        ),
        ('path = "embedded"', f'path = "/m"\nsha256 = "{"0" * 64}"', "model.path"),
        ('environment = "production"', 'environment = "x"', "environment"),
        ("quorum = 1", "quorum = 1\nquota = 2", "unknown key"),
        ("[model]", '[counters]\nlisten = "unix:/c"\n[model]', "counters"),
    ],
    ids=[
        "listen",
        "evidence",
        "release",
        "anchor",
        "engine",
        "model",
        "word",
        "keys",
        "counters",
    ],
)
def test_configuration_that_does_not_fit_stops_the_build(
    tmp_path: Path, inputs: Inputs, old: str, new: str, word: str
) -> None:
    assert old in PRODUCTION
    chosen = options(tmp_path, config=PRODUCTION.replace(old, new))
    with pytest.raises(ImageError, match=word):
        make_root(chosen, inputs)


def test_development_and_production_do_not_mix(tmp_path: Path, inputs: Inputs) -> None:
    for tee, config in (("sev-snp", EMULATED_CONFIG), (EMULATED[0], PRODUCTION)):
        with pytest.raises(ImageError, match="environment"):
            make_root(options(tmp_path, tee, config=config), inputs)


def test_model_of_ones_own_is_put_where_the_configuration_says(
    tmp_path: Path, inputs: Inputs
) -> None:
    model = tmp_path / "own.gguf"
    model.write_bytes(b"weights")
    named = 'path = "/opt/models/own.gguf"\nsha256 = "' + "0" * 64 + '"'
    config = PRODUCTION.replace('path = "embedded"', named)
    tree = make_root(options(tmp_path, config=config, model=str(model)), inputs)
    assert tree.content("/opt/models/own.gguf") == b"weights"
    assert tree.content(CONFIG).decode() == config
    with pytest.raises(ImageError, match=r"model\.path"):
        make_root(options(tmp_path, model=str(model)), inputs)


# The first process, as far as it can be tested outside its own machine.


def test_init_reads_no_kernel_argument_and_starts_no_shell() -> None:
    text = (GUEST / "init.py").read_text("utf-8")
    assert "/proc/cmdline" not in text
    assert "sys.argv" not in text
    for word in ("os.system", "subprocess", "shell=", "/bin/"):
        assert word not in text


def test_modules_are_locked_last() -> None:
    assert list(init.SETTINGS)[-1] == "kernel/modules_disabled"


def test_route_has_the_kernels_layout() -> None:
    data = init.encode_route("10.0.2.2")
    assert len(data) == 120  # struct rtentry of x86-64
    assert struct.unpack_from("<HH4s", data, 24) == (2, 0, bytes([10, 0, 2, 2]))
    assert struct.unpack_from("<H", data, 56)[0] == init.RTF_UP_GATEWAY
    assert data[58:] == bytes(62)


def test_device_is_brought_up_by_three_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[int, bytes]] = []

    def ioctl(number: int, data: bytes) -> None:
        asked.append((number, data))

    monkeypatch.setattr(init, "_ioctl", ioctl)
    monkeypatch.setattr("socket.if_nameindex", lambda: [(1, "lo"), (2, "eth0")])
    init.set_network("10.0.2.15/24", "10.0.2.2")
    assert [number for number, _ in asked] == [
        init.SIOCSIFADDR,
        init.SIOCSIFNETMASK,
        init.SIOCSIFFLAGS,
        init.SIOCADDRT,
    ]
    assert asked[0][1][20:24] == bytes([10, 0, 2, 15])
    assert asked[1][1][20:24] == bytes([255, 255, 255, 0])


def test_address_without_a_device_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.if_nameindex", lambda: [(1, "lo")])
    with pytest.raises(init.InitError):
        init.set_network("10.0.2.15/24", "")


def test_guest_file_that_is_cut_is_an_error(tmp_path: Path, inputs: Inputs) -> None:
    text = make_root(options(tmp_path), inputs).content(GUEST_FILE).decode()
    value = json.loads(text)
    del value["needed"]
    with pytest.raises(KeyError):
        init.parse_guest(json.dumps(value))
    with pytest.raises(ValueError, match="Expecting"):
        init.parse_guest(text[:-3])


def test_whatever_happens_the_machine_is_switched_off(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class OffError(Exception):
        """Replaces switching the machine off."""

    class Libc:
        @staticmethod
        def reboot(command: int) -> None:
            assert command == init.POWER_OFF
            raise OffError

    def fails() -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(init, "_libc", Libc)
    monkeypatch.setattr(init, "_run", fails)
    with pytest.raises(OffError):
        init.main()
    assert "switching off" in capsys.readouterr().out


def run_services(
    monkeypatch: pytest.MonkeyPatch,
    ends: list[tuple[int, int]],
    *,
    ready: bool,
    listens: bool = True,
) -> list[str]:
    """Run init's loop over processes that end in a given order."""
    started: list[str] = []

    def start(_: init.Guest, service: init.Service) -> int:
        started.append(service.name)
        return 100 + len(started)

    def is_ready(_: init.Guest) -> bool:
        return ready

    def handed_over(_path: Path, _user: int) -> bool:
        return listens

    def wait(_process: int, _options: int) -> tuple[int, int]:
        return ends.pop(0)

    def sleep(_: float) -> None:
        """Skip the waiting."""

    monkeypatch.setattr(init, "_start", start)
    monkeypatch.setattr(init, "_ready", is_ready)
    monkeypatch.setattr(init, "hand_over", handed_over)
    monkeypatch.setattr("os.waitpid", wait)
    monkeypatch.setattr("time.sleep", sleep)
    services = tuple(
        init.Service(name=name, user=1, command=("x",), capability=None)
        for name in USERS
    )
    guest = init.Guest(
        development=False,
        modules=(),
        address="",
        gateway="",
        environment={},
        needed=("release/manifest.json",),
        services=services,
    )
    init.watch(guest)
    return started


@pytest.mark.parametrize("process", [101, 102, 103])
def test_the_end_of_any_service_is_the_end(
    monkeypatch: pytest.MonkeyPatch, process: int
) -> None:
    # 999 is an orphaned process, which only has to be reaped.
    ends = [(999, 0), (process, 256), (0, 0)]
    assert run_services(monkeypatch, ends, ready=True) == list(USERS)
    assert ends == [(0, 0)]


def test_server_that_ends_before_it_listens_is_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ends = [(0, 0), (103, 768)]
    assert run_services(monkeypatch, ends, ready=True, listens=False) == list(USERS)
    assert ends == []


def test_door_gets_the_servers_socket_once_it_is_closed_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[tuple[Path, int, int, bool]] = []

    def chown(path: Path, user: int, group: int, *, follow_symlinks: bool) -> None:
        given.append((path, user, group, follow_symlinks))

    monkeypatch.setattr("os.chown", chown)
    path = tmp_path / "s"
    assert not init.hand_over(path, 7)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        path.chmod(0o770)
        assert not init.hand_over(path, 7)
        path.chmod(0o600)
        assert init.hand_over(path, 7)
    assert given == [(path, 7, 7, False)]
    link = tmp_path / "link"
    link.symlink_to(path)
    assert not init.hand_over(link, 7)


def test_server_is_not_started_before_its_files_are_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ends = [(0, 0), (0, 0), (102, 256)]
    assert run_services(monkeypatch, ends, ready=False) == ["door", "evidence"]


def test_documents_name_every_command() -> None:
    text = (ROOT / "docs" / "image.md").read_text("utf-8")
    for command in ("build", "compare", "push", "lock", "development", "boot"):
        assert f"deploy.image {command}" in text
