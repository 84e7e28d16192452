"""Each party runs from its own folders alone, and the wheel holds no emulator."""

import json
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

from curtilage.lab.commands.table import laboratory

LABORATORY = frozenset(laboratory.commands)
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
# A command of the laboratory, with what it needs to begin.
NEEDED = {
    "evaluate": ("--data", "nowhere.jsonl"),
    "route advise": ("--trace", "nowhere.jsonl"),
    "route answer": ("--data", "nowhere.jsonl", "--out", "out.jsonl"),
    "route calibrate": ("--data", "nowhere.jsonl"),
    "route certify": ("--data", "nowhere.jsonl"),
    "route compare": ("--data", "nowhere.jsonl", "default", "default"),
}
IN_WHEEL = [str(ROOT / name.removesuffix("/curtilage")) for name in WHEEL] + [SITE]


def installed(
    *words: str, more: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    """Run the command line with what the wheel holds, and nothing else of ours."""
    paths = json.dumps([*more, *IN_WHEEL])
    return subprocess.run(
        [sys.executable, "-I", "-S", "-c", INSTALLED, paths, *words],
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
    assert not modules & {"cryptography", "jinja2", "pyhpke", "pydantic", "yaml"}


def test_the_enclave_runs_without_policy_and_detectors() -> None:
    folders = ["sandbox", "wire", "attest", "inference", "enclave_server"]
    modules = loaded("curtilage.enclave_server", folders)
    assert not modules & {"pydantic", "yaml", "presidio_analyzer", "spacy"}
    assert "curtilage.attest.verify" in modules  # its own bundle, one module


@pytest.mark.parametrize("part", ["sandbox", "wire"])
def test_a_leaf_runs_from_its_folder_alone(part: str) -> None:
    loaded(f"curtilage.{part}", [part])


def test_the_engine_runs_with_its_sandbox_alone() -> None:
    loaded("curtilage.inference", ["inference", "sandbox"])


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


def wheel_of(folder: Path, to: Path) -> Path:
    """Build the wheel of a folder, without a look at any registry."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pip", "wheel", "--no-deps", "--quiet"),
            *("--no-build-isolation", "--disable-pip-version-check"),
            *("--wheel-dir", str(to), str(folder)),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (wheel,) = to.glob("*.whl")
    return wheel


def test_the_wheel_carries_data_and_no_emulator(tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel_of(ROOT, tmp_path)) as wheel:
        listed = "\n".join(wheel.namelist())
    assert "curtilage/policy/profiles/default.yaml" in listed
    assert "curtilage/relay/py.typed" in listed
    assert "curtilage/cli/report/templates/policy_report.html" in listed
    assert "curtilage_dev" not in listed
    assert "emulator" not in listed
    assert "emulated" not in listed
    # Measuring needs a checkout: neither that nor the training comes with the product.
    assert "lab/" not in listed
    assert "training" not in listed


def test_the_laboratorys_wheel_brings_its_commands(tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel_of(ROOT / "lab", tmp_path)) as wheel:
        listed = wheel.namelist()
        wheel.extractall(tmp_path / "site")
    code = [name for name in listed if ".dist-info/" not in name]
    assert all(name.startswith("curtilage/lab/") for name in code)
    assert "curtilage/lab/py.typed" in code
    assert "curtilage/lab/evaluation/texts/redteam.jsonl" in code
    site = str(tmp_path / "site")
    sheet = tmp_path / "sheet.csv"
    (tmp_path / "texts.txt").write_text("A text.\n", "utf-8")
    words = ("--texts", str(tmp_path / "texts.txt"), "--sheet", str(sheet))
    done = installed("evaluate", *words, more=(site,))
    assert done.returncode == 0, done.stderr
    assert "A text." in sheet.read_text("utf-8-sig")
    for command in LABORATORY - {"evaluate"}:
        done = installed(*command.split(), *NEEDED[command], more=(site,))
        assert "laboratory" not in done.stderr
        assert "nowhere.jsonl" in done.stderr


def test_the_laboratory_wants_the_product_of_its_own_version() -> None:
    product = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lab = tomllib.loads((ROOT / "lab/pyproject.toml").read_text())["project"]
    assert lab["version"] == product["version"]
    assert lab["dependencies"] == [f"curtilage[llm,pii]=={product['version']}"]


@pytest.mark.parametrize("command", sorted(LABORATORY))
def test_a_command_says_that_the_laboratory_is_not_installed(command: str) -> None:
    done = installed(*command.split(), *NEEDED[command])
    assert done.returncode == 3
    assert "pip install . ./lab" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "command",
    [
        *(f"{each} --help" for each in sorted(LABORATORY)),
        "policy list",
        "policy check",
        "policy diff --help",
        "decide --help",
    ],
)
def test_help_and_other_commands_need_no_laboratory(command: str) -> None:
    done = installed(*command.split())
    assert done.returncode == 0, done.stderr


def test_help_lists_the_commands_of_the_laboratory_without_it() -> None:
    listed = installed("--help").stdout + installed("route", "--help").stdout
    for command in LABORATORY:
        assert f"\n  {command.removeprefix('route ')}" in listed


def test_a_report_needs_no_laboratory(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    done = installed("policy", "report", "--policy", "clinic", "--out", str(page))
    assert done.returncode == 0, done.stderr
    assert page.read_text().startswith("<!DOCTYPE html>")
