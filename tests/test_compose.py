"""The compose files, read as plain YAML; ``make compose-test`` starts them for real."""

import json
from pathlib import Path
from typing import cast

import pytest
import yaml
from deploy.containers.build import tag_of
from deploy.containers.roles import ROLES
from deploy.image.rootfs import ENVIRONMENT, PYTHON

from curtilage.enclave_server.acquire.command import DEVICES, PROVIDERS
from curtilage.relay.config import UnixAddress
from curtilage.relay.config import parse_config as parse_relay
from curtilage.sandbox.parent import FORGETTING
from curtilage.sandbox.syscalls import HARMLESS, WAYS_OUT

ROOT = Path(__file__).resolve().parents[1]
Tree = dict[str, object]
FILES = {
    "compose.yaml": ("enclave", "relay", "emulator"),
    "deploy/compose/relay.yaml": ("relay",),
    "deploy/compose/enclave.yaml": (
        *("enclave", "door", "stapler"),
        *("evidence-tsm", "evidence-nsm", "evidence-azure-vtpm", "emulator"),
    ),
    "deploy/compose/client.yaml": ("client",),
}
SERVICES = [(file, name) for file, names in FILES.items() for name in names]
EVIDENCE = {f"evidence-{provider}": provider for provider in PROVIDERS}
# Who may write to a volume; everybody else reads.
WRITERS = {
    "gateway": {"enclave"},
    "evidence": {"emulator", *EVIDENCE},
    "identify": set(EVIDENCE),
    "endorsements": {"stapler"},
    "state": {"client"},
}
ONE = "compose.yaml"
ENCLAVE = "deploy/compose/enclave.yaml"
each_service = pytest.mark.parametrize(("file", "name"), SERVICES)


def compose(file: str) -> Tree:
    return cast("Tree", yaml.safe_load((ROOT / file).read_text("utf-8")))


def service(file: str, name: str) -> Tree:
    return cast("Tree", cast("Tree", compose(file)["services"])[name])


def texts(value: object) -> list[str]:
    """Return the texts of a list that may also hold tables."""
    return [each for each in cast("list[object]", value) if isinstance(each, str)]


@pytest.mark.parametrize("file", FILES)
def test_there_are_no_other_services(file: str) -> None:
    assert tuple(cast("Tree", compose(file)["services"])) == FILES[file]


@each_service
def test_every_service_is_hardened(file: str, name: str) -> None:
    found = service(file, name)
    profile = "deploy/compose/seccomp.json" if file == ONE else "seccomp.json"
    assert found["read_only"] is True
    assert found["cap_drop"] == ["ALL"]
    assert found["security_opt"] == ["no-new-privileges:true", f"seccomp:{profile}"]
    assert ((ROOT / file).parent / profile).is_file()
    assert found["ipc"] == "none"
    assert found["init"] is True
    assert found["ulimits"] == {"core": 0}
    assert found["mem_limit"] == found["memswap_limit"]
    assert isinstance(found["pids_limit"], int)
    assert found["restart"] == "unless-stopped"
    for risky in ("privileged", "cap_add", "pid", "tmpfs", "userns_mode", "build"):
        assert risky not in found
    assert ("devices" in found) == (name in EVIDENCE and name != "evidence-tsm")


@each_service
def test_nobody_is_root_but_who_talks_to_configfs(file: str, name: str) -> None:
    wanted = "0:65532" if name == "evidence-tsm" else "65532:65532"
    assert service(file, name)["user"] == wanted


@each_service
def test_nothing_is_written_that_the_engine_would_keep(file: str, name: str) -> None:
    logging = cast("Tree", service(file, name)["logging"])
    if name == "client":  # states and their causes; bounded
        assert logging["driver"] == "local"
        assert set(cast("Tree", logging["options"])) == {"max-size", "max-file"}
    else:
        assert logging == {"driver": "none"}


@each_service
def test_images_are_ours_and_never_fetched(file: str, name: str) -> None:
    found = service(file, name)
    role = name if name in ROLES else "enclave"
    assert found["image"] == tag_of(role)
    assert found["pull_policy"] == "never"


@each_service
def test_every_service_is_asked_for_its_health(file: str, name: str) -> None:
    check = cast("Tree", service(file, name)["healthcheck"])
    command = cast("list[str]", check["test"])
    assert command[:5] == ["CMD", PYTHON, "-I", "-B", "/usr/lib/curtilage/health.py"]
    assert len(command) == 6


@pytest.mark.parametrize(
    ("file", "name"),
    [(f, n) for f, n in SERVICES if n in {"enclave", "emulator", *EVIDENCE}],
)
def test_who_sees_questions_or_signs_has_no_network(file: str, name: str) -> None:
    found = service(file, name)
    assert found["network_mode"] == "none"
    assert "ports" not in found
    assert "networks" not in found


@pytest.mark.parametrize(("file", "name"), [(ONE, "relay"), (ENCLAVE, "door")])
def test_who_only_answers_shows_no_address_of_the_machine(file: str, name: str) -> None:
    (network,) = cast("list[str]", service(file, name)["networks"])
    networks = cast("dict[str, Tree]", compose(file)["networks"])
    options = cast("dict[str, str]", networks[network]["driver_opts"])
    assert options["com.docker.network.bridge.enable_ip_masquerade"] == "false"


def test_the_relay_for_trying_is_published_on_loopback_only() -> None:
    ports = cast("list[str]", service(ONE, "relay")["ports"])
    assert len(ports) == 1
    assert ports[0].startswith("127.0.0.1:")


@each_service
def test_volumes_are_writable_for_their_owner_only(file: str, name: str) -> None:
    for volume in texts(service(file, name)["volumes"]):
        source = volume.split(":")[0]
        assert volume.endswith(":ro") or name in WRITERS[source]


@pytest.mark.parametrize("file", [ONE, ENCLAVE])
def test_sockets_lie_in_small_private_memory(file: str) -> None:
    for name, volume in cast("Tree", compose(file)["volumes"]).items():
        options = cast("dict[str, dict[str, str]]", volume)["driver_opts"]
        assert options["type"] == options["device"] == "tmpfs"
        wanted = {"gid=65532", "noexec", "nosuid", "nodev"}
        assert wanted <= set(options["o"].split(","))
        assert ("mode=0755" in options["o"]) == (name == "endorsements")


def test_stapler_and_server_share_no_socket() -> None:
    sockets = {
        name: {
            volume.split(":")[0] for volume in texts(service(ENCLAVE, name)["volumes"])
        }
        for name in ("stapler", "enclave", "door")
    }
    assert sockets["stapler"] == {"identify", "endorsements"}
    assert not sockets["stapler"] & sockets["enclave"]
    assert sockets["door"] == {"gateway"}


@pytest.mark.parametrize(("name", "provider"), EVIDENCE.items())
def test_a_profile_brings_its_provider_and_its_device(name: str, provider: str) -> None:
    found = service(ENCLAVE, name)
    command = cast("list[str]", found["command"])
    assert found["profiles"] == [provider]
    assert command[:3] == ["evidence", "--provider", provider]
    named = [each.split(":")[0] for each in cast("list[str]", found.get("devices", []))]
    mounts = cast("list[str | dict[str, str]]", found["volumes"])
    named += [each["source"] for each in mounts if not isinstance(each, str)]
    assert len(named) == 1
    assert named[0] in DEVICES
    waited = cast("dict[str, Tree]", service(ENCLAVE, "enclave")["depends_on"])
    assert waited[name] == {"condition": "service_healthy", "required": False}


@pytest.mark.parametrize("file", [ONE, ENCLAVE])
def test_emulator_is_for_development_and_takes_its_measurement_from_the_release(
    file: str,
) -> None:
    found = service(file, "emulator")
    assert found["profiles"] == ["development"]
    assert "profiles" not in service(file, "enclave")
    command = cast("list[str]", found["command"])
    assert "--measurement" not in command
    assert command[command.index("--release") + 1] == "/etc/curtilage/release"
    release = [each for each in texts(found["volumes"]) if "/release:" in each]
    assert release == [
        each
        for each in texts(service(file, "enclave")["volumes"])
        if "/release:" in each
    ]


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("deploy/compose/relay.yaml", "relay"),
        (ENCLAVE, "door"),
        ("deploy/compose/client.yaml", "client"),
    ],
)
def test_keys_are_files_and_no_variables(file: str, name: str) -> None:
    found = service(file, name)
    secrets = cast("dict[str, dict[str, str]]", compose(file)["secrets"])
    assert set(cast("list[str]", found["secrets"])) == set(secrets)
    assert {"certificate", "key"} <= set(secrets)
    assert all(set(each) == {"file"} for each in secrets.values())
    assert "KEY" not in json.dumps(found.get("environment", {}))


def test_relay_configuration_is_valid_for_production() -> None:
    text = (ROOT / "deploy" / "relay.toml").read_text("utf-8")
    config = parse_relay(text, {})
    assert config.gateways == {"demo": UnixAddress(path="/run/enclave/gateway.sock")}


# The filter of system calls.


def profile() -> list[Tree]:
    text = (ROOT / "deploy" / "compose" / "seccomp.json").read_text("utf-8")
    found = cast("Tree", json.loads(text))
    assert found["defaultAction"] == "SCMP_ACT_ERRNO"
    return cast("list[Tree]", found["syscalls"])


def allowed(*, whatever_arguments: bool) -> set[str]:
    """Return the names of calls that pass, with any arguments or with some."""
    return {
        name
        for rule in profile()
        if rule["action"] == "SCMP_ACT_ALLOW"
        if whatever_arguments or "args" not in rule
        for name in cast("list[str]", rule["names"])
    }


def test_the_filter_leaves_room_for_the_programs_own_walls() -> None:
    passes = allowed(whatever_arguments=True)
    walls = {"landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self"}
    assert passes >= {*walls, "seccomp", "prctl", "memfd_secret", "execve"}
    # The engine's own list is longer by these, which it does without.
    beyond = {"get_mempolicy", "set_mempolicy", "mbind"}
    beyond |= {"pkey_alloc", "pkey_free", "pkey_mprotect"}
    assert set(HARMLESS) - passes == beyond


def test_the_filter_refuses_what_leads_out_of_a_container() -> None:
    passes = allowed(whatever_arguments=True)
    needed = {"socket", "connect", "bind", "listen", "accept", "accept4", "sendto"}
    needed |= {"sendmsg", "sendmmsg", "execve", "execveat", "fork", "vfork", "kill"}
    needed |= {"tkill", "pidfd_send_signal"}
    assert set(WAYS_OUT) & passes == needed & set(WAYS_OUT)
    further = {"mount", "pivot_root", "chroot", "keyctl", "add_key", "init_module"}
    further |= {"kexec_load", "open_by_handle_at", "mknod", "reboot", "swapon"}
    assert not passes & further


def test_sockets_and_clones_pass_with_some_arguments_only() -> None:
    assert not {"socket", "clone", "clone3"} & allowed(whatever_arguments=False)
    rules = [rule for rule in profile() if rule["names"] == ["socket"]]
    arguments = [cast("list[Tree]", rule["args"])[0] for rule in rules]
    families = {each["value"] for each in arguments}
    assert families == {1, 2, 10, 16}  # UNIX, INET, INET6, NETLINK
    assert {each["op"] for each in arguments} == {"SCMP_CMP_EQ"}
    (clone,) = (rule for rule in profile() if rule["names"] == ["clone"])
    (flags,) = cast("list[Tree]", clone["args"])
    # CLONE_NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET, NEWNS; none may be set.
    assert flags["value"] == 0x7C020000 | 0x02000000
    assert (flags["valueTwo"], flags["op"]) == (0, "SCMP_CMP_MASKED_EQ")


# The images' settings.


def test_services_that_see_questions_overwrite_freed_memory() -> None:
    allocator = {name: ENVIRONMENT[name] for name in ("PYTHONMALLOC", "GLIBC_TUNABLES")}
    assert allocator == FORGETTING
    assert allocator.items() <= ROLES["enclave"].whole_environment.items()


def test_images_hold_the_parts_of_their_role_alone() -> None:
    parts = {name: set(role.parts) for name, role in ROLES.items()}
    assert parts["relay"] == {"relay"}
    others = {"policy", "client", "relay", "transparency", "cli", "lab"}
    assert not parts["enclave"] & others
    assert not parts["client"] & {"relay", "enclave_server", "lab"}
    assert parts["emulator"] == {"wire", "attest"}
    assert [name for name, role in ROLES.items() if role.development] == ["emulator"]
