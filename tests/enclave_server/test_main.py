import os
import resource
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

import curtilage.enclave_server.__main__ as command
from curtilage.enclave_server.config import EnclaveConfig
from curtilage.enclave_server.errors import BundleError
from curtilage.enclave_server.service import Surroundings
from support.enclave_deployment import config_text, make_world

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
