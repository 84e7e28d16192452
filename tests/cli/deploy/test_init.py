"""``curtilage deploy init``: what it writes, what it keeps, and what it refuses."""

import hashlib
import json
import os
import re
import stat
import tomllib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
)

from curtilage.attest.log.manifest import parse_manifest
from curtilage.attest.sandbox import PROMISED, Isolation
from curtilage.cli.deploy import init as command
from curtilage.cli.deploy import layouts, release, table
from curtilage.cli.deploy.next_steps import NO_SANDBOX
from curtilage.cli.deploy.sections import unrouted
from curtilage.cli.main import main
from curtilage.client.endpoint.gateway_file import read_gateway_file
from curtilage.client.endpoint.keys import Keys
from curtilage.enclave_server.config import Environment
from curtilage.enclave_server.config import parse_config as parse_enclave
from curtilage.enclave_server.confinement import description
from curtilage.inference.default_model import DEFAULT_SHA256
from curtilage.policy.document.load import PROFILES, load_policy, profile_text
from curtilage.policy.expectations import expectations_from
from curtilage.relay.config import HTTPUpstream, UnixAddress
from curtilage.relay.config import parse_config as parse_relay
from support.tls_files import write_tls_files

ROOT = Path(__file__).resolve().parents[3]
HOST = "party.example.net"
TDX = dict.fromkeys(("mrtd", "rtmr0", "rtmr1", "rtmr2", "rtmr3"), "cd" * 48)
MEASURED = {"sev-snp": [{"launch": "ab" * 48}], "tdx": TDX}
LEVELS = "Genoa:bl=9,tee=0,snp=23,ucode=72"
COPIED = ("checkpoint.txt", "consistency.txt", "manifest.json", "proof.txt")


@pytest.fixture(autouse=True)
def _inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def init(layout: str, *more: str) -> int:
    return main(["deploy", "init", layout, "--out", "o", *more])


def write_measured() -> str:
    Path("measured.json").write_text(json.dumps(MEASURED))
    return "measured.json"


def write_root(name: str = "o/root.pem") -> None:
    certificate, _ = write_tls_files(Path())
    Path(name).parent.mkdir(exist_ok=True)
    certificate.rename(name)


def files(folder: str = "o") -> dict[str, bytes]:
    place = Path(folder)
    return {
        str(path.relative_to(place)): path.read_bytes()
        for path in sorted(place.rglob("*"))
        if path.is_file()
    }


def mode(name: str) -> int:
    return stat.S_IMODE(Path("o", name).stat().st_mode)


def write_attestation() -> str:
    assert init("enclave", "--name", HOST, *("--min-tcb", LEVELS), *measurements()) == 0
    return "o/attestation.yaml"


def measurements() -> tuple[str, str]:
    return ("--measurements", write_measured())


def gateway(*more: str) -> int:
    source = "section.yaml"
    if not Path(source).exists():
        Path(write_attestation()).rename(source)
    words = ["--name", HOST, "--relay", "https://relay.example.org/ward"]
    words += ["--attestation", source, "--policy", "clinic", "--out", "g", *more]
    return main(["deploy", "init", "gateway", *words])


# What is written.


def test_one_operators_files_are_those_that_compose_mounts(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["deploy", "init", "one-operator"]) == 0
    written = files("deploy/run")
    assert {name.partition("/")[0] for name in written} == {
        *("enclave.toml", "log", "release")
    }
    assert {name for name in written if name.startswith("release/")} == {
        f"release/{name}" for name in COPIED
    }
    config = parse_enclave(Path("deploy/run/enclave.toml").read_text())
    compose = yaml.safe_load((ROOT / "compose.yaml").read_text("utf-8"))["services"]
    command = compose["emulator"]["command"]
    assert f"unix:{config.evidence}" == command[command.index("--listen") + 1]
    mounts = compose["enclave"]["volumes"]
    assert any(mount.split(":")[-2] == str(config.release) for mount in mounts)
    assert config.listen.path == Path("/run/enclave/gateway.sock")
    assert config.model.sha256 == DEFAULT_SHA256
    said = capsys.readouterr().out
    assert release.EMULATED_MEASUREMENT in said
    assert "docker compose --profile development up" in said


def test_processes_find_each_other_in_one_folder() -> None:
    assert init("processes") == 0
    config = parse_enclave(Path("o/enclave.toml").read_text())
    relay = parse_relay(Path("o/relay.toml").read_text(), {})
    assert relay.gateways == {"demo": UnixAddress(path=str(config.listen.path))}
    folder = Path("o").resolve()
    assert (config.evidence, config.release) == (
        folder / "evidence.sock",
        folder / "release",
    )
    assert config.anchors[0].certificate == folder / "root.pem"


def test_a_path_that_no_socket_can_have_is_refused_before_anything_is_written(
    capsys: pytest.CaptureFixture[str],
) -> None:
    long = "o" * 100
    assert main(["deploy", "init", "processes", "--out", long]) == 2
    assert "--out" in capsys.readouterr().err
    assert not Path(long).exists()


def test_an_enclaves_operator_gets_files_keys_and_the_section_for_clients(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert init("enclave", "--name", HOST, "--min-tcb", LEVELS, *measurements()) == 0
    said = capsys.readouterr().out
    config = parse_enclave(Path("o/enclave/enclave.toml").read_text())
    assert config.environment is Environment.PRODUCTION
    assert {(each.kind, each.product) for each in config.anchors} == {
        ("amd", "Genoa"),
        ("intel", ""),
    }
    assert "--profile tsm up" in said
    for name in ("enclave.yaml", "seccomp.json"):
        shipped = (ROOT / "deploy" / "compose" / name).read_bytes()
        assert Path("o", name).read_bytes() == shipped
    manifest = parse_manifest(Path("o/enclave/release/manifest.json").read_bytes())
    assert dict(manifest.measurements["sev-snp"][0]) == {"launch": "ab" * 48}
    assert {"launch=" + "ab" * 48, "mrtd=" + "cd" * 48} <= set(said.split())
    text = f"{profile_text('default')}\n{Path('o/attestation.yaml').read_text()}"
    expected = expectations_from(load_policy(text))
    assert expected.required_cpu_tees == {"sev-snp", "tdx"}
    assert expected.log.origin == f"{HOST}/log"
    assert expected.log.public_key == config.log.key
    assert str(expected.environment) == "production"


def test_every_private_file_is_its_owners_alone() -> None:
    write_attestation()
    gateway("--application", "letters")
    assert mode("log/private") == 0o700
    private = [
        *("o/log/private/log.pem", "o/log/private/witness/witness.key"),
        *("o/enclave/tls/enclave.key", "g/client/tls/client.key"),
        "g/client/keys/letters",
    ]
    for name in private:
        assert stat.S_IMODE(Path(name).stat().st_mode) == 0o600, name
    secret = {
        name
        for folder in ("o", "g")
        for name, data in files(folder).items()
        if b"PRIVATE" in data
    }
    assert secret == {
        *("log/private/log.pem", "log/private/witness/witness.key"),
        *("enclave/tls/enclave.key", "client/tls/client.key"),
    }


def test_the_request_for_a_certificate_is_of_the_key_and_the_name() -> None:
    assert init("relay", "--name", HOST, "--gateway", "ward=https://e.example") == 0
    request = x509.load_pem_x509_csr(Path("o/relay/tls/relay.csr").read_bytes())
    key = load_pem_private_key(Path("o/relay/tls/relay.key").read_bytes(), None)
    spki = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    assert request.public_key().public_bytes(*spki) == key.public_key().public_bytes(
        *spki
    )
    names = request.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    assert names.value.get_values_for_type(x509.DNSName) == [HOST]
    assert request.is_signature_valid


def test_a_relays_operator_gets_a_relay_with_tls() -> None:
    more = (
        "--gateway",
        "ward=https://e.example:8443",
        "--gateway",
        "lab=https://l.example",
    )
    assert init("relay", "--name", HOST, *more) == 0
    config = parse_relay(Path("o/relay/etc/relay.toml").read_text(), {})
    assert config.tls is not None
    assert config.gateways == {
        "ward": HTTPUpstream(origin="https://e.example:8443"),
        "lab": HTTPUpstream(origin="https://l.example"),
    }
    assert HOST.encode() in config.hosts
    written = {name for name in files() if "/" not in name}
    assert written == {"relay.yaml", "seccomp.json"}


def test_a_department_gets_a_gateway_whose_keys_work() -> None:
    assert gateway("--application", "letters", "--application", "triage") == 0
    found = read_gateway_file(Path("g/client/etc/gateway.toml"))
    assert found.names == {HOST}
    keys = Keys(found.records)
    for name in ("letters", "triage"):
        key = Path(f"g/client/keys/{name}").read_text().strip()
        assert keys.application([f"Bearer {key}"]) == name
    environment = Path("g/client/client.env").read_text()
    assert "CURTILAGE_RELAY=https://relay.example.org/ward\n" in environment
    policy = Path("g/client/etc/policy.yaml").read_text()
    assert policy.startswith(profile_text("clinic").rstrip())
    assert expectations_from(load_policy(policy)).log.origin == f"{HOST}/log"


@pytest.mark.parametrize(
    ("layout", "file"),
    [("enclave", "enclave.yaml"), ("relay", "relay.yaml"), ("gateway", "client.yaml")],
)
def test_everything_that_compose_mounts_is_there(layout: str, file: str) -> None:
    more = {
        "enclave": ("--emulated",),
        "relay": ("--gateway", "ward=https://e.example"),
        "gateway": (
            *("--attestation", "section.yaml", "--policy", "bank"),
            *("--relay", "https://r.example/w"),
        ),
    }
    if layout == "gateway":
        Path(write_attestation()).rename("section.yaml")
    assert main(["deploy", "init", layout, "--name", HOST, *more[layout]]) == 0
    folder = Path(f"curtilage-{layout}")
    text = (folder / file).read_text()
    found = re.findall(r"\$\{[A-Z_]+:-\./([\w/]+)\}(/[\w./-]+)?", text)
    mounted = {f"{name}{rest}" for name, rest in found}
    missing = {name for name in mounted if not (folder / name).exists()}
    # The certificate comes from an authority.
    own = "client" if layout == "gateway" else layout
    assert missing == {f"{own}/tls/{own}.pem"}


# The sandbox.


def described(machine: str = "x86_64", *, forks: bool = False) -> tuple[str, str]:
    """Write a description of a sandbox; return its file and the digest."""
    data = description(machine=machine, landlock=6, devices=False, forks=forks)
    Path("sandbox.json").write_bytes(data)
    return "sandbox.json", hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize("layout", ["one-operator", "processes", "enclave"])
def test_a_release_names_the_sandbox_and_so_does_the_section(
    layout: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file, digest = described()
    more = ("--name", HOST, "--emulated") if layout == "enclave" else ()
    assert init(layout, "--sandbox", file, *more) == 0
    assert NO_SANDBOX not in capsys.readouterr().out
    manifest = parse_manifest(Path("o/log/manifest.json").read_bytes())
    assert (manifest.sandbox, str(manifest.isolation)) == (digest, "shared")
    assert str(manifest.ephemerality) == "overwritten"
    write_root()
    # The log knows which sandbox it is.
    assert init(layout, "--policy", "default", *more) == 0
    policy = load_policy(Path("o/policy.yaml").read_text())
    assert expectations_from(policy).sandbox == {digest}


@pytest.mark.parametrize("forks", [False, True])
def test_configuration_and_release_agree_on_what_separates_requests(
    *, forks: bool
) -> None:
    assert init("processes", "--sandbox", described(forks=forks)[0]) == 0
    manifest = parse_manifest(Path("o/log/manifest.json").read_bytes())
    isolation = Isolation.PROCESS if forks else Isolation.SHARED
    assert manifest.isolation is isolation
    assert manifest.ephemerality is PROMISED[isolation]
    # The log knows it when the configuration is written again.
    assert init("processes", "--replace") == 0
    config = parse_enclave(Path("o/enclave.toml").read_text())
    assert config.model.isolation == isolation.value


def test_without_one_the_release_names_none_and_this_is_said(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert init("processes") == 0
    assert capsys.readouterr().out.count(NO_SANDBOX) == 1
    assert not parse_manifest(Path("o/log/manifest.json").read_bytes()).sandbox
    write_root()
    assert init("processes", "--policy", "default") == 0
    policy = load_policy(Path("o/policy.yaml").read_text())
    assert not expectations_from(policy).sandbox


@pytest.mark.parametrize(
    "data",
    [
        *(b"GGUF", b"{}", b'{"v":"curtilage/sandbox/v2"}'),
        description(machine="x86_64", landlock=6, devices=False) + b"\n",
    ],
    ids=["a model", "an object", "another form", "a line feed more"],
)
def test_a_file_that_describes_no_sandbox_is_refused(
    data: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("sandbox.json").write_bytes(data)
    assert init("processes", "--sandbox", "sandbox.json") == 2
    assert "curtilage-enclave sandbox" in capsys.readouterr().err
    assert not Path("o").exists()


def test_a_log_of_another_sandbox_is_not_configured_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert init("processes", "--sandbox", described()[0]) == 0
    before = files()
    assert init("processes", "--sandbox", described("aarch64")[0]) == 2
    assert "another sandbox" in capsys.readouterr().err
    assert init("processes", "--sandbox", described()[0]) == 0
    assert files() == before


@pytest.mark.parametrize("layout", ["one-operator", "processes", "enclave"])
@pytest.mark.parametrize(
    ("kept", "forks"),
    [
        ('[model]\nisolation = "process"\n', False),
        ('[model]\nisolation = "shared"\n', True),
        ("[model]\n", True),
        ("", True),
    ],
    ids=["process", "shared", "the default", "no table"],
)
def test_a_configuration_that_separates_requests_otherwise_is_not_kept(
    layout: str, kept: str, forks: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    more = ("--name", HOST, "--emulated") if layout == "enclave" else ()
    config = Path("o", *(["enclave"] if more else []), "enclave.toml")
    config.parent.mkdir(parents=True)
    config.write_text(kept, "utf-8")
    before = files()
    sandbox = ("--sandbox", described(forks=forks)[0])
    assert init(layout, *more, *sandbox) == 2
    assert "model.isolation is" in capsys.readouterr().err
    assert files() == before
    assert init(layout, *more, *sandbox, "--replace") == 0
    # Without a sandbox nothing depends on it; with one the release does, from now on.
    config.write_text(kept, "utf-8")
    assert init(layout, *more) == 2
    wanted = "process" if forks else "shared"
    config.write_text(f'[model]\nisolation = "{wanted}"\n', "utf-8")
    assert init(layout, *more, *sandbox) == 0


def test_a_configuration_that_is_no_toml_is_no_base_for_a_sandbox(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("o").mkdir()
    Path("o/enclave.toml").write_text("[model", "utf-8")
    assert init("processes", "--sandbox", described()[0]) == 2
    assert "o/enclave.toml" in capsys.readouterr().err
    assert init("processes") == 0


# The policy.


@pytest.mark.parametrize("profile", PROFILES)
def test_a_profile_with_the_section_is_a_policy_by_which_something_may_leave(
    profile: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert init("one-operator", "--policy", profile) == 0
    assert not Path("o/policy.yaml").exists()
    assert "emulator:/run/evidence/root.pem o/root.pem" in capsys.readouterr().out
    write_root()
    assert init("one-operator", "--policy", profile) == 0
    text = Path("o/policy.yaml").read_text()
    assert text.startswith(profile_text(profile).rstrip())
    assert load_policy(profile_text(profile)).document.attestation is None
    assert load_policy(text).document.attestation is not None
    assert "curtilage ask --policy o/policy.yaml" in capsys.readouterr().out


def test_a_policy_may_go_without_the_profiles_routing() -> None:
    init("processes")
    write_root()
    assert init("processes", "--policy", "default", "--no-routing") == 0
    text = Path("o/policy.yaml").read_text()
    assert text.startswith(unrouted(profile_text("default")).rstrip())
    assert load_policy(text).document.routing is None


def test_a_section_from_others_may_say_nothing_else(
    capsys: pytest.CaptureFixture[str],
) -> None:
    gateway()
    source = Path("section.yaml")
    text = source.read_text()
    # A key that the profile lacks: it would be in force.
    source.write_text(f"{text}pseudonymised_health: leave\n")
    assert gateway("--out", "h") == 2
    assert "pseudonymised_health" in capsys.readouterr().err
    source.write_text("transport:\n  accept: []\n")
    assert gateway("--out", "h") == 2
    source.write_text(text.replace("quorum: 1", "quorum: 0"))
    assert gateway("--out", "h") == 2
    assert not Path("h").exists()


def test_a_root_that_is_no_certificate_is_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    init("one-operator")
    Path("o/root.pem").write_text("no certificate\n")
    assert init("one-operator", "--policy", "default") == 2
    assert "o/root.pem: no certificate" in capsys.readouterr().err
    assert not Path("o/policy.yaml").exists()


# What is kept.


def test_run_again_it_keeps_every_key_and_what_was_edited() -> None:
    write_attestation()
    config = Path("o/enclave/enclave.toml")
    config.write_text(config.read_text() + "# edited\n")
    Path("o/enclave.yaml").write_text("# edited\n")
    before = files()
    write_attestation()
    assert files() == before


def test_replace_writes_configurations_again_and_no_key() -> None:
    assert gateway("--application", "letters") == 0
    environment = Path("g/client/client.env")
    original = environment.read_bytes()
    environment.write_text("CURTILAGE_RELAY=https://other.example/ward\n")
    before = files("g")
    assert gateway("--application", "letters") == 0
    assert files("g") == before
    assert gateway("--application", "letters", "--replace") == 0
    after = files("g")
    assert after["client/client.env"] == original
    kept = ("client/tls/client.key", "client/keys/letters", "client/etc/gateway.toml")
    assert all(after[name] == before[name] for name in kept)


def test_a_key_that_others_can_read_is_not_used(
    capsys: pytest.CaptureFixture[str],
) -> None:
    more = ("--name", HOST, "--gateway", "ward=https://e.example")
    init("relay", *more)
    Path("o/relay/tls/relay.key").chmod(0o644)
    assert init("relay", *more) == 2
    assert "o/relay/tls/relay.key: other accounts" in capsys.readouterr().err


def test_a_link_in_place_of_a_key_is_not_written_through() -> None:
    Path("o/relay/tls").mkdir(parents=True)
    Path("o/relay/tls/relay.key").symlink_to("elsewhere")
    more = ("--name", HOST, "--gateway", "ward=https://e.example")
    assert init("relay", *more) == 2
    assert not Path("o/relay/tls/elsewhere").exists()


def test_half_a_log_is_neither_used_nor_replaced(
    capsys: pytest.CaptureFixture[str],
) -> None:
    init("one-operator")
    Path("o/log/proof.txt").unlink()
    before = files()
    assert init("one-operator") == 2
    assert "proof.txt" in capsys.readouterr().err
    assert main(["deploy", "refresh", "o"]) == 2
    assert files() == before


def test_a_log_that_contradicts_itself_is_refused_without_a_traceback(
    capsys: pytest.CaptureFixture[str],
) -> None:
    init("one-operator")
    checkpoint = Path("o/log/tlog/checkpoint")
    checkpoint.write_text(checkpoint.read_text().replace("\n1\n", "\n2\n", 1))
    assert main(["deploy", "refresh", "o"]) == 2
    assert "REFUSED" in capsys.readouterr().err


def test_a_log_of_another_release_is_not_configured_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_attestation()
    before = files()
    Path("other.json").write_text(json.dumps({"sev-snp": {"launch": "ef" * 48}}))
    more = ("--min-tcb", LEVELS, "--measurements", "other.json", "--replace")
    assert init("enclave", "--name", HOST, *more) == 2
    assert "other measurements" in capsys.readouterr().err
    assert files() == before
    Path("m.gguf").write_bytes(b"GGUF")
    model = ("--model", "m.gguf", "--min-tcb", LEVELS, *measurements())
    assert init("enclave", "--name", HOST, *model) == 2
    assert files() == before


def test_a_key_without_its_settings_is_not_given_a_second_meaning(
    capsys: pytest.CaptureFixture[str],
) -> None:
    gateway("--application", "letters")
    assert gateway("--application", "triage") == 2
    assert "make-key triage" in capsys.readouterr().err
    Path("g/client/etc/gateway.toml").unlink()
    before = files("g")
    assert gateway("--application", "letters") == 2
    assert "the key of letters" in capsys.readouterr().err
    assert files("g") == before


def test_a_dry_run_writes_nothing_and_names_everything(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for layout in ("one-operator", "processes"):
        assert init(layout, "--dry-run") == 0
    assert (
        init(
            "relay", "--name", HOST, *("--gateway", "w=https://e.example"), "--dry-run"
        )
        == 0
    )
    said = capsys.readouterr().out
    assert not Path("o").exists()
    for name in ("o/log", "o/enclave.toml", "o/relay/tls/relay.key"):
        assert f"{name}: would be " in said
    assert "mode 0600" in said
    assert "next:" not in said


# Options.


@pytest.mark.parametrize(
    ("layout", "words"),
    [
        ("one-operator", ["--name", HOST]),
        ("one-operator", ["--no-routing"]),
        ("processes", ["--measurements", "measured.json"]),
        ("enclave", ["--emulated"]),
        ("enclave", ["--name", HOST]),
        ("enclave", ["--name", "Upper.example", "--emulated"]),
        ("enclave", ["--name", f"{HOST}:8443", "--emulated"]),
        ("enclave", ["--name", HOST, "--emulated", "--min-tcb", LEVELS]),
        ("enclave", ["--name", HOST, "--measurements", "measured.json"]),
        ("enclave", ["--name", HOST, "--measurements", "emulated.json"]),
        ("enclave", ["--name", HOST, "--measurements", "tpm.json"]),
        ("enclave", ["--name", HOST, "--measurements", "empty.json"]),
        (
            "enclave",
            ["--name", HOST, "--measurements", "tdx.json", "--min-tcb", LEVELS],
        ),
        ("relay", ["--name", HOST]),
        ("relay", ["--gateway", "ward=https://e.example"]),
        ("relay", ["--name", HOST, "--gateway", "ward=http://e.example"]),
        ("relay", ["--name", HOST, "--gateway", "healthz=https://e.example"]),
        ("relay", ["--name", HOST, "--gateway", "e.example"]),
        ("gateway", ["--name", HOST]),
        ("gateway", ["--policy", "clinic", "--relay", "https://r.example/w\nX=1"]),
    ],
    ids=str,
)
def test_an_option_that_is_wrong_is_refused_before_anything_is_written(
    layout: str, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    write_measured()
    for name, measured in (
        ("emulated", {"emulated-sev-snp": {"launch": "ab" * 48}}),
        ("tpm", {"tpm": {"pcr11": "ab" * 32}}),
        ("tdx", {"tdx": TDX}),
        ("empty", {}),
    ):
        Path(f"{name}.json").write_text(json.dumps(measured))
    if layout == "gateway":
        words = ["--attestation", "tdx.json", "--name", HOST, *words]
    assert init(layout, *words) == 2
    assert capsys.readouterr().err
    assert not Path("o").exists()


def test_the_words_of_the_options_are_those_of_the_parts() -> None:
    named = (layouts.ONE_OPERATOR, layouts.PROCESSES, layouts.ENCLAVE)
    assert (*named, layouts.RELAY, layouts.GATEWAY) == table.LAYOUTS
    assert table.PROFILES == PROFILES


def test_compose_files_are_in_the_wheel() -> None:
    tool = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    included = tool["hatch"]["build"]["targets"]["wheel"]["force-include"]
    assert included == {"deploy/compose": "curtilage/cli/deploy/compose"}


# The log, later.


def test_the_log_is_cosigned_again_and_the_enclaves_copy_follows(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_attestation()
    before = files()
    later = datetime.now(UTC) + timedelta(hours=1)
    clock = SimpleNamespace(now=Mock(return_value=later))
    monkeypatch.setattr(command, "datetime", clock)
    capsys.readouterr()
    assert main(["deploy", "refresh", "o"]) == 0
    expiry = datetime.now(UTC) + release.LIFE
    assert f"expires {expiry:%Y-%m-%d}" in capsys.readouterr().out
    after = files()
    for name in ("checkpoint.txt", "proof.txt"):
        assert after[f"log/{name}"] != before[f"log/{name}"]
        assert after[f"enclave/release/{name}"] == after[f"log/{name}"]
    same = ("log/manifest.json", "log/log.json", "log/private/log.pem")
    assert all(after[name] == before[name] for name in same)


def test_without_a_log_there_is_nothing_to_cosign(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["deploy", "refresh", "o"]) == 2
    assert "`curtilage deploy init`" in capsys.readouterr().err


def test_what_cannot_be_written_is_said_without_a_traceback(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("o").write_text("")
    assert init("one-operator") == 2
    assert "o" in capsys.readouterr().err


@pytest.mark.skipif(os.geteuid() != 0, reason="root may chown")
def test_a_key_of_the_containers_user_is_kept() -> None:
    more = ("--name", HOST, "--gateway", "ward=https://e.example")
    init("relay", *more)
    key = Path("o/relay/tls/relay.key")
    before = hashlib.sha256(key.read_bytes()).hexdigest()
    os.chown(key, 65532, 65532)
    key.chmod(0o400)
    assert init("relay", *more) == 0
    assert hashlib.sha256(key.read_bytes()).hexdigest() == before
    assert key.stat().st_uid == 65532
