"""The network of the watched world: all addresses are local, all traffic is seen.

To be used in a network namespace of its own. Whatever a program sends to any
address arrives on ``lo``: a resolver answers every name, ports 80 and 443 accept
all connections, and a packet socket sees every attempt. Each is
attributed to a program by the kernel's table of sockets.
"""

import ctypes
import shutil
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from support.client_hello import SERVER_NAME, read_client_hello
from support.outside.world import RESOLVER, WorldError

ADDRESSES: Final = (f"{RESOLVER}/32", "198.51.100.2/32", "2001:db8::2/128")
"""The resolver's, and two that a machine on the internet might have."""
ANSWERED: Final = ("203.0.113.1", "2001:db8:1::1")
"""What every name resolves to."""
OPEN_PORTS: Final = (80, 443)
HELLO_S: Final = 30.0
"""How long a connected program may take to send its request."""
DNS: Final = 53
LAST: Final = (RESOLVER, 9)
"""Where a datagram goes that ends the watch."""
LOOKED_UP: Final = "name"
UNKNOWN: Final = "unknown"
"""A socket that was closed before its owner could be determined."""
SOL_PACKET, PACKET_STATISTICS, SO_ATTACH_FILTER = 263, 6, 26
TCP, UDP, ICMP, ICMP6 = 6, 17, 1, 58
UNREACHABLE: Final = {ICMP: 3, ICMP6: 1}
"""Our own kernel's answer to a datagram without a receiver."""
SNAPSHOT_BYTES: Final = 2048
# Classic BPF (linux/filter.h), over a packet that begins with its IP header: all
# of it but segments of TCP that begin no connection, which are most by far.
FILTER: Final = (
    (0x30, 0, 0, 0),  # A = first octet
    (0x54, 0, 0, 0xF0),  # A &= version
    (0x15, 0, 5, 0x40),  # IPv4?
    (0x30, 0, 0, 9),  # A = protocol
    (0x15, 0, 9, TCP),  # TCP? else keep
    (0xB1, 0, 0, 0),  # X = length of the header
    (0x50, 0, 0, 13),  # A = flags of TCP
    (0x05, 0, 0, 4),
    (0x15, 0, 5, 0x60),  # IPv6? else keep
    (0x30, 0, 0, 6),  # A = next header
    (0x15, 0, 3, TCP),  # TCP? else keep
    (0x30, 0, 0, 53),  # A = flags of TCP
    (0x54, 0, 0, 0x12),  # A &= SYN and ACK
    (0x15, 0, 1, 0x02),  # SYN alone: keep, else drop
    (0x06, 0, 0, SNAPSHOT_BYTES),
    (0x06, 0, 0, 0),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Packet:
    """What one packet says of itself; ports are 0 where it has none."""

    protocol: int
    source_port: int
    address: str
    port: int
    payload: bytes = field(repr=False)

    @property
    def kind(self) -> str:
        return {TCP: "tcp", UDP: "udp"}.get(self.protocol, f"ip-{self.protocol}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """Something that a program tried on the network.

    Attributes:
        who: the role of the program, or what is known of it.
        kind: ``tcp``, ``udp``, ``name`` (a lookup), ``tls`` (the name that a
            connection asked for), or another protocol.
        to: ``address:port``, or a name.
        at: when, in seconds since 1970.
    """

    who: str
    kind: str
    to: str
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Noted:
    """An attempt, with the process that made it and its ancestors, if known."""

    lineage: tuple[int, ...]
    part: str
    kind: str
    to: str
    at: float


class Network:
    """Sees everything from ``start`` to ``stop``.

    Attributes:
        roles: what each program is, by process id; its children are it too. May be
            set after the program has started.
        lost: packets that came too fast to be seen.
    """

    def __init__(self) -> None:
        self.roles: dict[int, str] = {}
        self.lost = 0
        self._noted: list[_Noted] = []
        self._packets = socket.socket(
            socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(3)
        )
        self._sockets = [self._packets]
        self._ended = threading.Event()

    @property
    def attempts(self) -> list[Attempt]:
        """What was tried, in order."""
        return [
            Attempt(who=self._role(each), kind=each.kind, to=each.to, at=each.at)
            for each in self._noted
        ]

    def start(self) -> None:
        """Make every address this machine's, and begin.

        Raises:
            WorldError: the command ``ip`` is missing.
        """
        _route_everything_here()
        self._packets.bind(("lo", 3))
        _attach_filter(self._packets)
        self._run(self._capture)
        resolver = self._bound(socket.SOCK_DGRAM, RESOLVER, DNS)
        self._run(partial(_resolve, resolver))
        for port in OPEN_PORTS:
            listener = self._bound(socket.SOCK_STREAM, "::", port)
            listener.listen()
            self._run(partial(self._accept, listener))

    def stop(self) -> None:
        """End, once everything that was sent so far has been seen."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as last:
            last.sendto(b"", LAST)
        self._ended.wait()
        counted = self._packets.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8)
        self.lost = struct.unpack("=II", counted)[1]
        for each in self._sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _run(self, target: Callable[[], None]) -> None:
        threading.Thread(target=target, daemon=True).start()

    def _bound(self, kind: int, address: str, port: int) -> socket.socket:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        bound = socket.socket(family, kind)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        bound.bind((address, port))
        self._sockets.append(bound)
        return bound

    def _capture(self) -> None:
        with suppress(OSError):
            while not self._ended.is_set():
                data, sender = self._packets.recvfrom(SNAPSHOT_BYTES)
                # Each packet passes lo twice: on its way out and on its way in.
                if sender[2] == socket.PACKET_OUTGOING:
                    self._seen(read_packet(data))

    def _seen(self, packet: Packet) -> None:
        if (packet.address, packet.port) == LAST:
            self._ended.set()
        if self._ended.is_set() or _is_answer(packet):
            return
        kind, to = packet.kind, f"{packet.address}:{packet.port}"
        if ":" in packet.address:
            to = f"[{packet.address}]:{packet.port}"
        if kind == "udp" and (packet.address, packet.port) == (RESOLVER, DNS):
            kind, to = LOOKED_UP, name_asked_for(packet.payload)
        self._note(_lineage(packet.kind, packet.source_port), kind, to)

    def _note(self, lineage: tuple[int, ...], kind: str, to: str) -> None:
        part = _part(lineage[0]) if lineage else ""
        noted = _Noted(lineage=lineage, part=part, kind=kind, to=to, at=time.time())
        self._noted.append(noted)

    def _role(self, noted: "_Noted") -> str:
        known = (self.roles[each] for each in noted.lineage if each in self.roles)
        return next(known, UNKNOWN) + noted.part

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                connection, peer = listener.accept()
                with connection, suppress(OSError, AssertionError):
                    lineage = _lineage("tcp", peer[1])
                    connection.settimeout(HELLO_S)
                    hello = read_client_hello(connection.recv(65536))
                    # server_name_list with one host_name (RFC 6066, section 3).
                    name = hello.contents[SERVER_NAME][5:].decode("ascii", "replace")
                    self._note(lineage, "tls", name)


def read_packet(data: bytes) -> Packet:
    """Read an IP packet as far as it says where it goes."""
    if data[0] >> 4 == 4:
        protocol, start = data[9], (data[0] & 0xF) * 4
        address = socket.inet_ntop(socket.AF_INET, data[16:20])
    else:
        protocol, start = data[6], 40
        address = socket.inet_ntop(socket.AF_INET6, data[24:40])
    ports = (0, 0)
    if protocol in {TCP, UDP}:
        ports = struct.unpack_from(">HH", data, start)
    payload = data[start + 8 :] if protocol == UDP else data[start:]
    return Packet(
        protocol=protocol,
        source_port=ports[0],
        address=address,
        port=ports[1],
        payload=payload,
    )


def name_asked_for(query: bytes) -> str:
    """Return the name and the type that a DNS query is about."""
    labels, at = list[str](), 12
    with suppress(IndexError):
        while query[at]:
            end = at + 1 + query[at]
            labels.append(query[at + 1 : end].decode("ascii", "replace"))
            at = end
    kind = int.from_bytes(query[at + 1 : at + 3])
    shown = {1: "A", 28: "AAAA", 12: "PTR"}.get(kind, f"TYPE{kind}")
    return f"{'.'.join(labels)} {shown}"


def _is_answer(packet: Packet) -> bool:
    if packet.protocol in UNREACHABLE:
        return packet.payload[:1] == bytes([UNREACHABLE[packet.protocol]])
    return packet.protocol == UDP and packet.source_port == DNS


def _resolve(resolver: socket.socket) -> None:
    with suppress(OSError):
        while True:
            query, peer = resolver.recvfrom(4096)
            with suppress(IndexError):  # no question at all
                resolver.sendto(_answer(query), peer)


def _answer(query: bytes) -> bytes:
    """Answer one question with an address of ours, whatever it names."""
    at = 12
    while query[at]:
        at += 1 + query[at]
    question = query[12 : at + 5]
    kind = int.from_bytes(query[at + 1 : at + 3])
    addresses = {
        1: socket.inet_pton(socket.AF_INET, ANSWERED[0]),
        28: socket.inet_pton(socket.AF_INET6, ANSWERED[1]),
    }
    found = addresses.get(kind, b"")
    # Response, recursion desired and available, no error.
    head = query[:2] + struct.pack(">HHHHH", 0x8180, 1, bool(found), 0, 0)
    record = struct.pack(">HHHIH", 0xC00C, kind, 1, 60, len(found)) + found
    return head + question + (record if found else b"")


def _route_everything_here() -> None:
    if (ip := shutil.which("ip", path="/usr/sbin:/sbin:/usr/bin:/bin")) is None:
        raise WorldError("the command ip: apt-get install iproute2")
    commands = [
        "link set lo up",
        *(f"addr add {address} dev lo" for address in ADDRESSES),
        "route add local 0.0.0.0/0 dev lo",
        "-6 route add local ::/0 dev lo",
        # Some programs try nothing where there is no default route.
        "route add default dev lo",
    ]
    for command in commands:
        done = subprocess.run([ip, *command.split()], check=False, capture_output=True)
        if done.returncode != 0:
            raise WorldError(f"ip {command}: {done.stderr.decode().strip()}")


def _attach_filter(packets: socket.socket) -> None:
    program = b"".join(struct.pack("=HBBI", *each) for each in FILTER)
    kept = ctypes.create_string_buffer(program)
    head = struct.pack("HL", len(FILTER), ctypes.addressof(kept))
    packets.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, head)


def _lineage(kind: str, port: int) -> tuple[int, ...]:
    """Return the process that has a socket on a local port, and its ancestors."""
    lineage = list[int]()
    at = _owner({f"socket:[{inode}]" for inode in _inodes(kind, port)})
    while at > 0:
        lineage.append(at)
        at = _parent(at)
    return tuple(lineage)


def _owner(sockets: set[str]) -> int:
    """Return the process that holds one of some sockets, or 0."""
    for folder in Path("/proc").iterdir() if sockets else ():
        if folder.name.isdecimal():
            with suppress(OSError):
                if any(_is_one_of(each, sockets) for each in (folder / "fd").iterdir()):
                    return int(folder.name)
    return 0


def _is_one_of(descriptor: Path, sockets: set[str]) -> bool:
    with suppress(OSError):  # it may be closed by now; the next may not
        return str(descriptor.readlink()) in sockets
    return False


def _inodes(kind: str, port: int) -> Iterator[str]:
    if port == 0:
        return
    for name in (kind, f"{kind}6"):
        with suppress(OSError):
            for line in Path(f"/proc/net/{name}").read_text("ascii").splitlines()[1:]:
                fields = line.split()
                if int(fields[1].rpartition(":")[2], 16) == port:
                    yield fields[9]


def _parent(process: int) -> int:
    with suppress(OSError):
        # The name may hold spaces and brackets; what follows its end does not.
        text = Path(f"/proc/{process}/stat").read_text("utf-8", "replace")
        return int(text.rpartition(")")[2].split()[1])
    return 0


def _part(process: int) -> str:
    """Return the part of a process: a detectors' worker, or the program itself."""
    with suppress(OSError):
        command = Path(f"/proc/{process}/cmdline").read_bytes()
        if b"curtilage.client.detection.detectors" in command:
            return " worker"
    return ""
