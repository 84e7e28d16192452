"""Both relays as processes, each made from the same configuration file."""

import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, cast

from curtilage.relay.config import parse_config
from curtilage.relay.nginx.config import nginx_config
from support.relay_wire import HANG_S, Answer, Wire, raw_request, read_answer

if TYPE_CHECKING:
    import ssl

NGINX: Final = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/bin")
Kind = Literal["built-in", "nginx"]
Tree = Mapping[str, object]


_WIRES: Final[list[Wire]] = []


def close_wires() -> None:
    """Close every connection that a test opened, also where it failed."""
    while _WIRES:
        _WIRES.pop().close()


class RelayProcess:
    """A running relay, known by its port only.

    Args:
        kind: which of the two.
        tree: its configuration.
        folder: for its files.
        own_user: nginx's workers run as who runs the tests, also as root, since
            no other user may enter the tests' folders.
    """

    def __init__(
        self, kind: Kind, tree: Tree, folder: Path, *, own_user: bool = True
    ) -> None:
        self.kind = kind
        self.folder = folder
        self.tls: ssl.SSLContext | None = None
        self.process, self.port = (
            _start_built_in(tree, folder)
            if kind == "built-in"
            else _start_nginx(tree, folder, own_user=own_user)
        )

    def connect(self, *, small_buffer: bool = False) -> Wire:
        """Connect; with a small buffer, what is not read stays at the relay."""
        connection = socket.socket()
        if small_buffer:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(HANG_S)
        try:
            connection.connect(("127.0.0.1", self.port))
            if self.tls is not None:
                tls, name = self.tls, "localhost"
                connection = tls.wrap_socket(connection, server_hostname=name)
        except OSError:
            connection.close()
            raise
        wire = Wire(connection)
        _WIRES.append(wire)
        return wire

    def send(self, data: bytes) -> Answer:
        """Send bytes over a connection of their own and read one answer."""
        wire = self.connect()
        try:
            wire.send(data)
            return read_answer(wire)
        finally:
            wire.close()

    def post(self, *fields: str, target: str = "/demo") -> Answer:
        return self.send(raw_request(*fields, target=target))

    def get(self, target: str, *fields: str) -> Answer:
        request = raw_request(
            *fields, method="GET", target=target, body=None, kind=None
        )
        return self.send(request)

    def silence(self, data: bytes) -> bool:
        """Send bytes; whether the connection ended without any answer."""
        wire = self.connect()
        wire.send(data)
        silent = wire.ended()
        wire.close()
        return silent

    def drain(self) -> None:
        """Ask for an orderly end: running requests may finish."""
        graceful = signal.SIGTERM if self.kind == "built-in" else signal.SIGQUIT
        self.process.send_signal(graceful)

    def stop(self) -> str:
        """End it; return what it wrote to its standard streams."""
        if self.process.poll() is None:
            self.process.terminate()
        out, err = self.process.communicate(timeout=HANG_S)
        return str(out) + str(err)


def toml(tree: Tree) -> str:
    """Write a configuration of texts, numbers, lists and one level of tables."""
    plain, tables = list[str](), list[str]()
    for key, value in tree.items():
        if isinstance(value, Mapping):
            table = cast("Mapping[str, object]", value)
            tables += ["", f"[{key}]"]
            tables += [
                f"{json.dumps(name)} = {json.dumps(each)}"
                for name, each in table.items()
            ]
        else:
            plain.append(f"{key} = {json.dumps(value)}")
    text = "\n".join([*plain, *tables, ""])
    assert tomllib.loads(text) == tree
    return text


def generate(tree: Tree, folder: Path) -> str:
    """Make an nginx configuration of a relay's."""
    return nginx_config(parse_config(toml(tree), {}), folder)


def _start_built_in(tree: Tree, folder: Path) -> tuple[subprocess.Popen[str], int]:
    file = folder / "relay.toml"
    file.write_text(toml({**tree, "listen": "127.0.0.1:0"}), "utf-8")
    process = _spawn([sys.executable, "-m", "curtilage.relay", "--config", str(file)])
    assert process.stdout is not None
    ready = process.stdout.readline()
    assert ready, process.communicate()[1]
    return process, int(json.loads(ready)["listen"].rpartition(":")[2])


def _start_nginx(
    tree: Tree, folder: Path, *, own_user: bool
) -> tuple[subprocess.Popen[str], int]:
    port = free_port()
    file = folder / "nginx.conf"
    text = generate({**tree, "listen": f"127.0.0.1:{port}"}, folder)
    file.write_text(text, "utf-8")
    directives = "daemon off;"
    if own_user and os.geteuid() == 0:
        directives += f" user {pwd.getpwuid(0).pw_name};"
    process = _spawn([str(NGINX), "-c", str(file), "-g", directives])
    while not _answers(port):
        if process.poll() is not None:
            raise RuntimeError(process.communicate()[1])
    return process, port


def _spawn(command: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def _answers(port: int) -> bool:
    """Return whether a worker reads; the master alone already listens.

    A signal to a master whose worker only begins can be lost on the worker.
    """
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=0.2) as probe:
            # No request, so that no limit counts it; over TLS, too, it is answered.
            probe.sendall(b"?\r\n\r\n")
            probe.settimeout(30)
            return bool(probe.recv(1))
    except OSError:
        return False


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
