"""Install the peers and build them, once for each state of their sources."""

import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent


class InstallError(Exception):
    """A step failed; contains the program's last output."""


@dataclass(frozen=True, kw_only=True)
class Installed:
    """How the peers are started.

    Attributes:
        go: the program that is gateway and client.
        node: the command that is a gateway.
    """

    go: Path
    node: tuple[str, ...]


def install(cache: Path) -> Installed:
    """Install what is missing; report slow steps.

    Raises:
        InstallError: a download or a build failed.
    """
    cache.mkdir(parents=True, exist_ok=True)
    toolchain = _go_toolchain(cache)
    return Installed(go=_go_peer(cache, toolchain), node=_node_peer(cache))


def _go_toolchain(cache: Path) -> Path:
    pins = HERE / "requirements.txt"
    made = cache / f"go-{_digest([pins])}"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
    command += [
        "--require-hashes",
        "--only-binary=:all:",
        "--disable-pip-version-check",
    ]
    command += ["--requirement", str(pins), "--target", "."]
    _make(made, "Go's toolchain, 75 MB", command)
    return made / "go"


def _go_peer(cache: Path, toolchain: Path) -> Path:
    made = cache / f"peer-{_digest([HERE / 'requirements.txt', *_files('go')])}"
    environment = {
        "GOROOT": str(toolchain),
        "GOPATH": str(cache / "gopath"),
        "GOCACHE": str(cache / "gocache"),
        "GOPROXY": "off",
        "GOTOOLCHAIN": "local",
        "GOTELEMETRY": "off",
        "CGO_ENABLED": "0",
    }
    command = [str(toolchain / "bin" / "go"), "build", "-trimpath", "-o", "peer", "."]
    title = "Go's peer (the first build takes half a minute)"
    _make(made, title, command, sources="go", environment=environment)
    return made / "peer"


def _node_peer(cache: Path) -> tuple[str, ...]:
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        raise InstallError("Node 20 or newer, with npm, must be on the path")
    made = cache / f"node-{_digest(_files('node'))}"
    command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"]
    _make(made, "Node's packages", command, sources="node")
    return (node, str(made / "gateway.mjs"))


def _files(folder: str) -> list[Path]:
    return sorted(path for path in (HERE / folder).iterdir() if path.is_file())


def _digest(files: Sequence[Path]) -> str:
    joined = b"".join(hashlib.sha256(path.read_bytes()).digest() for path in files)
    return hashlib.sha256(joined).hexdigest()[:16]


def _make(
    made: Path,
    title: str,
    command: Sequence[str],
    *,
    sources: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> None:
    """Run a command in a new folder, which gets its name once it succeeded."""
    if made.exists():
        return
    sys.stdout.write(f"  {title} … ")
    sys.stdout.flush()
    started = time.monotonic()
    unfinished = made.with_name(f"{made.name}.part")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir()
    for source in _files(sources) if sources else []:
        shutil.copy(source, unfinished)
    done = subprocess.run(
        list(command),
        cwd=unfinished,
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        sys.stdout.write("failed\n")
        raise InstallError(f"{title}: {(done.stderr or done.stdout)[-2000:].strip()}")
    unfinished.rename(made)
    sys.stdout.write(f"{time.monotonic() - started:.0f} s\n")
