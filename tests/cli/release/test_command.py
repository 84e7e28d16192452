"""``curtilage release`` for a publisher, a witness and an auditor."""

import base64
import json
import os
import stat
from collections.abc import Callable
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

# sigstore's: its import binds a socket to check for IPv6.
import urllib3  # noqa: F401  # pyright: ignore[reportUnusedImport]
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from curtilage.attest.log.manifest import Residency, parse_manifest
from curtilage.attest.log.note import parse_hashes
from curtilage.attest.sandbox import PROMISED, Isolation
from curtilage.cli import main as cli
from curtilage.cli import terminal
from curtilage.cli.release.options import Progress
from curtilage.enclave_server.confinement import description
from curtilage.wire.shaping import PADDED, UNPADDED
from curtilage_dev.log import new_witness
from support.release_logs import NAME

LAUNCH = "ab" * 48
MANIFEST = (
    *("manifest", "--name", NAME, "--version", "1.0.0", "--source", "git+x@1"),
    *("--measurements", "measured.json", "--not-after", "+90d"),
)
Run = Callable[..., int]


@pytest.fixture
def run(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Run:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "measured.json").write_text(
        json.dumps({"sev-snp": [{"launch": LAUNCH}]})
    )
    (tmp_path / "model.gguf").write_bytes(b"weights")

    def call(*arguments: str) -> int:
        capsys.readouterr()
        return cli.main(["release", *arguments])

    return call


def make(run: Run, version: str = "1.0.0", *more: str, out: str = "m.json") -> None:
    assert run(*MANIFEST, "--version", version, "--out", out, *more) == 0


def publish(run: Run) -> None:
    """One release, logged, witnessed and proved; and its log policy."""
    make(run)
    key = ["--origin", "log.example.com/x", "--key", "log.pem"]
    assert run("log", "init", "served", *key) == 0
    assert run("log", "add", "served", "--key", "log.pem", "m.json") == 0
    assert run("witness", "init", "w", "--name", "w.example") == 0
    witness(run)
    assert run("prove", "served", *LOG_KEY, "--manifest", "m.json", *PROOF) == 0
    log, line = Path("log.vkey").read_text(), Path("w/witness.vkey").read_text()
    Path("policy").write_text(f"log {log}witness W {line}quorum W\n")


def witness(run: Run) -> None:
    assert run("witness", "cosign", "w", "--log", "served", *LOG_KEY, "--write") == 0


LOG_KEY = ("--log-key", "log.vkey")
PROOF = ("--out", "proof.txt")
VERIFY = ("verify", "--manifest", "m.json", "--proof", "proof.txt")
RULES = ("--log-policy", "policy", "--name", NAME)


def printed(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(capsys.readouterr().out)
    return value


# --- publishing -----------------------------------------------------------------


def test_a_release_is_published_and_verified(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    publish(run)
    assert run(*VERIFY, *RULES) == 0
    out = capsys.readouterr().out
    assert "ACCEPTED  curtilage-enclave 1.0.0\n" in out
    assert "witness    W, 20" in out
    assert run(*VERIFY, *RULES, "--json") == 0
    value = printed(capsys)
    assert (value["accepted"], value["code"]) == (True, None)
    assert value["log"]["index"] == 0
    assert value["release"]["name_checked"] is True
    assert value["publisher"] is None


@pytest.mark.parametrize("isolation", Isolation)
def test_a_manifest_names_the_sandbox_that_the_enclave_describes(
    run: Run, isolation: Isolation
) -> None:
    forks = isolation is Isolation.PROCESS
    described = description(landlock=6, devices=False, forks=forks)
    Path("sandbox.json").write_bytes(described)
    modes = ("--isolation", isolation, "--ephemerality", PROMISED[isolation])
    make(run, "2.0.0", "--sandbox", "sandbox.json", *modes)
    made = parse_manifest(Path("m.json").read_bytes())
    assert made.sandbox == sha256(described).hexdigest()
    assert (made.isolation, made.ephemerality) == (isolation, PROMISED[isolation])


def test_a_manifest_has_the_given_options(run: Run) -> None:
    make(
        run,
        "2.0.0",
        *("--image", "vm=model.gguf", "--model", "sha256:" + "cd" * 32),
        *("--min-tcb", "Genoa:bl=9,tee=0,snp=23,ucode=72", "--gpu-driver", "550.1"),
        *("--gpu-vbios", "96.1", "--gpu-golden", "ef" * 32, "--sandbox", "12" * 32),
        *("--isolation", "process", "--ephemerality", "overwritten"),
        *("--frame-bytes", "256", "--period-ms", "5"),
        *("--operator", "Example AG", "--country", "CH", "--region", "zrh-1"),
    )
    made = parse_manifest(Path("m.json").read_bytes())
    assert made.images[0].name == "vm"
    assert made.models == ("cd" * 32,)
    assert made.gpu.drivers == ("550.1",)
    assert made.sandbox == "12" * 32
    assert (made.isolation, made.ephemerality) == ("process", "overwritten")
    assert made.residency == Residency(
        operator="Example AG", country="CH", region="zrh-1"
    )
    assert (made.transport.frame_bytes, made.transport.buckets) == (256, 7)
    make(run, "2.0.1", "--unsafe-unpadded")
    assert parse_manifest(Path("m.json").read_bytes()).transport == UNPADDED
    make(run, "2.0.2")
    assert parse_manifest(Path("m.json").read_bytes()).transport == PADDED


@pytest.mark.parametrize(
    "more",
    [
        ("--frame-bytes", "1"),
        ("--unsafe-unpadded", "--buckets", "7"),
        ("--sandbox", "12" * 32),
        ("--isolation", "process", "--ephemerality", "process"),
        ("--model", "missing.gguf"),
        ("--min-tcb", "Rome:bl=1"),
        ("--measurements", "missing.json"),
        ("--gpu-golden", "ab"),
    ],
)
def test_a_wrong_option_exits_with_2(run: Run, more: tuple[str, ...]) -> None:
    arguments = ["--name", NAME, "--version", "1", "--source", "x"]
    arguments += ["--measurements", "measured.json", "--not-after", "+90d"]
    assert run("manifest", *arguments, "--out", "n.json", *more) == 2
    assert not Path("n.json").exists()


def test_a_manifest_goes_to_standard_output(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--name", NAME, "--version", "1.0.0", "--source", "git+x@1"]
    arguments += ["--measurements", "measured.json"]
    end = "2027-06-30T00:00:00Z"
    assert run("manifest", *arguments, "--not-after", end) == 0
    assert parse_manifest(capsys.readouterr().out.encode()).version == "1.0.0"


def test_the_key_is_private(run: Run) -> None:
    publish(run)
    assert stat.S_IMODE(Path("log.pem").stat().st_mode) == 0o600
    served = [path.name for path in Path("served").rglob("*") if path.is_file()]
    assert sorted(served) == ["1", "1", "checkpoint"]


def test_a_log_grows(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    publish(run)
    make(run, "1.1.0", out="n.json")
    add = ("log", "add", "served", "--key", "log.pem")
    assert run(*add, "m.json", "n.json", "--json") == 0
    assert printed(capsys) == {"indices": [0, 1], "size": 2, "added": 1}
    witness(run)
    since = ("--since", "1", "--consistency", "consistency.txt")
    assert run("prove", "served", *LOG_KEY, "--manifest", "n.json", *PROOF, *since) == 0
    assert len(parse_hashes(Path("consistency.txt").read_text())) == 1


def test_a_version_is_released_once(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    publish(run)
    make(run, "1.0.0", "--gpu-driver", "1", out="n.json")
    assert run("log", "add", "served", "--key", "log.pem", "n.json") == 2
    assert "1.0.0: leaf 0 " in capsys.readouterr().err


def test_an_invalid_manifest_is_not_logged(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    publish(run)
    Path("n.json").write_text("{}")
    assert run("log", "add", "served", "--key", "log.pem", "n.json") == 2
    assert "n.json: manifest" in capsys.readouterr().err


def test_a_damaged_log_exits_with_1(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    publish(run)
    make(run, "1.1.0", out="n.json")
    Path("served/tile/0/000.p/1").write_bytes(bytes(32))
    assert run("log", "add", "served", "--key", "log.pem", "n.json", "--json") == 1
    captured = capsys.readouterr()
    assert json.loads(captured.out)["code"] == "proof_invalid"
    assert captured.err.startswith("REFUSED: proof_invalid: ")
    assert "leaf 0 " in captured.err


# --- witnesses ------------------------------------------------------------------


def test_a_witness_elsewhere_answers_a_request(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    publish(run)
    assert run("witness", "init", "v", "--name", "v.example", "--ml-dsa") == 0
    assert run("log", "request", "served", *LOG_KEY, "--out", "request") == 0
    assert run("witness", "cosign", "v", "--request", "request", *LOG_KEY) == 0
    Path("lines").write_text(capsys.readouterr().out)
    keys = ("--witness", "v/witness.vkey", "--witness", "w/witness.vkey")
    assert run("log", "cosign", "served", "lines", *LOG_KEY, *keys) == 0
    assert capsys.readouterr().out == "cosigned by v.example\n"
    assert Path("served/checkpoint").read_text().count("\u2014 ") == 3
    stranger = new_witness("stranger.example").verifier_key.text
    assert run("log", "cosign", "served", "lines", *LOG_KEY, "--witness", stranger) == 2


def test_a_witness_refuses_a_fork(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    publish(run)
    text = Path("served/checkpoint").read_text()
    make(run, "1.1.0", out="n.json")
    assert run("log", "add", "served", "--key", "log.pem", "n.json") == 0
    witness(run)
    Path("served/checkpoint").write_text(text)
    assert run("witness", "cosign", "w", "--log", "served", *LOG_KEY) == 1
    said = capsys.readouterr().err
    assert said.startswith("REFUSED: proof_invalid: ")
    assert "shrunk" in said


def test_a_cosignature_can_go_to_standard_output(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    publish(run)
    assert run("witness", "cosign", "w", "--log", "served", *LOG_KEY) == 0
    assert capsys.readouterr().out.startswith("\u2014 w.example ")


# --- verifying ------------------------------------------------------------------


# File, old text, new text, and the code.
CHANGES = {
    "manifest": ("m.json", "git+x", "git+y", "proof_invalid"),
    "no proof": ("proof.txt", None, "", "release_not_logged"),
    "more": ("proof.txt", "\n\n", "\nx\n\n", "malformed"),
    "index": ("proof.txt", "index 0", "index 1", "proof_invalid"),
    "policy": ("policy", "quorum W", "quorum X", "policy_invalid"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_refused_release_exits_with_1(
    run: Run,
    capsys: pytest.CaptureFixture[str],
    name: str,
) -> None:
    publish(run)
    file, old, new, code = CHANGES[name]
    text = Path(file).read_text()
    Path(file).write_text(new if old is None else text.replace(old, new))
    assert run(*VERIFY, *RULES, "--json") == 1
    captured = capsys.readouterr()
    value = json.loads(captured.out)
    assert value["accepted"] is False
    assert value["code"] == code
    assert captured.err.startswith(f"REFUSED: {code}: ")


def test_another_time_is_asked_for(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    publish(run)
    assert run(*VERIFY, *RULES, "--at", "2099-01-01T00:00:00Z", "--json") == 1
    assert printed(capsys)["code"] == "stale"
    assert run(*VERIFY, *RULES, "--at", "2020-01-01T00:00:00Z", "--json") == 1
    assert printed(capsys)["code"] == "not_yet_valid"
    for time in (
        "tomorrow",
        "2026-11-21T12:00:00",
        "0001-01-01T00:00:00+14:00",
        "9999-12-31T23:59:59-14:00",
    ):
        assert run(*VERIFY, *RULES, "--at", time) == 2


def test_another_name_is_refused(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    publish(run)
    assert run(*VERIFY, "--log-policy", "policy", "--name", "other", "--json") == 1
    assert printed(capsys)["code"] == "release_not_logged"
    assert run(*VERIFY, "--log-policy", "policy") == 0
    assert "any name" in capsys.readouterr().out


def test_a_clients_policy_gives_the_same_result(run: Run) -> None:
    """Its log and its witness, as YAML; production, with AMD's own root."""
    publish(run)
    assert run(*VERIFY, "--policy", write_policy()) == 0
    assert run(*VERIFY, "--policy", write_policy(), "--name", NAME) == 2
    assert run(*VERIFY, "--policy", "missing.yaml") == 2
    other = write_policy().replace(".yaml", "2.yaml")
    Path(other).write_text(Path("p.yaml").read_text().replace(NAME, "curtilage-other"))
    assert run(*VERIFY, "--policy", other) == 1


def write_policy() -> str:
    """Replace the log of a development policy by the published one."""
    from curtilage.cli.deploy.sections import transport_section  # noqa: PLC0415
    from curtilage.policy.document.load import profile_text  # noqa: PLC0415
    from curtilage_dev.emulated.snp_pki import generate_root_keys, make_platform  # noqa: PLC0415
    from curtilage_dev.policy import Emulated, attestation_section  # noqa: PLC0415

    if Path("p.yaml").exists():
        return "p.yaml"
    now = datetime.now(UTC)
    platform = make_platform(generate_root_keys(), now=now)
    root = x509.load_der_x509_certificate(platform.ark)
    names = {
        name: Path(file).read_text().split("+", 2)
        for name, file in (("log", "log.vkey"), ("w", "w/witness.vkey"))
    }
    keys = {
        name: base64.b64encode(base64.b64decode(parts[2])[1:]).decode()
        for name, parts in names.items()
    }
    log = {
        "origin": names["log"][0],
        "key": keys["log"],
        "witnesses": [{"name": names["w"][0], "key": keys["w"]}],
        "quorum": 1,
    }
    section = attestation_section(
        machine=Emulated(root_pem=root.public_bytes(Encoding.PEM)),
        log=json.dumps(log).encode(),
    )
    text = f"{profile_text('default')}\n{section}{transport_section(PADDED)}"
    Path("p.yaml").write_text(text)
    return "p.yaml"


SIGNED = ("--trusted-root", "m.json", "--identity", "me", "--issuer", "them")
PIPES: dict[str, tuple[str, ...]] = {
    "manifest": (*VERIFY, *RULES, "--manifest", "pipe"),
    "proof": (*VERIFY, *RULES, "--proof", "pipe"),
    "log policy": (*VERIFY, "--log-policy", "pipe"),
    "policy": (*VERIFY, "--policy", "pipe"),
    "bundle": (*VERIFY, *RULES, *SIGNED, "--sigstore", "pipe"),
    "log key": ("prove", "served", "--log-key", "pipe", "--manifest", "m.json"),
    "signing key": ("log", "add", "served", "--key", "pipe", "m.json"),
    "measurements": (*MANIFEST, "--measurements", "pipe"),
    "request": ("witness", "cosign", "w", *LOG_KEY, "--request", "pipe"),
    "checkpoint": ("audit", "served", *RULES, "--since", "pipe"),
}


def test_a_pipe_is_refused_not_waited_for(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    publish(run)
    os.mkfifo("pipe")
    for name, arguments in PIPES.items():
        assert run(*arguments) == 2, name
        said = capsys.readouterr().err
        assert "pipe: " in said, name
        assert "ordinary file" in said, name


def test_sigstore_options_go_together(run: Run) -> None:
    publish(run)
    assert run(*VERIFY, *RULES, "--sigstore", "bundle.json") == 2
    assert run(*VERIFY, *RULES, "--identity", "x", "--issuer", "y") == 2
    options = ("--sigstore", "--trusted-root", "--identity", "--issuer")
    unset = [part for option in options for part in (option, "")]
    assert run(*VERIFY, *RULES, *unset) == 2


def test_a_bundle_over_something_else_is_refused(
    run: Run, shared_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case = shared_dir / "evidence/sigstore/bundle-verify/rekor2-happy-path"
    publish(run)
    options = ["--sigstore", str(case / "bundle.sigstore.json")]
    options += ["--trusted-root", str(case / "trusted_root.json")]
    options += ["--issuer", "https://token.actions.githubusercontent.com"]
    identity = (
        "https://github.com/sigstore-conformance/extremely-dangerous-public-oidc-beacon"
        "/.github/workflows/extremely-dangerous-oidc-beacon.yml@refs/heads/main"
    )
    assert run(*VERIFY, *RULES, *options, "--identity", identity, "--json") == 1
    assert printed(capsys)["code"] == "bad_signature"
    assert run(*VERIFY, *RULES, *options, "--identity", "me", "--json") == 1
    assert printed(capsys)["code"] == "endorsement_mismatch"


# --- auditing -------------------------------------------------------------------


def test_a_log_is_audited(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    publish(run)
    assert run("audit", "served", *RULES) == 0
    out = capsys.readouterr().out
    assert "curtilage-enclave 1.0.0 until 20" in out
    assert out.endswith("nothing unexpected\n")
    assert run("audit", "served", *RULES, "--json") == 0
    value = printed(capsys)
    assert (value["clean"], value["size"], value["problems"]) == (True, 1, [])
    assert value["leaves"][0]["version"] == "1.0.0"


def test_an_unexpected_leaf_exits_with_1(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    publish(run)
    rules = ("--log-policy", "policy", "--name", "other")
    assert run("audit", "served", *rules) == 1
    out = capsys.readouterr().out
    assert "!     0" in out
    assert "unknown name" in out
    assert "nothing unexpected" not in out


def test_copies_and_checkpoints_are_compared(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    publish(run)
    earlier = Path("served/checkpoint").read_text()
    Path("earlier").write_text(earlier)
    make(run, "1.1.0", out="n.json")
    assert run("log", "add", "served", "--key", "log.pem", "n.json") == 0
    witness(run)
    assert run("audit", "served", *RULES, "--since", "earlier") == 0
    assert run("audit", "served", *RULES, "--against", "served") == 0
    assert run("audit", "served", *RULES, "--against", str(tmp_path), "--json") == 1
    assert printed(capsys)["problems"][0].startswith("other copy: ")
    Path("earlier").write_text("x")
    assert run("audit", "served", *RULES, "--since", "earlier") == 1
    assert "earlier checkpoint: malformed" in capsys.readouterr().out


# --- the edges ------------------------------------------------------------------


def test_a_key_is_a_text_or_a_file(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    publish(run)
    text = Path("log.vkey").read_text().strip()
    assert run("prove", "served", "--log-key", text, "--manifest", "m.json") == 0
    for wrong in ("missing.vkey", "a+b+c", text[:-4]):
        assert run("prove", "served", "--log-key", wrong, "--manifest", "m.json") == 2
    assert run("prove", "served", *LOG_KEY, "--manifest", "m.json", "--since", "9") == 2
    since = ("--since", "9", "--consistency", "c")
    assert run("prove", "served", *LOG_KEY, "--manifest", "m.json", *since) == 2
    assert "1 leaves" in capsys.readouterr().err


@pytest.mark.parametrize(
    "path",
    [
        (),
        ("manifest",),
        ("log",),
        ("log", "init"),
        ("log", "add"),
        ("log", "request"),
        ("log", "cosign"),
        ("witness",),
        ("witness", "init"),
        ("witness", "cosign"),
        ("prove",),
        ("verify",),
        ("audit",),
    ],
    ids=" ".join,
)
def test_every_command_teaches_by_example(
    path: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["release", *path, "--help"])
    out = capsys.readouterr().out
    assert ended.value.code == 0
    assert "example:\n  curtilage release" in out
    assert "exit: 0 done" in out


def test_progress_is_shown_after_two_seconds_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 100.0

    def clock() -> float:
        return now

    monkeypatch.setattr(terminal, "monotonic", clock)
    Progress().leaves(1, 10)
    assert capsys.readouterr().err == "", "not a terminal"
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    progress = Progress()
    progress.leaves(1, 10)
    now += 1.9
    progress.leaves(2, 10)
    assert capsys.readouterr().err == ""
    now += 0.2
    progress.leaves(3, 10)
    progress.leaves(4, 10)
    now += 0.6
    progress.hashed("model", 3 << 20, 9 << 20)
    progress.leaves(10, 10)
    err = capsys.readouterr().err
    over = "\r\x1b[K"
    assert err == (
        f"{over}3 of 10 leaves{over}model: 3 of 9 MiB{over}10 of 10 leaves\n"
    )
