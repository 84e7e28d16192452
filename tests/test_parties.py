"""Each party runs from its own folders alone, and the wheel holds no emulator."""

import json
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
SITE = sysconfig.get_paths()["purelib"]
PROBE = """\
import importlib, json, pkgutil, sys
sys.path[:0] = json.loads(sys.argv[1])
part = importlib.import_module(sys.argv[2])
for module in pkgutil.iter_modules(part.__path__):
    importlib.import_module(f"{part.__name__}.{module.name}")
print(json.dumps(sorted(name for name in sys.modules)))
"""
# The parts that the wheel holds, and the command line as it starts there.
INSTALLED = """\
import json, sys
sys.path[:0] = json.loads(sys.argv.pop(1))
from curtilage.cli.main import main
sys.exit(main())
"""
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
WHEEL = PROJECT["hatch"]["build"]["targets"]["wheel"]["packages"]
IN_WHEEL = [str(ROOT / name.removesuffix("/curtilage")) for name in WHEEL] + [SITE]


def installed(*words: str) -> subprocess.CompletedProcess[str]:
    """Run the command line with what the wheel holds, and nothing else of ours."""
    return subprocess.run(
        [sys.executable, "-I", "-S", "-c", INSTALLED, json.dumps(IN_WHEEL), *words],
        capture_output=True,
        text=True,
        check=False,
    )


def loaded(part: str, folders: list[str]) -> set[str]:
    """Import a whole part with only these folders; return what was loaded."""
    paths = [str(ROOT / folder) for folder in folders] + [SITE]
    done = subprocess.run(
        # -S: no .pth file adds the other parts.
        [sys.executable, "-I", "-S", "-c", PROBE, json.dumps(paths), part],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout))


def test_the_relay_runs_from_its_folder_alone() -> None:
    modules = loaded("curtilage.relay", ["relay"])
    ours = {name for name in modules if name.startswith("curtilage.")}
    assert all(name.startswith("curtilage.relay") for name in ours)
    assert not modules & {"cryptography", "pyhpke", "pydantic", "yaml"}


def test_the_enclave_runs_without_policy_and_detectors() -> None:
    folders = ["sandbox", "wire", "attest", "inference", "enclave_server"]
    modules = loaded("curtilage.enclave_server", folders)
    assert not modules & {"pydantic", "yaml", "presidio_analyzer", "spacy"}
    assert "curtilage.attest.verify" in modules  # its own bundle, one module


@pytest.mark.parametrize("part", ["sandbox", "wire", "inference"])
def test_a_leaf_runs_from_its_folder_alone(part: str) -> None:
    loaded(f"curtilage.{part}", [part])


def test_the_client_imports_without_the_extras() -> None:
    code = (
        "import sys\n"
        "for name in ('presidio_analyzer', 'spacy', 'llama_cpp', 'numpy',"
        " 'opentelemetry', 'huggingface_hub'):\n"
        "    sys.modules[name] = None\n"
        "import importlib, pkgutil\n"
        "from curtilage import cli\n"
        "from curtilage.client import Client, SyncClient\n"
        "for module in pkgutil.walk_packages(cli.__path__, 'curtilage.cli.'):\n"
        "    if module.name != 'curtilage.cli.__main__':\n"
        "        importlib.import_module(module.name)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_wheel_carries_data_and_no_emulator(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pip", "wheel", "--no-deps", "--quiet"),
            *("--no-build-isolation", "--disable-pip-version-check"),
            *("--wheel-dir", str(tmp_path), str(ROOT)),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    listed = subprocess.run(
        [sys.executable, "-m", "zipfile", "-l", str(wheel)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "curtilage/policy/profiles/default.yaml" in listed
    assert "curtilage/relay/py.typed" in listed
    assert "curtilage/cli/report/templates/policy_report.html" in listed
    assert "curtilage_dev" not in listed
    assert "emulator" not in listed
    assert "emulated" not in listed
    # Who measures has a checkout: neither that nor the training comes with the library.
    assert "lab/" not in listed
    assert "training" not in listed


def test_evaluate_says_what_it_needs_where_it_is_not_installed() -> None:
    done = installed("evaluate", "--data", ".")
    assert done.returncode == 3
    assert "source checkout" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "command",
    [
        "evaluate --help",
        "policy list",
        "policy check",
        "policy diff --help",
        "decide --help",
    ],
)
def test_other_commands_need_no_evaluation(command: str) -> None:
    done = installed(*command.split())
    assert done.returncode == 0, done.stderr


def test_a_report_needs_no_evaluation(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    done = installed("policy", "report", "--policy", "clinic", "--out", str(page))
    assert done.returncode == 0, done.stderr
    assert page.read_text().startswith("<!DOCTYPE html>")
