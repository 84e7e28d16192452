"""The guest's first process: mounts, drivers, network, then three services.

Runs as process 1 from the measured initramfs, with only Python's standard library;
there is no shell, no login and no other program in the image. The measured file
``guest.json`` next to it determines what it does; nothing from outside changes that,
and no kernel argument is read. When a service ends, or anything here fails, the machine
is switched
off: an enclave must not run incompletely.

Its output is written to the console, which the host reads: the steps, the services'
names and exit codes, PCR 11. In a production image the services themselves have no
standard streams at all.
"""

import ctypes
import errno
import fcntl
import json
import os
import resource
import socket
import stat
import struct
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn, cast

GUEST_FILE: Final = Path("/etc/curtilage/guest.json")
INTAKE: Final = Path("/run/curtilage")
INTAKE_FOLDERS: Final = ("release", "endorsements")
SERVER_SOCKET: Final = Path("/run/enclave/gateway.sock")
EVIDENCE_SOCKET: Final = Path("/run/evidence/evidence.sock")
TSM: Final = Path("/sys/kernel/config/tsm/report")
PCR11: Final = Path("/sys/class/tpm/tpm0/pcr-sha256/11")
DEVICES: Final = ("sev-guest", "tdx_guest", "tpmrm0")

# Numbers of the kernel: mount, prctl, reboot, capset, finit_module, netdevice, route.
MS_RDONLY: Final = 1
MS_NOSUID: Final = 2
MS_NODEV: Final = 4
MS_NOEXEC: Final = 8
MS_REMOUNT: Final = 32
SOCKET_MODE: Final = 0o600
POWER_OFF: Final = 0x4321FEDC
PR_CAPBSET_DROP: Final = 24
PR_SET_KEEPCAPS: Final = 8
PR_SET_NO_NEW_PRIVS: Final = 38
PR_CAP_AMBIENT: Final = 47
PR_CAP_AMBIENT_RAISE: Final = 2
CAPABILITY_VERSION_3: Final = 0x20080522
LAST_CAPABILITY: Final = 40
SYS_FINIT_MODULE: Final = 313  # x86-64
SYS_CAPSET: Final = 126  # x86-64
SIOCADDRT: Final = 0x890B
SIOCSIFFLAGS: Final = 0x8914
SIOCSIFADDR: Final = 0x8916
SIOCSIFNETMASK: Final = 0x891C
IFF_UP_RUNNING: Final = 0x41
RTF_UP_GATEWAY: Final = 0x3
# The error of a driver whose hardware is missing: one image serves all processors.
ABSENT: Final = (errno.ENODEV, errno.EEXIST, errno.EOPNOTSUPP, errno.ENXIO)

SETTINGS: Final = {
    "fs/suid_dumpable": "0",
    "kernel/core_pattern": "core",
    "kernel/dmesg_restrict": "1",
    "kernel/kexec_load_disabled": "1",
    "kernel/kptr_restrict": "2",
    "kernel/perf_event_paranoid": "3",
    "kernel/sysrq": "0",
    "kernel/unprivileged_bpf_disabled": "1",
    "kernel/yama/ptrace_scope": "3",
    "net/ipv4/ip_forward": "0",
    "net/ipv6/conf/all/disable_ipv6": "1",
    "net/ipv6/conf/default/disable_ipv6": "1",
    "user/max_user_namespaces": "0",
    # Last: afterwards no driver can be loaded until the machine is switched off.
    "kernel/modules_disabled": "1",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """One process that must keep running.

    Attributes:
        name: for the console.
        user: its user and group, which no other service shares.
        command: program and arguments.
        capability: the one capability it keeps, or None.
    """

    name: str
    user: int
    command: tuple[str, ...]
    capability: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Guest:
    """The contents of the measured file.

    Attributes:
        development: services may write to the console.
        modules: files of kernel modules, in the order of loading.
        address: of the first network device with its prefix, or empty: none.
        gateway: the default gateway, or empty.
        environment: of the services; all of it.
        needed: files from outside without which the server cannot start.
        services: door, evidence, serve: in this order.
    """

    development: bool
    modules: tuple[str, ...]
    address: str
    gateway: str
    environment: dict[str, str]
    needed: tuple[str, ...]
    services: tuple[Service, ...]


class InitError(Exception):
    """The machine cannot be set up as configured."""


def main() -> NoReturn:
    """Set the machine up, watch it, switch it off."""
    try:
        _run()
    except (InitError, OSError, ValueError, KeyError) as error:
        _say(f"failed: {type(error).__name__}: {error}")
    except BaseException as error:  # noqa: BLE001 - process 1 must not just end
        _say(f"failed: {type(error).__name__}")
    finally:
        _say("switching off")
        _libc().reboot(POWER_OFF)
    while True:  # reached if the platform cannot switch off
        time.sleep(3600)


def _run() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.umask(0o022)
    quiet = MS_NOSUID | MS_NODEV | MS_NOEXEC
    # hidepid: a service cannot see other processes.
    _mount("proc", "/proc", "proc", quiet, "hidepid=2")
    _mount("sysfs", "/sys", "sysfs", quiet)
    _mount("devtmpfs", "/dev", "devtmpfs", MS_NOSUID | MS_NOEXEC, "mode=0755")
    _mount("tmpfs", "/run", "tmpfs", quiet, "size=32m,mode=0755")
    guest = parse_guest(GUEST_FILE.read_text("utf-8"))
    for path in guest.modules:
        _load_module(path)
    if "/configfs" in " ".join(guest.modules):
        _mount("configfs", "/sys/kernel/config", "configfs")
    _bring_up("lo", "127.0.0.1", "255.0.0.0")
    if guest.address:
        set_network(guest.address, guest.gateway)
    # After the drivers and the network: the last setting prevents loading modules.
    for name, value in SETTINGS.items():
        try:
            (Path("/proc/sys") / name).write_text(value, "ascii")
        except FileNotFoundError:
            _say(f"this kernel has no setting {name}")
    _make_folders(guest)
    _libc_check(
        "remount", _libc().mount(None, b"/", None, MS_REMOUNT | MS_RDONLY, None)
    )
    try:
        pcr11 = PCR11.read_text("ascii").strip()
    except OSError:
        pcr11 = "none: no TPM"
    _say(f"pcr11 {pcr11}")
    watch(guest)


def watch(guest: Guest) -> None:
    """Start the services one after the other; return when one has ended."""
    door, evidence, serve = guest.services
    running = {_start(guest, door): door, _start(guest, evidence): evidence}
    _say(f"waiting for evidence and for {', '.join(guest.needed)}")
    while not _ready(guest):
        if _ended(running, os.WNOHANG):
            return
        time.sleep(0.2)
    running[_start(guest, serve)] = serve
    while not hand_over(SERVER_SOCKET, door.user):
        if _ended(running, os.WNOHANG):
            return
        time.sleep(0.2)
    _say("the server has its socket")
    while not _ended(running, 0):
        pass


def hand_over(path: Path, user: int) -> bool:
    """Pass the server's socket on to the door, once it is there.

    The server restricts it to its own user (0600); the door has another. Until the
    server has evidence, it accepts no connection.
    """
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return False
    if not stat.S_ISSOCK(mode) or stat.S_IMODE(mode) != SOCKET_MODE:
        return False
    os.chown(path, user, user, follow_symlinks=False)
    return True


def _ready(guest: Guest) -> bool:
    files = [INTAKE / name for name in guest.needed]
    return EVIDENCE_SOCKET.exists() and all(path.exists() for path in files)


def _ended(running: dict[int, Service], options: int) -> bool:
    """Reap one process; return whether it was a service."""
    process, status = os.waitpid(-1, options)
    service = running.get(process)
    if service is None:
        return False
    _say(f"{service.name} ended with {os.waitstatus_to_exitcode(status)}")
    return True


def parse_guest(text: str) -> Guest:
    """Read the measured file.

    Raises:
        ValueError, KeyError: it differs from what the builder writes.
    """
    value = cast("dict[str, object]", json.loads(text))
    services = cast("list[dict[str, object]]", value["services"])
    return Guest(
        development=value["development"] is True,
        modules=tuple(cast("list[str]", value["modules"])),
        address=str(value["address"]),
        gateway=str(value["gateway"]),
        environment=dict(cast("dict[str, str]", value["environment"])),
        needed=tuple(cast("list[str]", value["needed"])),
        services=tuple(_parse_service(each) for each in services),
    )


def _parse_service(value: dict[str, object]) -> Service:
    capability = value["capability"]
    return Service(
        name=str(value["name"]),
        user=int(cast("int", value["user"])),
        command=tuple(cast("list[str]", value["command"])),
        capability=None if capability is None else int(cast("int", capability)),
    )


def _mount(kind: str, where: str, source: str, flags: int = 0, data: str = "") -> None:
    done = _libc().mount(
        source.encode(), where.encode(), kind.encode(), flags, data.encode() or None
    )
    _libc_check(f"mount {where}", done)


def _load_module(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        done = _libc().syscall(SYS_FINIT_MODULE, descriptor, b"", 0)
        number = ctypes.get_errno()
    finally:
        os.close(descriptor)
    if done != 0 and number not in ABSENT:
        raise InitError(f"{Path(path).name}: {os.strerror(number)}")


def _make_folders(guest: Guest) -> None:
    """Make the folders below /run, each owned by the user that writes to it."""
    door, evidence, serve = guest.services
    _folder(INTAKE, 0, 0, 0o755)
    for name in INTAKE_FOLDERS:
        _folder(INTAKE / name, door.user, door.user, 0o755)
    # Set-group-id: a socket made here gets the group of its allowed client.
    _folder(EVIDENCE_SOCKET.parent, evidence.user, serve.user, 0o2750)
    _folder(SERVER_SOCKET.parent, serve.user, door.user, 0o2750)
    _folder(Path("/run/identify"), evidence.user, door.user, 0o2750)
    if TSM.is_dir():
        os.chown(TSM, evidence.user, evidence.user)
    for name in DEVICES:
        device = Path("/dev") / name
        if device.exists() and stat.S_ISCHR(device.stat().st_mode):
            os.chown(device, evidence.user, evidence.user)
            device.chmod(0o600)


def _folder(path: Path, user: int, group: int, mode: int) -> None:
    path.mkdir()
    os.chown(path, user, group)
    path.chmod(mode)


def _start(guest: Guest, service: Service) -> int:
    """Start a service as its own user; return its process id."""
    process = os.fork()
    if process == 0:
        try:
            _become(service)
            _streams(development=guest.development)
            os.umask(0o007)
            os.chdir("/")
            os.execve(service.command[0], service.command, guest.environment)  # noqa: S606
        finally:
            # After any error: a second process 1 must not continue from here.
            os._exit(127)
    _say(f"{service.name} started")
    return process


def _become(service: Service) -> None:
    """Drop everything but the service's user and its one capability."""
    os.setsid()
    # While still root: dropping from the bounding set needs a capability itself. No
    # program that the service starts can regain a capability dropped there.
    for capability in range(LAST_CAPABILITY + 1):
        if capability != service.capability:
            _prctl(PR_CAPBSET_DROP, capability)
    # Else the change of the user below would remove the capability to keep, too.
    _prctl(PR_SET_KEEPCAPS, 1 if service.capability is not None else 0)
    # Groups first, the user last: a user other than root cannot drop groups.
    os.setgroups(())
    os.setresgid(service.user, service.user, service.user)
    os.setresuid(service.user, service.user, service.user)
    if service.capability is not None:
        bit = 1 << service.capability
        low, high = bit & 0xFFFFFFFF, bit >> 32
        header = struct.pack("<Ii", CAPABILITY_VERSION_3, 0)
        data = struct.pack("<6I", low, low, low, high, high, high)
        _libc_check("capset", _libc().syscall(SYS_CAPSET, header, data))
        # Ambient: a program whose file grants none would lose it at execve.
        _prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, service.capability)
    _prctl(PR_SET_NO_NEW_PRIVS, 1)


def _streams(*, development: bool) -> None:
    null = os.open("/dev/null", os.O_RDWR)
    for number in (0, 1, 2) if not development else (0,):
        os.dup2(null, number)
    os.closerange(3, 64)


def set_network(address: str, gateway: str) -> None:
    """Give the first network device its address; no DHCP."""
    host, _, prefix = address.partition("/")
    mask = (0xFFFFFFFF << (32 - int(prefix))) & 0xFFFFFFFF
    names = sorted(name for _, name in socket.if_nameindex() if name != "lo")
    if not names:
        raise InitError("no network device")
    _bring_up(names[0], host, socket.inet_ntoa(struct.pack(">I", mask)))
    if gateway:
        _ioctl(SIOCADDRT, encode_route(gateway))


def encode_route(gateway: str) -> bytes:
    """Encode struct rtentry: destination, gateway, mask, flags; the rest is zero."""
    nowhere = _address("0.0.0.0")  # noqa: S104 - a route's destination, not a door
    head = (0, nowhere, _address(gateway), nowhere, RTF_UP_GATEWAY)
    return struct.pack("<Q16s16s16sH62x", *head)


def _bring_up(name: str, host: str, mask: str) -> None:
    device = name.encode().ljust(16, b"\0")
    _ioctl(SIOCSIFADDR, device + _address(host))
    _ioctl(SIOCSIFNETMASK, device + _address(mask))
    _ioctl(SIOCSIFFLAGS, struct.pack("<16sH14x", device, IFF_UP_RUNNING))


def _address(host: str) -> bytes:
    """Encode struct sockaddr_in."""
    return struct.pack("<HH4s8x", socket.AF_INET, 0, socket.inet_aton(host))


def _ioctl(request: int, argument: bytes) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as door:
        fcntl.ioctl(door, request, argument.ljust(40, b"\0"))


def _prctl(option: int, argument: int, more: int = 0) -> None:
    words = [ctypes.c_ulong(each) for each in (argument, more, 0, 0)]
    done = _libc().prctl(option, *words)
    number = ctypes.get_errno()
    # A kernel with fewer capabilities than this list has nothing to drop there.
    if done != 0 and not (option == PR_CAPBSET_DROP and number == errno.EINVAL):
        raise OSError(number, os.strerror(number), f"prctl {option}")


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _libc_check(what: str, done: int) -> None:
    if done != 0:
        number = ctypes.get_errno()
        raise InitError(f"{what}: {os.strerror(number)}")


def _say(text: str) -> None:
    sys.stdout.write(f"init: {text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
