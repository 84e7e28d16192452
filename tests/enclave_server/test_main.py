import os
import resource
import subprocess
import sys
from dataclasses import replace
from hashlib import sha256
from importlib import metadata
from pathlib import Path

import pytest

import curtilage.enclave_server.__main__ as command
from curtilage.attest.evidence import Tee
from curtilage.attest.sandbox import Ephemerality, Isolation
from curtilage.enclave_server.config import EnclaveConfig
from curtilage.enclave_server.confinement import description
from curtilage.enclave_server.errors import BundleError
from curtilage.enclave_server.service import Surroundings
from curtilage.sandbox.trial import landlock_version
from support.enclave_deployment import config_text, make_any_world, make_world

Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def limits_set(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, tuple[int, int]]]:
    """Keep the command from limiting this process, and so the tests' children."""
    seen: list[tuple[int, tuple[int, int]]] = []

    def note(kind: int, limit: tuple[int, int]) -> None:
        seen.append((kind, limit))

    monkeypatch.setattr(resource, "setrlimit", note)
    return seen


@pytest.fixture
def config(tmp_path: Path) -> Path:
    world = make_world(tmp_path)
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    path = tmp_path / "enclave.toml"
    path.write_text(config_text(tmp_path, world.deployment), "utf-8")
    return path


def test_check_of_a_good_configuration(config: Path, capsys: Captured) -> None:
    assert command.main(["--config", str(config), "--check"]) == 0
    assert capsys.readouterr() == ("", f"{command.VALID}\n")


@pytest.mark.parametrize("file", ["model.gguf", "root.pem", "release/proof.txt"])
def test_check_finds_what_is_missing(config: Path, file: str, capsys: Captured) -> None:
    (config.parent / file).unlink()
    assert command.main(["--config", str(config), "--check"]) == 2
    assert str(config) in capsys.readouterr().err


@pytest.mark.parametrize(
    "content", [None, b"", b"\xff", b"a = 1", b"#" * 70_000], ids=str
)
def test_unusable_file_is_a_configuration_error(
    config: Path, content: bytes | None, capsys: Captured
) -> None:
    if content is None:
        config.unlink()
    else:
        config.write_bytes(content)
    assert command.main(["--config", str(config)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(str(config))


def test_missing_argument_is_a_usage_error(capsys: Captured) -> None:
    with pytest.raises(SystemExit) as caught:
        command.main([])
    assert caught.value.code == 2
    assert "--config" in capsys.readouterr().err


def test_help_has_an_example_that_parses(capsys: Captured) -> None:
    with pytest.raises(SystemExit) as caught:
        command.main(["--help"])
    assert caught.value.code == 0
    text = capsys.readouterr().out
    assert "curtilage-enclave --config" in text
    assert "exit codes: 0" in text


def test_core_dumps_are_forbidden_first(
    limits_set: list[tuple[int, tuple[int, int]]],
) -> None:
    with pytest.raises(SystemExit):
        command.main([])
    assert limits_set == [(resource.RLIMIT_CORE, (0, 0))]


def test_version_is_printed(capsys: Captured) -> None:
    with pytest.raises(SystemExit) as caught:
        command.main(["--version"])
    assert caught.value.code == 0
    version = metadata.version("curtilage")
    assert capsys.readouterr().out == f"curtilage-enclave {version}\n"


def test_version_without_a_distribution_is_unknown(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    with pytest.raises(SystemExit):
        command.main(["--version"])
    assert capsys.readouterr().out == "curtilage-enclave unknown\n"


@pytest.mark.parametrize(
    "line",
    [
        "--help >/dev/full",
        "--version >/dev/full",
        "--version >&-",
        "--unknown 2>/dev/full",
        "--unknown 2>&-",
        '--config "$1" 2>/dev/full',
        '--config "$1" --check 2>/dev/full',
        '--config "$1" --check 2>&-',
        '--config "$1" --check >&-',
    ],
)
def test_stream_that_cannot_be_written_exits_with_3(config: Path, line: str) -> None:
    script = f'exec "$0" -m curtilage.enclave_server {line}'
    done = subprocess.run(
        ["/bin/sh", "-c", script, sys.executable, str(config)],
        capture_output=True,
        check=False,
        env={**os.environ, "PYTHONUNBUFFERED": ""},  # empty means unset
        timeout=30,
    )
    assert (done.returncode, done.stderr) == (3, b"")


def test_ready_line_that_cannot_be_written_exits_with_3(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def serve(_config: EnclaveConfig, around: Surroundings) -> None:
        around.out("ready")

    monkeypatch.setattr(command, "serve_until_signalled", serve)
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert command.main(["--config", str(config)]) == 3


def test_unusable_model_is_a_failure(config: Path, capsys: Captured) -> None:
    pytest.importorskip("llama_cpp")
    assert command.main(["--config", str(config)]) == 2
    assert "model.sha256: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (None, (0, "")),
        (BundleError("stale", "our own is refused"), (3, "cannot serve: our own")),
        (OSError(98, "Address already in use"), (3, "cannot listen: Address")),
        (OSError(), (3, "cannot listen: OSError")),
    ],
)
def test_outcome_becomes_an_exit_code(
    config: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Captured,
    error: Exception | None,
    outcome: tuple[int, str],
) -> None:
    async def serve(_config: EnclaveConfig, around: Surroundings) -> None:
        around.out("ready")
        if error is not None:
            raise error

    monkeypatch.setattr(command, "serve_until_signalled", serve)
    code = command.main(["--config", str(config)])
    captured = capsys.readouterr()
    assert captured.out == "ready\n"
    assert code == outcome[0]
    assert captured.err.startswith(outcome[1])


# The sandbox that a release names.


def test_the_description_is_printed_byte_for_byte(
    config: Path, capsys: Captured
) -> None:
    assert command.main(["sandbox", "--config", str(config), "--landlock", "6"]) == 0
    captured = capsys.readouterr()
    described = description(landlock=6, devices=False)
    assert captured.out.encode() == described
    # What the manifest's options want, for whoever has no file.
    assert f"sha256 {sha256(described).hexdigest()}; " in captured.err
    assert "--isolation shared --ephemerality overwritten" in captured.err


def test_without_a_configuration_it_is_the_usual_ones_sandbox(
    capsys: Captured,
) -> None:
    assert command.main(["sandbox", "--landlock", "6"]) == 0
    described = description(landlock=6, devices=False)
    assert capsys.readouterr().out.encode() == described


def test_what_separates_requests_can_be_said_without_a_configuration(
    config: Path, capsys: Captured
) -> None:
    words = ["sandbox", "--landlock", "6", "--isolation", "process"]
    assert command.main(words) == 0
    described = description(landlock=6, devices=False, forks=True)
    assert capsys.readouterr().out.encode() == described
    # The configuration's own counts.
    assert command.main([*words, "--config", str(config)]) == 2
    assert "model.isolation: not process" in capsys.readouterr().err


def test_serving_needs_a_configuration(capsys: Captured) -> None:
    with pytest.raises(SystemExit, match="2"):
        command.main(["serve"])
    assert "required: --config" in capsys.readouterr().err


def test_an_engine_with_a_gpu_has_another_description(
    config: Path, capsys: Captured
) -> None:
    text = config.read_text("utf-8")
    config.write_text(f"{text}gpu_layers = 1\n", "utf-8")
    assert command.main(["sandbox", "--config", str(config), "--landlock", "6"]) == 0
    described = description(landlock=6, devices=True)
    assert capsys.readouterr().out.encode() == described


def test_a_process_for_each_request_has_another_description(
    config: Path, capsys: Captured
) -> None:
    text = config.read_text("utf-8")
    config.write_text(f'{text}isolation = "process"\n', "utf-8")
    assert command.main(["sandbox", "--config", str(config), "--landlock", "6"]) == 0
    captured = capsys.readouterr()
    described = description(landlock=6, devices=False, forks=True)
    assert captured.out.encode() == described
    assert "--isolation process --ephemerality process" in captured.err


def test_another_servers_engine_has_no_sandbox(config: Path, capsys: Captured) -> None:
    text = config.read_text("utf-8")
    peer = 'engine = "openai"\nname = "m"\naddress = "unix:/none"\n'
    config.write_text(text[: text.index("path = ")] + peer, "utf-8")
    assert command.main(["sandbox", "--config", str(config)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "so no sandbox" in captured.err


@pytest.mark.parametrize(
    ("digest", "devices", "code"),
    # Ours, that of a server with a GPU, and nobody's.
    [("ours", False, 0), ("ours", True, 2), ("12" * 32, False, 2)],
)
def test_check_compares_the_sandbox_that_the_release_names(
    tmp_path: Path, capsys: Captured, digest: str, *, devices: bool, code: int
) -> None:
    if not landlock_version():
        pytest.skip("SKIPPED LOUDLY: this kernel has no Landlock")
    ours = sha256(description(devices=devices)).hexdigest()
    world = make_any_world(
        tmp_path,
        Tee.EMULATED_NITRO,
        change=lambda manifest: replace(
            manifest,
            sandbox=ours if digest == "ours" else digest,
            isolation=Isolation.SHARED,
            ephemerality=Ephemerality.NONE,
        ),
    )
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    anchors = "".join(
        f'[[trust_anchors]]\nkind = "emulated"\nproduct = "{each.product}"\n'
        f'certificate = "{each.certificate}"\n'
        for each in world.config.anchors
    )
    path = tmp_path / "enclave.toml"
    path.write_text(config_text(tmp_path, world.deployment, anchors=anchors), "utf-8")
    assert command.main(["--config", str(path), "--check"]) == code
    assert ("it names the sandbox" in capsys.readouterr().err) is (code == 2)


RESTARTED = """
import os, sys
from curtilage.enclave_server.process import restart_with
print(os.environ.get("CURTILAGE_SETTING"), flush=True)
restart_with({"CURTILAGE_SETTING": "1"})
print(sys.argv[1:], os.environ["OTHER"])
"""


def test_it_restarts_itself_once_with_its_settings() -> None:
    done = subprocess.run(
        [sys.executable, "-B", "-c", RESTARTED, "an argument"],
        capture_output=True,
        check=True,
        env={**os.environ, "OTHER": "kept"},
        text=True,
        timeout=30,
    )
    assert done.stdout.splitlines() == ["None", "1", "['an argument'] kept"]
