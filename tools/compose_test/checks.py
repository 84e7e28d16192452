"""What must be in force around each container, seen from outside and from inside.

Each check yields problems under its own name, so that a test of a mutant can tell
whether the right one went off.
"""

import ast
import ipaddress
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from tools.compose_test.stack import HEALTHY, Stack

USER: Final = "65532:65532"
NO_CAPABILITIES: Final = "0000000000000000"
FILTERED: Final = "2"  # SECCOMP_MODE_FILTER
# Where each service may write, besides the kernel's own file systems.
WRITABLE: Final[Mapping[str, frozenset[str]]] = {
    "enclave": frozenset({"/run/enclave"}),
    "emulator": frozenset({"/run/evidence"}),
    "client": frozenset({"/var/lib/curtilage"}),
}
# The kernel's message queues: of the container alone, in memory, and gone with it.
_QUEUES: Final = frozenset({"/dev/mqueue"})
ISOLATED: Final = frozenset({"enclave", "emulator"})
"""The services without a network."""

# Tries to create a file in every folder, and to change every file, as the service may.
_WRITE_PROBE: Final = """
import os, stat
found = set()
for folder, folders, files in os.walk("/"):
    if folder == "/":
        folders[:] = [each for each in folders if each not in ("proc", "sys")]
    if folder.startswith("/dev/pts"):
        continue
    path = os.path.join(folder, ".probe")
    try:
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_EXCL))
        os.unlink(path)
    except OSError:
        pass
    else:
        found.add(folder)
    if folder.startswith("/dev"):
        continue
    for name in files:
        path = os.path.join(folder, name)
        # A device, such as /dev/null in place of a secret, keeps nothing.
        if not stat.S_ISREG(os.lstat(path).st_mode):
            continue
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW))
        except OSError:
            continue
        found.add(folder)
print(sorted(found))
"""
# What a container's filter refuses, and what it must leave to the programs' own.
_CALL_PROBE: Final = """
import ctypes, errno, os, socket
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    return libc.syscall(number, *arguments) >= 0 or errno.errorcode[ctypes.get_errno()]
def family(number):
    try:
        socket.socket(number, socket.SOCK_DGRAM if number != 40 else socket.SOCK_STREAM)
        return True
    except OSError as error:
        return errno.errorcode[error.errno]
print({
    "unshare": call(272, 0x10000000),
    "setns": call(308, 0, 0),
    "mount": call(165, 0, 0, 0, 0, 0),
    "ptrace": call(101, 0, 0, 0, 0),
    "bpf": call(321, 0, 0, 0),
    "perf_event_open": call(298, 0, 0, -1, -1, 0),
    "userfaultfd": call(323, 0),
    "io_uring_setup": call(425, 0, 0),
    "keyctl": call(250, 0, 0, 0, 0, 0),
    "process_vm_readv": call(310, os.getpid(), 0, 0, 0, 0, 0),
    "AF_VSOCK": family(40),
    "AF_PACKET": family(17),
    "AF_ALG": family(38),
    "landlock": call(444, None, 0, 1),
    "memfd_secret": call(447, 0),
})
"""
_LEFT_TO_PROGRAMS: Final = frozenset({"landlock", "memfd_secret"})
_UNLINK_PROBE: Final = """
import errno, os
try:
    os.unlink("/run/enclave/gateway.sock")
    print("unlinked")
except OSError as error:
    print(errno.errorcode[error.errno])
"""
# Connects from the network of another process: 'reached', or the error's name.
_CONNECT_PROBE: Final = """
import ctypes, errno, os, socket, sys
space = os.open(f"/proc/{sys.argv[1]}/ns/net", os.O_RDONLY)
if ctypes.CDLL(None).setns(space, 0x40000000) != 0:
    sys.exit("the network of another process cannot be entered")
for address in sys.argv[2:]:
    host, _, port = address.rpartition(":")
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.settimeout(2)
        try:
            probe.connect((host, int(port)))
            print("reached")
        except TimeoutError:
            print("ETIMEDOUT")
        except OSError as error:
            print(errno.errorcode[error.errno])
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Something that does not hold.

    Attributes:
        check: the name of the function that found it.
        service: where.
        detail: what, for people.
    """

    check: str
    service: str
    detail: str

    def line(self) -> str:
        """Return it in one line."""
        return f"{self.check}: {self.service}: {self.detail}"


Check = Callable[[Stack, str], Iterator[str]]


def settings(stack: Stack, service: str) -> Iterator[str]:
    """The engine took every setting of the compose file."""
    found = stack.container(service)
    host = cast("dict[str, Any]", found["HostConfig"])
    wanted = {
        "ReadonlyRootfs": (host["ReadonlyRootfs"], True),
        "CapDrop": (host["CapDrop"], ["ALL"]),
        "CapAdd": (host["CapAdd"], None),
        "Privileged": (host["Privileged"], False),
        "IpcMode": (host["IpcMode"], "none"),
        "User": (found["Config"]["User"], USER),
        "Init": (host["Init"], True),
        "Health": (found["State"].get("Health", {}).get("Status"), HEALTHY),
        "MemorySwap": (host["MemorySwap"], host["Memory"]),
    }
    for name, (value, expected) in wanted.items():
        if value != expected:
            yield f"{name} is {value}"
    options = cast("list[str]", host["SecurityOpt"] or [])
    if "no-new-privileges:true" not in options:
        yield f"SecurityOpt is without no-new-privileges: {len(options)} options"
    if not any(option.startswith("seccomp={") for option in options):
        yield "SecurityOpt is without our profile of seccomp"
    if service != "client" and host["LogConfig"]["Type"] != "none":
        yield f"LogConfig is {host['LogConfig']['Type']}"
    if not (0 < host["Memory"] < 1 << 34 and 0 < host["PidsLimit"] <= 256):  # noqa: PLR2004
        yield f"limits: memory {host['Memory']}, processes {host['PidsLimit']}"


def processes(stack: Stack, service: str) -> Iterator[str]:
    """No process has a capability, can get one, or runs without a filter."""
    numbers = stack.processes(service)
    if not numbers:
        yield "no process"
    for number in numbers:
        status = _fields(Path(f"/proc/{number}/status"))
        user = USER.partition(":")[0]
        wanted = {
            **dict.fromkeys(("CapEff", "CapPrm", "CapBnd", "CapAmb"), NO_CAPABILITIES),
            "NoNewPrivs": "1",
            "Seccomp": FILTERED,
            "Uid": "\t".join([user] * 4),
            "Gid": "\t".join([user] * 4),
        }
        for name, expected in wanted.items():
            if status.get(name) != expected:
                yield f"{status.get('Name')}: {name} is {status.get(name)}"


def writes(stack: Stack, service: str) -> Iterator[str]:
    """Nothing can be written but the service's own volume, and that runs no program."""
    done = stack.python(service, _WRITE_PROBE)
    if done.returncode != 0:
        yield f"the probe failed: {done.stderr[-200:]}"
        return
    allowed = WRITABLE.get(service, frozenset()) | _QUEUES
    for folder in cast("list[str]", ast.literal_eval(done.stdout.strip())):
        if not any(folder == each or folder.startswith(f"{each}/") for each in allowed):
            yield f"{folder} is writable"
    for place, options in _mounts(stack, service):
        if place == "/" and "ro" not in options:
            yield "the root is mounted for writing"
        if place == "/dev/shm":  # noqa: S108 - the place that must not exist
            yield "there is shared memory"


def calls(stack: Stack, service: str) -> Iterator[str]:
    """The filter refuses what no program here needs, and leaves room for their own."""
    done = stack.python(service, _CALL_PROBE)
    if done.returncode != 0:
        yield f"the probe failed: {done.stderr[-200:]}"
        return
    found = cast("dict[str, object]", ast.literal_eval(done.stdout.strip()))
    for name, result in found.items():
        refused = result in {"EPERM", "ENOSYS"}
        if refused == (name in _LEFT_TO_PROGRAMS):
            yield f"{name}: {result}"


def isolation(stack: Stack, service: str) -> Iterator[str]:
    """A service without a network reaches nothing; the probe reaches it from others."""
    number = stack.processes(service)[0]
    with socket.create_server(("0.0.0.0", 0)) as listener:  # noqa: S104 - all, to be reached
        port = int(listener.getsockname()[1])
        targets = [f"{address}:{port}" for address in _own_addresses()]
        results = _connect(number, targets)
    if service not in ISOLATED:
        # Positive control: where there is a network, the same probe sees it.
        if "reached" not in results:
            yield f"the probe sees no network where there is one: {results}"
        return
    mode = stack.container(service)["HostConfig"]["NetworkMode"]
    if mode != "none":
        yield f"its network is {mode}"
    names = [
        line.partition(":")[0].strip()
        for line in Path(f"/proc/{number}/net/dev").read_text().splitlines()[2:]
    ]
    if names != ["lo"]:
        yield f"its interfaces are {names}"
    if len(Path(f"/proc/{number}/net/route").read_text().splitlines()) > 1:
        yield "it has a route"
    if set(results) != {"ENETUNREACH"}:
        yield f"it can connect: {results}"


def sockets(stack: Stack, service: str) -> Iterator[str]:
    """Who only connects to the enclave's socket cannot remove or replace it."""
    if service not in {"relay", "door"}:
        return
    mounted = [place for place, _ in _mounts(stack, service)]
    if "/run/enclave" not in mounted:
        return
    said = stack.python(service, _UNLINK_PROBE).stdout.strip()
    if said != "EROFS":
        yield f"removing the enclave's socket: {said}"


CHECKS: Final[Sequence[Check]] = (
    settings,
    processes,
    writes,
    calls,
    isolation,
    sockets,
)


def problems(stack: Stack, services: Sequence[str]) -> list[Problem]:
    """Run every check on every service."""
    return [
        Problem(check=check.__name__, service=service, detail=detail)
        for service in services
        for check in CHECKS
        for detail in check(stack, service)
    ]


def _connect(number: int, targets: Sequence[str]) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-I", "-c", _CONNECT_PROBE, str(number), *targets],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


def _own_addresses() -> list[str]:
    """Return this machine's addresses, those of the engine's bridges included."""
    shown = subprocess.run(
        ["ip", "-o", "-4", "address", "show"],  # noqa: S607
        capture_output=True,
        text=True,
        check=True,
    )
    words = [line.split() for line in shown.stdout.splitlines()]
    found = [ipaddress.ip_interface(row[3]).ip for row in words]
    return [str(each) for each in found if not each.is_loopback]


def _mounts(stack: Stack, service: str) -> list[tuple[str, list[str]]]:
    number = stack.processes(service)[0]
    rows = Path(f"/proc/{number}/mountinfo").read_text().splitlines()
    return [(row.split()[4], row.split()[5].split(",")) for row in rows]


def _fields(path: Path) -> Mapping[str, str]:
    lines = (line.partition(":") for line in path.read_text().splitlines())
    return {name: value.strip() for name, _, value in lines}
