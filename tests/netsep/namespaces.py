"""Three network namespaces in a row: client, relay, enclave; and what passes between.

The relay's has an end of each link. There are no routes but those of the links, so
nothing but the relay's programs leads from one to the other. Needs root and ``ip``.
"""

import ctypes
import errno
import os
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TypeVar

from netsep.judge import Link, Packet, parse

ETH_P_ALL = 0x0003
SOL_PACKET, PACKET_STATISTICS = 263, 6
CLONE_NEWNET = 0x40000000
MOST_FRAME_BYTES = 1 << 17
BUFFER_BYTES = 64 << 20
PROBE_S = 2.0
CLIENT, RELAY, ENCLAVE = "client", "relay", "enclave"
PLACES: Final = (CLIENT, RELAY, ENCLAVE)
# By version of IP: the client, the relay towards it, the relay towards the enclave, the
# enclave.
ADDRESSES: Final[Mapping[int, tuple[str, str, str, str]]] = {
    4: ("10.77.1.1", "10.77.1.2", "10.77.2.1", "10.77.2.2"),
    6: ("fd77:1::1", "fd77:1::2", "fd77:2::1", "fd77:2::2"),
}
OUTSIDE: Final[Mapping[int, str]] = {4: "198.51.100.1", 6: "2001:db8::1"}
_PREFIX: Final = {4: 24, 6: 64}
_Result = TypeVar("_Result")


class UnableError(Exception):
    """Here no namespaces can be made; says what is missing."""


class Net:
    """The namespaces, while the block lasts."""

    def __init__(self) -> None:
        self._names = {place: f"curtilage-{os.getpid()}-{place}" for place in PLACES}

    def __enter__(self) -> Self:
        """Make them.

        Raises:
            UnableError: they cannot be made.
        """
        if os.geteuid() != 0:
            raise UnableError("it needs root")
        try:
            self._build()
        except FileNotFoundError:
            raise UnableError("there is no program ip (iproute2)") from None
        except subprocess.CalledProcessError as error:
            self._remove()
            raise UnableError(str(error.stderr).strip()) from None
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Remove them, with their links."""
        self._remove()

    def command(self, place: str, *words: str) -> list[str]:
        """Return a command that runs another one there."""
        return ["ip", "netns", "exec", self._names[place], *words]

    def inside(self, place: str, make: Callable[[], _Result]) -> _Result:
        """Call a function there: a socket that it makes belongs to that network."""
        done: list[_Result] = []
        failed: list[BaseException] = []

        def run() -> None:
            try:
                self._enter(place)
                done.append(make())
            except BaseException as error:  # noqa: BLE001 - raised again below
                failed.append(error)

        # A thread of its own, since a network is entered for good.
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        if failed:
            raise failed[0]
        return done[0]

    def probe(self, place: str, host: str, port: int) -> str:
        """Try to connect from there; return ``reached``, or the error's name."""

        def attempt() -> str:
            try:
                with socket.create_connection((host, port), PROBE_S):
                    return "reached"
            except TimeoutError:
                return "ETIMEDOUT"
            except OSError as error:
                return errno.errorcode.get(error.errno or 0, "failed")

        return self.inside(place, attempt)

    def set_routes(self, *, forwarding: bool) -> None:
        """Lead from end to end through the relay's machine, which may forward."""
        for family, (client, near, far, enclave) in ADDRESSES.items():
            del client, enclave
            for place, by in ((CLIENT, near), (ENCLAVE, far)):
                words = ("route", "replace", "default", "via", by)
                _ip(f"-{family}", "-n", self._names[place], *words)
        value = str(int(forwarding))
        self._set(RELAY, "ipv4/ip_forward", value)
        self._set(RELAY, "ipv6/conf/all/forwarding", value)

    def clear_routes(self) -> None:
        """Take these routes back."""
        for family in ADDRESSES:
            for place in (CLIENT, ENCLAVE):
                _ip(f"-{family}", "-n", self._names[place], "route", "del", "default")
        self._set(RELAY, "ipv4/ip_forward", "0")
        self._set(RELAY, "ipv6/conf/all/forwarding", "0")

    def _build(self) -> None:
        for name in self._names.values():
            _ip("netns", "add", name)
            _ip("-n", name, "link", "set", "lo", "up")
        relay = self._names[RELAY]
        for place, link in ((CLIENT, Link.CLIENT), (ENCLAVE, Link.ENCLAVE)):
            name = self._names[place]
            peer = ("peer", "name", _device(link), "netns", relay)
            _ip("-n", name, "link", "add", "eth0", "type", "veth", *peer)
        for family, (client, near, far, enclave) in ADDRESSES.items():
            for name, address, device in (
                (self._names[CLIENT], client, "eth0"),
                (relay, near, _device(Link.CLIENT)),
                (relay, far, _device(Link.ENCLAVE)),
                (self._names[ENCLAVE], enclave, "eth0"),
            ):
                whole = f"{address}/{_PREFIX[family]}"
                # Without the search for another owner, during which it is not usable.
                nodad = ("nodad",) if family == 6 else ()
                _ip("-n", name, "address", "add", whole, "dev", device, *nodad)
        for name, device in (
            (self._names[CLIENT], "eth0"),
            (relay, _device(Link.CLIENT)),
            (relay, _device(Link.ENCLAVE)),
            (self._names[ENCLAVE], "eth0"),
        ):
            _ip("-n", name, "link", "set", device, "up")
        self._set(RELAY, "ipv4/ip_forward", "0")
        self._set(RELAY, "ipv6/conf/all/forwarding", "0")

    def _remove(self) -> None:
        for name in self._names.values():
            with suppress(subprocess.CalledProcessError, FileNotFoundError):
                _ip("netns", "del", name)

    def _enter(self, place: str) -> None:
        with Path(f"/run/netns/{self._names[place]}").open("rb") as file:
            libc = ctypes.CDLL(None, use_errno=True)
            if libc.setns(file.fileno(), CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), "setns")

    def _set(self, place: str, name: str, value: str) -> None:
        words = ("sh", "-c", f"echo {value} > /proc/sys/net/{name}")
        _run(self.command(place, *words))


class Capture:
    """Keeps every frame of both links, while the block lasts.

    Attributes:
        frames: with their links, in order of arrival.
    """

    def __init__(self, net: Net) -> None:
        self._net = net
        self._sockets: dict[Link, socket.socket] = {}
        self._threads: list[threading.Thread] = []
        self._ended = threading.Event()
        self.frames: list[tuple[Link, bytes]] = []

    def __enter__(self) -> Self:
        """Begin."""
        for link in Link:
            opened = self._net.inside(RELAY, partial(_listener, link))
            self._sockets[link] = opened
            thread = threading.Thread(target=self._read, args=(link, opened))
            thread.start()
            self._threads.append(thread)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End, when all that had arrived is read."""
        self._ended.set()
        for thread in self._threads:
            thread.join()
        try:
            lost = sum(map(_lost, self._sockets.values()))
        finally:
            for opened in self._sockets.values():
                opened.close()
        if lost:
            raise RuntimeError(f"{lost} frames were lost: what they held is not known")

    @property
    def packets(self) -> list[Packet]:
        """What carried IP, in order of arrival.

        Raises:
            ValueError: a frame carries neither IP nor ARP.
        """
        parsed = [parse(link, frame) for link, frame in self.frames]
        return [packet for packet in parsed if packet is not None]

    def _read(self, link: Link, opened: socket.socket) -> None:
        while True:
            try:
                self.frames.append((link, opened.recv(MOST_FRAME_BYTES)))
            except TimeoutError:
                if self._ended.is_set():
                    return


def _listener(link: Link) -> socket.socket:
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
    with suppress(PermissionError):
        opened.setsockopt(socket.SOL_SOCKET, 33, BUFFER_BYTES)  # SO_RCVBUFFORCE
    opened.bind((_device(link), ETH_P_ALL))
    opened.settimeout(0.2)
    return opened


def _lost(opened: socket.socket) -> int:
    counted = opened.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8)
    _, lost = struct.unpack("=II", counted)
    return int(lost)


def _device(link: Link) -> str:
    return "to-client" if link is Link.CLIENT else "to-enclave"


def _ip(*words: str) -> None:
    _run(["ip", *words])


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)
