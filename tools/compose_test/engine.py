"""A container engine for the length of a test: Debian's, started by hand.

Its data, its socket and its addresses are its own. The compose plugin comes out of the
package of a newer Debian, unpacked and not installed. What the engine changes in this
machine's network is put back.
"""

import contextlib
import json
import os
import platform
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from deploy.image.debs import find_in_package
from deploy.image.errors import ImageError
from deploy.image.packages import PrivateApt, host_sources
from tools.compose_test import network
from tools.compose_test.errors import CannotRunError, FailedError

# Another client of this name may come first on the path, without the plugin.
DOCKER: Final = Path("/usr/bin/docker")
DAEMON: Final = Path("/usr/sbin/dockerd")
PROGRAMS: Final = (DOCKER, DAEMON, Path("/usr/sbin/iptables"))
SUITE: Final = "bookworm"
# A pattern, so that apt takes the package of that name, and not a host.
PACKAGES: Final = ("^docker[.]io$", "iptables")
PLUGIN_SUITE: Final = "trixie"
PLUGIN: Final = "docker-compose"
BRIDGE_ADDRESS: Final = "10.231.0.1/24"
ADDRESS_POOL: Final = "base=10.232.0.0/16,size=24"
START_S: Final = 30.0
STOP_S: Final = 20.0
COMMAND_S: Final = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """A running engine.

    Attributes:
        folder: its socket, its log and the plugin.
    """

    folder: Path

    @property
    def environment(self) -> Mapping[str, str]:
        """The environment of the client's commands."""
        kept = {
            name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ
        }
        return {
            **kept,
            "DOCKER_CONFIG": str(self.folder / "cfg"),
            "DOCKER_HOST": f"unix://{self.folder / 'docker.sock'}",
        }

    def run(
        self,
        *arguments: str,
        variables: Mapping[str, str] | None = None,
        timeout_s: float = COMMAND_S,
    ) -> "subprocess.CompletedProcess[str]":
        """Run one command of the client, whatever comes of it."""
        return subprocess.run(
            [str(DOCKER), *arguments],
            env={**self.environment, **(variables or {})},
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_s,
        )

    def get(self, *arguments: str) -> str:
        """Run one command and return its output.

        Raises:
            FailedError: it failed.
        """
        done = self.run(*arguments)
        if done.returncode != 0:
            words = " ".join(arguments[:3])
            raise FailedError(f"docker {words}: {(done.stderr or done.stdout)[-600:]}")
        return done.stdout.strip()

    def inspect(self, name: str) -> dict[str, Any]:
        """Return what the engine knows of a container, an image or a network."""
        found = cast("list[dict[str, Any]]", json.loads(self.get("inspect", name)))
        return found[0]


@contextlib.contextmanager
def running_engine(folder: Path, say: Callable[[str], None]) -> Generator[Engine]:
    """Run an engine until the context ends.

    Args:
        folder: for all that it needs; images and containers are removed at the end.
        say: receives one line for each step.

    Raises:
        CannotRunError: not on this machine.
        FailedError: the network is not what it was.
    """
    require_machine()
    folder.mkdir(parents=True, exist_ok=True)
    _install(say)
    engine = Engine(folder=folder)
    say(f"engine: {engine.get('--version')}")
    _unpack_plugin(folder, say)
    say(f"plugin: {engine.get('compose', 'version')}")
    before = network.read_settings()
    try:
        daemon = _start(engine)
        try:
            yield engine
        finally:
            _stop(daemon)
    finally:
        network.restore(before)
        shutil.rmtree(folder / "data", ignore_errors=True)
    if network.read_settings().effective != before.effective:
        raise FailedError("the network's settings are not what they were")


def require_machine() -> None:
    """Refuse a machine on which the recipe does not work.

    Raises:
        CannotRunError: says why.
    """
    if os.geteuid() != 0:
        raise CannotRunError("an engine needs root")
    release = platform.freedesktop_os_release()
    if release.get("VERSION_CODENAME") != SUITE:
        raise CannotRunError(f"the recipe is for Debian {SUITE}")
    if platform.machine() != "x86_64":
        raise CannotRunError("the images are for x86-64")
    if network.BRIDGE in network.bridges():
        raise CannotRunError("another engine runs here (there is a docker0)")


def _install(say: Callable[[str], None]) -> None:
    if all(path.exists() for path in PROGRAMS):
        return
    say("installing Debian's engine; no service is started")
    for command in (
        ["apt-get", "update", "-qq"],
        ["apt-get", "install", "-qq", "-y", "--no-install-recommends", *PACKAGES],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise CannotRunError(f"{command[1]} failed: {done.stderr[-400:]}")


def _unpack_plugin(folder: Path, say: Callable[[str], None]) -> None:
    target = folder / "cfg" / "cli-plugins" / PLUGIN
    if target.exists():
        return
    say(f"fetching the compose plugin of Debian {PLUGIN_SUITE}")
    try:
        apt = PrivateApt(folder / "apt", host_sources())
        apt.update()
        found = apt.newest([PLUGIN], PLUGIN_SUITE)[0]
        incoming = folder / "incoming"
        incoming.mkdir(exist_ok=True)
        apt.download([f"{PLUGIN}={found['Version']}"], incoming)
        content = find_in_package(
            next(incoming.glob(f"{PLUGIN}_*.deb")), f"/cli-plugins/{PLUGIN}"
        )
    except ImageError as error:
        raise CannotRunError(str(error)) from None
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content)
    target.chmod(0o755)


def _start(engine: Engine) -> "subprocess.Popen[bytes]":
    folder = engine.folder
    command = [str(DAEMON), "--data-root", str(folder / "data")]
    command += ["--exec-root", str(folder / "exec"), "-p", str(folder / "dockerd.pid")]
    command += ["-H", engine.environment["DOCKER_HOST"], "--bip", BRIDGE_ADDRESS]
    command += ["--default-address-pool", ADDRESS_POOL]
    log = folder / "dockerd.log"
    with log.open("wb") as output:
        # A group of its own: an interrupt at the terminal must not reach it before
        # the containers are down.
        daemon = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    until = time.monotonic() + START_S
    while engine.run("version").returncode != 0:
        if daemon.poll() is not None or time.monotonic() > until:
            _stop(daemon)
            last = log.read_text("utf-8", "replace")[-400:]
            raise CannotRunError(f"the engine does not start here: {last}")
        time.sleep(0.2)
    return daemon


def _stop(daemon: "subprocess.Popen[bytes]") -> None:
    """End the engine, also where this is interrupted: only then is the network free."""
    daemon.send_signal(signal.SIGTERM)
    try:
        daemon.wait(STOP_S)
    except subprocess.TimeoutExpired:
        daemon.kill()
    finally:
        daemon.wait(STOP_S)
