"""Starts a built image in an emulated machine, to try it out; it proves nothing.

QEMU without hardware help is slow, encrypts nothing and attests nothing. It shows that
the image starts, that it serves, and, with a software TPM, that PCR 11 is what
``pcr11`` predicts. There are two ways: the kernel directly, as on an SNP host with
kernel hashes; or the unified kernel image through OVMF, as on a machine with a TPM.
"""

import contextlib
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from deploy.image.build import COMMAND_LINE_FILE, INITRD, KERNEL, UKI
from deploy.image.errors import ImageError, MissingError
from deploy.image.push import connect

# NumPy needs x86-64-v2, which has cx16; with it, and with these three, the emulated
# processor sometimes crashes the kernel before init has begun: then start again.
CPU: Final = "max,-la57,-pks,-pku"
TRIES: Final = 6
MEMORY_MIB: Final = 2048
DOORS: Final = (8443, 8444)
CONSOLE: Final = "console.log"
OVMF: Final = (
    Path("/usr/share/OVMF/OVMF_CODE_4M.fd"),
    Path("/usr/share/OVMF/OVMF_VARS_4M.fd"),
)
_LINE: Final = re.compile(r"init: ([^\r\n]*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Guest:
    """A running machine.

    Attributes:
        process: QEMU.
        console: the guest's output.
        ports: on 127.0.0.1, of the server and of the intake.
    """

    process: "subprocess.Popen[bytes]"
    console: Path
    ports: tuple[int, int]

    @property
    def addresses(self) -> tuple[str, str]:
        """The two ports in the form that ``push`` expects."""
        first, second = (f"tcp:127.0.0.1:{port}" for port in self.ports)
        return first, second

    def lines(self) -> list[str]:
        """Return what init has printed so far."""
        if not self.console.exists():
            return []
        return _LINE.findall(self.console.read_text("utf-8", "replace"))

    def tail(self, count: int = 25) -> list[str]:
        """Return the last lines of the console."""
        if not self.console.exists():
            return []
        return self.console.read_text("utf-8", "replace").splitlines()[-count:]

    def wait_for_line(self, beginning: str, *, timeout_s: float) -> str:
        """Wait for a line of init and return the text after its beginning.

        Raises:
            ImageError: the machine ended first, or the time was up.
        """
        until = time.monotonic() + timeout_s
        while True:
            for line in self.lines():
                if line.startswith(beginning):
                    return line.removeprefix(beginning).strip()
            if self.process.poll() is not None or time.monotonic() > until:
                raise ImageError(f'the guest never said "{beginning}": {self.lines()}')
            time.sleep(0.5)


@contextlib.contextmanager
def booted(
    image: Path, work: Path, *, patience_s: float, tpm: bool = False
) -> Generator[Guest]:
    """Run an image until the context ends; its address must be 10.0.2.15/24.

    Args:
        image: folder that ``build`` made.
        work: an empty folder, for the console and the state of firmware and TPM.
        patience_s: how long to wait for its first process's first line.
        tpm: start the unified kernel image through OVMF, with a software TPM.

    Raises:
        MissingError: QEMU, OVMF or swtpm is not installed.
        ImageError: its first process never wrote a line.
    """
    require("qemu-system-x86_64", "qemu-system-x86")
    for number in range(1, TRIES + 1):
        folder = work / str(number)
        folder.mkdir()
        with _started(image, folder, tpm=tpm) as guest:
            try:
                guest.wait_for_line("pcr11", timeout_s=patience_s)
            except ImageError:
                if guest.process.poll() is None or number == TRIES:
                    raise
                continue
            yield guest
            return


@contextlib.contextmanager
def _started(image: Path, work: Path, *, tpm: bool) -> Generator[Guest]:
    ports = (_free_port(), _free_port())
    console = work / CONSOLE
    with contextlib.ExitStack() as running:
        command = _machine(work, ports)
        if tpm:
            command += running.enter_context(_tpm(work)) + _firmware(image, work)
        else:
            arguments = (image / COMMAND_LINE_FILE).read_text("ascii")
            command += ["-kernel", str(image / KERNEL), "-append", arguments]
            command += ["-initrd", str(image / INITRD)]
        output = running.enter_context(console.open("wb"))
        process = subprocess.Popen(  # noqa: S603 - every argument is ours
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
        running.callback(_end, process)
        yield Guest(process=process, console=console, ports=ports)


def wait_for_health(
    address: str, process: "subprocess.Popen[bytes]", *, timeout_s: float
) -> str:
    """Ask the server for its health until it answers; return the answer.

    Raises:
        ImageError: the machine ended first, or the time was up.
    """
    until = time.monotonic() + timeout_s
    while time.monotonic() < until and process.poll() is None:
        with contextlib.suppress(OSError):
            answer = ask(address, "/healthz")
            if answer.startswith("HTTP/1.1 200"):
                return answer.rpartition("\r\n")[2].strip()
        time.sleep(1.0)
    raise ImageError("the server does not answer")


def ask(address: str, path: str) -> str:
    """Send one GET request through the guest's door; return the whole answer.

    Raises:
        OSError: there is no answer.
    """
    request = f"GET {path} HTTP/1.1\r\nHost: guest\r\nConnection: close\r\n\r\n"
    with connect(address) as door:
        door.sendall(request.encode())
        parts = list(iter(lambda: door.recv(65536), b""))
    return b"".join(parts).decode("utf-8", "replace")


def require(program: str, package: str) -> None:
    """Refuse to continue without a program.

    Raises:
        MissingError: names the package that contains it.
    """
    if shutil.which(program) is None:
        raise MissingError(f"{program} is missing: apt-get install {package}")


def _machine(work: Path, ports: tuple[int, int]) -> list[str]:
    forwards = ",".join(
        f"hostfwd=tcp:127.0.0.1:{port}-:{inside}"
        for port, inside in zip(ports, DOORS, strict=True)
    )
    command = ["qemu-system-x86_64", "-machine", "q35", "-m", str(MEMORY_MIB)]
    command += ["-accel", "tcg,thread=single", "-cpu", CPU, "-nodefaults"]
    command += ["-display", "none", "-serial", "stdio", "-no-reboot"]
    # restrict: the guest reaches nothing outside, the host reaches the guest.
    command += ["-netdev", f"user,id=net,restrict=on,{forwards}"]
    command += ["-device", "virtio-net-pci,netdev=net,romfile="]
    return [*command, "-pidfile", str(work / "qemu.pid")]


def _firmware(image: Path, work: Path) -> list[str]:
    if not all(path.is_file() for path in OVMF):
        raise MissingError("OVMF is missing: apt-get install ovmf")
    code, variables = OVMF
    own = work / "variables.fd"
    shutil.copyfile(variables, own)
    program = work / "esp" / "EFI" / "BOOT" / "BOOTX64.EFI"
    program.parent.mkdir(parents=True)
    shutil.copyfile(image / UKI, program)
    command = ["-drive", f"if=pflash,format=raw,readonly=on,file={code}"]
    command += ["-drive", f"if=pflash,format=raw,file={own}"]
    disk = f"if=none,id=esp,format=raw,file=fat:rw:{work / 'esp'}"
    return [*command, "-drive", disk, "-device", "virtio-blk-pci,drive=esp"]


@contextlib.contextmanager
def _tpm(work: Path) -> Generator[list[str]]:
    require("swtpm", "swtpm")
    state = work / "tpm"
    state.mkdir()
    control = work / "tpm.sock"
    command = ["swtpm", "socket", "--tpm2", "--tpmstate", f"dir={state}"]
    command += ["--ctrl", f"type=unixio,path={control}", "--flags", "startup-clear"]
    process = subprocess.Popen(command)  # noqa: S603 - every argument is ours
    try:
        until = time.monotonic() + 20
        while not control.exists() and time.monotonic() < until:
            time.sleep(0.05)
        arguments = ["-chardev", f"socket,id=tpm,path={control}"]
        arguments += ["-tpmdev", "emulator,id=tpm0,chardev=tpm"]
        yield [*arguments, "-device", "tpm-crb,tpmdev=tpm0"]
    finally:
        _end(process)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
